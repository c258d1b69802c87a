"""The deadline of -m: when it passes, and that what was measured is reported.

In which phase it is said to have passed is in test_failures.py; that it holds whatever the peer does, in
hostile/.
"""

from __future__ import annotations

import contextlib
import re

import pytest

from checks import parse_instant
from paths import first
from servers import dns_server, http_server, redirect, scripted

DEADLINE = 1.0


def test_a_deadline_is_kept_to_within_100_ms(run_tool):
    """A busy machine wakes the program up later, but not each time."""

    def lateness():
        return run_tool("-m", 0.5, "--json", "-", server.url()).json()["steps"][0]["timing"]["total_ms"] - 500

    with scripted(lambda peer: peer.read_to_end()) as server:
        assert any(-20 <= lateness() < 100 for _ in range(5))


@pytest.mark.needs("root", "linux")
def test_a_resolver_that_is_silent_about_localhost_alone_holds_up_nothing(run_tool, server, tmp_path):
    """The program's own rehearsal of a lookup is for localhost; here no file has that name."""
    (tmp_path / "nsswitch.conf").write_text("hosts: dns\n")
    script = f'mount --bind "{tmp_path}/nsswitch.conf" /etc/nsswitch.conf && exec "$@"'
    with dns_server({"localhost": None, "web.test": ["127.0.0.1"]}) as names:
        result = run_tool(
            *("-m", "10", "--metrics-only", "-4", server.url(host="web.test")),
            resolver=names.address,
            within=["sh", "-c", script, "sh"],
        )
        assert ("localhost", "A") in names.questions
    assert result.code == 0, result.err


def test_the_deadline_is_one_for_the_whole_chain(run_tool):
    """A deadline of its own would give the second step as long as both have."""
    with contextlib.ExitStack() as held:
        silent = held.enter_context(scripted(lambda peer: peer.read_to_end()))
        late = redirect(silent.url())._replace(wait=DEADLINE / 2)
        start = held.enter_context(http_server({"/": late}))
        words = ("-L", "-m", DEADLINE, "--json", "-", start.url())
        result = run_tool(*words, within=first())
    steps = result.json()["steps"]
    step = steps[1]
    assert result.code == 75 and steps[0]["response"]["status"] == 302
    assert step["error"]["kind"] == "timeout" and step["error"]["phase"] in ("connect", "wait")
    begun, last = (parse_instant(each["started_at"]) for each in steps)
    lasted = (last - begun).total_seconds() * 1000 + step["timing"]["total_ms"]  # and what is between steps
    assert lasted >= DEADLINE * 1000 - 20
    advice = r"What came before left wait only \d+(\.\d)? ms of that time: look there first; or give it "
    assert re.match(advice, step["error"]["hint"])
