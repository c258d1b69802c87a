"""What the benchmarks share: finding what they need, measured runs, certificates, steps, tables."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tool.py"
ARCHIVE = ROOT / "dist" / "httphases.pyz"

# Linux counts the memory of the process that starts a program into that program's peak, so programs are
# started by an interpreter as small as can be (8 MiB) and not by the benchmark itself.
LAUNCHER = """
import posix, sys, time
silence = [(posix.POSIX_SPAWN_OPEN, 1, "/dev/null", posix.O_WRONLY, 0)]
begin = time.perf_counter()
child = posix.posix_spawn(sys.argv[1], sys.argv[1:], posix.environ, file_actions=silence)
_, status, used = posix.wait4(child, 0)
wall = time.perf_counter() - begin
print(wall * 1000, (used.ru_utime + used.ru_stime) * 1000, used.ru_maxrss / 1024)
sys.exit(status != 0)
"""


class Cost(NamedTuple):
    """What one whole process took: wall and CPU time in milliseconds, peak memory in MiB."""

    wall: float
    cpu: float
    peak: float


def give_up(message: str) -> NoReturn:
    """Say what the benchmark lacks and leave with exit code 2."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    raise SystemExit(2)


def find_programs(*names: str) -> list[str]:
    """Return the full paths of programs, or give up naming all that are missing."""
    paths = [shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") for name in names]
    missing = [name for name, path in zip(names, paths) if path is None]
    if missing:
        give_up(f"needs {', '.join(missing)}")
    return [path for path in paths if path is not None]


def parse_arguments(description: str, rounds: int, python: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("-n", "--rounds", type=int, default=rounds, help="runs of every case")
    parser.add_argument("--python", default=python, help="the interpreter that runs httphases")
    parser.add_argument("--program", default=str(TOOL), help="the httphases to measure")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not Path(options.program).is_file():
        give_up(f"no such file: {options.program}")
    return options


def plain_environment(**extra: str) -> dict[str, str]:
    """Return the environment without what changes a proxy, a trust store or how Python starts."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "SSL_", "CURL_")) and not name.lower().endswith("_proxy")
    }
    return {**kept, **extra}


def has_module(python: str, module: str) -> bool:
    return (
        subprocess.run([python, "-c", f"import {module}"], check=False, capture_output=True).returncode == 0
    )


def measure(command: Sequence[str], environment: dict[str, str]) -> Cost:
    """Run a program, its output thrown away, and return its cost; its failure ends the benchmark."""
    launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER]
    done = subprocess.run(
        [*launcher, *command],
        env=environment,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}\n{done.stderr}")
    return Cost(*map(float, done.stdout.split()))


def median_cost(costs: Sequence[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs)))


def make_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """Make a certificate for a host and 127.0.0.1 that is its own authority; return (certificate, key)."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    (openssl,) = find_programs("openssl")
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    extensions = (f"subjectAltName=DNS:{host},IP:127.0.0.1", "keyUsage=critical,digitalSignature,keyCertSign")
    command = [
        openssl,
        *request.split(),
        "-subj",
        f"/CN={host}",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    for extension in extensions:
        command += ["-addext", extension]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def ratio(ours: float, theirs: float) -> str:
    """Write ours / theirs as a table cell."""
    return f"{ours / theirs:.2f}" if theirs else "-"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a header: words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    numeric = [all(cell[:1] in "0123456789-" for cell in column) for column in zip(*rows)]
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric)
        ]
        print("  ".join(cells).rstrip())
