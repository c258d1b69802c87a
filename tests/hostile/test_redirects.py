"""Redirects that lead nowhere, elsewhere or round in circles, and what must not travel with them."""

from __future__ import annotations

import json

import pytest

from checks import check_document, parse_metrics
from hostile.runner import STYLES, Case, Script, check_manners
from servers import Peer, Reply, Request, http_server, redirect, scripted

FINAL = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"


def moved(*lines: bytes, status: int = 302, body: bytes = b"Content-Length: 0\r\n\r\n") -> bytes:
    """Make a redirect of header lines."""
    return b"HTTP/1.1 %d Moved\r\n" % status + b"".join(line + b"\r\n" for line in lines) + body


def chain(*responses: bytes) -> Script:
    """Answer the first connection with the first response, and so on; the last one again and again.

    %d stands for the server's port.
    """

    def script(peer: Peer) -> None:
        peer.read_request()
        response = responses[min(peer.number, len(responses) - 1)]
        peer.send(response.replace(b"%d", b"%d" % peer.sock.getsockname()[1]))

    return script


def to_no_tls(peer: Peer) -> None:
    """Redirect to an https URL, where garbage answers the ClientHello."""
    if peer.number == 0:
        chain(moved(b"Location: https://127.0.0.1:%d/"))(peer)
    else:
        peer.sock.recv(4096)
        peer.send(FINAL)


def follow(name: str, script: Script, kind: str | None = None, **expected: object) -> Case:
    return Case(name, script, kind, **{"options": ("-L",), "steps": 2, **expected})


DEAD_ENDS = [
    follow(f"the Location {text[:40]!r}", chain(moved(b"Location: " + text)), "redirect", code=75)
    for text in (
        b"ftp://a.test/",
        b"javascript:alert(1)",
        b"data:text/plain,x",
        b"file:///etc/passwd",
        b"mailto:a@b.test",
        b"gopher://127.0.0.1:%d/",
        b"http:",
        b"http://",
        b"http:///",
        b"\x01//[",
        b"\x0c//[::1\t]",
        b"http://:80/",
        b"http://?x",
        b"//",
        b"//:80",
        b"http://a.test:0/",
        b"http://a.test:65536/",
        b"http://a.test:-1/",
        b"http://a.test:+80/",
        b"http://a.test:8_0/",
        b"http://a.test:\xef\xbc\x98\xef\xbc\x90/",
        b"http://a.test:80:80/",
        b"http://a.test:" + b"9" * 5000 + b"/",
        b"http://[::1/",
        b"http://[::g]/",
        b"http://[]/",
        b"http://[::1]x/",
        b"http://[v1.x]/",
        b"http://::1/",
        b"http://a b/",
        b"http://a..test/",
        b"http://.test/",
        b"http://" + b"a" * 64 + b".test/",
        b"http://" + b"a." * 200 + b"test/",
        b"http://" + b"a" * 200_000 + b"/",
        b"http://a%2500b/",
        b"http://<b>/",
        b"http://a.test\x1b[2J/",
        b"/\x1b[2J",
        b"/\x07\x9b\x7f",
        b"/a\tb",
        b"http://xn--\xc3\xa4/",
        b"http://user:pass word@/",
        b"/\\a.test/",
        b"\\" * 200_000,
        b"http://\\" + b"\\" * 200_000,
        "http://a\u200db.test/".encode(),
        "http://{}/".format("ü" * 300).encode(),
        "http://{}.test/".format("\u0628\u200c" * 120).encode(),
    )
]

ROUNDABOUT = [
    follow(f"the Location {text[:40]!r}", chain(moved(b"Location: " + text), FINAL), status=200, size=6)
    for text in (
        b"/",
        b"#f",
        b"?q",
        b"x",
        b"../../../..",
        b"/.." * 80_000,
        b"..//..//" * 30_000,
        b"?",
        b"//127.0.0.1:%d\\@a.test/",
        b"/a b",
        b"  /x  ",
        b"/\xc3\xa4",
        b"/\xff\xfe",
        b"/%251b[2J",
        b"/%25",
        b"//127.0.0.1:%d/x",
        b"http:///127.0.0.1:%d/x",
        b"HTTP://127.0.0.1:%d",
        b"http://127.0.0.1:%d/?\xe2\x80\xae",
        b"http://user:password@127.0.0.1:%d/",
        b"http://@127.0.0.1:%d/",
        b"http://localhost:%d/",
        b"http://[::ffff:127.0.0.1]:%d/",
        b"http://127.0.0.1:%d#" + b"f" * 9000,
        b"/" + b"x" * 100_000,
        b"/?" + b"\xff" * 30_000,
        b"/[red]x[/red]",
    )
]

FINALS = [
    follow(f"a {status} with a Location", chain(moved(b"Location: /", status=status)), status=status, steps=1)
    for status in (201, 300, 304, 305, 306, 309, 399)
] + [
    follow("a redirect without Location", chain(moved()), status=302, steps=1),
    follow("a redirect with an empty Location", chain(moved(b"Location: ")), status=302, steps=1),
    follow("a loop", chain(moved(b"Location: /")), status=302, steps=11, code=47),
    follow(
        "a loop that grows", chain(moved(b"Location: x/" + b"y" * 9000 + b"/")), status=302, steps=11, code=47
    ),
    follow("two different Locations", chain(moved(b"Location: /a", b"Location: /b")), "redirect"),
    follow("the same Location twice", chain(moved(b"Location: /a", b"Location: /a"), FINAL), status=200),
    follow("nine hundred Locations", chain(moved(*(b"Location: /%d" % n for n in range(900)))), "redirect"),
    follow("a redirect to TLS that is none", to_no_tls, "tls"),
    follow("a redirect to nothing", chain(moved(b"Location: /"), b""), "protocol"),
    follow(
        "a redirect with an endless body",
        chain(moved(b"Location: /", body=b"Content-Length: 9\r\n\r\n")),
        "protocol",
        steps=1,
    ),
    follow("a redirect to a port that refuses", chain(moved(b"Location: http://127.0.0.1:1/")), "network"),
]


@pytest.mark.parametrize("case", DEAD_ENDS + ROUNDABOUT + FINALS, ids=lambda case: case.name)
def test_a_hostile_redirect_is_reported_and_survived(play, case):
    play(case)


SECRET = "k3y-of-the-kingdom"
SECRETS = (
    *("-H", f"Authorization: Bearer {SECRET}"),
    *("-H", f"Cookie: session={SECRET}"),
    *("-H", f"X-Api-Key: {SECRET}"),
    *("-H", f"Proxy-Authorization: Basic {SECRET}"),
)


def reflect(request: Request) -> Reply:
    """Send everything back that was received, wherever there is room for it, and lead on."""
    echo = " ".join(value for _, value in request.headers)
    secret = request.values("X-Api-Key")[0]
    headers = [("Server", echo), ("Location", f"/next?{secret}"), ("Content-Type", echo)]
    return Reply(302, b"", headers, reason=echo)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_secret_travels_to_another_origin_or_comes_back(launch, status):
    with http_server({"/back": lambda request: redirect(first.url("/home"), status)}) as second:
        first_routes = {"/": redirect(second.url("/back"), status), "/home": Reply(200)}
        with http_server(first_routes) as first:
            outcome = launch(first.url(), "-L", "-m", "10", "--json", "-", *SECRETS)
    assert outcome.code == 0
    sent = [request.head.decode("latin-1") for request in first.requests + second.requests]
    assert [SECRET in head for head in sent] == [True, False, False]
    assert SECRET not in outcome.out + outcome.err


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_a_secret_that_the_server_sends_back_is_not_shown(launch, style, tmp_path):
    archive = tmp_path / "run.har"
    with http_server({"/": reflect, "/next": Reply(200)}) as server:
        outcome = launch(
            server.url(), "-L", "-m", "10", "--json", "-", "--har", str(archive), *style, *SECRETS
        )
    assert outcome.code == 0
    assert SECRET not in outcome.out + outcome.err
    assert SECRET not in archive.read_text()


LARGE = {
    "a megabyte of C1 controls": b"X: " + b"\x9b" * 1_000_000,
    "a megabyte of NUL": b"X: " + b"\0" * 1_000_000,
    "a megabyte with one astral character": b"X: " + b"a" * 1_000_000 + "\U0001f600".encode(),
    "a query of 450,000 names": b"Location: /?" + b"a&" * 450_000,
    "a path of 250,000 bytes to escape": b"Location: /" + b"\xff" * 250_000,
}


@pytest.mark.parametrize("name", LARGE)
def test_a_chain_of_eleven_large_heads_fits_into_memory_and_time(launch, name, tmp_path):
    script = chain(
        moved(b"Location: /", LARGE[name]) if b"Location" not in LARGE[name] else moved(LARGE[name])
    )
    with scripted(script) as server:
        words = (server.url(), "-L", "-m", "5", "--compact", "--json", str(tmp_path / "out.json"))
        outcome = launch(*words, "--har", str(tmp_path / "out.har"))
    assert outcome.code in (47, 75)
    check_manners(outcome)
    check_document(json.loads((tmp_path / "out.json").read_bytes()))


@pytest.mark.parametrize("seconds", [0.2, 0.3, 0.4, 0.5, 0.6])
def test_a_deadline_that_passes_between_two_steps_is_a_timeout(launch, seconds):
    """Working a large Location out takes long; the chain that is cut off there has not succeeded."""
    with scripted(chain(moved(LARGE["a path of 250,000 bytes to escape"]))) as server:
        outcome = launch(server.url(), "-L", "--metrics-only", "-m", str(seconds))
    lines = [parse_metrics(line) for line in outcome.out.splitlines()]
    assert outcome.code in (47, 75)
    assert lines[-1].get("error") == (None if outcome.code == 47 else "timeout")
