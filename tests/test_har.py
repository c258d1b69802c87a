"""The HTTP archive: valid by the HAR 1.2 schema, and true by the JSON export of the same run."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Callable

import pytest

from checks import exact, parse_instant
from servers import Failing, Reply, http_server, redirect, refused_port, scripted, sending

jsonschema = pytest.importorskip(
    "jsonschema", reason="jsonschema, which validates the archives, is not installed"
)

SCHEMA = json.loads((Path(__file__).parent / "har-1.2.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.FormatChecker(("ipv4", "ipv6")))
PARTS = ("dns", "connect", "send", "wait", "receive")


def archive(run: Callable[..., Any], folder: Path, *arguments: Any) -> list[dict[str, Any]]:
    """Run the program, prove that its archive is valid and says what its JSON says; return the entries."""
    har, document = folder / "out.har", folder / "out.json"
    result = run("--metrics-only", "--har", har, "--json", document, *arguments)
    assert "Traceback" not in result.err
    log = check_archive(json.loads(har.read_bytes().decode("utf-8")))
    steps = result.json(document)["steps"]
    assert len(log["entries"]) == len(steps)
    for entry, step in zip(log["entries"], steps):
        check_entry(entry, step)
    return log["entries"]


def check_archive(document: dict[str, Any]) -> dict[str, Any]:
    problems = [f"{list(problem.path)}: {problem.message}" for problem in VALIDATOR.iter_errors(document)]
    assert not problems
    log = document["log"]
    assert log["creator"]["name"] == "httphases"
    assert {entry["pageref"] for entry in log["entries"]} == {page["id"] for page in log["pages"]}
    assert log["pages"][0]["title"] == log["entries"][0]["request"]["url"]
    return log


def check_entry(entry: dict[str, Any], step: dict[str, Any]) -> None:
    """Prove that an entry says the same as the step of the JSON export."""
    request, response = entry["request"], entry["response"]
    assert (request["method"], request["url"]) == (step["request"]["method"], step["url"])
    assert request["headers"] == step["request"]["headers"]
    assert request["bodySize"] == step["request"]["body_bytes"]
    assert entry["startedDateTime"] == step["started_at"]
    assert entry.get("serverIPAddress") == step["network"]["ip"]
    assert ("_error" in entry) == (step["error"] is not None)
    answer = step["response"] if step["response"] and not step["error"] else {"status": 0, "reason": ""}
    assert (response["status"], response["statusText"]) == (answer["status"], answer["reason"] or "")
    assert (step["error"] or {"message": ""})["message"] in entry.get("_error", "")
    if step["response"]:
        assert response["headers"] == step["response"]["headers"]
        assert response["httpVersion"] == request["httpVersion"] == step["response"]["http_version"]
        assert response["content"]["size"] == response["bodySize"] == step["response"]["bytes"]
        assert response["redirectURL"] == (step["response"]["location"] or "")
    check_timings(entry, step["timing"])


def check_timings(entry: dict[str, Any], timing: dict[str, Any]) -> None:
    """Prove that the parts are those of the step and add up to its time; -1 is what does not apply."""
    times = {name: exact(value) for name, value in entry["timings"].items()}
    phases = {name: exact(value) if value is not None else None for name, value in timing.items()}
    assert exact(entry["time"]) == phases["total_ms"] == sum(max(times[name], Decimal(0)) for name in PARTS)
    assert times["blocked"] == -1
    assert times["dns"] == (phases["dns_ms"] or -1)
    assert times["ssl"] == (phases["tls_ms"] or -1)
    if phases["connect_ms"] is None:
        assert times["connect"] == -1
    else:
        assert times["connect"] == phases["connect_ms"] + (phases["tls_ms"] or 0)
    assert times["send"] + times["wait"] == (phases["wait_ms"] or 0)
    assert times["send"] == (phases["send_ms"] or 0)
    assert times["receive"] == (phases["xfer_ms"] or 0)


def test_an_ordinary_response(call_tool, tmp_path, server, tls, authority):
    [entry] = archive(call_tool, tmp_path, server.url("/path?a=1&b=&c=two%20words&a=2"))
    since = datetime.now(timezone.utc).replace(tzinfo=None) - parse_instant(entry["startedDateTime"])
    assert 0 <= since.total_seconds() < 60
    pairs = [(each["name"], each["value"]) for each in entry["request"]["queryString"]]
    assert pairs == [("a", "1"), ("b", ""), ("c", "two%20words"), ("a", "2")]
    assert entry["response"]["content"]["mimeType"] == "text/plain"
    assert entry["timings"]["ssl"] == entry["timings"]["dns"] == -1
    with http_server({"/": Reply(wait=0.02)}, tls=tls) as secure:
        words = ("-4", "--cacert", authority.file, secure.url(host="localhost"))
        times = archive(call_tool, tmp_path, *words)[0]["timings"]
    assert min(times["ssl"], times["wait"]) > 0 <= min(times["dns"], times["connect"]), "-1 is none"


def test_headers_keep_their_order_and_cookies_their_names(call_tool, tmp_path):
    """Importers refuse an empty name: a cookie without one is in the headers alone."""
    values = ["one=1; Path=/", "", ";", "=only", "value", " = x; Path=/", "; a=b", "two=2"]
    cookies = [("Set-Cookie", value) for value in values]
    headers = [("B", "1"), ("A", "2"), *cookies, ("Server-Timing", "db;dur=2")]
    with http_server({"/": Reply(headers=headers)}) as server:
        given = ["-H", "X-Api-Key: s3cret-token", "-H", "Cookie: ;x=1; =2;; value; s3cret-token=;"]
        given += ["-H", "Content-Type: text/x-own"]
        [entry] = archive(call_tool, tmp_path, "-d", '{"a": 1}', *given, server.url())
    request, response = entry["request"], entry["response"]
    assert [header["name"] for header in response["headers"]][:-1] == [name for name, _ in headers]
    assert [header["name"] for header in request["headers"]].count("Cookie") == 1
    assert [cookie["name"] for cookie in response["cookies"]] == ["one", "two"]
    assert [cookie["name"] for cookie in request["cookies"]] == ["x", "***"]
    assert (request["bodySize"], request["postData"]["mimeType"]) == (8, "text/x-own")
    assert {cookie["value"] for cookie in request["cookies"] + response["cookies"]} == {"***"}


def test_a_chain_has_an_entry_for_every_step(call_tool, tmp_path):
    """What lies between two steps is no step's time, but the page's."""
    routes = {"/1": redirect("/2"), "/2": redirect("/3", 301), "/3": Reply(204)}
    with http_server(routes) as server:
        entries = archive(call_tool, tmp_path, "-L", server.url("/1"))
    assert [entry["response"]["status"] for entry in entries] == [302, 301, 204]
    assert [entry["response"]["redirectURL"] for entry in entries] == ["/2", "/3", ""]
    [page] = json.loads((tmp_path / "out.har").read_text("utf-8"))["log"]["pages"]
    assert page["pageTimings"]["onLoad"] > sum(entry["time"] for entry in entries)


def test_a_failed_exchange_has_status_0_and_its_times(call_tool, tmp_path):
    with scripted(sending("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")) as server:
        [entry] = archive(call_tool, tmp_path, server.url())
    assert "(xfer)" in entry["_error"] and entry["response"]["bodySize"] == 4
    with refused_port() as port:
        [entry] = archive(call_tool, tmp_path, f"http://127.0.0.1:{port}/")
    assert "serverIPAddress" not in entry and entry["timings"]["connect"] >= 0


def test_an_archive_has_a_page_a_run_and_is_valid(call_tool, tmp_path):
    path = tmp_path / "out.har"
    with scripted(Failing(2)) as server:
        options = ("--count", "3", "--interval", "0", "--har", path, "--json", "-", server.url())
        runs = call_tool(*options).json()["runs"]
    log = check_archive(json.loads(path.read_text()))
    ids = [page["id"] for page in log["pages"]]
    assert [entry["pageref"] for entry in log["entries"]] == ids and len(set(ids)) == 3
    assert [entry["response"]["status"] for entry in log["entries"]] == [200, 0, 200]
    assert [entry["startedDateTime"] for entry in log["entries"]] == [run["started_at"] for run in runs]


def test_odd_headers_make_a_valid_archive(call_tool, tmp_path):
    fields = [("X-Name", "caf\xe9"), ("Content-Type", "text/\xe9"), ("X-Odd", "a\x01b\x1b[31m\x7f\x9b")]
    fields += [("X-Empty", ""), ("Set-Cookie", ""), ("Location", ""), *[("X-Many", "x")] * 900]
    with http_server({"/": Reply(headers=fields)}) as server:
        [entry] = archive(call_tool, tmp_path, server.url())
    assert len(entry["response"]["headers"]) == len(fields) + 1
