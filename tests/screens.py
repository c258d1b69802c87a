"""What a terminal shows, for the tests to watch and to measure."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import unicodedata

from checks import flat
from conftest import PATIENCE, open_terminal

SGR = re.compile(r"\x1b\[[0-9;]*m")


def cells(text: str) -> int:
    """Count the columns that `text` takes on a terminal."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def lines_of(text: str) -> list[str]:
    return SGR.sub("", text).split("\n")


def fields_of(text: str, label: str) -> list[str]:
    """Return what stands behind a label, in one line each."""
    lines = SGR.sub("", text).replace("\r", "")
    return [
        flat(found) for found in re.findall(rf"^  {label} +(.*\n(?: {{15}}\S.*\n)*)", lines, re.MULTILINE)
    ]


TERMINAL = {"TERM": "xterm-256color"}


class Screen:
    """A terminal that can be watched while a program writes to it: `slave` is the program's end."""

    def __init__(self, columns: int) -> None:
        self._master, self.slave = open_terminal(columns)
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self.text = ""

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # that is how a terminal ends
            while True:
                data = os.read(self._master, 65536).decode(errors="replace")  # half a character may come
                with self._changed:
                    self.text += data
                    self._changed.notify_all()

    def shows(self, pattern: str) -> bool:
        """Wait until a pattern has been shown."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: re.search(pattern, self.text), PATIENCE))

    def __enter__(self) -> Screen:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.slave)
        self._reader.join(PATIENCE)
        os.close(self._master)
