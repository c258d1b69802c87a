"""Certificates, good and bad, and TLS whose every byte a test can cut, bend and forge."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import ssl
import struct
import warnings
from pathlib import Path
from typing import Any

import pytest

from servers import Peer

DEFAULT_NAMES = ("localhost", "127.0.0.1", "::1", "a.test", "b.test")


class Authority:
    """A certificate authority; `file` is what --cacert is to be given.

    What it issues are pairs (key, certificate), or PEM files of both.
    """

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("cryptography", reason="needs cryptography, to make certificates")
        self.folder = folder
        self._count = 0
        self.ca = self.issue(None, "Test CA", ca=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(self.pem(self.ca[1]))

    def certificate(self, *names: str, **settings: Any) -> Path:
        """Issue a certificate for `names`; return a PEM file of its key and itself."""
        settings = {"common_name": None, **settings}
        return self.file_of(self.issue(self.ca, sans=names or DEFAULT_NAMES, **settings))

    def context(self, *names: str, alpn: tuple[str, ...] = ("http/1.1",), **settings: Any) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(str(self.certificate(*names, **settings)))
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def showing(self, leaf: tuple[Any, Any], *chain: Any) -> ssl.SSLContext:
        """Make a server's TLS context with a leaf and its chain; weak keys are welcome."""
        return server_context(self.file_of(leaf, *chain))

    def file_of(self, leaf: tuple[Any, Any], *chain: Any) -> Path:
        """Write a leaf's key and certificate, then the certificates of its chain, to one PEM file."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        self._count += 1
        path = self.folder / f"leaf-{self._count}.pem"
        key = leaf[0].private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        path.write_bytes(key + self.pem(leaf[1]) + b"".join(self.pem(certificate) for certificate in chain))
        return path

    def store(self, leaf: tuple[Any, Any]) -> dict[str, str]:
        """Return an environment in which one certificate alone is trusted."""
        return {"SSL_CERT_FILE": str(self.file_of(leaf))}

    def pem(self, certificate: Any) -> bytes:
        return ssl.DER_cert_to_PEM_cert(self.der(certificate)).encode()

    def der(self, certificate: Any) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding

        return certificate.public_bytes(Encoding.DER)

    def name(self, *pairs: tuple[str, str]) -> Any:
        """Make a distinguished name of (type, value) pairs: CN, O."""
        from cryptography import x509

        kinds = x509.NameOID
        types = {"CN": kinds.COMMON_NAME, "O": kinds.ORGANIZATION_NAME}
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
        identifiers: bool = True,
        path_length: int | None = None,
        permitted: str = "",
    ) -> tuple[Any, Any]:
        """Issue (key, certificate), valid `days` from now; signed by itself where `issuer` is None. A CA may
        have a path length, and a domain in which alone it is permitted to issue.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        key = key or ec.generate_private_key(ec.SECP256R1())
        if subject is None:
            subject = self.name(("O", "Test"), *([("CN", common_name)] if common_name else []))
        now = datetime.datetime.now(datetime.timezone.utc)
        signing = issuer[0] if issuer else key
        builder = x509.CertificateBuilder(
            issuer_name=issuer[1].subject if issuer else subject,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=serial or x509.random_serial_number(),
            not_valid_before=now + datetime.timedelta(days[0]),
            not_valid_after=now + datetime.timedelta(days[1]),
        ).add_extension(x509.BasicConstraints(ca=ca, path_length=path_length), critical=True)
        by_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        if identifiers:
            builder = builder.add_extension(by_key, critical=False).add_extension(own, critical=False)
        if permitted:
            within = x509.NameConstraints([x509.DNSName(permitted)], None)
            builder = builder.add_extension(within, critical=True)
        if ca:  # without it Python 3.13 trusts no CA
            uses = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(uses, critical=True)
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(_alternatives(sans)), critical=False)
        return key, builder.sign(signing, hashes.SHA256())


def _alternatives(sans: tuple[str, ...]) -> list[Any]:
    from cryptography import x509

    names = []
    for san in sans:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(san)))
        except ValueError:
            names.append(x509.DNSName(san.removeprefix("dns:")))  # which may look like an address
    return names


def hostile_certificate(folder: Path, text: str) -> Path:
    """Make a self-signed certificate whose names all hold `text`; return a PEM file of it and its key."""
    authority = Authority(folder)
    from cryptography import x509

    kinds = (x509.NameOID.COMMON_NAME, x509.NameOID.ORGANIZATION_NAME)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the names are longer than they ought to be
        name = x509.Name([x509.NameAttribute(kind, text, _validate=False) for kind in kinds])
    plain = "".join(char for char in text if char.isascii())
    return authority.file_of(authority.issue(None, subject=name, sans=("dns:" + plain,)))


def server_context(pem: Path) -> ssl.SSLContext:
    """Make a server's TLS context of a PEM file, of any TLS version, cipher and strength of key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.load_cert_chain(str(pem))
    return context


def tls_record(kind: int, payload: bytes, length: int | None = None) -> bytes:
    """Write a record of TLS in the clear, whose header may lie about its length."""
    size = len(payload) if length is None else length
    return bytes([kind, 3, 3]) + size.to_bytes(2, "big") + payload


def session_tickets(key_log: Path, count: int, first: int) -> bytes:
    """Make TLS 1.3 records of a server, each with a session ticket, from the newest secret of its key log. It
    has sent `first` records with that secret (RFC 8446 sections 4.6.1, 5.2 and 7.3).
    """
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    *_, line = (
        each for each in key_log.read_text().split("\n") if each.startswith("SERVER_TRAFFIC_SECRET_0")
    )

    def derive(label: bytes, size: int) -> bytes:
        info = struct.pack("!HB", size, 6 + len(label)) + b"tls13 " + label + b"\0"
        return HKDFExpand(hashes.SHA384(), size, info).derive(bytes.fromhex(line.split()[2]))

    cipher, start = AESGCM(derive(b"key", 32)), int.from_bytes(derive(b"iv", 12), "big")
    ticket = b"\4\0\0\x0f" + bytes(8) + b"\1\0" + b"\0\1x" + bytes(2) + b"\x16"
    header = tls_record(23, bytes(len(ticket) + 16))[:5]
    nonces = ((start ^ at).to_bytes(12, "big") for at in range(first, first + count))
    return b"".join(header + cipher.encrypt(nonce, ticket, header) for nonce in nonces)


class Handshake:
    """A server's side of TLS in memory: what it has to say is not sent by itself."""

    def __init__(self, peer: Peer, context: ssl.SSLContext) -> None:
        self.peer = peer
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.done = False

    def flight(self) -> bytes:
        """Read what the client sends next; return the answer."""
        self.incoming.write(self.peer.sock.recv(65536))
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
            self.done = True
        return self.outgoing.read()
