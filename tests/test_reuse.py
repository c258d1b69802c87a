"""--reuse: later runs over the connections of earlier ones, against real servers and against scripts that
close, reset, say goodbye or answer early. The peer counts what it is sent: nothing comes twice.
"""

from __future__ import annotations

import contextlib
import http.server
import itertools
import json
import os
import re
import resource
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest
from hostile.frames import frame
from test_series import OK, run_lines, summaries

from checks import check_document, flat
from conftest import PATIENCE
from conversations import conversing
from inside import here
from paths import ANY, FAR, Rule, path
from relays import relay_proxy
from servers import Reply, accepts, debian_program, free_port, http_server, redirect, refused_port, scripted

pytestmark = pytest.mark.needs("trustme")

SETTING_UP = ("dns_ms", "connect_ms", "tls_ms")
AGAIN = ("--interval", "0", "--reuse", "--count")
IDLE = ("--interval", "0.12", "--reuse", "--count")
LONG_IDLE = ("--interval", "0.5", "--reuse", "--count")
"""For servers that do something 30 ms after an answer, on a busy machine some tenths of a second."""
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


@pytest.mark.needs("h2")
@pytest.mark.parametrize("version", ["HTTP/2", "HTTP/1.1"])
def test_hypercorn_answers_every_run_on_one_connection(http2, authority, version):
    options = ["--cacert", authority.file, *AGAIN, "4"] + ["--http1.1"] * (version == "HTTP/1.1")
    check_warm(runs_of(here(*options, http2.url("/?size=70000"))), version)


NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log {folder}/access.log; client_max_body_size 100m;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} ssl http2; ssl_certificate {pem}; ssl_certificate_key {pem}; root {folder};
    keepalive_requests 3; keepalive_timeout 1; http2_max_concurrent_streams 1;
    location = /early {{ return 413; }}
  }}
  server {{
    listen 127.0.0.1:{patient} ssl http2; ssl_certificate {pem}; ssl_certificate_key {pem};
    http2_max_concurrent_streams 1; return 200 "ok";
  }}
}}
"""


@pytest.fixture(scope="module")
def nginx(tmp_path_factory, authority):
    """Run nginx, which ends a connection after three requests, or a second; return its URL, its folder, and
    the URL where it does not.
    """
    folder = tmp_path_factory.mktemp("nginx")
    (folder / "big").write_bytes(b"x" * 300_000)
    port, patient = free_port(), free_port()
    text = NGINX.format(folder=folder, port=port, patient=patient, pem=authority.certificate())
    (folder / "nginx.conf").write_text("user root;\n" + text)
    settings = ["-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"]
    with debian_program("nginx", settings, port, folder / "out.log"):
        yield f"https://127.0.0.1:{port}", folder, f"https://127.0.0.1:{patient}"


def asked_of(folder, mark, expected):
    """Return how many requests nginx has had for what has `mark` in it; it may log them after its answer."""
    give_up = time.monotonic() + 5
    count = -1
    while count < expected and time.monotonic() < give_up:
        count = sum(mark in line for line in (folder / "access.log").read_text().splitlines())
        time.sleep(0.05)
    return count


VERSIONS = [
    pytest.param((), id="http2", marks=pytest.mark.needs("h2")),
    pytest.param(("--http1.1",), id="http1"),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_nginx_that_ends_a_connection_after_three_requests_gets_a_new_one(authority, nginx, version):
    url, folder, _ = nginx
    mark = f"three{''.join(version)}"
    steps = runs_of(here("--cacert", authority.file, *version, *IDLE, "7", f"{url}/big?{mark}."))
    assert statuses(steps) == [200] * 7
    assert warmth(steps) == [False, True, True, False, True, True, False]
    assert [step["response"]["bytes"] for step in steps] == [300_000] * 7
    said = reasons(steps)
    assert said[3]
    assert said[3] == said[6]
    assert asked_of(folder, f"{mark}.", 7) == 7, "each run asked once"


@pytest.mark.parametrize("version", VERSIONS)
def test_nginx_that_closes_after_a_second_of_idleness_gets_a_new_connection(authority, nginx, version):
    url, folder, _ = nginx
    mark = f"idle{''.join(version)}"
    options = ["--cacert", authority.file, *version, "--reuse", "--interval", "2.5", "--count", "2"]
    steps = runs_of(here(*options, f"{url}/big?{mark}."))
    assert warmth(steps) == [False, False]
    assert reasons(steps)[1]
    assert asked_of(folder, f"{mark}.", 2) == 2


@pytest.mark.needs("h2")
def test_many_runs_fit_one_stream_at_a_time(authority, nginx):
    """nginx allows a single concurrent stream; each run has to have ended its own before the next."""
    *_, url = nginx
    steps = runs_of(here("--cacert", authority.file, *AGAIN, "60", url))
    assert statuses(steps) == [200] * 60
    assert warmth(steps).count(True) == 59


@pytest.mark.parametrize("version", VERSIONS)
def test_nginx_that_answers_before_it_has_the_upload_is_no_failure(authority, nginx, version, tmp_path):
    url, *_ = nginx
    (tmp_path / "body").write_bytes(bytes(3_000_000))
    options = ["--cacert", authority.file, *version, *AGAIN, "4", "-d", f"@{tmp_path / 'body'}"]
    result = here(*options, url + "/early")
    assert statuses(runs_of(result, warned=NONE_GOOD)) == [413] * 4


@pytest.mark.parametrize("version", VERSIONS)
def test_nginx_that_refuses_a_small_upload_keeps_the_connection(authority, nginx, version):
    url, *_ = nginx
    result = here("--cacert", authority.file, *version, *AGAIN, "3", "-d", "x", url + "/")
    steps = runs_of(result, warned=NONE_GOOD)
    assert statuses(steps) == [403] * 3 and warmth(steps) == [False, True, True]


CADDY = """
{{
  admin off
  auto_https off
}}
https://127.0.0.1:{port} {{
  bind 127.0.0.1
  tls {pem} {pem}
  respond /early 413
  respond 200
}}
"""


@pytest.fixture(scope="module")
def caddy(tmp_path_factory, authority):
    """Run Caddy; return its URL."""
    folder = tmp_path_factory.mktemp("caddy")
    port = free_port()
    (folder / "Caddyfile").write_text(CADDY.format(port=port, pem=authority.certificate()))
    settings = ["run", "--config", folder / "Caddyfile", "--adapter", "caddyfile"]
    places = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
    env = {**dict.fromkeys(places, str(folder)), "PATH": "/usr/bin:/bin"}
    with debian_program("caddy", settings, port, folder / "out.log", env):
        yield f"https://127.0.0.1:{port}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 400_000])
def test_caddy_takes_uploads_one_after_the_other(authority, caddy, version, size, tmp_path):
    (tmp_path / "body").write_bytes(bytes(size))
    options = ["--cacert", authority.file, *version, *AGAIN, "5", "-d", f"@{tmp_path / 'body'}"]
    steps = runs_of(here(*options, caddy))
    assert statuses(steps) == [200] * 5
    if size <= 1:  # the stream of a body that was not read is reset, behind its answer: that is its end
        assert warmth(steps) == [False, True, True, True, True]


@pytest.mark.parametrize("version", VERSIONS)
def test_caddy_that_answers_an_upload_early_is_asked_again(authority, caddy, version, tmp_path):
    (tmp_path / "body").write_bytes(bytes(3_000_000))
    options = ["--cacert", authority.file, *version, *AGAIN, "4", "-d", f"@{tmp_path / 'body'}"]
    result = here(*options, caddy + "/early")
    assert statuses(runs_of(result, warned=NONE_GOOD)) == [413] * 4


class Quiet(http.server.BaseHTTPRequestHandler):
    """The standard library's server: HTTP/1.0, or 1.1 where asked."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("version", "expected"), [("HTTP/1.0", [False] * 3), ("HTTP/1.1", [False, True, True])]
)
def test_the_server_of_the_standard_library_keeps_what_its_version_keeps(version, expected):
    handler = type("Handler", (Quiet,), {"protocol_version": version})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        steps = runs_of(here(*AGAIN, "3", f"http://127.0.0.1:{server.server_port}/"))
        server.shutdown()
    assert warmth(steps) == expected
    if version == "HTTP/1.0":
        assert reasons(steps)[0] is None
        assert all("HTTP/1.0" in reason for reason in reasons(steps)[1:])


# --- HTTP/1.1: what keeps no connection -----------------------------------------------------------


class Counting:
    """Answer the requests of each connection by a function of its number, and count what comes.

    `talk(peer, number)` is called for each request, and ends the connection by returning False.
    """

    def __init__(self, talk):
        self.talk, self.requests, self.count = talk, [], itertools.count(1)

    def __call__(self, peer):
        while True:
            request = peer.read_request()
            if request is None:
                return
            self.requests.append((peer.number, request))
            if self.talk(peer, next(self.count)) is False:
                return


def serving(talk, count, *options, code=0, interval=IDLE, **settings):
    """Run a series of `count` against such a server; return the last steps, and the requests that came."""
    script = Counting(talk)
    with scripted(script, **settings) as server:
        steps = runs_of(here(*interval, str(count), *options, server.url()), code)
    return steps, script.requests


ENDS = {
    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok": "Connection: close",
    "HTTP/1.1 200 OK\r\nconnection: X, CLOSE\r\nContent-Length: 2\r\n\r\nok": "Connection: close",
    "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok": "HTTP/1.0",
}


@pytest.mark.parametrize("answer", ENDS)
def test_what_ends_a_connection_is_the_reason_of_the_next_one(answer):
    steps, requests = serving(lambda peer, number: peer.send(answer), 3)
    assert warmth(steps) == [False] * 3
    assert reasons(steps)[0] is None
    assert all(ENDS[answer] in reason for reason in reasons(steps)[1:])
    assert [connection for connection, _ in requests] == [0, 1, 2]


def test_a_body_that_the_close_ends_keeps_no_connection():
    def talk(peer, number):
        peer.send("HTTP/1.1 200 OK\r\n\r\nuntil the end")
        return False

    steps, _ = serving(talk, 2)
    assert warmth(steps) == [False] * 2
    assert "no length" in reasons(steps)[1]


@pytest.mark.parametrize(
    "answer",
    [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: 1\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" + OK,
        OK,
    ],
    ids=["chunked", "204", "interim", "length"],
)
def test_what_has_an_end_of_its_own_keeps_the_connection(answer):
    steps, requests = serving(lambda peer, number: peer.send(answer), 4)
    assert warmth(steps) == WARM
    assert {connection for connection, _ in requests} == {0}
    assert len(requests) == 4


def test_head_keeps_the_connection_whatever_length_it_says():
    steps, _ = serving(lambda peer, number: peer.send(OK[:-2]), 3, "-X", "HEAD")
    assert warmth(steps) == [False, True, True]


def test_a_connection_that_the_user_wants_closed_is_not_kept():
    steps, _ = serving(lambda peer, number: peer.send(OK), 2, "-H", "Connection: close")
    assert warmth(steps) == [False, False]
    assert "the request said" in reasons(steps)[1]


def test_bytes_that_nobody_asked_for_end_a_connection():
    """They might be taken for the next answer."""
    steps, requests = serving(lambda peer, number: peer.send(OK + OK.replace("200", "500")), 3)
    assert statuses(steps) == [200] * 3
    assert warmth(steps) == [False] * 3
    assert "not asked for" in reasons(steps)[1]
    assert len(requests) == 3


def test_without_reuse_every_run_has_a_connection_of_its_own():
    with http_server() as server:
        result = here("--count", "3", "--interval", "0", server.url())
        assert server.accepted == 3
    assert all("reused" not in run["steps"][0]["network"] for run in result.json()["runs"])


# --- closed while idle, and closed too late -------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_close_that_was_seen_in_time_makes_a_new_connection_and_no_failure(authority, tls, secure, how):
    def talk(peer, number):
        peer.send(OK)
        if number == 2:
            peer.wait(0.03)
            if how == "reset":
                peer.reset()
            elif secure:
                peer.sock.unwrap()
            return False
        return None

    settings = {"interval": LONG_IDLE, **({"tls": tls} if secure else {})}
    steps, requests = serving(talk, 4, "--cacert", authority.file, **settings)
    assert statuses(steps) == [200] * 4
    assert warmth(steps) == [False, True, False, True]
    assert [bool(reason) for reason in reasons(steps)] == [False, False, True, False]
    within = re.fullmatch(r"the server closed it within (\d\.\d) s without a request", reasons(steps)[2])
    assert "idle" in reasons(steps)[2] if how == "reset" else 0.3 <= float(within[1]) <= 0.6
    assert len(requests) == 4, "nothing was sent twice"


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_request_without_an_answer_on_a_kept_connection_fails_and_is_not_repeated(
    authority, tls, secure, how
):
    def talk(peer, number):
        if number == 2:
            if how == "reset":
                peer.reset()
            return False
        peer.send(OK)
        return None

    settings = {"tls": tls} if secure else {}
    steps, requests = serving(talk, 4, "--cacert", authority.file, "-d", "x", code=75, **settings)
    assert statuses(steps) == [200, None, 200, 200]
    assert warmth(steps) == [False, True, False, True]
    error = steps[1]["error"]
    assert (error["kind"], error["phase"]) == ("protocol", "wait")
    assert "kept" in error["hint"]
    assert "sent twice" in error["hint"].replace("\n", " ")
    assert "failed" in reasons(steps)[2]
    assert len(requests) == 4, "a POST that may have been carried out is not sent again"


def test_a_first_run_that_gets_no_answer_is_what_it_always_was():
    def talk(peer, number):
        peer.reset()
        return False

    [step], _ = serving(talk, 1, code=75)
    assert step["error"]["kind"] == "network"
    assert "kept" not in step["error"]["hint"]


def test_half_a_body_on_a_kept_connection_fails_and_the_next_run_connects_anew():
    def talk(peer, number):
        if number == 2:
            peer.send(OK.replace("Length: 2", "Length: 20"))
            return False
        peer.send(OK)
        return None

    steps, requests = serving(talk, 3, code=75)
    assert warmth(steps) == [False, True, False]
    assert (steps[1]["error"]["kind"], steps[1]["error"]["phase"]) == ("protocol", "xfer")
    assert len(requests) == 3


def test_garbage_in_place_of_a_record_on_a_kept_connection_is_a_failed_step(authority, tls):
    """OpenSSL's error has no hop to explain it: they were all opened by an earlier run."""

    def talk(peer, number):
        if number == 2:
            with socket.socket(fileno=peer.sock.detach()) as plain:
                plain.sendall(b"this is not TLS at all")
            return False
        peer.send(OK)
        return None

    steps, _ = serving(talk, 3, "--cacert", authority.file, code=75, tls=tls)
    assert statuses(steps) == [200, None, 200]
    assert steps[1]["error"]["kind"] in ("tls", "protocol")


def test_after_a_run_that_timed_out_the_next_connects_anew_and_says_why():
    def talk(peer, number):
        peer.wait(4 if number == 2 else 0)
        peer.send(OK)

    steps, requests = serving(talk, 5, "-m", "1.2", code=75)
    assert statuses(steps) == [200, None, 200, 200, 200]
    assert warmth(steps) == [False, True, False, True, True]
    assert steps[1]["error"]["kind"] == "timeout"
    assert reasons(steps)[2]
    assert len(requests) == 5


def test_an_early_answer_to_an_upload_ends_the_connection(tmp_path):
    (tmp_path / "body").write_bytes(bytes(40_000_000))
    heads = []

    def script(peer):
        heads.append(peer.read_until(b"\r\n\r\n"))
        peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        peer.wait(0.05)

    with scripted(script) as server:
        result = here(*IDLE, "3", "-d", f"@{tmp_path / 'body'}", server.url())
        steps = runs_of(result, warned=NONE_GOOD)
    assert statuses(steps) == [413] * 3
    assert warmth(steps) == [False] * 3
    assert "not finished" in reasons(steps)[1]
    assert len(heads) == 3


def test_an_upload_goes_over_a_kept_connection_whole():
    steps, requests = serving(lambda peer, number: peer.send(OK), 4, "-d", "x" * 5000)
    assert warmth(steps) == WARM
    assert [request.body for _, request in requests] == [b"x" * 5000] * 4


@pytest.mark.parametrize("command", [b"k\n", b"K\n"], ids=["tells", "asks"])
def test_records_without_data_that_come_while_idle_are_no_answer(authority, command):
    """OpenSSL's own server changes its keys between two requests, and wants ours changed too, or does not."""
    program = shutil.which("openssl") or pytest.skip("openssl is not installed")
    port = free_port()
    options = ["-accept", f"127.0.0.1:{port}", "-cert", authority.certificate(), "-tls1_3"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([program, "s_server", *options], **pipes)

    def talk():
        with contextlib.suppress(BrokenPipeError):  # it has been killed
            for line in server.stdout:
                if line == b"\r\n":  # the end of a request
                    for words in (OK.encode(), command):
                        os.write(server.stdin.fileno(), words)
                        time.sleep(0.3)  # else it may read both at once, and then as one answer

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        while not accepts(port):
            time.sleep(0.02)
        options = ("--cacert", authority.file, "--interval", "0.8", "--reuse", "--count", "4")
        steps = runs_of(here(*options, f"https://127.0.0.1:{port}/"))
    finally:
        thread.join(0.2)
        server.kill()
        thread.join()
        server.communicate()
    assert statuses(steps) == [200] * 4
    assert warmth(steps) == WARM


def test_half_a_record_while_idle_keeps_no_run_waiting(authority, tls):
    def talk(peer, number):
        peer.send(OK)
        peer.wait(0.03)
        with socket.socket(fileno=os.dup(peer.sock.fileno())) as plain:
            plain.sendall(b"\x17\x03\x03"[:number])

    steps, requests = serving(talk, 4, "--cacert", authority.file, tls=tls, interval=LONG_IDLE)
    assert statuses(steps) == [200] * 4
    assert warmth(steps) == [False] * 4
    assert all("not all of it" in reason for reason in reasons(steps)[1:])
    assert len(requests) == 4


# --- HTTP/2, frame by frame -----------------------------------------------------------------------

h2 = pytest.mark.needs("h2")


class Frames:
    """Answer every stream; `between(c, number)` speaks after an answer, `instead` in place of one."""

    def __init__(self, between=None, instead=None, **settings):
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
        c.send(c.settings(**self.settings))
        while True:
            frame = c.read_until("Headers")
            while "END_STREAM" not in frame.flags:
                frame = c.read_until("Data")
                c.send(c.window(max(1, len(frame.data)), 0))
            number, stream = next(self.count), frame.stream_id
            self.asked.append((c.peer.number, stream))
            if self.instead and self.instead(c, number, stream):
                continue
            answer(c, stream)
            if self.between:
                c.peer.wait(0.03)
                self.between(c, number)


def answer(c, stream, body=b"ok"):
    head, data = c.headers(200), c.data(body, end=True)
    head.stream_id = data.stream_id = stream
    c.send(head, data)


def framed(authority, count, *options, code=0, **script):
    """Run a series against such a server; return the steps, and (connection, stream) of what was asked."""
    frames = Frames(**script)

    with conversing(authority, frames) as server:
        interval = LONG_IDLE if "between" in script else IDLE
        options = ["--cacert", authority.file, *options, *interval, str(count)]
        return runs_of(here(*options, server.url()), code), frames.asked


@h2
@pytest.mark.parametrize("size", [0, 5000, 60_000])
def test_runs_share_a_connection_stream_by_stream(authority, size):
    options = ["-d", "x" * size] if size else []
    steps, asked = framed(authority, 3, *options, initial_window_size=1 << 20)
    assert warmth(steps) == [False, True, True]
    assert asked == [(0, 1), (0, 3), (0, 5)]


@h2
@pytest.mark.parametrize("kind", ["ping", "settings", "window", "shrink", "reset"])
def test_what_a_server_says_while_idle_is_answered_with_the_next_request(authority, kind):
    """And the request itself does not leave with that answer, before its clock."""
    from hyperframe.frame import PingFrame

    def between(c, number):
        frames = {
            "ping": PingFrame(0, b"12345678"),
            "settings": c.settings(header_table_size=0, max_frame_size=1 << 20),
            "window": c.window(1000, 0),
            "shrink": c.settings(initial_window_size=0 if number > 9 else 100),
            "reset": frame(3, bytes(4), 0, 2 * number - 1),  # of an upload that was not read to its end
        }
        c.send(frames[kind])

    steps, asked = framed(authority, 3, between=between)
    assert warmth(steps) == [False, True, True]
    assert statuses(steps) == [200] * 3
    assert asked == [(0, 1), (0, 3), (0, 5)]


@h2
@pytest.mark.parametrize("last", [1, 0, 2**31 - 1])
@pytest.mark.parametrize("words", [b"", b"too idle"], ids=["silent", "words"])
def test_a_goaway_while_idle_makes_a_new_connection_and_nothing_is_sent_twice(authority, last, words):
    from hyperframe.frame import PingFrame

    def between(c, number):
        c.send(PingFrame(0, b"12345678"), c.goaway(last, 0, words))

    steps, asked = framed(authority, 3, between=between)
    assert statuses(steps) == [200] * 3
    assert warmth(steps) == [False] * 3
    assert asked == [(0, 1), (1, 1), (2, 1)]
    assert all("closed the HTTP/2 connection (NO_ERROR" in reason for reason in reasons(steps)[1:])
    assert all(words.decode() in reason for reason in reasons(steps)[1:])


@h2
def test_a_goaway_with_the_answer_makes_a_new_connection(authority):
    def instead(c, number, stream):
        c.send(c.goaway(stream))

    steps, asked = framed(authority, 3, instead=instead)
    assert statuses(steps) == [200] * 3
    assert warmth(steps) == [False] * 3
    assert asked == [(0, 1), (1, 1), (2, 1)]


@h2
@pytest.mark.parametrize("how", ["goaway", "reset", "close", "silence"])
def test_a_stream_without_an_answer_on_a_kept_connection_fails_and_is_not_repeated(authority, how):
    def instead(c, number, stream):
        if number != 2:
            return False
        if how == "goaway":
            c.send(c.goaway(1))
        elif how == "reset":
            frame = c.reset(7)
            frame.stream_id = stream
            c.send(frame)
        elif how == "close":
            raise ConnectionError
        else:
            c.peer.reset()
        return True

    steps, asked = framed(authority, 4, instead=instead, code=75)
    assert statuses(steps) == [200, None, 200, 200]
    assert warmth(steps) == [False, True, False, True]
    assert steps[1]["error"]["kind"] == "protocol"
    assert "kept" in steps[1]["error"]["hint"]
    assert reasons(steps)[2]
    assert [number for number, _ in asked] == [0, 0, 1, 1]


@h2
def test_many_runs_against_a_server_that_allows_one_stream(authority):
    frames = Frames(max_concurrent_streams=1)
    with conversing(authority, frames) as server:
        steps = runs_of(here("--cacert", authority.file, *AGAIN, "40", server.url()))
    assert warmth(steps) == [False] + [True] * 39
    assert frames.asked == [(0, number) for number in range(1, 81, 2)]


@h2
@pytest.mark.parametrize("when", ["between", "with"])
def test_a_server_that_allows_no_further_stream_gets_a_new_connection(authority, when):
    def between(c, number):
        if when == "between":
            c.send(c.settings(max_concurrent_streams=0))

    def instead(c, number, stream):
        if when == "with":
            c.send(c.settings(max_concurrent_streams=0))

    steps, asked = framed(authority, 2, between=between, instead=instead)
    assert statuses(steps) == [200] * 2
    assert asked == [(0, 1), (1, 1)]
    assert "no further HTTP/2 stream" in reasons(steps)[1]


@h2
def test_an_answer_to_a_request_that_was_not_sent_yet_is_none(authority):
    """The next stream's number is no secret."""
    steps, asked = framed(authority, 3, between=lambda c, number: answer(c, 3, b"evil"))
    assert [step["response"]["bytes"] for step in steps] == [2] * 3
    assert asked == [(0, 1), (1, 1), (2, 1)]
    assert "not asked for" in reasons(steps)[1]


@h2
@pytest.mark.parametrize("kind", ["headers", "window"])
def test_frames_of_another_stream_without_end_are_chatter(authority, kind):
    def instead(c, number, stream):
        if number == 2:
            late = c.headers(None, ("x-late", "1"), end=True) if kind == "headers" else c.window(1, 1)
            late.stream_id = 1
            c.send(*[late] * 1100)
        return number == 2

    steps, _ = framed(authority, 2, instead=instead, code=75)
    assert "HTTP/2 frames that serve nothing" in steps[1]["error"]["message"]


@h2
@pytest.mark.parametrize("kind", ["headers", "data"])
def test_the_end_of_an_earlier_stream_is_not_the_end_of_this_one(authority, kind):
    """Trailers and DATA of it may still come (RFC 9113 section 5.1)."""

    def instead(c, number, stream):
        if number == 1:
            return False
        head, data = c.headers(200), c.data(b"ok", end=True)
        late = c.headers(None, ("x-late", "1"), end=True) if kind == "headers" else c.data(b"late", end=True)
        head.stream_id, data.stream_id, late.stream_id = stream, stream, stream - 2
        c.send(head, late)
        c.peer.wait(0.03)
        c.send(data)
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
            frame, total = c.read_until("Headers"), 0
            stream = frame.stream_id
            while total < 65_535:
                total += len(c.read_until("Data").data)
            taken.append(total)
            c.send(c.window(1 << 20, stream))
            c.read_until("Data", lambda frame: "END_STREAM" in frame.flags)
            answer(c, stream)
            c.peer.wait(0.03)
            c.send(c.window(1 << 20, stream))

    body = tmp_path / "body"
    body.write_bytes(bytes(200_000))
    with conversing(authority, script) as server:
        steps = runs_of(here("--cacert", authority.file, "-d", f"@{body}", *LONG_IDLE, "2", server.url()))
    assert warmth(steps) == [False, True]
    assert taken == [65_535] * 2


@h2
@pytest.mark.parametrize("half", [b"\0", frame(6, b"ping", 0, 0, 8), frame(6, b"", 0, 0, 8)])
def test_half_a_frame_while_idle_keeps_no_run_waiting(authority, half):
    steps, asked = framed(authority, 2, between=lambda c, number: c.send(half))
    assert statuses(steps) == [200] * 2
    assert asked == [(0, 1), (1, 1)]
    assert "not all of it" in reasons(steps)[1]


@h2
def test_frames_without_sense_while_idle_are_the_reason_of_a_new_connection(authority):
    steps, asked = framed(authority, 2, between=lambda c, number: c.send(c.window(0, 0)))
    assert statuses(steps) == [200] * 2
    assert asked == [(0, 1), (1, 1)]
    assert "{}" not in reasons(steps)[1]


# --- proxies and chains ---------------------------------------------------------------------------


@pytest.mark.needs("socks")
@pytest.mark.parametrize("target", ["http", "https"])
@pytest.mark.parametrize("road", ["http", "https", "socks5", "socks5h"])
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
    assert warmth(steps) == WARM
    for step in steps[1:]:
        assert [step["timing"][key] for key in SETTING_UP] == [None] * 3
        assert step["network"]["proxy_url"] == url


@h2
def test_http2_inside_a_tunnel_is_kept(authority, http2, proxy):
    steps = runs_of(here("--cacert", authority.file, "-x", proxy.url(""), *AGAIN, "4", http2.url()))
    check_warm(steps, "HTTP/2")


def test_real_proxies_keep_or_close_and_no_run_fails(proxy, socks5, server):
    for road in (proxy, socks5):
        steps = runs_of(here("-x", road.url(""), *IDLE, "4", server.url()))
        assert statuses(steps) == [200] * 4


def test_a_chain_over_two_origins_keeps_a_connection_to_each():
    with http_server() as last, http_server({"/": redirect(last.url("/x"))}) as first:
        result = here("-L", *AGAIN, "3", first.url())
        assert (first.accepted, last.accepted) == (1, 1)
        assert (len(first.requests), len(last.requests)) == (3, 3)
    document = result.json()
    assert [warmth(run["steps"]) for run in document["runs"]] == [[False, False], [True, True], [True, True]]


def test_a_chain_on_one_origin_has_connections_of_its_own_in_the_first_run_alone():
    with http_server({"/": redirect("/x"), "/x": Reply(body=b"ok")}) as server:
        document = here("-L", *AGAIN, "3", server.url()).json()
        assert len(server.requests) == 6
        assert server.accepted <= 2
    assert [warmth(run["steps"]) for run in document["runs"]] == [[False, False], [True, True], [True, True]]


def test_a_redirect_that_leads_nowhere_is_cold_and_fails(server):
    with http_server({"/": redirect("ftp://a.test/")}) as broken:
        document = here("-L", *AGAIN, "2", broken.url()).json()
    for run in document["runs"]:
        assert run["steps"][1]["network"]["reused"] is False
        assert run["steps"][1]["error"]["kind"] == "redirect"


# --- what is said of it ---------------------------------------------------------------------------


def test_metrics_compact_and_json_have_the_times_of_kept_connections(run_tool, server):
    metrics = run_tool("--metrics-only", "--json", "-", *AGAIN, "30", server.url())
    [found] = metrics.json()["statistics"]
    assert (found["reused"], found["n"], found["connect_ms"]["median"]) == (True, 29, None)
    assert found["total_ms"]["p95"] is not None
    metrics = run_tool("--metrics-only", *AGAIN, "4", server.url())
    lines = run_lines(metrics.out)
    assert lines[1].startswith("Run 2 Step 1: dns=- connect=- tls=- ttfb=")
    [found] = summaries(metrics.out)
    assert found["runs"] == "4"
    names = itertools.product(("dns", "connect", "tls"), ("min", "median", "p95", "max"))
    assert {found[f"{key}_{name}"] for key, name in names} == {"-"}
    assert found["ttfb_median"] == found["wait_median"] != "-"
    compact = run_tool("--compact", *AGAIN, "2", server.url())
    assert re.match(
        r"Run 2 Step 1: 200 GET \S+ \| dns=- connect=- tls=- ttfb=\d+\.\dms total=\d+\.\dms \| 6 B",
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


def test_a_server_that_keeps_no_connection_has_the_times_of_all_runs(run_tool):
    with http_server({"/": Reply(headers=[("Connection", "close")])}) as server:
        words = flat(run_tool(*AGAIN, "4", server.url(), without=("rich",)).out)
    assert "Times of the 4 good runs" in words and "Not reused 3 runs: " in words
    assert "opened a connection" not in words


SLOWER = (
    r"the first answer took [\d.]+ (ms|s) longer at the server: for the new connection, or because it was"
)


def test_of_a_server_whose_first_answer_is_slow_two_reasons_are_named(run_tool):
    replies = itertools.chain([Reply(wait=1.5)], itertools.repeat(Reply()))
    with http_server({"/": lambda request: next(replies)}) as server:
        words = flat(run_tool(*AGAIN, "8", server.url(), without=("rich",)).out)
    assert re.search(SLOWER, words)


def test_a_server_that_is_as_slow_each_time_elsewhere_is_not_said_to_be_slower_at_first(run_tool):
    """As with Nagle's algorithm over TLS 1.3: first the answer is late, then always its body."""
    late = itertools.chain([Reply(body=b"ok", wait=0.4)], itertools.repeat(Reply(body=b"ok", xfer=0.4)))
    with http_server({"/": lambda request: next(late)}) as server:
        words = flat(run_tool(*AGAIN, "8", server.url(), without=("rich",)).out)
    assert "opened a connection" in words and not re.search(SLOWER, words)


def test_budgets_of_setting_up_do_not_hold_kept_connections_whose_statistics_count(run_tool):
    replies = itertools.chain([Reply(wait=1.5)], itertools.repeat(Reply()))
    with http_server({"/": lambda request: next(replies)}) as server:
        budgets = "dns=0.001,connect=5000,tls=1,connect.max=0.0001,wait.max=1000,ttfb.p95=1000"
        result = run_tool("--metrics-only", "--json", "-", *AGAIN, "21", "--slo", budgets, server.url())
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

RTT = 0.04


@pytest.fixture
def far(run_tool, authority, tmp_path):
    """Ask a server at the end of a path of 40 ms; return the steps of a series over kept connections."""
    folder = tmp_path / "path"
    folder.mkdir()
    with path(folder, RTT) as way:

        def ask(routes, *arguments, tls=None, rules=None, count=3, code=0):
            with way.far(http_server(routes, host=ANY, tls=tls)) as server:
                if rules:
                    way.change(rules=rules)
                options = ["--metrics-only", "--json", "-", "--cacert", authority.file, *AGAIN, count]
                result = run_tool(*options, *arguments, server.url(host=FAR), within=way.near)
            assert result.code == code, result.err
            return [run["steps"][0] for run in check_document(json.loads(result.out))["runs"]]

        yield ask


def names(step):
    return {finding["id"] for finding in step["findings"]} - {"starved", "server"}


@pytest.mark.needs("root", "linux")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_kept_connection_costs_no_handshake(far, authority, version):
    context, expected = authority.context(FAR), {"setup"}
    context.maximum_version = version
    if version == ssl.TLSVersion.TLSv1_2:
        expected.add("tls12")
    found = set()
    for _ in range(8):  # a path that a busy machine holds up fits nothing
        cold, *warm = far(None, tls=context, count=4)
        assert not any(map(names, warm)), warm
        found |= names(cold)
        if expected <= found:
            break
    assert expected <= found


@pytest.mark.needs("root", "linux")
def test_windows_of_kept_connections_explain_no_slow_start(far):
    """They have grown, or have shrunk again since: from one end that cannot be told."""
    body, upload = ({"/": Reply(body=b"x" * 60_000)},), ({"/": Reply()}, "-d", "x" * 20_000)
    for pause in ("0", "0.7"):
        for routes, *options in (body, upload):
            # The cold one is the proof that there is something to be found, where the machine lets times fit.
            found = set()
            for tries in range(10):
                cold, *warm = far(routes, "--interval", pause, *options)
                found |= names(cold)
                assert all("slow_start" not in names(step) for step in warm)
                if tries >= 2 and "slow_start" in found:
                    break
            assert "slow_start" in found


@pytest.mark.needs("root", "linux")
def test_retransmits_of_a_warm_step_are_its_own(far):
    steps = far(None, rules=[Rule("up", "data", 2)], count=3)
    assert [step["network"]["tcp_retransmits"] for step in steps] == [0, 1, 0]
    assert ["loss" in names(step) for step in steps] == [False, True, False]


def test_a_broken_record_while_idle_is_called_that(authority, tls):
    """Not a firewall: the number of a TLS error is no number of the system."""

    def talk(peer, number):
        peer.send(OK)
        peer.wait(0.03)
        with socket.socket(fileno=os.dup(peer.sock.fileno())) as plain:
            plain.sendall(b"\x15\x03\x03\x00\x02\x02\x28")

    steps, _ = serving(talk, 3, "--cacert", authority.file, tls=tls, interval=LONG_IDLE)
    assert statuses(steps) == [200] * 3 and warmth(steps) == [False] * 3
    assert set(reasons(steps)[1:]) == {"the server broke TLS off while the connection was idle"}


@h2
@pytest.mark.parametrize("kind", ["headers", "settings"])
def test_a_server_that_does_not_stop_talking_is_left_for_a_new_connection(authority, kind):
    """Header sections of the stream that was answered, too, serve nothing then."""

    def between(c, number):
        for _ in range(400):
            c.send(c.settings() if kind == "settings" else c.headers(200))

    steps, _ = framed(authority, 3, "-m", "3", between=between)
    assert statuses(steps) == [200] * 3 and warmth(steps) == [False] * 3
    assert all(reasons(steps)[1:])
    assert all(step["timing"]["total_ms"] < 2500 for step in steps)


def test_where_nothing_ever_connected_no_connection_was_refused():
    with refused_port() as port:
        document = here(*AGAIN, "3", f"http://127.0.0.1:{port}/").json()
    steps = [run["steps"][0] for run in document["runs"]]
    assert [step["network"]["reuse_refused"] for step in steps] == [None] * 3


@pytest.mark.needs("linux")
def test_after_a_run_that_could_not_begin_no_run_was_given_up(start_tool, tmp_path):
    """The server has closed the connection, and there is no descriptor for another."""

    def script(peer):
        peer.read_request()
        peer.send(OK)
        peer.wait(0.1)

    with scripted(script) as server:
        words = ("--count", "3", "--interval", "0.8", "--metrics-only", "--json", tmp_path / "out.json")
        process = start_tool("--reuse", *words, server.url())
        few, usual = (3, 64), (64, 64)
        for limit in (few, usual):
            assert process.stdout.readline().startswith(b"Run ")
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limit)
        process.communicate(timeout=PATIENCE)
    runs = json.loads((tmp_path / "out.json").read_text("utf-8"))["runs"]
    steps = [run["steps"][0] for run in runs]
    assert [bool(step["error"]) for step in steps] == [False, True, False]
    assert "Too many open files" in steps[1]["error"]["message"]
    assert reasons(steps)[2] == "the run before could not begin"
