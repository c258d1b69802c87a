"""Files that are written whole or not at all, signals, and streams that are closed or full."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import stat
import threading
import time

import pytest

from checks import check_document
from conftest import PATIENCE, storm
from inside import tool
from screens import TERMINAL, Screen
from servers import Reply, http_server, scripted

OLD = '{"old": true}\n'


@pytest.fixture
def export(tmp_path):
    """A JSON file of an earlier run in a folder of its own."""
    folder = tmp_path / "exports"
    folder.mkdir()
    path = folder / "out.json"
    path.write_text(OLD)
    return path


def check_written(path):
    """Prove that `path` holds a whole document and that nothing else lies beside it."""
    document = check_document(json.loads(path.read_text(encoding="utf-8")))
    assert document["total_steps"] >= 1
    return document


# --- files ----------------------------------------------------------------------------------------


MODES_KEPT = {0o600: 0o600, 0o6755: 0o644}


def test_a_file_is_replaced_with_its_mode_to_read_and_write_and_nothing_is_left_beside_it(
    call_tool, server, export
):
    for before, after in MODES_KEPT.items():
        export.write_text(OLD)
        export.chmod(before)
        assert call_tool("--compact", "--json", export, server.url()).code == 0
        check_written(export)
        assert stat.S_IMODE(export.stat().st_mode) == after
        assert os.listdir(export.parent) == ["out.json"]


def test_a_new_file_has_the_mode_of_the_umask(start_tool, server, tmp_path):
    for umask, mode in ((0o022, 0o644), (0o077, 0o600)):
        path = tmp_path / f"{umask}.json"
        words = ("-s", "--json", path, "--prometheus", tmp_path / "metrics", server.url())
        process = start_tool(*words, preexec_fn=lambda mask=umask: os.umask(mask))
        process.communicate(timeout=PATIENCE)
        check_written(path)
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert stat.S_IMODE((tmp_path / "metrics").stat().st_mode) == 0o644, "another user reads that one"


UNWRITABLE = {
    "missing/x": "there is no such folder",
    "folder": "Is a directory",
    "fifo": "No such device or address",
    "loop": "it is a symbolic link: name the file itself",
    "loop/x": "symbolic links",
}


@pytest.mark.needs("linux")
@pytest.mark.parametrize("name", UNWRITABLE)
def test_a_file_that_cannot_be_written_hides_neither_the_report_nor_the_other_file(
    call_tool, server, tmp_path, name
):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    path = os.path.join(tmp_path, name)
    result = call_tool("--compact", "--json", path, "--har", tmp_path / "good", server.url())
    assert result.code == 73
    assert result.out.startswith("Step 1: 200 GET ")
    assert result.err.startswith(f"httphases: error: cannot write --json '{path}': ")
    assert UNWRITABLE[name] in result.err and "by the shell" not in result.err
    assert len(result.err.splitlines()) == 1
    assert json.loads((tmp_path / "good").read_text(encoding="utf-8"))
    assert set(os.listdir(tmp_path)) == {"folder", "fifo", "loop", "good"}


def test_a_fifo_whose_reader_stops_reading_is_given_up(call_tool, server, tmp_path, monkeypatch):
    """With 0.2 s in place of 5."""
    monkeypatch.setattr(tool, "PIPE_PATIENCE", 0.2)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    headers = ["-H", "X: " + "a" * 45_000] * 2
    result = call_tool("--compact", *headers, "--json", fifo, server.url())
    os.close(reader)
    assert result.code == 73 and "nobody reads from this pipe" in result.err


def test_a_fifo_whose_reader_is_slow_gets_the_whole_document(call_tool, server, tmp_path):
    fifo, received = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    def read():
        time.sleep(0.5)  # the document is larger than a pipe
        os.set_blocking(reader, True)
        with os.fdopen(reader, "rb") as source:
            received.append(source.read())

    thread = threading.Thread(target=read)
    thread.start()
    result = call_tool("--compact", *["-H", "X: " + "a" * 45_000] * 2, "--json", fifo, server.url())
    thread.join(PATIENCE)
    assert result.code == 0
    check_document(json.loads(received[0]))


# --- signals --------------------------------------------------------------------------------------


class Stage:
    """A server at which the program hangs, and an event that says that it has got there."""

    def __init__(self, head, body=b""):
        self.head, self.body = head, body
        self.reached = threading.Event()

    def __call__(self, peer):
        if self.head is not None:
            peer.read_request()
            peer.send(self.head)
        while self.body and not peer.wait(0):
            peer.send(self.body)
            self.reached.set()
        self.reached.set()
        peer.wait(2 * PATIENCE)


STAGES = {
    "handshake": (signal.SIGINT, None),
    "wait": (signal.SIGTERM, ""),
    "xfer": (signal.SIGINT, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
    "endless": (signal.SIGTERM, "HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_signal_ends_the_program_at_once_without_a_trace(start_tool, export, stage):
    number, *answer = STAGES[stage]
    script = Stage(*answer)
    with scripted(script) as server:
        scheme = "https" if stage == "handshake" else "http"
        process = start_tool("-k", "--json", export, f"{scheme}://{server.authority}/")
        assert script.reached.wait(PATIENCE)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert os.listdir(export.parent) == ["out.json"]
    text = export.read_text()
    assert text == OLD or check_document(json.loads(text))


def test_a_second_signal_to_a_single_run_changes_nothing(start_tool, export):
    """Of two that are pending at once the kernel delivers the lower number first, whichever came first."""
    with Screen(80) as screen, scripted(Stage("")) as server:
        process = start_tool("--json", export, server.url(), stderr=screen.slave, env=TERMINAL)
        assert screen.shows("step 1: wait "), screen.text
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, b"")
    said = rf"httphases: stopped in wait after [\d.]+ m?s \(127\.0\.0\.1 port {server.port}\)\n"
    assert re.fullmatch(said, screen.text.rpartition("\r\x1b[K")[2])
    assert export.read_text() == OLD


@pytest.mark.needs("linux")
def test_a_storm_of_signals_at_any_moment_ends_as_the_first_of_them_does(start_tool, export):
    """Imports, arguments, lookup, request, report, files: a run that ends before the storm is a run too."""
    chance, sent = random.Random(1), 0
    heading = tuple((f"X-{number}", "x" * 500) for number in range(100))
    first = Reply(302, headers=(*heading, ("Location", "/1")))
    with http_server({"/0": first, "/1": Reply(headers=heading)}) as server:
        for _ in range(15):
            export.write_text(OLD)
            options = [["--compact"], ["--metrics-only"], []][chance.randrange(3)]
            process = start_tool(*options, "-L", "--json", export, server.url("/0"))
            numbers = storm(process, chance)
            sent += len(numbers)
            out, err = process.communicate(timeout=PATIENCE)
            assert re.fullmatch(r"(httphases: stopped in .*\n)?", err.decode())
            assert os.listdir(export.parent) == ["out.json"]
            text = export.read_text()
            if process.returncode == 0:
                assert b"200" in out and check_written(export)
                continue
            # The kernel and Python serve what came while they were busy by number, not by time.
            assert process.returncode - 128 in numbers
            assert text == OLD or check_document(json.loads(text))
    assert sent


# --- streams --------------------------------------------------------------------------------------


def closed_pipe():
    """Return the writing end of a pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("mode", [[], ["--json", "-"]])
def test_a_reader_that_went_away_is_no_failure_of_ours(start_tool, mode):
    with http_server({"/": Reply(404)}) as server:
        pipe = closed_pipe()
        process = start_tool(*mode, "-f", server.url(), stdout=pipe)
        os.close(pipe)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 22
    assert b"Broken pipe" not in err
    assert mode or err.decode() == ""


FULL = ["sh", "-c", '"$@" >/dev/full', "sh"]


@pytest.mark.needs("linux")
@pytest.mark.parametrize("mode", [["--metrics-only"], ["--json", "-"], ["--count", "4", "--interval", "0"]])
def test_a_report_that_cannot_be_written_is_73_with_a_line_on_stderr(run_tool, server, tmp_path, mode):
    path = tmp_path / "out.har"
    result = run_tool(*mode, "--har", path, server.url(), within=FULL)
    assert result.code == 73 and result.err.count("space") == 1
    assert json.loads(path.read_text("utf-8"))["log"]["entries"], "the other document is there"


STREAMS = {
    "stderr is full": ('"$@" 2>/dev/full', 0),
    "both are full": ('"$@" >/dev/full 2>&1', 73),
    "stdout can only be read": ('"$@" 1</dev/null', 73),
    "stdout is a file with a limit of nothing": ('ulimit -f 0; "$@" >out', 73),
}


@pytest.mark.needs("linux")
@pytest.mark.parametrize("name", STREAMS)
def test_the_program_ends_well_when(run_tool, server, tmp_path, name):
    script, code = STREAMS[name]
    result = run_tool(server.url(), within=["sh", "-c", script, "sh"], cwd=tmp_path)
    assert (result.code, bool(result.out)) == (code, not code)


@pytest.mark.needs("linux")
@pytest.mark.parametrize("option", ["--version", "--help"])
def test_an_answer_that_cannot_be_written_is_73_too(run_tool, start_tool, option):
    result = run_tool(option, within=FULL)
    assert (result.code, result.err.count("\n")) == (73, 1) and "space" in result.err
    process = start_tool(option, preexec_fn=lambda: os.close(1))
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err.count(b"\n")) == (73, 1)
    assert b"closed" in err
    pipe = closed_pipe()
    process = start_tool(option, stdout=pipe)
    os.close(pipe)
    assert (process.communicate(timeout=PATIENCE)[1], process.returncode) == (b"", 0)


def test_a_report_aside_that_nobody_reads_does_not_take_the_document_along(start_tool, server):
    pipe = closed_pipe()
    process = start_tool("--json", "-", server.url(), stderr=pipe)
    os.close(pipe)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    check_document(json.loads(out))


@pytest.mark.parametrize("mode", [["--metrics-only"], [], ["--json", "-"]])
def test_closed_streams_make_no_traceback(start_tool, server, tmp_path, mode):
    def close():
        for descriptor in (0, 1, 2):
            os.close(descriptor)

    path = tmp_path / "out.har"
    process = start_tool(*mode, "--har", path, server.url(), preexec_fn=close)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 73
    assert json.loads(path.read_text(encoding="utf-8"))["log"]["entries"]
