"""What is concluded of slow runs: how often is a rhythm named where there is none, and found where there is
one; how often is each of two causes told; and how often is there a lead.

The program's own functions are fed with series whose slow runs were drawn from fixed seeds. All in percent.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import common

sys.path.append(str(common.ROOT / "tests"))
from inside import tool
from samples import TWO_CAUSES, drawn, told_of_slow

COUNTS = (12, 16, 20, 24, 30, 50, 70, 100, 200)
FEWER = (20, 30, 50, 100, 200)
INTERVAL = 0.15  # seconds, of a series that meets a server that stands still for 0.3 s every 2 s
Draw = Callable[[random.Random, int], list[float]]


def slow_where(is_slow: Callable[[random.Random, int], bool]) -> Draw:
    """Draw times (ms) one by one; `is_slow` knows the number of the run."""
    return lambda chance, count: [
        chance.gauss(20, 1) + 200 * is_slow(chance, number) for number in range(count)
    ]


def in_bursts(chance: random.Random, count: int) -> list[float]:
    """Draw times that stay slow for some runs, and quick for some more."""
    slow, times = False, []
    for _ in range(count):
        slow = chance.random() < (0.6 if slow else 0.08)
        times.append(chance.gauss(20, 1) + 200 * slow)
    return times


def standing_still(chance: random.Random, count: int) -> list[float]:
    begin = chance.uniform(0, 2)
    return [chance.gauss(20, 1) + 1000 * max(0, 0.3 - (begin + INTERVAL * run) % 2) for run in range(count)]


NONE: dict[str, Draw] = {
    **{
        f"{share:.0%} at random": slow_where(lambda chance, _, share=share: chance.random() < share)
        for share in (0.1, 0.2, 0.33, 0.45)
    },
    "bursts": in_bursts,
    "heavy tail (Pareto)": lambda chance, count: [20 * chance.paretovariate(1.2) for _ in range(count)],
}
SOME: dict[str, Draw] = {
    "every 2nd run": slow_where(lambda _, run: run % 2 == 1),
    "every 3rd run": slow_where(lambda _, run: run % 3 == 1),
    "every 7th run": slow_where(lambda _, run: run % 7 == 2),
    "0.3 s every 2 s": standing_still,
}


def causes_row(draw: Callable[[random.Random], list[Any]], rounds: int) -> list[str]:
    """Count how often each of two causes was told."""
    told = [told_of_slow(draw(random.Random(f"{draw.__name__} {number}"))) for number in range(rounds)]
    return [draw.__name__, f"{100 * sum(each >= TWO_CAUSES[draw] for each in told) / rounds:.1f}"]


def lead_row(name: str, held: float, fields: int, rounds: int) -> list[str]:
    """Count leads of slow runs, a fifth of all, that have a value with the chance `held`, and the others not;
    with 0 nothing goes with them. Each answer has some more fields, of two to four values at random.
    """
    row = [name]
    for count in FEWER:
        chance, found = random.Random(f"{name} {count}"), 0
        for _ in range(rounds):
            slow, shown = set(chance.sample(range(count), count // 5)), []
            for run in range(count):
                shown.append([(f"x-{each}", str(chance.randrange(2 + each % 3))) for each in range(fields)])
                if held:
                    has = chance.random() < held if run in slow else chance.random() > held
                    shown[run].append(("x-backend", "c" if has else "a"))
            steps = drawn([220 if run in slow else 20 for run in range(count)], shown)
            leads = [each.companion for each in tool.Summary(steps).slow if each.companion]
            found += any(not held or lead.name == "x-backend" for lead in leads)
        row.append(f"{100 * found / rounds:.2f}")
    return row


def main() -> None:
    options = common.parse_arguments(
        "How often a rhythm and leads are named where there are none, and found where there are.",
        1000,
        sys.executable,
    )
    common.print_table(["both told", ""], [causes_row(draw, options.rounds) for draw in TWO_CAUSES])
    leads = [("no lead, 3 fields", 0.0, 3), ("no lead, 12 fields", 0.0, 12)]
    leads += [("a lead, 100 %, 6 fields", 1.0, 6), ("a lead, 97 %, 6 fields", 0.97, 6)]
    common.print_table(["leads", *map(str, FEWER)], [lead_row(*each, options.rounds) for each in leads])
    rows = []
    for name, draw in {**NONE, **SOME}.items():
        row = [name]
        for count in COUNTS:
            chance, named = random.Random(f"{name} {count}"), 0
            for _ in range(options.rounds):
                patterns = (slow.pattern for slow in tool.Summary(drawn(draw(chance, count))).slow)
                named += any(pattern and not pattern.since for pattern in patterns)
            row.append(f"{100 * named / options.rounds:.2f}")
        rows.append(row)
    common.print_table(["slow runs", *map(str, COUNTS)], rows)


if __name__ == "__main__":
    main()
