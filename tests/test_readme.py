"""README and its papers do what they say: each command of their code blocks is run as it stands.

It is run in a network of its own, where the names lead to servers of these tests. Each gate is run against
each kind of server that README's table of outcomes has. `python3 -m venv …` is run by .ci/run.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import pytest

from conftest import TOOL
from paths import path
from relays import relay_proxy
from servers import Reply, http_server, redirect

ROOT = TOOL.parent
README = (ROOT / "README.md").read_text("utf-8")
MONITORING = (ROOT / "tests" / "MONITORING.md").read_text("utf-8")
REFERENCE = (ROOT / "tests" / "REFERENCE.md").read_text("utf-8")
PAPERS = ["README.md", *(f"tests/{name}.md" for name in "REFERENCE JSON MONITORING LIMITS README".split())]
LONG_ENOUGH, PATIENCE = 6, 150
"""Seconds after which a run that measures for minutes is interrupted, and any other command."""

OLD, NEW = "203.0.113.10", "203.0.113.20"
PATHS = ("/", "/slow", "/cart", "/health", "/api/orders", "/v1/health", "/v1/traces", "/v1.43/info")
GOOD = Reply(200, b"hello\n", [("Content-Type", "text/plain"), ("X-Served-By", "web-1")], wait=0.05)
ERROR_PAGE = Reply(503, b"busy\n", reason="Busy")
NO_HTTP = Reply(200, b"", [("Content-Length", "?")])
STATES = {
    "good": GOOD._replace(wait=0.02),
    "slow": GOOD._replace(wait=0.52),
    "in doubt": [GOOD._replace(wait=0.03), GOOD._replace(wait=0.08)],
    "one failed run": [GOOD] * 3 + [NO_HTTP] + [GOOD] * 100,
    "3 error pages": [GOOD] * 3 + [ERROR_PAGE] * 3 + [GOOD] * 100,
    "error pages": ERROR_PAGE,
    "login redirect": redirect("/health"),
    "dead": None,
}
"""How the server of a gate answers: in one way, in several in turn, not at all. What is good is so by far:
the machine of the tests may be busy. A new server stands beside one that is as GOOD."""


def anchors(text):
    """Return the anchors of a text's headings, as GitHub makes them."""
    titles = re.findall(
        r"^#+ (.*)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def scripts():
    """List the code blocks in the shell's language, and the steps of CI, as scripts."""
    text = README + MONITORING
    steps = re.findall(r"^- run: (.*)", "".join(blocks(text, "yaml")), re.MULTILINE)
    run = re.compile("^python3 -m venv .*", re.MULTILINE)
    return [*(run.sub("", block) for block in blocks(text, "sh")), *steps]


def examples():
    """List the commands of the pictures, and those within the text."""
    drawn = re.findall(r"^\$ (.*)", "".join(blocks(README, "")), re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", README + REFERENCE, flags=re.MULTILINE | re.DOTALL)
    return [*drawn, *re.findall(r"`(httphases [^`]*://[^`]*)`", prose)]


def gates():
    """List (command, state of the server, exit code) of README's gates and their table of outcomes."""
    block = next(block for block in blocks(README, "sh") if block.startswith("# A: "))
    commands = dict(re.findall(r"^# ([A-Z]): .*\n((?:[^#].*\n)+)", block, re.MULTILINE))
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in README.splitlines()]
    head = next(row for row in rows if row[1:3] == ["good", "slow"])
    codes = {letter: row for row in rows if row for letter in row[0].split(", ") if letter in commands}
    assert codes.keys() == commands.keys() and head[1:] == list(STATES)
    return [
        (commands[letter], state, int(code))
        for letter, row in codes.items()
        for state, code in zip(head[1:], row[1:])
        if code
    ]


HERE = """
ip address add 203.0.113.1/24 dev lo
ip -6 address add 2001:db8::10/128 dev lo nodad 2>/dev/null || true
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/run" /var/run
mount -t tmpfs none /var/lib && mkdir -p /var/lib/prometheus/node-exporter
"""
NAMES = f"""
127.0.0.1 localhost
{OLD} shop.example staging.example example.com api.internal collector
203.0.113.11 shop.example
2001:db8::10 shop.example
203.0.113.30 proxy.example
"""
ELSEWHERE = """#!/bin/sh
# Run here what ssh, docker and kubectl would run elsewhere.
case ${0##*/} in
    scp) mkdir -p "at-$2" && cp "$1" "at-$2" ;;
    ssh) mkdir -p "at-$1:" && cd "at-$1:" && shift && exec sh -c "$*" ;;
    *) while [ "$1" != python3 ]; do shift; done; exec "$@" ;;
esac
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory, authority, program) -> Path:
    """Make the folder from which commands are run, with all that they name but what the network has."""
    for tool in ("bash", "jq", "timeout", "ip", "mount"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not here")
    folder = tmp_path_factory.mktemp("desk")
    (folder / "bin").mkdir()
    for name in ("ssh", "scp", "docker", "kubectl"):
        (folder / "bin" / name).write_text(ELSEWHERE)
    (folder / "bin" / "httphases").write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    (folder / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for file in (folder / "bin").iterdir():
        file.chmod(0o755)
    shutil.copy(TOOL, folder)
    shutil.copy(authority.file, folder / "ca.pem")
    identity(folder, authority)
    with network(tmp_path_factory.mktemp("before") / "network", authority) as run:
        before = "httphases -s --count 10 --interval 0 --json before.json https://shop.example/"
        assert run(folder, folder.with_name("desk-before"), before) == (0, "")
    return folder.with_name("desk-before")


def identity(folder, authority):
    """Write a client certificate, and its key with a password."""
    from cryptography.hazmat.primitives import serialization

    key, certificate = authority.issue(authority.ca, "probe.example")
    (folder / "probe.pem").write_bytes(authority.pem(certificate))
    kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    encrypted = key.private_bytes(*kind, serialization.BestAvailableEncryption(b"pw"))
    (folder / "probe.enc.key").write_bytes(encrypted)
    (folder / "pw").write_text("pw\n")


def everywhere(reply):
    """Answer every path of README's in the same way, or in several in turn."""
    turns = itertools.cycle(reply) if isinstance(reply, list) else None
    return dict.fromkeys(PATHS, (lambda request: next(turns)) if turns else reply)


@contextlib.contextmanager
def network(folder: Path, authority, old=GOOD, new=None) -> Iterator[Callable[..., Any]]:
    """Make a network where the old server and the new one answer so; yield what runs a script there."""
    (folder / "run").mkdir(parents=True)
    (folder / "hosts").write_text(NAMES)
    tls = authority.context("shop.example", "staging.example", "example.com", "api.internal")
    with path(folder) as way, contextlib.ExitStack() as servers:

        def serve(reply, host, port, tls=None):
            server = http_server(everywhere(reply), host=host, port=port, tls=tls)
            return servers.enter_context(way.far(server))

        subprocess.run([*way.near, "sh", "-e", "-c", HERE, "sh", folder], check=True)
        for reply, host in ((old, OLD), (old, "203.0.113.11"), (new, NEW), (old, "2001:db8::10")):
            if reply is not None:
                serve(reply, host, 443, tls)
        if old is not None:
            serve(redirect("https://shop.example/", 301), OLD, 80)
            serve(Reply(), "0.0.0.0", 4318)
            serve(Reply(), str(folder / "run" / "docker.sock"), 0)
            target = serve(GOOD, OLD, 8443, tls)
            servers.enter_context(way.far(relay_proxy("http", target, host="203.0.113.30", port=3128)))
        yield functools.partial(run_script, way.near[way.near.index("nsenter") :])


def run_script(near, desk, folder, script, seconds=PATIENCE):
    """Run a script of bash in a copy of the desk; return its code, and what it said."""
    shutil.copytree(desk, folder)
    env = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SSL_CERT_FILE": str(folder / "ca.pem"),
        "TOKEN": "a-token-of-README",
        "URL": "https://shop.example/",
    }
    patience = ["timeout", "--preserve-status", "-s", "INT", str(seconds)]
    shell = ["bash", "-O", "expand_aliases", "-e", "-o", "pipefail", "-c", f'cd "$0"\n{script}', folder]
    settings: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run([*near, *patience, *shell], env=env, check=False, **settings)
    return done.returncode, done.stdout + done.stderr


def at_once(works):
    """Call functions side by side, since they wait most of the time; not all, for some must not be late."""
    with ThreadPoolExecutor(6) as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_link_leads_somewhere(paper):
    place = ROOT / paper
    for target in re.findall(r"\]\(([^)]+)\)", place.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        file = place.parent / name if name else place
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text("utf-8")), target


def test_readme_stays_readable():
    """A guide for somebody in a hurry; what is looked up has papers of its own."""
    lines = README.splitlines()
    assert len(lines) <= 280 and max(map(len, lines)) <= 120
    cells = (cell for line in lines if line[:1] == "|" for cell in re.split(r" ?(?<!\\)\| ?", line))
    assert max(map(len, cells)) <= 100
    assert len(REFERENCE.splitlines()) <= 280
    assert all(word in README for word in ("air-gapped", "offline", "keep-alive", "rate", "throughput"))


@pytest.mark.needs("root", "linux")
def test_every_command_does_what_it_says(desk, authority, tmp_path):
    asked = [(script, PATIENCE, {0}) for script in scripts()]
    asked += [(line, LONG_ENOUGH, {0, 4, 75, 130}) for line in examples()]
    with network(tmp_path / "network", authority, GOOD, STATES["good"]) as run:
        works = [
            functools.partial(run, desk, tmp_path / str(number), script, seconds)
            for number, (script, seconds, _) in enumerate(asked)
        ]
        for (script, _, codes), (code, said) in zip(asked, at_once(works)):
            assert code in codes, f"{script}\nended with {code}: {said}"


@pytest.mark.needs("root", "linux")
def test_every_gate_ends_as_readme_says(desk, authority, tmp_path):
    def pass_through(number, gate, state):
        new = GOOD._replace(wait=0.2) if state == "slow" else STATES[state]  # a canary has a hundred rounds
        hosts = (GOOD, new) if NEW in gate else (STATES[state],)
        with network(tmp_path / f"network-{number}", authority, *hosts) as run:
            return run(desk, tmp_path / str(number), gate)

    asked = gates()[::-1]  # the longest first
    works = [functools.partial(pass_through, number, *row[:2]) for number, row in enumerate(asked)]
    for (gate, state, expected), (code, said) in zip(asked, at_once(works)):
        assert code == expected, f"{state}: {gate}\nended with {code}: {said}"


def test_no_gate_judges_a_file_of_an_earlier_run():
    for script in scripts():
        for file in re.findall(r"jq -e '[^']*' (\S+)", script):
            assert f"rm -f {file};" in script.partition(f"--json {file}")[0], script
