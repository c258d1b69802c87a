"""Provoke causes of slowness, alone and two at once, on a path with a round trip: which of them are named?

Both ends are real kernels, joined by a relay of TUN devices that delays and loses (tests/paths.py); the
server behind it is a script. A cause is named if a finding of its kind is told; one of another kind is wrong.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import common

sys.path.insert(0, str(common.ROOT / "tests"))
from paths import ANY, FAR, Rule, Way, path
from servers import Peer, scripted

# What a finding of the cause looks like: its name, a colon and its text.
CAUSES = {
    "slow server": r"server:",
    "slow reader": r"tcp_window:|.*TCP window held",
    "loss before": r".*sent again",
    "loss after": r".*came was late",
    "proxy": r"proxy:",
    "upload": r"upload:",
    "starved CPU": r"starved:",
    "slow handshake": r"tls_slow:",
}
# In a child of its own: burn one CPU before everybody else, for 0.3 s from each line on.
HOG = """
import os, sys, time
os.sched_setaffinity(0, {0})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
for _ in sys.stdin:
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
"""


def script_of(causes: Sequence[str], tls: Any, hog: Any) -> Callable[[Peer], None]:
    """Return what a server, with the proxy before it, does where these are the causes."""

    def script(peer: Peer) -> None:
        if "proxy" in causes:
            peer.read_until(b"\r\n\r\n")
            peer.wait(0.4)
            peer.send("HTTP/1.1 200 Connected\r\n\r\n")
        if tls:
            peer.sock.recv(1, socket.MSG_PEEK)
            peer.wait(0.4 * ("slow handshake" in causes))
            peer.secure(tls)
        length = re.search(rb"(?i)content-length: (\d+)", peer.read_until(b"\r\n\r\n"))
        peer.wait(0.6 * ("slow reader" in causes))
        peer.skip(int(length[1]) if length else 0)
        peer.wait(0.5 * ("slow server" in causes))
        if "starved CPU" in causes:
            hog.stdin.write(b"\n")
            hog.stdin.flush()
        peer.send("HTTP/1.1 200 Fine\r\nContent-Length: 20000\r\n\r\n" + "x" * 20_000)

    return script


def rules_of(causes: Sequence[str], secure: bool) -> list[Rule]:
    """Return what the path does where these are the causes."""
    up, down = 1 + secure + ("proxy" in causes), (7 if secure else 3) + ("proxy" in causes)
    rules = {
        "loss before": Rule("up", "data", up, times=2),
        "loss after": Rule("down", "data", down, times=2),
        "upload": Rule("up", "any", 0, "rate", 200_000),
    }
    return [rule for cause, rule in rules.items() if cause in causes]


def ask(way: Way, causes: Sequence[str], program: list[str], folder: Path, hog: Any) -> list[str]:
    """Ask once, with these causes; return what is found, each with its name."""
    import ssl

    secure = bool({"proxy", "slow handshake"} & set(causes))
    tls = None
    if secure:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*common.make_certificate(folder, FAR))
    words, size = ["-k", "--json", "-"], 0
    if {"upload", "slow reader"} & set(causes):
        size = 120_000 if "slow reader" not in causes else 300_000
        (folder / "body").write_bytes(b"x" * size)
        words += ["-d", f"@{folder / 'body'}"]
    way.change(rules=rules_of(causes, secure))
    with way.far(scripted(script_of(causes, tls, hog), host=ANY)) as server:
        url = f"http{'s' * secure}://{FAR}:{server.port}/"
        words += ["-x", f"http://{FAR}:{server.port}"] if "proxy" in causes else []
        command = [*way.near, "taskset", "-c", "0", *program, *words, url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    (step,) = json.loads(done.stdout)["steps"]
    return [f"{finding['id']}: {finding['text']}" for finding in step["findings"]]


def judge(causes: Sequence[str], found: Sequence[str]) -> str:
    """Say how many of the causes are named, and what is wrong."""
    named = [cause for cause in causes if any(re.match(CAUSES[cause], each) for each in found)]
    others = [each for each in found if not any(re.match(CAUSES[cause], each) for cause in causes)]
    wrong = [each.partition(":")[0] for each in others if not each.startswith("tls12")]
    missing = [cause for cause in causes if cause not in named]
    told = ("both" if len(causes) == 2 else "named") if not missing else f"not {', '.join(missing)}"
    return told + (f"; wrong: {', '.join(wrong)}" if wrong else "")


def main() -> None:
    """Provoke each cause and each pair of causes, and print what is said."""
    options = common.parse_arguments("Name two causes of slowness at once.", 1, sys.executable)
    pairs = [*((cause,) for cause in CAUSES), *itertools.combinations(CAUSES, 2)]
    rows, program = [], [options.python, "-I", options.program]
    hog = subprocess.Popen([sys.executable, "-c", HOG], stdin=subprocess.PIPE)
    with tempfile.TemporaryDirectory() as name, path(Path(name), 0.04) as way:
        for causes in pairs:
            for _ in range(options.rounds):
                verdict = judge(causes, found := ask(way, causes, program, Path(name), hog))
                rows.append([" + ".join(causes), verdict, " | ".join(each[:70] for each in found)])
    hog.kill()
    common.print_table(["causes", "named", "what is said"], rows)
    double = [row[1] for row in rows if " + " in row[0]]
    both, wrong = sum(each.startswith("both") for each in double), sum("wrong" in row[1] for row in rows)
    print(f"both named in {both} of {len(double)} pairs; a wrong one in {wrong} of {len(rows)}")


if __name__ == "__main__":
    main()
