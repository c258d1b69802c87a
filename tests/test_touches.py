"""What TOUCHES.md says that the program touches, and what its syntax tree says: each holds the other to it.

TOUCHES.md lists, by kind, the calls that count, and every function that makes one, with its calls. Whatever
the code takes from a module through which anything can be touched has to stand in one of its two lists: of
what counts, or of what does not.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
import subprocess
import sys

import pytest

from checks import calm
from conftest import PATIENCE, TOOL
from servers import Reply, http_server

SOURCE = TOOL.read_text("utf-8")
README = (TOOL.parent / "README.md").read_text("utf-8")
TOUCHES = (TOOL.parent / "tests" / "TOUCHES.md").read_text("utf-8")
WATCHED = ("_thread", "gc", "http_client", "io", "mmap", "os", "signal", "socket", "ssl", "sys", "threading")
"""Modules of which TOUCHES.md has to list all that the code takes, but for constants."""

Touched = dict[tuple[str, str], set[str]]
"""The calls of each function, by its qualified name and their kind."""


# --- the text -------------------------------------------------------------------------------------


def chapter(text, title):
    """Return a chapter, or a part of one."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,3}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[2]


def rows(text):
    """Return the cells of the tables in a text, without their headings."""
    lines = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    return [line.split(" | ") for line in lines if not re.match(r"(Function|Kind|Entry) \|", line)]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def read_calls(text):
    """Return the kind of each call that counts, and what does not count."""
    table = rows(chapter(text, "The calls that count"))
    kinds = {call: row[0] for row in table for call in quoted(row[1])}
    assert len(kinds) == sum(len(quoted(row[1])) for row in table), "a call stands in two rows"
    return {call: kind for call, kind in kinds.items() if kind != "none of these"}, {
        call for call, kind in kinds.items() if kind == "none of these"
    }


def read_table(text):
    """Return what the table says that each function does."""
    said: Touched = {}
    for functions, kind, calls, why in rows(chapter(text, "Every function that makes one")):
        assert why.strip()
        for function in quoted(functions):
            assert (function, kind) not in said, f"{function} has two rows of one kind"
            said[function, kind] = set(quoted(calls))
    return said


# --- the syntax tree ------------------------------------------------------------------------------


def dotted(node):
    """Return a name with dots; a dot at its beginning stands for what is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def by_getattr(node):
    """Return what getattr() takes from a module by a name that is written there."""
    if dotted(node.func) == "getattr" and isinstance(node.args[1], ast.Constant):
        return f"{dotted(node.args[0])}.{node.args[1].value}"
    return ""


class Walk(ast.NodeVisitor):
    """Finds the calls that count, by function. What a class or a default does is done by what holds it."""

    def __init__(self, counted):
        self.counted = counted
        self.place = ["<module>"]
        self.classes: list[str] = []
        self.found: Touched = {}
        self.taken: set[str] = set()  # all that is taken from anywhere, by its dotted name

    def note(self, name, called):
        """Take down a name where it counts: as it stands, or its last part, which may have to be called."""
        self.taken.add(name)
        end = "." + name.rpartition(".")[2] if "." in name else ""
        parts = [".".join(name.split(".")[-2:]), end, end + "()" if called else ""]
        for call in dict.fromkeys([name, *parts]):
            if call in self.counted:
                self.found.setdefault((self.place[-1], self.counted[call]), set()).add(call)
                return

    def enter(self, node):
        self.visit_all([*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)])
        outer = [] if self.place[-1] == "<module>" or self.classes else [self.place[-1]]
        self.place.append(".".join([*outer, *self.classes, node.name]))
        self.classes, held = [], self.classes
        self.visit_all(node.body)
        self.classes = held
        self.place.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = enter

    def visit_ClassDef(self, node):
        self.visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self.classes.append(node.name)
        self.visit_all(node.body)
        self.classes.pop()

    def visit_all(self, nodes):
        for node in nodes:
            self.visit(node)

    def visit_AnnAssign(self, node):  # an annotation is text at run time
        self.visit(node.target)
        if node.value:
            self.visit(node.value)

    def visit_Import(self, node):
        for alias in node.names:
            self.imports(alias.name)

    def visit_ImportFrom(self, node):
        self.imports(node.module)

    def imports(self, module):
        self.found.setdefault((self.place[-1], self.counted["import"]), set()).add(f"import {module}")

    def visit_Call(self, node):
        self.note(dotted(node.func), True)
        self.note(by_getattr(node), False)
        if not isinstance(node.func, ast.Name):
            self.visit(node.func.value if isinstance(node.func, ast.Attribute) else node.func)
        self.visit_all([*node.args, *node.keywords])

    def visit_Attribute(self, node):
        self.note(dotted(node), False)
        self.visit(node.value)

    def visit_Name(self, node):
        self.note(node.id, False)

    def visit_Subscript(self, node):
        self.note(dotted(node.value).rpartition(".")[2] + "[]", False)
        self.generic_visit(node)


@functools.cache
def walk(source):
    walked = Walk(read_calls(TOUCHES)[0])
    walked.visit(ast.parse(source))
    return walked


def differences(source, text=TOUCHES):
    """List where table and code are not the same: the functions, with the kind and with both calls."""
    said, done = read_table(text), walk(source).found
    return [
        (f"{function} ({kind})", said.get((function, kind)), done.get((function, kind)))
        for function, kind in sorted(said.keys() | done.keys())
        if said.get((function, kind)) != done.get((function, kind))
    ]


# --- table and code are the same -----------------------------------------------------------------


def test_the_table_has_every_function_that_touches_something_and_no_other():
    assert differences(SOURCE) == []


def test_what_is_taken_from_these_modules_stands_in_one_of_the_lists():
    """Else a call that nobody thought of would count for nothing."""
    counted, uncounted = read_calls(TOUCHES)
    walked = walk(SOURCE)
    parts = {".".join(name.split(".")[: 3 if name.startswith("os.path.") else 2]) for name in walked.taken}
    taken = {name for name in parts if name.partition(".")[0] in WATCHED and "." in name}
    constants = {name for name in taken if re.fullmatch(r"\w+\.[A-Z][A-Z0-9_]*", name)}
    assert taken - constants - counted.keys() - uncounted == {"os.path"} & taken
    assert uncounted - taken == set(), "what is said not to count, and is not used"


def test_no_module_that_is_watched_has_another_name():
    """Under another name, or without its own, what is taken from it would not be seen."""
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            source = getattr(node, "module", None) or ""
            assert source.partition(".")[0] not in WATCHED, ast.unparse(node)
            assert all(alias.asname is None for alias in node.names), ast.unparse(node)
        if isinstance(node, ast.Assign) and dotted(node.value) in WATCHED:
            raise AssertionError(ast.unparse(node))
        if isinstance(node, ast.Call) and node.args and dotted(node.args[0]) in WATCHED:
            assert dotted(node.func) == "getattr" and isinstance(node.args[1], ast.Constant), ast.unparse(
                node
            )
        assert dotted(node) not in ("globals", "__builtins__", "builtins"), ast.unparse(node)


OWN_NAMES = {
    "__annotations__", "__base__", "__dict__", "__exit__", "__import__", "__init__", "__main__", "__name__",
    "__new__", "__radd__", "__set__", "__spec__", "__traceback__", "__version__",
}  # fmt: skip
"""The only names of Python's own in the code. From `__self__`, `__globals__`, `__class__` and their like
every other thing can be reached."""
WAYS_AROUND = {
    "globals", "locals", "builtins", "breakpoint", "attrgetter", "methodcaller", "f_back", "f_builtins",
    "f_globals", "f_locals", "gi_frame", "ag_frame", "cr_frame",
}  # fmt: skip
BY_NAME = {"getattr", "setattr", "vars"}
RECORDS = {
    "args", "cls", "each", "earlier", "own", "sample", "sample.timing", "self", "self.evidence",
    "step.timing", "summary", "timing", "value",
}  # fmt: skip
"""What the code takes a field from by a name that it computes: records of its own."""


@functools.cache
def imported():
    """Return the modules that the code imports, by their full names."""
    nodes = ast.walk(ast.parse(SOURCE))
    return {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


def is_forbidden(name):
    own = isinstance(name, str) and re.fullmatch(r"__\w+__", name)
    return name in WAYS_AROUND or (own and name not in OWN_NAMES)


def is_module(name):
    """Tell whether a dotted name is a module within one that is imported, as argparse._os is."""
    module = next((module for module in imported() if name.startswith(module + ".")), None)
    if not module or name in imported() | {"os.path"}:
        return False
    found = importlib.import_module(module)
    for part in name[len(module) + 1 :].split("."):
        found = getattr(found, part, None)
    return inspect.ismodule(found)


def ways_around(source):
    """List what could reach anything unseen by the table: indirections, and modules under other names."""
    heads = {name.partition(".")[0] for name in imported()} - {"zlib"}  # it computes, and is kept by a record
    after: set[ast.expr] = set()  # what an attribute is taken from, and what gives one by its name
    found = []
    for node in ast.walk(ast.parse(source)):
        wrong = False
        if isinstance(node, ast.Attribute):
            after.add(node.value)
            wrong = is_forbidden(node.attr) or is_module(dotted(node)) or dotted(node.value) == "__spec__"
        elif isinstance(node, ast.Call) and dotted(node.func) in BY_NAME:
            after.update((node.func, node.args[0]))
            constant = all(isinstance(argument, ast.Constant) for argument in node.args[1:2])
            wrong = not constant and ast.unparse(node.args[0]) not in RECORDS
        elif isinstance(node, ast.Constant):
            wrong = isinstance(node.value, str) and is_forbidden(node.value)
        elif isinstance(node, ast.ImportFrom):
            wrong = any(is_forbidden(alias.name) for alias in node.names)
        elif isinstance(node, ast.Name):
            value = isinstance(node.ctx, ast.Load) and node.id in BY_NAME | heads and node not in after
            wrong = value or is_forbidden(node.id)
        elif isinstance(node, ast.Subscript):
            wrong = dotted(node.value).endswith("__dict__")
        if wrong:
            found.append(ast.unparse(node))
    return found


def test_nothing_is_reached_by_a_way_that_the_table_does_not_see():
    assert ways_around(SOURCE) == []


@pytest.mark.parametrize(
    "code",
    [
        "print.__self__.exec('1')",
        "refuse.__builtins__['exec']('1')",
        "getattr(argparse, name)",
        "argparse._os.system('x')",
        "re.enum.sys.modules",
        "box = argparse",
        "globals()['os']",
        "from operator import attrgetter",
    ],
)
def test_a_way_around_is_seen(code):
    assert ways_around(code) != []


def test_ten_entries_name_functions_that_are_there():
    entries = re.findall(r"^(\d+)\. \*\*(.*?)\*\*", chapter(README, "What it touches"), re.MULTILINE)
    assert [number for number, _ in entries] == [str(number) for number in range(1, 11)]
    assert " ".join(chapter(README, "What it touches").split()).count("*Never:*") == 10
    listed = dict(rows(chapter(TOUCHES, "The ten entries of README")))
    titles = [f"{number}. {title}" for number, title in entries]
    assert list(listed) == titles[:9], "all but that of the archive"
    known = functions()
    assert all(map(quoted, listed.values()))
    assert [name for names in listed.values() for name in quoted(names) if name not in known] == []


def functions():
    """Return the first line of each function, by its qualified name."""
    found = {}

    def look(node, before):
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
            name = f"{before}.{child.name}".lstrip(".") if named else before
            if isinstance(child, ast.FunctionDef):
                found[name] = child.lineno
            look(child, name)

    look(ast.parse(SOURCE), "")
    return found


def test_the_docstring_names_the_sections_of_each_kind():
    said = re.findall(r"^    (\w+(?: \w+)*)  +(.*\d.*)$", ast.get_docstring(ast.parse(SOURCE)), re.MULTILINE)
    banners = [
        (number, int(found[1]))
        for number, line in enumerate(SOURCE.splitlines(), 1)
        for found in [re.match(r"# (\d+)[a-z]?\. ", line)]
        if found
    ]
    done, lines = {}, functions()
    for name, kind in walk(SOURCE).found:
        if name != "<module>":
            section = max(number for line, number in banners if line <= lines[name])
            done.setdefault(kind, set()).add(section)
    kinds = {kind: set(map(int, re.findall(r"\d+", where))) for kind, where in said if kind in done}
    assert set(kinds) == {
        "network", "opens files", "looks at files", "changes files",
        "environment", "threads", "signals", "processes",
    }  # fmt: skip
    assert {kind: kinds[kind] - {1} for kind in kinds} == {kind: done[kind] - {1} for kind in kinds}
    assert "code" not in done


# --- what is said never to happen, does not -------------------------------------------------------

LOOKING = {"os.listdir", "os.scandir"}
"""What Python does to find the modules that are imported."""
WATCHER = """
import json, runpy, sys
events = []
def watch(event, arguments):
    if event.partition(".")[0] in ("os", "socket", "subprocess", "shutil", "tempfile", "ctypes", "signal"):
        events.append([event, *map(repr, arguments)])
    if event == "os._exit" or event == "open" and (set("wax+") & set(arguments[1] or "") or arguments[2] & 3):
        events.append([event, *map(repr, arguments)])
sys.argv = sys.argv[1:]
sys.addaudithook(watch)
import os
leave = os._exit
os._exit = lambda code: (sys.stdout.flush(), print(json.dumps(events)), sys.stdout.flush(), leave(code))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def watched(folder, env, *arguments):
    """Run the program and return what Python says that it did: events, each with its arguments."""
    script = folder / "watch.py"
    script.write_text(WATCHER)
    command = [sys.executable, script, TOOL, "--metrics-only", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE, env=env)
    assert (done.returncode, calm(done.stderr.decode())) == (0, "")
    events = json.loads(done.stdout.splitlines()[-1])
    assert events, "the watcher sees nothing"
    return events


def test_no_header_field_but_location_leads_anywhere_and_that_with_l_alone(tmp_path, base_environment):
    """Nor is anything written, removed or started meanwhile."""
    with http_server() as other:
        temptations = [
            ("Alt-Svc", f'h2="127.0.0.1:{other.port}"'),
            ("Refresh", f"0; url={other.url()}"),
            ("Link", f"<{other.url()}>; rel=preload"),
            ("Content-Location", other.url()),
            ("Location", other.url()),
        ]
        with http_server(
            {"/": Reply(302, headers=temptations), "/200": Reply(headers=temptations)}
        ) as server:
            seen = watched(tmp_path, base_environment, server.url("/"))
            seen += watched(tmp_path, base_environment, "-L", server.url("/200"))
            assert other.accepted == 0
            followed = watched(tmp_path, base_environment, "-L", server.url("/"))
            assert other.accepted == 1
    names = {event[0] for event in seen}
    assert names - LOOKING == {"socket.__new__", "socket.connect"}
    places = {event[2] for event in seen if event[0] == "socket.connect"}
    assert places == {repr(("127.0.0.1", server.port))}
    places = [event[2] for event in followed if event[0] == "socket.connect"]
    assert places == [repr(("127.0.0.1", each.port)) for each in (server, other)]
