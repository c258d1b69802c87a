"""Name servers that lie, stammer, wander in circles or say nothing."""

from __future__ import annotations

import struct

import pytest

from hostile.cases import check_manners
from servers import dns_server, scripted, sending

NAME = b"\1a\4test\0"


def record(name: bytes, kind: int, data: bytes) -> bytes:
    return name + struct.pack("!HHIH", kind, 1, 60, len(data)) + data


def question(query: bytes) -> bytes:
    return query[12 : query.index(b"\0", 12) + 5]


def answered(query: bytes, *records: bytes, flags: int = 0x8180) -> bytes:
    """Make a well-formed message with these records."""
    counts = struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    return query[:2] + counts + question(query) + b"".join(records)


LOOP = [record(b"\xc0\x0c", 5, b"\1b\4test\0"), record(b"\1b\4test\0", 5, NAME)]

ANSWERS = {
    "nothing": lambda query: [],
    "noise of the right number": lambda query: [query[:2] + b"\xff" * 500],
    "refused": lambda query: [answered(query, flags=0x8185)],
    "server failure": lambda query: [answered(query, flags=0x8182)],
    "no such name": lambda query: [answered(query, flags=0x8183)],
    "no such record": lambda query: [answered(query)],
    "cut short": lambda query: [answered(query, flags=0x8380)],
    "a loop of names": lambda query: [answered(query, *LOOP)],
    "escape sequences": lambda query: [answered(query, record(b"\xc0\x0c", 5, b"\4\x1b[2J\4test\0"))],
    "a thousand answers": lambda query: [answered(query, flags=0x8182)] * 1000,
}


@pytest.fixture
def ask(run_tool):
    """Ask for a URL through a name server; prove the manners; return the document."""

    def run(address: str, url: str, *options: str, seconds: float = 1.0) -> dict:
        words = [url, "-m", str(seconds), "--json", "-", "--metrics-only", *options]
        result = run_tool(*words, resolver=address)
        check_manners(result)
        document = result.json()
        assert result.code == (75 if document["summary"]["errors"] else 0)
        return document

    return run


@pytest.mark.needs("linux")
@pytest.mark.parametrize("name", ANSWERS)
def test_a_name_server_that_answers_wrongly_is_a_failed_lookup_in_time(ask, name):
    with dns_server(ANSWERS[name]) as names:
        (step,) = ask(names.address, "http://a.test/")["steps"]
    assert step["error"]["phase"] == "dns"
    assert step["error"]["kind"] in ("dns", "timeout")
    assert step["timing"]["connect_ms"] is None


@pytest.mark.needs("linux")
def test_an_answer_that_comes_too_late_is_a_timeout(ask):
    with dns_server({"a.test": ["127.0.0.1"]}, delay=9) as names:
        (step,) = ask(names.address, "http://a.test/")["steps"]
    assert (step["error"]["kind"], step["error"]["phase"]) == ("timeout", "dns")


@pytest.mark.needs("linux")
@pytest.mark.parametrize("option", ["-4", "-6"])
def test_a_name_without_the_wanted_family_is_a_failed_lookup(ask, option):
    zone = {"a.test": ["::1"] if option == "-4" else ["127.0.0.1"]}
    with dns_server(zone) as names:
        (step,) = ask(names.address, "http://a.test/", option, seconds=30)["steps"]
    assert (step["error"]["kind"], step["error"]["phase"]) == ("dns", "dns")


@pytest.mark.needs("linux")
def test_a_redirect_to_a_name_that_is_not_found_keeps_the_first_step(ask):
    response = b"HTTP/1.1 302 Moved\r\nLocation: http://gone.test/\r\nContent-Length: 0\r\n\r\n"
    with scripted(sending(response)) as server, dns_server({"a.test": ["127.0.0.1"]}) as names:
        first, second = ask(names.address, server.url(host="a.test"), "-L", seconds=30)["steps"]
    assert first["response"]["status"] == 302
    assert (second["error"]["kind"], second["error"]["phase"]) == ("dns", "dns")
