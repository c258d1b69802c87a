"""Compare how fast httphases and curl take a body of 1 GB from nginx, and with how much memory.

The rate is the server's: what nginx logs as the time of the request, in which neither client's start-up nor
its own clock has a part. Wall and CPU time and peak memory are those of the whole process; the peak is shown
for a body of 1 MB too, to tell whether it grows with the body.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import common

SIZES = {"large": 10**9, "small": 10**6}  # file name -> bytes
ROADS = {  # name -> (scheme, flags of both programs, protocol in the log)
    "http": ("http", [], "HTTP/1.1"),
    "https HTTP/1.1": ("https", ["--http1.1"], "HTTP/1.1"),
    "https HTTP/2": ("https", [], "HTTP/2.0"),
}
CONFIGURATION = """
{user} daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
    log_format times "$server_protocol $request_time";
    access_log {folder}/access.log times;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    sendfile on; root {folder}/www;
    ssl_certificate {certificate}; ssl_certificate_key {key};
    server {{ listen 127.0.0.1:{http}; listen 127.0.0.1:{https} ssl http2; }}
}}
"""


class Run(NamedTuple):
    """One download: the server's rate in MB/s and the cost of the client's process."""

    rate: float
    cost: common.Cost


class Nginx(NamedTuple):
    """A running server: its two ports and its access log."""

    ports: dict[str, int]
    log: Path

    def last_request(self, seen: int) -> tuple[str, float]:
        """Return protocol and seconds of the request logged after the first `seen` ones."""
        for _ in range(1000):
            lines = self.log.read_text().splitlines()
            if len(lines) > seen:
                protocol, seconds = lines[-1].split()
                return protocol, float(seconds)
            time.sleep(0.005)
        sys.exit("nginx logged no request")


@contextlib.contextmanager
def start_nginx(nginx: str, folder: Path, certificate: Path, key: Path) -> Iterator[Nginx]:
    """Run nginx out of a folder, with the files of SIZES in it."""
    (folder / "www").mkdir()
    for name, size in SIZES.items():
        with (folder / "www" / name).open("wb") as file:
            file.truncate(size)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = {"http": one.getsockname()[1], "https": two.getsockname()[1]}
    user = "user root;" if os.geteuid() == 0 else ""
    text = CONFIGURATION.format(user=user, folder=folder, certificate=certificate, key=key, **ports)
    (folder / "nginx.conf").write_text(text)
    command = [nginx, "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    server = subprocess.Popen(command)
    try:
        wait_for(ports["https"], server)
        yield Nginx(ports, folder / "access.log")
    finally:
        server.terminate()
        server.wait(10)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Return once a server listens; leave if it does not."""
    for _ in range(500):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        if server.poll() is not None:
            break
        time.sleep(0.01)
    sys.exit("nginx did not start")


def download(nginx: Nginx, command: list[str], road: str, file: str) -> Run:
    """Download a file once."""
    scheme, flags, expected = ROADS[road]
    seen = len(nginx.log.read_text().splitlines())
    url = f"{scheme}://localhost:{nginx.ports[scheme]}/{file}"
    cost = common.measure([*command, *flags, url], common.plain_environment())
    protocol, seconds = nginx.last_request(seen)
    if protocol != expected:
        sys.exit(f"{' '.join(command)} spoke {protocol}, not {expected}")
    return Run(SIZES[file] / 1e6 / max(seconds, 0.001), cost)


def list_rows(road: str, programs: dict[str, list[str]], nginx: Nginx, rounds: int) -> list[list[str]]:
    """Run the programs in turn on one road; return a row of medians for each."""
    small = {name: download(nginx, command, road, "small").cost for name, command in programs.items()}
    runs: dict[str, list[Run]] = {name: [] for name in programs}
    for number in range(rounds):
        for name in sorted(programs, reverse=number % 2 == 1):
            runs[name].append(download(nginx, programs[name], road, "large"))
    rates = {name: statistics.median(run.rate for run in values) for name, values in runs.items()}
    rows = []
    for name, values in runs.items():
        cost = common.median_cost([run.cost for run in values])
        cells = [f"{rates[name]:.0f}", common.ratio(rates[name], rates["curl"]), f"{cost.wall:.0f}"]
        rows.append([road, name, *cells, f"{cost.cpu:.0f}", f"{cost.peak:.1f}", f"{small[name].peak:.1f}"])
    return rows


def main() -> None:
    """Run the downloads and print the table."""
    options = common.parse_arguments("Compare the rate of a 1 GB download with curl's.", 5, sys.executable)
    nginx, curl = common.find_programs("nginx", "curl")
    roads = list(ROADS)
    if not common.has_module(options.python, "h2"):
        print(f"h2 is missing from {options.python} (see --python): no HTTP/2")
        roads.remove("https HTTP/2")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificate, key = common.make_certificate(folder, "localhost")
        trust = ["--cacert", str(certificate)]
        programs = {
            "curl": [curl, "-sS", "-o", "/dev/null", *trust],
            "httphases": [options.python, options.program, "--metrics-only", "-m", "120", *trust],
        }
        with start_nginx(nginx, folder, certificate, key) as server:
            rows = [row for road in roads for row in list_rows(road, programs, server, options.rounds)]
    print(f"medians of {options.rounds} interleaved downloads of 1 GB")
    header = [
        "protocol",
        "program",
        "MB/s",
        "of curl",
        "wall ms",
        "CPU ms",
        "peak MiB",
        "peak MiB, 1 MB body",
    ]
    common.print_table(header, rows)


if __name__ == "__main__":
    main()
