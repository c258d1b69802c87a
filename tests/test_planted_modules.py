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
def run(base_environment, tmp_path: Path) -> Callable[..., str]:
    """Return a function that starts Python in a folder with modules of these names and tells which it ran."""
    trap, ran = tmp_path / "trap", tmp_path / "ran"
    trap.mkdir()
    shutil.copy(TOOL, trap / "tool.py")

    def start(*words: str, codes=(0,), planted=NAMES, **env: str) -> str:
        for name in planted:
            (trap / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r} + ' ')\n")
        command = [sys.executable, *(word.replace("{trap}", str(trap)) for word in words)]
        environ = {**base_environment, **{name: text.format(trap=trap) for name, text in env.items()}}
        with open(trap / "tool.py", "rb") as source:
            settings = {"cwd": trap, "env": environ, "timeout": PATIENCE}
            done = subprocess.run(command, check=False, capture_output=True, stdin=source, **settings)
        assert done.returncode in codes, done.stderr
        return ran.read_text() if ran.exists() else ""

    return start


WAYS = {"a script": ["{trap}/tool.py"], "standard input": ["-"], "isolated": ["-I", "-"]}


@pytest.mark.parametrize("way", WAYS)
def test_no_module_in_the_current_folder_or_beside_the_script_is_run(run, tls, authority, way):
    """Neither at the start nor later, when drawing, JSON, HTTP/2, SOCKS or Unicode is needed."""
    with http_server(tls=tls) as server:
        export = ("--cacert", str(authority.file), "--json", os.devnull, server.url())
        assert run(*WAYS[way], *export, FORCE_COLOR="1") == ""
    if way == "a script":
        for words in (["http://b\u00fccher.invalid/"], ["-x", "socks5://127.0.0.1:1", "http://127.0.0.1:1/"]):
            assert run(*WAYS[way], *words, codes=(64, 75)) == ""


@pytest.mark.needs("rich")
@pytest.mark.parametrize("value", ["{trap}", ""])
def test_what_pythonpath_names_is_taken_the_current_folder_too(run, tls, authority, value):
    path = os.pathsep.join([value, os.environ.get("PYTHONPATH", "")])
    with http_server(tls=tls) as server:
        words = ("-", "--cacert", str(authority.file), server.url())
        assert run(*words, planted=["rich"], PYTHONPATH=path) == "rich "


def test_who_imports_the_program_keeps_the_path_and_gets_all_of_http_client(run):
    """And `python3 -m` names a module that is looked for there."""
    code = "import sys; before = list(sys.path); import tool; assert sys.path == before and before[0] == ''"
    code += "; from http import client; assert client.HTTPMessage().as_string() == '\\n'"
    assert run("-c", code, planted=()) == run("-m", "tool", "--version", planted=()) == ""
