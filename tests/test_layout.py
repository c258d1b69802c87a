"""The shape of tool.py: what its docstring promises to a reader holds, so that it cannot rot unnoticed."""

from __future__ import annotations

import ast
import re

from conftest import TOOL

SOURCE = TOOL.read_text("utf-8")
TREE = ast.parse(SOURCE)
BANNER = re.compile(r"^# -----.*\n# (\d+)([a-z]?)\. \w[\w/ ]*[.,] ", re.MULTILINE)
SECTIONS = [(int(number), letter) for number, letter in BANNER.findall(SOURCE)]
FUNCTIONS = [
    node for node in ast.walk(TREE) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
]
DEFINITIONS = [node for node in FUNCTIONS if not isinstance(node, ast.Lambda)]


# --- rule 1: upward only --------------------------------------------------------------------------


def flat(nodes):
    """Yield the statements of the module, those within if, try, for and with at its top level too."""
    for node in nodes:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.For, ast.With)):
            for part in ("body", "orelse", "finalbody"):
                yield from flat(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield handler
                yield from flat(handler.body)


STATEMENTS = list(flat(TREE.body))
COMPOUND = (ast.If, ast.Try, ast.For, ast.With, ast.ExceptHandler)
SIMPLE = [node for node in STATEMENTS if not isinstance(node, COMPOUND)]


def module_names():
    """Return where each name of the module is first bound."""
    names = {}
    for node in STATEMENTS:
        for name in bound_by(node):
            names.setdefault(name, node.lineno)
    return names


def bound_by(node):
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign):
        names = [name for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        return [name.id for name in names if isinstance(name.ctx, ast.Store)]
    if isinstance(node, ast.ExceptHandler):
        return [node.name] if node.name else []
    if isinstance(node, (ast.AnnAssign, ast.For)) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def used_names(node):
    """Yield every Name that is read within `node`, except in annotations, which are text at run time."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                yield child
            if isinstance(child, ast.AST):
                yield from used_names(child)


def local_names(node):
    """Return the names that are bound inside a function or class: arguments, targets, nested definitions."""
    names = set()
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            names.add(each.arg)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            names.add(each.id)
        elif isinstance(each, ast.ExceptHandler) and each.name:
            names.add(each.name)
        elif each is not node:
            names.update(bound_by(each))
    return names


def test_every_name_is_defined_above_its_use():
    defined = module_names()
    below = []
    for node in SIMPLE:
        own = local_names(node) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else set()
        for name in used_names(node):
            first = defined.get(name.id)
            itself = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and name.id == node.name
            if name.id not in own and not itself and first is not None and first >= node.lineno:
                below.append(f"line {name.lineno} uses {name.id} of line {first}")
    assert not below, "\n".join(below)


def test_no_name_is_given_twice():
    """The second constant of a name would be the first one's value too, by the time it is used."""
    bound = [name for node in TREE.body for name in bound_by(node)]
    assert sorted({name for name in bound if bound.count(name) > 1}) == []


def test_no_local_name_is_one_of_the_module():
    """Who looks for one of the two would find the other."""
    shared = {name for node in ast.walk(TREE) if isinstance(node, ast.Global) for name in node.names}
    defined = set(module_names()) - shared
    assert [(node.lineno, name) for node in FUNCTIONS for name in local_names(node) & defined] == []


def test_every_definition_is_used():
    """What nobody needs goes: a name that stands in the file once is dead."""
    words = re.findall(r"\w+", SOURCE)
    top = [node.name for node in TREE.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    assert [name for name in top if words.count(name) < 2] == []


# --- sections -------------------------------------------------------------------------------------


def test_the_sections_are_numbered_in_order():
    assert sorted(set(SECTIONS)) == SECTIONS
    assert sorted({number for number, _ in SECTIONS}) == list(range(1, SECTIONS[-1][0] + 1))


def test_the_map_in_the_docstring_lists_every_section():
    listed = {int(number) for number in re.findall(r"(?<![\d.])(\d{1,2}) [A-Z]", ast.get_docstring(TREE))}
    assert listed == {number for number, _ in SECTIONS}


# --- functions ------------------------------------------------------------------------------------


def test_no_function_is_longer_than_60_lines():
    assert [node.name for node in DEFINITIONS if node.end_lineno - node.lineno >= 60] == []


def test_no_section_is_longer_than_450_lines():
    starts = [match.start() for match in BANNER.finditer(SOURCE)]
    assert max(SOURCE[begun:end].count("\n") for begun, end in zip(starts, [*starts[1:], None])) <= 450


def test_no_conditional_expression_stands_within_another():
    choices = [node for node in ast.walk(TREE) if isinstance(node, ast.IfExp)]
    within = [each.lineno for node in choices for each in ast.walk(node) if isinstance(each, ast.IfExp)]
    assert len(within) == len(choices), within


def test_a_docstring_starts_with_one_sentence():
    wrong = []
    for node in [*DEFINITIONS, *(n for n in ast.walk(TREE) if isinstance(n, ast.ClassDef))]:
        first = (ast.get_docstring(node) or "Fine.").split("\n\n")[0]
        if not re.search(r"[.:;][\"')]*\s*$", first) or not (first[0].isupper() or first[0] == "`"):
            wrong.append((node.name, first))
    assert wrong == []


def test_python_3_7_can_parse_it_so_that_it_says_in_a_line_that_it_is_too_old():
    """Python 3.6 cannot: it does not know the annotations that stay text, which save every start some ms."""
    ast.parse(SOURCE, feature_version=(3, 7))
