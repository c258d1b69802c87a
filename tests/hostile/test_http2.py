"""HTTP/2 servers that break every rule of RFC 9113 and RFC 7541, frame by frame."""

from __future__ import annotations

import itertools
import struct

import pytest

from hostile.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    STATUS_200,
    STATUS_204,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    answer,
    field,
    flood,
    frame,
    head,
    number,
    read_frames,
    read_upload,
    settings,
)
from hostile.runner import Case, Script
from servers import Peer

pytestmark = pytest.mark.needs("h2")

BODY = frame(DATA, b"hello\n", END_STREAM)
HELLO = head() + BODY
FOUR = struct.Struct("!I").pack


def case(name: str, script: Script | bytes, kind: str | None = "protocol", **expected: object) -> Case:
    """Make a case over HTTP/2; bytes are sent after SETTINGS, and the connection stays open."""
    whole = answer(script) if isinstance(script, bytes) else script
    return Case(name, whole, kind, over="h2", **expected)


def fine(name: str, script: Script | bytes, **expected: object) -> Case:
    """Make a case that is legal, though odd."""
    return case(name, script, None, **{"status": 200, "size": 6, **expected})


def goaway(last: int, code: int, words: bytes = b"") -> bytes:
    return frame(GOAWAY, FOUR(last) + FOUR(code) + words, 0, 0)


def reset(code: int) -> bytes:
    return frame(RST_STREAM, FOUR(code))


LEGAL = [
    fine("an ordinary response", HELLO),
    fine("END_STREAM on an empty frame", head() + frame(DATA, b"hello\n") + frame(DATA, b"", END_STREAM)),
    fine("no body", head(flags=END_STREAM), size=0),
    fine("204", head(STATUS_204, END_STREAM), status=204, size=0),
    fine("a status that nobody knows", head(field(b":status", b"999")) + BODY, status=999),
    fine("trailers", head() + frame(DATA, b"hello\n") + head(field(b"x", b"y"), END_STREAM)),
    fine("padding", head() + frame(DATA, b"\x05hello\n" + b"\0" * 5, END_STREAM | PADDED)),
    fine("nothing but padding", head() + frame(DATA, b"\xff" + b"\0" * 255, PADDED) * 50 + BODY),
    fine("padded headers", frame(HEADERS, b"\x03" + STATUS_200 + b"\0\0\0", END_HEADERS | PADDED) + BODY),
    fine(
        "headers with a priority",
        frame(HEADERS, b"\0\0\0\0\x10" + STATUS_200, END_HEADERS | WITH_PRIORITY) + BODY,
    ),
    fine("headers in pieces", frame(HEADERS, b"") + frame(CONTINUATION, STATUS_200, END_HEADERS) + BODY),
    fine("frames of unknown types", frame(0x42, b"\x1b[2J") * 9 + head() + frame(0xFA, b"x", 0xFF, 0) + BODY),
    fine("unknown settings", settings((0x99, 7), (0xFFFF, 0xFFFFFFFF)) + HELLO),
    fine("pings", frame(PING, b"12345678", 0, 0) * 20 + HELLO),
    fine("SETTINGS acknowledged twenty times", frame(SETTINGS, b"", ACK, 0) * 20 + HELLO),
    fine("RST_STREAM of a stream that never was", frame(RST_STREAM, bytes(4), 0, 3) + HELLO),
    fine("an answer to no ping", frame(PING, b"12345678", ACK, 0) + HELLO),
    fine("priorities", frame(PRIORITY, b"\0\0\0\0\x10", 0, 3) * 20 + HELLO),
    fine("a header table of nothing", settings((1, 0)) + HELLO),
    fine("a header table of 4 GB", settings((1, 0xFFFFFFFF)) + HELLO),
    fine("no concurrent streams", settings((3, 0)) + HELLO),
    fine("the largest window", settings((4, 0x7FFFFFFF)) + HELLO),
    fine("the largest frames", settings((5, 0xFFFFFF)) + HELLO),
    fine("a header list of nothing", settings((6, 0)) + HELLO),
    fine("interim responses", head(field(b":status", b"103")) * 9 + HELLO),
    fine("GOAWAY that covers the request", goaway(1, 0) + HELLO),
    fine("GOAWAY in the body", head() + goaway(1, 0, b"\x1b[2J") + BODY),
    fine("GOAWAY that covers all", goaway(0x7FFFFFFF, 0) + HELLO),
    fine("RST_STREAM(NO_ERROR) after the end", HELLO + reset(0)),
    fine("rubbish after the end", HELLO + b"\x1b[2J" * 999),
    fine("a close after the end", answer(HELLO, hold=False)),
    fine("names of rich markup", head(STATUS_200 + field(b"server", b"[red]x[/]")) + BODY),
    fine("the same length twice", head(STATUS_200 + field(b"content-length", b"6") * 2) + BODY),
    fine("a second response after the first", HELLO + HELLO),
    fine(
        "a response before the request",
        lambda peer: (peer.send(settings()), read_frames(peer), peer.send(HELLO), peer.wait(9)),
    ),
    fine("a table that is shrunk and grown", head(b"\x20" + number(4096, 5, 0x20) + STATUS_200) + BODY),
]

OUT_OF_PLACE = [
    case("DATA before the head", frame(DATA, b"x")),
    case("DATA on stream 0", frame(DATA, b"x", 0, 0) + HELLO),
    case("DATA on a stream that never was", head() + frame(DATA, b"x", 0, 3) + BODY),
    case("DATA on a stream of the server", head() + frame(DATA, b"x", 0, 2) + BODY),
    case("HEADERS on stream 0", frame(HEADERS, STATUS_200, END_HEADERS, 0)),
    case("HEADERS on a stream that never was", frame(HEADERS, STATUS_200, END_HEADERS, 3)),
    case("HEADERS on a stream of the server", frame(HEADERS, STATUS_200, END_HEADERS, 2)),
    case("CONTINUATION before HEADERS", frame(CONTINUATION, STATUS_200, END_HEADERS)),
    case("CONTINUATION after the head", head() + frame(CONTINUATION, STATUS_200, END_HEADERS)),
    case("CONTINUATION on another stream", frame(HEADERS, b"") + frame(CONTINUATION, STATUS_200, 4, 3)),
    case("PING in the head", frame(HEADERS, STATUS_200) + frame(PING, b"12345678", 0, 0)),
    case("DATA in the head", frame(HEADERS, STATUS_200) + BODY),
    case("WINDOW_UPDATE in the head", frame(HEADERS, STATUS_200) + frame(WINDOW_UPDATE, FOUR(1), 0, 0)),
    case("GOAWAY in the head", frame(HEADERS, STATUS_200) + goaway(1, 0)),
    case("DATA in the trailers", head() + frame(HEADERS, field(b"x", b"y"), END_STREAM) + BODY),
    case("WINDOW_UPDATE on a stream that never was", frame(WINDOW_UPDATE, FOUR(1), 0, 3) + HELLO),
    case("PUSH_PROMISE though refused", frame(PUSH_PROMISE, FOUR(2) + b"\x82\x84\x86", END_HEADERS) + HELLO),
    case("PUSH_PROMISE of our own stream", frame(PUSH_PROMISE, FOUR(1) + b"\x82", END_HEADERS)),
    case("PRIORITY on stream 0", frame(PRIORITY, b"\0\0\0\0\x10", 0, 0)),
    case("PRIORITY of 4 bytes", frame(PRIORITY, b"\0\0\0\0")),
    case("PING on stream 1", frame(PING, b"12345678")),
    case("PING of 7 bytes", frame(PING, b"1234567", 0, 0)),
    case("SETTINGS on stream 1", frame(SETTINGS, b"")),
    case("SETTINGS of 5 bytes", frame(SETTINGS, b"12345", 0, 0)),
    case("SETTINGS acknowledged with data", frame(SETTINGS, b"123456", ACK, 0)),
    case("GOAWAY on stream 1", frame(GOAWAY, bytes(8))),
    case("GOAWAY of 7 bytes", frame(GOAWAY, bytes(7), 0, 0)),
    case("RST_STREAM on stream 0", frame(RST_STREAM, bytes(4), 0, 0)),
    case("RST_STREAM of 3 bytes", frame(RST_STREAM, bytes(3))),
    case("WINDOW_UPDATE of 3 bytes", frame(WINDOW_UPDATE, bytes(3), 0, 0)),
    case("WINDOW_UPDATE of nothing", frame(WINDOW_UPDATE, bytes(4), 0, 0)),
    case("WINDOW_UPDATE of nothing for the stream", frame(WINDOW_UPDATE, bytes(4))),
    case("a second head", head() + head()),
    case("trailers without END_STREAM", head() + frame(DATA, b"x") + head(field(b"x", b"y"))),
    case("trailers with a status", head() + head(STATUS_200, END_STREAM)),
    case("more padding than content", head() + frame(DATA, b"\xffhello", END_STREAM | PADDED)),
    case("padding without a length", head() + frame(DATA, b"", END_STREAM | PADDED)),
    case("more padding than headers", frame(HEADERS, b"\xff" + STATUS_200, END_HEADERS | PADDED)),
    case("a frame of 16 MB", frame(DATA, b"x" * 65536, length=0xFFFFFF)),
    case("a frame one byte too long", head() + frame(DATA, b"x" * 16385)),
    case("HEADERS too long", frame(HEADERS, STATUS_200 + b"\0" * 16384, END_HEADERS)),
    case("HTTP/1.1", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    case("our own preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    case("escape sequences", b"\x1b[2J\x1b[31m" * 99),
    case("no SETTINGS at first", answer(HELLO[:0] + frame(PING, b"1234567", 0, 0), first=b"")),
]

VALUES = (
    [
        case(f"the setting {key} = {value}", settings((key, value)) + HELLO)
        for key, value in (
            (2, 2),
            (2, 0xFFFFFFFF),
            (4, 0x80000000),
            (4, 0xFFFFFFFF),
            (5, 0),
            (5, 16383),
            (5, 1 << 24),
        )
    ]
    + [
        case(
            f"the status {value!r}",
            head(field(b":status", value) if value is not None else field(b"x", b"y")) + BODY,
        )
        for value in (
            None,
            b"",
            b"20",
            b"2000",
            b"-20",
            b"+20",
            b"2 0",
            b"abc",
            b"\x1b[3",
            b"000",
            b"099",
            b"101",
            b"\xb2\xb2\xb2",
        )
    ]
    + [
        case("two statuses", head(STATUS_200 + STATUS_204) + BODY),
        case("a status after a field", head(field(b"x", b"y") + STATUS_200) + BODY),
        case("a pseudo-header of a request", head(STATUS_200 + field(b":path", b"/")) + BODY),
        case("an unknown pseudo-header", head(STATUS_200 + field(b":x", b"/")) + BODY),
        case("a name in capitals", head(STATUS_200 + field(b"Server", b"x")) + BODY),
        case("an empty name", head(STATUS_200 + field(b"", b"x")) + BODY),
        case("a connection header", head(STATUS_200 + field(b"connection", b"close")) + BODY),
        case("a transfer-encoding", head(STATUS_200 + field(b"transfer-encoding", b"chunked")) + BODY),
        case("a length too small", head(STATUS_200 + field(b"content-length", b"5")) + BODY),
        case("a length too large", head(STATUS_200 + field(b"content-length", b"7")) + BODY),
        case("a length with a sign", head(STATUS_200 + field(b"content-length", b"+6")) + BODY),
        case("a length of 5,000 digits", head(STATUS_200 + field(b"content-length", b"6" * 5000)) + BODY),
        case(
            "two lengths",
            head(STATUS_200 + field(b"content-length", b"6") + field(b"content-length", b"7")) + BODY,
        ),
        case("no response at all", head(field(b":status", b"103")) + frame(DATA, b"", END_STREAM)),
        case("an interim response that ends the stream", head(field(b":status", b"103"), END_STREAM)),
        case("an interim 101", head(field(b":status", b"101")) + HELLO),
    ]
)


def bomb(entries: int, repeats: int) -> bytes:
    """Fill the table with large fields, then name them over and over (an HPACK bomb)."""
    stored = b"".join(field(b"x%d" % at, b"y" * 1000, 0x40) for at in range(entries))
    return head(STATUS_200 + stored + b"\xbe" * repeats) + BODY


PIECES = frame(CONTINUATION, field(b"x", b"y" * 1000) * 10)

HPACK = [
    case(f"the header block {block[:8].hex()}", head(block))
    for block in (
        b"\x80",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\xbe",
        b"\xc6",
        b"\x40",
        b"\x00\x05abc",
        b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x00\x85\xff\xff\xff\xff\xff\x01x",
        b"\x00\x81\x00\x01x",
        b"\x3f\xff\xff\xff\xff\x0f",
        b"\x3f\xe1\x7f\x88\x3f",
        STATUS_200 + b"\x20",
        b"\xff" * 16000,
    )
] + [
    case("an HPACK bomb", bomb(3, 15_000 - 3_100)),
    case("header fields beyond a thousand", head(STATUS_200 + field(b"x", b"y") * 1001) + BODY),
    case(
        "a header section beyond a megabyte",
        frame(HEADERS, STATUS_200) + frame(CONTINUATION, field(b"x", b"y" * 16000)) * 70,
    ),
    case("CONTINUATION without end", flood(frame(HEADERS, STATUS_200), PIECES)),
    case("empty CONTINUATION without end", flood(frame(HEADERS, STATUS_200), frame(CONTINUATION) * 999)),
]

FLOODS = [
    case(f"{name} without end", flood(b"", unit * 500))
    for name, unit in (
        ("PING", frame(PING, b"12345678", 0, 0)),
        ("answers to PING", frame(PING, b"12345678", ACK, 0)),
        ("SETTINGS", settings()),
        ("SETTINGS of a hundred values", settings(*((4, 65535 + at) for at in range(100)))),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, FOUR(1), 0, 0)),
        ("PRIORITY", frame(PRIORITY, b"\0\0\0\0\x10", 0, 3)),
        ("frames of unknown types", frame(0x42, b"x" * 100)),
        ("interim responses", head(field(b":status", b"103"))),
        ("RST_STREAM of other streams", frame(RST_STREAM, bytes(4), 0, 3)),
        ("GOAWAY", goaway(0, 1)),
        ("GOAWAY that covers us", goaway(1, 0)),
        ("acknowledged SETTINGS", frame(SETTINGS, b"", ACK, 0)),
    )
] + [
    case("PING in the body without end", flood(head(), frame(PING, b"12345678", 0, 0) * 500)),
    case("DATA without end", flood(head(), frame(DATA, b"x" * 16384)), "timeout"),
    case("empty DATA without end", flood(head(), frame(DATA) * 500)),
    case("padding without end", flood(head(), frame(DATA, b"\xff" + b"\0" * 255, PADDED) * 50)),
    case("PING that drips", flood(b"", frame(PING, b"12345678", 0, 0), 0.05), "timeout"),
    case("DATA that drips", flood(head(), frame(DATA, b"x"), 0.05), "timeout"),
    case("zeros without end", flood(b"", b"\0" * 65536)),
]

ENDS = [
    case("silence", answer(first=b""), "timeout"),
    case("SETTINGS and silence", b"", "timeout"),
    case("half a frame header and silence", b"\0\0", "timeout"),
    case("half a frame and silence", frame(HEADERS, STATUS_200, END_HEADERS, length=99), "timeout"),
    case("a head without its end", frame(HEADERS, STATUS_200), "timeout"),
    case("a head and silence", head(), "timeout"),
    case("a body without its end", head() + frame(DATA, b"x"), "timeout"),
    case("a close at once", answer(first=b"", hold=False)),
    case("a close after SETTINGS", answer(hold=False)),
    case("a close in a frame header", answer(b"\0\0", hold=False)),
    case("a close in the head", answer(frame(HEADERS, STATUS_200), hold=False)),
    case("a close after the head", answer(head(), hold=False)),
    case("a close in the body", answer(head() + frame(DATA, b"hello\n"), hold=False), size=6),
    case("a close inside DATA", answer(head() + frame(DATA, b"hello\n", length=99), hold=False), size=6),
]

GOODBYES = (
    [
        case(f"RST_STREAM({code}) {stage}", start + reset(code))
        for code in (0, 1, 2, 7, 8, 11, 13, 14, 0xFFFFFFFF)
        for stage, start in (("before the head", b""), ("in the body", head() + frame(DATA, b"x")))
    ]
    + [
        case(
            f"GOAWAY({last}, {code}) {stage}", answer(start + goaway(last, code, b"\x1b[2J[red]"), hold=False)
        )
        for last, code in ((0, 0), (0, 2), (1, 1), (1, 11), (0x7FFFFFFF, 0xFFFFFFFF))
        for stage, start in (("before the head", b""), ("in the body", head() + frame(DATA, b"x")))
    ]
    + [
        case("GOAWAY of 16 KB of words", goaway(0, 1, b"\x1b[31mx" * 2300)),
        case("GOAWAY that covers us, and a close", answer(goaway(1, 0), hold=False)),
    ]
)

UPLOAD = ("-d", "x" * 100_000)
WINDOWS = [
    case("a window that overflows", frame(WINDOW_UPDATE, FOUR(0x7FFFFFFF), 0, 0) * 2),
    case("a stream's window that overflows", frame(WINDOW_UPDATE, FOUR(0x7FFFFFFF)) * 2),
    case("SETTINGS that overflow a window", frame(WINDOW_UPDATE, FOUR(1 << 30)) + settings((4, 0x7FFFFFFF))),
    case(
        "credit for what was never sent, without end",
        flood(settings((4, 0)), frame(WINDOW_UPDATE, FOUR(1), 0, 0) * 500),
        options=UPLOAD,
    ),
    case(
        "credit for more than was sent, without end",
        flood(b"", frame(WINDOW_UPDATE, FOUR(30_000), 0, 0) * 500),
        options=UPLOAD,
    ),
    case("a window of nothing for an upload", answer(first=settings((4, 0))), "timeout", options=UPLOAD),
    case(
        "a window that is taken back",
        answer(settings((4, 0)), settings((4, 1)) * 9),
        "timeout",
        options=UPLOAD,
    ),
    fine("a final response during an upload", answer(HELLO, first=settings((4, 0))), options=UPLOAD),
    fine(
        "RST_STREAM(NO_ERROR) ends an upload", answer(HELLO, reset(0), first=settings((4, 0))), options=UPLOAD
    ),
    fine(
        "credit for an upload in single bytes",
        answer(frame(WINDOW_UPDATE, FOUR(1)) * 500 + HELLO, first=settings((4, 0))),
        options=UPLOAD,
    ),
    fine(
        "credit in single bytes for what was sent",
        answer((frame(WINDOW_UPDATE, FOUR(1), 0, 0) + frame(WINDOW_UPDATE, FOUR(1))) * 5000 + HELLO),
        options=UPLOAD,
    ),
]

FAMILY = list(itertools.chain(LEGAL, OUT_OF_PLACE, VALUES, HPACK, FLOODS, ENDS, GOODBYES, WINDOWS))


@pytest.mark.parametrize("case", FAMILY, ids=lambda case: case.name)
def test_a_hostile_http2_server_is_reported_and_survived(play, case):
    play(case)


def test_an_upload_whose_credit_comes_in_many_small_pieces_arrives(play, tmp_path):
    """A server that returns the credit of each KiB sends tens of thousands of WINDOW_UPDATE frames."""
    size = 20 << 20
    credit = frame(WINDOW_UPDATE, FOUR(1024), 0, 0) + frame(WINDOW_UPDATE, FOUR(1024))
    body = tmp_path / "body"
    body.write_bytes(bytes(size))

    def script(peer: Peer) -> None:
        read_frames(peer)
        peer.send(settings((4, 1 << 20), (5, 1 << 20)) + frame(WINDOW_UPDATE, FOUR(1 << 20), 0, 0))
        read_upload(peer, size, lambda count: peer.send(credit * -(-count // 1024)))
        peer.send(HELLO)
        peer.wait(9)

    play(fine("upload", script, options=("-d", f"@{body}")))
