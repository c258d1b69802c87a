"""What changes while a series runs (--duration, --count): the events, where they are told, and the schedule
that leads to them.
"""

from __future__ import annotations

import datetime

import pytest
from test_statistics import sample

from inside import tool

# --- what is an event, and what is not ------------------------------------------------------------

START = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.timezone.utc)
CERTIFICATE = tool.Certificate("shop.example", ("shop.example",), "R1", "1", None, None, "3c0d5950" * 8)
FIRST = tool.ServerInfo(CERTIFICATE, http_version="HTTP/2", ip="203.0.113.10")


def started(number, interval=0.5):
    return START + datetime.timedelta(seconds=interval * (number - 1))


def run(number, label=200, total=20_000, **changes):
    """Make the sample of a run's last step; the label is its status, or the kind of its failure."""
    outcome = {"error": label} if isinstance(label, str) else {"status": label}
    made = sample(number, total, reused=changes.pop("reused", None), **outcome)
    return made._replace(started_at=started(number), server=FIRST)._replace(**changes)


def told(samples, standstills=None):
    """Return the events of runs: (run, kind, text)."""
    finder = tool.EventFinder()
    for each in samples:
        finder.add(each, (standstills or {}).get(each.run, tool.Standstill()))
    return [(event.run, event.kind, event.text) for event in finder.events]


def labels(*names):
    return [run(number, name) for number, name in enumerate(names, 1)]


def test_of_runs_that_are_alike_nothing_is_said():
    assert told(labels(*[200] * 200)) == []


def test_an_outage_is_said_when_it_begins_when_it_changes_and_when_it_ends():
    assert told(labels(200, 502, 502, "network", "network", "network", 200, 200)) == [
        (2, "status", "502 after 200"),
        (4, "status", "network after 502"),
        (7, "recovered", "200 again, after 2.5 s (5 runs: 502, network)"),
    ]


def test_the_first_run_s_failure_is_said_and_nothing_is_called_again_that_never_was():
    assert told(labels("network", "network", 200)) == [
        (1, "status", "network"),
        (3, "recovered", "200, after 1.0 s (2 runs: network)"),
    ]


def test_another_good_status_is_said_also_after_an_outage():
    assert told(labels(200, 204, 204, 503, 200)) == [
        (2, "status", "204 after 200"),
        (4, "status", "503 after 204"),
        (5, "recovered", "200, after 0.5 s (1 run: 503)"),
        (5, "status", "200 after 204"),
    ]


def test_the_fifth_change_within_ten_runs_is_flapping_until_ten_are_alike():
    changing = labels(200, 200, 502, 200, 502, 200, 502, 502, 200, 502, *[200] * 10, 502)
    assert told(changing) == [
        (3, "status", "502 after 200"),
        (4, "recovered", "200 again, after 0.5 s (1 run: 502)"),
        (5, "status", "502 after 200"),
        (6, "recovered", "200 again, after 0.5 s (1 run: 502)"),
        (7, "flapping", "flapping: 502 in 3 of 7 runs"),
        (20, "recovered", "steady again: 200"),
        (21, "status", "502 after 200"),
    ]


def test_four_changes_within_ten_runs_and_a_fifth_after_them_are_told_one_by_one():
    """The changes are at 2, 4, 6, 8, 12 and 14: of ten runs in a row at most four have one."""
    names = [200] + [502] * 2 + [200] * 2 + [502] * 2 + [200] * 4 + [502] * 2 + [200]
    assert {kind for _, kind, _ in told(labels(*names))} == {"status", "recovered"}


def test_steady_again_may_be_an_outage():
    changing = labels(200, 502, 200, 502, 200, *[502] * 10, 200)
    assert told(changing)[4:] == [
        (6, "flapping", "flapping: 502 in 3 of 6 runs"),
        (15, "status", "steady again: 502"),
        (16, "recovered", "200 again, after 5.0 s (10 runs: 502)"),
    ]


def speeds(*totals):
    return [run(number, total=total) for number, total in enumerate(totals, 1)]


USUAL = [20_900, 21_000, 21_100, 21_000]  # us; the MAD is 0.05 ms, what is slow begins 0.75 ms above


def test_a_row_of_slow_runs_is_one_event_and_three_usual_ones_end_it():
    totals = [*USUAL * 2, 812_400, *[700_000] * 4, 21_000, 21_000, 650_000, 21_000, 21_000, 21_000]
    assert told(speeds(*totals)) == [
        (9, "slow", "total 812.4 ms, usually 21.0 ms"),
        (19, "recovered", "usual again, after 4.0 s (6 slow runs)"),
    ]


@pytest.mark.parametrize(
    "totals",
    [
        [*USUAL, *USUAL[:3], 812_400],  # only seven tell what is usual
        [*USUAL * 2, 21_741],
        [*USUAL * 2, 1_000],  # quick is not slow
    ],
)
def test_what_is_not_slow(totals):
    assert told(speeds(*totals)) == []


def test_slow_is_what_lies_above_the_reach_of_the_usual():
    assert [each[1] for each in told(speeds(*USUAL * 2, 21_742))] == ["slow"]


def test_runs_that_are_not_good_say_nothing_of_what_is_usual():
    bad = [run(number, 503, total=900_000) for number in range(9, 40)]
    events = told([*speeds(*USUAL * 2), *bad, run(40, total=812_400), run(41, 503, total=900_000)])
    assert [(number, kind) for number, kind, _ in events if kind == "slow"] == [(40, "slow")]


def test_cold_and_warm_runs_are_usual_in_their_own_way():
    warm = [run(number, total=5_000, reused=True) for number in range(2, 20)]
    cold = [run(number, total=50_000, reused=False) for number in (1, 20, 21)]
    assert told([cold[0], *warm, *cold[1:]]) == []
    assert told([cold[0], *warm, run(20, total=50_000, reused=True)])[0][1] == "slow"


def test_a_server_that_has_become_slow_for_good_is_usual_in_time():
    kinds = [kind for _, kind, _ in told(speeds(*USUAL * 13, *[800_000, 800_500] * 50))]
    assert kinds == ["slow", "recovered"]


OTHER = FIRST._replace(
    certificate=CERTIFICATE._replace(sha256="247648d1" * 8), http_version="HTTP/1.1", ip="203.0.113.11"
)


def test_what_a_server_shows_is_said_when_it_was_not_seen_before():
    servers = [FIRST, tool.ServerInfo(), FIRST, OTHER, FIRST, OTHER]
    assert told([run(number, server=server) for number, server in enumerate(servers, 1)]) == [
        (4, "address", "203.0.113.11 after 203.0.113.10"),
        (4, "certificate", "another certificate (shop.example, 247648d1)"),
        (4, "protocol", "HTTP/1.1 after HTTP/2"),
    ]


def test_a_certificate_that_fails_is_another_one_too():
    events = told([run(1), run(2, "tls", server=OTHER._replace(http_version=None, ip=FIRST.ip))])
    assert [kind for _, kind, _ in events] == ["status", "certificate"]


def test_each_variant_is_looked_at_by_itself():
    finder = tool.EventFinder()
    for number in range(1, 41):
        side = "AB"[number % 2]
        total = {"A": 20_000, "B": 900_000}[side]
        finder.add(run(number, 200 if side == "A" else 204, total, variant=side), tool.Standstill())
    assert finder.events == []
    [event] = finder.add(run(41, 502, variant="B"), tool.Standstill())
    assert tool.event_line(event).endswith(" run 41 B: 502 after 204")


def test_rounds_that_were_missed_are_one_event_and_what_was_stopped_is_neither_slow_nor_an_outage():
    usual = speeds(*USUAL * 2)
    during, before = (tool.Standstill(12.34, 24, during) for during in (True, False))
    missed = (9, "missed", "24 rounds missed: this process stood still for 12.3 s")
    assert told([*usual, run(9, total=12_360_000)], {9: during}) == [missed]
    assert told([*usual, run(9, "timeout")], {9: during}) == [missed]
    assert told([*usual, run(9, "timeout")], {9: before}) == [missed, (9, "status", "timeout after 200")]
    assert told([*usual, run(9)], {9: tool.Standstill(0.6, 0, False)}) == []
