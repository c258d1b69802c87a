"""What the program does where a system lacks what Linux has: less, and nothing that hangs or crashes.

The rest of Linux is taken away from the modules; with root, /proc is too.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest

from conftest import mounted

LACKING = """
import socket
for name in "TCP_INFO MSG_MORE SO_TIMESTAMPNS SO_BINDTODEVICE".split():
    vars(socket).pop(name, None)
class Socket(socket.socket):
    def setsockopt(self, level, option, *value):
        if (level, option) == (socket.SOL_SOCKET, 35):  # SO_TIMESTAMPNS
            raise OSError(92, "Protocol not available")
        super().setsockopt(level, option, *value)
socket.socket = Socket
"""
REFUSING = """
import socket
class Socket(socket.socket):
    def setsockopt(self, level, option, *value):
        raise OSError(92, "Protocol not available")
    def getsockopt(self, level, *option):
        if level == socket.IPPROTO_TCP:
            raise OSError(92, "Protocol not available")
        return super().getsockopt(level, *option)
    def send(self, data, flags=0):
        if flags & (socket.MSG_MORE | socket.MSG_EOR):
            raise OSError(95, "Operation not supported")
        return super().send(data, flags)
socket.socket = Socket
"""
"""What is there, and does not work: so do emulations and sandboxes."""


@pytest.fixture(params=["without-proc", "refusing"])
def lacking(request: Any, tmp_path: Path, run_tool: Any) -> Any:
    """Return a function that runs the program on such a system."""
    prefix = mounted("/proc", "-t tmpfs none") if request.param == "without-proc" else []
    (tmp_path / "python").mkdir()
    code = REFUSING if request.param == "refusing" else LACKING
    (tmp_path / "python" / "sitecustomize.py").write_text(code)
    return functools.partial(run_tool, within=prefix, env={"PYTHONPATH": str(tmp_path / "python")})


def test_every_report_is_made(lacking, server):
    for style in ([], ["--metrics-only", "--count", "3", "--interval", "0"]):
        result = lacking(*style, server.url())
        assert result.code == 0 and "200" in result.out and result.err == ""
    network = lacking("-s", "--json", "/dev/stdout", server.url()).json()["steps"][0]["network"]
    assert network["tcp_rtt_ms"] is None and network["tcp_retransmits"] is None


@pytest.mark.parametrize(("option", "at"), [("-d", "@"), ("--cacert", "")])
def test_a_pipe_that_nobody_opens_is_given_up(lacking, server, tmp_path, option, at):
    os.mkfifo(tmp_path / "pipe")
    result = lacking("-m", "1", "--metrics-only", option, f"{at}{tmp_path / 'pipe'}", server.url())
    assert result.code == 64 and "the time of -m" in result.err
