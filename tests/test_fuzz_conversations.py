"""Whole conversations, changed at random from a fixed seed: responses of HTTP/1.1, frames of HTTP/2, and the
answers of proxies. Every run ends well: a specified exit code, a sound document, nothing raw, in its time.

The program runs inside this process and meets a server on loopback that sends the changed bytes and closes.
"""

from __future__ import annotations

import json
import random

import pytest

from checks import UNSAFE, check_document
from frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PINGED,
    STATUS_200,
    Conversation,
    field,
    frame,
    head,
    settings,
    window,
)
from servers import Peer, scripted

HTTP1 = [
    b"HTTP/1.1 200 OK\r\nServer: a\r\nContent-Type: text/html\r\nContent-Length: 12\r\n\r\nhello world\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n3\r\nyou\r\n0\r\nX: y\r\n\r\n",
    b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\nHTTP/1.1 302 Found\r\nLocation: /x\r\n\tfolded\r\n\r\nbody",
    b"HTTP/1.0 404 Not Found\nSet-Cookie: a=b\nServer-Timing: a;dur=5\n\nuntil the end",
]
HTTP2 = [
    settings((3, 100), (4, 65535))
    + head(STATUS_200 + field(b"server", b"a", 0x40))
    + frame(DATA, b"hello\n", END_STREAM),
    settings()
    + window(65536, 0)
    + head(field(b":status", b"103"))
    + frame(HEADERS, b"\x02" + STATUS_200 + b"\0\0", PADDED)
    + frame(CONTINUATION, field(b"content-length", b"6", 0x40) + b"\xbe", END_HEADERS)
    + PINGED
    + frame(DATA, b"\x03hello\n\0\0\0", PADDED)
    + head(field(b"x-trailer", b"\x1b[2J"), END_STREAM),
]
TUNNEL = [
    b"HTTP/1.1 200 Connection established\r\nProxy-Agent: x\r\n\r\n",
    b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 3\r\n\r\nno\n",
]
SOCKS = [b"\5\0\5\0\0\1\x7f\0\0\1\0\x50", b"\5\2\1\0\5\5\0\3\4host\0\x50"]
WORDS = [*b"\r\n|\n|\0|\x1b[2J|\xff| |:|0|-1|chunked|HTTP/1.1 ".split(b"|"), b"9" * 20]


def mutate(data: bytes, choice: random.Random) -> bytes:
    for _ in range(choice.randint(1, 4)):
        start = choice.randrange(len(data) + 1)
        end = min(len(data), start + choice.choice((0, 1, 1, 2, 4, 16)))
        piece = data[start:end]
        flipped = bytes(value ^ 1 << choice.randrange(8) for value in piece)
        anything, word = bytes([choice.randrange(256)]), choice.choice(WORDS)
        ways = (b"", piece[::-1], flipped, anything, word, piece * choice.choice((2, 3, 300)))
        data = data[:start] + choice.choice(ways) + data[end:]
    return data[: choice.randrange(len(data) + 1)] if data and choice.random() < 0.1 else data


def check_end(result) -> None:
    """Prove that a run ended as one may: by itself, with a sound document and a code that fits."""
    assert not UNSAFE.search(result.out)
    assert all(char == "\n" or char.isprintable() for char in result.err)
    (step,) = check_document(json.loads(result.out))["steps"]
    assert result.code == (75 if step["error"] else 0), result.err
    assert not step["error"] or step["error"]["kind"] in ("protocol", "network", "tls", "proxy"), step[
        "error"
    ]
    owed = sum(share["ms"] for share in step["account"])
    assert owed == pytest.approx(step["timing"]["total_ms"] or 0, abs=0.002 * len(step["account"]))


def http1(peer: Peer) -> None:
    peer.read_until(b"\r\n\r\n")


KINDS = {  # what is changed, what is read before it is sent, the options, and the URL
    "http1": (HTTP1, http1, (), None),
    "http2": (HTTP2, lambda peer: Conversation(peer).read_head(), ("--cacert", "{trust}"), None),
    "tunnel": (TUNNEL, http1, ("--cacert", "{trust}", "-x", "http://{place}"), "https://a.test/"),
    "socks": (SOCKS, lambda peer: peer.sock.recv(999), ("-x", "socks5h://me:pw@{place}"), "http://a.test/"),
}


@pytest.mark.needs("h2", "socks")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_no_change_to_a_conversation_does_harm(call_tool, authority, kind, seed):
    known, first, options, url = KINDS[kind]
    choice = random.Random(seed)
    cases = [mutate(choice.choice(known), choice) for _ in range(100)]

    def script(peer: Peer) -> None:
        first(peer)
        peer.send(cases[peer.number])

    with scripted(script, tls=authority.context(alpn=("h2",)) if kind == "http2" else None) as server:
        words = [word.format(trust=authority.file, place=server.authority) for word in options]
        for case in cases:
            result = call_tool(url or server.url(), "-m", "10", "--json", "-", "--metrics-only", *words)
            try:
                check_end(result)
            except AssertionError as error:
                raise AssertionError(f"{case!r}") from error
