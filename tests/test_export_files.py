"""Files of --json and --har where writing goes wrong: the old one is intact or the new one whole, nothing
lies beside it, and the report and the other file are there all the same.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from checks import check_document, check_usage_error
from confined import mounted, run_under, without_privilege
from conftest import PATIENCE
from servers import Reply, http_server

OLD = '{"old": true}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an export of an earlier run, and nothing else."""
    place = tmp_path / "exports"
    place.mkdir()
    (place / "out.json").write_text(OLD)
    return place


# --- places that cannot be written ----------------------------------------------------------------


@pytest.mark.needs("root", "linux")
def test_what_has_to_stay_where_nothing_may_be_removed_is_named(run_tool, server, folder):
    if not shutil.which("chattr") or subprocess.run(["chattr", "+a", folder], capture_output=True).returncode:
        pytest.skip("this file system has no folders to which only can be added")
    try:
        result = run_tool("--compact", "--json", folder / "out.json", server.url())
    finally:
        subprocess.run(["chattr", "-a", folder], check=True)
    [left] = set(os.listdir(folder)) - {"out.json"}
    assert (result.code, (folder / "out.json").read_text()) == (73, OLD)
    assert f"Operation not permitted, and '{left}' cannot be removed either" in result.err


@pytest.mark.needs("linux")
def test_a_disk_that_fills_up_leaves_nothing_half_written(base_environment, server, tmp_path):
    """The disk has a page for the folder and one for the old file; the new one does not fit in beside it."""
    script = (
        'mount -t tmpfs -o size=8k none "$0" && cd "$0" && echo old >out && head -c 4096 /dev/zero >fill;'
        ' "$@"; code=$?; ls -A; cat out; exit $code'
    )
    mounted(tmp_path, "-t tmpfs none")
    prefix = ["unshare", "--mount", "sh", "-c", script, str(tmp_path)]
    other = tmp_path.parent / f"{tmp_path.name}-other"
    done = run_under(prefix, ["--compact", "--har", "out", "--json", other, server.url()], base_environment)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 73
    assert lines[0].startswith("Step 1: 200 GET ")
    assert lines[1:] == ["fill", "out", "old"]
    assert "space left on device; write it by the shell: --har - > FILE\n" in done.stderr.decode()
    assert json.loads(other.read_text(encoding="utf-8"))


@pytest.mark.needs("linux")
def test_where_one_may_not_write_nothing_is(base_environment, server, folder):
    """Not in such a folder, nor in place of such a file, which its folder would allow."""
    prefix = without_privilege()
    (folder / "out.json").chmod(0o444)
    for mode, name in ((0o777, "out.json"), (0o555, "new.json")):
        folder.chmod(mode)
        words = ["--compact", "--prometheus", folder / name, server.url()]
        done = run_under(prefix, words, base_environment)
        assert done.returncode == 73
        assert "Permission denied; write it by the shell: --prometheus - > FILE\n" in done.stderr.decode()
    assert os.listdir(folder) == ["out.json"] and (folder / "out.json").read_text() == OLD
    folder.chmod(0o755)


@pytest.mark.needs("linux", "root")
def test_a_file_that_is_a_mount_of_its_own_stays(base_environment, server, folder):
    (folder / "host").write_text(OLD)
    prefix = mounted(folder, f'--bind "{folder}/host" "{folder}/out.json" && :')
    done = run_under(prefix, ["-s", "--json", folder / "out.json", server.url()], base_environment)
    assert done.returncode == 73
    assert b"busy; write it by the shell: --json - > FILE\n" in done.stderr
    assert (folder / "host").read_text() == OLD and sorted(os.listdir(folder)) == ["host", "out.json"]


# --- groups ---------------------------------------------------------------------------------------

OTHERS = 12345


@pytest.mark.needs("linux", "root")
def test_a_group_that_cannot_be_kept_leaves_no_rights_to_another(base_environment, server, folder):
    path = folder / "out.json"
    for before, after in ((0o664, 0o604), (0o640, 0o600)):
        os.chown(path, -1, OTHERS)
        path.chmod(before)
        done = run_under(without_privilege(), ["-s", "--json", path, server.url()], base_environment)
        made = path.stat()
        assert (done.returncode, stat.S_IMODE(made.st_mode), made.st_gid) == (0, after, 0)


# --- descriptors and devices ----------------------------------------------------------------------


@pytest.mark.needs("linux")
def test_the_file_behind_a_descriptor_is_written_through_it(start_tool, server, folder):
    """The caller goes on reading its own descriptor: another file in its place would be lost on it."""
    for left in (["out.json"], []):
        with open(folder / "out.json", "w+", encoding="utf-8") as file:
            if not left:
                (folder / "out.json").unlink()
            path = f"/dev/fd/{file.fileno()}"
            process = start_tool("--compact", "--json", path, server.url(), pass_fds=[file.fileno()])
            _, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, err
            file.seek(0)
            check_document(json.load(file))
        assert os.listdir(folder) == left


@pytest.mark.needs("linux")
def test_stdout_in_a_file_holds_the_document_alone(start_tool, server, folder):
    with open(folder / "log", "w+", encoding="utf-8") as log:
        process = start_tool("--compact", "--json", "/proc/self/fd/1", server.url(), stdout=log)
        _, err = process.communicate(timeout=PATIENCE)
        log.seek(0)
        check_document(json.load(log))
    assert err.decode().startswith("Step 1: 200")


def test_a_descriptor_that_nobody_opened_is_refused_before_a_connection_has_its_number(run_tool, server):
    check_usage_error(run_tool("--har", "/dev/fd/3", server.url()), "--har '/dev/fd/3': the descriptor")
    assert server.accepted == 0
    result = run_tool("--compact", "--json", "/dev/fd/１", server.url())  # not an ASCII digit
    assert result.code == 73 and "cannot write --json '/dev/fd/１'" in result.err


# --- killed while writing -------------------------------------------------------------------------

BIG = [(f"X-{number}", "x" * 1000) for number in range(990)]
"""Headers of nearly a megabyte: eleven steps of them take a moment to write."""


def big_chain() -> dict[str, Reply]:
    """Make the routes of a chain of eleven steps whose export is large."""
    steps = {f"/{number}": Reply(302, headers=[*BIG, ("Location", f"/{number + 1}")]) for number in range(10)}
    return {**steps, "/10": Reply(headers=BIG)}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_a_file_is_old_or_new_when_the_writer_is_killed(start_tool, folder, number):
    """The signal comes as soon as a temporary file is seen, or with the end of the process."""
    path = folder / "out.json"
    with http_server(big_chain()) as server:
        process = start_tool("--metrics-only", "-L", "--json", path, server.url("/0"))
        while len(os.listdir(folder)) == 1 and process.poll() is None:
            pass
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    text = path.read_text(encoding="utf-8")
    assert text == OLD or check_document(json.loads(text))
    assert os.listdir(folder) == ["out.json"] or number == signal.SIGKILL
