"""HTTP/2: what is asked of a real server, and what a server that sends every frame by hand is taken for.

Servers that break the rules, break off or say nothing are in hostile/test_http2.py.
"""

from __future__ import annotations

import struct

import pytest

from checks import EDGE
from conftest import PATIENCE
from frames import (
    ACK,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    FRAME_SIZE,
    HEADER_TABLE_SIZE,
    HEADERS,
    PING,
    PINGED,
    SETTINGS,
    WINDOW_SIZE,
    WINDOW_UPDATE,
    converse,
    conversing,
    data,
    frame,
    headers,
)
from inside import failure, here, only_step, tool

pytestmark = [pytest.mark.needs("h2")]

DELAY = 0.08
"""Seconds that a server waits in one phase."""


@pytest.fixture
def megabyte(tmp_path):
    """A request body that no window of 64 KiB holds."""
    (tmp_path / "body").write_bytes(bytes(range(256)) * 4096)
    return "-d", f"@{tmp_path / 'body'}"


def test_a_server_that_speaks_http2_is_spoken_to_in_http2(run_tool, http2, authority):
    result = run_tool("--json", "-", "--cacert", authority.file, http2.url("/?size=1000"))
    step = only_step(result)
    network, response = step["network"], step["response"]
    assert (network["alpn"], network["http_version"], response["http_version"]) == ("h2", "HTTP/2", "HTTP/2")
    assert (response["status"], response["bytes"], response["content_type"]) == (200, 1000, "text/plain")
    assert response["reason"] is None, "HTTP/2 has no reason phrase"


def test_http2_can_be_refused_and_without_h2_it_is_not_offered(run_tool, http2, authority):
    step = only_step(here("--cacert", authority.file, "--no-http2", http2.url()))
    assert (step["network"]["alpn"], step["response"]["http_version"]) == ("http/1.1", "HTTP/1.1")
    result = run_tool("--json", "-", "--cacert", authority.file, http2.url(), without=("h2",))
    assert only_step(result)["response"]["http_version"] == "HTTP/1.1"


def asked(authority, *arguments, path="/"):
    """Return the conversation of a run against a server that answers."""
    held = []

    def script(c):
        held.append(c)
        c.read_request()
        c.send(c.settings(), c.headers(200), c.data(b"ok", end=True))

    with conversing(authority, script) as server:
        only_step(here("--cacert", authority.file, *arguments, server.url(path)))
    return held[0]


def test_the_request_is_one_stream_with_its_fields_in_order(authority):
    headers = ["-H", "X-B: 1", "-H", "x-a: 2", "-H", "X-B: 3", "-H", "Connection: x-hop", "-H", "X-Hop: 1"]
    headers += ["-H", "TE: trailers", "-H", "Keep-Alive: 5", "-H", "Proxy-Connection: x", "-H", "Upgrade: h"]
    fields = asked(authority, "-X", "PUT", *headers, "-H", "Host: b.test", path="/p?q").request()
    first = [(":method", "PUT"), (":scheme", "https"), (":authority", "b.test"), (":path", "/p?q")]
    assert fields[:4] == first
    assert [name for name, _ in fields[4:]] == ["user-agent", "accept", "content-length", "x-b", "x-a", "x-b"]
    assert dict(fields)["user-agent"] == f"httphases/{tool.__version__}"
    assert ("content-length", "0") in asked(authority, "-X", "POST").request()


def test_the_client_forbids_push_and_opens_wide_windows(authority):
    """A window of 64 KiB holds a download on a path of 100 ms to 5 Mbit/s."""
    frames = asked(authority).frames
    first = next(frame.payload for frame in frames if frame.kind == SETTINGS and not frame.flags & ACK)
    settings = dict(struct.iter_unpack("!HI", first))
    assert settings[ENABLE_PUSH] == 0 and settings[WINDOW_SIZE] >= 10_000_000
    [update] = [frame for frame in frames if frame.kind == WINDOW_UPDATE and frame.stream == 0]
    assert update.value >= 10_000_000


def ping_and_settings_in_the_body(c):
    c.send(c.headers(), c.data(b"ab"), PINGED, c.settings((HEADER_TABLE_SIZE, 0), (FRAME_SIZE, 1 << 20)))
    answer = c.read_until(PING)
    assert (answer.flags, answer.payload) == (ACK, b"12345678")
    c.read_until(SETTINGS, lambda frame: frame.flags & ACK)
    c.send(c.data(b"cde", end=True))


def a_frame_whose_last_bytes_are_late(c):
    data = c.data(b"x" * 100)
    c.send(c.headers(), data, data, PINGED, data[:-3])
    c.read_until(PING)
    c.send(data[-3:], c.data(end=True))


def other_frames_amid_data(c):
    data = c.data(b"x" * 100)
    unknown_flag, reserved_bit = frame(DATA, b"x" * 100, 0x2), frame(DATA, b"x" * 100, 0, 1 | 1 << 31)
    others = [unknown_flag, PINGED, reserved_bit, c.data(), c.data(b"x" * 100, padding=9)]
    c.send(c.headers(), *[each for other in others for each in (data, data, other)], c.data(end=True))


WHOLE = {
    ping_and_settings_in_the_body: 5,
    a_frame_whose_last_bytes_are_late: 300,
    other_frames_amid_data: 1300,
}


@pytest.mark.parametrize(("script", "size"), WHOLE.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_response_is_whole_with(authority, script, size):
    def serve(c):
        c.read_request()
        c.send(c.settings())
        script(c)

    response = only_step(converse(authority, serve))["response"]
    assert (response["status"], response["bytes"]) == (200, size)


def answering(*frames, reset=False):

    def script(c):
        c.read_request()
        c.send(c.settings(), *frames)
        if reset:
            c.peer.reset()
            raise ConnectionError

    return script


def test_interim_responses_are_recorded_and_are_not_the_answer_that_a_reset_may_follow(authority):
    """The end of the stream is the end: no GOAWAY, no close_notify is needed."""
    heads = [headers(status, ("link", "</x>")) for status in (103, 100, 103)]
    script = answering(*heads, headers(201), data(b"ok", end=True), reset=True)
    response = only_step(converse(authority, script))["response"]
    assert (response["status"], response["bytes"], response["interim"]) == (201, 2, [103, 100, 103])


def test_h2_s_words_about_a_field_repeat_no_credential(authority):
    """They have the field as Python writes bytes: with backslashes that were not in the credential."""
    for given in (r"abc\def\99-of-mine", 'it\'s"mine"-12345', "P\u00e4ssw\u00f6rd-of-mine"):
        field = ("content-length", given.encode().decode("latin-1"))
        result = converse(authority, answering(headers(200, field, end=True)), "-H", f"X-Api-Key: {given}")
        assert failure(result, "protocol")["error"]["message"].endswith("Invalid content-length header")
        assert "mine" not in result.out + result.err


def upload_of(c):
    """Return what has come of the request's body."""
    return b"".join(frame.payload for frame in c.frames if frame.kind == DATA)


def settle(c):
    """Wait until the client has done all that it was let do: by its second answer it would have."""
    for _ in range(2):
        c.send(PINGED)
        c.read_until(PING)


def test_an_upload_keeps_to_the_windows_it_is_given(authority, megabyte):
    """The stream's window is the smaller one at first, then the connection's; the answer comes early."""
    whole = []

    def take(c, size):
        while len(upload_of(c)) < size:
            c.read_until(DATA)
        settle(c)
        assert len(upload_of(c)) == size

    def script(c):
        c.read_preface()
        c.send(c.settings((WINDOW_SIZE, 0), (FRAME_SIZE, 16384)))
        c.read_until(SETTINGS, lambda frame: frame.flags & ACK)
        early = len(upload_of(c))
        c.send(c.window(100_000, 0), c.window(early + 1000))
        take(c, early + 1000)
        c.send(c.headers(200, ("content-length", "2")), c.data(b"ok"), c.window(10_000_000))
        take(c, 165_535)
        c.send(c.window(10_000_000, 0))
        c.read_until(DATA, lambda frame: frame.ends)
        assert max(len(frame.payload) for frame in c.frames if frame.kind == DATA) <= 16384
        whole.append(upload_of(c))
        c.send(c.data(end=True))

    response = only_step(converse(authority, script, *megabyte))["response"]
    assert (whole, response["bytes"]) == ([bytes(range(256)) * 4096], 2)


def test_an_upload_stops_at_an_answer_that_does_not_want_it(authority, megabyte):
    """The windows are opened only then."""
    taken = []

    def script(c):
        c.read_head()
        c.send(c.settings(), c.headers(413), c.window(10_000_000, 0), c.window(10_000_000, 1))
        settle(c)
        taken.append(len(upload_of(c)))
        c.send(c.data(b"no\n", end=True))

    response = only_step(converse(authority, script, *megabyte))["response"]
    assert (response["status"], response["bytes"]) == (413, 3)
    assert taken[0] <= 65_535, "the first window was more than the server had opened before its answer"


def test_a_download_larger_than_the_window_never_stalls(authority, monkeypatch):
    """The window is made small here, so that a test can fill it several times."""
    monkeypatch.setattr(tool, "HTTP2_WINDOW", 100_000)

    def script(c):
        c.read_request()
        c.send(c.settings(), c.headers(200))
        credit = {0: 100_000, 1: 100_000}
        cost = 10_000 + 201  # padding, and the byte that says how much it is
        for left in range(99, -1, -1):
            while min(credit.values()) < cost:
                frame = c.read_until(WINDOW_UPDATE)
                credit[frame.stream] += frame.value
                assert credit[frame.stream] <= 100_000, "more credit than was used"
            c.send(c.data(b"x" * 10_000, end=not left, padding=200))
            credit = {stream: room - cost for stream, room in credit.items()}

    assert only_step(converse(authority, script))["response"]["bytes"] == 1_000_000


HEAD = frame(HEADERS, b"\x88\0\1x\1y", END_HEADERS)
LATE = {
    "the answer after SETTINGS and PING": (
        "wait",
        lambda c: [c.settings(), PINGED, c.window(5, 0)],
        lambda c: [HEAD],
    ),
    "the CONTINUATION of the head": (
        "xfer",
        lambda c: [c.settings(), frame(HEADERS, b"\x88")],
        lambda c: [frame(CONTINUATION, b"", END_HEADERS)],
    ),
    "half of the head": ("xfer", lambda c: [c.settings(), HEAD[:12]], lambda c: [HEAD[12:]]),
}


@pytest.mark.parametrize(("phase", "first", "then"), LATE.values(), ids=LATE.keys())
def test_a_delay_is_found_in_its_phase(authority, phase, first, then):
    def script(c):
        c.read_request()
        c.send(*first(c))
        c.peer.wait(DELAY)
        c.send(*then(c), c.data(b"ok", end=True))

    timing = only_step(converse(authority, script))["timing"]
    assert timing[f"{phase}_ms"] >= DELAY * 1000 - EDGE, timing


@pytest.mark.parametrize("end", ["window", "answer", "deadline"])
def test_an_upload_that_waits_for_its_window_is_a_long_wait_and_a_long_send(authority, megabyte, end):
    """Its window opens late, or never: then an answer ends the wait, or the deadline."""

    def script(c):
        c.read_preface()
        c.send(c.settings((WINDOW_SIZE, 0)))
        c.read_until(HEADERS)
        c.peer.wait(PATIENCE if end == "deadline" else DELAY)
        if end == "window":
            c.send(c.window(2_000_000, 0), c.window(2_000_000, 1))
            c.read_until(DATA, lambda frame: frame.ends)
        c.send(c.headers(413), c.data(b"ok", end=True))

    late = end == "deadline"
    step = only_step(converse(authority, script, *megabyte, *["-m", "1"] * late), 75 * late)
    timing, found = step["timing"], {each["id"]: each["cost_ms"] for each in step["findings"]}
    held = sum(each["ms"] for each in step["account"] if (each["owner"], each["or"]) == ("server", "line"))
    assert min(timing["wait_ms"], timing["send_ms"]) >= DELAY * 1000 - EDGE, timing
    assert held >= DELAY * 900 and "server" not in found, step["account"]
    assert late or found["upload"] >= DELAY * 900, found
    assert not late or "could not be sent whole" in step["error"]["message"], step["error"]
    assert not late or "Sending 6" in step["error"]["hint"], "the first window holds 64 KB"
