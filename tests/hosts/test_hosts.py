"""Both forms of the program do on every host what they do here."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, NamedTuple

import pytest

from checks import ACCIDENT
from conftest import TOOL, Authority, Result
from paths import ANY, FAR, NEAR, OTHERS, path
from servers import (
    FORMERR,
    REFUSED,
    SERVFAIL,
    Reply,
    Route,
    black_hole,
    dns_server,
    http_server,
    redirect,
    scripted,
)

ARCHIVE = Path(os.environ.get("HTTPHASES_PYZ") or TOOL.parent / "dist" / "httphases.pyz").resolve()
FORMS = {"tool.py": TOOL, "pyz": ARCHIVE}


class Host(NamedTuple):
    root: Path
    python: str
    version: str
    emulated: bool

    @property
    def name(self) -> str:
        """The name of the root and the version, as in `bullseye 3.9.2`."""
        return f"{self.root.name} {self.version}"

    @property
    def patience(self) -> int:
        """Seconds after which a run is killed: the host may be emulated, and this machine busy."""
        return 240 if self.emulated else 60


def find_hosts(folder: Path) -> list[Host]:
    """List the Pythons of the roots in `folder`, as build_roots.sh noted them."""
    hosts = []
    for note in sorted(folder.glob("*/.pythons")):
        emulated = (note.parent / "usr/bin/qemu").exists()
        for line in note.read_text().splitlines():
            python, version, _ = line.split(" ", 2)
            hosts.append(Host(note.parent, python, version, emulated))
    return hosts


class Check(NamedTuple):
    """A command line, how it is to end, and a pattern that what it says must hold."""

    options: str
    """A name in braces stands for one of the fixture `places`."""
    says: str
    code: int = 0
    packages: bool | None = None
    """Whether the optional packages are to be there: tool.py is given them, the archive always has them."""
    emulated: bool = False
    """Try it on an emulated host too: what rests on the processor, or is as much as several others."""
    color: bool = False
    """Ask for colours, which only rich can give."""


PHASES = r"dns.*connect.*wait.*xfer.*total"  # plain http has no tls
MEASURED = r"connect=\d+\.\d{3} tls=\d+\.\d{3} ttfb=\d+\.\d{3} .* status=200 bytes=6 "
HALF_A_SECOND = r"total=(4[5-9]|[5-9]\d|\d{3})\d\.\d{3} .* error=timeout"

CHECKS = {
    "version": Check("--version", r"^httphases \d+\.\d+", emulated=True),
    "http": Check("--metrics-only {http}/", MEASURED + ".* tls_version=- proxy=direct"),
    "a body is sent": Check("--json - -d @- {http}/echo", '"final_bytes": 2,'),
    "redirects": Check("-L --metrics-only {http}/there", r"^Step 1: .*=302 .*\nStep 2: .*=200 "),
    "waterfall, plain": Check("{http}/", r"\A[^\x1b]*" + PHASES, packages=False, color=True),
    "waterfall, rich": Check("{http}/", r"\x1b\[.*" + PHASES, packages=True, color=True),
    "TLS 1.2": Check("--metrics-only --cacert {ca} {tls12}/", MEASURED + ".* tls_version=TLSv1.2 "),
    "TLS 1.3": Check("--metrics-only --cacert {ca} {tls13}/", MEASURED + ".* tls_version=TLSv1.3 "),
    "HTTP/2": Check(
        "--json - --cacert {ca} {http2}/", '"http_version": "HTTP/2"', packages=True, emulated=True
    ),
    "JSON": Check("--json - --cacert {ca} {tls13}/", '"cert_cn": "localhost"', emulated=True),
    "http proxy": Check("--metrics-only -x {proxy} {http}/", MEASURED + ".* proxy=http:"),
    "http proxy, tunnel": Check(
        "--metrics-only -x {proxy} --cacert {ca} {tls13}/", MEASURED + ".* proxy=http:", emulated=True
    ),
    "https proxy, tunnel": Check(
        "--metrics-only -x {tls_proxy} --cacert {ca} {tls13}/", MEASURED + ".* proxy=https:"
    ),
    "socks5h": Check(
        "--metrics-only -x socks5h://{socks} --cacert {ca} {tls13}/",
        MEASURED + ".* proxy=socks5h:",
        packages=True,
    ),
    "expired certificate": Check(
        "--compact --cacert {ca} {expired}/", r"tls: .* expired \d+ days ago", code=75, emulated=True
    ),
    "unknown CA": Check("--compact --cacert {ca} {stranger}/", "tls: .*issuer", code=75),
    "no such name": Check("--metrics-only -m 8 http://no.invalid/", "error=(dns|timeout)", code=75),
    "connect timed out": Check("--metrics-only -m 0.5 {hole}/", HALF_A_SECOND, code=75),
    "TLS timed out": Check("--metrics-only -m 0.5 {mute}/", HALF_A_SECOND, code=75),
    "body timed out": Check("--metrics-only -m 0.5 {http}/slow", HALF_A_SECOND, code=75),
    "series": Check(
        "--count 4 --interval 0 --metrics-only {http}/",
        r"^Run 4 Step 1: .* status=200 .*\nSummary 1: runs=4 failed=0 ",
        emulated=True,
    ),
    "series, kept, HTTP/2": Check(
        "--count 3 --interval 0 --reuse --metrics-only --cacert {ca} {http2}/",
        r"^Run 3 Step 1: dns=- connect=- tls=- .* status=200",
        packages=True,
    ),
    "each address": Check(
        "-4 --all-addresses --metrics-only {named}/", r"^Summary 1: runs=1 failed=0 .* target=127"
    ),
    "usage error": Check("--nonsense {http}/", "unrecognized arguments: --nonsense", code=64),
}


HOSTS = find_hosts(Path(os.environ["HTTPHASES_ROOTS"]).resolve())
ENTER = Path(__file__).with_name("enter_root.sh")
ROUTES: dict[str, Route] = {
    "/": Reply(body=b"hello\n", headers=[("Content-Type", "text/plain")]),
    "/echo": lambda asked: Reply(body=asked.body),
    "/there": redirect("/"),
    "/slow": Reply(body=b"hello\n", xfer=60),
}


def cases() -> Iterator[Any]:
    """Every check with each form on each host, but for what a host or a form is spared."""
    for host in HOSTS:
        for form in FORMS:
            for name, check in CHECKS.items():
                possible = form == "tool.py" or check.packages is not False
                if possible and (check.emulated or not host.emulated):
                    yield pytest.param(host, form, name, id=f"{host.name}-{form}-{name}")


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the optional packages as they are in the archive, for tool.py."""
    folder = tmp_path_factory.mktemp("packages")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("site-packages/")])
    return folder / "site-packages"


def limited(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    context.minimum_version = context.maximum_version = version
    return context


@pytest.fixture(scope="session")
def contexts(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> dict[str, ssl.SSLContext]:
    """The TLS of each https server by its place's name."""
    return {
        "tls12": limited(authority.context(common_name="localhost"), ssl.TLSVersion.TLSv1_2),
        "tls13": limited(authority.context(common_name="localhost"), ssl.TLSVersion.TLSv1_3),
        "expired": authority.context(days=(-90, -60)),
        "other": authority.context("other.test"),
        "stranger": Authority(tmp_path_factory.mktemp("stranger")).context(),
    }


@pytest.fixture(scope="session")
def places(
    contexts: dict[str, ssl.SSLContext],
    authority: Authority,
    http2: Any,
    proxy: Any,
    proxy_over_tls: Any,
    socks5: Any,
) -> Iterator[dict[str, Any]]:
    """Everything that a check's options name, by that name."""
    with ExitStack() as running:
        begin = running.enter_context
        plain = begin(http_server(ROUTES))
        yield {
            **{name: begin(http_server(tls=context)).url("") for name, context in contexts.items()},
            "ca": authority.file,
            "http": plain.url(""),
            "named": plain.url("", "localhost"),
            "http2": http2.url(""),
            "proxy": proxy.by_login,
            "tls_proxy": proxy_over_tls.by_login,
            "socks": f"user:secret@127.0.0.1:{socks5.port}",
            "mute": f"https://{begin(scripted(lambda peer: peer.wait(60))).authority}",
            "hole": f"http://127.0.0.1:{begin(black_hole())}",
        }


@pytest.fixture
def run(places: dict[str, Any], request: pytest.FixtureRequest) -> Callable[[Host, str, Check], Result]:

    def run_there(host: Host, form: str, check: Check) -> Result:
        words = [word.format_map(places) for word in check.options.split()]
        program = [str(ENTER), str(host.root), host.python, str(FORMS[form]), *words]
        env = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        env.update(LANG="C.UTF-8", HOME="/nonexistent")
        if check.color:
            env["FORCE_COLOR"] = "1"
        if check.packages and form == "tool.py":
            env["PYTHONPATH"] = str(request.getfixturevalue("packages"))
        done = subprocess.run(
            ["timeout", "-s", "KILL", str(host.patience), *program],
            check=False,
            capture_output=True,
            input=b"{}",
            env=env,
            cwd=TOOL.parent,
        )
        out, err = (data.decode("utf-8", "surrogateescape") for data in (done.stdout, done.stderr))
        return Result(tuple(program), done.returncode, out, err, 0.0)

    return run_there


@pytest.mark.parametrize(("host", "form", "name"), list(cases()))
def test_it_does_there_what_it_does_here(run, host, form, name):
    check = CHECKS[name]
    result = run(host, form, check)
    told = f"{' '.join(result.arguments)}\nexit code {result.code}\n{result.out}{result.err}"
    assert result.code == check.code, told
    assert re.search(check.says, result.out + result.err, re.DOTALL | re.MULTILINE), told
    assert not ACCIDENT.search(result.err), told
    if check.code == 0:
        said = [line for line in result.err.splitlines() if "a certificate of" not in line]  # with -k
        aside = any(f"{export} - " in check.options for export in ("--json", "--har", "--prometheus"))
        assert not said or aside, told
    if "--json -" in check.options:
        result.json()


MUSL = [host for host in HOSTS if host.root.name == "musl"]
NO_ANSWER = "no name server gave a usable answer"
EITHER = "-4 or -6 asks for one family alone"
COUNTED = (
    rf"the resolver \({FAR}, {OTHERS[0]}\) .*a time-out of 2 s: a name server gave no usable answer in time"
)
ZONE = {
    "mute.test": None,
    "refused.test": REFUSED,
    "failed.test": SERVFAIL,
    "malformed.test": FORMERR,
    "only-a.test": [FAR],
    "AAAA only-a.test": None,
    "good.test": [FAR],
}


@pytest.mark.skipif(not MUSL, reason="there is no root with musl")
@pytest.mark.parametrize("name", ["mute", "refused", "failed", "malformed", "only-a", "none", "good"])
def test_what_musl_makes_of_name_servers(tmp_path, name):
    """It asks all of them at once, for both families, and waits for the whole time-out of no good answer."""
    host = MUSL[0]
    enter = ["env", "-C", str(TOOL.parent), str(ENTER), str(host.root), host.python, str(TOOL)]
    with path(tmp_path, 0.0005) as way, ExitStack() as running:
        far = running.enter_context(way.far(http_server(ROUTES, host=ANY)))
        running.enter_context(way.far(dns_server(ZONE, host=NEAR)))
        way.name_servers(FAR, OTHERS[0], options="timeout:2")

        def ask(*options: str) -> tuple[str, str]:
            command = [*way.near, *enter, "--json", "-", *options, far.url(host=f"{name}.test")]
            (step,) = json.loads(subprocess.run(command, check=False, capture_output=True).stdout)["steps"]
            error = step["error"] or {"message": "", "hint": ""}
            read = [finding["text"] for finding in step["findings"] if finding["phase"] == "dns"]
            return error["message"] + error["hint"], "".join(read)

        told, read = ask()
        if name == "good":
            assert (told, read) == ("", "")
        elif name == "none":
            assert "was not found" in told and not read
        else:
            assert NO_ANSWER in told and EITHER in told and "nslookup" in told
            assert re.search(COUNTED, read)
            told, read = ask("-4")
            assert (told == "") == (name == "only-a") and EITHER not in told
