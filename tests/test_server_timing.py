"""What a response says of itself, Server-Timing, caches, header fields: it is shown and never trusted."""

from __future__ import annotations

import re

import pytest

from inside import here, only_step
from screens import fields_of
from servers import Reply, every, http_server, redirect, scripted, sending


def answered(*fields):
    """Ask a server that answers with these header fields; return the response of the JSON export."""
    with http_server({"/": Reply(headers=[field.split(": ", 1) for field in fields])}) as server:
        return only_step(here(server.url()))["response"]


def metrics(*values):
    """Return (name, duration, description) of what the lines of Server-Timing are read as."""
    found = answered(*(f"Server-Timing: {value}" for value in values))["server_timing"]
    return [tuple(metric.values()) for metric in found]


NO_DURATIONS = [*"-1 nan inf 1e999 1_0 0x1 5ms ٣ .".split(), "1 2", "9" * 400]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], []),
        (['cache;desc="Cache Read";dur=23'], [("cache", 23, "Cache Read")]),
        (["a;dur=1, b;dur=2,c;dur=3"], [("a", 1, None), ("b", 2, None), ("c", 3, None)]),
        (["A;DUR=1;DeSc=x"], [("A", 1, "x")]),
        (["a\t; dur =\t1 ; desc = x "], [("a", 1, "x")]),
        (["a;dur=1;dur=2;desc=x;desc=y"], [("a", 1, "x")]),
        (["a;other=1;dur=2;strange"], [("a", 2, None)]),
        ([r'a;desc="q\"u\\o, t;e=";dur=1'], [("a", 1, r'q"u\o, t;e=')]),
        (
            ['a;desc="no end;dur=1, b;dur=2', "c;dur=3"],
            [("a", None, "no end;dur=1, b;dur=2"), ("c", 3, None)],
        ),
        ([",,;dur=1, ,a"], [("a", None, None)]),
        (["a;dur=+7", "a;dur=1e-999", "a;dur=.5"], [("a", 7, None), ("a", 0, None), ("a", 0.5, None)]),
        ([f"a;desc=x;dur={text}" for text in NO_DURATIONS], [("a", None, "x")] * len(NO_DURATIONS)),
    ],
)
def test_metrics_are_read_as_the_standard_says(lines, expected):
    """Only a finite number from 0 is a duration; the metric stays."""
    assert metrics(*(line.encode().decode("latin-1") for line in lines)) == expected


def test_a_metric_hides_no_credential_from_the_mask():
    """Neither by an escape inside it, nor in a URL."""
    fields = [("Server-Timing", r'a;desc="s3cr\et-w0rd", b;desc="see http://u:p@host/"')]
    with http_server({"/": Reply(headers=fields)}) as server:
        result = here("-H", "X-Api-Key: s3cret-w0rd", server.url())
    response = only_step(result)["response"]
    assert [metric["description"] for metric in response["server_timing"]] == ["***", "see http://***@host/"]


def test_the_waterfall_lists_what_the_server_says_the_longest_first(run_tool):
    many = ", ".join(f"m{number};dur={number}" for number in range(1, 12))
    lines = [("Server-Timing", f'miss, {many}, db;dur=240.1;desc="all \x1b[31m queries"')]
    with http_server({"/": Reply(headers=lines)}) as server:
        result = run_tool(server.url(), env={"COLUMNS": "100"})
    said = re.findall(r"Server says\s+(.*\S)", result.out)
    assert said[0] == r"db 240.1 ms (all \x1b[31m queries)"
    assert said[1:] == [*(f"m{number} {number}.00 ms" for number in range(11, 0, -1)), "miss"]
    assert "\x1b" not in result.out


def test_the_waterfall_quotes_what_caches_say(call_tool):
    fields = [("X-Cache", "RefreshHit from cloudfront"), ("age", "86"), ("Via", "1.1 \x1b[31ma")]
    fields += [("Via", "1.1 s3cret-w0rd"), ("Cache-Status", "b; fwd=uri-miss; stored")]
    with http_server({"/": Reply(headers=fields), "/long": Reply(headers=[("Via", "x" * 9_000)])}) as server:
        [said] = fields_of(call_tool("-H", "X-Api-Key: s3cret-w0rd", server.url()).out, "Cache")
        assert said == (
            "X-Cache: RefreshHit from cloudfront; age: 86; Via: 1.1 \\x1b[31ma; Via: 1.1 ***; "
            "Cache-Status: b; fwd=uri-miss; stored"
        )
        [row] = fields_of(call_tool(server.url("/long")).out, "Cache")
        assert row.startswith("Via: xxx") and len(row) < 300
        assert "  Cache " not in call_tool(server.url("/none")).out


@pytest.mark.parametrize(("delay", "told"), [("30", "30 s"), ("Fri, 31 Dec 1999", "Fri, 31 Dec 1999")])
def test_when_to_ask_again_stands_in_the_response(call_tool, delay, told):
    with http_server({"/": Reply(429, headers=[("Retry-After", delay)])}) as server:
        assert f"429 Fine, retry after {told}, 0 B" in call_tool(server.url()).out


def shown_fields(text):
    return re.findall(r"  Header +(\S.*)", text)


def test_the_header_fields_are_shown_as_json_has_them(run_tool, tmp_path):
    fields = [
        ("Set-Cookie", "id=s3cret-w0rd"),
        ("X-Echo", "you said t0ken-of-mine"),
        ("X-Link", "http://user:pw@host/"),
        ("X-Evil", "\x1b[31m[bold]red"),
        ("X-Evil", "twice"),
    ]
    routes = {"/": redirect("/end"), "/end": Reply(headers=fields)}
    with http_server(routes) as server:
        arguments = ("-H", "X-Api-Key: t0ken-of-mine", "-L", "--json", tmp_path / "out", server.url())
        result = run_tool("--include", *arguments, env={"COLUMNS": "120"})
        plain, lines = run_tool(*arguments), run_tool("-i", "--compact", *arguments)
    assert shown_fields(plain.out) == [] and len(lines.out.splitlines()) == 2
    listed = [
        f"{header['name']}: {header['value']}".replace("\x1b", r"\x1b")
        for step in result.json(tmp_path / "out")["steps"]
        for header in step["response"]["headers"]
    ]
    assert shown_fields(result.out) == listed
    assert "Set-Cookie: ***" in listed and "X-Evil: twice" in listed
    for secret in ("s3cret-w0rd", "t0ken-of-mine", "user:pw", "\x1b"):
        assert secret not in result.out


NGINX = (
    b"<html>\r\n<head><title>400 Bad Request</title><style>p { color: red }</style></head>\r\n<body>\r\n"
    b"<script>alert('a > b')</script><!-- <p>old --><h1>The plain HTTP request was sent to HTTPS port</h1>"
    b"&lt;nginx&gt; &amp;amp;</body>\r\n</html>\r\n"
)
NGINX_SAYS = "400 Bad Request The plain HTTP request was sent to HTTPS port <nginx> &amp;"
HTML, JSON = ("Content-Type", "text/html; charset=utf-8"), ("Content-Type", "application/problem+json")


def says(call_tool, reply, *arguments):
    with http_server({"/": reply}) as server:
        return fields_of(call_tool(*arguments, server.url()).out, "It says")


def test_an_error_page_in_chunks_says_why_without_tags(call_tool):
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"".join(b"1\r\n%c\r\n" % each for each in NGINX) + b"0\r\n\r\n"
    with scripted(sending(head + body)) as server:
        assert fields_of(call_tool(server.url()).out, "It says") == [NGINX_SAYS]


def test_a_title_that_the_page_repeats_is_not_said_twice(call_tool):
    head = b"<html><head><title>ERROR: The URL was not retrieved</title></head>"
    squid = head + b"<body><h1>ERROR</h1><h2>The URL was not retrieved</h2>Access Denied.</body></html>"
    assert says(call_tool, Reply(403, squid, [HTML])) == ["ERROR The URL was not retrieved Access Denied."]
    assert says(call_tool, Reply(403, head, [HTML])) == ["ERROR: The URL was not retrieved"]


def test_of_a_long_page_the_beginning_is_shown(call_tool):
    page = b'{"detail": "no \n\t such user"}' + b" word" * 100_000
    [shown] = says(call_tool, Reply(404, page, [JSON]))
    assert shown.startswith('{"detail": "no such user"} word word') and len(shown) == 160
    cut = b"<style>" + b"x" * 4070 + b"</style>no such user here"  # 4,096 bytes end within "user"
    assert says(call_tool, Reply(404, cut, [HTML])) == ["no such…"]


def test_an_answer_that_was_not_expected_is_quoted_where_it_is_text(call_tool):
    degraded = '{"status": "degraded"}'
    for reply, words, quoted in (
        (Reply(200, degraded.encode(), [JSON]), ["--expect", "204"], [degraded]),
        (Reply(500, b"\x1f\x8bzip", [HTML, ("Content-Encoding", "gzip")]), [], []),
        (Reply(500, b"GIF89a", [("Content-Type", "image/gif")]), [], []),
        (Reply(200, b"fine", [HTML]), [], []),
        (Reply(404, b"as expected", [HTML]), ["--expect", "404"], []),
    ):
        assert says(call_tool, reply, *words) == quoted


def test_a_page_repeats_no_credential_and_sends_no_control_character(call_tool):
    secret = "pa>ss&word-1234"
    page = f"a {secret} b pa&gt;ss&amp;word-1234 c \x1b[31m\x07d".encode()
    [shown] = says(call_tool, Reply(401, page, [HTML]), "-u", f"me:{secret}")
    assert shown.startswith("a *** b *** c ") and "\x1b" not in shown and "\x07" not in shown


def test_a_series_quotes_a_page_once_for_each_status(call_tool):
    replies = every(*(Reply(status, b"sorry, %d" % status, [HTML]) for status in (503, 404)))
    said = says(call_tool, replies, "--count", "6", "--interval", "0")
    assert sorted(said) == ["404: sorry, 404", "503: sorry, 503"]
