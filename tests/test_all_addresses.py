"""Every address of a name by itself: which backend is slow, fails, or is another than the rest."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re

import pytest

from checks import EDGE, check_step, check_usage_error, flat
from servers import (
    Reply,
    black_hole,
    dns_server,
    free_port,
    http_server,
    redirect,
    refused_port,
    scripted,
)


@contextlib.contextmanager
def cluster(*members):
    """Serve on one port of several loopback addresses.

    A member is the settings of an `http_server`, or None where nothing listens. Gives the port, the addresses
    and the servers.
    """
    with contextlib.ExitStack() as stack:
        block = f"127.{random.randint(16, 250)}.{random.randint(1, 250)}"
        addresses = [f"{block}.{number}" for number in range(1, len(members) + 1)]
        port, servers = free_port(), []
        for address, settings in zip(addresses, members):
            if settings is not None:
                servers.append(stack.enter_context(http_server(host=address, port=port, **settings)))
        yield port, addresses, servers


def ok(**settings):
    return {"routes": {"/": Reply(body=b"hello\n", **settings)}}


SERIES = ("--count", 6, "--interval", 0)


def resolved(port, addresses):
    return [word for address in addresses for word in ("--resolve", f"web.test:{port}:{address}")]


def ask(run_tool, members, *options, scheme="http", expected=0, **settings):
    """Measure every member; return the result and the addresses."""
    with cluster(*members) as (port, addresses, _):
        words = (*resolved(port, addresses), *options, f"{scheme}://web.test:{port}/")
        result = run_tool("--all-addresses", *words, **settings)
    assert result.code == expected, (result.err, result.out)
    return result, addresses


def by_target(document, addresses):
    """List the runs of a document, in the order of the addresses in each round."""
    return sorted(document["runs"], key=lambda run: (run["round"], addresses.index(run["target"])))


# --- what is asked, and in which order ------------------------------------------------------------


def test_each_address_is_asked_once_in_each_round_by_lot_and_nobody_has_a_lookup(run_tool):
    with cluster(ok(), ok(), ok()) as (port, addresses, servers):
        words = ("--all-addresses", "--count", 30, "--interval", 0, "--json", "-", *resolved(port, addresses))
        result = run_tool(*words, f"http://web.test:{port}/")
        asked = [len(server.requests) for server in servers]
    document = json.loads(result.out)
    assert (result.code, asked, document["lookup_ms"]) == (0, [30] * 3, None)
    assert [run["run_number"] for run in document["runs"]] == [*range(1, 91)]
    assert [run["round"] for run in document["runs"]] == [1 + place // 3 for place in range(90)]
    order = [addresses.index(run["target"]) for run in document["runs"]]
    rounds = [tuple(order[place : place + 3]) for place in range(0, 90, 3)]
    assert {tuple(sorted(each)) for each in rounds} == {(0, 1, 2)}
    assert len(set(rounds)) >= 4, "of six orders"
    for run in document["runs"]:
        (step,) = run["steps"]
        assert step["timing"]["dns_ms"] == 0
        check_step(step)
        assert step["network"]["ip"] == run["target"] and len(step["network"]["attempts"]) == 1
    assert [each["target"] for each in document["statistics"]] == addresses


def test_no_two_are_asked_at_once(run_tool):
    """The second is asked when the first has answered, to the last byte."""
    asked = []

    def script(peer):
        peer.read_request()
        asked.append(peer.sock.getsockname()[0])
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
        peer.wait(0.2)
        asked.append(peer.sock.getsockname()[0])
        peer.send("k")

    port = free_port()
    with scripted(script, host="127.0.0.1", port=port), scripted(script, host="127.0.0.2", port=port):
        words = (*resolved(port, ["127.0.0.1", "127.0.0.2"]), "--metrics-only", f"http://web.test:{port}/")
        assert run_tool("--all-addresses", *words).code == 0
    assert asked[0] == asked[1] != asked[2] == asked[3]


def test_the_name_is_looked_up_once(run_tool):
    with cluster(ok(), ok()) as (port, addresses, _), dns_server({"web.test": addresses}) as names:
        words = ("--all-addresses", "-4", *SERIES, "--json", "-", f"http://web.test:{port}/")
        result = run_tool(*words, resolver=names.address)
    document = json.loads(result.out)
    assert result.code == 0, result.err
    assert names.questions.count(("web.test", "A")) == 1
    assert document["lookup_ms"] > 0
    assert sorted({run["target"] for run in document["runs"]}) == sorted(addresses)


@pytest.mark.needs("ipv6")
@pytest.mark.parametrize(
    ("option", "address", "other"), [("-4", "127.0.0.1", "::1"), ("-6", "::1", "127.0.0.1")]
)
def test_the_family_chooses_among_the_addresses(run_tool, option, address, other):
    port, names = free_port(), {"web.test": ["127.0.0.1", "::1"]}
    with http_server(port=port), http_server(host="::1", port=port), dns_server(names) as resolver:
        words = ("--all-addresses", option, "--json", "-", f"http://web.test:{port}/")
        result = run_tool(*words, resolver=resolver.address)
        given = run_tool(*resolved(port, names["web.test"]), *words)
    (run,) = json.loads(result.out)["runs"]
    assert (result.code, run["target"], run["steps"][0]["network"]["ip"]) == (0, address, address)
    errors = {run["target"]: run["steps"][0]["error"] for run in json.loads(given.out)["runs"]}
    assert given.code == 75 and errors[address] is None
    assert (
        f"{other} is no IPv" in errors[other]["message"]
        and f"{option} asks for one" in errors[other]["message"]
    )


@pytest.mark.parametrize(("zone", "kind"), [({}, "dns"), ({"web.test": None}, "timeout")])
def test_a_lookup_that_fails_or_has_no_answer_in_time_is_one_failed_run(run_tool, zone, kind, tmp_path):
    """The resolver alone would wait for thirty seconds."""
    with dns_server(zone) as names:
        words = ("--all-addresses", "--count", 4, "--json", "-", "-m", 0.5 if zone else 20)
        words += ("--otlp", tmp_path / "trace.json", "http://web.test/")
        result = run_tool(*words, resolver=names.address)
    document = json.loads(result.out)
    (run,) = document["runs"]
    assert result.code == 75 and run["target"] is None and document["lookup_ms"] is None
    assert run["steps"][0]["error"]["kind"] == kind and run["steps"][0]["timing"]["dns_ms"] > 0
    assert document["summary"]["failed"] == 1
    assert f'"traceId":"{run["trace_id"]}"' in (tmp_path / "trace.json").read_text()


def test_a_dead_address_costs_five_seconds_and_no_more(run_tool):
    """The kernel alone would try for two minutes."""
    with black_hole("127.0.0.1", free_port()) as port, http_server(host="127.0.0.2", port=port):
        options = resolved(port, ["127.0.0.1", "127.0.0.2"])
        result = run_tool("--all-addresses", *options, "--json", "-", f"http://web.test:{port}/")
    runs = by_target(json.loads(result.out), ["127.0.0.1", "127.0.0.2"])
    dead, alive = (run["steps"][0] for run in runs)
    assert result.code == 75
    assert dead["timing"]["total_ms"] >= 5000 - EDGE and dead["error"]["kind"] == "timeout"
    assert dead["network"]["attempts"][0]["ip"] == "127.0.0.1" and alive["error"] is None


def test_rounds_keep_the_interval_and_their_addresses_do_not(run_tool):
    result, _ = ask(run_tool, [ok(), ok()], "--count", 2, "--interval", 1, "--json", "-")
    assert json.loads(result.out)["summary"]["duration_ms"] >= 1000 - EDGE
    _, addresses = ask(run_tool, [ok(), ok()], "--count", 1, "--interval", 86400)  # it ends
    assert len(addresses) == 2


def test_a_redirect_within_the_host_stays_and_another_host_is_looked_up(run_tool):
    with http_server() as elsewhere:
        routes = {"routes": {"/": redirect("/away"), "/away": redirect(elsewhere.url("/", "localhost"))}}
        result, addresses = ask(run_tool, [routes, routes], "-L", "--json", "-")
    for run, address in zip(by_target(json.loads(result.out), addresses), addresses):
        first, second, third = run["steps"]
        assert first["network"]["ip"] == second["network"]["ip"] == address
        assert first["timing"]["dns_ms"] == second["timing"]["dns_ms"] == 0
        assert third["timing"]["dns_ms"] > 0 and third["network"]["ip"] != address


def test_more_than_32_addresses_are_cut_with_a_warning(run_tool):
    addresses = [f"127.9.9.{number}" for number in range(1, 35)]
    with dns_server({"many.test": addresses}) as names:
        words = ("--all-addresses", "-4", "--metrics-only", "http://many.test:1/")
        result = run_tool(*words, resolver=names.address)
    assert result.code == 75 and "32" in result.err and "34" in result.err
    assert sum(line.startswith("Run ") for line in result.out.splitlines()) == 32


# --- what is told ---------------------------------------------------------------------------------


def test_lines_name_the_address_on_failure_too(run_tool):
    result, addresses = ask(run_tool, [ok(), None], "--metrics-only", expected=75)
    *runs, one, other = result.out.splitlines()
    for number, line in enumerate(runs, 1):
        address = line.split()[4].rstrip(":")
        assert line.startswith(f"Run {number} Step 1 {address}: dns=0.000")
    assert {line.split()[4] for line in runs} == {f"{address}:" for address in addresses}
    assert re.search(rf"run [12] step 1 {addresses[1]}: ", result.err)
    assert f"target={addresses[0]}" in one and f"target={addresses[1]}" in other
    result, addresses = ask(run_tool, [ok(), ok()], "--compact", *SERIES)
    assert re.match(rf"[\d:]+ Run 1 Step 1 ({'|'.join(addresses)}): 200 GET http://web\.test:", result.out)
    one, other = (line for line in result.out.splitlines() if line.startswith("Summary"))
    assert one.startswith("Summary 1: runs=6 failed=0 bad_status=0 n=6 ttfb_median=")
    assert "total_diff" not in one and "verdict" not in one
    assert re.search(r" total_diff=\S+ total_diff_low=\S+ total_diff_high=\S+ verdict=\w+$", other)


@pytest.mark.parametrize(("without", "columns"), [((), 60), (("rich",), 200)])
def test_each_address_is_a_side_beside_the_first_that_answers(run_tool, without, columns):
    """One that cannot be reached, two that are usual, one with another status; rows as they were given."""
    with cluster(ok(), ok(), None, ok(status=503)) as (port, (second, first, dead, bad), _):
        given = resolved(port, [dead, first, second, bad])
        words = ("-x", "", *given, "--count", 8, "--interval", 0, f"http://web.test:{port}/")
        env = {"COLUMNS": str(columns), "http_proxy": "http://127.0.0.1:9"}
        result = run_tool("--all-addresses", *words, env=env, without=without)
    assert result.code == 75
    assert all(len(line) <= columns for line in result.out.splitlines())
    rows = re.findall(r"^(?:. )?(127[0-9.]+) +(?:. )?(ERROR|\d{3}) ", result.out, re.MULTILINE)
    assert rows == [(dead, "ERROR"), (first, "200"), (second, "200"), (bad, "503")]
    text = flat(result.out)
    assert "8 rounds of 4 addresses (given with --resolve), in " in text
    failed = (
        rf"Not good {dead}: 8 of 8 rounds: round 1-8 .*: failed in connect\) Why .* refused \(8 times\) Try "
    )
    assert re.search(failed, text)
    assert f"{dead} is" not in text, "there is nothing to compare"
    assert re.search(rf"{second} is (\w+|between [\d.]+ ms faster and [\d.]+ ms slower) than {first}", text)
    assert f"{bad} answers 503, {first} 200: the times are of different work" in text
    assert f"{bad}: no answer was good" in text


def test_of_one_address_it_is_said_that_there_is_no_other(run_tool, server):
    result = run_tool("--all-addresses", "--json", "-", server.url())
    assert "There is nothing to compare: all runs are of 127.0.0.1." in flat(result.err)
    assert [run["target"] for run in json.loads(result.out)["runs"]] == ["127.0.0.1"]


@pytest.mark.parametrize("zone", ["none", "1" * 5000], ids=["a name", "more digits than int() takes"])
def test_a_zone_that_is_no_interface_is_a_failure_of_its_address(call_tool, zone):
    address = f"fe80::1%{zone}"
    words = ("--all-addresses", "--resolve", f"web.test:80:{address}", "--json", "-", "http://web.test/")
    result = call_tool(*words)
    [run] = json.loads(result.out)["runs"]
    assert (result.code, run["target"]) == (75, address), result.err
    [step] = run["steps"]
    assert "this machine has no interface" in step["error"]["message"], step["error"]


def test_the_certificate_is_a_column_where_it_differs(run_tool, authority):
    good, ended = (authority.context(days=(-90, left)) for left in (30.5, -3.5))
    result, _ = ask(run_tool, [{"tls": good}, {"tls": ended}, {"tls": good}], "-k", scheme="https")
    shown = re.findall(r"│ ([0-9a-f]{8}), (-?\d+) days", result.out)
    assert "│ Certificate " in result.out and [days for _, days in shown] == ["30", "-4", "30"]
    assert shown[0] == shown[2] != shown[1]
    same, _ = ask(run_tool, [{"tls": good}] * 2, "-k", scheme="https")
    assert "Certificate" not in same.out


def test_addresses_that_fail_alike_have_one_hint(call_tool):
    addresses = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    with refused_port(host="0.0.0.0") as port:
        result = call_tool(*resolved(port, addresses), "--all-addresses", f"http://web.test:{port}/")
    text = flat(result.out)
    assert text.count(" refused (once)") == len(addresses)
    assert all(f"Not good {address}: 1 of 1 round: round 1 " in text for address in addresses)
    assert text.count("check the port") == 1


def test_budgets_hold_for_each_address(run_tool, server, tls):
    """The last step of the first has no TLS."""
    members = [{"tls": tls, "routes": {"/": redirect(server.url())}}, {"tls": tls}]
    budgets = ("--slo", "tls=0.001,tls.median=0.001", "--count", 1, "--json", "-", "--metrics-only")
    result, addresses = ask(run_tool, members, "-kL", *budgets, scheme="https", expected=4)
    document = json.loads(result.out)
    plain, statistic = document["summary"]["slo"]["violations"]
    assert [(each["key"], each["target"]) for each in (plain, statistic)] == [
        *(("tls", addresses[1]), ("tls.median", addresses[1]))
    ]
    assert document["runs"][plain["run_number"] - 1]["target"] == addresses[1]
    summaries = [line for line in result.err.splitlines() if line.startswith("Summary")]
    assert [re.findall("slo.*", line) for line in summaries] == [
        *([], ["slo=pass"], ["slo=fail slo_violations=tls,tls.median"]),
    ]


# --- what is refused ------------------------------------------------------------------------------


def test_what_cannot_be_asked_of_each_address_is_refused(call_tool, server):
    for options, env, words in (
        (["-x", "http://127.0.0.1:9"], {}, ["-x", "--proxy"]),
        ([], {"http_proxy": "http://127.0.0.1:9"}, ["http_proxy", "-x ''"]),
        ([], {"ALL_PROXY": "socks5://127.0.0.1:9"}, ["ALL_PROXY", "-x ''"]),
        (["--slo", "dns=5"], {}, ["dns"]),
        (["--slo", "DNS.median=5", "--count", "9"], {}, ["dns.median"]),
        (["--slo", "total.median=1000"], {}, ["total.median", "--count"]),
    ):
        check_usage_error(call_tool("--all-addresses", *options, server.url(), env=env), *words)
    assert server.accepted == 0


def test_the_first_round_opens_its_own_connections_and_the_next_keeps_them(run_tool):
    routes = {"routes": {"/": redirect("/here"), "/here": Reply()}}
    result, _ = ask(run_tool, [routes, routes], "-L", "--reuse", "--count", 2, "--interval", 0, "--json", "-")
    for run in json.loads(result.out)["runs"]:
        assert {step["network"]["ip"] for step in run["steps"]} == {run["target"]}
        assert {step["network"]["reused"] for step in run["steps"]} == {run["round"] == 2}


def test_chains_of_addresses_are_compared_as_a_whole(run_tool):
    routes = {"routes": {"/": redirect("/there"), "/there": Reply()}}
    result, (one, other) = ask(run_tool, [routes, routes], "-L", *SERIES)
    assert result.out.count("│ Address ") == 1 and "Step 2" not in result.out
    sentence = rf"{other} is (\w+|between [\d.]+ ms faster and [\d.]+ ms slower) than {one}"
    assert len(re.findall(sentence, flat(result.out))) == 1


def hanging_up(when):
    """Make a server that answers each request of a connection but those for whose number `when` is true."""

    def script(peer):
        for number in itertools.count(1):
            if not peer.read_request() or when(peer.number, number):
                return
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    return script


@pytest.mark.parametrize(
    ("when", "failed"),
    [(lambda connection, request: request == 2, 3), (lambda connection, request: connection == 0, 1)],
    ids=["kept", "new"],
)
def test_an_address_that_fails_on_some_connections_alone_is_told(run_tool, when, failed):
    with cluster(ok()) as (port, (first,), _):
        second = f"{first[:-1]}2"
        with scripted(hanging_up(when), host=second, port=port):
            words = [*resolved(port, [first, second]), "--reuse", *SERIES, f"http://web.test:{port}/"]
            result = run_tool("--all-addresses", *words)
    assert result.code == 75
    assert f"Not good {second}: {failed} of " in flat(result.out)
    assert "200, ERROR" in result.out


def test_failures_of_two_kinds_are_counted_apart(run_tool):
    def script(peer):
        peer.read_request()
        if peer.number % 3 == 0:
            peer.reset()
        elif peer.number % 3 == 1:
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    with scripted(script) as server:
        options = resolved(server.port, ["127.0.0.1"])
        result = run_tool("--all-addresses", *options, *SERIES, f"http://web.test:{server.port}/")
    assert len(re.findall(r"Why [^(]+ \(twice\) Try ", flat(result.out))) == 2


def test_a_redirect_that_leads_to_an_error_page_at_times_is_told(run_tool):
    turns = itertools.cycle([redirect("/bad"), redirect("/good"), redirect("/good")])
    members = [
        {"routes": {"/": redirect("/good"), "/good": Reply(body=b"x")}},
        {"routes": {"/": lambda request: next(turns), "/good": Reply(body=b"x"), "/bad": Reply(503)}},
    ]
    result, addresses = ask(run_tool, members, "-L", *SERIES)
    assert re.search(rf"Not good {addresses[1]}: 2 of 6 rounds: .*\(503\)", flat(result.out))


def test_an_address_whose_connections_are_never_kept_is_told(run_tool):
    result, addresses = ask(run_tool, [ok(), ok(headers=[("Connection", "close")])], "--reuse", *SERIES)
    assert f"Not reused {addresses[1]}: 5 runs: the server said" in flat(result.out)


def test_late_rounds_and_opened_connections_are_told(run_tool):
    options = ["--count", 3, "--interval", 0.1, "--reuse"]
    result, addresses = ask(run_tool, [ok(wait=0.2)] * 2, *options, env={"COLUMNS": "200"})
    told = r"3 rounds of 2 addresses \(given with --resolve\), [12] late starts?, in "
    assert re.search(told, flat(result.out))
    for address in addresses:
        assert f"{address}: 1 of 3 runs opened a connection, which took " in flat(result.out)


@pytest.mark.parametrize(("style", "told"), [("--compact", 6), ("-i", 0)])
def test_the_waterfall_of_addresses_has_no_lines_of_runs(run_tool, style, told):
    result, _ = ask(run_tool, [ok()] * 3, style, "--count", 2, "--interval", 0, terminal="out")
    assert len(re.findall(r"^[\d:]+ Run \d+ ", result.out, re.MULTILINE)) == told


# --- good and bad ones --------------------------------------------------------------------------------


def test_an_error_page_that_comes_soon_makes_no_other_address_slow(run_tool):
    result, addresses = ask(run_tool, [ok(wait=0.1), {"routes": {"/": Reply(503)}}], columns=200)
    words = flat(result.out)
    assert "slower than" not in words and "faster than" not in words
    assert f"{addresses[1]} answers 503, {addresses[0]} 200: the times are of different work" in words
    assert f"{addresses[1]}: no answer was good, so the statistics are of all answers" in words


def test_a_good_answer_on_a_new_connection_stands_for_an_address_before_bad_ones_on_a_kept_one(run_tool):
    replies = itertools.chain([Reply(wait=0.05)], itertools.repeat(Reply(503)))
    members = [{"routes": {"/": lambda request: next(replies)}}, ok(wait=0.05)]
    result, addresses = ask(run_tool, members, "--reuse", "--count", 3, "--interval", 0, columns=200)
    words = flat(result.out)
    assert "no answer was good" not in words
    figures = words.partition(f"{addresses[0]} 200, 503 ")[2].partition(addresses[1])[0]
    assert max(map(float, re.findall(r"\d+\.\d+", figures))) >= 49


def test_a_column_in_which_nothing_stands_is_left_out(run_tool):
    failing, _ = ask(run_tool, [None, None], columns=200, expected=75)
    assert "Status" in failing.out and "wait" not in failing.out
    some, _ = ask(run_tool, [None, ok()], columns=200, expected=75)
    assert "wait" in some.out and "dns" not in some.out and "tls" not in some.out
