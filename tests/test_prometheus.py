"""Metrics for Prometheus (--prometheus): read by its own parsers, and held against the JSON export."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import urllib.request
from datetime import datetime, timezone

import pytest

from checks import PHASES, check_usage_error
from conftest import PATIENCE, TOOL
from mint import Mint
from servers import (
    Reply,
    debian_program,
    free_port,
    http_server,
    redirect,
    refused_port,
    scripted,
    sending,
)

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")

STEP_FAMILIES = {
    f"httphases_{name}"
    for name in (
        "request_success request_duration_seconds request_ttfb_seconds request_elapsed_seconds "
        "response_status_code response_body_size_bytes tcp_rtt_seconds tcp_retransmits"
    ).split()
}
RUN_FAMILIES = {"httphases_success", "httphases_elapsed_seconds", "httphases_last_run_timestamp_seconds"}
SERIES_FAMILIES = {
    f"httphases_{name}" for name in "request_duration_stat_seconds runs runs_failed runs_bad_status".split()
}


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

    def run(*arguments, code=0, warned=None):
        paths = tmp_path / "out.prom", tmp_path / "out.json"
        result = call_tool("--compact", "--prometheus", paths[0], "--json", paths[1], *arguments)
        assert result.code == code, result.err
        if warned:
            result.warned(warned)
        return Metrics(paths[0].read_text(encoding="utf-8")), json.loads(paths[1].read_text("utf-8"))

    return run


def seconds(ms):
    return pytest.approx(ms / 1000, abs=1e-9)


# --- one request ----------------------------------------------------------------------------------


def test_a_success_has_the_times_of_the_json_export_in_seconds(measured, server):
    metrics, document = measured(server.url("/a?b=c"))
    [step] = document["steps"]
    timing = step["timing"]
    assert metrics.durations(step="1") == {
        phase: seconds(timing[f"{phase}_ms"]) for phase in PHASES if phase != "tls"
    }
    assert metrics.value("request_ttfb_seconds") == seconds(timing["ttfb_ms"])
    assert metrics.value("request_elapsed_seconds", step="1") == seconds(timing["total_ms"])
    assert metrics.value("elapsed_seconds") == seconds(timing["total_ms"])
    assert metrics.value("request_success") == metrics.value("success") == 1
    assert metrics.value("response_status_code") == 200
    assert metrics.value("response_body_size_bytes") == 6
    assert metrics.value("tcp_retransmits") == step["network"]["tcp_retransmits"]


def test_all_are_gauges_without_timestamps_and_only_these_names_exist(measured, server):
    metrics, _ = measured(server.url())
    assert set(metrics.families) == STEP_FAMILIES | RUN_FAMILIES
    assert {family.type for family in metrics.families.values()} == {"gauge"}
    assert all(sample.timestamp is None for sample in metrics.samples)
    assert all(family.documentation for family in metrics.families.values())


def test_every_series_has_the_target_with_its_port_and_only_step_families_a_step(measured, server):
    metrics, _ = measured(server.url("/deep/path?secret=1"))
    assert {sample.labels["target"] for sample in metrics.samples} == {f"http://{server.authority}/deep/path"}
    with_step = {sample.name for sample in metrics.samples if "step" in sample.labels}
    assert with_step == STEP_FAMILIES
    assert {sample.labels.get("step") for sample in metrics.samples} == {"1", None}
    assert not any("label" in sample.labels for sample in metrics.samples)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://127.0.0.1/", "http://127.0.0.1:80/"),
        ("HTTPS://localhost/x", "https://localhost:443/x"),
        ("http://[::1]", "http://[::1]:80/"),
    ],
)
def test_the_port_is_written_where_it_is_the_default_too(measured, url, target):
    with refused_port() as port:
        metrics, _ = measured("--proxy", f"http://127.0.0.1:{port}", url, code=75)
    assert {sample.labels["target"] for sample in metrics.samples} == {target}


def test_the_last_run_ended_between_before_and_after(measured, server):
    before = datetime.now(timezone.utc).timestamp()
    metrics, _ = measured(server.url())
    assert before - 0.01 <= metrics.value("last_run_timestamp_seconds")
    assert metrics.value("last_run_timestamp_seconds") <= datetime.now(timezone.utc).timestamp() + 0.01


def test_a_lookup_that_was_not_needed_takes_0_and_is_told(measured, server):
    metrics, _ = measured(server.url())
    assert metrics.durations()["dns"] == 0


def test_https_has_its_handshake_and_the_earliest_end_of_its_certificates(measured, tls, authority):
    with http_server(tls=tls) as server:
        metrics, document = measured("--cacert", authority.file, server.url())
    [step] = document["steps"]
    assert metrics.durations()["tls"] == seconds(step["timing"]["tls_ms"])
    ends = [each["not_after"] for each in step["network"]["cert_chain"]]
    earliest = min(datetime.strptime(end, "%Y-%m-%dT%H:%M:%SZ") for end in ends)
    told = metrics.value("cert_not_after_timestamp_seconds", step="1")
    assert told == earliest.replace(tzinfo=timezone.utc).timestamp()


def test_a_ca_that_ends_before_the_server_s_certificate_is_what_counts(measured, tmp_path):
    mint = Mint(tmp_path)
    middle = mint.issue(mint.ca, "Middle CA", days=(-9, 30), ca=True)
    leaf = mint.issue(middle, sans=("127.0.0.1",), days=(-1, 90))
    with http_server(tls=mint.context(leaf, middle[1])) as server:
        metrics, _ = measured("--cacert", mint.root, server.url())
    left = metrics.value("cert_not_after_timestamp_seconds") - datetime.now(timezone.utc).timestamp()
    assert 29.9 < left / 86400 < 30.1


def test_each_step_of_a_chain_is_told_and_the_chain_as_a_whole(measured, server):
    with http_server({"/": redirect(server.url("/b"))}) as first:
        metrics, document = measured("-L", first.url())
        target = f"http://{first.authority}/"
    assert [metrics.value("response_status_code", step=step) for step in "12"] == [302, 200]
    assert metrics.value("elapsed_seconds") == seconds(document["summary"]["total_time_ms"])
    assert {sample.labels["target"] for sample in metrics.samples} == {target}


@pytest.mark.parametrize(("budget", "passed", "code"), [("total=9000", 1, 0), ("total=0.001", 0, 4)])
def test_budgets_are_told_where_there_are_some(measured, server, budget, passed, code):
    metrics, _ = measured("--slo", budget, server.url(), code=code)
    assert metrics.value("slo_pass") == passed


# --- failures: absent, never 0 --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "options", "code", "success"),
    [
        (500, ["--fail"], 22, 0),
        (500, [], 0, 0),
        (302, [], 0, 1),
        (404, ["--expect", "404"], 0, 1),
        (200, ["--expect", "404"], 22, 0),
    ],
)
def test_a_success_is_a_good_answer(measured, status, options, code, success):
    with http_server({"/": Reply(status)}) as server:
        unexpected = "does not match --expect" if code == 22 and "--expect" in options else None
        metrics, document = measured(*options, server.url(), code=code, warned=unexpected)
    assert (metrics.value("request_success"), metrics.value("success")) == (success, success)
    assert metrics.value("response_status_code") == status
    assert metrics.value("elapsed_seconds") == seconds(document["summary"]["total_time_ms"])


def test_of_a_failure_neither_the_phase_under_way_nor_its_time_is_told(measured):
    with http_server({"/": Reply(wait=60)}) as server:
        metrics, document = measured("-m", "1.2", server.url(), code=75)
    [step] = document["steps"]
    assert step["error"]["phase"] == "wait" and step["timing"]["wait_ms"] > 0
    assert set(metrics.durations()) == {"dns", "connect"}
    present = {sample.name.removeprefix("httphases_") for sample in metrics.samples}
    assert not present & {
        "request_ttfb_seconds",
        "request_elapsed_seconds",
        "elapsed_seconds",
        "response_status_code",
        "response_body_size_bytes",
        "slo_pass",
        "cert_not_after_timestamp_seconds",
        "runs",
    }
    assert (metrics.value("request_success"), metrics.value("success")) == (0, 0)
    assert metrics.value("last_run_timestamp_seconds")


def test_a_connection_that_is_refused_has_no_time_at_all(measured):
    with refused_port() as port:
        metrics, _ = measured(f"http://127.0.0.1:{port}/", code=75)
    assert metrics.durations() == {"dns": 0}
    assert metrics.value("tcp_rtt_seconds") is None
    assert metrics.value("tcp_retransmits") is None


def test_a_body_that_is_cut_has_its_first_byte_and_status(measured):
    with scripted(sending("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")) as server:
        metrics, document = measured(server.url(), code=75)
    [step] = document["steps"]
    assert set(metrics.durations()) == {"dns", "connect", "wait"}
    assert metrics.value("request_ttfb_seconds") == seconds(step["timing"]["ttfb_ms"])
    assert metrics.value("response_status_code") == 200
    assert metrics.value("response_body_size_bytes") == 4
    assert metrics.value("request_elapsed_seconds") is None


def test_a_certificate_that_is_not_believed_has_its_end_all_the_same(measured, tls):
    with http_server(tls=tls) as server:
        metrics, _ = measured(server.url(), code=75)
    assert metrics.value("cert_not_after_timestamp_seconds") > 0
    assert set(metrics.durations()) == {"dns", "connect"}


def test_the_steps_before_a_failure_are_told(measured):
    with refused_port() as port, http_server({"/": redirect(f"http://127.0.0.1:{port}/")}) as first:
        metrics, _ = measured("-L", first.url(), code=75)
    assert [metrics.value("request_success", step=step) for step in "12"] == [1, 0]
    assert metrics.value("request_elapsed_seconds", step="1") > 0
    assert metrics.value("elapsed_seconds") is None


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "label",
    ["rack 7", 'a "b" c', "back\\slash", "\\n", "two\nlines", "Köln € 東京", "{}=,", "\t", " "],
)
def test_a_label_comes_back_as_it_was_given(measured, server, label):
    metrics, document = measured("--label", label, server.url())
    assert {sample.labels["label"] for sample in metrics.samples} == {label}
    assert document["label"] == label


def test_a_label_that_is_no_utf_8_is_text_all_the_same(run_tool, server, tmp_path):
    path = tmp_path / "out.prom"
    assert run_tool(
        "--label", b"a\xffb".decode("utf-8", "surrogateescape"), "--prometheus", path, server.url()
    )
    metrics = Metrics(path.read_bytes().decode("utf-8"))
    assert {sample.labels["label"] for sample in metrics.samples} == {"a\ufffdb"}


def test_host_and_label_stand_in_json(measured, server):
    _, plain = measured(server.url())
    assert (plain["host"], plain["label"]) == (os.uname().nodename, None)
    _, series = measured("--count", "1", "--label", "x", server.url())
    assert (series["host"], series["label"]) == (os.uname().nodename, "x")


def test_an_empty_path_is_a_usage_error(call_tool, server):
    check_usage_error(call_tool("--prometheus", "", server.url()), "--prometheus")
    assert not server.requests


# --- series ---------------------------------------------------------------------------------------


def test_a_series_has_medians_and_how_the_phases_lie(measured, server):
    metrics, document = measured("--count", "4", "--interval", "0", server.url())
    [statistics] = document["statistics"]
    for phase in ("dns", "connect", "wait", "xfer"):
        stats = statistics[f"{phase}_ms"]
        assert metrics.durations()[phase] == seconds(stats["median"])
        told = {
            sample.labels["stat"]: sample.value
            for sample in metrics.all("request_duration_stat_seconds", phase=phase)
        }
        assert told == {name: seconds(stats[name]) for name in ("min", "median", "max")}
    assert "tls" not in metrics.durations()
    assert metrics.value("request_ttfb_seconds") == seconds(statistics["ttfb_ms"]["median"])
    assert metrics.value("request_elapsed_seconds") == seconds(statistics["total_ms"]["median"])
    assert metrics.value("elapsed_seconds") == seconds(statistics["total_ms"]["median"])
    assert (metrics.value("runs"), metrics.value("runs_failed")) == (4, 0)
    assert set(metrics.families) == SERIES_FAMILIES | STEP_FAMILIES | RUN_FAMILIES


def test_a_percentile_is_told_where_the_runs_support_it(measured, server):
    metrics, document = measured("--count", "20", "--interval", "0", server.url())
    [statistics] = document["statistics"]
    told = metrics.value("request_duration_stat_seconds", phase="wait", stat="p95")
    assert told == seconds(statistics["wait_ms"]["p95"])


def test_the_total_of_a_chain_is_the_median_of_the_runs(measured, server):
    with http_server({"/": redirect(server.url("/b"))}) as first:
        metrics, document = measured("-L", "--count", "3", "--interval", "0", first.url())
    totals = sorted(run["summary"]["total_time_ms"] for run in document["runs"])
    assert metrics.value("elapsed_seconds") == seconds(totals[1])


def in_turn(*replies):
    """Make a script that answers one connection after the other; None hangs up without an answer."""

    def script(peer):
        peer.read_request()
        reply = replies[min(peer.number, len(replies) - 1)]
        if reply is not None:
            peer.send(f"HTTP/1.1 {reply} X\r\nContent-Length: {peer.number}\r\n\r\n" + "x" * peer.number)

    return script


def test_of_a_series_success_is_of_all_runs_the_status_the_worst_and_the_times_of_good_ones(measured):
    with scripted(in_turn(200, None, 503, 200, None)) as server:
        metrics, document = measured("--count", "5", "--interval", "0", server.url(), code=75)
    assert (metrics.value("success"), metrics.value("request_success")) == (0, 0)
    assert [metrics.value(name) for name in ("runs", "runs_failed", "runs_bad_status")] == [5, 2, 1]
    assert metrics.value("response_status_code") == 503
    totals = [document["runs"][number]["summary"]["total_time_ms"] for number in (0, 3)]
    for name in ("elapsed_seconds", "request_elapsed_seconds"):
        told = metrics.value(name)
        assert told == pytest.approx(sum(totals) / 2000, abs=6e-7), "rounded to a microsecond"


def test_runs_without_a_good_one_have_the_times_of_those_without_an_error(measured):
    with scripted(in_turn(503, None, 500)) as server:
        options = ["--count", "3", "--interval", "0", server.url()]
        metrics, document = measured(*options, code=75, warned="no answer was good")
    assert [metrics.value(name) for name in ("runs", "runs_failed", "runs_bad_status")] == [3, 1, 2]
    totals = [document["runs"][number]["summary"]["total_time_ms"] for number in (0, 2)]
    assert metrics.value("elapsed_seconds") == pytest.approx(sum(totals) / 2000, abs=6e-7)


def test_a_last_run_that_failed_leaves_the_status_of_the_others(measured):
    with scripted(in_turn(200, None)) as server:
        metrics, _ = measured("--count", "2", "--interval", "0", server.url(), code=75)
    assert metrics.value("response_status_code") == 200
    assert metrics.value("response_body_size_bytes") is None
    assert metrics.value("request_elapsed_seconds") > 0


def test_runs_that_all_failed_have_no_times(measured):
    with refused_port() as port:
        metrics, _ = measured("--count", "2", "--interval", "0", f"http://127.0.0.1:{port}/", code=75)
    assert metrics.durations() == {}
    assert metrics.value("elapsed_seconds") is None
    assert (metrics.value("runs"), metrics.value("runs_failed")) == (2, 2)


def test_a_step_that_the_last_run_did_not_come_to_has_the_status_of_the_others(measured, server):
    first = [f"302 Found\r\nLocation: {server.url('/b')}"]

    def script(peer):
        peer.read_request()
        if peer.number == 0:
            peer.send(f"HTTP/1.1 {first[0]}\r\nContent-Length: 0\r\n\r\n")

    with scripted(script) as broken:
        metrics, _ = measured("-L", "--count", "2", "--interval", "0", broken.url(), code=75)
    assert metrics.value("response_status_code", step="2") == 200
    assert metrics.value("response_body_size_bytes", step="2") is None
    assert metrics.value("request_elapsed_seconds", step="2") > 0


def test_with_reuse_the_times_are_of_kept_connections(measured, server):
    metrics, document = measured("--count", "3", "--interval", "0", "--reuse", server.url())
    assert set(metrics.durations()) == {"wait", "xfer"}
    [found] = document["statistics"]
    assert metrics.value("request_ttfb_seconds") == seconds(found["ttfb_ms"]["median"])
    assert metrics.value("elapsed_seconds") == seconds(found["total_ms"]["median"])
    assert metrics.value("runs") == 3


def test_each_address_has_series_of_its_own(measured):
    with http_server(host="0.0.0.0") as server:
        given = [f"--resolve=many.test:{server.port}:127.0.0.{last}" for last in (1, 2)]
        options = ["--all-addresses", *given, "--slo", "total=9000"]
        metrics, document = measured(*options, server.url(host="many.test"))
    assert {sample.labels["address"] for sample in metrics.samples} == {"127.0.0.1", "127.0.0.2"}
    for run in document["runs"]:
        durations = metrics.durations(address=run["target"])
        assert durations["wait"] == seconds(run["steps"][0]["timing"]["wait_ms"])
        assert "dns" not in durations
        assert metrics.value("slo_pass", address=run["target"]) == 1
        assert metrics.value("success", address=run["target"]) == 1


def test_an_address_that_fails_is_told_apart_from_one_that_does_not(measured, server):
    given = [f"--resolve=many.test:{server.port}:127.0.0.{last}" for last in (1, 2)]
    options = ["--all-addresses", *given, "--slo", "total=9000"]
    metrics, _ = measured(*options, server.url(host="many.test"), code=75)
    assert [metrics.value("success", address=f"127.0.0.{last}") for last in (1, 2)] == [1, 0]
    assert [metrics.value("slo_pass", address=f"127.0.0.{last}") for last in (1, 2)] == [1, None]


# --- the file -------------------------------------------------------------------------------------


def test_help_and_type_are_the_same_on_every_run_and_stand_by_their_series(call_tool, server, tmp_path):
    path = tmp_path / "out.prom"
    with refused_port() as port:
        runs = [
            [server.url()],
            [f"http://127.0.0.1:{port}/"],
            ["--count", "2", "--interval", "0", "--label", "x", server.url()],
        ]
        seen = {}
        for arguments in runs:
            call_tool("--compact", "--slo", "total=5000", "--prometheus", path, *arguments)
            lines = path.read_text().splitlines()
            assert path.read_text().endswith("\n") and "" not in lines
            for line in filter(lambda line: line.startswith("#"), lines):
                _, word, name, rest = line.split(" ", 3)
                assert seen.setdefault((word, name), rest) == rest
            names = [line.split(" ")[2] for line in lines if line.startswith("# TYPE")]
            assert len(names) == len(set(names))
            for number, line in enumerate(lines):
                if line.startswith("# TYPE"):
                    name = line.split(" ")[2]
                    assert lines[number - 1].startswith(f"# HELP {name} ")
                    assert lines[number + 1].startswith(name + "{")


def test_on_stdout_it_is_alone_and_the_report_is_on_stderr(run_tool, server):
    result = run_tool("--compact", "--prometheus", "-", server.url())
    assert result.code == 0
    assert Metrics(result.out).value("success") == 1
    assert "Step 1: 200" in result.err


def test_a_new_file_may_be_read_by_whoever_collects_it(start_tool, server, tmp_path):
    """Cron's umask is often 077; a file that is there keeps its mode."""
    path = tmp_path / "out.prom"
    for mode in (0o644, 0o640):
        process = start_tool(
            "--compact", "--prometheus", path, server.url(), preexec_fn=lambda: os.umask(0o077)
        )
        assert process.wait(PATIENCE) == 0
        assert stat.S_IMODE(path.stat().st_mode) == mode
        path.chmod(0o640)


@pytest.mark.parametrize("other", ["--json", "--har"])
@pytest.mark.parametrize("path", ["-", "same"])
def test_no_two_exports_go_to_one_place(call_tool, server, tmp_path, other, path):
    path = path if path == "-" else str(tmp_path / path)
    check_usage_error(call_tool("--prometheus", path, other, path, server.url()), other, "--prometheus")
    assert not server.requests


def test_another_export_may_go_to_stdout(run_tool, server, tmp_path):
    path = tmp_path / "out.prom"
    result = run_tool("--json", "-", "--prometheus", path, server.url())
    assert result.json()["summary"]["final_status"] == 200
    assert Metrics(path.read_text()).value("success") == 1


EVENTS = []
sys.addaudithook(lambda name, details: name == "os.rename" and EVENTS.append(details[:2]))


def test_no_reader_ever_finds_half_a_file(call_tool, server, tmp_path):
    """It is written under a name that the textfile collector does not read, and renamed."""
    path = tmp_path / "out.prom"
    EVENTS.clear()
    assert call_tool("--compact", "--prometheus", path, server.url()).code == 0
    [(temporary, _)] = [each for each in EVENTS if each[1] == "out.prom"]
    assert os.path.basename(temporary) == temporary, "beside the file: both are names in its folder"
    assert not temporary.endswith(".prom")
    assert os.listdir(tmp_path) == ["out.prom"]


CODES = {
    4: ["--slo", "total=0.001"],
    22: ["--fail"],
    73: ["--json", "/nowhere/at/all"],
    75: ["-m", "0.2"],
}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("series", [[], ["--count", "1"]], ids=["once", "series"])
def test_it_is_written_on_every_result(call_tool, tmp_path, code, series):
    path = tmp_path / "out.prom"
    with http_server({"/": Reply(404 if code == 22 else 200, wait=2 * (code == 75))}) as server:
        result = call_tool("--compact", "--prometheus", path, *CODES[code], *series, server.url())
    assert result.code == code, result.err
    assert ("cannot be written: there is no such folder" in result.err) == bool(code == 73 and series)
    assert Metrics(path.read_text()).value("success") == int(code in (4, 73))


def test_it_is_written_where_redirects_do_not_end(call_tool, tmp_path):
    path = tmp_path / "out.prom"
    with http_server({"/": redirect("/")}) as server:
        assert call_tool("-L", "--compact", "--prometheus", path, server.url()).code == 47
    assert Metrics(path.read_text()).value("response_status_code", step="11") == 302


def test_a_usage_error_leaves_the_old_file(call_tool, tmp_path, server):
    path = tmp_path / "out.prom"
    path.write_text("old\n")
    assert call_tool("--prometheus", path, "-m", "never", server.url()).code == 64
    assert path.read_text() == "old\n"


def test_a_file_that_cannot_be_written_is_73_and_the_rest_is_written(call_tool, tmp_path, server):
    result = call_tool(
        "--compact", "--prometheus", tmp_path / "no" / "x.prom", "--json", tmp_path / "a", server.url()
    )
    assert result.code == 73
    assert "--prometheus" in result.err and "Step 1: 200" in result.out
    assert (tmp_path / "a").exists()


def test_a_signal_before_anything_was_measured_leaves_the_old_file(start_tool, tmp_path):
    path, reached = tmp_path / "out.prom", threading.Event()
    path.write_text("old\n")

    def script(peer):
        peer.read_request()
        reached.set()
        peer.wait(30)

    with scripted(script) as server:
        process = start_tool("--count", "3", "--prometheus", path, server.url())
        assert reached.wait(20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 143
    assert path.read_text() == "old\n" and os.listdir(tmp_path) == ["out.prom"]


def test_a_signal_in_a_series_has_what_was_measured_written(start_tool, tmp_path):
    path, reached = tmp_path / "out.prom", threading.Event()

    def script(peer):
        peer.read_request()
        if peer.number < 2:
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            return
        reached.set()
        peer.wait(30)

    with scripted(script) as server:
        process = start_tool("--count", "9", "--interval", "0", "--prometheus", path, server.url())
        assert reached.wait(20)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    metrics = Metrics(path.read_text())
    assert (metrics.value("runs"), metrics.value("success")) == (2, 1)


def test_a_series_that_this_machine_ends_leaves_the_old_file(tmp_path, server, monkeypatch):
    """What was measured is in JSON; the metrics are seen to grow stale."""
    from inside import tool

    path, document = tmp_path / "out.prom", tmp_path / "out.json"
    path.write_text("old\n")
    measure = tool.measure

    def refuse(options, means, watch, slot):
        if slot.number == 3:
            raise OSError(24, os.strerror(24))
        return measure(options, means, watch, slot)

    monkeypatch.setattr(tool, "measure", refuse)
    monkeypatch.setattr(os, "environ", {})
    options = ["--metrics-only", "--count", "5", "--interval", "0", "--prometheus", str(path)]
    assert tool.main([*options, "--json", str(document), server.url()]) == 70
    assert path.read_text() == "old\n"
    assert json.loads(document.read_text())["summary"]["runs"] == 2


def test_a_lookup_that_fails_has_no_address(measured):
    with refused_port() as port:
        metrics, _ = measured("--all-addresses", f"http://no-such-host.invalid:{port}/", code=75)
    assert metrics.value("success") == metrics.value("request_success") == 0
    assert not any("address" in sample.labels for sample in metrics.samples)


# --- Prometheus' own programs ---------------------------------------------------------------------


def test_promtool_finds_nothing_to_say_against_it(call_tool, tmp_path, server, tls, authority):
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed")
    path = tmp_path / "out.prom"
    with http_server(tls=tls) as secure:
        options = ["--count", "20", "--interval", "0", "--reuse", "--label", 'a "b"\\', "--slo", "total=9000"]
        assert call_tool(*options, "--cacert", authority.file, "--prometheus", path, secure.url()).code == 0
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=path.read_text(), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.fixture
def promtool(tmp_path):
    """Give promtool, in a folder that has MONITORING.md's alert rules in `rules.yml`."""
    program = shutil.which("promtool")
    if not program:
        pytest.skip("promtool is not installed")
    [rules] = re.findall(
        r"```yaml\n(groups:\n.*?)```", (TOOL.parent / "tests" / "MONITORING.md").read_text(), re.DOTALL
    )
    (tmp_path / "rules.yml").write_text(rules)

    def run(*arguments):
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return rules

    return run


def test_promtool_takes_the_alert_rules_that_are_recommended(promtool):
    names = set(re.findall(r"httphases_\w+", promtool("check", "rules", "rules.yml")))
    assert names <= STEP_FAMILIES | RUN_FAMILIES | {"httphases_cert_not_after_timestamp_seconds"}


@pytest.mark.parametrize(
    ("replies", "options", "alerts"),
    [
        ((503,), [], True),
        ((200, 503, 200), ["--count", "3", "--interval", "0"], True),
        ((200,), [], False),
        ((401,), ["--expect", "401"], False),
    ],
)
def test_the_alert_for_what_fails_is_raised_by_an_error_page(
    promtool, call_tool, tmp_path, replies, options, alerts
):
    path = tmp_path / "out.prom"
    with scripted(in_turn(*replies)) as server:
        call_tool("--compact", *options, "--prometheus", path, server.url("/health?a=b"))
        target = server.url("/health")
    [(labels, value)] = re.findall(r"^httphases_success\{(.*)\} (.*)$", path.read_text(), re.MULTILINE)
    expected = {
        "exp_labels": {"severity": "page", "instance": "a", "target": target},
        "exp_annotations": {"summary": f"{target} fails, seen from a"},
    }
    case = {
        "interval": "1m",
        "input_series": [{"series": f'httphases_success{{{labels},instance="a"}}', "values": f"{value}x30"}],
        "alert_rule_test": [
            {"eval_time": "20m", "alertname": "HttpFailing", "exp_alerts": [expected] * alerts}
        ],
    }
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [case]}))
    promtool("test", "rules", "tests.yml")


def test_node_exporter_serves_the_files_of_a_directory(call_tool, tmp_path, server):
    folder = tmp_path / "textfile"
    folder.mkdir()
    for label in ("a", "b"):
        options = ["--compact", "--label", label, "--prometheus", folder / f"{label}.prom"]
        assert call_tool(*options, server.url()).code == 0
    port = free_port()
    arguments = ["--collector.disable-defaults", "--collector.textfile"]
    arguments += [f"--collector.textfile.directory={folder}", f"--web.listen-address=127.0.0.1:{port}"]
    with debian_program("prometheus-node-exporter", arguments, port, tmp_path / "log"):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text = opener.open(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).read().decode()
    metrics = Metrics(text)
    assert metrics.families["node_textfile_scrape_error"].samples[0].value == 0
    assert {sample.labels["label"] for sample in metrics.all("success")} == {"a", "b"}
    assert metrics.value("response_status_code", label="b", step="1") == 200
