"""A path with a round trip, whose packets are lost or late as a test says: real TCP at both ends.

    with path(tmp_path, round_trip=0.02, rules=[Rule("up", "syn")]) as way:
        with way.far(http_server(host=ANY)) as server:
            result = run_tool("--json", "-", server.url(host=FAR), within=way.near)

A child process makes network and mounts of its own. The only way out of them is a TUN device that the child
serves: each packet comes back after half a round trip, its two addresses swapped, so that whoever connects to
FAR, or to any other address beside it, reaches what listens at the other end of the path (the checksums stay
right: swapping keeps their sums). The process of the tests stays where it is: a program goes there by the
command `way.near`, and a server by `way.far`, which makes its sockets in a thread that has gone there.

Needs root and /dev/net/tun on Linux; `path` skips the test where it is not allowed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import heapq
import itertools
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple

ANY = "0.0.0.0"
NEAR, FAR = "198.18.0.1", "198.18.0.2"  # RFC 2544: addresses for benchmarks
OTHERS = tuple(f"198.18.0.{number}" for number in range(3, 9))
"""More addresses of the far end."""
NEAR6 = "2001:db8::1"  # RFC 3849: addresses for documentation
MTU = 1500
PATIENCE = 10.0

CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x00020000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
SYN, ACK = 0x02, 0x10


class Rule(NamedTuple):
    """What happens to one packet of every connection, or of every exchange with a name server.

    `way` is "up" (from the client) or "down"; `what` is "syn" (a SYN-ACK on the way down), "data", "large"
    (of more than 1,400 bytes), or "any".
    `nth` counts such packets from 1, those that were seen before (sent again) not; 0 means each of them.
    """

    way: str
    what: str
    nth: int = 1
    action: str = "drop"
    """drop; late by `amount` s; later: from here on all that goes this way is late by `amount` s; rate: no
    more than `amount` bytes a second get through; police: what comes faster is lost; dead: from here on
    nothing gets through; told: lost, as ICMP tells the sender, who is to send no more than `amount` bytes at
    once."""
    amount: float = 0.0
    times: int = 1
    """How often it happens to this packet, which is sent again after a loss."""
    address: str | None = None
    """The far address, of the client's choice, that the connection must be to."""
    queue: float = 60.0
    """Of rate and police: how many seconds' worth may wait (or come at once); what is more is lost."""
    chance: float = 1.0
    """Where it happens to each packet: how often."""


def silent(address: str) -> list[Rule]:
    """Make the rule by which nothing reaches an address of the far end."""
    return [Rule("up", "any", 0, address=address)]


# --- the tests' end -------------------------------------------------------------------------------


class Way:
    """A path that stands: how to go to its two ends, and how to change it while it is used."""

    def __init__(self, process: subprocess.Popen, folder: Path) -> None:
        self._process, self._folder = process, folder
        proc = f"/proc/{process.pid}/ns"
        self.near = ["nsenter", f"--net={proc}/net", f"--mount={proc}/mnt", "--"]
        """The beginning of a command that is to run at the client's end; its folder there is /."""
        self.near[:0] = first()
        self._network = f"{proc}/net"

    def name_servers(self, *addresses: str, options: str = "timeout:1", search: str = "") -> None:
        """Write the resolv.conf that programs at the client's end read."""
        lines = [f"nameserver {address}\n" for address in addresses]
        lines += [f"search {search}\n"] if search else []
        (self._folder / "resolv.conf").write_text("".join([*lines, f"options {options}\n"]))

    def change(self, *, rules: Sequence[Rule]) -> None:
        """Set other rules for the packets that are yet to come."""
        assert self._tell(rules) == "ready\n", "the relay has ended"

    def lost(self) -> float:
        """Return for how many seconds something was missing: lost, and not there yet by another try."""
        return json.loads(self._tell("lost"))

    def _tell(self, message: Any) -> str:
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    @contextlib.contextmanager
    def far(self, server: contextlib.AbstractContextManager[Any]) -> Iterator[Any]:
        """Have a server of servers.py at the far end for the length of the block."""
        running = self.call(server.__enter__)
        try:
            yield running
        finally:
            self.call(lambda: server.__exit__(None, None, None))

    def call(self, work: Callable[[], Any]) -> Any:
        """Call a function in a thread that has gone there; what it opens and starts stays there."""
        outcome: list[Any] = []

        def go() -> None:
            try:
                go_first()
                with open(self._network, "rb") as there:
                    if LIBC.setns(there.fileno(), CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), "setns")
                outcome.extend((work(), None))
            except BaseException as error:
                outcome.extend((None, error))

        thread = threading.Thread(target=go)
        thread.start()
        thread.join()
        result, error = outcome
        if error is not None:
            raise error
        return result


LIBC = ctypes.CDLL(None, use_errno=True)


def go_first() -> None:
    """Let this thread, and all that it starts, have a CPU before whatever else this machine has to do.

    What is another machine in truth, a path or a server, is not to be slow because this one is busy, not even
    with the program (see `first`). Where it is not allowed, nothing changes.
    """
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(3))


@contextlib.contextmanager
def going_first() -> Iterator[None]:
    """Let this thread, and all that it starts meanwhile, go first for the length of the block."""
    go_first()
    try:
        yield
    finally:
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@functools.cache
def first() -> list[str]:
    """Return the beginning of a command that is to go first too, nothing where that is not allowed."""
    words = ["chrt", "--fifo", "1"]
    try:
        return words if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL).returncode == 0 else []
    except OSError:
        return []


@contextlib.contextmanager
def path(
    folder: Path, round_trip: float = 0.0, rules: Sequence[Rule] = (), settings: dict[str, str] | None = None
) -> Iterator[Way]:
    """Make a path for the length of the block; skip the test where the system does not allow it.

    `settings` are names below /proc/sys/net and their values, for both ends. Senders use Reno, or `congctl`,
    and know nothing of earlier connections, whatever this machine is used to.
    """
    specification = {
        "folder": str(folder),
        "round_trip": round_trip,
        "rules": rules,
        "settings": {
            "ipv4/tcp_congestion_control": "reno",  # what every Linux has and allows
            "ipv4/tcp_no_metrics_save": "1",
            **(settings or {}),
        },
    }
    process = subprocess.Popen(
        [sys.executable, __file__, json.dumps(specification)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        answer = process.stdout.readline().strip()
        if answer != "ready":
            import pytest  # not at the top: the relay has no need of it, and starts five times as quickly

            pytest.skip(f"needs a network of its own with a TUN device: {answer}")
        yield Way(process, folder)
    finally:
        process.stdin.close()
        process.wait(PATIENCE)
        process.stdout.close()


# --- the relay: a process of its own --------------------------------------------------------------


class Packet(NamedTuple):
    """A packet as the relay sees it; `flow` is (far address, client's port, server's port)."""

    way: str
    flow: tuple[str, int, int]
    seq: int
    flags: int
    length: int


class Flow:
    """What the relay remembers of one connection."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.next = {"up": -1, "down": -1}
        """The sequence number after the newest byte seen, of each way; -1 before the first."""
        self.seen = [0] * len(rules)
        self.chosen: list[Any] = [None] * len(rules)
        self.done = [0] * len(rules)


class Relay:
    """Pass packets on, late, and as the rules say."""

    def __init__(self, device: int, round_trip: float, rules: Sequence[Rule]) -> None:
        self.device, self.round_trip, self.rules = device, round_trip, rules
        self.flows: dict[Any, Flow] = {}
        self.queue: list[tuple[float, int, bytes]] = []
        self.order = itertools.count()
        self.free = {"up": 0.0, "down": 0.0}
        """When the line of a `rate` is free again."""
        self.later = {"up": 0.0, "down": 0.0}
        self.dead = False
        self.chance = random.Random(1)
        self.missing: dict[Any, float] = {}
        """When what was lost, and has not come yet, was lost first."""
        self.gaps: list[tuple[float, float]] = []

    def run(self) -> None:
        """Serve until standard input ends; a line there is a change."""
        while True:
            pause = max(0.0, self.queue[0][0] - time.monotonic()) if self.queue else None
            ready, _, _ = select.select([self.device, sys.stdin], [], [], pause)
            if sys.stdin in ready and not self.change(sys.stdin.readline()):
                return
            if self.device in ready:
                self.take_all()
            while self.queue and self.queue[0][0] <= time.monotonic():
                os.write(self.device, heapq.heappop(self.queue)[2])

    def change(self, line: str) -> bool:
        if not line:
            return False
        message = json.loads(line)
        if message != "lost":
            self.rules, self.flows = [Rule(*rule) for rule in message], {}
        print(self.time_lost() if message == "lost" else "ready", flush=True)
        return True

    def take_all(self) -> None:
        """Take what has come; a burst is passed on as a burst."""
        now = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):
                self.take(os.read(self.device, 65536), now)

    def take(self, data: bytes, now: float) -> None:
        packet = parse(data, self.flows)
        if packet is None:
            return
        late = self.obey(packet, data, now)
        if packet.length or packet.flags & SYN:
            self.note(packet[:3], late is None, now)
        if late is not None:
            when = now + self.round_trip / 2 + late
            heapq.heappush(self.queue, (when, next(self.order), swapped(data)))

    def note(self, which: Any, lost: bool, now: float) -> None:
        """Remember when a packet was lost first, and when it came through after all."""
        if lost:
            self.missing.setdefault(which, now)
        elif which in self.missing:
            self.gaps.append((self.missing.pop(which), now))

    def time_lost(self) -> float:
        """Return for how long at least one packet was missing."""
        total = end = 0.0
        for begin, until in sorted(self.gaps):
            total += max(0.0, until - max(begin, end))
            end = max(end, until)
        return total

    def obey(self, packet: Packet, data: bytes, now: float) -> float | None:
        """Return by how much a packet is late, None when it is lost."""
        if packet.flags & SYN and packet.way == "up" and packet.flow not in self.flows:
            self.flows[packet.flow] = Flow(self.rules)
        flow = self.flows.setdefault(packet.flow, Flow(self.rules))
        end = (packet.seq + packet.length + bool(packet.flags & SYN)) % 2**32
        last = flow.next[packet.way]
        fresh = last < 0 or 0 < (end - last) % 2**32 < 2**31
        if fresh:
            flow.next[packet.way] = end
        late, lost = self.later[packet.way], self.dead
        for index, rule in enumerate(self.rules):
            if not self.applies(index, rule, packet, (flow, fresh)):
                continue
            if rule.action in ("drop", "told"):
                lost = True
            elif rule.action == "late":
                late += rule.amount
            elif rule.action == "later":
                self.later[rule.way] = rule.amount
                late += rule.amount
            elif rule.action == "dead":
                lost = self.dead = True
            elif rule.action in ("rate", "police"):
                free = max(now, self.free[rule.way])
                lost = lost or free - now > rule.queue
                self.free[rule.way] = free = free + (not lost) * len(data) / rule.amount
                late += free - now if rule.action == "rate" else 0
            if rule.action == "told":
                os.write(self.device, too_big(data, int(rule.amount)))
        return None if lost else late

    def applies(self, index: int, rule: Rule, packet: Packet, known: tuple[Flow, bool]) -> bool:
        flow, fresh = known
        if rule.way != packet.way or (rule.address and rule.address != packet.flow[0]):
            return False
        kinds = {
            "syn": bool(packet.flags & SYN),
            "data": packet.length > 0,
            "large": packet.length > 1400,
            "any": True,
        }
        if not kinds[rule.what]:
            return False
        if rule.nth == 0:
            return self.chance.random() < rule.chance
        if fresh or rule.what == "any":
            flow.seen[index] += 1
            if flow.seen[index] == rule.nth:
                flow.chosen[index] = packet.seq
        if flow.chosen[index] != packet.seq or flow.done[index] >= rule.times:
            return False
        flow.done[index] += 1
        return True


def parse(data: bytes, flows: dict[Any, Flow]) -> Packet | None:
    """Read a TCP segment or UDP datagram of IPv4; None for anything else."""
    if data[0] >> 4 != 4:
        return None
    address, protocol = socket.inet_ntop(socket.AF_INET, data[16:20]), data[9]
    segment = data[(data[0] & 15) * 4 : struct.unpack_from("!H", data, 2)[0]]
    if protocol == socket.IPPROTO_ICMP:
        return Packet("down", (address, 0, 0), 0, 0, 0)
    if protocol not in (socket.IPPROTO_TCP, socket.IPPROTO_UDP):
        return None
    source, target = struct.unpack_from("!HH", segment)
    if protocol == socket.IPPROTO_UDP:
        up = target == 53
        flow = (address, source, target) if up else (address, target, source)
        return Packet("up" if up else "down", flow, 0, 0, len(segment) - 8)
    seq, flags = struct.unpack_from("!I", segment, 4)[0], segment[13]
    up = (flags & (SYN | ACK)) == SYN or (address, source, target) in flows
    flow = (address, source, target) if up else (address, target, source)
    return Packet("up" if up else "down", flow, seq, flags, len(segment) - (segment[12] >> 4) * 4)


def swapped(data: bytes) -> bytes:
    return data[:12] + data[16:20] + data[12:16] + data[20:]


def too_big(data: bytes, most: int) -> bytes:
    """Make the ICMP message for the sender of a packet that is too big for the way (RFC 1191)."""
    message = struct.pack("!BBHHH", 3, 4, 0, 0, most) + data[:28]
    message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(message), 0, 0, 64, socket.IPPROTO_ICMP, 0)
    head += data[16:20] + data[12:16]
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + message


def checksum(data: bytes) -> int:
    """Return the sum that IP and ICMP have in their headers (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def enter(specification: dict[str, Any]) -> int:
    """Move this process to a network and mounts of its own; return the device. Raises OSError."""
    if LIBC.unshare(CLONE_NEWNET | CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"path", IFF_TUN | IFF_NO_PI))
    commands = f"""
link set lo up
address add {NEAR}/24 dev path
link set path up mtu {MTU} txqueuelen 10000
"""
    subprocess.run(["ip", "-batch", "-"], input=commands, text=True, check=True, stderr=subprocess.DEVNULL)
    six = ["ip", "-6", "address", "add", f"{NEAR6}/64", "dev", "path", "nodad"]
    subprocess.run(six, check=False, stderr=subprocess.DEVNULL)  # there may be no IPv6
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    folder = Path(specification["folder"])
    for name, text in (("resolv.conf", "options timeout:1\n"), ("nsswitch.conf", "hosts: files dns\n")):
        (folder / name).write_text(text)
        if Path("/etc", name).exists():
            subprocess.run(["mount", "--bind", str(folder / name), f"/etc/{name}"], check=True)
    control = specification["settings"].pop("congctl", None)
    if control:  # by the route: as a setting it had to be allowed
        route = ["ip", "route", "change", "198.18.0.0/24", "dev", "path", "src", NEAR]
        subprocess.run([*route, "congctl", control], check=True)
    for name, value in specification["settings"].items():
        Path("/proc/sys/net", name).write_text(value)
    return device


def main() -> None:
    """Serve one path, as the argument says, until standard input ends."""
    specification = json.loads(sys.argv[1])
    try:
        device = enter(specification)
    except (OSError, subprocess.CalledProcessError) as error:
        print(error)
        return
    go_first()
    print("ready", flush=True)
    Relay(device, specification["round_trip"], [Rule(*rule) for rule in specification["rules"]]).run()


if __name__ == "__main__":
    main()
