#!/usr/bin/env python3
"""httphases: make one HTTP request, or follow a redirect chain, and say where the time went.

The instants of a step, and the phases between them (durations in ms; a phase that does not apply is 0):

    start      resolved     connected      secured       first byte       done
      |---- dns ---|-- connect --|---- tls ----|---- wait -----|---- xfer ---|
      |------------------------- ttfb -------------------------|
      |-------------------------------- total -------------------------------|

The way of a request through this file, which is read from top to bottom like a story:

     1 Imports          8 Arguments      what the command line says, checked
     2 Vocabulary       9 Command line   argv -> Options
     3 Errors          10 Clock          what is measured: instants that two phases share
     4 Records         11 Certificates   DER -> Certificate
     5 Local files     12 Lookup         names to addresses
     6 Budgets         13 Wire           connection race, bytes with their time of arrival
     7 Routes          14 TLS            transport, contexts
                       15 Alerts         what TLS failures mean
                       16 Messages       reading and writing HTTP/1.1
                       17 Roads          proxies: CONNECT, SOCKS5
                       18 HTTP/2         one stream, through h2
                       19 Step           what is prepared before the clock, and the way to the server
                       20 Outcome        why a step failed; Draft -> Step
                       21 Chain          steps -> Run, under a deadline
                       22 Verdict        Run -> violations, exit code
     23 Words, 24 Documents, 25 Views    Report -> lines, JSON and HAR, blocks to draw
     26 Painters, 27 Main                the only ones that write

Three rules:
1. Upward only. Code uses names defined above it, never below; `main` is last.
2. One direction. argv -> Options -> Request -> Step -> Run -> Report -> text, JSON, HAR, exit code.
   Records are immutable; no section hands anything back to an earlier one.
3. Nothing but the wire in the timed region: no import, no file, no printing, no TLS context being built,
   no garbage collection. Everything timed runs in one thread on blocking sockets; the main thread
   only waits for it, and that is what keeps the deadline, whatever the measuring thread is stuck in.
"""

# ---------------------------------------------------------------------------------------------------------
# 1. Imports and version. The standard library only; what is optional comes through `optional`.
# ---------------------------------------------------------------------------------------------------------
from __future__ import annotations

import gc
import os
import signal
import sys

if sys.version_info < (3, 9):  # noqa: UP036 - it is copied to old machines too
    sys.stderr.write("httphases: needs Python 3.9 or newer, this is {}.{}\n".format(*sys.version_info))
    sys.exit(70)

if __name__ == "__main__":
    # Importing makes no garbage to speak of, and collecting it anyway costs 3 ms of every start.
    gc.disable()
    # Until `cli` knows better, an interrupt while importing ends the process without a word.
    for early in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(early) is not signal.SIG_IGN:
            signal.signal(early, lambda number, _: os._exit(128 + number))

try:
    import argparse
    import base64
    import datetime
    import errno
    import http.client
    import re
    import select
    import socket
    import ssl
    import stat
    import struct
    import threading
    import time
    import urllib.parse
    from collections import namedtuple
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from enum import IntEnum
except ImportError as missing:
    # A minimal Python, like Debian's python3-minimal, comes without some of its standard library.
    sys.stderr.write(
        f"httphases: this Python lacks '{missing.name or missing}': install python3, not python3-minimal\n"
    )
    sys.exit(70)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple, NoReturn
else:
    # What typing.NamedTuple does, without the 2 ms that importing typing costs every start.
    class RecordType(type):
        def __new__(meta, name, bases, namespace):
            if not bases:
                return super().__new__(meta, name, bases, namespace)
            names = namespace.pop("__annotations__")
            defaults = [namespace.pop(field) for field in names if field in namespace]
            base = namedtuple(name, names, defaults=defaults, module=__name__)
            return type(name, (base,), {**namespace, "__slots__": ()})

    NamedTuple = RecordType("NamedTuple", (), {})

__version__ = "1.0.0"


def optional(name: str) -> Any:
    """Import a package that may be absent; None when it is, or when it is unfit for this Python.

    An unfit version fails with whatever it stumbles over (TypeError, SyntaxError), not with ImportError.
    """
    try:
        return __import__(name, fromlist=["*"])
    except Exception:
        return None


# ---------------------------------------------------------------------------------------------------------
# 2. Vocabulary. Every name of the specification once, every limit with its reason.
# ---------------------------------------------------------------------------------------------------------
PHASES = ("dns", "connect", "tls", "wait", "xfer")
SLO_KEYS = ("dns", "connect", "tls", "ttfb", "wait", "xfer", "total")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
DEFAULT_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
REDIRECTS = (301, 302, 303, 307, 308)  # RFC 9110 section 15.4: those that name another place to ask

MAX_REDIRECTS = 10
DEFAULT_MAX_TIME = 20.0  # seconds
MAX_HEADER_LINES = 1000
MAX_HEADER_BYTES = 1 << 20
MAX_INTERIM = 100
MAX_HTTP2_CHATTER = 1000  # SETTINGS, PING and other frames that one response may be wrapped in
MAX_SLO_FILE = 1 << 20
MAX_CA_BUNDLE = 16 << 20
MAX_BODY = 1 << 30
MAX_URL = 256 * 1024  # characters; what servers accept is far shorter
MAX_QUERY_FIELDS = 1000  # that a HAR entry lists
MAX_TEXT = 2000  # characters of any one text from outside that are shown
MAX_FOREIGN = 200  # and of the other side's words inside a message
BUFFER = 256 * 1024  # one read; larger ones gained nothing on loopback
CONNECT_STAGGER = 0.25  # seconds before the next address is tried (RFC 8305 section 5)
HTTP2_WINDOW = 1 << 30  # nothing received is kept, so nothing but the network needs to slow the sender
WAKE_UP = 100_000  # ns that an idle machine needs to wake a program up for an answer, at the least
SHORT_OF_CPU = 2_000_000  # ns that the start was kept waiting for a CPU: 0.03-0.7 ms on an idle machine
NAPS, NAP = 20, 0.0002  # seconds each; three gave part of the gain, ten nearly all
STARVED_US = 20_000  # a step that waited so long for a CPU, and for a tenth of its time, says so
STARVED_BADLY_US = 100_000  # and so long, on stderr where the report is one line

TOKEN = (
    b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # RFC 9110 section 5.6.2
)

# Header fields whose value is a credential, for whoever reads a report that was attached to a ticket.
SECRET_HEADERS = frozenset(
    "authorization proxy-authorization cookie set-cookie x-api-key api-key x-auth-token www-authenticate "
    "proxy-authenticate authentication-info proxy-authentication-info".split()
)
# RFC 9113 section 8.2.2: what has no place in HTTP/2.
CONNECTION_HEADERS = frozenset("connection keep-alive proxy-connection transfer-encoding upgrade te".split())


class ExitCode(IntEnum):
    OK = 0
    SLO = 4
    HTTP_ERROR = 22
    REDIRECT_LIMIT = 47
    USAGE = 64
    INTERNAL = 70
    WRITE = 73
    NETWORK = 75


# ---------------------------------------------------------------------------------------------------------
# 3. Errors. One class for each way to end that is not a success; caught once, in `main` or `perform`.
# ---------------------------------------------------------------------------------------------------------
class ToolError(Exception):
    """Say in one sentence what went wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageError(ToolError):
    """The command line, or a file or variable it names, is wrong: exit 64, nothing was sent."""


class SloError(UsageError):
    """A budget is malformed: exit 64, shown in a panel."""


class NetworkError(ToolError):
    """The step failed: exit 75. `kind` is the vocabulary of the JSON export, `hint` one thing to try next."""

    def __init__(self, kind: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.hint = hint


class Interrupted(BaseException):
    """A signal asks the program to end; carries the exit code 128 + signal number."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


# ---------------------------------------------------------------------------------------------------------
# 4. Records, in order of birth. Times are integer microseconds (us) unless a name says otherwise.
# ---------------------------------------------------------------------------------------------------------
Header = tuple[str, bytes]


def server_name(host: str) -> str:
    """Return the name for SNI and verification: no final dot, no zone (RFC 6066 section 3)."""
    return host.partition("%")[0].rstrip(".")


class Url(NamedTuple):
    """A normalised http(s) URL. `host` is ASCII, lower case, without brackets; an IPv6 zone stays in it."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Return what Host and :authority say: no default port, no zone id (RFC 9110 section 7.2)."""
        host = f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        authority = self.authority
        if "%" in self.host:
            authority = authority.replace("]", "%25" + self.host.partition("%")[2] + "]", 1)
        return f"{self.scheme}://{authority}{self.target}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def server_name(self) -> str:
        return server_name(self.host)


class Body(NamedTuple):
    data: bytes
    content_type: str


class Proxy(NamedTuple):
    scheme: str
    host: str
    port: int
    username: bytes | None
    password: bytes | None

    @property
    def socks(self) -> bool:
        return self.scheme.startswith("socks")

    @property
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class Route(NamedTuple):
    """How a URL is reached. `source` names the option or variable that decided it, None when nothing did."""

    proxy: Proxy | None
    source: str | None

    def first_hop(self, url: Url) -> tuple[str, int]:
        """Return the host and port that the connection for a URL goes to."""
        return (self.proxy.host, self.proxy.port) if self.proxy else (url.host, url.port)


class Request(NamedTuple):
    """One request as it goes out. `headers` are the user's own, in order; defaults are added when sent."""

    method: str
    url: Url
    headers: tuple[Header, ...]
    body: Body | None


class CaBundle(NamedTuple):
    name: str  # the option or variable and its path, for messages
    pem: str


class Options(NamedTuple):
    """The command line, validated. `family` is a socket.AF_* constant; `environ` is what was given."""

    request: Request
    follow: bool
    max_time: float
    http2: bool
    insecure: bool
    ca_bundle: CaBundle | None
    proxy: str | None
    environ: Mapping[str, str]
    fail: bool
    family: int
    overrides: dict[tuple[str, int], str]
    style: str
    json_path: str | None
    har_path: str | None
    thresholds: dict[str, float]
    warnings: tuple[str, ...]


class Trust(NamedTuple):
    """What decides whether a certificate is believed."""

    insecure: bool
    ca_bundle: CaBundle | None


class Peer(NamedTuple):
    ip: str
    family: int
    address: tuple[Any, ...]


class Attempt(NamedTuple):
    ip: str
    duration_us: int
    error: str | None


class Certificate(NamedTuple):
    common_name: str | None
    names: tuple[str, ...]
    issuer: str
    self_signed: bool
    serial: str
    not_before: datetime.datetime
    not_after: datetime.datetime

    def days_left(self, now: datetime.datetime) -> int:
        """Return whole days until expiry; negative once it has expired."""
        return (self.not_after - now).days


class TlsInfo(NamedTuple):
    """What the handshake with the target agreed on; a failed one knows only some of it."""

    version: str | None
    cipher: str | None
    alpn: str | None
    verified: bool
    custom_ca: bool
    certificate: Certificate | None


def decode(data: bytes) -> str:
    """Return text from the network: UTF-8 as most senders mean it, else ISO-8859-1 (RFC 9110 section 5.5)."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


class Response(NamedTuple):
    status: int
    reason: str
    http_version: str
    headers: tuple[Header, ...]
    header_bytes: int | None

    def get(self, name: str) -> str | None:
        """Return the first value of a header field, None when it is absent."""
        for key, value in self.headers:
            if key.lower() == name:
                return decode(value)
        return None


class Timing(NamedTuple):
    """Durations in microseconds; None for a phase that was not reached."""

    dns: int | None
    connect: int | None
    tls: int | None
    wait: int | None
    xfer: int | None
    total: int
    send: int | None
    ttfb: int | None

    def ms(self, key: str) -> float | None:
        value: int | None = getattr(self, key)
        return None if value is None else value / 1000


class Failure(NamedTuple):
    kind: str
    phase: str
    message: str
    hint: str


class Network(NamedTuple):
    peer: Peer | None
    port: int | None
    addresses: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    tls: TlsInfo | None
    rtt_us: int | None
    retransmits: int | None


class Step(NamedTuple):
    """One request and what became of it. `starved_us` is how long this process was kept from running."""

    number: int
    url: str
    request: Request
    sent_headers: tuple[Header, ...]
    sent_header_bytes: int | None
    route: Route
    started_at: datetime.datetime
    timing: Timing
    network: Network
    response: Response | None
    body_bytes: int
    interim: tuple[int, ...]
    error: Failure | None
    starved_us: int


class Run(NamedTuple):
    steps: tuple[Step, ...]
    limit_reached: bool


class Violation(NamedTuple):
    key: str
    threshold_ms: float
    actual_ms: float
    delta_ms: float


class Verdict(NamedTuple):
    """The outcome of the budgets, for the step that they were held against."""

    step_number: int
    thresholds: dict[str, float]
    violations: tuple[Violation, ...]

    @property
    def passed(self) -> bool:
        return not self.violations


class Report(NamedTuple):
    run: Run
    verdict: Verdict | None


def is_token(text: bytes) -> bool:
    return bool(text) and not text.translate(None, TOKEN)


def parse_length(text: bytes, base: int) -> int | None:
    """Read a length as RFC 9112 sections 6.2 and 7.1 have it: digits alone, none of int()'s +5, 1_0, 0x5."""
    digits = b"0123456789" if base == 10 else b"0123456789ABCDEFabcdef"
    if not text or text.translate(None, digits):
        return None
    significant = text.lstrip(b"0") or b"0"
    return int(significant, base) if len(significant) <= 15 else None


def clip(text: str, most: int = MAX_TEXT) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def foreign(text: bytes | str) -> str:
    """Mark the other side's words in a message by NULs around them, for `own_words` to mask and clip."""
    words = decode(text) if isinstance(text, bytes) else text
    return "\0" + words.replace("\0", "\\x00") + "\0"


def mask(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def own_words(message: str, secrets: Iterable[str]) -> str:
    """Return a message whose foreign parts hold no secret of the user's and are clipped."""
    parts = message.split("\0")
    parts[1::2] = [clip(mask(part, secrets), MAX_FOREIGN) for part in parts[1::2]]
    return "".join(parts)


def mask_location(text: str) -> str:
    """Replace user:password in a Location, however malformed, by ***."""
    scheme = r"\s*[A-Za-z][A-Za-z0-9+.-]*:"
    text = re.sub(rf"^((?:{scheme})?\s*[/\\]{{2,}})[^/?#]*@", r"\1***@", text)
    return re.sub(rf"^({scheme}[/\\]?)[^/?#]*@", r"\1***@", text)


def mask_userinfo(text: str) -> str:
    """Replace the user:password part of every URL in a text by ***; in time linear in the text."""
    return re.sub(r"((?:^|:)//)[^/?#\s]*@", r"\1***@", text)


# ---------------------------------------------------------------------------------------------------------
# 5. Local files. What the command line names is read once, with a limit and a time, and nothing blocks.
# ---------------------------------------------------------------------------------------------------------
def reason_of(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def read_descriptor(descriptor: int, limit: int, until: float) -> bytes:
    """Read to the end without ever blocking past `until` (time.monotonic); raises OSError."""
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    # Standard input is the caller's and may block; everything else was opened not to.
    must_poll = descriptor == 0
    # A named pipe whose writer has not come yet looks like an empty one: give it a second.
    lonely = descriptor != 0 and stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    grace = min(until, time.monotonic() + 1.0)
    parts: list[bytes] = []
    size = 0
    while size <= limit:
        left = until - time.monotonic()
        if left <= 0:
            raise OSError(errno.ETIMEDOUT, "no end of the data came within the time of -m")
        if must_poll and not ready.poll(min(left, 3600.0) * 1000):
            continue
        try:
            chunk = os.read(descriptor, BUFFER)
        except BlockingIOError:
            must_poll, lonely = True, False
            continue
        if not chunk and not lonely:
            return b"".join(parts)
        if not chunk and time.monotonic() >= grace:
            raise OSError(errno.EPIPE, "nobody is writing to this pipe")
        if not chunk:
            time.sleep(0.01)
            continue
        lonely = False
        parts.append(chunk)
        size += len(chunk)
    raise OSError(errno.EFBIG, f"larger than {limit >> 20} MiB")


def read_local(path: str, limit: int, seconds: float) -> bytes:
    """Read a file, a pipe or, for `-`, standard input.

    Raises UsageError when it cannot be read, is larger than `limit` bytes or gives no end in `seconds`.
    """
    name = "standard input" if path == "-" else f"'{path}'"
    try:
        descriptor = 0 if path == "-" else os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {name}: {reason_of(error)}") from None
    try:
        if os.fstat(descriptor).st_size > limit:
            raise UsageError(f"cannot read {name}: larger than {limit >> 20} MiB")
        return read_descriptor(descriptor, limit, time.monotonic() + seconds)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {reason_of(error)}") from None
    finally:
        if path != "-":
            os.close(descriptor)


# ---------------------------------------------------------------------------------------------------------
# 6. Budgets. Text -> thresholds in ms, in the order of SLO_KEYS.
# ---------------------------------------------------------------------------------------------------------
def parse_number(text: str) -> float:
    """Read a positive finite decimal; raises ValueError. float() would take 1_000, nan, wide digits."""
    try:
        value = float(text) if set(text) <= set("0123456789.eE+-") else None
    except ValueError:
        value = None
    if value is None:
        raise ValueError("is not a number")
    if not 0 < value < float("inf"):
        raise ValueError("is not a positive finite number")
    return value


def add_budget(thresholds: dict[str, float], entry: str) -> None:
    """Add one KEY=MS entry; raises SloError."""
    name, equals, amount = (part.strip() for part in entry.partition("="))
    if not equals:
        raise SloError(f"Missing '=' in SLO entry '{entry.strip()}': expected KEY=MS, for example ttfb=500")
    key = name.lower()
    if key not in SLO_KEYS:
        raise SloError(f"Unknown SLO key '{name}': expected one of {', '.join(SLO_KEYS)}")
    if key in thresholds:
        raise SloError(f"Duplicate SLO key '{key}': each key may appear once")
    try:
        thresholds[key] = parse_number(amount)
    except ValueError as error:
        unit = ", without a unit" if amount.lower().endswith("s") else ""
        raise SloError(
            f"SLO value '{amount}' of '{key}' {error}: expected milliseconds above 0{unit}"
        ) from None


def parse_slo(entries: Iterable[str]) -> dict[str, float]:
    """Read budgets from KEY=MS entries; raises SloError."""
    thresholds: dict[str, float] = {}
    for entry in entries:
        add_budget(thresholds, entry)
    return thresholds


def read_slo_file(path: str, seconds: float) -> dict[str, float]:
    """Read one KEY=MS entry a line; blank lines and # lines do not count. Raises SloError."""
    try:
        text = read_local(path, MAX_SLO_FILE, seconds).decode("utf-8-sig")
    except UsageError as error:
        raise SloError(f"--slo-file: {error.message}") from None
    except UnicodeDecodeError as error:
        raise SloError(f"--slo-file '{path}' is not UTF-8: byte {error.start} cannot be read") from None
    lines = [line.strip() for line in re.split(r"\r\n|\n|\r", text)]
    entries = [line for line in lines if line and not line.startswith("#")]
    if not entries:
        raise SloError(f"Empty SLO specification: '{path}' has no KEY=MS line")
    try:
        return parse_slo(entries)
    except SloError as error:
        raise SloError(f"{error.message} (in '{path}')") from None


def parse_budgets(inline: Sequence[str] | None, path: str | None, seconds: float) -> dict[str, float]:
    """Merge --slo over --slo-file; raises SloError."""
    thresholds: dict[str, float] = {}
    if path is not None:
        thresholds.update(read_slo_file(path, seconds))
    if inline is not None:
        if not all(specification.strip() for specification in inline):
            raise SloError(
                "Empty SLO specification: expected KEY=MS[,KEY=MS], for example ttfb=500,total=2000"
            )
        thresholds.update(parse_slo(",".join(inline).split(",")))
    return {key: thresholds[key] for key in SLO_KEYS if key in thresholds}


# ---------------------------------------------------------------------------------------------------------
# 7. Routes. URLs, proxies and redirects: text -> records, no effects; the environment is an argument.
# ---------------------------------------------------------------------------------------------------------
def is_ip(host: str, family: int = socket.AF_UNSPEC) -> bool:
    """Tell whether a host is an address literal (of a family); an IPv6 zone id is allowed."""
    for candidate in (socket.AF_INET, socket.AF_INET6):
        if family in (socket.AF_UNSPEC, candidate):
            try:
                socket.inet_pton(candidate, host.partition("%")[0])
                return True
            except (OSError, ValueError):
                continue
    return False


def parse_host(text: str) -> str:
    """Return a host name in the form that goes on the wire: lower case, IDNA. Raises UsageError."""
    host = text.lower()
    if not host.isascii():
        try:
            host = text.encode("idna").decode("ascii").lower()
        except UnicodeError as error:
            raise UsageError(f"host '{clip(text, MAX_FOREIGN)}' has no IDNA form: {error}") from None
    wrong = re.search(r"[^a-z0-9._-]", host)
    if wrong:
        raise UsageError(f"host '{clip(text, MAX_FOREIGN)}' holds '{wrong[0]}', which no host name can")
    name = host[:-1] if host.endswith(".") else host
    for label in name.split("."):
        if not 1 <= len(label) <= 63:
            what = "an empty label" if not label else f"a label of {len(label)} characters, 63 are allowed"
            raise UsageError(f"host '{clip(text, MAX_FOREIGN)}' holds {what}")
    if len(name) > 253:
        raise UsageError(f"host '{clip(text, MAX_FOREIGN)}' is longer than 253 characters")
    return host


def parse_port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise UsageError(f"port '{text}' is not a number from 1 to 65535")
    return int(text)


def split_authority(text: str, default_port: int) -> tuple[str, int]:
    """Split host[:port]; brackets around IPv6. Raises UsageError."""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", text)
    if bracketed:
        address, _, zone = bracketed[1].partition("%")
        zone = zone[2:] if zone.startswith("25") and len(zone) > 2 else zone
        if not is_ip(address, socket.AF_INET6) or (
            "%" in bracketed[1] and not re.fullmatch(r"[\w.~-]+", zone, re.A)
        ):
            raise UsageError(f"'[{bracketed[1]}]' is not an IPv6 address")
        host, port = address.lower() + (f"%{zone}" if zone else ""), bracketed[2] or ""
    else:
        name, _, port = text.partition(":")
        if ":" in port or "[" in text:
            raise UsageError(f"'{text}' is not host:port; an IPv6 address goes in brackets, like [::1]:8080")
        if not name:
            raise UsageError("there is no host in it")
        host = parse_host(name)
    return host, parse_port(port) if port else default_port


def quote_target(target: str) -> str:
    """Return the request target in ASCII: a space and what is not ASCII percent-encoded as UTF-8."""
    if not target.startswith("/"):
        target = "/" + target
    printable = bytes(range(0x21, 0x7F))
    return urllib.parse.quote_from_bytes(target.encode("utf-8", "surrogateescape"), safe=printable)


def suggest_url(rest: str) -> str:
    """Say what was meant by a URL without a scheme, where that is a URL."""
    if rest.startswith("***@"):
        return f"did you mean 'https://{rest[4:]}' with -H \"Authorization: Basic …\" (or Bearer …)?"
    try:
        split_authority(re.split(r"[/?#]", rest, maxsplit=1)[0], 443)
    except UsageError:
        return "expected https://host/path"
    return f"did you mean 'https://{rest}'?"


def parse_url(text: str, drop_userinfo: bool = False) -> Url:
    """Normalise an http(s) URL; raises UsageError, whose message never repeats a password."""
    shown = clip(mask_location(text))
    if len(text) > MAX_URL:
        raise UsageError(f"URL '{shown}' is longer than {MAX_URL} characters")
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise UsageError(f"URL '{shown}' holds a control character")
    parts = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\\]*)([^#]*)", text)
    if not parts:
        shown = re.sub(r"^[^/?#]*@", "***@", shown)
        host = shown.lstrip("/")
        if re.match(r"(?i)https?:", shown):
            raise UsageError(f"URL '{shown}' lacks the // after its scheme: expected https://host/path")
        raise UsageError(f"URL '{shown}' has no scheme: {suggest_url(host)}")
    scheme, authority, target = parts[1].lower(), parts[2], parts[3]
    if scheme not in ("http", "https"):
        raise UsageError(f"URL '{shown}' has the scheme '{scheme}': only http and https can be measured")
    _, at, authority = authority.rpartition("@")
    try:
        host, port = split_authority(authority, DEFAULT_PORTS[scheme])
    except UsageError as error:
        if "@" not in text:
            raise UsageError(f"URL '{shown}': {error.message}") from None
        # A password with / ? or # in it, as people write them: say nothing of its parts.
        shown = f"{scheme}://***@{clip(text.rpartition('@')[2])}"
        if drop_userinfo:
            raise UsageError(f"URL '{shown}' cannot be read") from None
        at = "@"
    if at and not drop_userinfo:
        raise UsageError(
            f"URL '{shown}' holds a user name or password: "
            'send it as a header instead, -H "Authorization: Basic …" (or Bearer …)'
        )
    return Url(scheme, host, port, quote_target(target))


def parse_proxy(text: str, source: str) -> Proxy:
    """Read [scheme://][user:password@]host[:port]; raises UsageError, which never shows a credential."""
    scheme, separator, rest = text.partition("://")
    scheme, rest = (scheme.lower(), rest) if separator else ("http", text)
    # The last @ ends the credentials, even where a password is written as it is, with / ? # in it.
    userinfo, at, address = rest.rpartition("@")
    address = re.split(r"[/?#]", address, maxsplit=1)[0]
    shown = (f"{scheme}://" if separator else "") + ("***@" if at else "") + address
    if re.search(r"[/?#]", userinfo):
        raise UsageError(
            f"{source}: proxy '{shown}': / ? # in a user name or password are written %2F %3F %23"
        )
    if not separator and re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", rest):
        raise UsageError(f"{source}: a proxy scheme ends in ://, as in http://host:port")
    if scheme not in DEFAULT_PORTS:
        raise UsageError(
            f"{source}: proxy '{shown}' has the scheme '{scheme}': expected http, https, socks5 or socks5h"
        )
    if re.search(r"[\x00-\x20\x7f]", rest):
        raise UsageError(f"{source}: proxy '{shown}' holds blanks or control characters")
    try:
        host, port = split_authority(address, DEFAULT_PORTS[scheme])
    except UsageError as error:
        raise UsageError(f"{source}: proxy '{shown}': {error.message}") from None
    name, colon, secret = userinfo.partition(":")
    username = urllib.parse.unquote_to_bytes(name) if at else None
    password = urllib.parse.unquote_to_bytes(secret) if colon else None
    if scheme.startswith("socks") and max(len(username or b""), len(password or b"")) > 255:
        raise UsageError(f"{source}: SOCKS5 user names and passwords have at most 255 bytes (RFC 1929)")
    return Proxy(scheme, host, port, username, password)


def proxy_variable(scheme: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return (name, value) of the variable that names a scheme's proxy, lower case before upper case."""
    names = [f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"]
    if "REQUEST_METHOD" in environ:
        names.remove(
            "HTTP_PROXY"
        ) if scheme == "http" else None  # CGI: a Proxy header would set it (CVE-2016-5385)
    return next(((name, environ[name]) for name in names if environ.get(name)), None)


def address_in(host: str, network: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def bypasses(url: Url, no_proxy: str) -> bool:
    """Tell whether NO_PROXY covers a URL: *, host, domain suffix, host:port, address, CIDR."""
    host = url.host.partition("%")[0].rstrip(".")
    for entry in re.split(r"[,\s]+", no_proxy.strip().lower()):
        if not entry.isascii():
            try:
                entry = entry.encode("idna").decode("ascii")
            except UnicodeError:
                continue
        if entry == "*":
            return True
        bracketed = re.fullmatch(r"\[([^\]]+)\](?::([0-9]+))?", entry)
        plain = re.fullmatch(r"([^:]*):([0-9]+)", entry)
        name, port = (
            (bracketed[1], bracketed[2]) if bracketed else (plain[1], plain[2]) if plain else (entry, None)
        )
        if not name or (port and int(port[:6]) != url.port):
            continue
        if is_ip(host):
            if name == host or address_in(host, name):
                return True
        else:
            name = name.lstrip("*").strip(".")
            if name and (host == name or host.endswith("." + name)):
                return True
    return False


def choose_route(url: Url, proxy: str | None, environ: Mapping[str, str]) -> Route:
    """Decide how a URL is reached, --proxy before the environment. Raises UsageError if it is malformed."""
    if proxy is not None:
        return Route(parse_proxy(proxy, "--proxy"), "--proxy") if proxy else Route(None, "--proxy")
    variable = proxy_variable(url.scheme, environ)
    if not variable:
        return Route(None, None)
    found = parse_proxy(variable[1], variable[0])
    if bypasses(url, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return Route(None, "NO_PROXY")
    return Route(found, variable[0])


def absolute(base: str, reference: str) -> str:
    """Resolve a reference against a URL (RFC 3986 section 5); what has a scheme or a host stays as it is."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|//", reference):
        return reference
    return urllib.parse.urljoin(base, reference.replace(" ", "%20"))


def resolve_location(url: Url, locations: Sequence[bytes]) -> Url:
    """Return where a redirect leads (RFC 9110 section 10.2.2, RFC 3986 section 5).

    Raises NetworkError of kind `redirect`.
    """
    hint = "The server's redirect is at fault: ask whoever runs it, or request the intended URL directly."
    if len(set(locations)) > 1:
        raise NetworkError("redirect", "the redirect names two different Locations", hint)
    # Bytes that are not UTF-8 are to be percent-encoded as they are.
    text = locations[0].decode("utf-8", "surrogateescape").strip(" \t")
    shown = clip(mask_location(decode(locations[0])))
    if not text.partition("#")[0]:
        return url
    if len(text) > MAX_URL:
        raise NetworkError("redirect", f"the redirect's Location is longer than {MAX_URL} characters", hint)
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise NetworkError("redirect", f"the redirect's Location '{shown}' holds a control character", hint)
    try:
        if text.startswith("//"):
            text = f"{url.scheme}:{text}"
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(?!//)", text)
        if scheme:
            raise UsageError(
                f"'{shown}' has the scheme '{scheme[1]}': only http:// and https:// can be followed"
            )
        return parse_url(absolute(url.text, text), drop_userinfo=True)
    except UsageError as error:
        raise NetworkError("redirect", f"the redirect cannot be followed: {error.message}", hint) from None
    except ValueError as error:
        raise NetworkError(
            "redirect", f"the redirect's Location '{shown}' is no URL: {error}", hint
        ) from None


def next_request(request: Request, status: int, url: Url) -> Request:
    """Return the request that a redirect asks for (RFC 9110 section 15.4)."""
    method, body, headers = request.method, request.body, request.headers
    if status == 303 or (status in (301, 302) and method == "POST"):
        method = "HEAD" if method == "HEAD" else "GET"
        body = None
        headers = tuple(item for item in headers if not item[0].lower().startswith("content-"))
    if url.origin != request.url.origin:
        # Proxy-Authorization stays: it only ever goes to a proxy, which is the same for every origin.
        private = SECRET_HEADERS - {"proxy-authorization"} | {"host"}
        headers = tuple(item for item in headers if item[0].lower() not in private)
    return Request(method, url, headers, body)


# ---------------------------------------------------------------------------------------------------------
# 8. Arguments. One value of the command line each: text -> a checked value, or a UsageError that names it.
# ---------------------------------------------------------------------------------------------------------
def parse_header(text: str) -> Header:
    """Read 'Name: value'; raises UsageError that never repeats the value."""
    name, colon, value = text.partition(":")
    if not colon:
        raise UsageError("-H: a header has no colon: expected 'Name: value'")
    if not is_token(os.fsencode(name)):
        raise UsageError("-H: what stands before the colon is not a header name: expected 'Name: value'")
    if re.search(r"[\r\n\0]", value):
        raise UsageError(f"-H: the value of header '{name}' holds a line break or NUL")
    if name.lower() == "transfer-encoding":
        raise UsageError("-H: 'Transfer-Encoding' cannot be set: the body is sent with its length")
    return name, os.fsencode(value.strip(" \t"))


def check_length(headers: Iterable[Header], body: Body | None) -> None:
    """Raise UsageError for a Content-Length that is not the body's."""
    length = len(body.data) if body else 0
    for name, value in headers:
        if name.lower() == "content-length" and parse_length(value, 10) != length:
            raise UsageError(
                f"-H: 'Content-Length' is not the body's, which has {length} bytes: leave it out"
            )


def parse_resolve(texts: Iterable[str], family: int) -> dict[tuple[str, int], str]:
    """Read HOST:PORT:ADDR entries; raises UsageError."""
    overrides: dict[tuple[str, int], str] = {}
    for text in texts:
        entry = re.fullmatch(r"(\[[^\]]*\]|[^:]*):([^:]*):(.+)", text)
        if not entry:
            raise UsageError(f"--resolve '{text}': expected HOST:PORT:ADDR")
        address = entry[3][1:-1] if re.fullmatch(r"\[.*\]", entry[3]) else entry[3]
        try:
            host, port = split_authority(f"{entry[1]}:{parse_port(entry[2])}", 0)
        except UsageError as error:
            raise UsageError(f"--resolve '{text}': {error.message}") from None
        if not is_ip(address):
            raise UsageError(f"--resolve '{text}': '{address}' is not an IPv4 or IPv6 address")
        if not is_ip(address, family):
            raise UsageError(f"--resolve '{text}': -4 or -6 excludes the address '{address}'")
        if (host, port) in overrides:
            raise UsageError(f"--resolve '{text}': {entry[1]}:{port} was given before")
        overrides[host, port] = address
    return overrides


def parse_method(text: str | None, has_data: bool) -> str:
    if text is None:
        return "POST" if has_data else "GET"
    if not text.isascii() or text.upper() not in METHODS:
        raise UsageError(f"method '{text}' is not one of {', '.join(METHODS)}")
    return text.upper()


def parse_seconds(text: str) -> float:
    try:
        return parse_number(text)
    except ValueError as error:
        raise UsageError(f"-m '{text}' {error}: expected seconds above 0, for example 5 or 0.5") from None


def is_json(data: bytes) -> bool:
    """Tell whether bytes are strict JSON (RFC 8259): UTF-8, no NaN, no Infinity."""
    if not data.strip():
        return False
    import json

    def reject(constant: str) -> NoReturn:
        raise ValueError(constant)

    try:
        # Numbers stay text: one of 5,000 digits is JSON too, but no int().
        json.loads(data.decode("utf-8"), parse_constant=reject, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def detect_type(data: bytes, extension: str) -> str:
    """Return the media type of a body: by file extension, else by what the bytes are."""
    by_extension = {
        ".json": "application/json",
        ".xml": "application/xml",
        ".txt": "text/plain; charset=utf-8",
    }
    if extension in by_extension:
        return by_extension[extension]
    if is_json(data):
        return "application/json"
    if re.match(rb"(?:\xef\xbb\xbf)?\s*<(?:\?xml|[A-Za-z_:])", data):
        return "application/xml"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain; charset=utf-8"


def read_body(argument: str | None, seconds: float, typed: bool) -> Body | None:
    """Load -d's text or file and name its media type, unless the user did (`typed`); raises UsageError."""
    if argument is None:
        return None
    if not argument.startswith("@"):
        data = os.fsencode(argument)
        return Body(data, "" if typed else detect_type(data, ""))
    path = argument[1:]
    if not path:
        raise UsageError("-d '@': expected a file name after @, or @- for standard input")
    try:
        data = read_local(path, MAX_BODY, seconds)
    except UsageError as error:
        raise UsageError(f"-d: {error.message}") from None
    return Body(data, "" if typed else detect_type(data, os.path.splitext(path)[1].lower()))


def read_ca_bundle(path: str, option: str, seconds: float) -> CaBundle:
    """Return the certificates of a PEM file; raises UsageError when there are none."""
    try:
        data = read_local(path, MAX_CA_BUNDLE, seconds)
    except UsageError as error:
        raise UsageError(f"{option}: {error.message}") from None
    pem = re.findall(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", data)
    if not pem:
        raise UsageError(f"{option}: '{path}' holds no certificate: expected a PEM file")
    return CaBundle(f"{option} '{path}'", b"\n".join(pem).decode("latin-1"))


def load_ca_bundle(context: ssl.SSLContext, bundle: CaBundle) -> None:
    """Trust the certificates of a bundle; raises UsageError when one of them cannot be read."""
    try:
        context.load_verify_locations(cadata=bundle.pem)
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(f"{bundle.name} holds a certificate that cannot be read: {error}") from None


# ---------------------------------------------------------------------------------------------------------
# 9. Command line. The grammar of argv, what excludes what; the last place where a UsageError can arise.
# ---------------------------------------------------------------------------------------------------------
EXAMPLES = """\
exit codes (the first that applies, from the top):
  130 ended by SIGINT, 143 by SIGTERM
   64 usage error: the command line or a file it names is wrong; nothing sent
   70 internal error
   47 more than 10 redirects with -L
   75 network or TLS failure, deadline included, on any step
   73 a report could not be written
   22 HTTP 4xx or 5xx, with --fail
    4 a latency budget was exceeded
    0 success

examples:
  httphases https://example.com/
      where does the time go?
  httphases -L --compact http://example.com/
      a redirect chain, one line a step
  httphases --metrics-only --slo ttfb=300,total=1000 -m 5 https://example.com/
      a probe: exit 4 when too slow, 75 when broken

Reported times are milliseconds, sizes are bytes as transferred. HTTP_PROXY, HTTPS_PROXY,
ALL_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR, SSLKEYLOGFILE, NO_COLOR,
FORCE_COLOR and COLUMNS are honoured.
"""


OPTION_HINTS = {  # for those who are used to curl's
    "-u": 'credentials go as a header, -H "Authorization: Basic …"',
    "--user": 'credentials go as a header, -H "Authorization: Basic …"',
    "-I": "use -X HEAD",
    "--head": "use -X HEAD",
}


class Once(argparse.Action):
    """An option whose earlier value would be lost if it were given again."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if getattr(namespace, self.dest) is not None:
            raise UsageError(f"{option_string} was given twice")
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(mask_location(message))

    def parse_all(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Parse a whole command line; what is not understood is named, but never with its value."""
        # With -4 and -6 among the options, argparse would take the -1 of `-m -1` for another.
        self._has_negative_number_optionals.clear()
        args, unknown = self.parse_known_args(argv)
        names = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        if not names:
            args.url += unknown
            return args
        names = [name[:2] if set(name) & {":", "@"} else name for name in names]  # -ubob:password
        hints = [OPTION_HINTS[name] for name in names if name in OPTION_HINTS]
        hint = hints[0] if hints else "--help lists the options there are"
        raise UsageError(f"unrecognized arguments: {' '.join(names)}; {hint}")


def build_parser(width: int) -> Parser:
    parser = Parser(
        prog="httphases",
        usage="httphases [OPTIONS] URL",
        description="Make one HTTP request, or follow a redirect chain, and say where the time went.",
        epilog=EXAMPLES,
        # Without a width argparse imports shutil, with bz2 and lzma, for every option that is added.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=width),
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("url", nargs="*", metavar="URL", help="http:// or https:// URL")
    add = parser.add_argument_group("request").add_argument
    add(
        "-X",
        "--request",
        "--method",
        dest="method",
        metavar="METHOD",
        help=f"one of {', '.join(METHODS)} (default: GET, with -d POST)",
    )
    add(
        "-d",
        "--data",
        action=Once,
        metavar="DATA",
        help="request body: text, @FILE, or @- for standard input",
    )
    add(
        "-H",
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="add a header; may be repeated",
    )
    add(
        "-L",
        "--location",
        "--follow",
        dest="follow",
        action="store_true",
        help=f"follow up to {MAX_REDIRECTS} redirects, each a step",
    )
    add(
        "-m",
        "--max-time",
        "--timeout",
        dest="max_time",
        default="20",
        metavar="SECONDS",
        help="give up after this time in all (default: 20)",
    )
    add("-f", "--fail", action="store_true", help="exit 22 when the last response is 4xx or 5xx")
    add = parser.add_argument_group("connection").add_argument
    add("-4", "--ipv4", action="store_true", help="use IPv4 addresses only")
    add("-6", "--ipv6", action="store_true", help="use IPv6 addresses only")
    add(
        "--resolve",
        action="append",
        default=[],
        metavar="HOST:PORT:ADDR",
        help="use ADDR for HOST:PORT, without a lookup; may be repeated",
    )
    add(
        "-x",
        "--proxy",
        metavar="URL",
        help="http, https, socks5 or socks5h proxy; '' for none, whatever the environment says",
    )
    add("--no-http2", "--http1.1", dest="http1", action="store_true", help="do not offer HTTP/2")
    add = parser.add_argument_group("TLS").add_argument
    add(
        "-k",
        "--insecure",
        "--ignore-ssl",
        dest="insecure",
        action="store_true",
        help="do not verify certificates; allow old protocols and weak ciphers",
    )
    add(
        "--cacert",
        "--ca-bundle",
        dest="cacert",
        metavar="PATH",
        help="trust the CAs in this PEM file, and no others",
    )
    add = parser.add_argument_group("output (default: a drawn waterfall)").add_argument
    add("--compact", action="store_true", help="one line a step")
    add("--metrics-only", action="store_true", help="one line of key=value tokens a step")
    add(
        "--json",
        action=Once,
        metavar="PATH",
        help="write the JSON export; - for standard output (the report moves to stderr)",
    )
    add("--har", action=Once, metavar="PATH", help="write an HTTP archive (HAR 1.2); - for standard output")
    add = parser.add_argument_group("latency budgets").add_argument
    add(
        "--slo",
        action="append",
        metavar="KEY=MS[,KEY=MS]",
        help=f"budgets in ms for {', '.join(SLO_KEYS)}; exit 4 when exceeded",
    )
    add(
        "--slo-file",
        action=Once,
        metavar="PATH",
        help="read budgets from a file, one KEY=MS a line; --slo wins",
    )
    add = parser.add_argument_group("about").add_argument
    add("-h", "--help", action="help", help="show this and exit")
    add("--version", action="version", version=f"httphases {__version__}", help="show the version and exit")
    return parser


def is_stdout(path: str | None) -> bool:
    return path in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False


def same_file(first: str, second: str) -> bool:
    if is_stdout(first) or is_stdout(second):
        return is_stdout(first) and is_stdout(second)
    try:
        return os.path.realpath(first) == os.path.realpath(second) and not is_device(first)
    except (OSError, ValueError):
        return False


def check_conflicts(args: argparse.Namespace) -> None:
    """Raise UsageError for options that exclude each other."""
    if args.ipv4 and args.ipv6:
        raise UsageError("-4 and -6 exclude each other")
    if args.insecure and args.cacert is not None:
        raise UsageError("-k and --cacert exclude each other: verify with that bundle, or not at all")
    for option, path in (("--json", args.json), ("--har", args.har), ("--cacert", args.cacert)):
        if path == "":
            raise UsageError(f"{option} '': expected a path")
    if args.json is not None and args.har is not None and same_file(args.json, args.har):
        raise UsageError(f"--json and --har both write to '{args.har}'")


def check_routes(options: Options) -> None:
    """Raise UsageError where a proxy that the run may need is malformed, or SOCKS has no PySocks."""
    schemes = ("http", "https") if options.follow else (options.request.url.scheme,)
    for scheme in schemes:
        route = choose_route(options.request.url._replace(scheme=scheme), options.proxy, options.environ)
        if route.proxy and route.proxy.socks and optional("socks") is None:
            raise UsageError(
                f"{route.source}: a SOCKS proxy needs PySocks, which is not installed: "
                "pip install PySocks, or use httphases.pyz, which contains it"
            )


def explain_urls(urls: Sequence[str], headers: Sequence[str]) -> str:
    """Say why none or several words are no URL; what looks like part of a header is not repeated."""
    if not urls:
        return "no URL given: httphases [OPTIONS] URL; --help shows more"
    for header in headers:
        if header.endswith(":"):
            return f"expected one URL, got {len(urls)} words: -H '{header} …' needs quotes around all of it"
    name, colon, rest = urls[1].partition(":")
    if colon and is_token(os.fsencode(name)) and not rest.startswith("//"):
        return f"expected one URL, got {len(urls)}: is '{name}: …' a header? It goes after -H"
    return f"expected one URL, got {len(urls)}: '{clip(mask_location(urls[1]))}' is one too many"


def parse_options(argv: Sequence[str] | None, environ: Mapping[str, str], width: int) -> Options:
    """Read and check the whole command line; raises UsageError, or SystemExit after --help and --version.

    `width` is how many columns --help may take.
    """
    args = build_parser(width).parse_all(argv)
    if len(args.url) != 1:
        taken = [value for value in vars(args).values() if isinstance(value, str) and "://" in value]
        if not args.url and taken:
            raise UsageError(
                f"no URL given: '{clip(mask_location(taken[0]))}' was taken as the value of an option"
            )
        raise UsageError(explain_urls(args.url, args.header))
    check_conflicts(args)
    seconds = parse_seconds(args.max_time)
    thresholds = parse_budgets(args.slo, args.slo_file, seconds)
    url = parse_url(args.url[0])
    method = parse_method(args.method, args.data is not None)
    family = socket.AF_INET if args.ipv4 else socket.AF_INET6 if args.ipv6 else socket.AF_UNSPEC
    overrides = parse_resolve(args.resolve, family)
    ca_bundle = None if args.cacert is None else read_ca_bundle(args.cacert, "--cacert", seconds)
    if ca_bundle and not url.secure:  # for https the handshake's context finds out, before anything is sent
        load_ca_bundle(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ca_bundle)
    headers = tuple(parse_header(header) for header in args.header)
    body = read_body(args.data, seconds, any(name.lower() == "content-type" for name, _ in headers))
    check_length(headers, body)
    warnings = []
    if args.method and method in ("GET", "HEAD") and body is not None:
        warnings.append(f"{method} with a request body: many servers ignore it or refuse it")
    if args.compact and args.metrics_only:
        warnings.append("--metrics-only wins over --compact")
    for host, port in overrides if not args.follow and args.proxy is None else ():
        if (host, port) != (url.host, url.port):
            warnings.append(
                f"--resolve {host}:{port} is not the URL's {url.host}:{url.port} and was not used"
            )
    options = Options(
        request=Request(method, url, headers, body),
        follow=args.follow,
        max_time=seconds,
        http2=not args.http1,
        insecure=args.insecure,
        ca_bundle=ca_bundle,
        proxy=args.proxy,
        environ=environ,
        fail=args.fail,
        family=family,
        overrides=overrides,
        style="metrics" if args.metrics_only else "compact" if args.compact else "waterfall",
        json_path=args.json,
        har_path=args.har,
        thresholds=thresholds,
        warnings=tuple(warnings),
    )
    check_routes(options)
    return options


# ---------------------------------------------------------------------------------------------------------
# 10. Clock. Instants shared by two phases, so that phases leave no hole; nanoseconds of time.perf_counter_ns.
# ---------------------------------------------------------------------------------------------------------
class Stopwatch:
    """The instants of one step: its start, and the end of each phase so far, in the order of PHASES."""

    def __init__(self) -> None:
        self.start = 0
        self.ends: list[int] = []
        self.sent: int | None = None

    def begin(self) -> None:
        self.start = time.perf_counter_ns()

    @property
    def phase(self) -> str:
        """Return the phase under way."""
        return PHASES[min(len(self.ends), len(PHASES) - 1)]

    @property
    def newest(self) -> int:
        return self.ends[-1] if self.ends else self.start

    def end(self, phase: str, at: int | None = None) -> None:
        """Stamp the end of the phase under way; an instant never lies before the one before it."""
        assert phase == self.phase, (phase, self.phase)
        self.ends.append(max(self.newest, time.perf_counter_ns() if at is None else at))

    def timing(self, failed_at: int | None) -> Timing:
        """Round every instant to a microsecond from the start, then subtract: all sums are exact.

        `failed_at` closes the phase under way of a failed step; the later ones stay None.
        """
        ends = list(self.ends)
        reached = len(ends)
        if failed_at is not None and len(ends) < len(PHASES):
            ends.append(max(self.newest, failed_at))
        offsets = [0] + [round((end - self.start) / 1000) for end in ends]
        spans: list[int | None] = [after - before for before, after in zip(offsets, offsets[1:])]
        dns, connect, tls, wait, xfer = spans + [None] * (len(PHASES) - len(spans))
        send = None
        if reached >= 3 and wait is not None:
            last = min(self.sent or ends[3], ends[3])
            send = max(0, round((last - self.start) / 1000) - offsets[3])
        ttfb = offsets[4] if reached >= 4 else None
        return Timing(dns, connect, tls, wait, xfer, offsets[-1], send, ttfb)


def tcp_info(connection: socket.socket | None) -> bytes:
    """Return Linux' struct tcp_info of a connection, empty elsewhere."""
    if sys.platform != "linux" or connection is None:
        return b""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return b""


def read_tcp_info(info: bytes) -> tuple[int | None, int | None]:
    """Return (round trip in us, retransmitted segments), None where they are not told.

    tcpi_min_rtt, unlike the smoothed tcpi_rtt, is free of the other side's delayed acknowledgements.
    """
    if len(info) < 104:
        return None, None
    (rtt,) = struct.unpack_from("@I", info, 148 if len(info) >= 152 else 68)
    (retransmits,) = struct.unpack_from("@I", info, 100)
    return (rtt if rtt not in (0, 0xFFFFFFFF) else None), retransmits


def run_delay(thread_id: int) -> int:
    """Return how long (ns) the kernel kept a thread runnable but not running; 0 where Linux does not tell.

    The second field of schedstat (Linux, Documentation/scheduler/sched-stats).
    """
    try:
        with open(f"/proc/self/task/{thread_id}/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class Draft:
    """A step in the making: the measuring thread writes it, the waiting thread may read it at any moment."""

    def __init__(self, number: int, request: Request, route: Route) -> None:
        self.number = number
        self.request = request
        self.route = route
        self.sent_headers: tuple[Header, ...] = ()
        self.sent_header_bytes: int | None = None  # over HTTP/1.1, request line included
        self.started_at = datetime.datetime.now(datetime.timezone.utc)
        self.watch = Stopwatch()
        self.addresses: tuple[str, ...] = ()
        self.attempts: list[tuple[int, Attempt]] = []  # with the instant at which each began
        self.dialling: dict[int, tuple[Peer, int]] = {}
        self.socket: socket.socket | None = None
        self.peer: Peer | None = None
        self.secured: Any = None  # the TlsTransport to the target, once its handshake has ended
        self.interim: list[int] = []
        self.response: Response | None = None
        self.received = 0
        self.failed_at: int | None = None
        self.thread = threading.get_native_id()
        self.run_delay = 0

    def frozen(self) -> Draft:
        """Return a copy that stays as it is, while the measuring thread goes on writing this one."""
        copy = Draft(self.number, self.request, self.route)
        copy.__dict__.update(self.__dict__)
        copy.watch = Stopwatch()
        copy.watch.__dict__.update(self.watch.__dict__, ends=list(self.watch.ends))
        return copy

    @property
    def complete(self) -> bool:
        return self.failed_at is not None or len(self.watch.ends) == len(PHASES)


# ---------------------------------------------------------------------------------------------------------
# 11. Certificates. DER -> Certificate (X.690, RFC 5280): getpeercert() is empty for what was not verified.
# ---------------------------------------------------------------------------------------------------------
NAME_TYPES = {
    b"\x55\x04\x03": "CN",
    b"\x55\x04\x06": "C",
    b"\x55\x04\x07": "L",
    b"\x55\x04\x08": "ST",
    b"\x55\x04\x0a": "O",
    b"\x55\x04\x0b": "OU",
}
SUBJECT_ALT_NAME = b"\x55\x1d\x11"


class Der(NamedTuple):
    tag: int
    content: bytes


def read_der(data: bytes) -> list[Der]:
    """Split DER into its elements; raises ValueError for what does not fit."""
    elements = []
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("truncated DER")
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4 or at + size > len(data):
                raise ValueError("bad DER length")
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise ValueError("truncated DER")
        elements.append(Der(tag, data[at : at + length]))
        at += length
    return elements


def der_text(element: Der) -> str:
    codecs = {0x14: "latin-1", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
    return element.content.decode(codecs.get(element.tag, "utf-8"), "replace")


def der_time(element: Der) -> datetime.datetime:
    """Read UTCTime (two digits of year, 1950-2049) or GeneralizedTime (RFC 5280 section 4.1.2.5)."""
    text = element.content.decode("ascii")
    if element.tag == 0x17:
        text = ("19" if text[:2] >= "50" else "20") + text
    if len(text) != 15 or not text[:14].isdigit() or text[14] != "Z":
        raise ValueError("bad DER time")
    year, *rest = int(text[:4]), *(int(text[at : at + 2]) for at in range(4, 14, 2))
    return datetime.datetime(year, *rest, tzinfo=datetime.timezone.utc)  # type: ignore[misc, arg-type]


def der_name(content: bytes) -> list[tuple[str, str]]:
    """Return the (type, value) pairs of a distinguished name, in order; unnamed types are left out."""
    pairs = []
    for relative in read_der(content):
        for attribute in read_der(relative.content):
            kind, value = read_der(attribute.content)[:2]
            if kind.content in NAME_TYPES:
                pairs.append((NAME_TYPES[kind.content], der_text(value)))
    return pairs


def alternative_names(extensions: bytes) -> list[str]:
    """Return the DNS names, addresses, mail addresses and URIs of subjectAltName."""
    names = []
    for extension in read_der(read_der(extensions)[0].content):
        fields = read_der(extension.content)
        if fields[0].content != SUBJECT_ALT_NAME:
            continue
        for name in read_der(read_der(fields[-1].content)[0].content):
            if name.tag in (0x81, 0x82, 0x86):
                names.append(name.content.decode("ascii", "backslashreplace"))
            elif name.tag == 0x87 and len(name.content) in (4, 16):
                family = socket.AF_INET if len(name.content) == 4 else socket.AF_INET6
                names.append(socket.inet_ntop(family, name.content))
    return names


def in_days(moment: datetime.datetime, now: datetime.datetime) -> str:
    """Say how far away a moment is, in whole days: '3 days', 'less than a day'."""
    days = abs(moment - now).days
    return "less than a day" if days == 0 else "1 day" if days == 1 else f"{days} days"


def parse_certificate(der: bytes | None) -> Certificate | None:
    """Read what a report shows of a certificate; None when it cannot be read."""
    try:
        fields = read_der(read_der(read_der(der or b"")[0].content)[0].content)
        if fields[0].tag == 0xA0:  # the version, absent from version 1
            fields = fields[1:]
        serial, _, issuer, validity, subject = fields[:5]
        not_before, not_after = (der_time(moment) for moment in read_der(validity.content)[:2])
        extensions = [field.content for field in fields[5:] if field.tag == 0xA3]
        common_names = [value for kind, value in der_name(subject.content) if kind == "CN"]
        return Certificate(
            common_name=common_names[-1] if common_names else None,
            names=tuple(alternative_names(extensions[0]) if extensions else ()),
            issuer=", ".join(f"{kind}={value}" for kind, value in reversed(der_name(issuer.content))),
            self_signed=issuer.content == subject.content,
            serial=serial.content.lstrip(b"\0").hex().upper() or "00",
            not_before=not_before,
            not_after=not_after,
        )
    except (ValueError, IndexError):
        return None


# ---------------------------------------------------------------------------------------------------------
# 12. Lookup. Names to addresses, and what the system's error numbers mean.
# ---------------------------------------------------------------------------------------------------------
SYSTEM_ERRORS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset by the other side",
    errno.ECONNABORTED: "connection aborted",
    errno.EPIPE: "connection closed by the other side while sending",
    errno.ETIMEDOUT: "no answer (timed out)",
    errno.EHOSTUNREACH: "host unreachable",
    errno.ENETUNREACH: "network unreachable",
    errno.EADDRNOTAVAIL: "address not available on this machine",
    errno.EMFILE: "this process has no file descriptor left (ulimit -n)",
    errno.ENFILE: "this machine has no file descriptor left",
    errno.EACCES: "forbidden by this machine (firewall or policy)",
    errno.EPERM: "forbidden by this machine (firewall or policy)",
    errno.EINVAL: "not an address that can be reached from here",
}
CONNECT_HINTS = {
    errno.ECONNREFUSED: "The machine answers, but nothing listens on that port (or a firewall rejects it): "
    "check the port, and whether the service runs.",
    errno.EHOSTUNREACH: "No route there, or a router turned it away: check routing, firewalls and the host.",
    errno.ENETUNREACH: "This machine has no route to that network: check its own network configuration.",
    errno.ETIMEDOUT: "Packets vanish on the way: check the address, routing and firewalls.",
    errno.ECONNRESET: "Something answers for that port and hangs up: check load balancers and firewalls.",
    errno.EACCES: "A firewall or policy of this machine forbids it: check its rules and routes.",
    errno.EPERM: "A firewall or policy of this machine forbids it: check its rules and routes.",
    errno.EADDRNOTAVAIL: "This machine has no address to go there from: check its addresses and routes.",
    errno.EINVAL: "The route leads nowhere, or a link-local address lacks its zone (fe80::1%25eth0).",
}


def words_of(error: OSError) -> str:
    return SYSTEM_ERRORS.get(error.errno or 0) or (error.strerror or str(error)).lower()


def literal_peer(literal: str, port: int) -> Peer:
    """Return the peer of an address literal; raises NetworkError for a zone that is no interface here."""
    if is_ip(literal, socket.AF_INET):
        return Peer(literal, socket.AF_INET, (literal, port))
    address, _, zone = literal.partition("%")
    address = socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address))
    try:
        scope = int(zone) if zone.isdigit() else socket.if_nametoindex(zone) if zone else 0
    except OSError:
        hint = "The zone after % is the name of a network interface: `ip link` lists them."
        raise NetworkError("dns", f"{literal}: this machine has no interface '{zone}'", hint) from None
    return Peer(f"{address}%{zone}" if zone else address, socket.AF_INET6, (address, port, 0, scope))


def explain_lookup(host: str, family: int, error: socket.gaierror) -> NetworkError:
    """Tell a name that does not exist from one without such an address, and both from a silent resolver."""
    wanted = "IPv4 " if family == socket.AF_INET else "IPv6 " if family == socket.AF_INET6 else ""
    if error.errno == socket.EAI_AGAIN:
        return NetworkError(
            "dns",
            f"the resolver gave no answer for {host} (temporary failure)",
            "Check that the name servers in /etc/resolv.conf can be reached from this machine.",
        )
    if wanted and error.errno in (
        socket.EAI_NONAME,
        getattr(socket, "EAI_NODATA", -5),
        getattr(socket, "EAI_ADDRFAMILY", -9),
    ):
        return NetworkError(
            "dns",
            f"{host} has no {wanted}address, or no such name exists",
            f"Check the spelling, or leave out -{wanted[3]} to use whatever addresses it has.",
        )
    if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", -5)):
        return NetworkError(
            "dns",
            f"the name {host} was not found",
            "Check the spelling, the search domain, and whether this machine asks the right name servers.",
        )
    return NetworkError(
        "dns", f"{host} could not be looked up: {reason_of(error)}", "Check the resolver of this machine."
    )


def interleave(peers: list[Peer]) -> list[Peer]:
    """Alternate the families, keeping the resolver's order in each (RFC 8305 section 4)."""
    first = [peer for peer in peers if peer.family == peers[0].family]
    other = [peer for peer in peers if peer.family != peers[0].family]
    longest = max(len(first), len(other))
    return [peer for index in range(longest) for peer in first[index : index + 1] + other[index : index + 1]]


def look_up(host: str, port: int, family: int) -> list[Peer]:
    """Ask the system's resolver; raises OSError, socket.gaierror among them, and UnicodeError.

    The name goes as bytes: as text it would import the idna codec inside the dns phase.
    """
    found = socket.getaddrinfo(host.encode("ascii"), port, family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    peers = [Peer(str(address[0]), family, address) for family, _, _, _, address in found]
    return interleave(list(dict.fromkeys(peers)))


def resolve(host: str, port: int, options: Options) -> list[Peer]:
    """Return the addresses of a host; raises NetworkError of kind `dns`.

    A literal address and --resolve need no lookup.
    """
    literal = options.overrides.get((host, port)) or (host if is_ip(host) else None)
    if literal and not is_ip(literal, options.family):
        family = "IPv4" if options.family == socket.AF_INET else "IPv6"
        hint = f"It is an address of the other family: leave out -{family[3]}."
        raise NetworkError("dns", f"{host} has no {family} address", hint)
    if literal:
        return [literal_peer(literal, port)]
    try:
        return look_up(host, port, options.family)
    except socket.gaierror as error:
        raise explain_lookup(host, options.family, error) from None
    except (OSError, UnicodeError) as error:
        raise NetworkError(
            "dns", f"{host} could not be looked up: {reason_of(error)}", "Check the resolver of this machine."
        ) from None


# ---------------------------------------------------------------------------------------------------------
# 13. Wire. Addresses to a connection, a connection to bytes with their time of arrival.
# ---------------------------------------------------------------------------------------------------------
SO_TIMESTAMPNS = 35  # Linux; Python has no name for it
TIMESPEC = struct.Struct("@ll")
# Linux keeps what is sent so until the next send, and in a segment of its own.
HELD = socket.MSG_MORE | socket.MSG_EOR if sys.platform == "linux" else 0
Source = Callable[[], "bytes | memoryview"]


def silence() -> bytes:
    return b""


class Transport:
    """A stream of bytes in both directions. While it waits for input it sends what `source` offers.

    Sending and receiving are one operation, because a server may answer before the request is whole, and
    may not read on until its answer is read. `source` is asked whenever everything before has been
    handed to the kernel; empty means nothing to send for now. `arrived` is when the newest bytes reached
    this machine (perf_counter_ns). `truncated` tells that TLS ended without close_notify.
    """

    def __init__(self) -> None:
        self.source: Source = silence
        self.arrived = 0
        self.truncated = False

    def read_into(self, view: memoryview) -> int:
        """Receive into a buffer and return how much came, 0 at the end; raises OSError, ssl.SSLError."""
        raise NotImplementedError

    def hold(self) -> None:
        """Hand over all that `source` offers, to leave beside what `push` sends next; raises OSError."""
        raise NotImplementedError

    def push(self) -> int:
        """Send the beginning of what `source` offers, without waiting; return the instant.

        That it could not be sent is told by the next read.
        """
        raise NotImplementedError

    def hurry(self) -> None:
        """Prefer large reads from here on: no instant inside them matters any more."""


class SocketTransport(Transport):
    """A connected socket. Its time of arrival is the kernel's receive timestamp where it gives one, so
    that a process that was not running does not blame the server.
    """

    def __init__(self) -> None:
        super().__init__()
        self._socket: socket.socket
        self._unsent: bytes | memoryview = b""
        self._send_error: OSError | None = None
        self._poller = select.poll()
        self._ancillary = socket.CMSG_SPACE(TIMESPEC.size)

    def load(self) -> None:
        """Take the first flight from `source`, ready to go."""
        self._refill()

    def attach(self, connection: socket.socket) -> None:
        """Take over a connection, and send the first flight at once, without waiting for anything."""
        self._socket = connection
        self.push()
        self._poller.register(connection, select.POLLIN)

    def push(self) -> int:
        departed = time.perf_counter_ns()
        if (self._unsent or self._refill()) and self._send():
            self._refill()  # asked at once, `source` knows when its last byte was sent
        return departed

    def read_into(self, view: memoryview) -> int:
        self._send_until_readable()
        count, ancillary, _, _ = self._socket.recvmsg_into([view], self._ancillary)
        self.arrived = time.perf_counter_ns()
        for _, kind, data in ancillary:
            if kind == SO_TIMESTAMPNS and len(data) == TIMESPEC.size:
                seconds, nanoseconds = TIMESPEC.unpack(data)
                self.arrived -= max(0, time.time_ns() - seconds * 1_000_000_000 - nanoseconds)
        if not count and self._send_error:
            raise self._send_error
        return count

    def hold(self) -> None:
        while self._unsent or self._refill():
            if not self._send(HELD):
                self._readable(True)
        if self._send_error:
            raise self._send_error

    def _send_until_readable(self) -> None:
        blocked = started = False
        while self._unsent or self._refill():
            if started and self._readable(blocked):
                return
            blocked, started = not self._send(), True

    def _send(self, flags: int = 0) -> bool:
        """Send what the kernel takes now; True when that was all."""
        try:
            count = self._socket.send(self._unsent, socket.MSG_DONTWAIT | flags)
        except BlockingIOError:
            count = 0
        except OSError as error:
            # The answer may have come before the connection broke: reading decides.
            self._send_error, self._unsent, self.source = error, b"", silence
            return True
        self._unsent = memoryview(self._unsent)[count:]
        return not self._unsent

    def _refill(self) -> bool:
        self._unsent = self.source()
        return len(self._unsent) > 0

    def _readable(self, wait: bool) -> bool:
        """Tell whether input is there; with `wait`, first wait until it is, or until sending can go on."""
        self._poller.modify(self._socket, select.POLLIN | select.POLLOUT if wait else select.POLLIN)
        events = self._poller.poll(None if wait else 0)
        return any(event & ~select.POLLOUT for _, event in events)


def open_socket(family: int) -> socket.socket:
    """Return a TCP socket that does not block and whose bytes bear the time of their arrival."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    # Nagle would hold the request back behind the client's Finished for a round trip.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return made


def divide(answered: int, departed: int) -> int:
    """Return where one phase ends and the wait starts, in the time that it took to wake this program up.

    The one should end when the other side's answer came (`answered`), the wait start when the request that
    this let go was sent (`departed`). Each bears half of what lies between, of a usual wake-up that is: the
    wait never bears more, or the server would be blamed for a machine that is short of CPUs.
    """
    return departed - min((departed - answered) // 2, WAKE_UP // 2)


def established(info: bytes, begun: int, noticed: int) -> int:
    """Return when the SYN-ACK came: the kernel's first round trip after connect(), where it tells.

    A process that was kept waiting notices late; the kernel still holds that single sample.
    """
    rtt, retransmits = read_tcp_info(info)
    if rtt is None or retransmits or not 0 < rtt * 1000 <= noticed - begun:
        return noticed
    return begun + rtt * 1000


class Dial:
    """A race for a connection (RFC 8305): the next address after 250 ms, or at once when one has failed.

    The winner is given to `wire`, which sends its first flight before any book is kept: what passes here
    between SYN-ACK and request is neither the network's time nor the server's.
    """

    def __init__(self, draft: Draft, wire: SocketTransport | None) -> None:
        self.draft = draft
        self.connected = self.wait_starts = 0
        self._wire = wire
        self._spare: dict[int, socket.socket] = {}
        self._waiting: list[Peer] = []
        self._open: dict[int, socket.socket] = {}
        self._poller = select.poll()
        self._next_start = 0
        self._failures: list[OSError] = []

    def get_ready(self, families: Iterable[int]) -> None:
        """Make the first socket of each family that this machine has, if they leave room for a resolver's."""
        for family in families:
            try:
                self._spare[family] = open_socket(family)
            except OSError:
                pass
        for spare in tuple(self._spare.values()):
            try:
                os.close(os.dup(spare.fileno()))
            except OSError:
                self.close()

    def close(self) -> None:
        """Close the sockets that were not needed."""
        while self._spare:
            self._spare.popitem()[1].close()

    def run(self, peers: list[Peer]) -> socket.socket:
        """Return the first connection that stands; raises OSError, the first failure, when none does.

        `connected` is then when the kernel had it; `wait_starts` when a wait starts whose request was the
        first flight.
        """
        self._waiting = list(peers)
        while self._waiting or self._open:
            now = time.perf_counter_ns()
            if self._waiting and (not self._open or now >= self._next_start):
                self._next_start = now + round(CONNECT_STAGGER * 1e9)
                self._start(self._waiting.pop(0))
            elif self._open:
                pause = max(0, -(-(self._next_start - now) // 1_000_000)) if self._waiting else None
                for descriptor, events in self._poller.poll(pause):
                    winner = self._settle(descriptor, events == select.POLLOUT)
                    if winner:
                        return winner
        raise self._failures[0]

    def _begin(self) -> int:
        """Stamp the start of an attempt; the first one ends the dns phase."""
        now = time.perf_counter_ns()
        if self.draft.watch.phase == "dns":
            self.draft.watch.end("dns", now)
        return now

    def _start(self, peer: Peer) -> None:
        """Send a SYN and go on; an attempt that fails at once is recorded at once."""
        try:
            attempt = self._spare.pop(peer.family, None) or open_socket(peer.family)
        except OSError as error:
            self._fail(peer, self._begin(), error)
            return
        begun = self._begin()
        code = attempt.connect_ex(peer.address)
        if code not in (0, errno.EINPROGRESS):
            attempt.close()
            self._fail(peer, begun, OSError(code, os.strerror(code)))
            return
        self._open[attempt.fileno()] = attempt
        self.draft.dialling[attempt.fileno()] = (peer, begun)
        self._poller.register(attempt.fileno(), select.POLLOUT)

    def _settle(self, descriptor: int, stands: bool) -> socket.socket | None:
        """Take the outcome of one attempt: its socket when it won. `stands` when poll() saw no trouble."""
        now = time.perf_counter_ns()
        attempt = self._open.pop(descriptor)
        if stands and self._wire:
            self._wire.attach(attempt)
        self._poller.unregister(descriptor)
        peer, begun = self.draft.dialling.pop(descriptor)
        code = 0 if stands else attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            attempt.close()
            self._fail(peer, begun, OSError(code, os.strerror(code)))
            return None
        if not stands and self._wire:
            self._wire.attach(attempt)
        info = tcp_info(attempt)
        attempt.setblocking(True)
        self.connected = established(info, begun, now)
        self.wait_starts = divide(self.connected, now)
        self.draft.socket, self.draft.peer = attempt, peer
        self._record(peer, begun, self.connected, None)
        for other, loser in self._open.items():
            peer, begun = self.draft.dialling.pop(other)
            self._record(peer, begun, now, "given up: another was faster")
            loser.close()
        return attempt

    def _fail(self, peer: Peer, begun: int, error: OSError) -> None:
        self._failures.append(error)
        self._next_start = 0
        self._record(peer, begun, time.perf_counter_ns(), words_of(error))

    def _record(self, peer: Peer, begun: int, ended: int, error: str | None) -> None:
        self.draft.attempts.append((begun, Attempt(peer.ip, round((ended - begun) / 1000), error)))


# ---------------------------------------------------------------------------------------------------------
# 14. TLS. Always through memory: the same code with and without a proxy's TLS around it, every record's
#     time of arrival known, and what ended the connection never hidden behind OpenSSL's own errors.
# ---------------------------------------------------------------------------------------------------------
class CertificateTap:
    """Keep the leaf certificate of a handshake, which OpenSSL forgets when verification fails.

    It reads the Certificate message (RFC 8446 section 4.4.2, RFC 5246 section 7.4.2) through
    SSLContext._msg_callback, which CPython has since 3.8; without it there is no certificate to show.
    """

    def __init__(self, tls: ssl.SSLObject | None) -> None:
        self._tls = tls
        self.der: bytes | None = None
        self.wanted = False  # a CertificateRequest came
        self.closed = False  # an alert close_notify came

    def __call__(
        self, tls: object, direction: str, version: int, content: int, kind: int, data: bytes
    ) -> None:
        if tls is not self._tls or direction != "read":  # a proxy's TLS may share the context
            return
        if (content, kind) == (22, 13):
            self.wanted = True
        if content == 21 and data[1:2] == b"\0":
            self.closed = True
        if (content, kind) != (22, 11) or self.der:
            return
        at = 4
        if version == 0x0304:
            at += 1 + data[4] if len(data) > 4 else 0
        length = int.from_bytes(data[at + 3 : at + 6], "big")
        self.der = bytes(data[at + 6 : at + 6 + length]) or None


class TlsTransport(Transport):
    """TLS over another transport. Made before the clock starts, ClientHello and all."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__()
        self.certificate: bytes | None = None
        self.tap = CertificateTap(None)
        self.greeting = b""  # the first bytes of an other side that does not speak TLS
        # Version, cipher, ALPN; taken before anything is read, because OpenSSL forgets them after an alert.
        self.agreed: tuple[str | None, tuple[str, str, int] | None, str | None] = (None, None, None)
        self._precise = True
        self._answered = 0  # when the handshake ended, if with a flight of the other side
        self.established = False
        self._buffer = memoryview(bytearray(BUFFER))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # An SSL object takes this callback over from its context only when it is made.
        context._msg_callback = self.tap  # type: ignore[attr-defined]
        # The name as bytes, because a str would go through the idna codec.
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=server_name.encode("ascii")
        )
        self._try_handshake()

    def attach(self, inner: Transport) -> None:
        """Speak through another transport from now on; the first flight is ready."""
        self._inner = inner
        inner.source = self._ciphertext

    def open(self) -> None:
        """Shake hands; what is left to send of that leaves with what `push` sends.

        Raises ssl.SSLError, OSError, or EOFError when the other side hangs up; `certificate` is then the
        DER of what came in that handshake.
        """
        tap = CertificateTap(self.tls)
        self.tls.context._msg_callback = tap  # type: ignore[attr-defined]
        try:
            while not self._try_handshake():
                if not self._pull():
                    raise EOFError
        except ssl.SSLError:
            self.certificate, self.tap = tap.der, tap
            raise
        finally:
            self.tls.context._msg_callback = None  # type: ignore[attr-defined]
        self._answered = 0 if self._outgoing.pending else self.arrived
        self._inner.hold()
        self.established = True

    def push(self) -> int:
        return self._inner.push()

    def send_first(self) -> int:
        """Send the beginning of what `source` offers; return the instant that ends the handshake before it.

        What was agreed is asked of OpenSSL only then, because that would delay the request.
        """
        departed = self.push()
        self.certificate = self.tls.getpeercert(True)
        self.agreed = (self.tls.version(), self.tls.cipher(), self.tls.selected_alpn_protocol())
        return divide(self._answered or departed, departed)

    def _try_handshake(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read_into(self, view: memoryview) -> int:
        count = self._decrypt(view)
        while count is None:
            if not self._pull():
                self.truncated = True
                return 0
            count = self._decrypt(view)
        return count

    def _decrypt(self, view: memoryview) -> int | None:
        """Take what is decrypted, 0 after close_notify, None when more must come first.

        One record at a time while instants matter, then as many as there are.
        """
        count = 0
        try:
            while count < len(view):
                got: int = self.tls.read(len(view) - count, view[count:])  # type: ignore[assignment]
                count += got
                if not got or self._precise:
                    break
        except ssl.SSLWantReadError:
            return count or None
        except ssl.SSLError:
            if not count:  # else OpenSSL says it again at the next call
                raise
        return count

    def hold(self) -> None:
        self._inner.hold()

    def _ciphertext(self) -> bytes:
        if self.established and not self._outgoing.pending:
            data = memoryview(self.source())
            while data:
                data = data[self.tls.write(data) :]  # one record of at most 16 KiB at a time
        return self._outgoing.read()

    def _pull(self) -> bool:
        """Feed OpenSSL what comes next; False at the end. One record at a time while instants matter."""
        count = self._read_record() if self._precise else self._inner.read_into(self._buffer)
        if not self._precise:
            self.arrived = self._inner.arrived
        self._incoming.write(self._buffer[:count])
        return count > 0

    def _read_record(self) -> int:
        """Read one TLS record, whose header's arrival is the instant of all in it (RFC 8446 section 5.1)."""
        count, wanted = 0, 5
        while count < wanted:
            got = self._inner.read_into(self._buffer[count:wanted])
            if not got:
                break
            if not count:
                self.arrived = self._inner.arrived
            count += got
            if count == 5:
                kind, major, length = self._buffer[0], self._buffer[1], self._buffer[3] << 8 | self._buffer[4]
                if not (20 <= kind <= 24 and major == 3):
                    self.greeting = bytes(self._buffer[:5])
                    break  # not TLS: OpenSSL says so, and waiting for the rest could take for ever
                wanted += length
        return count

    def hurry(self) -> None:
        self._precise = False
        self._inner.hurry()


def build_context(trust: Trust, environ: Mapping[str, str], seconds: float) -> ssl.SSLContext:
    """Make a client context; it costs 20 ms and more where the system's CA store is read.

    `seconds` is the patience with a bundle that is no plain file. Raises UsageError when SSL_CERT_FILE names
    a file that is no bundle.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if trust.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.options |= 0x4 | 0x40000  # SSL_OP_LEGACY_SERVER_CONNECT, ALLOW_UNSAFE_LEGACY_RENEGOTIATION
        return context
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # An intermediate or the server's own certificate in the bundle is enough, as it is for curl.
    context.verify_flags |= 0x80000  # X509_V_FLAG_PARTIAL_CHAIN
    bundle = environ.get("SSL_CERT_FILE")
    if trust.ca_bundle is not None:
        load_ca_bundle(context, trust.ca_bundle)
    elif bundle:
        load_ca_bundle(context, read_ca_bundle(bundle, "SSL_CERT_FILE", seconds))
        folder = ssl.get_default_verify_paths().capath
        if folder:
            context.load_verify_locations(capath=folder)
    else:
        context.load_default_certs()
    return context


def log_keys(context: ssl.SSLContext, path: str | None) -> str | None:
    """Write the session keys where SSLKEYLOGFILE says; return a warning when that cannot be done."""
    if not path:
        return None
    try:
        # Opened here first: OpenSSL would wait for ever for the reader of a pipe.
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600))
        context.keylog_filename = path
    except (OSError, ValueError) as error:
        return f"SSLKEYLOGFILE '{path}' cannot be written: {reason_of(error)}"
    return None


def tls_info(transport: TlsTransport, trust: Trust) -> TlsInfo:
    """Return what a handshake agreed on; of a failed one only the certificate."""
    version, cipher, alpn = transport.agreed
    return TlsInfo(
        version=f"{version}.0" if version == "TLSv1" else version,
        cipher=cipher[0] if cipher else None,
        alpn=alpn,
        verified=not trust.insecure and transport.established,
        custom_ca=trust.ca_bundle is not None,
        certificate=parse_certificate(transport.certificate),
    )


# ---------------------------------------------------------------------------------------------------------
# 15. Alerts. What OpenSSL's errors and verdicts mean, in plain words, with one thing to try.
# ---------------------------------------------------------------------------------------------------------
TLS_REASONS = {
    "WRONG_VERSION_NUMBER": "the server does not speak TLS on this port",
    "HTTP_REQUEST": "the server speaks plain HTTP on this port, not TLS",
    "PACKET_LENGTH_TOO_LONG": "the server's bytes are not TLS",
    "UNSUPPORTED_PROTOCOL": "the server offers only TLS versions that are not allowed here",
    "NO_PROTOCOLS_AVAILABLE": "no TLS version is left to offer (see this machine's openssl.cnf)",
    "UNSAFE_LEGACY_RENEGOTIATION_DISABLED": "the server needs legacy TLS renegotiation, which is unsafe",
    "DH_KEY_TOO_SMALL": "the server's Diffie-Hellman key is too small to be safe",
    "EE_KEY_TOO_SMALL": "the server's certificate has a key too small to be safe",
    "CA_MD_TOO_WEAK": "the server's certificate is signed with a hash too weak to be safe",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the server refused the TLS versions offered (alert protocol_version)",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the server accepted nothing we offered (handshake_failure)",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "the server wants stronger ciphers (alert insufficient_security)",
    "TLSV1_UNRECOGNIZED_NAME": "the server does not know this name (alert unrecognized_name)",
    "TLSV1_ALERT_UNRECOGNIZED_NAME": "the server does not know this name (alert unrecognized_name)",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server requires a client certificate (certificate_required)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the server refused the lack of a client certificate (bad_certificate)",
    "TLSV1_ALERT_NO_APPLICATION_PROTOCOL": "the server refused our ALPN (no_application_protocol)",
    "TLSV1_ALERT_INTERNAL_ERROR": "the server broke off with an error of its own (alert internal_error)",
    "TLSV1_ALERT_ACCESS_DENIED": "the server denied access (alert access_denied)",
    "TLSV1_ALERT_UNKNOWN_CA": "the server does not trust our side (alert unknown_ca)",
    "TLSV1_ALERT_DECODE_ERROR": "the server could not read our handshake (alert decode_error)",
    "TLSV1_ALERT_DECRYPT_ERROR": "the server could not verify our handshake (alert decrypt_error)",
    "SSLV3_ALERT_UNEXPECTED_MESSAGE": "the server did not expect our message (alert unexpected_message)",
    "SSLV3_ALERT_ILLEGAL_PARAMETER": "the server rejected a parameter (alert illegal_parameter)",
    "SSLV3_ALERT_CLOSE_NOTIFY": "the server closed the TLS connection (alert close_notify)",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "a record of the server was damaged on the way",
    "SSLV3_ALERT_BAD_RECORD_MAC": "a record of ours was damaged on the way (alert bad_record_mac)",
}
DAMAGED = ("DECRYPTION_FAILED_OR_BAD_RECORD_MAC", "SSLV3_ALERT_BAD_RECORD_MAC", "BAD_RECORD_TYPE")
NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
OLD_TLS = (
    "UNSUPPORTED_PROTOCOL TLSV1_ALERT_PROTOCOL_VERSION UNSAFE_LEGACY_RENEGOTIATION_DISABLED DH_KEY_TOO_SMALL "
    "EE_KEY_TOO_SMALL CA_MD_TOO_WEAK SSLV3_ALERT_HANDSHAKE_FAILURE"
).split()


def has_trust_store() -> bool:
    """Tell whether this machine has any CA certificate where OpenSSL looks."""
    paths = ssl.get_default_verify_paths()
    try:
        return bool(paths.cafile) or bool(paths.capath and os.listdir(paths.capath))
    except OSError:
        return False


def explain_certificate(
    error: ssl.SSLCertVerificationError, certificate: Certificate | None, host: str, trust: Trust
) -> NetworkError:
    """Put OpenSSL's verdict on a certificate in plain words; the codes are X509_V_ERR_*."""
    now = datetime.datetime.now(datetime.timezone.utc)
    code = getattr(error, "verify_code", 0)
    insecure = "To see the timings all the same, use -k (on a trusted network only)."
    issuer = f" ({clip(certificate.issuer)})" if certificate and certificate.issuer else ""
    if code == 10:
        age = (
            f" {in_days(certificate.not_after, now)} ago"
            if certificate and certificate.not_after < now
            else ""
        )
        whose = "the certificate" if age or not certificate else "a certificate further up the chain"
        return NetworkError("tls", f"{whose} expired{age}", f"Renew it on the server. {insecure}")
    if code == 9:
        ahead = f" for another {in_days(certificate.not_before, now)}" if certificate else ""
        hint = f"Check the clock of this machine, then the certificate on the server. {insecure}"
        return NetworkError("tls", f"the certificate is not valid yet{ahead}", hint)
    if code in (62, 64):
        names = (
            certificate.names or (certificate.common_name or "no name at all",)
            if certificate
            else ("another name",)
        )
        listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        hint = f"Ask for one of its names, or give the server a certificate for {host}. {insecure}"
        return NetworkError("tls", f"the certificate was issued for {clip(listed)}, not {host}", hint)
    if code in (18, 19, 20, 21):
        if trust.ca_bundle is None and not has_trust_store():
            return NetworkError(
                "tls",
                "this machine has no CA certificates, so no certificate can be verified",
                f"Install the package ca-certificates, or pass a CA bundle with --cacert PATH. {insecure}",
            )
        message = {
            18: "the certificate is self-signed",
            19: "the certificate's chain ends in a self-signed CA that is not trusted here",
        }.get(code, f"the certificate's issuer is unknown{issuer}")
        if trust.ca_bundle is not None:
            hint = f"The bundle given with --cacert does not hold the CA that issued it{issuer}. {insecure}"
        else:
            hint = f"To trust it, pass it with --cacert PATH. {insecure}"
            if code != 18:
                hint = (
                    "If it is an internal CA, pass its certificate with --cacert PATH; "
                    f"if not, the server may not send its intermediate certificates. {insecure}"
                )
        return NetworkError("tls", message, hint)
    return NetworkError("tls", f"the certificate was rejected: {error.verify_message}", insecure)


def tls_reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's name of an error; Python leaves out those that are younger than itself."""
    if isinstance(error, ssl.SSLZeroReturnError):
        return "SSLV3_ALERT_CLOSE_NOTIFY"
    text = re.sub(r"^\[[^\]]*\]\s*|\s*\(_ssl\.c:[0-9]+\)$", "", str(error))
    return error.reason or text.upper().replace(" ", "_")


def tls_hint(reason: str, place: tuple[str, int], trust: Trust, greeting: bytes) -> str:
    """Return one thing to try that is true for a TLS failure."""
    if reason in NOT_TLS and greeting not in (b"", b"HTTP/"):
        return "Check the port: what answers there speaks neither TLS nor HTTP."
    if reason in NOT_TLS:
        return "Check the port; for plain HTTP ask for http://{}:{}/.".format(*place)
    if reason in OLD_TLS and not trust.insecure:
        return "The server may be an old one: -k also allows old TLS versions and weak ciphers."
    if reason in DAMAGED:
        return "Something damages data on the way: check middleboxes, network cards and memory."
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return "Client certificates are not supported here: try an endpoint that needs none."
    if "NAME" in reason:
        return "Check the host name, or the virtual hosts that the server has certificates for."
    return "Look at the server's TLS configuration and log."


def explain_tls(
    error: ssl.SSLError, transport: TlsTransport | None, place: tuple[str, int], trust: Trust
) -> NetworkError:
    """Put a TLS failure in plain words, with a hint that fits it."""
    host = place[0]
    if isinstance(error, ssl.SSLCertVerificationError):
        return explain_certificate(
            error, parse_certificate(transport.certificate if transport else None), host, trust
        )
    reason = tls_reason(error)
    if transport and transport.tap.closed:
        reason = "SSLV3_ALERT_CLOSE_NOTIFY"
    elif reason == "SSLV3_ALERT_HANDSHAKE_FAILURE" and transport and transport.tap.wanted:
        reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    alert = re.sub(r"^(SSLV3|TLSV13?)_(ALERT_)?", "", reason).lower()
    words = TLS_REASONS.get(reason)
    if not words and alert != reason.lower():
        words = f"the server broke off with the TLS alert {alert}"
    if reason in NOT_TLS and transport and transport.greeting:
        plain = transport.greeting == b"HTTP/"
        words = (
            "the server speaks plain HTTP on this port, not TLS"
            if plain
            else TLS_REASONS["WRONG_VERSION_NUMBER"]
        )
        words += "" if plain else f": it began with '{foreign(transport.greeting)}'"
    return NetworkError(
        "tls",
        words or f"TLS failed: {alert.replace('_', ' ')}",
        tls_hint(reason, place, trust, transport.greeting if transport else b""),
    )


# ---------------------------------------------------------------------------------------------------------
# 16. Messages. HTTP/1.1: requests are written by http.client; responses are read here, because its reader
#     takes 103 for the answer, truncated bodies for whole ones, conflicting lengths and "+5" for a length,
#     and stamps nothing before the header section was parsed.
# ---------------------------------------------------------------------------------------------------------
BROKEN_SERVER = "The server, or something in front of it, is at fault: look at its log."
CLOSED_EARLY = "The server or a load balancer hung up: look at its log, its time-outs and its limits."


def protocol_error(message: str, hint: str = BROKEN_SERVER) -> NetworkError:
    return NetworkError("protocol", message, hint)


class Reader:
    """Take lines and lengths from a transport, through one buffer."""

    def __init__(self) -> None:
        self.transport = Transport()
        self._buffer = bytearray(BUFFER)
        self._view = memoryview(self._buffer)
        self._at = self._end = 0

    def fill(self, most: int = BUFFER) -> bool:
        """Read when nothing is left; False at the end of the stream."""
        if self._at == self._end:
            self._at, self._end = 0, self.transport.read_into(self._view[:most])
        return self._end > 0

    @property
    def left(self) -> int:
        return self._end - self._at

    @property
    def arrived(self) -> int:
        return self.transport.arrived

    def line(self, most: int) -> bytes:
        """Return the next line without its ending.

        Raises NetworkError when it is longer than `most`, EOFError with what there was of it at the end.
        """
        parts = []
        size = 0
        while self.fill():
            stop = self._buffer.find(b"\n", self._at, self._end)
            parts.append(bytes(self._view[self._at : self._end if stop < 0 else stop]))
            size += len(parts[-1])
            self._at = self._end if stop < 0 else stop + 1
            if size > most:
                raise protocol_error(f"a line of the response is longer than {most} bytes")
            if stop >= 0:
                line = b"".join(parts)
                return line[:-1] if line.endswith(b"\r") else line
        raise EOFError(b"".join(parts))

    def exactly(self, count: int) -> bytes:
        """Return the next bytes; raises EOFError when the stream ends before."""
        parts = []
        while count:
            if not self.fill():
                raise EOFError
            taken = min(count, self.left)
            parts.append(bytes(self._view[self._at : self._at + taken]))
            self._at += taken
            count -= taken
        return b"".join(parts)

    def skip(self, most: int) -> int:
        """Pass over at most so many bytes of what comes next; return how many, 0 at the end."""
        if not self.fill():
            return 0
        taken = min(most, self._end - self._at)
        self._at += taken
        return taken


class Collector:
    """The socket that http.client writes to: it keeps the bytes."""

    def __init__(self) -> None:
        self.data = b""

    def sendall(self, data: bytes) -> None:
        self.data += data


def request_head(method: str, target: str, headers: Iterable[Header]) -> bytes:
    """Return the request line and header section as they go out (RFC 9112 sections 3, 5)."""
    connection = http.client.HTTPConnection("unused")
    connection.sock = collector = Collector()
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    return collector.data


def complete_headers(request: Request) -> tuple[Header, ...]:
    """Return the header fields of a request: defaults first, where the user gave none of that name."""
    given = {name.lower() for name, _ in request.headers}
    defaults = [
        ("Host", request.url.authority.encode("ascii")),
        ("User-Agent", f"httphases/{__version__}".encode("ascii")),
        ("Accept", b"*/*"),
    ]
    if request.body is not None:
        defaults.append(("Content-Type", request.body.content_type.encode("ascii")))
        defaults.append(("Content-Length", str(len(request.body.data)).encode("ascii")))
    return tuple(item for item in defaults if item[0].lower() not in given) + request.headers


def upload(head: bytes, body: bytes, watch: Stopwatch) -> Source:
    """Return a source that gives a request piece by piece, and stamps when the last was taken."""
    view = memoryview(body)
    pieces: Iterator[bytes | memoryview] = iter(
        [head, *(view[at : at + BUFFER] for at in range(0, len(view), BUFFER))]
    )

    def source() -> bytes | memoryview:
        piece = next(pieces, b"")
        if not piece and watch.sent is None:
            watch.sent = time.perf_counter_ns()
        return piece

    return source


def parse_status(text: bytes) -> int | None:
    """Read a status code: three digits, 100 or more (RFC 9110 section 15)."""
    return int(text) if len(text) == 3 and text.isdigit() and text[:1] != b"0" else None


def not_http(line: bytes) -> NetworkError:
    """Say what a server speaks that does not speak HTTP."""
    if line[:1] in (b"\x15", b"\x16") and line[1:2] == b"\x03":
        return protocol_error(
            "the server speaks TLS on this port, not plain HTTP", "Ask for https:// instead."
        )
    hint = "Check that the port belongs to an HTTP server."
    return protocol_error(f"the answer does not start like HTTP: '{foreign(line)}'", hint)


def parse_status_line(line: bytes) -> tuple[str, int, str]:
    """Read 'HTTP/1.1 200 OK' (RFC 9112 section 4); raises NetworkError."""
    version, _, rest = line.rstrip().partition(b" ")
    code, _, reason = rest.partition(b" ")
    status = parse_status(code)
    if status is None or len(version) != 8 or version[:7] != b"HTTP/1." or not version[7:].isdigit():
        raise not_http(line)
    return version.decode("ascii"), status, decode(reason.strip())


def read_status_line(reader: Reader) -> bytes:
    """Return the first line of a response; raises NetworkError when the stream ends within it."""
    try:
        return reader.line(MAX_HEADER_BYTES)
    except EOFError as ended:
        (start,) = ended.args
        if not b"HTTP/".startswith(start[:5]):
            raise not_http(start) from None
        raise protocol_error("the server hung up in the middle of its header", CLOSED_EARLY) from None


def read_headers(reader: Reader) -> tuple[list[Header], int]:
    """Read a header or trailer section up to its blank line (RFC 9112 section 5) and return its size too."""
    headers: list[Header] = []
    size = 0
    for _ in range(MAX_HEADER_LINES + 1):
        line = reader.line(MAX_HEADER_BYTES - size)
        size += len(line) + 2
        if size > MAX_HEADER_BYTES:
            raise protocol_error(f"the header section is larger than {MAX_HEADER_BYTES >> 20} MiB")
        if not line:
            return headers, size
        if line[:1] in b" \t" and headers:  # obs-fold (section 5.2)
            name, value = headers[-1]
            headers[-1] = (name, value + b" " + line.strip(b" \t"))
            continue
        field, colon, content = line.partition(b":")
        field = field.rstrip(b" \t")
        if not colon or not is_token(field):
            raise protocol_error(f"a header line of the response is malformed: '{foreign(line)}'")
        headers.append((field.decode("ascii"), content.strip(b" \t").replace(b"\r", b" ")))
    raise protocol_error(f"the response has more than {MAX_HEADER_LINES} header lines")


def read_head(reader: Reader, interim: list[int], watch: Stopwatch | None) -> Response:
    """Read up to the final response's header section; 1xx responses go to `interim` (RFC 9110 section 15.2).

    Ends the wait at the first byte of the final response, known once its status line was read. Raises
    EOFError when nothing came at all.
    """
    while True:
        if not reader.left and not reader.fill(1):
            raise EOFError
        first_byte = reader.arrived
        line = read_status_line(reader)
        version, status, reason = parse_status_line(line)
        if status >= 200 and watch:
            watch.end("wait", first_byte)
        try:
            headers, size = read_headers(reader)
        except EOFError:
            raise protocol_error("the server hung up in the middle of its header", CLOSED_EARLY) from None
        if status == 101:
            raise protocol_error("the server switched protocols (101) without being asked to")
        if status >= 200:
            return Response(status, reason, version, tuple(headers), len(line) + 2 + size)
        interim.append(status)
        if len(interim) > MAX_INTERIM:
            raise protocol_error(f"more than {MAX_INTERIM} interim (1xx) responses came before the answer")


def values_of(headers: Iterable[Header], name: str) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


def content_length(headers: Iterable[Header]) -> int | None:
    """Return the announced length; raises NetworkError when it is malformed or contradicts itself.

    Repeated equal values count as one (RFC 9110 section 8.6).
    """
    values = {
        part.strip(b" \t") for value in values_of(headers, "content-length") for part in value.split(b",")
    }
    if not values:
        return None
    if len(values) > 1:
        shown = ", ".join(sorted(decode(value) for value in values))
        raise protocol_error(f"the response has conflicting Content-Length values: {foreign(shown)}")
    value = values.pop()
    length = parse_length(value, 10)
    if length is None:
        raise protocol_error(f"the response's Content-Length is not a length: '{foreign(value)}'")
    return length


def has_body(method: str, status: int) -> bool:
    return method != "HEAD" and status not in (204, 304)


def read_body_by_length(reader: Reader, length: int, draft: Draft) -> None:
    left = length
    while left:
        count = reader.skip(left)
        if not count:
            raise protocol_error(f"the body ended after {draft.received} of {length} bytes", CLOSED_EARLY)
        left -= count
        draft.received += count


def read_body_in_chunks(reader: Reader, draft: Draft) -> None:
    """Pass over a chunked body and its trailers (RFC 9112 section 7.1)."""
    while True:
        line = reader.line(65536)
        size = line.partition(b";")[0].strip(b" \t")
        left = parse_length(size, 16)
        if left is None:
            raise protocol_error(f"a chunk size is no hexadecimal number: '{foreign(size)}'")
        if not left:
            read_headers(reader)
            return
        while left:
            count = reader.skip(left)
            if not count:
                raise EOFError
            left -= count
            draft.received += count
        ending = reader.exactly(1)
        if ending == b"\r":
            ending = reader.exactly(1)
        if ending != b"\n":
            raise protocol_error("a chunk is longer than its size says")


def read_body_to_end(reader: Reader, draft: Draft) -> None:
    count = reader.skip(BUFFER)
    while count:
        draft.received += count
        count = reader.skip(BUFFER)
    if reader.transport.truncated:
        raise protocol_error(
            f"the connection ended after {draft.received} bytes without close_notify: the body may be cut",
            CLOSED_EARLY,
        )


def read_response_body(reader: Reader, response: Response, draft: Draft) -> None:
    """Pass over the body, framed as RFC 9112 section 6.3 says; raises NetworkError when it is not whole."""
    codings = b",".join(values_of(response.headers, "transfer-encoding")).lower()
    length = content_length(response.headers)
    if not has_body(draft.request.method, response.status):
        return
    last = codings.rpartition(b",")[2].strip()
    try:
        if last == b"chunked":
            read_body_in_chunks(reader, draft)
        elif length is not None and last in (b"", b"identity"):
            read_body_by_length(reader, length, draft)
        else:
            read_body_to_end(reader, draft)
    except EOFError:
        message = f"the chunked body ended after {draft.received} bytes, without its last chunk"
        raise protocol_error(message, CLOSED_EARLY) from None


def exchange_http1(draft: Draft, reader: Reader) -> None:
    """Read the response while the rest of the request is sent, ending the phases wait and xfer."""
    transport = reader.transport
    try:
        response = read_head(reader, draft.interim, draft.watch)
    except EOFError:
        raise protocol_error("the server hung up without an answer", CLOSED_EARLY) from None
    draft.response = response
    transport.hurry()
    if response.status >= 300:
        transport.source = silence  # the rest of the request is not wanted (RFC 9112 section 9.5)
    read_response_body(reader, response, draft)
    draft.watch.end("xfer", reader.arrived)


# ---------------------------------------------------------------------------------------------------------
# 17. Roads. Through a proxy: CONNECT (RFC 9110 section 9.3.6) and SOCKS5 (RFC 1928, by PySocks).
# ---------------------------------------------------------------------------------------------------------
PROXY_HINTS = {
    407: "Give the proxy a user name and password, in its URL: http://user:password@host:port.",
    403: "The proxy's policy forbids this target or port: ask whoever runs the proxy.",
    405: "This proxy does not tunnel (CONNECT): ask whoever runs it for one that does.",
    502: "The proxy could not reach the target: check the target's name and port as the proxy sees them.",
    503: "The proxy is overloaded, or the target is out of its reach: look at the proxy's log.",
    504: "The target did not answer the proxy: check the target, and the network behind the proxy.",
}
SOCKS_HINTS = {
    0x02: "The proxy's rules forbid this target: ask whoever runs it.",
    0x03: "The network of the target is out of the proxy's reach.",
    0x04: "The proxy could not find or reach the target: check its name and address as the proxy sees them.",
    0x05: "The target refused the proxy: check the target's port, and whether the service runs.",
    0x08: "Try the other address family (-4 or -6), or socks5h to let the proxy resolve the name.",
}


def uses_absolute_form(request: Request, route: Route) -> bool:
    """Tell whether an HTTP proxy is asked for the whole URL (RFC 9112 section 3.2.2), not for a tunnel."""
    return not request.url.secure and route.proxy is not None and route.proxy.scheme in ("http", "https")


def proxy_authorization(request: Request, proxy: Proxy) -> list[Header]:
    """Return the field for the proxy: the user's own, else Basic from the proxy URL (RFC 7617)."""
    given = [item for item in request.headers if item[0].lower() == "proxy-authorization"]
    if given or proxy.username is None:
        return given
    token = base64.b64encode(proxy.username + b":" + (proxy.password or b""))
    return [("Proxy-Authorization", b"Basic " + token)]


def headers_to_send(request: Request, route: Route) -> tuple[Header, ...]:
    """Return what goes to the target, or to the proxy that forwards it; its credential goes nowhere else."""
    headers = [item for item in complete_headers(request) if item[0].lower() != "proxy-authorization"]
    if route.proxy and uses_absolute_form(request, route):
        headers += proxy_authorization(request, route.proxy)
    return tuple(headers)


def tunnel_head(request: Request, proxy: Proxy) -> bytes:
    """Return the CONNECT request; its target always names the port."""
    authority = request.url.authority
    if request.url.port == DEFAULT_PORTS[request.url.scheme]:
        authority += f":{request.url.port}"
    agent = [item for item in complete_headers(request) if item[0].lower() == "user-agent"]
    headers = [("Host", authority.encode("ascii")), *agent, *proxy_authorization(request, proxy)]
    return request_head("CONNECT", authority, headers)


def once(data: bytes) -> Source:
    """Return a source that gives its data once."""
    pieces = iter([data])
    return lambda: next(pieces, b"")


def open_tunnel(reader: Reader, proxy: Proxy, authorized: bool) -> int:
    """Read an HTTP proxy's answer to CONNECT; return the instant at which the tunnel stood.

    `authorized` tells that a credential was sent. Raises NetworkError.
    """
    try:
        response = read_head(reader, [], None)
    except EOFError:
        hint = "Check that the address belongs to an HTTP proxy, and the proxy's log."
        raise NetworkError(
            "proxy", f"the proxy {proxy.shown} hung up without answering CONNECT", hint
        ) from None
    reader.transport.source = silence
    if not 200 <= response.status < 300:
        message = f"the proxy {proxy.shown} refused the tunnel: {response.status} {foreign(response.reason)}"
        hint = PROXY_HINTS.get(response.status, "Look at the proxy's log, or ask whoever runs it.")
        if response.status == 407 and authorized:
            hint = "The proxy refused the user name and password: check them, and that it takes Basic."
        raise NetworkError("proxy", message, hint)
    if reader.left:
        hint = "Check that the address belongs to an HTTP proxy."
        raise NetworkError("proxy", f"the proxy {proxy.shown} sent data into the tunnel by itself", hint)
    return reader.arrived


class Credential(bytes):
    """A user name or password that PySocks takes for given even when it is empty."""

    def __bool__(self) -> bool:
        return True


class SocksWriter:
    """The file that PySocks writes to. PySocks 1.7.1 writes a length from 128 upward as two bytes."""

    def __init__(self, file: Any, proxy: Proxy) -> None:
        fields = (proxy.username or b"", proxy.password or b"")
        self._wrong = b"\x01" + b"".join(chr(len(field)).encode() + field for field in fields)
        self._right = b"\x01" + b"".join(bytes([len(field)]) + field for field in fields)
        self._file = file
        self.flush, self.close = file.flush, file.close

    def write(self, data: bytes) -> None:
        self._file.write(self._right if data == self._wrong else data)


def explain_socks(error: Any, proxy: Proxy) -> NetworkError:
    reply = re.match(r"0x([0-9a-f]{2}): (.*)", error.msg)
    if reply:
        code = int(reply[1], 16)
        message = f"the proxy {proxy.shown} refused: {reply[2].lower()} (SOCKS reply {code})"
        return NetworkError("proxy", message, SOCKS_HINTS.get(code, "Look at the proxy's log."))
    if type(error).__name__ == "SOCKS5AuthError":
        hint = f"Check the user name and password in the proxy URL: {proxy.scheme}://user:password@host:port."
        return NetworkError(
            "proxy", f"the proxy {proxy.shown} refused the credentials, or the lack of them", hint
        )
    hint = "Check that the address belongs to a SOCKS5 proxy, and the proxy's log."
    if "closed unexpectedly" in error.msg:
        return NetworkError("proxy", f"the proxy {proxy.shown} hung up during the negotiation", hint)
    return NetworkError(
        "proxy", f"the proxy {proxy.shown} does not answer like SOCKS5: {error.msg.lower()}", hint
    )


def open_socks(connection: socket.socket, proxy: Proxy, host: str, port: int) -> socket.socket:
    """Have PySocks negotiate over a connected socket; return the socket. Raises NetworkError, OSError."""
    socks = optional("socks")

    class Negotiator(socks.socksocket):  # type: ignore[misc, name-defined]
        def makefile(self, mode: str = "r", *args: Any) -> Any:
            file = super().makefile(mode, *args)
            return SocksWriter(file, proxy) if mode == "wb" else file

    negotiator = Negotiator(connection.family, connection.type, connection.proto, connection.detach())
    remote = proxy.scheme == "socks5h"
    given = proxy.username is not None
    username = Credential(proxy.username or b"") if given else None
    password = Credential(proxy.password or b"") if given else None
    negotiator.proxy = (socks.SOCKS5, proxy.host, proxy.port, remote, username, password)
    try:
        negotiator._negotiate_SOCKS5(host, port)
    except socks.ProxyError as error:
        negotiator.close()
        raise explain_socks(error, proxy) from None
    return socket.socket(fileno=negotiator.detach())


# ---------------------------------------------------------------------------------------------------------
# 18. HTTP/2. h2 speaks the protocol (RFC 9113); DATA is counted here, since nothing in it is kept and h2
#     takes three times as long for it. GOAWAY and RST_STREAM too: h2 would refuse what may follow them.
# ---------------------------------------------------------------------------------------------------------
DATA, HEADERS, RST_STREAM, GOAWAY, WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x7, 0x8
END_STREAM, PADDED = 0x1, 0x8
MAX_FRAME = 16384
HTTP2_HINT = "The server, or something in front of it, is at fault; --http1.1 avoids HTTP/2."
HTTP2_ERRORS = (
    "NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED "
    "FRAME_SIZE_ERROR REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM "
    "INADEQUATE_SECURITY HTTP_1_1_REQUIRED"
).split()


def http2_error(payload: bytes) -> str:
    code = int.from_bytes(payload, "big")
    return HTTP2_ERRORS[code] if code < len(HTTP2_ERRORS) else f"error {code}"


def fit_for_http2(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Leave out what concerns one connection alone (RFC 9113 section 8.2.2)."""
    named = {
        token.strip().lower().decode("latin-1")
        for value in values_of(headers, "connection")
        for token in value.split(b",")
    }
    left_out = CONNECTION_HEADERS | named - {"host"}
    return tuple(
        (name, value)
        for name, value in headers
        if name.lower() not in left_out or (name.lower() == "te" and value.lower() == b"trailers")
    )


def http2_headers(request: Request, headers: Sequence[Header]) -> list[tuple[bytes, bytes]]:
    """Return a request's fields: pseudo-headers first, names in lower case (RFC 9113 section 8)."""
    hosts = values_of(headers, "host")
    pseudo = [
        (b":method", request.method.encode("ascii")),
        (b":scheme", request.url.scheme.encode("ascii")),
        (b":authority", hosts[0] if hosts else request.url.authority.encode("ascii")),
        (b":path", request.url.target.encode("ascii")),
    ]
    return pseudo + [
        (name.lower().encode("ascii"), value) for name, value in headers if name.lower() != "host"
    ]


def parse_http2_status(fields: Iterable[tuple[bytes, bytes]]) -> int:
    values = [value for name, value in fields if name == b":status"]
    status = parse_status(values[0]) if len(values) == 1 else None
    if status is None or status == 101:
        raise protocol_error("the HTTP/2 response has no valid :status")
    return status


class Http2Exchange:
    """One request on stream 1. Made before the clock starts; `run` does the exchange."""

    def __init__(self, draft: Draft) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection
        from h2.events import InformationalResponseReceived, ResponseReceived, StreamEnded, StreamReset
        from h2.settings import SettingCodes, Settings

        self._events = (InformationalResponseReceived, ResponseReceived, StreamEnded, StreamReset)
        self._draft = draft
        self._body = memoryview(draft.request.body.data if draft.request.body else b"")
        self._connection = H2Connection(
            H2Configuration(header_encoding=False, validate_outbound_headers=False)
        )
        room = MAX_HEADER_BYTES + 32 * MAX_HEADER_LINES  # HPACK adds 32 to the size of each field
        self._connection.local_settings = Settings(
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: HTTP2_WINDOW,
                SettingCodes.MAX_FRAME_SIZE: MAX_FRAME,
                SettingCodes.MAX_HEADER_LIST_SIZE: room,
            }
        )
        self._connection.decoder.max_header_list_size = room
        self._connection.initiate_connection()
        self._connection.increment_flow_control_window(HTTP2_WINDOW - 65535)
        self.headers = fit_for_http2(draft.sent_headers)
        fields = http2_headers(draft.request, self.headers)
        self._connection.send_headers(1, fields, end_stream=not self._body)
        self._credit = b""
        self._consumed = 0
        self._chatter = 0
        self._allowance = MAX_HTTP2_CHATTER
        self._farewell: NetworkError | None = None
        self._headers_at = 0
        self._ended = False

    def run(self, reader: Reader) -> None:
        """Read the response while the rest of the request is sent, ending the phases wait and xfer."""
        draft, self._transport = self._draft, reader.transport
        try:
            while not self._ended:
                self._read_frame(reader)
        except EOFError:
            if self._farewell:
                raise self._farewell from None
            if draft.response is None:
                raise protocol_error("the server hung up without an answer", CLOSED_EARLY) from None
            message = f"the connection ended after {draft.received} bytes, before the end of the response"
            raise protocol_error(message, CLOSED_EARLY) from None
        self._check_length()
        draft.watch.end("xfer", reader.arrived)

    def source(self) -> bytes:
        """Return what h2 has to send, then as much of the body as the windows allow."""
        data: bytes = self._credit + self._connection.data_to_send()
        self._credit = b""
        if not data and self._body:
            room = min(
                self._connection.local_flow_control_window(1), self._connection.max_outbound_frame_size
            )
            if room > 0:
                chunk, self._body = self._body[:room], self._body[room:]
                self._connection.send_data(1, bytes(chunk), end_stream=not self._body)
                self._allowance += 4  # the credit that comes back, of connection and stream
                data = self._connection.data_to_send()
        elif not data and self._draft.watch.sent is None:
            self._draft.watch.sent = time.perf_counter_ns()
        return data

    def _read_frame(self, reader: Reader) -> None:
        """Read one frame and give it to whoever understands it (RFC 9113 section 4.1)."""
        header = reader.exactly(9)
        arrived = reader.arrived
        length, kind, flags = int.from_bytes(header[:3], "big"), header[3], header[4]
        stream = int.from_bytes(header[5:9], "big") & 0x7FFFFFFF
        if header[:5] == b"HTTP/":
            raise protocol_error("the server agreed on HTTP/2 but answers in HTTP/1", "Ask with --http1.1.")
        if length > MAX_FRAME:
            raise protocol_error(f"an HTTP/2 frame of {length} bytes came, {MAX_FRAME} are allowed")
        if kind == DATA and stream == 1 and self._draft.response is not None:
            self._count_data(reader, length, flags)
            return
        payload = reader.exactly(length)
        if kind == RST_STREAM and stream == 1 and length == 4:
            raise self._reset(http2_error(payload))
        if kind == GOAWAY and stream == 0 and length >= 8:
            self._go_away(payload)
            return
        if kind == HEADERS and stream == 1:
            self._headers_at = arrived
        else:
            self._chatter += 1
            if self._chatter > self._allowance:
                raise protocol_error(
                    f"more than {MAX_HTTP2_CHATTER} HTTP/2 control frames came with one response"
                )
        self._give(header + payload)

    def _count_data(self, reader: Reader, length: int, flags: int) -> None:
        """Pass over one DATA frame and return its credit to the sender (RFC 9113 section 6.1, 6.9)."""
        left = length
        if flags & PADDED:
            padding = reader.exactly(1)[0] if length else 0
            if padding >= length:
                raise protocol_error("an HTTP/2 DATA frame has more padding than content")
            left -= 1 + padding
        while left:
            count = reader.skip(left)
            if not count:
                raise EOFError
            left -= count
            self._draft.received += count
        if flags & PADDED:
            reader.exactly(padding)
        self._ended = bool(flags & END_STREAM)
        self._consumed += length
        if self._consumed >= HTTP2_WINDOW // 4:
            update = struct.pack(">I", self._consumed)
            self._credit = (
                b"\x00\x00\x04\x08\x00\x00\x00\x00\x00"
                + update
                + b"\x00\x00\x04\x08\x00\x00\x00\x00\x01"
                + update
            )
            self._consumed = 0

    def _reset(self, code: str) -> NetworkError:
        hints = {
            "HTTP_1_1_REQUIRED": "Ask over HTTP/1.1 with --http1.1.",
            "REFUSED_STREAM": "The server did not process the request, most likely overloaded: try again.",
            "NO_ERROR": "The server is closing its connections, for a restart perhaps: try again.",
        }
        hint = hints.get(code, "Look at the server's log; --http1.1 tells whether HTTP/2 is at fault.")
        return protocol_error(f"the server reset the HTTP/2 stream ({code})", hint)

    def _go_away(self, payload: bytes) -> None:
        """Give up when the server will not answer our stream (RFC 9113 section 6.8), else remember it."""
        last, code = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF, http2_error(payload[4:8])
        words = f": {foreign(payload[8:])}" if payload[8:].strip() else ""
        self._farewell = protocol_error(
            f"the server closed the HTTP/2 connection ({code}{words})", self._reset(code).hint
        )
        if last < 1:
            raise self._farewell

    def _give(self, frame: bytes) -> None:
        """Let h2 take a frame; raises NetworkError for whatever it does not accept."""
        interim, final, ended, reset = self._events
        try:
            events = self._connection.receive_data(frame)
        except MemoryError:
            raise
        except Exception as error:  # h2 and hpack fail in many ways on hostile input
            words = str(error) or type(error).__name__
            if "header block" in words:  # with addresses of memory in its details
                words = "a header section cannot be decompressed"
            raise protocol_error(
                f"the server broke the rules of HTTP/2: {foreign(words)}", HTTP2_HINT
            ) from None
        for event in events:
            if isinstance(event, interim):
                self._draft.interim.append(parse_http2_status(event.headers))
                if len(self._draft.interim) > MAX_INTERIM:
                    raise protocol_error(
                        f"more than {MAX_INTERIM} interim (1xx) responses came before the answer"
                    )
            elif isinstance(event, final):
                self._answer(event.headers)
            elif isinstance(event, ended) and event.stream_id == 1:
                self._ended = True
            elif isinstance(event, reset) and event.stream_id == 1:  # by h2 itself
                code = http2_error(int(event.error_code).to_bytes(4, "big"))
                raise protocol_error(f"the server broke the rules of HTTP/2 ({code})", HTTP2_HINT)

    def _answer(self, fields: Sequence[tuple[bytes, bytes]]) -> None:
        status = parse_http2_status(fields)
        self._draft.watch.end("wait", self._headers_at)
        headers = tuple((name.decode("latin-1"), bytes(value)) for name, value in fields if name[:1] != b":")
        if len(headers) > MAX_HEADER_LINES:
            raise protocol_error(f"the response has more than {MAX_HEADER_LINES} header lines")
        self._draft.response = Response(status, "", "HTTP/2", headers, None)
        self._transport.hurry()
        if status >= 300:
            self._body = self._body[:0]

    def _check_length(self) -> None:
        draft, response = self._draft, self._draft.response
        if response is None:
            raise protocol_error("the HTTP/2 stream ended without a response")
        length = content_length(response.headers)
        if (
            length is not None
            and length != draft.received
            and has_body(draft.request.method, response.status)
        ):
            raise protocol_error(f"the body has {draft.received} bytes, its content-length says {length}")


# ---------------------------------------------------------------------------------------------------------
# 19. Step. What must be ready before the clock starts, and the way from a name to a secured connection.
# ---------------------------------------------------------------------------------------------------------
class Prepared(NamedTuple):
    """What a step needs and the clock must not see being made."""

    trust: Trust
    looks_up: bool
    dial: Dial
    wire: SocketTransport
    proxy_tls: TlsTransport | None
    tunnel: Source | None
    target_tls: TlsTransport | None
    reader: Reader
    head_bytes: int
    request: Source
    http2: Http2Exchange | None


class TlsSetup:
    """The one TLS context of a run. It is made in a thread: while OpenSSL reads the CA store, Python can
    import what else is needed (3.9 keeps the interpreter's lock for that, 3.11 does not).
    """

    def __init__(self, options: Options) -> None:
        self.trust = Trust(options.insecure, options.ca_bundle)
        self.warnings: list[str] = []
        self._environ, self._seconds = options.environ, options.max_time
        self._thread: threading.Thread | None = None
        self._context: ssl.SSLContext
        self._error: BaseException | None = None

    def start(self) -> threading.Thread:
        self._thread = threading.Thread(target=self._make, daemon=True)
        self._thread.start()
        return self._thread

    def _make(self) -> None:
        try:
            self._context = build_context(self.trust, self._environ, self._seconds)
            warning = log_keys(self._context, self._environ.get("SSLKEYLOGFILE"))
        except BaseException as error:
            self._error = error
        else:
            self.warnings += [warning] if warning else []

    def context(self, *protocols: str) -> ssl.SSLContext:
        """Return the context, for one TLS object that offers these protocols (ALPN).

        Raises UsageError when SSL_CERT_FILE is broken.
        """
        (self._thread or self.start()).join()
        if self._error:
            raise self._error
        self._context.set_alpn_protocols(protocols)
        return self._context


def needs_lookup(request: Request, route: Route, options: Options) -> bool:
    """Tell whether a resolver is asked here: for the first hop, and with socks5 for the target."""
    places = {route.first_hop(request.url)}
    if route.proxy and route.proxy.scheme == "socks5":
        places.add((request.url.host, request.url.port))
    return any(not is_ip(host) and (host, port) not in options.overrides for host, port in places)


def warm_lookup() -> None:
    """Have the C library load what its first lookup needs, so that the dns phase does not hold it.

    In a thread of its own, because a broken resolver may never come back, even for localhost.
    """

    def rehearse() -> None:
        try:
            look_up("localhost", 80, socket.AF_UNSPEC)
        except OSError:
            pass

    thread = threading.Thread(target=rehearse, daemon=True)
    thread.start()
    thread.join(0.05)


def settle() -> None:
    """Where CPUs are short, nap some times, so that the kernel wakes this thread on time from then on.

    Linux runs a thread that has waited for its turn before one that has just had it (EEVDF, from 6.6 on).
    After a start that is all computing, the first answers would be noticed a time slice late.
    """
    if run_delay(os.getpid()) > SHORT_OF_CPU:
        for _ in range(NAPS):
            time.sleep(NAP)


def join(prepared: Prepared) -> None:
    """Put the layers on each other, so that the first flight leaves as soon as the connection stands."""
    top: Transport = prepared.wire
    if prepared.proxy_tls:
        prepared.proxy_tls.attach(top)
        top = prepared.proxy_tls
    if prepared.tunnel:
        top.source = prepared.tunnel
    elif prepared.target_tls:
        prepared.target_tls.attach(top)
    else:
        top.source = prepared.request
    prepared.reader.transport = top


def prepare(draft: Draft, options: Options, tls_setup: TlsSetup) -> Prepared:
    """Do what must not happen in the timed region; raises UsageError."""
    request, proxy = draft.request, draft.route.proxy
    draft.sent_headers = headers_to_send(request, draft.route)
    target_tls = proxy_tls = http2 = tunnel = None
    if request.url.secure:
        if options.http2 and optional("h2.connection"):
            http2 = Http2Exchange(draft)
        context = tls_setup.context(*(("h2",) if http2 else ()), "http/1.1")
        target_tls = TlsTransport(context, request.url.server_name)
        if proxy and not proxy.socks:
            tunnel = once(tunnel_head(request, proxy))
    if proxy and proxy.scheme == "https":
        proxy_tls = TlsTransport(tls_setup.context("http/1.1"), server_name(proxy.host))
    absolute = f"http://{request.url.authority}" if uses_absolute_form(request, draft.route) else ""
    head = request_head(request.method, absolute + request.url.target, draft.sent_headers)
    body = request.body.data if request.body else b""
    wire = SocketTransport()
    socks = proxy is not None and proxy.socks
    prepared = Prepared(
        trust=tls_setup.trust,
        looks_up=needs_lookup(request, draft.route, options),
        dial=Dial(draft, None if socks else wire),
        wire=wire,
        proxy_tls=proxy_tls,
        tunnel=tunnel,
        target_tls=target_tls,
        reader=Reader(),
        head_bytes=len(head),
        request=upload(head, body, draft.watch),
        http2=http2,
    )
    join(prepared)
    prepared.dial.get_ready([options.family] if options.family else [socket.AF_INET, socket.AF_INET6])
    if draft.number == 1:
        settle()
    if prepared.looks_up:
        warm_lookup()
    if not socks:
        wire.load()
    return prepared


def connect(draft: Draft, options: Options, prepared: Prepared) -> Http2Exchange | None:
    """Look up, connect, negotiate with the proxy, shake hands and send the beginning of the request.

    Ends the phases dns, connect and tls. Returns the exchange if it is over HTTP/2 (by ALPN).
    """
    url, proxy, watch = draft.request.url, draft.route.proxy, draft.watch
    target, dial = url.host, prepared.dial
    peers = resolve(*draft.route.first_hop(url), options)
    draft.addresses = tuple(peer.ip for peer in peers)
    if proxy and proxy.scheme == "socks5":
        target = resolve(url.host, url.port, options)[0].ip
    if not prepared.looks_up:
        watch.end("dns", watch.start)
    connection = dial.run(peers)
    connected = dial.connected if prepared.target_tls else dial.wait_starts
    if proxy and proxy.socks:
        draft.socket = open_socks(connection, proxy, target.partition("%")[0], url.port)
        connected = time.perf_counter_ns()
        prepared.wire.load()
        prepared.wire.attach(draft.socket)
    if prepared.proxy_tls:
        prepared.proxy_tls.open()
        connected = prepared.proxy_tls.send_first()
    if prepared.tunnel and proxy:
        connected = open_tunnel(prepared.reader, proxy, bool(proxy_authorization(draft.request, proxy)))
    watch.end("connect", connected)
    if not prepared.target_tls:
        watch.end("tls", watch.newest)
        return None
    if prepared.tunnel:
        prepared.target_tls.attach(prepared.reader.transport)
    prepared.target_tls.open()
    http2 = prepared.http2 if prepared.target_tls.tls.selected_alpn_protocol() == "h2" else None
    prepared.target_tls.source = prepared.request
    if http2:
        prepared.target_tls.source, draft.sent_headers = http2.source, http2.headers
    ended = prepared.target_tls.send_first()
    draft.secured = prepared.reader.transport = prepared.target_tls
    watch.end("tls", ended)
    return http2


# ---------------------------------------------------------------------------------------------------------
# 20. Outcome. Why a step failed, in words that are true in its phase; what the other side repeats of a secret
#     is masked; Draft -> Step.
# ---------------------------------------------------------------------------------------------------------
def explain_system(error: Exception, draft: Draft, place: str) -> NetworkError:
    """Put an OSError in words, by the phase under way."""
    words = words_of(error) if isinstance(error, OSError) else str(error)
    if draft.watch.phase == "connect" and draft.peer is None:
        failed = [attempt for _, attempt in draft.attempts if attempt.error]
        message = f"no connection to {place}: {words}"
        if len(failed) > 1:
            message += f" ({len(failed)} addresses tried)"
        hint = CONNECT_HINTS.get(getattr(error, "errno", 0) or 0, "Check the network of this machine.")
        return NetworkError("network", message, hint)
    doing = {
        "connect": "during the negotiation with the proxy",
        "tls": "during the TLS handshake",
        "wait": "while the request was being sent" if draft.watch.sent is None else "before any answer came",
        "xfer": f"after {draft.received} bytes of the body"
        if draft.response
        else "in the middle of the header",
    }
    hints = {
        "tls": "A server or firewall that dislikes the TLS version or the host name does this; "
        "or the port does not speak TLS.",
        "wait": "The server may have crashed or been restarted, or a device in between cut the connection"
        + (": look at its log." if draft.request.url.secure else ", or the port speaks TLS: try https://."),
    }
    if draft.watch.phase == "wait" and draft.watch.sent is None and draft.request.body:
        hints["wait"] = (
            "The server broke off while taking the body: look at its limit for bodies, and its log."
        )
    message = f"{words} {doing.get(draft.watch.phase, '')}".rstrip()
    return NetworkError("network", message, hints.get(draft.watch.phase, CLOSED_EARLY))


def blame_proxy(error: NetworkError, draft: Draft) -> NetworkError:
    """Say that a forwarding proxy stands between us and the server that seems to be at fault."""
    if (
        draft.route.proxy
        and uses_absolute_form(draft.request, draft.route)
        and draft.watch.phase in ("wait", "xfer")
    ):
        hint = f"This was the proxy {draft.route.proxy.shown}, or the server behind it. {error.hint}"
        return NetworkError(error.kind, error.message, hint)
    return error


def explain(error: Exception, draft: Draft, prepared: Prepared) -> NetworkError:
    """Say why a step failed: the kinds of the JSON export, in words that fit the phase under way."""
    phase, proxy, url = draft.watch.phase, draft.route.proxy, draft.request.url
    before_tunnel = proxy is not None and (phase == "connect" or (phase == "dns" and not draft.addresses))
    host, port = (proxy.host, proxy.port) if proxy and before_tunnel else (url.host, url.port)
    if isinstance(error, NetworkError):
        found = error
    elif isinstance(error, ssl.SSLError):
        failed = prepared.proxy_tls if before_tunnel else prepared.target_tls
        found = explain_tls(error, failed, (host, port), prepared.trust)
    elif isinstance(error, EOFError):
        hint = (
            "Check that the port speaks TLS; some servers and firewalls hang up on names they do not serve."
        )
        found = NetworkError("tls", "the server closed the connection during the TLS handshake", hint)
    else:
        found = explain_system(error, draft, f"{host} port {port}")
    if before_tunnel and proxy and found.kind != "proxy":
        if draft.peer and found.kind in ("network", "protocol"):
            found.hint = "Check that the address belongs to such a proxy, and look at the proxy's log."
        return NetworkError("proxy", f"the proxy {proxy.shown} cannot be used: {found.message}", found.hint)
    return blame_proxy(found, draft)


def explain_timeout(draft: Draft, seconds: float) -> NetworkError:
    """Say what the step was waiting for when the time of -m was over."""
    limit = f"within {seconds:g} s"
    longer = "raise -m if that is to be expected"
    if not draft.watch.start:
        message = f"the time of {seconds:g} s was over before this step began"
        cause = "Earlier steps took it" if draft.number > 1 else "This machine or its CA store is too slow"
        return NetworkError("timeout", message, f"{cause}: {longer}.")
    url, proxy, phase = draft.request.url, draft.route.proxy, draft.watch.phase
    host, port = draft.route.first_hop(url)
    whose = f"the proxy {proxy.shown}" if proxy else f"{host} port {port}"
    if phase == "dns":
        message = f"the resolver gave no answer for {url.host if draft.addresses else host} {limit}"
        hint = (
            "Check that the name servers in /etc/resolv.conf can be reached; "
            "--resolve HOST:PORT:ADDR goes around them."
        )
    elif phase == "connect" and draft.peer is None:
        message = f"no connection to {whose} {limit}"
        hint = "Nothing came back: a firewall drops packets, the host is down, or the service is too busy."
    elif phase == "connect":
        message, hint = f"{whose} did not open the way {limit}", f"Look at the proxy's log; {longer}."
    elif phase == "tls":
        message = f"the TLS handshake was not finished {limit}"
        hint = "The server accepts connections but no handshake: it is overloaded, or does not speak TLS."
        if proxy:
            hint = "The proxy opened the way, but the target does not shake hands: look at both their logs."
    elif phase == "wait" and draft.watch.sent is None:
        message = f"the request could not be sent whole {limit}"
        hint = f"The server takes no more of the body: look at the server's limits and load; {longer}."
    elif phase == "wait":
        seen = ", ".join(str(status) for status in draft.interim[-3:])
        message = f"only interim responses ({seen}) came {limit}" if seen else f"no response came {limit}"
        hint = f"The server is connected but does not answer: look at its load and log; {longer}."
    else:
        what = "not even its header is whole"
        if draft.response:
            lengths = values_of(draft.response.headers, "content-length")
            whole = f" of {parse_length(lengths[0], 10)}" if lengths else ""
            what = f"{draft.received}{whole} bytes of the body came"
        message = f"the response was not complete {limit}: {what}"
        hint = f"A large body, a slow path or a stalled server: {longer}."
    return blame_proxy(NetworkError("timeout", message, hint), draft)


def credential_parts(text: str) -> Iterator[str]:
    """Give all of a credential that may come back alone: the value, its tokens, parameters, decoded Basic."""
    yield text
    words = re.split(r"[\s,;]+", text)
    for word in words[1:] if len(words) > 1 and "=" not in words[0] else words:
        yield from (word.rstrip("="), word.partition("=")[2].strip('"'))
        try:
            pair = decode(base64.b64decode(word, validate=True)) if words[0].lower() == "basic" else ""
        except ValueError:
            continue
        yield from (pair, *pair.split(":", 1))


def secrets_of(options: Options) -> tuple[str, ...]:
    """Return every credential that the user gave, longest first, to be masked where the network echoes it."""
    found: set[str] = set()
    for name, value in options.request.headers:
        if name.lower() in SECRET_HEADERS:
            found.update(credential_parts(decode(value)))
    for scheme in ("http", "https"):
        try:
            url = options.request.url._replace(scheme=scheme)
            proxy = choose_route(url, options.proxy, options.environ).proxy
        except UsageError:  # of a variable that this run does not use
            continue
        if proxy and proxy.username is not None:
            pair = proxy.username + b":" + (proxy.password or b"")
            found.update(decode(part) for part in (pair, *pair.split(b":", 1), base64.b64encode(pair)))
    # Shorter ones would mask half of what the other side says.
    return tuple(sorted((secret for secret in found if len(secret) >= 3), key=len, reverse=True))


def mask_headers(headers: Iterable[Header], secrets: Sequence[str]) -> tuple[Header, ...]:
    masked = []
    for name, value in headers:
        for secret in secrets:
            value = value.replace(secret.encode("utf-8"), b"***")
        masked.append((name, value))
    return tuple(masked)


def describe_network(draft: Draft, trust: Trust, now: int) -> Network:
    """Gather what is known of the connection, from the kernel and OpenSSL too; after the clock stopped."""
    pending = [
        (begun, Attempt(peer.ip, max(0, round((now - begun) / 1000)), "no answer"))
        for peer, begun in list(draft.dialling.values())
    ]
    rtt, retransmits = read_tcp_info(tcp_info(draft.socket))
    return Network(
        peer=draft.peer,
        port=draft.route.first_hop(draft.request.url)[1],
        addresses=draft.addresses,
        attempts=tuple(attempt for _, attempt in sorted(draft.attempts + pending, key=lambda item: item[0])),
        tls=tls_info(draft.secured, trust) if draft.secured else None,
        rtt_us=rtt,
        retransmits=retransmits,
    )


def finish(draft: Draft, options: Options, error: NetworkError | None, failed_at: int | None) -> Step:
    """Freeze a draft. What the network said is masked here, once, for every report."""
    secrets = secrets_of(options)
    response = draft.response
    if response and secrets:
        headers = mask_headers(response.headers, secrets)
        response = response._replace(reason=mask(response.reason, secrets), headers=headers)
    failure = None
    if error:
        failure = Failure(error.kind, draft.watch.phase, own_words(error.message, secrets), error.hint)
    waited = run_delay(draft.thread) - draft.run_delay if draft.watch.start else 0
    return Step(
        number=draft.number,
        url=mask(draft.request.url.text, secrets),
        request=draft.request,
        sent_headers=mask_headers(draft.sent_headers, secrets),
        sent_header_bytes=draft.sent_header_bytes,
        route=draft.route,
        started_at=draft.started_at,
        timing=draft.watch.timing(failed_at),
        network=describe_network(
            draft, Trust(options.insecure, options.ca_bundle), failed_at or time.perf_counter_ns()
        ),
        response=response,
        body_bytes=draft.received,
        interim=tuple(draft.interim),
        error=failure,
        starved_us=waited // 1000,
    )


# ---------------------------------------------------------------------------------------------------------
# 21. Chain. Steps -> Run; the measuring thread, and the one that waits for it.
# ---------------------------------------------------------------------------------------------------------
class Progress:
    """What the measuring and the waiting thread share; `lock` decides who has the last word."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.finished = threading.Event()
        self.started = 0
        self.draft: Draft | None = None
        self.steps: list[Step] = []
        self.limit_reached = False
        self.abandoned = False
        self.crash: BaseException | None = None

    def commit(self, step: Step) -> bool:
        """Add a step; False when the deadline has passed and the run was reported without it."""
        with self.lock:
            if not self.abandoned:
                self.steps.append(step)
                self.draft = None
            return not self.abandoned


def perform(draft: Draft, options: Options, prepared: Prepared) -> NetworkError | None:
    """Make one request, stamping the draft's watch; return why it failed, None when it did not."""
    try:
        http2 = connect(draft, options, prepared)
        if http2:
            http2.run(prepared.reader)
        else:
            draft.sent_header_bytes = prepared.head_bytes
            exchange_http1(draft, prepared.reader)
    except (NetworkError, OSError, EOFError) as error:  # ssl.SSLError is an OSError
        draft.failed_at = time.perf_counter_ns()
        if prepared.target_tls and prepared.target_tls.certificate:
            draft.secured = prepared.target_tls
        return explain(error, draft, prepared)
    return None


def make_step(draft: Draft, options: Options, tls_setup: TlsSetup, progress: Progress) -> Step:
    """Prepare, perform and freeze one step; raises UsageError when the first one cannot be prepared."""
    try:
        prepared = prepare(draft, options, tls_setup)
    except UsageError as unprepared:
        if draft.number == 1:
            raise
        hint = "Correct the variable, or name a CA bundle with --cacert."
        return finish(draft, options, NetworkError("tls", unprepared.message, hint), draft.watch.start)
    draft.run_delay = run_delay(draft.thread)
    draft.watch.begin()
    progress.started = progress.started or draft.watch.start
    failure = perform(draft, options, prepared)
    step = finish(draft, options, failure, draft.failed_at)
    prepared.dial.close()
    if draft.socket:
        draft.socket.close()
    return step


def broken_redirect(step: Step, error: NetworkError) -> Step:
    """Return the failed step of a redirect that leads nowhere: nothing was sent."""
    (location, *_) = values_of(step.response.headers if step.response else (), "location")
    text = clip(mask_location(location.decode("utf-8", "surrogateescape")))
    # Quoted first: urljoin takes control characters away, and fails on what they hid.
    url = absolute(step.url, quote_target("/" + text)[1:])
    return step._replace(
        number=step.number + 1,
        url=url,
        sent_headers=(),
        sent_header_bytes=None,
        started_at=datetime.datetime.now(datetime.timezone.utc),
        timing=Timing(0, None, None, None, None, 0, None, None),
        network=Network(None, None, (), (), None, None, None),
        response=None,
        body_bytes=0,
        interim=(),
        error=Failure(error.kind, "dns", own_words(error.message, ()), error.hint),
        starved_us=0,
    )


def follow(options: Options, tls_setup: TlsSetup, progress: Progress) -> None:
    """Make the request, and with --follow those that it leads to: the one loop of the program."""
    request = options.request
    while True:
        draft = Draft(
            len(progress.steps) + 1, request, choose_route(request.url, options.proxy, options.environ)
        )
        progress.draft = draft
        step = make_step(draft, options, tls_setup, progress)
        if not progress.commit(step) or step.error or not step.response or not options.follow:
            return
        locations = values_of(draft.response.headers if draft.response else (), "location")
        if step.response.status not in REDIRECTS or not locations:
            return
        if len(progress.steps) > MAX_REDIRECTS:
            progress.limit_reached = True
            return
        try:
            url = resolve_location(request.url, locations)
        except NetworkError as error:
            progress.commit(broken_redirect(step, error))
            return
        request = next_request(request, step.response.status, url)


def abandon(progress: Progress, options: Options, deadline: int) -> None:
    """Close the step under way as timed out; one that has just ended is given the moment to be committed."""
    for last_chance in [False] * 30 + [True]:
        with progress.lock:
            draft = progress.draft
            if progress.finished.is_set():
                return
            if last_chance and not draft:  # between two steps
                (*_, step) = progress.steps
                draft = Draft(step.number + 1, step.request, step.route)
            draft = draft and draft.frozen()
            if draft and (last_chance or not draft.complete):
                progress.abandoned = True
                error = explain_timeout(draft, options.max_time)
                progress.steps.append(finish(draft, options, error, deadline))
                return
        time.sleep(0.001)


def measure(
    options: Options, tls_setup: TlsSetup, watch_progress: Callable[[Progress], None], tick: float
) -> Run:
    """Run the chain in a thread of its own and wait for it, never longer than the deadline.

    What cannot be interrupted (a resolver, a handshake, a SOCKS dialogue) is left behind; nothing joins
    the thread. `watch_progress` is called every `tick` seconds. Raises UsageError, and whatever crashed.
    """
    progress = Progress()

    def work() -> None:
        try:
            follow(options, tls_setup, progress)
        except BaseException as error:
            progress.crash = error
        progress.finished.set()

    begun = time.perf_counter_ns()
    threading.Thread(target=work, daemon=True).start()
    allowed = round(min(options.max_time, 1e9) * 1e9)
    while not progress.finished.is_set():
        # What comes before the clock starts is local and quick; 5 s is for a machine in trouble.
        deadline = progress.started + allowed if progress.started else begun + allowed + 5_000_000_000
        left = (deadline - time.perf_counter_ns()) / 1e9
        if left <= 0:
            abandon(progress, options, deadline)
            break
        pause = min(left, tick) if progress.started else min(options.max_time, tick, left)
        progress.finished.wait(pause)
        watch_progress(progress)
    if progress.crash:
        raise progress.crash
    return Run(tuple(progress.steps), progress.limit_reached)


# ---------------------------------------------------------------------------------------------------------
# 22. Verdict. Run -> the budgets' outcome and the exit code.
# ---------------------------------------------------------------------------------------------------------
def judge(thresholds: dict[str, float], run: Run) -> Verdict | None:
    """Hold the last successful step against the budgets; None when there are none, or no such step.

    Times are whole microseconds by now, so that the verdict can be computed again from what is printed.
    """
    step = next((step for step in reversed(run.steps) if not step.error), None)
    if not thresholds or not step:
        return None
    violations = []
    for key in sorted(thresholds):
        actual, threshold = step.timing.ms(key) or 0.0, thresholds[key]
        if actual > threshold:
            delta = round(actual - threshold, 9)  # exact for thresholds with up to nine decimals
            violations.append(Violation(key, threshold, actual, delta))
    return Verdict(step.number, thresholds, tuple(violations))


def choose_exit_code(options: Options, run: Run, verdict: Verdict | None, unwritten: bool) -> ExitCode:
    """Return the code of the first condition that holds, in the specification's order of priority."""
    last = run.steps[-1].response
    table = (
        (run.limit_reached, ExitCode.REDIRECT_LIMIT),
        (any(step.error for step in run.steps), ExitCode.NETWORK),
        (unwritten, ExitCode.WRITE),
        (options.fail and last is not None and 400 <= last.status < 600, ExitCode.HTTP_ERROR),
        (verdict is not None and not verdict.passed, ExitCode.SLO),
    )
    return next((code for holds, code in table if holds), ExitCode.OK)


# ---------------------------------------------------------------------------------------------------------
# 23. Words. Numbers and names -> text; the machine-readable lines.
# ---------------------------------------------------------------------------------------------------------
def visible(text: str) -> str:
    """Show what is not printable (controls, bidi overrides, line separators, surrogates) as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def size_text(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    if count < 1024 * 1024 - 51:  # what would be rounded to 1024.0 KB is a megabyte
        return f"{count / 1024:.1f} KB"
    return f"{count / (1024 * 1024):.1f} MB"


def shortest(value: float) -> str:
    """Return 500 for 500.0, 0.5 for 0.5."""
    return f"{value:.15g}" if value < 1e15 else repr(value)


def up_to_three(value: float) -> str:
    """Return at least one and at most three decimals."""
    text = f"{value:.3f}"
    return text[:-2] if text.endswith("00") else text[:-1] if text.endswith("0") else text


def family_name(peer: Peer | None) -> str | None:
    return None if peer is None else "IPv6" if peer.family == socket.AF_INET6 else "IPv4"


def metrics_line(step: Step, verdict: Verdict | None) -> str:
    """Return the key=value line of a step; `-` stands for what does not exist."""
    timing, network = step.timing, step.network
    tokens: dict[str, object] = {}
    for key in ("dns", "connect", "tls", "ttfb", "total"):
        value = timing.ms(key)
        tokens[key] = "-" if value is None else f"{value:.3f}"
    tokens["status"] = step.response.status if step.response and not step.error else 0
    tokens["bytes"] = step.body_bytes
    tokens["ip"] = network.peer.ip if network.peer else "-"
    tokens["family"] = family_name(network.peer) or "-"
    tokens["tls_version"] = (network.tls.version if network.tls else None) or "-"
    tokens["proxy"] = step.route.proxy.shown if step.route.proxy else "direct"
    if step.error:
        tokens["error"] = step.error.kind
    if verdict and verdict.step_number == step.number:
        tokens["slo"] = "pass" if verdict.passed else "fail"
        if not verdict.passed:
            tokens["slo_violations"] = ",".join(violation.key for violation in verdict.violations)
    return f"Step {step.number}: " + " ".join(f"{key}={value}" for key, value in tokens.items())


def compact_line(step: Step) -> str:
    times = []
    for key in ("dns", "connect", "tls", "ttfb", "total"):
        value = step.timing.ms(key)
        times.append(f"{key}=-" if value is None else f"{key}={value:.1f}ms")
    if step.error:
        status, end = "ERROR", f"{step.error.kind}: {step.error.message}"
    else:
        status, end = str(step.response.status if step.response else 0), size_text(step.body_bytes)
    return f"Step {step.number}: {status} {step.request.method} {clip(step.url)} | {' '.join(times)} | {end}"


def status_text(progress: Progress) -> str:
    """Say what a run is doing, for the status line."""
    draft = progress.draft
    if not draft or not draft.watch.start:
        return ""
    phase, now = draft.watch.phase, time.perf_counter_ns()
    text = f"step {draft.number}: {phase} {(now - draft.watch.newest) / 1e9:.1f} s"
    if phase == "xfer" and draft.received:
        rate = draft.received * 1e9 / max(1, now - draft.watch.newest)
        text += f", {size_text(draft.received)} at {size_text(round(rate))}/s"
    return text


# ---------------------------------------------------------------------------------------------------------
# 24. Documents. Report -> JSON and HAR.
# ---------------------------------------------------------------------------------------------------------
def instant_text(moment: datetime.datetime) -> str:
    """Return RFC 3339, UTC, with milliseconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def shown_value(name: str, value: bytes) -> str:
    text = decode(value)
    return mask_location(text) if name.lower() == "location" else mask_userinfo(text)


def header_list(headers: Iterable[Header]) -> list[dict[str, str]]:
    """Return header fields in order, credentials masked."""
    return [
        {"name": name, "value": "***" if name.lower() in SECRET_HEADERS else shown_value(name, value)}
        for name, value in headers
    ]


def tls_fields(info: TlsInfo | None, now: datetime.datetime) -> dict[str, Any]:
    certificate = info.certificate if info else None
    second = "%Y-%m-%dT%H:%M:%SZ"
    return {
        "alpn": info.alpn if info else None,
        "tls_version": info.version.replace("v", " ") if info and info.version else None,
        "tls_cipher": info.cipher if info else None,
        "cert_cn": certificate.common_name if certificate else None,
        "cert_sans": list(certificate.names) if certificate else None,
        "cert_issuer": certificate.issuer if certificate else None,
        "cert_serial": certificate.serial if certificate else None,
        "cert_not_before": certificate.not_before.strftime(second) if certificate else None,
        "cert_not_after": certificate.not_after.strftime(second) if certificate else None,
        "cert_days_left": certificate.days_left(now) if certificate else None,
        "tls_verified": info.verified if info else None,
        "tls_custom_ca": info.custom_ca if info else None,
    }


def network_document(step: Step) -> dict[str, Any]:
    network, route = step.network, step.route
    return {
        "ip": network.peer.ip if network.peer else None,
        "ip_family": family_name(network.peer),
        "port": network.port,
        "addresses": list(network.addresses),
        "attempts": [
            {"ip": attempt.ip, "duration_ms": attempt.duration_us / 1000, "error": attempt.error}
            for attempt in network.attempts
        ],
        "http_version": step.response.http_version if step.response else None,
        **tls_fields(network.tls, step.started_at),
        "proxy_url": route.proxy.shown if route.proxy else None,
        "proxy_source": route.source,
        "tcp_rtt_ms": None if network.rtt_us is None else network.rtt_us / 1000,
        "tcp_retransmits": network.retransmits,
    }


def response_document(step: Step) -> dict[str, Any] | None:
    response = step.response
    if response is None:
        return None
    location = response.get("location")
    return {
        "status": response.status,
        "reason": response.reason or None,
        "http_version": response.http_version,
        "bytes": step.body_bytes,
        "content_type": response.get("content-type"),
        "server": response.get("server"),
        "date": response.get("date"),
        "location": None if location is None else mask_location(location),
        "headers": header_list(response.headers),
        "interim": list(step.interim),
    }


def step_document(step: Step) -> dict[str, Any]:
    keys = ("dns", "connect", "tls", "wait", "xfer", "ttfb", "total", "send")
    return {
        "step_number": step.number,
        "url": step.url,
        "started_at": instant_text(step.started_at),
        "request": {
            "method": step.request.method,
            "headers": header_list(step.sent_headers),
            "body_bytes": len(step.request.body.data) if step.request.body else 0,
        },
        "timing": {f"{key}_ms": step.timing.ms(key) for key in keys},
        "network": network_document(step),
        "response": response_document(step),
        "error": None if step.error is None else dict(step.error._asdict()),
    }


def summary_document(report: Report) -> dict[str, Any]:
    steps = report.run.steps
    last = steps[-1]
    summary: dict[str, Any] = {
        "total_time_ms": sum(step.timing.total for step in steps) / 1000,
        "final_status": last.response.status if last.response and not last.error else None,
        "final_url": last.url,
        "final_bytes": last.body_bytes,
        "errors": sum(1 for step in steps if step.error),
    }
    if report.verdict:
        summary["slo"] = {
            "pass": report.verdict.passed,
            "thresholds_ms": report.verdict.thresholds,
            "violations": [dict(violation._asdict()) for violation in report.verdict.violations],
        }
    return summary


def json_document(report: Report) -> dict[str, Any]:
    """Return the JSON export without its steps."""
    steps = report.run.steps
    return {
        "schema_version": 1,
        "tool_version": __version__,
        "started_at": instant_text(steps[0].started_at),
        "initial_url": steps[0].url,
        "total_steps": len(steps),
        "summary": summary_document(report),
        "steps": [],
    }


def har_document(report: Report) -> dict[str, Any]:
    """Return a HAR 1.2 log without its entries: one page, one entry a step."""
    steps = report.run.steps
    total = sum(step.timing.total for step in steps)
    # The clock on the wall, by which the steps start, may have been set back in between.
    last = (steps[-1].started_at - steps[0].started_at) // datetime.timedelta(microseconds=1)
    loaded = max(total, last + steps[-1].timing.total) / 1000
    page = {
        "startedDateTime": instant_text(steps[0].started_at),
        "id": "page_1",
        "title": steps[0].url,
        "pageTimings": {"onContentLoad": -1, "onLoad": loaded},
    }
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "httphases", "version": __version__},
            "pages": [page],
            "entries": [],
        }
    }


def har_timings(timing: Timing) -> dict[str, float]:
    """Return HAR's phases in ms, -1 for what does not apply; connect holds ssl, wait begins after send."""
    send, wait = timing.send or 0, timing.wait or 0
    connect = None if timing.connect is None else timing.connect + (timing.tls or 0)
    return {
        "blocked": -1,
        "dns": timing.dns / 1000 if timing.dns else -1,
        "connect": -1 if connect is None else connect / 1000,
        "ssl": timing.tls / 1000 if timing.tls else -1,
        "send": send / 1000,
        "wait": (wait - send) / 1000,
        "receive": (timing.xfer or 0) / 1000,
    }


def cookie_name(pair: str) -> str:
    """Return what stands before `=`; without one all of it is the value."""
    name, equals, _ = pair.partition("=")
    return name.strip() if equals else ""


def har_request(step: Step) -> dict[str, Any]:
    """Return what was asked; the body is only measured."""
    given = values_of(step.request.headers, "cookie") if step.sent_headers else ()
    cookies = [part for value in given for part in decode(value).split(";")]
    query = "&".join(step.url.partition("?")[2].split("&", MAX_QUERY_FIELDS)[:MAX_QUERY_FIELDS])
    request: dict[str, Any] = {
        "method": step.request.method,
        "url": step.url,
        "httpVersion": "HTTP/2" if step.network.tls and step.network.tls.alpn == "h2" else "HTTP/1.1",
        "cookies": [{"name": cookie_name(cookie), "value": "***"} for cookie in cookies],
        "headers": header_list(step.sent_headers),
        "queryString": [
            {"name": name, "value": value}
            for name, value in urllib.parse.parse_qsl(query, keep_blank_values=True)
        ],
        "headersSize": -1 if step.sent_header_bytes is None else step.sent_header_bytes,
        "bodySize": len(step.request.body.data) if step.request.body else 0,
    }
    if step.request.body:
        sent = values_of(step.sent_headers, "content-type")
        mime = decode(sent[0]) if sent else step.request.body.content_type
        request["postData"] = {"mimeType": mime, "text": "", "comment": "the body is not recorded"}
    return request


def har_response(step: Step) -> dict[str, Any]:
    """Return what was answered; HAR asks for empty values where there was nothing."""
    response = step.response
    headers = response.headers if response else ()
    cookies = [cookie_name(decode(value).partition(";")[0]) for value in values_of(headers, "set-cookie")]
    # A response that failed half-way has status 0, as in the other reports.
    status = response.status if response and not step.error else 0
    return {
        "status": status,
        "statusText": response.reason if response and status else "",
        "httpVersion": response.http_version if response else "unknown",
        "cookies": [{"name": name, "value": "***"} for name in cookies],
        "headers": header_list(headers),
        "content": {
            "size": step.body_bytes,
            "mimeType": (response.get("content-type") if response else None) or "x-unknown",
            "comment": "the body is not recorded",
        },
        "redirectURL": mask_location((response.get("location") if response else None) or ""),
        "headersSize": response.header_bytes if response and response.header_bytes is not None else -1,
        "bodySize": step.body_bytes,
    }


def har_entry(step: Step) -> dict[str, Any]:
    timings = har_timings(step.timing)
    apart = ("ssl",)  # part of connect
    entry = {
        "pageref": "page_1",
        "startedDateTime": instant_text(step.started_at),
        "time": round(sum(value for key, value in timings.items() if value > 0 and key not in apart), 3),
        "request": har_request(step),
        "response": har_response(step),
        "cache": {},
        "timings": timings,
    }
    if step.network.peer:
        entry["connection"] = str(step.number)
        entry["serverIPAddress"] = step.network.peer.ip.partition("%")[0]
    if step.error:
        entry["_error"] = f"{step.error.kind} ({step.error.phase}): {step.error.message}"
    return entry


# What could move a terminal's cursor or turn its text around, were the file shown there.
UNSAFE = [*range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]


def to_json(document: dict[str, Any], items: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Give a document as UTF-8, piece by piece, `items` in place of the empty list that ends it.

    Each item may hold a megabyte of header fields: one at a time is in memory.
    """
    import json

    escapes = {code: f"\\u{code:04x}" for code in UNSAFE}

    def encode(value: dict[str, Any]) -> str:
        return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False).translate(escapes)

    head, _, tail = encode(document).rpartition("[]")
    indent = "\n" + " " * (len(head.rpartition("\n")[2]) - len(head.rpartition("\n")[2].lstrip()) + 2)
    yield (head + "[").encode("utf-8", "backslashreplace")
    separator = ""
    for item in items:
        yield (separator + indent + encode(item).replace("\n", indent)).encode("utf-8", "backslashreplace")
        separator = ","
    yield (indent[:-2] + "]" + tail + "\n").encode("utf-8")


# ---------------------------------------------------------------------------------------------------------
# 25. Views. Report -> neutral blocks, for any painter.
# ---------------------------------------------------------------------------------------------------------
class Span(NamedTuple):
    """Text in a tone; the tones are the keys of STYLES."""

    text: str
    tone: str = ""


Line = tuple[Span, ...]


class Fields(NamedTuple):
    """Labels and what they say, in two columns."""

    rows: tuple[tuple[str, Line], ...]


class Table(NamedTuple):
    """`columns` are (heading, alignment, wraps); every row has a span for each."""

    title: str
    columns: tuple[tuple[str, str, bool], ...]
    rows: tuple[Line, ...]


class Panel(NamedTuple):
    title: Span
    lines: tuple[Line, ...]


if TYPE_CHECKING:
    Block = Line | Fields | Table | Panel


class Glyphs(NamedTuple):
    """What a bar, a tick and a bullet look like, in the encoding of the stream."""

    bar: str
    check: str
    cross: str
    bullet: str
    at_most: str
    box: str


UNICODE = Glyphs("█", "✓", "✗", "•", "≤", "╭─╮│╰╯├┤┬┴┼")
ASCII = Glyphs("#", "OK", "X", "*", "<=", "+-+|+++++++")


def ms_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms" if value >= 100 else f"{value:.2f} ms"


def bar_cells(start: int, length: int, total: int, width: int) -> tuple[int, int]:
    """Return the first cell and the number of cells of a phase on a scale of `width` cells.

    What took any time has at least one cell.
    """
    if length <= 0 or total <= 0:
        return 0, 0
    first = min(width - 1, start * width // total)
    return first, max(first + 1, min(width, round((start + length) * width / total))) - first


def waterfall_table(step: Step, width: int, glyphs: Glyphs) -> Table:
    """Lay the phases of a step out in time: each bar begins where its phase begins."""
    timing = step.timing
    cells = max(8, width - 10 - 8 - 11)  # borders and padding, names, durations
    rows = []
    start = 0
    for phase in PHASES:
        length: int | None = getattr(timing, phase)
        tone = "bad" if step.error and step.error.phase == phase else phase
        blank, filled = bar_cells(start, length or 0, timing.total, cells)
        drawn = " " * blank + glyphs.bar * filled
        rows.append((Span(phase, tone), Span(ms_text(timing.ms(phase)), tone), Span(drawn, tone)))
        start += length or 0
    rows.append((Span("ttfb", "strong"), Span(ms_text(timing.ms("ttfb")), "strong"), Span("")))
    rows.append((Span("total", "strong"), Span(ms_text(timing.ms("total")), "strong"), Span("")))
    end = ms_text(timing.ms("total"))
    scale = "0" + end.rjust(cells - 1)
    return Table(
        "", (("Phase", "left", False), ("Duration", "right", False), (scale, "left", False)), tuple(rows)
    )


def certificate_line(certificate: Certificate, now: datetime.datetime) -> Line:
    days = certificate.days_left(now)
    name = (
        f"CN {certificate.common_name}" if certificate.common_name else (certificate.names or ("no name",))[0]
    )
    tone = "bad" if days < 7 else "warn" if days < 30 else "good"
    distance = in_days(certificate.not_after, now)
    expiry = f"expires in {distance}" if days >= 0 else f"expired {distance} ago"
    return (Span(f"{clip(name)}, "), Span(expiry, tone), Span(f" ({certificate.not_after:%Y-%m-%d})"))


def tls_line(info: TlsInfo) -> Line:
    version = (info.version or "").replace("v", " ")
    trust = Span("verified" + (" with --cacert" if info.custom_ca else ""), "good")
    if not info.verified:
        trust = Span("NOT verified" + (" (-k)" if info.version else ""), "bad")
    return (
        Span(", ".join(part for part in (version, info.cipher) if part) + (", " if version else "")),
        trust,
    )


def path_text(network: Network) -> str | None:
    if network.rtt_us is None:
        return None
    lost = network.retransmits or 0
    return f"round trip {network.rtt_us / 1000:.2f} ms, {lost} retransmit{'' if lost == 1 else 's'}"


def network_rows(step: Step) -> Iterator[tuple[str, Line]]:
    """Say how the server was reached, as far as it was."""
    network, route = step.network, step.route
    if network.peer:
        yield "Address", (Span(f"{network.peer.ip} ({family_name(network.peer)}), port {network.port}"),)
    if len(network.addresses) > 1:
        yield (
            "Resolved",
            (Span(", ".join(network.addresses[:8]) + ("" if len(network.addresses) <= 8 else ", …")),),
        )
    if len(network.attempts) > 1 or any(attempt.error for attempt in network.attempts):
        for attempt in network.attempts[:8]:
            words = f"{attempt.ip}: {attempt.error or 'connected'} after {attempt.duration_us / 1000:.2f} ms"
            yield "Attempt", (Span(words, "warn" if attempt.error else ""),)
    if route.proxy:
        yield "Proxy", (Span(f"{route.proxy.shown} (from {route.source})"),)
    if step.response:
        alpn = f" (ALPN {network.tls.alpn})" if network.tls and network.tls.alpn else ""
        yield "Protocol", (Span(step.response.http_version + alpn),)
    if network.tls:
        yield "TLS", tls_line(network.tls)
    if network.tls and network.tls.certificate:
        yield "Certificate", certificate_line(network.tls.certificate, step.started_at)
        yield "Issuer", (Span(clip(network.tls.certificate.issuer) or "(empty)"),)
    path = path_text(network)
    if path:
        yield "Path", (Span(path),)


def starved_text(step: Step) -> str:
    return (
        f"in step {step.number} this process was kept waiting for a CPU for {step.starved_us / 1000:.1f} ms: "
        "times that end on this machine may be too long"
    )


def response_rows(step: Step) -> Iterator[tuple[str, Line]]:
    response = step.response
    if step.request.body and step.timing.send is not None:
        size, sent = size_text(len(step.request.body.data)), ms_text(step.timing.ms("send"))
        yield "Request", (Span(f"{size} of body, sent in {sent} of the wait"),)
    if step.interim:
        yield "Interim", (Span(", ".join(str(status) for status in step.interim[:20])),)
    if response:
        parts = [f"{response.status} {clip(response.reason)}".strip(), size_text(step.body_bytes)]
        content_type = response.get("content-type")
        yield "Response", (Span(", ".join(parts + ([clip(content_type)] if content_type else []))),)
        location = response.get("location")
        if location is not None:
            yield "Location", (Span(clip(mask_location(location))),)
    if step.starved_us > max(STARVED_US, step.timing.total // 10):
        yield "Note", (Span(starved_text(step), "warn"),)


def failed_text(error: Failure) -> str:
    """Say where a step failed; a redirect that leads nowhere fails before anything is looked up."""
    return "before the request (redirect)" if error.kind == "redirect" else f"in {error.phase} ({error.kind})"


def step_blocks(step: Step, width: int, glyphs: Glyphs) -> Iterator[Block]:
    status = str(step.response.status) if step.response and not step.error else "ERROR"
    tone = "bad" if step.error or status[0] in "45" else "warn" if status[0] == "3" else "good"
    yield (
        Span(f"Step {step.number}: ", "strong"),
        Span(f"{step.request.method} {clip(step.url)} ", "strong"),
        Span(status, tone),
    )
    yield Fields((*network_rows(step), *response_rows(step)))
    yield waterfall_table(step, width, glyphs)
    if step.error:
        yield Fields(
            (
                ("Failed", (Span(failed_text(step.error), "bad"),)),
                ("Why", (Span(clip(step.error.message), "bad"),)),
                ("Try", (Span(clip(step.error.hint)),)),
            )
        )


def chain_table(run: Run) -> Table:
    rows = []
    for step in run.steps:
        status = str(step.response.status) if step.response and not step.error else "ERROR"
        cells = (
            str(step.number),
            status,
            ms_text(step.timing.ms("total")),
            f"{step.request.method} {clip(step.url)}",
        )
        rows.append(tuple(Span(cell, "bad" if step.error else "") for cell in cells))
    total = sum(step.timing.total for step in run.steps) / 1000
    rows.append((Span(""), Span(""), Span(ms_text(total), "strong"), Span("in all", "strong")))
    columns = (
        ("Step", "right", False),
        ("Status", "left", False),
        ("Total", "right", False),
        ("Request", "left", True),
    )
    return Table("Redirect Chain Summary", columns, tuple(rows))


def slo_panel(verdict: Verdict, glyphs: Glyphs) -> Panel:
    tone = "good" if verdict.passed else "bad"
    icon, word = (glyphs.check, "pass") if verdict.passed else (glyphs.cross, "fail")
    budgets = "  ".join(
        f"{key}{glyphs.at_most}{shortest(value)}ms" for key, value in verdict.thresholds.items()
    )
    lines: list[Line] = [(Span("Thresholds: ", "strong"), Span(budgets))]
    if not verdict.passed:
        lines.append((Span("Violations:", "strong"),))
    for item in verdict.violations:
        text = f"{item.key}: {up_to_three(item.actual_ms)}ms > {shortest(item.threshold_ms)}ms"
        lines.append((Span(f"{glyphs.bullet} {text} (+{up_to_three(item.delta_ms)}ms)", "bad"),))
    return Panel(Span(f"{icon} SLO: {word}", tone), tuple(lines))


def report_blocks(report: Report, style: str, width: int, glyphs: Glyphs) -> Iterator[Block]:
    """Return what is drawn: waterfalls, redirect table, and the SLO panel, which --compact has too."""
    if style == "waterfall":
        for step in report.run.steps:
            yield from step_blocks(step, width, glyphs)
        if len(report.run.steps) > 1:
            yield chain_table(report.run)
    if report.verdict:
        yield slo_panel(report.verdict, glyphs)


# ---------------------------------------------------------------------------------------------------------
# 26. Painters. Blocks -> a stream; they know nothing of HTTP. What is printed passes through `visible` here.
# ---------------------------------------------------------------------------------------------------------
STYLES = {
    "": "",
    "strong": "bold",
    "label": "dim",
    "good": "green",
    "warn": "yellow",
    "bad": "bold red",
    "dns": "cyan",
    "connect": "blue",
    "tls": "magenta",
    "wait": "yellow",
    "xfer": "green",
}


def can_encode(stream: Any, text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def choose_glyphs(stream: Any) -> Glyphs:
    return UNICODE if can_encode(stream, "".join(UNICODE)) else ASCII


def terminal_width(stream: Any, otherwise: int) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or otherwise
    except (OSError, ValueError, AttributeError):
        return otherwise


def choose_width(stream: Any, environ: Mapping[str, str]) -> int:
    """Return the columns to draw in: COLUMNS, else the terminal's, else 80; never fewer than 40."""
    columns = environ.get("COLUMNS", "")
    if re.fullmatch(r"[0-9]{2,5}", columns) and 20 <= int(columns) <= 10000:
        return max(40, int(columns))
    return max(40, terminal_width(stream, 80))


def char_cells(char: str) -> int:
    """Return how many cells a character takes."""
    if char < "\u0300":
        return 1
    import unicodedata

    return 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1


def text_cells(text: str) -> int:
    return len(text) if text.isascii() else sum(map(char_cells, text))


def fold(text: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` cells, at blanks where there are any."""
    lines = [""]
    used = 0
    for word in re.findall(r"\s*\S+|\s+$", text) or [""]:
        if used and used + text_cells(word) > width:
            lines.append("")
            used, word = 0, word.lstrip()
        for char in word:
            if used + char_cells(char) > width:
                lines.append("")
                used = 0
            lines[-1] += char
            used += char_cells(char)
    return lines


def printable(text: str, stream: Any) -> str:
    """Return a text as a stream can show it, the rest as escapes, before anything is laid out."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    return visible(text).encode(encoding, "backslashreplace").decode(encoding)


def pad(text: str, width: int, align: str = "left") -> str:
    space = " " * (width - text_cells(text))
    return space + text if align == "right" else text + space


class PlainPainter:
    """Draw with nothing but characters."""

    def __init__(self, stream: Any, width: int, glyphs: Glyphs) -> None:
        self._stream = stream
        self._width = width
        self._box = glyphs.box

    def paint(self, blocks: Iterable[Any]) -> None:
        drawers: dict[type, Callable[[Any], Iterable[str]]]
        drawers = {Fields: self._fields, Table: self._table, Panel: self._panel}
        for block in blocks:
            draw = drawers.get(type(block), self._line)
            self._stream.write("".join(line.rstrip() + "\n" for line in draw(block)))

    def _text(self, line: Line) -> str:
        return printable("".join(span.text for span in line), self._stream)

    def _line(self, line: Line) -> list[str]:
        return fold(self._text(line), self._width)

    def _fields(self, fields: Fields) -> Iterator[str]:
        for label, line in fields.rows:
            first = f"  {label}"
            for part in fold(self._text(line), self._width - 15):
                yield pad(first, 15) + part
                first = ""

    def _rule(self, widths: Sequence[int], corners: str) -> str:
        return corners[0] + corners[1].join(self._box[1] * (width + 2) for width in widths) + corners[2]

    def _table(self, table: Table) -> Iterator[str]:
        """Draw a table with a heading; only columns that wrap give way when it is too wide."""
        box = self._box
        cells = [[heading for heading, _, _ in table.columns]]
        cells += [[printable(span.text, self._stream) for span in row] for row in table.rows]
        widths = [max(map(text_cells, column)) for column in zip(*cells)]
        wrapping = [index for index, column in enumerate(table.columns) if column[2]]
        for index in wrapping:
            widths[index] = min(
                widths[index], self._width - 1 - sum(width + 3 for width in widths) + widths[index]
            )
        if table.title:
            yield table.title.center(sum(widths) + 3 * len(widths) + 1)
        yield self._rule(widths, box[0] + box[8] + box[2])
        for number, row in enumerate(cells):
            columns = [fold(text, width) for text, width in zip(row, widths)]
            for parts in range(max(map(len, columns))):
                texts = (
                    pad(column[parts] if parts < len(column) else "", width, align)
                    for column, width, (_, align, _) in zip(columns, widths, table.columns)
                )
                yield box[3] + box[3].join(f" {text} " for text in texts) + box[3]
            if number == 0:
                yield self._rule(widths, box[6] + box[10] + box[7])
        yield self._rule(widths, box[4] + box[9] + box[5])

    def _panel(self, panel: Panel) -> Iterator[str]:
        box, inner = self._box, self._width - 4
        title = f" {printable(panel.title.text, self._stream)} "
        yield box[0] + box[1] + title + box[1] * max(0, inner + 1 - text_cells(title)) + box[2]
        for line in panel.lines:
            for part in fold(self._text(line), inner):
                yield f"{box[3]} {pad(part, inner)} {box[3]}"
        yield box[4] + box[1] * (inner + 2) + box[5]


class RichPainter:
    """Draw with rich. Nothing passes through its markup, highlighter or emoji codes."""

    def __init__(self, stream: Any, width: int, glyphs: Glyphs, colours: bool) -> None:
        from rich import box
        from rich.console import Console

        self._stream = stream
        self._box = box.ROUNDED if glyphs is UNICODE else box.ASCII2
        self._console: Any = Console(
            file=stream,
            width=width,
            markup=False,
            highlight=False,
            emoji=False,
            safe_box=False,
            color_system="auto" if colours else None,
            force_jupyter=False,
        )

    def paint(self, blocks: Iterable[Any]) -> None:
        drawers: dict[type, Callable[[Any], Any]]
        drawers = {Fields: self._fields, Table: self._table, Panel: self._panel}
        # Captured first: rich would end the process on a closed pipe, and pads lines with blanks.
        with self._console.capture() as drawn:
            for block in blocks:
                draw: Callable[[Any], Any] = drawers.get(type(block), self._text)
                self._console.print(draw(block))
        self._stream.write(re.sub(r"[ ]+\n", "\n", drawn.get()))

    def _text(self, line: Line) -> Any:
        from rich.text import Text

        return Text.assemble(
            *((printable(span.text, self._stream), STYLES[span.tone]) for span in line), overflow="fold"
        )

    def _fields(self, fields: Fields) -> Any:
        from rich.table import Table as RichTable

        grid = RichTable.grid(padding=(0, 1, 0, 0))
        grid.add_column(width=14, style=STYLES["label"], no_wrap=True)
        grid.add_column(overflow="fold")
        for label, line in fields.rows:
            grid.add_row(f"  {label}", self._text(line))
        return grid

    def _table(self, table: Table) -> Any:
        from rich.table import Table as RichTable

        drawn = RichTable(title=table.title or None, box=self._box, title_style="bold", header_style="bold")
        for heading, align, wraps in table.columns:
            options: Any = {"justify": align, "no_wrap": not wraps, "overflow": "fold"}
            drawn.add_column(heading, **options)
        for row in table.rows:
            drawn.add_row(*(self._text((span,)) for span in row))
        return drawn

    def _panel(self, panel: Panel) -> Any:
        from rich.panel import Panel as RichPanel
        from rich.text import Text

        style = STYLES[panel.title.tone]
        content = Text("\n").join(self._text(line) for line in panel.lines)
        return RichPanel(
            content, title=self._text((panel.title,)), title_align="left", box=self._box, border_style=style
        )


def choose_painter(stream: Any, environ: Mapping[str, str], rich: bool) -> PlainPainter | RichPainter:
    width, glyphs = choose_width(stream, environ), choose_glyphs(stream)
    if not rich:
        return PlainPainter(stream, width, glyphs)
    return RichPainter(stream, width, glyphs, colours=not environ.get("NO_COLOR"))


# ---------------------------------------------------------------------------------------------------------
# 27. Main. Signals, standard streams, files; argv in, exit code out.
# ---------------------------------------------------------------------------------------------------------
class StatusLine:
    """One line on a terminal's stderr that says which phase is under way; it leaves nothing behind."""

    def __init__(self, stream: Any, environ: Mapping[str, str]) -> None:
        terminal = stream is not None and stream.isatty() and environ.get("TERM", "dumb") != "dumb"
        self._stream: Any = stream if terminal else None
        self._shown = False
        self._width = terminal_width(stream, 80) - 1
        self.tick = 0.25 if terminal else 1e6  # seconds

    def show(self, progress: Progress) -> None:
        if self._stream and progress.started and not progress.finished.is_set():
            self._write("\r" + status_text(progress)[: self._width] + "\x1b[K")
            self._shown = True

    def clear(self) -> None:
        if self._stream and self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None


def say(message: str) -> None:
    """Print one line on stderr; nothing when it is closed or gone."""
    if sys.stderr is None:  # print(file=None) would mean stdout
        return
    try:
        print(f"httphases: {visible(message)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def has_rich() -> bool:
    """Import all of rich that a report may need, before the clock starts and while it can be found."""
    return all(optional(f"rich.{name}") for name in ("console", "text", "table", "panel", "box"))


def report_slo_error(error: SloError) -> ExitCode:
    """Show a malformed budget in its panel on stderr, whatever the format of the report would have been."""
    if sys.stderr is None:
        return ExitCode.USAGE
    panel = Panel(Span("SLO Error", "bad"), ((Span(clip(mask_userinfo(error.message))),),))
    try:
        choose_painter(sys.stderr, os.environ, has_rich()).paint([panel])
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # nobody is there to read it
    return ExitCode.USAGE


def write_report(report: Report, options: Options, stream: Any, rich: bool) -> None:
    """Print the report in the chosen style; raises OSError, which a closed stdout is too."""
    if stream is None:
        raise OSError(errno.EBADF, "standard output is closed")
    for step in report.run.steps if options.style != "waterfall" else ():
        line = metrics_line(step, report.verdict) if options.style == "metrics" else compact_line(step)
        stream.write(visible(line) + "\n")
    if options.style != "metrics":
        width, glyphs = choose_width(stream, options.environ), choose_glyphs(stream)
        blocks = list(report_blocks(report, options.style, width, glyphs))
        if blocks:
            choose_painter(stream, options.environ, rich).paint(blocks)
    stream.flush()


def write_all(descriptor: int, data: Iterable[bytes]) -> None:
    """Write everything and close; raises OSError."""
    try:
        os.set_blocking(descriptor, True)
        for piece in data:
            view = memoryview(piece)
            while view:
                view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def replace_file(path: str, mode: int | None, data: Iterable[bytes]) -> None:
    """Write a new file beside `path` and rename it over; raises OSError and leaves nothing then."""
    folder = os.path.dirname(path) or "."
    temporary = os.path.join(folder, f".httphases-{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        new = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        if mode is not None:
            os.fchmod(new, stat.S_IMODE(mode))
        write_all(new, data)
        os.replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


def write_file(path: str, make: Callable[[], Iterable[bytes]]) -> None:
    """Write a file so that an old one survives every failure; raises OSError.

    A regular file is replaced by a whole new one; everything else (device, pipe) is written directly, and
    a pipe that nobody reads is an error, not a wait.
    """
    path = {"/dev/stderr": "/dev/fd/2", "/dev/stdin": "/dev/fd/0"}.get(path, path)
    descriptor = re.fullmatch(r"/(?:dev|proc/self)/fd/([0-9]{1,9})", path)
    if descriptor:
        write_all(os.dup(int(descriptor[1])), make())
        return
    path = os.path.realpath(path) if os.path.islink(path) else path
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        write_all(os.open(path, os.O_WRONLY | os.O_NONBLOCK), make())
        return
    if mode is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    try:
        replace_file(path, mode, make())
    except PermissionError:
        # An unwritable folder, or a sticky one with a file of somebody else's that we may write.
        if mode is None:
            raise
        write_all(os.open(path, os.O_WRONLY | os.O_TRUNC), make())


def write_documents(report: Report, options: Options) -> bool:
    """Write what --json and --har ask for; tell whether all of it was written."""
    steps = report.run.steps
    documents: tuple[tuple[str, str | None, Callable[[], Iterable[bytes]]], ...] = (
        ("--json", options.json_path, lambda: to_json(json_document(report), map(step_document, steps))),
        ("--har", options.har_path, lambda: to_json(har_document(report), map(har_entry, steps))),
    )
    whole = True
    for option, path, make in documents:
        if path is None:
            continue
        try:
            if not is_stdout(path):
                write_file(path, make)
            elif sys.stdout is None:
                raise OSError(errno.EBADF, "standard output is closed")
            else:
                sys.stdout.flush()
                write_all(os.dup(sys.stdout.fileno()), make())
        except BrokenPipeError:
            continue
        except (OSError, ValueError) as error:
            say(f"error: cannot write {option} '{path}': {reason_of(error)}")
            whole = False
    return whole


def discard_stdout() -> None:
    """Send what is still buffered nowhere, or it would fail again at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError, AttributeError):
        pass


def show(report: Report, options: Options, rich: bool) -> bool:
    """Print the report and write the files; tell whether all of it was written."""
    aside = is_stdout(options.json_path) or is_stdout(options.har_path)
    whole = True
    try:
        if not aside:
            write_report(report, options, sys.stdout, rich)
        elif sys.stderr is not None:
            write_report(report, options, sys.stderr, rich)
    except BrokenPipeError:
        discard_stdout()  # the reader has seen enough
    except (OSError, ValueError) as error:
        say(f"error: cannot write the report: {reason_of(error)}")
        discard_stdout()
        whole = False
    return write_documents(report, options) and whole


def warn_about(run: Run, options: Options, tls_setup: TlsSetup) -> None:
    for warning in tls_setup.warnings:
        say(f"warning: {warning}")
    if run.limit_reached:
        say(f"warning: stopped after {MAX_REDIRECTS} redirects; the last step redirects once more")
    for step in run.steps:
        if options.style != "waterfall" and step.starved_us > max(STARVED_BADLY_US, step.timing.total // 10):
            say(f"warning: {starved_text(step)}")


def run_tool(argv: Sequence[str] | None) -> int:
    """Go the whole way once; raises ToolError."""
    options = parse_options(argv, os.environ, choose_width(sys.stdout, os.environ))
    for warning in options.warnings:
        say(f"warning: {warning}")
    tls_setup = TlsSetup(options)
    if options.request.url.secure:
        tls_setup.start()
    draws = options.style == "waterfall" or (options.style == "compact" and bool(options.thresholds))
    rich = draws and has_rich()
    if options.json_path or options.har_path:
        optional("json")
    status = StatusLine(sys.stderr, options.environ)
    try:
        run = measure(options, tls_setup, status.show, status.tick)
    finally:
        status.clear()
    warn_about(run, options, tls_setup)
    verdict = judge(options.thresholds, run)
    whole = show(Report(run, verdict), options, rich)
    return choose_exit_code(options, run, verdict, not whole)


def report_crash(error: BaseException) -> None:
    """Name an internal error and its place in one line; the traceback only when it is asked for."""
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    place = f"{os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}" if frame else "?"
    say(f"internal error: {type(error).__name__} at {place} (HTTPHASES_TRACEBACK=1 shows where it came from)")
    if os.environ.get("HTTPHASES_TRACEBACK") == "1" and sys.stderr is not None:
        import traceback

        # Not the exception's own words: they may hold a credential.
        print("Traceback (most recent call last):", file=sys.stderr)
        print("".join(traceback.format_tb(error.__traceback__)) + type(error).__name__, file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; the only place where errors become codes."""
    collecting = gc.isenabled()
    gc.disable()  # no pause while the clock runs; a run makes little garbage
    try:
        return run_tool(argv)
    except SystemExit as finished:  # --help, --version
        return int(finished.code or 0)
    except SloError as error:
        return report_slo_error(error)
    except UsageError as error:
        say(f"error: {clip(mask_userinfo(error.message))}")
        return ExitCode.USAGE
    except BrokenPipeError:
        discard_stdout()
        return ExitCode.OK
    except Exception as error:
        report_crash(error)
        return ExitCode.INTERNAL
    finally:
        if collecting:
            gc.enable()


def claim_standard_streams() -> None:
    """Keep 0, 1 and 2 from being given to a socket, and make what cannot be encoded print as an escape."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_WRONLY)  # takes the lowest free number; not readable, as it was
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def cli() -> NoReturn:
    """Run the program as a process. It leaves by os._exit: nothing waits for what a deadline left behind."""
    claim_standard_streams()

    def interrupt(number: int, _: object) -> None:
        raise Interrupted(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        code = main()
    except Interrupted as interrupted:
        code = interrupted.code
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    os._exit(code)


if __name__ == "__main__":
    cli()
