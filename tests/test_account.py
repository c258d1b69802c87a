"""Who owes a step's time, and what is said of it: by what a kernel counts, without a network.

On real paths, with the truth known by construction: test_causes.py, and bench/causes.py.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_fuzz import steadily

from inside import tool
from samples import sample

MS = 1000
TRIP = 12 * MS
COUNTERS = tool.Counters(**dict.fromkeys(tool.Counters._fields, 0))._replace(
    segment=1448, segment_in=1448, time_out_us=212 * MS, path_mtu=1500, rtt_us=TRIP, smoothed_rtt_us=TRIP
)
PROXY = tool.Route(tool.Proxy("http", "proxy.test", 3128, None, None), "https_proxy")
DIRECT = tool.Route(None, None)
REFUSED, GONE = (
    tool.Attempt("10.21.0.2", 300, "connection refused"),
    tool.Attempt("::2", 250 * MS, tool.GIVEN_UP),
)
WON = tool.Attempt("b", TRIP, None)


def step_of(
    error: str = "",
    route: Any = DIRECT,
    url: str = "http://a.test",
    version: str = "TLSv1.3",
    headers: Any = (),
    body: int = 0,
    send: float = 0,
    attempts: Any = None,
    **known: Any,
) -> Any:
    """Make a step: times in ms by phase; of the counters at its marks what is not as in COUNTERS."""
    spent = [round(known.pop(phase, 0) * MS) for phase in tool.PHASES]
    marks = {mark: known.pop(mark, {}) for mark in ("connected", "sent", "answered", "ended")}
    marks["ended"] = marks["ended"] or marks["answered"]
    counters = {mark: COUNTERS._replace(**changes) for mark, changes in marks.items()}
    if route.unix_socket:
        counters = {}  # there the kernel counts nothing
    attempts = attempts or (tool.Attempt("192.0.2.1", spent[1], None),)
    addresses = tuple(each.ip for each in attempts)
    made = sample(1, sum(spent))
    phase, _, kind = error.partition(" ")
    return made._replace(
        request=made.request._replace(url=tool.parse_url(url)),
        timing=tool.Timing(*spent, sum(spent), round(send * MS), None),
        network=made.network._replace(attempts=attempts, tls=tool.TlsInfo(version), addresses=addresses),
        response=tool.Response(200, "", "HTTP/1.1", headers),
        body_bytes=body,
        route=route,
        error=tool.Failure(kind, phase, "no", "try") if error else None,
        evidence=tool.Evidence(**{**counters, "connected_us": spent[1], **known}),
    )


def connects(ms: float, *attempts: Any) -> dict[str, Any]:
    return {"connect": ms, "attempts": attempts}


def through(proxy: str, ms: float, target: str = "https", source: str = "https_proxy") -> dict[str, Any]:
    """Connect through a proxy of a kind, which is a round trip away."""
    route = tool.Route(tool.Proxy(proxy, "proxy.test", 3128, None, None), source)
    return {**connects(ms, WON), "connected_us": TRIP, "route": route, "url": f"{target}://a.test"}


def owed(step: Any) -> str:
    """Say who owes how many ms of a step, in turn; ! is for what is seen."""
    shares = tool.accounted(step, 0).account
    return ", ".join(f"{each.owners}{'!' * (each.certainty == 'seen')} {each.us / MS:g}" for each in shares)


def counted(mark: str, busy: float, more: dict[str, Any]) -> dict[str, Any]:
    """Give what the kernel counted at a mark, so many ms after which all was acknowledged; with all else."""
    counters = {name: value for name, value in more.items() if name in COUNTERS._fields}
    rest = {name: value for name, value in more.items() if name not in counters}
    return {mark: {"busy_us": busy * MS, **counters}, **rest}


def waited(ms: float, busy: float, **more: Any) -> dict[str, Any]:
    return {"wait": ms, **counted("answered", busy, more)}


def shook(ms: float, busy: float, **more: Any) -> dict[str, Any]:
    return {"tls": ms, **counted("sent", busy, more)}


def sent(ms: float, busy: float, **more: Any) -> dict[str, Any]:
    """Send 300 KB in 5 round trips: 10, 20, 40, 80, 160 segments."""
    return waited(ms, busy, request_bytes=300_000, **more)


def came(ms: float, size: int = 0, here: float = 0, **more: Any) -> dict[str, Any]:
    return {"xfer": ms, "body": size, "starved": {"xfer": here * MS}, **more}


def paused(ms: float, number: int = 1, longest: float = 0, **more: float) -> dict[str, Any]:
    """Give pauses; how long (ms) something was `lost`, bytes that came `behind`; idle times of `flights`."""
    times = (ms, longest, more.get("lost", 0), more.get("flights", 0))
    us, most, lost_us, flights_us = (round(each * MS) for each in times)
    return {"pauses": tool.Pauses(us, number, most, lost_us, int(more.get("behind", 0)), flights_us)}


def far(ms: float) -> dict[str, Any]:
    return {"ended": {"rtt_us": round(ms * MS)}}


def grown(ms: float) -> dict[str, Any]:
    """Send 30 KB, which needs two round trips of 100 ms, in 600, by when they have grown."""
    return waited(600, 600, request_bytes=30_000, **far(100), smoothed_rtt_us=round(ms * MS))


def large(ms: float) -> dict[str, Any]:
    """Send 10 MB, which needs ten round trips of 100 ms."""
    return waited(ms, ms, request_bytes=10_000_000, **far(100))


def sample_of(ms: float) -> dict[str, int]:
    """Give the smoothed round trip after an acknowledgment that took so long."""
    return {"smoothed_rtt_us": TRIP + round((ms * MS - TRIP) / 8)}


AGAIN = {"retransmits": 1}
MOVED = tool.Response(302, "", "HTTP/1.1", ())
BY_SOCKET = {"route": tool.Route(None, None, "/s"), "connected_us": None}
LATE, HOLE = {"error": "wait timeout"}, {"disorder": 1}
ACCOUNTS: dict[str, tuple[dict[str, Any], str]] = {
    "a lookup": ({"dns": 40}, "resolver! 40"),
    "a round trip": ({"connect": 12}, "path! 12"),
    "a SYN-ACK a little late": ({"connect": 34}, "path! 12, path 22"),
    "a late SYN-ACK": ({"connect": 34.1}, "path! 12, server|path 22.1"),
    "a lost SYN": ({"connect": 1012, "connected": AGAIN}, "path! 12, loss! 1000"),
    "an address in vain": (connects(262, GONE, WON), "attempts! 250, path! 12"),
    "a socket made late": (connects(13, WON), "here! 1, path! 12"),
    "no connection": ({"connect": 500, "connected_us": None}, "attempts! 500"),
    "a unix socket": ({"connect": 1, **BY_SOCKET}, "server! 1"),
    "a proxy that connects": (through("http", 600), "path! 12, path 12, proxy 576"),
    "a proxy over TLS": (through("https", 600), "path! 12, path 24, proxy 564"),
    "a proxy that is asked twice": (through("socks5", 600), "path! 12, path 24, proxy 564"),
    "a proxy over TLS that forwards": (through("https", 600, "http"), "path! 12, path 12, proxy 576"),
    "a proxy whose answer was lost, perhaps": (through("http", 244), "path! 12, path 12, proxy|loss 220"),
    "a proxy that forwards": (through("http", 12, "http"), "path! 12"),
    "TLS 1.3": (shook(30, 12), "path! 12, server 18"),
    "TLS 1.2": (shook(30, 24, version="TLSv1.2"), "path! 24, server 6"),
    "TLS with much computing": (shook(40, 12, quiet_us=12 * MS), "path! 12, here! 12, server 16"),
    "TLS with little": (shook(40, 12, quiet_us=10 * MS), "path! 12, server 28"),
    "TLS without a CPU": (
        shook(60, 12, quiet_us=12 * MS, starved={"tls": 13 * MS}),
        "path! 12, here! 13, server 35",
    ),
    "a handshake that was lost, perhaps": (shook(236, 12), "path! 12, server|loss 224"),
    "a handshake of which parts came too early": (shook(69, 12, disorder=1), "path! 12, server|loss 57"),
    "a slow handshake that failed": (shook(512, 12, version=None), "path! 12, server 500"),
    "a slow server": (waited(112, 12, segment_in=1407), "path! 12, server 100"),
    "an acknowledgment within ticks": (waited(40, 22), "path! 12, server 28"),
    "one that may be held back": (waited(40, 22.1), "path! 12, server|path 10.1, server 17.9"),
    "the longest such": (waited(300, 212), "path! 12, server|path 200, server 88"),
    "a path that has grown": (waited(300, 212.1), "path! 12, path 200.1, server 87.9"),
    "a request lost": (waited(231, 231, **AGAIN), "path! 12, loss! 219"),
    "a request lost, and a late answer": (waited(512, 512, **AGAIN), "path! 12, loss! 224, server|loss 276"),
    "one lost, by a sample": (waited(400, 400, **AGAIN, **sample_of(279)), "path! 12, loss! 224, server 164"),
    "a request late, by a sample": (waited(400, 400, **AGAIN, **sample_of(280)), "path! 12, path 388"),
    "a duplicate": (waited(616, 285, retransmits=1, duplicates=1), "path! 12, path|loss 273, server 331"),
    "a request lost or late at the end": (waited(500, 500, **AGAIN, **LATE), "path! 12, loss|path 488"),
    "a request late by 100 ms": (waited(112, 112, **AGAIN, **sample_of(112)), "path! 12, path 100"),
    "a request late or lost": (waited(232, 232, **AGAIN, **sample_of(232)), "path! 12, path|loss 220"),
    "an answer too early to be lost": (waited(211.9, 12), "path! 12, server 199.9"),
    "an answer lost, perhaps": (waited(212, 12), "path! 12, server|loss 200"),
    "the latest such": (waited(296, 12), "path! 12, server|loss 284"),
    "one too late for that": (waited(296.1, 12), "path! 12, server 284.1"),
    "an answer lost twice, perhaps": (waited(496, 12), "path! 12, server|loss 484"),
    "one too late for that, too": (waited(496.1, 12), "path! 12, server 484.1"),
    "one within a machine": (waited(242, 12, connected={"segment": 32_768}), "path! 12, server 230"),
    "one of a unix socket": ({"wait": 230, **BY_SOCKET}, "server 230"),
    "early parts": (waited(300, 12, early_us=150 * MS), "path! 12, loss! 150, server|loss 100, server 38"),
    "no CPU": (waited(100, 12, starved={"wait": 30 * MS}), "path! 12, here! 30, server 58"),
    "behind a proxy": (waited(312, 12, route=PROXY), "path! 12, server|proxy 300"),
    "a kernel that does not tell": ({**waited(50, 0), "sent": {"busy_us": None}}, "path! 12, server 38"),
    "silence": (waited(1500, 12, **LATE), "path! 12, server|path 1488"),
    "silence of what lives": (waited(1500, 12, **LATE, is_alive=True), "path! 12, server 1488"),
    "silence of what is dead": (waited(1500, 12, **LATE, is_alive=False), "path! 12, path|loss 1488"),
    "silence of what sent nothing large": (
        waited(1500, 12, **LATE, is_alive=True, segment_in=1407),
        "path! 12, server|loss 1488",
    ),
    "silence behind a hole": (waited(1500, 12, **LATE, is_alive=True, **HOLE), "path! 12, loss|server 1488"),
    "a wait before a silence": (waited(1500, 12, error="xfer timeout"), "path! 12, server 1488"),
    "a request of one round trip": (waited(30, 12, request_bytes=14_480), "path! 12, server 18"),
    "a byte more": (waited(30, 24, request_bytes=14_481), "path! 24, server 6"),
    "an upload in round trips": (sent(60, 60), "path! 60"),
    "an upload on a line": (sent(660, 660, smoothed_rtt_us=18 * MS, **AGAIN), "path! 12, line 648"),
    "one without a queue": (
        sent(660, 660, smoothed_rtt_us=17 * MS, duplicates=1),
        "path! 12, line|server 648",
    ),
    "an upload in hardly more": (sent(71.2, 71.2), "path! 60, path|line 11.2"),
    "an upload of one round trip more": (sent(83.2, 83.2), "path! 12, path 48, path|line 23.2"),
    "a window that costs one of three": (
        waited(47.2, 47.2, request_bytes=30_000, limited_us=12 * MS),
        "path! 12, path 12, path|server 23.2",
    ),
    "of more": (sent(83.3, 83.3), "path! 12, path 17.988, line|server 53.312"),
    "a large one in two more": (large(1210), "path! 100, path 900, path|line 210"),
    "in more than two": (large(1221), "path! 100, path 612.091, line|server 508.909"),
    "an upload that waits for windows, then on a line": (
        waited(600, 600, request_bytes=100_000, **far(100), smoothed_rtt_us=201 * MS),
        "path! 100, path 32.274, line 467.726",
    ),
    "round trips of an upload that all have grown": (grown(180), "path! 100, line|path 500"),
    "of a path that grew within it": (grown(300), "path! 100, line|path 500"),
    "too short for that": (grown(179), "path! 100, line 500"),
    "too long for it": (grown(301), "path! 100, line 500"),
    "a window that ran empty": (sent(660, 660, limited_us=66_100), "path! 12, server|line 648"),
    "hardly": (sent(660, 660, limited_us=66_000), "path! 12, line|server 648"),
    "a shut window": (sent(660, 660, limited_us=500 * MS, retransmits=3), "path! 12, server|line 648"),
    # What comes after the last acknowledgment is no part of an upload.
    "one of HTTP/2": (sent(660, 100, send=588, held_us=500 * MS), "path! 12, server|line 588, server 60"),
    "held and counted": (sent(560, 460, held_us=300 * MS), "path! 12, server|line 448, server 100"),
    "an upload with a loss": (
        sent(560, 284, retransmits=2, duplicates=1),
        "path! 12, path 48, loss! 212, path|line 12, server|loss 276",
    ),
    "an upload with three": (sent(960, 860, retransmits=3), "path! 60, loss|line 800, server 100"),
    "an upload that is lost at last": (sent(1500, 1500, retransmits=2, **LATE), "path! 60, loss|path 1440"),
    "an upload with two": (
        sent(960, 860, retransmits=2),
        "path! 12, path 1.858, loss! 636, line|server 210.142, server 100",
    ),
    "an upload whose MTU was told": (sent(310, 210, path_mtu=1300, **AGAIN), "path! 210, server 100"),
    "a body within a round trip": (came(23.2, 9), "line|path 23.2"),
    "a body of one round trip more, with a hole": (came(23.2, 9, ended=HOLE), "loss|path 23.2"),
    "a body a little later": (came(23.3, 9), "line|server 23.3"),
    "a body of three flights": (came(60, 14_480 * 7), "path 24, line|server 36"),
    "a byte more of it": (came(60, 14_480 * 7 + 1), "path 36, line|server 24"),
    "a body on a line that is just far": (
        came(900, 100_000, **far(41), **paused(0, flights=70)),
        "path 70, line|server 830",
    ),
    "one just near": (came(900, 100_000, **far(40), **paused(0, flights=70)), "path 80, line|server 820"),
    "far pieces": (came(900, 100_000, **far(100), **paused(0, flights=800)), "path 200, server|line 700"),
    "too few idle times for that": (
        came(900, 100_000, **far(100), **paused(0, flights=549)),
        "path 200, line|server 700",
    ),
    "a body that is far alone": (came(320, 100_000, **far(100)), "path 200, line|path 120"),
    "pauses on a path that has grown, perhaps": (
        {**waited(120, 112), **came(900, 9, **paused(448, 2, 224))},
        "path! 12, server|path 100, server 8, server|path 448, line|server 452",
    ),
    "pauses after an upload": (
        {**waited(120, 112, request_bytes=20_000), **came(900, 9, **paused(448, 2, 224))},
        "path! 12, line|server 100, server 8, server 448, line|server 452",
    ),
    "pauses that are longer": (
        {**waited(120, 112), **came(900, 9, **paused(448, 2, 224.1))},
        "path! 12, server|path 100, server 8, server 448, line|server 452",
    ),
    "a body in pieces": (came(900, 20_000, **paused(800, 2)), "server 800, path 12, line|server 88"),
    "pieces from behind a proxy": (came(240, route=PROXY, **paused(240, 2)), "server|proxy 240"),
    "one pause like a time-out": (came(230, **paused(224)), "server|loss 224, line|path 6"),
    "one too short for that": (came(199.9, **paused(199.9), ended=HOLE), "server 199.9"),
    "a body with a loss, on a line that was full": (
        came(800, 80_000, **paused(100, 1, lost=400, behind=30_000), ended={"disorder": 9}),
        "loss! 234.4, server 100, path 24, line|loss 441.6",
    ),
    "a body with a loss": (came(300, **paused(0, 0, lost=250)), "loss! 250, line|server 50"),
    "a stopped body": (came(1500, error="xfer timeout", **paused(1400)), "server|path 1400, line|server 100"),
    "a body read late": (came(110, here=10.1), "here! 10.1, line|here 99.9"),
    "a body with losses, read late": (came(110, here=10.1, ended=HOLE), "here! 10.1, line|loss 99.9"),
    "a body hardly read late": (came(110, here=9.9), "here! 9.9, line|server 100.1"),
    "pauses unread": (came(90, here=30, **paused(60, 2)), "here! 30, server 30, line|here 30"),
}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_each_has_its_owner(name):
    known, expected = ACCOUNTS[name]
    assert owed(step_of(**known)) == expected


def test_where_no_kernel_tells_a_far_server_is_no_late_answer():
    step = step_of(connect=61)._replace(evidence=tool.Evidence(connected_us=61 * MS))
    [told] = tool.accounted(step, 0).findings
    assert told.text == "connecting took this long: a far server, a queue or a loss on the way"


def test_an_upload_that_two_held_is_told_once_with_all_its_time():
    known = sent(660, 360, send=655, held_us=300 * MS, acknowledged=300_000)
    found = tool.accounted(step_of(**known), 0).findings
    assert [each.id for each in found] == ["upload"] and "took 660 ms" in found[0].text


def test_of_a_body_that_one_flight_more_explains_both_are_named():
    """On a healthy path of 300 ms: `line` or `path`."""
    far = {"rtt_us": 300 * MS}
    found = tool.accounted(step_of(**came(1200, 200_000, answered=far)), 0).findings
    assert all("round trip" in each.text for each in found), found


def cut_off(response: Any = None, is_alive: bool | None = None, send: int = 1000, **ended: int) -> str:
    """Say what to try of an upload of 300 KB that was cut off after a second, with these counters."""
    failed = step_of(request_bytes=300_000, wait=1000, ended=ended, error="wait timeout")
    timing = failed.timing._replace(xfer=None, send=send * MS)
    network = failed.network._replace(peer=tool.Peer("2001:db8::1", 10, ("2001:db8::1", 80)))
    evidence = failed.evidence._replace(answered=None, is_alive=is_alive)
    failed = failed._replace(timing=timing, network=network, response=response, evidence=evidence)
    return tool.accounted(failed, 0).error.hint


def test_an_upload_may_end_within_the_round_trips_that_it_needs():
    assert cut_off(busy_us=60 * MS, acknowledged=200_000, sent=300_000)


def test_of_a_path_that_is_dead_small_packets_tell_nothing_nor_does_http2_without_a_length():
    over_http2 = tool.Response(200, "", "HTTP/2", ())
    hint = cut_off(over_http2, False, busy_us=60 * MS, acknowledged=10, sent=9, segment_in=536)
    assert "so the path is dead" in hint and "MTU" not in hint


def test_of_an_upload_that_is_cut_off_it_is_told_who_held_it_though_frames_of_http2_still_come():
    known = {"busy_us": 1000 * MS, "acknowledged": 200_001, "sent": 300_000, "received": 900}
    assert cut_off(**known, **AGAIN, heard_us=499 * MS).startswith("Sending 195.3 KB took 1.0 s: ")
    assert cut_off(**{**known, "acknowledged": 1449}, **AGAIN, heard_us=499 * MS) == "try", "one segment"
    whole = {**known, "acknowledged": 300_001}  # of what had left: with HTTP/2 more may be waiting
    assert (cut_off(**whole)[:7], cut_off(send=999, **whole)) == ("Sending", "try")
    lost = "Lost or late on the way: 100000 bytes were sent again .* try ping -M do -s 1452 2001:db8::1."
    assert re.fullmatch(lost, cut_off(**{**known, "received": 0}, **AGAIN, heard_us=500 * MS))


def test_a_silence_before_a_body_was_cut_off_is_told_from_a_second_on():
    known = [(1000, 2000), (2000, 1000), (999, 2000)]  # in the kernel's count, and since the first byte
    steps = [step_of("xfer protocol", xfer=xfer, ended={"quiet_us": quiet * MS}) for quiet, xfer in known]
    said = "Nothing came for 1.0 s before that. try"
    assert [tool.accounted(step, 0).error.hint for step in steps] == [said, said, "try"]


def test_what_came_before_is_looked_at_first_where_it_left_little():
    cases = (("connect timeout", 1000), ("connect timeout", 999), ("connect network", 999))
    hints = [tool.accounted(step_of(error, connect=ms), 10**7).error.hint for error, ms in cases]
    assert hints[::2] == ["What came before left connect only 1.0 s of that time. try", "try"]
    assert "look there first; or give it more time" in hints[1]


some_us = st.integers(0, 10**8)
counters = st.none() | st.binary(min_size=160, max_size=256).map(tool.parse_tcp_info)
evidences = st.fixed_dictionaries(
    {
        **dict.fromkeys(("connected", "sent", "answered", "ended"), counters),
        "connected_us": st.none() | some_us,
        "request_bytes": st.integers(0, 10**9),
        "starved": st.dictionaries(st.sampled_from(tool.PHASES), some_us),
        "early_us": some_us,
        "pauses": st.builds(tool.Pauses, some_us, some_us, some_us, some_us),
        "held_us": some_us,
        "is_alive": st.none() | st.booleans(),
        "resolver": st.none() | st.just(tool.Resolver(("192.0.2.53",), search=("a.test", "b.test"), ndots=5)),
        "canonical_name": st.none() | st.sampled_from(["a.test", "cdn.test"]),
    }
)
routes = st.sampled_from([DIRECT, PROXY, tool.Route(None, None, "/s")])
errors = st.just("") | st.sampled_from(
    [f"{phase} {kind}" for phase in tool.PHASES for kind in ("timeout", "network")]
)


@steadily
@given(
    st.lists(st.none() | st.integers(0, 10**7), min_size=5, max_size=5), evidences, routes, errors, some_us
)
def test_whatever_is_counted_shares_add_up_and_findings_can_be_told(times, evidence, route, error, body):
    made = step_of(route=route, error=error, body=body)
    timing = tool.Timing(*times, sum(filter(None, times)), None, None)
    made = made._replace(timing=timing, evidence=tool.Evidence(**evidence))
    step = tool.accounted(made, 10**7)
    for phase, us in zip(tool.PHASES, times):
        assert sum(share.us for share in step.account if share.phase == phase) == (us or 0)
    assert all(share.us > 0 and share.owner != share.other for share in step.account)
    for finding in step.findings:
        assert finding.cost_us >= max(5000, timing.total / 10) and finding.text
    assert len({(each.id, each.phase) for each in step.findings}) == len(step.findings)
    json.dumps(tool.step_document(step))


# --- words ----------------------------------------------------------------------------------------

REPORT = (("Server-Timing", b"hit, cache;dur=2, db;dur=53"),)
BEFORE = {"sent": {"acknowledged": 9_000}}
NAMES = tool.Resolver(("10.9.1.53",), search=("b.test",), ndots=5)
LOOKUP = {"resolver": NAMES._replace(ndots=1), "canonical_name": "a.test"}
TOLD: dict[str, dict[str, Any]] = {
    "lookup": {"dns": 475, **LOOKUP, "resolver": NAMES},
    "lookup of a whole name": {"dns": 475, "resolver": NAMES, "url": "http://a.test."},
    "lookup that fits time-outs": {"dns": 5013, **LOOKUP},
    "attempts": connects(274, REFUSED, GONE, WON),
    "attempts of one family": connects(274, GONE._replace(ip="10.21.0.3"), WON),
    "connect": {"connect": 712},
    "loss": {"connect": 1012, "connected": AGAIN},
    "loss of a request": waited(231, 231, **AGAIN),
    "loss of much": sent(960, 860, retransmits=3),
    "loss of large packets": waited(1000, 300, **AGAIN, early_us=600 * MS, ended={"segment_in": 536}),
    "loss of a request and of parts": waited(300, 285, **AGAIN, early_us=12 * MS),
    "loss in a body": came(300, **paused(0, 0, lost=250)),
    "path": {"connect": 412, **waited(412, 412, ended={"rtt_us": 412 * MS})},
    "path over TLS": {**connects(412, WON._replace(duration_us=412 * MS)), **shook(412, 412), **far(412)},
    "path that grew": waited(412, 412),
    "path or a server that holds back": waited(112, 112),
    "path or a loss": waited(300, 285, retransmits=1, duplicates=1),
    "path of a large request": waited(120, 120, request_bytes=31_130, ended={"rtt_us": 60 * MS}),
    "proxy": through("http", 600),
    "proxy or a loss": through("http", 244),
    "proxy over TLS": through("https", 600, "http", source="--proxy"),
    "tls_slow": shook(512, 12),
    "tls_slow and not lost": shook(112, 12),
    "tls_slow behind a proxy": shook(512, 12, route=PROXY),
    "server": waited(112, 12, headers=REPORT),
    "server that reports more than that": waited(112, 12, headers=(("Server-Timing", b"db;dur=113"),)),
    "server that held it back": waited(300, 112),
    "server that delays an acknowledgment": waited(54, 12),
    "server or a loss": waited(242, 12),
    "server within this machine": waited(242, 12, connected={"segment": 32_768}),
    "server with parts that were here": waited(118, 12, early_us=9 * MS, disorder=1),
    "server behind a proxy": waited(312, 12, route=PROXY._replace(source="--proxy"), headers=REPORT),
    "upload": sent(2660, 2660, limited_us=280 * MS, acknowledged=300_000),
    "upload that has grown": sent(760, 660, smoothed_rtt_us=120 * MS, acknowledged=300_000),
    "upload on a line": {**sent(1760, 1760, smoothed_rtt_us=40 * MS, acknowledged=300_000), **BEFORE},
    "pauses": came(4500, **paused(4100, 10, 454)),
    "pauses on a path that has grown": {**waited(120, 112), **came(900, **paused(800, 8, 101))},
    "pauses but one": came(500, **paused(450)),
    "pauses but a short one": came(200, **paused(150)),
    "body": came(8300, 2_000_000),
    "body on a kept connection": {**waited(100, 100), **came(101, 9), **far(100)},
    "body read late": came(110, 9, here=10.5),
    "body with losses": came(8300, 2_000_000, ended={"disorder": 9}),
    "body in pieces": came(8300, 20_000, **paused(0, 0, flights=4_200)),
    "starved": waited(100, 12, starved={"wait": 80 * MS}),
}
WORDS = """
lookup: the resolver (10.9.1.53) took 475 ms for up to 2 names (search list): one run with http://a.test./
  tells whether it is the list
lookup of a whole name: the resolver (10.9.1.53) took 475 ms
lookup that fits time-outs: the resolver (10.9.1.53) took 5.0 s; it fits a time-out of 5 s: a name server gave
  no usable answer in time, or none for A or AAAA (-4 or -6 tells)
attempts: 10.21.0.2 refuses (nothing listens); ::2 had not answered after 250 ms: dead or far, -6 tells
attempts of one family: 10.21.0.3 had not answered after 250 ms: dead or far, --resolve a.test:80:10.21.0.3
  tells
connect: the answer to the SYN came 700 ms later than a round trip (12.0 ms): a balancer that connects first,
  a radio, ARP, or a queue on the way
loss: the SYN had to be sent again, once: it or its answer was lost or late (loss, a firewall, a full listen
  queue)
loss of a request: 1 segment had to be sent again: loss on the way
loss of much: 3 segments had to be sent again: loss on the way, or a rate limit
loss of large packets: parts of the answer were here, and waited for one that was lost on the way; or packets
  of 1,500 bytes do not get through (MTU)
loss of a request and of parts: 1 segment had to be sent again: loss on the way
loss in a body: what came waited for a segment that was lost or late on the way
path: 2 round trips of 412 ms: a far server, or a queue on the way; a kept connection saves 1
path over TLS: 2 round trips of 412 ms: a far server, or a queue on the way; a kept connection saves 2
path that grew: an acknowledgment took 400 ms more than a round trip (12.0 ms): a queue on the way, a radio,
  another route
path or a server that holds back: an acknowledgment took 100 ms more than a round trip (12.0 ms): the server
  held it back, or a queue on the way, a radio, another route
path or a loss: an acknowledgment took 273 ms more than a round trip (12.0 ms): it was lost, or a queue on the
  way, a radio, another route
path of a large request: the request has 30.4 KB: it needs 2 round trips of 60.0 ms
proxy: the proxy took this long to connect to the target; TCP to the proxy itself took 12.0 ms; -x '' goes
  without it
proxy or a loss: the proxy took this long to connect to the target, or its answer was lost; TCP to the proxy
  itself took 12.0 ms; -x '' goes without it
proxy over TLS: the proxy took this long to shake hands; TCP to the proxy itself took 12.0 ms
tls_slow: the server, or a box in between, took about 500 ms to answer the handshake, or its answer was lost
tls_slow and not lost: the server, or a box in between, took about 100 ms to answer the handshake
tls_slow behind a proxy: the proxy (from https_proxy), the way behind it or the server took about 500 ms to
  answer the handshake, or its answer was lost; -x '' goes without it
server: the server, or what is behind it, took about 100 ms; it reports 53 ms itself (db)
server that reports more than that: the server, or what is behind it, took about 100 ms
server that held it back: the server, or what is behind it, took 188 ms to 288 ms
server that delays an acknowledgment: the server, or what is behind it, took about 42.0 ms; 40 ms is also what
  a delayed acknowledgment takes: TCP_NODELAY
server or a loss: the server, or what is behind it, took about 230 ms, or its answer was lost
server within this machine: the server, or what is behind it, took about 230 ms
server with parts that were here: the server, or what is behind it, took about 97.0 ms, or its answer was lost
server behind a proxy: the proxy, the way behind it or the server took about 300 ms, or its answer was lost;
  the server reports 53 ms itself (db)
upload: sending 293.0 KB took 2.7 s: 902 kbit/s: the program there reads no faster, or its window is small
  (shut for 280 ms); or the line
upload that has grown: sending 293.0 KB took 660 ms: 3.6 Mbit/s: the line, this machine's way out, or a path
  that has grown
upload on a line: sending 293.0 KB took 1.8 s: 1.4 Mbit/s: the line, or this machine's way out
pauses: the server sent in pieces: 4.1 s of 4.5 s in 10 pauses, the longest 454 ms
pauses on a path that has grown: the server sent in pieces: 800 ms of 900 ms in 8 pauses, the longest 101 ms;
  or the path has grown
pauses but one: the server sent nothing for 450 ms, or what it sent was lost
pauses but a short one: the server sent nothing for 150 ms
body: 1.9 MB in 8.3 s: 235.3 KB/s without a pause: the line, a rate limit or a small buffer
body on a kept connection: 9 B in 101 ms: 89 B/s: a round trip more, the line, or a loss
body read late: 9 B in 99.5 ms: 90 B/s: the line, or this process, which read it late
body with losses: 1.9 MB in 8.3 s: 235.3 KB/s: the line, a rate limit, or segments that were lost
body in pieces: 19.5 KB in 8.3 s: 2.4 KB/s in pieces up to two round trips apart: the server, or a small
  buffer
starved: this process waited for a CPU, or computed: its times may be too long by this
"""
TEXTS = dict(" ".join(each.split()).split(": ", 1) for each in re.split(r"\n(?=\S)", WORDS.strip()))


@pytest.mark.parametrize("name", TOLD)
def test_a_finding_says_what_it_means(name):
    step = tool.accounted(step_of(**TOLD[name]), 0)
    assert (step.findings[0].id, step.findings[0].text) == (name.split()[0], TEXTS[name])
    assert step.findings[0].owner in {share.owner for share in step.account}


@pytest.mark.parametrize(
    "known",
    [
        {"dns": 49, "wait": 1},
        waited(49, 1),  # a server may compute so long
        {"connect": 49, "tls": 1},
        {"xfer": 49, "body": 100_000},
        {"connect": 12, **shook(14, 12), **waited(20, 12), "xfer": 1},
        waited(1500, 12, error="wait timeout"),  # Why and Try say it
    ],
)
def test_what_is_small_or_has_failed_has_no_finding(known):
    assert tool.accounted(step_of(**known), 0).findings == ()


@pytest.mark.parametrize(
    ("told", "just", "not_quite"),
    [
        ("the resolver", {"dns": 50}, {"dns": 49.9}),
        ("fits a time-out", {"dns": 4_990, **LOOKUP}, {"dns": 4_989.9, **LOOKUP}),
        (
            "fits a time-out",
            {"dns": 5_003, **LOOKUP, "error": "dns dns"},
            {"dns": 5_003, **LOOKUP, "error": "dns timeout"},
        ),
        ("fits a time-out", {"dns": 5_250, **LOOKUP}, {"dns": 5_250.1, **LOOKUP}),
        ("1 round trip of", {"connect": 60, "xfer": 48, "rtt": 60}, {"connect": 60, "xfer": 61, "rtt": 60}),
        ("a segment that was lost", {"xfer": 9, "lost": 9, "dns": 81}, {"xfer": 9, "lost": 9, "dns": 81.1}),
        ("a segment that was lost", {"xfer": 5, "lost": 5}, {"xfer": 4.9, "lost": 4.9}),
        ("without a pause", {"xfer": 90, "dns": 200}, {"xfer": 49, "dns": 200}),
        ("waited for a CPU", {"xfer": 90, "here": 20}, {"xfer": 90, "here": 19.9}),
        ("TCP_NODELAY", {"wait": 50, "rtt": 12}, {"wait": 49.9, "rtt": 12}),
        ("TCP_NODELAY", {"wait": 61.9, "rtt": 12}, {"wait": 62, "rtt": 12}),
        ("TCP_NODELAY", {"wait": 59.9, "rtt": 19.9}, {"wait": 60, "rtt": 20}),
    ],
)
def test_just_enough_is_told_and_a_little_less_is_not(told, just, not_quite):
    def texts(rtt=12, lost=0, here=0, **known):
        kernel = {"busy_us": rtt * MS, "rtt_us": round(rtt * MS)}
        step = step_of(
            **known, **paused(0, 0, lost=lost), answered=kernel, starved={"xfer": round(here * MS)}
        )
        return str([finding.text for finding in tool.accounted(step, 0).findings])

    assert told in texts(**just) and told not in texts(**not_quite)


def test_the_row_spent_has_owners_in_falling_order_without_what_is_below_a_hundredth():
    step = step_of(dns=13, connect=12, **waited(87, 12), xfer=1, body=10)
    ((label, text),) = tool.spent_row(tool.accounted(step, 0))
    assert (label, text) == ("Spent", "75 ms server, 24 ms path (2 round trips of 12), 13 ms resolver")
    ((_, text),) = tool.spent_row(tool.accounted(step_of(connect=12, **waited(412, 412)), 0))
    assert text == "424 ms path", "they grew"


def test_a_step_that_nothing_was_asked_for_repeats_no_other():
    first = step_of(wait=30)
    again = first._replace(number=2, error=tool.Failure("redirect", "dns", "no", "try"))
    moved, ended = (again._replace(error=None, response=each) for each in (MOVED, first.response))
    posted = first._replace(request=first.request._replace(method="POST"))
    failed = again._replace(error=tool.Failure("network", "wait", "no", "try"))
    chains = ((first, again), (first, ended), (posted, moved), (first, moved), (first, failed))
    told = [tool.loop_text(tool.Run(steps, False)) for steps in chains]
    assert told == ["", "", "", *["; step 2 asks what step 1 asked: a loop"] * 2]
    assert tool.accounted(again._replace(route=PROXY), 0).error.hint == "try", "nor is it the proxy's"


@pytest.mark.parametrize(
    ("before", "last", "told"), [(30, 70, True), (29.9, 70, False), (5, 1, True), (4.9, 1, False)]
)
def test_redirects_are_told_from_5_ms_and_three_tenths_of_the_chain_on(before, last, told):
    steps = (step_of(wait=before), step_of(wait=last))
    assert bool(tool.chain_findings(tool.Run(steps, False))) == told


# --- what the kernel counts -----------------------------------------------------------------------


def test_the_counters_stand_where_linux_has_them():
    info = bytearray(248)
    info[0] = 1
    counted = {
        "unanswered": (2, 2),
        "time_out_us": (8, 4),
        "segment": (16, 4),
        "segment_in": (20, 4),
        "path_mtu": (60, 4),
        "smoothed_rtt_us": (68, 4),
        "retransmits": (100, 4),
        "acknowledged": (120, 8),
        "received": (128, 8),
        "rtt_us": (148, 4),
        "busy_us": (168, 8),
        "limited_us": (176, 8),
        "duplicates": (216, 4),
        "disorder": (224, 4),
    }
    for number, (offset, size) in enumerate(counted.values(), 1):
        info[offset : offset + size] = (number << (size * 4)).to_bytes(size, sys.byteorder)
    for offset, ms in ((52, 7), (56, 9)):
        info[offset : offset + 4] = ms.to_bytes(4, sys.byteorder)
    info[200:208], info[208:216] = (9000).to_bytes(8, sys.byteorder), (1448).to_bytes(8, sys.byteorder)
    read = tool.parse_tcp_info(bytes(info))._asdict()
    expected = {name: number << (size * 4) for number, (name, (_, size)) in enumerate(counted.items(), 1)}
    assert read == {**expected, "quiet_us": 7_000, "heard_us": 9_000, "sent": 7_552}


def test_a_counter_that_falls_has_not_grown():
    """An emulation of Linux may fill some counters and leave others at zero."""
    earlier = COUNTERS._replace(retransmits=9, sent=5, acknowledged=1)
    assert [COUNTERS.since(earlier, name) for name in ("retransmits", "sent", "acknowledged")] == [0, 0, 0]


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
