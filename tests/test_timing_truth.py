"""The times are true: a server that waits in one phase makes that phase long, and no other."""

from __future__ import annotations

import contextlib
import socket
import ssl

import pytest

from checks import EDGE, PHASES, exact, parse_compact
from inside import only_step, tool
from relays import halving_relay
from servers import Reply, black_hole, dns_server, http_server, redirect, scripted, sending

DELAY = 0.6
"""Seconds; long against anything that a busy machine adds to a phase in which nothing happens."""


def check_delay(result, phase, step=0, delay=DELAY):
    """Prove that `phase` of a step took the delay and that no other did, but for what others took."""
    timing = result.json()["steps"][step]["timing"]
    assert timing[f"{phase}_ms"] >= delay * 1000 - EDGE, timing
    for other in PHASES:
        assert other == phase or timing[f"{other}_ms"] < (delay + result.kept) * 1000 - EDGE, timing
    assert timing["total_ms"] <= result.seconds * 1000
    return timing


# --- a delay is found where it is -----------------------------------------------------------------


def test_a_server_that_thinks_is_a_long_wait(run_tool):
    with http_server({"/": Reply(body=b"x", wait=DELAY)}) as server:
        timing = check_delay(run_tool("--json", "-", server.url()), "wait")
    assert timing["send_ms"] < DELAY * 1000 - EDGE, "without a body that takes next to nothing"


HEAD = "HTTP/1.1 200 OK\r\n"
EMPTY = "Content-Length: 0\r\n\r\n"
CHUNKED = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n"
HALVES = {  # what comes before the delay and after it, and the phase that is longer for it
    "head": (HEAD, EMPTY, "xfer"),  # the first byte is that of the response, not the end of its head
    "first byte": ("H", f"{HEAD[1:]}{EMPTY}", "xfer"),
    "body": (f"{HEAD}Content-Length: 5\r\n\r\nhe", "llo", "xfer"),
    "last chunk": (f"{CHUNKED}5\r\nhello\r\n", "0\r\n\r\n", "xfer"),
    "interim": ("HTTP/1.1 100 Soon\r\n\r\nHTTP/1.1 103 Soon\r\n\r\n", f"{HEAD}{EMPTY}", "wait"),
}


@pytest.mark.parametrize("name", HALVES)
def test_the_first_byte_of_the_answer_parts_wait_and_transfer(run_tool, name):
    first, second, phase = HALVES[name]

    def script(peer):
        peer.read_request()
        peer.send(first)
        peer.wait(DELAY)
        peer.send(second)

    with scripted(script) as server:
        check_delay(run_tool("--json", "-", server.url()), phase)


def test_a_body_of_known_length_ends_without_a_close(run_tool):
    """The server waits for the client to close, which is not to wait for the server."""

    def script(peer):
        peer.read_request()
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        peer.read_to_end()

    with scripted(script) as server:
        assert run_tool("--compact", "-m", "5", server.url()).code == 0


def test_over_tls_handshake_wait_and_transfer_are_told_apart(run_tool, tls, authority):
    routes = {"/wait": Reply(body=b"xx", wait=DELAY), "/xfer": Reply(body=b"xx", xfer=DELAY)}
    trust = ("--json", "-", "--cacert", authority.file)
    with http_server(routes, tls=tls) as server:
        for phase in ("wait", "xfer"):
            check_delay(run_tool(*trust, server.url(f"/{phase}")), phase)
    with http_server(tls=tls, tls_delay=DELAY) as server:
        check_delay(run_tool(*trust, server.url()), "tls")


@pytest.mark.needs("root", "linux")
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_record_is_read_when_the_last_of_it_has_come(run_tool, authority, version):
    """Nothing of a TLS record can be read before: not its beginning, and not the end of the body in it."""
    tls = authority.context("127.0.0.1")
    tls.maximum_version = ssl.TLSVersion[version]
    answer = "HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + "x" * 10_000
    with scripted(sending(answer), tls=tls) as server, halving_relay(server, DELAY, 4000) as relay:
        url = f"https://127.0.0.1:{relay.port}/"
        result = run_tool("--cacert", authority.file, "--json", "-", "--slo", "total=250", url)
    timing = only_step(result, code=4)["timing"]
    assert timing["wait_ms"] < DELAY * 1000 - EDGE
    assert timing["xfer_ms"] >= DELAY * 1000 - EDGE


@pytest.mark.needs("hypercorn")
def test_an_http2_frame_ends_with_the_record_that_holds_its_end(run_tool, http2, authority):
    with halving_relay(http2, 0.3, 4000) as relay:
        url = f"https://127.0.0.1:{relay.port}/?size=10000"
        step = only_step(run_tool("--cacert", authority.file, "--json", "-", url))
    assert step["network"]["http_version"] == "HTTP/2" and step["response"]["bytes"] == 10_000
    assert step["timing"]["xfer_ms"] >= 2 * 300 - EDGE, "the body came in two frames, each late"


def test_a_slow_resolver_is_a_long_dns(run_tool, server):
    with dns_server({"slow.test": ["127.0.0.1"]}, delay=DELAY) as names:
        url = server.url(host="slow.test")
        check_delay(run_tool("--json", "-", "-4", url, resolver=names.address), "dns")


@pytest.mark.needs("root", "linux")
def test_every_step_makes_its_own_lookup(run_tool):
    names = dns_server({"slow.test": ["127.0.0.1"]}, delay=DELAY)
    with http_server({"/": redirect("/end"), "/end": Reply()}) as server, names as resolver:
        url = server.url(host="slow.test")
        result = run_tool("-L", "--json", "-", "-4", url, resolver=resolver.address)
    check_delay(result, "dns", step=0)
    check_delay(result, "dns", step=1)
    assert server.accepted == 2


@pytest.mark.needs("linux")
def test_a_server_that_is_slow_to_accept_is_a_long_connect(run_tool):
    """The queue is full at first; the SYN is answered when the kernel sends it again, a second later."""
    with scripted(answer, accept_delay=DELAY) as server:
        check_delay(run_tool("--json", "-", server.url()), "connect")


def answer(peer):
    """Answer one request, if there is one."""
    if peer.read_request():
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")


def test_a_proxy_that_is_slow_to_connect_is_a_long_connect(run_tool, tls, authority):
    """A tunnel is set up in the phase connect; the handshake inside it is the target's alone."""

    def script(peer):
        assert peer.read_until(b"\r\n\r\n").startswith(b"CONNECT localhost:")
        peer.wait(DELAY)
        peer.send("HTTP/1.1 200 Connected\r\n\r\n")
        answer(peer.secure(tls))

    with scripted(script) as proxy:
        options = ["--cacert", authority.file, "-x", proxy.url(), "--json", "-"]
        result = run_tool(*options, "https://localhost:1/")
    timing = check_delay(result, "connect")
    assert timing["tls_ms"] > 0


def test_a_target_that_is_slow_to_shake_hands_in_a_tunnel_is_a_long_tls(run_tool, tls, authority):
    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send("HTTP/1.1 200 Connected\r\n\r\n")
        peer.wait(DELAY)
        answer(peer.secure(tls))

    with scripted(script) as proxy:
        options = ["--cacert", authority.file, "-x", proxy.url(), "--json", "-"]
        check_delay(run_tool(*options, "https://localhost:1/"), "tls")


def test_a_proxy_that_is_slow_to_shake_hands_is_a_long_connect(run_tool, tls, authority):
    with scripted(answer, tls=tls, tls_delay=DELAY) as proxy:
        options = ["--cacert", authority.file, "-x", proxy.url(), "--json", "-"]
        timing = check_delay(run_tool(*options, "http://far.test/"), "connect")
    assert timing["tls_ms"] == 0


def test_a_server_that_is_slow_to_take_the_upload_is_a_long_wait_and_a_long_send(run_tool, tmp_path):
    (tmp_path / "body").write_bytes(b"x" * 20_000_000)

    def script(peer):
        peer.sock.recv(1, socket.MSG_PEEK)  # the client has begun to send
        peer.wait(DELAY)
        answer(peer)

    with scripted(script) as server:
        result = run_tool("--json", "-", "-d", f"@{tmp_path / 'body'}", server.url())
    timing = result.json()["steps"][0]["timing"]
    assert timing["wait_ms"] >= timing["send_ms"] >= DELAY * 1000 - EDGE
    assert timing["connect_ms"] < DELAY * 1000


@pytest.mark.needs("h2")
@pytest.mark.parametrize("phase", ["wait", "xfer"])
def test_over_http2_wait_and_transfer_are_told_apart(run_tool, http2, authority, phase):
    """The settings that a server sends at once are not the first byte of the response."""
    url = http2.url(f"/?{phase}={DELAY}&size=10")
    result = run_tool("--json", "-", "--cacert", authority.file, url)
    check_delay(result, phase)
    assert result.json()["steps"][0]["response"]["http_version"] == "HTTP/2"


# --- phases that do not apply ---------------------------------------------------------------------


def test_only_a_name_takes_a_lookup_and_only_https_a_handshake(call_tool, server, tls, authority):
    def times(*words):
        timing = call_tool("--json", "-", *words).json()["steps"][0]["timing"]
        return timing["dns_ms"] > 0, timing["tls_ms"] > 0

    assert times(server.url()) == (False, False)
    mapping = f"a.test:{server.port}:127.0.0.1"
    assert times("--resolve", mapping, server.url(host="a.test")) == (False, False)
    assert times(server.url(host="localhost")) == (True, False)
    with http_server(tls=tls) as secure:
        assert times("--cacert", authority.file, secure.url()) == (False, True)


# --- every format says the same -------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/end", "/start", "/broken"])
def test_the_lines_and_the_json_of_one_run_agree(run_tool, tmp_path, path):
    def broken(request):
        raise ConnectionAbortedError  # the connection ends without an answer

    routes = {"/start": redirect("/end"), "/end": Reply(body=b"end", wait=0.01), "/broken": broken}
    with http_server(routes) as server:
        for mode in ("--metrics-only", "--compact"):
            result = run_tool("-L", mode, "--json", tmp_path / "out.json", server.url(path))
            steps = result.json(tmp_path / "out.json")["steps"]
            check_lines(result, mode, steps)


def check_lines(result, mode, steps):
    """Prove that the printed lines hold the times of `steps`, rounded to what each format shows."""
    lines = (
        result.metrics() if mode == "--metrics-only" else [parse_compact(x) for x in result.out.splitlines()]
    )
    assert len(lines) == len(steps)
    for line, step in zip(lines, steps):
        for key in ("dns", "connect", "tls", "ttfb", "total"):
            value = step["timing"][f"{key}_ms"]
            shown = line[key].replace("ms", "")
            if value is None:
                assert shown == "-"
            elif mode == "--metrics-only":
                assert exact(value) == exact(float(shown)) and "." in shown
            else:
                assert abs(float(shown) - value) <= 0.0501


# --- several addresses ----------------------------------------------------------------------------


@pytest.mark.needs("root", "linux", "ipv6")
def test_an_address_that_does_not_answer_costs_a_quarter_of_a_second(run_tool, server):
    with dns_server({"two.test": ["127.0.0.1", "::1"]}) as names, held_port("::1", server.port, black_hole):
        result = run_tool("--json", "-", server.url(host="two.test"), resolver=names.address)
    [step] = result.json()["steps"]
    assert result.code == 0
    assert step["network"]["addresses"] == ["::1", "127.0.0.1"]
    attempts = {attempt["ip"]: attempt["error"] for attempt in step["network"]["attempts"]}
    assert set(attempts) == {"::1", "127.0.0.1"}
    assert attempts["::1"]
    assert (step["network"]["ip"], attempts["127.0.0.1"]) == ("127.0.0.1", None)
    assert step["timing"]["connect_ms"] >= 250


@pytest.mark.needs("root", "linux", "ipv6")
def test_an_address_that_refuses_costs_next_to_nothing(run_tool, server):
    """A wait for it would take 250 ms each time, a busy machine some time or other."""
    times = []
    with dns_server({"two.test": ["127.0.0.1", "::1"]}) as names:
        for _ in range(4):
            result = run_tool("--json", "-", server.url(host="two.test"), resolver=names.address)
            [step] = result.json()["steps"]
            assert result.code == 0
            attempts = {attempt["ip"]: attempt["error"] for attempt in step["network"]["attempts"]}
            assert "refused" in attempts["::1"].lower()
            assert (step["network"]["ip"], attempts["127.0.0.1"]) == ("127.0.0.1", None)
            times.append(step["timing"]["connect_ms"])
    assert min(times) < 250


@contextlib.contextmanager
def held_port(host, port, hold):
    """Hold `port` of `host`; skip where somebody else has it."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(hold(host, port))
        except OSError as error:
            pytest.skip(f"port {port} of {host} is taken: {error}")
        yield


@pytest.mark.needs("root", "linux", "ipv6")
@pytest.mark.parametrize(("option", "host", "kind"), [("-4", "127.0.0.1", "A"), ("-6", "::1", "AAAA")])
def test_a_family_restricts_what_is_asked_of_the_resolver(run_tool, option, host, kind):
    with dns_server({"two.test": ["127.0.0.1", "::1"]}) as names, http_server(host=host) as server:
        url = server.url(host="two.test")
        result = run_tool(option, "--metrics-only", url, resolver=names.address)
    assert {asked for name, asked in names.questions if name == "two.test"} == {kind}
    assert [line["ip"] for line in result.metrics()] == [host]


@pytest.mark.needs("root", "linux")
@pytest.mark.parametrize(
    ("option", "address"), [("-4", "::1"), ("-6", "127.0.0.1"), ("-4", None), ("-6", None)]
)
def test_a_name_without_an_address_of_the_family_is_a_dns_failure(run_tool, option, address):
    with dns_server({"one.test": [address]} if address else {}) as names:
        result = run_tool(option, "--metrics-only", "http://one.test:1/", resolver=names.address)
    assert result.code == 75
    [line] = result.metrics()
    assert (line["error"], line["connect"], line["status"]) == ("dns", "-", "0")


# --- between an answer and the request that it lets go ---------------------------------------------


def test_a_program_that_wakes_up_late_does_not_blame_the_server():
    """The wait starts with the request: it bears half of a usual wake-up, however late this one was."""
    answered = 10**15
    for late_ns in (0, 1, 60_000, 150_000, 4_000_000, 90_000_000):
        starts = tool.start_of_wait(answered, answered + late_ns)
        assert answered <= starts <= answered + late_ns <= starts + 50_000


@pytest.mark.needs("h2")
@pytest.mark.parametrize("options", [(), ("--http1.1",)], ids=["HTTP/2", "HTTP/1.1"])
def test_the_end_of_a_handshake_leaves_together_with_the_request(run_tool, http2, authority, options):
    """The kernel would keep back what is to leave with the next send for 200 ms, if there were none."""
    phases = [float("inf")]
    while min(phases) >= 150 and len(phases) <= 10:
        result = run_tool("--json", "-", "--cacert", authority.file, *options, http2.url("/"))
        timing = result.json()["steps"][0]["timing"]
        phases.append(timing["tls_ms"] + timing["wait_ms"])
    assert min(phases) < 150
