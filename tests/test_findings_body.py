"""Where the time of bodies goes, in both directions: silences, windows, losses.

Each finding comes from a real cause, and one just outside it is silent.
"""

from __future__ import annotations

import re
import socket
from functools import partial

import pytest

from checks import EDGE, flat
from frames import DATA, Conversation, headers, settings, window
from laboratory import RTT, by_id, costs, on_a_path
from paths import ANY, FAR, Rule, going_first
from servers import Reply, http_server, scripted

HEAD = "HTTP/1.1 200 Fine\r\nContent-Length: {}\r\n\r\n"
NEVER_OF_A_BODY = {"stalled", "loss wait", "http2_window", "tcp_window"}


def pausing(*parts):
    """Make a script that sends bytes, and waits for as many seconds as numbers among them say."""

    def script(peer):
        peer.read_request()
        for part in parts:
            peer.wait(part) if isinstance(part, float) else peer.send(part)

    return script


def ask(call_tool, *arguments, code=0):
    """Ask; what the program waits for a CPU before it asks would explain a silence that is no longer."""
    with going_first():
        result = call_tool("--json", "-", *arguments)
    assert result.code == code, result.err
    return result.json()["steps"][-1]


# --- silences -------------------------------------------------------------------------------------

CHUNKS = "HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" + "x" * 100 + "\r\n"
SILENCES = {
    "within a body": (
        (HEAD.format(3000) + "x" * 1024, 0.6, "x" * 1976),
        r"the server sent nothing for \d.*s after 1\.0 KB of the body, or .* was lost and came again",
    ),
    "of seconds, before the body": (
        (HEAD.format(10), 1.1, "x" * 10),
        r"the server sent nothing for \d+\.\d s before the body, .*",
    ),
    "after a chunk, whose own bytes do not count": (
        (CHUNKS, 0.6, "0\r\n\r\n"),
        r"the server sent nothing for .* after 100 B of the body, .*",
    ),
    "in which the time was over": (
        (HEAD.format(3000) + "x" * 1024, 60.0),
        r"the server sent nothing for .* after 1\.0 KB of the body, or what it sent was lost",
    ),
}


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("name", SILENCES)
def test_a_long_silence_is_named_with_its_place(call_tool, authority, tls, name, secure):
    parts, text = SILENCES[name]
    limit = ("-m", "2") if 60.0 in parts else ()
    with scripted(pausing(*parts), tls=tls if secure else None) as server:
        words = (*limit, "--cacert", authority.file, server.url())
        step = ask(call_tool, *words, code=75 if limit else 0)
    assert "stalled" in by_id(step), step
    found = by_id(step)["stalled"]
    assert (found["phase"], found["certainty"]) == ("xfer", "seen")
    assert re.fullmatch(text, found["text"])


def test_behind_a_proxy_it_was_the_proxy_that_sent_nothing(call_tool):
    with scripted(pausing(HEAD.format(10), 0.6, "x" * 10)) as proxy:
        found = by_id(ask(call_tool, "-x", proxy.url(""), "http://a.test/"))
    assert found["stalled"]["text"].startswith("the proxy sent nothing for ")


@pytest.mark.parametrize(("length", "code"), [(5, 0), (9, 75)], ids=["whole", "cut short"])
def test_a_late_end_of_the_connection_is_no_silence(call_tool, length, code):
    with scripted(pausing(HEAD.format(length) + "x" * 5, 1.1)) as server:
        step = ask(call_tool, server.url(), code=code)
    assert not NEVER_OF_A_BODY & set(by_id(step))
    assert not code or re.match(r"Nothing came for 1\.\d s before that\. ", step["error"]["hint"])


def test_the_time_before_a_response_on_a_kept_connection_is_no_silence_of_it(call_tool):
    with http_server() as server, going_first():
        words = ("--count", "2", "--reuse", "--interval", "0.8", "--json", "-", server.url())
        _, run = call_tool(*words).json()["runs"]
    assert "stalled" not in by_id(run["steps"][0])


# --- windows --------------------------------------------------------------------------------------


@on_a_path
@pytest.mark.needs("h2")
def test_an_upload_that_waits_for_credit_is_held_back_by_the_window(lab):
    """That hides no server that thinks."""
    tls = lab.authority.context(FAR, alpn=("h2",))
    script = partial(credit_late, pause=0, thinking=0.5)
    url = lab.start().serve(scripted(script, tls=tls, host=ANY)).url("/", FAR)
    found = lab.finds(costs("server", "fits", 500, "took about 5"), *lab.upload(200_000), url)["http2_window"]
    assert (found["phase"], found["certainty"]) == ("wait", "seen")
    assert re.match(r"the server's HTTP/2 window held the upload back for .*: ", found["text"])
    assert found["text"].endswith("--vs --http1.1 compares")
    assert found["cost_ms"] >= 2 * RTT * 1000
    url = lab.serve(scripted(partial(credit_late, left=60_000), tls=tls, host=ANY)).url("/", FAR)
    assert not {"http2_window", "tcp_window"} & set(lab.read("-d", "x" * 60_000, url)), "it fits the window"


def test_an_upload_that_nobody_reads_is_held_back_by_tcp(call_tool, tmp_path):
    length = 20_000_000

    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.wait(0.5)
        peer.skip(length)
        peer.send(HEAD.format(0))

    (tmp_path / "body").write_bytes(b"x" * length)
    with scripted(script) as server:
        step = ask(call_tool, "-d", f"@{tmp_path / 'body'}", server.url())
    found, window = by_id(step), by_id(step)["tcp_window"]
    assert min(step["timing"]["wait_ms"], step["timing"]["send_ms"]) >= 500 - EDGE
    assert (window["phase"], window["certainty"]) == ("wait", "seen")
    assert window["text"].startswith("the server's TCP window held the upload back for ")
    assert "server" not in found or found["server"]["cost_ms"] < 300, "what a busy machine takes"
    with http_server() as server:  # a body that fits into the window, however slowly it is read
        found = by_id(ask(call_tool, "-d", "x" * 30_000, server.url()))
    assert not {"tcp_window", "http2_window"} & set(found)


def reading_slowly(peer):
    """Read an upload of 600 kB in pieces, 50 ms apart, with a buffer that is soon full."""
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
    peer.read_until(b"\r\n\r\n")
    for _ in range(600_000 // 16_384):
        peer.skip(16_384)
        peer.wait(0.05)
    peer.skip(600_000 % 16_384)
    peer.send(HEAD.format(0))


def reading_late(peer):
    """Read an upload of 300 kB a second late, with a buffer that is less than the window that it offered: it
    is made smaller while the first round trips of the upload are still under way.
    """
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
    peer.read_until(b"\r\n\r\n")
    peer.wait(1)
    peer.skip(300_000)
    peer.send(HEAD.format(0))


def credit_late(peer, left=200_000, pause=0.6, thinking=0):
    """Take what HTTP/2 allows at first, and the rest of an upload 0.6 s later; answer at once."""
    conversation = Conversation(peer)
    conversation.read_preface()
    conversation.send(settings())
    waits = iter([pause])
    while left > 0:
        size = len(conversation.read_until(DATA).payload)
        left -= size
        peer.wait(next(waits, 0))
        if left > 0 and size:
            conversation.send(window(size, 0), window(size))
    peer.wait(thinking)
    conversation.send(headers(204, end=True))
    peer.read_to_end()


@on_a_path
@pytest.mark.needs("h2")
@pytest.mark.parametrize(
    ("script", "size", "round_trip"),
    [(reading_slowly, 600_000, 0.001), (reading_late, 300_000, 0.1), (credit_late, 200_000, 0.001)],
)
def test_a_reader_that_is_slow_has_lost_nothing(lab, script, size, round_trip):
    """The kernel sends again what has arrived, and learns that it was a duplicate; or what a full buffer has
    dropped, behind a window that was closed.
    """
    lab.start(round_trip)
    tls = lab.authority.context(FAR, alpn=("h2",)) if script is credit_late else None
    url = lab.serve(scripted(script, tls=tls, host=ANY)).url("/", FAR)
    step = lab.ask(*lab.upload(size), url)["steps"][0]
    assert tls or (step["network"]["tcp_retransmits"] > 0) == (script is reading_late)
    found = by_id(step)
    window = found["http2_window" if tls else "tcp_window"]
    assert window["cost_ms"] > 500
    assert ("; its full buffer dropped what was under way" in window["text"]) == (script is reading_late)
    assert "loss wait" not in found and "sent again" not in str(found)
    if script is reading_late:
        late = lab.ask("-m", "0.9", *lab.upload(size), url, code=75)["steps"][0]
        assert "Lost" not in late["error"]["hint"] and "loss wait" not in by_id(late)


@on_a_path
def test_a_loss_does_not_hide_a_window(lab):
    """What is lost at first keeps the upload slow, so that it comes late to the closed window."""

    def script(peer):
        peer.read_until(b"\r\n\r\n")
        peer.wait(1.2)
        peer.skip(300_000)
        peer.send(HEAD.format(0))

    url = lab.start().serve(scripted(script, host=ANY)).url("/", FAR)
    lab.way.change(rules=[Rule("up", "data", times=2)])
    lost = "2 segments were sent again: loss or reordering on the way"
    found = lab.finds(costs("loss wait", "seen", 240, lost), *lab.upload(300_000), url)
    assert found["loss wait"]["text"].startswith(lost)
    assert "the server's TCP window held the upload back for " in str(found) and "buffer" not in str(found)


@on_a_path
def test_an_upload_is_over_with_its_last_acknowledgment(lab):
    url = lab.start().http()
    lab.way.change(rules=[Rule("up", "any", 0, "rate", 100_000)])
    told = r"Request body of 58\.6 KB at [89]\d\.\d KB/s, acknowledged in 6\d\d\.\d ms of the"
    words = (*lab.upload(60_000), url + "/")
    lab.agree(
        lambda out: not re.search(told, out), lambda: flat(lab.run_tool(*words, within=lab.way.near).out)
    )


# --- losses ---------------------------------------------------------------------------------------


@on_a_path
def test_the_path_says_what_was_sent_again(lab):
    url = lab.start().http(("/", Reply(body=b"x" * 100_000)))

    def path_of(*rules):
        lab.way.change(rules=rules)
        out = lab.run_tool(url + "/", within=lab.way.near).out
        return re.search(r"  Path +(.*(?:\n {15}.*)*)", out)[1]

    assert re.fullmatch(r"round trip \d+\.\d\d ms", path_of())
    assert path_of(Rule("up", "data")).endswith(" ms, 1 retransmit")
