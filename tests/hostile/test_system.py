"""An operating system that has run out, a shell that set nothing up, and signals at the worst moment."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys

import pytest

from checks import ACCIDENT, parse_metrics
from frames import DATA, FRAME_SIZE, WINDOW_SIZE, Conversation
from hostile.cases import PEAK_MIB
from servers import http_server, redirect, scripted

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"
METRICS = ("--metrics-only", "-m", "20")
STYLES = [METRICS, ("-m", "20")]


def shell(script: str) -> tuple[str, ...]:
    """Make a prefix that runs the rest of the command, "$@", in a shell."""
    return ("sh", "-c", script, "sh")


def usable(*prefix: str) -> tuple[str, ...]:
    """Return the beginning of a command; skip where Python does not run behind it, or nobody may do that."""
    there = shutil.which(prefix[0])
    if not there or subprocess.run([*prefix, sys.executable, "-c", ""], check=False).returncode:
        pytest.skip(f"cannot use {prefix}")
    return prefix


def check_decent(result, codes) -> None:
    assert result.code in codes, (result.code, result.err)
    assert result.peak_mib <= PEAK_MIB
    assert not ACCIDENT.search(result.err)


def limited(limit: str) -> tuple[str, ...]:
    """Make a prefix that sets a limit of `ulimit`."""
    return usable(*shell(f'ulimit {limit}; "$@"'))


@pytest.mark.needs("linux")
def test_few_file_descriptors_are_a_failure_or_enough_and_never_blamed_on_the_name(run_tool, server):
    """A resolver that finds none left says that there is no such name."""
    for count, style in itertools.product((6, 10), STYLES):
        outcome = run_tool(server.url(host="localhost"), *style, within=limited(f"-n {count}"))
        check_decent(outcome, [0] if (style, count) == (METRICS, 10) else [0, 64, 70])


def check_refused(outcome, words: str = "") -> None:
    """Prove that one line tells of a limit, in the system's `words`, and not of an error of the program's."""
    check_decent(outcome, [70])
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1 and words in outcome.err
    assert "internal" not in outcome.err


@pytest.mark.needs("linux")
@pytest.mark.parametrize("mib", [28, 41, 60])
@pytest.mark.parametrize("style", STYLES, ids=["metrics", "waterfall"])
def test_little_memory_is_enough_or_refused_in_a_line(run_tool, server, mib, style):
    outcome = run_tool(server.url(), *style, within=limited(f"-v {mib * 1024}"))
    if outcome.code == 75:  # Python 3.9 may have too little for the socket alone
        assert "Cannot allocate memory" in outcome.err
    elif outcome.code:
        check_refused(outcome)
    else:
        assert "200" in outcome.out


def few_threads(threads: int) -> tuple[str, ...]:
    """Make a prefix: a user of its own, who may have so many threads."""
    user = str(200_000 + os.getpid())
    reads_all = ("--inh-caps", "+dac_override", "--ambient-caps", "+dac_override")
    ids = ("--reuid", user, "--regid", user, "--clear-groups")
    return usable("prlimit", f"--nproc={threads}", "setpriv", *ids, *reads_all)


@pytest.mark.needs("linux", "root")
def test_a_machine_that_gives_no_thread_is_named_before_anything_is_sent_and_three_are_enough(
    run_tool, tls, authority
):
    with http_server(tls=tls) as server:
        words = (server.url(host="localhost"), "--cacert", str(authority.file), *METRICS)
        check_refused(run_tool(*words, within=few_threads(1)), "can't start new thread")
        assert server.accepted == 0
        outcome = run_tool(*words, within=few_threads(4))
    check_decent(outcome, [0])
    assert outcome.err == ""


WITHOUT_DESCRIPTORS = """
import os, sys
seen = []
def exhaust(event, arguments):
    seen.append(event)
    while event == "socket.__new__" and seen.count("socket.connect") == {after}:
        try:
            os.open("/", os.O_RDONLY)
        except OSError:
            break
sys.addaudithook(exhaust)
"""


@pytest.mark.needs("linux")
@pytest.mark.parametrize("after", [0, 1])
def test_the_lack_of_descriptors_is_named_before_anything_is_sent_later_it_is_that_step_s_failure(
    run_tool, tmp_path, after
):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_DESCRIPTORS.format(after=after))
    with http_server({"/": redirect("/next")}) as chain:
        words = (chain.url(), "-L", *METRICS)
        outcome = run_tool(*words, within=shell('ulimit -n 64; "$@"'), env={"PYTHONPATH": str(tmp_path)})
    if after == 0:
        check_refused(outcome, "Too many open files")
        assert chain.accepted == 0
        return
    check_decent(outcome, [75])
    first, second = [parse_metrics(line) for line in outcome.out.splitlines()]
    assert (first["status"], second["error"]) == ("302", "network")
    assert "Step 2" in outcome.err and "Too many open files" in outcome.err


@pytest.mark.needs("h2")
@pytest.mark.parametrize("over", ["http", "h2"])
def test_an_upload_takes_no_memory_beyond_its_body(run_tool, tmp_path, authority, contexts, over):
    size = 32 << 20

    def script(peer):
        if over == "h2":
            c = Conversation(peer)
            c.read_head()
            c.send(c.settings((WINDOW_SIZE, size), (FRAME_SIZE, 1 << 20)), c.window(size, 0))
            c.read_until(DATA, lambda frame: frame.ends)
            c.send(c.headers(), c.data(b"hello\n", end=True))
        else:
            peer.read_until(b"\r\n\r\n")
            assert len(peer.read_exactly(size)) == size
            peer.send(HELLO)
        peer.read_to_end()

    body = tmp_path / "body"
    body.write_bytes(bytes(size))
    with scripted(script, tls=contexts[over]) as server:
        outcome = run_tool(*METRICS, "--cacert", authority.file, "-d", f"@{body}", server.url())
    assert outcome.code == 0, outcome.err
    assert outcome.peak_mib <= (size >> 20) + 32


ENVIRONMENTS = {
    "rubbish": {
        **dict.fromkeys(("TERM", "COLUMNS", "TZ", "RES_OPTIONS", "LOCALDOMAIN"), "../\u0668\x1b[2J\udcff"),
        **dict.fromkeys(("SSL_CERT_FILE", "SSL_CERT_DIR", "OPENSSL_CONF"), "/nowhere"),
    },
    "the C locale without UTF-8": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "streams in UTF-16, a width of a million": {"PYTHONIOENCODING": "utf-16", "COLUMNS": "1000000"},
    "development, without assertions, inspected": dict.fromkeys(
        ("PYTHONDEVMODE", "PYTHONOPTIMIZE", "PYTHONINSPECT"), "2"
    ),
}


@pytest.mark.parametrize("env", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_the_environment_does_not_matter(run_tool, server, env):
    outcome = run_tool(server.url(), env=env)
    check_decent(outcome, [0])
    assert "\x1b" not in outcome.out + outcome.err


@pytest.mark.needs("linux", "root")
@pytest.mark.parametrize("folder", ["/proc", "/etc", "/dev"])
def test_a_system_without_this_folder_is_enough(run_tool, server, folder):
    """Closed streams need no null device either."""
    prefix = usable("unshare", "--mount", *shell(f'mount -t tmpfs none {folder} && "$@" <&- 2>&-'))
    outcome = run_tool(server.url(), *METRICS, within=prefix)
    check_decent(outcome, [0])
    assert parse_metrics(outcome.out.rstrip("\n"))["status"] == "200"


WHEN_IMPORTING = """
import os, sys, signal
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Watch())
"""
MODULES = {"mmap": 2, "ssl": 15, "h2.connection": 2}


@pytest.mark.parametrize(("module", "number"), MODULES.items())
def test_a_signal_during_start_up_ends_it_without_a_traceback(run_tool, tmp_path, module, number):
    if module.startswith("h2"):
        pytest.importorskip(module)
    (tmp_path / "sitecustomize.py").write_text(WHEN_IMPORTING.format(module=module, number=number))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    outcome = run_tool("https://127.0.0.1:1/", "--json", "/dev/null", env={"PYTHONPATH": path})
    check_decent(outcome, [128 + number, -number])
    assert outcome.out == outcome.err == ""
