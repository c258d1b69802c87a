"""HTTP/1.1 servers that break every rule of RFC 9112, and some that only look as if they did."""

from __future__ import annotations

import itertools
import socket

import pytest

from hostile.cases import Case, check_manners, flood, talk
from servers import Peer, scripted

OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"Content-Length: 6\r\n\r\nhello\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


HINT = b"HTTP/1.1 103 E\r\n\r\n"


def before_the_request(peer: Peer) -> None:
    peer.send(HELLO)
    peer.read_request()


def without_reading(peer: Peer) -> None:
    """Answer and hang up with the request unread; the kernel then sends a RST."""
    peer.sock.recv(1, socket.MSG_PEEK)
    peer.send(HELLO)


STATUS_LINES = [
    Case(f"the status line {line!r}", line + b"\r\nContent-Length: 0\r\n\r\n", phase="wait")
    for line in (
        *(b"HTTP/1.1 ", b"HTTP/1.1 20 OK", b"HTTP/1.1 099 OK", b"HTTP/1.1 2_0 OK", b"HTTP/1.1\t200\tOK"),
        *(b"HTTP/1.1 \xb2\xb2\xb2 OK", b"HTTP/9.9 200 OK", b"HTTP/1.10 200 OK", b"ICY 200 OK"),
        *(b"\xef\xbb\xbfHTTP/1.1 200 OK", b"\x1b[2J\x1b[H\x07\x9b31m"),
    )
]

SIX = b"Content-Length: 6\r\n\r\nhello\n"
GOOD = [
    Case(name, answer, None, 200, size)
    for name, answer, size in (
        ("HTTP/1.0 until the connection closes", b"HTTP/1.0 200 OK\r\n\r\nhello\n", 6),
        ("line feeds alone", b"HTTP/1.1 200 OK\nContent-Length: 6\n\nhello\n", 6),
        ("a length with a NUL", OK + b"Content-Length: 6\0\r\n\r\nhello\n", 6),
        ("a thousand header lines", OK + b"Set-Cookie: a=b\r\n" * 999 + SIX, 6),
        ("a name that is no token", OK + b"a/b(c).php: x\r\n" + SIX, 6),
        ("a folded line before any header", OK + b" x: y\r\n" + SIX, 6),
        ("warnings in place of a thousand headers", OK + b"PHP Warning: x\r\n" * 999 + SIX, 6),
        ("a hundred interim responses", b"HTTP/1.1 102 P\r\n\r\n" * 100 + HELLO, 6),
        ("a response before the request", before_the_request, 6),
        ("an answer from a server that never reads", without_reading, 6),
        ("a reset after the whole response", talk(HELLO, end="reset"), 6),
    )
] + [
    Case("a body for 204", HELLO.replace(b"200", b"204"), None, 204, 0),
    Case("HEAD with a body", HELLO, None, 200, 0, ("-X", "HEAD")),
    Case("a Location without a redirect", OK + b"Location: http://a.test/\r\n\r\n", None, 200, 0, ("-L",)),
]

HEADERS = [
    Case("a header without a colon", OK + b"Server\r\n\r\n"),
    Case("a name with ESC", OK + b"\x1b[31m: x\r\n\r\n"),
    Case("one interim response too many", b"HTTP/1.1 102 P\r\n\r\n" * 101 + HELLO),
    Case("an interim response and nothing more", b"HTTP/1.1 100 Continue\r\n\r\n", phase="wait"),
    Case(
        "half an interim response", b"HTTP/1.1 103 E\r\nLink: </s", phase="wait", says="middle of its header"
    ),
    Case("a blank line first", b"\r\n" + HELLO, phase="wait", says="begins with a blank line"),
    Case(
        "another protocol", b"HTTP/1.1 101 S\r\n\r\n" + HELLO, phase="wait", says="switched protocols (101)"
    ),
]

LARGE = [  # or without end
    Case("one header line too many", OK + b"X: y\r\n" * 1001 + b"\r\n"),
    Case(
        "a megabyte of folded lines", OK + b"X: y\r\n" + (b" " + b"z" * 4000 + b"\r\n") * 400, says="larger"
    ),
    Case("a reason of half a megabyte", OK[:-4] + b"y" * 500_000 + b"\r\n\r\n", None, 200, 0),
    Case("a megabyte after the response", HELLO + b"\x1b[2J" * 250_000, None, 200, 6),
    Case("200,000 chunks of one byte", CHUNKED + b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n", None, 200, 200_000),
    Case("one header line without end", flood(OK + b"X: ", b"y" * 65536)),
    Case("a status line without end", flood(b"HTTP/1.1 200 ", b"y" * 65536)),
    Case("NULs without end", flood(b"", b"\0" * 65536), phase="wait"),
    Case("line feeds without end", flood(b"", b"\n" * 65536), phase="wait"),
    Case("interim responses without end", flood(b"", b"HTTP/1.1 103 E\r\n" + b"X: y\r\n" * 999 + b"\r\n")),
    Case("trailers without end", flood(CHUNKED + b"0\r\n", b"X: y\r\n")),
    Case("a chunk size without end", flood(CHUNKED, b"0" * 65536)),
    Case(
        "interim responses that drip",
        flood(b"", HINT, 0.05),
        "timeout",
        says="only interim responses (103, 1",
    ),
    Case("a body without end", flood(OK + b"\r\n", b"y" * 65536), "timeout"),
]

LENGTHS = [
    Case(f"the length {value!r}", OK + b"Content-Length: " + value + b"\r\n\r\nhello\n", phase="xfer")
    for value in (
        *(b"", b"+6", b"0x6", b"1_0", b"6 6", b"6,06,7", b"6,", b"\xb2", b"\x1b[31m6", b"\x006\x006"),
        *(b"9" * 5000, b"1000000000000000", b"6\r\nContent-Length: 7"),
    )
] + [
    Case("the largest length that is read", OK + b"Content-Length: 999999999999999\r\n\r\nhello\n", size=6),
]

CHUNKS = (
    [
        Case(name, CHUNKED.replace(b"chunked", coding) + body, None, 200, size)
        for name, coding, body, size in (
            ("chunks and a length", b"chunked\r\nContent-Length: 3", b"6\r\nhello\n\r\n0\r\n\r\n", 6),
            ("chunked after gzip", b"gzip, chunked", b"1\r\nx\r\n0\r\n\r\n", 1),
            ("gzip as the last coding", b"chunked, gzip", b"hello\n", 6),
            ("two fields of codings", b"gzip\r\nTransfer-Encoding: chunked", b"1\r\nx\r\n0\r\n\r\n", 1),
            ("chunk sizes with leading zeros", b"chunked", b"0" * 500 + b"1\r\nx\r\n0\r\n\r\n", 1),
        )
    ]
    + [
        Case("a trailer without a colon", CHUNKED + b"0\r\n\x1b[31m\r\n\r\n"),
        Case("no line end after a chunk", CHUNKED + b"6\r\nhello\n0\r\n\r\n", says="longer than its size"),
        Case("more than a chunk, then silence", talk(CHUNKED + b"5\r\nhello!", end="hold"), size=5),
        Case("a chunk of the largest size that is read", CHUNKED + b"FFFFFFFFFFFFFFF\r\nhello\n", size=6),
        Case("the last chunk without its last line", talk(CHUNKED + b"0\r\n", end="hold"), "timeout"),
    ]
    + [
        Case(f"the chunk size {size[:30]!r}", CHUNKED + size + b"\r\nhello\n\r\n0\r\n\r\n", says="chunk size")
        for size in (b"", b"-1", b"0x6", b"6 6", b"\xb2", b"6\x00", b"f" * 5000, b"8000000000000000", b";x")
    ]
)

TRUNCATIONS = [
    Case(f"the response ends after {sent!r}", sent, "protocol", status, size, phase=phase)
    for sent, phase, status, size in (
        (b"HTTP/1.1 200", "wait", None, None),
        (OK, "xfer", None, None),
        (OK + b"Content-Length: 6\r\n\r\n", "xfer", 200, 0),
        (OK + b"Content-Length: 6\r\n\r\nhello", "xfer", 200, 5),
        (CHUNKED + b"3\r", "xfer", 200, 0),
        (CHUNKED + b"3\r\na", "xfer", 200, 1),
        (CHUNKED + b"3\r\nabc", "xfer", 200, 3),
        (CHUNKED + b"3\r\nabc\r\n0", "xfer", 200, 3),
        (CHUNKED + b"3\r\nabc\r\n0\r\n", "xfer", 200, 3),
    )
]

CLOSED = (  # what is sent before the end, the phase, words of the message, and of the hint
    (b"", "wait", "closed the connection without an answer", "https://"),
    (OK + b"Serv", "xfer", "header", "log"),
    (HELLO[:-1], "xfer", "5 of 6 bytes", "log"),
    (CHUNKED + b"1\r\nx\r\n", "xfer", "1 bytes, without its last chunk", "hung up"),
    (b"SSH-2.0-OpenSSH_9\r\n", "wait", "SSH-2.0", "port"),
    (b"\x15\x03\x01\x00\x02\x02\x16", "wait", "TLS", "https://"),
    (
        b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64",
        "wait",
        "HTTP/2 without TLS on this port",
        "over TLS with ALPN",
    ),
)
HELD = (
    (b"", "wait", "no response came within 1 s", "-m"),
    (HINT, "wait", "103", "-m"),
    (OK + b"Con", "xfer", "header", "-m"),
    (HELLO[:-1].replace(b"6", b"6, 06"), "xfer", "5 of 6 bytes", "program"),
)
EXPLAINED = [
    Case(f"{end} after {sent!r}", talk(sent, end=end), kind, phase=phase, says=says, hint=hint)
    for end, kind, rows in (("close", "protocol", CLOSED), ("hold", "timeout", HELD))
    for sent, phase, says, hint in rows
]

RESETS = [
    Case(f"a reset {name}", talk(sent, end="reset"), "network", None, size, phase=phase, says=says)
    for name, sent, size, phase, says in (
        ("in the status line", b"HTTP/1.", None, "wait", "before any answer came"),
        ("in the head", OK + b"Server: x", None, "xfer", "within the header"),
        ("after the head", OK + b"Content-Length: 9\r\n\r\n", 0, "xfer", "after 0 bytes of the body"),
        ("in the body", OK + b"Content-Length: 9\r\n\r\nhello", 5, "xfer", "after 5 bytes of the body"),
        ("between chunks", CHUNKED + b"1\r\nx\r\n", 1, "xfer", "after 1 bytes of the body"),
        ("after interim responses", b"HTTP/1.1 100 C\r\n\r\n", None, "wait", "before any answer came"),
    )
] + [
    Case("a reset before the request", lambda peer: peer.reset(), "network"),
    Case(
        "a reset after a refusal",
        talk(b"HTTP/1.1 413 Too Large\r\nContent-Length: 500\r\n\r\nno entry", end="reset"),
        "network",
        413,
        says="the answer was 413 Too Large, then connection ",
        hint="The answer says why",
    ),
    Case(
        "a reset instead of an answer", talk(end="reset"), "network", phase="wait", hint="ask with https://"
    ),
]

FAMILY = [*STATUS_LINES, *GOOD, *HEADERS, *LENGTHS, *CHUNKS, *TRUNCATIONS, *EXPLAINED, *RESETS]
FAMILY += [case._replace(apart=True) for case in LARGE]


@pytest.mark.parametrize("case", FAMILY, ids=lambda case: case.name)
def test_a_hostile_http1_server_is_reported_and_survived(play, case):
    play(case)


def test_answers_that_never_repeat_fill_no_memory(run_tool):
    """Each has names of fields that none before it had."""
    numbers = itertools.count(1_000_000_000)

    def script(peer: Peer) -> None:
        while peer.read_request():
            fields = b"".join(b"X%d-%d: a\r\n" % (next(numbers), 10**900) for _ in range(990))
            peer.send(OK + fields + b"Content-Length: 0\r\n\r\n")

    with scripted(script) as server:
        outcome = run_tool(server.url(), "--count", "120", "--interval", "0")
    assert outcome.code == 0
    check_manners(outcome)
