"""What is read from the log of a step, at its end and at any moment before, as a deadline finds it."""

from __future__ import annotations

import select
import socket
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tool

PEERS = [tool.Peer(f"192.0.2.{number}", socket.AF_INET, (f"192.0.2.{number}", 80)) for number in range(4)]
US = 1000
START = 7_000_000


def at(us):
    return START + us * US


def log_of(hops, changes, asks_resolver=True, stopped=None):
    log = tool.Log()
    log.hop_phases, log.asks_resolver = hops, asks_resolver
    for name, value in changes:
        setattr(log, name, value)
    log.stopped = stopped
    return log


RESPONSE = tool.Response(200, "OK", "HTTP/1.1", ())


def way(hops=("connect", "tls"), instants=(0, 10, 30, 60, 100, 150)):
    """List what a step notes that goes well; the instants are start, and the end of each phase, in us."""
    start, dialling, *opened = map(at, instants[: 2 + len(hops)])
    first_byte, done = map(at, instants[-2:])
    return [
        ("start", start),
        ("dials", [tool.Dial(dialling, PEERS[0])]),
        ("dials", [tool.Dial(dialling, PEERS[0], opened[0])]),
        *(("opened", tuple((each, each) for each in opened[:count])) for count in range(1, len(hops) + 1)),
        ("sent", opened[-1] + 5 * US),
        ("first_byte", first_byte),
        ("response", RESPONSE),
        ("done", done),
    ]


def spans(timing):
    return (timing.dns, timing.connect, timing.tls, timing.wait, timing.xfer)


def test_each_phase_ends_where_the_next_begins():
    timing = log_of(("connect", "tls"), way()).timing
    assert spans(timing) == (10, 20, 30, 40, 50)
    assert (timing.ttfb, timing.total, timing.send) == (100, 150, 5)


def test_without_tls_its_phase_is_nothing_and_without_a_lookup_dns():
    events = way(("connect",), instants=(0, 10, 30, 100, 150))
    assert spans(log_of(("connect",), events, asks_resolver=False).timing) == (0, 30, 0, 70, 50)


def test_every_hop_before_the_target_s_tls_belongs_to_connect():
    """An https proxy and a tunnel through it; the tunnel stands at 60."""
    hops = ("connect", "connect", "connect", "tls")
    events = way(hops, instants=(0, 10, 20, 40, 60, 80, 100, 150))
    assert spans(log_of(hops, events).timing) == (10, 50, 20, 20, 50)


def test_a_wait_for_a_wake_up_is_divided_only_before_the_request():
    """Between two hops all of it belongs to the second one, which began when the answer came."""
    events = [*way()[:3], ("opened", ((at(30), at(50)),))]
    assert spans(log_of(("connect", "tls"), events, stopped=at(99)).timing)[:3] == (10, 20, 69)
    assert spans(log_of(("connect",), events, stopped=at(99)).timing)[:4] == (10, 30, 0, 59)


@settings(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    gaps=st.lists(st.integers(0, 10**6), min_size=6, max_size=6),
    seen=st.integers(1, 9),
    late=st.integers(0, 10**6),
    asks_resolver=st.booleans(),
)
def test_at_any_moment_the_phases_have_no_hole(gaps, seen, late, asks_resolver):
    instants = [sum(gaps[: count + 1]) for count in range(6)]
    events = way(instants=instants)[:seen]
    newest = at(instants[(0, 1, 2, 2, 3, 3, 4, 4, 5)[seen - 1]])
    history = log_of(("connect", "tls"), events, asks_resolver, newest + late * US)
    timing = history.timing
    known = [span for span in spans(timing) if span is not None]
    assert min(known) >= 0 and sum(known) == timing.total
    assert spans(timing)[: len(known)] == tuple(known)
    assert len(known) == (5 if seen == 9 else len(history.ends) + 1)


@pytest.mark.parametrize("late", [True, False])
def test_instants_that_are_noticed_out_of_order_make_no_negative_phase(late):
    """A kernel's stamp may lie before what was stamped here just before it."""
    events = [(name, at(20) if name == "first_byte" else value) for name, value in way()]
    timing = log_of(("connect", "tls"), events if late else events[:-1], stopped=at(150)).timing
    assert (timing.wait, timing.ttfb, timing.total) == (0, 60, 150)


def test_a_kept_connection_on_which_nothing_began_yet_has_no_time_of_connecting():
    """The deadline, or a lack of memory, may come between taking the connection and using it."""
    log = tool.Log()
    log.connected = tool.Connected(5_000, None, None, None)
    evidence = tool.gather_evidence(log, None, log.timing, "a.test")
    assert evidence.connected_us is None


@pytest.mark.parametrize(
    ("at_end", "starved"),
    [((30, 0, 30), 30_000), ((33, 2, 31), 31_000), ((90, 0, 90), 31_000), ((61, 40, 20), 20_000)],
)
def test_what_a_process_waited_for_a_cpu_after_a_phase_is_none_of_that(at_end, starved):
    """Of a phase of 31 ms; at its end were read, in ms: the time, how long a CPU was had, and waited for."""
    log = tool.Log()
    log.cpu_times = {"start": (0, 0, 0), "connected": tuple(each * US * 1000 for each in at_end)}
    assert log.starved("start", "connected", 31 * US * 1000) == starved


class Counting:
    """A connection of which the kernel counts as is said."""

    def __init__(self, trip=0, received=0, disorder=0):
        offsets = {148: trip, 128: received, 224: disorder, 16: 1448}
        info = bytearray(248)
        for offset, count in offsets.items():
            info[offset : offset + 4] = count.to_bytes(4, sys.byteorder)
        self.info = bytes(info)

    def getsockopt(self, *_):
        return self.info


PAUSES = {  # the round trip, how long nothing came, segments out of order by then (all in ms) -> its Pauses
    "as long as can be without one": ((0, 20, 0), (0, 0, 0, 0, 0, 0)),
    "longer": ((0, 20.001, 0), (20_001, 1, 20_001, 0, 0, 0)),
    "half a round trip": ((48, 24, 0), (0, 0, 0, 0, 0, 0)),
    "more than half": ((48, 24.001, 0), (0, 0, 0, 0, 0, 24_001)),
    "two round trips": ((40, 80, 0), (0, 0, 0, 0, 0, 80_000)),
    "more than two": ((40, 80.001, 0), (80_001, 1, 80_001, 0, 0, 0)),
    "behind a lost segment": ((0, 300, 3), (0, 0, 0, 300_000, 50, 0)),
}


@pytest.mark.parametrize(("case", "kept"), PAUSES.values(), ids=PAUSES)
@pytest.mark.needs("linux")
def test_a_pause_is_longer_than_20_ms_and_two_round_trips(case, kept):
    trip, ms, disorder = case
    log = tool.Log()
    log.first_byte, log.tcp_info = at(50_000), {"sent": Counting().info}
    log.connected = tool.Connected(1, Counting(trip * 1000, 150, disorder), None, None)
    log.note_pause(at(0), at(50_000) + round(ms * 1000) * US, 100)
    assert tuple(log.pauses) == kept, "what was before the first byte is none"
    log.note_pause(at(900_000), at(900_000) + 100_000 * US, 100)
    longest = max(kept[2], 100_000)
    expected = (kept[0] + 100_000, kept[1] + 1, longest, *kept[3:])
    assert tuple(log.pauses) == expected, "no further one was lost"


@pytest.mark.needs("linux")
@pytest.mark.parametrize(("seen", "lost"), [("earlier", 0), ("before", 0), ("meanwhile", 100_000)])
def test_what_was_lost_before_a_pause_is_not_its_cause(seen, lost):
    """A kept connection, or a handshake, may have lost something long ago."""
    log = tool.Log()
    log.first_byte = at(0)
    log.connected = tool.Connected(1, Counting(received=9, disorder=3), None, None)
    log.tcp_info = {"sent": Counting(disorder=3 if seen == "earlier" else 0).info}
    if seen == "before":
        log.look()
    since = time.perf_counter_ns()
    for _ in range(3):
        log.look()
    log.note_pause(since, since + 100_000 * US, 9)
    assert (log.pauses.us, log.pauses.lost_us) == (100_000 - lost, lost)


@pytest.mark.parametrize(("quiet", "number"), [(20, 0), (20.001, 1)])
def test_the_silence_before_a_body_was_cut_off_is_a_pause_too(quiet, number):
    log = log_of(("connect", "tls"), way()[:-1])
    log.error = tool.NetworkError("network", "no", "try")
    ended = tool.JUST_CONNECTED._replace(quiet_us=round(quiet * 1000))
    us = round(quiet * 1000) * number
    assert tool.pauses_of(log, ended, 50_000) == tool.Pauses(us, number, us)


@pytest.mark.needs("linux")
def test_ten_times_a_second_it_is_noted_that_parts_of_an_answer_are_here():
    for first_byte, now, early in (
        (None, Counting(), False),
        (None, Counting(received=10, disorder=2), False),
        (None, Counting(disorder=2), True),
        (at(1), Counting(disorder=2), False),
    ):
        log = tool.Log()
        log.tcp_info, log.first_byte = {"sent": Counting().info}, first_byte
        log.connected = tool.Connected(1, now, None, None)
        log.look()
        assert bool(log.early) == early


def test_what_came_in_time_counts_though_the_process_slept_since():
    deadline, poller = tool.Deadline(), select.poll()
    deadline.at = time.perf_counter_ns()
    near, far = socket.socketpair()
    with near, far:
        poller.register(near, select.POLLIN)
        with pytest.raises(tool.TimeIsOver):
            deadline.poll(poller)
        far.send(b"x")
        assert deadline.poll(poller) == [(near.fileno(), select.POLLIN)]


@pytest.mark.parametrize("call", range(1, 7))
def test_a_process_that_loses_its_cpu_between_two_clocks_moves_no_arrival(call):
    """An answer seemed to have come before its request, and the run failed."""
    calls = []

    def lose_the_cpu(frame, event, argument):
        if event == "c_call" and argument in (time.perf_counter_ns, time.time_ns):
            calls.append(argument)
            if len(calls) == call:
                time.sleep(0.02)

    stamp = time.time_ns()
    arrived, data = time.perf_counter_ns(), tool.TIMESPEC.pack(*divmod(stamp, 10**9))
    sys.setprofile(lose_the_cpu)
    try:
        told = tool.arrival_of([(socket.SOL_SOCKET, tool.SO_TIMESTAMPNS, data)])
    finally:
        sys.setprofile(None)
    assert abs(told - arrived) < 10_000_000
