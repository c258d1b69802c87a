"""The command line: what is accepted, what is refused and how, and what the request looks like then."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time

import pytest

from checks import check_usage_error, flat
from conftest import TOOL
from inside import tool
from servers import Reply, http_server, refused_port, scripted


def asked(run, *arguments, path="/", warned=None, **settings):
    """Run the program against a plain server; return the one request that arrived there.

    `warned` is what the one warning is about.
    """
    with http_server() as server:
        result = run(*arguments, "--metrics-only", server.url(path), **settings)
        assert result.code == 0, result.err
        if warned:
            result.warned(warned)
        [request] = server.requests
        return request


# --- every option, in every place that must know it ------------------------------------------------

ACTIONS = [action for action in tool.build_parser(80)._actions if action.option_strings]
TAKING_VALUES = [action for action in ACTIONS if action.nargs is None]
FLAGS = [action for action in ACTIONS if action.nargs == 0]
SPELLINGS = [name for action in ACTIONS for name in action.option_strings]
WRITING = [action for action in TAKING_VALUES if action.help.startswith("write ")]
AGAIN = {  # what a second value does, by the option's first spelling
    "is added": "-d --data-raw -H -b --url --resolve --slo --versus",
    "is the one that counts": (
        "-X -A -e -u -m -x --unix-socket --interface --cacert --cert --key --key-password-file --count"
        " --interval --duration --cert-days --expect --json --har --prometheus --label --otlp --slo-file"
        " --baseline"
    ),
}


def test_every_option_with_a_value_has_a_place_among_those():
    """A new option has to be put there, and the tests below hold the program to it."""
    assert sorted(" ".join(AGAIN.values()).split()) == sorted(
        each.option_strings[0] for each in TAKING_VALUES
    )
    assert {type(each).__name__ for each in ACTIONS if each not in TAKING_VALUES + FLAGS} == set()


@pytest.mark.parametrize("action", TAKING_VALUES, ids=lambda action: action.option_strings[0])
def test_a_second_value_is_added_or_the_one_that_counts(action):
    option, other = action.option_strings[0], action.option_strings[-1]
    words = [option, "a", other, "b", "http://127.0.0.1:1/"]
    args = tool.build_parser(80).parse_all(words)
    expected = ["a", "b"] if option in AGAIN["is added"].split() else "b"
    if action.dest == "data":
        expected = [(option, "a"), (other, "b")]
    assert getattr(args, action.dest) == (expected if option != "--url" else [*expected, words[-1]])


def test_the_tables_of_readme_list_every_option_as_it_is():
    """Each row begins with all spellings of an option, the last one with the name of its value."""
    section = (
        (TOOL.parent / "README.md").read_text("utf-8").partition("\n## Options\n")[2].partition("\n## ")[0]
    )
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `-")]
    listed = [text for row in rows for text in re.findall("`([^`]+)`", row)]
    expected = []
    for action in ACTIONS:
        *others, last = action.option_strings
        value = action.metavar if action in TAKING_VALUES else None
        expected += [*others, f"{last} {value}" if value else last]
    assert sorted(listed) == sorted(expected)


def test_what_curl_has_and_this_has_not_is_answered_with_options_that_are_there():
    for spelling in SPELLINGS:
        hint = tool.instead_of(spelling)
        assert hint.startswith(("did you mean", "--help lists")), "it is an option of ours"
    for entry in tool.FOREIGN_OPTIONS.strip().split("\n-"):
        hint = " ".join(entry.split()).partition(" = ")[2]
        assert hint, entry
        named = re.findall(r"(?<![\w-])--?[A-Za-z][\w.-]*", re.sub("\"[^\"]*\"|'[^']*'", "", hint))
        assert set(named) <= set(SPELLINGS), hint


@pytest.mark.parametrize(
    "letter", [name[1] for action in FLAGS for name in action.option_strings if name[1] != "-"]
)
def test_a_flag_of_one_letter_may_stand_before_others(letter):
    if letter != "h":  # nobody wants help and something else
        assert list(tool.split_words([f"-{letter}Xput"])) == [f"-{letter}", "-Xput"]


@pytest.mark.parametrize("action", WRITING, ids=lambda action: action.option_strings[0])
def test_what_writes_a_file_wants_a_path_of_its_own(call_tool, server, tmp_path, action):
    [option] = action.option_strings
    check_usage_error(call_tool(option, "", server.url()), option, "expected a path")
    path = tmp_path / "out"
    for other in WRITING:
        if other is not action:
            words = [option, path, *other.option_strings, path]
            check_usage_error(call_tool(*words, server.url()), *other.option_strings, option, "both write to")
    assert server.accepted == 0 and not path.exists()


# --- help and version -----------------------------------------------------------------------------

OPTIONS = [
    "-X",
    "--request",
    "--method",
    "-d",
    "--data",
    "-H",
    "--header",
    "-L",
    "--location",
    "--follow",
    "-m",
    "--max-time",
    "--timeout",
    "--no-http2",
    "--http1.1",
    "-k",
    "--insecure",
    "--ignore-ssl",
    "-x",
    "--proxy",
    "--cacert",
    "--ca-bundle",
    "-f",
    "--fail",
    "-4",
    "--ipv4",
    "-6",
    "--ipv6",
    "--resolve",
    "--compact",
    "--metrics-only",
    "--json",
    "--har",
    "--version",
    "--slo",
    "--slo-file",
    "-h",
    "--help",
]


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_goes_to_stdout_and_succeeds(run_tool, flag):
    result = run_tool(flag)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("usage: httphases ")


def test_help_names_every_option_every_exit_code_and_the_defaults(run_tool):
    text = run_tool("--help").out
    for option in OPTIONS:
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w.-])", text), option
    for code in (0, 4, 22, 47, 64, 70, 73, 75, 129, 130, 143):
        assert re.search(rf"(?<![\w.]){code} [a-zA-Z]", text.partition("exit codes")[2]), code
    for word in "KEY=MS KEY=+MS KEY=+N% HOST:PORT:ADDR SECONDS 20 10 2xx,401 socks5h".split():
        assert word in text, word
    assert len(re.findall(r"^\s+(?:\$ )?httphases .*https?://", text, re.MULTILINE)) >= 3
    for word in ("; --versus: 20)", "(default: 1; --versus: 0)", "300ms"):
        assert word in flat(text), "the defaults of a comparison too"


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_help_can_be_had_at_any_width(run_tool, columns):
    result = run_tool("--help", env={"COLUMNS": columns})
    assert result.code == 0
    assert "--metrics-only" in result.out


def test_version_names_the_program_and_needs_no_url(run_tool):
    result = run_tool("--version")
    assert (result.code, result.err) == (0, "")
    assert re.fullmatch(r"httphases \d+\.\d+\S*\n", result.out)


def test_version_makes_no_request(call_tool, server):
    assert call_tool("--version", server.url()).code == 0
    assert server.accepted == 0


# --- options as such ------------------------------------------------------------------------------


def test_no_url_at_all_is_a_usage_error(run_tool):
    check_usage_error(run_tool(), "URL")


@pytest.mark.parametrize("words", [["http://second.test/"], ["X-Token:", "hunter2"], ["hunter2"]])
@pytest.mark.parametrize("option", [[], ["-H"], ["-u"]])
def test_a_word_too_many_is_a_usage_error_that_repeats_none(call_tool, server, option, words):
    for line in ([server.url(), *option, *words], [*option, *words, server.url()]):
        if len(words) > bool(option):
            number = len(words) + 1 - len(option)
            result = call_tool(*line)
            check_usage_error(result, f"expected one URL, got {number} words: quotes around a header?")
            assert "hunter2" not in result.err and "second" not in result.err
    assert server.accepted == 0


@pytest.mark.parametrize(
    "option", ["--verbose", "-q", "-o", "--http2", "--Compact", "--http1.0", "--no-color", "--proxy-user"]
)
def test_an_unknown_option_is_named(call_tool, server, option):
    check_usage_error(call_tool(option, server.url()), option)
    assert server.accepted == 0


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["-w", "%{time_total}"], "--metrics-only"),
        (["--write-out=%{time_total}"], "--json"),
        (["-nGUsecret"], "-U: credentials of a proxy"),
        (["--proxy-user", "bob:secret"], "as user:password@ before its host"),
        (["-c", "secret"], "-b NAME=VALUE"),
        (["-v"], "leave it out"),
        (["-kv"], "-i the header fields"),
        (["-N"], "the body is not kept"),
        (["-o", "/dev/null"], "leave it out"),
        (["--connect-to", "a:1:b:2"], "--resolve"),
        (["--http2"], "--http1.1"),
        (["--tls-max", "1.2"], "-k"),
        (["--retry", "3"], "75"),
        (["--http3"], "only HTTP/2 over TLS and HTTP/1.1 are supported"),
        (["-T", "secret"], "-X PUT -d @FILE"),
        (["-Fsecret=secret"], "multipart/form-data"),
        (["-G"], "into the URL"),
        (["--max-redirs", "3"], "this is fixed: -L follows 10 redirects"),
        (["--noproxy", "*"], "NO_PROXY"),
        (["--data-urlencode", "a=secret"], "encode it before"),
        (["--ftp-pasv"], "--help lists the options there are"),
        (["--retry-max-time"], "did you mean --max-time?"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_who_is_used_to_curl_is_told_what_there_is_instead(call_tool, server, words, instead):
    result = call_tool(*words, server.url())
    check_usage_error(result, instead)
    assert "secret" not in result.err
    assert server.accepted == 0


def test_a_cluster_of_flags_is_taken_apart(call_tool, server):
    """As people type it: curl -sSLo /dev/null -w '%{time_total}'."""
    result = call_tool("-sSLo", "/dev/null", "-w%{time_total}", server.url())
    check_usage_error(result, "arguments: -o: leave", "; -w: every report")
    assert call_tool("-kLf", "--compact", server.url()).code == 0
    assert asked(call_tool, "-LkXPOST").method == "POST"
    assert asked(call_tool, "-d", "-s not an option").body == b"-s not an option"


ABBREVIATIONS = (
    "--comp --metrics --js --time --heade --loc --foll --meth --insec --ver --hel --slo-f --http1 --ip --no"
)


@pytest.mark.parametrize("option", ABBREVIATIONS.split())
def test_an_option_is_not_abbreviated(call_tool, server, option):
    check_usage_error(call_tool(server.url(), option, "1"), option)
    assert server.accepted == 0


@pytest.mark.parametrize("option", [name for action in TAKING_VALUES for name in action.option_strings])
def test_an_option_without_its_value_is_named(call_tool, server, option):
    check_usage_error(call_tool(server.url(), option), option)
    assert server.accepted == 0


@pytest.mark.parametrize("option", [max(action.option_strings, key=len) for action in FLAGS])
def test_a_flag_takes_no_value(call_tool, server, option):
    check_usage_error(call_tool(f"{option}=yes", server.url()), option)
    assert server.accepted == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [(["-m", "-1"], ["'-1'"]), (["--slo", "-1"], ["SLO Error", "-1"]), (["-X", "-1"], ["'-1'"])],
)
def test_a_negative_number_is_a_value_and_no_option(call_tool, server, options, words):
    check_usage_error(call_tool(*options, server.url()), *words)
    assert server.accepted == 0


@pytest.mark.parametrize("data", ["-1", "-5"])
def test_data_may_be_a_negative_number(call_tool, server, data):
    result = call_tool("--json", "-", "-d", data, server.url())
    assert result.json()["steps"][0]["request"]["body_bytes"] == len(data)


@pytest.mark.parametrize(
    "words",
    [
        ("-U", "bob:hunter2"),
        ("-Ubob:hunter2",),
        ("--proxy-user=bob:hunter2",),
        ("--proxy-user", "bob:hunter2"),
        ("--bearer", "hunter2"),
        ("-u", "hunter2"),
        ("-H", "Authorization:", "Bearer", "hunter2"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("last", [True, False])
def test_a_secret_in_a_slip_is_not_repeated(call_tool, server, words, last):
    """As with curl's -U, or a header without quotes: what is printed ends up in logs."""
    result = call_tool(*([server.url(), *words] if last else [*words, server.url()]))
    check_usage_error(result)
    assert "hunter2" not in result.err


def test_options_may_follow_the_url(call_tool, server):
    result = call_tool(server.url(), "--metrics-only")
    assert result.code == 0
    assert [line["status"] for line in result.metrics()] == ["200"]


def test_a_usage_error_leaves_stdout_empty_even_when_it_was_to_hold_json(call_tool, server):
    check_usage_error(call_tool("--json", "-", "-m", "never", server.url()), "never")
    assert server.accepted == 0


def test_a_usage_error_writes_no_file(call_tool, server, tmp_path):
    check_usage_error(call_tool("--json", tmp_path / "out.json", "-m", "never", server.url()), "never")
    assert list(tmp_path.iterdir()) == []


# --- the URL --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "suggestion"),
    [
        ("example.test", "https://example.test"),
        ("example.test/path?q=1", "https://example.test/path?q=1"),
        ("localhost:8080", "https://localhost:8080"),
        ("127.0.0.1:8080/x", "https://127.0.0.1:8080/x"),
        ("//example.test/x", "https://example.test/x"),
    ],
)
def test_a_url_without_scheme_is_refused_with_a_suggestion(call_tool, url, suggestion):
    check_usage_error(call_tool(url), suggestion)


@pytest.mark.parametrize("scheme", ["ftp", "file", "ws", "httpss", "gopher"])
def test_another_scheme_is_refused_by_name(call_tool, scheme):
    check_usage_error(call_tool(f"{scheme}://example.test/"), scheme, "http")


@pytest.mark.parametrize(
    "url", ["http://", "https:///path", "http://:8080/", "http://?q", "https://#f", "http:", ""]
)
def test_a_url_without_host_is_refused(call_tool, url):
    check_usage_error(call_tool(url), "host" if url else "URL")


@pytest.mark.parametrize(
    "port", ["0", "65536", "99999999999", "-1", "abc", "8o", "+80", "8_0", "８０", "1.5"]
)
def test_a_port_that_is_none_is_refused_by_name(call_tool, port):
    check_usage_error(call_tool(f"http://127.0.0.1:{port}/"), "port")


@pytest.mark.parametrize("character", ["\x01", "\n", "\r", "\t", "\x7f", "\x1b"])
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/a{}b", "http://127.0{}.0.1:1/", "http://127.0.0.1:1/?{}"]
)
def test_control_characters_in_a_url_are_refused_and_not_repeated_raw(call_tool, url, character):
    result = call_tool(url.format(character))
    check_usage_error(result, "control character")
    assert character == "\n" or character not in result.err


@pytest.mark.parametrize("user", ["user:hunter2@", ":hunter2@", "user:hunter%32@", "user:x:hunter2@"])
def test_credentials_in_a_url_are_refused_without_repeating_the_password(call_tool, user):
    with http_server() as server:
        result = call_tool(f"http://{user}{server.authority}/")
        check_usage_error(result, "-H", "Authorization")
        assert "hunter" not in result.err
        assert server.accepted == 0


@pytest.mark.parametrize(
    "host",
    ["[::1", "::1]", "[zz]", "[]", "[::1]x", "a..b", ".example.test", "x" * 64 + ".test", "a" * 300, "a_b c"],
)
def test_a_host_that_cannot_be_one_is_refused(call_tool, host):
    check_usage_error(call_tool(f"http://{host}/"))


@pytest.mark.parametrize("scheme", ["HTTP", "Http", "hTTp"])
def test_the_scheme_is_read_in_any_case(call_tool, server, scheme):
    assert call_tool(server.url().replace("http", scheme), "--compact").code == 0


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("", "/"),
        ("/", "/"),
        ("?q=1", "/?q=1"),
        ("#part", "/"),
        ("/a#part", "/a"),
        ("/a?x=1#part?y", "/a?x=1"),
        ("/a b", "/a%20b"),
        ("/ü", "/%C3%BC"),
        ("/?q=日", "/?q=%E6%97%A5"),
        ("/%C3%BC%20x", "/%C3%BC%20x"),
        ("/a//b/;c=1?x=/&y=:@", "/a//b/;c=1?x=/&y=:@"),
        ("/a/./b/../c?./../d", "/a/c?./../d"),
        ("/..//a/%2e%2e/b/..", "//a/%2e%2e/"),
    ],
)
def test_what_is_asked_for_is_what_the_url_says(call_tool, path, target):
    assert asked(call_tool, path=path).target == target


def test_a_host_that_is_not_ascii_is_sent_as_idna(call_tool, server):
    mapping = f"xn--bcher-kva.test:{server.port}:127.0.0.1"
    assert call_tool("--resolve", mapping, server.url(host="bücher.test"), "--compact").code == 0
    assert server.requests[0].values("Host") == [f"xn--bcher-kva.test:{server.port}"]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("straße.test", "xn--strae-oqa.test"),
        ("βόλος.test", "xn--nxasmm1c.test"),
        ("نامه\u200cای.test", "xn--mgba3gch31f060k.test"),
    ],
)
def test_a_host_that_old_rules_confuse_with_another_is_asked_for_itself(call_tool, server, host, name):
    mapping = f"{name}:{server.port}:127.0.0.1"
    assert call_tool("--resolve", mapping, server.url(host=host), "--compact").code == 0
    assert server.requests[0].values("Host") == [f"{name}:{server.port}"]


def test_a_host_that_cannot_be_told_is_a_usage_error_that_says_why(call_tool):
    result = call_tool("http://a\u200db.test/")
    assert (result.code, result.out) == (64, "")
    assert "U+200D" in result.err and "write its xn-- form" in result.err


def test_a_final_dot_of_the_host_stays_in_host(call_tool, server):
    result = call_tool(
        "--resolve", f"a.test.:{server.port}:127.0.0.1", server.url(host="a.test."), "--compact"
    )
    assert result.code == 0, result.err
    assert server.requests[0].values("Host") == [f"a.test.:{server.port}"]


@pytest.mark.needs("ipv6")
def test_an_ipv6_literal_works(call_tool):
    with http_server(host="::1") as server:
        [line] = call_tool("--metrics-only", server.url()).metrics()
        assert (line["ip"], line["family"], line["dns"]) == ("::1", "IPv6", "0.000")
        assert server.requests[0].values("Host") == [f"[::1]:{server.port}"]


@pytest.mark.needs("ipv6", "linux")
@pytest.mark.parametrize("zone", ["%251", "%1"])
def test_an_ipv6_literal_may_have_a_zone_which_is_not_sent(call_tool, zone):
    with http_server(host="::1") as server:
        result = call_tool("--metrics-only", f"http://[::1{zone}]:{server.port}/")
        assert result.code == 0, result.err
        assert server.requests[0].values("Host") == [f"[::1]:{server.port}"]


# --- method and data ------------------------------------------------------------------------------

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("option", ["-X", "--request", "--method"])
def test_each_method_is_sent_by_each_name_of_the_option(call_tool, option, method):
    assert asked(call_tool, option, method).method == method


@pytest.mark.parametrize("method", ["get", "Post", "oPtIoNs"])
def test_a_method_in_any_case_is_sent_in_upper_case(call_tool, method):
    assert asked(call_tool, "-X", method).method == method.upper()


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "GETT", "", "GET ", "G\nT", "*"])
def test_another_method_is_refused_with_the_list_of_the_allowed(call_tool, server, method):
    check_usage_error(call_tool("-X", method, server.url()), *METHODS)
    assert server.accepted == 0


def test_without_method_and_data_the_method_is_get(call_tool):
    request = asked(call_tool)
    assert (request.method, request.body, request.values("Content-Length")) == ("GET", b"", [])
    assert request.values("Content-Type") == []


@pytest.mark.parametrize("option", ["-d", "--data"])
def test_data_makes_it_a_post(call_tool, option):
    request = asked(call_tool, option, "some words")
    assert (request.method, request.body) == ("POST", b"some words")
    assert request.values("Content-Length") == ["10"]


def test_empty_data_makes_it_a_post_of_no_bytes(call_tool):
    request = asked(call_tool, "-d", "")
    assert (request.method, request.body, request.values("Content-Length")) == ("POST", b"", ["0"])


@pytest.mark.parametrize("method", METHODS)
def test_an_explicit_method_wins_over_data(call_tool, method):
    warned = f"{method} with a request body" if method in ("GET", "HEAD") else None
    request = asked(call_tool, "-X", method, "-d", "x=1", warned=warned)
    assert (request.method, request.body) == (method, b"x=1")


@pytest.mark.parametrize("method", ["GET", "get", "HEAD"])
def test_an_explicit_get_or_head_with_data_goes_ahead_with_a_warning(call_tool, server, method):
    result = call_tool("-X", method, "-d", "x=1", "--metrics-only", server.url())
    assert result.code == 0
    assert "warning" in result.err.lower() and method.upper() in result.err
    assert len(result.metrics()) == 1
    assert server.requests[0].body == b"x=1"


@pytest.mark.parametrize("arguments", [["-d", "x"], ["-X", "POST", "-d", "x"], ["-X", "GET"]])
def test_no_other_method_is_warned_about(call_tool, server, arguments):
    assert call_tool(*arguments, "--metrics-only", server.url()).err == ""


def test_data_comes_from_a_file_byte_for_byte(call_tool, tmp_path):
    content = bytes(range(256)) * 300
    (tmp_path / "body.bin").write_bytes(content)
    assert asked(call_tool, "-d", f"@{tmp_path / 'body.bin'}").body == content


def test_data_comes_from_standard_input_byte_for_byte(run_tool):
    content = b"\x00\r\n\xff@" * 1000
    assert asked(run_tool, "-d", "@-", stdin=content).body == content


def test_standard_input_may_be_empty(run_tool):
    request = asked(run_tool, "-d", "@-", stdin=b"")
    assert (request.method, request.body, request.values("Content-Length")) == ("POST", b"", ["0"])


HEADER_LINES = b"X-A: 1\r\n\r\n  \nX-B: caf\xe9\n# no: comment\nX-A:2"


def test_headers_come_from_a_file_one_a_line(call_tool, tmp_path):
    (tmp_path / "head").write_bytes(HEADER_LINES.replace(b"# no: comment\n", b""))
    request = asked(call_tool, "-H", "X-A: 0", "-H", f"@{tmp_path / 'head'}", "-H", "X-C: 3")
    assert request.values("X-A") == ["0", "1", "2"] and request.values("X-C") == ["3"]
    assert b"X-B: caf\xe9\r\n" in request.head


def test_headers_come_from_standard_input(run_tool):
    request = asked(run_tool, "-H", "@-", stdin=b"\xef\xbb\xbfAuthorization: Bearer abcdefgh\n")
    assert request.values("Authorization") == ["Bearer abcdefgh"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (HEADER_LINES, "line 5"),
        (b"X-A: 1\n\nhunter2 hunter2\n", "line 3"),
        (b"X-A: hunter2\0\n", "line 1"),
        (b"X-A: 1\rX-B: hunter2\n", "line 1"),
        (b"X-A: 1\n X-B: hunter2\n", "line 2"),
    ],
)
def test_a_bad_line_of_headers_is_named_by_its_number(call_tool, server, tmp_path, content, line):
    (tmp_path / "head").write_bytes(content)
    result = call_tool("-H", f"@{tmp_path / 'head'}", server.url())
    check_usage_error(result, f"-H '@{tmp_path / 'head'}', {line}:")
    assert "hunter2" not in result.err and server.accepted == 0


def test_a_file_of_headers_has_a_limit_and_a_name(call_tool, server, tmp_path):
    (tmp_path / "head").write_bytes(b"\n" * (tool.MAX_FILE + 1))
    check_usage_error(call_tool("-H", f"@{tmp_path / 'head'}", server.url()), "-H", "16 MiB")
    check_usage_error(call_tool("-H", "@", server.url()), "file name")
    check_usage_error(call_tool("-H", f"@{tmp_path / 'none'}", server.url()), "-H", "No such file")
    assert server.accepted == 0


TWICE = {
    "two-files": (["-H", "@-", "-H", "@/dev/stdin"], "-H and -H"),
    "body": (["-d", "@-", "-H", "@/dev/stdin"], "-H and -d"),
    "budgets": (["-d", "@-", "--slo-file", "-"], "-d and --slo-file"),
    "certificates": (["--cacert", "-", "-H", "@/dev/fd/0"], "-H and --cacert"),
}


@pytest.mark.parametrize("name", TWICE)
def test_standard_input_is_read_once(call_tool, server, name):
    words, readers = TWICE[name]
    check_usage_error(call_tool(*words, server.url()), f"{readers} cannot all read standard input")
    assert server.accepted == 0


@pytest.mark.parametrize("words", [["-H", "@-"], ["-d", "@-"], ["--slo-file", "-"]], ids=" ".join)
@pytest.mark.parametrize("script", ["-", "/dev/stdin"])
def test_standard_input_that_was_the_program_is_read(base_environment, server, script, words):
    run = [sys.executable, script, "--compact", *words, server.url()]
    with open(TOOL, "rb") as source:
        done = subprocess.run(run, stdin=source, capture_output=True, env=base_environment, check=False)
    assert done.returncode == 64 and b"the program itself and " + words[0].encode() in done.stderr
    assert server.accepted == 0


@pytest.mark.parametrize("name", ["missing.json", "folder", ""])
def test_a_data_file_that_cannot_be_read_is_a_usage_error(call_tool, server, tmp_path, name):
    (tmp_path / "folder").mkdir()
    path = tmp_path / name if name else ""
    check_usage_error(call_tool("-d", f"@{path}", server.url()), name)
    assert server.accepted == 0


def test_a_fifo_without_a_writer_is_given_a_second(call_tool, server, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    result = call_tool("-d", f"@{tmp_path / 'fifo'}", server.url())
    check_usage_error(result, "fifo", "nobody is writing")
    assert result.seconds >= 1 and result.own_seconds < 3
    assert server.accepted == 0


@pytest.mark.parametrize("data", [b"late, but whole", b""])
def test_a_fifo_whose_writer_comes_after_its_reader_is_read_whole(call_tool, tmp_path, data):
    """A shell starts both sides of a pipe at once, and either may be the first."""
    os.mkfifo(tmp_path / "fifo")

    def write():
        descriptor = None
        while descriptor is None and time.monotonic() < give_up:
            try:
                descriptor = os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody reads yet
                time.sleep(0.02)
        os.write(descriptor, data)
        os.close(descriptor)

    give_up = time.monotonic() + 20
    writer = threading.Thread(target=write)
    writer.start()
    assert asked(call_tool, "-d", f"@{tmp_path / 'fifo'}").body == data
    writer.join()


@pytest.mark.needs("linux")
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom"])
def test_a_device_without_an_end_is_refused_before_it_fills_the_memory(run_tool, server, path):
    check_usage_error(run_tool("-d", f"@{path}", server.url()), path, "64 MiB")
    assert server.accepted == 0


def test_a_device_that_ends_is_a_body(call_tool):
    assert asked(call_tool, "-d", "@/dev/null").body == b""


def test_a_long_pipe_that_ends_is_a_body(run_tool):
    content = b"x" * (66 << 20)
    result = run_tool("--json", "-", "-d", "@-", "http://127.0.0.1:1/", stdin=content)
    assert result.json()["steps"][0]["request"]["body_bytes"] == len(content)


def test_a_body_over_one_gigabyte_is_refused(call_tool, server, tmp_path):
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(2**30 + 1)
    check_usage_error(call_tool("-d", f"@{tmp_path / 'huge'}", server.url()), "huge")
    assert server.accepted == 0


# --- headers --------------------------------------------------------------------------------------


def test_the_default_headers_are_these_and_no_more(call_tool, server):
    version = call_tool("--version").out.split()[1]
    call_tool("--compact", server.url())
    sent = {name.lower(): value for name, value in server.requests[0].headers}
    assert sent.pop("connection", "close") in ("close", "keep-alive")
    assert sent == {"host": server.authority, "user-agent": f"httphases/{version}", "accept": "*/*"}


@pytest.mark.parametrize("option", ["-H", "--header"])
def test_headers_keep_their_order_and_their_repetition(call_tool, option):
    given = ["X-B: 2", "X-A: 1", "X-B: 3", "x-a:4", "X-Empty:", "X-Space:   padded  "]
    request = asked(call_tool, *(word for header in given for word in (option, header)))
    mine = [(name, value) for name, value in request.headers if name.lower().startswith("x-")]
    expected = [
        ("X-B", "2"),
        ("X-A", "1"),
        ("X-B", "3"),
        ("x-a", "4"),
        ("X-Empty", ""),
        ("X-Space", "padded"),
    ]
    assert mine == expected


@pytest.mark.parametrize("name", ["Host", "User-Agent", "Accept", "Content-Type"])
@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
def test_a_given_header_replaces_the_default_of_that_name(call_tool, name, spell):
    request = asked(call_tool, "-d", "{}", "-H", f"{spell(name)}: mine")
    assert request.values(name) == ["mine"]


def test_a_content_length_that_is_true_is_sent_once(call_tool):
    request = asked(call_tool, "-d", "12345", "-H", "Content-Length: 5")
    assert (request.values("Content-Length"), request.body) == (["5"], b"12345")


@pytest.mark.parametrize(
    "header",
    [
        "hunter2",
        ": hunter2",
        "X Y: hunter2",
        "X-Ü: hunter2",
        "X-A : hunter2",
        "X(A): hunter2",
        "X-A: hunter2\r\nX-B: 1",
        "X-A: hunter2\n",
        "X-A: \rhunter2",
        "X-A\r\n: hunter2",
        "",
    ],
)
def test_a_malformed_header_is_refused_without_repeating_its_value(call_tool, server, header):
    result = call_tool("-H", header, server.url())
    check_usage_error(result, "-H")
    assert "hunter2" not in result.err
    assert server.accepted == 0


def test_which_of_several_headers_is_malformed_is_said_by_its_position(call_tool, server):
    words = [word for header in ("X-A: 1", "hunter2", "X-B: 2") for word in ("-H", header)]
    result = call_tool(*words, server.url())
    check_usage_error(result, "-H number 2 of 3")
    assert "hunter2" not in result.err
    assert server.accepted == 0


@pytest.mark.parametrize("value", ["4", "6", "-5", "five", "5.0", "", "0"])
def test_a_content_length_that_is_not_the_bodys_is_refused(call_tool, server, value):
    check_usage_error(
        call_tool("-d", "12345", "-H", f"Content-Length: {value}", server.url()), "Content-Length"
    )
    assert server.accepted == 0


def test_a_content_length_without_a_body_is_refused(call_tool, server):
    check_usage_error(call_tool("-H", "Content-Length: 5", server.url()), "Content-Length")
    assert server.accepted == 0


@pytest.mark.parametrize("length", [65536, 65537])
def test_a_header_that_no_server_takes_is_refused_and_not_repeated(call_tool, server, tmp_path, length):
    head = "X-Token: "
    (tmp_path / "headers").write_text(head + "s" * (length - len(head)) + "\n")
    result = call_tool("--compact", "-H", f"@{tmp_path / 'headers'}", server.url())
    if length == 65536:
        assert result.code == 0
    else:
        check_usage_error(result, "line 1: this header is longer than 64 KiB")
        assert "ssss" not in result.err and server.accepted == 0


@pytest.mark.parametrize("name", ["Transfer-Encoding", "transfer-encoding"])
@pytest.mark.parametrize("value", ["chunked", "identity", ""])
def test_a_transfer_encoding_is_refused(call_tool, server, name, value):
    check_usage_error(call_tool("-d", "x", "-H", f"{name}: {value}", server.url()), "Transfer-Encoding")
    assert server.accepted == 0


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-m", "--max-time", "--timeout"])
@pytest.mark.parametrize("value", ["5", "0.9e1", "7.25", "86400", "9s", "9000ms", "864e5ms"])
def test_a_time_of_at_most_a_day_is_accepted(call_tool, server, option, value):
    assert call_tool(option, value, "--compact", server.url()).code == 0


@pytest.mark.parametrize("option", ["-m", "--max-time", "--timeout"])
@pytest.mark.parametrize(
    "value",
    [
        "0",
        "-1",
        "0.0",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "soon",
        "",
        "5m",
        "s",
        "0ms",
        "1 s",
        "1e999s",
        "1e-322ms",
        "5e-324",
        "0.0009",
        "0.9ms",
        "86401",
        "1e9",
        "1e300ms",
    ],
)
def test_any_other_time_is_refused_by_name(call_tool, server, option, value):
    words = [f"{option}{'=' if option.startswith('--') else ''}{value}"] if value else [option, ""]
    check_usage_error(call_tool(*words, server.url()), value)
    assert server.accepted == 0


@pytest.mark.parametrize("value", ["0.3", "0.3s", "300ms", "3e2ms"])
def test_a_time_may_have_its_unit(call_tool, value):
    with http_server({"/": Reply(wait=3)}) as server:
        document = call_tool("-m", value, "--json", "-", server.url()).json()
    assert 290 <= document["steps"][0]["timing"]["total_ms"] < 1500
    with http_server() as server:
        words = ["--count", "2", "--interval", value, "--json", "-"]
        assert call_tool(*words, server.url()).json()["interval_s"] == 0.3


# --- options that do not go together --------------------------------------------------------------


@pytest.mark.parametrize("four", ["-4", "--ipv4"])
@pytest.mark.parametrize("six", ["-6", "--ipv6"])
def test_both_address_families_at_once_are_refused(call_tool, server, four, six):
    check_usage_error(call_tool(four, six, server.url()), "-4", "-6")
    assert server.accepted == 0


@pytest.mark.parametrize("insecure", ["-k", "--insecure", "--ignore-ssl"])
@pytest.mark.parametrize("bundle", ["--cacert", "--ca-bundle"])
def test_no_verification_and_a_bundle_at_once_are_refused(call_tool, server, authority, insecure, bundle):
    result = call_tool(insecure, bundle, authority.file, server.url())
    check_usage_error(result, "--cacert")
    assert server.accepted == 0


def test_json_and_har_cannot_both_have_stdout(call_tool, server):
    check_usage_error(call_tool("--json", "-", "--har", "-", server.url()), "--json", "--har")
    assert server.accepted == 0


@pytest.mark.parametrize("spell", ["out", "./out", "folder/../out", "link"])
def test_json_and_har_cannot_both_have_the_same_file(run_tool, server, tmp_path, spell):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("out")
    check_usage_error(
        run_tool("--json", "out", "--har", spell, server.url(), cwd=tmp_path), "--json", "--har"
    )
    assert server.accepted == 0
    assert not (tmp_path / "out").exists()


def test_metrics_only_wins_over_compact(call_tool, server):
    result = call_tool("--compact", "--metrics-only", server.url())
    assert result.code == 0
    assert len(result.metrics()) == 1


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["a.test", "A.Test"])
@pytest.mark.parametrize("address", ["127.0.0.1", "[127.0.0.1]"])
def test_resolve_replaces_the_lookup_and_nothing_else(call_tool, server, host, address):
    result = call_tool(
        "--resolve", f"{host}:{server.port}:{address}", "--metrics-only", server.url(host="a.TEST")
    )
    assert result.code == 0, result.err
    [line] = result.metrics()
    assert (line["dns"], line["ip"]) == ("0.000", "127.0.0.1")
    [host_sent] = server.requests[0].values("Host")
    assert host_sent.lower() == f"a.test:{server.port}"


@pytest.mark.needs("ipv6")
@pytest.mark.parametrize("address", ["::1", "[::1]", "0:0:0:0:0:0:0:1"])
def test_resolve_takes_an_ipv6_address_with_or_without_brackets(run_tool, address):
    with http_server(host="::1") as server:
        url = server.url(host="a.test")
        [line] = run_tool("--resolve", f"a.test:{server.port}:{address}", "--metrics-only", url).metrics()
        assert (line["status"], line["ip"], line["family"]) == ("200", "::1", "IPv6")


def test_resolve_may_be_repeated_for_other_hosts_and_ports(call_tool, server):
    mappings = [f"a.test:{server.port}:127.0.0.1", "a.test:1:192.0.2.1", f"b.test:{server.port}:192.0.2.1"]
    options = [word for mapping in mappings for word in ("--resolve", mapping)]
    result = call_tool(*options, "--compact", server.url(host="a.test"))
    assert result.code == 0


def test_resolve_for_another_port_is_not_used(call_tool):
    with refused_port() as port, http_server() as server:
        mapping = f"127.0.0.1:{server.port + 1 if server.port != 65535 else 1}:127.0.0.2"
        assert call_tool("--resolve", mapping, "--compact", server.url()).code == 0
        assert call_tool("--resolve", mapping, "--compact", f"http://127.0.0.1:{port}/").code == 75


@pytest.mark.parametrize(
    "mapping",
    [
        "a.test",
        "a.test:80",
        "a.test:80:",
        ":80:127.0.0.1",
        "a.test::127.0.0.1",
        "a.test:0:127.0.0.1",
        "a.test:65536:127.0.0.1",
        "a.test:http:127.0.0.1",
        "a.test:80:localhost",
        "a.test:80:127.0.0.1,127.0.0.2",
        "a.test:80:127.0.0",
        "a.test:80:127.0.0.256",
        "a.test:80:[::1",
        "a.test:80:::1]",
        "a.test:80:[]",
        "a.test:80:fe80:::1",
        "",
    ],
)
def test_a_malformed_resolve_is_refused_by_name(call_tool, server, mapping):
    check_usage_error(call_tool("--resolve", mapping, server.url()), "--resolve", mapping)
    assert server.accepted == 0


@pytest.mark.parametrize("second", ["a.test:80:127.0.0.2", "A.TEST:80:127.0.0.1", "a.test:80:::1"])
def test_a_host_and_port_resolved_twice_are_refused(call_tool, server, second):
    result = call_tool("--resolve", "a.test:80:127.0.0.1", "--resolve", second, server.url())
    check_usage_error(result, "a.test:80")
    assert server.accepted == 0


@pytest.mark.parametrize(
    ("family", "address"), [("-4", "::1"), ("-4", "[::1]"), ("-6", "127.0.0.1"), ("--ipv6", "[127.0.0.1]")]
)
def test_resolve_to_an_excluded_family_is_refused(call_tool, server, family, address):
    result = call_tool(family, "--resolve", f"a.test:80:{address}", server.url())
    check_usage_error(result, address.strip("[]"))
    assert server.accepted == 0


@pytest.mark.parametrize("family", ["-4", "--ipv4"])
def test_ipv4_alone_still_reaches_an_ipv4_server(call_tool, server, family):
    [line] = call_tool(family, "--metrics-only", server.url()).metrics()
    assert (line["status"], line["family"]) == ("200", "IPv4")


@pytest.mark.parametrize(
    ("family", "literal"), [("-6", "127.0.0.1"), ("--ipv6", "127.0.0.1"), ("-4", "[::1]")]
)
def test_a_literal_of_the_excluded_family_is_a_dns_failure(call_tool, family, literal):
    result = call_tool(family, "--metrics-only", f"http://{literal}:1/")
    assert result.code == 75
    assert [line["error"] for line in result.metrics()] == ["dns"]


# --- proxies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-x", "--proxy"])
@pytest.mark.parametrize(
    ("proxy", "word"),
    [
        ("ftp://127.0.0.1:1", "ftp"),
        ("socks4://127.0.0.1:1", "socks4"),
        ("http://", "host"),
        ("http://127.0.0.1:0", "port '0'"),
        ("127.0.0.1:99999", "99999"),
    ],
)
def test_a_proxy_that_cannot_be_one_is_refused_by_name(call_tool, server, option, proxy, word):
    check_usage_error(call_tool(option, proxy, server.url()), "proxy", word)
    assert server.accepted == 0


@pytest.mark.parametrize("proxy", ["ftp://user:hunter2@127.0.0.1:1", "http://user:hunter2@127.0.0.1:x"])
def test_a_refused_proxy_is_shown_without_its_password(call_tool, server, proxy):
    result = call_tool("--proxy", proxy, server.url())
    check_usage_error(result, "proxy")
    assert "hunter2" not in result.err


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "SOCKS5"])
def test_socks_without_its_package_is_refused_with_what_to_install(run_tool, server, scheme):
    result = run_tool("-x", f"{scheme}://127.0.0.1:1", server.url(), without=("socks",))
    check_usage_error(result, "PySocks", "install")
    assert server.accepted == 0


def test_a_malformed_proxy_variable_is_refused_by_its_name(call_tool, server):
    result = call_tool(server.url(), env={"http_proxy": "ftp://127.0.0.1:1"})
    check_usage_error(result, "http_proxy")
    assert server.accepted == 0


def test_an_empty_proxy_ignores_the_environment(call_tool, server):
    with refused_port() as port:
        env = {"http_proxy": f"http://127.0.0.1:{port}"}
        assert call_tool("--compact", server.url(), env=env).code == 75
        assert call_tool("--compact", "--proxy", "", server.url(), env=env).code == 0


def test_a_proxy_without_scheme_is_an_http_proxy(run_tool):
    def script(peer):
        request = peer.read_request()
        assert request.target == "http://far.test/page"
        assert request.values("Host") == ["far.test"]
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with scripted(script) as proxy:
        [line] = run_tool("-x", proxy.authority, "--metrics-only", "http://far.test/page").metrics()
        assert (line["status"], line["proxy"]) == ("200", f"http://{proxy.authority}")


# --- trust ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--cacert", "--ca-bundle"])
@pytest.mark.parametrize("content", [None, b"", b"no certificate", b"\x00\xff" * 100])
def test_a_bundle_without_certificates_is_refused_by_name(call_tool, tmp_path, option, content):
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_bytes(content)
    check_usage_error(call_tool(option, bundle, "https://127.0.0.1:1/"), "bundle.pem")


def test_a_bundle_that_is_a_fifo_without_a_writer_does_not_hang(run_tool, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    check_usage_error(run_tool("--cacert", tmp_path / "fifo", "https://127.0.0.1:1/", timeout=10), "fifo")


def test_a_bundle_over_16_megabytes_is_refused(call_tool, tmp_path, authority):
    content = authority.file.read_bytes()
    (tmp_path / "big.pem").write_bytes(content + b"\n" * (16 * 2**20))
    check_usage_error(call_tool("--cacert", tmp_path / "big.pem", "https://127.0.0.1:1/"), "big.pem")


def test_a_broken_system_store_matters_for_https_alone(call_tool, server, tmp_path):
    (tmp_path / "store.pem").write_text("no certificate")
    env = {"SSL_CERT_FILE": str(tmp_path / "store.pem")}
    check_usage_error(call_tool("https://127.0.0.1:1/", env=env), "SSL_CERT_FILE")
    assert call_tool("--compact", server.url(), env=env).code == 0


def test_a_key_log_that_cannot_be_written_is_a_warning(call_tool, authority, tls, tmp_path):
    with http_server(tls=tls) as server:
        env = {"SSLKEYLOGFILE": str(tmp_path / "missing" / "keys")}
        result = call_tool("--cacert", authority.file, "--metrics-only", server.url(), env=env)
        assert result.code == 0, result.err
        assert "warning" in result.err.lower() and "SSLKEYLOGFILE" in flat(result.err)


WITHOUT_SCHEME = [
    "http:/127.0.0.1/",
    "hunter2",
    "hunter2/a.test",
    "bob:hunter2@a.test",
    "eyJab.hunter2.com",
    "a.hunter2",
]


@pytest.mark.parametrize("word", WITHOUT_SCHEME)
def test_a_word_that_is_no_url_and_no_host_is_not_repeated(call_tool, word):
    """It may be a password, or the rest of a header."""
    for options in ([], ["-H", "Authorization:"], ["-H", "Authorization: Bearer"]):
        result = call_tool(*options, word)
        check_usage_error(result, "the URL has no scheme: expected https://host/path")
        assert word not in result.err


def test_zeros_before_a_port_do_not_make_it_another(call_tool, server):
    result = call_tool("--metrics-only", f"http://127.0.0.1:000{server.port}/")
    assert (result.code, server.accepted) == (0, 1), result.err
    check_usage_error(call_tool("http://127.0.0.1:00099999/"), "00099999")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--interval", "1"], "--interval needs --count or --duration"),
        (["--reuse"], "--reuse needs --count or --duration"),
        (["--propagate"], "--propagate needs --otlp"),
        (["--label", ""], "--label ''"),
    ],
)
def test_what_would_have_no_effect_though_it_was_asked_for_is_refused(call_tool, server, words, named):
    check_usage_error(call_tool(*words, server.url()), named)
    assert server.accepted == 0
