"""Compare what whole processes take: httphases, the bare interpreter and curl.

The floor is an interpreter that imports what any such program needs. The URLs lead to a server on loopback
that answers at once; its certificate is trusted through SSL_CERT_DIR, which leaves the CA bundle of the host
in use: loading that is a part of what a user waits for. On a busy machine the CPU times say more than the
wall times. A "first run" is that of an archive just copied, in an empty home.
"""

from __future__ import annotations

import contextlib
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import common

sys.path.append(str(common.ROOT / "tests"))
from servers import Failing, scripted

FLOOR = "import argparse, http.client, ssl, socket, json"
MODES = {"metrics-only": ["--metrics-only"], "compact": ["--compact"], "waterfall": []}


@contextlib.contextmanager
def start_servers(folder: Path) -> Iterator[dict[str, str]]:
    """Run both servers, the certificate in the folder; yield the URL for each scheme."""
    certificate, key = common.make_certificate(folder, "localhost")
    (openssl,) = common.find_programs("openssl")
    hashed = subprocess.run(
        [openssl, "x509", "-noout", "-hash", "-in", certificate], check=True, capture_output=True, text=True
    )
    (folder / f"{hashed.stdout.strip()}.0").symlink_to(certificate)  # where OpenSSL looks for it
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with scripted(Failing()) as plain, scripted(Failing(), tls=context) as secure:
        yield {"http": plain.url(host="localhost"), "https": secure.url(host="localhost")}


def list_cases(python: str, program: str, urls: dict[str, str]) -> dict[tuple[str, str], list[str]]:
    """Return the command of each (program, scheme)."""
    cases = {("python3 -c pass", ""): [python, "-c", "pass"], ("floor", ""): [python, "-c", FLOOR]}
    looks = "rich" if common.has_module(python, "rich") else "plain"
    for scheme, url in urls.items():
        for file, look in ((program, looks), (str(common.ARCHIVE), "rich")):
            for mode, flags in MODES.items():
                label = f"{Path(file).name} {mode}" + (f" ({look})" if mode == "waterfall" else "")
                if Path(file).is_file():
                    cases[label, scheme] = [python, file, *flags, url]
        cases["curl", scheme] = [*common.find_programs("curl"), "-sS", url]
    if common.ARCHIVE.is_file():
        first = [python, str(common.ARCHIVE), "--metrics-only", urls["http"]]
        cases["httphases.pyz metrics-only, first run", "http"] = first
    return cases


def measure_case(label: str, command: list[str], environment: dict[str, str], folder: Path) -> common.Cost:
    """Run a case once; one called a first run gets a new copy of the archive and a new home."""
    if "first run" not in label:
        return common.measure(command, environment)
    with tempfile.TemporaryDirectory(dir=folder) as home:
        copy = shutil.copy(common.ARCHIVE, home)
        command = [copy if part == str(common.ARCHIVE) else part for part in command]
        return common.measure(command, {**environment, "HOME": home})


def main() -> None:
    debian = "/usr/bin/python3"
    default = debian if Path(debian).exists() else sys.executable
    options = common.parse_arguments("Compare start-up: wall and CPU time, peak memory.", 20, default)
    with tempfile.TemporaryDirectory() as name, start_servers(folder := Path(name)) as urls:
        environment = common.plain_environment(SSL_CERT_DIR=str(folder))
        cases = list_cases(options.python, options.program, urls)
        costs: dict[tuple[str, str], list[common.Cost]] = {case: [] for case in cases}
        for number in range(options.rounds + 1):
            for case, command in cases.items():
                cost = measure_case(case[0], command, environment, folder)
                if number:  # the first round warms up
                    costs[case].append(cost)
    medians = {case: common.median_cost(values) for case, values in costs.items()}
    floor = medians["floor", ""]
    rows = []
    for case, cost in medians.items():
        wall = [f"{cost.wall:.1f}", common.ratio(cost.wall, floor.wall)]
        cpu = [f"{cost.cpu:.1f}", common.ratio(cost.cpu, floor.cpu)]
        rows.append([*case, *wall, *cpu, f"{cost.peak:.1f}"])
    print(f"{options.python}, medians of {options.rounds} interleaved runs")
    if not common.ARCHIVE.is_file():
        print("not here, so not measured: dist/httphases.pyz")
    common.print_table(["program", "URL", "wall ms", "of floor", "CPU ms", "of floor", "peak MiB"], rows)


if __name__ == "__main__":
    main()
