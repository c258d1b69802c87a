"""Latency budgets: what is a specification, what is refused, what is judged, and how the verdict is shown."""

from __future__ import annotations

import re

import pytest

from checks import check_usage_error, flat, parse_metrics, run_lines, summaries
from servers import Failing, Reply, every, http_server, redirect, refused_port, scripted, sending

QUICK = ("--interval", "0")


@pytest.fixture
def chain():
    """Serve /chain → /end, and /broken → a port that refuses."""
    with refused_port() as port:
        routes = {
            "/": Reply(),
            "/chain": redirect("/end"),
            "/end": Reply(body=b"end"),
            "/broken": redirect(f"http://127.0.0.1:{port}/"),
            "/missing": Reply(404, b"none"),
        }
        with http_server(routes) as server:
            yield server


def write(tmp_path, content):
    path = tmp_path / "budgets.slo"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


MALFORMED = {  # what is given: what is said of it
    **dict.fromkeys(
        ["", "-5", "total=1,,dns=1", "=5", "total=1=2", "total=5 ms", "total=1e308s", "total=1\x1b"], ""
    ),
    "[red]x[/red]=5": "Unknown SLO key '[red]x[/red]'",
    "total=1, ttfb ": "Missing '=' in SLO entry 'ttfb'",
    "dns=1,tls=2, DNS =1": "Duplicate",
    "ttfb.p95=1,TTFB.P95=2": "Duplicate",
    "total=10%": "expected +10% or +25",
    "ttfb.p25=100": "Unknown SLO key 'ttfb.p25'",
    "send.p95=100": "Unknown SLO key 'send.p95'",
    **{f"dns=1,ttfb={value}": f"'{value}'" for value in ("fast", "0", "-3", "nan", "1e999", "1_000", "５")},
    **{f"total={value}": "of 'total'" for value in "+ +% +10%% +-10 -10% +nan +1e400% +5\x1b".split()},
}


def test_a_malformed_budget_is_refused_in_a_panel_and_named_before_anything_happens(
    call_tool, server, tmp_path
):
    few = {"ttfb.p95=1": ([], "--count"), "ttfb.p95=2": (["--count", 19], "20")}
    few["ttfb.p90=1"] = (["--count", 10, "--reuse"], "11")
    for specification, told in {**MALFORMED, **few}.items():
        options, told = (["--count", 50], told) if isinstance(told, str) else told
        words = ("--slo", specification, "--har", tmp_path / "har", "--json", "-", *options, server.url())
        result = call_tool(*words)
        check_usage_error(result, "SLO Error", told)
        assert "\x1b" not in result.err
    assert server.accepted == 0 and not list(tmp_path.iterdir())


def test_budgets_of_a_file_hold_where_no_inline_one_overrides_them(call_tool, server, tmp_path):
    path = write(tmp_path, "\ufeff# grün ≤ schnell\r\n\n#dns=1\nWait = 5e3 \n\tTtfb=4.0005s\r\ntotal=0.001")
    words = ("--slo-file", path, "--slo", "TOTAL=90000", "--slo", "tls=7", "--json", "-", server.url())
    slo = call_tool(*words).json()["summary"]["slo"]
    assert slo["thresholds_ms"] == {"tls": 7, "total": 90000, "ttfb": 4000.5, "wait": 5000}


UNSOUND = ["", "\ufeff# nothing\n", "dns=1\ndns=2\n", "dns=1,tls=2\n", "total=fast\n", "a=5\n" + "#" * 2**24]
UNSOUND += [b"dns=1\n\xff\xfe\n", b"d\x00n\x00s\x00", b"# caf\xe9\ndns=1000\n", "dns=1000".encode("utf-16")]
UNSOUND += ["x" * 10_000_000 + "=5"]


def test_a_file_without_sound_entries_is_refused_in_few_words(call_tool, server, tmp_path):
    for content in UNSOUND:
        result = call_tool("--slo-file", write(tmp_path, content), server.url())
        check_usage_error(result, "SLO Error")
        assert len(result.err) < 2500
    missing = call_tool("--slo-file", tmp_path / "missing.slo", server.url(), env={"COLUMNS": "300"})
    check_usage_error(missing, "SLO Error", "missing.slo")
    assert server.accepted == 0


def test_a_chain_is_judged_by_its_last_response_alone(call_tool, server, authority, tls):
    with http_server({"/": redirect(server.url())}, tls=tls) as first:
        words = ("-L", "--slo", "tls=0.001,dns=0.000001", "--metrics-only", "--cacert", authority.file)
        result = call_tool(*words, first.url())
    redirected, last = result.metrics()
    assert "slo" not in redirected and last["slo"] == "pass" and "slo_violations" not in last
    assert result.code == 0


def test_when_a_later_step_fails_the_last_good_one_is_judged_and_the_code_is_75(call_tool, chain):
    result = call_tool("-L", "--slo", "wait=0.001", "--metrics-only", chain.url("/broken"))
    good, failed = result.metrics()
    assert (good["slo"], good["slo_violations"]) == ("fail", "wait")
    assert failed["error"] == "network" and "slo" not in failed
    assert result.code == 75


def test_when_every_step_fails_nothing_is_judged(call_tool):
    with scripted(sending("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")) as server:
        for words in (
            ("--slo", "total=0.001"),
            ("--slo", "ttfb.max=9000,total=9000", "--count", 6, *QUICK),
            ("--slo", "total=+5%", "--count", 6, "--vs", ""),
        ):
            result = call_tool(*words, "--json", "-", server.url())
            assert result.code == 75 and "slo" not in result.json()["summary"] and "SLO" not in result.err


BULLET = re.compile(r"(\w+): (\d+\.\d{1,3}|\d+)ms > (\S+)ms \(\+(\d+\.\d{1,3})ms\)")


def panel(text, sign):
    """Return the words of the SLO panel that ends a report, without its title, which has a sign."""
    title, *inside, bottom = text[text.rindex("\n", 0, text.index(" SLO: ")) + 1 :].splitlines()
    assert sign in title and not any(character.isalnum() for character in bottom)
    return flat("\n".join(inside))


def test_a_panel_shows_a_pass_below_all_else(run_tool, chain):
    for mode, without in (((), ("rich",)), (("--compact",), ())):
        words = ("-L", *mode, "--slo", "ttfb=90000.50,total=9e4", chain.url("/chain"))
        result = run_tool(*words, without=without)
        text = panel(result.out, "✓ SLO: pass")
        assert re.fullmatch("Thresholds: ttfb≤90000.5ms total≤90000ms of the last step that did not .*", text)
        last = "Step 2: 200" if mode else "Redirect Chain Summary"
        assert result.out.index(last) < result.out.index("SLO: pass")


def test_a_panel_shows_each_violation_in_alphabetical_order(call_tool, chain, tmp_path):
    path = tmp_path / "out.json"
    budget = "wait=0.0010,ttfb=0.002,xfer=90000,total=2e-2"
    result = call_tool("--slo", budget, "--json", path, chain.url())
    slo = result.json(path)["summary"]["slo"]
    assert slo["thresholds_ms"] == {"total": 0.02, "ttfb": 0.002, "wait": 0.001, "xfer": 90000}
    thresholds, _, violations = panel(result.out, "✗ SLO: fail").partition("Violations:")
    for threshold in ("wait≤0.001ms", "ttfb≤0.002ms", "xfer≤90000ms", "total≤0.02ms"):
        assert threshold in thresholds
    shown = BULLET.findall(violations)
    assert [key for key, *_ in shown] == ["total", "ttfb", "wait"]
    assert [(key, *map(float, numbers)) for key, *numbers in shown] == [
        (each["key"], each["actual_ms"], each["threshold_ms"], each["delta_ms"]) for each in slo["violations"]
    ]
    assert not any(re.search(r"\.\d+0$", number) for row in shown for number in row[1:])


@pytest.mark.parametrize("style", ["-s", "--metrics-only", "-i"])
def test_a_violated_budget_is_said_under_every_style(call_tool, chain, style):
    words = ["--slo", "total=0.0005,wait=0.001,ttfb=90000", chain.url("/missing")]
    result = call_tool(style, *words)
    assert result.code == 4
    if style == "-s":
        total, wait = result.err.splitlines()
        assert result.out == "" and re.fullmatch(rf"httphases: {BULLET.pattern}", total)
        assert wait.startswith("httphases: wait: ") and re.fullmatch(rf"httphases: {BULLET.pattern}", wait)
    else:
        assert re.search(" slo=fail slo_violations=total,wait\n$|total: .* > 0.0005ms", result.out)
    refused = call_tool("-s", "-f", *words).err.splitlines()
    assert refused[2:] == ["httphases: error page (404)"]
    expected = call_tool("-s", "--expect", "2xx", chain.url("/missing"))
    assert expected.err == "httphases: status not as expected (404)\n"
    assert call_tool("-s", "-f", "--slo", "total=90000", chain.url()).err == ""


def test_a_relative_budget_shows_what_it_comes_to_and_is_told_in_silence(call_tool, server):
    """An address is looked up in 0 ms, a name in some."""
    words = ("--slo", "dns=+0.001", "--vs", server.url(host="localhost"), "--count", "7", "-4", server.url())
    drawn, silent = call_tool("--compact", *words), call_tool("-s", *words)
    assert drawn.code == silent.code == 4
    assert re.search(
        r"Thresholds: dns≤0.001ms dns at B: .* ms\), allowed \+0.001 ms Violations", flat(drawn.out)
    )
    assert re.fullmatch(rf"httphases: {BULLET.pattern} at B\n", silent.err)


def test_a_budget_on_a_percentile_of_few_runs_is_warned_of(call_tool, server):
    words = ("--metrics-only", "--interval", 0, "--slo", "total.p90=90000", server.url())
    call_tool("--count", 28, *words).warned("total.p90: the p90 of 28 runs is usually below the true p90")
    assert call_tool("--count", 29, *words).err == ""


def test_a_plain_budget_must_hold_in_every_run_and_the_worst_is_named(call_tool):
    with http_server({"/": every(Reply(), Reply(wait=2), Reply(wait=4), Reply())}) as server:
        options = ["--metrics-only", "--count", "4", *QUICK, "--slo", "ttfb=1990,total=90000", "--json", "-"]
        result = call_tool(*options, server.url())
    assert result.code == 4
    slo = result.json()["summary"]["slo"]
    [violation] = slo["violations"]
    assert (violation["key"], violation["run_number"], violation["target"]) == ("ttfb", 3, None)
    marks = [parse_metrics(line)["slo"] for line in run_lines(result.err)]
    assert marks == ["pass", "fail", "fail", "pass"]
    [summary] = summaries(result.err)
    assert list(summary)[-2:] == ["slo", "slo_violations"]
    assert (summary["slo"], summary["slo_violations"]) == ("fail", "ttfb")


def test_the_panel_says_statistic_and_number_and_worst_run(call_tool, server):
    budgets = ("--slo", "ttfb.p95=0.001,wait=0.002,total.median=9000")
    result = call_tool("--compact", "--count", "20", *QUICK, *budgets, server.url())
    result.warned("--slo ttfb.p95: the p95 of 20 runs is usually below the true p95")
    assert result.code == 4
    words = flat(result.out)
    assert "ttfb.p95≤0.001ms" in words
    assert re.search(r"• ttfb\.p95: [\d.]+ms > 0\.001ms \(\+[\d.]+ms\)", words)
    assert re.search(r"• wait: [\d.]+ms > 0\.002ms \(\+[\d.]+ms\), worst in run \d+", words)


def test_the_last_step_is_each_run_s_own_whichever_its_number(call_tool):
    """The last steps wait, the redirects do not; of these one alone would keep the budget."""
    with http_server({"/": every(Reply(wait=0.1), redirect("/x")), "/x": Reply(wait=0.1)}) as server:
        options = ["-L", "--metrics-only", "--count", "4", *QUICK, "--json", "-", "--slo", "wait.min=50"]
        result = call_tool(*options, server.url())
    [violation] = result.json()["summary"]["slo"]["violations"]
    assert (result.code, violation["key"], violation["run_number"]) == (4, "wait.min", None)


@pytest.mark.parametrize(("failures", "judged"), [((3,), True), ((3, 4), False)])
def test_what_failures_leave_too_few_of_is_not_judged(call_tool, failures, judged):
    with scripted(Failing(*failures)) as server:
        options = ["--metrics-only", "--count", "11", *QUICK, "--json", "-", "--slo", "total.p90=9000"]
        result = call_tool(*options, server.url())
    slo = result.json()["summary"]["slo"]
    assert result.code == 75
    assert slo["not_judged"] == ([] if judged else ["total.p90"])
    assert slo["pass"] is judged
    assert summaries(result.err)[0]["slo"] == ("pass" if judged else "fail")
