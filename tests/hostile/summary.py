"""Run the hostile cases and print how many there are of each family, the slowest and the largest.

Arguments are passed on to pytest: `python tests/hostile/summary.py -n 2`.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest


class Summary:
    """Gather time and memory of every case from the reports, also of those that ran in another process."""

    def __init__(self) -> None:
        self.families: Counter[str] = Counter()
        self.runs: list[tuple[float, float, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and not report.skipped:
            self.families[Path(report.nodeid.partition("::")[0]).stem] += 1
            values = [value for _, value in report.user_properties]
            self.runs += [(*pair, report.nodeid) for pair in zip(values[::2], values[1::2])]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("hostile cases")
        for family, count in sorted(self.families.items()):
            write(f"{count:5} {family}")
        write(f"{sum(self.families.values()):5} in all, {len(self.runs)} runs of the program")
        for seconds, _, name in sorted(self.runs, reverse=True)[:5]:
            write(f"{seconds:8.2f} s   {name}")
        for _, peak, name in sorted(self.runs, key=lambda run: -run[1])[:5]:
            write(f"{peak:8.1f} MiB {name}")


if __name__ == "__main__":
    sys.exit(pytest.main([str(Path(__file__).parent), "-q", *sys.argv[1:]], plugins=[Summary()]))
