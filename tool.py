#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 httphases contributors
"""httphases: make one HTTP request, or follow a redirect chain, and say where the time went.

The instants of a step, and the phases between them (durations in ms; a phase that does not apply is 0):

    start      resolved     connected      secured       first byte       done
      |---- dns ---|-- connect --|---- tls ----|---- wait -----|---- xfer ---|
      |------------------------- ttfb -------------------------|
      |-------------------------------- total -------------------------------|

The way of a request through this file, which is read from top to bottom:

     1 Imports          8 Arguments      what the command line says, checked
     2 Vocabulary       9 Command line   argv -> Options
     3 Errors          10 Clock          what happens in a step: a log, and what is read from it
     4 Records         11 Certificates   DER -> Certificate
     5 Local files     12 Failures       what errors of the system, of TLS and of lookups mean, in words
     6 Budgets         13 Lookup         names to addresses
     7 Names, routes   14 Streams        bytes with their time of arrival, over a socket or TLS
                       15 TLS contexts   whom to trust, and what to show
                       16 Messages       reading and writing HTTP/1.1; what responses claim
                       17 Exchanges      one request and its response, over HTTP/1.1 or, through h2, HTTP/2
                       18 Hops           tcp, TLS, unix sockets; through a proxy CONNECT, SOCKS5
                       19 Way            the hops of a request and its exchange, in order
                       20 Step           what is prepared before the clock; log -> Step
                       21 Chain          steps -> Run, under a deadline
                       22 Statistics     steps of many runs -> summaries, comparisons; budgets
                       23 Account        Step -> who owes its time, what that means; runs -> events, Report
                       24 Words          numbers and names -> text; the lines of runs and summaries
                       25 Documents      Report -> JSON, HAR, metrics; Run -> traces
                       26 Views          Report -> blocks to draw
                       27 Painters       blocks -> a stream
                       28 Main           argv to exit code; with 27, and `cannot_run` in 1, all that writes

What the records are, and which is made of which:

    Options    the command line, checked. Its Series says how often to measure, its Request what to ask
    Variant    a name and Options: what is measured side by side (addresses of a name, sides of --versus)
    Turn       the place of a run in its series: its number, its round, its variant, when it is due
    Step       one request and what became of it; made of its log
    Share      who owes how much of a phase of a step; a Finding says what a large one means
    Run        a request or redirect chain that was made once: its steps, and how the budgets judge it
    Summary    what the steps of one number have in common in many runs
    Slow       the slow runs of a step of a series: which they are, when they come, and what goes with them
    Comparison how much slower a side is than side A, or this run than a Baseline (an earlier export)
    SeriesEvent  what has changed from one run of a series to the next
    Report     all runs, and what is shown, written and judged of them

A single run is a series of one and goes the same way; only its report and its documents look different.

The way to a server is a list of hops, each opened on the stream of the one below it, with an exchange at its
end: Tcp or Unix, Tls to a proxy, Tunnel or Socks5, Tls to the target, as far as `Route.hops` needs them. Each
opens itself, notes its instants in the log and explains its own failures.

What is touched, and in which sections; nothing of the kind happens elsewhere. README, "What it touches", says
to users what that comes to:

    network         13, 18 open it, for streams to send and receive; http.client in 16 only writes bytes
    opens files     5; 10 the kernel's figures; 15 by OpenSSL; 28
    looks at files  5, 8, 9, 12, 28
    changes files   28
    environment     28; what it holds is passed to 7, 8, 9, 13, 15, 27
    threads         5, 13
    signals         28, and 1 during the imports; 5 keeps them from other threads
    processes       1, 28: none but this one is started or ended
    evaluates code  nowhere

Three rules:
1. Upward only. Code uses names defined above it, never below; `main` is last.
2. One direction. argv -> Options -> Request -> Step -> Run -> Report -> text, JSON, HAR, exit code.
   Records do not change; no section hands anything back to an earlier one.
3. Nothing but the wire in the timed region: no import, no file, no printing, no TLS context being built,
   no garbage collection. All runs in one thread, which looks at the deadline wherever it waits or reads; but
   what nothing interrupts has a thread of its own: lookups, and what may hang before the clock starts.

Some lines are there only to make a time more exact. The comment at such a line calls it a device (Device "…")
and gives the error of a phase without it and with it: `tests/bench/accuracy.py --program COPY` measures both.
"""

# ---------------------------------------------------------------------------------------------------------
# 1. Imports and version. The standard library only; what is optional comes through `optional`.
from __future__ import annotations

import sys

# As a script (not imported, and not by -m, which sets __spec__) Python puts a folder first in sys.path: the
# script's own, or the current one where the script comes by standard input. Anybody may have left a socket.py
# there. -I and -P (Python 3.11, sys.flags.safe_path) put none there. `sys` itself is built into Python; the
# line above is an import too, which has to come first: only -I or -P keeps out a file named __future__.py.
if __name__ == "__main__" and __spec__ is None and not getattr(sys.flags, "safe_path", sys.flags.isolated):
    del sys.path[0]

import errno
import gc
import os
import signal
from types import SimpleNamespace


def cannot_run(reason: str) -> NoReturn:
    """Say why the program cannot run here, in one line, and exit 70."""
    try:
        sys.stderr.write("httphases: " + reason + "\n")
        sys.stderr.flush()
    except (AttributeError, OSError):  # stderr is closed
        pass
    os._exit(70)


if sys.version_info < (3, 9):  # noqa: UP036 - it is copied to old machines too
    cannot_run("needs Python 3.9 or newer, this is {}.{}".format(*sys.version_info))

REFUSALS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
REFUSED_HINT = "Raise that limit, or end what uses it up, and run it again."


def is_refused(error: BaseException) -> bool:
    """Tell whether a limit of this machine made an error: it gave no memory, no descriptor, no thread."""
    limited = isinstance(error, MemoryError) or getattr(error, "errno", 0) in REFUSALS
    signs = ("start new thread", "failed to map", "annot allocate")  # the last two: a library had no room
    return limited or any(sign in str(error) for sign in signs)


def reason_of(error: BaseException) -> str:
    """Put an error in the system's own words."""
    return getattr(error, "strerror", None) or str(error) or os.strerror(errno.ENOMEM)


def optional(name: str, stand_ins: Mapping[str, Any] | None = None) -> Any:
    """Import a package; None where that fails. It gets the stand-ins of modules that are not loaded yet."""
    absent = {name: module for name, module in (stand_ins or {}).items() if name not in sys.modules}
    sys.modules.update(absent)
    try:
        return __import__(name, fromlist=["*"])
    except Exception as error:
        if is_refused(error):
            raise
        return None
    finally:
        for name in absent:
            sys.modules.pop(name, None)


def import_http_client() -> Any:
    """Return http.client, which only writes here, without email, which takes 6 ms of every start."""
    if "http.client" not in sys.modules:
        email = SimpleNamespace(message=SimpleNamespace(Message=object))
        light = optional("http.client", dict.fromkeys(("email", "email.message", "email.parser"), email))
        if light:
            # `import http.client` looks for it here, `from http import client` there.
            del sys.modules["http.client"], sys.modules["http"].client
            return light
    import http.client

    return http.client


if __name__ == "__main__":
    # Importing makes no garbage to speak of, and collecting it anyway costs 3 ms of every start.
    gc.disable()
    # Until `cli` knows better, an interrupt while importing ends the process without a word.
    for interruption in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(interruption) is not signal.SIG_IGN:
            signal.signal(interruption, lambda number, _: os._exit(128 + number))

try:
    import _queue
    import _thread
    import base64
    import codecs
    import collections
    import datetime
    import io
    import math
    import mmap
    import re
    import select
    import socket
    import ssl
    import struct
    import threading
    import time
    import urllib.parse
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from enum import IntEnum
    from functools import cache, cached_property, lru_cache, partial
    from itertools import accumulate, combinations, groupby, islice, product, zip_longest
    from operator import attrgetter, itemgetter

    http_client = import_http_client()
except ModuleNotFoundError as not_there:
    # A minimal Python, like Debian's python3-minimal, comes without some of its standard library.
    cannot_run(f"this Python lacks '{not_there.name or not_there}': install python3, not python3-minimal")
except (ImportError, OSError, MemoryError) as unloaded:  # it met a limit of this machine, perhaps
    cannot_run(f"this Python cannot load its library: {reason_of(unloaded)}")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple, NoReturn, TypeVar

    Thing = TypeVar("Thing")
    TakeStore = Callable[[], ssl.SSLContext | None]  # waits for a CA store that is read ahead, if one is
else:

    class NamedTuple(tuple):
        """Do what typing.NamedTuple does; importing that, and compiling each class, takes 8 ms a start."""

        def __init_subclass__(cls) -> None:
            cls._fields = tuple(cls.__annotations__)
            cls._defaults = {name: vars(cls)[name] for name in cls._fields if name in vars(cls)}
            for place, name in enumerate(cls._fields):
                setattr(cls, name, property(itemgetter(place)))

        def __new__(cls, *values: Any, **named: Any) -> Any:
            names = cls._fields
            if named or len(values) != len(names):
                given = {**cls._defaults, **dict(zip(names, values)), **named}
                if len(values) > len(names) or given.keys() != set(names):
                    raise TypeError(f"{cls.__name__} takes the fields {', '.join(names)}")
                values = tuple([given[name] for name in names])
            return tuple.__new__(cls, values)

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self))

        def _replace(self, **changes: Any) -> Any:
            return type(self)(**{**self._asdict(), **changes})


__version__ = "5.0.0"


# ---------------------------------------------------------------------------------------------------------
# 2a. Vocabulary. Words and limits, side by side; what one section alone uses may stand in that section.
PHASES = ("dns", "connect", "tls", "wait", "xfer")
LINE_KEYS = (("dns", "connect", "tls", "ttfb", "total"), ("wait", "xfer"))  # of compact and metrics lines
SLO_KEYS = ("dns", "connect", "tls", "ttfb", "wait", "xfer", "total")
# How many values a statistic needs at the least.
LEAST_VALUES = {"min": 1, "p25": 4, "median": 1, "p75": 4, "p90": 10, "p95": 20, "p99": 100, "max": 1}
STAT_KEYS = (*PHASES, "ttfb", "total", "send")  # of Timing
SLO_STATS = ("min", "median", "p90", "p95", "p99", "max")
EXPORT_OPTIONS = ("--json", "--har", "--prometheus", "--otlp")  # each names a file to be written
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
DEFAULT_PORTS = {"http": 80, "https": 443}  # of URLs
GOOD_STATUSES = (range(400),)  # of the last step; --expect names others
REDIRECTS = (301, 302, 303, 307, 308)  # RFC 9110 section 15.4: those that name another place to ask

MAX_REDIRECTS = 10
DEFAULT_MAX_TIME = 20.0  # seconds
DEFAULT_INTERVAL = 1.0  # seconds
DEFAULT_ROUNDS = 20  # of --versus and --baseline: what p95 needs
ADDRESS_MAX_TIME = 5.0  # seconds for each of a name's addresses, so that a dead one does not cost 20
MAX_ADDRESSES = 32  # addresses of a name
MAX_COUNT = 10_000  # runs
SIDES = "ABCDEFGH"  # the names of what --versus compares: the command line itself is A
LONGEST_TIME = 24 * 3600  # seconds, of the times of the command line
MAX_EVENTS = 1000  # in an export
START_PATIENCE = 5.0  # seconds for what comes before the clock, which is local and quick on a healthy machine
MAX_HEADER_LINES = 1000
MAX_COOKIES = 100  # of a chain
MAX_COOKIE = 4096  # bytes, with its attributes
MAX_HEADER_BYTES = 1 << 20
MAX_INTERIM = 100
MAX_CHAIN = 100  # certificates of a server; OpenSSL takes 100 KiB of them
MAX_IDLE = 100  # records or frames that are read of an idle connection: tickets, settings, pings
MAX_LATE_REQUESTS = 3  # for a client certificate after the handshake, on one connection
MAX_UNSENT = 256 * 1024  # bytes of answers to HTTP/2 frames that the other side does not take
MAX_FILE = 16 << 20  # that an option names, but for a body
MAX_BODY = 1 << 30  # bytes of a request's body from a file
MAX_DECODED = 4 << 20  # bytes of it that are decoded, to tell its type: as JSON they take 30 times as much
MAX_HOST = 253  # characters, of labels of 63: what a DNS message holds (RFC 1035 section 2.3.4)
MAX_URL = 256 * 1024  # characters; what servers accept is far shorter
MAX_QUERY_FIELDS = 1000  # that a HAR entry lists
MAX_METRICS = 50  # of Server-Timing; of each as many parameters
MAX_TEXT = 2000  # characters of any one text from outside that are shown
MAX_FOREIGN = 200  # characters of the other side's words, or of a file, inside a message
MAX_FIELD = 64 * 1024  # bytes of a header field of the user's; no more is read of a text of the other side's
MIN_SECRET = 8  # characters of a credential that is masked where it is repeated
BUFFER = 256 * 1024  # one read; larger ones gained nothing on loopback
UPLOAD_PIECE = 64 * 1024  # of an HTTP/2 body; an answer to a PING waits for a piece to be sent
CONNECT_STAGGER = 0.25  # seconds before the next address is tried (RFC 8305 section 5)
HTTP2_WINDOW = 1 << 30  # nothing received is kept, so nothing but the network needs to slow the sender
WAKE_UP_NS = 100_000  # ns that an idle machine needs to wake a program up for an answer, at the least
SHORT_OF_CPU_NS = 2_000_000  # ns: a start that waited longer for CPUs is short of them; idle: 0.03-0.7 ms
NAPS, NAP_SECONDS = 20, 0.0002  # before the clock; three naps gave part of the gain, ten nearly all
STARVED_US = 20_000  # a step that waited so long for a CPU, and for a tenth of its time, says so
QUIET_US = 20_000  # us without data; less is no pause
SHOWN_FINDINGS = 3  # in the waterfall, of each step
MOST_LISTED = 8  # of several things of a kind
LONG_LOOKUP_US = 50_000  # us from which on a lookup is slow
KEEP_ALIVE_S = 1  # a silent connection is probed each second: a segment without data each way
PROBED_US = 1_300_000  # us of silence in which a probe has been answered, if the other end lives
LEAST_QUIET_US = 500_000  # us without data; after less a response still flows
LEAST_LEFT_US = 1_000_000  # a phase that had less time is not judged: a SYN is sent again after 1 s
LARGEST_OPTIONS = 40  # bytes of TCP's options, by which a full segment may be smaller than another
SMALL_PACKET = 1200  # bytes that get through everywhere: IPv6 does not go below an MTU of 1,280
JUMBO_FRAME = 9000  # bytes: what carries more is this machine's own loopback

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110 section 5.6.2

# Fields whose value is a credential, which a report attached to a ticket must not show: these, and all with
# such a word in their name, or part between hyphens. In a URL's query code counts too, and some more keys.
SECRET_FIELDS = frozenset(
    "authorization proxy-authorization cookie set-cookie set-cookie2 x-api-key api-key x-auth-token "
    "x-auth-key www-authenticate proxy-authenticate authentication-info proxy-authentication-info "
    "cf-access-client-id".split()
)
SECRET_NAME = (
    "token|secret|password|passwd|passphrase|api-key|apikey|credential|signature|session"
    "|(?:^|-)(?:auth|authorization|authentication|jwt|key|assertion|pass|pwd|sig)(?:-|$)"
)
# These name what is cached or sent once, or are words of CORS: no credentials.
PUBLIC_NAME = "cache-key|surrogate-key|idempotency-key|websocket-key|allow-credentials"
SECRET_PARAMETER = "code$|.*(?:access|app|private|subscription)key$"
# Whatever the name: what begins with a scheme of authentication (RFC 9110 section 11.1), and JWTs (RFC 7519).
SECRET_VALUE = rb"(?is)(?:(?:Bearer|Basic|Digest|Token|ApiKey)[ \t]|AWS4-).*|eyJ[\w-]+(?:\.[\w-]*){2,4}"
# RFC 9113 section 8.2.2: what has no place in HTTP/2.
CONNECTION_HEADERS = frozenset("connection keep-alive proxy-connection transfer-encoding upgrade te".split())


class ExitCode(IntEnum):
    """Of several reasons for a code the first one here counts."""

    USAGE = 64
    INTERNAL = 70
    REDIRECT_LIMIT = 47
    NETWORK = 75
    WRITE = 73
    HTTP_ERROR = 22
    SLO = 4
    OK = 0


# ---------------------------------------------------------------------------------------------------------
# 2b. Numbers as text, with their units; the same wherever one is shown.
def time_text(us: float | None, decimals: int = 1, unit: str = " ms") -> str:
    """Return a time in ms with so many decimals, one less from 100 ms on; `-` for what does not exist."""
    return "-" if us is None else f"{us / 1000:.{decimals - (us >= 100_000)}f}{unit}"


def length_text(us: float) -> str:
    """Return a time in seconds from one on, in ms below; what would be rounded to 1000 ms is a second."""
    return f"{us / 1e6:.1f} s" if us >= 999_500 else time_text(us)


def size_text(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    if count < 1024 * 1024 - 51:  # what would be rounded to 1024.0 KB is a megabyte
        return f"{count / 1024:.1f} KB"
    return f"{count / (1024 * 1024):.1f} MB"


def rate_text(count: int, us: float) -> str:
    return f"{size_text(round(count * 1e6 / max(1, us)))}/s"


def how_often(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def plural(count: int, noun: str, one: str = "1") -> str:
    """Return a number of things: '3 segments', or a single one with the word for it."""
    return f"{one} {noun}" if count == 1 else f"{count} {noun}s"


# ---------------------------------------------------------------------------------------------------------
# 3. Errors. One class for each way to fail: a NetworkError ends a step, and `main` has the exit code of all.
def clip(text: str, most: int = MAX_TEXT) -> str:
    """Return a text; if it is longer than `most`, its beginning and its length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def list_first(names: Sequence[str], most: int = MOST_LISTED, between: str = ", ") -> str:
    """List the first of some names, with … where there are more."""
    return between.join([*names[:most], "…"] if len(names) > most else names)


class ToolError(Exception):
    """Say in one sentence what went wrong; what others said in it has gone through `foreign`."""

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


# ---------------------------------------------------------------------------------------------------------
# 4a. Records of what is asked, in order of birth.
Header = tuple[str, bytes]


def field_names(headers: Iterable[Header]) -> set[str]:
    """Return the names of header fields, in lower case."""
    return {name.lower() for name, _ in headers}


def without_fields(headers: Iterable[Header], names: Collection[str]) -> tuple[Header, ...]:
    """Return the header fields without those of some names, which are in lower case."""
    return tuple(item for item in headers if item[0].lower() not in names)


def values_of(headers: Iterable[Header], name: str) -> list[bytes]:
    """Return the values of all lines of a field; `name` is in lower case."""
    return [value for key, value in headers if key.lower() == name]


def group_by(key: Callable[[Any], Any], things: Iterable[Any]) -> dict[Any, list[Any]]:
    """Put things that have the same key into one list; the order stays."""
    groups: dict[Any, list[Any]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def server_name(host: str) -> str:
    """Return the name for SNI and verification: no final dot, no zone (RFC 6066 section 3)."""
    return host.partition("%")[0].rstrip(".")


def bracketed(host: str) -> str:
    """Return a host as it is written before a port: IPv6 in brackets (RFC 3986 section 3.2.2)."""
    return f"[{host}]" if ":" in host else host


def place_text(host: str, port: int) -> str:
    return f"{bracketed(host)}:{port}"


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
    def place(self) -> tuple[str, int]:
        return self.host, self.port


PROXY_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}  # where a proxy's URL names none


class Proxy(NamedTuple):
    scheme: str
    host: str
    port: int
    username: bytes | None
    password: bytes | None

    @property
    def is_socks(self) -> bool:
        return self.scheme.startswith("socks")

    @property
    def resolves(self) -> bool:
        """Tell whether it looks up the target's name, not this machine."""
        return self.scheme != "socks5"

    @property
    def shown(self) -> str:
        return f"{self.scheme}://{place_text(self.host, self.port)}"


class Route(NamedTuple):
    """How a URL is reached."""

    proxy: Proxy | None
    source: str | None  # the option or variable that decided about a proxy, None when nothing did
    unix_socket: str | None = None  # a path; there is no proxy then

    def first_hop(self, url: Url) -> tuple[str, int]:
        """Return the host and port that the connection for a URL goes to."""
        first = self.proxy or url
        return first.host, first.port

    def hops(self, url: Url) -> tuple[str, ...]:
        """Name the hops that lead to a URL, in the order of opening: the one place that decides it."""
        hops = ["tcp" if self.unix_socket is None else "unix"]
        if self.proxy and self.proxy.scheme == "https":
            hops.append("proxy tls")
        if self.proxy and not self.forwarder(url):
            hops.append("socks5" if self.proxy.is_socks else "tunnel")
        return (*hops, "tls") if url.secure else tuple(hops)

    def forwarder(self, url: Url) -> Proxy | None:
        """Return the proxy that is asked for the whole URL (RFC 9112 section 3.2.2), not for a way to it."""
        return None if url.secure or not self.proxy or self.proxy.is_socks else self.proxy


class Request(NamedTuple):
    """One request. `headers` are the user's own, in order; in the record of a step, those that were sent."""

    method: str
    url: Url
    headers: tuple[Header, ...]
    body: bytes | None
    content_type: str = ""  # of the body, unless the headers say it

    @property
    def data(self) -> bytes:
        """Return the bytes of the body, none without one."""
        return self.body or b""


class Series(NamedTuple):
    """How often a request or chain is measured: in `rounds`, or for a `duration` where it has one."""

    rounds: int = 1
    interval: float = 0.0  # seconds from start to start
    reuse: bool = False  # every run after the first goes over the connections of the one before
    single: bool = True  # one run, whose report has a form of its own
    every_address: bool = False  # each address of the URL's name is a variant of the request
    addresses: tuple[str, ...] = ()  # those that were given; otherwise a lookup finds them
    duration: float | None = None  # seconds


class Identity(NamedTuple):
    """The paths of a client certificate with its chain, and of its key, which may be the same."""

    certificate: str
    key: str
    password: bytes


class Options(NamedTuple):
    """The command line, validated. `family` is a socket.AF_* constant, `environ` the environment."""

    request: Request
    secrets: Secrets
    environ: Mapping[str, str]
    follow: bool = False
    max_time: float = DEFAULT_MAX_TIME
    http2: bool = True
    insecure: bool = False
    ca_bundle: bytes | None = None  # certificates in PEM
    proxy: str | None = None
    fail: bool = False  # a last status that is not good makes the exit code 22
    family: int = socket.AF_UNSPEC
    overrides: Mapping[tuple[str, int], str] = {}  # of --resolve: (host, port) -> address
    style: str = "waterfall"  # or "compact", "metrics", "silent"
    include: bool = False
    exports: Mapping[str, str] = {}  # option -> path
    thresholds: Mapping[str, float] = {}
    allowances: Mapping[str, Allowance] = {}
    series: Series = Series()
    sides: tuple[Variant, ...] = ()  # of --versus
    baseline: Baseline | None = None
    warnings: tuple[str, ...] = ()
    identity: Identity | None = None
    unix_socket: str | None = None
    interface: str | None = None  # where connections begin: its name, or an address of this machine
    label: str | None = None
    cert_days: int | None = None
    resource: Mapping[str, str] = {}  # what the traces of --otlp are of, by OpenTelemetry's names
    propagate: bool = False  # each request names its span
    trace_id: str | None = None  # of the run under way: all else is the same in each
    expected: tuple[range, ...] = GOOD_STATUSES  # of the last step


class Allowance(NamedTuple):
    """A relative budget: by how many ms, or percent, a median may be above the one it is compared with."""

    amount: float
    percent: bool


# ---------------------------------------------------------------------------------------------------------
# 4b. Records of what happened, in a step, a run, a series. Times are integer microseconds (us) unless a name
#     says otherwise.
FAMILY_NAMES: dict[int, str] = {socket.AF_INET: "IPv4", socket.AF_INET6: "IPv6"}


class Peer(NamedTuple):
    ip: str
    family: int
    address: tuple[Any, ...]  # as connect() takes it


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
    sha256: str | None  # of all of it (DER), in hexadecimal
    subject: str | None = None
    own_key: bytes | None = None  # the identifiers of its key, and of its issuer's
    issuer_key: bytes | None = None
    is_ca: bool = False
    path_length: int | None = None  # how many CAs there may be below this one
    constrained: bool = False  # it may issue for some names alone


NO_CERTIFICATE = Certificate(None, None, None, None, None, None, None)


class TlsInfo(NamedTuple):
    """What the handshake with the target agreed on, as OpenSSL names it; a failed one knows only some."""

    version: str | None = None
    cipher: str | None = None
    alpn: str | None = None
    verified: bool | None = None  # None without TLS, as the next
    custom_ca: bool | None = None
    chain: tuple[Certificate, ...] = ()  # as the server sent it, its own first
    first_to_end: Certificate | None = None  # of what verification went by, or else of all that came
    client_cert: str | None = None  # what became of the client certificate; None where none was given
    wanted: bool = False  # the server asked for a client certificate
    lacks_h2: bool = False  # HTTP/2 was not offered because the package h2 is not here

    @property
    def certificate(self) -> Certificate | None:
        return next(iter(self.chain), None)


NO_TLS = TlsInfo()


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


class Response(NamedTuple):
    status: int
    reason: str
    http_version: str
    headers: tuple[Header, ...]

    def get(self, name: str) -> str | None:
        """Return the first value of a header field, None when it is absent."""
        return next(map(decode, values_of(self.headers, name)), None)


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
    tls: TlsInfo
    rtt_us: int | None
    retransmits: int | None  # without those of segments that had arrived already (RFC 2883)
    reused: bool | None = None  # the connection was kept from an earlier run; None where none is kept
    reuse_refused: str | None = None  # why a kept connection was not used
    idle_us: int | None = None  # how long a kept connection had carried no request
    local_ip: str | None = None
    interface: str | None = None  # as --interface names it

    @property
    def ip(self) -> str | None:
        return self.peer and self.peer.ip


class Counters(NamedTuple):
    """What the kernel had counted on a connection at an instant; None where it does not tell."""

    segment: int  # bytes that a full segment carries
    segment_in: int  # bytes of the largest that came; less than 600 where all were small
    time_out_us: int  # after which something is sent again
    path_mtu: int  # bytes of the largest packet that gets through
    rtt_us: int | None  # the smallest round trip so far
    smoothed_rtt_us: int  # the newest ones, smoothed
    quiet_us: int  # since the newest data came
    heard_us: int  # since the newest acknowledgment came
    unanswered: int  # 0 unless since then something was sent again, or a probe
    retransmits: int
    duplicates: int | None  # segments sent again that had arrived already, as the other side says (RFC 2883)
    sent: int | None  # bytes that have left, each counted once
    acknowledged: int  # bytes of these
    received: int  # bytes, in order
    disorder: int | None  # segments that came out of order
    busy_us: int | None  # in which something was sent or to be sent, and not acknowledged
    limited_us: int | None  # of that, in which the other side's window kept data here

    @property
    def lacks_full_ones(self) -> bool:
        """Tell whether no full segment has come: those may not get through (MTU), but within a machine."""
        return self.segment_in < self.segment - LARGEST_OPTIONS and self.segment <= JUMBO_FRAME

    def since(self, earlier: Counters | None, name: str) -> int:
        """Return by how much a count grew since an earlier instant, 0 where no kernel tells, or it fell."""
        first, last = getattr(earlier, name, None), getattr(self, name)
        return 0 if first is None or last is None else max(0, last - first)


# Of a connection that has sent nothing yet but its SYN, which Linux counts as acknowledged.
JUST_CONNECTED = Counters(*[0] * len(Counters._fields))._replace(acknowledged=1)


class Pauses(NamedTuple):
    """The times in which nothing of a response came, each longer than QUIET_US and two round trips."""

    us: int = 0
    number: int = 0
    longest_us: int = 0
    lost_us: int = 0  # of all such times, those in which a segment was missing that was lost or late
    behind: int = 0  # bytes that came in these
    flights_us: int = 0  # the times of half a round trip to two: of flights, each of which waits for the next


class Resolver(NamedTuple):
    """Whom this machine asks for names, and for which (resolv.conf(5))."""

    servers: tuple[str, ...]
    time_out_us: int = 5_000_000
    search: tuple[str, ...] = ()  # domains that are put behind a name
    ndots: int = 1  # a name with fewer dots is asked for behind them first


# When the kernel's counters are read, by phase: at its begin and end.
MARKS = {
    "dns": ("", "start"),
    "connect": ("start", "connected"),
    "tls": ("connected", "sent"),
    "wait": ("sent", "answered"),
    "xfer": ("answered", "ended"),
}


class Evidence(NamedTuple):
    """What the account rests on besides the times; first what the kernel had counted at some instants."""

    connected: Counters | None = None  # TCP was connected
    sent: Counters | None = None  # the beginning of the request had left
    answered: Counters | None = None  # the first byte came
    ended: Counters | None = None
    connected_us: int | None = None  # from the end of dns until TCP was connected
    request_bytes: int = 0
    sent_whole: bool = False  # its body was acknowledged before the answer came, or else before the end
    starved: Mapping[str, int] = {}  # by phase, from connect on: how long (us) this process waited for a CPU
    early_us: int = 0  # before the first byte, in which later parts of the answer were here already
    pauses: Pauses = Pauses()
    held_us: int = 0  # in which an upload had data while the other side's window of HTTP/2 was used up
    is_alive: bool | None = None  # of a silent connection: its other end still acknowledges; None: unknown
    resolver: Resolver | None = None  # only of a long lookup
    canonical_name: str | None = None  # the name that a resolver found the addresses under

    @property
    def trip(self) -> int:
        """Return the least round trip that was seen, to whatever TCP connected to; 0 where none is known."""
        return (self.ended and self.ended.rtt_us) or 0

    @property
    def begun(self) -> Counters | None:
        """Return what the kernel had counted when the step took the connection over, or made it."""
        return self.connected if self.connected_us is None else JUST_CONNECTED


class Share(NamedTuple):
    """A part of a phase, and who owes it."""

    owner: str
    phase: str
    us: int
    certainty: str  # seen: a counter or a message proves this owner and no other; else fits
    other: str | None = None  # one end cannot tell which of the two it is

    @property
    def owners(self) -> str:
        return "|".join(filter(None, (self.owner, self.other)))


class Finding(NamedTuple):
    """What a time means. `certainty` is `seen` or `fits`."""

    id: str
    phase: str | None
    cost_us: int
    certainty: str
    text: str
    owner: str | None = None


class Turn(NamedTuple):
    """The place of a run in its series."""

    number: int = 1
    round: int = 1
    variant: str | None = None
    due: int = 0  # when it is to start: perf_counter_ns, 0 for at once


LOOKUP = Turn(0, 0)  # before all runs: the name is looked up, nothing else


class Step(NamedTuple):
    """One request and what became of it."""

    number: int
    url: str
    request: Request
    sent_headers: tuple[Header, ...]
    route: Route
    started_at: datetime.datetime
    timing: Timing
    network: Network
    response: Response | None
    body_bytes: int
    interim: tuple[int, ...]
    error: Failure | None
    evidence: Evidence
    span_id: str | None = None  # in the trace of its run
    expected: tuple[range, ...] = GOOD_STATUSES
    notes: tuple[str, ...] = ()  # what was wrong with the answer, though it could be read
    page: str = ""  # how the text begins of an error page, or of another answer that was not expected
    turn: Turn = Turn()  # of its run
    account: tuple[Share, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def answer(self) -> Response | None:
        """Return the response of a step that did not fail: one that failed half-way has no status."""
        return None if self.error else self.response

    @property
    def status(self) -> int | None:
        return self.answer and self.answer.status

    @property
    def good(self) -> bool:
        """Tell whether it was answered with a good status. All statistics rest on this."""
        return self.answer is not None and any(self.answer.status in each for each in self.expected)

    @property
    def facts(self) -> dict[str, str]:
        """Return what is known of the address, the certificate (how its SHA-256 begins) and the protocol."""
        certificate, response = self.network.tls.certificate, self.response
        shown = {
            "address": self.network.ip,
            "certificate": certificate and (certificate.sha256 or "")[:8],
            "protocol": response and response.http_version,
        }
        return {name: value for name, value in shown.items() if value}


class Variant(NamedTuple):
    """What is measured side by side with others."""

    name: str | None  # None where there is only one
    options: Options
    words: str | None = None  # of --versus: what this side does differently, credentials masked


class Run(NamedTuple):
    """A request or chain that was made once, and how the budgets judge it."""

    steps: tuple[Step, ...]
    limit_reached: bool  # of redirects
    turn: Turn = Turn()
    started: int = 0  # when its clock started, or if it never did, when it ended: perf_counter_ns
    ended: int = 0  # perf_counter_ns
    trace_id: str | None = None
    verdict: Verdict | None = None
    loop: str = ""  # of its redirects: which step repeats which, and the cookies they set

    @property
    def judged(self) -> Step | None:
        """Return the step that plain budgets are held against: the last one without an error."""
        return next((step for step in reversed(self.steps) if not step.error), None)


NOT_JUDGED = "not judged"  # good answers are too few
UNDECIDED = "undecided"  # by chance it may be kept or exceeded
CERT = "cert"  # stands for --cert-days beside the keys of budgets of times


class Judgement(NamedTuple):
    """How a budget was judged for one variant. Its numbers are in ms, of a certificate in days."""

    key: str
    outcome: str  # "kept", "exceeded", UNDECIDED or NOT_JUDGED
    variant: str | None
    threshold: float = math.inf  # of a relative budget only if there is a median to compare with
    actual: float | None = None  # None where there is nothing to judge
    run: int | None = None  # the worst one; None for a budget on a statistic
    lacking: tuple[str, ...] = ()  # at which variants, or in which series, good answers are too few
    allowance: Allowance | None = None  # of a relative budget, as the next two
    baseline: float = 0.0  # the median that it is compared with
    difference: tuple[float, ...] = ()  # the median one, and the ends of its interval; none without one
    enough: float = 0  # about how many values would decide
    certificate: str = ""  # the name of the one that ends first

    @property
    def excess(self) -> float:
        """Return by how much the budget was exceeded, exact to nine decimals."""
        return round((self.actual or 0) - self.threshold, 9)


class Verdict(NamedTuple):
    """The outcome of the budgets."""

    judgements: tuple[Judgement, ...]

    def having(self, *outcomes: str) -> list[Judgement]:
        return [each for each in self.judgements if each.outcome in outcomes]

    def keys(self, *outcomes: str) -> list[str]:
        return sorted({each.key for each in self.having(*outcomes)})

    @property
    def passed(self) -> bool:
        return not self.having("exceeded", NOT_JUDGED)

    @property
    def violations(self) -> list[Judgement]:
        """Return the judgements of budgets of times that were exceeded, by key."""
        exceeded = (each for each in self.having("exceeded") if each.key != CERT)
        return sorted(exceeded, key=lambda each: each.key)

    @property
    def thresholds(self) -> dict[str, Judgement]:
        """Return each budget that times were held against, with one of its judgements."""
        return {each.key: each for each in self.judgements if each.threshold < math.inf and each.key != CERT}

    @property
    def certificate(self) -> Judgement | None:
        """Return the judgement on the certificate that ends first; no certificate at all is worse."""
        ends = (each for each in self.judgements if each.key == CERT)
        return min(ends, key=lambda each: (each.actual is not None, each.actual), default=None)


class Distribution(NamedTuple):
    """The statistics of a key, or of a difference (us); None where there are too few values."""

    stats: Mapping[str, float | None]  # only the median, of an earlier series and of the difference to it
    interval: tuple[float, float] | None  # holds the median with 95 % confidence
    n: int  # how many values; of two series the smaller number

    @property
    def median(self) -> float | None:
        return self.stats["median"]


class SeriesEvent(NamedTuple):
    """What has changed in a series, at the start of a run."""

    at: datetime.datetime
    run: int
    kind: str
    text: str  # as it follows the run's name
    variant: str | None = None


def parse_digits(text: bytes | str, base: int = 10, most: float = math.inf) -> int | None:
    """Read ASCII digits, not what int() takes too (+5, 1_0, ５); None for all else, and beyond `most`."""
    digits = decode(text) if isinstance(text, bytes) else text
    if not re.fullmatch("[0-9]{1,15}" if base == 10 else "[0-9A-Fa-f]{1,15}", digits):
        return None
    number = int(digits, base)
    return number if number <= most else None


# ---------------------------------------------------------------------------------------------------------
# 4c. Foreign text. What the other side says is clipped, and what is named like a credential is masked, where
#     it enters a record; linear in it. What the user gave in confidence is masked on the way out (8b).
#
# A new text needs `mask_location` where it is a single URL, `mask_urls` where URLs may be in it, `foreign`
# where it is part of a message; and where it is cut an …, by which half a secret is found there.
def names_credential(name: str) -> bool:
    """Tell whether a field of this name is for a credential."""
    plain = re.sub(PUBLIC_NAME, "", name.lower().replace("_", "-"))
    return plain in SECRET_FIELDS or bool(re.search(SECRET_NAME, plain))


def is_credential(name: str, value: bytes) -> bool:
    """Tell whether the value of a field is a credential; up to eight digits are one only in SECRET_FIELDS."""
    if re.fullmatch(SECRET_VALUE, value.strip()):
        return True
    is_number = name.lower() not in SECRET_FIELDS and re.fullmatch(rb"[0-9]{0,8}", value.strip())
    return names_credential(name) and not is_number


def private_names(headers: Iterable[Header]) -> set[str]:
    """Return the names of the fields with a credential, in lower case: they are not for another origin."""
    private = (name.lower() for name, value in headers if names_credential(name) or is_credential("", value))
    return {*private} - {"proxy-authorization"}  # it may be for the same proxy: see `begin_step`


def names_parameter(name: str) -> bool:
    """Tell whether a parameter of a URL is for a credential: `to%6Ben`, `user[password]` and `key[0]` too."""
    plain = re.sub("[][]", "-", urllib.parse.unquote(name[-MAX_FOREIGN:])).strip("-").lower()
    return bool(re.match(SECRET_PARAMETER, plain)) or names_credential(plain)


# A name in a query or fragment, with its =. In a URL within a query what stands around it is encoded.
QUERY_NAME = r"""(?x)
    (?: [?&;#] | %(?:3[fFbB]|2[36]) )
    ( [^?&;#=%\s"<>]* (?: %(?!3[fFbBdD]|2[36]) [^?&;#=%\s"<>]* )* )
    (?: = | %3[dD] )
"""


def split_parameters(text: str, end: str) -> Iterator[tuple[str, str]]:
    """Split a text behind the values of parameters that are credentials, each up to one of the signs `end`:
    what stands before a value, and the value. Behind MAX_QUERY_FIELDS parameters all counts as one.
    """
    at, find_end = 0, re.compile(f"[{end}]").search
    for count, name in enumerate(islice(re.finditer(QUERY_NAME, text), MAX_QUERY_FIELDS + 1)):
        begin, enough = name.end(), count == MAX_QUERY_FIELDS
        if begin > at and (enough or names_parameter(name[1])):
            found = None if enough else find_end(text, begin)
            yield text[at:begin], text[begin : found.start() if found else None]
            at = found.start() if found else len(text)
    yield text[at:], ""


def mask_parameters(text: str, end: str) -> str:
    return "".join(before + (value and "***") for before, value in split_parameters(text, end))


def mask_location(text: str) -> str:
    """Replace the credentials of a single URL, however malformed, by ***; in time linear in the text."""
    opening = re.match(r"\s*([A-Za-z][A-Za-z0-9+.-]*:)?\s*([/\\]*)", text)
    if opening and (opening[1] or len(opening[2]) >= 2):
        start = opening.end() if opening[2] else 0  # what has no slash behind it may be a user
        text = text[:start] + re.sub(r"\A[^/?#]*@", "***@", text[start:])
    return mask_parameters(text, "&#")


def mask_urls(text: str) -> str:
    """Replace the credentials of every URL in a text by ***; in time linear in the text."""
    # The slashes first, because re finds what is literal five times as fast.
    text = re.sub(r"//(?<![^:]//)[^/?#\s]*@", "//***@", text)
    return mask_parameters(text, r"&#\s\"<>")


def foreign(text: bytes | str) -> str:
    """Return words of the other side, or of a URL, as a message or hint repeats them."""
    if isinstance(text, bytes):
        text = decode(text)
    return clip(mask_urls(text[:MAX_FIELD]), MAX_FOREIGN)


def without_markup(text: str) -> str:
    """Return the text of a page of HTML or XML, without tags, scripts, styles, a repeated title."""
    import html

    hidden = r"(?is)<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1[^>]*>|\Z)|<[a-z/!?][^>]*(?:>|\Z)"
    before, end, after = text.partition("</title>")
    shown = [html.unescape(re.sub(hidden, " ", part)) for part in (before, after)]
    title, page = (" ".join(re.findall(r"\w+", part)) for part in shown)
    return shown[1] if end and title in page else " ".join(shown)


def status_words(response: Response) -> str:
    """Return a status for a message, with its reason, which HTTP/2 has none of."""
    return f"{response.status} {response.reason}".rstrip()


# ---------------------------------------------------------------------------------------------------------
# 5. Local files. What the command line names is read once, with a limit and a time, and nothing blocks.
STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
STDIN_READERS: list[str] = []  # the options that have read it: it gives its data once
STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


class Worker:
    """Some work in a thread of its own, because it may hang: then it is left behind."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.ended = threading.Event()
        self.done = False  # set before `ended`, which may fail for lack of memory
        self.crash: BaseException | None = None  # what it raised, or why there is no thread
        self.result: Any = None  # what it returned
        try:
            # threading.Thread would wait for ever where the thread has no memory for its first call.
            _thread.start_new_thread(self._run, (work,))
        except (RuntimeError, MemoryError, OSError) as error:
            self.crash, self.done = error, True

    def _run(self, work: Callable[[], object]) -> None:
        # They are for the main thread, in their order: it would notice late what another one took.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        try:
            self.result = work()
        except BaseException as error:
            self.crash = error
        self.done = True
        self.ended.set()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the work, for some seconds at most."""
        latest = time.monotonic() + seconds
        while not self.done and time.monotonic() < latest:
            # A signal that comes just before a wait is noticed only at the end of that wait.
            self.ended.wait(min(max(0.0, latest - time.monotonic()), 0.1))


def read_file(path: str, limit: int = MAX_FILE) -> bytes:
    """Read a file, a pipe or, for `-`, standard input; raises OSError, for a NUL in the path ValueError."""
    kept = io.BytesIO()  # joining a list of parts would hold all of it twice
    ready = select.poll()
    with open(0 if path == "-" else path, "rb", buffering=0, closefd=path != "-") as file:
        ready.register(file, select.POLLIN)
        while max(kept.tell(), os.fstat(file.fileno()).st_size) <= limit:
            ready.poll()  # the caller's standard input may be one that does not block
            chunk = file.read(BUFFER)
            if not chunk:
                return kept.getvalue()
            kept.write(chunk)
    raise OSError(errno.EFBIG, f"larger than {limit >> 20} MiB")


@cache
def read_local(option: str, path: str, seconds: float, limit: int = MAX_FILE) -> bytes:
    """Read what an `option` names, once: a pipe gives no more. Raises UsageError, also after some seconds."""
    if path in STDIN:
        STDIN_READERS.append(option)
        if len(STDIN_READERS) > 1:
            raise UsageError(f"{' and '.join(STDIN_READERS)} cannot all read standard input: name files")
    reader = Worker(partial(read_file, path, limit))
    reader.wait(seconds)
    error = reader.crash
    if error and not isinstance(error, (OSError, ValueError)):
        raise error
    if error or not reader.done:
        shown = "standard input" if path == "-" else f"'{path}'"
        reason = reason_of(error) if error else "no end of the data came within the time of -m"
        if path == "-" and isinstance(error, IsADirectoryError):  # see `claim_standard_streams`
            reason = "it is closed"
        raise UsageError(f"{option}: cannot read {shown}: {reason}")
    return bytes(reader.result)


# ---------------------------------------------------------------------------------------------------------
# 6. Budgets. Text -> thresholds in ms, in the order of SLO_KEYS; KEY.STAT is a budget for a series.
UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def parse_number(text: str, zero: bool = False, unit: str = "") -> float:
    """Read a positive finite decimal, with `zero` also 0, in `unit` or as it says; raises ValueError."""
    written = next((each for each in UNITS if unit and text.endswith(each)), unit)
    digits = text.removesuffix(written)
    try:
        if not set(digits) <= set("0123456789.eE+-"):  # float() takes 1_000, nan and wide digits too
            raise ValueError
        value = float(digits)
        if written != unit:
            value = float(f"{value * UNITS[written] / UNITS[unit]:.15g}")  # 0.0073 s are 7.3 ms
    except ValueError:
        raise ValueError("is not a number") from None
    if text.startswith("-") or value == float("inf") or not (value or zero):
        raise ValueError("is not a positive finite number")
    return value


# Of so many values the largest is below the true percentile in at most one of twenty series.
SURE_PERCENTILES = {"p90": 29, "p95": 59, "p99": 299}
BUDGET_KEYS = {key: [key, *(f"{key}.{statistic}" for statistic in SLO_STATS)] for key in SLO_KEYS}


def parse_budget(key: str, amount: str) -> float | Allowance:
    """Read MS, or +MS and +N% for a relative budget; raises SloError."""
    relative, shown = amount.startswith("+"), f"SLO value '{clip(amount, MAX_FOREIGN)}' of '{key}'"
    phase, dot, _ = key.partition(".")
    if relative and dot:
        raise SloError(f"{shown}: relative budgets are of medians, expected {phase}")
    try:
        if not relative:
            return parse_number(amount, unit="ms")
        digits, percent = amount[1:].removesuffix("%"), amount.endswith("%")
        if digits.startswith(("+", "-")):
            raise ValueError("is not a number")
        return Allowance(parse_number(digits, zero=True, unit="" if percent else "ms"), percent)
    except ValueError as error:
        expected = "milliseconds above 0: 300, 300ms or 0.3s"
        if relative or amount.endswith("%"):
            expected = "+10% or +25 (milliseconds)"
        raise SloError(f"{shown} {error}: expected {expected}") from None


def parse_slo(entries: Iterable[str]) -> dict[str, float | Allowance]:
    """Read budgets from KEY=MS and KEY=+MS entries; raises SloError."""
    thresholds: dict[str, float | Allowance] = {}
    for entry in entries:
        name, equals, amount = (part.strip() for part in entry.partition("="))
        key, name = name.lower(), clip(name, MAX_FOREIGN)
        if not equals:
            raise SloError(f"Missing '=' in SLO entry '{name}': expected KEY=MS, for example total=300")
        keys = BUDGET_KEYS.get(key.partition(".")[0], [*SLO_KEYS, "total.p95"])
        if key not in keys:
            raise SloError(f"Unknown SLO key '{name}': expected one of {', '.join(keys)}")
        if key in thresholds:
            raise SloError(f"Duplicate SLO key '{key}': each key may appear once")
        thresholds[key] = parse_budget(key, amount)
    return thresholds


def read_slo_file(path: str, seconds: float) -> dict[str, float | Allowance]:
    """Read one KEY=MS entry a line; blank lines and # lines do not count. Raises SloError."""
    try:
        text = read_local("--slo-file", path, seconds).removeprefix(codecs.BOM_UTF8).decode("utf-8")
        lines = [line.strip() for line in re.split(r"\r\n|\n|\r", text)]
        return parse_slo([line for line in lines if line[:1] not in ("", "#")] or [""])
    except UnicodeDecodeError:
        raise SloError(f"--slo-file: '{path}' is not UTF-8") from None
    except SloError as error:
        raise SloError(f"{error.message} (in '{path}')") from None
    except UsageError as error:
        raise SloError(error.message) from None


def parse_budgets(inline: Sequence[str], path: str | None, seconds: float) -> dict[str, float | Allowance]:
    """Merge --slo over --slo-file; raises SloError."""
    thresholds = {} if path is None else read_slo_file(path, seconds)
    thresholds.update(parse_slo(entry for text in inline for entry in text.split(",")))
    return {key: thresholds[key] for keys in BUDGET_KEYS.values() for key in keys if key in thresholds}


INTERVAL_RISK = 20  # the median lies outside its interval in one of so many cases


def needed_values(rivals: int) -> int:
    """Return how many values an interval needs: any of `rivals` is to miss in one of INTERVAL_RISK."""
    # All n lie on one side of the median in 2 of 2 ** n cases.
    return (2 * INTERVAL_RISK * rivals - 1).bit_length()


def check_statistics(budgets: Mapping[str, float | Allowance], count: int, reuse: bool, rivals: int) -> None:
    """Raise SloError for a budget that needs more values than `count` runs give; 0 means no series."""
    values, what = count - reuse, "runs on a kept connection" if reuse else "runs"
    for key, budget in budgets.items():
        needed = LEAST_VALUES.get(key.partition(".")[2], 0)
        if isinstance(budget, Allowance):
            needed = needed_values(rivals)
        if needed and not count:
            raise SloError(f"SLO key '{key}' is a statistic of several runs: it needs --count or --duration")
        if values < needed:
            message = f"SLO key '{key}' needs at least {needed} {what}, and --count {count} gives {values}"
            raise SloError(f"{message}: expected --count {needed + reuse} or more")


# ---------------------------------------------------------------------------------------------------------
# 7. Names, routes. URLs, proxies and redirects: text -> records. No effects but the imports of idna,
#    ipaddress and socks; the environment is an argument.
def ip_family(host: str) -> int:
    """Return the family of an address literal (socket.AF_*), AF_UNSPEC of a name. IPv6 may have a zone."""
    for family, address in ((socket.AF_INET, host), (socket.AF_INET6, host.partition("%")[0])):
        try:
            socket.inet_pton(family, address)
            return family
        except (OSError, ValueError):
            continue
    return socket.AF_UNSPEC


def is_ip(host: str, family: int = socket.AF_UNSPEC) -> bool:
    """Tell whether a host is an address literal, where a family is given one of that family."""
    found = ip_family(host)
    return found != socket.AF_UNSPEC and family in (found, socket.AF_UNSPEC)


def parse_host(text: str) -> str:
    """Return a host name in the form that goes on the wire: lower case, IDNA (UTS #46). Raises UsageError."""
    shown = f"host '{clip(text, MAX_FOREIGN)}'"
    sizes = f"{shown}: expected labels of 1 to 63 characters, and {MAX_HOST} in all"
    if len(text) > MAX_HOST + 1:
        raise UsageError(sizes)
    host = text.lower()
    if not host.isascii():
        idna = optional("idna")
        try:
            if idna is None:
                raise ValueError("the package idna is not installed (httphases.pyz contains it)")
            host = idna.encode(text, uts46=True, transitional=False).decode("ascii")
        except ValueError as error:
            raise UsageError(f"{shown} has no sure ASCII form: {error}; write its xn-- form") from None
    wrong = re.search(r"[^a-z0-9._-]", host)
    if wrong:
        raise UsageError(f"{shown} holds '{wrong[0]}', which no host name can")
    name = host.removesuffix(".")
    if len(name) > MAX_HOST or not all(0 < len(label) < 64 for label in name.split(".")):
        raise UsageError(sizes)
    return host


def parse_port(text: str) -> int:
    """Read a port from 1 to 65535; raises UsageError."""
    port = parse_digits(text.lstrip("0"), most=65535)
    if port is None:
        raise UsageError(f"port '{clip(text, MAX_FOREIGN)}' is not a number from 1 to 65535")
    return port


def split_authority(text: str, default_port: int) -> tuple[str, int]:
    """Split host[:port]; brackets around IPv6. Raises UsageError."""
    # RFC 6874 section 2: a zone follows %25, or % alone.
    literal = re.fullmatch(r"\[([^]%]*)(?:%(?:25)?([\w.~-]+))?\](?::(.*))?", text, re.A)
    if literal and is_ip(literal[1], socket.AF_INET6):
        host, port = literal[1].lower() + (f"%{literal[2]}" if literal[2] else ""), literal[3]
    else:
        name, _, port = text.partition(":")
        if ":" in port or "[" in text:
            raise UsageError(f"'{text}' is not host:port; an IPv6 address goes in brackets, like [::1]:8080")
        if not name:
            raise UsageError("there is no host in it")
        host = parse_host(name)
    return host, parse_port(port) if port else default_port


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


PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))  # of ASCII, without the blank


def percent_encode(text: str) -> str:
    """Return text with spaces, control characters and all that is not ASCII percent-encoded, as UTF-8."""
    return urllib.parse.quote(text, PRINTABLE, "utf-8", "surrogateescape")


def parse_url(text: str, drop_userinfo: bool = False) -> Url:
    """Normalise an http(s) URL; raises UsageError, which repeats no password. A Location may hold one."""
    if len(text) > MAX_URL:  # nothing of it is repeated: to mask a megabyte takes long
        raise UsageError(f"the URL has {len(text)} characters: it is longer than {MAX_URL} characters")
    shown = f"URL '{foreign(mask_location(text))}'"
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise UsageError(f"{shown} holds a control character")
    parts = re.match(r"(?ai)(https?)://([^/?#\\]*)([^#]*)", text)  # without (?a) ſ would pass for s
    if not parts:
        what = shown if "://" in text or drop_userinfo else "the URL"  # it may be a password
        raise UsageError(f"{what} does not begin with http:// or https://: expected https://host/path")
    scheme, authority, target = parts[1].lower(), parts[2], parts[3]
    _, at, authority = authority.rpartition("@")
    try:
        host, port = split_authority(authority, DEFAULT_PORTS[scheme])
    except UsageError as error:
        if "@" not in text:
            raise UsageError(f"{shown}: {error.message}") from None
        # It may be a password with / ? or # in it, as people write them: say nothing of its parts.
        shown = f"URL '{foreign(f'{scheme}://***@' + text.rpartition('@')[2])}'"
        raise UsageError(f"{shown}: there is no host:port before the first / ? or #") from None
    if at and not drop_userinfo:
        raise UsageError(f"{shown} holds a user name or password: give them with -u USER:PASSWORD")
    path, mark, query = target.partition("?")
    path = remove_dot_segments(path if path.startswith("/") else f"/{path}")
    return Url(scheme, host, port, percent_encode(path + mark + query))


def parse_proxy(text: str, source: str) -> Proxy:
    """Read [scheme://][user:password@]host[:port]; raises UsageError, which never shows a credential."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "http", text
    scheme = scheme.lower()
    if scheme == "socks":  # as desktops write it into all_proxy
        scheme = "socks5"
    if scheme not in PROXY_PORTS:  # not repeated: it may be a user name and password, written before it
        expected = " or ".join(", ".join(f"{each}://" for each in PROXY_PORTS).rsplit(", ", 1))
        raise UsageError(f"{source}: expected a proxy that begins with {expected}, or with its host")
    # The last @ ends the credentials: a password may have been written with / ? # in it.
    userinfo, at, address = rest.rpartition("@")
    address = re.split(r"[/?#]", address, maxsplit=1)[0]
    shown = f"{source}: proxy '{scheme + separator if separator else ''}{'***@' if at else ''}{address}'"
    if re.search(r"[/?#]", userinfo):
        raise UsageError(f"{shown}: / ? # in a user name or password are written %2F %3F %23")
    try:
        host, port = split_authority(address, PROXY_PORTS[scheme])
    except UsageError as error:
        raise UsageError(f"{shown}: {error.message}") from None
    name, colon, secret = map(urllib.parse.unquote_to_bytes, os.fsencode(userinfo).partition(b":"))
    if at and scheme.startswith("socks") and not all(0 < len(each) < 128 for each in (name, secret)):
        wanted = "a user name and a password, of 1 to 127 bytes each"
        raise UsageError(f"{source}: for a SOCKS5 proxy PySocks takes {wanted}")
    return Proxy(scheme, host, port, name if at else None, secret if colon else None)


def covers(entry: str, url: Url) -> bool:
    """Tell whether an entry of NO_PROXY covers a URL: a name (xn--), address or network, maybe a port."""
    found = re.fullmatch(r"\[([^\]]+)\](?::([0-9]+))?", entry) or re.fullmatch(r"([^:]*):([0-9]+)", entry)
    name, port = found.groups() if found else (entry, None)
    if port and parse_digits(port.lstrip("0")) != url.port:
        return False
    if name == "*":
        return True
    host = server_name(url.host)
    if not is_ip(host):
        return f".{host}".endswith("." + name.lower().lstrip("*").strip("."))  # itself, or a name below it
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False)
    except ValueError:
        return False


def route_to(url: Url, options: Options) -> Route:
    """Decide how a URL is reached: --unix-socket, --proxy, then the environment. Raises UsageError."""
    if options.unix_socket is not None:
        return Route(None, None, options.unix_socket)
    source, text = "--proxy", options.proxy
    if text is None:
        environ = options.environ
        names = [f"{url.scheme}_proxy", f"{url.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"]
        if "REQUEST_METHOD" in environ and url.scheme == "http":
            names.remove("HTTP_PROXY")  # CGI: a Proxy header would set it (CVE-2016-5385)
        source = next((each for each in names if environ.get(each)), "")
        text = environ.get(source)
        exempt = re.split(r"[,\s]+", environ.get("no_proxy") or environ.get("NO_PROXY") or "")
        if source and any(covers(entry, url) for entry in exempt):
            source, text = "NO_PROXY", ""
    if not text:
        return Route(None, source or None)
    proxy = parse_proxy(text, source)
    if proxy.is_socks and optional("socks") is None:
        why = f"{source}: a SOCKS proxy needs PySocks, which is not installed"
        raise UsageError(f"{why}: pip install PySocks, or use httphases.pyz, which contains it")
    return Route(proxy, source)


def resolve_reference(base: str, reference: str) -> str:
    """Resolve a reference against a URL's text (RFC 3986 section 5.2), but for dots, without its fragment."""
    reference = reference.partition("#")[0]
    scheme, _, rest = base.partition("://")
    if not reference or re.match("[A-Za-z][A-Za-z0-9+.-]*:", reference):
        return reference or base
    if reference.startswith("//"):
        return f"{scheme}:{reference}"
    authority, _, target = rest.partition("/")
    path = "/" + target.partition("?")[0]
    if reference.startswith("?"):
        reference = path + reference
    elif not reference.startswith("/"):
        reference = path[: path.rindex("/") + 1] + reference
    return f"{scheme}://{authority}{reference}"


def resolve_location(url: Url, locations: Sequence[bytes]) -> Url:
    """Return where a redirect leads (RFC 9110 section 10.2.2, RFC 3986 section 5); raises NetworkError."""
    # Surrogates keep the bytes that are not UTF-8, for percent-encoding.
    text = locations[0].decode("utf-8", "surrogateescape").strip(" \t")
    # As browsers: slashes too many are skipped, and http:/b on a page of http is /b (WHATWG URL section 4.4).
    text = re.sub(rf"(?ai)^{url.scheme}:(?!//)", "", text)
    text = re.sub(r"(?ai)^(https?:)/*|^/{3,}", r"\1//", text)
    try:
        if len(set(locations)) > 1:
            raise UsageError("it names two different Locations")
        return parse_url(resolve_reference(url.text, text), drop_userinfo=True)
    except UsageError as error:
        hint = "The server's redirect is at fault: ask whoever runs it, or request the intended URL directly."
        raise NetworkError("redirect", f"the redirect cannot be followed: {error.message}", hint) from None


def next_request(request: Request, status: int, url: Url) -> Request:
    """Return the request that a redirect asks for (RFC 9110 section 15.4)."""
    method, body, headers = request.method, request.body, request.headers
    left_out = set()
    if status == 303 or (status in (301, 302) and method == "POST"):
        method = "HEAD" if method == "HEAD" else "GET"
        body = None
        left_out = {name for name in field_names(headers) if name.startswith("content-")}
    if url.origin != request.url.origin:
        left_out |= {"host", *private_names(headers)}
    return Request(method, url, without_fields(headers, left_out), body, request.content_type)


# ---------------------------------------------------------------------------------------------------------
# 8a. Arguments. One value of the command line each: text -> a checked value, or a UsageError that names it.
def parse_header(where: str, text: str) -> Header:
    """Read 'Name: value', or 'Name;' for an empty one; raises UsageError that says where, never the value."""
    if len(os.fsencode(text)) > MAX_FIELD:
        raise UsageError(f"{where}: this header is longer than {MAX_FIELD >> 10} KiB, which no server takes")
    name, colon, value = text.partition(":")
    if not colon and text.endswith(";"):
        name, colon = text[:-1], ":"
    if not colon or not re.fullmatch(TOKEN, name):
        raise UsageError(f"{where}: this header does not begin with a name and a colon: 'Name: value'")
    if re.search(r"[\r\n\0]", value):
        raise UsageError(f"{where}: the value of header '{name}' holds a line break or NUL")
    if name.lower() == "transfer-encoding":
        raise UsageError(f"{where}: 'Transfer-Encoding' cannot be set: the body is sent with its length")
    return name, os.fsencode(value.strip(" \t"))


def header_lines(texts: Sequence[str], seconds: float) -> Iterator[tuple[str, str]]:
    """Give each header of -H with its place; of @FILE the lines that are not blank. Raises UsageError."""
    for number, text in enumerate(texts, 1):
        if not text.startswith("@"):
            yield f"-H number {number} of {len(texts)}" if len(texts) > 1 else "-H", text
            continue
        data = read_local("-H", text[1:], seconds).removeprefix(codecs.BOM_UTF8)
        for line_number, line in enumerate(os.fsdecode(data).split("\n"), 1):
            if line.strip():
                yield f"-H '{text}', line {line_number}", line.removesuffix("\r")


def parse_resolve(text: str) -> tuple[tuple[str, int], str]:
    """Read HOST:PORT:ADDR: return the host with its port, and the address. Raises UsageError."""
    expected = "expected HOST:PORT:ADDR, with the port of the URL, as example.com:443:192.0.2.1"
    entry = re.fullmatch(r"(\[[^\]]*\]|[^:]*):([^:]*):(\[(.+)\]|.+)", text)
    try:
        if not entry:
            raise UsageError(expected)
        place, address = split_authority(f"{entry[1]}:{parse_port(entry[2])}", 0), entry[4] or entry[3]
        if not is_ip(address):
            raise UsageError(f"'{address}' is not an IPv4 or IPv6 address: {expected}")
        return place, address
    except UsageError as error:
        raise UsageError(f"--resolve '{text}': {error.message}") from None


def parse_expect(text: str | None) -> tuple[range, ...]:
    """Read which statuses are good; raises UsageError."""
    if text is None:
        return GOOD_STATUSES
    found = []
    for word in map(str.strip, text.lower().split(",")):
        span = word if "-" in word else f"{word.replace('xx', '00')}-{word.replace('xx', '99')}"
        if not re.fullmatch("[1-9][0-9]{2}-[1-9][0-9]{2}", span) or span[:3] > span[4:]:
            raise UsageError(f"--expect '{clip(text)}': expected statuses: 200, 2xx, 200-299 or 2xx,401")
        found.append(range(int(span[:3]), int(span[4:]) + 1))
    return tuple(found)


def parse_time(option: str, text: str | None, otherwise: float, least: float = 0.001) -> float:
    """Read a time in s, from the `least` to 24 h; raises UsageError."""
    if text is None:
        return otherwise
    try:
        seconds = parse_number(text, not least, "s")
        if not least <= seconds <= LONGEST_TIME:
            raise ValueError(f"is not a time from {least:g} s to 24 h")
        return seconds
    except ValueError as error:
        expected = "seconds, or a time such as 1500ms, 5m or 2h"
        raise UsageError(f"{option} '{clip(text)}' {error}: expected {expected}") from None


def parse_count(option: str, text: str) -> int:
    """Read how many runs (--count) or days are wanted; raises UsageError."""
    count = parse_digits(text, most=MAX_COUNT)
    if not count:
        raise UsageError(f"{option} '{clip(text)}': expected a whole number from 1 to {MAX_COUNT}")
    return count


def detect_type(data: bytes, extension: str) -> str:
    """Return the media type of a body: by file extension, else by its bytes, of MAX_DECODED at most."""
    text_type = "text/plain; charset=utf-8"
    by_extension = {".json": "application/json", ".xml": "application/xml", ".txt": text_type}
    if extension in by_extension:
        return by_extension[extension]
    whole, text = len(data) <= MAX_DECODED, None
    try:
        text, _ = codecs.utf_8_decode(data[:MAX_DECODED], "strict", whole)
        if whole and re.match(r"[ \t\r\n]*[\[{\"0-9tfn-]", text):
            import json

            # Numbers stay text: int() may refuse 5,000 digits. It refuses NaN too, which is no JSON.
            json.loads(text, parse_constant=int, parse_int=str, parse_float=str)
            return "application/json"
    except (ValueError, RecursionError):  # it is no UTF-8, or no JSON
        pass
    if re.match(rb"(?:\xef\xbb\xbf)?\s*<(?:\?xml|!--|[A-Za-z_:])", data):
        return "application/xml"
    return "application/octet-stream" if text is None else text_type


def data_file(option: str, text: str) -> str | None:
    """Return the file that -d names, None where it holds the data itself."""
    return text[1:] if text.startswith("@") and option != "--data-raw" else None


def load_body(given: Sequence[tuple[str, str]], seconds: float, typed: bool) -> tuple[bytes | None, str]:
    """Load the body from options like -d, and find its media type unless it is `typed`; raises UsageError."""
    if not given:
        return None, ""
    files = [data_file(option, text) for option, text in given]
    whole = b"&".join(
        os.fsencode(text) if path is None else read_local(option, path, seconds, MAX_BODY)
        for (option, text), path in zip(given, files)
    )
    extension = os.path.splitext(files[0] or "")[1].lower() if len(files) == 1 else ""
    return whole, "" if typed else detect_type(whole, extension)


def read_ca_bundle(path: str | None, seconds: float) -> bytes | None:
    """Return the certificates of the PEM file of --cacert; raises UsageError when it has none."""
    if path is None:
        return None
    title = rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----"  # the others are of OpenSSL's own, and old
    found = re.findall(title + rb"([^-]+)-----END ", read_local("--cacert", path, seconds))
    if not found:
        raise UsageError(f"--cacert: '{path}' holds no certificate: expected a PEM file")
    return b"".join(b"-----BEGIN CERTIFICATE-----%b-----END CERTIFICATE-----\n" % each for each in found)


def read_identity(args: SimpleNamespace, seconds: float) -> Identity | None:
    """Return where the client certificate of --cert and its key are; raises UsageError."""
    if args.cert is None:
        return None
    key = args.cert if args.key is None else args.key
    for option, path in (("--cert", args.cert), ("--key", key)):
        if not os.path.isfile(path):
            before, colon, _ = path.partition(":")  # what follows it may be a password, as curl takes one
            rest = ":…'; a password goes into a file: --key-password-file" if colon else "'"
            raise UsageError(f"{option}: there is no regular file '{before}{rest}")
    password = b""
    if args.key_password_file is not None:
        lines = read_local("--key-password-file", args.key_password_file, seconds)
        password = lines.partition(b"\n")[0].removesuffix(b"\r")
    return Identity(args.cert, key, password)


def whole_characters(text: str) -> str:
    """Return text of the command line or environment as UTF-8 can hold it; other bytes become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def read_resource(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what traces are of: percent-encoded KEY=VALUE,…; raises UsageError that repeats none of it."""
    resource, text = {"service.name": "httphases"}, environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    for entry in text.split(",") if text.strip() else ():
        parts = (urllib.parse.unquote(whole_characters(part.strip())) for part in entry.partition("="))
        key, equals, value = parts
        if not key or not equals:
            raise UsageError("OTEL_RESOURCE_ATTRIBUTES: expected KEY=VALUE,KEY=VALUE, percent-encoded")
        resource[key] = value
    service = environ.get("OTEL_SERVICE_NAME")
    return {**resource, "service.name": whole_characters(service)} if service else resource


# ---------------------------------------------------------------------------------------------------------
# 8b. Secrets. What the user gave in confidence is masked in all that is printed and written.
def forms_of(secret: str) -> set[str]:
    """Return how a secret may come back: as it is, percent-encoded, in a string of JSON."""
    # What is encoded differs (RFC 3986 section 2.2): all that is reserved, all but the slash, all but what
    # JavaScript's encodeURIComponent leaves, or only what is not printable.
    forms = {secret, *(urllib.parse.quote(secret, safe) for safe in ("", "/", "!'()*", PRINTABLE))}
    if re.search(r'["\\/&<>]|[^ -~]', secret):
        import json

        strings = [json.dumps(secret, ensure_ascii=plain)[1:-1] for plain in (True, False)]
        # Go escapes three signs of HTML too.
        strings += [re.sub("[&<>]", lambda sign: rf"\u{ord(sign[0]):04x}", each) for each in strings]
        forms.update(each.replace("/", slash) for each in strings for slash in ("/", r"\/"))
    # Beside a byte that is no UTF-8 `decode` takes all of a text for ISO-8859-1.
    return forms | {form.encode("utf-8").decode("latin-1") for form in forms}


class Secrets:
    """The user's credentials of MIN_SECRET characters or more that are not part of a host that he typed."""

    def __init__(self, texts: Iterable[str] = (), hosts: Iterable[str] = ()) -> None:
        shown = "\n".join(hosts).casefold()
        hidden = (text for text in texts if len(text) >= MIN_SECRET and text.casefold() not in shown)
        forms = {form for text in hidden for form in forms_of(text)}
        # The longest first, which may have a shorter one in it.
        self._forms = {form.casefold(): re.escape(form) for form in sorted(forms, key=len, reverse=True)}

    def _without_half(self, text: str) -> str:
        """Return a text with *** in place of all from the beginning of a secret on."""
        folded = text.casefold()
        found = [folded.index(form[:MIN_SECRET]) for form in self._forms if form[:MIN_SECRET] in folded]
        return f"{text[: min(found)]}***" if found else text

    def mask(self, text: str) -> str:
        """Replace secrets in a text by ***, and the beginning of one before an …, which `clip` leaves."""
        if not self._forms or len(text) < MIN_SECRET:
            return text
        folded = text.casefold()
        found = [pattern for form, pattern in self._forms.items() if form in folded]
        if found:
            text = re.sub("|".join(found), "***", text, flags=re.IGNORECASE)
        if "…" in text:
            *pieces, last = text.split("…")
            text = "…".join([*map(self._without_half, pieces), last])
        return text


NO_SECRETS = Secrets()


def pair_secrets(pair: bytes) -> Iterator[str]:
    """Give the forms in which user:password may come back."""
    yield from map(decode, (pair, *pair.split(b":", 1)))
    yield base64.b64encode(pair).decode("ascii").rstrip("=")


def header_secrets(value: str) -> Iterator[str]:
    """Give the parts of a field that may come back alone: cookies, tokens, parameters, user:password."""
    scheme, _, rest = value.partition(" ")
    token = rest.strip(" =")
    yield from (value, token)
    # A name begins after a sign that no name has. Else the time would grow with the square of the length.
    for name, content in re.findall(r'(?<![^\s,;="])([^\s,;="]+)=("[^"]*"|[^\s,;]*)', value):
        if name.lower() not in ("realm", "uri", "algorithm"):  # where and how, not who (RFC 7616)
            yield content.strip('"')
    if scheme.lower() == "basic":
        try:
            yield from pair_secrets(base64.b64decode(token + "=" * (-len(token) % 4), validate=True))
        except ValueError:
            pass  # it is called Basic, but is not Base64


def find_secrets(sides: Iterable[Options]) -> Secrets:
    """Return what the user gave in confidence in URLs, in header fields and for proxies."""
    texts: set[str] = set()
    hosts: set[str] = set()
    for options in sides:
        url = options.request.url
        hosts.add(url.host)
        for _, value in split_parameters(url.target, "&#"):
            texts |= {value, urllib.parse.unquote_plus(value)}
        for name, given in options.request.headers:
            if is_credential(name, given):
                texts.update(header_secrets(decode(given)))
        # Of all proxies: a redirect may lead to a host that NO_PROXY does not name.
        variables = [f"{each}_proxy" for each in (*DEFAULT_PORTS, "all")]
        proxies = map(options.environ.get, [*variables, *map(str.upper, variables)])
        for text in filter(None, (options.proxy, *proxies)):
            try:
                proxy = parse_proxy(text, "")
            except UsageError:  # of a variable that this run does not use
                continue
            hosts.add(proxy.host)
            texts.update(pair_secrets(b"%b:%b" % (proxy.username or b"", proxy.password or b"")))
    return Secrets(texts, hosts)


# ---------------------------------------------------------------------------------------------------------
# 8c. Baseline. An earlier --json export of a series -> what it says of its last step.
BEFORE, NOW = "before", "now"  # what is compared with a baseline
# What statistics say besides times: medians (the round trip, ms, the body's size), and numbers of runs.
BESIDE = ("tcp_rtt_ms", "body_bytes", "lossy", "starved")


class Baseline(NamedTuple):
    """What an earlier JSON export says of the last step of its series."""

    path: str
    started_at: str
    host: str | None
    label: str | None
    url: str | None  # None of various ones
    good: int  # runs that its statistics are of, 0 where no answer was good
    outcomes: Sequence[str]  # statuses, and ERROR
    distributions: Mapping[str, Distribution]  # by key
    beside: Mapping[str, float | None]  # what may go with a difference; None where the export lacks it
    usual_status: int | None = None  # it is not told


def checked_number(value: float) -> int:
    """Round a count, or a time in us, of a document; raises ValueError where it is none."""
    if not (isinstance(value, float) and 0 <= value < 1e15):  # sums of smaller ones are exact
        raise ValueError("no count and no time")
    return round(value)


def read_distribution(fields: Mapping[str, Any], count: int) -> Distribution:
    """Read what an export says of a time that was measured so often; raises ValueError and the like."""
    ends = fields["median_ci95"]
    low, high = (checked_number(ms * 1000) for ms in ends or (0.0, 0.0))
    told = {name: fields[name] for name in ("median", "p95")}
    stats = {name: None if ms is None else checked_number(ms * 1000) for name, ms in told.items()}
    return Distribution(stats, (low, high) if ends else None, count)


def read_baseline(path: str | None, seconds: float) -> Baseline | None:
    """Read an earlier export, if one is named, within some seconds; raises UsageError if it is none."""
    if path is None:
        return None
    import json

    data, shown = read_local("--baseline", path, seconds), f"--baseline '{path}'"
    try:
        # All numbers as float: int() takes hours for millions of digits. It refuses NaN, which is no JSON.
        export = json.loads(data, parse_int=float, parse_constant=int)
        if export["schema_version"] not in (1, 2):
            raise UsageError(f"{shown}: its schema_version is not 2")
        if "steps" in export:
            raise UsageError(f"{shown} is of a single run, which proves little: measure it with --count 20")
        last = export["statistics"][-1]
        if "sides" in export or last["target"] is not None:
            raise UsageError(f"{shown} is of several sides or addresses: one of a plain series is needed")
        count = checked_number(last["n"])
        good = count if last["bad_status"] < sum(last["statuses"].values()) else 0
        times = {key: read_distribution(last[f"{key}_ms"], count) for key in STAT_KEYS}
        beside = {name: last.get(name) for name in BESIDE}  # of 4.0 some are not there
        for number in beside.values():
            checked_number(0.0 if number is None else number)
        told = (export["started_at"], export.get("host"), export.get("label"), last["url"])
        begun, host, label, url = (text and mask_urls(text) for text in told)
        outcomes = [code for code in last["statuses"] if parse_digits(code)]
        outcomes += ["ERROR"] * (last["failed"] > 0)
        return Baseline(path, begun, host, label, url, good, outcomes, times, beside)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        raise UsageError(f"{shown} is not a --json export of a series of httphases") from None


# ---------------------------------------------------------------------------------------------------------
# 9a. Command line. The grammar of argv.
# What curl has, and what hands that know other tools type = what there is instead.
FOREIGN_OPTIONS = """
-n --repeat --times --requests --latency = --count N measures N times: median, p95, a distribution
-c -j --cookie-jar --junk-session-cookies = -b NAME=VALUE sends cookies, there is no jar; --count N repeats
-z --watch --time = --duration TIME measures for so long: 5m, 2h
-q --quiet -# --progress-bar = -s is silent
--keepalive --keepalive-time = --reuse sends every run on the connection of the one before
--no-keepalive --no-compressed --ignore-stdin = leave it out: that is so already
--next --compare = --versus URL or --baseline FILE compares
--capath --ca-native --ca-certificate = --cacert PATH trusts the CAs in PATH
--dns-servers --doh-url --sni = --resolve HOST:PORT:ADDR sends a name to an address
--connect-to = --resolve HOST:PORT:ADDR; for another port write it into the URL, and add -H 'Host: HOST'
--oauth2-bearer --netrc --basic --auth --token --bearer =
  a line "Authorization: Bearer …" in a file, by -H @FILE, keeps it out of ps; -u USER:PASSWORD does not
--digest --ntlm --negotiate --anyauth = only Basic is known, by -u USER:PASSWORD
-U --proxy-user = write user:password@ before the proxy's host, in -x or https_proxy
--noproxy --no-proxy = -x '' goes without any proxy; the variable NO_PROXY names hosts that need none
-p --proxytunnel = leave it out: -x knows its way, with CONNECT for https
--socks5 --socks5-hostname = -x socks5://HOST:PORT, or socks5h:// to have it resolve the name
-F --form = write the body into a file: -d @FILE -H 'Content-Type: multipart/form-data; boundary=…'
-G --get --data-urlencode --url-query = -d sends data as it is: encode it, and write a query into the URL
-T --upload-file = use -X PUT -d @FILE; a type goes by -H 'Content-Type: …'
-w --write-out --format --csv = every report has the times: --metrics-only, or --json - as JSON
-o --output -O --remote-name -N --no-buffer = leave it out: the body is not kept; --json PATH has the report
-v --verbose -D --dump-header --trace --trace-ascii --headers --debug = -i shows header fields
-V = --version
-Z --parallel --rate --concurrency = one request at a time: for load take wrk, hey or k6
--fail-with-body --fail-early = -f makes error pages exit 22
--connect-timeout --read-timeout --deadline = use -m: it holds for all of it
--retry --retry-max-time = nothing is sent twice: run it again when it exits with 75
--http2 = leave it out: https URLs get it where the package h2 is here, unless --http1.1 is given
--http3 -0 --http1.0 --http2-prior-knowledge = only HTTP/2 over TLS and HTTP/1.1 are supported
-1 --tlsv1.2 --tlsv1.3 --tls-max --ciphers = TLS is as this machine's OpenSSL does it, with -k older too
-E --pass --client-cert --client-key --cert-key =
  use --cert PATH and --key PATH; the key's password goes into a file, --key-password-file PATH
--limit-rate = leave it out: the body comes as quickly as it can
--max-redirs = this is fixed: -L follows 10 redirects at most
-K --config = there is none here; -H @FILE reads header lines
"""
BARE_FLAGS = "46aBfgGiIjJkLlMnNOpqRsSvVZ#"  # of curl's options of one letter those without a value

ABOUT = """Make one HTTP request, or a chain of redirects, and say where the time went: dns, connect, tls,
wait (from the request to the first byte), xfer (the body). ttfb is all but xfer, total all."""
HELP = f"""\
exit codes (the first that applies, from the top):
  130 ended by SIGINT, 143 by SIGTERM, 129 by SIGHUP
   64 usage error: the command line or a file it names is wrong; nothing sent
   70 this machine refuses a thread, memory, a descriptor; or an internal error
   47 more than {MAX_REDIRECTS} redirects with -L
   75 network or TLS failure, deadline included, on any step
   73 a report could not be written
   22 a last status of 400 or more with --fail, or none that --expect names
    4 a budget was exceeded or could not be judged, or --cert-days was not kept
    0 success

examples:
  httphases -L https://example.com/                      where does the time go?
  httphases --metrics-only --slo ttfb=300 -m 5 https://example.com/      a probe
  httphases --count 50 --interval 0.5 https://example.com/    is it always slow?
  httphases https://example.com/ --versus --http1.1             which is faster?

Times may have a unit: 300ms, 2s, 5m, 1h. HTTP_PROXY, HTTPS_PROXY, ALL_PROXY,
NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR, NO_COLOR, FORCE_COLOR and COLUMNS count;
with --otlp OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES too.
"""


class Answered(Exception):
    """Option --version was given: this text is printed in place of a run. An empty one stands for --help."""


SLO_HELP = f"budgets of the last step, for these times; KEY.STAT of a series: {', '.join(SLO_STATS)}; "
SLO_HELP += "KEY=+MS, +N% with --vs or --baseline"
# By group: the spellings (the first long one names the value), the value (flags have none), and what --help
# says. It does not list what is accepted for users of curl alone.
OPTIONS = {
    "request": (
        ("-X --request --method", "METHOD", f"one of {', '.join(METHODS)}"),
        ("-I --head", "", "the same as -X HEAD"),
        ("-d --data --data-ascii --data-binary", "DATA", "POST this: text, @FILE or @-; joined with &"),
        ("--data-raw", "DATA", "the body: text alone, @ means nothing"),
        ("-H --header", "'NAME: VALUE'", "a header; @FILE or @- has lines, kept out of ps; repeatable"),
        ("-A --user-agent", "TEXT", "the same as -H 'User-Agent: TEXT'"),
        ("-e --referer", "URL", "the same as -H 'Referer: URL'"),
        ("-b --cookie", "'NAME=VALUE'", "the same as -H 'Cookie: NAME=VALUE'"),
        ("-u --user", "USER:PASSWORD", "the same as -H 'Authorization: Basic …'"),
        ("--compressed", "", "accept gzip, deflate, br, zstd; decode nothing"),
        ("--url", "URL", "the URL, in place of one without an option"),
        ("-g --globoff", "", ""),
        ("-L --location --follow", "", f"follow up to {MAX_REDIRECTS} redirects, each a step"),
        ("-m --max-time --timeout", "TIME", f"give up after it ({DEFAULT_MAX_TIME:g} s; --all-addresses: 5)"),
        ("-f --fail", "", "exit 22 if a run ends in a status of 400 or more"),
        ("--expect", "STATUS[,STATUS]", "exit 22 if a run ends in another: 200, 2xx, 200-299"),
    ),
    "connection": (
        ("-4 --ipv4", "", "use IPv4 addresses only"),
        ("-6 --ipv6", "", "use IPv6 addresses only"),
        ("--resolve", "HOST:PORT:ADDR", "use ADDR, without a lookup; repeatable"),
        ("-x --proxy", "URL", f"{', '.join(PROXY_PORTS)}; '' for none at all"),
        ("--unix-socket", "PATH", "connect to this unix socket, in place of TCP"),
        ("--interface", "NAME_OR_ADDRESS", "connect from there"),
        ("--no-http2 --http1.1", "", "do not offer HTTP/2"),
    ),
    "TLS": (
        ("-k --insecure --ignore-ssl", "", "verify no certificate; allow old protocols too"),
        ("--cacert --ca-bundle", "PATH", "trust the CAs in this PEM file, and no others"),
        ("--cert", "PATH", "client certificate (PEM), for the URL's origin"),
        ("--key", "PATH", "its private key, if in a file of its own"),
        ("--key-password-file", "PATH", "its first line is the password of that key"),
    ),
    "series (Ctrl-C ends one, with its report)": (
        ("--count", "N", f"measure N times, up to {MAX_COUNT} (--versus: {DEFAULT_ROUNDS})"),
        ("--duration", "TIME", "measure for so long, and say what changes"),
        ("--interval", "TIME", "from start to start (1 s; --versus: 0)"),
        ("--reuse", "", "keep-alive: send each run on the connection of the one before"),
        ("--all-addresses", "", "measure each address of the name, and compare"),
        ("--versus --vs", "WORDS", "compare with this URL, or these options in quotes; all else is alike"),
        ("--baseline", "FILE", "compare with an earlier --json of a series"),
    ),
    "output (default: a drawn waterfall; files are written once, at the end)": (
        ("-i --include", "", "show header fields in it, credentials as ***"),
        ("-s --silent", "", "print errors alone; files are written"),
        ("-S --show-error", "", ""),
        ("--compact", "", "one line a step"),
        ("--metrics-only", "", "one line of key=value tokens a step"),
        ("--json", "PATH", "write the JSON export; - for standard output"),
        ("--har", "PATH", "write an HTTP archive (HAR 1.2); - for stdout"),
    ),
    "into the systems that watch": (
        ("--prometheus", "PATH", "write metrics for node_exporter; - for stdout"),
        ("--label", "TEXT", "tell this probe from others in what is written"),
        ("--otlp", "PATH", "write a trace of each run for OpenTelemetry"),
        ("--propagate", "", "name the trace to the server, in traceparent"),
    ),
    "latency budgets": (
        ("--slo", "KEY=MS[,KEY=MS]", SLO_HELP),
        ("--slo-file", "PATH", "the same from a file, one a line; --slo wins"),
        ("--cert-days", "N", "exit 4 if a certificate ends in less than N days"),
    ),
    "about": (("-h --help", "", "show this and exit"), ("--version", "", "show the version and exit")),
}
ROWS = [(text, value) for options in OPTIONS.values() for text, value, _ in options]
NAMES = {  # by option: the attribute that holds its value in what `parse_words` returns
    word: re.findall("--([^ ]+)", text)[0].replace("-", "_") for text, _ in ROWS for word in text.split()
}
NAMES.update({"--data-raw": "data"})
VALUED = {word for text, value in ROWS if value for word in text.split()}
COLLECTED = "cookie data header resolve slo url versus".split()  # each value counts; of all others the last
# How the next word may begin if it is a value that looks like an option: a multipart body, a budget below 0.
DASHED = {**dict.fromkeys("data cookie user user_agent referer versus".split(), "-"), "slo": "-[0-9.]"}
PATHS = [*EXPORT_OPTIONS, "--baseline", "--cacert", "--cert", "--key", "--key-password-file", "--unix-socket"]
ADDRESS_OPTIONS = "-x --resolve -4 -6 --interface --all-addresses".split()
EXCLUSIONS = (  # two options that cannot both be given, and why
    ("-4", "-6", ""),
    ("--count", "--duration", ": a number of runs, or a time"),
    ("-k", "--cacert", ": verify with that bundle, or not at all"),
    *(("--unix-socket", option, ": a unix socket has no address") for option in ADDRESS_OPTIONS),
    ("--versus", "--all-addresses", ": each compares in a way of its own"),
    ("--versus", "--baseline", ": compare with one thing at a time"),
    ("--baseline", "--all-addresses", ": name one address with --resolve"),
)


SEVERAL = ("--count", "--duration", "--versus", "--baseline")
MISTAKEN = (  # an option, how a value begins that is not for it, and what is
    *((option, r"@|\s*[{\[]", "writes to a path; a body goes by -d @FILE") for option in EXPORT_OPTIONS),
    *((option, "(?i)https?://", f"takes a path before the URL: {option} - URL") for option in EXPORT_OPTIONS),
    *((option, r"\Z", "'': expected a path") for option in PATHS),
    ("--unix-socket", "unix:|@", "takes a path, without unix://; sockets without one (@NAME) are not known"),
    *((option, r"\Z", "'': expected a name") for option in ("--label", "--interface")),
)
NEEDS = (  # an option, those of which it needs one, and why
    *((option, SEVERAL, ": it is for several runs") for option in ("--interval", "--reuse")),
    *((option, ("--cert",), ", the certificate of the key") for option in ("--key", "--key-password-file")),
    ("--propagate", ("--otlp",), ": it names the trace that this writes"),
)


def foreign_hints() -> dict[str, str]:
    """Return by option of other tools what there is in its place; not needed at every start."""
    entries = (entry.partition(" =") for entry in re.split(r"\n(?=-)", FOREIGN_OPTIONS.strip()))
    return {name: " ".join(hint.split()) for names, _, hint in entries for name in names.split()}


def instead_of(name: str) -> str:
    """Say what there is in place of an option that does not exist."""
    hints, word = foreign_hints(), name[:MAX_FOREIGN].lower()
    if name in hints:
        return hints[name]
    near = [word] if word in NAMES else [each for each in NAMES if each.startswith(word)]
    if not near and not word.startswith("--no-"):
        import difflib

        near = difflib.get_close_matches(word, [each for each in NAMES if NAMES[each] != "insecure"], 1, 0.8)
    sure = 0 < len(near) <= 3
    return f"did you mean {' or '.join(near)}?" if sure else "--help lists the options there are"


def help_text(width: int) -> str:
    """Return what --help prints, in so many columns."""
    import textwrap

    lines = ["usage: httphases [OPTIONS] URL", "", *textwrap.wrap(ABOUT, width)]
    wrapper = textwrap.TextWrapper(width, subsequent_indent=" " * 32, break_on_hyphens=False)
    for title, options in OPTIONS.items():
        lines += ["", f"{title}:"]
        for text, value, explanation in options:
            names = f"{', '.join(text.split())} {value}".rstrip()
            lines += wrapper.wrap(f"  {names:<28}  {explanation}") if explanation else []
    return "\n".join([*lines, "", HELP])


def split_words(words: Iterator[str]) -> Iterator[tuple[str, str | None]]:
    """Return each option with what is joined to it, or None; each other word. -sSLo/dev/null is parted."""
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word in ("-", "--"):
            yield word, None
        elif word.startswith("--"):
            yield name, value if equals else None
        elif len(name) > 2 and (f"-{name}" in NAMES or f"-{name}" in foreign_hints()):
            raise UsageError(f"unrecognized arguments: {name}: {instead_of(f'-{name}')}")
        else:
            # Flags, if no sign follows them as in -k=yes, and one option, to which the rest is joined.
            flags, last, rest = re.findall(rf"(?s)^-((?:[{BARE_FLAGS}]+(?![^\w#]))?)(.?)(.*)", word)[0]
            yield from ((f"-{flag}", None) for flag in flags)
            if last:
                yield f"-{last}", rest.removeprefix("=") if rest else None


def keep_value(args: SimpleNamespace, option: str, value: str | None, words: Iterator[str]) -> None:
    """Keep the value of an option: the next word where none is joined to it. Raises UsageError."""
    name = NAMES[option]
    if option not in VALUED:
        if value is not None:
            raise UsageError(f"{option} takes no value")
        setattr(args, name, True)
        return
    if value is None:
        value = next(words, None)
        if value is None or (re.match("-.", value) and not re.match(DASHED.get(name, "$"), value)):
            raise UsageError(f"{option} takes a value before the URL")
    if name in COLLECTED:
        getattr(args, name).append((option, value) if name == "data" else value)
    else:
        setattr(args, name, value)


def parse_words(words: Iterable[str]) -> SimpleNamespace:
    """Return the values of options, by NAMES, and as `url` all other words; raises UsageError, Answered."""
    args = SimpleNamespace(**{name: None if option in VALUED else False for option, name in NAMES.items()})
    vars(args).update((name, []) for name in COLLECTED)
    rest, strange = iter(words), list[str]()
    for option, value in split_words(rest):
        if option in NAMES:
            keep_value(args, option, value, rest)
        elif (option, value) == ("--", None):
            args.url += rest
        else:
            (strange if option.startswith("-") else args.url).append(option)
    if args.help or args.version:
        raise Answered("" if args.help else f"httphases {__version__}\n")
    if strange:
        names = dict.fromkeys(re.sub(r"(?s)^(--[\w.-]*).*", r"\1", word) for word in strange)  # no values
        hints = [f"{', '.join(same)}: {hint}" for hint, same in group_by(instead_of, names).items()]
        raise UsageError(f"unrecognized arguments: {'; '.join(hints)}")
    return args


# ---------------------------------------------------------------------------------------------------------
# 9b. Options. What excludes what, and what is read for it: the last place where a UsageError can
#     arise, but for what the first TLS context reads (15), and what a side opens (28).
def choose_series(args: SimpleNamespace) -> Series:
    """Return the series that is asked for; raises UsageError."""
    if not args.versus and args.count is args.duration is args.baseline is None:
        return Series(single=not args.all_addresses, every_address=args.all_addresses)
    rounds, duration = DEFAULT_ROUNDS, None
    if args.duration is not None:
        rounds, duration = MAX_COUNT, parse_time("--duration", args.duration, 0, least=1)
    elif args.count is not None:
        rounds = parse_count("--count", args.count)
    usual = 0.0 if args.versus else DEFAULT_INTERVAL
    interval = parse_time("--interval", args.interval, usual, least=0)
    return Series(rounds, interval, args.reuse, False, args.all_addresses, duration=duration)


def is_given(args: SimpleNamespace, option: str) -> bool:
    return getattr(args, NAMES[option]) not in (None, False, [])


def check_one_url(args: SimpleNamespace) -> None:
    """Raise UsageError unless there is one URL."""
    if not args.url:  # an option may have taken it; of a list, the value follows a quote
        took = [each for each in NAMES if re.match("(?i)(.*')?https?://", str(getattr(args, NAMES[each])))]
        how = f"{took[0]} takes a value before it" if took else "httphases [OPTIONS] URL; --help shows more"
        raise UsageError(f"no URL given: {how}")
    if len(args.url) > 1:  # they may be halves of a header: none is repeated
        why = "is a quote missing around a header, or around the words of --vs?"
        if all(re.match("(?i)https?://", word) for word in args.url):
            why = "to compare: URL --vs URL"
        raise UsageError(f"expected one URL, got {len(args.url)} words: {why}")


def check_conflicts(args: SimpleNamespace) -> None:
    """Raise UsageError unless there is one URL, and for options that exclude each other or name nothing."""
    for option, beginning, why in MISTAKEN:
        value = getattr(args, NAMES[option])
        if value is not None and re.match(beginning, value):
            raise UsageError(f"{option} {why}")
    check_one_url(args)
    for option, other, why in EXCLUSIONS:
        if is_given(args, option) and is_given(args, other):
            raise UsageError(f"{option} and {other} exclude each other{why}")
    for option, needed, why in NEEDS:
        if is_given(args, option) and not any(is_given(args, each) for each in needed):
            raise UsageError(f"{option} needs {' or '.join(needed)}{why}")
    exports = [(each, getattr(args, NAMES[each])) for each in EXPORT_OPTIONS if is_given(args, each)]
    for (other, earlier), (option, path) in combinations(exports, 2):
        first, second = ("-" if each in STDOUT else os.path.normpath(each) for each in (earlier, path))
        if first == second != "/dev/null":
            raise UsageError(f"{other} and {option} both write to '{path}'")


def check_options(args: SimpleNamespace, options: Options) -> Iterator[str]:
    """Warn of what may not be meant; raise UsageError for what a proxy or a header field excludes."""
    request, route = options.request, route_to(options.request.url, options)
    if options.series.every_address and route.proxy:
        named = f"{route.source} names one: use -x '' to go without it"
        raise UsageError(f"--all-addresses does not work through a proxy, and {named}")
    if options.propagate and "traceparent" in field_names(request.headers):
        raise UsageError("--propagate and -H 'traceparent: …' exclude each other: a request is in one trace")
    if request.body is not None and request.method in ("GET", "HEAD"):
        yield f"{request.method} with a request body: many servers ignore it or refuse it"
    if request.content_type and (len(args.data) > 1 or args.data[0][0] not in ("-d", "--data")):
        form = "Content-Type: application/x-www-form-urlencoded"
        yield f"the body is sent as {request.content_type}; to send it as curl does: -H '{form}'"
    for key in options.thresholds:
        statistic, rounds = key.partition(".")[2], options.series.rounds
        if rounds < SURE_PERCENTILES.get(statistic, 0):
            below = f"the {statistic} of {rounds} runs is usually below the true {statistic}"
            yield f"--slo {key}: {below}: better take --count {SURE_PERCENTILES[statistic]} or more"


def read_headers_given(args: SimpleNamespace, seconds: float) -> list[Header]:
    """Return the header fields of all options; -H wins over those of other options. Raises UsageError."""
    headers = [parse_header(*line) for line in header_lines(args.header, seconds)]
    if not all("=" in text for text in args.cookie):
        raise UsageError("-b: expected NAME=VALUE; without = it is curl's cookie file, which is not read")
    pair = None if args.user is None else os.fsencode(args.user)
    if pair is not None and b":" not in pair:
        raise UsageError("-u: expected USER:PASSWORD, which is not asked for; -H @FILE keeps it out of `ps`")
    fields = (
        ("-A", "User-Agent", args.user_agent),
        ("-e", "Referer", args.referer),
        ("-b", "Cookie", "; ".join(args.cookie) or None),
        ("-u", "Authorization", pair and f"Basic {base64.b64encode(pair).decode('ascii')}"),
        ("--compressed", "Accept-Encoding", "gzip, deflate, br, zstd" if args.compressed else None),
    )
    others = [parse_header(option, f"{name}: {text}") for option, name, text in fields if text is not None]
    return [*headers, *without_fields(others, field_names(headers))]


def read_request(args: SimpleNamespace, seconds: float, headers: tuple[Header, ...]) -> Request:
    """Return the first request; raises UsageError."""
    url = parse_url(re.sub(r"\\([][{}])", r"\1", args.url[0]))  # curl takes them for patterns otherwise
    body, content_type = load_body(args.data, seconds, "content-type" in field_names(headers))
    method = "GET" if body is None else "POST"
    if args.head:
        method = "HEAD"
    if args.request is not None:
        method = args.request
    if not method.isascii() or method.upper() not in METHODS:
        raise UsageError(f"-X '{method}': expected one of {', '.join(METHODS)}")
    request = Request(method.upper(), url, headers, body, content_type)
    size = len(request.data)
    if any(parse_digits(value) != size for value in values_of(headers, "content-length")):
        raise UsageError(f"-H: 'Content-Length' is not the body's, of {size} bytes: leave it out")
    return request


def own_options(args: SimpleNamespace, options: Options) -> Options:
    """Return options with all that a side may change, but for its request; raises UsageError."""
    patience = options.max_time  # before -m of a side changes it: a file that sides share is read once
    entries = list(map(parse_resolve, args.resolve))
    own = options.request.url.place if args.all_addresses else None
    addresses = tuple(dict.fromkeys(address for place, address in entries if place == own))
    families = (family for family, name in FAMILY_NAMES.items() if vars(args)[name.lower()])
    return options._replace(
        follow=args.location,
        max_time=parse_time("-m", args.max_time, patience),
        http2=not args.no_http2,
        insecure=args.insecure,
        ca_bundle=read_ca_bundle(args.cacert, patience),
        proxy=args.proxy,
        family=next(families, ip_family(args.interface or "")),  # AF_UNSPEC of the name of an interface
        overrides={place: address for place, address in entries if place != own},
        series=options.series._replace(addresses=addresses),
        identity=read_identity(args, patience),
        unix_socket=args.unix_socket,
        interface=args.interface,
    )


def choose_options(args: SimpleNamespace, environ: Mapping[str, str]) -> Options:
    """Return the options of the main command line, but for its sides; raises UsageError."""
    otherwise = ADDRESS_MAX_TIME if args.all_addresses else DEFAULT_MAX_TIME
    seconds = parse_time("-m", args.max_time, otherwise)
    headers = read_headers_given(args, seconds)  # before the URL, which may be the rest of a bad one
    request = read_request(args, seconds, tuple(headers))
    series = choose_series(args)
    options = own_options(args, Options(request, NO_SECRETS, environ, max_time=seconds, series=series))
    budgets = parse_budgets(args.slo, args.slo_file, seconds)
    relative = {key: budget for key, budget in budgets.items() if isinstance(budget, Allowance)}
    if relative and not (args.versus or args.baseline):
        raise SloError(f"SLO value of '{next(iter(relative))}' is relative: it needs --baseline or --versus")
    count = series.rounds if args.count or series.rounds > 1 else 0
    check_statistics(budgets, count, series.reuse, max(1, len(args.versus)))
    styles = {"silent": args.silent, "metrics": args.metrics_only, "compact": args.compact, "waterfall": True}
    options = options._replace(
        fail=args.fail or args.expect is not None,
        style=next(style for style, wanted in styles.items() if wanted),
        include=args.include,
        exports={each: getattr(args, NAMES[each]) for each in EXPORT_OPTIONS if is_given(args, each)},
        thresholds={key: each for key, each in budgets.items() if not isinstance(each, Allowance)},
        allowances=relative,
        baseline=read_baseline(args.baseline, seconds),
        label=args.label and whole_characters(args.label),
        cert_days=None if args.cert_days is None else parse_count("--cert-days", args.cert_days),
        resource={} if args.otlp is None else read_resource(environ),
        propagate=args.propagate,
        expected=parse_expect(args.expect),
    )
    return options._replace(warnings=tuple(check_options(args, options)))


# ---------------------------------------------------------------------------------------------------------
# 9c. Sides. A side of --versus is the command line with the side's words after it.
SIDE_GROUPS = ("request", "connection", "TLS")  # of OPTIONS: what sides may do differently
FOR_ALL = ["-f", "--expect"]  # the options that are for all sides: these, and those of the other groups
FOR_ALL += [text.split()[0] for group in OPTIONS if group not in SIDE_GROUPS for text, *_ in OPTIONS[group]]


def parse_side(words: str) -> SimpleNamespace:
    """Return what the words of a side change; raises UsageError."""
    import shlex

    try:
        args = parse_words(shlex.split(words))
    except ValueError:
        raise UsageError("its words have a quote that is not closed, or end in a backslash") from None
    except Answered:
        raise UsageError("--help and --version stand alone") from None
    for option in FOR_ALL:
        if is_given(args, option):
            raise UsageError(f"{option} is for all sides: put it outside of the quotes")
    return args


def show_side(words: str, own: SimpleNamespace) -> str:
    """Return the words of a side as they were written, or if they hold credentials, with these masked."""
    import shlex

    hidden = [own.user, *own.cookie, *(text for option, text in own.data if not data_file(option, text))]
    for name, _, value in (text.partition(":") for text in own.header):
        hidden.append(value.lstrip() if is_credential(name, os.fsencode(value)) else None)
    ends, split = "|".join(map(re.escape, filter(None, hidden))) or "(?!)", shlex.split(words)
    shown = [mask_location(re.sub(rf"(?:{ends})\Z", "***", word)) for word in split]
    return whole_characters(words if shown == split else shlex.join(shown))


def choose_side(args: SimpleNamespace, own: SimpleNamespace, base: Options) -> Options:
    """Return the options of a side, with warnings that the base has not; raises UsageError. Credentials of
    the base go to no other origin, as after a redirect, and Proxy-Authorization to no other proxy.
    """
    # What a side gives replaces what the base gives; its --resolve is added, and its -4 replaces -6 too.
    given = {name: value for name, value in vars(own).items() if value not in (None, False, [])}
    merged = SimpleNamespace(**{**vars(args), **given})
    merged.resolve = args.resolve + own.resolve
    if own.ipv4 or own.ipv6:
        merged.ipv4, merged.ipv6 = own.ipv4, own.ipv6
    check_conflicts(merged)
    headers = read_headers_given(own, base.max_time)
    inherited = without_fields(base.request.headers, field_names(headers))
    request = read_request(merged, base.max_time, (*inherited, *headers))
    side = own_options(merged, base._replace(request=request))

    elsewhere = request.url.origin != base.request.url.origin
    private = private_names(inherited) if elsewhere else set()
    base_proxy, own_proxy = route_to(base.request.url, base).proxy, route_to(request.url, side).proxy
    if own_proxy and (not base_proxy or base_proxy.shown != own_proxy.shown):
        private.add("proxy-authorization")
    kept = (*without_fields(inherited, private), *headers)
    left_out = list(dict.fromkeys(name for name, _ in inherited if name.lower() in private))
    if elsewhere and side.identity and own.cert is None:
        side = side._replace(identity=None)
        left_out.append("--cert")
    side = side._replace(request=request._replace(headers=kept))
    warnings = [each for each in check_options(merged, side) if each not in base.warnings]
    if left_out:
        whom = "origin" if elsewhere else "proxy"
        warnings.append(f"another {whom} does not get {', '.join(left_out)}, unless these words repeat it")
    return side._replace(warnings=tuple(warnings))


def parse_options(argv: Sequence[str] | None, environ: Mapping[str, str]) -> Options:
    """Read and check the whole command line, with its sides; raises UsageError, Answered."""
    read_local.cache_clear()
    STDIN_READERS[:] = ["the program itself"] if sys.argv[0] in STDIN else []  # python3 - < tool.py
    args = parse_words(sys.argv[1:] if argv is None else argv)
    check_conflicts(args)
    if len(args.versus) >= len(SIDES):
        raise UsageError(f"--versus was given {len(args.versus)} times, {len(SIDES) - 1} at most")
    base = choose_options(args, environ)
    sides, warnings = [Variant(SIDES[0], base)], list(base.warnings)
    for number, words in enumerate(args.versus, 1):
        try:
            own = parse_side(words)
            side = Variant(SIDES[number], choose_side(args, own, base), show_side(words, own))
        except UsageError as error:
            raise UsageError(f"--versus {number}: {error.message}") from None
        sides.append(side)
        warnings += [f"--versus {number}: {warning}" for warning in side.options.warnings]
    read_local.cache_clear()
    secrets = find_secrets(side.options for side in sides)
    return base._replace(sides=tuple(sides) if args.versus else (), secrets=secrets, warnings=tuple(warnings))


# ---------------------------------------------------------------------------------------------------------
# 10. Clock. Each step has a log of what has happened. Its times are read from that log, at the end of the
#     step and at the deadline alike. Instants are nanoseconds of time.perf_counter_ns.
def wall_clock() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


class Dial:
    """An attempt to connect."""

    def __init__(self, begun: int, peer: Peer | None, ended: int | None = None) -> None:
        self.begun = begun  # a SYN is about to leave
        self.peer = peer  # None on a unix socket, which has no address
        self.ended = ended  # the SYN-ACK came, or the attempt failed
        self.error = ""


class Connected(NamedTuple):
    """A connection, all of it 0 or None before there is one."""

    at: int
    socket: socket.socket | None
    peer: Peer | None
    local_ip: str | None


def read_tcp_info(connection: socket.socket | None) -> bytes:
    """Return Linux' struct tcp_info of a connection, empty elsewhere."""
    if sys.platform != "linux" or connection is None:
        return b""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except (AttributeError, OSError):
        return b""


def parse_tcp_info(info: bytes) -> Counters | None:
    """Read struct tcp_info (include/uapi/linux/tcp.h); None before Linux 4.6, or for an emulation's zeros."""
    if len(info) < 160 or not any(info[1:]):
        return None

    def counter(offset: int, form: str = "@I") -> Any:
        """Return the counter at an offset, None where an older kernel's struct has ended."""
        enough = len(info) >= offset + struct.calcsize(form)
        return struct.unpack_from(form, info, offset)[0] if enough else None

    # Unlike the smoothed tcpi_rtt, tcpi_min_rtt is free of the other side's delayed acknowledgements.
    rtt = counter(148)
    all_sent, again = counter(200, "@Q"), counter(208, "@Q")  # tcpi_bytes_sent, tcpi_bytes_retrans (4.19)
    return Counters(
        segment=counter(16),  # tcpi_snd_mss
        segment_in=counter(20),  # tcpi_rcv_mss
        time_out_us=counter(8),  # tcpi_rto
        path_mtu=counter(60),  # tcpi_pmtu
        rtt_us=None if rtt in (0, 0xFFFFFFFF) else rtt,
        smoothed_rtt_us=counter(68),  # tcpi_rtt
        quiet_us=counter(52) * 1000,  # tcpi_last_data_recv, tcpi_last_ack_recv: in ms
        heard_us=counter(56) * 1000,
        unanswered=counter(2, "@H"),  # tcpi_retransmits, tcpi_probes
        retransmits=counter(100),  # tcpi_total_retrans
        duplicates=counter(216),  # tcpi_dsack_dups (4.19)
        sent=None if all_sent is None or again is None else all_sent - again,
        acknowledged=counter(120, "@Q"),  # tcpi_bytes_acked
        received=counter(128, "@Q"),  # tcpi_bytes_received
        disorder=counter(224),  # tcpi_rcv_ooopack (5.4)
        busy_us=counter(168, "@Q"),  # tcpi_busy_time, tcpi_rwnd_limited (4.10): in ticks of the kernel
        limited_us=counter(176, "@Q"),
    )


class TimeIsOver(Exception):
    """The time of -m is over: the step under way has failed."""


class Stopped(Exception):
    """The series is to end: the run under way is given up."""


MANY = 1000  # parts of an answer that are passed over in no time
LOOK_NS = 100_000_000  # ns from one look at what else there is to do to the next


@cache
def scheduler_file(thread: int) -> int:
    """Open what Linux counts of a thread (sched-stats), once: to open it takes 10 us. Raises OSError."""
    return os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)


def cpu_times() -> tuple[int, int, int]:
    """Return the instant, and for how many ns this thread had a CPU, and waited for one; 0 if unknown."""
    had = waited = 0
    try:
        had, waited, _ = map(int, os.pread(scheduler_file(threading.get_native_id()), 99, 0).split())
    except (OSError, ValueError):
        pass
    return time.perf_counter_ns(), had, waited


def waited_for_cpu() -> int:
    """Return for how many ns this thread has waited for a CPU so far."""
    return cpu_times()[2]


class Deadline:
    """When the time of -m is over for a run. Whatever waits asks `patience` for how long it may. What came in
    time counts, though this process slept since: each read has its time of arrival checked, what is sent the
    instant before. `look` is called ten times a second.
    """

    def __init__(self, look: Callable[[], object] = lambda: None) -> None:
        self.at: float = math.inf  # perf_counter_ns; until the clock starts there is none
        self._look = look
        self._looked = time.perf_counter_ns()
        self._parts = 0
        self.in_vain = 0  # ns that this thread waited for a CPU, only to find that nothing had come
        self._waited = 0  # ns that it had waited for one when the wait for what is to come began
        self._goes_on = False  # that wait: the newest look was in vain

    def count(self) -> None:
        """Count a part of what has come: of chunks and frames of a byte one read may hold a second's work."""
        self._parts += 1
        if self._parts % MANY == 0:
            self.check(time.perf_counter_ns())

    def check(self, instant: int) -> None:
        """Raise TimeIsOver for an instant that is too late."""
        if instant >= self.at:
            raise TimeIsOver

    def look(self, now: int) -> None:
        """Call what is to be called ten times a second, which may raise anything."""
        if now - self._looked >= LOOK_NS:
            self._looked = now
            self._look()

    def patience(self) -> float:
        """Return for how long (s) to wait before asking again; raises TimeIsOver, and what `look` does."""
        now = time.perf_counter_ns()
        self.check(now)
        self.look(now)
        return min(self.at - now, LOOK_NS) / 1e9

    def poll(self, poller: Any, most: float = math.inf) -> list[Any]:
        """Wait for events, for `most` ms and 0.1 s at most; return none if there were none by then."""
        events: list[Any]
        try:
            longest = min(self.patience() * 1000, most)
        except TimeIsOver:
            events = poller.poll(0)
            if events:
                return events
            raise
        counted = longest != most  # what looks each millisecond has no time to count
        if counted and not self._goes_on:
            self._waited = waited_for_cpu()
        events = poller.poll(math.ceil(longest))
        self._goes_on = counted and not events
        if self._goes_on:
            self.note_in_vain(0)
        return events

    def note_in_vain(self, late: int) -> None:
        """Note that nothing had come while this thread waited for a CPU, until `late` ns ago."""
        waited = waited_for_cpu()
        self.in_vain += max(0, waited - self._waited - late)
        self._waited = waited


class Log:
    """What has happened in one step so far."""

    def __init__(self, expected: tuple[range, ...] = GOOD_STATUSES, deadline: Deadline | None = None) -> None:
        self.deadline = deadline or Deadline()
        self.waits = True  # a read waits for what is to come
        self.in_bulk = False  # large reads are wanted: no instant inside them matters
        self.expected = expected  # statuses: of the body of another one the beginning is kept
        self.hop_phases: tuple[str, ...] = ()  # the phase that each hop belongs to, in the order of opening
        self.asks_resolver = False  # a resolver is asked
        self.peers: Sequence[Peer] = ()  # the addresses of the first hop
        self.canonical_name: str | None = None  # what the resolver calls the owner of the newest addresses
        self.started_at = wall_clock()  # when the step began, and then when its clock did
        self.start = 0  # the clock starts; 0 if it never did
        self.kept = False  # in place of all hops: the connection was kept from an earlier run
        self.idle = 0  # ns since the request before on a kept connection
        self.refused: str | None = None  # why no kept connection is used
        self.dials: list[Dial] = []
        self.connected = Connected(0, None, None, None)  # the newest connection
        self.opened: list[tuple[int, int]] = []  # of each hop: it was answered, the next flight left
        self.tls: TlsStream | None = None  # to the target
        self.exchange: Exchange | None = None
        self.sent: int | None = None  # the kernel has taken the last byte of the request
        self.held: list[int] = []  # when a window of HTTP/2 was used up, and widened, in turn
        self.interim: tuple[int, ...] = ()  # the status codes of 1xx responses
        self.notes: tuple[str, ...] = ()  # of the step
        self.first_byte: int | None = None  # of the final response
        self.response: Response | None = None  # its header section is whole
        self.length: int | None = None  # bytes of the body as the response announces them
        self.received = 0  # bytes of the body that have come
        self.page = b""  # how the body begins, if it is text and the status was not expected
        self.pauses = Pauses()
        # The two newest instants by which more had come, and what was counted then.
        self.looks: list[tuple[int, Counters]] = []
        self.early = 0  # since when a later part of the answer is known to be here
        self.cpu_times: Mapping[str, tuple[int, int, int]] = {}  # by field of Evidence, and at the start
        self.done: int | None = None  # the last byte of the body
        self.error: NetworkError | None = None
        self.stopped: int | None = None  # it failed; or all names were looked up, and nothing else was wanted
        self.tcp_info: Mapping[str, bytes] = {}  # by the field of Evidence
        self.sockets: list[socket.socket] = []  # all that hops made, to be ended or closed

    def note_lookup(self, begun: int, name: str) -> None:
        """Note a lookup that is over. The first one starts the step: giving it to its thread is no part."""
        if self.canonical_name is None:
            self.deadline.at += begun - self.start
            self.start = begun
        self.canonical_name = name

    def note_counters(self, at: int) -> Counters:
        """Return what the kernel has counted by now; it is kept if more has come since the newest look."""
        now = parse_tcp_info(read_tcp_info(self.connected.socket)) or JUST_CONNECTED
        if not self.looks or self.looks[-1][1].received != now.received:
            self.looks = [*self.looks[-1:], (at, now)]
        return now

    def note_pause(self, since: int, until: int, taken: int) -> None:
        """Note that nothing of the response came for a time, if it is a pause: see Pauses. So many bytes had
        been `taken` before.
        """
        us = (until - max(since, self.first_byte or until)) // 1000
        if us <= QUIET_US:
            return
        sent = parse_tcp_info(self.tcp_info.get("sent", b""))
        before = next((counted for at, counted in reversed(self.looks) if at <= since), sent)
        kept, now = self.pauses, self.note_counters(until)
        trip = now.rtt_us or 0
        if us <= 2 * trip:
            self.pauses = kept._replace(flights_us=kept.flights_us + (us if us > trip / 2 else 0))
        elif now.since(before, "disorder"):
            behind = kept.behind + max(0, now.received - taken)
            self.pauses = kept._replace(lost_us=kept.lost_us + us, behind=behind)
        else:
            longest = max(kept.longest_us, us)
            self.pauses = kept._replace(us=kept.us + us, number=kept.number + 1, longest_us=longest)

    def keep_counters(self, field: str) -> None:
        """Keep the kernel's counters of this moment. It takes 4-20 us: not to be called near an instant."""
        self.tcp_info = {**self.tcp_info, field: read_tcp_info(self.connected.socket)}
        self.note_cpu(field)

    def note_cpu(self, field: str) -> None:
        instant, had, waited = cpu_times()
        self.cpu_times = {**self.cpu_times, field: (instant, had, waited - self.deadline.in_vain)}

    def starved(self, begun: str, ended: str, end: int) -> int:
        """Return for how long (us) a phase that ended at an instant waited for a CPU, from mark to mark."""
        first, last = self.cpu_times.get(begun), self.cpu_times.get(ended) or self.cpu_times.get("ended")
        if not first or not last:
            return 0
        _, had, waited = (now - then for now, then in zip(last, first))
        late = max(0, last[0] - end - had)
        return max(0, waited - late) // 1000

    def look(self) -> None:
        """Note, before an answer, that a later part of it is here already: nothing tells that afterwards."""
        sent = parse_tcp_info(self.tcp_info.get("sent", b""))
        if sent:
            at = time.perf_counter_ns()
            now = self.note_counters(at)
            torn = now.since(sent, "disorder") and not now.since(sent, "received")
            if torn and not self.first_byte and not self.early:
                self.early = at

    def fail(self, error: NetworkError, at: int) -> None:
        self.error, self.stopped = error, at

    def _opened(self, count: int) -> int | None:
        """Return when the first `count` hops were open; when all are, the wait begins."""
        if not 0 < count <= len(self.opened):
            return None
        answered, departed = self.opened[count - 1]
        if count < len(self.hop_phases):
            return answered
        # Device "the wake-up is divided between connect and wait": without it, wait is 0.202 ms off instead
        # of 0.068 (http). The wait bears half of a usual one at most: it is this machine that lacks a CPU.
        return departed - min((departed - answered) // 2, WAKE_UP_NS // 2)

    @property
    def ends(self) -> tuple[int, ...]:
        """Return the ends of the phases that are over, in the order of PHASES; each starts the next."""
        dns = None
        if self.dials:  # without a lookup dns takes no time at all
            dns = self.dials[0].begun if self.asks_resolver else self.start
        before = [dns, self._opened(self.hop_phases.count("connect")), self._opened(len(self.hop_phases))]
        if self.kept:  # there was no lookup, connection or handshake: the wait is the first phase
            before = [self.start] * 3
        ends = [self.start]
        for instant in (*before, self.first_byte, self.done):
            if instant is None:
                break
            # The kernel has another clock: its instant may lie a little before the one that came first.
            ends.append(max(ends[-1], instant))
        return tuple(ends[1:])

    @property
    def phase(self) -> str:
        """Return the phase under way."""
        return PHASES[min(len(self.ends), len(PHASES) - 1)]

    def _us(self, instant: int) -> int:
        """Round an instant to a microsecond from the start: sums of differences are exact then."""
        return round((instant - self.start) / 1000)

    @property
    def timing(self) -> Timing:
        """Return the durations; the phase in which a step failed ends there, and the later ones are None."""
        ends = list(map(self._us, self.ends))
        reached = len(ends)
        if self.stopped is not None and reached < len(PHASES):
            ends.append(max(0, *ends[-1:], self._us(self.stopped) if self.start else 0))
        spans: list[int | None] = [end - start for start, end in zip([0, *ends], ends)]
        dns, connect, tls, wait, xfer = spans + [None] * (len(PHASES) - len(spans))
        send = ttfb = None
        if wait is not None:
            # An answer may come before the request is whole, or without it: then sending took all of wait.
            send = wait if self.sent is None else min(wait, max(0, self._us(self.sent) - ends[2]))
            ttfb = ends[3] if reached > 3 else None
        if self.kept:
            dns = connect = tls = None
        return Timing(dns, connect, tls, wait, xfer, ends[-1] if ends else 0, send, ttfb)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Return the attempts to connect, in the order in which they began."""
        now = self.stopped or time.perf_counter_ns()
        attempts = []
        for dial in self.dials:
            if dial.peer:  # at the deadline some have no outcome yet: they took until now
                us = max(0, round(((dial.ended or now) - dial.begun) / 1000))
                attempts.append(Attempt(dial.peer.ip, us, dial.error or None if dial.ended else "no answer"))
        return tuple(attempts)


# ---------------------------------------------------------------------------------------------------------
# 11. Certificates. DER -> Certificate (X.690, RFC 5280): getpeercert() is empty for what was not verified.
NAME_TYPES = {3: "CN", 6: "C", 7: "L", 8: "ST", 10: "O", 11: "OU"}  # 2.5.4.3 is CN (RFC 4519 section 2)
# Of extensions, in DER: 55 1d 0e is 2.5.29.14 (RFC 5280 section 4.2).
OWN_KEY, ALT_NAMES, BASIC, CONSTRAINED, ISSUER_KEY = (b"\x55\x1d%c" % n for n in (14, 17, 19, 30, 35))
EMPTY = b"\x30\x00"  # a sequence of nothing


def parts_of(data: bytes) -> list[tuple[int, bytes]]:
    """Return the tag and the content of each element; raises ValueError where they are no DER."""
    at, parts = 0, []
    while at < len(data):
        tag, length = data[at : at + 2]
        at, size = at + 2, 1
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if not 1 <= size <= 4 or at + length > len(data):
            raise ValueError("no DER")
        parts.append((tag, data[at : at + length]))
        at += length
    return parts


def within(data: bytes) -> list[tuple[int, bytes]]:
    """Return the elements within the first element."""
    return parts_of(parts_of(data)[0][1])


def der_time(tag: int, content: bytes) -> datetime.datetime | None:
    """Read UTCTime or GeneralizedTime (RFC 5280 section 4.1.2.5); None for what is neither."""
    text = decode(content)
    if tag == 0x17:
        text = f"19{text}" if text[:2] >= "50" else f"20{text}"
    found = re.fullmatch("([0-9]{4})" + 5 * "([0-9]{2})" + "Z", text)
    try:
        return found and datetime.datetime.fromisoformat("{}-{}-{}T{}:{}:{}+00:00".format(*found.groups()))
    except ValueError:  # a month of 13
        return None


def der_name(name: bytes) -> list[tuple[str, str]]:
    """Return the (type, value) pairs of a distinguished name, in order; unnamed types are left out."""
    pairs = []
    for _, relative in parts_of(name):
        for _, attribute in parts_of(relative):
            (_, kind), (tag, value) = parts_of(attribute)[:2]
            # BMPString (X.680 section 41), as old Windows CAs write it
            text = value.decode("utf-16-be", "replace") if tag == 0x1E else decode(value)
            if kind[:2] == b"\x55\x04" and kind[2] in NAME_TYPES:
                pairs.append((NAME_TYPES[kind[2]], text))
    return pairs


def name_text(pairs: Sequence[tuple[str, str]]) -> str:
    """Write a distinguished name, the last part first as RFC 4514 has it, but without its escapes."""
    return ", ".join(f"{kind}={value}" for kind, value in reversed(pairs))


def alternative_names(extension: bytes) -> tuple[str, ...]:
    """Return the DNS names, addresses, mail addresses and URIs of a subjectAltName."""
    names = []
    for tag, name in within(extension):
        if tag in (0x81, 0x82, 0x86):
            names.append(name.decode("ascii", "backslashreplace"))
        elif tag == 0x87 and len(name) in (4, 16):
            names.append(socket.inet_ntop(socket.AF_INET if len(name) == 4 else socket.AF_INET6, name))
    return tuple(names)


def issued(one: Certificate, other: Certificate) -> bool:
    """Tell whether one certificate issued another, by its name, and its key where both say which."""
    keys = {one.own_key, other.issuer_key} - {None}
    return bool(one.subject) and one.subject == other.issuer and len(keys) < 2


@lru_cache(256)
def parse_certificate(der: bytes) -> Certificate:
    """Read what a report shows of a certificate (RFC 5280 section 4.1), its SHA-256 alone if illegible."""
    import hashlib

    digest = hashlib.sha256(der).hexdigest()
    try:
        # 0xA0 is the version, which may be left out, as may 0xA3, the extensions.
        fields = [field for field in parts_of(within(der)[0][1]) if field[0] != 0xA0]
        (_, serial), _, (_, issuer), (_, validity), (_, subject), *others = fields
        begin, end = (der_time(*moment) for moment in parts_of(validity))
        extensions: dict[bytes, bytes] = {}  # by object identifier
        for _, extension in within(dict(others).get(0xA3, EMPTY)):
            (_, kind), *_, (_, value) = parts_of(extension)
            extensions.setdefault(kind, value)
        pairs, basic = der_name(subject), dict(within(extensions.get(BASIC, EMPTY)))
        return Certificate(
            common_name=dict(pairs).get("CN"),  # the last one, if any
            names=alternative_names(extensions.get(ALT_NAMES, EMPTY)),
            issuer=name_text(der_name(issuer)),
            serial=serial.hex().upper().removeprefix("00") or "00",  # a zero before it is its sign
            not_before=begin,
            not_after=end,
            sha256=digest,
            subject=name_text(pairs),
            own_key=parts_of(extensions[OWN_KEY])[0][1] if OWN_KEY in extensions else None,
            issuer_key=dict(within(extensions.get(ISSUER_KEY, EMPTY))).get(0x80),
            is_ca=1 in basic,
            path_length=int.from_bytes(basic[2], "big") if 2 in basic else None,
            constrained=CONSTRAINED in extensions,
        )
    except (ValueError, LookupError):
        return NO_CERTIFICATE._replace(sha256=digest)


# ---------------------------------------------------------------------------------------------------------
# 12a. Failures. What errors mean, in plain words, with one thing to try: first the tables, then the functions
#     that choose from them. The hop or the exchange that failed asks here.
NOT_HERE_HINT = "--interface names no interface or address of this machine: `ip address` lists them."
CONNECT_HINTS = {
    errno.ECONNREFUSED: "The machine answers, but nothing listens on that port, or a firewall rejects it.",
    errno.EHOSTUNREACH: "No route there, or a router turned it away: check routing, firewalls and the host.",
    errno.ENETUNREACH: "This machine has no route to that network: check its own network configuration.",
    errno.ETIMEDOUT: "Packets vanish on the way: check the address, routing and firewalls.",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "A firewall or policy of this machine forbids it."),
    errno.EADDRNOTAVAIL: "No local port is free (`ss -tan` lists them), or no address to go there from.",
    errno.ENODEV: NOT_HERE_HINT,
    errno.EINVAL: "The route leads nowhere, or a link-local address lacks its zone (fe80::1%25eth0).",
}
UNIX_HINTS = {  # of connect() on a unix socket (unix(7))
    errno.ENOENT: "Check the path, and whether the service runs: it makes the socket when it starts.",
    errno.ECONNREFUSED: "Check that the service runs, for one that has ended may leave it behind.",
    errno.EACCES: "Check the permissions (ls -l): w on the socket, x on each folder above it.",
    errno.EAGAIN: "The service runs and takes none: it hangs, or has too many. Look at its load and log.",
}
BROKEN_SERVER = "The server, or something in front of it, is at fault: look at its log."
HUNG_UP = "Check that the port speaks TLS. Servers and firewalls refuse a name or a version in this way too."
CLOSED_EARLY = "The server or a load balancer hung up: look at its log, its time-outs and its limits."
HTTP2_HINT = "The server, or something in front of it, is at fault; --http1.1 avoids HTTP/2."
PROXY_ADDRESS_HINT = "Check that the address belongs to such a proxy, and look at the proxy's log."
OUT_OF_REACH = "The proxy could not reach the target: check its name and port as the proxy sees them."
PROXY_HINTS = {  # by the status of HTTP or, below 9, the reply of SOCKS5 (RFC 1928 section 6)
    407: "Give the proxy a user name and password, in its URL: http://user:password@host:port.",
    403: "A proxy that answers so forbids this target or port: ask whoever runs it.",
    **dict.fromkeys((502, 503, 504, 3, 4, 8), OUT_OF_REACH),
    5: "The target refused the proxy: check the target's port, and whether the service runs.",
}
CODE_HINT = "Look at the server's log; --http1.1 tells whether HTTP/2 is at fault."
CUT_HINT = "The server cut this one answer short, and keeps the connection: look at its log."
RESET_HINTS = {
    "HTTP_1_1_REQUIRED": "Ask over HTTP/1.1 with --http1.1.",
    "REFUSED_STREAM": "It is overloaded, or what is behind it hung up: try again, and look at its log.",
    "NO_ERROR": "The server is closing its connections, for a restart perhaps: try again.",
}
INSECURE_HINT = "To see the timings all the same, use -k (on a trusted network only)."
TOO_MANY_INTERIM = f"more than {MAX_INTERIM} interim (1xx) responses came before the answer"
RAISE_M = "give it more time with -m."
LOOKUP_HINT = "Check the resolver of this machine."
FAMILY_HINT = "One family of addresses alone was asked for: by -4, -6, or an address after --interface."
# By what was under way when the time of -m was over (`Stage.awaits`): what to say, and what to try.
STUCK = {
    "dns": "the resolver gave no answer for {detail} within {limit}",
    "connection": "no connection to {detail} within {limit}",
    "proxy": "the proxy {proxy} did not connect to the target within {limit}",
    "tls": "the TLS handshake{detail} was not finished within {limit}",
    "upload": "the request could not be sent whole within {limit}",
    "answer": "{detail} came within {limit}",
    "body": "the response was not complete within {limit}: {detail}",
}
STUCK_HINTS = {
    "dns": "Check the name servers in /etc/resolv.conf; --resolve HOST:PORT:ADDR goes around them.",
    "connection": "A firewall drops packets, the host is down, or the service is busy.",
    "proxy": f"Check that it is such a proxy, and look at its log; {RAISE_M}",
    "tls": "Connections are accepted there but no handshake: it is overloaded, or does not speak TLS.",
    "upload": f"The server takes no more of the body: look at the server's limits and load; {RAISE_M}",
    "answer": f"The server is connected but does not answer: look at its load and log; {RAISE_M}",
    "body": f"A large answer, a slow path or a stalled server: {RAISE_M}",
}


def explain_refusal(error: BaseException) -> NetworkError | None:
    """Say that a limit of this machine was met, or what is wrong with its variables; None where neither."""
    if isinstance(error, UsageError):
        return NetworkError("tls", error.message, "Correct that variable of the environment, or its file.")
    return NetworkError("network", reason_of(error), REFUSED_HINT) if is_refused(error) else None


def protocol_error(message: str, hint: str = BROKEN_SERVER) -> NetworkError:
    return NetworkError("protocol", message, hint)


def doubt_proxy(found: NetworkError, proxy: str) -> NetworkError:
    """Say that a proxy has accepted a request, and that its target may not have been reached all the same."""
    found.message += f": the proxy {proxy} accepted, and may not have reached the target"
    found.hint = "Look at the proxy's log, and ask the target from where the proxy is."
    return found


def explain_lookup(
    host: str, options: Options, error: socket.gaierror, took: float, resolver: Resolver
) -> NetworkError:
    """Say why a lookup failed, and in the hint what it `took` (us), since messages are counted."""
    wanted, no_data = FAMILY_NAMES.get(options.family), getattr(socket, "EAI_NODATA", -5)
    message, hint = f"{host} could not be looked up: {reason_of(error)}", LOOKUP_HINT
    listed = f" ({clip(', '.join(resolver.servers))})" if resolver.servers else ""
    if error.errno == socket.EAI_AGAIN:  # SERVFAIL, REFUSED, a closed port and silence are all called so
        message = f"{host} could not be looked up: no name server gave a usable answer"
        one = "" if wanted else "; -4 or -6 asks for one family alone"
        hint = (
            f"Check the name servers of /etc/resolv.conf{listed}, which took {length_text(took)}. If one is "
            f"this machine: does systemd-resolved or dnsmasq run? `nslookup {host}` asks them{one}."
        )
    elif wanted and error.errno in (socket.EAI_NONAME, no_data, getattr(socket, "EAI_ADDRFAMILY", -9)):
        message = f"{host} has no {wanted} address, or no such name exists"
        hint = f"Check the spelling. {FAMILY_HINT}"
    elif error.errno == no_data:
        message = f"no address was found for {host}"
        hint = "The name servers know the name: check its A and AAAA records, and the spelling."
    elif error.errno == socket.EAI_NONAME:
        message = f"the name {host} was not found"
        hint = f"Check the spelling, the name servers of this machine{listed}, and its way to them."
    ports = ", ".join(str(port) for name, port in options.overrides if name == host)
    hint = f"--resolve has an address only for its port {ports}. {hint}" if ports else hint
    if resolver.search and not host.endswith(".") and error.errno != socket.EAI_AGAIN:
        names = clip(", ".join(f"{host}.{domain}" for domain in resolver.search))
        hint += f" The resolver may have tried {names} too (search in /etc/resolv.conf)."
    return NetworkError("dns", message, hint)


def own_machine(host: str, ip: str) -> str:
    """Say that a name leads to this machine; empty where it does not, or is expected to."""
    ours = ip.startswith("127.") or ip in ("::1", "0.0.0.0", "::")
    told = ours and not is_ip(host) and "localhost" not in host
    return f"{clip(host)} is {ip}, this machine itself" if told else ""


def not_http(line: bytes, secure: bool) -> NetworkError:
    """Say what came in place of a status line of HTTP, `secure` over TLS."""
    if line[:2] in (b"\x15\x03", b"\x16\x03"):
        message, hint = "the server speaks TLS on this port, not plain HTTP", "Ask for https:// instead."
    elif re.match(rb"(?s)\x00..\x04.\x00{4}", line):  # an HTTP/2 SETTINGS frame
        how = "over TLS, but without ALPN," if secure else "without TLS"
        message = f"the server speaks HTTP/2 {how} on this port (gRPC, h2c), not HTTP/1.1"
        hint = "HTTP/2 is measured over TLS with ALPN alone. Turn that on there, or ask a port of HTTP/1.1."
    elif not line.strip():
        message, hint = "the answer begins with a blank line, where HTTP has its status line", BROKEN_SERVER
    else:
        message = f"the answer does not start like HTTP: '{foreign(line)}'"
        hint = "Check that the port belongs to an HTTP server."
    return protocol_error(message, hint)


def refusal_hint(response: Response, login: Any) -> str:
    """Say what to do about a proxy that refuses a request with a `login` for it, or without one."""
    logins = b", ".join(values_of(response.headers, "proxy-authenticate")).lower()
    if response.status == 407 and logins and b"basic" not in logins:
        return "The proxy wants another login (NTLM, Negotiate, …): httphases knows only Basic."
    if response.status == 407 and login:
        return "The proxy refused the user name and password: check them, and that it takes Basic."
    return PROXY_HINTS.get(response.status, "Look at the proxy's log, or ask whoever runs it.")


def explain_socks5(error: Any, proxy: Proxy, looked_up: bool) -> NetworkError:
    """Put an error of PySocks in words; the proxy was asked for a name, or an address `looked_up` here."""
    reply = re.match(r"0x([0-9a-f]{2}): ", error.msg)
    message = f"does not answer like SOCKS5: {error.msg.lower()}"
    hint = "Check that the address belongs to a SOCKS5 proxy, and the proxy's log."
    if reply:
        code = int(reply[1], 16)
        message = f"refused: {error.msg[6:].lower()} (SOCKS reply {code})"
        hint = PROXY_HINTS.get(code, "Look at the proxy's log.")
        hint += " -4 or -6 asks it for another address, socks5h for the name." if looked_up else ""
    elif type(error).__name__ == "SOCKS5AuthError":
        message = "refused the credentials, or the lack of them"
        hint = f"Check the user name and password in the proxy URL: {proxy.scheme}://user:password@host:port."
    return NetworkError("proxy", f"the proxy {proxy.shown} {message}", hint)


# ---------------------------------------------------------------------------------------------------------
# 12b. Alerts. The same for TLS: what alerts, and OpenSSL's errors and verdicts, mean.
OLD_SERVER = "The server may be an old one: -k also allows old TLS versions and weak ciphers."
TLS_SETTINGS = "Look at the TLS settings of both sides (here: of OpenSSL), and at the server's log."
ALPN_HINT = "Check the port. A server of HTTP/2 alone needs the package h2 here, and no --http1.1."
CHANGED_HINT = "Look at what lies between: a network card, a router or a tunnel changes what passes it."
# As OpenSSL says it, since 3.2 by the last.
BAD_RECORDS = "DECRYPTION_FAILED_OR_BAD_RECORD_MAC BAD_RECORD_TYPE BAD_DECRYPT RECORD_LAYER_FAILURE".split()
TLS_FAILURES = {  # what is met in the field, by its name in `tls_reason` -> what it means, and what to try
    "handshake_failure": ("the server accepted nothing we offered", OLD_SERVER),
    "protocol_version": ("the server refused the TLS versions offered", OLD_SERVER),
    "unrecognized_name": ("the server does not know this name", "Check the host name, and its virtual host."),
    "internal_error": ("the server broke off with an error", "It may not serve this name: see its log."),
    "no_application_protocol": ("the server refused our ALPN", ALPN_HINT),
    # What to try here depends on what became of the client certificate.
    "certificate_required": ("the server requires a client certificate", ""),
    "bad_certificate": ("the server refused the client certificate, or the lack of one", ""),
    "unknown_ca": ("the server does not trust the CA of the client certificate", ""),
    "certificate_expired": ("the server says that the client certificate expired", ""),
    "UNSUPPORTED_PROTOCOL": ("the server offers only TLS versions that are not allowed here", OLD_SERVER),
    "UNSAFE_LEGACY_RENEGOTIATION_DISABLED": ("the server needs unsafe legacy TLS renegotiation", OLD_SERVER),
    "DH_KEY_TOO_SMALL": ("the server's Diffie-Hellman key is too small to be safe", OLD_SERVER),
    **dict.fromkeys(("bad_record_mac", *BAD_RECORDS), ("bytes were changed on the way", CHANGED_HINT)),
}
CLIENT_CERT_HINTS = {  # by `TlsFailure.client_cert`
    None: "Give a client certificate with --cert PATH, and its key with --key PATH if that is apart.",
    True: "Does the server trust the CA of --cert? Certificates between the two go into its file, below it.",
    False: "--cert goes to the first URL's origin, never to a proxy, and if its kind of key is asked for.",
}
# OpenSSL's verdicts on a chain are numbers: X509_V_ERR_*.
WRONG_SIGNATURE, NOT_VALID_YET, EXPIRED, SELF_SIGNED, PATH_LENGTH = 7, 9, 10, 18, 25
UNKNOWN_ISSUER, NO_CA, CONSTRAINTS, OTHER_NAME = (20, 21), (24, 79), (47, 48), (62, 64)
NOT_TRUSTED = (WRONG_SIGNATURE, SELF_SIGNED, 19, *UNKNOWN_ISSUER)
VERDICTS = {  # those whose words differ from version to version, or are hard to understand
    SELF_SIGNED: "the certificate is self-signed",
    19: "the certificate's chain ends in a self-signed CA that is not trusted here",
    26: "the certificate is not meant for a server",
}
TO_THE_SECOND = "%Y-%m-%d %H:%M:%S UTC"


class TlsFailure(NamedTuple):
    """What is known of a handshake, or of a record after it, that failed."""

    error: ssl.SSLError
    stream: TlsStream
    place: tuple[str, int]
    options: Options
    proxy: Proxy | None  # it is that one's
    client_cert: bool | None  # the client certificate was sent; None where none was given

    @property
    def code(self) -> int:
        """Return OpenSSL's verdict on the certificate, 0 where something else failed."""
        return getattr(self.error, "verify_code", 0)

    @property
    def chain(self) -> tuple[Certificate, ...]:
        """Return what the other side sent, its own first."""
        return tuple(map(parse_certificate, self.stream.tap.certificates))

    @property
    def certificate(self) -> Certificate:
        return next(iter(self.chain), NO_CERTIFICATE)

    @property
    def known(self) -> tuple[Certificate, ...]:
        """Return what was sent, and the CAs that are trusted here."""
        return (*self.chain, *map(parse_certificate, self.stream.context.get_ca_certs(True)))

    @property
    def path(self) -> tuple[Certificate, ...]:
        """Return the other side's certificate and those that issued it, by name and key, as far as known."""
        known, above = self.known, self.chain[:1]
        path: list[Certificate] = []
        while above:
            path.append(above[0])
            above = tuple(each for each in known if issued(each, path[-1]) and each not in path)
        return tuple(path)


def has_trust_store() -> bool:
    """Tell whether this machine has any CA certificate where OpenSSL looks."""
    paths = ssl.get_default_verify_paths()
    try:
        return bool(paths.cafile) or bool(paths.capath and os.listdir(paths.capath))
    except OSError:
        return False


def in_days(moment: datetime.datetime, now: datetime.datetime) -> str:
    """Say how far away a moment is, in whole days: '3 days', 'less than a day'."""
    days = abs(moment - now).days
    return {0: "less than a day", 1: "1 day"}.get(days, f"{days} days")


def expiry_text(end: datetime.datetime, now: datetime.datetime) -> str:
    return f"expired {in_days(end, now)} ago" if end < now else f"expires in {in_days(end, now)}"


def has_expired(certificate: Certificate) -> str:
    """Say since when a certificate has expired, empty for one that has not."""
    end, now = certificate.not_after, wall_clock()
    return expiry_text(end, now) if end and end < now else ""


def certificate_name(certificate: Certificate) -> str:
    """Name a certificate: by its Common Name, else by its first alternative name."""
    if certificate.common_name:
        return f"CN {certificate.common_name}"
    return next(iter(certificate.names or ()), "no legible name")


def validity_error(failure: TlsFailure) -> tuple[str, str]:
    """Say which certificate has expired, or is not valid yet, and what to do."""
    now, early = wall_clock(), failure.code == NOT_VALID_YET
    verdict, where = "is not valid yet" if early else "expired", "on the server"
    message = f"a certificate {verdict}"
    for each in (*failure.chain, *failure.path):
        moment = each.not_before if early else each.not_after
        if moment and (moment > now) == early:
            days, field = in_days(moment, now), "notBefore" if early else "notAfter"
            when = f"{verdict}, but will be in {days}" if early else f"{verdict} {days} ago"
            message = f"the certificate {when}"
            if each not in failure.chain:
                where = "in the trust store (package ca-certificates, or the file of --cacert)"
                message = f"a CA certificate {where} {when}: {foreign(certificate_name(each))}"
            elif each != failure.certificate:
                where = "in the chain that the server sends"
                message = f"a certificate further up the chain {when}: {foreign(certificate_name(each))}"
            message += f" ({field} {moment:{TO_THE_SECOND}})"
            break
    then = "look at the certificate" if early else "renew the certificate"
    return message, f"Check this machine's time, {now:{TO_THE_SECOND}}. If it is right, {then} {where}."


def is_for(certificate: Certificate, host: str) -> bool:
    """Tell whether a certificate has the name of a host, be it where that does not count."""
    names = map(str.lower, certificate.names or (certificate.common_name or "",))
    return not {host, "*." + host.partition(".")[2]}.isdisjoint(names)


def issuer_error(failure: TlsFailure) -> tuple[str, str]:
    """Say that the issuer of a certificate is not trusted here, and how to name one that is."""
    if failure.options.ca_bundle is None and not has_trust_store():
        message = "this machine has no CA certificates, so no certificate can be verified"
        return message, "Install the package ca-certificates, or pass a CA bundle with --cacert PATH."
    path, code = failure.path, failure.code
    last = (failure.certificate, *path)[-1]
    name, issuer = foreign(certificate_name(last)), f" ({foreign(last.issuer)})" if last.issuer else ""
    hint = "Its issuer may be a private CA: name that with --cacert PATH."
    if code == SELF_SIGNED:
        hint = "It is its own issuer: if you trust it, name it with --cacert PATH."
    if failure.options.ca_bundle is not None:
        hint = f"The bundle given with --cacert does not hold the CA that issued it{issuer}."
    if code in UNKNOWN_ISSUER and len(failure.chain) == 1:
        hint = f"The server sent its own certificate alone: its intermediate may be missing there. {hint}"
    elif code in UNKNOWN_ISSUER:
        hint += " Or the server does not send all its intermediate certificates."
    message = VERDICTS.get(code, f"the issuer of {name} is unknown{issuer}")
    named_alike = any(each.subject == last.issuer and each not in path for each in failure.known)
    if code == WRONG_SIGNATURE or named_alike:
        shown = "" if code == WRONG_SIGNATURE else issuer
        message = f"the issuer is unknown: the CA has the same name, but another key{shown}"
        hint = "It was renewed perhaps: the server has to send, and this machine to trust, the right one."
    elif code == SELF_SIGNED and len(path) > 1:
        message = f"the certificate counts as self-signed: it has the name of its CA{issuer}"
        hint = "Give the server a certificate with a subject of its own."
    if has_expired(failure.certificate):  # OpenSSL names the first fault alone
        message += f"; besides, the certificate {has_expired(failure.certificate)}"
    return message, hint


def name_error(failure: TlsFailure) -> tuple[str, str]:
    """Say for which names a certificate was issued, and how to ask for one of these."""
    (host, port), certificate, options = failure.place, failure.certificate, failure.options
    shown = foreign(list_first(certificate.names or (certificate.common_name or "no legible name",), 5))
    if is_for(certificate, host):
        where = "as a DNS name" if certificate.names else "as its common name alone"
        message = f"the certificate has {shown} {where}, which does not count for {host}"
        rule = "a * stands for letters, digits and hyphens before two labels or more"
        return message, f"Give the server a certificate with {host} in its subjectAltName; {rule}."
    who = "it" if failure.proxy else "the server"
    message = f"{who} has no certificate for {host}: it answered with its default, for {shown}"
    if failure.code not in OTHER_NAME:
        message += f"; besides, {issuer_error(failure)[0]}"
    hint = f"Use one of its names in the URL, or give the server a certificate for {host}."
    if is_ip(host) and options.unix_socket is None:
        # -H Host is for the first URL alone, and may be an address too.
        own = values_of(options.request.headers, "host") if options.request.url.place == failure.place else ()
        named = re.match(r"[A-Za-z][\w.-]*", decode(b"".join(own)))
        name = named[0] if named else "NAME"
        way = f"-x https://{name}:{port}" if failure.proxy else f"https://{name}:{port}/"
        why = "-H Host is not told to TLS: use" if named else "Use one of its names in the URL:"
        hint = f"{why} {way} with --resolve {name}:{port}:{bracketed(host)}."
    return message, hint


def rule_error(failure: TlsFailure) -> tuple[str, str]:
    """Say which CA has issued a certificate against its own rules, or what else OpenSSL says."""
    code, path, rule = failure.code, failure.path, ""
    for below, (each, under) in enumerate(zip(path[1:], path)):
        name = certificate_name(each)
        if code in NO_CA and not each.is_ca:
            rule = f"{name} is no CA, but has issued {certificate_name(under)}"
        elif code == PATH_LENGTH and each.path_length is not None and each.path_length < below:
            rule = f"{name} allows {each.path_length} CAs below it (path length), and there are {below}"
        elif code in CONSTRAINTS and each.constrained:
            rule = f"{name} may not issue for all of its names (name constraints)"
        if rule:
            break
    if code in NO_CA and path and not rule:  # the store lists CAs alone
        rule = f"{path[-1].issuer} is no CA, but has issued {certificate_name(path[-1])}"
    said = getattr(failure.error, "verify_message", "")
    message = VERDICTS.get(code, f"the certificate was rejected: {foreign(rule) or said}")
    return message, "Ask whoever issued it for one that keeps to the rules." if rule else ""


def tls_reason(failure: TlsFailure) -> str:
    """Return why TLS failed: an alert as RFC 8446 section 6 names it, else OpenSSL's word, in upper case."""
    text = re.sub(r"^\[[^\]]*\]\s*|\s*\((_ssl\.c:[0-9]+|0x[0-9a-f]+)\)", "", str(failure.error))
    reason = failure.error.reason or text.upper().replace(" ", "_")
    alert = re.fullmatch(r"(?:SSLV3|TLSV1|TLSV13|SSL/TLS)_(?:ALERT_)?(\w+)", reason)
    return alert[1].lower() if alert else reason


def alert_error(failure: TlsFailure) -> NetworkError:
    """Say what an error of OpenSSL means, or an alert of the other side, whose name stays beside it."""
    reason, tap, sent = tls_reason(failure), failure.stream.tap, failure.client_cert
    usual, alert = f"TLS failed: {reason.lower().replace('_', ' ')}", ""
    if reason == reason.lower():
        usual, alert = "the server broke off", f" (alert {reason})"
    if reason == "handshake_failure" and tap.wanted:  # TLS 1.2 has no alert of its own for it
        reason = "bad_certificate" if sent else "certificate_required"
    words, hint = TLS_FAILURES.get(reason, (usual, TLS_SETTINGS))
    # "certificate": also alerts that are not in the table, such as certificate_revoked.
    if not hint or "certificate" in reason:
        hint = CLIENT_CERT_HINTS[sent]
        expired = has_expired(parse_certificate(tap.own))
        if expired:
            words, hint = f"the certificate of --cert {expired}; {words}", "Renew that certificate."
    elif hint == OLD_SERVER and failure.options.insecure:
        hint = TLS_SETTINGS
    return NetworkError("tls", words + alert, hint)


def explain_tls(failure: TlsFailure) -> NetworkError:
    """Put a TLS failure in plain words, with a hint that fits it."""
    code, own, explain = failure.code, failure.certificate, rule_error
    stranger = own.names is not None and not is_for(own, failure.place[0])
    if code in (NOT_VALID_YET, EXPIRED):
        explain = validity_error
    elif code in OTHER_NAME or (code in NOT_TRUSTED and stranger):
        explain = name_error
    elif code in NOT_TRUSTED:
        explain = issuer_error
    if code:
        message, hint = explain(failure)
        return NetworkError("tls", message, f"{hint} {INSECURE_HINT}".lstrip())
    if failure.stream.stray and not failure.stream.established:
        where, who = f"http://{place_text(*failure.place)}", "it" if failure.proxy else "the server"
        ask = f"give it as -x {where}" if failure.proxy else f"ask for {where}/"
        return NetworkError("tls", f"{who} does not speak TLS here", f"For plain HTTP {ask}.")
    return alert_error(failure)


# ---------------------------------------------------------------------------------------------------------
# 13. Lookup. Names to addresses.
REHEARSAL_NS = 50_000_000  # ns that a lookup of localhost may take


def literal_peer(literal: str, port: int) -> Peer:
    """Return the peer of an address literal; raises NetworkError for a zone that is no interface here."""
    if is_ip(literal, socket.AF_INET):
        return Peer(literal, socket.AF_INET, (literal, port))
    address, mark, zone = literal.partition("%")
    address = socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address))
    try:
        scope = int(zone or 0) if re.fullmatch("[0-9]{0,9}", zone) else socket.if_nametoindex(zone)
    except OSError:
        hint = "The zone after % is the name of a network interface: `ip link` lists them."
        message = f"{literal}: this machine has no interface '{foreign(zone)}'"
        raise NetworkError("dns", message, hint) from None
    return Peer(address + mark + zone, socket.AF_INET6, (address, port, 0, scope))


def read_resolver(options: Options) -> Resolver | None:
    """Read /etc/resolv.conf; None where that cannot be read, or the environment says something else."""
    if options.environ.get("RES_OPTIONS") or options.environ.get("LOCALDOMAIN"):
        return None
    try:
        text = decode(read_file("/etc/resolv.conf"))
    except OSError:
        return None
    servers = tuple(re.findall(r"^nameserver[ \t]+(\S+)", text, re.MULTILINE)[:3]) or ("127.0.0.1",)
    domains = "".join(re.findall(r"^(?:search|domain)[ \t]+(.*)", text, re.MULTILINE)[-1:])
    settings = " ".join(re.findall(r"^options[ \t]+(.*)", text, re.MULTILINE))
    given = {name: int(value) for name, value in re.findall(r"\b(timeout|ndots):([0-9]{1,9})", settings)}
    time_out_us = max(1, min(given.get("timeout", 5), 30)) * 1_000_000
    search = tuple(domain.strip(".").lower() for domain in domains.split() if domain.strip("."))
    return Resolver(servers, time_out_us, search, min(given.get("ndots", 1), 15))


def interleave(peers: list[Peer]) -> list[Peer]:
    """Alternate the families, keeping the resolver's order in each (RFC 8305 section 4)."""
    families = group_by(lambda peer: peer.family, peers).values()
    return [peer for turn in zip_longest(*families) for peer in turn if peer]


def answer_lookups(asked: Any, answers: Any) -> None:
    """Look up what is asked, up to None; say of each when that began, what was found, and what was raised."""
    for host, port, family in iter(asked.get, None):
        begun, found, error = time.perf_counter_ns(), [], None
        how = family, socket.SOCK_STREAM, socket.IPPROTO_TCP, socket.AI_CANONNAME
        try:
            # As bytes: a text would import the idna codec inside the dns phase.
            found = socket.getaddrinfo(host.encode("ascii"), port, *how)
        except Exception as failed:
            error = failed
        answers.put((begun, found, error))


class Lookups:
    """A thread that asks the system's resolver, because nothing interrupts a lookup. It serves one step after
    the other. One that does not answer in time is left behind, and ends when it has answered.
    """

    def __init__(self) -> None:
        self._asked: Any = None  # there is no thread
        self._answers: Any = None

    def rehearse(self) -> None:
        """Look up localhost before the clock starts: the C library loads what lookups need. Raises OSError
        where a limit of this machine is met.
        """
        # Device "the resolver is warmed up": without it, dns is 1.89 ms off instead of 0.37.
        rehearsal = Deadline()  # a broken resolver may never come back, even for localhost
        rehearsal.at = time.perf_counter_ns() + REHEARSAL_NS
        self._start()
        try:
            self.ask("localhost", 80, socket.AF_UNSPEC, rehearsal)
        except (TimeIsOver, OSError):
            self._start()
        for spare in (*os.pipe(), *os.pipe()):  # a resolver without one says that there is no such name
            os.close(spare)

    def ask(self, host: str, port: int, family: int, deadline: Deadline) -> tuple[int, list[Peer], str]:
        """Look a name up; return when that began, the addresses in order, and the name that has them."""
        self._start()
        self._asked.put((host, port, family))
        answers: list[Any] = []
        try:
            while not answers:
                # Device "short waits for an answer": they keep a core awake; without them, dns is 0.32 ms off
                # instead of 0.29.
                answers = deadline.poll(self, 1)
        except (TimeIsOver, Stopped):
            self.leave_behind()
            raise
        begun, found, error = answers[0]
        if error:
            raise error
        peers = [Peer(str(address[0]), each, address) for each, _, _, _, address in found]
        return begun, interleave(list(dict.fromkeys(peers))), found[0][3].rstrip(".").lower()

    def poll(self, most: int) -> list[Any]:
        """Wait for an answer for so many ms, as select.poll does; return none if there is none by then."""
        try:
            return [self._answers.get(timeout=most / 1000)]
        except _queue.Empty:
            return []

    def _start(self) -> None:
        if self._asked:
            return
        self._asked, self._answers = _queue.SimpleQueue(), _queue.SimpleQueue()
        thread = Worker(partial(answer_lookups, self._asked, self._answers))
        if thread.crash:
            self.leave_behind()
            raise thread.crash

    def leave_behind(self) -> None:
        """Ask the thread for nothing more: it ends as soon as it has answered."""
        if self._asked:
            self._asked.put(None)
            self._asked = None


def known_address(host: str, port: int, options: Options) -> str | None:
    """Return the address that --resolve or a literal host names, None where a resolver has to be asked."""
    return options.overrides.get((host, port), host if is_ip(host) else None)


def resolve(host: str, port: int, options: Options, lookups: Lookups, log: Log) -> list[Peer]:
    """Return the addresses of a host; raises NetworkError of kind `dns`, and socket.gaierror."""
    literal = known_address(host, port, options)
    if literal and not is_ip(literal, options.family):
        raise NetworkError("dns", f"{literal} is no {FAMILY_NAMES[options.family]} address", FAMILY_HINT)
    if literal:
        return [literal_peer(literal, port)]
    try:
        begun, found, name = lookups.ask(host, port, options.family, log.deadline)
        log.note_lookup(begun, name)
        return found
    except socket.gaierror:
        if not host.rstrip(".").endswith(".localhost"):
            raise  # it is explained when the clock has stopped
        # RFC 6761 section 6.3: such a name is this machine, where hosts file and DNS do not know it.
        return [literal_peer(each, port) for each in ("127.0.0.1", "::1") if is_ip(each, options.family)]
    except (OSError, UnicodeError) as error:
        message = f"{host} could not be looked up: {reason_of(error)}"
        raise explain_refusal(error) or NetworkError("dns", message, LOOKUP_HINT) from None


# ---------------------------------------------------------------------------------------------------------
# 14a. Streams. Bytes in both directions, with their time of arrival.
GIVEN_UP = "given up: another was faster"  # the error of an attempt that lost the race
SO_TIMESTAMPNS = 35  # Linux; Python has no name for it
TIMESPEC = struct.Struct("@ll")
FRESH_NS = 200_000  # ns within which a waiting process notices what came, unless it is short of CPUs
# With these flags Linux keeps what is sent until the next send (MSG_MORE), in a separate segment (MSG_EOR).
HOLD_FLAGS = socket.MSG_MORE | socket.MSG_EOR if getattr(socket, "MSG_MORE", 0) else 0
UNASKED = "the server sent something that it was not asked for"
Source = Callable[[], "bytes | memoryview"]


def silence() -> bytes:
    """Return nothing: the source of a stream that has nothing to send."""
    return b""


class Stream:
    """A stream of bytes in both directions. While it waits for input it sends what `source` offers.

    Sending and receiving are one operation, because a server may answer before the request is whole, and
    may not read on until its answer is read. `source` is asked again whenever the kernel has taken all that
    it gave before; empty means nothing to send for now.
    """

    base: SocketStream  # the one at the bottom, which sends

    def __init__(self) -> None:
        self.source: Source = silence
        self.began = 0  # perf_counter_ns when the first of the newest bytes reached this machine
        self.truncated = False  # TLS ended without close_notify
        self.alpn: str | None = None  # the protocol that was agreed on, if any (RFC 7301)

    def read_into(self, view: memoryview) -> int:
        """Receive into a buffer and return how much came, 0 at the end; raises OSError, ssl.SSLError."""
        raise NotImplementedError

    def begin(self, source: Source) -> int:
        """Send from `source` from now on, at once what can leave without waiting; return the instant. Where
        that fails, the next read raises the error.
        """
        self.source = source
        return self.base.push()


def arrival_of(ancillary: Iterable[tuple[int, int, bytes]]) -> int:
    """Return the kernel's time of arrival as an instant of perf_counter_ns, 0 where there is none."""
    for _, kind, data in ancillary:
        if kind == SO_TIMESTAMPNS and len(data) == TIMESPEC.size:
            seconds, nanoseconds = TIMESPEC.unpack(data)
            for _ in range(3):  # where this process loses its CPU between the clocks, they do not agree
                before, of_day, now = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
                if now - before < FRESH_NS:
                    break
            ago: int = of_day - seconds * 1_000_000_000 - nanoseconds
            return now - max(0, ago)  # never later than now: the system's clock may have been set
    return 0


class SocketStream(Stream):
    """A connected socket. Its time of arrival is the kernel's, where there is one: the server is not blamed
    for a process that was not running. Without `timestamps` nothing is taken but data: over a unix socket the
    other side could send open files.
    """

    def __init__(self, log: Log, timestamps: bool = True) -> None:
        super().__init__()
        self.base, self.log = self, log  # of the request under way: pauses are noted there
        self.arrived = 0  # perf_counter_ns when the last of the newest bytes reached this machine
        self.socket: socket.socket
        self._unsent: bytes | memoryview = b""
        self._send_error: OSError | None = None
        self._poller = select.poll()
        self._wanted = 0  # what the poller is set to
        self._ancillary = socket.CMSG_SPACE(TIMESPEC.size) if timestamps else 0
        self._waited = False  # the newest read had to wait for its bytes
        self._taken = 0  # bytes that were read

    def push(self) -> int:
        """Send what can leave at once without waiting; return the instant."""
        departed = time.perf_counter_ns()  # before the call: on loopback the other side reads during it
        if self._refill() and self._send():
            self._refill()  # asked at once, `source` knows when its last byte was sent
        return departed

    def read_into(self, view: memoryview) -> int:
        """Receive; what came after a wait came at the instant that the kernel tells, and ends a pause."""
        self._waited = False
        self.send_until_readable()
        while True:
            try:
                count, ancillary, *_ = self.socket.recvmsg_into([view], self._ancillary)
                break
            except BlockingIOError:
                self.wait()
        noticed = time.perf_counter_ns()
        # Device "the kernel's time of arrival": without it, wait is 0.340 ms off instead of 0.084
        # while the CPUs are busy. It is a time of the system's clock, which may have been set.
        arrived = arrival_of(ancillary) or noticed
        # Where segments came before their turn, the newest may have waited here for an older one: then what
        # was read could be read only now. To ask takes 15 us: not for each read of a body that is there.
        late = noticed - arrived > FRESH_NS and (self._waited or not self.log.in_bulk)
        counted = parse_tcp_info(read_tcp_info(self.socket)) if late else None
        if counted and counted.disorder:
            arrived = noticed
        self.log.deadline.check(arrived)
        self.log.deadline.look(noticed)
        if self._waited:
            self.log.note_pause(self.arrived, arrived, self._taken)
            self.log.deadline.note_in_vain(noticed - arrived)
        self._taken += count
        self.arrived = arrived
        if count:
            self.began = arrived
        elif self._send_error:
            raise self._send_error  # it says more than the end of the stream, which it caused
        return count

    def hold(self) -> None:
        """Hand over all that `source` offers, to leave together with what `begin` sends; raises OSError."""
        # Device "the end of the handshake is held for the request": both leave at one instant, which ends
        # tls and begins wait. Without it, tls is 0.158 ms off instead of 0.012.
        while self._refill():
            if not self._send(HOLD_FLAGS):
                self.wait(select.POLLIN | select.POLLOUT)
        if self._send_error:
            raise self._send_error

    def send_until_readable(self) -> None:
        """Send what `source` offers, until something can be read or there is nothing to send for now."""
        if not self._refill():
            return
        self._send()  # a piece before looking: an upload goes on even while the server keeps talking
        while self._refill():
            self.log.deadline.patience()
            if self.wait(select.POLLIN | select.POLLOUT) != select.POLLOUT:
                return  # an error or a hang-up counts as input: reading tells which it was
            self._send()

    def _send(self, flags: int = 0) -> bool:
        """Send what the kernel takes now; True when that was all."""
        try:
            count = self.socket.send(self._unsent, flags)
        except BlockingIOError:
            count = 0
        except OSError as error:
            if flags and error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                return self._send()  # flags that are unknown here, and that nothing needs
            # The answer may have come before the connection broke: reading decides.
            self._send_error, self._unsent, self.source = error, b"", silence
            return True
        self._unsent = memoryview(self._unsent)[count:]
        return not self._unsent

    def _refill(self) -> bool:
        """Ask `source` for more when its last piece was sent; tell whether anything is left to send."""
        self._unsent = self._unsent or self.source()
        return len(self._unsent) > 0

    def wait(self, wanted: int = select.POLLIN) -> int:
        """Wait for what is wanted; return which of it is there. Raises TimeIsOver, else BlockingIOError."""
        if not self.log.waits:
            raise BlockingIOError
        self._waited = True
        if wanted != self._wanted:
            self._poller.register(self.socket, wanted)
            self._wanted = wanted
        events: list[tuple[int, int]] = []
        while not events:
            events = self.log.deadline.poll(self._poller)
        return events[0][1]


# ---------------------------------------------------------------------------------------------------------
# 14b. Streams over TLS. OpenSSL works in memory, on top of any stream: the same code serves TLS within a
#     proxy's TLS, and OpenSSL's own errors never hide what ended the connection.
# A private attribute of CPython (3.8 and later), through which OpenSSL shows the messages of a handshake; set
# past ssl.py, which would run Python code for each. Without it a failed handshake shows no certificate, a
# chain is its first one alone, and it is not known whether a client certificate was asked for.
MESSAGE_CALLBACK = getattr(ssl.SSLContext.__base__, "_msg_callback", None)
MAX_RECORD = 16384 + 2048  # bytes of ciphertext in one (RFC 5246 section 6.2.3)
RECORD_HEADER = struct.Struct(">BBxH")  # kind, version, length (RFC 8446 section 5.1)


def each_certificate(message: bytes, version: int) -> Iterator[bytes]:
    """Give the certificates (DER) of a Certificate message, the sender's own first, until one is cut off."""
    # RFC 5246 section 7.4.2, 8446 section 4.4.2: TLS 1.3 has a context before them, extensions after each.
    tls13 = version == 0x0304
    at = 4 + 3
    if tls13:
        at += 1 + int.from_bytes(message[4:5], "big")
    while at + 3 < len(message):
        size = int.from_bytes(message[at : at + 3], "big")
        at += 3 + size
        if not size or at > len(message):
            return
        yield message[at - size : at]
        if tls13:
            at += 2 + int.from_bytes(message[at : at + 2], "big")


class HandshakeTap:
    """What OpenSSL forgets when a handshake fails: the other side's certificates, and whether one of ours was
    wanted and sent, perhaps later (RFC 8446 section 4.6.2).
    """

    def __init__(self) -> None:
        self.wanted = 0  # how often a certificate of ours was asked for
        self.own = b""  # the one that was sent (DER)
        self.message = (b"", 0)  # the one with the other side's certificates, and the version of TLS

    @property
    def certificates(self) -> tuple[bytes, ...]:
        """Return the certificates that came (DER), the other side's own first."""
        return tuple(islice(each_certificate(*self.message), MAX_CHAIN))


def overhear(tls: Any, direction: str, version: int, content: int, kind: int, data: bytes) -> None:
    """Note in the tap of a TLS object what OpenSSL shows of its handshake (RFC 8446 section 4)."""
    if content != 22:  # a header, an alert: this is called for each record
        return
    came, tap = direction == "read", tls.tap
    if kind == 13 and came:  # CertificateRequest
        tap.wanted += 1
    elif kind == 11 and not came:  # Certificate
        tap.own = next(each_certificate(data, version), tap.own)
    elif kind == 11 and not tap.message[0]:
        tap.message = (bytes(data), version)  # parsed later: this runs in the timed region


class TlsStream(Stream):
    """TLS over another stream. OpenSSL works in memory alone, between two buffers:

        what the stage above sends -> OpenSSL -> `_outgoing` -> `ciphertext`, for the stream below
        what the stream below reads -> `_pull` -> `_incoming` -> OpenSSL -> `_decrypt` -> the stage above

    The ClientHello is made before the clock starts, with the object. `shake_hands` holds our last flight
    back: it leaves together with the request, when `begin` sends. From then on what comes is read by records
    (RFC 8446 section 5.1): one by one, the header first, since each is to have a time of arrival of its own;
    or `in_bulk`, as many as there are, which share one. The next read goes on where this one ended:

        | header, 5 bytes | 1200 bytes | header | 16401 bytes | header | 16401 bytes |
        |<--------------- a read ----------------->|<--- `_rest` ---->|
        |<------------ another one ---------->| `_cut` bytes of a header: OpenSSL gets it when it is whole
    """

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        super().__init__()
        self.established = False
        self.stray = False  # something else than a record of TLS came
        self._failure: ssl.SSLError | None = None  # to be raised by the next call
        self._rest = 0  # bytes of the newest record that are still to come, once its header is whole
        self._cut = 0  # bytes of its header that have come, while it is not
        self._plain: bytes | memoryview = b""  # what is still to be encrypted
        # The version and cipher, the other side's own certificate, and those that verification went by.
        self._agreed: tuple[str | None, str | None, bytes | None, tuple[bytes, ...]] = (None, None, None, ())
        self.answered = 0  # when the other side's flight came that ended the handshake, 0 if ours did
        self._buffer = memoryview(mmap.mmap(-1, BUFFER, mmap.MAP_PRIVATE))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.context = context
        if MESSAGE_CALLBACK:  # an object that is made without one never has one
            MESSAGE_CALLBACK.__set__(context, overhear)
        sni = name.encode("ascii")  # a str would go through the idna codec
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=sni)
        # Not this stream itself: it would refer to itself, and stay with 20 KB of each run.
        self.tap = self._tls.tap = HandshakeTap()  # type: ignore[attr-defined]
        self._wanted = 0  # how often a certificate was asked for within the handshake
        try:
            self._try_handshake()
        except ssl.SSLError as error:
            self._failure = error  # no version or cipher is left to offer: `shake_hands` raises this

    def shake_hands(self, inner: Stream) -> None:
        """Shake hands over `inner`; our last flight leaves when `begin` sends. Raises OSError, EOFError."""
        self._inner, self.base = inner, inner.base
        if self._failure:
            raise self._failure
        while not self._try_handshake():
            if not self._pull():
                raise EOFError
        # In TLS 1.2 the last flight is the server's: the handshake ends when it arrives. In TLS 1.3 it is
        # ours: it waits for the request, and the handshake ends when both leave.
        if not self._outgoing.pending:
            self.answered = self.base.arrived
        self.base.hold()
        self.established, self._wanted = True, self.tap.wanted
        self.alpn = self._tls.selected_alpn_protocol()

    def note_agreed(self) -> None:
        """Ask OpenSSL what was agreed on: once the request has left, because it would delay that."""
        cipher = self._tls.cipher()
        path = tuple(getattr(self._tls, "get_verified_chain", tuple)())  # Python 3.13
        self._agreed = self._tls.version(), cipher and cipher[0], self._tls.getpeercert(True), path

    def agreed(self, options: Options) -> TlsInfo:
        """Return what the handshake agreed on; of one that failed only the certificates. Where the tap could
        not read these (compressed, RFC 8879, or without a callback), only the other side's own is known.
        """
        sent, tap = self.tap.certificates, self.tap
        version, cipher, own, path = self._agreed
        if own and sent[:1] != (own,):
            sent = (own,)
        if version is None and not sent:
            return NO_TLS
        client_cert = None
        if options.identity:
            client_cert = "sent" if tap.own else "not known"
        if client_cert == "not known" and version:
            client_cert = "not sent" if tap.wanted else "not asked for"
        if client_cert == "sent" and has_expired(parse_certificate(tap.own)):
            client_cert += f", but it {has_expired(parse_certificate(tap.own))}"
        chain = tuple(map(parse_certificate, sent))
        # With -k OpenSSL tells a path that may end nowhere.
        judged = tuple(map(parse_certificate, () if options.insecure else path)) or chain
        return TlsInfo(
            version="TLSv1.0" if version == "TLSv1" else version,
            cipher=cipher,
            alpn=self.alpn,
            verified=version is not None and not options.insecure,
            custom_ca=options.ca_bundle is not None,
            chain=chain,
            first_to_end=min(judged, key=lambda each: (each.not_after is None, each.not_after), default=None),
            client_cert=client_cert,
            wanted=tap.wanted > 0,
            lacks_h2=options.http2 and "h2.connection" not in sys.modules,  # `Chain` looked for it
        )

    def read_into(self, view: memoryview) -> int:
        count, empty = self._decrypt(view), 0
        while count is None:
            empty += 1
            if empty > MAX_IDLE and not self.base.log.waits:
                raise protocol_error(UNASKED)
            if not self._pull():
                self.truncated = True
                return 0
            count = self._decrypt(view)
        return count

    def ciphertext(self) -> bytes:
        """Return what this side has to send: the source of the stream below."""
        if self.established and not self._outgoing.pending:
            self._plain = memoryview(self._plain or self.source())
            try:
                while self._plain:  # one record of at most 16 KiB at a time
                    self._plain = self._plain[self._tls.write(self._plain) :]
            except ssl.SSLWantReadError:
                pass  # the server shakes hands anew (RFC 5246 section 7.4.1.1): the rest waits for that
        return self._outgoing.read()

    def _try_handshake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _decrypt(self, view: memoryview) -> int | None:
        """Decrypt one record, or in bulk all that came; 0 after close_notify, None when more must come. An
        error after some records is raised by the next call: OpenSSL says it only once. Raises NetworkError
        where a certificate is asked for, which HTTP/2 forbids, or too often.
        """
        if self._failure:
            raise self._failure
        count, room, ended = 0, len(view), False
        try:
            while count < room and not ended:
                got: int = self._tls.read(room, view[count:])  # type: ignore[assignment]
                self.base.log.deadline.count()
                count += got
                ended = not got
                if not self.base.log.in_bulk:
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._failure = error
        # HTTP/2 forbids it (RFC 9113 section 9.2.3). Our answer is in memory still, and never leaves.
        if self.tap.wanted - self._wanted > (0 if self.alpn == "h2" else MAX_LATE_REQUESTS):
            raise protocol_error("the server asked for a client certificate too often after the handshake")
        if self._failure and not count:
            raise self._failure
        return count if count or ended else None

    def _pull(self) -> bool:
        """Give OpenSSL one record, or in bulk what one read brings; False at the end of the stream below."""
        if self.base.log.in_bulk:
            self.base.send_until_readable()  # the last byte of an upload ends `in_bulk`
        came = self._read_on()
        self.began = self._inner.began
        while came and (self._rest or self._cut) and not self.base.log.in_bulk:
            came = self._read_on()
        return came

    def _read_on(self) -> bool:
        """Read to the end of a header or a record at the most, or in bulk what is there. False at the end."""
        most = BUFFER if self.base.log.in_bulk else self._rest or 5
        try:
            came = self._inner.read_into(self._buffer[self._cut : most])
        except BlockingIOError:
            if self._rest or self._cut:
                raise protocol_error(UNASKED) from None
            raise
        count, end = self._cut + came, self._rest
        while end + 5 <= count:
            kind, version, length = RECORD_HEADER.unpack_from(self._buffer, end)
            end += 5 + length
            if not (20 <= kind <= 24 and version == 3 and length <= MAX_RECORD):
                self.stray = True
                end = count  # OpenSSL fails on it now; the rest might never come
        whole = min(end, count)
        self._incoming.write(self._buffer[:whole])
        self._rest, self._cut = end - whole, count - whole
        self._buffer[: self._cut] = self._buffer[whole:count]
        return came > 0


# ---------------------------------------------------------------------------------------------------------
# 15. TLS contexts. One shows the client certificate, to targets that may see it, never to a proxy.
def load_store(context: ssl.SSLContext, options: Options) -> None:
    """Trust --cacert, SSL_CERT_FILE or the system; raises UsageError where OpenSSL would trust nobody."""
    named = options.environ.get("SSL_CERT_FILE")
    try:
        if options.ca_bundle:
            context.load_verify_locations(cadata=options.ca_bundle.decode("latin-1"))
        elif named:
            context.load_verify_locations(named, ssl.get_default_verify_paths().capath)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:  # ValueError: a letter that is not ASCII
        source = "--cacert" if options.ca_bundle else f"SSL_CERT_FILE '{named}'"
        raise UsageError(f"{source} holds no legible certificates in PEM: {reason_of(error)}") from None


# Ciphers of keys with DES, RC2 or RC4: in PEM, and their object identifiers in DER (RFC 8018 appendix A, RFC
# 7292 appendix C), of which 2a 86 48 86 f7 0d is 1.2.840.113549.
OLD_CIPHERS = (
    rb"DEK-Info: (?!AES|DES-EDE3|CAMELLIA|ARIA)|\x2b\x0e\x03\x02\x07|"
    rb"\x2a\x86\x48\x86\xf7\x0d(?:\x01\x05[\x01-\x0b]|\x01\x0c\x01[\x01\x02\x05\x06]|\x03[\x02\x04])"
)


def has_old_cipher(pem: bytes) -> bool:
    """Tell whether a key is encrypted as only the legacy provider of OpenSSL 3 can read it."""
    encrypted = b"".join(re.findall(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----([^-]+)", pem)[:1])
    return bool(re.search(OLD_CIPHERS, pem + base64.b64decode(encrypted)))


def load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    """Have a context show a client certificate where it is asked for one; raises UsageError."""
    asked = []

    def password() -> bytes:  # without it OpenSSL would ask on the terminal
        asked.append(True)
        return identity.password

    certificate, key = f"--cert '{identity.certificate}'", f"'{identity.key}'"
    try:
        context.load_cert_chain(identity.certificate, identity.key, password)
    except (OSError, ValueError) as error:  # ValueError: OpenSSL has room for 1,024 bytes of a password
        if not isinstance(error, ssl.SSLError):
            wrong = f"{certificate} with the key in {key}: {reason_of(error)}"
        elif "MISMATCH" in (error.reason or ""):
            wrong = f"{key} is not the key of the first certificate in {certificate}"
        elif asked and ssl.OPENSSL_VERSION_INFO >= (3,) and has_old_cipher(read_file(identity.key)):
            wrong = (
                f"the key in {key} is encrypted in an old way (as DES or RC2), which this OpenSSL does not "
                f"have any more; convert it: openssl pkey -provider legacy -provider default -aes256 "
                f"-in {key} -out NEW"
            )
        elif asked:
            given = "gave a wrong password" if identity.password else "has to give its password"
            wrong = f"the key in {key} is encrypted: --key-password-file PATH {given}"
        else:
            wrong = f"{certificate} must hold a certificate and {key} its private key (--key), both in PEM"
        raise UsageError(wrong) from None


def build_context(options: Options, take_store: TakeStore) -> ssl.SSLContext:
    """Make a client context, perhaps with a store that `take_store` has read ahead. Raises UsageError."""
    if options.insecure:  # any certificate, protocol and cipher that OpenSSL still has
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # first: ssl.py refuses CERT_NONE while it is set
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.options |= 0x4 | 0x40000  # SSL_OP_LEGACY_SERVER_CONNECT, ALLOW_UNSAFE_LEGACY_RENEGOTIATION
        return context
    ahead = take_store()
    context = ahead or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The system's OpenSSL configuration may demand more. A Python with its own list of ciphers hides that.
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    # An intermediate or the server's own certificate in the bundle is enough, as it is for curl.
    context.verify_flags |= 0x80000  # X509_V_FLAG_PARTIAL_CHAIN
    if ssl.HAS_NEVER_CHECK_COMMON_NAME:  # RFC 9525 section 2: names are in subjectAltName alone
        context.hostname_checks_common_name = False
    if not ahead:
        load_store(context, options)
    return context


class TlsContexts:
    """The contexts of a run, by the client certificate that they show. Each is made once, in a thread."""

    def __init__(self, options: Options, take_store: TakeStore = lambda: None) -> None:
        self._options = options
        self._take_store = take_store
        self._makers: dict[Identity | None, Worker] = {}

    def start(self, identity: Identity | None) -> None:
        if identity not in self._makers:
            self._makers[identity] = Worker(partial(self._make, identity))

    def _make(self, identity: Identity | None) -> ssl.SSLContext:
        optional("hashlib")  # for `parse_certificate`: nothing is imported once the clock runs
        context = build_context(self._options, self._take_store)
        if ssl.OPENSSL_VERSION_INFO >= (3, 2):  # `HandshakeTap` reads no CompressedCertificate (RFC 8879)
            context.options |= 3 << 32  # SSL_OP_NO_TX_CERTIFICATE_COMPRESSION, …_RX_…
        if identity:
            load_identity(context, identity)
            context.post_handshake_auth = True
        return context

    def get(self, identity: Identity | None, protocols: Sequence[str]) -> ssl.SSLContext:
        """Return a context that offers these protocols (ALPN); raises UsageError, also when it is late."""
        self.start(identity)
        maker, seconds = self._makers[identity], self._options.max_time
        if not (identity or self._options.environ.get("SSL_CERT_FILE")):
            seconds = max(seconds, START_PATIENCE)
        maker.wait(seconds)
        if not maker.done:
            files = "--cert, --key and SSL_CERT_FILE"
            raise UsageError(f"the certificates could not be read within {seconds:g} s: look at {files}")
        if maker.crash:
            del self._makers[identity]  # a later run may have the room that this one lacks
            if isinstance(maker.crash, ssl.SSLError):  # as without its default provider
                why = (maker.crash.reason or str(maker.crash)).lower().replace("_", " ")
                look = "look at its configuration (OPENSSL_CONF)"
                raise UsageError(f"OpenSSL cannot set up TLS here: {why}; {look}") from None
            raise maker.crash
        context: ssl.SSLContext = maker.result
        context.set_alpn_protocols(list(protocols))  # for this step: TLS objects that exist keep their own
        return context


# ---------------------------------------------------------------------------------------------------------
# 16a. Messages. HTTP/1.1: requests are written by http.client; responses are read here, because its reader
#     takes 103 for the answer, truncated bodies for whole ones, conflicting lengths and "+5" for a length,
#     and stamps nothing before the header section was parsed.
BLANKED = bytes.maketrans(b"\r\0", b"  ")


class Reader:
    """Take lines and bytes from a stream, through one buffer."""

    def __init__(self) -> None:
        self.stream = Stream()
        self.goaway: NetworkError | None = None  # what GOAWAY of HTTP/2 said
        self._buffer = mmap.mmap(-1, BUFFER, mmap.MAP_PRIVATE)  # only what is used takes memory
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

    def line(self, most: int) -> bytes:
        """Return a line without its end; raises NetworkError beyond `most`, EOFError with its beginning."""
        kept = bytearray()
        while self.fill():
            stop = self._buffer.find(b"\n", self._at, self._end) + 1 or self._end
            kept += self._view[self._at : stop]
            self._at = stop
            if len(kept) > most:
                raise protocol_error(f"a line of the response is longer than {most} bytes")
            if kept.endswith(b"\n"):
                return bytes(kept[:-1].removesuffix(b"\r"))
        raise EOFError(bytes(kept))

    def exactly(self, count: int) -> bytes:
        """Return the next bytes; raises EOFError when the stream ends before."""
        kept = bytearray()
        while len(kept) < count:
            if not self.fill():
                raise EOFError
            taken = min(count - len(kept), self.left)
            kept += self._view[self._at : self._at + taken]
            self._at += taken
        return bytes(kept)

    def skip(self, most: int, wanted: int) -> tuple[int, bytes]:
        """Pass over at most so many bytes; return how many, 0 at the end, and the first that are `wanted`."""
        if not self.fill():
            return 0, b""
        begun, taken = self._at, min(most, self.left)
        self._at += taken
        return taken, bytes(self._view[begun : begun + min(taken, wanted)])


def request_head(method: str, target: str, headers: Iterable[Header]) -> bytes:
    """Return the request line and header section as they go out (RFC 9112 sections 3, 5)."""
    sent: list[bytes] = []
    connection = http_client.HTTPConnection("unused")
    connection.send = sent.append  # in place of a socket
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    return b"".join(sent)


def complete_headers(request: Request) -> tuple[Header, ...]:
    """Return the header fields of a request: first the defaults whose names the user did not give."""
    given = field_names(request.headers)
    defaults = {"Host": request.url.authority, "User-Agent": f"httphases/{__version__}", "Accept": "*/*"}
    if request.body is not None:
        defaults["Content-Type"] = request.content_type
        defaults["Content-Length"] = str(len(request.body))
    elif request.method in ("POST", "PUT", "PATCH"):  # servers may wait for a body, or answer 411
        defaults["Content-Length"] = "0"  # RFC 9110 section 8.6
    added = [(name, value.encode("ascii")) for name, value in defaults.items() if name.lower() not in given]
    return (*added, *request.headers)


STATUS_LINE = rb"(?is)(HTTP/(?:1\.[0-9]|[23](?:\.0)?)) +([1-9][0-9]{2})(?: +(.*))?"


def parse_status_line(line: bytes, secure: bool) -> Response:
    """Read 'HTTP/1.1 200 OK' (RFC 9112 section 4), or 'HTTP/2 200' as scripts do; raises NetworkError."""
    found = re.fullmatch(STATUS_LINE, line.rstrip())
    if not found:
        raise not_http(line, secure)
    version = found[1].decode("ascii").upper()
    if version[:-1] != "HTTP/1.":
        version = "HTTP/1.1"
    return Response(int(found[2]), foreign((found[3] or b"").strip()), version, ())


def read_headers(reader: Reader, log: Log, may_end: bool = False) -> tuple[Header, ...]:
    """Read a header or trailer section (RFC 9112 section 5). As curl and browsers do, take any name of
    visible ASCII, and skip a line without one: a program may have said it besides (`PHP Warning:  …`).
    Raises EOFError at the end of the stream; where it `may_end` there, a line that is cut is left out.
    """
    fields: list[tuple[str, list[bytes]]] = []
    size, skipped, ended = 0, b"", False
    for _ in range(MAX_HEADER_LINES + 1):
        try:
            line = reader.line(MAX_HEADER_BYTES)
        except EOFError:
            if not (may_end and fields):
                raise
            line, ended = b"", True
        size += len(line) + 2
        if size > MAX_HEADER_BYTES:
            raise protocol_error(f"the header section is larger than {MAX_HEADER_BYTES >> 20} MiB")
        if not line:
            if skipped and not log.notes:  # once a step
                log.notes += (f"a header line without a usable name was skipped: '{foreign(skipped)}'",)
            if ended:
                log.notes += ("the header ended with the connection, without a blank line",)
            # CR and NUL are blanks (RFC 9110 section 5.5).
            whole = ((name, b" ".join(parts).translate(BLANKED).strip(b" \t")) for name, parts in fields)
            return tuple(field for field in whole if field[0])
        if line[:1] in b" \t" and fields:  # obs-fold (section 5.2)
            fields[-1][1].append(line.strip(b" \t"))
            continue
        field, colon, content = line.partition(b":")
        field = field.rstrip(b" \t")
        if not colon or not re.fullmatch(rb"[\t -~\x80-\xff]*", field):
            raise protocol_error(f"a header line of the response is malformed: '{foreign(line)}'")
        if not re.fullmatch(rb"[!-~]+", field):
            field, skipped = b"", skipped or line
        fields.append((field.decode("ascii"), [content.strip(b" \t")]))
    raise protocol_error(f"the response has more than {MAX_HEADER_LINES} header lines")


def read_head(reader: Reader, log: Log) -> Response:
    """Read the final response's header section; of 1xx responses only the status (RFC 9110 section 15.2).
    Raises EOFError if nothing came.
    """
    for _ in range(MAX_INTERIM + 1):
        # One byte alone: of bytes that are read together the kernel tells only when the last one came.
        if not reader.left and not reader.fill(1):
            raise EOFError
        first_byte, line, secure = reader.stream.began, b"", isinstance(reader.stream, TlsStream)
        try:
            line = reader.line(MAX_HEADER_BYTES)
            response = parse_status_line(line, secure)
            final = response.status >= 200
            if final:  # only now it is known whose first byte that was
                log.first_byte = first_byte
                log.keep_counters("answered")
            headers = read_headers(reader, log, final)
        except EOFError as ended:
            start = line or ended.args[0]
            if not b"HTTP/".startswith(start[:5].upper()):
                raise not_http(start, secure) from None
            message = "the server hung up in the middle of its header"
            raise protocol_error(message, CLOSED_EARLY) from None
        if final:
            return response._replace(headers=headers)
        if response.status == 101:
            raise protocol_error("the server switched protocols (101)", "Ask without Upgrade.")
        log.interim += (response.status,)
    raise protocol_error(TOO_MANY_INTERIM)


def connection_tokens(headers: Iterable[Header]) -> set[str]:
    """Return what Connection lists, in lower case (RFC 9110 section 7.6.1)."""
    listed = b",".join(values_of(headers, "connection")).decode("latin-1").lower()
    return {token.strip() for token in listed.split(",")}


def content_length(headers: Iterable[Header]) -> int | None:
    """Return what Content-Length announces (RFC 9110 section 8.6), None without one; raises NetworkError."""
    values = values_of(headers, "content-length")
    lengths = {parse_digits(part.strip(b" \t")) for value in values for part in value.split(b",")}
    if None in lengths or len(lengths) > 1:
        shown = foreign(b", ".join(values))
        raise protocol_error(f"the response's Content-Length is not one length: '{shown}'")
    return next(iter(lengths), None)


# ---------------------------------------------------------------------------------------------------------
# 16b. Bodies. How long they are (RFC 9112 section 6), and how they are read.
def has_body(method: str, status: int) -> bool:
    """Tell whether a response may have a body at all (RFC 9112 section 6.3)."""
    return method != "HEAD" and status not in (204, 304)


MAX_PAGE = 4096  # bytes of an error page that are kept
PAGE_TYPES = ("/html", "/plain", "/json", "/xml", "+json", "+xml")  # how a type of text ends


def wants_page(log: Log) -> bool:
    """Tell whether what comes next is the beginning of an error page, or of what --expect refuses."""
    response = log.response
    if log.received >= MAX_PAGE or not response or any(response.status in each for each in log.expected):
        return False
    encoded = (response.get("content-encoding") or "identity").lower() != "identity"
    # No pattern: to compile one takes 0.1 ms or more, and more of the body may be to come.
    media = (response.get("content-type") or "").partition(";")[0]
    return not encoded and media.strip().lower().endswith(PAGE_TYPES)


def pass_over(reader: Reader, most: int, log: Log) -> int:
    """Pass over what comes next of a body, at most so many bytes; return how many, 0 at the end."""
    log.deadline.count()
    count, text = reader.skip(most, MAX_PAGE - log.received if wants_page(log) else 0)
    log.page += text
    log.received += count
    return count


def count_body(reader: Reader, length: int, log: Log) -> None:
    """Pass over so many bytes of a body; raises EOFError when the stream ends before."""
    while length:
        count = pass_over(reader, length, log)
        if not count:
            raise EOFError
        length -= count


def read_body_in_chunks(reader: Reader, log: Log) -> None:
    """Pass over a chunked body and its trailers (RFC 9112 section 7.1)."""
    while True:
        size = reader.line(65536).partition(b";")[0].strip(b" \t")  # extensions may follow the size
        length = parse_digits(size.lstrip(b"0") or size[:1], 16)  # of zeros alone one is left
        if length is None:
            raise protocol_error(f"a chunk size is no hexadecimal number: '{foreign(size)}'")
        if not length:
            read_headers(reader, log)
            return
        count_body(reader, length, log)
        ending = reader.exactly(1)  # a whole line may never come
        if ending == b"\r":
            ending = reader.exactly(1)
        if ending != b"\n":
            raise protocol_error("a chunk is longer than its size says")


def read_response_body(reader: Reader, method: str, response: Response, log: Log) -> None:
    """Pass over the body (RFC 9112 section 6.3); raises NetworkError when it is not whole."""
    codings = b",".join(values_of(response.headers, "transfer-encoding")).lower()
    length = content_length(response.headers)
    if not has_body(method, response.status):
        return
    last = codings.rpartition(b",")[2].strip()
    try:
        if last == b"chunked":
            read_body_in_chunks(reader, log)
        elif length is not None and last in (b"", b"identity"):
            log.length = length
            count_body(reader, length, log)
        else:
            while pass_over(reader, BUFFER, log):
                pass
            if reader.stream.truncated:  # over TLS only close_notify proves that it was all (section 9.8)
                ended = f"the connection ended after {log.received} bytes without close_notify"
                raise protocol_error(f"{ended}: the body may be cut", CLOSED_EARLY)
    except EOFError:
        message = f"the body ended after {log.received} of {length} bytes"
        if last == b"chunked":
            message = f"the chunked body ended after {log.received} bytes, without its last chunk"
        raise protocol_error(message, CLOSED_EARLY) from None


def proxy_authorization(request: Request, proxy: Proxy) -> list[Header]:
    """Return the field for the proxy: the user's own, else Basic from the proxy URL (RFC 7617)."""
    given = [item for item in request.headers if item[0].lower() == "proxy-authorization"]
    if given or proxy.username is None:
        return given
    token = base64.b64encode(proxy.username + b":" + (proxy.password or b""))
    return [("Proxy-Authorization", b"Basic " + token)]


def headers_to_send(request: Request, route: Route) -> tuple[Header, ...]:
    """Return the fields for the target, or for a proxy that forwards the request, with its credential."""
    headers, forwarder = complete_headers(request), route.forwarder(request.url)
    authorization = proxy_authorization(request, forwarder) if forwarder else ()
    return (*without_fields(headers, ["proxy-authorization"]), *authorization)


# ---------------------------------------------------------------------------------------------------------
# 16c. Claims. What a response says of its server's times (Server-Timing, W3C).
# A string (RFC 9110 section 5.6.4) may hold commas and semicolons. One that is not closed ends with the text.
STRING = r'"((?:[^"\\]+|\\.)*)'
METRIC = rf'(?s)[\s,]*([^",;]*)((?:[^",]+|{STRING}"?)*)'  # its name, and its parameters
PARAMETER = rf'(?s);([^=;"]*)(?:=[ \t]*(?:{STRING}|([^;]*)))?'


def metrics_of(step: Step) -> Iterator[Metric]:
    """Give the first metrics of all lines of a step's Server-Timing: name;dur=ms;desc=text."""
    lines = values_of(step.response.headers, "server-timing") if step.response else ()
    found = (metric for line in lines for metric in re.finditer(METRIC, decode(line)) if metric[1].strip())
    for metric in islice(found, MAX_METRICS):
        said: dict[str, str] = {}
        for parameter in islice(re.finditer(PARAMETER, metric[2]), MAX_METRICS):
            key, string, word = parameter.groups("")
            said.setdefault(key.strip().lower(), re.sub(r"(?s)\\(.)", r"\1", string) or word.strip())
        duration: float | None = None
        try:
            duration = parse_number(said.get("dur", ""), zero=True)
        except ValueError:
            pass  # it is no finite number from 0
        yield Metric(metric[1].strip(), duration, said.get("desc") or None)


# ---------------------------------------------------------------------------------------------------------
# 17a. Exchanges. One request and its response over an open stream: what all have in common, and HTTP/1.1.
class Setup(NamedTuple):
    """What every hop and exchange is made from."""

    request: Request
    route: Route
    options: Options
    contexts: TlsContexts
    lookups: Lookups
    protocols: tuple[str, ...]  # offered to the target (ALPN)
    log: Log


class Stage:
    """A part of the way, a hop or an exchange. It notes what happens in its log. Two methods put a failure in
    words: `explain` an error that was raised here, "no connection to p port 3128: connection refused"; and
    `blame` whose fault it is, "the proxy p cannot be used: " before that.
    """

    def __init__(self, setup: Setup) -> None:
        self.log, self.lookups = setup.log, setup.lookups
        self.request, self.options = setup.request, setup.options
        self.proxy = setup.route.proxy  # the one that may be at fault here; None: the target alone may
        self.ended = "the connection was closed" if self.proxy else "the server closed the connection"

    def awaits(self) -> tuple[str, str]:
        """Return what it waits for, a key of STUCK, and that in words where these are needed."""
        return "proxy", ""

    def to_send(self) -> bytes | memoryview:
        """Return what this stage has to send next, empty for nothing. The stream below it asks."""
        return b""


AT_ONCE_NS = 500_000_000  # ns within which a server hangs up on a protocol that it does not speak


class Exchange(Stage):
    """One request and its response, made before the clock starts; `reader` is of a kept connection."""

    request_bytes: int  # body included; over HTTP/2 before its fields are packed

    def __init__(self, setup: Setup, reader: Reader | None = None) -> None:
        super().__init__(setup)
        self.headers = headers_to_send(setup.request, setup.route)  # those that go out
        self.proxy = setup.route.forwarder(setup.request.url)
        self.reader = reader or Reader()

    def reuse_obstacle(self) -> str | None:
        """Say why the connection takes no other request after this one, None when it does."""
        raise NotImplementedError

    def check_idle(self, idle: int) -> str | None:
        """Read what came in `idle` ns without a request, without waiting; say why no other may follow."""
        self.reader.stream.source = silence  # not even what the next request has queued already is sent
        try:
            for _ in range(MAX_IDLE):
                try:
                    if not self.reader.fill():
                        raise EOFError
                except BlockingIOError:  # nothing more came
                    return self.reuse_obstacle()
                self._read_idle()
            return UNASKED
        except NetworkError as error:
            return error.message
        except BlockingIOError:  # not all of it came
            return UNASKED
        except (EOFError, OSError):
            if self.reader.goaway:
                return self.reader.goaway.message
            tenths = math.ceil(idle / 100_000_000)  # rounded up: true, and the same words in similar runs
            return f"{self.ended}, or it broke, within {tenths / 10:.1f} s without a request"

    def _read_idle(self) -> None:
        """Read what came on the idle connection; raises NetworkError where it must not come then."""
        raise protocol_error(f"{UNASKED}: '{foreign(self.reader.line(MAX_HEADER_BYTES))}'")

    def run(self, stream: Stream) -> None:
        """Read the response while the request is sent; raises NetworkError, OSError, EOFError."""
        raise NotImplementedError

    def awaits(self) -> tuple[str, str]:
        if self.log.phase != "xfer":
            interim = ", ".join(map(str, self.log.interim[-3:]))
            words = f"only interim responses ({interim})" if interim else "no response"
            return "upload" if self.log.sent is None else "answer", words
        if self.log.response is None:
            return "body", "not even its header is whole"
        of_all = "" if self.log.length is None else f" of {self.log.length}"
        return "body", f"{self.log.received}{of_all} bytes of the body came"

    def blame(self, found: NetworkError) -> NetworkError:
        if self.proxy:  # it forwards: which of the two is at fault cannot be told
            found.hint = f"This was the proxy {self.proxy.shown}, or the server behind it. {found.hint}"
        return found

    def _met(self) -> str:
        """Say what else plain HTTP may have met: what speaks another protocol hangs up at once."""
        waited = time.perf_counter_ns() - (self.log.sent or 0)
        if self.request.url.secure or self.log.kept or waited >= AT_ONCE_NS:
            return ""
        return "it is no such proxy" if self.proxy else "it speaks TLS there: ask with https://"

    def explain(self, error: Exception) -> NetworkError:
        """Say where the connection broke: while sending, before the answer, or within it."""
        met = self._met()
        if isinstance(error, EOFError):
            hint = f"{CLOSED_EARLY} Or {met}." if met else CLOSED_EARLY
            return protocol_error(f"{self.ended} without an answer", hint)
        response, words = self.log.response, reason_of(error).lower()
        if response:
            hint = CLOSED_EARLY
            if response.status >= 300 or self.log.sent is None:  # RFC 9112 section 9.5
                hint = "The answer says why. A server that reads no more of a request resets it."
            answer = f"the answer was {status_words(response)}, then {words}"
            return NetworkError("network", f"{answer} after {self.log.received} bytes of the body", hint)
        if self.log.phase == "xfer":  # from the first byte on
            return NetworkError("network", f"{words} within the header", CLOSED_EARLY)
        where = "while the request was being sent" if self.log.sent is None else "before any answer came"
        hint = "The server may have crashed or been restarted, or a device in between cut the connection"
        hint += f", or {met}." if met else ": look at its log."
        if self.log.sent is None and self.request.body is not None:
            hint = "The server broke off while taking the body: look at its limit for bodies, and its log."
        return NetworkError("network", f"{words} {where}", hint)


IDLE_RACE_NS = 300_000_000  # ns within which a server that closes an idle connection meets a request on it
KEPT_HINT = (
    "That connection was kept from an earlier run; the server may have closed it in that moment. Nothing is "
    "sent twice: the next run connects anew. Compare the server's idle time-out with --interval."
)
FORGOTTEN_HINT = (  # where a request on a kept connection was sent again and again
    "A NAT, firewall or balancer on the way has forgotten the connection, which carried no request for "
    "{:.1f} s; or the server is gone. A shorter --interval shows how long it is remembered: close "
    "connections before that, or keep them alive."
)


class Http1Exchange(Exchange):
    """HTTP/1.1 (RFC 9112)."""

    def __init__(self, setup: Setup, reader: Reader | None = None) -> None:
        super().__init__(setup, reader)
        target, body = self.request.url.target, memoryview(self.request.data)
        if self.proxy:  # absolute form (section 3.2.2)
            target = f"http://{self.request.url.authority}{target}"
        head = request_head(self.request.method, target, self.headers)
        self.request_bytes = len(head) + len(body)
        # The pieces are views: the body is in memory once.
        pieces = [body[at : at + BUFFER] for at in range(0, len(body), BUFFER)]
        self._pieces: Iterator[bytes | memoryview] = iter([head, *pieces])

    def reuse_obstacle(self) -> str | None:
        """Apply the rules of RFC 9112 section 9.3."""
        response = self.log.response
        if response is None or self.log.sent is None:
            return "the request before was not finished"
        said = connection_tokens(response.headers)
        if "close" in said:
            return "the server said Connection: close"
        if "close" in connection_tokens(self.headers):
            return "the request said Connection: close"
        if response.http_version != "HTTP/1.1" and "keep-alive" not in said:
            return f"the server speaks {response.http_version}, which keeps no connection"
        coded = values_of(response.headers, "transfer-encoding")
        if not coded and self.log.length is None and has_body(self.request.method, response.status):
            return "the response had no length: the end of the connection was its end"
        return None

    def to_send(self) -> bytes | memoryview:
        piece = next(self._pieces, b"")
        if not piece and self.log.sent is None:
            self.log.sent = time.perf_counter_ns()
        return piece

    def run(self, stream: Stream) -> None:
        self.reader.stream = stream
        response = read_head(self.reader, self.log)
        self.log.response = response
        self.log.in_bulk = True  # in the body only the last instant counts, and it stays exact
        if response.status >= 300:
            stream.source = silence  # the rest of the request is not wanted (RFC 9112 section 9.5)
        read_response_body(self.reader, self.request.method, response, self.log)
        self.log.done = stream.base.arrived
        if self.reader.left:
            cause = ": its Content-Length is too small" if self.log.length == self.log.received else ""
            self.log.notes += (f"{self.reader.left} B or more came behind the end of the answer{cause}",)


# ---------------------------------------------------------------------------------------------------------
# 17b. HTTP/2, connections (RFC 9113). Http2Connection says which frames go to h2, and which are read here.
DATA, HEADERS, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0x0, 0x1, 0x7, 0x8, 0x9
END_STREAM, END_HEADERS, PADDED = 0x1, 0x4, 0x8  # flags of frames
MAX_FRAME = 16384  # bytes of a payload, unless SETTINGS allow more (section 4.2)
INITIAL_WINDOW = 65535  # bytes (section 6.9.2)
MAX_BLOCK = 64 * 1024  # bytes of a packed header section: hpack before 4.2 takes a minute for a megabyte
# | length, 3 bytes | kind, 1 | flags, 1 | stream, 4 | (section 4.1): length and kind are one number here.
FRAME_HEADER = struct.Struct(">IBI")


def http2_error(code: int) -> str:
    """Name an error by its number (RFC 9113 section 7)."""
    from h2.errors import ErrorCodes

    return ErrorCodes(code).name if code in set(ErrorCodes) else f"error {code}"


def library_words(error: Exception) -> str:
    """Return what h2 or hpack say of an error, without bytes: they may be a megabyte, or half a secret."""
    text = re.sub("b'(:[a-z]+)'", r"\1", str(error)[:MAX_FOREIGN])  # but for the name of a pseudo-header
    words = re.split("[: ]*\\b(?:bytearray\\()?b['\"]", text)[0]
    if not words or "header block" in words:  # with addresses of memory in its details
        return "a header section cannot be decompressed" if words else type(error).__name__
    return words


def http2_headers(request: Request, headers: Sequence[Header]) -> list[tuple[bytes, bytes]]:
    """Return a request's fields: pseudo-headers first, names in lower case (RFC 9113 section 8)."""
    url, hosts = request.url, values_of(headers, "host")  # the user's Host goes as :authority (section 8.3.1)
    fields = [
        (":method", request.method.encode("ascii")),
        (":scheme", url.scheme.encode("ascii")),
        (":authority", hosts[0] if hosts else url.authority.encode("ascii")),
        (":path", url.target.encode("ascii")),
        *without_fields(headers, ["host"]),
    ]
    return [(name.lower().encode("ascii"), value) for name, value in fields]


def parse_http2_status(fields: Iterable[tuple[bytes, bytes]]) -> int:
    """Read :status; raises NetworkError without a valid one, and for 101, which HTTP/2 does not have."""
    status = b"".join(value for name, value in fields if name == b":status")
    if not re.fullmatch(rb"[1-9][0-9]{2}", status) or status == b"101":
        raise protocol_error("the HTTP/2 response has no valid :status")
    return int(status)


def read_frame_header(data: bytes) -> tuple[int, int, int, int]:
    """Return the length, kind, flags and stream of a frame from its first nine bytes."""
    first, flags, stream = FRAME_HEADER.unpack_from(data)
    return first >> 8, first & 0xFF, flags, stream & 0x7FFFFFFF  # the first bit is reserved


def plain_dataclass(made: type) -> type:
    """Stand in for what dataclasses do: h2 needs only a constructor that takes fields by name."""
    made.__init__ = lambda self, **fields: vars(self).update(fields)  # type: ignore[misc, attr-defined]
    return made


def import_h2() -> bool:
    """Import all of h2 that is needed; False where it is missing or unfit. Stand-ins for logging and
    dataclasses save 10 ms of a start, 4 beside rich; an h2 that fails with them gets the real ones.
    """
    if "h2.connection" in sys.modules:
        return True
    logging = SimpleNamespace(getLogger=lambda _: SimpleNamespace(debug=lambda *_: None))
    dataclasses = SimpleNamespace(dataclass=lambda **_: plain_dataclass)
    stand_ins = {"logging": logging, "dataclasses": dataclasses}
    if optional("h2.connection", stand_ins):
        return True
    for name in [*sys.modules]:  # a copy: the thread that makes a TLS context imports, too
        if name.partition(".")[0] in ("h2", "hpack", "hyperframe"):
            sys.modules.pop(name)
    return optional("h2.connection") is not None


class Http2Connection(Reader):
    """An HTTP/2 connection: what holds from one request to the next. All that is sent is h2's, but for the
    credit of a body. Of what comes, h2 unpacks and checks fields, answers SETTINGS and PING, keeps the
    windows and refuses what breaks the rules. Two kinds of frames are read here:

        DATA      comes by the thousand, and h2 takes several times as long for it. It goes to h2 where it
                  breaks the rules: on another stream, before or within a header section
        GOAWAY    h2 refuses whatever follows it, though it may be the rest of the answer
    """

    def __init__(self) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection
        from h2.settings import SettingCodes, Settings

        super().__init__()
        # The user's fields go out as they were given, and what comes back stays as it came, in bytes.
        self.h2 = H2Connection(H2Configuration(header_encoding=False, validate_outbound_headers=False))
        room = MAX_HEADER_BYTES + 32 * MAX_HEADER_LINES  # HPACK adds 32 to the size of each field
        settings = {
            SettingCodes.ENABLE_PUSH: 0,  # one request, one response
            SettingCodes.INITIAL_WINDOW_SIZE: HTTP2_WINDOW,
            SettingCodes.MAX_FRAME_SIZE: MAX_FRAME,
            SettingCodes.MAX_HEADER_LIST_SIZE: room,
        }
        self.h2.local_settings = Settings(initial_values=settings)
        self.h2.decoder.max_header_list_size = room
        self._unpack = self.h2.decoder.decode
        self.h2.decoder.decode = self._unpack_fields  # type: ignore[method-assign, assignment]
        self.h2.initiate_connection()
        # SETTINGS widen the windows of streams alone (RFC 9113 section 6.9.2).
        self.h2.increment_flow_control_window(HTTP2_WINDOW - INITIAL_WINDOW)
        self.block = 0  # bytes of HEADERS and CONTINUATION, until the one comes that ends them
        self._consumed = 0  # bytes of DATA for which no credit was returned
        self._unsent = bytearray()  # frames

    def _unpack_fields(self, block: bytes, raw: bool) -> list[Any]:
        """Unpack a header section without the blanks around values that large sites send, and h2 refuses."""
        return [type(field)(field[0], field[1].strip(b" \t")) for field in self._unpack(block, raw)]

    def close_stream(self, stream: int, whole: bool) -> None:
        """Have h2 forget a stream whose DATA it did not see; tell the server where a body was not `whole`."""
        self._unsent += self.h2.data_to_send()
        if not self.h2.streams[stream].closed:  # as it is after an answer without DATA
            self.h2.reset_stream(stream)
            reset = self.h2.data_to_send()
            self._unsent += b"" if whole else reset

    def outgoing(self) -> bytes:
        """Return all frames that are still to be sent."""
        frames = bytes(self._unsent + self.h2.data_to_send())
        self._unsent.clear()
        return frames

    def take(self, frame: bytes) -> list[Any]:
        """Have h2 take a frame; return its events. Raises NetworkError if it refuses it."""
        try:
            events = self.h2.receive_data(frame)
        except MemoryError:
            raise
        except Exception as error:  # h2 and hpack fail in many ways on hostile input
            message = f"the server broke the rules of HTTP/2: {foreign(library_words(error))}"
            raise protocol_error(message, HTTP2_HINT) from None
        self._unsent += self.h2.data_to_send()
        if len(self._unsent) > MAX_UNSENT:
            raise protocol_error("the server does not read the answers to its HTTP/2 frames", HTTP2_HINT)
        return events

    def return_credit(self, stream: int, size: int) -> None:
        """Let the other side send as much again as it sent (RFC 9113 section 6.9)."""
        self._consumed += size
        # Long before the window is used up, so that the sender never waits; but rarely.
        if self._consumed >= HTTP2_WINDOW // 4:
            for number in (0, stream):
                self._unsent += FRAME_HEADER.pack(4 << 8 | WINDOW_UPDATE, 0, number)
                self._unsent += struct.pack(">I", self._consumed)
            self._consumed = 0

    def skip_data(self, stream: int) -> int:
        """Pass over DATA frames that came whole and have equal headers; return how many bytes they held."""
        # A fast server sends frames of one size: this loop is for those.
        at, count = self._at, 0
        if self.left < 9:
            return 0
        header = bytes(self._view[at : at + 9])
        length, *what = read_frame_header(header)
        if what != [DATA, 0, stream] or not 0 < length <= MAX_FRAME:
            return 0
        while at + 9 + length <= self._end and self._buffer[at : at + 9] == header:
            at += 9 + length
            count += 1
        self._at = at
        return count * length


# ---------------------------------------------------------------------------------------------------------
# 17c. HTTP/2, one request and its response.
class Http2Exchange(Exchange):
    """HTTP/2 (RFC 9113): one request on a stream of its own."""

    reader: Http2Connection

    def __init__(self, setup: Setup, reader: Reader | None = None) -> None:
        super().__init__(setup, reader or Http2Connection())
        # Without the fields that are for one HTTP/1.1 connection alone (section 8.2.2).
        left_out = CONNECTION_HEADERS | connection_tokens(self.headers) - {"host"}
        self.headers = without_fields(self.headers, left_out)
        self._body = memoryview(self.request.data)
        fields = http2_headers(self.request, self.headers)
        self.request_bytes = sum(len(name) + len(value) for name, value in fields) + len(self._body)
        self._stream: int = self.reader.h2.get_next_available_stream_id()
        self.reader.h2.send_headers(self._stream, fields, end_stream=not self._body)
        self._headers_began = 0
        self._ended = self._given_up = False

    def reuse_obstacle(self) -> str | None:
        if self.reader.goaway:
            return self.reader.goaway.message
        if not self.reader.h2.remote_settings.max_concurrent_streams:  # RFC 9113 section 5.1.2
            return "the server allows no further HTTP/2 stream"
        return None if self._ended else "the request before was not finished"

    def _read_idle(self) -> None:
        self._read_frame()

    def run(self, stream: Stream) -> None:
        """Read frames to the end of our stream, or of the body: some servers end the stream late."""
        self.reader.stream = stream
        self.log.in_bulk = bool(self._body)  # what comes during an upload is credit, nearly always
        try:
            while not self._ended:
                self._read_frame()
                asked = self.log.sent is not None or self._given_up
                missing = math.inf if self.log.length is None else self.log.length - self.log.received
                if missing < 0 or (missing == 0 and asked and not self.reader.left):
                    self._ended = True
        except (EOFError, OSError) as stopped:
            if self.reader.goaway:
                raise self.reader.goaway from None
            if not (self.log.response and isinstance(stopped, EOFError)):
                raise
            ended = f"the connection ended after {self.log.received} bytes, before the end of the response"
            raise protocol_error(ended, CLOSED_EARLY) from None
        self._check_length()
        self.log.done = stream.base.arrived
        self.reader.close_stream(self._stream, not (self._body or self._given_up))

    def _check_length(self) -> None:
        """Raise NetworkError unless there is a response, and its body is as long as it is to be."""
        response, received, length = self.log.response, self.log.received, self.log.length
        if response is None:
            raise protocol_error("the HTTP/2 stream ended without a response")
        if length not in (None, received):
            said = "its content-length says" if length else "this method, status or content-length allows"
            raise protocol_error(f"the body has {received} bytes, {said} {length}")

    def to_send(self) -> bytes:
        """Return all frames that are to be sent, with as much of the body as the windows allow."""
        if self._body:
            self._send_body()
        frames = self.reader.outgoing()
        if frames or self._body:
            return frames
        if self.log.sent is None and not self._given_up:
            self.log.sent = time.perf_counter_ns()
            # What comes from here on is the answer: its first byte needs its own time of arrival.
            self.log.in_bulk = self.log.response is not None
        return b""

    def _send_body(self) -> None:
        """Give h2 up to UPLOAD_PIECE bytes of the body, in frames no larger than the other side takes."""
        h2 = self.reader.h2
        left = min(len(self._body), UPLOAD_PIECE, h2.local_flow_control_window(self._stream))
        if self.log.response is None and len(self.log.held) % 2 != (left <= 0):
            self.log.held.append(time.perf_counter_ns())
        while left > 0:
            size = min(left, h2.max_outbound_frame_size)
            chunk, self._body = self._body[:size], self._body[size:]
            h2.send_data(self._stream, chunk, end_stream=not self._body)
            left -= size

    def _read_frame(self) -> None:
        """Read one frame (RFC 9113 section 4.1), and take it or give it to h2."""
        self.log.deadline.count()
        header = self.reader.exactly(9)
        length, kind, flags, stream = read_frame_header(header)
        if header[:5] == b"HTTP/":
            raise protocol_error("the server agreed on HTTP/2 but answers in HTTP/1", "Ask with --http1.1.")
        if length > MAX_FRAME:
            raise protocol_error(f"an HTTP/2 frame of {length} bytes came, {MAX_FRAME} are allowed")
        if self._ended and stream > self._stream:  # idle, and nothing was asked on that stream yet
            raise protocol_error(UNASKED)
        # DATA before HEADERS, or between HEADERS and CONTINUATION, goes to h2, which refuses it.
        if kind == DATA and stream == self._stream and self.log.response and not self.reader.block:
            self._count_data(length, flags)
            return
        if kind == HEADERS and stream == self._stream:
            self._headers_began = self.reader.stream.began  # that is the first byte, unless this is a 1xx
        payload = self.reader.exactly(length)
        if kind == GOAWAY and stream == 0 and length >= 8 and not self.reader.block:
            self._go_away(payload)
            return
        if kind in (HEADERS, CONTINUATION):
            self.reader.block += 9 + length
            if self.reader.block > MAX_BLOCK:
                raise protocol_error(f"a header section has more than {MAX_BLOCK >> 10} KiB in HTTP/2")
        for event in self.reader.take(header + payload):
            self._follow(event)
        if flags & END_HEADERS and kind in (HEADERS, CONTINUATION):
            self.reader.block = 0

    def _follow(self, event: Any) -> None:
        """Do what an event of h2 calls for."""
        what = type(event).__name__
        if what == "InformationalResponseReceived":
            if len(self.log.interim) == MAX_INTERIM:
                raise protocol_error(TOO_MANY_INTERIM)
            self.log.interim += (parse_http2_status(event.headers),)
        elif what == "ResponseReceived":
            self._answer(event.headers)
        elif what == "StreamEnded":
            self._ended = True
        elif what == "StreamReset" and event.stream_id == self._stream:
            code = http2_error(event.error_code)
            hint = CUT_HINT if code == "NO_ERROR" else RESET_HINTS.get(code, CODE_HINT)
            raise protocol_error(f"the server reset the HTTP/2 stream ({code})", hint)

    def _count_data(self, length: int, flags: int) -> None:
        """Pass over a DATA frame (RFC 9113 section 6.1), and over those after it that came whole."""
        content, padding, more = length, 0, 0
        if flags & PADDED:
            padding = self.reader.exactly(1)[0] if length else 0
            if padding >= length:
                raise protocol_error("an HTTP/2 DATA frame has more padding than content")
            content -= 1 + padding
        count_body(self.reader, content, self.log)
        self.reader.exactly(padding)  # counts as flow, not as body
        self._ended = bool(flags & END_STREAM)
        if not self._ended:
            if not wants_page(self.log):
                more = self.reader.skip_data(self._stream)
            self.log.received += more
        self.reader.return_credit(self._stream, length + more)

    def _go_away(self, payload: bytes) -> None:
        """Fail where the server will not answer our stream (RFC 9113 section 6.8); else keep what it says."""
        last, number = struct.unpack_from(">II", payload)
        code = http2_error(number)
        words = f": {foreign(payload[8:])}" if payload[8:].strip() else ""
        message = f"the server closed the HTTP/2 connection ({code}{words})"
        self.reader.goaway = protocol_error(message, RESET_HINTS.get(code, CODE_HINT))
        if last & 0x7FFFFFFF < self._stream:
            raise self.reader.goaway

    def _answer(self, fields: Sequence[tuple[bytes, bytes]]) -> None:
        status = parse_http2_status(fields)
        self.log.first_byte = self._headers_began
        self.log.keep_counters("answered")
        headers = tuple((name.decode("latin-1"), bytes(value)) for name, value in fields if name[:1] != b":")
        if len(headers) > MAX_HEADER_LINES:
            raise protocol_error(f"the response has more than {MAX_HEADER_LINES} header lines")
        self.log.response = Response(status, "", "HTTP/2", headers)
        self.log.length = content_length(headers) if has_body(self.request.method, status) else 0
        self.log.in_bulk = True
        if status >= 300 and self._body:  # the rest of the request is not wanted
            self._body, self._given_up = self._body[:0], True


# ---------------------------------------------------------------------------------------------------------
# 18a. Hops. The stretches of the way to the server, each on the stream that the one below it opened.
class Hop(Stage):
    """One stretch of the way, made before the clock starts. `open` opens it. Then the stage above it sends
    its first flight, and only then does `note_opened` note what happened, which would delay that flight.
    """

    phase = "connect"
    place: tuple[str, int]  # host and port of its other end
    asks_resolver = False  # it asks a resolver
    opened_at = 0  # when the answer came that opened it (perf_counter_ns)

    def prepare(self) -> None:
        """Make the sockets, just before the clock starts: all else that may fail is made by then."""

    def look_up(self) -> None:
        """Find the addresses that are needed, all of them before the first SYN; raises NetworkError."""

    def open(self, below: Stream) -> Stream:
        """Open this hop on the stream below, and return the one that leads on; raises as `Exchange.run`."""
        raise NotImplementedError

    def note_opened(self, departed: int) -> int:
        """Note what happened, once the flight above has `departed`; return when this hop was answered."""
        return self.opened_at

    def blame(self, found: NetworkError) -> NetworkError:
        if self.proxy is None or found.kind == "proxy":
            return found
        hint = PROXY_ADDRESS_HINT if found.kind == "protocol" else found.hint
        return NetworkError("proxy", f"the proxy {self.proxy.shown} cannot be used: {found.message}", hint)

    def explain(self, error: Exception) -> NetworkError:
        message = f"{reason_of(error).lower()} during the negotiation with the proxy"
        return NetworkError("network", message, PROXY_ADDRESS_HINT)


SO_BINDTODEVICE = 25  # Linux, asm-generic/socket.h


def make_socket(family: int) -> socket.socket:
    """Return a socket that does not block; raises OSError. All sockets but those of PySocks are made here."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


def set_option(made: socket.socket, level: int, option: int, value: int) -> None:
    """Set an option of a socket; where an emulation or a sandbox lacks it, the figures are coarser."""
    try:
        made.setsockopt(level, option, value)
    except OSError:
        pass


def open_socket(family: int, interface: str | None) -> socket.socket:
    """Return a TCP socket that does not block, and whose bytes are dated; raises OSError."""
    made = make_socket(family)
    # Nagle would hold the request back behind the client's Finished for a round trip. Device "no delay of
    # small segments": without it, wait is 11.2 ms off instead of 0.04 (https).
    set_option(made, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":
        set_option(made, socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        set_option(made, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        set_option(made, socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)
        set_option(made, socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_S)
        set_option(made, socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 100)
    try:
        if interface and is_ip(interface):
            if not is_ip(interface, family):  # bind() would say so by a number of the resolver's
                raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
            made.bind((interface, 0))
        elif interface:
            made.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, os.fsencode(interface))
    except OSError:
        made.close()
        raise
    return made


def syn_ack_at(info: bytes, begun: int, noticed: int) -> int:
    """Return when the SYN-ACK came: a round trip after connect(). Without a CPU it was `noticed` later."""
    # Device "the kernel's sample of the round trip": without it, connect is 0.344 ms off instead of 0.027
    # while the CPUs are busy. After a lost SYN it is not used: it began, if there is one, with a later SYN.
    counters = parse_tcp_info(info)
    rtt = counters.rtt_us if counters and not counters.retransmits else None
    if rtt is None or rtt * 1000 > noticed - begun:
        return noticed
    return begun + rtt * 1000


class Tcp(Hop):
    """The connection to the first machine on the way, the target or a proxy: a race of its addresses (RFC
    8305), the next one after 250 ms, or at once when one has failed.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.place = setup.route.first_hop(self.request.url)
        self.asks_resolver = known_address(*self.place, self.options) is None
        self._stream = SocketStream(self.log)
        self._spare: dict[int, socket.socket] = {}  # made before the clock, by family
        self._poller = select.poll()
        self._under_way: dict[int, tuple[Dial, socket.socket]] = {}  # attempts by descriptor
        self._next_start = 0
        self._failure: OSError | None = None  # the first
        self._winner: Dial  # the attempt that connected first
        self._noticed = 0  # when that was seen

    def prepare(self) -> None:
        """Make a first socket of each family that there is here; raises OSError where a limit allows none."""
        wanted = self.options.family
        for family in FAMILY_NAMES if wanted == socket.AF_UNSPEC else (wanted,):
            try:
                # Device "sockets are made before the clock": without it, dns is 2.44 ms off instead of 0.67.
                self._spare[family] = open_socket(family, self.options.interface)
            except OSError as error:
                if is_refused(error) and not self._spare:
                    raise
        self.log.sockets += self._spare.values()

    def look_up(self) -> None:
        self.log.peers = resolve(*self.place, self.options, self.lookups, self.log)

    def open(self, below: Stream) -> Stream:
        """Run the race; raises the first OSError where no attempt connected."""
        waiting = list(self.log.peers)
        while waiting or self._under_way:
            now = time.perf_counter_ns()
            if waiting and (not self._under_way or now >= self._next_start):
                self._start(waiting.pop(0))
                continue
            pause = max(0, self._next_start - now) / 1e6 if waiting else math.inf
            for descriptor, events in self.log.deadline.poll(self._poller, pause):
                self._noticed = time.perf_counter_ns()
                dial, connection = self._under_way.pop(descriptor)
                # A failure brings POLLERR or POLLHUP too; asking the socket would cost the winner time.
                code = 0
                if events != select.POLLOUT:
                    code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not code:
                    self._winner, self._stream.socket = dial, connection
                    return self._stream
                self._poller.unregister(connection)
                self._fail(dial, code)
        assert self._failure
        raise self._failure

    def _start(self, peer: Peer) -> None:
        """Send a SYN and go on; the first one ends the lookups. One that fails at once is noted at once."""
        connection, code = self._spare.pop(peer.family, None), 0
        try:
            if connection is None:
                connection = open_socket(peer.family, self.options.interface)
                self.log.sockets.append(connection)
        except OSError as error:
            code = error.errno or 0
        begun = time.perf_counter_ns()
        if connection:  # before anything is noted: that would count as a part of the round trip
            code = connection.connect_ex(peer.address)
        dial = Dial(begun, peer)
        self.log.dials.append(dial)
        self._next_start = begun + round(CONNECT_STAGGER * 1e9)
        if connection and code in (0, errno.EINPROGRESS):
            self._under_way[connection.fileno()] = dial, connection
            self._poller.register(connection, select.POLLOUT)
        else:
            self._fail(dial, code)

    def _fail(self, dial: Dial, code: int) -> None:
        self._failure = self._failure or OSError(code, os.strerror(code))
        self._next_start = 0
        dial.ended, dial.error = time.perf_counter_ns(), os.strerror(code).lower()

    def note_opened(self, departed: int) -> int:
        """Note the outcome of the race, and end it; return when the SYN-ACK came."""
        connection = self._stream.socket
        info = read_tcp_info(connection)
        answered = self._winner.ended = syn_ack_at(info, self._winner.begun, self._noticed)
        self.log.connected = Connected(answered, connection, self._winner.peer, connection.getsockname()[0])
        self.log.tcp_info = {"connected": info}
        self.log.note_cpu("connected")
        for dial, loser in self._under_way.values():
            dial.ended, dial.error = self._noticed, GIVEN_UP
            loser.close()
        return answered

    def awaits(self) -> tuple[str, str]:
        return "connection", f"the proxy {self.proxy.shown}" if self.proxy else self._where(self.log.dials)

    def explain(self, error: Exception) -> NetworkError:
        failed = sorted((dial for dial in self.log.dials if dial.error), key=lambda dial: dial.ended or 0)
        tried = f" ({len(failed)} addresses tried)" if len(failed) > 1 else ""
        code = getattr(error, "errno", 0)
        hint = CONNECT_HINTS.get(code, "Check the address, firewalls, and the network of this machine.")
        if code == errno.EADDRNOTAVAIL and self.options.interface:
            hint = NOT_HERE_HINT
        peer = failed[0].peer if failed and self.asks_resolver else None
        own = peer and own_machine(self.place[0], peer.ip)
        if own:
            hint = f"Look at /etc/hosts, and at who answers for that name: {own}."
        message = f"no connection to {self._where(failed[:1])}: {reason_of(error).lower()}{tried}"
        return NetworkError("network", message, hint)

    def _where(self, dials: Iterable[Dial]) -> str:
        """Name the place, and of its addresses those that were tried: three at most."""
        host, port = self.place
        tried = [dial.peer.ip for dial in dials if dial.peer and dial.peer.ip != host]
        return f"{host} ({list_first(tried, 3)}) port {port}" if tried else f"{host} port {port}"


class Unix(Hop):
    """The connection to a unix socket (unix(7)), for a URL with any host: no lookup, no address, no race. The
    socket does not block: where its queue is full, connect() would wait for ever.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        assert setup.route.unix_socket is not None
        self._path = setup.route.unix_socket
        self._name = f"the unix socket {clip(self._path)}"
        self._stream = SocketStream(self.log, timestamps=False)

    def awaits(self) -> tuple[str, str]:
        return "connection", self._name

    def open(self, below: Stream) -> Stream:
        self.log.dials.append(Dial(time.perf_counter_ns(), None))
        self._stream.socket = make_socket(socket.AF_UNIX)
        self.log.sockets.append(self._stream.socket)
        self._stream.socket.connect(self._path)
        self.opened_at = time.perf_counter_ns()
        self.log.connected = Connected(self.opened_at, self._stream.socket, None, None)
        return self._stream

    def explain(self, error: Exception) -> NetworkError:
        code, reason = getattr(error, "errno", 0), reason_of(error).lower()
        if code == errno.EAGAIN:
            reason = "its queue of connections is full"
        hint = UNIX_HINTS.get(code, "Check the path, and the load and log of the service.")
        return NetworkError("network", f"no connection to {self._name}: {reason}", hint)


class Tls(Hop):
    """A TLS handshake: with an https proxy, as a part of connect; or with the target, as the phase tls. Then
    `proxy` is None, behind a proxy too: one that has opened the way only passes bytes on.
    """

    def __init__(self, setup: Setup, proxy: Proxy | None = None) -> None:
        super().__init__(setup)
        self.proxy = proxy
        self.place = (proxy.host, proxy.port) if proxy else self.request.url.place
        # The client certificate is for the first URL's origin alone.
        is_first = not proxy and self.request.url.origin == self.options.request.url.origin
        identity = self.options.identity if is_first else None
        context = setup.contexts.get(identity, ("http/1.1",) if proxy else setup.protocols)
        self.stream = TlsStream(context, server_name(self.place[0]))
        if not proxy:
            self.phase, self.log.tls = "tls", self.stream

    def to_send(self) -> bytes:
        return self.stream.ciphertext()

    def awaits(self) -> tuple[str, str]:
        return "tls", f" with the proxy {self.proxy.shown}" if self.proxy else ""

    def open(self, below: Stream) -> Stream:
        self.stream.shake_hands(below)
        return self.stream

    def note_opened(self, departed: int) -> int:
        self.stream.note_agreed()
        return self.stream.answered or departed

    def explain(self, error: Exception) -> NetworkError:
        if isinstance(error, EOFError):
            who, hint = self.ended, HUNG_UP
            if self.proxy:
                plain = f"-x http://{place_text(*self.place)}"
                who, hint = "it closed the connection", f"If the proxy speaks plain HTTP, give it as {plain}."
            return NetworkError("tls", f"{who} during the TLS handshake", hint)
        if not isinstance(error, ssl.SSLError):
            if self.proxy:
                return super().explain(error)
            return NetworkError("network", f"{reason_of(error).lower()} during the TLS handshake", HUNG_UP)
        sent = bool(self.stream.tap.own) if self.options.identity or self.proxy else None
        return explain_tls(TlsFailure(error, self.stream, self.place, self.options, self.proxy, sent))


# ---------------------------------------------------------------------------------------------------------
# 18b. Proxies. The hops through one: CONNECT (RFC 9110 section 9.3.6) and SOCKS5 (RFC 1928, by PySocks).
class Tunnel(Hop):
    """A way through an HTTP proxy: CONNECT."""

    proxy: Proxy

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.reader = Reader()
        authority = place_text(self.request.url.host.partition("%")[0], self.request.url.port)  # with a port
        agent = [item for item in complete_headers(self.request) if item[0].lower() == "user-agent"]
        login = proxy_authorization(self.request, self.proxy)
        headers = [("Host", authority.encode("ascii")), *agent, *login]
        self._head = request_head("CONNECT", authority, headers)

    def to_send(self) -> bytes:
        head, self._head = self._head, b""
        return head

    def open(self, below: Stream) -> Stream:
        """Ask for the tunnel, and read the proxy's answer."""
        self.reader.stream, shown = below, f"the proxy {self.proxy.shown}"
        try:
            response = read_head(self.reader, Log())  # its first byte is not the target's
        except EOFError:
            message = f"{shown} hung up without answering CONNECT"
            raise NetworkError("proxy", message, PROXY_ADDRESS_HINT) from None
        if not 200 <= response.status < 300:
            hint = refusal_hint(response, proxy_authorization(self.request, self.proxy))
            answer = status_words(response)
            for name in ("proxy-status", "x-squid-error", "location"):
                said = response.get(name)
                answer += f" ({name}: {foreign(said)})" if said else ""
            raise NetworkError("proxy", f"{shown} refused the tunnel: {answer}", hint)
        if self.reader.left:  # before anything was sent through it: the target cannot have spoken
            message = f"{shown} answered CONNECT with a page of its own, as a web server would"
            hint = "That address most likely belongs to a web server: check host and port of the proxy."
            raise NetworkError("proxy", message, hint)
        self.opened_at = below.base.arrived
        return below


class Socks5(Hop):
    """A way through a SOCKS5 proxy: PySocks negotiates with it, and does the sending meanwhile."""

    proxy: Proxy

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.place = self.request.url.place
        self._target = self.place[0]  # the name or address that the proxy is asked for
        self._socks = optional("socks")
        self._received = 0  # bytes
        self.asks_resolver = not self.proxy.resolves and known_address(*self.place, self.options) is None

    def look_up(self) -> None:
        if not self.proxy.resolves:
            self._target = resolve(*self.place, self.options, self.lookups, self.log)[0].ip

    def open(self, below: Stream) -> Stream:
        assert isinstance(below, SocketStream)
        socks, proxy, connection, wait = self._socks, self.proxy, below.socket, below.wait
        hop = self
        # PySocks has a class of sockets of its own: it gets another descriptor of the same connection.
        shared = os.dup(connection.fileno())

        class PatientSocket(socks.socksocket):  # type: ignore[misc, name-defined]
            def recv_into(self, *given: Any) -> int:
                wait()
                count: int = super().recv_into(*given)
                hop._received += count
                return count

        with PatientSocket(connection.family, connection.type, connection.proto, shared) as negotiator:
            login = proxy.username, proxy.password
            negotiator.proxy = (socks.SOCKS5, proxy.host, proxy.port, proxy.resolves, *login)
            host = self._target.partition("%")[0]  # a zone means nothing on another machine
            negotiator._negotiate_SOCKS5(host, self.place[1])  # without connect(), which would dial too
        connection.setblocking(False)  # PySocks ends the negotiation with the contrary
        self.opened_at = time.perf_counter_ns()  # PySocks reads on its own: no time of arrival is known
        return below

    def explain(self, error: Exception) -> NetworkError:
        """Tell a proxy that hung up over the target, as OpenSSH's -D does, from one that speaks no SOCKS5."""
        said = getattr(error, "msg", "closed unexpectedly")  # an error of PySocks has that
        if self._received >= (4 if self.proxy.username else 2) and "closed unexpectedly" in said:
            what = f"{reason_of(error).lower()} during the negotiation"
            return doubt_proxy(NetworkError("proxy", what, ""), self.proxy.shown)
        if isinstance(error, self._socks.ProxyError):
            return explain_socks5(error, self.proxy, self.asks_resolver)
        return super().explain(error)

    def blame(self, found: NetworkError) -> NetworkError:
        """A lookup of the target's own name is not the proxy's."""
        if found.kind == "dns":
            return found
        return super().blame(found)


# ---------------------------------------------------------------------------------------------------------
# 19. Way. The hops of a request, and the exchange at their end: made before the clock, opened in order.
HOPS: dict[str, Callable[[Setup], Hop]] = {
    "tcp": Tcp,
    "unix": Unix,
    "proxy tls": lambda setup: Tls(setup, setup.route.proxy),
    "tunnel": Tunnel,
    "socks5": Socks5,
    "tls": Tls,
}


class Way:
    """The hops that lead to a server, and the exchanges that it may agree to. All of it goes to the log."""

    def __init__(self, setup: Setup) -> None:
        self._log = self._before = setup.log  # of this request, and of the one before on the connection
        self._proxy = setup.route.proxy.shown if setup.route.proxy else ""
        self._stream = Stream()
        self._hops = [HOPS[name](setup) for name in setup.route.hops(setup.request.url)]
        # Both are made before the clock; the handshake tells which of them it will be.
        self._exchanges: dict[str, Exchange] = {"http/1.1": Http1Exchange(setup)}
        if "h2" in setup.protocols:
            self._exchanges["h2"] = Http2Exchange(setup)
        self._log.asks_resolver = any(hop.asks_resolver for hop in self._hops)
        self._log.hop_phases = tuple(hop.phase for hop in self._hops)
        self._under_way: Hop | Exchange = self._hops[0]
        for hop in self._hops:
            hop.prepare()
        if self._log.asks_resolver:
            setup.lookups.rehearse()

    def ask_again(self, setup: Setup) -> None:
        """Make another request for the connection that is idle now; `resume` takes that over."""
        self._before, self._log = self._log, setup.log
        self._log.sockets, last = self._before.sockets, self._before.exchange
        assert last
        self._exchanges = {self._stream.alpn or "http/1.1": type(last)(setup, last.reader)}

    def resume(self) -> str | None:
        """Take the idle connection over, just before the clock starts; return why not, if it is used up."""
        before = self._before
        assert before.exchange and before.connected.socket
        self._log.idle = time.perf_counter_ns() - (before.done or 0)
        self._stream.base.log = self._log
        self._log.waits = False  # a message that has begun to come may never end
        gone = before.exchange.check_idle(self._log.idle)
        self._log.waits = True
        if gone:
            return gone
        # What holds for the connection, not for that request alone.
        self._log.kept, self._log.connected, self._log.tls = True, before.connected, before.tls
        set_option(before.connected.socket, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._log.keep_counters("connected")
        return None

    def go(self, lookups_only: bool = False) -> None:
        """Look up all names, open the hops, do the exchange. A failure goes to the log, explained."""
        log = self._log
        try:
            if log.kept:
                self._under_way = self._exchange
                self._stream.begin(self._exchange.to_send)
            else:
                for hop in self._hops:  # all names before the first SYN, which ends dns
                    self._under_way = hop
                    hop.look_up()
                if lookups_only:
                    log.stopped = time.perf_counter_ns()
                    return
                self._open()
            log.keep_counters("sent")
            self._under_way = log.exchange = self._exchange
            log.exchange.run(self._stream)
        except (NetworkError, OSError, EOFError, MemoryError) as error:  # ssl.SSLError is an OSError
            failed_at = time.perf_counter_ns()
            log.fail(self._explain(error), failed_at)
        except TimeIsOver:
            log.fail(self._stuck(), round(log.deadline.at))

    def _open(self) -> None:
        for number, hop in enumerate(self._hops, 1):
            self._under_way = hop
            self._stream = hop.open(self._stream)
            above = self._exchange if number == len(self._hops) else self._hops[number]
            self._log.deadline.check(time.perf_counter_ns())
            # The stage above sends its first flight at once.
            # Device "the first flight leaves before the books are kept": without it, tls is 0.039 ms off
            # instead of 0.004, and wait 0.092 instead of 0.023.
            departed = self._stream.begin(above.to_send)
            answered = hop.note_opened(departed)
            self._log.opened.append((answered, departed))

    @property
    def _exchange(self) -> Exchange:
        first = next(iter(self._exchanges.values()))  # HTTP/1.1, but for a kept connection
        # An old OpenSSL lets a server choose a protocol that was not offered (RFC 7301 section 3.2).
        return self._exchanges.get(self._stream.alpn or "http/1.1", first)

    def _explain(self, error: Exception) -> NetworkError:
        """Say what a failure means, in words of the stage that has failed."""
        refused, log = explain_refusal(error), self._log
        if refused:
            return refused
        stage = self._under_way
        if isinstance(error, NetworkError):
            found = error
        elif isinstance(error, ssl.SSLError):
            # Whichever stage was reading, a record fails in TLS: in the topmost layer so far.
            reached = len(self._hops) if log.kept else len(log.opened) + 1
            *_, tls = (hop for hop in self._hops[:reached] if isinstance(hop, Tls))
            found = tls.explain(error)
        elif isinstance(error, socket.gaierror) and isinstance(stage, Hop):
            took, resolver = time.perf_counter_ns() - log.start, read_resolver(stage.options) or Resolver(())
            found = explain_lookup(stage.place[0], stage.options, error, took / 1000, resolver)
        else:
            found = stage.explain(error)
        if log.first_byte is None and not isinstance(error, (NetworkError, ssl.SSLError)):
            self._explain_break(found, getattr(error, "errno", 0))
        return self._doubt(stage.blame(found))

    def _doubt(self, found: NetworkError) -> NetworkError:
        """Say that a proxy may not have reached the target, where nothing came since it said that it has."""
        opener = self._hops[len(self._log.opened) - 1] if self._log.opened else None
        silent = isinstance(opener, (Tunnel, Socks5)) and self._stream.began <= opener.opened_at
        return doubt_proxy(found, self._proxy) if silent else found

    def _explain_break(self, found: NetworkError, code: int) -> None:
        """Say why a connection may have broken before an answer came: idle, or without a certificate."""
        log, tap = self._log, self._log.tls and self._log.tls.tap
        if log.kept and code == errno.ETIMEDOUT:
            found.kind, found.hint = "protocol", FORGOTTEN_HINT.format(log.idle / 1e9)
        elif log.kept and time.perf_counter_ns() - log.start <= IDLE_RACE_NS:
            found.kind, found.hint = "protocol", KEPT_HINT
        elif tap and tap.wanted and not tap.own:
            found.hint = f"The server asked for a client certificate, and got none (--cert). {found.hint}"

    def _stuck(self) -> NetworkError:
        """Say what this way was waiting for when the time of -m was over."""
        stage, (what, detail) = self._under_way, self._under_way.awaits()
        if self._log.phase == "dns" and isinstance(stage, Hop):
            what, detail = "dns", stage.place[0]
        words = {"detail": detail, "proxy": self._proxy, "limit": f"{stage.options.max_time:g} s"}
        found = NetworkError("timeout", STUCK[what].format(**words), STUCK_HINTS[what])
        goaway = stage.reader.goaway if isinstance(stage, Exchange) else None
        if goaway:
            found.message += f"; before that {goaway.message}"
        return self._doubt(stage.blame(found) if isinstance(stage, Exchange) else found)

    def keep(self) -> Way | str | None:
        """Return this way if its connection takes another request, else why not; None if there is none."""
        exchange, connection = self._log.exchange, self._log.connected.socket
        if connection is None:
            return None
        if not exchange or self._log.done is None:
            return "the run before failed on that connection"
        # An idle one that is probed would be kept alive.
        set_option(connection, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
        return exchange.reuse_obstacle() or self

    def close(self) -> None:
        for each in self._log.sockets:
            each.close()


# ---------------------------------------------------------------------------------------------------------
# 20. Step. One request under the clock: what must be ready before it, the cookies of a chain among it, and
#     the record of what became of it.
class CurrentStep(NamedTuple):
    """The step under way."""

    number: int
    asked: Request  # as the chain has it
    request: Request  # as it goes to this server or proxy
    route: Route
    log: Log
    span_id: str | None


def new_id(count: int) -> str:
    """Return random bytes as W3C Trace Context writes the ids of a trace (16 bytes) and of a span (8)."""
    return os.urandom(count).hex()


def is_over(age: str, date: str) -> bool:
    """Tell whether a Max-Age, or else an Expires, removes a cookie; one that cannot be read does not."""
    if re.fullmatch("-?[0-9]+", age):
        return age.startswith("-") or not age.strip("0")
    try:
        end = datetime.datetime.strptime(date.replace("-", " "), "%a, %d %b %Y %H:%M:%S GMT")
    except ValueError:
        return False
    return end.replace(tzinfo=datetime.timezone.utc) <= wall_clock()


class Cookies:
    """What the steps of a chain set for those after them, for a host, or a domain with all hosts below (RFC
    6265). A removed one is kept, empty: what the user gave under its name is not sent any more.
    """

    def __init__(self) -> None:
        self._set: dict[tuple[str, bytes], tuple[bytes, bool]] = {}  # by host or .domain, and name; secure

    def take(self, url: Url, headers: Sequence[Header]) -> None:
        """Keep what a response sets, MAX_COOKIES in all, but for what is too long or cannot be sent back."""
        host = server_name(url.host)
        for line in values_of(headers, "set-cookie"):
            pair, _, rest = line.partition(b";")
            name, equals, value = map(bytes.strip, pair.partition(b"="))
            if not name or not equals or len(line) > MAX_COOKIE or re.search(rb"[\0-\x08\n-\x1f\x7f]", pair):
                continue
            pieces = (each.partition("=") for each in decode(rest).split(";"))
            said = {key.strip().lower(): text.strip() for key, _, text in pieces}
            domain = said.get("domain", "").lower().removeprefix(".")
            place = host
            if "." in domain and f".{host}".endswith(f".{domain}") and not is_ip(host):
                place = f".{domain}"
            elif domain not in ("", host):
                continue
            if (place, name) in self._set or len(self._set) < MAX_COOKIES:
                over = is_over(said.get("max-age", ""), said.get("expires", ""))
                self._set[place, name] = (b"" if over else name + b"=" + value, "secure" in said)

    def add(self, request: Request) -> Request:
        """Return a request with the cookies for its URL, and those in it that no step replaced or removed."""
        host, known = server_name(request.url.host), []
        for (place, name), (pair, over_tls) in self._set.items():
            below = place.startswith(".") and f".{host}".endswith(place)
            if (host == place or below) and (request.url.secure or not over_tls):
                known.append((name, pair))
        if not known:
            return request
        names = {name for name, _ in known}
        given = b";".join(values_of(request.headers, "cookie")).split(b";")
        kept = [each.strip() for each in given if each.partition(b"=")[0].strip() not in names]
        whole = b"; ".join(filter(None, [*kept, *(pair for _, pair in known)]))
        others = without_fields(request.headers, ["cookie"])
        return request._replace(headers=(*others, *([("Cookie", whole)] if whole else [])))


def begin_step(number: int, asked: Request, options: Options, deadline: Deadline) -> CurrentStep:
    """Return a step that is not prepared yet."""
    request, route = asked, route_to(asked.url, options)
    # The user's Proxy-Authorization goes to the proxy of the first step, and to no other.
    if route.proxy != route_to(options.request.url, options).proxy:
        request = request._replace(headers=without_fields(request.headers, ["proxy-authorization"]))
    span_id = options.trace_id and new_id(8)
    if options.propagate:
        parent = f"00-{options.trace_id}-{span_id}-01"  # W3C Trace Context: version, trace, span, sampled
        request = request._replace(headers=(*request.headers, ("traceparent", parent.encode("ascii"))))
    log = Log(options.expected, deadline)
    return CurrentStep(number, asked, request, route, log, span_id)


def shown_headers(headers: Iterable[Header], most: float = math.inf) -> tuple[Header, ...]:
    """Return the first header fields, of so many bytes in all, without the credentials of URLs in them; of a
    field that is too long the beginning.
    """
    shown: list[Header] = []
    for name, value in headers:
        mask, text = mask_location if name.lower() == "location" else mask_urls, decode(value)
        if len(value) > MAX_FIELD:
            plain = f"{mask(text[: 2 * MAX_TEXT])[:MAX_TEXT]}… ({len(text)} characters)"
        else:
            plain = mask(text)
        shown.append((name, value if plain == text else plain.encode()))
        most -= len(name) + len(shown[-1][1])
        if most < 0:
            return tuple(shown[:-1])
    return tuple(shown)


MAX_PAGE_TEXT = 160  # characters of an error page that are shown


def page_text(history: Log) -> str:
    """Return how the text of an error page begins, without tags, scripts, styles and runs of blanks. Of one
    that was cut the last word goes: it may end within a character.
    """
    page, end = history.page, ""
    if len(page) == MAX_PAGE:
        page, end = b"".join(page.rsplit(None, 1)[:-1]), "…"
    text, media = mask_urls(decode(page)), history.response and history.response.get("content-type")
    is_marked_up = re.match("(?i)[^;]*(html|xml)", media or "")
    text = " ".join((without_markup(text) if is_marked_up else text).split()) + end
    return text if len(text) <= MAX_PAGE_TEXT else f"{text[: MAX_PAGE_TEXT - 1]}…"


def starved_by_phase(history: Log) -> dict[str, int]:
    """Return for how long (us) each phase had this process wait for a CPU; none where no kernel tells."""
    starved, ends = {}, [*history.ends, *filter(None, [history.stopped])]
    for phase, end in zip(PHASES[1:], ends[1:]):
        spent = getattr(history.timing, phase) or 0
        starved[phase] = min(spent, history.starved(*MARKS[phase], end))
    return starved


def pauses_of(history: Log, ended: Counters | None, xfer: int) -> Pauses:
    """Return the pauses of a response; where it failed, with the silence before that (by the kernel)."""
    pauses, quiet = history.pauses, min(ended.quiet_us if ended else 0, xfer)
    if not history.error or history.phase != "xfer" or quiet <= QUIET_US:
        return pauses
    longest = max(pauses.longest_us, quiet)
    return pauses._replace(us=pauses.us + quiet, number=pauses.number + 1, longest_us=longest)


def gather_evidence(history: Log, options: Options, timing: Timing, host: str) -> Evidence:
    """Read what the account needs; the resolver's settings too, if the lookup was long or led elsewhere."""
    exchange = history.exchange
    resolver = connected = None
    if (timing.dns or 0) >= LONG_LOOKUP_US or (history.canonical_name or "").startswith(f"{host}."):
        resolver = read_resolver(options)
    if history.connected.at and history.dials:  # without them it was kept from an earlier run
        connected = round((history.connected.at - history.ends[0]) / 1000)
    counters = {field: parse_tcp_info(info) for field, info in history.tcp_info.items()}
    ended, at_start = counters.get("ended"), counters.get("connected") if history.kept else JUST_CONNECTED
    last = counters.get("answered") or ended
    taken = (last and last.since(at_start, "acknowledged")) or math.inf  # 0: no kernel tells
    until = history.first_byte or history.stopped or 0
    held = [*history.held, until]  # the last time may have no end of its own
    # What waits for the other side's window is probed less and less often: an answer may be long ago.
    alive = ended and ended.heard_us < PROBED_US
    told = ended and ended.quiet_us >= PROBED_US and ended.busy_us is not None and (alive or ended.unanswered)
    return Evidence(
        **counters,
        connected_us=connected,
        request_bytes=exchange.request_bytes if exchange else 0,
        sent_whole=history.sent is not None and taken >= len((exchange and exchange.request.body) or b""),
        starved=starved_by_phase(history),
        early_us=max(0, until - history.early) // 1000 if history.early else 0,
        pauses=pauses_of(history, ended, timing.xfer or 0),
        held_us=sum(max(0, end - begin) for begin, end in zip(held[::2], held[1::2])) // 1000,
        is_alive=alive if told else None,
        resolver=resolver,
        canonical_name=history.canonical_name,
    )


def describe_network(current: CurrentStep, options: Options, evidence: Evidence) -> Network:
    """Gather what is known of the connection."""
    history, last = current.log, evidence.ended
    begun = evidence.begun
    lost = last and max(0, last.since(begun, "retransmits") - last.since(begun, "duplicates"))
    _, port = current.route.first_hop(current.request.url)
    return Network(
        peer=history.connected.peer,
        port=port if current.route.unix_socket is None else None,
        addresses=tuple(peer.ip for peer in history.peers),
        attempts=history.attempts,
        tls=history.tls.agreed(options) if history.tls else NO_TLS,
        rtt_us=last and last.rtt_us,
        retransmits=lost,
        reused=history.kept if options.series.reuse else None,
        reuse_refused=history.refused,
        idle_us=history.idle // 1000 if history.kept else None,
        local_ip=history.connected.local_ip,
        interface=options.interface,
    )


def finish(current: CurrentStep, options: Options) -> Step:
    """Make the record of a step."""
    history = current.log
    url, timing, error = current.request.url, history.timing, history.error
    evidence = gather_evidence(history, options, timing, current.route.first_hop(url)[0])
    exchange = history.exchange
    sent = exchange.headers if exchange else headers_to_send(current.request, current.route)
    response, notes = history.response, history.notes
    if response:
        headers = shown_headers(response.headers, MAX_FIELD)
        if len(headers) < len(response.headers):
            notes += (f"of the header fields only the first {size_text(MAX_FIELD)} are shown",)
        response = response._replace(headers=headers)
    return Step(
        number=current.number,
        url=mask_location(url.text),
        request=current.request._replace(headers=()),
        sent_headers=shown_headers(sent),
        route=current.route,
        started_at=history.started_at,
        timing=timing,
        network=describe_network(current, options, evidence),
        response=response,
        body_bytes=history.received,
        interim=history.interim,
        error=Failure(error.kind, history.phase, error.message, error.hint) if error else None,
        evidence=evidence,
        span_id=current.span_id,
        notes=notes,
        page=page_text(history),
    )


# ---------------------------------------------------------------------------------------------------------
# 21. Chain. Steps -> Run, under a deadline.
class ConnectionPool:
    """What all runs share: TLS contexts, one set for each side, and with --reuse the connections: for each
    origin and variant the way whose connection is idle, or why there is none.
    """

    def __init__(self, contexts: TlsContexts, options: Options) -> None:
        self._contexts = {side.name: TlsContexts(side.options) for side in options.sides[1:]}
        self._others = contexts  # of all other variants
        self.lookups = Lookups()
        self._reuse = options.series.reuse
        self._left: dict[tuple[object, ...], Way | str | None] = {}

    def contexts(self, variant: str | None) -> TlsContexts:
        return self._contexts.get(variant, self._others)

    def take(self, current: CurrentStep, turn: Turn) -> Way | None:
        """Take the connection that the run before left for a step, or note why there is none."""
        if turn.round == 1:  # the first run opens its own
            return None
        left = self._left.pop((current.request.url.origin, turn.variant), None)
        if isinstance(left, Way):
            return left
        current.log.refused = left
        return None

    def leave(self, current: CurrentStep, turn: Turn, way: Way | None) -> None:
        """Keep the connection of a step that is over if it can be kept, else close it."""
        key = (current.request.url.origin, turn.variant)
        before, left = self._left.get(key), None
        if self._reuse:
            left = way.keep() if way and current.log.start else "the run before could not begin"
            self._left[key] = left
        for each in (before, way):
            if isinstance(each, Way) and each is not left:
                each.close()

    def close(self) -> None:
        self.lookups.leave_behind()
        for way in self._left.values():
            if isinstance(way, Way):
                way.close()


Look = Callable[["Chain"], None]


class Chain:
    """A run under way, at which `look` looks ten times a second: a request, and those that it leads to."""

    def __init__(self, options: Options, pool: ConnectionPool, look: Look, turn: Turn) -> None:
        if "--otlp" in options.exports:
            options = options._replace(trace_id=new_id(16))  # a trace of its own
        self._options, self._pool, self._look, self.turn = options, pool, look, turn
        self._deadline = Deadline(self.look)
        self._cookies = Cookies()
        self.started = 0  # when the clock of the first step started
        self.current = begin_step(1, options.request, options, self._deadline)  # the step under way
        self._way: Way | None = None  # that it goes, once it is prepared, or an idle one that was left for it
        self._steps: list[Step] = []  # that are over
        self._limit_reached = False

    def look(self) -> None:
        self.current.log.look()
        self._look(self)

    def measure(self) -> Run:
        """Make all requests; raises UsageError, Stopped, and whatever keeps the first from being prepared."""
        self.look()
        following: CurrentStep | None = self.current
        try:
            while following:
                self.current = following
                following = self._take_step()
        except Stopped:
            if self._way:
                self._way.close()
            raise
        ended, options = time.perf_counter_ns(), self._options
        self._steps[-1] = self._steps[-1]._replace(expected=options.expected)
        steps = tuple(step._replace(turn=self.turn) for step in self._steps)
        return Run(steps, self._limit_reached, self.turn, self.started or ended, ended, options.trace_id)

    def _take_step(self) -> CurrentStep | None:
        """Prepare, make and record a step; return the one that it leads to, None at the end of the chain."""
        current, options, log = self.current, self._options, self.current.log
        self._way = self._pool.take(current, self.turn)
        try:
            self._way = self._make_ready(self._way)
            self._start_clock()
        except TimeIsOver:
            message = f"the time of {options.max_time:g} s was over before this step began"
            hint = f"Earlier steps took it, or this machine or its CA store is too slow: {RAISE_M}"
            log.fail(NetworkError("timeout", message, hint), 0)
        except (UsageError, OSError, MemoryError, RuntimeError) as unprepared:
            error = explain_refusal(unprepared)
            if (current.number == 1 and self.turn.number <= 1) or not error:
                raise
            log.fail(error, 0)
        else:
            self._way.go(lookups_only=self.turn == LOOKUP)
            log.keep_counters("ended")
        step = finish(current, options)
        self._steps.append(step)
        self._pool.leave(current, self.turn, self._way)
        return None if step.error else self._follow()

    def _make_ready(self, idle: Way | None) -> Way:
        """Make all that a step needs before its clock starts."""
        current, turn, log = self.current, self.turn, self.current.log
        offers_h2 = self._options.http2 and current.request.url.secure and import_h2()
        protocols = ("h2", "http/1.1") if offers_h2 else ("http/1.1",)
        contexts, lookups = self._pool.contexts(turn.variant), self._pool.lookups
        setup = Setup(current.request, current.route, self._options, contexts, lookups, protocols, log)
        if idle:
            idle.ask_again(setup)
        way = idle or Way(setup)
        if current.number == turn.number == 1 and waited_for_cpu() > SHORT_OF_CPU_NS:
            # After a start that is all computing Linux would wake this thread a time slice late (EEVDF, from
            # 6.6 on). Device "naps before the clock": without it, where both cores are busy, the 95th
            # percentile of connect is 2.22 ms off instead of 0.13.
            for _ in range(NAPS):
                time.sleep(NAP_SECONDS)
        if current.number == 1:
            time.sleep(max(0.0, (turn.due - time.perf_counter_ns()) / 1e9))
        log.refused = (idle and idle.resume()) or log.refused
        if idle and log.refused:
            idle.close()
            way = Way(setup)
        return way

    def _start_clock(self) -> None:
        """Start the clock of a step; that of the first one starts the time of -m. Raises TimeIsOver."""
        log = self.current.log
        log.started_at = wall_clock()
        log.note_cpu("start")
        if self.started:
            self._deadline.patience()
        log.start = time.perf_counter_ns()
        if not self.started:
            self.started, self._deadline.at = log.start, log.start + round(self._options.max_time * 1e9)

    def _follow(self) -> CurrentStep | None:
        """Return the step that a redirect leads to. One that leads nowhere is a failed step of its own."""
        current, options = self.current, self._options
        response = current.log.response  # as it came: the step's record has its credentials masked
        if not options.follow or not response or response.status not in REDIRECTS:
            return None
        # An empty one does not count, as in browsers and curl.
        locations = [value for value in values_of(response.headers, "location") if value]
        self._limit_reached = bool(locations) and len(self._steps) > MAX_REDIRECTS
        if not locations or self._limit_reached:
            return None
        self._cookies.take(current.request.url, response.headers)
        number = current.number + 1
        try:
            url = resolve_location(current.request.url, locations)
            request = next_request(current.asked, response.status, url)
            begun = begin_step(number, request, options, self._deadline)
            return begun._replace(request=self._cookies.add(begun.request))
        except NetworkError as error:
            failed = error
        except UsageError as error:  # of a proxy that no step before needed
            failed = NetworkError("proxy", error.message, "Correct that, or go without a proxy: -x ''.")
        begun = begin_step(number, current.asked, options, self._deadline)  # nothing is looked up or sent
        begun.log.fail(failed, 0)
        step, text = finish(begun, options), locations[0][:MAX_FIELD].decode("utf-8", "surrogateescape")
        place = mask_location(percent_encode(resolve_reference(current.request.url.text, text)))
        network = step.network._replace(port=None, interface=None)
        self._steps.append(step._replace(url=clip(place), sent_headers=(), network=network))
        return None


# ---------------------------------------------------------------------------------------------------------
# 22a. Statistics. Steps -> what they have in common: pure functions of whole microseconds. A statistic is
#      None where there are too few values. No mean and no deviation: one slow run moves them at will.
LEAST_GOOD_RUNS = 8  # fewer good runs cannot tell what is usual
HALF_MORE = 1.5  # round trips, bodies and medians that differ by less are alike


def to_ms(us: float | None) -> float | None:
    """Turn microseconds into ms, to 0.001, as reports and budgets have them; None stays None."""
    return None if us is None else round(us) / 1000


def median(values: Iterable[float]) -> float:
    """Return the middle of one value or more; of an even number the mean of the two in the middle."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def nearest_rank(ordered: Sequence[Thing], percent: int) -> Thing:
    """Return a percentile: the smallest of sorted values with at least `percent` % of them up to it."""
    return ordered[max(1, math.ceil(percent * len(ordered) / 100)) - 1]


@cache
def interval_rank(count: int, rivals: int = 1) -> int:
    """Return the largest k for which the median lies outside [x(k), x(n-k+1)] at most once in INTERVAL_RISK
    times for all `rivals`: both tails of a binomial distribution. 0 for fewer values than `needed_values`.
    """
    tail, term, rank = 0, 1, 0  # tail: the chance that fewer than rank + 1 lie below it, times 2 ** count
    while True:
        tail += term
        if 2 * INTERVAL_RISK * rivals * tail > 1 << count:
            return rank
        rank += 1
        term = term * (count - rank + 1) // rank


def are_apart(pair: Sequence[float | None], times: float, least: float) -> bool:
    """Tell whether one of two known numbers is so many times the other, and above it by `least` or more."""
    small, large = sorted(each or 0 for each in pair)
    return None not in pair and large >= times * small and large - small >= least


def measure_distribution(values: Iterable[int], rivals: int = 1) -> Distribution:
    """Return the statistics of values; `rivals` is as in `needed_values`."""
    ordered = sorted(values)
    stats: dict[str, float | None] = dict.fromkeys(LEAST_VALUES)
    if not ordered:
        return Distribution(stats, None, 0)
    for name, least in LEAST_VALUES.items():
        if name.startswith("p") and len(ordered) >= least:
            stats[name] = nearest_rank(ordered, int(name[1:]))
    stats.update(min=ordered[0], median=median(ordered), max=ordered[-1])
    rank = interval_rank(len(ordered), rivals)
    interval = (ordered[rank - 1], ordered[-rank]) if rank else None
    return Distribution(stats, interval, len(ordered))


def usable(steps: Iterable[Step]) -> list[Step]:
    """Return the steps for statistics: good or else answered ones, of these those on kept connections."""
    answered = [step for step in steps if not step.error]
    fit = [step for step in answered if step.good] or answered
    return [step for step in fit if step.network.reused is not False] or fit


def times_in_turn(key: str, steps: Iterable[Step]) -> list[tuple[int, Turn]]:
    """Return the known values of a key (us), each with the place of its run."""
    values = ((getattr(step.timing, key), step.turn) for step in steps)
    return [(value, turn) for value, turn in values if value is not None]


def times_of(key: str, steps: Iterable[Step]) -> list[int]:
    """Return the known values of a key (us)."""
    return [value for value, _ in times_in_turn(key, steps)]


def gather_findings(steps: Iterable[Step]) -> tuple[tuple[Finding, list[tuple[int, int]]], ...]:
    """Return of each kind (id, phase) one of median cost, and all costs with runs; the costliest first."""
    made = [(each, step.turn.number) for step in steps for each in step.findings]
    kinds = group_by(lambda pair: (pair[0].id, pair[0].phase), made).values()
    ordered = [sorted(kind, key=lambda pair: pair[0].cost_us) for kind in kinds]
    usual = [(nearest_rank(kind, 50)[0], [(each.cost_us, run) for each, run in kind]) for kind in ordered]
    return tuple(sorted(usual, key=lambda found: -sum(cost for cost, _ in found[1])))


LEAST_SLOW_US = 5_000  # above the median: less is not called slow
LEAST_USUAL, USUAL_SHARE = 5, 0.25  # the others of slow runs: how many they are, and of all, at the least
QUICK_TIMES, FAR_TIMES = 5, 3  # slow: so many times what p10 is below the median, and the limit above it
MOST, FEW = 0.9, 0.1  # what goes with some runs: most of them have it, few others
RHYTHM_STREAKS, UNEVEN = 5, 0.2  # streaks at the least; by what part the times between them may differ
LEAD_RISK = 1e-4  # how often chance may part the runs so clearly by a trait
MAX_TRAITS, MAX_TRAIT = 16, 40  # short fields of a response; characters of a name, and of a value
# Fields of each answer, of a status, or of a body: none of them tells where an answer came from.
ABOUT_AN_ANSWER = (
    "date expires age last-modified etag keep-alive connection transfer-encoding trailer accept-ranges vary "
    "retry-after"
).split()


class Companion(NamedTuple):
    """A trait that sets some runs apart: how many of `these` have it, and how many of the `others`."""

    name: str
    value: str
    having: int
    others_having: int
    these: int
    others: int

    @property
    def trait(self) -> str:
        return f"{self.name}: {self.value}"


class Pattern(NamedTuple):
    """When runs came: a streak of them every so many runs, or about every so many us; or from one run on."""

    every_runs: int | None = None
    every_us: float = 0
    since: Step | None = None


class Slow(NamedTuple):
    """Slow runs of a series, by their steps; of those that are slow by less, a second set may be made."""

    runs: Sequence[Step]
    others: Sequence[Step]
    pattern: Pattern | None
    companion: Companion | None


def family_of(ip: str) -> str:
    return "IPv6" if ":" in ip else "IPv4"


@cache
def is_trait(name: str, value: bytes) -> bool:
    """Tell whether a field may go with slow answers: it is short, no credential, not about this one alone."""
    about_it = name.lower() in ABOUT_AN_ANSWER or name.lower().startswith("content-")
    return not about_it and len(max(name, value, key=len)) <= MAX_TRAIT and not is_credential(name, value)


def traits_of(step: Step) -> dict[str, str]:
    """Return by name what may go with the time or status of a run, some fields of its response included."""
    headers = step.response.headers if step.response else ()
    short = islice((header for header in headers if is_trait(*header)), MAX_TRAITS)
    traits = {name.lower(): decode(value) for name, value in short}
    if step.good:  # an error page has a size of its own
        traits["body size"] = size_text(step.body_bytes)
    if step.network.rtt_us is not None:
        doubled = 1 << (step.network.rtt_us // 1000).bit_length()
        traits["round trip"] = f"{doubled // 2} to {doubled} ms"
    return {**traits, **step.facts}


def chance_of_parting(having: int, others_having: int, these: int, others: int) -> float:
    """Return how often chance gives a trait to so many of `these`, or to more, at the most: by the first term
    of a hypergeometric distribution's tail, which falls.
    """
    holders, every = having + others_having, these + others
    ways = math.comb(holders, having) * math.comb(every - holders, these - having)
    return ways * (1 + these - having) / math.comb(every, these)


def find_companion(these: Sequence[Step], others: Sequence[Step]) -> Companion | None:
    """Return the trait that nearly all of these steps have and hardly any of the others, if chance seldom
    parts them so clearly. Chance has one try for each field that has a frequent enough value. Of several
    traits it is the one that parts them best, then the shortest.
    """
    here, there = (
        collections.Counter(pair for step in steps for pair in traits_of(step).items())
        for steps in (these, others)
    )
    least, most = MOST * len(these), len(these) + FEW * len(others)
    fields = {pair[0] for pair, count in here.items() if least <= count + there[pair] <= most}
    found = []
    for pair, having in here.items():
        counts = (having, there[pair], len(these), len(others))
        distinct = having >= least and counts[1] <= FEW * len(others)
        if distinct and chance_of_parting(*counts) * len(fields) <= LEAD_RISK:
            found.append(Companion(*pair, *counts))
    return min(
        found,
        key=lambda each: (each.others_having / each.others - each.having / each.these, len(each.trait)),
        default=None,
    )


def streaks_of(steps: Iterable[Step]) -> list[list[Step]]:
    """Put steps of runs one after the other into one streak."""
    streaks: list[list[Step]] = []
    for step in steps:
        if streaks and step.turn.round == streaks[-1][-1].turn.round + 1:
            streaks[-1].append(step)
        else:
            streaks.append([step])
    return streaks


def find_rhythm(starts: Sequence[Step], others: Sequence[Step]) -> Pattern | None:
    """Return how far apart streaks begin. Every n-th run: nearly all of such runs begin one, and nearly all
    streaks begin there. Else about every t seconds, if they are always as far apart.
    """
    if len(starts) < RHYTHM_STREAKS:
        return None
    rounds, us = [step.turn.round for step in starts], datetime.timedelta(microseconds=1)
    between = [step.turn.round for step in others if rounds[0] < step.turn.round < rounds[-1]]
    whole, runs = (starts[-1].started_at - starts[0].started_at) / us, rounds[-1] - rounds[0]
    for every in range(2, runs // (RHYTHM_STREAKS - 1) + 1):
        place, having = collections.Counter(number % every for number in rounds).most_common()[0]
        without = sum(number % every == place for number in between)
        if having >= MOST * len(rounds) and without <= FEW * having:
            return Pattern(every, whole * every / runs)
    gaps = ((after.started_at - before.started_at) / us for before, after in zip(starts, starts[1:]))
    apart = whole / (len(starts) - 1)
    even = len(between) >= 2 * len(starts) and all(abs(gap - apart) <= UNEVEN * apart for gap in gaps)
    return Pattern(None, apart) if even else None


def find_pattern(these: Sequence[Step], others: Sequence[Step]) -> Pattern | None:
    """Return from which run of a series on nearly all are these, and hardly any before; else their rhythm.
    Runs that are neither these nor the others end no streak.
    """
    wanted = {step.turn.round for step in these}
    runs = sorted((*these, *others), key=lambda step: step.turn.round)
    sums = list(accumulate(1 if step.turn.round in wanted else -1 for step in reversed(runs)))
    count = sums.index(max(sums)) + 1  # from the end on, of the runs that part these from the others best
    late = (count + max(sums)) // 2
    if late >= max(LEAST_USUAL, MOST * count) and len(these) - late <= FEW * len(runs) and count < len(runs):
        return Pattern(since=runs[-count])
    parted = groupby(runs, key=lambda step: step.turn.round in wanted)
    return find_rhythm([next(streak) for is_one, streak in parted if is_one], others)


def slow_above(steps: Sequence[Step]) -> float:
    """Return the total above which steps are slow: the next one is far above the median of those up to it,
    beside what p10 is below that, and what the limit is above it. Of several limits it is the highest.
    """
    ordered, limit = sorted(times_of("total", steps)), math.inf
    least = max(LEAST_USUAL, math.ceil(USUAL_SHARE * len(ordered)))
    for count in range(least, len(ordered) if len(ordered) >= LEAST_GOOD_RUNS else 0):
        below, following = ordered[:count], ordered[count]
        quick, usual = nearest_rank(below, 10), nearest_rank(below, 50)
        far = max(LEAST_SLOW_US, QUICK_TIMES * (usual - quick), FAR_TIMES * (below[-1] - usual))
        if following - usual > far:
            limit = below[-1]
    return limit


def find_slow(steps: Sequence[Step]) -> Slow | None:
    """Return the slow ones of steps, with what is known of them, None where none is slow."""
    limit = slow_above(steps)
    runs, others = ([step for step in steps if (step.timing.total > limit) == slow] for slow in (True, False))
    if not runs:
        return None
    first, last = runs[0].turn.round, runs[-1].turn.round
    between = [step for step in others if first < step.turn.round < last]
    companion = find_companion(runs, between) or find_companion(runs, others)
    return Slow(runs, others, find_pattern(runs, others), companion)


def is_starved(step: Step) -> bool:
    return any(finding.id == "starved" for finding in step.findings)


class Summary:
    """What the steps of one number have in common, of one variant. Its statistics are of the steps in `used`:
    how soon a step failed, or an error page came, says nothing about good answers.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.variant = steps[0].turn.variant
        self.number = steps[0].number
        self.urls = list(dict.fromkeys(step.url for step in steps))
        self.newest = steps[-1]
        self.runs = len(steps)
        self.used = usable(steps)
        self.none_good = not all(step.good for step in self.used)  # there are no others
        self.good = 0 if self.none_good else len(self.used)
        self.reused = (self.used or steps)[0].network.reused  # the statistics are of kept connections
        self.errors = collections.Counter(step.error.kind for step in steps if step.error)
        self.failed = sum(self.errors.values())
        self.bad_status = sum(not (step.good or step.error) for step in steps)
        codes = collections.Counter(step.status for step in steps if step.status)
        self.statuses = dict(sorted(codes.items()))  # steps of each status
        self.outcomes = [*map(str, self.statuses), *["ERROR"] * (self.failed > 0)]
        # most_common(1) would import heapq, and there may be no descriptor left for that.
        frequent = collections.Counter(step.status for step in self.used).most_common()[:1]
        self.usual_status = frequent[0][0] if frequent else None
        trips = [step.network.rtt_us for step in self.used if step.network.rtt_us is not None]
        sizes = sorted(step.body_bytes for step in self.used)
        self.beside: dict[str, float | None] = {
            "tcp_rtt_ms": to_ms(median(trips)) if trips else None,
            "body_bytes": nearest_rank(sizes, 50) if sizes else None,
            "lossy": sum(any(share.owner == "loss" for share in step.account) for step in self.used),
            "starved": sum(map(is_starved, self.used)),
        }
        self.findings = gather_findings(self.used or steps)
        refused = filter(None, (step.network.reuse_refused for step in steps))
        self.refused = collections.Counter(refused)  # reasons
        self.distributions = {key: measure_distribution(times_of(key, self.used)) for key in STAT_KEYS}

    @cached_property
    def slow(self) -> list[Slow]:
        """Return the slow runs, and those that are slow by less; starved ones are left out."""
        first = None if self.none_good else find_slow([step for step in self.used if not is_starved(step)])
        return [each for each in (first, first and find_slow(first.others)) if each]

    def stat(self, key: str, name: str = "median") -> float | None:
        return self.distributions[key].stats[name]


# ---------------------------------------------------------------------------------------------------------
# 22b. Comparison. Steps of two sides -> by how much one is above the other, and whether that is certain.
TRIFLE = 0.05  # of the phase that differs most: what differs by less is not named


class Comparison(NamedTuple):
    """The chains of a side beside those of the first one; or the last step of a series beside a baseline."""

    own: Summary
    other: Summary | Baseline
    verdict: str
    differences: Mapping[str, Distribution]  # by how much each key is above the other side's
    phases: Mapping[str, float]  # those of it that certainly differ, without trifles; the largest first
    needed: int  # how many values an interval takes

    @property
    def names(self) -> tuple[str, str]:
        if isinstance(self.other, Baseline):
            return NOW, BEFORE
        return str(self.own.variant), str(self.other.variant)


def chain_of(run: Run) -> Step:
    """Return the last step of a run with the times of all steps added up, and what explains them; `reused`
    if all of them were.
    """
    *_, last = run.steps
    values = (times_of(key, run.steps) for key in Timing._fields)
    added: list[Any] = [sum(each) if each else None for each in values]
    reused = last.network.reused and all(step.network.reused for step in run.steps)
    return last._replace(
        timing=Timing(*added),
        network=last.network._replace(reused=reused),
        account=tuple(share for step in run.steps for share in step.account),
        findings=tuple(finding for step in run.steps for finding in step.findings),
    )


def difference_in_turn(key: str, own: Summary, other: Summary, rivals: int) -> Distribution:
    """Return by how much own values are above the other's, round by round: no drift and no rhythm counts."""
    others = {turn.round: us for us, turn in times_in_turn(key, other.used)}
    values = [(us, turn.round) for us, turn in times_in_turn(key, own.used)]
    return measure_distribution((us - others[number] for us, number in values if number in others), rivals)


def difference_of_series(now: Distribution, before: Distribution) -> Distribution:
    """Return the difference of two medians. Its interval rests on that of each: two that do not overlap are
    a test at 0.6 %, which stays under 5 % for runs that depend on each other, up to a correlation of 1/3.
    """
    difference, ends = None, None
    if now.median is not None and before.median is not None:
        difference = now.median - before.median
    if now.interval and before.interval:
        ends = (now.interval[0] - before.interval[1], now.interval[1] - before.interval[0])
    return Distribution({"median": difference}, ends, min(now.n, before.n))


def verdict_of(difference: Distribution) -> str:
    """Say which side is faster: the one below whose times the whole interval of the difference lies."""
    if difference.interval is None:
        return "too_few"
    if difference.interval[0] > 0:
        return "slower"
    return "faster" if difference.interval[1] < 0 else "no_difference"


def certain_phases(differences: Mapping[str, Distribution]) -> dict[str, float]:
    """Return by how much (us) phases differ whose interval leaves out 0; the largest first, no trifles."""
    sizes = {phase: differences[phase].median or 0 for phase in PHASES}
    ordered = sorted(sizes, key=lambda phase: -abs(sizes[phase]))
    large = (phase for phase in ordered if abs(sizes[phase]) >= TRIFLE * abs(sizes[ordered[0]]))
    return {each: sizes[each] for each in large if verdict_of(differences[each]) in ("slower", "faster")}


def compare(own: Summary, other: Summary | Baseline, rivals: int) -> Comparison:
    """Compare a side with the first one, which has so many `rivals`; or a series with an earlier one."""
    if isinstance(other, Baseline):
        pairs = {key: (own.distributions[key], other.distributions[key]) for key in STAT_KEYS}
        differences = certain = {key: difference_of_series(*pair) for key, pair in pairs.items()}
    else:
        differences = {key: difference_in_turn(key, own, other, rivals) for key in STAT_KEYS}
        # Each phase is a rival: else one of five would differ by chance in a fifth of all comparisons.
        certain = {key: difference_in_turn(key, own, other, rivals * len(PHASES)) for key in PHASES}
    verdict, phases = verdict_of(differences["total"]), certain_phases(certain)
    if verdict in ("slower", "faster"):  # then some do, though there may be too few rounds to be strict
        phases = phases or certain_phases(differences)
    if not (own.good and other.good):
        verdict = "too_few"
    if None not in (own.usual_status, other.usual_status) and own.usual_status != other.usual_status:
        verdict = "unlike"  # the times are of different work
    return Comparison(own, other, verdict, differences, phases, needed_values(rivals))


def judge_allowance(key: str, allowance: Allowance, found: Comparison) -> Judgement:
    """Judge a relative budget by a comparison. It is exceeded where the whole interval of the difference lies
    above what is allowed, kept where none of it does, else undecided. Without an interval, or a good answer,
    it is not judged, so that chance alone decides nothing. Times are judged as they are printed.
    """
    judgement = Judgement(key, "kept", found.own.variant, allowance=allowance)
    sides, difference = (found.own, found.other), found.differences[key]
    is_good, medians = all(side.good for side in sides), [side.distributions[key].median for side in sides]
    if is_good and None in medians:
        return judgement  # one side has no such phase
    before = (to_ms(medians[1]) if found.other.good else None) or 0.0
    if found.other.good and medians[1] is not None:
        amount = allowance.amount
        allowed = min(before * amount / 100, sys.float_info.max) if allowance.percent else amount
        judgement = judgement._replace(threshold=round(before + allowed, 3), baseline=before)
    if not is_good or difference.median is None or difference.interval is None:
        lacking = [name for name, side in zip(found.names, sides) if side.good < found.needed]
        return judgement._replace(outcome=NOT_JUDGED, lacking=tuple(lacking or found.names))
    size, low, high = (us / 1000 for us in (difference.median, *difference.interval))
    actual, least, most = (round(before + ms, 3) for ms in (size, low, high))
    outcome, excess = UNDECIDED, round(actual - judgement.threshold, 9)
    if least > judgement.threshold:
        outcome = "exceeded"
    elif most <= judgement.threshold:
        outcome = "kept"
    # Of n values the interval is about 1 / sqrt(n) as long as of one.
    reach = size - low if excess > 0 else high - size
    enough = difference.n * (reach / excess) ** 2 if excess else math.inf
    return judgement._replace(outcome=outcome, actual=actual, difference=(size, low, high), enough=enough)


# ---------------------------------------------------------------------------------------------------------
# 22c. Verdict. Runs -> the budgets' outcome.
def judge_time(key: str, threshold: float, runs: Sequence[Run]) -> Judgement:
    """Hold runs of one variant against a budget in ms. A plain one holds for the last successful step of each
    run, and the worst run is named.
    """
    phase, dot, statistic = key.partition(".")
    judgement = Judgement(key, "kept", runs[0].turn.variant, threshold)
    if dot:
        last = (run.steps[-1] for run in runs)
        ends = [step for step in last if step.good and step.network.reused is not False]
        values = times_of(phase, ends)
        if ends and not values:  # there is no such phase
            return judgement
        us, number = measure_distribution(values).stats[statistic], None
        if us is None:
            lacking = tuple(filter(None, [judgement.variant]))
            return judgement._replace(outcome=NOT_JUDGED, lacking=lacking)
    else:
        judged = filter(None, (run.judged for run in runs))
        timed = [(us, turn.number) for us, turn in times_in_turn(key, judged)]
        us, number = max(timed, key=itemgetter(0), default=(None, None))
    actual = to_ms(us)
    exceeded = actual is not None and actual > threshold
    return judgement._replace(outcome="exceeded" if exceeded else "kept", actual=actual, run=number)


def judge_certificate(threshold: int, runs: Sequence[Run]) -> Judgement:
    """Hold the certificate that ends first against --cert-days."""
    unit = datetime.timedelta(days=1) / 1000  # what is left counts in whole ones
    left = []
    for step in (step for run in runs for step in run.steps if not step.error):
        first = step.network.tls.first_to_end
        if first and first.not_after:
            left.append(((first.not_after - step.started_at) // unit / 1000, certificate_name(first)))
    days, name = min(left, default=(None, ""))
    outcome = "exceeded" if days is None or days < threshold else "kept"
    return Judgement(CERT, outcome, runs[0].turn.variant, threshold, days, certificate=name)


def judge_all(options: Options, own: Sequence[Run], comparisons: Sequence[Comparison] = ()) -> Verdict | None:
    """Hold the runs of one variant against all budgets, the relative ones by its comparison. The side that
    all others are compared with passes these, if it was answered. None where nothing is judged.
    """
    judgements, answered = [], any(run.judged for run in own)
    if answered or any("." in key for key in options.thresholds):
        judgements += [judge_time(key, budget, own) for key, budget in options.thresholds.items()]
    for found in (each for each in comparisons if each.own.variant == own[0].turn.variant):
        judgements += [judge_allowance(*budget, found) for budget in sorted(options.allowances.items())]
    if answered and options.cert_days is not None:
        judgements.append(judge_certificate(options.cert_days, own))
    passes = answered and comparisons and options.allowances  # as the side that the others are compared with
    return Verdict(tuple(judgements)) if judgements or passes else None


# ---------------------------------------------------------------------------------------------------------
# 23a. Account. Step -> who owes how much of each phase, and what is to say of it. Pure functions. Each phase
#      has one, which charges owners in turn: each owes what is left of the phase, or less, the last one the
#      rest; so it always adds up. What Linux' counters mean was measured over 2 to 400 ms
#      (tests/bench/causes.py); without them the rest is the server's.
FIRST_WINDOW = 10  # segments that a sender may send at once (RFC 6928)
TIME_OUT_US = 200_000  # before Linux sends something again, at the least; twice as long each time
TICK_US = 10_000  # us by which the kernel's count of the time in which something was under way may be off
HELD_BACK_US = 200_000  # us for which a kernel may hold an acknowledgment back (Linux 40 ms, others 200)
LATE_SHARE = 0.7  # of the time until an acknowledgment: what was sent again was late, if a sample has so much
SPREAD = 0.1  # of a round trip: so much longer may some of them be
MORE_FLIGHTS = 5  # of so many one more may be needed, for windows that grow more slowly
FEW_LOST = 2  # segments of an upload: where more are lost, a rate limit may be the reason
QUEUE_TRIPS = 1.5  # by so many times the round trip has grown on a line with a queue
ALIKE = 0.6  # of the time of an upload: round trips that have so much together may be all of it
WINDOW_SHARE = 0.1  # of the time of an upload: a window that held it back for less is no cause
READ_LATE = 10  # times as long as this process waited for a CPU: so much of a body may be late by that
RESEND_SLACK_US = 60_000  # us by which a lost answer may be later than its time-out and a round trip
NAGLE_US = range(38_000, 50_000)  # a delayed acknowledgment of Linux: 40 ms and a kernel tick
NAGLE_TRIP_US = 20_000  # of the path at most
LOOKUP_SLACK_US = 250_000  # that an answer may need once a time-out has passed
LOOKUP_EARLY_US = 10_000  # by which time-outs may end early: 0.6 ms each, as measured
# What a proxy does on each hop to it but the first.
PROXY_TASKS = {"proxy tls": "shake hands", **dict.fromkeys(("tunnel", "socks5"), "connect to the target")}
RESENT = "had to be sent again: loss on the way"
IN_VAIN = {"connection refused": "refuses (nothing listens)", "no answer": "is silent"}  # by the error


class Bill:
    """Who owes how much of a phase. `path!` is seen: a counter or a message proves this owner and no other.
    `server|path` is one of the two: one end cannot tell which.
    """

    def __init__(self, step: Step, phase: str) -> None:
        begun, ended = (getattr(step.evidence, mark, None) for mark in MARKS[phase])
        self.before = begun or JUST_CONNECTED  # what the kernel had counted when the phase began, and ended
        self.after = ended or step.evidence.ended or JUST_CONNECTED
        self.phase = phase
        self.left = getattr(step.timing, phase) or 0  # us that nobody owes yet
        failed = step.error
        self.timed_out = bool(failed and (failed.kind, failed.phase) == ("timeout", phase))
        self.shares: dict[str, Share] = {}
        self.findings: dict[str, Finding] = {}

    def grown(self, name: str) -> int:
        """Return by how much a count of the kernel's grew in this phase."""
        return self.after.since(self.before, name)

    @property
    def lost(self) -> int:
        """Return how many segments were sent again, but for those that had arrived already (RFC 2883)."""
        return self.grown("retransmits") - self.grown("duplicates")

    def resent_us(self, count: int) -> int:
        """Return how long it takes to send so many segments again: each time-out is twice the one before. At
        a deadline the next one is under way.
        """
        return self.before.time_out_us * ((1 << min(count + self.timed_out, 20)) - 1)

    def charge(self, owners: str, us: float = math.inf, finding: str = "", text: str = "") -> None:
        """Let somebody owe what is left, or less; `finding` and `text` are what there is to say of that."""
        taken = round(min(max(0, us), self.left))
        owner, _, other = owners.rstrip("!").partition("|")
        certainty = "seen" if owners.endswith("!") else "fits"
        self.left -= taken
        if taken:
            all_of_it = taken + (self.shares[owners].us if owners in self.shares else 0)
            self.shares[owners] = Share(owner, self.phase, all_of_it, certainty, other or None)
        known = self.findings.get(finding)
        if text and taken > (known.cost_us if known else 0):
            self.findings[finding] = Finding(finding, self.phase, taken, certainty, text, owner)


def round_trips(size: int, segment: int) -> int:
    """Return how many round trips so many bytes take: 10, 20, 40 segments … (RFC 6928, 5681)."""
    windows = max(1, math.ceil(size / (FIRST_WINDOW * max(1, segment))))
    return windows.bit_length()  # in so many go 1, 3, 7 first windows


def needs_only(us: float, trips: int, trip: int) -> bool:
    """Tell whether a time is no longer than so many round trips."""
    return us <= (trips + SPREAD) * trip + TICK_US


def slow_start_us(size: int, segment: int, trip: int, us: int) -> int:
    """Return for how long bytes were held back by windows that were still small, of a time that is longer
    than these alone need: each takes a round trip, until what is left goes more slowly than the next one.
    """
    window, left, spent = FIRST_WINDOW * max(1, segment), size, us
    while window < left and window * spent < left * trip:
        window, left, spent = 2 * window, left - window, spent - trip
    return us - size * spent // max(1, left)  # all of it goes at the rate of what is left


def may_be_lost(step: Step, bill: Bill, us: float) -> bool:
    """Tell whether an answer may have been lost in a silence: it comes again after a time-out, or at once if
    later parts of it are here. Within a machine nothing is lost.
    """
    connected = step.evidence.connected
    is_local = step.route.unix_socket or (connected and connected.segment > JUMBO_FRAME)
    is_torn = bill.phase != "xfer" and bill.grown("disorder") > 0
    return (us >= TIME_OUT_US or is_torn) and not is_local


def fits_time_out(us: float, trip: int) -> bool:
    """Tell whether a time may be that of a lost answer: one time-out of Linux or two, and round trips."""
    late = (us - count * TIME_OUT_US for count in (1, 2))
    return any(-TICK_US <= each <= RESEND_SLACK_US + 2 * trip for each in late)


def silent_owners(step: Step, bill: Bill, us: int) -> str:
    """Return who owes a silence. Where nothing came until the deadline, a probe may tell whether the other
    end of the connection lives. Behind a proxy one end cannot tell which of the two was slow. What is as long
    as a time-out may be that of an answer of one segment that was lost.
    """
    is_alive = step.evidence.is_alive
    if bill.timed_out and bill.grown("disorder"):  # it waits for what was before it
        return "loss|server"
    if bill.timed_out and not is_alive:
        return "server|path" if is_alive is None else "path|loss"
    if bill.timed_out and bill.after.lacks_full_ones:
        return "server|loss"
    if step.route.proxy:
        return "server|proxy"
    in_time = us < TIME_OUT_US or fits_time_out(us, step.evidence.trip)
    return "server|loss" if in_time and may_be_lost(step, bill, us) else "server"


def slow_text(step: Step, bill: Bill, direct: str, task: str = "") -> str:
    """Say how long whoever answers took, and that its answer may have been lost instead. It took longer if it
    held the acknowledgment back.
    """
    source = "" if step.route.source == "--proxy" else f" (from {step.route.source})"
    who = f"the proxy{source}, the way behind it or the server" if step.route.proxy else direct
    lost = ", or its answer was lost" if may_be_lost(step, bill, bill.left) else ""
    took = f"about {length_text(bill.left)}"
    if "server|path" in bill.shares:
        took = f"{length_text(bill.left)} to {length_text(bill.left + bill.shares['server|path'].us)}"
    return f"{who} took {took}{task}{lost}"


def around(step: Step) -> str:
    """Name the way around a proxy that the environment chose."""
    return "; -x '' goes without it" if step.route.proxy and step.route.source != "--proxy" else ""


def charge_dns(step: Step, bill: Bill) -> None:
    """Charge the resolver: say whom was asked, for how many names, and how many time-outs that fits."""
    resolver, answered = step.evidence.resolver, step.evidence.canonical_name
    host, _ = step.route.first_hop(step.request.url)
    asked = f" ({', '.join(resolver.servers)})" if resolver else ""
    text = f"the resolver{asked} took {length_text(bill.left)}"
    if resolver:
        names = 1 + (0 if host.endswith(".") else len(resolver.search))
        if names > 1 and (not answered or (answered == host and host.count(".") < resolver.ndots)):
            url = f"{host}." if step.route.proxy else step.request.url._replace(host=f"{host}.").text
            tells = f"one run with {clip(url)} tells whether it is the list"
            text += f" for up to {names} names (search list): {tells}"
        passed, late = divmod(bill.left + LOOKUP_EARLY_US, resolver.time_out_us)
        if passed and late <= LOOKUP_EARLY_US + LOOKUP_SLACK_US:
            text += f"; it fits {plural(passed, 'time-out', 'a')} of {resolver.time_out_us / 1e6:g} s"
            text += ": a name server gave no usable answer in time, or none for A or AAAA (-4 or -6 tells)"
    bill.charge("resolver!", bill.left, "lookup", text)


def attempts_text(step: Step) -> str:
    """Name the addresses that were tried in vain."""
    told = []
    for ip, spent, error in step.network.attempts:
        if error == GIVEN_UP:
            alone = "-6" if ":" in ip else "-4"
            if len({":" in each for each in step.network.addresses}) == 1:  # the other one is asked as well
                alone = f"--resolve {place_text(*step.route.first_hop(step.request.url))}:{ip}"
            error = f"had not answered after {length_text(spent)}: dead or far, {alone} tells"
        told += [f"{ip} {IN_VAIN.get(error, error)}"] if error else []
    return list_first(told, 3, "; ")


def charge_connect(step: Step, bill: Bill) -> None:
    """Charge for addresses in vain, a round trip, lost SYNs, a late answer to one, and what a proxy takes."""
    evidence, trip, url = step.evidence, step.evidence.trip, step.request.url
    if evidence.connected_us is None:
        bill.charge("server!" if step.route.unix_socket else "attempts!")
        return
    winner = next((each for each in step.network.attempts if not each.error), None)
    took = winner.duration_us if winner else evidence.connected_us
    in_vain = attempts_text(step)
    bill.charge("attempts!" if in_vain else "here!", evidence.connected_us - took, "attempts", in_vain)
    bill.charge("path!", trip)
    bill.charge("here!", evidence.starved.get("connect", 0))
    late, again = took - trip, bill.grown("retransmits")
    if again:
        causes = "it or its answer was lost or late (loss, a firewall, a full listen queue)"
        bill.charge("loss!", late, "loss", f"the SYN had to be sent again, {how_often(again)}: {causes}")
    elif trip and late > trip + TICK_US:
        later = f"the answer to the SYN came {length_text(late)} later than a round trip ({time_text(trip)})"
        causes = "a balancer that connects first, a radio, ARP, or a queue on the way"
        bill.charge("server|path", late, "connect", f"{later}: {causes}")
    else:
        bill.charge("path", late)
    hops = step.route.hops(url)
    tasks = [PROXY_TASKS[hop] for hop in hops[1 : len(hops) - url.secure]]
    if tasks:  # SOCKS asks twice (RFC 1928 section 3)
        bill.charge("path", trip * (len(tasks) + ("socks5" in hops)))
        fits = may_be_lost(step, bill, bill.left) and fits_time_out(bill.left, trip)
        owners, lost = ("proxy|loss", ", or its answer was lost") if fits else ("proxy", "")
        tcp = f"TCP to the proxy itself took {time_text(evidence.connected_us)}{around(step)}"
        text = f"the proxy took this long to {' and '.join(tasks)}{lost}; {tcp}"
        bill.charge(owners, bill.left, "proxy", text)
    bill.charge("path")


def charge_late(step: Step, bill: Bill, trips: int) -> None:
    """Charge for what it took longer than some round trips until what was sent was acknowledged.

    The kernel's count of that time (`busy`) tells how long the way was. An acknowledgment that is late may
    have been held back there, to go with the answer (RFC 1122 section 4.2.3.2), but not for long.
    """
    trip, busy, again = step.evidence.trip, bill.grown("busy_us"), bill.grown("retransmits")
    beyond, rtt = busy - trips * trip, bill.before.smoothed_rtt_us
    sample = rtt + 8 * (bill.after.smoothed_rtt_us - rtt)
    if bill.lost > 0 and sample < LATE_SHARE * busy:
        most = min(beyond, bill.resent_us(again) + trip)
        owners = "loss|path" if bill.timed_out else "loss!"  # it may be under way still
        bill.charge(owners, most, "loss", f"{plural(bill.lost, 'segment')} {RESENT}")
        return
    owners, why = "path", ""
    if again and fits_time_out(beyond, trip):  # what was lost may be its acknowledgment
        owners, why = "path|loss", "it was lost, or "
    elif not again and beyond <= HELD_BACK_US:
        owners, why = "server|path", "the server held it back, or "
    if beyond > TICK_US:
        later = f"{length_text(min(beyond, bill.left))} more than a round trip ({time_text(trip)})"
        causes = f"{why}a queue on the way, a radio, another route"
        bill.charge(owners, beyond, "path", f"an acknowledgment took {later}: {causes}")


def charge_tls(step: Step, bill: Bill) -> None:
    """Charge for what this machine computed, for round trips, and who answers with the rest."""
    evidence, trips = step.evidence, 1 if step.network.tls.version in (None, "TLSv1.3") else 2
    quiet = evidence.sent.quiet_us if evidence.sent else 0  # since the other side's last segment
    bill.charge("path!", trips * evidence.trip)
    bill.charge("here!", max(quiet if quiet > TICK_US else 0, evidence.starved.get("tls", 0)))
    charge_late(step, bill, trips)
    text = slow_text(step, bill, "the server, or a box in between,", " to answer the handshake")
    bill.charge(silent_owners(step, bill, bill.left), bill.left, "tls_slow", text + around(step))


def upload_of(step: Step, bill: Bill, flights: int) -> tuple[int, str, str]:
    """Return how long a request of several round trips took to be acknowledged, who held it up, and the text.

    The other side's window did where it was shut, or ran empty: its program reads no faster, or the line
    behind it does not. While a window of HTTP/2 did, the kernel had nothing to count: then what is known is
    when the last byte left. A line has a queue, in which round trips grow; those of a path that has grown
    are alike, and so many as are needed take all of the time.
    """
    evidence, took = step.evidence, bill.grown("busy_us")
    held = max(bill.grown("limited_us"), evidence.held_us)
    if evidence.held_us:
        took = max(took, (step.timing.send or 0) + evidence.trip)
    owners, why = "line|server", "the line, this machine's way out, or a program there that reads no faster"
    if held > WINDOW_SHARE * took:
        small = f"its window is small (shut for {length_text(held)})"
        owners, why = "server|line", f"the program there reads no faster, or {small}; or the line"
    elif bill.after.smoothed_rtt_us >= QUEUE_TRIPS * evidence.trip:
        owners, why = "line", "the line, or this machine's way out"
        if ALIKE * took <= flights * bill.after.smoothed_rtt_us <= took:
            owners, why = "line|path", "the line, this machine's way out, or a path that has grown"
    compares = "; --vs --http1.1 compares" if evidence.held_us else ""
    size = bill.after.since(evidence.begun, "acknowledged")  # much of it may have left before the wait
    size, shown = min(evidence.request_bytes, size), min(step.timing.wait or 0, took)
    mbit = size * 8 / max(1, shown)
    rate = f"{mbit:.1f} Mbit/s" if mbit >= 1 else f"{mbit * 1000:.0f} kbit/s"
    text = f"sending {size_text(size)} took {length_text(shown)}: {rate}: {why}{compares}"
    return took, owners, text


def charge_upload(step: Step, bill: Bill, flights: int) -> None:
    """Charge for the time until a request of several round trips was acknowledged: for all of them but one,
    for losses, and for the rate. What comes after that is left.
    """
    trip, size = step.evidence.trip, step.evidence.request_bytes
    took, owners, text = upload_of(step, bill, flights)
    after_it = min(bill.left, max(0, (step.timing.wait or 0) - took))
    bill.left -= after_it
    if bill.after.path_mtu < bill.before.path_mtu:  # a router has told it: what was too large was sent again
        bill.charge("path!")
    resent = bill.resent_us(bill.lost) if bill.lost > 0 and owners == "line|server" else 0
    flown, windows, more = took - resent, (flights - 1) * trip, max(1, flights // MORE_FLIGHTS)
    if not needs_only(flown, flights + more, trip):
        windows = slow_start_us(size, bill.before.segment, trip, flown - trip)
    needs = f"the request has {size_text(size)}: it needs {flights} round trips of {time_text(trip)}"
    bill.charge("path!" if needs_only(flown, flights, trip) else "path", windows, "path", needs)
    owner, why = "loss|path" if bill.timed_out else "loss!", ""
    if bill.lost > FEW_LOST:
        owner, why = "loss|line", ", or a rate limit"
    bill.charge(owner, resent, "loss", f"{plural(bill.lost, 'segment')} {RESENT}{why}")
    if needs_only(bill.left, more, trip):  # windows may have grown a little more slowly
        bill.charge(f"path|{owners.partition('|')[0]}")
    bill.charge(owners, bill.left, "upload", text)
    bill.left += after_it


def longest_first(timings: Iterable[Metric]) -> list[Metric]:
    """Return metrics by falling duration, those without one at the end."""
    return sorted(timings, key=lambda metric: (metric.duration_ms is None, -(metric.duration_ms or 0)))


def charge_wait(step: Step, bill: Bill) -> None:
    """Charge for a round trip, for what came out of order and waited for a lost segment, for the request, and
    who answers with the rest; say what the server says itself.
    """
    evidence, last = step.evidence, step.evidence.ended
    bill.charge("path!", evidence.trip)
    bill.charge("here!", evidence.starved.get("wait", 0))
    torn = "parts of the answer were here, and waited for one that was lost on the way"
    if last and last.lacks_full_ones:
        torn += "; or packets of 1,500 bytes do not get through (MTU)"
    bill.charge("loss!", evidence.early_us, "loss", torn)
    if evidence.sent and last:
        flights = round_trips(evidence.request_bytes, evidence.sent.segment)
        charge_late(step, bill, 1) if flights == 1 else charge_upload(step, bill, flights)
    direct = "the server, or what is behind it,"
    if evidence.early_us:  # it may have been here since the look before
        bill.charge("server|loss", LOOK_NS // 1000, "server", slow_text(step, bill, direct))
    text = slow_text(step, bill, direct)
    longest = next((each for each in longest_first(metrics_of(step)) if each.duration_ms), None)
    if longest and 1 <= (longest.duration_ms or 0) <= (step.timing.wait or 0) / 1000:
        who = "the server" if step.route.proxy else "it"
        text += f"; {who} reports {longest.duration_ms:.0f} ms itself ({clip(longest.name, MAX_FOREIGN)})"
    if bill.left in NAGLE_US and 0 < evidence.trip < NAGLE_TRIP_US:
        text += "; 40 ms is also what a delayed acknowledgment takes: TCP_NODELAY"
    bill.charge(silent_owners(step, bill, bill.left), bill.left, "server", text + around(step))


def charge_pauses(step: Step, bill: Bill, here: int) -> None:
    """Charge for the times in which nothing came, in a part of which this process waited for a CPU. After an
    acknowledgment that was late they may be the round trips of a path that has grown.
    """
    evidence, pauses, who = step.evidence, step.evidence.pauses, "proxy" if step.route.proxy else "server"
    text = f"the {who} sent nothing for {length_text(pauses.us)}"
    if pauses.number > 1:
        longest = f"{pauses.number} pauses, the longest {length_text(pauses.longest_us)}"
        whole = length_text(step.timing.xfer or 0)
        text = f"the {who} sent in pieces: {length_text(pauses.us)} of {whole} in {longest}"
    elif may_be_lost(step, bill, pauses.us):
        text += ", or what it sent was lost"
    owners = silent_owners(step, bill, pauses.us if pauses.number == 1 else 0)
    late = bill.before.since(evidence.sent, "busy_us")
    if round_trips(evidence.request_bytes, bill.before.segment) > 1:  # that was an upload
        late = 0
    if owners == "server" and late > evidence.trip + TICK_US and pauses.longest_us <= 2 * late:
        owners, text = "server|path", f"{text}; or the path has grown"
    bill.charge(owners, pauses.us - here, "pauses", text)


def pace_of(step: Step, bill: Bill, idle: int) -> tuple[str, str]:
    """Return who may have set the pace of a body, and how to say it. It came in pieces if most of the time
    was `idle`: between them there were up to two round trips.
    """
    if needs_only(bill.left, 1, step.evidence.trip):
        owners = "loss|path" if bill.grown("disorder") else "line|path"
        return owners, ": a round trip more, the line, or a loss"
    if bill.grown("disorder"):
        return "line|loss", ": the line, a rate limit, or segments that were lost"
    if bill.left < READ_LATE * step.evidence.starved.get("xfer", 0):
        return "line|here", ": the line, or this process, which read it late"
    if 2 * idle > bill.left:
        return "server|line", " in pieces up to two round trips apart: the server, or a small buffer"
    return "line|server", " without a pause: the line, a rate limit or a small buffer"


def charge_xfer(step: Step, bill: Bill) -> None:
    """Charge for losses, pauses, flights of the slow start, and all else, in which bytes came at a rate."""
    trip, pauses, size = step.evidence.trip, step.evidence.pauses, step.body_bytes
    here = step.evidence.starved.get("xfer", 0)  # nothing is read then, and what comes next may wait for that
    bill.charge("here!", here)
    flowing, flights = bill.left - pauses.us - pauses.lost_us, round_trips(size, bill.before.segment)
    windows = (flights - 1) * trip
    if not needs_only(flowing, flights, trip) and trip > 2 * QUIET_US:  # a line that is slow is seldom idle
        windows = min(windows, pauses.flights_us)
    # What came behind a segment that was missing took its time on the line, too.
    behind_us = pauses.behind * max(0, flowing - windows) // max(1, size - pauses.behind)
    torn = "what came waited for a segment that was lost or late on the way"
    bill.charge("loss!", pauses.lost_us - behind_us, "loss", torn)
    charge_pauses(step, bill, here)
    text = f"{size_text(size)} in {length_text(bill.left)}: {rate_text(size, bill.left)}"
    bill.charge("path", windows)
    owners, why = pace_of(step, bill, pauses.flights_us - windows)
    is_little = owners.endswith("path") and 2 * bill.left < step.timing.total
    bill.charge(owners, bill.left, "body", "" if is_little else f"{text}{why}")


CHARGES = (charge_dns, charge_connect, charge_tls, charge_wait, charge_xfer)  # in the order of PHASES


def owed(shares: Iterable[Share]) -> int:
    """Return the sum of some shares, in us."""
    return sum(share.us for share in shares)


# ---------------------------------------------------------------------------------------------------------
# 23b. Findings. What is worth saying of a step's account; notes, what to try, and what redirects took.
WORTH_US, SLOW_US = 5_000, 50_000  # a finding costs so much at least: less than 50 ms may be computing
LEAST_US = {"attempts": WORTH_US, "loss": WORTH_US, "server": NAGLE_US.start, "starved": STARVED_US}
WORTH_SHARE = 0.1  # of its step's total
CHAIN_SHARE = 0.3  # of a chain's total, that the steps before the last take at least


def findings_of(step: Step, bills: Iterable[Bill]) -> tuple[Finding, ...]:
    """Return which findings are worth telling, the costliest first. Of the phase in which a step failed that
    is said with the failure, but not whether a failed lookup fits time-outs.
    """
    total, trip = step.timing.total, step.evidence.trip
    failed = step.error.phase if step.error and step.error.kind != "dns" else None
    here, path = ([each for each in step.account if each.owners == owner] for owner in ("here", "path"))
    starved = "this process waited for a CPU, or computed: its times may be too long by this"
    made = [found for bill in bills if bill.phase != failed for found in bill.findings.values()]
    made.append(Finding("starved", None, owed(here), "seen", starved, "here"))
    made = [each for each in made if each.cost_us >= max(LEAST_US.get(each.id, SLOW_US), WORTH_SHARE * total)]
    if owed(path) >= max(SLOW_US, total / 2) and not any(each.owner == "path" for each in made):
        far = "connecting took this long: a far server, a queue or a loss on the way"  # no kernel tells
        if trip:
            saved = round(owed(each for each in path if each.phase in ("connect", "tls")) / trip)
            trips = f"{plural(round(owed(path) / trip), 'round trip')} of {time_text(trip)}"
            far = f"{trips}: a far server, or a queue on the way"
            far += f"; a kept connection saves {saved}" if saved else ""
        made.append(Finding("path", None, owed(path), "fits", far, "path"))
    return tuple(sorted(made, key=lambda finding: -finding.cost_us))


def step_notes(step: Step) -> Iterator[str]:
    """Say what is odd about an answer, what a proxy refused, that a client certificate is missing."""
    url, tls, status = step.request.url, step.network.tls, step.status or 0
    if tls.wanted and tls.client_cert is None and 400 <= status < 500:
        yield "the server asked for a client certificate, and none was given: --cert PATH"
    yield from step.notes
    forwarder = step.route.forwarder(url)
    if forwarder and step.response and status in (403, 407):
        who = f"the proxy {forwarder.shown}{', or the server behind it,' if status == 403 else ''}"
        hint = refusal_hint(step.response, "proxy-authorization" in field_names(step.sent_headers))
        yield f"{who} refused the request ({status}). {hint}"
    location = (step.answer and step.answer.get("location")) or ""
    plain = f"http://{re.escape(place_text(*url.place))}(?![0-9])"
    if url.secure and status in REDIRECTS and re.match(plain, location, re.IGNORECASE):
        why = "the server does not know that it is asked over TLS (X-Forwarded-Proto)"
        yield f"the redirect leads from https to http on the same port: {why}"


def silence_hint(step: Step, bill: Bill, pending: int) -> str:
    """Say what a time-out means by what the kernel had counted: something was lost, or nothing came. So many
    bytes are `pending`: sent, and not acknowledged.
    """
    ip, is_alive, segment = step.network.ip or "", step.evidence.is_alive, bill.after.segment
    size = 1452 if ":" in ip else 1472  # what is left of 1,500 bytes by the headers of IP and ICMP
    large = f" Or packets of 1,500 bytes may not get through: MTU; try ping -M do -s {size} {ip}."
    if segment > JUMBO_FRAME:
        large = ""
    if pending and bill.grown("retransmits"):
        lost = f"Lost or late on the way: {pending} bytes were sent again and not acknowledged"
        return f"{lost}; check routing and firewalls.{large if pending > SMALL_PACKET else ''}"
    if bill.grown("disorder"):
        return f"Lost on the way: what came waits for a segment before it.{large}"
    if pending:
        return ""
    silent = ", and nothing came back"
    if not is_alive:  # else it has acknowledged a probe since
        silent = f" {length_text(bill.after.heard_us)} ago, and nothing came since"
    if step.timing.xfer is not None or bill.grown("received"):
        silent = f", and nothing more came for {length_text(bill.after.quiet_us)}"
    who = {
        None: "the program (look at its load and log), or the path: ping it",
        True: "the machine answers: the program behind the port is silent (look at its load and log), or "
        "its answers are lost",
        False: "a probe had no answer either, so the path is dead, or the host",
    }[is_alive]
    if not bill.after.lacks_full_ones or is_alive is False:  # a full one came, or none can
        large = ""
    return f"All that was sent was acknowledged{silent}: {who}; or {RAISE_M}{large}"


def time_out_hint(step: Step, bill: Bill) -> str:
    """Say what a time-out in tls, wait or xfer means: by what its bill says of an upload, by the length of
    the body, by the kernel's counters. Empty where nothing tells: of the way behind a proxy they say nothing.
    """
    network, last, response = step.network, bill.after, step.response
    told, framing = "", {"content-length", "transfer-encoding"}
    if response and response.http_version != "HTTP/2" and not framing & field_names(response.headers):
        told = "Without Content-Length or chunks only closing the connection ends it: the server does not."
    if not step.evidence.ended or last.sent is None:
        return told
    sent, acknowledged = (last.since(step.evidence.begun, name) for name in ("sent", "acknowledged"))
    pending, upload = max(0, sent - acknowledged), bill.findings.get("upload")
    is_direct = not (told or step.route.proxy) and network.ip
    is_lost = bill.grown("retransmits") and last.heard_us >= LEAST_QUIET_US
    held = is_direct and not is_lost and (pending or step.timing.send == step.timing.wait)
    if upload and held and acknowledged > last.segment:
        return f"{upload.text[0].upper()}{upload.text[1:]}; or {RAISE_M}"
    if bill.grown("received") and last.quiet_us < LEAST_QUIET_US:  # it still flows
        return ""
    if network.idle_us is not None and bill.grown("retransmits") and not acknowledged:
        return FORGOTTEN_HINT.format(network.idle_us / 1e6)
    return silence_hint(step, bill, pending) if is_direct else told


def what_to_try(step: Step, bills: Mapping[str, Bill], spent_us: int) -> str:
    """Return what to try after a failure; `spent_us` is what the whole chain has taken."""
    error, ended, route = step.error, step.evidence.ended, step.route
    assert error
    hint, spent, is_late = error.hint, getattr(step.timing, error.phase) or 0, error.kind == "timeout"
    if is_late and error.phase in ("tls", "wait", "xfer"):
        hint = time_out_hint(step, bills[error.phase]) or hint
    if step.network.attempts[1:] and all(each.error for each in step.network.attempts):
        hint = f"{attempts_text(step)}. {hint}"
    quiet = min(ended.quiet_us if ended else 0, step.timing.xfer or 0)
    if not is_late and quiet >= 2 * LEAST_QUIET_US:
        hint = f"Nothing came for {length_text(quiet)} before that. {hint}"
    if is_late and step.timing.total and spent < spent_us / 2:
        early = f"What came before left {error.phase} only {length_text(spent)} of that time"
        hint = f"{early}: look there first; or {RAISE_M}" if spent < LEAST_LEFT_US else f"{early}. {hint}"
    if route.proxy and route.source != "--proxy" and error.kind != "redirect":
        hint += f" The proxy is that of {route.source}: -x '' goes without it."
    return hint


def accounted(step: Step, spent_us: int) -> Step:
    """Return a step with its account, its findings, and what to try; `spent_us` is that of its chain."""
    bills = {phase: Bill(step, phase) for phase in PHASES}
    for bill, charge in zip(bills.values(), CHARGES):
        charge(step, bill)
    step = step._replace(account=tuple(share for bill in bills.values() for share in bill.shares.values()))
    step = step._replace(findings=findings_of(step, bills.values()))
    if not step.error:
        return step
    return step._replace(error=step.error._replace(hint=what_to_try(step, bills, spent_us)))


def loop_text(run: Run) -> str:
    """Name the first step of a loop, which repeats an earlier one. Of a chain that was cut off without a loop
    say that it redirects again.
    """
    seen: dict[tuple[str, Url], int] = {}
    status = run.steps[-1].status
    for step in run.steps if status is None or status in REDIRECTS else ():  # else it came to an end
        asked = (step.request.method, step.request.url)
        first = seen.setdefault(asked, step.number)
        led_astray = step.error and step.error.kind == "redirect"  # nothing was asked for it
        if first < step.number and not led_astray:
            return f"; step {step.number} asks what step {first} asked: a loop"
    return "; the last step redirects again" if run.limit_reached else ""


def chain_findings(run: Run) -> tuple[Finding, ...]:
    """Return what the times of a whole chain mean."""
    before = sum(step.timing.total for step in run.steps[:-1])
    total = before + run.steps[-1].timing.total
    if before < max(WORTH_US, CHAIN_SHARE * total):
        return ()
    text = f"{plural(len(run.steps) - 1, 'redirect', 'a')} took {time_text(before)} of {time_text(total)}"
    return (Finding("redirects", None, before, "seen", text + run.loop),)


# ---------------------------------------------------------------------------------------------------------
# 23c. Events. The last steps of runs -> what has changed from one run to the next.
def clock_text(moment: datetime.datetime) -> str:
    """Return the local time of day."""
    return moment.astimezone().strftime("%H:%M:%S")


def whole_ms(us: float) -> str:
    """Return a time in whole ms; with a decimal where it is below 10 ms."""
    return f"{us / 1000:.{int(us < 10_000)}f}"


def failed_where(failure: Failure) -> str:
    """Say in which phase a step failed; a bad redirect fails before any phase."""
    return "before the request" if failure.kind == "redirect" else f"in {failure.phase}"


def label_of(step: Step) -> str:
    """Say how a run ended, by its last step."""
    return f"failed {failed_where(step.error)}" if step.error else str(step.status)


def outcome_of(step: Step) -> str:
    """Say how a run ended; where there was no connection, why."""
    attempts = step.network.attempts
    reason = attempts[-1].error if attempts and step.error and step.error.phase == "connect" else None
    return reason or label_of(step)


STEADY, STAYS = 5, 3  # runs in a row that have a trait before it changes, and another one after that
MAX_WATCHED = 64  # traits: a server may send ever new fields


def change_text(event: SeriesEvent) -> str:
    where = " ".join(filter(None, (f"run {event.run}", event.variant)))
    return f"{clock_text(event.at)} {where}: {event.text}"


class Streak(NamedTuple):
    """Runs in a row that have the same value of a trait."""

    value: str
    runs: int
    first: Step


class Watch:
    """Finds what changes from one run of a side to the next, by the last steps of its runs."""

    def __init__(self) -> None:
        self._first: Step | None = None  # of the runs in a row that end alike
        self._runs = 0  # in that row
        # By trait the newest streak, and one before it; none of those that change now and then.
        self._traits: dict[str, list[Streak]] = {}

    def add(self, step: Step) -> list[SeriesEvent]:
        found = (*self._label(step), *self._new_traits(step))
        return [
            SeriesEvent(at.started_at, at.turn.number, kind, text, at.turn.variant)
            for at, kind, text in found
        ]

    def _label(self, step: Step) -> Iterator[tuple[Step, str, str]]:
        """Give how a run ended, if it is not as the run before; of the first run, if it is not good."""
        first = self._first
        if first and label_of(step) == label_of(first):
            self._runs += 1
            return
        if first:
            before, runs = label_of(first), plural(self._runs, "run")
            us = (step.started_at - first.started_at) / datetime.timedelta(microseconds=1)
            span = length_text(max(0, us))  # clocks are set back
            kind = "recovered" if step.good and not first.good else "status"
            yield step, kind, f"{outcome_of(first)} -> {outcome_of(step)} ({before} for {runs}, {span})"
        elif not step.good:
            yield step, "status", outcome_of(step)
        self._first, self._runs = step, 1

    def _new_traits(self, step: Step) -> Iterator[tuple[Step, str, str]]:
        """Give the traits that have changed once, and have stayed so since; with the first run that had them.
        Of a run that is not good only address, certificate and protocol tell something.
        """
        facts = step.facts
        for name, value in (traits_of(step) if step.good else facts).items():
            if name not in self._traits and len(self._traits) == MAX_WATCHED:
                continue
            streaks = self._traits.setdefault(name, [Streak(value, 0, step)])
            if streaks and streaks[-1].value == value:
                streaks[-1] = streaks[-1]._replace(runs=streaks[-1].runs + 1)
            elif len(streaks) == 1 and streaks[0].runs >= STEADY:
                streaks.append(Streak(value, 1, step))
            else:
                streaks.clear()
            if len(streaks) == 2 and streaks[1].runs == STAYS:
                kind = name if name in facts else "trait"
                yield streaks[1].first, kind, f"{name} {streaks.pop(0).value} -> {value}"


# ---------------------------------------------------------------------------------------------------------
# 23d. Report. The runs of a series, as it keeps them, and all that is made of them.
KEPT_FIELDS, FIELD_COST = 4096, 100  # bytes of header fields, with what each takes beside its text
KEPT_CHAINS = 64  # of certificates: a server may send ever new ones
KEPT_NAMES = 100  # of a certificate: each run has them in its export


@lru_cache(4096, typed=True)
def known_already(value: Any) -> Any:
    """Return a value, or an earlier one that equals it: many runs have it alike."""
    return value


def kept_fields(headers: Sequence[Header]) -> tuple[Header, ...]:
    sizes = accumulate(len(name) + len(value) + FIELD_COST for name, value in headers)
    return tuple(known_already(field) for field, size in zip(headers, sizes) if size <= KEPT_FIELDS)


def fit_to_keep(step: Step, agreed: dict[TlsInfo, TlsInfo]) -> Step:
    """Return a step, once its findings were made, so that ten thousand can be kept; `agreed` is what TLS has
    agreed on in those before. A reason, a note and a page are short already.
    """
    network, response, tls = step.network, step.response, step.network.tls
    if len(agreed) < KEPT_CHAINS and tls not in agreed:
        chain = (each._replace(names=each.names and each.names[:KEPT_NAMES]) for each in tls.chain)
        agreed[tls] = tls._replace(chain=tuple(chain))
    return step._replace(
        url=known_already(clip(step.url)),
        request=known_already(step.request._replace(url=step.request.url._replace(target=""))),
        sent_headers=known_already(kept_fields(step.sent_headers)),
        route=known_already(step.route),
        network=network._replace(
            addresses=known_already(network.addresses[:MAX_ADDRESSES]),
            attempts=network.attempts[:MAX_ADDRESSES],
            tls=agreed.get(tls) or tls._replace(chain=(), first_to_end=None),
        ),
        response=response and response._replace(headers=kept_fields(response.headers)),
    )


class Report:
    """The runs of a series, and what is shown, written and judged of them: computed once, at the end."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.host = os.uname().nodename  # this machine's name
        self.planned = options.series.rounds  # runs, if it is not stopped
        self.late = 0  # starts, because of the run before
        self.interrupted = ""  # what is said of the run that a signal ended
        self.told = False  # what has changed was told as it came
        self.lookup_us: int | None = None  # what the lookup of the addresses took, None without one
        self.variants: Sequence[str | None] = (None,)  # in the order of the report
        self.runs: list[Run] = []  # in the order of measurement
        self.events: list[SeriesEvent] = []
        self._agreed: dict[TlsInfo, TlsInfo] = {}  # what TLS agreed on, once each
        self._watches: dict[str | None, Watch] = {}  # by variant

    def add(self, run: Run) -> tuple[Run, list[SeriesEvent]]:
        """Keep a run; return it with its findings and its verdict, and what has changed."""
        options, spent = self.options, sum(step.timing.total for step in run.steps)
        steps = [accounted(step, spent) for step in run.steps]
        plain = {key: budget for key, budget in options.thresholds.items() if "." not in key}
        if not options.series.single:
            steps = [fit_to_keep(step, self._agreed) for step in steps]
        run = run._replace(steps=tuple(steps), loop=loop_text(run))  # by whole URLs, which are not kept
        run = run._replace(verdict=judge_all(options._replace(thresholds=plain), [run]))
        self.runs.append(run)
        watch = self._watches.setdefault(run.turn.variant, Watch())
        events = watch.add(steps[-1]._replace(started_at=steps[0].started_at))
        self.events += events
        return run, events

    @property
    def duration_us(self) -> int:
        """Return the time from the first start to the last end."""
        return (self.runs[-1].ended - self.runs[0].started) // 1000

    @cached_property
    def by_variant(self) -> dict[str | None, list[Run]]:
        groups = group_by(lambda run: run.turn.variant, self.runs)
        return {variant: groups[variant] for variant in self.variants if variant in groups}

    @cached_property
    def summaries(self) -> tuple[Summary, ...]:
        """Return a summary for each step of a chain: by variant, then step, as runs come to them."""
        steps = (step for runs in self.by_variant.values() for run in runs for step in run.steps)
        groups = group_by(lambda step: (step.turn.variant, step.number), steps)
        return tuple(map(Summary, groups.values()))

    @cached_property
    def chains(self) -> dict[str | None, Summary]:
        return {name: Summary(list(map(chain_of, runs))) for name, runs in self.by_variant.items()}

    @property
    def compared(self) -> dict[str, Summary | Baseline]:
        """Return what is compared by name: the chains of variants, or the last step and a baseline."""
        if self.options.baseline:
            return {BEFORE: self.options.baseline, NOW: self.summaries[-1]}
        return {name: chain for name, chain in self.chains.items() if name is not None}

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Compare each other side with the first, or a series with a baseline; addresses with the first that
        gives a good answer, if there is one; nothing with a first side that was never measured.
        """
        sides, first = list(self.compared.values()), self.options.baseline or self.compared.get(SIDES[0])
        if not (first or self.options.sides):
            first = next((side for side in sides if side.good), None)
        others = [side for side in sides if isinstance(side, Summary) and side is not first]
        return [compare(side, first, max(1, len(others))) for side in others] if first else []

    @cached_property
    def verdicts(self) -> dict[str | None, Verdict]:
        """Return the verdict on each variant; none where every step failed: a dead host is no slow one."""
        parts = self.by_variant.items() if any(run.judged for run in self.runs) else ()
        verdicts = {name: judge_all(self.options, runs, self.comparisons) for name, runs in parts}
        return {name: verdict for name, verdict in verdicts.items() if verdict}

    @cached_property
    def verdict(self) -> Verdict | None:
        found = self.verdicts.values()
        return Verdict(tuple(each for verdict in found for each in verdict.judgements)) if found else None

    def exit_code(self, written: bool = True) -> ExitCode:
        """Return the exit code; `written` is that nothing failed to be written."""
        last = [run.steps[-1] for run in self.runs]
        reasons = {
            ExitCode.REDIRECT_LIMIT: any(run.limit_reached for run in self.runs),
            ExitCode.NETWORK: any(step.error for step in last),  # no other step can fail
            ExitCode.WRITE: not written,
            ExitCode.HTTP_ERROR: self.options.fail and not all(step.good for step in last),
            ExitCode.SLO: self.verdict is not None and not self.verdict.passed,
            ExitCode.OK: True,
        }
        return next(code for code in ExitCode if reasons.get(code))

    @cached_property
    def only_run(self) -> Run | None:
        """Return the run of a series of one, which is shown in a form of its own."""
        single = self.options.series.single
        return self.runs[0]._replace(verdict=self.verdicts.get(None)) if single else None


# ---------------------------------------------------------------------------------------------------------
# 24. Words. Numbers and names -> text; the machine-readable lines.
SUMMARY_KEYS = (*PHASES, "ttfb", "total")  # each is the name of its tone (SHADES), too
SUMMARY_STATS = ("min", "median", "p95", "max")
RATED_US = 50_000  # a shorter time says little about the rate
WORD = {True: "pass", False: "fail"}
NONE_GOOD = "no answer was good, so the statistics are of all answers"


def visible(text: str) -> str:
    """Show as escapes what is not printable (controls, bidi overrides, line separators, surrogates). Break by
    a backslash what some CI runners obey anywhere in a line: `##vso[…]`, `##[…]`.
    """
    text = re.sub(r"##(?=[A-Za-z]*\[)", r"#\\#", text)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else codecs.unicode_escape_encode(char)[0].decode("ascii") for char in text
    )


def amount_text(count: int, coding: str | None, us: int | None) -> str:
    """Return a size with its coding, and its rate where the time is long enough to tell one."""
    text = size_text(count)
    if count and coding:
        text += f" ({clip(coding, MAX_FOREIGN)})"
    if count and us and us >= RATED_US:
        text += f" at {rate_text(count, us)}"
    return text


def plain_number(value: float) -> str:
    """Return 500 for 500.0, 0.5 for 0.5."""
    return f"{value:.15g}"


def instant_text(moment: datetime.datetime, to: str = "milliseconds") -> str:
    """Return RFC 3339, UTC, to the millisecond or to the second."""
    return moment.isoformat(timespec=to).replace("+00:00", "Z")


def verdict_tokens(verdict: Verdict) -> Iterator[str]:
    undecided = verdict.keys(UNDECIDED)
    if undecided:
        yield f"undecided={','.join(undecided)}"
    yield f"slo={WORD[verdict.passed]}"
    failed = verdict.keys("exceeded", NOT_JUDGED)
    if failed:
        yield "slo_violations=" + ",".join(failed)


def drawn_keys(step: Step) -> list[str]:
    """Return the times that are shown of a step: without TLS there is none of it."""
    return [key for key in SUMMARY_KEYS if key != "tls" or step.request.url.secure]


def step_title(step: Step, single: bool) -> str:
    """Return what the line of a step begins with; in a series that is its run, and its address or side."""
    if single:
        return f"Step {step.number}"
    return " ".join(filter(None, (f"Run {step.turn.number} Step {step.number}", step.turn.variant)))


def time_tokens(times: Mapping[str, float | None], compact: bool) -> list[str]:
    """Return times (us) in ms, as the lines of both formats have them; `-` stands for what does not exist."""
    decimals, unit = (1, "ms") if compact else (3, "")
    in_ms = ((name, to_ms(us)) for name, us in times.items())  # rounded as in documents
    return [f"{name}={'-' if ms is None else f'{ms:.{decimals}f}{unit}'}" for name, ms in in_ms]


def step_times(step: Step, keys: Iterable[str], compact: bool) -> str:
    return " ".join(time_tokens({key: getattr(step.timing, key) for key in keys}, compact))


def metrics_line(step: Step, verdict: Verdict | None, single: bool) -> str:
    network, (times, more) = step.network, (step_times(step, keys, False) for keys in LINE_KEYS)
    family, version = network.ip and family_of(network.ip), network.tls.version
    proxy = step.route.proxy.shown if step.route.proxy else "direct"
    tokens = [f"{times} status={step.status or 0} bytes={step.body_bytes} ip={network.ip or '-'}"]
    tokens.append(f"family={family or '-'} tls_version={version or '-'} proxy={proxy} {more}")
    if not single:
        tokens.append(f"at={instant_text(step.started_at)}")
    if step.error:
        tokens.append(f"error={step.error.kind}")
    if verdict:
        tokens += verdict_tokens(verdict)
    return f"{step_title(step, single)}: " + " ".join(tokens)


def compact_line(step: Step, single: bool) -> str:
    times, more = (step_times(step, keys, True) for keys in LINE_KEYS)
    outcome = f"{step.error.kind}: {step.error.message}" if step.error else size_text(step.body_bytes)
    when = "" if single else f"{clock_text(step.started_at)} "
    asked = f"{step.status or 'ERROR'} {step.request.method} {clip(step.url)}"
    return f"{when}{step_title(step, single)}: {asked} | {times} | {outcome} | {more}"


def run_lines(run: Run, options: Options) -> list[str]:
    """Return a line for each step of a run; the last one that was answered has the verdict."""
    single = options.series.single
    if options.style == "compact":
        return [compact_line(step, single) for step in run.steps]
    return [metrics_line(step, run.verdict if step is run.judged else None, single) for step in run.steps]


def variant_fields(variant: str | None) -> dict[str, str | None]:
    """Name a variant as documents do: an address as `target`, a side as `side`."""
    is_side = variant is not None and variant in SIDES
    return {"target": None if is_side else variant, "side": variant if is_side else None}


def outcome_tokens(variant: str | None, report: Report, compact: bool) -> Iterator[str]:
    """Give the tokens of a variant's comparison and of its budgets."""
    for comparison in report.comparisons:
        if comparison.own.variant != variant:
            continue
        total = comparison.differences["total"]
        low, high = total.interval or (None, None)
        ends = {"total_diff": total.median, "total_diff_low": low, "total_diff_high": high}
        yield from time_tokens(ends, compact)
        yield f"verdict={comparison.verdict}"
    verdict = report.verdicts.get(variant)
    if verdict:
        yield from verdict_tokens(verdict)


def summary_lines(report: Report, compact: bool) -> Iterator[str]:
    """Give the key=value line of each summary; a variant's last one has the outcome too."""
    last = {summary.variant: summary for summary in report.summaries}
    keys, stats = (SUMMARY_KEYS[-2:], SUMMARY_STATS[1:]) if compact else (SUMMARY_KEYS, SUMMARY_STATS)
    for summary in report.summaries:
        counts = {name: getattr(summary, name) for name in ("runs", "failed", "bad_status")}
        counts.update({"n": len(summary.used)} if compact else {"late": report.late})
        tokens = [f"{name}={count}" for name, count in counts.items()]
        times = {f"{key}_{name}": summary.stat(key, name) for key, name in product(keys, stats)}
        tokens += time_tokens(times, compact)
        if summary.failed == summary.runs:
            tokens.append(f"error={','.join(summary.errors)}")
        tokens += [f"{name}={value}" for name, value in variant_fields(summary.variant).items() if value]
        if summary is last[summary.variant]:
            tokens += outcome_tokens(summary.variant, report, compact)
        yield f"Summary {summary.number}: " + " ".join(tokens)


def stop_text(chain: Chain | None) -> str:
    """Say where a run was when it was stopped; nothing before its clock started."""
    if not (chain and chain.started and chain.current.log.start):
        return ""
    log, spent = chain.current.log, time.perf_counter_ns() - chain.started
    text = f"stopped in {log.phase} after {length_text(spent / 1000)}"
    peer = log.dials[-1].peer if log.dials else None
    whose = ", the proxy" if chain.current.route.proxy else ""
    return f"{text} ({peer.ip} port {peer.address[1]}{whose})" if peer else text


def progress_text(report: Report, chain: Chain | None) -> str:
    """Say which run of a series is under way, how many have failed, and how much of -m that run has taken."""
    options, parts = report.options, []
    if not options.series.single:
        of_all = "" if options.series.duration else f" of {report.planned}"
        parts.append(f"run {len(report.runs) + 1}{of_all}")
    failed = sum(run.steps[-1].error is not None for run in report.runs)
    if failed:
        parts.append(f"{failed} failed")
    if chain and chain.started:
        spent = (time.perf_counter_ns() - chain.started) / 1e9
        parts.append(f"{spent:.1f} of {options.max_time:g} s")
    return ", ".join(parts)


def bad_answers_text(report: Report) -> str:
    """Say how many of the answers that budgets are for were not good; nothing where all were."""
    bad = [str(run.judged.status) for run in report.runs if run.judged and not run.judged.good]
    if not bad:
        return ""
    what = "error page" if report.options.expected == GOOD_STATUSES else "status not as expected"
    where = "" if report.only_run else f" in {len(bad)} of {len(report.runs)} runs"
    return f"{what} ({list_first(sorted(set(bad)))}){where}"


def not_judged_texts(verdict: Verdict, report: Report) -> Iterator[str]:
    """Say of each key that was not judged why."""
    for key in verdict.keys(NOT_JUDGED):
        those = (each.lacking for each in verdict.having(NOT_JUDGED) if each.key == key)
        kept = " on a kept connection" if report.options.series.reuse else ""
        names = ", ".join(dict.fromkeys(name for lacking in those for name in lacking))
        yield f"{key}: not judged, too few good answers{kept}{names and f' at {names}'}"


def budget_texts(verdict: Verdict, report: Report) -> Iterator[str]:
    """Say by how much each budget was exceeded, where, and in which run most, or why it was not judged."""
    for each in verdict.violations:
        text = f"{each.key}: {round(each.actual or 0, 3)}ms > {plain_number(each.threshold)}ms"
        text += f" (+{round(each.excess, 3)}ms)"
        text += f" at {each.variant}" if each.variant else ""
        yield text + (f", worst in run {each.run}" if each.run and not report.only_run else "")
    yield from not_judged_texts(verdict, report)
    end = verdict.certificate
    if end and end.outcome == "exceeded":
        text = "cert: no certificate came"
        if end.actual is not None:
            days, least = (plural(int(each), "day") for each in (end.actual, end.threshold))
            text = f"cert: {days} < {least} ({clip(end.certificate, MAX_FOREIGN)})"
        yield f"{text} at {end.variant}" if end.variant else text


def limit_texts(report: Report) -> Iterator[str]:
    """Say after how many redirects chains were stopped, and in how many runs."""
    limited, count = [run for run in report.runs if run.limit_reached], len(report.runs)
    some = f" in {len(limited)} of {count} runs" if count > 1 else ""
    if limited:
        yield f"after {MAX_REDIRECTS} redirects{some}{limited[0].loop} (exit 47)"


def note_texts(report: Report) -> Iterator[str]:
    """Say what is odd about answers, and of a series in how many runs."""
    each = (dict.fromkeys(note for step in run.steps for note in step_notes(step)) for run in report.runs)
    counts = collections.Counter(note for notes in each for note in notes)
    for note, often in counts.most_common()[:MOST_LISTED]:
        yield note if report.only_run else f"in {often} of {len(report.runs)} runs {note}"


def asides(report: Report) -> Iterator[str]:
    """Give what is said beside lines, and with -s why the exit code is not 0; a waterfall has rows for it."""
    style, verdict = report.options.style, report.verdict
    if style != "waterfall":
        yield from (f"stopped {text}" for text in limit_texts(report))
    if style == "metrics" and verdict:
        yield from not_judged_texts(verdict, report)
    if style in ("metrics", "compact"):
        yield from note_texts(report)
        if not report.only_run and any(summary.none_good for summary in report.summaries):
            yield NONE_GOOD
    if style == "silent" and verdict:
        yield from budget_texts(verdict, report)
    if style == "silent" and report.options.fail:
        yield from filter(None, [bad_answers_text(report)])


# ---------------------------------------------------------------------------------------------------------
# 25a. Documents, JSON. Report -> values.
UNSENT = {None: None, "not known": None, "not asked for": False, "not sent": False}  # client certificates


def header_list(headers: Iterable[Header]) -> list[dict[str, str]]:
    """Return header fields; the values of credentials are masked."""
    return [
        {"name": name, "value": "***" if is_credential(name, value) else decode(value)}
        for name, value in headers
    ]


def certificate_document(certificate: Certificate, now: datetime.datetime) -> dict[str, Any]:
    return {
        "cn": certificate.common_name,
        "sans": certificate.names,
        "issuer": certificate.issuer,
        "serial": certificate.serial,
        "sha256": certificate.sha256,
        "not_before": certificate.not_before and instant_text(certificate.not_before, "seconds"),
        "not_after": certificate.not_after and instant_text(certificate.not_after, "seconds"),
        "days_left": certificate.not_after and (certificate.not_after - now).days,  # below 0: it is over
    }


def network_document(step: Step) -> dict[str, Any]:
    """Return how the server was reached, as far as it was, and what TLS agreed on."""
    network, route, tls = step.network, step.route, step.network.tls
    own = certificate_document(tls.certificate or NO_CERTIFICATE, step.started_at)
    return {
        "ip": network.ip,
        "ip_family": network.ip and family_of(network.ip),
        "port": network.port,
        "unix_socket": route.unix_socket,
        "local_ip": network.local_ip,
        "addresses": list(network.addresses),
        "attempts": [{"ip": ip, "duration_ms": us / 1000, "error": why} for ip, us, why in network.attempts],
        "http_version": step.response and step.response.http_version,
        "alpn": tls.alpn,
        "tls_version": tls.version and tls.version.replace("v", " "),
        "tls_cipher": tls.cipher,
        **{f"cert_{name}": value for name, value in own.items()},
        "cert_chain": [certificate_document(each, step.started_at) for each in tls.chain],
        "tls_verified": tls.verified,
        "tls_custom_ca": tls.custom_ca,
        "client_cert": UNSENT.get(tls.client_cert, True),
        "proxy_url": route.proxy and route.proxy.shown,
        "proxy_source": route.source,
        "tcp_rtt_ms": to_ms(network.rtt_us),
        "tcp_retransmits": network.retransmits,
        "reused": network.reused,
        "reuse_refused": network.reuse_refused,
        "idle_ms": to_ms(network.idle_us),
    }


def response_document(step: Step) -> dict[str, Any] | None:
    """Return what came, and what it says of itself."""
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
        "location": response.get("location"),
        "headers": header_list(response.headers),
        "interim": list(step.interim),
        "server_timing": [metric._asdict() for metric in metrics_of(step)],
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    document = finding._asdict()
    document["cost_ms"] = document.pop("cost_us") / 1000
    return document


def step_document(step: Step) -> dict[str, Any]:
    return {
        "step_number": step.number,
        "url": step.url,
        "started_at": instant_text(step.started_at),
        "request": {
            "method": step.request.method,
            "headers": header_list(step.sent_headers),
            "body_bytes": len(step.request.data),
        },
        "timing": {f"{key}_ms": to_ms(getattr(step.timing, key)) for key in STAT_KEYS},
        "network": network_document(step),
        "response": response_document(step),
        "error": step.error and step.error._asdict(),
        "account": [
            {"owner": owner, "or": other, "phase": phase, "ms": us / 1000, "certainty": certainty}
            for owner, phase, us, certainty, other in step.account
        ],
        "findings": list(map(finding_document, step.findings)),
    }


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    violations = []
    for each in verdict.violations:
        fields: dict[str, Any] = {"key": each.key, "threshold_ms": each.threshold, "actual_ms": each.actual}
        fields.update(delta_ms=each.excess, run_number=each.run, **variant_fields(each.variant))
        if each.allowance:
            fields["baseline_ms"] = each.baseline
        violations.append(fields)
    document = {
        "pass": verdict.passed,
        "thresholds_ms": {key: each.threshold for key, each in verdict.thresholds.items()},
        "violations": violations,
        "not_judged": verdict.keys(NOT_JUDGED),
        "undecided": verdict.keys(UNDECIDED),
    }
    end = verdict.certificate
    if end:
        kept = end.outcome == "kept"
        document["certificate"] = {"threshold_days": end.threshold, "actual_days": end.actual, "pass": kept}
    return document


def run_fields(run: Run) -> dict[str, Any]:
    """Return the fields that a single run and each run of a series have, except for the steps."""
    steps, last = run.steps, run.steps[-1]
    summary: dict[str, Any] = {
        "total_time_ms": sum(step.timing.total for step in steps) / 1000,
        "final_status": last.status,
        "final_url": last.url,
        "final_bytes": last.body_bytes,
        "errors": sum(1 for step in steps if step.error),
        "findings": list(map(finding_document, chain_findings(run))),
    }
    if run.verdict:
        summary["slo"] = verdict_document(run.verdict)
    fields: dict[str, Any] = {"trace_id": run.trace_id} if run.trace_id else {}
    return {**fields, "total_steps": len(steps), "summary": summary}


def run_document(run: Run) -> dict[str, Any]:
    return {
        "run_number": run.turn.number,
        "round": run.turn.round,
        **variant_fields(run.turn.variant),
        "started_at": instant_text(run.steps[0].started_at),
        **run_fields(run),
        "steps": [step_document(step) for step in run.steps],
    }


def distribution_document(distribution: Distribution) -> dict[str, Any]:
    interval = distribution.interval and list(map(to_ms, distribution.interval))
    return {**{name: to_ms(us) for name, us in distribution.stats.items()}, "median_ci95": interval}


def slow_document(slow: Slow) -> dict[str, Any]:
    pattern, companion = slow.pattern, slow.companion
    return {
        "runs": [step.turn.number for step in slow.runs],
        "median_ms": to_ms(median(times_of("total", slow.runs))),
        "others_ms": to_ms(median(times_of("total", slow.others))),
        "pattern": pattern
        and {
            "from_run": pattern.since and pattern.since.turn.number,
            "every_runs": pattern.every_runs,
            "every_s": round(pattern.every_us / 1e6, 3) or None,
        },
        "goes_with": companion
        and {
            "name": companion.name,
            "value": companion.value,
            "with": companion.having,
            "without": companion.others_having,
        },
    }


def statistics_document(summary: Summary) -> dict[str, Any]:
    """Return what the runs of one step have in common; times in ms."""
    return {
        **variant_fields(summary.variant),
        "step_number": summary.number,
        "url": summary.urls[0] if len(summary.urls) == 1 else None,
        "reused": summary.reused,
        "n": len(summary.used),
        "failed": summary.failed,
        "bad_status": summary.bad_status,
        "errors": summary.errors,
        "statuses": {str(status): count for status, count in summary.statuses.items()},
        **{f"{key}_ms": distribution_document(each) for key, each in summary.distributions.items()},
        **summary.beside,
        "slow": list(map(slow_document, summary.slow)),
    }


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    differences = {
        f"{key}_ms": {
            "median_ms": to_ms(each.median),
            "ci95_ms": each.interval and [to_ms(us) for us in each.interval],
        }
        for key, each in comparison.differences.items()
    }
    return {
        "side": comparison.own.variant,
        "against": comparison.names[1],
        "n": comparison.differences["total"].n,
        "verdict": comparison.verdict,
        **differences,
    }


def comparison_fields(report: Report) -> dict[str, Any]:
    """Return the fields of --versus and --baseline; none without them."""
    fields: dict[str, Any] = {}
    if report.options.sides:
        fields["sides"] = [
            {"side": name, "words": words, "url": mask_location(options.request.url.text)}
            for name, options, words in report.options.sides
        ]
    if report.options.baseline:
        before = report.options.baseline._asdict()
        fields["baseline"] = {name: before[name] for name in ("path", "started_at", "host", "label")}
    if fields:
        fields["comparisons"] = list(map(comparison_document, report.comparisons))
    return fields


def event_document(event: SeriesEvent) -> dict[str, Any]:
    return {
        "at": instant_text(event.at),
        "run_number": event.run,
        "kind": event.kind,
        "text": event.text,
        **variant_fields(event.variant),
    }


def series_fields(report: Report) -> dict[str, Any]:
    """Return the fields of a series that a single run does not have."""
    failed = sum(each.failed for each in report.summaries)  # runs, for only the last step of one can fail
    summary: dict[str, Any] = {
        "runs": len(report.runs),
        "failed": failed,
        "bad_status": sum(each.bad_status for each in report.summaries),  # only of last steps, too
        "late": report.late,
        "errors": failed,
        "duration_ms": to_ms(report.duration_us),
    }
    if report.verdict:
        summary["slo"] = verdict_document(report.verdict)
    series = report.options.series
    return {
        "count": None if series.duration else series.rounds,
        "duration_s": series.duration,
        "interval_s": series.interval,
        "lookup_ms": to_ms(report.lookup_us),
        **comparison_fields(report),
        "summary": summary,
        "statistics": [statistics_document(each) for each in report.summaries],
        "events": list(map(event_document, report.events[:MAX_EVENTS])),
        "runs": [],
    }


def json_document(report: Report) -> dict[str, Any]:
    """Return the JSON export without its last list: the steps of a single run, or the runs of a series."""
    run = report.only_run
    fields = {**run_fields(run), "steps": []} if run else series_fields(report)
    return {
        "schema_version": 2,
        "tool_version": __version__,
        "started_at": instant_text(report.runs[0].steps[0].started_at),
        "initial_url": mask_location(report.options.request.url.text),
        "host": report.host,
        "label": report.options.label,
        **fields,
    }


# ---------------------------------------------------------------------------------------------------------
# 25b. Documents, HAR 1.2: a page a run, an entry a step.
def har_page(run: Run) -> dict[str, Any]:
    first = run.steps[0]
    return {
        "startedDateTime": instant_text(first.started_at),
        "id": f"page_{run.turn.number}",
        "title": first.url,
        "pageTimings": {"onContentLoad": -1, "onLoad": (run.ended - run.started) // 1000 / 1000},
    }


def har_timings(timing: Timing) -> dict[str, float]:
    """Return HAR's phases in ms, -1 for what does not apply: connect holds ssl, wait begins after send."""
    dns, connect, tls, wait, xfer = (spent or 0 for spent in timing[:5])
    send = timing.send or 0
    return {
        "blocked": -1,
        "dns": dns / 1000 if dns else -1,
        "connect": -1 if timing.connect is None else (connect + tls) / 1000,
        "ssl": tls / 1000 if tls else -1,
        "send": send / 1000,
        "wait": (wait - send) / 1000,
        "receive": xfer / 1000,
    }


def cookie_list(headers: Iterable[Header], name: str) -> list[dict[str, str]]:
    """Return the cookies of `cookie` or `set-cookie` by name, their values masked. One without a name, which
    importers refuse, is left out (RFC 6265bis section 5.6).
    """
    pairs: list[str] = []
    for value in values_of(headers, name):
        parts = decode(value).split(";")
        pairs += parts if name == "cookie" else parts[:1]
    names = (pair.partition("=")[0].strip() for pair in pairs if "=" in pair)
    return [{"name": cookie, "value": "***"} for cookie in names if cookie]


def har_request(step: Step) -> dict[str, Any]:
    """Return what was asked. Parameters stay encoded: decoded, they might show what was not masked."""
    fields = step.url.partition("?")[2].split("&", MAX_QUERY_FIELDS)[:MAX_QUERY_FIELDS]
    pairs = [field.partition("=") for field in fields if field]
    request: dict[str, Any] = {
        "method": step.request.method,
        "url": step.url,
        "httpVersion": "HTTP/2" if step.network.tls.alpn == "h2" else "HTTP/1.1",
        "cookies": cookie_list(step.sent_headers, "cookie"),
        "headers": header_list(step.sent_headers),
        "queryString": [{"name": name, "value": value} for name, _, value in pairs],
        "headersSize": -1,
        "bodySize": len(step.request.data),
    }
    if step.request.body is not None:
        mime = next(map(decode, values_of(step.sent_headers, "content-type")), step.request.content_type)
        request["postData"] = {"mimeType": mime, "text": "", "comment": "the body is not recorded"}
    return request


def har_response(step: Step) -> dict[str, Any]:
    """Return the response; where there was none HAR asks for empty values."""
    none = Response(0, "", "unknown", ())
    response, answer = step.response or none, step.answer or none
    return {
        "status": answer.status,
        "statusText": answer.reason,
        "httpVersion": response.http_version,
        "cookies": cookie_list(response.headers, "set-cookie"),
        "headers": header_list(response.headers),
        "content": {"size": step.body_bytes, "mimeType": response.get("content-type") or "x-unknown"},
        "redirectURL": response.get("location") or "",
        "headersSize": -1,
        "bodySize": step.body_bytes,
    }


def har_entry(step: Step) -> dict[str, Any]:
    entry = {
        "pageref": f"page_{step.turn.number}",
        "startedDateTime": instant_text(step.started_at),
        "time": step.timing.total / 1000,
        "request": har_request(step),
        "response": har_response(step),
        "cache": {},
        "timings": har_timings(step.timing),
    }
    if step.network.peer:
        entry["serverIPAddress"] = step.network.peer.ip.partition("%")[0]
    if step.error:
        entry["_error"] = f"{step.error.kind} ({step.error.phase}): {step.error.message}"
    return entry


# ---------------------------------------------------------------------------------------------------------
# 25c. Documents as text. Values -> JSON that may be shown on a terminal, and kept.
def masked(value: Any, secrets: Secrets) -> Any:
    """Return a value of a document with the user's secrets masked in every text but names of fields."""
    if isinstance(value, str):
        return secrets.mask(value)
    if isinstance(value, dict) and secrets:
        return {name: masked(each, secrets) if each else each for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked(each, secrets) for each in value]
    return value


def json_text(value: dict[str, Any], secrets: Secrets, indent: int | None = 2) -> str:
    """Return JSON in ASCII without the user's secrets, and without commands for a terminal or a CI runner."""
    import json

    between = None if indent else (",", ":")
    text = json.dumps(masked(value, secrets), indent=indent, separators=between, allow_nan=False)
    return text.replace("\x7f", r"\u007f").replace("##", r"#\u0023")


def to_json(document: dict[str, Any], items: Iterable[dict[str, Any]], secrets: Secrets) -> Iterator[bytes]:
    """Give a document in pieces: `items`, one by one, replace the list at its end."""
    head, _, tail = json_text(document, secrets).rpartition("[]")
    last_line, before = head.rpartition("\n")[2], head + "["
    indent = "\n" + " " * (len(last_line) - len(last_line.lstrip()) + 2)
    for item in items:
        yield (before + indent + json_text(item, secrets).replace("\n", indent)).encode("ascii")
        before = ","
        gc.collect(0)  # what json leaves of each, which nobody else collects
    yield (indent[:-2] + "]" + tail + "\n").encode("ascii")


def json_export(report: Report) -> Iterator[bytes]:
    run = report.only_run
    items = map(step_document, run.steps) if run else map(run_document, report.runs)
    return to_json(json_document(report), items, report.options.secrets)


def har_export(report: Report) -> Iterator[bytes]:
    creator, pages = {"name": "httphases", "version": __version__}, list(map(har_page, report.runs))
    secrets = report.options.secrets
    # A URL is masked before it is split.
    steps = (step._replace(url=secrets.mask(step.url)) for run in report.runs for step in run.steps)
    log = {"version": "1.2", "creator": creator, "pages": pages, "entries": []}
    return to_json({"log": log}, map(har_entry, steps), secrets)


# ---------------------------------------------------------------------------------------------------------
# 25d. Documents, Prometheus' text format: gauges in seconds and bytes, without timestamps. What does not
#      exist has no series: a 0 would look like a very good value.
FAMILIES = {  # name and HELP, which is the same in all files: Prometheus complains if two of them differ
    "request_success": "Whether the answer was good (below 400, or as --expect says), in all runs.",
    "request_duration_seconds": "Duration of a phase of the step; of a series the median.",
    "request_duration_stat_seconds": "Phase, ttfb or total of the step over a series, by statistic.",
    "request_ttfb_seconds": "Time to the first byte of the response; of a series the median.",
    "request_elapsed_seconds": "Time of the step in all; of a series the median.",
    "response_status_code": "Status code of the response; of a series the largest.",
    "response_body_size_bytes": "Size of the body as transferred; of a series the last run's.",
    "tcp_rtt_seconds": "Smallest round trip that the kernel saw on the connection.",
    "tcp_retransmits": "Segments that the kernel sent again, and that had not arrived.",
    "cert_not_after_timestamp_seconds": "When the first of the server's certificates ends.",
    "success": "Whether no step failed and the last answer was good, in all runs.",
    "error": "Runs that failed, by the kind of failure.",
    "elapsed_seconds": "Time of all steps together; of a series the median.",
    "slo_pass": "Whether the latency budgets were kept.",
    "last_run_timestamp_seconds": "When the last run ended.",
    "runs": "Runs of the series.",
    "runs_failed": "Runs of the series that failed.",
    "runs_bad_status": "Runs of the series without an error whose answer was not good.",
}
LABEL_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
Gauge = tuple[str, dict[str, str], "float | None"]  # family, labels, value


def bounds_of(step: Step) -> tuple[int, int]:
    """Return when a step began and ended, in ns since 1970."""
    begin = round(step.started_at.timestamp() * 1e6) * 1000
    return begin, begin + step.timing.total * 1000


def variant_labels(variant: str | None) -> dict[str, str]:
    if not variant:
        return {}
    return {"side" if variant in SIDES else "address": variant}


def metrics_target(url: Url) -> str:
    """Return a URL without its query, which may hold secrets; besides, each query would make a new series."""
    return f"{url.scheme}://{place_text(*url.place)}{url.target.partition('?')[0]}"


def in_seconds(us: float | None) -> float | None:
    """Return seconds, rounded as milliseconds are in JSON."""
    return us and round(us) / 1_000_000


def step_gauges(summary: Summary, report: Report) -> Iterator[Gauge]:
    """Give the gauges of a step. Some are of the last run alone, if it came to this step."""
    newest, runs = summary.newest, report.by_variant[summary.variant]
    labels = {**variant_labels(summary.variant), "step": str(summary.number)}
    keys = drawn_keys(newest)
    times: dict[str, float | None] = {key: summary.stat(key) for key in STAT_KEYS}
    if report.only_run and newest.error:  # the phase that failed has no end
        times = {**newest.timing._asdict(), newest.error.phase or "": None, "total": None}
    for phase in filter(PHASES.__contains__, keys):
        yield "request_duration_seconds", {**labels, "phase": phase}, in_seconds(times[phase])
    for key, name in product(keys, () if report.only_run else SLO_STATS):
        named = {**labels, "phase": key, "stat": name}
        yield "request_duration_stat_seconds", named, in_seconds(summary.stat(key, name))
    alike = (step for run in runs for step in run.steps if step.number == summary.number)
    values = {
        "request_success": int(not (summary.failed or summary.bad_status)),
        "request_ttfb_seconds": in_seconds(times["ttfb"]),
        "request_elapsed_seconds": in_seconds(times["total"]),
        "response_status_code": max((each.response.status for each in alike if each.response), default=None),
    }
    if newest.turn == runs[-1].turn:
        network = newest.network
        first = network.tls.first_to_end
        end = first and first.not_after
        values["cert_not_after_timestamp_seconds"] = end.timestamp() if end else None
        values["response_body_size_bytes"] = newest.body_bytes if newest.response else None
        values["tcp_rtt_seconds"] = in_seconds(network.rtt_us)
        values["tcp_retransmits"] = network.retransmits
    for name, value in values.items():
        yield name, labels, value


def chain_gauges(report: Report) -> Iterator[Gauge]:
    for variant, whole in report.chains.items():
        labels, verdict = variant_labels(variant), report.verdicts.get(variant)
        _, end = bounds_of(report.by_variant[variant][-1].steps[-1])
        yield "success", labels, int(not (whole.failed or whole.bad_status))
        for kind, count in whole.errors.items():
            yield "error", {**labels, "kind": kind}, count
        yield "elapsed_seconds", labels, in_seconds(whole.stat("total"))
        yield "slo_pass", labels, verdict and int(verdict.passed)
        yield "last_run_timestamp_seconds", labels, end / 1e9
        if report.only_run is None:
            yield "runs", labels, whole.runs
            yield "runs_failed", labels, whole.failed
            yield "runs_bad_status", labels, whole.bad_status


def exposition(report: Report) -> Iterator[bytes]:
    """Give the metrics that there are, by family."""
    options, mask = report.options, report.options.secrets.mask
    targets = {side.name: metrics_target(side.options.request.url) for side in options.sides}
    here = metrics_target(options.request.url)
    label = {} if options.label is None else {"label": options.label}
    gauges = [gauge for summary in report.summaries for gauge in step_gauges(summary, report)]
    lines: dict[str, list[str]] = {}
    for family, labels, value in (*gauges, *chain_gauges(report)):
        if value is not None:
            named = {"target": targets.get(labels.get("side"), here), **label, **labels}
            words = ",".join(
                f'{name}="{mask(each).translate(LABEL_ESCAPES)}"' for name, each in named.items()
            )
            lines.setdefault(family, []).append(f"httphases_{family}{{{words}}} {value!r}\n")
    for family, explanation in FAMILIES.items():
        if family in lines:
            name = f"httphases_{family}"
            head = f"# HELP {name} {explanation}\n# TYPE {name} gauge\n"
            yield (head + "".join(lines[family])).encode("utf-8")


# ---------------------------------------------------------------------------------------------------------
# 25e. Documents, OTLP/JSON: a run is a trace, with a span for the chain, each step, and each of its phases.
#      Names are those of OpenTelemetry's semantic conventions; own ones begin with httphases.
INTERNAL, CLIENT = 1, 3  # SpanKind
STATUS_ERROR = 2  # StatusCode


def any_value(value: object) -> dict[str, Any]:
    """Return a value as AnyValue of OTLP/JSON, where 64 bits are a string of digits."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": whole_characters(clip(str(value)))}


def attribute_list(attributes: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return attributes as a list of KeyValue; what is None is left out."""
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items() if value is not None]


def error_type(step: Step) -> str | None:
    """Return the kind of failure, or the status that is one."""
    if step.error:
        return step.error.kind
    return str(step.status) if (step.status or 0) >= 400 else None


def step_attributes(step: Step, secrets: Secrets) -> dict[str, object]:
    """Return the attributes of a step's span, without a query: it may hold secrets. A peer may be a proxy."""
    network, route, response, tls = step.network, step.route, step.response, step.network.tls
    led_astray = step.error and step.error.kind == "redirect"
    host, port = (None, None) if led_astray else step.request.url.place
    return {
        "http.request.method": step.request.method,
        "url.full": secrets.mask(step.url).partition("?")[0],
        "server.address": host,
        "server.port": port,
        "http.request.resend_count": step.number - 1 or None,
        "error.type": error_type(step),
        "network.peer.address": route.unix_socket or network.ip,
        "tls.protocol.version": tls.version and tls.version.replace("TLSv", ""),
        "httphases.proxy": route.proxy and route.proxy.shown,
        "httphases.reused": network.reused,
        "network.peer.port": network.ip and network.port,
        "network.transport": route.unix_socket and "unix",
        "http.response.status_code": response and response.status,
        "http.response.body.size": step.body_bytes if response else None,
        "network.protocol.name": response and "http",
        "network.protocol.version": response and response.http_version.partition("/")[2],
    }


def span_document(
    run: Run, name: str, bounds: tuple[int, int], failed: bool, message: str = "", **more: Any
) -> dict[str, Any]:
    """Return a span; `more` adds fields or replaces them."""
    (begin, end), own = map(str, bounds), {"traceId": run.trace_id, "spanId": new_id(8)}
    span = {**own, "name": name, "kind": INTERNAL, "startTimeUnixNano": begin, "endTimeUnixNano": end}
    return {**span, **more, "status": {"code": STATUS_ERROR, "message": message} if failed else {}}


def step_spans(step: Step, run: Run, parent: str, secrets: Secrets) -> Iterator[dict[str, Any]]:
    """Give the span of a step, and of each of its phases that took place."""
    failed, (begin, end) = step.error and step.error.phase, bounds_of(step)
    # Without the query of a URL, and what stands behind it: a quote may be part of the query.
    told = secrets.mask(step.error.message if step.error else "")
    message, query, _ = whole_characters(told).partition("?")
    message += query and "?..."
    yield span_document(
        run,
        step.request.method,
        (begin, end),
        error_type(step) is not None,
        message,
        spanId=step.span_id,
        kind=CLIENT,
        parentSpanId=parent,
        attributes=attribute_list(step_attributes(step, secrets)),
    )
    for phase in PHASES:
        spent = getattr(step.timing, phase)
        if spent is not None and (phase != "tls" or step.url.startswith("https:")):
            bounds = (begin, begin + spent * 1000)
            yield span_document(run, phase, bounds, phase == failed, message, parentSpanId=step.span_id)
            begin += spent * 1000


def run_spans(run: Run, secrets: Secrets) -> Iterator[dict[str, Any]]:
    """Give the trace of a run: the span of the chain, then those of its steps."""
    begins, ends = zip(*map(bounds_of, run.steps))
    attributes = {
        "httphases.run_number": run.turn.number,
        **{f"httphases.{name}": value for name, value in variant_fields(run.turn.variant).items()},
        "httphases.slo_pass": run.verdict and run.verdict.passed,
    }
    failed = not run.steps[-1].good  # no other step can fail
    bounds = begins[0], max(ends)
    root = span_document(run, "httphases", bounds, failed, attributes=attribute_list(attributes))
    yield root
    for step in run.steps:
        yield from step_spans(step, run, root["spanId"], secrets)


def otlp_export(report: Report) -> Iterator[bytes]:
    """Give the trace of each run as an ExportTraceServiceRequest (OTLP/JSON), one a line."""
    options, scope = report.options, {"name": "httphases", "version": __version__}
    named = {"host.name": report.host, **options.resource, "httphases.label": options.label}
    resource = {"attributes": attribute_list(named)}
    for run in report.runs:
        scoped = {"scope": scope, "spans": list(run_spans(run, options.secrets))}
        trace = {"resourceSpans": [{"resource": resource, "scopeSpans": [scoped]}]}
        yield json_text(trace, options.secrets, indent=None).encode("ascii") + b"\n"


# ---------------------------------------------------------------------------------------------------------
# 26a. Views. Report -> neutral blocks, for any painter: what these are, and the rows of one step.
LONG_VALID = datetime.timedelta(days=30)  # of a certificate
LEVELS = " ▁▂▃▄▅▆▇█"
LABEL = 15  # columns of a label
CACHE_FIELDS = ("cache-status", "cf-cache-status", "x-cache", "age", "via")
COUNTED_TRIP_US = 1_000  # of shorter round trips the number is not told: computing takes as long
LEAST_SPENT_US = 50  # less would read 0.0 ms


class Span(NamedTuple):
    """Text in a tone, a key of SHADES."""

    text: str
    tone: str = ""

    def draw(self, _: int) -> str:
        return self.text


class Bar(NamedTuple):
    """A length on a scale from 0 to `end`."""

    begin: int
    length: int
    end: int
    tone: str

    def draw(self, width: int) -> str:
        """Draw it in as many cells as its scale has, in one at the least."""
        first, end = (round(at * width / self.end) for at in (self.begin, self.begin + self.length))
        first = min(first, width - 1)
        return " " * first + "█" * max(1, end - first)


class Strip(NamedTuple):
    """How values lie on a scale from 0 to `end`: the higher a cell is filled, the more of them."""

    values: Sequence[int]
    end: int
    tone: str

    def draw(self, width: int) -> str:
        """Draw the fullest cell full, the others in proportion."""
        counts = [0] * width
        for value in self.values:
            counts[min(width - 1, value * width // max(1, self.end))] += 1
        most = max(1, *counts)
        return "".join(LEVELS[math.ceil(count * (len(LEVELS) - 1) / most)] for count in counts)


class Fields(NamedTuple):
    """Labels and what they say, in two columns; nothing is drawn if there are no rows."""

    rows: Iterable[Row]


class Table(NamedTuple):
    """Rows below headings; a row without cells is a rule. Columns of `numbers` are aligned to the right. The
    last one, if it has no heading, takes the rest of the width; if there is none left, the widest one of text
    is folded, to the width of its heading at the least.
    """

    headings: Sequence[str]
    numbers: Sequence[str]
    rows: Sequence[Sequence[Cell]]


class Panel(NamedTuple):
    title: Span
    lines: Sequence[Line]


if TYPE_CHECKING:
    Spans = tuple[Span, ...]
    Line = Spans | Span | str  # in several tones, in one, or in the usual one
    Row = tuple[str, Line]
    Cell = Span | Bar | Strip
    Block = Line | Fields | Table | Panel


def row_of(cells: Iterable[str], tone: str = "") -> Spans:
    return tuple(Span(cell, tone) for cell in cells)


def waterfall_table(step: Step) -> Table:
    """Lay the phases of a step out in time."""
    rows: list[Sequence[Cell]] = []
    timing, failed, begin = step.timing, step.error and step.error.phase, 0
    for key in drawn_keys(step):
        length: int | None = getattr(timing, key)
        tone = "bad" if key == failed else key
        bar = Bar(begin, length, timing.total, tone) if length and key in PHASES else Span("")
        if key == "ttfb":
            rows.append(())
        rows.append((*row_of((key, time_text(length, 2)), tone), bar))
        begin += length or 0
    return Table(("Phase", "Duration", ""), ("Duration",), rows)


def attempt_rows(attempts: Sequence[Attempt]) -> Iterator[Row]:
    """Show several attempts to connect: all but one have an error. Why a single one failed is said below."""
    for ip, us, error in attempts[:MOST_LISTED] if attempts[1:] else ():
        words = f"{ip}: {error or 'connected'} after {time_text(us, 2)}"
        yield "Attempt", Span(words, "warn" if error else "")


def tls_rows(info: TlsInfo, now: datetime.datetime) -> Iterator[Row]:
    if info.version:
        verdict = Span("NOT verified (-k)", "bad")
        if info.verified:
            verdict = Span("verified with --cacert" if info.custom_ca else "verified", "good")
        yield "TLS", (Span(f"{info.version.replace('v', ' ')}, {info.cipher}, "), verdict)
    if info.certificate:
        end, expiry, tone = info.certificate.not_after, "no legible expiry", "bad"
        if end:
            expiry = f"{expiry_text(end, now)} ({end:%Y-%m-%d})"
            tone = "good" if end - now >= LONG_VALID else "bad"
        yield "Certificate", (Span(f"{clip(certificate_name(info.certificate))}, "), Span(expiry, tone))
    if info.client_cert:
        yield "Client cert", info.client_cert


def lookup_notes(step: Step) -> Iterator[str]:
    """Say if a name led to this machine, or if a search list led one with a dot elsewhere (a wildcard?)."""
    peer, resolver, found = step.network.peer, step.evidence.resolver, step.evidence.canonical_name
    host, _ = step.route.first_hop(step.request.url)
    if peer and found is not None:  # else --resolve named the address
        yield own_machine(host, peer.ip)
    if resolver and "." in host and found in [f"{host}.{domain}" for domain in resolver.search]:
        yield f"{host} is {found}, found by the search list"


def network_rows(step: Step) -> Iterator[Row]:
    """Say how the server was reached, as far as it was."""
    network, route = step.network, step.route
    if network.peer:
        whose = " (the proxy)" if route.proxy else ""
        yield "Address", f"{network.peer.ip} ({family_of(network.peer.ip)}), port {network.port}{whose}"
    if route.unix_socket is not None:
        yield "Socket", route.unix_socket
    yield from (("Note", Span(note, "warn")) for note in lookup_notes(step) if note)
    if len(network.addresses) > 1:
        yield "Resolved", list_first(network.addresses)
    yield from attempt_rows(network.attempts)
    if route.proxy:
        yield "Proxy", f"{route.proxy.shown} (from {route.source})"
    if step.response:
        protocol, alpn = step.response.http_version, network.tls.alpn
        if network.tls.lacks_h2:
            protocol += " (HTTP/2 was not offered: the package h2 is not here)"
        elif alpn:
            protocol += f" (ALPN {alpn})"
        yield "Protocol", protocol
    yield from tls_rows(network.tls, step.started_at)
    if network.interface and network.local_ip:
        yield "From", f"{network.local_ip} (--interface {network.interface})"
    if network.rtt_us is not None:
        again = f", {plural(network.retransmits, 'retransmit')}" if network.retransmits else ""
        yield "Network", f"round trip {network.rtt_us / 1000:.2f} ms{again}"


def claim_rows(step: Step, response: Response) -> Iterator[Row]:
    """Show what the response of a step says of itself; nothing of it was measured."""
    said = [f"{name}: {decode(value)}" for name, value in response.headers if name.lower() in CACHE_FIELDS]
    if said:
        yield "Cache", clip("; ".join(said), MAX_FOREIGN)
    for metric in longest_first(metrics_of(step)):
        words = clip(metric.name, MAX_FOREIGN)
        if metric.duration_ms is not None:
            words += f" {clip(time_text(metric.duration_ms * 1000, 2), 20)}"
        if metric.description:
            words += f" ({clip(metric.description, MAX_FOREIGN)})"
        yield "Server says", words


def response_rows(step: Step, options: Options) -> Iterator[Row]:
    """Say what was sent and what came."""
    response = step.response
    if step.request.body is not None and step.timing.send is not None:
        whole = "" if step.evidence.sent_whole else ", not sent whole"
        yield "Request", f"body of {size_text(len(step.request.body))}{whole}"
    if response:
        body = amount_text(step.body_bytes, response.get("content-encoding"), step.timing.xfer)
        status = f"{response.status} {clip(response.reason)}".strip()
        delay = clip(response.get("retry-after") or "", MAX_FOREIGN)
        retry = delay and f"retry after {delay}{'' if parse_digits(delay) is None else ' s'}"
        media = clip(response.get("content-type") or "")
        server = clip(response.get("server") or "", MAX_FOREIGN)
        parts = (status, retry, body, media, server and f"from {server}")
        yield "Response", ", ".join(filter(None, parts))
        location = response.get("location")
        if location is not None:
            stops = response.status in REDIRECTS and not options.follow
            yield "Location", clip(location) + (" (not followed: -L)" if stops else "")
        yield from claim_rows(step, response)
        for header in header_list(response.headers) if options.include else ():
            yield "Header", (Span(f"{clip(header['name'])}: ", "strong"), Span(clip(header["value"])))


def why_rows(error: Failure, often: str = "") -> Iterator[Row]:
    """Say why a step failed, and what to try; of a series, how `often` it failed so."""
    yield "Why", Span(clip(error.message) + often, "bad")
    yield "Try", clip(error.hint)


def owners_text(shares: Sequence[Share], trip: int) -> str:
    """Say who owes a time; of the path how many round trips that is, if they are long and did not grow."""
    us, owners = owed(shares), shares[0].owners
    text = f"{whole_ms(us)} ms {owners.replace('|', ' or ')}"
    grew = any(share.certainty == "fits" and share.phase in ("tls", "wait") for share in shares)
    count = round(us / trip) if owners == "path" and trip >= COUNTED_TRIP_US and not grew else 0
    return f"{text} ({plural(count, 'round trip')} of {whole_ms(trip)})" if count > 1 else text


def spent_row(step: Step) -> Iterator[Row]:
    """Say who owes the step's time, the most first; a hundredth of it, and what reads 0.0, is left out."""
    groups = sorted(group_by(attrgetter("owners"), step.account).values(), key=owed, reverse=True)
    shown = [alike for alike in groups if owed(alike) >= max(LEAST_SPENT_US, step.timing.total / 100)]
    if shown:
        yield "Spent", ", ".join(owners_text(alike, step.evidence.trip) for alike in shown)


def cause_row(finding: Finding, often: str = "") -> Row:
    """Show a finding and what it cost; of a series, how `often` it came too."""
    parts = [finding.phase, often or length_text(finding.cost_us)]
    return "Cause", (Span(", ".join(filter(None, parts)) + ": ", "strong"), Span(finding.text))


# ---------------------------------------------------------------------------------------------------------
# 26b. Views of a run. The blocks of a step, of a chain and of its budgets.
def status_span(step: Step) -> Span:
    """Return the status of a step, in the tone of what it means."""
    return Span(str(step.status or "ERROR"), "good" if step.good else "bad")


def step_rows(step: Step, before: Step | None, options: Options) -> Iterator[Row]:
    """Show connection and response of a step; rows that say the same as one step before are only named, but
    for times. A series has the error page and what is odd for all of its runs.
    """
    rows, known = list(network_rows(step)), list(network_rows(before)) if before else []
    same = [row for row in rows if row in known and row[0] != "Network"]
    if before and same:
        yield "Same", f"as step {before.number}: {', '.join(label for label, _ in same)}"
    yield from (row for row in rows if row not in same)
    yield from response_rows(step, options)
    if step.page and not step.good:
        yield "It says", step.page
    yield from (("Note", Span(note, "warn")) for note in step_notes(step))


def step_blocks(step: Step, before: Step | None, options: Options) -> Iterator[Block]:
    title = f"{step.request.method} {clip(step.url)} "
    yield (*row_of((f"Step {step.number}: ", title), "strong"), status_span(step))
    yield Fields(step_rows(step, before, options))
    error, spent = step.error, ""
    if error is None or error.phase != PHASES[0]:
        yield waterfall_table(step)
    elif step.timing.total:  # there is no more to draw
        spent = f" after {time_text(step.timing.total, 2)}"
    failed: list[Row] = []
    if error:
        kind = "" if error.kind == error.phase else f"{error.kind}, "
        where = f"{failed_where(error)}{spent} ({kind}exit {ExitCode.NETWORK})"
        failed = [("Failed", Span(where, "bad")), *why_rows(error)]
    yield Fields([*failed, *spent_row(step), *map(cause_row, step.findings[:SHOWN_FINDINGS])])


def chain_table(run: Run, width: int, secrets: Secrets) -> Table:
    """Show the steps of a chain on one time axis. Of a long URL the middle is left out."""
    end, begin, tail = sum(step.timing.total for step in run.steps), 0, width // 6 - 4
    rows: list[Sequence[Cell]] = []
    for step in run.steps:
        url, spent = secrets.mask(step.url), step.timing.total
        shown = url if len(url) <= 3 * tail else f"{url[: 2 * tail]}…{url[-tail:]}"
        status, total = status_span(step), Span(time_text(step.timing.total, 2))
        bar = Bar(begin, spent, end, status.tone) if spent else Span("")
        rows.append((Span(str(step.number)), status, total, Span(shown), bar))
        begin += spent
    rows += [(), row_of(("", "", time_text(end, 2), "in all", ""), "strong")]
    return Table(("Step", "Status", "Total", "Request", ""), ("Step", "Total"), rows)


def allowance_texts(verdict: Verdict, values: str) -> Iterator[str]:
    """Show the differences that relative budgets were held against, with their intervals; if these do not
    decide, how many `values` would.
    """
    for each in verdict.judgements:
        if each.allowance and each.difference:
            _, least, _ = each.difference
            percent = each.allowance.percent and each.baseline > max(0, -least)  # below -100 % says nothing
            unit, per_ms = ("%", 100 / each.baseline) if percent else ("ms", 1.0)
            size, low, high = (f"{ms * per_ms:+.1f}".replace("-", "−") for ms in each.difference)
            where = f" at {each.variant}" if each.variant else ""
            allowed = f"+{plain_number(each.allowance.amount)} {'%' if each.allowance.percent else 'ms'}"
            text = f"{each.key}{where}: {size} {unit} ({low} to {high} {unit}), allowed {allowed}"
            if each.outcome != UNDECIDED:
                yield text
            elif each.enough > MAX_COUNT:
                yield f"? {text}: too close to tell"
            else:
                enough = plain_number(float(f"{each.enough:.2g}"))
                yield f"? {text}: cannot tell yet; about {enough} {values} would"


def slo_panel(verdict: Verdict, report: Report) -> Panel:
    tone, icon = ("good", "✓") if verdict.passed else ("bad", "✗")
    undecided, title = ",".join(verdict.keys(UNDECIDED)), f"SLO: {WORD[verdict.passed]}"
    if undecided and verdict.passed:
        tone, icon, title = "warn", "?", f"{title} ({undecided} undecided)"
    budgets = [f"{key}≤{plain_number(each.threshold)}ms" for key, each in verdict.thresholds.items()]
    end = verdict.certificate
    if end:
        budgets.append(f"cert≥{plural(int(end.threshold), 'day')}")
    lines: list[Line] = [(Span("Thresholds: ", "strong"), Span("  ".join(budgets) or "-"))]
    if verdict.thresholds and not report.options.allowances and any(run.steps[1:] for run in report.runs):
        lines.append("of the last step that did not fail, without those before it")
    bad = bad_answers_text(report)
    if bad:
        lines.append(Span(bad if report.options.fail else f"{bad}: -f makes that exit 22", "bad"))
    lines += allowance_texts(verdict, "runs of both" if report.options.baseline else "rounds")
    if not verdict.passed:
        lines.append(Span("Violations:", "strong"))
    lines += [Span(f"• {text}", "bad") for text in budget_texts(verdict, report)]
    return Panel(Span(f"{icon} {title}", tone), lines)


def run_blocks(run: Run, options: Options, width: int) -> Iterator[Block]:
    for step, before in zip(run.steps, (None, *run.steps)):
        yield from step_blocks(step, before, options)
    if len(run.steps) > 1:
        yield Span("Redirect Chain Summary", "strong")
        yield chain_table(run, width, options.secrets)
        if not run.limit_reached:  # the row `Stopped` says as much
            yield Fields(map(cause_row, chain_findings(run)))


# ---------------------------------------------------------------------------------------------------------
# 26c. Views of a series. A header, how the times lie, and what is odd.
OVER_TIME_RUNS, OVER_TIME_CELLS = 20, 40  # a series of so many good runs has a strip; its most cells
LARGE_PART = 0.2  # of a difference: an owner with a smaller part is not named
LEAST_CHANGE, LEAST_CHANGE_US = 0.1, 1_000  # of its medians: less is not drawn
SHOWN_CHANGES = 20  # in a report


def spread_blocks(summary: Summary) -> Iterator[Block]:
    """Show how the times (ms) lie."""
    end = max(times_of("total", summary.used))
    which = f"Times of the {plural(len(summary.used), 'good run')}"
    which += " on a kept connection" if summary.reused else ""
    if summary.none_good:
        which = "No answer was good; times of all answers"
    yield f"{which}, in ms; distribution from 0 to {time_text(end, 2, '')}:"
    rows: list[Sequence[Cell]] = []
    for key in drawn_keys(summary.used[0]):
        figures = (time_text(summary.stat(key, name), 2, "") for name in SUMMARY_STATS)
        if key == "ttfb":
            rows.append(())
        rows.append((*row_of((key, *figures), key), Strip(times_of(key, summary.used), end, key)))
    yield Table(("Phase", *SUMMARY_STATS, ""), SUMMARY_STATS, rows)


def series_title(summary: Summary, report: Report) -> str:
    """Say how many runs a step had, how they ended, and how long the series took."""
    parts = [plural(summary.runs, "run")]
    if summary.failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in summary.errors.items())
        parts.append(f"{summary.failed} failed ({kinds})")
    statuses = [f"status {status}: {count}" for status, count in summary.statuses.items()]
    parts += [list_first(statuses)] if statuses else []
    if report.late:
        parts.append(plural(report.late, "late start"))
    of_all = f"of {len(report.runs)} " if summary.runs < len(report.runs) else ""
    return ", ".join([*parts, f"{of_all}in {length_text(report.duration_us)}"])


def reuse_rows(summary: Summary) -> Iterator[Row]:
    """Say why connections were not kept."""
    name = f"{summary.variant}: " if summary.variant else ""
    for reason, count in summary.refused.most_common()[:MOST_LISTED]:
        yield "Not reused", Span(f"{name}{plural(count, 'run')}: {reason}", "warn")


def over_time_rows(steps: Sequence[Step]) -> Iterator[Row]:
    """Draw the totals of a series as they came: the medians of its slices, from the least to the largest."""
    if len(steps) < OVER_TIME_RUNS:
        return
    totals, size = times_of("total", steps), math.ceil(len(steps) / OVER_TIME_CELLS)
    medians = [median(totals[at : at + size]) for at in range(0, len(totals), size)]
    least, most = min(medians), max(medians)
    if most - least < max(LEAST_CHANGE_US, LEAST_CHANGE * least):
        return
    levels = LEVELS[1:]
    drawn = "".join(levels[round((each - least) / (most - least) * (len(levels) - 1))] for each in medians)
    yield "Over time", drawn
    scale = f"{levels[0]} {whole_ms(least)} ms, {levels[-1]} {whole_ms(most)} ms"
    which = f"medians of {size} good runs each" if size > 1 else "good runs"
    began, ended = (clock_text(step.started_at) for step in (steps[0], steps[-1]))
    yield "", f"{scale}; {which}, from {began} to {ended}"


def companion_text(companion: Companion | None, others: Sequence[Step]) -> str:
    """Say what some runs have and others have not; if not all others were looked at, those between them."""
    if not companion:
        return ""
    every = companion.having == companion.these
    own = f"all {companion.these}" if every else f"{companion.having} of {companion.these}"
    which = "between them" if companion.others < len(others) else "others"
    few = f"{companion.others_having or 'none'} of the {companion.others} {which}"
    return f"{own} have {companion.trait}, {few}"


def listed_runs(steps: Sequence[Step]) -> str:
    """List runs, of each streak the first and the last."""
    ends = ((streak[0].turn.round, streak[-1].turn.round) for streak in streaks_of(steps))
    return list_first([f"{first}-{last}" if first < last else str(first) for first, last in ends])


def when_text(these: Sequence[Step], pattern: Pattern | None, noun: str) -> str:
    """Say in what pattern runs came, or when the only streak of them was; nothing of others."""
    first, last = these[0], these[-1]
    if pattern and pattern.since:
        return f"from {noun} {pattern.since.turn.round}, {clock_text(pattern.since.started_at)}, on"
    if pattern and pattern.every_runs:
        return f"every {pattern.every_runs} {noun}s, {length_text(pattern.every_us)} apart"
    if pattern:
        return f"about every {length_text(pattern.every_us)}"
    if len(streaks_of(these)) > 1:
        return ""
    if first is not last:
        return f"from {clock_text(first.started_at)} to {clock_text(last.started_at)}"
    cold = "the first run alone: it may have met what was cold (names, caches, routes)"
    return cold if first.turn.round == 1 else f"at {clock_text(first.started_at)}"


def several_text(ordered: Sequence[int]) -> str:
    """Show sorted times that runs had: the median, and the most if that is far off."""
    usual, most = nearest_rank(ordered, 50), ordered[-1]
    far = f", at most {whole_ms(most)}" if most >= HALF_MORE * usual else ""
    return f"{'median ' if len(ordered) > 1 else ''}{whole_ms(usual)}{far} ms"


def growth_by(field: str, slow: Slow) -> dict[str, float]:
    """Return of each owner how much (us) its shares in the slow runs are above those in the others."""

    def usual(steps: Sequence[Step], owner: str) -> float:
        return median(owed(each for each in step.account if getattr(each, field) == owner) for step in steps)

    owners = dict.fromkeys(getattr(share, field) for step in slow.runs for share in step.account)
    return {owner: usual(slow.runs, owner) - usual(slow.others, owner) for owner in owners}


def why_text(slow: Slow) -> str:
    """Name the owner whose shares grew most, if that is a good part of what the slow runs took longer; and a
    second one, where most of that may be either's.
    """
    grown, parts = growth_by("owner", slow), growth_by("owners", slow)
    owner = max(grown, key=grown.__getitem__, default="")
    owners = max((each for each in parts if each.split("|")[0] == owner), key=parts.__getitem__, default="")
    whole = median(times_of("total", slow.runs)) - median(times_of("total", slow.others))
    us = grown.get(owner, 0)
    return f"{whole_ms(us)} ms more {owners.replace('|', ' or ')}" if us >= LARGE_PART * whole else ""


def slow_rows(summary: Summary) -> Iterator[Row]:
    """Say which runs are slow, and where it is known when they come, what goes with them, and why."""
    starved = round(summary.beside["starved"] or 0)
    aside = f" ({plural(starved, 'starved one')} aside)" if starved else ""
    for label, slow in zip(("Slow", "Also slow"), summary.slow):
        totals, usual = sorted(times_of("total", slow.runs)), median(times_of("total", slow.others))
        counts = f"{len(slow.runs)} of {plural(len(slow.runs) + len(slow.others), 'run')}{aside}"
        words = f"{counts}, {several_text(totals)}, the others {whole_ms(usual)}"
        yield label, Span(f"{words}: run {listed_runs(slow.runs)}", "slow")
        when = when_text(slow.runs, slow.pattern, "run")
        companion = companion_text(slow.companion, slow.others)
        yield from (("", text) for text in (when, companion, why_text(slow)) if text)


def series_rows(summary: Summary, report: Report) -> Iterator[Row]:
    """Say what is odd about a step of a series, and what its times mean, in how many runs or in which."""
    yield from slow_rows(summary)
    yield from reuse_rows(summary)
    for finding, costs in summary.findings[:SHOWN_FINDINGS]:
        where = f"{len(costs)} of {len(summary.used) or summary.runs} runs"
        if len(costs) == 1:
            where = f"run {costs[0][1]} of {len(report.runs)}"
        yield cause_row(finding, f"in {where}, {several_text([cost for cost, _ in costs])}")


def summary_blocks(summary: Summary, report: Report) -> Iterator[Block]:
    """Show the runs of one step together."""
    url, *more = summary.urls
    url = f"various ({len(summary.urls)} URLs)" if more else clip(url)
    yield row_of((f"Step {summary.number}: ", f"{summary.newest.request.method} {url}"), "strong")
    odd = summary.failed or summary.bad_status
    yield Span(series_title(summary, report), "bad" if odd else "")
    used = summary.used
    if used:
        newest = used[-1]
        yield f"Run {newest.turn.number} had:"
        yield Fields([*network_rows(newest), *response_rows(newest, report.options), *spent_row(newest)])
        yield from spread_blocks(summary)
        yield Fields(over_time_rows(used if used[0].good else []))
    yield Fields(series_rows(summary, report))


def not_good_rows(report: Report) -> Iterator[Row]:
    """Name the runs that were not good, when they came, what goes with them, why they failed, most frequent
    reasons first, and what an error page of each status says.
    """
    advices = {ExitCode.OK: " (-f makes this exit 22)", ExitCode.HTTP_ERROR: " (exit 22)"}
    advice, pages = advices.get(report.exit_code(), ""), {}
    for variant, runs in report.by_variant.items():
        steps, noun = [run.steps[-1] for run in runs], "round" if variant else "run"
        bad, good = ([step for step in steps if step.good == is_good] for is_good in (False, True))
        if bad:
            name = f"{variant}: " if variant else ""
            alike = islice(group_by(label_of, bad).items(), MOST_LISTED)
            which = ", ".join(f"{listed_runs(these)} ({how})" for how, these in alike)
            counts = f"{name}{len(bad)} of {plural(len(steps), noun)}"
            yield "Bad runs", Span(f"{counts}: {noun} {which}{advice}", "bad")
            when = when_text(bad, find_pattern(bad, good), noun) if len(bad) > 1 else ""
            companion = companion_text(find_companion(bad, good), good)
            yield from (("", text) for text in (when, companion) if text)
        reasons = group_by(attrgetter("message"), (step.error for step in bad if step.error)).values()
        for errors in sorted(reasons, key=lambda errors: -len(errors))[:SHOWN_FINDINGS]:
            yield from why_rows(errors[-1], f" ({how_often(len(errors))})")
        pages.update({step.status: step.page for step in bad if step.page})
    for status, page in islice(pages.items(), MOST_LISTED):
        yield "It says", f"{status}: {page}"


# ---------------------------------------------------------------------------------------------------------
# 26d. Views of a comparison. A table with a row for each side, and a sentence that says which is better.
COMPARED: Sequence[str] = (*PHASES, "total")
LEAST_SIZE = 4096  # bytes: of two sides bodies that differ by less are alike


def three_digits(us: float | None) -> str:
    """Return a time in ms for a narrow column, without a sign: 0.028, 0.31, 13.3, 154, 0; "-" for none."""
    size = abs(us or 0)
    return time_text(size, 1 + (size < 9_995) + (size < 95), "") if us else time_text(us, 0, "")


def signed_ms(us: float | None) -> str:
    """Return a difference in ms for a narrow column: +0.31, −13.3, +154; 0 and none have no sign."""
    if not us:
        return three_digits(us)
    return f"{'+' if us > 0 else '−'}{three_digits(us)}"


def verdict_sentence(found: Comparison) -> str:
    """Say which of two is better, or why that is not certain; nothing where there is nothing to compare."""
    (name, against), total = found.names, found.differences["total"]
    than = "" if against == SIDES[0] else f" than {against}"
    if found.verdict == "unlike":
        answers = f"{name} answers {found.own.usual_status}, {against} {found.other.usual_status}"
        return f"{answers}: the times are of different work"
    if total.median is None:
        return ""
    if found.verdict == "too_few":
        if not (found.own.good and found.other.good):
            return f"Not compared: {against if found.own.good else name} has no good answer"
        change = f"{three_digits(total.median)} ms {'faster' if total.median < 0 else 'slower'}"
        needed = f"{found.needed} good runs of both are needed to be sure, there are {total.n}"
        return f"{name.capitalize()} is {change}{than} so far; {needed}"
    parts = ", ".join(f"{phase} {signed_ms(us)}" for phase, us in found.phases.items())
    if found.verdict == "no_difference":
        what = f"in total: {parts} ms; " if parts else "found: "
        span = "between {} ms faster and {} ms slower".format(*map(three_digits, total.interval or ()))
        return f"No difference {what}{name} is {span}{than} (95 %)"
    size, low, high = map(three_digits, (total.median, *sorted(total.interval or (), key=abs)))
    words = f"{name.capitalize()} is {found.verdict}{than}: total by {size} ms ({low} to {high})"
    return f"{words}: {parts or 'no single phase is certain'}"


def beside_rows(found: Comparison) -> Iterator[Row]:
    """Say in what else than the median two sides differ."""

    def both(texts: Iterable[str]) -> str:
        return ", ".join(map(" ".join, zip(found.names, texts)))

    sides = found.own, found.other
    trips, sizes = ([side.beside[name] for side in sides] for name in BESIDE[:2])
    usual, p95 = ([side.distributions["total"].stats[name] for side in sides] for name in ("median", "p95"))
    if are_apart(trips, HALF_MORE, 1):
        yield "Round trip", both(f"{whole_ms(1000 * (ms or 0))} ms" for ms in trips)
    if are_apart(sizes, HALF_MORE, LEAST_SIZE):
        yield "Body", both(size_text(round(size or 0)) for size in sizes)
    if are_apart(p95, 2, LEAST_SLOW_US) and not are_apart(usual, HALF_MORE, 0):
        yield "p95", both(f"{whole_ms(us or 0)} ms" for us in p95)


def trouble_rows(sides: Mapping[str, Summary | Baseline]) -> Iterator[Row]:
    """Name the sides of which packets were lost, or runs starved, more than now and then."""
    words = {"lossy": ("Losses", "packets were lost"), "starved": ("Starved", "this machine was busy")}
    for name, side in sides.items():
        for kind, (label, text) in words.items():
            count = side.beside[kind] or 0
            if 0 < FEW * side.good < count:
                yield label, Span(f"{name}: {text} in {count} of {side.good} runs", "warn")


def sides_table(report: Report) -> Table:
    """Compare sides: medians, and how far total is above the first. Nothing is looked up for an address."""
    more = {found.names[0]: signed_ms(found.differences["total"].median) for found in report.comparisons}
    what, keys, rows = "Side", COMPARED, []
    if report.options.series.every_address:
        what, keys = "Address", COMPARED[1:]
    for name, side in report.compared.items():
        times = {key: side.distributions[key].median for key in keys}
        times["tls"] = times["tls"] or None  # there is no handshake of 0 ms, only none
        figures = map(three_digits, (*times.values(), side.distributions["total"].stats["p95"]))
        rows.append(row_of((name, list_first(side.outcomes), *figures, more.get(name, ""))))
    return Table((what, "Status", *keys, "p95", "diff"), (*keys, "p95", "diff"), rows)


def comparison_blocks(report: Report) -> Iterator[Block]:
    """Show the sides in a table, and below it the outcome of each comparison, with what goes with it."""
    yield sides_table(report)
    tones = {"faster": "good", "slower": "bad", "unlike": "warn"}
    for found in report.comparisons:
        words = verdict_sentence(found)
        if words:
            yield Span(words, tones.get(found.verdict, ""))
            yield Fields(beside_rows(found) if found.verdict not in ("unlike", "too_few") else ())
    yield Fields(trouble_rows(report.compared))


def sides_blocks(report: Report) -> Iterator[Block]:
    """Show the sides of --versus, or the addresses of a name, and which is better."""
    first, sides = report.summaries[0].newest, report.options.sides
    yield Span(f"{first.request.method} {clip(first.url)}", "strong")
    what = f"{len(report.chains)} sides" if sides else "each address"
    if report.lookup_us is not None:
        what += f" (found in {time_text(report.lookup_us, 2)})"
    rounds = plural(len({run.turn.round for run in report.runs}), "round")
    starts = f", {plural(report.late, 'late start')}" if report.late else ""
    yield f"{rounds} of {what}{starts}, in {length_text(report.duration_us)}; medians in ms:"
    yield Fields([(str(side.name), clip(side.words or "the command line alone")) for side in sides])
    yield from comparison_blocks(report)
    for name, side in report.chains.items():
        if side.none_good:
            yield Span(f"{name}: {NONE_GOOD}", "warn")
        yield Fields(reuse_rows(side))


def change_rows(report: Report) -> Iterator[Row]:
    """Tell the first changes, unless they were told as they came."""
    events = [] if report.told else report.events
    shown = events[:SHOWN_CHANGES]
    yield from zip_longest(["Changes"][: len(shown)], map(change_text, shown), fillvalue="")
    if len(events) > len(shown):
        yield "", f"and {len(events) - len(shown)} more"


def series_blocks(report: Report) -> Iterator[Block]:
    if len(report.runs) < report.planned:
        runs, duration = f"{len(report.runs)} of {report.planned} runs", report.options.series.duration
        if duration:
            runs = f"{plural(len(report.runs), 'run')}, {report.duration_us / 1e6:.1f} of {duration:g} s"
        yield Span(f"Stopped after {runs}{report.interrupted}.", "warn")
    if report.runs[0].turn.variant:
        yield from sides_blocks(report)
    else:
        for summary in report.summaries:
            yield from summary_blocks(summary, report)
    yield Fields(change_rows(report))
    rows = list(not_good_rows(report))
    # An advice is said once.
    yield Fields(row for at, row in enumerate(rows) if row[0] != "Try" or row not in rows[:at])
    yield Fields(("Note", Span(text, "warn")) for text in note_texts(report))


def report_blocks(report: Report, width: int) -> Iterator[Block]:
    """Return what is drawn at the end in frames of a `width`; in compact style only the panel."""
    run, options = report.only_run, report.options
    if options.style == "waterfall":
        yield from run_blocks(run, options, width) if run else series_blocks(report)
        yield Fields(("Stopped", Span(text, "bad")) for text in limit_texts(report))
        if options.baseline:
            before = options.baseline
            known = (before.path, before.started_at, before.host, before.label, before.url)
            yield Fields([(BEFORE, clip(", ".join(filter(None, known))))])
            yield from comparison_blocks(report)
        if run and not report.verdict and report.exit_code() == ExitCode.HTTP_ERROR:
            yield Fields([("Bad run", Span(f"{bad_answers_text(report)}: exit 22", "bad"))])
    if report.verdict:
        yield slo_panel(report.verdict, report)


# ---------------------------------------------------------------------------------------------------------
# 27. Painters. Blocks -> a stream; they know nothing of HTTP. What is printed passes through `mask` and
#     `visible` here.
NARROWEST, WIDEST = 60, 120  # columns of a drawing
INDENT = 2  # columns before what is folded: the other side's words do not begin a line

# What rich calls the tones. They can be read on black and on white: their contrast is 4:1 or more (WCAG 2.1).
# No two phases in a row look alike to whoever cannot tell red from green. Terminals that say that they have
# 16 colours know these too; the nearest of the 16 could not be read on each background.
SHADES = {
    "dns": "color(30)",
    "connect": "color(63)",
    "tls": "color(130)",
    "wait": "color(133)",
    "xfer": "color(28)",
    "ttfb": "bold",
    "total": "bold",
    "strong": "bold",
    "label": "color(243)",
    "slow": "color(130)",
    "good": "color(28)",
    "warn": "color(130)",
    "bad": "color(161)",
}
ASCII_FORMS = {**dict(zip(LEVELS + "−•✗", " .:-=+*%#-*X")), "≤": "<=", "…": "...", "✓": "OK"}


def terminal_width(stream: Any) -> int:
    """Return the columns of a terminal, or 80 if the stream is none or its terminal does not know (0)."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def choose_width(stream: Any, environ: Mapping[str, str]) -> int:
    """Return the columns to draw in: COLUMNS, else the terminal's, else 80."""
    columns = parse_digits(environ.get("COLUMNS", ""), most=9999)
    return min(WIDEST, max(NARROWEST, columns or terminal_width(stream)))


def fold(text: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` characters, at blanks where there are any."""
    if len(text) <= width:
        return [text]
    return re.findall(rf"\S.{{0,{width - 1}}}(?=\s|$)|\S{{{width}}}", text)


def begin_with_own(line: str) -> str:
    """Return a line that does not begin with a command for a CI runner (`::error …::`), which the other side
    may have written so that it comes first where a line is folded. An address (`::1`) is none.
    """
    return re.sub(r"^((?:\x1b\[[0-9;]*m| )*)(?=::[A-Za-z-]+( .*)?::)", r"\1\\", line)


class Painter:
    """Draw in plain text: columns that are aligned, bars of whole cells, no frame but that of a panel."""

    gap, edges = 2, 0  # cells between two columns of a table, and at both of its ends together

    def __init__(self, stream: Any, environ: Mapping[str, str], secrets: Secrets = NO_SECRETS) -> None:
        self._stream, self._secrets, self.width = stream, secrets, choose_width(stream, environ)
        self._encoding = getattr(stream, "encoding", None) or "ascii"
        self.has_frames = self._encoding.lower().startswith("utf")
        self._forms = str.maketrans({} if self.has_frames else ASCII_FORMS)

    def paint(self, blocks: Iterable[Any]) -> None:
        lines = (line for block in blocks for line in self._draw(block))
        self._stream.write("".join(begin_with_own(line.rstrip()) + "\n" for line in lines))

    def _draw(self, block: Any) -> Any:
        drawers: dict[type, Any] = {Fields: self._fields, Table: self._table, Panel: self._panel}
        return drawers.get(type(block), self._indented)(block)

    def _printable(self, text: str) -> str:
        """Return a text as the stream can show it, the rest as escapes, before anything is laid out."""
        shown = visible(self._secrets.mask(text)).translate(self._forms)
        return shown.encode(self._encoding, "backslashreplace").decode(self._encoding)

    def _spans(self, line: Line) -> list[Span]:
        if isinstance(line, str):
            line = Span(line)
        spans = (line,) if isinstance(line, Span) else line
        return [Span(self._printable(text), tone) for text, tone in spans]

    def _columns(self, table: Table) -> tuple[list[int], list[list[Span]]]:
        """Return how wide the columns of a table are, and its rows as text; a rule has none."""
        texts = [[self._printable(cell.draw(1)) for cell in row] for row in filter(None, table.rows)]
        widths = [max(map(len, column)) for column in zip(table.headings, *texts)]
        left = self.width - sum(widths) - self.gap * (len(widths) - 1) - self.edges
        if left < 0:
            texts_alone = [at for at, heading in enumerate(table.headings) if heading not in table.numbers]
            widest = max(texts_alone, key=widths.__getitem__)
            widths[widest] = max(len(table.headings[widest]) or 1, widths[widest] + left)
        elif not table.headings[-1]:
            widths[-1] += left
        return widths, [
            [Span(self._printable(cell.draw(width)), cell.tone) for cell, width in zip(row, widths)]
            for row in table.rows
        ]

    def _line(self, line: Line, width: int) -> list[str]:
        return fold("".join(span.text for span in self._spans(line)), width)

    def _indented(self, line: Line) -> Any:
        for number, part in enumerate(self._line(line, self.width - INDENT)):
            yield part if number == 0 else " " * INDENT + part

    def _fields(self, fields: Fields) -> Any:
        for label, line in fields.rows:
            first = f"  {label}"
            for part in self._line(line, self.width - LABEL):
                yield first.ljust(LABEL) + part
                first = ""

    def _table(self, table: Table) -> Any:
        widths, rows = self._columns(table)
        for row in ([*map(Span, table.headings)], [], *rows):
            cells = [cell.text for cell in row] or ["-" * width for width in widths]
            for line in zip_longest(*map(fold, cells, widths), fillvalue=""):
                yield (" " * self.gap).join(
                    part.rjust(width) if heading in table.numbers else part.ljust(width)
                    for part, width, heading in zip(line, widths, table.headings)
                )

    def _panel(self, panel: Panel) -> Any:
        inner = self.width - 4
        yield f"+- {self._printable(panel.title.text)} ".ljust(inner + 3, "-") + "+"
        for line in panel.lines:
            yield from (f"| {part.ljust(inner)} |" for part in self._line(line, inner))
        yield f"+{'-' * (inner + 2)}+"


class RichPainter(Painter):
    """Have rich draw the same: in frames, and in colours where the stream has some."""

    gap, edges = 3, 4

    def __init__(self, stream: Any, environ: Mapping[str, str], secrets: Secrets = NO_SECRETS) -> None:
        super().__init__(stream, environ, secrets)
        # With a size of its own rich does not read COLUMNS and LINES, where it takes ² for a number. What
        # draws never sees the stream, since at a closed pipe rich would end the process: another one tells
        # the colours.
        console = partial(optional("rich.console").Console, width=self.width, height=25, force_jupyter=False)
        colours = not environ.get("NO_COLOR") and console(file=stream).color_system and "256"
        look = {"color_system": colours or None, "theme": optional("rich.theme").Theme(SHADES)}
        as_it_is = dict.fromkeys(("markup", "emoji", "highlight", "legacy_windows", "no_color"), False)
        self._console: Any = console(file=io.StringIO(), **look, **as_it_is)

    def paint(self, blocks: Iterable[Any]) -> None:
        for block in blocks:
            self._console.print(self._draw(block), crop=False)
        lines = self._console.file.getvalue().split("\n")
        self._stream.write("\n".join(begin_with_own(line.rstrip()) for line in lines))

    def _text(self, line: Line) -> Any:
        return optional("rich.text").Text.assemble(*self._spans(line))

    def _indented(self, line: Line) -> Any:
        parts = self._text(line).wrap(self._console, self.width - INDENT, overflow="fold")
        return optional("rich.text").Text("\n" + " " * INDENT).join(parts)

    def _fields(self, fields: Fields) -> Any:
        grid = optional("rich.table").Table.grid()
        grid.add_column(width=LABEL, style="label")
        grid.add_column(width=self.width - LABEL, overflow="fold")
        for label, line in fields.rows:
            grid.add_row(self._text(f"  {label}"), self._text(line))
        return grid

    def _table(self, table: Table) -> Any:
        widths, rows = self._columns(table)
        whole = sum(widths) + self.gap * (len(widths) - 1) + self.edges  # else rich folds numbers
        box = optional("rich.box").ROUNDED
        drawn = optional("rich.table").Table(box=box, header_style="strong", width=whole)
        for heading, width in zip(table.headings, widths):
            side = "right" if heading in table.numbers else "left"
            drawn.add_column(self._text(heading), justify=side, width=width, overflow="fold")
        for row in rows:
            if row:
                drawn.add_row(*map(self._text, row))
            else:
                drawn.add_section()
        return drawn

    def _panel(self, panel: Panel) -> Any:
        lines = optional("rich.text").Text("\n").join(map(self._text, panel.lines))
        title, tone = self._text(panel.title), panel.title.tone
        make = optional("rich.panel").Panel
        return make(lines, title=title, title_align="left", border_style=tone, width=self.width)


@cache
def has_rich() -> bool:
    """Import what reports need of rich; tell if it is here, and loses no characters (as before 13.7)."""
    if not all(map(optional, ("rich.console", "rich.table", "rich.panel"))):
        return False
    try:
        found: list[str] = optional("rich.cells").chop_cells("a\u5b57", 2)
    except ImportError:  # the archive has no table of the version that UNICODE_VERSION names
        return False
    return found == ["a", "\u5b57"]


def choose_painter(stream: Any, environ: Mapping[str, str], secrets: Secrets = NO_SECRETS) -> Painter:
    painter = Painter(stream, environ, secrets)
    return RichPainter(stream, environ, secrets) if painter.has_frames and has_rich() else painter


# ---------------------------------------------------------------------------------------------------------
# 28a. Main, what is outside: signals, standard streams, files. Nothing else is written to.
ECHO = 0.03  # seconds in which a second signal does not count: timeout(1) sends each signal twice


class Interruption:
    """What a signal does. It ends the process; a series that has results first stops measuring and reports.

    It never raises: a signal may come where Python swallows exceptions, as in a callback of an import.
    """

    def __init__(self) -> None:
        self.sums_up = False  # there are results to report first
        self.signal: int | None = None  # the first that came
        self.undo: Callable[[], object] = lambda: None  # to be called before the end
        self._at = 0.0  # when (time.monotonic)
        self._ending = False

    def come(self, number: int, _: object) -> None:  # at SIGINT, SIGTERM and SIGHUP
        if self.sums_up and not self.signal:
            self.signal, self._at = number, time.monotonic()
        elif not (self._ending or (number == self.signal and time.monotonic() - self._at < ECHO)):
            self._ending = True
            try:
                self.undo()
            finally:
                os._exit(128 + (self.signal or number))


INTERRUPTION = Interruption()


def write_at_once(stream: Any, text: str) -> bool:
    """Write, if that needs no waiting, past a buffer that a signal may have stopped; False if that failed."""
    try:
        ready = select.poll()
        ready.register(stream, select.POLLOUT)
        if ready.poll(0) == [(stream.fileno(), select.POLLOUT)]:
            os.write(stream.fileno(), text.encode("ascii", "replace"))
    except (OSError, ValueError):
        return False
    return True


PAUSE = 0.2  # seconds from one text of a status line to the next


class StatusLine:
    """One line on a terminal's stderr that says what is under way; it leaves nothing behind."""

    def __init__(self, stream: Any, environ: Mapping[str, str]) -> None:
        terminal = stream is not None and stream.isatty() and environ.get("TERM", "dumb") != "dumb"
        self.stream: Any = stream if terminal else None
        self._shown = False
        self._drawn = time.monotonic()

    def draw(self, text: Callable[[], str]) -> None:
        """Draw the text of now, a few times a second at most."""
        if self.stream is not None and time.monotonic() - self._drawn > PAUSE:
            self._shown, self._drawn = True, time.monotonic()
            self._write("\r" + text()[: terminal_width(self.stream) - 1] + "\x1b[K")

    def clear(self) -> None:
        if self._shown:
            self._shown = False
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        if not write_at_once(self.stream, text):
            self.stream, self._shown = None, False


def say(message: str, secrets: Secrets = NO_SECRETS) -> None:
    """Print one line on stderr, if it is still open."""
    try:
        if sys.stderr is not None:  # print(file=None) would mean stdout
            print("httphases: " + visible(secrets.mask(message)), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def is_same_place(one: Any, other: Any) -> bool:
    """Tell whether two streams lead to the same file, pipe or terminal."""
    try:
        return os.path.sameopenfile(one.fileno(), other.fileno())
    except (AttributeError, OSError, ValueError):  # one is closed
        return False


def warn(options: Options, *messages: str) -> None:
    for message in messages if options.style != "silent" else ():
        say(f"warning: {message}", options.secrets)


def try_to_write(what: str, write: Callable[[], object]) -> bool:
    """Write something and tell whether that worked; a reader that has left is no failure."""
    try:
        write()
    except BrokenPipeError:
        pass
    except (OSError, ValueError, MemoryError) as error:
        say(f"error: cannot write {what}: {reason_of(error)}")
        return False
    return True


def write_out(stream: Any, write: Callable[[], object]) -> None:
    """Write to a standard stream and flush it; raises OSError and ValueError."""
    if stream is None:
        raise OSError(errno.EBADF, "standard output is closed")
    write()
    stream.flush()


def draws(options: Options) -> bool:
    """Tell whether something is drawn: in compact style only budgets are."""
    budgets = options.thresholds or options.allowances or options.cert_days
    return options.style == "waterfall" or bool(options.style == "compact" and budgets)


def lines_text(lines: Iterable[str], options: Options) -> str:
    return "".join(visible(options.secrets.mask(line)) + "\n" for line in lines)


def write_report(report: Report, stream: Any) -> None:
    """Print the report in the chosen style; raises OSError."""
    options, run = report.options, report.only_run
    if options.style != "waterfall":
        lines = run_lines(run, options) if run else summary_lines(report, options.style == "compact")
        stream.write(lines_text(lines, options))
    if draws(options):
        painter = choose_painter(stream, options.environ, options.secrets)
        painter.paint(report_blocks(report, painter.width))


def replace_file(path: str, data: Iterable[bytes]) -> None:
    """Write a new file, with the mode that the umask gives, beside an old one, and rename it; raises OSError,
    and leaves the old one and nothing else then.
    """
    if os.path.exists(path):
        os.close(os.open(path, os.O_WRONLY))  # it may be protected where its folder is not
    name = f".httphases-{os.getpid()}-{os.urandom(4).hex()}.tmp"
    temporary = os.path.join(os.path.dirname(path), name)
    INTERRUPTION.undo = partial(os.unlink, temporary)
    try:
        with open(temporary, "xb") as file:
            file.writelines(data)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    finally:
        INTERRUPTION.undo = lambda: None


def write_file(path: str, data: Iterable[bytes]) -> None:
    """Write a file so that an old one survives every failure; raises OSError. Devices and pipes are opened as
    a shell opens them: a pipe waits for its reader. A link is followed only where the system made it.
    """
    if path in STDOUT:
        write_out(sys.stdout, lambda: sys.stdout.buffer.writelines(data))
        return
    of_system = os.path.dirname(path) in ("/dev", "/dev/fd", "/proc/self/fd")
    if os.path.islink(path) and not of_system:
        raise OSError(errno.ELOOP, "it is a symbolic link: name the file itself")
    if of_system or (os.path.exists(path) and not os.path.isfile(path)):
        INTERRUPTION.sums_up = False  # a signal ends the wait for a reader
        with open(path, "wb") as file:
            file.writelines(data)
    else:
        replace_file(path, data)


# To add one: its option among EXPORT_OPTIONS and in OPTIONS, a row here, and what makes the file, in pieces.
EXPORTS: dict[str, Callable[[Report], Iterable[bytes]]] = {
    "--json": json_export,
    "--har": har_export,
    "--otlp": otlp_export,
    "--prometheus": exposition,
}


def write_export(option: str, report: Report) -> bool:
    """Write a file that was asked for; tell whether that worked."""
    path = report.options.exports[option]
    return try_to_write(f"{option} '{path}'", lambda: write_file(path, EXPORTS[option](report)))


# ---------------------------------------------------------------------------------------------------------
# 28b. Main, a series of runs, measured one after the other: told as they end, summed up at the end.
LEAD = 20_000_000  # ns before its start that a run is prepared: earlier, what is warmed up would grow cold
SLICE = 0.05  # seconds from one look at whether the series is still wanted to the next
SWEEP = 100  # runs from one full collection of garbage, which takes some ms, to the next


class LiveReport:
    """What is printed during a series: its lines; on a terminal what has changed, and what is under way."""

    def __init__(self, report: Report) -> None:
        self._report, self._options = report, report.options
        self._silent = self._options.style == "silent"
        self.status = StatusLine(None if self._silent else sys.stderr, self._options.environ)
        # An export to stdout has it for itself, the report goes to stderr: if that is closed, no failure.
        gives_way = any(path in STDOUT for path in self._options.exports.values())
        self._stream: Any = sys.stderr if gives_way else sys.stdout
        self._has_reader = not (gives_way and self._stream is None)
        report.told = bool(self._stream and self._stream.isatty())
        self.whole = True  # all of it could be written so far
        self.chain: Chain | None = None  # the newest run

    @property
    def wanted(self) -> bool:
        """Tell whether more is to be measured: somebody reads it, and no signal has come."""
        return bool(self._options.exports or self._has_reader) and not INTERRUPTION.signal

    def draw(self) -> None:
        """Say on a terminal what is under way."""
        self.status.draw(lambda: progress_text(self._report, self.chain))

    def look(self, chain: Chain) -> None:
        """Say that a run is under way; raises Stopped when the series is to end."""
        self.chain = chain
        self.draw()
        if INTERRUPTION.signal:
            raise Stopped

    def tell(self, run: Run, events: Sequence[SeriesEvent]) -> None:
        """Say why a run failed. Of a series print its lines, and for people what has changed with it."""
        self.status.clear()
        self._say_errors(run)
        if self._options.series.single:
            return
        style = self._options.style
        lines = [] if style == "waterfall" else run_lines(run, self._options)
        if style == "compact" or (style == "waterfall" and self._report.told):
            lines += map(change_text, events)
        self._print(lambda: self._stream.write(lines_text(lines, self._options)))

    def _say_errors(self, run: Run) -> None:
        """Say on stderr why steps failed, where nobody reads it in a report that is drawn."""
        if self._options.style in ("waterfall", "compact") and is_same_place(self._stream, sys.stderr):
            return
        for step in run.steps:
            if step.error:
                title = step_title(step, self._options.series.single)
                why = f"{step.error.message.rstrip('.')}. {step.error.hint}"
                say(f"error: {title}: {why}", self._options.secrets)

    def _print(self, write: Callable[[], object]) -> None:
        """Write to the report, as long as that works and somebody reads it."""

        def attempt() -> None:
            self._has_reader = False
            write_out(self._stream, write)
            self._has_reader = True

        if self._has_reader and not self._silent:
            self.whole = try_to_write("the report", attempt)

    def end(self) -> None:
        """Print the report."""
        self._print(lambda: write_report(self._report, self._stream))
        for line in asides(self._report):
            say(line if self._silent else f"warning: {line}", self._options.secrets)

    def stop(self) -> None:
        """Leave no status line when a signal ends the process; of the first run say where it was."""
        self.status.clear()
        where = stop_text(self.chain)
        if where and not (self._report.runs or self._silent) and sys.stderr is not None:
            write_at_once(sys.stderr, f"httphases: {where}\n")


def each_start(rounds: int, report: Report, live: LiveReport) -> Iterator[tuple[int, int]]:
    """Give the number of each round when it is to be prepared, and when it is due (perf_counter_ns; 0: at
    once). That is an interval after the round before it began. Where that round took longer it is late, and
    moves the next ones. The series ends where nobody wants more, or before a start when its duration is over.
    """
    series, first, end = report.options.series, 0, math.inf
    for number in range(1, rounds + 1):
        due = now = time.perf_counter_ns()
        if number > 1:
            due = report.runs[first].started + round(series.interval * 1e9)
            end = report.runs[0].started + series.duration * 1e9 if series.duration else math.inf
        if max(due, now) >= end:
            report.planned = len(report.runs)
            return
        while live.wanted and time.perf_counter_ns() < due - LEAD:
            live.draw()
            time.sleep(min(SLICE, max(0, due - LEAD - time.perf_counter_ns()) / 1e9))
        if not live.wanted:
            return
        report.late += series.interval > 0 and due < now
        first = len(report.runs)
        yield number, due
    if series.duration and not series.interval:  # all runs that a series may have were made before its end
        report.planned += 1


def find_variants(pool: ConnectionPool, report: Report, live: LiveReport) -> Sequence[Variant]:
    """Return what is measured: the request, its sides, or its name's addresses (none if the lookup fails)."""
    options = report.options
    if not options.series.every_address:
        return options.sides or [Variant(None, options)]
    addresses = options.series.addresses
    if not addresses:
        run = Chain(options, pool, live.look, LOOKUP).measure()
        (step,) = run.steps
        if step.error:
            report.planned = 1
            live.tell(*report.add(run._replace(steps=(step._replace(turn=Turn()),), turn=Turn())))
            return []
        report.lookup_us = step.timing.total
        addresses = tuple(dict.fromkeys(step.network.addresses))
    if len(addresses) > MAX_ADDRESSES:
        warn(options, f"of {len(addresses)} addresses the first {MAX_ADDRESSES} are measured")
    place, others = options.request.url.place, options.overrides
    ways = ((address, {**others, place: address}) for address in addresses[:MAX_ADDRESSES])
    return [Variant(address, options._replace(overrides=overrides)) for address, overrides in ways]


def take_runs(pool: ConnectionPool, report: Report, live: LiveReport) -> None:
    """Measure run after run, until all are done or nobody wants more; raises UsageError for too many runs. In
    each round the order of the variants is drawn by lot, so that what a server does by turns, or every so
    often, does not always meet the same one.
    """
    series, variants = report.options.series, find_variants(pool, report, live)
    if not variants:
        return
    report.variants = [variant.name for variant in variants]
    rounds, duration, advice = series.rounds, series.duration, "--count"
    if duration is not None:
        rounds = math.ceil(duration / series.interval) if series.interval else MAX_COUNT // len(variants)
        advice = "--duration, or raise --interval"
    runs = report.planned = len(variants) * rounds
    if runs > MAX_COUNT:
        raise UsageError(f"these are {runs} runs, at most {MAX_COUNT}: lower {advice}")
    for number, due in each_start(rounds, report, live):
        for variant in sorted(variants, key=lambda _: os.urandom(8)):
            turn = Turn(len(report.runs) + 1, number, variant.name, due)
            try:
                run = Chain(variant.options, pool, live.look, turn).measure()
            except Stopped:
                where = stop_text(live.chain)
                report.interrupted = where and f"; {variant.name or 'the next'} was {where}"
                return
            told = report.add(run)
            INTERRUPTION.sums_up = not series.single
            live.tell(*told)
            live.chain = None  # else it outlives the garbage of its run, and all that came is kept with it
            if not series.single:
                # The garbage of a run is collected here, where no clock runs; older objects now and then.
                gc.collect(2 if turn.number % SWEEP == 0 else 1)


def run_series(options: Options, pool: ConnectionPool) -> int:
    """Measure a series, of one run or many; report it, and return the exit code. Raises UsageError."""
    report = Report(options)
    live = LiveReport(report)
    gc.freeze()
    INTERRUPTION.undo = live.stop
    try:
        take_runs(pool, report, live)
    finally:
        live.status.clear()
        INTERRUPTION.undo = lambda: None
        pool.close()
        gc.unfreeze()
    live.end()
    written = [write_export(option, report) for option in options.exports]
    INTERRUPTION.sums_up = False  # from here on a signal ends it at once
    return 128 + INTERRUPTION.signal if INTERRUPTION.signal else report.exit_code(all(written) and live.whole)


# ---------------------------------------------------------------------------------------------------------
# 28c. Main, from argv to exit code. Signals; where errors become codes.
def run_tool(argv: Sequence[str] | None, environ: Mapping[str, str], take_store: TakeStore) -> int:
    options = parse_options(argv, environ)
    warn(options, *options.warnings)
    versions = {side.options.http2 for side in options.sides}
    if len(versions) > 1 and options.request.url.secure and not import_h2():
        warn(options, "HTTP/2 is not offered on any side, because the package h2 is not here")
    contexts = TlsContexts(options, take_store)
    if options.request.url.secure:
        contexts.start(options.identity)
    # What is needed after the clock has started, when the archive may have been replaced.
    if options.exports:
        optional("json")
    if draws(options):
        has_rich()
    pool = ConnectionPool(contexts, options)
    for side in options.sides:  # so that a UsageError is raised now, not in a later run
        if side.options.request.url.secure:
            pool.contexts(side.name).get(side.options.identity, ("http/1.1",))
    return run_series(options, pool)


def crash_text(error: BaseException) -> str:
    """Name an internal error and the calls that led to it, the last one first. Its own words may hold a
    credential.
    """
    import traceback

    frames = traceback.walk_tb(error.__traceback__)
    calls = [f"{os.path.basename(frame.f_code.co_filename)}:{line}" for frame, line in frames]
    return f"internal error: {type(error).__name__} at {list_first(calls[::-1], 20)}"


def say_usage_error(error: UsageError, environ: Mapping[str, str]) -> None:
    """Say what is wrong with the command line, without the credentials of URLs in it."""
    words = clip(mask_urls(error.message))
    if isinstance(error, SloError):  # in its panel, whatever the format of the report would have been
        painter, panel = choose_painter(sys.stderr, environ), Panel(Span("SLO Error", "bad"), (words,))
        try_to_write("the error", partial(write_out, sys.stderr, partial(painter.paint, [panel])))
    else:
        say(f"error: {words}")


def main(argv: Sequence[str] | None = None, take_store: TakeStore = lambda: None) -> int:
    """Run the program and return its exit code; the only place where errors become codes."""
    environ = os.environ  # read here, and passed on
    try:
        return run_tool(argv, environ, take_store)
    except Answered as answer:
        text = str(answer) or help_text(choose_width(sys.stdout, environ))
        write = partial(write_out, sys.stdout, lambda: sys.stdout.write(text))
        return ExitCode.OK if try_to_write("to standard output", write) else ExitCode.WRITE
    except UsageError as error:
        say_usage_error(error, environ)
        return ExitCode.USAGE
    except Exception as error:
        refused = is_refused(error)
        say(f"error: {reason_of(error)}. {REFUSED_HINT}" if refused else crash_text(error))
        return ExitCode.INTERNAL


def claim_standard_streams() -> None:
    """Keep sockets from getting the numbers 0, 1 and 2; print all, what cannot be encoded as an escape."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open("/", os.O_RDONLY)  # takes the lowest free number
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            os.set_blocking(stream.fileno(), True)  # else a slow reader would get less than all
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def cli(take_store: TakeStore = lambda: None) -> NoReturn:
    """Run the program as a process. It leaves by os._exit: nothing waits for what a deadline left behind.
    Garbage is collected only between the runs of a series: during a run the pause would count as its time.

    The archive's launcher has a thread read the CA store meanwhile; `take_store` waits for that thread.
    """
    gc.disable()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, INTERRUPTION.come)
    # It takes an argument and prints nothing. A function of our own might have no memory to run in.
    sys.unraisablehook = callable
    claim_standard_streams()
    os._exit(main(None, take_store))


if __name__ == "__main__":
    cli()
