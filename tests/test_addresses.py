"""Addresses: the race for a connection, what is recorded of it, names resolved by hand, families, zones."""

from __future__ import annotations

import contextlib
import re
import socket

import pytest

from inside import failure, here, only_step, tool
from servers import Reply, black_hole, bracketed, dns_server, http_server, refused_port

NEVER = 20.0
"""Seconds that no run waits for, which ends before."""


@pytest.fixture
def race(monkeypatch, server):
    """Run the program where a name has several addresses: "live", "refused", "silent", "unreachable" ones.

    The lookup alone is replaced: every address is a real port of loopback, or its broadcast address.
    """
    with contextlib.ExitStack() as held:
        places = {
            "live": ("127.0.0.1", server.port),
            "refused": ("127.0.0.1", held.enter_context(refused_port())),
            "silent": ("127.0.0.1", held.enter_context(black_hole())),
            "unreachable": ("127.255.255.255", 9),
        }

        def run(*kinds, options=()):
            numbered = ((f"127.0.1.{number}", places[kind]) for number, kind in enumerate(kinds, 1))
            peers = [tool.Peer(ip, socket.AF_INET, place) for ip, place in numbered]
            monkeypatch.setattr(tool, "resolve", lambda *_: peers)
            return here("-m", "10", *options, server.url(host="many.test"))

        yield run


def attempts_of(step):
    """List (last number of the address, its error) in the order of the addresses."""
    attempts = step["network"]["attempts"]
    return sorted((int(each["ip"].rpartition(".")[2]), each["error"]) for each in attempts)


def test_the_first_address_that_answers_is_the_only_one_tried(race, server):
    step = only_step(race("live", "live", "silent"))
    assert (step["network"]["ip"], attempts_of(step)) == ("127.0.1.1", [(1, None)])
    assert step["network"]["addresses"] == ["127.0.1.1", "127.0.1.2", "127.0.1.3"]
    assert server.accepted == 1


@pytest.mark.needs("linux")
def test_after_a_refusal_the_next_address_is_tried_at_once(race, monkeypatch):
    """Without a refusal it would be tried after a time that no run waits for."""
    monkeypatch.setattr(tool, "CONNECT_STAGGER", NEVER)
    step = only_step(race("refused", "refused", "live"))
    assert step["network"]["ip"] == "127.0.1.3"
    [(_, first), (_, second), (_, third)] = attempts_of(step)
    assert "refused" in first and "refused" in second and third is None


@pytest.mark.needs("linux")
def test_of_several_failures_the_first_in_time_is_told_with_its_own_address(race, monkeypatch):
    """The second attempt fails within connect(), the first is still to be heard of."""
    monkeypatch.setattr(tool, "CONNECT_STAGGER", 0.0)
    error = failure(race("refused", "unreachable"), "network", "connect")["error"]
    assert re.search(r" \(127\.0\.1\.2\) .*: network is unreachable \(2 addresses tried\)$", error["message"])
    assert error["hint"].startswith("127.0.1.1 refuses (nothing listens); 127.0.1.2 network is unreachable. ")
    hint = failure(race("refused", "silent", options=["-m", "0.3"]), "timeout", "connect")["error"]["hint"]
    assert hint.startswith("127.0.1.1 refuses (nothing listens); 127.0.1.2 is silent. A firewall drops ")


@pytest.mark.needs("linux")
def test_each_silent_address_costs_a_quarter_of_a_second(race):
    assert tool.CONNECT_STAGGER == 0.25
    step = only_step(race("silent", "silent", "live"))
    assert step["network"]["ip"] == "127.0.1.3"
    assert [error is None for _, error in attempts_of(step)] == [False, False, True]
    first, second, last = (each["duration_ms"] for each in step["network"]["attempts"])
    assert step["timing"]["connect_ms"] >= 2 * 250
    assert min(first - second, second - last) >= 250 - 0.002, "they are rounded"
    assert only_step(race("silent", "refused", "live"))["timing"]["connect_ms"] < 2 * 250


@pytest.mark.needs("linux")
def test_addresses_and_attempts_are_drawn_where_one_has_failed(run_tool):
    zone = {"two.test": ["127.0.0.2", "127.0.0.3"], "one.test": ["127.0.0.3"]}
    routes = {"/": Reply(), "/slow": Reply(wait=60)}
    with dns_server(zone) as names, http_server(routes, host="127.0.0.3") as server:
        two, one = (run_tool(server.url(host=host), resolver=names.address).out for host in zone)
        slow = server.url("/slow", host="two.test")
        stopped = run_tool(slow, resolver=names.address, within=["timeout", "-s", "INT", "2"])
    [first, second] = re.findall(r"  Attempt +(.*) after [\d.]+ ms\n", two)
    assert first.startswith("127.0.0.2: connection refused") and second == "127.0.0.3: connected"
    assert re.search(r"  Resolved +127\.0\.0\.2, 127\.0\.0\.3\n", two)
    assert "Attempt" not in one and "Resolved" not in one
    assert re.fullmatch(r"httphases: stopped in wait after .* \(127\.0\.0\.3 port \d+\)\n", stopped.err)


def test_the_families_take_turns_and_keep_their_order():
    for families, order in (("6644", "0213"), ("446", "021"), ("6664", "0312")):
        peers = [tool.Peer(str(number), family, ()) for number, family in enumerate(families)]
        assert "".join(peer.ip for peer in tool.interleave(peers)) == order


@pytest.mark.needs("ipv6")
def test_a_family_restricts_what_is_asked_of_the_resolver(run_tool):
    with dns_server({"two.test": ["127.0.0.1", "::1"]}) as names, http_server(host="::1") as server:
        result = run_tool("-6", "--metrics-only", server.url(host="two.test"), resolver=names.address)
    assert {asked for name, asked in names.questions if name == "two.test"} == {"AAAA"}
    assert [line["ip"] for line in result.metrics()] == ["::1"]


@pytest.mark.parametrize("host", ["127.0.0.2", pytest.param("::1", marks=pytest.mark.needs("ipv6"))])
def test_a_literal_address_is_used_as_it_is(host):
    with http_server(host=host) as server:
        step = only_step(here(server.url()))
    network = step["network"]
    assert (network["ip"], network["addresses"]) == (host, [host])
    assert network["ip_family"] == ("IPv6" if ":" in host else "IPv4")
    assert (step["timing"]["dns_ms"], network["port"]) == (0, server.port)
    assert server.requests[0].values("Host") == [f"{bracketed(host)}:{server.port}"]


@pytest.mark.needs("ipv6", "linux")
def test_a_zone_id_chooses_the_interface_and_is_not_sent():
    with http_server(host="::1") as server:
        for written in ("[::1%25lo]", "[::1%lo]"):
            step = only_step(here(f"http://{written}:{server.port}/"))
            assert step["network"]["ip"].partition("%")[0] == "::1"
            assert step["timing"]["dns_ms"] == 0
    assert {request.values("Host")[0] for request in server.requests} == {f"[::1]:{server.port}"}
    step = failure(here(f"http://[fe80::1%{2**32 + 1}]:1/"), "dns")  # it is 1 in 32 bits, which is lo
    assert "this machine has no interface '4294967297'" in step["error"]["message"]
    assert tool.literal_peer("fe80::1%3", 80).address == ("fe80::1", 80, 0, 3), "a number is one by itself"


@pytest.mark.parametrize("known", [{}, {"app.localhost": ["127.0.0.9"]}])
def test_a_name_below_localhost_is_this_machine_where_nobody_knows_it(run_tool, known):
    """RFC 6761 section 6.3."""
    with dns_server(known) as names, http_server(host="127.0.0.9" if known else "127.0.0.1") as server:
        words = ("-4", "--json", "-", server.url(host="app.localhost"))
        step = only_step(run_tool(*words, resolver=names.address))
    assert step["network"]["addresses"] == [server.host]
    assert server.requests[0].values("Host") == [f"app.localhost:{server.port}"]


def test_a_name_resolved_by_hand_is_not_looked_up_and_stays_in_host(server):
    """Each of several mappings holds; another port of the name is looked up."""
    mappings = [f"{name}:{server.port}:127.0.0.1" for name in ("A.Test", "b.test", "127.0.0.9")]
    mappings.append(f"localhost:{server.port - 1}:127.0.0.9")
    options = [word for mapping in mappings for word in ("--resolve", mapping)]
    for name in ("a.test", "b.test", "127.0.0.9"):
        step = only_step(here(*options, server.url("/x", host=name)))
        assert (step["timing"]["dns_ms"], step["network"]["addresses"]) == (0, ["127.0.0.1"])
        assert server.requests[-1].values("Host") == [f"{name}:{server.port}"]
        assert step["url"] == f"http://{name}:{server.port}/x"
    step = only_step(here(*options, "-4", server.url(host="localhost")))
    assert step["timing"]["dns_ms"] > 0 and step["network"]["ip"] == "127.0.0.1"
