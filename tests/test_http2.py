"""HTTP/2: what is asked of a real server, and what a server that sends every frame by hand is taken for."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import threading
import time

import pytest
from hostile.frames import frame

from checks import EDGE
from conversations import PREFACE, converse, conversing
from inside import failure, here, only_step, tool
from servers import debian_program, free_port, scripted

pytestmark = [pytest.mark.needs("h2", "trustme")]

# --- against servers nobody here wrote ------------------------------------------------------------


@pytest.fixture
def ask(authority):
    """Run the program with the authority's bundle; return the only step of a run that succeeded."""

    def run(*arguments):
        return only_step(here("--cacert", authority.file, *arguments))

    return run


def test_a_server_that_speaks_http2_is_spoken_to_in_http2(run_tool, http2, authority):
    result = run_tool("--json", "-", "--cacert", authority.file, http2.url("/?size=1000"))
    step = only_step(result)
    network, response = step["network"], step["response"]
    assert (network["alpn"], network["http_version"], response["http_version"]) == ("h2", "HTTP/2", "HTTP/2")
    assert (response["status"], response["bytes"], response["content_type"]) == (200, 1000, "text/plain")
    assert response["reason"] is None, "HTTP/2 has no reason phrase"


@pytest.mark.parametrize("option", [None, "--http1.1"])
def test_only_headers_that_were_sent_are_recorded(ask, http2, option):
    """HTTP/2 has no headers for one connection alone (RFC 9113 section 8.2.2)."""
    given = ["Connection: X-Hop", "Keep-Alive: 5", "X-Hop: 1", "TE: gzip", "X-Stay: 2"]
    options = [word for header in given for word in ("-H", header)] + [option] * bool(option)
    sent = [header["name"] for header in ask(*options, http2.url())["request"]["headers"]]
    hop = ["Connection", "Keep-Alive", "X-Hop", "TE"] if option else []
    assert sent == ["Host", "User-Agent", "Accept", *hop, "X-Stay"]


@pytest.mark.parametrize("option", ["--http1.1", "--no-http2"])
def test_http2_can_be_refused(ask, http2, option):
    step = ask(option, http2.url())
    assert (step["network"]["alpn"], step["response"]["http_version"]) == ("http/1.1", "HTTP/1.1")


def test_without_h2_the_same_server_is_spoken_to_in_http_1_1(run_tool, http2, authority):
    result = run_tool("--json", "-", "--cacert", authority.file, http2.url(), without=("h2",))
    assert only_step(result)["response"]["http_version"] == "HTTP/1.1"


def test_plain_http_stays_http_1_1(server):
    assert only_step(here(server.url()))["response"]["http_version"] == "HTTP/1.1"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
def test_every_method_works_over_http2(ask, http2, method):
    step = ask("-X", method, http2.url("/?size=10"))
    assert (step["response"]["status"], step["response"]["bytes"]) == (200, 0 if method == "HEAD" else 10)


@pytest.mark.parametrize("size", [0, 1, 16384, 16385, 3_000_000])
def test_a_body_of_any_size_is_sent_and_received(ask, http2, tmp_path, size):
    (tmp_path / "body").write_bytes(b"x" * size)
    step = ask("-d", f"@{tmp_path / 'body'}", http2.url(f"/?size={size}"))
    assert (step["request"]["body_bytes"], step["response"]["bytes"]) == (size, size)


def test_a_redirect_over_http2_makes_a_connection_of_its_own(http2, authority):
    result = here("-L", "--cacert", authority.file, http2.url("/?status=302&location=/?size=3"))
    steps = result.json()["steps"]
    assert [step["response"]["http_version"] for step in steps] == ["HTTP/2", "HTTP/2"]
    assert all(step["timing"]["tls_ms"] > 0 for step in steps)


NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log off; client_max_body_size 100m;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} ssl http2; ssl_certificate {pem}; ssl_certificate_key {pem}; root {folder};
    location = /early {{ return 413; }}
  }}
}}
"""


@pytest.fixture(scope="module")
def nginx(tmp_path_factory, authority):
    """Run nginx as an HTTP/2 server over a folder that holds `big` (5 MB); return its URL."""
    folder = tmp_path_factory.mktemp("nginx")
    (folder / "big").write_bytes(b"x" * 5_000_000)
    port = free_port()
    user = "user root;\n" if os.geteuid() == 0 else ""
    text = NGINX.format(folder=folder, port=port, pem=authority.certificate())
    (folder / "nginx.conf").write_text(user + text)
    settings = ["-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"]
    with debian_program("nginx", settings, port, folder / "out.log"):
        yield f"https://127.0.0.1:{port}"


def test_nginx_sends_five_megabytes_over_http2(ask, nginx):
    step = ask(nginx + "/big")
    assert (step["response"]["http_version"], step["response"]["bytes"]) == ("HTTP/2", 5_000_000)
    assert step["response"]["server"].startswith("nginx")


def test_nginx_answers_before_it_has_the_whole_upload(authority, nginx, tmp_path):
    (tmp_path / "body").write_bytes(b"x" * 3_000_000)
    result = here("--cacert", authority.file, "-d", f"@{tmp_path / 'body'}", nginx + "/early")
    assert only_step(result)["response"]["status"] == 413


CADDY = """
{{
  admin off
  auto_https off
  servers {{
    protocols h1 h2
  }}
}}
https://127.0.0.1:{port} {{
  bind 127.0.0.1
  tls {pem} {pem}
  respond /early 413
  reverse_proxy 127.0.0.1:{onward}
}}
"""


def take_upload(peer):
    """Answer each request with the size of its body."""
    head = peer.read_until(b"\r\n\r\n")
    while head:
        size = str(peer.skip(int(head.lower().partition(b"content-length:")[2].split()[0])))
        peer.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(size)}\r\nX-Size: {size}\r\n\r\n{size}")
        head = peer.read_until(b"\r\n\r\n")


@pytest.fixture(scope="module")
def caddy(tmp_path_factory, authority):
    """Run Caddy, whose HTTP/2 is that of servers in Go, before a server that takes all; return its URL."""
    folder = tmp_path_factory.mktemp("caddy")
    port = free_port()
    with scripted(take_upload) as behind:
        text = CADDY.format(port=port, pem=authority.certificate(), onward=behind.port)
        (folder / "Caddyfile").write_text(text)
        settings = ["run", "--config", folder / "Caddyfile", "--adapter", "caddyfile"]
        places = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
        env = {**dict.fromkeys(places, str(folder)), "PATH": os.environ["PATH"]}
        with debian_program("caddy", settings, port, folder / "out.log", env):
            yield f"https://127.0.0.1:{port}"


@pytest.mark.parametrize("size", [1, 100_000, 64 << 20])
def test_caddy_takes_an_upload_of_any_size(authority, caddy, tmp_path, size):
    """It returns credit for every 16 or 32 KiB, twice, and takes frames of 1 MiB."""
    (tmp_path / "body").write_bytes(bytes(size))
    options = ["-m", "60", "--cacert", authority.file, "-d", f"@{tmp_path / 'body'}"]
    response = only_step(here(*options, caddy))["response"]
    assert (response["http_version"], response["server"]) == ("HTTP/2", "Caddy")
    assert {header["name"]: header["value"] for header in response["headers"]}["x-size"] == str(size)


def test_caddy_answers_before_it_has_the_whole_upload(authority, caddy, tmp_path):
    (tmp_path / "body").write_bytes(bytes(3_000_000))
    result = here("--cacert", authority.file, "-d", f"@{tmp_path / 'body'}", caddy + "/early")
    assert only_step(result)["response"]["status"] == 413


# --- what the client says -------------------------------------------------------------------------


def fine(conversation):
    """Answer one request."""
    conversation.read_request()
    conversation.send(conversation.settings(), conversation.headers(200), conversation.data(b"ok", end=True))


def asked(authority, *arguments, path="/", host="127.0.0.1"):
    """Return the conversation of a run against a server that answers."""
    held = []

    def script(conversation):
        held.append(conversation)
        fine(conversation)

    with conversing(authority, script, host=host) as server:
        only_step(here("-m", "10", "--cacert", authority.file, *arguments, server.url(path)))
    return held[0]


def test_the_request_is_one_stream_with_its_fields_in_order(authority):
    headers = ["-H", "X-B: 1", "-H", "x-a: 2", "-H", "X-B: 3", "-H", "Connection: x-hop", "-H", "X-Hop: 1"]
    conversation = asked(authority, *headers, "-H", "Host: b.test", path="/p?q")
    fields = conversation.request
    assert fields[:4] == [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "b.test"),
        (":path", "/p?q"),
    ]
    names = [name for name, _ in fields[4:]]
    assert names == ["user-agent", "accept", "x-b", "x-a", "x-b"]
    assert dict(fields)["user-agent"] == f"httphases/{tool.__version__}"


def test_the_client_forbids_push_and_opens_wide_windows(authority):
    """A window of 64 KiB holds a download on a path of 100 ms to 5 Mbit/s."""
    frames = asked(authority).frames
    [settings] = [f for f in frames if type(f).__name__ == "SettingsFrame" and "ACK" not in f.flags][:1]
    assert settings.settings[settings.ENABLE_PUSH] == 0
    assert settings.settings[settings.INITIAL_WINDOW_SIZE] >= 10_000_000
    [update] = [f for f in frames if type(f).__name__ == "WindowUpdateFrame" and f.stream_id == 0]
    assert update.window_increment >= 10_000_000


@pytest.mark.needs("ipv6")
def test_a_literal_ipv6_host_is_an_authority_in_brackets(authority):
    assert dict(asked(authority, host="::1").request)[":authority"].startswith("[::1]:")


# --- responses that are whole ---------------------------------------------------------------------


def small_frames(c):
    c.send(c.headers(), *[c.data(b"x") for _ in range(50)], c.data(end=True))


def paddings(c):
    c.send(c.headers(), c.data(b"abc", padding=0), c.data(b"de", padding=255), c.data(padding=7))
    c.send(c.data(padding=255, end=True))


def padded_headers(c):
    frame = c.headers()
    frame.flags.add("PADDED")
    frame.pad_length = 100
    c.send(frame, c.data(b"abcde", end=True))


def priority_in_headers(c):
    frame = c.headers()
    frame.flags.add("PRIORITY")
    frame.depends_on, frame.stream_weight, frame.exclusive = 0, 5, False
    c.send(frame, c.data(b"abcde", end=True))


def trailers(c):
    from hyperframe.frame import HeadersFrame

    c.send(c.headers(), c.data(b"abcde"), c.block(HeadersFrame(1), [("x-sum", "1")], end=True))


def trailers_with_length(c):
    from hyperframe.frame import HeadersFrame

    c.send(c.headers(200, ("content-length", "5")), c.data(b"abcde"))
    c.send(c.block(HeadersFrame(1), [("x-sum", "1")], end=True))


def continuation(c):
    block = c.encoder.encode([(":status", "200"), ("x-long", "y" * 3000), ("content-length", "5")])
    parts = [block[:1000], block[1000:2000], block[2000:]]
    c.send(frame(1, parts[0]), frame(9, parts[1]), frame(9, parts[2], 4))
    c.send(c.data(b"abcde", end=True))


def ping_in_the_body(c):
    from hyperframe.frame import PingFrame

    c.send(c.headers(), c.data(b"ab"), PingFrame(0, b"12345678"))
    answer = c.read_until("Ping")
    assert ("ACK" in answer.flags, answer.opaque_data) == (True, b"12345678")
    c.send(c.data(b"cde", end=True))


def settings_in_the_body(c):
    c.send(c.headers(), c.data(b"ab"), c.settings(header_table_size=0, max_frame_size=1 << 20))
    c.read_until("Settings", lambda frame: "ACK" in frame.flags)
    c.send(c.data(b"cde", end=True))


def ping_before_the_answer(c):
    from hyperframe.frame import PingFrame

    c.send(PingFrame(0, b"12345678"))
    c.read_until("Ping")
    c.send(c.headers(), c.data(b"abcde", end=True))


def unknown_frames(c):
    c.send(frame(0xFA, b"?", 0xFF, 0), frame(0xFB, b"?" * 100), c.headers())
    c.send(frame(0xFA, b"", 0, 0), c.data(b"abcde", end=True))


def priority_and_alternatives(c):
    c.send(frame(2, b"\0\0\0\0\x05"), frame(2, b"\0\0\0\0\x05", 0, 3))
    c.send(frame(0xA, b"\0\x05a.test" + b'h3=":443"', 0, 0), c.headers(), c.data(b"abcde", end=True))


def unknown_settings(c):
    c.send(frame(4, b"\xff\xff\0\0\0\1\0\x08\0\0\0\1", 0, 0), c.headers(), c.data(b"abcde", end=True))


def windows(c):
    c.send(c.window(1000, 0), c.window(1000, 1), c.headers(), c.window(1000, 1), c.data(b"abcde", end=True))


def goaway_before_the_answer(c):
    c.send(c.goaway(1), c.headers(), c.data(b"abcde", end=True))


def goaway_twice(c):
    c.send(c.goaway(2**31 - 1), c.headers(), c.data(b"ab"), c.goaway(1), c.data(b"cde", end=True))


def goaway_in_the_body_with_words(c):
    c.send(c.headers(), c.data(b"ab"), c.goaway(1, 0, b"bye"), c.data(b"cde", end=True))


def goaway_with_an_error_that_covers_the_stream(c):
    c.send(c.headers(), c.data(b"ab"), c.goaway(1, 11), c.data(b"cde", end=True))


def reset_after_the_end(c):
    c.send(c.headers(), c.data(b"abcde", end=True), c.reset(0))


def goaway_after_the_end(c):
    c.send(c.headers(), c.data(b"abcde", end=True), c.goaway(0, 2))


def empty_data_at_the_end(c):
    c.send(c.headers(200, ("content-length", "5")), c.data(), c.data(b"abcde"), c.data(end=True))


def repeated_length(c):
    c.send(c.headers(200, ("content-length", "5"), ("content-length", "5")), c.data(b"abcde", end=True))


def in_single_bytes(c):
    c.peer.drip(c.headers().serialize() + c.data(b"abcde", end=True).serialize(), 0)


def no_settings_at_all(c):
    c.send(c.headers(), c.data(b"abcde", end=True))


def large_frames_in_torn_records(c):
    whole = b"".join(
        each.serialize() for each in [c.headers(), *[c.data(b"x" * 1000)] * 300, c.data(end=True)]
    )
    for at in range(0, len(whole), 997):
        c.send(whole[at : at + 997])


def a_frame_whose_last_bytes_are_late(c):
    start = b"".join(each.serialize() for each in [c.headers(), *[c.data(b"x" * 100)] * 3])
    c.send(start[:-3])
    c.peer.wait(0.05)
    c.send(start[-3:], c.data(end=True))


def frames_of_many_sizes(c):
    sizes = [1000] * 9 + [1, 2, 2, 16384, 16384, 999]
    c.send(c.headers(), *[c.data(b"x" * size) for size in sizes], c.data(end=True))


def other_frames_amid_data(c):
    data = c.data(b"x" * 100)
    unknown_flag, reserved_bit = frame(0, b"x" * 100, 0x2), frame(0, b"x" * 100, 0, 1 | 1 << 31)
    others = [
        unknown_flag,
        frame(6, b"12345678", 0, 0),
        reserved_bit,
        c.data(),
        c.data(b"x" * 100, padding=9),
    ]
    c.send(c.headers(), *[each for other in others for each in (data, data, other)], c.data(end=True))


def data_behind_the_end(c):
    c.send(c.headers(), *[c.data(b"x" * 100)] * 9, c.data(b"x" * 100, end=True), *[c.data(b"x" * 100)] * 9)


def two_hundred_headers(c):
    c.send(c.headers(200, *[(f"x-{n}", "v") for n in range(200)]), c.data(b"abcde", end=True))


WHOLE = {
    small_frames: 50,
    paddings: 5,
    padded_headers: 5,
    priority_in_headers: 5,
    trailers: 5,
    trailers_with_length: 5,
    continuation: 5,
    ping_in_the_body: 5,
    settings_in_the_body: 5,
    ping_before_the_answer: 5,
    unknown_frames: 5,
    priority_and_alternatives: 5,
    unknown_settings: 5,
    windows: 5,
    goaway_before_the_answer: 5,
    goaway_twice: 5,
    goaway_in_the_body_with_words: 5,
    goaway_with_an_error_that_covers_the_stream: 5,
    reset_after_the_end: 5,
    goaway_after_the_end: 5,
    empty_data_at_the_end: 5,
    repeated_length: 5,
    in_single_bytes: 5,
    no_settings_at_all: 5,
    two_hundred_headers: 5,
    large_frames_in_torn_records: 300_000,
    a_frame_whose_last_bytes_are_late: 300,
    frames_of_many_sizes: 9 * 1000 + 5 + 2 * 16384 + 999,
    other_frames_amid_data: 1300,
    data_behind_the_end: 1000,
}


def name_of(value):
    return value.__name__ if callable(value) else None


@pytest.mark.parametrize(("script", "size"), WHOLE.items(), ids=name_of)
def test_a_response_is_whole_with(authority, script, size):
    def serve(c):
        c.read_request()
        if script is not no_settings_at_all:
            c.send(c.settings())
        script(c)

    response = only_step(converse(authority, serve))["response"]
    assert (response["status"], response["bytes"]) == (200, size)


@pytest.mark.parametrize(
    ("arguments", "status", "length"),
    [(["-X", "HEAD"], 200, "500"), ([], 304, "500"), ([], 204, None), ([], 200, "0")],
)
def test_a_response_may_end_with_its_header(authority, arguments, status, length):
    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(status, *([("content-length", length)] if length else []), end=True))

    response = only_step(converse(authority, script, *arguments))["response"]
    assert (response["status"], response["bytes"]) == (status, 0)


def test_interim_responses_are_recorded_and_are_not_the_answer(authority):
    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(103, ("link", "</x>")), c.headers(100), c.headers(103))
        c.send(c.headers(201), c.data(b"ok", end=True))

    response = only_step(converse(authority, script))["response"]
    assert (response["status"], response["interim"]) == (201, [103, 100, 103])


def test_headers_keep_their_order_and_repetition(authority):
    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(200, ("x-b", "1"), ("x-a", "2"), ("x-b", "3"), end=True))

    headers = only_step(converse(authority, script))["response"]["headers"]
    assert [(h["name"], h["value"]) for h in headers] == [("x-b", "1"), ("x-a", "2"), ("x-b", "3")]


def test_a_server_may_stop_reading_after_it_has_answered(authority):
    """The end of the stream is the end: no GOAWAY, no close_notify is needed."""

    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(200), c.data(b"ok", end=True))
        c.peer.reset()

    response = only_step(converse(authority, lambda c: stop_after(script, c)))["response"]
    assert response["bytes"] == 2


def stop_after(script, c):
    """Run a script after which the connection is gone."""
    script(c)
    raise ConnectionError


# --- failures -------------------------------------------------------------------------------------

CODES = [
    *"NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED".split(),
    *"FRAME_SIZE_ERROR REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM".split(),
    *"INADEQUATE_SECURITY HTTP_1_1_REQUIRED".split(),
]


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("code", range(15))
def test_a_reset_before_the_end_is_a_failure_that_names_the_code(authority, code, early):
    def script(c):
        c.read_request()
        c.send(c.settings(), *([] if early else [c.headers(200), c.data(b"ab")]), c.reset(code))

    step = failure(converse(authority, script), "protocol", "wait" if early else "xfer")
    name = CODES[code] if code < len(CODES) else str(code)
    assert name in step["error"]["message"]
    assert (step["response"] or {"bytes": 0})["bytes"] == (0 if early else 2)
    if name == "HTTP_1_1_REQUIRED":
        assert "--http1.1" in step["error"]["hint"]


@pytest.mark.parametrize("code", [0, 2, 11, 13])
@pytest.mark.parametrize("early", [True, False])
def test_a_goaway_that_does_not_cover_the_stream_is_a_failure(authority, code, early):
    def script(c):
        c.read_request()
        start = [] if early else [c.headers(200), c.data(b"ab")]
        c.send(c.settings(), *start, c.goaway(0, code, b"too many\x1b[31m"))

    step = failure(converse(authority, script), "protocol", "wait" if early else "xfer")
    assert CODES[code] in step["error"]["message"] and "too many" in step["error"]["message"]


@pytest.mark.parametrize("code", [0, 11])
def test_a_goaway_that_covers_the_stream_and_a_close_before_the_end_are_a_failure(authority, code):
    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(200), c.data(b"ab"), c.goaway(1, code))
        c.peer.sock.unwrap()

    step = failure(converse(authority, script), "protocol", "xfer")
    assert step["response"]["bytes"] == 2


LENGTH = ("content-length", "2")


def drawn(call_tool, authority, script):
    """Run the program against a script, with the report on stderr."""
    with conversing(authority, script) as server:
        return call_tool("-m", "10", "--json", "-", "--cacert", authority.file, server.url())


def ping_for_ever(c):
    from hyperframe.frame import PingFrame

    while not c.peer.wait(0.3):
        c.send(PingFrame(0, b"12345678"))


NOT_ENDED = {
    "silent": lambda c: None,
    "pings": ping_for_ever,
    "closed": lambda c: c.peer.sock.unwrap(),
}


@pytest.mark.parametrize("then", NOT_ENDED.values(), ids=NOT_ENDED.keys())
def test_a_body_that_is_whole_by_its_length_is_a_success_though_its_stream_is_not_ended(
    call_tool, authority, then
):
    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(200, LENGTH), c.data(b"ab"))
        then(c)

    result = drawn(call_tool, authority, script)
    step = only_step(result)
    assert (step["response"]["bytes"], result.code) == (2, 0)
    assert step["timing"]["xfer_ms"] < 500, "it ends with the last byte"
    assert "Protocol HTTP/2 (ALPN h2; the server did not end the stream)" in " ".join(result.err.split())


@pytest.mark.parametrize("pause", [0, 0.3])
def test_the_end_of_a_stream_may_come_after_its_last_byte(call_tool, authority, pause):
    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(200, LENGTH), c.data(b"ab"))
        c.peer.wait(pause)
        c.send(c.data(end=True))

    result = drawn(call_tool, authority, script)
    assert only_step(result)["timing"]["xfer_ms"] >= pause * 1000
    assert "did not end" not in result.err


def test_a_request_after_a_late_end_has_its_own_time(call_tool, authority):
    """Longer than the end of a stream is waited for."""

    def script(c):
        for number in range(2):
            c.read_until("Headers") if number else c.read_request()
            c.peer.wait(1.3 * number)
            block, body = c.headers(200, LENGTH), c.data(b"ab")
            block.stream_id = body.stream_id = 1 + 2 * number
            c.send(*([] if number else [c.settings()]), block, body)
            c.peer.wait(0.1)
            end = c.data(end=True)
            end.stream_id = 1 + 2 * number
            c.send(end)

    with conversing(authority, script) as server:
        words = ("--reuse", "--count", "2", "--interval", "0", "--cacert", authority.file, server.url())
        result = call_tool("-m", "10", "--json", "-", *words)
    assert result.code == 0
    assert [run["steps"][0]["network"]["reused"] for run in result.json()["runs"]] == [False, True]


def test_blanks_around_the_values_of_fields_are_left_out_and_told(call_tool, authority):
    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(200, ("x-a", " 1\t"), ("x-b", "2"), end=True))

    result = drawn(call_tool, authority, script)
    fields = {field["name"]: field["value"] for field in only_step(result)["response"]["headers"]}
    assert (result.code, fields) == (0, {"x-a": "1", "x-b": "2"})
    assert "Protocol HTTP/2 (ALPN h2; values of fields had blanks around them)" in " ".join(
        result.err.split()
    )


def block(c, *fields, end=True):
    """Make a HEADERS frame of these fields alone."""
    return c.headers(None, *fields, end=end)


BROKEN = {
    "no-status": lambda c: [block(c, ("x-a", "1"))],
    "status-twice": lambda c: [block(c, (":status", "200"), (":status", "200"))],
    "status-two-digits": lambda c: [c.headers("20", end=True)],
    "status-four-digits": lambda c: [c.headers("2000", end=True)],
    "status-letters": lambda c: [c.headers("abc", end=True)],
    "status-plus": lambda c: [c.headers("+20", end=True)],
    "status-zero": lambda c: [c.headers("099", end=True)],
    "status-empty": lambda c: [c.headers("", end=True)],
    "status-after-a-field": lambda c: [block(c, ("x-a", "1"), (":status", "200"))],
    "status-101": lambda c: [c.headers("101")],
    "a-request-pseudo-header": lambda c: [block(c, (":status", "200"), (":path", "/"))],
    "a-name-in-upper-case": lambda c: [c.headers(200, ("X-A", "1"), end=True)],
    "a-connection-header": lambda c: [c.headers(200, ("connection", "close"), end=True)],
    "a-name-with-blanks": lambda c: [c.headers(200, (" x-a", "1"), end=True)],
    "a-value-with-a-line-feed": lambda c: [c.headers(200, ("x-a", "1\n2"), end=True)],
    "interim-that-ends": lambda c: [c.headers(103, end=True)],
    "length-too-long": lambda c: [c.headers(200, ("content-length", "9")), c.data(b"ab", end=True)],
    "length-too-short": lambda c: [c.headers(200, ("content-length", "1")), c.data(b"ab", end=True)],
    "length-without-body": lambda c: [c.headers(200, ("content-length", "1"), end=True)],
    "lengths-that-differ": lambda c: [
        c.headers(200, ("content-length", "2"), ("content-length", "3")),
        c.data(b"ab", end=True),
    ],
    "length-that-is-none": lambda c: [c.headers(200, ("content-length", "+2")), c.data(b"ab", end=True)],
    "body-before-header": lambda c: [c.data(b"ab", end=True)],
    "header-twice": lambda c: [c.headers(200), c.headers(200, end=True)],
    "trailers-that-do-not-end": lambda c: [c.headers(200), c.data(b"ab"), block(c, ("x-a", "1"), end=False)],
    "data-on-an-idle-stream": lambda c: [frame(0, b"ab", 1, 3)],
    "data-on-stream-zero": lambda c: [frame(0, b"ab", 1, 0)],
    "data-on-an-idle-stream-behind-data": lambda c: [
        c.headers(200),
        c.data(b"ab"),
        frame(0, b"ab", 0, 3),
        c.data(b"ab", end=True),
    ],
    "empty-data-by-the-thousand": lambda c: [c.headers(200), *[c.data()] * 3000, c.data(end=True)],
    "a-frame-too-large-behind-data": lambda c: [
        c.headers(200),
        c.data(b"x" * 16384),
        frame(0, b"x" * 16385),
        c.data(end=True),
    ],
    "header-on-an-idle-stream": lambda c: [frame(1, c.encoder.encode([(":status", "200")]), 5, 3)],
    "header-on-stream-zero": lambda c: [frame(1, c.encoder.encode([(":status", "200")]), 5, 0)],
    "a-push": lambda c: [frame(5, b"\0\0\0\2" + c.encoder.encode([(":method", "GET")]), 4)],
    "settings-on-a-stream": lambda c: [frame(4)],
    "settings-of-odd-length": lambda c: [frame(4, b"\0\0\0", 0, 0)],
    "settings-ack-with-content": lambda c: [frame(4, b"\0\3\0\0\0\1", 1, 0)],
    "settings-of-bad-value": lambda c: [frame(4, b"\0\4\xff\xff\xff\xff", 0, 0)],
    "ping-of-odd-length": lambda c: [frame(6, b"123", 0, 0)],
    "ping-on-a-stream": lambda c: [frame(6, b"12345678")],
    "window-of-zero": lambda c: [frame(8, b"\0\0\0\0")],
    "window-beyond-its-maximum": lambda c: [frame(8, b"\x7f\xff\xff\xff", 0, 0)] * 2,
    "reset-of-odd-length": lambda c: [frame(3, b"\0\0")],
    "goaway-too-short": lambda c: [frame(7, b"\0\0\0\1", 0, 0)],
    "continuation-alone": lambda c: [frame(9, b"", 4)],
    "a-frame-between-continuations": lambda c: [frame(1, b"\x88"), frame(6, b"12345678", 0, 0)],
    "more-padding-than-content": lambda c: [c.headers(200), frame(0, b"\x05abcd", 9)],
    "padding-without-content": lambda c: [c.headers(200), frame(0, b"", 9)],
    "a-frame-too-large": lambda c: [c.headers(200), frame(0, b"x" * 16385, 1)],
    "a-frame-of-16-mb": lambda c: [frame(0xFA, b"", 0, 0, length=0xFFFFFF)],
    "bad-compression": lambda c: [frame(1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 5)],
    "more-than-1000-headers": lambda c: [c.headers(200, *[("x", "y")] * 1001, end=True)],
    "http-1.1-on-an-http2-connection": lambda c: [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"],
    "garbage": lambda c: [b"\0" * 100],
    "a-client-preface": lambda c: [PREFACE],
}


@pytest.mark.parametrize("frames", BROKEN.values(), ids=BROKEN.keys())
def test_a_server_that_breaks_the_rules_is_a_protocol_error(authority, frames):
    def script(c):
        c.read_request()
        c.send(c.settings(), *frames(c))

    result = converse(authority, script)
    error = failure(result, "protocol")["error"]  # no timeout: the server waits for the client to close
    assert error["hint"] and "Traceback" not in result.err


@pytest.mark.parametrize("given", [r"abc\def\99-of-mine", 'it\'s"mine"-12345', "P\u00e4ssw\u00f6rd-of-mine"])
def test_h2_s_words_about_a_field_repeat_no_credential(authority, given):
    """They have the field as Python writes bytes: with backslashes that were not in the credential."""

    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(200, ("content-length", given.encode()), end=True))

    result = converse(authority, script, "-H", f"X-Api-Key: {given}")
    text = result.out + result.err
    assert failure(result, "protocol")["error"]["message"].endswith("'***'")
    assert "mine" not in text


def header_bomb(c):
    """Refer to one field of 4,000 bytes two thousand times: 8 MB out of 6 KB."""
    first = c.encoder.encode([(":status", "200"), ("x-bomb", "y" * 4000)])
    return [frame(1, first), frame(9, b"\xbe" * 2000, 4)]


def endless_continuation(c):
    literal = b"\x00\x01x\x7f\x81\x77" + b"y" * 15480  # a field of 15,480 bytes, not indexed
    return [frame(1, b"\x88")] + [frame(9, literal)] * 200


def ping_flood(c):
    return [frame(6, b"12345678", 0, 0)] * 3000


def settings_flood(c):
    return [frame(4, b"", 0, 0)] * 3000


def interim_flood(c):
    return [c.headers(103) for _ in range(150)]


@pytest.mark.parametrize(
    "flood", [header_bomb, endless_continuation, ping_flood, settings_flood, interim_flood], ids=name_of
)
def test_a_server_that_floods_is_a_protocol_error(authority, flood):
    def script(c):
        c.read_request()
        c.send(c.settings(), *flood(c))

    failure(converse(authority, script), "protocol", "wait")


@pytest.mark.parametrize("stage", ["at once", "after settings", "after 103", "in the header", "in the body"])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_connection_that_ends_early_is_a_failure(authority, stage, how):
    def script(c):
        c.read_request()
        if stage == "after settings":
            c.send(c.settings())
        if stage == "after 103":
            c.send(c.settings(), c.headers(103))
        if stage == "in the header":
            c.send(c.settings(), c.headers(200, ("x-long", "y" * 100)).serialize()[:20])
        if stage == "in the body":
            c.send(c.settings(), c.headers(200), c.data(b"abcde").serialize()[:11])
        if how == "close":
            c.peer.sock.unwrap()
        else:
            time.sleep(0.05)
            c.peer.reset()
        raise ConnectionError

    kind, phase = {"close": "protocol", "reset": "network"}[how], "xfer" if stage == "in the body" else "wait"
    step = failure(converse(authority, script), kind, phase)
    assert step["timing"]["tls_ms"] > 0
    assert (step["response"] or {"bytes": None})["bytes"] == (2 if stage == "in the body" else None)


def test_a_server_that_says_nothing_is_a_timeout_in_the_wait(authority):
    failure(converse(authority, lambda c: c.read_request(), "-m", "1.2"), "timeout", "wait")


def test_a_body_that_stalls_is_a_timeout_in_the_transfer(authority):
    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(200), c.data(b"abc"))

    step = failure(converse(authority, script, "-m", "1.2"), "timeout", "xfer")
    assert (step["response"]["status"], step["response"]["bytes"]) == (200, 3)


# --- uploads --------------------------------------------------------------------------------------


@pytest.fixture
def megabyte(tmp_path):
    """A request body that no window of 64 KiB holds."""
    (tmp_path / "body").write_bytes(bytes(range(256)) * 4096)
    return "-d", f"@{tmp_path / 'body'}"


def test_an_upload_keeps_to_the_windows_it_is_given(authority, megabyte):
    """The stream's window is small, the connection's large, then the other way round; frames stay small."""

    def script(c):
        c.read_preface()
        c.send(c.settings(initial_window_size=1000, max_frame_size=16384))
        c.read_until("Headers")
        stream, connection, total, data = 65535, 65535, b"", None
        c.send(c.window(10_000_000, 0))
        settled = False
        while len(total) < 1 << 20:
            frame = c.read_frame()
            kind = type(frame).__name__
            if kind == "SettingsFrame" and "ACK" in frame.flags:
                stream, connection, settled = 1000 - len(total), 10_065_535 - len(total), True
                if stream <= 0:
                    c.send(c.window(50_000 - stream))
                    stream = 50_000
            if kind == "DataFrame":
                data, total = frame, total + frame.data
                assert len(frame.data) <= 16384
                stream, connection = stream - len(frame.data), connection - len(frame.data)
                assert not settled or (stream >= 0 and connection >= 0), (stream, connection)
                if settled and stream < 20_000:
                    c.send(c.window(50_000))
                    stream += 50_000
        assert "END_STREAM" in data.flags and total == bytes(range(256)) * 4096
        c.send(c.headers(200), c.data(b"ok", end=True))

    step = only_step(converse(authority, script, *megabyte))
    assert (step["request"]["body_bytes"], step["response"]["bytes"]) == (1 << 20, 2)


def test_an_upload_that_gets_its_window_in_small_pieces_arrives(authority, megabyte):
    """A busy server returns credit often: a thousand and more WINDOW_UPDATE frames are no flood."""

    def script(c):
        c.read_preface()
        c.send(c.settings())
        frame, total = c.read_until("Headers"), 0
        while "END_STREAM" not in frame.flags:
            frame = c.read_until("Data")
            total += len(frame.data)
            left = len(frame.data)
            while left:
                piece = min(left, 1000)
                c.send(c.window(piece, 0), c.window(piece, 1))
                left -= piece
        assert total == 1 << 20
        c.send(c.headers(200), c.data(b"ok", end=True))

    assert only_step(converse(authority, script, *megabyte))["response"]["bytes"] == 2


@pytest.mark.parametrize("largest", [16_384, 16_385, 1 << 20, (1 << 24) - 1])
def test_credit_that_comes_for_every_kilobyte_is_no_flood(authority, megabyte, largest):
    """Servers in Go return it so, and take frames of a megabyte; 64 KiB are enough for one."""

    def script(c):
        c.read_preface()
        c.send(c.settings(initial_window_size=1 << 20, max_frame_size=largest), c.window(1 << 20, 0))
        frame, sizes = c.read_until("Headers"), []
        while "END_STREAM" not in frame.flags:
            frame = c.read_until("Data")
            sizes.append(len(frame.data))
            c.send(*[c.window(1024, 0), c.window(1024, 1)] * (len(frame.data) // 1024))
        assert sum(sizes) == 1 << 20 and max(sizes[5:]) == min(largest, 65_536)
        c.send(c.headers(200), c.data(b"ok", end=True))

    assert only_step(converse(authority, script, *megabyte))["response"]["bytes"] == 2


@pytest.mark.needs("linux")
def test_credit_that_came_meanwhile_is_used_at_once(authority, megabyte):
    """Not answered piece by piece, which would make the upload as slow as the client is."""

    def script(c):
        c.read_preface()
        frame, pieces = c.read_until("Headers"), 0
        while "END_STREAM" not in frame.flags:
            total = 0
            while total < 65_535 and "END_STREAM" not in frame.flags:
                frame = c.read_until("Data")
                total, pieces = total + len(frame.data), pieces + 1
            c.peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            for _ in range(64):  # a TLS record each, all in one segment
                c.send(c.window(1024, 0), c.window(1024, 1))
            c.peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        assert pieces < 100, "a DATA frame for each KiB of credit"
        c.send(c.settings(), c.headers(200), c.data(b"ok", end=True))

    assert only_step(converse(authority, script, *megabyte))["response"]["bytes"] == 2


@pytest.mark.parametrize("piece", [1, 7])
def test_credit_and_answer_may_come_in_torn_records(authority, megabyte, piece):
    """Large reads end anywhere; from the last byte of the upload on records are read one by one."""

    def script(c):
        c.read_preface()
        frame = c.read_until("Headers")
        c.send(c.settings(initial_window_size=1 << 20), c.window(1 << 20, 0))
        while "END_STREAM" not in frame.flags:
            frame = c.read_until("Data")
            for _ in range(4):
                c.send(c.window(len(frame.data) // 4 + 1, 0), c.window(len(frame.data) // 4 + 1, 1))
        c.send(c.headers(200))
        c.send(c.data(b"ok", end=True))

    def tear(peer):
        with socket.create_connection((server.host, server.port), 10) as onward:
            threading.Thread(target=pour, args=(peer.sock, onward), daemon=True).start()
            while True:
                data = onward.recv(65536)
                if not data:
                    return
                for at in range(0, len(data), piece):
                    peer.send(data[at : at + piece])

    def pour(source, sink):
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(65536)
                sink.sendall(data) if data else sink.shutdown(socket.SHUT_WR)

    with conversing(authority, script) as server, scripted(tear) as torn:
        url = f"https://127.0.0.1:{torn.port}/"
        step = only_step(here("-m", "20", "--cacert", authority.file, *megabyte, url))
    assert step["response"]["bytes"] == 2


def hear_only(tap, port):
    """Have a packet socket on Ethernet or loopback take what comes from a TCP port over IPv4, and no more.

    Its buffer would be full at once of what other tests send, and what it drops it does not hold.
    """
    lines = [(0x28, 0, 0, 34), (0x15, 0, 1, port), (0x06, 0, 0, 0xFFFF), (0x06, 0, 0, 0)]  # the classic BPF
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HP", len(lines), ctypes.addressof(code))
    tap.setsockopt(socket.SOL_SOCKET, 26, program)  # SO_ATTACH_FILTER


@pytest.mark.needs("linux", "root")
def test_the_first_byte_after_an_upload_is_stamped_when_it_came(authority, start_tool, tmp_path, megabyte):
    """The program sleeps while the answer comes, in two parts.

    Somebody who listens in keeps the kernel from merging the two, and with them their times of arrival.
    """
    processes, path = [], tmp_path / "out.json"

    def script(c):
        c.read_preface()
        c.read_until("Headers")
        c.send(c.window(1 << 20, 0), c.window(1 << 20, 1))
        c.read_until("Data", lambda frame: "END_STREAM" in frame.flags)
        c.peer.wait(0.6)  # by then a busy program has noticed that its last byte left
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:  # ETH_P_ALL
            hear_only(tap, server.port)
            tap.bind(("lo", 0))
            processes[0].send_signal(signal.SIGSTOP)
            c.peer.wait(0.1)
            c.send(c.settings(), c.headers(200))
            c.peer.wait(3 * DELAY)
            c.send(c.data(b"ok", end=True))
            c.peer.wait(0.05)
            processes[0].send_signal(signal.SIGCONT)

    with conversing(authority, script) as server:
        options = ["--json", path, "--cacert", authority.file, *megabyte]
        processes.append(start_tool(*options, server.url()))
        assert processes[0].wait(30) == 0
    [step] = json.loads(path.read_text())["steps"]
    assert step["timing"]["xfer_ms"] >= 3 * DELAY * 1000 - EDGE, step["timing"]


def test_an_answer_during_the_upload_is_the_response(authority, megabyte):
    def script(c):
        c.read_preface()
        c.read_until("Headers")
        c.send(c.settings(), c.headers(413, end=True), c.reset(0))

    step = only_step(converse(authority, script, *megabyte))
    assert step["response"]["status"] == 413


def test_an_answer_with_a_body_during_the_upload_is_the_response(authority, megabyte):
    """No window is opened for the upload, ever."""

    def script(c):
        c.read_preface()
        c.read_until("Headers")
        c.send(c.settings(), c.headers(401), c.data(b"no"))
        c.peer.wait(0.05)
        c.send(c.data(b"!", end=True), c.reset(0))

    response = only_step(converse(authority, script, *megabyte))["response"]
    assert (response["status"], response["bytes"]) == (401, 3)


def test_an_upload_stops_at_an_answer_that_does_not_want_it(authority, megabyte):
    """The windows are opened only then; by its second answer to a PING a client would have used them."""
    taken = []

    def script(c):
        c.read_preface()
        c.read_until("Headers")
        c.send(c.settings(), c.headers(413), c.window(10_000_000, 0), c.window(10_000_000, 1))
        for _ in range(2):
            c.send(frame(0x6, b"anything", 0, 0))
            c.read_until("Ping")
        taken.extend(len(frame.data) for frame in c.frames if type(frame).__name__ == "DataFrame")
        c.send(c.data(b"no\n", end=True))

    response = only_step(converse(authority, script, *megabyte))["response"]
    assert (response["status"], response["bytes"]) == (413, 3)
    assert sum(taken) <= 65_535, "the first window was more than the server had opened before its answer"


def test_an_upload_goes_on_after_the_header_of_a_success(authority, megabyte):
    """A server may stream its answer while it reads: 200 does not stop the request."""

    def script(c):
        c.read_preface()
        c.read_until("Headers")
        c.send(c.settings(), c.headers(200), c.data(b"a"))
        frame, total = c.read_until("Data"), 0
        while True:
            total += len(frame.data)
            if "END_STREAM" in frame.flags:
                break
            c.send(c.window(len(frame.data), 0), c.window(len(frame.data), 1))
            frame = c.read_until("Data")
        c.send(c.data(str(total).encode(), end=True))

    assert only_step(converse(authority, script, *megabyte))["response"]["bytes"] == 1 + len("1048576")


def test_an_upload_whose_window_never_opens_is_a_timeout_in_the_wait(authority, megabyte):
    def script(c):
        c.read_preface()
        c.send(c.settings(initial_window_size=0))

    step = failure(converse(authority, script, "-m", "1.2", *megabyte), "timeout", "wait")
    assert "could not be sent" in step["error"]["message"]


# --- downloads larger than the window -------------------------------------------------------------


@pytest.mark.parametrize("padding", [None, 0, 200])
def test_a_download_larger_than_the_window_never_stalls(authority, monkeypatch, padding):
    """The window is made small here, so that a test can fill it several times."""
    monkeypatch.setattr(tool, "HTTP2_WINDOW", 100_000)

    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(200))
        credit = {0: 100_000, 1: 100_000}
        cost = 10_000 + (0 if padding is None else padding + 1)
        for left in range(99, -1, -1):
            while min(credit.values()) < cost:
                frame = c.read_until("WindowUpdate")
                credit[frame.stream_id] += frame.window_increment
                assert credit[frame.stream_id] <= 100_000, "more credit than was used"
            c.send(c.data(b"x" * 10_000, end=not left, padding=padding))
            credit = {stream: room - cost for stream, room in credit.items()}

    assert only_step(converse(authority, script))["response"]["bytes"] == 1_000_000


# --- times ----------------------------------------------------------------------------------------

DELAY = 0.08
"""Seconds that a server waits in one phase; doubled when the machine was too busy to tell."""


def check_phase(authority, script, phase, *arguments):
    """Prove that a delay of `script(conversation, seconds)` is found in one phase and in no other.

    A busy machine can make any other phase long: a longer delay is tried before that counts.
    """
    for delay in (DELAY, 2 * DELAY, 8 * DELAY):
        timing = only_step(converse(authority, lambda c, d=delay: script(c, d), *arguments))["timing"]
        assert timing[f"{phase}_ms"] >= delay * 1000 - EDGE, timing
        others = [timing[f"{other}_ms"] for other in tool.PHASES if other != phase]
        if max(others) < delay * 1000:
            return timing
    raise AssertionError(timing)


def late_answer_after_settings(c, delay):
    c.read_request()
    c.send(c.settings())
    c.peer.wait(delay)
    c.send(c.headers(200), c.data(b"ok", end=True))


def late_settings_with_the_answer(c, delay):
    c.read_request()
    c.peer.wait(delay)
    c.send(c.settings(), c.headers(200), c.data(b"ok", end=True))


def late_answer_after_interim(c, delay):
    c.read_request()
    c.send(c.settings(), c.headers(103))
    c.peer.wait(delay)
    c.send(c.headers(200), c.data(b"ok", end=True))


def late_answer_after_a_ping(c, delay):
    c.read_request()
    c.send(c.settings(), frame(6, b"12345678", 0, 0), c.window(5, 0), frame(0xFA, b"?", 0, 0))
    c.peer.wait(delay)
    c.send(c.headers(200), c.data(b"ok", end=True))


def late_body(c, delay):
    c.read_request()
    c.send(c.settings(), c.headers(200))
    c.peer.wait(delay)
    c.send(c.data(b"ok", end=True))


def late_rest_of_the_header(c, delay):
    """The first byte is that of the HEADERS frame, not of the CONTINUATION that completes it."""
    c.read_request()
    block = c.encoder.encode([(":status", "200"), ("x-a", "1")])
    c.send(c.settings(), frame(1, block[:2]))
    c.peer.wait(delay)
    c.send(frame(9, block[2:], 4), c.data(b"ok", end=True))


def late_second_half_of_the_header(c, delay):
    c.read_request()
    frame = c.headers(200, ("x-a", "1" * 100)).serialize()
    c.send(c.settings(), frame[:30])
    c.peer.wait(delay)
    c.send(frame[30:], c.data(b"ok", end=True))


def late_trailers(c, delay):
    from hyperframe.frame import HeadersFrame

    c.read_request()
    c.send(c.settings(), c.headers(200), c.data(b"ok"))
    c.peer.wait(delay)
    c.send(c.block(HeadersFrame(1), [("x-sum", "1")], end=True))


def late_end(c, delay):
    c.read_request()
    c.send(c.settings(), c.headers(200), c.data(b"ok"))
    c.peer.wait(delay)
    c.send(c.data(end=True))


LATE = {
    late_answer_after_settings: "wait",
    late_settings_with_the_answer: "wait",
    late_answer_after_interim: "wait",
    late_answer_after_a_ping: "wait",
    late_body: "xfer",
    late_rest_of_the_header: "xfer",
    late_second_half_of_the_header: "xfer",
    late_trailers: "xfer",
    late_end: "xfer",
}


@pytest.mark.parametrize(("script", "phase"), LATE.items(), ids=name_of)
def test_a_delay_is_found_in_its_phase(authority, script, phase):
    check_phase(authority, script, phase)


def test_an_upload_that_waits_for_its_window_is_a_long_wait_and_a_long_send(authority, megabyte):
    def script(c, delay):
        c.read_preface()
        c.send(c.settings(initial_window_size=0))
        c.read_until("Headers")
        c.peer.wait(delay)
        c.send(c.window(2_000_000, 0), c.window(2_000_000, 1))
        frame = c.read_until("Data")
        while "END_STREAM" not in frame.flags:
            frame = c.read_until("Data")
        c.send(c.headers(200), c.data(b"ok", end=True))

    timing = check_phase(authority, script, "wait", *megabyte)
    assert timing["send_ms"] >= DELAY * 1000 - 20


def test_a_goodbye_that_never_comes_costs_nothing(authority):
    """Once the stream has ended, the response is whole: the server waits for the client to close."""

    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(200), c.data(b"ok", end=True))

    only_step(converse(authority, script))


def test_the_documents_of_an_http2_run_say_so(run_tool, http2, authority, tmp_path):
    har = tmp_path / "out.har"
    result = run_tool("--har", har, "--cacert", authority.file, http2.url())
    [entry] = json.loads(har.read_text())["log"]["entries"]
    assert entry["request"]["httpVersion"] == entry["response"]["httpVersion"] == "HTTP/2"
    assert "HTTP/2" in result.out and "ALPN h2" in result.out
