"""Say what each of tool.py's timing devices is worth: its errors against the packets, with and without it.

A device is a line or two whose only purpose is a truer time. Here each is taken out of a copy of tool.py, and
both are asked in turn, in one run, on the path of accuracy.py. A device whose rows are no worse without it is
to go from tool.py, and from the table below.
"""

from __future__ import annotations

import functools
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import accuracy
import common


class Device(NamedTuple):
    """What makes it work in tool.py, what stands there without it, and where its worth shows."""

    text: str
    without: str
    protocol: str
    busy: bool
    phases: tuple[str, ...]


BEGIN = "self._stream.begin(above.to_send)"
NOTE = "answered = hop.note_opened(departed)"
FLIGHT = f"departed = {BEGIN}\n            {NOTE}"
NO_FLIGHT = f"departed = time.perf_counter_ns()\n            {NOTE}\n            {BEGIN}"
DEVICES = {
    "the end of the handshake is held for the request": Device(
        "self._send(HOLD_FLAGS)", "self._send()", "https HTTP/1.1", False, ("tls", "wait")
    ),
    "the first flight leaves before the books are kept": Device(
        FLIGHT, NO_FLIGHT, "https HTTP/1.1", False, ("connect", "tls", "wait")
    ),
    "the wake-up is divided between connect and wait": Device(
        "return departed - min((departed - answered) // 2, WAKE_UP_NS // 2)",
        "return answered",
        "http",
        False,
        ("connect", "wait"),
    ),
    "no delay of small segments": Device(
        "options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY)]",
        "options = []",
        "https HTTP/1.1",
        False,
        ("wait",),
    ),
    "the resolver is warmed up": Device("        warm_lookup()\n", "        pass\n", "http", False, ("dns",)),
    "sockets are made before the clock": Device(
        "self._spare[family] = open_socket(family, interface)", "pass", "http", False, ("dns", "connect")
    ),
    "naps before the clock": Device(
        "NAPS, NAP_SECONDS = 20,", "NAPS, NAP_SECONDS = 0,", "http", True, ("dns", "connect", "wait")
    ),
    "the kernel's time of arrival": Device(
        "options.append((socket.SOL_SOCKET, SO_TIMESTAMPNS))", "pass", "http", True, ("wait", "xfer", "ttfb")
    ),
    "the kernel's sample of the round trip": Device(
        "return begun + rtt * 1000", "return noticed", "https HTTP/1.1", True, ("connect", "tls")
    ),
}


def without(device: Device, program: Path, folder: Path) -> str:
    """Write a copy of the program that lacks a device; return its path."""
    source = program.read_text("utf-8")
    if source.count(device.text) != 1:
        common.give_up(f"{program} has not once: {device.text}")
    copy = folder / "without.py"
    copy.write_text(source.replace(device.text, device.without), "utf-8")
    return str(copy)


def rows(
    name: str, device: Device, results: dict[str, list[tuple[accuracy.Times, accuracy.Times]]]
) -> list[list[str]]:
    """Return a row a phase: median and 95th percentile of the errors, with the device and without."""
    found = []
    for phase in device.phases:
        errors = {
            program: sorted(abs(reported[phase] - true[phase]) for reported, true in runs)
            for program, runs in results.items()
        }
        cells = []
        for pick in (statistics.median, lambda values: values[math.ceil(len(values) * 0.95) - 1]):
            ours, theirs = pick(errors["with"]), pick(errors["without"])
            cells += [f"{ours:.3f}", f"{theirs:.3f}"]
        found.append([name, device.protocol, "busy" if device.busy else "idle", phase, *cells])
    return found


def main() -> None:
    """Measure every device and print the table."""
    options = common.parse_arguments(
        "Compare httphases with copies of it that each lack a timing device (Linux, root).",
        20,
        sys.executable,
    )
    table = []
    with (
        tempfile.TemporaryDirectory() as name,
        accuracy.laboratory(Path(name)) as (way, urls, certificate, capture),
    ):
        trust = ["--cacert", str(certificate)]
        for title, device in DEVICES.items():
            programs = {
                kind: functools.partial(accuracy.ask_httphases, way, options.python, program, trust)
                for kind, program in (
                    ("with", options.program),
                    ("without", without(device, Path(options.program), Path(name))),
                )
            }
            with accuracy.load(device.busy):
                results = accuracy.compare(programs, urls[device.protocol], options.rounds, capture)
            table += rows(title, device, results)
    print(f"absolute errors against the packets in ms, {options.rounds} interleaved runs of each")
    common.print_table(
        ["device", "protocol", "cores", "phase", "with", "without", "with p95", "without p95"], table
    )


if __name__ == "__main__":
    main()
