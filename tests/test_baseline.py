"""--baseline: what was measured beside an earlier export, and budgets relative to it. What is compared is
computed a second time here, from the two documents.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import random
import re
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

import pytest
from test_series import summaries
from test_statistics import dependence_by_fractions, sample
from test_terminal import cells, lines_of

from checks import check_usage_error, flat
from inside import tool
from servers import Reply, http_server, redirect, refused_port

NOBODY = "http://127.0.0.1:1/"
KEYS = ("dns_ms", "connect_ms", "tls_ms", "wait_ms", "xfer_ms", "ttfb_ms", "total_ms", "send_ms")
BENCH = Path(__file__).with_name("bench")


@pytest.fixture(scope="module")
def site():
    """Serve quick and slow pages, chains and an error page."""
    chance = random.Random(1)

    def varying(length, wait):
        """Take up to 6 ms more by chance, or runs on a busy machine would all depend on each other."""
        return lambda _: Reply(body=b"x" * length, wait=wait + chance.random() * 0.006)

    routes = {
        "/": varying(100, 0),
        "/slow": varying(104, 0.04),
        "/big": Reply(body=b"x" * 200),
        "/500": Reply(500, b"x" * 100),
        "/chain": redirect("/"),
        "/far": redirect("/chain"),
        "/to-slow": redirect("/slow"),
        "/closing": Reply(body=b"x" * 100, headers=[("Connection", "close")]),
    }
    with http_server(routes) as server:
        yield server


@pytest.fixture
def export(call_tool, tmp_path):
    """Measure and return the path of the export, a new one each time."""
    count = iter(range(100))

    def measure(*arguments, codes=(0,)):
        path = tmp_path / f"before{next(count)}.json"
        result = call_tool("--metrics-only", "--json", path, *arguments)
        assert result.code in codes, result.err
        assert result.err or not any(codes)
        return path

    return measure


def of_many(*words):
    """Measure so often that runs that depend on each other, on a busy machine, have an interval too."""
    return ("--count", "30", "--interval", "0", *words)


def changed(path, *places_and_value):
    """Change one value of an export; the last argument is the value, those before are the way to it."""
    document = json.loads(path.read_bytes())
    *way, name, value = places_and_value
    inner = document
    for each in way:
        inner = inner[each]
    inner[name] = value
    path.write_text(json.dumps(document))
    return path


def scaled(path, factor):
    """Make all times of an export longer by a factor: a busy machine makes no verdict uncertain then."""
    document = json.loads(path.read_bytes())
    for run in document.get("runs", [document]):
        for step in run["steps"]:
            for key in KEYS:
                if step["timing"][key] is not None:
                    step["timing"][key] = round(step["timing"][key] * factor, 3)
    path.write_text(json.dumps(document))
    return path


# --- the numbers, by another program --------------------------------------------------------------


def times_of(document, number, key):
    """List the values of a key in the good steps of a number; with number None the totals of good chains.

    Where some runs kept their connection, it is these.
    """
    runs = document.get("runs", [document])
    warm = [run for run in runs if all(step["network"].get("reused") is not False for step in run["steps"])]
    values = []
    for run in warm or runs:
        last = run["steps"][-1]
        if number is None and last["error"] is None and last["response"]["status"] < 400:
            values.append(round(sum(step["timing"]["total_ms"] for step in run["steps"]), 3))
        for step in run["steps"] if number else ():
            good = step["error"] is None and step["response"]["status"] < 400
            if step["step_number"] == number and good and step["timing"][key] is not None:
                values.append(step["timing"][key])
    return values


def ends_of(values):
    """Return the interval of 97.5 % of a median, by the tails of a binomial, its ends moved outward by the
    dependence of the values in their order; None under seven, or where they depend on each other too much.
    """
    n, ordered = len(values), sorted(values)
    ranks = [k for k in range(1, n + 1) if 2 * sum(math.comb(n, i) for i in range(k)) * 40 <= 2**n]
    f = float(dependence_by_fractions(values))
    k = min(max(ranks, default=0), math.floor((n + 1) / 2 - 2.2414 * math.sqrt(f * n) / 2))
    return (ordered[k - 1], ordered[n - k]) if k >= 1 else None


def check_numbers(document, earlier):
    """Prove every difference and interval; return the comparison that the verdict rests on."""
    numbers = [len(run["steps"]) for each in (document, earlier) for run in each.get("runs", [each])]
    expected = list(range(1, min(numbers) + 1)) + [None] * (max(numbers) > 1)
    assert [each["step_number"] for each in document["comparisons"]] == expected
    for each in document["comparisons"]:
        assert (each["side"], each["against"]) == (None, "before")
        for key in KEYS if each["step_number"] else ("total_ms",):
            now, before = (times_of(one, each["step_number"], key) for one in (document, earlier))
            found = each[key]
            if not (now and before):
                assert found == {"median_ms": None, "ci95_ms": None}
                continue
            difference = statistics.median(now) - statistics.median(before)
            assert found["median_ms"] == pytest.approx(difference, abs=0.00051)
            ends = ends_of(now), ends_of(before)
            if None in ends:
                assert found["ci95_ms"] is None
            else:
                interval = [ends[0][0] - ends[1][1], ends[0][1] - ends[1][0]]
                assert found["ci95_ms"] == pytest.approx(interval, abs=0.00051)
        if each["step_number"]:
            assert each["n"] == min(len(now), len(before))
    return document["comparisons"][-1]


def compared(call_tool, path, *arguments, code=0, relative=()):
    """Measure beside an export; return the document, once its numbers are proved, and its last comparison."""
    earlier = json.loads(path.read_bytes())
    result = call_tool("--metrics-only", "--json", "-", "--baseline", path, *arguments)
    assert result.code == code, result.err
    document = result.json(relative=relative)
    not_judged = document["summary"].get("slo", {}).get("not_judged", ())
    assert all(f"{', '.join(not_judged)}: not judged" in result.err for _ in not_judged)
    assert document["baseline"] == {
        "path": str(path),
        **{name: earlier[name] for name in ("started_at", "host", "label")},
    }
    return document, check_numbers(document, earlier)


def test_a_slower_page_is_called_slower_and_a_quicker_one_faster(call_tool, site, export):
    path = scaled(export(*of_many(site.url())), 0.001)
    _, last = compared(call_tool, path, *of_many(site.url()))
    assert last["verdict"] == "slower"
    assert last["n"] == 30
    assert last["total_ms"]["ci95_ms"][0] > 0
    path = scaled(export(*of_many(site.url())), 10**4)
    _, last = compared(call_tool, path, *of_many(site.url()))
    assert last["verdict"] == "faster"
    assert last["total_ms"]["ci95_ms"][1] < 0


def test_a_page_that_is_slow_in_truth_is_found(call_tool, site, export):
    _, last = compared(call_tool, export(*of_many(site.url())), *of_many(site.url("/slow")))
    assert last["verdict"] == "slower"


def test_an_interval_needs_seven_good_runs_on_both_sides(call_tool, site, export):
    seven, six = (
        export("--count", 7, "--interval", 0, site.url()),
        export(*of_many(site.url())[:1], 6, *("--interval", 0, site.url())),
    )
    _, last = compared(call_tool, seven, "--count", 7, "--interval", 0, site.url())
    assert last["n"] == 7
    for path, count in ((seven, 6), (six, 7)):
        _, last = compared(call_tool, path, "--count", count, "--interval", 0, site.url())
        assert last["verdict"] == "too_few"
        assert last["n"] == 6


@pytest.mark.parametrize("before", [(), of_many()], ids=["single", "series"])
@pytest.mark.parametrize("now", [(), of_many()], ids=["single", "series"])
def test_single_runs_and_series_go_together(call_tool, site, export, before, now):
    document, last = compared(call_tool, scaled(export(*before, site.url()), 0.001), *now, site.url())
    assert ("steps" in document) == (not now and not before)
    assert last["verdict"] == ("slower" if before else "too_few")
    assert (
        last["n"]
        == {(False, False): 1, (False, True): 1, (True, False): 20, (True, True): 30}[bool(before), bool(now)]
    )
    assert last["total_ms"]["median_ms"] > 0


def test_without_a_count_it_is_measured_as_often_and_as_far_apart_as_before(call_tool, site, export):
    for words, count, interval in (
        (("--count", 9, "--interval", 0.05), 9, 0.05),
        (("--count", 30, "--interval", 0), 20, 0),
        (("--duration", "1", "--interval", 0.2), 5, 0.2),
        (("--count", 1), 1, 1),
    ):
        path = export(*words, site.url())
        document, _ = compared(call_tool, path, site.url())
        assert (document["count"], document["interval_s"]) == (count, interval)
        assert len(document["runs"]) == count
    path = export("--count", 3, "--interval", 1, site.url())
    document, _ = compared(call_tool, path, "--interval", 0, site.url())
    assert (document["count"], document["interval_s"]) == (3, 0)
    assert type(document["interval_s"]) is float, "as without a baseline"


def test_without_a_count_connections_are_kept_as_often(call_tool, site, export):
    document, _ = compared(
        call_tool, export("--count", 7, "--interval", 0, site.url()), "--reuse", site.url()
    )
    assert [run["steps"][0]["network"]["reused"] for run in document["runs"]] == [False, *[True] * 6]


def test_a_count_of_the_file_that_cannot_decide_a_gate_is_refused(call_tool, site, export, server):
    path = export("--count", 6, "--interval", 0, site.url())
    gate = ("--baseline", path, "--slo", "total=+10%")
    check_usage_error(call_tool(*gate, server.url()), "SLO Error", "--count 6", "--count 7 or more")
    single = export(site.url())
    result = call_tool("--baseline", single, "--slo", "total=+10%", server.url())
    check_usage_error(result, "SLO Error", "needs --count")
    assert server.accepted == 0


def test_a_series_of_under_ten_seconds_is_warned_of_where_it_is_compared(call_tool, site, export):
    path = export("--count", 2, "--interval", 0, site.url())
    words = r"measured before within \d\.\d s, now within \d\.\d s: it tells"
    assert re.search(words, call_tool("--metrics-only", "--baseline", path, site.url()).raw)
    changed(path, "summary", "duration_ms", 19_000)
    assert ": measured now within" in call_tool("--metrics-only", "--baseline", path, site.url()).raw
    assert call_tool("--metrics-only", *of_many(site.url())).raw == "", "it is not compared"


def test_the_method_is_named_where_it_differs(call_tool, site, export):
    path = export("-X", "HEAD", site.url())
    assert "differ besides: method GET and HEAD" in flat(call_tool("--baseline", path, site.url()).out)


def test_chains_are_compared_step_by_step_and_as_a_whole(call_tool, site, export):
    path = scaled(export("-L", *of_many(site.url("/chain"))), 0.001)
    document, last = compared(call_tool, path, "-L", *of_many(site.url("/to-slow")))
    assert [each["step_number"] for each in document["comparisons"]] == [1, 2, None]
    assert last["verdict"] == "slower"
    assert document["comparisons"][1]["verdict"] == "slower"


def test_of_chains_of_other_lengths_the_steps_that_both_have(call_tool, site, export):
    path = export("-L", *of_many(site.url("/far")))
    document, _ = compared(call_tool, path, "-L", *of_many(site.url("/chain")))
    assert [each["step_number"] for each in document["comparisons"]] == [1, 2, None]
    document, _ = compared(call_tool, path, *of_many(site.url("/")))
    assert [each["step_number"] for each in document["comparisons"]] == [1, None]


def test_error_pages_are_told_from_good_ones(call_tool, site, export):
    path = export(*of_many(site.url("/500")))
    result = call_tool("--metrics-only", "--json", "-", "--baseline", path, *of_many(site.url()))
    [one] = result.json()["comparisons"]
    assert one["n"] == 30
    assert one["verdict"] == "unlike"
    assert one["total_ms"]["median_ms"] is not None


def test_expect_says_which_answers_of_the_file_are_good(call_tool, site, export):
    """Half of the earlier answers were 404, and are what is asked for."""
    path = export(*of_many(site.url()))
    document = json.loads(path.read_bytes())
    for run in document["runs"][:26]:
        run["steps"][0]["response"]["status"] = 404
    path.write_text(json.dumps(document))
    arguments = ("--metrics-only", "--json", "-", "--baseline", path, "--expect")
    for expected, n in (("2xx", 4), ("2xx,404", 30)):
        found = call_tool(*arguments, expected, *of_many(site.url())).json()
        assert found["comparisons"][0]["n"] == n


@pytest.mark.parametrize("count", [(), of_many()], ids=["single", "series"])
def test_failures_on_either_side_leave_nothing_to_compare(call_tool, site, export, count):
    with refused_port() as port:
        dead = f"http://127.0.0.1:{port}/"
        failed = export(*count, dead, codes=(75,))
        for path, url, code in ((failed, site.url(), 0), (export(*count, site.url()), dead, 75)):
            _, last = compared(call_tool, path, *count, url, code=code)
            assert last["verdict"] == "too_few"
            assert last["n"] == 0
            assert last["total_ms"] == {"median_ms": None, "ci95_ms": None}


def test_kept_connections_are_compared_with_kept_ones(call_tool, site, export):
    path = export("--reuse", *of_many(site.url()))
    document, last = compared(call_tool, path, "--reuse", *of_many(site.url()))
    assert last["n"] == 29
    [one] = document["comparisons"]
    assert one["connect_ms"] == {"median_ms": None, "ci95_ms": None}


def test_where_no_connection_was_kept_all_runs_count(call_tool, site, export):
    path = export(*of_many(site.url("/closing")))
    _, last = compared(call_tool, path, "--reuse", *of_many(site.url("/closing")))
    assert last["n"] == 30


def test_of_a_file_with_sides_it_is_a_s(call_tool, site, export):
    words = f"--count 7 --versus {site.url('/slow')}".split()
    path = export(*words, site.url())
    result = call_tool("--metrics-only", "--json", "-", "--baseline", path, *of_many(site.url()))
    document = result.json()
    earlier = json.loads(path.read_bytes())
    earlier["runs"] = [run for run in earlier["runs"] if run["side"] == "A"]
    assert check_numbers(document, earlier)["n"] == 7


# --- what FILE may be -----------------------------------------------------------------------------


def test_the_file_may_be_the_one_that_is_written(call_tool, site, export):
    path = export(*of_many(site.url()))
    old = json.loads(path.read_bytes())
    result = call_tool("--metrics-only", "--json", path, "--baseline", path, *of_many(site.url("/chain")))
    assert result.code == 0
    new = result.json(path)
    assert new["baseline"]["started_at"] == old["started_at"] != new["started_at"]
    assert check_numbers(new, old)["verdict"] == "unlike"


def test_a_mark_of_byte_order_and_blanks_do_no_harm(call_tool, site, export):
    path = export(site.url())
    path.write_bytes(b"\xef\xbb\xbf\r\n" + path.read_bytes() + b"\n\n")
    assert call_tool("--metrics-only", "--baseline", path, site.url()).code == 0


def test_it_may_come_by_standard_input_or_by_a_pipe(run_tool, site, export, tmp_path):
    data = export(site.url()).read_bytes()
    result = run_tool("--metrics-only", "--json", "-", "--baseline", "-", site.url(), stdin=data)
    assert result.json()["baseline"]["path"] == "-"
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(data,))
    writer.start()
    assert run_tool("--metrics-only", "--baseline", tmp_path / "pipe", site.url()).code == 0
    writer.join()


@pytest.mark.parametrize("other", [("-d", "@-"), ("--slo-file", "-"), ("-H", "@/dev/stdin")])
def test_standard_input_is_read_once(run_tool, server, other):
    result = run_tool("--baseline", "-", *other, server.url(), stdin=b"{}")
    check_usage_error(result, "--baseline", "standard input")
    assert server.accepted == 0


@pytest.mark.parametrize("name", ["missing", "folder", "fifo", "a\0b"])
def test_a_file_that_cannot_be_read_is_refused(call_tool, server, tmp_path, name):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    check_usage_error(call_tool("--baseline", tmp_path / name, server.url()), "--baseline: cannot read")
    assert server.accepted == 0


def test_a_file_over_128_mib_is_refused_unread(call_tool, server, tmp_path):
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate((128 << 20) + 1)
    check_usage_error(call_tool("--baseline", path, server.url()), "larger than 128 MiB")
    assert server.accepted == 0


NO_EXPORTS = {
    "empty": b"",
    "blank": b" \n",
    "mark": b"\xef\xbb\xbf",
    "word": b"fast",
    "number": b"1",
    "null": b"null",
    "list": b"[]",
    "list-of-one": b"[{}]",
    "object": b"{}",
    "version-alone": b'{"schema_version": 1}',
    "nul": b"\0" * 50,
    "not-utf-8": b'{"schema_version": 1, "x": "\xff"}',
    "utf-16": '{"schema_version": 1}'.encode("utf-16"),
    "cut": b'{"schema_version": 1, "runs": [{',
    "two": b'{"schema_version": 1} {"schema_version": 1}',
    "deep-lists": b"[" * 100_000,
    "deep-objects": b'{"a":' * 100_000,
    "deep-and-closed": b"[" * 50_000 + b"]" * 50_000,
    "five-thousand-digits": b'{"schema_version": ' + b"9" * 5000 + b"}",
    "nested-21": b'{"schema_version": 1, "x": ' + b'[{"a":' * 10 + b"1" + b"}]" * 10 + b"}",
    "a-name-twice": b'{"schema_version": 1, "schema_version": 1}',
    "ten-million-digits": b'{"schema_version": ' + b"9" * 10_000_000 + b"}",
    "nan": b'{"schema_version": 1, "x": NaN}',
    "many-names": b'{"schema_version": 1' + b"".join(b',"%d":1' % number for number in range(200)) + b"}",
    "cut-escape": b'{"schema_version": 1, "x": "\\u12',
    "surrogate-in-utf-8": b'{"schema_version": 1, "x": "\xed\xa0\x80"}',
    "har": b'{"log": {"version": "1.2", "entries": []}}',
}


@pytest.mark.parametrize("data", NO_EXPORTS.values(), ids=NO_EXPORTS.keys())
def test_what_is_no_export_is_refused_before_any_request(call_tool, server, tmp_path, data):
    path = tmp_path / "x.json"
    path.write_bytes(data)
    check_usage_error(call_tool("--baseline", path, server.url()), f"{path.name}'", "httphases")
    assert server.accepted == 0


def test_an_archive_is_refused_and_a_later_schema_is_named(call_tool, site, export, tmp_path):
    har = tmp_path / "x.har"
    assert call_tool("--metrics-only", "--har", har, site.url()).code == 0
    check_usage_error(call_tool("--baseline", har, NOBODY), "is not a --json export")
    for version in (2, True, 1.0, "1", [1]):
        path = changed(export(site.url()), "schema_version", version)
        words = f"its schema_version is not 1 but {json.dumps(version)}"
        check_usage_error(call_tool("--baseline", path, NOBODY), words)


@pytest.mark.parametrize("words", [(), ("--count", "2", "--interval", "0")], ids=["single", "series"])
def test_an_export_of_the_first_version_will_do(call_tool, site, export, words):
    """It had no host and no label; and whoever sorts the names of a file puts the runs before its version."""
    path = export(*words, site.url())
    document = json.loads(path.read_bytes())
    del document["host"], document["label"]
    path.write_text(json.dumps(document, sort_keys=True))
    assert call_tool("--metrics-only", "--baseline", path, site.url()).code == 0


STEP = ("runs", 0, "steps", 0)
HOSTILE = [
    ("runs", {}),
    ("runs", "abc"),
    ("runs", []),
    ("runs", [1]),
    ("runs", 0, "target", []),
    ("runs", 0, "target", 5),
    ("runs", 0, "steps", {}),
    ("runs", 0, "steps", None),
    ("runs", 0, "steps", [[]]),
    ("host", 5),
    ("host", []),
    ("label", {}),
    ("started_at", "yesterday"),
    ("started_at", 5),
    ("started_at", "2026-13-01T00:00:00.000Z"),
    (*STEP, "step_number", 2),
    (*STEP, "step_number", "1"),
    (*STEP, "step_number", 10**400),
    (*STEP, "url", None),
    (*STEP, "request", None),
    (*STEP, "request", "method", ["GET"]),
    (*STEP, "request", "body_bytes", "5"),
    (*STEP, "request", "headers", [{"name": 5}]),
    (*STEP, "network", "proxy_url", 5),
    (*STEP, "network", "tls_verified", "no"),
    (*STEP, "network", None),
    (*STEP, "network", "ip", 5),
    (*STEP, "network", "ip", ["::1"]),
    (*STEP, "network", "http_version", {}),
    (*STEP, "network", "cert_sha256", 5),
    (*STEP, "network", "reused", []),
    (*STEP, "response", None),
    (*STEP, "response", {}),
    (*STEP, "response", []),
    (*STEP, "response", "status", "200"),
    (*STEP, "response", "status", 200.5),
    (*STEP, "response", "status", True),
    (*STEP, "response", "status", 10**4000),
    (*STEP, "response", "status", -200),
    (*STEP, "response", "bytes", 10**400),
    (*STEP, "response", "bytes", -1),
    (*STEP, "response", "bytes", None),
    (*STEP, "error", {}),
    (*STEP, "error", "timeout"),
    (*STEP, "error", {"kind": "tls", "phase": [], "message": "x", "hint": "y"}),
    (*STEP, "timing", []),
    (*STEP, "timing", "total_ms", None),
    *((*STEP, "timing", key, -0.001) for key in KEYS),
    (*STEP, "timing", "wait_ms", float("nan")),
    (*STEP, "timing", "wait_ms", float("inf")),
    (*STEP, "timing", "wait_ms", float("-inf")),
    (*STEP, "timing", "wait_ms", 1e300),
    (*STEP, "timing", "wait_ms", 10**400),
    (*STEP, "timing", "wait_ms", "12.5"),
    (*STEP, "timing", "wait_ms", True),
    (*STEP, "timing", "wait_ms", [1]),
]


@pytest.fixture(scope="module")
def sound(program, base_environment, site, tmp_path_factory):
    """An export of a series, to be spoilt."""
    path = tmp_path_factory.mktemp("sound") / "x.json"
    import subprocess
    import sys

    words = ["--metrics-only", "--json", str(path), *of_many(site.url())]
    subprocess.run([sys.executable, program, *words], env=base_environment, check=True, capture_output=True)
    return path.read_bytes()


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: "-".join(map(str, change))[:60])
def test_a_spoilt_export_is_refused_before_any_request(call_tool, server, tmp_path, sound, change):
    path = tmp_path / "x.json"
    path.write_bytes(sound)
    result = call_tool("--baseline", changed(path, *change), server.url())
    check_usage_error(result, "is not a --json export of httphases")
    assert server.accepted == 0


def test_more_runs_and_steps_than_an_export_can_have_are_refused(call_tool, server, tmp_path, sound):
    document = json.loads(sound)
    run = document["runs"][0]
    longest = [{**run["steps"][0], "step_number": number} for number in range(1, 13)]
    for runs, code in (
        ([{**run, "steps": longest[:11]}], 0),
        ([{**run, "steps": longest}], 64),
        ([{**run, "steps": []}] * 9_999 + [run], 0),
        ([{**run, "steps": []}] * 10_000 + [run], 64),
    ):
        path = tmp_path / "x.json"
        path.write_text(json.dumps({**document, "runs": runs}))
        result = call_tool("--metrics-only", "--baseline", path, server.url())
        assert result.code == code
        assert ("is not a --json export" in result.err) == bool(code)


def test_a_number_without_end_is_refused(call_tool, server, tmp_path, sound):
    path = tmp_path / "x.json"
    path.write_bytes(sound)
    changed(path, *STEP, "timing", "xfer_ms", "endless")
    path.write_bytes(path.read_bytes().replace(b'"endless"', b"1e400"))
    check_usage_error(call_tool("--baseline", path, server.url()), "is not a --json export")


# Files that would be large in memory: what they are made of, before, again and again, and behind.
LARGE = {
    "empty lists": (b"[", b"[],", b"1]"),
    "empty runs": (b'{"schema_version":1,"runs":[', b'{"steps":[]},', b"1]}"),
    "lists in a run": (b'{"schema_version":1,"runs":[{"steps":[],"x":[', b"[],", b"1]}]}"),
    "numbers": (b'{"schema_version":1,"x":[', b"1234567,", b"1]}"),
    "digits": (b'{"schema_version":1,"x":', b"1", b"}"),
    "text": (b'{"schema_version":1,"x":"', b"a", b'"}'),
    "backslashes": (b'{"schema_version":1,"x":"', b"\\\\", b'"}'),
    "names": (b'{"schema_version":1,', b'"a":1,', b'"b":1}'),
    "blanks": (b'{"schema_version":1,', b" ", b"}"),
}


@pytest.mark.needs("linux")
@pytest.mark.parametrize("kind", LARGE)
def test_a_large_file_takes_three_times_its_size_of_memory_at_most(run_tool, server, tmp_path, kind):
    before, again, behind = LARGE[kind]
    path = tmp_path / "x.json"
    path.write_bytes(before + again * ((40 << 20) // len(again)) + behind)
    code = "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); "
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"
    result = run_tool("--baseline", path, server.url(), within=(sys.executable, "-c", code))
    assert result.code == 64 and "is not a --json export" in result.err
    assert int(result.out) < (50 + 3 * 40) << 10  # KiB; the program itself takes some 50 MiB
    assert server.accepted == 0


def test_a_long_export_is_read_run_by_run(tmp_path, sound):
    """Larger than a piece, with texts of each size across the borders of the pieces."""
    document = json.loads(sound)
    [run, *_], path = document["runs"], tmp_path / "x.json"
    runs = []
    for number in range(300):
        text = '\\"[{,ü☕😀' * (number * 7) + "x" * number
        step = copy.deepcopy(run["steps"][0])
        step["timing"]["total_ms"] = float(number)
        step["response"]["headers"].append({"name": "X", "value": text * (50 if number == 200 else 1)})
        runs.append({**run, "steps": [step]})
    for ascii_only, indent in itertools.product((True, False), (None, 2)):
        whole = {**document, "runs": runs}
        path.write_text(json.dumps(whole, ensure_ascii=ascii_only, indent=indent), encoding="utf-8")
        found = read(path).samples
        assert [sample.timing.total for sample in found] == [number * 1000 for number in range(300)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_a_signal_while_it_is_read_ends_the_program(start_tool, server, tmp_path, number, kind):
    path = tmp_path / "x.json"
    if kind == "pipe":  # one that drips
        os.mkfifo(path)
        process = start_tool("-m", "60", "--baseline", path, server.url())
        with open(path, "wb", buffering=0) as pipe:
            for _ in range(20):
                pipe.write(b" ")
                time.sleep(0.05)
            process.send_signal(number)
            _, err = process.communicate(timeout=9)
    else:
        path.write_bytes(b'{"schema_version":1,"runs":[' + b'{"steps":[],"x":1},' * 75_000 * 20 + b"1]}")
        process = start_tool("-m", "60", "--baseline", path, server.url())
        time.sleep(0.25)
        process.send_signal(number)
        _, err = process.communicate(timeout=9)
        if process.returncode == 64:
            pytest.skip("this machine had read it before the signal came")
    assert (process.returncode, err) == (128 + number, b"")


def test_a_file_that_takes_longer_than_the_time_of_m_is_refused(run_tool, server, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b'{"schema_version":1,"runs":[' + b'{"steps":[]},' * 70_000 + b"1]}")
    check_usage_error(run_tool("-m", "0.01", "--baseline", path, server.url()), "the time of -m")
    assert server.accepted == 0


def ways(value, way=()):
    """Give the way to every field of a document."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*way, name)
            yield from ways(inner, (*way, name))
    elif isinstance(value, list) and value:
        yield from ways(value[0], (*way, 0))


def read(path):
    return tool.read_baseline(str(path), tool.GOOD_STATUSES, 9)


def test_whatever_a_file_lacks_or_holds_instead_the_program_ends_well(call_tool, site, tmp_path, sound):
    """Each field is left out, and replaced by what it is not: it is refused, not read, or can be shown."""
    path = tmp_path / "x.json"
    document = json.loads(sound)
    document["runs"] = document["runs"][:1]
    path.write_text(json.dumps(document))
    unspoilt = read(path)
    refused = shown = 0
    for way in ways(document):
        for value in (None, "text", -1, 10**30, 0.5, [], {}, ["x", 1], "delete"):
            spoilt = copy.deepcopy(document)
            inner = spoilt
            for each in way[:-1]:
                inner = inner[each]
            if value == "delete":
                del inner[way[-1]]
            else:
                inner[way[-1]] = value
            path.write_text(json.dumps(spoilt))
            try:
                found = read(path)
            except tool.UsageError:
                refused += 1
                continue
            if found != unspoilt:
                shown += 1
                result = call_tool("--baseline", path, site.url())
                assert (result.code, result.err) == (0, ""), (way, value)
    assert refused > 100
    assert shown > 10


def test_a_file_of_addresses_is_refused_with_the_advice(call_tool, tmp_path, site, export):
    url = site.url().replace("127.0.0.1", "a.test")
    place = url.split("/")[2]
    words = ["--resolve", f"{place}:127.0.0.1", "--resolve", f"{place}:127.0.0.2", "--count", "2"]
    path = export("--all-addresses", "--interval", "0", *words, url, codes=(0, 75))
    result = call_tool("--baseline", path, NOBODY)
    check_usage_error(result, "127.0.0.1", "127.0.0.2", "--resolve", "several addresses")
    path = export("--all-addresses", "--interval", "0", *words[:2], *words[4:], url)
    assert call_tool("--metrics-only", "--baseline", path, *words[:2], url).code == 0


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (("--all-addresses",), "--resolve"),
        (("--versus", "-4"), "one thing at a time"),
        (("--baseline", "y"), "--baseline"),
    ],
)
def test_what_it_does_not_go_with(call_tool, server, other, words):
    check_usage_error(call_tool("--baseline", "x", *other, server.url()), words)
    assert server.accepted == 0


def test_an_empty_name_is_refused(call_tool, server):
    check_usage_error(call_tool("--baseline", "", server.url()), "--baseline ''", "path")


# --- what is shown --------------------------------------------------------------------------------


def test_the_drawn_report_has_both_and_a_sentence(run_tool, site, export):
    path = changed(scaled(export(*of_many(site.url())), 0.001), "label", "tuesday")
    result = run_tool("--baseline", path, *of_many(site.url("/slow")), terminal="out", env={"NO_COLOR": "1"})
    text = flat(result.out)
    assert "Now is slower than before: total by " in text
    assert ", most of it wait " in text
    assert path.name in text.replace(" ", "")
    assert f"step1:{site.url()}" in text.replace(" ", "")
    assert "label tuesday" in text
    assert "differ besides" not in text
    started = json.loads(path.read_bytes())["started_at"]
    assert started in text.replace(" ", "")


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("without", [(), ("rich",)], ids=["rich", "plain"])
@pytest.mark.parametrize("chain", [False, True], ids=["one", "chain"])
def test_no_line_is_wider_than_the_terminal(run_tool, site, export, columns, without, chain):
    words, start, end = (("-L",), "/chain", "/to-slow") if chain else ((), "/", "/slow")
    path = scaled(export(*words, *of_many(site.url(start))), 0.001)
    result = run_tool(
        "--baseline",
        path,
        *words,
        *of_many("--slo", "ttfb=+1%", site.url(end)),
        terminal="out",
        columns=columns,
        without=without,
    )
    assert result.code == 4
    drawn = [line.rstrip("\r") for line in lines_of(result.out) if not line.startswith("Run ")]
    assert [line for line in drawn if cells(line) > columns] == []
    assert "before" in result.out
    assert re.search("Now is slower than before|the runs depend on each other", flat(result.out))


def test_the_medians_shown_are_of_all_runs_where_a_redirect_has_a_new_url_every_time(call_tool, export):
    count = iter(range(1000))

    def page(request):
        return redirect(f"/?{next(count)}") if request.target == "/start" else Reply(body=b"ok")

    with http_server({"/": page, "/start": page}) as server:
        path = scaled(export("-L", *of_many(server.url("/start"))), 50)
        result = call_tool("-L", "--baseline", path, *of_many(server.url("/start")))
    median = statistics.median(times_of(json.loads(path.read_bytes()), 2, "total_ms"))
    rows = [line.split("\u2502") for line in result.out.splitlines() if "\u2502 before \u2502 200" in line]
    [shown] = [row[-3].strip() for row in rows]
    assert float(shown) == pytest.approx(median, rel=0.01)


def test_error_pages_are_told_on_either_side(call_tool, export):
    pages = itertools.cycle([Reply(), Reply(), Reply(503), Reply()])
    with http_server({"/": Reply(), "/flap": lambda request: next(pages)}) as server:
        good, flapping = export(*of_many(server.url())), export(*of_many(server.url("/flap")))
        now = flat(call_tool("--baseline", good, *of_many(server.url("/flap"))).out)
        before = flat(call_tool("--baseline", flapping, *of_many(server.url())).out)
    words = "answered 503 in {} of 30 runs; the times are of the good answers"
    assert f"Now {words.format(8)}" in now and "Before answered" not in now
    assert f"Before {words.format(7)}" in before and "Now answered" not in before


def test_host_and_label_are_told_where_they_differ(call_tool, site, export):
    path = export("--label", "tuesday", site.url())
    text = flat(call_tool("--baseline", path, "--label", "tuesday", site.url()).out)
    assert "tuesday" not in text
    text = flat(call_tool("--baseline", path, site.url()).out)
    assert "label tuesday" in text
    changed(path, "host", "elsewhere.example")
    changed(path, "label", None)
    text = flat(call_tool("--baseline", path, "--label", "now", site.url()).out)
    assert "host elsewhere.example" in text
    assert "no label" in text


def test_what_differs_besides_the_times_is_said(call_tool, site, export):
    path = export(site.url())
    words = ("--baseline", path, site.url("/big"))
    assert "Now and before differ besides: body size 200 B and 100 B" in flat(call_tool(*words).out)
    changed(path, "steps", 0, "network", "http_version", "HTTP/2")
    changed(path, "steps", 0, "network", "ip", "::1")
    changed(path, "steps", 0, "network", "cert_sha256", "ab" * 32)
    text = flat(call_tool(*words).out)
    assert "protocol HTTP/1.1 and HTTP/2" in text
    assert "address family IPv4 and IPv6" in text
    assert "certificate none and abababab" in text


def differences(result):
    """Return in what now and before differ besides their times, "" where nothing is said."""
    return flat(result.out).partition("differ besides: ")[2].strip()


def test_a_request_that_was_asked_otherwise_is_said(call_tool, site, export):
    path = export("-H", "X-Old: 1", "-H", "Accept: a/b", site.url())
    words = ("--baseline", path, "-H", "x-old: 2", "-H", "Accept: c/d")
    assert differences(call_tool(*words, site.url())) == "", "the same fields, with other values"
    secret = "Authorization: Bearer hunter2hunter2"
    result = call_tool(*words, "-d", "hello", "-H", secret, site.url())
    fields = "header fields authorization content-type and none"
    assert differences(result) == f"method POST and GET, request body 5 B and 0 B, {fields}"
    assert "hunter2" not in result.out


def test_a_proxy_and_a_unix_socket_are_said(call_tool, site, export):
    path, proxy = export(site.url()), site.url().rstrip("/")
    result = call_tool("--baseline", path, "-x", proxy.replace("//", "//u:hunter2@"), site.url())
    assert f"proxy {proxy} and none" in differences(result)
    assert "hunter2" not in result.out
    earlier = export("-x", proxy, site.url())
    assert f"proxy none and {proxy}" in differences(call_tool("--baseline", earlier, site.url()))
    changed(path, "steps", 0, "network", "unix_socket", "/run/app.sock")
    assert differences(call_tool("--baseline", path, site.url())) == "unix socket none and /run/app.sock"


def test_how_a_certificate_was_checked_and_shown_is_said(call_tool, export, tls, authority):
    trusted = ("--cacert", authority.file)
    with http_server(tls=tls) as server:
        path = export(*trusted, server.url())
        assert differences(call_tool("--baseline", path, *trusted, server.url())) == ""
        result = call_tool("--baseline", path, "-k", server.url())
        assert differences(result) == "verification off and on, --cacert not given and given"
        changed(path, "steps", 0, "network", "client_cert", True)
        result = call_tool("--baseline", path, *trusted, server.url())
        assert differences(result) == "client certificate not shown and shown"


def test_what_an_export_does_not_hold_is_not_compared(call_tool, site, export):
    path = export("-H", "X-Old: 1", site.url())
    document = json.loads(path.read_bytes())
    for part, names in (("network", ("client_cert", "proxy_url")), ("request", ("headers", "body_bytes"))):
        for name in names:
            del document["steps"][0][part][name]
    path.write_text(json.dumps(document))
    result = call_tool("--baseline", path, "-x", site.url(), "-I", "-H", "X-New: 1", site.url())
    assert differences(result) == "method HEAD and GET, body size 0 B and 100 B"


def test_a_kept_connection_beside_new_ones_is_said(call_tool, site, export):
    path = export(*of_many(site.url()))
    result = call_tool("--baseline", path, "--reuse", *of_many(site.url()))
    assert "Now and before differ besides: connection kept and new" in flat(result.out)


def test_earlier_failures_are_shown_with_their_reason(call_tool, site, export):
    with refused_port() as port:
        path = export(*of_many(f"http://127.0.0.1:{port}/"), codes=(75,))
    text = flat(call_tool("--baseline", path, *of_many(site.url())).out)
    assert "before, 30 times in connect" in text
    few = "Too few runs: 7 good ones on both sides are needed, before has 0: export it anew with --count 20"
    assert few in text and "now has" not in text
    assert "differ besides" not in text


def test_summary_lines_have_the_difference_and_the_verdict(call_tool, site, export):
    path = scaled(export(*of_many(site.url())), 0.001)
    for style, number in (("--metrics-only", float), ("--compact", lambda text: float(text[:-2]))):
        result = call_tool(style, "--baseline", path, *of_many(site.url()))
        [summary] = summaries(result.out)
        low, middle, high = (number(summary[f"total_diff{end}"]) for end in ("_low", "", "_high"))
        assert 0 <= low <= middle <= high > 0
        assert summary["verdict"] == "slower"
        assert list(summary)[-4:] == ["total_diff", "total_diff_low", "total_diff_high", "verdict"]


def test_a_single_run_has_a_summary_line_beside_a_baseline(call_tool, site, export):
    path = export(site.url())
    result = call_tool("--metrics-only", "--baseline", path, site.url())
    [summary] = summaries(result.out)
    assert summary["runs"] == "1"
    assert (summary["total_diff_low"], summary["verdict"]) == ("-", "too_few")
    assert summaries(call_tool("--metrics-only", site.url()).out) == []


def test_credentials_of_a_spoilt_file_are_not_shown_and_escapes_do_nothing(run_tool, site, export):
    path = export(site.url())
    evil = "http://user:hidden-word@b.test/?token=hidden-word&page=seen\x1b[2J"
    changed(path, "steps", 0, "url", evil)
    changed(path, "host", "\x1b]0;x\x07x://u:hidden-word@x")
    changed(path, "label", "\u202egnp")
    changed(path, "steps", 0, "error", {
        "kind": "tls\n",
        "phase": "x\x1b",
        "message": "http://u:hidden-word@b.test/ \x1b[31m" + "long " * 10_000,
        "hint": "hidden \r word",
    })  # fmt: skip
    for words in (("--json", "-"), (), ("--compact",), ("--metrics-only",)):
        result = run_tool(*words, "--baseline", path, site.url(), without=("rich",))
        assert result.code == 0
        assert "hidden-word" not in result.out + result.said
        assert "\x1b" not in result.out + result.said
        assert "\u202e" not in result.out or "--json" in words
        assert len(result.out) < 30_000
    assert "token=***&page=seen" in run_tool("--baseline", path, site.url(), without=("rich",)).out


def test_the_file_is_in_no_other_export(call_tool, site, export, tmp_path):
    path = export(*of_many(site.url()))
    har, metrics = tmp_path / "x.har", tmp_path / "x.prom"
    result = call_tool(
        "--metrics-only", "--baseline", path, "--har", har, "--prometheus", metrics, *of_many(site.url())
    )
    assert result.code == 0
    assert len(json.loads(har.read_bytes())["log"]["entries"]) == 30
    assert "httphases_runs{" in metrics.read_text()


# --- relative budgets: what they may be -----------------------------------------------------------

BAD_ALLOWANCES = [
    "+", "+%", "+ 10", "+10%%", "+10 %", "++10", "+-10", "-10%", "-10", "10%", "+nan", "+inf", "+1e400",
    "+1_0", "+0x10", "+1e400%", "+%10", "+10%+5", "+.", "+.%", "+５", "+1\x1b",
]  # fmt: skip


@pytest.mark.parametrize("amount", BAD_ALLOWANCES)
@pytest.mark.parametrize("way", ["--slo", "--slo-file"])
def test_a_malformed_relative_budget_is_refused_in_a_panel(call_tool, server, tmp_path, way, amount):
    text = f"total={amount}"
    if way == "--slo-file":
        (tmp_path / "x.slo").write_text(text + "\n", encoding="utf-8")
        text = tmp_path / "x.slo"
    result = call_tool(way, text, "--baseline", "x", server.url())
    check_usage_error(result, "SLO Error", "of 'total'")
    assert "\x1b" not in result.err
    assert "+10%" in result.err or amount == "-10"
    assert server.accepted == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ttfb.p95=+10%", "expected ttfb"),
        ("total.median=+5", "of medians"),
        ("total=+10%,total=500", "Duplicate"),
        ("total=+10%,TOTAL=+5", "Duplicate"),
        ("send=+10%", "Unknown SLO key"),
    ],
)
def test_a_relative_budget_is_of_a_key_and_the_only_one(call_tool, server, text, words):
    check_usage_error(call_tool("--count", 30, "--baseline", "x", "--slo", text, server.url()), words)
    assert server.accepted == 0


@pytest.mark.parametrize("text", ["total=+10%", "dns=5,ttfb=+25", "total=+0"])
def test_without_something_to_be_relative_to_it_is_refused(call_tool, server, text):
    check_usage_error(call_tool("--slo", text, server.url()), "SLO Error", "--baseline or --versus")
    assert server.accepted == 0


@pytest.mark.parametrize(
    ("amount", "allowed"),
    [("+10%", 1.0), ("+25", 25), ("+0", 0), ("+0%", 0), ("+0.0", 0), ("+.5", 0.5), ("+2.", 2), ("+1e2%", 10)],
)
def test_percent_is_of_the_earlier_median_and_else_it_is_milliseconds(amount, allowed):
    [allowance] = tool.parse_slo([f"total={amount}"]).values()
    assert allowance.over(10.0) == allowed


def test_the_largest_percentage_is_a_number_all_the_same(call_tool, site, export):
    path = export(*of_many(site.url()))
    words = ("--slo", "total=+1.7e308%,ttfb=+1e308", "--json", "-", "--baseline", path, *of_many(site.url()))
    result = call_tool("--metrics-only", *words)
    assert result.code == 0
    assert math.isfinite(
        max(result.json(relative=("total", "ttfb"))["summary"]["slo"]["thresholds_ms"].values())
    )


def test_the_command_line_wins_over_the_file_in_both_directions(call_tool, site, export, tmp_path):
    path, budgets = export(*of_many(site.url())), tmp_path / "x.slo"
    budgets.write_text("total=+0\nttfb=5000\nwait=+9900%\n")
    words = ("--slo-file", budgets, "--slo", "total=5000,ttfb=+50000")
    document, _ = compared(call_tool, path, *words, *of_many(site.url()), relative=("ttfb", "wait"))
    earlier = json.loads(path.read_bytes())
    before = {key: statistics.median(times_of(earlier, 1, f"{key}_ms")) for key in ("ttfb", "wait")}
    found = document["summary"]["slo"]["thresholds_ms"]
    assert found["total"] == 5000
    assert found["ttfb"] == pytest.approx(before["ttfb"] + 50000, abs=0.001)
    assert found["wait"] == pytest.approx(before["wait"] * 100, abs=0.1)
    budgets.write_text("total=+10%\n")
    assert call_tool("--metrics-only", "--slo-file", budgets, "--slo", "total=5000", site.url()).code == 0


# --- relative budgets: how they are judged --------------------------------------------------------


def test_a_page_that_became_slower_shuts_the_gate(call_tool, site, export):
    path = scaled(export(*of_many(site.url())), 0.01)
    words = ("--slo", "total=+100%,wait=+5,connect=+5000", *of_many(site.url("/slow")))
    document, last = compared(call_tool, path, *words, code=4, relative=("total", "wait", "connect"))
    slo = document["summary"]["slo"]
    assert [each["key"] for each in slo["violations"]] == ["total", "wait"]
    earlier = json.loads(path.read_bytes())
    for each in slo["violations"]:
        name = f"{each['key']}_ms"
        before = statistics.median(times_of(earlier, 1, name))
        now = statistics.median(times_of(document, 1, name))
        assert each["baseline_ms"] == pytest.approx(before, abs=0.00051)
        assert each["actual_ms"] == pytest.approx(now, abs=0.0011)
        assert each["delta_ms"] == pytest.approx(each["actual_ms"] - each["threshold_ms"])
        assert each["run_number"] is each["target"] is None
        assert slo["thresholds_ms"][each["key"]] == each["threshold_ms"]
    assert last["total_ms"]["ci95_ms"][0] > slo["violations"][0]["threshold_ms"] - before


def test_the_panel_and_the_lines_have_the_verdict(call_tool, site, export):
    path = scaled(export(*of_many(site.url())), 0.01)
    words = ("--slo", "total=+5", "--baseline", path, *of_many(site.url("/slow")))
    text = flat(call_tool(*words).out)
    assert "SLO: fail" in text
    assert ", beside " in text
    [summary] = summaries(call_tool("--metrics-only", *words).out)
    assert (summary["slo"], summary["slo_violations"]) == ("fail", "total")


def test_where_there_is_no_interval_a_budget_is_not_judged(call_tool, site, export):
    """Of one run beside one, or too few on either side, chance alone would decide."""
    for factor in (0.01, 1000):
        path = scaled(export(site.url()), factor)
        words = ("--slo", "total=+100%", *of_many(site.url()))
        document, last = compared(call_tool, path, *words, code=4, relative=["total"])
        assert last["verdict"] == "too_few"
        slo = document["summary"]["slo"]
        assert (slo["violations"], slo["not_judged"], slo["undecided"]) == ([], ["total"], [])


def test_a_quick_error_page_does_not_open_the_gate(call_tool, site, export):
    """It is not judged: there is no good answer to be judged."""
    path = export(*of_many(site.url("/slow")))
    words = ("--slo", "total=+10%", "--baseline", path, "--json", "-", "--metrics-only")
    result = call_tool(*words, *of_many(site.url("/500")))
    assert result.code == 4
    assert "total: not judged, too few good answers at now" in result.err
    assert "step 1: no answer was good" in result.err
    slo = result.json(relative=["total"])["summary"]["slo"]
    assert (slo["pass"], slo["violations"], slo["not_judged"]) == (False, [], ["total"])
    result = call_tool(*words, "-f", *of_many(site.url("/500")))
    assert result.code == 22
    assert "step 1: no answer was good" in result.err
    result = call_tool(*words, "--expect", "500", *of_many(site.url("/500")))
    assert result.code == 4, "then the file has none"
    assert "total: not judged" in result.err


def test_without_an_earlier_median_it_is_not_judged(call_tool, site, export):
    with refused_port() as port:
        dead = f"http://127.0.0.1:{port}/"
        path = export(*of_many(dead), codes=(75,))
        words = ("--slo", "total=+10%,ttfb=5000")
        document, _ = compared(call_tool, path, *words, *of_many(site.url()), code=4, relative=["total"])
        slo = document["summary"]["slo"]
        assert slo["not_judged"] == ["total"]
        assert slo["thresholds_ms"] == {"ttfb": 5000}
        text = flat(call_tool("--baseline", path, *words, *of_many(site.url())).out)
        assert "total: not judged, too few good answers at before" in text
        alone = flat(call_tool("--baseline", path, "--slo", "total=+10%", *of_many(site.url())).out)
        assert "Thresholds: - " in alone, "a number that there is not is a dash"
        good = export(*of_many(site.url()))
        document, _ = compared(call_tool, good, *words, *of_many(dead), code=75, relative=["total"])
        assert document["summary"]["slo"]["not_judged"] == ["total"]


def test_a_phase_that_a_kept_connection_does_not_have_is_no_budget(call_tool, site, export):
    """Otherwise the one run that made the connection would decide alone."""
    path = scaled(export(*of_many(site.url())), 0.001)
    words = ("--slo", "connect=+1%,dns=+0", "--reuse", *of_many(site.url()))
    document, _ = compared(call_tool, path, *words, relative=["connect", "dns"])
    assert document["summary"]["slo"]["thresholds_ms"] == {}


def test_of_0_ms_a_percentage_allows_nothing_more(call_tool, site, export):
    path = export(*of_many(site.url()))
    words = ("--slo", "tls=+10%,dns=+0", *of_many(site.url()))
    document, _ = compared(call_tool, path, *words, relative=["tls", "dns"])
    assert document["summary"]["slo"]["thresholds_ms"] == {"tls": 0, "dns": 0}
    document = json.loads(path.read_bytes())
    for run in document["runs"]:
        run["steps"][0]["timing"]["wait_ms"] = 0
    path.write_text(json.dumps(document))
    words = ("--slo", "wait=+1000%", *of_many(site.url()))
    document, _ = compared(call_tool, path, *words, code=4, relative=["wait"])
    assert document["summary"]["slo"]["violations"][0]["baseline_ms"] == 0


def test_absolute_budgets_hold_beside_relative_ones(call_tool, site, export):
    path = export(*of_many(site.url()))
    words = ("--slo", "wait=1,total=+100000%", *of_many(site.url("/slow")))
    document, _ = compared(call_tool, path, *words, code=4, relative=["total"])
    [violation] = document["summary"]["slo"]["violations"]
    assert violation["key"] == "wait"
    assert violation["run_number"]


def test_of_sides_each_but_the_first_is_held_and_named(call_tool, site):
    words = ("--versus", site.url("/slow"), "--versus", "", "--versus", site.url("/500"))
    result = call_tool(
        "--metrics-only", "--json", "-", "--count", 8, *words, "--slo", "total=+5,connect=+5000", site.url()
    )
    assert result.code == 4
    assert "step 1 at D: no answer was good" in result.err
    document = json.loads(result.out)
    slo = document["summary"]["slo"]
    [violation] = slo["violations"]
    assert (violation["key"], violation["side"], violation["target"]) == ("total", "B", None)
    assert slo["not_judged"] == ["connect", "total"]
    own, base = (
        {
            run["round"]: run["steps"][0]["timing"]["total_ms"]
            for run in document["runs"]
            if run["side"] == side
        }
        for side in "BA"
    )
    before = statistics.median(base.values())
    difference = statistics.median(own[number] - base[number] for number in own)
    assert violation["baseline_ms"] == pytest.approx(before, abs=0.00051)
    assert violation["actual_ms"] == pytest.approx(before + difference, abs=0.0011)
    assert violation["threshold_ms"] == pytest.approx(before + 5, abs=0.0011)


def held(now, before, amount="+10", paired=False):
    """Hold totals (us) of one series against those of another; return the judgement."""
    sides = [[sample(run, us) for run, us in enumerate(each, 1)] for each in (now, before)]
    return tool.judge_allowance("total", tool.parse_budget("total", amount), *sides, paired)


@pytest.mark.parametrize(("more", "outcome"), [(10_000, "kept"), (10_001, "exceeded")])
def test_a_budget_is_exceeded_from_one_microsecond_on(more, outcome):
    before = [20_000] * 9
    assert held([us + more for us in before], before).outcome == outcome
    assert held([us + more for us in before], before, paired=True).outcome == outcome
    assert held([20_000 + more], [20_000]).outcome == "too few", "without an interval"


def test_the_lower_end_of_the_interval_decides():
    """Of nine values it is the least of now less the largest of before."""
    before = [20_000] * 4 + [25_000] + [20_000] * 4
    assert held([40_000] * 4 + [35_001] + [40_000] * 4, before).outcome == "exceeded"
    found = held([40_000] * 4 + [35_000] + [40_000] * 4, before)
    assert found.outcome == "undecided", "most of it lies above what is allowed"
    assert tool.Verdict((found,)).passed is True
    assert held([30_000] * 9, [20_000] * 9).outcome == "kept", "all of it lies within"


@pytest.mark.parametrize(("now", "before"), [([1, 2], [1]), ([3], [2, 3]), ([20_005], [20_004, 20_005])])
def test_a_violation_is_one_in_what_is_printed(now, before):
    for amount in ("+0", "+0.0004", "+1%"):
        found = held(now, before, amount)
        if found.outcome == "exceeded":
            assert found.excess > 0
            assert found.actual > found.threshold


# --- whether the verdicts can be trusted ----------------------------------------------------------


@pytest.mark.parametrize("count", [7, 8, 10, 20, 33, 50, 100, 1000])
def test_each_end_of_an_unpaired_interval_bears_a_fortieth(count):
    """Twice the tail of a binomial distribution: of two medians together at most one in twenty is outside."""
    low, high = tool.series_interval(range(count), 1.0)
    rank = low + 1
    assert high == count - rank

    def outside(k):
        return 2 * sum(math.comb(count, i) for i in range(k)) / 2**count

    assert outside(rank) <= 1 / 40
    assert outside(rank + 2) > 1 / 40, "and it is not much wider than it must be"


def test_an_interval_is_wider_where_runs_depend_on_each_other_until_there_is_none():
    widths = []
    for depends in (1.0, 2.0, 5.0):
        low, high = tool.series_interval(range(50), depends)
        widths.append(high - low)
    assert widths == sorted(set(widths))
    assert tool.series_interval(range(50), 10.0) is None
    assert tool.series_interval(range(6), 1.0) is None


@pytest.fixture
def verdicts(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    return __import__("verdicts")


@pytest.mark.parametrize(
    ("kind", "paired"),
    [
        ("log-normal, sigma 0.2", True), ("bimodal", True), ("drift", True), ("outliers", True),
        ("every 4. slow", True), ("4 backends in turn", True),
        ("log-normal, sigma 0.2", False), ("bimodal", False), ("outliers", False), ("dependence 0.5", False),
    ],
)  # fmt: skip
def test_chance_alone_makes_no_verdict_and_opens_no_gate(verdicts, kind, paired):
    """60 pairs of series of one distribution, from a fixed seed; tests/bench/verdicts.py has many more."""
    chance, count = verdicts.random.Random(f"{kind} {paired}"), 20
    judged = [verdicts.simulate(verdicts.KINDS[kind], count, 8.0, paired, chance) for _ in range(60)]
    assert sum(each.low <= 8.0 <= each.high for each in judged) >= 54
    same = [verdicts.simulate(verdicts.KINDS[kind], count, 0.0, paired, chance) for _ in range(60)]
    assert sum(each.verdict in ("slower", "faster") for each in same) <= 8
    assert sum(each.shut for each in same) <= 3
    slower = [verdicts.simulate(verdicts.KINDS[kind], count, 80.0, paired, chance) for _ in range(20)]
    assert sum(each.verdict == "slower" for each in slower) >= (10 if paired or "dep" not in kind else 4)


def test_what_drifts_is_told_from_a_difference_by_pairs_alone(verdicts):
    """The reason for --versus: a server that gets slower makes the later one of two series slower."""
    chance = verdicts.random.Random(1)
    draw = verdicts.KINDS["drift"]
    apart = [verdicts.simulate(draw, 100, 0.0, False, chance) for _ in range(20)]
    assert all(each.verdict == "slower" for each in apart)


# --- the time of day ------------------------------------------------------------------------------


def test_each_budget_that_is_not_judged_has_a_reason_of_its_own():
    """total.p95 has too few values; of total there are enough, but each depends on the one before."""
    run = [[sample(number, 20_000 + 900 * number) for number in range(1, 13)] for _ in "BA"]
    budgets = {"total.p95": 30.0}, {"total": tool.Allowance(10, True)}
    options = tool.parse_options(["http://localhost/"], {}, 80)._replace(
        series=tool.Series(12, 1.0, single=False)
    )
    options = options._replace(thresholds=budgets[0], allowances=budgets[1], style="metrics")
    results = tool.Results(
        options._replace(baseline=tool.Baseline("f", "", None, None, (*run[0],), 12, 1, 60))
    )
    results.samples = run[1]
    report = results.report(12, 0)
    reasons = {
        "total": "not judged, the runs depend on each other: more of them, further apart",
        "total.p95": "not judged, too few good answers",
    }
    assert list(tool.refusals(report)) == [f"{key}: {text}" for key, text in reasons.items()]
    assert list(results.warnings(report)) == [f"{key}: {text}" for key, text in reasons.items()]
