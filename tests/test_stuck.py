"""A time-out says what the kernel had counted: a program that is silent, lost packets, too large ones."""

from __future__ import annotations

from typing import Any

import pytest

from laboratory import on_a_path
from paths import ANY, FAR, Rule
from servers import Reply, http_server, scripted

BODY = Reply(body=b"x" * 100_000)
ROUTES = {"/": BODY, "/slow": Reply(body=b"x", wait=60)}
MTU = f"packets of 1,500 bytes may not get through: MTU; try ping -M do -s 1400 {FAR}"
PROGRAM = "the machine answers, the program behind it does not"
LOST = "lost on the way"


SOON = ("-m", "3")
"""The time of a run that is to end in a timeout, and before it to get as far as its peer lets it."""


def beginning(length: str, count: int) -> Any:
    """Make a script that sends so many bytes of a body, and keeps the connection open."""

    def script(peer: Any) -> None:
        peer.read_until(b"\r\n\r\n")
        peer.send(f"HTTP/1.1 200 OK\r\n{length}\r\n" + "x" * count)
        peer.read_to_end()

    return script


def dripping(fields: str) -> Any:
    """Make a script that answers with these fields, and then sends a byte every 0.1 s."""

    def script(peer: Any) -> None:
        peer.read_until(b"\r\n\r\n")
        peer.send(f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n")
        while not peer.wait(0.1):
            peer.send("x")

    return script


class Stuck:
    """Servers at the far end of a short path, and the failure of a request to them that gets no further."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab.start(0.002)
        large = lab.tls(*(f"name-{number}.a.long.example.test" for number in range(200)))
        self.urls = {
            "http": lab.serve(http_server(ROUTES, host=ANY)).url("", FAR),
            "https": lab.serve(http_server(ROUTES, host=ANY, tls=large)).url("", FAR),
        }
        self.serve("half", beginning("Content-Length: 5000\r\n", 9))
        self.serve("mute", lambda peer: peer.read_to_end())
        self.urls["mute tls"] = self.urls["mute"].replace("http", "https")

    def serve(self, name: str, script: Any) -> str:
        """Start a server of this name at the far end; return its URL."""
        self.urls[name] = self.lab.serve(scripted(script, host=ANY)).url("", FAR)
        return self.urls[name]

    def error(self, server: str, *arguments: Any, path: str = "/", rules: Any = ()) -> dict[str, Any]:
        self.lab.way.change(rules=list(rules))
        (step,) = self.lab.ask(*SOON, *arguments, self.urls[server] + path, code=75)["steps"]
        assert step["error"]["kind"] == "timeout", step
        return step["error"]


@pytest.fixture
def stuck(lab: Any) -> Stuck:
    return Stuck(lab)


@on_a_path
def test_a_program_that_is_silent_is_told_from_a_machine_that_is(stuck):
    for server, path, phase in (("mute tls", "/", "tls"), ("http", "/slow", "wait"), ("half", "/", "xfer")):
        error = stuck.error(server, path=path)
        hint, counted = error["hint"], error["evidence"]
        assert error["phase"] == phase
        assert "All that was sent was acknowledged" in hint and "overloaded" not in hint
        assert hint.index(PROGRAM) < hint.index(MTU)
        assert counted["sent_bytes"] == counted["acknowledged_bytes"] > 0 == counted["retransmits"]
        assert ("nothing came back" in hint) == (counted["received_bytes"] == 0) == (phase != "xfer")
    assert counted["client_hello_bytes"] is None
    hello = stuck.error("mute tls")["evidence"]
    assert hello["client_hello_bytes"] == hello["sent_bytes"] > 200


@on_a_path
def test_a_request_that_is_never_acknowledged_is_lost_on_the_way(stuck):
    for server, phase in (("http", "wait"), ("https", "tls")):
        error = stuck.error(server, rules=[Rule("up", "data", 0)])
        assert error["phase"] == phase and LOST in error["hint"] and MTU not in error["hint"]
        assert error["evidence"]["acknowledged_bytes"] == 0 < error["evidence"]["retransmits"]


@on_a_path
def test_large_packets_that_do_not_come_here_are_told_by_small_ones_that_do(stuck):
    error = stuck.error("https", rules=[Rule("down", "large", 0)])
    assert error["phase"] == "tls" and error["evidence"]["out_of_order"] > 0
    assert MTU in error["hint"] and PROGRAM not in error["hint"]
    # Nothing small follows the body's beginning: a program that is silent looks alike.
    error = stuck.error("http", rules=[Rule("down", "large", 0)])
    assert error["hint"].index(PROGRAM) < error["hint"].index(MTU)


@on_a_path
def test_large_packets_that_do_not_get_there_are_told_by_small_ones_that_do(stuck):
    upload = [Rule("up", "large", 0)]
    for server, size in (("http", 100_000), ("http", 1_900), ("https", 100_000)):
        body = stuck.lab.folder / "body"
        body.write_bytes(b"x" * size)
        error = stuck.error(server, "-d", f"@{body}", rules=upload)
        assert MTU in error["hint"] and PROGRAM not in error["hint"] and LOST not in error["hint"]
        assert error["evidence"]["acknowledged_bytes"] > 0 < error["evidence"]["retransmits"]


@on_a_path
def test_what_still_flows_is_no_silence(stuck):
    stuck.serve("drip", dripping("Content-Length: 5000"))
    hint = stuck.error("drip")["hint"]
    assert "a slow path" in hint and PROGRAM not in hint and MTU not in hint


@on_a_path
def test_behind_a_proxy_the_other_side_is_the_proxy(stuck):
    def open_way(peer: Any) -> None:
        peer.read_until(b"\r\n\r\n")
        peer.send("HTTP/1.1 200 Connected\r\n\r\n")
        peer.read_to_end()

    error = stuck.error("https", "-x", stuck.serve("proxy", open_way))
    assert PROGRAM not in error["hint"] and MTU not in error["hint"]
    assert error["evidence"]["sent_bytes"] == error["evidence"]["acknowledged_bytes"]


@on_a_path
def test_packets_are_not_too_large_where_full_ones_came_or_little_is_missing(stuck):
    for length, count in ((60_000, 5_000), (100, 50)):
        stuck.serve("part", beginning(f"Content-Length: {length}\r\n", count))
        hint = stuck.error("part")["hint"]
        assert PROGRAM in hint and "MTU" not in hint


NO_LENGTH = (
    "It has no length (no Content-Length, no chunks), so only closing the connection ends it, and the server "
    "keeps it open."
)

ENDLESS = "It is a stream ({}), which has no end by design: ttfb is what counts, and -m ends it."


@pytest.mark.parametrize(
    ("length", "count", "told"),
    [
        ("", 11, NO_LENGTH),
        ("Content-Length: 12\r\n", 11, "The server said 12 and sent 11: look at its Content-Length."),
        ("Transfer-Encoding: chunked\r\n", 0, PROGRAM),
        ("Content-Type: Text/Event-Stream; charset=utf-8\r\n", 9, ENDLESS.format("Text/Event-Stream")),
        ("Content-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n", 0, ENDLESS.format("audio/mpeg")),
        ("Content-Type: audio/mpeg\r\nContent-Length: 20\r\n", 10, PROGRAM),
    ],
    ids=["no length", "one byte short", "chunks", "events", "radio", "a tune"],
)
def test_a_body_that_does_not_end_is_explained_by_its_length(run_tool, length, count, told):
    """On loopback, where packets have any size and the answer may be there before the kernel is asked."""
    with scripted(beginning(length, count)) as server:
        error = run_tool(*SOON, "--json", "-", server.url()).json()["steps"][0]["error"]
    hint = error["hint"]
    assert error["phase"] == "xfer" and told in hint and "MTU" not in hint and "nothing came back" not in hint
    assert hint == told or told == PROGRAM


@pytest.mark.parametrize(
    ("media", "told"),
    [("text/plain", "A large body"), ("text/event-stream", ENDLESS.format("text/event-stream"))],
)
def test_what_has_no_length_and_still_flows_is_a_large_body_or_a_stream(run_tool, media, told):
    with scripted(dripping(f"Content-Type: {media}")) as server:
        hint = run_tool(*SOON, "--json", "-", server.url()).json()["steps"][0]["error"]["hint"]
    assert told in hint and "no length" not in hint
