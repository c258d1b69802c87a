"""--baseline: what was measured beside the statistics of an earlier export, and budgets relative to it."""

from __future__ import annotations

import json
import random
import re
from functools import reduce
from itertools import product
from operator import getitem

import pytest

from checks import check_usage_error, flat, summaries
from inside import tool
from servers import Reply, http_server, redirect, refused_port

KEYS = ("dns_ms", "connect_ms", "tls_ms", "wait_ms", "xfer_ms", "ttfb_ms", "total_ms", "send_ms")


@pytest.fixture(scope="module")
def site():
    """Serve quick and slow pages, a chain and an error page."""
    chance = random.Random(1)
    routes = {
        "/": lambda _: Reply(body=b"x" * 100, wait=chance.random() * 0.002),
        "/slow": Reply(body=b"x" * 100_104, wait=0.04),
        "/500": Reply(500, b"x" * 100),
        "/chain": redirect("/"),
        "/to-slow": redirect("/slow"),
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
    return ("--count", "12", "--interval", "0", *words)


def changed(path, *places_and_value):
    """Change one value of an export, or "delete" it; those before the value are the way to it."""
    document = json.loads(path.read_bytes())
    *way, name, value = places_and_value
    inner = reduce(getitem, way, document)
    inner[name] = value
    if value == "delete":
        del inner[name]
    path.write_text(json.dumps(document))
    return path


def scaled(path, factor):
    """Make all times of an export longer by a factor: a busy machine makes no verdict uncertain then."""
    for key, each in json.loads(path.read_bytes())["statistics"][-1].items():
        if key in KEYS and each["median"] is not None:
            changed(path, "statistics", -1, key, "median", round(each["median"] * factor, 3))
            ends = [round(end * factor, 3) for end in each["median_ci95"]]
            changed(path, "statistics", -1, key, "median_ci95", ends)
    return path


def check_numbers(document, earlier):
    """Prove every difference and interval; return the comparison."""
    [found] = document["comparisons"]
    now, before = (each["statistics"][-1] for each in (document, earlier))
    assert (found["side"], found["against"]) == (None, "before")
    assert found["n"] == min(now["n"], before["n"])
    for key in KEYS:
        median, ends = found[key]["median_ms"], found[key]["ci95_ms"]
        one, other = now[key]["median"], before[key]["median"]
        assert median == (None if None in (one, other) else pytest.approx(one - other, abs=0.0011)), "rounded"
        own, theirs = now[key]["median_ci95"], before[key]["median_ci95"]
        if None in (own, theirs):
            assert ends is None
        else:
            assert ends == pytest.approx([own[0] - theirs[1], own[1] - theirs[0]], abs=0.0011)
    return found


def compared(call_tool, path, *arguments, code=0):
    """Measure beside an export; return the document, once its numbers are proved, and its comparison."""
    earlier = json.loads(path.read_bytes())
    result = call_tool("--metrics-only", "--json", "-", "--baseline", path, *arguments)
    assert result.code == code, result.err
    document = result.json()
    not_judged = document["summary"].get("slo", {}).get("not_judged", ())
    assert all(f"{key}: not judged" in result.err for key in not_judged)
    given = {name: earlier[name] for name in ("started_at", "host", "label")}
    assert document["baseline"] == {"path": str(path), **given}
    return document, check_numbers(document, earlier)


def test_a_page_is_slower_or_faster_than_before_and_lines_say_so(call_tool, site, export):
    for factor, verdict in ((0.001, "slower"), (10**4, "faster")):
        path = scaled(export(*of_many(site.url())), factor)
        _, found = compared(call_tool, path, *of_many(site.url()))
        assert (found["verdict"], found["n"]) == (verdict, 12)
        for style, unit in (("--metrics-only", 0), ("--compact", 2)):
            [summary] = summaries(call_tool(style, "--baseline", path, *of_many(site.url())).out)
            *numbers, told = list(summary.items())[-4:]
            assert [name for name, _ in numbers] == ["total_diff", "total_diff_low", "total_diff_high"]
            middle, low, high = (float(text[: len(text) - unit]) for _, text in numbers)
            assert low <= middle <= high and (low > 0) == (verdict == "slower") == (high > 0)
            assert told == ("verdict", verdict)


def test_an_interval_needs_six_good_runs_on_both_sides(call_tool, site, export):
    counts = {number: export("--count", number, "--interval", 0, site.url()) for number in (5, 6)}
    for before, now in ((6, 5), (5, 6), (6, 6)):
        words = ("--count", now, "--interval", 0, site.url())
        _, found = compared(call_tool, counts[before], *words)
        few = f"so far; 6 good runs of both are needed to be sure, there are {min(before, now)}"
        assert (found["verdict"] == "too_few") is (before + now < 12)
        assert (few in flat(call_tool("--baseline", counts[before], *words).out)) is (before + now < 12)


def test_of_a_chain_the_last_step_is_compared_and_kept_connections_with_kept_ones(call_tool, site, export):
    path = scaled(export("-L", *of_many(site.url("/chain"))), 0.001)
    document, found = compared(call_tool, path, "-L", *of_many(site.url("/to-slow")))
    assert (found["verdict"], document["statistics"][-1]["url"]) == ("slower", site.url("/slow"))
    path = export("--reuse", *of_many(site.url()))
    words = ("--slo", "connect=+1%,dns=+0", "--reuse", *of_many(site.url()))
    document, found = compared(call_tool, path, *words)
    assert found["n"] == 11
    assert found["connect_ms"] == {"median_ms": None, "ci95_ms": None}
    assert document["summary"]["slo"]["thresholds_ms"] == {}, "a phase that a side lacks is no budget"


def test_the_file_may_be_the_one_that_is_written_and_there_are_twenty_runs(call_tool, site, export):
    path = export(*of_many(site.url()))
    old = json.loads(path.read_bytes())
    words = ("--json", path, "--baseline", path, "--interval", 0, site.url())
    assert call_tool("--metrics-only", *words).code == 0
    new = json.loads(path.read_bytes())
    assert new["baseline"]["started_at"] == old["started_at"] != new["started_at"]
    assert (new["count"], len(new["runs"]), check_numbers(new, old)["n"]) == (20, 20, 12)


def test_it_may_come_by_standard_input_with_a_mark_and_without_its_runs(run_tool, site, export):
    document = json.loads(export(*of_many(site.url())).read_bytes())
    for name in ("runs", "host", "label"):  # 1.0.0 had no host and no label
        del document[name]
    data = b"\xef\xbb\xbf\r\n" + json.dumps(document, sort_keys=True).encode() + b"\n\n"
    result = run_tool("--metrics-only", "--json", "-", "--baseline", "-", *of_many(site.url()), stdin=data)
    assert result.json()["baseline"]["path"] == "-"


NO_EXPORTS = [
    *(b"", b"null", b"[{}]", b"{}", b"[" * 100_000, b'{"a":' * 100_000),
    b'{"schema_version": 1, "statistics": []}',
    b'{"schema_version": 1, "x": "\xff"}',
    b'{"schema_version": 1, "x": ' + b"9" * 10_000_000 + b"}",
    b'{"schema_version": 1, "x": NaN}',
]


def test_what_cannot_be_read_or_is_no_export_of_a_plain_series_is_refused(
    call_tool, site, server, tmp_path, export
):
    files = {tmp_path / name: "--baseline: cannot read" for name in ("missing", "", "a\0b")}
    for number, data in enumerate([*NO_EXPORTS, b""]):
        path = tmp_path / f"{number}.json"
        path.write_bytes(data)
        files[path] = f"--baseline '{path}' is not a --json export of a series of httphases"
    with path.open("wb") as file:
        file.truncate((16 << 20) + 1)
    files[path] = "larger than 16 MiB"
    place = f"a.test:{site.port}"
    addresses = [word for last in (1, 2) for word in ("--resolve", f"{place}:127.0.0.{last}")]
    several = export("--all-addresses", *addresses, f"http://{place}/", codes=(0, 75))
    files[export(site.url())] = "is of a single run, which proves little: measure it with --count 20"
    files[several] = files[export("--count", 2, "--vs", "", site.url())] = "is of several sides or addresses"
    files[changed(export(*of_many(site.url())), "schema_version", 3)] = "its schema_version is not 2"
    files[changed(export(*of_many(site.url())), "statistics", -1, "n", -1)] = "is not a --json export"
    for path, words in files.items():
        check_usage_error(call_tool("--baseline", path, server.url()), "--baseline", words)
    assert server.accepted == 0


def test_whatever_a_file_lacks_or_holds_instead_the_program_ends_well(call_tool, site, export):
    """Each field is left out, and replaced by what it is not: it is refused, not read, or can be shown."""
    path = changed(export(*of_many(site.url())), "runs", [])
    document = json.loads(path.read_bytes())
    last = document["statistics"][-1]
    ways = [[name] for name in document] + [["statistics", -1, name] for name in last]
    ways += [["statistics", -1, key, name] for key in KEYS for name in last[key]]
    six = ("--count", 6, "--interval", 0, site.url())
    unspoilt, refused, shown = tool.read_baseline(str(path), 9), 0, 0
    for way, value in product(ways, ("text", 10**30, [], "delete")):
        path.write_text(json.dumps(document))
        changed(path, *way, value)
        tool.read_local.cache_clear()
        try:
            found = tool.read_baseline(str(path), 9)
        except tool.UsageError:
            refused += 1
            continue
        if found != unspoilt:
            shown += 1
            assert call_tool("--baseline", path, "--slo", "total=+9999%", *six).code in (0, 4), (way, value)
    assert refused > 100 and shown > 10


def test_the_drawn_report_has_both_and_a_sentence(call_tool, site, export, tmp_path):
    path = changed(scaled(export(*of_many(site.url())), 0.001), "label", "tuesday")
    words = ("--baseline", path, *of_many("--slo", "ttfb=+1%", site.url("/slow")))
    now = tmp_path / "now.json"
    result = call_tool("--json", now, *words)
    assert result.code == 4
    rows = [re.findall(r"[^\s│]+", line)[:2] for line in result.out.splitlines()]
    assert ["before", "200"] in rows and ["now", "200"] in rows
    text = flat(result.out)
    sentence = r"Now is slower than before: total by \S+ ms \(\S+ to \S+\): wait \+4\d\.\d"
    assert re.search(sentence + r".* Body now 97\.8 KB, before 100 B ", text)
    told = text.replace(" ", "")
    for each in (path.name, json.loads(path.read_bytes())["started_at"], ",tuesday", f",{site.url()}"):
        assert each in told
    found = re.search(r"ttfb: \+([\d.]+) % \(\+[\d.]+ to \+[\d.]+ %\), allowed \+1 %", text)
    more = json.loads(now.read_bytes())["comparisons"][-1]["ttfb_ms"]["median_ms"]
    before = json.loads(path.read_bytes())["statistics"][-1]["ttfb_ms"]["median"]
    assert float(found[1]) == pytest.approx(100 * more / before, rel=0.001)


def test_credentials_of_a_spoilt_file_are_not_shown_and_escapes_do_nothing(call_tool, site, export):
    path = export(*of_many(site.url()))
    evil = "http://user:hidden-word@b.test/?token=hidden-word&page=seen\x1b[2J"
    changed(path, "statistics", -1, "url", evil)
    changed(path, "host", "\x1b]0;x\x07x://u:hidden-word@x")
    changed(path, "label", "\u202egnp" + "long " * 10_000)
    for words in (("--json", "-"), (), ("--compact",)):
        result = call_tool(*words, "--baseline", path, *of_many(site.url()))
        assert result.code == 0
        assert "hidden-word" not in result.out + result.err
        assert "\x1b" not in result.out + result.err
        if "--json" not in words:
            assert "\u202e" not in result.out and len(result.out) < 30_000


def test_a_page_that_became_slower_shuts_the_gate(call_tool, site, export):
    path = scaled(export(*of_many(site.url())), 0.01)
    words = ("--slo", "total=+100%,wait=+5,connect=+90000,ttfb=1", *of_many(site.url("/slow")))
    document, _ = compared(call_tool, path, *words, code=4)
    slo = document["summary"]["slo"]
    assert [(each["key"], bool(each["run_number"])) for each in slo["violations"]] == [
        ("total", False),
        ("ttfb", True),
        ("wait", False),
    ]
    before, now = (each["statistics"][-1] for each in (json.loads(path.read_bytes()), document))
    for each in slo["violations"][::2]:
        key = f"{each['key']}_ms"
        assert each["baseline_ms"] == before[key]["median"]
        assert abs(each["actual_ms"] - now[key]["median"]) < 0.0011
        assert each["delta_ms"] == pytest.approx(each["actual_ms"] - each["threshold_ms"])
        assert slo["thresholds_ms"][each["key"]] == each["threshold_ms"]
    result = call_tool("--compact", "--baseline", path, *words)
    assert "SLO: fail" in result.out
    [line] = [line for line in result.out.splitlines() if line.startswith("Summary")]
    assert line.endswith(" slo=fail slo_violations=total,ttfb,wait")


def test_without_good_answers_on_either_side_it_is_not_judged(call_tool, site, export):
    words = ("--slo", "total=+900%,ttfb=90000")
    with refused_port() as port:
        failed = export(*of_many(f"http://127.0.0.1:{port}/"), codes=(75,))
    good, bad = export(*of_many(site.url())), export(*of_many(site.url("/500")))
    for path, url, lacking, thresholds in (
        (failed, site.url(), "before", {"ttfb"}),
        (good, site.url("/500"), "now", {"total", "ttfb"}),
        (bad, site.url("/slow"), "before", {"ttfb"}),
    ):
        document, found = compared(call_tool, path, *words, *of_many(url), code=4)
        assert found["verdict"] == "too_few"
        slo = document["summary"]["slo"]
        assert (slo["pass"], slo["violations"], slo["not_judged"]) == (False, [], ["total"])
        assert set(slo["thresholds_ms"]) == thresholds
        told = flat(call_tool("--baseline", path, "--slo", "total=+10%", *of_many(url)).out)
        assert f"total: not judged, too few good answers at {lacking}" in told
        assert "Thresholds: - " in told or lacking == "now", "a number that there is not is a dash"
        assert f"Not compared: {lacking} has no good answer" in told or path == failed
