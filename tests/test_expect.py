"""What counts as good: a status below 400, or one that --expect names. All sums are of good answers."""

from __future__ import annotations

import re

import pytest

from checks import flat, summaries
from servers import Reply, every, http_server, redirect

QUICK = ("--interval", "0")
OFTEN = ("--count", "20", *QUICK)
SLOW = Reply(wait=0.02)
HINT = ": -f makes that exit 22"
FIFTH = f"error page (503) in 4 of 20 runs{HINT}"


@pytest.fixture
def fifth():
    """Serve a page that takes 20 ms, and at every fifth request an error page at once."""
    with http_server({"/": every(SLOW, SLOW, SLOW, SLOW, Reply(503))}) as server:
        yield server


def test_a_budget_that_an_error_page_keeps_is_kept_and_called_that(call_tool, server):
    budget = ("--compact", "--slo", "ttfb=9000")
    with http_server({"/": Reply(503)}) as failing:
        result, refused = call_tool(*budget, failing.url()), call_tool(*budget, "-f", failing.url())
        assert flat(call_tool("-f", failing.url()).out).endswith(" error page (503): exit 22")
        assert "Bad run" not in flat(call_tool("-f", *budget[1:], failing.url()).out), "it is in the panel"
    assert (result.code, result.err, refused.code, refused.err) == (0, "", 22, "")
    assert "SLO: pass" in result.out
    assert f"ms error page (503){HINT}" in flat(result.out)
    assert HINT not in flat(refused.out)
    assert "error page" not in call_tool(*budget, server.url()).out


@pytest.mark.parametrize(
    ("expect", "good", "bad"),
    [("2xx", [204], [300, 999]), ("200-299", [299], [300]), (" 2xx , 401 ", [401], [404])],
)
def test_expect_says_which_last_status_is_good(call_tool, expect, good, bad):
    for status in (*good, *bad):
        with http_server({"/": Reply(status)}) as server:
            result = call_tool("--compact", "--expect", expect, "-f", "--slo", "total=9000", server.url())
        assert result.code == (22 if status in bad else 0)
        assert (f"status not as expected ({status})" in flat(result.out)) == (status in bad)


def test_of_a_chain_the_last_status_is_expected(call_tool):
    with http_server({"/": redirect("/b"), "/b": Reply(404)}) as server:
        assert call_tool("-L", "--compact", "--expect", "404", server.url()).code == 0
        for expect, follow, last in (("302", ["-L"], 404), ("200", [], 302)):
            result = call_tool(*follow, "--compact", "--expect", expect, server.url())
            assert (result.code, result.err, f": {last} " in result.out) == (22, "", True)


def test_sums_and_budgets_are_of_good_answers_and_all_the_others_are_counted(call_tool, fifth, tmp_path):
    path, budgets = tmp_path / "out.json", ("--slo", "ttfb=9000,ttfb.min=10,ttfb.median=9000")
    result = call_tool(*OFTEN, *budgets, "--json", path, fifth.url())
    document, words = result.json(path), flat(result.out)
    [found], slo = document["statistics"], document["summary"]["slo"]
    assert (found["n"], found["total_ms"]["p95"]) == (16, None), "so few do not bear it"
    assert document["summary"]["bad_status"] == 4
    assert [each["key"] for each in slo["violations"]] == ["ttfb.min"] and slo["not_judged"] == []
    assert slo["violations"][0]["actual_ms"] >= 19, "error pages come sooner, and do not count"
    assert result.code == 4 and FIFTH in words
    assert "20 runs, status 200: 16, status 503: 4" in words
    assert "Times of the 16 good runs, in ms; distribution from 0 to " in words
    assert re.search(r"Run 19 had: .* Response 200 .* Spent ", words), "what is shown is of a good answer"
    assert summaries(call_tool("--metrics-only", *OFTEN, *budgets, fifth.url()).out)[0]["slo"] == "fail"


def test_a_relative_budget_is_said_to_be_judged_without_error_pages(call_tool, tmp_path):
    """Of the sides as of a baseline: a canary with error pages passes, but not without a word."""
    path, slower = tmp_path / "before.json", Reply(wait=0.04)
    flap = every(SLOW, slower, SLOW, slower, Reply(503))
    with http_server({"/": every(SLOW, slower), "/flap": flap}) as server:
        budget = ["--compact", *OFTEN, "--slo", "total=+9900%"]
        sides = [*budget, "--vs", server.url("/flap"), server.url()]
        assert "error page (503) in 4 of 40 runs" in flat(call_tool(*sides).out)
        assert call_tool("--compact", *OFTEN, "--json", path, server.url()).code == 0
        both = call_tool(*budget, "--slo", "total.max=9000", "--baseline", path, server.url("/flap"))
        assert both.code == 0 and FIFTH in flat(both.out), "each answer counts once"


def test_a_budget_that_is_not_judged_is_named_in_the_line_and_its_reason_on_stderr(call_tool):
    """Of kept connections only runs on them count, and this server keeps none."""
    with http_server({"/": Reply(headers=[("Connection", "close")])}) as server:
        words = ["--reuse", "--count", "4", *QUICK, "--slo", "wait.max=9000,ttfb.median=9000", server.url()]
        result, compact, silent = (
            call_tool(style, *words) for style in ("--metrics-only", "--compact", "-s")
        )
    reason = "not judged, too few good answers on a kept connection"
    assert result.warned(f"ttfb.median: {reason}", f"wait.max: {reason}").code == 4
    assert result.out.endswith(" slo=fail slo_violations=ttfb.median,wait.max\n")
    assert f"wait.max: {reason}" in flat(compact.out) and compact.err == ""
    assert silent.err == f"httphases: ttfb.median: {reason}\nhttphases: wait.max: {reason}\n"


def test_where_no_answer_was_good_statistics_are_of_all_and_that_is_said(call_tool):
    with http_server({"/": every(Reply(404), Reply(999, wait=0.02))}) as server:
        words = ("--count", "20", *QUICK, "--slo", "ttfb=9000", server.url())
        drawn, lines = flat(call_tool(*words).out), call_tool("--metrics-only", *words)
    none_good = "no answer was good, so the statistics are of all answers"
    assert lines.err == f"httphases: warning: {none_good}\n"
    assert "No answer was good; times of all answers, in ms" in drawn
    assert "20 runs, status 404: 10, status 999: 10" in drawn and "Over time" not in drawn
    assert f"error page (404, 999) in 20 of 20 runs{HINT}" in drawn


def test_a_redirect_on_the_way_is_good_whatever_is_expected(call_tool):
    with http_server({"/": redirect("/b"), "/b": every(Reply(401), Reply(200))}) as server:
        options = ["-L", "--metrics-only", "--count", "4", *QUICK, "--expect", "401", "--json", "-"]
        statistics = call_tool(*options, server.url()).json()["statistics"]
    assert [(each["n"], each["bad_status"]) for each in statistics] == [(4, 0), (2, 2)]
