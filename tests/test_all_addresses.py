"""Every address of a name by itself: which backend is slow, fails, or is another than the rest."""

from __future__ import annotations

import contextlib
import json
import random
import re

import pytest

from checks import EDGE, check_usage_error, flat
from servers import Reply, black_hole, dns_server, free_port, http_server, redirect


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


def ask(call_tool, members, *options, scheme="http", expected=0, **settings):
    """Measure every member; return the result and the addresses."""
    with cluster(*members) as (port, addresses, _):
        words = (*resolved(port, addresses), *options, f"{scheme}://web.test:{port}/")
        result = call_tool("--all-addresses", *words, **settings)
    assert result.code == expected, (result.err, result.out)
    return result, addresses


def by_target(document, addresses):
    """List the runs of a document, in the order of the addresses in each round."""
    return sorted(document["runs"], key=lambda run: (run["round"], addresses.index(run["target"])))


def test_each_address_is_asked_once_in_each_round_by_lot_and_nobody_has_a_lookup(call_tool):
    with cluster(ok(), ok(), ok()) as (port, addresses, servers):
        words = ("--all-addresses", "--count", 30, "--interval", 0, "--json", "-", *resolved(port, addresses))
        result = call_tool(*words, f"http://web.test:{port}/")
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
        assert step["network"]["ip"] == run["target"] and len(step["network"]["attempts"]) == 1
    assert [each["target"] for each in document["statistics"]] == addresses


def test_the_name_is_looked_up_once_and_32_addresses_are_taken(run_tool):
    many = [f"127.9.9.{number}" for number in range(1, 35)]
    with cluster(ok(), ok()) as (port, addresses, _), dns_server({"web.test": addresses, "b": many}) as names:
        words = ("--all-addresses", "-4", "--json", "-")
        result = run_tool(*words, *SERIES, f"http://web.test:{port}/", resolver=names.address)
        cut = run_tool(*words, "http://b.:1/", resolver=names.address)
    assert result.code == 0, result.err
    assert names.questions.count(("web.test", "A")) == 1
    assert result.json()["lookup_ms"] > 0
    assert sorted({run["target"] for run in result.json()["runs"]}) == sorted(addresses)
    assert "of 34 addresses the first 32 are measured" in cut.err
    assert cut.code == 75 and len(cut.json()["runs"]) == 32


@pytest.mark.needs("ipv6")
def test_the_family_chooses_among_the_addresses(run_tool):
    port, names = free_port(), {"web.test": ["127.0.0.1", "::1"]}
    with http_server(port=port), http_server(host="::1", port=port), dns_server(names) as resolver:
        words = ("--all-addresses", "-6", "--json", "-", f"http://web.test:{port}/")
        result = run_tool(*words, resolver=resolver.address)
        given = run_tool(*resolved(port, names["web.test"]), *words)
    [run] = json.loads(result.out)["runs"]
    assert (result.code, run["target"], run["steps"][0]["network"]["ip"]) == (0, "::1", "::1")
    errors = {run["target"]: run["steps"][0]["error"] for run in json.loads(given.out)["runs"]}
    assert given.code == 75 and errors["::1"] is None
    assert "127.0.0.1 is no IPv6" in errors["127.0.0.1"]["message"]


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


def test_a_dead_address_costs_five_seconds_and_no_more(call_tool):
    """The kernel alone would try for two minutes."""
    with black_hole("127.0.0.1", free_port()) as port, http_server(host="127.0.0.2", port=port):
        options = resolved(port, ["127.0.0.1", "127.0.0.2"])
        result = call_tool("--all-addresses", *options, "--json", "-", f"http://web.test:{port}/")
    runs = by_target(json.loads(result.out), ["127.0.0.1", "127.0.0.2"])
    dead, alive = (run["steps"][0] for run in runs)
    assert result.code == 75
    assert dead["timing"]["total_ms"] >= 5000 - EDGE and dead["error"]["kind"] == "timeout"
    assert dead["network"]["attempts"][0]["ip"] == "127.0.0.1" and alive["error"] is None


def test_a_redirect_within_the_host_stays_and_another_host_is_looked_up(call_tool):
    with http_server() as elsewhere:
        routes = {"routes": {"/": redirect("/away"), "/away": redirect(elsewhere.url("/", "localhost"))}}
        result, addresses = ask(call_tool, [routes, routes], "-L", "--json", "-")
    for run, address in zip(by_target(json.loads(result.out), addresses), addresses):
        first, second, third = run["steps"]
        assert first["network"]["ip"] == second["network"]["ip"] == address
        assert first["timing"]["dns_ms"] == second["timing"]["dns_ms"] == 0
        assert third["timing"]["dns_ms"] > 0 and third["network"]["ip"] != address


def test_lines_name_the_address_on_failure_too(call_tool):
    result, addresses = ask(call_tool, [ok(), None], "--metrics-only", expected=75)
    *runs, one, other = result.out.splitlines()
    for number, line in enumerate(runs, 1):
        address = line.split()[4].rstrip(":")
        assert line.startswith(f"Run {number} Step 1 {address}: dns=0.000")
    assert {line.split()[4] for line in runs} == {f"{address}:" for address in addresses}
    assert re.search(rf"Run [12] Step 1 {addresses[1]}: ", result.err)
    assert f"target={addresses[0]}" in one and f"target={addresses[1]}" in other


def test_each_address_is_a_side_beside_the_first_that_answers(call_tool):
    """One that cannot be reached, two that are usual, one with another status; rows as they were given."""
    with cluster(ok(), ok(), None, ok(status=503)) as (port, (second, first, dead, bad), _):
        given = resolved(port, [dead, first, second, bad])
        words = ("-x", "", *given, "--count", 8, "--interval", 0, f"http://web.test:{port}/")
        env = {"COLUMNS": "85", "http_proxy": "http://127.0.0.1:9"}
        result = call_tool("--all-addresses", *words, env=env)
    assert result.code == 75
    assert all(len(line) <= 85 for line in result.out.splitlines())
    rows = re.findall(r"^(?:. )?(127[0-9.]+) +(?:. )?(ERROR|\d{3}) ", result.out, re.MULTILINE)
    assert rows == [(dead, "ERROR"), (first, "200"), (second, "200"), (bad, "503")]
    text = flat(result.out)
    assert "8 rounds of each address, in " in text
    assert re.search(rf"Bad runs {dead}: 8 of 8 .* \(failed in connect\) .* refused \(8 times\) Try ", text)
    assert f"{dead} is" not in text, "there is nothing to compare"
    assert re.search(rf"{second} is (\w+|between [\d.]+ ms faster and [\d.]+ ms slower) than {first}", text)
    assert f"{bad} answers 503, {first} 200: the times are of different work" in text
    assert f"{bad}: no answer was good" in text


def test_budgets_hold_for_each_address(call_tool, server, tls):
    """The last step of the first has no TLS."""
    members = [{"tls": tls, "routes": {"/": redirect(server.url())}}, {"tls": tls}]
    budgets = ("--slo", "tls=0.001,tls.median=0.001", "--count", 1, "--json", "-", "--metrics-only")
    result, addresses = ask(call_tool, members, "-kL", *budgets, scheme="https", expected=4)
    document = json.loads(result.out)
    plain, statistic = document["summary"]["slo"]["violations"]
    assert (plain["key"], statistic["key"]) == ("tls", "tls.median")
    assert plain["target"] == statistic["target"] == addresses[1]
    assert document["runs"][plain["run_number"] - 1]["target"] == addresses[1]
    marks = re.findall(r"^Summary.*?(slo=.*)?$", result.err, re.MULTILINE)
    assert marks == ["", "slo=pass", "slo=fail slo_violations=tls,tls.median"]


def test_addresses_behind_a_proxy_of_the_environment_are_not_asked(call_tool, server):
    env = {"ALL_PROXY": "socks5://127.0.0.1:9"}
    check_usage_error(call_tool("--all-addresses", server.url(), env=env), "ALL_PROXY", "-x ''")
    assert server.accepted == 0


def test_an_address_whose_connections_are_never_kept_is_told(call_tool):
    result, addresses = ask(call_tool, [ok(), ok(headers=[("Connection", "close")])], "--reuse", *SERIES)
    assert f"Not reused {addresses[1]}: 5 runs: the server said" in flat(result.out)
