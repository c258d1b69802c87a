"""HTTP/2 servers that break every rule of RFC 9113 and RFC 7541, frame by frame."""

from __future__ import annotations

from typing import Any

import pytest

from frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PINGED,
    PUSH_PROMISE,
    RST_STREAM,
    STATUS_200,
    WINDOW_UPDATE,
    Conversation,
    field,
    frame,
    goaway,
    head,
    reset,
    settings,
    window,
)
from hostile.cases import Case, flood
from servers import Peer, Script

pytestmark = pytest.mark.needs("h2")

BODY = frame(DATA, b"hello\n", END_STREAM)
HELLO = head() + BODY


def answer(*parts: bytes, hold: bool = True, first: bytes = settings()) -> Script:
    """Read the request's head, send `first` and the parts, then hold or close the connection."""

    def script(peer: Peer) -> None:
        read_head(peer)
        for part in (first, *parts):
            peer.send(part)
        if hold:
            peer.wait(60)
        else:  # an orderly end: closing with something unread would be a reset
            peer.end()
            peer.read_to_end()

    return script


def read_head(peer: Peer) -> Conversation:
    conversation = Conversation(peer)
    conversation.read_head()
    return conversation


def endless(name: str, start: bytes, unit: bytes, kind: str = "protocol", **expected: Any) -> Case:
    """Make a case of SETTINGS and `start`, then `unit` until the client goes away."""
    script = flood(settings() + start, unit, first=read_head)
    return Case(f"{name} without end", script, kind, over="h2", apart=True, **expected)


def case(name: str, script: Script | bytes, kind: str | None = "protocol", **expected: object) -> Case:
    """Make a case over HTTP/2; bytes are sent after SETTINGS, and the connection stays open."""
    whole = answer(script) if isinstance(script, bytes) else script
    return Case(name, whole, kind, over="h2", **expected)


def fine(name: str, script: Script | bytes, **expected: object) -> Case:
    """Make a case that is legal, though odd."""
    return case(name, script, None, **{"status": 200, "size": 6, **expected})


def length(*values: bytes) -> bytes:
    return STATUS_200 + b"".join(field(b"content-length", value) for value in values)


HUNDRED = frame(DATA, b"x" * 100)
MANY = head() + frame(DATA, b"x" * 1000) * 300 + frame(DATA, b"", END_STREAM)
TORN = [MANY[at : at + 997] for at in range(0, len(MANY), 997)]

LEGAL = [
    fine("large frames in torn records", answer(*TORN), size=300_000),
    fine("DATA behind the end", head() + HUNDRED * 9 + frame(DATA, b"x", END_STREAM) + HUNDRED * 9, size=901),
    fine("END_STREAM on an empty frame", head() + frame(DATA, b"hello\n") + frame(DATA, b"", END_STREAM)),
    fine(
        "trailers and a length",
        head(length(b"6")) + frame(DATA, b"hello\n") + head(field(b"x", b"y"), END_STREAM),
    ),
    fine("nothing but padding", head() + frame(DATA, b"\xff" + b"\0" * 255, PADDED) * 50 + BODY),
    fine("a length for HEAD", head(length(b"500"), END_STREAM), size=0, options=("-X", "HEAD")),
    fine("a length for 304", head(b"\x8b" + field(b"content-length", b"5"), END_STREAM), status=304, size=0),
    fine("204", head(b"\x89", END_STREAM), status=204, size=0),
    fine(
        "a body that is whole by its length, and no END_STREAM", head(length(b"6")) + frame(DATA, b"hello\n")
    ),
    fine("frames of unknown types", frame(0x42, b"\x1b[2J") * 9 + head() + frame(0xFA, b"x", 0xFF, 0) + BODY),
    fine("no SETTINGS at all", answer(HELLO, first=b"")),
    fine("empty DATA by the thousand", head() + frame(DATA) * 3000 + BODY),
    fine("RST_STREAM of a stream that never was", frame(RST_STREAM, bytes(4), 0, 3) + HELLO),
    fine("a thousand header fields", head(STATUS_200 + field(b"x", b"y") * 1000) + BODY),
    fine("a header list of nothing", settings((6, 0)) + HELLO),
    fine("GOAWAY with an error that covers the request", head() + goaway(1, 11) + BODY),
    fine("RST_STREAM(NO_ERROR) after the end", HELLO + reset(0)),
]

OUT_OF_PLACE = [
    case("DATA on stream 0", frame(DATA, b"x", 0, 0) + HELLO),
    case("DATA on a stream that never was", head() + frame(DATA, b"x") + frame(DATA, b"x", 0, 3) + BODY),
    case("CONTINUATION before HEADERS", frame(CONTINUATION, STATUS_200, END_HEADERS)),
    case("PING in the head", frame(HEADERS, STATUS_200) + PINGED),
    case("DATA in the trailers", head() + frame(HEADERS, field(b"x", b"y"), END_STREAM) + BODY),
    case("WINDOW_UPDATE on a stream that never was", window(1, 3) + HELLO),
    case("PUSH_PROMISE though refused", frame(PUSH_PROMISE, b"\0\0\0\2\x82\x84\x86", END_HEADERS) + HELLO),
    case("PING of 7 bytes", frame(PING, b"1234567", 0, 0)),
    case("GOAWAY on stream 1", frame(GOAWAY, bytes(8))),
    case("WINDOW_UPDATE of nothing", frame(WINDOW_UPDATE, bytes(4), 0, 0)),
    case("trailers without END_STREAM", head() + frame(DATA, b"x") + head(field(b"x", b"y"))),
    case("more padding than content", head() + frame(DATA, b"\xffhello", END_STREAM | PADDED)),
    case("a frame one byte too long", head() + frame(DATA, b"x" * 16384) + frame(DATA, b"x" * 16385)),
    case("HTTP/1.1", b"HTTP/1.1 200 OK\r\n\r\n", phase="wait", says="HTTP/1", hint="--http1.1"),
    case("escape sequences", b"\x1b[2J\x1b[31m" * 99),
]

VALUES = [
    case(f"the status {value!r}", head(field(b":status", value)) + BODY)
    for value in (b"", b"20", b"+20", b"099", b"\xb2\xb2\xb2")
] + [
    case("a switch of protocols", head(field(b":status", b"101")) + HELLO),
    case("no status", head(field(b"x", b"y")) + BODY, says="missing mandatory :status header"),
    case("a connection header", head(STATUS_200 + field(b"connection", b"close")) + BODY),
    case("a value with a line feed", head(STATUS_200 + field(b"x", b"y\nz")) + BODY),
    case("a length too small", head(length(b"5")) + frame(DATA, b"hello\n") + b"\0", says="says 5"),
    case(
        "a length too large",
        head(length(b"10")) + BODY,
        phase="xfer",
        says="6 bytes, its content-length says 10",
        hint="server",
    ),
    case("no response at all", head(field(b":status", b"103")) + frame(DATA, b"", END_STREAM)),
    case("an interim response that ends the stream", head(field(b":status", b"103"), END_STREAM)),
]


def in_pieces(block: bytes) -> bytes:
    """Make the frames that end a header section of any size."""
    pieces = [block[at : at + 16384] for at in range(0, len(block), 16384)]
    return b"".join(frame(CONTINUATION, piece) for piece in pieces) + frame(CONTINUATION, b"", END_HEADERS)


LARGE = b"".join(field(b"x%d" % at, b"y" * 1000, 0x40) for at in range(3))
PIECES = frame(CONTINUATION, field(b"x", b"y" * 1000) * 10)
HPACK = [
    case(f"the header block {block[:8].hex()}", head(block), says="a header section cannot be decompressed")
    for block in (b"\xbe", b"\x00\x05abc", b"\x00\x81\x00\x01x", b"\x3f\xff\xff\xff\xff\x0f")
] + [
    case("header fields beyond a thousand", head(STATUS_200 + field(b"x", b"y") * 1001) + BODY),
    endless("CONTINUATION", frame(HEADERS, STATUS_200), PIECES, says="64 KiB"),
    endless("empty CONTINUATION", frame(HEADERS, STATUS_200), frame(CONTINUATION) * 999),
]
HPACK += [
    each._replace(apart=True)
    for each in (
        case("large fields named over and over", head(STATUS_200 + LARGE + b"\xbe" * 12_000) + BODY),
        *(
            case(f"60 KB of what is {what}", frame(HEADERS, STATUS_200) + in_pieces(block), says="rules")
            for what, block in (
                ("no name", field(b"x" * 60_000 + b"A", b"y")),
                ("no value", field(b"x", b"\n" + b"\xff" * 60_000)),
                ("an integer", b"\x7f" + b"\xff" * 60_000),
            )
        ),
    )
]

FLOODS = [
    endless("PING", b"", PINGED * 500, says="does not read the answers"),
    endless("SETTINGS", b"", settings() * 500, says="does not read the answers"),
    endless(
        "a body with PINGs whose answers nobody reads",
        head(),
        (frame(DATA, b"x" * 1024) + PINGED * 3) * 100,
        status=200,
        says="does not read the answers",
    ),
    endless("103", b"", head(field(b":status", b"103")) * 500, says="interim", phase="wait"),
    endless("DATA", head(), frame(DATA, b"x" * 16384), "timeout"),
]


def reset_after(known: bytes, last: bytes) -> Script:
    """Break the connection off after `last`, when the client is known to have read all before it."""

    def script(peer: Peer) -> None:
        conversation = read_head(peer)
        peer.send(settings() + known + PINGED)
        conversation.read_until(PING)
        peer.send(last)
        peer.reset()

    return script


CUT_DATA = frame(DATA, b"x", length=9)
ENDS = [
    case("a body for HEAD", HELLO, options=("-X", "HEAD"), says="has 6 bytes, this method"),
    case("GOAWAY and silence", head() + goaway(1, 11), "timeout", says="before that the server closed"),
    case("SETTINGS and silence", b"", "timeout", phase="wait"),
    case("a body without its end", head() + frame(DATA, b"x"), "timeout", phase="xfer", status=200, size=1),
    case("a close in the head", answer(frame(HEADERS, STATUS_200), hold=False), phase="wait"),
    case("a close after the head", answer(head(), hold=False), phase="xfer"),
    case("a close inside DATA", answer(head() + frame(DATA, b"hello\n", length=99), hold=False), size=6),
    case("a reset behind GOAWAY", reset_after(goaway(1, 11), b""), says="ENHANCE_YOUR_CALM"),
    case("a reset before the head", reset_after(b"", b""), "network", phase="wait"),
    case("a reset inside DATA", reset_after(head(), CUT_DATA), "network", size=1, says="was 200, then con"),
]

CODES = {
    0: ("NO_ERROR", "for a restart"),
    7: ("REFUSED_STREAM", "or what is behind it hung up"),
    8: ("CANCEL", "the server's log"),
    13: ("HTTP_1_1_REQUIRED", "Ask over HTTP/1.1 with --http1.1"),
    14: ("error 14", "the server's log"),
}
"""The codes of RST_STREAM and GOAWAY: what they are called, and words of the advice that they get."""
PART = head() + frame(DATA, b"x")
GOODBYES = [
    case(f"GOAWAY(0, {code})", answer(goaway(0, code), hold=False), phase="wait", says=says, hint=hint)
    for code, (says, hint) in CODES.items()
]
CODES[0] = "NO_ERROR", "cut this one answer short"
GOODBYES += [
    case(f"RST_STREAM({code})", PART + reset(code), phase="xfer", size=1, says=says, hint=hint)
    for code, (says, hint) in CODES.items()
]
GOODBYES += [
    case("RST_STREAM(8) before the head", reset(8), phase="wait", says="CANCEL"),
    case("GOAWAY(1, 8)", answer(PART + goaway(1, 8), hold=False), phase="xfer", size=1, says="CANCEL"),
    case("GOAWAY with words", goaway(0, 11, b"too many\x1b[31m[red]"), says="too many"),
    case("GOAWAY of 16 KB of words", goaway(0, 1, b"\x1b[31mx" * 2300)),
]

UPLOAD = ("-d", "x" * 100_000)
WINDOWS = [
    case("a stream's window that overflows", window(0x7FFFFFFF) * 2),
    case("SETTINGS that overflow a window", window(1 << 30) + settings((4, 0x7FFFFFFF))),
    endless(
        "credit for what was never sent", settings((4, 0)), window(1, 0) * 500, "timeout", options=UPLOAD
    ),
    endless("credit for more than was sent", b"", window(30_000, 0) * 500, options=UPLOAD),
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
]

FAMILY = [*LEGAL, *OUT_OF_PLACE, *VALUES, *HPACK, *FLOODS, *ENDS, *GOODBYES, *WINDOWS]


@pytest.mark.parametrize("case", FAMILY, ids=lambda case: case.name)
def test_a_hostile_http2_server_is_reported_and_survived(play, case):
    error = play(case)["steps"][-1]["error"]
    assert error is None or error["kind"] != "protocol" or error["hint"]
