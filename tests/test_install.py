"""What `pip install .` gives: a command, its extras, and no module but one of its own name.

pip needs the build back end (hatchling) beside it, so that nothing is fetched; without it these are skipped.
"""

from __future__ import annotations

import email
import email.message
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from checks import parse_metrics
from conftest import PATIENCE, TOOL

pytestmark = pytest.mark.needs("hatchling", "pip")

BUILD_PATIENCE = 300.0
"""Seconds for pip to build or install one small wheel."""


def command(*words: object, patience: float = PATIENCE) -> str:
    """Run a command that has to succeed, without PYTHONPATH and far from the sources; return its stdout."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    settings = {"timeout": patience, "env": env, "cwd": "/", "text": True}
    done = subprocess.run([str(word) for word in words], check=False, capture_output=True, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip builds from the project's folder."""
    folder = tmp_path_factory.mktemp("wheel")
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--quiet")
    pip = (sys.executable, "-m", "pip", "wheel", *offline)
    command(*pip, "--wheel-dir", folder, TOOL.parent, patience=BUILD_PATIENCE)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment where the wheel is installed and nothing else is."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    command(sys.executable, "-m", "venv", "--without-pip", folder)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install")
    command(*pip, "--no-index", "--no-deps", "--quiet", wheel, patience=BUILD_PATIENCE)
    return folder


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    """The description that the wheel carries."""
    with zipfile.ZipFile(wheel) as contents:
        (name,) = (each for each in contents.namelist() if each.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(contents.read(name))


def test_the_installed_command_has_the_version_of_the_file_and_measures(
    environment, server, metadata
) -> None:
    said = command(environment / "bin" / "httphases", "--version")
    assert said == command(sys.executable, TOOL, "--version") == f"httphases {metadata['Version']}\n"
    assert said == command(environment / "bin" / "python", "-m", "httphases", "--version")
    line = command(environment / "bin" / "httphases", "--metrics-only", "--proxy", "", server.url())
    assert parse_metrics(line.rstrip("\n"))["status"] == "200"


def test_the_only_name_that_others_can_import_is_httphases(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as contents:
        tops = {name.split("/")[0] for name in contents.namelist()}
        assert contents.read("httphases.py") == TOOL.read_bytes()
    assert {top for top in tops if not top.endswith(".dist-info")} == {"httphases.py"}


EXTRAS = {"rich": {"rich"}, "http2": {"h2"}, "socks": {"pysocks"}, "idna": {"idna"}}


def test_each_extra_names_its_packages_and_nothing_is_required(metadata: email.message.Message) -> None:
    wanted, named = re.compile(r"([\w.-]+)[^;]*; extra == ['\"](\w+)['\"]"), {}
    for text in metadata.get_all("Requires-Dist", []):
        package, extra = wanted.fullmatch(text).groups()
        named.setdefault(extra, set()).add(package.lower())
    assert {extra: named[extra] for extra in EXTRAS} == EXTRAS
    assert named["all"] == set().union(*EXTRAS.values())
    assert metadata["Requires-Python"] == ">=3.9"
