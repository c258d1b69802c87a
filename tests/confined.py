"""Commands that the program is run behind: with fewer rights, or with another view of the file system."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CAPABILITIES = "-dac_override,-dac_read_search,-fowner,-chown"


def mounted(place: Path | str, options: str) -> list[str]:
    """Make the prefix of a command that sees `place` through a mount of its own."""
    prefix = ["unshare", "--mount", "sh", "-c", f'mount {options} "{place}" && exec "$@"', "sh"]
    return possible(prefix, "needs the right to mount")


def without_privilege() -> list[str]:
    """Make the prefix of a command that root runs with the rights of any other user."""
    prefix = ["setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}"]
    return possible(prefix, "needs setpriv and root") if os.geteuid() == 0 else []


def possible(prefix: list[str], reason: str) -> list[str]:
    """Return `prefix`, or skip the test where it does not work."""
    trial = [*prefix, "true"]
    if not shutil.which(prefix[0]) or subprocess.run(trial, capture_output=True, check=False).returncode:
        pytest.skip(reason)
    return prefix
