"""Real peers on loopback for the tests: every server listens on port 0, is ready when its `with` block
starts, and is gone when the block ends.

- `scripted(script)`: raw TCP (or TLS) where the test's own function holds the conversation.
- `http_server(routes)`: an ordinary HTTP/1.1 server with a delay for each phase and a record of the requests.
- `dns_server(zone)`: answers (late, or never) for names; used with `run_tool(..., resolver=server.address)`.
- `black_hole()`, `refused_port()`: addresses where no connection comes about.
- `http2_server`, `http_proxy`, `socks5_proxy`, `nginx`: programs nobody here wrote (hypercorn, proxy.py,
  tiny-proxy, and the system's nginx).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import importlib.util
import itertools
import os
import random
import select
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, NoReturn, Union

from paths import go_first

PATIENCE = 30.0
"""Seconds after which a server that does not start, or a thread that does not end, fails the test."""
PATIENCE_WITH_PROGRAMS = 60.0
"""The same for a program to start, which many tests share: its imports take long on a busy machine."""


def skip(reason: str) -> NoReturn:
    """Skip the test that needs what is not here; the benches have no need of pytest otherwise."""
    import pytest

    pytest.skip(reason)


def can_listen(host: str) -> bool:
    """Tell whether this machine has the loopback address `host`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def listen(host: str, port: int = 0) -> socket.socket:
    """Open a listening socket on a port of `host`, a free one unless it is named; or on a unix socket."""
    if "/" in host:
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.bind(host)
        local.listen(100)
        return local
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    if port:  # where a server was before
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(100)
    return listener


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# --- the conversation of one connection -----------------------------------------------------------


class Request(NamedTuple):
    """What a client sent: the request line, the header fields in order, and the body without its framing."""

    method: str
    target: str
    version: str
    headers: list[tuple[str, str]]
    body: bytes
    head: bytes

    def values(self, name: str) -> list[str]:
        """List the values of every field called `name`, in order."""
        return [value for field, value in self.headers if field.lower() == name.lower()]


class Peer:
    """The server's end of one connection, as a script sees it."""

    def __init__(self, sock: socket.socket, number: int, stopped: threading.Event) -> None:
        self.sock = sock
        self.number = number
        """0 for the first connection that the server accepted, 1 for the second …"""
        self._stopped = stopped
        self._pending = bytearray()

    def send(self, data: bytes | str) -> None:
        """Send all of `data`; text goes as Latin-1."""
        self.sock.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def wait(self, seconds: float) -> bool:
        """Pause; return True (at once) when the server is being closed meanwhile."""
        return self._stopped.wait(seconds)

    def drip(self, data: bytes, pause: float) -> None:
        """Send `data` one byte at a time, `pause` seconds apart, until the server is closed."""
        for value in data:
            self.send(bytes([value]))
            if self.wait(pause):
                return

    def read_until(self, mark: bytes) -> bytes:
        """Read through `mark`; return b"" when the client goes away before."""
        while mark not in self._pending:
            data = self.sock.recv(65536)
            if not data:
                return b""
            self._pending += data
        return self._take(self._pending.index(mark) + len(mark))

    def read_exactly(self, count: int) -> bytes:
        """Read `count` bytes, fewer when the client goes away before."""
        while len(self._pending) < count:
            data = self.sock.recv(65536)
            if not data:
                break
            self._pending += data
        return self._take(count)

    def _take(self, count: int) -> bytes:
        found = bytes(self._pending[:count])
        del self._pending[:count]
        return found

    def read_request(self) -> Request | None:
        """Read one whole HTTP/1.1 request; None when the client has closed instead of asking."""
        head = self.read_until(b"\r\n\r\n")
        if not head:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, target, version = first.split(" ")
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        length = sum(int(value) for name, value in headers if name.lower() == "content-length")
        return Request(method, target, version, headers, self.read_exactly(length), head)

    def read_to_end(self) -> bytes:
        while True:
            data = self.sock.recv(65536)
            if not data:
                return self._take(len(self._pending))
            self._pending += data

    def secure(self, context: ssl.SSLContext) -> Peer:
        """Begin TLS on this connection, inside a tunnel say; return the same peer, now secure."""
        assert not self._pending, "the client has sent something before the handshake"
        self.sock = context.wrap_socket(
            self.sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        self.sock.do_handshake()
        return self

    def reset(self) -> None:
        """Break the connection off with a RST, once what was sent has arrived: there it can still be read."""
        while sys.platform == "linux" and unacknowledged(self.sock) and not self.wait(0.001):
            pass
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def end(self) -> None:
        """Say that nothing more will be sent; over TLS without a close_notify."""
        self.sock.shutdown(socket.SHUT_WR)


def unacknowledged(sock: socket.socket) -> int:
    """Return how many bytes the other end's system has not taken yet (Linux, tcp(7): SIOCOUTQ)."""
    return struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0]


Script = Callable[[Peer], None]


class Server:
    """A listening server: where it is, what has happened to it, and its threads: one for each connection."""

    def __init__(self, listener: socket.socket, scheme: str, serve: Script) -> None:
        name = listener.getsockname()
        self.host, self.port = (name, 0) if isinstance(name, str) else name[:2]
        self.scheme = scheme
        self.requests: list[Request] = []
        self.accepted = 0
        self.script_errors: list[BaseException] = []
        self._listener, self._serve = listener, serve
        self._stopped = threading.Event()
        self._peers: list[Peer] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def url(self, path: str = "/", host: str | None = None) -> str:
        """The URL of `path` here; `host` is the name to use in place of the address."""
        return f"{self.scheme}://{bracketed(host or self.host)}:{self.port}{path}"

    @property
    def authority(self) -> str:
        """Host and port, as in a Host header field."""
        return f"{bracketed(self.host)}:{self.port}"

    def _accept(self) -> None:
        go_first()
        with contextlib.suppress(OSError):  # the listener was shut down
            while True:
                sock, _ = self._listener.accept()
                if sock.family != socket.AF_UNIX:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer = Peer(sock, self.accepted, self._stopped)
                self.accepted += 1
                self._peers.append(peer)
                self._threads.append(threading.Thread(target=self._converse, args=(peer,), daemon=True))
                self._threads[-1].start()

    def _converse(self, peer: Peer) -> None:
        try:
            self._serve(peer)
        except OSError:
            pass  # the client has gone away, or the test is over
        except BaseException as error:  # raised again when the block ends
            self.script_errors.append(error)
        finally:
            peer.sock.close()

    def close(self) -> None:
        self._stopped.set()
        self._listener.shutdown(socket.SHUT_RD)  # which wakes up whoever accepts
        self._threads[0].join(PATIENCE)
        self._listener.close()
        for peer in self._peers:
            with contextlib.suppress(OSError):
                # Not SSLSocket's own, which takes TLS away from under a script that is still at it.
                socket.socket.shutdown(peer.sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a server's script did not end"


def fill_queue(listener: socket.socket, held: contextlib.ExitStack) -> None:
    """Fill the queue of a listener (backlog 0) so that it answers no further SYN while `held` lasts."""
    for number in range(16):
        filler = held.enter_context(socket.socket(listener.family, socket.SOCK_STREAM))
        filler.settimeout(0.15 if number else PATIENCE)  # the first finds it empty
        try:
            filler.connect(listener.getsockname())
        except OSError:
            filler.close()
            return
    skip("this system answers every SYN, however full the queue")


@contextlib.contextmanager
def scripted(
    script: Script,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    tls_delay: float = 0.0,
    segment: int | None = None,
) -> Iterator[Server]:
    """Serve every connection by `script(peer)`; the connection is closed when the script returns.

    An exception in the script, a failed assertion say, is raised again when the block ends. `host` may be the
    path of a unix socket. `tls_delay` is slept before the handshake is answered. A client sends at most
    `segment` bytes at once; else loopback lets it send 64 KB, and buffers MBs of what nobody reads.
    """

    def serve(peer: Peer) -> None:
        if tls is not None:
            if tls_delay:
                peer.sock.recv(1, socket.MSG_PEEK)  # the client's handshake has begun
                peer.wait(tls_delay)
            peer.secure(tls)
        script(peer)

    listener = listen(host, port)
    if segment:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
    server = Server(listener, "http" if tls is None else "https", serve)
    try:
        yield server
    finally:
        server.close()
    if server.script_errors:
        raise server.script_errors[0]


def sending(response: bytes | str) -> Script:
    """Make a script that reads one request, sends `response` to the letter, and closes."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(response)

    return script


OK = "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nok"


class Failing:
    """A script that fails at the runs in `bad` (counted from 1): it hangs up without a word."""

    def __init__(self, *bad):
        self.bad, self.count = bad, itertools.count(1)

    def __call__(self, peer):
        peer.read_request()
        if next(self.count) in self.bad:
            return
        peer.send(OK)
        peer.read_to_end()


class Holding:
    """Answer the first `answered` requests, and hold the next until the end; `held` says when."""

    def __init__(self, answered):
        self.answered, self.count, self.held = answered, itertools.count(), threading.Event()

    def __call__(self, peer):
        peer.read_request()
        if next(self.count) >= self.answered:
            self.held.set()
            peer.wait(60)
            return
        peer.send(OK)
        peer.read_to_end()


# --- an ordinary HTTP/1.1 server ------------------------------------------------------------------


class Reply(NamedTuple):
    """A response of `http_server`; Content-Length is added unless `headers` settle the framing."""

    status: int = 200
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = ()
    reason: str = "Fine"
    wait: float = 0.0
    """Seconds between the request and the first byte of the response."""
    xfer: float = 0.0
    """Seconds between the head and the body, the first half of which goes at once."""


def redirect(location: str, status: int = 302) -> Reply:
    return Reply(status, b"moved\n", [("Location", location)], "Moved")


def every(*replies):
    turn = itertools.cycle(replies)
    return lambda request: next(turn)


Route = Union[Reply, Callable[[Request], Reply]]


def _reply_head(reply: Reply) -> bytes:
    headers = list(reply.headers)
    framed = {"content-length", "transfer-encoding"} & {name.lower() for name, _ in headers}
    if not framed and reply.status not in (204, 304):
        headers.append(("Content-Length", str(len(reply.body))))
    lines = [f"HTTP/1.1 {reply.status} {reply.reason}"] + [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@contextlib.contextmanager
def http_server(routes: dict[str, Route] | None = None, **settings: Any) -> Iterator[Server]:
    """Serve `routes` (path without query → reply) and record what is asked; any other path is answered 404.

    Without routes every path is answered 200 with the body `hello\\n`. `settings` are those of `scripted`.
    """

    def choose(request: Request) -> Reply:
        if routes is None:
            return Reply(body=b"hello\n", headers=[("Content-Type", "text/plain")])
        path = request.target.partition("?")[0]
        route = routes.get(path, Reply(404, b"no such page\n", reason="Not Found"))
        return route(request) if callable(route) else route

    def script(peer: Peer) -> None:
        while True:
            request = peer.read_request()
            if request is None:
                return
            server.requests.append(request)
            reply = choose(request)
            peer.wait(reply.wait)
            body = b"" if request.method == "HEAD" else reply.body
            half = len(body) // 2
            peer.send(_reply_head(reply) + body[:half])
            peer.wait(reply.xfer)
            peer.send(body[half:])

    with scripted(script, **settings) as server:
        yield server


# --- addresses where no connection comes about ----------------------------------------------------


def free_port() -> int:
    """Return a port for a program that must be told one: none that the kernel gives to anybody by itself, nor
    one for another worker of pytest-xdist.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 16
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first = 32768
    for _ in range(100):
        port = random.randrange(min(10000, first - 1000) + worker, first, 16)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    skip("no free port below those that the kernel gives away")


@contextlib.contextmanager
def refused_port(host: str = "127.0.0.1") -> Iterator[int]:
    """Hold a port on which nothing listens, so that nobody else can begin to."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        holder.bind((host, 0))
        yield holder.getsockname()[1]


@contextlib.contextmanager
def black_hole(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Hold a port where a SYN is never answered: its queue is full and nobody accepts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listener.bind((host, port))
        listener.listen(0)
        fill_queue(listener, held)
        yield listener.getsockname()[1]


# --- names ----------------------------------------------------------------------------------------


class NameServer(NamedTuple):
    """A DNS server: its address, for `run_tool(resolver=…)`, and the (name, record type) it was asked for."""

    address: str
    questions: list[tuple[str, str]]


Zone = dict[str, Union[int, str, Sequence[str], None]]
"""What is said of a name, or of a record type and a name ("AAAA a.test"): its addresses, the name that it is
an alias of, the response code of an error (RFC 1035), or nothing (None)."""
FORMERR, SERVFAIL, REFUSED = 1, 2, 5
RECORD_TYPES = {1: "A", 28: "AAAA"}


def _dns_question(query: bytes) -> tuple[str, str, int]:
    """Read the name, the record type and the end of the question of a DNS message."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    number = struct.unpack_from("!H", query, at + 1)[0]
    return ".".join(labels).lower(), RECORD_TYPES.get(number, str(number)), at + 5


def _dns_answer(query: bytes, zone: Zone) -> list[bytes]:
    """Answer from `zone`: what it says, NXDOMAIN for an unknown name, nothing for a name set to None."""
    name, kind, end = _dns_question(query)
    known = zone.get(f"{kind} {name}", zone.get(name, ()))
    if known is None:
        return []
    answers, count, owner = b"", 0, 0xC00C  # the name in the question
    if isinstance(known, str):
        target = b"".join(bytes([len(label)]) + label.encode() for label in known.split(".")) + b"\0"
        answers, count = struct.pack("!HHHIH", owner, 5, 1, 60, len(target)) + target, 1
        owner, known = 0xC000 + end + len(answers) - len(target), zone.get(known, ())
    code = 0 if name in zone else 3
    if isinstance(known, int):
        code, known = known, ()
    wanted = [address for address in known or () if (":" in address) == (kind == "AAAA")]
    for address in wanted if kind in RECORD_TYPES.values() else ():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        packed = socket.inet_pton(family, address)
        answers += struct.pack("!HHHIH", owner, 28 if kind == "AAAA" else 1, 1, 60, len(packed)) + packed
        count += 1
    counts = struct.pack("!HHHH", 1, count, 0, 0)
    return [query[:2] + struct.pack("!H", 0x8180 | code) + counts + query[12:end] + answers]


def _name_socket(host: str | None) -> socket.socket:
    """Bind port 53 of an address, or of a loopback address that no other test uses."""
    for _ in range(20):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        address = host or f"127.{random.randint(16, 250)}.{random.randint(1, 250)}.{random.randint(1, 250)}"
        try:
            sock.bind((address, 53))
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                skip(f"no DNS server of our own on port 53: {error}")
        else:
            return sock
    skip("no free loopback address for a DNS server")


@contextlib.contextmanager
def dns_server(
    zone: Zone | Callable[[bytes], list[bytes]], *, delay: float = 0.0, host: str | None = None
) -> Iterator[NameServer]:
    """Answer DNS questions from `zone`, each `delay` seconds late; a name set to None is never answered.

    A function in place of a zone is given each query, and returns the datagrams that answer it.
    """
    stopped = threading.Event()
    with _name_socket(host) as sock:
        server = NameServer(sock.getsockname()[0], [])

        def answer(query: bytes, client: Any) -> None:
            server.questions.append(_dns_question(query)[:2])
            messages = zone(query) if callable(zone) else _dns_answer(query, zone)
            if not stopped.wait(delay):
                for message in messages:
                    sock.sendto(message, client)

        def serve() -> None:
            while not stopped.is_set():
                if select.select([sock], [], [], 0.05)[0]:
                    query, client = sock.recvfrom(4096)
                    answers.append(threading.Thread(target=answer, args=(query, client), daemon=True))
                    answers[-1].start()

        answers: list[threading.Thread] = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            stopped.set()
            for each in [thread, *answers]:
                each.join(PATIENCE)


# --- programs nobody here wrote -------------------------------------------------------------------


LOGIN = "user:secret"
"""What the proxies ask for."""


class Program(NamedTuple):
    scheme: str
    port: int

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        """The URL of `path` there, or of the whole program as `--proxy` takes it when `path` is empty."""
        return f"{self.scheme}://{host}:{self.port}{path}"

    @property
    def by_login(self) -> str:
        """The URL of a proxy with `LOGIN`."""
        return self.url("", f"{LOGIN}@127.0.0.1")


def await_program(process: subprocess.Popen, port: int, log: Path) -> None:
    give_up = time.monotonic() + PATIENCE_WITH_PROGRAMS
    while not accepts(port):
        if process.poll() is not None or time.monotonic() > give_up:
            said = log.read_text(errors="replace")[-2000:]
            raise AssertionError(f"{process.args} did not start: {said}")
        time.sleep(0.02)


def accepts(port: int) -> bool:
    """Tell whether somebody takes connections on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def started(command: Sequence[Any], log: Path, env: dict[str, str] | None) -> Iterator[subprocess.Popen]:
    """Run a command for the length of the block; what it says goes to `log`."""
    words = [str(word) for word in command]
    with open(log, "wb") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)


@contextlib.contextmanager
def _program(scheme: str, folder: Path, module: str, *command: Any) -> Iterator[Program]:
    """Run a server program of a Python package for the length of the block; `PORT` is its port."""
    if importlib.util.find_spec(module) is None:
        skip(f"{module}, a server, is not installed")
    log, port = folder / "out.log", free_port()
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    words = [str(port) if word == "PORT" else word for word in command]
    with started([sys.executable, *words], log, env) as process:
        await_program(process, port, log)
        yield Program(scheme, port)


def http2_server(folder: Path, certificate: Path, *, host: str = "127.0.0.1") -> Any:
    """Run hypercorn over TLS with `certificate` (a PEM file of key and chain).

    The query of a URL says how many bytes it is to send, as in `?size=10000`.
    """
    return _program("https", folder, "hypercorn", __file__, "http2", "PORT", certificate, host)


def http_proxy(folder: Path, certificate: Path | None = None) -> Any:
    """Run proxy.py, over TLS with a certificate: absolute-form requests and CONNECT, by `LOGIN`."""
    command = "-m proxy --hostname 127.0.0.1 --num-workers 1 --num-acceptors 1 --log-level ERROR".split()
    command += ["--port", "PORT", "--data-dir", str(folder), "--basic-auth", LOGIN]
    if certificate:
        command += ["--cert-file", str(certificate), "--key-file", str(certificate)]
    return _program("https" if certificate else "http", folder, "proxy", *command)


def socks5_proxy(folder: Path) -> Any:
    """Run tiny-proxy as a SOCKS5 server, by `LOGIN`."""
    return _program("socks5", folder, "tiny_proxy", __file__, "socks5", "PORT")


async def _http2_application(scope: dict[str, Any], receive: Callable, send: Callable) -> None:
    """Answer as `http2_server` says."""
    if scope["type"] != "http":
        await _acknowledge_lifespan(receive, send)
        return
    query = dict(urllib.parse.parse_qsl(scope["query_string"].decode()))
    content = b"x" * int(query.get("size", 6))
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(content)).encode())]
    half = len(content) // 2
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content[:half], "more_body": True})
    await asyncio.sleep(0.01)  # so that the halves are two records
    await send({"type": "http.response.body", "body": content[half:]})


async def _acknowledge_lifespan(receive: Callable, send: Callable) -> None:
    for _ in ("startup", "shutdown"):
        message = await receive()
        await send({"type": message["type"] + ".complete"})


async def _serve_http2(port: str, certificate: str, host: str) -> None:
    import hypercorn.asyncio
    import hypercorn.config

    config = hypercorn.config.Config()
    config.bind = [f"{host}:{port}"]
    config.accesslog = None
    config.certfile = config.keyfile = certificate
    await hypercorn.asyncio.serve(_http2_application, config)


async def _serve_socks5(port: str) -> None:
    import anyio
    import tiny_proxy

    user, _, password = LOGIN.partition(":")
    handler = tiny_proxy.Socks5ProxyHandler(username=user, password=password)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=int(port))
    await listener.serve(handler.handle)


if __name__ == "__main__":
    asyncio.run({"http2": _serve_http2, "socks5": _serve_socks5}[sys.argv[1]](*sys.argv[2:]))


NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    {blocks}
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, port: int, *blocks: str) -> Iterator[Any]:
    """Run nginx with these server blocks, of which one listens on `port`; skip where it is missing."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if not program:
        skip("nginx is not installed")
    text = NGINX.format(folder=folder, blocks="\n".join(f"server {{ {block} }}" for block in blocks))
    (folder / "nginx.conf").write_text(("user root;" if os.geteuid() == 0 else "") + text)
    command = [program, "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"]
    with started(command, folder / "out.log", None) as process:
        await_program(process, port, folder / "out.log")
        yield
