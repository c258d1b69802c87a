"""A report can be attached to a ticket: no credential is in it, in any mode, whatever went wrong.

Every secret that is planted here holds MARK, and whatever the program prints or writes is searched for it.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from pathlib import Path
from typing import Any, Callable

import pytest

from frames import conversing
from inside import failure, here, only_step, tool
from servers import Reply, http_server, redirect, scripted, sending

MARK = "Tr0ub4dor"


def secret(name: str) -> str:
    """Make the secret that is planted in the place `name`."""
    return f"{MARK}-{name}"


BASIC = base64.b64encode(f"someone:{secret('basic')}".encode()).decode()
HEADERS = [
    f"Authorization: Bearer {secret('bearer')}",
    f"Proxy-Authorization: Bearer {secret('proxy-bearer')}",
    f"Cookie: session={secret('cookie')}; theme=dark; token={secret('second-cookie')}",
    f"X-Api-Key: {secret('x-api-key')}",
    f"API-KEY: {secret('api-key')}",
    f"x-auth-token: {secret('x-auth-token')}",
    f"X-Auth-Key: {secret('x-auth-key')}",
]
GIVEN = [word for header in HEADERS for word in ("-H", header)]
ECHO = " ".join(
    secret(name)
    for name in "bearer proxy-bearer cookie second-cookie x-api-key api-key x-auth-token x-auth-key".split()
)
"""What a careless server repeats of the request."""


def everything(
    call_tool: Callable[..., Any], folder: Path, *arguments: Any, **settings: Any
) -> tuple[Any, str]:
    """Run the program with all exports; return its result, and all that it has printed and written.

    Each part of that begins with its name: stdout, stderr, json, har, prometheus, otlp.
    """
    files = {name: folder / f"out.{name}" for name in ("json", "har", "prometheus", "otlp")}
    exports = [word for name, path in files.items() for word in (f"--{name}", path)]
    result = call_tool(*exports, *arguments, **settings)
    parts = {"stdout": result.out, "stderr": result.err}
    parts.update((name, path.read_text("utf-8")) for name, path in files.items() if path.exists())
    return result, "".join(f"{PART}{name}:\n{text}\n" for name, text in parts.items())


PART = "\n=== "


def check_silent(text: str) -> None:
    """Prove that no secret is in any part of `text`, as it was given or encoded."""
    for part in text.split(PART):
        joined = part.replace("\n", "").replace("\u2502", "").replace(" ", "")
        for form in (MARK, BASIC, base64.b64encode(MARK.encode()).decode()[:10]):
            for where in (part, joined):
                at = where.find(form)
                assert at < 0, f"in {part.partition(':')[0]}: …{where[max(0, at - 60) : at + 60]}…"


def test_the_search_finds_a_secret_that_was_broken_over_two_lines():
    with pytest.raises(AssertionError):
        check_silent(f"\u2502 {MARK[:4]} \u2502\n\u2502 {MARK[4:]} \u2502")


# --- what is sent, and what servers repeat --------------------------------------------------------

ECHOING = Reply(
    401,
    ECHO.encode(),
    reason=f"No entry for {ECHO}",
    headers=[
        ("X-Echo", ECHO),
        ("Server", ECHO),
        ("Content-Type", f"text/plain; {ECHO}"),
        ("Date", ECHO),
        ("Set-Cookie", f"id={secret('set-cookie')}; Path=/"),
        ("Set-Cookie2", f"id={secret('set-cookie2')}; Version=1"),
        ("WWW-Authenticate", f'Digest nonce="{secret("nonce")}"'),
        ("Proxy-Authenticate", f'Digest nonce="{secret("proxy-nonce")}"'),
        ("Authentication-Info", f"nextnonce={secret('next-nonce')}"),
        ("X-Auth-Token", secret("issued-token")),
        ("Refresh", f"0; url=http://user:{secret('refresh')}@a.test/"),
        ("Link", f"<http://user:{secret('link')}@a.test/>"),
    ],
)


@pytest.mark.parametrize("style", ["-i", "--compact", "--metrics-only"])
def test_no_secret_is_shown_though_the_server_repeats_them_all(call_tool, tmp_path, style):
    with http_server({"/": ECHOING}) as server:
        copied = ["-H", f"X-Copy: {secret('bearer')}"]
        result, text = everything(call_tool, tmp_path, style, *GIVEN, *copied, server.url())
        [request] = server.requests
    assert result.code == 0
    assert secret("bearer") in request.values("Authorization")[0], "the secret was not even sent"
    check_silent(text)
    assert text.count("***") >= 10


REPEATING = [  # each is clipped within a secret, or quoted
    "x" * 70 + f" {ECHO}\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: " + "x" * 1990 + f"{ECHO}\r\n\r\n",
    f"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: {ECHO}\r\n\r\nhello",
    f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{ECHO}\r\n",
    "HTTP/1.1 200 " + "x" * 1990 + f" {ECHO}\r\nContent-Length: 0\r\n\r\n",
    f"HTTP/1.1 200 {ECHO}\r\nContent-Length: 9\r\n\r\nhalf",
]


def test_no_secret_is_shown_when_a_broken_answer_repeats_it(call_tool, tmp_path):
    for answer in REPEATING:
        with scripted(sending(answer)) as server:
            _, text = everything(call_tool, tmp_path, *GIVEN, server.url())
        joined = text.replace("\n", "").replace(" ", "")
        assert MARK[:7] not in joined, f"not even the beginning of a secret is shown: {answer}"


def test_no_secret_is_shown_where_what_repeats_it_is_no_utf8_or_is_cut(call_tool, tmp_path):
    """All of that is read as ISO-8859-1, in which the secret's own letters look otherwise."""
    token, end = "s\xe9cret-T\xf6ken", b"\xff\r\n"
    for pad in (0, 1):
        long = b"x" * pad + token.encode() + "\xe9".encode() * 40_000 + b"\r\n"
        head = b"".join(
            [b"HTTP/1.1 400 ", token.encode(), end, b"X-Long: ", long, b"X-Short: ", token.encode(), end]
        )
        with scripted(
            sending(head + b"Content-Type: text/plain\r\n\r\n" + token.encode() + b" \xff")
        ) as server:
            result, text = everything(call_tool, tmp_path, "-i", "-H", f"X-Api-Key: {token}", server.url())
        assert result.code == 0 and "cret-T" not in text
        assert "(80015 characters)" not in text and f"({40_000 + pad + len(token)} characters)" in text


@pytest.mark.needs("h2")
def test_no_secret_is_shown_when_an_http2_server_repeats_it(call_tool, tmp_path, authority):
    def script(c):
        c.read_preface()
        c.send(c.settings(), c.goaway(0, 11, ECHO.encode()))

    with conversing(authority, script) as server:
        result, text = everything(call_tool, tmp_path, *GIVEN, "--cacert", authority.file, server.url())
    assert result.code == 75 and "ENHANCE_YOUR_CALM" in text
    check_silent(text)


# --- redirects ------------------------------------------------------------------------------------

USERINFO = f"someone:{secret('userinfo')}@"


def test_userinfo_of_a_redirect_is_masked_and_not_sent(call_tool, tmp_path):
    with http_server() as last:
        location = last.url("/end").replace("//", f"//{USERINFO}")
        with http_server({"/": redirect(location)}) as first:
            result, text = everything(call_tool, tmp_path, "-L", *GIVEN, first.url())
        [request] = last.requests
    assert result.code == 0
    check_silent(text)
    assert MARK not in request.head.decode(), "a secret went to another origin"
    assert "someone" not in text


LOCATIONS = [
    f"http://{USERINFO}a.test:99999/",
    f"http://{USERINFO}[::1/",
    f"http://{USERINFO}{USERINFO}a.test:0/",
    f"http://some one:{secret('userinfo')}@a.test:0/",
    f"http:\\\\{USERINFO}a.test:0/",
    f"//some one:{secret('userinfo')}@a.test:0/",
    f"ftp:{USERINFO}a.test",
    f"http://{USERINFO}a.test/\x01",
    f"http://{secret('x-api-key')}.te st/",
    "ftp://a.test/" + "x" * 182 + secret("x-api-key"),
    f"http://[fe80::1%25{secret('x-api-key')}]/",
    f"http://{'x' * 1990}{USERINFO}a.test:0/",
]


def test_a_secret_of_a_location_that_leads_nowhere_is_masked(call_tool, tmp_path):
    given = ["-H", f"X-Api-Key: {secret('x-api-key')}"]
    for location in LOCATIONS:
        with http_server({"/": redirect(location)}) as server:
            result, text = everything(call_tool, tmp_path, "-L", *given, server.url())
        assert result.code == 75
        assert MARK[:7] not in text.replace("\n", "").replace(" ", ""), location


def test_a_secret_in_a_location_is_masked_and_the_redirect_is_followed_all_the_same(call_tool, tmp_path):
    """Nothing undoes an encoding in which it was not found."""
    key = secret("x-api-key")
    target = f"/of/{key}?k={key}&l=%{ord(key[0]):02X}{key[1:]}"
    routes = {"/": redirect(target), f"/of/{key}": Reply(body=b"there")}
    with http_server(routes) as server:
        result, text = everything(call_tool, tmp_path, "-L", "-H", f"X-Api-Key: {key}", server.url())
        targets = [request.target for request in server.requests]
    assert targets == ["/", target], "the mask went into the request"
    assert result.code == 0
    check_silent(text)


# --- what has to stay as it is --------------------------------------------------------------------


def told(words: str, *arguments: str) -> str:
    """Let a server, or a proxy at {place}, say `words` in its reason; return what the JSON export shows."""
    with scripted(sending(f"HTTP/1.1 200 {words}\r\nContent-Length: 0\r\n\r\n")) as server:
        given = [word.replace("{place}", server.authority) for word in arguments]
        return only_step(here(*given, server.url()))["response"]["reason"]


def basic(pair: str) -> list[str]:
    """Give user:password as a header."""
    return ["-H", f"Authorization: Basic {base64.b64encode(pair.encode()).decode()}"]


def test_what_the_user_typed_is_shown_though_a_cookie_says_the_same(call_tool, tmp_path):
    with http_server({"/localhost": redirect("/there")}) as server:
        url, end = server.url("/localhost", host="localhost"), server.url("/there", "localhost")
        cookie = "Cookie: region=localhost; page=localhost/there"
        result, _ = everything(call_tool, tmp_path, "--compact", "-L", "-H", cookie, url)
    document = result.json(tmp_path / "out.json")
    entry = json.loads((tmp_path / "out.har").read_text("utf-8"))["log"]["entries"][0]
    assert url in result.out
    assert document["initial_url"] == document["steps"][0]["url"] == entry["request"]["url"] == url
    assert document["steps"][1]["url"] == document["summary"]["final_url"] == end
    hosts = [field for step in document["steps"] for field in step["request"]["headers"]]
    assert [each["value"] for each in hosts if each["name"] == "Host"] == [f"localhost:{server.port}"] * 2


GIVING = [
    "Cookie: a={}; b=c",
    'Cookie: b=c; a="{}"',
    "Cookie: {}",
    "X-Api-Key: {}",
    "Authorization: Bearer {}",
    "Authorization: Bearer {}==",
    'Authorization: Digest qop=auth, response="{}"',
    "Authorization: Digest qop=auth,response={},nc=1",
    "Authorization: AWS4-HMAC-SHA256 Credential=me/2024, Signature={}",
]


def test_a_credential_is_masked_inside_a_word_from_eight_characters_on():
    for header in GIVING:
        for value, shown in (("a1b2c3d", "xa1b2c3dy (a1b2c3d)"), ("a1b2c3d4", "x***y (***)")):
            assert told(f"x{value}y ({value})", "-H", header.format(value)) == shown, header


BOB = {  # of bob:hunter2
    "hunter2": "***",
    "_hunter2_ 'hunter2' %hunter2%": "_***_ '***' %***%",
    "bob:hunter2@a.test": "***@a.test",
    "bob: hunter2": "bob: ***",
    "Ym9iOmh1bnRlcjI= Ym9iOmh1bnRlcjI": "***= ***",
    "bob is a hunter": "bob is a hunter",
    "hunter22 2hunter2 hunter2X": "hunter22 2hunter2 hunter2X",
    "hunter2\xc3\xa9 \xc3\xa9hunter2": "hunter2\xe9 \xe9hunter2",
    "xbob:hunter2": "x***",
}
PAIRS = {
    "bob:hunter23": ("xhunter23y bob", "x***y bob"),
    "somebody:pw": ("xsomebodyx pw pwx", "x***x *** pwx"),
    "bob:": ("bob: bob", "bob: bob"),
    ":pw": ("a:pw pw", "a:*** ***"),
}


def test_user_and_password_are_masked_by_their_own_length_a_short_one_where_it_stands_as_a_whole():
    said, shown = " | ".join(BOB), " | ".join(BOB.values())
    assert told(said, *basic("bob:hunter2")).split(" | ") == shown.split(" | ")
    assert told(said, "-x", "http://bob:hunter2@{place}") == shown
    for pair, (words, masked) in PAIRS.items():
        assert told(words, *basic(pair)) == masked, pair


def test_the_words_of_this_program_stay_though_a_credential_is_one_of_them():
    answer = "HTTP/1.1 407 no user \ufdd0 with this password\r\nContent-Length: 0\r\n\r\n"
    with scripted(sending(answer.encode())) as server:
        words = (f"http://user:password@{server.authority}", f"http://{server.authority}")
        [refused, asked] = [
            failure(here("-x", proxy, "https://a.test/"), "proxy")["error"] for proxy in words
        ]
    shown = f"the proxy http://{server.authority} refused the tunnel: 407 no"
    assert refused["message"] == f"{shown} user  with this ***"
    assert refused["hint"].startswith("The proxy refused the user name and password: ")
    assert "http://user:password@host:port" in asked["hint"]


# --- proxies --------------------------------------------------------------------------------------

PASSWORD = secret("p@ss/word")
QUOTED = PASSWORD.replace("@", "%40").replace("/", "%2F")
TOKEN = base64.b64encode(f"{secret('user')}:{PASSWORD}".encode()).decode()
PROXY_ECHO = f"who is {secret('user')} with {PASSWORD} or {TOKEN}?"


def proxy_url(place: str, scheme: str = "http") -> str:
    """Write a proxy URL with credentials."""
    return f"{scheme}://{secret('user')}:{QUOTED}@{place}"


ANSWERS = {  # where credentials come from: what the proxy answers
    "--proxy": f"200 {PROXY_ECHO}",
    "-H": f"407 {PROXY_ECHO}",
    "http_proxy": PROXY_ECHO,
    "HTTPS_PROXY": f"502 {'x' * 1980}{PROXY_ECHO}",
}


@pytest.mark.parametrize("source", ANSWERS)
def test_no_credential_of_a_proxy_is_shown_though_the_proxy_repeats_it(call_tool, tmp_path, source):
    scheme = "http" if source == "http_proxy" else "https"
    head = f"HTTP/1.1 {ANSWERS[source]}\r\nProxy-Authenticate: Basic realm=x\r\nX-Echo: {PROXY_ECHO}\r\n\r\n"
    with scripted(sending(head)) as server:
        words = {
            "--proxy": ["--proxy", proxy_url(server.authority)],
            "-H": ["-x", server.authority, "-H", f"Proxy-Authorization: Basic {TOKEN}"],
        }.get(source, [])
        env = {} if words else {source: proxy_url(server.authority)}
        _, text = everything(call_tool, tmp_path, *words, f"{scheme}://a.test/", env=env)
    check_silent(text)
    assert server.authority in text


# --- usage errors ---------------------------------------------------------------------------------

URL = "http://127.0.0.1:9/"
WRONG_URLS = """
https://me:PASS@HOST/  https://PASS@HOST/  https://me:PASS/y@HOST/  https://me:PASS?y@HOST/
https://me:PASS y@HOST/  https://me:PASS\\y@HOST/  //me:PASS@HOST/  https:/me:PASS@HOST/
ftp://me:PASS@HOST/  https://me:PASS@127.0.0.1:99999/  HOST/?token=PASS  http://a b/?key=PASS
me:PASS@a.test  PASS/a.test  a.PASS
"""
WRONG_PROXIES = """
gopher://me:PASS@HOST  http://me:PASS@127.0.0.1:99999  http://me:PASS@  http://me:PASS/y@HOST
http://me:PASS@[::1  http:/me:PASS@HOST
"""
WRONG_WORDS = [
    ["https://me:PASS@127.0.0.1/\n"],
    [URL, "https://me:PASS@HOST/"],
    ["--headr", "Authorization: Bearer PASS", URL],
    ["--headr=Authorization: Bearer PASS", URL],
    [URL, "Authorization: Bearer PASS"],
    ["-H", "Authorization: Bearer", "PASS"],
    ["-x", f"socks5://me:{'PASS' * 30}@HOST", URL],
    ["--resolve", "https://me:PASS@HOST", URL],
]


def with_secret(text: str) -> str:
    return text.replace("PASS", secret("x")).replace("HOST", "127.0.0.1:9")


def test_no_usage_error_repeats_a_secret(call_tool):
    urls, proxies = (re.split("  |\n", table)[1:-1] for table in (WRONG_URLS, WRONG_PROXIES))
    for words in (*([url] for url in urls), *(["-x", proxy, URL] for proxy in proxies), *WRONG_WORDS):
        result = call_tool("-m", "1", *map(with_secret, words))
        check_silent(result.out + result.err)
        assert result.code == 64, words
        assert "=***" in result.err or "=PASS" not in words[0]


# --- when something else goes wrong ---------------------------------------------------------------


def broken(folder: Path, function: str) -> dict[str, str]:
    """Make an environment in which a function of the standard library fails and tells all it knows."""
    module = function.rpartition(".")[0]
    (folder / "sitecustomize.py").write_text(
        f"import sys, {module}\n"
        "def broken(*args, **kwargs):\n    raise LookupError(sys.argv, args, kwargs)\n"
        f"{function} = broken\n"
    )
    return {"PYTHONPATH": str(folder), "HTTPHASES_TRACEBACK": "1"}


@pytest.mark.parametrize("function", ["json.dumps", "base64.b64encode"])
def test_not_even_a_traceback_shows_a_secret(run_tool, tmp_path, server, function):
    arguments = [*GIVEN, "-x", proxy_url(server.authority), "--json", "-", "https://a.test/"]
    result = run_tool(*arguments, env=broken(tmp_path, function))
    assert result.code == 70
    assert "LookupError" in result.err and "Traceback" in result.err
    check_silent(result.out + result.err)


def test_a_proxy_of_other_hosts_has_its_password_masked_too(call_tool):
    """A redirect may lead to a host that NO_PROXY does not name."""
    env = {"http_proxy": "http://bob:hunter2hunter2@127.0.0.1:1", "no_proxy": "127.0.0.1"}
    with http_server({"/": Reply(headers=[("X-Log", "hunter2hunter2")])}) as server:
        result = call_tool("-i", "--json", "-", server.url(), env=env)
    assert result.code == 0 and "hunter2" not in result.out + result.err


# --- names that tell of a credential --------------------------------------------------------------

COUNTS = [
    ("RateLimit-Remaining-Tokens", "4999", "4999"),
    ("X-Session-Count", " 12345678 ", "12345678"),
    ("X-Session-Count", "123456789", "***"),
    ("X-Session-Count", "1234567a", "***"),
    ("X-Token", "\u0661\u0662", "***"),
    ("X-Api-Key", "12345678", "***"),
    ("X-Tok", "abc", "abc"),
]


def test_a_count_is_no_credential_whatever_its_name(call_tool):
    headers = [(name, value.encode().decode("latin-1")) for name, value, _ in COUNTS]
    with http_server({"/": Reply(headers=headers)}) as server:
        [step] = call_tool("--json", "-", server.url()).json()["steps"]
    fields = [tuple(field.values()) for field in step["response"]["headers"]]
    assert [field for field in fields if field[0] in dict(headers)] == [(each[0], each[2]) for each in COUNTS]


USUAL_NAMES = """
Authorization Proxy-Authorization X-Authorization X-Forwarded-Authorization X-Original-Authorization
Grpc-Metadata-Authorization X-Emby-Authorization Authentication Cookie X-Auth X-Sentry-Auth X-Auth-Token
X-Auth-Key X-Auth-User X-Api-Key Api-Key apikey api_key X-RapidAPI-Key Ocp-Apim-Subscription-Key
X-Functions-Key X-Access-Key DD-APPLICATION-KEY X-Master-Key X-Vault-Token PRIVATE-TOKEN
X-Amz-Security-Token X-Csrf-Token X-JWT-Assertion X-Goog-Iap-Jwt-Assertion Jwt CF-Access-Client-Secret
X-Pass X-Pwd X-Sig X-Hub-Signature X-Hub-Signature-256 OK-ACCESS-PASSPHRASE x_client_secret X-Password
Db-Passwd My_Api_Key Aws-Credential X-SESSION-ID CF-Access-Client-Id
""".split()
JWT = f"eyJhbGciOiJIUzI1NiJ9.{MARK}.{'c' * 20}"
TELLING_VALUES = [
    f"bearer {secret('b')}",
    f"Basic {BASIC}",
    f'DIGEST username="{secret("d")}"',
    f"Token {secret('t')}",
    f"ApiKey {secret('a')}",
    f"AWS4-HMAC-SHA256 Signature={secret('s')}",
    JWT,
    JWT + ".x.y",
]
PLAIN = {
    "X-Request-Id": "7d0e3f2a-key", "Idempotency-Key": "4f90d13a42", "X-Idempotency-Key": "4f90d13a43",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Surrogate-Key": "home page", "Cache-Key": "/a",
    "X-Cache-Key": "/b", "X-True-Cache-Key": "/c", "ETag": '"abcdefgh"', "X-Author": "somebody",
    "X-Authority": "a.test", "Keep-Alive": "timeout=5", "X-Keyboard": "azerty", "X-Monkey": "banana",
    "X-Design": "rounded", "X-Passenger": "somebody", "X-Bypass": "by",
    "Access-Control-Allow-Credentials": "true",
    "X-Note": "Tokens are eyJust words", "X-Plan": "basically", "X-Jwts": "none",
}  # fmt: skip


def test_usual_names_and_values_of_credentials_are_masked_and_not_for_another_origin(call_tool, tmp_path):
    fields = [(name, secret(f"n{number}")) for number, name in enumerate(USUAL_NAMES)]
    fields += [(f"X-Value-{number}", value) for number, value in enumerate(TELLING_VALUES)]
    given = [word for name, value in [*fields, *PLAIN.items()] for word in ("-H", f"{name}: {value}")]
    back = [(name, secret(f"came-{number}")) for number, name in enumerate(USUAL_NAMES)]
    back += [("X-Echo", " ".join(value for _, value in fields)), *fields[len(back) :], *PLAIN.items()]
    with http_server({"/": Reply(headers=back)}) as last:
        to_last = Reply(302, headers=[("Location", last.url()), *back])
        with http_server({"/": to_last}) as first:
            _, text = everything(call_tool, tmp_path, "-L", "-i", *given, first.url())
            [near] = first.requests
        [there] = last.requests
    assert all(value in near.head.decode() for name, value in fields if name != "Proxy-Authorization")
    assert MARK not in there.head.decode(), "a credential went to another origin"
    check_silent(text)
    steps = json.loads((tmp_path / "out.json").read_text())["steps"]
    for name, value in PLAIN.items():
        assert value in there.values(name), f"{name} is no credential"
        assert all({"name": name, "value": value} in step["response"]["headers"] for step in steps)


# --- parameters of URLs ---------------------------------------------------------------------------

PARAMETERS = """
token access_token id-token api_key api-key apikey APIKEY x-amz-signature X-Amz-Credential sig key access_key
accesskey code password passwd pwd pass client_secret Client%5FSecret session session_id jwt auth auth_code
oauth_signature assertion SAML-Assertion authorization user[password] user%5Bpass%5D auth_token[] password[0]
sig%5B%5D to%6Ben pass%77ord%5B0%5D key[a][] app_key private-key subscription-key
""".split()
OPEN = """
id ids[] keys zip_code codes author sign design passenger bypass page
""".split()


def test_parameters_of_a_url_that_are_credentials_are_masked_everywhere_and_sent_as_they_are(
    call_tool, tmp_path
):
    query = "&".join(f"{name}={secret(str(number))}" for number, name in enumerate(PARAMETERS))
    query += "".join(f"&{name}=visible{number}" for number, name in enumerate(OPEN))
    fields = [
        ("X-Original-Url", f"/a?{query}"),
        ("Link", f"<https://a.test/?token={secret('l')}>; rel=next, </b?page=2>; rel=prev"),
        ("Report-To", f'{{"url": "https://a.test/?key={secret("r")}", "max_age": 1}}'),
    ]
    routes = {"/": Reply(302, headers=[("Location", f"/end?{query}#access_token={secret('f')}"), *fields])}
    with http_server({**routes, "/end": Reply(404, reason=f"No /end?{query}")}) as server:
        words = ["-L", "-i", "-e", server.url(f"/?{query}"), server.url(f"/?{query}")]
        result, text = everything(call_tool, tmp_path, *words)
        targets = [request.target for request in server.requests]
    assert targets == [f"/?{query}", f"/end?{query}"], "the mask went into the request"
    check_silent(text)
    assert text.count("visible0") >= 6
    document = result.json(tmp_path / "out.json")
    response = document["steps"][0]["response"]
    [link] = [each["value"] for each in response["headers"] if each["name"] == "Link"]
    assert link == "<https://a.test/?token=***>; rel=next, </b?page=2>; rel=prev"
    urls = [document["initial_url"], document["summary"]["final_url"], response["location"]]
    for url in urls:
        assert url.count("=***") >= len(PARAMETERS) and "&id=visible0" in url
    entry = json.loads((tmp_path / "out.har").read_text("utf-8"))["log"]["entries"][0]["request"]
    assert {"name": "token", "value": "***"} in entry["queryString"] and entry["url"] == urls[0]


QUERIES = {
    "code=123": "code=***",
    f"{'a' * 60}_token=x": f"{'a' * 60}_token=***",
    "token=": "token=",
    "token": "token",
    "a=1;token=b;c&d=e": "a=1;token=***&d=e",
    "token=a\"b'c<d>e&f": "token=***&f",
    "next=%2Fin%3Ftoken%3Dabc%26x%3D1&y=2": "next=%2Fin%3Ftoken%3D***&y=2",
    "q=what?token=a?b&c": "q=what?token=***&c",
    "token=***rest&key=***": "token=***&key=***",
    "token=****": "token=***",
    "%61=%62": "%61=%62",
}


def test_a_query_is_masked_where_a_credential_stands_and_nowhere_else(call_tool, server):
    for query, shown in QUERIES.items():
        document = call_tool("--json", "-", server.url(f"/?{query}")).json()
        assert document["initial_url"] == document["steps"][0]["url"] == server.url(f"/?{shown}")
        assert server.requests[-1].target == f"/?{query}"


def test_a_credential_of_the_query_is_masked_where_the_server_repeats_it(call_tool, tmp_path):
    value = secret("in the+query/")
    with http_server({"/": Reply(401, reason=f"{value} is no good", headers=[("X-Echo", value)])}) as server:
        url = server.url("/?api_key=" + urllib.parse.quote(value, safe=""))
        _, text = everything(call_tool, tmp_path, "-i", url)
    check_silent(text)


# --- by construction ------------------------------------------------------------------------------

OF_A_STEP = "Step Network Attempt Peer TlsInfo Certificate Response Metric Evidence Resolver".split()
PLANTED = secret("planted")


MASKS = tool.index_secrets([(PLANTED, False)])


@pytest.mark.parametrize("name", OF_A_STEP)
def test_every_field_of_a_record_is_masked_but_those_that_are_said_to_be_our_own(name):
    record, own = getattr(tool, name), set(tool.OWN_TEXT.get(name, ()))
    assert own <= {*record._fields}, "a field that is said to be our own does not exist"

    def filled(value):
        return tool.masked(record(*[value] * len(record._fields)), MASKS)

    text, data = filled(f"a {PLANTED}"), filled(PLANTED.encode())
    deep = filled((("x", PLANTED.encode()), tool.Metric(PLANTED, None, None)))
    for field in {*record._fields} - own:
        assert (getattr(text, field), getattr(data, field)) == ("a ***", b"***")
        assert PLANTED not in repr(getattr(deep, field))
    assert all(getattr(text, field) == f"a {PLANTED}" for field in own)


def test_what_could_hide_a_text_is_refused():
    for value in ({"a": PLANTED}, [PLANTED], {PLANTED}, object()):
        with pytest.raises(TypeError):
            tool.masked(tool.Metric("a", None, value), MASKS)


@pytest.mark.parametrize("size", [7, 8, 60_000])
def test_a_credential_of_any_length_is_masked_as_urls_and_json_spell_it(size):
    secret = ('aé%/"!' * size)[:size]
    masks = tool.index_secrets([(secret, True)])
    quoted, written = urllib.parse.quote(secret, safe=""), json.dumps(secret)[1:-1]
    unescaped = json.dumps(secret, ensure_ascii=False)[1:-1]
    misread = secret.encode().decode("latin-1")
    parts = (urllib.parse.quote(secret), urllib.parse.quote(secret, safe="!"))  # as Python, as JavaScript
    encoded = (quoted, quoted.lower(), *parts, misread)
    for form in (secret, *encoded, written, written.replace("/", r"\/"), unescaped):
        assert masks.mask(f"<{form}>") == "<***>"
