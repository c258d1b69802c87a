"""Compare the phases that httphases and curl report with the packets of those same requests.

Everything happens across a path of paths.py, with a round trip of twice HOP seconds.

The kernel timestamps every packet at the client's end of the path. From them come the true phases:

    dns       first query for our name sent      to  last answer received
    connect   SYN sent                           to  SYN-ACK received
    tls       SYN-ACK received                   to  the client's Finished sent
    wait      first packet of the request sent   to  first packet of the response received
    xfer      first packet of the response       to  last packet of the body
    ttfb      the first packet of all            to  first packet of the response
    total     the first packet of all            to  last packet of the body

Under TLS 1.3 the client's first encrypted record is its Finished and the second one opens the request; the
server writes its response as PIECES records longer than any other that it sends. curl's phases are the
differences of its time_ variables: its tls ends at time_appconnect, its wait starts at time_pretransfer.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import common

sys.path.append(str(common.ROOT / "tests"))
from paths import ANY, FAR, Way, path
from servers import Peer, dns_server, scripted

HOST = "slow.test"
HOP = 0.005  # one way of the path, in seconds
LOOKUP = 0.010  # before each DNS answer
THINKING = 0.030  # before the response
PAUSE = 0.010  # between two pieces of the body
PIECES, PIECE = 4, b"x" * 8192
LONG_RECORD = 4096  # bytes; shorter records are handshake, HTTP/2 settings and the like

PHASES = ("dns", "connect", "tls", "wait", "xfer", "ttfb", "total")
Times = dict[str, float]  # phase -> milliseconds

ETH_P_ALL, PACKET_OUTGOING = 0x0003, 4
SO_TIMESTAMPNS, SO_RCVBUFFORCE = 35, 33
SYN = 0x02


# -- The servers -----------------------------------------------------------------------------------


def speak_http1(peer: Peer) -> None:
    """Answer one request slowly, then wait for the client to close."""
    peer.read_request()
    peer.wait(THINKING)
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(PIECE) * PIECES) + PIECE)
    for _ in range(PIECES - 1):
        peer.wait(PAUSE)
        peer.send(PIECE)
    peer.read_to_end()


def speak_http2(peer: Peer) -> None:
    """Answer one request slowly, then wait for the client to close."""
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.events import StreamEnded

    state = H2Connection(H2Configuration(client_side=False))
    state.initiate_connection()
    peer.send(state.data_to_send())
    while data := peer.sock.recv(65536):
        ended = any(isinstance(event, StreamEnded) for event in state.receive_data(data))
        peer.send(state.data_to_send())
        if ended:
            peer.wait(THINKING)
            state.send_headers(1, [(":status", "200"), ("content-length", str(len(PIECE) * PIECES))])
            for left in reversed(range(PIECES)):
                state.send_data(1, PIECE, end_stream=left == 0)
                peer.send(state.data_to_send())
                peer.wait(PAUSE if left else 0)


@contextlib.contextmanager
def laboratory(folder: Path) -> Iterator[tuple[Way, dict[str, str], Path, socket.socket]]:
    """Make the path and everything that a client talks to; yield the way, the URL of each protocol, the
    certificate to trust, and a socket that captures what goes over the path.
    """
    if os.geteuid() != 0:
        common.give_up("needs root, to capture packets and to make a network namespace")
    (folder / "path").mkdir()
    certificate, key = common.make_certificate(folder, HOST)
    with contextlib.ExitStack() as held:
        way = held.enter_context(path(folder / "path", 2 * HOP))
        held.enter_context(way.far(dns_server({HOST: [FAR]}, delay=LOOKUP, host=ANY)))
        way.name_servers(FAR)
        urls = {}
        for protocol, alpn, script in (
            ("http", "", speak_http1),
            ("https HTTP/1.1", "http/1.1", speak_http1),
            ("https HTTP/2", "h2", speak_http2),
        ):
            context = None
            if alpn:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.load_cert_chain(certificate, key)
                context.set_alpn_protocols([alpn])
            server = held.enter_context(way.far(scripted(script, tls=context, host=ANY)))
            urls[protocol] = server.url(host=HOST)
        capture = held.enter_context(way.call(open_capture))
        yield way, urls, certificate, capture


# -- The packets -----------------------------------------------------------------------------------


class Packet(NamedTuple):
    """A TCP segment or UDP datagram at the client's end; `at` in nanoseconds; UDP has no seq, no flags."""

    at: int
    sent: bool
    client_port: int
    server_port: int
    seq: int
    flags: int
    payload: bytes


def open_capture() -> socket.socket:
    """Return a socket that receives every packet of this namespace with the kernel's timestamp."""
    capture = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    capture.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    capture.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    capture.setblocking(False)
    return capture


def read_packets(capture: socket.socket) -> list[Packet]:
    """Return the TCP and UDP packets captured since the last call.

    The path shows each packet at both of its ends: what a server sends and receives reads like what a client
    does whose server has the client's port. Asking for the true server's port leaves the true client.
    """
    packets = []
    with contextlib.suppress(BlockingIOError):
        while True:
            data, ancillary, _, address = capture.recvmsg(1 << 17, 64)
            seconds, nanoseconds = struct.unpack("@ll", ancillary[0][2])
            if data[0] >> 4 == 4 and data[9] in (socket.IPPROTO_TCP, socket.IPPROTO_UDP):
                at, sent = seconds * 10**9 + nanoseconds, address[2] == PACKET_OUTGOING
                packets.append(parse_packet(at, sent, data))
    return packets


def parse_packet(at: int, sent: bool, data: bytes) -> Packet:
    segment = data[(data[0] & 15) * 4 : struct.unpack_from("!H", data, 2)[0]]
    ports = struct.unpack_from("!HH", segment)
    client, server = ports if sent else reversed(ports)
    if data[9] == socket.IPPROTO_UDP:
        return Packet(at, sent, client, server, 0, 0, segment[8:])
    seq = struct.unpack_from("!I", segment, 4)[0]
    return Packet(at, sent, client, server, seq, segment[13], segment[(segment[12] >> 4) * 4 :])


class Stream:
    """One direction of a connection: its bytes in order, and when each was first seen."""

    def __init__(self, packets: Sequence[Packet]) -> None:
        start = next(packet.seq for packet in packets if packet.flags & SYN) + 1
        self.data = b""
        self.ends: list[tuple[int, int]] = []  # (offset after the last byte of a packet, its time)
        for packet in sorted(packets, key=lambda packet: ((packet.seq - start) % 2**32, packet.at)):
            new = packet.payload[len(self.data) - (packet.seq - start) % 2**32 :]
            if packet.payload and new:
                self.data += new
                self.ends.append((len(self.data), packet.at))

    def seen(self, offset: int) -> int:
        """Return when the byte at an offset was on the wire, in nanoseconds."""
        return next(at for end, at in self.ends if offset < end)

    def encrypted_records(self) -> list[tuple[int, int]]:
        """Return (first byte, last byte) of each TLS record of type application_data."""
        records, start = [], 0
        while start + 5 <= len(self.data):
            kind, _, length = struct.unpack_from("!BHH", self.data, start)
            if kind == 23:
                records.append((start, start + 4 + length))
            start += 5 + length
        return records


def true_phases(packets: Sequence[Packet], port: int, secure: bool) -> Times:
    name = HOST.split(".")[0].encode()
    lookup = [packet for packet in packets if packet.server_port == 53 and name in packet.payload]
    asked = min(packet.at for packet in lookup if packet.sent)
    answered = max(packet.at for packet in lookup if not packet.sent)
    syn = next(p for p in packets if p.sent and p.server_port == port and p.flags & SYN)
    ours = [p for p in packets if (p.client_port, p.server_port) == (syn.client_port, port)]
    accepted = next(packet.at for packet in ours if not packet.sent and packet.flags & SYN)
    upward = Stream([packet for packet in ours if packet.sent])
    downward = Stream([packet for packet in ours if not packet.sent])
    if secure:
        finished, request = (upward.seen(start) for start, _ in upward.encrypted_records()[:2])
        body = [(a, b) for a, b in downward.encrypted_records() if b - a > LONG_RECORD]
        if len(body) != PIECES:
            raise ValueError(f"expected {PIECES} long records, captured {len(body)}")
        first, last = downward.seen(body[0][0]), downward.seen(body[-1][1])
    else:
        finished, request = accepted, upward.seen(0)
        first, last = downward.seen(0), downward.seen(len(downward.data) - 1)
    return {
        "dns": (answered - asked) / 1e6,
        "connect": (accepted - syn.at) / 1e6,
        "tls": (finished - accepted) / 1e6,
        "wait": (first - request) / 1e6,
        "xfer": (last - first) / 1e6,
        "ttfb": (first - asked) / 1e6,
        "total": (last - asked) / 1e6,
    }


# -- The programs ----------------------------------------------------------------------------------


def run(command: Sequence[str]) -> str:
    """Run a program to its end and return what it printed; its failure ends the benchmark."""
    done = subprocess.run(
        command, env=common.plain_environment(), check=False, capture_output=True, text=True, timeout=60
    )
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}\n{done.stderr}")
    return done.stdout


def ask_httphases(way: Way, python: str, program: str, trust: list[str], url: str) -> Times:
    command = [*way.near, python, program, "--metrics-only", "--json", "-", *trust, url]
    timing = json.loads(run(command))["steps"][0]["timing"]
    return {phase: timing[f"{phase}_ms"] for phase in PHASES}


def ask_curl(way: Way, curl: str, trust: list[str], url: str) -> Times:
    names = ("namelookup", "connect", "appconnect", "pretransfer", "starttransfer", "total")
    written = " ".join(f"%{{time_{name}}}" for name in names)
    output = run([*way.near, curl, "-sS", "-o", "/dev/null", "-w", written, *trust, url])
    found, connected, secured, ready, first, total = (float(value) * 1000 for value in output.split())
    return {
        "dns": found,
        "connect": connected - found,
        "tls": secured - connected if secured else 0.0,
        "wait": first - ready,
        "xfer": total - first,
        "ttfb": first,
        "total": total,
    }


@contextlib.contextmanager
def load(busy: bool) -> Iterator[None]:
    cores = os.cpu_count() or 1
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores if busy else 0)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


# -- The comparison --------------------------------------------------------------------------------


def compare(
    programs: dict[str, Callable[[str], Times]], url: str, rounds: int, capture: socket.socket
) -> dict[str, list[tuple[Times, Times]]]:
    """Run the programs in turn, after one run each to warm up; return each one's (reported, true) phases."""
    port, secure = int(url.rstrip("/").rpartition(":")[2]), url.startswith("https")
    results: dict[str, list[tuple[Times, Times]]] = {name: [] for name in programs}
    for number in range(rounds + 1):
        for name in sorted(programs, reverse=number % 2 == 1):
            read_packets(capture)
            reported = programs[name](url)
            truth = true_phases(read_packets(capture), port, secure)
            if number:
                results[name].append((reported, truth))
    return results


def table_rows(label: list[str], results: dict[str, list[tuple[Times, Times]]]) -> list[list[str]]:
    """Return a row for each phase: the true median, then median and 95th percentile of the errors."""
    rows = []
    for phase in PHASES:
        truth = statistics.median(true[phase] for runs in results.values() for _, true in runs)
        if not truth:
            continue
        cells = [f"{truth:.2f}"]
        errors = {
            name: sorted(abs(reported[phase] - true[phase]) for reported, true in runs)
            for name, runs in results.items()
        }
        for pick in (statistics.median, lambda values: values[math.ceil(len(values) * 0.95) - 1]):
            ours, theirs = pick(errors["httphases"]), pick(errors["curl"])
            cells += [f"{ours:.3f}", f"{theirs:.3f}", common.ratio(ours, theirs)]
        rows.append([*label, phase, *cells])
    return rows


def main() -> None:
    options = common.parse_arguments(
        "Compare the phases reported by httphases and curl with the packets (Linux, root).",
        30,
        sys.executable,
    )
    (curl,) = common.find_programs("curl")
    rows = []
    with tempfile.TemporaryDirectory() as name, laboratory(Path(name)) as (way, urls, certificate, capture):
        if not all(common.has_module(python, "h2") for python in {sys.executable, options.python}):
            print("h2 is missing: no HTTP/2")
            del urls["https HTTP/2"]
        trust = ["--cacert", str(certificate)]
        programs: dict[str, Callable[[str], Times]] = {
            "curl": lambda url: ask_curl(way, curl, trust, url),
            "httphases": lambda url: ask_httphases(way, options.python, options.program, trust, url),
        }
        for state in ("idle", "busy"):
            with load(state == "busy"):
                for protocol, url in urls.items():
                    results = compare(programs, url, options.rounds, capture)
                    rows += table_rows([protocol, state], results)
    print(f"absolute errors against the packets in ms, {options.rounds} interleaved runs of each")
    header = ["protocol", "cores", "phase", "true", "httphases", "curl", "ratio"]
    common.print_table([*header, "httphases p95", "curl p95", "ratio"], rows)


if __name__ == "__main__":
    main()
