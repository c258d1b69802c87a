"""What a terminal shows: the live status line, any width, colours where they are wanted, any encoding, and
the same words whether rich is there or not.
"""

from __future__ import annotations

import os
import re
import time

import pytest

from checks import flat, without_readings
from conftest import PATIENCE, has
from inside import tool
from screens import SGR, TERMINAL, Screen, cells, lines_of
from servers import Reply, every, http_server, redirect, scripted, sending

STATUS = re.compile(r"\r([^\r\n\x1b]*)\x1b\[K")


@pytest.fixture
def site():
    """A chain of three steps, the last of which is unhappy in three alphabets."""
    words = "\u6f22\u5b57 \u0434\u043b\u0438\u043d\u043d\u044b\u0439 e\u0301".encode().decode("latin-1")
    long = Reply(404, b"x" * 5000, [("Content-Type", "text/html; " + "charset-" * 30)], reason=words * 9)
    routes = {"/1": redirect("/2?" + "query=value&" * 20), "/2": redirect("/3"), "/3": long}
    routes["/4"] = every(*[Reply(wait=0.004)] * 7, Reply(503, wait=0.06))
    with http_server(routes) as server:
        yield server


SERIES = ["--count", "24", "--interval", "0", "--slo", "ttfb.p95=0.001,total=20000"]
SLO = ["--slo", "dns=5000,connect=0.000001,tls=1,ttfb=0.001,wait=30000,total=0.00001"]


@pytest.mark.parametrize(("columns", "without"), [(60, ("rich",)), (60, ()), (200, ())])
def test_no_line_of_a_report_is_wider_than_the_terminal(run_tool, site, columns, without):
    result = run_tool("-L", *SLO, site.url("/1"), terminal="out err", columns=columns, without=without)
    # Without rich a wide character counts as one.
    lines = [line.rstrip("\r") for line in lines_of(result.out)]
    widths = [(cells if has("rich") and not without else len)(line) for line in lines]
    assert max(widths) <= columns
    frames = {width for width, line in zip(widths, lines) if line[:1] in "╭╰├│" and line}
    assert frames <= {min(columns, 120)} and max(widths) >= min(columns, 80) - 2, "the width is not used"
    said = flat(SGR.sub("", result.out))
    assert all(word in said for word in ("Redirect Chain Summary", "SLO: fail", "Violations:", "404")), said
    series = run_tool(*SERIES, site.url("/4"), terminal="out", columns=columns, without=without)
    series.warned("--slo ttfb.p95: the p95 of 24 runs is usually below the true p95")
    lines = lines_of(series.out)
    assert max(map(cells, lines)) <= columns
    for row in (
        "Phase.* min .* median .* p95 .* max",
        *(f"{key} .*[▁▂▃▄▅▆▇█]" for key in tool.SUMMARY_KEYS[3:]),
    ):
        assert any(re.match(rf"\W*{row}", line) for line in lines), row


def test_the_environment_decides_before_the_terminal_unless_it_says_no_width(run_tool, server):
    """One narrower than 60 columns gets 60."""
    widths = {"132": 120, "20": 60, "0": 90, "10001": 90, "²": 90}
    for value, expected in widths.items():
        result = run_tool(server.url(), terminal="out err", columns=90, env={"COLUMNS": value, "LINES": "²"})
        assert max(cells(line.rstrip("\r")) for line in lines_of(result.out)) == expected, value


def test_the_status_line_fits_and_leaves_nothing_behind(start_tool):
    """The server waits until it is shown, before the answer and in the body."""
    body = b"x" * 20_000_000

    def script(peer):
        peer.read_request()
        assert screen.shows(" of 20 "), screen.text
        peer.send(f"HTTP/1.1 200 Fine\r\nContent-Length: {2 * len(body)}\r\n\r\n".encode() + body)
        assert screen.shows(r"( of 20 .*){2}"), screen.text
        peer.send(body)

    with Screen(11) as screen, scripted(script) as server:
        process = start_tool("--metrics-only", server.url(), stderr=screen.slave, env=TERMINAL)
        out, _ = process.communicate(timeout=PATIENCE)
    shown = STATUS.findall(screen.text)
    assert STATUS.sub("", screen.text) == "", "something else went to the terminal"
    assert shown[-1] == "", "the last status was not wiped out"
    assert max(map(cells, shown)) < 11, "it would wrap, and could not be wiped out"
    assert process.returncode == 0
    assert b"\r" not in out and b"\x1b[K" not in out


def test_a_terminal_that_takes_no_more_is_left_alone():
    """Of a job in the background `stty tostop` may make every write fail, as a closed stream does."""
    with Screen(80) as screen, open(os.dup(screen.slave), "w") as stream:
        status = tool.StatusLine(stream, TERMINAL)
    time.sleep(tool.PAUSE)
    status.draw(lambda: "wait")
    status.clear()
    assert screen.text == "" and status.stream is None


def test_a_dumb_terminal_gets_no_status_line_and_warnings_stand_beside_it(run_tool):
    with http_server({"/": Reply(wait=0.6)}) as server:
        result = run_tool("--compact", server.url(), terminal="err", env={"TERM": "dumb"})
        assert result.err == ""
        result = run_tool("-X", "GET", "-d", "x", "--compact", server.url(), terminal="out err")
    left = STATUS.sub("", result.err)
    assert left.startswith("httphases: warning: GET with a request body") and left.endswith("\n")
    assert left.count("\n") == 1


COLOURED = {
    "terminal": ("out", {}, True),
    "pipe": (None, {}, False),
    "pipe, forced": (None, {"FORCE_COLOR": "1"}, True),
    "terminal, no colour": ("out", {"NO_COLOR": "1"}, False),
    "pipe, forced and no colour": (None, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    "dumb terminal": ("out", {"TERM": "dumb"}, False),
}


@pytest.mark.needs("rich")
def test_colours_are_used_where_they_are_wanted(run_tool, server):
    for name, (terminal, env, coloured) in COLOURED.items():
        result = run_tool("--slo", "total=60000", server.url(), terminal=terminal, env=env)
        colours = {code for found in SGR.findall(result.out) for code in found[2:-1].split(";")}
        assert bool(colours & {str(code) for code in [*range(30, 38), *range(90, 98)]}) is coloured, name
        assert "\x1b" not in result.out or name not in ("pipe", "dumb terminal")
    lines = run_tool("--compact", server.url(), terminal="out", env={"FORCE_COLOR": "1"})
    assert "\x1b" not in lines.out, "for machines"


ENCODINGS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "c-locale": {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_stream_without_box_characters_gets_ascii(run_tool, site, encoding):
    arguments = ["-L", *SLO, site.url("/1")]
    result = run_tool(*arguments, terminal="out", env=ENCODINGS[encoding])
    assert (result.code, result.err) == (4, "")
    assert result.out.isascii()
    assert all(word in flat(result.out) for word in ("SLO: fail", "dns<=5000ms", "404"))
    assert "?" not in result.out.replace("/2?query", "").replace("?query", "").replace("2?", "")
    assert "\\u6f22" in result.out, "a character that cannot be shown is lost"
    assert max(cells(line) for line in lines_of(result.out)) <= 80


@pytest.mark.needs("rich")
def test_a_rich_that_loses_characters_is_not_used(run_tool, server, tmp_path):
    """Before 13.7 it did, where it folded a line within a wide one."""
    code = "import rich.cells\nrich.cells.chop_cells = lambda text, width: [text]\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    drawn = [run_tool("--slo", "total=9000", server.url(), env=each).out for each in (env, {})]
    assert ["│" in each for each in drawn] == [False, True]


NUMBERS = re.compile(r"\d+\.\d+(?=ms)|at\d+(\.\d)?[KM]?B/s")
"""Times, and the rate of a body, which it has where it took long."""
DRAWN = re.compile("[\u2500-\u259f|+#-]")
"""Frames, rules and bars."""


def words(text: str) -> str:
    """Put a report together without frames, bars, blanks, numbers, and what is said of a busy machine."""
    text = DRAWN.sub("", without_readings(SGR.sub("", text)))
    return NUMBERS.sub("", flat(text).replace(" ", ""))


@pytest.mark.needs("rich")
def test_rich_and_plain_say_the_same_words(run_tool, site):
    with scripted(sending("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")) as server:
        for options in (["-L", *SLO, site.url("/1")], [server.url()]):
            said = [run_tool(*options, env={"COLUMNS": "60"}, without=without) for without in ((), ("rich",))]
            assert all(result.err.count("\n") == (result.code == 75) for result in said)
            assert words(said[0].out) == words(said[1].out)
