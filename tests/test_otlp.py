"""Traces for OpenTelemetry (--otlp): received by a real HTTP server, read by its own definitions."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone

import pytest

from checks import PHASES, check_usage_error
from conftest import PATIENCE, TOOL
from inside import tool
from relays import relay_proxy
from servers import Reply, http_server, redirect, refused_port, scripted, sending

json_format = pytest.importorskip("google.protobuf.json_format", reason="protobuf is not installed")
service = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="opentelemetry-proto is not installed"
)
QUICK = ("--interval", "0")
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


def test_a_run_is_one_post_of_a_chain_of_steps_of_phases(traced, collector, server):
    trace, document = traced("-X", "PUT", "-d", "four", server.url("/a/b?token=SECRET#b"))
    [request] = collector.requests
    assert (request.method, request.target) == ("POST", "/v1/traces")
    assert request.values("Content-Type") == ["application/json"]
    assert request.values("Host") == [collector.authority]
    [root] = trace.roots
    [step] = trace.steps()
    assert (root.kind, step.kind, step.name, step.status.code) == (INTERNAL, CLIENT, "PUT", 0)
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
    assert trace.resource == {"service.name": "httphases", "host.name": os.uname().nodename}
    assert not server.requests[0].values("traceparent"), "without --propagate the server learns nothing"


def test_the_path_is_completed_unless_it_is_whole(call_tool, server):
    for given, asked in (
        ("", "/v1/traces"),
        ("/v1/traces", "/v1/traces"),
        ("/otlp/", "/otlp/v1/traces"),
        ("/a?key=1", "/a/v1/traces?key=1"),
    ):
        with collecting(path=asked.partition("?")[0]) as collector:
            assert call_tool("--otlp", collector.url("") + given, server.url()).code == 0
        assert [request.target for request in collector.requests] == [asked]


def test_starts_and_ends_are_those_of_the_measurement_and_leave_no_hole(traced, tls, authority):
    with http_server({"/": Reply(wait=0.05, xfer=0.03, body=b"1234")}, tls=tls) as server:
        before = time.time_ns()
        trace, document = traced("--cacert", authority.file, server.url())
        after = time.time_ns()
    [given] = document["steps"]
    [step] = trace.steps()
    phases = trace.below(step)
    assert [span.name for span in phases] == list(PHASES)
    assert attributes(step)["tls.protocol.version"] == "1.3"
    assert attributes(step)["tls.cipher"].startswith("TLS_")
    for span in phases:
        assert span_us(span) == pytest.approx(given["timing"][f"{span.name}_ms"] * 1000, abs=0.001)
    edges = [step.start_time_unix_nano, *(span.end_time_unix_nano for span in phases)]
    assert [span.start_time_unix_nano for span in phases] == edges[:-1]
    assert step.end_time_unix_nano == edges[-1]
    assert 0 <= step.start_time_unix_nano - nano(given["started_at"]) < 1_000_000
    assert before <= step.start_time_unix_nano and step.end_time_unix_nano <= after + 1_000_000


@pytest.mark.parametrize(
    ("status", "options", "code", "told"),
    [(404, [], 0, ERROR), (404, ["--expect", "404"], 0, 0), (204, ["--expect", "404"], 22, ERROR)],
)
def test_a_status_that_was_not_expected_is_an_error(traced, status, options, code, told):
    with http_server({"/": Reply(status)}) as server:
        warned = code and "does not match --expect"
        trace, _ = traced(*options, server.url(), code=code, warned=warned)
    assert trace.roots[0].status.code == told
    [step] = trace.steps()
    assert options or (step.status.code, attributes(step)["error.type"]) == (ERROR, "404")


def test_a_failure_is_an_error_of_its_kind_in_the_phase_under_way(traced):
    with scripted(sending("")) as server:
        trace, document = traced(server.url(), code=75)
    [step] = trace.steps()
    [given] = document["steps"]
    assert attributes(step)["error.type"] == given["error"]["kind"]
    assert step.status.code == ERROR
    assert step.status.message == given["error"]["message"]
    assert "http.response.status_code" not in attributes(step)
    phases = trace.below(step)
    assert [(span.name, span.status.code) for span in phases] == [("dns", 0), ("connect", 0), ("wait", ERROR)]
    assert phases[-1].end_time_unix_nano == step.end_time_unix_nano


@pytest.mark.parametrize("location", ["ftp://a.test/cb?a='b'&token=SECRET", "//[::1/?token=SECRET"])
def test_a_redirect_that_leads_nowhere_is_a_step_without_the_query_of_its_url(traced, collector, location):
    with http_server({"/": redirect(location)}) as server:
        trace, document = traced("-L", server.url("/?mine=SECRET"), code=75)
    one, two = trace.steps()
    assert attributes(one)["http.response.status_code"] == 302
    assert attributes(two)["error.type"] == "redirect"
    assert "server.address" not in attributes(two)
    assert b"SECRET" not in collector.requests[0].body and b"token" not in collector.requests[0].body
    before, mark, _ = document["steps"][-1]["error"]["message"].partition("?")
    assert "redirect" in before and two.status.message == f"{before}{mark}..."


def test_a_secret_in_the_host_of_a_redirect_is_masked(traced, collector):
    with refused_port() as port, http_server({"/": redirect(f"http://s3cret-token.test:{port}/")}) as site:
        words = ("--resolve", f"s3cret-token.test:{port}:127.0.0.1", "-L", "-H", "X-Api-Key: s3cret-token")
        trace, _ = traced(*words, site.url(), code=75)
    assert [attributes(step)["server.address"] for step in trace.steps()] == ["127.0.0.1", "***.test"]
    assert b"s3cret-token" not in collector.requests[0].body


def test_findings_are_events_at_the_end_of_their_phase(traced, tls, authority):
    routes = {"/": redirect("/b"), "/b": Reply()}
    with http_server(routes, tls=tls) as server, relay_proxy("http", server, delay=0.5) as (proxy, _):
        trace, document = traced("-x", proxy, "-L", "--cacert", authority.file, server.url())
    step = trace.steps()[0]
    assert proxy.endswith(f":{attributes(step)['network.peer.port']}")
    findings = document["steps"][0]["findings"]
    assert "proxy" in {finding["id"] for finding in findings}
    ends = {span.name: span.end_time_unix_nano for span in trace.below(step)}
    assert len(findings) == len(step.events)
    for event, finding in zip(step.events, findings):
        found = attributes(event)
        given = {f"httphases.finding.{name}": value for name, value in finding.items() if value is not None}
        assert found == given
        assert event.time_unix_nano == ends.get(finding["phase"], step.end_time_unix_nano)
    told = [attributes(event)["httphases.finding.id"] for event in trace.roots[0].events]
    assert told == [finding["id"] for finding in document["summary"]["findings"]]
    assert "redirects" in told


# --- the trace id, and the server -----------------------------------------------------------------


def test_each_run_of_a_series_is_a_trace_and_a_hundred_go_in_one_request(traced, server):
    words = ("-H", "traceparent: 00-1-2-01", "--count", "100", "--interval", "0", "--reuse", server.url())
    trace, document = traced(*words)
    roots = trace.roots
    ids = [run["trace_id"] for run in document["runs"]]
    assert len(set(ids)) == len(roots) == 100
    assert "trace_id" not in document
    for root, run in zip(roots, document["runs"]):
        assert attributes(root)["httphases.run_number"] == run["run_number"]
        [step] = trace.steps(root)
        assert [span.name for span in trace.below(step)] == [
            phase for phase in PHASES if run["steps"][0]["timing"][f"{phase}_ms"] is not None
        ] or run["run_number"] == 1
    assert server.requests[0].values("traceparent") == ["00-1-2-01"], "one's own, without --propagate"


def test_propagate_names_the_span_of_each_step_and_the_chain_spans_its_steps(traced, server):
    with http_server({"/": redirect(server.url("/b"))}) as first:
        trace, document = traced("-L", "--propagate", first.url())
    sent = [request.values("traceparent") for request in (*first.requests, *server.requests)]
    steps = [raw for raw in trace.raw if raw["kind"] == CLIENT]
    assert sent == [[f"00-{document['trace_id']}-{step['spanId']}-01"] for step in steps]
    assert len({step["spanId"] for step in steps}) == 2
    names = [[h["name"] for h in step["request"]["headers"]] for step in document["steps"]]
    assert all("traceparent" in each for each in names), "what was sent is recorded"
    [root], (one, two) = trace.roots, trace.steps()
    assert root.start_time_unix_nano == one.start_time_unix_nano
    assert root.end_time_unix_nano == two.end_time_unix_nano
    assert one.end_time_unix_nano <= two.start_time_unix_nano
    assert "http.request.resend_count" not in attributes(one)
    assert attributes(two)["http.request.resend_count"] == 1


def test_a_proxy_is_not_told_by_connect(traced, tls, authority):
    with http_server(tls=tls) as server, relay_proxy("http", server) as (proxy, asked):
        traced("--propagate", "-x", proxy, "--cacert", authority.file, server.url())
    assert asked[0].startswith(b"CONNECT ") and b"traceparent" not in asked[0].lower()
    assert server.requests[0].values("traceparent")


NOWHERE = ("--otlp", "http://127.0.0.1:1")
NO_USE = [
    (*NOWHERE, "--propagate", "-H", "TraceParent: 00-1-2-01"),
    ("--otlp", ""),
    ("--otlp", "127.0.0.1:4318"),
    ("--otlp", "ftp://127.0.0.1/"),
    (*NOWHERE, "--count", "101"),
    (*NOWHERE, "--duration", "2", "--interval", "0.01"),
    (*NOWHERE, "--duration", "2", "--interval", "0"),
]
BAD_VARIABLES = [
    ("OTEL_RESOURCE_ATTRIBUTES", "hunter22"),
    ("OTEL_RESOURCE_ATTRIBUTES", "a=hunter22%zz"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "=hunter22"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter22,"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter22%ff,b=c"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "a b=hunter22"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter22%0d%0ab: c"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "transfer-encoding=hunter22"),
    ("http_proxy", "http://me:hunter22@127.0.0.1:0"),
]


def test_what_is_a_usage_error_and_repeats_no_secret(call_tool, server):
    for options in NO_USE:
        check_usage_error(call_tool(*options, server.url()))
    result = call_tool("--otlp", "http://me:hunter22@127.0.0.1:4318", server.url())
    check_usage_error(result, "OTEL_EXPORTER_OTLP_HEADERS")
    assert "hunter22" not in result.err
    for variable, value in BAD_VARIABLES:
        result = call_tool("-x", "", *NOWHERE, server.url(), env={variable: value})
        check_usage_error(result, variable)
        assert "hunter22" not in result.err
    assert not server.requests
    assert call_tool(server.url(), env=dict(BAD_VARIABLES[:3])).code == 0, "of no interest without --otlp"


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


def test_a_label_and_the_variables_of_opentelemetry_say_more_of_the_resource(call_tool, collector, server):
    more = "deployment.environment.name=pr%6fd, service.name=mine,a=b%2Cc%3Dd"
    for name, expected in (("shop probe", "shop probe"), ("", "mine")):
        env = {"OTEL_SERVICE_NAME": name, "OTEL_RESOURCE_ATTRIBUTES": more}
        words = ("--otlp", collector.url(), "--label", "rack 7", server.url())
        assert call_tool(*words, env=env).code == 0
        assert traces_of(collector)[-1].resource == {
            "service.name": expected,
            "host.name": os.uname().nodename,
            "httphases.label": "rack 7",
            "deployment.environment.name": "prod",
            "a": "b,c=d",
        }


def test_headers_for_the_collector_are_sent_to_it_alone_and_masked_in_its_answer(call_tool, server):
    fields = "authorization=Bearer%20s3cret-token, x-team=a=tiny7,content-type=a/b,content-length=3"
    with collecting(Reply(400, reason="who is s3cret-token of a=tiny7?")) as collector:
        words = ("--json", "-", "--otlp", collector.url(), server.url())
        result = call_tool(*words, env={"OTEL_EXPORTER_OTLP_HEADERS": fields})
    assert result.code == 73
    assert "who is *** of ***?" in result.err
    assert "s3cret-token" not in result.out + result.err
    [request] = collector.requests
    assert request.values("Authorization") == ["Bearer s3cret-token"]
    assert request.values("X-Team") == ["a=tiny7"]
    assert request.values("Content-Type") == ["application/json"]
    assert not server.requests[0].values("Authorization")


# --- the collector, good and bad ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"),
    [(204, b""), (202, b"\xff" * 70_000), (200, b'{"partialSuccess": {"rejectedSpans": 1}}')],
)
def test_every_2xx_is_acceptance_whatever_its_body(call_tool, server, status, body):
    with collecting(Reply(status, body)) as collector:
        result = call_tool("--compact", "--otlp", collector.url(), server.url())
    assert (result.code, result.err) == (0, "")
    assert len(collector.requests) == 1


def test_a_crash_on_the_way_to_the_collector_is_an_internal_error(call_tool, server, collector, monkeypatch):
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


@pytest.fixture
def attempt(call_tool, server, tmp_path):
    """Run the program with a collector that will not do, and prove that it costs only the traces."""

    def run(url, *options):
        paths = [tmp_path / name for name in ("a.json", "a.har", "a.prom")]
        files = zip(("--json", "--har", "--prometheus"), paths)
        words = [word for pair in files for word in pair]
        result = call_tool("--compact", *words, "--otlp", url, *options, server.url())
        assert result.code == 73, result.err
        assert "--otlp" in result.err
        assert "1: 200" in result.out
        assert all(path.stat().st_size for path in paths)
        return result

    return run


def test_a_collector_that_says_nothing_has_five_seconds(attempt):
    with collecting(Reply(wait=60)) as collector:
        result = attempt(collector.url(), "-m", "4")
    assert result.seconds >= 5, "-m is of the request alone"


@pytest.mark.parametrize("series", [[], ["--count", "2", *QUICK]], ids=["once", "series"])
def test_a_collector_that_is_down(attempt, series):
    with refused_port() as port:
        assert "refused" in attempt(f"http://127.0.0.1:{port}", *series).err


def test_a_run_that_failed_is_worse_than_a_collector_that_is_down(call_tool):
    with refused_port() as port:
        assert call_tool("--otlp", f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/").code == 75


def test_what_is_no_whole_answer(attempt):
    with scripted(sending("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")) as collector:
        attempt(collector.url())


@pytest.mark.parametrize("status", [503, 308])
def test_a_collector_that_refuses(attempt, status):
    """Nothing is sent twice, and no redirect is followed."""
    with collecting() as other:
        reply = redirect(other.url("/v1/traces"), status)._replace(reason="No Way")
        with collecting(reply) as collector:
            result = attempt(collector.url(), "-L")
    assert f"{status} No Way" in result.err
    assert (len(collector.requests), other.requests) == (1, [])


@pytest.mark.parametrize(
    ("number", "code", "series"), [(signal.SIGINT, 130, []), (signal.SIGTERM, 143, ["--count", "2", *QUICK])]
)
def test_a_signal_ends_the_sending_at_once(start_tool, server, tmp_path, number, code, series):
    """The report comes before; that the collector had no more time is not said."""
    reached, path = threading.Event(), tmp_path / "out.json"

    def script(peer):
        peer.read_request()
        reached.set()
        peer.wait(60)

    with scripted(script) as collector:
        options = ["--compact", "--json", path, "--otlp", collector.url(), *series]
        process = start_tool(*options, server.url())
        assert b"200 GET" in process.stdout.readline()
        assert reached.wait(PATIENCE)
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert err.decode() == ""
    json.loads(path.read_text())


def test_a_series_goes_on_for_its_traces_when_nobody_reads_the_report(start_tool, server, collector):
    options = ["--compact", "--count", "4", "--interval", "0.2", "--otlp", collector.url()]
    process = start_tool(*options, server.url())
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(PATIENCE) == 0
    [trace] = traces_of(collector)
    assert len(trace.roots) == 4


# --- its own way ----------------------------------------------------------------------------------


def test_the_options_of_the_request_are_not_the_collector_s(call_tool, server, collector):
    """Neither its proxy, its headers, its -k nor its addresses."""
    options = ["--resolve", f"a.test:{server.port}:127.0.0.1", "-H", "Cookie: a=b", "-X", "HEAD"]
    result = call_tool(*options, "-x", "", "--otlp", collector.url(), server.url(host="a.test"))
    assert result.code == 0, result.err
    [request] = collector.requests
    assert request.method == "POST" and not request.values("Cookie")
    with refused_port() as port:
        proxy = f"http://127.0.0.1:{port}"
        through = call_tool("-x", proxy, "--otlp", collector.url(), server.url())
        env = {"http_proxy": proxy, "no_proxy": "127.0.0.1"}
        assert call_tool("--otlp", collector.url(), server.url(), env=env).code == 0, "NO_PROXY is of both"
    assert through.code == 75 and len(collector.requests) == 3


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


def test_the_trust_of_the_request_is_not_the_collector_s_but_that_of_the_system_is(
    attempt, call_tool, server, authority
):
    """The collector speaks HTTP/2 as well, which none is asked in."""
    with collecting(tls=authority.context(alpn=("h2", "http/1.1"))) as collector:
        assert "certificate" in attempt(collector.url(), "-k").err
        assert not collector.requests
        env = {"SSL_CERT_FILE": str(authority.file)}
        assert call_tool("--otlp", collector.url(), server.url(), env=env).code == 0
    [request] = collector.requests
    assert Trace(request.body).roots


# --- nothing is imported for it once the clock runs -----------------------------------------------


WATCHER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("tool", sys.argv[1])
tool = sys.modules["tool"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
late, begin = [], tool.begin_step
class Finder:
    def find_spec(self, name, path=None, target=None):
        late.append(name)
def begin_step(*arguments):
    sys.meta_path.insert(0, Finder())
    return begin(*arguments)
tool.begin_step = begin_step
code = tool.main(sys.argv[2:])
assert not late, late
assert isinstance(sys.meta_path[0], Finder)
sys.exit(code)
"""


def test_nothing_is_left_to_import_when_the_clock_has_started(base_environment, server, collector, tmp_path):
    """The archive may be replaced meanwhile."""
    options = ["--compact", "--label", "x", "--prometheus", tmp_path / "a", "--otlp", collector.url()]
    command = [sys.executable, "-c", WATCHER, TOOL, *options, server.url(host="localhost")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=base_environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert collector.requests
