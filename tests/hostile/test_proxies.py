"""Proxies that answer CONNECT and SOCKS5 wrongly, late, in part, or with words made to be printed."""

from __future__ import annotations

import pytest

from hostile.cases import Case, flood, talk
from servers import Peer, Script

OK = b"HTTP/1.1 200 Connection established\r\n\r\n"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"
GRANTED = b"\5\0\0\1\x7f\0\0\1\0\x50"
PASSWORD = "pr0xy-passw0rd"


def connect(name: str, script: Script, kind: str = "proxy", **told: str) -> Case:
    """Make a case of a tunnel through a proxy whose password must not be shown."""
    proxy = f"http://user:{PASSWORD}@127.0.0.1:{{port}}"
    phase = "connect" if kind == "proxy" else None
    return Case(name, script, kind, options=("-x", proxy), url="https://a.test/", phase=phase, **told)


TOLD = {  # an answer -> words of the message, and of the hint
    b"HTTP/1.1 503 No\r\nX-Squid-Error: ERR_DNS_FAIL 0\r\nProxy-Status: p; error=dns\r\nLocation: /login": (
        "503 No (proxy-status: p; error=dns) (x-squid-error: ERR_DNS_FAIL 0) (location: /login)",
        "The proxy could not reach the target",
    ),
    b"HTTP/1.1 407 No": ("refused the tunnel: 407 No", "The proxy refused the user name and password"),
    b"HTTP/1.1 403 Never\r\nProxy-Authenticate: NTLM": ("403 Never", "forbids this target"),
    b"SSH-2.0-x": ("the answer does not start like HTTP: 'SSH-2.0-x'", "belongs to such a proxy"),
}
CONNECT = (
    [
        connect(f"CONNECT is answered {line[:40]!r}", talk(line + b"\r\n\r\n"))
        for line in (
            b"HTTP/1.1",
            b"HTTP/1.1 20 OK",
            b"\x1b[2J\x07",
            b"\x15\x03\x03\x00\x02\x02\x28",
            b"HTTP/1.1 101 Switching",
            b"HTTP/1.1 302 Found\r\nLocation: http://login.test/",
            b"HTTP/1.1 403 " + b"y" * 100_000,
            b"HTTP/1.1 407 dXNlcjpwcjB4eS1wYXNzdzByZA== " + PASSWORD.encode(),
            b"HTTP/1.1 999 \x1b[31m[red]no\x9b",
            b"HTTP/1.1 200 OK\r\nX: " + b"y" * (2 << 20),
            b"HTTP/1.1 100 C\r\n\r\n" * 101 + b"HTTP/1.1 200 OK",
        )
    ]
    + [
        connect("CONNECT is answered by half a head", talk(OK[:30], end="hold"), "timeout"),
        connect("CONNECT is answered by a reset", talk(end="reset")),
        connect("a reset before CONNECT", lambda peer: peer.reset()),
        connect("CONNECT is answered without end", flood(b"", b"y" * 65536))._replace(apart=True),
        connect("CONNECT is answered by headers without end", flood(OK[:-2], b"X: y\r\n"))._replace(
            apart=True
        ),
        connect("data follows the tunnel's head", talk(OK + HELLO)),
        connect(
            "the tunnel holds no TLS",
            lambda peer: (talk(OK)(peer), peer.sock.recv(999), peer.send(HELLO)),
            "tls",
        ),
    ]
    + [
        connect(f"CONNECT is answered {line[:40]!r}", talk(line + b"\r\n\r\n"), says=says, hint=hint)
        for line, (says, hint) in TOLD.items()
    ]
    + [connect(f"the proxy stops after byte {count}", talk(OK[:count])) for count in range(0, len(OK), 9)]
)


@pytest.mark.parametrize("case", CONNECT, ids=lambda case: case.name)
def test_a_hostile_tunnel_is_reported_and_survived(play, case):
    document = play(case)
    assert PASSWORD not in str(document)


def socks(name: str, script: Script, kind: str | None = "proxy", user: str = "", **expected: object) -> Case:
    """Make a case of a SOCKS5 proxy that resolves names, so that nobody here does."""
    proxy = f"socks5h://{user}127.0.0.1:{{port}}"
    return Case(name, script, kind, options=("-x", proxy), url="http://a.test/", **expected)


def dialogue(*answers: bytes, end: str = "close", rest: bytes = b"") -> Script:
    """Answer each message of the client with the next of the answers, then close, hold, reset or serve."""

    def script(peer: Peer) -> None:
        for data in answers:
            peer.sock.recv(1024)
            peer.send(data)
        talk(rest, first=Peer.read_request if rest else lambda _: None, end=end)(peer)

    return script


def granted(kind: bytes, address: bytes) -> Case:
    reply = b"\5\0\0" + kind + address + b"\0\x50"
    return socks(
        f"granted from {kind + address[:9]!r}", dialogue(b"\5\0", reply, rest=HELLO), None, status=200
    )


SOCKS = (
    [
        socks(f"the reply ends after byte {count}", dialogue(b"\5\0", GRANTED[:count]))
        for count in (0, 1, 4, 9)
    ]
    + [
        socks(f"the greeting is answered {data!r}", dialogue(data))
        for data in (b"", b"\5", b"\4\0", b"\5\2", b"\5\xff")
    ]
    + [
        socks(f"the password is answered {data!r}", dialogue(b"\5\2", data), user=f"user:{PASSWORD}@")
        for data in (b"", b"\1", b"\1\xff", b"\5\0")
    ]
    + [
        granted(b"\1", b"\0\0\0\0"),
        granted(b"\3", b"\0"),
        granted(b"\3", b"\xff" + b"\x1b" * 255),
        socks("an address of no type", dialogue(b"\5\0", b"\5\0\0\x99" + bytes(6))),
        socks("a reply of version 4", dialogue(b"\5\0", b"\4" + GRANTED[1:])),
        socks("silence for a greeting", dialogue(end="hold"), "timeout"),
        socks("a reset after the greeting", dialogue(b"\5\0", end="reset")),
        socks(
            "an answer before the request", dialogue(b"\5\0", GRANTED + HELLO, end="hold"), None, status=200
        ),
        socks("zeros", dialogue(bytes(65536))),
        socks(
            "a web server",
            dialogue(b"HTTP/1.1 400 \x1b[2J\r\n\r\n"),
            says="does not answer like SOCKS5",
            hint="belongs to a SOCKS5 proxy",
        ),
    ]
)


@pytest.mark.needs("socks")
@pytest.mark.parametrize("case", SOCKS, ids=lambda case: case.name)
def test_a_hostile_socks_proxy_is_reported_and_survived(play, case):
    document = play(case)
    assert PASSWORD not in str(document)
