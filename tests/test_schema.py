"""The schema of the JSON export, `httphases.schema.json`: sound, strict, and of the same fields as JSON.md.

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

OPTIONAL = {
    "trace_id", "sides", "comparisons", "baseline", "baseline_ms", "slo", "certificate",
}  # fmt: skip
"""Fields that an option brings; every other one is always there."""


def objects(part):
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    for each in part if isinstance(part, list) else ():
        yield from objects(each)


def test_it_is_a_schema_and_strict_everywhere():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for part in objects(SCHEMA):
        if part.get("type") == "object":
            assert part["additionalProperties"] is False or "properties" not in part
            assert part.get("properties", {}).keys() - {*part.get("required", ())} <= OPTIONAL


CHANGES = [
    lambda document: document["steps"][0]["network"].update(extra=1),
    lambda document: document["steps"][0]["timing"].pop("send_ms"),
    lambda document: document["steps"][0]["timing"].update(total_ms=None),
    lambda document: document.update(started_at="2026-01-01T00:00:00Z"),  # without its milliseconds
    lambda document: document.update(comparisons=[]),
]


def test_another_document_is_refused(call_tool, server):
    document = call_tool("--json", "-", server.url()).json()
    for change in CHANGES:
        changed = copy.deepcopy(document)
        change(changed)
        with pytest.raises(AssertionError):
            check_schema(changed)


def test_the_paper_and_the_schema_name_the_same_fields():
    paper = (TOOL.parent / "tests" / "JSON.md").read_text("utf-8")
    named = set(re.findall(r"\w+", paper))
    known = {name for part in objects(SCHEMA) for name in part.get("properties", ())}
    assert known - named == set()
    rows = re.findall(r"^\| `([\w.\[\]]+)`", paper, re.MULTILINE)
    assert {row.removesuffix("[]").rpartition(".")[2] for row in rows} - known == set()
