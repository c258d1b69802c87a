"""Certificates: what is read of them, what is wrong with them, and that both are said in plain words."""

from __future__ import annotations

import hashlib
import random
import re
import ssl
import sys

import pytest

from certificates import server_context
from checks import flat
from inside import failure, here, only_step, tool, visit
from servers import http_server, redirect

pytest.importorskip("cryptography", reason="needs cryptography, to make certificates")


def rejected(authority, context, words="", **settings):
    """Prove that verification fails with these words; return the step."""
    step = failure(visit(authority, context, **settings), "tls", "tls")
    assert words in step["error"]["message"], step["error"]
    assert "-k" in step["error"]["hint"]
    assert step["network"]["tls_verified"] is not True
    assert step["network"]["cert_serial"], "the certificate that failed is shown"
    assert step["timing"]["tls_ms"] > 0 and step["timing"]["wait_ms"] is None
    return step


HERE = ("localhost",)
LEAVES = {  # how a leaf is made -> what the message says, and what the hint does
    "expired": (
        {"days": (-90, -3.5)},
        r"expired 3 days ago \(notAfter 20.* UTC\)",
        "UTC. If it is right, renew the certificate on the server",
    ),
    "expired today": ({"days": (-90, -0.5)}, "less than a day ago", ""),
    "not valid yet": (
        {"days": (5.5, 90)},
        r"not valid yet, but will be in 5 days \(notBefore 20",
        "Check this machine's time, 20",
    ),
    "other names": (
        {"sans": ("a.test", "*.b.test", "c", "d", "e")},
        r"no certificate for localhost: it answered with its default, for a.test, \*.b.test, c, d, e$",
        "Use one of its names in the URL, or give the server a certificate for localhost. To see",
    ),
    "many names": ({"sans": tuple(f"n{n}.test" for n in range(200))}, "n0.test, .*n4.test, …$", ""),
    "a common name alone": (
        {"sans": (), "common_name": "Localhost"},
        "has Localhost as its common name alone, which does not count for localhost",
        "Give the server a certificate with localhost in its subjectAltName",
    ),
    "an address as a name": (
        {"sans": ("dns:127.0.0.1",)},
        "has 127.0.0.1 as a DNS name, which does not count for 127.0.0.1$",
        "in its subjectAltName",
        "127.0.0.1",
    ),
    "one before one label": ({"sans": ("*.test",)}, r"has \*.test as a DNS", "before two labels", "a.test"),
    "one for an underscore": ({"sans": ("*.b.test",)}, r"\*.b.test as a DNS", "letters", "a_b.b.test"),
}


@pytest.mark.parametrize("case", LEAVES.values(), ids=LEAVES)
def test_what_is_wrong_with_a_certificate_is_said(authority, case):
    """RFC 9525 section 2: only subjectAltName counts."""
    made, message, hint, host = (*case, "localhost")[:4]
    leaf = authority.issue(authority.ca, **{"sans": HERE, **made})
    error = rejected(authority, authority.showing(leaf), host=host)["error"]
    assert re.search(message, error["message"]) and hint in error["hint"], error


def test_an_expired_certificate_is_one_reason_though_each_run_has_another_time(call_tool, authority):
    with http_server(tls=authority.context("127.0.0.1", days=(-90, -60))) as server:
        series = call_tool("--cacert", authority.file, "--count", 3, "--interval", 0.6, server.url())
    assert series.code == 75 and "(3 times)" in flat(series.out)


@pytest.mark.parametrize("own", [False, True], ids=["the CA's", "self-signed"])
def test_a_server_s_default_is_no_certificate_to_trust(authority, own):
    """An address is no name that a server could choose by, whatever -H Host says: --resolve tells it one."""
    leaf = authority.issue(None if own else authority.ca, "x", sans=("a.test",))
    store = authority.store(authority.ca)
    default = "the server has no certificate for 127.0.0.1: it answered with its default, for a.test"
    with http_server(tls=authority.showing(leaf)) as server:
        for header, host in (((), "NAME"), (("-H", "Host: a.test:81"), "a.test")):
            step = failure(here(*header, server.url(host="127.0.0.1"), env=store), "tls", "tls")
            message, hint = step["error"]["message"], step["error"]["hint"]
            assert message == default + ("; besides, the certificate is self-signed" if own else "")
            assert "trust it" not in hint and "--cacert" not in hint
            url, mapping = re.search(r" (\S+) with --resolve (\S+)\. ", hint).groups()
            assert host in url
            words = [text.replace("NAME", "a.test") for text in (mapping, url)]
            only_step(here("--cacert", authority.file_of(leaf), "--resolve", *words))


def test_a_key_that_is_too_weak(authority):
    """OpenSSL's default level of security refuses it; -k does not."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    leaf = authority.issue(authority.ca, sans=("localhost",), key=rsa.generate_private_key(65537, 1024))
    context = authority.showing(leaf)
    step = failure(visit(authority, context), "tls", "tls")
    assert "too" in step["error"]["message"] and "-k" in step["error"]["hint"]
    assert only_step(visit(authority, context, "-k"))["network"]["cert_cn"] == "localhost"


def test_a_self_signed_certificate_is_refused_and_can_be_trusted_by_itself(authority):
    leaf, old = (authority.issue(None, sans=HERE, days=days) for days in ((-1, 90), (-90, -3.5)))
    words = "is self-signed; besides, the certificate expired 3 days ago"
    hint = rejected(authority, authority.showing(old), words)["error"]["hint"]
    assert "bundle" in hint and "intermediate" not in hint
    stranger = authority.issue(None, "Stranger CA", ca=True)
    chain = authority.showing(authority.issue(stranger, sans=HERE), stranger[1])
    hint = rejected(authority, chain, "chain ends in a self-signed CA")["error"]["hint"]
    assert "bundle" in hint and "intermediate" not in hint
    step = rejected(authority, authority.showing(leaf), "self-signed", env=authority.store(stranger))
    assert step["error"]["hint"].startswith("It is its own issuer: if you trust it, name it with --cacert")
    step = only_step(visit(authority, authority.showing(leaf), "--cacert", authority.file_of(leaf)))
    assert step["network"]["tls_verified"] is True


def test_a_ca_out_of_its_time_is_named_and_whether_the_server_sent_it(authority):
    middle = authority.issue(authority.ca, "Middle CA", ca=True, days=(-90, -2))
    context = authority.showing(authority.issue(middle, sans=HERE), middle[1])
    step = rejected(authority, context, "a certificate further up the chain expired 2 days ago: CN Middle CA")
    assert "renew the certificate in the chain that the server sends" in step["error"]["hint"]
    left = [(each["cn"], each["days_left"]) for each in step["network"]["cert_chain"]]
    assert left == [("localhost", 89), ("Middle CA", -3)], "the server's own is still good"
    root = authority.issue(None, "Old CA", ca=True, days=(-90, -2))
    middle = authority.issue(root, "Middle CA", ca=True)
    context = authority.showing(authority.issue(middle, sans=HERE), middle[1])
    step = rejected(authority, context, "--cacert) expired 2 days ago: CN Old CA", env=authority.store(root))
    assert "ca-certificates" in step["error"]["hint"]


def test_the_hint_names_the_likelier_of_the_two_places_where_an_issuer_may_be_missing_first(authority):
    """A server that sends its own certificate alone most likely leaves one out."""
    middle = authority.issue(authority.ca, "Middle CA", ca=True)
    low = authority.issue(middle, "Low CA", ca=True)
    leaf = authority.issue(middle, sans=HERE)
    unknown = "the issuer of CN localhost is unknown (CN=Middle CA"
    stranger = authority.issue(None, "Middle", ca=True, identifiers=False)  # none of the others
    alone = "The server sent its own certificate alone: its intermediate may be missing there. "
    lacking = "The bundle given with --cacert does not hold the CA that issued it (CN=Middle CA"
    for chain, first in (((), alone + lacking), ((stranger[1],), lacking)):
        hint = rejected(authority, authority.showing(leaf, *chain), unknown)["error"]["hint"]
        assert hint.startswith(first) and lacking in hint
    below = authority.issue(low, sans=HERE)
    words = "the issuer of CN Low CA is unknown (CN=Middle CA"
    step = rejected(authority, authority.showing(below, low[1]), words)
    assert step["error"]["hint"].startswith(lacking)
    assert "all its intermediate" in step["error"]["hint"]
    step = rejected(authority, authority.showing(leaf), unknown, env=authority.store(stranger))
    assert step["error"]["hint"].startswith(f"{alone}Its issuer may be a private CA: ")


@pytest.mark.parametrize("identifiers", [True, False])
def test_a_ca_with_the_right_name_and_another_key_is_not_called_unknown(authority, identifiers):
    """As after a renewal, in the store or in what the server sends; not every certificate names its key."""
    made = {"identifiers": identifiers}
    twin = authority.issue(None, "Test CA", ca=True, **made)
    leaf = authority.issue(authority.ca, sans=HERE, **made)
    middle, other = (authority.issue(authority.ca, "Middle CA", ca=True, **made) for _ in range(2))
    below = authority.issue(middle, sans=HERE, **made)
    for shown, trusted, name in (
        ([leaf], twin, "Test CA"),
        ([leaf, authority.ca[1]], twin, "Test CA"),
        ([below, other[1]], authority.ca, "Middle CA"),
    ):
        words = "the issuer is unknown: the CA has the same name, but another key"
        step = rejected(authority, authority.showing(*shown), words, env=authority.store(trusted))
        assert step["error"]["message"] == words + (f" (CN={name}, O=Test)" if identifiers else "")
        assert "renewed" in step["error"]["hint"] and "intermediate" not in step["error"]["hint"]


def test_a_certificate_that_is_named_like_its_ca_is_not_self_signed(authority):
    stranger = authority.store(authority.issue(None, "Other", ca=True))
    leaf = authority.issue(authority.ca, "Test CA", sans=HERE)
    bare = authority.issue(authority.ca, "Test CA", sans=HERE, identifiers=False)
    assert only_step(visit(authority, authority.showing(leaf)))["network"]["tls_verified"] is True
    rejected(authority, authority.showing(leaf), "the issuer of CN Test CA is unknown", env=stranger)
    # OpenSSL goes by the names alone where there is no more.
    step = rejected(authority, authority.showing(bare), "counts as self-signed: it has the name of its CA")
    assert "a subject of its own" in step["error"]["hint"] and "trust it" not in step["error"]["hint"]


RULES = {  # what the CAs are like, the highest first -> what is said
    "no CA": ([{"ca": False}], "CN CA 0 is no CA, but has issued localhost"),
    "path length": ([{"path_length": 0}] * 2, "CN CA 0 allows 0 CAs below it (path length), and there are 1"),
    "names": (
        [{"permitted": "a.test"}],
        "CN CA 0 may not issue for all of its names (name constraints)",
    ),
}


@pytest.mark.parametrize(("made", "words"), RULES.values(), ids=RULES)
@pytest.mark.parametrize("trusted", [False, True])
def test_a_ca_that_issues_against_its_rules_is_named_with_the_rule(authority, made, words, trusted):
    """Be the highest trusted itself, or issued by one that is."""
    pairs = [None if trusted else authority.ca]
    for number, settings in enumerate(made):
        pairs.append(authority.issue(pairs[-1], f"CA {number}", **{"ca": True, **settings}))
    leaf = authority.issue(pairs[-1], None, HERE)
    context = authority.showing(leaf, *(each[1] for each in pairs[:trusted:-1]))
    words = words.replace("CN CA 0 is", "CN=CA 0, O=Test is") if trusted else words
    error = rejected(authority, context, words, env=authority.store(pairs[trusted]))["error"]
    assert error["message"].startswith("the certificate was rejected: ")
    assert error["hint"].startswith("Ask whoever issued it for one that keeps to the rules. To see")


@pytest.mark.parametrize(("version", "options"), [("TLSv1_2", ("-k",)), ("TLSv1_3", ())])
def test_every_certificate_that_was_sent_is_listed_the_server_s_own_first(authority, version, options):
    above = authority.issue(authority.ca, "Above CA", ca=True, days=(-1, 200))
    middle = authority.issue(above, "Middle CA", ca=True, days=(-1, 20))
    leaf = authority.issue(middle, sans=HERE, serial=0xBEEF)
    context = authority.showing(leaf, middle[1], above[1])
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
    network = only_step(visit(authority, context, *options))["network"]
    ends = [f"{each[1].not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}" for each in (leaf, middle, above)]
    names = ("cn", "issuer", "days_left", "not_after")
    assert [[each[name] for name in names] for each in network["cert_chain"]] == [
        ["localhost", "CN=Middle CA, O=Test", 89, ends[0]],
        ["Middle CA", "CN=Above CA, O=Test", 19, ends[1]],
        ["Above CA", "CN=Test CA, O=Test", 199, ends[2]],
    ]
    assert network["cert_not_before"] == f"{leaf[1].not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    assert network["cert_serial"] == "BEEF"


# --- the budget of days ---------------------------------------------------------------------------


@pytest.fixture
def ending(authority, server):
    """A server whose own certificate is good for long, its intermediate for twenty days; and it redirects."""
    middle = authority.issue(authority.ca, "Middle CA", days=(-1, 20.4), ca=True)
    leaf = authority.issue(middle, sans=("127.0.0.1",))
    with http_server({"/": redirect(server.url())}, tls=authority.showing(leaf, middle[1])) as first:
        yield first


@pytest.mark.parametrize("series", [(), ("--count", "2", "--interval", "0", "--reuse")])
def test_a_certificate_with_too_few_days_left_is_4_in_every_form(call_tool, authority, ending, series):
    words = ("-L", "--cacert", authority.file, *series, ending.url(), "--cert-days")
    for style, said in (
        ("--compact", "cert: 20 days < 30 days (CN Middle CA)"),
        ("-s", "httphases: cert: 20 days < 30 days (CN Middle CA)\n"),
        ("--metrics-only", "slo=fail slo_violations=cert"),
    ):
        result = call_tool(style, "--json", "-", *words, "30")
        budget = result.json()["summary"]["slo"]["certificate"]
        assert 20.3 < budget.pop("actual_days") < 20.4 and budget == {"threshold_days": 30, "pass": False}
        assert result.code == 4 and said in result.err
    assert "cert: 20 days < 30 days" in call_tool(*words, "30").out
    both = call_tool("--metrics-only", "--slo", "total=0.0001,connect=9999", *words, "30")
    assert "slo_violations=cert,total" in both.out
    kept = call_tool("--metrics-only", *words, "20")
    assert kept.code == 0 and "slo=pass" in kept.out and kept.err == ""
    close = call_tool("--compact", *words, "21")
    assert close.code == 4 and "cert: 20 days < 21 days" in close.out


def test_the_last_days_of_a_certificate_are_the_same_in_its_row_and_in_its_budget(call_tool, authority):
    """Rounded towards zero, in both."""
    for days, row, budget in ((3, "expires in 2 days", "2 days"), (-3.4, "expired 3 days ago", "-3 days")):
        leaf = authority.issue(authority.ca, sans=("127.0.0.1",), days=(-87, days))
        with http_server(tls=authority.showing(leaf)) as server:
            out = call_tool("-k", "--cert-days", "30", server.url()).out
        assert row in out and f"cert: {budget} < 30 days (CN localhost)" in out


def test_beside_the_verified_path_no_certificate_counts_where_python_knows_it(call_tool, authority):
    middle = authority.issue(authority.ca, "Middle CA", days=(-1, 60), ca=True)
    old = authority.issue(authority.ca, "Old CA", days=(-1, 5), ca=True)
    context = authority.showing(authority.issue(middle, sans=("127.0.0.1",)), middle[1], old[1])
    with http_server(tls=context) as server:
        verified = call_tool("--cacert", authority.file, "--cert-days", "30", server.url())
        sent = call_tool("-k", "--cert-days", "30", server.url())
    assert sent.code == 4 and "cert: 4 days < 30 days (CN Old CA)" in sent.out
    known = sys.version_info >= (3, 13)
    assert (verified.code, "Old CA" in verified.out) == ((0, False) if known else (4, True))


def test_without_a_certificate_its_budget_is_violated(call_tool, server, authority, ending):
    result = call_tool("--compact", "--json", "-", "--cert-days", "1", server.url())
    assert result.code == 4 and "cert: no certificate came" in result.err
    assert result.json()["summary"]["slo"]["certificate"]["actual_days"] is None
    words = ("--cacert", authority.file, "--count", "1", "--cert-days", "1", "--compact")
    assert "cert: no certificate came at B" in flat(call_tool(*words, ending.url(), "--vs", server.url()).out)


# --- the DER reader -------------------------------------------------------------------------------


def test_the_reader_agrees_with_another_one(authority):
    from cryptography import x509
    from cryptography.x509.name import _ASN1Type

    common = x509.NameOID.COMMON_NAME
    wide = x509.NameAttribute(common, "ü東", _ASN1Type.BMPString)
    for leaf in (
        authority.issue(authority.ca, subject=x509.Name([wide])),
        authority.issue(authority.ca, None, sans=("a.test", "::1"), days=(-1, 365 * 22)),
        authority.issue(authority.ca, subject=authority.name(("CN", "one"), ("CN", "two"))),
        authority.issue(authority.ca, subject=authority.name()),
        authority.issue(authority.ca, "Zürich 東京 🙂", days=(-1, 365 * 40)),
        authority.issue(authority.ca, sans=tuple(f"n{n}.test" for n in range(500)), serial=2**158 + 1),
    ):
        theirs, ours = leaf[1], tool.parse_certificate(authority.der(leaf[1]))
        names = [each.value for each in theirs.subject.get_attributes_for_oid(common)]
        assert ours.common_name == (names[-1] if names else None)
        assert (ours.not_before, ours.not_after) == (theirs.not_valid_before_utc, theirs.not_valid_after_utc)
        assert int(ours.serial, 16) == theirs.serial_number
        try:
            extension = theirs.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            expected = tuple(str(each.value) for each in extension.value)
        except x509.ExtensionNotFound:
            expected = ()
        assert ours.names == expected
    assert [tool.der_time(0x17, b"%d0101000000Z" % year).year for year in (49, 50)] == [2049, 1950]
    assert tool.alternative_names(b"\x30\x06\xa4\x04abcd") == (), "a directory's name is no address"


def test_no_certificate_is_an_error_of_the_reader(authority):
    chance = random.Random(5)
    leaf = authority.issue(authority.ca, sans=HERE, ca=True, path_length=1, permitted="a.test")
    der = authority.der(leaf[1])
    for _ in range(5000):
        at = chance.randrange(len(der))
        bent = der[:at] + bytes(chance.choices(range(256), k=2)) + der[at + chance.randrange(4) :]
        assert tool.parse_certificate(bent).sha256 == hashlib.sha256(bent).hexdigest()


def test_a_certificate_is_shown_without_the_time_that_cannot_be_read(authority, call_tool, tmp_path):
    leaf = authority.issue(authority.ca, "cn.test", sans=("127.0.0.1",))
    end = f"{leaf[1].not_valid_after_utc:%y%m%d%H%M%SZ}".encode()
    der = authority.der(leaf[1]).replace(end, end[:2] + b"13" + end[4:])  # no signature fits it any more
    path = authority.file_of(leaf)
    key = path.read_text().partition("-----BEGIN CERTIFICATE")[0]
    path.write_text(key + ssl.DER_cert_to_PEM_cert(der))
    with http_server(tls=server_context(path)) as server:
        result = call_tool("-k", "--json", tmp_path / "out", server.url(), env={"COLUMNS": "100"})
        refused = failure(here("-m", "10", "--cacert", authority.file, server.url()), "tls", "tls")
    assert result.code == 0 and "CN cn.test, no legible expiry" in result.out
    for step in (result.json(tmp_path / "out")["steps"][0], refused):
        network = step["network"]
        assert (network["cert_cn"], network["cert_sans"]) == ("cn.test", ["127.0.0.1"])
        assert (network["cert_not_after"], network["cert_days_left"]) == (None, None)
