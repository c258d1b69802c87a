"""Nothing that lies beside the script, or in the current folder, is run: anybody may have left it there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import PATIENCE, TOOL
from servers import http_server

ORDINARY = "os signal socket ssl json re stat codecs traceback unicodedata http urllib typing logging"
OPTIONAL = {"h2", "hpack", "hyperframe", "idna", "rich", "socks"}
NAMES = {*getattr(sys, "stdlib_module_names", ORDINARY.split()), *OPTIONAL} - {"__future__"}
"""A `__future__.py` is run before the first line of any script that has `from __future__`: README says so."""


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder with the program and a module of every name, each of which leaves its name in `ran`."""
    folder = tmp_path / "trap"
    folder.mkdir()
    shutil.copy(TOOL, folder / "tool.py")
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + ' ')\n")
    return folder


@pytest.fixture
def run(base_environment, trap) -> Callable[..., str]:
    """Return a function that starts Python in the trap, and returns what of it was run."""

    def start(*words: str, codes: tuple[int, ...], env: dict[str, str] | None = None) -> str:
        with open(trap / "tool.py", "rb") as source:
            settings = {"cwd": trap, "env": {**base_environment, **(env or {})}, "timeout": PATIENCE}
            command = [sys.executable, *words]
            done = subprocess.run(command, check=False, capture_output=True, stdin=source, **settings)
        assert done.returncode in codes, done.stderr
        ran = trap.parent / "ran"
        return ran.read_text() if ran.exists() else ""

    return start


WAYS = {"a script": ["{trap}/tool.py"], "standard input": ["-"], "isolated": ["-I", "-"]}


@pytest.mark.parametrize("way", WAYS)
def test_no_module_in_the_current_folder_or_beside_the_script_is_run(run, trap, tls, authority, way):
    """Neither at the start nor later, when drawing, JSON, HTTP/2, SOCKS or Unicode is needed."""
    python = [word.format(trap=trap) for word in WAYS[way]]
    with http_server(tls=tls) as server:
        export = ("--cacert", str(authority.file), "--json", os.devnull, server.url())
        assert run(*python, *export, codes=(0,), env={"FORCE_COLOR": "1"}) == ""
    if way != "a script":
        return
    assert run(*python, "http://b\u00fccher.invalid/", codes=(64, 75)) == ""
    assert run(*python, "-x", "socks5://127.0.0.1:1", "http://127.0.0.1:1/", codes=(64, 75)) == ""


@pytest.mark.needs("rich")
@pytest.mark.parametrize("value", ["{trap}", ""])
def test_what_pythonpath_names_is_taken_the_current_folder_too(run, trap, tls, authority, value):
    for name in NAMES - {"rich"}:
        (trap / f"{name}.py").unlink()
    path = os.pathsep.join([value.format(trap=trap), os.environ.get("PYTHONPATH", "")])
    with http_server(tls=tls) as server:
        words = ("-", "--cacert", str(authority.file), server.url())
        assert run(*words, codes=(0,), env={"PYTHONPATH": path}) == "rich "


def test_who_imports_the_program_keeps_the_path_and_gets_all_of_http_client(run, trap):
    """And `python3 -m` names a module that is looked for there."""
    for name in NAMES:
        (trap / f"{name}.py").unlink()
    code = "import sys; before = list(sys.path); import tool; assert sys.path == before and before[0] == ''"
    code += "; from http import client; assert client.HTTPMessage().as_string() == '\\n'"
    assert run("-c", code, codes=(0,)) == ""
    assert run("-m", "tool", "--version", codes=(0,)) == ""
