"""What holds for every result, whatever the request was: applied to each JSON document that a test reads."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

try:
    import jsonschema
except ImportError:  # the schema is then not looked at
    jsonschema = None

SCHEMA = json.loads((Path(__file__).parent / "httphases.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema and jsonschema.Draft202012Validator(SCHEMA)
MOST_RUNS = 20
"""Of a longer series the schema is asked about the first and the last of these: a run takes 3 ms."""

PHASES = ("dns", "connect", "tls", "wait", "xfer")
CERTIFICATE_FIELDS = "cn sans issuer serial sha256 not_before not_after days_left".split()
MICROSECOND = Decimal("0.001")
EDGE = 1.0
"""Milliseconds by which a time may fall short of the delay that made it: the instant of a byte is the
kernel's, of another clock than that of the request, and a kernel may count round trips by a coarse one."""


def exact(value: Any) -> Decimal:
    """Turn a JSON number into the decimal that was printed."""
    assert isinstance(value, (int, float)) and not isinstance(value, bool), f"{value!r} is not a number"
    return Decimal(str(value))


def check_schema(document: dict[str, Any]) -> None:
    if VALIDATOR is None:
        return
    runs = document.get("runs")
    if isinstance(runs, list) and len(runs) > 2 * MOST_RUNS:
        document = {**document, "runs": runs[:MOST_RUNS] + runs[-MOST_RUNS:]}
    problems = [f"{each.json_path}: {each.message[:300]}" for each in VALIDATOR.iter_errors(document)]
    assert not problems, problems[:10]


def check_document(document: dict[str, Any]) -> dict[str, Any]:
    """Prove the shape, the arithmetic and the consistency of a whole JSON export; return it."""
    check_schema(document)
    if "runs" in document:
        check_series(document)
    else:
        check_run(document)
    return document


def check_run(document: dict[str, Any]) -> None:
    steps = document["steps"]
    assert len(steps) == document["total_steps"]
    for number, step in enumerate(steps, 1):
        assert step["step_number"] == number
        check_step(step)
    assert all(step["error"] is None for step in steps[:-1]), "only the last step of a chain can have failed"
    starts = [document["started_at"]] + [step["started_at"] for step in steps]
    assert [parse_instant(text) for text in starts] == sorted(parse_instant(text) for text in starts)
    check_summary(document["summary"], steps)


def parse_instant(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")


def check_step(step: dict[str, Any]) -> None:
    """Prove one step: what it is of, what it says of itself, its findings and its times."""
    check_network(step["network"])
    response = step["response"]
    assert response is not None or step["error"] is not None, "neither a response nor an error"
    claims = response["server_timing"] if response else []
    assert response is None or response["status"] >= 200
    assert len(claims) <= 50 and all(metric["description"] != "" for metric in claims)
    assert all(0 <= (metric["duration_ms"] or 0) < float("inf") for metric in claims)
    if step["error"]:
        check_words(step["error"]["message"], step["error"]["hint"])
    check_account(step)
    check_findings(step["findings"], exact(step["timing"]["total_ms"]))
    for finding in step["findings"]:
        phase = finding["phase"]
        assert phase is None or exact(finding["cost_ms"]) <= exact(step["timing"][f"{phase}_ms"]), finding
    check_timeline(step)


NOT_WORDS = re.compile(
    r"0x[0-9a-f]{4}|Errno|errno|Traceback|Error\b|Exception|ssl\.c|_ssl|\[ssl|<[a-z]|\bNone\b|b'|SYSCALL"
    r"|sslv3|tlsv1"
)
"""What belongs to the source code of this program or of a library, not into a sentence."""


def check_words(message: str, hint: str) -> None:
    """Prove that a failure is told in sentences, but for what is quoted."""
    for text in (re.sub(r"(?<!\w)'.*'", "''", message), hint):
        assert not NOT_WORDS.search(text) and 15 <= len(text) <= 300, text
    assert not hint[0].islower() and hint.endswith("."), hint


def check_account(step: dict[str, Any]) -> None:
    """Prove that who owes the time adds up to it, phase by phase."""
    owed: dict[str, Decimal] = collections.defaultdict(Decimal)
    for share in step["account"]:
        owed[share["phase"]] += exact(share["ms"])
    for phase in PHASES:
        assert owed[phase] == exact(step["timing"][f"{phase}_ms"] or 0), step["account"]
    assert sum(owed.values()) == exact(step["timing"]["total_ms"])
    shares = step["findings"] and {share["owner"] for share in step["account"]}
    assert all(finding["owner"] in shares for finding in step["findings"])


def check_findings(findings: list[dict[str, Any]], total: Decimal) -> None:
    """Prove that findings are sound, worth saying, and the costliest first."""
    for finding in findings:
        assert "at least" not in finding["text"], "a remainder is none"
        assert exact(finding["cost_ms"]) >= max(Decimal(5), total / 10)
    costs = [exact(finding["cost_ms"]) for finding in findings]
    assert costs == sorted(costs, reverse=True)
    assert len({(finding["id"], finding["phase"]) for finding in findings}) == len(findings)


def check_network(network: dict[str, Any]) -> None:
    assert not (network.get("reused") and network["reuse_refused"]), "reused, and refused"
    assert network.get("reuse_refused") is None or network["reuse_refused"].strip()
    assert "{}" not in (network.get("reuse_refused") or "")
    assert (network.get("idle_ms") is not None) == bool(network.get("reused"))
    assert not network.get("reused") or network["attempts"] == network["addresses"] == []
    assert (network["ip"] is None) == (network["ip_family"] is None)
    if network["ip"] is not None:
        assert network["ip_family"] == ("IPv6" if ":" in network["ip"] else "IPv4")
    assert (network["local_ip"] is None) == (network["ip"] is None)
    if network["unix_socket"] is not None:
        assert network["ip"] is network["port"] is network["proxy_url"] is None
        assert network["attempts"] == network["addresses"] == []
    assert network["client_cert"] is None or network["tls_verified"] is not None
    for certificate in network["cert_chain"]:
        assert (certificate["not_after"] is None) == (certificate["days_left"] is None)
    own = {name: network[f"cert_{name}"] for name in CERTIFICATE_FIELDS}
    assert own == (network["cert_chain"] or [dict.fromkeys(own)])[0]
    assert network["tls_verified"] is not None or not network["cert_chain"]
    assert network["tls_verified"] is not True or network["cert_chain"]


def check_timeline(step: dict[str, Any]) -> None:
    """Prove the times of a step: none negative, none missing, none fake, sums exact to the microsecond."""
    timing = step["timing"]
    times = {name: exact(value) for name, value in timing.items() if value is not None}
    for name, value in times.items():
        assert value >= 0, f"{name} is negative"
        assert value == value.quantize(MICROSECOND), f"{name}={value} is finer than 0.001 ms"
    phases = [times.get(f"{phase}_ms") for phase in PHASES]
    assert sum(value for value in phases if value is not None) == times["total_ms"], timing
    if step["network"].get("reused"):
        assert phases[:3] == [None] * 3, "a kept connection has no time of setting it up"
        phases[:3] = [Decimal(0)] * 3
    check_reached(phases, step)
    first_byte = sum(phases[:4]) if None not in phases[:4] and phases[4] is not None else None
    assert times.get("ttfb_ms") == first_byte, timing
    if "send_ms" in times:
        assert times["send_ms"] <= times["wait_ms"]
    if step["url"].lower().startswith("http:") and phases[2] is not None:
        assert phases[2] == 0, "a TLS handshake on plain HTTP"


def check_reached(phases: list[Decimal | None], step: dict[str, Any]) -> None:
    """Prove that a step has times up to the phase under way when it ended, and none after."""
    if step["error"] is None:
        assert None not in phases
        return
    if step["error"]["kind"] == "redirect":
        assert not any(phases), "nothing was sent to a Location that cannot be followed"
        return
    reached = PHASES.index(step["error"]["phase"]) + 1
    assert None not in phases[:reached], f"a phase before the failure in {step['error']['phase']} has no time"
    assert not any(phases[reached:]), f"a phase after the failure in {step['error']['phase']} has a time"
    plain = step["url"].lower().startswith("http:")
    later = [value for phase, value in zip(PHASES, phases) if not (plain and phase == "tls")][reached:]
    assert later == [None] * len(later), "a phase that was never reached shows 0"


def check_summary(summary: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    """Prove that the summary says what the steps say."""
    last = steps[-1]
    response = last["response"]
    failed = last["error"] is not None
    assert summary["final_status"] == (None if failed else response["status"])
    assert summary["final_url"] == last["url"]
    assert summary["final_bytes"] == (response["bytes"] if response else 0)
    assert summary["errors"] == sum(step["error"] is not None for step in steps)
    assert exact(summary["total_time_ms"]) >= sum(exact(step["timing"]["total_ms"]) for step in steps)
    check_findings(summary["findings"], sum(exact(step["timing"]["total_ms"]) for step in steps))
    check_slo(summary)


def check_slo(summary: dict[str, Any]) -> None:
    """Prove that a verdict follows from its violations, and these from their numbers."""
    slo = summary.get("slo")
    if slo is None:
        return
    kept = slo.get("certificate", {"pass": True})["pass"]
    assert slo["pass"] is (kept and not (slo["violations"] or slo.get("not_judged")))
    for each in slo["violations"]:
        assert exact(each["delta_ms"]) == exact(each["actual_ms"]) - exact(each["threshold_ms"]) > 0


# --- series ---------------------------------------------------------------------------------------


def check_series(document: dict[str, Any]) -> None:
    """Prove the export of a series: every run by itself, and what is counted of them."""
    runs, summary = document["runs"], document["summary"]
    for number, run in enumerate(runs, 1):
        assert run["run_number"] == number
        assert variant_of(run) is not None or run["round"] == number
        check_run(run)
    assert (document["count"] is None) != (document["duration_s"] is None)
    assert 1 <= max(run["round"] for run in runs) <= (document["count"] or 10_000)
    for event in document["events"]:
        run = runs[event["run_number"] - 1]
        assert event["text"] == event["text"].strip() != ""
        assert (event["at"], event["target"]) == (run["started_at"], run["target"])
    failures = [step["error"]["kind"] for run in runs for step in run["steps"] if step["error"]]
    assert summary["runs"] == len(runs)
    assert summary["failed"] == summary["errors"] == len(failures)
    assert 0 <= summary["late"] < max(run["round"] for run in runs)
    assert summary["late"] == 0 or document["interval_s"] > 0
    longest = max(run["summary"]["total_time_ms"] for run in runs)
    starts = [parse_instant(run["started_at"]) for run in runs]
    between = (max(starts) - min(starts)).total_seconds() * 1000
    assert longest - 0.001 <= summary["duration_ms"] < between + longest + 60_000
    steps = {(variant_of(run), step["step_number"]) for run in runs for step in run["steps"]}
    assert {(variant_of(each), each["step_number"]) for each in document["statistics"]} == steps
    if "sides" in document:
        names = [each["side"] for each in document["sides"]]
        turns = [[run["side"] for run in runs[at:][: len(names)]] for at in range(0, len(runs), len(names))]
        assert all(sorted(turn) == names for turn in turns[:-1]) and {*turns[-1]} <= {*names}
        there = {run["side"] for run in runs}
        compared = [name for name in names[1:] if {"A", name} <= there]
        assert [each["side"] for each in document["comparisons"]] == compared
    check_slo(summary)


def variant_of(record: dict[str, Any]) -> str | None:
    """Return the side or the address that something in a document is about."""
    variant: str | None = record.get("side") or record["target"]
    return variant


# --- the two formats that are read by line --------------------------------------------------------

TITLE = r"(?:(?:\d\d:\d\d:\d\d )?Run (?P<run>\d+) )?Step"
METRICS = re.compile(
    TITLE + r" (?P<step>\d+):"
    r" dns=(?P<dns>\d+\.\d{3}|-) connect=(?P<connect>\d+\.\d{3}|-) tls=(?P<tls>\d+\.\d{3}|-)"
    r" ttfb=(?P<ttfb>\d+\.\d{3}|-) total=(?P<total>\d+\.\d{3}|-)"
    r" status=(?P<status>\d+) bytes=(?P<bytes>\d+|-)"
    r" ip=(?P<ip>[0-9a-fA-F.:%\w]+|-) family=(?P<family>IPv4|IPv6|-) tls_version=(?P<tls_version>\S+)"
    r" proxy=(?P<proxy>\S+) wait=(?P<wait>\d+\.\d{3}|-) xfer=(?P<xfer>\d+\.\d{3}|-)"
    r"(?(run) at=(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z))"
    r"(?: error=(?P<error>[a-z]+)| slo=(?P<slo>pass|fail)(?: slo_violations=(?P<slo_violations>[a-z,]+))?)?"
)

COMPACT = re.compile(
    TITLE + r" (?P<step>\d+): (?P<status>\d{3}) (?P<method>[A-Z]+) (?P<url>\S+)"
    r" \| dns=(?P<dns>\d+\.\d)ms connect=(?P<connect>\d+\.\d)ms tls=(?P<tls>\d+\.\d)ms"
    r" ttfb=(?P<ttfb>\d+\.\d)ms total=(?P<total>\d+\.\d)ms \| (?P<size>\d+ B|\d+\.\d [KM]B)"
    r" \| wait=(?P<wait>\d+\.\d)ms xfer=(?P<xfer>\d+\.\d)ms"
)

COMPACT_ERROR = re.compile(
    TITLE + r" (?P<step>\d+): ERROR (?P<method>[A-Z]+) (?P<url>\S+)"
    r" \| dns=(?P<dns>\d+\.\dms|-) connect=(?P<connect>\d+\.\dms|-) tls=(?P<tls>\d+\.\dms|-)"
    r" ttfb=(?P<ttfb>\d+\.\dms|-) total=(?P<total>\d+\.\dms) \| (?P<kind>[a-z]+): (?P<message>.+)"
    r" \| wait=(?P<wait>\d+\.\dms|-) xfer=(?P<xfer>\d+\.\dms|-)"
)


def parse_metrics(line: str) -> dict[str, str]:
    """Read a line of --metrics-only; tokens that are not there are left out."""
    match = METRICS.fullmatch(line)
    assert match, f"not a metrics line: {line!r}"
    return {name: value for name, value in match.groupdict().items() if value is not None}


def parse_compact(line: str) -> dict[str, str]:
    """Read a line of --compact, of a step that failed or did not."""
    match = COMPACT.fullmatch(line) or COMPACT_ERROR.fullmatch(line)
    assert match, f"not a compact line: {line!r}"
    return match.groupdict()


def summaries(text: str) -> list[dict[str, str]]:
    """Read the Summary lines: their tokens by name, in order, and the number under `step`."""
    found = []
    for line in text.splitlines():
        match = re.fullmatch(r"Summary (\d+): (.*)", line)
        if match:
            pairs = [token.partition("=")[::2] for token in match[2].split(" ")]
            assert len(dict(pairs)) == len(pairs), f"a key is there twice: {line}"
            found.append({"step": match[1], **dict(pairs)})
    return found


def run_lines(text: str) -> list[str]:
    """Return the lines of the steps of a series, without the time of day that --compact begins them with."""
    lines = (re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in text.splitlines())
    return [line for line in lines if line.startswith("Run ") and " Step " in line]


# --- what is said to people -----------------------------------------------------------------------


UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What may not stand raw in a JSON document: what moves a terminal's cursor or turns its text around."""


ACCIDENT = re.compile(r"Traceback \(|Exception ignored|\b[A-Z]\w+Warning: |internal error")
"""What Python, or a program that it has to end, says on stderr."""
ANSWER = re.compile("httphases: (error: |warning: stopped after)|[╭│╰]|\\+-|\\| ")
"""How a line begins that says why the exit code is not 0, in a panel too."""
PROGRESS = re.compile(r"(.*\x1b\[K)?")


def surprises(arguments: Sequence[str], code: int, said: str) -> list[str]:
    """List the lines of stderr that a test has to expect: all but the error of the exit code, and a report.

    The report stands there when standard output holds an export, and the progress of a series on a terminal.
    """
    lines = [line for line in said.splitlines() if not PROGRESS.fullmatch(line)]
    if code:
        lines = [line for line in lines if not ANSWER.match(line)]
    if "-" in arguments:
        lines = [line for line in lines if line.startswith("httphases: ") or ACCIDENT.search(line)]
    return lines


CAUSES = re.compile(r"^ +(?:Spent|Cause) .*\n(?: {14,15}(?!Redirect Chain)\S.*\n)*", re.MULTILINE)


def without_readings(text: str) -> str:
    """Take out of a drawn report what its times mean, which two runs need not agree on."""
    return CAUSES.sub("", text)


def flat(text: str) -> str:
    """Take the frames and the line breaks out of a panel, so that its words can be looked for."""
    return " ".join(re.sub(r"[\u2500-\u257f]|^[|+-]|[|+-]$", " ", text, flags=re.MULTILINE).split())


def check_usage_error(result: Any, *words: str) -> None:
    """Prove that a run was refused as a usage error, for a reason that is said in `words`."""
    assert result.code == 64, (result.code, result.err)
    assert result.out == ""
    assert "Traceback" not in result.err
    message = flat(result.err)
    for word in words:
        assert word.lower() in message.lower(), f"{word!r} is not in {message!r}"
