"""README and the papers beside it: their links lead somewhere, and README stays short enough to be read."""

from __future__ import annotations

import re

import pytest

from conftest import TOOL

ROOT = TOOL.parent
README = (ROOT / "README.md").read_text("utf-8")
PAPERS = ["README.md", "tests/JSON.md", "tests/MONITORING.md", "tests/README.md", "tests/LIMITS.md"]


def anchors(text):
    """Return the anchors of a text's headings, as GitHub makes them."""
    titles = re.findall(
        r"^#+ (.*)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_link_leads_somewhere(paper):
    place = ROOT / paper
    for target in re.findall(r"\]\(([^)]+)\)", place.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        file = place.parent / name if name else place
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text("utf-8")), target


def test_readme_stays_readable():
    """A guide, chapters by question, then what is looked up; fields, metrics and functions have their own."""
    assert len(README.splitlines()) <= 750 and len(README.split()) <= 10_000
