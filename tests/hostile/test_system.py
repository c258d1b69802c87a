"""An operating system that has run out, a shell that set nothing up, and signals at the worst moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from checks import check_document, parse_metrics
from hostile.runner import LATE, PEAK_MIB
from servers import scripted, sending

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"
METRICS = ("--metrics-only", "-m", "10")


def shell(script: str) -> tuple[str, ...]:
    """Make a prefix that runs the rest of the command, "$@", in a shell."""
    return ("sh", "-c", script, "sh")


def check_decent(outcome, codes) -> None:
    assert outcome.code in codes, (outcome.code, outcome.err)
    assert outcome.seconds < 10 + LATE
    assert outcome.peak_mib <= PEAK_MIB
    assert "Traceback" not in outcome.err


# --- streams --------------------------------------------------------------------------------------

STREAMS = [
    ("stdin is closed", '"$@" <&-', 0, True),
    ("stdout is closed", '"$@" >&-', 73, False),
    ("stderr is closed", '"$@" 2>&-', 0, True),
    ("all three are closed", '"$@" <&- >&- 2>&-', 73, False),
    ("stdout is full", '"$@" >/dev/full', 73, False),
    ("stderr is full", '"$@" 2>/dev/full', 0, True),
    ("both are full", '"$@" >/dev/full 2>&1', 73, False),
    ("stdout can only be read", '"$@" 1</dev/null', 73, False),
    ("stdout is /dev/null", '"$@" >/dev/null', 0, False),
    ("stdout is a file with a limit of nothing", 'ulimit -f 0; "$@"', 73, False),
]


@pytest.mark.needs("linux")
@pytest.mark.parametrize(("name", "script", "code", "reported"), STREAMS, ids=[row[0] for row in STREAMS])
@pytest.mark.parametrize("style", [METRICS, ("--compact",), ()], ids=["metrics", "compact", "waterfall"])
def test_the_program_ends_well_when(launch, server, name, script, code, reported, style):
    outcome = launch(server.url(), *style, prefix=shell(script))
    check_decent(outcome, [code])
    assert bool(outcome.out) == reported


@pytest.mark.parametrize("script", ['"$@" >/dev/full', '"$@" >&-'])
@pytest.mark.parametrize("option", ["--json", "--har"])
def test_a_document_that_cannot_be_written_to_stdout_is_an_unwritten_report(launch, server, script, option):
    outcome = launch(server.url(), *METRICS, option, "-", prefix=shell(script))
    check_decent(outcome, [73])


def test_a_reader_that_is_gone_from_the_start_is_no_failure(start_tool, server):
    read, write = os.pipe()
    os.close(read)
    process = start_tool(server.url(), *METRICS, stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.needs("linux")
@pytest.mark.parametrize("count", range(4, 12))
@pytest.mark.parametrize("style", [METRICS, ("-m", "10")], ids=["metrics", "waterfall"])
def test_few_file_descriptors_are_a_failure_or_enough(launch, server, count, style):
    prefix = shell(f'ulimit -n {count}; "$@"')
    if subprocess.run([*prefix, sys.executable, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip("Python itself needs more")
    outcome = launch(server.url(), *style, prefix=prefix)
    check_decent(outcome, [0, 64, 70, 75])


@pytest.mark.needs("linux")
@pytest.mark.parametrize("count", range(5, 10))
def test_few_file_descriptors_are_never_blamed_on_the_name(launch, server, count):
    """A resolver that finds none left says that there is no such name."""
    prefix = shell(f'ulimit -n {count}; "$@"')
    if subprocess.run([*prefix, sys.executable, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip("Python itself needs more")
    named = server.url().replace("127.0.0.1", "localhost")
    outcome = launch(named, *METRICS, prefix=prefix)
    check_decent(outcome, [0])


@pytest.mark.needs("linux")
@pytest.mark.parametrize("mib", [60, 70, 80, 100, 140, 200, 300])
def test_little_memory_is_a_failure_or_enough(launch, server, mib):
    outcome = launch(server.url(), *METRICS, prefix=shell(f'ulimit -v {mib * 1024}; "$@"'))
    check_decent(outcome, [0, 70, 75])


@pytest.mark.needs("linux")
@pytest.mark.parametrize("kib", [128, 256, 1024, 65536])
def test_a_small_stack_is_enough(launch, server, kib):
    check_decent(launch(server.url(), *METRICS, prefix=shell(f'ulimit -s {kib}; "$@"')), [0])


# --- surroundings ---------------------------------------------------------------------------------

ENVIRONMENTS = {
    "no home": {"HOME": None},
    "a home that is not there": {"HOME": "/nowhere/at/all"},
    "no terminal type": {"TERM": None},
    "a terminal type of rubbish": {"TERM": "\x1b[2J"},
    "a dumb terminal": {"TERM": "dumb"},
    "no path": {"PATH": "/nowhere"},
    "no language": {"LANG": None, "LC_ALL": None},
    "the C locale without UTF-8": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "a language nobody speaks": {"LC_ALL": "xx_YY.klingon"},
    "streams in ASCII": {"PYTHONIOENCODING": "ascii"},
    "streams in UTF-16": {"PYTHONIOENCODING": "utf-16"},
    "streams in EBCDIC": {"PYTHONIOENCODING": "cp037"},
    "variables that are not UTF-8": {"LANG": "\udcff\udcfe", "HTTP_X": "\udc80", "COLUMNS": "\udcff"},
    "a width of nothing": {"COLUMNS": "0"},
    "a width of a million": {"COLUMNS": "1000000"},
    "a width of minus one": {"COLUMNS": "-1"},
    "a width in other digits": {"COLUMNS": "\u0668\u0660"},
    "a time zone of rubbish": {"TZ": "../../etc/passwd\x1b"},
    "warnings as errors": {"PYTHONWARNINGS": "error,default::ResourceWarning"},
    "development mode": {"PYTHONDEVMODE": "1"},
    "no assertions and no docstrings": {"PYTHONOPTIMIZE": "2"},
    "an unbuffered Python": {"PYTHONUNBUFFERED": "1"},
    "a Python that inspects": {"PYTHONINSPECT": "1"},
    "no trust store": {"SSL_CERT_FILE": "/nowhere", "SSL_CERT_DIR": "/nowhere"},
    "an OpenSSL configuration that is not there": {"OPENSSL_CONF": "/nowhere"},
    "resolver options of rubbish": {"RES_OPTIONS": "timeout:x ndots:99999", "LOCALDOMAIN": "\x1b"},
    "key log in a folder": {"SSLKEYLOGFILE": "/"},
    "a colour wish": {"NO_COLOR": "1", "CLICOLOR": "0"},
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("style", [METRICS, ("-m", "10")], ids=["metrics", "waterfall"])
def test_the_environment_does_not_matter(launch, server, name, style):
    outcome = launch(server.url(), *style, env=ENVIRONMENTS[name])
    check_decent(outcome, [0])
    assert "\x1b" not in outcome.out + outcome.err


def test_no_environment_at_all_is_enough(launch, server, launcher):
    outcome = launcher.run([sys.executable, launcher.program, server.url(), *METRICS], {})
    check_decent(outcome, [0])


@pytest.mark.needs("linux")
def test_a_folder_that_was_removed_is_no_obstacle(launch, server, tmp_path):
    script = 'mkdir d && cd d && rmdir ../d && "$@"'
    outcome = launch(server.url(), *METRICS, prefix=shell(script), cwd=str(tmp_path))
    check_decent(outcome, [0])


@pytest.mark.needs("linux")
def test_a_file_in_a_folder_that_was_removed_is_an_unwritten_report(launch, server, tmp_path):
    script = 'mkdir d && cd d && rmdir ../d && "$@"'
    words = (server.url(), *METRICS, "--json", "out.json", "--har", "../out.har")
    outcome = launch(*words, prefix=shell(script), cwd=str(tmp_path))
    check_decent(outcome, [73])
    parse_metrics(outcome.text("out").rstrip("\n"))


@pytest.mark.needs("linux", "root")
@pytest.mark.parametrize("folder", ["/proc", "/tmp", "/etc", "/dev/shm", "/sys"])
def test_a_system_without_this_folder_is_enough(launch, server, folder, launcher, request):
    mount = ("unshare", "--mount", *shell(f'mount -t tmpfs none {folder} && "$@"'))
    if subprocess.run([*mount, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    if launcher.program.startswith(folder + "/"):
        pytest.skip(f"the program itself lies in {folder}")
    check_decent(launch(server.url(), *METRICS, prefix=mount), [0])


ODD = "\udcff\udc1b"
ARGUMENTS = [
    ("a path", ["{url}/\udcff\udcfe"], 0),
    ("a header's value", ["{url}", "-H", "X-Y: \udcff\x1b[2J"], 0),
    ("a header's name", ["{url}", "-H", "\udcff: x"], 64),
    ("data", ["{url}", "-d", "\udcff\udcfe\x1b"], 0),
    ("a method", ["{url}", "-X", "\udcff\x1b"], 64),
    ("a host", ["http://\udcff\udcfe\x1b/"], 64),
    ("a budget", ["{url}", "--slo", "\udcff\x1b=\x9b"], 64),
    ("a proxy", ["{url}", "-x", "http://\udcff\x1b:1"], 64),
    ("an override", ["{url}", "--resolve", "\udcff:1:\x1b"], 64),
    ("a time", ["{url}", "-m", "\udcff\x1b"], 64),
    ("a bundle", ["{url}", "--cacert", "/\udcff\x1b"], 64),
    ("an option", ["{url}", "--\udcff\x1b"], 64),
    ("a second URL", ["{url}", "\udcff\x1b"], 64),
    ("a file of data", ["{url}", "-d", "@/nowhere/\udcff\x1b"], 64),
    ("a report's path", ["{url}", "--json", "/nowhere/\udcff\x1b"], 73),
    ("an archive's path", ["{url}", "--har", "/nowhere/\udcff\x1b"], 73),
    ("a header of 100 KB", ["{url}", "-H", "X: " + "y" * 100_000], 0),
    ("a thousand headers", ["{url}", *["-H", "X: y"] * 1000], 0),
    ("nothing", [], 64),
    ("an empty URL", [""], 64),
]


@pytest.mark.parametrize(("name", "arguments", "code"), ARGUMENTS, ids=[row[0] for row in ARGUMENTS])
def test_odd_bytes_in_arguments_are_taken_or_refused(launch, server, name, arguments, code):
    words = [word.replace("{url}", server.url("")) for word in arguments]
    outcome = launch("--compact", *words)
    check_decent(outcome, [code])
    raw = [
        char for char in outcome.text("out") + outcome.text("err") if char != "\n" and not char.isprintable()
    ]
    assert not raw


# --- signals --------------------------------------------------------------------------------------

WHEN_IMPORTING = """
import os, sys, signal
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Watch())
"""
MODULES = ["argparse", "ssl", "http.client", "urllib.parse", "json", "h2.connection", "rich.console"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("module", MODULES)
def test_a_signal_during_start_up_ends_it_without_a_traceback(launch, tmp_path, number, module):
    if module.partition(".")[0] in ("h2", "rich"):
        pytest.importorskip(module)
    (tmp_path / "sitecustomize.py").write_text(WHEN_IMPORTING.format(module=module, number=int(number)))
    outcome = launch("https://127.0.0.1:1/", "--json", "/dev/null", env={"PYTHONPATH": str(tmp_path)})
    check_decent(outcome, [128 + number, -number])
    assert outcome.out == outcome.err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("milliseconds", range(150, 600, 75))
def test_a_signal_at_any_moment_ends_a_run_that_hangs(launch, number, milliseconds):
    with scripted(lambda peer: peer.wait(60)) as server:
        words = (server.url(), "-m", "10", "--json", "/dev/null")
        outcome = launch(*words, signals=((milliseconds / 1000, int(number)),))
    check_decent(outcome, [128 + number, -number])
    assert outcome.out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_ten_signals_are_no_more_than_one(launch, number):
    with scripted(lambda peer: peer.wait(60)) as server:
        signals = tuple((0.5 + at / 1000, int(number)) for at in range(10))
        outcome = launch(server.url(), "-m", "10", signals=signals)
    check_decent(outcome, [128 + number])
    assert outcome.out + outcome.err == ""


def test_an_ignored_interrupt_stays_ignored(launch, server):
    with scripted(lambda peer: peer.wait(60)) as silent:
        words = (silent.url(), "--metrics-only", "-m", "1")
        outcome = launch(*words, prefix=shell('trap "" INT; "$@"'), signals=((0.6, int(signal.SIGINT)),))
    check_decent(outcome, [75])
    assert parse_metrics(outcome.text("out").rstrip("\n"))["error"] == "timeout"


def test_a_pause_by_the_shell_does_not_undo_the_deadline(launch):
    with scripted(lambda peer: peer.wait(60)) as silent:
        signals = ((0.4, int(signal.SIGSTOP)), (1.2, int(signal.SIGCONT)))
        outcome = launch(silent.url(), "--json", "-", "--metrics-only", "-m", "0.8", signals=signals)
    check_decent(outcome, [75])
    document = check_document(json.loads(outcome.text("out")))
    assert document["steps"][0]["error"]["kind"] == "timeout"


def test_a_signal_while_a_document_is_written_leaves_the_old_one(launch, tmp_path):
    path = tmp_path / "old.json"
    path.write_text("old")
    with scripted(sending(HELLO[:-1])) as server:
        for milliseconds in (100, 150, 200, 250):
            launch(server.url(), "-m", "5", "--json", str(path), signals=((milliseconds / 1000, 15),))
            assert path.read_text() == "old" or check_document(json.loads(path.read_text()))
    assert os.listdir(tmp_path) == ["old.json"]
