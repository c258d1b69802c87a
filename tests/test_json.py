"""The JSON export: every field that a consumer may rely on, for successes and failures."""

from __future__ import annotations

import gc

from conftest import has
from inside import here, only_step, tool
from servers import Reply, http_server


def test_one_export_may_be_on_stdout_alone_and_the_report_is_on_stderr_then(run_tool, server, tmp_path):
    path = tmp_path / "out.json"
    result = run_tool("--json", path, server.url())
    assert (result.code, result.err) == (0, "")
    assert result.json(path)["summary"]["final_status"] == 200
    assert "total" in result.out
    assert path.read_bytes().endswith(b"}\n")
    for place in ("-", "/dev/stdout"):
        result = run_tool("--json", place, server.url())
        assert (result.code, result.json()["summary"]["final_status"]) == (0, 200)
        assert "total" in result.err and "{" not in result.err
    for option, begin in (("--har", '{\n  "log"'), ("--otlp", '{"resource'), ("--prometheus", "# HELP")):
        result = run_tool(option, "-", "--json", path, server.url())
        assert result.out.startswith(begin) and "total" in result.err


def test_a_long_document_leaves_no_garbage():
    gc.collect()
    gc.disable()  # as in a run
    list(tool.to_json({"runs": []}, ({} for _ in range(300)), tool.NO_SECRETS))
    left = gc.collect()
    gc.enable()
    assert left < 300, "json leaves 33 objects for each"


def test_the_request_is_recorded_as_it_was_sent(server):
    arguments = ["-X", "PUT", "-d", "words", "-H", "X-B: 1", "-H", "X-A: 2", "-H", "X-B: 3"]
    request = only_step(here(*arguments, server.url()))["request"]
    assert (request["method"], request["body_bytes"]) == ("PUT", 5)
    found = [(each["name"].lower(), each["value"]) for each in request["headers"]]
    assert found == [(name.lower(), value) for name, value in server.requests[0].headers]


def test_the_network_of_plain_http(server):
    step = only_step(here(server.url()))
    network, [attempt] = step["network"], step["network"]["attempts"]
    assert (network["ip"], network["ip_family"], network["port"]) == ("127.0.0.1", "IPv4", server.port)
    assert (network["addresses"], network["http_version"]) == (["127.0.0.1"], "HTTP/1.1")
    assert (attempt["ip"], attempt["error"], step["request"]["body_bytes"]) == ("127.0.0.1", None, 0)
    absent = [name for name in network if name.startswith(("tls_", "cert_", "proxy_", "reuse", "idle"))]
    assert {network[name] or None for name in [*absent, "alpn"]} == {None}
    if has("linux"):
        assert network["tcp_rtt_ms"] > 0 and network["tcp_retransmits"] >= 0


def test_the_response_is_recorded():
    headers = [("Date", "Mon, 02 Jan 2006 15:04:05 GMT"), ("Server", "test/1"), ("X-B", "1")]
    headers += [("Content-Type", "text/html; charset=utf-8"), ("X-B", "2"), ("Location", "/elsewhere")]
    with http_server({"/": Reply(201, b"made", headers, "Made So")}) as server:
        response = only_step(here(server.url()))["response"]
    found = [(header["name"].lower(), header["value"]) for header in response.pop("headers")]
    assert found == [(name.lower(), value) for name, value in headers] + [("content-length", "4")]
    assert response == {
        "status": 201,
        "reason": "Made So",
        "http_version": "HTTP/1.1",
        "bytes": 4,
        "content_type": "text/html; charset=utf-8",
        "server": "test/1",
        "date": "Mon, 02 Jan 2006 15:04:05 GMT",
        "location": "/elsewhere",
        "interim": [],
        "server_timing": [],
    }
