"""Start processes for the tests from a small process, so that the peak memory read is theirs.

Linux starts a child's ru_maxrss at what its parent held when it was forked, and pytest holds more than the
program is allowed. Each line of standard input is an order, each line of standard output says how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time


def end(group: int, number: int) -> None:
    """Signal a process group that may be gone already."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


def run_delay(process: str) -> float:
    """Return how long (s) a process was kept waiting for a CPU; 0 where Linux does not tell."""
    try:
        with open(f"/proc/{process}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def wait_for_handlers(process: int) -> None:
    """Wait until a process has its own way with SIGTERM, or has ended; no longer where Linux does not tell.

    Python's own start, which answers SIGINT with a traceback, may take long on a busy machine.
    """
    try:
        while True:
            with open(f"/proc/{process}/status", encoding="ascii") as file:
                lines = dict(line.split(":", 1) for line in file)
            caught = int(lines["SigCgt"], 16) >> signal.SIGTERM - 1 & 1
            if caught or lines["State"].strip().startswith("Z"):
                return
            time.sleep(0.001)
    except OSError:
        return


def run(order: dict) -> dict:
    """Run one command, its streams into files; `signals` is a list of [seconds, number] to send to it, which
    are counted from the moment when it catches them.

    The seconds that it took are without those for which others had the CPUs.
    """
    kept = run_delay("self")
    with open(order["out"], "wb") as out, open(order["err"], "wb") as err:
        begun = time.monotonic()
        process = subprocess.Popen(
            order["command"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=order["env"],
            cwd=order["cwd"],
            start_new_session=True,
        )
    timers = [threading.Timer(order["patience"], end, (process.pid, signal.SIGKILL))]
    timers[0].start()
    if order["signals"]:
        wait_for_handlers(process.pid)
    for at, number in order["signals"]:
        timers.append(threading.Timer(at, end, (process.pid, number)))
        timers[-1].start()
    if sys.platform == "linux":
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    seconds = time.monotonic() - begun - (run_delay("self") - kept) - run_delay(str(process.pid))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # it was waited for here
    for timer in timers:
        timer.cancel()
    end(process.pid, signal.SIGKILL)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return {"code": code, "seconds": seconds, "peak_kib": usage.ru_maxrss}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
