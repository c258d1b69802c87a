"""Failures as a tired person meets them: what is said is true, whole, in plain words, and helps.

Each case provokes one failure, and is looked at in all the places where it shows: the drawn report with its
reason and its hint, and the JSON document with its times.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from checks import flat
from conftest import PATIENCE
from paths import going_first
from servers import SERVFAIL, black_hole, dns_server, http_server, refused_port, scripted

SOON = ("-m", "1")
"""The time of a run that is to end in a timeout, and before it to get as far as its peer lets it."""


def fail(run: Callable[..., Any], *arguments: Any, drawn: bool = False, **settings: Any) -> SimpleNamespace:
    """Run the program, prove that its last step failed, and that the report (a line, or the waterfall) says
    what the document says; return the error, and the step.
    """
    mode = [] if drawn else ["--compact"]
    with going_first() if SOON[0] in arguments else contextlib.nullcontext():
        result = run("--json", "-", *mode, *arguments, **settings)
    assert result.code == 75, (result.code, result.err)
    step = result.json()["steps"][-1]
    error = step["error"]
    report = flat(result.err)
    for text in (error["message"], error["kind"], *([error["hint"]] if drawn else [])):
        assert flat(escaped(text)) in report, report
    return SimpleNamespace(**error, step=step)


def escaped(text: str) -> str:
    """Write `text` as a report shows it: what is not printable as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def says(text: str, *words: str) -> None:
    """Prove that each of `words` (alternatives separated by |) is in `text`."""
    for word in words:
        assert re.search(word, text, re.IGNORECASE), f"{word!r} is not in {text!r}"


ZONE = {"four.test": ["127.0.0.1"], "six.test": ["::1"], "empty.test": [], "silent.test": None}
ZONE["broken.test"] = SERVFAIL

NAMES = {  # what is asked for -> the kind of failure, and what message and hint say
    "unknown": (["http://unknown.test/"], "dns", ["unknown.test", "not found"], ["spelling"]),
    "at-another-port": (
        "--resolve unknown.test:443:::1 --resolve a.test:8:::1 http://unknown.test/".split(),
        "dns",
        ["not found"],
        ["--resolve has an address only for its port 443\\. Check the spelling"],
    ),
    "without-address": (["http://empty.test/"], "dns", ["no address", "empty.test"], ["know the name"]),
    "no-ipv6": (["-6", "http://four.test/"], "dns", ["four.test", "IPv6"], ["-6"]),
    "no-ipv4": (["-4", "http://six.test/"], "dns", ["six.test", "IPv4"], ["-4"]),
    "broken": (
        ["http://broken.test/"],
        "dns",
        ["broken.test", "no name server"],
        [" ms. ", "nslookup broken"],
    ),
    "silent": (
        [*SOON, "http://silent.test/"],
        "timeout",
        ["silent.test", "1 s"],
        ["name server", "--resolve"],
    ),
}


@pytest.mark.parametrize(("arguments", "kind", "message", "hint"), NAMES.values(), ids=NAMES)
def test_a_name_without_a_fitting_address_is_a_failure_in_dns(run_tool, arguments, kind, message, hint):
    with dns_server(ZONE) as names:
        failed = fail(run_tool, *arguments, resolver=names.address)
    assert (failed.kind, failed.phase, failed.step["network"]["ip"]) == (kind, "dns", None)
    says(failed.message, *message)
    says(failed.hint, *hint)
    assert "reach" not in failed.message + failed.hint, "name servers that answered"


def test_a_name_server_that_nothing_listens_at_is_named_with_what_should(run_tool):
    with dns_server(ZONE) as names:
        address = names.address
    failed = fail(run_tool, "http://four.test/", resolver=f"{address}\nsearch a.test b.test")
    assert (failed.kind, failed.phase) == ("dns", "dns")
    says(failed.message, r"four\.test.*no name server gave a usable answer$")
    took = rf"{re.escape(address)}\), which took [0-9.]+ ms\. "
    says(failed.hint, rf"{took}.*systemd-resolved or dnsmasq.*nslookup four\.test")
    assert "not found" not in failed.message and "a.test" not in failed.hint
    series = run_tool("--count", 4, "--interval", 0, "http://four.test/", resolver=address)
    assert "answer (4 times)" in flat(series.out), "it is one reason, whatever time each took"


def test_a_lookup_that_failed_says_that_the_search_list_was_asked_for(run_tool):
    with dns_server(ZONE) as names:
        configured = f"{names.address}\nsearch c.test\nsearch a.test b.test"
        for name, listed in (("unknown", True), ("unknown.test", True), ("unknown.", False)):
            failed = fail(run_tool, f"http://{name}/", resolver=configured)
            told = f" may have tried {name}.a.test, {name}.b.test too (search in /etc/resolv.conf)."
            assert failed.hint.endswith(told) == listed
            assert ((f"{name}.b.test", "A") in names.questions) == listed
            assert f"name servers of this machine ({names.address})" in failed.hint


def test_a_refused_connection_says_where_and_what_to_check(call_tool):
    with refused_port() as port:
        failed = fail(call_tool, f"http://127.0.0.1:{port}/")
    assert (failed.kind, failed.phase) == ("network", "connect")
    says(failed.message, "127.0.0.1", str(port), "refused")
    says(failed.hint, "listens", "port")
    [attempt] = failed.step["network"]["attempts"]
    assert attempt["ip"] == "127.0.0.1" and "refused" in attempt["error"]
    says(fail(call_tool, "http://[fe80::1]/").hint, r"lacks its zone \(fe80::1%25eth0\)")


@pytest.mark.parametrize("ip", ["127.3.2.1", "0.0.0.0", pytest.param("::1", marks=pytest.mark.needs("ipv6"))])
def test_a_name_that_leads_to_this_machine_is_told(run_tool, ip):
    told = f"shop.test is {ip}, this machine itself"
    zone = {"shop.test": [ip], "my.localhost.test": [ip]}
    with dns_server(zone) as names, refused_port(ip) as port, http_server(host=ip) as server:
        failed = fail(run_tool, f"http://shop.test:{port}/", resolver=names.address)
        assert failed.hint == f"Look at /etc/hosts, and at who answers for that name: {told}."
        assert f"  Note         {told}" in run_tool(server.url("/", "shop.test"), resolver=names.address).out
        says(fail(run_tool, f"http://my.localhost.test:{port}/", resolver=names.address).hint, "listens")
    says(fail(run_tool, "--resolve", f"shop.test:1:{ip}", "http://shop.test:1/").hint, "listens")


def test_a_timeout_names_the_addresses_that_gave_no_answer(run_tool):
    """Three of four that were tried in that second."""
    zone = {"four.test": [f"127.0.0.{last}" for last in range(1, 5)]}
    with dns_server(zone) as names, black_hole("0.0.0.0") as port:
        failed = fail(run_tool, *SOON, f"http://four.test:{port}/", resolver=names.address, drawn=True)
    assert (failed.kind, failed.phase) == ("timeout", "connect")
    assert {each["error"] for each in failed.step["network"]["attempts"]} == {"no answer"}
    tried = r"no connection to four\.test \(127[0-9.]+, 127[0-9.]+, 127[0-9.]+, …\) port "
    says(failed.message, rf"^{tried}{port} within 1")
    says(failed.hint, "firewall|drop")


ROUTES = {
    "none": ("true", "network is unreachable", "route|network"),
    "prohibit": ("ip route add prohibit 192.0.2.0/24", "permission denied", "firewall|policy|route"),
    "blackhole": ("ip route add blackhole 192.0.2.0/24", "192.0.2.1", "route|address"),
}


@pytest.mark.needs("linux")
@pytest.mark.parametrize(("script", "message", "hint"), ROUTES.values(), ids=ROUTES)
def test_a_host_out_of_reach_is_a_network_failure_that_points_at_the_route(run_tool, script, message, hint):
    alone = ["unshare", "--net", "sh", "-c", f'ip link set lo up && {script} && exec "$@"', "sh"]
    possible = shutil.which("unshare") and shutil.which("ip")
    if not possible or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make a network of its own, and iproute2")
    failed = fail(run_tool, "http://192.0.2.1/", within=alone)
    assert (failed.kind, failed.phase) == ("network", "connect")
    says(failed.message, message)
    says(failed.hint, hint)
    assert "zone" not in failed.message, "the zone of an address that has none"


def test_a_header_that_comes_too_slowly_is_no_large_body(call_tool):
    def script(peer):
        peer.read_request()
        peer.send("HTTP/1.1 200 OK\r\nServer: ")
        peer.drip(b"x" * 100, 0.1)

    with scripted(script) as server:
        failed = fail(call_tool, *SOON, server.url())
    says(failed.message, "not even its header is whole")
    says(failed.hint, "^A large answer, a slow path or a stalled server")


@pytest.mark.parametrize("then", ["close", "reset"])
def test_what_speaks_another_protocol_hangs_up_at_once(call_tool, then):
    """A balancer whose server is gone, or whose time-out is over, hangs up late. Where plain HTTP goes to a
    proxy, that one may be for SOCKS, or for TLS.
    """

    def hang_up(after):
        def script(peer):
            peer.read_request()
            peer.wait(after)
            if then == "reset":
                peer.reset()

        return scripted(script)

    with hang_up(0.6) as late, hang_up(0) as proxy:
        hint = fail(call_tool, late.url()).hint
        assert "look at its log" in hint and "TLS" not in hint
        hint = fail(call_tool, "-x", f"http://{proxy.authority}", "http://127.0.0.1:9/").hint
        assert "it is no such proxy" in hint and "TLS" not in hint


@pytest.mark.parametrize(("then", "kind"), [("reset", "network"), ("hang", "timeout")])
def test_an_upload_that_is_not_taken_says_that_the_request_was_not_sent_whole(call_tool, then, kind):
    def script(peer):
        peer.read_until(b"\r\n\r\n")
        if then == "reset":
            peer.reset()
        peer.wait(PATIENCE)

    words = (*(SOON if then == "hang" else ()), "-d", "x" * 20_000_000)
    with scripted(script) as server:
        failed = fail(call_tool, *words, server.url())
    assert (failed.kind, failed.phase) == (kind, "wait")
    says(failed.message, "request", "sent|sending")
    assert "does not answer" not in failed.hint, "it cannot answer a request that it does not take"


@pytest.mark.parametrize(
    "road", ["http", pytest.param("socks5h", marks=pytest.mark.needs("socks")), "nowhere"]
)
def test_a_proxy_that_does_not_answer_is_named_in_the_timeout(call_tool, road):
    with scripted(lambda peer: peer.read_to_end()) as server, black_hole() as port:
        proxy = f"http://127.0.0.1:{port}" if road == "nowhere" else f"{road}://{server.authority}"
        failed = fail(call_tool, *SOON, "-x", proxy, "https://a.test/")
    assert (failed.kind, failed.phase) == ("timeout", "connect")
    says(failed.message, "proxy", "1 s")
    assert failed.hint.startswith("Check that it is such a proxy, and look at its log") or road == "nowhere"
    assert failed.step["findings"] == [], "what it says is said by Why and Try"
