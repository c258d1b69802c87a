"""Situations whose slowness has a known owner, for causes.py: how each is made, and who owes what of it.

A situation is parts put together; a part is a dict of fields of `Scene`, `owed` among them: how many ms are
owed to whom. What is owed to `a|b` may be given to either. The round trips of the path are counted here; what
losses took is told by the path itself, and what is `rest` is the total without all that.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paths import ANY, FAR, NEAR, OTHERS, Rule, Way, silent
from servers import Peer, dns_server, free_port, nginx, scripted

NAME = "shop.example"
RESOLVER = OTHERS[-1]
SEGMENT, HEAD = 1448, 52  # bytes of TCP and of what goes before it, with time stamps


class Scene(NamedTuple):
    """One request, what it meets on the way, and what that costs."""

    name: str
    kind: str
    rtt: float = 0.012
    rules: tuple[Rule, ...] = ()
    """`nth` may be "request" (its first segment), or "middle" (the third of the answer)."""
    settings: tuple[tuple[str, str], ...] = ()  # of the kernels at both ends
    words: tuple[str, ...] = ()
    upload: int = 0
    reader: float = 0.0
    """How long the server rests before it reads an upload, ..."""
    pace: float = 0.0
    """... and after each 64 KB of it."""
    wait: float = 0.0
    body: int = 300
    pieces: int = 1
    pause: float = 0.0
    nagle: bool = False
    tls: str = ""
    handshake: float = 0.0
    hog: float = 0.0
    """How long nobody else has the program's CPU, from the ClientHello on."""
    proxy: float | None = None
    """How long it takes to open the way."""
    forward: bool = False  # by an ordinary proxy
    names: float | None = None
    """By how much each answer of the name server is late."""
    no_aaaa: bool = False  # it never answers that
    addresses: tuple[str, ...] = (FAR,)
    resolv: tuple[tuple[str, Any], ...] = ()  # for `Way.name_servers`
    host: str = ANY
    hops: int = 0  # redirects that come first
    run: int = 0
    """Which of five runs on one connection is meant; only it is slow."""
    far: str = ""
    """In place of the script: h2, or a program behind which it is (nginx, limit_rate)."""
    code: int = 0
    trips: int = 0
    """Of the path, beyond one each for TCP, TLS and the request."""
    owed: tuple[tuple[str, float], ...] = ()  # in seconds
    lost: str = "loss"
    rest: str = ""

    @property
    def all_rules(self) -> list[Rule]:
        """The rules with their numbers: a handshake and a CONNECT come before the request."""
        before = bool(self.tls) + (self.proxy is not None)
        numbers: dict[Any, int] = {"request": 1 + before, "middle": (7 if self.tls else 3) + before}
        numbered = (rule._replace(nth=numbers.get(rule.nth, rule.nth)) for rule in self.rules)
        return [rule._replace(address=rule.address or FAR) for rule in numbered]

    def truth(self, total: float, lost: float) -> dict[str, float]:
        """Return how many ms are owed to whom; the round trip of a CONNECT is the path's or the proxy's."""
        trips = self.trips + (1 if self.run else (2 + bool(self.tls)) * (1 + self.hops))
        known = [*self.owed, ("path", trips * self.rtt), (self.lost, lost if self.lost else 0.0)]
        known += [("path|proxy", self.rtt)] if self.proxy is not None else []
        owed: dict[str, float] = collections.defaultdict(float)
        for owner, seconds in known:
            owed[owner] += seconds * 1000
        owed[self.rest] += total - sum(owed.values())
        return {owner: ms for owner, ms in owed.items() if owner and ms > 0}


Part = dict[str, Any]  # some fields of a `Scene`
has = dict


def owes(seconds: float, owner: str) -> Part:
    return {"owed": ((owner, seconds),)}


def rule(*of: Any, **more: Any) -> Part:
    return {"rules": (Rule(*of, **more),)}


def kernels(**settings: str) -> Part:
    """Set the kernels' TCP at both ends."""
    return {"settings": tuple((f"ipv4/tcp_{name}", value) for name, value in settings.items())}


def names(*servers: str, late: float = 0.0, owed: float = 0.012, **more: Any) -> Part:
    """Have a name server that answers late; `more` is for `Way.name_servers`."""
    resolv = (("servers", servers or (RESOLVER,)), *more.items())
    return {"names": late, "resolv": resolv, **owes(owed, "resolver")}


def tries(*addresses: str) -> Part:
    """Have these addresses; the first of the `OTHERS` is silent."""
    return {**names(), "addresses": addresses, "rules": tuple(silent(OTHERS[0])), "rest": "attempts"}


def line(way: str, size: int, rate: int, owner: str = "line") -> Part:
    """Have a line, and so many bytes to send on it, each segment of which has a head of IP and TCP."""
    seconds = (size + size / SEGMENT * HEAD) / rate
    body = {"upload" if way == "up" else "body": size}
    return {**rule(way, "any", 0, "rate", rate), **body, **owes(seconds, owner)}


def narrow(way: str, queue: float, action: str = "rate") -> Part:
    """Have a line on which what would wait longer is lost."""
    body = {"upload" if way == "up" else "body": 300_000}
    return {**rule(way, "any", 0, action, 500_000, queue=queue), **body, "lost": "", "rest": "line|loss"}


def grows(*ways: str, by: float = 0.18, nth: Any = "request") -> Part:
    """Make the path longer from the request on; on the way down from its acknowledgment on."""
    rules = {"up": Rule("up", "data", nth, "later", by), "down": Rule("down", "any", 2, "later", by)}
    return {"rules": tuple(rules[way] for way in ways), **owes(by * len(ways), "path")}


def serves(late: float, **more: Any) -> Part:
    return {"wait": late, **owes(late, "server"), **more}


def pieces(count: int, pause: float, size: int) -> Part:
    return {"pieces": count, "pause": pause, "body": count * size, **owes((count - 1) * pause, "server")}


def until(seconds: float) -> Part:
    """Give up then."""
    return {"words": ("-m", str(seconds)), "code": 75}


def reads(control: str) -> Part:
    """Read an upload slowly, and send it under a certain control of congestion."""
    return {"settings": (("congctl", control),), **has(upload=1_000_000, pace=0.05, rest="server")}


TLS, KEPT = has(tls="1.3"), has(run=4)
SMALL_IN, SMALL_OUT = (kernels(**{name: "4096 16384 16384"}) for name in ("rmem", "wmem"))

# What may be put together: each part is of one owner, and takes its time after that of the others.
PARTS: dict[str, Part] = {
    "resolver": names(late=0.5, owed=0.512),
    "attempts": tries(OTHERS[0], FAR),
    "far": has(rtt=0.2),
    "grown": grows("up"),
    "upload": line("up", 100_000, 200_000),
    "download": line("down", 125_000, 250_000),
    "request lost": rule("up", "data", "request", times=2),
    "syn lost": rule("up", "syn"),
    "answer torn": {**rule("down", "data", "middle", times=2), "body": 20_000},
    "proxy": {**TLS, "proxy": 0.6, **owes(0.6, "proxy")},
    "server": serves(0.5),
    "handshake": {**TLS, "handshake": 0.5, **owes(0.5, "server")},
    "pauses": pieces(3, 0.25, 3_000),
    "reader": {"upload": 300_000, "reader": 0.6, **owes(0.6, "server"), "trips": 2},
    "starved": {**TLS, "hog": 0.5, **owes(0.494, "here")},
}
PAIRS = """
resolver+server resolver+request_lost resolver+starved resolver+download resolver+proxy resolver+syn_lost
attempts+server attempts+pauses attempts+upload attempts+request_lost far+server far+handshake far+pauses
far+request_lost grown+server grown+pauses upload+server upload+pauses upload+proxy download+server
download+handshake request_lost+server request_lost+handshake request_lost+download answer_torn+server
syn_lost+server proxy+server proxy+request_lost starved+server starved+pauses reader+server resolver+reader
"""
TRIPLES = """
resolver+attempts+server resolver+proxy+server resolver+request_lost+pauses far+handshake+server
attempts+upload+server request_lost+server+download proxy+starved+server resolver+upload+pauses
syn_lost+reader+server
"""
LOST_WAY = {**until(1.5), "rest": "path|loss"}
SEARCH = "a.test b.test c.test d.test"
LATE_SYN_ACK = {**rule("down", "syn", 1, "late", 0.7), **owes(0.7, "path|server")}
HOLE = {**rule("down", "large", 0), "body": 5_000, "lost": "", "rest": "loss"}
TOLD = {**rule("up", "large", 0, "told", 1300), "upload": 100_000, "lost": "path", "rest": "path"}
GROWS_TWICE = {**grows("up"), "rest": "path"}
FAR_LINE = {way: {**line(way, 200_000, 250_000), "rtt": 0.15, "rest": "path|line"} for way in ("up", "down")}
FIRST_TWO = tuple(Rule("down", "data", nth, times=2) for nth in (1, 2))
RANDOM = has(rtt=0.05, lost="", rest="line|loss")
SINGLE: dict[str, dict[str, tuple[Part, ...]]] = {
    "names": {
        "a slow name behind a search list": (names(late=0.1, owed=0.56, search=SEARCH, options="ndots:5"),),
        "a silent name server": (names(OTHERS[0], RESOLVER, owed=1.012), has(rules=tuple(silent(OTHERS[0])))),
        "AAAA is never answered": (names(), has(no_aaaa=True, rest="resolver")),
    },
    "addresses": {
        "refused beside dropped, -m 1": (tries("127.0.0.9", OTHERS[0]), until(1), has(host=NEAR, trips=-2)),
        "refused, dropped, good": (tries("127.0.0.9", OTHERS[0], FAR), has(host=NEAR)),
        "a late SYN-ACK (700 ms)": (LATE_SYN_ACK,),
        "a late SYN-ACK, a slow server": (LATE_SYN_ACK, serves(0.5)),
        "SYN-ACK lost": (rule("down", "syn"),),
    },
    "path": {
        "round trip of 300 ms": (has(rtt=0.3),),
        "round trip of 300 ms, https": (has(rtt=0.3), TLS),
        "TLS 1.2, round trip of 100 ms": (has(rtt=0.1, tls="1.2", trips=1),),
        "grows by 180 ms down": (grows("down"),),
        "grows by 180 ms up and down": (grows("up", "down"),),
        "grows by 180 ms down, a slow server": (grows("down"), serves(0.3)),
        "grows by 400 ms down": (grows("down", by=0.4),),
        "grows by 400 ms down, a slow server": (grows("down", by=0.4), serves(0.5)),
        "grows by 180 ms after TLS": (grows("up"), TLS),
        "grows on a kept connection": (grows("up", nth=4), KEPT),
        "a cookie of 30 KB, 150 ms": (has(rtt=0.15, words=("-b", f"a={'c' * 30_000}"), trips=1),),
        "it grows by 180 ms, 100 ms": (has(rtt=0.1, words=("-b", f"a={'c' * 30_000}"), trips=1), GROWS_TWICE),
        "slow start up, 150 ms": (has(rtt=0.15, upload=300_000, rest="path"),),
        "slow start down, 150 ms": (has(rtt=0.15, body=300_000, rest="path|line"),),
        "ICMP tells a path MTU, 150 ms": (has(rtt=0.15), TOLD),
        "dead in mid-body, -m 1.5": (rule("down", "data", 20, "dead"), LOST_WAY, has(body=300_000)),
        "dead before the answer, -m 1.5": (rule("down", "any", 3, "dead"), LOST_WAY, has(wait=0.3)),
        "a far proxy, slow to open the way": (has(rtt=0.2), PARTS["proxy"]),
        "redirects, each slow": (has(hops=3, wait=0.2), owes(0.8, "server")),
    },
    "loss": {
        "a small answer lost": (rule("down", "data"),),
        "a small answer lost twice": (rule("down", "data", times=2),),
        "an answer lost, kept connection": (rule("down", "data", 4), KEPT),
        "an answer lost twice, kept connection": (rule("down", "data", 4, times=2), KEPT),
        "a request lost, kept connection": (rule("up", "data", 4), KEPT),
        "no loss but a slow server, kept connection": (serves(0.24), KEPT),
        "an answer's first segment lost 3 times": (rule("down", "data", times=3), has(body=20_000)),
        "an answer's first two lost twice": (has(body=5_000, rules=FIRST_TWO),),
        "an answer's last segment lost": (rule("down", "data", 4), has(body=5_000)),
        "an MTU hole that the far kernel finds": (HOLE, kernels(mtu_probing="1")),
        "an MTU hole, -m 1.5": (HOLE, until(1.5)),
        "the way holds an answer for 300 ms": (rule("down", "data", 1, "late", 0.3), has(rest="path|loss")),
        "a ServerHello lost, then pauses": (TLS, rule("down", "data"), pieces(3, 0.3, 9_000)),
        "one segment of a full line lost": (
            FAR_LINE["down"],
            rule("down", "data", 60),
            has(rtt=0.012, lost=""),
        ),
        "3 % of a body lost, 50 ms": (rule("down", "data", 0, chance=0.03), RANDOM, has(body=500_000)),
        "3 % of an upload lost, 50 ms": (rule("up", "data", 0, chance=0.03), RANDOM, has(upload=500_000)),
    },
    "line": {
        "a policed body": (narrow("down", 0.06, "police"),),
        "a policed upload": (narrow("up", 0.06, "police"),),
        "a line with a queue of 30 ms, up": (narrow("up", 0.03),),
        "a line with a queue of 100 ms, down": (narrow("down", 0.1),),
        "a body of 2 MB on a slow line": (line("down", 2_000_000, 1_000_000),),
        "a body over TLS on a slow line": (line("down", 125_000, 250_000), TLS),
        "a far line, down": (FAR_LINE["down"],),
        "a far line, up": (FAR_LINE["up"],),
        "a line with a small window": (line("up", 300_000, 500_000, "line|server"), SMALL_IN),
        "a small window, 100 ms": (has(rtt=0.1, upload=150_000, rest="server|path"), SMALL_IN),
        "a small buffer here, 100 ms": (has(rtt=0.1, body=150_000, rest="line|path|here"), SMALL_IN),
        "a small buffer there, 100 ms": (has(rtt=0.1, body=600_000, rest="line|path|server"), SMALL_OUT),
    },
    "server": {
        "pieces, each 40 ms": (pieces(13, 0.04, 20_000),),
        "pieces, each 450 ms": (pieces(4, 0.45, 20_000),),
        "a slow reader under reno": (reads("reno"),),
        "a slow reader under cubic": (reads("cubic"),),
        "a slow reader under bbr": (reads("bbr"),),
        "HTTP/2, a small window": (has(upload=200_000, far="h2", rest="server"), TLS),
        "a silent server, -m 1.5": (has(wait=9.0, rest="server"), until(1.5)),
        "held back by Nagle": (has(rtt=0.005, nagle=True, rest="server"), TLS),
        "a slow server behind an ordinary proxy": (has(forward=True, wait=0.5), owes(0.5, "server|proxy")),
        "the real nginx: a slow application": (serves(0.5, far="nginx"),),
        "the real nginx: limit_rate": (has(far="limit_rate", body=300_000, rest="server|line"),),
    },
}


def mix(name: str, kind: str, *parts: Part) -> Scene:
    """Put parts together: lists grow, of anything else the last one holds."""
    made: Part = {}
    for part in parts:
        for field, value in part.items():
            grown = field in ("rules", "settings", "words", "owed")
            made[field] = made.get(field, ()) + value if grown else value
    return Scene(name, kind, **made)


def every_scene() -> Iterator[Scene]:
    """Make each part alone, the pairs, the triples and all others."""
    for name, part in PARTS.items():
        yield mix(name, "alone", part)
    for kind, mixed in (("pairs", PAIRS), ("triples", TRIPLES)):
        for name in mixed.split():
            parts = (PARTS[each.replace("_", " ")] for each in reversed(name.split("+")))
            yield mix(name.replace("_", " "), kind, *parts)
    for kind, situations in SINGLE.items():
        for name, several in situations.items():
            yield mix(name, kind, *several)


# --- the far end ----------------------------------------------------------------------------------

# In a child of its own: burn one CPU for so many seconds, before the program, behind what stands for others.
HOG = """
import os, sys, time
os.sched_setaffinity(0, {0})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
for line in sys.stdin:
    end = time.monotonic() + float(line)
    print(flush=True)
    while time.monotonic() < end:
        pass
"""


class Play:
    """The server of a scene, with the proxy before it."""

    def __init__(self, scene: Scene, context: ssl.SSLContext, hog: Any) -> None:
        self.scene, self.context, self.hog = scene, context, hog

    def __call__(self, peer: Peer) -> None:
        scene = self.scene
        peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not scene.nagle)
        if scene.proxy is not None:
            peer.read_until(b"\r\n\r\n")
            peer.wait(scene.proxy)
            peer.send("HTTP/1.1 200 Connected\r\n\r\n")
        if scene.tls and scene.far in ("", "h2"):
            peer.sock.recv(1, socket.MSG_PEEK)
            if scene.hog:
                print(scene.hog, file=self.hog.stdin, flush=True)
                self.hog.stdout.readline()
            peer.wait(scene.handshake)
            peer.secure(self.context)
        if scene.far == "h2":
            speak_h2(peer)
        number = 0
        while head := peer.read_until(b"\r\n\r\n"):
            number += 1
            self.answer(peer, head, scene.wait if scene.run in (0, number) else 0.0)

    def answer(self, peer: Peer, head: bytes, wait: float) -> None:
        """Read the body of a request, and answer it."""
        scene, length = self.scene, re.search(rb"(?i)content-length: (\d+)", head)
        hop = head.split(b" ")[1][1:]
        peer.wait(scene.reader)
        for left in range(int(length[1]) if length else 0, 0, -65_536):
            peer.read_exactly(min(left, 65_536))
            peer.wait(scene.pace)
        peer.wait(wait)
        if hop.isdigit() and int(hop):
            peer.send(f"HTTP/1.1 302 Next\r\nLocation: /{int(hop) - 1}\r\nContent-Length: 0\r\n\r\n")
            return
        piece = "x" * (scene.body // scene.pieces)
        peer.send(f"HTTP/1.1 200 Fine\r\nContent-Length: {scene.body}\r\n\r\n{piece}")
        for _ in range(scene.pieces - 1):
            peer.wait(scene.pause)
            peer.send(piece)


def speak_h2(peer: Peer) -> None:
    """Answer one upload by HTTP/2; its window of 16 KB opens again 40 ms after each part of it was used."""
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.events import DataReceived, StreamEnded
    from h2.settings import SettingCodes

    connection = H2Connection(H2Configuration(client_side=False))
    connection.initiate_connection()
    connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 16_384})
    peer.send(connection.data_to_send())
    while data := peer.sock.recv(65536):
        for event in connection.receive_data(data):
            if isinstance(event, DataReceived):
                peer.wait(0.04)
                connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                peer.send(connection.data_to_send())
            if isinstance(event, StreamEnded):
                connection.send_headers(event.stream_id, [(":status", "200")], end_stream=True)
        peer.send(connection.data_to_send())


@contextlib.contextmanager
def far_end(scene: Scene, way: Way, folder: Path, context: ssl.SSLContext, hog: Any) -> Iterator[int]:
    """Play a scene at the far end; return the port."""
    with contextlib.ExitStack() as held:
        port = held.enter_context(way.far(scripted(Play(scene, context, hog), host=scene.host))).port
        if scene.names is not None:
            zone: Any = {NAME: scene.addresses, **({f"AAAA {NAME}": None} if scene.no_aaaa else {})}
            held.enter_context(way.far(dns_server(zone, delay=scene.names, host=NEAR)))
            settings = dict(scene.resolv)
            way.name_servers(*settings.pop("servers", (RESOLVER,)), **settings)
        if not scene.far or scene.far == "h2":
            yield port
            return
        front = free_port()
        more = "limit_rate 250k;" if scene.far == "limit_rate" else ""
        block = f"listen {ANY}:{front}; {more} location / {{ proxy_pass http://127.0.0.1:{port}; }}"
        held.enter_context(way.far(nginx(folder, front, block)))
        yield front


def lacking(scene: Scene, controls: Sequence[str]) -> str:
    """Say what this machine lacks for a scene; empty if nothing."""
    if scene.far in ("nginx", "limit_rate") and not shutil.which("nginx", path="/usr/sbin:/usr/bin"):
        return "nginx is not installed"
    if scene.far == "h2" and not importlib.util.find_spec("h2"):
        return "the package h2 is not here"
    control = dict(scene.settings).get("congctl", "reno")
    return "" if control in controls else f"this kernel has no {control}"


def command_of(scene: Scene, folder: Path, port: int) -> list[str]:
    """Return the words of the command: its options and the URL."""
    host = FAR if scene.names is None else NAME
    words = ["-k", "--json", "-", *scene.words]
    if scene.upload:
        (folder / "body").write_bytes(b"x" * scene.upload)
        words += ["-d", f"@{folder / 'body'}"]
    if scene.proxy is not None or scene.forward:
        words += ["-x", f"http://{host}:{port}"]
    words += ["--reuse", "--count", "5", "--interval", "0.1"] if scene.run else []
    words += ["--http1.1"] if scene.far != "h2" else []
    path = f"/{scene.hops}" if scene.hops else "/"
    return [*words, *(["-L"] if scene.hops else []), f"http{'s' * bool(scene.tls)}://{host}:{port}{path}"]


def start_hog() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOG]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
