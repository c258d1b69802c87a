"""For hands that know curl: lines that browsers copy, its options, and what there is in their place."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

from checks import calm, check_usage_error, flat
from conftest import PATIENCE, TOOL
from inside import tool
from servers import Reply, http_server, refused_port

GZIP = "gzip, deflate, br, zstd"
FORM = "application/x-www-form-urlencoded"

# --- what browsers copy ---------------------------------------------------------------------------

# Each as it is pasted: the words of a browser's "Copy as cURL", with httphases in place of curl. Below each:
# the method and the target that have to arrive, fields and their values, and the body.
PASTED = {
    # Chrome: ANSI-C quoting where there is a ' or a !, --data-raw, -b for cookies, --compressed, empty fields
    # with a semicolon, patterns of curl escaped.
    "chrome-page": (
        r"""httphases 'http://shop.example/' \
  -H 'accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8' \
  -H 'accept-language: en-GB,en;q=0.9' \
  -H 'sec-ch-ua: "Chromium";v="126", "Not/A)Brand";v="8"' \
  -H 'upgrade-insecure-requests: 1' \
  -H 'user-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36' \
  --compressed""",
        ("GET", "/", b""),
        {
            "sec-ch-ua": '"Chromium";v="126", "Not/A)Brand";v="8"',
            "user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
            "accept-encoding": GZIP,
        },
    ),
    "chrome-patterns": (
        r"""httphases 'http://shop.example/list?ids\[\]=1&ids\[\]=2&f=\{a,b\}' \
  -H 'accept: */*' \
  --compressed""",
        ("GET", "/list?ids[]=1&ids[]=2&f={a,b}", b""),
        {"accept": "*/*"},
    ),
    "chrome-cookies": (
        r"""httphases 'http://shop.example/basket' \
  -H 'accept: application/json' \
  -b 'sid=8f2c; theme="dark"; last=%2Fen%2F' \
  -H 'if-none-match: W/"5f-18c"' \
  --compressed""",
        ("GET", "/basket", b""),
        {"cookie": 'sid=8f2c; theme="dark"; last=%2Fen%2F', "if-none-match": 'W/"5f-18c"'},
    ),
    "chrome-json": (
        r"""httphases 'http://shop.example/api/orders' \
  -H 'accept: application/json, text/plain, */*' \
  -H 'content-type: application/json' \
  -H 'origin: http://shop.example' \
  --data-raw '{"items":[{"id":7,"n":2}],"note":"a & b"}' \
  --compressed""",
        ("POST", "/api/orders", b'{"items":[{"id":7,"n":2}],"note":"a & b"}'),
        {"content-type": "application/json", "content-length": "41"},
    ),
    "chrome-quotes": (
        r"""httphases 'http://shop.example/say' \
  -H 'content-type: text/plain;charset=UTF-8' \
  --data-raw $'it\'s \u0021 50% "off"\\n\n\ttab' \
  --compressed""",
        ("POST", "/say", b'it\'s ! 50% "off"\\n\n\ttab'),
        {"content-type": "text/plain;charset=UTF-8"},
    ),
    "chrome-form": (
        r"""httphases 'http://shop.example/login?next=%2F' \
  -H 'content-type: application/x-www-form-urlencoded' \
  -H 'referer: http://shop.example/login?next=%2F' \
  --data-raw 'user=bob&password=a%26b&remember=on' \
  --compressed \
  --insecure""",
        ("POST", "/login?next=%2F", b"user=bob&password=a%26b&remember=on"),
        {"content-type": FORM, "referer": "http://shop.example/login?next=%2F"},
    ),
    "chrome-multipart": (
        r"""httphases 'http://shop.example/upload' \
  -H 'content-type: multipart/form-data; boundary=----WebKitFormBoundaryq7Ab' \
  --data-raw $'------WebKitFormBoundaryq7Ab\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' \
  --compressed""",
        (
            "POST",
            "/upload",
            b'------WebKitFormBoundaryq7Ab\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n',
        ),
        {"content-type": "multipart/form-data; boundary=----WebKitFormBoundaryq7Ab"},
    ),
    "chrome-empty-field": (
        r"""httphases 'http://shop.example/api' \
  -H 'x-trace;' \
  -H 'x-requested-with: XMLHttpRequest' \
  --compressed""",
        ("GET", "/api", b""),
        {"x-trace": "", "x-requested-with": "XMLHttpRequest"},
    ),
    "chrome-put": (
        r"""httphases 'http://shop.example/api/items/7' \
  -X 'PUT' \
  -H 'authorization: Bearer eyJhbGciOi.J9' \
  -H 'content-type: application/json' \
  --data-raw '@type' \
  --compressed""",
        ("PUT", "/api/items/7", b"@type"),
        {"authorization": "Bearer eyJhbGciOi.J9"},
    ),
    "chrome-preflight": (
        r"""httphases 'http://shop.example/api/items' \
  -X 'OPTIONS' \
  -H 'accept: */*' \
  -H 'access-control-request-headers: authorization' \
  -H 'access-control-request-method: DELETE' \
  -H 'content-length: 0' \
  --compressed""",
        ("OPTIONS", "/api/items", b""),
        {"access-control-request-method": "DELETE", "content-length": "0"},
    ),
    # Firefox: words without quotes where they need none, -I for HEAD, --globoff for brackets, --data-binary
    # for multipart bodies, --compressed where the answer was, its own Accept-Encoding besides.
    "firefox-page": (
        r"""httphases 'http://shop.example/en/' \
  --compressed \
  -H 'User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0' \
  -H 'Accept: text/html,application/xhtml+xml,*/*;q=0.8' \
  -H 'Accept-Language: en-US,en;q=0.5' \
  -H 'Accept-Encoding: gzip, deflate, br, zstd' \
  -H 'Connection: keep-alive' \
  -H 'Upgrade-Insecure-Requests: 1' \
  -H 'Priority: u=0, i'""",
        ("GET", "/en/", b""),
        {"accept-encoding": GZIP, "connection": "keep-alive", "priority": "u=0, i"},
    ),
    "firefox-own-encoding": (
        r"""httphases 'http://shop.example/a.js' --compressed -H 'Accept-Encoding: gzip, deflate'""",
        ("GET", "/a.js", b""),
        {"accept-encoding": "gzip, deflate"},
    ),
    "firefox-brackets": (
        r"""httphases 'http://shop.example/q?a[]=1&b[x]=2' \
  --globoff \
  -H 'Accept: */*'""",
        ("GET", "/q?a[]=1&b[x]=2", b""),
        {"accept": "*/*"},
    ),
    "firefox-head": (
        r"""httphases 'http://shop.example/big.iso' \
  -I \
  -H 'Accept: */*' \
  -H 'TE: trailers'""",
        ("HEAD", "/big.iso", b""),
        {"te": "trailers"},
    ),
    "firefox-form": (
        r"""httphases 'http://shop.example/search' \
  --compressed \
  -X POST \
  -H 'Content-Type: application/x-www-form-urlencoded' \
  -H 'Origin: http://shop.example' \
  -H 'Referer: http://shop.example/' \
  --data-raw 'q=caf%C3%A9&page=1'""",
        ("POST", "/search", b"q=caf%C3%A9&page=1"),
        {"content-type": FORM, "referer": "http://shop.example/"},
    ),
    "firefox-json": (
        r"""httphases 'http://shop.example/api' \
  -X PATCH \
  -H 'Content-Type: application/json' \
  -H 'X-CSRF-Token: 3f9a' \
  --data-raw $'[{"op":"replace","path":"/name","value":"O\'Hara\041"}]'""",
        ("PATCH", "/api", b'[{"op":"replace","path":"/name","value":"O\'Hara!"}]'),
        {"x-csrf-token": "3f9a"},
    ),
    "firefox-word": (
        r"""httphases 'http://shop.example/ping' \
  -X POST \
  -H 'Content-Type: text/plain;charset=UTF-8' \
  -H 'Cookie: sid=8f2c; lang=en' \
  --data-raw pong""",
        ("POST", "/ping", b"pong"),
        {"cookie": "sid=8f2c; lang=en"},
    ),
    "firefox-multipart": (
        r"""httphases 'http://shop.example/upload' \
  -X POST \
  -H 'Content-Type: multipart/form-data; boundary=-----------------------9051' \
  --data-binary $'-------------------------9051\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'""",
        (
            "POST",
            "/upload",
            b'-------------------------9051\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n',
        ),
        {"content-type": "multipart/form-data; boundary=-----------------------9051"},
    ),
    "firefox-other-letters": (
        r"""httphases 'http://shop.example/say' \
  -X PUT \
  -H 'Content-Type: text/plain;charset=UTF-8' \
  --data-raw $'\u00fcber \u65e5'""",
        ("PUT", "/say", "über 日".encode()),
        {"content-length": "9"},
    ),
    "firefox-delete": (
        r"""httphases 'http://shop.example/api/items/7' \
  --compressed \
  -X DELETE \
  -H 'Sec-Fetch-Mode: cors' \
  -H 'Content-Length: 0'""",
        ("DELETE", "/api/items/7", b""),
        {"sec-fetch-mode": "cors", "accept-encoding": GZIP},
    ),
    # Safari: the method always, --data for forms, --data-binary for what is none, all fields with -H.
    "safari-page": (
        r"""httphases 'http://shop.example/' \
-X 'GET' \
-H 'Accept: text/html,application/xhtml+xml,*/*;q=0.8' \
-H 'Cookie: sid=8f2c' \
-H 'Accept-Encoding: gzip, deflate' \
-H 'User-Agent: Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/17.5 Safari/605.1.15'""",
        ("GET", "/", b""),
        {"accept-encoding": "gzip, deflate", "cookie": "sid=8f2c"},
    ),
    "safari-patterns": (
        r"""httphases 'http://shop.example/list?ids\[\]=1' \
-X 'GET' \
-H 'Accept: */*'""",
        ("GET", "/list?ids[]=1", b""),
        {},
    ),
    "safari-form": (
        r"""httphases 'http://shop.example/search' \
-X 'POST' \
-H 'Content-Type: application/x-www-form-urlencoded' \
-H 'Content-Length: 9' \
--data 'q=a&p=b+c'""",
        ("POST", "/search", b"q=a&p=b+c"),
        {"content-type": FORM, "content-length": "9"},
    ),
    "safari-json": (
        r"""httphases 'http://shop.example/api' \
-X 'POST' \
-H 'Content-Type: application/json' \
--data-binary '{"a":[1,2]}'""",
        ("POST", "/api", b'{"a":[1,2]}'),
        {"content-type": "application/json"},
    ),
    "safari-quotes": (
        r"""httphases 'http://shop.example/api' \
-X 'POST' \
-H 'Content-Type: text/plain' \
--data-binary $'it\'s \xe2\x82\xac\n\041'""",
        ("POST", "/api", "it's €\n!".encode()),
        {},
    ),
    "safari-head": (
        r"""httphases 'http://shop.example/a' \
-X 'HEAD' \
-H 'Accept: */*'""",
        ("HEAD", "/a", b""),
        {},
    ),
    "safari-put": (
        r"""httphases 'http://shop.example/a' \
-X 'PUT' \
-H 'Content-Type: text/csv' \
--data-binary '-1,2'""",
        ("PUT", "/a", b"-1,2"),
        {"content-type": "text/csv"},
    ),
    "safari-delete": (
        r"""httphases 'http://shop.example/a' \
-X 'DELETE' \
-H 'Authorization: Basic Ym9iOmI='""",
        ("DELETE", "/a", b""),
        {"authorization": "Basic Ym9iOmI="},
    ),
    "safari-options": (
        r"""httphases 'http://shop.example/a' \
-X 'OPTIONS' \
-H 'Origin: http://other.example' \
-H 'Access-Control-Request-Method: PUT'""",
        ("OPTIONS", "/a", b""),
        {"origin": "http://other.example"},
    ),
    "safari-ranges": (
        r"""httphases 'http://shop.example/film.mp4' \
-X 'GET' \
-H 'Range: bytes=0-1' \
-H 'Referer: http://shop.example/film'""",
        ("GET", "/film.mp4", b""),
        {"range": "bytes=0-1", "referer": "http://shop.example/film"},
    ),
}
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, in whose quoting they are")


def paste(line, server, environment, command):
    """Have a real shell run a pasted line; `command` is what it calls. Return the request that arrived."""
    text = line.replace("http://shop.example", server.url("").rstrip("/"), 1)
    script = f"httphases() {{ {command}; }}\n{text}\n"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**environment, "LC_ALL": "C.UTF-8", "PYTHON": sys.executable},
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, calm(done.stderr.decode())) == (0, "")
    return server.requests[-1]


def field_values(request):
    return {name.lower(): value for name, value in request.headers}


def test_there_are_ten_lines_of_each_browser():
    for browser in ("chrome", "firefox", "safari"):
        assert sum(name.startswith(f"{browser}-") for name in PASTED) == 10


@needs_bash
@pytest.mark.parametrize("name", PASTED)
def test_what_a_browser_copies_for_curl_is_sent_as_it_says(program, base_environment, server, name):
    line, (method, target, body), fields = PASTED[name]
    request = paste(line, server, base_environment, f'"$PYTHON" {program} -s "$@"')
    assert (request.method, request.target, request.body) == (method, target, body)
    sent = field_values(request)
    assert {field: sent[field] for field in fields} == fields
    assert len(sent) == len(request.headers), "no field is there twice"


@needs_bash
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("name", [name for name in PASTED if name != "safari-head"])
def test_curl_itself_sends_the_same(program, base_environment, server, name):
    """But for what is the program's own. Of -X HEAD curl waits for a body that never comes."""
    line = PASTED[name][0]
    commands = [f'"$PYTHON" {program} -s "$@"', 'curl -sS -m 20 -o /dev/null "$@"']
    ours, curls = (paste(line, server, base_environment, command) for command in commands)
    assert (ours.method, ours.target, ours.body) == (curls.method, curls.target, curls.body)
    own = {name for name in ("user-agent", "accept-encoding") if f"{name}:" not in line.lower()}
    sent, expected = ({**field_values(each), **dict.fromkeys(own)} for each in (ours, curls))
    assert sent.pop("connection", None) in ("close", "keep-alive", None)
    expected.pop("connection", None)
    assert sent == expected


@needs_bash
def test_the_line_in_readme_is_sent_as_it_says(program, base_environment, server):
    recipe = (TOOL.parent / "README.md").read_text("utf-8").partition("### A request out of a browser")[2]
    line = recipe.partition("```sh\n")[2].partition("```")[0]
    request = paste(line, server, base_environment, f'"$PYTHON" {program} -s "$@"')
    assert (request.method, request.target) == ("POST", "/api/orders?page[size]=20")
    assert (request.body, request.values("Cookie")) == (b'{"items":[7]}', ["sid=8f2c; theme=dark"])


# --- options of curl's that are there -------------------------------------------------------------


def sent_with(run, server, *words, warned=()):
    """Run the program; return the request that arrived."""
    result = run(*words, "--metrics-only", server.url())
    assert result.warned(*warned).code == 0
    return server.requests[-1]


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["-A", "probe/1"], "User-Agent", "probe/1"),
        (["--user-agent", "-x-"], "User-Agent", "-x-"),
        (["-e", "http://a.test/"], "Referer", "http://a.test/"),
        (["--referer", "http://a.test/"], "Referer", "http://a.test/"),
        (["-b", "a=1; b=2", "--cookie", "c=3"], "Cookie", "a=1; b=2; c=3"),
        (["-ba=1"], "Cookie", "a=1"),
        (["-u", "bob:hunter:2"], "Authorization", "Basic Ym9iOmh1bnRlcjoy"),
        (["--user=:"], "Authorization", "Basic Og=="),
        (["-u", "-b:€"], "Authorization", "Basic LWI64oKs"),
        (["--compressed"], "Accept-Encoding", GZIP),
        (["-H", "x-a;"], "x-a", ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
@pytest.mark.parametrize("overridden", [False, True])
def test_an_option_for_a_field_sends_it_once_and_h_wins(call_tool, server, words, field, value, overridden):
    if overridden and words[0] != "-H":
        words, value = [*words, "-H", f"{field.lower()}: mine"], "mine"
    assert sent_with(call_tool, server, *words).values(field) == [value]


def test_a_cookie_is_a_credential_like_any_other(call_tool, server):
    result = call_tool("-b", "sid=hunter2hunter2", "--json", "-", server.url())
    assert result.json() and "hunter2" not in result.out + result.err
    assert server.requests[-1].values("Cookie") == ["sid=hunter2hunter2"]


def test_a_user_is_a_credential_like_any_other(call_tool, server):
    words = ["-u", "bob:hunter2hunter2", "--vs", "-u eve:swordfish22", "--count", "1", "--json", "-"]
    result = call_tool(*words, server.url())
    sides = [request.values("Authorization") for request in server.requests[-2:]]
    assert sorted(sides) == [["Basic Ym9iOmh1bnRlcjJodW50ZXIy"], ["Basic ZXZlOnN3b3JkZmlzaDIy"]]
    assert result.json()["sides"][1]["words"] == "-u '***'"
    assert not re.search("hunter2|swordfish|Ym9i|ZXZl", result.out + result.err)


@pytest.mark.parametrize("words", [["-u", "hunter2"], ["--vs", "-u hunter2"], ["-u", ""]])
def test_nobody_is_asked_for_a_password(call_tool, server, words):
    result = call_tool(*words, server.url())
    check_usage_error(result, "-u: expected USER:PASSWORD")
    assert "hunter2" not in result.err and server.accepted == 0


@pytest.mark.parametrize("words", [["-b", "jar.txt"], ["-b", "a=1", "--cookie", "jar.txt"], ["-b", ""]])
def test_a_cookie_file_is_refused_without_being_repeated(call_tool, server, words):
    result = call_tool(*words, server.url())
    check_usage_error(result, "-b", "NAME=VALUE", "cookie file")
    assert "jar" not in result.err and server.accepted == 0


@pytest.mark.parametrize("option", ["-A", "-e", "-b"])
def test_a_line_break_in_such_a_field_is_refused(call_tool, server, option):
    result = call_tool(option, "a=hunter2\r\nX-B: 1", server.url())
    check_usage_error(result, f"{option}:", "line break")
    assert "hunter2" not in result.err and server.accepted == 0


JOINED = "the body is sent as text/plain; charset=utf-8; to send it as curl does: -H 'Content-Type: " + FORM


def test_data_given_several_times_is_joined_in_order(call_tool, server, tmp_path):
    (tmp_path / "b.json").write_bytes(b"{}\r\n")
    words = [
        "-d",
        "a=1",
        "--data-raw",
        "@x",
        "--data-binary",
        f"@{tmp_path / 'b.json'}",
        "--data-ascii",
        "-c",
    ]
    request = sent_with(call_tool, server, *words, warned=[JOINED])
    assert (request.method, request.body) == ("POST", b"a=1&@x&{}\r\n&-c")
    assert request.values("Content-Type") == ["text/plain; charset=utf-8"], "no part's extension counts"
    typed = sent_with(call_tool, server, "-d", "a=1", "-d", "b=2", "-H", f"Content-Type: {FORM}")
    assert (typed.body, typed.values("Content-Type")) == (b"a=1&b=2", [FORM])


@pytest.mark.parametrize("option", ["--data-raw", "--data-binary", "--data-ascii"])
def test_where_curl_would_name_another_type_a_warning_says_so(call_tool, server, option):
    assert sent_with(call_tool, server, option, "a=1", warned=[JOINED]).body == b"a=1"
    json_type = "the body is sent as application/json; to send it as curl does:"
    assert sent_with(call_tool, server, option, "{}", warned=[json_type]).body == b"{}"
    assert sent_with(call_tool, server, option, "a=1", "-H", "content-type: x/y").body == b"a=1"


def test_data_alone_is_as_it_was(call_tool, server):
    for option in ("-d", "--data"):
        assert sent_with(call_tool, server, option, "a=1").body == b"a=1"


@pytest.mark.parametrize("data", ["-1", "-s", "--compact", "-sS x", "--a=b"])
@pytest.mark.parametrize("option", ["-d", "--data-raw"])
def test_data_may_begin_like_an_option(call_tool, server, option, data):
    words = [option, data, "-H", "Content-Type: text/plain"]
    assert sent_with(call_tool, server, *words).body == data.encode()


def test_files_of_data_are_a_gigabyte_in_all(call_tool, server, tmp_path, monkeypatch):
    with open(tmp_path / "large", "wb") as file:
        file.truncate((1 << 30) + 1)
    result = call_tool("-d", f"@{tmp_path / 'large'}", server.url())
    check_usage_error(result, "large", "larger than 1024 MiB")
    monkeypatch.setattr(tool, "MAX_BODY", 3 << 20)
    (tmp_path / "half").write_bytes(bytes(2 << 20))
    half = ["-d", f"@{tmp_path / 'half'}"]
    check_usage_error(call_tool(*half, *half, server.url()), "-d: the body is larger than 3 MiB")
    assert server.accepted == 0
    assert call_tool(*half, "-d", "x", "-H", "Content-Type: x/y", server.url()).code == 0


@pytest.mark.parametrize("words", [["-I"], ["--head"], ["-sI"], ["-I", "-X", "head"]])
def test_head_is_a_method(call_tool, server, words):
    assert call_tool(*words, server.url()).code == 0
    assert server.requests[-1].method == "HEAD"


def test_an_explicit_method_wins_over_head(call_tool, server):
    assert sent_with(call_tool, server, "-I", "-X", "GET").method == "GET"
    assert sent_with(call_tool, server, "-I", "-d", "x", warned=["HEAD with a request body"]).method == "HEAD"


def test_a_url_may_have_an_option_of_its_own(call_tool, server):
    assert call_tool("--compact", "--url", server.url("/a")).code == 0
    assert server.requests[-1].target == "/a"
    for words in ([server.url("/b")], ["--url", server.url("/b")]):
        check_usage_error(call_tool("--url", server.url(), *words), "expected one URL, got 2 words")


@pytest.mark.parametrize("words", [[], ["-g"], ["--globoff"]])
def test_patterns_of_curl_lose_their_backslash_and_nothing_else_does(call_tool, server, words):
    url = server.url("/\\[1-3\\]\\{a\\}[b]{c}\\d")
    assert call_tool(*words, "--compact", url).code == 0
    assert server.requests[-1].target == "/[1-3]{a}[b]{c}\\d"


@pytest.mark.needs("ipv6")
def test_they_lose_it_in_the_url_of_a_side_too(call_tool):
    with http_server(host="::1") as server:
        url = f"http://\\[::1\\]:{server.port}/"
        for words in ((url, "--versus", "--http1.1"), (server.url(), "--versus", url)):
            result = call_tool(*words, "--count", "1")
            assert result.code == 0, result.err
        assert {request.target for request in server.requests} == {"/"}


# --- in silence -----------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-s", "--silent", "-sS", "-Ss"])
@pytest.mark.parametrize("style", [[], ["--compact"], ["--metrics-only"], ["--slo", "total=0.001"]])
def test_silence_leaves_the_exit_code_alone(call_tool, server, option, style):
    result = call_tool(option, "-X", "GET", "-d", "x", *style, server.url())
    assert (result.code, result.out) == (4 * ("--slo" in style), "")
    assert bool(result.err) is ("--slo" in style)


def test_silence_leaves_the_exports(call_tool, server, tmp_path):
    path = tmp_path / "out.har"
    result = call_tool("-s", "--json", "-", "--har", path, "-X", "GET", "-d", "x", server.url())
    assert result.json()["steps"][0]["response"]["status"] == 200
    assert json.loads(path.read_bytes())["log"]["entries"] and result.raw == ""
    assert "warning" in call_tool("--json", "-", "-X", "GET", "-d", "x", server.url()).err


@pytest.mark.parametrize("series", [[], ["--count", "2", "--interval", "0"]])
def test_silence_leaves_the_reason_of_a_failed_step(call_tool, series):
    with refused_port() as port:
        result = call_tool("-s", *series, f"http://127.0.0.1:{port}/")
    assert (result.code, result.out) == (75, "")
    lines = result.err.splitlines()
    assert len(lines) == (2 if series else 1)
    assert all(
        re.match("httphases: error: .*connection refused. The machine answers", line) for line in lines
    )


def test_a_file_that_cannot_be_written_is_told_in_silence_too(call_tool, server, tmp_path):
    result = call_tool("-s", "--json", tmp_path / "none" / "x", server.url())
    assert result.code == 73 and "cannot write --json" in result.err and result.out == ""
    check_usage_error(call_tool("-s", "--counts", "2", server.url()), "--counts")


def test_a_series_in_silence_draws_no_progress(run_tool):
    with http_server({"/": Reply(404, wait=0.1)}) as server:
        result = run_tool("-s", "-f", "--count", "5", "--interval", "0", server.url(), terminal="out err")
    assert (result.code, result.out) == (22, "")
    assert (
        result.err.replace("\r", "") == "httphases: in 5 of 5 runs the last status, 404, is refused by -f\n"
    )


def test_silence_needs_no_standard_output(run_tool, program, base_environment, server):
    script = f'"{sys.executable}" {program} -s {server.url()} >&-'
    done = subprocess.run(["sh", "-c", script], env=base_environment, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


# --- what is not there ----------------------------------------------------------------------------

TYPED = """-o -O -v -w -T -F -G -N -D -c -j -K -Z -U -n -q -p --http2 --http3 --connect-timeout --connect-to
    --max-redirs --noproxy --retry --tlsv1.2 --tls-max --ciphers --data-urlencode --digest --netrc
    --limit-rate --output --remote-name --verbose --write-out --upload-file --form --get --no-buffer
    --dump-header --cookie-jar --config --parallel --proxy-user""".split()


@pytest.mark.parametrize("option", TYPED)
def test_what_hands_that_know_curl_type_is_answered_with_what_there_is(option):
    assert option not in tool.NAMES
    assert not tool.instead_of(option).startswith(("did you mean", "--help lists"))


def test_options_of_curl_are_named_and_their_values_are_not(call_tool, server):
    words = ["-T", "secret", "-Fsecret=1", "-Usecret", "--data-urlencode=secret", server.url()]
    result = call_tool("--http3", *words)
    check_usage_error(
        result, "--http3: only", "; -T: use -X PUT", "; -F: write", "-U: credentials", "urlencode: "
    )
    assert "secret" not in result.err and server.accepted == 0


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--counts", "3"], "--count"),
        (["--metric-only"], "--metrics-only"),
        (["--Compact"], "--compact"),
        (["--intervall=1"], "--interval"),
        (["-json", "x"], "--json"),
        (["-slo=ttfb=1"], "--slo"),
        (["--versoin"], "--version"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_misspelt_option_is_answered_with_the_nearest(call_tool, server, words, meant):
    check_usage_error(call_tool(*words, server.url()), f"did you mean {meant}?")
    assert server.accepted == 0


@pytest.mark.parametrize(
    ("key", "meant"),
    [("tota", "total"), ("TFTB", "ttfb"), ("total.medain", "total.median"), ("dsn.p95", "dns")],
)
def test_a_misspelt_budget_is_answered_with_the_nearest(call_tool, server, key, meant):
    result = call_tool("--slo", f"{key}=5", "--count", "20", server.url())
    check_usage_error(result, f"Unknown SLO key '{key}'", f"did you mean {meant}?")
    assert server.accepted == 0


SLIPS = {  # of hands that know other tools -> what is meant
    "--count": ("-n 5", "-n5", "-c 5", "-c5", "--repeat 5", "--times=5", "--runs 5", "--number 5", "--loop"),
    "--duration": ("--watch", "--time 30s", "--forever"),
    "--interval": ("--every 5", "--delay=1"),
    "-s": ("--quiet", "-q"),
    "--reuse": ("--keepalive", "--keep-alive"),
    "leave it out": ("--http2", "-v"),
    "-k": ("--no-verify", "--no-check-certificate"),
    "-u USER:PASSWORD": ("--auth bob", "--token t0ken", "--ntlm", "--netrc", "--basic"),
    "--resolve": ("--sni a.test", "--host a.test"),
    "-L": ("--max-redirects 3",),
    "--slo": ("--sol total=1",),
    "--json": ("--format json", "--csv", "--export x"),
}


@pytest.mark.parametrize("slip", [slip for slips in SLIPS.values() for slip in slips])
def test_a_slip_of_other_tools_hands_has_its_answer(call_tool, server, slip):
    result = call_tool(*slip.split(), server.url())
    [meant] = [option for option, slips in SLIPS.items() if slip in slips]
    check_usage_error(result, meant)
    assert re.search(f"(?<![\\w-]){re.escape(meant)}(?![\\w-])", flat(result.err)) and server.accepted == 0
    assert "did you mean" not in result.err or slip.startswith("--sol ")


def test_what_is_like_nothing_is_not_guessed_at(call_tool, server):
    far = "body port status stats source width put all name env"  # from proxy, vs, data …
    for words in (["--xyzzy"], ["--slo", "xyzzy=1"], *([f"--{word}"] for word in far.split())):
        result = call_tool(*words, server.url())
        check_usage_error(result)
        assert "did you mean" not in flat(result.err)


@pytest.mark.parametrize("body", ['{"a": 1}', ' {"a": 1}', "[1]", "{"])
def test_json_takes_a_path_and_no_body(call_tool, server, tmp_path, body):
    check_usage_error(call_tool("--json", body, server.url()), "--json takes a path", "-d")
    assert server.accepted == 0


def test_a_slip_alone_imports_what_looks_for_the_nearest(base_environment, server):
    def imports_difflib(*words):
        command = [sys.executable, "-X", "importtime", str(TOOL), *words, server.url()]
        done = subprocess.run(command, capture_output=True, text=True, env=base_environment, check=False)
        return "difflib" in done.stderr

    assert imports_difflib("--counts") and not imports_difflib("--compact")
