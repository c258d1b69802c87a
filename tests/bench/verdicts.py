"""How often is a verdict of --versus and --baseline wrong, and how often is a difference found?

The program's own functions are fed with times that were drawn from known servers, from a fixed seed.
`paired` is --versus or --all-addresses: both sides are measured in turn, in an order drawn by lot. `apart` is
--baseline: one series after the other, of which the medians and their intervals are compared. The server
answers one request after the other, so that a rhythm, a burst or a drift of its own meets the order of the
requests. The difference between the two sides is known, so that it can be counted how often

    wrong      `faster` or `slower` is said where there is no difference (should be 5 % at most)
    covered    the interval holds the true difference (should be 95 % at least)
    found      a difference of a tenth of the median is called `slower`

A second table says how long series have to be for differences of so many spreads (the distance of the
quartiles).
"""

from __future__ import annotations

import importlib
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import common

sys.path[:0] = [str(common.ROOT), str(common.ROOT / "tests")]
tool: Any = importlib.import_module("tool")

COUNTS = (6, 10, 20, 50, 100)
LENGTHS = (6, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200, 300, 400, 500, 700, 1000)
SEED = 20260101

Server = Callable[[random.Random, int], Iterator[float]]
"""Give the times (ms) in which a server answers so many requests, one after the other."""


def log_normal(chance: random.Random, count: int) -> Iterator[float]:
    return (80 * chance.lognormvariate(0, 0.2) for _ in range(count))


def dependent(share: float) -> Server:
    """Each time depends on the one before, as on a server whose load wanders."""

    def times(chance: random.Random, count: int) -> Iterator[float]:
        place = chance.gauss(0, 1)
        for _ in range(count):
            yield 80 * math.exp(0.15 * place)
            place = share * place + math.sqrt(1 - share**2) * chance.gauss(0, 1)

    return times


def varied(change: Callable[[int, int, int], float]) -> Server:
    """Make a server whose times change with the number of the request, how many there are, and a start."""

    def times(chance: random.Random, count: int) -> Iterator[float]:
        start = chance.randrange(840)  # whose multiples are all from 2 to 8
        return (chance.gauss(80, 4) * change(number, count, start) for number in range(count))

    return times


KINDS: dict[str, Server] = {
    "log-normal, sigma 0.2": log_normal,
    **{f"dependence {share}": dependent(share) for share in (0.33, 0.5, 0.9)},
    **{
        f"every {n}. slow": varied(lambda run, _, start, n=n: 3 if (run + start) % n == 0 else 1)
        for n in range(2, 9)
    },
    **{
        f"{n} backends in turn": varied(lambda run, _, start, n=n: 1 + 0.2 * ((run + start) % n))
        for n in range(2, 9)
    },
    "burst": varied(lambda number, count, start: 4 if 0 <= number - start % count < count / 10 else 1),
    "drift": varied(lambda number, count, _: 1 + 0.4 * number / count),
    "step in the middle": varied(lambda number, count, _: 1 if number < count / 2 else 1.25),
}


def side_of(totals: Sequence[int], name: str) -> Any:
    """Return what the program's functions read of a side with these totals (us)."""
    return SimpleNamespace(
        variant=name,
        good=len(totals),
        used=[
            SimpleNamespace(turn=tool.Turn(number, number), timing=SimpleNamespace(total=us))
            for number, us in enumerate(totals)
        ],
        distributions={"total": tool.measure_distribution(totals)},
    )


def difference(now: Any, before: Any, paired: bool) -> Any:
    """Have the program compare the totals of two sides, or of two series."""
    if paired:
        return tool.difference_in_turn("total", now, before, 1)
    return tool.difference_of_series(now.distributions["total"], before.distributions["total"])


def drawn(server: Server, count: int, shift: float, paired: bool, chance: random.Random) -> list[list[int]]:
    """Draw two series (us), now and before, the first of which is longer by `shift` ms."""
    times = server(chance, 2 * count)
    parts: list[list[int]] = [[], []]
    for number in range(count if paired else 2):
        order = sorted([1, 0], key=lambda _: chance.random()) if paired else [1 - number]
        for side in order:
            for _ in range(1 if paired else count):
                parts[side].append(round(1000 * (max(0, next(times)) + (0 if side else shift))))
    return parts


def share(judged: Sequence[Any], holds: Callable[[Any], bool]) -> float:
    """Return of how many percent something holds."""
    return 100 * sum(map(holds, judged)) / len(judged)


def differences(name: str, count: int, shift: float, paired: bool, rounds: int) -> list[Any]:
    """Have the program compare the totals of so many pairs of series."""
    chance = random.Random(f"{SEED} {name} {count} {paired} {shift}")
    pairs = (drawn(KINDS[name], count, shift, paired, chance) for _ in range(rounds))
    return [difference(side_of(now, "B"), side_of(before, "A"), paired) for now, before in pairs]


def simulated_row(name: str, rounds: int) -> list[str]:
    """Return a row of the first table: wrong and found of each length, the worst coverage of all."""
    chance = random.Random(SEED)
    middle = statistics.median(time for _ in range(100) for time in KINDS[name](chance, 100))
    shift = round(middle / 10, 3)
    cells = []
    for paired in (True, False):
        wrong, found, covered = [], [], []
        for count in COUNTS:
            same, slower = (differences(name, count, ms, paired, rounds) for ms in (0.0, shift))
            wrong.append(share(same, lambda each: tool.verdict_of(each) in ("slower", "faster")))
            found.append(share(slower, lambda each: tool.verdict_of(each) == "slower"))
            for true, each in ((0.0, same), (1000 * shift, slower)):
                known = [one.interval for one in each if one.interval]
                if len(known) >= rounds / 10:
                    covered.append(share(known, lambda ends, us=true: ends[0] <= us <= ends[1]))
        cells += [" ".join(f"{number:.1f}" for number in wrong), f"{min(covered, default=100):.1f}"]
        cells.append(" ".join(f"{number:.0f}" for number in found))
    return [name, *cells]


def show_simulated(rounds: int) -> None:
    print(f"simulated, {rounds} pairs of series in each case, of n = {', '.join(map(str, COUNTS))} runs")
    headings = [
        f"{way}: {what}" for way in ("paired", "apart") for what in ("wrong %", "covered %", "found %")
    ]
    common.print_table(["times", *headings], [simulated_row(name, rounds) for name in KINDS])


def show_needed(rounds: int) -> None:
    """Print how long series have to be, for differences of so many spreads of a log-normal distribution."""
    lower, _, upper = statistics.quantiles(log_normal(random.Random(SEED), 20_000))
    rows = []
    for ratio in (0.25, 0.5, 1.0, 2.0):
        row = [f"{ratio:g}"]
        for paired in (True, False):
            shift = ratio * (upper - lower)
            for count in LENGTHS:
                found = differences("log-normal, sigma 0.2", count, shift, paired, rounds)
                if share(found, lambda each: tool.verdict_of(each) == "slower") >= 80:
                    break
            row.append(str(count))
        rows.append(row)
    print("\nthe least n with which a difference is found four times of five")
    common.print_table(["spreads", "paired", "apart"], rows)


def main() -> None:
    options = common.parse_arguments(
        "How often a verdict of --versus and --baseline is wrong, and how often it finds a difference.",
        1000,
        sys.executable,
    )
    show_simulated(options.rounds)
    show_needed(options.rounds)


if __name__ == "__main__":
    main()
