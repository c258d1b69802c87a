"""A time-out says what the kernel had counted: a program that is silent, packets that are lost or too large,
a connection that the way has forgotten.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hostile.cases import flood, talk

from frames import converse, goaway, settings
from laboratory import on_a_path
from paths import ANY, FAR, Rule
from servers import Reply, http_server, scripted

BODY = Reply(body=b"x" * 100_000)
ROUTES = {"/": BODY, "/slow": Reply(body=b"x", wait=60)}
MTU = f"packets of 1,500 bytes may not get through: MTU; try ping -M do -s 1472 {FAR}"
PROGRAM = "the program behind the port is silent (look at its load and log), or its answers are lost"
LOST = "Lost or late on the way: "
OK = b"HTTP/1.1 200 OK\r\n"
SOON = ("-m", "2")
"""The time of a run that is to end in a timeout, and before it to get as far as its peer lets it."""


class Stuck:
    """Servers at the far end of a short path, and the failure of a request to them that gets no further."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab.start(0.002)
        self.urls = {
            "http": lab.http(*ROUTES.items()),
            "https": lab.http(*ROUTES.items(), tls=lab.tls(names=200)),
        }
        self.serve("half", talk(OK + b"Content-Length: 5000\r\n\r\nbeginning", end="hold"))
        self.serve("mute", lambda peer: peer.read_to_end())
        self.urls["mute tls"] = self.urls["mute"].replace("http", "https")

    def serve(self, name: str, script: Any) -> str:
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
        assert error["phase"] == phase
        assert error["hint"].startswith("All that was sent was acknowledged, and nothing ")
        assert error["hint"].index(PROGRAM) < error["hint"].index(MTU)
        assert ("nothing came back" in error["hint"]) == (phase != "xfer")

    def die(peer):
        peer.read_request()
        peer.wait(0.1)  # until it is acknowledged
        stuck.lab.way.change(rules=[Rule("down", "any", 0)])
        peer.read_to_end()

    stuck.serve("dead", die)
    dead = r"All that was sent was acknowledged [\d.]+ s ago, and nothing came since: a probe had no answer"
    assert re.match(f"{dead} either, so the path is dead", stuck.error("dead")["hint"])


@on_a_path
def test_what_is_never_acknowledged_is_lost_on_the_way(stuck):
    for server, phase in (("http", "wait"), ("https", "tls")):
        error = stuck.error(server, rules=[Rule("up", "data", 0)])
        assert error["phase"] == phase and LOST in error["hint"] and MTU not in error["hint"]


@on_a_path
def test_large_packets_that_do_not_come_here_are_told_by_small_ones_that_do(stuck):
    error = stuck.error("https", rules=[Rule("down", "large", 0)])
    assert error["phase"] == "tls" and MTU in error["hint"] and PROGRAM not in error["hint"]
    # Nothing small follows the body's beginning: a program that is silent looks alike.
    error = stuck.error("http", rules=[Rule("down", "large", 0)])
    assert error["hint"].index(PROGRAM) < error["hint"].index(MTU)


@on_a_path
def test_large_packets_that_do_not_get_there_are_told_by_their_size(stuck):
    for server, size in (("http", 1_900), ("https", 100_000)):
        error = stuck.error(server, *stuck.lab.upload(size), rules=[Rule("up", "large", 0)])
        assert LOST in error["hint"] and MTU in error["hint"] and PROGRAM not in error["hint"]


@on_a_path
def test_what_still_flows_is_no_silence(stuck):
    stuck.serve("drip", flood(OK + b"Content-Length: 5000\r\n\r\n", b"x", 0.1))
    hint = stuck.error("drip")["hint"]
    assert "a slow path" in hint and PROGRAM not in hint and MTU not in hint
    line = [Rule("up", "any", 0, "rate", 100_000)]
    hint = stuck.error("http", *stuck.lab.upload(1_000_000), rules=line)["hint"]
    assert re.match(r"Sending 1\d\d\.\d KB took 2\.0 s: \d+ kbit/s: .* the line", hint)


NO_LENGTH = "Without Content-Length or chunks only closing the connection ends it: the server does not."


@pytest.mark.parametrize(
    ("length", "count", "came", "told"),
    [
        (b"", 11, "11 bytes of the body came", NO_LENGTH),
        (b"Content-Length: 1100\r\n", 1024, "1024 of 1100 bytes of the body came", PROGRAM),
        (b"Transfer-Encoding: chunked\r\n", 0, ": 0 bytes of the body came", PROGRAM),
    ],
    ids=["no length", "a length that is too large", "chunks"],
)
def test_a_body_that_does_not_end_is_explained_by_its_length(run_tool, length, count, came, told):
    """On loopback, where packets have any size and the answer may be there before the kernel is asked."""
    with scripted(talk(OK + length + b"\r\n" + b"x" * count, end="hold")) as server:
        [step] = run_tool(*SOON, "--json", "-", server.url()).json()["steps"]
    error, largest = step["error"], max(step["account"], key=lambda share: share["ms"])
    assert error["phase"] == largest["phase"] == "xfer" and error["message"].endswith(came)
    assert largest["owner"] == "server", "it was silent to the end"
    assert "MTU" not in error["hint"] and "nothing came back" not in error["hint"]
    assert error["hint"] == told or (told == PROGRAM and PROGRAM in error["hint"])


@pytest.mark.needs("linux")
def test_a_server_that_reads_no_further_is_not_called_dead(call_tool):
    """What waits for its window is probed less and less often, and nothing else is."""

    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.send(OK + b"Content-Length: 9\r\n\r\nhalf")
        peer.wait(60)

    with scripted(script) as server:
        [step] = call_tool("--json", "-", "-m", 5, "-d", "x" * 20_000_000, server.url()).json()["steps"]
    assert ": the program (look at its load and log), or the path: ping it; " in step["error"]["hint"]
    assert step["account"][-1]["owner"] == "server"


def test_what_has_no_length_and_still_flows_is_a_large_answer(run_tool):
    with scripted(flood(OK + b"Content-Type: text/plain\r\n\r\n", b"x", 0.1)) as server:
        hint = run_tool(*SOON, "--json", "-", server.url()).json()["steps"][0]["error"]["hint"]
    assert "A large answer" in hint and "only closing" not in hint


@pytest.mark.needs("h2")
def test_a_goaway_before_the_silence_is_named(authority):
    def script(conversation):
        conversation.read_request()
        conversation.send(settings(), goaway(1, 0, b"restart"))

    error = converse(authority, script, "-m", "1").json()["steps"][0]["error"]
    told = "the server closed the HTTP/2 connection (NO_ERROR: restart)"
    assert error["message"] == f"no response came within 1 s; before that {told}"


@on_a_path
def test_a_connection_that_the_way_has_forgotten_is_called_that(lab):
    """As a NAT does it: the packets of a connection that was idle are dropped, those of new ones are not."""
    lab.start()
    url = lab.http()
    lab.way.change(rules=[Rule("up", "data", 2, times=99)])
    document = lab.ask("--reuse", "--count", 3, "--interval", "0.3", "-m", "3", url + "/", code=75)
    first, second, third = (run["steps"][-1] for run in document["runs"])
    assert second["error"]["kind"] == "timeout" and second["network"]["reused"]
    hint = (
        "A NAT, firewall or balancer on the way has forgotten the connection, which carried no request for "
    )
    assert second["error"]["hint"].startswith(hint)
    assert second["network"]["idle_ms"] >= 100
    for each in (first, third):
        assert each["network"]["idle_ms"] is each["error"] is None


@on_a_path
def test_a_slow_answer_on_a_kept_connection_is_not_forgotten(lab):
    replies = iter([Reply(), Reply(wait=60)])
    url = lab.start().serve(http_server({"/": lambda _: next(replies)}, host=ANY)).url("/", FAR)
    document = lab.ask("--reuse", "--count", 2, "--interval", "0", "-m", "2", url, code=75)
    assert "forgotten" not in document["runs"][1]["steps"][0]["error"]["hint"]
