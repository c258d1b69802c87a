"""What holds for every result, whatever the request was: applied to each JSON document that a test reads."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

PHASES = ("dns", "connect", "tls", "wait", "xfer")
KINDS = ("dns", "connect", "proxy", "tls", "timeout", "protocol", "redirect", "network")
SLO_KEYS = ("connect", "dns", "tls", "total", "ttfb", "wait", "xfer")

DOCUMENT_FIELDS = "schema_version tool_version started_at initial_url host label total_steps steps summary"
STEP_FIELDS = "step_number url started_at request timing network response error findings"
REQUEST_FIELDS = "method headers body_bytes"
TIMING_FIELDS = "dns_ms connect_ms tls_ms wait_ms xfer_ms ttfb_ms total_ms send_ms"
NETWORK_FIELDS = (
    "ip ip_family port addresses attempts http_version alpn tls_version tls_cipher "
    "cert_cn cert_sans cert_issuer cert_serial cert_not_before cert_not_after cert_days_left cert_chain "
    "tls_verified tls_custom_ca proxy_url proxy_source tcp_rtt_ms tcp_retransmits"
)
CERTIFICATE_FIELDS = "cn issuer not_after days_left"
RESPONSE_FIELDS = (
    "status reason http_version bytes content_type server date location headers interim server_timing cache"
)
METRIC_FIELDS = "name duration_ms description"
CACHE_FIELDS = "status age_s via source"
ERROR_FIELDS = "kind phase message hint"
SUMMARY_FIELDS = "total_time_ms final_status final_url final_bytes errors findings"
FINDING_FIELDS = "id phase cost_ms certainty text evidence"
SLO_FIELDS = "pass thresholds_ms violations"
VIOLATION_FIELDS = "key threshold_ms actual_ms delta_ms"

MICROSECOND = Decimal("0.001")


def exact(value: Any) -> Decimal:
    """Turn a JSON number into the decimal that was printed."""
    assert isinstance(value, (int, float)) and not isinstance(value, bool), f"{value!r} is not a number"
    return Decimal(str(value))


def check_fields(record: Any, names: str) -> None:
    """Prove that `record` has the fields `names`, no fewer and no more."""
    assert isinstance(record, dict), f"{record!r} is not an object"
    assert set(record) == set(names.split()), sorted(set(record) ^ set(names.split()))


def check_document(document: dict[str, Any]) -> dict[str, Any]:
    """Prove the shape, the arithmetic and the consistency of a whole JSON export; return it."""
    joined = [name for name in ("trace_id",) if name in document]  # with --otlp
    check_fields(document, " ".join([DOCUMENT_FIELDS, *joined]))
    assert document["schema_version"] == 1
    assert document["host"] and document["label"] != ""
    assert isinstance(document["tool_version"], str) and document["tool_version"]
    assert isinstance(document["initial_url"], str)
    parse_instant(document["started_at"])
    steps = document["steps"]
    assert 1 <= len(steps) == document["total_steps"]
    for number, step in enumerate(steps, 1):
        assert step["step_number"] == number
        check_step(step)
    assert all(step["error"] is None for step in steps[:-1]), "only the last step of a chain can have failed"
    starts = [document["started_at"]] + [step["started_at"] for step in steps]
    assert [parse_instant(text) for text in starts] == sorted(parse_instant(text) for text in starts)
    check_summary(document["summary"], steps)
    return document


def parse_instant(text: str) -> datetime:
    """Read an RFC 3339 instant with milliseconds, in UTC."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|\+00:00)", text), text
    return datetime.strptime(text[:23], "%Y-%m-%dT%H:%M:%S.%f")


def check_step(step: dict[str, Any]) -> None:
    """Prove one step: every field there, every number possible."""
    check_fields(step, STEP_FIELDS)
    parse_instant(step["started_at"])
    check_fields(step["request"], REQUEST_FIELDS)
    check_headers(step["request"]["headers"])
    assert step["request"]["body_bytes"] >= 0
    check_network(step["network"])
    if step["response"] is not None:
        check_response(step["response"])
    if step["error"] is not None:
        check_error(step["error"])
    assert step["response"] is not None or step["error"] is not None, "neither a response nor an error"
    check_findings(step["findings"], exact(step["timing"]["total_ms"]))
    check_timeline(step)


def check_findings(findings: list[dict[str, Any]], total: Decimal) -> None:
    """Prove that findings are sound, worth saying, and the costliest first."""
    for finding in findings:
        check_fields(finding, FINDING_FIELDS)
        assert finding["phase"] in (*PHASES, None)
        assert finding["certainty"] in ("seen", "fits")
        assert finding["certainty"] == "seen" or re.search(r"\b(fits|about)\b", finding["text"])
        assert finding["evidence"] and finding["text"]
        assert exact(finding["cost_ms"]) >= max(Decimal(5), total / 10)
    costs = [exact(finding["cost_ms"]) for finding in findings]
    assert costs == sorted(costs, reverse=True)
    assert len({finding["id"] for finding in findings}) == len(findings)


def check_headers(headers: list[dict[str, str]]) -> None:
    """Prove a list of header fields."""
    for header in headers:
        check_fields(header, "name value")
        assert all(isinstance(text, str) for text in header.values())


def check_network(network: dict[str, Any]) -> None:
    """Prove the network record of a step."""
    check_fields(network, NETWORK_FIELDS)
    assert network["ip_family"] in ("IPv4", "IPv6", None)
    assert (network["ip"] is None) == (network["ip_family"] is None)
    if network["ip"] is not None:
        assert network["ip_family"] == ("IPv6" if ":" in network["ip"] else "IPv4")
        assert 1 <= network["port"] <= 65535
    for attempt in network["attempts"]:
        check_fields(attempt, "ip duration_ms error")
        assert exact(attempt["duration_ms"]) >= 0
    assert isinstance(network["addresses"], list)
    check_chain(network)


def check_chain(network: dict[str, Any]) -> None:
    """Prove that the chain begins with the server's own certificate, and that there is none without TLS."""
    for certificate in network["cert_chain"]:
        check_fields(certificate, CERTIFICATE_FIELDS)
        assert (certificate["not_after"] is None) == (certificate["days_left"] is None)
    own = {name: network[f"cert_{name}"] for name in CERTIFICATE_FIELDS.split()}
    assert own == (network["cert_chain"] or [dict.fromkeys(own)])[0]
    assert network["tls_verified"] is not None or not network["cert_chain"]
    assert network["tls_verified"] is not True or network["cert_chain"]


def check_response(response: dict[str, Any]) -> None:
    """Prove the response record of a step."""
    check_fields(response, RESPONSE_FIELDS)
    check_headers(response["headers"])
    assert 200 <= response["status"] <= 999
    assert isinstance(response["bytes"], int) and response["bytes"] >= 0
    assert all(100 <= status <= 199 for status in response["interim"])
    check_claims(response)


def check_claims(response: dict[str, Any]) -> None:
    """Prove that what a response says of itself is bounded, and possible."""
    assert len(response["server_timing"]) <= 50
    for metric in response["server_timing"]:
        check_fields(metric, METRIC_FIELDS)
        assert metric["name"] and metric["description"] != ""
        assert metric["duration_ms"] is None or 0 <= metric["duration_ms"] < float("inf")
    cache, names = response["cache"], {header["name"].lower() for header in response["headers"]}
    if cache is not None:
        check_fields(cache, CACHE_FIELDS)
        assert cache["source"].lower() in names
        assert cache["status"] is None or re.fullmatch(r"[a-z][a-z0-9_-]*", cache["status"])
        assert cache["age_s"] is None or cache["age_s"] >= 0


def check_error(error: dict[str, Any]) -> None:
    """Prove the error record of a step: a known kind, a known phase, words."""
    check_fields(error, ERROR_FIELDS)
    assert error["kind"] in KINDS
    assert error["phase"] in PHASES
    assert isinstance(error["message"], str) and error["message"].strip()
    assert error["hint"] is None or error["hint"].strip()


def check_timeline(step: dict[str, Any]) -> None:
    """Prove the times of a step: none negative, none missing, none fake, sums exact to the microsecond."""
    timing = step["timing"]
    check_fields(timing, TIMING_FIELDS)
    times = {name: exact(value) for name, value in timing.items() if value is not None}
    for name, value in times.items():
        assert value >= 0, f"{name} is negative"
        assert value == value.quantize(MICROSECOND), f"{name}={value} is finer than 0.001 ms"
    phases = [times.get(f"{phase}_ms") for phase in PHASES]
    assert sum(value for value in phases if value is not None) == times["total_ms"], timing
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
    check_fields(summary, SUMMARY_FIELDS + (" slo" if "slo" in summary else ""))
    last = steps[-1]
    response = last["response"]
    failed = last["error"] is not None
    assert summary["final_status"] == (None if failed else response["status"])
    assert summary["final_url"] == last["url"]
    assert summary["final_bytes"] == (response["bytes"] if response else 0)
    assert summary["errors"] == sum(step["error"] is not None for step in steps)
    assert exact(summary["total_time_ms"]) >= sum(exact(step["timing"]["total_ms"]) for step in steps)
    check_findings(summary["findings"], sum(exact(step["timing"]["total_ms"]) for step in steps))
    if "slo" in summary:
        good = [step for step in steps if step["error"] is None]
        assert good, "a verdict although no step succeeded"
        check_slo(summary["slo"], good[-1]["timing"])


def check_slo(slo: dict[str, Any], timing: dict[str, Any]) -> None:
    """Prove that the verdict follows from the times as printed."""
    check_fields(slo, SLO_FIELDS)
    expected = []
    for key, threshold in sorted(slo["thresholds_ms"].items()):
        assert key in SLO_KEYS
        if exact(timing[f"{key}_ms"]) > exact(threshold):
            expected.append((key, exact(threshold), exact(timing[f"{key}_ms"])))
    for violation in slo["violations"]:
        check_fields(violation, VIOLATION_FIELDS)
        assert exact(violation["delta_ms"]) == exact(violation["actual_ms"]) - exact(
            violation["threshold_ms"]
        )
        assert exact(violation["delta_ms"]) > 0
    found = [
        (each["key"], exact(each["threshold_ms"]), exact(each["actual_ms"])) for each in slo["violations"]
    ]
    assert found == expected
    assert slo["pass"] is (not expected)


# --- the two formats that are read by line --------------------------------------------------------

METRICS = re.compile(
    r"Step (?P<step>\d+):"
    r" dns=(?P<dns>\d+\.\d{3}|-) connect=(?P<connect>\d+\.\d{3}|-) tls=(?P<tls>\d+\.\d{3}|-)"
    r" ttfb=(?P<ttfb>\d+\.\d{3}|-) total=(?P<total>\d+\.\d{3}|-)"
    r" status=(?P<status>\d+) bytes=(?P<bytes>\d+|-)"
    r" ip=(?P<ip>[0-9a-fA-F.:%\w]+|-) family=(?P<family>IPv4|IPv6|-) tls_version=(?P<tls_version>\S+)"
    r" proxy=(?P<proxy>\S+)"
    r"(?: error=(?P<error>[a-z]+)| slo=(?P<slo>pass|fail)(?: slo_violations=(?P<slo_violations>[a-z,]+))?)?"
)

COMPACT = re.compile(
    r"Step (?P<step>\d+): (?P<status>\d{3}) (?P<method>[A-Z]+) (?P<url>\S+)"
    r" \| dns=(?P<dns>\d+\.\d)ms connect=(?P<connect>\d+\.\d)ms tls=(?P<tls>\d+\.\d)ms"
    r" ttfb=(?P<ttfb>\d+\.\d)ms total=(?P<total>\d+\.\d)ms \| (?P<size>\d+ B|\d+\.\d [KM]B)"
)

COMPACT_ERROR = re.compile(
    r"Step (?P<step>\d+): ERROR (?P<method>[A-Z]+) (?P<url>\S+)"
    r" \| dns=(?P<dns>\d+\.\dms|-) connect=(?P<connect>\d+\.\dms|-) tls=(?P<tls>\d+\.\dms|-)"
    r" ttfb=(?P<ttfb>\d+\.\dms|-) total=(?P<total>\d+\.\dms) \| (?P<kind>[a-z]+): (?P<message>.+)"
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


# --- what is said to people -----------------------------------------------------------------------


NOTICE = (
    r"in step \d+ this process was kept waiting for a CPU for \d+\.\d ms: "
    r"times that end on this machine may be too long"
)
UNREST = re.compile(rf"httphases: warning: {NOTICE}\n|\bNote {NOTICE}")


def calm(text: str) -> str:
    """Take out of stderr, or of a flat report, what it says of a machine that was short of CPUs.

    Whether it says so depends on what else the machine has to do.
    """
    return UNREST.sub("", text)


READING = re.compile(r"^ +Reading .*\n(?: {14,15}(?!Redirect Chain)\S.*\n)*", re.MULTILINE)


def without_readings(text: str) -> str:
    """Take out of a drawn report what its times mean, which two runs need not agree on."""
    return READING.sub("", text)


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
