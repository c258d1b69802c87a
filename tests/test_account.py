"""Who owes a step's time, and what is said of it: by what a kernel counts, without a network.

On real paths, with the truth known by construction: test_causes.py, and bench/causes.py.
"""

from __future__ import annotations

import json
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
TLS_PROXY = tool.Route(tool.Proxy("https", "proxy.test", 3128, None, None), "--proxy")
DIRECT = tool.Route(None, None)
HTTPS = {"url": "https://a.test"}


def step_of(
    *,
    attempts: Any = None,
    body: int = 0,
    error: str = "",
    route: Any = DIRECT,
    version: str = "TLSv1.3",
    url: str = "http://a.test",
    headers: Any = (),
    dns: float = 0,
    connect: float = 0,
    tls: float = 0,
    wait: float = 0,
    xfer: float = 0,
    send: float = 0,
    connected: Any = (),
    sent: Any = (),
    answered: Any = (),
    ended: Any = (),
    **evidence: Any,
) -> Any:
    """Make a step: times in ms; of the counters at its marks what is not as in COUNTERS."""
    spent = [round(each * MS) for each in (dns, connect, tls, wait, xfer)]
    marks = {"connected": connected, "sent": sent, "answered": answered, "ended": ended or answered}
    counters = {name: COUNTERS._replace(**dict(changes)) for name, changes in marks.items()}
    if route.unix_socket:
        counters = {}  # there the kernel counts nothing
    evidence = {"connected_us": spent[1], **dict(evidence.items())}
    if attempts is None:
        attempts = (tool.Attempt("192.0.2.1", spent[1], None),)
    made = sample(1, sum(spent))
    asked = tool.parse_url(url)
    phase, _, kind = error.partition(" ")
    return made._replace(
        request=made.request._replace(url=asked),
        timing=tool.Timing(*spent, sum(spent), round(send * MS), None),
        network=made.network._replace(attempts=attempts, tls=tool.TlsInfo(version), addresses=("192.0.2.1",)),
        response=tool.Response(200, "", "HTTP/1.1", headers),
        body_bytes=body,
        route=route,
        error=tool.Failure(kind, phase, "no", "try") if error else None,
        evidence=tool.Evidence(**{**counters, **evidence}),
    )


def owed(step: Any) -> dict[str, float]:
    """Return by phase and owner how many ms of a step are owed; ! is for what is seen."""
    shares = {}
    for share in tool.accounted(step, 0).account:
        owners = share.owner + (f"|{share.other}" if share.other else "")
        shares[f"{share.phase} {owners}{'!' * (share.certainty == 'seen')}"] = share.us / MS
    return shares


def busy(ms: float, **more: Any) -> dict[str, Any]:
    return {"busy_us": ms * MS, **more}


def sample_of(ms: float) -> dict[str, int]:
    """Give the smoothed round trip after an acknowledgment that took so long."""
    return {"smoothed_rtt_us": TRIP + round((ms * MS - TRIP) / 8)}


BIG = {"request_bytes": 300_000}
TRIPS_UP = {"wait path!": 60}  # of 300 KB: 10, 20, 40, 80, 160 segments
SILENT = {"wait": 1500, "answered": busy(12), "error": "wait timeout"}
PAUSES = tool.Pauses
ACCOUNTS: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "a lookup": ({"dns": 40}, {"dns resolver!": 40}),
    "a round trip": ({"connect": 12}, {"connect path!": 12}),
    "a SYN-ACK a little late": ({"connect": 33}, {"connect path!": 12, "connect path": 21}),
    "a late SYN-ACK": ({"connect": 712}, {"connect path!": 12, "connect server|path": 700}),
    "a lost SYN": (
        {"connect": 1012, "connected": {"retransmits": 1}},
        {"connect path!": 12, "connect loss!": 1000},
    ),
    "an address in vain": (
        {"connect": 262, "attempts": (tool.Attempt("::1", 262 * MS, "no"), tool.Attempt("b", TRIP, None))},
        {"connect attempts!": 250, "connect path!": 12},
    ),
    "an address of which the socket was made late": (
        {"connect": 13, "attempts": (tool.Attempt("b", TRIP, None),)},
        {"connect here!": 1, "connect path!": 12},
    ),
    "no connection": ({"connect": 500, "connected_us": None}, {"connect attempts!": 500}),
    "a proxy that connects": (
        {
            "connect": 600,
            "connected_us": TRIP,
            "route": PROXY,
            "attempts": (tool.Attempt("p", TRIP, None),),
            **HTTPS,
        },
        {"connect path!": 12, "connect path": 12, "connect proxy!": 576},
    ),
    "TLS 1.3, and what is computed here": (
        {"tls": 40, "sent": busy(12, quiet_us=12 * MS)},
        {"tls path!": 12, "tls here!": 12, "tls server": 16},
    ),
    "TLS 1.2": ({"tls": 30, "version": "TLSv1.2", "sent": busy(24)}, {"tls path!": 24, "tls server": 6}),
    "a slow handshake": ({"tls": 512, "sent": busy(12)}, {"tls path!": 12, "tls server": 500}),
    "a handshake that was lost, perhaps": (
        {"tls": 236, "sent": busy(12)},
        {"tls path!": 12, "tls server|loss": 224},
    ),
    "a slow server": ({"wait": 112, "answered": busy(12)}, {"wait path!": 12, "wait server": 100}),
    "an acknowledgment within ticks": (
        {"wait": 40, "answered": busy(22)},
        {"wait path!": 12, "wait server": 28},
    ),
    "an acknowledgment that may be held back": (
        {"wait": 112, "answered": busy(112)},
        {"wait path!": 12, "wait server|path": 100},
    ),
    "a path that has grown": (
        {"wait": 412, "answered": busy(412)},
        {"wait path!": 12, "wait path": 400},
    ),
    "a request lost": (
        {"wait": 231, "answered": busy(231, retransmits=1)},
        {"wait path!": 12, "wait loss!": 219},
    ),
    "a request lost, the acknowledgment with the answer": (
        {"wait": 512, "answered": busy(512, retransmits=1)},
        {"wait path!": 12, "wait loss!": 224, "wait server|loss": 276},
    ),
    "a request late, not lost": (
        {"wait": 350, "answered": busy(350, retransmits=1, **sample_of(350))},
        {"wait path!": 12, "wait path": 338},
    ),
    "a request late, that came twice": (
        {"wait": 616, "answered": busy(285, retransmits=1, duplicates=1)},
        {"wait path!": 12, "wait path|loss": 273, "wait server": 331},
    ),
    "late or lost": (
        {"wait": 232, "answered": busy(232, retransmits=1, **sample_of(232))},
        {"wait path!": 12, "wait path|loss": 220},
    ),
    "an answer lost, perhaps": (
        {"wait": 224, "answered": busy(12)},
        {"wait path!": 12, "wait server|loss": 212},
    ),
    "an answer lost twice, perhaps": (
        {"wait": 440, "answered": busy(12)},
        {"wait path!": 12, "wait server|loss": 428},
    ),
    "parts of an answer that were here": (
        {"wait": 300, "answered": busy(12), "early_us": 150 * MS},
        {"wait loss!": 150, "wait path!": 12, "wait server|loss": 100, "wait server": 38},
    ),
    "no CPU": (
        {"wait": 100, "answered": busy(12), "starved": {"wait": 30 * MS}},
        {"wait here!": 30, "wait path!": 12, "wait server": 58},
    ),
    "behind a proxy": (
        {"wait": 112, "answered": busy(12), "route": PROXY},
        {"wait path!": 12, "wait server|proxy": 100},
    ),
    "a unix socket": (
        {"wait": 50, "connect": 1, "route": tool.Route(None, None, "/s"), "connected_us": None},
        {"connect server!": 1, "wait server": 50},
    ),
    "a kernel that does not tell": (
        {"wait": 50, "answered": {"busy_us": None}, "sent": {"busy_us": None}},
        {"wait path!": 12, "wait server": 38},
    ),
    "silence": (SILENT, {"wait path!": 12, "wait server|path": 1488}),
    "silence of what lives": ({**SILENT, "is_alive": True}, {"wait path!": 12, "wait server": 1488}),
    "silence of what is dead": ({**SILENT, "is_alive": False}, {"wait path!": 12, "wait path": 1488}),
    "an upload in round trips": ({**BIG, "wait": 60, "answered": busy(60)}, TRIPS_UP),
    "an upload on a line": (
        {
            **BIG,
            "wait": 660,
            "answered": busy(660, smoothed_rtt_us=40 * MS, acknowledged=300_000),
        },
        {**TRIPS_UP, "wait line": 600},
    ),
    "an upload without a queue": (
        {**BIG, "wait": 660, "answered": busy(660, acknowledged=300_000)},
        {**TRIPS_UP, "wait line|server": 600},
    ),
    "an upload that a window held": (
        {**BIG, "wait": 660, "answered": busy(660, limited_us=80 * MS)},
        {**TRIPS_UP, "wait server|line": 600},
    ),
    "an upload into a window that was shut": (
        {**BIG, "wait": 660, "answered": busy(660, limited_us=500 * MS, retransmits=3)},
        {**TRIPS_UP, "wait server|line": 600},
    ),
    "an upload that HTTP/2 held": (
        {**BIG, "wait": 660, "send": 588, "held_us": 500 * MS, "answered": busy(100)},
        {**TRIPS_UP, "wait server|line": 540, "wait server": 60},
    ),
    "an upload with a loss": (
        {**BIG, "wait": 460, "answered": busy(360, retransmits=2, duplicates=1)},
        {**TRIPS_UP, "wait loss!": 212, "wait line|server": 88, "wait server": 100},
    ),
    "an upload whose MTU was told": (
        {**BIG, "wait": 210, "answered": busy(210, retransmits=5, path_mtu=1300)},
        {"wait path!": 210},
    ),
    "a body in pieces": (
        {"xfer": 900, "body": 20_000, "pauses": PAUSES(800 * MS, 2, 450 * MS)},
        {"xfer server": 800, "xfer path": 12, "xfer line|server": 88},
    ),
    "one pause like a time-out": (
        {"xfer": 230, "body": 5_000, "pauses": PAUSES(224 * MS, 1, 224 * MS)},
        {"xfer server|loss": 224, "xfer line|path": 6},
    ),
    "a body with a loss": (
        {"xfer": 300, "body": 5_000, "pauses": PAUSES(0, 0, 0, 250 * MS)},
        {"xfer loss!": 250, "xfer line|server": 50},
    ),
    "a body that stopped": (
        {"xfer": 1500, "body": 9, "pauses": PAUSES(1400 * MS, 1, 1400 * MS), "error": "xfer timeout"},
        {"xfer server|path": 1400, "xfer line|server": 100},
    ),
    "a body read late": (
        {"xfer": 100, "body": 9, "starved": {"xfer": 60 * MS}},
        {"xfer here!": 60, "xfer line|here": 40},
    ),
}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_each_has_its_owner(name):
    known, expected = ACCOUNTS[name]
    assert owed(step_of(**known)) == expected


# Each edge from both sides, and what comes first of two: ms, what is counted, what is owed.
EDGES = [
    ({"connect": 34}, "connect path! 12 connect path 22"),
    ({"connect": 34.1}, "connect path! 12 connect server|path 22.1"),
    (
        {"tls": 60, "sent": busy(12, quiet_us=12 * MS), "starved": {"tls": 11 * MS}},
        "tls path! 12 tls here! 12 tls server 36",
    ),
    (
        {"tls": 60, "sent": busy(12, quiet_us=10 * MS), "starved": {"tls": 9 * MS}},
        "tls path! 12 tls here! 9 tls server 39",
    ),
    ({"wait": 40, "answered": busy(22.1)}, "wait path! 12 wait server|path 10.1 wait server 17.9"),
    ({"wait": 300, "answered": busy(212)}, "wait path! 12 wait server|path 200 wait server 88"),
    ({"wait": 300, "answered": busy(212.1)}, "wait path! 12 wait path 200.1 wait server 87.9"),
    ({"wait": 400, "answered": busy(400, retransmits=1, **sample_of(280))}, "wait path! 12 wait path 388"),
    (
        {"wait": 400, "answered": busy(400, retransmits=1, **sample_of(279))},
        "wait path! 12 wait loss! 224 wait server 164",
    ),
    ({"wait": 201.9, "answered": busy(12)}, "wait path! 12 wait server 189.9"),
    ({"wait": 202, "answered": busy(12)}, "wait path! 12 wait server|loss 190"),
    ({"wait": 296, "answered": busy(12)}, "wait path! 12 wait server|loss 284"),
    ({"wait": 296.1, "answered": busy(12)}, "wait path! 12 wait server 284.1"),
    ({"wait": 496, "answered": busy(12)}, "wait path! 12 wait server|loss 484"),
    ({"wait": 496.1, "answered": busy(12)}, "wait path! 12 wait server 484.1"),
    ({"wait": 1500, "answered": busy(12), "error": "xfer timeout"}, "wait path! 12 wait server 1488"),
    ({"wait": 30, "request_bytes": 14_480, "answered": busy(12)}, "wait path! 12 wait server 18"),
    ({"wait": 30, "request_bytes": 14_481, "answered": busy(24)}, "wait path! 24 wait server 6"),
    (
        {**BIG, "wait": 660, "answered": busy(660, limited_us=66 * MS)},
        "wait path! 60 wait line|server 600",
    ),
    (
        {**BIG, "wait": 660, "answered": busy(660, limited_us=66.1 * MS)},
        "wait path! 60 wait server|line 600",
    ),
    (
        {**BIG, "wait": 660, "answered": busy(660, retransmits=1, smoothed_rtt_us=18 * MS)},
        "wait path! 60 wait line 600",
    ),
    (
        {**BIG, "wait": 660, "answered": busy(660, retransmits=1, smoothed_rtt_us=17 * MS)},
        "wait path! 60 wait loss! 212 wait line|server 388",
    ),
    # What comes after the last acknowledgment is no part of an upload.
    ({**BIG, "wait": 310, "answered": busy(210, path_mtu=1300)}, "wait path! 210 wait server 100"),
    (
        {**BIG, "wait": 560, "answered": busy(460, retransmits=1)},
        "wait path! 60 wait loss! 212 wait line|server 188 wait server 100",
    ),
    (
        {**BIG, "wait": 560, "held_us": 300 * MS, "answered": busy(460)},
        "wait path! 60 wait server|line 400 wait server 100",
    ),
    ({"xfer": 22, "body": 9}, "xfer line|path 22"),
    ({"xfer": 22.1, "body": 9}, "xfer line|server 22.1"),
    ({"xfer": 60, "body": 14_480 * 7}, "xfer path 24 xfer line|server 36"),
    ({"xfer": 110, "body": 9, "starved": {"xfer": 9.9 * MS}}, "xfer here! 9.9 xfer line|server 100.1"),
    ({"xfer": 110, "body": 9, "starved": {"xfer": 10.1 * MS}}, "xfer here! 10.1 xfer line|here 99.9"),
    (
        {"xfer": 90, "pauses": PAUSES(60 * MS, 2), "starved": {"xfer": 30 * MS}},
        "xfer here! 30 xfer server 30 xfer line|here 30",
    ),
    ({"xfer": 60, "body": 14_480 * 7 + 1}, "xfer path 36 xfer line|server 24"),
    ({"xfer": 189.9, "pauses": PAUSES(189_900, 1)}, "xfer server 189.9"),
    ({"xfer": 240, "pauses": PAUSES(240 * MS, 2), "route": PROXY}, "xfer server|proxy 240"),
    ({"wait": 230, "route": tool.Route(None, None, "/s")}, "wait server 230"),  # it loses nothing
]


def told(owed_by: dict[str, float]) -> str:
    return " ".join(f"{owner} {ms:g}" for owner, ms in owed_by.items())


@pytest.mark.parametrize(("known", "expected"), EDGES)
def test_each_edge_has_two_sides(known, expected):
    assert told(owed(step_of(**known))) == expected


def test_where_no_kernel_tells_a_far_server_is_no_late_answer():
    step = step_of(connect=61)._replace(evidence=tool.Evidence(connected_us=61 * MS))
    assert tool.accounted(step, 0).findings == ()


def test_an_upload_that_two_held_is_told_once_with_all_its_time():
    known = {
        **BIG,
        "wait": 660,
        "send": 648,
        "held_us": 300 * MS,
        "answered": busy(360, acknowledged=300_000),
    }
    found = tool.accounted(step_of(**known), 0).findings
    assert [each.id for each in found] == ["upload"] and "took 660 ms" in found[0].text


def test_of_a_body_that_one_flight_more_explains_both_are_named():
    """On a healthy path of 300 ms: `line` or `path`."""
    far = {"rtt_us": 300 * MS}
    found = tool.accounted(step_of(xfer=1200, body=200_000, answered=far, ended=far), 0).findings
    assert all("round trip" in each.text for each in found), found


def test_an_upload_may_end_within_the_round_trips_that_it_needs():
    """With -m 1, of 600 KB over a round trip of 300 ms."""
    counted = busy(60, acknowledged=200_000, sent=300_000)
    failed = step_of(**BIG, wait=60, answered=counted, error="wait timeout")
    timing = failed.timing._replace(xfer=None, send=60 * MS)
    network = failed.network._replace(peer=tool.Peer("192.0.2.1", 2, ("192.0.2.1", 80)))
    assert tool.accounted(failed._replace(timing=timing, network=network, response=None), 0).error.hint


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

NAMES = tool.Resolver(("10.9.1.53",), search=("a.test", "b.test"), ndots=5)
GONE = (tool.Attempt("10.21.0.2", 300, "connection refused"), tool.Attempt("::2", 262 * MS, tool.GIVEN_UP))
TOLD: dict[str, tuple[dict[str, Any], str]] = {
    "lookup": (
        {"dns": 475, "resolver": NAMES, "canonical_name": "a.test"},
        (
            "the resolver (10.9.1.53) took 475 ms for up to 3 names (search list): one run with "
            "http://a.test./ tells whether it is that"
        ),
    ),
    "lookup that fits time-outs": (
        {"dns": 5013, "resolver": tool.Resolver(("10.9.1.53",)), "canonical_name": "a.test"},
        (
            "the resolver (10.9.1.53) took 5.0 s; it fits a time-out of 5 s: a name server gave no "
            "usable answer in time, or none for A or AAAA (-4 or -6 tells)"
        ),
    ),
    "attempts": (
        {"connect": 274, "attempts": (*GONE, tool.Attempt("b", TRIP, None))},
        "10.21.0.2 connection refused, ::2 had not answered after 262 ms: dead or far, -6 tells",
    ),
    "connect": (
        {"connect": 712},
        (
            "the answer to the SYN came 700 ms later than a round trip (12.0 ms): a balancer that "
            "connects first, a radio, ARP, or a queue on the way"
        ),
    ),
    "loss": (
        {"connect": 1012, "connected": {"retransmits": 1}},
        (
            "the SYN had to be sent again, once: it or its answer was lost or late (loss, a firewall, a "
            "full listen queue)"
        ),
    ),
    "loss of a request": (
        {"wait": 231, "answered": busy(231, retransmits=1)},
        "1 segment had to be sent again: loss on the way",
    ),
    "loss of large packets": (
        {"wait": 700, "early_us": 600 * MS, "answered": busy(12, segment_in=536)},
        (
            "parts of the answer were here, and waited for one that was lost on the way; or packets of "
            "1,500 bytes do not get through (MTU)"
        ),
    ),
    "loss in a body": (
        {"xfer": 300, "pauses": PAUSES(0, 0, 0, 250 * MS)},
        "what came waited for a segment that was lost or late on the way",
    ),
    "path": (
        {"connect": 412, "wait": 412, "answered": busy(412), "ended": {"rtt_us": 412 * MS}},
        "2 round trips of 412 ms: a far server, or a queue on the way; a kept connection saves 1",
    ),
    "path that grew": (
        {"wait": 412, "answered": busy(412)},
        (
            "an acknowledgment took 400 ms more than a round trip (12.0 ms): a queue on the way, a "
            "radio, another route"
        ),
    ),
    "path or a server that holds back": (
        {"wait": 112, "answered": busy(112)},
        (
            "an acknowledgment took 100 ms more than a round trip (12.0 ms): the server held it back, or "
            "a queue on the way, a radio, another route"
        ),
    ),
    "path, or lost": (
        {"wait": 300, "answered": busy(285, retransmits=1, duplicates=1)},
        (
            "an acknowledgment took 273 ms more than a round trip (12.0 ms): it was lost, or a queue on the "
            "way, a radio, another route"
        ),
    ),
    "path of a large request": (
        {"wait": 120, "request_bytes": 31_130, "answered": busy(120), "ended": {"rtt_us": 60 * MS}},
        "the request has 30.4 KB: it needs 2 round trips of 60.0 ms",
    ),
    "proxy": (
        {
            "connect": 600,
            "connected_us": TRIP,
            "route": PROXY,
            "attempts": (tool.Attempt("p", TRIP, None),),
            **HTTPS,
        },
        (
            "the proxy took this long to connect to the target; TCP to the proxy itself took 12.0 ms; -x "
            "'' goes without it"
        ),
    ),
    "tls_slow": (
        {"tls": 512, "sent": busy(12)},
        "the server, or a box in between, took about 500 ms to answer the handshake, or its answer was lost",
    ),
    "tls_slow, not lost": (
        {"tls": 112, "sent": busy(12)},
        "the server, or a box in between, took about 100 ms to answer the handshake",
    ),
    "tls_slow behind a proxy": (
        {"tls": 512, "sent": busy(12), "route": PROXY},
        (
            "the proxy (from https_proxy), the way behind it or the server took about 500 ms to answer the "
            "handshake, or its answer was lost; -x '' goes without it"
        ),
    ),
    "proxy over TLS": (
        {
            "connect": 600,
            "connected_us": TRIP,
            "route": TLS_PROXY,
            "attempts": (tool.Attempt("p", TRIP, None),),
        },
        "the proxy took this long to shake hands; TCP to the proxy itself took 12.0 ms",
    ),
    "server": (
        {"wait": 112, "answered": busy(12), "headers": (("Server-Timing", b"hit, cache;dur=2, db;dur=53"),)},
        "the server, or what is behind it, took about 100 ms; it reports 53 ms itself (db)",
    ),
    "server that delays an acknowledgment": (
        {"wait": 54, "answered": busy(12)},
        (
            "the server, or what is behind it, took about 42.0 ms; 40 ms is also what a delayed "
            "acknowledgment takes: TCP_NODELAY"
        ),
    ),
    "server, or lost": (
        {"wait": 242, "answered": busy(12)},
        "the server, or what is behind it, took about 230 ms, or its answer was lost",
    ),
    "server, within this machine": (
        {"wait": 242, "answered": busy(12), "connected": {"segment": 32_768}},
        "the server, or what is behind it, took about 230 ms",
    ),
    "server behind a proxy": (
        {"wait": 312, "answered": busy(12), "route": PROXY},
        (
            "the proxy (from https_proxy), the way behind it or the server took about 300 ms, or its answer "
            "was lost; -x '' goes without it"
        ),
    ),
    "upload": (
        {**BIG, "wait": 660, "answered": busy(660, limited_us=80 * MS, acknowledged=300_000)},
        (
            "sending 293.0 KB took 660 ms: 3.6 Mbit/s: the program there reads no faster, or its window "
            "is small (shut for 80.0 ms); or the line"
        ),
    ),
    "upload on a line": (
        {
            **BIG,
            "wait": 660,
            "answered": busy(660, smoothed_rtt_us=40 * MS, acknowledged=300_000),
        },
        "sending 293.0 KB took 660 ms: 3.6 Mbit/s: the line, or this machine's way out",
    ),
    "pauses": (
        {"xfer": 4500, "pauses": PAUSES(4100 * MS, 10, 454 * MS)},
        "the server sent in pieces: 4.1 s of 4.5 s in 10 pauses, the longest 454 ms",
    ),
    "pauses, a short one": (
        {"xfer": 200, "pauses": PAUSES(150 * MS, 1, 150 * MS)},
        "the server sent nothing for 150 ms",
    ),
    "pauses, one": (
        {"xfer": 500, "pauses": PAUSES(450 * MS, 1, 450 * MS)},
        "the server sent nothing for 450 ms, or what it sent was lost",
    ),
    "body": (
        {"xfer": 8300, "body": 2_000_000},
        "1.9 MB in 8.3 s: 235.3 KB/s without a pause: the line, a rate limit or a small buffer",
    ),
    "starved": (
        {"wait": 100, "answered": busy(12), "starved": {"wait": 80 * MS}},
        "this process waited for a CPU, or computed: its times may be too long by this",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_finding_says_what_it_means(name):
    known, text = TOLD[name]
    step = tool.accounted(step_of(**known), 0)
    assert (step.findings[0].id, step.findings[0].text) == (name.split()[0].rstrip(","), text)
    assert step.findings[0].owner in {share.owner for share in step.account}


@pytest.mark.parametrize(
    "known",
    [
        {"dns": 49, "wait": 1},
        {"wait": 49, "answered": busy(1)},  # a server may compute so long
        {"connect": 49, "tls": 1},
        {"xfer": 49, "body": 100_000},
        {"connect": 12, "tls": 14, "wait": 20, "xfer": 1, "answered": busy(12), "sent": busy(12)},
        {"wait": 1500, "answered": busy(12), "error": "wait timeout"},  # Why and Try say it
    ],
)
def test_what_is_small_or_has_failed_has_no_finding(known):
    assert tool.accounted(step_of(**known), 0).findings == ()


LOOKUP = {"resolver": tool.Resolver(("10.9.1.53",)), "canonical_name": "a.test"}


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
        ("waited for a CPU", {"xfer": 90, "here": 20}, {"xfer": 90, "here": 19.9}),
        ("TCP_NODELAY", {"wait": 50, "rtt": 12}, {"wait": 49.9, "rtt": 12}),
        ("TCP_NODELAY", {"wait": 61.9, "rtt": 12}, {"wait": 62, "rtt": 12}),
        ("TCP_NODELAY", {"wait": 59.9, "rtt": 19.9}, {"wait": 60, "rtt": 20}),
    ],
)
def test_just_enough_is_told_and_a_little_less_is_not(told, just, not_quite):
    def texts(rtt=12, lost=0, here=0, **known):
        counted = busy(rtt, rtt_us=round(rtt * MS))
        pauses = PAUSES(0, 0, 0, round(lost * MS))
        starved = {"xfer": round(here * MS)}
        step = step_of(**known, answered=counted, pauses=pauses, starved=starved)
        return str([finding.text for finding in tool.accounted(step, 0).findings])

    assert told in texts(**just) and told not in texts(**not_quite)


def test_the_row_spent_has_owners_in_falling_order_without_what_is_below_a_hundredth():
    step = step_of(dns=13, connect=12, wait=87, xfer=1, answered=busy(12), body=10)
    ((label, text),) = tool.spent_row(tool.accounted(step, 0))
    assert (label, text) == ("Spent", "75 ms server, 24 ms path (2 round trips of 12), 13 ms resolver")
    ((_, text),) = tool.spent_row(tool.accounted(step_of(connect=12, wait=412, answered=busy(412)), 0))
    assert text == "424 ms path", "they grew"


@pytest.mark.parametrize(("before", "told"), [(30, True), (29.9, False)])
def test_redirects_are_told_from_three_tenths_of_the_chain_on(before, told):
    steps = (step_of(wait=before), step_of(wait=70))
    assert bool(tool.chain_findings(tool.Run(steps, False))) == told


# --- what the kernel counts -----------------------------------------------------------------------


def test_the_counters_stand_where_linux_has_them():
    info = bytearray(248)
    info[0] = 1
    counted = {
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
