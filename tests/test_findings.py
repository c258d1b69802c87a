"""What the times mean: each rule is provoked by real packets on a path with a round trip, and just missed.

Where no network of one's own is allowed, the rules are still tried on what was recorded on such paths.
HTTPHASES_TEST_MATRIX=full tries every healthy request, which takes some minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from datetime import datetime, timezone
from typing import Any, NamedTuple

import pytest

from checks import flat
from conftest import PATIENCE
from inside import tool
from paths import ANY, FAR, OTHERS, Rule, path, silent
from servers import Reply, dns_server, http2_server, http_server, redirect, scripted

RTT = 0.04
HEALTHY = {"setup", "tls12", "slow_start wait", "slow_start xfer"}
"""What a healthy request may be said to be."""
TRIES = 8
"""A machine that is short of CPUs has slow servers too: what is to be silent may be asked so often."""
on_a_path = pytest.mark.needs("root", "linux")


class Lab:
    """A path with a round trip of `RTT`, and the ways to ask across it."""

    def __init__(self, run_tool: Any, authority: Any, folder: Any) -> None:
        self.run_tool, self.authority, self.folder = run_tool, authority, folder
        self.open = contextlib.ExitStack()
        self.way: Any = None

    def start(self, round_trip: float = RTT, **settings: str) -> Lab:
        folder = self.folder / "path"
        folder.mkdir()
        names = {name.replace("__", "/"): value for name, value in settings.items()}
        self.way = self.open.enter_context(path(folder, round_trip, settings=names))
        return self

    def serve(self, server: Any) -> Any:
        return self.open.enter_context(self.way.far(server))

    def http(self, *routes: tuple[str, Reply], **settings: Any) -> str:
        """Start a server at the far end, plain unless `tls` is given; return the URL of its root."""
        server = self.serve(http_server(dict(routes or [("/", SMALL)]), host=ANY, **settings))
        return server.url("", FAR)

    def tls(self, *names: str, version: Any = None, curve: str | None = None) -> ssl.SSLContext:
        context = self.authority.context(FAR, *names)
        if version:
            context.maximum_version = version
        if curve:
            context.set_ecdh_curve(curve)
        return context

    def ask(self, *arguments: Any, code: int = 0) -> dict[str, Any]:
        """Ask from the near end; return the JSON document."""
        trust = ["--cacert", self.authority.file] if "https://" in str(arguments) else []
        result = self.run_tool("--json", "-", *trust, *arguments, within=self.way.near)
        assert result.code == code, result.err
        return result.json()

    def read(self, *arguments: Any, code: int = 0) -> dict[str, dict[str, Any]]:
        """Ask, and return the findings of the last step by id."""
        return by_id(self.ask(*arguments, code=code)["steps"][-1])

    def finds(self, expected: Expected, *arguments: Any, code: int = 0) -> dict[str, dict[str, Any]]:
        """Prove that asking finds what is expected; return all findings."""
        return self.agree(expected.objections, lambda: self.read(*arguments, code=code))

    def misses(self, *unwanted: str, ask: Any) -> dict[str, dict[str, Any]]:
        """Prove that what `ask()` asks for is not said to be what it is not."""
        return self.agree(lambda found: set(unwanted) & set(found), ask)

    def agree(self, objections: Any, ask: Any) -> Any:
        """Return what `ask()` finds without objections, of some tries, or fail; not on a starved machine."""
        for _ in range(TRIES):
            found = ask()
            wrong = objections(found)
            if not wrong:
                return found
        if "starved" in found:
            pytest.skip(f"this machine is too short of CPUs to tell: {found['starved']['cost_ms']} ms")
        raise AssertionError((wrong, found))


class Expected(NamedTuple):
    """A finding that costs about `cost` ms, no less and little more, and what it says."""

    name: str
    certainty: str
    cost: float
    words: tuple[str, ...]

    def objections(self, found: dict[str, dict[str, Any]]) -> list[Any]:
        """List what is not as expected."""
        if self.name not in found:
            return [self.name, found]
        finding = found[self.name]
        fits = self.cost * 0.95 - 1 <= finding["cost_ms"] <= self.cost * 1.3 + 30
        same = fits and finding["certainty"] == self.certainty
        return [word for word in self.words if word not in finding["text"]] + ([] if same else [finding])


def costs(name, certainty, cost, *words):
    return Expected(name, certainty, cost, words)


SMALL = Reply(body=b"x" * 10)


def by_id(step: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return findings by id; those that several phases may have, with their phase."""
    return {named(finding["id"], finding["phase"]): finding for finding in step["findings"]}


def named(name: str, phase: str | None) -> str:
    return f"{name} {phase}" if name in ("loss", "slow_start", "nagle") else name


@pytest.fixture
def lab(run_tool, authority, tmp_path):
    """Give a laboratory whose path `start` opens."""
    made = Lab(run_tool, authority, tmp_path)
    with made.open:
        yield made


# --- connect --------------------------------------------------------------------------------------


@on_a_path
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_lost_syn_or_its_answer_is_seen(lab, way):
    url = lab.start().http()
    lab.way.change(rules=[Rule(way, "syn")])
    words = ("the SYN had to be sent again, once", "lost or late", "a full listen queue")
    lab.finds(costs("loss connect", "seen", 1000, *words), url + "/")
    lab.way.change(rules=[Rule(way, "syn", action="late", amount=0.3)])
    assert "loss connect" not in lab.read(url + "/"), "which is not lost"


ADDRESSES = {
    "two.test": [OTHERS[0], FAR],
    "six.test": ["2001:db8::9", FAR],
    "far.test": [FAR],
    "first.test": [FAR, OTHERS[0]],
}


FAILED_ADDRESSES = {
    "silent": (
        "two.test",
        silent(OTHERS[0]),
        (250, f"{OTHERS[0]} gave no answer", f"{FAR} (IPv4) was used", "do not race"),
    ),
    "refusing": (
        "two.test",
        [Rule("up", "syn", action="refuse", address=OTHERS[0])],
        (RTT * 1000, f"{OTHERS[0]}: connection refused"),
    ),
    "a silent family": (
        "six.test",
        silent("2001:db8::9"),
        (250, "2001:db8::9 gave no answer", "(IPv4) was used"),
    ),
}


@on_a_path
@pytest.mark.needs("ipv6")
@pytest.mark.parametrize("name", FAILED_ADDRESSES)
def test_an_address_that_failed_is_named(lab, name):
    host, rules, expected = FAILED_ADDRESSES[name]
    port = lab.start().http().rpartition(":")[2]
    lab.way.name_servers(lab.serve(dns_server(ADDRESSES)).address)
    lab.way.change(rules=rules)
    findings = lab.finds(costs("address_failed", "seen", *expected), f"http://{host}:{port}/")
    assert ("race" in findings["address_failed"]["text"]) == (name != "refusing")
    assert "address_failed" not in lab.read(f"http://first.test:{port}/")


@on_a_path
def test_a_proxy_that_is_slow_to_open_the_way_is_seen(lab):
    lab.start()
    context = lab.tls("slow.test", "quick.test")

    def script(peer):
        peer.wait(0.25 if b"slow.test" in peer.read_until(b"\r\n\r\n") else 0)
        peer.send("HTTP/1.1 200 Connected\r\n\r\n")
        peer.secure(context)
        peer.read_request()
        peer.send("HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nhi")

    proxy = lab.serve(scripted(script, host=ANY)).url("", FAR)
    slow = costs("proxy", "seen", 290, "TCP to it stood after")
    lab.finds(slow, "-x", proxy, "https://slow.test/")
    # A quick one takes a round trip for TCP and one for CONNECT, which is half, and none of its doing.
    lab.misses("proxy", ask=lambda: lab.read("-x", proxy, "https://quick.test/"))


@on_a_path
def test_a_proxy_that_opens_no_way_is_not_said_to_have_opened_it(lab):
    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.wait(0.25)
        peer.send("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    proxy = lab.start().serve(scripted(script, host=ANY)).url("", FAR)
    finding = lab.read("-x", proxy, "https://any.test/", code=75)["proxy"]
    assert finding["cost_ms"] >= 250 and "did not open the way in this time" in finding["text"]


@on_a_path
def test_behind_a_proxy_nothing_is_made_of_the_round_trip(lab):
    url = lab.start().http(("/", Reply(body=b"x", wait=0.3)))
    lab.misses(*KNOWN, ask=lambda: lab.read("-x", url, "http://a.test/"))


# --- dns ------------------------------------------------------------------------------------------


@on_a_path
def test_name_servers_that_do_not_answer_are_counted(lab):
    port = lab.start().http().rpartition(":")[2]
    good = lab.serve(dns_server(ADDRESSES)).address
    lab.way.change(rules=[*silent(OTHERS[0]), *silent(OTHERS[1])])
    lab.way.name_servers(OTHERS[0], OTHERS[1], good)
    words = ("fits 2 time-outs of 1 s: a name server gave no usable answer", OTHERS[0], good)
    found = lab.finds(costs("resolver_timeout", "fits", 2000, *words), f"http://far.test:{port}/")
    assert "slow_lookup" not in found


@on_a_path
def test_a_failed_lookup_says_that_nobody_answered(lab):
    lab.start().way.name_servers(OTHERS[0], options="timeout:1 attempts:1")
    lab.way.change(rules=silent(OTHERS[0]))
    words = f"a time-out of 1 s: a name server gave no usable answer in time ({OTHERS[0]})"
    lab.finds(costs("resolver_timeout", "fits", 1000, words), "http://far.test/", code=75)


@on_a_path
def test_a_slow_resolver_is_named_in_place_of_what_it_is_part_of(lab):
    port = lab.start().http().rpartition(":")[2]
    server = lab.serve(dns_server(ADDRESSES, delay=0.2))
    lab.way.name_servers(server.address)
    words = (f"the resolver ({server.address}) took 2", "may have asked others")
    found = lab.finds(costs("slow_lookup", "seen", 200, *words), f"http://far.test:{port}/")
    assert found["slow_lookup"]["phase"] == "dns"
    assert "setup" not in found, "which explains no more"
    lab.misses(*KNOWN, ask=lambda: lab.read(f"http://{FAR}:{port}/"))
    lab.way.name_servers(server.address, OTHERS[0])
    words = f"the resolver ({server.address}, {OTHERS[0]}) took 2"
    lab.finds(costs("slow_lookup", "seen", 200, words), f"http://far.test:{port}/")


@on_a_path
def test_a_failed_lookup_may_be_slow_too_and_a_quick_one_is_not(lab):
    lab.start()
    slow, quick = (lab.serve(dns_server({}, delay=delay)) for delay in (0.2, 0.06))
    lab.way.name_servers(slow.address)
    lab.finds(costs("slow_lookup", "seen", 200, slow.address), "http://none.test/", code=75)
    lab.way.name_servers(quick.address)
    lab.misses("slow_lookup", ask=lambda: lab.read("http://none.test/", code=75))


@on_a_path
def test_a_lookup_that_the_deadline_ended_fits_nothing(lab):
    lab.start().way.name_servers(OTHERS[0], options="timeout:1 attempts:3")
    lab.way.change(rules=silent(OTHERS[0]))
    assert lab.read("-m", 1.05, "http://far.test/", code=75) == {}


# --- tls ------------------------------------------------------------------------------------------


@on_a_path
def test_tls_1_2_costs_a_round_trip(lab):
    lab.start()
    old = lab.http(tls=lab.tls(version=ssl.TLSVersion.TLSv1_2))
    lab.finds(costs("tls12", "seen", RTT * 1000, "TLS 1.2 takes a round trip more"), old + "/")
    assert "tls12" not in lab.read(lab.http(tls=lab.tls()) + "/")


def many_names(count):
    return [f"name-{number:04d}.some.long.example.test" for number in range(count)]


@on_a_path
def test_a_large_certificate_costs_round_trips(lab):
    lab.start()
    url = lab.http(tls=lab.tls(*many_names(600)))
    words = ("more than its round trips: its 21 kB", "do not fit the server's first window")
    lab.finds(costs("tls_slow", "fits", RTT * 1000, *words), url + "/")
    small = lab.http(tls=lab.tls(*many_names(200)))
    lab.misses("tls_slow", ask=lambda: lab.read(small + "/"))


@on_a_path
@pytest.mark.parametrize(("trip", "version"), [(0, ssl.TLSVersion.TLSv1_3), (RTT, ssl.TLSVersion.TLSv1_2)])
def test_a_server_that_is_slow_to_shake_hands_fits(lab, version, trip):
    """On a path of next to nothing, too, where it is not only setting up."""
    lab.start(trip)
    context = lab.tls(version=version)
    words = ("about", "the server, or a box in between", "or its answer was lost")
    slow = costs("tls_slow", "fits", 300, *words)
    assert "setup" not in lab.finds(slow, lab.http(tls=context, tls_delay=0.3) + "/")
    url = lab.http(tls=context, tls_delay=0.03)
    lab.misses("tls_slow", ask=lambda: lab.read(url + "/"))


@on_a_path
def test_a_lost_segment_of_the_handshake_is_seen(lab):
    url = lab.start().http(tls=lab.tls())
    lab.way.change(rules=[Rule("up", "data")])
    words = ("1 segment had to be sent again: loss or reordering", "may be the server's own time")
    assert "tls_slow" not in lab.finds(costs("loss tls", "seen", 240, *words), url + "/")


@on_a_path
def test_a_process_that_was_stopped_does_not_blame_the_server(lab, start_tool):
    """What comes while it is stopped has come: the kernel knows since when."""
    lab.start()
    context = lab.tls()
    processes: list[subprocess.Popen] = []
    stopped = threading.Event()

    def script(peer):
        peer.sock.recv(1, socket.MSG_PEEK)  # the ClientHello has left: from here on it has to wait for us
        os.kill(processes[0].pid, signal.SIGSTOP)
        stopped.set()
        peer.secure(context)
        peer.read_request()
        peer.send("HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nhi")

    server = lab.serve(scripted(script, host=ANY))
    url = server.url("/", FAR).replace("http:", "https:")

    def ask():
        stopped.clear()
        process = start_tool("--json", "-", "--cacert", lab.authority.file, url, within=lab.way.near)
        processes[:] = [process]
        assert stopped.wait(PATIENCE)
        threading.Event().wait(0.5)
        os.kill(process.pid, signal.SIGCONT)
        out, err = process.communicate(timeout=PATIENCE)
        step = json.loads(out)["steps"][0]
        assert step["timing"]["tls_ms"] > 400, err
        return by_id(step)

    lab.misses("tls_slow", ask=ask)


# --- wait -----------------------------------------------------------------------------------------


@on_a_path
@pytest.mark.parametrize(("trip", "secure"), [(0, False), (RTT, False), (RTT, True)])
def test_a_server_that_thinks_is_told_from_the_path(lab, trip, secure):
    claims = [("Server-Timing", 'cache;desc="a, b;dur=9";dur=2.5'), ("server-timing", "db;dur=240.1, miss")]
    replies = [("/", Reply(body=b"x", wait=0.3, headers=claims)), ("/quick", Reply(wait=0.03))]
    url = lab.start(trip).http(*replies, tls=lab.tls() if secure else None)
    own = "it accounts for 240 ms itself (db)"
    words = (
        ("took about 3", f"{own}; the path's round trip is 4") if trip else ("took all of it (about 30", own)
    )
    lab.finds(costs("server", "fits", 300, *words), url + "/")
    lab.misses("server", ask=lambda: lab.read(url + "/quick"))


LATE = Rule("up", "data", action="late", amount=0.3)
LOST_REQUESTS = {
    "over TLS": (True, Rule("up", "data", 3), 240, 0, "1 segment had to be sent again"),
    "three times": (False, Rule("up", "data", times=3), 1000, 0, "3 segments had to be sent again"),
    "to a slow server": (False, Rule("up", "data"), 470, 0.23, "may be the server's own time"),
    "late": (False, LATE, 440, 0.2, "1 segment had to be sent again"),
}


@on_a_path
@pytest.mark.parametrize("name", LOST_REQUESTS)
def test_a_lost_request_is_seen_and_no_server_is_blamed_for_it(lab, name):
    secure, rule, cost, wait, words = LOST_REQUESTS[name]
    url = lab.start().http(("/", SMALL._replace(wait=wait)), tls=lab.tls() if secure else None)
    lab.way.change(rules=[rule])
    assert "server" not in lab.finds(costs("loss wait", "seen", cost, words), url + "/")


@on_a_path
def test_a_request_that_nobody_acknowledges_is_seen_in_a_failed_step(lab):
    url = lab.start().http()
    lab.way.change(rules=[Rule("up", "data", times=9)])
    findings = lab.read("-m", 1, url + "/", code=75)
    assert "segments had to be sent again" in findings["loss wait"]["text"]
    assert "own time" not in findings["loss wait"]["text"] and "server" not in findings


@on_a_path
@pytest.mark.parametrize("secure", [False, True])
def test_a_body_takes_round_trips_to_leave(lab, secure):
    url = lab.start().http(("/", SMALL), ("/slow", Reply(wait=0.3)), tls=lab.tls() if secure else None)
    body = lab.folder / "body"
    body.write_bytes(b"x" * 60_000)
    fit = costs("slow_start wait", "fits", 2 * RTT * 1000, "fits 3 round trips of slow start")
    lab.finds(fit, "-d", f"@{body}", url + "/")
    lab.misses("slow_start wait", "server", ask=lambda: lab.read("-d", f"@{body}", url + "/slow"))
    assert "slow_start wait" not in lab.read("-d", "x" * 1000, url + "/")


# --- xfer -----------------------------------------------------------------------------------------

LARGE = Reply(body=b"x" * 100_000)


@on_a_path
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("action", ["drop", "late"])
def test_loss_and_reordering_of_a_body_are_seen(lab, secure, action):
    url = lab.start().http(("/", LARGE), tls=lab.tls() if secure else None)
    lab.way.change(rules=[Rule("down", "data", 8, action, 0.02)])
    # After a loss the window is halved for all that follows; what that costs is not counted.
    words = "some of what came was late, behind what follows it: loss or reordering on the way"
    found = lab.finds(
        costs("loss xfer", "seen", 2 * RTT * 1000 if action == "drop" else 20, words), url + "/"
    )
    assert not {"slow_start xfer", "slow_body", "stalled"} & set(found)


FLIGHT = Reply(body=b"x" * 13_900)
"""As much as the first flight of a connection holds: it comes at once, but for what is lost of it."""


@on_a_path
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("place", [2, 4])
def test_a_segment_lost_in_the_only_flight_is_in_xfer(lab, secure, place):
    """What comes behind it waits in this machine, stamped with its own arrival."""
    reply = FLIGHT._replace(body=FLIGHT.body[: 10_000 if secure else None])
    tls = lab.tls(version=ssl.TLSVersion.TLSv1_2) if secure else None
    url = lab.start().http(("/", reply), tls=tls)
    whole = lab.agree(lambda step: step["timing"]["xfer_ms"] >= 20, lambda: lab.ask(url + "/")["steps"][0])
    assert "loss xfer" not in by_id(whole)
    lab.way.change(rules=[Rule("down", "data", place + 3 * secure, "late", 0.03)])
    # The path itself may be late with the first byte.
    late = lab.agree(lambda step: step["timing"]["xfer_ms"] < 20, lambda: lab.ask(url + "/")["steps"][0])
    assert "loss xfer" in by_id(late)


@on_a_path
@pytest.mark.parametrize("action", ["drop", "late"])
def test_what_was_lost_before_the_first_byte_is_not_the_download(lab, action):
    """Its loss lies in wait; that the body takes long is the server's doing."""

    def pausing(peer):
        peer.read_request()
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 13901\r\n\r\n" + "x" * 13_900)
        peer.wait(0.5)
        peer.send("x")

    server = lab.start().serve(scripted(pausing, host=ANY))
    lab.way.change(rules=[Rule("down", "data", 1, action, 0.02)])
    step = lab.ask(server.url("/", FAR))["steps"][0]
    assert "loss xfer" not in by_id(step)
    assert step["timing"]["wait_ms"] >= RTT * 1000 + 10


@on_a_path
@pytest.mark.parametrize("secure", [False, True])
def test_slow_start_is_told_from_a_slow_sender(lab, secure):
    replies = [("/", LARGE), ("/halves", LARGE._replace(xfer=0.3))]
    url = lab.start().http(*replies, tls=lab.tls() if secure else None)
    trips = 3 if secure else 2
    words = (f"fits {trips} round trips of slow start", "would look alike")
    lab.finds(costs("slow_start xfer", "fits", trips * RTT * 1000, *words), url + "/")
    assert not {"slow_start xfer", "loss xfer"} & set(lab.read(url + "/halves"))


class Writing(NamedTuple):
    """How a server writes head and body: at once or `pause` s apart, without Nagle's algorithm or with it."""

    at_once: bool = False
    no_delay: bool = False
    pause: float = 0.0
    body: bytes = b"x" * 10
    think: float = 0.0
    tls: ssl.SSLContext | None = None

    def answer(self, peer: Any) -> None:
        peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, self.no_delay)
        if self.tls:
            peer.secure(self.tls)
        while peer.read_request():
            peer.wait(self.think)
            head = b"HTTP/1.1 200 Fine\r\nContent-Length: %d\r\n\r\n" % len(self.body)
            pieces = [head + self.body] if self.at_once else [head, self.body]
            for piece in pieces:
                peer.send(piece)
                peer.wait(self.pause)

    def serve(self, lab: Lab) -> str:
        url = lab.serve(scripted(self.answer, host=ANY)).url("/", FAR)
        return url.replace("http:", "https:") if self.tls else url


def read_warm(lab: Lab, url: str) -> dict[str, dict[str, Any]]:
    """Ask three times on one connection; return what was found in the last two times alike."""
    runs = lab.ask("--reuse", "--count", 3, "--interval", 0, url)["runs"]
    steps = [run["steps"][0] for run in runs]
    assert [step["network"]["reused"] for step in steps] == [False, True, True]
    second, third = (by_id(step) for step in steps[1:])
    return {name: finding for name, finding in third.items() if name in second}


@on_a_path
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("trip", [0, 0.01])
def test_a_body_that_waits_for_an_acknowledgement_is_found(lab, trip, secure):
    lab.start(trip)
    url = Writing(tls=lab.tls() if secure else None).serve(lab)
    expected = costs("nagle xfer", "fits", 40, "Nagle", "40 ms", "TCP_NODELAY", "would look alike")
    lab.agree(expected.objections, lambda: read_warm(lab, url))


@on_a_path
@pytest.mark.parametrize("trip", [0, 0.005])
def test_an_answer_that_waits_for_the_acknowledgement_of_session_tickets_is_found(lab, trip):
    lab.start(trip)
    words = ("Nagle", "its session tickets, after 40 ms", "would look alike, --reuse tells")
    expected = costs("nagle wait", "fits", 40, *words)
    assert "server" not in lab.finds(expected, Writing(tls=lab.tls()).serve(lab))


SWIFT = {
    "one write": (0.01, Writing(at_once=True)),
    "a pause that is shorter": (0, Writing(no_delay=True, pause=0.025)),
    "a pause that is longer": (0, Writing(no_delay=True, pause=0.06)),
    "two full segments, which are acknowledged at once": (0.01, Writing(body=b"x" * 3000)),
    "a longer path": (0.03, Writing()),
}


@on_a_path
@pytest.mark.parametrize("name", SWIFT)
def test_a_body_that_waits_for_no_acknowledgement_is_not_said_to(lab, name):
    trip, writing = SWIFT[name]
    url = writing.serve(lab.start(trip))
    lab.misses("nagle xfer", ask=lambda: read_warm(lab, url))


FRESH = {
    "a server that pauses, where the kernel acknowledges at once": (0, Writing(no_delay=True, pause=0.043)),
    "a server that thinks, and writes at once what it has": (0, Writing(no_delay=True, think=0.043)),
    "a longer path": (0.03, Writing()),
}


@on_a_path
@pytest.mark.parametrize("name", FRESH)
def test_a_new_connection_that_waits_for_no_acknowledgement_is_not_said_to(lab, name):
    """On a busy machine the kernel may be late, and then a server that pauses looks alike."""
    trip, writing = FRESH[name]
    lab.start(trip)
    for tls in (None, lab.tls()):
        url = writing._replace(tls=tls).serve(lab)
        names = ["nagle wait"] if tls else ["nagle wait", "nagle xfer"]
        lab.misses(*names, ask=lambda url=url: lab.read(url))


# --- the whole ------------------------------------------------------------------------------------


@on_a_path
def test_setting_up_is_most_of_a_small_answer(lab):
    lab.start()
    url = lab.http(("/", SMALL), ("/slow", Reply(wait=0.3)), ("/gone", Reply(410)), tls=lab.tls())
    warm = costs("setup", "seen", 2 * RTT * 1000, "on a warm connection the request would take about 4")
    lab.finds(warm, url + "/")
    for other in ("/slow", "/gone"):
        lab.misses("setup", ask=lambda other=other: lab.read(url + other))


@on_a_path
def test_redirects_are_counted_for_the_whole_chain(lab):
    replies = {"/": redirect("/2"), "/2": redirect("/3"), "/3": SMALL, "/1": redirect("/slow")}
    url = lab.start().http(*replies.items(), ("/slow", Reply(wait=0.4)))
    document = lab.ask("-L", url + "/")
    (finding,) = document["summary"]["findings"]
    assert (finding["id"], finding["certainty"], finding["phase"]) == ("redirects", "seen", None)
    assert finding["cost_ms"] == round(sum(step["timing"]["total_ms"] for step in document["steps"][:2]), 3)
    assert finding["text"].startswith("2 redirects took ")
    lab.misses("redirects", ask=lambda: by_id(lab.ask("-L", url + "/1")["summary"]))


@on_a_path
def test_the_waterfall_shows_three_of_the_findings(lab):
    slow = lab.tls(*many_names(600), version=ssl.TLSVersion.TLSv1_2)
    url = lab.start().http(("/", SMALL._replace(wait=0.085)), tls=slow, tls_delay=0.04)
    files = ("--har", lab.folder / "har", "--json", lab.folder / "json", "--cacert", lab.authority.file)
    results = []

    def ask():
        results.append(lab.run_tool(*files, url + "/", within=lab.way.near))
        return by_id(results[-1].json(lab.folder / "json")["steps"][0])

    expected = {"setup", "tls12", "tls_slow", "server"}
    findings = list(lab.agree(lambda found: expected - set(found), ask).values())
    result = results[-1]
    assert json.loads((lab.folder / "har").read_text())["log"]["entries"][0]["_findings"] == findings
    shown = [finding for finding in findings if finding["id"] != "starved"]
    assert len(shown) > 3 and result.out.count("  Reading  ") == 3
    shown.sort(key=lambda finding: finding["id"] == "setup")
    places = [flat(result.out).find(finding["text"]) for finding in shown]
    assert -1 not in places[:3] and places[:3] == sorted(places[:3]), "what names a cause comes first"
    assert places[3:] == [-1] * (len(shown) - 3)
    assert result.out.index("total") < result.out.index("Reading")


# --- nothing is wrong -----------------------------------------------------------------------------

FULL = os.environ.get("HTTPHASES_TEST_MATRIX") == "full"
SIZES = (1000, 10_000, 100_000, 500_000, 2_000_000) if FULL else (1000, 200_000)


@on_a_path
@pytest.mark.needs("h2")
@pytest.mark.parametrize("trip", [0, 0.002, 0.02, 0.1, 0.3] if FULL else [0, 0.02, 0.1])
def test_a_healthy_request_is_not_said_to_be_ill(lab, trip):
    lab.start(trip)
    replies = [(f"/{size}", Reply(body=b"x" * size)) for size in SIZES]
    folder = lab.folder / "http2"
    folder.mkdir()
    http2 = lab.serve(http2_server(folder, lab.authority.certificate(FAR), host=ANY))
    urls = [lab.http(*replies), lab.http(*replies, tls=lab.tls())]
    urls.append(lab.http(*replies, tls=lab.tls(version=ssl.TLSVersion.TLSv1_2)))
    for size in SIZES:
        for url in [*(f"{url}/{size}" for url in urls), http2.url(f"/?size={size}", FAR)]:
            found = lab.misses(*KNOWN - HEALTHY, ask=lambda url=url: lab.read(url))
            print(
                f"{trip * 1000:g} ms {url}:", *(f"{key}={each['cost_ms']:g}" for key, each in found.items())
            )
            found = lab.misses(*KNOWN - HEALTHY, ask=lambda url=url: read_warm(lab, url))


@on_a_path
def test_healthy_uploads_slow_lines_and_kept_connections_are_not_said_to_be_ill(lab):
    lab.start(0.02)
    url = lab.http(("/", SMALL), ("/body", Reply(body=b"x" * 100_000)))
    body = lab.folder / "body"
    body.write_bytes(b"x" * 10_000_000)
    lab.misses(*KNOWN - HEALTHY, ask=lambda: lab.read("-d", f"@{body}", url + "/"))
    lab.way.change(rules=[Rule("down", "any", 0, "rate", 125_000)])
    lab.misses(*KNOWN - HEALTHY - {"slow_body"}, ask=lambda: lab.read(url + "/body"))
    lab.misses(*KNOWN - HEALTHY - {"slow_body"}, ask=lambda: read_warm(lab, url + "/body"))


KNOWN = set(
    "address_failed resolver_timeout search_list slow_lookup tls12 tls_slow server http2_window tcp_window "
    "stalled slow_body proxy setup".split()
)
KNOWN |= {f"loss {phase}" for phase in ("connect", "tls", "wait", "xfer")}
KNOWN |= {f"{name} {phase}" for name in ("slow_start", "nagle") for phase in ("wait", "xfer")}
"""What can be found in a step; `starved` is of the machine that runs the tests."""

# --- what was recorded ----------------------------------------------------------------------------
# Figures of runs on such paths, and of kernels that are not here; no network is needed.

COUNTERS = tool.Counters(
    segment=1448,
    segment_in=536,
    rtt_us=40_000,
    quiet_us=0,
    beyond_gap=0,
    retransmits=0,
    sent=0,
    acknowledged=0,
    received=0,
    segments_in=0,
    segments_out=1,
    acknowledgments=1,
    disorder=0,
    limited_us=0,
)


def recorded(times: str, **known: Any) -> Any:
    """Make a step from its five phases in ms, and what differs from a plain, good and direct one.

    The counters named in `connected`, `sent`, `answered` and `ended` hold from that instant on; None there
    means that the kernel told nothing.
    """
    dns, connect, tls, wait, xfer = (
        None if time == "-" else round(float(time) * 1000) for time in times.split()
    )
    counters: dict[str, Any] = {}
    counted = COUNTERS
    for instant in ("connected", "sent", "answered", "ended"):
        changes = known.pop(instant, {})
        counted = None if changes is None or counted is None else counted._replace(**changes)
        counters[instant] = counted
    version, kept = known.pop("tls", None), known.pop("kept", None)
    agreed = tool.TlsInfo(version) if version else tool.NO_TLS
    attempts = known.pop("attempts", (tool.Attempt(FAR, (connect or 0), None),))
    headers = tuple((name, value.encode()) for name, value in known.pop("headers", ()))
    response = tool.Response(known.pop("status", 200), "", known.pop("http", "HTTP/1.1"), headers)
    request = tool.Request("GET", tool.Url("http", "a.test", 80, "/"), (), None)
    proxy = tool.Proxy("http", "proxy.test", 80, None, None) if known.pop("proxy", False) else None
    evidence = {"connected_us": connect, "request_bytes": 100, **known.pop("evidence", {}), **counters}
    phases = (dns, connect, tls, wait, xfer)
    step = tool.Step(
        number=1,
        url="http://a.test/",
        request=request,
        sent_headers=(),
        route=tool.Route(proxy, None),
        started_at=datetime.now(timezone.utc),
        timing=tool.Timing(*phases, sum(phase or 0 for phase in phases), 0, None),
        network=tool.Network(None, 80, (), attempts, agreed, None, None, kept),
        response=response,
        body_bytes=0,
        interim=(),
        error=None,
        starved_us=0,
        evidence=tool.Evidence(**evidence),
    )
    return step._replace(**known)


def found(step: Any) -> set[str]:
    return {named(finding.id, finding.phase) for finding in tool.step_findings(step)}


def attempts(*each: tuple[str, float, str | None]) -> tuple[Any, ...]:
    return tuple(tool.Attempt(ip, round(ms * 1000), error) for ip, ms, error in each)


TLS13, TLS12 = "TLSv1.3", "TLSv1.2"
FAILED = tool.Failure("timeout", "wait", "no response came", "")
RESOLVER = tool.Resolver(("10.0.0.1", "10.0.0.2", "10.0.0.3"))
SIX = "2001:db8::9"

NEARBY = {"connected": {"rtt_us": 200}}
UNIX = {"connected": None, "attempts": (), "route": tool.Route(None, None, "/run/a")}
"""The kernel counts nothing on a unix socket."""


def held(connected: int = 50, answered: int = 1, **ended: int) -> dict[str, Any]:
    """Give the counters where a body waited for an acknowledgement of its head."""
    return {
        "connected": {"rtt_us": connected},
        "answered": {"segments_in": 1, "acknowledgments": answered},
        "ended": {"segments_in": 2, "acknowledgments": answered + 1, **ended},
    }


HELD = held()
PAUSE = tool.Pause(500_000, 1024, 1000)
LOST_SYN = {"connected": {"retransmits": 1}}
RESOLVED = {"evidence": {"resolver": RESOLVER}}
SEARCHED = {
    "evidence": {
        "resolver": RESOLVER._replace(search=("b.test", "c.test"), ndots=5),
        "canonical_name": "a.test",
    }
}
UPLOAD = {"answered": {"segments_out": 43}, "evidence": {"request_bytes": 60_149}}
TICKETS = {
    "tls": "TLSv1.3",
    **NEARBY,
    "answered": {"segments_in": 2, "acknowledgments": 2, "received": 667},
}


def flight(size: int) -> dict[str, Any]:
    """Give what is known where the server's side of the handshake had so many bytes."""
    return {"tls": TLS13, "sent": {"received": size}}


NOTHING: dict[str, Any] = {}


def row(times: str, *expected: str, base: Any = NOTHING, **known: Any) -> tuple[str, Any, set[str]]:
    """Make a row: the five phases in ms, what is found, and what is known; `base` is known too."""
    return times, {**base, **known}, set(expected)


RECORDED = {
    "a far server": row("0 40.9 0 41.2 0"),
    "a far server over TLS 1.2": row("0 40.4 84.5 40.7 0", "setup", "tls12", tls=TLS12),
    "a kernel that tells nothing": row("0 40.9 0 343.9 0", connected=None),
    "a lost SYN": row("0 1092.7 0 40.8 104.3", "loss connect", base=LOST_SYN),
    "an address that is silent": row(
        "0 291.9 0 41.2 0",
        "address_failed",
        attempts=attempts((OTHERS[0], 291.9, tool.GIVEN_UP), (FAR, 41.3, None)),
    ),
    "a silent name server": row("5003 41 0 41 0", "resolver_timeout", base=RESOLVED),
    "one that answers 0.25 s later": row("5250 41 0 41 0", "resolver_timeout", base=RESOLVED),
    "one that answers later": row("5250.1 41 0 41 0", "slow_lookup", base=RESOLVED),
    "a time-out that ends early": row("9990 41 0 41 0", "resolver_timeout", base=RESOLVED),
    "one that ends earlier": row("4989.9 41 0 41 0", "slow_lookup", base=RESOLVED),
    "a search list": row("100 41 0 41 0", "search_list", "setup", base=SEARCHED),
    "one of quick names": row("19.9 41 0 41 0", base=SEARCHED),
    "a search list that was not used": row(
        "99 41 0 41 0",
        "setup",
        evidence={**SEARCHED["evidence"], "resolver": RESOLVER._replace(search=("b.test", "c.test"))},
    ),
    "an unknown name server": row("100 41 0 41 0", "slow_lookup"),
    "a name server that is nearly slow": row("99.9 41 0 41 0", "setup", base=RESOLVED),
    "a lookup on a starved machine": row("120 41 0 41 0", "setup", "starved", starved_us=30_000),
    "a large certificate": row("0 40.6 84.0 45.4 0", "setup", "tls_slow", base=flight(17_970)),
    "a certificate that fits": row("0 40.6 84.0 45.4 0", "setup", base=flight(7_900)),
    "a large certificate on a starved machine": row(
        "0 40.5 149.1 41.3 0", "setup", "starved", base=flight(12_852), starved_us=105_863
    ),
    "a slow handshake": row("0 40.5 344.8 41.6 0", "tls_slow", tls=TLS13),
    "a slow handshake nearby": row("0 0.1 50.2 0.2 0", "tls_slow", tls=TLS13, base=NEARBY),
    "a handshake nearby that computes": row("0 0.1 50.1 0.2 0", "setup", tls=TLS13, base=NEARBY),
    "a handshake that is read late": row(
        "0 40.5 544.8 41.6 0", "setup", tls=TLS13, sent={"quiet_us": 500_000}, answered={"quiet_us": 0}
    ),
    "a slow handshake through a proxy": row(
        "0 40.5 344.8 41.6 0", "setup", tls=TLS13, proxy=True, sent={"retransmits": 1}
    ),
    "a lost ClientHello": row("0 40.5 306.6 41.0 0", "loss tls", tls=TLS13, sent={"retransmits": 1}),
    "a thinking server": row("0 41.2 0 343.9 0", "server"),
    "a thinking server behind a proxy": row("0 41.2 0 343.9 0", proxy=True),
    "a thinking server nearby": row("0 0.1 0 50.2 0", "server", base=NEARBY),
    "a server nearby that hardly thinks": row("0 0.1 0 50 0", base=NEARBY),
    "a thinking server whose round trip is unknown": row(
        "0 0.1 0 343.9 0", "server", connected={"rtt_us": None}
    ),
    "a thinking server on a unix socket": row("0 0.1 0 50 0", "server", base=UNIX),
    "a server on a unix socket that hardly thinks": row("0 0.1 0 49.9 0", base=UNIX),
    "a long request to a unix socket": row("0 0.1 0 50 0", base=UNIX, evidence={"request_bytes": 14_601}),
    "a server that did not answer": row(
        "0 41.2 0 958.8 -", answered=None, ended=None, response=None, error=FAILED
    ),
    "a lost request": row("0 40.7 0 294.0 0", "loss wait", answered={"retransmits": 1}),
    "an answer whose beginning was late": row(
        "0 41.2 0 90 0", "loss wait", evidence={"gaps": (("wait", 90_000),)}
    ),
    "an answer that was in disorder and on time": row("0 41.2 0 42 0", answered={"disorder": 2}),
    "an upload": row("0 40.8 0 121.9 0", "slow_start wait", base=UPLOAD),
    "an upload after a loss": row(
        "0 40.8 0 121.9 0", "loss wait", base=UPLOAD, answered={"segments_out": 43, "retransmits": 1}
    ),
    "an upload on a kept connection": row("- - - 121.9 0", base=UPLOAD, kept=True),
    "slow start": row("0 40.7 0 46.5 82.9", "slow_start xfer", ended={"segments_in": 70}),
    "a slow sender": row("0 40.7 0 46.5 182.9", ended={"segments_in": 70}),
    "slow start on a kernel that counts no disorder": row(
        "0 40.7 0 46.5 82.9", connected={"disorder": None}, ended={"segments_in": 70}
    ),
    "a lost segment": row(
        "0 40.6 0 53.1 324.3",
        "loss xfer",
        ended={"segments_in": 70, "disorder": 8},
        evidence={"gaps": (("xfer", 250_000),)},
    ),
    "one in a body that takes long": row(
        "0 40.6 0 53.1 5000", "slow_body", body_bytes=100_000, evidence={"gaps": (("xfer", 90_000),)}
    ),
    "a silent body": row("0 41.2 0 41 600", "stalled", evidence={"pauses": (PAUSE,)}),
    "one that is as silent as the path is long": row(
        "0 41.2 0 41 79", evidence={"pauses": (PAUSE._replace(us=79_900),)}
    ),
    "one that pauses": row(
        "0 41.2 0 41 900", "stalled", evidence={"pauses": (PAUSE._replace(us=81_000),) * 9}
    ),
    "a slow path": row(
        "0 41.2 0 41 900",
        "slow_body",
        evidence={"pauses": (PAUSE._replace(us=81_000, burst=2 * 1448),) * 9},
        body_bytes=9 * 2896,
    ),
    "a body of half a step": row("0 100 0 41 140", body_bytes=2_000),
    "an upload without credit": row(
        "0 41.2 0 541 0", "http2_window", evidence={"request_bytes": 600_000, "held_us": 400_000}
    ),
    "an upload that nobody reads": row(
        "0 41.2 0 541 0", "tcp_window", evidence={"request_bytes": 600_000}, answered={"limited_us": 400_000}
    ),
    "an upload that both windows held, in three round trips": row(
        "0 41.2 0 541 0",
        "http2_window",
        "tcp_window",
        "slow_start wait",
        evidence={"request_bytes": 60_000, "held_us": 200_000},
        answered={"limited_us": 200_000, "segments_out": 60},
    ),
    "a body that waits for an acknowledgement": row("- - - 0.2 42.3", "nagle xfer", base=HELD),
    "one that waits as long as can be": row("- - - 0.2 50", "nagle xfer", base=HELD),
    "one that waits too long for that": row("- - - 0.2 50.1", base=HELD),
    "one that does not wait for so long": row("- - - 0.2 37.9", base=HELD),
    "one that waits on a longer path": row("- - - 20.2 62.3", base=held(connected=20_000)),
    "one in three segments": row("- - - 0.2 42.3", "nagle xfer", base=held(segments_in=4)),
    "one in four segments": row("- - - 0.2 42.3", base=held(segments_in=5)),
    "one whose head was acknowledged at once": row("- - - 0.2 42.3", base=held(answered=2)),
    "one that nothing was acknowledged for": row("- - - 0.2 42.3", base=held(acknowledgments=1)),
    "one that was sent after a loss": row("- - - 0.2 42.3", base=held(retransmits=1)),
    "one that came in disorder": row("- - - 0.2 42.3", base=held(disorder=1)),
    "one behind a proxy": row("- - - 0.2 42.3", base=HELD, proxy=True),
    "one that did not come whole": row("- - - 0.2 42.3", base=HELD, error=FAILED),
    "an answer that waits for the tickets' acknowledgement": row(
        "0 0.1 2 41.7 0", "nagle wait", base=TICKETS
    ),
    "one over TLS 1.2": row("0 0.1 2 41.7 0", base=TICKETS, tls=TLS12),
    "one on a kept connection": row("- - - 41.7 0", base=TICKETS, kept=True),
    "one that came in small segments": row(
        "0 0.1 2 41.7 0", base=TICKETS, answered={"segments_in": 3, "acknowledgments": 2, "received": 667}
    ),
    "one before which nothing was acknowledged": row(
        "0 0.1 2 41.7 0", base=TICKETS, answered={"segments_in": 2, "received": 667}
    ),
    "a slow proxy": row(
        "0 331.6 44.3 44.7 0", "proxy", tls=TLS13, proxy=True, evidence={"connected_us": 40_416}
    ),
    "an error page": row("0 40.4 44.5 40.7 0", tls=TLS13, status=404),
    "a starved process": row("0 1 0 100 0", "starved", starved_us=20_001),
    "a process that waited a little": row("0 1 0 100 0", starved_us=20_000),
    "next to nothing": row("0 1.3 2.6 1.2 0", tls=TLS13, connected={"rtt_us": 1100}),
}


@pytest.mark.parametrize("name", RECORDED)
def test_what_was_recorded_is_read(name):
    times, known, expected = RECORDED[name]
    assert found(recorded(times, **known)) == expected


def test_a_time_has_a_decimal_below_100_ms():
    setup, _ = tool.step_findings(recorded("0 40.4 84.5 40.7 0", tls=TLS12))
    assert setup.text.endswith("take about 40.7 ms") and setup.cost_us == 124_900
    [(label, (head, text))] = tool.reading_rows([setup])
    assert (label, head.text, text.text) == ("Reading", "124.9 ms: ", setup.text)


@pytest.mark.parametrize(
    ("wait", "words"), [(1000, "took all of it (about 950 ms)"), (999.9, "took about 950 of these 1000 ms")]
)
def test_a_server_that_took_nearly_all_of_the_wait_took_all_of_it(wait, words):
    [server] = tool.step_findings(recorded(f"0 50 0 {wait} 0", connected={"rtt_us": 50_000}))
    assert words in server.text


PROXY_TRIPS = {"http": 1, "https": 3, "socks5": 3, "socks5h": 3}
"""CONNECT; TLS 1.2 before it; SOCKS with a password: greeting, password, request (RFC 1928, 1929)."""


@pytest.mark.parametrize(("address", "options"), [("192.0.2.1", ["-4"]), (SIX, ["-6"]), (None, ["-4", "-6"])])
def test_a_silent_lookup_advises_the_family_that_has_answers(address, options):
    """Where it failed altogether, nothing tells which that is."""
    resolver = tool.Resolver(("10.0.0.1",))
    answered = {"canonical_name": "a.test"} if address else {}
    step = recorded("15003 - - - -", evidence={"resolver": resolver, **answered})
    network = step.network._replace(addresses=(address,) if address else ())
    [finding] = tool.step_findings(step._replace(network=network))
    assert re.findall(r"-\d", finding.text) == options


@pytest.mark.parametrize(("waited", "told"), [(149_000, 0), (151_000, 1)])
def test_a_run_is_kept_from_running_for_a_tenth_of_its_time_as_a_single_one_is(waited, told):
    options = tool.parse_options(["--count", "9", "http://a.test/"], {}, 80)
    results, step = tool.Results(options), recorded("0 1 0 1499 0", starved_us=waited)
    results.add(tool.Run((step,), False, tool.Turn(1), 1, None))
    assert results.notes[tool.STARVED] == told


def test_a_series_begins_with_a_first_run_that_failed_before_its_clock_started():
    results = tool.Results(tool.parse_options(["--count", "9", "http://a.test/"], {}, 80))
    results.add(tool.Run((recorded("0 0 0 0 0"),), False, tool.Turn(1), 0, None))
    assert results.begun == results.ended > 0


@pytest.mark.parametrize("scheme", tool.PROXY_SCHEMES)
def test_a_proxy_is_slow_from_the_round_trips_that_its_scheme_takes(scheme):
    route = tool.Route(tool.Proxy(scheme, "proxy.test", 1080, None, None), None)
    for share, slow in ((1.1, False), (1.3, True)):
        connect = 40.416 * (1 + share * PROXY_TRIPS[scheme])
        evidence = {"connected_us": 40_416}
        step = recorded(f"0 {connect} 44.3 44.7 0", tls=TLS13, route=route, evidence=evidence)
        assert ("proxy" in found(step)) == slow


def test_every_rule_stands_in_the_table():
    named = set().union(*(expected for _, _, expected in RECORDED.values()))
    assert named == KNOWN | {"starved"}


def test_the_counters_stand_where_linux_has_them():
    info = bytearray(248)
    info[0] = 1
    places = {16: 1448, 20: 1400, 28: 2, 52: 7, 100: 3, 136: 32, 148: 40_000, 152: 11, 156: 12, 224: 6}
    for offset, value in places.items():
        info[offset : offset + 4] = value.to_bytes(4, sys.byteorder)
    long = {120: 6_000_000_000, 128: 5_000_000_000, 176: 7_000_000_000, 200: 6_000_002_000, 208: 1_448}
    for offset, value in long.items():
        info[offset : offset + 8] = value.to_bytes(8, sys.byteorder)
    read = tool.parse_tcp_info(bytes(info))
    both_ways = (6_000_000_552, 6_000_000_000, 5_000_000_000)
    assert read == tool.Counters(1448, 1400, 40_000, 7_000, 2, 3, *both_ways, 11, 12, 20, 6, 7_000_000_000)


def test_a_counter_that_falls_has_not_grown():
    """An emulation of Linux may fill some counters and leave others at zero."""
    step = recorded("0 40.4 44.3 200 0", tls=TLS13, sent={"limited_us": 10**15}, answered={"limited_us": 0})
    assert all(finding.cost_us <= 285_000 for finding in tool.step_findings(step))
    later, earlier = COUNTERS, COUNTERS._replace(retransmits=9, sent=5, acknowledged=1)
    assert [later.since(earlier, name) for name in ("retransmits", "sent", "acknowledged")] == [0, 0, 0]


def test_a_round_trip_that_is_longer_than_connecting_took_is_not_taken_for_it():
    """It is that of a later SYN, or of another clock; else the SYN-ACK came after one round trip."""
    info = bytearray(248)
    info[0], info[5], info[16:20] = 1, 4, (1448).to_bytes(4, sys.byteorder)
    info[148:152] = (40_000).to_bytes(4, sys.byteorder)
    begun = 10**12
    assert tool.syn_ack_at(bytes(info), begun, begun + 41_000_000) == begun + 40_000_000
    assert tool.syn_ack_at(bytes(info), begun, begun + 39_000_000) == begun + 39_000_000


def test_a_kernel_that_counts_too_little_gives_no_counters():
    assert [tool.parse_tcp_info(b"\1" * length) for length in (0, 1, 104, 148, 159)] == [None] * 5
    assert tool.parse_tcp_info(b"\1" + bytes(247)) is None, "a struct of zeros"


@pytest.mark.parametrize(("length", "disorder"), [(160, None), (227, None), (228, 0)])
def test_what_an_older_kernel_does_not_count_is_unknown(length, disorder):
    read = tool.parse_tcp_info(b"\1" + bytes(15) + b"\1" + bytes(length - 17))
    assert read.disorder == disorder
