"""What counts as good: a status below 400, or one that --expect names. All sums are of good answers."""

from __future__ import annotations

import re

import pytest

from checks import check_usage_error, flat, parse_metrics, summaries
from inside import tool
from samples import sample
from servers import Reply, every, http_server, redirect, refused_port

QUICK = ("--interval", "0")
OFTEN = ("--count", "20", *QUICK)
SLOW = Reply(wait=0.02)
HINT = ": -f makes that exit 22"
FIFTH = f"of 20 answers 4 were error pages (503){HINT}"
NONE_GOOD = "no answer was good, so the statistics are of all answers"


def unframed(text):
    """Return a report in one line, without the frame of its box."""
    return flat(re.sub(r"(?m)^[|\u2502]|[|\u2502]\s*$", "", text))


@pytest.fixture
def fifth():
    """Serve a page that takes 20 ms, and at every fifth request an error page at once."""
    with http_server({"/": every(SLOW, SLOW, SLOW, SLOW, Reply(503))}) as server:
        yield server


# --- one run --------------------------------------------------------------------------------------


STYLES = ([], ["--compact"], ["--metrics-only"])


def test_a_budget_that_an_error_page_keeps_is_kept_and_called_that(call_tool, server):
    with http_server({"/": Reply(503)}) as failing:
        for style in STYLES:
            result = call_tool(*style, "--slo", "ttfb=9000", failing.url())
            refused = call_tool(*style, "--slo", "ttfb=9000", "-f", failing.url())
            assert (result.code, result.err, refused.code, refused.err) == (0, "", 22, "")
            if style == ["--metrics-only"]:
                assert parse_metrics(result.out.strip())["slo"] == "pass"
            else:
                assert "SLO: pass" in result.out
                assert f"ms the answer was an error page (503){HINT}" in unframed(result.out)
                assert HINT not in unframed(refused.out)
    assert "error page" not in call_tool("--compact", "--slo", "ttfb=9000", server.url()).out


EXPECTED = {  # the statuses that are good, and those that are not
    "200": ([200], [204]),
    "2xx": ([204], [300, 999]),
    "200-299": ([299], [300]),
    " 2xx , 401 ": ([401], [404]),
    "503-503": ([503], []),
    "9xx": ([999], []),
}


@pytest.mark.parametrize("expect", EXPECTED)
def test_expect_says_which_last_status_is_good(call_tool, expect):
    good, bad = EXPECTED[expect]
    for status in (*good, *bad):
        with http_server({"/": Reply(status)}) as server:
            for fail in ([], ["-f"]):
                words = ("--compact", "--expect", expect, *fail, "--slo", "total=9000")
                result = call_tool(*words, server.url())
                assert result.code == (22 if status in bad else 0)
                assert (f"the answer was not as expected ({status})" in unframed(result.out)) == (
                    status in bad
                )


def test_an_expectation_that_is_none_is_a_usage_error(call_tool):
    for expect in (
        *("", " ", ",", "200,", "200 404", "200;404", "200-", "200-299-300", "299-200", "2xx-3xx"),
        *("20", "2000", "20x", "2x", "xx", "0xx", "099", "+200", "ok", "2\u0660\u0660", "2xx\n2xx"),
    ):
        result = call_tool("--expect", expect, "http://127.0.0.1:9/")
        check_usage_error(result, "--expect", "expected statuses: 200, 2xx, 200-299 or 2xx,401")


def test_of_a_chain_the_last_status_is_expected(call_tool):
    with http_server({"/": redirect("/b"), "/b": Reply(404)}) as server:
        assert call_tool("-L", "--compact", "--expect", "404", server.url()).code == 0
        for expect, follow, last in (("302", ["-L"], 404), ("200", ["-L"], 404), ("200", [], 302)):
            result = call_tool(*follow, "--compact", "--expect", expect, server.url())
            assert (result.code, result.err, f": {last} " in result.out) == (22, "", True)


def test_other_codes_come_before_that_of_an_unexpected_status(call_tool, tmp_path):
    with refused_port() as port:
        assert call_tool("--compact", "--expect", "200", f"http://127.0.0.1:{port}/").code == 75
    with http_server({"/": redirect("/")}) as server:
        wanted = ("--compact", "--expect", "200", server.url())
        assert call_tool("-L", *wanted).warned("stopped after 10").code == 47
        unwritten = call_tool("--json", tmp_path / "none" / "out.json", *wanted)
        assert unwritten.code == 73
        assert call_tool("--slo", "total=0.001", *wanted).code == 22


# --- a series -------------------------------------------------------------------------------------


def test_statistics_are_of_good_answers_and_all_the_others_are_counted(run_tool, fifth):
    document = run_tool("--metrics-only", *OFTEN, "--json", "-", fifth.url()).json()
    [found] = document["statistics"]
    assert (found["n"], found["total_ms"]["p95"]) == (16, None), "so few do not bear it"
    assert document["summary"]["bad_status"] == 4
    result = run_tool(*OFTEN, "--slo", "ttfb=9000", fifth.url(), without=("rich",))
    words = unframed(result.out)
    assert (result.code, result.err) == (0, "") and FIFTH in words
    assert "20 runs, status 200: 16, status 503: 4" in words
    assert "Times of the 16 good runs, in ms; distribution from 0 to " in words
    assert re.search(r"Response 200 ", words), "what is shown of the answer is of a good one"


def test_a_budget_on_a_statistic_is_judged_by_good_answers_alone(run_tool, fifth):
    """Of 30 runs 24 are good, enough for p95; the error pages, which come sooner, do not count."""
    budgets = ("--slo", "ttfb.p95=9000,ttfb.min=10")
    result = run_tool("--metrics-only", "--count", "30", *QUICK, "--json", "-", *budgets, fifth.url())
    slo = result.json()["summary"]["slo"]
    assert [each["key"] for each in slo["violations"]] == ["ttfb.min"] and slo["not_judged"] == []
    assert slo["violations"][0]["actual_ms"] >= 19
    assert (result.code, summaries(result.err)[0]["slo"]) == (4, "fail")


def test_a_budget_on_a_statistic_is_said_to_be_judged_without_error_pages(call_tool, fifth):
    words = ["--compact", *OFTEN, "--slo", "ttfb.median=9000", fifth.url()]
    assert FIFTH in unframed(call_tool(*words).out)
    failing = call_tool(*words, "-f")
    assert (failing.code, failing.err) == (22, "")


def test_a_relative_budget_is_said_to_be_judged_without_error_pages(call_tool, tmp_path):
    """Of the sides as of a baseline: a canary with error pages passes, but not without a word."""
    path, slower = tmp_path / "before.json", Reply(wait=0.04)
    flap = every(SLOW, slower, SLOW, slower, Reply(503))
    with http_server({"/": every(SLOW, slower), "/flap": flap}) as server:
        budget = ["--compact", *OFTEN, "--slo", "total=+9900%"]
        sides = [*budget, "--vs", server.url("/flap"), server.url()]
        assert "of 40 answers 4 were error pages (503)" in unframed(call_tool(*sides).out)
        assert call_tool(*sides, "-f").code == 22
        assert call_tool("--compact", *OFTEN, "--json", path, server.url()).code == 0
        both = call_tool(*budget, "--slo", "total.max=9000", "--baseline", path, server.url("/flap"))
        assert both.code == 0 and FIFTH in unframed(both.out), "each answer counts once"


def test_a_budget_that_is_not_judged_is_named_in_the_line_and_its_reason_on_stderr(run_tool):
    """Of kept connections only runs on them count, and this server keeps none."""
    with http_server({"/": Reply(headers=[("Connection", "close")])}) as server:
        words = ["--reuse", "--count", "4", *QUICK, "--slo", "wait.max=9000,ttfb.median=9000", server.url()]
        result, compact = run_tool("--metrics-only", *words), run_tool("--compact", *words)
    reason = "not judged, too few good answers on a kept connection"
    assert result.warned(f"ttfb.median: {reason}", f"wait.max: {reason}").code == 4
    assert result.out.endswith(" slo=fail slo_violations=ttfb.median,wait.max\n")
    assert f"wait.max: {reason}" in flat(compact.out) and compact.err == ""


def test_several_statuses_that_are_not_good_are_all_named(call_tool):
    with http_server({"/": every(Reply(), Reply(999), Reply(404))}) as server:
        result = call_tool("--compact", "--count", "6", *QUICK, "--slo", "ttfb=9000", server.url())
    assert f"of 6 answers 4 were error pages (404, 999){HINT}" in unframed(result.out)


def test_where_no_answer_was_good_statistics_are_of_all_and_that_is_said(call_tool, tmp_path):
    path = tmp_path / "out.json"
    with http_server({"/": Reply(404)}) as server:
        for style in STYLES:
            result = call_tool(*style, "--count", "4", *QUICK, "--json", path, server.url())
            assert result.json(path)["statistics"][0]["n"] == 4
            if style:
                assert result.err == f"httphases: warning: step 1: {NONE_GOOD}\n"
            else:
                assert "No answer was good; times of all answers, in ms" in flat(result.out)
                assert "4 runs, status 404: 4" in flat(result.out)


def test_what_is_expected_is_what_a_series_is_summed_up_by(run_tool, fifth, tmp_path):
    path, options = tmp_path / "out.json", [*OFTEN, "--metrics-only", "--expect", "503"]
    result = run_tool(*options, "--json", path, "--slo", "ttfb=9000", fifth.url())
    assert result.json(path)["statistics"][0]["n"] == 4
    assert result.code == 22


def test_a_redirect_on_the_way_is_good_whatever_is_expected(run_tool, tmp_path):
    path = tmp_path / "out.json"
    with http_server({"/": redirect("/b"), "/b": every(Reply(401), Reply(200))}) as server:
        options = ["-L", "--metrics-only", "--count", "4", *QUICK, "--expect", "401", "--json", path]
        result = run_tool(*options, server.url())
        document = result.json(path)
    assert [(each["n"], each["bad_status"]) for each in document["statistics"]] == [(4, 0), (2, 2)]


# --- the progress line ----------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "told"), [("--count 20", "run 11 of 20"), ("--duration 20", "run 11")])
def test_the_progress_line_says_how_far_a_series_is_and_what_went_wrong(words, told):
    report = tool.Report(tool.parse_options([*words.split(), "http://a.test/"], {}, 80))
    report.planned = 20
    ended = [sample(run, 20_000) for run in range(1, 8)]
    ended += [sample(8, 1, status=503), sample(9, 1, error="timeout"), sample(10, 1, status=404)]
    report.runs = [tool.Run((each,), False) for each in ended]
    assert tool.series_progress(report) == f"{told}, ttfb 20 ms, 1 failed, 2 bad"
