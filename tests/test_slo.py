"""Latency budgets: what is a specification, what is refused, what is judged, and how the verdict is shown."""

from __future__ import annotations

import json
import os
import re

import pytest

from checks import EDGE, check_usage_error, flat
from servers import Reply, http_server, redirect, refused_port, scripted, sending

SLOW = 0.03
"""Seconds that a server waits so that a budget of 1 ms is violated for certain."""


@pytest.fixture
def chain():
    """Serve /chain → /end, an endless /loop, and /broken → a port that refuses."""
    with refused_port() as port:
        routes = {
            "/": Reply(body=b"x" * 10, wait=SLOW),
            "/chain": redirect("/end")._replace(wait=SLOW),
            "/end": Reply(body=b"end"),
            "/loop": redirect("/loop")._replace(wait=SLOW / 10),
            "/broken": redirect(f"http://127.0.0.1:{port}/")._replace(wait=SLOW),
            "/missing": Reply(404, b"none", wait=SLOW),
        }
        with http_server(routes) as server:
            yield server


def write(tmp_path, content):
    """Write a budget file; return its path."""
    path = tmp_path / "budgets.slo"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def thresholds(result):
    """Read the thresholds out of a run with --json -."""
    return result.json()["summary"]["slo"]["thresholds_ms"]


# --- malformed specifications ---------------------------------------------------------------------

MALFORMED = {  # what is given: what is said of it
    **dict.fromkeys(["", ",", "total=1,,dns=1", "=5", "total=  "], ""),
    **dict.fromkeys(
        ["total=1=2", "total=5 ms", "total=0s", "total=1e308s", "total=1e-999", "total=1\x1b"], ""
    ),
    **{f"{key}=5": f"Unknown SLO key '{key}'" for key in ("dns_ms", "[red]x[/red]")},
    "total=1, ttfb ": "Missing '=' in SLO entry 'ttfb'",
    "dns=1,tls=2, DNS =1": "Duplicate",
    **{f"dns=1,ttfb={value}": f"'{value}'" for value in ("fast", "0", "-3", "nan", "1e999", "1_000", "５")},
}


@pytest.mark.parametrize("specification", MALFORMED)
def test_a_malformed_budget_is_refused_in_a_panel_and_named_before_anything_happens(
    call_tool, server, tmp_path, specification
):
    path = write(tmp_path, f"# a comment\n{specification}\n")
    for option, value, told in (("--slo", specification, MALFORMED[specification]), ("--slo-file", path, "")):
        result = call_tool(option, value, "--har", tmp_path / "har", "--json", "-", server.url())
        check_usage_error(result, "SLO Error", told)
        assert "\x1b" not in result.err
    assert server.accepted == 0 and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("without", [(), ("rich",)])
def test_the_panel_has_a_border_and_a_title(run_tool, without):
    result = run_tool("--slo", "latency=5", "http://127.0.0.1:1/", without=without)
    top, *inside, bottom = [line for line in result.err.splitlines() if line.strip()]
    assert "SLO Error" in top
    assert not any(character.isalnum() for character in bottom)
    assert len(top) == len(bottom) == len(inside[0])
    assert "Unknown SLO key 'latency'" in flat(result.err)


# --- budgets in a file ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "# budgets\n\ntotal=5000\n\n#ttfb=1\nttfb=4000.5",
        "\ufeff# grün ≤ schnell\r\nTOTAL = 5e3 \n\tTtfb=4000.50\r\n",
    ],
    ids=["plain", "everything"],
)
def test_budgets_are_read_from_a_file(call_tool, server, tmp_path, content):
    result = call_tool("--slo-file", write(tmp_path, content), "--json", "-", server.url())
    assert thresholds(result) == {"total": 5000, "ttfb": 4000.5}


UNSOUND = [
    *("", "\n\n", "# nothing\n", "\ufeff", "dns=1\ndns=2\n", "dns=1,tls=2\n", "total=5000\n" + "#" * 2**24),
    *(b"dns=1\n\xff\xfe\n", b"d\x00n\x00s\x00"),
]


def test_a_file_without_sound_entries_is_refused(call_tool, server, tmp_path):
    for content in UNSOUND:
        check_usage_error(call_tool("--slo-file", write(tmp_path, content), server.url()), "SLO Error")
    assert server.accepted == 0


def test_a_file_that_cannot_be_read_is_refused_by_name(call_tool, server, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name in ("missing.slo", "folder", "fifo"):
        result = call_tool("--slo-file", tmp_path / name, server.url(), env={"COLUMNS": "300"})
        check_usage_error(result, "SLO Error", name)
    assert server.accepted == 0


def test_an_inline_budget_overrides_the_one_of_the_file(call_tool, server, tmp_path):
    path = write(tmp_path, "total=0.001\nttfb=90000\n")
    result = call_tool("--slo-file", path, "--slo", "TOTAL=90000,dns=7", "--json", "-", server.url())
    assert result.code == 0
    assert thresholds(result) == {"dns": 7, "total": 90000, "ttfb": 90000}
    bad = call_tool("--slo-file", write(tmp_path, "total=never\n"), "--slo", "total=5000", server.url())
    check_usage_error(bad, "SLO Error", "never")


# --- what is judged -------------------------------------------------------------------------------


def test_a_budget_that_is_kept_passes(call_tool, chain, tmp_path):
    path = tmp_path / "out.json"
    budgets = "total=90000,wait=90000,dns=0.000001,tls=0.000001"
    result = call_tool("--slo", budgets, "--metrics-only", "--json", path, chain.url())
    assert result.code == 0
    [line] = result.metrics()
    assert line["slo"] == "pass" and "slo_violations" not in line
    slo = result.json(path)["summary"]["slo"]
    assert (slo["pass"], slo["violations"]) == (True, [])


def test_a_violated_budget_fails_and_names_the_keys_in_alphabetical_order(call_tool, chain, tmp_path):
    path = tmp_path / "out.json"
    budgets = "xfer=90000,wait=1.5,ttfb=1,total=1e1"
    result = call_tool("--slo", budgets, "--metrics-only", "--json", path, chain.url())
    assert result.code == 4
    [line] = result.out.splitlines()
    assert line.endswith(" slo=fail slo_violations=total,ttfb,wait")
    slo = result.json(path)["summary"]["slo"]
    assert [violation["key"] for violation in slo["violations"]] == ["total", "ttfb", "wait"]
    assert slo["thresholds_ms"] == {"total": 10, "ttfb": 1, "wait": 1.5, "xfer": 90000}
    assert all(violation["actual_ms"] >= SLOW * 1000 - EDGE for violation in slo["violations"])


def test_without_budgets_nothing_speaks_of_them(call_tool, chain, tmp_path):
    path = tmp_path / "out.json"
    for mode in (["--metrics-only"], ["--compact"], []):
        result = call_tool(*mode, "--json", path, chain.url())
        assert not re.search(r"\bslo\b", result.out.lower())
        assert "slo" not in result.json(path)["summary"]


def test_a_chain_is_judged_by_its_last_response_alone(call_tool, server, authority, tls):
    with http_server({"/": redirect(server.url())}, tls=tls) as first:
        words = ("-L", "--slo", "tls=0.001", "--metrics-only", "--cacert", authority.file)
        result = call_tool(*words, first.url())
    redirected, last = result.metrics()
    assert "slo" not in redirected and last["slo"] == "pass"
    assert result.code == 0


def test_redirects_and_error_pages_are_judged_as_they_are(call_tool, chain):
    result = call_tool("--slo", "wait=1", "--metrics-only", chain.url("/chain"))
    assert [(line["status"], line["slo"]) for line in result.metrics()] == [("302", "fail")]
    missing = call_tool("--slo", "wait=1", "--metrics-only", chain.url("/missing"))
    assert [(line["status"], line["slo"]) for line in missing.metrics()] == [("404", "fail")]
    assert result.code == missing.code == 4
    missing.warned("held against a 404 answer")


def test_at_the_redirect_limit_the_last_redirect_is_judged_and_the_code_is_47(call_tool, chain):
    result = call_tool("-L", "--slo", "total=0.001", "--metrics-only", chain.url("/loop"))
    *others, last = result.metrics()
    assert len(others) == 10
    assert not any("slo" in line for line in others)
    assert (last["status"], last["slo"], last["slo_violations"]) == ("302", "fail", "total")
    assert result.code == 47


def test_when_a_later_step_fails_the_last_good_one_is_judged_and_the_code_is_75(call_tool, chain, tmp_path):
    path = tmp_path / "out.json"
    result = call_tool("-L", "--slo", "wait=1", "--metrics-only", "--json", path, chain.url("/broken"))
    good, failed = result.metrics()
    assert (good["slo"], good["slo_violations"]) == ("fail", "wait")
    assert failed["error"] == "network"
    assert result.code == 75
    slo = result.json(path)["summary"]["slo"]
    assert slo["violations"][0]["actual_ms"] >= SLOW * 1000 - EDGE


@pytest.mark.parametrize("mode", [["--metrics-only"], ["--compact"], []])
def test_when_every_step_fails_nothing_is_judged(call_tool, tmp_path, mode):
    path = tmp_path / "out.json"
    with scripted(sending("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")) as server:
        result = call_tool("--slo", "total=0.001", "--json", path, *mode, server.url())
    assert result.code == 75
    assert not re.search(r"\bslo\b", result.out.lower())
    assert "slo" not in result.json(path)["summary"]


# --- the panel ------------------------------------------------------------------------------------

BULLET = re.compile(r"(\w+): (\d+\.\d{1,3}|\d+)ms > (\S+)ms \(\+(\d+\.\d{1,3})ms\)")


def panel(text):
    """Cut the lines of the SLO panel out of a report, its frame included."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if re.search(r"SLO: (pass|fail)", line))
    return lines[start:]


@pytest.mark.parametrize("without", [(), ("rich",)])
def test_a_panel_shows_a_pass_below_all_else(run_tool, chain, without):
    for mode in ((), ("--compact",)):
        words = ("-L", *mode, "--slo", "ttfb=90000.50,total=9e4", chain.url("/chain"))
        result = run_tool(*words, without=without)
        title, *inside, bottom = panel(result.out)
        assert re.search(r"[✓✔✅] *SLO: pass|SLO: pass *[✓✔✅]", title)
        assert not any(character.isalnum() for character in bottom)
        text = flat("\n".join(inside))
        assert text.startswith("Thresholds: ")
        assert "total≤90000ms" in text and "ttfb≤90000.5ms" in text
        assert "Violations" not in text
        last = "Step 2: 200" if mode else "Redirect Chain Summary"
        assert result.out.index(last) < result.out.index("SLO: pass")


@pytest.mark.parametrize(("mode", "without"), [(["--compact"], ()), ([], ("rich",))])
def test_a_panel_shows_each_violation(run_tool, chain, tmp_path, mode, without):
    path = tmp_path / "out.json"
    budget = "wait=1,ttfb=0.5,xfer=90000,total=1.25"
    result = run_tool(*mode, "--slo", budget, "--json", path, chain.url(), without=without)
    title, *inside, bottom = panel(result.out)
    assert re.search(r"[✗✘✖❌×] *SLO: fail|SLO: fail *[✗✘✖❌×]", title)
    assert not any(character.isalnum() for character in bottom)
    text = flat("\n".join(inside))
    for threshold in ("wait≤1ms", "ttfb≤0.5ms", "xfer≤90000ms", "total≤1.25ms"):
        assert threshold in text
    shown = BULLET.findall(text.partition("Violations:")[2])
    expected = [
        (each["key"], each["actual_ms"], each["threshold_ms"], each["delta_ms"])
        for each in result.json(path)["summary"]["slo"]["violations"]
    ]
    assert [(key, *map(float, numbers)) for key, *numbers in shown] == expected
    assert [(key, limit) for key, _, limit, _ in shown] == [("total", "1.25"), ("ttfb", "0.5"), ("wait", "1")]
    assert not any(re.search(r"\.\d+0$", number) for row in shown for number in (row[1], row[3]))


@pytest.mark.needs("rich")
@pytest.mark.parametrize(
    ("budget", "colour", "other"), [("total=90000", "28", "161"), ("total=1", "161", "28")]
)
def test_the_border_has_the_colour_of_the_verdict(run_tool, chain, budget, colour, other):
    result = run_tool("--compact", "--slo", budget, chain.url(), terminal="out err")
    for line in panel(result.out)[:: len(panel(result.out)) - 1]:
        codes = {code for codes in re.findall(r"\x1b\[([\d;]*)m", line) for code in codes.split(";")}
        assert colour in codes and other not in codes


@pytest.mark.parametrize("without", [(), ("rich",)])
def test_where_the_encoding_has_no_such_characters_the_panel_is_ascii(run_tool, chain, without):
    env = {"PYTHONIOENCODING": "ascii"}
    words = ("--slo", "total=1,dns=500", "--json", "-", chain.url())
    result = run_tool(*words, env=env, without=without)
    assert result.code == 4
    assert json.loads(result.out)["summary"]["slo"]["pass"] is False
    assert result.err.isascii()
    assert "SLO: fail" in result.err
    assert "dns<=500ms" in result.err


@pytest.mark.parametrize("style", ["-s", "--compact", "--metrics-only", "-i"])
def test_a_violated_budget_is_said_under_every_style(call_tool, chain, style):
    words = ["--slo", "total=0.5,wait=1,ttfb=90000", chain.url("/missing")]
    result = call_tool(style, *words)
    assert result.code == 4 and (style == "-s" or result.warned("404"))
    if style == "-s":
        total, wait = result.err.splitlines()
        assert result.out == "" and re.fullmatch(rf"httphases: {BULLET.pattern}", total)
        assert wait.startswith("httphases: wait: ") and re.fullmatch(rf"httphases: {BULLET.pattern}", wait)
    else:
        assert re.search("slo_violations=total,wait|total: .* > 0.5ms", result.out)
    refused = call_tool("-s", "-f", *words).err.splitlines()
    assert refused[2:] == ["httphases: the last status, 404, is refused by -f"]
    expected = call_tool("-s", "--expect", "2xx", chain.url("/missing"))
    assert expected.err == "httphases: the last status, 404, does not match --expect\n"
    assert call_tool("-s", "-f", "--slo", "total=90000", chain.url()).err == ""


def test_a_relative_budget_shows_what_was_written_and_what_it_comes_to(call_tool, server):
    """An address is looked up in 0 ms, a name in some."""
    words = ("--vs", server.url(host="localhost"), "--count", "7", "-4", server.url())
    budgets = ("--slo", "dns=+0.001,total=+90000%")
    drawn, silent = call_tool("--compact", *budgets, *words), call_tool("-s", *budgets, *words)
    assert drawn.code == silent.code == 4
    size = r"\d+\.\d+"
    written = rf"Thresholds: dns≤\+0.001 ms over 0.000 \(0.001ms\) +total≤\+90000 % of {size} \({size}ms\)"
    assert re.search(written, flat(drawn.out))
    assert re.fullmatch(rf"httphases: {BULLET.pattern} at B, beside 0.0ms\n", silent.err)


def test_what_was_not_judged_is_said_in_silence_too(call_tool):
    with http_server({"/": Reply(500)}) as server:
        words = ("--count", "2", "--interval", "0", "--slo", "total.median=9000")
        result = call_tool("-s", *words, server.url())
    assert (result.code, result.err) == (4, "httphases: total.median: not judged, too few good answers\n")


def test_budgets_given_apart_are_all_held(call_tool, server):
    result = call_tool("--metrics-only", "--slo", "total=0.000001", "--slo", "dns=90000", server.url())
    assert (result.code, result.out.endswith("slo_violations=total\n")) == (4, True)


@pytest.mark.parametrize(("budget", "count", "least"), [("p90", 28, 29), ("p99", 100, 299)])
def test_a_budget_on_a_percentile_of_few_runs_is_warned_of(call_tool, server, budget, count, least):
    words = ("--metrics-only", "--interval", 0, "--slo", f"total.{budget}=9999", server.url())
    call_tool("--count", count, *words).warned(
        f"total.{budget}: of {count} runs it is mostly below the true one"
    )
    if least < 100:
        assert call_tool("--count", least, *words).err == ""
