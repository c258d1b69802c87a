"""Traces for OpenTelemetry (--otlp): a document of each run, read by OpenTelemetry's own definitions."""

from __future__ import annotations

import json
import os
import re
from datetime import timezone

import pytest

from checks import PHASES, check_usage_error, parse_instant
from servers import Reply, http_server, redirect, scripted, sending

json_format = pytest.importorskip("google.protobuf.json_format", reason="protobuf is not installed")
service = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="opentelemetry-proto is not installed"
)
INTERNAL, CLIENT = 1, 3
ERROR = 2


def attributes(holder):
    found = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in holder.attributes}
    assert len(found) == len(holder.attributes), "a key comes twice"
    return found


class Trace:
    def __init__(self, line):
        document = json.loads(line)
        # Ids are hexadecimal in OTLP/JSON, other than protobuf's own mapping has bytes (base64).
        self.raw = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
        for span in self.raw:
            for name, length in (("traceId", 32), ("spanId", 16), ("parentSpanId", 16)):
                if name in span:
                    assert re.fullmatch(f"[0-9a-f]{{{length}}}", span[name]) and span[name].strip("0")
        self.message = json_format.ParseDict(document, service.ExportTraceServiceRequest())
        [resource_spans] = self.message.resource_spans
        [scope_spans] = resource_spans.scope_spans
        self.resource = attributes(resource_spans.resource)
        self.scope = scope_spans.scope
        self.spans = list(scope_spans.spans)
        [self.root] = [span for span in self.spans if not span.parent_span_id]
        assert len({span.span_id for span in self.spans}) == len(self.spans)

    def below(self, parent):
        found = [span for span in self.spans if span.parent_span_id == parent.span_id]
        assert all(span.trace_id == parent.trace_id for span in found)
        return found

    def steps(self):
        return self.below(self.root)


@pytest.fixture
def traced(call_tool, tmp_path):
    """Run the program; return the traces that it wrote, and the JSON document."""

    def run(*arguments, code=0, env=None):
        path, traces = tmp_path / "out.json", tmp_path / "trace.json"
        result = call_tool("--compact", "--json", path, "--otlp", traces, *arguments, env=env)
        assert result.code == code, result.err
        return [Trace(line) for line in traces.read_bytes().splitlines()], json.loads(path.read_text("utf-8"))

    return run


def test_a_run_is_a_chain_of_steps_of_phases(traced, server):
    [trace], document = traced("-X", "PUT", "-d", "four", server.url("/a/b?token=SECRET#b"))
    [step] = trace.steps()
    assert (trace.root.kind, step.kind, step.name, step.status.code) == (INTERNAL, CLIENT, "PUT", 0)
    phases = trace.below(step)
    assert [(span.name, span.kind) for span in phases] == [
        (phase, INTERNAL) for phase in ("dns", "connect", "wait", "xfer")
    ]
    assert {raw["traceId"] for raw in trace.raw} == {document["trace_id"]}
    assert trace.scope.name == "httphases" and trace.scope.version == document["tool_version"]
    found = attributes(step)
    assert {name: value for name, value in found.items() if not name.startswith("httphases.")} == {
        "http.request.method": "PUT",
        "url.full": server.url("/a/b"),
        "server.address": "127.0.0.1",
        "server.port": server.port,
        "http.response.status_code": 200,
        "http.response.body.size": 6,
        "network.peer.address": "127.0.0.1",
        "network.peer.port": server.port,
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
    }
    assert "SECRET" not in json.dumps(trace.raw)
    assert trace.resource == {"service.name": "httphases", "host.name": os.uname().nodename}
    assert not server.requests[0].values("traceparent"), "without --propagate the server learns nothing"


def test_starts_and_ends_are_those_of_the_measurement_and_leave_no_hole(traced, tls, authority):
    with http_server({"/": Reply(wait=0.05, xfer=0.03, body=b"1234")}, tls=tls) as server:
        [trace], document = traced("--cacert", authority.file, server.url())
    [given] = document["steps"]
    [step] = trace.steps()
    phases = trace.below(step)
    assert [span.name for span in phases] == list(PHASES)
    assert attributes(step)["tls.protocol.version"] == "1.3"
    for span in phases:
        lasted = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
        assert lasted == pytest.approx(given["timing"][f"{span.name}_ms"], abs=1e-6)
    edges = [step.start_time_unix_nano, *(span.end_time_unix_nano for span in phases)]
    assert [span.start_time_unix_nano for span in phases] == edges[:-1]
    assert step.end_time_unix_nano == edges[-1]
    started = parse_instant(given["started_at"]).replace(tzinfo=timezone.utc).timestamp()
    assert 0 <= step.start_time_unix_nano - round(started * 1000) * 1_000_000 < 1_000_000


def test_a_status_that_was_not_expected_is_an_error(traced):
    with http_server({"/": Reply(404)}) as server:
        [[failed], [good]] = traced(server.url())[0], traced("--expect", "404", server.url())[0]
    [step] = failed.steps()
    assert (failed.root.status.code, good.root.status.code, step.status.code) == (ERROR, 0, ERROR)
    assert attributes(step)["error.type"] == "404"


def test_a_failure_is_an_error_of_its_kind_in_the_phase_under_way(traced):
    with scripted(sending("")) as server:
        [trace], document = traced(server.url(), code=75)
    [step] = trace.steps()
    [given] = document["steps"]
    assert attributes(step)["error.type"] == given["error"]["kind"]
    assert (step.status.code, step.status.message) == (ERROR, given["error"]["message"])
    assert "http.response.status_code" not in attributes(step)
    phases = trace.below(step)
    assert [(span.name, span.status.code) for span in phases] == [("dns", 0), ("connect", 0), ("wait", ERROR)]
    assert phases[-1].end_time_unix_nano == step.end_time_unix_nano
    [trace], _ = traced("--unix-socket", "/nowhere/\udcff", "http://a.test/", code=75)
    assert "/nowhere/\ufffd: " in trace.steps()[0].status.message, "half a character is no JSON to many"


def test_a_redirect_that_leads_nowhere_is_a_step_without_the_query_of_its_url(traced, tmp_path):
    with http_server({"/": redirect("ftp://a.test/cb?a='b'&token=SECRET")}) as server:
        [trace], document = traced("-L", server.url("/?mine=SECRET"), code=75)
    one, two = trace.steps()
    assert attributes(one)["http.response.status_code"] == 302
    assert attributes(two)["error.type"] == "redirect"
    assert "server.address" not in attributes(two)
    written = (tmp_path / "trace.json").read_text()
    assert "SECRET" not in written and "token" not in written
    before, mark, _ = document["steps"][-1]["error"]["message"].partition("?")
    assert "redirect" in before and two.status.message == f"{before}{mark}..."


def test_each_run_of_a_series_is_a_line(traced, server):
    traces, document = traced("-H", "traceparent: 00-1-2-01", "--count", "3", "--interval", "0", server.url())
    for trace, run in zip(traces, document["runs"]):
        assert attributes(trace.root)["httphases.run_number"] == run["run_number"]
        assert {raw["traceId"] for raw in trace.raw} == {run["trace_id"]}
    assert len({run["trace_id"] for run in document["runs"]}) == len(traces) == 3
    assert "trace_id" not in document
    assert server.requests[0].values("traceparent") == ["00-1-2-01"], "one's own, without --propagate"


def test_propagate_names_the_span_of_each_step_and_the_chain_spans_its_steps(traced, server):
    with http_server({"/": redirect(server.url("/b"))}) as first:
        [trace], document = traced("-L", "--propagate", first.url())
    sent = [request.values("traceparent") for request in (*first.requests, *server.requests)]
    steps = [raw for raw in trace.raw if raw["kind"] == CLIENT]
    assert sent == [[f"00-{document['trace_id']}-{step['spanId']}-01"] for step in steps]
    assert len({step["spanId"] for step in steps}) == 2
    names = [[h["name"] for h in step["request"]["headers"]] for step in document["steps"]]
    assert all("traceparent" in each for each in names), "what was sent is recorded"
    root, (one, two) = trace.root, trace.steps()
    assert root.start_time_unix_nano == one.start_time_unix_nano
    assert root.end_time_unix_nano == two.end_time_unix_nano
    assert one.end_time_unix_nano <= two.start_time_unix_nano
    assert "http.request.resend_count" not in attributes(one)
    assert attributes(two)["http.request.resend_count"] == 1


def test_malformed_attributes_are_a_usage_error_and_repeat_no_secret(call_tool, server):
    env = {"OTEL_RESOURCE_ATTRIBUTES": "a=1,hunter22"}
    result = call_tool("--otlp", "-", server.url(), env=env)
    check_usage_error(result, "OTEL_RESOURCE_ATTRIBUTES")
    assert "hunter22" not in result.err
    assert call_tool(server.url(), env=env).code == 0, "of no interest without --otlp"


def test_a_label_and_the_variables_of_opentelemetry_say_more_of_the_resource(traced, server):
    more = "deployment.environment.name=pr%6fd, service.name=mine,a=b%2Cc%3Dd"
    env = {"OTEL_SERVICE_NAME": "shop probe", "OTEL_RESOURCE_ATTRIBUTES": more}
    [trace], _ = traced("--label", "rack 7", server.url(), env=env)
    assert trace.resource == {
        "service.name": "shop probe",
        "host.name": os.uname().nodename,
        "httphases.label": "rack 7",
        "deployment.environment.name": "prod",
        "a": "b,c=d",
    }
