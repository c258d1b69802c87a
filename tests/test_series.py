"""Series of runs (--count, --interval): lines as they come, the summary in every style, exit codes, the
schedule, signals, exports, and peers that are no friends.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import re
import signal
import sys
import time

from checks import (
    check_document,
    flat,
    parse_compact,
    parse_instant,
    parse_metrics,
    run_lines,
    summaries,
)
from conftest import PATIENCE
from inside import here, tool
from paths import first
from servers import Failing, Holding, Reply, every, http_server, redirect, refused_port, scripted

SUMMARY_KEYS = [
    "runs",
    "failed",
    "bad_status",
    "late",
    *(
        f"{key}_{statistic}"
        for key in ("dns", "connect", "tls", "wait", "xfer", "ttfb", "total")
        for statistic in ("min", "median", "p95", "max")
    ),
]
QUICK = ("--interval", "0")


def test_metrics_lines_name_run_and_step_and_the_summary_follows(call_tool, server):
    words = ("--metrics-only", "--compact", "--count", "3", *QUICK, "--slo", "total.max=9000", server.url())
    result = call_tool(*words)
    assert result.code == 0
    *lines, last = result.out.splitlines()
    tokens = [parse_metrics(line) for line in lines]
    assert [(each["run"], each["step"], each["status"]) for each in tokens] == [
        (number, "1", "200") for number in "123"
    ]
    [summary] = summaries(last)
    assert list(summary) == ["step", *SUMMARY_KEYS, "slo"]
    assert (summary["runs"], summary["failed"], summary["slo"]) == ("3", "0", "pass")
    assert all("slo" not in each for each in tokens), "a budget on a statistic marks no run"
    values = sorted(float(each["total"]) for each in tokens)
    for name, value in zip(("min", "median", "max"), values):
        assert summary[f"total_{name}"] == f"{value:.3f}"
    assert {summary[key] for key in SUMMARY_KEYS if key.endswith("_p95")} == {"-"}, "a p95 of three values"


def test_compact_lines_have_units_and_one_decimal_in_the_summary_too(call_tool, server):
    *lines, last = call_tool("--compact", "--count", "20", *QUICK, server.url()).out.splitlines()
    assert [parse_compact(line)["run"] for line in lines] == [str(number) for number in range(1, 21)]
    assert all(re.match(r"\d\d:\d\d:\d\d Run ", line) for line in lines)
    [summary] = summaries(last)
    times = [f"{key}_{name}" for key in ("ttfb", "total") for name in ("median", "p95", "max")]
    assert list(summary) == ["step", "runs", "failed", "bad_status", "n", *times]
    assert all(re.fullmatch(r"\d+\.\dms", summary[key]) for key in times)


def test_a_step_is_one_whatever_its_urls_and_its_title_says_how_many_there_were(run_tool, tmp_path):
    """A redirect with a nonce each time, and one with two places in turn."""
    numbers, path = itertools.count(), tmp_path / "out.json"

    def nonce(request):
        return redirect(f"/end?n={next(numbers)}-{'x' * 3000}")

    routes = {"/": every(redirect("/a"), redirect("/b")), "/a": nonce, "/b": nonce, "/end": Reply()}
    with http_server(routes) as server:
        shown = run_tool("-L", "--count", "5", *QUICK, "--json", path, server.url(), columns=200)
        urls = [server.url(), "various (2 URLs)", "various (5 URLs)"]
    assert re.findall(r"^Step \d: GET (.*)", shown.out, re.M) == urls
    assert "Response     200" in shown.out.partition("Step 3: ")[2]
    found = [(each["url"], each["n"]) for each in shown.json(path)["statistics"]]
    assert found == [(urls[0], 5), (None, 5), (None, 5)]


def test_a_status_line_on_stderr_says_how_far_it_is_and_leaves_nothing(run_tool):
    with scripted(Failing(2)) as server:
        words = ("--metrics-only", "--count", "6", "--interval", "0.3", server.url())
        result = run_tool(*words, terminal="err")
        assert run_tool(*words[:4], "0", server.url()).err == "", "none where there is no terminal"
        lasting = run_tool(words[0], "--duration", "1s", *words[3:], terminal="err").err
    drawn = re.findall(r"\r([^\r\x1b]*)\x1b\[K", result.err)
    texts = "\n".join(drawn)
    assert len(set(re.findall(r"^run (\d) of 6\b", texts, re.M))) > 1
    assert "1 failed" in texts and re.search(r"\rrun \d\x1b", lasting), "a duration has no number"
    assert drawn[-1] == "", "it is still there at the end"
    assert not {"\x1b", "\r"} & set(result.out)


# --- the waterfall --------------------------------------------------------------------------------


def test_one_run_decides_the_code_and_the_worst_reason_wins(call_tool):
    base = ["--metrics-only", "--count", "3", *QUICK]
    with http_server({"/": every(Reply(), Reply(500), Reply(wait=0.1))}) as server:
        assert call_tool(*base, "--fail", "--slo", "wait=50", server.url()).code == 22
        assert call_tool(*base, "--slo", "wait=50", server.url()).code == 4
    ways = iter(["/loop", "/dead", "/fine"])
    with refused_port() as port:
        dead = redirect(f"http://127.0.0.1:{port}/")
        routes = {"/": lambda request: redirect(next(ways)), "/dead": dead, "/fine": Reply()}
        with http_server({**routes, "/loop": redirect("/loop")}) as server:
            result = call_tool(*base, "-L", "--fail", "--slo", "total=0.001", server.url())
    assert (result.code, "stopped after 10 redirects" in result.err) == (47, True)
    with scripted(Failing(2)) as server:
        assert call_tool(*base, "--fail", "--slo", "total=0.001", server.url()).code == 75


# --- the schedule ---------------------------------------------------------------------------------


def test_a_run_that_was_still_under_way_makes_the_next_late_and_moves_all_after_it(call_tool):
    with http_server({"/": every(Reply(), Reply(wait=1), *[Reply()] * 4)}) as server:
        result = call_tool("--count", "5", "--interval", "0.3", "--json", "-", server.url())
    document, drawn = result.json(), flat(result.err)
    late = document["summary"]["late"]
    assert late >= 1
    starts = [parse_instant(run["started_at"]) for run in document["runs"]]
    between = [(after - before).total_seconds() for before, after in zip(starts, starts[1:])]
    assert between[1] >= 1 and min(between) >= 0.299
    assert re.search(rf"status 200: 5, {late} late starts?, in ", drawn)


# --- signals --------------------------------------------------------------------------------------


def test_the_first_signal_sums_up_what_was_measured(start_tool, tmp_path):
    script, path, archive = Holding(3), tmp_path / "out.json", tmp_path / "out.har"
    with scripted(script) as server:
        options = ["--metrics-only", "--count", "30", *QUICK, "--json", path, "--har", archive]
        process = start_tool(*options, "--slo", "total.p90=9000", server.url())
        assert script.held.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)  # the run under way would take longer
    reason = "total.p90: not judged, too few good answers"
    assert (process.returncode, err.decode()) == (130, f"httphases: warning: {reason}\n")
    assert len(run_lines(out.decode())) == 3
    [summary] = summaries(out.decode())
    assert summary["runs"] == "3", "the run under way is left out"
    assert (summary["slo"], summary["slo_violations"]) == ("fail", "total.p90")
    document = check_document(json.loads(path.read_text()))
    assert (document["count"], document["summary"]["runs"]) == (30, 3)
    assert len(json.loads(archive.read_text())["log"]["pages"]) == 3
    assert sorted(os.listdir(tmp_path)) == ["out.har", "out.json"]


def test_a_signal_between_two_runs_ends_the_wait(start_tool, server):
    process = start_tool("--compact", "--count", "2", "--interval", "86400", server.url())
    assert b" Run 1 " in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err.decode()) == (143, "")
    assert b"Summary 1: runs=1" in out


def test_before_the_first_run_has_ended_a_signal_ends_the_program_and_says_where_that_was(
    start_tool, tmp_path
):
    script, path = Holding(0), tmp_path / "out.json"
    with scripted(script) as server:
        process = start_tool("--count", "3", "--json", path, server.url())
        assert script.held.wait(PATIENCE)
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (129, b"")
    # On a busy machine the request is there before its sender has noted that it is connected.
    assert re.fullmatch(rb"httphases: stopped in (connect|wait) after .* port %d\)\n" % server.port, err)
    assert os.listdir(tmp_path) == []


def test_a_second_signal_ends_it_while_nobody_reads(start_tool, tmp_path):
    """The pipe is full: the program is in the middle of writing, and the first signal cannot help it."""
    path = tmp_path / "out.json"
    path.write_text("old")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writing, bytes(1 << 16)):
            pass
    os.set_blocking(writing, True)
    with http_server() as server, open(reading, "rb"), open(writing, "wb") as full:
        words = ("--metrics-only", "--count", "10000", *QUICK, "--json", path, server.url())
        process = start_tool(*words, stdout=full)
        while not server.requests:
            time.sleep(0.01)
            assert process.poll() is None
        time.sleep(0.5)  # until it writes of the first run; a signal before that ends it like this too
        for signum in (signal.SIGTERM, signal.SIGINT):
            process.send_signal(signum)
            time.sleep(0.3)
        process.wait(PATIENCE)
        assert len(server.requests) == 1
    assert process.returncode == 143
    assert path.read_text() == "old", "what was measured had still to be written"


def test_a_reader_that_leaves_ends_the_series_and_does_not_cost_the_export(start_tool, tmp_path, server):
    process = start_tool("--metrics-only", "--count", "10000", *QUICK, server.url())
    path = tmp_path / "out.json"
    options = ["--compact", "--count", "40", *QUICK, "--json", path, "--slo", "total=0.001"]
    for each, code in ((process, 0), (start_tool(*options, server.url()), 4)):
        each.stdout.close()
        each.stdout = None
        assert each.wait(PATIENCE) == code, "the code is as if it had read"
        assert each.stderr.read().decode() == ""
    assert len(server.requests) < 9000
    assert len(check_document(json.loads(path.read_text()))["runs"]) == 40


# --- peers that are no friends, and memory --------------------------------------------------------


def test_exports_of_a_series_have_the_first_4_kb_of_each_header_section_and_a_single_run_has_all(
    call_tool, tmp_path
):
    fields = [(f"X-{number}", base64.b64encode(os.urandom(600)).decode()) for number in range(12)]
    with http_server({"/": Reply(headers=fields)}) as server:
        for options, most in (((), 12), (("--count", "3", *QUICK), 4)):
            call_tool(*options, "--json", tmp_path / "out.json", "--har", tmp_path / "out.har", server.url())
            document = check_document(json.loads((tmp_path / "out.json").read_text()))
            entries = json.loads((tmp_path / "out.har").read_text())["log"]["entries"]
            steps = [step for run in document.get("runs", [document]) for step in run["steps"]]
            assert len(steps) == len(entries) == (3 if options else 1)
            for response in [each["response"] for each in (*steps, *entries)]:
                named = [each["name"] for each in response["headers"] if each["name"].startswith("X-")]
                assert len(named) == most


def test_warnings_are_summed_up(call_tool):
    loop = "stopped after 10 redirects in 1 of 4 runs; step 2 asks what step 1 asked: a loop (exit 47)"
    endless = itertools.chain([False] + [True] * 11, itertools.repeat(False))
    with http_server({"/": lambda request: redirect("/") if next(endless) else Reply()}) as server:
        result = call_tool("-L", "--count", "4", *QUICK, "--compact", server.url())
    assert (result.code, result.err) == (47, f"httphases: warning: {loop}\n")


def test_what_slow_runs_and_error_pages_have_in_common_is_told_and_when_they_came(run_tool, tmp_path):
    path = tmp_path / "out.json"

    def backend(name, status=200, wait=0.01):
        return Reply(status, wait=wait, headers=[(each, name) for each in ("ETag", "X-Api-Key", "X-Backend")])

    # The quick ones differ so much that a busy machine makes none of them a slow one.
    turns = [backend("a"), backend("b", wait=0.06), backend("d", 503)] * 9 + [backend("c", wait=0.6)] * 6
    with http_server({"/": every(*turns)}) as server:
        words = ("--count", "33", *QUICK, "--json", path, server.url())
        result = run_tool(*words, columns=120, env={"PYTHONIOENCODING": "ascii"}, within=first())
    found, *_ = result.json(path)["statistics"][0]["slow"]
    assert found["goes_with"] == {"name": "x-backend", "value": "c", "with": 6, "without": 0}
    assert found["runs"] == [*range(28, 34)]
    words = flat(result.out)
    assert re.search(
        r"Slow 6 of 24 runs, median \d+ ms, the others \d+: run 28-33 from run 28, [\d:]+, on", words
    )
    assert "all 6 have x-backend: c, none of the 18 others" in words
    assert re.search("Bad runs 9 of 33 runs: .* all 9 have x-backend: d, none of the 24 others", words)
    assert result.out.isascii()
    assert re.search(r"^  Over time +[.:=*#@+-]{24}\n +\. \d+ ms, # \d+ ms; good runs", result.out, re.M)


def weight(value, seen):
    """Return the bytes of a record and of all that it holds, but for the objects that were seen before."""
    if id(value) in seen or isinstance(value, (range, type(None))):
        return 0
    seen[id(value)] = value  # held, so that no other object gets its id
    return sys.getsizeof(value) + sum(
        weight(each, seen) for each in (value if isinstance(value, tuple) else ())
    )


ASTRAL = "\U0001f600".encode().decode("latin-1")
"""With it Python keeps four bytes for each character of a text."""


def test_a_step_keeps_no_more_than_16_kb_whatever_was_sent():
    def junk(size):
        return os.urandom(size // 2).hex()

    def hostile(request):
        step = int(request.target[2:3] or "0")
        fields = [(f"X-{junk(6)}", junk(8)) for _ in range(200)]
        fields += [("Server-Timing", f"a;desc={junk(100)}{ASTRAL}"), (f"a {junk(900)}", "x")]
        fields += [("Via", junk(99_000)), ("X-Cache", junk(99_000))]
        fields += [("Location", f"/?{step + 1}{junk(200_000)}")] if step < 3 else []
        return Reply(302, headers=fields, reason=ASTRAL + junk(300_000))

    with http_server({"/": hostile}) as server:
        options = tool.parse_options(["-L", "--count", "3", server.url()], {})
        report, seen = tool.Report(options), {}
        pool = tool.ConnectionPool(tool.TlsContexts(options, None), options)
        for number in (1, 2, 3):
            report.add(tool.Chain(options, pool, lambda _: None, tool.Turn(number, number)).measure())
    *_, last = [weight(run, seen) for run in report.runs]
    assert [step.status for step in report.runs[-1].steps] == [302] * 4
    assert last <= 4 * 16 * 1024


def test_of_ever_new_certificates_the_first_64_chains_are_kept(authority):
    key, _ = authority.ca
    leaves = [authority.issue(authority.ca, sans=("ip:127.0.0.1",), key=key) for _ in range(66)]

    def script(peer):
        peer.secure(authority.showing(leaves[peer.number]))
        peer.read_request()
        peer.send("HTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n")

    with scripted(script) as server:
        document = here("-k", "--count", "66", *QUICK, f"https://{server.authority}/").json()
    kept = [bool(run["steps"][0]["network"]["cert_chain"]) for run in document["runs"]]
    assert kept == [True] * 64 + [False] * 2
