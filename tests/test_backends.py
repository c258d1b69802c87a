"""Every address of a name by itself: which backend is slow, fails, or is another than the rest."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import socket
import statistics

import pytest

from checks import EDGE, check_step, check_usage_error, flat, parse_instant
from inside import tool
from mint import Mint
from paths import first
from servers import (
    Reply,
    black_hole,
    can_listen,
    dns_server,
    free_port,
    http_server,
    redirect,
    refused_port,
    scripted,
)

SLOW = 0.1


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


USUAL = ok(wait=0.05)
FAR_SLOWER = 1.0
"""Seconds that a server waits so that its address is slow beside USUAL ones on a busy machine too."""


def resolved(port, addresses, name="web.test"):
    return [word for address in addresses for word in ("--resolve", f"{name}:{port}:{address}")]


def ask(run_tool, members, *options, name="web.test", scheme="http", expected=0, columns=80):
    """Measure every member; return the result, its JSON document and the addresses."""
    with cluster(*members) as (port, addresses, _):
        url = f"{scheme}://{name}:{port}/"
        options = [*resolved(port, addresses, name), *options]
        env = {"COLUMNS": str(columns)}
        result = run_tool("--all-addresses", *options, url, env=env, within=first())
    assert result.code == expected, (result.err, result.out)
    return result, addresses


def by_target(document, addresses):
    """List the runs of a document, in the order of the addresses in each round."""
    return sorted(document["runs"], key=lambda run: (run["round"], addresses.index(run["target"])))


def far_above(own, usual):
    return own >= 2 * usual and own >= usual + 5


def slow_ones(document, step=1):
    """Name the addresses that the times in a document make slow, as any may be on a busy machine.

    That is twice as much in a median as the others have, and 5 ms more; those without a good answer, or with
    other failures, are no part of it.
    """
    medians = {
        each["target"]: [each[f"{key}_ms"]["median"] for key in ("wait", "connect", "total")]
        for each in document["statistics"]
        if each["step_number"] == step and each["n"] and not each["bad_status"]
    }
    found = set()
    for target, own in medians.items():
        others = [values for other, values in medians.items() if other != target]
        if others and any(map(far_above, own, map(statistics.median, zip(*others)))):
            found.add(target)
    return found


def called_slow(text):
    """Name the addresses of which a report says that they are slow."""
    return set(re.findall(r"! (\S+) is slow: median ", text))


# --- what is asked, and in which order ------------------------------------------------------------


def test_each_address_is_asked_once_and_in_turn(run_tool):
    members = [ok(), ok(), ok()]
    with cluster(*members) as (port, addresses, servers):
        result = run_tool(
            "--all-addresses", *resolved(port, addresses), f"http://web.test:{port}/", "--json", "-"
        )
        asked = [len(server.requests) for server in servers]
    document = json.loads(result.out)
    assert result.code == 0 and asked == [1, 1, 1]
    assert sorted(run["target"] for run in document["runs"]) == addresses
    assert [run["run_number"] for run in document["runs"]] == [1, 2, 3]
    assert {run["round"] for run in document["runs"]} == {1}
    assert (document["count"], document["interval_s"], document["lookup_ms"]) == (1, 0, None)
    for run in document["runs"]:
        (step,) = run["steps"]
        check_step({**step, "timing": {**step["timing"], "dns_ms": 0}})
        assert step["network"]["ip"] == run["target"] and len(step["network"]["attempts"]) == 1
    assert [each["target"] for each in document["statistics"]] == addresses


def test_the_order_of_each_round_is_drawn_by_lot(run_tool):
    with cluster(ok(), ok(), ok()) as (port, addresses, _):
        words = ("--all-addresses", "--count", 30, "--interval", 0, "--json", "-", *resolved(port, addresses))
        document = json.loads(run_tool(*words, f"http://web.test:{port}/").out)
    asked = [addresses.index(run["target"]) for run in document["runs"]]
    rounds = [tuple(asked[place : place + 3]) for place in range(0, 90, 3)]
    assert {tuple(sorted(each)) for each in rounds} == {(0, 1, 2)}
    assert len(set(rounds)) >= 4, "of six orders"
    assert [each["target"] for each in document["statistics"]] == addresses


def test_no_two_are_asked_at_once(run_tool):
    """The second is asked when the first has answered, to the last byte."""
    members = [ok(wait=SLOW, xfer=SLOW)] * 2
    result, _ = ask(run_tool, members, "--json", "-")
    first, second = (run["steps"][0] for run in json.loads(result.out)["runs"])
    assert first["timing"]["total_ms"] >= 2 * SLOW * 1000 - EDGE
    gap = parse_instant(second["started_at"]) - parse_instant(first["started_at"])
    assert gap.total_seconds() * 1000 >= first["timing"]["total_ms"] - 2 * EDGE


def test_dns_is_nobodys_and_total_is_without_it(run_tool):
    result, _ = ask(run_tool, [ok(), ok()], "--metrics-only")
    lines = result.out.splitlines()[:2]
    assert all(": dns=- connect=" in line for line in lines)
    result, _ = ask(run_tool, [ok()], "--json", "-")
    (run,) = json.loads(result.out)["runs"]
    timing = run["steps"][0]["timing"]
    assert timing["dns_ms"] is None
    parts = sum(timing[f"{key}_ms"] for key in ("connect", "tls", "wait", "xfer"))
    assert round(parts, 3) == timing["total_ms"] == run["summary"]["total_time_ms"]
    assert round(timing["connect_ms"] + timing["tls_ms"] + timing["wait_ms"], 3) == timing["ttfb_ms"]


def test_the_name_is_looked_up_once(run_tool):
    with cluster(ok(), ok()) as (port, addresses, _), dns_server({"web.test": addresses}) as names:
        url = f"http://web.test:{port}/"
        result = run_tool(
            "--all-addresses", "-4", "--count", 3, "--interval", 0, "--json", "-", url, resolver=names.address
        )
    document = json.loads(result.out)
    assert result.code == 0, result.err
    assert names.questions.count(("web.test", "A")) == 1
    assert document["lookup_ms"] > 0
    assert sorted({run["target"] for run in document["runs"]}) == sorted(addresses)
    assert [run["run_number"] for run in document["runs"]] == list(range(1, 7))
    assert [run["round"] for run in document["runs"]] == [1, 1, 2, 2, 3, 3]


@pytest.mark.skipif(not can_listen("::1"), reason="no IPv6")
@pytest.mark.parametrize(("option", "family"), [("-4", "IPv4"), ("-6", "IPv6")])
def test_the_family_chooses_among_the_addresses(run_tool, option, family):
    zone = {"web.test": ["127.0.0.1", "::1"]}
    port = free_port()
    with http_server(host="::1", port=port), http_server(port=port), dns_server(zone) as names:
        url = f"http://web.test:{port}/"
        result = run_tool("--all-addresses", option, "--json", "-", url, resolver=names.address)
    (run,) = json.loads(result.out)["runs"]
    assert result.code == 0 and run["steps"][0]["network"]["ip_family"] == family


def test_a_lookup_that_fails_is_one_failed_run(run_tool):
    with dns_server({}) as names:
        url = "http://web.test/"
        result = run_tool("--all-addresses", "--count", 4, "--json", "-", url, resolver=names.address)
    document = json.loads(result.out)
    (run,) = document["runs"]
    assert result.code == 75 and run["target"] is None and document["lookup_ms"] is None
    assert run["steps"][0]["error"]["kind"] == "dns" and run["steps"][0]["timing"]["dns_ms"] > 0
    assert document["summary"]["failed"] == 1


def test_a_lookup_without_an_answer_has_the_time_of_m(run_tool):
    with dns_server({"web.test": None}) as names:
        result = run_tool("--all-addresses", "-m", 0.5, "http://web.test/", resolver=names.address)
    assert result.code == 75 and "0.5 s" in flat(result.out) and result.own_seconds < 3


def test_a_dead_address_costs_five_seconds_and_no_more(run_tool):
    with black_hole("127.0.0.1", free_port()) as port, http_server(host="127.0.0.2", port=port):
        options = resolved(port, ["127.0.0.1", "127.0.0.2"])
        result = run_tool("--all-addresses", *options, "--json", "-", f"http://web.test:{port}/", timeout=20)
    runs = by_target(json.loads(result.out), ["127.0.0.1", "127.0.0.2"])
    dead, alive = (run["steps"][0] for run in runs)
    assert result.code == 75
    assert 5000 <= dead["timing"]["total_ms"] < 6000 and dead["error"]["kind"] == "timeout"
    assert dead["network"]["ip"] == "127.0.0.1" and alive["error"] is None


def test_rounds_keep_the_interval_and_their_addresses_do_not(run_tool):
    result, _ = ask(run_tool, [ok(), ok()], "--count", 3, "--interval", 1, "--json", "-")
    starts = [run["steps"][0]["started_at"] for run in json.loads(result.out)["runs"]]
    seconds = [float(text[17:23]) for text in starts]
    gaps = [(later - before) % 60 for before, later in zip(seconds, seconds[1:])]
    assert max(gaps[0::2]) < 0.8, gaps
    assert min(gaps[i] + gaps[i + 1] for i in (0, 2)) > 0.4, gaps


def test_a_redirect_within_the_host_stays_and_another_host_is_looked_up(run_tool):
    with http_server() as elsewhere:
        away = Reply(302, headers=[("Location", elsewhere.url("/", "localhost"))])
        here = Reply(302, headers=[("Location", "/away")])
        routes = {"routes": {"/": here, "/away": away}}
        result, addresses = ask(run_tool, [routes, routes], "-L", "--json", "-")
    for run, address in zip(by_target(json.loads(result.out), addresses), addresses):
        first, second, third = run["steps"]
        assert first["network"]["ip"] == second["network"]["ip"] == address
        assert first["timing"]["dns_ms"] is second["timing"]["dns_ms"] is None
        assert third["timing"]["dns_ms"] is not None and third["network"]["ip"] != address


def test_more_than_32_addresses_are_cut_with_a_warning(run_tool):
    addresses = [f"127.9.9.{number}" for number in range(1, 35)]
    with dns_server({"many.test": addresses}) as names:
        result = run_tool(
            "--all-addresses", "-4", "--metrics-only", "http://many.test:1/", resolver=names.address
        )
    assert result.code == 75 and "32" in result.err and "34" in result.err
    assert sum(line.startswith("Run ") for line in result.out.splitlines()) == 32


# --- what is told ---------------------------------------------------------------------------------


def test_lines_name_the_address_on_failure_too(run_tool):
    result, addresses = ask(run_tool, [ok(), None], "--metrics-only", expected=75)
    *runs, _, _ = result.out.splitlines()
    summaries = result.out.splitlines()[2:]
    for number, line in enumerate(runs, 1):
        address = line.split()[4].rstrip(":")
        assert line.startswith(f"Run {number} Step 1 {address}: dns=-") and f" ip={address} " in line
    assert {line.split()[4] for line in runs} == {f"{address}:" for address in addresses}
    assert re.search(rf"run [12] step 1 {addresses[1]}: ", result.err)
    assert [f"target={address}" in line for address, line in zip(addresses, summaries)] == [True, True]
    result, addresses = ask(run_tool, [ok()], "--compact")
    assert result.out.startswith(f"Run 1 Step 1 {addresses[0]}: 200 GET http://web.test:")
    assert result.out.splitlines()[1].startswith("Summary 1: runs=1 failed=0 bad_status=0 late=0 dns_min=- ")


@pytest.mark.parametrize("without", [(), ("rich",)], ids=["rich", "plain"])
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_an_odd_one_is_marked_and_said(run_tool, authority, without, columns):
    """Slow, answering otherwise, refusing: in a sentence each, and in the table a row each."""
    members = [USUAL, ok(wait=FAR_SLOWER), ok(status=503, wait=0.05), None, USUAL]
    with cluster(*members) as (port, addresses, _):
        options = [*resolved(port, addresses), "--json", "-", f"http://web.test:{port}/"]
        env = {"COLUMNS": str(columns)}
        result = run_tool("--all-addresses", *options, env=env, without=without, within=first())
    assert result.code == 75
    report = result.err[result.err.index("5 addresses") :]
    assert all(len(line) <= columns for line in report.splitlines())
    text = flat(report)
    assert f"! {addresses[1]} is slow: median wait 1" in text
    assert f"! {addresses[2]} answers 503" in text
    assert f"! {addresses[3]} fails: no connection" in text and "check the port" in text
    slow = slow_ones(json.loads(result.out))
    assert called_slow(text) == slow
    for usual in {addresses[0], addresses[4]} - slow:
        assert f"! {usual}" not in text
    assert "ERROR" in text and "All" not in text


def test_rows_stand_in_the_order_in_which_the_addresses_were_given(run_tool):
    with cluster(*[ok()] * 3) as (port, addresses, _):
        given = [addresses[1], addresses[2], addresses[0]]
        result = run_tool("--all-addresses", *resolved(port, given), f"http://web.test:{port}/")
    report = result.out[result.out.index("3 addresses") :]
    shown = re.findall(r"^. (?:! )?(127[0-9.]+) ", report, re.MULTILINE)
    assert result.code == 0 and shown[:3] == given


def test_of_one_address_it_is_said_that_there_is_no_other(run_tool):
    result, _ = ask(run_tool, [ok()])
    assert "Only one address was measured: there is nothing to compare." in flat(result.out)


def test_a_step_that_only_one_address_leads_to_is_not_all_that_was_measured(run_tool):
    redirected = {"routes": {"/": redirect("/next"), "/next": Reply()}}
    result, addresses = ask(run_tool, [redirected, ok()], "-L")
    text = flat(result.out)
    assert f"Only {addresses[0]} came to this step: there is nothing to compare." in text
    assert "Only one address was measured" not in text


@pytest.mark.parametrize("zone", ["none", "1" * 5000], ids=["a name", "more digits than int() takes"])
def test_a_zone_that_is_no_interface_is_a_failure_of_its_address(run_tool, zone):
    address = f"fe80::1%{zone}"
    result = run_tool(
        "--all-addresses", "--resolve", f"web.test:80:{address}", "--json", "-", "http://web.test/"
    )
    [run] = json.loads(result.out)["runs"]
    assert (result.code, run["target"]) == (75, address), result.err
    [step] = run["steps"]
    assert "this machine has no interface" in step["error"]["message"], step["error"]


def test_alike_is_said_too(run_tool):
    result, _ = ask(run_tool, [USUAL, USUAL, USUAL], "--json", "-")
    document, text = json.loads(result.out), flat(result.err)
    slow = slow_ones(document)
    assert called_slow(text) == slow and text.count("!") == len(slow)
    alike = "After 1 round no address is twice as slow; --count 7 tells smaller differences."
    assert (alike in text) is not bool(slow)
    assert "are alike" not in text
    for column in ("Certificate", "Server", "HTTP", "Resent"):
        assert column not in text, "it does not differ"
    trips = [run["steps"][0]["network"]["tcp_rtt_ms"] or 0 for run in document["runs"]]
    assert ("Round trip" in text) is far_above(max(trips), min(trips))


def test_of_two_that_differ_both_are_named(run_tool):
    result, addresses = ask(run_tool, [ok(), ok(status=404)])
    assert f"! {addresses[0]} answers 200" in result.out and f"! {addresses[1]} answers 404" in result.out


def test_an_error_page_is_marked_even_where_most_have_one(run_tool):
    """Else somebody takes the only one out of service that works."""
    result, addresses = ask(run_tool, [ok(status=503), ok(status=503), ok()])
    for address, status in zip(addresses, (503, 503, 200)):
        assert f"! {address} answers {status}" in flat(result.out)
    assert f"{addresses[0]}, {addresses[1]}: no answer was good" in flat(result.out)


def test_where_every_address_has_the_same_error_page_none_differs(run_tool):
    result, _ = ask(run_tool, [ok(status=503), ok(status=503)])
    assert "answers 503" not in result.out


def test_another_certificate_is_told_by_its_sha256_and_its_days(run_tool, authority):
    same, other = authority.context("web.test"), authority.context("web.test")
    members = [{"tls": same}, {"tls": other}, {"tls": same}]
    result, addresses = ask(run_tool, members, "--cacert", authority.file, "--json", "-", scheme="https")
    ordered = by_target(json.loads(result.out), addresses)
    prints = [run["steps"][0]["network"]["cert_sha256"] for run in ordered]
    shown, addresses = ask(run_tool, members, "--cacert", authority.file, scheme="https", columns=100)
    assert f"! {addresses[1]} shows another certificate: {prints[1][:8]}, " in flat(shown.out)
    assert "Certificate (SHA-256)" in shown.out and prints[0][:8] in shown.out and "days left" in shown.out


def test_an_expired_certificate_of_an_address_is_called_that(run_tool, tmp_path):
    pytest.importorskip("cryptography", reason="needs cryptography, to make certificates")
    mint = Mint(tmp_path)
    good, ended = (mint.context(mint.issue(mint.ca, days=(-90, left))) for left in (30.5, -3.5))
    result, addresses = ask(run_tool, [{"tls": good}, {"tls": ended}], "-k", scheme="https", columns=140)
    assert re.search(r"\b[0-9a-f]{8}, 30 days left", result.out)
    told = rf"^! {addresses[1]} shows another certificate: [0-9a-f]{{8}}, expired 3 days ago$"
    assert re.search(told, result.out, re.MULTILINE)


def test_addresses_that_fail_alike_have_one_hint(call_tool):
    addresses = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    with refused_port(host="0.0.0.0") as port:
        result = call_tool(*resolved(port, addresses), "--all-addresses", f"http://web.test:{port}/")
    text = flat(result.out)
    assert all(f"! {address} fails: no connection" in text for address in addresses)
    assert text.count("check the port") == 1


def test_a_certificate_that_fails_is_compared_too(run_tool, authority):
    members = [{"tls": authority.context("web.test")}, {"tls": authority.context("other.test")}]
    result, addresses = ask(run_tool, members, "--cacert", authority.file, scheme="https", expected=75)
    text = flat(result.out)
    assert f"! {addresses[1]} fails: " in text and f"! {addresses[1]} shows another certificate" in text


def test_a_server_that_calls_itself_otherwise_is_a_column(run_tool):
    members = [ok(headers=[("Server", f"web/{number}")], wait=0.05) for number in (1, 2)]
    result, _ = ask(run_tool, members, "--json", "-")
    text = flat(result.err)
    assert "Server" in text and "web/1" in text and "web/2" in text
    alike = "tells smaller differences. They differ in Server."
    assert (alike in text) is not bool(slow_ones(json.loads(result.out)))


def test_budgets_hold_for_each_address(run_tool):
    result, addresses = ask(run_tool, [ok(), ok(wait=1)], "--slo", "wait=700", "--json", "-", expected=4)
    slo = json.loads(result.out)["summary"]["slo"]
    (violation,) = slo["violations"]
    assert (violation["key"], violation["target"]) == ("wait", addresses[1])
    run = json.loads(result.out)["runs"][violation["run_number"] - 1]
    assert run["target"] == addresses[1]
    result, _ = ask(
        run_tool,
        [ok(), ok(wait=1)],
        "--slo",
        "wait.median=700",
        "--count",
        2,
        "--interval",
        0,
        "--metrics-only",
        expected=4,
    )
    first, second = result.out.splitlines()[-2:]
    assert first.endswith(" slo=pass") and second.endswith(" slo=fail slo_violations=wait.median")


def test_har_has_a_page_for_each(run_tool):
    result, addresses = ask(run_tool, [ok(), ok()], "--har", "-")
    log = json.loads(result.out)["log"]
    assert [page["id"] for page in log["pages"]] == ["page_1", "page_2"]
    assert sorted(entry["serverIPAddress"] for entry in log["entries"]) == addresses


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "env", "words"),
    [
        (["-x", "http://127.0.0.1:9"], {}, ["-x", "--proxy"]),
        ([], {"http_proxy": "http://127.0.0.1:9"}, ["http_proxy", "-x ''"]),
        ([], {"ALL_PROXY": "socks5://127.0.0.1:9"}, ["ALL_PROXY", "-x ''"]),
        (["--slo", "dns=5"], {}, ["dns"]),
        (["--slo", "DNS.median=5", "--count", "9"], {}, ["dns.median"]),
        (["--interval", "2"], {}, ["--interval", "--count"]),
    ],
    ids="x variable all_proxy dns dns-stat interval".split(),
)
def test_what_cannot_be_asked_of_each_address_is_refused(run_tool, options, env, words):
    result = run_tool("--all-addresses", *options, "http://a.test/", env=env)
    check_usage_error(result, *words)


def test_an_empty_x_goes_direct(run_tool):
    with cluster(ok()) as (port, addresses, _):
        options = [*resolved(port, addresses), "-x", ""]
        env = {"http_proxy": "http://127.0.0.1:9"}
        result = run_tool("--all-addresses", *options, f"http://web.test:{port}/", env=env)
    assert result.code == 0


def test_an_address_is_its_own_only_address(run_tool, server):
    result = run_tool("--all-addresses", "--json", "-", server.url())
    document = json.loads(result.out)
    assert result.code == 0 and [run["target"] for run in document["runs"]] == ["127.0.0.1"]
    assert socket.inet_aton(document["runs"][0]["steps"][0]["network"]["ip"])


def test_the_first_round_opens_its_own_connections_and_the_next_keeps_them(run_tool):
    """A redirect within the host, too: its second step is not sent on the connection of its first."""
    routes = {"routes": {"/": Reply(302, headers=[("Location", "/here")]), "/here": Reply(body=b"hello\n")}}
    result, _ = ask(run_tool, [routes, routes], "-L", "--reuse", "--count", 2, "--interval", 0, "--json", "-")
    for run in json.loads(result.out)["runs"]:
        assert {step["network"]["ip"] for step in run["steps"]} == {run["target"]}
        assert {step["network"]["reused"] for step in run["steps"]} == {run["round"] == 2}


def test_a_later_step_of_a_chain_is_compared_too(run_tool):
    """Each answers with the same redirect; one of them then answers otherwise, and one is slow."""

    def chain(**settings):
        there = Reply(body=b"hello\n", **{"wait": 0.05, **settings})
        return {"routes": {"/": Reply(302, headers=[("Location", "/there")], wait=0.05), "/there": there}}

    members = [chain(), chain(status=500), chain(wait=FAR_SLOWER), chain()]
    result, addresses = ask(run_tool, members, "-L", "--json", "-")
    before, _, after = flat(result.err).rpartition("Step 1: GET")[2].partition("Step 2: GET")
    alike = "no address is twice as slow; --count 8 tells"
    assert (alike in before) is not bool(slow_ones(json.loads(result.out)))
    assert "twice" not in after and f"! {addresses[1]} answers 500" in after
    assert f"! {addresses[2]} is slow: median wait 1" in after


@pytest.mark.skipif(not can_listen("::1"), reason="no IPv6")
def test_the_family_chooses_among_given_addresses_too(run_tool):
    with http_server(host="::1") as six:
        options = resolved(six.port, ["127.0.0.1", "::1"])
        result = run_tool("--all-addresses", "-6", *options, "--json", "-", f"http://web.test:{six.port}/")
        other = run_tool("--all-addresses", "-6", *options[:2], "--json", "-", f"http://web.test:{six.port}/")
    assert [run["target"] for run in json.loads(result.out)["runs"]] == ["::1"]
    [run] = json.loads(other.out)["runs"]
    assert (other.code, run["target"]) == (75, "127.0.0.1") and other.err
    assert "-6 asks for one" in run["steps"][0]["error"]["message"]


SERIES = ("--count", 6, "--interval", 0)


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
def test_an_address_that_fails_on_some_connections_alone_is_not_alike(run_tool, when, failed):
    """Whichever of its runs the medians are of: those on kept connections, or on new ones."""
    with cluster(ok()) as (port, (first,), _):
        second = f"{first[:-1]}2"
        with scripted(hanging_up(when), host=second, port=port):
            words = [*resolved(port, [first, second]), "--reuse", *SERIES, f"http://web.test:{port}/"]
            result = run_tool("--all-addresses", *words)
    assert result.code == 75
    assert "alike" not in result.out
    assert f"! {second} fails in {failed} of 6 runs" in flat(result.out)
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
    assert flat(result.out).count("! 127.0.0.1 fails in 2 of 6 runs") == 2


def test_a_redirect_that_fails_at_times_is_not_alike(run_tool):
    replies = [redirect("/bad"), redirect("/good"), redirect("/good")]
    turns = itertools.cycle(replies)
    members = [
        {"routes": {"/": redirect("/good"), "/good": Reply(body=b"x")}},
        {"routes": {"/": lambda request: next(turns), "/good": Reply(body=b"x"), "/bad": Reply(503)}},
    ]
    result, addresses = ask(run_tool, members, "-L", *SERIES)
    assert f"! {addresses[1]} answers 200, 503" in flat(result.out)


def test_an_address_with_two_certificates_is_named(run_tool, authority):
    turns = itertools.cycle([authority.context("web.test"), authority.context("web.test")])
    steady = authority.context("web.test")

    def alternating(peer):
        secured = peer.secure(next(turns))
        if secured.read_request():
            secured.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    with cluster({**ok(), "tls": steady}) as (port, (first,), _):
        second = f"{first[:-1]}2"
        with scripted(alternating, host=second, port=port):
            words = [*resolved(port, [first, second]), *SERIES, f"https://web.test:{port}/"]
            result = run_tool("--all-addresses", "-k", *words)
    assert result.code == 0
    assert f"! {second} shows 2 certificates: " in flat(result.out)


def test_an_address_whose_connections_are_never_kept_is_named_and_not_compared(run_tool):
    members = [ok(), {"routes": {"/": Reply(body=b"x", headers=[("Connection", "close")], wait=0.1)}}]
    result, addresses = ask(run_tool, members, "--reuse", *SERIES)
    words = flat(result.out)
    assert f"! {addresses[1]} was only measured on new connections: the server said" in words
    assert "is slow" not in words


def test_late_rounds_and_opened_connections_are_told(run_tool):
    options = ["--count", 3, "--interval", 0.1, "--reuse"]
    result, addresses = ask(run_tool, [ok(wait=0.2), ok(wait=0.2)], *options, columns=200)
    assert "medians in ms of 6 runs, 2 late starts" in flat(result.out)
    for address in addresses:
        assert f"{address}: 1 of 3 runs opened a connection, which took " in flat(result.out)


def test_a_budget_on_a_statistic_needs_a_count_here_too(run_tool):
    with cluster(ok()) as (port, addresses, servers):
        words = [*resolved(port, addresses), "--slo", "total.median=1000", f"http://web.test:{port}/"]
        result = run_tool("--all-addresses", *words)
        asked = len(servers[0].requests)
    check_usage_error(result, "total.median", "--count")
    assert asked == 0


@pytest.mark.parametrize(("count", "style", "told"), [(2, "--compact", 6), (2, "-i", 0), (8, "-i", 0)])
def test_the_waterfall_of_addresses_has_no_lines_of_runs(run_tool, count, style, told):
    """What changes is told; the table says the rest."""
    with cluster(ok(), ok(), ok()) as (port, addresses, _):
        words = [*resolved(port, addresses), "--count", count, "--interval", 0, f"http://web.test:{port}/"]
        result = run_tool("--all-addresses", style, *words, terminal="out")
    assert result.code == 0
    assert len(re.findall(r"^Run \d+ ", result.out, re.MULTILINE)) == told


# --- judged as sides are --------------------------------------------------------------------------


def rows_like(*totals, **changes):
    """Make rows of addresses a, b, … with these totals (us) in each round."""
    from test_statistics import sample

    samples = []
    for name, values in zip("abcdefgh", totals):
        samples += [sample(turn, us)._replace(variant=name, **changes) for turn, us in enumerate(values, 1)]
    return tool.rows_of(samples, 1)


def judged(rows):
    return {
        row.variant: tool.compare_address(row.usual, tool.others_of(row, rows), len(rows)) for row in rows
    }


@pytest.mark.parametrize(("count", "needed"), [(2, 7), (3, 7), (4, 8), (8, 9)])
def test_from_so_many_rounds_on_addresses_are_judged_as_sides_are(count, needed):
    usual = [20_000 + 10 * turn for turn in range(needed)]
    slower = [us + 3_000 for us in usual]
    found = judged(rows_like(slower, *[usual] * (count - 1)))
    assert found["a"].verdict == "slower"
    assert {found[name].verdict for name in found if name != "a"} == {
        "faster" if count == 2 else "no_difference"
    }
    few = judged(rows_like(slower[:-1], *[usual[:-1]] * (count - 1)))
    assert {each.verdict for each in few.values()} == {"too_few"}
    assert found["a"].needed == needed


@pytest.mark.parametrize(("more", "marked"), [(1_000, False), (1_001, True)])
def test_a_difference_of_five_percent_and_a_millisecond_is_marked(more, marked):
    usual = [20_020] * 10
    found = judged(rows_like([us + more for us in usual], usual, usual))
    assert (found["a"].verdict == "slower") is marked
    usual = [2_000] * 10
    found = judged(rows_like([us + 999 for us in usual], usual, usual))
    assert found["a"].verdict == "no_difference"


def test_one_that_is_fast_is_told_from_three():
    usual = [20_000 + 10 * turn for turn in range(10)]
    found = judged(rows_like([us - 4_000 for us in usual], usual, usual, usual))
    assert [each.verdict for each in found.values()] == ["faster"] + ["no_difference"] * 3


def test_an_address_that_is_slower_is_marked_with_the_phase_that_differs(run_tool):
    members = [ok(wait=0.05), ok(wait=0.05), ok(wait=0.09)]
    result, addresses = ask(run_tool, members, "--count", 8, "--interval", 0)
    text = flat(result.out)
    sentence = (
        rf"! {addresses[2]} is slow: total [\d.]+ ms above the others \([\d.]+ to [\d.]+\), most of it wait"
    )
    assert re.search(sentence, text)
    assert "the way to it" not in text and "alike" not in text


def test_where_no_address_is_apart_it_is_said_within_how_much(run_tool):
    for _ in range(3):  # a busy machine makes one slow
        result, _ = ask(run_tool, [USUAL] * 3, "--count", 8, "--interval", 0)
        found = re.search(
            r"No difference shows between the 3 addresses.*: each within [\d.]+ ms", flat(result.out)
        )
        if found:
            return
    raise AssertionError(result.out)


def test_within_how_much_holds_for_both_middle_values_of_the_others():
    """Those of the quickest of five are 0.8 and 0.9 ms above it."""
    rows = rows_like(*([us] * 8 for us in (19_200, 20_000, 20_000, 20_100, 20_100)))
    assert "each within 0.900 ms of the others" in tool.alike_sentence([*judged(rows).values()], "")


def test_a_longer_way_is_told_from_a_slow_server():
    usual, far = [20_000 + 10 * turn for turn in range(10)], [50_000 + 10 * turn for turn in range(10)]
    rows = rows_like(far, usual, usual)
    near = [row.usual for row in rows[1:]]
    for row, trip in zip(rows, (35_000, 5_000, 5_000)):
        row.usual.rtt_us = trip
    found = judged(rows)["a"]
    mark = tool.slow_mark(rows[0].usual, near, found)
    assert mark.text.endswith("; the way to it is longer: round trip 35.0 ms, of the others 5.0 ms")
    assert mark.columns[0] == "Round trip"
    rows[0].usual.rtt_us = 5_100
    mark = tool.slow_mark(rows[0].usual, near, found)
    assert "way" not in mark.text and "Wait" in mark.columns


def test_the_column_that_is_the_reason_of_a_mark_is_left_out_last(run_tool, authority):
    same, other = authority.context("web.test"), authority.context("web.test")
    members = [{"tls": same}, {"tls": other}, {"tls": same}]
    words = ("--cacert", authority.file)
    result, _ = ask(run_tool, members, *words, scheme="https", columns=60)
    assert result.code == 0
    heading = next(line for line in result.out.splitlines() if "Address" in line and "│" in line)
    assert "Certificate" in heading and "Connect" not in heading
    table = [line for line in result.out.splitlines() if line.startswith("│")]
    assert len(table) == 4 and all(len(line) <= 60 for line in table)
    shown = [re.search(r"\b[0-9a-f]{8}\b", line) for line in table[1:]]
    assert all(shown) and shown[0][0] == shown[2][0] != shown[1][0]
