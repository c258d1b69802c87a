"""How a hostile case is played."""

from __future__ import annotations

import ssl
from typing import Any, Callable

import pytest

from conftest import Authority, Result
from hostile.cases import Case, as_script, check_case
from servers import scripted


@pytest.fixture(scope="session")
def contexts(authority: Authority) -> dict[str, ssl.SSLContext | None]:
    """The TLS of each way to reach a server."""
    return {
        "http": None,
        "raw": None,
        "https": authority.context(),
        "h2": authority.context(alpn=("h2",)),
    }


@pytest.fixture
def play(run_tool: Callable[..., Result], request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
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
            result = run_tool(*(word.format(**values) for word in words))
        return check_case(case, result)

    return run
