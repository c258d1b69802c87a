"""Change tool.py in one place at a time, at random from a seed, and see whether a test notices.

    .venv/bin/python tests/mutants.py --count 100 --seed 7              # all sections
    .venv/bin/python tests/mutants.py --count 30 --seed 7 --section Proxies --jobs 4

A mutant is tool.py with one comparison turned, one condition negated, one number moved by one, and so on (see
`Finder`). It is held against the test files of its section (`KILLERS`), one after the other, until a test
fails. A mutant that fails no test has survived: a test is missing, or what was changed does not matter.
Survivors are listed with their line, section and kind, and the change.

A test must fail twice, since one failure may be the machine's. At the end of `--limit` (seconds for each
test file) a mutant counts as killed: something hangs. `--tests` names the test files to hold mutants against.
Each job works in a copy of the project of its own.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("tool.py", "tests", "pyproject.toml", "README.md", "LICENSE", "build_zipapp.sh")
BANNER = re.compile(r"# \d+[a-z]?\. (\w[\w/ ]*?)[.,] ")
KILLERS = {  # first word of a banner -> the files of tests/ that know most of its section
    "Imports": "test_startup test_failures test_terminal",
    "Numbers": "test_formats test_series",
    "Errors": "test_failures test_exit_codes",
    "Records": "test_json test_findings test_series test_slo test_redirects test_properties test_routes",
    "Foreign": "test_hostile_text test_secrets test_formats test_properties test_response_facts",
    "Local": "test_planted_files test_other_systems test_files_and_signals test_cli",
    "Budgets": "test_slo test_versus",
    "Names": "test_routes test_names test_redirects test_proxies test_properties hostile/test_redirects",
    "Arguments": "test_cli test_curl test_otlp test_routes test_secrets test_properties test_planted_files",
    "Credentials": "test_secrets test_cli test_proxies",
    "Identity": "test_identity test_unix_socket test_interface",
    "Baseline": "test_baseline",
    "Command": "test_cli test_curl test_identity",
    "Options": "test_cli test_curl test_otlp test_identity test_series test_versus test_redirects test_slo",
    "Sides": "test_versus test_secrets",
    "Clock": "test_history test_findings test_json test_deadline test_reuse test_timing_truth",
    "Certificates": "test_certificates test_properties hostile/test_tls",
    "Failures": (
        "test_failures test_tls test_deadline test_names test_stuck hostile/test_names hostile/test_proxies"
    ),
    "Alerts": "test_tls test_certificates test_failures test_identity",
    "Lookup": "test_names test_addresses test_stuck hostile/test_names",
    "Streams": (
        "test_http1 test_tls hostile/test_tls test_timing_truth test_findings "
        "test_certificates hostile/test_http1"
    ),
    "Workers": "test_stuck test_deadline hostile/test_system",
    "TLS": "test_tls test_certificates test_identity hostile/test_tls hostile/test_system",
    "Messages": "test_http1 test_response_facts hostile/test_http1 test_properties",
    "Bodies": "test_http1 test_reuse hostile/test_http1",
    "Claims": "test_response_facts test_findings test_properties",
    "Exchanges": (
        "test_http1 test_response_facts test_deadline test_proxies test_stuck hostile/test_http1 test_http2"
    ),
    "HTTP/2": "test_http2 hostile/test_http2 test_reuse",
    "Hops": (
        "test_addresses test_tls test_failures test_unix_socket test_interface test_deadline test_findings "
        "test_timing_truth hostile/test_tls hostile/test_names hostile/test_system"
    ),
    "Proxies": "test_proxies hostile/test_proxies",
    "Way": "test_addresses test_http2 test_proxies test_reuse test_tls test_failures test_stuck",
    "Step": (
        "test_json test_http1 test_tls test_findings test_deadline test_stuck test_failures "
        "test_reuse test_good test_response_facts"
    ),
    "Chain": (
        "test_redirects test_deadline test_reuse test_stuck hostile/test_redirects "
        "hostile/test_system test_series"
    ),
    "Statistics": "test_statistics test_series test_reuse test_events test_good",
    "Comparison": "test_versus test_baseline test_backends",
    "Verdict": "test_slo test_exit_codes test_statistics test_series test_certificates",
    "Findings": "test_findings test_body_findings test_lookup_findings test_series test_good test_redirects",
    "Events": "test_events test_series",
    "Words": (
        "test_formats test_json test_series test_slo test_terminal test_versus test_response_facts test_good"
    ),
    "Documents": (
        "test_json test_har test_prometheus test_otlp test_series test_versus test_schema "
        "test_secrets test_good"
    ),
    "Views": (
        "test_formats test_series test_drawing test_versus test_slo test_body_findings test_reuse "
        "test_terminal test_response_facts test_events test_redirects test_statistics"
    ),
    "Painters": "test_terminal test_formats test_hostile_text test_drawing test_slo",
    "Main": (
        "test_files_and_signals test_export_files test_exit_codes test_series test_events "
        "test_terminal test_cli test_otlp test_planted_files test_versus hostile/test_system"
    ),
}
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


# --- mutants --------------------------------------------------------------------------------------


class Mutant(NamedTuple):
    """One change: the bytes `start` to `end` of tool.py become `after`."""

    line: int
    section: str
    kind: str
    function: str
    """Its qualified name, "" within none."""
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        changes = [textwrap.shorten(text, 100) for text in (self.before, self.after)]
        return f"line {self.line}, {self.section}, {self.kind}: {changes[0]} -> {changes[1]}"


COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
TEXTS = (ast.JoinedStr, ast.List, ast.Tuple, ast.Dict)
Change = tuple[str, ast.AST, str]


class Finder:
    """List every mutant of a source: within functions, and not of texts, annotations or help."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.found: list[Mutant] = []
        self.banners = [
            (number, match[1])
            for number, line in enumerate(source.decode().splitlines(), 1)
            for match in [BANNER.match(line)]
            if match
        ]
        self.visit(ast.parse(source), "", False)

    def span(self, node: Any) -> tuple[int, int]:
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()

    def visit(self, node: ast.AST, name: str, inside: bool) -> None:
        """Walk the tree; `name` is that of the definition around a node, `inside` tells of a function."""
        if inside:
            for kind, place, after in self.changes(node):
                start, end = self.span(place)
                section = max((each for each in self.banners if each[0] <= place.lineno), default=(0, "-"))[1]
                self.found.append(
                    Mutant(place.lineno, section, kind, name, start, end, self.text(place), after)
                )
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = f"{name}.{node.name}".strip(".")
        inside = inside or isinstance(node, (ast.FunctionDef, ast.Lambda))
        for child in self.children(node):
            self.visit(child, name, inside)

    def children(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the parts of a node that the program's behaviour hangs on."""
        if isinstance(node, (ast.JoinedStr, ast.AnnAssign)):
            if getattr(node, "value", None):
                yield node.value
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.keyword) and node.arg in ("help", "epilog", "description"):
            return
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield child

    def changes(self, node: ast.AST) -> Iterator[Change]:
        """Yield (kind, what is replaced, by what) for each way to change one node."""
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
            turned = ast.Compare(
                node.left, [COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators
            )
            yield "comparison turned", node, f"({ast.unparse(turned)})"
        elif isinstance(node, ast.BoolOp):
            swapped = ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
            yield "and/or swapped", node, f"({ast.unparse(swapped)})"
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not self.joins(node):
            turned = ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
            yield "arithmetic turned", node, f"({ast.unparse(turned)})"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield "truth turned", node, str(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            yield "number moved", node, repr(node.value + 1)
        elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
            yield "condition negated", node.test, f"(not ({self.text(node.test)}))"
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield "condition negated", test, f"(not ({self.text(test)}))"
        else:
            yield from self.statement(node)

    def statement(self, node: ast.AST) -> Iterator[Change]:
        targets = getattr(node, "targets", [])
        if isinstance(node, ast.Raise) and self.text(node) != "raise NotImplementedError":
            yield "raise dropped", node, "pass"
        elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
            yield "return value lost", node, "return None"
        elif (
            isinstance(node, (ast.AugAssign, ast.Break, ast.Continue))
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
            or (targets and not isinstance(targets[0], (ast.Name, ast.Tuple)))
        ):
            yield "statement dropped", node, "pass"

    @staticmethod
    def joins(node: ast.BinOp) -> bool:
        """Tell whether this puts texts or lists together: any other operator would be a TypeError."""
        return any(
            isinstance(part, TEXTS)
            or (isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes)))
            for part in (node.left, node.right)
        )


def mutate(source: bytes, mutant: Mutant) -> bytes:
    return source[: mutant.start] + mutant.after.encode() + source[mutant.end :]


# --- a copy of the project for each job ----------------------------------------------------------


class Verdict(NamedTuple):
    """What became of a mutant; `killer` is what failed, "" for a survivor."""

    mutant: Mutant
    killer: str
    seconds: float


def copy_project(folder: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
    folder.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def run_tests(folder: Path, names: Sequence[str], limit: float) -> str:
    """Run tests until one fails; return its name, "a hang" at the limit, "" if all pass."""
    # A .pyc would be taken for fresh by the time and size of its source alone.
    process = subprocess.Popen(
        [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", *names],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return "a hang"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    failed = FAILED.search(out)
    if failed:
        return failed[1]
    return "" if process.returncode in (0, 5) else "an import, or the end of pytest itself"


def killer_of(folder: Path, files: Sequence[str], limit: float) -> str:
    """Return the first test that fails twice, "" for none."""
    for file in files:
        failed = run_tests(folder, [file], limit)
        if "::" in failed and not run_tests(folder, [failed], limit):
            failed = run_tests(folder, [file, "--deselect", failed], limit)
        if failed:
            return failed
    return ""


def judge(folders: queue.Queue[Path], source: bytes, mutant: Mutant, options: argparse.Namespace) -> Verdict:
    start, folder = time.monotonic(), folders.get()
    names = options.tests or KILLERS[mutant.section.split()[0]].split()
    try:
        (folder / "tool.py").write_bytes(mutate(source, mutant))
        files = [f"tests/{name.removesuffix('.py')}.py" for name in names]
        return Verdict(mutant, killer_of(folder, files, options.limit), time.monotonic() - start)
    finally:
        folders.put(folder)


# --- the run --------------------------------------------------------------------------------------


def choose(source: bytes, options: argparse.Namespace) -> list[Mutant]:
    """Draw the mutants of this seed, of those that are Python at all."""
    found = [each for each in Finder(source).found if options.section.lower() in each.section.lower()]
    random.Random(options.seed).shuffle(found)
    chosen = []
    for mutant in found:
        with contextlib.suppress(SyntaxError):
            compile(mutate(source, mutant), "tool.py", "exec")
            chosen.append(mutant)
        if len(chosen) == options.count:
            break
    return chosen


def table(title: str, verdicts: list[Verdict], what: Any) -> None:
    """Print how many were killed, by `what` of a mutant."""
    print(f"\n{title:<24} killed survived")
    groups = collections.defaultdict(list)
    for verdict in verdicts:
        groups[what(verdict.mutant)].append(bool(verdict.killer))
    for name, killed in sorted(groups.items()):
        print(f"{name:<24} {sum(killed):>6} {len(killed) - sum(killed):>8}")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="how many mutants to try")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--section", default="", help="part of the name of a section of tool.py")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each test file")
    parser.add_argument("--tests", nargs="+", help="files below tests/, in place of all")
    return parser.parse_args(arguments)


def summarize(verdicts: list[Verdict], seconds: float) -> int:
    """Print how it went; return the number of survivors."""
    survivors = [verdict for verdict in verdicts if not verdict.killer]
    table("kind", verdicts, lambda mutant: mutant.kind)
    table("section", verdicts, lambda mutant: mutant.section)
    print(f"\n{len(verdicts) - len(survivors)} killed, {len(survivors)} survived, {seconds:.0f} s")
    for verdict in sorted(survivors, key=lambda verdict: verdict.mutant.line):
        print(f"  {verdict.mutant}")
    return len(survivors)


def main() -> int:
    """Try the mutants that the command line asks for; return 1 when any survived."""
    options, start = parse(), time.monotonic()
    source = (ROOT / "tool.py").read_bytes()
    verdicts: list[Verdict] = []
    folders: queue.Queue[Path] = queue.Queue()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        for number in range(options.jobs):
            folders.put(copy_project(Path(place, str(number))))
        with ThreadPoolExecutor(options.jobs) as pool:
            mutants = choose(source, options)
            waiting = [pool.submit(judge, folders, source, mutant, options) for mutant in mutants]
            for each in as_completed(waiting):
                verdict = each.result()
                verdicts.append(verdict)
                end = f"killed by {verdict.killer}" if verdict.killer else "SURVIVED"
                print(f"{verdict.seconds:5.0f} s  {verdict.mutant}: {end}", flush=True)
    return min(summarize(verdicts, time.monotonic() - start), 1)


if __name__ == "__main__":
    sys.exit(main())
