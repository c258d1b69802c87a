"""Proxies: every road to every kind of target, whose time is whose, credentials, refusals, environment."""

from __future__ import annotations

import contextlib

import pytest

from checks import check_usage_error
from conftest import PATIENCE
from inside import failure, here, only_step, tool
from paths import going_first
from relays import relay_proxy, socks_request
from servers import OK, Reply, dns_server, http_server, redirect, refused_port, scripted, sending

pytestmark = pytest.mark.needs("socks")


# --- every road, through programs nobody here wrote -----------------------------------------------


@pytest.fixture
def roads(proxy, proxy_over_tls, socks5):
    """The proxies of this session by kind: what `--proxy` is to be given."""
    by_name = socks5.by_login.replace("socks5:", "socks5h:")
    return {
        "http": proxy.by_login,
        "https": proxy_over_tls.by_login,
        "socks5": socks5.by_login,
        "socks5h": by_name,
    }


@pytest.fixture(scope="module")
def targets(http2, tls):
    """An http server, an https server and the https server that speaks HTTP/2, by name."""
    with http_server() as plain, http_server(tls=tls) as secure:
        yield {"http": plain.url, "https": secure.url, "http2": http2.url}


ROADS = """
http to http, http to https, http to http2, https to http, https to http2, socks5 to http, socks5 to https,
socks5h to http2
"""


@pytest.mark.needs("h2")
@pytest.mark.parametrize("way", ROADS.replace("\n", " ").strip().split(", "))
def test_every_road_leads_to_every_target(roads, targets, authority, way):
    road, target = way.split(" to ")
    step = only_step(here("--cacert", authority.file, "-x", roads[road], targets[target](host="127.0.0.1")))
    network, timing = step["network"], step["timing"]
    assert (step["response"]["status"], step["response"]["bytes"]) == (200, 6)
    assert step["response"]["http_version"] == ("HTTP/2" if target == "http2" else "HTTP/1.1")
    assert (network["tls_version"] is None) == (target == "http")
    assert (timing["tls_ms"] > 0) == (target != "http")
    shown = roads[road].replace("user:secret@", "")
    assert (network["proxy_url"], network["proxy_source"]) == (shown, "--proxy")
    assert network["port"] == int(shown.rpartition(":")[2])


# --- whose time is whose --------------------------------------------------------------------------

DELAY = 0.3


DELAYS = """
http to https: connect, http to https: tls, http to http: wait, https to http: connect, https to https: tls,
https to https: xfer, socks5 to http: connect, socks5 to https: tls, socks5 to https: wait
"""


@pytest.mark.parametrize("way", DELAYS.replace("\n", " ").strip().split(", "))
def test_a_delay_is_found_in_its_phase_on_every_road(authority, tls, way):
    """The delay is made in this phase alone; a busy machine may see its beginning late, by less than half."""
    road, target, phase = way.replace(" to ", ":").replace(" ", "").split(":")
    late = {**dict.fromkeys(tool.PHASES, 0.0), phase: DELAY}
    reply = Reply(body=b"hello", wait=late["wait"], xfer=late["xfer"])
    secured = tls if target == "https" else None
    with (
        http_server({"/": reply}, tls=secured, tls_delay=late["tls"]) as server,
        relay_proxy(road, server, late["connect"], tls if road == "https" else None) as (proxy, _),
        going_first(),
    ):
        timing = only_step(here("--cacert", authority.file, "-x", proxy, server.url()))["timing"]
    assert timing[f"{phase}_ms"] >= DELAY * 500, timing
    assert max(tool.PHASES, key=lambda each: timing[f"{each}_ms"]) == phase, timing


@pytest.mark.needs("root", "linux")
@pytest.mark.parametrize("road", ["socks5", "http", "socks5h"])
@pytest.mark.parametrize("slow", ["target", "proxy"])
def test_a_slow_lookup_is_a_long_dns_where_the_name_is_looked_up_here(run_tool, server, road, slow):
    looked_up = slow == "proxy" or road == "socks5"
    zone = {"slow.test": ["127.0.0.1"]}
    with relay_proxy(road, server) as (proxy, asked), dns_server(zone, delay=DELAY) as names:
        way = proxy.replace("127.0.0.1", "slow.test") if slow == "proxy" else proxy
        url = server.url(host="slow.test" if slow == "target" else None)
        timing = only_step(run_tool("-4", "--json", "-", "-x", way, url, resolver=names.address))["timing"]
        if road == "socks5":  # of a name that is not there no proxy is to blame
            failure(run_tool("--json", "-", "-x", way, "http://no.test/", resolver=names.address), "dns")
    assert timing["dns_ms"] >= DELAY * 1000 if looked_up else timing["dns_ms"] == 0
    assert (names.questions != []) is looked_up and ("slow.test" in repr(asked)) is not looked_up


# --- what a proxy is asked for --------------------------------------------------------------------


def test_a_plain_target_is_asked_for_in_absolute_form_without_a_default_port(server):
    with relay_proxy("http", server) as (proxy, asked):
        only_step(here("-x", proxy, server.url("/x?y=1#z", host="a.test")))
        only_step(here("-x", proxy, "http://a.test:80/"))
    lines = asked[0].decode().split("\r\n")
    assert lines[0] == f"GET http://a.test:{server.port}/x?y=1 HTTP/1.1"
    assert f"Host: a.test:{server.port}" in lines
    assert asked[1].startswith(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n")


def test_a_tunnel_carries_none_of_the_request_s_headers(tls, authority):
    fields = ["Authorization: Bearer inner", "Cookie: inner", "X-Inner: inner"]
    secrets = [*(word for field in fields for word in ("-H", field)), "-d", "inner"]
    with http_server(tls=tls) as server, relay_proxy("http", server) as (proxy, asked):
        only_step(here("-x", proxy, "--cacert", authority.file, *secrets, server.url(host="localhost")))
        here("-x", proxy, "-k", "https://münchen.test/")
    assert asked[0].startswith(f"CONNECT localhost:{server.port} HTTP/1.1\r\n".encode())
    assert f"\r\nHost: localhost:{server.port}\r\n".encode() in asked[0]
    assert b"inner" not in asked[0]
    name = b"xn--mnchen-3ya.test:443"
    assert asked[1].startswith(b"CONNECT " + name + b" HTTP/1.1\r\nHost: " + name + b"\r\n")
    assert server.requests[0].target == "/"


def test_a_socks_proxy_is_asked_for_the_name_or_for_the_address(server):
    far = ["--resolve", "far.test:81:127.0.0.7"]
    for road, words, host, seen in (
        ("socks5", [], "[::1]", "::1"),
        ("socks5", far, "far.test", "127.0.0.7"),
        ("socks5h", [], "far.test", "far.test"),
        ("socks5h", [], "münchen.test", "xn--mnchen-3ya.test"),
    ):
        with relay_proxy(road, server) as (proxy, asked):
            step = only_step(here("-x", proxy, *words, f"http://{host}:81/"))
        assert asked == [(seen, 81)]
        assert step["timing"]["dns_ms"] == 0


# --- credentials ----------------------------------------------------------------------------------


def test_a_missing_or_wrong_password_is_a_refusal_by_the_proxy(proxy, socks5):
    for program, words in ((proxy, "407"), (socks5, "credentials")):
        for userinfo in ("", "user:wrong@"):
            url = program.url("").replace("://", f"://{userinfo}")
            error = failure(here("-x", url, "https://127.0.0.1:1/"), "proxy", "connect")["error"]
            assert words in error["message"] and error["hint"]


def test_a_407_to_a_plain_request_is_the_response(proxy, server):
    """And the program says whose it is, and what to try, as of one to CONNECT."""
    result = here("-x", proxy.url(""), server.url())
    assert (only_step(result)["response"]["status"], server.accepted) == (407, 0)
    result.warned(
        "refused the request (407). Give the proxy a user name and password, in its URL: http://user:pass"
    )


@pytest.mark.parametrize(
    ("road", "target"), [("http", "http"), ("http", "https"), ("socks5", "http"), ("direct", "http")]
)
def test_a_given_proxy_authorization_goes_to_a_proxy_alone(authority, tls, road, target):
    """Direct, in a tunnel and through SOCKS there is nobody whom it is for. It goes in place of a login."""
    words, asked = ["--cacert", authority.file, "-H", "proxy-authorization: Basic given"], []
    with http_server(tls=tls if target == "https" else None) as server, contextlib.ExitStack() as held:
        if road != "direct":
            proxy, asked = held.enter_context(relay_proxy(road, server))
            words += ["-x", proxy.replace("http://", "http://user:pw@")]
        only_step(here(*words, server.url()))
        [request] = server.requests
    if road == "http":
        [head] = asked
        assert head.lower().count(b"\r\nproxy-authorization: ") == 1
        assert b"\r\nproxy-authorization: basic given\r\n" in head.lower()
    if (road, target) != ("http", "http"):
        assert request.values("Proxy-Authorization") == []


# --- refusals -------------------------------------------------------------------------------------


def test_a_proxy_that_wants_another_login_than_basic_is_not_to_be_given_a_password():
    for logins, hint in (
        (["NTLM", "basic realm=x"], "Give the proxy a user name"),
        (["NTLM", "Negotiate"], "knows only Basic"),
    ):
        fields = "".join(f"Proxy-Authenticate: {login}\r\n" for login in logins)
        with scripted(sending(f"HTTP/1.1 407 No\r\nContent-Length: 0\r\n{fields}\r\n")) as proxy:
            error = failure(here("-x", proxy.url(""), "https://a.test/"), "proxy", "connect")["error"]
            assert hint in " ".join(here("-x", proxy.url(""), "http://a.test/").err.split())
        assert hint in error["hint"]


@pytest.mark.parametrize(
    "answer",
    [
        "HTTP/1.0 200 Connected\r\nProxy-Agent: x\r\n\r\n",
        "HTTP/1.1 204\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_a_tunnel_is_open_after(authority, tls, answer):
    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send(answer)
        inner = peer.secure(tls)
        inner.read_request()
        inner.send(OK)

    with scripted(script) as proxy:
        step = only_step(here("--cacert", authority.file, "-x", proxy.url(""), "https://localhost/"))
    assert (step["response"]["bytes"], step["response"]["interim"]) == (2, [])


def test_a_proxy_that_cannot_be_reached_is_a_proxy_failure():
    for road in ("http", "socks5"):
        with refused_port() as port:
            step = failure(here("-x", f"{road}://127.0.0.1:{port}", "http://127.0.0.2/"), "proxy", "connect")
        assert "refused" in step["error"]["message"] and f"127.0.0.1:{port}" in step["error"]["message"]
        assert [attempt["ip"] for attempt in step["network"]["attempts"]] == ["127.0.0.1"]
    step = failure(here("-x", "http://no.such.invalid:1", "https://127.0.0.1/"), "proxy", "dns")
    assert "no.such.invalid" in step["error"]["message"]


def test_the_certificate_and_the_name_of_an_https_proxy_are_verified(server, authority, tls):
    with relay_proxy("https", server, 0.0, tls) as (proxy, _):
        error = failure(here("-x", proxy, server.url()), "proxy", "connect")["error"]
        assert "issuer" in error["message"]
        for trust in (["-k"], ["--cacert", authority.file]):
            assert only_step(here(*trust, "-x", proxy, server.url()))["response"]["status"] == 200
    with relay_proxy("https", server, 0.0, authority.context("other.test")) as (proxy, _):
        trust = ("--cacert", authority.file)
        error = failure(here(*trust, "-x", proxy, "https://a.test/"), "proxy", "connect")["error"]
        assert "no certificate for 127.0.0.1" in error["message"]
        advice = error["hint"].partition(": ")[2].partition(". ")[0]
        advised = advice.replace(" with", "").replace("NAME", "other.test").split()
        assert only_step(here(*trust, *advised, server.url()))["response"]["status"] == 200


@pytest.mark.needs("ipv6")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "it does not speak TLS here"),
        ("", "it closed the connection during the TLS handshake"),
    ],
)
def test_an_https_proxy_that_speaks_plain_http_is_a_proxy_failure(server, answer, words):
    def script(peer):
        peer.read_exactly(20)
        peer.send(answer)
        peer.end()
        peer.read_to_end()

    with scripted(script, host="::1") as proxy:
        result = here("-m", "5", "-x", f"https://[::1]:{proxy.port}", server.url())
    error = failure(result, "proxy", "connect")["error"]
    assert error["message"] == f"the proxy https://[::1]:{proxy.port} cannot be used: {words}"
    assert error["hint"].endswith(f" give it as -x http://[::1]:{proxy.port}.")


def test_a_bad_certificate_of_the_target_in_a_tunnel_is_a_tls_failure(authority, tls):
    target = http_server(tls=authority.context("other.test"))
    with target as server, relay_proxy("https", server, 0.0, tls) as (proxy, _):
        step = failure(here("--cacert", authority.file, "-x", proxy, server.url()), "tls", "tls")
    assert step["network"]["cert_sans"] == ["other.test"] and step["timing"]["connect_ms"] > 0


# --- SOCKS replies --------------------------------------------------------------------------------

REPLIES = ["general", "not allowed", "network unreachable", "host unreachable", "refused", "ttl"]
REPLIES += ["command not supported", "address type", "", ""]  # from 1 on; nobody has a word for 9 and 10


def test_a_socks_reply_is_a_refusal_in_its_own_words():
    def script(peer):
        socks_request(peer)
        peer.send(bytes([5, code, 0, 1, 0, 0, 0, 0, 0, 0]))

    for code, words in enumerate(REPLIES, 1):
        with scripted(script) as proxy:
            result = here("-x", f"socks5h://127.0.0.1:{proxy.port}", "http://127.0.0.1:1/")
        error = failure(result, "proxy", "connect")["error"]
        assert words in error["message"].lower() and str(code) in error["message"]
        assert "-4" not in error["hint"], "the proxy looks it up"
    with scripted(script) as proxy:
        result = here("-x", f"socks5://127.0.0.1:{proxy.port}", "http://localhost:1/")
    assert " socks5h for the name" in failure(result, "proxy", "connect")["error"]["hint"]


# --- a yes, and then nothing ----------------------------------------------------------------------

SILENT = [  # the road, the target's scheme, what follows the yes, how the message begins, the kind
    ("greeted", "http", "end", "connection closed unexpectedly during the negotiation", "proxy"),
    ("greeted", "http", "reset", "connection reset by peer during the negotiation", "proxy"),
    ("http", "https", "end", "the connection was closed during the TLS handshake", "tls"),
    ("http", "https", "reset", "connection reset by peer during the TLS handshake", "network"),
    ("http", "https", "hold", "the TLS handshake was not finished within 1 s", "timeout"),
    ("socks5", "https", "end", "the connection was closed during the TLS handshake", "tls"),
    ("socks5", "https", "hold", "the TLS handshake was not finished within 1 s", "timeout"),
    ("socks5", "http", "end", "the connection was closed without an answer", "protocol"),
    ("socks5", "http", "reset", "connection reset by peer before any answer came", "network"),
    ("socks5", "http", "hold", "no response came within 1 s", "timeout"),
]


@pytest.mark.parametrize(("road", "scheme", "then", "begins", "kind"), SILENT)
def test_a_proxy_that_accepts_may_not_have_reached_the_target(road, scheme, then, begins, kind):
    """OpenSSH's -D answers the greeting, then closes when the target refuses; others say yes at once."""

    def script(peer):
        if road == "http":
            peer.read_until(b"\r\n\r\n")
            peer.send("HTTP/1.1 200 Connected\r\n\r\n")
        else:
            socks_request(peer)
        if road == "socks5":
            peer.send(b"\5\0\0\1\x7f\0\0\1\0\x50")
        if road != "greeted":
            peer.sock.recv(65536)
        if then == "hold":
            peer.wait(PATIENCE)
        elif then == "reset":
            peer.reset()

    with scripted(script) as server, going_first():
        way = f"{road.replace('greeted', 'socks5')}://127.0.0.1:{server.port}"
        error = failure(here("-m", "1", "-x", way, f"{scheme}://127.0.0.9/"), kind)["error"]
    doubt = f"the proxy {way} accepted, and may not have reached the target"
    assert error["message"] == f"{begins}: {doubt}"
    assert "the proxy's log" in error["hint"] and "such a proxy" not in error["hint"]


# --- the environment ------------------------------------------------------------------------------


def test_the_option_wins_over_the_environment_and_no_proxy(server):
    with relay_proxy("http", server) as (proxy, asked):
        env = {"http_proxy": "http://127.0.0.1:1", "no_proxy": "*"}
        network = only_step(here("--proxy", proxy, server.url(), env=env))["network"]
    assert (network["proxy_url"], network["proxy_source"], len(asked)) == (proxy, "--proxy", 1)


def test_a_variable_that_names_no_usable_proxy_counts_where_a_step_needs_it(run_tool):
    """A usage error makes no request; once one was made its report is due."""
    for proxy, said in (("gopher://x", "expected a proxy"), ("socks5://x", "a SOCKS proxy needs PySocks")):
        env = {"ALL_PROXY": proxy, "NO_PROXY": "127.0.0.1"}
        with http_server({"/": redirect("http://b.test/")}) as chain:
            assert run_tool(chain.url(), env=env, without=("socks",)).code == 0
            result = run_tool("-L", "--json", "-", chain.url(), env=env, without=("socks",))
        first, second = result.json()["steps"]
        assert (result.code, first["response"]["status"], second["error"]["kind"]) == (75, 302, "proxy")
        assert second["error"]["message"].startswith(f"ALL_PROXY: {said}")
        check_usage_error(run_tool("http://b.test/", env=env, without=("socks",)), said)


def test_each_step_of_a_chain_chooses_its_own_road(tls, authority):
    """From plain http through a proxy to https without one."""
    with contextlib.ExitStack() as held:
        secure = held.enter_context(http_server(tls=tls))
        plain = held.enter_context(http_server({"/": redirect(secure.url(host="localhost"))}))
        proxy, asked = held.enter_context(relay_proxy("http", plain))
        env = {"http_proxy": proxy, "https_proxy": "http://127.0.0.1:1", "no_proxy": "localhost"}
        result = here("-4", "-L", "--cacert", authority.file, plain.url(host="far.test"), env=env)
    sources = [step["network"]["proxy_source"] for step in result.json()["steps"]]
    assert (result.code, sources, len(asked)) == (0, ["http_proxy", "NO_PROXY"], 1)


GIVEN = b"proxy-authorization: basic given"


def test_a_given_proxy_authorization_is_for_the_proxy_of_the_first_step_alone(tls, authority):
    """It is repeated where that proxy comes again, and no other sees it, whatever the origin."""
    with contextlib.ExitStack() as held:
        routes = {"/": lambda request: redirect(secure.url(host="localhost")), "/back": Reply()}
        plain = held.enter_context(http_server(routes))
        back = redirect(plain.url("/back", host="back.test"))
        secure = held.enter_context(http_server({"/": back}, tls=tls))
        other, asked_other = held.enter_context(relay_proxy("http", secure))
        relay, asked = held.enter_context(relay_proxy("http", plain))
        env = {"http_proxy": relay, "https_proxy": other}
        words = ["-4", "-L", "--cacert", authority.file, "-H", "Proxy-Authorization: Basic given"]
        assert here(*words, plain.url(host="far.test"), env=env).code == 0
    assert [GIVEN in head.lower() for head in asked] == [True, True]
    assert asked_other and not any(GIVEN in head.lower() for head in asked_other)
