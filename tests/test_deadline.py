"""The deadline of -m, and Ctrl-C: they end a run wherever it is, nothing is sent later, and what was measured
is reported.

What a time-out is called is in test_failures.py; more of what a peer does that never ends, in hostile/.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from functools import partial
from pathlib import Path
from statistics import median

import pytest
from hostile.cases import flood

from certificates import Handshake
from checks import check_document, parse_instant
from conftest import PATIENCE, has, with_resolver
from frames import DATA, PINGED, Conversation, frame, head, http2_context, settings, window
from inside import failure
from paths import first
from servers import Peer, Reply, black_hole, dns_server, every, http_server, redirect, scripted

DEADLINE = 1.0


@pytest.mark.needs("root", "linux")
def test_a_resolver_that_is_silent_about_localhost_alone_holds_up_nothing(run_tool, server, tmp_path):
    """The program's own rehearsal of a lookup is for localhost; here no file has that name."""
    (tmp_path / "nsswitch.conf").write_text("hosts: dns\n")
    script = f'mount --bind "{tmp_path}/nsswitch.conf" /etc/nsswitch.conf && exec "$@"'
    with dns_server({"localhost": None, "web.test": ["127.0.0.1"]}) as names:
        result = run_tool(
            *("-m", "10", "--metrics-only", "-4", server.url(host="web.test")),
            resolver=names.address,
            within=["sh", "-c", script, "sh"],
        )
        assert ("localhost", "A") in names.questions
    assert result.code == 0, result.err


def test_the_deadline_is_one_for_the_whole_chain(run_tool):
    """A deadline of its own would give the second step as long as both have."""
    with contextlib.ExitStack() as held:
        silent = held.enter_context(scripted(lambda peer: peer.read_to_end()))
        late = redirect(silent.url())._replace(wait=DEADLINE / 2)
        start = held.enter_context(http_server({"/": late}))
        words = ("-L", "-m", DEADLINE, "--json", "-", start.url())
        result = run_tool(*words, within=first())
    steps = result.json()["steps"]
    step = steps[1]
    assert result.code == 75 and steps[0]["response"]["status"] == 302
    assert step["error"]["kind"] == "timeout" and step["error"]["phase"] in ("connect", "wait")
    begun, last = (parse_instant(each["started_at"]) for each in steps)
    lasted = (last - begun).total_seconds() * 1000 + step["timing"]["total_ms"]  # and what is between steps
    assert lasted >= DEADLINE * 1000 - 20
    advice = r"What came before left wait only \d+(\.\d)? ms of that time: look there first; or give it "
    assert re.match(advice, step["error"]["hint"])


# --- where a request gets no further --------------------------------------------------------------

PHASES = {"dns": "dns", "connect": "connect", "tls": "tls", "tunnel": "connect", "socks": "connect"}
PHASES.update(wait="wait", upload="wait", xfer="xfer")
"""By the place where a request gets stuck, the phase that this is."""
NEEDS = {"dns": ["root"], "socks": ["socks"], "h2": ["h2"]}
PLACES = [pytest.param(place, marks=pytest.mark.needs("linux", *NEEDS.get(place, []))) for place in PHASES]
OK = b"HTTP/1.1 200 OK\r\n"


class Stuck:
    """Peers that get a program stuck at a place, and the settings and options by which it goes there."""

    def __init__(self, held, folder):
        self.held, self.folder, self.place = held, folder, ""
        self.settings = {"env": {"no_proxy": "127.0.0.1,silent.test"}, "within": first()}
        self.options, self.met = [], threading.Event()
        self.late = PATIENCE  # of the name server (s)

    def to(self, place, script=None, tls=None):
        """Start a peer, whose script may be another than silence; return the URL that leads there."""
        self.place = place
        self.met.clear()
        if place == "dns":
            self.names = self.held.enter_context(dns_server({"silent.test": ["127.0.0.1"]}, delay=self.late))
            self.settings["within"] = [*with_resolver(self.names.address, self.folder), *first()]
            return "http://silent.test/"
        if place == "connect":
            self.hole = self.held.enter_context(black_hole())
            return f"http://127.0.0.1:{self.hole}/"
        server = self.held.enter_context(scripted(script or partial(self.stop, place), tls=tls))
        if place == "upload":
            (self.folder / "body").write_bytes(bytes(20_000_000))
            self.options = ["-d", f"@{self.folder / 'body'}"]
        if place == "tunnel":
            self.settings["env"]["https_proxy"] = server.url("")
        if place == "socks":
            self.settings["env"]["http_proxy"] = f"socks5h://{server.authority}"
        urls = {"tunnel": "https://a.test/", "socks": "http://a.test/", "tls": f"https://{server.authority}/"}
        return urls.get(place, server.url())

    def stop(self, place, peer):
        """Read what comes first, and then say nothing, or no more than a part."""
        peer.sock.recv(1000)
        peer.send(OK + b"Content-Length: 9\r\n\r\nhalf" if place == "xfer" else b"")
        self.met.set()
        peer.wait(PATIENCE)

    def wait_for(self, process):
        """Wait until a program hangs there."""
        give_up = time.monotonic() + PATIENCE
        while not self.holds():
            assert time.monotonic() < give_up and process.poll() is None, "it did not get there"
            time.sleep(0.01)
        time.sleep(0.1)  # what has come is there before its sender has noted that it is sent

    def holds(self):
        if self.place == "dns":
            return ("silent.test", "A") in self.names.questions
        if self.place == "connect":
            return f":{self.hole:04X} 02 " in Path("/proc/net/tcp").read_text()  # SYN_SENT
        return self.met.is_set()


@pytest.fixture
def stuck(tmp_path):
    with contextlib.ExitStack() as held:
        yield Stuck(held, tmp_path)


def end_by(process, *numbers):
    """Send signals to a program; prove that it ends at once by the first of them, and return what it said."""
    sent = time.monotonic()
    process.send_signal(signal.SIGSTOP)  # so that all of them are there when it comes to them
    for number in (*numbers, signal.SIGCONT):
        process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, time.monotonic() - sent < 0.3) == (128 + numbers[0], True)
    return out.decode(), err.decode()


@pytest.mark.parametrize("place", PLACES)
def test_a_signal_ends_a_run_at_once_wherever_it_is(start_tool, stuck, place):
    said = rf"httphases: stopped in {PHASES[place]} after [\d.]+ m?s( \(127.* port \d+.*\))?\n"
    for number in (signal.SIGINT, signal.SIGTERM):
        url = stuck.to(place)
        process = start_tool(*stuck.options, url, **stuck.settings)
        stuck.wait_for(process)
        out, err = end_by(process, number)
        assert out == "" and re.fullmatch(said, err)


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGINT, signal.SIGTERM]], ids=["one", "two"])
@pytest.mark.parametrize("place", PLACES)
def test_a_signal_ends_a_series_at_once_wherever_it_is_and_keeps_what_was_measured(
    start_tool, stuck, tmp_path, place, numbers
):
    """The first run is good, the second is led to where it hangs. A second one leaves no time to report."""
    files = [tmp_path / "out.json", tmp_path / "out.prom"]
    with http_server({"/": every(Reply(), redirect(stuck.to(place), 307))}) as server:
        words = ["-L", "--metrics-only", "--json", files[0], "--prometheus", files[1], "--count", 9]
        words += ["--interval", 0, *stuck.options, server.url()]
        process = start_tool(*words, **stuck.settings)
        stuck.wait_for(process)
        out, err = end_by(process, *numbers)
    assert (len(server.requests), err) == (2, "")
    assert [path.exists() for path in files] == [len(numbers) == 1] * 2
    assert ("runs=1 " in out) == (len(numbers) == 1)


@pytest.mark.needs("linux", "root", "socks")
def test_a_series_goes_on_after_a_timeout_in_any_phase_and_nothing_is_left_of_it(start_tool, stuck, tmp_path):
    """A lookup is answered when its run is over, and then it is over too."""
    places, path = [place for place in PHASES if place != "upload"], tmp_path / "out.json"
    limit, interval = 0.3, 0.5
    stuck.late = limit + 0.1
    replies = [redirect(stuck.to(place)) for place in places] * 3
    with http_server({"/": every(*replies, Reply())}) as server:
        words = ("-L", "-m", limit, "--count", len(replies) + 1, "--interval", interval, "--json", path)
        process = start_tool(*words, "--metrics-only", server.url(), **stuck.settings)
        held, said = [], [b""]
        for _ in replies:
            while said.append(process.stdout.readline()) or b" error=timeout" not in said[-1]:
                assert said[-1], said
            time.sleep(0.1)
            held.append([len(os.listdir(f"/proc/{process.pid}/{each}")) for each in ("fd", "task")])
        process.communicate(timeout=PATIENCE)
    *runs, good = check_document(json.loads(path.read_text()))["runs"]
    met = {(at, run["steps"][-1]["error"]["phase"]) for at, run in zip(places * 3, runs) if run["steps"][1:]}
    assert met == {(place, PHASES[place]) for place in places}, "in step 2, where a busy machine got that far"
    begun = [parse_instant(run["started_at"]).timestamp() for run in (*runs, good)]
    pauses = [later - sooner for sooner, later in zip(begun, begun[1:])]
    assert good["steps"][0]["error"] is None and interval - 0.02 < median(pauses) < interval + 0.1, pauses
    assert all(min(each[-len(places) :]) <= min(each[: len(places)]) for each in zip(*held)), held


# --- what is sent when the time is over -----------------------------------------------------------


@pytest.mark.needs("linux", "root")
def test_at_the_deadline_no_other_address_is_tried(run_tool):
    """The first is silent, and the second would be asked a quarter of a second after it."""
    zone = {"two.test": ["127.0.0.2", "127.0.0.3"]}
    with dns_server(zone) as names, black_hole("127.0.0.2") as port, contextlib.ExitStack() as held:
        other = held.enter_context(scripted(Peer.read_request, host="127.0.0.3", port=port))
        words = ("-m", 0.1, "-d", "x", "--json", "-", other.url(host="two.test"))
        result = run_tool(*words, resolver=names.address, within=first())  # the lookup takes no part of 0.1 s
        time.sleep(1)
    assert other.accepted == 0
    assert failure(result, "timeout", "connect")["timing"]["total_ms"] == 100


@pytest.mark.needs("linux", "root")
def test_a_lookup_that_ends_after_the_deadline_leads_to_no_connection(run_tool, server):
    with dns_server({"late.test": ["127.0.0.2", "127.0.0.1"]}, delay=0.6) as names:
        words = ("--count", 2, "--interval", 1, "-m", 0.2, "--json", "-", server.url(host="late.test"))
        result = run_tool(*words, resolver=names.address, within=first())
    errors = [run["steps"][0]["error"] for run in result.json()["runs"]]
    assert [(error["kind"], error["phase"]) for error in errors] == [("timeout", "dns")] * 2
    assert server.accepted == 0


SLOW_STORE = """
import ssl, time
load = ssl.SSLContext.load_verify_locations
def load_slowly(*words, **more):
    time.sleep(1)
    return load(*words, **more)
ssl.SSLContext.load_verify_locations = load_slowly
"""


def test_a_step_that_was_not_ready_at_the_deadline_is_never_sent(run_tool, tls, authority, tmp_path):
    """The certificates to trust lie on a slow disk. The next run begins when it could have been sent."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_STORE)
    with http_server(tls=tls) as second, http_server({"/": redirect(second.url())}) as start:
        words = ("-L", "-m", 0.5, "--count", 2, "--interval", 2, "--cacert", authority.file, "--json", "-")
        result = run_tool(*words, start.url(), env={"PYTHONPATH": str(tmp_path)})
    late = result.json()["runs"][0]
    assert late["steps"][1]["error"]["kind"] == "timeout"
    assert len(second.requests) <= 1, "of the second run, which finds them read"


# --- peers that never stop ------------------------------------------------------------------------

LIMIT = 0.5
BYTE = 0.01
"""Seconds from a byte to the next."""


def after_http2(start, unit, pause=BYTE):
    """Make a script that reads the head of a request over HTTP/2, and then sends `unit` for ever."""
    return flood(start, unit, pause, first=lambda peer: Conversation(peer).read_head())


def agree_slowly(peer):
    """Be a SOCKS5 proxy that connects from an address of 255 bytes."""
    for answer in (b"\5\0", b"\5\0\0\3\xff" + bytes(257)):
        peer.sock.recv(1000)
        peer.drip(answer, 0.05)


def read_slowly(peer):
    while peer.sock.recv(4096) and not peer.wait(BYTE):
        pass


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BODY = flood(OK + b"\r\n", b"x" * 65536, first=lambda peer: peer.sock.recv(1000))
ENDLESS = {
    "the status line": ("wait", "wait", "", flood(b"HTTP/1.1 200 ", b"y", BYTE)),
    "chunk sizes": ("xfer", "wait", "", flood(CHUNKED + b"1;", b"x", BYTE)),
    "a body": ("xfer", "wait", "", BODY),
    "a body over TLS": ("xfer", "wait", "https", BODY),
    "chunks of a byte": ("xfer", "wait", "", flood(CHUNKED, b"1\r\nx\r\n" * 9000)),
    "records of a byte": ("xfer", "wait", "https", flood(OK + b"\r\n", b"x")),
    "DATA": ("xfer", "wait", "h2", after_http2(settings() + head(), frame(DATA, b"x" * 16384), 0)),
    "an answer to a request that is not read": ("xfer", "upload", "", BODY),
    "an upload, read slowly": ("wait", "upload", "", read_slowly),
    "an upload, not read": ("wait", "upload", "", lambda peer: peer.wait(PATIENCE)),
    "an upload over TLS": ("wait", "upload", "https", lambda peer: peer.wait(PATIENCE)),
    "an upload, a byte a window": ("wait", "upload", "h2", after_http2(settings((4, 0)), window(1))),
    "a handshake": ("tls", "tls", "", None),
    "a tunnel": ("connect", "tunnel", "", flood(OK + b"X: ", b"y", BYTE)),
    "SOCKS": ("connect", "socks", "", agree_slowly),
    "PING": ("wait", "wait", "h2", after_http2(settings(), PINGED)),
    "SETTINGS": ("wait", "wait", "h2", after_http2(b"", settings())),
    "frames without end": ("wait", "wait", "h2", after_http2(b"", settings() + window(1, 0) * 9000, 0)),
    "empty DATA": ("xfer", "wait", "h2", after_http2(settings() + head(), frame(DATA) * 9000, 0)),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_ends_at_the_deadline(run_tool, authority, tls, stuck, name):
    """A busy machine wakes the program up later, but not each time."""
    phase, place, over, script = ENDLESS[name]
    if not all(map(has, NEEDS.get(place, []) + NEEDS.get(over, []))):
        pytest.skip("needs h2 or socks")
    script, begun = script or (lambda peer: peer.drip(Handshake(peer, tls).flight(), BYTE)), []

    def serve(peer):
        begun.append(time.monotonic())
        script(peer)

    url = stuck.to(place, serve, {"https": tls, "h2": http2_context(authority)}.get(over))

    def late():
        result = run_tool("-k", "-m", LIMIT, "--json", "-", *stuck.options, url, **stuck.settings)
        ended = time.monotonic()
        assert failure(result, "timeout", phase)["timing"]["total_ms"] == LIMIT * 1000
        return ended - begun[-1] - LIMIT

    assert any(late() < 0.3 for _ in range(3))


@pytest.mark.needs("linux")
def test_an_answer_that_came_in_time_counts_though_the_program_slept(start_tool):
    def script(peer):
        peer.read_request()
        process.send_signal(signal.SIGSTOP)
        peer.wait(0.1)  # the kernel begins a little later to date what comes
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        peer.wait(0.7)
        process.send_signal(signal.SIGCONT)
        peer.read_to_end()  # a FIN could join the segment before it, which would have the time of the FIN

    with scripted(script) as server:
        process = start_tool("--json", "-", "-m", 0.5, server.url())
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err.decode()
    assert check_document(json.loads(out))["summary"]["total_time_ms"] < 500, "the kernel knows when it came"
