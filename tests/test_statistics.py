"""The statistics of a series, each against a second computation: fractions, the statistics module, a sum over
a binomial distribution. Nothing is said that the number of values cannot bear.
"""

from __future__ import annotations

import datetime
import math
import random
import statistics
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from inside import tool

times = some.integers(0, 10**8)
lists = some.lists(times, min_size=1, max_size=250)
quick = settings(max_examples=100, deadline=None)


def spread_of(values):
    return tool.measure_distribution(values)


# --- medians and percentiles ----------------------------------------------------------------------


@quick
@given(lists)
def test_the_median_is_that_of_the_statistics_module(values):
    assert tool.median(sorted(values)) == statistics.median(values)


@quick
@given(lists, some.integers(1, 100))
def test_a_percentile_is_the_least_value_that_so_many_percent_do_not_exceed(values, percent):
    found = tool.nearest_rank(sorted(values), percent)
    assert found in values
    needed = Fraction(percent, 100) * len(values)
    assert sum(value <= found for value in values) >= needed
    assert sum(value < found for value in values) < needed


@pytest.mark.parametrize(
    ("count", "percent", "rank"),
    [(100, 99, 99), (20, 95, 19), (10, 90, 9), (4, 25, 1), (4, 75, 3), (1, 95, 1)],
)
def test_percentiles_of_round_numbers_are_no_rank_too_high(count, percent, rank):
    """0.95 x 20 is 19.000000000000004 to a float."""
    assert tool.nearest_rank(range(1, count + 1), percent) == rank


@quick
@given(lists, some.permutations(range(5)))
def test_the_order_in_which_values_come_does_not_matter(values, order):
    shuffled = sorted(values, key=lambda value: (value % 7, order[value % 5]))
    assert spread_of(values) == spread_of(shuffled)


@quick
@given(lists)
def test_what_is_shown_lies_in_order_and_between_the_ends(values):
    stats = spread_of(values).stats
    assert (stats["min"], stats["max"]) == (min(values), max(values))
    names = ["min", "p25", "median", "p75", "p90", "p95", "p99", "max"]
    shown = [stats[name] for name in names if stats[name] is not None]
    assert shown == sorted(shown)


# --- what the number of values bears --------------------------------------------------------------

LEAST = {"min": 1, "max": 1, "median": 1, "p25": 4, "p75": 4, "p90": 10, "p95": 20, "p99": 100}


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 6, 9, 10, 19, 20, 99, 100, 101])
def test_nothing_is_shown_that_the_number_of_values_cannot_bear(count):
    spread = spread_of(list(range(count)))
    assert set(spread.stats) == set(LEAST)
    for name, least in LEAST.items():
        assert (spread.stats[name] is not None) == (count >= least), name
    assert (spread.interval is not None) == (count >= 6)


def test_neither_mean_nor_deviation_is_there():
    assert not {"mean", "stdev", "sd", "average"} & {
        *tool.SUPPORT,
        *tool.SLO_STATS,
        *tool.Distribution._fields,
    }


# --- the interval of the median -------------------------------------------------------------------


@pytest.mark.parametrize("count", [*range(130), 999, 1000, 10_000])
def test_the_rank_of_the_interval_is_the_largest_that_a_binomial_distribution_allows(count):
    rank = tool.interval_rank(count)

    def risk(k):
        """Twice the chance that fewer than k of so many tosses of a coin are heads."""
        return Fraction(2 * sum(math.comb(count, heads) for heads in range(k)), 2**count)

    assert rank == 0 or risk(rank) <= Fraction(5, 100)
    assert risk(rank + 1) > Fraction(5, 100)
    assert (rank == 0) == (count < 6)


@quick
@given(some.lists(times, min_size=6, max_size=120))
def test_the_interval_is_of_measured_values_and_holds_the_median(values):
    low, high = spread_of(values).interval
    assert low in values
    assert high in values
    assert low <= statistics.median(values) <= high
    below, above = sum(value < low for value in values), sum(value > high for value in values)
    assert max(below, above) < tool.interval_rank(len(values))


# --- many samples, one summary --------------------------------------------------------------------

NOW = datetime.datetime(2026, 1, 1).astimezone()


def sample(run, total, *, error=None, status=200, reused=None, number=1, url="http://a.test/", variant=None):
    known = None if reused else 0
    timing = tool.Timing(known, known, known, total, 0, total, 0, total)
    if error:
        timing = timing._replace(xfer=None, ttfb=None)
    step = tool.Step(
        number=number,
        url=url,
        request=tool.Request("GET", tool.Url("http", "a.test", 80, ""), (), None),
        sent_headers=(),
        route=tool.Route(None, None),
        started_at=NOW + datetime.timedelta(seconds=run),
        timing=timing,
        network=tool.Network(None, None, (), (), tool.NO_TLS, None, None, reused),
        response=None if error else tool.Response(status, "", "HTTP/1.1", ()),
        body_bytes=0,
        interim=(),
        error=error and tool.Failure(error, "wait", "no answer", "try again"),
        starved_us=0,
        evidence=tool.Evidence(),
    )
    return tool.Sample(step, tool.Turn(run, run, variant=variant), judged=not error, last=True)


def with_times(each, **times):
    return each._replace(step=each.step._replace(timing=each.timing._replace(**times)))


def test_a_table_of_sides_keeps_all_columns_where_they_just_fit():
    headings = ["Side", "Status", "dns", "connect", "tls", "wait", "xfer", "total", "p95", "change"]
    cells = dict.fromkeys(headings, "123456")
    width = tool.table_width([headings, list(cells.values())])
    order = ["dns", "xfer", "tls", "connect", "wait", "p95", "Status"]
    for narrower, left_out in ((0, []), (1, order[:1]), (20, order[:3]), (57, order)):
        table = tool.fitting_table([cells], headings, width - narrower)
        assert list(table.headings) == [each for each in headings if each not in left_out]
        assert table.numbers == [each for each in table.headings if each not in ("Side", "Status")]


outcomes = some.tuples(
    times, some.sampled_from([None, None, None, "timeout", "network"]), some.sampled_from([200, 503])
)


@quick
@given(some.lists(outcomes, min_size=1, max_size=40))
def test_failed_runs_count_and_never_enter_a_time_and_bad_ones_only_where_none_is_good(series):
    samples = [sample(run, total, error=e, status=s) for run, (total, e, s) in enumerate(series, 1)]
    summary = tool.Summary(samples)
    answered = [(total, status) for total, error, status in series if not error]
    good = [total for total, status in answered if status == 200]
    used = good or [total for total, _ in answered]
    assert (summary.runs, len(summary.used)) == (len(series), len(used))
    assert summary.failed == sum(summary.errors.values()) == len(series) - len(answered)
    assert summary.bad_status == len(answered) - len(good)
    assert summary.none_good == (bool(answered) and not good)
    for key in ("total", "wait", "ttfb"):
        stats = summary.distributions[key].stats
        assert stats["min"] == min(used, default=None)
        assert stats["max"] == max(used, default=None)
    for status in (200, 503):
        own = [total for total, given in answered if given == status]
        assert summary.statuses.get(status) == ((len(own), statistics.median(own)) if own else None)


def test_of_a_kept_connection_the_phases_of_setting_up_have_no_values():
    summary = tool.Summary([sample(run, 5, reused=True) for run in range(1, 30)])
    for key in ("dns", "connect", "tls"):
        assert set(summary.distributions[key].stats.values()) == {None}
        assert summary.distributions[key].interval is None
    assert summary.distributions["wait"].stats["p95"] == 5


def test_steps_are_summed_up_apart_and_with_reuse_the_kept_connections_count():
    samples = [
        sample(1, 10, reused=False),
        sample(2, 11, reused=True),
        sample(3, 13, reused=True, number=2),
    ]
    found = [(each.number, each.runs, len(each.used)) for each in tool.sum_up_all(samples)]
    assert found == [(1, 2, 1), (2, 1, 1)]
    kept = tool.Summary(samples[:2])
    assert (kept.reused, kept.stat("total")) == (True, 11)
    none_kept = tool.Summary(samples[:1])
    assert (none_kept.reused, none_kept.stat("total")) == (False, 10)
    better = tool.Summary([samples[0], sample(2, 11, reused=True, status=503)])
    assert (better.reused, better.none_good, better.stat("total")) == (False, False, 10)


def connected(each, took):
    """Give a sample these times for dns, connect and tls."""
    total = each.timing.total + sum(took)
    return with_times(each, dns=took[0], connect=took[1], tls=took[2], total=total)


@pytest.mark.parametrize(
    ("opened", "kept", "longer"),
    [
        ([9000], 2000, "7.0 ms"),
        ([9000, 9000, 1000], 8000, None),
        ([7000], 2000, "5.0 ms"),
        ([6999], 2000, None),
        ([1000], 42_000, None),
    ],
)
def test_what_opening_costs_is_measured_and_a_slower_first_answer_told_from_5_ms_on(opened, kept, longer):
    samples = [
        connected(sample(run, wait, reused=False), (1000, 2000, 3000)) for run, wait in enumerate(opened)
    ]
    assert tool.reuse_sentence(tool.Summary(samples)) is None
    samples += [sample(run, kept, reused=True) for run in range(11, 18)]
    sentence = tool.reuse_sentence(tool.Summary(samples))
    runs = 7 + len(opened)
    cost = f"{len(opened)} of {runs} runs opened a connection, which took 6.0 ms; the times are of the others"
    slower = (
        f"; the first answer took {longer} longer at the server: for the new connection, or because it was "
        "the first (caches, workers): --count 3 without --reuse tells"
    )
    assert sentence == cost + (slower if longer else "")


# --- budgets --------------------------------------------------------------------------------------


@quick
@given(
    some.lists(some.one_of(some.none(), times), min_size=1, max_size=130), some.sampled_from(tool.SLO_STATS)
)
def test_a_statistic_is_judged_where_enough_values_are_left(totals, statistic):
    samples = [
        sample(run, total or 0, error=None if total is not None else "timeout")
        for run, total in enumerate(totals, 1)
    ]
    values = sorted(total for total in totals if total is not None)
    key = f"total.{statistic}"
    found = tool.judge_time(key, 1000.0, samples)
    assert found.n == len(values)
    if len(values) < LEAST[statistic]:
        assert found.outcome == "not judged"
        return
    actual = spread_of(values).stats[statistic]
    assert found.outcome == ("kept" if round(actual) / 1000 <= 1000 else "exceeded")


@quick
@given(lists)
def test_a_plain_budget_names_the_worst_run(totals):
    found = tool.judge_time("total", 0.0005, [sample(run, total) for run, total in enumerate(totals, 1)])
    worst = max(totals)
    assert found.outcome == ("exceeded" if worst else "kept")
    assert (found.run, found.actual) == (totals.index(worst) + 1, worst / 1000)


# --- the strip ------------------------------------------------------------------------------------


@quick
@given(lists, some.integers(12, 150), some.sampled_from([" .:-=+*#@", " ▁▂▃▄▅▆▇█"]))
def test_a_strip_shows_every_value_and_nothing_else(values, cells, levels):
    drawn = tool.strip(values, 0, max(values), cells, levels)
    assert len(drawn) == cells
    filled = {min(cells - 1, value * cells // max(1, max(values))) for value in values}
    assert {place for place, char in enumerate(drawn) if char != " "} == filled
    assert levels[-1] in drawn and set(drawn) <= set(levels), "the fullest cell is full"


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        ([41200, 38900, 44000], ["41.2", "38.9", "44.0"]),
        ([0, -3000], ["0.0", "3.0"]),
        ([553, 12, 3300], ["0.553", "0.012", "3.300"]),
        ([-41], ["0.041"]),
    ],
)
def test_no_end_of_an_interval_is_rounded_to_nothing(us, shown):
    """ "Faster by 0.6 ms (0.0 to 3.3)" would be read as no difference."""
    assert tool.plain_ms(us) == shown


# --- slow runs, and what goes with them -----------------------------------------------------------


def made(values, traits=(), status=200, first=1):
    """Make the samples of a series; `traits` has what is kept of each."""
    samples = [sample(run, total, status=status) for run, total in enumerate(values, first)]
    for place, each in enumerate(traits):
        samples[place] = samples[place]._replace(traits=tuple(each.items()))
    return samples


@quick
@given(some.lists(some.one_of(some.integers(0, 400), times), min_size=1, max_size=60))
def test_slow_runs_are_those_of_a_second_computation(values):
    """Far above the median; where there are none, above a gap that parts two groups."""
    found = tool.find_slow(made(values))
    far = []
    if len(values) >= 8:
        middle = Fraction(statistics.median(values))
        deviation = Fraction(statistics.median(abs(value - middle) for value in values))
        limit = max(5000, Fraction(14826, 1000) * deviation)
        far = [run for run, value in enumerate(values, 1) if value - middle > limit]
    if far or found is None:
        assert [each.run for each in (found.runs if found else ())] == far
        return
    low, high = ([each.timing.total for each in part] for part in (found.others, found.runs))
    assert len(values) >= 20 and min(len(low), len(high)) >= max(5, 0.15 * len(values))
    assert min(high) - max(low) > max(5000, 3 * tool.spread(low), 3 * tool.spread(high))


BY_CLOCK = [20_000] * 12 + [90_000] + [20_000] * 13 + [90_000]


@pytest.mark.parametrize(
    ("values", "rows", "every"),
    [
        ([1000] * 7 + [6001], [[8]], None),
        ([1000] * 7 + [6000], None, None),
        ([1000] * 6 + [10**9], None, None),  # seven runs
        ([20_000] * 19 + [10], None, None),  # quick ones are not told
        ([90_000, *[20_000] * 12, *[90_000] * 3, *[20_000] * 4], [[1], [14, 15, 16]], None),
        ([56_000, 57_000, 86_000, 55_000] * 10, [[run] for run in range(3, 41, 4)], (4, 4)),
        ([86_000, 55_000] * 10, [[run] for run in range(1, 20, 2)], (2, 2)),
        ([55_000] * 15 + [86_000] * 15, [[*range(16, 31)]], None),
        ([56_000, 57_000, 86_000, 55_000] * 4, [[3], [7], [11], [15]], None),  # four are too few of 16
        ([20_000, 24_900] * 20, None, None),  # 4.9 ms apart
        ([20_000, 23_000, 26_000, 29_000, 32_000, 41_000] * 6, None, None),  # less than three spreads
        (BY_CLOCK * 3, [[13], [27], [40], [54], [67], [81]], (None, 14)),
    ],
)  # fmt: skip
def test_rows_of_slow_runs_and_their_rhythm(values, rows, every):
    """One run a second."""
    slow = tool.find_slow(made(values))
    assert (slow and [[each.run for each in row] for row in slow.rows]) == rows
    number, seconds = every or (None, None)
    if slow:
        assert (slow.every_runs, slow.every_us) == (number, seconds and seconds * 1e6)


def test_slow_runs_at_random_have_no_rhythm():
    """The bench rhythms.py has the figures."""
    named = 0
    for seed in range(200):
        chance = random.Random(seed)
        slow = tool.find_slow(made([90_000 if chance.random() < 0.3 else 20_000 for _ in range(50)]))
        named += slow is not None and slow.every_us is not None
    assert named <= 2


WHEN = NOW.strftime("%H:%M:")


@pytest.mark.parametrize(
    ("values", "when"),
    [
        ([90_000] + [20_000] * 9, "the first run alone: it may have met what was cold"),
        ([20_000] * 3 + [90_000] * 2 + [20_000] * 9, f"from {WHEN}04 to {WHEN}05"),
        ([20_000] * 7 + [90_000] * 2, f"from {WHEN}08 to the end"),
        ([20_000] * 8 + [90_000], f"at {WHEN}09"),
        ([20_000, 20_000, 90_000] * 8, "every 3rd run, 3.0 s apart"),
        (([90_000] + [20_000] * 20) * 6, "every 21st run, 21.0 s apart"),
        ([90_000, *[20_000] * 12, *[90_000] * 3, *[20_000] * 4], None),
    ],
)  # fmt: skip
def test_it_is_told_when_slow_runs_came(values, when):
    summary = tool.Summary(made(values))
    told = tool.when_text(summary.slow, summary)
    assert (told and told.partition(" (")[0]) == when


def told_of(samples):
    """Return what the rows of a series say."""
    report = tool.Results(tool.parse_options(["--count", "30", "http://a.test/"], {}, 80))
    report.samples = samples
    lines = [line for _, line in tool.series_rows(tool.Summary(samples), report.report(30, 0))]
    spans = ([line] if isinstance(line, (str, tool.Span)) else line for line in lines)
    return ["".join(span if isinstance(span, str) else span.text for span in each) for each in spans]


def test_a_finding_of_slow_runs_alone_says_why_and_is_not_told_again():
    found = tool.Finding("nagle", "xfer", 40_000, "fits", "it fits")
    common = tool.Finding("server", "wait", 9_000, "seen", "always")
    plain = made([60_000, 20_000, 20_000] * 10)
    samples = [
        each._replace(findings=(found, common) if each.timing.total > 20_000 else (common,)) for each in plain
    ]
    first, when, why, *readings = told_of(samples)
    assert first == "10 of 30 runs, 60 ms usually, the others 20: run 1, 4, 7, 10, 13, 16, 19, 22, …"
    assert (when, why) == ("every 3rd run, 3.0 s apart", "it fits")
    assert [text.endswith(": always") for text in readings] == [True]
    assert told_of(plain)[2:] == ["most of it wait 40"]


def strip_of(values):
    return [line for _, line in tool.over_time_rows(made(values), 80)]


def test_the_strip_over_time_has_the_medians_of_slices():
    assert strip_of([20_000] * 10 + [90_000] * 9) == []
    drawn, when = strip_of([20_000] * 10 + [90_000] * 10)
    assert drawn == f"20 ms {'▁' * 10}{'█' * 10} 90 ms"
    assert when == f"from {WHEN}01 to {WHEN}20"
    assert strip_of([100_000 + run * 49 for run in range(100)]) == []
    rising, _ = strip_of([100_000 + run * 1000 for run in range(100)])
    strip = rising.split(" ")[2]
    assert len(strip) == 40 and list(strip) == sorted(strip) and set(strip) == set(tool.LEVELS)
    assert strip_of([1000, 1900] * 20) == []


def answers(count, slow, noise_fields=20):
    """Give what is kept of so many runs: a backend that goes with slowness, and fields that mean nothing."""
    chance = random.Random(count)
    for run in range(count):
        fields = {
            f"x-noise-{number}": str(chance.randrange(2 + number % 7)) for number in range(noise_fields)
        }
        yield {**fields, "x-served-by": "web-2" if run in slow else f"web-{run % 2 * 2 + 1}"}


def test_what_goes_with_the_slow_runs_is_found_among_fields_that_mean_nothing():
    slow = range(2, 40, 4)
    values = [86_000 if run in slow else 56_000 + run * 10 for run in range(40)]
    found = tool.find_slow(made(values, answers(40, slow)))
    assert found.companion == ("x-served-by", "web-2", 10, 0, 10, 30)
    nothing = [{name: value for name, value in each.items() if "noise" in name} for each in answers(40, slow)]
    assert tool.find_slow(made(values, nothing)).companion is None


@pytest.mark.parametrize(
    ("these", "others", "values", "found"),
    [
        ([{"a": "x"}] * 9 + [{}], [{"a": "x"}] * 4 + [{}] * 36, 2, ("a", "x", 9, 4, 10, 40)),
        ([{"a": "x"}] * 8 + [{}] * 2, [{}] * 40, 2, None),
        ([{"a": "x"}] * 10, [{"a": "x"}] * 5 + [{}] * 35, 2, None),
        ([{"a": "x"}] * 5, [{}] * 15, 2, ("a", "x", 5, 0, 5, 15)),
        ([{"a": "x"}] * 4, [{}] * 15, 2, None),
        ([{"a": "x"}] * 5, [{}] * 14, 2, None),
        ([{"a": "x"}] * 5, [{"a": str(run % 7)} for run in range(15)], 8, ("a", "x", 5, 0, 5, 15)),
        ([{"a": "x"}] * 5, [{"a": str(run % 8)} for run in range(15)], 9, None),
        ([{"a": "x"}] * 5, [{"a": "x"}] * 15, 1, None),
        # of several the one that parts them best, then the shortest
        ([{"s": "b", "long": "c"}] * 10, [{"s": "a"}] * 29 + [{"s": "b"}], 2, ("long", "c", 10, 0, 10, 30)),
        ([{"s": "b", "long": "c"}] * 10, [{}] * 30, 2, ("s", "b", 10, 0, 10, 30)),
    ],
)  # fmt: skip
def test_what_goes_with_some_runs_is_counted(these, others, values, found):
    samples = made([1] * (len(these) + len(others)), [*these, *others])
    assert len({dict(each.traits).get("a") for each in samples}) == values or "a" not in these[0]
    assert tool.find_companion(samples[: len(these)], samples[len(these) :]) == found
    bad = made([1] * len(these), these, status=503)
    assert tool.Summary(bad + samples[len(these) :]).companion_of(503) == found
    assert tool.Summary(bad + samples[len(these) :]).companion_of(200) is None
