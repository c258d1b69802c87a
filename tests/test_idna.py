"""Hosts that are not ASCII: the name that is asked for is the one that browsers ask for, or none."""

from __future__ import annotations

import pytest

from inside import tool
from servers import http_server, redirect

NAMES = {
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
    for host, name in NAMES.items():
        assert tool.parse_host(host) == name


REFUSED = {
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
    for host in REFUSED.values():
        with pytest.raises(tool.UsageError, match=r"^host '"):
            tool.parse_host(host)


def test_without_the_package_the_advice_is_to_write_the_xn_form(run_tool):
    with http_server({"/": redirect("http://bücher.test/")}) as server:
        refused = run_tool(server.url(host="示例。test"), without=("idna",))
        failed = run_tool("-L", "--compact", server.url(), without=("idna",))
    assert (refused.code, refused.out, len(server.requests)) == (64, "", 1)
    assert "host '示例。test' has no sure ASCII form: the package idna is not installed" in refused.err
    assert failed.code == 75 and "redirect" in failed.out and "xn-- form" in failed.out
