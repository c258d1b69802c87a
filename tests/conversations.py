"""HTTP/2 servers whose every frame the test's own function sends: `conversing(script)` and `converse`."""

from __future__ import annotations

import contextlib
import functools
import ssl
from collections.abc import Iterator
from typing import Any, Callable

from conftest import Result
from inside import here
from servers import Peer, Server, scripted

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

    def headers(self, status: Any = 200, *fields: Field, end: bool = False) -> Any:
        """Make a HEADERS frame with `:status`, none when it is None."""
        from hyperframe.frame import HeadersFrame

        first = [] if status is None else [(":status", str(status))]
        flags = {"END_HEADERS", "END_STREAM"} if end else {"END_HEADERS"}
        return HeadersFrame(1, self.encoder.encode([*first, *fields]), flags=flags)

    def data(self, content: bytes = b"", *, end: bool = False, padding: int | None = None) -> Any:
        """Make a DATA frame on stream 1."""
        from hyperframe.frame import DataFrame

        frame = DataFrame(1, content, pad_length=padding or 0, flags={"END_STREAM"} if end else ())
        if padding is not None:
            frame.flags.add("PADDED")
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
        return here("-m", "60", "--cacert", authority.file, *arguments, server.url())
