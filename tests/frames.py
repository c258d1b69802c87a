"""HTTP/2 frames by hand (RFC 9113 section 4.1), valid or not."""

from __future__ import annotations

import struct

from servers import Peer, Script

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE = range(6)
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(6, 10)
END_STREAM, END_HEADERS, PADDED, WITH_PRIORITY = 0x1, 0x4, 0x8, 0x20
STATUS_200, STATUS_204 = b"\x88", b"\x89"
"""Entries of HPACK's static table (RFC 7541 appendix A)."""


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
    """Make the HEADERS of a response."""
    return frame(HEADERS, block, END_HEADERS | flags)


def settings(*pairs: tuple[int, int]) -> bytes:
    """Make a SETTINGS frame."""
    return frame(SETTINGS, b"".join(struct.pack("!HI", *pair) for pair in pairs), 0, 0)


def read_frames(peer: Peer, wanted: int = HEADERS) -> None:
    """Read the client's preface and its frames through the first of a type."""
    peer.read_exactly(24)
    read_through(peer, wanted)


def read_through(peer: Peer, wanted: int) -> None:
    """Read the client's frames through the next of a type."""
    while True:
        start = peer.read_exactly(9)
        if len(start) < 9:
            raise ConnectionResetError("the client has gone away")
        peer.read_exactly(int.from_bytes(start[:3], "big"))
        if start[3] == wanted:
            return


def read_upload(peer: Peer, size: int) -> None:
    """Read a body of so many bytes."""
    while size:
        start = peer.read_exactly(9)
        length = peer.skip(int.from_bytes(start[:3], "big"))
        if len(start) < 9:
            raise ConnectionResetError("the client has gone away")
        if start[3] == DATA:
            size -= length


def answer(*parts: bytes, hold: bool = True, first: bytes = settings()) -> Script:
    """Read the request, send `first` and the parts to the letter, then hold or close the connection."""

    def script(peer: Peer) -> None:
        read_frames(peer)
        peer.send(first)
        for part in parts:
            peer.send(part)
        if hold:
            peer.wait(60)
        else:  # an orderly end: closing with something unread would be a reset
            peer.end()
            peer.read_to_end()

    return script


def flood(start: bytes, unit: bytes, pause: float = 0.0) -> Script:
    """Send SETTINGS and `start`, then `unit` until the client goes away."""

    def script(peer: Peer) -> None:
        read_frames(peer)
        peer.send(settings() + start)
        while not peer.wait(pause):
            peer.send(unit)

    return script
