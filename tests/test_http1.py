"""HTTP/1.1 on the wire: framing, interim responses, truncation, limits, bodies and their types."""

from __future__ import annotations

import gzip
import json
import socket
import ssl

import pytest

from checks import EDGE
from inside import failure, here, tool
from servers import Reply, http_server, refused_port, scripted, sending

OK = "HTTP/1.1 200 OK\r\n"
CHUNKED = OK + "Transfer-Encoding: chunked\r\n\r\n"


def measured(call_tool, script, *arguments, path="/", **settings):
    """Run the program against `script` (text is sent after one request); return the result and its step."""
    with scripted(sending(script) if isinstance(script, (str, bytes)) else script, **settings) as server:
        result = call_tool("--json", "-", *arguments, server.url(path))
    [step] = result.json()["steps"]
    assert server.accepted == 1, "nothing is ever sent twice"
    return result, step


def received(call_tool, script, *arguments, **settings):
    """Run the program where it is to succeed; return the response."""
    result, step = measured(call_tool, script, *arguments, **settings)
    assert (result.code, step["error"]) == (0, None)
    return step["response"]


def failed(call_tool, script, kind, *arguments, **settings):
    """Run the program where it is to fail with `kind`; return the step."""
    result, step = measured(call_tool, script, *arguments, **settings)
    assert result.code == 75
    assert step["error"]["kind"] == kind, step["error"]
    return step


# --- framing --------------------------------------------------------------------------------------

FRAMINGS = {
    "length": (OK + "Content-Length: 5\r\n\r\nhello", 5),
    "length-zero": (OK + "Content-Length: 0\r\n\r\n", 0),
    "length-with-more-behind": (OK + "Content-Length: 5\r\n\r\nhello, world", 5),
    "length-twice-the-same": (OK + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 5),
    "length-padded": (OK + "Content-Length:   5  \r\n\r\nhello", 5),
    "length-with-zeros": (OK + "Content-Length: 0005\r\n\r\nhello", 5),
    "length-of-fifteen-digits": (OK + "Content-Length: 000000000000005\r\n\r\nhello", 5),
    "length-written-in-several-ways": (OK + "Content-Length: 5,05 , 5\r\nContent-Length: 5\r\n\r\nhello", 5),
    "length-with-nul": (OK + "Content-Length: 5\0\r\n\r\nhello", 5),
    "until-close": (OK + "\r\nhello", 5),
    "until-close-empty": (OK + "\r\n", 0),
    "chunked": (CHUNKED + "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", 11),
    "chunked-empty": (CHUNKED + "0\r\n\r\n", 0),
    "chunked-hexadecimal": (CHUNKED + "1A\r\n" + "x" * 26 + "\r\n000b\r\n" + "y" * 11 + "\r\n0\r\n\r\n", 37),
    "chunked-extensions": (CHUNKED + '5;a=b;c="d;e"\r\nhello\r\n0;last\r\n\r\n', 5),
    "chunked-trailers": (CHUNKED + "5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n", 5),
    "chunked-upper-case": (OK + "TRANSFER-ENCODING: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 5),
    "no-content": ("HTTP/1.1 204 No Content\r\n\r\n", 0),
    "not-modified": ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 0),
    "reset-content": ("HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", 0),
    "http-1.0": ("HTTP/1.0 200 OK\r\n\r\nhello", 5),
}


@pytest.mark.parametrize(("response", "size"), FRAMINGS.values(), ids=FRAMINGS.keys())
def test_the_body_is_what_its_framing_says(call_tool, response, size):
    assert received(call_tool, response)["bytes"] == size


@pytest.mark.parametrize("pause", [0, 0.001])
@pytest.mark.parametrize("name", ["length", "chunked", "chunked-trailers", "until-close"])
def test_a_response_in_single_bytes_is_the_same_response(call_tool, name, pause):
    response, size = FRAMINGS[name]

    def script(peer):
        peer.read_request()
        peer.drip(response.encode(), pause)

    assert received(call_tool, script)["bytes"] == size


@pytest.mark.parametrize("name", ["length", "length-zero", "chunked", "no-content", "not-modified"])
def test_a_response_ends_where_it_ends_though_the_connection_stays_open(call_tool, name):
    response, size = FRAMINGS[name]

    def script(peer):
        peer.read_request()
        peer.send(response)
        peer.read_to_end()

    result, step = measured(call_tool, script, "-m", "8")
    assert (result.code, step["response"]["bytes"]) == (0, size)


@pytest.mark.parametrize("framing", ["Content-Length: 500", "Transfer-Encoding: chunked", "X-None: 1"])
def test_a_response_to_head_has_no_body(call_tool, framing):
    def script(peer):
        assert peer.read_request().method == "HEAD"
        peer.send(f"{OK}{framing}\r\n\r\n")
        peer.read_to_end()

    result, step = measured(call_tool, script, "-X", "HEAD", "-m", "8")
    assert (result.code, step["response"]["bytes"]) == (0, 0)


def test_bytes_are_counted_before_any_content_decoding(call_tool):
    body = gzip.compress(b"x" * 100_000)
    head = f"{OK}Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    assert received(call_tool, head + body)["bytes"] == len(body)


@pytest.mark.parametrize("framing", ["length", "chunked", "until-close"])
def test_every_byte_of_a_large_body_is_counted(call_tool, framing):
    size, piece = 20_000_000, b"x" * 1_000_000

    def script(peer):
        peer.read_request()
        peer.send(
            {
                "length": f"{OK}Content-Length: {size}\r\n\r\n",
                "chunked": CHUNKED,
                "until-close": f"{OK}\r\n",
            }[framing]
        )
        for _ in range(size // len(piece)):
            peer.send(b"%x\r\n%b\r\n" % (len(piece), piece) if framing == "chunked" else piece)
        if framing == "chunked":
            peer.send("0\r\n\r\n")

    assert received(call_tool, script)["bytes"] == size


# --- the head -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "version", "status", "reason"),
    [
        ("HTTP/1.1 200 OK", "HTTP/1.1", 200, "OK"),
        ("HTTP/1.0 200 OK", "HTTP/1.0", 200, "OK"),
        ("HTTP/1.1 404 No such page here", "HTTP/1.1", 404, "No such page here"),
        ("HTTP/1.1 200 ", "HTTP/1.1", 200, ""),
        ("HTTP/1.1 200", "HTTP/1.1", 200, ""),
        ("HTTP/1.1 599 Odd", "HTTP/1.1", 599, "Odd"),
    ],
)
def test_the_status_line_is_reported(call_tool, line, version, status, reason):
    response = received(call_tool, f"{line}\r\nContent-Length: 0\r\n\r\n")
    assert (response["http_version"], response["status"], response["reason"] or "") == (
        version,
        status,
        reason,
    )


GARBAGE = {
    "ssh": "SSH-2.0-OpenSSH_9.2\r\n",
    "smtp": "220 mail.test ESMTP\r\n",
    "tls-alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "http2-settings": b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "zeros": b"\x00" * 64,
    "html": "<html><body>hello</body></html>\r\n\r\n",
    "blank-lines": "\r\n\r\n\r\n",
    "status-word": "HTTP/1.1 OK\r\n\r\n",
    "status-two-digits": "HTTP/1.1 99 Low\r\n\r\n",
    "status-four-digits": "HTTP/1.1 2000 High\r\n\r\n",
    "status-signed": "HTTP/1.1 +20 Signed\r\n\r\n",
    "status-underscore": "HTTP/1.1 2_0 Odd\r\n\r\n",
    "status-missing": "HTTP/1.1\r\n\r\n",
    "version-9": "HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "version-word": "HTTP/x.y 200 OK\r\nContent-Length: 0\r\n\r\n",
    "other-protocol": "RTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "line-without-end": "H" * 3_000_000,
}


@pytest.mark.parametrize("reply", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_reply_that_is_not_http_is_a_protocol_failure(call_tool, reply):
    step = failed(call_tool, reply, "protocol")
    assert step["error"]["phase"] == "wait"


def test_an_empty_reply_is_a_protocol_failure(call_tool):
    step = failed(call_tool, "", "protocol")
    assert (step["error"]["phase"], step["response"]) == ("wait", None)


@pytest.mark.parametrize("head", ["H", "HTTP/1.1 200", OK, OK + "X-A: 1", OK + "X-A: 1\r\n"])
def test_a_head_that_breaks_off_is_a_protocol_failure(call_tool, head):
    failed(call_tool, head, "protocol")


@pytest.mark.parametrize("line", ["no colon here", ": nameless", "X A: 1", "X-A : 1", "X\x00A: 1"])
def test_a_header_line_that_is_none_does_no_worse_than_a_protocol_failure(call_tool, line):
    result, step = measured(call_tool, f"{OK}{line}\r\nContent-Length: 5\r\n\r\nhello")
    if step["error"] is None:
        assert (result.code, step["response"]["bytes"]) == (0, 5)
    else:
        assert (result.code, step["error"]["kind"]) == (75, "protocol")


def test_headers_are_reported_in_order_with_repetition(call_tool):
    lines = ["X-B: 2", "X-A: 1", "X-B: 3", "x-a:  padded ", "X-Empty:"]
    response = received(call_tool, OK + "\r\n".join(lines) + "\r\nContent-Length: 0\r\n\r\n")
    found = [(header["name"], header["value"]) for header in response["headers"]]
    expected = [("X-B", "2"), ("X-A", "1"), ("X-B", "3"), ("x-a", "padded"), ("X-Empty", "")]
    assert [(name.lower(), value) for name, value in found[:5]] == [
        (name.lower(), value) for name, value in expected
    ]


@pytest.mark.parametrize("control", ["\r", "\0"])
def test_a_control_that_no_value_may_hold_is_a_blank(call_tool, control):
    """RFC 9110 section 5.5 for CR and NUL; in a folded line too."""
    lines = (
        f"X-A: a{control}b\r\nX-B: {control}a{control}\r\n \tb{control}c{control}\r\nContent-Length: 0\r\n"
    )
    response = received(call_tool, f"{OK}{lines}\r\n")
    assert [header["value"] for header in response["headers"]] == ["a b", "a  b c", "0"]


# --- interim responses ----------------------------------------------------------------------------

HINT = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n"
PROCESSING = "HTTP/1.1 102 Processing\r\n\r\n"
FINAL = OK + "Content-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize(
    ("interim", "codes"),
    [
        ("", []),
        (HINT, [103]),
        (CONTINUE, [100]),
        (PROCESSING + HINT + HINT + CONTINUE, [102, 103, 103, 100]),
        ("HTTP/1.1 199 Odd\r\n\r\n", [199]),
        (HINT * 100, [103] * 100),
    ],
    ids=["none", "103", "100", "several", "199", "a-hundred"],
)
def test_interim_responses_are_counted_and_are_not_the_response(call_tool, interim, codes):
    response = received(call_tool, interim + FINAL)
    assert (response["status"], response["bytes"]) == (200, 5)
    assert response["interim"] == codes
    assert "link" not in {header["name"].lower() for header in response["headers"]}


def test_first_byte_means_the_first_byte_of_the_final_response(call_tool):
    def script(peer):
        peer.read_request()
        peer.send(HINT)
        peer.wait(0.25)
        peer.send(FINAL)

    _, step = measured(call_tool, script)
    assert step["response"]["interim"] == [103]
    assert step["timing"]["wait_ms"] >= 250 - EDGE


@pytest.mark.parametrize(
    "reply", [HINT * 101 + FINAL, HINT * 5000], ids=["one-too-many-and-an-answer", "no-answer-at-all"]
)
def test_more_than_a_hundred_interim_responses_are_a_failure(call_tool, reply):
    failed(call_tool, reply, "protocol")


@pytest.mark.parametrize("reply", [HINT, CONTINUE + HINT, "HTTP/1.1 103 Early"])
def test_an_interim_response_alone_is_an_empty_reply(call_tool, reply):
    failed(call_tool, reply, "protocol")


@pytest.mark.parametrize(
    ("line", "version", "odd"),
    [
        ("HTTP/2 200 OK", "HTTP/1.1", " (its status line says HTTP/2)"),
        ("HTTP/2.0 200", "HTTP/1.1", " (its status line says HTTP/2.0)"),
        ("http/1.1 200 ok", "HTTP/1.1", " (its status line says http/1.1)"),
        ("HTTP/1.1  200   OK", "HTTP/1.1", " (its status line has more blanks than one)"),
        ("HTTP/1.0 200 OK", "HTTP/1.0", ""),
    ],
)
def test_a_line_that_is_clearly_a_status_line_is_read_and_its_oddity_told(call_tool, line, version, odd):
    result, step = measured(call_tool, f"{line}\r\nContent-Length: 5\r\n\r\nhello")
    assert (result.code, step["response"]["status"], step["response"]["http_version"]) == (0, 200, version)
    assert f" Protocol {version}{odd} Path " in " ".join(result.err.split())


UPGRADE = ("-H", "Connection: keep-alive, Upgrade", "-H", "Upgrade: websocket")
SWITCHED = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


@pytest.mark.parametrize("frames", ["", "\x81\x05hello"], ids=["nothing-more", "a-message"])
def test_a_change_of_protocol_that_was_asked_for_is_an_answer(call_tool, frames):
    with scripted(sending(SWITCHED + frames)) as server:
        result = call_tool("--expect", "101", "--json", "-", *UPGRADE, server.url())
    [step] = result.json()["steps"]
    assert (result.code, step["response"]["status"], step["response"]["bytes"]) == (0, 101, 0)
    assert step["timing"]["xfer_ms"] == 0 < step["timing"]["wait_ms"]
    assert "Protocol HTTP/1.1 (then websocket, as the request asked)" in " ".join(result.err.split())


def test_a_connection_that_switched_protocols_is_not_kept(call_tool):
    with scripted(sending(SWITCHED)) as server:
        result = call_tool(
            "--count", "2", "--interval", "0", "--reuse", "--json", "-", *UPGRADE, server.url()
        )
    refused = [run["steps"][0]["network"]["reuse_refused"] for run in result.json()["runs"]]
    assert (result.code, refused) == (0, [None, "the server switched to another protocol"])


@pytest.mark.parametrize("options", [(), ("-H", "Upgrade: websocket"), ("-H", "Connection: Upgrade")])
def test_switching_protocols_unasked_is_a_protocol_failure(call_tool, options):
    failed(call_tool, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + FINAL, "protocol", *options)


# --- what breaks off, contradicts itself or goes beyond the limits --------------------------------

TRUNCATED = {
    "length": (OK + "Content-Length: 10\r\n\r\nhello", 5),
    "length-nothing": (OK + "Content-Length: 10\r\n\r\n", 0),
    "chunk": (CHUNKED + "a\r\nhello", 5),
    "chunk-end": (CHUNKED + "5\r\nhello", 5),
    "chunk-line-end": (CHUNKED + "5\r\nhello\r\n", 5),
    "chunk-size": (CHUNKED + "5\r\nhello\r\n6", 5),
    "last-chunk": (CHUNKED + "5\r\nhello\r\n0\r\n", 5),
    "trailers": (CHUNKED + "5\r\nhello\r\n0\r\nX-Sum: 1\r\n", 5),
    "no-chunk": (CHUNKED, 0),
}


@pytest.mark.parametrize(("response", "size"), TRUNCATED.values(), ids=TRUNCATED.keys())
def test_a_body_that_breaks_off_is_a_failure_with_its_bytes_counted(call_tool, response, size):
    step = failed(call_tool, response, "protocol")
    assert step["error"]["phase"] == "xfer"
    assert (step["response"]["status"], step["response"]["bytes"]) == (200, size)


BAD_LENGTHS = [
    "+5",
    "-5",
    "0x5",
    "1_0",
    "5.0",
    "5a",
    "",
    "５",
    "5 5",
    "5,",
    "5" * 5000,
    "0000000000000005",
    "1000000000000000",
    "99999999999999999999999999",
]


@pytest.mark.parametrize("value", BAD_LENGTHS, ids=lambda value: value[:12] or "empty")
def test_a_content_length_that_is_not_plain_digits_is_a_protocol_failure(call_tool, value):
    failed(call_tool, f"{OK}Content-Length: {value}\r\n\r\nhello".encode(), "protocol")


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 6"],
        ["Content-Length: 5,05,6"],
        ["Content-Length: 5", "Content-Length: x"],
    ],
)
def test_conflicting_content_lengths_are_a_protocol_failure(call_tool, lines):
    failed(call_tool, OK + "\r\n".join(lines) + "\r\n\r\nhello!", "protocol")


BAD_CHUNKS = {
    "signed": "+5\r\nhello\r\n0\r\n\r\n",
    "negative": "-5\r\nhello\r\n0\r\n\r\n",
    "prefixed": "0x5\r\nhello\r\n0\r\n\r\n",
    "underscore": "0_5\r\nhello\r\n0\r\n\r\n",
    "empty": "\r\nhello\r\n0\r\n\r\n",
    "word": "five\r\nhello\r\n0\r\n\r\n",
    "many-digits": "5" * 5000 + "\r\nhello",
    "no-line-end": "5" * 3_000_000,
    "extension-only": ";x=1\r\nhello\r\n0\r\n\r\n",
    "wrong-size": "3\r\nhello\r\n0\r\n\r\n",
    "none-at-all": "hello",
}


@pytest.mark.parametrize("body", BAD_CHUNKS.values(), ids=BAD_CHUNKS.keys())
def test_a_chunk_size_that_is_not_plain_digits_is_a_protocol_failure(call_tool, body):
    step = failed(call_tool, CHUNKED + body, "protocol")
    assert "ended" not in step["error"]["message"]


def test_a_thousand_header_lines_are_accepted(call_tool):
    lines = "".join(f"X-{number}: {number}\r\n" for number in range(999))
    response = received(call_tool, f"{OK}{lines}Content-Length: 5\r\n\r\nhello")
    assert len(response["headers"]) == 1000


def test_a_header_line_of_half_a_megabyte_is_accepted(call_tool):
    response = received(call_tool, f"{OK}X-Long: {'x' * 500_000}\r\nContent-Length: 5\r\n\r\nhello")
    assert len(response["headers"][0]["value"]) in (500_000, *range(1_000, 2_100))


EXCESS = {
    "lines": "".join(f"X-{number}: {number}\r\n" for number in range(1000))
    + "Content-Length: 5\r\n\r\nhello",
    "one-line": f"X-Long: {'x' * (2**20 + 100)}\r\nContent-Length: 5\r\n\r\nhello",
    "section": "".join(f"X-{n}: {'x' * 2000}\r\n" for n in range(600)) + "Content-Length: 5\r\n\r\nhello",
    "line-without-end": f"X-Long: {'x' * 3_000_000}",
}


@pytest.mark.parametrize("headers", EXCESS.values(), ids=EXCESS.keys())
def test_headers_beyond_the_limits_are_a_protocol_failure(call_tool, headers):
    failed(call_tool, OK + headers, "protocol")


def resetting(head):
    """Make a script that answers a request with `head` and then breaks the connection off."""

    def script(peer):
        peer.read_request()
        peer.send(head)
        peer.wait(0.1)
        peer.reset()

    return script


@pytest.mark.parametrize(
    ("head", "phase"),
    [
        ("", "wait"),
        (OK, None),
        (OK + "Content-Length: 9\r\n\r\nhalf", "xfer"),
        (CHUNKED + "5\r\nhel", "xfer"),
    ],
)
def test_a_reset_is_a_network_failure(call_tool, head, phase):
    step = failed(call_tool, resetting(head), "network")
    assert phase in (None, step["error"]["phase"])


def test_a_refused_connection_is_a_network_failure_in_connect(call_tool):
    with refused_port() as port:
        result = call_tool("--json", "-", f"http://127.0.0.1:{port}/")
    [step] = result.json()["steps"]
    assert (result.code, step["error"]["kind"], step["error"]["phase"]) == (75, "network", "connect")
    [attempt] = step["network"]["attempts"]
    assert attempt["ip"] == "127.0.0.1"
    assert attempt["error"]


# --- over TLS -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["length", "chunked", "no-content"])
def test_a_framed_response_over_tls_needs_no_close_notify(call_tool, tls, authority, name):
    response, size = FRAMINGS[name]

    def script(peer):
        peer.read_request()
        peer.send(response)
        peer.end()

    assert received(call_tool, script, "--cacert", authority.file, tls=tls)["bytes"] == size


def test_a_body_until_close_over_tls_is_whole_with_a_close_notify(call_tool, tls, authority):
    def script(peer):
        peer.read_request()
        peer.send(FRAMINGS["until-close"][0])
        peer.sock.unwrap()

    assert received(call_tool, script, "--cacert", authority.file, tls=tls)["bytes"] == 5


def test_a_body_until_close_over_tls_without_close_notify_is_incomplete(run_tool, tls, authority):
    def script(peer):
        peer.read_request()
        peer.send(FRAMINGS["until-close"][0])
        peer.end()

    step = failed(run_tool, script, "protocol", "--cacert", authority.file, tls=tls)
    assert step["response"]["bytes"] == 5


def test_plain_http_on_a_tls_port_is_a_failure_that_says_so(call_tool, tls):
    with scripted(lambda peer: None, tls=tls) as server:
        result = call_tool("--json", "-", f"http://{server.authority}/")
    [step] = result.json()["steps"]
    assert (result.code, step["response"]) == (75, None)
    assert step["error"]["kind"] in ("protocol", "network")


def test_tls_on_a_plain_http_port_is_a_tls_failure(call_tool):
    def script(peer):
        peer.read_exactly(5)
        peer.send("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    with scripted(script) as server:
        result = call_tool("--json", "-", "-k", f"https://{server.authority}/")
    [step] = result.json()["steps"]
    assert (result.code, step["error"]["kind"], step["error"]["phase"]) == (75, "tls", "tls")


@pytest.mark.parametrize("options", [["--http1.1"], ["--no-http2"]])
def test_http2_is_not_offered_when_it_is_not_wanted(call_tool, authority, options):
    context = authority.context(alpn=("h2", "http/1.1"))
    offered = []

    def script(peer):
        assert isinstance(peer.sock, ssl.SSLSocket)
        offered.append(peer.sock.selected_alpn_protocol())
        peer.read_request()
        peer.send(FINAL)

    response = received(call_tool, script, *options, "--cacert", authority.file, tls=context)
    assert response["http_version"] == "HTTP/1.1"
    assert offered in (["http/1.1"], [None])


# --- what is sent ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 65_536, 5_000_000])
def test_a_body_of_any_size_arrives_whole(call_tool, tmp_path, size):
    content = bytes(index % 251 for index in range(997)) * (size // 997 + 1)
    (tmp_path / "body").write_bytes(content[:size])
    with http_server() as server:
        result = call_tool("--json", "-", "-d", f"@{tmp_path / 'body'}", server.url())
        assert server.requests[0].body == content[:size]
    assert result.json()["steps"][0]["request"]["body_bytes"] == size


def test_a_final_response_during_the_upload_is_the_response(call_tool, tmp_path):
    (tmp_path / "body").write_bytes(b"x" * 20_000_000)

    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")
        peer.wait(5)

    response = received(call_tool, script, "-m", "4", "-d", f"@{tmp_path / 'body'}")
    assert (response["status"], response["bytes"]) == (413, 3)


def test_a_final_response_before_the_server_hangs_up_on_the_upload_is_the_response(call_tool, tmp_path):
    (tmp_path / "body").write_bytes(b"x" * 20_000_000)

    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")
        peer.end()
        peer.read_to_end()

    assert received(call_tool, script, "-d", f"@{tmp_path / 'body'}")["status"] == 413


@pytest.fixture
def large(tmp_path):
    """A request body that no socket's buffers hold, and its size."""
    (tmp_path / "body").write_bytes(b"x" * 20_000_000)
    return f"@{tmp_path / 'body'}", 20_000_000


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_an_upload_stops_at_an_answer_that_does_not_want_it(call_tool, tls, authority, large, secure):
    """The server takes whatever comes until nothing more does: that is what was under way, not all of it."""
    body, size = large
    taken = []

    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nn")
        peer.sock.settimeout(0.5)
        try:
            while sum(taken) < size:
                taken.append(len(peer.read_exactly(size // 100)))
        except socket.timeout:
            pass
        peer.send("o\n")

    settings = {"tls": tls} if secure else {}
    response = received(call_tool, script, "--cacert", authority.file, "-d", body, **settings)
    assert (response["status"], response["bytes"]) == (413, 3)
    assert sum(taken) < size


def test_an_upload_goes_on_after_the_header_of_a_success(call_tool, large):
    """A server may stream its answer while it reads: 200 does not stop the request."""
    body, size = large

    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\no")
        taken = len(peer.read_exactly(size))
        assert taken == size
        peer.send("k\n")

    assert received(call_tool, script, "-d", body)["bytes"] == 3


# --- the type of the body -------------------------------------------------------------------------

JSON, XML, TEXT, BINARY = "application/json", "application/xml", "text/plain", "application/octet-stream"

TYPES = {
    "object": (b'{"a": 1}', JSON),
    "array": (b" [1, 2]\n", JSON),
    "number": (b"17", JSON),
    "string": (b'"x"', JSON),
    "null": (b"null", JSON),
    "true": (b"\r\n\ttrue\n", JSON),
    "negative": (b"-1.5e3", JSON),
    "NaN": (b'{"a": NaN}', TEXT),
    "Infinity": (b"[Infinity]", TEXT),
    "broken-json": (b'{"a": 1', TEXT),
    "json-and-more": (b"{} {}", TEXT),
    "single-quotes": (b"{'a': 1}", TEXT),
    "form": (b"a=1&b=2", TEXT),
    "empty": (b"", TEXT),
    "blank": (b" \n", TEXT),
    "xml-declaration": (b'<?xml version="1.0"?><a/>', XML),
    "tag": (b"\n  <note>x</note>", XML),
    "less-than": (b"< 5 apples", TEXT),
    "less-than-digit": (b"<3", TEXT),
    "utf-8": ("grün".encode(), TEXT),
    "not-utf-8": (b"gr\xfcn", BINARY),
    "zeros": (b"\xff\x00\x00", BINARY),
    "long-utf-8": (b"x" + "ü".encode() * 500_000, TEXT),
    "long-and-cut": ("ü".encode() * 500_000 + b"\xc3", BINARY),
}


LONG = tool.MAX_DECODED
LONG_TYPES = {
    "just as much JSON": (b" " * (LONG - 1) + b"1", JSON),
    "more": (b" " * LONG + b"1", TEXT),
    "XML": (b"<a>" + b" " * LONG + b"</a>", XML),
    "a character at the cut": (b"x" * (LONG - 1) + "ü".encode(), TEXT),
    "not UTF-8 before the cut": (b"x" * (LONG - 1) + b"\xfc", BINARY),
    "not UTF-8 behind it": (b"x" * LONG + b"\xfc", TEXT),
}


@pytest.mark.parametrize(("content", "kind"), LONG_TYPES.values(), ids=LONG_TYPES)
def test_of_much_data_the_beginning_tells_the_type_and_none_is_json(content, kind):
    assert tool.detect_type(content, "").partition(";")[0] == kind


def content_type(call_tool, *arguments):
    """Run the program against a plain server; return the one Content-Type it sent."""
    with http_server() as server:
        assert call_tool(*arguments, "--compact", server.url()).code == 0
        [value] = server.requests[0].values("Content-Type")
        return value


@pytest.mark.parametrize(("content", "kind"), TYPES.values(), ids=TYPES.keys())
def test_the_type_of_data_is_told_from_its_content(call_tool, tmp_path, content, kind):
    (tmp_path / "data").write_bytes(content)
    value = content_type(call_tool, "-d", f"@{tmp_path / 'data'}")
    assert value.partition(";")[0] == kind
    assert (value == "text/plain; charset=utf-8") == (kind == TEXT)


@pytest.mark.parametrize("name", ["object", "broken-json", "tag", "form", "utf-8", "empty"])
def test_inline_data_is_typed_like_data_from_a_file(call_tool, name):
    content, kind = TYPES[name]
    assert content_type(call_tool, "-d", content.decode()).partition(";")[0] == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.json", JSON), ("a.JSON", JSON), ("a.xml", XML), ("a.Xml", XML), ("a.txt", TEXT), ("a.TXT", TEXT)],
)
@pytest.mark.parametrize("content", [b"neither one nor other", b"{}", b"<a/>"])
def test_the_extension_of_a_file_is_believed_first(call_tool, tmp_path, name, kind, content):
    (tmp_path / name).write_bytes(content)
    assert content_type(call_tool, "-d", f"@{tmp_path / name}").partition(";")[0] == kind


@pytest.mark.parametrize("name", ["a.dat", "a", "a.json.bak", ".json.d"])
def test_a_file_with_another_extension_is_typed_by_its_content(call_tool, tmp_path, name):
    (tmp_path / name).write_bytes(b"[1]")
    assert content_type(call_tool, "-d", f"@{tmp_path / name}") == JSON


def test_a_content_type_given_as_header_wins_over_all(call_tool, tmp_path):
    (tmp_path / "a.json").write_bytes(b"{}")
    options = ["-d", f"@{tmp_path / 'a.json'}", "-H", "content-type: application/vnd.test+json"]
    assert content_type(call_tool, *options) == "application/vnd.test+json"


# --- small things that servers do -----------------------------------------------------------------


def test_a_query_and_the_body_of_any_route_reach_the_server_as_given(call_tool):
    def route(request):
        return Reply(body=json.dumps([request.method, request.target, request.body.decode()]).encode())

    with http_server({"/x": route}) as server:
        response = call_tool("--json", "-", "-X", "PUT", "-d", "a b", server.url("/x?y=%20&z")).json()[
            "steps"
        ][0]
        assert response["response"]["bytes"] == len(b'["PUT", "/x?y=%20&z", "a b"]')


def test_an_interim_response_that_is_cut_off_is_not_called_something_else_than_http(run_tool):
    with scripted(sending("HTTP/1.1 103 Early Hints\r\nLink: </sty")) as server:
        result = run_tool("--json", "-", server.url())
    error = result.json()["steps"][0]["error"]
    assert (error["kind"], error["phase"]) == ("protocol", "wait")
    assert "middle of its header" in error["message"]


@pytest.mark.parametrize("line", ["HTTP/1.1 99 Low", "HTTP/1.1 1000 High", "HTTP/1.1 2x0 What", "HTTP/1.1"])
def test_a_malformed_status_line_of_an_http_server_is_called_that(line):
    with scripted(sending(f"{line}\r\n\r\n")) as server:
        error = failure(here(server.url()), "protocol", "wait")["error"]
    assert "status line" in error["message"] and line in error["message"]
    assert "port" not in error["hint"]
