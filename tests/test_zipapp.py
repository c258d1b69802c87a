"""The one-file forms: `tool.py` alone, and the archive that build_zipapp.sh makes.

The archive is built once per session from wheels in a local folder: the one that HTTPHASES_WHEELS names
(`build_zipapp.sh --download FOLDER` fills it), else one that pip fills now; where pip cannot, these tests
are skipped. HTTPHASES_PYZ names an archive to test in place of a fresh one.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checks import ACCIDENT, check_usage_error, flat, parse_metrics
from conftest import PATIENCE, TOOL, Result
from servers import http_server

PROJECT = TOOL.parent
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
TOO_OLD = ("2.7", "3.6", "3.7", "3.8")
BUILD_PATIENCE = 900.0
"""Seconds for a build: pip, shiv, and a compilation for every Python that is here."""


# --- building -----------------------------------------------------------------------------------------------


@functools.cache
def find_python(version: str) -> str | None:
    """Find an interpreter of `version` ("3.9"): this one, one of pyenv's, or one on PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = sorted(pyenv.glob(f"versions/{version}.*/bin/python"), key=lambda path: path.parts)
    on_path = shutil.which(f"python{version}")
    for python in [sys.executable, *map(str, reversed(kept)), *([on_path] if on_path else [])]:
        command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE)
        if done.stdout.decode().strip() == version:
            return python
    return None


def python_or_skip(version: str) -> str:
    return find_python(version) or pytest.skip(f"Python {version} is not on this machine")


def copy_project(folder: Path) -> Path:
    """Copy what a build needs into a new folder; return that folder."""
    folder.mkdir(parents=True)
    for name in ("build_zipapp.sh", "tool.py", "LICENSE"):
        shutil.copy(PROJECT / name, folder / name)
    return folder


def run_build(
    project: Path, *arguments: str, cwd: Path | None = None, umask: int = -1, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run build_zipapp.sh of `project` to its end, whatever that is."""
    command = ["sh", str(project / "build_zipapp.sh"), *arguments]
    quick = {"PIP_RETRIES": "1", "PIP_TIMEOUT": "10"}
    variables = {**os.environ, "PYTHON": sys.executable, **quick, **environment}
    settings: dict[str, Any] = {"env": variables, "cwd": cwd, "umask": umask, "timeout": BUILD_PATIENCE}
    return subprocess.run(command, check=False, capture_output=True, text=True, **settings)


def offline(wheels: Path) -> dict[str, str]:
    """Name the variables that make pip take wheels from a folder and from nowhere else."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


def once_per_session(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], str | None]) -> Path:
    """Let the first worker that comes `make` the folder `name`; skip, for all, if it gives a reason."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, refusal = root / name, root / f"{name}.refusal"
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists() and not refusal.exists():
            partial = root / f"{name}.partial"
            reason = make(partial)
            if reason is None:
                partial.rename(folder)
            else:
                refusal.write_text(reason)
    if refusal.exists():
        pytest.skip(refusal.read_text())
    return folder


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pinned wheels."""

    def download(folder: Path) -> str | None:
        done = run_build(PROJECT, "--download", str(folder))
        if done.returncode == 0:
            return None
        return f"the pinned wheels cannot be had here: {done.stderr.strip().splitlines()[-1]}"

    given = os.environ.get("HTTPHASES_WHEELS")
    return Path(given) if given else once_per_session(tmp_path_factory, "wheels", download)


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The archive, compiled for every Python that is here, and beside it what else the build writes."""

    def build(folder: Path) -> None:
        project = copy_project(folder.with_name("project"))
        done = run_build(project, **offline(request.getfixturevalue("wheels")))
        assert done.returncode == 0, done.stderr
        (project / "dist").rename(folder)

    given = os.environ.get("HTTPHASES_PYZ")
    if given:
        return Path(given).resolve()
    return once_per_session(tmp_path_factory, "archive", build) / "httphases.pyz"


def rewrite(archive: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """Copy an archive, each entry as `change(name, data)` gives it, without those it gives None for."""
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            data = change(name, source.read(name))
            if data is not None:
                copy.writestr(name, data)
    return target


# --- running ------------------------------------------------------------------------------------------------


@pytest.fixture
def run(archive: Path, base_environment: dict[str, str], tmp_path: Path) -> Callable[..., Result]:
    """Run the archive with its own folders for HOME, TMPDIR and cwd; prove that it wrote nothing there, and
    met with no accident.

    Keywords: `python` and its `flags`; `file` in place of the archive; `prefix` before the command; `env`
    adds variables, or takes them away with None; `cwd`.
    """
    folders = {name: tmp_path / name for name in ("home", "tmp", "cwd")}

    def run_once(
        *arguments: Any,
        python: str = sys.executable,
        flags: tuple[str, ...] = (),
        file: Any = archive,
        prefix: tuple[str, ...] = (),
        env: dict[str, Any] | None = None,
        cwd: Path | None = None,
    ) -> Result:
        for folder in folders.values():
            folder.mkdir(exist_ok=True)
        own = {"HOME": folders["home"], "TMPDIR": folders["tmp"], "PYTHONPATH": None}
        variables = {**base_environment, **own, **(env or {})}
        variables.pop("PYTHONDONTWRITEBYTECODE")
        before = [{*folder.rglob("*")} for folder in (tmp_path, archive.parent)]
        command = [*prefix, python, *flags, file, *arguments]
        present = {name: value for name, value in variables.items() if value is not None}
        settings: dict[str, Any] = {"env": present, "cwd": cwd or folders["cwd"], "timeout": PATIENCE}
        done = subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL, **settings)
        out, err = (data.decode("utf-8", "surrogateescape") for data in (done.stdout, done.stderr))
        assert not ACCIDENT.search(err), err
        after = [{*folder.rglob("*")} for folder in (tmp_path, archive.parent)]
        assert after == before, "something was written"
        return Result(tuple(map(str, command)), done.returncode, out, err, 0.0)

    return run_once


def check_metrics(result: Result) -> None:
    """Prove that a run measured one request and had nothing to say besides."""
    assert (result.code, result.err) == (0, "")
    assert parse_metrics(result.out.rstrip("\n"))["status"] == "200"


def check_waterfall(result: Result) -> None:
    assert (result.code, result.err) == (0, "")
    words = set(re.findall(r"\w+", flat(result.out)))
    assert {"dns", "connect", "wait", "xfer", "ttfb", "total", "200"} <= words


def check_refusal(result: Result, *words: str) -> None:
    """Prove that the archive does not run here, and says why in one line with these words."""
    assert (result.code, result.out, result.err.count("\n")) == (70, "", 1)
    assert [word for word in words if word not in result.err] == []


# --- every Python -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_file_alone_reports_in_every_style_on_each_python(version, run, server, tls, authority):
    """With -I and -S nothing else is seen."""
    archived = run("--version").out
    run = functools.partial(run, python=python_or_skip(version), flags=("-I", "-S"), file=TOOL)
    check_waterfall(run(server.url()))
    with http_server(tls=tls) as secure:
        trust = ("--cacert", authority.file, secure.url())
        check_metrics(run("--metrics-only", *trust))
        document = run("--json", "-", *trust)
    assert (document.code, document.json()["summary"]["final_status"]) == (0, 200)
    assert run("--version").out == archived != ""


@pytest.mark.parametrize("version", TOO_OLD)
def test_a_python_that_is_too_old_is_told_so_in_one_line(version, run):
    for file in [{}, {"file": TOOL}] if version > "3.6" else [{}]:  # 3.6 cannot parse the source
        result = run("--version", python=python_or_skip(version), **file)
        check_refusal(result, "3.9 or newer", version)


def test_a_python_without_its_whole_library_is_told_what_to_install(run, tmp_path):
    (tmp_path / "ssl.py").write_text("raise ModuleNotFoundError(\"No module named 'ssl'\", name='ssl')\n")
    result = run("https://127.0.0.1:1/", flags=("-B",), env={"PYTHONPATH": tmp_path})
    check_refusal(result, "'ssl'", "install python3")


def test_a_damaged_archive_is_called_that(run, archive, tmp_path):
    def damage(name: str, data: bytes) -> bytes:
        return data if name == "__main__.py" else data[: len(data) // 2]

    damaged = rewrite(archive, tmp_path / "bad.pyz", damage)
    check_refusal(run("--version", file=damaged), "damaged", "SHA-256")


# --- what is inside -----------------------------------------------------------------------------------------

COLOURS = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
WAYS = {
    "waterfall": ("", r"\x1b\[.*xfer"),
    "wide": ("-i -H X-Wide:\u3042 --label \u3042", r"\x1b\[.*xfer"),
    "series": ("--count 9 --interval 0 --reuse", r"\x1b\[.*median"),
    "sides": ("--count 6 --versus=--http1.1", r"\x1b\[.*http1\.1"),
    "a budget": ("--slo total=0.001", r"\x1b\[.*total: .* > "),
    "a wrong budget": ("--slo x", r"\x1b\[.*SLO Error"),
    "exports": ("-s --prometheus /dev/null --otlp /dev/null --json -", '"http_version": "HTTP/2"'),
    "HAR": ("-s --har -", '"httpVersion": "HTTP/2"'),
    "socks": ("--metrics-only -x {socks}", "proxy=socks5:.* status=200|status=200 .*proxy=socks5:"),
    "idna": ("--metrics-only --resolve xn--tda.test:1:127.0.0.1 http://\u00fc.test:1/", "error=network"),
}
"""All ways to report, and to ask: the options, and what is said. Colours are only rich's."""


@pytest.mark.needs("hypercorn", "tiny_proxy")
@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1], "uncompiled"])
def test_every_report_comes_out_of_what_is_in_the_archive(
    version, run, archive, http2, authority, socks5, tmp_path
):
    """On each Python out of what was compiled for it, and on any other out of the sources, alone."""
    python = sys.executable if version == "uncompiled" else python_or_skip(version)

    def leave(name: str, data: bytes) -> bytes | None:
        if version == "uncompiled":
            return None if name.endswith(".marshal") else data
        return b"raise SystemExit('a source')" if name.endswith(".py") and "/" in name else data

    file = rewrite(archive, tmp_path / "partial.pyz", leave)
    for name, (options, says) in WAYS.items():
        if version == "uncompiled" and name not in ("waterfall", "exports", "socks", "idna"):
            continue  # it takes a second
        words = options.format(socks=socks5.by_login).split()
        url = [] if "://\u00fc" in options else [http2.url("/", "localhost")]
        result = run(
            "--proxy", "", *words, "--cacert", authority.file, *url,
            flags=("-I", "-S"), python=python, file=file, env=COLOURS,
        )  # fmt: skip
        assert re.search(says, result.out + result.err, re.DOTALL), (options, result.out, result.err)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_bill_of_materials_is_valid_and_has_each_part_with_its_hash_and_licence(archive, wheels):
    """A part is a wheel, or the program; its licence lies beside it, and nothing else is in the archive."""
    path = archive.with_name("httphases.cdx.json")
    bom = (
        json.loads(path.read_text("ascii")) if path.exists() else pytest.skip("it is not beside the archive")
    )
    files = {sha256(path.read_bytes()): path.name.lower() for path in wheels.iterdir()}
    with zipfile.ZipFile(archive) as contents:
        files[sha256(contents.read("site-packages/httphases.py"))] = "httphases"
        names = {name.split("/")[1] for name in contents.namelist() if name != "__main__.py"}
        licences = [name for name in contents.namelist() if re.search(r"/LICENSE(\.md)?$", name)]
        texts = {name.split("/")[1].lower(): contents.read(name).decode() for name in licences}
    tops = {name for name in names if not re.search(r"\.dist-info$|^cpython-\d+-\d+$", name)}
    assert tops == {"h2", "hpack", "httphases.py", "hyperframe", "idna", "rich", "socks.py"}
    whole, parts = bom["metadata"]["component"], bom["components"]
    assert whole["hashes"][0]["content"] == sha256(archive.read_bytes()) and len(parts) == len(tops)
    assert bom["dependencies"] == [
        {"ref": whole["bom-ref"], "dependsOn": [each["bom-ref"] for each in parts]}
    ]
    for each in parts:
        owner = "httphases" if each["name"] == "httphases" else f"{each['name']}-{each['version']}".lower()
        assert files[each["hashes"][0]["content"]].startswith(owner)
        words = {"MIT": "Permission is hereby granted", "BSD-3-Clause": "Redistribution and use in source"}
        assert words[each["licenses"][0]["license"]["id"]] in texts.pop(f"{owner}.dist-info")
    assert texts == {}
    validation = pytest.importorskip("cyclonedx.validation.json", reason="cyclonedx-python-lib is not here")
    schema = importlib.import_module("cyclonedx.schema").SchemaVersion.V1_6
    assert validation.JsonStrictValidator(schema).validate_str(json.dumps(bom)) is None


# --- hosts in trouble ---------------------------------------------------------------------------------------


TROUBLES: list[dict[str, Any]] = [
    {"env": {"HOME": None, "TMPDIR": None}},
    {"env": {"HOME": "/dev/null", "TMPDIR": "x"}},
    {"flags": ("-E", "-s", "-B")},
    {"flags": ("-OO", "-I")},
    {"prefix": ("sh", "-c", 'exec "$@" <&- 2>&-', "sh")},
    {"prefix": ("sh", "-c", 'ulimit -n 12 && exec "$@"', "sh")},
    {"prefix": ("sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh")},
]


def test_what_surrounds_it_does_not_matter(run, server):
    for trouble in TROUBLES:
        check_waterfall(run(server.url(), **trouble))
    missing = run("https://127.0.0.1:1/", env={"SSL_CERT_FILE": "/nowhere"})
    check_usage_error(missing, "SSL_CERT_FILE", "no such file")


OURS = ("h2", "hpack", "httphases", "hyperframe", "idna", "rich", "socks", "tool")
STANDARD = ("argparse", "http", "json", "signal", "socket", "ssl")


@pytest.mark.parametrize(("names", "path"), [(OURS + STANDARD, None), (OURS, "{}")], ids=["cwd", "path"])
def test_modules_of_others_are_not_ours(names, path, run, server, tmp_path):
    """The current folder counts nowhere; of what PYTHONPATH names nothing that is in the archive."""
    for name in names:
        (tmp_path / "hostile" / name).mkdir(parents=True)
        for file in (f"{name}.py", f"{name}/__init__.py"):
            (tmp_path / "hostile" / file).write_text('raise SystemExit("hijacked by " + __file__)\n')
    env = {"PYTHONPATH": path.format(tmp_path / "hostile")} if path else {}
    check_waterfall(run(server.url(), cwd=tmp_path / "hostile", env=env))


def test_a_signal_during_the_start_is_silent(start_tool, archive, tmp_path):
    def change(name: str, data: bytes) -> bytes | None:
        slow = {
            "site-packages/httphases.py": b"import time\nprint('importing', flush=True)\ntime.sleep(60)\n"
        }
        return data if name == "__main__.py" else slow.get(name)

    process = start_tool(program=rewrite(archive, tmp_path / "slow.pyz", change))
    assert process.stdout.readline() == b"importing\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, b"", b"")


# --- the build itself ---------------------------------------------------------------------------------------


@pytest.mark.needs("pip")
def test_two_builds_are_equal_to_the_byte_whatever_others_have_left_around_the_second(wheels, tmp_path):
    """Not the current folder counts, nor the user's site-packages, nor what PYTHONPATH names."""
    user = "home/.local/lib/python{}.{}/site-packages".format(*sys.version_info)
    modules = ["pip/__init__.py", "pip/__main__.py", "zipfile.py", "sitecustomize.py", "rich/__init__.py"]
    ran = tmp_path / "ran"
    for folder in ("cwd", "foreign", user):
        for name in (*modules, "usercustomize.py", "planted.pth"):
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"import os; open({str(ran)!r}, 'a').write({str(path)!r})")
    first, second = copy_project(tmp_path / "one"), copy_project(tmp_path / "another folder ü")
    os.utime(second / "tool.py", (10**9, 10**9))
    (second / "tool.py").chmod(0o600)
    settings = {"PYTHONS": sys.executable, **offline(wheels)}
    other = {
        "PYTHON": os.path.relpath(sys.executable, tmp_path / "cwd"),
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": f"{tmp_path / 'foreign'}:",
        "PYTHONUSERBASE": str(tmp_path / "home" / ".local"),
        "HOME": str(tmp_path / "home"),
        "SOURCE_DATE_EPOCH": "1700000000",
        "TZ": "Asia/Tokyo",
    }
    said = run_build(first, **settings)
    also_said = run_build(second, cwd=tmp_path / "cwd", umask=0o077, **settings, **other)
    assert (said.returncode, also_said.returncode) == (0, 0), said.stderr + also_said.stderr
    assert not ran.exists(), ran.read_text()
    made, also_made = (
        {path.name: (path.stat().st_mode & 0o777, path.read_bytes()) for path in (folder / "dist").iterdir()}
        for folder in (first, second)
    )
    assert made == also_made
    modes = {"SHA256SUMS": 0o644, "httphases.cdx.json": 0o644, "httphases.pyz": 0o755}
    assert {name: mode for name, (mode, _) in made.items()} == modes
    data = made["httphases.pyz"][1]
    assert f"{len(data)} bytes, SHA-256 {sha256(data)}" in said.stdout
