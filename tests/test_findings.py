"""What the times mean: each cause is provoked by real packets on a path with a round trip, and just missed.

What is just missed, and what costs how much, is read from figures that were recorded on such paths: there the
clock of this machine counts for nothing.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from typing import Any, NamedTuple

import pytest

from checks import check_document, flat
from conftest import PATIENCE
from inside import tool
from laboratory import RTT, SMALL, Expected, Lab, by_id, costs, named, on_a_path
from paths import ANY, FAR, OTHERS, Rule
from relays import relay_proxy
from samples import sample
from servers import Peer, Reply, dns_server, http2_server, http_server, redirect, scripted

# --- one cause, one finding -----------------------------------------------------------------------


class Cause(NamedTuple):
    """What a server or the path does, and what is found because of it."""

    expected: Expected
    reply: Reply = SMALL
    rules: tuple[Rule, ...] = ()
    tls: dict[str, Any] | None = None
    trip: float = RTT
    upload: int = 0


LARGE = Reply(body=b"x" * 100_000)
TLS_1_2 = {"version": ssl.TLSVersion.TLSv1_2}
CLAIMS = [("Server-Timing", 'cache;desc="a, b;dur=9";dur=2.5'), ("server-timing", "db;dur=240.1, miss")]
SLOW = Reply(body=b"x", wait=0.3, headers=CLAIMS)
SLOW_BODY = Reply(body=b"x" * 20_000, wait=0.5)
OWN = "it reports 240 ms itself (db)"
SERVER = ("server",)


def drop(way: str, nth: int = 1, **more: Any) -> tuple[Rule, ...]:
    return (Rule(way, "data", nth, **more),)


CAUSES = {
    "a lost SYN": Cause(
        costs("loss connect", "seen", 1000, "sent again, once", "lost or late", "a full listen queue"),
        rules=(Rule("up", "syn"),),
    ),
    "a lost segment of the handshake": Cause(
        costs("loss tls", "seen", 240, "1 segment was sent again", without=("tls_slow",)),
        rules=drop("up"),
        tls={},
    ),
    "a server that thinks": Cause(
        costs("server", "fits", 300, "took about", OWN, "; the path's round trip is 4"), SLOW, tls={}
    ),
    "a server nearby that thinks": Cause(costs("server", "fits", 300, "took about 30", OWN), SLOW, trip=0),
    "a request that is lost three times": Cause(
        costs("loss wait", "seen", 1000, "3 segments were sent again", without=SERVER),
        rules=drop("up", times=3),
    ),
    "a request that is lost, to a server that thinks": Cause(
        costs("server", "fits", 490, "took about", "1 segment was sent again, which cost up to "),
        Reply(body=b"x", wait=0.5),
        rules=drop("up", 2),
        tls={},
    ),
    "one that is lost three times": Cause(
        costs("server", "fits", 490, "took about 5", "ms of these 1."), SLOW_BODY, rules=drop("up", times=3)
    ),
    "an answer to it of which something is lost": Cause(
        costs("server", "fits", 490, "took about 5", without=("loss wait",)), SLOW_BODY, rules=drop("down", 4)
    ),
    "an upload on a slow line": Cause(
        costs("upload", "seen", 600, "sending 58.7 KB took 6", " kbit/s, this machine's way out or the path"),
        rules=(Rule("up", "any", 0, "rate", 100_000),),
        upload=60_000,
    ),
    "one to a server that thinks": Cause(
        costs("server", "fits", 490, "took about 5", without=("tcp_window", "loss wait")),
        SLOW_BODY,
        rules=(Rule("up", "any", 0, "rate", 100_000),),
        upload=60_000,
    ),
    "one of which something is lost": Cause(
        costs(
            "upload",
            "seen",
            500,
            "sending 117.3 KB took 6",
            " 1.5 Mbit/s, this machine's way out or the path",
        ),
        rules=(*drop("up", times=2), Rule("up", "any", 0, "rate", 194_000)),
        upload=120_000,
    ),
    "a small one on a slow line": Cause(
        costs("upload", "seen", 240, "sending 8.9 KB took ", without=SERVER),
        rules=(Rule("up", "any", 0, "rate", 30_000),),
        upload=9_000,
    ),
    "a body that loses a segment": Cause(
        costs("stalled", "seen", 80, "or what it sent was lost and came again"),
        LARGE,
        drop("down", 8, times=2),
    ),
}


@on_a_path
@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_a_cause_is_found(lab, cause):
    lab.start(cause.trip)
    url = lab.http(("/", cause.reply), tls=None if cause.tls is None else lab.tls(**cause.tls))
    lab.way.change(rules=cause.rules)
    lab.finds(cause.expected, *(lab.upload(cause.upload) if cause.upload else ()), url + "/")


# --- addresses, proxies, lookups ------------------------------------------------------------------

ADDRESSES = {"two.test": [OTHERS[0], FAR], "far.test": [FAR]}


@on_a_path
@pytest.mark.parametrize(
    ("road", "scheme", "tasks"),
    [
        ("http", "https", "connect to the target"),
        ("https", "http", "shake hands"),
        ("https", "https", "shake hands and connect to the target"),
    ],
)
def test_what_a_proxy_is_slow_to_do_is_seen(lab, road, scheme, tasks):
    context = lab.tls("slow.test") if scheme == "https" else None
    server = lab.start().serve(http_server(host=ANY, tls=context))
    proxy, _ = lab.serve(relay_proxy(road, server, 0.25, lab.tls() if road == "https" else None, host=ANY))
    words, url = (
        f"the proxy took this long to {tasks}; TCP to the proxy itself took",
        f"{scheme}://slow.test/",
    )
    lab.finds(costs("proxy", "seen", 240, words), "-x", proxy.replace(ANY, FAR), url)
    mute = lab.serve(scripted(Peer.read_to_end, host=ANY)).url("", FAR).replace("http", road)
    (step,) = lab.ask("-m", 1, "-x", mute, url, code=75)["steps"]
    assert f"the proxy did not {tasks}; " in by_id(step)["proxy"]["text"]
    assert (f"the TLS handshake with the proxy {mute} " in step["error"]["message"]) is (road == "https")


def proxy_to(context, hello=0.0, wait=0.0):
    """Make a script that is a proxy and, through its tunnel or without one, the server behind it."""

    def script(peer):
        if peer.read_until(b"\r\n\r\n").startswith(b"CONNECT"):
            peer.send("HTTP/1.1 200 Connected\r\n\r\n")
            peer.sock.recv(1, socket.MSG_PEEK)
            peer.wait(hello)
            peer.secure(context)
            peer.read_request()
        peer.wait(wait)
        peer.send("HTTP/1.1 200 Fine\r\nServer-Timing: db;dur=240\r\nContent-Length: 2\r\n\r\nhi")

    return scripted(script, host=ANY)


@on_a_path
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_behind_a_proxy_a_wait_is_that_of_three(lab, scheme):
    """With the way around it, where it is not the user who has named it."""
    proxy = lab.start().serve(proxy_to(lab.tls("slow.test"), wait=0.4)).url("", FAR)
    who, own = "the way behind it or the server took about 4", "; the server reports 240 ms itself (db)"
    expected = costs("server", "fits", 390, f"the proxy, {who}", own, without=("tls_slow", "proxy"))
    found = lab.finds(expected, "-x", proxy, f"{scheme}://slow.test/")
    assert "-x ''" not in found["server"]["text"]
    words = (f"the proxy (from {scheme}_proxy), {who}", own, "; -x '' goes without it")
    expected = costs("server", "fits", 390, *words)
    environment = {f"{scheme}_proxy": proxy}
    lab.agree(expected.objections, lambda: lab.read(f"{scheme}://slow.test/", env=environment))


@on_a_path
def test_in_a_tunnel_a_late_hello_is_that_of_three(lab):
    proxy = lab.start().serve(proxy_to(lab.tls("slow.test"), hello=0.3)).url("", FAR)
    words = "the proxy, the way behind it or the server took about 3"
    lab.finds(costs("tls_slow", "fits", 290, words, without=SERVER), "-x", proxy, "https://slow.test/")


@on_a_path
@pytest.mark.parametrize("answer", ["200 Connected", "502 Bad Gateway"])
def test_a_failure_behind_a_proxy_of_the_environment_names_the_way_around_it(lab, answer):
    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send(f"HTTP/1.1 {answer}\r\n\r\n")
        peer.read_to_end()

    proxy = lab.start().serve(scripted(script, host=ANY)).url("", FAR)
    around = "The proxy is that of https_proxy: -x '' goes without it."
    by_hand, found = (
        lab.ask("-m", 2, *words, "https://slow.test/", code=75, env=environment)["steps"][0]["error"]["hint"]
        for words, environment in ((["-x", proxy], {}), ([], {"https_proxy": proxy}))
    )
    assert found == f"{by_hand} {around}"
    assert ("connected to the target, but that is silent" in by_hand) == (answer[0] == "2")


@on_a_path
def test_a_slow_resolver_is_named_in_place_of_what_it_is_part_of(lab):
    port = lab.start().http().rpartition(":")[2]
    server = lab.serve(dns_server(ADDRESSES, delay=0.2))
    lab.way.name_servers(server.address)
    words = (f"the resolver ({server.address}) took ", "may have asked others")
    expected = costs("slow_lookup", "seen", 200, *words)
    assert lab.finds(expected, f"http://far.test:{port}/")["slow_lookup"]["phase"] == "dns"


@on_a_path
def test_a_request_that_nobody_acknowledges_is_seen_in_a_failed_step(lab):
    url = lab.start().http()
    lab.way.change(rules=drop("up", times=9))
    text = lab.read("-m", 2, url + "/", code=75)["loss wait"]["text"]
    assert "segments were sent again" in text and "own time" not in text


@on_a_path
def test_a_process_that_was_stopped_does_not_blame_the_server(lab, start_tool):
    """What comes while it is stopped has come: the kernel knows since when."""
    context = lab.start().tls()
    started: queue.SimpleQueue[int] = queue.SimpleQueue()

    def script(peer):
        peer.sock.recv(1, socket.MSG_PEEK)  # the ClientHello has left: from here on it has to wait for us
        process = started.get(timeout=PATIENCE)
        os.kill(process, signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (process, signal.SIGCONT)).start()
        peer.secure(context)
        peer.read_request()
        peer.send("HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nhi")

    url = lab.serve(scripted(script, host=ANY)).url("/", FAR).replace("http:", "https:")

    def ask():
        process = start_tool("--json", "-", "--cacert", lab.authority.file, url, within=lab.way.near)
        started.put(process.pid)
        out, err = process.communicate(timeout=PATIENCE)
        step = json.loads(out)["steps"][0]
        assert step["timing"]["tls_ms"] > 400, err
        return by_id(step)

    lab.misses("tls_slow", ask=ask)


@pytest.mark.needs("linux")
def test_a_process_that_was_starved_of_cpu_says_so(start_tool, tmp_path):
    """A body of tiny chunks keeps a processor busy, which is wanted by somebody else as well. Its end comes
    half a second later: what is read after the last byte has come is not of the step.
    """

    def script(peer):
        peer.read_request()
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        peer.send("1\r\nx\r\n" * 150_000)
        peer.wait(0.5)
        peer.send("0\r\n\r\n")

    path = tmp_path / "out.json"
    processor = {min(os.sched_getaffinity(0))}
    busy = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {processor})\nwhile 1: pass"]
    with scripted(script) as server, subprocess.Popen(busy) as other:
        words = ("-m", "90", "--json", path, server.url())
        process = start_tool(*words, preexec_fn=lambda: os.sched_setaffinity(0, processor))
        try:
            out, _ = process.communicate(timeout=99)
        finally:
            other.kill()
    check_document(json.loads(path.read_text(encoding="utf-8")))
    assert process.returncode == 0
    assert re.search(r"Reading \d+\.\d ms: this process was kept waiting for a CPU", flat(out.decode()))


# --- Nagle's algorithm ----------------------------------------------------------------------------


def writing(lab: Lab, secure: bool, no_delay: bool = False, think: float = 0.0) -> str:
    """Start a server that writes head and body apart, with Nagle's algorithm or without; return its URL."""
    context = lab.tls()

    def script(peer):
        peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, no_delay)
        if secure:
            peer.secure(context)
        while peer.read_request():
            peer.wait(think)
            peer.send("HTTP/1.1 200 Fine\r\nContent-Length: 10\r\n\r\n")
            peer.send("x" * 10)

    url = lab.serve(scripted(script, host=ANY)).url("/", FAR)
    return url.replace("http:", "https:") if secure else url


def read_warm(lab: Lab, url: str) -> dict[str, dict[str, Any]]:
    """Ask three times on one connection; return what was found in the last two times alike."""
    runs = lab.ask("--reuse", "--count", 3, "--interval", 0, url)["runs"]
    steps = [run["steps"][0] for run in runs]
    assert [step["network"]["reused"] for step in steps] == [False, True, True]
    second, third = (by_id(step) for step in steps[1:])
    return {name: finding for name, finding in third.items() if name in second}


@on_a_path
@pytest.mark.parametrize("secure", [False, True])
def test_a_body_that_waits_for_an_acknowledgement_is_found(lab, secure):
    url = writing(lab.start(0.01 * secure), secure)
    expected = costs("nagle xfer", "fits", 40, "Nagle", "40 ms", "TCP_NODELAY", "would look alike")
    lab.agree(expected.objections, lambda: read_warm(lab, url))


@on_a_path
def test_an_answer_that_waits_for_the_acknowledgement_of_session_tickets_is_found(lab):
    lab.start(0.005)
    words = ("Nagle", "its session tickets, after 40 ms", "would look alike, --reuse --interval 0 tells")
    url = writing(lab, secure=True)
    lab.finds(costs("nagle wait", "fits", 40, *words, without=SERVER), url)
    kept = lab.ask("--reuse", "--count", 2, "--interval", 0, url)["runs"][0]["steps"][0]
    assert "--reuse" not in str(by_id(kept))
    thinking = writing(lab, secure=True, no_delay=True, think=0.043)
    lab.misses("nagle wait", ask=lambda: lab.read(thinking))


# --- the whole ------------------------------------------------------------------------------------


@on_a_path
def test_redirects_are_counted_for_the_whole_chain(lab):
    replies = {"/": redirect("/2"), "/2": redirect("/3"), "/3": SMALL}
    document = lab.ask("-L", lab.start().http(*replies.items()) + "/")
    (finding,) = document["summary"]["findings"]
    assert (finding["id"], finding["certainty"], finding["phase"]) == ("redirects", "seen", None)
    assert finding["cost_ms"] == round(sum(step["timing"]["total_ms"] for step in document["steps"][:2]), 3)
    assert finding["text"].startswith("2 redirects took ")


@on_a_path
def test_the_waterfall_shows_the_costliest_first(lab):
    slow = lab.tls(**TLS_1_2)
    url = lab.start().http(("/", SMALL._replace(wait=0.12)), tls=slow, tls_delay=0.1)
    files = ("--har", lab.folder / "har", "--json", lab.folder / "json", "--cacert", lab.authority.file)
    results = []

    def ask():
        results.append(lab.run_tool(*files, url + "/", within=lab.way.near))
        return by_id(results[-1].json(lab.folder / "json")["steps"][0])

    findings = lab.agree(lambda found: list(found) != ["server", "tls_slow"], ask).values()
    assert json.loads((lab.folder / "har").read_text())["log"]["entries"][0]["_findings"] == list(findings)
    shown = re.findall(r"Reading \w+, [\d.]+ ms: (.*?)(?= Reading|$)", flat(results[-1].out))
    assert shown == [finding["text"] for finding in findings]


# --- nothing is wrong -----------------------------------------------------------------------------

SIZES = (1000, 200_000)


@on_a_path
@pytest.mark.needs("h2")
@pytest.mark.parametrize("trip", [0, 0.02])
def test_a_healthy_request_is_not_said_to_be_ill(lab, trip):
    lab.start(trip)
    replies = [(f"/{size}", Reply(body=b"x" * size)) for size in SIZES]
    folder = lab.folder / "http2"
    folder.mkdir()
    http2 = lab.serve(http2_server(folder, lab.authority.certificate(FAR), host=ANY))
    urls = [lab.http(*replies), lab.http(*replies, tls=lab.tls()), lab.http(*replies, tls=lab.tls(**TLS_1_2))]
    for size in SIZES:
        for url in [*(f"{url}/{size}" for url in urls), http2.url(f"/?size={size}", FAR)]:
            lab.misses(*KNOWN - {"upload"}, ask=lambda url=url: lab.read(url))
            lab.misses(*KNOWN - {"upload"}, ask=lambda url=url: read_warm(lab, url))


@on_a_path
def test_healthy_uploads_slow_lines_and_kept_connections_are_not_said_to_be_ill(lab):
    lab.start(0.02)
    url = lab.http(("/", SMALL), ("/body", LARGE))
    lab.misses(*KNOWN - {"upload"}, ask=lambda: lab.read(*lab.upload(10_000_000), url + "/"))
    told = "sending 488.4 KB took 1.* Mbit/s, in round trips of 2.* ms"
    lab.agree(
        lambda found: set(found) != {"upload"} or not re.fullmatch(told, found["upload"]["text"]),
        lambda: lab.read(*lab.upload(500_000), url + "/"),
    )
    lab.way.change(rules=[Rule("down", "any", 0, "rate", 125_000)])
    lab.misses(*KNOWN - {"upload"}, ask=lambda: lab.read(url + "/body"))
    lab.misses(*KNOWN - {"upload"}, ask=lambda: read_warm(lab, url + "/body"))


KNOWN = set(
    "resolver_timeout search_list slow_lookup tls_slow server http2_window tcp_window "
    "stalled proxy starved upload".split()
)
KNOWN |= {f"loss {phase}" for phase in ("connect", "tls", "wait")}
KNOWN |= {f"nagle {phase}" for phase in ("wait", "xfer")}
"""What can be found in a step."""

# --- what was recorded ----------------------------------------------------------------------------
# Figures of runs on such paths, and of kernels that are not here; no network is needed.

COUNTERS = tool.Counters(
    segment=1448,
    segment_in=536,
    time_out_us=240_000,
    rtt_us=40_000,
    smoothed_rtt_us=40_000,
    quiet_us=0,
    retransmits=0,
    duplicates=0,
    sent=0,
    acknowledged=0,
    received=0,
    segments_in=0,
    acknowledgments=1,
    disorder=0,
    busy_us=0,
    limited_us=0,
    rate=0,
)


PLAIN = {"dns": 0, "connect": 41.2, "tls": 0, "wait": 41.2, "xfer": 0}
"""The phases, in ms, where nothing is wrong on a path with a round trip of 40 ms."""


def recorded(**known: Any) -> Any:
    """Make a step of what differs from a plain, good and direct one: the phases in ms, fields of Step and of
    Evidence by their names, the `version` of TLS, whether through a `proxy`.

    The counters named in `connected`, `sent`, `answered` and `ended` hold from that instant on; None there
    means that the kernel told nothing. Phases that a `kept` connection does not have, or that an `error` kept
    from beginning, are None.
    """
    kept, error = known.pop("kept", None), known.get("error")
    first, last = 3 * bool(kept), tool.PHASES.index(error.phase) if error else 4
    times = (round(known.pop(phase, ms) * 1000) for phase, ms in PLAIN.items())
    phases = [us if first <= number <= last else None for number, us in enumerate(times)]
    connect, total = phases[1], sum(us or 0 for us in phases)
    counted: Any = COUNTERS
    evidence = {"connected_us": connect, "request_bytes": 100}
    for name in tool.Evidence._fields:
        if name in ("connected", "sent", "answered", "ended"):
            changes = known.pop(name, {})
            counted = None if changes is None or counted is None else counted._replace(**changes)
            evidence[name] = counted
        elif name in known:
            evidence[name] = known.pop(name)
    version = known.pop("version", None)
    agreed = tool.TlsInfo(version) if version else tool.NO_TLS
    attempts = known.pop("attempts", (tool.Attempt(FAR, (connect or 0), None),))
    proxy = tool.Proxy("http", "proxy.test", 80, None, None) if known.pop("proxy", False) else None
    step = sample(1, total)._replace(
        route=tool.Route(proxy, None),
        timing=tool.Timing(*phases, total, 0, None),
        network=tool.Network(None, 80, (), attempts, agreed, None, None, kept),
        response=tool.Response(200, "", "HTTP/1.1", ()),
        evidence=tool.Evidence(**evidence),
    )
    return step._replace(**known)


def found(step: Any) -> set[str]:
    """Return what is found in a step: its name and its cost in ms."""
    findings = tool.step_findings(step)
    return {f"{named(finding.id, finding.phase)} {finding.cost_us / 1000:g} ms" for finding in findings}


def attempts(*each: tuple[str, float, str | None]) -> tuple[Any, ...]:
    return tuple(tool.Attempt(ip, round(ms * 1000), error) for ip, ms, error in each)


TLS13, TLS12 = "TLSv1.3", "TLSv1.2"
FAILED = tool.Failure("timeout", "wait", "no response came", "")
NO_LOOKUP = tool.Failure("dns", "dns", "", "")
RESOLVER = tool.Resolver(("10.0.0.1", "10.0.0.2", "10.0.0.3"))
PAUSE = tool.Pause(500_000, 1024)
SIX = "2001:db8::9"

HTTPS = {"connect": 40.5, "tls": 41.5, "version": TLS13}
NEARBY = {"connect": 0.1, "connected": {"rtt_us": 200}}
UNIX = {"connect": 0.1, "connected": None, "attempts": (), "route": tool.Route(None, None, "/run/a")}
"""The kernel counts nothing on a unix socket."""
LOST_SYN = {"connected": {"retransmits": 1}}
RESOLVED = {"resolver": RESOLVER}
SEARCHED = {
    "resolver": RESOLVER._replace(search=("b.test", "c.test"), ndots=5),
    "canonical_name": "a.test",
}
UPLOAD = {"request_bytes": 60_149, "sent_whole": True}
ALL_CAME = {"acknowledged": 60_149}
TICKETS = {
    **NEARBY,
    "tls": 2,
    "wait": 41.7,
    "version": TLS13,
    "answered": {"segments_in": 2, "acknowledgments": 2, "received": 667},
}


def held(connected: int = 50, answered: int = 1, **ended: int) -> dict[str, Any]:
    """Give the counters where a body waited for an acknowledgement of its head, on a kept connection."""
    return {
        "kept": True,
        "wait": 0.2,
        "xfer": 42.3,
        "connected": {"rtt_us": connected},
        "answered": {"segments_in": 1, "acknowledgments": answered},
        "ended": {"segments_in": 2, "acknowledgments": answered + 1, **ended},
    }


HELD = held()
NOTHING: dict[str, Any] = {}


def row(*expected: str, like: Any = NOTHING, **known: Any) -> tuple[Any, set[str]]:
    """Make a row: what is found, at what cost, in a step that is `like` another one but for its phases in
    ms, and what was counted, as given.
    """
    return {**like, **known}, set(expected)


RECORDED = {
    "a far server": row(connect=40.9),
    "a far server over TLS 1.2": row(connect=40.4, tls=84.5, wait=40.7, version=TLS12),
    "a kernel that tells nothing": row(connect=40.9, wait=343.9, connected=None),
    "a lost SYN": row("loss connect 1052.7 ms", like=LOST_SYN, connect=1092.7, wait=40.8, xfer=104.3),
    "a silent name server": row("resolver_timeout 5000 ms", like=RESOLVED, dns=5250),
    "one that answers more than 0.25 s later": row("slow_lookup 5250.1 ms", like=RESOLVED, dns=5250.1),
    "a time-out that ends early": row("resolver_timeout 9990 ms", like=RESOLVED, dns=9990),
    "one that ends earlier": row("slow_lookup 4989.9 ms", like=RESOLVED, dns=4989.9),
    "a lookup that the deadline ended": row(
        like=RESOLVED, dns=5003, error=FAILED._replace(phase="dns"), response=None
    ),
    "one that failed": row(
        "resolver_timeout 5000 ms", like=RESOLVED, dns=5003, error=NO_LOOKUP, response=None
    ),
    "a search list": row("search_list 66.666 ms", like=SEARCHED, dns=100),
    "one of quick names": row(like=SEARCHED, dns=19.9),
    "a search list that was not used": row(dns=99, resolver=RESOLVER._replace(search=("b.test", "c.test"))),
    "a name server as far away as the server": row(
        dns=150, connect=100, wait=100, connected={"rtt_us": 100_000}
    ),
    "a search list, and a slow name server": row("slow_lookup 301 ms", like=SEARCHED, dns=301),
    "an unknown name server": row("slow_lookup 100 ms", dns=100),
    "a name server that is nearly slow": row(like=RESOLVED, dns=99.9),
    "a lookup on a starved machine": row("starved 30 ms", dns=120, starved_us=30_000),
    "a slow handshake on a starved machine": row(
        "starved 105.863 ms", like=HTTPS, tls=149.1, starved_us=105_863
    ),
    "a slow handshake nearby": row("tls_slow 50 ms", like=NEARBY, tls=50.2, wait=0.2, version=TLS13),
    "a handshake nearby that computes": row(like=NEARBY, tls=50.1, wait=0.2, version=TLS13),
    "a handshake that is read late": row(
        like=HTTPS, tls=544.8, sent={"quiet_us": 500_000}, answered={"quiet_us": 0}
    ),
    "a lost ClientHello where the kernel counts no time": row(
        "loss tls 240 ms", like=HTTPS, tls=306.6, sent={"retransmits": 1}
    ),
    "a slow handshake over TLS 1.2": row("tls_slow 303.8 ms", like=HTTPS, tls=384.8, version=TLS12),
    "a thinking server": row("server 302.7 ms", wait=343.9),
    "a thinking server whose round trip is unknown": row(
        "server 343.8 ms", connect=0.1, wait=343.9, connected={"rtt_us": None}
    ),
    "a long request to a unix socket": row("server 50 ms", like=UNIX, wait=50, request_bytes=14_601),
    "a thinking server whose SYN-ACK was late": row(
        "server 503.9 ms", connect=340, wait=543.9, connected={"rtt_us": 340_000}, answered={"rtt_us": 40_000}
    ),
    "a path that gets shorter behind the answer": row(
        connect=340,
        wait=345,
        xfer=400,
        connected={"rtt_us": 340_000},
        answered={"rtt_us": 330_000},
        ended={"rtt_us": 40_000},
    ),
    "a server that did not answer": row(wait=958.8, answered=None, ended=None, response=None, error=FAILED),
    "a silent body": row("stalled 500 ms", xfer=600, pause=PAUSE),
    "one that is as silent as the path is long": row(xfer=79, pause=PAUSE._replace(us=79_900)),
    "an upload that both windows held": row(
        "http2_window 200 ms",
        "tcp_window 200 ms",
        wait=541,
        request_bytes=60_000,
        held_us=200_000,
        answered={"busy_us": 320_000, "limited_us": 200_000},
    ),
    "one that a window of HTTP/2 held behind a loss": row(
        "http2_window 967 ms",
        "loss wait 240 ms",
        wait=1090,
        request_bytes=400_000,
        sent_whole=True,
        held_us=967_000,
        answered={"acknowledged": 400_000, "busy_us": 1_088_000, "retransmits": 1},
    ),
    "one that filled the windows with a queue on the way": row(
        "upload 618.8 ms",
        like=UPLOAD,
        wait=662,
        held_us=550_000,
        answered={
            "acknowledged": 60_149,
            "busy_us": 660_000,
            "limited_us": 340_000,
            "smoothed_rtt_us": 115_000,
            "rate": 91_000,
        },
    ),
    "one to a slow reader on a slow line": row(
        "upload 1458.8 ms",
        "tcp_window 300 ms",
        wait=1802,
        request_bytes=300_000,
        sent_whole=True,
        answered={
            "acknowledged": 300_000,
            "busy_us": 1_800_000,
            "limited_us": 560_000,
            "smoothed_rtt_us": 300_000,
            "rate": 200_000,
        },
    ),
    "one whose reader was sent what it had": row(
        "tcp_window 400 ms",
        wait=541,
        request_bytes=600_000,
        answered={"busy_us": 540_000, "limited_us": 400_000, "retransmits": 8, "duplicates": 8},
    ),
    "one on a slow line, to a thinking server": row(
        "upload 622.8 ms",
        "server 501 ms",
        like=UPLOAD,
        wait=1165,
        answered={**ALL_CAME, "busy_us": 664_000, "smoothed_rtt_us": 300_000},
    ),
    "one that was answered before it had left": row(
        like=UPLOAD,
        wait=699,
        answered={**ALL_CAME, "busy_us": 690_000, "smoothed_rtt_us": 300_000},
        sent_whole=False,
    ),
    "one that lost something, and was faster than slow start": row(
        "upload 157.8 ms",
        like=UPLOAD,
        wait=200,
        request_bytes=600_000,
        answered={**ALL_CAME, "busy_us": 199_000, "retransmits": 1},
    ),
    "one to a thinking server": row("server 503 ms", like=UPLOAD, wait=623, answered={"busy_us": 120_000}),
    "one whose last acknowledgment is late": row(
        "server 200 ms", like=UPLOAD, wait=323.6, answered={"busy_us": 323_000, "smoothed_rtt_us": 65_000}
    ),
    "one on a slow line that loses a segment": row(
        "upload 482.8 ms",
        "loss wait 240 ms",
        like=UPLOAD,
        wait=765,
        answered={**ALL_CAME, "busy_us": 764_000, "smoothed_rtt_us": 300_000, "retransmits": 1},
    ),
    "one whose kernel counts no time": row(like=UPLOAD, wait=765, connected={"busy_us": None}),
    "a lost request to a thinking server": row(
        "server 1999 ms", "loss wait 240 ms", wait=2285, answered={"busy_us": 286_000, "retransmits": 1}
    ),
    "a body that waits as long as can be for an acknowledgement": row(
        "nagle xfer 49.95 ms", like=HELD, xfer=50
    ),
    "one that waits too long for that": row(like=HELD, xfer=50.1),
    "one that does not wait for so long": row(like=HELD, xfer=37.9),
    "one that waits on a longer path": row(like=held(connected=20_000), wait=20.2, xfer=62.3),
    "one in three segments": row("nagle xfer 42.25 ms", like=held(segments_in=4)),
    "one in four segments": row(like=held(segments_in=5)),
    "one whose head was acknowledged at once": row(like=held(answered=2)),
    "one that nothing was acknowledged for": row(like=held(acknowledgments=1)),
    "one that was sent after a loss": row(like=held(retransmits=1)),
    "one that came in disorder": row(like=held(disorder=1)),
    "one behind a proxy": row(like=HELD, proxy=True),
    "one that did not come whole": row(like=HELD, error=FAILED._replace(phase="xfer")),
    "an answer that waits for the tickets' acknowledgement": row("nagle wait 41.3 ms", like=TICKETS),
    "one over an older TLS": row(like=TICKETS, version=TLS12),
    "one on a kept connection": row(like=TICKETS, kept=True),
    "one that came in small segments": row(
        like=TICKETS, answered={"segments_in": 3, "acknowledgments": 2, "received": 667}
    ),
    "one before which nothing was acknowledged": row(
        like=TICKETS, answered={"segments_in": 2, "received": 667}
    ),
    "a proxy that is as slow as three round trips": row(
        like=HTTPS, connect=211.6, tls=44.3, proxy=True, connected_us=40_416
    ),
    "a slow proxy": row(
        "proxy 291.184 ms", like=HTTPS, connect=331.6, tls=44.3, proxy=True, connected_us=40_416
    ),
    "a server that a wait for a CPU explains": row(
        "starved 99.9 ms", like=NEARBY, wait=100, starved_us=99_900
    ),
    "one that it does not explain": row(
        "starved 99.7 ms", "server 99.8 ms", like=NEARBY, wait=100, starved_us=99_700
    ),
    "a starved process": row("starved 20.001 ms", connect=1, wait=100, starved_us=20_001),
    "a process that waited a little": row(connect=1, wait=100, starved_us=20_000),
    "next to nothing": row(like=HTTPS, connect=1.3, tls=2.6, wait=1.2, connected={"rtt_us": 1100}),
}


@pytest.mark.parametrize("name", RECORDED)
def test_what_was_recorded_is_read(name):
    known, expected = RECORDED[name]
    assert found(recorded(**known)) == expected


def test_a_window_may_be_full_of_what_came_behind_a_lost_segment():
    known, _ = RECORDED["one whose reader was sent what it had"]
    step = recorded(**{**known, "answered": {**known["answered"], "duplicates": 7}})
    assert "slow to read, or what came behind a lost segment filled it" in str(tool.step_findings(step))


def test_a_time_has_a_decimal_below_100_ms():
    [server] = tool.step_findings(recorded(wait=80.84, **NEARBY))
    assert " took about 80.6 ms" in server.text
    label, (head, text) = tool.reading_row(server)
    assert (label, head.text, text.text) == ("Reading", "wait, 80.64 ms: ", server.text)


@pytest.mark.parametrize(
    ("wait", "words"), [(1000, "took about 950 ms"), (999.9, "took about 950 ms of these 1.0 s;")]
)
def test_the_wait_is_named_beside_the_server_s_part_where_they_differ(wait, words):
    [server] = tool.step_findings(recorded(connect=50, wait=wait, connected={"rtt_us": 50_000}))
    assert words in server.text


@pytest.mark.parametrize(("address", "options"), [("192.0.2.1", ["-4"]), (SIX, ["-6"]), (None, ["-4", "-6"])])
def test_a_silent_lookup_advises_the_family_that_has_answers(address, options):
    """Where it failed altogether, nothing tells which that is."""
    resolver = tool.Resolver(("10.0.0.1",))
    answered = {"canonical_name": "a.test"} if address else {}
    step = recorded(dns=15003, resolver=resolver, **answered)
    network = step.network._replace(addresses=(address,) if address else ())
    [finding] = tool.step_findings(step._replace(network=network))
    assert re.findall(r"-\d", finding.text) == options
    assert "--vs" not in finding.text, "twenty rounds of 15 s"


def test_every_rule_stands_in_the_table():
    named = {
        each.rpartition(" ")[0].rpartition(" ")[0] for _, expected in RECORDED.values() for each in expected
    }
    assert named == KNOWN


@pytest.mark.parametrize(("before", "told"), [(30, True), (29.9, False)])
def test_redirects_are_told_from_three_tenths_of_the_chain_on(before, told):
    steps = (recorded(connect=0, wait=before), recorded(connect=0, wait=70))
    assert bool(tool.chain_findings(tool.Run(steps, False))) == told


def test_the_counters_stand_where_linux_has_them():
    info = bytearray(248)
    info[0] = 1
    counted = {
        "time_out_us": (8, 4),
        "segment": (16, 4),
        "segment_in": (20, 4),
        "smoothed_rtt_us": (68, 4),
        "retransmits": (100, 4),
        "acknowledged": (120, 8),
        "received": (128, 8),
        "rtt_us": (148, 4),
        "segments_in": (152, 4),
        "rate": (160, 8),
        "busy_us": (168, 8),
        "limited_us": (176, 8),
        "duplicates": (216, 4),
        "disorder": (224, 4),
    }
    for number, (offset, size) in enumerate(counted.values(), 1):
        info[offset : offset + size] = (number << (size * 4)).to_bytes(size, sys.byteorder)
    info[52:56] = (7).to_bytes(4, sys.byteorder)  # ms
    info[136:140], info[156:160] = (24).to_bytes(4, sys.byteorder), (4).to_bytes(4, sys.byteorder)
    info[200:208], info[208:216] = (9000).to_bytes(8, sys.byteorder), (1448).to_bytes(8, sys.byteorder)
    read = tool.parse_tcp_info(bytes(info))._asdict()
    expected = {name: number << (size * 4) for number, (name, (_, size)) in enumerate(counted.items(), 1)}
    assert read == {**expected, "quiet_us": 7_000, "acknowledgments": 20, "sent": 7_552}


def test_a_counter_that_falls_has_not_grown():
    """An emulation of Linux may fill some counters and leave others at zero."""
    step = recorded(
        connect=40.4,
        tls=44.3,
        wait=200,
        version=TLS13,
        sent={"limited_us": 10**15},
        answered={"limited_us": 0},
    )
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
