"""Certificates: what is read of them, what is wrong with them, and that both are said in plain words."""

from __future__ import annotations

import datetime
import random
import shutil
import ssl
import subprocess

import pytest
from frames import Mint, failure, here, only_step, server_context, tool

from servers import http_server

pytest.importorskip("cryptography", reason="needs cryptography, to make certificates")


@pytest.fixture(scope="module")
def mint(tmp_path_factory):
    return Mint(tmp_path_factory.mktemp("mint"))


def visit(mint, context, *options, host="localhost"):
    """Run the program against a server with this TLS context."""
    with http_server(tls=context) as server:
        mapping = [] if host in ("127.0.0.1",) else ["--resolve", f"{host}:{server.port}:127.0.0.1"]
        options = options or ("--cacert", mint.root)
        return here("-m", "10", *mapping, *options, server.url(host=host))


def rejected(mint, context, *words, host="localhost", options=()):
    """Prove that verification fails with these words, and that the same handshake with -k does not."""
    step = failure(visit(mint, context, *options, host=host), "tls", "tls")
    for word in words:
        assert word in step["error"]["message"], step["error"]
    assert "-k" in step["error"]["hint"]
    assert step["network"]["tls_verified"] is not True
    assert step["network"]["cert_serial"], "the certificate that failed is shown"
    assert step["timing"]["tls_ms"] > 0 and step["timing"]["wait_ms"] is None
    assert only_step(visit(mint, context, "-k", host=host))["network"]["tls_verified"] is False
    return step


# --- what is wrong with a certificate -------------------------------------------------------------


@pytest.mark.parametrize(
    ("ago", "words"), [(3.5, "expired 3 days ago"), (1.5, "expired 1 day ago"), (0.5, "less than a day ago")]
)
def test_an_expired_certificate(mint, ago, words):
    leaf = mint.issue(mint.ca, sans=("localhost",), days=(-90, -ago))
    step = rejected(mint, mint.context(leaf), words)
    assert step["network"]["cert_days_left"] < 0


def test_a_certificate_that_is_not_valid_yet(mint):
    leaf = mint.issue(mint.ca, sans=("localhost",), days=(5.5, 90))
    step = rejected(mint, mint.context(leaf), "not valid yet", "5 days")
    assert "clock" in step["error"]["hint"]


def test_a_certificate_for_another_name(mint):
    leaf = mint.issue(mint.ca, "other.test", sans=("a.test", "*.b.test"))
    step = rejected(mint, mint.context(leaf), "a.test", "*.b.test", "not localhost")
    assert step["network"]["cert_sans"] == ["a.test", "*.b.test"]


def test_a_certificate_for_another_name_that_has_no_alternative_names(mint):
    rejected(mint, mint.context(mint.issue(mint.ca, "other.test")), "other.test", "not localhost")


def test_a_certificate_for_an_address_asked_for_by_another_address(mint):
    leaf = mint.issue(mint.ca, "x", sans=("127.0.0.9", "::1"))
    rejected(mint, mint.context(leaf), "127.0.0.9", "::1", "not 127.0.0.1", host="127.0.0.1")


def test_a_certificate_for_a_name_asked_for_by_address(mint):
    leaf = mint.issue(mint.ca, "x", sans=("localhost",))
    rejected(mint, mint.context(leaf), "localhost", "not 127.0.0.1", host="127.0.0.1")


def test_a_wildcard_covers_one_label(mint):
    leaf = mint.issue(mint.ca, "x", sans=("*.b.test",))
    assert only_step(visit(mint, mint.context(leaf), host="a.b.test"))["network"]["tls_verified"] is True
    rejected(mint, mint.context(leaf), "*.b.test", host="a.a.b.test")
    rejected(mint, mint.context(leaf), "*.b.test", host="b.test")


def test_a_long_list_of_names_is_cut_short(mint):
    leaf = mint.issue(mint.ca, "x", sans=tuple(f"n{number}.test" for number in range(200)))
    step = rejected(mint, mint.context(leaf), "n0.test", "195 more")
    assert len(step["network"]["cert_sans"]) == 200


def test_a_self_signed_certificate(mint):
    rejected(mint, mint.context(mint.issue(None, sans=("localhost",))), "self-signed")


def test_a_self_signed_certificate_can_be_trusted_by_itself(mint):
    leaf = mint.issue(None, sans=("localhost",))
    path = mint.file(leaf)
    assert only_step(visit(mint, mint.context(leaf), "--cacert", path))["network"]["tls_verified"] is True


def test_a_certificate_of_an_unknown_issuer(mint):
    stranger = mint.issue(None, "Stranger CA", ca=True)
    step = rejected(mint, mint.context(mint.issue(stranger, sans=("localhost",))), "issuer", "Stranger CA")
    assert "--cacert" in step["error"]["hint"]


def test_a_chain_that_ends_in_a_ca_that_is_not_trusted(mint):
    stranger = mint.issue(None, "Stranger CA", ca=True)
    leaf = mint.issue(stranger, sans=("localhost",))
    rejected(mint, mint.context(leaf, stranger[1]), "self-signed CA")


def test_a_chain_that_lacks_its_intermediate(mint):
    middle = mint.issue(mint.ca, "Middle CA", ca=True)
    leaf = mint.issue(middle, sans=("localhost",))
    rejected(mint, mint.context(leaf), "issuer", "Middle CA")
    assert only_step(visit(mint, mint.context(leaf, middle[1])))["network"]["tls_verified"] is True


def test_an_intermediate_that_has_expired(mint):
    middle = mint.issue(mint.ca, "Middle CA", ca=True, days=(-90, -2))
    leaf = mint.issue(middle, sans=("localhost",))
    step = rejected(mint, mint.context(leaf, middle[1]), "chain", "expired")
    assert step["network"]["cert_days_left"] > 0, "the server's own is still good"


def test_an_intermediate_that_is_no_ca(mint):
    middle = mint.issue(mint.ca, "Middle", ca=False)
    leaf = mint.issue(middle, sans=("localhost",))
    rejected(mint, mint.context(leaf, middle[1]))


def test_the_hint_for_the_wrong_bundle_says_which_ca_is_missing(mint):
    stranger = mint.issue(None, "Stranger CA", ca=True)
    step = rejected(mint, mint.context(mint.issue(stranger, sans=("localhost",))))
    assert "Stranger CA" in step["error"]["message"] + step["error"]["hint"]


def test_nobody_is_asked_twice(mint):
    """The certificate that failed is taken from the handshake that failed: no second connection."""
    leaf = mint.issue(None, sans=("localhost",))
    with http_server(tls=mint.context(leaf)) as server:
        step = failure(here("--cacert", mint.root, "-4", server.url(host="localhost")), "tls", "tls")
    assert step["network"]["cert_cn"] == "localhost"
    assert server.accepted == 1


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_the_certificate_that_failed_is_shown_with_every_version_of_tls(mint, version):
    context = mint.context(mint.issue(None, "shown.test", sans=("localhost",)))
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
    assert rejected(mint, context, "self-signed")["network"]["cert_cn"] == "shown.test"


def test_a_key_that_is_too_weak(mint):
    """OpenSSL's default level of security refuses it; -k does not."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    leaf = mint.issue(mint.ca, sans=("localhost",), key=rsa.generate_private_key(65537, 1024))
    context = mint.context(leaf)
    step = failure(visit(mint, context), "tls", "tls")
    assert "too" in step["error"]["message"] and "-k" in step["error"]["hint"]
    assert only_step(visit(mint, context, "-k"))["network"]["cert_cn"] == "localhost"


def test_a_signature_that_is_too_weak(mint, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    root, key, request, leaf = (tmp_path / name for name in ("root.key", "key", "request", "leaf"))
    root.write_bytes(mint.file(mint.ca).read_bytes())
    commands = [
        f"req -new -newkey rsa:2048 -nodes -keyout {key} -subj /CN=localhost -out {request}",
        f"x509 -req -in {request} -CA {root} -CAkey {root} -sha1 -days 5 -set_serial 7 -out {leaf}",
    ]
    for command in commands:
        done = subprocess.run(["openssl", *command.split()], check=False, capture_output=True, timeout=20)
        if done.returncode:
            pytest.skip(f"openssl signs nothing with SHA-1: {done.stderr.decode()[-200:]}")
    whole = tmp_path / "whole.pem"
    whole.write_bytes(key.read_bytes() + leaf.read_bytes())
    context = server_context(whole)
    step = failure(visit(mint, context), "tls", "tls")
    assert "weak" in step["error"]["message"] and "-k" in step["error"]["hint"]
    assert only_step(visit(mint, context, "-k"))["network"]["cert_serial"].lstrip("0") == "7"


# --- what a report shows of a certificate ---------------------------------------------------------


def test_a_certificate_without_common_name_is_shown_by_its_first_name(mint, run_tool, tmp_path):
    leaf = mint.issue(mint.ca, None, sans=("localhost", "127.0.0.1"))
    with http_server(tls=mint.context(leaf)) as server:
        result = run_tool("--cacert", mint.root, "--json", tmp_path / "out", server.url())
    assert "Certificate" in result.out and "localhost, expires in 89 days" in result.out
    [step] = result.json(tmp_path / "out")["steps"]
    assert (step["network"]["cert_cn"], step["network"]["cert_sans"][0]) == (None, "localhost")


@pytest.mark.parametrize("options", [(), ("-k",)])
def test_every_detail_is_shown_with_and_without_verification(mint, options):
    leaf = mint.issue(mint.ca, "cn.test", sans=("localhost", "127.0.0.1", "::1", "*.x.test"), serial=0xBEEF)
    network = only_step(visit(mint, mint.context(leaf), *options))["network"]
    assert network["cert_cn"] == "cn.test"
    assert network["cert_sans"] == ["localhost", "127.0.0.1", "::1", "*.x.test"]
    assert "CN=Mint CA" in network["cert_issuer"] and "O=Mint" in network["cert_issuer"]
    assert int(network["cert_serial"], 16) == 0xBEEF
    assert network["cert_days_left"] == 89
    assert network["cert_not_after"] == f"{leaf[1].not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    assert network["cert_not_before"] == f"{leaf[1].not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    assert (network["tls_verified"], network["tls_custom_ca"]) == (not options, not options)


def test_an_expired_certificate_has_negative_days_with_k(mint):
    leaf = mint.issue(None, days=(-90, -9.5))
    assert only_step(visit(mint, mint.context(leaf), "-k"))["network"]["cert_days_left"] == -10


@pytest.mark.parametrize(("days", "tone"), [(60, "expires in 59 days"), (20, "19 days"), (2, "1 day ")])
def test_the_days_that_are_left_are_counted(mint, run_tool, days, tone):
    leaf = mint.issue(mint.ca, sans=("127.0.0.1",), days=(-1, days))
    with http_server(tls=mint.context(leaf)) as server:
        result = run_tool("--cacert", mint.root, server.url(), env={"COLUMNS": "120"})
    assert tone in result.out


def test_an_idn_certificate_is_asked_for_by_its_unicode_name(mint):
    leaf = mint.issue(mint.ca, "x", sans=("xn--mnchen-3ya.test",))
    with http_server(tls=mint.context(leaf)) as server:
        mapping = f"münchen.test:{server.port}:127.0.0.1"
        result = here("--cacert", mint.root, "--resolve", mapping, server.url(host="münchen.test"))
    assert only_step(result)["network"]["tls_verified"] is True
    assert server.requests[0].values("Host") == [f"xn--mnchen-3ya.test:{server.port}"]


@pytest.mark.needs("ipv6")
def test_a_certificate_for_an_ipv6_address(mint):
    leaf = mint.issue(mint.ca, "x", sans=("::1",))
    with http_server(tls=mint.context(leaf), host="::1") as server:
        assert only_step(here("--cacert", mint.root, server.url()))["network"]["tls_verified"] is True


def test_a_name_with_a_final_dot_is_verified_without_it(mint):
    leaf = mint.issue(mint.ca, "x", sans=("a.test",))
    with http_server(tls=mint.context(leaf)) as server:
        mapping = f"a.test.:{server.port}:127.0.0.1"
        result = here("--cacert", mint.root, "--resolve", mapping, server.url(host="a.test."))
    assert only_step(result)["network"]["tls_verified"] is True
    assert server.requests[0].values("Host") == [f"a.test.:{server.port}"]


def test_names_that_a_terminal_obeys_are_shown_as_escapes(mint, run_tool):
    subject = mint.name(("CN", "evil\x1b[31m[bold]\u202e"), ("O", "x\x9b31m"))
    leaf = mint.issue(None, sans=("127.0.0.1",), subject=subject)
    with http_server(tls=mint.context(leaf)) as server:
        for options in ([], ["-k"], ["-k", "--compact"]):
            result = run_tool(*options, server.url())
            for raw in ("\x1b", "\x9b", "\u202e"):
                assert raw not in result.out and raw not in result.err
            assert options == ["-k", "--compact"] or "evil" in result.out


# --- the DER reader -------------------------------------------------------------------------------


def subjects(mint):
    """Make certificates of many kinds, by what is odd about them."""
    far = (-1, 365 * 40)
    return {
        "plain": mint.issue(mint.ca, "cn.test", sans=("a.test",)),
        "no-extension-but-one": mint.issue(mint.ca, "cn.test"),
        "no-common-name": mint.issue(mint.ca, None, sans=("a.test", "::1")),
        "two-common-names": mint.issue(mint.ca, subject=mint.name(("CN", "one"), ("CN", "two"))),
        "empty-subject": mint.issue(mint.ca, subject=mint.name()),
        "unicode": mint.issue(mint.ca, "Zürich 東京 🙂"),
        "many-names": mint.issue(mint.ca, sans=tuple(f"n{n}.test" for n in range(500))),
        "beyond-2050": mint.issue(mint.ca, days=far),
        "before-2000": mint.issue(mint.ca, days=(-365 * 40, 1)),
        "small-serial": mint.issue(mint.ca, serial=1),
        "large-serial": mint.issue(mint.ca, serial=2**158 + 1),
        "serial-with-high-bit": mint.issue(mint.ca, serial=0xFF),
        "long-issuer": mint.issue(mint.issue(None, subject=mint.name(("C", "DE"), ("O", "x" * 60))), "leaf"),
        "unnamed-types": mint.issue(mint.ca, subject=mint.name(("E", "a@b.test"), ("CN", "cn.test"))),
    }


@pytest.fixture(scope="module")
def certificates(mint):
    return {name: (leaf[1], mint.der(leaf[1])) for name, leaf in subjects(mint).items()}


def test_the_reader_agrees_with_another_one(certificates):
    from cryptography import x509

    for name, (theirs, der) in certificates.items():
        ours = tool.parse_certificate(der)
        names = [each.value for each in theirs.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
        assert ours.common_name == (names[-1] if names else None), name
        assert (ours.not_before, ours.not_after) == (theirs.not_valid_before_utc, theirs.not_valid_after_utc)
        assert int(ours.serial, 16) == theirs.serial_number, name
        assert ours.self_signed == (theirs.issuer == theirs.subject), name
        try:
            extension = theirs.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            expected = tuple(str(each.value) for each in extension.value)
        except x509.ExtensionNotFound:
            expected = ()
        assert ours.names == expected, name


def test_the_parts_of_an_issuer_are_in_the_order_of_rfc_4514(certificates):
    assert tool.parse_certificate(certificates["plain"][1]).issuer == "CN=Mint CA, O=Mint"
    assert tool.parse_certificate(certificates["long-issuer"][1]).issuer == f"O={'x' * 60}, C=DE"


def test_a_certificate_that_is_cut_off_is_none(certificates):
    der = certificates["plain"][1]
    assert [size for size in range(len(der)) if tool.parse_certificate(der[:size]) is not None] == []


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_certificate_is_read_or_not_and_never_breaks_the_program(certificates, seed):
    """Flip, insert and delete bytes: the reader answers with a record or with None, whatever comes."""
    dice = random.Random(seed)
    originals = [der for _, der in certificates.values() if len(der) < 2000]
    for _ in range(1500):
        damaged = bytearray(dice.choice(originals))
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(damaged))
            damaged[at : at + dice.randint(0, 2)] = bytes(dice.choices(range(256), k=dice.randint(0, 2)))
        found = tool.parse_certificate(bytes(damaged))
        if found is not None:
            assert isinstance(found.days_left(datetime.datetime.now(datetime.timezone.utc)), int)
            assert all(isinstance(text, str) for text in (*found.names, found.issuer, found.serial))
            f"{found.not_before:%Y-%m-%dT%H:%M:%SZ}".encode()


NO_CERTIFICATES = [
    *[None, b"", b"\x30", b"\x30\x80", b"\x30\x84\xff\xff\xff\xff", b"\x30\x00", b"\x30\x02\x30\x00"],
    *[b"\x05\x00", b"\x30\x85\x01\x01\x01\x01\x01", b"\x30\x82" * 5000, b"\x30\x03\x02\x01\x01"],
]


@pytest.mark.parametrize("der", NO_CERTIFICATES)
def test_what_is_no_certificate_is_none(der):
    assert tool.parse_certificate(der) is None


@pytest.mark.parametrize(
    ("tag", "text", "year"),
    [
        (0x17, "491231235959Z", 2049),
        (0x17, "500101000000Z", 1950),
        (0x18, "20500101000000Z", 2050),
        (0x18, "99991231235959Z", 9999),
    ],
)
def test_a_year_of_two_digits_is_of_this_century_up_to_49(tag, text, year):
    assert tool.der_time(tool.Der(tag, text.encode())).year == year


@pytest.mark.parametrize(
    "text", ["4912312359Z", "491231235959+0100", "491331235959Z", "abc", "", "４91231235959Z"]
)
def test_a_time_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        tool.der_time(tool.Der(0x17, text.encode()))


@pytest.mark.parametrize(
    ("tag", "content", "text"),
    [
        (0x0C, "ü".encode(), "ü"),
        (0x13, b"abc", "abc"),
        (0x14, b"\xfc", "ü"),
        (0x1E, "東".encode("utf-16-be"), "東"),
        (0x1C, "東".encode("utf-32-be"), "東"),
        (0x0C, b"\xff", "\ufffd"),
        (0x1E, b"\x00", "\ufffd"),
    ],
)
def test_every_kind_of_text_is_read(tag, content, text):
    assert tool.der_text(tool.Der(tag, content)) == text
