"""Without HTTPHASES_ROOTS there is nothing to try."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("HTTPHASES_ROOTS") else ["test_hosts.py"]
