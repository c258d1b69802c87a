"""--reuse: later runs over the connections of earlier ones, against real servers and against scripts that
close, reset, say goodbye or answer early. The peer counts what it is sent: nothing comes twice.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import resource
import signal
import socket
import ssl

import pytest

from certificates import session_tickets
from checks import flat, run_lines, summaries
from conftest import PATIENCE
from frames import (
    DATA,
    FRAME_SIZE,
    HEADER_TABLE_SIZE,
    HEADERS,
    MAX_STREAMS,
    PING,
    PINGED,
    WINDOW_SIZE,
    conversing,
    frame,
)
from inside import here
from paths import ANY, FAR, Rule, path
from relays import relay_proxy
from servers import OK, Reply, free_port, http_server, nginx, redirect, refused_port, scripted

SETTING_UP = ("dns_ms", "connect_ms", "tls_ms")
AGAIN = ("--interval", "0", "--reuse", "--count")
NONE_GOOD = "no answer was good"


def runs_of(result, code=0, warned=None):
    """Return the only step of each run of a series, once the whole document was proved.

    `warned` is what all warnings are about.
    """
    assert result.code == code, (result.code, result.err)
    if warned:
        result.warned(*[warned] * len(result.err.splitlines()))
    return [run["steps"][-1] for run in result.json()["runs"]]


def warmth(steps):
    """Tell which steps went over a kept connection."""
    return [step["network"]["reused"] for step in steps]


def reasons(steps):
    return [step["network"]["reuse_refused"] for step in steps]


def statuses(steps):
    return [step["response"] and step["response"]["status"] for step in steps]


# --- servers nobody here wrote --------------------------------------------------------------------

WARM = [False, True, True, True]


def check_warm(steps, version):
    """Prove that four runs shared a connection, and that what the first one found out is told of all."""
    assert warmth(steps) == WARM
    assert statuses(steps) == [200] * 4
    first, *others = steps
    assert first["timing"]["connect_ms"] > 0
    for step in others:
        assert [step["timing"][key] for key in SETTING_UP] == [None] * 3
        assert step["timing"]["ttfb_ms"] == step["timing"]["wait_ms"] > 0
        kept = {
            key: value
            for key, value in step["network"].items()
            if key.startswith(("ip", "cert", "tls", "alpn"))
        }
        assert kept == {key: first["network"][key] for key in kept}
        assert step["network"]["http_version"] == version


NGINX = """
listen 127.0.0.1:{port} ssl http2; ssl_certificate {pem}; ssl_certificate_key {pem}; root {folder};
keepalive_requests 3; http2_max_concurrent_streams 1;
"""


@pytest.mark.parametrize("version", [pytest.param("HTTP/2", marks=pytest.mark.needs("h2")), "HTTP/1.1"])
def test_nginx_that_ends_a_connection_after_three_requests_gets_a_new_one(authority, tmp_path, version):
    port = free_port()
    (tmp_path / "big").write_bytes(b"x" * 300_000)
    options = ["--cacert", authority.file, *AGAIN, "7"] + ["--http1.1"] * (version == "HTTP/1.1")
    with nginx(tmp_path, port, NGINX.format(folder=tmp_path, port=port, pem=authority.certificate())):
        steps = runs_of(here(*options, f"https://127.0.0.1:{port}/big"))
    assert statuses(steps) == [200] * 7
    assert warmth(steps) == [False, True, True, False, True, True, False]
    assert {step["network"]["http_version"] for step in steps} == {version}
    assert [step["response"]["bytes"] for step in steps] == [300_000] * 7
    said = reasons(steps)
    assert said[3] and said[3] == said[6]


# --- HTTP/1.1: what keeps no connection -----------------------------------------------------------


class Counting:
    """Answer the requests of each connection by a function of its number, and count what comes.

    `talk(peer, number)` is called for each request, and ends the connection by returning False.
    """

    def __init__(self, talk):
        self.talk, self.requests, self.count = talk, [], itertools.count(1)

    def __call__(self, peer):
        while request := peer.read_request():
            self.requests.append((peer.number, request))
            if self.talk(peer, next(self.count)) is False:
                return


def serving(talk, count, *options, code=0, warned=None, **settings):
    """Run a series of `count` against such a server; return the last steps, and the requests that came."""
    script = Counting(talk)
    with scripted(script, **settings) as server:
        steps = runs_of(here(*AGAIN, str(count), *options, server.url()), code, warned)
    return steps, script.requests


def idling(between, *options, **settings):
    """Run two requests, and call `between(peer)` after each answer; return the steps and the requests.

    The second run begins later by much more than that takes.
    """

    def talk(peer, number):
        peer.send(OK)
        between(peer)

    script = Counting(talk)
    with scripted(script, **settings) as server:
        steps = runs_of(here("--reuse", "--count", "2", "--interval", "0.7", *options, server.url()))
    return steps, script.requests


CLOSED = "HTTP/1.1 200 OK\r\nConnection: {}\r\nContent-Length: 2\r\n\r\nok"
ENDS = {  # the answer, options, and the reason of the next connection
    "close": (CLOSED.format("close"), (), "Connection: close"),
    "list": (CLOSED.format("X, CLOSE"), (), "Connection: close"),
    "HTTP/1.0": ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", (), "HTTP/1.0"),
    "no length": ("HTTP/1.1 200 OK\r\n\r\nuntil the end", (), "no length"),
    # It might be taken for the next answer.
    "more": (OK + OK.replace("200", "500"), (), "it was not asked for: 'HTTP/1.1 500 Fine'"),
    "asked for": (OK, ("-H", "Connection: close"), "the request said"),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_ends_a_connection_is_the_reason_of_the_next_one(name):
    answer, options, reason = ENDS[name]

    def talk(peer, number):
        peer.send(answer)
        return name != "no length"

    steps, requests = serving(talk, 3, *options, warned="behind the end of the answer" * (name == "more"))
    assert statuses(steps) == [200] * 3
    assert warmth(steps) == [False] * 3
    assert reasons(steps)[0] is None
    assert all(reason in each for each in reasons(steps)[1:])
    assert [connection for connection, _ in requests] == [0, 1, 2]


KEEPS = {
    "chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: 1\r\n\r\n",
    "204": "HTTP/1.1 204 No Content\r\n\r\n",
    "interim": "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" + OK,
    "HEAD": OK[:-2],
    "upload": OK,
}


@pytest.mark.parametrize("name", KEEPS)
def test_what_has_an_end_of_its_own_keeps_the_connection(name):
    options = {"HEAD": ("-X", "HEAD"), "upload": ("-d", "x" * 5000)}.get(name, ())
    steps, requests = serving(lambda peer, number: peer.send(KEEPS[name]), 4, *options)
    assert warmth(steps) == WARM
    assert [connection for connection, _ in requests] == [0] * 4
    assert name != "upload" or [request.body for _, request in requests] == [b"x" * 5000] * 4


def test_without_reuse_every_run_has_a_connection_of_its_own():
    with http_server() as server:
        result = here("--count", "3", "--interval", "0", server.url())
        assert server.accepted == 3
    assert all("reused" not in run["steps"][0]["network"] for run in result.json()["runs"])


# --- closed while idle, and closed too late -------------------------------------------------------


def close_tls(peer):
    peer.sock.settimeout(0)
    with contextlib.suppress(ssl.SSLWantReadError):
        peer.sock.unwrap()  # and do not wait for the client's close_notify


def send_raw(data):
    def send(peer):
        with socket.socket(fileno=os.dup(peer.sock.fileno())) as plain:
            plain.sendall(data)

    return send


GONE = r"the server closed it, or it broke, within \d+\.\d s without a request"
IDLE = {  # what happens to the idle connection, whether it is TLS, and the reason of the next one
    "close": (lambda peer: peer.end(), False, GONE),
    "close of TLS": (close_tls, True, GONE),
    "reset": (lambda peer: peer.reset(), False, GONE),
    "half a record": (send_raw(b"\x17\x03\x03"), True, "not asked for"),
    "no data": (send_raw(b"\x15\x03\x03\x00\x02\x02\x28"), True, GONE),
}


@pytest.mark.parametrize("name", IDLE)
def test_what_ends_an_idle_connection_makes_a_new_one_and_no_failure(authority, tls, name):
    between, secure, reason = IDLE[name]
    steps, requests = idling(between, "--cacert", authority.file, **({"tls": tls} if secure else {}))
    assert statuses(steps) == [200] * 2
    assert warmth(steps) == [False] * 2
    assert re.search(reason, reasons(steps)[1])
    assert len(requests) == 2, "nothing was sent twice"


def test_tickets_without_end_end_an_idle_connection(authority, tls, tmp_path):
    tls.keylog_filename, tls.num_tickets = str(tmp_path / "keys"), 0

    def send(peer):
        send_raw(session_tickets(tmp_path / "keys", 5000, 1))(peer)

    steps, _ = idling(send, "--cacert", authority.file, tls=tls)
    assert statuses(steps) == [200] * 2
    assert reasons(steps)[1] == "the server sent something that it was not asked for"


def send_half(peer):
    peer.send(OK.replace("Length: 2", "Length: 20"))


def send_garbage(peer):
    with socket.socket(fileno=peer.sock.detach()) as plain:
        plain.sendall(b"this is not TLS at all")


FAILING = {  # what the server does before it closes, whether over TLS, and the error
    "close": (lambda peer: None, False, "protocol in wait"),
    "close of TLS": (lambda peer: None, True, "protocol in wait"),
    "reset": (lambda peer: peer.reset(), False, "protocol in wait"),
    "half a body": (send_half, False, "protocol in xfer"),
    "no TLS": (send_garbage, True, "tls in wait"),  # OpenSSL's error has no hop to explain it
}


def test_a_request_that_fails_late_on_a_kept_connection_is_not_said_to_have_met_its_end():
    def talk(peer, number):
        if number == 2:
            peer.wait(1.0)
            return False
        peer.send(OK)
        return None

    steps, _ = serving(talk, 2, code=75)
    assert warmth(steps) == [False, True] and "kept" not in steps[1]["error"]["hint"]


@pytest.mark.parametrize("name", FAILING)
def test_a_request_that_fails_on_a_kept_connection_is_not_repeated(authority, tls, name):
    fail, secure, expected = FAILING[name]

    def talk(peer, number):
        if number == 2:
            fail(peer)
            return False
        peer.send(OK)
        return None

    settings = {"tls": tls} if secure else {}
    steps, requests = serving(talk, 4, "--cacert", authority.file, "-d", "x", code=75, **settings)
    assert statuses(steps)[::2] == [200, 200]
    assert warmth(steps) == [False, True, False, True]
    error = steps[1]["error"]
    assert f"{error['kind']} in {error['phase']}" == expected
    assert ("sent twice" in flat(error["hint"] or "")) == (expected == "protocol in wait")
    assert "failed" in reasons(steps)[2]
    assert len(requests) == 4, "a POST that may have been carried out is not sent again"


def test_after_a_run_that_timed_out_the_next_connects_anew_and_says_why():
    def talk(peer, number):
        peer.wait(60 if number == 2 else 0)
        peer.send(OK)

    steps, requests = serving(talk, 3, "-m", "3", code=75)
    assert statuses(steps) == [200, None, 200]
    assert warmth(steps) == [False, True, False]
    assert steps[1]["error"]["kind"] == "timeout"
    assert reasons(steps)[2]
    assert len(requests) == 3


def test_an_early_answer_to_an_upload_ends_the_connection(tmp_path):
    (tmp_path / "body").write_bytes(bytes(40_000_000))

    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        peer.wait(PATIENCE)

    with scripted(script) as server:
        result = here(*AGAIN, "3", "-d", f"@{tmp_path / 'body'}", server.url())
        steps = runs_of(result, warned=NONE_GOOD)
        assert server.accepted == 3
    assert statuses(steps) == [413] * 3
    assert warmth(steps) == [False] * 3
    assert "not finished" in reasons(steps)[1]


# --- HTTP/2, frame by frame -----------------------------------------------------------------------

h2 = pytest.mark.needs("h2")


class Frames:
    """Answer every stream; `between(c)` speaks after an answer, `instead` in place of one."""

    def __init__(self, between=None, instead=None, settings=()):
        self.between, self.instead, self.settings = between, instead, settings
        self.asked, self.count = [], itertools.count(1)

    def __call__(self, c):
        try:
            self.talk(c)
        except (ConnectionError, ssl.SSLError):
            c.peer.sock.close()
        except Exception:
            if not c.peer.wait(0):  # else the test is over, and TLS with it
                raise

    def talk(self, c):
        c.read_preface()
        c.send(c.settings(*self.settings))
        while True:
            frame = c.read_until(HEADERS)
            while not frame.ends:
                frame = c.read_until(DATA)
                c.send(c.window(max(1, len(frame.payload)), 0))
            number, stream = next(self.count), frame.stream
            self.asked.append((c.peer.number, stream))
            if self.instead and self.instead(c, number, stream):
                continue
            answer(c, stream)
            if self.between:
                self.between(c)


def answer(c, stream):
    c.send(c.headers(stream=stream), c.data(b"ok", end=True, stream=stream))


def framed(authority, count, *options, code=0, **script):
    """Run a series against such a server; return the steps, and (connection, stream) of what was asked."""
    frames, pause = Frames(**script), "0.7" if "between" in script else "0"
    with conversing(authority, frames) as server:
        words = ("--reuse", "--count", str(count), "--interval", pause, *options)
        return runs_of(here("--cacert", authority.file, *words, server.url()), code), frames.asked


@h2
@pytest.mark.parametrize("size", [0, 60_000])
def test_runs_share_a_connection_stream_by_stream(authority, size):
    options = ["-d", "x" * size] if size else []
    steps, asked = framed(authority, 3, *options, settings=((WINDOW_SIZE, 1 << 20), (MAX_STREAMS, 1)))
    assert warmth(steps) == [False, True, True]
    assert asked == [(0, 1), (0, 3), (0, 5)]


SAID = {  # what is sent while the connection is idle, and the reason of a new one; none where it is kept
    "ping": (lambda c: PINGED, None),
    "settings": (lambda c: c.settings((HEADER_TABLE_SIZE, 0), (FRAME_SIZE, 1 << 20)), None),
    "window": (lambda c: c.window(1000, 0), None),
    "shrink": (lambda c: c.settings((WINDOW_SIZE, 100)), None),
    "reset of an upload": (lambda c: c.reset(0, c.frames[-1].stream), None),
    "half a frame": (lambda c: frame(PING, b"ping", 0, 0, 8), "not asked for"),
    "a frame without sense": (lambda c: c.window(0, 0), "HTTP/2"),
    "no further stream": (lambda c: c.settings((MAX_STREAMS, 0)), "no further HTTP/2 stream"),
    "goaway": (lambda c: c.goaway(2**31 - 1, 0, b"too idle"), "connection (NO_ERROR: too idle)"),
    "settings without end": (lambda c: c.settings() * 400, "not asked for"),
    "the next answer": (lambda c: c.headers(stream=3), "not asked for"),
}


@h2
@pytest.mark.parametrize("name", SAID)
def test_what_a_server_says_while_idle_is_answered_or_the_reason_of_a_new_connection(authority, name):
    """And no request leaves with that answer, before its clock."""
    make, reason = SAID[name]
    steps, asked = framed(authority, 2, between=lambda c: c.send(make(c)))
    assert statuses(steps) == [200] * 2
    if reason is None:
        assert warmth(steps) == [False, True]
        assert asked == [(0, 1), (0, 3)]
    else:
        assert warmth(steps) == [False] * 2
        assert asked == [(0, 1), (1, 1)]
        assert reason in reasons(steps)[1] and "{}" not in reasons(steps)[1]


UNANSWERED = {
    "goaway": lambda c, stream: c.goaway(1),
    "reset": lambda c, stream: c.reset(7, stream),
    "nothing": lambda c, stream: b"",
}


@h2
@pytest.mark.parametrize("how", UNANSWERED)
def test_a_stream_without_an_answer_on_a_kept_connection_fails_and_is_not_repeated(authority, how):
    def instead(c, number, stream):
        if number == 2:
            c.send(UNANSWERED[how](c, stream))
            raise ConnectionError

    steps, asked = framed(authority, 4, instead=instead, code=75)
    assert statuses(steps) == [200, None, 200, 200]
    assert warmth(steps) == [False, True, False, True]
    assert steps[1]["error"]["kind"] == "protocol"
    assert ("kept" in steps[1]["error"]["hint"]) == (how == "nothing"), "a code is no idle time-out"
    assert reasons(steps)[2]
    assert [number for number, _ in asked] == [0, 0, 1, 1]


@h2
@pytest.mark.parametrize("kind", ["headers", "window"])
def test_frames_of_another_stream_without_end_are_chatter(authority, kind):
    def instead(c, number, stream):
        if number == 2:
            late = c.headers(None, ("x-late", "1"), end=True) if kind == "headers" else c.window(1, 1)
            c.send(late * 1100)
        return number == 2

    steps, _ = framed(authority, 2, instead=instead, code=75)
    assert "HTTP/2 frames without a body" in steps[1]["error"]["message"]


@h2
@pytest.mark.parametrize("kind", ["headers", "data"])
def test_the_end_of_an_earlier_stream_is_not_the_end_of_this_one(authority, kind):
    """Trailers and DATA of it may still come (RFC 9113 section 5.1)."""

    def instead(c, number, stream):
        if number == 1:
            return False
        if kind == "headers":
            late = c.headers(None, ("x-late", "1"), end=True, stream=stream - 2)
        else:
            late = c.data(b"late", end=True, stream=stream - 2)
        c.send(c.headers(200, stream=stream), late)
        c.peer.wait(0.03)
        c.send(c.data(b"ok", end=True, stream=stream))
        return True

    steps, asked = framed(authority, 3, instead=instead)
    assert [(step["response"]["status"], step["response"]["bytes"]) for step in steps] == [(200, 2)] * 3
    assert asked == [(0, 1), (0, 3), (0, 5)]


@h2
def test_credit_of_an_earlier_stream_does_not_widen_the_window_of_this_one(authority, tmp_path):
    """It may come late, while the connection is idle and the next stream is ready to be sent."""
    taken = []

    def script(c):
        c.read_preface()
        c.send(c.settings(), c.window(1 << 20, 0))
        for _ in range(2):
            frame, total = c.read_until(HEADERS), 0
            stream = frame.stream
            while total < 65_535:
                total += len(c.read_until(DATA).payload)
            taken.append(total)
            c.send(c.window(1 << 20, stream))
            c.read_until(DATA, lambda frame: frame.ends)
            answer(c, stream)
            c.send(c.window(1 << 20, stream))

    body = tmp_path / "body"
    body.write_bytes(bytes(200_000))
    with conversing(authority, script) as server:
        words = ("--cacert", authority.file, "-d", f"@{body}", "--reuse", "--count", "2", "--interval", "0.7")
        steps = runs_of(here(*words, server.url()))
    assert warmth(steps) == [False, True]
    assert taken == [65_535] * 2


# --- proxies and chains ---------------------------------------------------------------------------


@pytest.mark.needs("socks")
@pytest.mark.parametrize(
    ("road", "target"), [("http", "http"), ("http", "https"), ("https", "https"), ("socks5", "http")]
)
def test_a_way_through_a_proxy_is_kept_whole(authority, tls, road, target):
    over = authority.context() if road == "https" else None
    with (
        http_server(tls=tls if target == "https" else None) as server,
        relay_proxy(road, server, tls=over) as way,
    ):
        url, asked = way
        steps = runs_of(here("--cacert", authority.file, "-x", url, *AGAIN, "4", server.url()))
        assert server.accepted == 1
        assert len(asked) == 1, "the proxy was asked once"
        assert len(server.requests) == 4
    check_warm(steps, "HTTP/1.1")
    assert [step["network"]["proxy_url"] for step in steps] == [url] * 4


@h2
def test_http2_inside_a_tunnel_is_kept(authority, http2, proxy):
    steps = runs_of(here("--cacert", authority.file, "-x", proxy.url(""), *AGAIN, "4", http2.url()))
    check_warm(steps, "HTTP/2")


def test_a_redirect_that_leads_nowhere_is_cold_and_fails():
    with http_server({"/": redirect("ftp://a.test/")}) as broken:
        document = here("-L", *AGAIN, "2", broken.url()).json()
    for run in document["runs"]:
        assert run["steps"][1]["network"]["reused"] is False
        assert run["steps"][1]["error"]["kind"] == "redirect"


# --- what is said of it ---------------------------------------------------------------------------


def test_the_lines_of_kept_connections_have_no_times_of_setting_up(run_tool, server):
    metrics = run_tool("--metrics-only", *AGAIN, "4", server.url())
    assert run_lines(metrics.out)[1].startswith("Run 2 Step 1: dns=- connect=- tls=- ttfb=")
    [found] = summaries(metrics.out)
    assert (found["runs"], found["dns_min"], found["connect_p95"], found["tls_max"]) == ("4", "-", "-", "-")
    assert found["ttfb_median"] == found["wait_median"] != "-"
    compact = run_tool("--compact", *AGAIN, "2", server.url())
    assert re.match(
        r"Run 2 Step 1: 200 GET \S+ \| dns=- connect=- tls=- ttfb=[\d.]+m?s total=[\d.]+m?s \| 6 B",
        run_lines(compact.out)[1],
    )


def test_the_report_says_what_opening_a_connection_costs(run_tool, authority, tls, tmp_path):
    path = tmp_path / "out.json"
    with http_server(tls=tls) as server:
        options = ["--cacert", authority.file, *AGAIN, "8", "--json", path]
        result = run_tool(*options, server.url(), without=("rich",))
    found = re.search(r"1 of 8 runs opened a connection, which took ([\d.]+) ms; the times", flat(result.out))
    timing = result.json(path)["runs"][0]["steps"][0]["timing"]
    exact = timing["dns_ms"] + timing["connect_ms"] + timing["tls_ms"]
    assert float(found[1]) == pytest.approx(exact, abs=0.051 if exact < 99 else 0.51)
    assert "8 runs, status 200: 8, in" in flat(result.out)
    assert "Times of the 7 good runs" in flat(result.out)


def test_budgets_of_setting_up_do_not_hold_kept_connections_whose_statistics_count(run_tool):
    replies = itertools.chain([Reply(wait=3)], itertools.repeat(Reply()))
    with http_server({"/": lambda request: next(replies)}) as server:
        budgets = "dns=0.001,connect=5000,tls=1,connect.max=0.0001,wait.max=2900,ttfb.p95=2900"
        result = run_tool("--json", "-", *AGAIN, "21", "--slo", budgets, server.url())
    assert "--slo ttfb.p95: of 21 runs it is mostly below the true one" in result.err
    slo = result.json()["summary"]["slo"]
    assert (result.code, slo["pass"], slo["not_judged"], slo["violations"]) == (0, True, [], [])


def test_an_archive_says_that_nothing_was_set_up(run_tool, tmp_path, server):
    har = tmp_path / "out.har"
    run_tool("--metrics-only", "--har", har, *AGAIN, "2", server.url())
    first, second = json.loads(har.read_text())["log"]["entries"]
    assert first["timings"]["connect"] > 0
    assert [second["timings"][name] for name in ("dns", "connect", "ssl")] == [-1, -1, -1]


def test_only_the_last_connection_to_an_origin_is_kept_and_a_closed_one_is_opened_anew(run_tool):
    """The server closes after the second answer: the third run opens another, and the fourth takes that."""
    count = itertools.count(1)
    closing = Reply(headers=[("Connection", "close")])
    routes = {"/": redirect("/b"), "/b": lambda request: closing if next(count) == 2 else Reply()}
    with http_server(routes) as server, http_server({"/": redirect(server.url("/"))}) as other:
        runs = run_tool("--metrics-only", "-L", "--json", "-", *AGAIN, "4", other.url()).json()["runs"]
    kept = [[step["network"]["reused"] for step in run["steps"]] for run in runs]
    assert kept == [[False] * 3, [True] * 3, [True, False, True], [True] * 3]
    assert (other.accepted, server.accepted) == (1, 3)


# --- what the times of a kept connection mean -----------------------------------------------------


@pytest.fixture
def far(run_tool, authority, tmp_path):
    """Ask a server at the end of a path of 40 ms; return the steps of a series over kept connections."""
    folder = tmp_path / "path"
    folder.mkdir()
    with path(folder, 0.04) as way:

        def ask(routes, *arguments, tls=None, rules=()):
            with way.far(http_server(routes, host=ANY, tls=tls)) as server:
                way.change(rules=rules)
                options = ["--metrics-only", "--json", "-", "--cacert", authority.file, *AGAIN, "3"]
                result = run_tool(*options, *arguments, server.url(host=FAR), within=way.near)
            assert result.code == 0, result.err
            return [run["steps"][0] for run in result.json()["runs"]]

        yield ask


def names(step):
    return {finding["id"] for finding in step["findings"]}


@pytest.mark.needs("root", "linux")
def test_retransmits_of_a_warm_step_are_its_own(far):
    found = []
    for _ in range(3):  # where a busy machine holds up the path, more is sent again
        steps = far(None, rules=[Rule("up", "data", 2)])
        found.append([(step["network"]["tcp_retransmits"], "loss" in names(step)) for step in steps])
    assert found.count([(0, False), (1, True), (0, False)]) >= 2, found


def test_where_nothing_ever_connected_no_connection_was_refused():
    with refused_port() as port:
        document = here(*AGAIN, "3", f"http://127.0.0.1:{port}/").json()
    steps = [run["steps"][0] for run in document["runs"]]
    assert [step["network"]["reuse_refused"] for step in steps] == [None] * 3


@pytest.mark.needs("linux")
def test_after_a_run_that_could_not_begin_no_run_was_given_up(start_tool, tmp_path):
    """The server has closed the connection, and there is no descriptor for another."""
    path = tmp_path / "out.json"
    with http_server({"/": Reply(headers=[("Connection", "close")])}) as server:
        words = ("--count", "9999", "--interval", "0.05", "--metrics-only", "--json", path)
        process = start_tool("--reuse", *words, server.url())
        for mark, limit in ((b"status=200", (3, 64)), (b"error=", (64, 64))):
            assert any(mark in line for line in process.stdout)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limit)
        assert any(b"status=200" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    steps = [run["steps"][0] for run in json.loads(path.read_text("utf-8"))["runs"]]
    failed = [place for place, step in enumerate(steps) if step["error"]]
    assert failed == list(range(failed[0], failed[-1] + 1))
    assert all("Too many open files" in steps[place]["error"]["message"] for place in failed)
    assert reasons(steps)[failed[-1] + 1] == "the run before could not begin"
