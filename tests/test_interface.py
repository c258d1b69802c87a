"""Where connections begin: at an address of this machine, or at a network interface by its name."""

from __future__ import annotations

import pytest

from inside import failure, here, only_step
from paths import ANY, FAR, NEAR, path
from relays import relay_proxy
from servers import OK, dns_server, http_server, scripted

pytestmark = pytest.mark.needs("linux")


def callers(**settings):
    """Make a server that remembers the address that each connection came from."""
    seen: list[str] = []

    def script(peer):
        seen.append(peer.sock.getpeername()[0])
        peer.read_request()
        peer.send(OK)

    return scripted(script, **settings), seen


def test_a_connection_begins_at_the_address_that_was_given(run_tool):
    for given, address in (("127.0.0.2", "127.0.0.2"), ("127.1.2.3", "127.1.2.3"), ("lo", "127.0.0.1")):
        serving, seen = callers()
        with serving as server:
            network = only_step(here("--interface", given, "-4", server.url()))["network"]
            assert f"From         {address} (--interface" in run_tool("--interface", given, server.url()).out
        assert seen == [address] * 2
        assert (network["local_ip"], network["ip"]) == (address, "127.0.0.1")


def test_every_address_that_is_tried_is_tried_from_there(run_tool):
    """The first one refuses; the socket for the second is made while the clock runs."""
    serving, seen = callers(host="127.0.0.3")
    zone = {"two.test": ["127.0.0.2", "127.0.0.3"]}
    with dns_server(zone) as names, serving as server:
        url = server.url(host="two.test")
        result = run_tool("--json", "-", "--interface", "127.0.0.8", url, resolver=names.address)
    assert result.json()["steps"][0]["network"]["local_ip"] == "127.0.0.8"
    assert seen == ["127.0.0.8"]


def test_the_connection_to_a_proxy_begins_there(server):
    with relay_proxy("http", server) as (proxy, _):
        network = only_step(here("--interface", "127.0.0.9", "-x", proxy, server.url()))["network"]
    assert (network["local_ip"], network["proxy_url"]) == ("127.0.0.9", proxy)


@pytest.mark.needs("ipv6")
def test_an_address_of_the_other_family_is_not_looked_for():
    step = failure(here("--interface", "::1", "http://127.0.0.1:1/"), "dns", "dns")
    assert "IPv6" in step["error"]["message"]
    assert "an address after --interface" in step["error"]["hint"]


def test_bound_to_another_interface_nothing_gets_there(tmp_path, run_tool):
    """The way to the server leads through the device `path`, not through lo."""
    with path(tmp_path) as way, way.far(http_server(host=ANY)) as server:
        url = server.url(host=FAR)

        def run(*words):
            return run_tool("-m", "1", "--json", "-", *words, url, within=way.near)

        through, aside, plain = run("--interface", "path"), run("--interface", "lo"), run()
    assert [result.code for result in (through, aside, plain)] == [0, 75, 0]
    assert through.json()["steps"][0]["network"]["local_ip"] == NEAR
    assert aside.json()["steps"][0]["network"]["local_ip"] is None
    assert aside.json()["steps"][0]["error"]["phase"] == "connect"


@pytest.mark.needs("ipv6")
def test_what_is_not_there_is_a_failed_step(server):
    for given, reason in (("nope0", "no such device"), ("192.0.2.77", "names no interface or address")):
        error = failure(here("--interface", given, server.url()), "network")["error"]
        assert reason in error["message"] + error["hint"], error
    for address, flag, asked in (("127.0.0.1", "-6", "[::1]"), ("::1", "-4", "127.0.0.1")):
        error = failure(here("--interface", address, flag, f"http://{asked}:9/"), "network")["error"]
        assert "address family not supported" in error["message"]
    words = ("--interface", "127.0.0.1", "--resolve", "a:80:::1", "http://a/")
    assert "::1 is no IPv4 address" in failure(here(*words), "dns")["error"]["message"]
    assert server.accepted == 0
