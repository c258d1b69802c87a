"""Traces for OpenTelemetry (--otlp): received by a real HTTP server, read by its own definitions."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import ssl
import threading
import time
from datetime import datetime, timezone

import pytest

from checks import PHASES, calm, check_usage_error
from inside import tool
from relays import relay_proxy
from servers import Reply, black_hole, http_server, redirect, refused_port, scripted, sending

json_format = pytest.importorskip("google.protobuf.json_format", reason="protobuf is not installed")
service = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="opentelemetry-proto is not installed"
)
conventions = pytest.importorskip(
    "opentelemetry.semconv.attributes", reason="opentelemetry-semantic-conventions is not installed"
)

LIMIT = 5.0
"""Seconds that a collector may cost in all."""
INTERNAL, CLIENT = 1, 3
ERROR = 2


def plain(value):
    """Return what an AnyValue holds."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(each) for each in value.array_value.values]
    return getattr(value, kind)


def attributes(holder):
    found = {each.key: plain(each.value) for each in holder.attributes}
    assert len(found) == len(holder.attributes), "a key comes twice"
    return found


class Trace:
    """What a collector was sent in one request."""

    def __init__(self, body):
        document = json.loads(body)
        # Ids are hexadecimal in OTLP/JSON, other than protobuf's own mapping has bytes (base64).
        for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            for name, length in (("traceId", 32), ("spanId", 16), ("parentSpanId", 16)):
                if name in span:
                    assert re.fullmatch(f"[0-9a-f]{{{length}}}", span[name]) and span[name].strip("0")
        self.message = json_format.ParseDict(document, service.ExportTraceServiceRequest())
        [resource_spans] = self.message.resource_spans
        [scope_spans] = resource_spans.scope_spans
        self.resource = attributes(resource_spans.resource)
        self.scope = scope_spans.scope
        self.spans = list(scope_spans.spans)
        self.raw = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
        ids = [span.span_id for span in self.spans]
        assert len(ids) == len(set(ids))

    @property
    def roots(self):
        return [span for span in self.spans if not span.parent_span_id]

    def below(self, parent):
        found = [span for span in self.spans if span.parent_span_id == parent.span_id]
        assert all(span.trace_id == parent.trace_id for span in found)
        return found

    def steps(self, root=None):
        return self.below(root or self.roots[0])


def traces_of(collector):
    return [Trace(request.body) for request in collector.requests]


@contextlib.contextmanager
def collecting(reply=None, path="/v1/traces", **settings):
    """Run a collector that answers every request to `path` with `reply`."""
    reply = reply or Reply(200, b"{}", [("Content-Type", "application/json")])
    with http_server({path: reply}, **settings) as server:
        yield server


@pytest.fixture
def collector():
    with collecting() as server:
        yield server


@pytest.fixture
def traced(call_tool, collector, tmp_path):
    """Run the program against a collector; return the only request there, and the JSON document."""

    def run(*arguments, code=0, env=None, warned=None):
        path = tmp_path / "out.json"
        result = call_tool("--compact", "--json", path, "--otlp", collector.url(), *arguments, env=env)
        assert result.code == code, result.err
        if warned:
            result.warned(warned)
        [trace] = traces_of(collector)
        return trace, json.loads(path.read_text("utf-8"))

    return run


def nano(instant):
    moment = datetime.strptime(instant, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000) * 1_000_000


def span_us(span):
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1000


# --- what is sent ---------------------------------------------------------------------------------


@pytest.mark.needs("h2")
def test_a_collector_that_speaks_http2_too_is_asked_in_http1(call_tool, server, authority):
    both = authority.context(alpn=("h2", "http/1.1"))
    with http_server(tls=both) as collector:
        words = ("--compact", "-k", "--otlp", collector.url(host="localhost"), server.url())
        result = call_tool(*words, env={"SSL_CERT_FILE": str(authority.file)})
    assert result.code == 0 and result.err == ""
    assert [request.method for request in collector.requests] == ["POST"]


def test_it_is_one_post_of_json_to_v1_traces(traced, collector, server):
    traced(server.url())
    [request] = collector.requests
    assert (request.method, request.target) == ("POST", "/v1/traces")
    assert request.values("Content-Type") == ["application/json"]
    assert request.values("Host") == [collector.authority]


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("", "/v1/traces"),
        ("/", "/v1/traces"),
        ("/v1/traces", "/v1/traces"),
        ("/otlp", "/otlp/v1/traces"),
        ("/otlp/", "/otlp/v1/traces"),
        ("/a/v1/traces", "/a/v1/traces"),
        ("/a?key=1", "/a/v1/traces?key=1"),
    ],
)
def test_the_path_is_completed_unless_it_is_whole(call_tool, server, given, asked):
    with collecting(path=asked.partition("?")[0]) as collector:
        assert call_tool("--otlp", collector.url("") + given, server.url()).code == 0
    assert [request.target for request in collector.requests] == [asked]


def test_a_run_is_a_chain_of_steps_of_phases(traced, server):
    trace, document = traced(server.url("/a?secret=1#b"))
    [root] = trace.roots
    [step] = trace.steps()
    assert (root.kind, step.kind, step.name) == (INTERNAL, CLIENT, "GET")
    phases = trace.below(step)
    assert [span.name for span in phases] == ["dns", "connect", "wait", "xfer"]
    assert {span.kind for span in phases} == {INTERNAL}
    assert {span.trace_id.hex() for span in trace.spans} != {""}
    assert {raw["traceId"] for raw in trace.raw} == {document["trace_id"]}
    assert trace.scope.name == "httphases" and trace.scope.version == document["tool_version"]


def test_starts_and_ends_are_those_of_the_measurement_and_leave_no_hole(traced, tls, authority):
    with http_server({"/": Reply(wait=0.05, xfer=0.03, body=b"1234")}, tls=tls) as server:
        before = time.time_ns()
        trace, document = traced("--cacert", authority.file, server.url())
        after = time.time_ns()
    [given] = document["steps"]
    [step] = trace.steps()
    phases = trace.below(step)
    assert [span.name for span in phases] == list(PHASES)
    for span in phases:
        assert span_us(span) == pytest.approx(given["timing"][f"{span.name}_ms"] * 1000, abs=0.001)
    edges = [step.start_time_unix_nano, *(span.end_time_unix_nano for span in phases)]
    assert [span.start_time_unix_nano for span in phases] == edges[:-1]
    assert step.end_time_unix_nano == edges[-1]
    assert 0 <= step.start_time_unix_nano - nano(given["started_at"]) < 1_000_000
    assert before <= step.start_time_unix_nano and step.end_time_unix_nano <= after + 1_000_000


def test_a_start_is_when_the_clock_started_not_when_it_was_prepared(traced):
    """Each run of a schedule is prepared 20 ms before; one that this machine holds up proves nothing."""
    arrived = []

    def script(peer):
        arrived.append(time.time_ns())
        peer.read_request()
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with scripted(script) as server:
        trace, _ = traced("--count", "12", "--interval", "0.1", server.url(host="localhost"))
    off = []
    for instant, root in zip(arrived, trace.roots):
        [step] = trace.steps(root)
        dns, connect = trace.below(step)[:2]
        assert dns.start_time_unix_nano == step.start_time_unix_nano
        off.append(abs(instant - connect.end_time_unix_nano))
    assert min(off[1:]) < 10_000_000


def test_the_chain_spans_its_steps(traced, server):
    with http_server({"/": redirect(server.url("/b"))}) as first:
        trace, _ = traced("-L", first.url())
    [root] = trace.roots
    one, two = trace.steps()
    assert root.start_time_unix_nano == one.start_time_unix_nano
    assert root.end_time_unix_nano == two.end_time_unix_nano
    assert one.end_time_unix_nano <= two.start_time_unix_nano
    assert "http.request.resend_count" not in attributes(one)
    assert attributes(two)["http.request.resend_count"] == 1


def test_attributes_are_those_of_the_conventions(traced, server):
    url = server.url("/a/b?token=SECRET")
    trace, _ = traced("-X", "PUT", "-d", "four", url)
    [step] = trace.steps()
    assert step.name == "PUT"
    found = attributes(step)
    assert {name: value for name, value in found.items() if not name.startswith("httphases.")} == {
        "http.request.method": "PUT",
        "url.full": server.url("/a/b"),
        "server.address": "127.0.0.1",
        "server.port": server.port,
        "http.request.body.size": 4,
        "http.response.status_code": 200,
        "http.response.body.size": 6,
        "network.peer.address": "127.0.0.1",
        "network.peer.port": server.port,
        "network.local.address": "127.0.0.1",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
    }
    assert "SECRET" not in json.dumps(trace.raw)
    assert step.status.code == 0


def convention_names():
    """List every attribute name of the semantic conventions."""
    import importlib
    import pkgutil

    names = set()
    for package in ("opentelemetry.semconv.attributes", "opentelemetry.semconv._incubating.attributes"):
        module = importlib.import_module(package)
        for each in pkgutil.iter_modules(module.__path__, package + "."):
            names |= {
                value for value in vars(importlib.import_module(each.name)).values() if isinstance(value, str)
            }
    return names


def test_every_other_name_begins_with_httphases(traced, authority, http2):
    with http_server({"/": redirect(http2.url("/?status=404"))}) as first:
        options = ["-L", "--cacert", authority.file, "--slo", "total=9000", "--label", "x"]
        trace, _ = traced(*options, first.url(), warned="held against a 404 answer")
    names = {name for span in trace.spans for name in attributes(span)}
    names |= {name for span in trace.spans for event in span.events for name in attributes(event)}
    names |= set(trace.resource)
    own = {name for name in names if name.startswith("httphases.")}
    assert own and names - own <= convention_names()
    assert {"tls.protocol.version", "error.type"} <= names
    assert all(event.name.startswith("httphases.") for span in trace.spans for event in span.events)


def test_http2_is_called_2(traced, authority, http2):
    trace, _ = traced("--cacert", authority.file, http2.url("/"))
    [step] = trace.steps()
    assert attributes(step)["network.protocol.version"] == "2"
    assert attributes(step)["tls.protocol.version"] == "1.3"


@pytest.mark.parametrize("status", [404, 503])
def test_an_error_page_is_an_error_of_its_status(traced, status):
    with http_server({"/": Reply(status)}) as server:
        trace, _ = traced(server.url())
    [step] = trace.steps()
    assert attributes(step)["error.type"] == str(status)
    assert step.status.code == ERROR and trace.roots[0].status.code == ERROR


def test_a_failure_is_an_error_of_its_kind_in_the_phase_under_way(traced):
    with http_server({"/": Reply(wait=5)}) as server:
        trace, document = traced("-m", "1.2", server.url(), code=75)
    [step] = trace.steps()
    assert attributes(step)["error.type"] == "timeout"
    assert step.status.code == ERROR
    assert step.status.message == document["steps"][0]["error"]["message"]
    assert "http.response.status_code" not in attributes(step)
    phases = trace.below(step)
    assert [(span.name, span.status.code) for span in phases] == [("dns", 0), ("connect", 0), ("wait", ERROR)]
    assert phases[-1].end_time_unix_nano == step.end_time_unix_nano


def test_a_redirect_that_leads_nowhere_is_a_step(traced):
    with http_server({"/": redirect("ftp://x/")}) as server:
        trace, _ = traced("-L", server.url(), code=75)
    one, two = trace.steps()
    assert attributes(one)["http.response.status_code"] == 302
    assert attributes(two)["error.type"] == "redirect"
    assert "server.address" not in attributes(two)


@pytest.mark.parametrize(
    "location",
    [
        "http:///cb?token=SECRET",
        "ftp://a.test/cb?a='b'&token=SECRET",
        "http://a.te st/cb? token=SECRET x",
        "/cb?token=SECRET\\",
        "//[::1/?token=SECRET",
    ],
)
def test_no_text_of_a_trace_has_the_query_of_a_url(traced, collector, location):
    with http_server({"/": redirect(location), "/cb": Reply(404)}) as server:
        code = 0 if location[1] == "c" else 75
        trace, document = traced("-L", server.url("/?mine=SECRET"), code=code)
    [request] = collector.requests
    assert b"SECRET" not in request.body and b"token" not in request.body
    assert "token=***" in json.dumps(document) and "token=SECRET" not in json.dumps(document)
    message = trace.steps()[-1].status.message
    assert location[1] == "c" or ("redirect" in message and "?..." in message)


def test_what_was_wrong_with_a_redirect_is_still_told_in_a_trace(traced):
    with http_server({"/": redirect("http:///cb?token=SECRET")}) as server:
        trace, document = traced("-L", server.url(), code=75)
    full = document["steps"][-1]["error"]["message"]
    assert trace.steps()[-1].status.message == full.replace("?token=***", "?...")


def test_findings_are_events_at_the_end_of_their_phase(traced, tls, authority):
    slow = {"/": Reply(body=b"xx", xfer=1)}
    with http_server(slow, tls=tls) as server, relay_proxy("http", server, delay=1) as (proxy, _):
        trace, document = traced("-x", proxy, "--cacert", authority.file, server.url())
    [step] = trace.steps()
    findings = document["steps"][0]["findings"]
    assert {"proxy", "stalled"} <= {finding["id"] for finding in findings}
    ends = {span.name: span.end_time_unix_nano for span in trace.below(step)}
    assert len(findings) == len(step.events)
    for event, finding in zip(step.events, findings):
        found = attributes(event)
        assert found["httphases.finding.id"] == finding["id"]
        assert found["httphases.finding.text"] == finding["text"]
        assert found["httphases.finding.cost_ms"] == finding["cost_ms"]
        assert found["httphases.finding.certainty"] == finding["certainty"]
        assert found.get("httphases.finding.phase") == finding["phase"]
        assert event.time_unix_nano == ends.get(finding["phase"], step.end_time_unix_nano)


def test_findings_of_the_chain_are_events_of_the_root(traced):
    with http_server({"/": Reply(302, wait=1, headers=[("Location", "/b")]), "/b": Reply()}) as server:
        trace, document = traced("-L", server.url())
    [finding] = document["summary"]["findings"]
    [event] = trace.roots[0].events
    assert attributes(event)["httphases.finding.id"] == finding["id"] == "redirects"


def test_of_a_proxy_the_peer_is_told_and_no_password(traced, proxy_with_password, server):
    way = proxy_with_password.url("").replace("//", "//user:secret@").rstrip("/")
    trace, _ = traced("-x", way, server.url())
    [step] = trace.steps()
    found = attributes(step)
    assert found["network.peer.port"] == proxy_with_password.port
    assert found["server.port"] == server.port
    assert "secret" not in json.dumps(trace.raw)


# --- the trace id, and the server -----------------------------------------------------------------


def test_no_trace_id_stands_in_json_without_otlp(run_tool, server):
    assert "trace_id" not in run_tool("--json", "-", server.url()).json()


def test_each_run_of_a_series_is_a_trace_and_all_go_in_one_request(traced, server):
    trace, document = traced("--count", "3", "--interval", "0", "--reuse", server.url())
    roots = trace.roots
    ids = [run["trace_id"] for run in document["runs"]]
    assert len(set(ids)) == len(roots) == 3
    assert "trace_id" not in document
    for root, run in zip(roots, document["runs"]):
        assert attributes(root)["httphases.run_number"] == run["run_number"]
        [step] = trace.steps(root)
        assert [span.name for span in trace.below(step)] == [
            phase for phase in PHASES if run["steps"][0]["timing"][f"{phase}_ms"] is not None
        ] or run["run_number"] == 1


def test_a_duration_of_a_hundred_runs_is_sent_whole_without_a_word(traced, server):
    trace, document = traced("--duration", "1", "--interval", "0.1", server.url())
    assert len(trace.roots) == len(document["runs"])


def test_each_address_is_a_trace(traced):
    with http_server(host="0.0.0.0") as server:
        given = [f"--resolve=many.test:{server.port}:127.0.0.{last}" for last in (1, 2)]
        trace, _ = traced("--all-addresses", *given, server.url(host="many.test"))
    assert {attributes(root)["httphases.target"] for root in trace.roots} == {"127.0.0.1", "127.0.0.2"}
    assert len(trace.roots) == 2


def test_propagate_names_the_span_of_each_step(traced, server):
    with http_server({"/": redirect(server.url("/b"))}) as first:
        trace, document = traced("-L", "--propagate", first.url())
    sent = [request.values("traceparent") for request in (*first.requests, *server.requests)]
    steps = [raw for raw in trace.raw if raw["kind"] == CLIENT]
    assert sent == [[f"00-{document['trace_id']}-{step['spanId']}-01"] for step in steps]
    assert len({step["spanId"] for step in steps}) == 2
    names = [[h["name"] for h in step["request"]["headers"]] for step in document["steps"]]
    assert all("traceparent" in each for each in names), "what was sent is recorded"


def test_propagate_in_a_series_over_http2(traced, authority, http2, run_tool):
    options = ["--propagate", "--count", "2", "--interval", "0", "--reuse", "--cacert", authority.file]
    trace, document = traced(*options, http2.url("/"))
    parents = [
        header["value"]
        for run in document["runs"]
        for header in run["steps"][0]["request"]["headers"]
        if header["name"].lower() == "traceparent"
    ]
    steps = [raw for raw in trace.raw if raw["kind"] == CLIENT]
    assert parents == [f"00-{step['traceId']}-{step['spanId']}-01" for step in steps]


def test_without_propagate_the_server_learns_nothing(traced, server):
    traced(server.url())
    assert not server.requests[0].values("traceparent")


def test_a_proxy_is_not_told_by_connect(traced, tls, authority):
    with http_server(tls=tls) as server, relay_proxy("http", server) as (proxy, asked):
        traced("--propagate", "-x", proxy, "--cacert", authority.file, server.url())
    assert asked[0].startswith(b"CONNECT ") and b"traceparent" not in asked[0].lower()
    assert server.requests[0].values("traceparent")


@pytest.mark.parametrize(
    "options",
    [
        ["--otlp", "http://127.0.0.1:1", "--propagate", "-H", "TraceParent: 00-1-2-01"],
        ["--otlp", ""],
        ["--otlp", "127.0.0.1:4318"],
        ["--otlp", "ftp://127.0.0.1/"],
        ["--otlp", "http://127.0.0.1:99999"],
        ["--otlp", "http://127.0.0.1:1", "--count", "101"],
        ["--otlp", "http://127.0.0.1:1", "--duration", "2", "--interval", "0.01"],
        ["--otlp", "http://127.0.0.1:1", "--duration", "2", "--interval", "0"],
    ],
    ids=lambda options: " ".join(options)[:40],
)
def test_what_is_a_usage_error(call_tool, server, options):
    check_usage_error(call_tool(*options, server.url()))
    assert not server.requests


def test_a_password_in_the_url_is_refused_and_not_repeated(call_tool, server):
    result = call_tool("--otlp", "http://me:hunter22@127.0.0.1:4318", server.url())
    check_usage_error(result, "OTEL_EXPORTER_OTLP_HEADERS")
    assert "hunter22" not in result.out + result.err


def test_one_s_own_traceparent_is_sent_without_propagate(traced, server):
    traced("-H", "traceparent: 00-1-2-01", server.url())
    assert server.requests[0].values("traceparent") == ["00-1-2-01"]


def test_a_hundred_runs_can_be_sent(traced, server):
    trace, _ = traced("--count", "100", "--interval", "0", "--reuse", server.url())
    assert len(trace.roots) == 100


def test_more_addresses_times_runs_than_that_are_refused(call_tool, server):
    given = [f"--resolve=many.test:{server.port}:127.0.0.{last}" for last in range(1, 4)]
    options = ["--otlp", "http://127.0.0.1:1", "--all-addresses", "--count", "34", *given]
    check_usage_error(call_tool(*options, server.url(host="many.test")), "102")


def test_what_only_the_lookup_tells_is_refused_before_the_first_run(collector, tmp_path, monkeypatch):
    with http_server(host="0.0.0.0") as server:
        peers = [tool.Peer(f"127.0.0.{last}", 2, (f"127.0.0.{last}", server.port)) for last in range(1, 4)]
        monkeypatch.setattr(tool, "resolve", lambda host, port, options, log: peers)
        monkeypatch.setattr(os, "environ", {})
        path = tmp_path / "out.json"
        options = ["--all-addresses", "--count", "34", "--interval", "0", "--otlp", collector.url()]
        code = tool.main(["--metrics-only", "--json", str(path), *options, server.url(host="many.test")])
    assert (code, server.accepted, path.exists()) == (64, 0, False)
    assert not collector.requests


# --- whom the trace is of -------------------------------------------------------------------------


def test_the_resource_is_this_program_on_this_machine(traced, server):
    trace, _ = traced("--label", "rack 7", server.url())
    assert trace.resource == {
        "service.name": "httphases",
        "host.name": os.uname().nodename,
        "httphases.label": "rack 7",
    }


def test_without_a_label_there_is_none(traced, server):
    trace, _ = traced(server.url())
    assert "httphases.label" not in trace.resource


def test_the_variables_of_opentelemetry_say_more(traced, server):
    env = {
        "OTEL_SERVICE_NAME": "shop probe",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=pr%6fd, service.name=lost,a=b%2Cc%3Dd",
    }
    trace, _ = traced(server.url(), env=env)
    assert trace.resource["service.name"] == "shop probe"
    assert trace.resource["deployment.environment.name"] == "prod"
    assert trace.resource["a"] == "b,c=d"


@pytest.mark.parametrize(
    ("env", "name"),
    [({"OTEL_SERVICE_NAME": ""}, "httphases"), ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=mine"}, "mine")],
)
def test_the_name_of_the_service_has_an_order(traced, server, env, name):
    assert traced(server.url(), env=env)[0].resource["service.name"] == name


def test_headers_for_the_collector_are_sent_to_it_alone(traced, collector, server):
    fields = "Authorization=Bearer%20s3cret-token, x-tenant=a=b,content-type=a/b,content-length=3"
    env = {"OTEL_EXPORTER_OTLP_HEADERS": fields}
    _, document = traced(server.url(), env=env)
    [request] = collector.requests
    assert request.values("Authorization") == ["Bearer s3cret-token"]
    assert request.values("X-Tenant") == ["a=b"]
    assert request.values("Content-Type") == ["application/json"]
    assert not server.requests[0].values("Authorization")
    assert "s3cret-token" not in json.dumps(document)


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_RESOURCE_ATTRIBUTES"])
@pytest.mark.parametrize(
    "value", ["hunter22", "=hunter22", "a=hunter22%zz", "a=hunter22,", "a=hunter22%ff,b=c"]
)
def test_a_malformed_variable_is_a_usage_error_that_does_not_repeat_it(call_tool, server, variable, value):
    result = call_tool("--otlp", "http://127.0.0.1:1", server.url(), env={variable: value})
    check_usage_error(result, variable)
    assert "hunter22" not in result.out + result.err
    assert not server.requests


@pytest.mark.parametrize("value", ["a b=hunter22", "a=hunter22%0d%0ab: c", "transfer-encoding=hunter22"])
def test_what_is_no_header_is_a_usage_error_too(call_tool, server, value):
    env = {"OTEL_EXPORTER_OTLP_HEADERS": value}
    result = call_tool("--otlp", "http://127.0.0.1:1", server.url(), env=env)
    check_usage_error(result, "OTEL_EXPORTER_OTLP_HEADERS")
    assert "hunter22" not in result.out + result.err


def test_the_variables_are_of_no_interest_without_otlp(call_tool, server):
    env = {"OTEL_EXPORTER_OTLP_HEADERS": "nonsense", "OTEL_RESOURCE_ATTRIBUTES": "nonsense"}
    assert call_tool(server.url(), env=env).code == 0


def test_a_secret_that_the_collector_repeats_is_masked(call_tool, server):
    secret = "s3cret-token"
    with collecting(Reply(400, reason=f"who is {secret}?")) as collector:
        env = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {secret}"}
        result = call_tool("--compact", "--otlp", collector.url(), server.url(), env=env)
    assert result.code == 73
    assert secret not in result.err and "***" in result.err


def test_a_short_one_of_any_name_is_masked_too(call_tool, server):
    with collecting(Reply(403, reason="no team tiny7 here")) as collector:
        env = {"OTEL_EXPORTER_OTLP_HEADERS": "x-team=tiny7"}
        result = call_tool("--compact", "--otlp", collector.url(), server.url(), env=env)
    assert "no team *** here" in result.err


# --- the collector, good and bad ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b""), (204, b""), (202, b"\xff" * 70_000), (200, b'{"partialSuccess": {"rejectedSpans": 1}}')],
)
def test_every_2xx_is_acceptance_whatever_its_body(call_tool, server, status, body):
    with collecting(Reply(status, body)) as collector:
        result = call_tool("--compact", "--otlp", collector.url(), server.url())
    assert (result.code, result.err) == (0, "")
    assert len(collector.requests) == 1


def test_a_crash_on_the_way_to_the_collector_is_an_internal_error(call_tool, server, collector, monkeypatch):
    """Not a collector that did not answer: the report of the run itself is whole."""

    write_head = tool.request_head

    def broken(method, target, headers):
        if target == "/v1/traces":
            raise LookupError("not thought of")
        return write_head(method, target, headers)

    monkeypatch.setattr(tool, "request_head", broken)
    result = call_tool("--compact", "--otlp", collector.url(), server.url())
    assert result.code == 70
    assert "internal error: LookupError at test_otlp.py:" in result.err and "not thought" not in result.err
    assert "Step 1: 200" in result.out


def lost(result, paths):
    """Prove that the collector cost its traces, and nothing else that was asked for."""
    assert result.code == 73, result.err
    assert "--otlp" in result.err
    assert "Step 1: 200" in result.out
    assert all(path.stat().st_size for path in paths)
    assert result.own_seconds < LIMIT + 2


@pytest.fixture
def attempt(run_tool, server, tmp_path):
    """Run the program with a collector that will not do, and prove that it costs only the traces."""

    def run(url, *options, env=None):
        paths = [tmp_path / name for name in ("a.json", "a.har", "a.prom")]
        files = [
            word
            for option, path in zip(("--json", "--har", "--prometheus"), paths)
            for word in (option, path)
        ]
        result = run_tool("--compact", *files, "--otlp", url, *options, server.url(), env=env)
        lost(result, paths)
        return result

    return run


@pytest.mark.parametrize("series", [[], ["--count", "2", "--interval", "0"]], ids=["once", "series"])
def test_a_collector_that_is_down(attempt, run_tool, server, tmp_path, series):
    with refused_port() as port:
        if not series:
            assert "refused" in attempt(f"http://127.0.0.1:{port}").err
            return
        path = tmp_path / "b.json"
        result = run_tool("--json", path, "--otlp", f"http://127.0.0.1:{port}", *series, server.url())
    assert result.code == 73
    assert json.loads(path.read_text())["summary"]["runs"] == 2


def test_a_collector_that_does_not_answer_the_phone(attempt):
    with black_hole() as port:
        result = attempt(f"http://127.0.0.1:{port}")
    assert result.seconds >= LIMIT


def test_a_collector_that_says_nothing_has_five_seconds(attempt):
    with collecting(Reply(wait=20)) as collector:
        result = attempt(collector.url(), "-m", "1")
    assert result.seconds >= LIMIT, "-m is of the request alone"


@pytest.mark.parametrize("status", [304, 401, 503])
def test_a_collector_that_refuses(attempt, status):
    with collecting(Reply(status, reason="No Way")) as collector:
        result = attempt(collector.url())
    assert f"{status} No Way" in result.err
    assert len(collector.requests) == 1, "nothing is sent twice"


@pytest.mark.parametrize("status", [301, 308])
def test_redirects_are_not_followed(attempt, status):
    with collecting() as other, collecting(redirect(other.url("/v1/traces"), status)) as collector:
        result = attempt(collector.url(), "-L")
    assert f"it answered {status}" in result.err
    assert not other.requests


def endless(pause):
    def script(peer):
        peer.read_request()
        peer.send("HTTP/1.1 200 OK\r\n\r\n")
        while not peer.wait(pause):
            peer.send("x" * (1 if pause else 65536))

    return script


@pytest.mark.parametrize("pause", [0, 0.2], ids=["fast", "a byte at a time"])
def test_an_answer_without_end_ends(attempt, pause):
    with scripted(endless(pause)) as collector:
        attempt(collector.url())


@pytest.mark.parametrize("text", ["nonsense\r\n\r\n", "", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
def test_what_is_no_whole_answer(attempt, text):
    with scripted(sending(text)) as collector:
        attempt(collector.url())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("series", [[], ["--count", "2", "--interval", "0"]], ids=["once", "series"])
def test_a_signal_ends_the_sending_at_once(start_tool, server, tmp_path, number, code, series):
    reached, path = threading.Event(), tmp_path / "out.json"

    def script(peer):
        peer.read_request()
        reached.set()
        peer.wait(30)

    with scripted(script) as collector:
        options = ["--compact", "--json", path, "--otlp", collector.url(), *series]
        process = start_tool(*options, server.url())
        assert reached.wait(20)
        start = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
        spent = time.monotonic() - start
    assert process.returncode == code
    assert spent < LIMIT - 1 and b"Traceback" not in err
    assert b"200 GET" in out
    json.loads(path.read_text())


def test_the_report_comes_first(start_tool, server):
    reached = threading.Event()

    def script(peer):
        peer.read_request()
        reached.set()
        peer.wait(30)

    with scripted(script) as collector:
        process = start_tool("--compact", "--otlp", collector.url(), server.url())
        assert process.stdout.readline().startswith(b"Step 1: 200")
        assert reached.wait(20)


def test_a_series_goes_on_for_its_traces_when_nobody_reads_the_report(start_tool, server, collector):
    options = ["--compact", "--count", "4", "--interval", "0.2", "--otlp", collector.url()]
    process = start_tool(*options, server.url())
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 0
    [trace] = traces_of(collector)
    assert len(trace.roots) == 4


def test_worse_codes_come_first(call_tool):
    with refused_port() as port:
        result = call_tool("--otlp", f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/")
    assert result.code == 75


# --- its own way ----------------------------------------------------------------------------------


def test_the_options_of_the_request_are_not_the_collector_s(call_tool, server, collector):
    """Neither its proxy, its headers, its -k nor its addresses."""
    with refused_port() as port:
        options = ["--resolve", f"a.test:{server.port}:127.0.0.1", "-H", "Cookie: a=b", "-X", "HEAD"]
        result = call_tool(*options, "-x", "", "--otlp", collector.url(), server.url(host="a.test"))
        assert result.code == 0, result.err
        [request] = collector.requests
        assert request.method == "POST" and not request.values("Cookie")
        through = call_tool(
            "-x", f"http://127.0.0.1:{port}", "--otlp", collector.url(), server.url(), "-m", "3"
        )
    assert through.code == 75 and len(collector.requests) == 2


def test_a_unix_socket_is_of_the_request_alone(traced, tmp_path):
    path = tmp_path / "nobody.sock"
    trace, _ = traced("--unix-socket", path, "http://shop.test/", code=75)
    [step] = trace.steps()
    found = attributes(step)
    assert (found["network.transport"], found["network.peer.address"]) == ("unix", str(path))
    assert (found["server.address"], found["error.type"]) == ("shop.test", "network")


def test_it_goes_through_the_proxy_of_the_environment(call_tool, server):
    with http_server() as proxy:
        env = {"http_proxy": f"http://me:hunter22@{proxy.authority}"}
        result = call_tool("-x", "", "--otlp", "http://collector.test", server.url(), env=env)
    assert result.code == 0, result.err
    [request] = proxy.requests
    assert request.target == "http://collector.test/v1/traces"
    assert request.values("Proxy-Authorization")
    assert Trace(request.body).roots


def test_no_proxy_is_honoured(call_tool, server, collector):
    with refused_port() as port:
        env = {"http_proxy": f"http://127.0.0.1:{port}", "no_proxy": "127.0.0.1"}
        assert call_tool("--otlp", collector.url(), server.url(), env=env).code == 0


def test_a_malformed_proxy_of_the_collector_is_a_usage_error(call_tool, server):
    env = {"https_proxy": "http://127.0.0.1:0"}
    check_usage_error(call_tool("--otlp", "https://c.test", server.url(), env=env), "https_proxy")


@pytest.fixture
def secure_collector(authority):
    context = authority.context()
    assert isinstance(context, ssl.SSLContext)
    with collecting(tls=context) as server:
        yield server


@pytest.mark.parametrize("option", ["--cacert", "-k"])
def test_the_trust_of_the_request_is_not_the_collector_s(attempt, authority, secure_collector, option):
    options = [option, authority.file] if option == "--cacert" else [option]
    result = attempt(secure_collector.url(), *options)
    assert "certificate" in result.err
    assert not secure_collector.requests


def test_the_trust_of_the_system_is(call_tool, server, authority, secure_collector):
    env = {"SSL_CERT_FILE": str(authority.file)}
    assert call_tool("--otlp", secure_collector.url(), server.url(), env=env).code == 0
    [request] = secure_collector.requests
    assert Trace(request.body).roots


# --- nothing is imported for it once the clock runs -----------------------------------------------


def test_nothing_is_left_to_import_when_the_clock_has_started(tmp_path, base_environment, server, collector):
    """The archive may be replaced meanwhile."""
    import subprocess
    import sys

    from conftest import TOOL

    script = tmp_path / "watch.py"
    script.write_text(f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("tool", {str(TOOL)!r})
tool = sys.modules["tool"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
late, started = [], []
begin = tool.begin_step
def begin_step(*arguments):
    started.append(1)
    return begin(*arguments)
tool.begin_step = begin_step
class Finder:
    def find_spec(self, name, path=None, target=None):
        if started:
            late.append(name)
sys.meta_path.insert(0, Finder())
code = tool.main(sys.argv[1:])
assert not late, late
sys.exit(code)
""")
    options = ["--compact", "--label", "x", "--prometheus", str(tmp_path / "a"), "--otlp", collector.url()]
    done = subprocess.run(
        [sys.executable, str(script), *options, server.url(host="localhost")],
        capture_output=True,
        text=True,
        check=False,
        env=base_environment,
    )
    assert (done.returncode, calm(done.stderr)) == (0, "")
    assert collector.requests
