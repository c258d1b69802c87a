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
     3 Errors          10 Clock          what happens in a step: a log of events, and what is read from it
     4 Records         11 Certificates   DER -> Certificate
     5 Local files     12 Failures       what errors mean, in words: all of them here
     6 Budgets         13 Lookup         names to addresses
     7 Names, routes   14 Streams        bytes with their time of arrival, over a socket or TLS
                       15 TLS contexts   one for each role
                       16 Messages       reading and writing HTTP/1.1; what responses claim
                       17 Exchanges      one request and its response; 18 HTTP/2: the same, through h2
                       19 Hops           tcp, TLS, unix sockets; 20 Proxies: CONNECT, SOCKS5
                       21 Way            hops and exchange of a request, gone in order
                       22 Step           what is prepared before the clock; History -> Step
                       23 Chain          steps -> Run, under a deadline; traces -> a collector
                       24 Statistics     samples of many runs -> summaries; budgets, exit code
                       25 Findings       Step, Run -> what the times mean
     26 Words, 27 Documents, 28 Views    Report -> lines; JSON, HAR, metrics, traces; blocks to draw
     29 Painters, 30 Main                the only ones that write

The way to a server is a list of hops, each opened on the stream of the one below it:

    Tcp | Unix, ProxyTls?, Tunnel | Socks ?, TargetTls?   then an exchange: HTTP/1.1 or HTTP/2

`Route.hops` decides which. A hop owns all that it needs, opens itself, notes its instants in the log and
explains its own failures; nobody else asks whether there is a proxy, or TLS.

A run is one of many. In a series the first one opens its way, and later ones may go over connections that
were kept. Each is told as it ends (Report) and leaves a few numbers a step (Sample), which are summed up at
the end (Survey). The targets of --all-addresses are a series of runs, each with one address.

Three rules:
1. Upward only. Code uses names defined above it, never below; `main` is last.
2. One direction. argv -> Options -> Request -> Step -> Run -> Report, Survey -> text, JSON, HAR, exit code.
   Records are immutable; no section hands anything back to an earlier one.
3. Nothing but the wire in the timed region: no import, no file, no printing, no TLS context being built,
   no garbage collection. Everything timed runs in one thread on blocking sockets; the main thread
   only waits for it, and that is what keeps the deadline, whatever the measuring thread is stuck in.

Some lines are there for a truer time alone: tests/bench/devices.py takes each out and says what it is worth.
They bear its name for them, as a Device, and the median error of a phase without them and with them.
"""

# ---------------------------------------------------------------------------------------------------------
# 1. Imports and version. The standard library only; what is optional comes through `optional`.
# ---------------------------------------------------------------------------------------------------------
from __future__ import annotations

import errno
import gc
import os
import signal
import sys


def refuse(reason: str) -> NoReturn:
    """Say why the program cannot run here, in one line, and exit 70."""
    try:
        sys.stderr.write("httphases: " + reason + "\n")
        sys.stderr.flush()
    except (AttributeError, OSError):  # stderr is closed
        pass
    os._exit(70)


if sys.version_info < (3, 9):  # noqa: UP036 - it is copied to old machines too
    refuse("needs Python 3.9 or newer, this is {}.{}".format(*sys.version_info))

NO_MEMORY = "this process can have no more memory (ulimit -v, or the limit of its container or service)"
NO_THREAD = (
    "this process can have no more threads (ulimit -u or -v, or the limit of its container or service)"
)
REFUSALS = {
    errno.EMFILE: "this process has no file descriptor left (ulimit -n)",
    errno.ENFILE: "this machine has no file descriptor left",
    errno.ENOMEM: NO_MEMORY,
    errno.ENOBUFS: "this machine has no memory left for the network",
}
REFUSED_HINT = "Raise that limit, or end what uses it up, and run it again."


def refusal_of(error: BaseException) -> str | None:
    """Name the limit of this machine that made an error, None for any other error."""
    words = str(error)
    if isinstance(error, RuntimeError) and "start new thread" in words:
        return NO_THREAD
    short_of_memory = (
        isinstance(error, MemoryError)
        or (isinstance(error, RuntimeError) and words.startswith("can't allocate"))  # a lock
        or (type(error).__name__ == "SSLError" and "malloc failure" in words)
        or (isinstance(error, ImportError) and ("map segment" in words or "allocate memory" in words))
    )
    return NO_MEMORY if short_of_memory else REFUSALS.get(getattr(error, "errno", 0))


def optional(name: str, stand_ins: Mapping[str, Any] | None = None) -> Any:
    """Import a package that may be absent; None when it is, or when it is unfit for this Python.

    An unfit version fails with whatever it stumbles over (TypeError, SyntaxError), not with ImportError.
    What it imports itself and is not loaded yet is taken from the stand-ins, by name, where they have it.
    """
    absent = {name: module for name, module in (stand_ins or {}).items() if name not in sys.modules}
    sys.modules.update(absent)
    try:
        return __import__(name, fromlist=["*"])
    except Exception as error:
        if refusal_of(error):
            raise
        return None
    finally:
        for name in absent:
            sys.modules.pop(name, None)


class Unmailed:
    """A stand-in for email and for its modules: http.client reads with them, and here it only writes."""

    Message = object

    @property
    def message(self) -> Unmailed:
        return self


def import_http_client() -> Any:
    """Return http.client without email, which would take 6 ms of every start; nobody else gets that one."""
    if "http.client" not in sys.modules:
        light = optional("http.client", dict.fromkeys(("email", "email.message", "email.parser"), Unmailed()))
        sys.modules.pop("http.client", None)
        if light:
            return light
    import http.client

    return http.client


if __name__ == "__main__":
    # Importing makes no garbage to speak of, and collecting it anyway costs 3 ms of every start.
    gc.disable()
    # Until `cli` knows better, an interrupt while importing ends the process without a word.
    for early in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(early) is not signal.SIG_IGN:
            signal.signal(early, lambda number, _: os._exit(128 + number))

try:
    import mmap

    # What is imported takes 7 to 11 MB; CPython can loop for ever where it runs out of memory half-way.
    # Reserved, not touched: filling these pages would cost 6 ms, and 12 MB of the peak.
    mmap.mmap(-1, 12 << 20, mmap.MAP_PRIVATE).close()
    import _thread
    import argparse
    import base64
    import codecs
    import datetime
    import io
    import re
    import select
    import socket
    import ssl
    import stat
    import struct
    import threading
    import time
    import urllib.parse
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from enum import IntEnum
    from operator import itemgetter

    http_client = import_http_client()
except ModuleNotFoundError as missing:
    # A minimal Python, like Debian's python3-minimal, comes without some of its standard library.
    refuse(f"this Python lacks '{missing.name or missing}': install python3, not python3-minimal")
except (ImportError, OSError, MemoryError) as unloaded:
    refuse(refusal_of(unloaded) or f"the standard library of this Python cannot be loaded: {unloaded}")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple, NoReturn
else:

    def replace_fields(self: Any, **changes: Any) -> Any:
        values = [changes.pop(name, value) for name, value in zip(self._fields, self)]
        if changes:
            raise ValueError(f"no such fields: {list(changes)}")
        return tuple.__new__(type(self), values)

    def fields_as_dict(self: Any) -> dict[str, Any]:
        return dict(zip(self._fields, self))

    def represent(self: Any) -> str:
        return f"{type(self).__name__}({', '.join(map('{}={!r}'.format, self._fields, self))})"

    RECORD = {"_replace": replace_fields, "_asdict": fields_as_dict, "__repr__": represent}
    CONSTRUCTORS = {}  # by the number of fields

    def constructor(names: tuple[str, ...], defaults: tuple[Any, ...]) -> Any:
        """Return the __new__ of a record: compiled once for each number of fields, then names are put in."""
        if len(names) not in CONSTRUCTORS:
            words = ", ".join(f"_{place}" for place in range(len(names)))
            source = f"lambda _cls, {words}: _new(_cls, ({words},))"
            CONSTRUCTORS[len(names)] = eval(source, {"_new": tuple.__new__})
        template = CONSTRUCTORS[len(names)]
        code = template.__code__.replace(co_varnames=("_cls", *names))
        return type(template)(code, template.__globals__, "__new__", defaults)

    # What typing.NamedTuple does, without the 2 ms that importing typing costs every start, and the other two
    # in which collections.namedtuple would compile a constructor for each of these classes.
    class RecordType(type):
        def __new__(meta: Any, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
            if not bases:
                return super().__new__(meta, name, bases, namespace)
            names = tuple(namespace.pop("__annotations__"))
            defaults = tuple(namespace.pop(field) for field in names if field in namespace)
            fields = {field: property(itemgetter(place)) for place, field in enumerate(names)}
            own = {"_fields": names, "__slots__": (), "__new__": constructor(names, defaults)}
            return type(name, (tuple,), {**RECORD, **fields, **namespace, **own})

    NamedTuple = RecordType("NamedTuple", (), {})

__version__ = "1.0.0"


# ---------------------------------------------------------------------------------------------------------
# 2. Vocabulary. Every name of the specification once, every limit with its reason.
# ---------------------------------------------------------------------------------------------------------
PHASES = ("dns", "connect", "tls", "wait", "xfer")
LINE_KEYS = ("dns", "connect", "tls", "ttfb", "total")  # of compact and metrics lines
SLO_KEYS = ("dns", "connect", "tls", "ttfb", "wait", "xfer", "total")
SUPPORT = {"min": 1, "p25": 4, "median": 1, "p75": 4, "p90": 10, "p95": 20, "p99": 100, "max": 1}  # values
SLO_STATS = ("min", "median", "p90", "p95", "p99", "max")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
DEFAULT_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
REDIRECTS = (301, 302, 303, 307, 308)  # RFC 9110 section 15.4: those that name another place to ask

MAX_REDIRECTS = 10
DEFAULT_MAX_TIME = 20.0  # seconds
DEFAULT_INTERVAL = 1.0  # seconds
TARGET_MAX_TIME = 5.0  # seconds for each of a name's addresses, so that a dead one does not cost 20
MAX_TARGETS = 32  # addresses of a name
MAX_COUNT = 10_000  # runs
MAX_TRACES = 100  # runs that are sent to a collector in one request
COLLECTOR_TIME = 5.0  # seconds for a collector in all: it must not hold up whoever waits for the exit code
MAX_COLLECTOR_ANSWER = 64 * 1024
MAX_HEADER_LINES = 1000
MAX_HEADER_BYTES = 1 << 20
MAX_INTERIM = 100
MAX_CHAIN = 100  # certificates of a server; OpenSSL takes 100 KiB of them
MAX_IDLE = 100  # records or frames that are read of an idle connection: tickets, settings, pings
MAX_HTTP2_CHATTER = 1000  # SETTINGS, PING and other frames that serve nothing, and as many as KiB of bodies
MAX_SLO_FILE = 1 << 20
MAX_RESOLVER_FILE = 64 * 1024
MAX_CA_BUNDLE = 16 << 20
MAX_IDENTITY = 1 << 20  # of a client certificate, its key, or the file with the key's password
MAX_PASSWORD = 1023  # bytes; OpenSSL's buffer for it has 1,024
MAX_SOCKET_PATH = 107  # bytes of a unix socket's path; the system's field has 108, the last a zero
MAX_INTERFACE = 15  # bytes of the name of a network interface, likewise
MAX_BODY = 1 << 30
MAX_HOST = 253  # characters, of labels of 63: what a DNS message holds (RFC 1035 section 2.3.4)
MAX_DEVICE = 64 << 20  # of a character device, which may have no end: /dev/zero
MAX_URL = 256 * 1024  # characters; what servers accept is far shorter
MAX_QUERY_FIELDS = 1000  # that a HAR entry lists
MAX_METRICS = 50  # of Server-Timing
MAX_LIST = 64 * 1024  # bytes of Server-Timing, or of a line of Cache-Status, that are read
MAX_TEXT = 2000  # characters of any one text from outside that are shown
MAX_DRAWN = 64 * 1024  # and of all header fields together; rich draws 0.2 MB a second
MAX_FOREIGN = 200  # and of the other side's words inside a message
MIN_SECRET = 8  # characters from which on a credential is masked inside a word too
BUFFER = 256 * 1024  # one read; larger ones gained nothing on loopback
UPLOAD_PIECE = 64 * 1024  # of an HTTP/2 body; an answer to a PING waits for a piece to be sent
CONNECT_STAGGER = 0.25  # seconds before the next address is tried (RFC 8305 section 5)
HTTP2_WINDOW = 1 << 30  # nothing received is kept, so nothing but the network needs to slow the sender
CLOCK_ERROR = 20_000  # ns by which an instant of the kernel's clock may be off on ours
WAKE_UP = 100_000  # ns that an idle machine needs to wake a program up for an answer, at the least
SHORT_OF_CPU = 2_000_000  # ns that the start was kept waiting for a CPU: 0.03-0.7 ms on an idle machine
NAPS, NAP = 20, 0.0002  # seconds each; three gave part of the gain, ten nearly all
STARVED_US = 20_000  # a step that waited so long for a CPU, and for a tenth of its time, says so
SHOWN_FINDINGS = 3  # in the waterfall, of each step
SHOWN_METRICS = 8  # of Server-Timing, likewise
LONG_LOOKUP = 900_000  # us; the shortest time-out of a resolver is a second
STARVED_BADLY_US = 100_000  # and so long, on stderr where the report is one line

TOKEN = (
    b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # RFC 9110 section 5.6.2
)

# Header fields whose value is a credential, for whoever reads a report that was attached to a ticket.
SECRET_HEADERS = frozenset(
    "authorization proxy-authorization cookie set-cookie x-api-key api-key x-auth-token www-authenticate "
    "proxy-authenticate authentication-info proxy-authentication-info".split()
)
# Parameters of a credential that say where and how, not who (RFC 7616 section 3.4).
PUBLIC_PARAMETERS = frozenset("realm uri algorithm".split())
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
def clip(text: str, most: int = MAX_TEXT) -> str:
    """Return a text, of a longer one the beginning and how long it was."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text)} characters)"


class Foreign(NamedTuple):
    """Words of the other side, or of a URL, within a message; in a step's record they are masked."""

    text: str

    def __str__(self) -> str:
        return clip(self.text)


if TYPE_CHECKING:
    Detail = str | int | Foreign


class ToolError(Exception):
    """Say in one sentence what went wrong. If there are `details`, each {} of it stands for one."""

    def __init__(self, template: str, *details: Detail) -> None:
        super().__init__(template)
        self.template = template
        self.details = details

    @property
    def message(self) -> str:
        if not self.details:
            return self.template
        return self.template.format(*self.details)

    def __str__(self) -> str:
        return self.message


class UsageError(ToolError):
    """The command line, or a file or variable it names, is wrong: exit 64, nothing was sent."""


class SloError(UsageError):
    """A budget is malformed: exit 64, shown in a panel."""


class InterfaceError(UsageError):
    """Nothing can be sent from where --interface says."""


class NetworkError(ToolError):
    """The step failed: exit 75. `kind` is the vocabulary of the JSON export, `hint` one thing to try next."""

    def __init__(self, kind: str, template: str, hint: str, *details: Detail) -> None:
        super().__init__(template, *details)
        self.kind = kind
        self.hint = hint


# ---------------------------------------------------------------------------------------------------------
# 4a. Records, in order of birth. Times are integer microseconds (us) unless a name says otherwise.
# ---------------------------------------------------------------------------------------------------------
Header = tuple[str, bytes]


def server_name(host: str) -> str:
    """Return the name for SNI and verification: no final dot, no zone (RFC 6066 section 3)."""
    return host.partition("%")[0].rstrip(".")


def bracketed(host: str) -> str:
    """Return a host as it stands before a port: an IPv6 address in brackets (RFC 3986 section 3.2.2)."""
    return f"[{host}]" if ":" in host else host


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
        host = bracketed(self.host.partition("%")[0])
        if self.port == DEFAULT_PORTS[self.scheme]:
            return host
        return f"{host}:{self.port}"

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
    def resolves_here(self) -> bool:
        """Tell whether the target's name is looked up on this machine for it (socks5, not socks5h)."""
        return self.scheme == "socks5"

    @property
    def shown(self) -> str:
        return f"{self.scheme}://{bracketed(self.host)}:{self.port}"


class Route(NamedTuple):
    """How a URL is reached. `source` names the option or variable that decided it, None when nothing did.

    With a `unix_socket`, a path, there is no proxy.
    """

    proxy: Proxy | None
    source: str | None
    unix_socket: str | None = None

    def first_hop(self, url: Url) -> tuple[str, int]:
        """Return the host and port that the connection for a URL goes to."""
        place = self.proxy or url
        return place.host, place.port

    def hops(self, url: Url) -> tuple[str, ...]:
        """Name the hops that lead to a URL, in the order of opening: the one place that decides it."""
        scheme = self.proxy and self.proxy.scheme
        hops = ["tcp" if self.unix_socket is None else "unix"]
        if scheme == "https":
            hops.append("proxy tls")
        if scheme in ("socks5", "socks5h"):
            hops.append("socks")
        elif scheme and url.secure:
            hops.append("tunnel")
        if url.secure:
            hops.append("tls")
        return tuple(hops)

    def forwarder(self, url: Url) -> Proxy | None:
        """Return the proxy that is asked for the whole URL (RFC 9112 section 3.2.2), not for a way to it."""
        if {"tunnel", "socks", "tls"} & set(self.hops(url)):
            return None
        return self.proxy


class Request(NamedTuple):
    """One request as it goes out. `headers` are the user's own, in order; defaults are added when sent."""

    method: str
    url: Url
    headers: tuple[Header, ...]
    body: Body | None

    @property
    def data(self) -> bytes:
        """Return the bytes of the body, none without one."""
        return self.body.data if self.body else b""


class CaBundle(NamedTuple):
    name: str  # the option or variable and its path, for messages
    pem: str


class Series(NamedTuple):
    """How often a request or chain is measured. `interval` is seconds from start to start; with `reuse` every
    run after the first goes over the connections of the one before it. With `every_address` each address of
    the URL's name is measured as often: those that were given, or what a lookup finds.
    """

    times: int
    interval: float
    reuse: bool
    every_address: bool = False
    addresses: tuple[str, ...] = ()


class Identity(NamedTuple):
    """A client certificate with its chain, and its key, both PEM; the names are for messages."""

    name: str
    certificate: bytes
    key_name: str
    key: bytes
    password: bytes | None


class Interface(NamedTuple):
    """Where connections are to begin: an address of this machine, or a network interface by its name.

    `family` is the address's (socket.AF_*), which restricts all lookups; AF_UNSPEC for a name.
    """

    text: str
    family: int


class Options(NamedTuple):
    """The command line, validated. `family` is a socket.AF_* constant; `environ` is what was given."""

    request: Request
    secrets: Secrets
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
    include: bool
    json_path: str | None
    har_path: str | None
    thresholds: dict[str, float]
    series: Series | None
    warnings: tuple[str, ...]
    target: str | None = None  # the one address that the URL's host and port are asked at
    identity: Identity | None = None
    unix_socket: str | None = None
    interface: Interface | None = None
    prometheus_path: str | None = None
    label: str | None = None
    tracing: Tracing | None = None
    trace_id: str | None = None  # of the run under way

    @property
    def exports(self) -> dict[str, str]:
        """Return the files that were asked for, by option."""
        paths = {"--json": self.json_path, "--har": self.har_path, "--prometheus": self.prometheus_path}
        return {option: path for option, path in paths.items() if path is not None}


class Tracing(NamedTuple):
    """Where traces go: `sender` is how the collector is asked, `resource` what they are said to be of (in the
    names of OpenTelemetry). With `propagate` each request names the span that it is.
    """

    sender: Options
    resource: dict[str, str]
    propagate: bool


class Probe(NamedTuple):
    """Who measured: this machine, and what the user calls it."""

    host: str
    label: str | None


class Trust(NamedTuple):
    """What decides whether a certificate is believed."""

    insecure: bool
    ca_bundle: CaBundle | None


FAMILY_NAMES: dict[int, str] = {socket.AF_INET: "IPv4", socket.AF_INET6: "IPv6"}


class Peer(NamedTuple):
    ip: str
    family: int
    address: tuple[Any, ...]


class Attempt(NamedTuple):
    ip: str
    duration_us: int
    error: str | None


class Certificate(NamedTuple):
    """What a report shows of a certificate; None for what it lacks or what cannot be read."""

    common_name: str | None
    names: tuple[str, ...] | None
    issuer: str | None
    serial: str | None
    not_before: datetime.datetime | None
    not_after: datetime.datetime | None

    def days_left(self, now: datetime.datetime) -> int | None:
        """Return whole days until expiry; negative once it has expired."""
        if self.not_after is None:
            return None
        return (self.not_after - now).days


class TlsInfo(NamedTuple):
    """What the handshake with the target agreed on; a failed one knows only some of it.

    `chain` is what the server sent, its own certificate first; None for what is no certificate. `shown` is
    what became of the client certificate, one of the keys of SHOWN, and `wanted` whether one was asked for.
    """

    version: str | None
    cipher: str | None
    alpn: str | None
    verified: bool
    custom_ca: bool
    chain: tuple[Certificate | None, ...]
    shown: str = "none given"
    wanted: bool = False

    @property
    def certificate(self) -> Certificate | None:
        return next(iter(self.chain), None)


class Handshake(NamedTuple):
    """What TLS agreed on, as OpenSSL names it, and the certificates (DER), the server's own first, even of a
    handshake that failed.
    """

    finished: bool
    version: str | None
    cipher: str | None
    alpn: str | None
    certificates: tuple[bytes, ...]
    hello_retry: bool  # RFC 8446 section 4.1.4: the first key share was refused


def decode(data: bytes) -> str:
    """Return text from the network: UTF-8 as most senders mean it, else ISO-8859-1 (RFC 9110 section 5.5)."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


class Metric(NamedTuple):
    """What a server says of its own time, in a metric of Server-Timing (W3C)."""

    name: str
    duration_ms: float | None
    description: str | None


class CacheUse(NamedTuple):
    """What a response says of the caches that it came through; `source` is the field that said so."""

    status: str | None
    age_s: int | None
    via: str | None
    source: str


class Response(NamedTuple):
    """A response; what it claims of itself, `timings` and `cache`, is read when a step is finished."""

    status: int
    reason: str
    http_version: str
    headers: tuple[Header, ...]
    header_bytes: int | None
    timings: tuple[Metric, ...] = ()
    cache: CacheUse | None = None

    def get(self, name: str) -> str | None:
        """Return the first value of a header field, None when it is absent."""
        for key, value in self.headers:
            if key.lower() == name:
                return decode(value)
        return None


# ---------------------------------------------------------------------------------------------------------
# 4b. Outcomes. Records of how a request went, and of what was made of it.
# ---------------------------------------------------------------------------------------------------------
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
        if value is None:
            return None
        return value / 1000


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
    reused: bool | None = None  # the connection was kept from an earlier run; None where none is kept
    reuse_refused: str | None = None  # why a kept one would not do
    local_ip: str | None = None
    interface: str | None = None  # as --interface names it

    @property
    def ip(self) -> str | None:
        return self.peer and self.peer.ip


class Counters(NamedTuple):
    """What the kernel had counted on a connection at an instant; None where it does not tell."""

    window_scaling: bool  # RFC 7323 section 2: both sides offered it
    segment: int  # bytes that a full segment carries
    retransmits: int
    rtt_us: int | None  # the smallest round trip so far
    received: int  # bytes, in order
    quiet_us: int  # since the newest data came
    segments_in: int  # with data
    segments_out: int  # with data
    duplicates: int | None  # segments sent again of which the other side says that it had them (RFC 2883)
    disorder: int | None  # segments that came out of order


class Resolver(NamedTuple):
    """Whom this machine asks for names; `waits` are its time-outs in the order in which they pass."""

    servers: tuple[str, ...]
    waits: tuple[int, ...]


class Evidence(NamedTuple):
    """What findings rest on besides the times: the kernel's counters when the connection stood, after the
    beginning of the request had left, at the first byte and at the end.
    """

    stood: Counters | None = None
    sent: Counters | None = None
    answered: Counters | None = None
    ended: Counters | None = None
    connected_us: int | None = None  # from the end of dns until TCP stood
    hello_retry: bool = False  # RFC 8446 section 4.1.4
    request_bytes: int = 0
    gaps: int = 0  # how often what had come waited, after the first byte, for what was missing before it
    resolver: Resolver | None = None  # only of a long lookup


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
    evidence: Evidence
    span_id: str | None = None  # in the trace of its run

    @property
    def answer(self) -> Response | None:
        """Return the response of a step that did not fail: one that failed half-way has no status."""
        if self.error:
            return None
        return self.response

    @property
    def timings(self) -> tuple[Metric, ...]:
        """Return what the server says of its own time."""
        if not self.response:
            return ()
        return self.response.timings


class Finding(NamedTuple):
    """What a time means. `certainty` is `seen` or `fits`, `evidence` the numbers that the text rests on."""

    id: str
    phase: str | None
    cost_us: int
    certainty: str
    text: str
    evidence: Mapping[str, object]


class Slot(NamedTuple):
    """The place of a run in its series: when it is to start (perf_counter_ns, 0 for at once), and whether the
    one before it was still under way then. In round 0 a name is looked up, and no more.
    """

    number: int = 1
    round: int = 1
    target: str | None = None  # the address that is measured, where each one is
    due: int = 0
    overdue: bool = False


class Run(NamedTuple):
    """A request or chain that was made once, in its place; its clock started at `started`
    (perf_counter_ns, 0 if never).
    """

    steps: tuple[Step, ...]
    limit_reached: bool
    slot: Slot = Slot()
    started: int = 0
    trace_id: str | None = None

    @property
    def late_us(self) -> int | None:
        """Return by how much it started late because of the run before it, None if it was not that."""
        if not (self.slot.overdue and self.started):
            return None
        return round((self.started - self.slot.due) / 1000)


class Violation(NamedTuple):
    key: str
    threshold_ms: float
    actual_ms: float
    delta_ms: float
    run_number: int | None = None  # in a series: the worst run, None for a budget on a statistic
    target: str | None = None


class Verdict(NamedTuple):
    """The outcome of the budgets, for the step that they were held against: of a series, the last one.

    Too few values were left to judge the keys in `not_judged`, `where` names the targets. `counts` is how
    many values each statistic had: a number, or the range over all targets.
    """

    step_number: int
    thresholds: dict[str, float]
    violations: tuple[Violation, ...]
    not_judged: tuple[str, ...] = ()
    counts: Mapping[str, str] = {}
    where: str = ""

    @property
    def passed(self) -> bool:
        return not self.violations and not self.not_judged


class Report(NamedTuple):
    """What is shown, written and judged of one run."""

    run: Run
    verdict: Verdict | None


class Facts(NamedTuple):
    """By what the servers at a name's addresses may differ, besides their times."""

    rtt_us: int | None
    retransmits: int | None
    certificate: Certificate | None
    server: str | None
    http_version: str | None


class Sample(NamedTuple):
    """What is kept of a step of a series, where ten thousand of them may have to be held."""

    run: int
    target: str | None
    number: int
    url: str
    method: str
    started_at: datetime.datetime
    timing: Timing
    status: int | None  # None where the step failed
    failure: Failure | None
    reused: bool | None
    late: bool
    refused: str | None  # why no connection was kept for it
    judged: bool  # the last successful step of its run
    last: bool  # of its run
    findings: tuple[Finding, ...]
    facts: Facts | None

    @property
    def error(self) -> str | None:
        """Return the kind of its failure."""
        return self.failure and self.failure.kind


class Level(NamedTuple):
    """What a step of the newest run came to, besides its times; None for what there was not."""

    run: int
    status: int | None
    body_bytes: int | None
    rtt_us: int | None
    retransmits: int | None
    not_after: datetime.datetime | None  # the earliest of the certificates that the server sent


if TYPE_CHECKING:
    StepKind = tuple[str | None, int, bool | None]  # target, step number, whether the connection was kept

DIGITS = {10: b"0123456789", 16: b"0123456789ABCDEFabcdef"}


def is_token(text: bytes) -> bool:
    """Tell whether a text is a token (RFC 9110 section 5.6.2)."""
    return bool(text) and not text.translate(None, TOKEN)


def parse_length(text: bytes, base: int) -> int | None:
    """Read a length as RFC 9112 sections 6.2 and 7.1 have it: digits alone, none of int()'s +5, 1_0, 0x5."""
    if not 1 <= len(text) <= 15 or text.translate(None, DIGITS[base]):
        return None
    return int(text, base)


# ---------------------------------------------------------------------------------------------------------
# 4c. Foreign text. What the other side says is clipped, and holds no credential of the user's; linear in it.
# ---------------------------------------------------------------------------------------------------------
SecretTree = dict[str, "SecretTree"]


class Secrets(NamedTuple):
    """The user's credentials, to be masked where the other side repeats them; made by `index_secrets`.

    However many they are, a text is searched in time linear in it: four characters at every fifth place are
    looked up, because wherever a credential of eight stands, four of its first eight begin at such a place.
    """

    tree: SecretTree  # eight characters at a time, and what is left at the end
    sizes: dict[int, list[int]]  # how much may be left after so many characters, falling
    pieces: dict[str, list[int]]  # four characters -> how far they may stand behind a start, falling
    words: re.Pattern[str] | None  # those that are masked where they stand as a whole alone

    def starts(self, text: str) -> Iterator[int]:
        """Give every place, in order, where eight characters stand that a credential begins with."""
        if not self.pieces:
            return
        for at in [at for at in range(0, len(text) - 3, 5) if text[at : at + 4] in self.pieces]:
            for offset in self.pieces[text[at : at + 4]]:
                if at >= offset and text[at - offset : at - offset + MIN_SECRET] in self.tree:
                    yield at - offset

    def end(self, text: str, start: int) -> int:
        """Return where the longest credential ends that begins at `start`; 0 when none does."""
        node, at, end = self.tree, start, 0
        while node:
            node = node.get(text[at : at + MIN_SECRET], {})
            at += MIN_SECRET
            for size in self.sizes.get(at - start, ()):
                if text[at : at + size] in node:
                    end = at + size
                    break
        return end

    def mask(self, text: str) -> str:
        """Replace every credential in a text by ***."""
        parts = []
        done = 0
        for start in self.starts(text):
            if start < done:
                continue  # within the one before
            end = self.end(text, start)
            if end:
                parts += [text[done:start], "***"]
                done = end
        masked = "".join(parts) + text[done:]
        if self.words:
            return self.words.sub("***", masked)
        return masked


def foreign(text: bytes | str) -> Foreign:
    """Mark what comes from outside, so that it is masked and clipped when it is shown."""
    if isinstance(text, bytes):
        text = decode(text)
    return Foreign(text)


def render(error: NetworkError, secrets: Secrets) -> str:
    """Return an error's message; in what the other side said no secret of the user's is left."""
    words = [
        clip(secrets.mask(detail.text), MAX_FOREIGN) if isinstance(detail, Foreign) else detail
        for detail in error.details
    ]
    return error.template.format(*words)


def mask_location(text: str) -> str:
    """Replace user:password in a Location, however malformed, by ***; in time linear in the text."""
    opening = re.match(r"\s*([A-Za-z][A-Za-z0-9+.-]*:)?\s*([/\\]*)", text)
    if not opening or not (opening[1] or len(opening[2]) >= 2):
        return text
    start = opening.end()
    path = re.compile(r"[/?#]").search(text, start)
    end = text.rfind("@", start, path.start() if path else len(text))
    if end < 0:
        return text
    return f"{text[:start]}***{text[end:]}"


def mask_userinfo(text: str) -> str:
    """Replace the user:password part of every URL in a text by ***; in time linear in the text."""
    # The slashes first, because re finds what is literal five times as fast.
    return re.sub(r"//(?<![^:]//)[^/?#\s]*@", "//***@", text)


# ---------------------------------------------------------------------------------------------------------
# 5. Local files. What the command line names is read once, with a limit and a time, and nothing blocks.
# ---------------------------------------------------------------------------------------------------------
def reason_of(error: Exception) -> str:
    """Put an error in the system's own words, or name the limit of this machine that made it."""
    return refusal_of(error) or getattr(error, "strerror", None) or str(error)


def read_descriptor(descriptor: int, limit: int, until: float) -> bytes:
    """Read to the end without ever blocking past `until` (time.monotonic); raises OSError."""
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    # Standard input is the caller's and may block; everything else was opened not to.
    must_poll = descriptor == 0
    # A named pipe whose writer has not come yet looks like an empty one: give it a second.
    lonely = descriptor != 0 and stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    grace = min(until, time.monotonic() + 1.0)
    kept = io.BytesIO()  # unlike a list of parts, it is never there twice
    while kept.tell() <= limit:
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
            return kept.getvalue()
        if not chunk and time.monotonic() >= grace:
            raise OSError(errno.EPIPE, "nobody is writing to this pipe")
        if not chunk:
            time.sleep(0.01)
            continue
        lonely = False
        kept.write(chunk)
    raise OSError(errno.EFBIG, f"larger than {limit >> 20} MiB")


def read_local(path: str, limit: int, seconds: float) -> bytes:
    """Read a file, a pipe or, for `-`, standard input.

    Raises UsageError when it cannot be read, is larger than `limit` bytes (a device: MAX_DEVICE) or gives no
    end in `seconds`; OSError when this machine has a limit that forbids it.
    """
    name = "standard input" if path == "-" else f"'{path}'"
    try:
        descriptor = 0
        if path != "-":
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if stat.S_ISCHR(found.st_mode):
                limit = min(limit, MAX_DEVICE)
            if found.st_size > limit:
                raise UsageError(f"cannot read {name}: larger than {limit >> 20} MiB")
            return read_descriptor(descriptor, limit, time.monotonic() + seconds)
        finally:
            if path != "-":
                os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if refusal_of(error):
            raise
        raise UsageError(f"cannot read {name}: {reason_of(error)}") from None


UNFINISHED: list[Callable[[], None]] = []  # how to undo what a signal must not leave behind


def in_memory(data: bytes) -> tuple[int, str]:
    """Return a file that only this process has, in memory, and the path by which it can be opened.

    Raises OSError, or AttributeError, where the system has no such files or no /proc.
    """
    descriptor = os.memfd_create("httphases")
    path = f"/proc/self/fd/{descriptor}"
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, path


class Lent:
    """Data in a file, for a library that wants a path: in memory where the system can, so that nothing of it
    reaches a disk; else in a private one that is gone as soon as it was read, or a signal comes.

    Entering raises OSError when none of the folders takes it.
    """

    def __init__(self, data: bytes, folders: Iterable[str]) -> None:
        self._data, self._folders = data, folders
        self._descriptor = -1
        self._path = ""  # of what is to be removed

    def __enter__(self) -> str:
        try:
            self._descriptor, path = in_memory(self._data)
        except (OSError, AttributeError):
            path = self._in_folder()
        return path

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        if self._path:
            self._remove()
            UNFINISHED.remove(self._remove)

    def _in_folder(self) -> str:
        UNFINISHED.append(self._remove)
        refused = OSError(errno.ENOENT, "there is no folder for temporary files")
        for folder in self._folders:
            self._path = os.path.join(folder, f".httphases-{os.urandom(8).hex()}")
            try:
                with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(self._data)
                return self._path
            except OSError as error:
                refused = error
                self._remove()
        UNFINISHED.remove(self._remove)
        self._path = ""
        raise refused

    def _remove(self) -> None:
        try:
            os.unlink(self._path)
        except OSError:
            pass


# ---------------------------------------------------------------------------------------------------------
# 6. Budgets. Text -> thresholds in ms, in the order of SLO_KEYS; KEY.STAT is a budget for a series.
# ---------------------------------------------------------------------------------------------------------
def parse_number(text: str) -> float:
    """Read a positive finite decimal; raises ValueError. float() would take 1_000, nan, wide digits."""
    try:
        if not set(text) <= set("0123456789.eE+-"):
            raise ValueError
        value = float(text)
    except ValueError:
        raise ValueError("is not a number") from None
    if not 0 < value < float("inf"):
        raise ValueError("is not a positive finite number")
    return value


def add_budget(thresholds: dict[str, float], entry: str) -> None:
    """Add one KEY=MS entry; raises SloError."""
    name, equals, amount = (part.strip() for part in entry.partition("="))
    if not equals:
        raise SloError(f"Missing '=' in SLO entry '{entry.strip()}': expected KEY=MS, for example ttfb=500")
    key = name.lower()
    phase, dot, statistic = key.partition(".")
    if phase not in SLO_KEYS:
        raise SloError(f"Unknown SLO key '{name}': expected one of {', '.join(SLO_KEYS)}")
    if dot and statistic not in SLO_STATS:
        expected = ", ".join(f"{phase}.{known}" for known in SLO_STATS)
        raise SloError(f"Unknown SLO key '{name}': expected {phase} or one of {expected}")
    if key in thresholds:
        raise SloError(f"Duplicate SLO key '{key}': each key may appear once")
    try:
        thresholds[key] = parse_number(amount)
    except ValueError as error:
        slips = {"s": ", without a unit", ",": ", without a comma after it"}
        slip = slips.get(amount.lower()[-1:], "")
        raise SloError(
            f"SLO value '{amount}' of '{key}' {error}: expected milliseconds above 0{slip}"
        ) from None


def split_budgets(specification: str) -> list[str]:
    """Split KEY=MS[,KEY=MS] into its entries; raises SloError for a comma too many."""
    entries = specification.split(",")
    if len(entries) > 1 and not all(entry.strip() for entry in entries):
        what = "a trailing comma"
        if entries[-1].strip():
            what = "a comma too many"
        raise SloError(f"SLO specification '{specification.strip()}' has {what}: expected KEY=MS[,KEY=MS]")
    return entries


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
    if inline:
        if not all(specification.strip() for specification in inline):
            raise SloError(
                "Empty SLO specification: expected KEY=MS[,KEY=MS], for example ttfb=500,total=2000"
            )
        thresholds.update(parse_slo([entry for text in inline for entry in split_budgets(text)]))
    known = (key + end for key in SLO_KEYS for end in ("", *(f".{statistic}" for statistic in SLO_STATS)))
    return {key: thresholds[key] for key in known if key in thresholds}


def check_statistics(thresholds: Iterable[str], series: Series | None) -> None:
    """Raise SloError for a budget on a statistic that the number of runs cannot support."""
    for key in thresholds:
        _, dot, statistic = key.partition(".")
        if not dot:
            continue
        if series is None:
            raise SloError(f"SLO key '{key}' is a statistic of several runs: it needs --count")
        values, what = series.times, "runs"
        if series.reuse:
            values, what = series.times - 1, "runs on a kept connection"
        if values < SUPPORT[statistic]:
            count = SUPPORT[statistic] + series.reuse
            raise SloError(
                f"SLO key '{key}' needs at least {SUPPORT[statistic]} {what}, "
                f"and --count {series.times} gives {values}: expected --count {count} or more"
            )


# ---------------------------------------------------------------------------------------------------------
# 7a. Names. A host that is not ASCII -> the name that browsers ask for (UTS #46, non-transitional). What this
#    Python's Unicode data cannot tell for sure is refused: another host is never asked.
# ---------------------------------------------------------------------------------------------------------
# UTS #46 section 7 derives its mapping from NFKC_Casefold, which unicodedata can tell, but for these.
IDNA_DEVIATIONS = {"ß": "ß", "ẞ": "ß", "ς": "ς", "\u200c": "\u200c", "\u200d": "\u200d"}
IDNA_DOTS = "\u3002\uff0e\uff61"
IDNA_IGNORED = (
    r"[\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2064"
    r"\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]"
)
# What mapping must not leave: dots that were part of a character, and symbols that are valid in no name.
IDNA_DISALLOWED = r"[.\u3002\u2ff0-\u2fff\u31ef\ufffc\ufffd]"
# RFC 5893 section 2: classes of characters, and what a label of a name with right-to-left ones is made of.
BIDI_CLASSES = {"L": "L", "R": "R", "AL": "R", "AN": "A", "EN": "E", "NSM": "N"} | dict.fromkeys(
    ("ES", "CS", "ET", "ON", "BN"), "o"
)
BIDI_LABEL = "(L([LEoN]*[LE])?|R([REoN]*[RE])?|R([RAoN]*[RA])?)N*"
# Joining_Type, which unicodedata has not: Arabic letters that join the next one, and the one before.
JOINS_NEXT = (
    r"\u0620\u0626\u0628\u062a-\u062e\u0633-\u063f\u0641-\u0647\u0649\u064a\u066e\u066f\u0678-\u0687"
    r"\u069a-\u06bf\u06c1\u06c2\u06cc\u06ce\u06d0\u06d1\u06fa-\u06fc\u06ff"
)
JOINS_PREVIOUS = JOINS_NEXT + (
    r"\u0622-\u0625\u0627\u0629\u062f-\u0632\u0648\u0671-\u0673\u0675-\u0677\u0688-\u0699\u06c0"
    r"\u06c3-\u06cb\u06cd\u06cf\u06d2\u06d3\u06d5\u06ee\u06ef"
)


def map_character(char: str) -> str:
    """Return what a character of a host name stands for (UTS #46 section 4); raises ValueError."""
    from unicodedata import category, normalize, unidata_version

    if char.isascii():
        return char.lower()
    if char in IDNA_DOTS:
        return "."
    if char in IDNA_DEVIATIONS:
        return IDNA_DEVIATIONS[char]
    if category(char) == "Cn":
        raise ValueError(f"U+{ord(char):04X} is not in Unicode {unidata_version}, which this Python knows")
    mapped = re.sub(IDNA_IGNORED, "", normalize("NFKC", normalize("NFKC", char).casefold()))
    if re.search(IDNA_DISALLOWED, mapped) or any(category(each)[0] in "CZ" for each in mapped):
        raise ValueError(f"U+{ord(char):04X} cannot stand in a name")
    return mapped


def map_name(text: str) -> str:
    """Map a host name character by character, then compose it (UTS #46 section 4); raises ValueError."""
    from unicodedata import normalize

    return normalize("NFC", "".join(map(map_character, text)))


def stray_joiner(label: str) -> bool:
    """Tell whether a joiner stands where it may not (RFC 5892 appendix A.1 and A.2), or not be known to.

    It may follow a virama (combining class 9); U+200C may part two letters that would join, marks between
    them not counted.
    """
    from unicodedata import category, combining

    rest = ""
    for before, char in zip(" " + label, label):
        if char in "\u200c\u200d" and combining(before) == 9:
            rest += " "
        elif category(char) != "Mn":
            rest += char
    rest = re.sub(f"(?<=[{JOINS_NEXT}])\u200c(?=[{JOINS_PREVIOUS}])", "", rest)
    return "\u200c" in rest or "\u200d" in rest


def encode_label(plain: str) -> str:
    """Return a label as it goes on the wire: in Punycode (RFC 3492) where it is not ASCII."""
    if plain.isascii():
        return plain
    return "xn--" + plain.encode("punycode").decode("ascii")


def decode_label(label: str) -> str:
    """Return a mapped label as it is read, its xn-- form undone; raises ValueError for what is no label."""
    from unicodedata import category

    plain = label
    if label.startswith("xn--"):
        wrong = f"'{label}' is no xn-- form"
        try:
            plain = label[4:].encode("ascii").decode("punycode")
        except UnicodeError:
            raise ValueError(wrong) from None
        if plain.startswith("xn--") or map_name(plain) != plain or encode_label(plain) != label:
            raise ValueError(wrong)
    if plain and category(plain[0])[0] == "M":
        raise ValueError("a label begins with a combining mark")
    if stray_joiner(plain):
        raise ValueError("U+200C or U+200D stands where it is not known to belong")
    return plain


def ascii_host(text: str) -> str:
    """Return the ASCII form of a host name (UTS #46 section 4); raises ValueError where it is not known."""
    from unicodedata import bidirectional

    labels = [decode_label(label) for label in map_name(text).split(".")]
    classes = ["".join(BIDI_CLASSES.get(bidirectional(char), "x") for char in label) for label in labels]
    if re.search("[RA]", "".join(classes)):
        for each in filter(None, classes):
            if not re.fullmatch(BIDI_LABEL, each):
                raise ValueError("it mixes directions of writing as no name may (RFC 5893)")
    return ".".join(map(encode_label, labels))


# ---------------------------------------------------------------------------------------------------------
# 7b. Routes. URLs, proxies and redirects: text -> records, no effects; the environment is an argument.
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
    if text.isascii():
        host = text.lower()
    elif len(text) > MAX_HOST:  # before its characters are looked at, each of which takes time
        raise UsageError(f"host '{clip(text, MAX_FOREIGN)}' is longer than {MAX_HOST} characters")
    else:
        try:
            host = ascii_host(text)
        except ValueError as error:
            raise UsageError(f"host '{text}' has no sure ASCII form: {error}; write its xn-- form") from None
    wrong = re.search(r"[^a-z0-9._-]", host)
    if wrong:
        raise UsageError(f"host '{clip(text, MAX_FOREIGN)}' holds '{wrong[0]}', which no host name can")
    name = re.sub(r"\.$", "", host)
    for label in name.split("."):
        if not label:
            raise UsageError(f"host '{clip(text, MAX_FOREIGN)}' holds an empty label")
        if len(label) > 63:
            what = f"a label of {len(label)} characters, 63 are allowed"
            raise UsageError(f"host '{clip(text, MAX_FOREIGN)}' holds {what}")
    if len(name) > MAX_HOST:
        raise UsageError(f"host '{clip(text, MAX_FOREIGN)}' is longer than {MAX_HOST} characters")
    return host


def parse_port(text: str) -> int:
    """Read a port; raises UsageError for what is none, 0 among it."""
    if not re.fullmatch(r"0*[0-9]{1,5}", text) or not 1 <= int(text[-5:]) <= 65535:
        raise UsageError(f"port '{text}' is not a number from 1 to 65535")
    return int(text)


def split_authority(text: str, default_port: int) -> tuple[str, int]:
    """Split host[:port]; brackets around IPv6. Raises UsageError."""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", text)
    if bracketed:
        address, _, zone = bracketed[1].partition("%")
        if zone.startswith("25") and len(zone) > 2:
            zone = zone[2:]
        if not is_ip(address, socket.AF_INET6) or (
            "%" in bracketed[1] and not re.fullmatch(r"[\w.~-]+", zone, re.A)
        ):
            raise UsageError(f"'[{bracketed[1]}]' is not an IPv6 address")
        host, port = f"{address.lower()}%{zone}".rstrip("%"), bracketed[2] or ""
    else:
        name, _, port = text.partition(":")
        if ":" in port or "[" in text:
            raise UsageError(f"'{text}' is not host:port; an IPv6 address goes in brackets, like [::1]:8080")
        if not name:
            raise UsageError("there is no host in it")
        host = parse_host(name)
    if not port:
        return host, default_port
    return host, parse_port(port)


def remove_dot_segments(path: str) -> str:
    """Take `.` and `..` out of a path that begins with a slash (RFC 3986 5.2.4); empty segments stay."""
    _, *segments = path.split("/")
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def percent_encode(text: str) -> str:
    """Return text in ASCII: a space, a control character and what is not ASCII percent-encoded as UTF-8."""
    printable = bytes(range(0x21, 0x7F))
    return urllib.parse.quote_from_bytes(text.encode("utf-8", "surrogateescape"), safe=printable)


def normal_target(target: str) -> str:
    """Return a path and query as they are asked for: from a slash on, without dot segments, in ASCII."""
    path, mark, query = target.partition("?")
    if not path.startswith("/"):
        path = "/" + path
    return percent_encode(remove_dot_segments(path) + mark + query)


def suggest_url(rest: str) -> str:
    """Say what was meant by a URL without a scheme, where that is a URL."""
    if rest.startswith("***@"):
        return f"did you mean 'https://{rest[4:]}' with -H \"Authorization: Basic …\" (or Bearer …)?"
    try:
        split_authority(re.split(r"[/?#]", rest, maxsplit=1)[0], 443)
    except UsageError:
        return "expected https://host/path"
    return f"did you mean 'https://{rest}'?"


def no_scheme(text: str) -> UsageError:
    """Say what a URL without a scheme lacks."""
    shown = re.sub(r"^[^/?#]*@", "***@", clip(mask_location(text)))
    if re.match(r"(?i)https?:", shown):
        return UsageError(
            "URL '{}' lacks the // after its scheme: expected https://host/path", foreign(shown)
        )
    return UsageError("URL '{}' has no scheme: {}", foreign(shown), foreign(suggest_url(shown.lstrip("/"))))


def parse_url(text: str, drop_userinfo: bool = False) -> Url:
    """Normalise an http(s) URL; raises UsageError, whose message never repeats a password.

    The userinfo of a Location is dropped.
    """
    shown = foreign(mask_location(text))
    if len(text) > MAX_URL:
        raise UsageError(f"URL '{{}}' is longer than {MAX_URL} characters", shown)
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise UsageError("URL '{}' holds a control character", shown)
    parts = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\\]*)([^#]*)", text)
    if not parts:
        raise no_scheme(text)
    scheme, authority, target = parts[1].lower(), parts[2], parts[3]
    if scheme not in ("http", "https"):
        message = "URL '{}' has the scheme '{}': only http and https can be measured"
        raise UsageError(message, shown, foreign(scheme))
    _, at, authority = authority.rpartition("@")
    try:
        host, port = split_authority(authority, DEFAULT_PORTS[scheme])
    except UsageError as error:
        if "@" not in text:
            raise UsageError("URL '{}': {}", shown, foreign(error.message)) from None
        # A password with / ? or # in it, as people write them: say nothing of its parts.
        shown = foreign(f"{scheme}://***@{text.rpartition('@')[2]}")
        if drop_userinfo:
            raise UsageError("URL '{}' cannot be read", shown) from None
        at = "@"
    if at and not drop_userinfo:
        raise UsageError(
            "URL '{}' holds a user name or password: "
            'send it as a header instead, -H "Authorization: Basic …" (or Bearer …)',
            shown,
        )
    return Url(scheme, host, port, normal_target(target))


def parse_proxy(text: str, source: str) -> Proxy:
    """Read [scheme://][user:password@]host[:port]; raises UsageError, which never shows a credential."""
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    shown = scheme + separator
    if not separator:
        scheme, shown, rest = "http", "", text
    # The last @ ends the credentials, even where a password is written as it is, with / ? # in it.
    userinfo, at, address = rest.rpartition("@")
    address = re.split(r"[/?#]", address, maxsplit=1)[0]
    shown += at.replace("@", "***@") + address
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
    username = password = None
    if at:
        username = urllib.parse.unquote_to_bytes(name)
    if colon:
        password = urllib.parse.unquote_to_bytes(secret)
    if scheme.startswith("socks") and max(len(username or b""), len(password or b"")) > 255:
        raise UsageError(f"{source}: SOCKS5 user names and passwords have at most 255 bytes (RFC 1929)")
    return Proxy(scheme, host, port, username, password)


def proxy_variable(scheme: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return (name, value) of the variable that names a scheme's proxy, lower case before upper case."""
    names = [f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"]
    if "REQUEST_METHOD" in environ and scheme == "http":
        names.remove("HTTP_PROXY")  # CGI: a Proxy header would set it (CVE-2016-5385)
    return next(((name, environ[name]) for name in names if environ.get(name)), None)


def address_in(host: str, network: str) -> bool:
    """Tell whether an address lies in a network, given in CIDR notation."""
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def read_no_proxy(text: str) -> list[tuple[str, str]]:
    """Return name and port ("" for any) of each entry; raises UsageError for a name that cannot be told.

    All are read, used or not: a redirect may need the others, when it is too late for a usage error.
    """
    entries = []
    for entry in re.split(r"[,\s]+", text.strip()):
        bracketed = re.fullmatch(r"\[([^\]]+)\](?::([0-9]+))?", entry)
        found = bracketed or re.fullmatch(r"([^:]*):([0-9]+)", entry)
        name, port = entry, ""
        if found:
            name, port = found.groups("")
        if not name.isascii():
            name = parse_host(name.lstrip("*").strip("." + IDNA_DOTS))
        entries.append((name.lower(), port))
    return entries


def bypasses(url: Url, no_proxy: str) -> bool:
    """Tell whether NO_PROXY covers a URL: *, host, domain suffix, host:port, address, CIDR."""
    host = url.host.partition("%")[0].rstrip(".")
    for name, port in read_no_proxy(no_proxy):
        if name == "*" and not port:
            return True
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
    if proxy == "":
        return Route(None, "--proxy")
    if proxy is not None:
        return Route(parse_proxy(proxy, "--proxy"), "--proxy")
    variable = proxy_variable(url.scheme, environ)
    if not variable:
        return Route(None, None)
    found = parse_proxy(variable[1], variable[0])
    try:
        exempt = bypasses(url, environ.get("no_proxy") or environ.get("NO_PROXY") or "")
    except UsageError as error:
        raise UsageError(f"NO_PROXY: {error.message}") from None
    if exempt:
        return Route(None, "NO_PROXY")
    return Route(found, variable[0])


def route_to(url: Url, options: Options) -> Route:
    """Decide how a URL is reached: --unix-socket before every proxy. Raises UsageError."""
    if options.unix_socket is not None:
        return Route(None, None, options.unix_socket)
    return choose_route(url, options.proxy, options.environ)


def resolve_reference(base: str, reference: str) -> str:
    """Resolve a reference against a URL's text (RFC 3986 sections 5.2 and 5.3); its fragment is left out.

    What has a scheme stays as it is: parse_url makes it normal, or refuses it.
    """
    reference = reference.partition("#")[0]
    scheme, _, rest = base.partition("://")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", reference):
        return reference
    if reference.startswith("//"):
        return f"{scheme}:{reference}"
    authority, _, base_target = rest.partition("/")
    base_path, base_mark, base_query = f"/{base_target}".partition("?")
    path, mark, query = reference.partition("?")
    if not path and not mark:
        mark, query = base_mark, base_query
    if not path:
        path = base_path
    elif not path.startswith("/"):
        path = base_path[: base_path.rindex("/") + 1] + path
    return f"{scheme}://{authority}{remove_dot_segments(path)}{mark}{query}"


def redirect_error(message: str, *details: Detail) -> NetworkError:
    """Say why a redirect is not followed."""
    hint = "The server's redirect is at fault: ask whoever runs it, or request the intended URL directly."
    return NetworkError("redirect", message, hint, *details)


def resolve_location(url: Url, locations: Sequence[bytes]) -> Url:
    """Return where a redirect leads (RFC 9110 section 10.2.2, RFC 3986 section 5).

    Raises NetworkError of kind `redirect`.
    """
    if len(set(locations)) > 1:
        raise redirect_error("the redirect names two different Locations")
    # Bytes that are not UTF-8 are to be percent-encoded as they are.
    text = locations[0].decode("utf-8", "surrogateescape").strip(" \t")
    shown = foreign(mask_location(decode(locations[0])))
    if not text.partition("#")[0]:
        return url
    if len(locations[0]) > MAX_URL:
        raise redirect_error(f"the redirect's Location is longer than {MAX_URL} bytes")
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise redirect_error("the redirect's Location '{}' holds a control character", shown)
    if re.match(r"\\[/\\]|/\\", text):
        # Browsers take a backslash for a slash and go to another host; RFC 3986 has a path of this one here.
        message = "the redirect's Location '{}' has a backslash where // would name another host"
        raise redirect_error(message, shown)
    try:
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(?!//)", text)
        if scheme:
            message = "'{}' has the scheme '{}': only http:// and https:// can be followed"
            raise UsageError(message, shown, foreign(scheme[1]))
        return parse_url(resolve_reference(url.text, text), drop_userinfo=True)
    except UsageError as error:
        message = f"the redirect cannot be followed: {error.template}"
        raise redirect_error(message, *error.details) from None


def next_request(request: Request, status: int, url: Url) -> Request:
    """Return the request that a redirect asks for (RFC 9110 section 15.4)."""
    method, body, headers = request.method, request.body, request.headers
    if status == 303 or (status in (301, 302) and method == "POST"):
        if method != "HEAD":
            method = "GET"
        body = None
        headers = tuple(item for item in headers if not item[0].lower().startswith("content-"))
    if url.origin != request.url.origin:
        # Proxy-Authorization stays: it only ever goes to a proxy, which is the same for every origin.
        private = SECRET_HEADERS - {"proxy-authorization"} | {"host"}
        headers = tuple(item for item in headers if item[0].lower() not in private)
    return Request(method, url, headers, body)


# ---------------------------------------------------------------------------------------------------------
# 8a. Arguments. One value of the command line each: text -> a checked value, or a UsageError that names it.
# ---------------------------------------------------------------------------------------------------------
def parse_header(text: str) -> Header:
    """Read 'Name: value'; raises UsageError that never repeats the value."""
    name, colon, value = text.partition(":")
    if not colon:
        raise UsageError("a header has no colon: expected 'Name: value'")
    if not is_token(os.fsencode(name)):
        raise UsageError("what stands before the colon is not a header name: expected 'Name: value'")
    if re.search(r"[\r\n\0]", value):
        raise UsageError(f"the value of header '{name}' holds a line break or NUL")
    if name.lower() == "transfer-encoding":
        raise UsageError("'Transfer-Encoding' cannot be set: the body is sent with its length")
    return name, os.fsencode(value.strip(" \t"))


def parse_headers(texts: Sequence[str]) -> tuple[Header, ...]:
    """Read all of -H; raises UsageError, which says which one of several it is."""
    headers = []
    for number, text in enumerate(texts, 1):
        try:
            headers.append(parse_header(text))
        except UsageError as error:
            which = f"-H number {number} of {len(texts)}" if len(texts) > 1 else "-H"
            raise UsageError(f"{which}: {error.message}") from None
    return tuple(headers)


def check_length(headers: Iterable[Header], body: Body | None) -> None:
    """Raise UsageError for a Content-Length that is not the body's."""
    length = len(body.data if body else b"")
    for name, value in headers:
        if name.lower() == "content-length" and parse_length(value, 10) != length:
            raise UsageError(
                f"-H: 'Content-Length' is not the body's, which has {length} bytes: leave it out"
            )


def pair_secrets(pair: bytes) -> Iterator[tuple[str, bool]]:
    """Give what user:password may come back as; True beside what is masked however short it is."""
    user, _, password = pair.partition(b":")
    yield decode(user), False
    yield decode(password), True
    yield decode(pair), bool(password)
    yield base64.b64encode(pair).decode("ascii").rstrip("="), bool(password)


def header_secrets(name: str, value: str) -> Iterator[tuple[str, bool]]:
    """Give what of a field may come back alone: cookies, or token, parameters, and Basic's user:password."""
    if name.lower() == "cookie":
        for cookie in value.split(";"):
            before, equals, after = cookie.partition("=")
            yield (after if equals else before).strip(' \t"'), False
        return
    yield value, False
    scheme, blank, rest = value.partition(" ")
    for parameter, content, token in re.findall(
        r'([^\s,="]+)=("[^"]*"|[^\s,]*)|([^\s,]+)', (rest if blank else value).strip(" =")
    ):
        if parameter.lower() not in PUBLIC_PARAMETERS:
            yield (token or content).strip('"'), False
    if scheme.lower() == "basic":
        token = rest.strip(" =")
        try:
            yield from pair_secrets(base64.b64decode(token + "=" * (-len(token) % 4), validate=True))
        except ValueError:
            pass  # no Basic, whatever it says


def index_secrets(found: Iterable[tuple[str, bool]]) -> Secrets:
    """Arrange credentials for a search; True beside one that is masked however short it is."""
    long, short = set(), set()
    for secret, always in found:
        forms = {secret, urllib.parse.quote(secret, safe=""), percent_encode(secret)}
        forms.add(secret.encode("utf-8").decode("latin-1"))  # in a field that is not UTF-8
        if len(secret) >= MIN_SECRET:
            long |= forms
        elif secret and always:
            short |= forms
    tree: SecretTree = {}
    sizes: dict[int, list[int]] = {}
    for secret in long:
        node = tree
        for at in range(0, len(secret) + 1, MIN_SECRET):
            node = node.setdefault(secret[at : at + MIN_SECRET], {})
    for length in sorted(set(map(len, long)), reverse=True):
        sizes.setdefault(length - length % MIN_SECRET, []).append(length % MIN_SECRET)
    pieces: dict[str, list[int]] = {}
    for offset in range(MIN_SECRET - 4, -1, -1):
        for piece in {head[offset : offset + 4] for head in tree}:
            pieces.setdefault(piece, []).append(offset)
    # The text first: that is what re searches for quickly.
    quoted = [re.escape(secret) for secret in sorted(short, key=len, reverse=True)]
    words = "|".join(rf"{secret}(?<![^\W_]{secret})(?![^\W_])" for secret in quoted)
    return Secrets(tree, sizes, pieces, re.compile(words) if words else None)


def proxy_secrets(url: Url, proxy: str | None, environ: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Give what of a proxy's credentials may come back."""
    for scheme in ("http", "https"):
        try:
            used = choose_route(url._replace(scheme=scheme), proxy, environ).proxy
        except UsageError:  # of a variable that this run does not use
            continue
        if used and used.username is not None:
            yield from pair_secrets(used.username + b":" + (used.password or b""))


def find_secrets(request: Request, proxy: str | None, environ: Mapping[str, str]) -> Secrets:
    """Gather every credential that the user gave, in a header or for a proxy."""
    found: list[tuple[str, bool]] = []
    for name, value in request.headers:
        if name.lower() in SECRET_HEADERS:
            found += header_secrets(name, decode(value))
    # A host, a scheme and over HTTP/2 the name of a field are turned to lower case before they are shown.
    found += [(text.lower(), alone) for text, alone in found if not text.islower()]
    return index_secrets([*found, *proxy_secrets(request.url, proxy, environ)])


class Override(NamedTuple):
    """An address that --resolve gives for a host and port."""

    text: str
    place: tuple[str, int]
    address: str


def parse_resolve(text: str) -> Override:
    """Read HOST:PORT:ADDR; raises UsageError."""
    entry = re.fullmatch(r"(\[[^\]]*\]|[^:]*):([^:]*):(.+)", text)
    if not entry:
        raise UsageError(f"--resolve '{text}': expected HOST:PORT:ADDR")
    address = entry[3][1:-1] if re.fullmatch(r"\[.*\]", entry[3]) else entry[3]
    try:
        place = split_authority(f"{entry[1]}:{parse_port(entry[2])}", 0)
    except UsageError as error:
        raise UsageError(f"--resolve '{text}': {error.message}") from None
    if not is_ip(address):
        raise UsageError(f"--resolve '{text}': '{address}' is not an IPv4 or IPv6 address")
    return Override(text, place, address)


def check_families(entries: Iterable[Override], family: int, chosen_by: str) -> None:
    """Raise UsageError for an address that is not of the family that an option has chosen."""
    for text, _, address in entries:
        if not is_ip(address, family):
            raise UsageError(f"--resolve '{text}': {chosen_by} excludes the address '{address}'")


def collect_overrides(entries: Iterable[Override]) -> dict[tuple[str, int], str]:
    """Return the address of each host and port; raises UsageError where one has two."""
    overrides: dict[tuple[str, int], str] = {}
    for text, place, address in entries:
        if place in overrides:
            here = f"{bracketed(place[0])}:{place[1]}"
            raise UsageError(f"--resolve '{text}': {here} was given before (--all-addresses takes several)")
        overrides[place] = address
    return overrides


def collect_targets(entries: Iterable[Override]) -> tuple[str, ...]:
    """Return the addresses to measure; raises UsageError for one that comes twice, or too many."""
    targets: dict[bytes, str] = {}
    for text, _, address in entries:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        plain, _, zone = address.partition("%")
        key = socket.inet_pton(family, plain) + zone.encode()
        if key in targets:
            raise UsageError(f"--resolve '{text}': {address} was given before")
        targets[key] = address
    if len(targets) > MAX_TARGETS:
        raise UsageError(
            f"--resolve: {len(targets)} addresses were given, {MAX_TARGETS} at most are measured"
        )
    return tuple(targets.values())


def choose_targets(entries: Sequence[Override], family: int, chosen_by: str) -> tuple[str, ...]:
    """Return the addresses to measure of those that were given; raises UsageError where none is left."""
    left = [entry for entry in entries if is_ip(entry.address, family)]
    if entries and not left:
        check_families(entries, family, chosen_by)
    return collect_targets(left)


def parse_method(text: str | None, has_data: bool) -> str:
    if text is None:
        return "POST" if has_data else "GET"
    if not text.isascii() or text.upper() not in METHODS:
        raise UsageError(f"method '{text}' is not one of {', '.join(METHODS)}")
    return text.upper()


def parse_seconds(text: str | None, otherwise: float) -> float:
    if text is None:
        return otherwise
    try:
        return parse_number(text)
    except ValueError as error:
        raise UsageError(f"-m '{text}' {error}: expected seconds above 0, for example 5 or 0.5") from None


def parse_count(text: str) -> int:
    """Read how many runs are wanted; raises UsageError."""
    if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_COUNT:
        return int(text)
    raise UsageError(f"--count '{text}': expected a whole number from 1 to {MAX_COUNT}")


def parse_interval(text: str | None) -> float:
    """Read the seconds from start to start, 0 for one run after the other; raises UsageError."""
    if text is None:
        return DEFAULT_INTERVAL
    if text.isascii() and re.fullmatch(r"0+(\.0*)?|\.0+", text):
        return 0.0
    try:
        return parse_number(text)
    except ValueError as error:
        raise UsageError(
            f"--interval '{text}' {error}: expected seconds, for example 0.5, or 0 for one after the other"
        ) from None


def is_json(data: bytes) -> bool:
    """Tell whether bytes are strict JSON (RFC 8259): UTF-8, no NaN, no Infinity."""
    if not re.match(rb"[ \t\r\n]*[\[{\"0-9tfn-]", data):
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


def is_utf8(data: bytes) -> bool:
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(data)
    try:
        for at in range(0, len(data), BUFFER):
            decoder.decode(view[at : at + BUFFER])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
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
    return "text/plain; charset=utf-8" if is_utf8(data) else "application/octet-stream"


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
# 8b. Identity. Who asks, and from where: a client certificate with its key, a unix socket, an interface.
# ---------------------------------------------------------------------------------------------------------
PEM_CERTIFICATE = rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----"
PEM_KEY = rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----"
TO_PEM = {  # what a file is that is no PEM, and what makes PEM of it
    "PKCS #12": "openssl pkcs12 -in {} -nodes -out cert.pem",
    "a key in DER": "openssl pkey -inform DER -in {} -out key.pem",
    "a certificate in DER": "openssl x509 -inform DER -in {} -out cert.pem",
}
MISMATCHES = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED", "UNKNOWN_KEY_TYPE")


def is_standard_input(path: str | None) -> bool:
    return path in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def same_source(first: str, second: str) -> bool:
    """Tell whether two paths lead to the same file or pipe, of which the second would find nothing left."""
    if is_standard_input(first) or is_standard_input(second):
        return is_standard_input(first) and is_standard_input(second)
    return os.path.realpath(first) == os.path.realpath(second)


def shell_word(path: str) -> str:
    """Return a path as a shell takes it; a name to be replaced for standard input."""
    return "FILE" if is_standard_input(path) else "'" + path.replace("'", "'\\''") + "'"


def after_length(data: bytes, at: int) -> int:
    """Return where the content begins whose length stands at `at` (X.690 section 8.1.3)."""
    first = data[at : at + 1]
    if first > b"\x80":
        return at + 1 + (first[0] & 0x7F)
    return at + 1


def der_content(data: bytes) -> str | None:
    """Say what a file in DER or BER holds, a key of TO_PEM; None for what is neither (X.690 section 8.1).

    The first thing in the outer sequence tells: the version of PKCS #12 (RFC 7292 section 4) is 3, that of a
    key 0 or 1 (RFC 5958, 8017, 5915), and a certificate has another sequence there.
    """
    if data[:1] != b"\x30" or len(data) < 8:
        return None
    at = after_length(data, 1)
    if data[at : at + 2] == b"\x02\x01":
        return "PKCS #12" if data[at + 2 : at + 3] == b"\x03" else "a key in DER"
    # An encrypted key, too, begins with a sequence: of an object identifier (RFC 5958 section 3).
    inner = after_length(data, at + 1)
    if data[at : at + 1] == b"\x30":
        return "a key in DER" if data[inner : inner + 1] == b"\x06" else "a certificate in DER"
    return None


def read_secret_file(option: str, path: str, seconds: float) -> bytes:
    """Read what an option of the client certificate names; raises UsageError."""
    try:
        return read_local(path, MAX_IDENTITY, seconds)
    except UsageError as error:
        before, colon, _ = path.rpartition(":")
        if option == "--cert" and colon and os.path.exists(before):  # as curl takes it: not to be repeated
            message = f"a password cannot follow the path '{before}': write it into a file"
            raise UsageError(f"--cert: {message}, and give that with --key-password-file") from None
        raise UsageError(f"{option}: {error.message}") from None


def check_pem(option: str, path: str, data: bytes, wanted: bytes) -> None:
    """Raise UsageError unless a file holds PEM of the wanted kind; it says how to make PEM of what it is."""
    if re.search(wanted, data):
        return
    name = "standard input" if is_standard_input(path) else f"'{path}'"
    what = {PEM_CERTIFICATE: "certificate", PEM_KEY: "private key"}[wanted]
    other = der_content(data)
    if other:
        command = TO_PEM[other].format(shell_word(path))
        raise UsageError(f"{option}: {name} is {other}; PEM is needed: {command}")
    if option == "--cert" and what == "private key":
        raise UsageError(f"--cert: {name} holds no private key: name the file that does with --key")
    found = ", it is empty" * (not data)
    if re.search(PEM_KEY, data):
        found = ", only a private key: that goes to --key"
    elif re.search(PEM_CERTIFICATE, data):
        found = ", only a certificate"
    raise UsageError(f"{option}: {name} holds no {what} in PEM{found}")


def read_password(path: str, seconds: float) -> bytes:
    """Return the first line of a file, without its end; raises UsageError."""
    line = read_secret_file("--key-password-file", path, seconds).partition(b"\n")[0]
    password = line
    if line.endswith(b"\r"):
        password = line[:-1]
    if len(password) > MAX_PASSWORD:
        message = f"its first line has {len(password)} bytes, {MAX_PASSWORD} are allowed"
        raise UsageError(f"--key-password-file: '{path}': {message}")
    return password


def read_identity(args: argparse.Namespace, seconds: float) -> Identity | None:
    """Return the client certificate of --cert with its key, each file read once; raises UsageError."""
    for option, path in (("--key", args.key), ("--key-password-file", args.key_password_file)):
        if args.cert is None and path is not None:
            raise UsageError(f"{option} needs --cert, the client certificate that the key belongs to")
    if args.cert is None:
        return None
    certificate = key = read_secret_file("--cert", args.cert, seconds)
    check_pem("--cert", args.cert, certificate, PEM_CERTIFICATE)
    key_name, password = f"--cert '{args.cert}'", None
    if args.key is not None:
        key_name = f"--key '{args.key}'"
    if args.key is not None and not same_source(args.key, args.cert):
        key = read_secret_file("--key", args.key, seconds)
    option, path = ("--cert", args.cert) if args.key is None else ("--key", args.key)
    check_pem(option, path, key, PEM_KEY)
    if args.key_password_file is not None:
        password = read_password(args.key_password_file, seconds)
    return Identity(f"--cert '{args.cert}'", certificate, key_name, key, password)


def explain_identity(
    context: ssl.SSLContext, identity: Identity, error: ssl.SSLError, asked: bool
) -> UsageError:
    """Say what OpenSSL dislikes about a client certificate or its key; `asked`: the password was used.

    It does not tell which of the two it cannot read: as one that is trusted, the certificate is read alone.
    """
    if error.reason in MISMATCHES:
        message = "{} is not the key of the first certificate in {}"
        return UsageError(message, identity.key_name, identity.name)
    if error.reason and re.search("TOO_SMALL|TOO_WEAK", error.reason):
        words = error.reason.lower().replace("_", " ")
        return UsageError(
            "{}: this machine's OpenSSL finds it too weak to be safe ({})", identity.name, words
        )
    if asked:
        return UsageError("{}: the password in --key-password-file does not open it", identity.key_name)
    blocks = re.findall(PEM_CERTIFICATE + rb"[^-]+-----END [A-Z0-9 ]*-----", identity.certificate)
    try:
        context.load_verify_locations(cadata=b"\n".join(blocks).decode("ascii"))
    except (ssl.SSLError, ValueError):
        return UsageError("{} holds a certificate that cannot be read", identity.name)
    return UsageError("{} holds a private key that cannot be read", identity.key_name)


def load_identity(context: ssl.SSLContext, identity: Identity, environ: Mapping[str, str]) -> None:
    """Have a context show a client certificate where it is asked for one; raises UsageError.

    OpenSSL reads both from files alone, and would ask for a missing password on the terminal.
    """
    asked = False

    def password() -> bytes:
        nonlocal asked
        asked = True
        if identity.password is None:
            message = "{} is encrypted: name a file whose first line is its password, --key-password-file"
            raise UsageError(message, identity.key_name)
        return identity.password

    folders = [folder for folder in (environ.get("TMPDIR"), "/dev/shm", "/tmp", "/var/tmp", ".") if folder]
    try:
        with Lent(identity.certificate, folders) as certificate, Lent(identity.key, folders) as key:
            context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        raise explain_identity(context, identity, error, asked) from None
    except OSError as error:
        if refusal_of(error):
            raise
        raise UsageError("{} cannot be given to OpenSSL: {}", identity.name, reason_of(error)) from None


def load_own_certificate(
    args: argparse.Namespace, seconds: float, url: Url, environ: Mapping[str, str]
) -> Identity | None:
    """Return what --cert and --key name; raises UsageError."""
    identity = read_identity(args, seconds)
    if identity and not url.secure:  # for https the handshake's context finds out, before anything is sent
        load_identity(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), identity, environ)
    return identity


def parse_interface(text: str | None, family: int) -> Interface | None:
    """Read --interface, whatever the machine has; raises UsageError, also where `family` excludes it."""
    if text is None:
        return None
    if not is_ip(text):
        return Interface(text, socket.AF_UNSPEC)
    version, own = (4, socket.AF_INET) if is_ip(text, socket.AF_INET) else (6, socket.AF_INET6)
    packed = socket.inet_pton(own, text.partition("%")[0])
    if not any(packed) or packed[0] == 0xFF or (version == 4 and packed[0] >= 224):
        raise UsageError(
            f"--interface '{text}' is no address that a connection can begin at: give one of its own"
        )
    if not is_ip(text, family):
        raise UsageError(f"--interface '{text}' is an IPv{version} address, which -{10 - version} excludes")
    return Interface(text, own)


def check_socket_path(path: str | None) -> None:
    """Raise UsageError for a path that is too long to be a unix socket's."""
    size = len(os.fsencode(path or ""))
    if size > MAX_SOCKET_PATH:
        message = f"is {size} bytes long, a unix socket's path has at most {MAX_SOCKET_PATH}"
        raise UsageError(f"--unix-socket '{clip(path or '', MAX_FOREIGN)}' {message}")


def check_identity_conflicts(args: argparse.Namespace) -> None:
    """Raise UsageError for options of this section that exclude others, or that say nothing."""
    for name in ("cert", "key", "key_password_file", "unix_socket"):
        if getattr(args, name) == "":
            raise UsageError(f"--{name.replace('_', '-')} '': expected a path")
    if args.interface == "":
        raise UsageError("--interface '': expected the name of a network interface, or an address")
    if args.unix_socket is None:
        return
    excluded = {
        "-x": args.proxy is not None,
        "--resolve": bool(args.resolve),
        "-4": args.ipv4,
        "-6": args.ipv6,
        "--interface": args.interface is not None,
        "--all-addresses": args.all_addresses,
    }
    for option, given in excluded.items():
        if given:
            raise UsageError(f"--unix-socket and {option} exclude each other: a unix socket has no address")


def check_standard_input(args: argparse.Namespace) -> None:
    """Raise UsageError where standard input would be read twice, because the second finds nothing left."""
    given = (args.cert, args.key, args.key_password_file)
    body = args.data[1:] if (args.data or "").startswith("@") else None
    paths = {
        "-d": body,
        "--cacert": args.cacert,
        "--slo-file": args.slo_file,
        "--cert": args.cert,
        "--key": None if is_standard_input(args.cert) else args.key,
        "--key-password-file": args.key_password_file,
    }
    readers = [option for option, path in paths.items() if is_standard_input(path)]
    if len(readers) > 1 and any(map(is_standard_input, given)):
        raise UsageError(f"{' and '.join(readers)} cannot all read standard input")


# ---------------------------------------------------------------------------------------------------------
# 8c. Arguments for what watches. Where a collector is, and what OpenTelemetry's variables say.
# ---------------------------------------------------------------------------------------------------------
TRACES_PATH = "/v1/traces"  # OTLP/HTTP
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
RESOURCE_VARIABLE = "OTEL_RESOURCE_ATTRIBUTES"
SERVICE_VARIABLE = "OTEL_SERVICE_NAME"
OWN_FIELDS = ("content-length", "content-type", "transfer-encoding")  # of what is sent to the collector


def whole_characters(text: str) -> str:
    """Return text of the command line or environment as UTF-8 can hold it; what is none is U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def percent_decode(text: str) -> str:
    """Undo percent-encoding; raises ValueError for what is none, or no UTF-8."""
    if re.search("%(?![0-9A-Fa-f]{2})", text):
        raise ValueError
    return urllib.parse.unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8")


def parse_pairs(variable: str, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Read key=value,key=value, percent-encoded, as W3C Baggage has it; raises UsageError, which repeats
    nothing of it: it may hold a credential.
    """
    text = environ.get(variable, "")
    entries = text.split(",") if text.strip() else []
    pairs = []
    for number, entry in enumerate(entries, 1):
        try:
            key, equals, value = (percent_decode(part.strip()) for part in entry.partition("="))
        except ValueError:
            key = equals = value = ""
        if not key or not equals:
            raise UsageError(
                f"{variable}: entry {number} of {len(entries)} is malformed: "
                "expected KEY=VALUE, with commas in between, percent-encoded"
            )
        pairs.append((key, value))
    return pairs


def parse_collector_headers(environ: Mapping[str, str]) -> tuple[Header, ...]:
    """Return the header fields for the collector; raises UsageError, which never repeats a value."""
    headers: dict[str, Header] = {}
    for number, (name, value) in enumerate(parse_pairs(HEADERS_VARIABLE, environ), 1):
        if not is_token(name.encode()):
            raise UsageError(f"{HEADERS_VARIABLE}: what stands before = in entry {number} is no header name")
        if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
            raise UsageError(f"{HEADERS_VARIABLE}: the value of '{name}' holds a control character")
        if name.lower() in OWN_FIELDS:
            raise UsageError(f"{HEADERS_VARIABLE}: '{name}' cannot be set: it is as the traces are")
        headers[name.lower()] = (name, value.encode())
    return tuple(headers.values())


def parse_resource(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the user says that traces are of; raises UsageError."""
    resource = {"service.name": "httphases", **dict(parse_pairs(RESOURCE_VARIABLE, environ))}
    service = environ.get(SERVICE_VARIABLE)
    if service:
        resource["service.name"] = whole_characters(service)
    return resource


def parse_collector(text: str) -> Url:
    """Return where traces are sent; raises UsageError."""
    if re.match(r"(?i)https?://[^/?#\\]*@", text):
        raise UsageError(
            f"--otlp '{{}}' holds a user name or password: give it as a header, in {HEADERS_VARIABLE}",
            foreign(mask_location(text)),
        )
    try:
        url = parse_url(text)
    except UsageError as error:
        raise UsageError(f"--otlp: {error.template}", *error.details) from None
    path, mark, query = url.target.partition("?")
    path = path.rstrip("/")
    if not path.endswith(TRACES_PATH):
        path += TRACES_PATH
    return url._replace(target=path + mark + query)


# ---------------------------------------------------------------------------------------------------------
# 9a. Command line. The grammar of argv.
# ---------------------------------------------------------------------------------------------------------
CURL_OPTIONS = (  # what those who are used to curl type, and what there is instead
    ("-u --user", 'credentials go as a header, -H "Authorization: Basic …"'),
    ("-U --proxy-user", "credentials of a proxy go into its URL, -x http://user:password@host:port"),
    ("-I --head", "use -X HEAD"),
    ("-A --user-agent", "use -H 'User-Agent: …'"),
    ("-e --referer", "use -H 'Referer: …'"),
    ("-b --cookie", "use -H 'Cookie: …'"),
    ("-c --cookie-jar", "there is no cookie jar; -H 'Cookie: …' sends cookies"),
    ("-w --write-out", "every report has the times: --metrics-only as key=value, --json - as JSON"),
    (
        "-o --output -O --remote-name",
        "leave it out: the body is measured, not kept; --json PATH has the report",
    ),
    ("-s --silent -S --show-error", "leave it out: nothing but the report and errors is printed"),
    (
        "-v --verbose",
        "leave it out: the report shows the connection, -i the header fields, --json - has both",
    ),
    ("-D --dump-header", "-i shows the header fields, --json - has them too"),
    ("--connect-to", "use --resolve HOST:PORT:ADDR, which takes an address"),
    ("--connect-timeout", "use -m, which holds for all of it; the report says which phase took the time"),
    ("-E", "use --cert PATH; its key's password goes into a file, --key-password-file PATH"),
    ("--pass", "write the password into a file: --key-password-file PATH"),
    (
        "--cert-type --key-type",
        "leave it out: --cert and --key take PEM, and say how to make it of anything else",
    ),
    ("--proxy-cert --proxy-key", "no client certificate is shown to a proxy"),
    ("--abstract-unix-socket", "only sockets with a path can be reached: --unix-socket PATH"),
    ("--retry", "nothing is sent twice: run it again when it exits with 75"),
    ("--http2", "leave it out: HTTP/2 is offered with https URLs, unless --http1.1 is given"),
    (
        "--tls-max --tlsv1.2 --tlsv1.3",
        "leave it out: TLS 1.2 or newer is agreed on, with -k older ones too, and the report says which",
    ),
    ("--data-raw --data-binary --data-ascii", "use -d, which sends its data as it is"),
)
OPTION_HINTS = {name: hint for names, hint in CURL_OPTIONS for name in names.split()}


def split_flags(word: str) -> list[str]:
    """Take curl's way of writing flags apart, -sSLo/dev/null: argparse names at most the first of them."""
    flags = re.match(r"-([kLfi46sSvIO]+)(?=[A-Za-z])", word)
    if not flags or " " in word:
        return [word]
    return [f"-{letter}" for letter in flags[1]] + [f"-{word[flags.end() :]}"]


def explain_options(words: Iterable[str]) -> str:
    """Name the options that do not exist, never with their values, and say what there is instead."""
    names = []
    found: dict[str, list[str]] = {}
    for word in words:
        name = word.partition("=")[0]
        if name[:2] in OPTION_HINTS or set(name) & {":", "@"}:  # -ubob:password
            name = name[:2]
        if name.startswith("-"):
            names.append(name)
        if name in OPTION_HINTS:
            found.setdefault(OPTION_HINTS[name], []).append(name)
    hints = list(found) or ["--help lists the options there are"]
    if len(found) > 1:
        hints = [f"{', '.join(found[hint])}: {hint}" for hint in found]
    return f"unrecognized arguments: {' '.join(names)}; {'; '.join(hints)}"


EXAMPLES = """\
exit codes (the first that applies, from the top):
  130 ended by SIGINT, 143 by SIGTERM
   64 usage error: the command line or a file it names is wrong; nothing sent
   70 this machine refuses a thread, memory or a descriptor; nothing sent; or an internal error
   47 more than 10 redirects with -L
   75 network or TLS failure, deadline included, on any step
   73 a report could not be written, or a collector did not take the traces
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
  httphases --count 50 --interval 0.5 --slo ttfb.p95=300 https://example.com/
      is it always so?
  httphases --compact --prometheus example.prom https://example.com/
      for node_exporter's textfile collector

Reported times are milliseconds, sizes are bytes as transferred. HTTP_PROXY, HTTPS_PROXY,
ALL_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR, SSLKEYLOGFILE, NO_COLOR,
FORCE_COLOR and COLUMNS are honoured; with --otlp OTEL_EXPORTER_OTLP_HEADERS,
OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES too.
"""


class Answered(Exception):
    """An option asked for a text in place of a run: exit 0."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Answer(argparse.Action):
    """An option whose answer is its constant, or the whole help."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        raise Answered(self.const or parser.format_help())


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
        """Parse a whole command line; raises UsageError, which names what is not understood."""
        # With -4 and -6 among the options, argparse would take the -1 of `-m -1` for another.
        self._has_negative_number_optionals.clear()
        words = list(sys.argv[1:] if argv is None else argv)
        end = words.index("--") if "--" in words else len(words)
        options = [part for word in words[:end] for part in split_flags(word)]
        args, unknown = self.parse_known_args(options + words[end:])
        if any(word.startswith("-") for word in unknown):
            raise UsageError(explain_options(unknown))
        args.url += unknown
        return args


STATISTICS_HELP = f"With --count also KEY.STAT: {', '.join(SLO_STATS)}"
OPTIONS = {  # by group: the spellings (the first long one names the value), the value (flags have none), help
    "request": (
        ("-X --request --method", "METHOD", f"one of {', '.join(METHODS)} (default: GET, with -d POST)"),
        ("-d --data", "DATA", "request body: text, @FILE, or @- for standard input"),
        ("-H --header", "'NAME: VALUE'", "add a header; may be repeated"),
        ("-L --location --follow", "", f"follow up to {MAX_REDIRECTS} redirects, each a step"),
        ("-m --max-time --timeout", "SECONDS", "give up on a run after this time in all (default: 20)"),
        ("-f --fail", "", "exit 22 when the last response is 4xx or 5xx"),
    ),
    "connection": (
        ("-4 --ipv4", "", "use IPv4 addresses only"),
        ("-6 --ipv6", "", "use IPv6 addresses only"),
        ("--resolve", "HOST:PORT:ADDR", "use ADDR for HOST:PORT, without a lookup; may be repeated"),
        (
            "-x --proxy",
            "URL",
            "http, https, socks5 or socks5h proxy; '' for none, whatever the environment says",
        ),
        ("--unix-socket", "PATH", "connect to this unix socket, for every step, in place of TCP"),
        ("--interface", "NAME_OR_ADDRESS", "connect from this network interface or address of the machine"),
        ("--no-http2 --http1.1", "", "do not offer HTTP/2"),
    ),
    "TLS": (
        (
            "-k --insecure --ignore-ssl",
            "",
            "do not verify certificates; allow old protocols and weak ciphers",
        ),
        ("--cacert --ca-bundle", "PATH", "trust the CAs in this PEM file, and no others"),
        ("--cert", "PATH", "client certificate (PEM, with its chain); only the URL's own origin sees it"),
        ("--key", "PATH", "its private key (PEM), where that is not in the same file"),
        ("--key-password-file", "PATH", "a file whose first line is the password of that key"),
    ),
    "series": (
        ("--count", "N", f"measure N times (1 to {MAX_COUNT}), a line each, and sum them up"),
        ("--interval", "SECONDS", "from start to start, on a fixed schedule (default: 1; 0: no pause)"),
        ("--reuse", "", "send every run after the first on the connection of the one before"),
        ("--all-addresses", "", "measure each address of the name, one after the other, and compare them"),
    ),
    "output (default: a drawn waterfall)": (
        ("-i --include", "", "show the response's header fields in the waterfall, credentials as ***"),
        ("--compact", "", "one line a step"),
        ("--metrics-only", "", "one line of key=value tokens a step"),
        ("--json", "PATH", "write the JSON export; - for standard output (the report moves to stderr)"),
        ("--har", "PATH", "write an HTTP archive (HAR 1.2); - for standard output"),
    ),
    "into the systems that watch": (
        (
            "--prometheus",
            "PATH",
            "write metrics for node_exporter's textfile collector; - for standard output",
        ),
        ("--label", "TEXT", "tell this probe from others, in all that is written for machines"),
        ("--otlp", "URL", "send a trace of each run to this OpenTelemetry collector (OTLP/JSON over HTTP)"),
        ("--propagate", "", "with --otlp: name the trace to the server, in traceparent (W3C)"),
    ),
    "latency budgets": (
        (
            "--slo",
            "KEY=MS[,KEY=MS]",
            f"budgets in ms for {', '.join(SLO_KEYS)}; exit 4 when exceeded. {STATISTICS_HELP}",
        ),
        ("--slo-file", "PATH", "read budgets from a file, one KEY=MS a line; --slo wins"),
    ),
}
COLLECTED = ("-H", "--resolve", "--slo")  # each value counts; of the others the last one does
GIVEN_ONCE = ("-d", "--json", "--har", "--prometheus", "--label", "--otlp", "--slo-file")


def build_parser(width: int) -> Parser:
    """Return the parser of the table above; --help takes `width` columns."""
    # No Python ships translations of what argparse says; looking for them all the same takes 1 ms.
    vars(argparse)["_"] = str
    parser = Parser(
        prog="httphases",
        usage="httphases [OPTIONS] URL",
        description="Make one HTTP request, or follow a redirect chain, and say where the time went.",
        epilog=EXAMPLES,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=width),
        allow_abbrev=False,
        add_help=False,
    )
    # Every argument stands in a group: for one of the parser's own argparse makes a help formatter at once,
    # which on Python 3.14 imports dataclasses and inspect, on any where it is told no width, shutil with bz2.
    positional = parser.add_argument_group("positional arguments")
    positional.add_argument("url", nargs="*", metavar="URL", help="http:// or https:// URL")
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for text, value, explanation in options:
            spellings = text.split()
            kind: dict[str, Any] = {"metavar": value}
            if not value:
                kind = {"action": "store_true"}
            elif spellings[0] in COLLECTED:
                kind.update(action="append", default=[])
            elif spellings[0] in GIVEN_ONCE:
                kind.update(action=Once)
            group.add_argument(*spellings, help=explanation, **kind)
    about = parser.add_argument_group("about")
    version = f"httphases {__version__}\n"
    about.add_argument("-h", "--help", action=Answer, nargs=0, help="show this and exit")
    about.add_argument("--version", action=Answer, nargs=0, const=version, help="show the version and exit")
    return parser


# ---------------------------------------------------------------------------------------------------------
# 9b. Options. What excludes what, and what is read for it; the last place where a UsageError can arise.
# ---------------------------------------------------------------------------------------------------------
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


def choose_series(args: argparse.Namespace) -> Series | None:
    """Return the series that is asked for; raises UsageError."""
    if args.count is not None:
        return Series(parse_count(args.count), parse_interval(args.interval), args.reuse, args.all_addresses)
    for option, given in (("--interval", args.interval is not None), ("--reuse", args.reuse)):
        if given:
            raise UsageError(f"{option} is for a series of runs: it needs --count")
    if args.all_addresses:
        return Series(1, 0.0, False, True)
    return None


def check_conflicts(args: argparse.Namespace) -> None:
    """Raise UsageError for options that exclude each other, or want one another."""
    if args.ipv4 and args.ipv6:
        raise UsageError("-4 and -6 exclude each other")
    if args.insecure and args.cacert is not None:
        raise UsageError("-k and --cacert exclude each other: verify with that bundle, or not at all")
    exports = {"--json": args.json, "--har": args.har, "--prometheus": args.prometheus}
    for option, path in (*exports.items(), ("--cacert", args.cacert)):
        if path == "":
            raise UsageError(f"{option} '': expected a path")
    check_identity_conflicts(args)
    check_standard_input(args)
    check_socket_path(args.unix_socket)
    if args.label == "":
        raise UsageError("--label '': expected a text that tells this probe from others")
    asked = [option for option, path in exports.items() if path is not None]
    for number, option in enumerate(asked):
        for other in asked[:number]:
            if same_file(exports[other], exports[option]):
                raise UsageError(f"{other} and {option} both write to '{exports[option]}'")


def check_routes(options: Options) -> None:
    """Raise UsageError where a proxy that the run may need is malformed, or SOCKS has no PySocks."""
    schemes = ("http", "https") if options.follow else (options.request.url.scheme,)
    for scheme in schemes:
        route = route_to(options.request.url._replace(scheme=scheme), options)
        if "socks" in route.hops(options.request.url) and optional("socks") is None:
            raise UsageError(
                f"{route.source}: a SOCKS proxy needs PySocks, which is not installed: "
                "pip install PySocks, or use httphases.pyz, which contains it"
            )


def check_targets(options: Options) -> None:
    """Raise UsageError, or SloError, for what cannot be asked of each address by itself."""
    if not options.series or not options.series.every_address:
        return
    route = choose_route(options.request.url, options.proxy, options.environ)
    if route.proxy:
        raise UsageError(
            f"--all-addresses asks the servers themselves, but {route.source} names a proxy: "
            "leave it out, or give -x '' to go without one"
        )
    for key in options.thresholds:
        if key.partition(".")[0] == "dns":
            raise SloError(
                f"SLO key '{key}': with --all-addresses the name is looked up once, before all runs"
            )


def collector_options(url: Url, environ: Mapping[str, str]) -> Options:
    """Return how a collector is asked: its own way, by none of the options of what is measured.

    Raises UsageError.
    """
    headers = parse_collector_headers(environ)
    given = [(decode(value), True) for _, value in headers]
    given += [pair for name, value in headers for pair in header_secrets(name, decode(value))]
    return Options(
        request=Request("POST", url, headers, None),
        secrets=index_secrets([*given, *proxy_secrets(url, None, environ)]),
        follow=False,
        max_time=COLLECTOR_TIME,
        http2=False,
        insecure=False,
        ca_bundle=None,
        proxy=None,
        environ=environ,
        fail=False,
        family=socket.AF_UNSPEC,
        overrides={},
        style="waterfall",
        include=False,
        json_path=None,
        har_path=None,
        thresholds={},
        series=None,
        warnings=(),
    )


def choose_tracing(args: argparse.Namespace, environ: Mapping[str, str]) -> Tracing | None:
    """Return where traces go, None for nowhere; raises UsageError."""
    if args.otlp is None:
        if args.propagate:
            raise UsageError("--propagate names the trace that --otlp sends: it needs --otlp")
        return None
    tracing = Tracing(
        sender=collector_options(parse_collector(args.otlp), environ),
        resource=parse_resource(environ),
        propagate=args.propagate,
    )
    check_routes(tracing.sender)
    return tracing


def check_tracing(options: Options) -> None:
    """Raise UsageError where a request would name two traces, or more runs than a collector gets at once."""
    if options.tracing is None:
        return
    named = any(name.lower() == "traceparent" for name, _ in options.request.headers)
    if options.tracing.propagate and named:
        raise UsageError("--propagate and -H 'traceparent: …' exclude each other: a request is in one trace")
    if options.series:
        runs = options.series.times * max(1, len(options.series.addresses))
        if runs > MAX_TRACES:
            raise UsageError(
                f"--otlp: these are {runs} runs, at most {MAX_TRACES} are sent, all in one request"
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


def check_urls(args: argparse.Namespace) -> None:
    """Raise UsageError unless there is just one URL."""
    if len(args.url) == 1:
        return
    taken = [value for value in vars(args).values() if isinstance(value, str) and "://" in value]
    if not args.url and taken:
        raise UsageError(
            f"no URL given: '{clip(mask_location(taken[0]))}' was taken as the value of an option"
        )
    raise UsageError(explain_urls(args.url, args.header))


def choose_family(args: argparse.Namespace) -> int:
    """Return the address family that -4 or -6 asks for, as a constant of socket."""
    if args.ipv4:
        return socket.AF_INET
    if args.ipv6:
        return socket.AF_INET6
    return socket.AF_UNSPEC


def choose_style(args: argparse.Namespace) -> str:
    if args.metrics_only:
        return "metrics"
    if args.compact:
        return "compact"
    return "waterfall"


def warn_of_series(options: Options) -> Iterator[str]:
    """Say what would only show after many runs: a file without a folder, a budget without a value."""
    if options.series is None:
        return
    for option, path in (("--json", options.json_path), ("--har", options.har_path)):
        if path and not is_stdout(path) and not os.path.isdir(os.path.dirname(path) or "."):
            yield f"{option} '{path}' cannot be written: there is no such folder"
    for key in options.thresholds:
        phase, dot, _ = key.partition(".")
        if options.series.reuse and dot and phase in PHASES[: PHASES.index("wait")]:
            yield f"--slo {key} is held against nothing: a kept connection has no {phase}"


def warn_of_contradictions(args: argparse.Namespace, options: Options) -> Iterator[str]:
    """Say what of the command line goes ahead but may not be meant."""
    request = options.request
    if args.request and request.method in ("GET", "HEAD") and request.body is not None:
        yield f"{request.method} with a request body: many servers ignore it or refuse it"
    if args.compact and args.metrics_only:
        yield "--metrics-only wins over --compact"
    if options.identity and not request.url.secure:
        yield "--cert: nobody is shown the certificate: the first URL is http, and no other origin may see it"
    if args.include and options.style != "waterfall":
        yield "--include shows header fields in the waterfall alone; --json has them too"
    yield from warn_of_series(options)
    place = (request.url.host, request.url.port)
    if options.follow or args.proxy is not None:
        return  # another step, or the proxy, may need it
    for host, port in options.overrides:
        if (host, port) != place:
            yield f"--resolve {host}:{port} is not the URL's {place[0]}:{place[1]} and was not used"


def load_bundle(args: argparse.Namespace, seconds: float, url: Url) -> CaBundle | None:
    """Return what --cacert names; raises UsageError."""
    if args.cacert is None:
        return None
    bundle = read_ca_bundle(args.cacert, "--cacert", seconds)
    if not url.secure:  # for https the handshake's context finds out, before anything is sent
        load_ca_bundle(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), bundle)
    return bundle


def read_request(args: argparse.Namespace, seconds: float, url: Url) -> Request:
    """Return the first request; raises UsageError."""
    headers = parse_headers(args.header)
    body = read_body(args.data, seconds, any(name.lower() == "content-type" for name, _ in headers))
    check_length(headers, body)
    return Request(parse_method(args.request, args.data is not None), url, headers, body)


def parse_options(argv: Sequence[str] | None, environ: Mapping[str, str], width: int) -> Options:
    """Read and check the whole command line; raises UsageError, or Answered by --help and --version.

    `width` is how many columns --help may take.
    """
    args = build_parser(width).parse_all(argv)
    check_urls(args)
    check_conflicts(args)
    series = choose_series(args)
    seconds = parse_seconds(args.max_time, TARGET_MAX_TIME if args.all_addresses else DEFAULT_MAX_TIME)
    thresholds = parse_budgets(args.slo, args.slo_file, seconds)
    check_statistics(thresholds, series if args.count is not None else None)
    url = parse_url(args.url[0])
    family = choose_family(args)
    interface = parse_interface(args.interface, family)
    chosen_by = "-4 or -6" if family else "--interface"
    family = family or (interface.family if interface else socket.AF_UNSPEC)
    entries = [parse_resolve(text) for text in args.resolve]
    if series and series.every_address:
        here = [entry for entry in entries if entry.place == (url.host, url.port)]
        entries = [entry for entry in entries if entry not in here]
        series = series._replace(addresses=choose_targets(here, family, chosen_by))
    check_families(entries, family, chosen_by)
    ca_bundle = load_bundle(args, seconds, url)
    identity = load_own_certificate(args, seconds, url, environ)
    request = read_request(args, seconds, url)
    options = Options(
        request=request,
        secrets=find_secrets(request, args.proxy, environ),
        follow=args.location,
        max_time=seconds,
        http2=not args.no_http2,
        insecure=args.insecure,
        ca_bundle=ca_bundle,
        proxy=args.proxy,
        environ=environ,
        fail=args.fail,
        family=family,
        overrides=collect_overrides(entries),
        style=choose_style(args),
        include=args.include,
        json_path=args.json,
        har_path=args.har,
        thresholds=thresholds,
        series=series,
        warnings=(),
        identity=identity,
        unix_socket=args.unix_socket,
        interface=interface,
        prometheus_path=args.prometheus,
        label=args.label and whole_characters(args.label),
        tracing=choose_tracing(args, environ),
    )
    check_routes(options)
    check_targets(options)
    check_tracing(options)
    return options._replace(warnings=tuple(warn_of_contradictions(args, options)))


# ---------------------------------------------------------------------------------------------------------
# 10. Clock. What happens in a step is an append-only log of events; all that is said of its times is read
#     from that log, at its end and at the deadline alike. Nanoseconds of time.perf_counter_ns.
# ---------------------------------------------------------------------------------------------------------
class Event(NamedTuple):
    """Something that happened, and when. The names, each with its instant and its detail:

    start       the clock starts; whether a name is to be looked up
    resolving   a hop asks for addresses; the number of the hop
    resolved    they are known; the addresses, of the first hop
    looked up   the addresses were all that was wanted
    dialling    a SYN is about to leave; Dialling
    dialled     the attempt ended: SYN-ACK, or its failure; Dialled
    connection  from here on the socket is this one
    open        the answer that opened a hop came; when the first flight of what is above it left
    handshake   a handshake with the target ended, or failed; Handshake
    wanted      the target asked for a client certificate
    declined    it was told that there is none that fits
    shown       it was sent one
    local       the connection's own end is known; its address
    asking      the exchange begins; the Exchange
    sent        the kernel has taken the last byte of the request
    interim     a 1xx response came; its status code
    first byte  of the final response
    response    its header section is whole; the Response
    kept        the connection is one of an earlier run; the Peer
    counters    struct tcp_info was read; for which field of Evidence, and the struct
    done        the last byte of the body
    failed      the step failed; the NetworkError
    """

    name: str
    at: int
    detail: Any


class Dialling(NamedTuple):
    """An attempt to connect; `peer` is None where there is no address, on a unix socket."""

    number: int
    peer: Peer | None


class Dialled(NamedTuple):
    number: int
    error: str | None


def divide(answered: int, departed: int) -> int:
    """Return where one phase ends and the wait starts, in the time that it took to wake this program up.

    The one should end when the other side's answer came (`answered`), the wait start when the request that
    this let go was sent (`departed`). Each bears half of what lies between, of a usual wake-up that is: the
    wait never bears more, or the server would be blamed for a machine that is short of CPUs.
    """
    # Device "the wake-up is divided between connect and wait": without it, wait is 0.202 ms off instead of
    # 0.068 (http).
    return departed - min((departed - answered) // 2, WAKE_UP // 2)


class History(NamedTuple):
    """A log at one moment. Each answer is a pure function of the events."""

    hops: tuple[str, ...]
    events: tuple[Event, ...]
    received: int

    def all(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    def instant(self, name: str) -> int | None:
        """Return when something first happened, None if it has not."""
        return next((event.at for event in self.events if event.name == name), None)

    def detail(self, name: str) -> Any:
        """Return the newest detail of that name, None when there is none."""
        return next((event.detail for event in reversed(self.events) if event.name == name), None)

    @property
    def start(self) -> int:
        return self.instant("start") or 0

    @property
    def kept(self) -> bool:
        return self.instant("kept") is not None

    @property
    def stale(self) -> bool:
        """Tell whether the answer came before the request could leave: then it answers another. As far as the
        kernel's clock and ours can be told apart.
        """
        first = self.instant("first byte")
        return self.kept and first is not None and first < self.start - 2 * CLOCK_ERROR

    @property
    def ended(self) -> bool:
        return any(self.instant(end) is not None for end in ("done", "failed", "looked up"))

    @property
    def hop(self) -> int:
        """Return the number of the hop under way, `len(hops)` when all are open."""
        if self.instant("dialling") is None:
            return self.detail("resolving") or 0
        return len(self.all("open"))

    def _opened(self, count: int) -> int | None:
        """Return when the first `count` hops were open.

        Between two hops that is when the answer came. Between the last one and the request it is the end of
        a wait for the network and the start of one for the server: see `divide`.
        """
        opened = self.all("open")
        if not 0 < count <= len(opened):
            return None
        last = opened[count - 1]
        if count < len(self.hops):
            return last.at
        return divide(last.at, last.detail)

    def _boundaries(self) -> Iterator[int | None]:
        """Give the end of each phase, in the order of PHASES; None for what is not over."""
        if self.kept:  # the wait is the first phase
            yield from (self.start,) * PHASES.index("wait")
        else:
            dialling = self.instant("dialling")
            if dialling is not None and not self.detail("start"):
                dialling = self.start  # no name was looked up: dns takes no time at all
            yield dialling
            yield self._opened(self.hops.count("connect"))
            yield self._opened(len(self.hops))
        yield self.instant("first byte")
        yield self.instant("done")

    @property
    def ends(self) -> tuple[int, ...]:
        """Return the ends of the phases that are over. The end of one is the start of the next, and no
        instant lies before the one before it.
        """
        ends: list[int] = []
        newest = self.start
        for instant in self._boundaries():
            if instant is None:
                break
            # What the kernel timed was read from another clock: it may lie a little before what came first.
            newest = max(newest, instant)
            ends.append(newest)
        return tuple(ends)

    @property
    def newest(self) -> int:
        """Return the start of the phase under way."""
        return max(self.start, *self.ends, 0)

    @property
    def phase(self) -> str:
        """Return the phase under way."""
        return PHASES[min(len(self.ends), len(PHASES) - 1)]

    def timing(self, failed_at: int | None) -> Timing:
        """Round every instant to a microsecond from the start, then subtract: all sums are exact.

        `failed_at` closes the phase under way of a failed step; the later ones stay None, and those that a
        kept connection does not have.
        """
        ends = list(self.ends)
        reached = len(ends)
        if failed_at is not None and self.instant("start") is None:
            failed_at = 0  # no clock has run
        if failed_at is not None and reached < len(PHASES):
            ends.append(max(self.newest, failed_at))
        offsets = [0] + [round((end - self.start) / 1000) for end in ends]
        spans: list[int | None] = [after - before for before, after in zip(offsets, offsets[1:])]
        dns, connect, tls, wait, xfer = spans + [None] * (len(PHASES) - len(spans))
        send = ttfb = None
        if reached >= 3 and wait is not None:
            # An answer may come before the request is whole, or without it: then sending took all of wait.
            last = min(self.instant("sent") or ends[3], ends[3])
            send = max(0, round((last - self.start) / 1000) - offsets[3])
        if reached >= 4:
            ttfb = offsets[4]
        if self.kept:
            dns = connect = tls = None
        return Timing(dns, connect, tls, wait, xfer, offsets[-1], send, ttfb)

    def attempts(self, now: int) -> tuple[Attempt, ...]:
        """Return the attempts to connect, in the order in which they began."""
        outcomes = {event.detail.number: event for event in self.all("dialled")}
        attempts = []
        for begun in self.all("dialling"):
            if begun.detail.peer is None:  # a unix socket has no address
                continue
            # At the deadline some have no outcome yet: they took until now.
            pending = Event("", now, Dialled(0, "no answer"))
            ended = outcomes.get(begun.detail.number, pending)
            duration = max(0, round((ended.at - begun.at) / 1000))
            attempts.append(Attempt(begun.detail.peer.ip, duration, ended.detail.error))
        return tuple(attempts)

    @property
    def peer(self) -> Peer | None:
        """Return the other end of the newest connection that stood."""
        if self.kept:
            kept: Peer | None = self.detail("kept")
            return kept
        peers = {event.detail.number: event.detail.peer for event in self.all("dialling")}
        stood = [event.detail.number for event in self.all("dialled") if event.detail.error is None]
        return peers[stood[-1]] if stood else None


def tcp_info(connection: socket.socket | None) -> bytes:
    """Return Linux' struct tcp_info of a connection, empty elsewhere."""
    if sys.platform != "linux" or connection is None:
        return b""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return b""


QUIET = 52  # the place of tcpi_last_data_recv: ms since the last segment came that was next in order
DISORDER = 224  # the place of tcpi_rcv_ooopack: segments that came out of order (Linux 5.4)


def counter_at(info: bytes, place: int) -> int | None:
    """Return the 32-bit counter at a place of struct tcp_info, None where an older kernel's has ended."""
    if len(info) < place + 4:
        return None
    counter: int = struct.unpack_from("@I", info, place)[0]
    return counter


def read_tcp_info(info: bytes) -> tuple[int | None, int | None]:
    """Return (round trip in us, retransmitted segments), None where they are not told.

    tcpi_min_rtt, unlike the smoothed tcpi_rtt, is free of the other side's delayed acknowledgements. Nothing
    but zeros, the state included, comes from what plays a kernel's part and keeps no such books.
    """
    if len(info) < 104 or not any(info):
        return None, None
    rtt = counter_at(info, 148)
    if rtt is None:  # before Linux 4.6: tcpi_rtt
        rtt = counter_at(info, 68)
    retransmits = counter_at(info, 100)  # tcpi_total_retrans
    if rtt in (0, 0xFFFFFFFF):
        return None, retransmits
    return rtt, retransmits


def parse_tcp_info(info: bytes) -> Counters | None:
    """Read what findings need of Linux' struct tcp_info (include/uapi/linux/tcp.h), which grows at its end.

    None for what is too short for the counters of Linux 4.6, and for what a kernel filled with zeros.
    """
    if len(info) < 160 or not any(info[1:]):
        return None
    rtt, retransmits = read_tcp_info(info)
    segments_in, segments_out = struct.unpack_from("@II", info, 152)  # tcpi_data_segs_in, _out
    return Counters(
        window_scaling=bool(info[5] & 4),  # TCPI_OPT_WSCALE
        segment=counter_at(info, 16) or 0,  # tcpi_snd_mss
        retransmits=retransmits or 0,
        rtt_us=rtt,
        received=struct.unpack_from("@Q", info, 128)[0],  # tcpi_bytes_received
        quiet_us=(counter_at(info, QUIET) or 0) * 1000,
        segments_in=segments_in,
        segments_out=segments_out,
        duplicates=counter_at(info, 216),  # tcpi_dsack_dups
        disorder=counter_at(info, DISORDER),
    )


def run_delay(thread_id: int) -> int:
    """Return how long (ns) the kernel kept a thread runnable but not running; 0 where Linux does not tell.

    The second field of schedstat (Linux, Documentation/scheduler/sched-stats).
    """
    try:
        with open(f"/proc/self/task/{thread_id}/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class Log:
    """The events of one step. The measuring thread appends; any thread may look at any moment.

    `hops` names the phase that each hop of the way belongs to, in the order of opening. `received` counts
    the bytes of the body: reads are too many to be events.
    """

    def __init__(self) -> None:
        self.hops: tuple[str, ...] = ()
        self.received = 0
        self._events: list[Event] = []

    def add(self, name: str, detail: Any = None, at: int | None = None) -> None:
        if at is None:
            at = time.perf_counter_ns()
        # Without a lock: an append, like the copy in `history`, is one step for the other threads.
        self._events.append(Event(name, at, detail))

    def count(self, instant: str) -> None:
        """Keep the kernel's counters of this moment; where no instant is near, because it takes 1-16 us."""
        connection = next((e.detail for e in reversed(self._events) if e.name == "connection"), None)
        self.add("counters", (instant, tcp_info(connection)))

    def history(self) -> History:
        """Return what has happened so far."""
        return History(self.hops, tuple(self._events), self.received)


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
ADDRESS_FAMILIES = {4: socket.AF_INET, 16: socket.AF_INET6}  # by the bytes of an address


class Der(NamedTuple):
    tag: int
    content: bytes


def each_der(data: bytes) -> Iterator[Der]:
    """Give the elements of DER; raises ValueError at the first that does not fit."""
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
        yield Der(tag, data[at : at + length])
        at += length


def read_der(data: bytes) -> list[Der]:
    return list(each_der(data))


def der_serial(element: Der) -> str:
    """Return a serial number in hexadecimal, without the byte of zeros that makes an INTEGER positive."""
    if element.tag != 0x02:
        raise ValueError("no INTEGER")
    return element.content.lstrip(b"\0").hex().upper() or "00"


DER_CODECS = {  # of string types that are not UTF-8; the codecs' names would be imported when first used
    0x1C: codecs.utf_32_be_decode,
    0x1E: codecs.utf_16_be_decode,
}


def der_text(element: Der) -> str:
    if element.tag == 0x14:  # TeletexString: ISO-8859-1 is what is written into it
        return element.content.decode("latin-1")
    decode_text = DER_CODECS.get(element.tag, codecs.utf_8_decode)
    return decode_text(element.content, "replace", True)[0]


def der_time(element: Der) -> datetime.datetime:
    """Read UTCTime (two digits of year, 1950-2049) or GeneralizedTime (RFC 5280 section 4.1.2.5)."""
    text = element.content.decode("ascii")
    if element.tag == 0x17:
        century = {True: "19", False: "20"}[text[:2] >= "50"]
        text = century + text
    if len(text) != 15 or not text[:14].isdigit() or text[14] != "Z":
        raise ValueError("bad DER time")
    year, *rest = int(text[:4]), *(int(text[at : at + 2]) for at in range(4, 14, 2))
    return datetime.datetime(year, *rest, tzinfo=datetime.timezone.utc)  # type: ignore[misc, arg-type]


def der_name(element: Der) -> list[tuple[str, str]]:
    """Return the (type, value) pairs of a distinguished name, in order; unnamed types are left out."""
    pairs = []
    for relative in read_der(element.content):
        for attribute in read_der(relative.content):
            kind, value = read_der(attribute.content)[:2]
            if kind.content in NAME_TYPES:
                pairs.append((NAME_TYPES[kind.content], der_text(value)))
    return pairs


def common_name(subject: Der) -> str | None:
    """Return the last Common Name, the most specific one; None without any."""
    names = [value for kind, value in der_name(subject) if kind == "CN"]
    return next(reversed(names), None)


def name_text(name: Der) -> str:
    """Write a distinguished name as RFC 4514 does, the last part first."""
    return ", ".join(f"{kind}={value}" for kind, value in reversed(der_name(name)))


def alternative_names(extensions: Der) -> tuple[str, ...]:
    """Return the DNS names, addresses, mail addresses and URIs of subjectAltName."""
    names = []
    for extension in read_der(read_der(extensions.content)[0].content):
        fields = read_der(extension.content)
        if fields[0].content != SUBJECT_ALT_NAME:
            continue
        for name in read_der(read_der(fields[-1].content)[0].content):
            if name.tag in (0x81, 0x82, 0x86):
                names.append(name.content.decode("ascii", "backslashreplace"))
            elif name.tag == 0x87 and len(name.content) in ADDRESS_FAMILIES:
                names.append(socket.inet_ntop(ADDRESS_FAMILIES[len(name.content)], name.content))
    return tuple(names)


def in_days(moment: datetime.datetime, now: datetime.datetime) -> str:
    """Say how far away a moment is, in whole days: '3 days', 'less than a day'."""
    days = abs(moment - now).days
    return {0: "less than a day", 1: "1 day"}.get(days, f"{days} days")


def certificate_name(certificate: Certificate) -> str:
    """Name a certificate: by its Common Name, else its first alternative name, else its issuer."""
    if certificate.common_name:
        return f"CN {certificate.common_name}"
    if certificate.names is None:
        return "no legible name"
    if certificate.names:
        return certificate.names[0]
    if certificate.issuer:
        return f"no name, issued by {certificate.issuer}"
    return "no name"


def certificate_fields(der: bytes) -> list[Der]:
    """Return the fields of TBSCertificate as far as it is DER, without the version (RFC 5280 section 4.1)."""
    fields: list[Der] = []
    try:
        certificate = next(each_der(der), Der(0, b""))
        for field in each_der(next(each_der(certificate.content), Der(0, b"")).content):
            fields.append(field)
    except ValueError:
        pass
    if fields and fields[0].tag == 0xA0:
        del fields[0]
    return fields


def legible(read: Callable[[Der], Any], element: Der) -> Any:
    """Read one field; None when it cannot be read, which is no reason not to show the others."""
    try:
        return read(element)
    except (ValueError, IndexError):
        return None


def parse_certificate(der: bytes | None) -> Certificate | None:
    """Read what a report shows of a certificate, each field by itself; None for what is no certificate."""
    fields = certificate_fields(der or b"")
    if len(fields) < 5:
        return None
    serial, _, issuer, validity, subject = fields[:5]
    extensions = [field for field in fields[5:] if field.tag == 0xA3]
    return Certificate(
        common_name=legible(common_name, subject),
        names=legible(alternative_names, extensions[0]) if extensions else (),
        issuer=legible(name_text, issuer),
        serial=legible(der_serial, serial),
        not_before=legible(lambda field: der_time(read_der(field.content)[0]), validity),
        not_after=legible(lambda field: der_time(read_der(field.content)[1]), validity),
    )


# ---------------------------------------------------------------------------------------------------------
# 12a. Failures. What errors mean, in plain words, with one thing to try: tables first, then what chooses
#     from them. The hop or the exchange that failed asks here; nobody else writes such sentences.
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
UNIX_FAILURES = {  # of connect() on a unix socket (unix(7)): what it means, and what to try
    errno.ENOENT: (
        "no such file, the socket is missing",
        "Check the path, and whether the service runs: it makes the socket when it starts.",
    ),
    errno.ENOTDIR: ("part of the path is no folder", "Check the path."),
    errno.ECONNREFUSED: (
        "connection refused, nothing listens there",
        "Check that it is a socket, and that the service runs: one that has ended may leave it behind.",
    ),
    errno.EACCES: (
        "not permitted",
        "It takes the right to write to the socket, and to pass its folders: look at their owners and modes.",
    ),
    errno.EPERM: ("not permitted", "A policy of this machine forbids it: check its rules."),
    errno.EAGAIN: (
        "its queue is full",
        "The service does not take the connections that wait for it: look at its load, and its log.",
    ),
    errno.EPROTOTYPE: ("it is a socket of another type", "HTTP needs a stream socket: check the path."),
}
BROKEN_SERVER = "The server, or something in front of it, is at fault: look at its log."
CLOSED_EARLY = "The server or a load balancer hung up: look at its log, its time-outs and its limits."
HTTP2_HINT = "The server, or something in front of it, is at fault; --http1.1 avoids HTTP/2."
NO_PROXY_THERE = "Check that the address belongs to such a proxy, and look at the proxy's log."
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
# Replies that speak of an address: of a target that has several, the next one may fare better.
SOCKS_NEXT_ADDRESS = (0x01, 0x03, 0x04, 0x05, 0x06, 0x08)
RESET_HINTS = {
    "HTTP_1_1_REQUIRED": "Ask over HTTP/1.1 with --http1.1.",
    "REFUSED_STREAM": "The server did not process the request, most likely overloaded: try again.",
    "NO_ERROR": "The server is closing its connections, for a restart perhaps: try again.",
}
INSECURE_HINT = "To see the timings all the same, use -k (on a trusted network only)."
HUNG_UP_IN_HEADER = "the server hung up in the middle of its header"
TOO_MANY_INTERIM = f"more than {MAX_INTERIM} interim (1xx) responses came before the answer"
CUT = "The server may have crashed or been restarted, or a device in between cut the connection"
BROKEN = {  # where a connection broke, while which kind of exchange was at which point
    "upload": (
        "{} while the request was being sent",
        "The server broke off while taking the body: look at its limit for bodies, and its log.",
    ),
    "sending in the clear": (
        "{} while the request was being sent",
        f"{CUT}, or the port speaks TLS: try https://.",
    ),
    "sending over TLS": ("{} while the request was being sent", f"{CUT}: look at its log."),
    "waiting in the clear": (
        "{} before any answer came",
        f"{CUT}, or the port speaks TLS: try https://.",
    ),
    "waiting over TLS": ("{} before any answer came", f"{CUT}: look at its log."),
    "header": ("{} in the middle of the header", CLOSED_EARLY),
    "body": ("{} after {} bytes of the body", CLOSED_EARLY),
}
HANDSHAKE_BROKEN = (
    "A server or firewall that dislikes the TLS version or the host name does this; "
    "or the port does not speak TLS."
)
HANDSHAKE_HUNG_UP = (
    "Check that the port speaks TLS; some servers and firewalls hang up on names they do not serve."
)
RAISE_M = "raise -m if that is to be expected."
TIMEOUTS = {  # what the step was waiting for: the message, and what to try
    "start": (
        "the time of {} was over before this step began",
        f"This machine or its CA store is too slow: {RAISE_M}",
    ),
    "later start": ("the time of {} was over before this step began", f"Earlier steps took it: {RAISE_M}"),
    "lookup": (
        "the resolver gave no answer for {} within {}",
        (
            "Check that the name servers in /etc/resolv.conf can be reached; "
            "--resolve HOST:PORT:ADDR goes around them."
        ),
    ),
    "connection": (
        "no connection to {} within {}",
        "Nothing came back: a firewall drops packets, the host is down, or the service is too busy.",
    ),
    "proxy": ("{} did not open the way within {}", f"Look at the proxy's log; {RAISE_M}"),
    "handshake": (
        "the TLS handshake was not finished within {}",
        "The server accepts connections but no handshake: it is overloaded, or does not speak TLS.",
    ),
    "handshake behind a proxy": (
        "the TLS handshake was not finished within {}",
        "The proxy opened the way, but the target does not shake hands: look at both their logs.",
    ),
    "upload": (
        "the request could not be sent whole within {}",
        f"The server takes no more of the body: look at the server's limits and load; {RAISE_M}",
    ),
    "answer": (
        "no response came within {}",
        f"The server is connected but does not answer: look at its load and log; {RAISE_M}",
    ),
    "final answer": (
        "only interim responses ({}) came within {}",
        f"The server is connected but does not answer: look at its load and log; {RAISE_M}",
    ),
    "body": (
        "the response was not complete within {}: {}",
        f"A large body, a slow path or a stalled server: {RAISE_M}",
    ),
}


def words_of_system(error: Exception) -> str:
    """Put an error of the system in words, lower case, to follow what it happened to."""
    number = getattr(error, "errno", 0) or 0
    return refusal_of(error) or SYSTEM_ERRORS.get(number) or reason_of(error).lower()


def explain_refusal(error: BaseException) -> NetworkError | None:
    """Say which limit of this machine was met, None where it was no limit."""
    refusal = refusal_of(error)
    if not refusal:
        return None
    return NetworkError("network", "{}", REFUSED_HINT, refusal)


def explain_unprepared(error: Exception) -> NetworkError | None:
    """Say why a step could not be made ready, None for what is no fault of this machine or its variables."""
    if isinstance(error, InterfaceError):
        hint = "It was there when the run began: look at the network of this machine."
        return NetworkError("network", "{}", hint, error.message)
    if isinstance(error, UsageError):
        hint = "Correct the variable, or name a CA bundle with --cacert."
        return NetworkError("tls", "{}", hint, error.message)
    return explain_refusal(error)


def protocol_error(message: str, *details: Detail, hint: str = BROKEN_SERVER) -> NetworkError:
    return NetworkError("protocol", message, hint, *details)


def timed_out(waiting_for: str, *details: Detail) -> NetworkError:
    """Say what a step was waiting for when the time of -m was over; `details` fill the message."""
    message, hint = TIMEOUTS[waiting_for]
    return NetworkError("timeout", message, hint, *details)


def unix_failed(path: str, error: Exception) -> NetworkError:
    """Say why a unix socket could not be connected to."""
    words, hint = UNIX_FAILURES.get(
        getattr(error, "errno", 0) or 0,
        (words_of_system(error), "Check the path, and the service behind it."),
    )
    return NetworkError("network", "no connection to the unix socket {}: {}", hint, clip(path), words)


def explain_interface(interface: Interface, error: OSError, own: Mapping[str, Sequence[str]]) -> UsageError:
    """Say why nothing can be sent from where --interface says, and what to give instead.

    `own` are the addresses of this machine by interface.
    """
    listed = ", ".join(f"{name} ({', '.join(found)})" if found else name for name, found in own.items())
    start = f"--interface '{clip(interface.text, MAX_FOREIGN)}'"
    if interface.family:
        fitting = [address for found in own.values() for address in found if is_ip(address, interface.family)]
        instead = "it has none of that family"
        if fitting:
            instead = f"give one of its own: {', '.join(fitting)}"
        if error.errno == errno.EADDRNOTAVAIL:
            return InterfaceError(f"{start}: this machine has no such address; {instead}")
        return InterfaceError(f"{start}: {words_of_system(error)}; {instead}")
    if error.errno == errno.ENODEV:
        return InterfaceError(f"{start}: this machine has no such interface; give one of these: {listed}")
    addresses = own.get(interface.text, ())
    instead = "it has no address to give instead"
    if addresses:
        instead = f"give its address instead: {' or '.join(f'--interface {each}' for each in addresses)}"
    reason = reason_of(error).lower()
    return InterfaceError(f"{start}: this machine does not permit binding to it ({reason}); {instead}")


def negotiation_broken(error: Exception) -> NetworkError:
    """Say how a connection ended before a proxy had opened the way."""
    message = "{} during the negotiation with the proxy"
    return NetworkError("network", message, NO_PROXY_THERE, words_of_system(error))


def handshake_broken(error: Exception) -> NetworkError:
    """Say how a connection ended in a TLS handshake: EOFError when the other side closed it."""
    if isinstance(error, EOFError):
        message = "the server closed the connection during the TLS handshake"
        return NetworkError("tls", message, HANDSHAKE_HUNG_UP)
    message = "{} during the TLS handshake"
    return NetworkError("network", message, HANDSHAKE_BROKEN, words_of_system(error))


def no_answer_to_connect(proxy: Proxy) -> NetworkError:
    """Say what it means that nothing came to CONNECT."""
    hint = "Check that the address belongs to an HTTP proxy, and the proxy's log."
    return NetworkError("proxy", "the proxy {} hung up without answering CONNECT", hint, proxy.shown)


def no_tunnel(proxy: Proxy) -> NetworkError:
    """Say what it means that more than an empty answer came to CONNECT."""
    hint = "That address most likely belongs to a web server: check host and port of the proxy."
    message = "the proxy {} answered CONNECT with a page of its own, as a web server would"
    return NetworkError("proxy", message, hint, proxy.shown)


def lookup_failed(host: str, error: Exception) -> NetworkError:
    """Say that a lookup ended in an error that says nothing of the name."""
    hint = "Check the resolver of this machine."
    return NetworkError("dns", "{} could not be looked up: {}", hint, host, reason_of(error))


def family_option(options: Options) -> str:
    """Name the option that restricts lookups to one family."""
    if options.interface and options.interface.family:
        return f"--interface {options.interface.text}"
    return "-4" if options.family == socket.AF_INET else "-6"


def explain_lookup(host: str, options: Options, error: socket.gaierror) -> NetworkError:
    """Tell a name that does not exist from one without such an address, and both from a silent resolver."""
    wanted = FAMILY_NAMES.get(options.family)
    no_name = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", -5))
    if error.errno == socket.EAI_AGAIN:
        message = "the resolver gave no answer for {} (temporary failure)"
        hint = "Check that the name servers in /etc/resolv.conf can be reached from this machine."
    elif wanted and error.errno in (*no_name, getattr(socket, "EAI_ADDRFAMILY", -9)):
        message = f"{{}} has no {wanted} address, or no such name exists"
        hint = f"Check the spelling, or leave out {family_option(options)} to use whatever addresses it has."
    elif error.errno in no_name:
        message = "the name {} was not found"
        hint = "Check the spelling, the search domain, and whether this machine asks the right name servers."
    else:
        return lookup_failed(host, error)
    return NetworkError("dns", message, hint, host)


def not_http(line: bytes) -> NetworkError:
    """Say what a server speaks that does not speak HTTP."""
    if line[:1] in (b"\x15", b"\x16") and line[1:2] == b"\x03":
        return protocol_error(
            "the server speaks TLS on this port, not plain HTTP", hint="Ask for https:// instead."
        )
    what, hint = "the answer does not start like HTTP", "Check that the port belongs to an HTTP server."
    if line.startswith(b"HTTP/"):
        what = "the answer's status line is not as HTTP has it"
        hint = "The fault is the server's, or that of what stands before it."
    return protocol_error(what + ": '{}'", foreign(line), hint=hint)


def broken_http2(words: Detail) -> NetworkError:
    """Say which rule a server broke, in words of ours or of h2's."""
    return protocol_error("the server broke the rules of HTTP/2: {}", words, hint=HTTP2_HINT)


def refused_tunnel(proxy: Proxy, response: Response, authorized: bool) -> NetworkError:
    """Say why an HTTP proxy did not open a tunnel; `authorized` tells that a credential was sent."""
    hint = PROXY_HINTS.get(response.status, "Look at the proxy's log, or ask whoever runs it.")
    if response.status == 407 and authorized:
        hint = "The proxy refused the user name and password: check them, and that it takes Basic."
    message = "the proxy {} refused the tunnel: {} {}"
    return NetworkError("proxy", message, hint, proxy.shown, response.status, foreign(response.reason))


class SocksRefusal(NetworkError):
    """A SOCKS proxy did not open the way; `reply` is its code (RFC 1928 section 6), None without one."""

    reply: int | None = None


def explain_socks(error: Any, proxy: Proxy) -> SocksRefusal:
    """Put an error of PySocks in words."""
    reply = re.match(r"0x([0-9a-f]{2}): (.*)", error.msg)
    message, details = "the proxy {} hung up during the negotiation", [proxy.shown]
    hint = "Check that the address belongs to a SOCKS5 proxy, and the proxy's log."
    code = None
    if reply:
        code = int(reply[1], 16)
        message = f"the proxy {{}} refused: {reply[2].lower()} (SOCKS reply {code})"
        hint = SOCKS_HINTS.get(code, "Look at the proxy's log.")
    elif type(error).__name__ == "SOCKS5AuthError":
        message = "the proxy {} refused the credentials, or the lack of them"
        hint = f"Check the user name and password in the proxy URL: {proxy.scheme}://user:password@host:port."
    elif "closed unexpectedly" not in error.msg:
        message = "the proxy {} does not answer like SOCKS5: {}"
        details.append(error.msg.lower())
    refusal = SocksRefusal("proxy", message, hint, *details)
    refusal.reply = code
    return refusal


def blame_proxy(proxy: Proxy, found: NetworkError, connected: bool) -> NetworkError:
    """Say that it was the way through a proxy that failed; `connected`: something answered there."""
    if found.kind == "proxy":
        return found
    hint = found.hint
    if connected and found.kind in ("network", "protocol"):
        hint = NO_PROXY_THERE
    message = "the proxy {} cannot be used: " + found.template
    return NetworkError("proxy", message, hint, proxy.shown, *found.details)


def mention_forwarder(proxy: Proxy, found: NetworkError) -> NetworkError:
    """Say that a forwarding proxy stands between us and the server that seems to be at fault."""
    hint = f"This was the proxy {proxy.shown}, or the server behind it. {found.hint}"
    return NetworkError(found.kind, found.template, hint, *found.details)


# ---------------------------------------------------------------------------------------------------------
# 12b. Alerts. The same for TLS: what OpenSSL's errors and verdicts mean.
# ---------------------------------------------------------------------------------------------------------
ALERTS = {  # of the other side, by what tls_reason() calls them
    "close_notify": "the server closed the TLS connection",
    "unexpected_message": "the server did not expect our message",
    "bad_record_mac": "a record of ours was damaged on the way",
    "handshake_failure": "the server accepted nothing we offered",
    "bad_certificate": "the server refused the lack of a client certificate",
    "illegal_parameter": "the server rejected a parameter",
    "unknown_ca": "the server does not trust our side",
    "access_denied": "the server denied access",
    "decode_error": "the server could not read our handshake",
    "decrypt_error": "the server could not verify our handshake",
    "protocol_version": "the server refused the TLS versions offered",
    "insufficient_security": "the server wants stronger ciphers",
    "internal_error": "the server broke off with an error of its own",
    "unrecognized_name": "the server does not know this name",
    "certificate_required": "the server requires a client certificate",
    "no_application_protocol": "the server refused our ALPN",
}
YOUNG_ALERTS = {
    0: "close_notify",
    115: "unknown_psk_identity",
    120: "no_application_protocol",
    121: "ech_required",
}
TLS_REASONS = {  # of our own side, by what tls_reason() calls them
    "WRONG_VERSION_NUMBER": "the server does not speak TLS on this port",
    "RECORD_LAYER_FAILURE": "a record of the server was damaged on the way",
    "UNSUPPORTED_PROTOCOL": "the server offers only TLS versions that are not allowed here",
    "NO_PROTOCOLS_AVAILABLE": "this machine's OpenSSL has no TLS version to offer",
    "NO_CIPHERS_AVAILABLE": "this machine's OpenSSL has no cipher to offer",
    "UNSAFE_LEGACY_RENEGOTIATION_DISABLED": "the server needs legacy TLS renegotiation, which is unsafe",
    "DH_KEY_TOO_SMALL": "the server's Diffie-Hellman key is too small to be safe",
}
# What OpenSSL before 3.2 says where younger ones say RECORD_LAYER_FAILURE, and what both say of no TLS.
BAD_RECORD = (
    "BAD_RECORD_TYPE BLOCK_CIPHER_PAD_IS_WRONG DATA_LENGTH_TOO_LONG DECRYPTION_FAILED "
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC ENCRYPTED_LENGTH_TOO_LONG HTTP_REQUEST HTTPS_PROXY_REQUEST "
    "INVALID_CCS_MESSAGE LENGTH_TOO_SHORT PACKET_LENGTH_TOO_LONG RECORD_LAYER_FAILURE WRONG_VERSION_NUMBER"
).split()
SHOWN_ALERTS = {  # the same where a client certificate was shown
    "bad_certificate": "the server refused the client certificate",
    "unsupported_certificate": "the server does not take a client certificate of this kind",
    "certificate_revoked": "the server says that the client certificate was revoked",
    "certificate_expired": "the server says that the client certificate expired",
    "certificate_unknown": "the server cannot accept the client certificate",
    "unknown_ca": "the server does not trust the CA of the client certificate",
    "access_denied": "the server denied access to the holder of the client certificate",
    "handshake_failure": "the server accepted nothing we offered, or not the client certificate",
}
SHOWN = {  # what became of a client certificate, and what to try where the server is not content with that
    "none given": "Give a client certificate with --cert PATH, and its key with --key PATH if that is apart.",
    "sent": (
        "Check the certificate given with --cert: its expiry, and whether the server trusts its CA; "
        "certificates between the two go into the same file, below its own."
    ),
    "not asked for": "The server did not ask for the certificate given with --cert: look at its settings.",
    "not sent": "The handshake ended before the certificate given with --cert could be shown.",
    "withheld": "What --cert names is shown to the first URL's origin alone: ask for this URL itself.",
    "unfit": "The server takes no key of that kind (--cert, --key): use a certificate with another.",
    "proxy": "It is the proxy that asks, and --cert is shown to no proxy: use one that asks for none.",
}
OLD_TLS = (
    "UNSUPPORTED_PROTOCOL UNSAFE_LEGACY_RENEGOTIATION_DISABLED DH_KEY_TOO_SMALL protocol_version "
    "handshake_failure"
).split()


ISSUER_VERDICTS = {
    18: "the certificate is self-signed",
    19: "the certificate's chain ends in a self-signed CA that is not trusted here",
}
VERDICTS = {  # of OpenSSL's on a chain, those that its versions word in their own ways, or in riddles
    7: "a signature in the certificate's chain is wrong",
    26: "the certificate is not meant for a server",
    66: "the certificate's key is too small to be safe",
    67: "the key of a CA in the certificate's chain is too small to be safe",
    68: "a signature in the certificate's chain is made with a hash too weak to be safe",
}


class TlsFailure(NamedTuple):
    """What is known of a handshake, or of a record after it, that failed."""

    error: ssl.SSLError
    chain: tuple[Certificate | None, ...]  # that the other side sent, its own first
    wanted: bool  # the other side asked for a certificate
    alert: int | None  # of the other side, where it had the last word
    spoken: bool  # a record of TLS came
    stray: bytes  # what came where a record had to begin, and cannot begin one
    established: bool
    place: tuple[str, int]
    trust: Trust
    on_socket: bool = False  # a unix socket, which has no port
    shown: str = "none given"  # what became of the client certificate, a key of SHOWN

    @property
    def certificate(self) -> Certificate | None:
        return next(iter(self.chain), None)

    @property
    def code(self) -> int:
        """Return OpenSSL's verdict on the certificate (X509_V_ERR_*), 0 when that is not what failed."""
        return getattr(self.error, "verify_code", 0)


def offer_of(url: Url, options: Options) -> str:
    """Return "here" where a URL may see the client certificate, else why not, a key of SHOWN."""
    if not options.identity:
        return "none given"
    return "here" if url.origin == options.request.url.origin else "withheld"


def fate_of(given: str, happened: Collection[str]) -> str:
    """Return what became of a client certificate, a key of SHOWN.

    `given` is "here" where one would have been sent, else why none would; `happened` holds what a
    HandshakeTap noted.
    """
    if "shown" in happened:
        return "sent"
    if given != "here":
        return given
    if "declined" in happened:
        return "unfit"
    return "not sent" if "wanted" in happened else "not asked for"


def has_trust_store() -> bool:
    """Tell whether this machine has any CA certificate where OpenSSL looks."""
    paths = ssl.get_default_verify_paths()
    try:
        return bool(paths.cafile) or bool(paths.capath and os.listdir(paths.capath))
    except OSError:
        return False


def trusted_ca_expired(trust: Trust) -> NetworkError:
    """Say that the certificate whose time is over is none that the server sent, but one that is trusted."""
    where, hint = "this machine's trust store", "Update the package ca-certificates of this machine."
    if trust.ca_bundle is not None:
        where, hint = "the bundle given with --cacert", "Renew it in the bundle."
    return NetworkError("tls", f"a CA certificate in {where} expired", f"{hint} {INSECURE_HINT}")


def culprit(own_time: datetime.datetime | None) -> str:
    """Say whose time is wrong, where it is not the server's own, which may not be known (None)."""
    return "a certificate further up the chain" if own_time else "the certificate"


def expiry_error(failure: TlsFailure) -> NetworkError:
    """Say which certificate's time is over (10), as their own times tell."""
    now, own = datetime.datetime.now(datetime.timezone.utc), failure.certificate
    ends = [(each, each and each.not_after) for each in failure.chain]
    hint = f"Renew it on the server. {INSECURE_HINT}"
    if own and own.not_after and own.not_after < now:
        return NetworkError("tls", "the certificate expired {} ago", hint, in_days(own.not_after, now))
    for each, end in ends[1:]:
        if each and end and end < now:
            message = "a certificate further up the chain expired {} ago: {}"
            return NetworkError("tls", message, hint, in_days(end, now), foreign(certificate_name(each)))
    if all(end for _, end in ends) and ends:
        return trusted_ca_expired(failure.trust)
    return NetworkError("tls", f"{culprit(own and own.not_after)} expired", hint)


def prematurity_error(failure: TlsFailure) -> NetworkError:
    """Say which certificate's time has not come (9)."""
    now, own = datetime.datetime.now(datetime.timezone.utc), failure.certificate
    hint = f"Check the clock of this machine, then the certificate on the server. {INSECURE_HINT}"
    if own and own.not_before and own.not_before > now:
        message = "the certificate is not valid yet for another {}"
        return NetworkError("tls", message, hint, in_days(own.not_before, now))
    for each in failure.chain[1:]:
        if each and each.not_before and each.not_before > now:
            message = "a certificate further up the chain is not valid yet: {}, from {} on"
            begin = f"{each.not_before:%Y-%m-%d}"
            return NetworkError("tls", message, hint, foreign(certificate_name(each)), begin)
    return NetworkError("tls", f"{culprit(own and own.not_before)} is not valid yet", hint)


def and_more(names: Sequence[str], most: int) -> str:
    """List the first of some names, and say how many more there are."""
    listed = ", ".join(names[:most])
    if len(names) > most:
        listed += f" and {len(names) - most} more"
    return listed


def name_error(failure: TlsFailure) -> NetworkError:
    """Say for which names a certificate was issued."""
    host, certificate = failure.place[0], failure.certificate
    names: tuple[str, ...] = ("another name",)
    if certificate and certificate.names is not None:
        names = certificate.names or (certificate.common_name or "no name at all",)
    hint = f"Ask for one of its names, or give the server a certificate for {host}. {INSECURE_HINT}"
    listed = clip(and_more(names, 5))
    return NetworkError("tls", "the certificate was issued for {}, not {}", hint, listed, host)


def issuer_error(failure: TlsFailure) -> NetworkError:
    """Say that no trusted CA stands behind a certificate, and how to name one."""
    issuer = ""
    if failure.certificate and failure.certificate.issuer:
        issuer = f" ({clip(failure.certificate.issuer)})"
    message = ISSUER_VERDICTS.get(failure.code, "the certificate's issuer is unknown{}")
    hint = "If it is an internal CA, pass its certificate with --cacert PATH; "
    hint += "if not, the server may not send its intermediate certificates."
    if failure.trust.ca_bundle is not None:
        hint = f"The bundle given with --cacert does not hold the CA that issued it{issuer}."
    elif not has_trust_store():
        message = "this machine has no CA certificates, so no certificate can be verified"
        hint = "Install the package ca-certificates, or pass a CA bundle with --cacert PATH."
    elif failure.code == 18:
        hint = "To trust it, pass it with --cacert PATH."
    return NetworkError("tls", message, f"{hint} {INSECURE_HINT}", issuer)


def explain_certificate(failure: TlsFailure) -> NetworkError:
    """Put OpenSSL's verdict on a certificate in plain words; the codes are X509_V_ERR_*."""
    explainers = {9: prematurity_error, 10: expiry_error, 62: name_error, 64: name_error}
    explainers.update(dict.fromkeys((18, 19, 20, 21), issuer_error))
    if failure.code in explainers:
        return explainers[failure.code](failure)
    words = f"the certificate was rejected: {failure.error.verify_message}"  # type: ignore[attr-defined]
    return NetworkError("tls", "{}", INSECURE_HINT, VERDICTS.get(failure.code, words))


def tls_reason(failure: TlsFailure) -> str:
    """Return why TLS failed, called the same whatever OpenSSL and Python are installed.

    An alert of the other side is in lower case, as RFC 8446 section 6 names it; what our side found is in
    upper case, as OpenSSL names it. Python leaves out the names that are younger than itself.
    """
    error = failure.error
    if isinstance(error, ssl.SSLZeroReturnError):
        return "close_notify"
    text = re.sub(r"^\[[^\]]*\]\s*|\s*\(_ssl\.c:[0-9]+\)$", "", str(error))
    reason = error.reason or text.upper().replace(" ", "_")
    alert = re.fullmatch(r"(?:SSLV3|TLSV1|TLSV13|SSL/TLS)_(?:ALERT_)?(\w+)", reason)
    if alert:
        return alert[1].lower()
    if reason.startswith("UNKNOWN_ERROR") and failure.alert is not None:
        return YOUNG_ALERTS.get(failure.alert, str(failure.alert))
    if failure.stray and not failure.spoken:
        return "WRONG_VERSION_NUMBER"
    if failure.stray or reason in BAD_RECORD or (reason == "INTERNAL_ERROR" and failure.established):
        return "RECORD_LAYER_FAILURE"
    return reason


def not_tls_hint(failure: TlsFailure) -> str:
    """Return one thing to try where something else than TLS answered."""
    if failure.stray != b"HTTP/":
        return "Check the port: what answers there speaks neither TLS nor HTTP."
    if failure.on_socket:
        return "Ask for http:// through this socket; for https://, also behind a redirect, name one with TLS."
    return "Check the port; for plain HTTP ask for http://{}:{}/.".format(*failure.place)


def tls_hint(reason: str, failure: TlsFailure) -> str:
    """Return one thing to try that is true for a TLS failure."""
    if reason == "WRONG_VERSION_NUMBER":
        return not_tls_hint(failure)
    if failure.shown == "sent" and reason in SHOWN_ALERTS:
        return SHOWN["sent"]
    if reason in ("NO_PROTOCOLS_AVAILABLE", "NO_CIPHERS_AVAILABLE"):
        return "Look at the protocols and ciphers that this machine's openssl.cnf allows."
    if reason in OLD_TLS and not failure.trust.insecure:
        return "The server may be an old one: -k also allows old TLS versions and weak ciphers."
    if reason in ("RECORD_LAYER_FAILURE", "bad_record_mac"):
        return "Something damages data on the way: check middleboxes, network cards and memory."
    if "certificate" in reason or reason == "unknown_ca":
        return SHOWN[failure.shown]
    if reason == "unrecognized_name":
        return "Check the host name, or the virtual hosts that the server has certificates for."
    return "Look at the server's TLS configuration and log."


def explain_tls(failure: TlsFailure) -> NetworkError:
    """Put a TLS failure in plain words, with a hint that fits it."""
    if isinstance(failure.error, ssl.SSLCertVerificationError):
        return explain_certificate(failure)
    reason = meaning = tls_reason(failure)
    if reason == "handshake_failure" and failure.wanted and failure.shown != "sent":
        meaning = "certificate_required"  # TLS 1.2 has no alert for it
    hint = tls_hint(meaning, failure)
    if reason == reason.lower():  # the name of the other side's alert stays beside what it means
        known = ALERTS
        if failure.shown == "sent":
            known = {**ALERTS, **SHOWN_ALERTS}
        words = known.get(meaning, "the server broke off")
        return NetworkError("tls", "{} (alert {})", hint, words, reason)
    if reason == "WRONG_VERSION_NUMBER" and failure.stray == b"HTTP/":
        place = "socket" if failure.on_socket else "port"
        return NetworkError("tls", "the server speaks plain HTTP on this {}, not TLS", hint, place)
    words = TLS_REASONS.get(reason) or f"TLS failed: {reason.lower().replace('_', ' ')}"
    if failure.stray:
        return NetworkError("tls", "{}: it began with '{}'", hint, words, foreign(failure.stray))
    return NetworkError("tls", "{}", hint, words)


# ---------------------------------------------------------------------------------------------------------
# 13. Lookup. Names to addresses.
# ---------------------------------------------------------------------------------------------------------
def scope_id(zone: str) -> int:
    """Return the number of a zone, 0 for none (RFC 4007 section 11); raises OSError."""
    if not zone:
        return 0
    return int(zone) if zone.isdigit() else socket.if_nametoindex(zone)


def literal_peer(literal: str, port: int) -> Peer:
    """Return the peer of an address literal; raises NetworkError for a zone that is no interface here."""
    if is_ip(literal, socket.AF_INET):
        return Peer(literal, socket.AF_INET, (literal, port))
    address, mark, zone = literal.partition("%")
    address = socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address))
    try:
        scope = scope_id(zone)
    except OSError:
        hint = "The zone after % is the name of a network interface: `ip link` lists them."
        raise NetworkError("dns", "{}: this machine has no interface '{}'", hint, literal, zone) from None
    return Peer(address + mark + zone, socket.AF_INET6, (address, port, 0, scope))


def is_glibc() -> bool:
    """Tell whether the C library is glibc: its resolver waits in its own way."""
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):
        return False


def resolver_waits(servers: int, timeout: int, attempts: int) -> tuple[int, ...]:
    """Return a resolver's time-outs (us), given its own (s), in the order in which they pass unanswered.

    glibc (resolv/res_send.c) asks one server after the other, each round anew, and shares the longer
    time-outs of the later ones among all; musl (src/network/res_msend.c) asks all at once, again and again.
    """
    if not is_glibc():
        return (timeout * 1_000_000 // attempts,) * attempts
    shares = [max(1, (timeout << index) // servers) for index in range(1, servers)]
    return tuple(seconds * 1_000_000 for seconds in (timeout, *shares)) * attempts


def resolver_option(options: str, name: str, default: int, most: int) -> int:
    """Return the number that an option of the resolver stands at, as glibc bounds it."""
    given = re.findall(rf"(?:^| |\t){name}:([0-9]{{1,9}})", options)
    if not given:
        return default
    return min(max(1, int(given[-1])), most)


def read_resolver(environ: Mapping[str, str]) -> Resolver | None:
    """Read whom this machine asks for names (resolv.conf(5)); None when that cannot be read."""
    try:
        text = decode(read_local("/etc/resolv.conf", MAX_RESOLVER_FILE, 1.0))
    except UsageError:
        return None
    servers = tuple(re.findall(r"^nameserver[ \t]+(\S+)", text, re.MULTILINE)[:3]) or ("127.0.0.1",)
    options = " ".join(
        [*re.findall(r"^options[ \t]+(.*)", text, re.MULTILINE), environ.get("RES_OPTIONS", "")]
    )
    timeout = resolver_option(options, "timeout", 5, 30)
    rounds = resolver_option(options, "attempts", 2, 5)
    return Resolver(servers, resolver_waits(len(servers), timeout, rounds))


def interleave(peers: list[Peer]) -> list[Peer]:
    """Alternate the families, keeping the resolver's order in each (RFC 8305 section 4)."""
    first = [peer for peer in peers if peer.family == peers[0].family]
    other = [peer for peer in peers if peer.family != peers[0].family]
    longest = max(len(first), len(other))
    return [peer for index in range(longest) for peer in first[index : index + 1] + other[index : index + 1]]


def look_up(host: str, port: int, family: int) -> list[Peer]:
    """Ask the system's resolver; raises OSError, socket.gaierror among them, and UnicodeError.

    The name goes as bytes: as text it would import the idna codec inside the dns phase. What the first lookup
    of a process has the C library load was loaded before the clock. Device "the resolver is warmed up":
    without it, dns is 1.89 ms off instead of 0.37.
    """
    found = socket.getaddrinfo(host.encode("ascii"), port, family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    peers = [Peer(str(address[0]), family, address) for family, _, _, _, address in found]
    return interleave(list(dict.fromkeys(peers)))


def needs_lookup(host: str, port: int, options: Options) -> bool:
    """Tell whether a resolver must be asked for a host."""
    return not is_ip(host) and (host, port) not in options.overrides


def resolve(host: str, port: int, options: Options) -> list[Peer]:
    """Return the addresses of a host; raises NetworkError of kind `dns`.

    A literal address and --resolve need no lookup.
    """
    literal = options.overrides.get((host, port))
    if not literal and is_ip(host):
        literal = host
    if literal and not is_ip(literal, options.family):
        family = FAMILY_NAMES[options.family]
        hint = f"It is an address of the other family: leave out {family_option(options)}."
        raise NetworkError("dns", "{} has no {} address", hint, host, family)
    if literal:
        return [literal_peer(literal, port)]
    try:
        return look_up(host, port, options.family)
    except socket.gaierror as error:
        raise explain_lookup(host, options, error) from None
    except (OSError, UnicodeError) as error:
        raise lookup_failed(host, error) from None


# ---------------------------------------------------------------------------------------------------------
# 14a. Streams. Bytes in both directions, with their time of arrival.
# ---------------------------------------------------------------------------------------------------------
GIVEN_UP = "given up: another was faster"  # the error of an attempt that lost the race
SO_TIMESTAMPNS = 35  # Linux; Python has no name for it
TIMESPEC = struct.Struct("@ll")
JIFFY = 5_000_000  # ns by which the kernel's count of ms may be off, at 250 ticks a second and above
FRESH = 200_000  # ns within which what came is noticed by a process that does nothing but wait for it
CLOCK_READINGS = 5  # of both clocks, which takes 0.1 us, until nothing came between
# Linux keeps what is sent so until the next send (MSG_MORE), and in a segment of its own (MSG_EOR).
HELD = socket.MSG_MORE | socket.MSG_EOR if sys.platform == "linux" else 0
Source = Callable[[], "bytes | memoryview"]


def new_buffer() -> mmap.mmap:
    """Return BUFFER bytes to read into, of which only those that are used take memory."""
    return mmap.mmap(-1, BUFFER, mmap.MAP_PRIVATE)


def silence() -> bytes:
    """Be the source of a stream that has nothing to send."""
    return b""


def once(data: bytes) -> Source:
    """Return a source that gives its data once."""
    pieces = iter([data])
    return lambda: next(pieces, b"")


UNHEARD = "".format  # takes whatever it is called with, and is no Python code that every record would run
NO_END = "the server went on and on while the connection was idle"


class Stream:
    """A stream of bytes in both directions. While it waits for input it sends what `source` offers.

    Sending and receiving are one operation, because a server may answer before the request is whole, and
    may not read on until its answer is read. `source` is asked whenever everything before has been
    handed to the kernel; empty means nothing to send for now. `began` and `arrived` are when the first and
    the last of the newest bytes reached this machine (perf_counter_ns); of a socket, which tells of the last
    byte alone, both are that. `truncated` tells that TLS ended without close_notify.
    """

    def __init__(self) -> None:
        self.source: Source = silence
        self.began = 0
        self.arrived = 0
        self.truncated = False

    @property
    def alpn(self) -> str | None:
        """Return the protocol that was agreed on (RFC 7301), None when none was."""
        return None

    def read_into(self, view: memoryview) -> int:
        """Receive into a buffer and return how much came, 0 at the end; raises OSError, ssl.SSLError."""
        raise NotImplementedError

    def begin(self, source: Source) -> int:
        """Send from `source` from now on, and what can leave at once without waiting; return the instant.

        That it could not be sent is told by the next read.
        """
        self.source = source
        return self.push()

    def hold(self) -> None:
        """Hand over all that `source` offers, to leave beside what `begin` sends next; raises OSError."""
        raise NotImplementedError

    def push(self) -> int:
        """Send what can leave at once without waiting; return the instant."""
        raise NotImplementedError

    def send_until_readable(self) -> None:
        """Send what `source` offers, until something can be read or there is nothing to send for now."""
        raise NotImplementedError

    def hurry(self, yes: bool = True) -> None:
        """Prefer large reads, while no instant inside them matters; or do so no longer."""

    def has_input(self) -> bool:
        """Tell whether a read would find something, the end too, without waiting."""
        raise NotImplementedError

    def read_waiting(self, view: memoryview) -> int | None:
        """Read what came while nothing was asked for: as `read_into`, None when there is nothing."""
        if not self.has_input():
            return None
        return self.read_into(view)


def instant_of(stamp: int) -> int:
    """Return an instant of the past that the clock on the wall told (ns) as perf_counter_ns tells it.

    Both clocks are read within a moment, or anew: what a process lost of its CPU in between would count.
    """
    for _ in range(CLOCK_READINGS):
        before = time.perf_counter_ns()
        wall = time.time_ns()
        if time.perf_counter_ns() - before < CLOCK_ERROR:
            break
    return before - max(0, wall - stamp)


class SocketStream(Stream):
    """A connected socket. Its time of arrival is the kernel's receive timestamp where it gives one, so
    that a process that was not running does not blame the server. `note` is told of a "gap filled".

    Without `timestamps` there is no room for anything beside the data: over a unix socket the other side
    could hand over open files.
    """

    def __init__(self, timestamps: bool = True) -> None:
        super().__init__()
        self.socket: socket.socket
        self._unsent: bytes | memoryview = b""
        self._send_error: OSError | None = None
        self._poller = select.poll()
        self._ancillary = socket.CMSG_SPACE(TIMESPEC.size) if timestamps else 0
        self._waited = False  # for what was read last, which had not come when it was asked for
        self._disorder = 0  # how many segments had come out of order by then
        self.note: Callable[[str, object, int], object] = UNHEARD

    def push(self) -> int:
        departed = time.perf_counter_ns()  # before the call: on loopback the other side reads during it
        if (self._unsent or self._refill()) and self._send():
            self._refill()  # asked at once, `source` knows when its last byte was sent
        return departed

    def read_into(self, view: memoryview) -> int:
        called, self._waited = time.perf_counter_ns(), False
        self.send_until_readable()
        count, ancillary = self._receive(view)
        noticed = arrived = time.perf_counter_ns()
        for _, kind, data in ancillary:
            if kind == SO_TIMESTAMPNS and len(data) == TIMESPEC.size:
                # Device "the kernel's time of arrival": without it, wait is 0.340 ms off instead of 0.084
                # while the CPUs are busy. It is of the clock on the wall, so what counts is how long ago it
                # was; never a time to come, for that clock may have been set back.
                seconds, nanoseconds = TIMESPEC.unpack(data)
                arrived = instant_of(seconds * 1_000_000_000 + nanoseconds)
        if noticed - arrived > FRESH or noticed - called > JIFFY:
            arrived = self._in_order(arrived, called, noticed)
        self.began = self.arrived = arrived
        if not count and self._send_error:
            raise self._send_error  # it says more than the end that came of it
        return count

    def _receive(self, view: memoryview) -> tuple[int, list[tuple[int, int, bytes]]]:
        """Receive, and keep in mind whether it had to be waited for."""
        try:
            return self.socket.recvmsg_into([view], self._ancillary, socket.MSG_DONTWAIT)[:2]
        except BlockingIOError:
            self._waited = True
        return self.socket.recvmsg_into([view], self._ancillary)[:2]

    def _in_order(self, arrived: int, called: int, noticed: int) -> int:
        """Return when bytes could be read whose last one `arrived`, asked for when `called`.

        The kernel's time is that of the newest segment's own arrival. Where one before it was lost or late,
        it waited in this machine for that one: it could be read when that came, or with the bytes before.
        """
        info = tcp_info(self.socket)
        disorder = counter_at(info, DISORDER) or 0
        grown, self._disorder = disorder - self._disorder, disorder
        whole = arrived
        if disorder and noticed - arrived > FRESH:  # else this process was late, nothing else
            whole = max(arrived, self.arrived)
            if self._waited:
                whole = max(whole, noticed - (counter_at(info, QUIET) or 0) * 1_000_000)
        if whole - arrived > JIFFY or (grown > 0 and self._waited and noticed - called > JIFFY):
            self.note("gap filled", None, whole)
        return whole

    def hold(self) -> None:
        # Device "the end of the handshake is held for the request": both leave at one instant, which ends
        # tls and begins wait. Without it, tls is 0.158 ms off instead of 0.012.
        while self._unsent or self._refill():
            if not self._send(HELD):
                self._readable(True)
        if self._send_error:
            raise self._send_error

    def send_until_readable(self) -> None:
        blocked = started = False
        while self._unsent or self._refill():
            # A piece at a time before looking: an upload goes on even while the server keeps talking.
            if started and self._readable(blocked):
                return
            blocked, started = not self._send(), True

    def _send(self, flags: int = 0) -> bool:
        """Send what the kernel takes now; True when that was all."""
        # Never blocking, on a socket that blocks for reading: a server may wait for its answer to be read.
        try:
            count = self.socket.send(self._unsent, socket.MSG_DONTWAIT | flags)
        except BlockingIOError:
            count = 0
        except OSError as error:
            if flags and error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                return self._send()  # unknown here, and nothing needs them
            # The answer may have come before the connection broke: reading decides.
            self._send_error, self._unsent, self.source = error, b"", silence
            return True
        self._unsent = memoryview(self._unsent)[count:]
        return not self._unsent

    def _refill(self) -> bool:
        self._unsent = self.source()
        return len(self._unsent) > 0

    def has_input(self) -> bool:
        return self._readable(False)

    def _readable(self, wait: bool) -> bool:
        """Tell whether input is there; with `wait`, first wait until it is, or until sending can go on."""
        wanted, patience = (select.POLLIN | select.POLLOUT, None) if wait else (select.POLLIN, 0)
        self._poller.register(self.socket, wanted)
        self._waited = self._waited or wait
        # An error or a hang-up counts as input: reading tells which it was.
        return any(event & ~select.POLLOUT for _, event in self._poller.poll(patience))


# ---------------------------------------------------------------------------------------------------------
# 14b. Streams over TLS. On any other stream, always through memory: the same code with and without a
#     proxy's TLS around it, and what ended the connection never hidden behind OpenSSL's own errors.
# ---------------------------------------------------------------------------------------------------------
# The interpreter's own, since CPython 3.8: what ssl.py puts around it makes enums of the numbers, in Python,
# at every record. Without it the certificate of a failed handshake is not shown.
MESSAGE_CALLBACK = getattr(ssl.SSLContext.__base__, "_msg_callback", None)
MAX_RECORD = 16384 + 2048  # bytes of what is encrypted in one (RFC 5246 section 6.2.3)


def overhear(context: ssl.SSLContext, listener: Callable[..., object]) -> None:
    """Call `listener` at each message of the TLS objects that are made, and were, while it was not None.

    Never set it back to None: an object keeps calling into the interpreter, which before 3.9.3 then keeps its
    lock for ever. UNHEARD ends it.
    """
    if MESSAGE_CALLBACK:
        MESSAGE_CALLBACK.__set__(context, listener)


# The random by which a ServerHello is a HelloRetryRequest: the SHA-256 of that word (RFC 8446 section 4.1.3).
HELLO_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


def each_certificate(message: bytes, version: int) -> Iterator[bytes]:
    """Give the certificates (DER) of a Certificate message, the sender's own first, until one is cut off.

    In TLS 1.3 a context stands before them, and extensions behind each (RFC 8446 section 4.4.2; RFC 5246
    section 7.4.2).
    """
    young = version == 0x0304
    at = 4 + 3
    if young:
        at += 1 + int.from_bytes(message[4:5], "big")
    while at + 3 < len(message):
        size = int.from_bytes(message[at : at + 3], "big")
        at += 3 + size
        if not size or at > len(message):
            return
        yield message[at - size : at]
        if young:
            at += 2 + int.from_bytes(message[at : at + 2], "big")


class HandshakeTap:
    """Watch the messages of a handshake for what OpenSSL forgets when it fails: the certificates, whether one
    of ours was asked for and sent, the last alert.

    A certificate may be asked for later too (RFC 8446 section 4.6.2). `note` is called with "wanted",
    "declined" and "shown", events of the log.
    """

    def __init__(self, tls: ssl.SSLObject) -> None:
        self._tls = tls
        self.happened: list[str] = []  # what was noted
        self.note: Callable[[str], object] = callable  # which does nothing
        self._certificates = (b"", 0)  # the message that held them, and the version of TLS
        self.requests = 0  # CertificateRequests that came
        self.hello_retry = False  # a HelloRetryRequest came
        self.alert: int | None = None  # the other side's, where it had the last word

    def __call__(
        self, tls: object, direction: str, version: int, content: int, kind: int, data: bytes
    ) -> None:
        """Take a message of a handshake, or an alert, as OpenSSL passes it on."""
        if tls is not self._tls:
            return  # the steps of a run share a context, and a callback belongs to a context
        # RFC 8446 sections 4, 5.1 and 6: content 21 is an alert (level, description), 22 a handshake message
        # (2 ServerHello, 11 Certificate, 13 CertificateRequest).
        if content == 21:
            # After a warning OpenSSL goes on: what ends the handshake then has a reason of its own.
            fatal = direction == "read" and len(data) == 2 and data[0] == 2
            self.alert = data[1] if fatal else None
        if direction != "read":
            if (content, kind) == (22, 11):
                self._note("shown" if any(each_certificate(data, version)) else "declined")
            return
        if (content, kind) == (22, 13):
            self.requests += 1
            self._note("wanted")
        if (content, kind) == (22, 2) and data[6:38] == HELLO_RETRY:
            self.hello_retry = True
        # Parsed later, by `certificates`: this runs in the timed region.
        if (content, kind) == (22, 11) and not self._certificates[0]:
            self._certificates = (bytes(data), version)

    def _note(self, what: str) -> None:
        self.happened.append(what)
        self.note(what)

    @property
    def certificates(self) -> tuple[bytes, ...]:
        """Return the certificates that came (DER), the other side's own first."""
        return tuple(der for _, der in zip(range(MAX_CHAIN), each_certificate(*self._certificates)))


def stop_logging_keys(context: ssl.SSLContext, error: OSError) -> bool:
    """Give up SSLKEYLOGFILE where it is what failed, on a full disk perhaps; the call may then be repeated.

    OpenSSL reports it as if the handshake or a read had failed, which go on without it.
    """
    if context.keylog_filename is None or (
        isinstance(error, ssl.SSLError) and "system lib" not in str(error)
    ):
        return False
    context.keylog_filename = None  # type: ignore[assignment]
    return True


class TlsStream(Stream):
    """TLS over another stream. Made before the clock starts, ClientHello and all."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__()
        self.established = False
        self.spoken = False  # a record of TLS came
        self.stray = b""  # what came where a record had to begin, and cannot begin one
        self._failure: OSError | None = None  # to be told by the next call
        self._precise = True  # every instant matters: records are read one by one
        self._rest = 0  # bytes of the record under way that are still to be read
        self._answered = 0  # when the handshake ended, if with a flight of the other side
        self._inner: Stream
        self._buffer = memoryview(new_buffer())
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        overhear(context, UNHEARD)  # an object that is made unheard stays so
        # The name as bytes, because a str would go through the idna codec.
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=server_name.encode("ascii")
        )
        self.tap = HandshakeTap(self._tls)
        try:
            self._try_handshake()
        except ssl.SSLError as error:
            self._failure = error  # nothing is left to offer: `shake_hands` says so

    @property
    def alpn(self) -> str | None:
        return self._tls.selected_alpn_protocol()

    def shake_hands(self, inner: Stream) -> None:
        """Shake hands over `inner`; what is left to send of that leaves with what `begin` sends.

        Raises ssl.SSLError, OSError, or EOFError when the other side hangs up.
        """
        self._inner = inner
        overhear(self._tls.context, self.tap)
        try:
            if self._failure:
                raise self._failure
            while not self._try_handshake():
                if not self._pull():
                    raise EOFError
        finally:
            # After the handshake it would only cost time, unless a certificate of ours may be asked for yet.
            if not self._tls.context.post_handshake_auth:
                overhear(self._tls.context, UNHEARD)
        # The last flight is the server's in TLS 1.2, whose arrival then is the end of the handshake. In TLS
        # 1.3 it is ours: it waits for the request, and the handshake ends when both leave.
        if not self._outgoing.pending:
            self._answered = self.arrived
        inner.hold()
        self.established = True

    def answered(self, departed: int) -> int:
        """Return when the handshake ended: its last flight came, or left with what follows it."""
        return self._answered or departed

    def agreed(self) -> Handshake:
        """Return what the handshake agreed on, and the certificates even of one that failed.

        OpenSSL forgets its part after an alert. The other side's own certificate is all that is known where
        they came in a way that was not understood: compressed (RFC 8879), or to an interpreter that is deaf.
        """
        certificates, again = self.tap.certificates, self.tap.hello_retry
        if not self.established:
            return Handshake(False, None, None, None, certificates, again)
        cipher = self._tls.cipher()
        own = self._tls.getpeercert(True)
        if own and certificates[:1] != (own,):
            certificates = (own,)
        return Handshake(True, self._tls.version(), cipher and cipher[0], self.alpn, certificates, again)

    def push(self) -> int:
        return self._inner.push()

    def hold(self) -> None:
        self._inner.hold()

    def send_until_readable(self) -> None:
        self._inner.send_until_readable()

    def hurry(self, yes: bool = True) -> None:
        self._precise = not yes
        self._inner.hurry(yes)

    def read_into(self, view: memoryview) -> int:
        count = self._decrypt(view)
        while count is None:
            if not self._pull():
                self.truncated = True
                return 0
            count = self._decrypt(view)
        return count

    def has_input(self) -> bool:
        return self._tls.pending() > 0 or self._inner.has_input()

    def read_waiting(self, view: memoryview) -> int | None:
        """A record may hold nothing but a ticket for another session (RFC 8446 section 4.6.1)."""
        count = self._decrypt(view)
        for _ in range(MAX_IDLE):
            if count is not None or not self._inner.has_input():
                return count
            if not self._pull():
                return 0
            count = self._decrypt(view)
            if count is None and self._tls.version() != "TLSv1.3":  # which has no tickets behind a handshake
                raise protocol_error("the server began another handshake while the connection was idle")
        raise protocol_error(NO_END)

    def ciphertext(self) -> bytes:
        """Return what this side has to send: the source of the stream below."""
        if self.established and not self._outgoing.pending:
            data = memoryview(self.source())
            while data:
                data = data[self._tls.write(data) :]  # one record of at most 16 KiB at a time
        return self._outgoing.read()

    def _try_handshake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except OSError as error:
            if not stop_logging_keys(self._tls.context, error):
                raise
            return self._try_handshake()
        return True

    def _decrypt(self, view: memoryview) -> int | None:
        """Take what is decrypted, 0 after close_notify, None when more must come first.

        One record at a time while instants matter, then as many as there are. What fails behind them is told
        by the next call: OpenSSL says it only once.
        """
        if self._failure:
            raise self._failure
        count, asked = 0, self.tap.requests
        try:
            while count < len(view):
                got: int = self._tls.read(len(view) - count, view[count:])  # type: ignore[assignment]
                count += got
                if not got or self._precise:
                    break
        except ssl.SSLWantReadError:
            return count or None
        except OSError as error:
            if stop_logging_keys(self._tls.context, error):
                return count or self._decrypt(view)
            if not count:
                raise
            self._failure = error
        finally:
            if self.tap.requests > asked:
                self._check_request()
        return count

    def _check_request(self) -> None:
        """Raise NetworkError if a client certificate was asked for over HTTP/2 (RFC 9113 section 9.2.3).

        The answer has not left this memory, and never will.
        """
        if self.alpn == "h2":
            raise broken_http2("it asked for a client certificate after the handshake")

    def _pull(self) -> bool:
        """Feed OpenSSL what comes next; False at the end. One record at a time while instants matter."""
        read = self._read_record
        if not self._precise:
            self._inner.send_until_readable()  # after the last byte of an upload instants matter again
        if not self._precise:
            read = self._read_records
        count = read()
        self._incoming.write(self._buffer[:count])
        return count > 0

    def _read_records(self) -> int:
        """Read what there is, up to the middle of a record perhaps, but never of its header."""
        count = self._inner.read_into(self._buffer[:-5])  # where a header is cut off, the rest has room
        self.began, self.arrived = self._inner.began, self._inner.arrived
        end = self._rest
        while end < count:
            while count < end + 5:
                got = self._inner.read_into(self._buffer[count : end + 5])
                if not got:
                    return count
                count += got
                self.arrived = self._inner.arrived
            end += 5 + self._length_at(end)
        self._rest = end - count
        return count

    def _length_at(self, at: int) -> int:
        return self._buffer[at + 3] << 8 | self._buffer[at + 4]

    def _read_record(self) -> int:
        """Read one TLS record: nothing in it can be read before all of it came (RFC 8446 section 5.2)."""
        # Not a byte more than the record: what comes behind it is to keep its own time of arrival. After
        # reading in bulk the rest of a record may be left, whose header was seen then.
        begun, count, wanted = self._rest > 0, 0, self._rest or 5
        while count < wanted:
            got = self._inner.read_into(self._buffer[count:wanted])
            if not got:
                break
            if not count:
                self.began = self._inner.began
            count += got
            self.arrived = self._inner.arrived
            if count == 5 and not begun:
                kind, major, length = self._buffer[0], self._buffer[1], self._length_at(0)
                if not (20 <= kind <= 24 and major == 3 and length <= MAX_RECORD):
                    self.stray = self.stray or bytes(self._buffer[:5])
                    break  # not TLS: OpenSSL says so, and waiting for the rest could take for ever
                self.spoken = True
                wanted += length
        self._rest = 0
        return count


# ---------------------------------------------------------------------------------------------------------
# 15. TLS contexts. One for each role that TLS plays in a run, so that nothing meant for the target is ever
#     offered to a proxy.
# ---------------------------------------------------------------------------------------------------------
def no_store() -> ssl.SSLContext | None:
    """Be the store of a start that has read none ahead."""
    return None


def build_trusting_context() -> ssl.SSLContext:
    """Make a client context that takes any certificate, protocol and cipher that OpenSSL still can."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # first: ssl.py refuses CERT_NONE while it is set
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.options |= 0x4 | 0x40000  # SSL_OP_LEGACY_SERVER_CONNECT, ALLOW_UNSAFE_LEGACY_RENEGOTIATION
    return context


def build_context(
    trust: Trust, environ: Mapping[str, str], seconds: float, take_store: Callable[[], ssl.SSLContext | None]
) -> ssl.SSLContext:
    """Make a client context; it costs 20 ms and more where the system's CA store is read.

    `seconds` is the patience with a bundle that is no plain file, `take_store` gives a context for which the
    store has been read ahead, with what OpenSSL made of SSL_CERT_FILE if that is set. Raises UsageError when
    that names a file that is no bundle.
    """
    if trust.insecure:
        return build_trusting_context()
    ahead, bundle = None, trust.ca_bundle
    if not bundle:
        if environ.get("SSL_CERT_FILE"):
            # OpenSSL passes over a file that it cannot read, and then trusts nobody: here that is said.
            bundle = read_ca_bundle(environ["SSL_CERT_FILE"], "SSL_CERT_FILE", seconds)
        ahead = take_store()
    if ahead and bundle and ahead.cert_store_stats()["x509"] != bundle.pem.count("BEGIN"):
        ahead = None  # one is broken or stands there twice: loading them anew tells which
    context = ahead or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # An intermediate or the server's own certificate in the bundle is enough, as it is for curl.
    context.verify_flags |= 0x80000  # X509_V_FLAG_PARTIAL_CHAIN
    if bundle and not ahead:
        load_ca_bundle(context, bundle)
        folder = ssl.get_default_verify_paths().capath
        if folder and not trust.ca_bundle:
            context.load_verify_locations(capath=folder)
    elif not ahead:
        context.load_default_certs()
    return context


def log_keys(context: ssl.SSLContext, path: str) -> str | None:
    """Have session keys written where SSLKEYLOGFILE says; return the reason why that cannot be done."""
    try:
        # Opened here first: OpenSSL would wait for ever for the reader of a pipe.
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600))
        context.keylog_filename = path
    except (OSError, ValueError) as error:
        return reason_of(error)
    return None


NO_THREAD_NOW = (RuntimeError, MemoryError, OSError)
ROOM_TO_START = 4 << 20  # bytes; CPython takes memory from the system by the megabyte


def start_thread(work: Callable[[], None], patience: float = 0.0) -> None:
    """Start a thread that nobody waits for; raises one of NO_THREAD_NOW if none can be had within `patience`.

    One that finds no memory for its first call dies without a sign, for which threading.Thread would wait for
    ever: there is room for it, held until it exists.
    """
    give_up = time.monotonic() + patience
    while True:
        try:
            with mmap.mmap(-1, ROOM_TO_START, mmap.MAP_PRIVATE):
                _thread.start_new_thread(work, ())
            return
        except NO_THREAD_NOW:
            if time.monotonic() >= give_up:
                raise
        time.sleep(0.01)


class PendingContext:
    """A TLS context that is made in a thread: while OpenSSL reads the CA store, Python can import what else
    is needed (3.9 keeps the interpreter's lock for that, 3.11 does not).
    """

    def __init__(
        self, options: Options, identity: Identity | None, take_store: Callable[[], ssl.SSLContext | None]
    ) -> None:
        self._options = options
        self._identity = identity
        self._take_store = take_store
        self._key_log = options.environ.get("SSLKEYLOGFILE")
        self._unlogged: str | None = None
        self._context: ssl.SSLContext | None = None
        self._error: BaseException | None = None
        self._made = threading.Event()
        try:
            start_thread(self._make)
        except NO_THREAD_NOW:
            self._make()  # here and now: slower, that is all

    def _make(self) -> None:
        options = self._options
        trust = Trust(options.insecure, options.ca_bundle)
        try:
            context = build_context(trust, options.environ, options.max_time, self._take_store)
            if self._identity:
                load_identity(context, self._identity, options.environ)
                context.post_handshake_auth = True
            if self._key_log:
                self._unlogged = log_keys(context, self._key_log)
            self._context = context
        except BaseException as error:
            self._error = error  # raised where the context is asked for
        self._made.set()

    def get(self) -> ssl.SSLContext:
        """Wait for the context; raises UsageError when SSL_CERT_FILE or the client certificate is broken."""
        self._made.wait()
        if self._error:
            raise self._error
        assert self._context
        return self._context

    @property
    def warning(self) -> str | None:
        """Say that the session keys were not written, None when they were or need not be."""
        if not self._key_log or not self._context or self._context.keylog_filename:
            return None
        reason = self._unlogged or "the disk may be full"
        return f"SSLKEYLOGFILE '{self._key_log}' cannot be written: {reason}"


def target_role(url: Url, options: Options) -> str:
    """Return the role of TLS with a target: the client certificate is for the first URL's origin alone."""
    return "tls with certificate" if offer_of(url, options) == "here" else "tls"


class TlsContexts:
    """The contexts of a run by role: "tls" to the target, "tls with certificate" where that may see who asks,
    "proxy tls". Each is made once, when first asked for, and never asked for by another role.
    """

    def __init__(self, options: Options, take_store: Callable[[], ssl.SSLContext | None] = no_store) -> None:
        self._options = options
        self._take_store = take_store
        self._pending: dict[str, PendingContext] = {}

    def start(self, role: str) -> PendingContext:
        if role not in self._pending:
            identity = None
            if role == "tls with certificate":
                identity = self._options.identity
            self._pending[role] = PendingContext(self._options, identity, self._take_store)
        return self._pending[role]

    def get(self, role: str, protocols: Sequence[str]) -> ssl.SSLContext:
        """Return the context of a role, which offers these protocols (ALPN); raises UsageError."""
        context = self.start(role).get()
        # Set anew for each step: TLS objects that exist keep what they were made with.
        context.set_alpn_protocols(list(protocols))
        return context

    @property
    def warnings(self) -> list[str]:
        found = [pending.warning for pending in self._pending.values() if pending.warning]
        return list(dict.fromkeys(found))


# ---------------------------------------------------------------------------------------------------------
# 16a. Messages. HTTP/1.1: requests are written by http.client; responses are read here, because its reader
#     takes 103 for the answer, truncated bodies for whole ones, conflicting lengths and "+5" for a length,
#     and stamps nothing before the header section was parsed.
# ---------------------------------------------------------------------------------------------------------
BLANKED = bytes.maketrans(b"\r\0", b"  ")


class Reader:
    """Take lines and lengths from a stream, through one buffer."""

    def __init__(self) -> None:
        self.stream = Stream()
        self._buffer = new_buffer()
        self._view = memoryview(self._buffer)
        self._at = self._end = 0

    def fill(self, most: int = BUFFER) -> bool:
        """Read when nothing is left; False at the end of the stream."""
        if self._at == self._end:
            self._at, self._end = 0, self.stream.read_into(self._view[:most])
        return self._end > 0

    @property
    def left(self) -> int:
        return self._end - self._at

    def fill_from_waiting(self) -> bool:
        """Take what came while nothing was asked for, if anything did; raises EOFError at the end."""
        if self.left:
            return True
        count = self.stream.read_waiting(self._view)
        if count == 0:
            raise EOFError
        self._at, self._end = 0, count or 0
        return count is not None

    def peek(self, count: int) -> bytes:
        """Return the next bytes, as far as they have been read, without taking them."""
        return bytes(self._view[self._at : min(self._at + count, self._end)])

    @property
    def began(self) -> int:
        return self.stream.began

    @property
    def arrived(self) -> int:
        return self.stream.arrived

    def line(self, most: int) -> bytes:
        """Return the next line without its ending.

        Raises NetworkError when it is longer than `most`, EOFError with what there was of it at the end.
        """
        parts = []
        size = 0
        while self.fill():
            stop = self._buffer.find(b"\n", self._at, self._end)
            whole = stop >= 0
            if not whole:
                stop = self._end
            parts.append(bytes(self._view[self._at : stop]))
            size += len(parts[-1])
            self._at = stop + whole
            if size > most:
                raise protocol_error(f"a line of the response is longer than {most} bytes")
            if whole:
                return b"".join(parts).removesuffix(b"\r")
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
    connection = http_client.HTTPConnection("unused")
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


def parse_status(text: bytes) -> int | None:
    """Read a status code: three digits, 100 or more (RFC 9110 section 15)."""
    if not re.fullmatch(b"[1-9][0-9]{2}", text):
        return None
    return int(text)


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
        raise protocol_error(HUNG_UP_IN_HEADER, hint=CLOSED_EARLY) from None


def field_value(lines: Iterable[bytes]) -> bytes:
    """Return the value of a field that may be folded; CR and NUL are blanks (RFC 9110 section 5.5)."""
    return b" ".join(lines).translate(BLANKED).strip(b" \t")


def read_headers(reader: Reader) -> tuple[list[Header], int]:
    """Read a header or trailer section up to its blank line (RFC 9112 section 5) and return its size too."""
    fields: list[tuple[str, list[bytes]]] = []
    size = 0
    for _ in range(MAX_HEADER_LINES + 1):
        line = reader.line(MAX_HEADER_BYTES - size)
        size += len(line) + 2
        if size > MAX_HEADER_BYTES:
            raise protocol_error(f"the header section is larger than {MAX_HEADER_BYTES >> 20} MiB")
        if not line:
            return [(name, field_value(lines)) for name, lines in fields], size
        if line[:1] in b" \t" and fields:  # obs-fold (section 5.2)
            fields[-1][1].append(line.strip(b" \t"))
            continue
        field, colon, content = line.partition(b":")
        field = field.rstrip(b" \t")
        if not colon or not is_token(field):
            raise protocol_error("a header line of the response is malformed: '{}'", foreign(line))
        fields.append((field.decode("ascii"), [content.strip(b" \t")]))
    raise protocol_error(f"the response has more than {MAX_HEADER_LINES} header lines")


def read_head(reader: Reader, log: Log) -> Response:
    """Read up to the final response's header section; 1xx responses are only noted (RFC 9110 section 15.2).

    Notes the first byte of the final response too, known once its status line was read. Raises EOFError
    when nothing came at all.
    """
    for _ in range(MAX_INTERIM + 1):
        # One byte alone, because the kernel tells when the last of what was read came, not the first.
        if not reader.left and not reader.fill(1):
            raise EOFError
        first_byte = reader.began
        line = read_status_line(reader)
        version, status, reason = parse_status_line(line)
        if status >= 200:
            log.add("first byte", at=first_byte)
            log.count("answered")
        try:
            headers, size = read_headers(reader)
        except EOFError:
            raise protocol_error(HUNG_UP_IN_HEADER, hint=CLOSED_EARLY) from None
        if status == 101:
            raise protocol_error("the server switched protocols (101) without being asked to")
        if status >= 200:
            return Response(status, reason, version, tuple(headers), len(line) + 2 + size)
        log.add("interim", status)
    raise protocol_error(TOO_MANY_INTERIM)


def values_of(headers: Iterable[Header], name: str) -> list[bytes]:
    """Return the values of all lines of a field, whose name is given in lower case."""
    return [value for key, value in headers if key.lower() == name]


def connection_tokens(headers: Iterable[Header]) -> set[str]:
    """Return what Connection lists, in lower case (RFC 9110 section 7.6.1)."""
    values = values_of(headers, "connection")
    return {token.strip().lower().decode("latin-1") for value in values for token in value.split(b",")}


def announced_lengths(headers: Iterable[Header]) -> set[int | None]:
    """Return the different lengths that Content-Length names, None for what is no length.

    One may be said several times, in a list too, and with leading zeros (RFC 9110 section 8.6).
    """
    parts = {part for value in values_of(headers, "content-length") for part in value.split(b",")}
    return {parse_length(part.strip(b" \t"), 10) for part in parts}


def content_length(headers: Sequence[Header]) -> int | None:
    """Return the announced length; raises NetworkError when it is malformed or contradicts itself."""
    lengths = announced_lengths(headers)
    shown = foreign(b", ".join(values_of(headers, "content-length")))
    if None in lengths:
        raise protocol_error("the response's Content-Length is not a length: '{}'", shown)
    if len(lengths) > 1:
        raise protocol_error("the response has conflicting Content-Length values: {}", shown)
    return next(iter(lengths), None)


# ---------------------------------------------------------------------------------------------------------
# 16b. Bodies. How long they are (RFC 9112 section 6), and whether the connection lives on after them.
# ---------------------------------------------------------------------------------------------------------
def has_body(method: str, status: int) -> bool:
    """Tell whether a body follows, whatever the header fields say (RFC 9112 section 6.3)."""
    return method != "HEAD" and status not in (204, 304)


def ends_connection(asked: Iterable[Header], method: str, response: Response) -> str | None:
    """Say why a connection takes no request after this one, None when it does (RFC 9112 section 9.3)."""
    if "close" in connection_tokens(response.headers):
        return "the server said Connection: close"
    if "close" in connection_tokens(asked):
        return "the request said Connection: close"
    if response.http_version != "HTTP/1.1":
        return f"the server speaks {response.http_version}, which keeps no connection"
    chunked = values_of(response.headers, "transfer-encoding")
    if has_body(method, response.status) and not chunked and content_length(response.headers) is None:
        return "the response had no length: the end of the connection was its end"
    return None


def count_body(reader: Reader, length: int, log: Log) -> None:
    """Pass over so many bytes of a body; raises EOFError when the stream ends before."""
    left = length
    while left:
        count = reader.skip(left)
        if not count:
            raise EOFError
        left -= count
        log.received += count


def read_body_by_length(reader: Reader, length: int, log: Log) -> None:
    try:
        count_body(reader, length, log)
    except EOFError:
        message = f"the body ended after {log.received} of {length} bytes"
        raise protocol_error(message, hint=CLOSED_EARLY) from None


def read_body_in_chunks(reader: Reader, log: Log) -> None:
    """Pass over a chunked body and its trailers (RFC 9112 section 7.1)."""
    while True:
        line = reader.line(65536)
        size = line.partition(b";")[0].strip(b" \t")
        length = parse_length(size.lstrip(b"0") or size[:1], 16)
        if length is None:
            raise protocol_error("a chunk size is no hexadecimal number: '{}'", foreign(size))
        if not length:
            read_headers(reader)
            return
        count_body(reader, length, log)
        ending = reader.exactly(1)
        if ending == b"\r":
            ending = reader.exactly(1)
        if ending != b"\n":
            raise protocol_error("a chunk is longer than its size says")


def read_body_to_end(reader: Reader, log: Log) -> None:
    """Pass over all that comes; over TLS only close_notify tells that it was all (RFC 9112 section 9.8)."""
    count = reader.skip(BUFFER)
    while count:
        log.received += count
        count = reader.skip(BUFFER)
    if reader.stream.truncated:
        raise protocol_error(
            f"the connection ended after {log.received} bytes without close_notify: the body may be cut",
            hint=CLOSED_EARLY,
        )


def read_response_body(reader: Reader, method: str, response: Response, log: Log) -> None:
    """Pass over the body, framed as RFC 9112 section 6.3 says; raises NetworkError when it is not whole."""
    codings = b",".join(values_of(response.headers, "transfer-encoding")).lower()
    length = content_length(response.headers)
    if not has_body(method, response.status):
        return
    last = codings.rpartition(b",")[2].strip()
    try:
        if last == b"chunked":
            read_body_in_chunks(reader, log)
        elif length is not None and last in (b"", b"identity"):
            read_body_by_length(reader, length, log)
        else:
            read_body_to_end(reader, log)
    except EOFError:
        message = f"the chunked body ended after {log.received} bytes, without its last chunk"
        raise protocol_error(message, hint=CLOSED_EARLY) from None


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
    forwarder = route.forwarder(request.url)
    if forwarder:
        headers += proxy_authorization(request, forwarder)
    return tuple(headers)


def tunnel_head(request: Request, proxy: Proxy) -> bytes:
    """Return the CONNECT request; its target always names the port."""
    authority = request.url.authority
    if request.url.port == DEFAULT_PORTS[request.url.scheme]:
        authority += f":{request.url.port}"
    agent = [item for item in complete_headers(request) if item[0].lower() == "user-agent"]
    headers = [("Host", authority.encode("ascii")), *agent, *proxy_authorization(request, proxy)]
    return request_head("CONNECT", authority, headers)


# ---------------------------------------------------------------------------------------------------------
# 16c. Claims. What a response says of itself: its server's times (Server-Timing, W3C) and caches (RFC 9211).
# ---------------------------------------------------------------------------------------------------------
# Strings (RFC 9110 section 5.6.4) may hold commas and semicolons; one without end ends with the text.
INSIDE = r'(?:[^"\\]+|\\.)*'
MEMBER, PARAMETER = (rf'(?s)(?:[^"{mark}]+|"{INSIDE}"?)+' for mark in ",;")
BLANK = " \t"


def parameter_value(text: str) -> str:
    """Return the value of a parameter: a string without its quotes and escapes, else the text as it is."""
    string = re.match(rf'(?s)"({INSIDE})', text)
    if not string:
        return text
    return re.sub(r"(?s)\\(.)", r"\1", string[1])


def read_list(value: bytes, most: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Give each member of a list with its parameters, by name in lower case; the first of a name counts.

    A member that does not end within the first `most` bytes is left out.
    """
    members = [member.strip(BLANK) for member in re.findall(MEMBER, decode(value[:most]))]
    if len(value) > most:
        del members[-1:]
    for member in members:
        if member[:1] in ("", ";"):
            continue
        name, *rest = re.findall(PARAMETER, member)
        parameters: dict[str, str] = {}
        for key, _, found in (parameter.partition("=") for parameter in rest):
            parameters.setdefault(key.strip(BLANK).lower(), parameter_value(found.strip(BLANK)))
        yield name.rstrip(BLANK), parameters


def read_duration(text: str) -> float | None:
    """Read a finite number from 0 in ASCII; None for anything else."""
    if not re.fullmatch(r"\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", text):
        return None
    value = float(text)
    if value == float("inf"):
        return None
    return value


def read_metrics(headers: Iterable[Header]) -> Iterator[Metric]:
    """Give the metrics of all lines of Server-Timing, as far as they are read."""
    left = MAX_LIST
    for value in values_of(headers, "server-timing"):
        for name, parameters in read_list(value, left):
            yield Metric(name, read_duration(parameters.get("dur", "")), parameters.get("desc") or None)
        left = max(0, left - len(value))


def cache_word(text: str) -> str | None:
    """Return the word that a text begins with, in lower case, without Squid's TCP_."""
    found = re.match(r"(?:tcp_)?([a-z][a-z0-9_-]{0,31})(?![a-z0-9_-])", text.lower(), re.ASCII)
    if not found:
        return None
    return found[1]


def standard_status(lines: Sequence[bytes]) -> str | None:
    """Return what the last member of Cache-Status says: the cache that is nearest (RFC 9211 section 2)."""
    if not lines or len(lines[-1]) > MAX_LIST:
        return None
    members = list(read_list(lines[-1], MAX_LIST))
    if not members:
        return None
    _, parameters = members[-1]
    if parameters.get("hit", "?0") != "?0":
        return "hit"
    word = cache_word(parameters.get("fwd", ""))
    if word and word.endswith("miss"):
        return "miss"
    return word


def other_status(lines: Sequence[bytes]) -> str | None:
    """Return the first word of the last member: each cache writes behind those that are farther away."""
    if not lines:
        return None
    return cache_word(decode(lines[-1]).rpartition(",")[2].lstrip(BLANK))


# The CDN is nearer than whatever wrote X-Cache behind it, perhaps long ago, into what the CDN keeps.
CACHE_FIELDS: dict[str, Callable[[Sequence[bytes]], str | None]] = {
    "Cache-Status": standard_status,
    "CF-Cache-Status": other_status,
    "X-Cache": other_status,
}


def read_cache(headers: Sequence[Header]) -> CacheUse | None:
    """Return what a response says of caches, None when it speaks of none."""
    lines = {
        name: [value for value in values_of(headers, name.lower()) if value.strip()]
        for name in (*CACHE_FIELDS, "Age", "Via")
    }
    # RFC 9111 section 5.1: the first value counts.
    age = parse_length(b",".join(lines["Age"]).partition(b",")[0].strip(), 10)
    if age is None:
        lines["Age"] = []
    statuses = {name: read(lines[name]) for name, read in CACHE_FIELDS.items()}
    spoke = [name for name in statuses if statuses[name]] or [name for name in lines if lines[name]]
    if not spoke:
        return None
    return CacheUse(statuses.get(spoke[0]), age, ", ".join(map(decode, lines["Via"])) or None, spoke[0])


# ---------------------------------------------------------------------------------------------------------
# 17. Exchanges. One request and its response over a stream that stands; here the base and HTTP/1.1.
# ---------------------------------------------------------------------------------------------------------
class Setup(NamedTuple):
    """What every hop and exchange is made from. `protocols` are offered to the target (ALPN)."""

    request: Request
    route: Route
    options: Options
    contexts: TlsContexts
    protocols: tuple[str, ...]
    log: Log


UNASKED = "the server sent something that it was not asked for"


class Stage:
    """A part of the way, hop or exchange, that can fail and then says what its failure means.

    What it finds out goes to its log, from which all that is reported is read.
    """

    def __init__(self, setup: Setup) -> None:
        self.log = setup.log
        self.request = setup.request
        self.proxy = setup.route.proxy

    def source(self) -> bytes | memoryview:
        """Return what this stage has to send next, empty when nothing: asked by the stream below it."""
        return b""

    def explain(self, error: Exception, history: History) -> NetworkError:
        """Put an error that was raised in this stage in words."""
        raise NotImplementedError

    def blame(self, found: NetworkError, history: History) -> NetworkError:
        """Say who else may be at fault, where somebody stands in between."""
        return found

    def stuck(self, limit: str, history: History) -> NetworkError:
        """Say what this stage was waiting for when the time of -m was over."""
        raise NotImplementedError


class Exchange(Stage):
    """One request and its response. Made before the clock starts; `headers` are those that go out.

    `head_bytes` is the size of request line and header section, where it has one.
    """

    head_bytes: int | None = None
    request_bytes: int  # body included; over HTTP/2 before its fields are packed

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.headers = headers_to_send(setup.request, setup.route)
        self._forwarder = setup.route.forwarder(setup.request.url)
        self._secrets = setup.options.secrets
        self._reader = Reader()
        self._response: Response | None = None
        self._sent = False

    def again(self, setup: Setup) -> Exchange:
        """Return an exchange on the same connection, after this one."""
        raise NotImplementedError

    def last_word(self) -> str | None:
        """Say why the connection takes no request after this exchange, None when it does."""
        raise NotImplementedError

    def take_notice(self) -> str | None:
        """Take in what came on the connection since; say why it takes no more requests, None when it does.

        Nothing is sent meanwhile: not even what the next request has queued already.
        """
        self._reader.stream.source = silence
        try:
            return self._read_waiting()
        except EOFError:
            return "the server closed the connection while it was idle"
        except BlockingIOError:
            return "something came while the connection was idle, and not all of it"
        except ssl.SSLError:
            return "the server broke TLS off while the connection was idle"
        except OSError as error:
            return f"the connection broke while it was idle: {words_of_system(error)}"
        except NetworkError as error:
            return clip(render(error, self._secrets))

    def _read_waiting(self) -> str | None:
        if self._reader.fill_from_waiting():
            return UNASKED
        return None

    def run(self, stream: Stream) -> None:
        """Read the response while the rest of the request is sent.

        Raises NetworkError, OSError, and ssl.SSLError.
        """
        raise NotImplementedError

    def blame(self, found: NetworkError, history: History) -> NetworkError:
        if self._forwarder is None:
            return found
        return mention_forwarder(self._forwarder, found)

    def explain(self, error: Exception, history: History) -> NetworkError:
        broken = "waiting in the clear"
        if history.phase == "xfer" and history.detail("response"):
            broken = "body"
        elif history.phase == "xfer":  # from the first byte on
            broken = "header"
        elif history.instant("sent") is None and self.request.body:
            broken = "upload"
        elif history.instant("sent") is None:
            broken = "sending in the clear"
        if self.request.url.secure:
            broken = broken.replace("in the clear", "over TLS")
        message, hint = BROKEN[broken]
        return NetworkError("network", message, hint, words_of_system(error), history.received)

    def stuck(self, limit: str, history: History) -> NetworkError:
        interim = history.all("interim")
        if history.phase == "xfer":
            found = timed_out("body", limit, self._progress(history))
        elif history.instant("sent") is None:
            found = timed_out("upload", limit)
        elif interim:
            found = timed_out("final answer", ", ".join(str(event.detail) for event in interim[-3:]), limit)
        else:
            found = timed_out("answer", limit)
        return self.blame(found, history)

    def _progress(self, history: History) -> str:
        """Say how much of the response came."""
        response = history.detail("response")
        if not response:
            return "not even its header is whole"
        lengths = announced_lengths(response.headers) - {None}
        if values_of(response.headers, "transfer-encoding"):
            lengths.clear()  # it holds in its place (RFC 9112 section 6.3)
        whole = "".join(f" of {length}" for length in lengths)
        return f"{history.received}{whole} bytes of the body came"

    def _note_sent(self) -> None:
        """Note, the first time, that nothing is left to send."""
        if not self._sent:
            self._sent = True
            self.log.add("sent")


KEPT_HINT = (
    "That connection was kept from an earlier run; the server may have closed it in that moment. Nothing is "
    "sent twice: the next run connects anew. Compare the server's idle time-out with --interval."
)


class Http1Exchange(Exchange):
    """HTTP/1.1 (RFC 9112)."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        request = setup.request
        target = request.url.target
        if self._forwarder:  # absolute form (section 3.2.2)
            target = f"http://{request.url.authority}{target}"
        head = request_head(request.method, target, self.headers)
        self.head_bytes = len(head)
        self.request_bytes = len(head) + len(request.data)
        body = memoryview(request.data)  # views of it: it is never there twice
        pieces = [body[at : at + BUFFER] for at in range(0, len(body), BUFFER)]
        self._pieces: Iterator[bytes | memoryview] = iter([head, *pieces])

    def again(self, setup: Setup) -> Exchange:
        following = Http1Exchange(setup)
        following._reader = self._reader
        return following

    def last_word(self) -> str | None:
        if self._response is None or not self._sent:
            return "the request before was not finished"
        return ends_connection(self.headers, self.request.method, self._response)

    def source(self) -> bytes | memoryview:
        piece = next(self._pieces, b"")
        if not piece:
            self._note_sent()
        return piece

    def run(self, stream: Stream) -> None:
        self._reader.stream = stream
        try:
            response = read_head(self._reader, self.log)
        except EOFError:
            raise protocol_error("the server hung up without an answer", hint=CLOSED_EARLY) from None
        if self.log.history().stale:
            raise protocol_error("the answer came before the request: it is none to this one", hint=KEPT_HINT)
        self._response = response
        self.log.add("response", response)
        stream.hurry()  # of the instants in the body only the last one counts, which no large read delays
        if response.status >= 300:
            stream.source = silence  # the rest of the request is not wanted (RFC 9112 section 9.5)
        read_response_body(self._reader, self.request.method, response, self.log)
        self.log.add("done", at=self._reader.arrived)


# ---------------------------------------------------------------------------------------------------------
# 18a. HTTP/2, connections. h2 speaks the protocol (RFC 9113); DATA and its credit are read and written here,
#      since servers send two WINDOW_UPDATE for every few KiB, and h2 takes several times as long for each of
#      these frames. GOAWAY and RST_STREAM too: h2 would refuse what may follow them.
# ---------------------------------------------------------------------------------------------------------
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0x0, 0x1, 0x3, 0x4, 0x7, 0x8, 0x9
END_STREAM = ACK = 0x1
END_HEADERS, PADDED = 0x4, 0x8
MAX_FRAME = 16384  # the least that may be allowed, and what is unless SETTINGS say more (section 4.2)
INITIAL_WINDOW, MAX_WINDOW = 65535, (1 << 31) - 1  # RFC 9113 section 6.9
HTTP2_ERRORS = (  # by their numbers, from 0 on (RFC 9113 section 7)
    "NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED "
    "FRAME_SIZE_ERROR REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM "
    "INADEQUATE_SECURITY HTTP_1_1_REQUIRED"
).split()


def http2_error(payload: bytes) -> str:
    """Return the name of an error code of HTTP/2."""
    code = int.from_bytes(payload, "big")
    return HTTP2_ERRORS[code] if code < len(HTTP2_ERRORS) else f"error {code}"


def fit_for_http2(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Leave out what concerns one connection alone (RFC 9113 section 8.2.2)."""
    left_out = CONNECTION_HEADERS | connection_tokens(headers) - {"host"}
    return tuple(
        (name, value)
        for name, value in headers
        # The one value that TE may have there.
        if name.lower() not in left_out or (name.lower() == "te" and value.lower() == b"trailers")
    )


def http2_headers(request: Request, headers: Sequence[Header]) -> list[tuple[bytes, bytes]]:
    """Return a request's fields: pseudo-headers first, names in lower case (RFC 9113 section 8)."""
    # A Host of the user's own goes as :authority, which stands in its place (section 8.3.1).
    hosts = values_of(headers, "host") or [request.url.authority.encode("ascii")]
    pseudo = [
        (b":method", request.method.encode("ascii")),
        (b":scheme", request.url.scheme.encode("ascii")),
        (b":authority", hosts[0]),
        (b":path", request.url.target.encode("ascii")),
    ]
    return pseudo + [
        (name.lower().encode("ascii"), value) for name, value in headers if name.lower() != "host"
    ]


def parse_http2_status(fields: Iterable[tuple[bytes, bytes]]) -> int:
    """Read :status; raises NetworkError without a valid one, and for 101, which HTTP/2 has not."""
    values = [value for name, value in fields if name == b":status"]
    status = None
    if len(values) == 1:
        status = parse_status(values[0])
    if status is None or status == 101:
        raise protocol_error("the HTTP/2 response has no valid :status")
    return status


def frame_header(length: int, kind: int, flags: int, stream: int) -> bytes:
    """Return the nine bytes before a payload (RFC 9113 section 4.1)."""
    return struct.pack(">IBI", length << 8 | kind, flags, stream)


class SendWindows:
    """What the other side lets us send, on the connection (0) and on the stream of the request (1), as
    RFC 9113 section 5.2 has it.
    """

    def __init__(self) -> None:
        self.sent = 0
        self._initial = INITIAL_WINDOW
        self._room = [INITIAL_WINDOW, INITIAL_WINDOW]
        self._uncredited = [0, 0]  # of what was sent

    def open_stream(self) -> None:
        """Begin another stream, whose window is whole."""
        self._room[1], self._uncredited[1] = self._initial, 0

    @property
    def room(self) -> int:
        """Return how many bytes may be sent now; below 0 where SETTINGS made the stream's window smaller."""
        return min(self._room)

    def use(self, size: int) -> None:
        self.sent += size
        for stream in (0, 1):
            self._room[stream] -= size
            self._uncredited[stream] += size

    def widen(self, stream: int, payload: bytes) -> bool:
        """Take a WINDOW_UPDATE; tell whether it returns credit for anything that was sent."""
        increment = int.from_bytes(payload, "big") & MAX_WINDOW
        if len(payload) != 4:
            raise broken_http2(f"a WINDOW_UPDATE frame of {len(payload)} bytes")
        if not increment:
            raise broken_http2("a WINDOW_UPDATE frame that adds nothing")
        self._grow(stream, increment)
        # Updates can be sent without end, too: those that return nothing count as chatter.
        returns = self._uncredited[stream] > 0
        self._uncredited[stream] = max(0, self._uncredited[stream] - increment)
        return returns

    def resize(self, initial: int) -> None:
        """Take a new SETTINGS_INITIAL_WINDOW_SIZE, which counts from the start (section 6.9.2)."""
        self._grow(1, initial - self._initial)
        self._initial = initial

    def _grow(self, stream: int, increment: int) -> None:
        self._room[stream] += increment
        if self._room[stream] > MAX_WINDOW:
            raise broken_http2(f"a flow-control window of more than {MAX_WINDOW} bytes")


class Unlogged:
    """A stand-in for logging, and for each of its loggers: hpack makes one, and nobody reads it."""

    def getLogger(self, _: str) -> Unlogged:
        return self

    def debug(self, *_: object) -> None:
        """Log nothing."""


class Unchecked:
    """A stand-in for dataclasses, of which h2 wants no more than that an event takes its fields by name."""

    def dataclass(self, **_: object) -> Callable[[type], type]:
        def take(self: Any, **fields: object) -> None:
            self.__dict__.update(fields)

        def finish(made: type) -> type:
            made.__init__ = take  # type: ignore[misc]
            return made

        return finish


def import_h2() -> bool:
    """Import all of h2 that is needed; False where it is missing or unfit.

    Without the stand-ins logging, dataclasses and what these import would take 11 ms of the 24. An h2 that
    cannot do with them gets the real ones.
    """
    if "h2.connection" in sys.modules:
        return True
    found = optional("h2.connection", {"logging": Unlogged(), "dataclasses": Unchecked()})
    if not found:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("h2", "hpack", "hyperframe")]:
            sys.modules.pop(name)
        found = optional("h2.connection")
    return found is not None


class Http2Session:
    """What an HTTP/2 connection keeps from one request to the next (RFC 9113 section 3.4 and 5.1)."""

    def __init__(self) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection
        from h2.events import InformationalResponseReceived, ResponseReceived, StreamEnded, StreamReset
        from h2.settings import SettingCodes, Settings

        self.events = (InformationalResponseReceived, ResponseReceived, StreamEnded, StreamReset)
        self.reader = Reader()
        # The user's fields go out as they were given, and what comes back is shown as it came, in bytes.
        self.h2 = H2Connection(H2Configuration(header_encoding=False, validate_outbound_headers=False))
        room = MAX_HEADER_BYTES + 32 * MAX_HEADER_LINES  # HPACK adds 32 to the size of each field
        self.h2.local_settings = Settings(
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,  # one request, one response
                SettingCodes.INITIAL_WINDOW_SIZE: HTTP2_WINDOW,
                SettingCodes.MAX_FRAME_SIZE: MAX_FRAME,
                SettingCodes.MAX_HEADER_LIST_SIZE: room,
            }
        )
        self.h2.decoder.max_header_list_size = room
        self.h2.initiate_connection()
        # SETTINGS widen the windows of streams alone (RFC 9113 section 6.9.2).
        self.h2.increment_flow_control_window(HTTP2_WINDOW - INITIAL_WINDOW)
        self.windows = SendWindows()
        self.credit = b""  # frames that return it to the other side, once something is sent
        self.consumed = 0  # bytes of DATA for which none was returned
        self.unanswered = 1  # SETTINGS of ours
        self.in_block = False  # HEADERS came, the CONTINUATION that ends them did not
        self.farewell: NetworkError | None = None

    def open_stream(self, fields: list[tuple[bytes, bytes]], ended: bool) -> int:
        """Queue a request's header section; return the number of its stream."""
        self.windows.open_stream()
        stream: int = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, fields, end_stream=ended)
        return stream

    def has_room(self) -> bool:
        """Tell whether the server allows a stream, of which we have one at a time (RFC 9113, 5.1.2)."""
        return bool(self.h2.remote_settings.max_concurrent_streams)

    def close_stream(self, stream: int, whole: bool) -> None:
        """Have h2 forget a stream, of which it saw no DATA; one whose body was not wanted is given up."""
        self.credit += self.h2.data_to_send()
        if self.h2.streams[stream].closed:  # it had no bodies
            return
        self.h2.reset_stream(stream)
        given_up = self.h2.data_to_send()
        if not whole:
            self.credit += given_up


# ---------------------------------------------------------------------------------------------------------
# 18b. HTTP/2, one request and its response.
# ---------------------------------------------------------------------------------------------------------
class Http2Exchange(Exchange):
    """HTTP/2 (RFC 9113): one request on a stream of its own."""

    def __init__(self, setup: Setup, session: Http2Session | None = None) -> None:
        super().__init__(setup)
        self._session = session or Http2Session()
        self._reader = self._session.reader
        self.headers = fit_for_http2(self.headers)
        self._body = memoryview(self.request.data)
        fields = http2_headers(self.request, self.headers)
        self.request_bytes = sum(len(name) + len(value) for name, value in fields) + len(self._body)
        self._stream = self._session.open_stream(fields, not self._body)
        self._chatter = 0
        self._headers_at = 0
        self._interim = 0
        self._ended = self._given_up = False

    def again(self, setup: Setup) -> Exchange:
        return Http2Exchange(setup, self._session)

    def last_word(self) -> str | None:
        if self._session.farewell:
            return clip(render(self._session.farewell, self._secrets))
        if not self._session.has_room():
            return "the server allows no further HTTP/2 stream"
        return None if self._ended else "the request before was not finished"

    def _read_waiting(self) -> str | None:
        """Read whole frames only, because waiting for the rest of one could take for ever; and none of a
        stream that we have not opened yet.
        """
        for _ in range(MAX_IDLE):
            if not self._reader.fill_from_waiting():
                return self.last_word()
            header = self._reader.peek(9)
            if self._reader.left < 9 + int.from_bytes(header[:3], "big"):
                return "the server stopped in the middle of an HTTP/2 frame"
            if int.from_bytes(header[5:], "big") & 0x7FFFFFFF > self._stream:
                return UNASKED
            self._read_frame()
        return NO_END

    def run(self, stream: Stream) -> None:
        self._reader.stream = stream
        stream.hurry(bool(self._body))  # what comes during an upload is credit, nearly always
        try:
            while not self._ended:
                self._read_frame()
        except EOFError:
            raise self._hung_up() from None
        self._check_length()
        self.log.add("done", at=self._reader.arrived)
        self._session.close_stream(self._stream, not (self._body or self._given_up))

    def _hung_up(self) -> NetworkError:
        if self._session.farewell:
            return self._session.farewell
        if self._response is None:
            return protocol_error("the server hung up without an answer", hint=CLOSED_EARLY)
        message = f"the connection ended after {self.log.received} bytes, before the end of the response"
        return protocol_error(message, hint=CLOSED_EARLY)

    def source(self) -> bytes:
        """Return what h2 has to send, then as much of the body as the windows allow."""
        data: bytes = self._session.credit + self._session.h2.data_to_send()
        self._session.credit = b""
        if data:
            return data
        if not self._body and not self._sent:
            self._note_sent()
            # From here on what comes is the answer: its first byte needs a time of its own.
            self._reader.stream.hurry(self._response is not None)
        return self._next_data()

    def _next_data(self) -> bytes:
        """Cut up to UPLOAD_PIECE bytes of the body into frames of a size that the other side takes."""
        left = min(self._session.windows.room, len(self._body), UPLOAD_PIECE)
        parts: list[bytes | memoryview] = []
        while left > 0:
            size = min(left, self._session.h2.max_outbound_frame_size)
            chunk, self._body = self._body[:size], self._body[size:]
            parts += (frame_header(size, DATA, 0 if self._body else END_STREAM, self._stream), chunk)
            self._session.windows.use(size)
            left -= size
        return b"".join(parts)

    def _read_frame(self) -> None:
        """Read one frame and give it to whoever understands it (RFC 9113 section 4.1)."""
        reader = self._reader
        header = reader.exactly(9)
        began = reader.began
        length, kind, flags = int.from_bytes(header[:3], "big"), header[3], header[4]
        stream = int.from_bytes(header[5:9], "big") & 0x7FFFFFFF
        if header[:5] == b"HTTP/":
            raise protocol_error(
                "the server agreed on HTTP/2 but answers in HTTP/1", hint="Ask with --http1.1."
            )
        if length > MAX_FRAME:
            raise protocol_error(f"an HTTP/2 frame of {length} bytes came, {MAX_FRAME} are allowed")
        # Anything out of its place, DATA before HEADERS or amid them, is for h2 to refuse.
        if kind == DATA and stream == self._stream and self._response and not self._session.in_block:
            self._count_data(length, flags)
            return
        if kind == HEADERS and stream == self._stream:
            self._headers_at = began  # the first byte of the answer, if it proves to be no 1xx
        if not self._serves(header, reader.exactly(length)):
            self._count_chatter()

    def _serves(self, header: bytes, payload: bytes) -> bool:
        """Take a frame; tell whether it serves the request or its response."""
        kind, flags, stream = header[3], header[4], int.from_bytes(header[5:], "big") & 0x7FFFFFFF
        # Within a header block only CONTINUATION may come (section 6.10): the rest goes to h2, which says so.
        # So does what has the wrong length or stream.
        if not self._session.in_block:
            served = self._serves_itself(kind, stream, payload)
            if served is not None:
                return served
        self._give(header + payload)
        if kind == SETTINGS:
            return self._acknowledges(flags)
        if kind in (HEADERS, CONTINUATION):
            self._session.in_block = not flags & END_HEADERS
        return kind == HEADERS and stream == self._stream and not self._ended

    def _serves_itself(self, kind: int, stream: int, payload: bytes) -> bool | None:
        """Take a frame that h2 does not see; tell whether it serves the request, None where h2 takes it."""
        if kind == WINDOW_UPDATE and stream in (0, self._stream):
            return self._session.windows.widen(min(stream, 1), payload)
        if kind in (WINDOW_UPDATE, RST_STREAM) and 0 < stream < self._stream:
            return False  # late, for an earlier request (section 5.1, closed)
        if kind == RST_STREAM and stream == self._stream and len(payload) == 4:
            if self._ended:
                return False  # servers end so what they did not read of an upload (section 8.1)
            raise self._reset(http2_error(payload))
        if kind == GOAWAY and stream == 0 and len(payload) >= 8:
            self._go_away(payload)
            return False
        return None

    def _acknowledges(self, flags: int) -> bool:
        """Follow SETTINGS that h2 took; tell whether they acknowledge ours."""
        session = self._session
        if not flags & ACK:
            session.windows.resize(session.h2.remote_settings.initial_window_size)
            return False
        awaited = session.unanswered > 0
        session.unanswered = 0
        return awaited

    def _count_chatter(self) -> None:
        """Count a frame that serves nothing: an attack needs thousands, an ordinary server a few."""
        self._chatter += 1
        if self._chatter > MAX_HTTP2_CHATTER + (self._session.windows.sent + self.log.received) // 1024:
            raise protocol_error(
                f"{self._chatter} HTTP/2 frames that serve nothing came with one response", hint=HTTP2_HINT
            )

    def _count_data(self, length: int, flags: int) -> None:
        """Pass over one DATA frame and return its credit to the sender (RFC 9113 section 6.1, 6.9)."""
        reader, content = self._reader, length
        if flags & PADDED:
            padding = reader.exactly(1)[0] if length else 0
            if padding >= length:
                raise protocol_error("an HTTP/2 DATA frame has more padding than content")
            content -= 1 + padding
        count_body(reader, content, self.log)
        if flags & PADDED:
            reader.exactly(padding)  # counts as flow, not as body
        self._ended = bool(flags & END_STREAM)
        if not content and not self._ended:
            self._count_chatter()
        session = self._session
        session.consumed += length
        # Long before the window is used up, so that the sender never waits; rarely, since each is a frame.
        if session.consumed >= HTTP2_WINDOW // 4:
            update = struct.pack(">I", session.consumed)
            session.credit += b"".join(
                frame_header(4, WINDOW_UPDATE, 0, each) + update for each in (0, self._stream)
            )
            session.consumed = 0

    def _reset(self, code: str) -> NetworkError:
        hint = RESET_HINTS.get(code, "Look at the server's log; --http1.1 tells whether HTTP/2 is at fault.")
        return protocol_error(f"the server reset the HTTP/2 stream ({code})", hint=hint)

    def _go_away(self, payload: bytes) -> None:
        """Give up when the server will not answer our stream (RFC 9113 section 6.8), else remember it."""
        last, code = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF, http2_error(payload[4:8])
        message, words = f"the server closed the HTTP/2 connection ({code})", payload[8:].strip()
        if words:
            message = f"the server closed the HTTP/2 connection ({code}: {{}})"
        self._session.farewell = protocol_error(message, foreign(payload[8:]), hint=self._reset(code).hint)
        if last < self._stream:  # else our stream is still to be answered; should it not be, this is why
            raise self._session.farewell

    def _give(self, frame: bytes) -> None:
        """Let h2 take a frame; raises NetworkError for whatever it does not accept."""
        interim, final, ended, reset = self._session.events
        try:
            events = self._session.h2.receive_data(frame)
        except MemoryError:
            raise
        except Exception as error:  # h2 and hpack fail in many ways on hostile input
            words = str(error) or type(error).__name__
            if "header block" in words:  # with addresses of memory in its details
                words = "a header section cannot be decompressed"
            raise broken_http2(foreign(words)) from None
        for event in events:
            if isinstance(event, interim):
                self._interim += 1
                if self._interim > MAX_INTERIM:
                    raise protocol_error(TOO_MANY_INTERIM)
                self.log.add("interim", parse_http2_status(event.headers))
            elif isinstance(event, final):
                self._answer(event.headers)
            elif isinstance(event, ended) and event.stream_id == self._stream:
                self._ended = True
            elif isinstance(event, reset) and event.stream_id == self._stream:  # by h2 itself
                code = http2_error(int(event.error_code).to_bytes(4, "big"))
                raise protocol_error(f"the server broke the rules of HTTP/2 ({code})", hint=HTTP2_HINT)

    def _answer(self, fields: Sequence[tuple[bytes, bytes]]) -> None:
        status = parse_http2_status(fields)
        self.log.add("first byte", at=self._headers_at)
        self.log.count("answered")
        headers = tuple((name.decode("latin-1"), bytes(value)) for name, value in fields if name[:1] != b":")
        if len(headers) > MAX_HEADER_LINES:
            raise protocol_error(f"the response has more than {MAX_HEADER_LINES} header lines")
        self._response = Response(status, "", "HTTP/2", headers, None)
        self.log.add("response", self._response)
        self._reader.stream.hurry()
        if status >= 300 and self._body:  # the rest of the request is not wanted
            self._body, self._given_up = self._body[:0], True

    def _check_length(self) -> None:
        """Raise NetworkError unless the body is as long as its header says (RFC 9113 section 8.1.1)."""
        response, received = self._response, self.log.received
        if response is None:
            raise protocol_error("the HTTP/2 stream ended without a response")
        length = content_length(response.headers)
        if length not in (None, received) and has_body(self.request.method, response.status):
            raise protocol_error(f"the body has {received} bytes, its content-length says {length}")


# ---------------------------------------------------------------------------------------------------------
# 19a. Hops. The stretches of the way to the server, each on the stream that the one below it opened.
# ---------------------------------------------------------------------------------------------------------
def end_connection(connection: socket.socket) -> None:
    """End a connection in both directions: what waits for it wakes up."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended meanwhile


class Hop(Stage):
    """One stretch of the way. It is made, with all that it needs, before the clock starts.

    `open` makes it stand, in the timed region. Then what is above sends its first flight, before any book is
    kept: what passes between the answer that opened a hop and that flight is neither the network's time nor
    the server's. `stands` keeps the books.
    """

    phase = "connect"
    below: Hop | None = None  # the one that it is opened on

    def prepare(self) -> None:
        """Do what is left to do just before the clock starts."""

    @property
    def looks_up(self) -> bool:
        """Tell whether a resolver is asked."""
        return False

    def look_up(self) -> None:
        """Find the addresses that are needed, all of them before the first SYN; raises NetworkError."""

    def open(self, below: Stream) -> Stream:
        """Make this hop stand on the stream below, and return the stream that leads on.

        Raises NetworkError, OSError, ssl.SSLError, and EOFError when the other side hangs up.
        """
        raise NotImplementedError

    def stands(self, departed: int) -> None:
        """Note when the answer came that opened this hop; the flight above it left at `departed`."""
        raise NotImplementedError

    def tell(self, log: Log) -> None:
        """Report to another log from now on: of the next request over the same connection."""
        self.log = log

    def give_up(self) -> None:
        """Have what waits on this hop fail at once; called by another thread than the one that waits."""
        connection = self.log.history().detail("connection")
        if connection:
            end_connection(connection)

    def close(self) -> None:
        """Give back what the kernel holds for this hop."""

    def blame(self, found: NetworkError, history: History) -> NetworkError:
        if self.proxy is None:
            return found
        return blame_proxy(self.proxy, found, history.peer is not None)

    def explain(self, error: Exception, history: History) -> NetworkError:
        return negotiation_broken(error)

    def stuck(self, limit: str, history: History) -> NetworkError:
        assert self.proxy  # a hop of phase connect beyond tcp is a proxy's
        return timed_out("proxy", f"the proxy {self.proxy.shown}", limit)


def open_socket(family: int) -> socket.socket:
    """Return a TCP socket that does not block and whose bytes bear the time of their arrival."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)  # so that connect() does not wait for the answer
    # Nagle would hold the request back behind the client's Finished for a round trip. Device "no delay of
    # small segments": without it, wait is 11.2 ms off instead of 0.04 (https).
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY)]
    if sys.platform == "linux":
        options.append((socket.SOL_SOCKET, SO_TIMESTAMPNS))
    for level, option in options:
        try:
            made.setsockopt(level, option, 1)
        except OSError:
            pass  # an emulation or a sandbox may not have it: the figures are coarser then
    return made


SO_BINDTODEVICE = 25  # Linux, asm-generic/socket.h
IP_BIND_ADDRESS_NO_PORT = 24  # Linux, ip(7): connect() chooses the port, when it knows where to
SIOCGIFADDR = 0x8915  # Linux, netdevice(7)


def bind_source(connection: socket.socket, interface: Interface | None) -> None:
    """Have a connection begin where --interface says; raises OSError."""
    if interface is None:
        return
    if not interface.family:
        name = os.fsencode(interface.text)
        if len(name) > MAX_INTERFACE:  # the kernel would take the beginning for the name
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        connection.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, name)
        return
    try:
        connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    except OSError:
        pass
    try:
        connection.bind(literal_peer(interface.text, 0).address)
    except NetworkError:  # its zone is no interface of this machine
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)) from None


def own_addresses() -> dict[str, list[str]]:
    """Return the addresses of this machine by network interface, for a message: Linux, netdevice(7).

    IPv4 has the first of each; IPv6 none that means nothing without a zone.
    """
    import fcntl

    own: dict[str, list[str]] = {name: [] for _, name in socket.if_nameindex()}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for name, found in own.items():
            try:
                reply = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", os.fsencode(name)))
                found.append(socket.inet_ntop(socket.AF_INET, reply[20:24]))
            except OSError:
                pass
    try:
        lines = decode(read_local("/proc/net/if_inet6", MAX_RESOLVER_FILE, 1.0)).splitlines()
    except UsageError:
        lines = []
    for line in lines:
        address, _, _, scope, _, name = line.split()
        if scope != "20":  # link-local
            own.setdefault(name, []).append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address)))
    return own


def established(info: bytes, begun: int, noticed: int) -> int:
    """Return when the SYN-ACK came: the kernel's first round trip after connect(), where it tells.

    A process that was kept waiting notices late; the kernel still holds that single sample.
    """
    # Device "the kernel's sample of the round trip": without it, connect is 0.344 ms off instead of 0.027
    # while the CPUs are busy. After a lost SYN it is not used: it began, if there is one, with a later SYN.
    rtt, retransmits = read_tcp_info(info)
    if rtt is None or retransmits or not 0 < rtt * 1000 <= noticed - begun:
        return noticed
    return begun + rtt * 1000


class Contender(NamedTuple):
    """An attempt to connect that has no outcome yet; `begun` is when its SYN left."""

    number: int
    begun: int
    connection: socket.socket


class Race:
    """A race for a connection (RFC 8305): the next address after 250 ms, or at once when one has failed.

    `spare` holds sockets that were made before the clock, by family; the others begin at `interface`.
    """

    def __init__(self, log: Log, spare: dict[int, socket.socket], interface: Interface | None) -> None:
        self.noticed = 0  # when the winner was seen to stand
        self._log, self._spare, self._interface = log, spare, interface
        self._poller = select.poll()
        self._under_way: dict[int, Contender] = {}  # by descriptor
        self._next_start = 0
        self._failures: list[OSError] = []

    def run(self, peers: Iterable[Peer]) -> Contender:
        """Return the first that stands; raises OSError, the first failure, when none does."""
        waiting = list(peers)
        while waiting or self._under_way:
            now = time.perf_counter_ns()
            if waiting and (not self._under_way or now >= self._next_start):
                self._start(waiting.pop(0))
                continue
            pause = None
            if waiting:  # rounded up: a millisecond too few would be spent turning in this loop
                pause = max(0, -(-(self._next_start - now) // 1_000_000))
            for descriptor, events in self._poller.poll(pause):
                self.noticed = time.perf_counter_ns()
                contender = self._under_way.pop(descriptor)
                # A failure brings POLLERR or POLLHUP too; asking the socket would cost the winner time.
                if events == select.POLLOUT or not self._has_failed(contender):
                    return contender
        raise self._failures[0]

    def end(self) -> None:
        """Give up the others, once the winner's first flight has left."""
        for other in self._under_way.values():
            self._log.add("dialled", Dialled(other.number, GIVEN_UP), self.noticed)
            other.connection.close()

    @property
    def contenders(self) -> list[socket.socket]:
        """Return the connections that have no outcome yet; any thread may ask."""
        return [contender.connection for contender in list(self._under_way.values())]

    def _start(self, peer: Peer) -> None:
        """Send a SYN and go on; the first one ends the lookups. One that fails at once is noted at once."""
        number = len(self._log.history().all("dialling"))  # a step may have several races, through SOCKS
        error: OSError | None = None
        try:
            connection = self._spare.pop(peer.family, None) or self._open(peer.family)
        except OSError as refused:
            error = refused  # noted below, as an attempt like any other
        begun = time.perf_counter_ns()
        self._next_start = begun + round(CONNECT_STAGGER * 1e9)
        self._log.add("dialling", Dialling(number, peer), begun)
        if error:
            self._fail(number, error)
            return
        code = connection.connect_ex(peer.address)
        contender = Contender(number, begun, connection)
        if code not in (0, errno.EINPROGRESS):
            connection.close()
            self._fail(number, OSError(code, os.strerror(code)))
            return
        self._under_way[connection.fileno()] = contender
        self._poller.register(connection, select.POLLOUT)

    def _open(self, family: int) -> socket.socket:
        """Return another socket; raises OSError."""
        made = open_socket(family)
        try:
            bind_source(made, self._interface)
        except OSError:
            made.close()
            raise
        return made

    def _has_failed(self, contender: Contender) -> bool:
        code = contender.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._poller.unregister(contender.connection)
            contender.connection.close()
            self._fail(contender.number, OSError(code, os.strerror(code)))
        return bool(code)

    def _fail(self, number: int, error: OSError) -> None:
        self._failures.append(error)
        self._next_start = 0
        self._log.add("dialled", Dialled(number, words_of_system(error)))


# ---------------------------------------------------------------------------------------------------------
# 19b. Hops of TCP. To the first machine on the way.
# ---------------------------------------------------------------------------------------------------------
class Tcp(Hop):
    """The connection to the first machine on the way: the target, or a proxy."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.place = setup.route.first_hop(setup.request.url)
        self._options = setup.options
        self._peers: list[Peer] = []
        self._spare: dict[int, socket.socket] = {}
        self._stream = SocketStream()
        self.tell(self.log)
        self._race = Race(self.log, self._spare, self._options.interface)
        self._winner: Contender

    def tell(self, log: Log) -> None:
        super().tell(log)
        self._stream.note = log.add

    @property
    def looks_up(self) -> bool:
        return needs_lookup(*self.place, self._options)

    def prepare(self) -> None:
        """Make the first socket of each family that this machine has, if they leave room for a resolver's.

        Raises OSError when this machine has a limit that allows none, InterfaceError where none can begin.
        """
        # Device "sockets are made before the clock": without it, dns is 2.44 ms off instead of 0.67.
        wanted, refused, failed = self._options.family, None, None
        for family in FAMILY_NAMES:
            if wanted not in (socket.AF_UNSPEC, family):
                continue
            try:
                self._spare[family] = open_socket(family)
            except OSError as error:
                failed = error
                if refusal_of(error):
                    refused = error
        if refused and not self._spare:
            raise refused
        if self._options.interface:
            self._begin_at(self._options.interface, failed)
        for spare in tuple(self._spare.values()):
            try:
                os.close(os.dup(spare.fileno()))
            except OSError:
                self._close_spare()

    def _begin_at(self, interface: Interface, failed: OSError | None) -> None:
        """Bind the sockets that are ready; raises InterfaceError where that, or making any, has `failed`."""
        try:
            for spare in self._spare.values():
                bind_source(spare, interface)
            if failed and not self._spare:
                raise failed
        except OSError as error:
            self._close_spare()
            raise explain_interface(interface, error, own_addresses()) from None

    def look_up(self) -> None:
        self._peers = resolve(*self.place, self._options)
        self.log.add("resolved", tuple(peer.ip for peer in self._peers))

    def open(self, below: Stream) -> Stream:
        self._winner = self._race.run(self._peers)
        self._stream.socket = self._winner.connection
        return self._stream

    def open_again(self) -> Stream:
        """Connect once more, for a hop above whose first try cost it the connection."""
        self._race = Race(self.log, {}, self._options.interface)
        stream = self.open(Stream())
        self._note_winner()
        return stream

    def stands(self, departed: int) -> None:
        self.log.add("open", departed, self._note_winner())

    def _note_winner(self) -> int:
        """Note the outcome of the race; return when the SYN-ACK came."""
        number, begun, connection = self._winner
        info = tcp_info(connection)
        answered = established(info, begun, self._race.noticed)
        connection.setblocking(True)  # from the first read on; sending asks not to wait, each time
        self.log.add("dialled", Dialled(number, None), answered)
        self.log.add("connection", connection)
        self.log.add("counters", ("stood", info))
        self.log.add("local", connection.getsockname()[0])
        self._race.end()
        return answered

    def give_up(self) -> None:
        super().give_up()
        self._close_spare()
        for each in self._race.contenders:
            end_connection(each)

    def close(self) -> None:
        self._close_spare()
        connection = self.log.history().detail("connection")  # the newest: SOCKS replaces it
        if connection:
            connection.close()

    def _close_spare(self) -> None:
        while self._spare:
            self._spare.popitem()[1].close()

    def explain(self, error: Exception, history: History) -> NetworkError:
        failed = [event.detail.number for event in history.all("dialled") if event.detail.error]
        message = "no connection to {}: {}"
        if len(failed) > 1:
            message += f" ({len(failed)} addresses tried)"
        hint = CONNECT_HINTS.get(getattr(error, "errno", 0) or 0, "Check the network of this machine.")
        words = words_of_system(error)
        return NetworkError("network", message, hint, self._where(history, failed[:1]), words)

    def stuck(self, limit: str, history: History) -> NetworkError:
        if history.phase == "dns":
            return timed_out("lookup", self.place[0], limit)
        tried = [event.detail.number for event in history.all("dialling")]
        where = self._where(history, tried)
        if self.proxy:
            where = f"the proxy {self.proxy.shown}"
        return timed_out("connection", where, limit)

    def _where(self, history: History, numbers: Sequence[int]) -> str:
        """Name the place, and of its addresses those that were tried: three at most."""
        peers = {event.detail.number: event.detail.peer.ip for event in history.all("dialling")}
        tried = [peers[number] for number in numbers if peers[number] != self.place[0]]
        where = self.place[0]
        if tried:
            where += f" ({and_more(tried, 3)})"
        return f"{where} port {self.place[1]}"


# ---------------------------------------------------------------------------------------------------------
# 19c. Hops of TLS. To a proxy, and to the target.
# ---------------------------------------------------------------------------------------------------------
class Tls(Hop):
    """A TLS handshake. Each role has a context of its own: what one may show, another cannot."""

    role = ""

    given = "proxy"  # whether a client certificate would be sent: see `fate_of`

    def __init__(self, setup: Setup, place: tuple[str, int], protocols: Sequence[str]) -> None:
        super().__init__(setup)
        self.place = place
        self._trust = Trust(setup.options.insecure, setup.options.ca_bundle)
        self._on_socket = setup.route.unix_socket is not None
        context = setup.contexts.get(self.role, protocols)
        self.stream = TlsStream(context, server_name(place[0]))

    def source(self) -> bytes:
        return self.stream.ciphertext()

    def open(self, below: Stream) -> Stream:
        self.stream.shake_hands(below)
        return self.stream

    def stands(self, departed: int) -> None:
        self.log.add("open", departed, self.stream.answered(departed))

    def explain(self, error: Exception, history: History) -> NetworkError:
        tap = self.stream.tap
        if isinstance(error, ssl.SSLError):
            return explain_tls(
                TlsFailure(
                    error=error,
                    chain=tuple(map(parse_certificate, tap.certificates)),
                    wanted="wanted" in tap.happened,
                    alert=tap.alert,
                    spoken=self.stream.spoken,
                    stray=self.stream.stray,
                    established=self.stream.established,
                    place=self.place,
                    trust=self._trust,
                    on_socket=self._on_socket,
                    shown=fate_of(self.given, tap.happened),
                )
            )
        return handshake_broken(error)


class ProxyTls(Tls):
    """TLS to an https proxy; part of connect."""

    role = "proxy tls"

    def __init__(self, setup: Setup) -> None:
        proxy = setup.route.proxy
        assert proxy
        super().__init__(setup, (proxy.host, proxy.port), ("http/1.1",))

    def explain(self, error: Exception, history: History) -> NetworkError:
        if isinstance(error, (ssl.SSLError, EOFError)):
            return super().explain(error, history)
        return negotiation_broken(error)


class TargetTls(Tls):
    """TLS with the target: the phase tls."""

    phase = "tls"

    def __init__(self, setup: Setup) -> None:
        url = setup.request.url
        self.role = target_role(url, setup.options)
        self.given = offer_of(url, setup.options)
        super().__init__(setup, (url.host, url.port), tuple(setup.protocols))
        self.tell(self.log)

    def tell(self, log: Log) -> None:
        super().tell(log)
        self.stream.tap.note = log.add

    def stands(self, departed: int) -> None:
        # What was agreed is asked of OpenSSL only now, because that would delay the request.
        self.log.add("handshake", self.stream.agreed())
        super().stands(departed)

    def open(self, below: Stream) -> Stream:
        try:
            return super().open(below)
        except ssl.SSLError:
            # What is wrong with a certificate is best seen in the certificate.
            if self.stream.tap.certificates:
                self.log.add("handshake", self.stream.agreed())
            raise

    def blame(self, found: NetworkError, history: History) -> NetworkError:
        """A proxy that has opened the way only passes bytes on."""
        return found

    def stuck(self, limit: str, history: History) -> NetworkError:
        if self.proxy:
            return timed_out("handshake behind a proxy", limit)
        return timed_out("handshake", limit)


# ---------------------------------------------------------------------------------------------------------
# 19d. Hops of this machine. A unix socket in place of TCP: no lookup, no address, no race.
# ---------------------------------------------------------------------------------------------------------
def open_unix_socket() -> socket.socket:
    """Return a unix socket that does not block; raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


class Unix(Hop):
    """The connection to a unix socket (unix(7)), whatever the URL's host.

    The socket does not block: where its queue is full, connect() would wait for ever.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        assert setup.route.unix_socket is not None
        self._path = setup.route.unix_socket
        self._stream = SocketStream(timestamps=False)
        self._spare: socket.socket | None = None
        self._stood = 0

    def prepare(self) -> None:
        """Make the socket; raises OSError when this machine has a limit that allows none."""
        try:
            self._spare = open_unix_socket()
        except OSError as error:  # a policy, perhaps: `open` meets it again, where it is explained
            if refusal_of(error):
                raise

    def open(self, below: Stream) -> Stream:
        self.log.add("dialling", Dialling(0, None))
        connection = self._spare = self._spare or open_unix_socket()
        connection.connect(self._path)
        self._stood = time.perf_counter_ns()
        self._stream.socket, self._spare = connection, None
        return self._stream

    def stands(self, departed: int) -> None:
        self._stream.socket.setblocking(True)
        self.log.add("dialled", Dialled(0, None), self._stood)
        self.log.add("connection", self._stream.socket)
        self.log.add("open", departed, self._stood)

    def close(self) -> None:
        for each in (self._spare, self.log.history().detail("connection")):
            if each:
                each.close()

    def explain(self, error: Exception, history: History) -> NetworkError:
        return unix_failed(self._path, error)

    def stuck(self, limit: str, history: History) -> NetworkError:
        return timed_out("connection", f"the unix socket {self._path}", limit)


# ---------------------------------------------------------------------------------------------------------
# 20. Proxies. The hops through one: CONNECT (RFC 9110 section 9.3.6) and SOCKS5 (RFC 1928, by PySocks).
# ---------------------------------------------------------------------------------------------------------
class Tunnel(Hop):
    """A way through an HTTP proxy: CONNECT."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        request, proxy = setup.request, setup.route.proxy
        assert proxy
        self._proxy = proxy
        self._reader = Reader()
        self._flight = once(tunnel_head(request, proxy))
        self._authorized = bool(proxy_authorization(request, proxy))

    def source(self) -> bytes | memoryview:
        return self._flight()

    def open(self, below: Stream) -> Stream:
        self._reader.stream = below
        try:
            response = read_head(self._reader, Log())  # its first byte is not the target's
        except EOFError:
            raise no_answer_to_connect(self._proxy) from None
        if not 200 <= response.status < 300:
            raise refused_tunnel(self._proxy, response, self._authorized)
        if self._reader.left:  # before anything was sent through it: the target cannot have spoken
            raise no_tunnel(self._proxy)
        return below

    def stands(self, departed: int) -> None:
        self.log.add("open", departed, self._reader.arrived)


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
        if data == self._wrong:
            data = self._right
        self._file.write(data)


def negotiate_socks(connection: socket.socket, proxy: Proxy, place: tuple[str, int]) -> socket.socket:
    """Have PySocks negotiate over a connected socket; return the socket. Raises NetworkError, OSError."""
    socks = optional("socks")

    class Negotiator(socks.socksocket):  # type: ignore[misc, name-defined]
        def makefile(self, mode: str = "r", *args: Any) -> Any:
            file = super().makefile(mode, *args)
            if mode == "wb":
                return SocksWriter(file, proxy)
            return file

    # PySocks negotiates over sockets of its own class: it gets the descriptor, and gives it back at the end.
    negotiator = Negotiator(connection.family, connection.type, connection.proto, connection.detach())
    username = password = None
    if proxy.username is not None:
        username, password = Credential(proxy.username), Credential(proxy.password or b"")
    resolves_names = proxy.scheme == "socks5h"
    negotiator.proxy = (socks.SOCKS5, proxy.host, proxy.port, resolves_names, username, password)
    try:
        negotiator._negotiate_SOCKS5(*place)  # without connect(), which would dial too
    except socks.ProxyError as error:
        negotiator.close()
        raise explain_socks(error, proxy) from None
    return socket.socket(fileno=negotiator.detach())


class Socks(Hop):
    """A way through a SOCKS5 proxy: PySocks negotiates it and sends, alone, what has to be sent."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        proxy, url = setup.route.proxy, setup.request.url
        assert proxy
        self._proxy = proxy
        self._place = (url.host, url.port)
        self._targets = [url.host]  # names or addresses that the proxy is asked for, one after the other
        self._options = setup.options
        self._stream = SocketStream()
        self._stood = 0

    @property
    def looks_up(self) -> bool:
        return self._proxy.resolves_here and needs_lookup(*self._place, self._options)

    def look_up(self) -> None:
        if self._proxy.resolves_here:
            self._targets = [peer.ip for peer in resolve(*self._place, self._options)]

    def open(self, below: Stream) -> Stream:
        """Ask for the target's addresses in turn: a refusal costs the connection, so each has its own."""
        for number, target in enumerate(self._targets, 1):
            try:
                self._ask_for(target, below)
                break
            except SocksRefusal as refusal:
                if refusal.reply not in SOCKS_NEXT_ADDRESS or number == len(self._targets):
                    if number > 1:
                        refusal.template += f" ({number} addresses tried)"
                    raise
            assert isinstance(self.below, Tcp)
            below = self.below.open_again()
        self._stood = time.perf_counter_ns()  # PySocks reads on its own: no time of arrival is known
        return self._stream

    def _ask_for(self, target: str, below: Stream) -> None:
        assert isinstance(below, SocketStream)
        place = (target.partition("%")[0], self._place[1])  # a zone means nothing on another machine
        self._stream.socket = negotiate_socks(below.socket, self._proxy, place)

    def blame(self, found: NetworkError, history: History) -> NetworkError:
        """A lookup of the target's own name is not the proxy's."""
        if found.kind == "dns":
            return found
        return super().blame(found, history)

    def stuck(self, limit: str, history: History) -> NetworkError:
        if history.phase == "dns":
            return timed_out("lookup", self._place[0], limit)
        return super().stuck(limit, history)

    def stands(self, departed: int) -> None:
        self.log.add("connection", self._stream.socket)
        self.log.add("open", departed, self._stood)


# ---------------------------------------------------------------------------------------------------------
# 21. Way. All hops of a request and what is exchanged at their end: made before the clock, gone in order.
# ---------------------------------------------------------------------------------------------------------
HOPS: dict[str, Callable[[Setup], Hop]] = {
    "tcp": Tcp,
    "unix": Unix,
    "proxy tls": ProxyTls,
    "tunnel": Tunnel,
    "socks": Socks,
    "tls": TargetTls,
}


# What holds for a connection, not for the request that it was opened for.
LASTING = ("connection", "handshake", "wanted", "declined", "shown", "local")


class Kept(NamedTuple):
    """A connection that a request left open, and the events that tell what it is."""

    hops: Sequence[Hop]
    stream: Stream
    exchange: Exchange
    peer: Peer | None
    events: Sequence[Event]

    def close(self) -> None:
        for hop in self.hops:
            hop.close()


class Way:
    """The hops that lead to a server, and the exchanges that it may agree to. All of it goes to the log.

    Over a kept connection there is no hop to open.
    """

    def __init__(self, setup: Setup, kept: Kept | None = None) -> None:
        self._log = setup.log
        self._kept = kept
        self._hops: list[Hop] = []
        self._stream = Stream()
        self._exchanges: dict[str, Exchange]
        if kept:
            self._exchanges = {kept.stream.alpn or "http/1.1": kept.exchange.again(setup)}
            return
        self._hops = [HOPS[name](setup) for name in setup.route.hops(setup.request.url)]
        self._log.hops = tuple(hop.phase for hop in self._hops)
        for below, hop in zip(self._hops, self._hops[1:]):
            hop.below = below
        # Both are made before the clock: which of them it will be, the handshake tells.
        self._exchanges = {"http/1.1": Http1Exchange(setup)}
        if "h2" in setup.protocols:
            self._exchanges["h2"] = Http2Exchange(setup)

    @property
    def looks_up(self) -> bool:
        return any(hop.looks_up for hop in self._hops)

    def prepare(self) -> None:
        """Do what is left to do just before the clock starts."""
        for hop in self._hops:
            hop.prepare()

    def board(self) -> str | None:
        """Look whether a kept connection still stands, just before the clock starts; say why it does not."""
        if self._kept is None:
            return None
        connection = self._kept.hops[0].log.history().detail("connection")
        connection.setblocking(False)  # the rest of what has begun to come may never come
        gone = self._kept.exchange.take_notice()
        if gone:
            return gone
        connection.setblocking(True)
        for event in self._kept.events:
            self._log.add(event.name, event.detail, event.at)
        for hop in self._kept.hops:
            hop.tell(self._log)
        self._log.count("stood")
        self._kept.stream.hurry(False)
        return None

    def go(self) -> None:
        """Open hop after hop, then do the exchange. A failure goes to the log, explained."""
        try:
            # Every name before the first SYN, which ends dns: a proxy's and, for socks5, the target's.
            for number, hop in enumerate(self._hops):
                self._log.add("resolving", number)
                hop.look_up()
            if self._kept:
                self._log.add("kept", self._kept.peer)
                self._stream = self._kept.stream
                self._stream.begin(self._exchange(self._stream).source)
            else:
                self._open_hops()
            self._log.count("sent")
            exchange = self._exchange(self._stream)
            self._log.add("asking", exchange)
            exchange.run(self._stream)
        except (NetworkError, OSError, EOFError, MemoryError) as error:  # ssl.SSLError is an OSError
            failed_at = time.perf_counter_ns()
            self._log.add("failed", self._explain(error, self._log.history()), failed_at)

    def look_up(self) -> None:
        """Look names up, and no more. A failure goes to the log, explained."""
        try:
            for number, hop in enumerate(self._hops):
                self._log.add("resolving", number)
                hop.look_up()
            self._log.add("looked up")
        except (NetworkError, OSError, MemoryError) as error:
            failed_at = time.perf_counter_ns()
            self._log.add("failed", self._explain(error, self._log.history()), failed_at)

    def _open_hops(self) -> None:
        """Open each hop on the one below, and let what is above send its first flight at once."""
        for number, hop in enumerate(self._hops):
            self._stream = hop.open(self._stream)
            # Device "the first flight leaves before the books are kept": without it, tls is 0.039 ms off
            # instead of 0.004, and wait 0.092 instead of 0.023.
            departed = self._stream.begin(self._above(number, self._stream).source)
            hop.stands(departed)

    def _above(self, number: int, stream: Stream) -> Stage:
        """Return what speaks over a hop: the next one, at the end the exchange."""
        if number + 1 < len(self._hops):
            return self._hops[number + 1]
        return self._exchange(stream)

    def _exchange(self, stream: Stream) -> Exchange:
        return self._exchanges[stream.alpn or "http/1.1"]

    def _under_way(self, history: History) -> Stage:
        """Return the stage that a log has come to."""
        if history.hop < len(self._hops):
            return self._hops[history.hop]
        exchange: Exchange = history.detail("asking") or next(iter(self._exchanges.values()))
        return exchange

    def _explain(self, error: Exception, history: History) -> NetworkError:
        refused = explain_refusal(error)
        if refused:
            return refused
        stage = self._under_way(history)
        if isinstance(error, NetworkError):
            found = error
        elif isinstance(error, ssl.SSLError):
            # Whichever stage was reading, a record fails in TLS: in the topmost layer so far.
            gone = self._standing[: history.hop + 1]
            if self._kept:
                gone = self._standing
            found = [hop for hop in gone if isinstance(hop, Tls)][-1].explain(error, history)
        else:
            found = stage.explain(error, history)
        if self._kept and history.instant("first byte") is None and found.kind in ("network", "protocol"):
            found.kind, found.hint = "protocol", KEPT_HINT
        return stage.blame(found, history)

    @property
    def _standing(self) -> Sequence[Hop]:
        """Return the hops that the connection stands on."""
        return (self._kept and self._kept.hops) or self._hops

    def keep(self) -> Kept | str | None:
        """Return the connection for another request, once the exchange is over, None where there was none; or
        say why it takes no more.
        """
        history = self._log.history()
        if history.detail("connection") is None:
            return None
        exchange: Exchange | None = history.detail("asking")
        if exchange is None or history.instant("done") is None:
            return "the run before failed on that connection"
        last_word = exchange.last_word()
        if last_word:
            return last_word
        events = [event for event in history.events if event.name in LASTING]
        return Kept(self._standing, self._stream, exchange, history.peer, events)

    def stuck(self, limit: str, history: History) -> NetworkError:
        """Say what was waited for when the time of -m was over."""
        return self._under_way(history).stuck(limit, history)

    def give_up(self) -> None:
        """Have the thread that is stuck on this way fail, and end; called by another one."""
        for hop in self._standing:
            hop.give_up()

    def close(self) -> None:
        for hop in self._standing:
            hop.close()


# ---------------------------------------------------------------------------------------------------------
# 22. Step. One request under the clock: what must be ready before it, and the record of what became of it.
# ---------------------------------------------------------------------------------------------------------
class Current(NamedTuple):
    """The step under way. `way` is None until it is prepared; `delayed` is what the thread had waited for
    a CPU (ns) when the clock started. `refused` says why a kept connection would not do.
    """

    number: int
    request: Request
    route: Route
    log: Log
    started_at: datetime.datetime
    thread: int
    delayed: int = 0
    way: Way | None = None
    refused: str | None = None
    span_id: str | None = None


class Ending(NamedTuple):
    """How a step failed, and when."""

    error: NetworkError
    at: int


def wall_clock() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def new_id(count: int) -> str:
    """Return random bytes as W3C Trace Context writes the ids of a trace (16 bytes) and of a span (8)."""
    return os.urandom(count).hex()


def name_trace(request: Request, options: Options, span_id: str | None) -> Request:
    """Return a request that says which span it is (W3C Trace Context), where that is wanted."""
    if not (options.tracing and options.tracing.propagate):
        return request
    headers = tuple(item for item in request.headers if item[0].lower() != "traceparent")
    parent = f"00-{options.trace_id}-{span_id}-01"  # version, trace, span, sampled
    return request._replace(headers=(*headers, ("traceparent", parent.encode("ascii"))))


def begin_step(number: int, request: Request, options: Options) -> Current:
    """Return a step that has only been decided on."""
    route = route_to(request.url, options)
    span_id = options.trace_id and new_id(8)
    request = name_trace(request, options, span_id)
    return Current(number, request, route, Log(), wall_clock(), threading.get_native_id(), span_id=span_id)


def warm_lookup() -> None:
    """Have the C library load what its first lookup needs, so that the dns phase does not hold it.

    In a thread of its own, because a broken resolver may never come back, even for localhost; where none can
    be had, not at all.
    """

    def rehearse() -> None:
        try:
            look_up("localhost", 80, socket.AF_UNSPEC)
        except (OSError, MemoryError):
            pass
        ended.set()

    ended = threading.Event()
    try:
        start_thread(rehearse)
    except NO_THREAD_NOW:
        return
    ended.wait(0.05)


def nap_where_cpus_are_short() -> None:
    """Have the kernel wake this thread on time from then on.

    Linux runs a thread that has waited for its turn before one that has just had it (EEVDF, from 6.6 on).
    After a start that is all computing, the first answers would be noticed a time slice late.
    Device "naps before the clock": without it, where both cores are busy, the 95th percentile of connect is
    2.22 ms off instead of 0.13.
    """
    if run_delay(os.getpid()) > SHORT_OF_CPU:
        for _ in range(NAPS):
            time.sleep(NAP)


def prepare(current: Current, options: Options, contexts: TlsContexts, kept: Kept | None) -> Way:
    """Do what must not happen in the timed region; raises UsageError."""
    protocols: tuple[str, ...] = ("http/1.1",)
    if options.http2 and current.request.url.secure and import_h2():
        protocols = ("h2", "http/1.1")
    way = Way(Setup(current.request, current.route, options, contexts, protocols, current.log), kept)
    way.prepare()
    if way.looks_up:
        warm_lookup()
    return way


def mask_headers(headers: Iterable[Header], secrets: Secrets) -> tuple[Header, ...]:
    """Mask field values; bytes that hold no credential stay as they came."""
    masked = []
    for name, value in headers:
        text = decode(value)
        shown = secrets.mask(text)
        masked.append((name, value if shown == text else shown.encode("utf-8")))
    return tuple(masked)


def shown_headers(sent: Sequence[Header], url: Url, options: Options) -> tuple[Header, ...]:
    """Return what was sent, masked like what came; but not the host that the user typed."""
    masked = mask_headers(sent, options.secrets)
    if url.origin != options.request.url.origin:
        return masked
    pairs = zip(sent, masked)
    return tuple(item if item[0].lower() == "host" else shown for item, shown in pairs)


def shown_url(url: Url, options: Options) -> str:
    """Return a step's URL, masked where a redirect put a credential into it; what the user typed stays."""
    typed = options.request.url
    if url == typed:
        return url.text
    kept = len(url.text) - len(url.target) if url.origin == typed.origin else 0
    return url.text[:kept] + options.secrets.mask(url.text[kept:])


def shown_failure(error: NetworkError, phase: str, url: Url, options: Options) -> Failure:
    """Render an error without the credentials that the other side put into it or into a redirect's host."""
    message, hint = render(error, options.secrets), error.hint
    if url.origin != options.request.url.origin:
        host = options.secrets.mask(url.host)
        message, hint = message.replace(url.host, host), hint.replace(url.host, host)
    return Failure(error.kind, phase, message, hint)


def shown_response(response: Response | None, secrets: Secrets) -> Response | None:
    """Mask what was answered, and read what it claims; an escape may have hidden a credential until then."""
    if response is None:
        return None

    def masked(text: str) -> str:
        return secrets.mask(mask_userinfo(text))

    headers = tuple((secrets.mask(name), value) for name, value in mask_headers(response.headers, secrets))
    cache = read_cache(headers)
    if cache and cache.via:
        cache = cache._replace(via=masked(cache.via))
    timings = tuple(
        metric._replace(
            name=masked(metric.name), description=metric.description and masked(metric.description)
        )
        for _, metric in zip(range(MAX_METRICS), read_metrics(headers))
    )
    reason = secrets.mask(response.reason)
    return response._replace(reason=reason, headers=headers, timings=timings, cache=cache)


def tls_info(handshake: Handshake | None, options: Options) -> TlsInfo | None:
    """Return what a handshake agreed on; of a failed one only the certificates."""
    if handshake is None:
        return None
    version = handshake.version
    return TlsInfo(
        version="TLSv1.0" if version == "TLSv1" else version,
        cipher=handshake.cipher,
        alpn=handshake.alpn,
        verified=handshake.finished and not options.insecure,
        custom_ca=options.ca_bundle is not None,
        chain=tuple(map(parse_certificate, handshake.certificates)),
    )


def own_side(agreed: TlsInfo | None, current: Current, history: History, options: Options) -> TlsInfo | None:
    """Add to what a handshake agreed on what became of the client certificate, in it or after it."""
    happened = {event.name for event in history.events}
    fate = fate_of(offer_of(current.request.url, options), happened)
    return agreed and agreed._replace(shown=fate, wanted="wanted" in happened)


def gather_evidence(history: History, options: Options, dns: int | None) -> Evidence:
    """Read what was kept for the findings, and the resolver's settings after a long lookup."""
    counted = {instant: parse_tcp_info(info) for instant, info in (e.detail for e in history.all("counters"))}
    exchange, handshake = history.detail("asking"), history.detail("handshake")
    resolver = connected = None
    if (dns or 0) > LONG_LOOKUP:
        resolver = read_resolver(options.environ)
    stood = [event.at for event in history.all("dialled") if event.detail.error is None]
    if stood:
        connected = round((stood[-1] - history.ends[0]) / 1000)
    first = history.instant("first byte")
    gaps = [event for event in history.all("gap filled") if first is not None and event.at > first]
    return Evidence(
        stood=counted.get("stood"),
        sent=counted.get("sent"),
        answered=counted.get("answered"),
        ended=counted.get("ended"),
        connected_us=connected,
        hello_retry=bool(handshake and handshake.hello_retry),
        request_bytes=exchange.request_bytes if exchange else 0,
        gaps=len(gaps),
        resolver=resolver,
    )


def is_at_target(current: Current, options: Options) -> bool:
    """Tell whether a step asks the one address that is measured: nothing is looked up for it."""
    first = options.request.url
    place = (first.host, first.port)
    return options.target is not None and current.route.first_hop(current.request.url) == place


def describe_network(current: Current, history: History, options: Options, now: int) -> Network:
    """Gather what is known of the connection."""
    _, counted = history.detail("counters") or ("", b"")
    rtt, retransmits = read_tcp_info(counted)
    if history.kept and retransmits is not None:
        _, before = history.all("counters")[0].detail
        retransmits -= read_tcp_info(before)[1] or 0
    reuse = options.series is not None and options.series.reuse
    peer = history.peer
    if is_at_target(current, options):
        assert options.target
        peer = peer or literal_peer(options.target, current.request.url.port)
    agreed = tls_info(history.detail("handshake"), options)
    port = None
    if current.route.unix_socket is None:
        port = current.route.first_hop(current.request.url)[1]
    return Network(
        peer=peer,
        port=port,
        addresses=history.detail("resolved") or (),
        attempts=history.attempts(now),
        tls=own_side(agreed, current, history, options),
        rtt_us=rtt,
        retransmits=retransmits,
        reused=history.kept if reuse else None,
        reuse_refused=current.refused,
        local_ip=history.detail("local"),
        interface=options.interface and options.interface.text,
    )


def finish(current: Current, history: History, options: Options, ending: Ending | None) -> Step:
    """Make the record of a step. What the network said is masked here, once, for every report."""
    url, failure, failed_at = current.request.url, None, history.instant("looked up")
    if ending:
        failed_at = ending.at
        failure = shown_failure(ending.error, history.phase, url, options)
    waited = 0
    if history.start:
        waited = run_delay(current.thread) - current.delayed
    timing = history.timing(failed_at)
    if is_at_target(current, options):
        timing = timing._replace(dns=None)
    exchange = history.detail("asking")
    sent, sent_bytes = headers_to_send(current.request, current.route), None
    if exchange:
        sent, sent_bytes = exchange.headers, exchange.head_bytes
    return Step(
        number=current.number,
        url=shown_url(url, options),
        request=current.request,
        sent_headers=shown_headers(sent, url, options),
        sent_header_bytes=sent_bytes,
        route=current.route,
        started_at=current.started_at,
        timing=timing,
        network=describe_network(current, history, options, failed_at or time.perf_counter_ns()),
        response=shown_response(history.detail("response"), options.secrets),
        body_bytes=history.received,
        interim=tuple(event.detail for event in history.all("interim")),
        error=failure,
        starved_us=waited // 1000,
        evidence=gather_evidence(history, options, timing.dns),
        span_id=current.span_id,
    )


# ---------------------------------------------------------------------------------------------------------
# 23a. Chain. Steps -> Run; the measuring thread, and the one that waits for it.
# ---------------------------------------------------------------------------------------------------------
class Progress:
    """What the measuring and the waiting thread share of a run; `lock` decides who has the last word."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.lock = threading.Lock()
        self.finished = threading.Event()
        self.started = 0
        self.current: Current | None = None
        self.steps: list[Step] = []
        self.limit_reached = False
        self.abandoned = False
        self.crash: BaseException | None = None

    def commit(self, step: Step) -> bool:
        """Add a step; False when the deadline has passed and the run was reported without it."""
        with self.lock:
            if not self.abandoned:
                self.steps.append(step)
                self.current = None
            return not self.abandoned


NOT_OVER = "the run before was given up on that connection"


class Means(NamedTuple):
    """What all steps of all runs share. `kept` holds the connections that runs leave to the next, or why they
    left none (None: they had none), by origin and address; None where none are to be kept.
    """

    contexts: TlsContexts
    kept: dict[tuple[object, ...], Kept | str | None] | None = None

    def take(self, current: Current, slot: Slot) -> Kept | str | None:
        """Return the connection that was kept for a step, or why none was; the first run opens its own."""
        if self.kept is None:
            return None
        key = (current.request.url.origin, slot.target)
        if slot.round == 1:
            self.kept.setdefault(key, NOT_OVER)
            return None
        found, self.kept[key] = self.kept.get(key), NOT_OVER
        return found

    def leave(self, current: Current, slot: Slot, wanted: bool) -> None:
        """Keep the connection of a step that is over, or close it, as where its run was given up."""
        assert current.way
        if self.kept is None or not wanted:
            current.way.close()
            return
        key = (current.request.url.origin, slot.target)
        before, self.kept[key] = self.kept.get(key), current.way.keep()
        if isinstance(before, Kept):
            before.close()
        if not isinstance(self.kept[key], Kept):
            current.way.close()

    def close(self) -> None:
        for kept in list((self.kept or {}).values()):  # a run that was given up may be at it
            if isinstance(kept, Kept):
                kept.close()


def get_ready(slot: Slot) -> None:
    """Do what is last before the clock of a run starts: rest from the start, or until the run is due."""
    if slot.number == 1:
        nap_where_cpus_are_short()
    left = slot.due - time.perf_counter_ns()
    if left > 0:
        time.sleep(left / 1e9)


def prepare_step(current: Current, options: Options, means: Means, slot: Slot) -> Current:
    """Make a step ready to start, on a kept connection where there is one that will do."""
    kept, refused = means.take(current, slot), None
    if isinstance(kept, str):
        kept, refused = None, kept
    way = prepare(current, options, means.contexts, kept)
    if current.number == 1:
        get_ready(slot)
    gone = way.board()
    if gone:
        way.close()
        way = prepare(current, options, means.contexts, None)
    delayed = run_delay(current.thread)
    return current._replace(way=way, started_at=wall_clock(), delayed=delayed, refused=gone or refused)


def take_step(current: Current, options: Options, means: Means, progress: Progress) -> Step:
    """Prepare, make and record one step; raises what kept the first one from being prepared."""
    try:
        current = progress.current = prepare_step(current, options, means, progress.slot)
    except (UsageError, OSError, MemoryError) as unprepared:
        error = explain_unprepared(unprepared)
        if (current.number == 1 and progress.slot.number <= 1) or not error:
            raise
        return finish(current, current.log.history(), options, Ending(error, 0))
    way, log = current.way, current.log
    assert way
    looks_up, started = way.looks_up, time.perf_counter_ns()
    log.add("start", looks_up, started)
    progress.started = progress.started or started
    if progress.slot.round:
        way.go()
    else:
        way.look_up()
    log.count("ended")
    history = log.history()
    ending = next((Ending(event.detail, event.at) for event in history.all("failed")), None)
    step = finish(current, history, options, ending)
    means.leave(current, progress.slot, not progress.abandoned)
    return step


def broken_redirect(step: Step, error: NetworkError, secrets: Secrets) -> Step:
    """Return the failed step of a redirect that leads nowhere: nothing was sent."""
    assert step.response
    (location, *_) = values_of(step.response.headers, "location")
    text = clip(mask_location(location.decode("utf-8", "surrogateescape")))
    url = percent_encode(resolve_reference(step.url, text))
    return step._replace(
        number=step.number + 1,
        url=url,
        sent_headers=(),
        sent_header_bytes=None,
        started_at=wall_clock(),
        timing=Timing(0, None, None, None, None, 0, None, None),
        network=Network(None, None, (), (), None, None, None, step.network.reused and False),
        response=None,
        body_bytes=0,
        interim=(),
        error=Failure(error.kind, "dns", render(error, secrets), error.hint),
        starved_us=0,
        evidence=Evidence(),
        span_id=step.span_id and new_id(8),
    )


def follow(options: Options, means: Means, progress: Progress) -> None:
    """Make the request, and with --follow those that it leads to: the one loop of the program."""
    request = options.request
    while True:
        current = progress.current = begin_step(len(progress.steps) + 1, request, options)
        step = take_step(current, options, means, progress)
        if not progress.commit(step) or step.error or not step.response or not options.follow:
            return
        # As they came: in the step's own record a credential in them is masked.
        response = current.log.history().detail("response")
        locations = values_of(response.headers, "location")
        if step.response.status not in REDIRECTS or not locations:
            return
        if len(progress.steps) > MAX_REDIRECTS:
            progress.limit_reached = True
            return
        try:
            url = resolve_location(request.url, locations)
        except NetworkError as error:
            progress.commit(broken_redirect(step, error, options.secrets))
            return
        request = next_request(request, step.response.status, url)


def explain_deadline(current: Current, history: History, seconds: float) -> NetworkError:
    """Say what the step was waiting for when the time of -m was over."""
    limit = f"{seconds:g} s"
    if current.way and history.start:
        return current.way.stuck(limit, history)
    if current.number > 1:
        return timed_out("later start", limit)
    return timed_out("start", limit)


def next_current(progress: Progress, options: Options) -> Current:
    """Return a step that has not begun, for a run that ends between two steps; raises MemoryError before one.

    Nothing else keeps the measuring thread from its first line.
    """
    if not progress.steps and progress.slot.number > 1:
        return begin_step(1, options.request, options)
    if not progress.steps:
        raise MemoryError
    (*_, step) = progress.steps
    return begin_step(step.number + 1, step.request, options)


def abandon(progress: Progress, options: Options, deadline: int) -> None:
    """Close the step under way as timed out; one that has just ended is given the moment to be committed."""
    for last_chance in [False] * 30 + [True]:
        with progress.lock:
            current = progress.current
            if progress.finished.is_set():
                return
            if last_chance and not current:
                current = next_current(progress, options)
            history = None
            if current:
                current.log.count("ended")
                history = current.log.history()
            if current and history and (last_chance or not history.ended):
                progress.abandoned = True
                ending = Ending(explain_deadline(current, history, options.max_time), deadline)
                progress.steps.append(finish(current, history, options, ending))
                return
        time.sleep(0.001)


def close_refused(progress: Progress, options: Options, crash: BaseException) -> bool:
    """Close the step whose record this machine had no room for, so that the others are not lost with it.

    Tell whether it was that, and something had been measured.
    """
    error = explain_refusal(crash)
    if not error or not (progress.started or progress.slot.number > 1):
        return False
    crash.with_traceback(None)  # which keeps alive what filled the memory
    current = progress.current or next_current(progress, options)
    ending = Ending(error, time.perf_counter_ns())
    progress.steps.append(finish(current, current.log.history(), options, ending))
    return True


class Watch(NamedTuple):
    """What the waiting thread does meanwhile: `show` is called every `tick` seconds. `stop` tells whether the
    run is no longer wanted.
    """

    show: Callable[[Progress], None]
    tick: float
    stop: Callable[[], bool]


class Stopped(Exception):
    """A run was given up because nobody wants it any more."""


def wait_for_run(progress: Progress, options: Options, watch: Watch) -> None:
    """Wait until the run has ended, never longer than its deadline; raises Stopped."""
    begun = max(time.perf_counter_ns(), progress.slot.due)
    allowed = round(min(options.max_time, 1e9) * 1e9)
    while not (progress.finished.is_set() or progress.crash):
        # What comes before the clock starts is local and quick; 5 s is for a machine in trouble.
        deadline = progress.started + allowed if progress.started else begun + 5_000_000_000
        if progress.current and not progress.started:
            deadline += allowed
        left = (deadline - time.perf_counter_ns()) / 1e9
        if left <= 0:
            abandon(progress, options, deadline)
            return
        pause = min(left, watch.tick) if progress.started else min(options.max_time, watch.tick, left)
        progress.finished.wait(min(pause, 1.0))  # a thread without memory cannot even say that it has ended
        watch.show(progress)
        if watch.stop():
            progress.abandoned = True
            raise Stopped


def clear_away(progress: Progress) -> None:
    """Have the thread of a run that was given up end, so that a series does not gather them.

    What cannot be interrupted (a resolver) is left behind.
    """
    current = progress.current
    if progress.abandoned and current and current.way:
        current.way.give_up()
        progress.finished.wait(0.02)  # the next run may be due


def measure(options: Options, means: Means, watch: Watch, slot: Slot) -> Run:
    """Run the chain in a thread of its own and wait for it, never longer than the deadline.

    What cannot be interrupted (a resolver, a handshake, a SOCKS dialogue) is left behind; nothing joins
    the thread. Raises UsageError, Stopped, and whatever crashed.
    """
    progress = Progress(slot)
    if options.tracing:
        options = options._replace(trace_id=new_id(16))  # a trace of its own

    def work() -> None:
        try:
            follow(options, means, progress)
        except BaseException as error:
            progress.crash = error
        progress.finished.set()

    start_thread(work, min(1.0, options.max_time))
    wait_for_run(progress, options, watch)
    if options.series:
        clear_away(progress)
    if progress.crash and not close_refused(progress, options, progress.crash):
        raise progress.crash
    steps = tuple(progress.steps)
    return Run(steps, progress.limit_reached, slot, progress.started, options.trace_id)


# ---------------------------------------------------------------------------------------------------------
# 23b. Delivery. A document -> a collector, by a way of its own: once, without redirects, under a deadline.
# ---------------------------------------------------------------------------------------------------------
class AnswerReader(Reader):
    """Keeps the body of an answer, up to MAX_COLLECTOR_ANSWER; raises NetworkError for a longer one."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = bytearray()

    def skip(self, most: int) -> int:
        count = super().skip(most)
        self.kept += self._view[self._at - count : self._at]
        if len(self.kept) > MAX_COLLECTOR_ANSWER:
            raise protocol_error(f"its answer is longer than {MAX_COLLECTOR_ANSWER >> 10} KiB")
        return count


class KeptExchange(Http1Exchange):
    """An exchange whose answer is read, not only counted."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._reader = self.answer = AnswerReader()


class Delivery(Way):
    """A way to a collector."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._exchange_of_mine = KeptExchange(setup)
        self._exchanges = {"http/1.1": self._exchange_of_mine}

    @property
    def answer(self) -> bytes:
        return bytes(self._exchange_of_mine.answer.kept)


def rejected_spans(answer: bytes) -> tuple[int, str]:
    """Return how many spans a collector refused, and why (OTLP/HTTP, partial success); 0 where it is silent.

    A count of 64 bits may be a number or a string of digits (JSON mapping of protobuf).
    """
    import json

    try:
        document = json.loads(answer)
        partial = document["partialSuccess"]
        count, why = partial.get("rejectedSpans", 0), partial.get("errorMessage", "")
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return 0, ""
    if isinstance(count, str):
        count = parse_length(count.encode("utf-8", "replace"), 10)
    if not isinstance(count, (int, float)) or not count > 0:  # NaN is not
        return 0, ""
    return round(min(count, 1e15)), str(why)


def check_acceptance(response: Response, answer: bytes) -> None:
    """Raise NetworkError unless a collector took everything."""
    if response.status in REDIRECTS:
        message = "it answered {}, and redirects are not followed: give the URL that the collector has"
        raise NetworkError("redirect", message, "", response.status)
    if not 200 <= response.status < 300:
        said = foreign(f"{response.status} {response.reason}".strip())
        raise NetworkError("protocol", "it answered {}", "", said)
    rejected, why = rejected_spans(answer)
    if rejected:
        raise NetworkError("protocol", "it rejected {} spans: {}", "", rejected, foreign(why or "no reason"))


def deliver(sender: Options, document: bytes) -> None:
    """Send a document to a collector and wait until it is taken, never longer than COLLECTOR_TIME.

    What cannot be interrupted is left behind, as in `measure`. Raises NetworkError, and whatever crashed.
    """
    request = sender.request._replace(body=Body(document, "application/json"))
    log, finished = Log(), threading.Event()
    ways: list[Delivery] = []
    crashes: list[Exception] = []

    def work() -> None:
        try:
            route = route_to(request.url, sender)
            way = Delivery(Setup(request, route, sender, TlsContexts(sender), ("http/1.1",), log))
            way.prepare()
            ways.append(way)
            log.add("start", way.looks_up)
            way.go()
            way.close()
        except Exception as error:
            crashes.append(error)
        finished.set()

    try:
        start_thread(work)
        finished.wait(COLLECTOR_TIME)
    except NO_THREAD_NOW as error:
        crashes.append(error)
    for crash in crashes:
        raise explain_unprepared(crash) or crash
    history = log.history()
    if history.detail("failed"):
        raise history.detail("failed")
    limit = f"{COLLECTOR_TIME:g} s"
    if not ways:
        raise timed_out("start", limit)
    if not history.ended:
        raise ways[0].stuck(limit, history)
    check_acceptance(history.detail("response"), ways[0].answer)


# ---------------------------------------------------------------------------------------------------------
# 24a. Statistics. Samples -> what they have in common: pure functions of whole microseconds. What the number
#      of values cannot bear is None; no mean and no deviation, which one slow run moves at will.
# ---------------------------------------------------------------------------------------------------------
STAT_KEYS = ("dns", "connect", "tls", "wait", "xfer", "ttfb", "total", "send")  # of Timing
OUTLIER_KEYS = ("total", "wait")
OUTLIER_VALUES = 8  # fewer cannot tell what is usual
OUTLIER_DISTANCE = 14.826  # MADs: ten standard deviations of a normal distribution, as hyperfine has it
LEAST_MAD_US = 50.0  # what computing varies by anyway
INTERVAL_RISK = 20  # one in so many that the median lies outside its interval


def median(ordered: Sequence[float]) -> float:
    """Return the middle of sorted values, between the two of an even number."""
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """Return the least of sorted values that so many percent do not exceed: one that was measured."""
    return ordered[max(1, -(-percent * len(ordered) // 100)) - 1]


def interval_rank(count: int) -> int:
    """Return the largest k for which the median lies outside [x(k), x(n-k+1)] with at most 5 %, 0 if there is
    none: under six values. (Both tails of a binomial distribution; no shape of the values is assumed.)
    """
    tail, term, rank = 0, 1, 0  # whole numbers, in units of 2 ** -count
    while True:
        tail += term
        if 2 * INTERVAL_RISK * tail > 1 << count:
            return rank
        rank += 1
        term = term * (count - rank + 1) // rank


class Spread(NamedTuple):
    """How the values of one key lie (us); None for what their number cannot support."""

    stats: dict[str, float | None]
    interval: tuple[int, int] | None = None  # holds the median with 95 % confidence


def measure_spread(values: Iterable[int], rank: int) -> Spread:
    """Sum values up; `rank` is the one of the interval for their number."""
    ordered = sorted(values)
    stats: dict[str, float | None] = dict.fromkeys(SUPPORT)
    if not ordered:
        return Spread(stats)
    for name, least in SUPPORT.items():
        if name.startswith("p") and len(ordered) >= least:
            stats[name] = nearest_rank(ordered, int(name[1:]))
    stats.update(min=ordered[0], median=median(ordered), max=ordered[-1])
    return Spread(stats, (ordered[rank - 1], ordered[-rank]) if rank else None)


def find_outliers(values: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the numbers of the runs whose value lies far from the median; `values` are (value, run)."""
    if len(values) < OUTLIER_VALUES:
        return ()
    middle = median(sorted(value for value, _ in values))
    deviation = max(LEAST_MAD_US, median(sorted(abs(value - middle) for value, _ in values)))
    return tuple(run for value, run in values if abs(value - middle) > OUTLIER_DISTANCE * deviation)


class Summary(NamedTuple):
    """What the samples of a step and URL have in common, of one target, cold or on a kept connection."""

    target: str | None
    number: int
    url: str
    method: str
    reused: bool | None
    runs: int
    late: int
    failures: dict[str, tuple[int, Failure]]  # by kind: how many, and the last
    statuses: dict[int, tuple[int, float]]  # how many, and the median of their total (us)
    spreads: dict[str, Spread]
    outliers: dict[str, tuple[int, ...]]
    refused: dict[str, int]  # why connections were not kept
    facts: Facts | None  # of the last run, but the least round trip and all retransmits
    good: Sequence[Sample]  # those that succeeded
    typical: Sample | None  # the one of them whose total is nearest to the median
    findings: tuple[tuple[Finding, int], ...]  # the costliest of each kind, and how many runs had one

    @property
    def errors(self) -> dict[str, int]:
        return {kind: count for kind, (count, _) in self.failures.items()}

    @property
    def failed(self) -> int:
        return sum(self.errors.values())

    @property
    def measured(self) -> int:
        return self.runs - self.failed

    @property
    def median_us(self) -> float | None:
        return self.spreads["total"].stats["median"]


def count_by(values: Iterable[Any]) -> dict[Any, int]:
    """Count values, in their order of appearance."""
    counts: dict[Any, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts


def spans_text(sizes: Iterable[str]) -> str:
    """Return the range of some numbers, or the one that all of them are."""
    ordered = sorted(set(map(int, sizes)))
    return "-".join(map(str, ordered[:1] + ordered[1:][-1:]))


class Survey(NamedTuple):
    """All runs of a series: what is shown, written and judged of them."""

    series: Series
    probe: Probe
    samples: Sequence[Sample]
    runs: int
    expected: int  # runs, if it was not stopped
    duration_us: int  # from the first start to the last end
    summaries: tuple[Summary, ...]
    verdicts: dict[str | None, Verdict]  # by target
    lookup_us: int | None  # what the lookup of the targets took, None without one
    levels: dict[StepKind, Level]
    newest: dict[StepKind, Step]  # of those that were answered, for a drawn report

    @property
    def failed(self) -> int:
        """Return how many runs failed: the last step of those, and no other."""
        return sum(1 for sample in self.samples if sample.error)

    @property
    def late(self) -> int:
        return sum(1 for sample in self.samples if sample.late and sample.number == 1)

    @property
    def verdict(self) -> Verdict | None:
        """Return the verdict on all targets."""
        if not self.verdicts:
            return None
        violations = [
            each._replace(target=target) for target, one in self.verdicts.items() for each in one.violations
        ]
        not_judged = count_by(key for one in self.verdicts.values() for key in one.not_judged)
        (some, *_) = self.verdicts.values()
        violations.sort(key=lambda violation: violation.key)
        sizes = [one.counts for one in self.verdicts.values()]
        counts = {key: spans_text(count[key] for count in sizes if key in count) for key in sizes[0]}
        lacking = [target for target, one in self.verdicts.items() if target and one.not_judged]
        where = " at " * bool(lacking) + ", ".join(lacking)
        return Verdict(some.step_number, some.thresholds, tuple(violations), tuple(not_judged), counts, where)


def gather_statuses(samples: Sequence[Sample]) -> dict[int, tuple[int, float]]:
    """Return how many samples had each status, and the median of their total (us)."""
    statuses = {}
    for status, count in sorted(count_by(sample.status for sample in samples).items()):
        totals = sorted(sample.timing.total for sample in samples if sample.status == status)
        statuses[status] = (count, median(totals))
    return statuses


def gather_failures(samples: Iterable[Sample]) -> dict[str, tuple[int, Failure]]:
    """Return how many samples failed in each way, and the last of each."""
    failed = [sample.failure for sample in samples if sample.failure]
    counts = count_by(failure.kind for failure in failed)
    return {failure.kind: (counts[failure.kind], failure) for failure in failed}


def values_of_key(key: str, samples: Iterable[Sample]) -> list[tuple[int, int]]:
    """Return the values of a key (us) that there are, each with the number of its run."""
    values = ((getattr(sample.timing, key), sample.run) for sample in samples)
    return [(value, run) for value, run in values if value is not None]


def gather_findings(samples: Iterable[Sample]) -> tuple[tuple[Finding, int], ...]:
    """Return the costliest finding of each kind, and in how many samples it was made: the costliest first."""
    worst: dict[str, Finding] = {}
    found = [finding for sample in samples for finding in sample.findings]
    for finding in found:
        if finding.id not in worst or finding.cost_us > worst[finding.id].cost_us:
            worst[finding.id] = finding
    counts = count_by(finding.id for finding in found)
    ordered = sorted(worst.values(), key=lambda finding: -finding.cost_us)
    return tuple((finding, counts[finding.id]) for finding in ordered)


def gather_facts(facts: Sequence[Facts]) -> Facts | None:
    """Join what was told of a server in several runs: the least round trip, all resent, else the newest."""
    if not facts:
        return None

    def told(name: str) -> list[Any]:
        return [value for value in (getattr(each, name) for each in facts) if value is not None]

    newest = {name: told(name)[-1] for name in Facts._fields if told(name)}
    joined = facts[-1]._replace(**newest)
    if joined.rtt_us is not None:
        joined = joined._replace(rtt_us=min(told("rtt_us")))
    if joined.retransmits is not None:
        joined = joined._replace(retransmits=sum(told("retransmits")))
    return joined


def sum_up(samples: Sequence[Sample]) -> Summary:
    """Sum up samples of one kind. Only successful ones have times: a failure is no fast answer."""
    first = samples[0]
    good = [sample for sample in samples if sample.error is None]
    values = {key: values_of_key(key, good) for key in STAT_KEYS}
    ranks = {len(pairs): interval_rank(len(pairs)) for pairs in values.values()}
    spreads = {
        key: measure_spread((value for value, _ in pairs), ranks[len(pairs)]) for key, pairs in values.items()
    }
    middle = spreads["total"].stats["median"] or 0
    return Summary(
        target=first.target,
        number=first.number,
        url=first.url,
        method=first.method,
        reused=first.reused,
        runs=len(samples),
        late=sum(sample.late for sample in samples),
        failures=gather_failures(samples),
        statuses=gather_statuses(good),
        spreads=spreads,
        outliers={key: find_outliers(values[key]) for key in OUTLIER_KEYS},
        refused=count_by(filter(None, (sample.refused for sample in samples))),
        facts=gather_facts(list(filter(None, (sample.facts for sample in samples)))),
        good=good,
        typical=min(good, key=lambda sample: abs(sample.timing.total - middle), default=None),
        findings=gather_findings(samples),
    )


def sum_up_all(samples: Iterable[Sample]) -> tuple[Summary, ...]:
    """Sum up each step and URL of a chain by itself: by target, then step, the cold ones before the warm."""
    groups: dict[tuple[object, ...], list[Sample]] = {}
    for sample in samples:
        key = (sample.target, sample.number, sample.reused or False, sample.url)
        groups.setdefault(key, []).append(sample)
    targets = list(count_by(target for target, *_ in groups))
    ordered = sorted(groups.items(), key=lambda item: (targets.index(item[0][0]), item[0][1], item[0][2]))
    return tuple(sum_up(group) for _, group in ordered)


# ---------------------------------------------------------------------------------------------------------
# 24b. Verdict. Runs -> the budgets' outcome and the exit code.
# ---------------------------------------------------------------------------------------------------------
def exceeded(key: str, actual: float | None, threshold: float) -> list[Violation]:
    """Return the violation of a budget, if it is one; times in ms."""
    if actual is None or actual <= threshold:
        return []
    delta = round(actual - threshold, 9)  # exact for thresholds with up to nine decimals
    return [Violation(key, threshold, actual, delta)]


def judge(thresholds: dict[str, float], run: Run) -> Verdict | None:
    """Hold the last successful step against the budgets; None when there are none, or no such step.

    Times are whole microseconds by now, so that the verdict can be computed again from what is printed.
    Budgets on statistics, and on phases that a kept connection does not have, are none of a single run.
    """
    step = next((step for step in reversed(run.steps) if not step.error), None)
    plain = {key: value for key, value in thresholds.items() if "." not in key}
    if not plain or not step:
        return None
    violations = []
    for key in sorted(plain):
        violations += exceeded(key, step.timing.ms(key), plain[key])
    return Verdict(step.number, plain, tuple(violations))


def judge_runs(key: str, threshold: float, samples: Iterable[Sample]) -> list[Violation]:
    """Hold every run against a budget, and name the worst."""
    timings = [(sample.timing.ms(key), -sample.run) for sample in samples if sample.judged]
    values = [(actual, run) for actual, run in timings if actual is not None]
    if not values:
        return []
    worst, run = max(values)
    return [violation._replace(run_number=-run) for violation in exceeded(key, worst, threshold)]


def last_values(key: str, samples: Iterable[Sample]) -> list[int] | None:
    """Return the values that a budget on a statistic is about: of the last steps that succeeded, of the warm
    ones where connections are kept. None where those have no such phase.
    """
    phase, _, _ = key.partition(".")
    last = [sample for sample in samples if sample.last and sample.judged and sample.reused is not False]
    values = [value for sample in last for value in [getattr(sample.timing, phase)] if value is not None]
    if last and not values:
        return None
    return values


def judge_statistic(key: str, threshold: float, values: Iterable[int]) -> list[Violation] | None:
    """Hold a statistic of values (us) against a budget; None where there are too few of them."""
    actual = measure_spread(values, 0).stats[key.partition(".")[2]]
    if actual is None:
        return None
    return exceeded(key, round(actual) / 1000, threshold)


def judge_series(thresholds: dict[str, float], samples: Sequence[Sample]) -> Verdict | None:
    """Hold all runs of one target against the budgets; None without any, or without a step to judge."""
    statistics = any("." in key for key in thresholds)
    judged = [sample.number for sample in samples if sample.judged]
    if not thresholds or not (judged or statistics):
        return None
    violations: list[Violation] = []
    not_judged, counts = [], {}
    for key in sorted(thresholds):
        if "." not in key:
            violations += judge_runs(key, thresholds[key], samples)
            continue
        values = last_values(key, samples)
        if values is None:
            continue
        counts[key] = str(len(values))
        found = judge_statistic(key, thresholds[key], values)
        if found is None:
            not_judged.append(key)
        violations += found or ()
    last = max((sample.number for sample in samples), default=1)
    return Verdict(last, thresholds, tuple(violations), tuple(not_judged), counts)


class Outcome(NamedTuple):
    """What the exit code depends on, of one run or of all."""

    limit_reached: bool
    failed: bool
    error_status: bool  # the last response was 4xx or 5xx


def outcome_of(run: Run) -> Outcome:
    last = run.steps[-1].response
    error_status = last is not None and 400 <= last.status < 600
    return Outcome(run.limit_reached, any(step.error for step in run.steps), error_status)


def choose_exit_code(outcome: Outcome, fail: bool, unwritten: bool, passed: bool) -> ExitCode:
    """Return the code of the first condition that holds, in the specification's order of priority."""
    table = (
        (outcome.limit_reached, ExitCode.REDIRECT_LIMIT),
        (outcome.failed, ExitCode.NETWORK),
        (unwritten, ExitCode.WRITE),
        (fail and outcome.error_status, ExitCode.HTTP_ERROR),
        (not passed, ExitCode.SLO),
    )
    return next((code for holds, code in table if holds), ExitCode.OK)


# ---------------------------------------------------------------------------------------------------------
# 25a. Findings. Step, Run -> what the times mean: pure functions, a rule each, silent unless it is worth it.
#     The tolerances were measured on Linux 6.18 over paths of 2 to 300 ms. What one end cannot tell apart
#     is not claimed: a text names both causes, and what `fits` a pattern is said to fit.
# ---------------------------------------------------------------------------------------------------------
WORTH_US, WORTH_SHARE = 5_000, 0.1  # a finding costs at least so much, and so much of its step's total
MIN_RTT_US = 2_000  # below, what computing takes looks like round trips
FIRST_WINDOW = 10  # segments that a sender may send at once (RFC 6928)
SLOW_START_RTT_US = 5_000  # below, sending and reading take as long as the round trips
TLS12_TRIPS = 1.8  # round trips: TLS 1.2 took 2.03-2.17 of them, TLS 1.3 1.03-1.19
LARGE_FLIGHT = 8  # segments: of a server that writes piece by piece, 13 kB do not fit the first window
LARGE_FLIGHT_TRIPS = 0.8  # of a round trip at least that such a flight costs
SLOW_US = 50_000  # less may be computing
SLOW_TRIPS = 2  # round trips; less may be one lost packet or one flight more
FITS = (0.95, 1.25)  # of the time that a number of round trips takes
WINDOW, WINDOW_SHARE = 65_535, 0.1  # bytes a round trip without window scaling (RFC 7323 section 2)
AT_ONCE_US, AT_ONCE_SHARE = 5_000, 0.2  # of a round trip: what a server may need to answer at once
LOOKUP_SLACK_US = 250_000  # that an answer may need once a time-out has passed
SET_UP_SHARE, CHAIN_SHARE, HALF = 0.6, 0.3, 0.5
LEAST_CLAIM_MS = 1  # that is worth repeating of what a server says of its own time
ALIKE = 0.15  # two times that differ by less are alike


def time_text(us: float) -> str:
    if us >= 100_000:
        return f"{us / 1000:.0f} ms"
    return f"{us / 1000:.1f} ms"


def times_text(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def counted(count: int, noun: str, one: str = "1") -> str:
    """Return a number of things: '3 segments', or a single one with the word for it."""
    if count == 1:
        return f"{one} {noun}"
    return f"{count} {noun}s"


def trips_text(count: int) -> str:
    return counted(count, "round trip")


def first_of(words: Sequence[str], most: int) -> str:
    """List the first of some words; an ellipsis stands for the others."""
    listed = ", ".join(words[:most])
    if words[most:]:
        listed += ", …"
    return listed


def rate_text(count: int, us: int) -> str:
    return f"{count * 8 / max(1, us):.1f} Mbit/s"


def in_ms(us: int) -> float:
    return us / 1000


def growth(before: Counters | None, after: Counters | None, name: str) -> int | None:
    """Return by how much a counter grew between two instants; None where one of them does not tell."""
    first: int | None = getattr(before, name, None)
    last: int | None = getattr(after, name, None)
    if first is None or last is None:
        return None
    return last - first


def slow_start_trips(segments: int) -> int:
    """Return the round trips that so many segments take to leave: 10, 20, 40 of them … (RFC 6928, 5681)."""
    trips = 1
    while FIRST_WINDOW * (2**trips - 1) < segments:
        trips += 1
    return trips


def fits(time_us: int, expected_us: float) -> bool:
    """Tell whether a time is what was expected; more is tolerated than less, which nothing explains."""
    return FITS[0] * expected_us <= time_us <= FITS[1] * expected_us


class Case(NamedTuple):
    """A step with what several rules need. `rtt` is the round trip to the server (us), None behind a proxy
    and where it is too short to build on; `hop` the one to whatever TCP was connected to, 0 if unknown.
    """

    step: Step
    timing: Timing
    evidence: Evidence
    winner: Attempt | None
    hop: int
    rtt: int | None
    handshake_trips: int

    def grown(self, name: str, since: str, until: str) -> int | None:
        """Return by how much a counter grew between two instants of the evidence."""
        return growth(getattr(self.evidence, since), getattr(self.evidence, until), name)

    @property
    def resent(self) -> int | None:
        """Return how often the request was sent again although it had not come (RFC 2883 tells)."""
        until = "ended"
        if self.evidence.answered:
            until = "answered"
        again = self.grown("retransmits", "sent", until)
        needless = self.grown("duplicates", "sent", "ended")
        if not again:
            return again
        if needless is None:
            return None
        return max(0, again - needless)

    @property
    def resending_us(self) -> int:
        """Return what sending the request again cost: the first time-out, doubled each time (RFC 6298)."""
        if not self.resent or self.timing.wait is None:
            return 0
        first = min(2 * self.hop + 200_000, self.hop + max(200_000, 2 * self.hop))
        waited: int = first * (2 ** min(self.resent, 16) - 1)  # the kernel gives up before that
        return max(0, min(self.timing.wait - self.hop, waited))

    @property
    def serving_us(self) -> int | None:
        """Return the part of the wait that the path does not explain; None where that cannot be told."""
        if self.rtt is None or self.timing.wait is None or not self.evidence.answered or self.resent is None:
            return None
        stood, connecting = self.evidence.stood, 0
        if self.winner and stood and not stood.retransmits:
            connecting = self.winner.duration_us
        return self.timing.wait - max(self.rtt, connecting) - self.resending_us

    @property
    def request_fits_window(self) -> bool:
        sent = self.evidence.sent
        return sent is not None and self.evidence.request_bytes <= FIRST_WINDOW * sent.segment

    @property
    def shaking_us(self) -> int | None:
        """Return the part of tls that neither the path nor this machine explains; None without TLS or answer.

        What passed since the other side's last words, or without a CPU, was spent here.
        """
        took, sent = self.timing.tls, self.evidence.sent
        if took is None or self.rtt is None or not sent or not self.handshake_trips:
            return None
        return took - self.handshake_trips * self.rtt - max(sent.quiet_us, self.step.starved_us)

    @property
    def lost_in_tls(self) -> int:
        """Return how many segments of the handshake were sent again here or came out of order."""
        again, disorder = (self.grown(name, "stood", "sent") for name in ("retransmits", "disorder"))
        return (again or 0) + (disorder or 0)


def open_case(step: Step) -> Case:
    """Gather what the rules need."""
    ended = step.evidence.ended
    hop = (ended and ended.rtt_us) or 0
    winner = next((attempt for attempt in step.network.attempts if not attempt.error), None)
    tls = step.network.tls
    trips = 0
    if tls and tls.version and not step.network.reused:
        trips = {"TLSv1.3": 1}.get(tls.version, 2) + step.evidence.hello_retry
    path = None
    if hop >= MIN_RTT_US and not step.route.proxy:
        path = hop
    return Case(step, step.timing, step.evidence, winner, hop, path, trips)


def lost_syn(case: Case) -> Finding | None:
    """Find a SYN that was sent again: when TCP stands, nothing else can have been."""
    stood = case.evidence.stood
    if not stood or not stood.retransmits or not case.winner:
        return None
    again = times_text(stood.retransmits)
    text = (
        f"the SYN had to be sent again, {again}: it or its answer was lost or late "
        "(loss, a firewall, a full listen queue)"
    )
    evidence = {"retransmits": stood.retransmits, "attempt_ms": in_ms(case.winner.duration_us)}
    cost = case.winner.duration_us - case.hop
    return Finding("syn_lost", "connect", cost, "seen", text, {**evidence, "rtt_ms": in_ms(case.hop)})


def family_of(ip: str) -> str:
    return "IPv6" if ":" in ip else "IPv4"


def attempt_text(attempt: Attempt) -> str:
    """Say what became of an attempt that failed."""
    if attempt.error == GIVEN_UP:
        return f"{attempt.ip} gave no answer for {time_text(attempt.duration_us)}"
    return f"{attempt.ip}: {attempt.error}"


def failed_address(case: Case) -> Finding | None:
    """Name the addresses that were tried in vain before the one that answered."""
    attempts, winner = case.step.network.attempts, case.winner
    if not winner or case.evidence.connected_us is None or not attempts.index(winner):
        return None
    failed = attempts[: attempts.index(winner)]
    name, instead = "address_failed", winner.ip
    if family_of(winner.ip) not in {family_of(attempt.ip) for attempt in failed}:
        name, instead = "family_fallback", family_of(winner.ip)
    text = f"{first_of([attempt_text(attempt) for attempt in failed], 3)}; {instead} was used instead"
    if any(attempt.error == GIVEN_UP for attempt in failed):
        text += ": clients that do not race their addresses wait for the whole time-out"
    evidence = {"failed": [attempt.ip for attempt in failed], "used": winner.ip}
    return Finding(name, "connect", case.evidence.connected_us - winner.duration_us, "seen", text, evidence)


def silent_resolver(case: Case) -> Finding | None:
    """Find the sum of time-outs that a lookup has just outlasted."""
    dns, resolver, error = case.timing.dns, case.evidence.resolver, case.step.error
    if dns is None or not resolver or (error and error.phase == "dns" and error.kind != "dns"):
        return None
    sums = [sum(resolver.waits[: count + 1]) for count in range(len(resolver.waits))]
    past = [index for index, total in enumerate(sums) if 0 <= dns - total <= LOOKUP_SLACK_US]
    if not past:
        return None
    count = min(past[0] + 1, len(resolver.servers))
    listed = ", ".join(resolver.servers)
    who = f"{count} of the name servers in resolv.conf ({listed})"
    if len(resolver.servers) == 1:
        who = f"the name server {listed}"
        if listed.startswith("127.") or listed == "::1":
            who = f"the local resolver ({listed})"
    text = f"this fits the resolver's time-outs: {who} did not answer in time"
    evidence = {"servers": list(resolver.servers), "timeouts_ms": in_ms(sums[past[0]])}
    return Finding("resolver_timeout", "dns", sums[past[0]], "fits", text, evidence)


def old_tls(case: Case) -> Finding | None:
    """Find the round trip that a TLS before 1.3 takes more, where it was taken indeed."""
    tls, took, rtt = case.step.network.tls, case.timing.tls, case.rtt
    if not tls or not tls.version or tls.version == "TLSv1.3" or rtt is None or not case.evidence.sent:
        return None
    if took is None or took < TLS12_TRIPS * rtt:
        return None
    version = tls.version.replace("v", " ")
    text = f"{version} takes a round trip more than TLS 1.3 would"
    evidence = {"tls_version": version, "tls_ms": in_ms(took), "rtt_ms": in_ms(rtt)}
    return Finding("tls12", "tls", rtt, "seen", text, evidence)


def repeated_hello(case: Case) -> Finding | None:
    """Price a HelloRetryRequest (RFC 8446 section 4.1.4): a round trip."""
    if not case.evidence.hello_retry or case.rtt is None or case.step.network.reused:
        return None
    text = "the server refused the first key share (HelloRetryRequest), which takes a round trip more"
    return Finding("hello_retry", "tls", case.rtt, "seen", text, {"rtt_ms": in_ms(case.rtt)})


def large_certificate(case: Case) -> Finding | None:
    """Tell a handshake whose certificates took round trips more from one that is slow."""
    excess, rtt, sent = case.shaking_us, case.rtt, case.evidence.sent
    flight = case.grown("received", "stood", "sent")
    if excess is None or rtt is None or not sent or flight is None or case.lost_in_tls:
        return None
    if flight < LARGE_FLIGHT * sent.segment or excess < LARGE_FLIGHT_TRIPS * rtt:
        return None
    text = (
        f"this fits a certificate chain that is too large: the server's handshake of {flight / 1000:.0f} kB "
        "does not fit its first window"
    )
    evidence = {"handshake_bytes": flight, "segment_bytes": sent.segment, "rtt_ms": in_ms(rtt)}
    return Finding("large_certificate", "tls", excess, "fits", text, evidence)


def slow_tls(case: Case) -> Finding | None:
    """Find a handshake that took more than its round trips, and not for the size of its certificates."""
    excess, rtt, took = case.shaking_us, case.rtt, case.timing.tls
    if excess is None or rtt is None or took is None or large_certificate(case):
        return None
    if excess < max(SLOW_US, SLOW_TRIPS * rtt):
        return None
    lost = case.lost_in_tls
    certainty, text = "seen", f"segments of the handshake were lost or came out of order ({lost})"
    if not lost:
        certainty, text = "fits", f"about {time_text(excess)} more than {trips_text(case.handshake_trips)}"
        text += ": the server, or a box in between, was slow to answer the handshake, or its answer was lost"
    evidence = {"tls_ms": in_ms(took), "rtt_ms": in_ms(rtt), "lost_segments": lost}
    return Finding("tls_slow", "tls", excess, certainty, text, evidence)


# ---------------------------------------------------------------------------------------------------------
# 25b. Findings in the wait, the transfer and the whole; what is worth telling.
# ---------------------------------------------------------------------------------------------------------
def longest_first(timings: Iterable[Metric]) -> list[Metric]:
    """Return metrics by falling duration, those without one at the end."""
    return sorted(timings, key=lambda metric: (metric.duration_ms is None, -(metric.duration_ms or 0)))


def slow_server(case: Case) -> Finding | None:
    """Find a wait that the path does not explain, of a request small enough to leave at once."""
    took, wait, rtt = case.serving_us, case.timing.wait, case.rtt
    if took is None or wait is None or rtt is None or not case.request_fits_window:
        return None
    if took < max(SLOW_US, SLOW_TRIPS * rtt):
        return None
    text = f"the server, or what is behind it, took about {time_text(took)} of these {time_text(wait)}"
    evidence: dict[str, object] = {"wait_ms": in_ms(wait), "rtt_ms": in_ms(rtt)}
    if case.grown("retransmits", "sent", "answered") and case.resent == 0:
        text += ", or the request was late on the way: it was sent again for nothing"
    claims = longest_first(case.step.timings)
    longest = claims[0].duration_ms if claims else None
    if longest and LEAST_CLAIM_MS <= longest <= in_ms(wait):
        text += f"; it accounts for {longest:.0f} ms itself ({clip(claims[0].name, MAX_FOREIGN)})"
        evidence["server_timing_ms"] = longest
    return Finding("server", "wait", took, "fits", text, evidence)


def lost_request(case: Case) -> Finding | None:
    """Price a request that was sent again by the time-outs that the kernel let pass."""
    cost, left, again = case.resending_us, case.serving_us, case.resent
    if not cost or not again or case.timing.wait is None:
        return None
    what = "the request"
    if case.handshake_trips:
        what += ", or the end of the handshake before it,"
    text = f"{what} was lost or late and sent again, {times_text(again)}"
    if left is not None and abs(left - cost) <= ALIKE * left:
        text += "; the server took about as long again, or its answer was lost too"
    elif again > 1:
        text += "; part of this may be the server's own time"
    evidence = {
        "retransmits": again,
        "wait_ms": in_ms(case.timing.wait),
        "rtt_ms": in_ms(case.hop),
    }
    return Finding("request_lost", "wait", cost, "seen", text, evidence)


def long_upload(case: Case) -> Finding | None:
    """Find a wait that is as long as slow start needs for the segments of the body."""
    wait, rtt, answered = case.timing.wait, case.rtt, case.evidence.answered
    if wait is None or rtt is None or not answered or case.request_fits_window or case.step.network.reused:
        return None  # the window of a kept connection may be anything
    trips = slow_start_trips(answered.segments_out)
    if case.grown("retransmits", "sent", "answered") or not fits(wait, trips * rtt):
        return None
    text = (
        f"this fits {trips_text(trips)} that the body took to leave, as slow start lets it; "
        f"a path or server of {rate_text(case.evidence.request_bytes, wait)} would look alike"
    )
    evidence = {
        "request_bytes": case.evidence.request_bytes,
        "segments": answered.segments_out,
        "round_trips": trips,
        "rtt_ms": in_ms(rtt),
    }
    # A request of any size takes one.
    return Finding("upload", "wait", (trips - 1) * rtt, "fits", text, evidence)


def mere_distance(case: Case) -> Finding | None:
    """Find that round trips are most of the whole, while the server answered at once."""
    wait, rtt = case.timing.wait, case.rtt
    if wait is None or rtt is None or not case.evidence.answered:
        return None
    trips, verb = 2 + case.handshake_trips, "are"
    if case.step.network.reused:
        trips, verb = 1, "is"
    if wait > rtt + max(AT_ONCE_US, AT_ONCE_SHARE * rtt) or trips * rtt < HALF * case.timing.total:
        return None
    text = f"the server answered at once: {trips_text(trips)} of {time_text(rtt)} {verb} the distance to it"
    evidence = {"round_trips": trips, "rtt_ms": in_ms(rtt), "wait_ms": in_ms(wait)}
    return Finding("distance", None, trips * rtt, "seen", text, evidence)


def lossy_download(case: Case) -> Finding | None:
    """Find segments of the response that came out of order, and charge two round trips at most."""
    xfer, rtt = case.timing.xfer, case.rtt
    # By the time the counters are read at the first byte, the burst behind it has come too. What was missing
    # before that byte took its time from wait.
    if not (case.grown("disorder", "answered", "ended") or case.evidence.gaps):
        return None
    disorder = case.grown("disorder", "sent", "ended")
    received, sent = case.grown("received", "sent", "ended"), case.evidence.sent
    if xfer is None or rtt is None or not disorder or not received or not sent or not sent.segment:
        return None
    segments = -(-received // sent.segment)  # without those that came twice
    cost = min(xfer - (slow_start_trips(segments) - 1) * rtt, 2 * rtt)
    some = counted(disorder, "segment", "a")
    text = f"{some} of the response came out of order: loss or reordering on the way here"
    evidence = {"out_of_order": disorder, "segments": segments, "rtt_ms": in_ms(rtt)}
    return Finding("download_loss", "xfer", cost, "seen", text, evidence)


def slow_start(case: Case) -> Finding | None:
    """Find a transfer that is as long as slow start needs for its segments, all in order."""
    xfer, rtt = case.timing.xfer, case.rtt
    segments = case.grown("segments_in", "sent", "ended")
    if xfer is None or rtt is None or rtt < SLOW_START_RTT_US or segments is None or case.step.error:
        return None
    if case.step.network.reused:  # its window has grown already
        return None
    trips = slow_start_trips(segments) - 1  # the first flight came with the first byte, within wait
    if not trips or not fits(xfer, trips * rtt) or case.grown("disorder", "sent", "ended") != 0:
        return None
    text = (
        f"this fits {trips_text(trips)} of slow start, whatever the bandwidth; "
        f"a path or server of {rate_text(case.step.body_bytes, xfer)} would look alike"
    )
    evidence = {"segments": segments, "round_trips": trips, "rtt_ms": in_ms(rtt)}
    return Finding("slow_start", "xfer", xfer, "fits", text, evidence)


def small_window(case: Case) -> Finding | None:
    """Find a transfer of 64 KiB a round trip, all that fits a window without scaling."""
    xfer, rtt, ended = case.timing.xfer, case.rtt, case.evidence.ended
    if not xfer or rtt is None or not ended or ended.window_scaling or case.step.error:
        return None
    each = case.step.body_bytes * rtt / xfer
    if abs(each - WINDOW) > WINDOW_SHARE * WINDOW:
        return None
    text = f"this fits a window of 64 KiB without scaling: {each / 1000:.0f} kB came each round trip"
    evidence = {"bytes_each_round_trip": round(each), "rtt_ms": in_ms(rtt)}
    return Finding("window", "xfer", xfer, "fits", text, evidence)


# The round trips that a proxy needs at least, at most: CONNECT; TLS 1.2 before it; SOCKS with a password (RFC
# 1928, 1929).
PROXY_TRIPS = {"http": 1, "https": 3, "socks5": 3, "socks5h": 3}


def slow_proxy(case: Case) -> Finding | None:
    """Find that at least half of connect passed after TCP to the proxy stood, and more than it had to."""
    connect, stood = case.timing.connect, case.evidence.connected_us
    proxy, error = case.step.route.proxy, case.step.error
    if not proxy or connect is None or stood is None or connect - stood < HALF * connect:
        return None
    least = PROXY_TRIPS[proxy.scheme] * stood
    if connect - stood < least + max(AT_ONCE_US, AT_ONCE_SHARE * least):
        return None
    what = "took this to open the way"
    if error and error.phase == "connect":
        what = "had this time and did not open the way"
    text = f"the proxy {what}, once TCP to it stood after {time_text(stood)}"
    evidence = {"connect_ms": in_ms(connect), "tcp_ms": in_ms(stood)}
    return Finding("proxy", "connect", connect - stood, "seen", text, evidence)


def set_up(case: Case) -> Finding | None:
    """Find that most of the whole is what a connection that stood already would save."""
    parts = (case.timing.dns, case.timing.connect, case.timing.tls)
    response, total = case.step.response, case.timing.total
    if case.step.error or not response or response.status >= 400:
        return None
    cost = sum(part or 0 for part in parts)
    if cost < SET_UP_SHARE * total:
        return None
    warm = time_text(total - cost)
    text = f"setting up is most of it: on a warm connection the request would take about {warm}"
    evidence = {"set_up_ms": in_ms(cost), "total_ms": in_ms(total)}
    return Finding("setup", None, cost, "seen", text, evidence)


def closing_server(case: Case) -> Finding | None:
    """Tell that a server keeps no connection (RFC 9112 section 9.3), unless it was asked for that."""
    costly, response = set_up(case), case.step.response
    if not costly or not response or not response.http_version.startswith("HTTP/1"):
        return None
    said, asked = connection_tokens(response.headers), connection_tokens(case.step.sent_headers)
    old = response.http_version == "HTTP/1.0" and "keep-alive" not in said
    if "close" in asked or not (old or "close" in said):
        return None
    how = "Connection: close" if "close" in said else "HTTP/1.0"
    text = f"the server closes the connection ({how}): every request pays for setting it up"
    evidence = {**costly.evidence, "http_version": response.http_version}
    return Finding("closes", None, costly.cost_us, "seen", text, evidence)


def short_of_cpu(case: Case) -> Finding | None:
    """Find that the kernel let this process wait for a CPU, which may have made any time longer."""
    starved = case.step.starved_us
    if starved <= STARVED_US:
        return None
    text = "this process was kept from running: times that end on this machine may be too long"
    return Finding("starved", None, starved, "seen", text, {"starved_ms": in_ms(starved)})


RULES: tuple[Callable[[Case], Finding | None], ...] = (
    lost_syn,
    failed_address,
    silent_resolver,
    old_tls,
    repeated_hello,
    large_certificate,
    slow_tls,
    slow_server,
    lost_request,
    long_upload,
    mere_distance,
    lossy_download,
    slow_start,
    small_window,
    slow_proxy,
    set_up,
    closing_server,
    short_of_cpu,
)


def read_step(step: Step) -> tuple[Finding, ...]:
    """Return what the times of a step mean, the costliest first; nothing that is not worth saying."""
    case = open_case(step)
    least = max(WORTH_US, WORTH_SHARE * step.timing.total)
    made = [finding for finding in (rule(case) for rule in RULES) if finding]
    return tuple(sorted((f for f in made if f.cost_us >= least), key=lambda f: -f.cost_us))


def read_chain(run: Run) -> tuple[Finding, ...]:
    """Return what the times of a whole chain mean."""
    before = sum(step.timing.total for step in run.steps[:-1])
    total = before + run.steps[-1].timing.total
    if before < max(WORTH_US, CHAIN_SHARE * total):
        return ()
    count = len(run.steps) - 1
    text = f"{counted(count, 'redirect', 'a')} took {time_text(before)} of {time_text(total)}"
    evidence = {"redirects": count, "redirects_ms": in_ms(before), "total_ms": in_ms(total)}
    return (Finding("redirects", None, before, "seen", text, evidence),)


# ---------------------------------------------------------------------------------------------------------
# 26. Words. Numbers and names -> text; the machine-readable lines.
# ---------------------------------------------------------------------------------------------------------
def visible(text: str) -> str:
    """Show what is not printable (controls, bidi overrides, line separators, surrogates) as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else codecs.unicode_escape_encode(char)[0].decode("ascii") for char in text
    )


WORD = {True: "pass", False: "fail"}


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
    whole, point, decimals = f"{value:.3f}".partition(".")
    return whole + point + (decimals.rstrip("0") or "0")


def family_name(peer: Peer | None) -> str | None:
    return peer and FAMILY_NAMES[peer.family]


def second_text(moment: datetime.datetime | None) -> str | None:
    """Return RFC 3339, UTC, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None


def fixed(value: float | None, decimals: int, unit: str = "") -> str:
    """Return a number with so many decimals, `-` for what does not exist."""
    return "-" if value is None else f"{value:.{decimals}f}{unit}"


def verdict_tokens(verdict: Verdict) -> Iterator[str]:
    yield f"slo={WORD[verdict.passed]}"
    if verdict.violations:
        yield "slo_violations=" + ",".join(violation.key for violation in verdict.violations)


def step_title(number: int, slot: Slot | None) -> str:
    """Return what the line of a step begins with; in a series it tells the run, and the address if chosen."""
    if slot is None:
        return f"Step {number}"
    return " ".join(word for word in (f"Run {slot.number} Step {number}", slot.target) if word)


def metrics_line(step: Step, verdict: Verdict | None, slot: Slot | None = None) -> str:
    """Return the key=value line of a step; `-` stands for what does not exist."""
    tokens = [f"{key}={fixed(step.timing.ms(key), 3)}" for key in LINE_KEYS]
    values = {
        "status": step.answer and step.answer.status,
        "bytes": step.body_bytes,
        "ip": step.network.ip or "-",
        "family": family_name(step.network.peer) or "-",
        "tls_version": (step.network.tls and step.network.tls.version) or "-",
        "proxy": (step.route.proxy and step.route.proxy.shown) or "direct",
    }
    tokens += [f"{key}={value or 0}" for key, value in values.items()]
    if step.error:
        tokens.append(f"error={step.error.kind}")
    if verdict and verdict.step_number == step.number:
        tokens += verdict_tokens(verdict)
    return f"{step_title(step.number, slot)}: " + " ".join(tokens)


def compact_line(step: Step, slot: Slot | None = None) -> str:
    """Return the line of a step for a reader."""
    times = " ".join(f"{key}={fixed(step.timing.ms(key), 1, 'ms')}" for key in LINE_KEYS)
    status, end = "ERROR", size_text(step.body_bytes)
    if step.error:
        end = f"{step.error.kind}: {step.error.message}"
    elif step.answer:
        status = str(step.answer.status)
    title = step_title(step.number, slot)
    return f"{title}: {status} {step.request.method} {clip(step.url)} | {times} | {end}"


def rounded_ms(us: float | None) -> float | None:
    """Return ms as they are told and compared, to 0.001."""
    return None if us is None else round(us) / 1000


SUMMARY_STATS = ("min", "median", "p95", "max")


def summary_line(summary: Summary, url: bool, verdict: Verdict | None, compact: bool) -> str:
    """Return the key=value line of a summary; `url` tells whether it is needed to tell two apart."""
    decimals, unit = (1, "ms") if compact else (3, "")
    tokens = [f"runs={summary.runs}", f"failed={summary.failed}", f"late={summary.late}"]
    for key in (*PHASES, "ttfb", "total"):
        stats = summary.spreads[key].stats
        for name in SUMMARY_STATS:
            tokens.append(f"{key}_{name}={fixed(rounded_ms(stats[name]), decimals, unit)}")
    if url:
        tokens.append(f"url={summary.url}")
    if summary.target:
        tokens.append(f"target={summary.target}")
    if summary.reused is not None:
        tokens.append(f"reused={str(summary.reused).lower()}")
    if verdict:
        tokens += verdict_tokens(verdict)
    return f"Summary {summary.number}: " + " ".join(tokens)


def failure_text(number: int, failure: Failure, slot: Slot | None = None) -> str:
    """Say why a step failed and what to try, in one line."""
    return f"{step_title(number, slot).lower()}: {failure.message.rstrip('.')}. {failure.hint}"


FATES = {  # of SHOWN, in a row
    "sent": "sent",
    "not asked for": "not asked for",
    "not sent": "asked for, but the handshake ended before",
    "withheld": "withheld: it is for the first URL's origin alone",
    "unfit": "asked for, but not of the kind that was given",
}


def lacks_certificate(step: Step) -> bool:
    """Tell whether a response may have been refused for want of a client certificate."""
    tls, answer = step.network.tls, step.answer
    refused = answer is not None and 400 <= answer.status < 500
    return refused and tls is not None and tls.wanted and tls.shown == "none given"


LACKING = "the server asked for a client certificate, and none was given: --cert PATH"


def lacking_text(step: Step) -> str:
    return f"in step {step.number} {LACKING}"


def status_text(progress: Progress) -> str:
    """Say what a run is doing, for the status line."""
    current = progress.current
    if not current:
        return ""
    history = current.log.history()
    if not history.start:
        return ""
    phase, spent = history.phase, max(1, time.perf_counter_ns() - history.newest)
    text = f"step {current.number}: {phase} {spent / 1e9:.1f} s"
    if phase == "xfer" and history.received:
        rate = history.received * 1e9 / spent
        text += f", {size_text(history.received)} at {size_text(round(rate))}/s"
    return text


def series_progress(interval: float, wanted: int, samples: Sequence[Sample]) -> str:
    """Say how far a series of `wanted` runs is, `interval` seconds from one to the next."""
    runs = max((sample.run for sample in samples[-1:]), default=0)
    filled = 10 * runs // wanted
    parts = [f"run {min(runs + 1, wanted)} of {wanted} [{'#' * filled:<10}]"]
    if samples:
        spent = (samples[-1].started_at - samples[0].started_at).total_seconds()
        each = max(interval, spent / max(1, runs - 1))
        parts.append(f"{each * (wanted - runs):.0f} s left")
    answered = sorted(
        sample.timing.ttfb for sample in samples if sample.judged and sample.timing.ttfb is not None
    )
    if answered:
        parts.append(f"ttfb {median(answered) / 1000:.1f} ms")
    failed = sum(1 for sample in samples if sample.error)
    if failed:
        parts.append(f"{failed} failed")
    return ", ".join(parts)


def starved_runs_text(starved: int, runs: int) -> str:
    return (
        f"in {starved} of {runs} runs this process was kept waiting for a CPU: "
        "times that end on this machine may be too long"
    )


# ---------------------------------------------------------------------------------------------------------
# 27a. Documents, JSON. Report, Survey -> values.
# ---------------------------------------------------------------------------------------------------------
def instant_text(moment: datetime.datetime) -> str:
    """Return RFC 3339, UTC, with milliseconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def shown_value(name: str, value: bytes) -> str:
    """Return the value of a header field, what is a credential masked."""
    if name.lower() in SECRET_HEADERS:
        return "***"
    if name.lower() == "location":
        return mask_location(decode(value))
    return mask_userinfo(decode(value))


def header_list(headers: Iterable[Header]) -> list[dict[str, str]]:
    return [{"name": name, "value": shown_value(name, value)} for name, value in headers]


ILLEGIBLE = Certificate(None, None, None, None, None, None)
NO_TLS = TlsInfo(None, None, None, False, False, ())


def chain_document(info: TlsInfo, now: datetime.datetime) -> list[dict[str, Any]]:
    """Return the certificates that the server sent, its own first."""
    return [
        {
            "cn": certificate.common_name,
            "issuer": certificate.issuer,
            "not_after": second_text(certificate.not_after),
            "days_left": certificate.days_left(now),
        }
        for certificate in (sent or ILLEGIBLE for sent in info.chain)
    ]


def tls_fields(agreed: TlsInfo | None, now: datetime.datetime) -> dict[str, Any]:
    """Return what TLS agreed on; all of it is null without TLS, and but for the chain, which is empty."""
    info = agreed or NO_TLS
    certificate = info.certificate or ILLEGIBLE
    return {
        "alpn": info.alpn,
        "tls_version": info.version and info.version.replace("v", " "),
        "tls_cipher": info.cipher,
        "cert_cn": certificate.common_name,
        "cert_sans": certificate.names,
        "cert_issuer": certificate.issuer,
        "cert_serial": certificate.serial,
        "cert_not_before": second_text(certificate.not_before),
        "cert_not_after": second_text(certificate.not_after),
        "cert_days_left": certificate.days_left(now),
        "cert_chain": chain_document(info, now),
        "tls_verified": agreed and agreed.verified,
        "tls_custom_ca": agreed and agreed.custom_ca,
        "client_cert": agreed and {"none given": None, "sent": True}.get(agreed.shown, False),
    }


def network_document(step: Step) -> dict[str, Any]:
    """Return how the server was reached, as far as it was."""
    network, route = step.network, step.route
    document = {
        "ip": network.ip,
        "ip_family": family_name(network.peer),
        "port": network.port,
        "unix_socket": route.unix_socket,
        "local_ip": network.local_ip,
        "addresses": list(network.addresses),
        "attempts": [
            {"ip": attempt.ip, "duration_ms": attempt.duration_us / 1000, "error": attempt.error}
            for attempt in network.attempts
        ],
        "http_version": step.response and step.response.http_version,
        **tls_fields(network.tls, step.started_at),
        "proxy_url": route.proxy and route.proxy.shown,
        "proxy_source": route.source,
        "tcp_rtt_ms": network.rtt_us and network.rtt_us / 1000,  # never 0: the kernel's word for unknown
        "tcp_retransmits": network.retransmits,
    }
    if network.reused is not None:
        document.update(reused=network.reused, reuse_refused=network.reuse_refused)
    return document


def shown_location(response: Response) -> str | None:
    location = response.get("location")
    return location and mask_location(location)


def timings_document(step: Step) -> list[dict[str, Any]]:
    return [metric._asdict() for metric in step.timings]


def response_document(step: Step) -> dict[str, Any] | None:
    response = step.response
    if response is None:
        return None
    return {
        "status": response.status,
        "reason": response.reason or None,
        "http_version": response.http_version,
        "bytes": step.body_bytes,
        "content_type": response.get("content-type"),
        "server": response.get("server"),
        "date": response.get("date"),
        "location": shown_location(response),
        "headers": header_list(response.headers),
        "interim": list(step.interim),
        "server_timing": timings_document(step),
        "cache": response.cache and response.cache._asdict(),
    }


def findings_document(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [
        {
            "id": finding.id,
            "phase": finding.phase,
            "cost_ms": finding.cost_us / 1000,
            "certainty": finding.certainty,
            "text": finding.text,
            "evidence": dict(finding.evidence),
        }
        for finding in findings
    ]


def step_document(step: Step) -> dict[str, Any]:
    keys = ("dns", "connect", "tls", "wait", "xfer", "ttfb", "total", "send")
    return {
        "step_number": step.number,
        "url": step.url,
        "started_at": instant_text(step.started_at),
        "request": {
            "method": step.request.method,
            "headers": header_list(step.sent_headers),
            "body_bytes": len(step.request.data),
        },
        "timing": {f"{key}_ms": step.timing.ms(key) for key in keys},
        "network": network_document(step),
        "response": response_document(step),
        "error": step.error and step.error._asdict(),
        "findings": findings_document(read_step(step)),
    }


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    return {
        "pass": verdict.passed,
        "thresholds_ms": verdict.thresholds,
        "violations": [
            {name: getattr(violation, name) for name in ("key", "threshold_ms", "actual_ms", "delta_ms")}
            for violation in verdict.violations
        ],
    }


def summary_document(report: Report) -> dict[str, Any]:
    steps = report.run.steps
    last = steps[-1]
    summary: dict[str, Any] = {
        "total_time_ms": sum(step.timing.total for step in steps) / 1000,
        "final_status": last.answer and last.answer.status,
        "final_url": last.url,
        "final_bytes": last.body_bytes,
        "errors": sum(1 for step in steps if step.error),
        "findings": findings_document(read_chain(report.run)),
    }
    if report.verdict:
        summary["slo"] = verdict_document(report.verdict)
    return summary


def trace_field(run: Run) -> dict[str, str]:
    """Return what joins a run to its trace, nothing where there is none."""
    fields = {"trace_id": run.trace_id}
    return {name: value for name, value in fields.items() if value is not None}


def json_document(report: Report, probe: Probe) -> dict[str, Any]:
    """Return the JSON export without its steps."""
    steps = report.run.steps
    return {
        "schema_version": 1,
        "tool_version": __version__,
        "started_at": instant_text(steps[0].started_at),
        "initial_url": steps[0].url,
        **probe._asdict(),
        **trace_field(report.run),
        "total_steps": len(steps),
        "summary": summary_document(report),
        "steps": [],
    }


def run_document(report: Report) -> dict[str, Any]:
    """Return one run of a series."""
    run = report.run
    return {
        "run_number": run.slot.number,
        "round": run.slot.round,
        "target": run.slot.target,
        "started_at": instant_text(run.steps[0].started_at),
        "late_ms": rounded_ms(run.late_us),
        **trace_field(run),
        "total_steps": len(run.steps),
        "summary": summary_document(report),
        "steps": [step_document(step) for step in run.steps],
    }


def spread_document(spread: Spread) -> dict[str, Any]:
    document: dict[str, Any] = {name: rounded_ms(value) for name, value in spread.stats.items()}
    document["median_ci95"] = spread.interval and [in_ms(value) for value in spread.interval]
    return document


def statistics_document(summary: Summary) -> dict[str, Any]:
    return {
        "target": summary.target,
        "step_number": summary.number,
        "url": summary.url,
        "reused": summary.reused,
        "n": summary.measured,
        "failed": summary.failed,
        "errors": summary.errors,
        "statuses": {str(status): count for status, (count, _) in summary.statuses.items()},
        "by_status": {
            str(status): {"n": count, "median_ms": rounded_ms(middle)}
            for status, (count, middle) in summary.statuses.items()
        },
        **{f"{key}_ms": spread_document(spread) for key, spread in summary.spreads.items()},
        "outliers": {f"{key}_ms": list(runs) for key, runs in summary.outliers.items()},
    }


def series_verdict_document(verdict: Verdict) -> dict[str, Any]:
    return {
        "pass": verdict.passed,
        "thresholds_ms": verdict.thresholds,
        "violations": [violation._asdict() for violation in verdict.violations],
        "not_judged": list(verdict.not_judged),
    }


def series_document(survey: Survey) -> dict[str, Any]:
    """Return the JSON export of a series without its runs."""
    first = survey.samples[0]
    lookup = {}
    if survey.series.every_address:
        lookup["lookup_ms"] = rounded_ms(survey.lookup_us)
    summary: dict[str, Any] = {
        "runs": survey.runs,
        "failed": survey.failed,
        "late": survey.late,
        "errors": count_by(sample.error for sample in survey.samples if sample.error),
        "duration_ms": rounded_ms(survey.duration_us),
    }
    if survey.verdict:
        summary["slo"] = series_verdict_document(survey.verdict)
    return {
        "schema_version": 1,
        "tool_version": __version__,
        "started_at": instant_text(first.started_at),
        "initial_url": first.url,
        "count": survey.series.times,
        "interval_s": survey.series.interval,
        **survey.probe._asdict(),
        **lookup,
        "summary": summary,
        "statistics": [statistics_document(each) for each in survey.summaries],
        "runs": [],
    }


# ---------------------------------------------------------------------------------------------------------
# 27b. Documents, HAR 1.2: a page a run, an entry a step.
# ---------------------------------------------------------------------------------------------------------
def har_page(steps: Sequence[Step | Sample], number: int) -> dict[str, Any]:
    """Return the page of one run."""
    total = sum(step.timing.total for step in steps)
    # The clock on the wall, by which the steps start, may have been set back in between.
    last = (steps[-1].started_at - steps[0].started_at) // datetime.timedelta(microseconds=1)
    loaded = max(total, last + steps[-1].timing.total) / 1000
    return {
        "startedDateTime": instant_text(steps[0].started_at),
        "id": f"page_{number}",
        "title": steps[0].url,
        "pageTimings": {"onContentLoad": -1, "onLoad": loaded},
    }


def har_document(runs: Iterable[Sequence[Step | Sample]]) -> dict[str, Any]:
    """Return a HAR 1.2 log without its entries: a page a run, an entry a step."""
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "httphases", "version": __version__},
            "pages": [har_page(steps, number) for number, steps in enumerate(runs, 1)],
            "entries": [],
        }
    }


def har_span(us: int | None) -> float:
    """Return a duration in ms, -1 for what does not apply."""
    return us / 1000 if us else -1


def har_timings(timing: Timing) -> dict[str, float]:
    """Return HAR's phases in ms: connect holds ssl, wait begins after send."""
    send, wait = timing.send or 0, timing.wait or 0
    connect: float = -1
    if timing.connect is not None:
        connect = (timing.connect + (timing.tls or 0)) / 1000
    return {
        "blocked": -1,
        "dns": har_span(timing.dns),
        "connect": connect,
        "ssl": har_span(timing.tls),
        "send": send / 1000,
        "wait": (wait - send) / 1000,
        "receive": (timing.xfer or 0) / 1000,
    }


def cookie_list(pairs: Iterable[str]) -> list[dict[str, str]]:
    """Return cookies by name, their values masked.

    What has no `=` is a value alone (RFC 6265bis section 5.6), and importers refuse a cookie without a name.
    """
    names = [pair.partition("=")[0].strip() for pair in pairs if "=" in pair]
    return [{"name": name, "value": "***"} for name in names if name]


def har_request(step: Step) -> dict[str, Any]:
    """Return what was asked; the body is only measured."""
    given = values_of(step.request.headers, "cookie") if step.sent_headers else ()
    cookies = cookie_list(part for value in given for part in decode(value).split(";"))
    query = "&".join(step.url.partition("?")[2].split("&", MAX_QUERY_FIELDS)[:MAX_QUERY_FIELDS])
    request: dict[str, Any] = {
        "method": step.request.method,
        "url": step.url,
        "httpVersion": {"h2": "HTTP/2"}.get((step.network.tls and step.network.tls.alpn) or "", "HTTP/1.1"),
        "cookies": cookies,
        "headers": header_list(step.sent_headers),
        "queryString": [
            {"name": name, "value": value}
            for name, value in urllib.parse.parse_qsl(query, keep_blank_values=True)
        ],
        "headersSize": step.sent_header_bytes or -1,
        "bodySize": len(step.request.data),
    }
    if step.request.body:
        sent = values_of(step.sent_headers, "content-type")
        mime = decode((sent or [step.request.body.content_type.encode()])[0])
        request["postData"] = {"mimeType": mime, "text": "", "comment": "the body is not recorded"}
    return request


NO_RESPONSE = Response(0, "", "unknown", (), None)


def har_response(step: Step) -> dict[str, Any]:
    """Return what was answered; HAR asks for empty values where there was nothing."""
    response = step.response or NO_RESPONSE
    cookies = cookie_list(
        decode(value).partition(";")[0] for value in values_of(response.headers, "set-cookie")
    )
    answer = step.answer or NO_RESPONSE
    return {
        "status": answer.status,
        "statusText": answer.reason,
        "httpVersion": response.http_version,
        "cookies": cookies,
        "headers": header_list(response.headers),
        "content": {
            "size": step.body_bytes,
            "mimeType": response.get("content-type") or "x-unknown",
            "comment": "the body is not recorded",
        },
        "redirectURL": shown_location(response) or "",
        "headersSize": response.header_bytes or -1,
        "bodySize": step.body_bytes,
    }


def har_entry(step: Step, page: str, connection: str) -> dict[str, Any]:
    """Return the entry of a step; `connection` is what its own one is called."""
    timings = har_timings(step.timing)
    apart = ("ssl",)  # part of connect
    entry = {
        "pageref": page,
        "startedDateTime": instant_text(step.started_at),
        "time": round(sum(value for key, value in timings.items() if value > 0 and key not in apart), 3),
        "request": har_request(step),
        "response": har_response(step),
        "cache": {},
        "timings": timings,
    }
    if step.network.peer:
        if not step.network.reused:  # which one it was is not told
            entry["connection"] = connection
        entry["serverIPAddress"] = step.network.peer.ip.partition("%")[0]
    entry["_server_timing"] = timings_document(step)
    entry["_findings"] = findings_document(read_step(step))
    if step.error:
        entry["_error"] = f"{step.error.kind} ({step.error.phase}): {step.error.message}"
    return entry


def har_entries(run: Run) -> Iterator[dict[str, Any]]:
    before = f"{run.slot.number}." * (run.slot.number > 1)
    for step in run.steps:
        yield har_entry(step, f"page_{run.slot.number}", f"{before}{step.number}")


# ---------------------------------------------------------------------------------------------------------
# 27c. Documents as text. Values -> JSON that may be shown on a terminal, and kept.
# ---------------------------------------------------------------------------------------------------------
# What could move a terminal's cursor or turn its text around, were the file shown there.
UNSAFE = "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"


def is_safe(text: str) -> bool:
    return "\x7f" not in text if text.isascii() else not re.search(UNSAFE, text)


def json_text(value: dict[str, Any]) -> str:
    """Return what JSON makes of a value, on several lines; nothing in it moves a terminal's cursor."""
    import json

    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    if is_safe(text):
        return text
    # str.translate, for the unsafe ones alone, takes ten times as long.
    return json.dumps(value, indent=2, allow_nan=False)


def to_json(document: dict[str, Any], items: Iterable[str]) -> Iterator[bytes]:
    """Give a document as UTF-8, piece by piece, `items` (JSON) in place of the empty list that ends it.

    Each item may hold a megabyte of header fields: one at a time is in memory.
    """
    head, _, tail = json_text(document).rpartition("[]")
    indent = "\n" + " " * (len(head.rpartition("\n")[2]) - len(head.rpartition("\n")[2].lstrip()) + 2)
    yield (head + "[").encode("utf-8", "backslashreplace")
    separator = ""
    for item in items:
        yield (separator + indent + item.replace("\n", indent)).encode("utf-8", "backslashreplace")
        separator = ","
    yield (indent[:-2] + "]" + tail + "\n").encode("utf-8")


class Shelf:
    """Texts that are kept compressed, one stream for all of them: in a series each is much like the last.

    The texts of all exports lie there in turn, each by the name of its export, because they are alike too.
    """

    def __init__(self) -> None:
        import zlib

        self._zlib = zlib
        self._deflate = zlib.compressobj(1)
        self._pieces: list[bytes] = []
        self.size = 0  # bytes, compressed

    def add(self, name: str, text: str) -> None:
        piece = self._deflate.compress(f"{name}{text}".encode("utf-8", "backslashreplace") + b"\0")
        if piece:
            self._pieces.append(piece)
            self.size += len(piece)

    def texts(self, name: str) -> Iterator[str]:
        """Give the texts of an export back in order."""
        inflate, left, start = self._zlib.decompressobj(), b"", name.encode()
        for piece in (*self._pieces, self._deflate.copy().flush()):
            *whole, left = (left + inflate.decompress(piece)).split(b"\0")
            for text in whole:
                if text.startswith(start):
                    yield text[len(start) :].decode("utf-8")


# ---------------------------------------------------------------------------------------------------------
# 27d. Documents, Prometheus' text format: gauges in seconds and bytes, without timestamps. What does not
#      exist has no series, for a 0 would be taken for a very good value.
# ---------------------------------------------------------------------------------------------------------
FAMILIES = {  # the name, and its HELP: the same on every run, or files that lie side by side contradict
    "httphases_request_success": "Whether the step had no error (a 500 is none), in all runs of a series.",
    "httphases_request_duration_seconds": "Duration of a phase of the step; of a series the median.",
    "httphases_request_duration_stat_seconds": "Duration of a phase of the step over a series, by statistic.",
    "httphases_request_ttfb_seconds": "Time to the first byte of the response; of a series the median.",
    "httphases_request_elapsed_seconds": "Time of the step in all; of a series the median.",
    "httphases_response_status_code": "Status code of the response; of a series the last run's.",
    "httphases_response_body_size_bytes": "Size of the body as transferred; of a series the last run's.",
    "httphases_tcp_rtt_seconds": "Smallest round trip that the kernel saw on the connection.",
    "httphases_tcp_retransmits": "Segments that the kernel sent again on the connection.",
    "httphases_cert_not_after_timestamp_seconds": "When the first certificate of the server's chain ends.",
    "httphases_success": "Whether no step failed, in all runs of a series.",
    "httphases_elapsed_seconds": "Time of all steps together; of a series the median.",
    "httphases_slo_pass": "Whether the latency budgets were kept.",
    "httphases_last_run_timestamp_seconds": "When the last run ended.",
    "httphases_runs": "Runs of the series.",
    "httphases_runs_failed": "Runs of the series that failed.",
}


class StepGauges(NamedTuple):
    """What is told of a step: times in us, by the names of Timing, and of a series how they lie."""

    labels: dict[str, str]
    success: bool
    times: dict[str, float | None]
    spreads: dict[str, Spread]
    level: Level


class RunGauges(NamedTuple):
    """What is told of a chain; `runs` and `failed` of a series alone."""

    labels: dict[str, str]
    success: bool
    elapsed_us: float | None
    verdict: Verdict | None
    ended_at: datetime.datetime
    runs: int | None = None
    failed: int | None = None


if TYPE_CHECKING:
    Gauge = tuple[str, dict[str, str], float | None]  # family, labels, value


def level_of(step: Step, run: int) -> Level:
    """Reduce a step to what is told of the newest one."""
    chain = (step.network.tls or NO_TLS).chain
    ends = [each.not_after for each in chain if each and each.not_after]
    status = size = None
    if step.response:
        status, size = step.response.status, step.body_bytes
    network = step.network
    return Level(run, status, size, network.rtt_us, network.retransmits, min(ends, default=None))


def applying(url: str) -> tuple[str, ...]:
    """Return the phases that a URL has."""
    if url.startswith("https:"):
        return PHASES
    return tuple(phase for phase in PHASES if phase != "tls")


def times_of_key(key: str, samples: Iterable[Sample]) -> list[int]:
    """Return the values of a key (us) in those samples that have such a phase."""
    having = [sample for sample in samples if key not in PHASES or key in applying(sample.url)]
    return [value for value, _ in values_of_key(key, having)]


def end_of(step: Step | Sample) -> datetime.datetime:
    return step.started_at + datetime.timedelta(microseconds=step.timing.total)


def sorting_labels(target: str | None, reused: bool | None) -> dict[str, str]:
    """Return the labels by which a series is sorted."""
    labels = {"address": target, "reused": reused and "true"}
    if reused is False:
        labels["reused"] = "false"
    return {name: value for name, value in labels.items() if value}


def gauges_of_step(step: Step) -> StepGauges:
    """Return what is told of a step that was taken once. What a failed one was doing took no time that it is
    known to take.
    """
    keys = [*applying(step.url), "ttfb", "total"]
    if step.error:
        keys = [key for key in keys if key not in (step.error.phase, "total")]
    times = {key: getattr(step.timing, key) for key in keys}
    return StepGauges({"step": str(step.number)}, step.error is None, times, {}, level_of(step, 1))


def gauges_of_run(report: Report) -> RunGauges:
    """Return what is told of a chain that was gone once."""
    steps = report.run.steps
    success, elapsed = not any(step.error for step in steps), None
    if success:
        elapsed = sum(step.timing.total for step in steps)
    return RunGauges({}, success, elapsed, report.verdict, end_of(steps[-1]))


def gauges_of_steps(survey: Survey) -> Iterator[StepGauges]:
    """Sum up each step of a series by itself, whichever URLs it led to; only successful ones have times."""
    groups: dict[StepKind, list[Sample]] = {}
    newest: dict[str | None, int] = {}
    for sample in survey.samples:
        groups.setdefault((sample.target, sample.number, sample.reused), []).append(sample)
        newest[sample.target] = sample.run
    for kind, samples in groups.items():
        target, number, reused = kind
        good = [sample for sample in samples if sample.error is None]
        keys = (*PHASES, "ttfb", "total")
        spreads = {key: measure_spread(times_of_key(key, good), 0) for key in keys}
        level = survey.levels[kind]
        if reused is None and level.run < newest[target]:  # the last run did not come to this step
            level = Level(level.run, None, None, None, None, None)
        yield StepGauges(
            labels={**sorting_labels(target, reused), "step": str(number)},
            success=len(good) == len(samples),
            times={key: spread.stats["median"] for key, spread in spreads.items()},
            spreads={key: spread for key, spread in spreads.items() if key in PHASES},
            level=level,
        )


def gauges_of_runs(survey: Survey) -> Iterator[RunGauges]:
    """Sum up the chains of a series by target, the cold ones apart from those on kept connections."""
    chains: dict[int, list[Sample]] = {}
    for sample in survey.samples:
        chains.setdefault(sample.run, []).append(sample)
    groups: dict[tuple[str | None, bool | None], list[list[Sample]]] = {}
    for chain in chains.values():
        groups.setdefault((chain[0].target, chain[0].reused), []).append(chain)
    for (target, reused), runs in groups.items():
        good = [run for run in runs if not any(sample.error for sample in run)]
        totals = sorted(sum(sample.timing.total for sample in run) for run in good)
        yield RunGauges(
            labels=sorting_labels(target, reused),
            success=len(good) == len(runs),
            elapsed_us=measure_spread(totals, 0).stats["median"],
            verdict=survey.verdicts.get(target),
            ended_at=end_of(runs[-1][-1]),
            runs=len(runs),
            failed=len(runs) - len(good),
        )


def in_seconds(us: float | None) -> float | None:
    """Return seconds, rounded as milliseconds are in JSON."""
    return us and round(us) / 1_000_000


def step_gauges(step: StepGauges) -> Iterator[Gauge]:
    """Give every gauge of a step."""
    labels, level = step.labels, step.level
    yield "httphases_request_success", labels, int(step.success)
    for key, value in step.times.items():
        if key in PHASES:
            yield "httphases_request_duration_seconds", {**labels, "phase": key}, in_seconds(value)
    for phase, spread in step.spreads.items():
        for name in SUMMARY_STATS:
            by = {**labels, "phase": phase, "stat": name}
            yield "httphases_request_duration_stat_seconds", by, in_seconds(spread.stats[name])
    yield "httphases_request_ttfb_seconds", labels, in_seconds(step.times["ttfb"])
    yield "httphases_request_elapsed_seconds", labels, in_seconds(step.times.get("total"))
    yield "httphases_response_status_code", labels, level.status
    yield "httphases_response_body_size_bytes", labels, level.body_bytes
    yield "httphases_tcp_rtt_seconds", labels, in_seconds(level.rtt_us)
    yield "httphases_tcp_retransmits", labels, level.retransmits
    if level.not_after:
        yield "httphases_cert_not_after_timestamp_seconds", labels, level.not_after.timestamp()


def run_gauges(run: RunGauges) -> Iterator[Gauge]:
    """Give every gauge of a chain."""
    passed = run.verdict and int(run.verdict.passed)
    yield "httphases_success", run.labels, int(run.success)
    yield "httphases_elapsed_seconds", run.labels, in_seconds(run.elapsed_us)
    yield "httphases_slo_pass", run.labels, passed
    yield "httphases_last_run_timestamp_seconds", run.labels, run.ended_at.timestamp()
    yield "httphases_runs", run.labels, run.runs
    yield "httphases_runs_failed", run.labels, run.failed


def label_text(labels: Mapping[str, str]) -> str:
    """Return labels as they stand in braces, with the three escapes that the format has."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    parts = [
        name + '="' + "".join(escapes.get(char, char) for char in value) + '"'
        for name, value in labels.items()
    ]
    return ",".join(parts)


def to_prometheus(gauges: Iterable[Gauge], url: Url, probe: Probe) -> Iterator[bytes]:
    """Give the exposition, family by family: HELP and TYPE stand by the series that there are."""
    common = {"target": f"{url.scheme}://{bracketed(url.host)}:{url.port}"}
    if probe.label is not None:
        common["label"] = probe.label
    lines: dict[str, list[str]] = {}
    for name, labels, value in gauges:
        if value is not None:
            lines.setdefault(name, []).append(f"{name}{{{label_text({**common, **labels})}}} {value!r}\n")
    for name, explanation in FAMILIES.items():
        if name in lines:
            yield f"# HELP {name} {explanation}\n# TYPE {name} gauge\n".encode("ascii")
            yield "".join(lines[name]).encode("utf-8")


def run_exposition(report: Report, url: Url, probe: Probe) -> Iterator[bytes]:
    """Give the exposition of one run."""
    gauges = [gauge for step in report.run.steps for gauge in step_gauges(gauges_of_step(step))]
    return to_prometheus([*gauges, *run_gauges(gauges_of_run(report))], url, probe)


def series_exposition(survey: Survey, url: Url) -> Iterator[bytes]:
    """Give the exposition of a series."""
    gauges = [gauge for step in gauges_of_steps(survey) for gauge in step_gauges(step)]
    gauges += [gauge for run in gauges_of_runs(survey) for gauge in run_gauges(run)]
    return to_prometheus(gauges, url, survey.probe)


# ---------------------------------------------------------------------------------------------------------
# 27e. Documents, OTLP/JSON: a run is a trace, with a span for the chain, each step, and each of its phases.
#      Names are those of OpenTelemetry's semantic conventions; own ones begin with httphases.
# ---------------------------------------------------------------------------------------------------------
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
INTERNAL, CLIENT = 1, 3  # SpanKind
STATUS_ERROR = 2  # StatusCode


def unix_nano(moment: datetime.datetime) -> int:
    return (moment - EPOCH) // datetime.timedelta(microseconds=1) * 1000


def any_value(value: object) -> dict[str, Any]:
    """Return a value as AnyValue of OTLP/JSON, where 64 bits are a string of digits."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [any_value(each) for each in value]}}
    return {"stringValue": whole_characters(str(value))}


def attribute_list(attributes: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return attributes as a list of KeyValue; what is None is left out."""
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items() if value is not None]


def finding_event(finding: Finding, at: int) -> dict[str, Any]:
    attributes = {
        "httphases.finding.id": finding.id,
        "httphases.finding.phase": finding.phase,
        "httphases.finding.cost_ms": finding.cost_us / 1000,
        "httphases.finding.certainty": finding.certainty,
        "httphases.finding.text": finding.text,
        **{f"httphases.finding.evidence.{name}": value for name, value in finding.evidence.items()},
    }
    return {"timeUnixNano": str(at), "name": "httphases.finding", "attributes": attribute_list(attributes)}


def span_status(failed: bool, message: str = "") -> dict[str, Any]:
    if not failed:
        return {}
    return {"code": STATUS_ERROR, "message": message}


def step_server(url: str) -> dict[str, object]:
    """Return whom a URL names; nothing for what a redirect made of one."""
    parts = re.match(r"(https?)://(\[[^\]]*\]|[^/:?#]*)(?::([0-9]{1,5}))?(?=[/?#]|$)", url)
    if not parts:
        return {}
    port = int(parts[3] or DEFAULT_PORTS[parts[1]])
    return {"server.address": parts[2].strip("[]"), "server.port": port}


def error_type(step: Step) -> str | None:
    """Return the kind of failure, or the status that is one."""
    if step.error:
        return step.error.kind
    if step.response and step.response.status >= 400:
        return str(step.response.status)
    return None


def peer_attributes(step: Step) -> dict[str, object]:
    """Return who was spoken to, the proxy where there is one, and how."""
    network, tls = step.network, step.network.tls or NO_TLS
    found: dict[str, object] = {
        "network.peer.address": step.route.unix_socket or network.ip,
        "network.local.address": network.local_ip,
        "tls.protocol.version": tls.version and tls.version.replace("TLSv", ""),
        "tls.cipher": tls.cipher,
        "httphases.proxy": step.route.proxy and step.route.proxy.shown,
        "httphases.reused": network.reused,
        "httphases.tcp_rtt_ms": network.rtt_us and network.rtt_us / 1000,
        "httphases.tcp_retransmits": network.retransmits,
    }
    if network.ip:
        found["network.peer.port"] = network.port
    if step.route.unix_socket:
        found["network.transport"] = "unix"
    return found


def step_attributes(step: Step) -> dict[str, object]:
    """Return what is told of a step; a query may hold what is nobody's business and is left out."""
    found = {
        "http.request.method": step.request.method,
        "url.full": step.url.partition("#")[0].partition("?")[0],
        **step_server(step.url),
        "http.request.resend_count": step.number - 1 or None,
        "http.request.body.size": len(step.request.data),
        "error.type": error_type(step),
        "httphases.step_number": step.number,
        "httphases.ttfb_ms": step.timing.ms("ttfb"),
        "httphases.total_ms": step.timing.ms("total"),
        **peer_attributes(step),
    }
    if step.response:
        found["http.response.status_code"] = step.response.status
        found["http.response.body.size"] = step.body_bytes
        found["network.protocol.name"] = "http"
        found["network.protocol.version"] = step.response.http_version.partition("/")[2]
    if step.error:
        found["httphases.error.phase"] = step.error.phase
        found["httphases.error.hint"] = step.error.hint
    return found


def phase_bounds(step: Step) -> dict[str, tuple[int, int]]:
    """Return the start and end of each phase that there was (ns): the end of one is the start of the next."""
    bounds = {}
    at = unix_nano(step.started_at)
    for phase in applying(step.url):
        spent = getattr(step.timing, phase)
        if spent is not None:
            bounds[phase] = (at, at + spent * 1000)
            at += spent * 1000
    return bounds


def span_document(trace_id: str | None, name: str, kind: int, bounds: tuple[int, int]) -> dict[str, Any]:
    """Return a span with what each one has."""
    return {
        "traceId": trace_id,
        "spanId": new_id(8),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(bounds[0]),
        "endTimeUnixNano": str(bounds[1]),
    }


def step_spans(step: Step, trace_id: str | None, parent: str) -> Iterator[dict[str, Any]]:
    """Give the span of a step, and of each of its phases."""
    phases = phase_bounds(step)
    start = unix_nano(step.started_at)
    whole = (start, start + step.timing.total * 1000)
    message = (step.error and step.error.message) or ""
    yield {
        **span_document(trace_id, step.request.method, CLIENT, whole),
        "spanId": step.span_id,
        "parentSpanId": parent,
        "attributes": attribute_list(step_attributes(step)),
        "events": [
            finding_event(finding, phases.get(finding.phase or "", whole)[1]) for finding in read_step(step)
        ],
        "status": span_status(error_type(step) is not None, message),
    }
    for phase, bounds in phases.items():
        yield {
            **span_document(trace_id, phase, INTERNAL, bounds),
            "parentSpanId": step.span_id,
            "status": span_status(step.error is not None and step.error.phase == phase, message),
        }


def run_spans(report: Report) -> Iterator[dict[str, Any]]:
    """Give the trace of a run: the span of the chain, then those of its steps."""
    run = report.run
    bounds = [(unix_nano(step.started_at), unix_nano(end_of(step))) for step in run.steps]
    whole = (bounds[0][0], max(end for _, end in bounds))
    attributes = {
        "httphases.run_number": run.slot.number,
        "httphases.round": run.slot.round,
        "httphases.target": run.slot.target,
        "httphases.late_ms": rounded_ms(run.late_us),
        "httphases.total_steps": len(run.steps),
        "httphases.slo_pass": report.verdict and report.verdict.passed,
    }
    root = {
        **span_document(run.trace_id, "httphases", INTERNAL, whole),
        "attributes": attribute_list(attributes),
        "events": [finding_event(finding, whole[1]) for finding in read_chain(run)],
        "status": span_status(any(error_type(step) for step in run.steps)),
    }
    yield root
    for step in run.steps:
        yield from step_spans(step, run.trace_id, root["spanId"])


def span_texts(report: Report) -> Iterator[str]:
    """Give the spans of a run as they are sent."""
    import json

    for span in run_spans(report):
        yield json.dumps(span, allow_nan=False, separators=(",", ":"))


def to_otlp(spans: Iterable[str], tracing: Tracing, probe: Probe) -> bytes:
    """Return an ExportTraceServiceRequest of all spans (OTLP/JSON)."""
    import json

    resource = {"host.name": probe.host, **tracing.resource, "httphases.label": probe.label}
    head = json.dumps({"resource": {"attributes": attribute_list(resource)}})[:-1]
    scope = json.dumps({"name": "httphases", "version": __version__})
    body = f'{head}, "scopeSpans": [{{"scope": {scope}, "spans": [{",".join(spans)}]}}]}}'
    return f'{{"resourceSpans": [{body}]}}'.encode("ascii")


# ---------------------------------------------------------------------------------------------------------
# 28a. Views. Report -> neutral blocks, for any painter.
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
    levels: str  # of a strip: nothing, then eight of them


UNICODE = Glyphs("█", "✓", "✗", "•", "≤", "╭─╮│╰╯├┤┬┴┼", " ▁▂▃▄▅▆▇█")
ASCII = Glyphs("#", "OK", "X", "*", "<=", "+-+|+++++++", " .:-=+*#@")


def ms_text(value: float | None) -> str:
    decimals = 1 if value is not None and value >= 100 else 2
    return fixed(value, decimals, " ms")


def bar_cells(start: int, length: int, total: int, width: int) -> tuple[int, int]:
    """Return the first cell and the number of cells of a phase on a scale of `width` cells.

    What took any time has at least one cell.
    """
    if length <= 0 or total <= 0:
        return 0, 0
    first = min(width - 1, start * width // total)
    return first, max(first + 1, min(width, round((start + length) * width / total))) - first


def waterfall_table(timing: Timing, failed: str | None, width: int, glyphs: Glyphs) -> Table:
    """Lay the phases of a step out in time: each bar begins where its phase begins; `failed` names one."""
    cells = max(8, width - 10 - 8 - 11)  # borders and padding, names, durations
    rows = []
    start = 0
    for phase in PHASES:
        length: int | None = getattr(timing, phase)
        tone = phase
        if phase == failed:
            tone = "bad"
        blank, filled = bar_cells(start, length or 0, timing.total, cells)
        drawn = " " * blank + glyphs.bar * filled
        rows.append((Span(phase, tone), Span(ms_text(timing.ms(phase)), tone), Span(drawn, tone)))
        start += length or 0
    for figure in ("ttfb", "total"):
        rows.append((Span(figure, "strong"), Span(ms_text(timing.ms(figure)), "strong"), Span("")))
    scale = "0" + ms_text(timing.ms("total")).rjust(cells - 1)
    return Table(
        "", (("Phase", "left", False), ("Duration", "right", False), (scale, "left", False)), tuple(rows)
    )


def certificate_line(certificate: Certificate, now: datetime.datetime) -> Line:
    name = certificate_name(certificate)
    days = certificate.days_left(now)
    if days is None or certificate.not_after is None:
        return (Span(f"{clip(name)}, "), Span("no legible expiry", "bad"))
    distance = in_days(certificate.not_after, now)
    expiry = f"expires in {distance}" if days >= 0 else f"expired {distance} ago"
    tone = "good"
    if days < 30:
        tone = "warn"
    if days < 7:
        tone = "bad"
    return (Span(f"{clip(name)}, "), Span(expiry, tone), Span(f" ({certificate.not_after:%Y-%m-%d})"))


def chain_warning(chain: Sequence[Certificate | None], now: datetime.datetime) -> Line:
    """Name the certificate of a chain that expires before the server's own, the earliest; nothing if none."""
    ends = [(each.not_after, place) for place, each in enumerate(chain) if each and each.not_after]
    if not ends:
        return ()
    earliest = chain[min(ends)[1]]
    if earliest is None or earliest is chain[0]:
        return ()
    return (Span("; further up the chain "), *certificate_line(earliest, now))


def tls_line(info: TlsInfo) -> Line:
    version = (info.version or "").replace("v", " ")
    agreed = Span("".join(f"{part}, " for part in (version, info.cipher) if part))
    if info.verified and info.custom_ca:
        return (agreed, Span("verified with --cacert", "good"))
    if info.verified:
        return (agreed, Span("verified", "good"))
    if info.version:
        return (agreed, Span("NOT verified (-k)", "bad"))
    return (agreed, Span("NOT verified", "bad"))


def path_text(network: Network) -> str | None:
    if network.rtt_us is None:
        return None
    lost = counted(network.retransmits or 0, "retransmit")
    return f"round trip {network.rtt_us / 1000:.2f} ms, {lost}"


def attempt_rows(attempts: Sequence[Attempt]) -> Iterator[tuple[str, Line]]:
    """Show the attempts to connect, where there is more to say than that the first one succeeded."""
    if len(attempts) > 1 or any(attempt.error for attempt in attempts):
        for attempt in attempts[:8]:
            words = f"{attempt.ip}: {attempt.error or 'connected'} after {attempt.duration_us / 1000:.2f} ms"
            yield "Attempt", (Span(words, "warn" * bool(attempt.error)),)


def tls_rows(info: TlsInfo, now: datetime.datetime) -> Iterator[tuple[str, Line]]:
    """Say what TLS agreed on, and whose certificate it was."""
    yield "TLS", tls_line(info)
    if info.certificate:
        yield "Certificate", certificate_line(info.certificate, now) + chain_warning(info.chain, now)
        issuer = "(illegible)"
        if info.certificate.issuer is not None:
            issuer = clip(info.certificate.issuer) or "(empty)"
        yield "Issuer", (Span(issuer),)


def own_rows(step: Step) -> Iterator[tuple[str, Line]]:
    """Say from where the server was reached, where that was chosen, and what it saw of who asks."""
    network, tls = step.network, step.network.tls
    if network.interface and network.local_ip:
        yield "From", (Span(f"{network.local_ip} (--interface {network.interface})"),)
    if tls and tls.shown != "none given":
        yield "Client cert", (Span(FATES[tls.shown], {"unfit": "warn"}.get(tls.shown, "")),)


def network_rows(step: Step) -> Iterator[tuple[str, Line]]:
    """Say how the server was reached, as far as it was."""
    network, route = step.network, step.route
    if network.peer:
        yield "Address", (Span(f"{network.peer.ip} ({family_name(network.peer)}), port {network.port}"),)
    if route.unix_socket is not None:
        yield "Socket", (Span(route.unix_socket),)
    if len(network.addresses) > 1:
        yield "Resolved", (Span(first_of(network.addresses, 8)),)
    yield from attempt_rows(network.attempts)
    if route.proxy:
        yield "Proxy", (Span(f"{route.proxy.shown} (from {route.source})"),)
    if step.response:
        protocol = step.response.http_version
        if network.tls and network.tls.alpn:
            protocol += f" (ALPN {network.tls.alpn})"
        yield "Protocol", (Span(protocol),)
    if network.tls:
        yield from tls_rows(network.tls, step.started_at)
    yield from own_rows(step)
    path = path_text(network)
    if path:
        yield "Path", (Span(path),)


def starved_text(step: Step) -> str:
    return (
        f"in step {step.number} this process was kept waiting for a CPU for {step.starved_us / 1000:.1f} ms: "
        "times that end on this machine may be too long"
    )


def cache_text(cache: CacheUse) -> str:
    """Say what a cache did, as far as it is told, and where that stands."""
    parts = [cache.status or ""]
    if cache.age_s is not None:
        parts.append(f"age {cache.age_s} s")
    if cache.via:
        parts.append(f"via {clip(cache.via, MAX_FOREIGN)}")
    return f"{', '.join(filter(None, parts)) or 'not said'} ({cache.source})"


def claim_rows(response: Response) -> Iterator[tuple[str, Line]]:
    """Show what the response says of itself; nothing of it was measured."""
    if response.cache:
        yield "Cache", (Span(cache_text(response.cache)),)
    for metric in longest_first(response.timings)[:SHOWN_METRICS]:
        words = clip(metric.name, MAX_FOREIGN)
        if metric.duration_ms is not None:
            words += f" {clip(ms_text(metric.duration_ms), 20)}"
        if metric.description:
            words += f" ({clip(metric.description, MAX_FOREIGN)})"
        yield "Server says", (Span(words),)
    more = len(response.timings) - SHOWN_METRICS
    if more > 0:
        yield "Server says", (Span(f"and {more} more, which --json has"),)


def header_rows(response: Response) -> Iterator[tuple[str, Line]]:
    """Show the header fields as JSON has them, of a megabyte of them the beginning."""
    left = MAX_DRAWN
    for count, header in enumerate(header_list(response.headers)):
        if left <= 0:
            yield "Header", (Span(f"and {len(response.headers) - count} more, which --json has"),)
            return
        name, value = clip(header["name"]), clip(header["value"])
        left -= len(name) + len(value)
        yield "Header", (Span(f"{name}: ", "strong"), Span(value))


def response_rows(step: Step) -> Iterator[tuple[str, Line]]:
    """Say what was sent, what came, and what to bear in mind when its times are read."""
    response = step.response
    if step.request.body and step.timing.send is not None:
        size, sent = size_text(len(step.request.body.data)), ms_text(step.timing.ms("send"))
        yield "Request", (Span(f"{size} of body, sent in {sent} of the wait"),)
    if step.interim:
        yield "Interim", (Span(", ".join(str(status) for status in step.interim[:20])),)
    if response:
        parts = [f"{response.status} {clip(response.reason)}".strip(), size_text(step.body_bytes)]
        content_type = response.get("content-type")
        if content_type:
            parts.append(clip(content_type))
        yield "Response", (Span(", ".join(parts)),)
        location = response.get("location")
        if location is not None:
            yield "Location", (Span(clip(mask_location(location))),)
        yield from claim_rows(response)
    if step.starved_us > max(STARVED_US, step.timing.total // 10):
        yield "Note", (Span(starved_text(step), "warn"),)
    if lacks_certificate(step):
        yield "Note", (Span(lacking_text(step), "warn"),)


def failed_text(error: Failure) -> str:
    """Say where a step failed; a redirect that leads nowhere fails before anything is looked up."""
    if error.kind == "redirect":
        return "before the request (redirect)"
    return f"in {error.phase} ({error.kind})"


def failure_rows(error: Failure | None) -> Iterator[tuple[str, Line]]:
    if error:
        yield "Failed", (Span(failed_text(error), "bad"),)
        yield "Why", (Span(clip(error.message), "bad"),)
        yield "Try", (Span(clip(error.hint)),)


def reading_rows(findings: Iterable[Finding]) -> Iterator[tuple[str, Line]]:
    """Say what the times mean, the costliest first; the JSON export has them all.

    That the process was starved is a note of its own, which no costlier finding may displace.
    """
    for finding in [finding for finding in findings if finding.id != "starved"][:SHOWN_FINDINGS]:
        where = ", ".join(filter(None, (finding.phase, ms_text(finding.cost_us / 1000))))
        yield "Reading", (Span(f"{where}: ", "strong"), Span(finding.text))


# ---------------------------------------------------------------------------------------------------------
# 28b. Views of a run. Its steps, its chain, its budgets.
# ---------------------------------------------------------------------------------------------------------
def status_span(step: Step) -> Span:
    """Return the status of a step, in the tone of what it means."""
    if step.answer is None:
        return Span("ERROR", "bad")
    status = str(step.answer.status)
    return Span(status, {"3": "warn", "4": "bad", "5": "bad"}.get(status[0], "good"))


class Look(NamedTuple):
    """How a report is to be drawn; `include` shows the response's header fields."""

    style: str
    include: bool
    width: int
    glyphs: Glyphs


def step_rows(step: Step, look: Look) -> tuple[tuple[str, Line], ...]:
    """Say how the server was reached and what it answered."""
    rows = [*network_rows(step), *response_rows(step)]
    if look.include and step.response:
        rows += header_rows(step.response)
    return tuple(rows)


def step_blocks(step: Step, look: Look) -> Iterator[Block]:
    """Show one step."""
    yield (
        Span(f"Step {step.number}: ", "strong"),
        Span(f"{step.request.method} {clip(step.url)} ", "strong"),
        status_span(step),
    )
    yield Fields(step_rows(step, look))
    yield waterfall_table(step.timing, step.error and step.error.phase, look.width, look.glyphs)
    below = (*failure_rows(step.error), *reading_rows(read_step(step)))
    if below:
        yield Fields(below)


def chain_table(run: Run) -> Table:
    rows = []
    for step in run.steps:
        status, total = status_span(step).text, ms_text(step.timing.ms("total"))
        cells = (str(step.number), status, total, f"{step.request.method} {clip(step.url)}")
        tone = "bad" * bool(step.error)
        rows.append(tuple(Span(cell, tone) for cell in cells))
    total = ms_text(sum(step.timing.total for step in run.steps) / 1000)
    rows.append((Span(""), Span(""), Span(total, "strong"), Span("in all", "strong")))
    columns = (
        ("Step", "right", False),
        ("Status", "left", False),
        ("Total", "right", False),
        ("Request", "left", True),
    )
    return Table("Redirect Chain Summary", columns, tuple(rows))


def slo_panel(verdict: Verdict, glyphs: Glyphs) -> Panel:
    """Show the budgets, of how many values a statistic is, and what exceeds them."""
    tone, icon = ("good", glyphs.check) if verdict.passed else ("bad", glyphs.cross)
    budgets = "  ".join(
        f"{key}{glyphs.at_most}{shortest(value)}ms" for key, value in verdict.thresholds.items()
    )
    lines: list[Line] = [(Span("Thresholds: ", "strong"), Span(budgets))]
    if verdict.counts:
        sizes = "  ".join(f"{key} of n={size}" for key, size in verdict.counts.items())
        lines.append((Span("Statistics: ", "strong"), Span(sizes)))
    if not verdict.passed:
        lines.append((Span("Violations:", "strong"),))
    for item in verdict.violations:
        text = f"{item.key}: {up_to_three(item.actual_ms)}ms > {shortest(item.threshold_ms)}ms"
        text += f" (+{up_to_three(item.delta_ms)}ms)"
        if item.target:
            text += f" at {item.target}"
        if item.run_number:
            text += f", worst in run {item.run_number}"
        lines.append((Span(f"{glyphs.bullet} {text}", "bad"),))
    for key in verdict.not_judged:
        text = f"{glyphs.bullet} {key}: not judged, too few values{verdict.where}"
        lines.append((Span(text, "bad"),))
    return Panel(Span(f"{icon} SLO: {WORD[verdict.passed]}", tone), tuple(lines))


def report_blocks(report: Report, look: Look) -> Iterator[Block]:
    """Return what is drawn: waterfalls, redirect table, and the SLO panel, which --compact has too."""
    if look.style == "waterfall":
        for step in report.run.steps:
            yield from step_blocks(step, look)
        if len(report.run.steps) > 1:
            yield chain_table(report.run)
        rows = tuple(reading_rows(read_chain(report.run)))
        if rows:
            yield Fields(rows)
    if report.verdict:
        yield slo_panel(report.verdict, look.glyphs)


# ---------------------------------------------------------------------------------------------------------
# 28c. Views of a series. Survey -> blocks: a header, the median run, how the times lie, and what is odd.
# ---------------------------------------------------------------------------------------------------------
SPREAD_KEYS = (*PHASES, "ttfb", "total")
QUARTERS = ("min", "p25", "median", "p75", "p95", "max")
ENDS = ("min", "median", "p95", "max")
LEAST_STRIP = 12  # cells


def strip(values: Sequence[int], end: int, cells: int, levels: str) -> str:
    """Draw how values (us) lie between 0 and `end`: the darker a cell, the more of them."""
    counts = [0] * cells
    for value in values:
        counts[min(cells - 1, value * cells // max(1, end))] += 1
    most = max(1, len(values))
    return "".join(levels[-(-count * (len(levels) - 1) // most)] for count in counts)


def spread_number(ms: float | None, short: bool) -> str:
    """Return a time of a table of spreads, without its unit; a short one has about three digits."""
    decimals = 2
    if ms is not None and short:
        decimals = 2 - (ms >= 10) - (ms >= 100)
    elif ms is not None and ms >= 100:
        decimals = 1
    return fixed(ms, decimals)


def spread_rows(summary: Summary, names: Sequence[str], short: bool) -> list[list[str]]:
    rows = [["Phase", *names]]
    for key in SPREAD_KEYS:
        stats = summary.spreads[key].stats
        rows.append([key, *(spread_number(rounded_ms(stats[name]), short) for name in names)])
    return rows


def rows_width(rows: Iterable[Sequence[str]]) -> int:
    """Return the columns that a framed table of these cells takes."""
    return sum(max(map(len, column)) + 3 for column in zip(*rows)) + 1


def strip_column(samples: Sequence[Sample], cells: int, levels: str) -> Iterator[str]:
    """Give a heading that tells the scale, then the strip of each key, all on the same scale."""
    end = max(sample.timing.total for sample in samples)
    scale = f"0-{ms_text(end / 1000)}"
    heading = "distribution"
    if len(heading + scale) < cells:
        heading += scale.rjust(cells - len(heading))
    yield heading
    for key in SPREAD_KEYS:
        values = [getattr(sample.timing, key) for sample in samples]
        yield strip([value for value in values if value is not None], end, cells, levels)


def spread_blocks(summary: Summary, look: Look) -> Iterator[Block]:
    """Show how the times (ms) lie. What is too wide loses its strip, then the quarters, then its frame."""
    for names in (QUARTERS, ENDS):
        rows = spread_rows(summary, names, False)
        if rows_width(rows) <= look.width:
            break
    else:
        for row in spread_rows(summary, ENDS, True):
            yield (Span(row[0].ljust(8) + "".join(cell.rjust(8) for cell in row[1:])),)
        return
    cells = look.width - rows_width(rows) - 3
    if names is QUARTERS and cells >= LEAST_STRIP:
        for row, drawn in zip(rows, strip_column(summary.good, cells, look.glyphs.levels)):
            row.append(drawn)
    heading, *body = rows
    numbers = range(1, len(names) + 1)
    columns = tuple(
        (text, "right" if place in numbers else "left", False) for place, text in enumerate(heading)
    )
    tones = [key if key in PHASES else "strong" for key in SPREAD_KEYS]
    yield Table("", columns, tuple(tuple(Span(cell, tone) for cell in row) for row, tone in zip(body, tones)))


def series_title(summary: Summary, survey: Survey) -> str:
    """Say of which step, how often and how long, and what became of it."""
    parts = [counted(summary.runs, "run")]
    if summary.failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in summary.errors.items())
        parts.append(f"{summary.failed} failed ({kinds})")
    parts += [f"status {status}: {count}" for status, (count, _) in summary.statuses.items()]
    if summary.late:
        parts.append(counted(summary.late, "late start"))
    whole = f"of {survey.runs} " * (summary.runs < survey.runs)
    parts.append(f"{whole}in {survey.duration_us / 1e6:.1f} s")
    return ", ".join(parts)


def status_sentence(summary: Summary) -> str:
    """Say how answers with different statuses differ: the rare ones first."""
    rare, *others = sorted(summary.statuses.items(), key=lambda item: (item[1][0], -item[0]))
    *middle, (usual, (_, usual_us)) = others
    parts = [
        f"{status}: {count} of {summary.measured}, median {total / 1000:.1f} ms"
        for status, (count, total) in (rare, *middle)
    ]
    return "; ".join([*parts, f"{usual}: {usual_us / 1000:.1f} ms"])


COLD = ": it may have met what was cold (names, caches, routes)"


def outlier_sentences(summary: Summary, first_run: int) -> Iterator[str]:
    for key, runs in summary.outliers.items():
        if not runs:
            continue
        listed = ", ".join(map(str, runs[:8])) + ", …" * bool(runs[8:])
        words = f"{len(runs)} of {summary.measured} far from the median ({key}): run {listed}"
        if runs[0] == first_run:
            words += f"; the first run is one{COLD * (key == OUTLIER_KEYS[0])}"
        yield words


NO_FASTER = "setting the connection up costs nothing that shows, for the kept one was no faster"


def reuse_sentence(summary: Summary, others: Iterable[Summary]) -> str | None:
    """Say what setting a connection up costs, beside the warm runs of a step."""
    cold = next((each for each in others if each.number == summary.number and each.reused is False), None)
    if not summary.reused or cold is None or cold.median_us is None or summary.median_us is None:
        return None
    cost, price = cold.median_us - summary.median_us, NO_FASTER
    if cost > 0:
        price = f"setting the connection up costs {time_text(cost)}"
    return (
        f"cold median {time_text(cold.median_us)} ({counted(cold.measured, 'run')}), warm median "
        f"{time_text(summary.median_us)} ({counted(summary.measured, 'run')}): {price}"
    )


def series_rows(summary: Summary, survey: Survey) -> Iterator[tuple[str, Line]]:
    """Say what is odd about a step of a series, and what its times mean."""
    for count, failure in summary.failures.values():
        yield "Failed", (Span(f"{times_text(count)} {failed_text(failure)}", "bad"),)
        yield "Why", (Span(clip(failure.message), "bad"),)
        yield "Try", (Span(clip(failure.hint)),)
    if len(summary.statuses) > 1:
        yield "Statuses", (Span(status_sentence(summary), "warn"),)
    for sentence in outlier_sentences(summary, survey.samples[0].run):
        yield "Outliers", (Span(sentence),)
    for reason, count in summary.refused.items():
        yield "Not reused", (Span(f"{counted(count, 'run')}: {reason}", "warn"),)
    warmth = reuse_sentence(summary, survey.summaries)
    if warmth:
        yield "Reuse", (Span(warmth),)
    told = [(finding, runs) for finding, runs in summary.findings if finding.id != "starved"]
    for finding, runs in told[:SHOWN_FINDINGS]:
        where = f"{finding.phase}, " * bool(finding.phase)
        often = f"in {runs} of {counted(summary.runs, 'run')}, at most {ms_text(finding.cost_us / 1000)}: "
        yield "Reading", (Span(where + often, "strong"), Span(finding.text))


def summary_blocks(summary: Summary, survey: Survey, look: Look) -> Iterator[Block]:
    """Show what the runs of one step and URL have in common."""
    warm = {True: " on a kept connection", False: " on a new connection", None: ""}[summary.reused]
    title = f"{summary.method} {clip(summary.url)}{warm}"
    yield (Span(f"Step {summary.number}: ", "strong"), Span(title, "strong"))
    yield (Span(series_title(summary, survey), "bad" * bool(summary.failed)),)
    typical = summary.typical
    if typical:
        step = survey.newest.get((summary.target, summary.number, summary.reused))
        if step and step.url == summary.url:
            yield Fields(step_rows(step, look))
        nearest = ", whose total is nearest to the median" * (summary.measured > 1)
        yield (Span(f"Run {typical.run} of {survey.runs}{nearest}:"),)
        yield waterfall_table(typical.timing, None, look.width, look.glyphs)
        yield (Span("All that succeeded, in ms:"),)
        yield from spread_blocks(summary, look)
    rows = tuple(series_rows(summary, survey))
    if rows:
        yield Fields(rows)


# ---------------------------------------------------------------------------------------------------------
# 28d. Views of addresses. Survey -> one table, a row an address, and what is odd about any of them.
# ---------------------------------------------------------------------------------------------------------
SLOW_KEYS = ("wait", "connect", "total")
SLOW_TIMES, SLOW_BY_US = 2, 5_000  # of the median of the others, and above it
NO_FACTS = Facts(None, None, None, None, None)


class Backend(NamedTuple):
    """What all runs of a step have shown of one address, and the part of them whose medians stand for it."""

    usual: Summary
    parts: tuple[Summary, ...]  # cold and warm, and by URL

    @property
    def target(self) -> str | None:
        return self.usual.target

    @property
    def runs(self) -> int:
        return sum(part.runs for part in self.parts)

    @property
    def measured(self) -> int:
        return sum(part.measured for part in self.parts)

    @property
    def failed(self) -> int:
        return self.runs - self.measured

    @property
    def statuses(self) -> list[int]:
        return sorted({status for part in self.parts for status in part.statuses})

    @property
    def certificates(self) -> dict[str | None, Certificate]:
        """Return the certificates that it showed, by serial number."""
        facts = [part.facts for part in self.parts]  # of failed runs too
        facts += [sample.facts for part in self.parts for sample in part.good]
        shown = [each.certificate for each in facts if each and each.certificate]
        return {certificate.serial: certificate for certificate in shown}


def part_for_medians(part: Summary) -> tuple[bool, int]:
    """Order the parts of a backend's runs: those on kept connections before the first, then by number."""
    return bool(part.reused and part.measured), part.measured


def backends_of(survey: Survey, number: int) -> list[Backend]:
    """Return what a step has shown of each target."""
    parts: dict[str | None, list[Summary]] = {}
    for summary in survey.summaries:
        if summary.number == number:
            parts.setdefault(summary.target, []).append(summary)
    return [Backend(max(each, key=part_for_medians), tuple(each)) for each in parts.values()]


def apart(values: Mapping[Any, Any]) -> list[Any]:
    """Return whose value is not the one that more than half have: all of them if none is."""
    told = {name: value for name, value in values.items() if value is not None}
    counts = count_by(told.values())
    usual = [value for value, count in counts.items() if 2 * count > len(told)]
    return [name for name, value in told.items() if value not in usual]


def far_above(own: float, others: Sequence[float]) -> bool:
    usual = median(sorted(others))
    return own >= SLOW_TIMES * usual and own >= usual + SLOW_BY_US


def slow_words(row: Backend, rows: Sequence[Backend]) -> str | None:
    """Say in which of its medians an address is far above the others."""
    parts = []
    alike = [other.usual for other in rows if other is not row and other.usual.reused == row.usual.reused]
    for key in SLOW_KEYS:
        own = row.usual.spreads[key].stats["median"]
        medians = [other.spreads[key].stats["median"] for other in alike]
        others = [value for value in medians if value is not None]
        if own is not None and others and far_above(own, others):
            parts.append(f"{key} {time_text(own)}, of the others {time_text(median(sorted(others)))}")
    if not parts:
        return None
    return f"is slow: median {'; '.join(parts)}"


def status_words(row: Backend) -> str:
    return ", ".join(map(str, row.statuses))


def certificate_words(certificate: Certificate | None, now: datetime.datetime) -> str | None:
    """Name a certificate by the end of its serial number, and say how long it holds."""
    if certificate is None:
        return None
    days, left = certificate.days_left(now), "no legible expiry"
    if days is not None:
        left = f"{counted(days, 'day')} left"
    return f"{(certificate.serial or '?')[-8:]}, {left}"


def failure_words(row: Backend) -> list[str]:
    """Say how an address fails, and how often if not always."""
    failures: dict[str, tuple[int, Failure]] = {}
    for part in row.parts:
        for kind, (count, failure) in part.failures.items():
            failures[kind] = failures.get(kind, (0, failure))[0] + count, failure
    words = []
    for count, failure in failures.values():
        often = f" in {count} of {counted(row.runs, 'run')}" * (count < row.runs)
        words.append(f"fails{often}: {clip(failure.message).rstrip('.')}. {clip(failure.hint)}")
    return words


def never_kept_words(row: Backend) -> str | None:
    """Say of an address whose connections were never used again why its medians are not like the others'."""
    refused = [reason for part in row.parts for reason in part.refused]
    if not row.measured or row.usual.reused or not refused:
        return None
    return f"was only measured on new connections: {refused[0]}"


def odd_words(rows: Sequence[Backend], now: datetime.datetime) -> dict[str | None, list[str]]:
    """Say of each target what is odd about it: that it fails, is slow, or differs from most."""
    words = {row.target: failure_words(row) for row in rows}
    for row in rows:
        words[row.target] += filter(None, [never_kept_words(row), slow_words(row, rows)])
    statuses = {row.target: status_words(row) or None for row in rows}
    for target in apart(statuses):
        words[target].append(f"answers {statuses[target]}")
    shown = {row.target: row.certificates for row in rows}
    for target in apart({target: tuple(sorted(map(str, each))) or None for target, each in shown.items()}):
        named = "; ".join(str(certificate_words(each, now)) for each in shown[target].values())
        what = "another certificate"
        if len(shown[target]) > 1:
            what = f"{len(shown[target])} certificates"
        words[target].append(f"shows {what}: {named}")
    return words


def trips_differ(facts: Iterable[Facts]) -> bool:
    trips = sorted(each.rtt_us for each in facts if each.rtt_us is not None)
    return bool(trips) and trips[-1] >= SLOW_TIMES * trips[0] and trips[-1] >= trips[0] + SLOW_BY_US


def fact_cells(facts: Facts, now: datetime.datetime) -> dict[str, str]:
    """Return the cells of what may differ from server to server, by heading."""
    cells = {
        "Certificate": certificate_words(facts.certificate, now),
        "Resent": facts.retransmits,
        "Server": facts.server and clip(facts.server, 40),
        "HTTP": facts.http_version and facts.http_version.replace("HTTP/", ""),
    }
    return {heading: "-" if value is None else str(value) for heading, value in cells.items()}


def fact_columns(rows: Sequence[Backend], now: datetime.datetime) -> Iterator[tuple[str, list[str]]]:
    """Give the columns in which the servers that answered differ: heading and cells."""
    facts = [row.usual.facts or NO_FACTS for row in rows]
    table = [fact_cells(each, now) for each in facts]
    for heading in table[0]:
        cells = [row[heading] for row in table]
        told = {cell for cell, row in zip(cells, rows) if row.measured or cell != "-"}
        if len(told) > 1:
            yield heading, cells
    if trips_differ(facts):
        yield "Round trip", [spread_number(rounded_ms(each.rtt_us), False) for each in facts]


def median_column(rows: Sequence[Backend], key: str) -> tuple[str, list[str]]:
    return key.capitalize(), [
        spread_number(rounded_ms(row.usual.spreads[key].stats["median"]), False) for row in rows
    ]


def targets_table(rows: Sequence[Backend], odd: Mapping[str | None, list[str]], look: Look) -> Table:
    """Compare the addresses: medians in ms, and what differs. What does not fit is left out, from the end."""
    now = datetime.datetime.now(datetime.timezone.utc)
    marks = ["! " * bool(odd[row.target]) for row in rows]
    statuses = [
        ", ".join([status_words(row)] * bool(row.statuses) + ["ERROR"] * bool(row.failed)) for row in rows
    ]
    columns = [
        ("Address", [mark + str(row.target) for mark, row in zip(marks, rows)]),
        ("Status", statuses),
        median_column(rows, "wait"),
        median_column(rows, "total"),
    ]
    for column in (*fact_columns(rows, now), median_column(rows, "connect"), median_column(rows, "tls")):
        wider = [*columns, column]
        if sum(max(map(len, (heading, *cells))) + 3 for heading, cells in wider) < look.width:
            columns = wider
    tones = ["warn" * bool(odd[row.target]) for row in rows]
    numbers = ("Wait", "Total", "Connect", "Tls", "Round trip", "Resent")
    headings = tuple(
        (heading.replace("Tls", "TLS"), "right" if heading in numbers else "left", heading == "Address")
        for heading, _ in columns
    )
    body = zip(*(cells for _, cells in columns))
    return Table(
        "", headings, tuple(tuple(Span(cell, tone) for cell in row) for row, tone in zip(body, tones))
    )


def lookup_sentence(survey: Survey, rows: Sequence[Backend]) -> str:
    """Say how many addresses there are, and where they are from."""
    count = f"{len(rows)} addresses"
    if len(rows) == 1:
        count = "1 address"
    if survey.lookup_us is None:
        return f"{count}, given with --resolve"
    return f"{count}, found in {ms_text(rounded_ms(survey.lookup_us))}"


def alike_sentence(rows: Sequence[Backend]) -> str:
    """Say that no address is odd, and in what they differ all the same."""
    now = datetime.datetime.now(datetime.timezone.utc)
    who = f"All {len(rows)} addresses"
    if len(rows) == 2:
        who = "Both addresses"
    differing = [heading for heading, _ in fact_columns(rows, now)]
    return f"{who} are alike{' but for ' * bool(differing)}{', '.join(differing)}."


def medians_sentence(survey: Survey, rows: Sequence[Backend]) -> str:
    """Say of how many runs the medians in a table are, and how many of them started late."""
    kept = [row.usual for row in rows if row.usual.reused]
    new = [row.usual for row in rows if not row.usual.reused]
    parts = []
    if kept:
        parts.append(f"{counted(sum(each.runs for each in kept), 'run')} on kept connections")
    if new:
        parts.append(counted(sum(each.runs for each in new), "run") + " on new ones" * bool(kept))
    late = sum(each.late for each in (*kept, *new))
    what = " and ".join(parts)
    if late:
        what += f", {counted(late, 'late start')}"
    return f"{lookup_sentence(survey, rows)}; medians in ms of {what}:"


def targets_blocks(survey: Survey, look: Look) -> Iterator[Block]:
    """Show the addresses of a name side by side, step by step of a chain."""
    now = datetime.datetime.now(datetime.timezone.utc)
    numbers = sorted({summary.number for summary in survey.summaries})
    for number in numbers:
        rows = backends_of(survey, number)
        odd = odd_words(rows, now)
        step = f"Step {number}: " * (len(numbers) > 1)
        yield (Span(f"{step}{rows[0].usual.method} {clip(rows[0].usual.url)}", "strong"),)
        yield (Span(medians_sentence(survey, rows)),)
        yield targets_table(rows, odd, look)
        for target, words in odd.items():
            for each in words:
                yield (Span(f"! {target} {each}", "warn"),)
        for row in rows:
            warmth = reuse_sentence(row.usual, row.parts)
            if warmth:
                yield (Span(f"{row.target}: {warmth}"),)
        if not any(odd.values()) and len(rows) > 1:
            yield (Span(alike_sentence(rows), "good"),)


def survey_blocks(survey: Survey, look: Look) -> Iterator[Block]:
    """Return what is drawn at the end of a series; of the compact style the panel alone."""
    if look.style == "waterfall" and survey.runs < survey.expected:
        yield (Span(f"Stopped after {survey.runs} of {survey.expected} runs.", "warn"),)
    if look.style == "waterfall" and survey.samples[0].target:
        yield from targets_blocks(survey, look)
    elif look.style == "waterfall":
        for summary in survey.summaries:
            yield from summary_blocks(summary, survey, look)
    if survey.verdict:
        yield slo_panel(survey.verdict, look.glyphs)


def summary_lines(survey: Survey, compact: bool) -> Iterator[str]:
    """Return the line of each summary; the last one of a target bears its verdict."""
    places = {(each.target, each.number, each.url) for each in survey.summaries}  # cold and warm are one
    kinds = count_by((target, number) for target, number, _ in places)
    last = {each.target: each for each in survey.summaries}
    for summary in survey.summaries:
        alike = kinds[summary.target, summary.number] > 1
        verdict = None
        if summary is last[summary.target]:
            verdict = survey.verdicts.get(summary.target)
        yield summary_line(summary, alike, verdict, compact)


# ---------------------------------------------------------------------------------------------------------
# 29. Painters. Blocks -> a stream; they know nothing of HTTP. What is printed passes through `visible` here.
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
    """Tell whether a stream can show a text as it is."""
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def choose_glyphs(stream: Any) -> Glyphs:
    return UNICODE if can_encode(stream, "".join(UNICODE)) else ASCII


def terminal_width(stream: Any, otherwise: int) -> int:
    """Return the columns of a terminal; `otherwise` for what is none, or does not know (0)."""
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

    if unicodedata.combining(char):
        return 0
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 1


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
    """Fill a text up with blanks to so many cells; one that is wider stays as it is."""
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
            for parts in self._folded(row, widths):
                texts = map(pad, parts, widths, [align for _, align, _ in table.columns])
                yield box[3] + box[3].join(f" {text} " for text in texts) + box[3]
            if number == 0:
                yield self._rule(widths, box[6] + box[10] + box[7])
        yield self._rule(widths, box[4] + box[9] + box[5])

    def _folded(self, row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[str, ...]]:
        """Give the lines that the cells of a row take, blank where a cell needs fewer than its neighbour."""
        columns = [fold(text, width) for text, width in zip(row, widths)]
        height = max(map(len, columns))
        return zip(*(column + [""] * (height - len(column)) for column in columns))

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
            height=25,  # without it, rich takes a dumb terminal for 80 columns wide, whatever the width
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
        self._stream.write("\n".join(line.rstrip(" ") for line in drawn.get().split("\n")))

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


def has_rich() -> bool:
    """Import all of rich that a report may need, before the clock starts and while it can be found."""
    if not all(optional(f"rich.{name}") for name in ("console", "text", "table", "panel", "box")):
        return False
    from rich.cells import cell_len

    cell_len("\u3042")  # has it load the widths of characters
    return True


# ---------------------------------------------------------------------------------------------------------
# 30a. Main, standard streams and files. The only ones that are written to.
# ---------------------------------------------------------------------------------------------------------
class Interruption:
    """What a signal does. Where a series has something to sum up, the first one only asks it to end."""

    def __init__(self) -> None:
        self.sums_up = False
        self.signal: int | None = None  # the first that came
        self.at = 0.0  # when (time.monotonic)

    def asked(self) -> bool:
        return self.signal is not None


INTERRUPTION = Interruption()
ECHO = 0.03  # seconds within which a signal is the last one again: timeout(1) passes on what it got itself


class StatusLine:
    """One line on a terminal's stderr that says what is under way; it leaves nothing behind."""

    def __init__(self, stream: Any, environ: Mapping[str, str]) -> None:
        terminal = stream is not None and stream.isatty() and environ.get("TERM", "dumb") != "dumb"
        self._stream: Any = stream if terminal else None
        self._shown = False
        self._width = terminal_width(stream, 80) - 1
        self._drawn = 0.0
        self.tick = 0.25 if terminal else 1e6  # seconds

    @property
    def seen(self) -> bool:
        return self._stream is not None

    @property
    def ready(self) -> bool:
        """Tell whether there is a terminal, and it is time for a new text: a few times a second at most."""
        return self._stream is not None and time.monotonic() - self._drawn > 0.2

    def show(self, progress: Progress) -> None:
        if self.ready and progress.started and not progress.finished.is_set():
            self.draw(status_text(progress))

    def draw(self, text: str) -> None:
        self._shown, self._drawn = True, time.monotonic()
        self._write("\r" + text[: self._width] + "\x1b[K")

    def clear(self) -> None:
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def _write(self, text: str) -> None:
        """Write past the stream's buffer, which a signal may have stopped half-way; never wait."""
        try:
            terminal = select.poll()
            terminal.register(self._stream, select.POLLOUT)
            if terminal.poll(0) == [(self._stream.fileno(), select.POLLOUT)]:
                os.write(self._stream.fileno(), text.encode("ascii", "replace"))
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


def import_ahead(options: Options) -> bool:
    """Import what is only needed once the clock has started, because the archive may be replaced meanwhile.

    Tell whether the report is drawn with rich.
    """
    names = []
    if options.tracing or set(options.exports) - {"--prometheus"}:
        names.append("json")
        if options.series:
            names.append("zlib")
    if options.follow:  # a redirect may lead to a host that is not ASCII, or that only NO_PROXY tells apart
        names += ["unicodedata", "encodings.punycode"]
    if options.follow and (options.environ.get("no_proxy") or options.environ.get("NO_PROXY")):
        names.append("ipaddress")
    draws = options.style == "waterfall" or (options.style == "compact" and bool(options.thresholds))
    rich = draws and has_rich()
    if draws and not rich:
        names.append("unicodedata")
    for name in names:
        optional(name)
    return rich


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


def run_lines(report: Report, style: str, slot: Slot | None) -> list[str]:
    """Return the lines of a run: a compact one a step, or metrics; `slot` is its place in a series."""
    if style == "metrics":
        return [metrics_line(step, report.verdict, slot) for step in report.run.steps]
    return [compact_line(step, slot) for step in report.run.steps]


def choose_look(options: Options, stream: Any) -> Look:
    width, glyphs = choose_width(stream, options.environ), choose_glyphs(stream)
    return Look(options.style, options.include, width, glyphs)


def paint(blocks: Iterable[Block], options: Options, stream: Any, rich: bool) -> None:
    """Draw what there is to draw; raises OSError."""
    drawn = list(blocks)
    if drawn:
        choose_painter(stream, options.environ, rich).paint(drawn)


def write_report(report: Report, options: Options, stream: Any, rich: bool) -> None:
    """Print the report of a run in the chosen style; raises OSError."""
    if options.style != "waterfall":
        stream.write("".join(visible(line) + "\n" for line in run_lines(report, options.style, None)))
    if options.style != "metrics":
        paint(report_blocks(report, choose_look(options, stream)), options, stream, rich)


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


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def replace_file(path: str, mode: int | None, data: Iterable[bytes]) -> None:
    """Write a new file beside `path` and rename it over; raises OSError and leaves nothing then."""
    folder = os.path.dirname(path) or "."
    temporary = os.path.join(folder, f".httphases-{os.getpid()}-{os.urandom(4).hex()}.tmp")

    def undo() -> None:
        remove(temporary)

    UNFINISHED.append(undo)
    try:
        new = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        if mode is not None:
            os.fchmod(new, stat.S_IMODE(mode))
        write_all(new, data)
        os.replace(temporary, path)
    except BaseException:
        undo()
        raise
    finally:
        UNFINISHED.remove(undo)


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


class Export(NamedTuple):
    """A file that was asked for, and what is to be in it."""

    option: str
    path: str
    make: Callable[[], Iterable[bytes]]


def name_probe(options: Options) -> Probe:
    return Probe(os.uname().nodename, options.label)


def run_exports(report: Report, options: Options) -> Iterator[Export]:
    """Give what was asked for of one run."""
    run, probe = report.run, name_probe(options)
    makers: dict[str, Callable[[], Iterable[bytes]]] = {
        "--json": lambda: to_json(
            json_document(report, probe), map(json_text, map(step_document, run.steps))
        ),
        "--har": lambda: to_json(har_document([run.steps]), map(json_text, har_entries(run))),
        "--prometheus": lambda: run_exposition(report, options.request.url, probe),
    }
    for option, path in options.exports.items():
        yield Export(option, path, makers[option])


def write_exports(exports: Iterable[Export]) -> bool:
    """Write the files that were asked for; tell whether all of it was written."""
    whole = True
    for option, path, make in exports:
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
        except (OSError, ValueError, MemoryError) as error:
            say(f"error: cannot write {option} '{path}': {reason_of(error)}")
            whole = False
    return whole


def discard(stream: Any) -> None:
    """Send what a stream still holds nowhere, or it would fail again at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError, AttributeError):
        pass


def printed(what: str, stream: Any, write: Callable[[], object]) -> bool:
    """Have something written to a standard stream and tell whether it was; a reader may have left, though."""
    try:
        if stream is None:
            raise OSError(errno.EBADF, "standard output is closed")
        write()
        stream.flush()
    except BrokenPipeError:
        discard(stream)  # the reader has seen enough
    except (OSError, ValueError, MemoryError) as error:
        say(f"error: cannot write {what}: {reason_of(error)}")
        discard(stream)
        return False
    return True


def warn_about(run: Run, options: Options, slot: Slot | None) -> None:
    """Say on stderr what stdout cannot; `slot` is the run's place in a series, which sums up some of it."""
    if run.limit_reached and slot is None:
        say(f"warning: stopped after {MAX_REDIRECTS} redirects; the last step redirects once more")
    for step in run.steps:
        if options.style == "metrics" and step.error:
            say(f"error: {failure_text(step.number, step.error, slot)}")
        starved = step.starved_us > max(STARVED_BADLY_US, step.timing.total // 10)
        if options.style != "waterfall" and starved and slot is None:
            say(f"warning: {starved_text(step)}")
        if options.style != "waterfall" and lacks_certificate(step) and slot is None:
            say(f"warning: {lacking_text(step)}")


def gives_stdout_away(options: Options) -> bool:
    """Tell whether an export takes stdout, so that it holds that one document and nothing else."""
    return any(map(is_stdout, options.exports.values()))


def choose_stream(options: Options) -> Any:
    """Return where the report goes, None where that is closed: stderr if an export takes stdout."""
    return sys.stderr if gives_stdout_away(options) else sys.stdout


def is_unseen(options: Options, stream: Any) -> bool:
    """Tell whether nobody is there to read the report, which is no failure: an export takes stdout."""
    return stream is None and gives_stdout_away(options)


def show(report: Report, options: Options, rich: bool) -> bool:
    """Print the report and write the files; tell whether all of it was written."""
    stream = choose_stream(options)
    whole = is_unseen(options, stream)
    whole = whole or printed("the report", stream, lambda: write_report(report, options, stream, rich))
    return write_exports(run_exports(report, options)) and whole


def send_traces(spans: Iterable[str], options: Options) -> bool:
    """Send spans where --otlp says, if it does; tell whether nothing is left undone."""
    if options.tracing is None:
        return True
    sender = options.tracing.sender
    url = sender.request.url
    try:
        deliver(sender, to_otlp(spans, options.tracing, name_probe(options)))
    except NetworkError as error:
        collector = f"{url.scheme}://{bracketed(url.host)}:{url.port}"
        say(f"error: --otlp {collector}: {render(error, sender.secrets)}")
        return False
    return True


# ---------------------------------------------------------------------------------------------------------
# 30b. Main, what is kept of a series while it goes on.
# ---------------------------------------------------------------------------------------------------------
LEAD = 20_000_000  # ns before its start that a run is prepared; longer, and what was warmed is cold again
SLICE = 0.05  # seconds after which it is looked whether the series is still wanted
SWEEP = 100  # runs after which all of the garbage is collected, which takes some ms
MAX_SHELF = 64 << 20  # bytes of the exports that are kept, compressed, before they become brief
MAX_URLS, OTHER_URLS = 100, "further-URLs"  # of a step that are summed up apart, and of all others
BRIEF_HEADER = 4096  # bytes of header fields that it has then
TOLD_IN_FULL = 20  # runs of a target that get a line each beside a waterfall on a terminal


def in_brief(run: Run) -> Run:
    """Leave out of a run's responses all header fields but the first: they may be a megabyte each time."""

    def brief(response: Response) -> Response:
        kept, size = [], 0
        for name, value in response.headers:
            size += len(name) + len(value)
            if size > BRIEF_HEADER:
                break
            kept.append((name, value))
        return response._replace(headers=tuple(kept))

    steps = (step._replace(response=step.response and brief(step.response)) for step in run.steps)
    return run._replace(steps=tuple(steps))


class Ledger:
    """What is kept of a series while it goes on: a few numbers of each step, and the exports, compressed."""

    def __init__(self, options: Options) -> None:
        self._reads = options.style == "waterfall"
        self._known: dict[Any, Any] = {}  # one object each for what comes again in every run
        self.options = options
        self.samples: list[Sample] = []
        self.outcome = Outcome(False, False, False)
        self.runs = self.starved = self.begun = self.ended = 0
        self.lookup_us: int | None = None
        self.levels: dict[StepKind, Level] = {}
        self.newest: dict[StepKind, Step] = {}
        self.lacking = 0  # runs in which a client certificate was asked for in vain
        self.limited = 0  # runs that ended at the limit of redirects
        self._shelf = Shelf() if options.json_path or options.har_path else None
        self._urls: dict[int, set[str]] = {}  # by the number of the step
        self._brief = False
        self.spans: list[str] = []
        self.untraced = False  # there are more runs than a collector gets at once

    def add(self, report: Report) -> None:
        run = report.run
        self.ended = time.perf_counter_ns()
        self.begun = self.begun or run.started
        self.runs += 1
        self.starved += any(step.starved_us > STARVED_BADLY_US for step in run.steps)
        self.outcome = Outcome(*map(max, self.outcome, outcome_of(run)))
        self.samples += self._samples(run)
        self.lacking += any(map(lacks_certificate, run.steps))
        self.limited += run.limit_reached
        for step in run.steps:
            kind = (run.slot.target, step.number, step.network.reused)
            self.levels[kind] = level_of(step, run.slot.number)
        for step in in_brief(run).steps if self._reads else ():
            if step.response:
                self.newest[run.slot.target, step.number, step.network.reused] = step
        if self.options.tracing and not self.untraced:
            self.spans += span_texts(report)
        self._shelve(report)

    def _shelve(self, report: Report) -> None:
        """Keep what the exports will say of a run; in brief once there is much of it."""
        if self._shelf is None:
            return
        if not self._brief and self._shelf.size > MAX_SHELF:
            self._brief = True
            first = report.run.slot.number
            say(
                f"warning: from run {first} on the exports have the first 4 KB of each header section alone: "
                f"all of them would take more memory than {MAX_SHELF >> 20} MB"
            )
        if self._brief:
            report = report._replace(run=in_brief(report.run))
        if self.options.json_path:
            self._shelf.add("json", json_text(run_document(report)))
        if self.options.har_path:
            for entry in har_entries(report.run):
                self._shelf.add("har", json_text(entry))

    def _url(self, step: Step) -> str:
        """Return the URL that a step is summed up by: some redirects lead to another one every time."""
        known = self._urls.setdefault(step.number, set())
        if step.url not in known and len(known) >= MAX_URLS:
            return OTHER_URLS
        known.add(step.url)
        same: str = self._known.setdefault(step.url, step.url)
        return same

    def _samples(self, run: Run) -> Iterator[Sample]:
        """Reduce the steps of a run to what is kept of them."""
        good = [step.number for step in run.steps if not step.error]
        for step in run.steps:
            findings = read_step(step) if self._reads else ()
            yield Sample(
                run=run.slot.number,
                target=run.slot.target,
                number=step.number,
                url=self._url(step),
                method=step.request.method,
                started_at=step.started_at,
                timing=step.timing,
                status=step.answer and step.answer.status,
                failure=step.error and self._known.setdefault(step.error, step.error),
                reused=step.network.reused,
                refused=step.network.reuse_refused,
                late=run.late_us is not None,
                judged=step.number == max(good, default=0),
                last=step is run.steps[-1],
                findings=tuple(finding._replace(evidence={}) for finding in findings),
                facts=self._facts(step) if run.slot.target else None,
            )

    def _facts(self, step: Step) -> Facts:
        """Return by what a server may differ from the others; the same object for the same facts."""
        network, response = step.network, step.response
        facts = Facts(
            rtt_us=network.rtt_us,
            retransmits=network.retransmits,
            certificate=network.tls.certificate if network.tls else None,
            server=response.get("server") if response else None,
            http_version=response.http_version if response else None,
        )
        same: Facts = self._known.setdefault(facts, facts)
        return same

    def warnings(self) -> Iterator[str]:
        """Say what is to be borne in mind of all runs."""
        if self.starved:
            yield starved_runs_text(self.starved, self.runs)
        if self.lacking:
            yield f"in {self.lacking} of {self.runs} runs {LACKING}"
        if self.limited:
            yield f"{self.limited} of {self.runs} runs stopped after {MAX_REDIRECTS} redirects"

    def survey(self, series: Series, expected: int) -> Survey:
        """Sum up what there is of so many runs that were to be."""
        targets = count_by(sample.target for sample in self.samples)
        verdicts = {}
        for target in targets:
            own = [sample for sample in self.samples if sample.target == target]
            verdict = judge_series(self.options.thresholds, own)
            if verdict:
                verdicts[target] = verdict
        return Survey(
            series=series,
            probe=name_probe(self.options),
            samples=self.samples,
            runs=self.runs,
            expected=expected,
            duration_us=max(0, self.ended - self.begun) // 1000,
            summaries=sum_up_all(self.samples),
            verdicts=verdicts,
            lookup_us=self.lookup_us,
            levels=self.levels,
            newest=self.newest,
        )

    def expect(self, runs: int) -> None:
        """Reckon with so many runs, of which a collector does not get too many."""
        if self.options.tracing and runs > MAX_TRACES:
            say(f"warning: these are {runs} runs; --otlp sends at most {MAX_TRACES}: no trace is sent")
            self.untraced = True

    def exports(self, survey: Survey, crashed: bool) -> Iterator[Export]:
        """Give what was asked for; of a series that crashed no metrics: the old ones are seen to age."""
        options = self.options
        runs: dict[int, list[Sample]] = {}
        for sample in self.samples:
            runs.setdefault(sample.run, []).append(sample)
        makers: dict[str, Callable[[], Iterable[bytes]]] = {
            "--json": lambda: to_json(series_document(survey), self._texts("json")),
            "--har": lambda: to_json(har_document(runs.values()), self._texts("har")),
            "--prometheus": lambda: series_exposition(survey, options.request.url),
        }
        for option, path in options.exports.items():
            if not (crashed and option == "--prometheus"):
                yield Export(option, path, makers[option])

    def _texts(self, name: str) -> Iterator[str]:
        assert self._shelf
        return self._shelf.texts(name)

    def send(self) -> bool:
        """Send the traces, if any are wanted; tell whether nothing is left undone."""
        INTERRUPTION.sums_up = False  # from here on a signal ends it at once
        return not self.untraced and send_traces(self.spans, self.options)


# ---------------------------------------------------------------------------------------------------------
# 30c. Main, a series of runs, measured one after the other: told as they end, summed up at the end.
# ---------------------------------------------------------------------------------------------------------
class Teller:
    """Says what becomes of each run as it ends, and on a terminal what is under way."""

    def __init__(self, options: Options, series: Series, ledger: Ledger) -> None:
        self._options, self._ledger = options, ledger
        self._interval = series.interval
        self._tells_all = series.times <= TOLD_IN_FULL
        self.expected = series.times  # runs
        self._status = StatusLine(sys.stderr, options.environ)
        self.stream = choose_stream(options)
        self.unseen = is_unseen(options, self.stream)
        self.whole = True
        self._gone = False  # the reader of the report
        self._bar, self._summed = "", 0.0  # when (time.monotonic)
        self._usual: list[int | None] = []  # the statuses of the first run that succeeded
        terminal = sys.stdout is not None and sys.stdout.isatty()
        self._spares = options.style == "waterfall" and terminal
        self._exports = bool(options.exports or options.tracing)
        self.watch = Watch(self._show, min(SLICE, self._status.tick), INTERRUPTION.asked)

    @property
    def wanted(self) -> bool:
        """Tell whether anybody still waits for more runs."""
        return self._exports or not self._gone

    def clear(self) -> None:
        self._status.clear()

    def expect(self, targets: int) -> None:
        """Reckon with so many runs in each round; with the lookup that failed where there are none."""
        self.expected = self.expected * targets or 1
        self._interval /= max(1, targets)

    def wait(self, due: int) -> bool:
        """Wait until a run is to be prepared; False when the series is to end."""
        while not INTERRUPTION.asked():
            self._sum_up()
            left = (due - LEAD - time.perf_counter_ns()) / 1e9
            if left <= 0:
                return True
            self._draw("")
            time.sleep(min(left, SLICE))
        return False

    def tell(self, report: Report) -> None:
        """Print the lines of a run that has ended."""
        self.clear()
        warn_about(report.run, self._options, report.run.slot)
        if self._tells_all or not self._spares or self._is_odd(report.run):
            self.write(run_lines(report, self._options.style, report.run.slot))

    def write(self, lines: Iterable[str]) -> None:
        self.print(lambda: self.stream.write("".join(visible(line) + "\n" for line in lines)))

    def print(self, write: Callable[[], object]) -> None:
        """Have something written to the report, as long as that can be done."""

        def attempt() -> None:
            try:
                write()
                self.stream.flush()
            except BrokenPipeError:
                self._gone = True
                raise

        if self.whole and not self.unseen and not self._gone:
            self.whole = printed("the report", self.stream, attempt)

    def _is_odd(self, run: Run) -> bool:
        """Tell whether a run failed, was late, or was answered with other statuses than the first."""
        if any(step.error for step in run.steps) or run.late_us is not None:
            return True
        statuses = [step.answer and step.answer.status for step in run.steps]
        self._usual = self._usual or statuses
        return statuses != self._usual

    def _show(self, progress: Progress) -> None:
        if self._status.ready:
            self._draw(status_text(progress))

    def _sum_up(self) -> None:
        """Make the text of the bar, between two runs: many samples would hold up the one under way."""
        now = time.monotonic()
        if self._status.seen and now - self._summed > 0.2:
            self._summed = now
            self._bar = series_progress(self._interval, self.expected, self._ledger.samples)

    def _draw(self, phase: str) -> None:
        if self._status.ready:
            self._status.draw(", ".join(part for part in (self._bar, phase) if part))


def each_slot(series: Series, targets: Sequence[str | None], ledger: Ledger) -> Iterator[Slot]:
    """Give the place of each run when it is next: round by round, on a fixed schedule."""
    number = 0
    for turn in range(1, series.times + 1):
        due = 0
        if turn > 1 and series.interval:
            due = ledger.begun + round((turn - 1) * min(series.interval, 1e9) * 1e9)
        for target in targets:
            number += 1
            yield Slot(number, turn, target, due, 0 < due < ledger.ended)
            due = 0  # the others of a round follow at once


def at_target(options: Options, target: str | None) -> Options:
    """Return options by which the URL's host and port are asked at one address."""
    if target is None:
        return options
    url = options.request.url
    return options._replace(target=target, overrides={**options.overrides, (url.host, url.port): target})


def find_targets(options: Options, means: Means, ledger: Ledger, teller: Teller) -> Sequence[str | None]:
    """Return what is to be measured: the name as it stands (None), or each of its addresses.

    None are left where a lookup found none: that is a failed run.
    """
    assert options.series
    if not options.series.every_address:
        return (None,)
    targets = options.series.addresses
    if not targets:
        run = measure(options, means, teller.watch, Slot(0, 0))
        (step,) = run.steps
        if step.error:
            told = Report(run._replace(slot=Slot()), None)
            ledger.add(told)
            teller.tell(told)
            return ()
        ledger.lookup_us = step.timing.total
        targets = tuple(dict.fromkeys(step.network.addresses))
    if len(targets) > MAX_TARGETS:
        say(f"warning: of {len(targets)} addresses the first {MAX_TARGETS} are measured")
    return targets[:MAX_TARGETS]


def take_runs(options: Options, means: Means, ledger: Ledger, teller: Teller) -> None:
    """Measure one run after the other, until all are done, nobody wants more, or one cannot be made."""
    assert options.series
    targets = find_targets(options, means, ledger, teller)
    teller.expect(len(targets))
    ledger.expect(len(targets) * options.series.times)
    for slot in each_slot(options.series, targets, ledger):
        if not teller.wanted or not teller.wait(slot.due):
            return
        try:
            run = measure(at_target(options, slot.target), means, teller.watch, slot)
        except Stopped:
            return
        report = Report(run, judge(options.thresholds, run))
        ledger.add(report)
        INTERRUPTION.sums_up = True
        teller.tell(report)
        # What a run leaves behind, never while a clock runs; what was kept for the next one has grown old.
        gc.collect(2 if ledger.runs % SWEEP == 0 else 1)


# As good as closed; on systems without O_PATH, at least nothing that could be written.
NEITHER_READ_NOR_WRITTEN = getattr(os, "O_PATH", os.O_RDONLY)


def reserve_descriptor() -> int | None:
    """Hold a file descriptor for the exports: runs that hang in a resolver may take all others."""
    try:
        return os.open("/", NEITHER_READ_NOR_WRITTEN)
    except OSError:
        return None


def run_series(options: Options, means: Means, rich: bool) -> int:
    """Measure a series, sum it up, and return the exit code; raises ToolError, and whatever crashed."""
    assert options.series
    ledger = Ledger(options)
    teller = Teller(options, options.series, ledger)
    crash = None
    reserve = reserve_descriptor()
    gc.freeze()
    UNFINISHED.append(teller.clear)
    try:
        take_runs(options, means, ledger, teller)
    except Exception as error:
        if not ledger.runs:
            raise
        crash = error
    finally:
        teller.clear()
        UNFINISHED.remove(teller.clear)
        means.close()
        gc.unfreeze()
    survey = ledger.survey(options.series, teller.expected)
    for warning in means.contexts.warnings:
        say(f"warning: {warning}")
    for warning in ledger.warnings():
        say(f"warning: {warning}")
    if options.style != "waterfall":
        teller.write(summary_lines(survey, options.style == "compact"))
    if options.style != "metrics":
        blocks = survey_blocks(survey, choose_look(options, teller.stream))
        teller.print(lambda: paint(blocks, options, teller.stream, rich))
    if reserve is not None:
        os.close(reserve)
    crashed = crash is not None and not INTERRUPTION.asked()
    written = write_exports(ledger.exports(survey, crashed))
    if crash and crashed:
        raise crash
    sent = ledger.send()
    if INTERRUPTION.signal:
        return 128 + INTERRUPTION.signal
    passed = survey.verdict is None or survey.verdict.passed
    return choose_exit_code(ledger.outcome, options.fail, not (written and sent and teller.whole), passed)


# ---------------------------------------------------------------------------------------------------------
# 30d. Main, from argv to exit code. Signals; where errors become codes.
# ---------------------------------------------------------------------------------------------------------
def run_once(options: Options, means: Means, rich: bool) -> int:
    """Measure once, report, and return the exit code; raises ToolError."""
    status = StatusLine(sys.stderr, options.environ)
    UNFINISHED.append(status.clear)
    try:
        run = measure(options, means, Watch(status.show, status.tick, bool), Slot())
    finally:
        status.clear()
        UNFINISHED.remove(status.clear)
    report = Report(run, judge(options.thresholds, run))
    for warning in means.contexts.warnings:
        say(f"warning: {warning}")
    warn_about(run, options, None)
    whole = show(report, options, rich)
    whole = send_traces(span_texts(report), options) and whole
    passed = report.verdict is None or report.verdict.passed
    return choose_exit_code(outcome_of(run), options.fail, not whole, passed)


def run_tool(argv: Sequence[str] | None, take_store: Callable[[], ssl.SSLContext | None]) -> int:
    """Go the whole way once; raises ToolError."""
    options = parse_options(argv, os.environ, choose_width(sys.stdout, os.environ))
    for warning in options.warnings:
        say(f"warning: {warning}")
    contexts = TlsContexts(options, take_store)
    if options.request.url.secure:
        contexts.start(target_role(options.request.url, options))
    rich = import_ahead(options)
    if options.series:
        means = Means(contexts)
        if options.series.reuse:
            means = Means(contexts, {})
        return run_series(options, means, rich)
    return run_once(options, Means(contexts), rich)


def shortage() -> str | None:
    """Name the limit of memory if hardly any can be had: what goes wrong in C then may be called anything."""
    try:
        mmap.mmap(-1, 16 << 20, mmap.MAP_PRIVATE).close()
    except OSError:
        return NO_MEMORY
    return None


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


def main(
    argv: Sequence[str] | None = None, take_store: Callable[[], ssl.SSLContext | None] = no_store
) -> int:
    """Run the program and return its exit code; the only place where errors become codes."""
    collecting = gc.isenabled()
    gc.disable()  # no pause while the clock runs; a run makes little garbage
    try:
        return run_tool(argv, take_store)
    except Answered as answer:
        text = answer.text
        written = printed("to standard output", sys.stdout, lambda: sys.stdout.write(text))
        return ExitCode.OK if written else ExitCode.WRITE
    except SloError as error:
        return report_slo_error(error)
    except UsageError as error:
        say(f"error: {clip(mask_userinfo(error.message))}")
        return ExitCode.USAGE
    except BrokenPipeError:
        discard(sys.stdout)
        return ExitCode.OK
    except Exception as error:
        refusal = refusal_of(error) or shortage()
        if refusal:
            say(f"error: {refusal}")
        else:
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
            os.open("/", NEITHER_READ_NOR_WRITTEN)  # takes the lowest free number
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def cli(take_store: Callable[[], ssl.SSLContext | None] = no_store) -> NoReturn:
    """Run the program as a process. It leaves by os._exit: nothing waits for what a deadline left behind.

    The archive's launcher has had OpenSSL read the CA store ahead; `take_store` waits for it.
    A signal does not raise: it may come where no exception gets through, as in a callback of an import.
    """
    ending: list[int] = []

    def end(number: int, _: object) -> None:
        if INTERRUPTION.sums_up and not INTERRUPTION.asked():
            INTERRUPTION.signal, INTERRUPTION.at = number, time.monotonic()
            return
        if number == INTERRUPTION.signal and time.monotonic() - INTERRUPTION.at < ECHO:
            return
        ending.append(number)
        if len(ending) > 1:  # the first one is under way
            return
        try:
            for undo in UNFINISHED:
                undo()
        finally:
            os._exit(128 + (INTERRUPTION.signal or number))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    if os.environ.get("HTTPHASES_TRACEBACK") != "1":
        sys.unraisablehook = callable  # prints nothing, and being in C it needs no memory to do that
    claim_standard_streams()
    code = main(None, take_store)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    os._exit(code)


if __name__ == "__main__":
    cli()
