"""--reuse: later runs over the connections of earlier ones, against real servers and against scripts that
close, reset, say goodbye or answer early. The peer counts what it is sent: nothing comes twice.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import ssl
import threading
from pathlib import Path

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
from relays import relay_proxy
from servers import OK, Reply, free_port, http_server, nginx, scripted

AGAIN = ("--interval", "0", "--reuse", "--count")


def runs_of(result, code=0, warned=None):
    """Return the first step of each run of a series, once the whole document was proved.

    `warned` is what all warnings are about.
    """
    assert result.code == code, (result.code, result.err)
    if warned:
        result.warned(*[warned] * len(result.err.splitlines()))
    return [run["steps"][0] for run in result.json()["runs"]]


def warmth(steps):
    return [step["network"]["reused"] for step in steps]


def reasons(steps):
    return [step["network"]["reuse_refused"] for step in steps]


def statuses(steps):
    return [step["response"] and step["response"]["status"] for step in steps]


# --- servers nobody here wrote --------------------------------------------------------------------

WARM = [False, True, True, True]


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
    """Run a series of `count` against such a server; return the steps there, and the requests that came."""
    script = Counting(talk)
    with scripted(script, **settings) as server:
        steps = runs_of(here(*AGAIN, str(count), *options, server.url()), code, warned)
    return steps, script.requests


CLOSED = "HTTP/1.1 200 OK\r\nConnection: {}\r\nContent-Length: 2\r\n\r\nok"
ENDS = [  # an answer, and the reason of the next connection
    (CLOSED.format("close"), "Connection: close"),
    (CLOSED.format("X, CLOSE"), "Connection: close"),
    ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.0"),
    # It might be taken for the next answer.
    (OK + OK.replace("200", "500"), "it was not asked for: 'HTTP/1.1 500 Fine'"),
    ("HTTP/1.1 200 OK\r\n\r\nuntil the end", "no length"),
]


def test_what_ends_a_connection_is_the_reason_of_the_next_one():
    def talk(peer, number):
        peer.send(ENDS[(number - 1) % len(ENDS)][0])
        return number % len(ENDS) != 0

    count = len(ENDS) + 1
    steps, requests = serving(talk, count, warned="behind the end of the answer")
    assert (statuses(steps), warmth(steps)) == ([200] * count, [False] * count)
    assert reasons(steps)[0] is None
    for (_, reason), told in zip(ENDS, reasons(steps)[1:]):
        assert reason in told
    assert [connection for connection, _ in requests] == list(range(count))
    steps, _ = serving(lambda peer, number: peer.send(OK), 2, "-H", "Connection: close")
    assert "the request said" in reasons(steps)[1]


KEEPS = [
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: 1\r\n\r\n",
    "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok",  # RFC 9112 section 9.3
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" + OK,
    OK,
]


@pytest.mark.needs("linux")
def test_what_has_an_end_of_its_own_keeps_the_connection_which_is_not_probed_while_idle():
    """Probes would keep it alive, and nobody would see that the way forgets it."""
    count, timers = len(KEEPS), set()

    def talk(peer, number):
        peer.send(KEEPS[number - 1])
        peer.wait(0.05)
        client = f":{peer.sock.getpeername()[1]:04X}"
        sockets = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines())
        timers.update(fields[5][:2] for fields in sockets if fields[1].endswith(client))

    steps, requests = serving(talk, count, "-d", "x" * 5000, "--interval", "0.1")
    assert warmth(steps) == [False] + [True] * (count - 1)
    assert "00" in timers, "there was always one: 02 is that of probes (proc(5))"
    assert [(connection, request.body) for connection, request in requests] == [(0, b"x" * 5000)] * count
    heads, _ = serving(lambda peer, number: peer.send(OK[:-2]), 4, "-X", "HEAD")
    assert warmth(heads) == WARM


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


@contextlib.contextmanager
def elsewhere():
    """Serve the second step of each run, until which the connection of the first is idle, and which is
    answered once something has happened to that. Give its URL, and the function that says so.
    """
    happened = threading.Semaphore(0)
    with http_server({"/": lambda _: Reply(200 if happened.acquire(timeout=PATIENCE) else 500)}) as server:
        yield server.url(), happened.release


def ending(ends, *options, **settings):
    """Run a series in which each of `ends` happens to an idle connection; return steps and requests."""

    def talk(peer, number):
        peer.send(MOVED.format(url))
        ends[number - 1](peer)
        happened()

    with elsewhere() as (url, happened):
        return serving(talk, len(ends), "-fL", *options, **settings)


MOVED = "HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n"
GONE = r"the server closed the connection, or it broke, within \d+\.\d s without a request"
PLAIN_ENDS = [lambda peer: peer.end(), lambda peer: peer.reset()]
TLS_ENDS = [close_tls, send_raw(b"\x17\x03\x03"), send_raw(b"\x15\x03\x03\x00\x02\x02\x28")]


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_what_ends_an_idle_connection_makes_a_new_one_and_no_failure(authority, tls, secure):
    """Over TLS its close, half a record, and a fatal alert."""
    ends = [*(TLS_ENDS if secure else PLAIN_ENDS), lambda peer: None]
    steps, requests = ending(ends, "--cacert", authority.file, **({"tls": tls} if secure else {}))
    assert (statuses(steps), warmth(steps)) == ([302] * len(ends), [False] * len(ends))
    told = [each for each in reasons(steps)[1:] if re.search(GONE, each)]
    assert told == [each for each in reasons(steps)[1:] if "not asked for" not in each]
    assert len(told) == 2 and len(requests) == len(ends), "nothing was sent twice"


def test_tickets_without_end_end_an_idle_connection(authority, tls, tmp_path):
    tls.keylog_filename, tls.num_tickets = str(tmp_path / "keys"), 0
    ends = [lambda peer: send_raw(session_tickets(tmp_path / "keys", 5000, 1))(peer), lambda peer: None]
    steps, _ = ending(ends, "--cacert", authority.file, tls=tls)
    assert statuses(steps) == [302] * 2
    assert reasons(steps)[1] == "the server sent something that it was not asked for"


def send_half(peer):
    peer.send(OK.replace("Length: 2", "Length: 20"))


def send_garbage(peer):
    with socket.socket(fileno=peer.sock.detach()) as plain:
        plain.sendall(b"this is not TLS at all")


FAILURES = {  # over TLS: what the server does before it closes, and the error
    False: [
        (lambda peer: None, "protocol in wait"),
        (lambda peer: peer.reset(), "protocol in wait"),
        (send_half, "protocol in xfer"),
    ],
    # OpenSSL's error has no hop to explain it.
    True: [(lambda peer: None, "protocol in wait"), (send_garbage, "tls in wait")],
}


@pytest.mark.parametrize("secure", FAILURES, ids=["plain", "TLS"])
def test_a_request_that_fails_on_a_kept_connection_is_not_repeated(authority, tls, secure):
    """Each second one does, and the one after it has a connection of its own."""
    failures = FAILURES[secure]

    def talk(peer, number):
        if number % 2 == 0:
            failures[number // 2 - 1][0](peer)
            return False
        peer.send(OK)
        return None

    count, settings = 2 * len(failures), {"tls": tls} if secure else {}
    steps, requests = serving(talk, count, "--cacert", authority.file, "-d", "x", code=75, **settings)
    assert warmth(steps) == [False, True] * len(failures)
    assert statuses(steps)[::2] == [200] * len(failures)
    for (_, expected), step in zip(failures, steps[1::2]):
        error = step["error"]
        assert f"{error['kind']} in {error['phase']}" == expected
        assert ("sent twice" in flat(error["hint"] or "")) == (expected == "protocol in wait")
    assert all("failed" in reason for reason in reasons(steps)[2::2])
    assert len(requests) == count, "a POST that may have been carried out is not sent again"


def test_an_early_answer_to_an_upload_ends_the_connection(tmp_path):
    (tmp_path / "body").write_bytes(bytes(40_000_000))

    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        peer.wait(PATIENCE)

    with scripted(script) as server:
        result = here(*AGAIN, "3", "-d", f"@{tmp_path / 'body'}", server.url())
        steps = runs_of(result, warned="no answer was good")
        assert server.accepted == 3
    assert statuses(steps) == [413] * 3
    assert warmth(steps) == [False] * 3
    assert "not finished" in reasons(steps)[1]


# --- HTTP/2, frame by frame -----------------------------------------------------------------------

h2 = pytest.mark.needs("h2")


class Frames:
    """Answer every stream, by a redirect to `url` if it is given; `between` speaks after an answer, `instead`
    in place of one.
    """

    def __init__(self, between=None, instead=None, settings=(), url=None):
        self.between, self.instead, self.settings, self.url = between, instead, settings, url
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
            answer = (
                c.headers(302, ("location", self.url), stream=stream)
                if self.url
                else c.headers(stream=stream)
            )
            c.send(answer, c.data(b"ok", end=True, stream=stream))
            if self.between:
                self.between(c, number)


def framed(authority, count, *options, code=0, **script):
    """Run a series against such a server; return the steps, and (connection, stream) of what was asked."""
    frames = Frames(**script)
    with conversing(authority, frames) as server:
        words = ("--cacert", authority.file, *AGAIN, str(count), *options, server.url())
        return runs_of(here(*words), code), frames.asked


def say_goodbye(c):
    c.send(c.goaway(1, 0, b"gone"))
    socket.socket.shutdown(c.peer.sock, socket.SHUT_WR)  # not SSLSocket's own, after which nothing is read
    return b""


SAID = [  # what is sent while the connection is idle, and the reason of a new one; none where it is kept
    (lambda c: PINGED, None),
    (lambda c: c.settings((HEADER_TABLE_SIZE, 0), (FRAME_SIZE, 1 << 20)), None),
    (lambda c: c.window(1000, 0), None),
    (lambda c: c.settings((WINDOW_SIZE, 100)), None),
    (lambda c: c.reset(0, c.frames[-1].stream), None),
    (lambda c: frame(PING, b"ping", 0, 0, 8), "not asked for"),  # half of one
    (lambda c: c.window(0, 0), "HTTP/2"),
    (lambda c: c.settings((MAX_STREAMS, 0)), "no further HTTP/2 stream"),
    (lambda c: c.goaway(2**31 - 1, 0, b"too idle"), "connection (NO_ERROR: too idle)"),
    (say_goodbye, "connection (NO_ERROR: gone)"),
    (lambda c: c.settings() * 400, "not asked for"),
    (lambda c: c.headers(stream=3), "not asked for"),  # the next answer
    (lambda c: b"", None),
]


@h2
def test_what_a_server_says_while_idle_is_answered_or_the_reason_of_a_new_connection(authority):
    """And no request leaves with that answer, before its clock."""

    def between(c, number):
        c.send(SAID[number - 1][0](c))
        happened()

    with elsewhere() as (url, happened):
        steps, _ = framed(authority, len(SAID), "-fL", between=between, url=url)
    assert statuses(steps) == [302] * len(SAID)
    for (_, reason), step in zip(SAID, steps[1:]):
        assert step["network"]["reused"] is (reason is None), reason
        assert reason is None or reason in step["network"]["reuse_refused"]


UNANSWERED = [lambda c, stream: c.goaway(1), lambda c, stream: c.reset(7, stream), lambda c, stream: b""]


@h2
def test_a_stream_without_an_answer_on_a_kept_connection_fails_and_is_not_repeated(authority):
    def instead(c, number, stream):
        if number % 2 == 0:
            c.send(UNANSWERED[number // 2 - 1](c, stream))
            raise ConnectionError

    steps, asked = framed(authority, 6, instead=instead, code=75)
    assert statuses(steps) == [200, None] * 3
    assert warmth(steps) == [False, True] * 3
    assert [step["error"]["kind"] for step in steps[1::2]] == ["protocol"] * 3
    kept = ["kept" in step["error"]["hint"] for step in steps[1::2]]
    assert kept == [False, False, True], "a code is no idle time-out"
    assert all(reasons(steps)[2::2])
    assert [number for number, _ in asked] == [0, 0, 1, 1, 2, 2]


@h2
def test_the_end_of_an_earlier_stream_is_not_the_end_of_this_one(authority):
    """Trailers and DATA of it may still come (RFC 9113 section 5.1)."""

    def instead(c, number, stream):
        if number == 1:
            return False
        trailers = c.headers(None, ("x-late", "1"), end=True, stream=stream - 2)
        late = trailers if number == 2 else c.data(b"late", end=True, stream=stream - 2)
        c.send(c.headers(200, stream=stream), late)
        c.peer.wait(0.03)
        c.send(c.data(b"ok", end=True, stream=stream))
        return True

    steps, asked = framed(authority, 3, instead=instead)
    assert [(step["response"]["status"], step["response"]["bytes"]) for step in steps] == [(200, 2)] * 3
    assert asked == [(0, 1), (0, 3), (0, 5)]


@h2
def test_a_stream_may_end_after_its_last_byte_while_idle_or_behind_the_next_request(authority):
    def instead(c, number, stream):
        late = c.data(end=True, stream=stream - 2) if number == 3 else b""
        c.send(late, c.headers(200, ("content-length", "2"), stream=stream), c.data(b"ok", stream=stream))
        if number == 1:
            c.peer.wait(0.1)
            c.send(c.data(end=True, stream=stream))
        return True

    steps, _ = framed(authority, 3, "--interval", "0.3", instead=instead)
    assert (statuses(steps), warmth(steps)) == ([200] * 3, [False, True, True])


# --- proxies and chains ---------------------------------------------------------------------------


@pytest.mark.needs("socks")
@pytest.mark.parametrize(("road", "target"), [("http", "http"), ("https", "https"), ("socks5", "http")])
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
    assert (warmth(steps), statuses(steps)) == (WARM, [200] * 4)
    shared = ("ip", "cert", "tls", "alpn", "http_version", "proxy_url")  # what the first one found out
    told = [{k: v for k, v in step["network"].items() if k.startswith(shared)} for step in steps]
    assert told == told[:1] * 4 and told[0]["proxy_url"] == url


# --- what is said of it ---------------------------------------------------------------------------


def test_the_lines_of_kept_connections_have_no_times_of_setting_up(call_tool, server):
    metrics = call_tool("--metrics-only", *AGAIN, "4", server.url())
    assert run_lines(metrics.out)[1].startswith("Run 2 Step 1: dns=- connect=- tls=- ttfb=")
    [found] = summaries(metrics.out)
    assert (found["runs"], found["dns_min"], found["connect_p95"], found["tls_max"]) == ("4", "-", "-", "-")
    assert found["ttfb_median"] == found["wait_median"] != "-"
    compact = call_tool("--compact", *AGAIN, "2", server.url())
    assert re.match(
        r"Run 2 Step 1: 200 GET \S+ \| dns=- connect=- tls=- ttfb=[\d.]+m?s total=[\d.]+m?s \| 6 B",
        run_lines(compact.out)[1],
    )


def test_what_opening_a_connection_costs_no_later_run_has(call_tool, authority, tls, tmp_path):
    har = tmp_path / "out.har"
    with http_server(tls=tls) as server:
        result = call_tool("--cacert", authority.file, *AGAIN, "8", "--har", har, server.url())
    assert "8 runs, status 200: 8, in" in flat(result.out)
    assert "Times of the 7 good runs on a kept connection" in flat(result.out)
    _, second, *_ = [each["timings"] for each in json.loads(har.read_text())["log"]["entries"]]
    assert [second[name] for name in ("dns", "connect", "ssl")] == [-1, -1, -1]


def test_budgets_of_setting_up_do_not_hold_kept_connections_whose_statistics_count(call_tool):
    replies = itertools.chain([Reply(wait=3)], itertools.repeat(Reply()))
    with http_server({"/": lambda request: next(replies)}) as server:
        budgets = "dns=0.001,connect=5000,tls=1,connect.max=0.0001,wait.max=2900,ttfb.p95=2900"
        result = call_tool("--json", "-", *AGAIN, "21", "--slo", budgets, server.url())
    assert "the p95 of 21 runs is usually below the true p95" in result.err
    slo = result.json()["summary"]["slo"]
    assert (result.code, slo["pass"], slo["not_judged"], slo["violations"]) == (0, True, [], [])
