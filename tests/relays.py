"""Proxies that lead everything to one server, late by a known time, and remember what they were asked for."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

from servers import PATIENCE_WITH_PROGRAMS, Peer, Server, scripted


def _pump(client: Any, target: socket.socket) -> None:
    """Pass bytes both ways until one side closes. One thread, because a TLS object bears no two."""
    while True:
        if not (isinstance(client, ssl.SSLSocket) and client.pending()):
            ready, _, _ = select.select([client, target], [], [])
            if target in ready:
                data = target.recv(65536)
                if not data:
                    return
                client.sendall(data)
            if client not in ready:
                continue
        data = client.recv(65536)
        if not data:
            return
        target.sendall(data)


def socks_request(peer: Peer) -> tuple[str, int]:
    """Read a SOCKS5 greeting and request without credentials; return what is asked for."""
    count = peer.read_exactly(2)[1]
    peer.read_exactly(count)
    peer.send(b"\x05\x00")
    kind = peer.read_exactly(4)[3]
    if kind == 3:
        host = peer.read_exactly(peer.read_exactly(1)[0]).decode()
    else:
        family = socket.AF_INET if kind == 1 else socket.AF_INET6
        host = socket.inet_ntop(family, peer.read_exactly(4 if kind == 1 else 16))
    return host, int.from_bytes(peer.read_exactly(2), "big")


@contextlib.contextmanager
def relay_proxy(
    road: str, target: Server, delay: float = 0.0, tls: ssl.SSLContext | None = None, **place: Any
) -> Iterator[tuple[str, list[Any]]]:
    """Run a proxy of a kind (http, https, socks5, socks5h) that leads to `target`, whatever it is asked for.

    It opens the way `delay` seconds late. `place` is the host and port where it listens. Yields its URL and
    what it was asked for: heads, or (host, port).
    """
    asked: list[Any] = []

    def script(peer: Peer) -> None:
        if road.startswith("socks"):
            asked.append(socks_request(peer))
            peer.wait(delay)
            first, answer = b"", b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00"
        else:
            head = peer.read_until(b"\r\n\r\n")
            asked.append(head)
            peer.wait(0 if tls else delay)
            tunnel = head.startswith(b"CONNECT ")
            path = b"/" + head.split(b" ")[1].partition(b"://")[2].partition(b"/")[2]
            forwarded = b" ".join([head.split(b" ")[0], path, head.split(b" ", 2)[2]])
            first, answer = (b"", b"HTTP/1.1 200 Connected\r\n\r\n") if tunnel else (forwarded, b"")
        with socket.create_connection((target.host, target.port), PATIENCE_WITH_PROGRAMS) as onward:
            onward.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            onward.sendall(first)
            peer.send(answer)
            _pump(peer.sock, onward)

    with scripted(script, tls=tls, tls_delay=delay if tls else 0.0, **place) as proxy:
        yield f"{road}://{proxy.host}:{proxy.port}", asked


@contextlib.contextmanager
def halving_relay(target: Any, pause: float, least: int) -> Iterator[Server]:
    """Pass TLS on, of each record from the server with `least` bytes the second half `pause` seconds late."""

    def script(peer: Peer) -> None:
        with socket.create_connection(("127.0.0.1", target.port)) as there:

            def pass_up() -> None:
                with contextlib.suppress(OSError):
                    while data := peer.sock.recv(65536):
                        there.sendall(data)
                    there.shutdown(socket.SHUT_WR)

            thread = threading.Thread(target=pass_up, daemon=True)
            thread.start()
            server_side = Peer(there, 0, threading.Event())
            while header := server_side.read_exactly(5):
                record = header + server_side.read_exactly(int.from_bytes(header[3:], "big"))
                half = len(record) // 2 if len(record) >= least else len(record)
                peer.send(record[:half])
                peer.wait(pause if record[half:] else 0)
                peer.send(record[half:])
            thread.join(1)

    with scripted(script) as server:
        yield server
