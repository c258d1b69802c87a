"""The schema of the JSON export, `httphases.schema.json`: sound, strict, and the same as JSON.md's tables.

`checks.check_schema` holds every document to it that a test's run writes.
"""

from __future__ import annotations

import copy
import re

import pytest

from checks import SCHEMA, check_schema
from conftest import TOOL

jsonschema = pytest.importorskip(
    "jsonschema", reason="jsonschema, which validates documents, is not installed"
)

JSON = (TOOL.parent / "tests" / "JSON.md").read_text("utf-8")
KEYS = "dns_ms connect_ms tls_ms wait_ms xfer_ms ttfb_ms total_ms send_ms".split()
DEFINITIONS = SCHEMA["$defs"]


# --- the schema -----------------------------------------------------------------------------------


def resolved(schema):
    """Return a part of the schema in full, and whether it may be null."""
    for each in schema.get("anyOf", ()):
        if each != {"type": "null"}:
            return resolved(each)[0], True
    if "$ref" in schema:
        return resolved(DEFINITIONS[schema["$ref"].rpartition("/")[2]])
    return schema, "null" in schema.get("type", ())


def fields(schema, path=""):
    """Yield the path of each field below a part of the schema, and that field's own part."""
    schema, _ = resolved(schema)
    if "items" in schema:
        yield from fields(schema["items"], path + "[]")
    values = schema.get("additionalProperties") or {}
    if "properties" in values:  # of an object whose names are data
        yield from fields(values, path)
    for name, part in schema.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        yield here + "[]" * ("items" in resolved(part)[0]), part
        if name != "steps":
            yield from fields(part, here)


OPTIONAL = {
    "trace_id", "side", "sides", "comparisons", "baseline", "baseline_ms", "lookup_ms", "slo", "not_judged",
    "certificate", "reused", "reuse_refused", "idle_ms",
}  # fmt: skip
"""Fields that an option brings; every other one is always there."""


def test_it_is_a_schema_and_strict_everywhere():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def look(part):
        if isinstance(part, dict):
            if part.get("type") == "object":
                assert "additionalProperties" in part
                assert part["additionalProperties"] is False or "properties" not in part
                assert part.get("properties", {}).keys() - {*part.get("required", ())} <= OPTIONAL
            for each in part.values():
                look(each)
        if isinstance(part, list):
            for each in part:
                look(each)

    look(SCHEMA)


def test_every_definition_is_used():
    text = str(SCHEMA)
    assert [name for name in DEFINITIONS if f"'#/$defs/{name}'" not in text] == []


CHANGES = {
    "a field too many": lambda document: document["steps"][0]["network"].update(extra=1),
    "a field too few": lambda document: document["steps"][0]["timing"].pop("send_ms"),
    "null for a number": lambda document: document["steps"][0]["timing"].update(total_ms=None),
    "an instant without its milliseconds": lambda document: document.update(
        started_at="2026-01-01T00:00:00Z"
    ),
    "what is compared with nothing": lambda document: document.update(comparisons=[]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_document_is_refused(call_tool, server, change):
    document = call_tool("--json", "-", server.url()).json()
    changed = copy.deepcopy(document)
    CHANGES[change](changed)
    check_schema(document)
    with pytest.raises(AssertionError):
        check_schema(changed)


# --- JSON.md --------------------------------------------------------------------------------------


def tables():
    """Return the rows of JSON.md's tables of fields: of a single run, a series, a comparison and a step."""
    found = re.findall(r"^\| Field \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", JSON, re.MULTILINE)
    assert len(found) == 4
    return [[line.strip("|\n").split("|") for line in table.splitlines()] for table in found]


def names_of(cell):
    """Return the fields that a first cell names: what the first one is a part of, all are."""
    names = re.findall(r"`([^`]+)`", cell)
    before = re.match(r"(.*\.)?", names[0])[0]
    if " … " in cell:
        names = KEYS
    return [name if name.startswith(before) else before + name for name in names]


def described(*chosen):
    """Return the row of each field, by its path, of these tables; where two have one, the later's."""
    return {name: row for table in chosen for row in table for name in names_of(row[0])}


SINGLE, SERIES, COMPARISON, STEP = tables()
PARTS = {
    "a single run": (DEFINITIONS["single"], described(SINGLE), described(SINGLE)),
    "a series": (DEFINITIONS["series"], described(SINGLE, SERIES), described(SERIES)),
    "a comparison": (DEFINITIONS["comparison"], described(COMPARISON), described(COMPARISON)),
    "a step": (DEFINITIONS["step"], described(STEP), described(STEP)),
}


def is_told(path, rows):
    """Tell whether a field or a part of it has a row, or its object's or a neighbour's row names it."""
    above, _, name = path.removesuffix("[]").rpartition(".")
    around = {above, above.removesuffix("[]")}
    while above and not around & rows.keys():
        above = above.rpartition(".")[0]
        around |= {above, above.removesuffix("[]"), above + "[]"}
    for row, cells in rows.items():
        if row == path or row.startswith((path + ".", path + "[].")):
            return True
        near = row in around or row.rpartition(".")[0] in around - {""}
        if near and {name, name + "[]"} & set(re.findall(r"`([^`]+)`", " ".join(cells[1:]))):
            return True
    return False


INHERITED = re.compile(r"(runs\[\]\.summary|summary\.findings\[\]|comparisons\[\])\.")
"""What is said elsewhere: of runs as of a single one, of findings as of a step's, of comparisons below."""


@pytest.mark.parametrize("part", PARTS)
def test_every_field_of_the_schema_is_described(part):
    schema, rows, _ = PARTS[part]
    paths = [path for path, _ in fields(schema) if not INHERITED.match(path)]
    assert [path for path in paths if not is_told(path, rows)] == []


@pytest.mark.parametrize("part", PARTS)
def test_every_field_that_is_described_is_in_the_schema(part):
    schema, _, rows = PARTS[part]
    known = {path for path, _ in fields(schema)}
    assert rows.keys() - known == set()


SIMPLE = ("string", "integer", "number", "boolean", "object")


def types_of(row):
    """Yield what a row says of each of its fields: its type, and whether it may be null; None for silence.

    Types stand in the order of the fields, a plural for all that are left. When a field is null stands in its
    type, in its meaning, or in a step's row in the last column, with its name where another never is.
    """
    names = names_of(row[0])
    types = re.split(r"[,;] ", row[1].strip())
    types += types[-1:] * (len(names) - len(types))
    when = row[3].strip() if len(row) == 4 else ""
    only = re.match(r"((?:`\w+`(?:, )?)+):", when)
    for name, said in zip(names, types):
        kind, *others = said.split(" or ")
        last = name.rpartition(".")[2]
        null = bool(others or (f"`{last}`" in only[1] if only else when))
        if len(row) == 3 and " or null" not in row[1]:
            null = "object" not in said and bool(re.search(r"\bnull\b", row[2]))
        kind = kind if kind in SIMPLE else kind.removesuffix("s")
        yield name, kind, null


@pytest.mark.parametrize("part", PARTS)
def test_types_are_the_same_in_both(part):
    schema, _, rows = PARTS[part]
    parts, compared = dict(fields(schema)), 0
    for name, kind, null in {each for row in rows.values() for each in types_of(row)}:
        full, nullable = resolved(parts[name])
        if kind not in SIMPLE:
            continue
        if name.endswith("[]"):
            full = resolved(full["items"])[0]
        own = full.get("type") or {int: "integer"}[type(full["const"])]
        assert set([own] if isinstance(own, str) else own) - {"null"} == {kind}, name
        assert nullable == null, name
        compared += 1
    assert compared >= min(len(rows), 10)
