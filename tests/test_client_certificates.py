"""Client certificates: who is shown one, who is not, what files they may come from, and what is said of them.

The servers remember which certificate they saw; nothing here trusts what the program says of itself alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import frames
from certificates import Authority, Handshake, tls_record
from checks import check_usage_error, flat
from conftest import PATIENCE
from inside import failure, here, only_step
from servers import OK, Peer, Reply, http_server, scripted


class Holder(NamedTuple):
    """A client certificate in files: certificate and chain, key, and both in one."""

    certificate: Path
    key: Path
    both: Path

    def encrypted(self, password: bytes) -> Path:
        from cryptography.hazmat.primitives import serialization as form

        key = form.load_pem_private_key(self.key.read_bytes(), None)
        path = self.key.with_name("encrypted.pem")
        with_password = form.BestAvailableEncryption(password)
        path.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, with_password))
        return path


@pytest.fixture(scope="module")
def holder(authority, tmp_path_factory):
    folder = tmp_path_factory.mktemp("holder")
    holder = Holder(folder / "cert.pem", folder / "key.pem", authority.certificate(common_name="me"))
    key, mark, certificate = holder.both.read_text().partition("-----BEGIN CERTIFICATE")
    holder.certificate.write_text(mark + certificate)
    holder.key.write_text(key)
    return holder


def asking(authority: Any, version: str = "TLSv1_3", mode: int = ssl.CERT_OPTIONAL, **settings: Any):
    context = authority.context(**settings)
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
    context.verify_mode = mode
    context.load_verify_locations(authority.file)
    return context


def name_of(peer: Peer) -> str | None:
    """Return the common name of the certificate that a client has shown, None for no certificate."""
    shown = peer.sock.getpeercert()
    return dict(pair for each in shown["subject"] for pair in each)["commonName"] if shown else None


@contextlib.contextmanager
def remembering(context: ssl.SSLContext, response: str = OK):
    """Serve one response on every connection; yield the server and whom it saw, a name a connection."""
    seen: list[str | None] = []

    def script(peer: Peer) -> None:
        if peer.read_request():
            seen.append(name_of(peer))
            peer.send(response)

    with scripted(script, tls=context) as server:
        yield server, seen


def moved(location: str) -> str:
    return f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"


def options(authority: Any, holder: Holder) -> tuple[Any, ...]:
    return ("-m", "10", "--cacert", authority.file, "--cert", holder.both)


def test_a_connection_that_is_cut_for_want_of_a_certificate_says_that_first(authority, holder):
    said = "The server asked for a client certificate, and got none (--cert). "
    with scripted(lambda peer: peer.read_request(), tls=asking(authority)) as server:
        for words in (("--cacert", authority.file), options(authority, holder)):
            error = failure(here(*words, server.url()), "protocol", "wait")["error"]
            assert error["hint"].startswith(said) == ("--cert" not in words)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_server_that_requires_a_certificate_sees_it_or_the_step_fails(authority, holder, version):
    """In TLS 1.3 the refusal comes when the client has finished its handshake; in 1.2 the alert says less."""
    with remembering(asking(authority, version, ssl.CERT_REQUIRED)) as (server, seen):
        step = failure(here("-m", "10", "-k", server.url()), "tls")
        for words in (("-k", "--cert", holder.certificate, "--key", holder.key), options(authority, holder)):
            network = only_step(here(*words, server.url()))["network"]
            assert network["client_cert"] is True
    assert "requires a client certificate" in step["error"]["message"]
    assert "--cert PATH" in step["error"]["hint"] and "--key" in step["error"]["hint"]
    assert (seen, step["network"]["client_cert"]) == (["me"] * 2, None)


ROWS = {  # what the server asks for, what is given, what the server saw, and what the report says
    "sent": (ssl.CERT_OPTIONAL, "--cacert {ca} --cert {deep}", ["deep"], True),
    "sent, but it expired 3 days ago": (ssl.CERT_OPTIONAL, "--cacert {ca} --cert {old}", ["old"], True),
    "not asked for": (ssl.CERT_NONE, "--cacert {ca} --cert {me}", [None], False),
    # Of a server that is not believed, though in TLS 1.3 it had asked before that.
    "not known": (ssl.CERT_OPTIONAL, "--cert {me}", [], None),
    "": (ssl.CERT_OPTIONAL, "--cacert {ca}", [None], None),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_report_says_what_became_of_it(authority, holder, call_tool, tmp_path, row):
    mode, words, seen_there, known = ROWS[row]
    context = asking(authority, mode=mode)
    context.verify_flags |= 0x200000  # X509_V_FLAG_NO_CHECK_TIME: a server that does not mind
    old = authority.certificate(common_name="old", days=(-90, -3.5))
    between = authority.issue(authority.ca, "Middle CA", ca=True)  # which the server does not know
    deep = authority.file_of(authority.issue(between, "deep"), between[1])
    given = words.format(ca=authority.file, me=holder.both, old=old, deep=deep).split()
    with remembering(context) as (server, seen):
        result = call_tool(*given, "--json", tmp_path / "out", server.url())
    [step] = result.json(tmp_path / "out")["steps"]
    assert (seen, step["network"]["client_cert"]) == (seen_there, known)
    assert f"Client cert  {row}\n" in result.out if row else "lient cert" not in result.out


@pytest.mark.parametrize("times", [1, 3, 4])
def test_a_server_that_asks_once_it_knows_the_path_is_answered_three_times(authority, holder, times):
    asked = []

    def script(peer: Peer) -> None:
        assert peer.read_request().target == "/private" and name_of(peer) is None
        peer.sock.setblocking(False)
        for _ in range(times):
            peer.sock.verify_client_post_handshake()
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            assert select.select([peer.sock], [], [], PATIENCE)[0], "the client neither answers nor hangs up"
            with contextlib.suppress(ssl.SSLWantReadError):
                if not peer.sock.recv(1):
                    return
            asked.append(name_of(peer))
        peer.sock.setblocking(True)
        peer.send(OK)

    context = asking(authority)
    context.post_handshake_auth = True
    with scripted(script, tls=context) as server:
        result = here(*options(authority, holder), server.url("/private"))
    step = only_step(result) if times < 4 else failure(result, "protocol")
    assert asked == ["me"] * min(times, 3) and step["network"]["client_cert"] is True
    if times == 4:
        assert "asked for a client certificate too often" in step["error"]["message"]


@pytest.mark.needs("h2")
def test_a_server_that_asks_within_http2_breaks_its_rules(authority, holder):
    """RFC 9113 section 9.2.3."""

    def script(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.sock.verify_client_post_handshake()
        peer.send(frames.settings())
        peer.read_to_end()

    context = asking(authority, alpn=("h2",))
    context.post_handshake_auth = True
    with scripted(script, tls=context) as server:
        failure(here(*options(authority, holder), server.url()), "protocol", "wait")


def test_another_origin_sees_none_and_the_first_one_sees_it_again(authority, holder):
    """Each of the two asks for it; the second redirects back to the first."""
    with contextlib.ExitStack() as stack:

        def script(peer: Peer) -> None:
            request = peer.read_request()
            at_first.append((request.target, name_of(peer)))
            peer.send(OK if request.target == "/back" else moved(middle.url()))

        at_first: list[Any] = []
        first = stack.enter_context(scripted(script, tls=asking(authority)))
        middle, at_middle = stack.enter_context(remembering(asking(authority), moved(first.url("/back"))))
        result = here(*options(authority, holder), "-L", first.url("/go"))
    assert result.code == 0
    assert (at_first, at_middle) == ([("/go", "me"), ("/back", "me")], [None])
    assert [step["network"]["client_cert"] for step in result.json()["steps"]] == [True, False, True]


def test_a_proxy_that_requires_a_certificate_is_not_offered_ours(authority, holder):
    context = asking(authority, mode=ssl.CERT_REQUIRED)
    with remembering(context) as (proxy, seen):
        way = ("-x", f"https://127.0.0.1:{proxy.port}")
        step = failure(here(*options(authority, holder), *way, "https://a.test/"), "proxy", "connect")
    assert seen == []
    assert "never to a proxy" in step["error"]["hint"]
    assert "Give a client certificate" not in step["error"]["hint"]


def test_a_certificate_that_the_server_does_not_trust_is_said_to_be_refused(authority, tmp_path):
    path = Authority(tmp_path).certificate("stranger.test", common_name="stranger")
    with remembering(asking(authority, mode=ssl.CERT_REQUIRED)) as (server, seen):
        given = ("-m", "10", "--cacert", authority.file, "--cert", path)
        step = failure(here(*given, server.url()), "tls")
    assert seen == []
    assert step["network"]["client_cert"] is True
    assert "does not trust the CA of the client certificate" in step["error"]["message"]
    assert "--cert" in step["error"]["hint"] and "Give a client" not in step["error"]["hint"]


def test_a_server_of_tls_1_2_that_breaks_off_over_the_certificate_is_said_to_refuse_it(authority, holder):
    def script(peer: Peer) -> None:
        peer.send(Handshake(peer, asking(authority, "TLSv1_2")).flight())
        peer.sock.recv(65536)
        peer.send(tls_record(21, b"\2\x28"))
        peer.read_to_end()

    with scripted(script) as server:
        url = f"https://127.0.0.1:{server.port}/"
        error = failure(here(*options(authority, holder), url), "tls")["error"]
    said = "the server refused the client certificate, or the lack of one (alert handshake_failure)"
    assert error["message"] == said and error["hint"].startswith("Does the server trust the CA of --cert?")


def test_a_certificate_that_has_expired_says_so_before_the_server_does(authority):
    given = ("--cacert", authority.file, "--cert", authority.certificate(days=(-90, -3.5)))
    with http_server(tls=asking(authority)) as server:  # which refuses it, for it asks for a good one
        error = failure(here(*given, server.url()), "tls")["error"]
    words = "the certificate of --cert expired 3 days ago; the server says that the client certificate"
    assert error["message"].startswith(words) and error["hint"] == "Renew that certificate."


@pytest.mark.parametrize(("status", "said"), [(400, True), (404, True), (500, False)])
def test_a_refusal_says_that_a_certificate_was_asked_for(authority, holder, call_tool, status, said):
    """A server may not refuse the handshake: it answers 400, which alone would not say what to try."""
    words = "the server asked for a client certificate, and none was given: --cert PATH"
    series = ("--count", "2", "--interval", "0")
    with http_server({"/": Reply(status)}, tls=asking(authority)) as server:
        given = ("--cacert", authority.file, server.url())
        drawn, line = flat(call_tool(*given).out), call_tool("--compact", *given).err
        assert (f"Note {words}" in drawn, words in line) == (said, said)
        drawn, runs = call_tool(*series, *given), call_tool("--compact", *series, *given).err
        often = f"in 2 of 2 runs {words}"
        assert (f"Note {often}" in flat(drawn.out), often in runs) == (said, said)
        assert drawn.err == "" and flat(drawn.out).count(words) == said, "it is said once"
        assert call_tool("--compact", "--cert", holder.both, *given).err == "", "it was shown"


def test_the_password_of_a_key_is_the_first_line_of_a_file(authority, holder, tmp_path, run_tool):
    word, password = b" s\xc3\xa9cret ", tmp_path / "password"
    given = ("--cacert", authority.file, "--cert", holder.certificate, "--key", holder.encrypted(word))
    with remembering(asking(authority)) as (server, seen):
        for line in (b"%b", b"%b\r\n"):
            password.write_bytes(line % word)
            only_step(here(*given, "--key-password-file", password, server.url()))
        words = (*given, "--key-password-file", "-", server.url())
        assert run_tool(*words, stdin=word + b"\nnot the password\n").code == 0
    assert seen == ["me"] * 3


NO_FILES = ("-", "{pipe}", "{folder}", "{missing}", "/dev/null")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--key {key}", ["--key needs --cert"]),
        *((f"--cert {path}", ["--cert: there is no regular file", path]) for path in NO_FILES),
        *((f"--cert {{cert}} --key {path}", ["--key: there is no regular file", path]) for path in NO_FILES),
        ("--cert {cert}", ["--cert '{cert}' must hold a certificate", "{cert}' its private key", "--key"]),
        ("--cert {cert} --key {locked}", ["{locked}", "is encrypted", "--key-password-file PATH"]),
        ("--cert {cert} --key {locked} --key-password-file {cert}", ["{locked}", "a wrong password"]),
        ("--cert {cert} --key {other}", ["is not the key of the first certificate", "{other}", "{cert}"]),
        ("--cert {cert}:hunter2", ["--key-password-file", "{cert}"]),
    ],
)
def test_a_certificate_that_will_not_do_is_refused_before_anything_is_sent(
    call_tool, server, authority, holder, tmp_path, given, words
):
    files = {"cert": holder.certificate, "key": holder.key, "locked": holder.encrypted(b"secret")}
    files.update(missing=tmp_path / "missing", folder=tmp_path, other=authority.certificate())
    files.update(pipe=tmp_path / "pipe")
    os.mkfifo(files["pipe"])
    url = f"https://{server.authority}/"
    for others in ((url,), (url, "--vs", "-4")):
        result = call_tool(*given.format(**files).split(), *others)
        check_usage_error(result, *(word.format(**files) for word in words))
        assert "hunter2" not in result.err and "secret" not in result.err
    assert server.accepted == 0


OLD_KEYS = [f"pkcs8 -topk8 {way}" for way in ("-v1 PBE-MD5-DES", "-v1 PBE-SHA1-RC2-40", "-v2 des-cbc")]
OLD_KEYS.append("ec -des")
"""How OpenSSL is told to encrypt a key so that OpenSSL 3 does not read it by itself."""


@pytest.mark.skipif(ssl.OPENSSL_VERSION_INFO < (3,), reason="OpenSSL 1.1.1 reads them")
@pytest.mark.parametrize("way", [*OLD_KEYS, "pkcs8 -topk8 -v1 PBE-SHA1-3DES", "ec -aes128", "ec -des3"])
def test_a_key_of_an_old_kind_comes_with_the_command_that_converts_it(authority, holder, tmp_path, way):
    old, password = tmp_path / "an old key", tmp_path / "password"
    words = f"{way} -provider legacy -provider default -passout pass:word -in".split()
    command = ["openssl", *words, holder.key, "-out", old]
    if not shutil.which("openssl") or subprocess.run(command, check=False).returncode:
        pytest.skip("needs openssl with its legacy provider")
    given = ("--cacert", authority.file, "--cert", holder.certificate, "--key-password-file", password)
    password.write_text("word" if way in OLD_KEYS else "another")
    with remembering(asking(authority)) as (server, seen):
        result = here(*given, "--key", old, server.url())
        if way in OLD_KEYS:
            check_usage_error(result, "in an old way (as DES or RC2), which this OpenSSL does not have any")
            command = shlex.split(result.err.partition("convert it: ")[2].replace("NEW", f"'{tmp_path}/new'"))
            subprocess.run([*command, "-passin", "pass:word", "-passout", "pass:word"], check=True)
            old = tmp_path / "new"
        else:
            check_usage_error(result, "wrong password")
            password.write_text("word")
        only_step(here(*given, "--key", old, server.url()))
    assert seen == ["me"]


def test_nothing_is_ever_asked_on_the_terminal(holder, run_tool):
    """The program has a terminal of its own that OpenSSL could ask on, /dev/tty, and nobody types there."""
    spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    words = ("--cert", holder.certificate, "--key", holder.encrypted(b"secret"), "https://127.0.0.1:1/")
    result = run_tool(*words, within=(sys.executable, "-c", spawn))
    assert result.code == 64 and "is encrypted" in result.out and "pass phrase" not in result.out.lower()
