"""The times are true: a server that waits in one phase makes that phase long.

The phases of each document that is read add up to its total, so that no other phase has the delay too.
"""

from __future__ import annotations

import ssl

import pytest

from checks import EDGE
from inside import only_step
from laboratory import on_a_path
from paths import Rule, first
from relays import halving_relay
from servers import Reply, dns_server, http_server, redirect, scripted, sending

DELAY = 0.3


def check_delay(result, phase, step=0):
    """Prove that `phase` of a step took the delay; return the times of the step.

    Who reads two parts of an answer at once knows when the last of it came: such a run goes first.
    """
    timing = result.json()["steps"][step]["timing"]
    assert timing[f"{phase}_ms"] >= DELAY * 1000 - EDGE, timing
    assert timing["total_ms"] <= result.seconds * 1000
    return timing


OK = "HTTP/1.1 200 OK\r\n"
EMPTY = "Content-Length: 0\r\n\r\n"
CHUNKED = f"{OK}Transfer-Encoding: chunked\r\n\r\n"
HALVES = {  # what comes before the delay and after it, and the phase that is longer for it
    "answer": ("", f"{OK}{EMPTY}", "wait"),
    "first byte": ("H", f"{OK[1:]}{EMPTY}", "xfer"),
    "body": (f"{OK}Content-Length: 5\r\n\r\nhe", "llo", "xfer"),
    "last chunk": (f"{CHUNKED}5\r\nhello\r\n", "0\r\n\r\n", "xfer"),
    "interim": ("HTTP/1.1 100 Soon\r\n\r\nHTTP/1.1 103 Soon\r\n\r\n", f"{OK}{EMPTY}", "wait"),
}


@pytest.mark.parametrize(("before", "after", "phase"), HALVES.values(), ids=HALVES)
def test_the_first_byte_of_the_answer_parts_wait_and_transfer(run_tool, before, after, phase):
    def script(peer):
        peer.read_request()
        peer.send(before)
        peer.wait(DELAY)
        peer.send(after)

    with scripted(script) as server:
        timing = check_delay(run_tool("--json", "-", server.url(), within=first()), phase)
    if phase == "wait":
        assert timing["send_ms"] < timing["wait_ms"], "sending ends with the request, not with the answer"


def test_over_tls_handshake_wait_and_transfer_are_told_apart(run_tool, tls, authority):
    routes = {"/wait": Reply(body=b"xx", wait=DELAY), "/xfer": Reply(body=b"xx", xfer=DELAY)}
    trust = ("--json", "-", "--cacert", authority.file)
    with http_server(routes, tls=tls) as server:
        for phase in ("wait", "xfer"):
            check_delay(run_tool(*trust, server.url(f"/{phase}"), within=first()), phase)
    with http_server(tls=tls, tls_delay=DELAY) as server:
        check_delay(run_tool(*trust, server.url()), "tls")


def test_a_record_is_read_when_the_last_of_it_has_come(run_tool, tls, authority):
    """Nothing of a TLS record can be read before: not its beginning, and not the end of the body in it."""
    answer = f"{OK}Content-Length: 10000\r\n\r\n" + "x" * 10_000
    with scripted(sending(answer), tls=tls) as server, halving_relay(server, DELAY, 4000) as relay:
        url = f"https://127.0.0.1:{relay.port}/"
        check_delay(run_tool("--cacert", authority.file, "--json", "-", url, within=first()), "xfer")


@pytest.mark.needs("hypercorn")
def test_an_http2_frame_ends_with_the_record_that_holds_its_end(run_tool, http2, authority):
    with halving_relay(http2, DELAY, 4000) as relay:
        url = f"https://127.0.0.1:{relay.port}/?size=10000"
        step = only_step(run_tool("--cacert", authority.file, "--json", "-", url, within=first()))
    assert step["network"]["http_version"] == "HTTP/2" and step["response"]["bytes"] == 10_000
    assert step["timing"]["xfer_ms"] >= 2 * DELAY * 1000 - EDGE, "the body came in two frames, each late"


def test_every_step_makes_its_own_lookup(run_tool):
    names = dns_server({"slow.test": ["127.0.0.1"]}, delay=DELAY)
    with http_server({"/": redirect("/end"), "/end": Reply()}) as server, names as resolver:
        url = server.url(host="slow.test")
        result = run_tool("-L", "--json", "-", "-4", url, resolver=resolver.address)
    check_delay(result, "dns", step=0)
    check_delay(result, "dns", step=1)
    assert server.accepted == 2


@on_a_path
@pytest.mark.parametrize(("secure", "nth"), [(False, 2), (True, 7)], ids=["http", "https"])
def test_what_comes_behind_a_late_segment_has_not_come_before_it(lab, secure, nth):
    """One flight comes at once. What is behind the late segment waits here, stamped with its own arrival."""
    tls = lab.tls(version=ssl.TLSVersion.TLSv1_2) if secure else None
    url = lab.start().http(("/", Reply(body=b"x" * 10_000)), tls=tls)
    lab.way.change(rules=[Rule("down", "data", nth, "late", 0.03)])
    timing = lab.ask(url + "/")["steps"][0]["timing"]
    assert 20 <= timing["xfer_ms"] < 40, timing


@pytest.mark.needs("h2")
@pytest.mark.parametrize("options", [(), ("--http1.1",)], ids=["HTTP/2", "HTTP/1.1"])
def test_the_end_of_a_handshake_leaves_together_with_the_request(run_tool, http2, authority, options):
    """If it did not, the kernel would keep it back for 200 ms each time, a busy machine now and then."""

    def both_phases():
        result = run_tool("--json", "-", "--cacert", authority.file, *options, http2.url("/"))
        timing = result.json()["steps"][0]["timing"]
        return timing["tls_ms"] + timing["wait_ms"]

    assert any(both_phases() < 150 for _ in range(5))
