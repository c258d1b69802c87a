"""TLS that is none, that stops, that lies, and certificates that are too much."""

from __future__ import annotations

import os
import ssl
from typing import Any

import pytest

from certificates import Handshake, tls_record
from hostile.cases import Case, flood, talk
from servers import Peer, Script

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nhello\n"
HANDSHAKE, ALERT, CHANGE_CIPHER_SPEC, APPLICATION = 22, 21, 20, 23


def hello(peer: Peer) -> None:
    peer.sock.recv(65536)


def raw(name: str, data: bytes, kind: str = "tls", end: str = "close", **expected: Any) -> Case:
    return Case(name, talk(data, first=hello, end=end), kind, over="raw", **expected)


NOT_TLS = [
    raw(f"{name} instead of a ServerHello", data, phase="tls")
    for name, data in (
        *((f"an alert of {data!r}", tls_record(ALERT, data)) for data in (b"\2\xff", b"\1\0", b"\xff\xff")),
        ("nothing", b""),
        ("half a record", b"\x16\x03\x03\x00\x40" + b"\2" * 20),
        ("NULs", b"\0" * 4096),
        ("application data", tls_record(APPLICATION, b"x" * 64)),
        ("a record of 65,535 bytes", tls_record(HANDSHAKE, b"\2" * 65535)),
        ("a handshake message of 16 MB", tls_record(HANDSHAKE, b"\x02\xff\xff\xff" + b"\0" * 16000) * 60),
        ("two HelloRetryRequests", tls_record(HANDSHAKE, b"\x02\x00\x00\x26\x03\x03" + b"\xcf" * 36) * 2),
    )
]

NOT_TLS += [
    Case(f"{name} without end", flood(b"", unit, first=hello), "tls", over="raw", apart=True)
    for name, unit in (
        ("a handshake message", tls_record(HANDSHAKE, b"\x02\xff\xff\xff" * 4096)),
        ("warnings", tls_record(ALERT, b"\x01\x5a")),
        ("changes of cipher", tls_record(CHANGE_CIPHER_SPEC, b"\x01")),
        ("empty records", tls_record(HANDSHAKE, b"")),
    )
]
NOT_TLS += [
    raw("silence after the ClientHello", b"", "timeout", "hold"),
    raw("a reset after the ClientHello", b"", "network", "reset", phase="tls", says="reset"),
    Case("a reset before the ClientHello", lambda peer: peer.reset(), "network", over="raw", says="reset"),
]


@pytest.mark.parametrize("case", NOT_TLS, ids=lambda case: case.name)
def test_what_is_no_tls_is_reported_and_survived(play, case):
    play(case)


def spoilt(context: ssl.SSLContext, share: float, how: str) -> Script:
    """Send the server's first flight up to a share of it, and end as told; or change the byte there alone."""

    def script(peer: Peer) -> None:
        flight = bytearray(Handshake(peer, context).flight())
        at = round(share * len(flight))
        if how == "bend":
            flight[min(len(flight) - 1, at)] ^= 0x55
        peer.send(bytes(flight if how == "bend" else flight[:at]))
        if how == "reset":
            peer.reset()
        elif how != "close":
            peer.wait(60) if how == "hold" else peer.read_to_end()

    return script


# Not the second byte: a record's version is to be ignored (RFC 8446 section 5.1), and is by some.
@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
@pytest.mark.parametrize(
    ("how", "kind"), [("close", "tls"), ("reset", "network"), ("hold", "timeout"), ("bend", "tls")]
)
def test_a_handshake_that_is_cut_off_or_has_one_wrong_byte_is_reported(play, contexts, share, how, kind):
    play(Case(f"{how} at {share}", spoilt(contexts["https"], share, how), kind, over="raw"))


def in_plain(data: bytes) -> Script:
    """Fall out of TLS after the request: write on the TCP connection itself."""

    def script(peer: Peer) -> None:
        peer.read_request()
        os.write(peer.sock.fileno(), data)

    return script


def whole(data: bytes) -> Script:
    """Send a response and end TLS as is proper."""

    def script(peer: Peer) -> None:
        talk(data)(peer)
        peer.sock.unwrap()

    return script


def in_single_bytes(peer: Peer) -> None:
    """Send every byte of a response in a TLS record of its own."""
    peer.read_request()
    for value in HELLO.replace(b"6", b"5000", 1) + b"x" * 4994:
        peer.send(bytes([value]))


AFTER = [
    case._replace(over="https")
    for case in (
        Case("an escape sequence in plain", in_plain(b"\x1b[2J" * 9), "tls"),
        Case("half a record in plain", in_plain(tls_record(APPLICATION, b"x" * 9, 99))),
        Case("no length and a close_notify", whole(UNTIL_CLOSE), None, 200, 6),
        Case("no close_notify", UNTIL_CLOSE, "protocol", 200, 6, phase="xfer", says="close_notify"),
        Case("no answer and a close_notify", whole(b""), "protocol"),
        Case("a record for every byte", in_single_bytes, None, 200, 5000),
        Case("a reset after the request", talk(end="reset"), "network", phase="wait", hint="look at its log"),
        Case("a body without end over TLS", flood(UNTIL_CLOSE, b"x" * 65536), "timeout", apart=True),
        Case("HTTP/2 unasked", b"\0\0\0\4\0\0\0\0\0" * 9, phase="wait", says="over TLS, but without ALPN,"),
    )
]


@pytest.mark.parametrize("case", AFTER, ids=lambda case: case.name)
def test_tls_that_breaks_after_the_handshake_is_reported(play, case):
    play(case)


@pytest.mark.parametrize(("count", "kind"), [(1500, None), (4000, "tls")])
def test_a_certificate_of_many_names_is_read_or_beyond_what_openssl_takes(play, authority, count, kind):
    context = authority.context("127.0.0.1", *(f"name-{n}.a-rather-long-domain.test" for n in range(count)))
    play(Case(f"{count} names", HELLO, kind, over="https"), tls=context)


def test_a_flood_of_session_tickets_is_survived(play, authority):
    context = authority.context()
    context.num_tickets = 2000
    play(Case("tickets", HELLO, None, 200, 6, over="https"), tls=context)
