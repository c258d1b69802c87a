"""What holds for every input of every parser; hypothesis looks for one that breaks it, each time alike."""

from __future__ import annotations

import pytest

from inside import tool
from samples import sample

pytest.importorskip("hypothesis", reason="hypothesis, which makes up the inputs, is not installed")

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

steadily = settings(derandomize=True, database=None, deadline=None, max_examples=150)
steadily = settings(steadily, suppress_health_check=list(HealthCheck))

HOME = tool.parse_url("http://home.test:8080/a/b?c")
SECRET = "s3cret-w0rd"

any_text = st.text(max_size=60)
PIECES = "http:// https:// // / : @ ? # [ ] . .. % \\ & = :80 :0 [::1] a.test ä.test %25eth0".split()
url_like = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=10).map("".join)


def attempt(function, *arguments, errors=tool.UsageError):
    """Call a parser; return its result, or the error it is allowed to raise."""
    try:
        return function(*arguments)
    except errors as error:
        return error


@steadily
@given(url_like)
def test_a_url_is_refused_or_comes_out_normal(text):
    url = attempt(tool.parse_url, text)
    if isinstance(url, tool.UsageError):
        assert url.message
        return
    assert url.scheme in ("http", "https") and url.host and 1 <= url.port <= 65535
    assert all(0x20 < ord(char) < 0x7F for char in url.text)
    assert tool.parse_url(url.text) == url


@steadily
@given(st.sampled_from(tool.SLO_KEYS), st.integers(2, 4 * 10**9))
def test_a_time_equal_to_its_budget_keeps_it_and_a_microsecond_less_does_not(key, taken):
    """Both as they are printed and read: on the wire equality cannot be staged."""
    step = sample(1, taken)._replace(timing=tool.Timing(*[taken] * len(tool.Timing._fields)))

    def judged(budget):
        thresholds = tool.parse_budgets([f"{key}={budget // 1000}.{budget % 1000:03d}"], None, 1.0)
        return tool.judge_time(key, thresholds[key], [tool.Run((step,), False)])

    assert judged(taken).outcome == "kept"
    assert (judged(taken - 1).outcome, judged(taken - 1).excess) == ("exceeded", 0.001)


@steadily
@given(url_like)
def test_a_proxy_is_refused_or_whole_and_its_password_never_shown(text):
    assume("@" not in text)
    found = attempt(tool.parse_proxy, f"http://user:{SECRET}@{text}", "--proxy")
    assert SECRET not in (found.message if isinstance(found, tool.UsageError) else found.shown)
    if not isinstance(found, tool.UsageError):
        assert found.host and 1 <= found.port <= 65535


@steadily
@given(st.one_of(st.binary(max_size=60), url_like.map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_a_location_leads_to_a_url_or_nowhere(location):
    found = attempt(tool.resolve_location, HOME, [location], errors=tool.NetworkError)
    if isinstance(found, tool.NetworkError):
        assert found.kind == "redirect" and found.message and found.hint
        return
    assert all(0x20 < ord(char) < 0x7F for char in found.text)
    assert tool.parse_url(found.text) == found


@steadily
@given(any_text)
def test_what_is_shown_is_printable(text):
    assert tool.visible(text).isprintable()
    assert tool.visible(tool.visible(text)) == tool.visible(text)
