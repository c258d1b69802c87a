"""What HTTP/2, the proxies and bad certificates need beyond `servers`.

- `tool` is the program as a module, `here(...)` runs it in this process: quick, where a test needs many runs.
- `conversing(script)` is an HTTP/2 server whose every frame the test's own function sends.
- `relay_proxy(road)` is a proxy that does its part of the negotiation late, by a known time.
- `Mint` makes certificates that no authority would.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.util
import io
import ipaddress
import os
import select
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable
from unittest import mock

import pytest

from conftest import TOOL, Result
from servers import PATIENCE, Peer, Server, scripted


def _load_tool() -> Any:
    """Import tool.py by its path, whatever the folder is that the tests were started from."""
    spec = importlib.util.spec_from_file_location("tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tool"] = module
    spec.loader.exec_module(module)
    return module


tool = sys.modules.get("tool") or _load_tool()


def here(*arguments: Any, env: dict[str, str] | None = None) -> Result:
    """Run the program in this process, with no environment but `env`; `out` is its JSON export.

    The lines of --metrics-only, and whatever was said on stderr, are in `err`.
    """
    words = tuple(os.fspath(word) for word in arguments)
    said = io.StringIO()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, env or {}, clear=True):
        path = Path(folder, "out.json")
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = tool.main(["--metrics-only", "--json", str(path), *words])
        out = path.read_text("utf-8") if path.exists() else ""
    return Result(words, int(code), out, said.getvalue(), time.monotonic() - start)


def only_step(result: Result, code: int = 0) -> dict[str, Any]:
    """Prove that a run ended with `code` after one step, and return that step."""
    assert result.code == code, (result.code, result.err, result.out[-2000:])
    [step] = result.json()["steps"]
    return step


def failure(result: Result, kind: str, phase: str | None = None) -> dict[str, Any]:
    """Prove that a run failed with `kind` (in `phase`) and return its only step."""
    step = only_step(result, 75)
    assert step["error"]["kind"] == kind, step["error"]
    assert phase in (None, step["error"]["phase"]), step["error"]
    return step


# --- HTTP/2, frame by frame -----------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
Field = tuple[str, str]


class Conversation:
    """The server's end of an HTTP/2 connection. It says nothing that its script does not say."""

    def __init__(self, peer: Peer) -> None:
        import hpack

        self.peer = peer
        self.encoder = hpack.Encoder()
        self._decoder = hpack.Decoder(max_header_list_size=1 << 22)
        self.frames: list[Any] = []
        """Every frame that was read."""
        self.request: list[Field] = []
        """The header section of the request, once it has been read."""

    def read_preface(self) -> None:
        """Read what every HTTP/2 client says first."""
        assert self.peer.read_exactly(len(PREFACE)) == PREFACE

    def read_frame(self) -> Any:
        """Read one frame; raises ConnectionError when the client has gone away."""
        from hyperframe.frame import Frame

        head = self.peer.read_exactly(9)
        if len(head) < 9:
            raise ConnectionError
        frame, length = Frame.parse_frame_header(memoryview(head))
        frame.parse_body(memoryview(self.peer.read_exactly(length)))
        self.frames.append(frame)
        if type(frame).__name__ == "HeadersFrame":
            assert "END_HEADERS" in frame.flags
            self.request = [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in self._decoder.decode(frame.data, raw=True)
            ]
        return frame

    def read_until(self, kind: str, wanted: Callable[[Any], bool] = lambda frame: True) -> Any:
        """Read frames through the next one of a kind ("Headers", "Data", "Settings" …)."""
        while True:
            frame = self.read_frame()
            if type(frame).__name__ == f"{kind}Frame" and wanted(frame):
                return frame

    def read_request(self) -> bytes:
        """Read one whole request; return its body."""
        self.read_preface()
        frame = self.read_until("Headers")
        body = b""
        while "END_STREAM" not in frame.flags:
            frame = self.read_until("Data")
            body += frame.data
        return body

    def send(self, *frames: Any) -> None:
        """Send frames (bytes go as they are) in one piece."""
        self.peer.send(b"".join(f if isinstance(f, bytes) else f.serialize() for f in frames))

    def settings(self, **values: int) -> Any:
        """Make a SETTINGS frame; names as in hyperframe, in lower case."""
        from hyperframe.frame import SettingsFrame

        return SettingsFrame(0, {getattr(SettingsFrame, name.upper()): v for name, v in values.items()})

    def headers(self, status: Any = 200, *fields: Field, end: bool = False, whole: bool = True) -> Any:
        """Make a HEADERS frame with `:status`, none when it is None."""
        from hyperframe.frame import HeadersFrame

        first = [] if status is None else [(":status", str(status))]
        return self.block(HeadersFrame(1), [*first, *fields], end, whole)

    def block(self, frame: Any, fields: list[Field], end: bool = False, whole: bool = True) -> Any:
        """Fill a frame with a header block."""
        frame.data = self.encoder.encode(fields)
        frame.flags |= ({"END_STREAM"} if end else set()) | ({"END_HEADERS"} if whole else set())
        return frame

    def data(self, content: bytes = b"", *, end: bool = False, padding: int | None = None) -> Any:
        """Make a DATA frame on stream 1."""
        from hyperframe.frame import DataFrame

        frame = DataFrame(1, content)
        if end:
            frame.flags.add("END_STREAM")
        if padding is not None:
            frame.flags.add("PADDED")
            frame.pad_length = padding
        return frame

    def window(self, increment: int, stream: int = 1) -> Any:
        """Make a WINDOW_UPDATE frame."""
        from hyperframe.frame import WindowUpdateFrame

        return WindowUpdateFrame(stream, increment)

    def reset(self, code: int) -> Any:
        """Make a RST_STREAM frame for stream 1."""
        from hyperframe.frame import RstStreamFrame

        return RstStreamFrame(1, code)

    def goaway(self, last: int, code: int = 0, words: bytes = b"") -> Any:
        """Make a GOAWAY frame."""
        from hyperframe.frame import GoAwayFrame

        return GoAwayFrame(0, last, code, words)


def raw_frame(kind: int, flags: int, stream: int, payload: bytes, length: int | None = None) -> bytes:
    """Write a frame that no library would; `length` may lie."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


@functools.cache
def http2_context(authority: Any) -> ssl.SSLContext:
    """Make the TLS context of a server that prefers HTTP/2."""
    return authority.context(alpn=("h2", "http/1.1"), common_name="localhost")


@contextlib.contextmanager
def conversing(authority: Any, script: Callable[[Conversation], Any], **settings: Any) -> Iterator[Server]:
    """Serve HTTP/2 by `script(conversation)`, then read on until the client closes."""

    def serve(peer: Peer) -> None:
        if peer.sock.selected_alpn_protocol() != "h2":
            raise AssertionError("the client did not ask for HTTP/2")
        script(Conversation(peer))
        peer.read_to_end()

    with scripted(serve, tls=http2_context(authority), **settings) as server:
        yield server


def converse(authority: Any, script: Callable[[Conversation], Any], *arguments: Any) -> Result:
    """Run the program against an HTTP/2 script."""
    with conversing(authority, script) as server:
        return here("-m", "10", "--cacert", authority.file, *arguments, server.url())


# --- a proxy that waits ---------------------------------------------------------------------------


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


def _socks_request(peer: Peer) -> tuple[str, int]:
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
    road: str, target: Server, delay: float = 0.0, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[Any]]]:
    """Run a proxy of a kind (http, https, socks5, socks5h) that leads to `target`, whatever it is asked for.

    It opens the way `delay` seconds late. Yields its URL and what it was asked for: heads, or (host, port).
    """
    asked: list[Any] = []

    def script(peer: Peer) -> None:
        if road.startswith("socks"):
            asked.append(_socks_request(peer))
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
        with socket.create_connection((target.host, target.port), 10) as onward:
            onward.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            onward.sendall(first)
            peer.send(answer)
            _pump(peer.sock, onward)

    with scripted(script, tls=tls, tls_delay=delay if tls else 0.0) as proxy:
        yield f"{road}://127.0.0.1:{proxy.port}", asked


@contextlib.contextmanager
def debian_program(name: str, arguments: list[Any], port: int, log: Path) -> Iterator[None]:
    """Run a server program of the system on `port` for the length of the block; skip where it is missing."""
    program = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if not program:
        pytest.skip(f"{name} is not installed")
    command = [program, *(str(argument) for argument in arguments)]
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        give_up = time.monotonic() + PATIENCE
        while not _accepts(port):
            if process.poll() is not None or time.monotonic() > give_up:
                pytest.skip(f"{name} does not start here: {log.read_text(errors='replace')[-300:]}")
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


# --- certificates that no authority would issue ---------------------------------------------------


class Mint:
    """Makes certificates of any kind. `root` is the PEM file of its CA."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("cryptography", reason="needs cryptography, to make certificates")
        self.folder = folder
        self._count = 0
        self.ca = self.issue(None, "Mint CA", ca=True)
        self.root = folder / "root.pem"
        self.root.write_bytes(self.pem(self.ca[1]))

    def pem(self, certificate: Any) -> bytes:
        """Encode a certificate."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return certificate.public_bytes(Encoding.PEM)

    def der(self, certificate: Any) -> bytes:
        """Encode a certificate."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return certificate.public_bytes(Encoding.DER)

    def name(self, *pairs: tuple[str, str]) -> Any:
        """Make a distinguished name of (type, value) pairs: CN, O, OU, C …"""
        from cryptography import x509

        kinds = x509.NameOID
        types = {
            "CN": kinds.COMMON_NAME,
            "O": kinds.ORGANIZATION_NAME,
            "OU": kinds.ORGANIZATIONAL_UNIT_NAME,
            "C": kinds.COUNTRY_NAME,
            "L": kinds.LOCALITY_NAME,
            "ST": kinds.STATE_OR_PROVINCE_NAME,
            "E": kinds.EMAIL_ADDRESS,
        }
        return x509.Name([x509.NameAttribute(types[kind], value) for kind, value in pairs])

    def issue(
        self,
        issuer: tuple[Any, Any] | None,
        common_name: str | None = "localhost",
        sans: tuple[str, ...] = (),
        days: tuple[float, float] = (-1, 90),
        key: Any = None,
        ca: bool = False,
        subject: Any = None,
        serial: int | None = None,
    ) -> tuple[Any, Any]:
        """Issue (key, certificate), valid `days` from now; signed by itself where `issuer` is None."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        key = key or ec.generate_private_key(ec.SECP256R1())
        if subject is None:
            subject = self.name(("O", "Mint"), *([("CN", common_name)] if common_name else []))
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = x509.CertificateBuilder(
            issuer_name=issuer[1].subject if issuer else subject,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=serial or x509.random_serial_number(),
            not_valid_before=now + datetime.timedelta(days[0]),
            not_valid_after=now + datetime.timedelta(days[1]),
        ).add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(_alternatives(sans)), critical=False)
        return key, builder.sign(issuer[0] if issuer else key, hashes.SHA256())

    def file(self, leaf: tuple[Any, Any], *chain: Any) -> Path:
        """Write a leaf's key and certificate, then the certificates of its chain, to one PEM file."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        self._count += 1
        path = self.folder / f"mint-{self._count}.pem"
        key = leaf[0].private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        path.write_bytes(key + self.pem(leaf[1]) + b"".join(self.pem(certificate) for certificate in chain))
        return path

    def context(self, leaf: tuple[Any, Any], *chain: Any) -> ssl.SSLContext:
        """Make a server's TLS context with a leaf and its chain; weak keys are welcome."""
        return server_context(self.file(leaf, *chain))


def _alternatives(sans: tuple[str, ...]) -> list[Any]:
    from cryptography import x509

    names = []
    for san in sans:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(san)))
        except ValueError:
            names.append(x509.DNSName(san))
    return names


def server_context(pem: Path) -> ssl.SSLContext:
    """Make a server's TLS context of a PEM file, of any TLS version, cipher and strength of key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.load_cert_chain(str(pem))
    return context
