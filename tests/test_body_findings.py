"""Where the time of bodies goes, in both directions: silences, windows, losses; what a series says of them.

Each finding comes from a real cause, and one just outside it is silent.
"""

from __future__ import annotations

import re
import time

import pytest
from test_findings import RTT, SMALL, Lab, by_id, costs, on_a_path, recorded

from checks import flat
from conftest import PATIENCE
from inside import tool
from paths import ANY, FAR, Rule
from servers import Reply, http2_server, http_server, scripted

HEAD = "HTTP/1.1 200 Fine\r\nContent-Length: {}\r\n\r\n"
NEVER_OF_A_BODY = {"stalled", "slow_body", "loss xfer", "loss wait", "http2_window", "tcp_window"}


@pytest.fixture
def lab(run_tool, authority, tmp_path):
    made = Lab(run_tool, authority, tmp_path)
    with made.open:
        yield made


def pausing(*parts):
    """Make a script that sends bytes, and waits for as many seconds as numbers among them say."""

    def script(peer):
        peer.read_request()
        for part in parts:
            peer.wait(part) if isinstance(part, float) else peer.send(part)

    return script


def ask(call_tool, *arguments, code=0):
    result = call_tool("--json", "-", *arguments)
    assert result.code == code, result.err
    return result.json()["steps"][-1]


# --- silences -------------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_long_silence_within_a_body_is_named_with_its_place(call_tool, authority, tls, secure):
    script = pausing(HEAD.format(3000) + "x" * 1024, 0.6, "x" * 1976)
    with scripted(script, tls=tls if secure else None) as server:
        step = ask(call_tool, "--cacert", authority.file, server.url())
    found = by_id(step)["stalled"]
    assert (found["phase"], found["certainty"]) == ("xfer", "seen")
    silence = re.fullmatch(r"the server sent nothing for (.*) after 1\.0 KB of the body", found["text"])
    assert silence and silence[1].endswith("s")
    assert 400 <= found["cost_ms"] <= step["timing"]["xfer_ms"], "less where this process had no CPU"


def test_a_silence_of_seconds_is_told_in_seconds_and_one_before_the_body_so(call_tool):
    """A chunk's own bytes do not count for the place."""
    head = "HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked = pausing(head + "64\r\n" + "x" * 100 + "\r\n", 0.3, "0\r\n\r\n")
    with scripted(pausing(HEAD.format(10), 1.1, "x" * 10)) as server, scripted(chunked) as other:
        text = by_id(ask(call_tool, server.url()))["stalled"]["text"]
        place = by_id(ask(call_tool, other.url()))["stalled"]["text"]
    assert re.fullmatch(r"the server sent nothing for \d+\.\d s before the body", text)
    assert place.endswith(" after 100 B of the body")


def test_many_short_silences_are_added_up(call_tool):
    with scripted(pausing(HEAD.format(100), *("x" * 10, 0.06) * 9, "x" * 10)) as server:
        found = by_id(ask(call_tool, server.url()))["stalled"]
    assert re.fullmatch(r"the server paused 9 times, \d+ ms of \d+ ms in all", found["text"])
    assert found["cost_ms"] >= 350, "less where this process had no CPU"


def test_the_silence_in_which_the_time_was_over_counts(call_tool):
    with scripted(pausing(HEAD.format(3000) + "x" * 1024, 60.0)) as server:
        step = ask(call_tool, "-m", "0.8", server.url(), code=75)
    assert by_id(step)["stalled"]["text"].endswith(" after 1.0 KB of the body")
    assert by_id(step)["stalled"]["cost_ms"] >= 400


def test_a_silence_before_a_hangup_is_no_longer_than_the_transfer(call_tool):
    for pause in (0.101, 0.105, 0.109, 0.113, 0.117):  # the kernel counts it in ticks of up to 10 ms
        with scripted(pausing(HEAD.format(3000) + "x" * 1024, pause)) as server:
            step = ask(call_tool, server.url(), code=75)
        assert 50 <= by_id(step)["stalled"]["cost_ms"] <= step["timing"]["xfer_ms"]


@pytest.mark.parametrize(
    ("parts", "length"),
    [
        ((0.03, "x" * 10), 10),
        (("x" * 10, 0.012) * 9, 90),  # shorter than those that count, and the whole too short for a word
        (("x" * 5, 0.3), 5),  # after the body: the server closes late
    ],
)
def test_what_is_no_long_silence_is_none(call_tool, parts, length):
    with scripted(pausing(HEAD.format(length), *parts)) as server:
        step = ask(call_tool, server.url())
    assert not NEVER_OF_A_BODY & set(by_id(step)) or by_id(step).get("starved")


@on_a_path
def test_on_a_path_a_short_silence_may_be_a_loss_and_a_long_one_is_none(lab):
    lab.start()

    def url(pause):
        script = pausing(HEAD.format(2000) + "x" * 1000, pause, "x" * 1000)
        return lab.serve(scripted(script, host=ANY)).url("/", FAR)

    words = ("this fits a pause: the server sent nothing for 5", "or what it sent was lost and came again")
    lab.finds(costs("stalled", "fits", 500, *words), url(0.5))
    lab.finds(costs("stalled", "seen", 2100, "the server sent nothing for 2.1 s after 1000 B"), url(2.1))


@on_a_path
def test_a_pause_that_a_late_segment_ended_is_no_silence_of_the_server(lab):
    url = lab.start().http(("/", Reply(body=b"x" * 100_000)))
    lab.way.change(rules=[Rule("down", "data", 8, "drop", times=2)])
    found = lab.finds(
        costs("loss xfer", "seen", 3 * RTT * 1000, "was late, behind what follows it"), url + "/"
    )
    assert not {"stalled", "slow_body"} & set(found)


@on_a_path
def test_a_slow_path_is_said_to_be_slow_and_nobody_is_blamed(lab):
    """Full segments that come one by one, 30 ms apart, are no pauses of the server."""
    url = lab.start().http(("/", Reply(body=b"x" * 40_000)), ("/small", Reply(body=b"x" * 5_000)))
    lab.way.change(rules=[Rule("down", "any", 0, "rate", 50_000)])
    words = "the body came at 0.4 Mbit/s; nothing here tells whether the path or the server limits it"
    found = lab.finds(costs("slow_body", "fits", 750, words), url + "/")
    assert "stalled" not in found
    lab.misses(*NEVER_OF_A_BODY, ask=lambda: lab.read(url + "/small"))


# --- windows --------------------------------------------------------------------------------------


@on_a_path
@pytest.mark.needs("h2")
def test_an_upload_that_waits_for_credit_is_held_back_by_the_window(lab):
    lab.start()
    folder = lab.folder / "http2"
    folder.mkdir()
    url = lab.serve(http2_server(folder, lab.authority.certificate(FAR), host=ANY)).url("/", FAR)
    body = lab.folder / "body"
    body.write_bytes(b"x" * 500_000)
    found = lab.read("-d", f"@{body}", url)["http2_window"]
    assert (found["phase"], found["certainty"]) == ("wait", "seen")
    assert re.match(r"the server's HTTP/2 window held the upload back for \d+ ms: ", found["text"])
    assert found["text"].endswith("--vs --http1.1 compares")
    assert found["cost_ms"] >= 6 * RTT * 1000
    assert not {"http2_window", "tcp_window"} & set(lab.read("-d", "x" * 60_000, url)), "it fits the window"


def test_an_upload_that_nobody_reads_is_held_back_by_tcp(call_tool, tmp_path):
    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.wait(0.5)
        peer.skip(LENGTH)
        peer.send(HEAD.format(0))

    LENGTH = 20_000_000
    (tmp_path / "body").write_bytes(b"x" * LENGTH)
    with scripted(script) as server:
        found = by_id(ask(call_tool, "-d", f"@{tmp_path / 'body'}", server.url()))
    window = found["tcp_window"]
    assert (window["phase"], window["certainty"]) == ("wait", "seen")
    assert window["text"].startswith("the server's TCP window held the upload back for ")
    assert window["cost_ms"] >= 450 and "server" not in found
    with http_server({"/": Reply()}) as server:  # a body that fits into the window, however slowly it is read
        found = by_id(ask(call_tool, "-d", "x" * 30_000, server.url()))
    assert not {"tcp_window", "http2_window"} & set(found)


# --- losses ---------------------------------------------------------------------------------------


@on_a_path
def test_an_answer_whose_beginning_came_late_is_no_slow_server(lab):
    url = lab.start().http(("/", Reply(body=b"x" * 5_000)))
    lab.way.change(rules=[Rule("down", "data", 1, times=2)])
    words = ("some of what came was late", "may be the server's own time")
    found = lab.finds(costs("loss wait", "seen", 240, *words), url + "/")
    assert "server" not in found
    lab.way.change(rules=[])
    lab.misses(*NEVER_OF_A_BODY, ask=lambda: lab.read(url + "/"))


@on_a_path
def test_a_segment_of_the_handshake_that_came_late_is_seen_below_50_ms(lab):
    url = lab.start().http(tls=lab.tls(*(f"{number:03}.names.test" for number in range(200))))
    lab.way.change(rules=[Rule("down", "data", 2, "late", 0.03)])
    lab.finds(costs("loss tls", "seen", 30, "some of what came was late, behind what follows it"), url + "/")


@on_a_path
def test_the_path_says_whose_segments_were_lost(lab):
    url = lab.start().http(("/", Reply(body=b"x" * 100_000)))

    def path_of(*rules):
        lab.way.change(rules=rules)
        out = lab.run_tool(url + "/", within=lab.way.near).out
        return re.search(r"  Path +(.*(?:\n {15}.*)*)", out)[1]

    assert re.fullmatch(r"round trip 4\d\.\d\d ms, 0 retransmits", path_of())
    assert path_of(Rule("up", "data")).endswith(" ms, 1 retransmit")
    late = " ".join(path_of(Rule("down", "data", 8)).split())
    assert re.search(r" ms, 0 retransmits, \d+ of the server's segments out of order$", late)


# --- kept connections -----------------------------------------------------------------------------


@on_a_path
def test_a_connection_that_the_way_has_forgotten_is_called_that(lab):
    """As a NAT does it: the packets of a connection that was idle are dropped, those of new ones are not."""
    lab.start()
    url = lab.serve(http_server({"/": SMALL}, host=ANY)).url("/", FAR)
    lab.way.change(rules=[Rule("up", "data", 2, times=99)])
    document = lab.ask("--reuse", "--count", 3, "--interval", "0.3", "-m", "2", url, code=75)
    first, second, third = (run["steps"][-1] for run in document["runs"])
    assert second["error"]["kind"] == "timeout" and second["network"]["reused"]
    hint = (
        "A NAT, firewall or balancer on the way has forgotten the connection, which carried no request for "
    )
    assert second["error"]["hint"].startswith(hint)
    assert second["network"]["idle_ms"] >= 100
    for each in (first, third):
        assert each["network"]["idle_ms"] is each["error"] is None


@on_a_path
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_forgotten_connection_that_the_kernel_gives_up_is_called_that_too(lab, secure):
    """No second request comes through, and the system has given up before the time of -m."""
    lab.start(ipv4__tcp_retries2="3")
    lab.way.change(rules=[Rule("up", "data", 4 if secure else 2, times=99)])
    url = lab.http(**({"tls": lab.tls()} if secure else {}))
    words = ("--reuse", "--count", 2, "--interval", "0.3", "-m", "60", url + "/")
    _, second = (run["steps"][-1] for run in lab.ask(*words, code=75)["runs"])
    assert second["error"]["kind"] == "protocol" and second["network"]["reused"]
    assert second["error"]["hint"].startswith("A NAT, firewall or balancer on the way has forgotten")


@on_a_path
def test_a_slow_answer_on_a_kept_connection_is_not_forgotten(lab):
    replies = iter([SMALL, Reply(wait=60)])
    url = lab.start().serve(http_server({"/": lambda _: next(replies)}, host=ANY)).url("/", FAR)
    document = lab.ask("--reuse", "--count", 2, "--interval", "0", "-m", "1", url, code=75)
    assert "forgotten" not in document["runs"][1]["steps"][0]["error"]["hint"]


def test_what_a_server_says_of_keeping_connections_is_read(call_tool):
    said = {
        "timeout=5, max=100": 5,
        "max=3, Timeout = 15": 15,
        **dict.fromkeys(("timeout=5.5", "timeout", "max=3", "timeout=-1")),
    }
    for field, seconds in said.items():
        with http_server({"/": Reply(headers=[("Keep-Alive", field)])}) as server:
            assert ask(call_tool, server.url())["response"]["keep_alive_s"] == seconds


# --- what is left out, and the readings of a series -----------------------------------------------


def test_what_names_no_cause_is_left_out_where_a_cause_explains_it():
    def found(times, **known):
        return {each.id for each in tool.step_findings(recorded(times, **known))}

    lost = {"connected": {"retransmits": 1}}
    assert found("0 1040 0 40.8 0", **lost) == {"loss"}, "most of setting up is the lost SYN"
    assert found("0 40.4 84.5 40.7 0", tls="TLSv1.2") == {"setup", "tls12"}, "a third of it"


def readings(call_tool, *waits):
    """Return what a series says of a server's waits: how often and at what cost, and what that means."""
    replies = iter([Reply(wait=wait) for wait in waits])
    with http_server({"/": lambda _: next(replies)}) as server:
        out = call_tool("--count", len(waits), "--interval", "0", server.url()).out
    said = r"Reading wait, (in [^:]*): the server, or what is behind it, took (?:all|about)"
    return re.findall(said, flat(out))


def test_a_reading_of_a_series_has_the_median_and_the_worst(call_tool):
    [often] = readings(call_tool, 0.1, 0.4, 0.11, 0.12, 0.09)
    usual, most = re.fullmatch(r"in 5 of 5 runs, (\d+) ms usually, (\d+) at most", often).groups()
    assert 109 <= int(usual) < 399 <= int(most)


def test_a_reading_of_one_run_of_a_series_names_it(call_tool):
    [often] = readings(call_tool, 0, 0.3, 0)
    assert int(re.fullmatch(r"in run 2 of 3, (\d+) ms", often)[1]) >= 299


# --- the live line --------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 80])
def test_the_live_line_of_a_slow_run_names_its_phase(run_tool, columns):
    waits = iter([0, 0, 1.8, 0])
    with http_server({"/": lambda _: Reply(wait=next(waits))}) as server:
        begun = time.monotonic()
        result = run_tool("--count", "4", "--interval", "0.3", server.url(), terminal="err", columns=columns)
        assert time.monotonic() - begun < PATIENCE
    assert re.search(r"\r[^\r\n]*3 of 4[^\r\n]*wait 1\.\d s", result.err), result.err
