"""What is printed: the waterfall, the compact lines, the metrics lines, and where each word goes."""

from __future__ import annotations

import re

import pytest

from checks import exact, parse_compact, summaries
from inside import tool
from screens import SGR
from servers import Failing, Reply, http_server, redirect, refused_port, scripted


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize(("style", "error"), [("--metrics-only", 0), ("--compact", 0.0501)])
def test_there_is_a_line_for_each_step_with_what_json_says_of_it(call_tool, tmp_path, style, error, answered):
    """The times of --metrics-only are those of the document, of --compact rounded to a tenth."""
    with refused_port() as port:
        to = "/end" if answered else f"http://127.0.0.1:{port}/x"
        with http_server({"/": redirect(to, 307), "/end": Reply(body=b"end", wait=0.01)}) as server:
            result = call_tool("-L", "-X", "PUT", style, "--json", tmp_path / "out", server.url())
    steps = result.json(tmp_path / "out")["steps"]
    lines = [parse_compact(line) for line in result.out.splitlines()] if error else result.metrics()
    assert len(lines) == len(steps) == 2
    assert (result.code, "error" in result.err) == ((0, False) if answered else (75, True))
    for line, step in zip(lines, steps):
        failed, network = step["error"], step["network"]
        status, size = (str((step["response"] or {}).get(name, 0)) for name in ("status", "bytes"))
        expected = {"step": str(step["step_number"])}
        if style == "--metrics-only":
            expected.update(status=status, bytes=size, tls_version="-", proxy="direct")
            expected.update(ip=network["ip"] or "-", family=network["ip_family"] or "-")
            expected.update({"error": failed["kind"]} if failed else {})
        else:
            expected.update(run=None, method="PUT", url=step["url"])
            end = {"status": status, "size": f"{size} B"}
            expected.update({name: failed[name] for name in ("kind", "message")} if failed else end)
        told = {name: shown for name, shown in line.items() if f"{name}_ms" not in step["timing"]}
        assert told == expected
        for name in line.keys() - told.keys():
            value, shown = step["timing"][f"{name}_ms"], line[name].replace("ms", "")
            assert shown == "-" if value is None else abs(exact(float(shown)) - exact(value)) <= error


def test_the_size_has_a_fitting_unit():
    shown = {0: "0 B", 1023: "1023 B", 1024: "1.0 KB", 1048524: "1023.9 KB", 1048525: "1.0 MB"}
    assert {size: tool.size_text(size) for size in shown} == shown
    assert [tool.time_text(us) for us in (99_900, 100_000)] == ["99.9 ms", "100 ms"]


def test_a_line_is_never_broken_however_narrow_the_terminal(run_tool):
    path = "/" + "[bold]x" * 60
    with http_server() as server:
        result = run_tool("--compact", server.url(path), terminal="out err", columns=40)
    [line] = SGR.sub("", result.out).splitlines()
    assert parse_compact(line)["url"] == server.url(path)


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
        result = run_tool(*words)
        said = re.findall("error: Run [12] Step 2: .*refused", result.err)
        assert len(said) == (mode != "--json=-") * 2
        assert mode != "-s" or (result.out, result.err.count("\n")) == ("", 2)


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
