"""Certificates: what is read of them, what is wrong with them, and that both are said in plain words."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import random
import re
import shutil
import ssl
import subprocess

import pytest

from checks import flat
from inside import failure, here, only_step, tool
from mint import Mint, server_context
from relays import relay_proxy
from servers import http_server, scripted

pytest.importorskip("cryptography", reason="needs cryptography, to make certificates")


@pytest.fixture(scope="module")
def mint(tmp_path_factory):
    return Mint(tmp_path_factory.mktemp("mint"))


def visit(mint, context, *options, host="localhost"):
    """Run the program against a server with this TLS context."""
    with http_server(tls=context) as server:
        mapping = [] if host in ("127.0.0.1",) else ["--resolve", f"{host}:{server.port}:127.0.0.1"]
        options = options or ("--cacert", mint.root)
        result = here("-m", "10", *mapping, *options, server.url(host=host))
    assert all("a certificate of" in line for line in result.err.splitlines() if "warning" in line)
    return result


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


@pytest.fixture(scope="module")
def ending(mint):
    """A server whose certificate has a good five days left, its intermediate twenty."""
    middle = mint.issue(mint.ca, "Middle CA", days=(-1, 20.4), ca=True)
    with http_server(tls=mint.context(mint.issue(middle, sans=("127.0.0.1",)), middle[1])) as server:
        yield server


@pytest.mark.parametrize(
    "series", [(), ("--count", "3", "--interval", "0", "--reuse")], ids=["one", "series"]
)
def test_a_certificate_with_too_few_days_left_is_4_and_is_said_in_every_form(run_tool, mint, ending, series):
    words = ("--cacert", mint.root, *series, ending.url())
    for style in ("--compact", "-s", "--metrics-only"):
        result = run_tool(style, "--json", "-", "--cert-days", "30", *words)
        assert result.code == 4
        budget = result.json()["summary"]["slo"]
        actual = budget["certificate"].pop("actual_days")
        assert budget["certificate"] == {"threshold_days": 30, "pass": False} and 20.3 < actual < 20.4
        assert budget["pass"] is False and budget["violations"] == []
        said = {
            "--compact": "cert: 20 days < 30 days",
            "-s": "httphases: cert: 20 days < 30 days\n",
            "--metrics-only": "slo=fail slo_violations=cert",
        }
        assert said[style] in result.err
    assert "cert: 20 days < 30 days" in run_tool("--cert-days", "30", *words).out
    budgets = ("--slo", "total=0.0001,connect=9999", "--cert-days", "30")
    assert "slo_violations=cert,total" in run_tool("--metrics-only", *budgets, *words).out
    kept = run_tool("--metrics-only", "--cert-days", "20", *words)
    assert kept.code == 0 and "slo=pass" in kept.out and kept.err == ""
    close = run_tool("--compact", "--cert-days", "21", *words)
    assert close.code == 4 and "cert: 20 days < 21 days" in close.out


def test_the_last_days_of_a_certificate_are_the_same_in_its_row_and_in_its_budget(run_tool, mint):
    leaf = mint.issue(mint.ca, sans=("127.0.0.1",), days=(-87, 3))
    with http_server(tls=mint.context(leaf)) as server:
        out = run_tool("--cacert", mint.root, "--cert-days", "30", server.url()).out
    assert "! expires in 2 days" in out and "cert: 2 days < 30 days" in out, "nowhere 3 days"


def test_without_a_certificate_its_budget_is_violated(run_tool, server, mint, ending):
    result = run_tool("--compact", "--json", "-", "--cert-days", "1", server.url())
    assert result.code == 4 and "cert: no certificate came" in result.err
    assert result.json()["summary"]["slo"]["certificate"]["actual_days"] is None
    sides = ("--cacert", mint.root, "--count", "1", "--cert-days", "1", ending.url(), "--vs", server.url())
    assert "cert: no certificate came at B" in flat(run_tool("--compact", *sides).out)


@pytest.mark.parametrize("days", ["0", "-1", "1.5", "x", "", "3d"])
def test_days_are_a_whole_number_from_1(run_tool, server, days):
    result = run_tool("--cert-days", days, server.url())
    said = f"--cert-days '{days}': expected a number of days, a whole one from 1 to 10000"
    assert result.code == 64 and said in result.err and server.accepted == 0


@pytest.mark.parametrize(("days", "soon"), [(6.99, True), (7.4, False)])
@pytest.mark.parametrize("series", [(), ("--count", "2", "--interval", "0"), ("--count", "1", "--vs", "-4")])
def test_a_certificate_that_ends_within_a_week_is_marked_in_drawings(run_tool, mint, days, soon, series):
    leaf = mint.issue(mint.ca, sans=("127.0.0.1",), days=(-1, days))
    with http_server(tls=mint.context(leaf)) as server:
        words = ("--cacert", mint.root, *series, server.url())
        drawn = run_tool(*words)
        assert ("! " in drawn.out) is soon and "warning" not in drawn.err
        for style in (["-s"], ["--compact"], ["--metrics-only", "--cert-days", "1"]):
            result = run_tool(*style, *words)
            assert (result.code, result.err) == (0, "")


def test_a_certificate_for_another_name(mint):
    leaf = mint.issue(mint.ca, "other.test", sans=("a.test", "*.b.test"))
    step = rejected(mint, mint.context(leaf), "a.test", "*.b.test", "not localhost")
    assert step["network"]["cert_sans"] == ["a.test", "*.b.test"]


def test_a_certificate_for_another_name_that_has_no_alternative_names(mint):
    rejected(mint, mint.context(mint.issue(mint.ca, "other.test")), "other.test", "not localhost")


@pytest.mark.parametrize(("name", "host"), [("localhost", "localhost"), ("*.b.test", "a.b.test")])
def test_a_common_name_alone_is_no_name_of_a_server(mint, name, host):
    """RFC 9525 section 2: only subjectAltName counts."""
    step = rejected(
        mint, mint.context(mint.issue(mint.ca, name)), f"has {name} as its common name", host=host
    )
    assert f"a certificate with {host} in its subjectAltName" in step["error"]["hint"]
    assert "subjectAltName counts" in step["error"]["message"]


def test_an_address_that_a_certificate_has_as_a_name_is_not_told_as_another_address(mint):
    leaf = mint.issue(mint.ca, "x", sans=("dns:127.0.0.1",))
    words = "has 127.0.0.1 as a DNS name, not as an IP address"
    rejected(mint, mint.context(leaf), words, host="127.0.0.1")


def test_a_certificate_that_came_alone_is_the_first_thing_that_is_named(mint):
    leaf = mint.issue(mint.issue(mint.ca, "Middle CA", ca=True), sans=("localhost",))
    other = mint.file(mint.issue(None, "Other CA", ca=True))
    with http_server(tls=mint.context(leaf)) as server:
        result = here("-m", "10", server.url(), env={"SSL_CERT_FILE": str(other)})
        hint = failure(result, "tls", "tls")["error"]["hint"]
    alone = "The server sent its own certificate alone: its intermediate may be missing there, or its issuer"
    assert hint.startswith(f"{alone} is a private CA: --cacert")


def test_a_certificate_for_an_address_asked_for_by_another_address(mint):
    leaf = mint.issue(mint.ca, "x", sans=("127.0.0.9", "::1"))
    rejected(mint, mint.context(leaf), "127.0.0.9", "::1", "not 127.0.0.1", host="127.0.0.1")


def test_a_certificate_for_a_name_asked_for_by_address(mint):
    leaf = mint.issue(mint.ca, "x", sans=("localhost",))
    with http_server(tls=mint.context(leaf)) as server:
        trust = ("-m", "10", "--cacert", mint.root)
        hint = failure(here(*trust, server.url(host="127.0.0.1")), "tls", "tls")["error"]["hint"]
        url, mapping = re.search(r"names: (\S+) with --resolve (\S+)\. ", hint).groups()
        words = [text.replace("NAME", "localhost") for text in (mapping, url)]
        assert only_step(here(*trust, "--resolve", *words))["network"]["tls_verified"] is True
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
    words = "a certificate further up the chain expired 2 days ago: CN Middle CA"
    step = rejected(mint, mint.context(leaf, middle[1]), words)
    assert "on the server" in step["error"]["hint"]
    assert step["network"]["cert_days_left"] > 0, "the server's own is still good"
    assert [each["cn"] for each in step["network"]["cert_chain"]] == ["localhost", "Middle CA"]
    assert [each["days_left"] for each in step["network"]["cert_chain"]] == [89, -3]


def test_a_trusted_ca_that_has_expired_is_not_the_server_s_fault(mint):
    """Nothing that the server sent has expired; what has is in the bundle, or in the trust store."""
    root = mint.issue(None, "Old CA", ca=True, days=(-90, -2))
    middle = mint.issue(root, "Middle CA", ca=True)
    context = mint.context(mint.issue(middle, sans=("localhost",)), middle[1])
    bundle = mint.folder / "old.pem"
    bundle.write_bytes(mint.pem(root[1]))
    step = rejected(mint, context, "bundle given with --cacert expired", options=("--cacert", bundle))
    assert "Renew it in the bundle" in step["error"]["hint"]
    with http_server(tls=context) as server:
        result = here("-m", "10", "-4", server.url(host="localhost"), env={"SSL_CERT_FILE": str(bundle)})
    error = failure(result, "tls", "tls")["error"]
    assert "a CA certificate in this machine's trust store expired" in error["message"]
    assert "ca-certificates" in error["hint"]


def test_an_intermediate_whose_time_has_not_come(mint):
    middle = mint.issue(mint.ca, "Middle CA", ca=True, days=(2.5, 90))
    leaf = mint.issue(middle, sans=("localhost",))
    words = "a certificate further up the chain is not valid yet for another 2 days: CN Middle CA"
    rejected(mint, mint.context(leaf, middle[1]), words)


def test_an_intermediate_that_is_no_ca(mint):
    middle = mint.issue(mint.ca, "Middle", ca=False)
    leaf = mint.issue(middle, sans=("localhost",))
    rejected(mint, mint.context(leaf, middle[1]))


def test_the_hint_for_the_wrong_bundle_says_which_ca_is_missing(mint):
    stranger = mint.issue(None, "Stranger CA", ca=True)
    step = rejected(mint, mint.context(mint.issue(stranger, sans=("localhost",))))
    assert "Stranger CA" in step["error"]["message"] + step["error"]["hint"]


def test_the_hint_names_the_likelier_of_the_two_places_where_an_issuer_may_be_missing_first(mint):
    """A server that sends its own certificate alone most likely leaves one out."""
    middle = mint.issue(mint.ca, "Middle CA", ca=True)
    low = mint.issue(middle, "Low CA", ca=True)
    ways = ("The server may not send", "bundle given with --cacert does not hold", "Middle CA")
    leaf = mint.issue(middle, sans=("localhost",))
    # A certificate that has nothing to do with the others is no intermediate one.
    alone = "The server sent its own certificate alone: its intermediate may be missing there, or the"
    for chain, first in (((), alone), ((mint.issue(None, "Stranger CA", ca=True)[1],), ways[0])):
        step = rejected(mint, mint.context(leaf, *chain), "the certificate's issuer is unknown (CN=Middle CA")
        assert_order(step["error"]["hint"], first, *ways[1:])
    below = mint.issue(low, sans=("localhost",))
    step = rejected(mint, mint.context(below, low[1]), "at the end of the certificate's chain", "Middle CA")
    assert_order(step["error"]["hint"], "The bundle given with --cacert", "Middle CA", "all its intermediate")


def test_a_chain_that_lacks_nothing_is_not_blamed_on_the_server(mint):
    stranger = mint.issue(None, "Stranger CA", ca=True)
    leaf = mint.issue(stranger, sans=("localhost",))
    for context in (mint.context(leaf, stranger[1]), mint.context(mint.issue(None, sans=("localhost",)))):
        hint = rejected(mint, context)["error"]["hint"]
        assert "bundle" in hint and "intermediate" not in hint


def assert_order(text, *words):
    """Prove that words stand in a text in this order."""
    places = [text.find(word) for word in words]
    assert -1 not in places and places == sorted(places), (places, text)


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


# --- the chain ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("options", [(), ("-k",)])
def test_every_certificate_that_was_sent_is_listed_the_server_s_own_first(mint, version, options):
    above = mint.issue(mint.ca, "Above CA", ca=True, days=(-1, 200))
    middle = mint.issue(above, "Middle CA", ca=True, days=(-1, 20))
    leaf = mint.issue(middle, sans=("localhost",))
    context = mint.context(leaf, middle[1], above[1])
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
    chain = only_step(visit(mint, context, *options))["network"]["cert_chain"]
    assert [each["cn"] for each in chain] == ["localhost", "Middle CA", "Above CA"]
    assert [each["days_left"] for each in chain] == [89, 19, 199]
    assert [each["issuer"] for each in chain] == [
        f"CN={n}, O=Mint" for n in ("Middle CA", "Above CA", "Mint CA")
    ]
    assert [each["not_after"] for each in chain] == [
        f"{each.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}" for each in (leaf[1], middle[1], above[1])
    ]


def test_a_chain_is_that_of_the_target_not_of_the_proxy(mint):
    middle = mint.issue(mint.ca, "Middle CA", ca=True)
    target = mint.context(mint.issue(middle, sans=("127.0.0.1",)), middle[1])
    proxied = mint.context(mint.issue(mint.ca, "proxy", sans=("127.0.0.1",)))
    with http_server(tls=target) as server, relay_proxy("https", server, tls=proxied) as (proxy, _):
        step = only_step(here("--cacert", mint.root, "-x", proxy, server.url()))
    assert [each["cn"] for each in step["network"]["cert_chain"]] == ["localhost", "Middle CA"]


def test_without_tls_there_is_no_chain():
    with http_server() as server:
        assert only_step(here(server.url()))["network"]["cert_chain"] == []


@pytest.mark.parametrize(
    ("days", "warning"),
    [
        (200, None),
        (20, "further up the chain CN Middle CA, expires in 19 days"),
        (-2, "further up the chain CN Middle CA, ! expired 2 days ago"),
    ],
)
def test_the_earliest_expiry_of_the_chain_is_warned_of(mint, run_tool, days, warning):
    middle = mint.issue(mint.ca, "Middle CA", ca=True, days=(-90, days))
    leaf = mint.issue(middle, sans=("127.0.0.1",))
    with http_server(tls=mint.context(leaf, middle[1])) as server:
        said = flat(run_tool("-k", server.url()).out)
    assert "CN localhost, expires in 89 days" in said
    assert ("further up the chain" in said) == (warning is not None)
    assert warning is None or warning in said


def certificate_message(certificates, young, context=b""):
    """Write a Certificate message of TLS 1.3 (with an extension behind each) or of an older version."""
    behind = b"\0\5\0\5\0\1\1" if young else b""
    listed = b"".join(len(der).to_bytes(3, "big") + der + behind for der in certificates)
    content = (bytes([len(context)]) + context if young else b"") + len(listed).to_bytes(3, "big") + listed
    return b"\x0b" + len(content).to_bytes(3, "big") + content


@pytest.mark.parametrize("version", [0x0303, 0x0304])
def test_a_certificate_message_is_read_up_to_where_it_is_cut_off(version):
    """Whatever is missing or damaged, what was read is a beginning of what was sent."""
    sent = [b"a" * 300, b"b" * 70_000, b"c"]
    message = certificate_message(sent, version == 0x0304, b"ctx")
    assert list(tool.each_certificate(message, version)) == sent
    for size in [*range(400), *range(len(message) - 30, len(message))]:
        found = list(tool.each_certificate(message[:size], version))
        assert found == sent[: len(found)]
    dice = random.Random(1)
    for _ in range(300):
        found = list(tool.each_certificate(dice.randbytes(dice.randrange(60)), version))
        assert all(found)
    many = certificate_message([b"x"] * 30_000, version == 0x0304)
    tap = tool.HandshakeTap(None)
    tap(None, "read", version, 22, 11, many)
    assert tap.certificates == (b"x",) * tool.MAX_CHAIN


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
        try:
            extension = theirs.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            expected = tuple(str(each.value) for each in extension.value)
        except x509.ExtensionNotFound:
            expected = ()
        assert ours.names == expected, name


def test_the_parts_of_an_issuer_are_in_the_order_of_rfc_4514(certificates):
    assert tool.parse_certificate(certificates["plain"][1]).issuer == "CN=Mint CA, O=Mint"
    assert tool.parse_certificate(certificates["long-issuer"][1]).issuer == f"O={'x' * 60}, C=DE"


def test_of_a_certificate_that_is_cut_off_nothing_is_read(certificates):
    der = certificates["plain"][1]
    read = [tool.parse_certificate(der[:size])._replace(sha256=None) for size in range(len(der))]
    assert set(read) == {tool.NO_CERTIFICATE}


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
            now = datetime.datetime.now(datetime.timezone.utc)
            assert (found.days_left(now) is None) == (found.not_after is None)
            texts = (*(found.names or ()), found.issuer or "", found.serial or "", found.common_name or "")
            assert all(isinstance(text, str) for text in texts)
            tool.certificate_line(found, now)


def field(tag, *parts):
    """Write one element of DER."""
    content = b"".join(parts)
    size = len(content).to_bytes(2, "big")
    return bytes([tag]) + (b"\x82" + size if len(content) > 127 else size[1:]) + content


def named(kind, text, tag=0x0C):
    """Write a distinguished name of one attribute, 2.5.4.`kind`."""
    return field(0x30, field(0x31, field(0x30, field(6, b"\x55\x04", bytes([kind])), field(tag, text))))


def extension(number, value):
    """Write the extensions of a certificate that has one alone, 2.5.29.`number`."""
    return field(0xA3, field(0x30, field(0x30, field(6, b"\x55\x1d", bytes([number])), field(4, value))))


PARTS = {
    "version": field(0xA0, field(2, b"\2")),
    "serial": field(2, b"\x12\x34"),
    "algorithm": field(0x30),
    "issuer": named(10, b"Mint"),
    "validity": field(0x30, field(0x17, b"250101000000Z"), field(0x17, b"260101000000Z")),
    "subject": named(3, b"cn.test"),
    "key": field(0x30),
    "extensions": extension(17, field(0x30, field(0x82, b"a.test"), field(0x87, b"\x7f\0\0\1"))),
}
WHOLE = {
    "common_name": "cn.test",
    "names": ("a.test", "127.0.0.1"),
    "issuer": "O=Mint",
    "serial": "1234",
    "not_before": datetime.datetime(2025, 1, 1, tzinfo=datetime.timezone.utc),
    "not_after": datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc),
}


def made_of(**parts):
    """Write a certificate of these parts; its signature is none."""
    return field(0x30, field(0x30, *{**PARTS, **parts}.values()), field(0x30), field(3, b"\0"))


def alternatives(name):
    """Write the extension subjectAltName of one name."""
    return field(0x30, field(6, b"\x55\x1d\x11"), field(4, field(0x30, field(0x82, name))))


BAD_END = field(0x30, field(0x17, b"250101000000Z"), field(0x17, b"261301000000Z"))
BAD_BEGIN = field(0x30, field(0x17, b"2501010000Z"), field(0x17, b"260101000000Z"))
SAN_CUT_OFF = extension(17, field(0x30, b"\x82\x7fa.test"))
BROKEN = {
    "nothing": ({}, {}),
    "no version": ({"version": b""}, {}),
    "a month 13": ({"validity": BAD_END}, {"not_after": None}),
    "a time without seconds": ({"validity": BAD_BEGIN}, {"not_before": None}),
    "one time": (
        {"validity": field(0x30, field(0x17, b"250101000000Z"))},
        {"not_after": None},
    ),
    "no times": ({"validity": field(0x30)}, {"not_before": None, "not_after": None}),
    "times that are no DER": ({"validity": field(0x30, b"\x17")}, {"not_before": None, "not_after": None}),
    "a serial that is no number": ({"serial": field(4, b"\1")}, {"serial": None}),
    "an empty serial": ({"serial": field(2)}, {"serial": "00"}),
    "a serial below zero": ({"serial": field(2, b"\xff")}, {"serial": "-01"}),
    "a longer serial below zero": ({"serial": field(2, b"\xff\x00")}, {"serial": "-0100"}),
    "a serial that begins with zeros": ({"serial": field(2, b"\x00\xff")}, {"serial": "FF"}),
    "alternative names that come twice": (
        {"extensions": field(0xA3, field(0x30, alternatives(b"b.test") + alternatives(b"c.test")))},
        {"names": ("b.test",)},
    ),
    "an issuer that is no DER": ({"issuer": field(0x30, b"\x31\x7f")}, {"issuer": None}),
    "an issuer of nothing": ({"issuer": field(0x30)}, {"issuer": ""}),
    "a subject whose attribute has no value": (
        {"subject": field(0x30, field(0x31, field(0x30, field(6, b"\x55\x04\x03"))))},
        {"common_name": None},
    ),
    "a name in UTF-16 of odd length": ({"subject": named(3, b"\0a\0", 0x1E)}, {"common_name": "a\ufffd"}),
    "a name that is no UTF-8": ({"subject": named(3, b"\xff", 0x0C)}, {"common_name": "\ufffd"}),
    "a name of an unknown kind of text": ({"subject": named(3, b"x", 0x1A)}, {"common_name": "x"}),
    "alternative names that are cut off": ({"extensions": SAN_CUT_OFF}, {"names": None}),
    "alternative names of nothing": ({"extensions": extension(17, b"")}, {"names": None}),
    "extensions that are no DER": ({"extensions": field(0xA3, b"\x30\x05\x30")}, {"names": None}),
    "an empty extension": ({"extensions": field(0xA3, field(0x30, field(0x30)))}, {"names": None}),
    "no extensions": ({"extensions": b""}, {"names": ()}),
    "an address of five bytes": (
        {"extensions": extension(17, field(0x30, field(0x87, b"12345"), field(0x82, b"b.test")))},
        {"names": ("b.test",)},
    ),
    "an end that is no DER": ({"extensions": b"\xa3\x7f"}, {"names": ()}),
}


@pytest.mark.parametrize(("parts", "lost"), BROKEN.values(), ids=BROKEN.keys())
def test_a_field_that_cannot_be_read_is_none_and_the_others_are_shown(parts, lost):
    der = made_of(**parts)
    expected = {**WHOLE, **lost, "sha256": hashlib.sha256(der).hexdigest()}
    name = expected["common_name"]
    expected["subject"] = name and f"CN={name}"
    assert tool.parse_certificate(der)._asdict() == expected


def respelled(mint, leaf, old, new):
    """Make a server's TLS context whose certificate has other bytes in one place; no signature fits it."""
    der = mint.der(leaf[1])
    assert der.count(old) == 1 and len(old) == len(new)
    pem = ssl.DER_cert_to_PEM_cert(der.replace(old, new))
    path = mint.file(leaf)
    path.write_text(path.read_text().partition("-----BEGIN CERTIFICATE")[0] + pem)
    return server_context(path)


def test_a_certificate_is_shown_without_the_time_that_cannot_be_read(mint, run_tool, tmp_path):
    leaf = mint.issue(mint.ca, "cn.test", sans=("127.0.0.1",))
    end = f"{leaf[1].not_valid_after_utc:%y%m%d%H%M%SZ}".encode()
    with http_server(tls=respelled(mint, leaf, end, end[:2] + b"13" + end[4:])) as server:
        result = run_tool("-k", "--json", tmp_path / "out", server.url(), env={"COLUMNS": "100"})
        refused = failure(here("-m", "10", "--cacert", mint.root, server.url()), "tls", "tls")
    assert result.code == 0 and "CN cn.test" in result.out and "no legible expiry" in result.out
    for step in (result.json(tmp_path / "out")["steps"][0], refused):
        network = step["network"]
        assert (network["cert_cn"], network["cert_sans"]) == ("cn.test", ["127.0.0.1"])
        assert network["cert_serial"] and network["cert_not_before"] and "Mint" in network["cert_issuer"]
        assert (network["cert_not_after"], network["cert_days_left"]) == (None, None)


def test_a_certificate_is_shown_without_the_names_that_cannot_be_read(mint, run_tool, tmp_path):
    """OpenSSL serves no such certificate: it is bent on its way."""
    context = mint.context(mint.issue(mint.ca, None, sans=("abcdefgh.test",)))
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def script(peer):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_side=True)
        with contextlib.suppress(ssl.SSLError):
            while True:
                incoming.write(peer.sock.recv(65536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    session.do_handshake()
                peer.send(outgoing.read().replace(b"\x82\x0dabcdefgh", b"\x82\x7fabcdefgh"))
        peer.send(outgoing.read())

    with scripted(script) as server:
        url = f"https://127.0.0.1:{server.port}/"
        result = run_tool("-k", "--json", tmp_path / "out", url, env={"COLUMNS": "100"})
    assert result.code == 75 and "no legible name, expires in 89 days" in result.out
    [step] = result.json(tmp_path / "out")["steps"]
    assert (step["network"]["cert_cn"], step["network"]["cert_sans"]) == (None, None)
    assert step["network"]["cert_days_left"] == 89 and step["network"]["cert_serial"]


NO_CERTIFICATES = [
    *[b"", b"\x30", b"\x30\x80", b"\x30\x84\xff\xff\xff\xff", b"\x30\x00", b"\x30\x02\x30\x00"],
    *[b"\x05\x00", b"\x30\x85\x01\x01\x01\x01\x01", b"\x30\x82" * 5000, b"\x30\x03\x02\x01\x01"],
]


@pytest.mark.parametrize("der", NO_CERTIFICATES)
def test_what_is_no_certificate_has_nothing_but_its_sha256(der):
    certificate = tool.parse_certificate(der)
    assert certificate == tool.NO_CERTIFICATE._replace(sha256=hashlib.sha256(der).hexdigest())


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
