"""For hands that know curl: lines that browsers copy, its options, and what there is in their place."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from checks import check_usage_error, flat
from servers import PATIENCE_WITH_PROGRAMS, Reply, http_server

GZIP = "gzip, deflate, br, zstd"
FORM = "application/x-www-form-urlencoded"

# As it is pasted: ANSI-C quoting where there is a ' or a !, --data-raw, --compressed.
PASTED = r"""httphases 'http://shop.example/say' \
  -H 'content-type: text/plain;charset=UTF-8' \
  -H 'Connection: keep-alive' \
  -H 'Accept-Encoding: gzip, deflate, br, zstd' \
  --data-raw $'it\'s \u0021 50% "off"\\n\n\ttab' \
  --compressed"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, in whose quoting they are")
def test_what_a_browser_copies_for_curl_is_sent_as_it_says(program, base_environment, server):
    line = PASTED.replace("http://shop.example", server.url("").rstrip("/"), 1)
    script = f'httphases() {{ "{sys.executable}" {program} -s "$@"; }}\n{line}\n'
    env, patience = {**base_environment, "LC_ALL": "C.UTF-8"}, PATIENCE_WITH_PROGRAMS
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, env=env, timeout=patience)
    [request] = server.requests
    assert (done.returncode, done.stderr) == (0, b"")
    assert (request.method, request.target) == ("POST", "/say")
    assert request.body == b'it\'s ! 50% "off"\\n\n\ttab'
    sent = {name.lower(): value for name, value in request.headers}
    assert (sent["accept-encoding"], sent["connection"]) == (GZIP, "keep-alive")
    assert sent["content-type"] == "text/plain;charset=UTF-8" and len(sent) == len(request.headers)


def sent_with(run, server, *words, warned=()):
    """Run the program; return the request that arrived."""
    result = run(*words, "--metrics-only", server.url())
    assert result.warned(*warned).code == 0
    return server.requests[-1]


def test_an_option_for_a_field_sends_it_once_and_h_wins(call_tool, server):
    for words, field, value in (
        (["-A", "probe/1"], "User-Agent", "probe/1"),
        (["--referer", "http://a.test/"], "Referer", "http://a.test/"),
        (["-b", "a=1; b=2", "--cookie", "c=3"], "Cookie", "a=1; b=2; c=3"),
        (["-u", "bob:hunter:2"], "Authorization", "Basic Ym9iOmh1bnRlcjoy"),
        (["-u", "-b:€"], "Authorization", "Basic LWI64oKs"),
        (["--compressed"], "Accept-Encoding", GZIP),
    ):
        assert sent_with(call_tool, server, *words).values(field) == [value]
        given = [*words, "-H", f"{field.lower()}: mine"]
        assert sent_with(call_tool, server, *given).values(field) == ["mine"]
    assert sent_with(call_tool, server, "-H", "x-a;").values("x-a") == [""]


JOINED = "the body is sent as text/plain; charset=utf-8; to send it as curl does: -H 'Content-Type: " + FORM


def test_data_is_joined_in_order_and_a_type_that_curl_would_not_name_is_told(call_tool, server, tmp_path):
    (tmp_path / "b.json").write_bytes(b"{}\r\n")
    words = ["-d", "a=1", "--data-raw", "@x", "--data-binary", f"@{tmp_path}/b.json", "--data-ascii", "-c"]
    request = sent_with(call_tool, server, *words, warned=[JOINED])
    assert (request.method, request.body) == ("POST", b"a=1&@x&{}\r\n&-c")
    assert request.values("Content-Type") == ["text/plain; charset=utf-8"], "no part's extension counts"
    typed = sent_with(call_tool, server, "-d", "a=1", "-d", "b=2", "-H", f"Content-Type: {FORM}")
    assert (typed.body, typed.values("Content-Type")) == (b"a=1&b=2", [FORM])
    assert sent_with(call_tool, server, "--data-ascii", "a=1", warned=[JOINED]).body == b"a=1"
    json_type = "the body is sent as application/json; to send it as curl does:"
    assert sent_with(call_tool, server, "--data-raw", "{}", warned=[json_type]).body == b"{}"
    assert sent_with(call_tool, server, "--data-raw", "a=1", "-H", "content-type: x/y").body == b"a=1"


def test_head_is_a_method_and_an_explicit_one_wins_over_it(call_tool, server):
    for words in ("-I", "--head", "-sI", "-I -X head"):
        assert call_tool(*words.split(), server.url()).code == 0
        assert server.requests[-1].method == "HEAD"
    assert sent_with(call_tool, server, "-I", "-X", "GET").method == "GET"
    assert sent_with(call_tool, server, "-I", "-d", "x", warned=["HEAD with a request body"]).method == "HEAD"


def test_a_url_may_have_an_option_of_its_own(call_tool, server):
    assert call_tool("--compact", "--url", server.url("/a")).code == 0
    assert server.requests[-1].target == "/a"
    for words in ([server.url("/b")], ["--url", server.url("/b")]):
        check_usage_error(call_tool("--url", server.url(), *words), "expected one URL, got 2 words")


def test_patterns_of_curl_lose_their_backslash_and_nothing_else_does(call_tool, server):
    for words in ([], ["-g"], ["--globoff"]):
        assert call_tool(*words, "--compact", server.url("/\\[1-3\\]\\{a\\}[b]{c}\\d")).code == 0
        assert server.requests[-1].target == "/[1-3]{a}[b]{c}\\d"


def test_where_h2_is_not_there_the_report_says_that_http2_was_not_offered(run_tool, tls):
    with http_server(tls=tls) as server:
        alone = run_tool("-k", server.url(), without=("h2", "rich"))
        both = run_tool("-k", "--count", "2", server.url(), "--vs", "--http1.1", without=("h2", "rich"))
    assert "Protocol     HTTP/1.1 (HTTP/2 was not offered: the package h2 is not here)\n" in alone.out
    both.warned("HTTP/2 is not offered on any side, because the package h2 is not here")


def test_silence_leaves_the_exit_code_alone(call_tool, server):
    styles = ([], ["--compact"], ["--metrics-only"], ["--slo", "total=0.001"])
    for option, style in zip(("-s", "--silent", "-sS", "-Ss"), styles):
        result = call_tool(option, "-X", "GET", "-d", "x", *style, server.url())
        assert (result.code, result.out) == (4 * ("--slo" in style), "")
        assert bool(result.err) is ("--slo" in style)


def test_a_series_in_silence_draws_no_progress(run_tool):
    with http_server({"/": Reply(404, wait=0.1)}) as server:
        result = run_tool("-s", "-f", "--count", "5", "--interval", "0", server.url(), terminal="out err")
    assert (result.code, result.out) == (22, "")
    assert result.err.replace("\r", "") == "httphases: error page (404) in 5 of 5 runs\n"


SLIPS = {  # of hands that know curl and other tools -> what is meant
    "--count": ("-n 5", "-c5", "--times=5", "-repeat 5"),
    "--duration": ("--watch", "-z 3s"),
    "-s": ("--quiet",),
    "-x ''": ("--noproxy a.test",),
    "-x socks5://HOST:PORT": ("--socks5 127.0.0.1:1080",),
    "-i": ("--trace", "-v", "-kv", "-debug"),
    "--metrics-only": ("-w %{time_total}", "--write-out=%{time_total}"),
    "user:password@": ("--proxy-user bob:secret", "-nGUsecret"),
    "--key-password-file": ("--pass secret", "--client-key a.pem"),
    "leave it out": ("-p", "-no-keepalive", "--limit-rate 1k"),
    "-H @FILE": ("--bearer t0ken", "--oauth2-bearer t0ken"),
    "--json PATH": ("-output=secret",),
    "--versus": ("--next",),
    "--resolve": ("--dns-servers 192.0.2.1",),
    "-H 'Host: HOST'": ("--connect-to a.test:443:b.test:8443",),
}


def test_a_slip_of_other_tools_hands_has_its_answer(call_tool, server):
    for meant, slips in SLIPS.items():
        for slip in slips:
            result = call_tool(*slip.split(), server.url())
            check_usage_error(result)
            assert re.search(f"(?<![\\w-]){re.escape(meant)}(?![\\w-])", flat(result.err)), slip
            assert not re.search("did you mean|secret|t0ken", result.err)
    assert server.accepted == 0
