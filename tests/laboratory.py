"""A path with a round trip, and the ways to ask across it: what is found there, and what is not."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any, NamedTuple

import pytest

from paths import ANY, FAR, path
from servers import Reply, http_server

RTT = 0.04
TRIES = 8
"""A machine that is short of CPUs has slow servers too: what is to be silent may be asked so often."""

on_a_path = pytest.mark.needs("root", "linux")


class Lab:
    """A path with a round trip of `RTT`, and the ways to ask across it."""

    def __init__(self, run_tool: Any, authority: Any, folder: Any) -> None:
        self.run_tool, self.authority, self.folder = run_tool, authority, folder
        self.open = contextlib.ExitStack()
        self.way: Any = None

    def start(self, round_trip: float = RTT, **settings: str) -> Lab:
        folder = self.folder / "path"
        folder.mkdir()
        names = {name.replace("__", "/"): value for name, value in settings.items()}
        self.way = self.open.enter_context(path(folder, round_trip, settings=names))
        return self

    def serve(self, server: Any) -> Any:
        return self.open.enter_context(self.way.far(server))

    def http(self, *routes: tuple[str, Reply], **settings: Any) -> str:
        """Start a server at the far end, plain unless `tls` is given; return the URL of its root."""
        server = self.serve(http_server(dict(routes or [("/", SMALL)]), host=ANY, **settings))
        return server.url("", FAR)

    def tls(self, *hosts: str, version: Any = None, names: int = 0) -> ssl.SSLContext:
        """Make the context of a server, with so many further names in its certificate."""
        more = (f"name-{number:04d}.some.long.example.test" for number in range(names))
        context = self.authority.context(FAR, *hosts, *more)
        if version:
            context.maximum_version = version
        return context

    def upload(self, size: int) -> tuple[str, str]:
        """Make a body of so many bytes; return the words that send it."""
        (self.folder / "body").write_bytes(b"x" * size)
        return "-d", f"@{self.folder / 'body'}"

    def ask(self, *arguments: Any, code: int = 0, **how: Any) -> dict[str, Any]:
        """Ask from the near end; return the JSON document."""
        trust = ["--cacert", self.authority.file] if "https://" in str(arguments) else []
        result = self.run_tool("--json", "-", *trust, *arguments, within=self.way.near, **how)
        assert result.code == code, result.err
        return result.json()

    def read(self, *arguments: Any, **how: Any) -> dict[str, dict[str, Any]]:
        """Ask, and return the findings of the last step by id."""
        return by_id(self.ask(*arguments, **how)["steps"][-1])

    def finds(self, expected: Expected, *arguments: Any, code: int = 0) -> dict[str, dict[str, Any]]:
        """Prove that asking finds what is expected; return all findings."""
        return self.agree(expected.objections, lambda: self.read(*arguments, code=code))

    def misses(self, unwanted: set[str], ask: Any) -> dict[str, dict[str, Any]]:
        """Prove that what `ask()` asks for is not said to be what it is not."""
        return self.agree(lambda found: unwanted & set(found), ask)

    def agree(self, objections: Any, ask: Any) -> Any:
        """Return what `ask()` finds without objections, of some tries, or fail; not on a starved machine."""
        for _ in range(TRIES):
            found = ask()
            wrong = objections(found)
            if not wrong:
                return found
        if "starved" in found:
            pytest.skip(f"this machine is too short of CPUs to tell: {found['starved']['cost_ms']} ms")
        raise AssertionError((wrong, found))


class Expected(NamedTuple):
    """A finding that costs `cost` ms at least, and what it says; no others may stand beside it."""

    name: str
    certainty: str
    cost: float
    words: tuple[str, ...]
    others: tuple[str, ...] = ()

    def objections(self, found: dict[str, dict[str, Any]]) -> list[Any]:
        """List what is not as expected."""
        if self.name not in found:
            return [self.name]
        finding = found[self.name]
        wrong = [word for word in self.words if word not in finding["text"]]
        wrong += sorted(set(self.others) & set(found))
        # The kernel's clock and the path's differ by a little.
        if finding["cost_ms"] < self.cost * 0.95 - 1 or finding["certainty"] != self.certainty:
            wrong.append(finding)
        return wrong


def costs(name, certainty, cost, *words, without=()):
    return Expected(name, certainty, cost, words, without)


SMALL = Reply(body=b"x" * 10)


def by_id(step: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return findings by id; a loss, which several phases may have, with its phase."""
    made = {}
    for finding in step["findings"]:
        name = finding["id"]
        made[f"loss {finding['phase']}" if name == "loss" else name] = finding
    return made
