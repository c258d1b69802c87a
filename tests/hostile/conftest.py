"""How a hostile case is played."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any, Callable

import pytest

from conftest import Authority
from hostile.cases import LONG, Case, check_case, talk
from paths import going_first
from servers import scripted


@pytest.fixture(scope="session")
def contexts(authority: Authority) -> dict[str, ssl.SSLContext | None]:
    """The TLS of each way to reach a server."""
    return {"http": None, "raw": None, "https": authority.context(), "h2": authority.context(alpn=("h2",))}


@pytest.fixture
def play(run_tool: Any, call_tool: Any, request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """Play one case of a table, prove that it ended as it must, and return the JSON document.

    `tls` is a server's context to use in place of the session's."""

    def play_case(case: Case, tls: ssl.SSLContext | None = None) -> dict[str, Any]:
        trust: tuple[str, ...] = ()
        if case.over != "http":
            tls = tls or request.getfixturevalue("contexts")[case.over]
            if "-k" not in case.options:
                trust = ("--cacert", str(request.getfixturevalue("authority").file))
        script = talk(case.script) if isinstance(case.script, bytes) else case.script
        with scripted(script, tls=tls, segment=1400) as server:
            values = {"scheme": "http" if case.over == "http" else "https", "port": server.port}
            words = [case.url, "-m", str(case.max_time), "--json", "-", *case.style, *trust, *case.options]
            run = run_tool if case.apart else call_tool
            with going_first() if case.max_time < LONG and not case.apart else contextlib.nullcontext():
                result = run(*(word.format(**values) for word in words))
        return check_case(case, result)

    return play_case
