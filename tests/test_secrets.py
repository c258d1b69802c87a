"""A report can be attached to a ticket: no credential is in it, in any mode, whatever went wrong.

Every secret that is planted here holds MARK, and whatever the program prints or writes is searched for it.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from inside import here, only_step
from servers import Reply, http_server, redirect, scripted, sending

MARK = "Tr0ub4dor"


def secret(name: str) -> str:
    """Make the secret that is planted in the place `name`."""
    return f"{MARK}-{name}"


PART = "\n=== "


def everything(call_tool: Any, folder: Path, *arguments: Any, **settings: Any) -> tuple[Any, str]:
    """Run the program with all exports; return its result, and all that it has printed and written.

    Each part of that begins with its name: stdout, stderr, json, har, prometheus, otlp.
    """
    files = {name: folder / f"out.{name}" for name in ("json", "har", "prometheus", "otlp")}
    exports = [word for name, path in files.items() for word in (f"--{name}", path)]
    result = call_tool(*exports, *arguments, **settings)
    parts = {"stdout": result.out, "stderr": result.err}
    parts.update((name, path.read_text("utf-8")) for name, path in files.items() if path.exists())
    return result, "".join(f"{PART}{name}:\n{text}\n" for name, text in parts.items())


def check_silent(text: str, *forms: str, case: str = "") -> None:
    """Prove that no form of a secret is in any part of `text`, in any case, in one line or two."""
    for part in text.lower().split(PART):
        joined = re.sub("[\n\u2502| ]", "", part)
        for form in forms or (MARK, BASIC, base64.b64encode(MARK.encode()).decode()[:10]):
            for where, wanted in ((part, form.lower()), (joined, form.lower().replace(" ", ""))):
                at = where.find(wanted)
                assert at < 0, f"{case}, in {part.partition(':')[0]}: …{where[max(0, at - 60) : at + 60]}…"


# --- what the other side repeats ------------------------------------------------------------------

USER, PASSWORD = secret("user"), f'{MARK}-é"\\w&/rd!%'
PAIR = f"{USER}:{PASSWORD}"
BASIC = base64.b64encode(PAIR.encode()).decode().rstrip("=")
ENCODED = [urllib.parse.quote(PASSWORD, safe) for safe in ("", "/", "!'()*")]
ENCODED += [ENCODED[0].lower()]
IN_JSON = [json.dumps(PASSWORD, ensure_ascii=plain)[1:-1] for plain in (True, False)]
IN_JSON += [IN_JSON[0].replace("/", r"\/"), IN_JSON[0].upper().replace("U00E9", "u00E9")]
IN_JSON += [IN_JSON[0].replace("&", r"\u0026")]  # as Go writes it
FORMS = [PASSWORD, PASSWORD.swapcase(), PASSWORD.upper(), USER, PAIR, BASIC, *ENCODED, *IN_JSON]
TOLD = " | ".join(FORMS)
IN_UTF8 = TOLD.replace("É", "é").encode().decode("latin-1")  # what is sent is encoded as Latin-1
BODY = "\r\nContent-Length: 0\r\n\r\n"
FIELDS = """
Server Date Content-Type X-Cache Age Retry-After Set-Cookie X-Other WWW-Authenticate Content-Length Link
""".split()
PLACES = {
    "no HTTP": f"{TOLD}\r\n",
    "the reason": f"HTTP/1.1 401 {TOLD}{BODY}",
    "a nameless field": f"HTTP/1.1 200 Fine\r\na {USER} b: {TOLD}{BODY}",
    "the name of a field": f"HTTP/1.1 200 Fine\r\nX-{USER}: x{BODY}",
    "an interim answer": f"HTTP/1.1 103 {TOLD}\r\na {TOLD}: x\r\n\r\nHTTP/1.1 200 Fine{BODY}",
    "a nameless trailer": f"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na {TOLD}: x\r\n\r\n",
    "the size of a chunk": f"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n{TOLD}\r\n",
    "a metric": f'HTTP/1.1 200 Fine\r\nServer-Timing: {USER};desc="{IN_JSON[1]}"{BODY}',
    "a page": f"HTTP/1.1 401 No\r\nContent-Type: text/plain\r\n\r\n{TOLD}",
    "a page in HTML": f"HTTP/1.1 401 No\r\nContent-Type: text/html\r\n\r\n<p>{TOLD}",
    "a host in capitals": f"HTTP/1.1 302 Go\r\nLocation: http://{USER.upper()}.localhost:1/{BODY}",
    "a zone": f"HTTP/1.1 302 Go\r\nLocation: http://[fe80::1%25{USER}]/{BODY}",
    **{f"the field {name}": f"HTTP/1.1 302 Go\r\n{name}: {TOLD}\r\n\r\n" for name in FIELDS},
    "the field Location": f"HTTP/1.1 302 Go\r\nLocation: /{'/'.join(ENCODED)}?{PAIR}{BODY}".encode(),
    "what is no UTF-8": f"HTTP/1.1 401 x\r\nX: {IN_UTF8}\xff\r\n\r\n\xff {IN_UTF8}",
}
KINDS = {
    "waterfall": ["-L", "-i"],
    "compact": ["-L", "--compact", "--slo", "total=0.001"],
    "metrics": ["-L", "--metrics-only"],
    "silent": ["-L", "-s", "-f"],
    "series": ["-i", "--count", "2", "--interval", "0"],
    "lines": ["--compact", "--count", "2", "--interval", "0", "-f"],
    "comparison": ["--vs", f"-H 'X-Token: {secret('side')}'", "--count", "1"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_is_shown_wherever_and_however_the_server_repeats_it(call_tool, tmp_path, kind):
    masked = 0
    for place, answer in PLACES.items():
        with scripted(sending(answer)) as server:
            words = [*KINDS[kind], "-m", "2", "-u", PAIR, server.url()]
            result, text = everything(call_tool, tmp_path, *words)
        assert result.code in (0, 22, 4, 47, 75), result.err
        check_silent(text, MARK, *FORMS, case=place)
        masked += "***" in text
    assert masked == len(PLACES)


@pytest.mark.needs("rich")
def test_rich_shows_no_secret_either(run_tool):
    for place in ("the reason", "a page", "the field Server", "the field Location", "a metric"):
        with scripted(sending(PLACES[place])) as server:
            result = run_tool("-i", "-u", PAIR, server.url())
        check_silent(result.out + result.err, MARK, *FORMS, case=place)
        assert "***" in result.out


CUTS = {  # what is said, and how many characters of it are shown
    "HTTP/1.1 401 {}\r\nContent-Length: 0\r\n\r\n": (200, 2000),
    "{}\r\n": (200, 2000),
    "HTTP/1.1 302 Go\r\nLocation: /{}\r\n\r\n": (2000,),
    "HTTP/1.1 302 Go\r\nLocation: ftp://a/{}\r\n\r\n": (200, 2000),
    "HTTP/1.1 200 Fine\r\nX-Other: {}\r\n\r\n": (2000, 4000, 65536),
    "HTTP/1.1 401 No\r\nContent-Type: text/plain\r\n\r\n{}": (160,),
    "HTTP/1.1 401 No\r\nContent-Type: text/html\r\n\r\n<b {}": (4096,),
}


@pytest.mark.parametrize("password", [secret("and-3-words"), f"{MARK} horse battery", f"{MARK}{'x' * 300}"])
def test_of_a_secret_that_is_cut_no_eight_characters_are_shown(call_tool, tmp_path, password):
    for answer, borders in CUTS.items():
        for at in (border - shown for border in borders for shown in (8, 12)):
            padding = "x" * at if "<b" not in answer else "x".ljust(at - 9) + "> no "
            told = answer.format(padding + password + "-more" * (14_000 if at > 60_000 else 400))
            with scripted(sending(told)) as server:
                words = ["-L", "-i", "-m", "2", "-u", f"me:{password}", server.url()]
                _, text = everything(call_tool, tmp_path, *words)
            check_silent(text, MARK[:8], case=f"{answer} {at}")


def test_no_secret_is_shown_of_a_certificate(call_tool, tmp_path, authority):
    names = (f"dns:{USER}.test", "ip:127.0.0.1")
    leaf = authority.issue(authority.ca, common_name=PASSWORD, sans=names)
    for trust in (["-k"], ["--cacert", authority.file], []):
        with http_server(tls=authority.showing(leaf)) as server:
            for url in (server.url(), server.url(host="localhost")):
                _, text = everything(call_tool, tmp_path, *trust, "-u", PAIR, url)
                check_silent(text, MARK, *FORMS)
                assert "***" in text


USERINFO = f"someone:{secret('userinfo')}@"

LOCATIONS = [
    f"http://{USERINFO}a.test:99999/",
    f"http://{USERINFO}[::1/",
    f"http://{USERINFO}{USERINFO}a.test:0/",
    f"//some one:{secret('userinfo')}@a.test:0/",
    f"ftp:{USERINFO}a.test",
    f"http://{USERINFO}a.test/\x01",
    f"http://{'x' * 1990}{USERINFO}a.test:0/",
]


def test_userinfo_of_a_location_is_masked_and_not_sent(call_tool, tmp_path):
    with http_server() as last:
        for location in [*LOCATIONS, last.url("/end").replace("//", f"//{USERINFO}")]:
            with http_server({"/": redirect(location)}) as first:
                result, text = everything(call_tool, tmp_path, "-L", "-u", PAIR, first.url())
            check_silent(text, MARK[:7], case=location)
            assert (result.code == 0) == location.endswith("/end") and "someone" not in text
        [request] = last.requests
    assert MARK not in request.head.decode(), "a secret went to another origin"


def told(words: str, *arguments: str) -> str:
    """Let a server, or a proxy at {place}, say `words` in its reason; return what the JSON export shows."""
    with scripted(sending(f"HTTP/1.1 200 {words}{BODY}")) as server:
        given = [word.replace("{place}", server.authority) for word in arguments]
        return only_step(here(*given, server.url()))["response"]["reason"]


def test_a_host_that_the_user_typed_and_how_somebody_logs_in_are_no_secrets():
    words = ("-H", "Cookie: region=127.0.0.1; page=127.0.0.1/there")
    assert told("127.0.0.1 127.0.0.1/there", *words) == "127.0.0.1 ***"
    given = 'Authorization: Digest realm="our shop", uri="/a/login", algorithm=SHA-256, response="1"'
    assert told("/a/login SHA-256 our shop", "-H", given) == "/a/login SHA-256 our shop"


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
    assert told("a1b2c3d4e5", "-H", "Cookie: a=a1b2c3d4; b=a1b2c3d4e5") == "***", "the longer one"


PAIRS = {  # what the other side says, and what is shown of it
    "bob:hunter2": {
        "hunter2 hunter22 bob": "hunter2 hunter22 bob",
        "xBOB:Hunter2@a.test": "x***@a.test",
        "Ym9iOmh1bnRlcjI= Ym9iOmh1bnRlcjI": "***= ***",
    },
    "bob:hunter23": {"xhunter23y bob": "x***y bob"},
    "somebody:pw": {"xsomebodyx pw": "x***x pw"},
    "bob:": {"bob: bob": "bob: bob"},
    ":password": {"a:password password": "a*** ***"},
}


@pytest.mark.parametrize("pair", PAIRS)
def test_user_and_password_are_masked_by_their_own_length(pair):
    said, shown = (" | ".join(words) for words in (PAIRS[pair], PAIRS[pair].values()))
    assert told(said, "-u", pair) == shown
    assert told(said, "-x", f"http://{pair}@{{place}}") == shown


PROXY = f"http://{USER}:{urllib.parse.quote(PASSWORD, safe='')}@{{}}"  # an address belongs there
SOURCES = {  # where credentials come from: a URL, the words, what the proxy answers
    "--proxy": ("https", ["--proxy", PROXY], f"HTTP/1.1 200 {TOLD}"),
    "-H": ("https", ["-x", "{}", "-H", f"Proxy-Authorization: Basic {BASIC}"], f"HTTP/1.1 407 {TOLD}"),
    "http_proxy": ("http", [], f"HTTP/1.1 {TOLD}"),
    "https_proxy": ("https", [], f"HTTP/1.1 502 {'x' * 180}{TOLD}"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_no_credential_of_a_proxy_is_shown_though_the_proxy_repeats_it(call_tool, tmp_path, source):
    scheme, words, answer = SOURCES[source]
    head = f"{answer}\r\nProxy-Authenticate: Basic realm=x\r\nProxy-Status: {TOLD}\r\n\r\n"
    with scripted(sending(head)) as server:
        given = [word.format(server.authority) for word in words]
        env = {} if words else {source: PROXY.format(server.authority)}
        _, text = everything(call_tool, tmp_path, *given, f"{scheme}://a.test/", env=env)
    check_silent(text, MARK, *FORMS)
    assert server.authority in text


def test_a_proxy_of_other_hosts_has_its_password_masked_too():
    """A redirect may lead to a host that NO_PROXY does not name."""
    env = {"http_proxy": "http://bob:hunter2hunter2@127.0.0.1:1", "no_proxy": "127.0.0.1"}
    with http_server({"/": Reply(reason="hunter2hunter2")}) as server:
        assert only_step(here(server.url(), env=env))["response"]["reason"] == "***"


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


def test_not_even_an_internal_error_shows_a_secret(run_tool, tmp_path, server):
    """A function of the standard library fails and tells all that it knows."""
    code = "import json, sys\ndef broken(*args, **named): raise LookupError(sys.argv)\njson.dumps = broken"
    (tmp_path / "sitecustomize.py").write_text(code)
    given = ("-H", f"X-Api-Key: {secret('key')}", "-x", PROXY.format(server.authority), "--json", "-")
    result = run_tool(*given, "https://a.test/", env={"PYTHONPATH": str(tmp_path)})
    assert result.code == 70
    assert "at sitecustomize.py:2, " in result.err
    check_silent(result.out + result.err)


# --- names that tell of a credential --------------------------------------------------------------

COUNTS = {
    "RateLimit-Remaining-Tokens: 4999": "4999",
    "X-Session-Count:  12345678 ": "12345678",
    "X-Session-Count: 123456789": "***",
    "X-Session-Count: 1234567a": "***",
    "X-Token: \xd9\xa1": "***",  # a digit of another script
    "X-Api-Key: 12345678": "***",
    "X-Tok: abc": "abc",
}


def test_a_count_is_no_credential_whatever_its_name():
    for header, shown in COUNTS.items():
        with scripted(sending(f"HTTP/1.1 200 Fine\r\n{header}{BODY}")) as server:
            field = only_step(here(server.url()))["response"]["headers"][0]
        assert field["value"] == shown, header


USUAL_NAMES = """
Authorization Proxy-Authorization X-Original-Authorization Authentication Cookie X-Sentry-Auth X-Auth-Key
X-Api-Key apikey api_key Ocp-Apim-Subscription-Key X-Vault-Token PRIVATE-TOKEN X-JWT-Assertion
CF-Access-Client-Secret X-Pass X-Pwd X-Sig X-Hub-Signature-256 OK-ACCESS-PASSPHRASE x_client_secret
X-Password Db-Passwd Aws-Credential X-SESSION-ID CF-Access-Client-Id
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
    "X-Request-Id": "7d0e3f2a-key", "X-Idempotency-Key": "4f90d13a43", "Sec-WebSocket-Key": "dGhlIHNhbXBs",
    "Surrogate-Key": "home page", "X-Cache-Key": "/b", "ETag": '"abcdefgh"', "X-Authority": "a.test",
    "Keep-Alive": "timeout=5", "X-Monkey": "banana", "X-Design": "rounded", "X-Bypass": "by",
    "Access-Control-Allow-Credentials": "true", "X-Note": "Tokens are eyJust words", "X-Jwts": "none",
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
token id-token api_key APIKEY X-Amz-Credential sig key accesskey code passwd pwd pass Client%5FSecret
session_id jwt auth_code SAML-Assertion authorization user[password] user%5Bpass%5D auth_token[] password[0]
sig%5B%5D to%6Ben pass%77ord%5B0%5D key[a][] app_key private-key subscription-key
""".split()
OPEN = "id ids[] keys zip_code codes author sign design passenger bypass page".split()


def test_parameters_that_are_credentials_are_masked_everywhere_and_sent_as_they_are(call_tool, tmp_path):
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
    "token=a?key=b&c": "token=***&c",
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
        url = server.url("/?api_key=" + urllib.parse.quote_plus(value))
        _, text = everything(call_tool, tmp_path, "-i", url)
    check_silent(text)
