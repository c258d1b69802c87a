"""Name servers that lie, stammer, wander in circles or say nothing."""

from __future__ import annotations

import struct

import pytest

from hostile.cases import check_manners
from inside import only_step
from servers import dns_server


def record(name: bytes, kind: int, data: bytes) -> bytes:
    return name + struct.pack("!HHIH", kind, 1, 60, len(data)) + data


def answered(query: bytes, *records: bytes, flags: int = 0x8180) -> bytes:
    """Make a well-formed message with these records."""
    question = query[12 : query.index(b"\0", 12) + 5]
    return query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) + question + b"".join(records)


LOOP = [record(b"\xc0\x0c", 5, b"\1b\4test\0"), record(b"\1b\4test\0", 5, b"\1a\4test\0")]

ANSWERS = {
    "noise of the right number": lambda query: [query[:2] + b"\xff" * 500],
    "cut short": lambda query: [answered(query, flags=0x8380)],
    "a loop of names": lambda query: [answered(query, *LOOP)],
    "escape sequences": lambda query: [answered(query, record(b"\xc0\x0c", 5, b"\4\x1b[2J\4test\0"))],
    "a thousand answers": lambda query: [answered(query, flags=0x8182)] * 1000,
}


@pytest.mark.needs("linux")
@pytest.mark.parametrize("name", ANSWERS)
def test_a_name_server_that_answers_wrongly_is_a_failed_lookup_in_time(run_tool, name):
    words = ("http://a.test/", "-m", "1", "--json", "-", "--metrics-only")
    with dns_server(ANSWERS[name]) as names:
        result = run_tool(*words, resolver=names.address)
    check_manners(result)
    step = only_step(result, 75)
    assert step["error"]["phase"] == "dns"
    assert step["error"]["kind"] in ("dns", "timeout")
    assert step["timing"]["connect_ms"] is None
