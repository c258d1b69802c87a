"""TLS: versions, names, trust stores, alerts, and handshakes that go wrong.

What is no TLS at all, and what a server can break in it, is in hostile/test_tls.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import ssl
import subprocess
import sys

import pytest

from certificates import Authority, Handshake, server_context, tls_record
from checks import check_usage_error, parse_metrics
from conftest import PATIENCE, TOOL, possible
from inside import failure, here, only_step, visit
from servers import http_server, redirect, scripted


def limited(authority, version):
    """Make a server's TLS context that speaks one version only, however old."""
    context = server_context(authority.certificate())
    context.maximum_version = context.minimum_version = getattr(ssl.TLSVersion, version)
    return context


def refused(data, *options):
    """Run the program against a server that answers the ClientHello with `data` and no more."""

    def script(peer):
        peer.sock.recv(65536)
        peer.send(data)
        peer.end()
        peer.read_to_end()

    with scripted(script) as server:
        return failure(here("-m", "10", *options, f"https://127.0.0.1:{server.port}/"), "tls", "tls")["error"]


def openssl_set_to(folder, settings):
    """Write a system's OpenSSL configuration, and return the environment that names it."""
    path = folder / "openssl.cnf"
    path.write_text(f"openssl_conf=a\n[a]\n{settings}\n")
    return {"OPENSSL_CONF": str(path)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", ["TLSv1_1", "TLSv1_2", "TLSv1_3"])
def test_old_versions_are_refused_and_k_allows_them(authority, version):
    context = limited(authority, version)
    for options in ((), ("-k",)):
        result = visit(authority, context, *options)
        if version == "TLSv1_1" and not options:
            error = failure(result, "tls", "tls")["error"]
            assert "version" in error["message"] and "-k" in error["hint"]
            continue
        network = only_step(result)["network"]
        assert network["tls_version"] == version.replace("TLSv", "TLS ").replace("_", ".")
        assert re.match("TLS_|ECDHE-", network["tls_cipher"]) and network["cert_sans"]
        assert (network["tls_verified"], network["tls_custom_ca"]) == (not options, not options)


@pytest.mark.skipif(ssl.OPENSSL_VERSION_INFO < (3,), reason="OpenSSL 1.1.1 allows it by itself")
def test_a_server_from_before_rfc_5746_is_refused_and_k_allows_it():
    body = b"\x03\x03" + b"r" * 32 + b"\x00" + b"\xc0\x2f" + b"\x00"
    server_hello = tls_record(22, b"\x02" + len(body).to_bytes(3, "big") + body)
    error = refused(server_hello)
    assert "legacy" in error["message"] and "-k" in error["hint"]
    assert "legacy" not in refused(server_hello, "-k")["message"], "goes on, until there is nothing more"


TLS_1_3 = "ssl_conf=b\n[b]\nsystem_default=c\n[c]\nMinProtocol = TLSv1.3"


def test_an_openssl_that_has_nothing_to_offer_is_a_failed_step(run_tool, tls, tmp_path):
    env = openssl_set_to(tmp_path, f"{TLS_1_3}\nCiphersuites =")
    with http_server(tls=tls) as server:
        error = failure(run_tool("--json", "-", server.url(), env=env), "tls", "tls")["error"]
    assert error["message"] == "TLS failed: no ciphers available" and "OpenSSL" in error["hint"]


WITHOUT_TLS = {
    "without the default provider": "providers=p\n[p]\nlegacy=l\n[l]\nactivate=1",
    "FIPS without its module": "alg_section=q\n[q]\ndefault_properties=fips=yes",
}


@pytest.mark.skipif(ssl.OPENSSL_VERSION_INFO < (3,), reason="OpenSSL 1.1.1 has no providers")
@pytest.mark.parametrize("settings", WITHOUT_TLS.values(), ids=WITHOUT_TLS)
def test_an_openssl_that_cannot_set_up_tls_is_told_with_its_configuration(run_tool, tmp_path, settings):
    env = openssl_set_to(tmp_path, settings)
    said = "OpenSSL cannot set up TLS here: library has no ciphers; look at its configuration (OPENSSL_CONF)"
    with http_server({"/": redirect("https://127.0.0.1:1/")}) as server:
        result = run_tool("-L", "--json", "-", server.url(), env=env)
    first, second = result.json()["steps"]
    assert (result.code, first["response"]["status"], second["error"]["message"]) == (75, 302, said)
    for options in ((), ("-k",)):
        check_usage_error(run_tool(*options, "https://127.0.0.1:1/", env=env), said)


@pytest.mark.parametrize(("options", "code"), [((), 75), (("-k",), 0)])
def test_the_system_may_demand_a_newer_version_but_of_k(authority, tmp_path, base_environment, options, code):
    env = {**base_environment, **openssl_set_to(tmp_path, TLS_1_3)}
    asking = "import ssl; print(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).minimum_version.name)"
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", asking], capture_output=True, env=env).stdout == b"TLSv1_3\n":
                break
    else:
        pytest.skip("needs a Python that tells what the system demands")
    with http_server(tls=limited(authority, "TLSv1_2")) as server:
        words = ["--metrics-only", *(options or ("--cacert", str(authority.file))), server.url()]
        run = [python, "-B", str(TOOL), *words]
        done = subprocess.run(run, capture_output=True, env=env, timeout=PATIENCE)
    assert (done.returncode, b"error=tls" in done.stdout) == (code, code != 0), done.stderr


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl, whose server shakes hands anew")
def test_an_upload_goes_on_when_the_server_has_shaken_hands_anew(start_tool, authority, tmp_path):
    """As servers do that ask for a client certificate where they know the path (RFC 5246 section 7.4.1.1)."""
    (tmp_path / "body").write_bytes(b"x" * (32 << 20))
    words = ["openssl", "s_server", "-accept", "127.0.0.1:0", "-naccept", "1", "-tls1_2", "-crlf", "-cert"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    with subprocess.Popen([*words, authority.certificate()], **pipes) as server:
        said = b""
        while not (listening := re.search(rb"ACCEPT 127.0.0.1:([0-9]+)\n", said)):
            said += server.stdout.read(1)
        url = f"https://127.0.0.1:{int(listening[1])}/"
        client = start_tool("-k", "--metrics-only", "-m", "20", "-d", f"@{tmp_path / 'body'}", url)
        while b"xxx" not in said:
            said += server.stdout.read(1)
        server.stdin.write(b"r\n")  # its output is full: the rest of the body waits
        came = 3
        while came < 32 << 20 and (data := server.stdout.read(1 << 16)):
            came += data.count(b"x")
        server.stdin.write(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n")
        out, _ = client.communicate(timeout=PATIENCE)
        server.kill()
    assert parse_metrics(out.decode().rstrip("\n"))["status"] == "200"


def test_the_server_is_told_the_name_of_the_url(authority):
    """SNI holds a host name without its final dot, and never an address (RFC 6066 section 3)."""
    context, told = authority.context(), []
    context.sni_callback = lambda sock, name, context: told.append(name)
    for host in ("a.test", "a.test.", "127.0.0.1"):
        only_step(visit(authority, context, "-H", "Host: b.test", host=host))
    assert told == ["a.test", "a.test", None]


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_the_environment_names_a_store_and_cacert_wins(run_tool, tls, authority, tmp_path, variable):
    hashed = ["openssl", "x509", "-noout", "-hash", "-in", authority.file]
    env = {variable: str(authority.file)}
    if variable == "SSL_CERT_DIR":
        if not shutil.which("openssl"):
            pytest.skip("needs openssl, which names the files of such a folder")
        (tmp_path / f"{subprocess.check_output(hashed, text=True).strip()}.0").symlink_to(authority.file)
        env = {variable: str(tmp_path)}
    with http_server(tls=tls) as server:
        step = only_step(run_tool("--json", "-", server.url(), env=env))
        other = run_tool("--json", "-", "--cacert", Authority(tmp_path).file, server.url(), env=env)
    assert (step["network"]["tls_verified"], step["network"]["tls_custom_ca"]) == (True, False)
    failure(other, "tls", "tls")


def test_a_bundle_may_hold_many_certificates_and_words_between(tls, authority, tmp_path):
    pem = authority.file.read_text()
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(f"# a comment with ümlaut\n{pem}\nIssuer: somebody\r\n{pem}trailing")
    kinds = [bundle.read_text(), pem.replace("CERTIFICATE", "X509 CERTIFICATE")]  # as old OpenSSLs wrote it
    if shutil.which("openssl"):
        words = ("openssl", "x509", "-trustout", "-addtrust", "serverAuth", "-in", authority.file)
        kinds.append(subprocess.check_output(words, text=True))
        assert "TRUSTED CERTIFICATE" in kinds[-1]
    with http_server(tls=tls) as server:
        for text in kinds:
            bundle.write_text(text)
            assert only_step(here("--ca-bundle", bundle, server.url()))["network"]["tls_custom_ca"] is True


def test_a_bundle_without_a_certificate_that_can_be_read_is_a_usage_error(tls, tmp_path):
    (tmp_path / "bad").write_bytes(b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n")
    with http_server(tls=tls) as server:
        for name, said in (
            ("bad", "no legible"),
            ("none", "no such file"),
            ("/dev/null", "holds no certificate"),
        ):
            check_usage_error(here("--cacert", tmp_path / name, server.url()), "--cacert", said)
        env = {"SSL_CERT_FILE": "/does/not/exist"}
        check_usage_error(here(server.url(), env=env), "SSL_CERT_FILE", "no such file")
        assert server.accepted == 0
        only_step(here("-k", server.url(), env=env))


@pytest.mark.needs("root", "linux")
def test_a_machine_without_any_ca_certificate_is_told_so(run_tool, tls, tmp_path):
    """The folders where OpenSSL looks are hidden behind empty ones, in mounts of this process alone."""
    paths = ssl.get_default_verify_paths()
    places = {os.path.dirname(os.path.realpath(paths.openssl_cafile)), paths.openssl_capath}
    hide = [f'mount --bind "{tmp_path}" "{place}"' for place in places if os.path.isdir(place)]
    prefix = ["unshare", "--mount", "sh", "-c", " && ".join([*hide, 'exec "$@"']), "sh"]
    with http_server(tls=tls) as server:
        result = run_tool("--json", "-", server.url(), within=possible(prefix, "needs the right to mount"))
    error = failure(result, "tls", "tls")["error"]
    assert "no CA certificates" in error["message"] and "--cacert" in error["hint"]


def test_a_store_that_never_ends_is_given_up_with_the_time(run_tool, tls, tmp_path):
    os.mkfifo(tmp_path / "store")
    silent = os.open(tmp_path / "store", os.O_RDWR)
    try:
        with http_server(tls=tls) as server:
            result = run_tool("-m", "1", server.url(), env={"SSL_CERT_FILE": str(tmp_path / "store")})
    finally:
        os.close(silent)
    check_usage_error(result, "SSL_CERT_FILE", "within 1 s")


ALERTS = {
    40: ("handshake_failure", "the server accepted nothing we offered", "-k"),
    42: ("bad_certificate", "the server refused the client certificate, or the lack of one", "--cert PATH"),
    70: ("protocol_version", "the server refused the TLS versions offered", "-k"),
    80: ("internal_error", "the server broke off with an error", "log"),
    112: ("unrecognized_name", "the server does not know this name", "host name"),
    120: ("no_application_protocol", "the server refused our ALPN", "HTTP/2 alone needs the package h2"),
}
"""Alerts with words and a hint of their own, but those of test_client_certificates.py."""


def test_an_alert_has_words_and_a_hint_of_its_own_or_is_called_by_its_name():
    for code, (name, words, hint) in ALERTS.items():
        error = refused(tls_record(21, bytes([2, code])))
        assert error["message"] == f"{words} (alert {name})" and hint in error["hint"]
    for code, name in ((10, "unexpected_message"), (115, "unknown_psk_identity")):
        error = refused(tls_record(21, bytes([2, code])))
        # Python knows a name for 115 from OpenSSL 3.2 on.
        assert error["message"] in [f"the server broke off (alert {each})" for each in (name, code)]
        assert "server's log" in error["hint"]
    assert "-k" not in refused(tls_record(21, bytes([2, 40])), "-k")["hint"], "nothing older"


def test_a_warning_is_not_blamed_for_what_came_after_it():
    warning = tls_record(21, bytes([1, 112]))
    assert "closed the connection" in refused(warning)["message"]
    assert refused(warning + tls_record(22, b"\x02\x00\x00\x04\xff\xff\xff\xff"))["message"] == (
        "TLS failed: length mismatch"
    )


def test_a_port_of_plain_http_is_suggested_as_such():
    """Python's http.server takes the handshake for HTTP/0.9, and sends a page of errors alone."""
    for data in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"<!DOCTYPE HTML>\n", b"SSH-2.0-x\r\n"):
        error = refused(data)
        assert error["message"] == "the server does not speak TLS here"
        assert error["hint"].startswith("For plain HTTP ask for http://127.0.0.1:")


DAMAGED = tls_record(23, b"x" * 80)


@pytest.mark.parametrize(("damage", "alert"), [(b"", " (alert bad_record_mac)"), (DAMAGED, "")])
def test_bytes_that_were_changed_behind_a_part_of_the_body_are_told(authority, damage, alert):
    """By the server's own alert, encrypted, or in what is read; all of it comes in one segment."""
    context = limited(authority, "TLSv1_2")

    def script(peer):
        handshake = Handshake(peer, context)
        while not handshake.done:
            peer.send(handshake.flight())
        for part in (b"HTTP/1.1 200 OK\r\n\r\n", b"hello"):
            handshake.tls.write(part)
        answer = handshake.outgoing.read() + damage
        handshake.incoming.write(DAMAGED)
        with contextlib.suppress(ssl.SSLError):
            while True:
                handshake.tls.read(65536)
        peer.send(answer + handshake.outgoing.read())
        peer.end()
        peer.read_to_end()

    with scripted(script) as server:
        url = f"https://127.0.0.1:{server.port}/"
        step = failure(here("-m", "10", "--cacert", authority.file, url), "tls", "xfer")
    assert step["error"]["message"] == f"bytes were changed on the way{alert}"
    assert step["network"]["tls_version"] == "TLS 1.2"
