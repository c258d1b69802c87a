"""Compare how fast httphases and curl upload to Caddy over HTTP/2, and with how much memory.

Caddy is a server written in Go: it takes frames of a megabyte and returns credit for every 16 or 32 KiB, for
the connection and for the stream. It hands the body on to a server in this process that counts its bytes.
Wall and CPU time and peak memory are those of the whole process; the time of the upload alone is httphases'
own `send_ms`, which begins when its body has been read.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import common

SIZES = {"25 MB": 25 * 10**6, "100 MB": 100 * 10**6, "1 GiB": 1 << 30}
CONFIGURATION = """
{{
  admin off
  auto_https off
  servers {{
    protocols h1 h2
  }}
}}
https://localhost:{port} {{
  bind 127.0.0.1
  tls {certificate} {key}
  reverse_proxy 127.0.0.1:{onward}
}}
"""


def take(connection: socket.socket) -> None:
    """Answer each request on a connection once its whole body has come."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(1 << 20))
    data = connection.recv(65536)
    while data:
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        left = (int(length[1]) if length else 0) - len(body)
        while left:
            left -= connection.recv_into(buffer, min(left, len(buffer)))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        data = connection.recv(65536)


def listen() -> int:
    """Take uploads for ever; return the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            threading.Thread(target=take, args=listener.accept()[:1], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


@contextlib.contextmanager
def start_caddy(caddy: str, folder: Path) -> Iterator[tuple[int, Path]]:
    """Run Caddy out of a folder; yield its port and the bundle to trust."""
    certificate, key = common.make_certificate(folder, "localhost")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    places = {"port": port, "certificate": certificate, "key": key, "onward": listen()}
    (folder / "Caddyfile").write_text(CONFIGURATION.format(**places))
    command = [caddy, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(folder))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, env={**os.environ, **homes}, stdout=log, stderr=log)
    try:
        for _ in range(1000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.01)
        else:
            sys.exit(f"caddy did not start: {(folder / 'log').read_text()[-500:]}")
        yield port, certificate
    finally:
        server.terminate()
        server.wait(10)


def send_time(path: Path) -> float:
    """Return the time of the upload alone, of the run that wrote a document."""
    (step,) = json.loads(path.read_text())["steps"]
    if step["error"] or step["network"]["http_version"] != "HTTP/2":
        sys.exit(f"not uploaded over HTTP/2: {step['error']}")
    return float(step["timing"]["send_ms"])


def list_rows(rounds: int, commands: dict[str, list[str]], folder: Path, url: str) -> list[list[str]]:
    """Upload every size with every program in turn; return a row of medians for each."""
    rows = []
    for label, size in SIZES.items():
        body = folder / "body"
        body.touch()
        os.truncate(body, size)
        costs: dict[str, list[common.Cost]] = {name: [] for name in commands}
        sends = []
        for _ in range(rounds):
            for name, command in commands.items():
                option = {"curl": ["-T", str(body), "-X", "POST"]}.get(name, ["-d", f"@{body}"])
                costs[name].append(common.measure([*command, *option, url], common.plain_environment()))
            sends.append(send_time(folder / "out.json"))
        for name in commands:
            wall, cpu, peak = common.median_cost(costs[name])
            send = f"{sorted(sends)[len(sends) // 2]:.0f}" if name == "httphases" else "-"
            beyond = f"{peak - size / (1 << 20):.1f}" if name == "httphases" else "-"
            rows.append([label, name, send, f"{wall:.0f}", f"{cpu:.0f}", f"{peak:.1f}", beyond])
    return rows


def main() -> None:
    """Run the uploads and print the table."""
    options = common.parse_arguments("Compare HTTP/2 uploads to Caddy with curl's.", 3, sys.executable)
    caddy, curl = common.find_programs("caddy", "curl")
    if not common.has_module(options.python, "h2"):
        common.give_up(f"h2 is missing from {options.python} (see --python)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start_caddy(caddy, folder) as (port, certificate):
            report = ["--json", str(folder / "out.json"), "-m", "300", "--cacert", str(certificate)]
            commands = {
                "httphases": [options.python, options.program, "--metrics-only", *report],
                "curl": [curl, "-sS", "-o", "/dev/null", "--http2", "--cacert", str(certificate)],
            }
            rows = list_rows(options.rounds, commands, folder, f"https://localhost:{port}/")
    print(f"medians of {options.rounds} interleaved uploads")
    header = ["body", "program", "send ms", "wall ms", "CPU ms", "peak MiB", "beyond the body"]
    common.print_table(header, rows)


if __name__ == "__main__":
    main()
