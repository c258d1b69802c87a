"""Ask in situations of which it is known who owes which part of the time: what does the program say?

Both ends are real kernels, joined by a relay of TUN devices that delays and loses (tests/paths.py). The
situations, and the truth about them, are in situations.py. Judged are owners and amounts, not words:

- right: each owner of a tenth of the total or more was given 70 to 130 % of what it owes;
- wrong: a fifth of the total was given to an owner who does not owe it, or to two of whom neither does; or
  something was seen, it is said, of an owner who owes nothing;
- silent: half of the total was given to nobody, or is told by no finding;
- spoilt: the total is another than was made, three times: this machine was too busy; broken: no answer.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import common

sys.path.insert(0, str(common.ROOT / "tests"))
from situations import Scene, command_of, every_scene, far_end, lacking, start_hog

from paths import path

LOW, HIGH = 0.7, 1.3
TENTH, FIFTH, HALF = 0.1, 0.2, 0.5
SLACK, TRIES = 6.0, 3  # ms by which anything may be off; how often a busy machine is tried
VERDICTS = ("right", "partly", "silent", "wrong", "spoilt", "broken")


class Said(NamedTuple):
    """A part of the time, as the program gives it to one owner, or to one of two."""

    owners: tuple[str, ...]
    ms: float
    certainty: str

    def __str__(self) -> str:
        return f"{self.ms:.0f} {'|'.join(self.owners)}{'!' if self.certainty == 'seen' else ''}"


def read_account(step: dict[str, Any]) -> Iterator[Said]:
    for share in step["account"]:
        owners = tuple(filter(None, (share["owner"], share.get("or"))))
        yield Said(owners, share["ms"], share["certainty"])


def gather(shares: Iterable[Said]) -> list[Said]:
    """Add up what is said alike, the most first."""
    sums: dict[Any, float] = collections.defaultdict(float)
    for owners, ms, certainty in shares:
        sums[owners, certainty] += ms
    made = [Said(owners, ms, certainty) for (owners, certainty), ms in sums.items()]
    return sorted(made, key=lambda share: -share.ms)


def settle(said: Sequence[Said], owed: dict[str, float]) -> tuple[dict[str, float], list[Said]]:
    """Give what was said to whom it is owed: return how much each gets, and what is nobody's.

    What has one owner is given first, then what may have two, to whoever still lacks most.
    """
    got, rest = dict.fromkeys(owed, 0.0), []
    for share in sorted(said, key=lambda share: len(share.owners)):
        takers = [owner for owner in owed if set(owner.split("|")) & set(share.owners)]
        takers.sort(key=lambda taker: (taker.count("|"), got[taker] - owed[taker]))
        left = share.ms
        for taker in takers:
            amount = min(left, max(0.0, owed[taker] - got[taker]))
            got[taker], left = got[taker] + amount, left - amount
        rest.append(share._replace(ms=left))
        if takers:
            got[takers[0]] += left
    return got, rest


def judge(said: Sequence[Said], owed: dict[str, float], total: float, told: set[str] | None) -> str:
    """Return the verdict; `told` are the owners that findings name, None of a request that failed."""
    got, foreign = settle(said, owed)
    excess: dict[tuple[str, ...], float] = collections.defaultdict(float)
    for share in foreign:
        excess[share.owners] += share.ms
    owners = {owner for each in owed for owner in each.split("|")}
    invented = [s.ms for s in said if s.certainty == "seen" and not owners & set(s.owners)]
    if any(ms >= max(FIFTH * total, SLACK) for ms in excess.values()):
        return "wrong"
    if any(ms >= max(TENTH * total, SLACK) for ms in invented):
        return "wrong"
    if sum(share.ms for share in said) <= HALF * total:
        return "silent"
    big = [share for share in said if share.ms >= max(HALF * total, 50)]
    if told is not None and any(not told & set(share.owners) for share in big):
        return "silent"
    judged = {owner: ms for owner, ms in owed.items() if ms >= TENTH * total}
    fits = (LOW * ms - SLACK <= got[owner] <= HIGH * ms + SLACK for owner, ms in judged.items())
    return "right" if all(fits) else "partly"


def context_of(scene: Scene, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    context.set_alpn_protocols(["h2"] if scene.far == "h2" else [])
    if scene.tls == "1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def ask(scene: Scene, program: list[str], folder: Path, hog: Any) -> dict[str, Any]:
    """Play a scene once; return the truth, what was said, and the verdict."""
    (folder / "path").mkdir(exist_ok=True)
    with contextlib.ExitStack() as held:
        way = held.enter_context(path(folder / "path", scene.rtt, scene.all_rules, dict(scene.settings)))
        port = held.enter_context(far_end(scene, way, folder, context_of(scene, folder), hog))
        place = ["taskset", "-c", "0"] if scene.hog else []
        command = [*way.near, *place, *program, *command_of(scene, folder, port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)
        lost = way.lost()
    row: dict[str, Any] = {"name": scene.name, "kind": scene.kind, "truth": ""}
    if done.returncode != scene.code:
        return {**row, "verdict": "broken", "said": " ".join(done.stderr.split())[-100:]}
    document = json.loads(done.stdout)
    steps = document["runs"][scene.run - 1]["steps"] if scene.run else document["steps"]
    total = sum(step["timing"]["total_ms"] for step in steps)
    owed, said = scene.truth(total, lost), gather(share for step in steps for share in read_account(step))
    findings = [finding for step in steps for finding in step["findings"]]
    told = None if scene.code else {each["owner"] for each in findings}
    doubtful = abs(total - sum(owed.values())) > TENTH * total + SLACK
    starved = sum(share.ms for share in said if share.owners == ("here",)) >= TENTH * total
    row["truth"] = " ".join(map(str, gather(Said((owner,), ms, "") for owner, ms in owed.items())))
    row["truth"] += f" ({total:.0f} in all)" if doubtful else ""
    row |= {"total": total, "owed": owed, "said": " ".join(map(str, said))}
    row["hedged"] = sum(share.ms for share in said if len(share.owners) > 1)
    row["verdict"] = "spoilt" if doubtful else judge(said, owed, total, told)
    row["again"] = doubtful or (starved and not scene.hog)
    return {**row, "findings": [f"{each['id']}: {each['text']}" for each in findings]}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Who owes the time, and who is said to?")
    parser.add_argument("--program", default=str(common.TOOL), help="the httphases to ask")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs it")
    parser.add_argument("--only", metavar="PATTERN", default="", help="situations whose kind and name match")
    parser.add_argument("--runs", type=int, default=1, help="how often each is played")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write down everything, findings too")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    common.find_programs("openssl", "ip", "nsenter", "taskset")
    if os.geteuid() != 0:
        common.give_up("needs root")
    controls = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    rows, skipped = [], []
    with tempfile.TemporaryDirectory() as name, start_hog() as hog:
        common.make_certificate(Path(name), "shop.example")
        for scene in every_scene():
            if not re.search(options.only, f"{scene.kind}: {scene.name}"):
                continue
            if reason := lacking(scene, controls):
                skipped.append(f"{scene.name}: skipped, {reason}")
                continue
            for _ in range(options.runs):
                for _ in range(TRIES):
                    row = ask(scene, [options.python, "-I", options.program], Path(name), hog)
                    if not row.get("again"):
                        break
                rows.append(row)
                print(".", end="", file=sys.stderr, flush=True)
        hog.kill()
    print(file=sys.stderr)
    table = [[row[key] for key in ("name", "truth", "said", "verdict")] for row in rows]
    common.print_table(["situation", "truth, ms", "said (! seen)", "verdict"], table)
    counts = collections.Counter(row["verdict"] for row in rows)
    verdicts = ", ".join(f"{counts[each]} {each}" for each in VERDICTS)
    print("", *skipped, f"of {len(rows)}: {verdicts}", sep="\n")
    whole, hedged = (sum(row.get(key, 0.0) for row in rows) for key in ("total", "hedged"))
    print(f"of {whole / 1000:.0f} s {hedged / max(1, whole):.0%} was given to one of two")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
