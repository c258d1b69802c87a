"""Steps of a series, made by hand: what statistics, verdicts and events are computed from."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any

from inside import tool

NOW = datetime.datetime(2026, 1, 1).astimezone()


def sample(
    run: int,
    total: int,
    *,
    error: str | None = None,
    status: int = 200,
    reused: bool | None = None,
    number: int = 1,
    variant: str | None = None,
) -> Any:
    """Make the step of a run that took `total` microseconds, all of them to wait, one run a second."""
    known = None if reused else 0
    timing = tool.Timing(known, known, known, total, 0, total, 0, total)
    if error:
        timing = timing._replace(xfer=None, ttfb=None)
    return tool.Step(
        number=number,
        url="http://a.test/",
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
        evidence=tool.Evidence(),
        turn=tool.Turn(run, run, variant=variant),
    )


def with_times(each: Any, **times: int | None) -> Any:
    """Return a step with other times (microseconds, by the names of `tool.Timing`)."""
    return each._replace(timing=each.timing._replace(**times))


def drawn(
    times: Sequence[float],
    fields: Sequence[Sequence[tuple[str, str]]] = (),
    starved: Collection[int] = (),
    interval: float = 1.0,
) -> list[Any]:
    """Make the steps of runs that took `times` (ms), one each `interval` seconds; `fields` has the header
    fields of each, `starved` the places of those that waited for a CPU.
    """
    steps = [sample(run, max(100, round(1000 * time))) for run, time in enumerate(times, 1)]
    wait = tool.Finding("starved", None, 100_000, "seen", "this machine was busy")
    for place, step in enumerate(steps):
        headers = tuple((name, value.encode()) for name, value in (fields[place] if fields else ()))
        steps[place] = step._replace(
            started_at=NOW + datetime.timedelta(seconds=interval * (place + 1)),
            response=step.response._replace(headers=headers),
            findings=(wait,) if place in starved else (),
        )
    return steps


def backends(names: str, count: int, chance: random.Random) -> list[list[tuple[str, str]]]:
    """Make the fields of runs that go to some backends in turn, with one field that says nothing."""
    return [
        [("x-backend", names[run % len(names)]), ("x-n", str(chance.randrange(3)))] for run in range(count)
    ]


def restart(chance: random.Random) -> list[Any]:
    """Let one backend of three be six times slower from some run on, and starve five runs."""
    times = [chance.gauss(20, 1) * (6 if run >= 20 and run % 3 == 2 else 1) for run in range(60)]
    starved = chance.sample(range(60), 5)
    for run in starved:
        times[run] += chance.uniform(50, 300)
    return drawn(times, backends("abc", 60, chance), starved)


def release(chance: random.Random) -> list[Any]:
    """Make all slower from run 21 on, and four runs by far."""
    times = [chance.gauss(157 if run >= 20 else 58, 2) for run in range(42)]
    for run in chance.sample([*range(18), *range(24, 42)], 4):
        times[run] += chance.uniform(400, 900)
    return drawn(times)


def pauses(chance: random.Random) -> list[Any]:
    """Let the server stand still each three seconds, and one backend of four be slow."""
    begin, interval = chance.uniform(0, 0.2), 0.5
    times = [
        chance.gauss(80 if run % 4 == 3 else 20, 1) + 1000 * max(0, 0.5 - (begin + interval * run) % 3)
        for run in range(100)
    ]
    return drawn(times, backends("abcd", 100, chance), interval=interval)


def leak(chance: random.Random) -> list[Any]:
    """Let all get slower by and by, and each third be slow."""
    return drawn([chance.gauss(20 + run + 250 * (run % 3 == 1), 1) for run in range(60)])


def lost_packets(chance: random.Random) -> list[Any]:
    """Lose a SYN now and then, and let each fifth be slow."""
    return drawn(
        [chance.gauss(20 + 100 * (run % 5 == 2), 1) + 1000 * (chance.random() < 0.06) for run in range(60)]
    )


# Series of two causes at once, with what is to be said of the slow runs, in any order.
TWO_CAUSES: dict[Callable[[random.Random], list[Any]], set[Any]] = {
    restart: {("every 3 runs", "x-backend: c")},
    release: {("from run 21", None)},
    pauses: {("every 6 runs", None), ("every 4 runs", "x-backend: d")},
    leak: {("every 3 runs", None)},
    lost_packets: {("every 5 runs", None)},
}


def told_of_slow(steps: list[Any]) -> set[Any]:
    """Return of each set of slow runs when they came, and what goes with them."""
    return {
        (
            tool.when_text(slow.runs, slow.pattern, "run").partition(",")[0] if slow.pattern else None,
            slow.companion and slow.companion.trait,
        )
        for slow in tool.Summary(steps).slow
    }
