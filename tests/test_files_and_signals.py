"""Files that are written whole or not at all, signals, and streams that are closed or full."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import time

import pytest

from checks import check_document
from conftest import PATIENCE, mounted, without_privilege
from inside import tool
from screens import TERMINAL, Screen
from servers import Peer, Reply, http_server, scripted

OLD = '{"old": true}\n'


@pytest.fixture
def export(tmp_path):
    """A JSON file of an earlier run in a folder of its own."""
    folder = tmp_path / "exports"
    folder.mkdir()
    path = folder / "out.json"
    path.write_text(OLD)
    return path


def test_a_file_has_the_mode_of_the_umask_whatever_the_old_one_had(start_tool, server, export):
    for umask, mode in ((0o022, 0o644), (0o077, 0o600)):
        for path, old in ((export, 0o640), (export.with_name("new"), None)):
            if old:
                path.chmod(old)
            words = ("-s", "--prometheus", path, server.url())
            process = start_tool(*words, preexec_fn=lambda mask=umask: os.umask(mask))
            process.communicate(timeout=PATIENCE)
            assert (process.returncode, stat.S_IMODE(path.stat().st_mode)) == (0, mode)
            assert "httphases_success" in path.read_text()
        assert set(os.listdir(export.parent)) == {"out.json", "new"}
        path.unlink()


UNWRITABLE = {
    "missing/x": "No such file or directory",
    "folder": "Is a directory",
    "loop": "it is a symbolic link: name the file itself",
    "dangling": "it is a symbolic link: name the file itself",
    "loop/x": "symbolic links",
}


@pytest.mark.needs("linux")
@pytest.mark.parametrize("name", UNWRITABLE)
def test_a_file_that_cannot_be_written_hides_neither_the_report_nor_the_other_file(
    call_tool, server, tmp_path, name
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    path = os.path.join(tmp_path, name)
    result = call_tool("--compact", "--json", path, "--har", tmp_path / "good", server.url())
    assert result.code == 73
    assert result.out.startswith("Step 1: 200 GET ")
    assert result.err.startswith(f"httphases: error: cannot write --json '{path}': ")
    assert UNWRITABLE[name] in result.err
    assert len(result.err.splitlines()) == 1
    assert json.loads((tmp_path / "good").read_text(encoding="utf-8"))
    assert set(os.listdir(tmp_path)) == {"folder", "loop", "dangling", "good"}


def test_a_fifo_waits_for_its_reader_and_gets_the_whole_document_or_ends_at_a_signal(
    start_tool, server, tmp_path
):
    """The document is larger than a pipe."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ["--compact", *["-H", "X: " + "a" * 45_000] * 2, "--json", fifo, server.url()]
    process = start_tool(*words)
    time.sleep(0.5)
    assert process.poll() is None
    with open(fifo, "rb") as source:
        time.sleep(0.2)
        check_document(json.load(source))
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    for lines, series in ((1, ()), (3, ("--count", "2", "--interval", "0"))):
        process = start_tool(*series, *words)
        assert all(process.stdout.readline() for _ in range(lines))
        time.sleep(0.2)
        process.terminate()
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 143
    assert os.listdir(tmp_path) == ["fifo"] and stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.needs("linux")
def test_a_disk_that_fills_up_leaves_nothing_half_written(run_tool, server, tmp_path):
    """The disk has a page for the folder and one for the old file; the new one does not fit in beside it."""
    script = (
        'mount -t tmpfs -o size=8k none "$0" && cd "$0" && echo old >out && head -c 4096 /dev/zero >fill;'
        ' "$@"; code=$?; ls -A; cat out; exit $code'
    )
    mounted(tmp_path, "-t tmpfs none")
    prefix = ["unshare", "--mount", "sh", "-c", script, str(tmp_path)]
    other = tmp_path.parent / f"{tmp_path.name}-other"
    result = run_tool("--compact", "--har", "out", "--json", other, server.url(), within=prefix)
    lines = result.out.splitlines()
    assert result.code == 73
    assert lines[0].startswith("Step 1: 200 GET ")
    assert lines[1:] == ["fill", "out", "old"]
    assert "space left on device\n" in result.err
    assert json.loads(other.read_text(encoding="utf-8"))


@pytest.mark.needs("linux")
def test_where_one_may_not_write_nothing_is(run_tool, server, export):
    """Not in such a folder, nor in place of such a file, which its folder would allow."""
    prefix, folder = without_privilege(), export.parent
    export.chmod(0o444)
    for mode, name in ((0o777, "out.json"), (0o555, "new.json")):
        folder.chmod(mode)
        result = run_tool("--compact", "--prometheus", folder / name, server.url(), within=prefix)
        assert result.code == 73
        assert result.err.endswith(f"{name}': Permission denied\n")
    assert os.listdir(folder) == ["out.json"] and export.read_text() == OLD
    folder.chmod(0o755)
    within = mounted(folder, f'-o bind,ro "{folder}"')
    for name in ("out.json", "new.json"):
        path = folder / name
        result = run_tool("--compact", "--json", path, server.url(), within=within)
        said = f"httphases: error: cannot write --json '{path}': Read-only file system\n"
        assert (result.code, result.err) == (73, said)


def test_a_stream_by_any_other_path_is_a_link():
    """So the file behind it is never renamed over."""
    for path in ("//dev/stdout", "/proc/thread-self/fd/1", "/proc/self/exe"):
        with pytest.raises(OSError, match="symbolic link"):
            tool.write_file(path, [b"new"])


BIG = [(f"X-{number}", "x" * 1000) for number in range(990)]
"""Headers of nearly a megabyte: eleven steps of them take a moment to write."""


def big_chain() -> dict[str, Reply]:
    """Make the routes of a chain of eleven steps whose export is large."""
    steps = {f"/{number}": Reply(302, headers=[*BIG, ("Location", f"/{number + 1}")]) for number in range(10)}
    return {**steps, "/10": Reply(headers=BIG)}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_a_file_is_old_or_new_when_the_writer_is_killed(start_tool, export, number):
    """The signal comes as soon as a temporary file is seen, or with the end of the process."""
    folder = export.parent
    with http_server(big_chain()) as server:
        process = start_tool("--metrics-only", "-L", "--json", export, server.url("/0"))
        while len(os.listdir(folder)) == 1 and process.poll() is None:
            pass
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    text = export.read_text(encoding="utf-8")
    assert text == OLD or check_document(json.loads(text))
    assert os.listdir(folder) == ["out.json"] or number == signal.SIGKILL


def test_a_second_signal_to_a_single_run_changes_nothing(start_tool, export):
    """Of two that are pending at once the kernel delivers the lower number first, whichever came first."""
    with Screen(80) as screen, scripted(Peer.read_to_end) as server:
        process = start_tool("--json", export, server.url(), stderr=screen.slave, env=TERMINAL)
        assert screen.shows(" of 20 s"), screen.text
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, b"")
    said = rf"httphases: stopped in wait after [\d.]+ m?s \(127\.0\.0\.1 port {server.port}\)\n"
    assert re.fullmatch(said, screen.text.rpartition("\r\x1b[K")[2])
    assert export.read_text() == OLD


def test_a_signal_that_is_ignored_from_the_start_changes_nothing_at_any_moment(start_tool, server):
    """As of a background job of a script."""
    process = start_tool(server.url(), preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0


def unread(start_tool, *arguments, stream="stdout"):
    """Run the program with a stream into a pipe that nobody reads; return its code and what it wrote."""
    reading, writing = os.pipe()
    os.close(reading)
    process = start_tool(*arguments, **{stream: writing})
    os.close(writing)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


@pytest.mark.parametrize("mode", [[], ["--json", "-"]])
def test_a_reader_that_went_away_is_no_failure_of_ours(start_tool, mode):
    """Nor does a report aside that nobody reads take the document along."""
    with http_server({"/": Reply(404)}) as server:
        code, _, err = unread(start_tool, *mode, "-f", server.url())
        assert (code, b"Broken pipe" in err, mode or err) == (22, False, mode or b"")
        code, out, _ = unread(start_tool, *mode, server.url(), stream="stderr")
        assert code == 0 and (not mode or check_document(json.loads(out)))


@pytest.mark.parametrize("mode", [["-i"], ["-s", "--json", "-"]])
def test_a_slow_reader_of_a_stream_that_does_not_block_gets_all(start_tool, mode):
    with http_server({"/": Reply(headers=BIG[:200])}) as server:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        process = start_tool(*mode, server.url(), stdout=writing)
        os.close(writing)
        time.sleep(1)
        with open(reading, encoding="utf-8") as source:
            text = source.read()
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, b"")
    assert len(text) > 65_536 and all(name in text for name, _ in BIG[:64])
    assert "-s" not in mode or check_document(json.loads(text))


FULL = ["sh", "-c", '"$@" >/dev/full', "sh"]
NO_STREAMS = {  # how they are, as a shell writes it: the code, and how often stderr names the reason
    '"$@" >/dev/full': (73, 1),
    '"$@" 2>/dev/full': (0, 0),
    '"$@" 1</dev/null': (73, 0),
    'ulimit -f 0; "$@" >out': (73, 0),
    '"$@" <&- >&- 2>&-': (73, 0),
}


@pytest.mark.needs("linux")
@pytest.mark.parametrize("script", NO_STREAMS)
def test_a_report_that_cannot_be_written_is_73_and_the_other_document_is_there(
    run_tool, server, tmp_path, script
):
    for mode in (["-i"], ["--metrics-only"], ["--json", "-"], ["--count", "4", "--interval", "0"]):
        path = tmp_path / "out.har"
        words = (*mode, "--har", path, server.url())
        result = run_tool(*words, within=["sh", "-c", script, "sh"], cwd=tmp_path)
        code, often = NO_STREAMS[script]
        if "--json" in mode and "2>/dev/full" in script:  # the report gives way
            code = 73
        assert (result.code, result.err.count("space")) == (code, often)
        assert "ulimit" in script or json.loads(path.read_text("utf-8"))["log"]["entries"]
        path.unlink(missing_ok=True)


@pytest.mark.needs("linux")
@pytest.mark.parametrize("option", ["--version", "--help"])
def test_an_answer_that_cannot_be_written_is_73_too(run_tool, start_tool, option):
    result = run_tool(option, within=FULL)
    assert (result.code, result.err.count("\n")) == (73, 1) and "space" in result.err
    process = start_tool(option, preexec_fn=lambda: os.close(1))
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err.count(b"\n")) == (73, 1)
    assert b"closed" in err
    assert unread(start_tool, option) == (0, None, b"")
