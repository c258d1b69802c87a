"""The table of a hostile family: its cases, and what must hold for all of them."""

from __future__ import annotations

import json
import zlib
from typing import Any, Callable, NamedTuple

from checks import UNSAFE, check_document, parse_compact, parse_metrics
from conftest import Result
from servers import Peer, Script

PEAK_MIB = 100
SHORT, FAR, LONG = 0.4, 1.0, 30.0
"""The -m of a case that is to run into it, of one that is to come to some phase before, and of one that is to
end without."""
STYLES = (("--metrics-only",), ("--compact",), ())


class Case(NamedTuple):
    """One thing that can be done to the program, and what it must make of it.

    `script` holds the server's conversation; bytes are sent after the request was read, to the letter, and
    then the connection is closed. `over` is how the server is reached: "http", "https" or "h2" (TLS with that
    ALPN), or "raw" (an https URL, but no TLS below the script). `kind` is that of the last step's error, None
    for a success, and `code` the exit code where it is not that kind's. `phase` is the error's; `says` are
    words that its message or stderr must hold, `hint` those of its hint. What is large, or without end, is
    played `apart`, in a process whose memory is measured.
    """

    name: str
    script: bytes | Script
    kind: str | None = "protocol"
    status: int | None = None
    size: int | None = None
    options: tuple[str, ...] = ()
    over: str = "http"
    url: str = "{scheme}://127.0.0.1:{port}/"
    code: int | None = None
    steps: int | None = None
    says: str = ""
    phase: str | None = None
    hint: str = ""
    apart: bool = False

    @property
    def max_time(self) -> float:
        if self.kind != "timeout":
            return LONG
        return FAR if self.phase or self.status or self.size or self.says else SHORT

    @property
    def expected_code(self) -> int:
        return self.code if self.code is not None else 75 if self.kind else 0

    @property
    def style(self) -> tuple[str, ...]:
        """A style for each case, so that every style meets many."""
        return STYLES[zlib.crc32(self.name.encode()) % len(STYLES)]


def talk(*parts: bytes, first: Callable[[Peer], Any] = Peer.read_request, end: str = "close") -> Script:
    """Read what the client says first, send the parts, then close, hold or reset the connection."""

    def script(peer: Peer) -> None:
        first(peer)
        for part in parts:
            peer.send(part)
        if end == "hold":
            peer.wait(60)
        if end == "reset":
            peer.reset()

    return script


def flood(
    start: bytes, unit: bytes, pause: float = 0.0, first: Callable[[Peer], Any] = Peer.read_request
) -> Script:
    """Read what the client says first, send `start`, then `unit` until it goes away."""

    def script(peer: Peer) -> None:
        first(peer)
        peer.send(start)
        while not peer.wait(pause):
            peer.send(unit)

    return script


def check_manners(result: Result) -> None:
    """Prove what holds for every run, whatever was done to it."""
    assert result.peak_mib <= PEAK_MIB, f"{result.peak_mib:.0f} MiB"
    assert not UNSAFE.search(result.out), "raw on stdout"
    raw = {char for char in result.err if char != "\n" and not char.isprintable()}
    assert not raw, f"raw {sorted(raw)!r} on stderr"


def check_lines(case: Case, result: Result, steps: int) -> None:
    """Prove that the report, on stderr here, is whole in its style."""
    lines = [line for line in result.err.splitlines() if not line.startswith("httphases: ")]
    if case.style == ():
        assert f"Step {steps}: " in result.err
        return
    parse = parse_metrics if case.style == ("--metrics-only",) else parse_compact
    assert [parse(line)["step"] for line in lines] == [str(number + 1) for number in range(steps)]


def check_case(case: Case, result: Result) -> dict[str, Any]:
    """Prove that a case ended as its table says; return its JSON document."""
    check_manners(result)
    assert result.code == case.expected_code, (result.code, result.err[-2000:])
    document = check_document(json.loads(result.out))
    last = document["steps"][-1]
    error = last["error"] or {"kind": None, "phase": None, "message": "", "hint": None}
    assert error["kind"] == case.kind, error
    assert case.phase in (None, error["phase"]), error
    assert case.hint in (error["hint"] or ""), error
    check_lines(case, result, document["total_steps"])
    assert case.says.lower() in (error["message"] + result.err).lower()
    assert case.status in (None, last["response"] and last["response"]["status"])
    assert case.size in (None, last["response"] and last["response"]["bytes"])
    assert case.steps in (None, document["total_steps"])
    return document
