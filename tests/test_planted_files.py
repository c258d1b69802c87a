"""Where others may write, they may have left a link or a file at the name that is to be written. Root is the
victim here, STRANGER the other user; without root the tests skip.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from inside import tool

STRANGER = 65534
LINK = "symbolic link"

pytestmark = pytest.mark.needs("linux", "root")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder of root's where everybody may write, as /tmp is."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder where nobody but root may write, with a file in it."""
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    (folder / "precious").write_text("precious")
    return folder


def untouched(private: Path) -> bool:
    return os.listdir(private) == ["precious"] and (private / "precious").read_text() == "precious"


def given_away(path: Path) -> Path:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    return path


def planted_link(path: Path, target: Any) -> Path:
    path.symlink_to(target)
    return given_away(path)


def write(path: Any, data: bytes = b"new") -> None:
    tool.write_file(str(path), [data])


def check_refused(path: Any, words: str) -> None:
    with pytest.raises(OSError, match=words):
        write(path)


# --- modes ----------------------------------------------------------------------------------------


def test_a_file_of_another_user_gives_a_new_one_no_mode(call_tool, server, shared):
    path = shared / "out"
    for mode in (0o7777, 0o600):
        path.unlink(missing_ok=True)
        path.touch()
        given_away(path).chmod(mode)
        with open(path, encoding="utf-8") as theirs:
            assert call_tool("--metrics-only", "--har", path, server.url()).code == 0
            assert theirs.read() == ""
        made = path.stat()
        assert (stat.S_IMODE(made.st_mode), made.st_uid) == (0o644, os.geteuid())


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "owner"), [("precious", 0), ("created", STRANGER)])
def test_a_file_that_is_a_link_is_not_written_whoever_made_it(
    call_tool, server, shared, private, target, owner
):
    (shared / "out").symlink_to(private / target)
    os.chown(shared / "out", owner, owner, follow_symlinks=False)
    result = call_tool("--metrics-only", "--prometheus", shared / "out", server.url())
    assert result.code == 73 and "status=200" in result.out
    assert f"out': it is a {LINK}: name the file itself\n" in result.err
    assert untouched(private) and os.listdir(shared) == ["out"]


def test_a_stream_by_any_other_path_is_a_link():
    """So the file behind it is never renamed over."""
    for path in ("//dev/stdout", "/proc/thread-self/fd/1", "/proc/self/exe"):
        check_refused(path, LINK)


# --- what is swapped while it writes --------------------------------------------------------------


def test_a_pipe_that_becomes_a_link_is_not_written(shared, private, monkeypatch):
    """In the moment between being looked at and being opened."""
    opened = os.open
    os.mkfifo(shared / "out")

    def swap_and_open(path, *how, **where):
        if path == str(shared / "out"):
            (shared / "out").unlink()
            planted_link(shared / "out", private / "precious")
        return opened(path, *how, **where)

    monkeypatch.setattr(os, "open", swap_and_open)
    check_refused(shared / "out", "symbolic links")
    assert untouched(private)
