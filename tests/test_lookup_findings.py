"""What a long lookup means: search lists, name servers and families that stay silent, on real lookups."""

from __future__ import annotations

import json
import threading
import time

import pytest
from test_findings import by_id, costs, lab, on_a_path

from checks import flat
from inside import tool
from paths import FAR, NEAR, OTHERS, silent
from servers import dns_server

assert lab  # a fixture
SEARCH = "ns.svc.cluster.test svc.cluster.test cluster.test example.net"
SHOP = {"shop.example": [FAR], "six.test": ["2001:db8::2"], "alias.example": "shop.example"}


class Names:
    """A far end with a web server and a name server of `zone`, at FAR both."""

    def __init__(self, lab, zone, delay=0.0):
        self.lab, self.port = lab.start(0.0005), lab.http().rpartition(":")[2]
        self.asked = lab.serve(dns_server(zone, delay=delay, host=NEAR)).questions

    def settings(self, *servers, **more):
        self.lab.way.name_servers(*(servers or (FAR,)), **more)

    def url(self, host="shop.example"):
        return f"http://{host}:{self.port}/"

    def read(self, *arguments, code=0, **how):
        result = self.lab.run_tool("--json", "-", *arguments, within=self.lab.way.near, **how)
        assert result.code == code, result.err
        return by_id(result.json()["steps"][-1])


@pytest.fixture
def slow_names(lab):
    return Names(lab, SHOP, delay=0.04)


@on_a_path
def test_a_series_names_the_name_servers_of_each_run(lab):
    """They may be others after a day: what an earlier run has read is not what is asked now."""
    names = Names(lab, SHOP, delay=0.12)
    names.settings(FAR)

    def change():
        while not names.asked:
            time.sleep(0.02)
        time.sleep(0.3)  # the first run is over, or nearly
        names.settings(FAR, OTHERS[0])

    changing = threading.Thread(target=change, daemon=True)
    changing.start()
    result = lab.run_tool(
        *("--json", "-", "--count", "2", "--interval", "1.5"), names.url(), within=lab.way.near
    )
    changing.join(5)
    last = by_id(json.loads(result.out)["runs"][-1]["steps"][-1])
    assert last["slow_lookup"]["evidence"]["servers"] == [FAR, OTHERS[0]], last


# --- search lists ---------------------------------------------------------------------------------


@on_a_path
def test_a_search_list_is_named_in_place_of_the_name_server(slow_names):
    slow_names.settings(options="ndots:5", search=SEARCH)
    words = (
        "5 names were asked for, this one last (search, ndots:5 in /etc/resolv.conf)",
        "shop.example. with a final dot asks for one",
        "fits",
        f"--vs http://shop.example.:{slow_names.port}/",
    )
    found = slow_names.lab.finds(costs("search_list", "fits", 160, *words), slow_names.url())
    assert "slow_lookup" not in found
    evidence = found["search_list"]["evidence"]
    assert (evidence["names"], evidence["ndots"], evidence["search"]) == (5, 5, SEARCH.split())
    assert {name for name, _ in slow_names.asked} == {
        "shop.example",
        *(f"shop.example.{domain}" for domain in SEARCH.split()),
    }
    slow_names.lab.misses("search_list", ask=lambda: slow_names.read(slow_names.url("shop.example.")))


@on_a_path
@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"RES_OPTIONS": "ndots:3"}, "(search in /etc/resolv.conf, ndots:3 in RES_OPTIONS)"),
        ({"RES_OPTIONS": "ndots:1"}, None),
        ({"RES_OPTIONS": "timeout:1²"}, "(search, ndots:2 in /etc/resolv.conf)"),
    ],
)
def test_ndots_may_come_from_the_environment(slow_names, variables, text):
    slow_names.settings(options="ndots:2", search="a.test b.test")
    found = slow_names.read(slow_names.url(), env=variables)
    assert (text in found["search_list"]["text"]) if text else "search_list" not in found


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
    found = slow_names.read(slow_names.url(host), code=code)
    assert not {"search_list", "slow_lookup", "resolver_timeout"} & set(found)


@on_a_path
def test_a_name_that_the_first_domain_has_was_asked_for_first(lab):
    names = Names(lab, {"shop.a.test": [FAR]}, delay=0.11)
    names.settings(options="ndots:5", search="a.test b.test")
    assert "slow_lookup" in names.read(names.url("shop")) and len({name for name, _ in names.asked}) == 1


# --- silence --------------------------------------------------------------------------------------


@on_a_path
@pytest.mark.parametrize("servers", [(FAR,), (FAR, OTHERS[1])])
def test_an_aaaa_that_is_never_answered_is_told_with_the_way_around_it(lab, servers):
    names = Names(lab, {**SHOP, "AAAA shop.example": None})
    names.settings(*servers)
    found = names.read(names.url())["resolver_timeout"]
    assert found["certainty"] == "fits" and 2900 <= found["cost_ms"] <= 3300
    assert "A or AAAA stayed without an answer" in found["text"] and "--vs -4" in found["text"]
    # Two servers that are silent for a second each would take as long, with the first asked again.
    assert ("name servers" in found["text"]) == (len(servers) > 1)
    assert "resolver_timeout" not in names.read("-4", names.url())


@on_a_path
def test_an_a_that_is_never_answered_fails_and_names_the_way_around_it(lab):
    names = Names(lab, {**SHOP, "A six.test": None})
    names.settings()
    shown = names.lab.run_tool(names.url("six.test"), within=lab.way.near)
    assert shown.code == 75 and "try -4 or -6" in flat(shown.out) and "nslookup" in shown.out
    text = names.read(names.url("six.test"), code=75)["resolver_timeout"]["text"]
    assert "A or AAAA stayed without an answer" in text and "--vs -6" in text
    shown = names.lab.run_tool("-6", names.url("none.test"), within=lab.way.near)
    assert "gets around it" not in flat(shown.out)


@on_a_path
def test_the_first_server_is_named_where_no_other_can_have_failed(lab):
    names = Names(lab, SHOP)
    lab.way.change(rules=silent(OTHERS[0]))
    names.settings(OTHERS[0], FAR)
    text = names.read(names.url())["resolver_timeout"]["text"]
    assert f"{OTHERS[0]} did not answer within 1 s, another did" in text
    # Which is first is drawn by lot.
    names.settings(OTHERS[0], FAR, options="timeout:1 rotate")
    found = [names.read(names.url()) for _ in range(3)]
    texts = [each["resolver_timeout"]["text"] for each in found if "resolver_timeout" in each]
    assert all("1 of the name servers" in text for text in texts)


@on_a_path
@pytest.mark.parametrize("asked_in_vain", ["server", "family"])
def test_time_outs_of_each_name_of_a_search_list_are_time_outs(lab, asked_in_vain):
    zone = (
        SHOP
        if asked_in_vain == "server"
        else {**SHOP, "AAAA shop.example": None, "AAAA shop.example.a.test": None}
    )
    names = Names(lab, zone)
    lab.way.change(rules=silent(OTHERS[0]))
    if asked_in_vain == "server":
        names.settings(OTHERS[0], FAR, options="timeout:1 ndots:5", search="a.test b.test")
    else:
        names.settings(options="timeout:1 ndots:5", search="a.test")
    found = names.read(names.url())
    assert "search_list" not in found and "slow_lookup" not in found
    text = found["resolver_timeout"]["text"]
    if asked_in_vain == "server":
        assert f"{OTHERS[0]} did not answer within 1 s, another did, for each of 3 names" in text
    else:
        assert "A or AAAA stayed without an answer" in text and "2 names were asked for" in text


# --- other C libraries ----------------------------------------------------------------------------


def test_another_c_library_has_no_time_outs_that_are_known(monkeypatch):
    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr("os.confstr", unknown)
    assert tool.c_library() == "" and tool.resolver_waits("", 2, 5, 2) == ()
    monkeypatch.delattr("os.confstr")
    assert tool.c_library() == ""
