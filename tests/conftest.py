"""What every test may use: `run_tool`, `start_tool`, certificates, and the marker `needs`.

The program is called as a process in an environment that holds nothing but what a test gives it; a warning of
Python is an error there. Every JSON document that a run writes is as httphases.schema.json says, and every
one that a test reads through `Result.json()` passes `checks.check_document` first. What a run says on stderr,
but for the error of its exit code, its test has to read.

`HTTPHASES_TEST_WITHOUT=rich,h2,socks` runs the whole suite as if these optional packages were not installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import pty
import py_compile
import re
import selectors
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tty as terminal
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, TextIO
from unittest import mock

import pytest

import tool
from certificates import Authority
from checks import ACCIDENT, check_document, check_schema, parse_metrics, surprises
from laboratory import Lab
from servers import Server, can_listen, http2_server, http_proxy, http_server, socks5_proxy

TOOL = Path(__file__).resolve().parent.parent / "tool.py"
collect_ignore = [] if os.environ.get("HTTPHASES_ROOTS") else ["hosts"]  # there is nothing to try
INHERITED = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH")
WITHOUT = frozenset(filter(None, os.environ.get("HTTPHASES_TEST_WITHOUT", "").split(",")))
PATIENCE = 60.0
"""Seconds after which a run that was not expected to hang fails its test."""


# --- what a test needs ----------------------------------------------------------------------------


def has(name: str) -> bool:
    """Tell whether something `needs` can name is here."""
    if name == "ipv6":
        return can_listen("::1")
    if name == "root":
        return os.geteuid() == 0
    if name == "linux":
        return sys.platform == "linux"
    return name not in WITHOUT and importlib.util.find_spec(name) is not None


def pytest_configure(config: pytest.Config) -> None:
    undo_ignored_signals()
    config.addinivalue_line(
        "markers", "needs(*names): skip where an importable package, or ipv6, root or linux, is missing"
    )


def undo_ignored_signals() -> None:
    """Give signals that a parent ignores or blocks (nohup, a shell's background job, some CI runners) their
    usual effect: the programs under test would inherit it, and rightly obey.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        missing = [name for name in mark.args if not has(name)]
        if missing:
            pytest.skip(f"needs {', '.join(missing)}")


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """Take two workers for each processor: half of its time a test waits, for a peer or a deadline."""
    return 2 * (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)


# --- commands that the program is run behind: fewer rights, another view of the file system -------

CAPABILITIES = "-dac_override,-dac_read_search,-fowner,-chown"


def mounted(place: Path | str, options: str) -> list[str]:
    """Make the prefix of a command that sees `place` through a mount of its own."""
    prefix = ["unshare", "--mount", "sh", "-c", f'mount {options} "{place}" && exec "$@"', "sh"]
    return possible(prefix, "needs the right to mount")


def without_privilege() -> list[str]:
    """Make the prefix of a command that root runs with the rights of any other user."""
    prefix = ["setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}"]
    return possible(prefix, "needs setpriv and root") if os.geteuid() == 0 else []


def possible(prefix: list[str], reason: str) -> list[str]:
    """Return `prefix`, or skip the test where it does not work."""
    trial = [*prefix, "true"]
    if not shutil.which(prefix[0]) or subprocess.run(trial, capture_output=True, check=False).returncode:
        pytest.skip(reason)
    return prefix


# --- running the program --------------------------------------------------------------------------


class Result(NamedTuple):
    """How one run of the program ended."""

    arguments: tuple[str, ...]
    code: int
    """The exit code; negative when a signal ended the process."""
    out: str
    raw: str
    """All of stderr, for `err` to read."""
    seconds: float
    peak_mib: float = 0.0
    """The most memory that it held when it last wrote something, where Linux tells."""

    @property
    def err(self) -> str:
        """Return stderr, and note that the test has read it."""
        UNREAD[:] = [result for result in UNREAD if result is not self]
        return self.raw

    def warned(self, *words: str) -> Result:
        """Prove that stderr has one warning for each of `words`, which it holds, and no more than errors."""
        lines = self.err.splitlines()
        lines = [line for line in lines if not (self.code and line.startswith("httphases: error: "))]
        assert len(lines) == len(words), lines
        assert all(line.startswith("httphases: warning: ") for line in lines), lines
        assert all(word in line for word, line in zip(words, lines)), lines
        return self

    def json(self, path: Path | None = None) -> dict[str, Any]:
        """Read the document on stdout, or in the file `path`, and prove that it is sound."""
        text = self.out if path is None else path.read_bytes().decode("utf-8")
        return check_document(json.loads(text))

    def metrics(self) -> list[dict[str, str]]:
        """Read the lines of --metrics-only, tokens by name."""
        return [parse_metrics(line) for line in self.out.splitlines()]


UNREAD: list[Result] = []
"""Runs of the test under way that said on stderr what it has not read yet."""


def exported(result: Result) -> dict[str, Any] | None:
    """Return what a run gave to --json, None where it gave nothing, or what stands there is no export."""
    words = result.arguments
    places = [word for option, word in zip(words, words[1:]) if option == "--json"]
    places += [word.partition("=")[2] for word in words if word.startswith("--json=")]
    try:
        if places and places[-1] in ("-", "/dev/stdout"):
            document = json.loads(result.out)
        elif places and Path(places[-1]).is_file():
            document = json.loads(Path(places[-1]).read_bytes())
        else:
            return None
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and "schema_version" in document else None


def ended(result: Result) -> Result:
    """Take down a run that said more on stderr than its exit code, prove its export sound; return it."""
    document = exported(result)
    if document is not None:
        check_schema(document)
    if surprises(result.arguments, result.code, result.raw):
        UNREAD.append(result)
    return result


@pytest.fixture(autouse=True)
def _nothing_unexpected_is_said() -> Iterator[None]:
    """Fail a test that did not look at a warning, or at whatever else the program said on stderr."""
    UNREAD.clear()
    yield
    unread = [(each.arguments, surprises(each.arguments, each.code, each.raw)) for each in UNREAD]
    assert not unread, "the test has not read what the program said on stderr"


def block(names: Collection[str], folder: Path, env: dict[str, str]) -> None:
    """Make the import of `names` fail in processes that get `env`, by a start-up module in `folder`."""
    text = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(names)!r}:
            raise ModuleNotFoundError(name=name)  # without words, as a package may raise it
sys.meta_path.insert(0, Absent())
"""
    (folder / "sitecustomize.py").write_text(text)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), env.get("PYTHONPATH")]))


@pytest.fixture(scope="session")
def base_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that every run starts from: no proxies, no colours, no width, no trust store."""
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    env.update(LANG="C.UTF-8", PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="error")
    if WITHOUT:
        block(WITHOUT, tmp_path_factory.mktemp("absent"), env)
    return env


def with_resolver(address: str, folder: Path) -> list[str]:
    """Make the prefix of a command that is to ask the name server at `address`, in its own mounts."""
    configuration = folder / "resolv.conf"
    configuration.write_text(f"nameserver {address}\noptions attempts:1 timeout:30\n")
    return mounted("/etc/resolv.conf", f'--bind "{configuration}"')


def open_terminal(columns: int) -> tuple[int, int]:
    """Open a pseudo-terminal that passes every byte as it is; return the reading and the writing end."""
    master, slave = pty.openpty()
    terminal.setraw(slave)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return master, slave


def read_all(process: subprocess.Popen, sources: dict[int, bytearray], seconds: float) -> float:
    """Read each descriptor to its end (a pseudo-terminal ends with an error); return the memory (MiB) that
    the process held at most while it was watched.
    """
    give_up, peak = time.monotonic() + seconds, 0.0
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        while selector.get_map():
            assert time.monotonic() < give_up, "the program did not end"
            ready = selector.select(0.05)
            peak = max(peak, peak_memory(process.pid))
            for key, _ in ready:
                data = b""
                with contextlib.suppress(OSError):
                    data = os.read(key.fd, 65536)
                sources[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
    return peak


def peak_memory(process: int) -> float:
    """Return the most memory (MiB) that a process has held, 0 where Linux does not tell or it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def run_to_end(
    command: list[str], streams: str, columns: int, timeout: float, **settings: Any
) -> tuple[int, bytes, bytes, float]:
    """Run `command` with the named streams ("", "out", "err", "out err") on pseudo-terminals.

    Return its code, what it wrote to each, and its memory (MiB).
    """
    pairs = [open_terminal(columns) if name in streams.split() else os.pipe() for name in ("out", "err")]
    (out, out_end), (err, err_end) = pairs
    process = subprocess.Popen(command, stdout=out_end, stderr=err_end, **settings)
    os.close(out_end)
    os.close(err_end)
    sources = {out: bytearray(), err: bytearray()}
    try:
        peak = read_all(process, sources, timeout)
        return process.wait(timeout), bytes(sources[out]), bytes(sources[err]), peak
    finally:
        process.kill()
        process.wait()
        os.close(out)
        os.close(err)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, compiled once: a script is compiled at every start, half of what a short run takes."""
    return py_compile.compile(str(TOOL), str(tmp_path_factory.mktemp("program") / "tool.pyc"), doraise=True)


@pytest.fixture(scope="session")
def run_tool(
    program: str, base_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Result]:
    """Run the program and wait for it.

    Keywords: `env` adds to the bare environment, None takes a variable away; `stdin` (bytes) is what it may
    read; `timeout` is when to give up on it; `resolver` is the address of a `dns_server`; `terminal` names
    the streams ("out", "err", "out err") that are a terminal of `columns` columns; `cwd` is where it starts;
    `without` names packages that it is not to find; `within` is the beginning of the command, as of the near
    end of a path.
    """

    def run(
        *arguments: Any,
        env: dict[str, str | None] | None = None,
        stdin: bytes | None = None,
        timeout: float = PATIENCE,
        resolver: str | None = None,
        terminal: str | None = None,
        columns: int = 80,
        cwd: Path | None = None,
        without: tuple[str, ...] = (),
        within: Sequence[str] = (),
    ) -> Result:
        words = tuple(str(word) for word in arguments)
        command = [*within, sys.executable, program, *words]
        if resolver:
            command = with_resolver(resolver, tmp_path_factory.mktemp("resolver")) + command
        given = {**base_environment, **({"TERM": "xterm-256color"} if terminal else {}), **(env or {})}
        whole = {name: value for name, value in given.items() if value is not None}
        if without:
            block(WITHOUT.union(without), tmp_path_factory.mktemp("absent"), whole)
        with tempfile.TemporaryFile() as source:
            os.pwrite(source.fileno(), stdin or b"", 0)
            start = time.monotonic()
            code, out, err, peak = run_to_end(
                command, terminal or "", columns, timeout, env=whole, cwd=cwd, stdin=source
            )
            seconds = time.monotonic() - start
        texts = [data.decode("utf-8", "surrogateescape") for data in (out, err)]
        return ended(Result(words, code, texts[0], texts[1], seconds, peak))

    return run


@pytest.fixture(scope="session")
def call_tool(base_environment: dict[str, str]) -> Iterator[Callable[..., Result]]:
    """Run the program inside this process: the same as `run_tool`, and much quicker.

    It is for the many runs where the process is beside the point: not for terminals, signals, standard input,
    the deadline, or what a stream does. `env` adds to the bare environment.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in WITHOUT:
            patch.setitem(sys.modules, name, None)

        def call(*arguments: Any, env: dict[str, str] | None = None) -> Result:
            return ended(call_main(tuple(map(str, arguments)), {**base_environment, **(env or {})}))

        yield call


def call_main(words: tuple[str, ...], env: dict[str, str]) -> Result:
    """Call `main` with streams and an environment of its own, in a thread, so that it cannot hang a test."""
    codes: list[int] = []

    def call() -> None:
        codes.append(tool.main(words))
        with contextlib.suppress(OSError):  # one for each thread; a process of its own has only one
            os.close(tool.scheduler_file(threading.get_native_id()))
        tool.scheduler_file.cache_clear()

    with contextlib.ExitStack() as changed:
        out, err = (changed.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(2))
        changed.enter_context(contextlib.redirect_stdout(out))
        changed.enter_context(contextlib.redirect_stderr(err))
        changed.enter_context(mock.patch.dict(os.environ, env, clear=True))
        thread = threading.Thread(target=call, daemon=True)
        start = time.monotonic()
        thread.start()
        thread.join(PATIENCE)
        seconds = time.monotonic() - start
        assert not thread.is_alive(), f"the program did not end: {words}"
        assert codes, f"the program raised an exception: {words}"
        return Result(words, codes[0], read_back(out), read_back(err), seconds)


def read_back(stream: TextIO) -> str:
    """Read what has been written to a file, by whatever way."""
    stream.flush()
    return os.pread(stream.fileno(), os.fstat(stream.fileno()).st_size, 0).decode("utf-8", "surrogateescape")


@pytest.fixture
def start_tool(program: str, base_environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start the program and return the process at once, for tests that signal it or hold its streams."""
    with contextlib.ExitStack() as started:

        def start(
            *arguments: Any,
            env: dict[str, str] | None = None,
            within: Sequence[str] = (),
            program: str | Path = program,
            **settings: Any,
        ) -> subprocess.Popen:
            command = [*within, sys.executable, program, *(str(word) for word in arguments)]
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = subprocess.Popen(
                command, env={**base_environment, **(env or {})}, **{**streams, **settings}
            )
            started.callback(end_process, process)
            return process

        yield start


def end_process(process: subprocess.Popen) -> None:
    """Kill what still runs and close its pipes; prove that it met with no accident."""
    process.kill()
    _, err = process.communicate()
    assert not ACCIDENT.search((err or b"").decode("utf-8", "replace")), err


# --- servers and certificates that many tests share -----------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    """Serve `hello` over plain HTTP/1.1 at every path."""
    with http_server() as running:
        yield running


@pytest.fixture
def lab(run_tool: Callable[..., Result], authority: Authority, tmp_path: Path) -> Iterator[Lab]:
    """Give a laboratory whose path `start` opens."""
    made = Lab(run_tool, authority, tmp_path)
    with made.open:
        yield made


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def tls(authority: Authority) -> ssl.SSLContext:
    """A server's TLS context, HTTP/1.1 alone, with a certificate of the authority for `DEFAULT_NAMES`."""
    return authority.context(common_name="localhost")


@pytest.fixture(scope="session")
def http2(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Any]:
    with http2_server(tmp_path_factory.mktemp("http2"), authority.certificate()) as program:
        yield program


@pytest.fixture(scope="session")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An HTTP proxy that asks for a password."""
    with http_proxy(tmp_path_factory.mktemp("proxy")) as program:
        yield program


@pytest.fixture(scope="session")
def proxy_over_tls(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Any]:
    """The same, spoken to over TLS."""
    with http_proxy(tmp_path_factory.mktemp("proxy"), authority.certificate()) as program:
        yield program


@pytest.fixture(scope="session")
def socks5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A SOCKS5 proxy that asks for a password."""
    with socks5_proxy(tmp_path_factory.mktemp("socks5")) as program:
        yield program
