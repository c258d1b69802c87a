"""TLS: versions, names, trust stores, protocols offered and chosen, alerts, and handshakes that go wrong."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import ssl
import subprocess
import sys

import pytest

from checks import check_usage_error
from conftest import PATIENCE, TOOL
from conversations import http2_context
from inside import failure, here, only_step, tool
from mint import Mint, server_context
from servers import Reply, http_server, scripted, sending

pytestmark = pytest.mark.needs("trustme")
HELLO = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@pytest.fixture
def visit(authority):
    """Run the program against a server with a TLS context, verified with the authority's bundle."""

    def run(context, *options, host=None, env=None):
        with http_server(tls=context) as server:
            trust = () if "-k" in options else ("--cacert", authority.file)
            mapping = ("--resolve", f"{host}:{server.port}:127.0.0.1") if host else ()
            return here("-m", "10", *trust, *mapping, *options, server.url(host=host), env=env)

    return run


def limited(authority, version, *, ciphers=None):
    """Make a server's TLS context that speaks one version only, however old."""
    context = server_context(authority.certificate())
    if ciphers:
        context.set_ciphers(ciphers)
    context.maximum_version = context.minimum_version = getattr(ssl.TLSVersion, version)
    return context


# --- versions and ciphers -------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "shown"), [("TLSv1_2", "TLS 1.2"), ("TLSv1_3", "TLS 1.3")])
@pytest.mark.parametrize("options", [(), ("-k",)])
def test_the_version_that_was_agreed_on_is_reported(visit, authority, version, shown, options):
    network = only_step(visit(limited(authority, version), *options))["network"]
    assert network["tls_version"] == shown
    assert (network["tls_verified"], network["tls_custom_ca"]) == (not options, not options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("version", "shown"), [("TLSv1", "TLS 1.0"), ("TLSv1_1", "TLS 1.1")])
def test_old_versions_are_refused_and_k_allows_them(visit, authority, version, shown):
    context = limited(authority, version)
    error = failure(visit(context), "tls", "tls")["error"]
    assert "version" in error["message"] and "-k" in error["hint"]
    network = only_step(visit(context, "-k"))["network"]
    assert network["tls_version"] == shown
    assert network["cert_sans"]


def test_weak_ciphers_are_refused_and_k_allows_them(visit, authority):
    context = limited(authority, "TLSv1_2", ciphers="ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0")
    context.set_ciphers("AECDH-AES128-SHA:@SECLEVEL=0")
    error = failure(visit(context), "tls", "tls")["error"]
    assert "handshake_failure" in error["message"] and "-k" in error["hint"]
    assert only_step(visit(context, "-k"))["network"]["tls_cipher"] == "AECDH-AES128-SHA"


def test_the_cipher_is_reported(visit, authority):
    context = limited(authority, "TLSv1_2", ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")
    assert only_step(visit(context))["network"]["tls_cipher"] == "ECDHE-ECDSA-AES256-GCM-SHA384"


def server_hello_without_renegotiation_info(peer):
    """Answer a ClientHello as a server of TLS 1.2 from before RFC 5746 would."""
    peer.sock.recv(65536)
    body = b"\x03\x03" + b"r" * 32 + b"\x00" + b"\xc0\x2f" + b"\x00"
    hello = b"\x02" + len(body).to_bytes(3, "big") + body
    peer.send(b"\x16\x03\x03" + len(hello).to_bytes(2, "big") + hello)
    peer.wait(0.05)
    peer.end()
    peer.read_to_end()


@pytest.mark.skipif(ssl.OPENSSL_VERSION_INFO < (3,), reason="OpenSSL 1.1.1 allows it by itself")
def test_legacy_renegotiation_is_refused_and_k_allows_it():
    with scripted(server_hello_without_renegotiation_info) as server:
        url = f"https://127.0.0.1:{server.port}/"
        error = failure(here("-m", "5", url), "tls", "tls")["error"]
        assert "legacy" in error["message"] and "-k" in error["hint"]
        allowed = failure(here("-m", "5", "-k", url), "tls", "tls")["error"]
    assert "legacy" not in allowed["message"], "the handshake goes on, until this server has nothing more"


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("MaxProtocol = TLSv1.1", "TLS failed: no protocols available"),
        ("MinProtocol = TLSv1.3\nCiphersuites =", "TLS failed: no ciphers available"),
    ],
)
def test_an_openssl_that_has_nothing_to_offer_is_a_failed_step(run_tool, tls, tmp_path, setting, words):
    path = tmp_path / "openssl.cnf"
    path.write_text(f"openssl_conf=a\n[a]\nssl_conf=b\n[b]\nsystem_default=c\n[c]\n{setting}\n")
    with http_server(tls=tls) as server:
        result = run_tool("--json", "-", server.url(), env={"OPENSSL_CONF": str(path)})
    error = failure(result, "tls", "tls")["error"]
    assert error["message"] == words and "OpenSSL" in error["hint"]


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "names", "seen"),
    [
        ("a.test", ["a.test"], "a.test"),
        ("A.TEST", ["a.test"], "a.test"),
        ("a.test.", ["a.test"], "a.test"),
        ("münchen.test", ["xn--mnchen-3ya.test"], "xn--mnchen-3ya.test"),
        ("127.0.0.1", ["127.0.0.1"], None),
    ],
)
def test_the_server_is_told_the_name(visit, authority, host, names, seen):
    """SNI holds a host name without its final dot, and never an address (RFC 6066 section 3)."""
    context = authority.context(*names)
    told = []
    context.sni_callback = lambda sock, name, context: told.append(name)
    only_step(visit(context, host=host))
    assert told == [seen]


def test_resolving_by_hand_and_a_host_header_leave_the_name_of_the_url(visit, authority):
    context = authority.context("a.test")
    told = []
    context.sni_callback = lambda sock, name, context: told.append(name)
    only_step(visit(context, "-H", "Host: b.test", host="a.test"))
    assert told == ["a.test"]


# --- protocols ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocols", "options", "chosen", "spoken"),
    [
        ((), (), None, "HTTP/1.1"),
        (("http/1.1",), (), "http/1.1", "HTTP/1.1"),
        (("http/1.0",), (), None, "HTTP/1.1"),
        (("h2", "http/1.1"), ("--http1.1",), "http/1.1", "HTTP/1.1"),
        (("http/1.1", "h2"), (), "http/1.1", "HTTP/1.1"),
        (("spdy/3", "http/1.1"), (), "http/1.1", "HTTP/1.1"),
    ],
)
def test_the_server_chooses_the_protocol(visit, authority, protocols, options, chosen, spoken):
    network = only_step(visit(authority.context(alpn=protocols), *options))["network"]
    assert (network["alpn"], network["http_version"]) == (chosen, spoken)


def offered(authority, *options, env=None):
    """Return the protocols that the program offers, read from its ClientHello."""
    hellos = []

    def script(peer):
        hellos.append(peer.sock.recv(65536))

    with scripted(script) as server:
        here("--cacert", authority.file, *options, f"https://127.0.0.1:{server.port}/")
    return [name for name in (b"\x02h2", b"\x08http/1.1", b"\x08http/1.0") if name in hellos[0]]


@pytest.mark.needs("h2")
def test_http2_and_http_1_1_are_offered(authority):
    assert offered(authority) == [b"\x02h2", b"\x08http/1.1"]
    assert offered(authority, "--no-http2") == [b"\x08http/1.1"]


@pytest.mark.needs("h2")
def test_a_server_that_chose_http2_and_speaks_http_1_1_is_a_protocol_error(authority):
    with scripted(sending(HELLO), tls=http2_context(authority)) as server:
        result = here("-m", "5", "--cacert", authority.file, server.url())
    failure(result, "protocol")


def test_a_server_that_chose_http_1_1_and_speaks_http2_is_a_protocol_error(authority, tls):
    with scripted(sending(b"\0\0\0\4\0\0\0\0\0\r\n\r\n"), tls=tls) as server:
        failure(here("-m", "5", "--cacert", authority.file, server.url()), "protocol", "wait")


# --- what is trusted ------------------------------------------------------------------------------


def test_a_private_ca_is_not_trusted_by_itself(run_tool, tls):
    with http_server(tls=tls) as server:
        result = run_tool("--json", "-", server.url())
    error = failure(result, "tls", "tls")["error"]
    assert "issuer" in error["message"] and "--cacert" in error["hint"]


def test_ssl_cert_file_names_the_store(run_tool, tls, authority):
    with http_server(tls=tls) as server:
        step = only_step(run_tool("--json", "-", server.url(), env={"SSL_CERT_FILE": str(authority.file)}))
    assert (step["network"]["tls_verified"], step["network"]["tls_custom_ca"]) == (True, False)


def hashed_name(path):
    """Return the name under which OpenSSL looks for a CA in a folder: X509_NAME_hash of its subject.

    That is SHA-1 of the name in a canonical form: UTF-8 in lower case, without the outer SEQUENCE.
    """
    from cryptography import x509

    canonical = b""
    for attribute in x509.load_pem_x509_certificate(path.read_bytes()).subject:
        value = " ".join(attribute.value.lower().split()).encode()
        numbers = [int(number) for number in attribute.oid.dotted_string.split(".")]
        kind = bytes([numbers[0] * 40 + numbers[1], *numbers[2:]])
        pair = bytes([6, len(kind)]) + kind + bytes([12, len(value)]) + value
        pair = bytes([0x30, len(pair)]) + pair
        canonical += bytes([0x31, len(pair)]) + pair
    return f"{int.from_bytes(hashlib.sha1(canonical).digest()[:4], 'little'):08x}.0"


def test_ssl_cert_dir_names_the_store(run_tool, tls, authority, tmp_path):
    pytest.importorskip("cryptography", reason="needs cryptography, to name the file")
    (tmp_path / hashed_name(authority.file)).write_bytes(authority.file.read_bytes())
    with http_server(tls=tls) as server:
        step = only_step(run_tool("--json", "-", server.url(), env={"SSL_CERT_DIR": str(tmp_path)}))
    assert step["network"]["tls_verified"] is True


def test_cacert_takes_the_place_of_the_store(run_tool, tls, authority, tmp_path):
    other = Mint(tmp_path).root
    with http_server(tls=tls) as server:
        env = {"SSL_CERT_FILE": str(authority.file)}
        result = run_tool("--json", "-", "--cacert", other, server.url(), env=env)
    failure(result, "tls", "tls")


def test_a_bundle_may_hold_many_certificates_and_words_between(visit, tls, authority, tmp_path):
    pem = authority.file.read_text()
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(f"# a comment with ümlaut\n{pem}\nIssuer: somebody\r\n{pem}trailing")
    with http_server(tls=tls) as server:
        assert only_step(here("--ca-bundle", bundle, server.url()))["network"]["tls_custom_ca"] is True


@pytest.mark.parametrize("content", [b"", b"no certificate", b"\x00" * 100, None])
@pytest.mark.parametrize("option", ["--cacert", "SSL_CERT_FILE"])
def test_a_bundle_without_certificate_is_a_usage_error(run_tool, tls, tmp_path, content, option):
    path = tmp_path / "bundle.pem"
    if content is not None:
        path.write_bytes(content)
    with http_server(tls=tls) as server:
        if option == "--cacert":
            result = run_tool("--cacert", path, server.url())
        else:
            result = run_tool(server.url(), env={option: str(path)})
    assert (result.code, result.out, server.accepted) == (64, "", 0)
    assert str(path) in result.err and option in result.err


def test_a_damaged_certificate_in_a_bundle_is_a_usage_error(authority, tmp_path):
    path = tmp_path / "bundle.pem"
    path.write_text(authority.file.read_text().replace("MI", "NI", 1))
    result = here("--cacert", path, "https://127.0.0.1:1/")
    assert result.code == 64 and str(path) in result.err


def test_a_broken_ssl_cert_file_is_of_no_interest_to_plain_http_and_to_k(run_tool, server, tls):
    env = {"SSL_CERT_FILE": "/does/not/exist"}
    assert run_tool(server.url(), env=env).code == 0
    with http_server(tls=tls) as secure:
        assert run_tool("-k", secure.url(), env=env).code == 0


@pytest.mark.parametrize("option", ["--cacert", "--ca-bundle"])
@pytest.mark.parametrize("insecure", ["-k", "--insecure", "--ignore-ssl"])
def test_to_verify_with_a_bundle_and_not_at_all_exclude_each_other(authority, option, insecure):
    result = here(insecure, option, authority.file, "https://127.0.0.1:1/")
    assert (result.code, result.out) == (64, "")


@pytest.mark.needs("root", "linux")
def test_a_machine_without_any_ca_certificate_is_told_so(base_environment, tls, tmp_path):
    """The folders where OpenSSL looks are hidden behind empty ones, in mounts of this process alone."""
    paths = ssl.get_default_verify_paths()
    places = [os.path.dirname(os.path.realpath(paths.openssl_cafile)), paths.openssl_capath]
    hide = " && ".join(
        f'mount --bind "{tmp_path}" "{place}"' for place in set(places) if os.path.isdir(place)
    )
    command = ["unshare", "--mount", "sh", "-c", f'{hide or "true"} && exec "$@"', "sh"]
    with http_server(tls=tls) as server:
        done = subprocess.run(
            [*command, sys.executable, str(TOOL), "--json", "-", server.url()],
            check=False,
            capture_output=True,
            env=base_environment,
            timeout=PATIENCE,
        )
    if b"unshare" in done.stderr or b"mount" in done.stderr:
        pytest.skip("needs the right to mount")
    error = json.loads(done.stdout)["steps"][0]["error"]
    assert (done.returncode, error["kind"]) == (75, "tls")
    assert "no CA certificates" in error["message"] and "--cacert" in error["hint"]


# --- the oldest version ---------------------------------------------------------------------------

DEMANDING = """
openssl_conf = all
[all]
ssl_conf = parts
[parts]
system_default = demands
[demands]
MinProtocol = {}
"""


@pytest.fixture
def demanding(tmp_path, base_environment):
    """Return a function that gives the environment of a system which demands a version of TLS."""

    def make(version: str) -> dict[str, str]:
        (tmp_path / "openssl.cnf").write_text(DEMANDING.format(version))
        return {"OPENSSL_CONF": str(tmp_path / "openssl.cnf")}

    code = "import ssl; print(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).minimum_version.name)"
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            told = subprocess.run(
                [python, "-c", code], check=False, capture_output=True, text=True, env=make("TLSv1.3")
            )
            if told.stdout == "TLSv1_3\n":
                return lambda version: (python, {**base_environment, **make(version)})
    pytest.skip("needs a Python that tells what the system demands")


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("demanded", ["TLSv1.3", "TLSv1.2", "TLSv1"])
@pytest.mark.parametrize("options", [(), ("-k",)])
def test_the_system_may_demand_a_newer_version(demanding, authority, version, demanded, options):
    python, env = demanding(demanded)
    trust = options or ("--cacert", str(authority.file))
    with http_server(tls=limited(authority, version)) as server:
        command = [python, "-B", str(TOOL), "--json", "-", *trust, server.url()]
        done = subprocess.run(command, check=False, capture_output=True, env=env, timeout=PATIENCE)
    refused = version == "TLSv1_2" and demanded == "TLSv1.3" and not options
    assert done.returncode == (75 if refused else 0), done.stderr
    error = json.loads(done.stdout)["steps"][0]["error"]
    assert (error and error["kind"]) == ("tls" if refused else None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_system_cannot_allow_an_older_version(demanding, authority):
    python, env = demanding("TLSv1")
    with http_server(tls=limited(authority, "TLSv1_1")) as server:
        command = [python, "-B", str(TOOL), "--metrics-only", "--cacert", str(authority.file), server.url()]
        done = subprocess.run(command, check=False, capture_output=True, env=env, timeout=PATIENCE)
    assert done.returncode == 75 and b"error=tls" in done.stdout


# --- the keys of a session ------------------------------------------------------------------------


def test_the_keys_of_a_session_are_appended_where_the_variable_says(run_tool, tls, authority, tmp_path):
    path = tmp_path / "keys"
    for count in (1, 2):
        with http_server(tls=tls) as server:
            result = run_tool("--cacert", authority.file, server.url(), env={"SSLKEYLOGFILE": str(path)})
        assert result.code == 0 and result.err == ""
        assert path.read_text().count("CLIENT_TRAFFIC_SECRET_0 ") == count
    assert path.stat().st_mode & 0o077 == 0, "whoever reads the keys reads the traffic"


def test_a_certificate_that_is_refused_says_nothing_of_the_keys(run_tool, tls, tmp_path):
    path = tmp_path / "keys"
    with http_server(tls=tls) as server:
        result = run_tool("--metrics-only", server.url(), env={"SSLKEYLOGFILE": str(path)})
    assert result.code == 75 and "error=tls" in result.out
    assert "certificate" in result.err and "SSLKEYLOGFILE" not in result.err
    assert path.exists()


def test_keys_that_cannot_be_logged_are_a_warning(run_tool, tls, authority, tmp_path):
    for path in (tmp_path / "no" / "keys", tmp_path):
        with http_server(tls=tls) as server:
            result = run_tool(
                "--metrics-only", "--cacert", authority.file, server.url(), env={"SSLKEYLOGFILE": str(path)}
            )
        assert result.code == 0 and "SSLKEYLOGFILE" in result.err and "warning" in result.err
        assert len(result.out.splitlines()) == 1


def test_keys_for_a_pipe_that_nobody_reads_hold_nothing_up(run_tool, tls, authority, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with http_server(tls=tls) as server:
        env = {"SSLKEYLOGFILE": str(tmp_path / "pipe")}
        result = run_tool("--cacert", authority.file, server.url(), env=env, timeout=8)
    assert result.code == 0 and "SSLKEYLOGFILE" in result.err


@pytest.mark.needs("linux")
@pytest.mark.parametrize("room", [60, 200, 350, 500, 700])
def test_a_disk_that_fills_up_among_the_keys_costs_the_keys_alone(start_tool, tls, authority, tmp_path, room):
    """One line of the log after the other: in the handshake, at its end, and while the answer is read."""

    def limit():
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    with http_server({"/": Reply(body=b"x" * 100_000)}, tls=tls) as server:
        words = ("--metrics-only", "--cacert", authority.file, server.url())
        process = start_tool(*words, env={"SSLKEYLOGFILE": str(tmp_path / "keys")}, preexec_fn=limit)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and b"status=200 bytes=100000" in out
    assert b"warning: SSLKEYLOGFILE" in err


@pytest.mark.parametrize("seconds", [1, 1.5])
def test_a_store_that_never_ends_is_given_up_with_the_time(run_tool, tls, tmp_path, seconds):
    os.mkfifo(tmp_path / "store")
    silent = os.open(tmp_path / "store", os.O_RDWR)
    try:
        with http_server(tls=tls) as server:
            env = {"SSL_CERT_FILE": str(tmp_path / "store")}
            result = run_tool("-m", str(seconds), server.url(), env=env, timeout=10)
    finally:
        os.close(silent)
    check_usage_error(result, "SSL_CERT_FILE", "store")
    assert result.own_seconds < seconds + 2


# --- client certificates --------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("options", [(), ("-k",)])
def test_a_server_that_requires_a_client_certificate_is_a_tls_failure(visit, authority, version, options):
    """In TLS 1.3 the refusal comes when the client has finished its handshake; in 1.2 the alert says less."""
    context = limited(authority, version)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.ca.configure_trust(context)
    step = failure(visit(context, *options), "tls")
    assert "requires a client certificate" in step["error"]["message"]
    assert "--cert PATH" in step["error"]["hint"] and "--key" in step["error"]["hint"]
    assert (step["network"]["ip"], step["network"]["client_cert"]) == ("127.0.0.1", None)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_server_that_would_like_a_client_certificate_does_without(visit, authority, version):
    context = limited(authority, version)
    context.verify_mode = ssl.CERT_OPTIONAL
    authority.ca.configure_trust(context)
    assert only_step(visit(context))["response"]["status"] == 200


# --- handshakes that go wrong ---------------------------------------------------------------------

ALERTS = {
    40: ("handshake_failure", "the server accepted nothing we offered", "-k"),
    42: ("bad_certificate", "the server refused the client certificate, or the lack of one", "--cert PATH"),
    45: ("certificate_expired", "the server says that the client certificate expired", "--cert PATH"),
    48: ("unknown_ca", "the server does not trust the CA of the client certificate", "--cert PATH"),
    70: ("protocol_version", "the server refused the TLS versions offered", "-k"),
    80: ("internal_error", "the server broke off with an error of its own", "log"),
    112: ("unrecognized_name", "the server does not know this name", "host name"),
    116: ("certificate_required", "the server requires a client certificate", "--cert PATH"),
    120: ("no_application_protocol", "the server refused our ALPN", "--http1.1"),
}
"""Alerts with words and a hint of their own."""
OTHER_ALERTS = {
    10: "unexpected_message", 20: "bad_record_mac", 21: "decryption_failed", 22: "record_overflow",
    30: "decompression_failure", 41: "no_certificate", 43: "unsupported_certificate",
    44: "certificate_revoked", 46: "certificate_unknown", 47: "illegal_parameter", 49: "access_denied",
    50: "decode_error", 51: "decrypt_error", 60: "export_restriction", 71: "insufficient_security",
    86: "inappropriate_fallback", 90: "user_cancelled", 100: "no_renegotiation", 109: "missing_extension",
    110: "unsupported_extension", 111: "certificate_unobtainable", 113: "bad_certificate_status_response",
    114: "bad_certificate_hash_value", 115: "unknown_psk_identity", 0: "0", 121: "121", 99: "99", 255: "255",
}  # fmt: skip
"""All others of the registry (IANA, TLS Alerts), and two that nobody has assigned."""


def alerted(code, *options):
    with scripted(raw(record(21, bytes([2, code])))) as server:
        return failure(here("-m", "5", *options, f"https://127.0.0.1:{server.port}/"), "tls", "tls")["error"]


@pytest.mark.parametrize(("code", "told"), ALERTS.items())
def test_a_common_alert_has_words_and_a_hint_of_its_own(code, told):
    name, words, hint = told
    error = alerted(code)
    assert error["message"] == f"{words} (alert {name})" and hint in error["hint"]


@pytest.mark.parametrize(("code", "name"), OTHER_ALERTS.items())
def test_any_other_alert_is_called_by_its_name_whatever_openssl_calls_it(code, name):
    error = alerted(code)
    # Python knows a name for 115 from OpenSSL 3.2 on.
    assert error["message"] in (
        f"the server broke off (alert {name})",
        f"the server broke off (alert {code})",
    )
    assert "server's log" in error["hint"] or ("certificate" in name and "--cert" in error["hint"])


def test_with_k_nothing_older_is_proposed():
    assert "-k" not in alerted(40, "-k")["hint"]


@pytest.mark.parametrize("code", [41, 90, 112, 255])
def test_a_warning_is_not_blamed_for_what_came_after_it(code):
    warning = record(21, bytes([1, code]))
    with scripted(raw(warning)) as server:
        error = failure(here("-m", "5", f"https://127.0.0.1:{server.port}/"), "tls", "tls")["error"]
    assert "closed the connection" in error["message"]
    with scripted(raw(warning + record(22, b"\x02\x00\x00\x04\xff\xff\xff\xff"))) as server:
        error = failure(here("-m", "5", f"https://127.0.0.1:{server.port}/"), "tls", "tls")["error"]
    assert error["message"] == "TLS failed: length mismatch"


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ([("read", b"\x02\x79")], 121),
        ([("read", b"\x01\x79")], None),
        ([("read", b"\x01\x70"), ("read", b"\x02\x79")], 121),
        ([("read", b"\x02\x79"), ("read", b"\x01\x00")], None),
        ([("read", b"\x02\x79"), ("write", b"\x02\x50")], None),
    ],
    ids=["fatal", "a warning", "a warning first", "a warning last", "ours last"],
)
def test_only_a_fatal_alert_of_the_other_side_is_its_last_word(messages, kept):
    """No OpenSSL known today fails without a word of its own after a warning; one may come."""
    tls = object()
    tap = tool.HandshakeTap(tls)
    for direction, alert in messages:
        tap(tls, direction, 0x0303, 21, alert[1], alert)
    assert tap.alert == kept


def record(kind, payload, length=None):
    """Write a record of TLS in the clear, whose header may lie about its length."""
    size = len(payload) if length is None else length
    return bytes([kind, 3, 3]) + size.to_bytes(2, "big") + payload


def raw(data):
    """Make a script that answers whatever comes with `data`, and ends."""

    def script(peer):
        peer.sock.recv(65536)
        peer.send(data)
        peer.end()
        peer.read_to_end()

    return script


GARBAGE = {
    "plain-http": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "smtp": b"220 mail.test ESMTP\r\n",
    "zeros": b"\0" * 100,
    "a-huge-record": b"\x16\x03\x03\xff\xff" + b"\0" * 100,
    "an-empty-record": b"\x16\x03\x03\x00\x00",
    "half-a-record": b"\x16\x03\x03\x01\x00" + b"\x02",
    "half-a-record-header": b"\x16\x03",
    "data-in-the-handshake": b"\x17\x03\x03\x00\x05hello",
    "a-bad-server-hello": b"\x16\x03\x03\x00\x08\x02\x00\x00\x04\xff\xff\xff\xff",
    "nothing": b"",
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE.keys())
def test_what_is_no_handshake_is_a_tls_failure(data):
    with scripted(raw(data)) as server:
        step = failure(here("-m", "5", f"https://127.0.0.1:{server.port}/"), "tls", "tls")
    assert step["error"]["hint"]
    assert step["timing"]["connect_ms"] is not None and step["timing"]["wait_ms"] is None


@pytest.mark.parametrize("data", [GARBAGE["plain-http"], b"<!DOCTYPE HTML>\n"], ids=["HTTP/1", "a page"])
def test_a_port_of_plain_http_is_suggested_as_such(data):
    """Python's http.server takes the handshake for HTTP/0.9, and sends a page of errors alone."""
    with scripted(raw(data)) as server:
        url = f"https://127.0.0.1:{server.port}/"
        error = failure(here("-m", "5", url), "tls", "tls")["error"]
    assert "plain HTTP" in error["message"] and f"http://127.0.0.1:{server.port}" in error["hint"]


@pytest.mark.parametrize("when", ["at once", "after the hello"])
def test_a_reset_during_the_handshake_is_a_network_failure(when):
    def script(peer):
        if when == "after the hello":
            peer.sock.recv(65536)
        peer.reset()

    with scripted(script) as server:
        step = failure(here("-m", "5", f"https://127.0.0.1:{server.port}/"), "network")
    assert step["error"]["phase"] in ("connect", "tls") and "reset" in step["error"]["message"]


def test_a_handshake_in_single_bytes_is_a_handshake(authority, tls):
    """However the bytes come, they are the same handshake."""

    def script(peer):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = tls.wrap_bio(incoming, outgoing, server_side=True)
        request = b""
        while b"\r\n\r\n" not in request:
            with contextlib.suppress(ssl.SSLWantReadError):
                request += session.read(65536)
            reply = outgoing.read()
            peer.drip(reply, 0)
            if not reply and not request:
                incoming.write(peer.sock.recv(65536))
        session.write(HELLO.encode())
        peer.drip(outgoing.read(), 0)
        peer.read_to_end()

    with scripted(script) as server:
        url = f"https://127.0.0.1:{server.port}/"
        step = only_step(here("-m", "10", "--cacert", authority.file, url))
    assert step["response"]["bytes"] == 5


VERSIONS = [("TLSv1_2", "TLS 1.2"), ("TLSv1_3", "TLS 1.3")]
NO_RECORDS = {
    "an alert in the clear": (record(21, b"\x02\x50"), ""),
    "garbage": (record(23, b"x" * 80), ""),
    "one byte": (record(23, b"x"), ""),
    "a handshake message": (record(22, b"x" * 64), ""),
    "a record that is too long": (record(23, b"x" * 20000), ": it began with '\x17\x03\x03N '"),
    "plain HTTP": (b"HTTP/1.1 200 OK\r\n\r\n", ": it began with 'HTTP/'"),
}


@pytest.mark.parametrize(("version", "shown"), VERSIONS)
@pytest.mark.parametrize(("data", "began"), NO_RECORDS.values(), ids=NO_RECORDS.keys())
def test_what_is_no_record_after_the_handshake_is_named_as_openssl_does(
    authority, version, shown, data, began
):
    """In a body OpenSSL says it once, maybe while good records before it are being read."""

    def script(peer):
        peer.read_request()
        if peer.number:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 200000)
        os.write(peer.sock.fileno(), data)
        peer.wait(0.1)

    with scripted(script, tls=limited(authority, version)) as server:
        for phase in ("wait", "xfer"):
            step = failure(here("-m", "5", "--cacert", authority.file, server.url()), "tls", phase)
            said = step["error"]["message"]
            assert re.fullmatch(r"TLS failed: [a-z ]+" + re.escape(began if phase == "wait" else ""), said)
            assert "server's log" in step["error"]["hint"] and step["network"]["tls_version"] == shown


@pytest.mark.parametrize(("version", "shown"), VERSIONS)
def test_an_alert_after_the_handshake_is_called_by_its_name(authority, version, shown):
    """The server's own, encrypted: what it reads after the handshake is damaged."""
    context = limited(authority, version)

    def script(peer):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_side=True)
        shaken = False
        while not shaken:
            incoming.write(peer.sock.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                session.do_handshake()
                shaken = True
            peer.send(outgoing.read())
        incoming.write(record(23, b"x" * 80))
        with contextlib.suppress(ssl.SSLError):
            while True:
                session.read(65536)
        peer.send(outgoing.read())
        peer.end()
        peer.read_to_end()

    with scripted(script) as server:
        url = f"https://127.0.0.1:{server.port}/"
        step = failure(here("-m", "5", "--cacert", authority.file, url), "tls", "wait")
    assert step["error"]["message"] == "the server broke off (alert bad_record_mac)"
    assert step["network"]["tls_version"] == shown


def test_openssl_is_never_left_without_the_callback_it_was_given(authority):
    """Before 3.9.3, taking it away keeps the interpreter's lock for ever when the next message comes."""
    context = authority.context()
    client = tool.build_context(tool.Options(None, None, {}, insecure=True), lambda: None)
    with scripted(lambda peer: peer.read_to_end(), tls=context) as server:
        stream, wire = tool.TlsStream(client, "localhost"), tool.SocketStream()
        with socket.create_connection((server.host, server.port)) as wire.socket:
            wire.begin(stream.ciphertext)
            stream.shake_hands(wire)
    assert stream.established and tool.MESSAGE_CALLBACK.__get__(client) is not None


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_huge_chain_is_read(visit, authority, tmp_path, version):
    """Sixty certificates make a handshake of 40 KB and more."""
    mint = Mint(tmp_path)
    extra = [mint.issue(mint.ca, "x" * 60, sans=("y" * 60 + ".test",) * 3)[1] for _ in range(60)]
    context = mint.context(mint.issue(mint.ca, sans=("127.0.0.1",)), *extra)
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
    with http_server(tls=context) as server:
        step = only_step(here("-m", "10", "--cacert", mint.root, server.url()))
        assert step["network"]["cert_cn"] == "localhost"
        assert failure(here("-m", "10", server.url()), "tls", "tls")["network"]["cert_cn"] == "localhost"


def test_a_chain_beyond_what_openssl_reads_is_a_tls_failure(tmp_path):
    mint = Mint(tmp_path)
    large = mint.issue(mint.ca, sans=tuple("y" * 60 + f".n{number}.test" for number in range(400)))[1]
    context = mint.context(mint.issue(mint.ca, sans=("127.0.0.1",)), *[large] * 9)
    with http_server(tls=context) as server:
        step = failure(here("-m", "10", "--cacert", mint.root, server.url()), "tls", "tls")
    assert step["error"]["message"] and step["error"]["hint"]


# --- records --------------------------------------------------------------------------------------


class Cable(tool.Stream):
    """What lies between the program's TLS and a server's, in memory. Whoever reads too far is told so."""

    def __init__(self, context):
        super().__init__()
        self._incoming, self.coming = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self._incoming, self.coming, server_side=True)
        self.first = 1 << 20
        """How many bytes come before the rest does."""

    def send_until_readable(self):
        self._incoming.write(self.source())
        with contextlib.suppress(ssl.SSLWantReadError):
            self.server.do_handshake()

    def hold(self):
        self.send_until_readable()

    def read_into(self, view):
        self.send_until_readable()
        data = self.coming.read(min(len(view), self.first))
        assert data, "waits for bytes that nobody sends"
        view[: len(data)] = data
        self.first = self.first - len(data) or 1 << 20
        self.arrived += 1
        return len(data)


@pytest.mark.parametrize("beyond", range(45))
def test_records_are_read_one_by_one_after_a_large_read_that_ended_anywhere(authority, beyond):
    """As they are after an upload, during which many come at a time and no instant matters."""
    context = authority.context()
    context.num_tickets = 0
    trust = ssl.create_default_context(cafile=str(authority.file))
    stream, cable, view = tool.TlsStream(trust, "localhost"), Cable(context), memoryview(bytearray(99))
    cable.source = stream.ciphertext
    stream.shake_hands(cable)
    stream.send_until_readable()
    stream.in_bulk = True
    words, ends = [b"one", b"two", b"three"], []
    for word in words:
        cable.server.write(word)
        ends.append(cable.coming.pending)
    cable.first = torn = ends[0] + beyond
    got = [bytes(view[: stream.read_into(view)])]
    stream.in_bulk = False
    reads = cable.arrived
    while sum(map(len, got)) < len(b"".join(words)):
        got.append(bytes(view[: stream.read_into(view)]))
    assert [got[0], *got[1:]] == [b"".join(words[: 4 - len(got)]), *words[4 - len(got) :]]
    assert cable.arrived - reads == 2 * sum(end > torn for end in ends) - (torn not in ends), "pieces"


# --- a body that ends -----------------------------------------------------------------------------


@pytest.mark.parametrize("polite", [True, False])
def test_a_body_until_close_needs_a_close_notify(authority, tls, polite):
    def script(peer):
        peer.read_request()
        peer.send("HTTP/1.1 200 OK\r\n\r\nhello")
        if polite:
            peer.sock.unwrap()
        else:
            peer.end()

    with scripted(script, tls=tls) as server:
        result = here("-m", "5", "--cacert", authority.file, server.url())
    step = only_step(result) if polite else failure(result, "protocol", "xfer")
    assert step["response"]["bytes"] == 5
    assert polite or "close_notify" in step["error"]["message"]
