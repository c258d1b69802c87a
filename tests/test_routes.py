"""What decides where a request goes, function by function: URLs, proxies, NO_PROXY, redirects, headers."""

from __future__ import annotations

import contextlib
import time

import pytest

from inside import tool


def choose_route(url, proxy, environ):
    """Decide how a URL is reached with this --proxy and this environment."""
    asked = tool.Request("GET", url, (), None)
    return tool.route_to(url, tool.Options(asked, tool.NO_SECRETS, environ, proxy=proxy))


# --- URLs -----------------------------------------------------------------------------------------

URLS = {
    "http://a.test": ("http", "a.test", 80, "/"),
    "HTTPS://A.Test": ("https", "a.test", 443, "/"),
    "http://a.test:8080/x?y=1#z": ("http", "a.test", 8080, "/x?y=1"),
    "http://a.test?y": ("http", "a.test", 80, "/?y"),
    "http://a.test#z": ("http", "a.test", 80, "/"),
    "http://a.test:/": ("http", "a.test", 80, "/"),
    "http://a.test:080/": ("http", "a.test", 80, "/"),
    "http://a.test/a b": ("http", "a.test", 80, "/a%20b"),
    "http://a.test/ä?ü": ("http", "a.test", 80, "/%C3%A4?%C3%BC"),
    "http://a.test/%41%zz": ("http", "a.test", 80, "/%41%zz"),
    "http://münchen.test/": ("http", "xn--mnchen-3ya.test", 80, "/"),
    "http://MÜNCHEN.test/": ("http", "xn--mnchen-3ya.test", 80, "/"),
    "http://a.test./": ("http", "a.test.", 80, "/"),
    "http://a_b.test/": ("http", "a_b.test", 80, "/"),
    "http://127.0.0.1:1/": ("http", "127.0.0.1", 1, "/"),
    "http://[::1]/": ("http", "::1", 80, "/"),
    "https://[FE80::1%25eth0]:65535/": ("https", "fe80::1%eth0", 65535, "/"),
    "http://[fe80::1%eth0]/": ("http", "fe80::1%eth0", 80, "/"),
    "http://[fe80::1%25lo]/": ("http", "fe80::1%lo", 80, "/"),
    "http://[fe80::1%257]/": ("http", "fe80::1%7", 80, "/"),
    "http://[fe80::1%2525]/": ("http", "fe80::1%25", 80, "/"),
    "http://[fe80::1%25]/": ("http", "fe80::1%25", 80, "/"),
    "http://a.test/@b:c": ("http", "a.test", 80, "/@b:c"),
    "http://a.test?x=u:p@h": ("http", "a.test", 80, "/?x=u:p@h"),
    "http://a.test/b/./c/../d//..": ("http", "a.test", 80, "/b/d/"),
    "http://a.test/../b?/../c": ("http", "a.test", 80, "/b?/../c"),
    "http://a.test/b/%2e%2e/c": ("http", "a.test", 80, "/b/%2e%2e/c"),
}


@pytest.mark.parametrize(("text", "parts"), URLS.items())
def test_a_url_is_normalised(text, parts):
    assert tuple(tool.parse_url(text)) == parts


@pytest.mark.parametrize("text", URLS)
def test_a_normalised_url_stays_as_it_is(text):
    url = tool.parse_url(text)
    assert tool.parse_url(url.text) == url


MANY = 5000  # more digits than int() takes


def test_zeros_before_a_port_count_for_nothing_however_many():
    long = "0" * MANY
    assert tool.parse_url(f"http://a.test:{long}81/").port == 81
    assert tool.parse_proxy(f"p.test:{long}81", "--proxy").port == 81
    assert tool.parse_resolve(f"a.test:{long}81:127.0.0.1")[0] == ("a.test", 81)
    environ = {"all_proxy": "p", "no_proxy": f"a.test:{long}81"}
    assert choose_route(tool.parse_url("http://a.test:81/"), None, environ).source == "NO_PROXY"
    for port in (long, long + "65536", "9" * MANY, long + "x"):
        with pytest.raises(tool.UsageError, match="is not a number from 1 to 65535"):
            tool.parse_url(f"http://a.test:{port}/")


NO_URLS = [
    *"a.test a.test:80 //a.test ftp://a.test file:///x http:// http:///x http://:80 http://a.test:0".split(),
    *"http://a.test:65536 http://a.test:x http://a.test:-1 http://a.test:1:2 http://a..test".split(),
    *"http://.a.test http://[::1 http://::1/ http://[::1]x/ http://[127.0.0.1]/ http://[a.test]/".split(),
    *"http://[fe80::1%]/ http://a%20b/ http://a,b/ http:a.test mailto:x@a.test".split(),
    *["", " ", "http://a\n.test/", "http://a.test/\x00", "http://a b/"],
    *["http://" + "a" * 64 + ".test", "http://" + "a." * 127 + "test/"],
]


@pytest.mark.parametrize("text", NO_URLS)
def test_what_is_no_url_is_refused(text):
    with pytest.raises(tool.UsageError):
        tool.parse_url(text)


def test_without_scheme_the_url_is_suggested_with_https():
    with pytest.raises(tool.UsageError, match=r"https://a\.test/x"):
        tool.parse_url("a.test/x")


@pytest.mark.parametrize("userinfo", ["user:secret", "secret", ":secret", "us%40er:sec:secret", "a@secret"])
def test_userinfo_in_a_url_is_refused_without_repeating_it(userinfo):
    with pytest.raises(tool.UsageError, match=r"-H .Authorization") as caught:
        tool.parse_url(f"http://{userinfo}@a.test/")
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "authority", "name"),
    [
        ("http://a.test:80/", "a.test", "a.test"),
        ("https://a.test:443/", "a.test", "a.test"),
        ("http://a.test:443/", "a.test:443", "a.test"),
        ("https://a.test./", "a.test.", "a.test"),
        ("http://[::1]:80/", "[::1]", "::1"),
        ("http://[fe80::1%25eth0]:81/", "[fe80::1]:81", "fe80::1"),
    ],
)
def test_host_and_server_name_of_a_url(text, authority, name):
    url = tool.parse_url(text)
    assert (url.authority, tool.server_name(url.host)) == (authority, name)


# --- proxies --------------------------------------------------------------------------------------

PROXIES = {
    "p.test": ("http", "p.test", 80, None, None),
    "p.test:3128": ("http", "p.test", 3128, None, None),
    "http://p.test": ("http", "p.test", 80, None, None),
    "HTTPS://P.test": ("https", "p.test", 443, None, None),
    "socks5://p.test": ("socks5", "p.test", 1080, None, None),
    "socks5h://p.test/": ("socks5h", "p.test", 1080, None, None),
    "http://p.test:81/path?x#y": ("http", "p.test", 81, None, None),
    "http://[::1]:81": ("http", "::1", 81, None, None),
    "http://u:p@p.test": ("http", "p.test", 80, b"u", b"p"),
    "u:p@p.test:81": ("http", "p.test", 81, b"u", b"p"),
    "http://u@p.test": ("http", "p.test", 80, b"u", None),
    "http://u:@p.test": ("http", "p.test", 80, b"u", b""),
    "http://:p@p.test": ("http", "p.test", 80, b"", b"p"),
    "http://us%20er:p%40s%3As%2F%25@p.test": ("http", "p.test", 80, b"us er", b"p@s:s/%"),
    "http://u:a:b@p.test": ("http", "p.test", 80, b"u", b"a:b"),
    "http://ü:%C3%BC@p.test": ("http", "p.test", 80, "ü".encode(), "ü".encode()),
    "http://u:p@ss@p.test": ("http", "p.test", 80, b"u", b"p@ss"),
    "http://münchen.test": ("http", "xn--mnchen-3ya.test", 80, None, None),
}


@pytest.mark.parametrize(("text", "parts"), PROXIES.items())
def test_a_proxy_is_read(text, parts):
    assert tuple(tool.parse_proxy(text, "--proxy")) == parts


@pytest.mark.parametrize("text", PROXIES)
def test_a_proxy_is_shown_without_its_credentials(text):
    scheme, host, port, *_ = PROXIES[text]
    assert (
        tool.parse_proxy(text, "--proxy").shown == f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    )


NO_PROXIES = [
    *"socks4://p.test ftp://p.test socks5a://p http:// http://u:p@ p.test:0 p.test:x p.test:65536".split(),
    *"http://p..test ::1 http://[::1 http://a,b".split(),
    *["http://p test", "p.test\n"],
    *["socks5://" + "u" * 256 + "@p.test", "socks5h://u:" + "p" * 256 + "@p.test"],
]


@pytest.mark.parametrize("text", NO_PROXIES)
def test_what_is_no_proxy_is_refused_by_its_source(text):
    with pytest.raises(tool.UsageError, match=r"^https_proxy: "):
        tool.parse_proxy(text, "https_proxy")


@pytest.mark.parametrize(
    "text",
    [
        "http://user:sec%zzret@p..test",
        "http://user:secret@p.test:x",
        "socks9://user:secret@p.test",
        "http://user:secret/word@p.test",
        "http://user:secret?word@p.test",
        "http://user:secret#word@p.test",
        "user:secret/word@p.test",
        "http://user:secret word@p.test",
        "socks5://user:" + "secret" * 50 + "@p.test",
    ],
)
def test_a_proxy_that_is_refused_does_not_show_its_password(text):
    with pytest.raises(tool.UsageError) as caught:
        tool.parse_proxy(text, "--proxy")
    assert "secret" not in caught.value.message


URL = tool.parse_url("http://a.test/")
SECURE = tool.parse_url("https://a.test/")


@pytest.mark.parametrize(
    ("url", "environ", "source"),
    [
        (URL, {}, None),
        (URL, {"http_proxy": "p"}, "http_proxy"),
        (URL, {"HTTP_PROXY": "p"}, "HTTP_PROXY"),
        (URL, {"http_proxy": "p", "HTTP_PROXY": "q"}, "http_proxy"),
        (URL, {"all_proxy": "q", "HTTP_PROXY": "p"}, "HTTP_PROXY"),
        (URL, {"all_proxy": "p", "ALL_PROXY": "q"}, "all_proxy"),
        (URL, {"ALL_PROXY": "p"}, "ALL_PROXY"),
        (URL, {"https_proxy": "q"}, None),
        (URL, {"http_proxy": "", "HTTP_PROXY": "p"}, "HTTP_PROXY"),
        (URL, {"HTTP_PROXY": "p", "REQUEST_METHOD": "GET"}, None),
        (URL, {"http_proxy": "p", "REQUEST_METHOD": "GET"}, "http_proxy"),
        (URL, {"HTTP_PROXY": "q", "ALL_PROXY": "p", "REQUEST_METHOD": "GET"}, "ALL_PROXY"),
        (SECURE, {"HTTPS_PROXY": "p", "REQUEST_METHOD": "GET"}, "HTTPS_PROXY"),
        (SECURE, {"https_proxy": "p", "HTTPS_PROXY": "q"}, "https_proxy"),
        (SECURE, {"http_proxy": "q"}, None),
        (SECURE, {"https_proxy": "p", "all_proxy": "q"}, "https_proxy"),
        (SECURE, {"all_proxy": "p"}, "all_proxy"),
    ],
)
def test_the_environment_names_the_proxy(url, environ, source):
    route = choose_route(url, None, environ)
    assert route.source == source
    assert (route.proxy.host if route.proxy else None) == ("p" if source else None)


EVERYTHING = {"http_proxy": "q", "https_proxy": "q", "all_proxy": "q", "no_proxy": "*"}


def test_the_option_wins_over_the_environment():
    route = choose_route(URL, "p:1", EVERYTHING)
    assert (route.proxy.host, route.source) == ("p", "--proxy")


def test_an_empty_option_ignores_the_environment():
    route = choose_route(URL, "", {"http_proxy": "q"})
    assert (route.proxy, route.source) == (None, "--proxy")


@pytest.mark.parametrize("value", ["socks4://p", "p:x", "http://", "ftp://p"])
def test_a_malformed_variable_is_refused_by_its_name(value):
    with pytest.raises(tool.UsageError, match="HTTP_PROXY"):
        choose_route(URL, None, {"HTTP_PROXY": value})


COVERED = [
    ("*", "http://a.test/"),
    ("a.test", "http://a.test/"),
    ("A.Test", "http://a.test/"),
    ("a.test", "http://www.a.test/"),
    (".a.test", "http://www.a.test/"),
    (".a.test", "http://a.test/"),
    ("*.a.test", "http://www.a.test/"),
    ("test", "http://a.test/"),
    ("b.test,a.test", "http://a.test/"),
    (" b.test , a.test ", "http://a.test/"),
    ("b.test a.test", "http://a.test/"),
    (",,a.test,", "http://a.test/"),
    ("b.test,*", "http://a.test/"),
    ("a.test:80", "http://a.test/"),
    ("a.test:8080", "http://a.test:8080/"),
    ("b.test,*:8080", "http://a.test:8080/"),
    ("*:8080", "http://10.0.0.1:8080/"),
    (".a.test:8080", "http://www.a.test:8080/"),
    ("a.test:443", "https://a.test/"),
    ("a.test", "http://a.test./"),
    ("a.test.", "http://a.test/"),
    ("10.0.0.1", "http://10.0.0.1/"),
    ("10.0.0.1:81", "http://10.0.0.1:81/"),
    ("10.0.0.0/8", "http://10.1.2.3/"),
    ("10.0.0.5/8", "http://10.1.2.3/"),
    ("0.0.0.0/0", "http://10.1.2.3/"),
    ("10.1.2.3/32", "http://10.1.2.3/"),
    ("::1", "http://[::1]/"),
    ("[::1]", "http://[::1]/"),
    ("[::1]:81", "http://[::1]:81/"),
    ("0:0:0:0:0:0:0:1", "http://[::1]/"),
    ("::1", "http://[0:0:0:0:0:0:0:1]/"),
    ("fd00::/8", "http://[fd12::1]/"),
    ("fe80::/10", "http://[fe80::1%25eth0]/"),
    ("xn--mnchen-3ya.test", "http://münchen.test/"),
    ("münchen.test", "http://münchen.test/"),
    (".示例.com", "http://www.示例.com/"),
    ("*.示例。com", "http://示例.com/"),
    ("STRASSE.test,STRAẞE.test:80", "http://straße.test/"),
    ("ΒΌΛΟς.test", "http://βόλος.test/"),
    ("xn--strae-oqa.test", "http://straße.test/"),
]

NOT_COVERED = [
    ("", "http://a.test/"),
    (",", "http://a.test/"),
    (".", "http://a.test/"),
    ("b.test", "http://a.test/"),
    ("a.test", "http://ba.test/"),
    (".a.test", "http://ba.test/"),
    ("www.a.test", "http://a.test/"),
    ("a.test:81", "http://a.test/"),
    ("*:81", "http://a.test/"),
    ("a.test:80", "https://a.test/"),
    ("a.test:", "http://b.test/"),
    ("10.0.0.0/8", "http://11.0.0.1/"),
    ("10.0.0.1:82", "http://10.0.0.1:81/"),
    ("0.0.1", "http://10.0.0.1/"),
    ("10.0.0.0/33", "http://10.0.0.1/"),
    ("10.0.0.0/x", "http://10.0.0.1/"),
    ("fd00::/8", "http://[fe00::1]/"),
    ("0.0.0.0/0", "http://[::1]/"),
    ("10.0.0.0/8", "http://ten.test/"),
    ("[::1]:81", "http://[::1]:82/"),
    ("[::1", "http://[::1]/"),
    ("a.test:99999999999999999999", "http://a.test/"),
    ("strasse.test", "http://straße.test/"),
    ("straße.test", "http://strasse.test/"),
    ("示例.com:81", "http://示例.com/"),
    ("示例.com", "http://10.0.0.1/"),
]


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
@pytest.mark.parametrize(("value", "url"), COVERED)
def test_no_proxy_covers(value, url, name):
    environ = {"all_proxy": "p", name: value}
    assert choose_route(tool.parse_url(url), None, environ) == (None, "NO_PROXY", None)


@pytest.mark.parametrize(("value", "url"), NOT_COVERED)
def test_no_proxy_does_not_cover(value, url):
    environ = {"all_proxy": "p", "no_proxy": value}
    assert choose_route(tool.parse_url(url), None, environ).source == "all_proxy"


@pytest.mark.parametrize("entry", ["a\u200db.test", "*.示例..com", ".\u0378.test", "示例/8"])
def test_a_name_in_no_proxy_that_cannot_be_told_is_refused(entry):
    """Whatever comes before it: what a later redirect may need is found out before anything is sent."""
    with pytest.raises(tool.UsageError, match=r"^NO_PROXY: host"):
        choose_route(URL, None, {"all_proxy": "p", "no_proxy": f"a.test,{entry}"})


def test_no_proxy_in_lower_case_comes_first():
    environ = {"all_proxy": "p", "no_proxy": "b.test", "NO_PROXY": "a.test"}
    assert choose_route(URL, None, environ).source == "all_proxy"


# --- redirects ------------------------------------------------------------------------------------

LOCATIONS = {
    b"/x": "http://a.test:81/x",
    b"x": "http://a.test:81/d/x",
    b"../x": "http://a.test:81/x",
    b"?q=2": "http://a.test:81/d/e?q=2",
    b"//b.test/x": "http://b.test/x",
    b"https://b.test": "https://b.test/",
    b"HTTPS://B.test:443/": "https://b.test/",
    b"/x y": "http://a.test:81/x%20y",
    b" /x ": "http://a.test:81/x",
    b"/x#y": "http://a.test:81/x",
    b"": "http://a.test:81/d/e?q=1",
    b"#y": "http://a.test:81/d/e?q=1",
    b"/\xc3\xa4": "http://a.test:81/%C3%A4",
    b"/\xe4": "http://a.test:81/%E4",
    b"http://u:p@b.test/": "http://b.test/",
    b"http://m\xc3\xbcnchen.test/": "http://xn--mnchen-3ya.test/",
    b"/a/./b/../c": "http://a.test:81/a/c",
    b"/x?u=http://b.test/": "http://a.test:81/x?u=http://b.test/",
    b"http://[::1]:82/": "http://[::1]:82/",
    b"?": "http://a.test:81/d/e?",
    b"?#y": "http://a.test:81/d/e?",
    b"http://b.test/x/../y": "http://b.test/y",
    b"//b.test/x/..": "http://b.test/",
    b"//b.test\\@c.test/": "http://b.test/\\@c.test/",
    b"//b.test@c.test/": "http://c.test/",
    b"\\x": "http://a.test:81/d/\\x",
    b"1:x": "http://a.test:81/d/1:x",
}
BASE = tool.parse_url("http://a.test:81/d/e?q=1")


@pytest.mark.parametrize(("location", "text"), LOCATIONS.items())
def test_a_location_leads_to(location, text):
    assert tool.resolve_location(BASE, [location]).text == text


RFC_3986 = """
    g       /b/c/g        ./g     /b/c/g        g/      /b/c/g/       /g      /g            ?y   /b/c/d;p?y
    g?y     /b/c/g?y      #s      /b/c/d;p?q    g#s     /b/c/g        g?y#s   /b/c/g?y      ;x   /b/c/;x
    g;x     /b/c/g;x      g;x?y#s /b/c/g;x?y    .       /b/c/         ./      /b/c/         ..   /b/
    ../     /b/           ../g    /b/g          ../..   /             ../../  /             ../../g /g
    ../../../g /g         ../../../../g /g      /./g    /g            /../g   /g            g.   /b/c/g.
    .g      /b/c/.g       g..     /b/c/g..      ..g     /b/c/..g      ./../g  /b/g          ./g/. /b/c/g/
    g/./h   /b/c/g/h      g/../h  /b/c/h        g;x=1/./y /b/c/g;x=1/y  g;x=1/../y /b/c/y
    g?y/./x /b/c/g?y/./x  g?y/../x /b/c/g?y/../x  g#s/./x /b/c/g      g#s/../x /b/c/g
""".split()
"""Section 5.4: references and what they lead to from http://a/b/c/d;p?q."""

WEB_PLATFORM = """
    //foo/bar              http://foo/bar         http://f:/c            http://f/c
    :foo.com/              /foo/:foo.com/         :                      /foo/:
    :#                     /foo/:                 :23                    /foo/:23
    /:23                   /:23                   ::                     /foo/::
    #;?                    /foo/bar               #\\                     /foo/bar
    http://::@c@d:2        http://d:2/            http://foo.com:b@d/    http://d/
    http://&a:foo(b]c@d:2/ http://d:2/            http://a:b@c:29/d      http://c:29/d
    http://foo/path;a??e#f http://foo/path;a??e   http://foo/abcd#f?b    http://foo/abcd
    [61:24:74]:98          /foo/[61:24:74]:98     /a%2fc                 /a%2fc
    ../aaa/test.txt        /aaa/test.txt          中/test.txt            /foo/%E4%B8%AD/test.txt
    ??a=b&c=d              /foo/bar??a=b&c=d      http://ExAmPlE.CoM     http://example.com/
    http://www.foo。bar    http://www.foo.bar/    http://Ｇｏ.com        http://go.com/
    http://foo/%2e         http://foo/%2e         https://@@@x:800       https://x:800/
    http://foo/a/../../b/  http://foo/b/          http://foo/a/b/..      http://foo/a/
    http://foo/..bar       http://foo/..bar       http://foo/a//../..    http://foo/
""".split()
"""The same from http://x/foo/bar, of the tests that browsers share; `%2e` is no dot in RFC 3986."""


@pytest.mark.parametrize(
    ("base", "reference", "place"),
    [
        *[("http://a/b/c/d;p?q", *pair) for pair in zip(RFC_3986[::2], RFC_3986[1::2])],
        *[("http://x/foo/bar", *pair) for pair in zip(WEB_PLATFORM[::2], WEB_PLATFORM[1::2])],
    ],
)
def test_a_reference_is_resolved_as_the_examples_of_the_standards_are(base, reference, place):
    url = tool.parse_url(base)
    expected = base[: base.index("/", 7)] + place if place.startswith("/") else place
    assert tool.resolve_location(url, [reference.encode()]).text == expected


@pytest.mark.parametrize("unit", ["/..", "/.", "/", "/a/..", "/a", "../", "./", "//", "\\", "é", "@"])
def test_a_location_of_any_length_costs_no_time(unit):
    """The longest takes some hundredths of a second; what is quadratic would take minutes."""
    location = (unit.encode() * tool.MAX_URL)[: tool.MAX_URL - 20]
    start = time.process_time()
    for reference in (b"/x" + location, b"x" + location, b"http://b.test/" + location):
        tool.resolve_location(BASE, [reference])
    for reference in (location, b"//" + location, b"http://" + location):
        with contextlib.suppress(tool.NetworkError):
            tool.resolve_location(BASE, [reference])
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "location",
    [
        b"ftp://b.test/",
        b"javascript:alert(1)",
        b"mailto:a@b.test",
        b"http://b.test:0/",
        b"http://b.test:x/",
        b"http://",
        b"http:///",
        b"//",
        b"/x\x00y",
        b"/x\ry",
        b"http://[::1/",
        b"data:,x",
        b"http://" + b"a" * 64 + b".test/",
        b"http:b.test/",
        b"http:/b.test/",
        b"///b.test/",
        b"/\\b.test/",
        b"\\/b.test/",
        b"\\\\b.test/",
        b"http:\\\\b.test/",
        b"//b\xe2\x80\x8dc.test/",
    ],
)
def test_a_location_that_leads_nowhere_is_a_redirect_error(location):
    with pytest.raises(tool.NetworkError) as caught:
        tool.resolve_location(BASE, [location])
    assert caught.value.kind == "redirect" and caught.value.hint


def test_two_different_locations_are_a_redirect_error_and_two_equal_ones_are_none():
    with pytest.raises(tool.NetworkError, match="two"):
        tool.resolve_location(BASE, [b"/x", b"/y"])
    assert tool.resolve_location(BASE, [b"/x", b"/x"]).target == "/x"


@pytest.mark.parametrize("location", [b"http://u:secret@b.test:x/", b"ftp://u:secret@b.test/"])
def test_a_location_that_is_refused_does_not_show_its_password(location):
    with pytest.raises(tool.NetworkError) as caught:
        tool.resolve_location(BASE, [location])
    assert "secret" not in caught.value.message


def request(method="GET", *headers, body=None, url=URL):
    return tool.Request(method, url, headers, body)


BODY = b"x"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_method_and_the_body_after_a_redirect(method, status):
    typed = request(method, ("Content-Type", b"a/b"), ("content-language", b"de"), ("X-A", b"1"), body=BODY)
    after = tool.next_request(typed, status, URL)
    if status == 303 or (status in (301, 302) and method == "POST"):
        expected = ("HEAD" if method == "HEAD" else "GET", None, (("X-A", b"1"),))
    else:
        expected = (method, BODY, typed.headers)
    assert (after.method, after.body, after.headers) == expected


SECRETS = "Authorization COOKIE x-api-key Api-Key X-Auth-Token PRIVATE-TOKEN my_session".split()


@pytest.mark.parametrize("name", [*SECRETS, "Host"])
@pytest.mark.parametrize("text", ["http://b.test/", "https://a.test/", "http://a.test:81/"])
def test_a_secret_and_a_host_are_for_one_origin(name, text):
    after = tool.next_request(request("GET", (name, b"s"), ("X-A", b"1")), 302, tool.parse_url(text))
    assert after.headers == (("X-A", b"1"),)


@pytest.mark.parametrize("name", [*SECRETS, "Host"])
def test_a_secret_and_a_host_stay_on_their_origin(name):
    asked = request("GET", (name, b"s"))
    assert tool.next_request(asked, 302, tool.parse_url("http://A.test:80/x")).headers == asked.headers


# --- header sections ------------------------------------------------------------------------------


def sent(*headers, url=SECURE, proxy=None, body=None, method="GET"):
    route = tool.Route(tool.parse_proxy(proxy, "--proxy") if proxy else None, None)
    return dict(tool.headers_to_send(request(method, *headers, body=body, url=url), route))


def test_a_request_has_three_headers_of_its_own():
    agent = f"httphases/{tool.__version__}".encode()
    assert sent() == {"Host": b"a.test", "User-Agent": agent, "Accept": b"*/*"}


@pytest.mark.parametrize("name", ["host", "USER-AGENT", "accept"])
def test_a_header_of_the_user_replaces_the_default_of_its_name(name):
    fields = [(key.lower(), value) for key, value in sent((name, b"mine")).items()]
    assert [value for key, value in fields if key == name.lower()] == [b"mine"]


GIVEN = ("Proxy-Authorization", b"Basic given")


@pytest.mark.parametrize(
    ("url", "proxy", "value"),
    [
        (URL, None, None),
        (SECURE, None, None),
        (SECURE, "http://p.test", None),
        (SECURE, "https://u:p@p.test", None),
        (URL, "socks5://p.test", None),
        (URL, "http://p.test", b"Basic given"),
        (URL, "https://u:p@p.test", b"Basic given"),
    ],
)
def test_a_given_proxy_authorization_goes_to_a_forwarding_proxy_alone(url, proxy, value):
    assert sent(GIVEN, url=url, proxy=proxy).get("Proxy-Authorization") == value


def test_credentials_of_a_proxy_url_go_to_a_forwarding_proxy_as_basic():
    assert sent(url=URL, proxy="http://us%20er:p%3Aw@p.test")["Proxy-Authorization"] == b"Basic dXMgZXI6cDp3"
    assert "Proxy-Authorization" not in sent(proxy="http://u:p@p.test")
    assert "Proxy-Authorization" not in sent(url=URL, proxy="socks5://u:p@p.test")


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("https://a.test/", b"a.test:443"),
        ("https://a.test:8443/", b"a.test:8443"),
        ("https://[::1]/", b"[::1]:443"),
        ("https://münchen.test/", b"xn--mnchen-3ya.test:443"),
    ],
)
def test_a_tunnel_names_the_target_and_carries_nothing_of_the_request(text, authority):
    asked = request(
        "POST", ("Authorization", b"s"), ("Cookie", b"s"), ("X-A", b"1"), url=tool.parse_url(text)
    )
    head = tool.tunnel_head(asked, tool.parse_proxy("http://u:p@p.test", "--proxy"))
    lines = head.split(b"\r\n")
    assert lines[0] == b"CONNECT " + authority + b" HTTP/1.1"
    names = [line.partition(b":")[0].lower() for line in lines[1:-2]]
    assert sorted(names) == [b"host", b"proxy-authorization", b"user-agent"]
    assert b"Host: " + authority in lines and b"Proxy-Authorization: Basic dTpw" in lines


def h2(*headers, method="GET", url=SECURE):
    asked = request(method, *headers, url=url)
    return tool.http2_headers(asked, tool.fit_for_http2(tool.complete_headers(asked)))


def test_an_http2_request_starts_with_its_four_pseudo_headers():
    url = tool.parse_url("https://a.test:8443/x?y")
    assert h2(url=url, method="PUT")[:4] == [
        (b":method", b"PUT"),
        (b":scheme", b"https"),
        (b":authority", b"a.test:8443"),
        (b":path", b"/x?y"),
    ]


def test_over_http2_a_host_becomes_the_authority():
    fields = h2(("HOST", b"b.test"))
    assert (b":authority", b"b.test") in fields
    assert b"host" not in dict(fields) and b"HOST" not in dict(fields)


def test_over_http2_names_are_in_lower_case_in_order_and_may_repeat():
    fields = [item for item in h2(("X-B", b"1"), ("x-a", b"2"), ("X-B", b"3")) if item[0][:2] == b"x-"]
    assert fields == [(b"x-b", b"1"), (b"x-a", b"2"), (b"x-b", b"3")]


@pytest.mark.parametrize(
    "name", ["Connection", "keep-alive", "Proxy-Connection", "Transfer-Encoding", "UPGRADE", "TE"]
)
def test_over_http2_connection_specific_headers_are_left_out(name):
    assert name.lower().encode() not in dict(h2((name, b"x")))


def test_over_http2_what_connection_names_is_left_out():
    fields = dict(h2(("Connection", b"X-Hop, close"), ("X-Hop", b"1"), ("X-Stay", b"2")))
    assert b"x-hop" not in fields and fields[b"x-stay"] == b"2"


def test_over_http2_te_trailers_stays():
    assert dict(h2(("TE", b"Trailers")))[b"te"].lower() == b"trailers"


# --- small things that decide ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [b"+5", b"-5", b"1_0", b"0x5", b" 5", b"5 ", b"", b"5.0", b"\xb2", b"9" * 16, b"0" * 16]
)
def test_a_length_is_digits_alone(text):
    assert tool.parse_length(text, 10) is None


@pytest.mark.parametrize(("text", "base", "value"), [(b"007", 10, 7), (b"fF", 16, 255), (b"0" * 15, 10, 0)])
def test_a_length_is_read(text, base, value):
    assert tool.parse_length(text, base) == value


@pytest.mark.parametrize("text", [b"20", b"2000", b"099", b"abc", b"+20", b" 20", b"\xb2\xb2\xb2", b""])
def test_a_status_is_three_digits(text):
    with pytest.raises(tool.NetworkError):
        tool.parse_http2_status([(b":status", text)])


@pytest.mark.parametrize(
    ("entry", "key", "address"),
    [
        ("A.test:80:127.0.0.1", ("a.test", 80), "127.0.0.1"),
        ("a.test:80:::1", ("a.test", 80), "::1"),
        ("a.test:80:[::1]", ("a.test", 80), "::1"),
        ("[::1]:80:127.0.0.1", ("::1", 80), "127.0.0.1"),
        ("münchen.test:80:127.0.0.1", ("xn--mnchen-3ya.test", 80), "127.0.0.1"),
    ],
)
def test_a_name_can_be_resolved_by_hand(entry, key, address):
    assert tool.parse_resolve(entry) == (key, address)


@pytest.mark.parametrize(
    "entry",
    "a.test a.test:80 a.test:80: :80:127.0.0.1 a.test::127.0.0.1 a.test:0:127.0.0.1 a.test:65536:127.0.0.1 "
    "a.test:x:127.0.0.1 a.test:80:b.test a.test:80:127.0.0.1,127.0.0.2 a.test:80:1.2.3 *:80:127.0.0.1 "
    "a.test:80:[127.0.0.1 a.test:80:::1]".split(),
)
def test_what_resolves_no_name_is_refused(entry):
    with pytest.raises(tool.UsageError, match="--resolve"):
        tool.parse_resolve(entry)
