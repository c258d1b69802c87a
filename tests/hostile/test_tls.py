"""TLS that is none, that stops, that lies, and certificates made to be printed."""

from __future__ import annotations

import os
import ssl
import struct

import pytest

from hostile.runner import Case, Script
from servers import Peer, sending

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nhello\n"
HANDSHAKE, ALERT, CHANGE_CIPHER_SPEC, APPLICATION, HEARTBEAT = 22, 21, 20, 23, 24


def record(kind: int, payload: bytes, length: int | None = None) -> bytes:
    """Make a TLS record whose header may lie about its length."""
    return struct.pack("!BHH", kind, 0x0303, len(payload) if length is None else length) + payload


def after_hello(*parts: bytes, hold: bool = False, reset: bool = False) -> Script:
    """Read the ClientHello, send the parts to the letter, then close, hold or reset."""

    def script(peer: Peer) -> None:
        peer.sock.recv(65536)
        for part in parts:
            peer.send(part)
        if hold:
            peer.wait(60)
        if reset:
            peer.wait(0.1)
            peer.reset()

    return script


def flood(unit: bytes) -> Script:
    """Read the ClientHello and send `unit` until the client goes away."""

    def script(peer: Peer) -> None:
        peer.sock.recv(65536)
        while not peer.wait(0):
            peer.send(unit)

    return script


NOT_TLS = [
    Case(f"{name} instead of a ServerHello", after_hello(data), "tls", over="raw")
    for name, data in (
        ("nothing", b""),
        ("one byte", b"\x16"),
        ("half a record header", b"\x16\x03\x03"),
        ("a record header alone", b"\x16\x03\x03\x00\x40"),
        ("half a record", b"\x16\x03\x03\x00\x40" + b"\2" * 20),
        ("NULs", b"\0" * 4096),
        ("0xFF", b"\xff" * 4096),
        ("an HTTP response", HELLO),
        ("an SSH banner", b"SSH-2.0-OpenSSH_9.2\r\n"),
        ("an escape sequence", b"\x1b[2J\x1b]0;x\x07"),
        ("an SSLv2 record", b"\x80\x2e\x04\x00\x01\x00\x02"),
        ("a ClientHello", record(HANDSHAKE, b"\x01\x00\x00\x02\x03\x03")),
        ("a Finished", record(HANDSHAKE, b"\x14\x00\x00\x00")),
        ("application data", record(APPLICATION, b"x" * 64)),
        ("a heartbeat", record(HEARTBEAT, b"\x01\x40\x00")),
        ("a record of an unknown type", record(99, b"x" * 64)),
        ("a record of version 9.9", b"\x16\x09\x09\x00\x04\x02\x00\x00\x00"),
        ("an empty record", record(HANDSHAKE, b"")),
        ("a record of 65,535 bytes", record(HANDSHAKE, b"\2" * 65535)),
        ("a handshake message of 16 MB", record(HANDSHAKE, b"\x02\xff\xff\xff" + b"\0" * 16000) * 60),
        ("a ServerHello of nothing", record(HANDSHAKE, b"\x02\x00\x00\x00")),
        ("two HelloRetryRequests", record(HANDSHAKE, b"\x02\x00\x00\x26\x03\x03" + b"\xcf" * 36) * 2),
    )
]

ALERTS = [
    Case(
        f"alert {code} of level {level}", after_hello(record(ALERT, bytes([level, code]))), "tls", over="raw"
    )
    for level, code in [(2, 0), (2, 40), (2, 255), (1, 0), (1, 90), (1, 112), (0, 0), (255, 255)]
]

ENDLESS = [
    Case("silence after the ClientHello", after_hello(hold=True), "timeout", over="raw"),
    Case(
        "half a record and silence", after_hello(b"\x16\x03\x03\x00\x40\2", hold=True), "timeout", over="raw"
    ),
    Case(
        "a record header and silence", after_hello(b"\x16\x03\x03\x00\x40", hold=True), "timeout", over="raw"
    ),
    Case(
        "a handshake message without end",
        flood(record(HANDSHAKE, b"\x02\xff\xff\xff" * 4096)),
        "tls",
        over="raw",
    ),
    Case("warnings without end", flood(record(ALERT, b"\x01\x5a")), "tls", over="raw"),
    Case("changes of cipher without end", flood(record(CHANGE_CIPHER_SPEC, b"\x01")), "tls", over="raw"),
    Case("empty records without end", flood(record(HANDSHAKE, b"")), "tls", over="raw"),
    Case("zeros without end", flood(b"\0" * 65536), "tls", over="raw"),
    Case("a reset after the ClientHello", after_hello(reset=True), "network", over="raw"),
    Case("a reset before the ClientHello", lambda peer: peer.reset(), "network", over="raw"),
]


@pytest.mark.parametrize("case", NOT_TLS + ALERTS + ENDLESS, ids=lambda case: case.name)
def test_what_is_no_tls_is_reported_and_survived(play, case):
    play(case)


class Handshake:
    """A server's side of TLS in memory, so that what it sends can be cut, bent and dripped."""

    def __init__(self, peer: Peer, context: ssl.SSLContext) -> None:
        self.peer = peer
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    def flight(self) -> bytes:
        """Answer what the client sends next; return the answer, which is not sent."""
        data = self.peer.sock.recv(65536)
        self.incoming.write(data)
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()


def cut(context: ssl.SSLContext, share: float, end: str) -> Script:
    """Send so much of the server's first flight, then close, hold or reset."""

    def script(peer: Peer) -> None:
        flight = Handshake(peer, context).flight()
        peer.send(flight[: round(share * len(flight))])
        peer.wait(60 if end == "hold" else 0.1 if end == "reset" else 0)
        if end == "reset":
            peer.reset()

    return script


def bend(context: ssl.SSLContext, share: float) -> Script:
    """Change one byte of the server's first flight."""

    def script(peer: Peer) -> None:
        flight = bytearray(Handshake(peer, context).flight())
        flight[min(len(flight) - 1, round(share * len(flight)))] ^= 0x55
        peer.send(bytes(flight))
        peer.read_to_end()

    return script


def drip(context: ssl.SSLContext, pause: float) -> Script:
    """Send the server's first flight byte by byte."""

    def script(peer: Peer) -> None:
        peer.drip(Handshake(peer, context).flight(), pause)
        peer.wait(60)

    return script


SHARES = (0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("end", "kind"), [("close", "tls"), ("reset", "network")])
def test_a_handshake_that_is_cut_off_is_reported(play, contexts, share, end, kind):
    play(Case(f"cut at {share}, {end}", cut(contexts["https"], share, end), kind, over="raw"))


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_handshake_that_stops_meets_the_deadline(play, contexts, share):
    play(Case(f"stop at {share}", cut(contexts["https"], share, "hold"), "timeout", over="raw"))


def test_a_handshake_that_drips_meets_the_deadline(play, contexts):
    play(Case("drip", drip(contexts["https"], 0.02), "timeout", over="raw"))


# Not the first: that is a record's version, which is to be ignored (RFC 8446 section 5.1), and is by some.
@pytest.mark.parametrize("share", [0.0, *SHARES[1:], 0.2, 0.4, 0.6, 0.8])
def test_a_handshake_with_one_wrong_byte_is_reported(play, contexts, authority, share):
    options = ("--cacert", str(authority.file))
    play(Case(f"bent at {share}", bend(contexts["https"], share), "tls", options=options, over="raw"))


# --- after the handshake --------------------------------------------------------------------------


def in_plain(data: bytes) -> Script:
    """Fall out of TLS after the request: write on the TCP connection itself."""

    def script(peer: Peer) -> None:
        peer.read_request()
        os.write(peer.sock.fileno(), data)

    return script


def whole(data: bytes) -> Script:
    """Send a response and end TLS as is proper."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(data)
        peer.sock.unwrap()

    return script


def ragged(data: bytes) -> Script:
    """Send a response and end TCP without ending TLS."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(data)
        peer.end()

    return script


def in_single_bytes(peer: Peer) -> None:
    """Send every byte of a response in a TLS record of its own."""
    peer.read_request()
    for value in HELLO.replace(b"6", b"5000", 1) + b"x" * 4994:
        peer.send(bytes([value]))


def reset_after_request(peer: Peer) -> None:
    peer.read_request()
    peer.reset()


def flood_body(peer: Peer) -> None:
    peer.read_request()
    peer.send(UNTIL_CLOSE)
    while not peer.wait(0):
        peer.send(b"x" * 65536)


AFTER = [
    Case("plain text after the handshake", in_plain(HELLO), "tls", over="https"),
    Case("an escape sequence after the handshake", in_plain(b"\x1b[2J" * 9), "tls", over="https"),
    Case("a plain alert after the handshake", in_plain(record(ALERT, b"\x02\x28")), "tls", over="https"),
    Case(
        "a record of garbage after the handshake",
        in_plain(record(APPLICATION, b"x" * 80)),
        "tls",
        over="https",
    ),
    Case("a record that is too long", in_plain(record(APPLICATION, b"x" * 20_000)), "tls", over="https"),
    Case(
        "half a record after the handshake",
        in_plain(record(APPLICATION, b"x" * 9, 99)),
        "protocol",
        over="https",
    ),
    Case("a length and no close_notify", ragged(HELLO), None, 200, 6, over="https"),
    Case("no length and a close_notify", whole(UNTIL_CLOSE), None, 200, 6, over="https"),
    Case("no length and no close_notify", ragged(UNTIL_CLOSE), "protocol", 200, 6, over="https"),
    Case("no answer and a close_notify", whole(b""), "protocol", over="https"),
    Case("no answer and no close_notify", ragged(b""), "protocol", over="https"),
    Case("a record for every byte", in_single_bytes, None, 200, 5000, over="https"),
    Case("a reset after the request", reset_after_request, "network", over="https"),
    Case("a body without end over TLS", flood_body, "timeout", over="https"),
    Case(
        "HTTP/2 frames where HTTP/1.1 was agreed",
        sending(b"\0\0\0\4\0\0\0\0\0" * 9),
        "protocol",
        over="https",
    ),
    Case("HTTP/1.1 refused by http/0.9", sending(b"<html>hello</html>\n"), "protocol", over="https"),
]


@pytest.mark.parametrize("case", AFTER, ids=lambda case: case.name)
def test_tls_that_breaks_after_the_handshake_is_reported(play, case):
    play(case)


# --- certificates and contexts --------------------------------------------------------------------

NAMES = [
    "\x1b[31mred\x07",
    "[red]x[/red]",
    "\u202egpj.exe",
    "x" * 64,
    "null\0byte",
    "line\nfeed\rreturn",
    "\u7d66" * 20,
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_certificate_with_a_name_made_to_be_printed_is_printed_safely(play, authority, name):
    context = authority.context(common_name=name)
    play(Case(f"CN {name!r}", sending(HELLO), None, 200, 6, over="https"), tls=context)


def test_an_issuer_made_to_be_printed_is_printed_safely(play, authority):
    other = authority.trustme.CA(organization_name="\x1b[2J[red]", organization_unit_name="\x9b\u202e\n")
    leaf = other.issue_cert("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    case = Case("issuer", sending(HELLO), "tls", over="https")
    play(case, tls=context)


@pytest.mark.parametrize("count", [2, 200, 1500])
def test_a_certificate_of_many_names_is_read(play, authority, count):
    context = authority.context(
        "127.0.0.1", *(f"name-{number}.a-rather-long-domain.test" for number in range(count))
    )
    case = Case(f"{count} names", sending(HELLO), None, 200, 6, over="https")
    play(case, tls=context)


def test_a_chain_beyond_what_openssl_takes_is_a_failure(play, authority):
    context = authority.context("127.0.0.1", *(f"name-{n}.a-rather-long-domain.test" for n in range(4000)))
    play(Case("chain", sending(HELLO), "tls", over="https"), tls=context)


def test_a_flood_of_session_tickets_is_survived(play, authority):
    context = authority.context()
    context.num_tickets = 2000
    play(Case("tickets", sending(HELLO), None, 200, 6, over="https"), tls=context)
