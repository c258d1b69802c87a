"""What a long lookup means: search lists, name servers and families that stay silent, on real lookups."""

from __future__ import annotations

import json
import re
import signal

import pytest

from checks import flat
from conftest import PATIENCE
from laboratory import by_id, costs, on_a_path
from paths import FAR, NEAR, OTHERS, silent
from servers import dns_server

SEARCH = "ns.svc.cluster.test svc.cluster.test cluster.test example.net"
SHOP = {"shop.example": [FAR], "six.test": ["2001:db8::2"], "alias.example": "shop.example"}


class Names:
    """A far end with a web server and a name server of `zone`, at FAR both."""

    def __init__(self, lab, zone, delay=0.0):
        self.lab, self.read = lab.start(0.0005), lab.read
        self.port = lab.http().rpartition(":")[2]
        self.asked = lab.serve(dns_server(zone, delay=delay, host=NEAR)).questions

    def settings(self, *servers, **more):
        self.lab.way.name_servers(*(servers or (FAR,)), **more)

    def url(self, host="shop.example"):
        return f"http://{host}:{self.port}/"


@pytest.fixture
def slow_names(lab):
    return Names(lab, SHOP, delay=0.04)


@on_a_path
def test_a_series_names_the_name_servers_of_each_run(lab, start_tool):
    """They may be others after a day: what an earlier run has read is not what is asked now."""
    names, path = Names(lab, SHOP, delay=0.12), lab.folder / "out.json"
    names.settings(FAR)
    words = ("--metrics-only", "--count", "9999", "--interval", "0.05", "--json", path, names.url())
    process = start_tool(*words, within=lab.way.near)
    assert process.stdout.readline().startswith(b"Run 1")
    names.settings(FAR, OTHERS[0])
    enough = len(names.asked) + 6  # A and AAAA of the run under way, of the next, and of another
    while len(names.asked) < enough:
        assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    last = by_id(json.loads(path.read_text())["runs"][-1]["steps"][-1])
    assert f"({FAR}, {OTHERS[0]})" in last["slow_lookup"]["text"], last


# --- search lists ---------------------------------------------------------------------------------


@on_a_path
def test_a_search_list_is_named_in_place_of_the_name_server(slow_names):
    slow_names.settings(options="ndots:5", search=SEARCH)
    words = (
        "5 names were asked for, this one last (search, ndots:5 in /etc/resolv.conf)",
        "shop.example. with a final dot asks for one",
        "fits",
    )
    found = slow_names.lab.finds(costs("search_list", "fits", 160, *words), slow_names.url())
    assert "slow_lookup" not in found
    assert {name for name, _ in slow_names.asked} == {
        "shop.example",
        *(f"shop.example.{domain}" for domain in SEARCH.split()),
    }
    slow_names.lab.misses("search_list", ask=lambda: slow_names.read(slow_names.url("shop.example.")))


@on_a_path
def test_a_search_list_and_a_slow_name_server_are_both_named(lab):
    names = Names(lab, SHOP, delay=0.15)
    names.settings(options="ndots:5", search=SEARCH)
    words = "5 names were asked for, or the name server was slow: one run with a final dot (shop.example.) "
    expected = costs("slow_lookup", "seen", 750, f"{words}tells", without=("search_list",))
    lab.finds(expected, names.url())


@on_a_path
@pytest.mark.parametrize("variable", ["RES_OPTIONS=ndots:1", "LOCALDOMAIN=d.test"])
def test_what_the_environment_says_otherwise_is_not_read_from_the_file(slow_names, variable):
    slow_names.settings(options="ndots:5", search="a.test b.test")
    assert "search_list" in slow_names.read(slow_names.url())
    found = slow_names.read(slow_names.url(), env=dict([variable.split("=")]))
    assert not {"search_list", "resolver_timeout"} & set(found)


@on_a_path
@pytest.mark.parametrize(
    ("host", "options", "code"),
    [
        ("shop.example", "ndots:1", 0),  # dots enough: it is asked for first
        ("alias.example", "ndots:5", 0),  # an alias: nothing tells which name had it
        ("none.example", "ndots:5", 75),
        ("none.example", "ndots:1", 75),  # which goes through the list now that it has failed
    ],
)
def test_names_that_are_quick_each_make_no_slow_name_server(slow_names, host, options, code):
    slow_names.settings(options=options, search="a.test b.test c.test d.test e.test f.test g.test h.test")
    unwanted = ("search_list", "slow_lookup", "resolver_timeout")
    slow_names.lab.misses(*unwanted, ask=lambda: slow_names.read(slow_names.url(host), code=code))


@on_a_path
def test_a_name_that_the_first_domain_has_was_asked_for_first(lab):
    names = Names(lab, {"shop.a.test": [FAR]}, delay=0.11)
    names.settings(options="ndots:5", search="a.test b.test")
    assert "slow_lookup" in names.read(names.url("shop")) and len({name for name, _ in names.asked}) == 1


@on_a_path
def test_a_name_that_only_the_search_list_has_is_noted(lab):
    """There may be a wildcard in it, which leads to another host. A name without a dot is meant so."""
    names = Names(lab, {"shop.example.corp.test": [FAR], "shop.corp.test": [FAR], "web.example": [FAR]})
    names.settings(search="a.test corp.test")
    notes = {
        host: re.findall(
            "Note +(.*search list)", flat(lab.run_tool(names.url(host), within=lab.way.near).out)
        )
        for host in ("shop.example", "shop", "web.example")
    }
    found = "shop.example is shop.example.corp.test, found by the search list"
    assert notes == {"shop.example": [found], "shop": [], "web.example": []}


# --- silence --------------------------------------------------------------------------------------


@on_a_path
def test_an_aaaa_that_is_never_answered_is_told_with_the_way_around_it(lab):
    names = Names(lab, {**SHOP, "AAAA shop.example": None})
    names.settings(FAR, OTHERS[1])
    words = ("this fits 3 time-outs of 1 s", "A or AAAA stayed without an answer: --vs -4 tells")
    lab.finds(costs("resolver_timeout", "fits", 3000, *words, FAR, OTHERS[1]), names.url())
    assert "resolver_timeout" not in names.read("-4", names.url())


@on_a_path
def test_an_a_that_is_never_answered_fails_and_names_the_way_around_it(lab):
    names = Names(lab, {**SHOP, "A six.test": None})
    names.settings()
    shown = names.lab.run_tool(names.url("six.test"), within=lab.way.near)
    assert shown.code == 75 and "-4 or -6 asks for one family" in flat(shown.out) and "nslookup" in shown.out
    words = "A or AAAA stayed without an answer: --vs -4 or -6 tells"
    found = lab.finds(costs("resolver_timeout", "fits", 1000, words), names.url("six.test"), code=75)
    assert found["resolver_timeout"]["text"].endswith(words)
    shown = names.lab.run_tool("-6", names.url("none.test"), within=lab.way.near)
    assert "gets around it" not in flat(shown.out)


@on_a_path
@pytest.mark.parametrize(("search", "count"), [("", "a time-out"), ("a.test b.test", "3 time-outs")])
def test_a_first_name_server_that_is_silent_costs_time_outs(lab, search, count):
    """One for each name that is asked for."""
    names = Names(lab, SHOP)
    lab.way.change(rules=silent(OTHERS[0]))
    names.settings(OTHERS[0], FAR, options="timeout:1 ndots:5", search=search)
    words = f"this fits {count} of 1 s: a name server gave no usable answer in time ({OTHERS[0]}, {FAR})"
    dig = f": dig @{OTHERS[0]} shop.example shows which"
    least, others = 3000 if search else 1000, ("search_list", "slow_lookup")
    expected = costs("resolver_timeout", "fits", least, words + dig, without=others)
    text = lab.finds(expected, names.url())["resolver_timeout"]["text"]
    dot = "; 3 names were asked for (search): shop.example. with a "
    assert text.startswith(words + dig) and (dot in text) == bool(search)
