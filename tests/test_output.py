"""What is printed: the waterfall, the compact lines, the metrics lines, and where each word goes."""

from __future__ import annotations

import re

import pytest

from checks import parse_compact, summaries
from inside import tool
from servers import Failing, Reply, http_server, redirect, refused_port, scripted

ESCAPE = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")


@pytest.fixture
def site():
    """Serve a page, and /start → /end."""
    routes = {
        "/": Reply(body=b"hello", headers=[("Content-Type", "text/x-test; charset=utf-8")]),
        "/start": redirect("/end", 307),
        "/end": Reply(body=b"end"),
    }
    with http_server(routes) as server:
        yield server


def test_a_compact_report_is_one_line_a_step_and_nothing_else(call_tool, site):
    result = call_tool("--compact", "-L", site.url("/start"))
    assert (result.code, result.err) == (0, "")
    lines = [parse_compact(line) for line in result.out.splitlines()]
    shown = [tuple(line[name] for name in ("step", "status", "method", "url")) for line in lines]
    assert shown == [("1", "307", "GET", site.url("/start")), ("2", "200", "GET", site.url("/end"))]
    assert result.out.endswith("\n")


def test_the_size_has_a_fitting_unit():
    shown = {0: "0 B", 1023: "1023 B", 1024: "1.0 KB", 1536: "1.5 KB", 1048576: "1.0 MB"}
    assert {size: tool.size_text(size) for size in shown} == shown


def test_a_failed_step_is_a_line_too(call_tool):
    with refused_port() as port:
        url = f"http://127.0.0.1:{port}/x"
        result = call_tool("--compact", "-X", "PUT", url)
        [line] = call_tool("--metrics-only", url).metrics()
    assert (line["status"], line["error"], line["ttfb"]) == ("0", "network", "-")
    assert (line["wait"], line["xfer"]) == ("-", "-")
    fields = parse_compact(result.out.rstrip("\n"))
    assert (fields["kind"], fields["method"], fields["url"]) == ("network", "PUT", url)
    assert (fields["dns"], fields["ttfb"]) == ("0.0ms", "-")
    assert "refused" in fields["message"].lower()


def test_a_line_is_never_broken_however_narrow_the_terminal(run_tool):
    path = "/" + "[bold]x" * 60
    with http_server() as server:
        result = run_tool("--compact", server.url(path), terminal="out err", columns=40)
    [line] = ESCAPE.sub("", result.out).splitlines()
    assert parse_compact(line)["url"] == server.url(path)


def test_a_metrics_report_is_one_line_a_step_with_every_token(call_tool, site):
    result = call_tool("--metrics-only", "-L", site.url("/start"))
    assert (result.code, result.err) == (0, "")
    first, second = result.metrics()
    assert (first["step"], first["status"], first["bytes"]) == ("1", "307", "6")
    assert (second["step"], second["status"], second["bytes"]) == ("2", "200", "3")
    for line in (first, second):
        assert (line["ip"], line["family"], line["proxy"]) == ("127.0.0.1", "IPv4", "direct")
        assert (line["tls_version"], line["tls"], line["dns"]) == ("-", "0.000", "0.000")
        times = {key: float(line[key]) for key in ("connect", "wait", "ttfb", "xfer", "total")}
        assert times["connect"] + times["wait"] == pytest.approx(times["ttfb"], abs=1e-9)
        assert times["ttfb"] + times["xfer"] == pytest.approx(times["total"], abs=1e-9)


PLACES = ['"$@"', '"$@" 2>&1', '"$@" >out', '"$@" >out 2>&1']
"""Where the streams of a run go, as a shell writes it."""


@pytest.mark.parametrize("mode", ["-i", "--compact", "--metrics-only", "-s", "--json=-"])
def test_the_reason_of_a_failed_step_stands_on_stderr_but_where_that_shows_the_report(
    run_tool, tmp_path, mode
):
    """For whoever reads a log: in one line why, and what to try, as JSON has them."""
    (tmp_path / "out").touch()
    with refused_port() as port, http_server({"/": redirect(f"http://127.0.0.1:{port}/x")}) as server:
        error = run_tool("-L", "--json", "-", server.url()).json()["steps"][1]["error"]
        for place in PLACES:
            result = run_tool("-L", mode, server.url(), within=["sh", "-c", place, "sh"], cwd=tmp_path)
            told = result.out + result.err + (tmp_path / "out").read_text()
            said = f"httphases: error: Step 2: {error['message']}. {error['hint']}\n"
            drawn_there = mode == "--json=-" or (mode in ("-i", "--compact") and "2>&1" in place)
            assert (result.code, told.count(said)) == (75, not drawn_there), place
            (tmp_path / "out").write_text("")
        words = ("-L", "--count", 2, "--interval", 0, mode, server.url())
        said = re.findall("error: Run [12] Step 2: .*refused", run_tool(*words).err)
        assert len(said) == (mode != "--json=-") * 2


def test_a_summary_of_runs_that_all_failed_says_why(call_tool):
    with refused_port() as port:
        for style in ("--compact", "--metrics-only"):
            words = (style, "--count", "2", "--interval", "0", f"http://127.0.0.1:{port}/")
            [summary] = summaries(call_tool(*words).out)
            assert (summary["failed"], summary["error"]) == ("2", "network")
    with scripted(Failing(2)) as server:  # one of three
        result = call_tool("--compact", "--count", "3", "--interval", "0", server.url())
    [summary] = summaries(result.out)
    assert ("error" in summary, summary["runs"], summary["n"]) == (False, "3", "2")


@pytest.mark.needs("rich")
def test_a_certificate_that_is_about_to_expire_stands_out(call_tool, authority):
    """28 is green, 161 red."""
    for days, colour in ((300, "28"), (30, "28"), (29, "161"), (2, "161")):
        with http_server(tls=authority.context("127.0.0.1", days=(-1, days + 0.04))) as server:
            text = call_tool("-k", server.url(), env={"FORCE_COLOR": "1"}).out
        [before] = re.findall(rf"(.*)\b{days} days", text)
        assert re.findall(r"\x1b\[38;5;(\d+)m", before)[-1] == colour, days
