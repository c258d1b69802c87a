"""HTTP/1.1 servers that break every rule of RFC 9112, and some that only look as if they did."""

from __future__ import annotations

import itertools

import pytest

from hostile.runner import Case, Script, check_manners
from servers import Peer, scripted

OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"Content-Length: 6\r\n\r\nhello\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def then(*parts: bytes, reset: bool = False, hold: bool = False) -> Script:
    """Read the request, send the parts, and close, reset or hold the connection."""

    def script(peer: Peer) -> None:
        peer.read_request()
        for part in parts:
            peer.send(part)
        if hold:
            peer.wait(60)
        if reset:
            peer.wait(0.1)
            peer.reset()

    return script


def flood(start: bytes, unit: bytes, pause: float = 0.0) -> Script:
    """Send `start`, then `unit` until the client goes away."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(start)
        while not peer.wait(pause):
            peer.send(unit)

    return script


def before_the_request(data: bytes) -> Script:
    """Answer before anything was asked."""

    def script(peer: Peer) -> None:
        peer.send(data)
        peer.read_request()
        peer.wait(0.1)

    return script


def without_reading(data: bytes) -> Script:
    """Answer and hang up without ever reading; the kernel then sends a RST."""

    def script(peer: Peer) -> None:
        peer.wait(0.1)
        peer.send(data)

    return script


def reset_at_once(peer: Peer) -> None:
    peer.reset()


def drip_for_ever(peer: Peer) -> None:
    peer.read_request()
    peer.drip(OK + b"X: " + b"y" * 10_000, 0.05)


STATUS_LINES = [
    Case(f"the status line {line!r}", line + b"\r\nContent-Length: 0\r\n\r\n")
    for line in (
        b"",
        b"\0",
        b" ",
        b"HTTP/1.1",
        b"HTTP/1.1 ",
        b"HTTP/1.1 2",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 -200 OK",
        b"HTTP/1.1 +20 OK",
        b"HTTP/1.1 2e2 OK",
        b"HTTP/1.1 0x0 OK",
        b"HTTP/1.1 000 OK",
        b"HTTP/1.1 099 OK",
        b"HTTP/1.1 2_0 OK",
        b"HTTP/1.1 \xb2\xb2\xb2 OK",
        b"HTTP/1.1 \xef\xbc\x92\xef\xbc\x90\xef\xbc\x90 OK",
        b"HTTP/1.1\t200\tOK",
        b"HTTP/9.9 200 OK",
        b"HTTP/1.10 200 OK",
        b"HTTP/1.x 200 OK",
        b"HTTP/1. 200 OK",
        b"HTTP/-1.1 200 OK",
        b"HTTP 200 OK",
        b"ICY 200 OK",
        b"XHTTP/1.1 200 OK",
        b"\xef\xbb\xbfHTTP/1.1 200 OK",
        b"200 OK",
        b"<html>",
        b"SSH-2.0-OpenSSH_9.2p1",
        b"220 mail.test ESMTP",
        b"\x1b[2J\x1b[H\x07\x9b31m",
        b"GET / HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03",
    )
]

ODD_BUT_LEGAL = [
    Case(
        "no reason phrase and no blank before it", b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", None, 200, 0
    ),
    Case(
        "a reason of ESC and CR",
        b"HTTP/1.1 200 \x1b[31mred\x07\rx\x9b\r\nContent-Length: 0\r\n\r\n",
        None,
        200,
    ),
    Case(
        "a reason of half a megabyte", OK[:-4] + b"y" * 500_000 + b"\r\nContent-Length: 0\r\n\r\n", None, 200
    ),
    Case("a status that nobody knows", b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n", None, 999),
    Case("HTTP/1.0 until the connection closes", b"HTTP/1.0 200 OK\r\n\r\nhello\n", None, 200, 6),
    Case("line feeds alone", b"HTTP/1.1 200 OK\nContent-Length: 6\n\nhello\n", None, 200, 6),
    Case("an empty body until the connection closes", OK + b"\r\n", None, 200, 0),
    Case("a second response after the first", HELLO + HELLO, None, 200, 6),
    Case("a megabyte after the response", HELLO + b"\x1b[2J" * 250_000, None, 200, 6),
    Case(
        "twice the same length", OK + b"Content-Length: 6\r\nContent-Length: 6\r\n\r\nhello\n", None, 200, 6
    ),
    Case("the same length twice in a field", OK + b"Content-Length: 6, 6\r\n\r\nhello\n", None, 200, 6),
    Case(
        "a length with leading zeros",
        OK + b"Content-Length: 000000000000006\r\n\r\nhello\n",
        None,
        200,
        6,
    ),
    Case("a length with a NUL", OK + b"Content-Length: 6\0\r\n\r\nhello\n", None, 200, 6),
    Case("a length in three ways", OK + b"Content-Length: 6,06,6\r\n\r\nhello\n", None, 200, 6),
    Case(
        "a value of ESC, NUL and C1",
        OK + b"Server: \x1b]0;x\x07\0\x9b\x7f\r\nContent-Length: 0\r\n\r\n",
        None,
        200,
    ),
    Case("a folded header", OK + b"Server: a\r\n\t b\r\n c\r\nContent-Length: 0\r\n\r\n", None, 200, 0),
    Case("a bare CR in a value", OK + b"Server: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n", None, 200, 0),
    Case(
        "rich markup everywhere", b"HTTP/1.1 200 [red]x[/]\r\nServer: [link=http://x]\r\n\r\n", None, 200, 0
    ),
    Case(
        "bidi overrides",
        "HTTP/1.1 200 \u202etxt\r\nServer: \u2066x\u200f\u2028\r\n\r\n".encode(),
        None,
        200,
        0,
    ),
    Case("a content-type of 100 KB", OK + b"Content-Type: " + b"t/" * 50_000 + b"\r\n\r\n", None, 200, 0),
    Case("a thousand cookies", OK + b"Set-Cookie: a=b\r\n" * 999 + b"\r\n", None, 200, 0),
    Case("a name that is no token", OK + b"a/b(c).php: x\r\nContent-Length: 6\r\n\r\nhello\n", None, 200, 6),
    Case("empty values", OK + b"Server:\r\nContent-Type:\r\nDate: \r\n\r\n", None, 200, 0),
    Case("a body for 204", b"HTTP/1.1 204 No\r\nContent-Length: 6\r\n\r\nhello\n", None, 204, 0),
    Case("a body for 304", b"HTTP/1.1 304 No\r\nContent-Length: 6\r\n\r\nhello\n", None, 304, 0),
    Case(
        "gzip that is none", OK + b"Content-Encoding: gzip\r\nContent-Length: 6\r\n\r\nhello\n", None, 200, 6
    ),
    Case("a hundred interim responses", b"HTTP/1.1 102 P\r\n\r\n" * 100 + HELLO, None, 200, 6),
    Case("interim responses with headers", b"HTTP/1.1 103 E\r\nLink: </x>\r\n\r\n" * 9 + HELLO, None, 200, 6),
    Case("a response before the request", before_the_request(HELLO), None, 200, 6),
    Case("HEAD with a body", HELLO, None, 200, 0, ("-X", "HEAD")),
    Case("OPTIONS with a body", HELLO, None, 200, 6, ("-X", "OPTIONS")),
    Case("405 with chunks", CHUNKED.replace(b"200", b"405") + b"6\r\nhello\n\r\n0\r\n\r\n", None, 405, 6),
    Case("--fail and a 599", HELLO.replace(b"200", b"599"), None, 599, 6, ("-f",), code=22),
    Case("a Location without a redirect", OK + b"Location: http://a.test/\r\n\r\n", None, 200, 0, ("-L",)),
]

HEADERS = [
    Case(name, OK + lines + b"\r\n\r\n")
    for name, lines in (
        ("a header without a colon", b"Server"),
        ("a header without a name", b": x"),
        ("a name with a blank", b"Ser ver: x"),
        ("a name with NUL", b"Ser\0ver: x"),
        ("a name with ESC", b"\x1b[31m: x"),
        ("a name of UTF-8", "Größe: 1".encode()),
        ("a folded line before any header", b" x: y"),
        ("one header line too many", b"X: y\r\n" * 1001),
        ("a header line of two megabytes", b"X: " + b"y" * (2 << 20)),
        ("a megabyte of headers in small lines", (b"X: " + b"y" * 2000 + b"\r\n") * 600),
        ("a megabyte of folded lines", b"X: y\r\n" + (b" " + b"z" * 4000 + b"\r\n") * 400),
        ("a thousand and one folded lines", b"X: y\r\n" + b" z\r\n" * 1001),
        ("a name of two megabytes", b"y" * (2 << 20)),
    )
] + [
    Case("headers without end", flood(OK, b"X: y\r\n")),
    Case("one header line without end", flood(OK + b"X: ", b"y" * 65536)),
    Case("a status line without end", flood(b"HTTP/1.1 200 ", b"y" * 65536)),
    Case("NULs without end", flood(b"", b"\0" * 65536)),
    Case("line feeds without end", flood(b"", b"\n" * 65536)),
    Case("interim responses without end", flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100)),
    Case(
        "interim responses of many headers", flood(b"", b"HTTP/1.1 103 E\r\n" + b"X: y\r\n" * 999 + b"\r\n")
    ),
    Case("one interim response too many", b"HTTP/1.1 102 P\r\n\r\n" * 101 + HELLO),
    Case("an unasked change of protocol", b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n"),
    Case("an interim response and nothing more", b"HTTP/1.1 100 Continue\r\n\r\n"),
]

LENGTHS = [
    Case(f"the length {value!r}", OK + b"Content-Length: " + value + b"\r\n\r\nhello\n")
    for value in (
        b"",
        b"-1",
        b"+6",
        b"6.0",
        b"6e0",
        b"0x6",
        b"6_",
        b"1_0",
        b"six",
        b"6 6",
        b"6;6",
        b"6,7",
        b"6,",
        b"\xb2",
        b"\xef\xbc\x96",
        b"\x1b[31m6",
        b"\x006\x006",
        b"9" * 5000,
        b"0" * 15 + b"6",
        b"18446744073709551622",
        b"9223372036854775808",
        b"7",
    )
] + [
    Case("two lengths", OK + b"Content-Length: 6\r\nContent-Length: 7\r\n\r\nhello\n\n"),
    Case(
        "a length that is never reached", then(OK + b"Content-Length: 7\r\n\r\nhello\n", hold=True), "timeout"
    ),
    Case("the largest length that is read", OK + b"Content-Length: 999999999999999\r\n\r\nhello\n", size=6),
    Case(
        "two lengths for HEAD", OK + b"Content-Length: 6\r\nContent-Length: 7\r\n\r\n", options=("-X", "HEAD")
    ),
]

FRAMINGS = [
    Case(
        "chunks and a length",
        OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello\n\r\n0\r\n\r\n",
        None,
        200,
        6,
    ),
    Case("chunked in capitals", CHUNKED.replace(b"chunked", b"CHUNKED") + b"0\r\n\r\n", None, 200, 0),
    Case(
        "chunked after gzip",
        CHUNKED.replace(b"chunked", b"gzip, chunked") + b"1\r\nx\r\n0\r\n\r\n",
        None,
        200,
        1,
    ),
    Case("gzip as the last coding", CHUNKED.replace(b"chunked", b"chunked, gzip") + b"hello\n", None, 200, 6),
    Case(
        "two fields of codings",
        OK + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        None,
        200,
        1,
    ),
    Case("an unknown coding", CHUNKED.replace(b"chunked", b"xchunked") + b"hello\n", None, 200, 6),
    Case("chunks with extensions", CHUNKED + b'1;a;b=c;d="e"\r\nx\r\n0;z\r\n\r\n', None, 200, 1),
    Case("chunk sizes with leading zeros", CHUNKED + b"0" * 500 + b"1\r\nx\r\n0\r\n\r\n", None, 200, 1),
    Case("trailers", CHUNKED + b"0\r\nX: y\r\nServer: \x1b[31m\r\n\r\n", None, 200, 0),
    Case("a thousand trailers", CHUNKED + b"0\r\n" + b"X: y\r\n" * 1000 + b"\r\n", None, 200, 0),
    Case("trailers without end", flood(CHUNKED + b"0\r\n", b"X: y\r\n")),
    Case("a trailer line without end", flood(CHUNKED + b"0\r\nX: ", b"y" * 65536)),
    Case("a trailer without a colon", CHUNKED + b"0\r\n\x1b[31m\r\n\r\n"),
    Case("a chunk extension of a megabyte", CHUNKED + b"1;" + b"x" * (1 << 20) + b"\r\nx\r\n0\r\n\r\n"),
    Case("a chunk extension without end", flood(CHUNKED + b"1;", b"x" * 65536)),
    Case("a chunk size without end", flood(CHUNKED, b"0" * 65536)),
    Case("no line end after a chunk", CHUNKED + b"6\r\nhello\n0\r\n\r\n"),
    Case("a chunk longer than its size", CHUNKED + b"3\r\nhello\n\r\n0\r\n\r\n"),
    Case("a chunk of the largest size that is read", CHUNKED + b"FFFFFFFFFFFFFFF\r\nhello\n", size=6),
    Case(
        "chunks of one byte, 200,000 of them",
        CHUNKED + b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n",
        None,
        200,
        200_000,
    ),
    Case("chunks of one byte without end", flood(CHUNKED, b"1\r\nx\r\n" * 10_000), "timeout"),
    Case("a chunk that never comes", then(CHUNKED + b"6\r\n", hold=True), "timeout"),
    Case("no last chunk", then(CHUNKED + b"6\r\nhello\n\r\n", hold=True), "timeout"),
    Case("the last chunk without its last line", then(CHUNKED + b"0\r\n", hold=True), "timeout"),
] + [
    Case(f"the chunk size {size[:30]!r}", CHUNKED + size + b"\r\nhello\n\r\n0\r\n\r\n")
    for size in (
        b"",
        b"-1",
        b"+6",
        b"0x6",
        b"6_0",
        b"six",
        b"g",
        b"6 6",
        b"\xb2",
        b"\x1b[31m6",
        b"6\x00",
        b"f" * 5000,
        b"8000000000000000",
        b"10000000000000006",
        b";x",
    )
]

TRUNCATIONS = [
    Case(f"the response ends after byte {count}", HELLO[:count]) for count in range(0, len(HELLO), 4)
] + [
    Case(f"the chunked response ends after byte {count}", (CHUNKED + b"3\r\nabc\r\n0\r\n\r\n")[:count])
    for count in range(len(CHUNKED), len(CHUNKED) + 12)
]

ENDLESS = [
    Case("silence", then(hold=True), "timeout"),
    Case("a body without end", flood(OK + b"\r\n", b"y" * 65536), "timeout"),
    Case("a body that drips", flood(OK + b"\r\n", b"y", 0.05), "timeout"),
    Case("a header that drips", drip_for_ever, "timeout"),
    Case("interim responses that drip", flood(b"", b"HTTP/1.1 100 C\r\n\r\n", 0.05), "timeout"),
    Case("line ends that drip", flood(OK, b"X: y\r\n", 0.05), "timeout"),
    Case("a head that stops", then(OK + b"Server", hold=True), "timeout"),
    Case("a status line that stops", then(b"HTTP/1.1 2", hold=True), "timeout"),
    Case("nothing after the head", then(OK + b"Content-Length: 1\r\n\r\n", hold=True), "timeout"),
]

RESETS = [
    Case("a reset instead of an answer", then(reset=True), "network"),
    Case("a reset in the status line", then(b"HTTP/1.", reset=True), "network"),
    Case("a reset in the head", then(OK + b"Server: x", reset=True), "network"),
    Case("a reset after the head", then(OK + b"Content-Length: 9\r\n\r\n", reset=True), "network"),
    Case("a reset in the body", then(OK + b"Content-Length: 9\r\n\r\nhello", reset=True), "network", size=5),
    Case("a reset in a body without length", then(OK + b"\r\nhello", reset=True), "network", size=5),
    Case("a reset between chunks", then(CHUNKED + b"1\r\nx\r\n", reset=True), "network", size=1),
    Case("a reset after the whole response", then(HELLO, reset=True), None, 200, 6),
    Case("a reset after interim responses", then(b"HTTP/1.1 100 C\r\n\r\n", reset=True), "network"),
    Case("a reset before the request", reset_at_once, "network"),
    Case("an answer from a server that never reads", without_reading(HELLO), None, 200, 6),
]

FAMILY = list(
    itertools.chain(STATUS_LINES, ODD_BUT_LEGAL, HEADERS, LENGTHS, FRAMINGS, TRUNCATIONS, ENDLESS, RESETS)
)


@pytest.mark.parametrize("case", FAMILY, ids=lambda case: case.name)
def test_a_hostile_http1_server_is_reported_and_survived(play, case):
    play(case)


# Fields of an answer that none before it had.
NEW_EACH_TIME = {
    "names of fields": lambda: b"".join(b"X%d-%d: a\r\n" % (next(NUMBERS), 10**900) for _ in range(990)),
    "long names of fields": lambda: b"".join(
        b"X%d-%d: a\r\n" % (next(NUMBERS), 10**4000) for _ in range(220)
    ),
}
NUMBERS = itertools.count(1_000_000_000)


@pytest.mark.parametrize("what", NEW_EACH_TIME)
def test_answers_that_never_repeat_fill_no_memory(launch, what):
    def script(peer: Peer) -> None:
        while peer.read_request():
            peer.send(OK + NEW_EACH_TIME[what]() + b"Content-Length: 0\r\n\r\n")

    with scripted(script) as server:
        outcome = launch(server.url(), "--count", "60", "--interval", "0")
    assert outcome.code == 0
    check_manners(outcome)
