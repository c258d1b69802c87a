"""How reports are drawn: bars of whole cells, tones that can be read, frames of one width, a chain on one
time axis, and what is not said twice.
"""

from __future__ import annotations

import re

import pytest

from inside import tool
from screens import SGR, TERMINAL, fields_of, lines_of
from servers import Reply, http_server, redirect, refused_port

PALE = {"PYTHONIOENCODING": "ascii"}


def rows_of(text: str, first: str) -> dict[str, list[str]]:
    """Return the cells of the rows of tables whose first cell matches a pattern, by that cell.

    Where there are no frames, a rule tells where columns stand.
    """
    found, places = {}, []
    for line in (line.rstrip("\r") for line in lines_of(text)):
        if re.fullmatch("-+(?:  -+)+", line):
            places = [match.span() for match in re.finditer("-+", line)]
        row = [cell[1:-1] for cell in re.split("[│|]", line)[1:-1]] or [
            line.ljust(120)[slice(*place)] for place in places
        ]
        if row and re.fullmatch(first, row[0].strip()):
            found[row[0].strip()] = row[1:]
    return found


def phase_rows(text: str) -> dict[str, list[str]]:
    """Return the cells of a waterfall's rows: duration, bar."""
    return rows_of(text, "dns|connect|tls|wait|xfer|ttfb|total")


def us(step, key: str) -> int | None:
    value = step["timing"][f"{key}_ms"]
    return None if value is None else round(1000 * value)


@pytest.fixture
def slow():
    """A server each of whose phases takes another time."""
    with http_server({"/": Reply(body=b"x" * 4000, wait=0.03, xfer=0.011)}) as server:
        yield server


@pytest.fixture
def encrypted(tls):
    """A chain of two steps on one server with TLS."""
    with http_server(
        {"/": redirect("/end"), "/end": Reply(headers=[("Location", "/made")])}, tls=tls
    ) as server:
        yield server


def test_a_bar_stands_where_its_time_lies_and_has_a_cell_at_the_least():
    bars = {(0, 100, 100): 10 * "█", (37, 50, 100): "    █████", (26, 8, 100): "   █"}
    bars.update({(0, 1, 1000): "█", (998, 2, 1000): "         █"})
    assert {each: tool.Bar(*each, "").draw(10) for each in bars} == bars


@pytest.mark.parametrize(("without", "env"), [((), {}), (("rich",), PALE)], ids=["rich", "plain ascii"])
def test_the_bars_of_a_report_are_those_of_its_phases(run_tool, slow, tmp_path, without, env):
    path, mark = tmp_path / "out.json", "#" if env else "█"
    result = run_tool("--json", path, slow.url(), env={"COLUMNS": "90", **env}, without=without)
    [step] = result.json(path)["steps"]
    rows, begin, total = phase_rows(result.out), 0, us(step, "total")
    for phase in ("dns", "connect", "wait", "xfer"):
        bar, length = rows[phase][1], us(step, phase)
        drawn = tool.Bar(begin, length, total, "").draw(len(bar)) if length else ""
        assert bar.rstrip() == drawn.replace("█", mark), phase
        begin += length
    assert not rows["ttfb"][1].strip() and not rows["total"][1].strip()


def test_a_phase_that_was_not_reached_has_no_bar(run_tool):
    with refused_port() as port:
        result = run_tool(f"http://127.0.0.1:{port}/", terminal="out", env=TERMINAL)
    rows = phase_rows(result.out)
    told = {phase: (row[0].strip() != "-", bool(row[1].strip())) for phase, row in rows.items()}
    assert told.pop("connect") == (True, True) and told.pop("dns") == told.pop("total") == (True, False)
    assert {*told.values()} == {(False, False)}


PHASE_TONES = {"dns": 30, "connect": 63, "tls": 130, "wait": 133, "xfer": 28}
TONES = {**PHASE_TONES, "good": 28, "warn": 130, "slow": 130, "bad": 161, "label": 243}


def codes_of(text: str) -> set[str]:
    """Return what a report asks a terminal for: one code, or a shade of the 256, each."""
    return set(re.findall(r"[34]8;5;\d+|\d+", " ".join(found[2:-1] for found in SGR.findall(text))))


@pytest.mark.needs("rich")
def test_only_tones_that_any_background_shows_are_used_and_nothing_is_faint(run_tool, encrypted):
    words = ("-L", "-k", "--slo", "total=0.01", encrypted.url())
    out = run_tool(*words, terminal="out", env=TERMINAL, columns=100).out
    assert codes_of(out) <= {f"38;5;{number}" for number in TONES.values()} | {"0", "1"}
    assert "38;5;243" in codes_of(out) and "\x1b[38;5;161m• total" in out
    for phase, number in PHASE_TONES.items():
        assert re.search(rf"\x1b\[38;5;{number}m{phase}\b", out), phase


def test_all_steps_lie_on_one_time_axis(call_tool, tmp_path):
    """The first and the last of three take their time."""
    path, slow = tmp_path / "out.json", redirect("/b")._replace(wait=0.05)
    with http_server({"/": slow, "/b": redirect("/c"), "/c": Reply(wait=0.16)}) as server:
        result = call_tool("-L", "--json", path, server.url(), env={"COLUMNS": "110"})
    steps = result.json(path)["steps"]
    rows, end, begin = rows_of(result.out, r"\d"), sum(us(step, "total") for step in steps), 0
    for step in steps:
        bar, spent = rows[str(step["step_number"])][3], us(step, "total")
        assert bar.rstrip() == tool.Bar(begin, spent, end, "").draw(len(bar))
        begin += spent
    assert re.search(rf" {end / 1000:.1f} ms +│? +in all", result.out)


def test_what_is_the_same_as_in_the_step_before_is_named_and_not_said_again(call_tool, encrypted, authority):
    out = call_tool("-L", "--cacert", authority.file, encrypted.url()).out
    assert re.match("as step 1: Address, Protocol, TLS, Certificate", fields_of(out, "Same")[0])
    for label in ("Address", "Protocol", "TLS", "Certificate"):
        assert len(fields_of(out, label)) == 1, label
    assert len(fields_of(out, "Response")) == 2
    assert re.fullmatch(r"TLS 1\.[23], (TLS_|ECDHE-)\w+, verified with --cacert", fields_of(out, "TLS")[0])
    assert re.match(r"CN localhost, expires in \d+ days \(20", fields_of(out, "Certificate")[0])


def test_a_redirect_that_is_not_followed_says_how_to(call_tool, encrypted):
    shown = [fields_of(call_tool("-k", encrypted.url(path)).out, "Location") for path in ("/", "/end")]
    assert shown == [["/end (not followed: -L)"], ["/made"]]
    assert fields_of(call_tool("-k", "-L", encrypted.url()).out, "Location") == ["/end", "/made"]


def test_a_failure_is_named_by_its_phase_its_kind_and_its_exit_code(call_tool, encrypted):
    with refused_port() as port:
        for url, told in (
            (encrypted.url(), r"in tls \(exit 75\)"),
            (f"http://127.0.0.1:{port}/", r"in connect \(network, exit 75\)"),
            ("http://a.invalid/", r"in dns after [\d.]+ ms \(exit 75\)"),
        ):
            result = call_tool(url)
            assert re.fullmatch(told, fields_of(result.out, "Failed")[0]) and result.code == 75
            assert fields_of(result.out, "TLS") == [], "nothing was agreed on"
    assert not re.search("Phase", result.out), "a lookup that failed has no table of dashes"


def test_what_says_nothing_is_not_drawn(call_tool, proxy):
    """Neither the TLS of plain http, nor that nothing was sent again; the address is whose it is."""
    fields = [("Server", "nginx/1.25"), ("Content-Encoding", "gzip")]
    with http_server({"/": Reply(headers=fields, body=b"hello")}) as server:
        direct, behind = call_tool(server.url()).out, call_tool("-x", proxy.by_login, server.url()).out
    assert list(phase_rows(direct)) == ["dns", "connect", "wait", "xfer", "ttfb", "total"]
    assert re.fullmatch(r"round trip \d+\.\d\d ms", fields_of(direct, "Network")[0])
    assert fields_of(direct, "Response") == ["200 Fine, 5 B (gzip), from nginx/1.25"]
    for out, port in ((direct, f"{server.port}"), (behind, f"{proxy.port} (the proxy)")):
        assert fields_of(out, "Address") == [f"127.0.0.1 (IPv4), port {port}"]


def test_what_was_sent_in_50_ms_has_a_rate_in_the_units_of_sizes():
    texts = [tool.amount_text(20 << 20, "gzip", us) for us in (None, 49_999, 50_000, 234_467)]
    assert texts == ["20.0 MB (gzip)"] * 2 + ["20.0 MB (gzip) at 400.0 MB/s", "20.0 MB (gzip) at 85.3 MB/s"]
    assert tool.amount_text(0, "gzip", 60_000) == "0 B", "of HEAD: nothing came in any coding"
