"""Metrics for Prometheus (--prometheus): read by its own parsers, and held against the JSON export."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import datetime, timezone

import pytest

from checks import PHASES, parse_instant
from conftest import TOOL
from servers import Reply, every, http_server, redirect, refused_port, scripted, sending

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")


def families(names):
    return {f"httphases_{name}" for name in names.split()}


STEP_FAMILIES = families(
    "request_success request_duration_seconds request_ttfb_seconds request_elapsed_seconds "
    "response_status_code response_body_size_bytes tcp_rtt_seconds tcp_retransmits"
)
RUN_FAMILIES = families("success elapsed_seconds last_run_timestamp_seconds")
SERIES_FAMILIES = families("request_duration_stat_seconds runs runs_failed runs_bad_status")


class Metrics:
    """An exposition as Prometheus reads it."""

    def __init__(self, text):
        self.families = {family.name: family for family in parser.text_string_to_metric_families(text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def all(self, name, **labels):
        """List the samples of a family (without its prefix) that have these labels, and maybe others."""
        family = self.families.get(f"httphases_{name}")
        found = family.samples if family else []
        return [sample for sample in found if labels.items() <= sample.labels.items()]

    def value(self, name, **labels):
        """Return the value of the only such sample, None where there is none."""
        found = self.all(name, **labels)
        assert len(found) <= 1, found
        return found[0].value if found else None

    def durations(self, **labels):
        return {
            sample.labels["phase"]: sample.value for sample in self.all("request_duration_seconds", **labels)
        }


@pytest.fixture
def measured(call_tool, tmp_path):
    """Run the program with --prometheus and --json; return the code, the metrics and the JSON document."""

    def run(*arguments, code=0):
        paths = tmp_path / "out.prom", tmp_path / "out.json"
        result = call_tool("--compact", "--prometheus", paths[0], "--json", paths[1], *arguments)
        assert result.code == code, result.err
        return Metrics(paths[0].read_text(encoding="utf-8")), json.loads(paths[1].read_text("utf-8"))

    return run


def seconds(ms):
    return pytest.approx(ms / 1000, abs=1e-9)


def test_a_success_has_the_times_of_the_json_export_in_seconds(measured, server):
    metrics, document = measured("--slo", "total=9000", server.url("/deep/path?secret=1"))
    [step] = document["steps"]
    timing = step["timing"]
    durations = metrics.durations(step="1")
    assert durations == {phase: seconds(timing[f"{phase}_ms"]) for phase in PHASES if phase != "tls"}
    assert durations["dns"] == 0, "a lookup that was not needed is told"
    assert metrics.value("request_ttfb_seconds") == seconds(timing["ttfb_ms"])
    assert metrics.value("request_elapsed_seconds", step="1") == seconds(timing["total_ms"])
    assert metrics.value("elapsed_seconds") == seconds(timing["total_ms"])
    told = {"request_success": 1, "success": 1, "slo_pass": 1, "response_status_code": 200}
    told["response_body_size_bytes"] = 6
    assert {name: metrics.value(name) for name in told} == told
    assert metrics.value("tcp_retransmits") == step["network"]["tcp_retransmits"]
    assert set(metrics.families) == STEP_FAMILIES | RUN_FAMILIES | {"httphases_slo_pass"}
    assert {family.type for family in metrics.families.values()} == {"gauge"}
    assert all(family.documentation for family in metrics.families.values())
    for sample in metrics.samples:
        others = {"step": "1"} if sample.name in STEP_FAMILIES else {}
        told = {name: value for name, value in sample.labels.items() if name != "phase"}
        assert (sample.timestamp, told) == (
            None,
            {"target": f"http://{server.authority}/deep/path", **others},
        )


def test_https_has_its_handshake_and_the_earliest_end_of_its_certificates(measured, authority):
    middle = authority.issue(authority.ca, "Middle CA", days=(-9, 30), ca=True)
    leaf = authority.issue(middle, sans=("127.0.0.1",), days=(-1, 90))
    with http_server(tls=authority.showing(leaf, middle[1])) as server:
        trusting, document = measured("--cacert", authority.file, server.url())
        doubting, _ = measured(server.url(), code=75)
    [step] = document["steps"]
    ends = [each["not_after"] for each in step["network"]["cert_chain"]]
    earliest = min(datetime.strptime(end, "%Y-%m-%dT%H:%M:%SZ") for end in ends)
    for metrics in (trusting, doubting):
        told = metrics.value("cert_not_after_timestamp_seconds", step="1")
        assert told == earliest.replace(tzinfo=timezone.utc).timestamp()
    assert trusting.durations()["tls"] == seconds(step["timing"]["tls_ms"])
    started = parse_instant(step["started_at"]).replace(tzinfo=timezone.utc).timestamp()
    ended = started + step["timing"]["total_ms"] / 1000  # to the millisecond, of which more may be cut off
    assert -1e-6 < trusting.value("last_run_timestamp_seconds") - ended < 0.001
    assert "tls" not in doubting.durations()


def test_a_success_is_a_good_answer(measured):
    for status, options, code, success in (
        (500, ["--fail"], 22, 0),
        (302, [], 0, 1),
        (404, ["--expect", "404"], 0, 1),
        (200, ["--expect", "404", "--slo", "total=0.001"], 22, 0),
    ):
        with http_server({"/": Reply(status)}) as server:
            metrics, _ = measured(*options, server.url(), code=code)
        assert (metrics.value("request_success"), metrics.value("success")) == (success, success)
        assert metrics.value("response_status_code") == status
    assert metrics.value("slo_pass") == 0


def test_of_a_failure_the_phases_before_it_are_told_and_its_target_has_the_port_that_is_the_default(measured):
    with refused_port() as port:
        metrics, _ = measured("--proxy", f"http://127.0.0.1:{port}", "HTTPS://[::1]", code=75)
        series, _ = measured("--count", "2", "--interval", "0", f"http://127.0.0.1:{port}/", code=75)
    told = families("request_success success error last_run_timestamp_seconds")
    assert set(metrics.families) == told | families("request_duration_seconds")
    assert set(series.families) == told | families("runs runs_failed runs_bad_status")
    assert metrics.durations() == {"dns": 0}
    assert {sample.labels["target"] for sample in metrics.samples} == {"https://[::1]:443/"}
    assert (metrics.value("request_success"), metrics.value("error", kind="proxy")) == (0, 1)
    assert (series.value("runs"), series.value("error", kind="network")) == (2, 2)


def test_of_an_answer_that_was_cut_the_status_and_the_kind_of_failure_are_told(measured):
    cut = sending("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    with scripted(cut) as server, http_server({"/": redirect(server.url())}) as first:
        metrics, _ = measured("-L", first.url(), code=75)
    assert [metrics.value("request_success", step=step) for step in "12"] == [1, 0]
    assert [metrics.value("response_status_code", step=step) for step in "12"] == [302, 200]
    assert [(sample.labels["kind"], sample.value) for sample in metrics.all("error")] == [("protocol", 1)]
    assert set(metrics.durations(step="2")) == {"dns", "connect", "wait"}, "xfer has no end"
    assert metrics.value("request_elapsed_seconds", step="1") > 0
    assert metrics.value("elapsed_seconds") is None


def test_of_a_step_that_the_last_run_did_not_come_to_nothing_of_the_last_run_is_told(measured):
    with http_server({"/": every(redirect("/b"), Reply()), "/b": Reply()}) as server:
        metrics, _ = measured("-L", "--count", "2", "--interval", "0", server.url())
    for name in ("tcp_retransmits", "response_body_size_bytes"):
        assert (metrics.value(name, step="1") is None, metrics.value(name, step="2")) == (False, None)
    assert metrics.value("request_elapsed_seconds", step="2") > 0


def test_quotes_backslashes_and_line_breaks_of_a_label_come_back_as_they_were_given(measured, server):
    given = ['a "b" c\\ \\n{}=,', "two\nlines", "Köln € 東京"]
    for label, told in (*zip(given, given), (b"a\xffb".decode("utf-8", "surrogateescape"), "a\ufffdb")):
        metrics, document = measured("--label", label, server.url())
        assert {sample.labels["label"] for sample in metrics.samples} == {document["label"]} == {told}


@pytest.mark.parametrize("options", [["--count", "4"], ["--count", "21", "--reuse"]], ids=["new", "kept"])
def test_a_series_has_medians_and_how_the_phases_lie(measured, server, options):
    metrics, document = measured(*options, "--interval", "0", server.url())
    [found] = document["statistics"]
    phases = ("wait", "xfer") if "--reuse" in options else ("dns", "connect", "wait", "xfer")
    assert metrics.durations() == {phase: seconds(found[f"{phase}_ms"]["median"]) for phase in phases}
    names = ("min", "median", "p90", "p95", "max") if found["n"] >= 20 else ("min", "median", "max")
    for phase in (*phases, "ttfb", "total"):
        samples = metrics.all("request_duration_stat_seconds", phase=phase)
        told = {sample.labels["stat"]: sample.value for sample in samples}
        assert told == {name: seconds(found[f"{phase}_ms"][name]) for name in names}
    assert metrics.value("request_ttfb_seconds") == seconds(found["ttfb_ms"]["median"])
    for name in ("request_elapsed_seconds", "elapsed_seconds"):
        assert metrics.value(name) == seconds(found["total_ms"]["median"])
    assert (metrics.value("runs"), metrics.value("runs_failed")) == (int(options[1]), 0)
    assert set(metrics.families) == SERIES_FAMILIES | STEP_FAMILIES | RUN_FAMILIES


def test_of_a_series_success_is_of_all_runs_and_the_times_are_of_good_ones(measured):
    def script(peer):
        peer.read_request()
        status = (200, None, 503, 200, None)[peer.number]
        if status:
            peer.send(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")

    with scripted(script) as server:
        metrics, document = measured("--count", "5", "--interval", "0", server.url(), code=75)
    assert (metrics.value("success"), metrics.value("request_success")) == (0, 0)
    assert [metrics.value(name) for name in ("runs", "runs_failed", "runs_bad_status")] == [5, 2, 1]
    assert metrics.value("response_status_code") == 503
    totals = [document["runs"][number]["summary"]["total_time_ms"] for number in (0, 3)]
    for name in ("elapsed_seconds", "request_elapsed_seconds"):
        told = metrics.value(name)
        assert told == pytest.approx(sum(totals) / 2000, abs=6e-7), "rounded to a microsecond"


def test_each_address_has_series_of_its_own_and_one_that_fails_is_told_apart(measured, server):
    given = [f"--resolve=many.test:{server.port}:127.0.0.{last}" for last in (1, 2)]
    options = ["--all-addresses", *given, "--slo", "total=9000"]
    metrics, document = measured(*options, server.url(host="many.test"), code=75)
    for name, values in (("success", [1, 0]), ("slo_pass", [1, None])):
        assert [metrics.value(name, address=f"127.0.0.{last}") for last in (1, 2)] == values
    durations = metrics.durations(address="127.0.0.1")
    [run] = [each for each in document["runs"] if each["target"] == "127.0.0.1"]
    assert durations["wait"] == seconds(run["steps"][0]["timing"]["wait_ms"])
    assert durations["dns"] == 0


def test_promtool_takes_the_metrics_and_the_alert_rules_that_are_recommended(
    call_tool, tmp_path, tls, authority
):
    program = shutil.which("promtool") or pytest.skip("promtool is not installed")
    path, rules = tmp_path / "out.prom", tmp_path / "rules.yml"
    with http_server(tls=tls) as secure:
        options = ["--count", "20", "--interval", "0", "--reuse", "--label", 'a "b"\\', "--slo", "total=9000"]
        assert call_tool(*options, "--cacert", authority.file, "--prometheus", path, secure.url()).code == 0
    text = (TOOL.parent / "tests" / "MONITORING.md").read_text()
    [told] = re.findall(r"```yaml\n(groups:\n.*?)```", text, re.DOTALL)
    rules.write_text(told)
    for words, given in (("check metrics", path.read_text()), (f"check rules {rules}", None)):
        settings = {"capture_output": True, "text": True, "check": False, "input": given}
        done = subprocess.run([program, *words.split()], **settings)
        assert done.returncode == 0 and not (given and done.stdout + done.stderr), done.stdout + done.stderr
    names = set(re.findall(r"httphases_\w+", told))
    assert names <= STEP_FAMILIES | RUN_FAMILIES | families("cert_not_after_timestamp_seconds")
