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


# --- outliers -------------------------------------------------------------------------------------


@quick
@given(some.lists(some.one_of(some.integers(0, 400), times), min_size=1, max_size=60))
def test_outliers_are_those_of_a_second_computation(values):
    runs = [(value, number) for number, value in enumerate(values, 1)]
    expected = []
    if len(values) >= 8:
        middle = Fraction(statistics.median(values))
        deviation = max(Fraction(50), Fraction(statistics.median(abs(value - middle) for value in values)))
        limit = Fraction(14826, 1000) * deviation
        expected = [run for value, run in runs if abs(value - middle) > limit]
    assert list(tool.find_outliers(runs)) == expected


@pytest.mark.parametrize(("late", "found"), [(741, ()), (742, (8,))])
def test_a_deviation_under_a_twentieth_of_a_millisecond_counts_as_that(late, found):
    """14.826 x 50 us are 741.3 us."""
    runs = [(1000, number) for number in range(1, 8)] + [(1000 + late, 8)]
    assert tool.find_outliers(runs) == found


def test_seven_values_have_no_outliers():
    assert tool.find_outliers([(1, number) for number in range(6)] + [(10**9, 7)]) == ()


# --- many samples, one summary --------------------------------------------------------------------

NOW = datetime.datetime(2026, 1, 1)


def sample(run, total, *, error=None, status=200, reused=None, number=1, url="http://a.test/"):
    known = None if reused else 0
    timing = tool.Timing(known, known, known, total, 0, total, 0, total)
    if error:
        timing = timing._replace(xfer=None, ttfb=None)
    return tool.Sample(
        run=run,
        round=run,
        variant=None,
        number=number,
        url=url,
        method="GET",
        started_at=NOW,
        timing=timing,
        code=None if error else status,
        body_bytes=0,
        good=not error and status < 400,
        failure=error and tool.Failure(error, "wait", "no answer", "try again"),
        reused=reused,
        judged=not error,
        last=True,
        server=tool.ServerInfo(),
    )


def test_a_table_of_sides_keeps_all_columns_where_they_just_fit():
    rows = tool.rows_of([sample(1, 9, status=200)._replace(variant=side) for side in "AB"], 1)
    whole = tool.sides_table(rows, "B − A", {"B": "+1.0 ms"}, 1000)
    assert "dns" in whole.headings
    cells = [[cell.text for cell in row] for row in whole.rows]
    width = tool.table_width([whole.headings, *cells])
    assert tool.sides_table(rows, "B − A", {"B": "+1.0 ms"}, width).headings == whole.headings
    narrower = tool.sides_table(rows, "B − A", {"B": "+1.0 ms"}, width - 1)
    assert narrower.headings == [each for each in whole.headings if each != "dns"]


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


@quick
@given(some.lists(times, min_size=1, max_size=40))
def test_the_typical_run_is_the_one_nearest_to_the_median_the_earlier_of_two(totals):
    typical = tool.Summary([sample(run, total) for run, total in enumerate(totals, 1)]).typical
    middle = statistics.median(totals)
    distances = [abs(total - middle) for total in totals]
    assert typical.run == distances.index(min(distances)) + 1


def test_of_a_kept_connection_the_phases_of_setting_up_have_no_values():
    summary = tool.Summary([sample(run, 5, reused=True) for run in range(1, 30)])
    for key in ("dns", "connect", "tls"):
        assert set(summary.distributions[key].stats.values()) == {None}
        assert summary.distributions[key].interval is None
    assert summary.distributions["wait"].stats["p95"] == 5


def test_steps_and_urls_are_summed_up_apart_and_with_reuse_the_kept_connections_count():
    samples = [
        sample(1, 10, reused=False),
        sample(2, 11, reused=True),
        sample(3, 12, reused=True, url="http://b.test/"),
        sample(3, 13, reused=True, number=2),
    ]
    found = [(each.number, each.url, each.runs, len(each.used)) for each in tool.sum_up_all(samples)]
    assert found == [(1, "http://a.test/", 2, 1), (1, "http://b.test/", 1, 1), (2, "http://a.test/", 1, 1)]
    kept = tool.Summary(samples[:2])
    assert (kept.reused, kept.stat("total")) == (True, 11)
    none_kept = tool.Summary(samples[:1])
    assert (none_kept.reused, none_kept.stat("total")) == (False, 10)
    better = tool.Summary([samples[0], sample(2, 11, reused=True, status=503)])
    assert (better.reused, better.none_good, better.stat("total")) == (False, False, 10)


def connected(each, took):
    """Give a sample these times for dns, connect and tls."""
    timing = each.timing
    total = timing.total + sum(took)
    return each._replace(timing=timing._replace(dns=took[0], connect=took[1], tls=took[2], total=total))


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
        assert found.outcome == "too few"
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


# --- dependence -------------------------------------------------------------------------------------


def dependence_by_fractions(values):
    """Return f: (1 + r) / (1 - r), with r of mid-ranks at lag 1, its bias taken away, from 0 to 0.95."""
    n = len(values)
    ranks = [
        sum(each < value for each in values) + Fraction(sum(each == value for each in values) + 1, 2)
        for value in values
    ]
    from_mean = [rank - Fraction(n + 1, 2) for rank in ranks]
    squares = sum(each * each for each in from_mean)
    r = (
        sum(each * after for each, after in zip(from_mean, from_mean[1:])) / squares
        if squares
        else Fraction(0)
    )
    r = min(Fraction(95, 100), max(Fraction(0), r + (1 + 3 * r) / n))
    return (1 + r) / (1 - r)


@quick
@given(some.lists(some.integers(0, 30) | times, min_size=1, max_size=60))
def test_the_dependence_of_a_series_is_computed_from_mid_ranks(values):
    assert tool.dependence(values) == pytest.approx(float(dependence_by_fractions(values)), rel=1e-9)


def test_dependence_tells_a_series_that_wanders_from_one_that_does_not():
    chance = random.Random(1)
    alone = [chance.gauss(0, 1) for _ in range(200)]
    wandering, place = [], 0.0
    for each in alone:
        place = 0.9 * place + each
        wandering.append(place)
    assert tool.dependence(alone) < 1.5
    assert 8 < tool.dependence(wandering) <= 39
    assert tool.dependence([1, 2] * 50) == 1  # every second one slow: that is no dependence to be paid for
    assert tool.dependence(range(1000)) == pytest.approx(39)  # the most


# --- levels, groups, and what goes with them ------------------------------------------------------

NOISE = [98_000, 103_000, 99_000, 97_000, 101_000, 100_000, 102_000]


def totals(count, times=1.0, noise=NOISE):
    return [round(noise[number % len(noise)] * times) for number in range(count)]


def made(values, traits=()):
    """Make the samples of a series; `traits` has what is kept of each."""
    samples = [sample(run, total) for run, total in enumerate(values, 1)]
    for place, each in enumerate(traits):
        samples[place] = samples[place]._replace(traits=tuple(each.items()))
    return samples


def test_a_shift_is_where_the_totals_changed_and_names_the_phase():
    samples = made(totals(60) + totals(40, 1.25))
    shared = [
        each._replace(timing=each.timing._replace(wait=50_000, dns=each.timing.total)) for each in samples
    ]
    level = tool.find_level(shared)
    assert (level.kind, level.until, level.since) == ("shift", 60, 61)
    assert (level.before, level.after) == (100_000, 125_000)
    assert level.phases == {"dns": 25_000}


def test_a_trend_has_no_run_and_the_medians_of_the_quarters():
    level = tool.find_level(made([each + 600 * place for place, each in enumerate(totals(100))]))
    assert (level.kind, level.since, level.until) == ("trend", None, None)
    assert list(level.quarters) == sorted(level.quarters)
    assert (level.before, level.after) == (level.quarters[0], level.quarters[3])
    assert (level.before, level.after) == pytest.approx((107_200, 152_200), abs=1500)


@pytest.mark.parametrize(
    "values",
    [
        totals(11) + totals(12, 2),  # 23 runs
        totals(60) + totals(40, 1.09),  # less than a tenth
        [value // 20 for value in totals(60)] + [value // 20 + 900 for value in totals(40)],  # less than 1 ms
        totals(50) + totals(4, 3) + totals(46),  # a burst
        [4, 4, 4, 4, *totals(60)],
        [100_000] * 100,
    ],
)
def test_what_is_no_change_of_level(values):
    assert tool.find_level(made(values)) is None


def test_the_step_may_be_anywhere_that_leaves_five_runs_on_both_sides():
    for place in (20, 50, 80):
        level = tool.find_level(made(totals(place) + totals(100 - place, 1.5)))
        assert level.since == place + 1


def test_two_groups_are_told_where_nothing_lies_between_them():
    values = [56_000, 57_000, 86_000, 55_000] * 10
    groups = tool.find_groups(made(values))
    assert [len(groups.low), len(groups.high)] == [30, 10]
    assert [each.run for each in groups.high][:3] == [3, 7, 11]


@pytest.mark.parametrize(
    "values",
    [
        [56_000, 57_000, 86_000, 55_000] * 4,  # 16 runs
        [56_000] * 37 + [86_000] * 4,  # less than five, and less than 15 %
        [20_000, 24_900] * 20,  # 4.9 ms apart
        [20_000, 23_000, 26_000, 29_000, 32_000, 41_000] * 6,  # less than three deviations
    ],
)
def test_what_are_no_two_groups(values):
    assert tool.find_groups(made(values)) is None


def test_no_run_of_the_smaller_group_is_an_outlier_and_a_shift_is_not_two_groups():
    mixed = tool.Summary(made([56_000, 56_100, 86_000, 55_900] * 10))
    assert tool.find_outliers([(each.timing.total, each.run) for each in mixed.used]) != ()
    assert mixed.outliers == {"total": (), "wait": ()}
    assert tool.Summary(made(totals(30) + totals(30, 2))).groups is None


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
    groups = tool.find_groups(made(values, answers(40, slow)))
    assert groups.companion == ("x-served-by", "web-2", 10, 0, 10, 30)
    nothing = [{name: value for name, value in each.items() if "noise" in name} for each in answers(40, slow)]
    assert tool.find_groups(made(values, nothing)).companion is None


def test_nine_of_ten_are_enough_and_two_of_ten_others_are_too_many():
    def companion(having, elsewhere):
        samples = made([1] * 60, [{"a": "x"}] * having)
        others = made([1] * 60, [{"a": "x"}] * elsewhere)
        return tool.find_companion(samples[:10], others[:40])

    assert companion(9, 4) == ("a", "x", 9, 4, 10, 40)
    assert companion(8, 0) is companion(10, 5) is None


def test_of_several_the_best_is_told_and_then_the_shortest():
    traits = [{"server": "b", "x-backend": "c"}] * 10 + [{"server": "a"}] * 29 + [{"server": "b"}]
    samples = made([1] * 40, traits)
    assert tool.find_companion(samples[:10], samples[10:]) == ("x-backend", "c", 10, 0, 10, 30)
    samples = made([1] * 40, [{"server": "b", "x-backend": "c"}] * 10)
    assert tool.find_companion(samples[:10], samples[10:]) == ("server", "b", 10, 0, 10, 30)


def test_of_a_bad_status_also_what_good_ones_have_now_and_then_but_never_the_status_itself():
    bad = [each._replace(code=503, good=False) for each in made([1] * 12, [{"x-backend": "c"}] * 12)]
    good = [each._replace(run=each.run + 12) for each in made([1] * 48, [{"x-backend": "c"}] * 14)]
    assert tool.Summary(bad + good).companion_of(503) == ("x-backend", "c", 12, 14, 12, 48)
    assert tool.Summary(bad + good).companion_of(200) is None
    assert tool.find_companion(bad, good) is None or tool.find_companion(bad, good).name == "status"
    plain = [each._replace(traits=()) for each in bad + good]
    assert tool.Summary(plain).companion_of(503) is None


def test_chance_is_never_named():
    """Five runs that share one of two values do so by chance in one of 32 cases."""
    samples = made([1] * 12, [{"a": "x"}] * 5)
    assert tool.find_companion(samples[:5], samples[5:]) == ("a", "x", 5, 0, 5, 7)
    many = [
        {"a": "x" if run < 5 else "y", **{f"b{n}": str(run % (n + 2)) for n in range(30)}}
        for run in range(12)
    ]
    assert tool.find_companion(*(lambda each: (each[:5], each[5:]))(made([1] * 12, many))) is None
