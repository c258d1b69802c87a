"""What the times mean, on a path with a round trip: causes that real packets provoke, and nothing else.

The same for many more situations, alone and in pairs, judged by owners: bench/causes.py. What is owed to whom
by what a kernel counts: test_account.py.
"""

from __future__ import annotations

import contextlib
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
from statistics import median
from typing import Any, NamedTuple

import pytest

from checks import check_document, flat
from conftest import PATIENCE
from frames import DATA, Conversation, headers, settings, window
from laboratory import RTT, SMALL, Expected, Lab, by_id, costs, on_a_path
from paths import ANY, FAR, NEAR, OTHERS, Rule, going_first, silent
from relays import relay_proxy
from servers import Peer, Reply, dns_server, http2_server, http_server, redirect, scripted

HEAD = "HTTP/1.1 200 Fine\r\nContent-Length: {}\r\n\r\n"
LARGE = Reply(body=b"x" * 100_000)
TLS_1_2 = {"version": ssl.TLSVersion.TLSv1_2}
KNOWN = set("lookup attempts connect loss proxy tls_slow server pauses body starved".split())
"""What can be found in a step, but for what is so on a long path or of a large request."""


class Cause(NamedTuple):
    """What a server or the path does, and what is found because of it."""

    expected: Expected
    reply: Reply = SMALL
    rules: tuple[Rule, ...] = ()
    tls: dict[str, Any] | None = None
    upload: int = 0
    trip: float = RTT
    words: tuple[str, ...] = ()


CLAIMS = [("Server-Timing", 'cache;desc="a, b;dur=9";dur=2.5'), ("server-timing", "db;dur=240.1, miss")]
OWN = "it reports 240 ms itself (db)"
AGAIN = "1 segment had to be sent again: loss on the way"
SLOW_LINE = (Rule("up", "any", 0, "rate", 100_000),)
SLOW = Reply(body=b"x", wait=0.3, headers=CLAIMS)


def drop(way: str, nth: int = 1, **more: Any) -> tuple[Rule, ...]:
    return (Rule(way, "data", nth, **more),)


CAUSES = {
    "a lost SYN": Cause(
        costs("loss connect", "seen", 1000, "sent again, once", "lost or late", "a full listen queue"),
        rules=(Rule("up", "syn"),),
    ),
    "a lost segment of the handshake": Cause(
        costs("loss tls", "seen", 200, AGAIN, without=("tls_slow",)), rules=drop("up"), tls={}
    ),
    "a server that thinks": Cause(costs("server", "fits", 290, "took about", OWN), SLOW, tls={}),
    "a request that is lost three times": Cause(
        costs("loss wait", "seen", 1000, "3 segments had to be sent again", without=("server",)),
        rules=drop("up", times=3),
    ),
    "an upload on a slow line": Cause(
        costs(
            "upload", "fits", 450, "sending 58.7 KB took 6", " kbit/s: the line, or this machine's way out"
        ),
        rules=SLOW_LINE,
        upload=60_000,
    ),
    "one to a server that thinks": Cause(
        costs("server", "fits", 450, "took about 5", without=("loss wait",)),
        Reply(body=b"x", wait=0.5),
        SLOW_LINE,
        upload=60_000,
    ),
    "a late SYN-ACK": Cause(
        costs("connect", "fits", 690, "the answer to the SYN came 7", "ms later than a round trip (4"),
        rules=(Rule("down", "syn", 1, "late", 0.7),),
    ),
    "a far server": Cause(costs("path", "fits", 590, "2 round trips of 3", "saves 1"), trip=0.3),
    "a path that grows": Cause(
        costs("path", "fits", 290, "an acknowledgment took 3", "a radio, another route", without=("server",)),
        rules=(Rule("up", "data", 1, "later", 0.3),),
    ),
    "a cookie of 30 KB": Cause(
        costs("path", "seen", 80, "the request has 29.", "it needs 2 round trips of 8"),
        words=("-b", "a=" + "c" * 30_000),
        trip=0.08,
    ),
    "an answer whose beginning is lost": Cause(
        costs("loss wait", "seen", 150, "parts of the answer were here, and waited for one that was lost"),
        Reply(body=b"x" * 20_000),
        drop("down", 1, times=3),
    ),
    "a body on a slow line": Cause(
        costs("body", "fits", 800, "97.7 KB in ", " KB/s without a pause: the line, a rate limit"),
        LARGE,
        (Rule("down", "any", 0, "rate", 100_000),),
    ),
    "a body that loses a segment": Cause(
        costs("loss xfer", "seen", 80, "waited for a segment that was lost"), LARGE, drop("down", 8, times=2)
    ),
}


@on_a_path
@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_a_cause_is_found(lab, cause):
    lab.start(cause.trip)
    url = lab.http(("/", cause.reply), tls=None if cause.tls is None else lab.tls(**cause.tls))
    lab.way.change(rules=cause.rules)
    lab.finds(cause.expected, *cause.words, *(lab.upload(cause.upload) if cause.upload else ()), url + "/")


# --- proxies --------------------------------------------------------------------------------------


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
    proxy, _ = lab.serve(relay_proxy(road, server, 0.37, lab.tls() if road == "https" else None, host=ANY))
    words, url = (
        f"the proxy took this long to {tasks}; TCP to the proxy itself took",
        f"{scheme}://slow.test/",
    )
    lab.finds(costs("proxy", "fits", 330, words), "-x", proxy.replace(ANY, FAR), url)
    mute = lab.serve(scripted(Peer.read_to_end, host=ANY)).url("", FAR).replace("http", road)
    (step,) = lab.ask("-m", 1, "-x", mute, url, code=75)["steps"]
    assert (f"the TLS handshake with the proxy {mute} " in step["error"]["message"]) is (road == "https")


@on_a_path
def test_behind_a_proxy_a_wait_is_that_of_three(lab):
    """With the way around it, where it is not the user who has named it."""
    replies = {"/": SLOW._replace(wait=0.4)}
    server = lab.start().serve(http_server(replies, host=ANY, tls=lab.tls("slow.test")))
    proxy = lab.serve(relay_proxy("http", server, host=ANY))[0].replace(ANY, FAR)
    who, own = "the way behind it or the server took about ", "; the server reports 240 ms itself (db)"
    expected = costs("server", "fits", 390, f"the proxy, {who}", own, without=("tls_slow", "proxy"))
    found = lab.finds(expected, "-x", proxy, "https://slow.test/")
    assert "-x ''" not in found["server"]["text"]
    words = (f"the proxy (from https_proxy), {who}", own, "; -x '' goes without it")
    expected = costs("server", "fits", 390, *words)
    lab.agree(expected.objections, lambda: lab.read("https://slow.test/", env={"https_proxy": proxy}))


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
    assert ("from where the proxy is" in by_hand) == (answer[0] == "2")


# --- this process ---------------------------------------------------------------------------------


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

    lab.misses({"tls_slow"}, ask)


def starved(start_tool, *words, **more):
    """Run the tool on a processor that four others want; return the first step of each run."""
    processor = {min(os.sched_getaffinity(0))}
    busy = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {processor})\nwhile 1: pass"]
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            other = subprocess.Popen(busy)
            stack.callback(other.wait)
            stack.callback(other.kill)
        held = {"preexec_fn": lambda: os.sched_setaffinity(0, processor), **more}
        out, _ = start_tool("-s", "--json", "-", *words, **held).communicate(timeout=99)
    document = check_document(json.loads(out))
    return [run["steps"][0] for run in document.get("runs", [document])]


def owed_here(step, phase):
    here = {"owner": "here", "phase": phase}.items()
    return sum(share["ms"] for share in step["account"] if here <= share.items())


@pytest.mark.needs("linux")
def test_a_process_that_was_starved_of_cpu_says_so(start_tool):
    """A body of tiny chunks keeps a processor busy, which is wanted by others as well. Its end comes half a
    second later: what is read after the last byte has come is not of the step.
    """

    def script(peer):
        peer.read_request()
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        peer.send("1\r\nx\r\n" * 150_000)
        peer.wait(0.5)
        peer.send("0\r\n\r\n")

    with scripted(script) as server:
        (step,) = starved(start_tool, "-m", 90, server.url())
    assert by_id(step)["starved"]["owner"] == "here" and owed_here(step, "xfer") > 50, step["account"]


@pytest.mark.needs("linux")
def test_a_process_that_is_starved_while_nothing_came_yet_loses_nothing_by_that(start_tool):
    """It looks ten times a second whether an answer is there: to be late for a look costs nothing."""
    with http_server({"/": Reply(wait=0.25)}) as server:
        steps = starved(start_tool, "--count", "15", "--interval", "0", server.url())
    owed = [owed_here(step, "wait") for step in steps]
    assert median(owed) < 3 and min(step["timing"]["wait_ms"] for step in steps) > 249, owed


@on_a_path
def test_a_process_that_is_starved_while_a_syn_is_lost_loses_nothing_by_that(start_tool, lab):
    lab.start()
    url = lab.http()
    lab.way.change(rules=[Rule("up", "syn", times=2)])
    (step,) = starved(start_tool, url + "/", within=lab.way.near)
    assert owed_here(step, "connect") < 50 and step["timing"]["connect_ms"] > 1990, step["account"]


# --- lookups --------------------------------------------------------------------------------------

SEARCH = "ns.svc.cluster.test svc.cluster.test cluster.test example.net"
SHOP = {"shop.example": [FAR], "six.test": ["2001:db8::2"]}


class Names:
    """A far end with a web server and a name server of `zone`, at FAR both."""

    def __init__(self, lab, zone, delay=0.0):
        self.lab = lab.start(0.0005)
        self.port = lab.http().rpartition(":")[2]
        self.asked = lab.serve(dns_server(zone, delay=delay, host=NEAR)).questions

    def settings(self, *servers, **more):
        self.lab.way.name_servers(*(servers or (FAR,)), **more)

    def url(self, host="shop.example"):
        return f"http://{host}:{self.port}/"


@on_a_path
def test_a_slow_resolver_is_named_with_all_that_it_may_have_been_asked_for(lab):
    names = Names(lab, SHOP, delay=0.04)
    names.settings(options="ndots:5", search=SEARCH)
    words = (
        f"the resolver ({FAR}) took ",
        " for up to 5 names (search list): one run with http://shop.example.:",
        " tells whether it is the list",
    )
    assert lab.finds(costs("lookup", "seen", 190, *words), names.url())["lookup"]["phase"] == "dns"
    assert len({name for name, _ in names.asked}) == 5
    lab.misses({"lookup"}, lambda: lab.read(names.url("shop.example.")))


@on_a_path
@pytest.mark.parametrize("variable", ["RES_OPTIONS=ndots:1", "LOCALDOMAIN=d.test"])
def test_what_the_environment_says_otherwise_is_not_read_from_the_file(lab, variable):
    names = Names(lab, SHOP, delay=0.06)
    names.settings(options="ndots:5", search="a.test b.test")
    assert "search list" in lab.read(names.url())["lookup"]["text"]
    found = lab.read(names.url(), env=dict([variable.split("=")]))
    assert "search list" not in str(found)


@on_a_path
def test_a_name_that_only_the_search_list_has_is_noted(lab):
    """There may be a wildcard in it, which leads to another host. A name without a dot is meant so."""
    names = Names(lab, {"shop.example.corp.test": [FAR], "shop.corp.test": [FAR], "web.example": [FAR]})
    names.settings(search="a.test corp.test")
    notes = {
        host: re.findall(
            "Note +(.*search list)", flat(lab.run_tool(names.url(host), within=lab.way.near).out)
        )
        for host in ("shop.example", "shop", "web.example")
    }
    found = "shop.example is shop.example.corp.test, found by the search list"
    assert notes == {"shop.example": [found], "shop": [], "web.example": []}


@on_a_path
def test_an_aaaa_that_is_never_answered_fits_time_outs(lab):
    names = Names(lab, {**SHOP, "AAAA shop.example": None})
    names.settings(FAR, OTHERS[1])
    words = (f"({FAR}, {OTHERS[1]}) took", "it fits 3 time-outs of 1 s: ", "A or AAAA (-4 or -6 tells)")
    lab.finds(costs("lookup", "seen", 3000, *words), names.url())
    assert "lookup" not in lab.read("-4", names.url())


@on_a_path
def test_an_a_that_is_never_answered_fails_and_names_the_way_around_it(lab):
    names = Names(lab, {**SHOP, "A six.test": None})
    names.settings()
    shown = lab.run_tool(names.url("six.test"), within=lab.way.near)
    assert shown.code == 75 and "-4 or -6 asks for one family" in flat(shown.out) and "nslookup" in shown.out
    assert "-4 or -6 asks" not in flat(lab.run_tool("-6", names.url("none.test"), within=lab.way.near).out)


@on_a_path
def test_an_address_that_is_dead_is_told_beside_the_one_that_answers(lab):
    names = Names(lab, {"two.test": [OTHERS[0], FAR]})
    names.settings()
    lab.way.change(rules=silent(OTHERS[0]))
    words = (f"{OTHERS[0]} had not answered after 2", ": dead or far, --resolve two.test:")
    lab.finds(costs("attempts", "seen", 240, *words), names.url("two.test"))


# --- bodies ---------------------------------------------------------------------------------------


def pausing(*parts):
    """Make a script that sends bytes, and waits for as many seconds as numbers among them say."""

    def script(peer):
        peer.read_request()
        for part in parts:
            peer.wait(part) if isinstance(part, float) else peer.send(part)

    return script


def ask(call_tool, *arguments, code=0):
    """Ask; what the program waits for a CPU before it asks would explain a silence that is no longer."""
    with going_first():
        result = call_tool("--json", "-", *arguments)
    assert result.code == code, result.err
    return result.json()["steps"][-1]


CHUNKS = "HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" + "x" * 100 + "\r\n"
PAUSES = {
    "within a body": (HEAD.format(3000) + "x" * 1024, 0.6, "x" * 1976),
    "before it": (HEAD.format(10), 1.1, "x" * 10),
    "after a chunk": (CHUNKS, 0.6, "0\r\n\r\n"),
}


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("name", PAUSES)
def test_a_pause_is_the_server_s(call_tool, authority, tls, name, secure):
    with scripted(pausing(*PAUSES[name]), tls=tls if secure else None) as server:
        step = ask(call_tool, "--cacert", authority.file, server.url())
    found = by_id(step)["pauses"]
    assert (found["phase"], found["certainty"], found["owner"]) == ("xfer", "fits", "server")
    assert re.fullmatch(r"the server sent nothing for [\d.]+ m?s", found["text"]), "no machine loses it"


def test_many_pauses_are_told_together(call_tool):
    with scripted(pausing(HEAD.format(60), *([0.11, "x" * 10] * 6))) as server:
        found = by_id(ask(call_tool, "-x", server.url(""), "http://a.test/"))
    told = r"the proxy sent in pieces: [67]\d\d ms of [67]\d\d ms in 6 pauses, the longest 1\d\d ms"
    assert re.fullmatch(told, found["pauses"]["text"])


@pytest.mark.parametrize(("length", "code"), [(5, 0), (9, 75)], ids=["whole", "cut short"])
def test_a_late_end_of_the_connection_is_no_pause(call_tool, length, code):
    with scripted(pausing(HEAD.format(length) + "x" * 5, 1.1)) as server:
        step = ask(call_tool, server.url(), code=code)
    assert not {"pauses", "loss", "body"} & set(by_id(step))
    assert not code or re.match(r"Nothing came for 1\.\d s before that\. ", step["error"]["hint"])


def test_the_time_before_a_response_on_a_kept_connection_is_no_pause_of_it(call_tool):
    with http_server() as server, going_first():
        words = ("--count", "2", "--reuse", "--interval", "0.8", "--json", "-", server.url())
        _, run = call_tool(*words).json()["runs"]
    assert "pauses" not in by_id(run["steps"][0])


def reading_slowly(peer):
    """Read an upload of 600 kB in pieces, 50 ms apart, with a buffer that is soon full."""
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
    peer.read_until(b"\r\n\r\n")
    for _ in range(600_000 // 16_384):
        peer.read_exactly(16_384)
        peer.wait(0.05)
    peer.read_exactly(600_000 % 16_384)
    peer.send(HEAD.format(0))


def reading_late(peer):
    """Read an upload of 300 kB a second late, with a buffer that is less than the window that it offered: it
    is made smaller while the first round trips of the upload are still under way.
    """
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
    peer.read_until(b"\r\n\r\n")
    peer.wait(1)
    peer.read_exactly(300_000)
    peer.send(HEAD.format(0))


def credit_late(peer, left=200_000):
    """Take what HTTP/2 allows at first, and the rest of an upload 0.6 s later; answer at once."""
    conversation = Conversation(peer)
    conversation.read_preface()
    conversation.send(settings())
    waits = iter([0.6])
    while left > 0:
        size = len(conversation.read_until(DATA).payload)
        left -= size
        peer.wait(next(waits, 0))
        if left > 0 and size:
            conversation.send(window(size, 0), window(size))
    conversation.send(headers(204, end=True))
    peer.read_to_end()


@on_a_path
@pytest.mark.needs("h2")
@pytest.mark.parametrize(
    ("script", "size", "round_trip"),
    [(reading_slowly, 600_000, 0.001), (reading_late, 300_000, 0.1), (credit_late, 200_000, 0.001)],
)
def test_a_reader_that_is_slow_holds_an_upload_and_has_lost_nothing(lab, script, size, round_trip):
    """The kernel sends again what has arrived, and learns that it was a duplicate; or what a full buffer has
    dropped, behind a window that was closed.
    """
    lab.start(round_trip)
    tls = lab.authority.context(FAR, alpn=("h2",)) if script is credit_late else None
    url = lab.serve(scripted(script, tls=tls, host=ANY)).url("/", FAR)
    found = lab.read(*lab.upload(size), url)
    assert found["upload"]["cost_ms"] > 500 and found["upload"]["owner"] == "server"
    assert "the program there reads no faster, or its window is small" in found["upload"]["text"]
    assert ("--vs --http1.1 compares" in found["upload"]["text"]) == bool(tls)
    assert "loss wait" not in found and "sent again" not in str(found)
    if script is reading_late:
        late = lab.ask("-m", "0.9", *lab.upload(size), url, code=75)["steps"][0]
        assert "Lost" not in late["error"]["hint"] and "loss wait" not in by_id(late)


@on_a_path
def test_the_path_says_what_was_sent_again(lab):
    url = lab.start().http(("/", LARGE))

    def path_of(*rules):
        lab.way.change(rules=rules)
        out = lab.run_tool(url + "/", within=lab.way.near).out
        return re.search(r"  Network +(.*(?:\n {15}.*)*)", out)[1]

    assert re.fullmatch(r"round trip \d+\.\d\d ms", path_of())
    assert path_of(Rule("up", "data")).endswith(" ms, 1 retransmit")


@on_a_path
def test_ports_that_are_used_up_are_the_first_thing_to_look_at(lab):
    url = lab.start(0.0005, ipv4__ip_local_port_range="40000 40039").http()

    def use_up():
        held = contextlib.ExitStack()
        with contextlib.suppress(OSError):
            while True:
                held.enter_context(socket.create_connection((FAR, int(url.rpartition(":")[2])), 10))
        return held

    with lab.way.call(use_up):
        shown = lab.run_tool(url + "/", within=lab.way.near)
    assert shown.code == 75 and "cannot assign requested address" in flat(shown.out)
    assert "No local port is free (`ss -tan` lists them)" in flat(shown.out)


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
    url = lab.start().http(("/", SMALL._replace(wait=0.32)), tls=lab.tls(), tls_delay=0.15)
    files = ("--har", lab.folder / "har", "--json", lab.folder / "json", "--cacert", lab.authority.file)
    results = []

    def ask():
        results.append(lab.run_tool(*files, url + "/", within=lab.way.near))
        return by_id(results[-1].json(lab.folder / "json")["steps"][0])

    findings = lab.agree(lambda found: list(found) != ["server", "tls_slow"], ask).values()
    shown = re.findall(r"Cause \w+, [\d.]+ ms: (.*?)(?= Cause|$)", flat(results[-1].out))
    assert shown == [finding["text"] for finding in findings]


@on_a_path
@pytest.mark.needs("h2")
@pytest.mark.parametrize("trip", [0, 0.02, 0.3])
def test_a_healthy_request_is_not_said_to_be_ill(lab, trip):
    lab.start(trip)
    sizes = (1000, 200_000)
    replies = [(f"/{size}", Reply(body=b"x" * size)) for size in sizes]
    folder = lab.folder / "http2"
    folder.mkdir()
    http2 = lab.serve(http2_server(folder, lab.authority.certificate(FAR), host=ANY))
    urls = [lab.http(*replies), lab.http(*replies, tls=lab.tls()), lab.http(*replies, tls=lab.tls(**TLS_1_2))]
    for size in sizes:
        for url in [*(f"{url}/{size}" for url in urls), http2.url(f"/?size={size}", FAR)]:
            found = lab.misses(KNOWN, lambda url=url: read_thrice(lab, url))
            assert "path" not in found or trip == 0.3, "only there is it far"
    url = lab.http(("/", SMALL))
    lab.misses(KNOWN, lambda: lab.read(*lab.upload(10_000_000), url + "/"))


@on_a_path
@pytest.mark.needs("socks")
@pytest.mark.parametrize("road", ["http", "https", "socks5"])
def test_a_far_proxy_is_not_said_to_be_slow(lab, road):
    """To open the way takes round trips: one for CONNECT, one for TLS, two for SOCKS."""
    server = lab.start(0.2).serve(http_server(host=ANY, tls=lab.tls("far.test")))
    proxy, _ = lab.serve(relay_proxy(road, server, 0, lab.tls() if road == "https" else None, host=ANY))
    words = ("-x", proxy.replace(ANY, FAR), "--resolve", f"far.test:443:{FAR}", "https://far.test/")
    assert list(lab.misses(KNOWN, lambda: lab.read(*words))) == ["path"]


def read_thrice(lab: Lab, url: str) -> dict[str, dict[str, Any]]:
    """Ask three times on one connection; return what was found at first, and later in both times alike."""
    runs = lab.ask("--reuse", "--count", 3, "--interval", 0, url)["runs"]
    steps = [run["steps"][0] for run in runs]
    assert [step["network"]["reused"] for step in steps] == [False, True, True]
    first, second, third = map(by_id, steps)
    first.pop("path", None)  # setting it up takes round trips, wherever it is
    return {**first, **{name: finding for name, finding in third.items() if name in second}}
