"""What is wrong with this machine: no port left for a destination, a clock that is off."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import socket
from email.utils import format_datetime

import pytest
from test_findings import lab, on_a_path

from checks import flat
from inside import tool
from paths import FAR
from servers import Reply, http_server, scripted, sending

assert lab  # a fixture
NOW = datetime.datetime.now(datetime.timezone.utc)


@on_a_path
def test_ports_that_are_used_up_are_counted(lab):
    lab.start(0.0005, ipv4__ip_local_port_range="40000 40039")
    url = lab.http()
    port = int(url.rpartition(":")[2])

    def use_up():
        held = contextlib.ExitStack()
        with contextlib.suppress(OSError):
            while True:
                held.enter_context(socket.create_connection((FAR, port), 10))
        return held

    with lab.way.call(use_up):
        shown = lab.run_tool(url + "/", within=lab.way.near)
    told = re.search(
        r"no local port is left for this destination: (\d+) connections to it "
        r"\(ip_local_port_range, TIME_WAIT\)",
        flat(shown.out),
    )
    assert shown.code == 75 and told and 30 <= int(told[1]) <= 40, shown.out
    assert "netstat -tan" in flat(shown.out)


@on_a_path
def test_an_address_that_is_not_there_is_no_lack_of_ports(lab):
    lab.start(0.0005)
    shown = lab.run_tool("--interface", "192.0.2.1", f"http://{FAR}/", within=lab.way.near)
    assert shown.code == 64 and "local port" not in shown.err


def reply(offset, *headers):
    date = format_datetime(
        datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=offset), True
    )
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 200 Fine\r\nDate: {date}\r\n{fields}Content-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (7200, "the server's clock is 2 h ahead of this machine's"),
        (-300, "the server's clock is 5 min behind this machine's"),
        (90, " s ahead of this machine's"),
        (-3 * 86400, "the server's clock is 3 days behind this machine's"),
        (50, None),
        (-50, None),
    ],
)
def test_a_clock_that_is_off_is_noted(run_tool, offset, words):
    with scripted(lambda peer: sending(reply(offset))(peer)) as server:
        shown = flat(run_tool(server.url()).out)
        skew = run_tool("--json", "-", server.url()).json()["steps"][0]["response"]["clock_skew_s"]
    assert (words in shown) if words else ("clock" not in shown)
    assert skew == pytest.approx(offset, abs=3) if words else skew is None


def test_what_a_cache_kept_says_nothing_of_a_clock(run_tool):
    with scripted(lambda peer: sending(reply(-7200, ("Age", "7200")))(peer)) as server:
        assert run_tool("--json", "-", server.url()).json()["steps"][0]["response"]["clock_skew_s"] is None


@pytest.mark.parametrize(
    "date",
    [
        "",
        "yesterday",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 31 Feb 2020 08:49:37 GMT",
        "S, 1 Jan " + "9" * 30 + " 0:0:0 GMT",
    ],
)
def test_a_date_that_cannot_be_read_says_nothing_of_a_clock(date):
    response = tool.Response(200, "", "HTTP/1.1", (("Date", date.encode()),), None)
    assert tool.clock_skew(response, NOW) is None


def test_a_certificate_that_is_not_valid_yet_is_told_with_both_times(run_tool, authority):
    begins = NOW.replace(microsecond=0) + datetime.timedelta(days=3)
    with http_server({"/": Reply(body=b"")}, tls=authority.context(not_before=begins)) as server:
        result = run_tool("--json", "-", "--cacert", authority.file, server.url())
    message = json.loads(result.out)["steps"][0]["error"]["message"]
    assert f"notBefore {begins:%Y-%m-%d %H:%M:%S} UTC" in message
    assert f"this machine's time {NOW:%Y-%m-%d}" in message
