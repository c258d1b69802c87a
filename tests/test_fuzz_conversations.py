"""Whole HTTP/1.1 and HTTP/2 conversations, changed at random from a fixed seed: every run ends well.

The program runs inside this process and meets a server on loopback that sends the changed bytes and closes.
The promise is that of the hostile cases: a specified exit code, a sound document, nothing raw, no wait.
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
    PING,
    STATUS_200,
    WINDOW_UPDATE,
    Conversation,
    field,
    frame,
    head,
    settings,
)
from servers import Peer, scripted

HTTP1 = [
    b"HTTP/1.1 200 OK\r\nServer: a\r\nContent-Type: text/html\r\nContent-Length: 12\r\n\r\nhello world\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n3\r\nyou\r\n0\r\nX: y\r\n\r\n",
    b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\nHTTP/1.1 302 Found\r\nLocation: /x\r\n\tfolded\r\n\r\nbody",
    b"HTTP/1.0 404 Not Found\nSet-Cookie: a=b\nSet-Cookie: c=d; Secure\n\nuntil the end",
]
HTTP2 = [
    settings((3, 100), (4, 65535))
    + head(STATUS_200 + field(b"server", b"a", 0x40))
    + frame(DATA, b"hello\n", END_STREAM),
    settings()
    + frame(WINDOW_UPDATE, b"\0\1\0\0", 0, 0)
    + head(field(b":status", b"103"))
    + frame(HEADERS, b"\x02" + STATUS_200 + b"\0\0", PADDED)
    + frame(CONTINUATION, field(b"content-length", b"6", 0x40) + b"\xbe", END_HEADERS)
    + frame(PING, b"12345678", 0, 0)
    + frame(DATA, b"\x03hello\n\0\0\0", PADDED)
    + head(field(b"x-trailer", b"\x1b[2J"), END_STREAM),
]
WORDS = [
    b"\r\n",
    b"\n",
    b"\0",
    b"\x1b[2J",
    b"\xff",
    b" ",
    b":",
    b"0",
    b"-1",
    b"9" * 20,
    b"chunked",
    b"HTTP/1.1 ",
]


def mutate(data: bytes, choice: random.Random) -> bytes:
    """Change one to four places of a conversation."""
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
    document = check_document(json.loads(result.out))
    (step,) = document["steps"]
    assert result.code == (75 if step["error"] else 0), result.err
    assert not step["error"] or step["error"]["kind"] in ("protocol", "network", "tls"), step["error"]


def ask_all(call_tool, url, cases, *options) -> None:
    """Ask a server that answers with one case after the other."""
    for case in cases:
        result = call_tool(url, "-m", "10", "--json", "-", "--metrics-only", *options)
        try:
            check_end(result)
        except AssertionError as error:
            raise AssertionError(f"{case!r}") from error


@pytest.mark.parametrize("seed", range(4))
def test_no_change_to_a_conversation_over_http1_does_harm(call_tool, seed):
    choice = random.Random(seed)
    cases = [mutate(choice.choice(HTTP1), choice) for _ in range(120)]

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(cases[peer.number])

    with scripted(script) as server:
        ask_all(call_tool, server.url(), cases)


@pytest.mark.needs("h2")
@pytest.mark.parametrize("seed", range(4))
def test_no_change_to_a_conversation_over_http2_does_harm(call_tool, authority, seed):
    choice = random.Random(seed)
    cases = [mutate(choice.choice(HTTP2), choice) for _ in range(60)]

    def script(peer: Peer) -> None:
        Conversation(peer).read_head()
        peer.send(cases[peer.number])

    with scripted(script, tls=authority.context(alpn=("h2",))) as server:
        ask_all(call_tool, server.url(), cases, "--cacert", authority.file)
