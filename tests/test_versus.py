"""Sides (--versus): what their words may be, how they are measured, and which is better."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import ssl
import threading

import pytest

from checks import check_usage_error, flat, parse_compact
from conftest import PATIENCE
from inside import tool
from samples import sample, with_times
from servers import Reply, every, http_server, redirect, refused_port, scripted

SECRET = "hunter2hunter2"
OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ONCE = ("--count", 1, "--metrics-only")


@pytest.fixture
def measure(call_tool, tmp_path):
    """Compare sides in this process; return the result and the export, which is proved to be sound. `warned`
    is what must be said.
    """

    def run(*words, sides=(), code=0, warned=()):
        path, others = tmp_path / "out.json", [word for each in sides for word in ("--vs", each)]
        result = call_tool("--json", path, *words, *others)
        assert result.code == code, result.err
        return (result.warned(*warned) if warned else result), result.json(path)

    return run


def differences(document):
    return {each["side"]: each for each in document["comparisons"]}


# --- rounds ---------------------------------------------------------------------------------------


def test_the_order_of_each_round_is_drawn_by_lot_and_that_of_what_is_told_is_not(measure, server):
    words = (server.url("/a"), "--versus", server.url("/b"), "--vs", server.url("/c"))
    result, document = measure("--count", 30, *words)
    asked = "".join(each.target[1] for each in server.requests)
    assert [run["side"].lower() for run in document["runs"]] == list(asked)
    assert len({asked[place : place + 3] for place in range(0, 90, 3)}) >= 4, "of six orders"
    assert [each["side"] for each in document["statistics"]] == ["A", "B", "C"]
    assert document["started_at"] == document["runs"][0]["started_at"], "of whichever was first"
    assert re.findall(r"^│ ([ABC]) +│ 200", result.out, re.MULTILINE) == ["A", "B", "C"]
    assert result.out.startswith(f"GET {server.url('/a')}\n"), "the title is the first side's"


def test_lines_name_the_side(call_tool, server):
    result = call_tool("--compact", "--count", 6, server.url("/a"), "--vs", server.url("/b"))
    *runs, first, second = result.out.splitlines()
    for number, (line, asked) in enumerate(zip(runs, server.requests), 1):
        shown = f" Run {number} Step 1 {asked.target[1].upper()}:"
        assert shown in line and parse_compact(line.replace(shown, shown[:-3] + ":"))
    assert " side=A" in first and not re.search("total_diff|verdict", first)
    ends = " ".join(rf"total_diff{end}=-?\d+\.\dms" for end in ("", "_low", "_high"))
    assert re.search(rf" side=B {ends} verdict=\w+$", second)


def test_there_are_twenty_rounds_and_no_pause_unless_more_is_said(measure, server):
    _, document = measure(server.url(), "--vs", "")
    assert (document["count"], document["interval_s"], len(document["runs"])) == (20, 0, 40)
    with http_server({"/": Reply(wait=0.03)}) as slow:
        _, document = measure("--count", 3, "--interval", 0.2, slow.url(), sides=[""] * 7)
    assert (document["count"], document["interval_s"], len(document["runs"])) == (3, 0.2, 24)
    assert document["summary"]["late"] == 2, "from round to round, each of 0.24 s"
    words = ["--duration", "5m", "--slo", "total.p99=500", server.url(), "--vs", ""]
    assert not tool.parse_options(words, {}).warnings, "the time says how many, not twenty"


@pytest.mark.parametrize(("answered", "names", "whole"), [(5, "ab", 2), (2, "abc", 1)])
def test_a_side_or_round_that_was_not_measured_is_not_compared(start_tool, tmp_path, answered, names, whole):
    """Which side is never measured is drawn by lot."""
    arrived, path, asked = threading.Event(), tmp_path / "out.json", []

    def script(peer):
        asked.append(peer.read_request().target)
        if len(asked) > answered:
            arrived.set()
            peer.wait(60)
        peer.send(OK)

    with scripted(script) as server:
        first, *others = (server.url(f"/{name}") for name in names)
        sides = [word for each in others for word in ("--vs", each)]
        process = start_tool("--count", 9, "--json", path, first, *sides)
        assert arrived.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    told, document = flat(out.decode()), json.loads(path.read_text())
    # On a busy machine the request is there before its sender has noted that it is connected.
    where = "[A-H] was stopped in (connect|wait) after "
    assert re.search(rf"Stopped after {answered} of {9 * len(names)} runs; {where}", told)
    assert (len(document["runs"]), document["initial_url"]) == (answered, first)
    there = {target[1].upper() for target in asked[:answered]}
    compared = sorted(there - {"A"}) if "A" in there else []
    assert {side: each["n"] for side, each in differences(document).items()} == dict.fromkeys(compared, whole)
    assert all(re.search(rf"{side} is \S+ ms \w+ so far; ", told) for side in compared)


# --- words ----------------------------------------------------------------------------------------


def test_words_change_what_they_name_and_nothing_else(measure):
    with http_server() as server, http_server() as other:
        sides = [
            "-H 'x-one: 1' -H 'X-New: 2'",
            '-H "X-One: \'c\' \\"d\\"" -H X-New:\\ e -X put',
            "-d 'a=b' -H 'Content-Type: a/b'",
            "--header='X-One:' -H 'X-Two:3' " + other.url("/there"),
        ]
        base = ("-d", '{"a": 1}', "-H", "X-One: 0", "-H", "X-Two: 0")
        _, document = measure("--count", 1, *base, server.url("/base"), sides=sides)
        asked = [*server.requests, *other.requests]
    names = ("content-type", "x-one", "x-two", "x-new")
    shown = [[each.method, each.target, each.body, *map(each.values, names)] for each in asked]
    data, json_type = b'{"a": 1}', ["application/json"]
    expected = [
        ["POST", "/base", data, json_type, ["0"], ["0"], []],
        ["POST", "/base", data, json_type, ["1"], ["0"], ["2"]],
        ["PUT", "/base", data, json_type, ["'c' \"d\""], ["0"], ["e"]],
        ["POST", "/base", b"a=b", ["a/b"], ["0"], ["0"], []],
        ["POST", "/there", data, json_type, [""], ["3"], []],
    ]
    assert sorted(shown, key=str) == sorted(expected, key=str)
    assert document["sides"][-1]["url"] == other.url("/there")


OF_A_SIDE = [
    ("--count 3", "--count is for all sides"),
    ("--vs -k", "--versus is for all sides"),
    ("--help", "stand alone"),
    ("--nonsense", "unrecognized arguments: --nonsense"),
    ("http://127.0.0.1/ http://127.0.0.1/", "expected one URL, got 2"),
    ("--cacert ca.pem", "-k and --cacert exclude each other"),
    ("'", "a quote that is not closed"),
    ("-A \\", "end in a backslash"),
    (f"-H 'X-Token: {SECRET}", "a quote that is not closed"),
    (f"--cert /no.pem:{SECRET}", "--cert"),
]
URL = "http://127.0.0.1:9/"
OF_ALL = [
    (["--vs", ""] * 8, "--versus was given 8 times, 7 at most"),
    (["--vs", "", "--count", 5001], "these are 10002 runs, at most 10000: lower --count"),
    (["--vs", "-L", "--all-addresses"], "exclude each other"),
    (["--vs", "-L", "--baseline", "x.json"], "exclude each other"),
    (["--vs", "-x", f"http://bob:{SECRET}@127.0.0.1:1", URL], "expected one URL, got 2 words: to compare"),
]


def test_what_is_no_comparison_or_no_words_of_a_side_is_refused_without_its_secrets(call_tool):
    for words, message in OF_A_SIDE:
        result = call_tool("-k", URL, "--vs", "", "--vs", words)
        check_usage_error(result, "--versus 2: ", message)
        assert SECRET not in result.err
    for words, message in OF_ALL:
        result = call_tool(*words, *([] if URL in words else [URL]))
        check_usage_error(result, message)
        assert SECRET not in result.err
    check_usage_error(call_tool("--vs", f"-H 'X-Token: 1' {URL}"), "no URL given")


# --- what is read ---------------------------------------------------------------------------------


def test_standard_input_and_a_pipe_are_read_once_for_all_sides(run_tool, server, tmp_path):
    fields, data = tmp_path / "fields", b'{"a": 1}'
    os.mkfifo(fields)
    threading.Thread(target=fields.write_bytes, args=(b"X-A: b\n",), daemon=True).start()
    sides = ("--vs", "-L", "--vs", f"-H @{fields}", "--vs", f"-H @{fields} -H 'Content-Type: a/b' -d @-")
    assert run_tool(*ONCE, "-d", "@-", server.url(), *sides, stdin=data).code == 0
    assert [each.body for each in server.requests] == [data] * 4
    assert sorted(each.values("x-a") for each in server.requests) == [[], [], ["b"], ["b"]]
    types = [each.values("content-type") for each in server.requests]
    assert sorted(types) == [["a/b"], *[["application/json"]] * 3]


# --- secrets --------------------------------------------------------------------------------------

BASIC = "Basic Ym9iOmh1bnRlcjJodW50ZXIy"  # bob:hunter2hunter2
TYPED_AND_SHOWN = [
    (f"-HAuthorization:{SECRET}", "'-HAuthorization:***'"),
    (f"--header='X-Token:{SECRET}'", "'--header=X-Token:***'"),
    (f"-kLH 'X-Token: {SECRET}' -4", "-kLH 'X-Token: ***' -4"),
    (f"-H 'Authorization: {BASIC}'", "-H 'Authorization: ***'"),
    ("-H 'X-Token: 1234' -H 'X-Token: abc '", "-H 'X-Token: 1234' -H 'X-Token: ***'"),
    (f"-e //u:{SECRET}@h/", "-e '//***@h/'"),
    (f"-x http://bob:{SECRET}@127.0.0.1:1 -x ''", "-x 'http://***@127.0.0.1:1' -x ''"),
    ("-x bob:pw@127.0.0.1:1", "-x '***@127.0.0.1:1'"),
    (f"-H 'Authorization: Bearer {SECRET}0' -d 0", "-H 'Authorization: ***' -d '***'"),
    (f"--data='{SECRET} x'", "'--data=***'"),
    (f"'http://127.0.0.1:1/?q=\"&token=ab\\\"{SECRET}'", "'http://127.0.0.1:1/?q=\"&token=***'"),
    ("-d @/dev/null", "-d @/dev/null"),
    ('-H  "Accept: a/b"   -m  3', '-H  "Accept: a/b"   -m  3'),  # as it was written
    (os.fsdecode(b"-H X-A:\xff"), "-H X-A:\ufffd"),
]


@pytest.mark.parametrize("part", [TYPED_AND_SHOWN[:7], TYPED_AND_SHOWN[7:]], ids=["first", "second"])
def test_no_credential_is_shown_however_it_is_written(call_tool, server, tmp_path, part):
    path = tmp_path / "out.json"
    sides = [word for typed, _ in part for word in ("--vs", typed)]
    result = call_tool("--count", 1, "--json", path, server.url(), *sides)
    assert [side["words"] for side in result.json(path)["sides"][1:]] == [shown for _, shown in part]
    for _, shown in part:
        assert " ".join(shown.split()) in flat(result.out)
    everything = result.out + result.err + path.read_text()
    assert SECRET not in everything and BASIC not in everything


def test_a_side_knows_the_secrets_of_the_others(call_tool, tmp_path):
    path, har = tmp_path / "out.json", tmp_path / "out.har"
    with http_server({"/": Reply(headers=[("X-Log", f"{SECRET} and abc123abc123")])}) as server:
        words = ("-H", "X-Token: abc123abc123", server.url(), "--vs", f"-H 'X-Token: {SECRET}'")
        result = call_tool("--count", 1, "-i", "--json", path, "--har", har, *words)
    shown = result.out + path.read_text() + har.read_text()
    assert SECRET not in shown and "abc123abc123" not in shown
    assert shown.count("*** and ***") >= 4


def test_secrets_of_the_base_go_to_no_other_origin(measure):
    with http_server() as server, http_server() as other:
        base = ("-H", f"authorization: {BASIC}", "-H", f"X-Token: {SECRET}", "-H", "X-Plain: 1")
        sides = [other.url("/b"), "-H 'AUTHORIZATION: other' " + other.url("/c"), server.url("/d")]
        left = "another origin does not get"
        warned = [
            f"--versus 1: {left} authorization, X-Token, unless these words",
            f"--versus 2: {left} X-Token, unless these words",
        ]
        measure("--count", 1, *base, server.url("/a"), sides=sides, warned=warned)
    names = ("authorization", "x-token", "x-plain")
    asked = {each.target: [*map(each.values, names)] for each in (*server.requests, *other.requests)}
    assert asked["/a"] == asked["/d"] == [[BASIC], [SECRET], ["1"]]
    assert (asked["/b"], asked["/c"]) == ([[], [], ["1"]], [["other"], [], ["1"]])


def test_a_field_for_the_proxy_goes_to_it_whatever_the_origin_and_to_no_other(measure):
    with http_server() as proxy, http_server() as other:
        base = ("--count", 1, "-H", f"Proxy-Authorization: {BASIC}", proxy.url("/a"))
        own = f"-x {other.url()} -H 'Proxy-Authorization: own'"
        sides = [f"-x {other.url()}", own, f"-x '' {other.url('/d')}", "http://b.test/e"]
        warned = ["--versus 1: another proxy does not get Proxy-Authorization, unless these words repeat it"]
        measure(*base, "-x", proxy.url(), sides=sides, warned=warned)
        measure(*base, sides=sides[:1], warned=warned)  # without a proxy it goes nowhere
    given = [each.values("proxy-authorization") for each in proxy.requests]
    assert given == [[BASIC], [BASIC], []]
    assert sorted(each.values("proxy-authorization") for each in other.requests) == [[], [], [], ["own"]]


# --- TLS ------------------------------------------------------------------------------------------


def test_each_side_shows_its_own_client_certificate_and_another_origin_gets_none(measure, authority):
    context, seen = authority.context(), []
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(authority.file)

    def script(peer):
        certificate = peer.sock.getpeercert()
        names = dict(pair for part in certificate["subject"] for pair in part) if certificate else {}
        seen.append((peer.read_request().target, names.get("commonName")))
        peer.send(OK)

    one, two = (authority.certificate(f"{name}.test", common_name=name) for name in ("one", "two"))
    warned = ["--versus 2: another origin does not get --cert, unless these words repeat it"]
    with scripted(script, tls=context) as server:
        base = ("--count", 1, "--cacert", authority.file, "--cert", one, server.url("/a"))
        away = [server.url(path, "localhost") for path in ("/c", "/d")]
        measure(*base, sides=[server.url("/b"), away[0], f"--cert {two} {away[1]}"], warned=warned)
    assert dict(seen) == {"/a": "one", "/b": "one", "/c": None, "/d": "two"}


# --- ways -----------------------------------------------------------------------------------------


def column(result, name):
    """Return what the table of sides tells of them in a column."""
    lines = [re.split(r" *│ *| {2,}", line.strip("│ ")) for line in result.out.splitlines()]
    [headings] = [line for line in lines if line[0] == "Side"]
    rows = {line[0]: line for line in lines if line[0] in ("A", "B") and len(line) > 2}
    return [rows[side][headings.index(name)] for side in "AB"]


SIDES_HEADINGS = "Side Status dns connect tls wait xfer total p95 diff".split()


@pytest.mark.parametrize("without", [(), ("rich",)], ids=["rich", "plain"])
def test_the_table_of_sides_has_the_same_columns_whatever_the_width(run_tool, tls, without):
    """80 columns hold it; on a narrower terminal no number is cut or folded."""
    with http_server({"/": Reply(body=b"x" * 300_000, wait=0.03)}, tls=tls) as server:
        url = server.url(host="localhost")
        for columns in (80, 60):
            words = ("-k", "--count", 20, url, "--vs", "-4")
            result = run_tool(*words, env={"COLUMNS": str(columns)}, without=without)
            [line] = [line for line in result.out.splitlines() if "Side" in line]
            assert re.findall(r"\w+", line) == SIDES_HEADINGS
            assert columns == 60 or max(map(len, result.out.splitlines())) <= columns
            times = [column(result, name) for name in ("tls", "wait", "total", "p95")]
            assert all(re.fullmatch(r"\d+(\.\d\d?)?", value) for pair in times for value in pair), times


# --- failures and error pages ---------------------------------------------------------------------


def test_a_side_that_fails_is_told_and_not_compared(measure, call_tool, server):
    with refused_port() as port:
        dead = f"http://127.0.0.1:{port}/"
        result, document = measure("--count", 6, server.url(), "--vs", dead, code=75)
        brief = call_tool("-s", "--count", 1, dead, "--vs", "-L")
    found = differences(document)["B"]
    assert (found["n"], found["verdict"], found["total_ms"]["median_ms"]) == (0, "too_few", None)
    told = flat(result.out)
    assert "B is" not in told, "there is nothing to compare"
    assert "refused (6 times)" in told and column(result, "Status") == ["200", "ERROR"]
    assert [column(result, phase) for phase in ("dns", "tls")] == [["0", "-"], ["-", "-"]]
    assert (brief.code, brief.out) == (75, ""), "both fail"
    rows = call_tool("--count", 1, dead, "--vs", "-L").out
    assert (rows.count("  Why "), rows.count("  Try ")) == (2, 1), "each side has its reason"
    assert re.match(r"httphases: error: Run 1 Step 1 [AB]: no connection to 127.0.0.1 port ", brief.err)


def test_an_error_page_is_other_work(measure):
    with http_server({"/": Reply(), "/bad": Reply(503)}) as server:
        result, document = measure("--count", 6, server.url(), "--vs", server.url("/bad"))
        both, export = measure("--count", 6, server.url("/bad"), "--vs", "-L")
    assert differences(export)["B"]["verdict"] == "too_few"
    assert "Not compared: B has no good answer" in flat(both.out)
    assert (differences(document)["B"]["verdict"], differences(document)["B"]["n"]) == ("unlike", 6)
    assert "B answers 503, A 200: the times are of different work" in flat(result.out)
    assert "B: no answer was good, so the statistics are of all answers" in flat(result.out)


def test_only_rounds_that_are_good_on_both_sides_count_and_the_others_are_told(measure):
    pages = itertools.cycle([Reply(), Reply(), Reply(503), Reply(502)])
    with http_server({"/": Reply(), "/flap": lambda request: next(pages)}) as server:
        words = ("--count", 20, server.url(), "--vs", server.url("/flap"), "--vs", "-L")
        result, document = measure(*words)
    assert [differences(document)[side]["n"] for side in "BC"] == [10, 20]
    told = flat(result.out)
    assert re.search(
        r"Bad runs B: 10 of 20 rounds: round 3, 7, 11, 15, 19 \(503\), .* every 4 rounds, \d", told
    )
    assert told.count("Bad runs ") == 1


# --- chains ---------------------------------------------------------------------------------------


def test_chains_are_compared_as_a_whole_whatever_their_length(measure, call_tool):
    routes = {"/": Reply(), "/r": redirect("/"), "/rr": redirect("/r")}
    with http_server(routes) as server:
        words = ("--count", 6, "-L", server.url("/r"), "--vs", server.url("/rr"))
        result, document = measure(*words)
        lines = call_tool(*words, "--compact").out.splitlines()
    assert [each["side"] for each in document["comparisons"]] == ["B"]
    assert "Step 1" not in result.out and result.out.count("│ Side ") == 1
    found = [re.match(r"Summary (\d): .* side=(\w)(.*verdict=)?", line).groups() for line in lines[-5:]]
    assert [number + side for number, side, _ in found] == ["1A", "2A", "1B", "2B", "3B"]
    assert [bool(verdict) for *_, verdict in found] == [False] * 4 + [True]


# --- where it is told -----------------------------------------------------------------------------


def test_every_export_names_the_side(call_tool, tmp_path):
    metrics, traces = (tmp_path / name for name in ("prom", "traces"))
    with http_server() as server, http_server() as other:
        words = ("--prometheus", metrics, "--otlp", traces, "--count", 2, server.url("/a"))
        assert call_tool(*words, "--vs", other.url("/b?c")).code == 0
    elapsed = re.findall(r"^httphases_elapsed_seconds\{(.*)\}", metrics.read_text(), re.MULTILINE)
    assert elapsed == [f'target="{server.url("/a")}",side="A"', f'target="{other.url("/b")}",side="B"']
    named = re.findall(r'"httphases\.(side|target)", *"value": *\{"stringValue": *"(\w)"', traces.read_text())
    assert sorted(named) == [("side", "A")] * 2 + [("side", "B")] * 2


def chains(side, totals, *, steps=1, wait=0):
    """Sum up rounds of a side with such totals (us) of each step, None where there was no good answer; as
    much more of each is `wait` as less is connect.
    """
    runs = []
    for run, us in enumerate(totals, 1):
        chain = []
        for number in range(1, steps + 1):
            each = sample(run, us or 1, status=503 if us is None else 200, number=number, variant=side)
            half = (us or 1) // 2
            chain.append(with_times(each, wait=half + wait, connect=half - wait))
        runs.append(tool.Run(tuple(chain), False))
    return tool.Summary(list(map(tool.chain_of, runs)))


FEW = [None] * 15 + [20_000] * 5
APART = [None] * 8 + [20_000] * 8


@pytest.mark.parametrize(
    ("own", "other", "amount", "outcome", "lacking"),
    [
        # Of six rounds the interval is from the least difference to the largest: here from 1 to 6 ms.
        (range(21_000, 27_000, 1000), [20_000] * 6, "+0.999", "exceeded", ()),
        (range(21_000, 27_000, 1000), [20_000] * 6, "+1", "undecided", ()),
        (range(21_000, 27_000, 1000), [20_000] * 6, "+5.999", "undecided", ()),
        (range(21_000, 27_000, 1000), [20_000] * 6, "+6", "kept", ()),
        (range(21_000, 27_000, 1000), [20_000] * 6, "+4.99%", "exceeded", ()),
        (range(21_000, 27_000, 1000), [20_000] * 6, "+30%", "kept", ()),
        ([20_000] * 6, [20_000] * 6, "+1.7e308%", "kept", ()),
        ([21_000] * 5, [20_000] * 5, "+900%", "not judged", ("B", "A")),
        (FEW, [20_000] * 20, "+900%", "not judged", ("B",)),
        ([20_000] * 20, FEW, "+900%", "not judged", ("A",)),
        (APART, APART[::-1], "+900%", "not judged", ("B", "A")),  # enough of each, but in other rounds
        ([20_000] * 6 + [None] * 14, [20_000] * 20, "+900%", "kept", ()),
    ],
)
def test_a_relative_budget_has_three_ends_by_where_its_interval_lies(own, other, amount, outcome, lacking):
    found = tool.compare(chains("B", own), chains("A", other), 1)
    judgement = tool.judge_allowance("total", tool.parse_budget("total", amount), found)
    assert (judgement.outcome, judgement.lacking) == (outcome, lacking)
    if amount == "+5.999":  # the median is 3.5 ms, and 2.5 below the end of its interval
        assert judgement.enough == pytest.approx(6 * (2.5 / 2.499) ** 2)


def test_a_gate_that_cannot_tell_yet_is_undecided_with_the_number_of_rounds_that_would_tell(measure):
    """B is 60 ms slower twice, then faster once: a busy machine changes neither the median nor an end."""
    quick, slow = Reply(), Reply(wait=0.06)
    routes = {"/a": every(quick, quick, slow), "/b": every(slow, slow, quick)}
    with http_server(routes) as server:
        sides = (server.url("/a"), "--vs", server.url("/b"))
        words = ("--count", 9, "--slo", "total=+30,connect=+90000", *sides)
        drawn, document = measure(*words)
        lines, _ = measure(*words, "--metrics-only")
        strict, failed = measure(*words, "--slo", "wait=0.001", code=4)
    slo, [found] = document["summary"]["slo"], document["comparisons"]
    assert (slo["pass"], slo["undecided"], slo["violations"], slo["not_judged"]) == (True, ["total"], [], [])
    told = r"\? SLO: pass \(total undecided\) .* connect at B: \S+ ms .*, allowed \+90000 ms \? total at B: "
    told += r"\S+ ms \((\S+) to (\S+) ms\), allowed \+30 ms: cannot tell yet; about \d+ rounds would"
    ends = [float(end.replace("−", "-")) for end in re.search(told, flat(drawn.out)).groups()]
    assert ends == pytest.approx(found["total_ms"]["ci95_ms"], abs=0.06)
    assert [" undecided=total slo=pass" in line for line in lines.out.splitlines()[-2:]] == [False, True]
    assert "✗ SLO: fail" in strict.out and "? total at B: " in flat(strict.out)
    violations = [
        (each["key"], each["side"], each["target"]) for each in failed["summary"]["slo"]["violations"]
    ]
    assert violations == [("wait", "A", None), ("wait", "B", None)]


def test_a_count_that_cannot_decide_a_gate_is_refused(call_tool, server):
    for words, needed in ((["--vs", ""], 6), (["--vs", "", "--vs", ""], 7), (["--vs", "", "--reuse"], 7)):
        gate = ("--slo", "total=+10%", server.url(), *words)
        result = call_tool("--count", needed - 1, *gate)
        check_usage_error(result, "SLO Error", "'total'", f"--count {needed} or more")
        assert server.requests == []
        assert call_tool("--metrics-only", "--count", needed, *gate).code in (0, 4)
        server.requests.clear()


def test_a_sentence_says_which_is_better_and_by_which_phases():
    def sentence(own, other):
        return tool.verdict_sentence(tool.compare(own, other, 1))

    eight = [20_000] * 8
    assert sentence(chains("B", eight, steps=2), chains("A", eight)) == (
        "B is slower: total by 20.0 ms (20.0 to 20.0): connect +10.0, wait +10.0"
    )
    assert sentence(chains("B", [19_000] * 8, wait=5_000), chains("A", eight)) == (
        "B is faster: total by 1.00 ms (1.00 to 1.00): connect −5.50, wait +4.50"
    )
    assert sentence(chains("B", eight, wait=9_000), chains("A", eight)) == (
        "No difference in total: connect −9.00, wait +9.00 ms; "
        "B is between 0 ms faster and 0 ms slower (95 %)"
    )
    six = chains("B", eight[:6], steps=2)
    assert sentence(six, chains("A", eight[:6])) == (
        "B is slower: total by 20.0 ms (20.0 to 20.0): connect +10.0, wait +10.0"
    ), "six rounds are too few to be strict with five phases at once"
    swung = [with_times(each, wait=us, connect=40_000 - us) for each, us in zip(six.used, [0, 40_000] * 3)]
    assert sentence(tool.Summary(swung), chains("A", eight[:6])).endswith(": no single phase is certain")
    assert sentence(chains("b.test", eight), chains("a.test", [*eight[:7], 90_000])) == (
        "No difference found: b.test is between 70.0 ms faster and 0 ms slower than a.test (95 %)"
    )
    assert sentence(chains("B", [22_000] * 3), chains("A", eight)) == (
        "B is 2.00 ms slower so far; 6 good runs of both are needed to be sure, there are 3"
    )


def drawn_side(name, chance, connect=20, wait=150, xfer=5, body=10_000, lossy=0, slow=0):
    """Sum up 30 rounds of a side, of which some lose packets or are slow; a round trip is `connect` (ms)."""
    steps = []
    lost, late = (chance.sample(range(30), count) for count in (lossy, slow))
    for run in range(30):
        usual = (connect, wait + 300 * (run in late), xfer + 200 * (run in lost))
        times = [round(1000 * chance.gauss(ms, ms / 20)) for ms in usual]
        step = with_times(sample(run + 1, sum(times), variant=name), connect=times[0], wait=times[1])
        steps.append(
            with_times(step, xfer=times[2])._replace(
                body_bytes=body,
                network=step.network._replace(rtt_us=1000 * connect),
                account=(tool.Share("loss", "xfer", 200_000, "seen"),) if run in lost else (),
            )
        )
    return tool.Summary(steps)


APART_BY = {  # what is otherwise at B: the sentence, and what stands below it
    "slower to connect, faster to answer": (
        {"connect": 155, "wait": 56},
        r"B is slower: total by [345]\d\.\d ms \(.*\): connect \+1[34]\d, wait −[89]\d\.\d",
        "Round trip B 155 ms, A 20 ms",
    ),
    "in phases alone": (
        {"connect": 130, "wait": 40},
        r"(No difference in total|B is \w+: total by \d\.\d+ ms.*): (connect|wait) .1[01]\d, .* .1[01]\d.*",
        "Round trip B 130 ms, A 20 ms",
    ),
    "quicker, but for losses": (
        {"wait": 120, "lossy": 26},
        r"B is slower: total by 1[5-9]\d ms \(.*\): xfer \+[12]\d\d, wait −[23]\d\.\d",
        "Losses B: packets were lost in 26 of 30 runs",
    ),
    "larger": (
        {"xfer": 45, "body": 400_000},
        r"B is slower: total by [34]\d\.\d ms \(.*\): xfer \+[34]\d\.\d",
        "Body B 390.6 KB, A 9.8 KB",
    ),
    "slow now and then": (
        {"slow": 4},
        r"(No difference found: B is between|B is slower: total by \d\.\d+ ms).*",
        r"p95 B [45]\d\d ms, A 1\d\d ms",
    ),
}


@pytest.mark.parametrize("name", APART_BY)
def test_a_verdict_names_each_phase_and_what_else_differs(name):
    """In 97 of 100 series at least: where nothing differs, an interval says so as often as it may."""
    other, *told = APART_BY[name]
    found = []
    for number in range(100):
        chance = random.Random(f"{name} {number}")
        sides = {"A": drawn_side("A", chance), "B": drawn_side("B", chance, **other)}
        comparison = tool.compare(sides["B"], sides["A"], 1)
        rows = (*tool.beside_rows(comparison), *tool.trouble_rows(sides))
        texts = (f"{label} {getattr(text, 'text', text)}" for label, text in rows)
        found.append(" / ".join([tool.verdict_sentence(comparison), *texts]))
    missed = [each for each in found if not re.fullmatch(" / ".join(told), each)]
    assert len(missed) <= 3, missed[:5]
    bad = tool.Summary([step._replace(expected=()) for step in sides["B"].used])
    assert not list(tool.trouble_rows({"B": bad})), "no runs are good, of which they could be some"
    assert not list(tool.trouble_rows({"B": drawn_side("B", chance, lossy=3)})), "a tenth is now and then"


def test_chance_and_trifles_seldom_make_phases_differ():
    """In at most one of twenty series, beside the 5 % of the total."""
    found = {
        "xfer": (40, 30, 50),
        "wait": (2000, -500, 4000),
        **dict.fromkeys(("dns", "connect", "tls"), (0, 0, 0)),
    }
    found = {phase: tool.Distribution({"median": us}, ends, 20) for phase, (us, *ends) in found.items()}
    assert tool.certain_phases(found) == {}, "the other one is no trifle, and not certain"
    named = 0
    for number in range(300):
        chance = random.Random(number)
        comparison = tool.compare(drawn_side("B", chance), drawn_side("A", chance), 1)
        named += comparison.verdict == "no_difference" and bool(comparison.phases)
    assert named <= 15


# --- what a side may change ---------------------------------------------------------------------

SIDE_VALUES = (  # of options that change the request or its way; one that is not here is a flag
    "-X OPTIONS -d x --data-raw x -H X-A:b -A x -e x -b a=b -u a:b --url http://b.test/ -m 3 "
    "-x proxy --resolve here.test:80:::1 --unix-socket /s --interface lo --cacert {pem} --cert {pem}"
)
CHANGES_NOTHING = ("-g", "--key", "--key-password-file")  # the last two belong to --cert
SIDE_OPTIONS = [text.split()[0] for group in tool.SIDE_GROUPS for text, _, _ in tool.OPTIONS[group]]


def test_each_option_that_a_side_may_have_makes_it_another_one(authority):
    """A field of Options that `choose_options` fills, not `own_options`, is the same for all sides."""
    parts = SIDE_VALUES.format(pem=authority.certificate("here.test")).split()
    values = dict(zip(parts[::2], parts[1::2]))
    for option in {*SIDE_OPTIONS} - {*tool.FOR_ALL, *CHANGES_NOTHING}:
        words = " ".join(filter(None, [option, values.get(option)]))
        options = tool.parse_options(["http://here.test/", "--versus", words], {})
        base, side = (each.options._replace(warnings=(), secrets=None) for each in options.sides)
        assert base != side, option
