"""Change tool.py in one place at a time, at random from a seed, and see whether a test notices.

    .venv/bin/python tests/mutants.py --count 100 --seed 7              # all sections
    .venv/bin/python tests/mutants.py --count 30 --seed 7 --section Proxies --jobs 4

A mutant is tool.py with one comparison turned, one condition negated, one number moved by one, and so on (see
`Finder`). A mutant that fails no test has survived: a test is missing, or what was changed does not matter.
Survivors are listed with their line, section and kind, and the change.

First every test runs once with a copy of tool.py that notes which functions it enters; this takes minutes,
and is kept in the folder for temporary files until tool.py or the test's file changes. A mutant is then held
against the tests that enter its function: those of its section's files (`KILLERS`) and those that enter
little else come first, the quickest first of all. A test must fail twice, since one failure may be the
machine's. Tests that look at the text of tool.py or at an archive have no part in this (`NOT_KILLERS`), nor
have tests that fail or are skipped here.

`--limit` is in seconds, for each mutant. At its end a mutant counts as killed when the running test hangs
because of it, and else as a survivor, of as many tests as the list says. `--tests` names the test files to
hold mutants against, in place of all. Each job works in a copy of the project of its own.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import hashlib
import json
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
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("tool.py", "tests", "pyproject.toml", "README.md")
STORE = Path(tempfile.gettempdir(), f"httphases-mutants-{os.getuid()}")
BANNER = re.compile(r"# \d+[a-z]?\. (\w[\w/ ]*?)[.,] ")
KILLERS = {  # first word of a section's banner -> the files of tests/ that know most of it
    "Imports": "test_startup test_failures",
    "Foreign": "test_hostile_text test_secrets",
    "Local": "test_planted_files test_other_systems test_files_and_signals test_cli",
    "Budgets": "test_slo",
    "Names": "test_routes test_names",
    "Routes": "test_routes test_redirects test_proxies",
    "Arguments": "test_cli test_curl",
    "Identity": "test_identity test_unix_socket test_interface",
    "Command": "test_cli test_curl test_identity",
    "Clock": "test_history test_findings test_json",
    "Certificates": "test_certificates",
    "Failures": "test_failures test_tls",
    "Alerts": "test_tls test_certificates test_failures test_identity",
    "Lookup": "test_names test_addresses",
    "Streams": "test_http1 test_tls test_timing_truth",
    "TLS": "test_tls test_certificates test_identity",
    "Messages": "test_http1",
    "Claims": "test_response_facts",
    "Exchanges": "test_http1 test_response_facts",
    "HTTP/2": "test_http2 hostile/test_http2 test_reuse",
    "Hops": "test_addresses test_tls test_failures test_unix_socket test_interface",
    "Proxies": "test_proxies hostile/test_proxies",
    "Way": "test_addresses test_http2 test_proxies test_reuse",
    "Step": "test_json test_http1 test_tls",
    "Chain": "test_redirects test_deadline test_reuse",
    "Statistics": "test_statistics test_series",
    "Verdict": "test_slo test_exit_codes test_statistics test_series",
    "Findings": "test_findings",
    "Words": "test_formats test_json test_series",
    "Documents": "test_json test_har test_series",
    "Views": "test_formats test_terminal test_series",
    "Painters": "test_terminal test_formats test_hostile_text",
    "Main": "test_files_and_signals test_export_files test_exit_codes test_series",
}
NOT_KILLERS = ("test_layout.py", "test_zipapp.py", "test_install.py", "hosts/")
FEW = 20
"""A test that enters so few functions is about them, whatever its file."""
HANGS = 5, 20.0
"""A test hangs when it takes so many times as long as it did, and so many seconds more."""


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


# --- within pytest: a process of its own ----------------------------------------------------------


class Recorder:
    """A plugin of pytest: choose and order the tests, and write down how each went, as it goes."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.order = {name: index for index, name in enumerate(task["tests"])} if task["tests"] else None
        self.trace = Path(task["trace"])
        self.notes = open(task["notes"], "a", encoding="utf-8")  # noqa: SIM115 - until the process ends
        self.reports: list[Any] = []

    def note(self, **values: Any) -> None:
        self.notes.write(json.dumps(values) + "\n")
        self.notes.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.order is not None:
            items[:] = sorted(
                (item for item in items if item.nodeid in self.order),
                key=lambda item: self.order[item.nodeid],
            )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.reports = []
        self.entered()
        self.note(began=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        outcomes = {report.outcome for report in self.reports}
        outcome = next(each for each in ("failed", "skipped", "passed") if each in outcomes)
        seconds = sum(report.duration for report in self.reports)
        self.note(ended=nodeid, outcome=outcome, seconds=round(seconds, 3), functions=self.entered())

    def entered(self) -> list[str]:
        """Return the functions that were entered since the last call, by whichever process."""
        seen = getattr(sys.modules.get("tool"), "_entered", set())
        seen.clear()
        if not self.trace.exists():
            return []
        names = sorted(set(self.trace.read_text("utf-8").split()))
        self.trace.write_bytes(b"")
        return names


def run_here(task: dict[str, Any]) -> None:
    """Run pytest in this process, as `task` says."""
    options = ["-q", "-p", "no:cacheprovider", "--tb=no", *task["options"]]
    sys.exit(pytest.main([*options, *task["files"]], plugins=[Recorder(task)]))


# --- outside: a copy of the project for each job --------------------------------------------------

NOTE = """
_entered = set()
def _note(name):
    if name not in _entered:
        _entered.add(name)
        import os
        try:
            trace = os.open({trace!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            os.write(trace, (name + chr(10)).encode())
            os.close(trace)
        except OSError:
            pass
"""


def noting(source: str, trace: Path) -> str:
    """Return a source whose every function writes its name to `trace` when it is first entered."""
    tree = ast.parse(source)

    def mark(node: ast.AST, name: str) -> None:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = f"{name}.{node.name}".strip(".")
        for child in ast.iter_child_nodes(node):
            mark(child, name)
        if isinstance(node, ast.FunctionDef):
            node.body.insert(int(ast.get_docstring(node) is not None), ast.parse(f"_note({name!r})").body[0])
        elif isinstance(node, ast.Lambda):
            call = ast.parse(f"_note({name!r} + '.lambda')", mode="eval").body
            node.body = ast.BoolOp(ast.Or(), [call, node.body])

    mark(tree, "")
    first = next(index for index, node in enumerate(tree.body) if isinstance(node, ast.ImportFrom))
    tree.body[first + 1 : first + 1] = ast.parse(NOTE.format(trace=str(trace))).body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class Ending(NamedTuple):
    """How a run of some tests ended."""

    code: int | None
    """The exit code of pytest; None at the limit."""
    ended: list[dict[str, Any]]
    """What was noted of each test."""
    running: str | None
    """The test that was running at the limit."""
    since: float
    """For how many seconds it had been."""

    @property
    def failed(self) -> str | None:
        """Return the test that failed, which is the last one of its run."""
        return next((each["ended"] for each in self.ended if each["outcome"] == "failed"), None)


class Copy:
    """A copy of the project, in which one run of pytest after the other works."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.age = 10**9
        self.process: subprocess.Popen | None = None
        self.over = False
        folder.mkdir()
        ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, folder / name)

    def write(self, source: bytes) -> None:
        """Write tool.py, with a time of its own: a .pyc is taken for fresh by its time and size alone."""
        self.age += 10
        (self.folder / "tool.py").write_bytes(source)
        os.utime(self.folder / "tool.py", (self.age, self.age))

    def run(
        self, files: Iterable[str], tests: Sequence[str], limit: float, options: Sequence[str] = ()
    ) -> Ending:
        """Run tests (all of `files` when none are named), for `limit` seconds at most."""
        notes = self.folder / "notes"
        notes.write_bytes(b"")
        task = {
            "files": [f"tests/{name}" for name in files],
            "tests": list(tests),
            "options": [f"--basetemp={self.folder / 'base'}", *options],
            "trace": str(self.folder / "trace"),
            "notes": str(notes),
        }
        (self.folder / "task").write_text(json.dumps(task))
        command = "import json, mutants; mutants.run_here(json.load(open('task')))"
        if self.over:
            raise InterruptedError
        self.process = process = subprocess.Popen(
            [sys.executable, "-c", command],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder / "tests")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(limit)
        late = time.time() - notes.stat().st_mtime
        self.kill()
        read = [json.loads(line) for line in notes.read_text("utf-8").splitlines() if line.endswith("}")]
        running = read[-1].get("began") if read and code is None else None
        return Ending(code, [each for each in read if "ended" in each], running, late)

    def kill(self) -> None:
        """Kill what runs, with all that it started."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def end(self) -> None:
        """Start nothing more, and leave nothing behind."""
        self.over = True
        self.kill()


# --- which tests enter which functions ------------------------------------------------------------


class Test(NamedTuple):
    """A test that passes, and the functions that it enters."""

    name: str
    file: str
    seconds: float
    functions: frozenset[str]


def read_map(copy: Copy, source: bytes, file: str) -> list[Test]:
    """Run a test file with a copy of the program that notes where it is, unless that is known."""
    key = hashlib.sha256(source + (copy.folder / "tests" / file).read_bytes()).hexdigest()[:24]
    kept = STORE / f"{key}.json"
    if not kept.exists():
        copy.write(noting(source.decode(), copy.folder / "trace").encode())
        ended = copy.run([file], [], 900).ended
        unfinished = kept.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(ended))
        unfinished.replace(kept)
        print(f"{file}: {len(ended)} tests", file=sys.stderr, flush=True)
    tests = []
    for each in json.loads(kept.read_text()):
        if each["outcome"] == "passed":
            tests.append(Test(each["ended"], file, each["seconds"], frozenset(each["functions"])))
        elif each["outcome"] == "failed":
            print(f"without a part in this, because it fails here: {each['ended']}", file=sys.stderr)
    return tests


def test_files() -> list[str]:
    names = [str(path.relative_to(ROOT / "tests")) for path in sorted(ROOT.glob("tests/**/test_*.py"))]
    return [name for name in names if not name.startswith(NOT_KILLERS)]


def rounds(mutant: Mutant, tests: Iterable[Test]) -> tuple[list[Test], list[Test]]:
    """Return the tests that enter a mutant's function: the likely killers and the others, quickest first."""
    likely = [f"{name}.py" for name in KILLERS.get(mutant.section.split()[0], "").split()]
    here = {mutant.function, f"{mutant.function}.lambda"}
    reached = sorted((test for test in tests if test.functions & here), key=lambda test: test.seconds)
    first = [test for test in reached if test.file in likely or len(test.functions) <= FEW]
    return first, [test for test in reached if test not in first]


# --- the run --------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """What became of a mutant; `killer` is the test that failed, "" for a survivor."""

    mutant: Mutant
    killer: str
    held: int
    """The number of tests that it passed."""
    of: int
    seconds: float


def judge(copy: Copy, mutant: Mutant, tests: list[Test], limit: float) -> Verdict:
    """Hold a mutant against tests until one fails twice, or hangs, or there are no more."""
    start = time.monotonic()
    parts = rounds(mutant, tests)
    seconds = {test.name: test.seconds for part in parts for test in part}
    killer, held = "", 0
    for part in parts:
        waiting = part
        while waiting and not killer and (left := limit - (time.monotonic() - start)) > 0:
            files = dict.fromkeys(test.file for test in waiting)
            ending = copy.run(files, [test.name for test in waiting], left, ["-x"])
            killer = killer_of(copy, ending, seconds, limit)
            done = {each["ended"] for each in ending.ended}
            held += len(done) - (ending.failed is not None)
            unfinished = ending.failed or ending.code is None
            waiting = [test for test in waiting if test.name not in done] if unfinished else []
    return Verdict(mutant, killer, held, len(seconds), time.monotonic() - start)


def killer_of(copy: Copy, ending: Ending, seconds: dict[str, float], limit: float) -> str:
    """Return what in a run speaks against the mutant, "" for nothing; `seconds` is what each test takes."""
    if ending.failed:
        again = copy.run([file_of(ending.failed)], [ending.failed], limit, ["-x"])
        passes = any(each["outcome"] == "passed" for each in again.ended)
        return "" if passes else ending.failed
    if ending.running:
        hangs = ending.since > HANGS[0] * seconds.get(ending.running, 0) + HANGS[1]
        return f"{ending.running} (hangs)" if hangs else ""
    if ending.code is None or ending.code in (0, 1, 5):  # 5: no such test, where a mutant changes their names
        return ""
    return "an import, or the end of pytest itself"


def file_of(name: str) -> str:
    return name.partition("::")[0].removeprefix("tests/")


def in_parallel(copies: list[Copy], work: Any, items: Iterable[Any]) -> Iterator[Any]:
    """Call work(copy, item) for each item, one at a time in each copy; yield results as they come."""
    waiting, results = collections.deque(items), queue.Queue()
    count = len(waiting)

    def take(copy: Copy) -> None:
        with contextlib.suppress(IndexError):
            while True:
                item = waiting.popleft()
                try:
                    results.put(work(copy, item))
                except Exception as error:
                    results.put(error)

    for copy in copies:
        threading.Thread(target=take, args=(copy,), daemon=True).start()
    for _ in range(count):
        result = results.get()
        if isinstance(result, Exception):
            raise result
        yield result


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
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each mutant")
    parser.add_argument("--tests", nargs="+", help="files below tests/, in place of all")
    return parser.parse_args(arguments)


def try_all(copies: list[Copy], source: bytes, options: argparse.Namespace) -> Iterator[Verdict]:
    """Learn what the tests enter, then yield what becomes of each mutant."""
    tests: list[Test] = []
    files = options.tests or test_files()
    for some in in_parallel(copies, lambda copy, file: read_map(copy, source, file), files):
        tests += some
    mutants = choose(source, options)
    print(f"{len(mutants)} mutants, {len(tests)} tests", flush=True)

    def work(copy: Copy, mutant: Mutant) -> Verdict:
        copy.write(mutate(source, mutant))
        return judge(copy, mutant, tests, options.limit)

    yield from in_parallel(copies, work, mutants)


def summarize(verdicts: list[Verdict], seconds: float) -> int:
    """Print how it went; return the number of survivors."""
    survivors = [verdict for verdict in verdicts if not verdict.killer]
    table("kind", verdicts, lambda mutant: mutant.kind)
    table("section", verdicts, lambda mutant: mutant.section)
    print(f"\n{len(verdicts) - len(survivors)} killed, {len(survivors)} survived, {seconds:.0f} s")
    for verdict in sorted(survivors, key=lambda verdict: verdict.mutant.line):
        print(f"  {verdict.mutant} (passed {verdict.held} of the {verdict.of} tests that enter it)")
    return len(survivors)


def main() -> int:
    """Try the mutants that the command line asks for; return 1 when any survived."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    start = time.monotonic()
    source = (ROOT / "tool.py").read_bytes()
    STORE.mkdir(mode=0o700, exist_ok=True)
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, contextlib.ExitStack() as running:
        copies = [Copy(Path(folder, str(number))) for number in range(options.jobs)]
        for copy in copies:
            running.callback(copy.end)
        for verdict in try_all(copies, source, options):
            verdicts.append(verdict)
            end = f"killed by {verdict.killer}" if verdict.killer else f"SURVIVED {verdict.held}/{verdict.of}"
            print(f"{verdict.seconds:5.0f} s  {verdict.mutant}: {end}", flush=True)
    return min(summarize(verdicts, time.monotonic() - start), 1)


if __name__ == "__main__":
    sys.exit(main())
