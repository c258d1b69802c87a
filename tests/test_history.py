"""What is read from the log of a step, at its end and at any moment before, as a deadline finds it."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tool

PEERS = [tool.Peer(f"192.0.2.{number}", socket.AF_INET, (f"192.0.2.{number}", 80)) for number in range(4)]
US = 1000


def log_of(hops, events, looks_up=True):
    log = tool.Log()
    log.hops, log.looks_up = hops, looks_up
    for what, at in events:
        log.add(what, at)
    return log


RESPONSE = tool.Response(200, "OK", "HTTP/1.1", (), 0)


def way(hops=("connect", "tls"), instants=(0, 10, 30, 60, 100, 150)):
    """List the events of a step that went well; the instants are start, and the end of each phase, in us."""
    start, dialling, *opened = instants[: 2 + len(hops)]
    first_byte, done = instants[-2:]
    return [
        ("start", start * US),
        (tool.AttemptBegun(0, PEERS[0]), dialling * US),
        (tool.AttemptEnded(0, None), opened[0] * US),
        *((tool.Opened(at * US), at * US) for at in opened),
        ("sent", opened[-1] * US + 5 * US),
        ("first byte", first_byte * US),
        (RESPONSE, (first_byte + 1) * US),
        ("done", done * US),
    ]


def spans(timing):
    return (timing.dns, timing.connect, timing.tls, timing.wait, timing.xfer)


def test_each_phase_ends_where_the_next_begins():
    timing = log_of(("connect", "tls"), way()).history().timing(None)
    assert spans(timing) == (10, 20, 30, 40, 50)
    assert (timing.ttfb, timing.total, timing.send) == (100, 150, 5)


def test_sending_is_told_to_the_microsecond_however_long_it_takes():
    events = way(("connect",), instants=(0, 10, 30, 9_000_000, 9_000_050))
    events = [(what, 8_000_030 * US if what == "sent" else at) for what, at in events]
    assert log_of(("connect",), events).history().timing(None).send == 8_000_000


def test_without_tls_its_phase_is_nothing_and_without_a_lookup_dns():
    events = way(("connect",), instants=(0, 10, 30, 100, 150))
    assert spans(log_of(("connect",), events, looks_up=False).history().timing(None)) == (0, 30, 0, 70, 50)


def test_every_hop_before_the_target_s_tls_belongs_to_connect():
    """An https proxy and a tunnel through it; the tunnel stands at 60."""
    hops = ("connect", "connect", "connect", "tls")
    events = way(hops, instants=(0, 10, 20, 40, 60, 80, 100, 150))
    assert spans(log_of(hops, events).history().timing(None)) == (10, 50, 20, 20, 50)


def test_a_wait_for_a_wake_up_is_divided_only_before_the_request():
    """Between two hops all of it belongs to the second one, which began when the answer came."""
    answered, departed = 30 * US, 50 * US
    events = [*way()[:3], (tool.Opened(departed), answered)]
    assert spans(log_of(("connect", "tls"), events).history().timing(99 * US))[:3] == (10, 20, 69)
    assert spans(log_of(("connect",), events).history().timing(99 * US))[:4] == (10, 30, 0, 59)


@given(
    gaps=st.lists(st.integers(0, 10**6), min_size=6, max_size=6),
    seen=st.integers(1, 9),
    late=st.integers(0, 10**6),
    looks_up=st.booleans(),
)
def test_at_any_moment_the_phases_have_no_hole(gaps, seen, late, looks_up):
    instants = [sum(gaps[: count + 1]) for count in range(6)]
    events = way(instants=instants)[:seen]
    history = log_of(("connect", "tls"), events, looks_up).history()
    timing = history.timing(events[-1][1] + late * US)
    known = [span for span in spans(timing) if span is not None]
    assert min(known) >= 0 and sum(known) == timing.total
    assert spans(timing)[: len(known)] == tuple(known)
    assert history.ended == (seen == 9)
    assert len(known) == (5 if history.ended else len(history.ends) + 1)


def test_what_was_read_once_stays_as_it_was():
    log = log_of(("connect", "tls"), way()[:4])
    history = log.history()
    before = history.timing(99 * US)
    for what, at in way()[4:]:
        log.add(what, at)
    assert history.timing(99 * US) == before != log.history().timing(None)


@pytest.mark.parametrize("late", [True, False])
def test_instants_that_are_noticed_out_of_order_make_no_negative_phase(late):
    """A kernel's stamp may lie before what was stamped here just before it."""
    events = [(what, 20 * US if what == "first byte" else at) for what, at in way()]
    timing = log_of(("connect", "tls"), events if late else events[:-1]).history().timing(150 * US)
    assert (timing.wait, timing.ttfb, timing.total) == (0, 60, 150)


def test_attempts_are_told_in_the_order_in_which_they_began():
    events = [
        ("start", 0),
        (tool.AttemptBegun(0, PEERS[0]), 10 * US),
        (tool.AttemptBegun(1, PEERS[1]), 20 * US),
        (tool.AttemptBegun(2, PEERS[2]), 30 * US),
        (tool.AttemptEnded(1, "connection refused"), 35 * US),
        (tool.AttemptEnded(2, None), 40 * US),
    ]
    history = log_of(("connect",), events).history()
    assert history.attempts(100 * US) == (
        tool.Attempt("192.0.2.0", 90, "no answer"),
        tool.Attempt("192.0.2.1", 15, "connection refused"),
        tool.Attempt("192.0.2.2", 10, None),
    )


@pytest.mark.parametrize(
    ("count", "phase", "hop"),
    [(1, "dns", 0), (2, "connect", 0), (4, "tls", 1), (5, "wait", 2), (7, "xfer", 2)],
)
def test_where_a_step_is_follows_from_what_happened(count, phase, hop):
    history = log_of(("connect", "tls"), way()[:count]).history()
    assert (history.phase, history.hop) == (phase, hop)


def test_a_step_whose_clock_never_started_has_no_times():
    """However late it was given up."""
    timing = log_of(("connect",), []).history().timing(10**15)
    assert (timing.dns, timing.connect, timing.ttfb, timing.total) == (0, None, None, 0)


@pytest.mark.parametrize(("arrived", "stale"), [(59, True), (61, False), (100, False), (150, False)])
def test_an_answer_from_before_the_request_is_stale_on_a_kept_connection_alone(arrived, stale):
    events = [("start", 100 * US), ("reused", 100 * US), ("first byte", arrived * US)]
    assert log_of((), events).history().stale is stale
    assert not log_of((), [events[0], events[2]]).history().stale


def test_what_a_thread_waited_for_a_cpu_before_the_clock_is_not_of_the_step():
    options = tool.parse_options(["http://192.0.2.1/"], {}, 80)
    step = tool.begin_step(1, options.request, options)._replace(delayed=3_600_000_000_000)
    step.log.add("start", 1)
    step.log.add(tool.network_error("timeout: start", "1 s"), 2)
    assert tool.finish(step, step.log, options).starved_us <= 0
