"""The statistics of a series: of what there are too few, what is slow, and what goes with it."""

from __future__ import annotations

import math
import random
import statistics
import time
from fractions import Fraction

import pytest

from checks import exact
from inside import tool
from samples import (
    NOW,
    TWO_CAUSES,
    backends,
    drawn,
    release,
    restart,
    sample,
    told_of_slow,
)
from servers import Reply, every, http_server


def test_percentiles_of_round_numbers_are_no_rank_too_high():
    """0.95 x 20 is 19.000000000000004 to a float."""
    ranks = {(100, 99): 99, (20, 95): 19, (10, 90): 9, (4, 25): 1, (4, 75): 3, (1, 95): 1}
    assert {each: tool.nearest_rank(range(1, each[0] + 1), each[1]) for each in ranks} == ranks


def test_the_figures_of_a_series_follow_from_its_runs(call_tool):
    """Of good answers, by nearest rank; the interval of 22 values is from the 6th to the 17th."""
    waits = [Reply(wait=0.002 * (number * 7 % 22)) for number in range(22)]
    with http_server({"/": every(*waits[:11], Reply(503), *waits[11:], Reply(503))}) as server:
        document = call_tool("--count", "24", "--interval", "0", "--json", "-", server.url()).json()
    [found], steps = document["statistics"], [run["steps"][0] for run in document["runs"]]
    assert document["summary"]["bad_status"] == found["bad_status"] == 2
    assert (found["n"], found["failed"], found["statuses"]) == (22, 0, {"200": 22, "503": 2})
    good = [step["timing"] for step in steps if step["response"]["status"] == 200]
    for key in ("wait_ms", "ttfb_ms", "total_ms"):
        values = sorted(exact(timing[key]) for timing in good)
        ranks = {"min": 1, "p25": 6, "p75": 17, "p90": 20, "p95": 21, "max": 22}
        for name, rank in ranks.items():
            assert exact(found[key][name]) == values[rank - 1]
        assert found[key]["p99"] is None
        assert abs(exact(found[key]["median"]) - statistics.median(values)) <= exact(0.0005)
        assert [exact(end) for end in found[key]["median_ci95"]] == [values[5], values[16]]


def test_nothing_is_shown_that_the_number_of_values_cannot_bear():
    needed = {"min": 1, "p25": 4, "median": 1, "p75": 4, "p90": 10, "p95": 20, "p99": 100, "max": 1}
    for count in (0, 1, 3, 4, 5, 6, 9, 10, 19, 20, 99, 100, 101):
        spread = tool.measure_distribution(list(range(count)))
        shown = {name: value is not None for name, value in spread.stats.items()}
        assert shown == {name: count >= least for name, least in needed.items()}
        assert (spread.interval is not None) == (count >= 6)


def test_the_rank_of_the_interval_is_the_largest_that_a_binomial_distribution_allows():
    for count in (*range(130), 999, 1000):

        def risk(k, count=count):
            """Twice the chance that fewer than k of so many tosses of a coin are heads."""
            return Fraction(2 * sum(math.comb(count, heads) for heads in range(k)), 2**count)

        rank = tool.interval_rank(count)
        assert (rank == 0) == (count < 6)
        assert rank == 0 or risk(rank) <= Fraction(5, 100)
        assert risk(rank + 1) > Fraction(5, 100)
    for rivals in range(1, 20):
        needed = tool.needed_values(rivals)
        assert tool.interval_rank(needed, rivals) and not tool.interval_rank(needed - 1, rivals)


def test_of_kept_connections_the_good_answers_count_else_those_of_new_ones():
    cold, warm = sample(1, 10, reused=False), sample(2, 11, reused=True)
    kept = tool.Summary([cold, warm])
    assert (kept.reused, kept.stat("total")) == (True, 11)
    better = tool.Summary([cold, sample(2, 11, reused=True, status=503)])
    assert (better.reused, better.none_good, better.stat("total")) == (False, False, 10)
    refused = [cold._replace(network=cold.network._replace(reuse_refused=f"{run}")) for run in range(99)]
    assert len(list(tool.reuse_rows(tool.Summary(refused)))) == 8, "a server may find new words for each run"


def test_a_difference_has_three_digits_and_is_never_rounded_to_nothing():
    """ "Faster by 0.6 ms (0.0 to 3.3)" would be read as no difference."""
    cells = {None: "-", 0: "0", -3: "−0.003", 553: "+0.55", 9_994: "+9.99", 20_000: "+20.0"}
    cells[1_020_000] = "+1020"
    assert {us: tool.signed_ms(us) for us in cells} == cells


def made(values, traits=(), status=200):
    """Make the steps of a series; `traits` has the header fields of each."""
    steps = drawn([us / 1000 for us in values], [[*each.items()] for each in traits])
    return [step._replace(response=step.response._replace(status=status)) for step in steps]


BY_CLOCK = [20_000] * 12 + [90_000] + [20_000] * 13 + [90_000]


@pytest.mark.parametrize(
    ("values", "streaks", "every"),
    [
        ([1000] * 7 + [6001], [[8]], None),
        ([1000] * 6 + [10**9], None, None),  # seven runs
        ([20_000] * 19 + [10], None, None),  # quick ones are not told
        ([90_000, *[20_000] * 12, *[90_000] * 3, *[20_000] * 4], [[1], [14, 15, 16]], None),
        ([56_000, 57_000, 86_000, 55_000] * 10, [[run] for run in range(3, 41, 4)], (4, 4e6)),
        ([86_000, 55_000] * 10, [[run] for run in range(1, 20, 2)], (2, 2e6)),
        ([20_000, 24_900] * 20, None, None),  # 4.9 ms apart
        ([20_000, 23_000, 26_000, 29_000, 32_000, 41_000] * 6, None, None),  # they differ as much below it
        (BY_CLOCK * 3, [[13], [27], [40], [54], [67], [81]], (None, 13.6e6)),
    ],
)  # fmt: skip
def test_streaks_of_slow_runs_and_their_rhythm(values, streaks, every):
    """One run a second."""
    slow, *_ = [*tool.Summary(made(values)).slow, None]
    found = slow and [[each.turn.number for each in streak] for streak in tool.streaks_of(slow.runs)]
    assert found == streaks
    if slow:
        assert (slow.pattern and (slow.pattern.every_runs, slow.pattern.every_us)) == every


def test_runs_between_which_none_is_good_make_no_rhythm():
    """Each second run was an error page, and from some run on all others were slow."""
    [slow] = tool.Summary(made([20_000] * 30 + [90_000] * 20)[::2]).slow
    assert [each.turn.number for each in slow.runs] == [*range(31, 50, 2)]
    assert slow.pattern.since.turn.number == 31


@pytest.mark.parametrize("draw", TWO_CAUSES, ids=lambda draw: draw.__name__)
def test_of_two_causes_at_once_each_is_told(draw):
    series = [draw(random.Random(f"{draw.__name__} {number}")) for number in range(100)]
    missed = [told for told in map(told_of_slow, series) if not told >= TWO_CAUSES[draw]]
    assert missed == []


def test_a_release_is_told_with_what_was_usual_and_starved_runs_are_counted_only():
    for number in range(20):
        summary = tool.Summary(release(random.Random(number)))
        assert abs(tool.median(tool.times_of("total", summary.slow[-1].others)) - 58_000) < 2_000
        samples = restart(random.Random(number))
        [slow] = tool.Summary(samples).slow
        assert not any(step.findings for step in slow.runs), "these are the starved ones"
        assert told_of(samples)[0].startswith(f"{len(slow.runs)} of 55 runs (5 starved ones aside), median ")


def test_chance_seldom_makes_a_lead_and_no_more_than_two_rhythms_in_a_hundred():
    leads, rhythms, count = 0, 0, 400
    for number in range(count):
        chance = random.Random(number)
        share, runs = chance.choice((0.1, 0.2, 0.33, 0.45)), chance.choice((20, 30, 50))
        slow = [chance.random() < share for _ in range(runs)]
        fields = backends("abc", runs, chance)
        for told in tool.Summary(drawn([220 if each else 20 for each in slow], fields)).slow:
            leads += told.companion is not None
            rhythms += told.pattern is not None and told.pattern.since is None
    assert (leads, rhythms <= 0.02 * count) == (0, True)


def test_it_is_told_when_slow_runs_came():
    minute = NOW.strftime("%H:%M:")
    for values, when in (
        ([90_000] + [20_000] * 9, "the first run alone: it may have met what was cold"),
        ([20_000] * 3 + [90_000] * 2 + [20_000] * 9, f"from {minute}04 to {minute}05"),
        ([20_000] * 7 + [90_000] * 2, f"from {minute}08 to {minute}09"),
        ([20_000] * 8 + [90_000], f"at {minute}09"),
        ([20_000] * 8 + [90_000] * 6, f"from run 9, {minute}09, on"),
        ([20_000, 20_000, 90_000] * 8, "every 3 runs, 3.0 s apart"),
        ([90_000, *[20_000] * 12, *[90_000] * 3, *[20_000] * 4], ""),
        ([*[20_000] * 3, 90_000, 20_000, 90_000] * 4 + [90_000] * 14, ""),  # a third was slow before, too
    ):
        [slow] = tool.Summary(made(values)).slow
        assert tool.when_text(slow.runs, slow.pattern, "run").partition(" (")[0] == when


def test_lines_round_half_a_microsecond_as_documents_do():
    for us in (1_063.5, 1_064.5):
        assert tool.time_tokens({"total": us}, False) == [f"total={tool.to_ms(us):.3f}"]


def told_of(samples):
    report = tool.Report(tool.parse_options(["--count", "30", "http://a.test/"], {}))
    report.runs = [tool.Run((each,), False, each.turn) for each in samples]
    lines = [line for _, line in tool.series_rows(tool.Summary(samples), report)]
    spans = ([line] if isinstance(line, (str, tool.Span)) else line for line in lines)
    return ["".join(span if isinstance(span, str) else span.text for span in each) for each in spans]


def owed(totals):
    return [each._replace(account=tool.accounted(each, 0).account) for each in made(totals)]


def test_of_slow_runs_it_is_told_who_took_longer():
    common = tool.Finding("server", "wait", 9_000, "seen", "always")
    plain = [each._replace(findings=(common,)) for each in owed([60_000, 20_000, 20_000] * 10)]
    first, when, why, cause = told_of(plain)
    assert first == "10 of 30 runs, median 60 ms, the others 20: run 1, 4, 7, 10, 13, 16, 19, 22, …"
    assert (when, why) == ("every 3 runs, 3.0 s apart", "40 ms more server")
    assert cause == "wait, in 30 of 30 runs, median 9.0 ms: always"
    late = tool.Share("server", "wait", 60_000, "fits", "path")  # one end cannot tell which of the two it is
    unsure = [run._replace(account=(late,)) if run.timing.total == late.us else run for run in plain]
    assert told_of(unsure)[2] == "40 ms more server or path"
    page = sample(31, 330_000, status=503)._replace(findings=(common,))
    assert told_of([*plain, page]) == told_of(plain), "the times are of good runs, and so are the causes"


def test_what_costs_most_in_all_is_told_first():
    samples = owed([1_000_000 if run in (5, 8, 12, 18, 23, 28) else 20_000 for run in range(30)])
    usual = [tool.Finding("server", "wait", 1000 * ms, "fits", f"of {ms}") for ms in (14, 15, 16) * 10]
    once = [usual[0]._replace(phase=phase, cost_us=300_000, text="once") for phase in tool.PHASES[:3]]
    samples = [each._replace(findings=(usual[n], *once[n : n + 1])) for n, each in enumerate(samples)]
    causes = ["wait, in 30 of 30 runs, median 15 ms: of 15", "dns, in run 1 of 30, 300 ms: once"]
    assert told_of(samples)[2:] == [*causes, "connect, in run 2 of 30, 300 ms: once"]
    many, options = samples[0]._replace(findings=(usual[0],) * 4), tool.parse_options(["http://a.test/"], {})
    *_, rows = tool.step_blocks(many, None, options)
    assert [label for label, _ in rows.rows] == ["Spent", *["Cause"] * 3], "of a single run too"


def test_of_slow_runs_the_median_is_told_and_the_most_where_that_is_far_off():
    for slow, told in (
        ([60_000], "1 of 31 runs, 60 ms, the others 20"),
        ([100_000, 253_000], "2 of 32 runs, median 100, at most 253 ms, the others 20"),
        ([60_000, 60_000, 88_000], "3 of 33 runs, median 60 ms, the others 20"),
        ([60_000, 60_000, 95_000], "3 of 33 runs, median 60, at most 95 ms, the others 20"),
    ):
        assert told_of(made(slow + [20_000] * 30))[0].partition(":")[0] == told


X, NONE, BOTH = {"a": "x"}, {}, {"s": "b", "long": "c"}  # the header fields of a run


@pytest.mark.parametrize(
    ("bad", "good", "told"),
    [
        ([X] * 9 + [NONE], [X] * 4 + [NONE] * 36, "a: x, 9 of 10, else 4 of 40"),
        ([X] * 10, [X] * 5 + [NONE] * 35, None),  # more than a tenth of the others have it
        ([{"x-by": "web-5", "Retry-After": "2"}] * 5, [NONE] * 15, "x-by: web-5, 5 of 5, else 0 of 15"),
        ([X] * 4, [NONE] * 15, None),  # so it may be by chance
        ([X] * 5, [NONE] * 13, None),
        ([X] * 5, [{"a": str(run % 7)} for run in range(15)], "a: x, 5 of 5, else 0 of 15"),
        ([X] * 5, [X] * 15, None),
        ([X] * 15, [], None),
        # of several the one that parts them best, then the shortest
        ([BOTH] * 10, [{"s": "a"}] * 29 + [{"s": "b"}], "long: c, 10 of 10, else 0 of 30"),
        ([BOTH] * 10, [NONE] * 30, "s: b, 10 of 10, else 0 of 30"),
    ],
)  # fmt: skip
def test_what_goes_with_error_pages_is_counted(bad, good, told):
    pages = made([1] * len(bad), bad, status=503)
    found = tool.find_companion(pages, made([1] * len(good), good))
    among = found and f"{found.having} of {found.these}, else {found.others_having} of {found.others}"
    assert (found and f"{found.trait}, {among}") == told


def test_which_of_the_others_were_looked_at_is_said():
    """Every third run is slow, from the third on: two of the others come before."""
    fields = [[("x-backend", "abc"[run % 3])] for run in range(30)]
    steps = drawn([90 if run % 3 == 2 else 20 for run in range(30)], fields)
    rows = [words for label, words in tool.slow_rows(tool.Summary(steps)) if not label]
    assert "all 10 have x-backend: c, none of the 18 between them" in rows


def test_ten_thousand_runs_are_summed_up_in_seconds_whatever_a_server_sends():
    """No field comes twice; a third is slow by chance."""
    chance = random.Random(1)
    times = [chance.choice((20_000, 20_000, 90_000)) for _ in range(10_000)]
    samples = made(times, [{f"x-{run}-{field}": "" for field in range(16)} for run in range(10_000)])
    begun = time.process_time()
    [slow] = tool.Summary(samples[1::2]).slow
    assert (slow.pattern, tool.find_companion(samples[::2], samples[1::2])) == (None, None)
    assert time.process_time() - begun < 20, "1 to 3 s; what is not linear takes minutes"
