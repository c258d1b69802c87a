"""What is concluded of slow runs: how often is a rhythm named where there is none, and found where there is
one; how often are the far ones told where some are slow by little; and how often is there a lead.

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
from samples import sample

COUNTS = (12, 16, 20, 24, 30, 50, 70, 100, 200)
FEWER = (20, 30, 50, 100, 200)
INTERVAL = 0.15  # seconds, of a series that meets a server that stands still for 0.3 s every 2 s
Draw = Callable[[random.Random, int], list[float]]


def steps_of(times: list[float]) -> list[Any]:
    """Return the steps of a series that took these times (ms)."""
    return [sample(run, round(1000 * time)) for run, time in enumerate(times, 1)]


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


def placed(kind: str, chance: random.Random, count: int) -> list[int]:
    """Draw which runs are slow: at random, each fourth, each fourth and one more, or one row."""
    if kind == "random":
        return sorted(chance.sample(range(count), max(2, count // 10)))
    if kind == "a row":
        first = chance.randrange(count - count // 8)
        return list(range(first, first + max(2, count // 8)))
    every = list(range(chance.randrange(4), count, 4))
    others = [run for run in range(count) if run not in every]
    return every if kind == "each 4th" else sorted([*every, chance.choice(others)])


KINDS = ("random", "each 4th", "each 4th and one", "a row")


def two_tails(far: str, near: str, chance: random.Random, count: int) -> tuple[list[float], set[int]]:
    """Draw the times of a series with some runs that are slow by some 500 ms, and others by some 12."""
    slow = set(placed(far, chance, count))
    little = set(placed(near, chance, count)) - slow
    times = [chance.gauss(20, 0.3) for _ in range(count)]
    for run in range(count):
        times[run] += chance.gauss(500, 40) if run in slow else 0
        times[run] += chance.uniform(9, 14) if run in little else 0
    return times, slow


def tails_row(far: str, near: str, rounds: int) -> list[str]:
    """Count how often exactly the far ones were told, with a time that one of them had, and their rhythm."""
    row = [f"far: {far}, near: {near}"]
    for count in FEWER:
        chance, found = random.Random(f"{far} {near} {count}"), 0
        for _ in range(rounds):
            times, slow = two_tails(far, near, chance, count)
            told = tool.find_slow(steps_of(times))
            runs = {step.turn.number - 1 for step in told.runs} if told else set()
            right = runs == slow and (bool(told.rhythm) or not far.startswith("each"))
            found += right
        row.append(f"{100 * found / rounds:.1f}")
    return row


def lead_row(name: str, held: float, fields: int, rounds: int) -> list[str]:
    """Count leads of slow runs, a fifth of all, that have a value with the chance `held`, and the others not;
    with 0 nothing goes with them. Each answer has some more fields, of two to four values at random.
    """
    row = [name]
    for count in FEWER:
        chance, found = random.Random(f"{name} {count}"), 0
        for _ in range(rounds):
            steps = steps_of([20.0] * count)
            slow = set(chance.sample(range(count), count // 5))
            for run, step in enumerate(steps):
                values = [
                    (f"x-{each}", str(chance.randrange(2 + each % 3)).encode()) for each in range(fields)
                ]
                if held:
                    has = chance.random() < held if run in slow else chance.random() > held
                    values.append(("x-backend", b"c" if has else b"a"))
                steps[run] = step._replace(response=step.response._replace(headers=tuple(values)))
            parts = [[step for run, step in enumerate(steps) if (run in slow) == wanted] for wanted in (1, 0)]
            lead = tool.find_companion(*map(tool.count_traits, parts))
            found += lead is not None and (not held or lead.name == "x-backend")
        row.append(f"{100 * found / rounds:.2f}")
    return row


def main() -> None:
    options = common.parse_arguments(
        "How often a rhythm, two tails and leads are named where there are none, and found where there are.",
        1000,
        sys.executable,
    )
    some = [tails_row(far, near, options.rounds) for far in KINDS for near in KINDS]
    common.print_table(["told exactly", *map(str, FEWER)], some)
    leads = [("no lead, 3 fields", 0.0, 3), ("no lead, 12 fields", 0.0, 12)]
    leads += [("a lead, 100 %, 6 fields", 1.0, 6), ("a lead, 97 %, 6 fields", 0.97, 6)]
    common.print_table(["leads", *map(str, FEWER)], [lead_row(*each, options.rounds) for each in leads])
    rows = []
    for name, draw in {**NONE, **SOME}.items():
        row = [name]
        for count in COUNTS:
            chance, named = random.Random(f"{name} {count}"), 0
            for _ in range(options.rounds):
                slow = tool.find_slow(steps_of(draw(chance, count)))
                named += bool(slow and slow.rhythm)
            row.append(f"{100 * named / options.rounds:.2f}")
        rows.append(row)
    common.print_table(["slow runs", *map(str, COUNTS)], rows)


if __name__ == "__main__":
    main()
