"""Where others may write, they may have left a trap: a link, a file, a pipe. Root is the victim here,
STRANGER the other user; without root the tests skip. What fs.protected_symlinks is set to does not matter.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from test_export_files import run_under, without_privilege

from conftest import TOOL
from inside import tool
from servers import http_server

STRANGER = 65534
OPTIONS = tool.EXPORT_OPTIONS
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
    tool.write_file(str(path), lambda: [data], None)


def check_refused(path: Path, words: str) -> None:
    with pytest.raises(OSError, match=words):
        write(path)


# --- modes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o4777, 0o2777, 0o7777, 0o777, 0o600])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_file_of_another_user_gives_a_new_one_no_mode(run_tool, server, shared, option, mode):
    path = shared / "out"
    path.touch()
    given_away(path).chmod(mode)
    with open(path, encoding="utf-8") as theirs:
        assert run_tool("--metrics-only", option, path, server.url()).code == 0
        assert theirs.read() == ""
    made = path.stat()
    assert (stat.S_IMODE(made.st_mode), made.st_uid) == (0o644, os.geteuid())


@pytest.mark.parametrize(
    ("before", "after"), [(0o6755, 0o644), (0o1666, 0o666), (0o777, 0o666), (0o4600, 0o600)]
)
def test_of_the_mode_of_one_s_own_file_reading_and_writing_stay(private, before, after):
    (private / "precious").chmod(before)
    write(private / "precious")
    assert stat.S_IMODE((private / "precious").stat().st_mode) == after


def test_the_new_file_is_never_more_open_than_the_old_one(private, monkeypatch):
    """Whoever opens it early reads on."""
    (private / "precious").chmod(0o600)
    modes = []
    monkeypatch.setattr(os, "fchmod", lambda new, _: modes.append(stat.S_IMODE(os.fstat(new).st_mode)))
    write(private / "precious")
    assert modes == [0o600]


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [0, STRANGER])
@pytest.mark.parametrize("mode", [0o1777, 0o775, 0o755])
@pytest.mark.parametrize("target", ["precious", "created"])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_link_of_another_user_is_not_followed_whatever_folder_it_is_in(
    run_tool, server, shared, private, option, target, mode, owner
):
    os.chown(shared, owner, owner)
    shared.chmod(mode)
    link = planted_link(shared / "out", private / target)
    result = run_tool("--metrics-only", option, link, server.url())
    assert result.code == 73 and "status=200" in result.out
    assert LINK in result.err and "'out'" in result.err and "another user" in result.err
    assert untouched(private)
    assert os.listdir(shared) == ["out"]


def test_nor_is_one_that_another_link_leads_to(shared, private, tmp_path):
    planted_link(shared / "last", private / "created")
    planted_link(shared / "first", "last")
    (tmp_path / "own").symlink_to(shared / "last")
    for path in (shared / "first", tmp_path / "own"):
        check_refused(path, LINK)
    assert untouched(private)


def test_nor_is_one_of_a_folder_on_the_way(shared, private, tmp_path):
    planted_link(shared / "folder", private)
    (shared / "deep").mkdir()
    (tmp_path / "own").symlink_to("shared/deep/../folder/created")
    for path in (shared / "folder" / "created", tmp_path / "own", shared / "folder" / "." / "precious"):
        check_refused(path, LINK)
    assert untouched(private)


def test_a_link_of_one_s_own_is_followed_wherever_it_is(shared, private):
    given_away(shared)
    (shared / "out").symlink_to(private / "created")
    (shared / "folder").symlink_to(private)
    write(shared / "out")
    write(shared / "folder" / "precious")
    assert [path.read_bytes() for path in private.iterdir()] == [b"new", b"new"]
    assert (shared / "out").is_symlink()


def test_a_link_of_root_s_is_followed():
    with tempfile.TemporaryDirectory() as place:  # pytest's own is for root alone
        folder = Path(place)
        folder.chmod(0o777)
        (folder / "out").symlink_to("file")
        os.seteuid(STRANGER)
        try:
            write(folder / "out")
        finally:
            os.seteuid(0)
        assert (folder / "file").read_bytes() == b"new"
        assert (folder / "file").stat().st_uid == STRANGER


@pytest.mark.parametrize("owner", [0, STRANGER])
def test_a_link_with_a_second_name_is_not_followed(shared, private, tmp_path, owner):
    """A hard link to a link of root's is a link of root's, wherever another user has put it."""
    (tmp_path / "first").symlink_to(private / "created")
    os.chown(shared, owner, owner)
    os.link(tmp_path / "first", shared / "out", follow_symlinks=False)
    check_refused(shared / "out", f"{LINK} 'out' has a second name")
    assert untouched(private)


def test_a_link_of_the_system_s_own_in_its_first_folder_may_have_a_second_name(tmp_path):
    """As /home has on systems that keep several versions of themselves."""
    (tmp_path / "var").mkdir()
    (tmp_path / "home").symlink_to("var")
    os.link(tmp_path / "home", tmp_path / "var" / "home", follow_symlinks=False)
    script = (
        "import os, sys, tool; os.chroot(sys.argv[1]); tool.write_file('/home/out', lambda: [b'new'], None)"
    )
    command = [sys.executable, "-c", script, tmp_path]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(TOOL.parent)})
    assert (tmp_path / "var" / "out").read_bytes() == b"new"


@pytest.mark.parametrize("link", ["exe", "cwd/out", "root/{}/out", "fd/0", "task/{pid}/fd/0", "map"])
def test_of_another_process_s_links_none_is_followed(tmp_path, link):
    """What they say is not where they lead."""
    shutil.copy(shutil.which("sleep"), tmp_path / "sleep")
    with subprocess.Popen([tmp_path / "sleep", "60"], cwd=tmp_path, stdin=subprocess.PIPE) as process:
        try:
            (tmp_path / "map").symlink_to(f"/proc/{process.pid}/exe")
            path = f"/proc/{process.pid}/" + link.format(str(tmp_path), pid=process.pid)
            check_refused(tmp_path / "map" if link == "map" else path, f"{LINK} .* is one of /proc")
        finally:
            process.kill()
    assert sorted(os.listdir(tmp_path)) == ["map", "sleep"]
    assert (tmp_path / "sleep").read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize("link", ["cwd", "root"])
def test_of_one_s_own_links_in_proc_only_descriptors_are_followed(tmp_path, monkeypatch, link):
    monkeypatch.chdir(tmp_path)
    check_refused(f"/proc/self/{link}/{'.' if link == 'cwd' else tmp_path}/out", "is one of /proc")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("way", ["/dev/fd/{}", "/proc/self/fd/{}", "/proc/thread-self/fd/{}"])
def test_a_link_to_an_open_file_writes_to_it_where_it_stands(shared, tmp_path, way):
    """As `--json /dev/fd/3` does: the caller goes on reading there."""
    with open(tmp_path / "log", "wb+", buffering=0) as log:
        log.write(b"before ")
        (shared / "out").symlink_to(way.format(log.fileno()))
        write(shared / "out")
        log.write(b" after")
    assert (tmp_path / "log").read_bytes() == b"before new after"
    assert (shared / "out").is_symlink()


def test_the_folder_of_a_descriptor_is_entered(tmp_path, private):
    descriptor = os.open(private, os.O_RDONLY)
    try:
        write(f"/proc/self/fd/{descriptor}/created")
    finally:
        os.close(descriptor)
    assert (private / "created").read_bytes() == b"new"


def test_no_more_links_are_followed_than_the_system_would(tmp_path):
    """A circle ends, too."""
    (tmp_path / "0").touch()
    for number in range(41):
        (tmp_path / str(number + 1)).symlink_to(str(number))
    write(tmp_path / "40")
    check_refused(tmp_path / "41", "symbolic links")


# --- what is swapped while it writes --------------------------------------------------------------


def test_a_folder_that_is_swapped_while_it_writes_changes_nothing(shared, private):
    folder = shared / "folder"
    folder.mkdir()

    def make():
        folder.rename(shared / "moved")
        planted_link(folder, private)
        yield b"new"

    tool.write_file(str(folder / "created"), make, None)
    assert untouched(private)
    assert (shared / "moved" / "created").read_bytes() == b"new"
    assert os.listdir(shared / "moved") == ["created"]


def test_a_file_that_becomes_a_link_is_not_opened(shared, private):
    os.mkfifo(shared / "out")
    with tool.Place(str(shared / "out")) as place:
        (shared / "out").unlink()
        planted_link(shared / "out", private / "precious")
        with pytest.raises(OSError, match="symbolic links"):
            place.open(os.O_WRONLY)


def test_a_folder_that_becomes_a_link_is_not_entered(shared, private, monkeypatch):
    """In the moment between being looked at and being entered."""
    folder, look = shared / "folder", os.stat
    folder.mkdir()

    def look_and_swap(path, **how):
        found = look(path, **how)
        if path == "folder":
            folder.rmdir()
            planted_link(folder, private)
        return found

    monkeypatch.setattr(os, "stat", look_and_swap)
    with pytest.raises(OSError, match="Not a directory"):
        write(folder / "created")
    assert folder.is_symlink() and untouched(private)


SWAPPER = f"""
import os, shutil, sys
os.chdir(sys.argv[1])
os.setgroups([])
os.setgid({STRANGER})
os.setuid({STRANGER})
ways = {{
    "file": lambda: open("out", "w").close(),
    "pipe": lambda: os.mkfifo("out"),
    "folder": lambda: os.mkdir("out"),
}}
while True:
    for make in (lambda: os.symlink(sys.argv[2], "out"), ways[sys.argv[3]]):
        try:
            make()
        except OSError:
            pass
        try:
            os.unlink("out")
        except OSError:
            shutil.rmtree("out", True)
"""


@pytest.mark.parametrize("other", ["file", "pipe", "folder"])
@pytest.mark.parametrize("name", ["out", "out/created"])
def test_no_swapping_gets_through(shared, private, other, name):
    """A program of the stranger's has a link and something else under the name in turn, as fast as it can."""
    shared.chmod(0o777)
    target = private if name == "out/created" else private / "precious"
    with subprocess.Popen([sys.executable, "-c", SWAPPER, shared, target, other]) as process:
        try:
            end = time.monotonic() + 1
            while time.monotonic() < end:
                with contextlib.suppress(OSError):
                    write(shared / name, b"")
            assert process.poll() is None
        finally:
            process.kill()
    assert untouched(private)


# --- what is written in place ---------------------------------------------------------------------


def as_anybody(arguments: list[Any], env: dict[str, str]) -> Any:
    """Run the program as root that may do no more than others."""
    return run_under(without_privilege(), arguments, env)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_file_of_another_user_is_not_written_in_a_sticky_folder(base_environment, server, shared, option):
    path = shared / "out"
    path.write_text("old")
    given_away(path).chmod(0o666)
    given_away(shared)
    done = as_anybody(["--metrics-only", option, path, server.url()], base_environment)
    assert done.returncode == 73 and b"another user" in done.stderr
    assert path.read_text() == "old" and os.listdir(shared) == ["out"]


def test_a_file_of_another_user_is_written_where_it_cannot_be_replaced(base_environment, server, shared):
    path = shared / "out"
    path.write_text("old" * 10_000)
    given_away(path).chmod(0o666)
    given_away(shared).chmod(0o755)
    done = as_anybody(["--metrics-only", "--json", path, server.url()], base_environment)
    assert done.returncode == 0 and path.read_text().endswith("}\n")


def test_a_second_name_of_one_s_own_file_is_not_written(base_environment, server, shared, private):
    """It takes a folder where others may write and the victim may not."""
    os.link(private / "precious", shared / "out")
    given_away(shared).chmod(0o775)
    done = as_anybody(["--metrics-only", "--json", shared / "out", server.url()], base_environment)
    assert done.returncode == 73 and b"second name" in done.stderr
    assert untouched(private)


@pytest.mark.parametrize("then", ["stays", "goes", "comes back"])
def test_a_second_name_is_not_written_in_another_user_s_folder(shared, private, monkeypatch, then):
    """Nor when its maker removes it in the moment after it was opened: then the file has one name again."""
    given_away(shared).chmod(0o755)
    os.link(private / "precious", shared / "out")
    opened = os.open

    def open_and_remove(path, *how, **where):
        descriptor = opened(path, *how, **where)
        if path == "out" and then != "stays":
            (shared / "out").unlink()
        return descriptor

    def put_back(_):
        if then == "comes back":
            (private / "precious").rename(shared / "out")

    with tool.Place(str(shared / "out")) as place:
        monkeypatch.setattr(os, "open", open_and_remove)
        monkeypatch.setattr(time, "sleep", put_back)
        with pytest.raises(OSError, match="No such file" if then == "goes" else "second name"):
            place.open(os.O_WRONLY)


@pytest.mark.parametrize(("mode", "written"), [(0o1777, False), (0o777, True)])
def test_a_pipe_of_another_user_is_not_written_in_a_sticky_folder(run_tool, server, shared, mode, written):
    shared.chmod(mode)
    os.mkfifo(shared / "out")
    given_away(shared / "out").chmod(0o666)
    reader = os.open(shared / "out", os.O_RDONLY | os.O_NONBLOCK)
    try:
        result = run_tool("--metrics-only", "--json", shared / "out", server.url())
        assert bool(os.read(reader, 100)) == written
    finally:
        os.close(reader)
    assert result.code == (0 if written else 73)
    assert ("another user" in result.err) != written


def test_a_pipe_of_one_s_own_is_written_in_a_sticky_folder(run_tool, server, shared):
    os.mkfifo(shared / "out")
    reader = os.open(shared / "out", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run_tool("--metrics-only", "--json", shared / "out", server.url()).code == 0
        assert os.read(reader, 1) == b"{"
    finally:
        os.close(reader)


# --- ways to a file that stay open ----------------------------------------------------------------


def test_a_folder_that_may_be_entered_but_not_listed_will_do(base_environment, server, private):
    private.chmod(0o300)
    command = [*without_privilege(), "sh", "-c", 'cd "$0" && exec "$@"', private]
    words = ["--metrics-only", "--json", "out", "--har", private / "har", server.url()]
    done = run_under(command, words, base_environment)
    assert done.returncode == 0, done.stderr


def test_a_folder_that_one_may_not_be_in_is_no_obstacle_to_another(
    base_environment, server, private, tmp_path
):
    command = [*without_privilege(), "sh", "-c", 'cd "$0" && chmod 0 . && exec "$@"', private]
    done = run_under(command, ["--metrics-only", "--json", tmp_path / "out", server.url()], base_environment)
    assert done.returncode == 0, done.stderr


# --- files that are read --------------------------------------------------------------------------

READ = {
    "-H": "X-Private: hunter2",
    "-d": "hunter2",
    "--slo-file": "total=60000",
    "--baseline": "{}",
    "--cert": "hunter2",
    "--key": "hunter2",
    "--key-password-file": "hunter2",
    "--cacert": "hunter2",
}


@pytest.fixture
def read(run_tool, tls, authority):
    """Return a function that names a file by an option, of a request to a server that counts them."""

    def run(option: str, path: Path) -> Any:
        words = [option, f"@{path}" if option in ("-H", "-d") else path]
        if option.startswith("--key"):
            words += ["--cert", authority.certificate("client")]
        with http_server(tls=tls) as server:
            result = run_tool("--metrics-only", "-m", "10", *words, server.url())
            return result, server.accepted

    return run


@pytest.mark.parametrize("owner", [0, STRANGER])
@pytest.mark.parametrize("option", READ)
def test_a_link_that_another_user_may_have_planted_is_not_read(read, shared, private, option, owner):
    os.chown(shared, owner, owner)
    shared.chmod(0o1777 if owner == 0 else 0o755)
    (private / "precious").write_text(READ[option])
    result, accepted = read(option, planted_link(shared / "in", private / "precious"))
    assert result.code == 64 and accepted == 0
    words = " ".join(result.err.replace("│", " ").split())
    assert f"{option}: cannot read" in words and "another user" in words and f"{LINK} 'in'" in words
    assert "hunter2" not in result.out + result.err


def contents(path: Any) -> bytes:
    tool.read_local.cache_clear()
    data: bytes = tool.read_local("-d", str(path), 100, 2.0)
    return data


def test_links_are_read_where_nobody_else_may_have_put_them(shared, private, tmp_path):
    (tmp_path / "theirs").symlink_to(private / "precious")
    os.link(given_away(tmp_path / "theirs"), tmp_path / "second", follow_symlinks=False)
    (shared / "own").symlink_to(private / "precious")
    for path in (tmp_path / "theirs", tmp_path / "second", shared / "own"):
        assert contents(path) == b"precious"


def test_no_name_is_no_file():
    for path in ("", "/nowhere/x"):
        with pytest.raises(tool.UsageError, match="No such file"):
            contents(path)


def test_nor_is_a_link_with_a_second_name_read_or_one_of_proc(shared, private, tmp_path):
    (tmp_path / "first").symlink_to(private / "precious")
    os.link(tmp_path / "first", shared / "second", follow_symlinks=False)
    for path in (shared / "second", f"/proc/self/root{private}/precious", "/proc/self/exe"):
        with pytest.raises(tool.UsageError, match=LINK):
            contents(path)


def test_an_open_file_is_read_by_its_descriptor(private):
    with open(private / "precious", encoding="utf-8") as file:
        for way in ("/dev/fd", "/proc/self/fd", "/proc/thread-self/fd", f"/proc/{os.getpid()}/fd"):
            assert contents(f"{way}/{file.fileno()}") == b"precious"


def test_what_the_environment_and_the_system_name_may_be_any_link(run_tool, tls, authority, shared):
    link = planted_link(shared / "ca.pem", authority.file)
    with http_server(tls=tls) as server:
        assert run_tool("--metrics-only", server.url(), env={"SSL_CERT_FILE": str(link)}).code == 0


# --- the keys of a session ------------------------------------------------------------------------


@pytest.fixture
def logged(run_tool, tls, authority):
    """Return a function that has keys logged to a path, and returns what was said about it."""

    def run(path: Path) -> str:
        with http_server(tls=tls) as server:
            env = {"SSLKEYLOGFILE": str(path)}
            result = run_tool("--metrics-only", "--cacert", authority.file, server.url(), env=env)
        assert result.code == 0 and "status=200" in result.out
        return result.err

    return run


@pytest.mark.parametrize("target", ["precious", "created"])
def test_keys_do_not_follow_a_link_of_another_user(logged, shared, private, target):
    said = logged(planted_link(shared / "keys", private / target))
    assert "warning: SSLKEYLOGFILE" in said and LINK in said
    assert untouched(private)


@pytest.mark.parametrize("mode", [0o1777, 0o755])
@pytest.mark.parametrize("make", [Path.touch, os.mkfifo])
def test_keys_are_not_given_to_another_user(logged, shared, mode, make):
    shared.chmod(mode)
    make(shared / "keys")
    given_away(shared / "keys").chmod(0o666)
    reader = os.open(shared / "keys", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert "warning: SSLKEYLOGFILE" in logged(shared / "keys")
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


def test_keys_go_to_no_second_name_of_a_file(logged, shared, private):
    os.link(private / "precious", shared / "keys")
    assert "second name" in logged(shared / "keys")
    assert untouched(private)


def test_keys_follow_a_link_of_one_s_own(logged, shared, private):
    (shared / "keys").symlink_to(private / "created")
    assert logged(shared / "keys") == logged(shared / "keys") == ""
    assert (private / "created").read_text().count("CLIENT_TRAFFIC_SECRET_0 ") == 2
    assert stat.S_IMODE((private / "created").stat().st_mode) == 0o600


@pytest.mark.parametrize("path", ["/dev/null", "/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"])
def test_keys_go_to_a_device_or_an_open_file(logged, path):
    said = logged(Path(path))
    assert "warning" not in said
    assert ("CLIENT_TRAFFIC_SECRET_0 " in said) == (path != "/dev/null")
