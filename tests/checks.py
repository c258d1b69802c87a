"""What holds for every result, whatever the request was: applied to each JSON document that a test reads."""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
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
MOST_RUNS = 200
"""Of a longer series the schema is asked about the first and the last of these: a run takes 3 ms."""

PHASES = ("dns", "connect", "tls", "wait", "xfer")
BELOW_400 = range(400)
TIMING_FIELDS = "dns_ms connect_ms tls_ms wait_ms xfer_ms ttfb_ms total_ms send_ms".split()
CERTIFICATE_FIELDS = "cn issuer not_after days_left sha256".split()
SUPPORT = {"min": 1, "p25": 4, "median": 1, "p75": 4, "p90": 10, "p95": 20, "p99": 100, "max": 1}
SHARES = {"min": 0, "p25": 25, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "max": 100}
MICROSECOND = Decimal("0.001")
EDGE = 1.0
"""Milliseconds by which a time may fall short of the delay that made it: the instant of a byte is the
kernel's, of another clock than that of the request, and a kernel may count round trips by a coarse one."""


def exact(value: Any) -> Decimal:
    """Turn a JSON number into the decimal that was printed."""
    assert isinstance(value, (int, float)) and not isinstance(value, bool), f"{value!r} is not a number"
    return Decimal(str(value))


def check_schema(document: dict[str, Any]) -> None:
    """Prove that a JSON export is as its schema says."""
    if VALIDATOR is None:
        return
    runs = document.get("runs")
    if isinstance(runs, list) and len(runs) > 2 * MOST_RUNS:
        document = {**document, "runs": runs[:MOST_RUNS] + runs[-MOST_RUNS:]}
    problems = [f"{each.json_path}: {each.message[:300]}" for each in VALIDATOR.iter_errors(document)]
    assert not problems, problems[:10]


def check_comparisons(document: dict[str, Any]) -> None:
    """Prove that verdicts follow from intervals."""
    for each in document.get("comparisons", ()):
        for key in TIMING_FIELDS:
            low, high = each[key]["ci95_ms"] or (None, None)
            assert low is None or low <= each[key]["median_ms"] <= high
        low, high = each["total_ms"]["ci95_ms"] or (None, None)
        follows = "too_few"
        if low is not None:
            follows = {(True, False): "slower", (False, True): "faster"}.get(
                (low > 0, high < 0), "no_difference"
            )
        assert each["verdict"] in ("unlike", follows)


def without_relative(slo: dict[str, Any], relative: Sequence[str]) -> dict[str, Any]:
    """Return a verdict without the budgets that are beside another median, once these are proved to fit."""
    for violation in slo["violations"]:
        assert ("baseline_ms" in violation) == (violation["key"] in relative)
        if violation["key"] in relative:
            assert violation["actual_ms"] > violation["threshold_ms"] >= violation["baseline_ms"]
    slo = dict(slo)
    kept = slo.pop("certificate", {"pass": True})["pass"]
    assert slo["pass"] is (kept and not (slo["violations"] or slo.get("not_judged")))
    violations = [each for each in slo["violations"] if each["key"] not in relative]
    not_judged = [key for key in slo.get("not_judged", ()) if key not in relative]
    rest = {key: value for key, value in slo["thresholds_ms"].items() if key not in relative}
    left = {**slo, "thresholds_ms": rest, "violations": violations, "pass": not (violations or not_judged)}
    return {**left, "not_judged": not_judged} if "not_judged" in slo else left


def check_document(
    document: dict[str, Any], expected: Sequence[int] = BELOW_400, relative: Sequence[str] = ()
) -> dict[str, Any]:
    """Prove the shape, the arithmetic and the consistency of a whole JSON export; return it.

    `expected` are the statuses of last steps that are good, `relative` the keys of budgets that are beside
    another median.
    """
    check_schema(document)
    check_comparisons(document)
    if "runs" in document:
        check_series(document, expected, relative)
    else:
        check_run(document, relative)
    return document


def check_run(document: dict[str, Any], relative: Sequence[str] = ()) -> None:
    """Prove the steps of a run, and what its summary says of them."""
    steps = document["steps"]
    assert len(steps) == document["total_steps"]
    for number, step in enumerate(steps, 1):
        assert step["step_number"] == number
        check_step(step)
    assert all(step["error"] is None for step in steps[:-1]), "only the last step of a chain can have failed"
    starts = [document["started_at"]] + [step["started_at"] for step in steps]
    assert [parse_instant(text) for text in starts] == sorted(parse_instant(text) for text in starts)
    check_summary(document["summary"], steps, relative)


def parse_instant(text: str) -> datetime:
    """Read an instant of a document, in UTC."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")


def check_step(step: dict[str, Any]) -> None:
    """Prove one step: what it is of, what it says of itself, its findings and its times."""
    check_network(step["network"])
    if step["response"] is not None:
        check_claims(step["response"])
    assert step["response"] is not None or step["error"] is not None, "neither a response nor an error"
    check_findings(step["findings"], exact(step["timing"]["total_ms"]))
    for finding in step["findings"]:
        phase = finding["phase"]
        assert phase is None or exact(finding["cost_ms"]) <= exact(step["timing"][f"{phase}_ms"]), finding
    check_timeline(step)


def check_findings(findings: list[dict[str, Any]], total: Decimal) -> None:
    """Prove that findings are sound, worth saying, and the costliest first."""
    for finding in findings:
        assert finding["certainty"] == "seen" or re.search(r"\b(fits|about)\b", finding["text"])
        assert exact(finding["cost_ms"]) >= max(Decimal(5), total / 10)
    costs = [exact(finding["cost_ms"]) for finding in findings]
    assert costs == sorted(costs, reverse=True)
    assert len({(finding["id"], finding["phase"]) for finding in findings}) == len(findings)


def check_network(network: dict[str, Any]) -> None:
    """Prove the network record of a step."""
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
    check_chain(network)


def check_chain(network: dict[str, Any]) -> None:
    """Prove that the chain begins with the server's own certificate, and that there is none without TLS."""
    for certificate in network["cert_chain"]:
        assert (certificate["not_after"] is None) == (certificate["days_left"] is None)
    own = {name: network[f"cert_{name}"] for name in CERTIFICATE_FIELDS}
    assert own == (network["cert_chain"] or [dict.fromkeys(own)])[0]
    assert network["tls_verified"] is not None or not network["cert_chain"]
    assert network["tls_verified"] is not True or network["cert_chain"]


def check_claims(response: dict[str, Any]) -> None:
    """Prove that what a response says of itself is bounded, and possible."""
    assert response["status"] == 101 or response["status"] >= 200
    assert len(response["server_timing"]) <= 50
    for metric in response["server_timing"]:
        assert metric["description"] != ""
        assert metric["duration_ms"] is None or 0 <= metric["duration_ms"] < float("inf")
    names = {header["name"].lower() for header in response["headers"]}
    assert response["cache"] is None or response["cache"]["source"].lower() in names


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


def check_summary(summary: dict[str, Any], steps: list[dict[str, Any]], relative: Sequence[str] = ()) -> None:
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
    slo = summary.get("slo")
    if slo:
        slo = without_relative(slo, relative)
        slo.pop("not_judged", None)
    if slo and (slo["thresholds_ms"] or not relative):
        good = [step for step in steps if step["error"] is None]
        assert good, "a verdict although no step succeeded"
        check_slo(slo, good[-1]["timing"])


def check_slo(slo: dict[str, Any], timing: dict[str, Any]) -> None:
    """Prove that the verdict follows from the times as printed."""
    expected = []
    for key, threshold in sorted(slo["thresholds_ms"].items()):
        if timing[f"{key}_ms"] is None:  # on a kept connection
            continue
        if exact(timing[f"{key}_ms"]) > exact(threshold):
            expected.append((key, exact(threshold), exact(timing[f"{key}_ms"])))
    for violation in slo["violations"]:
        assert exact(violation["delta_ms"]) == exact(violation["actual_ms"]) - exact(
            violation["threshold_ms"]
        )
        assert exact(violation["delta_ms"]) > 0
    found = [
        (each["key"], exact(each["threshold_ms"]), exact(each["actual_ms"])) for each in slo["violations"]
    ]
    assert found == expected
    assert slo["pass"] is (not expected)


# --- series ---------------------------------------------------------------------------------------


def find_good(runs: Sequence[dict[str, Any]], expected: Sequence[int]) -> list[dict[str, Any]]:
    """List the good steps of runs: without an error, below 400, the last of a run as `expected` says."""
    found = []
    for run in runs:
        for step in run["steps"]:
            wanted = expected if step is run["steps"][-1] else BELOW_400
            if step["error"] is None and step["response"]["status"] in wanted:
                found.append(step)
    return found


def check_series(document: dict[str, Any], expected: Sequence[int], relative: Sequence[str]) -> None:
    """Prove the export of a series: every run by itself, and that what sums them up follows from them."""
    sides = "sides" in document
    runs, summary = document["runs"], document["summary"]
    for number, run in enumerate(runs, 1):
        assert run["run_number"] == number
        assert variant_of(run) is not None or run["round"] == number
        assert run["late_ms"] is None or exact(run["late_ms"]) >= 0
        check_run(run)
    assert (document["count"] is None) != (document["duration_s"] is None)
    assert 1 <= max(run["round"] for run in runs) <= (document["count"] or 10_000)
    for event in document["events"]:
        check_event(event, runs)
    failures = [step["error"]["kind"] for run in runs for step in run["steps"] if step["error"]]
    assert summary["runs"] == len(runs)
    assert summary["failed"] == len(failures)
    assert summary["errors"] == len(failures)
    good = find_good(runs, expected)
    held_up = [run for run in runs if any(step not in good and not step["error"] for step in run["steps"])]
    assert summary["bad_status"] == len(held_up)
    assert summary["late"] == sum(run["late_ms"] is not None for run in runs)
    assert summary["skipped"] == 0 or document["interval_s"] > 0
    longest = max(run["summary"]["total_time_ms"] for run in runs)
    starts = [parse_instant(run["started_at"]) for run in runs]
    between = (max(starts) - min(starts)).total_seconds() * 1000
    assert longest - 0.001 <= summary["duration_ms"] < between + longest + 60_000
    check_statistics(document, good)
    if sides:
        check_sides(document, good)
    if "slo" in summary:
        check_series_slo(without_relative(summary["slo"], relative), runs, good)


def variant_of(record: dict[str, Any]) -> str | None:
    """Return the side or the address that something in a document is about."""
    variant: str | None = record.get("side") or record["target"]
    return variant


def check_event(event: dict[str, Any], runs: Sequence[dict[str, Any]]) -> None:
    """Prove that an event is one, and of which run it says that it is."""
    assert event["text"] == event["text"].strip() != ""
    run = runs[event["run_number"] - 1]
    assert event["at"] == run["started_at"]
    assert event["target"] == run["target"]


def check_statistics(document: dict[str, Any], good: Sequence[dict[str, Any]]) -> None:
    """Prove that the statistics follow from the runs, by another program than the one that made them."""
    groups: dict[tuple[Any, ...], list[tuple[int, dict[str, Any]]]] = {}
    for run in document["runs"]:
        for step in run["steps"]:
            groups.setdefault((variant_of(run), step["step_number"]), []).append((run["run_number"], step))
    found = document["statistics"]
    named = [(variant_of(each), each["step_number"]) for each in found]
    assert sorted(named, key=repr) == sorted(groups, key=repr)
    for each, name in zip(found, named):
        urls = {step["url"] for _, step in groups[name]}
        assert each["url"] == (urls.pop() if len(urls) == 1 else None)
        check_group(each, groups[name], good)


def check_group(
    found: dict[str, Any], members: Sequence[tuple[int, dict[str, Any]]], good: Sequence[dict[str, Any]]
) -> None:
    """Prove the statistics of one step: of the good ones, or if there are none, of all answers, and
    of these the ones on a kept connection, if there are such.
    """
    answered = [(run, step) for run, step in members if step["error"] is None]
    used = [(run, step) for run, step in answered if step in good]
    assert found["bad_status"] == len(answered) - len(used)
    used = used or answered
    used = [(run, step) for run, step in used if step["network"].get("reused") is not False] or used
    assert found["reused"] is (used or members)[0][1]["network"].get("reused")
    assert found["n"] == len(used)
    assert found["failed"] == len(members) - len(answered)
    assert found["errors"] == Counter(step["error"]["kind"] for _, step in members if step["error"])
    totals: dict[str, list[Decimal]] = {}
    for _, step in answered:
        totals.setdefault(str(step["response"]["status"]), []).append(exact(step["timing"]["total_ms"]))
    assert found["statuses"] == {status: len(values) for status, values in totals.items()}
    assert set(found["by_status"]) == set(totals)
    for status, values in totals.items():
        assert found["by_status"][status]["n"] == len(values)
        assert near(found["by_status"][status]["median_ms"], statistics.median(values))
    for key in TIMING_FIELDS:
        times = [exact(step["timing"][key]) for _, step in used if step["timing"][key] is not None]
        check_spread(found[key], times)
    check_slow(
        found["slow"], [(exact(step["timing"]["total_ms"]), run) for run, step in used if step in good]
    )


def check_slow(found: dict[str, Any] | None, totals: Sequence[tuple[Decimal, int]]) -> None:
    """Prove which of these runs are called slow, and their medians."""
    values = [value for value, _ in totals]
    far = []
    if len(values) >= 8:
        middle = statistics.median(values)
        reach = Decimal("14.826") * statistics.median(abs(value - middle) for value in values)
        far = [run for value, run in totals if value - middle > max(5, reach)]
    if found is None:
        assert not far
        return
    slow = [ms for ms, run in totals if run in found["runs"]]
    others = [ms for ms, run in totals if run not in found["runs"]]
    assert near(found["median_ms"], statistics.median(slow))
    assert near(found["others_ms"], statistics.median(others))
    if far:
        assert found["runs"] == far
    else:
        assert len(totals) >= 20 and min(len(slow), len(others)) >= 5 and min(slow) > max(others) + 5


def near(printed: Any, value: Decimal) -> bool:
    """Tell whether a number was printed as another one rounded to a microsecond."""
    return abs(exact(printed) - value) <= MICROSECOND / 2


def ranked(ordered: Sequence[Decimal], name: str) -> Decimal:
    """Return a percentile of sorted values by nearest rank."""
    share = SHARES[name]
    return ordered[max(1, math.ceil(Decimal(share) * len(ordered) / 100)) - 1]


def check_spread(found: dict[str, Any], values: Sequence[Decimal]) -> None:
    """Prove how the values of one phase are said to lie."""
    ordered, count = sorted(values), len(values)
    for name, least in SUPPORT.items():
        if count < least:
            assert found[name] is None, f"{name} of {count} values"
            continue
        if name == "median":
            assert near(found[name], statistics.median(ordered))
            continue
        assert exact(found[name]) == ranked(ordered, name), f"{name} is no value by nearest rank"
    check_interval(found["median_ci95"], ordered)


def check_interval(found: list[Any] | None, values: Sequence[Decimal], sides: int = 1) -> None:
    """Prove what is said to hold the median of values in 95 of 100 cases, or all of so many sides'."""
    ordered, count = sorted(values), len(values)
    ranks = [
        k
        for k in range(1, count // 2 + 1)
        if 2 * sum(math.comb(count, i) for i in range(k)) * 20 * sides <= 2**count
    ]
    assert bool(ranks) == (count >= {1: 6, 2: 7, 3: 7, 4: 8, 5: 8, 6: 8, 7: 9}[sides])
    if not ranks:
        assert found is None
        return
    assert found is not None
    assert [exact(end) for end in found] == [ordered[ranks[-1] - 1], ordered[-ranks[-1]]]


def check_series_slo(
    slo: dict[str, Any], runs: Sequence[dict[str, Any]], good: Sequence[dict[str, Any]]
) -> None:
    """Prove the verdict on a series: each plain budget in every run, the others on good last steps."""
    expected, not_judged = [], []
    ordered = sorted(runs, key=lambda run: str(variant_of(run)))
    for target, own in itertools.groupby(ordered, key=variant_of):
        members = list(own)
        for key, threshold in slo["thresholds_ms"].items():
            violation = worst_of(key, members, good)
            if violation is None:
                not_judged.append(key)
            elif violation and violation[0] > exact(threshold):
                expected.append((key, target, *violation))
    found = [
        (each["key"], variant_of(each), exact(each["actual_ms"]), each["run_number"])
        for each in slo["violations"]
    ]
    assert [each["key"] for each in slo["violations"]] == sorted(each[0] for each in expected)
    for each, found_one in zip(sorted(expected, key=str), sorted(found, key=str)):
        assert each[:2] == found_one[:2]
        assert abs(each[2] - found_one[2]) <= MICROSECOND / 2
        assert each[3] == found_one[3]
    for each in slo["violations"]:
        assert exact(each["delta_ms"]) == exact(each["actual_ms"]) - exact(each["threshold_ms"]) > 0
    assert sorted(set(not_judged)) == sorted(slo["not_judged"])
    assert slo["pass"] is not bool(expected or not_judged)


# --- sides ----------------------------------------------------------------------------------------


def check_sides(document: dict[str, Any], good: Sequence[dict[str, Any]]) -> None:
    """Prove that sides were measured in turn, and that what is said of each beside A follows from that."""
    names = [each["side"] for each in document["sides"]]
    assert 2 <= len(names) <= 8 and names == list("ABCDEFGH")[: len(names)]
    assert [each["words"] is None for each in document["sides"]] == [True] + [False] * (len(names) - 1)
    assert document["sides"][0]["url"] == document["initial_url"]
    turns = -(-len(document["runs"]) // len(names))
    for number, run in enumerate(document["runs"]):
        turn = number // len(names)
        assert run["round"] == turn + 1 and run["target"] is None
    for turn in range(turns):
        drawn = [run["side"] for run in document["runs"] if run["round"] == turn + 1]
        assert len(set(drawn)) == len(drawn) and (set(drawn) == set(names) or turn == turns - 1)
    parts = {name: [run for run in document["runs"] if run["side"] == name] for name in names}
    found, compared = document["comparisons"], [name for name in names[1:] if parts["A"] and parts[name]]
    assert [each["side"] for each in found] == compared
    for each in found:
        check_comparison(each, parts[each["side"]], parts["A"], good, len(compared))


def chains_by_round(
    runs: Sequence[dict[str, Any]], good: Sequence[dict[str, Any]]
) -> tuple[dict[int, list[dict[str, Any]]], dict[int, int]]:
    """Return the steps of the chains that are compared, and the statuses of all answers, both by round."""
    answered = {run["round"]: run["steps"] for run in runs if run["steps"][-1]["error"] is None}
    used = {turn: steps for turn, steps in answered.items() if steps[-1] in good} or answered
    kept = {
        turn: steps
        for turn, steps in used.items()
        if all(step["network"].get("reused") is not False for step in steps)
    }
    return kept or used, {turn: steps[-1]["response"]["status"] for turn, steps in answered.items()}


def check_comparison(
    found: dict[str, Any],
    own: Sequence[dict[str, Any]],
    other: Sequence[dict[str, Any]],
    good: Sequence[dict[str, Any]],
    rivals: int,
) -> None:
    """Prove the difference of whole chains, and the verdict; so many `rivals` are compared with A."""
    (mine, statuses), (theirs, others) = (chains_by_round(runs, good) for runs in (own, other))
    rounds = sorted(mine.keys() & theirs.keys())
    assert found["against"] == "A" and found["n"] == len(rounds)
    single = all(run["steps"][1:] == [] for run in (*own, *other) if run["steps"][-1]["error"] is None)
    assert found["step_number"] == (1 if single else None)
    for key in TIMING_FIELDS:
        sums = [
            [
                [exact(step["timing"][key]) for step in part[turn] if step["timing"][key] is not None]
                for part in (mine, theirs)
            ]
            for turn in rounds
        ]
        differences = [sum(first) - sum(second) for first, second in sums if first and second]
        if differences:
            assert near(found[key]["median_ms"], Decimal(statistics.median(differences)))
        else:
            assert found[key]["median_ms"] is None
        check_interval(found[key]["ci95_ms"], [Decimal(each) for each in differences], rivals)
    both = [
        {run["round"] for run in runs if run["steps"][-1] in good and run["steps"][-1]["error"] is None}
        for runs in (own, other)
    ]
    counted = both[0] & both[1]
    status, beside = (
        usual([each for turn, each in sorted(part.items()) if turn in counted or not counted])
        for part in (statuses, others)
    )
    low, high = found["total_ms"]["ci95_ms"] or (None, None)
    assert found["verdict"] == expected_verdict(status, beside, low, high)


def usual(statuses: Sequence[int]) -> int | None:
    """Return the most frequent status, of equally frequent ones the one that came last."""
    counts = Counter(statuses)
    return max(reversed(statuses), key=lambda each: counts[each], default=None)


def expected_verdict(status: int | None, other: int | None, low: Any, high: Any) -> str:
    if status is not None and other is not None and status != other:
        return "unlike"
    if low is None:
        return "too_few"
    if low <= 0 <= high:
        return "no_difference"
    return "slower" if low > 0 else "faster"


def worst_of(
    key: str, runs: Sequence[dict[str, Any]], good: Sequence[dict[str, Any]]
) -> tuple[Any, ...] | None:
    """Return the value that a budget is held against and its run; () for no value, None for too few."""
    name, _, statistic = key.partition(".")
    answered = [[step for step in run["steps"] if not step["error"]] for run in runs]
    if not statistic:
        judged = [(steps[-1], run["run_number"]) for steps, run in zip(answered, runs) if steps]
        times = [(step["timing"][f"{name}_ms"], -number) for step, number in judged]
        worst = max((pair for pair in times if pair[0] is not None), default=None)
        return (exact(worst[0]), -worst[1]) if worst else ()
    last = [run["steps"][-1] for run in runs if run["steps"][-1] in good]
    warm: Iterable[dict[str, Any]] = [step for step in last if step["network"].get("reused") is not False]
    values = [step["timing"][f"{name}_ms"] for step in warm]
    if values and all(value is None for value in values):
        return ()
    if len(values) < SUPPORT[statistic]:
        return None
    ordered = sorted(exact(value) for value in values)
    if statistic == "median":
        return statistics.median(ordered), None
    return ranked(ordered, statistic), None


# --- the two formats that are read by line --------------------------------------------------------

TITLE = r"(?:Run (?P<run>\d+) )?Step"
METRICS = re.compile(
    TITLE + r" (?P<step>\d+):"
    r" dns=(?P<dns>\d+\.\d{3}|-) connect=(?P<connect>\d+\.\d{3}|-) tls=(?P<tls>\d+\.\d{3}|-)"
    r" ttfb=(?P<ttfb>\d+\.\d{3}|-) total=(?P<total>\d+\.\d{3}|-)"
    r" status=(?P<status>\d+) bytes=(?P<bytes>\d+|-)"
    r" ip=(?P<ip>[0-9a-fA-F.:%\w]+|-) family=(?P<family>IPv4|IPv6|-) tls_version=(?P<tls_version>\S+)"
    r" proxy=(?P<proxy>\S+)"
    r"(?: error=(?P<error>[a-z]+)| slo=(?P<slo>pass|fail)(?: slo_violations=(?P<slo_violations>[a-z,]+))?)?"
    r"(?(run) at=(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z))"
)

COMPACT = re.compile(
    TITLE + r" (?P<step>\d+): (?P<status>\d{3}) (?P<method>[A-Z]+) (?P<url>\S+)"
    r" \| dns=(?P<dns>\d+\.\d)ms connect=(?P<connect>\d+\.\d)ms tls=(?P<tls>\d+\.\d)ms"
    r" ttfb=(?P<ttfb>\d+\.\d)ms total=(?P<total>\d+\.\d)ms \| (?P<size>\d+ B|\d+\.\d [KM]B)"
)

COMPACT_ERROR = re.compile(
    TITLE + r" (?P<step>\d+): ERROR (?P<method>[A-Z]+) (?P<url>\S+)"
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
    return [line for line in text.splitlines() if line.startswith("Run ") and " Step " in line]


# --- what is said to people -----------------------------------------------------------------------


UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What may not stand raw in a JSON document: what moves a terminal's cursor or turns its text around."""


ACCIDENT = re.compile(r"Traceback \(|Exception ignored|\b[A-Z]\w+Warning: |internal error")
"""What Python, or a program that it has to end, says on stderr."""
ANSWER = re.compile("httphases: (error: |warning: (\\d+ of \\d+ runs )?stopped after)|[╭│╰]")
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
