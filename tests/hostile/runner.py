"""The table of a hostile family: cases, the one way they are run, and what must hold for all of them."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from checks import UNSAFE, check_document, parse_compact, parse_metrics
from servers import Peer, Script

PEAK_MIB = 100
PATIENCE = 90.0
"""Seconds after which a run is killed, and its test has failed: it was to end by itself."""
SHORT, FAR, LONG = 0.4, 4.0, 30.0
"""The -m of a case that is to run into it, of one that is to come to some phase before, and of one that is to
end without."""
STYLES = (("--metrics-only",), ("--compact",), ())


class Outcome(NamedTuple):
    """How one run ended; the streams are bytes as Latin-1."""

    code: int
    out: str
    err: str
    seconds: float
    """How long it took, without the time for which others had the CPUs."""
    peak_mib: float

    def text(self, stream: str) -> str:
        """Read "out" or "err" as the UTF-8 that it must be."""
        return getattr(self, stream).encode("latin-1").decode("utf-8")


class Launcher:
    """The small process that starts the others."""

    def __init__(self, folder: Path, program: str) -> None:
        self._folder, self.program = folder, program
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py"))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def run(
        self,
        command: list[str],
        env: dict[str, str],
        *,
        cwd: str | None = None,
        patience: float = PATIENCE,
        signals: tuple[tuple[float, int], ...] = (),
    ) -> Outcome:
        """Run a command to its end, kill it after `patience` seconds."""
        streams = {name: str(self._folder / name) for name in ("out", "err")}
        order = {"command": command, "env": env, "cwd": cwd, "patience": patience, "signals": signals}
        self._process.stdin.write(json.dumps({**order, **streams}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        out, err = (Path(path).read_bytes().decode("latin-1") for path in streams.values())
        return Outcome(answer["code"], out, err, answer["seconds"], answer["peak_kib"] / 1024)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


class Case(NamedTuple):
    """One thing that can be done to the program, and what it must make of it.

    `script` holds the server's conversation; bytes are sent after the request was read, to the letter, and
    then the connection is closed. `over` is how the server is reached: "http", "https" or "h2" (TLS with that
    ALPN), or "raw" (an https URL, but no TLS below the script).
    """

    name: str
    script: bytes | Script
    kind: str | None = "protocol"
    """The kind of the error of the last step, None for a success."""
    status: int | None = None
    size: int | None = None
    options: tuple[str, ...] = ()
    over: str = "http"
    url: str = "{scheme}://127.0.0.1:{port}/"
    code: int | None = None
    """The exit code, where it is not the one of `kind`."""
    steps: int | None = None
    says: str = ""
    """Words that the error message or stderr must hold."""
    phase: str | None = None
    """The phase of the error, where the row is about it."""
    hint: str = ""
    """Words that the error's hint must hold."""

    @property
    def max_time(self) -> float:
        if self.kind != "timeout":
            return LONG
        return FAR if self.phase or self.status or self.size else SHORT

    @property
    def expected_code(self) -> int:
        return self.code if self.code is not None else 75 if self.kind else 0

    @property
    def style(self) -> tuple[str, ...]:
        """A style for each case, so that every style meets many."""
        return STYLES[zlib.crc32(self.name.encode()) % len(STYLES)]


def as_script(script: bytes | Script) -> Script:
    """Turn bytes into the script that sends them."""
    if not isinstance(script, bytes):
        return script

    def send(peer: Peer) -> None:
        peer.read_request()
        peer.send(script)

    return send


def check_manners(outcome: Outcome) -> None:
    """Prove what holds for every run, whatever was done to it."""
    assert outcome.code != -9, f"it was killed after {outcome.seconds:.1f} s"
    assert outcome.peak_mib <= PEAK_MIB, f"{outcome.peak_mib:.0f} MiB"
    assert not set(UNSAFE.findall(outcome.text("out"))), "raw on stdout"
    raw = {char for char in outcome.text("err") if char != "\n" and not char.isprintable()}
    assert not raw, f"raw {sorted(raw)!r} on stderr"


def check_lines(case: Case, outcome: Outcome, steps: int) -> None:
    """Prove that the report, on stderr here, is whole in its style."""
    lines = [line for line in outcome.text("err").splitlines() if not line.startswith("httphases: ")]
    if case.style == ():
        assert f"Step {steps}: " in outcome.text("err")
        return
    parse = parse_metrics if case.style == ("--metrics-only",) else parse_compact
    assert [parse(line)["step"] for line in lines] == [str(number + 1) for number in range(steps)]


def check_case(case: Case, outcome: Outcome) -> dict[str, Any]:
    """Prove that a case ended as its table says; return its JSON document."""
    check_manners(outcome)
    assert outcome.code == case.expected_code, (outcome.code, outcome.err[-2000:])
    document = check_document(json.loads(outcome.text("out")))
    last = document["steps"][-1]
    error = last["error"] or {"kind": None, "phase": None, "message": "", "hint": None}
    assert error["kind"] == case.kind, error
    assert case.phase in (None, error["phase"]), error
    assert case.hint in (error["hint"] or ""), error
    check_lines(case, outcome, document["total_steps"])
    assert case.says.lower() in (error["message"] + outcome.text("err")).lower()
    if case.status is not None:
        assert last["response"]["status"] == case.status
    if case.size is not None:
        assert last["response"]["bytes"] == case.size
    if case.steps is not None:
        assert document["total_steps"] == case.steps
    return document
