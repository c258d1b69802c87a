"""Steps of a series, made by hand: what statistics, verdicts and events are computed from."""

from __future__ import annotations

import datetime
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
        starved_us=0,
        evidence=tool.Evidence(),
        turn=tool.Turn(run, run, variant=variant),
    )


def with_times(each: Any, **times: int | None) -> Any:
    """Return a step with other times (microseconds, by the names of `tool.Timing`)."""
    return each._replace(timing=each.timing._replace(**times))
