"""The program inside the tests' own process: `tool` is its module, `here(...)` a run of it.

A run here is quick, where a test needs many; `run_tool` (conftest.py) is for what hangs on a process.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tool as tool
from conftest import Result, call_main, ended
from servers import http_server


def here(*arguments: Any, env: dict[str, str] | None = None) -> Result:
    """Run the program as `call_tool` does, with no environment but `env`; `out` is its JSON export."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.json")
        words = ("--metrics-only", "--json", path, *arguments)
        result = call_main(tuple(map(str, words)), env or {})
        return ended(result._replace(out=path.read_text("utf-8") if path.exists() else ""))


def only_step(result: Result, code: int = 0) -> dict[str, Any]:
    """Prove that a run ended with `code` after one step, and return that step."""
    assert result.code == code, (result.code, result.err, result.out[-2000:])
    [step] = result.json()["steps"]
    return step


def failure(result: Result, kind: str, phase: str | None = None) -> dict[str, Any]:
    """Prove that a run failed with `kind` (in `phase`) and return its only step."""
    step = only_step(result, 75)
    assert step["error"]["kind"] == kind, step["error"]
    assert phase in (None, step["error"]["phase"]), step["error"]
    return step


def visit(authority, context, *options, host="localhost", env=None):
    """Run the program against a server with this TLS context, on one connection.

    The authority is trusted, by --cacert, where neither `options` nor `env` says whom to trust.
    """
    trust = () if {"-k", "--cacert"} & {*options} or env else ("--cacert", authority.file)
    with http_server(tls=context) as server:
        mapping = [] if host == "127.0.0.1" else ["--resolve", f"{host}:{server.port}:127.0.0.1"]
        result = here("-m", "10", *mapping, *trust, *options, server.url(host=host), env=env)
    assert server.accepted == 1, "the certificate that failed is taken from the handshake that failed"
    return result
