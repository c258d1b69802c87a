"""Print, at the end of a run, which check worked on which host."""

from __future__ import annotations

import os

import pytest

collect_ignore = [] if os.environ.get("HTTPHASES_ROOTS") else ["test_hosts.py"]
outcomes: dict[tuple[str, str, str], str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what came of a check: it failed if any part of it did."""
    cell = dict(report.user_properties).get("cell")
    if cell is not None and outcomes.get(tuple(cell)) != "FAILED":
        outcomes[tuple(cell)] = {"passed": "ok", "failed": "FAILED"}.get(report.outcome, "-")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a row for each check and a column for each form on each host."""
    if not outcomes:
        return
    from hosts.table import CHECKS, FORMS

    hosts = sorted({host for _, host, _ in outcomes})
    columns = [(host, form) for host in hosts for form in FORMS]
    write = terminalreporter.write_line
    terminalreporter.section("hosts")
    write(" " * 22 + "".join(f"{host:{9 * len(FORMS)}}" for host in hosts))
    write(" " * 22 + "".join(f"{form:9}" for _, form in columns))
    for check in CHECKS:
        cells = (outcomes.get((check, *column), "-") for column in columns)
        write(f"{check:22}" + "".join(f"{cell:9}" for cell in cells))
