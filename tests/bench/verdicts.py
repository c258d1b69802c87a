"""How often is a verdict of --versus and --baseline wrong, and how often is a difference found?

First the program's own functions are fed with times that were drawn from known distributions, from a fixed
seed. `paired` is --versus: both sides are measured in turn, A B, B A, .... `apart` is --baseline: one series
after the other. The difference between the two sides is known, so that it can be counted how often

    wrong      `faster` or `slower` is said where there is no difference (should be 5 % at most)
    covered    the interval holds the true difference (should be 95 % at least)
    found      a true difference is called by its name: of a tenth and of a third of the spread (the distance
               of the quartiles), and of 5 % of the median
    shut       the gate total=+10% fails: wrongly where nothing changed or it is 5 % slower, rightly by 20 %

A third table says how long series have to be for differences of so many spreads.

Then the program itself is run, over a path of 20 ms whose round trip varies, with a server that waits longer
for a side: not at all, 2 ms, and 5 ms (Linux, root, a TUN device). That takes ten minutes.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import common

sys.path[:0] = [str(common.ROOT), str(common.ROOT / "tests")]
tool: Any = importlib.import_module("tool")

COUNTS = (10, 20, 50)
LENGTHS = (7, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200, 300, 400, 500, 700, 1000)
SEED = 20260101
NOW = datetime.datetime(2026, 1, 1)
GATE = {"total": tool.Allowance(10, True)}

Draw = Callable[[random.Random, float], float]
"""Draw a time (ms) at a moment: 0 is the begin of the first series, 1 its end, 2 the end of a second one."""


def log_normal(chance: random.Random, _: float) -> float:
    return 80 * chance.lognormvariate(0, 0.15)


def bimodal(chance: random.Random, _: float) -> float:
    """Draw from a cache that has the answer seven times of ten."""
    return chance.gauss(60, 2) if chance.random() < 0.7 else chance.gauss(90, 3)


def drifting(chance: random.Random, moment: float) -> float:
    """Draw from a server on which the load rises: by a fifth in the time of a series."""
    return chance.gauss(80, 4) + 16 * moment


def with_outliers(chance: random.Random, _: float) -> float:
    """Draw times one of twenty of which is lost and sent again."""
    return chance.gauss(80, 4) + (chance.uniform(200, 1000) if chance.random() < 0.05 else 0)


KINDS: dict[str, Draw] = {
    "log-normal": log_normal,
    "bimodal": bimodal,
    "drift": drifting,
    "outliers": with_outliers,
}


class Judged(NamedTuple):
    """What the program makes of two series."""

    verdict: str
    low: float
    high: float
    shut: bool


def series(totals: Sequence[float], variant: str) -> list[Any]:
    """Return the samples of a series whose totals (ms) are these."""
    samples = []
    for number, total in enumerate(totals, 1):
        us = round(total * 1000)
        samples.append(
            tool.Sample(
                run=number,
                round=number,
                variant=variant,
                number=1,
                url="http://a.test/",
                method="GET",
                started_at=NOW,
                timing=tool.Timing(dns=0, connect=0, tls=0, wait=us, xfer=0, total=us, send=0, ttfb=us),
                code=200,
                body_bytes=0,
                good=True,
                failure=None,
                reused=None,
                judged=True,
                last=True,
                server=tool.ServerInfo(),
            )
        )
    return samples


def judge(own: Sequence[Any], other: Sequence[Any], paired: bool) -> Judged:
    """Have the program judge two series of samples."""
    last = tool.compare(own, other, paired)[-1]
    low, high = last.differences["total"].interval or (-math.inf, math.inf)
    gate = tool.hold_allowances(GATE, own, other, paired)
    return Judged(last.verdict, low / 1000, high / 1000, bool(gate.violations))


def simulate(draw: Draw, count: int, shift: float, paired: bool, chance: random.Random) -> Judged:
    """Draw two series, the second of which is longer by `shift` ms, and have them judged."""
    before, now = [], []
    for number in range(count):
        moments = (number / count, (number + 0.5) / count) if paired else (number / count, 1 + number / count)
        if paired and number % 2:
            moments = moments[::-1]
        before.append(draw(chance, moments[0]))
        now.append(draw(chance, moments[1]) + shift)
    return judge(series(now, "B"), series(before, "A"), paired)


def share(judged: Sequence[Judged], holds: Callable[[Judged], bool]) -> float:
    """Return of how many percent something holds."""
    return 100 * sum(map(holds, judged)) / len(judged)


def simulated_row(name: str, count: int, paired: bool, rounds: int) -> list[str]:
    """Return a row of the first table."""
    draw, chance = KINDS[name], random.Random(f"{SEED} {name} {count} {paired}")
    drawn = sorted(draw(chance, 0) for _ in range(20_000))
    lower, middle, upper = statistics.quantiles(drawn)
    shifts = {"none": 0.0, "tenth": (upper - lower) / 10, "third": (upper - lower) / 3, "5 %": middle / 20}
    cases = {
        word: [simulate(draw, count, shift, paired, chance) for _ in range(rounds)]
        for word, shift in {**shifts, "20 %": middle / 5}.items()
    }
    covered = [
        share(cases[word], lambda each, shift=shift: each.low - 0.001 <= shift <= each.high + 0.001)
        for word, shift in shifts.items()
    ]
    wrong = share(cases["none"], lambda each: each.verdict != "no_difference")
    found = [share(cases[word], lambda each: each.verdict == "slower") for word in list(shifts)[1:]]
    shut = [share(cases[word], lambda each: each.shut) for word in ("none", "5 %", "20 %")]
    numbers = [wrong, min(covered), *found, *shut]
    return [name, "paired" if paired else "apart", str(count), *(f"{number:.1f}" for number in numbers)]


HEADINGS = ["times", "series", "n", "wrong %", "covered %"]
FOUND = ["found: 1/10", "1/3 of spread", "5 %"]
SHUT = ["shut: +0 %", "+5 %", "+20 %"]


def show_simulated(rounds: int) -> None:
    """Print the first table."""
    rows = [
        simulated_row(name, count, paired, rounds)
        for name in KINDS
        for paired in (True, False)
        for count in COUNTS
    ]
    print(f"simulated, {rounds} pairs of series in each case; covered is the worst of the four differences")
    common.print_table([*HEADINGS, *FOUND, *SHUT], rows)


def show_needed(rounds: int) -> None:
    """Print how long series have to be, for differences of so many spreads of a log-normal distribution."""
    shape, chance = KINDS["log-normal"], random.Random(SEED)
    lower, _, upper = statistics.quantiles(shape(chance, 0) for _ in range(20_000))
    rows = []
    for ratio in (0.25, 0.5, 1.0, 2.0):
        row = [f"{ratio:g}"]
        for paired in (True, False):
            shift = ratio * (upper - lower)
            for count in LENGTHS:
                judged = [simulate(shape, count, shift, paired, chance) for _ in range(rounds)]
                if share(judged, lambda each: each.verdict == "slower") >= 80:
                    break
            row.append(str(count))
        rows.append(row)
    print("\nthe least n with which a difference is found four times of five")
    common.print_table(["spreads", "paired", "apart"], rows)


# -- The program itself ------------------------------------------------------------------------------


@contextlib.contextmanager
def jitter(way: Any, chance: random.Random) -> Iterator[None]:
    """Have the round trip of a path vary about 20 ms for the length of the block, with a long tail."""
    over = threading.Event()

    def vary() -> None:
        while not over.wait(chance.uniform(0.01, 0.05)):
            way.change(round_trip=0.018 + chance.expovariate(1 / 0.002))

    thread = threading.Thread(target=vary)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def measured(way: Any, url: str, extra: int, python: str, program: str) -> tuple[list[Any], list[Any]]:
    """Run the program with a side for which the server waits longer (ms), and return the samples of both."""
    side = f"-H 'X-Extra: {extra}'" if extra else ""
    command = [python, program, "--metrics-only", "--count", str(max(COUNTS)), "--versus", side]
    done = subprocess.run(
        [*way.near, *command, "--json", "-", url],
        env=common.plain_environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    sides: dict[str, list[Any]] = {"A": [], "B": []}
    for run in json.loads(done.stdout)["runs"]:
        samples = tool.samples_of_run(run, run["round"], NOW, tool.GOOD_STATUSES)
        sides[run["side"]] += [each._replace(variant=run["side"]) for each in samples]
    return sides["A"], sides["B"]


def show_measured(pairs: int, python: str, program: str) -> None:
    """Print the second table: pairs as measured, and the first side of one with the next one's second."""
    from paths import ANY, FAR, path
    from servers import Reply, Request, http_server

    chance = random.Random(SEED)

    def page(request: Request) -> Reply:
        extra = dict(request.headers).get("X-Extra", "0")
        return Reply(body=b"x" * 2000, wait=0.02 + chance.expovariate(1 / 0.003) + int(extra) / 1000)

    rows = []
    totals = []
    with (
        tempfile.TemporaryDirectory() as name,
        path(Path(name), round_trip=0.02) as way,
        way.far(http_server({"/": page}, host=ANY)) as server,
        jitter(way, chance),
    ):
        for extra in (0, 2, 5):
            done = [measured(way, server.url(host=FAR), extra, python, program) for _ in range(pairs)]
            totals += [sample.timing.total / 1000 for first, _ in done for sample in first]
            apart = [(first[0], second[1]) for first, second in zip(done, [*done[1:], done[0]])]
            for word, series_pairs in (("paired", done), ("apart", apart)):
                rows += [measured_row(word, count, extra, series_pairs) for count in COUNTS]
    lower, middle, upper = statistics.quantiles(totals)
    spread = f"median of total {middle:.1f} ms, quartiles {lower:.1f} and {upper:.1f}"
    print(f"\nmeasured over a path of 20 ms, {pairs} pairs of series, {spread}")
    common.print_table(["slower by", *HEADINGS[1:3], "slower %", "faster %", *HEADINGS[4:], "width"], rows)


def measured_row(word: str, count: int, extra: int, pairs: Sequence[tuple[Any, Any]]) -> list[str]:
    """Return a row of the second table, of the first `count` rounds of each pair."""
    judged = [judge(own[:count], other[:count], word == "paired") for other, own in pairs]
    numbers = [
        share(judged, lambda each: each.verdict == "slower"),
        share(judged, lambda each: each.verdict == "faster"),
        share(judged, lambda each: each.low <= extra <= each.high),
        statistics.median(each.high - each.low for each in judged),
    ]
    return [f"{extra} ms", word, str(count), *(f"{number:.1f}" for number in numbers)]


def main() -> None:
    options = common.parse_arguments(
        "How often a verdict of --versus and --baseline is wrong, and how often it finds a difference.",
        200,
        sys.executable,
    )
    show_simulated(options.rounds)
    show_needed(options.rounds)
    if os.geteuid() != 0:
        common.give_up("needs root, to make a path for the second table")
    show_measured(30, options.python, options.program)


if __name__ == "__main__":
    main()
