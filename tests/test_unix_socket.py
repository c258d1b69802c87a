"""Unix sockets in place of TCP: every step goes there, and what is said where nobody answers."""

from __future__ import annotations

import array
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inside import failure, here, only_step
from servers import Peer, Reply, Server, fill_queue, http_server, redirect, scripted


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a unix socket has 107 bytes at most."""
    made = tempfile.mkdtemp(prefix="u")
    os.chmod(made, 0o755)
    yield Path(made)
    shutil.rmtree(made)


@pytest.fixture
def local(folder) -> Iterator[Server]:
    """Serve `hello` on a unix socket; its path is `host`."""
    with http_server(host=f"{folder}/s") as server:
        yield server


def test_a_request_goes_there_whatever_the_url_s_host(local):
    """As one asks Docker: the host is no name that could be looked up."""
    step = only_step(here("--unix-socket", local.host, "http://docker.invalid/v1.43/info?a=1"))
    [request], network = local.requests, step["network"]
    assert (request.target, request.values("Host")) == ("/v1.43/info?a=1", ["docker.invalid"])
    assert network["unix_socket"] == local.host and not (network["addresses"] or network["attempts"])
    assert {network[name] for name in ("ip", "ip_family", "local_ip", "port", "tcp_rtt_ms")} == {None}
    assert step["timing"]["dns_ms"] == 0 and step["timing"]["connect_ms"] > 0


def test_lines_and_waterfall_say_so(local, call_tool):
    given = ("--unix-socket", local.host, "http://docker/")
    [tokens] = call_tool("--metrics-only", *given).metrics()
    drawn = call_tool(*given).out
    compact = call_tool("--compact", *given).out
    assert (tokens["ip"], tokens["family"], tokens["proxy"]) == ("-", "-", "direct")
    assert (tokens["dns"], tokens["status"]) == ("0.000", "200")
    assert f"Socket       {local.host}\n" in drawn and "Address" not in drawn and "Path " not in drawn
    assert compact.startswith("Step 1: 200 GET http://docker/ | dns=0.0ms connect=")


def test_redirects_to_other_origins_go_there_too_and_proxies_are_ignored(folder):
    """Even those that are malformed."""
    env = {"http_proxy": "http://127.0.0.1:1", "all_proxy": "nonsense://x", "https_proxy": "socks5://x"}
    routes = {"/": redirect("http://elsewhere.invalid:81/x"), "/x": Reply()}
    with http_server(routes, host=f"{folder}/s") as local:
        result = here("-L", "--unix-socket", local.host, "http://docker/", env=env)
    assert result.code == 0
    assert [request.values("Host")[0] for request in local.requests] == ["docker", "elsewhere.invalid:81"]
    for step in result.json()["steps"]:
        network = step["network"]
        assert (network["unix_socket"], network["proxy_url"]) == (local.host, None)
        assert step["timing"]["dns_ms"] == 0


def test_open_files_that_the_server_hands_over_are_not_taken(folder):
    """Any server on a unix socket can (unix(7), SCM_RIGHTS); they would pile up."""

    def script(peer: Peer) -> None:
        peer.read_request()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()] * 3))]
        peer.sock.sendmsg([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], rights)

    (folder / "handed").touch()
    with open(folder / "handed", "rb") as file, scripted(script, host=f"{folder}/s") as local:
        for _ in range(4):
            assert only_step(here("--unix-socket", local.host, "http://a/"))["response"]["bytes"] == 5
        links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
        assert sum(os.path.exists(link) and os.path.samefile(link, file.name) for link in links) == 1


def test_tls_over_it_is_with_the_url_s_host(folder, authority):
    context = authority.context("inside.test", common_name="inside")
    names: list[Any] = []
    context.sni_callback = lambda _, name, __: names.append(name)
    with http_server(host=f"{folder}/s", tls=context) as local:
        trust = ("--cacert", authority.file, "--unix-socket", local.host)
        network = only_step(here(*trust, "https://inside.test/"))["network"]
        wrong = failure(here(*trust, "https://other.test/"), "tls", "tls")
    assert names == ["inside.test", "other.test"]
    assert network["tls_verified"] is True and network["cert_cn"] == "inside"
    assert "its default, for inside.test" in wrong["error"]["message"]


def check_failed(path: Path, reason: str, hint: str) -> None:
    """Prove that a path makes a failed step, before the time is over, that says why and what to try."""
    step = failure(here("-m", "20", "--unix-socket", path, "http://a/"), "network", "connect")
    error = step["error"]
    assert reason in error["message"] and str(path) in error["message"], error
    assert error["hint"] and hint in error["hint"], error
    assert step["network"]["unix_socket"] == str(path)
    assert step["timing"]["dns_ms"] == 0 and step["timing"]["tls_ms"] is None


def test_where_no_service_is_a_failed_step_says_so(folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(folder / "left"))
    (folder / "file").write_text("")
    check_failed(folder / "none", "no such file", "service")
    check_failed(folder / "file" / "s", "not a directory", "")
    check_failed(folder / "left", "refused", "leave it behind")
    check_failed(folder / "file", "refused", "")


@pytest.mark.needs("linux")
def test_a_service_that_takes_no_connection_has_a_full_queue(folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as busy, contextlib.ExitStack() as held:
        busy.bind(str(folder / "busy"))
        busy.listen(0)
        fill_queue(busy, held)
        check_failed(folder / "busy", ": its queue of connections is full", "takes none")


@pytest.mark.needs("root")
def test_a_socket_that_one_may_not_write_to_is_a_failed_step(local):
    os.chmod(local.host, 0o600)
    os.seteuid(65534)
    try:
        check_failed(Path(local.host), "permission denied", "permissions")
    finally:
        os.seteuid(0)
