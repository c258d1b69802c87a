"""Run a command under a kernel that refuses some socket options, as emulations and sandboxes do.

    python refusing.py nodelay,timestamps COMMAND...

The refusals are real: a seccomp filter (Linux, Documentation/userspace-api/seccomp_filter) answers the system
calls with an error. Exit code 77 when this kernel, or this architecture, has no such filters.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

NUMBERS = {  # of socket, sendto, setsockopt and getsockopt
    "x86_64": {"socket": 41, "sendto": 44, "setsockopt": 54, "getsockopt": 55},
    "aarch64": {"socket": 198, "sendto": 206, "setsockopt": 208, "getsockopt": 209},
}
LOAD, EQUAL, SET, RETURN = 0x20, 0x15, 0x45, 0x06  # instructions of the classic BPF
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2

REFUSALS = {
    "unix": ("socket", [(0, EQUAL, socket.AF_UNIX)], errno.EACCES),
    "nodelay": ("setsockopt", [(1, EQUAL, socket.IPPROTO_TCP)], errno.ENOPROTOOPT),
    "timestamps": ("setsockopt", [(1, EQUAL, socket.SOL_SOCKET), (2, EQUAL, 35)], errno.ENOPROTOOPT),
    "tcp_info": ("getsockopt", [(1, EQUAL, socket.IPPROTO_TCP)], errno.ENOPROTOOPT),
    "more": ("sendto", [(3, SET, socket.MSG_MORE)], errno.EOPNOTSUPP),
    "eor": ("sendto", [(3, SET, socket.MSG_EOR)], errno.EINVAL),
}


def instructions(name: str) -> list[tuple[int, int, int, int]]:
    """Write one refusal as instructions (code, jump if true, jump if false, operand)."""
    call, conditions, error = REFUSALS[name]
    tests = [(0, EQUAL, NUMBERS[platform.machine()][call])]
    tests += [(16 + 8 * argument, code, operand) for argument, code, operand in conditions]
    lines = []
    for left, (offset, code, operand) in zip(range(len(tests) - 1, -1, -1), tests):
        lines += [(LOAD, 0, 0, offset), (code, 0, 2 * left + 1, operand)]
    return [*lines, (RETURN, 0, 0, ERRNO | error)]


def install(names: list[str]) -> None:
    """Have the kernel refuse what is named, from now on and in every child; raises OSError, KeyError."""
    lines = [line for name in names for line in instructions(name)] + [(RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(struct.pack("HP", len(lines), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0), (PR_SET_SECCOMP, MODE_FILTER, ctypes.addressof(program))):
        if prctl(*(ctypes.c_ulong(argument) for argument in arguments), 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    try:
        install(sys.argv[1].split(","))
    except (OSError, KeyError):
        sys.exit(77)
    os.execvp(sys.argv[2], sys.argv[2:])
