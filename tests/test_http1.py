"""HTTP/1.1 on the wire: framing, interim responses, status lines, bodies and their types.

What breaks a rule of it is in hostile/test_http1.py.
"""

from __future__ import annotations

import contextlib
import socket

import pytest

from inside import tool
from servers import http_server, scripted, sending

OK = "HTTP/1.1 200 OK\r\n"


def measured(call_tool, script, *arguments, **settings):
    """Run the program against `script` (text is sent after one request); return the result and its step."""
    with scripted(sending(script) if isinstance(script, str) else script, **settings) as server:
        result = call_tool("--json", "-", *arguments, server.url())
    [step] = result.json()["steps"]
    assert server.accepted == 1, "nothing is ever sent twice"
    return result, step


def received(call_tool, script, *arguments, **settings):
    """Run the program where it is to succeed; return the response."""
    result, step = measured(call_tool, script, *arguments, **settings)
    assert (result.code, step["error"]) == (0, None)
    return step["response"]


STATUS_LINES = {
    "HTTP/1.0 200 OK": ["HTTP/1.0", 200, "OK"],
    "HTTP/1.1 404 No such page here": ["HTTP/1.1", 404, "No such page here"],
    "HTTP/1.1 599 ": ["HTTP/1.1", 599, ""],
    "HTTP/2 200 OK": ["HTTP/1.1", 200, "OK"],
    "HTTP/2.0 200": ["HTTP/1.1", 200, ""],
    "http/1.0 200 ok": ["HTTP/1.0", 200, "ok"],
    "HTTP/1.1  200   OK": ["HTTP/1.1", 200, "OK"],
}


def test_a_status_line_is_read_as_curl_reads_it(call_tool):
    for line, read in STATUS_LINES.items():
        response = received(call_tool, f"{line}\r\nContent-Length: 0\r\n\r\n")
        assert [response["http_version"], response["status"], response["reason"] or ""] == read


def test_headers_are_reported_in_order_with_repetition_and_a_blank_for_a_control(call_tool):
    """CR and NUL are blanks by RFC 9110 section 5.5, in a folded line too."""
    lines = ["X-B: 2", "X-A: a\rb\0c", "X-B: \r3\0\r\n \tb\rc\0", "x-a:  padded ", "X-Empty:"]
    response = received(call_tool, OK + "\r\n".join(lines) + "\r\nContent-Length: 0\r\n\r\n")
    found = [(header["name"].lower(), header["value"]) for header in response["headers"]]
    expected = [("x-b", "2"), ("x-a", "a b c"), ("x-b", "3  b c"), ("x-a", "padded"), ("x-empty", "")]
    assert found[:5] == expected


def test_a_line_of_the_header_without_a_name_is_skipped_and_noted(call_tool):
    """Curl and browsers take such an answer: a program wrote a warning before its own fields."""
    lines = ["X-A: 1", "PHP Warning:  no hunter2-hunter2 {0}", "\tin line 7", ": none", "Gr\xfc\xdfe: x"]
    lines.append("X-B\t : 2")
    answer = OK + "\r\n".join([*lines, "Content-Length: 0"]) + "\r\n\r\n"
    result, step = measured(call_tool, answer, "-H", "Authorization: Bearer hunter2-hunter2")
    found = [header["name"] for header in step["response"]["headers"]]
    assert (result.code, found) == (0, ["X-A", "X-B", "Content-Length"])
    note = "a header line without a usable name was skipped: 'PHP Warning: no *** {0}'"
    assert note in " ".join(result.err.split())
    result, step = measured(call_tool, OK + "Gr\xfc\xdfe: x\r\nContent-Length: 0\r\n\r\n")
    assert len(step["response"]["headers"]) == 1 and "was skipped: 'Gr" in " ".join(result.err.split())

    def script(peer):
        peer.read_request()
        peer.send(f"HTTP/1.1 200 OK\r\nwarning {peer.number}: x\r\nContent-Length: 0\r\n\r\n")

    with scripted(script) as server:
        result = call_tool("--compact", "--count", 12, "--interval", 0, server.url())
    assert result.err.count("was skipped: 'warning ") == 8, "what differs in each run is told eight times"


def test_a_header_that_ends_with_the_connection_is_taken_and_noted(call_tool, tls, authority):
    """As curl takes it: a line that was cut is left out. Over TLS close_notify proves that it was all."""
    for rest in ("Server: x\r\n", "Server: x\r\nContent-Le"):
        result, step = measured(call_tool, OK + rest)
        assert (result.code, step["response"]["bytes"]) == (0, 0)
        assert [header["name"] for header in step["response"]["headers"]] == ["Server"]
        assert "the header ended with the connection, without a blank line" in " ".join(result.err.split())
    trust = ("--cacert", authority.file)
    for rest, message, settings in (
        ("Content-Length: 5\r\n", "the body ended after 0 of 5 bytes", {}),
        ("Server: x\r\n", "without close_notify", {"tls": tls}),
    ):
        result, step = measured(call_tool, OK + rest, *trust, **settings)
        assert message in step["error"]["message"] and "without a blank line" in " ".join(result.err.split())


def test_more_bytes_than_the_length_says_are_noted(call_tool):
    for status, size, said in ((200, 4, 4), (200, 0, 0), (304, 0, 9)):
        answer = f"HTTP/1.1 {status} X\r\nContent-Length: {said}\r\n\r\nhello\n"
        result, step = measured(call_tool, answer)
        note = f"{6 - size} B or more came behind the end of the answer"
        assert (result.code, step["response"]["bytes"]) == (0, size)
        err = " ".join(result.err.split())
        assert note in err and (f"{note}: its Content-Length is too small" in err) is (size == said)


def test_interim_responses_are_counted_and_are_not_the_response(call_tool):
    hint = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
    interim = "HTTP/1.1 102 Processing\r\n\r\n" + hint * 2 + "HTTP/1.1 199 Odd\r\n\r\n"
    response = received(call_tool, interim + OK + "Content-Length: 5\r\n\r\nhello")
    assert (response["status"], response["bytes"]) == (200, 5)
    assert response["interim"] == [102, 103, 103, 199]
    assert "link" not in {header["name"].lower() for header in response["headers"]}


def test_a_method_that_brings_something_says_so_when_it_brings_nothing(call_tool):
    """RFC 9110 section 8.6: a server may wait for a body, or refuse the request (411), without a length."""
    given = ("-H", "content-length: 0")
    for method, words, lengths in (
        *((method, (), ["0"]) for method in ("POST", "PUT", "PATCH")),
        *((method, (), []) for method in ("GET", "DELETE", "HEAD", "OPTIONS")),
        ("POST", given, ["0"]),
    ):
        with http_server() as server:
            assert call_tool("--compact", "-X", method, *words, server.url()).code == 0
        [request] = server.requests
        assert (request.values("Content-Length"), request.values("Content-Type")) == (lengths, [])


@pytest.fixture
def large(tmp_path):
    """A request body that no socket's buffers hold."""
    content = (bytes(range(251)) * 79_682)[:20_000_000]
    (tmp_path / "body").write_bytes(content)
    return f"@{tmp_path / 'body'}", content


def test_a_final_response_before_the_server_hangs_up_on_the_upload_is_the_response(call_tool, large):
    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")
        peer.end()
        peer.wait(60)

    for body, size in ((large[0], "19.1 MB"), ("x" * 300_000, "293.0 KB")):  # the second one is in buffers
        result, step = measured(call_tool, script, "-d", body)
        assert (result.code, step["response"]["status"]) == (0, 413)
        assert f"body of {size}, not sent whole Response" in " ".join(result.err.split())
    result, _ = measured(call_tool, lambda peer: peer.wait(60), "-m", 1, "-d", body)
    assert f"body of {size}, not sent whole" in " ".join(result.err.split())

    def reset(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send(OK + "Content-Length: 3\r\n\r\no")
        peer.reset()

    assert "The answer says why" in measured(call_tool, reset, "-d", large[0])[1]["error"]["hint"]


def test_an_upload_stops_at_an_answer_that_does_not_want_it(call_tool, tls, authority, large):
    """The server takes what comes until nothing does: that is what was under way, not all of it."""
    body, content = large
    taken = []

    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send(f"HTTP/1.1 {status} X\r\nContent-Length: 3\r\n\r\nn")
        peer.sock.settimeout(0.5)  # one that only pauses has not sent all of it either
        with contextlib.suppress(socket.timeout):
            while sum(taken) < len(content):
                taken.append(len(peer.read_exactly(len(content) // 100)))
        peer.send("o\n")

    for status in (413, 307):
        taken.clear()
        response = received(call_tool, script, "--cacert", authority.file, "-d", body, tls=tls)
        assert (response["status"], response["bytes"]) == (status, 3)
        assert sum(taken) < len(content)


def test_an_upload_goes_on_after_the_header_of_a_success(call_tool, large):
    """A server may stream its answer while it reads: 200 does not stop the request."""
    body, content = large

    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\no")
        assert peer.read_exactly(len(content)) == content
        peer.send("k\n")

    assert received(call_tool, script, "-d", body)["bytes"] == 3


JSON, XML, TEXT, BINARY = "application/json", "application/xml", "text/plain", "application/octet-stream"
LONG = tool.MAX_DECODED
TYPES = {
    JSON: [b'{"a": 1}', b" [1, 2]\n", b'"x"', b"\r\n\ttrue\n", b"-1.5e3", b" " * (LONG - 1) + b"1"],
    XML: [b'<?xml version="1.0"?><a/>', b"\n  <note>x</note>", b"<!-- c --><a/>", b"<a>" + b" " * LONG],
    TEXT: [
        *(b'{"a": NaN}', b"[Infinity]", b'{"a": 1', b"{} {}", b"", b"< 5 apples", b"<3", "grün".encode()),
        *(b" " * LONG + b"1", b"x" * (LONG - 1) + "ü".encode(), b"x" * LONG + b"\xfc"),
    ],
    BINARY: [b"gr\xfcn", b"\xff\x00\x00", b"x" * (LONG - 1) + b"\xfc"],
}


@pytest.mark.parametrize("kind", TYPES)
def test_the_type_of_data_is_told_from_its_content_of_much_from_its_beginning(kind):
    for content in TYPES[kind]:
        assert tool.detect_type(content, "").partition(";")[0] == kind, content[:80]
