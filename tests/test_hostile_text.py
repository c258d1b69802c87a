"""Text from the network is shown, never obeyed: nothing that others send moves a cursor, turns the direction
of writing, colours, links, or fills the screen, in any mode, on success and on failure.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import ssl
import struct
import unicodedata
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checks import parse_compact
from servers import Peer, Server, http_server, redirect, scripted, sending

ESCAPES = (
    "\x1b[31mred\x1b[0m\x1b]0;owned\x07\x1b]8;;http://evil.test/\x1b\\click\x1b]8;;\x1b\\\x1b[2J\x1b[H\x1bc"
)
C1 = "\x9b31mred\x9d0;owned\x9c\x85next" + "\u009b31mred\u0085next".encode().decode("latin-1")
BIDI = "\u202egpj.exe\u202c\u2066x\u2069\u200f\u061c"
INVISIBLE = "\u200b\ufeff\u2028\u2029\U000e0041"
HOSTILE = {
    "escapes": ESCAPES,
    "controls": "\rStep 1: 200 OK\x08\x08\x0b\x0c\x7f" + C1,
    "unicode": (BIDI + INVISIBLE).encode().decode("latin-1"),
    "markup": "[bold red]x[/bold red][/][link=http://evil.test/]y[/link][blink]:skull:",
    "not-utf-8": "\xff\xfe\xc3" + C1,
}
"""What a server may send, each byte a character (Latin-1)."""

LONG = "w\xe9 " * 34_000
TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"
MODES = {"rich": [], "compact": ["--compact"], "metrics": ["--metrics-only"]}
SGR = re.compile(r"\x1b\[[0-9;]*m")
SHADE = re.compile(r"[34]8;5;\d+")
STATUS_LINE = re.compile(r"\r[^\r\n\x1b]*\x1b\[K")


def check_shown(text: str) -> None:
    """Prove that nothing in `text` does more than to be seen: only line ends and our own colours."""
    for line in SGR.sub("", STATUS_LINE.sub("", text)).split("\n"):
        wrong = [char for char in line if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
        assert not wrong, f"{wrong!r} in {line[:300]!r}"


def check_colours(text: str) -> None:
    """Prove that no colour, weight or link but those of this program is on: markup was not obeyed."""
    codes = {code for found in SGR.findall(text) for code in SHADE.sub("", found[2:-1]).split(";")}
    assert not codes & {"5", "6", "8"}, "something blinks or hides"


def check_run(result: Any) -> None:
    """Prove that a run printed nothing that a terminal would obey."""
    assert "Traceback" not in result.err
    check_shown(result.out)
    check_shown(result.err)
    check_colours(result.out + result.err)


def check_document_text(text: str) -> Any:
    """Prove that a document can be shown raw (what is invisible and moves nothing may be in it); read it."""
    wrong = [
        char for char in text if char in TURNING or (char < " " and char != "\n") or "\x7f" <= char < "\xa0"
    ]
    assert not wrong
    return json.loads(text)


def check_file(path: Path) -> Any:
    """Prove that a written document can be shown raw, and read it."""
    return check_document_text(path.read_bytes().decode("utf-8"))


# --- headers --------------------------------------------------------------------------------------

FIELDS = ("reason", "Server", "Content-Type", "Location", "Date", "Set-Cookie")


@contextlib.contextmanager
def talking(text: str) -> Iterator[Server]:
    """Serve a redirect whose every field that is shown holds `text`."""
    fields = [f"{name}: /a={text}" if name == "Location" else f"{name}: a={text}" for name in FIELDS[1:]]
    head = "\r\n".join([f"HTTP/1.1 302 {text}", *fields, "Content-Length: 0", "", ""])
    with scripted(sending(head)) as server:
        yield server


@pytest.mark.parametrize("name", HOSTILE)
def test_no_header_reaches_a_terminal_raw(run_tool, tmp_path, name):
    files = [tmp_path / "out.json", tmp_path / "out.har"]
    with talking(HOSTILE[name]) as server:
        for without in ((), ("rich",)):
            arguments = ["-L", "-m", "5", "--json", files[0], "--har", files[1], server.url()]
            check_run(run_tool(*arguments, terminal="out err", without=without))
        check_run(run_tool("--compact", "-L", "-m", "5", server.url(), terminal="out err"))
    for path in files:
        check_file(path)


def test_a_document_on_a_terminal_is_harmless_and_whole(run_tool):
    with talking("".join(HOSTILE.values())) as server:
        for option in ("--json", "--har"):
            result = run_tool(option, "-", server.url(), terminal="out")
            check_shown(result.err)
            assert check_document_text(result.out)
    with talking("\x1b[31m" + BIDI.encode().decode("latin-1")) as server:
        [step] = run_tool("--json", "-", server.url()).json()["steps"]
    assert step["response"]["server"] == "a=\x1b[31m" + BIDI


def test_markup_is_shown_to_the_letter(run_tool):
    with talking(HOSTILE["markup"]) as server:
        result = run_tool(server.url(), env={"COLUMNS": "400", "FORCE_COLOR": "1"})
    assert HOSTILE["markup"] in SGR.sub("", result.out)


def test_a_hundred_kilobytes_are_clipped_before_they_fill_the_screen(run_tool, tmp_path):
    with talking(LONG) as server:
        for without, written in (((), ["--har", tmp_path / "out.har"]), (("rich",), [])):
            result = run_tool("-L", *written, server.url(), without=without)
            check_run(result)
            assert len(result.out) < 200_000, "a screen of 12 steps with three long texts each"
            assert max(map(len, result.out.splitlines())) <= 80
        for mode in ("--compact", "--metrics-only"):
            result = run_tool(mode, "-L", server.url())
            check_run(result)
            assert max(map(len, result.out.splitlines())) < 10_000
    entry = check_file(tmp_path / "out.har")["log"]["entries"][0]
    values = {header["name"]: header["value"] for header in entry["response"]["headers"]}
    assert values["Server"] == ("a=" + LONG).strip(), "the file holds it whole"


# --- what is quoted in failures -------------------------------------------------------------------


def quoting(text: str) -> dict[str, str]:
    """Make answers each of which is a failure whose message quotes `text`."""
    return {
        "garbage": f"{text}\r\n",
        "reason-of-a-cut-body": f"HTTP/1.1 200 {text}\r\nContent-Length: 9\r\n\r\nhalf",
        "header-line": f"HTTP/1.1 200 OK\r\n{text}\r\n\r\n",
        "length": f"HTTP/1.1 200 OK\r\nContent-Length: 1{text}\r\n\r\n",
        "two-lengths": f"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2{text}\r\n\r\n",
        "chunk": f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{text}\r\n",
    }


QUOTED = [*quoting(""), "tunnel", "tunnel-garbage"]


@contextlib.contextmanager
def failing(name: str, text: str) -> Iterator[list[str]]:
    """Serve the failure `name`; yield the arguments that provoke it."""
    tunnel = {"tunnel": f"HTTP/1.1 502 {text}\r\n\r\n", "tunnel-garbage": f"{text}\r\n"}
    with scripted(sending({**quoting(text), **tunnel}[name])) as server:
        if name in tunnel:
            yield ["-x", f"http://{server.authority}", "https://a.test/"]
        else:
            yield [server.url()]


ALL = ESCAPES + C1 + HOSTILE["unicode"] + HOSTILE["markup"] + "\r\b\x0b\x7f"


@pytest.mark.parametrize("name", QUOTED)
@pytest.mark.parametrize("text", [ALL, LONG], ids=["controls", "long"])
def test_no_message_of_a_failure_reaches_a_terminal_raw(run_tool, tmp_path, name, text):
    files = [tmp_path / "out.json", tmp_path / "out.har"]
    with failing(name, text) as arguments:
        for mode in (["--compact"], []) if text == ALL else (["--compact"],):
            result = run_tool(*mode, "--json", files[0], "--har", files[1], *arguments, terminal="out err")
            assert result.code == 75
            check_run(result)
            assert len(result.out) < 40_000
        [line] = run_tool("--compact", *arguments).out.rstrip("\n").split("\n")
        assert parse_compact(line)["kind"] in ("protocol", "proxy")
    for path in files:
        check_file(path)
    error = check_file(files[0])["steps"][-1]["error"]
    assert len(error["message"]) < 3000


@contextlib.contextmanager
def over_http2(authority: Any, frame: bytes) -> Iterator[list[Any]]:
    """Answer with SETTINGS and a frame; yield the arguments that ask for it."""

    def script(peer: Peer) -> None:
        peer.send(b"\0\0\0\x04\0\0\0\0\0")
        peer.read_until(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        peer.send((len(frame) - 6).to_bytes(3, "big") + frame)
        peer.read_to_end()

    with scripted(script, tls=authority.context(alpn=("h2",))) as server:
        yield ["--cacert", authority.file, server.url()]


@pytest.mark.needs("h2")
@pytest.mark.parametrize("text", [ALL, "w" * 16_000], ids=["controls", "long"])
def test_the_words_of_a_goaway_are_harmless(run_tool, authority, text):
    frame = b"\x07\0\0\0\0\0" + struct.pack("!II", 0, 11) + text.encode("latin-1")
    with over_http2(authority, frame) as arguments:
        for mode in MODES.values():
            result = run_tool(*mode, *arguments, terminal="out err")
            check_run(result)
            assert len(result.out) < 20_000
    assert result.metrics()[0]["error"] == "protocol"


@pytest.mark.needs("h2")
def test_headers_of_http2_are_harmless(run_tool, authority, tmp_path):
    fields = [(b"server", ALL.encode("latin-1")), (b"content-type", BIDI.encode())]
    block = pytest.importorskip("hpack").Encoder().encode([(b":status", b"200"), *fields])
    with over_http2(authority, b"\x01\x05\0\0\0\x01" + block) as arguments:
        for mode in MODES.values():
            check_run(run_tool(*mode, "--json", tmp_path / "out.json", *arguments, terminal="out err"))
    check_file(tmp_path / "out.json")


# --- certificates ---------------------------------------------------------------------------------


def hostile_certificate(folder: Path, text: str) -> Path:
    """Make a self-signed certificate whose names all hold `text`; return a PEM file of it and its key."""
    pytest.importorskip("cryptography", reason="cryptography, which makes the certificate, is not installed")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    kinds = (x509.NameOID.COMMON_NAME, x509.NameOID.ORGANIZATION_NAME)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the names are longer than they ought to be
        name = x509.Name([x509.NameAttribute(kind, text, _validate=False) for kind in kinds])
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc)
    plain = "".join(char for char in text if char.isascii())
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(now).not_valid_after(now + datetime.timedelta(9))
    names = x509.SubjectAlternativeName([x509.DNSName(plain), x509.UniformResourceIdentifier(plain)])
    made = builder.add_extension(names, False).sign(key, hashes.SHA256())
    path = folder / "hostile.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


NAMES = {
    "controls": "\x1b]0;owned\x07\x9b31m\u202e\u2066[blink]:skull:\x00\r\n\x7f\u2028",
    "long": "w" * 8_000,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", [["-k"], []], ids=["shown", "refused"])
def test_the_names_of_a_certificate_are_harmless(run_tool, tmp_path, name, options):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = hostile_certificate(tmp_path, NAMES[name])
    context.load_cert_chain(str(certificate))
    trust = options or ["--cacert", certificate]
    with http_server(tls=context) as server:
        for without in ((), ("rich",)):
            arguments = [*trust, "--json", tmp_path / "out.json", server.url()]
            result = run_tool(*arguments, terminal="out err", without=without)
            check_run(result)
            assert len(result.out) < 60_000
        check_run(run_tool("--compact", *trust, server.url(), terminal="out err"))
    [step] = check_file(tmp_path / "out.json")["steps"]
    assert step["network"]["cert_cn"] == NAMES[name]


# --- redirects and arguments ----------------------------------------------------------------------

LOCATIONS = {
    "scheme": "x-\x1b[31m:\u202e",
    "host": "http://\x1b[31m\u202e/",
    "port": "http://a.test:\x9b31m/",
    "address": "http://[\x1b[31m/",
    "path": "ftp://a.test/\u202e[blink]",
    "long": "ftp://a.test/" + "w" * 100_000,
    "long-host": "http://" + "w" * 100_000 + "/",
}


@pytest.mark.parametrize("name", LOCATIONS)
def test_a_location_that_leads_nowhere_is_harmless(run_tool, tmp_path, name):
    location = LOCATIONS[name].encode().decode("latin-1")
    with http_server({"/": redirect(location)}) as server:
        for mode in ([], ["--compact"]):
            arguments = [*mode, "-L", "--json", tmp_path / "out.json", server.url()]
            result = run_tool(*arguments, terminal="out err")
            assert result.code == 75
            check_run(result)
            assert len(result.out) < 40_000
    check_file(tmp_path / "out.json")


ARGUMENTS = {
    "url": ["http://\x1b[31m\u202e/"],
    "scheme": ["\x1b[31m\u202e://a.test/"],
    "long-url": ["x://" + "w" * 100_000],
    "method": ["-X", "\x1b[31m\u202e", "http://a.test/"],
    "unknown": ["--\x1b[31m\u202e", "http://a.test/"],
    "slo": ["--slo", "\x1b[31m\u202e[blink]=1", "http://a.test/"],
    "long-slo": ["--slo", "w" * 100_000 + "=1", "http://a.test/"],
    "resolve": ["--resolve", "\x1b[31m:1:\u202e", "http://a.test/"],
    "file": ["--cacert", "/\x1b[31m\u202e", "https://a.test/"],
    "json": ["--json", "/nowhere/\x1b[31m\u202e", "http://127.0.0.1:9/"],
    "header": ["-H", "\x1b[31m\u202e: x", "http://a.test/"],
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_an_argument_holds_is_quoted_harmlessly(run_tool, name):
    result = run_tool("-m", "1", *ARGUMENTS[name], terminal="err")
    assert result.code in (64, 75)
    check_run(result)
    assert 20 < len(result.err) < 10_000
