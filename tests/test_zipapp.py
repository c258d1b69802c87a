"""The one-file forms: `tool.py` alone, and the archive that build_zipapp.sh makes.

The archive is built once per session from wheels in a local folder: the one that HTTPHASES_WHEELS names
(`build_zipapp.sh --download FOLDER` fills it), else one that pip fills now; where pip cannot, these tests
are skipped. HTTPHASES_PYZ names an archive to test in place of a fresh one.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from checks import ACCIDENT, check_usage_error, flat, parse_compact, parse_metrics
from conftest import PATIENCE, TOOL, Result, storm
from servers import Server, http_server

PROJECT = TOOL.parent
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
TOO_OLD = ("2.7", "3.6", "3.7", "3.8")
BUILD_PATIENCE = 900.0
"""Seconds for a build: pip, shiv, and a compilation for every Python that is here."""


# --- Pythons ------------------------------------------------------------------------------------------------


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
    """Find an interpreter of `version`, or skip the test."""
    return find_python(version) or pytest.skip(f"Python {version} is not on this machine")


# --- building -----------------------------------------------------------------------------------------------


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
    variables = {
        **os.environ,
        "PYTHON": sys.executable,
        "PIP_RETRIES": "1",
        "PIP_TIMEOUT": "10",
        **environment,
    }
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


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of tool.py in a folder that holds nothing else."""
    return Path(shutil.copy(TOOL, tmp_path_factory.mktemp("alone")))


# --- running ------------------------------------------------------------------------------------------------


def listing(*folders: Path) -> list[Path]:
    """List everything below `folders`."""
    return sorted(path for folder in folders for path in folder.rglob("*"))


def finish(command: list[Any], **settings: Any) -> Result:
    """Run a command to its end, without a traceback."""
    done = subprocess.run(
        command, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE, **settings
    )
    out, err = (data.decode("utf-8", "surrogateescape") for data in (done.stdout, done.stderr))
    assert not ACCIDENT.search(err), err
    return Result(tuple(map(str, command)), done.returncode, out, err, 0.0)


@pytest.fixture
def run(archive: Path, base_environment: dict[str, str], tmp_path: Path) -> Callable[..., Result]:
    """Run the archive with its own folders for HOME, TMPDIR and cwd, and prove that it wrote nothing there.

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
        variables = {**base_environment, "HOME": folders["home"], "TMPDIR": folders["tmp"], **(env or {})}
        if "PYTHONPATH" not in (env or {}):
            variables.pop("PYTHONPATH", None)
        variables.pop("PYTHONDONTWRITEBYTECODE")
        before = listing(tmp_path, archive.parent)
        command = [*prefix, python, *flags, file, *arguments]
        present = {name: value for name, value in variables.items() if value is not None}
        result = finish(command, env=present, cwd=cwd or folders["cwd"])
        assert listing(tmp_path, archive.parent) == before, "something was written"
        return result

    return run_once


def check_metrics(result: Result) -> None:
    """Prove that a run measured one request and had nothing to say besides."""
    assert (result.code, result.err) == (0, "")
    assert parse_metrics(result.out.rstrip("\n"))["status"] == "200"


def check_compact(result: Result) -> None:
    assert (result.code, result.err) == (0, "")
    assert parse_compact(result.out.rstrip("\n"))["status"] == "200"


def check_waterfall(result: Result) -> None:
    assert (result.code, result.err) == (0, "")
    words = set(re.findall(r"\w+", flat(result.out)))
    assert {"dns", "connect", "tls", "wait", "xfer", "ttfb", "total", "200"} <= words


def check_json(result: Result) -> None:
    assert result.code == 0
    assert result.json()["summary"]["final_status"] == 200


MODES = {
    (): check_waterfall,
    ("--compact",): check_compact,
    ("--metrics-only",): check_metrics,
    ("--json", "-"): check_json,
}


# --- every Python -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_archive_reports_in_every_mode_on_each_python(
    version: str, run: Callable[..., Result], server: Server, tls: Any, authority: Any
) -> None:
    python = python_or_skip(version)
    check_waterfall(run(server.url(), python=python))
    with http_server(tls=tls) as secure:
        for mode, check in MODES.items():
            check(run(*mode, "--cacert", authority.file, secure.url(), python=python))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_file_alone_reports_in_every_mode_on_each_python(
    version: str, run: Callable[..., Result], alone: Path, server: Server, tls: Any, authority: Any
) -> None:
    settings: dict[str, Any] = {"python": python_or_skip(version), "flags": ("-I", "-S"), "file": alone}
    check_waterfall(run(server.url(), **settings))
    with http_server(tls=tls) as secure:
        for mode, check in MODES.items():
            check(run(*mode, "--cacert", authority.file, secure.url(), **settings))
    assert listing(alone.parent) == [alone]


def test_the_file_alone_says_what_to_add_for_socks(
    run: Callable[..., Result], alone: Path, server: Server
) -> None:
    result = run("--proxy", "socks5://127.0.0.1:1080", server.url(), flags=("-I", "-S"), file=alone)
    check_usage_error(result, "SOCKS", "PySocks", "install")
    assert server.accepted == 0


def test_the_archive_and_the_file_are_the_same_version(run: Callable[..., Result], alone: Path) -> None:
    assert run("--version").out == run("--version", file=alone, flags=("-I", "-S")).out != ""


@pytest.mark.parametrize("version", TOO_OLD)
def test_a_python_that_is_too_old_is_told_so_in_one_line(version: str, run: Callable[..., Result]) -> None:
    result = run("--version", python=python_or_skip(version))
    assert (result.code, result.out) == (70, "")
    assert result.err.count("\n") == 1
    assert "3.9 or newer" in result.err and f"Python {version}" in result.err


def crippled_library(folder: Path, missing: str) -> Path:
    """Make a PYTHONHOME whose standard library lacks the module `missing`."""
    library = folder / sys.platlibdir / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library.mkdir(parents=True)
    for entry in Path(os.__file__).parent.iterdir():
        if entry.name not in (missing, f"{missing}.py", "site-packages", "__pycache__"):
            (library / entry.name).symlink_to(entry)
    return folder


@pytest.mark.parametrize("missing", ["http", "ssl"])
def test_a_python_without_its_whole_library_is_told_what_to_install(
    missing: str, run: Callable[..., Result], server: Server, tmp_path: Path
) -> None:
    home = crippled_library(tmp_path / "python", missing)
    python = getattr(sys, "_base_executable", sys.executable)
    result = run("--metrics-only", server.url(), python=python, flags=("-B",), env={"PYTHONHOME": home})
    assert (result.code, result.out) == (70, "")
    assert result.err.count("\n") == 1
    assert f"'{missing}'" in result.err and "install python3" in result.err
    assert server.accepted == 0


def rewrite(archive: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """Copy an archive, each entry as `change(name, data)` gives it, without those it gives None for."""
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            data = change(name, source.read(name))
            if data is not None:
                copy.writestr(name, data)
    return target


def test_a_python_that_it_was_not_compiled_for_runs_it_all_the_same(
    run: Callable[..., Result], archive: Path, server: Server, tmp_path: Path
) -> None:
    sources = rewrite(
        archive, tmp_path / "sources.pyz", lambda name, data: None if name.endswith(".marshal") else data
    )
    check_waterfall(run(server.url(), file=sources))


@pytest.mark.parametrize("damage", [bytes.swapcase, lambda data: data[: len(data) // 2]], ids=["bits", "end"])
def test_a_damaged_archive_is_called_that(
    damage: Callable[[bytes], bytes], run: Callable[..., Result], archive: Path, tmp_path: Path
) -> None:
    damaged = rewrite(
        archive, tmp_path / "bad.pyz", lambda name, data: data if name == "__main__.py" else damage(data)
    )
    result = run("--version", file=damaged)
    assert (result.code, result.out) == (70, "")
    assert "damaged" in result.err and "SHA-256" in result.err and result.err.count("\n") == 1


# --- what is inside -----------------------------------------------------------------------------------------


def imported(result: Result) -> set[str]:
    """Read the names of the modules that a run with `-X importtime` imported."""
    return {line.rpartition("|")[2].strip() for line in result.err.splitlines() if "|" in line}


# Ways to run that between them import all that any can: the name of the ways, and the options of each.
WAYS = {
    "drawn": [],
    "drawn in colour": ["--count", "2", "--interval", "0", "--slo", "total=1"],
    "lines": ["--compact", "--slo", "total=1"],
    "wide": ["-H", "X-Wide: \u3042", "-i"],
    "exported": ["--metrics-only", "--json", "/dev/null"],
}


def test_the_archive_holds_what_its_runs_import_and_nothing_else(
    run: Callable[..., Result], archive: Path, http2: Any, authority: Any, socks5: Any
) -> None:
    found = set()
    for name, options in WAYS.items():
        env = {"FORCE_COLOR": "1", "TERM": "xterm-256color"} if "colour" in name else {}
        proxy = ["-x", socks5.url().rstrip("/")] if name == "exported" else []
        result = run(
            *options, *proxy, "--cacert", authority.file, http2.url(), flags=["-X", "importtime"], env=env
        )
        assert result.code in (0, 4), result.err
        found |= imported(result)
    usage = run("--slo", "x", flags=["-X", "importtime"])
    found |= imported(usage)
    found |= imported(
        run("http://ü.test:1/", "--resolve", "xn--tda.test:1:127.0.0.1", flags=["-X", "importtime"])
    )
    with zipfile.ZipFile(archive) as contents:
        names = [name.partition("/")[2] for name in contents.namelist() if name.endswith(".py")]
    held = {name[: -len(".py")].replace("/", ".").replace(".__init__", "") for name in names if name}
    assert held == {name for name in found if name.partition(".")[0] in BUNDLED}


BUNDLED = {"h2", "hpack", "hyperframe", "httphases", "idna", "rich", "socks"}


def test_the_waterfall_is_drawn_by_the_bundled_rich_without_its_requirements(
    run: Callable[..., Result], archive: Path, server: Server
) -> None:
    with zipfile.ZipFile(archive) as contents:
        tops = {name.split("/")[1] for name in contents.namelist() if "/" in name}
    assert not tops & {"pygments", "markdown_it", "mdurl"}
    for env in ({}, {"FORCE_COLOR": "1"}, {"COLUMNS": "40"}, {"UNICODE_VERSION": "9.0.0"}):
        result = run(
            server.url(), flags=("-I", "-S", "-X", "importtime"), env={**env, "TERM": "xterm-256color"}
        )
        assert result.code == 0
        assert "rich.console" in imported(result)
        assert "200" in result.out


@pytest.mark.needs("hypercorn")
def test_the_archive_speaks_http2(run: Callable[..., Result], http2: Any, authority: Any) -> None:
    result = run("--json", "-", "--cacert", authority.file, http2.url())
    assert result.json()["steps"][0]["network"]["http_version"] == "HTTP/2"


def test_the_archive_asks_for_a_host_that_is_not_ascii(run: Callable[..., Result], server: Server) -> None:
    mapping = f"xn--strae-oqa.test:{server.port}:127.0.0.1"
    check_metrics(
        run("--metrics-only", "--resolve", mapping, server.url(host="straße.test"), flags=("-I", "-S"))
    )
    assert server.requests[0].values("Host") == [f"xn--strae-oqa.test:{server.port}"]


def test_the_file_alone_says_what_to_write_for_a_host_that_is_not_ascii(
    run: Callable[..., Result], alone: Path
) -> None:
    result = run("http://straße.test/", flags=("-I", "-S"), file=alone)
    check_usage_error(result, "straße.test", "idna", "write its xn-- form")


@pytest.mark.needs("tiny_proxy")
def test_the_archive_goes_through_socks(run: Callable[..., Result], socks5: Any, server: Server) -> None:
    result = run("--metrics-only", "--proxy", socks5.url("").rstrip("/"), server.url())
    check_metrics(result)
    assert parse_metrics(result.out.strip())["proxy"].startswith("socks5://")


def damage(pem: str) -> str:
    return pem.replace("MI", "NI", 1)


# What SSL_CERT_FILE holds, made of an authority's certificate, and the code with which the archive ends.
STORES: dict[str, tuple[Callable[[str], str], int]] = {
    "whole": (lambda pem: f"# words\n{pem}", 0),
    "twice": (lambda pem: pem + pem, 0),
    "damaged": (damage, 64),
    "damaged behind a good one": (lambda pem: pem + damage(pem), 64),
    "empty": (lambda pem: "", 64),
}


@pytest.mark.parametrize("kind", STORES)
def test_the_store_that_is_read_ahead_is_checked_like_any(
    kind: str, run: Callable[..., Result], authority: Any, tls: Any, tmp_path: Path
) -> None:
    content, code = STORES[kind]
    path = tmp_path / "store.pem"
    path.write_text(content(authority.file.read_text()))
    with http_server(tls=tls) as secure:
        result = run("--metrics-only", secure.url(), env={"SSL_CERT_FILE": path})
    assert result.code == code, result.err
    assert not code or (str(path) in result.err and "SSL_CERT_FILE" in result.err)


@pytest.mark.needs("linux")
def test_a_store_that_is_a_pipe_is_left_to_the_program(
    run: Callable[..., Result], authority: Any, tls: Any, tmp_path: Path
) -> None:
    path = tmp_path / "store.pem"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[authority.file.read_bytes()])
    writer.start()
    with http_server(tls=tls) as secure:
        check_metrics(run("--metrics-only", "-m", "10", secure.url(), env={"SSL_CERT_FILE": path}))
    writer.join()


LICENCE = re.compile(r"/LICENSE(\.md)?$")


def test_every_bundled_package_brings_its_licence(archive: Path) -> None:
    with zipfile.ZipFile(archive) as contents:
        licensed = {name.split("/")[1] for name in contents.namelist() if LICENCE.search(name)}
    owners = {name.split("-")[0].replace(".dist", "").lower() for name in licensed}
    assert owners == {"h2", "hpack", "httphases", "hyperframe", "idna", "pysocks", "rich"}


@pytest.fixture
def bom(archive: Path) -> dict[str, Any]:
    """What the archive is made of, as the build says; skip where it was given without that."""
    path = archive.with_name("httphases.cdx.json")
    if not path.exists():
        pytest.skip("beside this archive there is no bill of materials")
    document: dict[str, Any] = json.loads(path.read_text("ascii"))
    return document


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_bill_of_materials_names_what_is_in_the_archive_and_nothing_else(
    archive: Path, bom: dict[str, Any], wheels: Path
) -> None:
    with zipfile.ZipFile(archive) as contents:
        names = [name.split("/") for name in contents.namelist()]
        source = contents.read("site-packages/httphases.py")
    modules = {parts[1].removesuffix(".py") for parts in names if parts[0] == "site-packages" and parts[2:]}
    modules |= {parts[1].removesuffix(".py") for parts in names if parts[0] == "site-packages"}
    modules = {name for name in modules if not name.endswith(".dist-info")}
    program, *libraries = bom["components"]
    named = {"PySocks": "socks"}
    assert {named.get(each["name"], each["name"]) for each in bom["components"]} == modules
    folders = {parts[1].lower() for parts in names if len(parts) > 1 and parts[1].endswith(".dist-info")}
    versions = {f"{each['name']}-{each['version']}.dist-info".lower() for each in libraries}
    assert folders == versions | {"httphases.dist-info"}
    version = subprocess.run(
        [sys.executable, archive, "--version"], check=True, capture_output=True, text=True
    )
    assert {f"httphases {each['version']}\n" for each in (program, bom["metadata"]["component"])} == {
        version.stdout
    }
    files = {name.split("-")[0]: (wheels / name).read_bytes() for name in os.listdir(wheels)}
    digests = {each["name"]: sha256(files[each["name"]]) for each in libraries}
    digests["httphases"] = sha256(source)
    assert {each["name"]: each["hashes"][0]["content"] for each in bom["components"]} == digests
    assert bom["metadata"]["component"]["hashes"][0]["content"] == sha256(archive.read_bytes())


LICENCES = {
    "MIT": ["Permission is hereby granted, free of charge", 'THE SOFTWARE IS PROVIDED "AS IS"'],
    "BSD-3-Clause": ["Redistribution and use in source and binary forms", "3. Neither the name of"],
}


def test_the_licences_are_those_whose_text_is_in_the_archive(archive: Path, bom: dict[str, Any]) -> None:
    with zipfile.ZipFile(archive) as contents:
        texts = {
            name.split("/")[1].split("-")[0].replace(".dist", "").lower(): contents.read(name).decode()
            for name in contents.namelist()
            if LICENCE.search(name)
        }
    for each in bom["components"]:
        [licence] = each["licenses"]
        text = " ".join(texts.pop(each["name"].lower()).split())
        assert [words for words in LICENCES[licence["license"]["id"]] if words not in text] == []
    assert texts == {}


def test_the_bill_of_materials_is_valid_and_has_no_time_in_it(bom: dict[str, Any]) -> None:
    assert (bom["bomFormat"], bom["specVersion"], bom["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", bom["serialNumber"])
    assert "timestamp" not in bom["metadata"]
    whole = bom["metadata"]["component"]["bom-ref"]
    refs = [each["bom-ref"] for each in bom["components"]]
    assert len({whole, *refs}) == len(refs) + 1
    assert bom["dependencies"] == [{"ref": whole, "dependsOn": refs}]
    validation = pytest.importorskip("cyclonedx.validation.json", reason="cyclonedx-python-lib is not here")
    schema = importlib.import_module("cyclonedx.schema").SchemaVersion.V1_6
    assert validation.JsonStrictValidator(schema).validate_str(json.dumps(bom)) is None


@pytest.mark.parametrize("name", ["tool.py", "httphases.pyz"])
def test_a_copy_is_verified_by_the_command_of_the_readme(
    archive: Path, bom: dict[str, Any], name: str, tmp_path: Path
) -> None:
    readme = (PROJECT / "README.md").read_text("utf-8")
    [command] = re.findall(rf"^grep .*{re.escape(name)}.*sha256sum -c", readme, re.MULTILINE)
    shutil.copy(archive.with_name("SHA256SUMS"), tmp_path)
    copy = Path(shutil.copy({"tool.py": TOOL, "httphases.pyz": archive}[name], tmp_path / name))
    for damage, code, said in ((b"", 0, f"{name}: OK\n"), (b"#", 1, f"{name}: FAILED\n")):
        copy.write_bytes(copy.read_bytes() + damage)
        done = subprocess.run(
            ["sh", "-c", command], check=False, capture_output=True, text=True, cwd=tmp_path
        )
        assert (done.returncode, done.stdout) == (code, said)


def test_every_python_here_finds_code_that_was_compiled_for_it(archive: Path) -> None:
    with zipfile.ZipFile(archive) as contents:
        trees = {name.split("/")[0] for name in contents.namelist() if name.endswith("/httphases.marshal")}
    here = [version for version in VERSIONS if find_python(version)]
    assert {tree.rpartition("-")[0] for tree in trees} >= {f"cpython-{v.replace('.', '')}" for v in here}


@pytest.mark.needs("hypercorn")
@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_compiled_is_all_that_runs(
    version: str,
    run: Callable[..., Result],
    archive: Path,
    http2: Any,
    authority: Any,
    socks5: Any,
    tmp_path: Path,
) -> None:
    python = python_or_skip(version)
    compiled = rewrite(
        archive,
        tmp_path / "compiled.pyz",
        lambda name, data: b"raise SystemExit('a source')" if name.endswith(".py") and "/" in name else data,
    )
    run = functools.partial(run, "--cacert", authority.file, file=compiled, python=python)
    check_waterfall(run(http2.url()))
    coloured = run("-x", socks5.url().rstrip("/"), http2.url(), env={"FORCE_COLOR": "1"})
    assert (coloured.code, coloured.err) == (0, "")


# --- hosts in trouble ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", [None, "", "/nonexistent/home", "/dev/null", "/proc", "relative"])
def test_no_home_is_needed(home: str | None, run: Callable[..., Result], server: Server) -> None:
    check_waterfall(run(server.url(), env={"HOME": home, "TMPDIR": home}))


@pytest.mark.parametrize(
    "flags", [("-I",), ("-S",), ("-I", "-S"), ("-E", "-s", "-B"), ("-O",), ("-OO", "-I")]
)
def test_any_isolation_of_the_interpreter_will_do(
    flags: tuple[str, ...], run: Callable[..., Result], server: Server
) -> None:
    check_waterfall(run(server.url(), flags=flags))


NAMES = [
    b"httphases",
    b"with spaces.pyz",
    "ünïcødé ✓.pyz".encode(),
    b"not utf-8 \xff\xe9.pyz",
    b"a.b:c%41.zip",
]


@pytest.mark.parametrize("name", NAMES, ids=repr)
@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_the_archive_can_have_any_name_in_any_folder(
    name: bytes, locale: str, run: Callable[..., Result], archive: Path, server: Server, tmp_path: Path
) -> None:
    folder = os.path.join(os.fsencode(tmp_path), name + b".folder")
    os.mkdir(folder)
    copy = os.path.join(folder, name)
    shutil.copy(archive, copy)
    check_metrics(run("--metrics-only", server.url(), file=copy, env={"LC_ALL": locale}))


def test_the_archive_runs_by_its_own_name_and_through_a_symlink(
    archive: Path, run: Callable[..., Result], server: Server, tmp_path: Path
) -> None:
    link = tmp_path / "bin" / "httphases"
    link.parent.mkdir()
    link.symlink_to(archive)
    check_metrics(run("--metrics-only", server.url(), python="/usr/bin/env", file=link))
    check_metrics(run("--metrics-only", server.url(), file=link))


HIJACK = 'raise SystemExit("hijacked by " + __file__)\n'
OURS = ("h2", "hpack", "httphases", "hyperframe", "idna", "rich", "socks", "tool")
STANDARD = ("argparse", "http", "json", "signal", "socket", "ssl")


def hostile_folder(folder: Path, names: tuple[str, ...]) -> Path:
    """Make a folder of modules and packages that end the program when they are imported."""
    folder.mkdir()
    for name in names:
        (folder / f"{name}.py").write_text(HIJACK)
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(HIJACK)
    return folder


def test_modules_in_the_current_folder_are_not_ours(
    run: Callable[..., Result], server: Server, tmp_path: Path
) -> None:
    check_waterfall(run(server.url(), cwd=hostile_folder(tmp_path / "hostile", OURS + STANDARD)))


@pytest.mark.parametrize("form", ["{}", ":{}", "{}/", ".", ""], ids=repr)
def test_a_foreign_pythonpath_comes_last(
    form: str, run: Callable[..., Result], server: Server, tmp_path: Path
) -> None:
    hostile = hostile_folder(tmp_path / "hostile", OURS + STANDARD)
    for flags in ((), ("-S",)):
        env = {"PYTHONPATH": form.format(hostile)}
        check_waterfall(run(server.url(), flags=flags, env=env, cwd=hostile))


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_closed_streams_do_not_matter(closed: str, run: Callable[..., Result], server: Server) -> None:
    check_waterfall(run(server.url(), prefix=("sh", "-c", f'exec "$@" {closed}', "sh")))


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_without_stdout_the_archive_ends_as_the_file_does(
    closed: str, run: Callable[..., Result], alone: Path, server: Server
) -> None:
    prefix = ("sh", "-c", f'exec "$@" {closed}', "sh")
    ours = run("--metrics-only", server.url(), prefix=prefix)
    files = run("--metrics-only", server.url(), prefix=prefix, file=alone)
    assert (ours.code, ours.out, ours.err) == (files.code, files.out, files.err)


def test_a_dozen_file_descriptors_are_enough(run: Callable[..., Result], server: Server) -> None:
    check_waterfall(run(server.url(), prefix=("sh", "-c", 'ulimit -n 12 && exec "$@"', "sh")))


def test_the_current_folder_may_be_gone(run: Callable[..., Result], server: Server, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    prefix = ("sh", "-c", f'mkdir "{gone}" && cd "{gone}" && rmdir "{gone}" && exec "$@"', "sh")
    check_waterfall(run(server.url(), prefix=prefix))


def test_many_can_start_at_once(archive: Path, base_environment: dict[str, str], server: Server) -> None:
    command = [sys.executable, str(archive), "--metrics-only", server.url()]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=base_environment)
        for _ in range(4)
    ]
    try:
        outputs = [process.communicate(timeout=PATIENCE)[0].decode() for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert [parse_metrics(output.rstrip("\n"))["status"] for output in outputs] == ["200"] * 4


WATCHED = """
import runpy, sys
def watch(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        wrong = set("wax+") & set(mode or "") or flags & 3
    else:
        wrong = event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate")
    if wrong:
        print("written:", event, arguments, file=sys.stderr)
sys.argv = sys.argv[1:]
sys.addaudithook(watch)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_nothing_is_opened_for_writing(
    run: Callable[..., Result],
    archive: Path,
    server: Server,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    watcher = tmp_path / "watch.py"
    watcher.write_text(WATCHED)
    for mode in MODES:
        if mode != ("--json", "-"):
            MODES[mode](run(archive, *mode, server.url(), file=watcher))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    proof = run(archive, "--json", elsewhere / "x.json", server.url(), file=watcher)
    assert "written:" in proof.err, "the watcher sees nothing"


def python_for_everybody() -> str:
    """Find a Python that runs the program and that a user without a name may run, or skip."""
    for python in (sys.executable, "/usr/bin/python3"):
        command = [python, "-I", "-c", "import sys, http.client, ssl; sys.exit(sys.version_info < (3, 9))"]
        with contextlib.suppress(OSError):
            if subprocess.run(command, check=False, user=54321, cwd="/", timeout=PATIENCE).returncode == 0:
                return python
    return pytest.skip("no Python here can be run by every user")


@pytest.fixture
def open_to_all(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the archive where every user can read it."""
    folder = Path("/tmp") / f"httphases-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        yield Path(shutil.copy(archive, folder))
    finally:
        shutil.rmtree(folder)


@pytest.mark.needs("root")
def test_a_user_without_name_or_home_can_run_it(open_to_all: Path, server: Server) -> None:
    command = [python_for_everybody(), open_to_all, server.url()]
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/root"}
    check_waterfall(finish(command, env=env, user=54321, group=54321, extra_groups=[], cwd="/"))


READ_ONLY = """
mount -t tmpfs -o size=4k tmpfs "$1" && mount -t tmpfs -o noexec tmpfs "$2" || exit 97
cp "$3" "$2/httphases.pyz"
cat /dev/zero >"$1/full" 2>/dev/null
cut -d " " -f 2 /proc/self/mounts | while read -r point; do
    mount -o remount,bind,ro "$point"
done 2>/dev/null
for folder in / /tmp "$2"; do ! touch "$folder/probe" 2>/dev/null || exit 98; done
export HOME="$1"
archive=$2/httphases.pyz
! "$archive" --version 2>/dev/null || exit 99
python=$4
shift 4
exec "$python" "$archive" "$@"
"""


@pytest.mark.needs("linux", "root")
def test_a_full_home_a_read_only_root_and_noexec_do_not_matter(
    archive: Path, base_environment: dict[str, str], server: Server, tmp_path: Path
) -> None:
    home, noexec = tmp_path / "home", tmp_path / "noexec"
    home.mkdir()
    noexec.mkdir()
    namespace = ["unshare", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("needs the right to make a mount namespace")
    script = ["sh", "-c", READ_ONLY, "sh", home, noexec, archive, sys.executable]
    check_waterfall(finish([*namespace, *script, server.url()], env=base_environment))


SLOW = b"import time\nprint('importing', flush=True)\ntime.sleep(30)\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_a_signal_during_the_start_is_silent(archive: Path, tmp_path: Path, number: int) -> None:
    slow = rewrite(
        archive,
        tmp_path / "slow.pyz",
        lambda name, data: {"__main__.py": data, "site-packages/httphases.py": SLOW}.get(name),
    )
    process = subprocess.Popen([sys.executable, str(slow)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out, err) == (128 + number, b"", b"")


@pytest.mark.needs("linux")
def test_a_storm_of_signals_ends_the_archive_like_the_first_of_them(
    archive: Path, base_environment: dict[str, str], server: Server, tmp_path: Path
) -> None:
    chance = random.Random(1)
    path = tmp_path / "out.json"
    for _ in range(15):
        command = [sys.executable, str(archive), "--json", str(path), server.url()]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=base_environment
        )
        try:
            numbers = storm(process, chance)
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
            process.communicate()
        assert (process.returncode - 128 in numbers or process.returncode == 0) and err == b""
        assert set(os.listdir(tmp_path)) <= {"out.json"}


# --- the build itself ---------------------------------------------------------------------------------------


def another_python() -> str:
    """Find a Python of another version than this one, with pip; this one where there is no other."""
    for version in VERSIONS:
        python = find_python(version)
        if python and version != f"{sys.version_info[0]}.{sys.version_info[1]}":
            command = [python, "-m", "pip", "--version"]
            if subprocess.run(command, check=False, capture_output=True).returncode == 0:
                return python
    return sys.executable


def list_made(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the bytes of all that a build left."""
    return {path.name: (path.stat().st_mode & 0o777, path.read_bytes()) for path in folder.iterdir()}


def test_two_builds_are_equal_to_the_byte(wheels: Path, tmp_path: Path) -> None:
    first, second = copy_project(tmp_path / "one"), copy_project(tmp_path / "another folder ü")
    os.utime(second / "tool.py", (10**9, 10**9))
    (second / "tool.py").chmod(0o600)
    settings = {"PYTHONS": sys.executable, **offline(wheels)}
    said = run_build(first, **settings)
    other = {
        "PYTHON": another_python(),
        "PYTHONHASHSEED": "7",
        "SOURCE_DATE_EPOCH": "1700000000",
        "TZ": "Asia/Tokyo",
        "HOME": str(tmp_path),
        "USER": "somebody",
        "LOGNAME": "somebody",
    }
    also_said = run_build(second, cwd=tmp_path, umask=0o077, **settings, **other)
    assert (said.returncode, also_said.returncode) == (0, 0), said.stderr + also_said.stderr
    made, also_made = (list_made(folder / "dist") for folder in (first, second))
    assert made == also_made
    assert {name: mode for name, (mode, _) in made.items()} == {
        "SHA256SUMS": 0o644,
        "httphases.cdx.json": 0o644,
        "httphases.pyz": 0o755,
    }
    made = first / "dist" / "httphases.pyz"
    digest = subprocess.run(["sha256sum", made], check=True, capture_output=True, text=True).stdout.split()[0]
    assert digest in said.stdout and f"{made.stat().st_size} bytes" in said.stdout


PLANTED = "import os; open(os.path.join({folder!r}, 'ran'), 'a').write({name!r} + chr(10))"
"""A module that a neighbour has left: it says that it ran."""


def plant(folder: Path, *names: str) -> None:
    """Leave modules in a folder; what is run of them is written into its file `ran`."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLANTED.format(folder=str(folder), name=name))


def test_what_others_have_left_does_not_steer_the_build(wheels: Path, archive: Path, tmp_path: Path) -> None:
    """Not in the current folder, nor in the user's site-packages, nor in what PYTHONPATH names."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    folder, home, foreign = (tmp_path / name for name in ("folder", "home", "foreign"))
    modules = ["pip/__init__.py", "pip/__main__.py", "shiv/__init__.py", "shiv/__main__.py"]
    modules += ["zipfile.py", "sitecustomize.py", "usercustomize.py", "rich/__init__.py", "socket.py"]
    plant(folder, *modules)
    plant(foreign, *modules)
    plant(home, *(f".local/lib/{version}/site-packages/{name}" for name in modules))
    pth = home / ".local" / "lib" / version / "site-packages" / "planted.pth"
    pth.write_text(PLANTED.format(folder=str(home), name="planted.pth"))
    project = copy_project(tmp_path / "project")
    settings = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": os.path.relpath(wheels, folder),
        "PYTHONS": sys.executable,
        "HOME": str(home),
        "PYTHONPATH": f"{foreign}:",
        "PYTHONUSERBASE": str(home / ".local"),
        "PYTHONSTARTUP": str(foreign / "zipfile.py"),
    }
    done = run_build(project, cwd=folder, **settings)
    assert done.returncode == 0, done.stderr
    assert [path for path in (folder, home, foreign) if (path / "ran").exists()] == []
    with zipfile.ZipFile(project / "dist" / "httphases.pyz") as made, zipfile.ZipFile(archive) as expected:
        for name in made.namelist():
            assert made.read(name) == expected.read(name), name


@pytest.mark.needs("root")
@pytest.mark.parametrize("where", ["HOME", "PIP_CONFIG_FILE"])
def test_settings_of_pip_that_another_wrote_are_left_out(where: str, wheels: Path, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/ran\nexec {sys.executable} "$@"\n')
    planted.chmod(0o755)
    settings = tmp_path / "home" / ".config" / "pip" / "pip.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[global]\npython = {planted}\n")
    os.chown(settings, 1234, 1234)
    named = tmp_path / "home" if where == "HOME" else settings
    done = run_build(PROJECT, "--download", str(tmp_path / "got"), **{where: str(named), **offline(wheels)})
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()
    assert str(settings) in done.stderr
    os.chown(settings, 0, 0)
    done = run_build(PROJECT, "--download", str(tmp_path / "again"), **{where: str(named), **offline(wheels)})
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "ran").exists()  # one's own say what they say


@pytest.mark.parametrize("name", ["h2/config.py", "rich/evil.py", "httphases.py"])
def test_an_archive_that_is_not_what_the_wheels_hold_is_not_made(
    name: str, wheels: Path, tmp_path: Path
) -> None:
    """Somebody has altered a package while it was put together: here, one of the Pythons that are asked."""
    project, surroundings = build_surroundings(tmp_path)
    other = tmp_path / "python3"
    other.write_text(
        f'#!/bin/sh\n{sys.executable} "$@" || exit\n'
        f'case "$*" in *used.py*) echo "EVIL = 1" >> site/{name}; echo {name} ;; esac\n'
    )
    other.chmod(0o755)
    before = listing(tmp_path)
    done = run_build(project, PYTHONS=str(other), **surroundings, **offline(wheels))
    assert done.returncode == 1
    assert name in done.stderr.splitlines()[0]
    assert listing(tmp_path) == before


def test_what_is_named_from_the_current_folder_on_is_found(wheels: Path, tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    settings = {"PYTHON": "bin/python", "PYTHONS": "bin/python", "TMPDIR": "tmp", "PIP_NO_INDEX": "1"}
    for links, target in ((wheels, "more"), ("more", "most")):
        done = run_build(project, "--download", target, cwd=tmp_path, **settings, PIP_FIND_LINKS=str(links))
        assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path / "most")) == sorted(os.listdir(wheels))
    command = ["sh", "build_zipapp.sh"]
    env = {
        **os.environ,
        **settings,
        "PYTHON": "../bin/python",
        "PYTHONS": "../bin/python",
        "TMPDIR": "../tmp",
    }
    done = subprocess.run(
        command, check=False, cwd=project, env={**env, "PIP_FIND_LINKS": "../most"}, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert len(os.listdir(project / "dist")) == 3 and os.listdir(tmp_path / "tmp") == []


def build_surroundings(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Make a project with an archive of an earlier build, and a TMPDIR of its own."""
    project = copy_project(tmp_path / "project")
    (project / "dist").mkdir()
    (project / "dist" / "httphases.pyz").write_bytes(b"an earlier build")
    (tmp_path / "tmp").mkdir()
    return project, {"TMPDIR": str(tmp_path / "tmp")}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/nonexistent"}, "wheels"),
        ({"PYTHON": "false"}, "'false' is no Python 3.9"),
        ({"PYTHON": "/nonexistent/python"}, "'/nonexistent/python' is no Python 3.9"),
    ],
    ids=["no wheels", "not a Python", "no such Python"],
)
def test_a_build_that_fails_says_why_and_leaves_nothing_behind(
    settings: dict[str, str], reason: str, tmp_path: Path
) -> None:
    project, surroundings = build_surroundings(tmp_path)
    before = listing(tmp_path)
    done = run_build(project, **surroundings, **settings)
    assert done.returncode == 1
    assert reason in done.stderr
    assert listing(tmp_path) == before
    assert (project / "dist" / "httphases.pyz").read_bytes() == b"an earlier build"


def test_a_program_that_does_not_start_is_not_packed(wheels: Path, tmp_path: Path) -> None:
    project, surroundings = build_surroundings(tmp_path)
    (project / "tool.py").write_text("def cli():\n    raise SystemExit(1)\n")
    before = listing(tmp_path)
    done = run_build(project, PYTHONS=sys.executable, **surroundings, **offline(wheels))
    assert done.returncode == 1
    assert listing(tmp_path) == before


def test_a_build_that_is_interrupted_leaves_nothing_behind(wheels: Path, tmp_path: Path) -> None:
    project, surroundings = build_surroundings(tmp_path)
    before = listing(tmp_path)
    process = subprocess.Popen(
        ["sh", str(project / "build_zipapp.sh")],
        env={**os.environ, "PYTHON": sys.executable, **surroundings, **offline(wheels)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while process.poll() is None and not list((tmp_path / "tmp").glob("*/site")):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert listing(tmp_path) == before


def test_a_wrong_command_line_is_refused(tmp_path: Path) -> None:
    done = run_build(copy_project(tmp_path / "project"), "--downlaod", "folder")
    assert done.returncode == 64
    assert "usage: build_zipapp.sh" in done.stderr


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shellcheck_has_no_word_to_say() -> None:
    done = subprocess.run(
        ["shellcheck", "--shell=sh", str(PROJECT / "build_zipapp.sh")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout == ""
