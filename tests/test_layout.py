"""The shape of tool.py: what its docstring promises to a reader holds, so that it cannot rot unnoticed."""

from __future__ import annotations

import ast
import collections
import dis
import inspect
import re

from conftest import TOOL
from inside import tool

SOURCE = TOOL.read_text("utf-8")
TREE, CODE = ast.parse(SOURCE), compile(SOURCE, "tool.py", "exec", dont_inherit=True)
BANNER = re.compile(r"^# -----.*\n# (\d+)([a-z]?)\. \w[\w/ ]*[.,] ", re.MULTILINE)
SECTIONS = [(int(number), letter) for number, letter in BANNER.findall(SOURCE)]


def bindings(node):
    """Yield each name of the module that is bound in a part of it, with its line."""
    for child in ast.iter_child_nodes(node):
        name = getattr(child, "name", None)
        inner = not isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.AugAssign))
        if isinstance(child, ast.alias):
            name = (child.asname or child.name).partition(".")[0]
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            name = child.id
        if name in vars(tool):
            yield name, getattr(child, "lineno", 0) or node.lineno  # an alias has one from Python 3.10 on
        yield from bindings(child) if inner else ()


def functions_in(code):
    """Yield all functions within a part of the program, and itself if it is one."""
    if code.co_flags & inspect.CO_OPTIMIZED:
        yield code
    for each in code.co_consts:
        if inspect.iscode(each):
            yield from functions_in(each)


def test_every_name_is_defined_above_its_use():
    """What is used outside of functions is used at once."""
    defined, below = dict(reversed([*bindings(TREE)])), []
    for outer in filter(inspect.iscode, CODE.co_consts):
        steps = (step for each in functions_in(outer) for step in dis.get_instructions(each))
        used = {step.argval for step in steps if step.opname == "LOAD_GLOBAL"}
        late = (name for name in used & {*defined} if defined[name] > outer.co_firstlineno)
        below += [f"{outer.co_name} in line {outer.co_firstlineno} uses {name}" for name in late]
    assert len(defined) > 500 and not below, "\n".join(below)


def test_no_name_is_given_twice():
    """The second constant of a name would be the first one's value too, by the time it is used."""
    simple = [node for node in TREE.body if not isinstance(node, (ast.If, ast.Try, ast.For, ast.With))]
    bound = [name for name, _ in bindings(ast.Module(simple, []))]
    assert sorted({name for name in bound if bound.count(name) > 1}) == []


def test_no_local_name_is_one_of_the_module():
    """Who looks for one of the two would find the other."""
    own = [(each.co_name, {*each.co_varnames, *each.co_cellvars}) for each in functions_in(CODE)]
    assert [(name, names & {*vars(tool)}) for name, names in own if names & {*vars(tool)}] == []


def test_every_name_of_the_module_is_used():
    """What nobody needs goes: a name that stands in the file once is dead."""
    words = collections.Counter(re.findall(r"\w+", SOURCE))
    assert {name for name, _ in bindings(TREE) if words[name] < 2} == {"annotations"}  # of __future__


def test_the_sections_are_numbered_in_order():
    assert sorted(set(SECTIONS)) == SECTIONS
    assert sorted({number for number, _ in SECTIONS}) == list(range(1, SECTIONS[-1][0] + 1))


def test_the_map_in_the_docstring_lists_every_section():
    listed = {int(number) for number in re.findall(r"(?<![\d.])(\d{1,2}) [A-Z]", ast.get_docstring(TREE))}
    assert listed == {number for number, _ in SECTIONS}


def test_no_function_is_longer_than_60_lines():
    functions = [node for node in ast.walk(TREE) if isinstance(node, ast.FunctionDef)]
    assert [each.name for each in functions if each.end_lineno - each.lineno >= 60] == []


def test_no_section_is_longer_than_450_lines():
    starts = [match.start() for match in BANNER.finditer(SOURCE)]
    assert max(SOURCE[begun:end].count("\n") for begun, end in zip(starts, [*starts[1:], None])) <= 450


def test_no_conditional_expression_stands_within_another():
    choices = [node for node in ast.walk(TREE) if isinstance(node, ast.IfExp)]
    within = [each.lineno for node in choices for each in ast.walk(node) if isinstance(each, ast.IfExp)]
    assert len(within) == len(choices), within


def test_python_3_7_can_parse_it_so_that_it_says_in_a_line_that_it_is_too_old():
    """Python 3.6 cannot: it does not know the annotations that stay text, which save every start some ms."""
    ast.parse(SOURCE, feature_version=(3, 7))
