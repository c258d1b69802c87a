"""Redirects that lead nowhere, elsewhere or round in circles, and what must not travel with them."""

from __future__ import annotations

import pytest

from hostile.cases import Case, talk
from servers import Peer, Script, scripted

FINAL = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"


def moved(*lines: bytes) -> bytes:
    return b"\r\n".join((b"HTTP/1.1 302 Moved", *lines, b"Content-Length: 0\r\n\r\n"))


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
        b"javascript:alert(1)", b"http:///", b"\x0c//[::1\t]", b"//", b"http://a.test:0/",
        b"http://a.test:\xef\xbc\x98\xef\xbc\x90/", b"http://a.test:" + b"9" * 5000 + b"/",
        b"http://[::1]x/", b"http://::1/", b"http://a..test/", b"http://" + b"a." * 200 + b"test/",
        b"http://" + b"a" * 200_000 + b"/", b"http://a.test\x1b[2J/", b"/\x1b[2J",
        b"http://xn--\xc3\xa4/", b"http://user:pass word@/",
        b"http://\\" + b"\\" * 200_000, "http://a\u200db.test/".encode(),
        "http://{}/".format("ü" * 300).encode(), "http://{}.test/".format("\u0628\u200c" * 120).encode(),
    )
]  # fmt: skip

ROUNDABOUT = [
    follow(f"the Location {text[:40]!r}", chain(moved(b"Location: " + text), FINAL), status=200, size=6)
    for text in (
        b"/", b"/.." * 80_000, b"..//..//" * 30_000, b"//127.0.0.1:%d\\@a.test/", b"/\xc3\xa4",
        b"http://127.0.0.1:%d/?\xe2\x80\xae", b"http://user:password@127.0.0.1:%d/",
        b"http://[::ffff:127.0.0.1]:%d/", b"http://127.0.0.1:%d#" + b"f" * 9000, b"/" + b"x" * 100_000,
        b"/?" + b"\xff" * 30_000, b"/[red]x[/red]", b"/\\a.test/",
    )
]  # fmt: skip

OTHERS = [
    follow("a redirect with an empty Location", chain(moved(b"Location: ")), status=302, steps=1),
    follow(
        "a loop that grows", chain(moved(b"Location: x/" + b"y" * 9000 + b"/")), status=302, steps=11, code=47
    ),
    follow("nine hundred Locations", chain(moved(*(b"Location: /%d" % n for n in range(900)))), "redirect"),
    follow("a redirect to TLS that is none", to_no_tls, "tls"),
    follow("half a body", chain(moved(b"Location: /")[:-5] + b"9\r\n\r\nhalf"), "protocol", steps=1),
]


LARGE = [
    follow(
        name,
        chain(moved(*lines)),
        status=302,
        steps=11,
        code=47,
        apart=True,
        options=("-L", "--har", "/dev/null"),
    )
    for name, *lines in (
        ("a megabyte of C1 controls", b"Location: /", b"X: " + b"\x9b" * 1_000_000),
        ("one astral character", b"Location: /", b"X: " + b"a" * 1_000_000 + "\U0001f600".encode()),
        ("a path of 250,000 bytes to escape", b"Location: /" + b"\xff" * 250_000),
    )
]


@pytest.mark.parametrize("case", DEAD_ENDS + ROUNDABOUT + OTHERS + LARGE, ids=lambda case: case.name)
def test_a_hostile_redirect_is_reported_and_survived(play, case):
    play(case)


def test_nor_do_all_names_of_a_certificate_with_thousands(run_tool, authority):
    context = authority.context("127.0.0.1", *(f"host-{number}.test" for number in range(4000)))
    with scripted(talk(FINAL), tls=context) as server:
        for options, most in (((), 4001), (("--count", "3", "--interval", "0"), 100)):
            document = run_tool(server.url(), *options, "-k", "-s", "--json", "-").json()
            run = document.get("runs", [document])[-1]
            assert len(run["steps"][0]["network"]["cert_sans"]) == most
