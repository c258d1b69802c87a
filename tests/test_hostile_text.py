"""Text from the network is shown, never obeyed: nothing that others send moves a cursor, turns the direction
of writing, colours, links, or fills the screen, in any mode, on success and on failure.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

from certificates import hostile_certificate, server_context
from checks import UNSAFE
from inside import tool
from screens import SGR
from servers import Server, http_server, scripted, sending

ESCAPES = "\x1b[31mred\x1b[0m\x1b]0;own\x07\x1b]8;;http://evil.test/\x1b\\x\x1b]8;;\x1b\\\x1b[2J\x1b[H\x1bc"
C1 = "\x9b31mred\x9d0;owned\x9c\x85next" + "\u009b31mred\u0085next".encode().decode("latin-1")
BIDI = "\u202egpj.exe\u202c\u2066x\u2069\u200f\u061c"
INVISIBLE = "\u200b\ufeff\u2028\u2029\U000e0041"
HOSTILE = {
    "escapes": ESCAPES,
    "controls": "\rStep 1: 200 OK\x08\x08\x0b\x0c\x7f" + C1,
    "unicode": (BIDI + INVISIBLE).encode().decode("latin-1"),
    "markup": "[bold red]x[/bold red][/][link=http://evil.test/]y[/link][blink]:skull:",
    "not-utf-8": "\xff\xfe\xc3" + C1,
    "commands": "###vso[task.setvariable variable=a]b ##[error]c",
}
"""What a server may send, each byte a character (Latin-1)."""

LONG = "w\xe9 " * 34_000
SHADE = re.compile(r"[34]8;5;\d+")
COMMAND = re.compile(r"##[a-z]*\[")
"""What some CI runners obey wherever it stands in a line."""
STATUS_LINE = re.compile(r"\r[^\r\n\x1b]*\x1b\[K")


def check_shown(text: str) -> None:
    """Prove that nothing in `text` does more than to be seen: only line ends and our own colours."""
    for line in SGR.sub("", STATUS_LINE.sub("", text)).split("\n"):
        wrong = [char for char in line if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
        wrong += COMMAND.findall(line)
        assert not wrong, f"{wrong!r} in {line[:300]!r}"


def check_run(result: Any) -> None:
    """Prove that a run printed nothing that a terminal would obey, and that markup was not obeyed."""
    assert "Traceback" not in result.err
    check_shown(result.out)
    check_shown(result.err)
    shades = (SHADE.sub("", found[2:-1]) for found in SGR.findall(result.out + result.err))
    codes = {code for shade in shades for code in shade.split(";")}
    assert not codes & {"5", "6", "8"}, "something blinks or hides"


def check_text(text: str) -> Any:
    """Prove that a document can be shown raw (what is invisible and moves nothing may be in it); read it."""
    assert not (UNSAFE.search(text) or COMMAND.search(text))
    return json.loads(text)


@pytest.mark.parametrize("rich", [False, pytest.param(True, marks=pytest.mark.needs("rich"))])
def test_no_line_that_is_drawn_begins_with_words_of_the_other_side(rich):
    """They may be a command to a CI runner, or look like a line of ours. An address (`::1`) is no command."""

    def drawn(*blocks):
        out = io.StringIO()
        (tool.RichPainter if rich else tool.Painter)(out, {"COLUMNS": "60"}).paint(blocks)
        return out.getvalue()

    for mark in ("::error::x", "##vso[a]x", "Step 2: 200"):
        texts = ["y" * length + mark + "z" * 70 for length in range(70)]
        rows = [("Location" if at % 2 else "", text) for at, text in enumerate([mark, *texts])]
        titles = [tool.Span(f"Step 1: {text}", "bad") for text in texts]
        for line in SGR.sub("", drawn(*titles, tool.Fields(rows))).splitlines():
            assert line.startswith(("Step 1:", "  ")) and not re.match("::[a-z]+::", line.strip()), line
            assert not COMMAND.search(line)
    rows = [tuple(map(tool.Span, (name, "200"))) for name in ("::1", "::ffff:192.0.2.1", "192.0.2.1")]
    told = drawn(tool.Table(("Address", "Status"), (), rows), "::1 is slower than ::ffff:192.0.2.1")
    assert "\\" not in told


FIELDS = ("reason", "Server", "Content-Type", "Location", "Date", "Set-Cookie")


@contextlib.contextmanager
def talking(text: str) -> Iterator[Server]:
    """Serve a redirect whose every field that is shown holds `text`."""
    fields = [f"{name}: /a={text}" if name == "Location" else f"{name}: a={text}" for name in FIELDS[1:]]
    head = "\r\n".join([f"HTTP/1.1 302 {text}", *fields, "Content-Length: 0", "", ""])
    with scripted(sending(head)) as server:
        yield server


def test_no_header_reaches_a_terminal_raw_and_documents_are_harmless_and_whole(run_tool, tmp_path):
    files = [tmp_path / "out.json", tmp_path / "out.har"]
    with talking("".join(HOSTILE.values())) as server:
        for words in ([], ["--compact"], ["--json", files[0], "--har", files[1]]):
            for without in ((), ("rich",)):
                arguments = ["-L", "-m", "5", *words, server.url()]
                check_run(run_tool(*arguments, terminal="out err", without=without))
        for option in ("--json", "--har"):
            result = run_tool(option, "-", server.url(), terminal="out")
            check_shown(result.err)
            assert check_text(result.out)
    for path in files:
        check_text(path.read_text("utf-8"))
    with talking("\x1b[31m" + BIDI.encode().decode("latin-1")) as server:
        [step] = run_tool("--json", "-", server.url()).json()["steps"]
    assert step["response"]["server"] == "a=\x1b[31m" + BIDI


def test_markup_is_shown_to_the_letter(run_tool):
    with talking(HOSTILE["markup"]) as server:
        result = run_tool(server.url(), env={"COLUMNS": "400", "FORCE_COLOR": "1"})
    assert HOSTILE["markup"] in SGR.sub("", result.out)


def test_a_hundred_kilobytes_are_clipped_before_they_fill_the_screen(run_tool):
    with talking(LONG) as server:
        for without, words, longest in ((), [], 80), (("rich",), [], 80), ((), ["--compact"], 10_000):
            result = run_tool("-L", *words, server.url(), without=without)
            check_run(result)
            assert len(result.out) < 200_000, "a screen of 12 steps with three long texts each"
            assert max(map(len, result.out.splitlines())) <= longest


@pytest.mark.parametrize("text", ["".join(HOSTILE.values()), LONG], ids=["controls", "long"])
def test_no_message_of_a_failure_reaches_a_terminal_raw(run_tool, tmp_path, text):
    files = [tmp_path / f"out.{name}" for name in ("json", "har", "otlp")]
    exports = [f"--{path.suffix[1:]}={path}" for path in files]
    with scripted(sending(f"HTTP/1.1 502 {text}\r\n\r\n")) as proxy:
        for mode in (["--compact"], []):
            words = [*exports, "-x", proxy.url(""), "https://a.test/"]
            result = run_tool(*mode, *words, terminal="out err")
            assert result.code == 75
            check_run(result)
            assert len(result.out) < 40_000
    for path in files:
        check_text(path.read_text("utf-8"))
    error = check_text(files[0].read_text("utf-8"))["steps"][-1]["error"]
    assert len(error["message"]) < 3000


@pytest.mark.parametrize(
    ("name", "options"),
    [("\x1b]0;owned\x07\x9b31m\u202e\u2066[blink]:skull:\x00\r\n\x7f\u2028", ["-k"]), ("w" * 8_000, [])],
    ids=["controls, shown", "long, refused"],
)
def test_the_names_of_a_certificate_are_harmless(run_tool, tmp_path, name, options):
    certificate = hostile_certificate(tmp_path, name)
    trust = options or ["--cacert", certificate]
    with http_server(tls=server_context(certificate)) as server:
        for without in ((), ("rich",)):
            arguments = [*trust, "--json", tmp_path / "out.json", server.url()]
            result = run_tool(*arguments, terminal="out err", without=without)
            check_run(result)
            assert len(result.out) < 60_000
        check_run(run_tool("--compact", *trust, server.url(), terminal="out err"))
    [step] = check_text((tmp_path / "out.json").read_text("utf-8"))["steps"]
    assert step["network"]["cert_cn"] == name
