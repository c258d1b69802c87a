"""How to add something, as tests/README.md lists it: the places that it names are held to each other."""

from __future__ import annotations

import re
import shlex

import pytest

from conftest import TOOL
from inside import tool

ROOT = TOOL.parent
README = (ROOT / "README.md").read_text("utf-8")
SOURCE = TOOL.read_text("utf-8")
FINDINGS = sorted({*re.findall(r'Finding\(\s*"(\w+)"', SOURCE), "http2_window", "tcp_window"})


def part(heading):
    """Return a section of the README, without those below it."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## )", README, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def rows(heading):
    """Return the first cells of the tables of a section."""
    return re.findall(r"^\| (.*?) \|", part(heading), re.MULTILINE)


def named(text):
    """Return what stands in backquotes."""
    return set(re.findall(r"`([^`]+)`", text))


# --- a proxy scheme -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", tool.PROXY_SCHEMES)
def test_a_proxy_scheme_has_its_hops_and_is_named_where_users_look(scheme):
    row = tool.PROXY_SCHEMES[scheme]
    assert {*row.reach, row.opener} <= set(tool.HOPS)
    assert scheme in tool.build_parser(200).format_help()
    assert f"`{scheme}`" in part("Proxies") and str(row.port) in part("Proxies")
    assert f'"{scheme}"' in (ROOT / "tests" / "test_proxies.py").read_text("utf-8")
    assert f'"{scheme}": {row.trips}' in (ROOT / "tests" / "test_findings.py").read_text("utf-8")
    [proxy_row] = [line for line in part("Options").splitlines() if line.startswith("| `-x`")]
    assert scheme in proxy_row


def test_every_hop_is_one_of_some_way():
    reached = {hop for row in tool.PROXY_SCHEMES.values() for hop in (*row.reach, row.opener)}
    assert {*reached, "tcp", "unix", "tls"} == set(tool.HOPS)


# --- an option ------------------------------------------------------------------------------------


def test_what_excludes_and_collects_and_names_files_are_options():
    pairs = {word for first, second, _ in tool.EXCLUSIONS for word in (first, second)}
    assert {*pairs, *tool.PATHS, *tool.COLLECTED} <= set(tool.NAMES)


SIDE_VALUES = {  # what changes the request or its way; an option that is not here is a flag
    "-X": "OPTIONS",
    "-d": "x",
    "--data-raw": "x",
    "-H": "X-A: b",
    "-A": "x",
    "-e": "x",
    "-b": "a=b",
    "-u": "a:b",
    "--url": "http://other.test/",
    "-m": "3",
    "--resolve": "here.test:80:192.0.2.1",
    "-x": "http://proxy.test:3128",
    "--unix-socket": "/socket",
    "--interface": "lo",
    "--cacert": "{pem}",
    "--cert": "{pem}",
}
CHANGES_NOTHING = ("-g", "--key", "--key-password-file")  # the last two belong to --cert
SIDE_OPTIONS = [text.split()[0] for group in tool.SIDE_GROUPS for text, _, _ in tool.OPTIONS[group]]


@pytest.mark.parametrize("option", sorted({*SIDE_OPTIONS} - {*tool.FOR_ALL, *CHANGES_NOTHING}))
def test_an_option_that_a_side_may_have_makes_it_another_one(option, authority):
    """A field of Options that `choose_options` fills, not `own_options`, is the same for all sides."""
    value = SIDE_VALUES.get(option, "").format(pem=authority.certificate("here.test"))
    words = shlex.join([option, value] if value else [option])
    options = tool.parse_options(["http://here.test/", "--versus", words], {}, 80)
    base, side = (each.options._replace(warnings=(), secrets=None) for each in options.sides)
    assert base != side


# --- a finding ------------------------------------------------------------------------------------


def test_every_finding_has_a_row_in_the_readme_and_no_other_has():
    listed = {name for cell in rows("What does it mean?") for name in named(cell)}
    assert listed == {*FINDINGS}


@pytest.mark.parametrize("finding", FINDINGS)
def test_every_finding_is_provoked_by_a_test(finding):
    text = "".join(path.read_text("utf-8") for path in (ROOT / "tests").glob("test_*findings.py"))
    assert re.search(rf'"{finding}( \w+)?"', text)


def test_every_rule_is_asked():
    """A rule is a function from a step's case to what it finds."""
    rules = set(re.findall(r"^def (\w+)\(\w+: Case\) -> Found", SOURCE, re.MULTILINE))
    assert rules == {rule.__name__ for rule in (*tool.RULES, *tool.DIRECT_RULES)} | {"slow_body", "set_up"}


# --- what is written about it ---------------------------------------------------------------------

PAPERS = ["README.md", "tests/JSON.md", "tests/MONITORING.md", "tests/README.md", "tests/TOUCHES.md"]


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
