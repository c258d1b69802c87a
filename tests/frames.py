"""HTTP/2 by hand (RFC 9113, RFC 7541): frames, valid or not, and servers that send no other.

    with conversing(authority, script) as server:

serves every connection by `script(c)`, where `c` is a `Conversation`; `converse` runs the program against
one.
"""

from __future__ import annotations

import contextlib
import functools
import ssl
import struct
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

from conftest import Result
from inside import here
from paths import going_first
from servers import Peer, Server, scripted

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE = range(6)
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(6, 10)
END_STREAM, END_HEADERS, PADDED = 0x1, 0x4, 0x8
ACK = 0x1
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, WINDOW_SIZE, FRAME_SIZE = range(1, 6)
"""What SETTINGS are of."""
STATUS_200 = b"\x88"
"""An entry of HPACK's static table (RFC 7541 appendix A)."""
Field = tuple[str, str]


def frame(
    kind: int, payload: bytes = b"", flags: int = 0, stream: int = 1, length: int | None = None
) -> bytes:
    """Make a frame, whose header may lie about its length."""
    size = len(payload) if length is None else length
    return struct.pack("!I", size)[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + payload


def number(value: int, bits: int, first: int = 0) -> bytes:
    """Write an integer with a prefix of so many bits (RFC 7541 section 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    data = bytes([first | most])
    value -= most
    while value >= 128:
        data += bytes([value % 128 | 128])
        value //= 128
    return data + bytes([value])


def field(name: bytes, value: bytes, first: int = 0) -> bytes:
    """Write a field literally; `first` is 0x40 to add it to the table (RFC 7541 section 6.2)."""
    return bytes([first]) + number(len(name), 7) + name + number(len(value), 7) + value


def head(block: bytes = STATUS_200, flags: int = 0) -> bytes:
    return frame(HEADERS, block, END_HEADERS | flags)


def headers(status: int | None = 200, *fields: Field, end: bool = False, stream: int = 1) -> bytes:
    """Make HEADERS with `:status`, none when it is None, and fields (bytes as Latin-1)."""
    pairs = [*([(":status", str(status))] if status else []), *fields]
    block = b"".join(field(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs)
    return frame(HEADERS, block, END_HEADERS | END_STREAM * end, stream)


def data(content: bytes = b"", *, end: bool = False, padding: int | None = None, stream: int = 1) -> bytes:
    flags = END_STREAM * end | (0 if padding is None else PADDED)
    payload = content if padding is None else bytes([padding]) + content + bytes(padding)
    return frame(DATA, payload, flags, stream)


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, b"".join(struct.pack("!HI", *pair) for pair in pairs), 0, 0)


def window(increment: int, stream: int = 1) -> bytes:
    """Make a WINDOW_UPDATE; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, struct.pack("!I", increment), 0, stream)


def reset(code: int, stream: int = 1) -> bytes:
    return frame(RST_STREAM, struct.pack("!I", code), 0, stream)


def goaway(last: int, code: int = 0, words: bytes = b"") -> bytes:
    return frame(GOAWAY, struct.pack("!II", last, code) + words, 0, 0)


PINGED = frame(PING, b"12345678", 0, 0)


class Frame(NamedTuple):
    """A frame of the client's."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def ends(self) -> bool:
        """Tell whether its stream ends with it."""
        return self.kind in (DATA, HEADERS) and bool(self.flags & END_STREAM)

    @property
    def value(self) -> int:
        """Read its payload as a number: what a WINDOW_UPDATE adds."""
        return int.from_bytes(self.payload, "big")


class Conversation:
    """The server's end of an HTTP/2 connection. It says nothing that its script does not say."""

    settings, headers, data = staticmethod(settings), staticmethod(headers), staticmethod(data)
    window, reset, goaway = staticmethod(window), staticmethod(reset), staticmethod(goaway)

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.frames: list[Frame] = []
        """Every frame that was read."""

    def read_preface(self) -> None:
        assert self.peer.read_exactly(len(PREFACE)) == PREFACE

    def read_frame(self) -> Frame:
        """Read one frame; raises ConnectionError when the client has gone away."""
        start = self.peer.read_exactly(9)
        if len(start) < 9:
            raise ConnectionError
        payload = self.peer.read_exactly(int.from_bytes(start[:3], "big"))
        self.frames.append(Frame(start[3], start[4], int.from_bytes(start[5:], "big"), payload))
        return self.frames[-1]

    def read_until(self, kind: int, wanted: Callable[[Frame], Any] = lambda frame: True) -> Frame:
        """Read frames through the next one of a kind."""
        while True:
            frame = self.read_frame()
            if frame.kind == kind and wanted(frame):
                return frame

    def read_head(self) -> Frame:
        """Read the preface and the frames through the head of the first request."""
        self.read_preface()
        return self.read_until(HEADERS)

    def read_request(self) -> None:
        self.read_preface()
        while not self.read_frame().ends:
            pass

    def request(self) -> list[Field]:
        """Return the header section of the first request that was read."""
        import hpack

        block = next(frame.payload for frame in self.frames if frame.kind == HEADERS)
        pairs = hpack.Decoder(max_header_list_size=1 << 22).decode(block, raw=True)
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs]

    def send(self, *frames: bytes) -> None:
        self.peer.send(b"".join(frames))


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
    with conversing(authority, script) as server, going_first():
        return here("-m", "60", "--cacert", authority.file, *arguments, server.url())
