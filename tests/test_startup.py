"""What each way to run the program may import: names, not times. Every import is paid at every start."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import PATIENCE

HEAVY = set(
    "asyncio dataclasses email inspect locale logging multiprocessing subprocess tempfile typing".split()
)
"""Parts of the standard library that cost milliseconds and that no way to run the program needs."""

SHUTIL = {"shutil", "bz2", "lzma"}
"""What it takes to learn the width of a terminal."""

OPTIONAL = {"h2", "hpack", "hyperframe", "idna", "rich", "socks"}


@pytest.fixture
def imported(base_environment, server, program):
    """Return a function that runs the program and returns the top-level names of all that it imported."""

    def run(*options: str, url: str | None = None) -> set[str]:
        command = [sys.executable, "-X", "importtime", "-S", program, *options, url or server.url()]
        paths = [path for path in sys.path if path.endswith("-packages")]
        environment = {**base_environment, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
        assert "Step 1" in done.stdout + done.stderr, done.stderr[-500:]
        return {name.partition(".")[0] for name in re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE)}

    return run


def test_a_line_over_plain_http_imports_nothing_it_does_not_need(imported):
    names = imported("--compact", "-L")
    assert {"http", "ssl", "struct"} <= names, "the list of imports was not read"
    assert not names & (HEAVY | SHUTIL | OPTIONAL | {"json", "unicodedata"})


def test_a_host_that_is_not_ascii_needs_the_package_idna_and_no_codec_of_that_name(imported, server):
    resolve = f"--resolve=xn--bcher-kva.test:{server.port}:127.0.0.1"
    names = imported("--metrics-only", resolve, url=server.url(host="bücher.test"))
    assert "idna" in names
    assert not names & ((SHUTIL | OPTIONAL | {"json", "stringprep"}) - {"idna"})


@pytest.mark.needs("h2")
def test_https_imports_h2_without_what_h2_would_only_load(imported):
    names = imported("--metrics-only", url="https://127.0.0.1:1/")
    assert "h2" in names and not names & (HEAVY - {"typing"})


UNFIT = """
import sys
class Name(str):  # another thread may import something at any moment
    def partition(self, mark):
        return sys.modules.setdefault("meanwhile", sys) and super().partition(mark)
sys.modules[Name("name")] = sys
assert logging.getLogger("hpack").getEffectiveLevel() == logging.WARNING
"""


@pytest.mark.needs("h2")
def test_an_h2_that_cannot_do_with_stand_ins_gets_the_real_ones(run_tool, http2, authority, tmp_path):
    for name in ("h2", "hpack", "hyperframe"):
        shutil.copytree(Path(importlib.util.find_spec(name).origin).parent, tmp_path / name)
    with open(tmp_path / "hpack" / "table.py", "a") as file:
        file.write(UNFIT)
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    result = run_tool("--json", "-", "--cacert", authority.file, http2.url(), env=env)
    assert result.code == 0, result.err
    assert result.json()["steps"][0]["network"]["http_version"] == "HTTP/2"


def test_rich_and_json_are_imported_where_they_are_of_use(imported):
    assert "rich" in imported("--compact", "--slo", "total=1000")
    assert "json" in imported("--metrics-only", "-d", "{}")
    plain = ("--slo", "total=1000", "-d", "{}", "-H", "Content-Type: text/x")
    assert not {"rich", "json"} & imported("--metrics-only", *plain)


WATCH = """
import os, sys
begun = []
def watch(event, details):
    if event == "socket.getaddrinfo" and "localhost" in str(details[0]):
        begun.append(event)
    if event == "import" and begun:
        os.write(2, f"late: {details[0]}\\n".encode())
sys.addaudithook(watch)
"""


@pytest.mark.needs("h2")
def test_nothing_is_imported_once_the_clock_has_started(run_tool, server, http2, authority, tmp_path):
    """Not for the report either: the archive may be replaced meanwhile."""
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    exports = [f"--{name}={tmp_path / name}" for name in ("json", "har", "prometheus", "otlp")]
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    words = ("--cacert", authority.file, *exports, "--slo", "total=9000", http2.url("/", "localhost"))
    series = ("--metrics-only", "--count", 9, "--interval", 0, "--slo", "total.median=9000")
    for each in (words, (*series, server.url(host="localhost"))):
        result = run_tool(*each, env=env)
        assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ModuleNotFoundError('no', name='mmap')", "lacks 'mmap': install python3, not python3-minimal"),
        ("ImportError('libz.so.1: no segment')", "cannot load its library: libz.so.1: no segment"),
        ("MemoryError", "cannot load its library: Cannot allocate memory"),
    ],
)
def test_a_python_without_its_whole_library_is_told_in_one_line_with_exit_code_70(
    run_tool, tmp_path, error, said
):
    (tmp_path / "mmap.py").write_text(f"raise {error}\n")
    result = run_tool("--version", env={"PYTHONPATH": str(tmp_path)})
    assert (result.code, result.out, result.err) == (70, "", f"httphases: this Python {said}\n")
