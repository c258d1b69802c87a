"""Hosts that are not ASCII: the name that is asked for is the one that browsers ask for, or none."""

from __future__ import annotations

import random
import unicodedata

import pytest

from inside import tool

NAMES = {
    # what RFC 5890 calls deviations: IDNA2003 made other names of them
    "faß.de": "xn--fa-hia.de",
    "straße.de": "xn--strae-oqa.de",
    "STRAẞE.de": "xn--strae-oqa.de",
    "STRASSE.de。": "strasse.de.",
    "βόλος.com": "xn--nxasmm1c.com",
    "ΒΌΛΟΣ.com": "xn--nxasmq6b.com",
    "βόλοσ.com": "xn--nxasmq6b.com",
    "www.ශ්\u200dරී.com": "www.xn--10cl1a0b660p.com",
    "a\u094d\u200cb": "xn--ab-fsf604u",
    "a\u094d\u200db": "xn--ab-fsf014u",
    "نامه\u200cای.com": "xn--mgba3gch31f060k.com",
    "نامهای.com": "xn--mgba3gch31f.com",
    # what is mapped
    "BÜCHER.de": "xn--bcher-kva.de",
    "bu\u0308cher.de": "xn--bcher-kva.de",
    "Ｇｏ．com": "go.com",
    "示例｡com": "xn--fsq092h.com",
    "a\u00ad\u200b\u2060\ufeffb.com": "ab.com",
    "☕\ufe0f.example": "xn--53h.example",
    "İ.example": "xn--i-9bb.example",
    "①.example": "1.example",
    "ﬀ.example": "ff.example",
    "α\u0345\u0301.example": "xn--kxad.example",
    "１２７．０．０．１": "127.0.0.1",
    "ü_b.example": "xn--_b-wka.example",
    # what stands as it is
    "例え.テスト": "xn--r8jz45g.xn--zckzah",
    "пример.испытание": "xn--e1afmkfd.xn--80akhbyknj4f",
    "실례.테스트": "xn--9n2bp8q.xn--9t4b11yi5a",
    "उदाहरण.परीक्षा": "xn--p1b6ci4b4b3a.xn--11b5bs3a9aj6g",
    "உதாரணம்.பரிட்சை": "xn--zkc6cc5bi7f6e.xn--hlcj6aya9esc7a",
    "ᏣᎳᎩ.example": "xn--f9dt7l.example",
    "😀.example": "xn--e28h.example",
    "👩🏽.example": "xn--on8hxg.example",
    "l·l.cat": "xn--ll-0ea.cat",
    "ü--b.example": "xn----b-goa.example",
    "≠.example": "xn--1ch.example",
    "=\u0338.example": "xn--1ch.example",
    "xn--bcher-kva.示例": "xn--bcher-kva.xn--fsq092h",
    "XN--BCHER-KVA.示例": "xn--bcher-kva.xn--fsq092h",
    # from right to left
    "مثال.إختبار": "xn--mgbh0fb.xn--kgbechtv",
    "דוגמה.טעסט": "xn--6dbbec0c.xn--deba0ad",
    "مثال1.example": "xn--1-ymcl5hc.example",
    "مثال١.example": "xn--mgbh0fb7l.example",
    "דוגמה.a1.example": "xn--6dbbec0c.a1.example",
}


@pytest.mark.parametrize(("host", "name"), NAMES.items())
def test_a_host_has_the_name_that_browsers_ask_for(host, name):
    assert tool.parse_host(host) == name


REFUSED = {
    "a joiner that joins nothing": "a\u200db.de",
    "a non-joiner that parts nothing": "a\u200cb.de",
    "a non-joiner after a letter that does not join": "ا\u200cب.de",
    "a joiner at the start": "\u200dक.de",
    "a combining mark at the start": "\u0301a.de",
    "a digit before right-to-left letters": "1אב.de",
    "a label of digits beside right-to-left letters": "1.אב.de",
    "letters of both directions": "abאב.de",
    "digits of two kinds": "ا1١.de",
    "a mark of direction": "a\u200eb.de",
    "an unassigned character": "a\u0378.de",
    "a private one": "a\ue000.de",
    "a byte that is not UTF-8": "a\udcff.de",
    "a control character": "a\u0080.de",
    "a replacement character": "a\ufffd.de",
    "three dots in one": "a…de",
    "a digit with a dot": "⒈de.com",
    "a vertical dot": "a︒de",
    "a/c": "℀.de",
    "a full-width slash": "ａ／b",
    "a full-width at": "ａ＠b",
    "a full-width percent": "ａ％41",
    "a wide space": "ａ\u3000b",
    "nothing left": "\u00ad.de",
    "two dots": "ü。。de",
    "a description of an ideograph": "⿰人人.de",
    "an xn-- that is none": "xn--ü.de",
    "a full-width xn-- that is none": "ｘｎ--a.de",
    "an xn-- of ASCII": "xn--abc-.ü",
    "an xn-- of nothing": "xn--.ü",
    "an xn-- of an xn--": "xn--xn---epa.ü",
    "an xn-- of capitals": "xn--wca.ü",
    "an xn-- with a joiner": "xn--ab-m1t.ü",
    "an xn-- that is not normal": "xn--u-ccb.ü",
    "an xn-- that overflows": "xn--99999999.ü",
    "a label of 64": "ü" + "a" * 58 + ".de",
    "a name of 254": "ü." * 126 + "de",
    "a name that is longer than any": "ü" * 100_000,
}


@pytest.mark.parametrize("host", REFUSED.values(), ids=REFUSED)
def test_a_host_that_cannot_be_told_is_refused(host):
    with pytest.raises(tool.UsageError, match=r"^host '"):
        tool.parse_host(host)


@pytest.mark.parametrize("host", ["a\u0378.de", "a\u200db.de", "1.אב.de", "\u0301a.de", "a\ufffd.de"])
def test_the_advice_is_to_write_the_xn_form_which_is_taken_as_it_stands(host):
    with pytest.raises(tool.UsageError, match="write its xn-- form"):
        tool.parse_host(host)
    name = ".".join(
        each if each.isascii() else "xn--" + each.encode("punycode").decode() for each in host.split(".")
    )
    assert tool.parse_host(name) == name


def test_a_name_of_the_greatest_length_goes():
    label = "ü" + "a" * 55
    assert len(tool.parse_host(label)) == 63


# --- held against the tables of the package idna --------------------------------------------------


@pytest.fixture(scope="module")
def idna():
    package = pytest.importorskip("idna", reason="idna, whose tables are the measure, is not installed")
    if major(package.idnadata.__version__) < major(unicodedata.unidata_version):
        pytest.skip("idna's Unicode is older than this Python's")
    return package


def major(version):
    return int(version.partition(".")[0])


def told_by(idna, host):
    """Return what the host is by UTS #46's own table, without any rule for what a label may be."""
    mapped = idna.uts46_remap(host, std3_rules=False, transitional=False)
    return ".".join(
        each if each.isascii() else "xn--" + each.encode("punycode").decode() for each in mapped.split(".")
    )


def assigned():
    """Yield every character that this Python knows, of long runs of ideographs and syllables some."""
    for code in range(0x80, 0xE0200):
        char = chr(code)
        dense = 0x3400 <= code < 0xD7A4 or 0x17000 <= code < 0x18D00 or 0x20000 <= code < 0xE0000
        if unicodedata.category(char) not in ("Cn", "Co", "Cs") and (not dense or code % 97 == 0):
            yield char


def test_every_character_is_mapped_as_the_table_says_or_refused(idna):
    """And of those that a registered name may hold (PVALID, RFC 5892) none is refused."""
    registrable = idna.idnadata.codepoint_classes["PVALID"]
    other, lost = [], []
    for char in assigned():
        try:
            expected = idna.uts46_remap(char, std3_rules=False, transitional=False)
        except idna.IDNAError:
            expected = None
        try:
            mapped = tool.map_name(char)
        except ValueError:
            mapped = None
        if mapped not in (None, expected):
            other.append(f"U+{ord(char):04X}")
        if mapped is None and idna.intranges.intranges_contain(ord(char), registrable):
            lost.append(f"U+{ord(char):04X}")
    assert (other, lost) == ([], [])


SCRIPTS = [
    *[
        (0x61, 0x7A),
        (0x30, 0x39),
        (0xA0, 0x24F),
        (0x300, 0x345),
        (0x370, 0x3FF),
        (0x400, 0x52F),
        (0x590, 0x5FF),
    ],
    *[(0x600, 0x6FF), (0x700, 0x74F), (0x900, 0x97F), (0xB80, 0xBFF), (0xD00, 0xD7F), (0xE00, 0xE7F)],
    *[
        (0x1100, 0x11FF),
        (0x1E00, 0x1FFF),
        (0x2000, 0x2069),
        (0x2100, 0x214F),
        (0x3040, 0x30FF),
        (0x4E00, 0x9FFF),
    ],
    *[(0xAC00, 0xD7A3), (0xFB50, 0xFDFF), (0xFE70, 0xFEFF), (0xFF00, 0xFFEF), (0x1F300, 0x1F6FF)],
]
TELLING = [*"\u200c\u200d\u094d\u0d4d\u0345\u0338ßςΣẞ。．-_=<", "xn--", "xn--bcher-kva", "xn--a-ecp"]


def some_name(choice):
    """Make up a host of one to three labels, of one to three scripts, with what decides between them."""
    scripts = choice.sample(SCRIPTS, choice.choice([1, 1, 1, 2, 3]))
    labels = [
        [
            choice.choice(TELLING) if choice.random() < 0.2 else chr(choice.randint(*choice.choice(scripts)))
            for _ in range(choice.randint(1, 6))
        ]
        for _ in range(choice.randint(1, 3))
    ]
    return ".".join("".join(label) for label in labels)


def is_bidi(host):
    return any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in host)


@pytest.mark.parametrize("seed", range(4))
def test_a_name_of_any_letters_is_the_table_s_or_refused(idna, seed):
    """Of what may be registered (IDNA2008) nothing is refused but for joiners and right-to-left letters."""
    choice = random.Random(seed)
    told = 0
    for host in [some_name(choice) for _ in range(2000)]:
        try:
            name = tool.parse_host(host)
        except tool.UsageError:
            name = None
        if host.isascii():
            continue
        if name is not None:
            assert name == told_by(idna, host), ascii(host)
            told += 1
        if name is None and not set("\u200c\u200d") & set(host) and not is_bidi(host):
            with pytest.raises((idna.IDNAError, UnicodeError)):
                idna.encode(host, uts46=True)
    assert told > 100
