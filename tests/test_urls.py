"""What decides where a request goes, function by function: URLs, proxies, NO_PROXY, redirects."""

from __future__ import annotations

import pytest

from inside import tool
from servers import http_server, redirect


def choose_route(url, proxy, environ):
    """Decide how a URL is reached with this --proxy and this environment."""
    asked = tool.Request("GET", url, (), None)
    return tool.route_to(url, tool.Options(asked, tool.NO_SECRETS, environ, proxy=proxy))


ZEROS = "0" * 5000  # more digits than int() takes
URLS = {
    f"http://a.test:{ZEROS}81/": ("http", "a.test", 81, "/"),
    "HTTPS://A.Test": ("https", "a.test", 443, "/"),
    "http://a.test:8080/x?y=1#z": ("http", "a.test", 8080, "/x?y=1"),
    "http://a.test:/": ("http", "a.test", 80, "/"),
    "http://a.test/ä b?ü": ("http", "a.test", 80, "/%C3%A4%20b?%C3%BC"),
    "http://a.test/%41%zz": ("http", "a.test", 80, "/%41%zz"),
    "http://a_b.test./": ("http", "a_b.test.", 80, "/"),
    "https://[FE80::1%25eth0]:65535/": ("https", "fe80::1%eth0", 65535, "/"),
    "http://[fe80::1%eth0]/": ("http", "fe80::1%eth0", 80, "/"),
    "http://[fe80::1%2525]/": ("http", "fe80::1%25", 80, "/"),
    "http://a.test?x=u:p@h": ("http", "a.test", 80, "/?x=u:p@h"),
    "http://a.test/b/./c/../%2e%2e/?/../c": ("http", "a.test", 80, "/b/%2e%2e/?/../c"),
}


def test_a_url_is_normalised():
    for text, parts in URLS.items():
        assert tuple(tool.parse_url(text)) == parts
    urls = ("http://a.test:80/", "http://a.test:443/", "https://a.test:443")
    assert [tool.parse_url(url).authority for url in urls] == ["a.test", "a.test:443", "a.test"]


URL = tool.parse_url("http://a.test/")
SECURE = tool.parse_url("https://a.test/")

PROXIES = {
    f"p.test:{ZEROS}81": ("http", "p.test", 81, None, None),
    "p.test:3128": ("http", "p.test", 3128, None, None),
    "http://p.test": ("http", "p.test", 80, None, None),
    "HTTPS://P.test": ("https", "p.test", 443, None, None),
    "socks5h://p.test/": ("socks5h", "p.test", 1080, None, None),
    "socks://p.test:81/": ("socks5", "p.test", 81, None, None),
    "u:p@p.test:81": ("http", "p.test", 81, b"u", b"p"),
    "http://u@p.test": ("http", "p.test", 80, b"u", None),
    "http://u:@p.test": ("http", "p.test", 80, b"u", b""),
    "http://:p%FF@p.test": ("http", "p.test", 80, b"", b"p\xff"),
    "http://us%20er:p%40s%3As%2F%25@p.test": ("http", "p.test", 80, b"us er", b"p@s:s/%"),
    "http://u:p\udce4 q@p.test": ("http", "p.test", 80, b"u", b"p\xe4 q"),
    "http://ü:a:b@s@münchen.test": ("http", "xn--mnchen-3ya.test", 80, "ü".encode(), b"a:b@s"),
}


def test_a_proxy_is_read_and_shown_without_its_credentials():
    for text, parts in PROXIES.items():
        proxy, (scheme, host, port, *_) = tool.parse_proxy(text, "--proxy"), parts
        assert tuple(proxy) == parts
        assert proxy.shown == f"{scheme}://{host}:{port}"


NO_PROXIES = [
    *"socks4://p.test ftp://p.test http://u:p@ p.test:0 p.test:x p.test:65536 http://p..test ::1".split(),
    *["http://[::1", "http://a,b", "http://p test", "p.test\n", "http://user:sec%zzret@p..test"],
    *["socks5://" + "u" * 128 + ":p@p.test", "socks5h://u:" + "secret" * 50 + "@p.test"],
    *["http://user:secret/word@p.test", "http://user:secret?word@p.test", "user:secret#word@p.test"],
    *["socks9://user:secret@p.test", "user:secret@http://p.test"],
    *["user:secret://word@p.test", "socks5://user@p.test"],
]


def test_what_is_no_proxy_is_refused_by_its_source_without_its_password():
    for text in NO_PROXIES:
        with pytest.raises(tool.UsageError, match=r"^https_proxy: ") as caught:
            choose_route(SECURE, None, {"https_proxy": text})
        assert "secret" not in caught.value.message


COVERED = {
    "b.test,*": "http://a.test/", "a.test": "http://www.a.test/", ".a.test": "http://a.test/",
    "*.a.test": "http://www.a.test/", ",, b.test , a.test ,": "http://a.test/",
    f"a.test:{ZEROS}80": "http://a.test/", "*:8080": "http://10.0.0.1:8080/", "a.test.": "http://a.test./",
    "10.0.0.5/8": "http://10.1.2.3/", "0.0.0.0/0": "http://10.1.2.3/", "[::1]:81": "http://[::1]:81/",
    "0:0:0:0:0:0:0:1": "http://[::1]/", "fd00::/8": "http://[fd12::1]/",
    "fe80::/10": "http://[fe80::1%25eth0]/", "xn--mnchen-3ya.test": "http://münchen.test/",
}  # fmt: skip
NOT_COVERED = {
    ",": "http://a.test/", "a.test": "http://ba.test/", ".a.test": "http://ba.test/",
    "www.a.test": "http://a.test/", "*:81": "http://a.test/", "a.test:80": "https://a.test/",
    "10.0.0.0/8": "http://11.0.0.1/", "10.0.0.1:82": "http://10.0.0.1:81/",
    "10.0.0.0/33": "http://10.0.0.1/", "0.0.0.0/0": "http://[::1]/", "[::1": "http://[::1]/",
    "a.test:99999999999999999999": "http://a.test/", "straße.test": "http://straße.test/",
    "示例.com:81": "http://示例.com/",
}  # fmt: skip


def test_the_environment_decides_the_road():
    for environ, source in (
        ({"http_proxy": "p", "HTTP_PROXY": "q"}, "http_proxy"),
        ({"HTTP_PROXY": "p", "all_proxy": "q"}, "HTTP_PROXY"),
        ({"all_proxy": "p", "ALL_PROXY": "q"}, "all_proxy"),
        ({"HTTP_PROXY": "q", "ALL_PROXY": "p", "REQUEST_METHOD": "GET"}, "ALL_PROXY"),
        ({"https_proxy": "q"}, None),
        ({"http_proxy": "q", "no_proxy": "*"}, "NO_PROXY"),
    ):
        route = choose_route(URL, None, environ)
        assert (route.proxy.host if route.proxy else None, route.source) == (environ.get(source), source)


def test_no_proxy_covers_a_host_or_does_not():
    for rows, source in ((COVERED, "NO_PROXY"), (NOT_COVERED, "all_proxy")):
        for value, url in rows.items():
            for name in ("no_proxy", "NO_PROXY"):
                route = choose_route(tool.parse_url(url), None, {"all_proxy": "p", name: value})
                assert (route.source, route.proxy is None) == (source, source == "NO_PROXY"), (value, url)


RFC_3986 = """
    ./g     /b/c/g        g/      /b/c/g/       /g      /g       ?y      /b/c/d;p?y      #s      /b/c/d;p?q
    g?y#s   /b/c/g?y      ;x      /b/c/;x       .       /b/c/         ../     /b/             ../..   /
    ../../../../g /g      /./g    /g            g..     /b/c/g..      ..g     /b/c/..g        ./g/.   /b/c/g/
    g/../h  /b/c/h        g;x=1/../y /b/c/y     g?y/../x /b/c/g?y/../x         g#s/../x        /b/c/g
    ?#y     /b/c/d;p?     1:x     /b/c/1:x      \\x      /b/c/\\x       /x?u=http://b/     /x?u=http://b/
""".split()
"""Some of section 5.4: references and what they lead to from http://a/b/c/d;p?q; the last row is ours."""

WEB_PLATFORM = """
    //foo/bar              http://foo/bar         http://f:/c            http://f/c
    :foo.com/              /foo/:foo.com/         :                      /foo/:
    /:23                   /:23                   #\\                     /foo/bar
    http://::@c@d:2        http://d:2/            http://&a:foo(b]c@d:2/ http://d:2/
    http://foo/path;a??e#f http://foo/path;a??e   http://foo/abcd#f?b    http://foo/abcd
    [61:24:74]:98          /foo/[61:24:74]:98     /a%2fc                 /a%2fc
    ../aaa/test.txt        /aaa/test.txt          中/test.txt            /foo/%E4%B8%AD/test.txt
    http://www.foo。bar    http://www.foo.bar/    http://Ｇｏ.com        http://go.com/
    http://foo/%2e         http://foo/%2e         http://foo/a//../..    http://foo/
    HTTPS://B.test:443/    https://b.test/        http://[::1]:82/       http://[::1]:82/
    http:g                 /foo/g                 http:/g                /g
    https:/B.test/g        https://b.test/g       https:b.test           https://b.test/
    //b.test\\@c.test/      http://b.test/\\@c.test/ //b.test@c.test/     http://c.test/
    ///b.test/g            http://b.test/g        /////b.test            http://b.test/
""".split()
"""The same from http://x/foo/bar, of the tests that browsers share; the last three rows are ours."""


def test_a_reference_is_resolved_as_the_examples_of_the_standards_are():
    for base, rows in (("http://a/b/c/d;p?q", RFC_3986), ("http://x/foo/bar", WEB_PLATFORM)):
        for reference, place in zip(rows[::2], rows[1::2]):
            expected = base[: base.index("/", 7)] + place if place.startswith("/") else place
            assert tool.resolve_location(tool.parse_url(base), [reference.encode()]).text == expected


def test_bytes_of_a_location_that_are_no_utf_8_stay_as_they_are_and_it_may_come_twice():
    assert tool.resolve_location(URL, [b"/\xe4"] * 2).text == "http://a.test/%E4"


NOWHERE = [
    *(b"mailto:b.test", b"localhost:80/", b"///", b"/".ljust(1 << 18, b"y")),
    *(b"/x\x00y", b"/x\ry", b"http://u:secret@b.test:x/", b"ftp://u:secret@b.test/"),
]


def test_a_location_that_leads_nowhere_is_a_redirect_error_and_shows_no_password():
    for location in NOWHERE:
        with pytest.raises(tool.NetworkError) as caught:
            tool.resolve_location(URL, [location])
        assert caught.value.kind == "redirect" and caught.value.hint
        assert "secret" not in caught.value.message


def test_a_name_can_be_resolved_by_hand():
    assert tool.parse_resolve(f"a.test:{ZEROS}81:127.0.0.1")[0] == ("a.test", 81)
    assert tool.parse_resolve("münchen.test:80:[::1]") == (("xn--mnchen-3ya.test", 80), "::1")
    assert tool.parse_resolve("[::1]:80:127.0.0.1") == (("::1", 80), "127.0.0.1")


# --- hosts that are not ASCII ---------------------------------------------------------------------

HOSTS = {  # that are not ASCII: the name that browsers ask for
    # what RFC 5890 calls deviations: IDNA2003 made other names of them
    "faß.de": "xn--fa-hia.de",
    "βόλος.com": "xn--nxasmm1c.com",
    "a\u094d\u200cb": "xn--ab-fsf604u",
    "نامه\u200cای.com": "xn--mgba3gch31f060k.com",
    # what is mapped
    "BÜCHER.de": "xn--bcher-kva.de",
    "a\u00ad\u200b\u2060\ufeffb.com": "ab.com",
    "İ.example": "xn--i-9bb.example",
    # what stands as it is
    "例え.テスト": "xn--r8jz45g.xn--zckzah",
    "xn--bcher-kva.示例": "xn--bcher-kva.xn--fsq092h",
    "xn--53h.de": "xn--53h.de",  # as the advice is for ☕.de, which is refused
    # from right to left
    "مثال.إختبار": "xn--mgbh0fb.xn--kgbechtv",
    "דוגמה.a1.example": "xn--6dbbec0c.a1.example",
}


def test_a_host_has_the_name_that_browsers_ask_for():
    for host, name in HOSTS.items():
        assert tool.parse_host(host) == name


NO_HOSTS = {
    "a joiner that joins nothing": "a\u200db.de",
    "a digit before right-to-left letters": "1אב.de",
    "nothing left": "\u00ad.de",
    "an xn-- that is none": "xn--ü.de",
    "a symbol": "☕.de",
    "an underscore beside what is not ASCII": "my_host.ü.example",
    "a label of 64": "ü" + "a" * 58 + ".de",
    "a name that is longer than any": "ü" * 100_000,
}


def test_a_host_that_cannot_be_told_is_refused():
    for host in NO_HOSTS.values():
        with pytest.raises(tool.UsageError, match=r"^host '"):
            tool.parse_host(host)


def test_without_the_package_the_advice_is_to_write_the_xn_form(run_tool):
    with http_server({"/": redirect("http://bücher.test/")}) as server:
        refused = run_tool(server.url(host="示例。test"), without=("idna",))
        failed = run_tool("-L", "--compact", server.url(), without=("idna",))
    assert (refused.code, refused.out, len(server.requests)) == (64, "", 1)
    assert "host '示例。test' has no sure ASCII form: the package idna is not installed" in refused.err
    assert failed.code == 75 and "redirect" in failed.out and "xn-- form" in failed.out
