"""How a hostile case is played: `play` for the table, `launch` for what is not a server's doing."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Iterator
from typing import Any, Callable

import pytest

from checks import ACCIDENT
from hostile.runner import Case, Launcher, Outcome, as_script, check_case
from servers import scripted


@pytest.fixture(scope="session")
def launcher(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """The small process that all runs of this session are started from."""
    running = Launcher(tmp_path_factory.mktemp("launcher"), program)
    yield running
    running.close()


@pytest.fixture
def launch(
    launcher: Launcher, base_environment: dict[str, str], record_property: Callable[[str, Any], None]
) -> Callable[..., Outcome]:
    """Run the program and note its time and memory for the summary.

    Keywords: `prefix` is a command that runs the rest of its arguments; `env` adds to the bare environment,
    None takes a variable away; the others are the launcher's.
    """

    def run(
        *arguments: str,
        prefix: tuple[str, ...] = (),
        env: dict[str, str | None] | None = None,
        **settings: Any,
    ) -> Outcome:
        whole = {**base_environment, **(env or {})}
        command = [*prefix, sys.executable, launcher.program, *(os.fspath(word) for word in arguments)]
        present = {name: value for name, value in whole.items() if value is not None}
        outcome = launcher.run(command, present, **settings)
        assert not ACCIDENT.search(outcome.err), outcome.err
        record_property("seconds", outcome.seconds)
        record_property("peak_mib", outcome.peak_mib)
        return outcome

    return run


@pytest.fixture(scope="session")
def contexts(authority: Any) -> dict[str, ssl.SSLContext | None]:
    """The TLS of each way to reach a server."""
    return {
        "http": None,
        "raw": None,
        "https": authority.context(),
        "h2": authority.context(alpn=("h2",)),
    }


@pytest.fixture
def play(launch: Callable[..., Outcome], request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """Play one case of a table, prove that it ended as it must, and return the JSON document.

    `tls` is a server's context to use in place of the session's."""

    def run(case: Case, tls: ssl.SSLContext | None = None) -> dict[str, Any]:
        trust: tuple[str, ...] = ()
        if case.over != "http":
            tls = tls or request.getfixturevalue("contexts")[case.over]
            if "-k" not in case.options:
                trust = ("--cacert", str(request.getfixturevalue("authority").file))
        with scripted(as_script(case.script), tls=tls) as server:
            values = {"scheme": "http" if case.over == "http" else "https", "port": server.port}
            words = [case.url, "-m", str(case.max_time), "--json", "-", *case.style, *trust, *case.options]
            outcome = launch(*(word.format(**values) for word in words))
        return check_case(case, outcome)

    return run
