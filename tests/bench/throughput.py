"""Compare how fast httphases and curl take a body of 1 GB from nginx, and with how much memory.

The rate is that of the bytes beyond the first megabyte: the wall time of the whole process for 1 GB less that
for 1 MB, so that no client's own clock and no start-up has a part in it. (What nginx logs as the time of a
request is read from a clock that it does not look at while it is busy sending.) Wall and CPU time and peak
memory are those of the whole process; the peak is shown for 1 MB too, to tell whether it grows with the body.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import common

sys.path.append(str(common.ROOT / "tests"))
from servers import free_port, nginx

SIZES = {"large": 10**9, "small": 10**6}  # file name -> bytes
ROADS = {  # name -> (scheme, flags of both programs)
    "http": ("http", []),
    "https HTTP/1.1": ("https", ["--http1.1"]),
    "https HTTP/2": ("https", []),
}


@contextlib.contextmanager
def start_nginx(folder: Path, certificate: Path, key: Path) -> Iterator[dict[str, int]]:
    """Run nginx out of a folder, with the files of SIZES in it; yield the port of each scheme."""
    (folder / "www").mkdir()
    for name, size in SIZES.items():
        with (folder / "www" / name).open("wb") as file:
            file.truncate(size)
    ports, server = {"http": free_port(), "https": free_port()}, f"sendfile on; root {folder}/www; "
    pair = f"ssl_certificate {certificate}; ssl_certificate_key {key};"
    secure = f"listen 127.0.0.1:{ports['https']} ssl http2; {pair}"
    with nginx(folder, ports["https"], server + f"listen 127.0.0.1:{ports['http']};", server + secure):
        yield ports


def download(ports: dict[str, int], command: list[str], road: str, file: str) -> common.Cost:
    """Download a file once and return what the process cost."""
    scheme, flags = ROADS[road]
    url = f"{scheme}://localhost:{ports[scheme]}/{file}"
    return common.measure([*command, *flags, url], common.plain_environment())


def list_rows(
    road: str, programs: dict[str, list[str]], ports: dict[str, int], rounds: int
) -> list[list[str]]:
    """Run the programs in turn on one road; return a row of medians for each."""
    runs: dict[tuple[str, str], list[common.Cost]] = {(name, file): [] for name in programs for file in SIZES}
    for number in range(rounds):
        for name in sorted(programs, reverse=number % 2 == 1):
            for file in SIZES:
                runs[name, file].append(download(ports, programs[name], road, file))
    costs = {key: common.median_cost(values) for key, values in runs.items()}
    megabytes = (SIZES["large"] - SIZES["small"]) / 1e6
    rates = {
        name: megabytes / (costs[name, "large"].wall - costs[name, "small"].wall) * 1000 for name in programs
    }
    rows = []
    for name in programs:
        large, small = costs[name, "large"], costs[name, "small"]
        cells = [f"{rates[name]:.0f}", common.ratio(rates[name], rates["curl"]), f"{large.wall:.0f}"]
        rows.append([road, name, *cells, f"{large.cpu:.0f}", f"{large.peak:.1f}", f"{small.peak:.1f}"])
    return rows


def main() -> None:
    options = common.parse_arguments("Compare the rate of a 1 GB download with curl's.", 5, sys.executable)
    _, curl = common.find_programs("nginx", "curl")
    roads = list(ROADS)
    known = subprocess.run([curl, "--version"], check=True, capture_output=True, text=True).stdout
    if "HTTP2" not in known or not common.has_module(options.python, "h2"):
        print(f"h2 is missing from {options.python} (see --python), or HTTP/2 from curl: no HTTP/2")
        roads.remove("https HTTP/2")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificate, key = common.make_certificate(folder, "localhost")
        trust = ["--cacert", str(certificate)]
        programs = {
            "curl": [curl, "-sS", "-o", "/dev/null", *trust],
            "httphases": [options.python, options.program, "--metrics-only", "-m", "120", *trust],
        }
        with start_nginx(folder, certificate, key) as ports:
            rows = [row for road in roads for row in list_rows(road, programs, ports, options.rounds)]
    print(f"medians of {options.rounds} interleaved downloads of 1 GB")
    header = "protocol|program|MB/s|of curl|wall ms|CPU ms|peak MiB|peak MiB, 1 MB body"
    common.print_table(header.split("|"), rows)


if __name__ == "__main__":
    main()
