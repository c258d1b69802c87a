"""What the program does where a system lacks what Linux has: less, and nothing that hangs or crashes.

The rest of Linux is taken away from the modules; with root, /proc is too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checks import check_document
from confined import possible
from conftest import PATIENCE, TOOL

LACKING = """
import os, runpy, socket, sys
for module, names in {
    os: "O_PATH",
    socket: "TCP_INFO MSG_MORE SO_TIMESTAMPNS SO_BINDTODEVICE",
}.items():
    for name in names.split():
        vars(module).pop(name, None)
class Socket(socket.socket):
    def setsockopt(self, level, option, *value):
        if (level, option) == (socket.SOL_SOCKET, 35):  # SO_TIMESTAMPNS
            raise OSError(92, "Protocol not available")
        super().setsockopt(level, option, *value)
socket.socket = Socket
sys.argv, sys.path[0] = sys.argv[1:], os.path.dirname(sys.argv[1])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(params=["with-proc", "without-proc"])
def lacking(request: Any, tmp_path: Path, base_environment: dict[str, str]) -> Any:
    """Return a function that runs the program on such a system."""
    prefix: list[str] = []
    if request.param == "without-proc":
        hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
        prefix = possible(hide, "needs the right to mount")
    (tmp_path / "lacking.py").write_text(LACKING)

    def run(*words: Any, env: dict[str, str] | None = None) -> Any:
        command = [*prefix, sys.executable, tmp_path / "lacking.py", TOOL, *words]
        done = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            check=False,
            env={**base_environment, **(env or {})},
            timeout=PATIENCE,
        )
        assert "Traceback" not in done.stderr and "internal error" not in done.stderr, done.stderr
        return done

    return run


def test_every_report_is_made(lacking, server):
    for style in ([], ["--compact"], ["--metrics-only"], ["--count", "3", "--interval", "0"]):
        done = lacking(*style, server.url())
        assert done.returncode == 0 and "200" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("path", ["-", "/dev/stdout"])
def test_an_export_goes_to_stdout(lacking, server, path):
    done = lacking("-s", "--json", path, server.url())
    assert done.returncode == 0, done.stderr
    network = check_document(json.loads(done.stdout))["steps"][0]["network"]
    assert network["tcp_rtt_ms"] is None and network["tcp_retransmits"] is None


def test_an_export_goes_through_links_of_the_system(lacking, server, tmp_path):
    """As /tmp and /var are where they lead to /private."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "way").symlink_to("folder")
    for _ in range(2):
        done = lacking("-s", "--json", tmp_path / "way" / "file", server.url())
        assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path / "folder") == ["file"]


@pytest.mark.parametrize(
    ("option", "at", "code", "said"),
    [
        ("-d", "@", 64, "the time of -m"),
        ("--cacert", "", 64, "the time of -m"),
        ("--json", "", 73, "No such device or address"),
    ],
)
def test_a_pipe_that_nobody_opens_is_given_up(lacking, server, tmp_path, option, at, code, said):
    os.mkfifo(tmp_path / "pipe")
    done = lacking("-m", "1", "--metrics-only", option, f"{at}{tmp_path / 'pipe'}", server.url())
    assert done.returncode == code and said in done.stderr
