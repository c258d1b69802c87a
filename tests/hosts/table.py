"""What is tried on which host: the roots that are there, the two forms of the program, and the checks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from conftest import TOOL

ARCHIVE = Path(os.environ.get("HTTPHASES_PYZ") or TOOL.parent / "dist" / "httphases.pyz").resolve()
FORMS = {"tool.py": TOOL, "pyz": ARCHIVE}


class Host(NamedTuple):
    root: Path
    python: str
    version: str
    emulated: bool

    @property
    def name(self) -> str:
        """The name of the root and the version, as in `bullseye 3.9.2`."""
        return f"{self.root.name} {self.version}"

    @property
    def patience(self) -> int:
        """Seconds after which a run is killed: the host may be emulated, and this machine busy."""
        return 240 if self.emulated else 60


def find_hosts(folder: Path) -> list[Host]:
    """List the Pythons of the roots in `folder`, as build_roots.sh noted them."""
    hosts = []
    for note in sorted(folder.glob("*/.pythons")):
        emulated = (note.parent / "usr/bin/qemu").exists()
        for line in note.read_text().splitlines():
            python, version, _ = line.split(" ", 2)
            hosts.append(Host(note.parent, python, version, emulated))
    return hosts


class Check(NamedTuple):
    """A command line, how it is to end, and a pattern that what it says must hold."""

    options: str
    """A name in braces stands for one of the fixture `places`."""
    says: str
    code: int = 0
    packages: bool | None = None
    """Whether the optional packages are to be there: tool.py is given them, the archive always has them."""
    emulated: bool = False
    """Try it on an emulated host too: what rests on the processor, or is as much as several others."""
    color: bool = False
    """Ask for colours, which only rich can give."""


PHASES = r"dns.*connect.*wait.*xfer.*total"  # plain http has no tls
MEASURED = r"connect=\d+\.\d{3} tls=\d+\.\d{3} ttfb=\d+\.\d{3} .* status=200 bytes=6 "
HALF_A_SECOND = r"total=(4[5-9]|[5-9]\d|\d{3})\d\.\d{3} .* error=timeout"

CHECKS = {
    "version": Check("--version", r"^httphases \d+\.\d+", emulated=True),
    "http": Check("--metrics-only {http}/", MEASURED + ".* tls_version=- proxy=direct"),
    "a body is sent": Check("--json - -d @- {http}/echo", '"final_bytes": 2,'),
    "redirects": Check("-L --metrics-only {http}/there", r"^Step 1: .*=302 .*\nStep 2: .*=200 "),
    "waterfall, plain": Check("{http}/", r"\A[^\x1b]*" + PHASES, packages=False, color=True),
    "waterfall, rich": Check("{http}/", r"\x1b\[.*" + PHASES, packages=True, color=True),
    "TLS 1.2": Check("--metrics-only --cacert {ca} {tls12}/", MEASURED + ".* tls_version=TLSv1.2 "),
    "TLS 1.3": Check("--metrics-only --cacert {ca} {tls13}/", MEASURED + ".* tls_version=TLSv1.3 "),
    "HTTP/2": Check(
        "--json - --cacert {ca} {http2}/", '"http_version": "HTTP/2"', packages=True, emulated=True
    ),
    "JSON": Check("--json - --cacert {ca} {tls13}/", '"cert_cn": "localhost"', emulated=True),
    "http proxy": Check("--metrics-only -x {proxy} {http}/", MEASURED + ".* proxy=http:"),
    "http proxy, tunnel": Check(
        "--metrics-only -x {proxy} --cacert {ca} {tls13}/", MEASURED + ".* proxy=http:", emulated=True
    ),
    "https proxy, tunnel": Check(
        "--metrics-only -x {tls_proxy} --cacert {ca} {tls13}/", MEASURED + ".* proxy=https:"
    ),
    "socks5h": Check(
        "--metrics-only -x socks5h://{socks} --cacert {ca} {tls13}/",
        MEASURED + ".* proxy=socks5h:",
        packages=True,
    ),
    "expired certificate": Check(
        "--compact --cacert {ca} {expired}/", r"tls: .* expired \d+ days ago", code=75, emulated=True
    ),
    "unknown CA": Check("--compact --cacert {ca} {stranger}/", "tls: .*issuer", code=75),
    "no such name": Check("--metrics-only -m 8 http://no.invalid/", "error=(dns|timeout)", code=75),
    "connect timed out": Check("--metrics-only -m 0.5 {hole}/", HALF_A_SECOND, code=75),
    "TLS timed out": Check("--metrics-only -m 0.5 {mute}/", HALF_A_SECOND, code=75),
    "body timed out": Check("--metrics-only -m 0.5 {http}/slow", HALF_A_SECOND, code=75),
    "series": Check(
        "--count 4 --interval 0 --metrics-only {http}/",
        r"^Run 4 Step 1: .* status=200 .*\nSummary 1: runs=4 failed=0 ",
        emulated=True,
    ),
    "series, kept, HTTP/2": Check(
        "--count 3 --interval 0 --reuse --metrics-only --cacert {ca} {http2}/",
        r"^Run 3 Step 1: dns=- connect=- tls=- .* status=200",
        packages=True,
    ),
    "each address": Check(
        "-4 --all-addresses --metrics-only {named}/", r"^Summary 1: runs=1 failed=0 .* target=127"
    ),
    "usage error": Check("--nonsense {http}/", "unrecognized arguments: --nonsense", code=64),
}
