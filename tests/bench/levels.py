"""How often does a series conclude what is not so?

The program's own functions are fed with totals that were drawn from known distributions, from fixed seeds:

    shift, trend    a change of level is told at the end of a series; in the last four cases there is one
    groups          two groups are told; in one case there are two
    goes with       the right field is named among 20 that mean nothing; and one is where none goes with it
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from collections.abc import Callable
from typing import Any

import common

sys.path[:0] = [str(common.ROOT), str(common.ROOT / "tests")]
tool: Any = importlib.import_module("tool")

COUNTS = (24, 50, 100, 300)
Draw = Callable[[random.Random, int], list[float]]


def log_normal(sigma: float, depends: float = 0.0) -> Draw:
    """Draw times (ms) whose logarithms are normal; each depends on the one before it (autocorrelation)."""

    def draw(chance: random.Random, count: int) -> list[float]:
        last, times = chance.gauss(0, 1), []
        for _ in range(count):
            last = depends * last + math.sqrt(1 - depends**2) * chance.gauss(0, 1)
            times.append(80 * math.exp(sigma * last))
        return times

    return draw


def each_of(time: Callable[[random.Random, int], float]) -> Draw:
    """Draw times one by one; `time` knows the number of the run, from 0."""
    return lambda chance, count: [time(chance, number) for number in range(count)]


def changed(draw: Draw, factor: Callable[[float], float]) -> Draw:
    """Draw times that change in the course of a series: `factor` of 0 at its begin, of 1 at its end."""

    def times(chance: random.Random, count: int) -> list[float]:
        return [time * factor(number / count) for number, time in enumerate(draw(chance, count))]

    return times


def bursting(chance: random.Random, count: int) -> list[float]:
    """Draw times of which one in twenty, in a row, are twice as long."""
    begin = chance.randrange(count)
    return [chance.gauss(80, 4) * (1 + (begin <= number < begin + count / 20)) for number in range(count)]


CASES: dict[str, Draw] = {
    "log-normal, sigma 0.05": log_normal(0.05),
    "log-normal, sigma 0.5": log_normal(0.5),
    "dependence 0.5, sigma 0.2": log_normal(0.2, 0.5),
    "dependence 0.9, sigma 0.2": log_normal(0.2, 0.9),
    "a cache: 7 of 10 near 60, 3 near 90 ms": each_of(
        lambda chance, _: chance.gauss(60, 2) if chance.random() < 0.7 else chance.gauss(90, 3)
    ),
    "Pareto": each_of(lambda chance, _: 50 * chance.paretovariate(2)),
    "4 backends in turn, one 6 ms slower": each_of(
        lambda chance, run: chance.gauss(50, 2) + 6 * (run % 4 == 3)
    ),
    "whole ms, 3 to 7": each_of(lambda chance, _: round(chance.gauss(5, 0.7))),
    "a burst": bursting,
    "the first three slow": each_of(lambda chance, run: chance.gauss(80, 4) + 60 * (run < 3)),
    "+20 % in the middle, sigma 0.1": changed(log_normal(0.1), lambda at: 1.2 if at >= 0.5 else 1),
    "+30 % in the middle, dependence 0.5": changed(log_normal(0.1, 0.5), lambda at: 1.3 if at >= 0.5 else 1),
    "rising by 50 %, sigma 0.1": changed(log_normal(0.1), lambda at: 1 + at / 2),
    "rising by 50 %, dependence 0.5": changed(log_normal(0.1, 0.5), lambda at: 1 + at / 2),
}


def percent(found: int, of: int) -> str:
    return f"{100 * found / of:.1f}"


def show_ends(rounds: int) -> None:
    rows = []
    for name, draw in CASES.items():
        for count in COUNTS:
            kinds, groups, chance = [], 0, random.Random(f"{name} {count}")
            for _ in range(rounds):
                summary = tool.Summary(common.samples_of(tool, draw(chance, count)))
                kinds.append(summary.level and summary.level.kind)
                groups += summary.groups is not None
            told = [percent(kinds.count(kind), rounds) for kind in ("shift", "trend")]
            rows.append([name, str(count), *told, percent(groups, rounds)])
    print(f"\nAt the end of a series, {rounds} each, in percent")
    common.print_table(["times", "n", "shift", "trend", "groups"], rows)


def show_fields(rounds: int) -> None:
    rows = []
    for count in (20, 40, 100):
        found = wrong = 0
        for number in range(rounds):
            chance = random.Random(f"{count} {number}")
            samples = []
            for sample in common.samples_of(tool, [0] * count):
                slow = sample.run % 4 == 0
                names = [(f"x-{field}", str(chance.randrange(2 + field % 7))) for field in range(20)]
                samples.append((slow, sample, names))
            parts: dict[bool, list[list[Any]]] = {True: [[], []], False: [[], []]}
            for slow, sample, names in samples:
                for helps, (these, others) in parts.items():
                    right = [("x-served-by", "web-2" if slow else f"web-{1 + 2 * (sample.run % 2)}")] * helps
                    kept = sample._replace(traits=(*names, *right))
                    (these if slow else others).append(kept)
            named = {helps: tool.find_companion(*groups) for helps, groups in parts.items()}
            found += named[True] is not None and named[True].name == "x-served-by"
            wrong += named[False] is not None
        rows.append([str(count), percent(found, rounds), percent(wrong, rounds)])
    print(f"\nWhat goes with every fourth run, among 20 other fields, {rounds} series each, in percent")
    common.print_table(["n", "found", "one named where none goes"], rows)


def main() -> None:
    options = common.parse_arguments(
        "How often a series concludes what is not so.",
        1000,
        sys.executable,
    )
    show_ends(options.rounds)
    show_fields(options.rounds)


if __name__ == "__main__":
    main()
