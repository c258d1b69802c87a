"""Unix sockets in place of TCP: every step goes there, and what is said where nobody answers."""

from __future__ import annotations

import array
import contextlib
import json
import os
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checks import check_usage_error
from inside import failure, here, only_step
from servers import PATIENCE, Peer, Request, Script, free_port, nginx

HELLO = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Local:
    """A server on a unix socket: where it is, and what it was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requests: list[Request] = []
        self.accepted = 0


@contextlib.contextmanager
def serving(path: Path, script: Script, tls: ssl.SSLContext | None = None) -> Iterator[Local]:
    """Serve every connection to a unix socket by `script(peer)`, one after the other."""
    local, stopped = Local(path), threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(100)
        listener.settimeout(0.05)

        def accept() -> None:
            while not stopped.is_set():
                with contextlib.suppress(OSError):
                    sock, _ = listener.accept()
                    sock.settimeout(PATIENCE)
                    local.accepted += 1
                    peer = Peer(sock, local.accepted - 1, stopped)
                    try:
                        if tls:
                            peer.secure(tls)
                        script(peer)
                    finally:
                        peer.sock.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield local
        finally:
            stopped.set()
            thread.join(PATIENCE)


@contextlib.contextmanager
def answering(path: Path, *responses: str, tls: ssl.SSLContext | None = None) -> Iterator[Local]:
    """Answer the first connection with the first response …, and remember what was asked."""

    def script(peer: Peer) -> None:
        request = peer.read_request()
        if request:
            local.requests.append(request)
            peer.send(responses[min(peer.number, len(responses) - 1)])

    with serving(path, script, tls) as local:
        yield local


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a unix socket has 107 bytes at most."""
    made = tempfile.mkdtemp(prefix="u")
    os.chmod(made, 0o755)
    yield Path(made)
    shutil.rmtree(made)


# --- what is sent, and what is reported ------------------------------------------------------------


def test_a_request_goes_there_whatever_the_url_s_host(folder):
    """As one asks Docker: the host is no name that could be looked up."""
    with answering(folder / "s", HELLO) as local:
        step = only_step(here("--unix-socket", local.path, "http://docker.invalid/v1.43/info?a=1"))
    [request] = local.requests
    assert request.target == "/v1.43/info?a=1"
    assert request.values("Host") == ["docker.invalid"]
    network = step["network"]
    assert network["unix_socket"] == str(local.path)
    assert network["ip"] is network["ip_family"] is network["local_ip"] is network["port"] is None
    assert (network["addresses"], network["attempts"]) == ([], [])
    assert network["tcp_rtt_ms"] is network["tcp_retransmits"] is None
    assert step["timing"]["dns_ms"] == 0 and step["timing"]["connect_ms"] > 0
    assert {finding["id"] for finding in step["findings"]} <= {"starved", "server", "setup"}


@pytest.mark.parametrize("pause", [0.3, 0.02])
def test_a_slow_server_behind_the_socket_is_named_and_a_quick_one_is_not(folder, run_tool, pause):
    """From 50 ms on it is slow, as the quick one may be too on a busy machine."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.wait(pause)
        peer.send(HELLO)

    with serving(folder / "s", script) as local:
        result = run_tool("--json", folder / "out", "--unix-socket", local.path, "http://docker/")
    [step] = json.loads((folder / "out").read_text())["steps"]
    assert step["timing"]["wait_ms"] >= pause * 1000
    findings = [each for each in step["findings"] if each["id"] not in ("starved", "setup")]
    assert bool(findings) is (step["timing"]["wait_ms"] >= 50)
    for each in findings:
        assert (each["id"], each["phase"], each["certainty"]) == ("server", "wait", "fits")
        assert each["cost_ms"] == step["timing"]["wait_ms"]
    assert ("Reading      wait, " in result.out) is bool(findings)


def test_without_the_option_there_is_no_socket(server):
    network = only_step(here(server.url()))["network"]
    assert network["unix_socket"] is None and network["ip"] == "127.0.0.1"


def test_lines_and_waterfall_say_so(folder, run_tool):
    with answering(folder / "s", HELLO) as local:
        given = ("--unix-socket", local.path, "http://docker/")
        [tokens] = run_tool("--metrics-only", *given).metrics()
        drawn = run_tool(*given).out
        compact = run_tool("--compact", *given).out
    assert (tokens["ip"], tokens["family"], tokens["proxy"]) == ("-", "-", "direct")
    assert (tokens["dns"], tokens["status"]) == ("0.000", "200")
    assert f"Socket       {local.path}\n" in drawn and "Address" not in drawn and "Path " not in drawn
    assert compact.startswith("Step 1: 200 GET http://docker/ | dns=0.0ms connect=")


def test_the_archive_names_no_server_address(folder, run_tool):
    with answering(folder / "s", HELLO) as local:
        result = run_tool("--har", "-", "--unix-socket", local.path, "http://docker/")
    [entry] = json.loads(result.out)["log"]["entries"]
    assert "serverIPAddress" not in entry
    assert entry["response"]["status"] == 200 and entry["timings"]["dns"] == -1


def test_redirects_to_other_origins_go_there_too(folder):
    away = "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.invalid:81/x\r\nContent-Length: 0\r\n\r\n"
    with answering(folder / "s", away, HELLO) as local:
        result = here("-L", "--unix-socket", local.path, "http://docker/")
    assert result.code == 0
    assert [request.values("Host")[0] for request in local.requests] == ["docker", "elsewhere.invalid:81"]
    steps = result.json()["steps"]
    assert [step["network"]["unix_socket"] for step in steps] == [str(local.path)] * 2
    assert [step["timing"]["dns_ms"] for step in steps] == [0, 0]


def test_proxies_of_the_environment_are_ignored_even_malformed_ones(folder):
    env = {"http_proxy": "http://127.0.0.1:1", "all_proxy": "nonsense://x", "https_proxy": "socks5://x"}
    with answering(folder / "s", HELLO) as local:
        network = only_step(here("-L", "--unix-socket", local.path, "http://docker/", env=env))["network"]
    assert network["proxy_url"] is network["proxy_source"] is None


def test_a_megabyte_goes_both_ways(folder, tmp_path):
    (tmp_path / "body").write_bytes(b"x" * 3_000_000)
    got = []

    def script(peer: Peer) -> None:
        request = peer.read_request()
        got.append(len(request.body))
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + b"y" * 5_000_000)

    with serving(folder / "s", script) as local:
        step = only_step(here("-d", f"@{tmp_path / 'body'}", "--unix-socket", local.path, "http://a/"))
    assert (got, step["response"]["bytes"]) == ([3_000_000], 5_000_000)


def test_open_files_that_the_server_hands_over_are_not_taken(folder):
    """Any server on a unix socket can (unix(7), SCM_RIGHTS); they would pile up."""

    def script(peer: Peer) -> None:
        peer.read_request()
        with open(os.devnull, "rb") as file:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()] * 3))]
            peer.sock.sendmsg([HELLO.encode()], rights)

    with serving(folder / "s", script) as local:
        here("--unix-socket", local.path, "http://a/")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            assert only_step(here("--unix-socket", local.path, "http://a/"))["response"]["bytes"] == 5
        assert len(os.listdir("/proc/self/fd")) == before


# --- TLS -------------------------------------------------------------------------------------------


@pytest.mark.needs("trustme")
def test_tls_over_it_is_with_the_url_s_host(folder, authority):
    context = authority.context("inside.test", common_name="inside")
    names: list[Any] = []
    context.sni_callback = lambda _, name, __: names.append(name)
    with answering(folder / "s", HELLO, tls=context) as local:
        trust = ("--cacert", authority.file, "--unix-socket", local.path)
        network = only_step(here(*trust, "https://inside.test/"))["network"]
        wrong = failure(here(*trust, "https://other.test/"), "tls", "tls")
    assert names == ["inside.test", "other.test"]
    assert network["tls_verified"] is True and network["cert_cn"] == "inside"
    assert "issued for inside.test" in wrong["error"]["message"]


@pytest.mark.needs("trustme")
def test_a_client_certificate_is_shown_there(folder, authority):
    context = authority.context("inside.test")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.ca.configure_trust(context)
    own = authority.certificate("me.test")
    with answering(folder / "s", HELLO, tls=context) as local:
        given = ("--cacert", authority.file, "--cert", own, "--unix-socket", local.path)
        network = only_step(here(*given, "https://inside.test/"))["network"]
    assert network["client_cert"] is True


@pytest.mark.needs("trustme")
def test_nginx_answers_there_over_http_and_over_http2(folder, authority):
    port, pem = free_port(), authority.certificate("inside.test")
    says = 'location / { return 200 "$host\\n"; }'
    plain_block = f"listen 127.0.0.1:{port}; listen unix:{folder}/plain; {says}"
    keys = f"ssl_certificate {pem}; ssl_certificate_key {pem};"
    with nginx(folder, port, plain_block, f"listen unix:{folder}/tls ssl http2; {keys} {says}"):
        plain = only_step(here("--unix-socket", folder / "plain", "http://inside.test/"))
        given = ("--cacert", authority.file, "--unix-socket", folder / "tls")
        secure = only_step(here(*given, "https://inside.test/"))
    size = len("inside.test\n")
    assert (plain["response"]["bytes"], secure["response"]["bytes"]) == (size, size)
    assert secure["network"]["tls_verified"] is True
    assert secure["response"]["http_version"] in ("HTTP/2", "HTTP/1.1")


@pytest.mark.needs("trustme", "h2")
def test_http2_is_spoken_there(folder, authority):
    from conversations import Conversation

    def script(peer: Peer) -> None:
        talk = Conversation(peer)
        talk.read_preface()
        peer.send(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        talk.read_until("Headers")
        fields = talk.encoder.encode([(":status", "204")])
        peer.send(len(fields).to_bytes(3, "big") + b"\x01\x05\x00\x00\x00\x01" + fields)
        peer.read_to_end()

    context = authority.context("inside.test", alpn=("h2",))
    with serving(folder / "s", script, tls=context) as local:
        given = ("--cacert", authority.file, "--unix-socket", local.path)
        step = only_step(here(*given, "https://inside.test/"))
    assert (step["response"]["status"], step["response"]["http_version"]) == (204, "HTTP/2")


# --- where nobody answers --------------------------------------------------------------------------


def fails(path: Path, *words: str) -> dict[str, Any]:
    """Prove that a path makes a failed step, before the time is over, that says why and what to try."""
    result = here("-m", "20", "--unix-socket", path, "http://a/")
    step = failure(result, "network", "connect")
    for word in words:
        assert word in step["error"]["message"], step["error"]
    assert str(path) in step["error"]["message"] and step["error"]["hint"]
    assert step["network"]["unix_socket"] == str(path)
    assert step["timing"]["dns_ms"] == 0 and step["timing"]["tls_ms"] is None
    return step


@pytest.mark.parametrize("redirected", [True, False], ids=["redirected", "asked"])
def test_https_over_a_plain_socket_says_what_the_socket_speaks(folder, redirected):
    def script(peer: Peer) -> None:
        if redirected and peer.number == 0:
            peer.read_request()
            peer.send("HTTP/1.1 302 Found\r\nLocation: https://app.test/x\r\nContent-Length: 0\r\n\r\n")
        else:
            peer.read_exactly(5)
            peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    url = "http://app.test/" if redirected else "https://app.test/"
    with serving(folder / "s", script):
        result = here("-L", "--unix-socket", folder / "s", url)
    error = result.json()["steps"][-1]["error"]
    assert (result.code, error["phase"]) == (75, "tls")
    assert "plain HTTP here" in error["message"]
    assert "http://" in error["hint"] and "socket" in error["hint"] and "port" not in error["hint"]


def test_where_no_service_is_a_failed_step_says_so(folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(folder / "left"))
    (folder / "file").write_text("")
    for path, words, hint in (
        ("none", "no such file", "service"),
        ("file/s", "not a directory", ""),
        ("left", "refused", "leave it behind"),
        ("file", "refused", ""),
    ):
        assert hint in fails(folder / path, words)["error"]["hint"]


def test_a_full_queue_fails_at_once(folder):
    """A connect() that blocks would wait for the service until the time is over."""
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(folder / "s"))
        listener.listen(0)
        for _ in range(3):
            caller = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.connect(str(folder / "s"))
        assert "load" in fails(folder / "s", "unavailable")["error"]["hint"]


@pytest.mark.needs("root")
@pytest.mark.parametrize("closed", ["socket", "folder"])
def test_a_socket_that_one_may_not_write_to_is_a_failed_step(folder, closed):
    with answering(folder / "s", HELLO) as local:
        os.chmod(local.path if closed == "socket" else folder, 0o600)
        os.seteuid(65534)
        try:
            hint = fails(local.path, "permission denied")["error"]["hint"]
        finally:
            os.seteuid(0)
            os.chmod(folder, 0o755)
    assert "modes" in hint


def test_a_service_that_does_not_accept_is_a_time_out(folder, run_tool):
    """The kernel says that it is connected; then nothing comes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / "s"))
        listener.listen(5)
        result = run_tool("-m", "1.2", "--json", "-", "--unix-socket", folder / "s", "http://a/")
    [step] = result.json()["steps"]
    assert (result.code, step["error"]["kind"], step["error"]["phase"]) == (75, "timeout", "wait")


def test_a_failure_is_told_in_every_format(folder, run_tool):
    given = ("--unix-socket", folder / "s", "http://a/")
    [tokens] = run_tool("--metrics-only", *given).metrics()
    assert (tokens["error"], tokens["ip"], tokens["dns"], tokens["tls"]) == ("network", "-", "0.000", "-")
    assert "network: no connection to the unix socket" in run_tool("--compact", *given).out
    assert f"Socket       {folder / 's'}" in run_tool(*given).out


# --- what is refused -------------------------------------------------------------------------------


OTHERS = "-x http://a:1,--resolve a:80:127.0.0.1,-4,-6,--interface lo,--interface 127.0.0.1".split(",")


def test_what_has_to_do_with_addresses_is_excluded(folder, call_tool):
    with answering(folder / "s", HELLO) as local:
        for other in (*(each.split() for each in OTHERS), ["-x", ""]):
            result = call_tool("--unix-socket", local.path, *other, "http://a/")
            check_usage_error(result, "--unix-socket", f"{other[0]} exclude each other")
    assert local.accepted == 0


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_path_has_at_most_107_bytes(folder, letter):
    for length in (107, 108):
        room = length - len(str(folder)) - 1
        size = len(letter.encode())
        path = folder / (letter * (room // size) + "x" * (room % size))
        assert len(os.fsencode(path)) == length
        if length == 108:
            assert "path too long" in fails(path)["error"]["message"]
            continue
        with answering(path, HELLO) as local:
            assert only_step(here("--unix-socket", path, "http://a/"))["response"]["status"] == 200
        assert local.accepted == 1


def test_an_empty_path_is_none(call_tool):
    check_usage_error(call_tool("--unix-socket", "", "http://a/"), "--unix-socket '': expected a path")


def test_a_relative_path_is_one_from_where_the_program_starts(folder, run_tool):
    with answering(folder / "s", HELLO):
        [step] = run_tool("--json", "-", "--unix-socket", "s", "http://a/", cwd=folder).json()["steps"]
    assert (step["response"]["status"], step["network"]["unix_socket"]) == (200, "s")


@pytest.mark.needs("linux")
def test_runs_that_time_out_leave_no_thread_and_no_descriptor_behind(folder, start_tool):
    """Else a long series would run out of them, and could not even write what it has."""
    with serving(folder / "s", lambda peer: peer.wait(PATIENCE)):
        options = [*"--count 20 --interval 0 -m 0.1 --compact --unix-socket".split(), folder / "s"]
        process = start_tool(*options, "http://a/")
        tasks, files = [], []
        for number in range(18):
            assert b"timeout" in process.stdout.readline()
            if number >= 12:  # some may be about to end
                tasks.append(len(os.listdir(f"/proc/{process.pid}/task")))
                files.append(len(os.listdir(f"/proc/{process.pid}/fd")))
        assert min(tasks) <= 4
        assert min(files) <= 12
