"""What changes while a series runs (--duration, --count): the events, where they are told, and the schedule
that leads to them.
"""

from __future__ import annotations

import datetime
import itertools
import json
import re

import pytest

from checks import flat
from inside import here, tool
from samples import sample
from screens import SGR
from servers import OK, Reply, every, http_server, scripted

START = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.timezone.utc)
CERTIFICATE = tool.Certificate("shop.example", ("shop.example",), "R1", "1", None, None, "3c0d5950" * 8)
FIRST = ("203.0.113.10", CERTIFICATE, "HTTP/2")
OTHER = ("203.0.113.11", CERTIFICATE._replace(sha256="247648d1" * 8), "HTTP/1.1")


def run(number, label=200, server=FIRST):
    """Make a run's last step; the label is its status, or the kind of its failure."""
    outcome = {"error": label} if isinstance(label, str) else {"status": label}
    step, (ip, certificate, version) = sample(number, 20_000, **outcome), server
    tls = tool.TlsInfo(chain=(certificate,) if certificate else ())
    attempts = (tool.Attempt("192.0.2.1", 100, "connection refused"),) if isinstance(label, str) else ()
    return step._replace(
        started_at=START + datetime.timedelta(seconds=0.5 * (number - 1)),
        network=step.network._replace(peer=ip and tool.Peer(ip, 2, ()), tls=tls, attempts=attempts),
        response=step.response and step.response._replace(http_version=version),
        error=step.error and step.error._replace(phase="connect"),
    )


def told(steps):
    """Return the events of the runs of a side: (run, kind, text)."""
    watch = tool.Watch()
    return [(each.run, each.kind, each.text) for step in steps for each in watch.add(step)]


def test_a_run_that_ends_in_another_way_than_the_one_before_is_an_event():
    names = ["network", "network", 200, 502, 502, *["network"] * 3, 200, 204, 204, 503, 200]
    assert told(run(number, name) for number, name in enumerate(names, 1)) == [
        (1, "status", "connection refused"),
        (3, "recovered", "connection refused -> 200 (failed in connect for 2 runs, 1.0 s)"),
        (4, "status", "200 -> 502 (200 for 1 run, 500 ms)"),
        (6, "status", "502 -> connection refused (502 for 2 runs, 1.0 s)"),
        (9, "recovered", "connection refused -> 200 (failed in connect for 3 runs, 1.5 s)"),
        (10, "status", "200 -> 204 (200 for 1 run, 500 ms)"),
        (12, "status", "204 -> 503 (204 for 2 runs, 1.0 s)"),
        (13, "recovered", "503 -> 200 (503 for 1 run, 500 ms)"),
    ]
    earlier = run(2, 502)._replace(started_at=START - datetime.timedelta(hours=1))  # the clock was set back
    assert told([run(1), earlier]) == [(2, "status", "200 -> 502 (200 for 1 run, 0.0 ms)")]
    gone = run(2, "network")
    for phase, attempts in (("connect", ()), ("wait", gone.network.attempts)):  # a unix socket; one that lost
        network, error = gone.network._replace(attempts=attempts), gone.error._replace(phase=phase)
        text = f"200 -> failed in {phase} (200 for 1 run, 500 ms)"
        assert told([run(1), gone._replace(network=network, error=error)]) == [(2, "status", text)]


def shown_by(values):
    """Make runs with a value of x-version for each character, or without one for a space."""
    for number, value in enumerate(values, 1):
        headers = (("X-Version", value.encode()),) if value.strip() else ()
        step = run(number)
        yield step._replace(response=step.response._replace(headers=headers))


@pytest.mark.parametrize(
    ("values", "events"),
    [
        ("111112222", [(6, "trait", "x-version 1 -> 2")]),
        ("1111122", []),  # it has not stayed
        ("11112222", []),  # it was not there for long
        ("11111221222", []),
        ("1111123222", []),
        ("123" * 6, []),
        ("1111122222333", [(6, "trait", "x-version 1 -> 2"), (11, "trait", "x-version 2 -> 3")]),
        ("1111122222111", [(6, "trait", "x-version 1 -> 2"), (11, "trait", "x-version 2 -> 1")]),
        ("11111 2 2 2", [(7, "trait", "x-version 1 -> 2")]),  # an answer without it says nothing
    ],
)
def test_what_changes_once_and_stays_is_an_event_of_its_first_run(values, events):
    assert told(shown_by(values)) == events


def test_addresses_certificates_and_protocols_change_of_failed_runs_too_and_all_else_of_good_ones():
    servers = [*[FIRST] * 5, *[OTHER] * 3]
    changes = [
        (6, "address", "address 203.0.113.10 -> 203.0.113.11"),
        (6, "certificate", "certificate 3c0d5950 -> 247648d1"),
        (6, "protocol", "protocol HTTP/2 -> HTTP/1.1"),
    ]
    assert told(run(number, server=server) for number, server in enumerate(servers, 1)) == changes
    failed = [run(number, 200 if number < 6 else "tls", servers[number - 1]) for number in range(1, 9)]
    assert told(failed)[1:] == changes[:2]
    far = [each._replace(network=each.network._replace(rtt_us=112_000)) for each in map(run, range(6, 9))]
    near = [each._replace(network=each.network._replace(rtt_us=12_000)) for each in map(run, range(1, 6))]
    assert told([*near, *far]) == [(6, "trait", "round trip 8 to 16 ms -> 64 to 128 ms")]
    pages = [run(number, 502)._replace(network=far[0].network, body_bytes=9) for number in (6, 7, 8)]
    assert [kind for _, kind, _ in told([*near, *pages])] == ["status"]


def test_fields_that_are_ever_new_are_not_watched_for_ever():
    watch = tool.Watch()
    for number in range(1, 101):
        step = run(number)
        fields = tuple((f"X-{number}-{field}", b"a") for field in range(16))
        watch.add(step._replace(response=step.response._replace(headers=fields)))
    assert len(watch._traits) == 64


TIME = r"\d\d:\d\d:\d\d"


def events_in(text):
    """Return what the event lines of a terminal say, without the time of day: (run, text)."""
    plain = re.sub(r"\r[^\r\n\x1b]*\x1b\[K|\x1b\[[0-9;]*m|\r", "", text)  # a busy machine shows how far it is
    return [
        (int(run), words) for run, words in re.findall(rf"^{TIME} run (\d+)(?: \S+)?: (.*)$", plain, re.M)
    ]


def breaking(replies, usual=None):
    """Make the routes of a server whose first requests are answered by their number."""
    count = itertools.count(1)
    return {"/": lambda request: replies.get(next(count), usual or Reply(wait=0.01))}


def test_on_a_terminal_changes_stand_in_place_of_lines_and_the_report_names_rows_that_failed(
    run_tool, tmp_path
):
    path = tmp_path / "out.json"
    statuses = {12: 502, 13: 502, 14: 503, 20: 404}
    with http_server(breaking({run: Reply(status) for run, status in statuses.items()})) as server:
        options = ("--count", "30", "--interval", "0", "--json", path)
        result = run_tool(*options, server.url(), terminal="out err", columns=120)
    events = [(each["run_number"], each["text"]) for each in result.json(path)["events"]]
    assert events_in(result.out.partition("Step 1")[0]) == events
    assert [number for number, _ in events] == [12, 14, 15, 20, 21]
    assert "Run 1 Step" not in result.out
    assert " Bad runs 4 of 30 runs: run 12-13 (502), 14 (503), 20 (404)" in flat(SGR.sub("", result.out))


@pytest.mark.parametrize(
    ("style", "terminal", "told"),
    [
        ("-i", "out", [1, 0, 0]),
        ("-i", "err", [0, 1, 0]),
        ("--compact", "", [1, 0, 0]),
        ("--compact", "out err", [1, 0, 0]),
        ("--metrics-only", "out err", [0, 0, 0]),  # for programs, which have JSON
    ],
)
def test_every_style_tells_a_change_once(run_tool, style, terminal, told):
    """As it comes, in the report, on stderr."""
    with http_server(breaking({2: Reply(404)})) as server:
        result = run_tool("--count", 3, "--interval", 0.02, style, server.url(), terminal=terminal)
    live, _, report = SGR.sub("", result.out).partition("Step 1: GET")
    change = rf"(?:^|\r|\x1b\[K|  Changes +){TIME} run 2: 200 -> 404 \("
    assert [len(re.findall(change, text, re.M)) for text in (live, report, result.err)] == told


def test_a_report_that_is_no_terminal_s_has_the_first_twenty_changes(call_tool):
    with http_server({"/": every(Reply(), Reply(503))}) as server:
        told = flat(call_tool("--count", 60, "--interval", 0, server.url()).out)
    changes = re.findall(rf"{TIME} run (\d+): \d+ -> \d+ \(", told)
    assert [int(run) for run in changes] == [*range(2, 22)] and " and 39 more " in told


def test_of_several_addresses_events_stand_in_place_of_lines_and_name_them(run_tool, tmp_path):
    path = tmp_path / "out.json"
    with http_server(breaking({2: Reply(404)}), host="0.0.0.0") as server:
        given = [f"--resolve=two.test:{server.port}:127.0.0.{last}" for last in (1, 2)]
        words = ("--all-addresses", *given, "--interval", "0", "--count", "11", "--json", path)
        result = run_tool(*words, server.url(host="two.test"), terminal="out", columns=120)
    shown, document = flat(SGR.sub("", result.out)), result.json(path)
    broken = document["runs"][1]["target"]
    assert re.search(rf"{TIME} run 2 {broken}: 404 .* run [34] {broken}: 404 -> 200 \(404 for 1 run, ", shown)
    assert shown.endswith(f" Bad runs {broken}: 1 of 11 rounds: round 1 (404) (-f makes this exit 22)")
    assert [(each["target"], each["side"]) for each in document["events"]] == [(broken, None)] * 2


def test_a_server_in_the_place_of_another_is_one_outage_and_its_certificate_is_told(authority):
    """Runs 7 and 8 meet neither."""
    contexts = [authority.context(common_name=name) for name in ("old", "shop.example")]

    def script(peer):
        if peer.number not in (6, 7):
            peer.secure(contexts[peer.number > 7])
            peer.read_request()
            peer.send(OK)

    with scripted(script) as server:
        words = ("--cacert", authority.file, "--count", 12, "--interval", 0)
        document = here(*words, f"https://{server.authority}/").json()
    told = {each["kind"]: (each["run_number"], each["text"]) for each in document["events"]}
    old, new = (document["runs"][run]["steps"][0]["network"]["cert_sha256"][:8] for run in (0, -1))
    assert [told[kind][0] for kind in ("status", "recovered", "certificate")] == [7, 9, 9]
    assert told["certificate"][1] == f"certificate {old} -> {new}" and old != new


def test_rounds_of_a_duration_are_run_until_it_is_over_and_their_statistics_are_budgeted(call_tool, server):
    options = ("--duration", "1s", "--interval", "0.25", "--slo", "total.max=9000,total.p95=9000")
    result = call_tool(*options, "--json", "-", "--metrics-only", server.url())
    document = result.json()
    assert (document["duration_s"], document["count"], document["interval_s"]) == (1, None, 0.25)
    assert len(document["runs"]) == len(server.requests) and len(server.requests) in (3, 4)
    slo = document["summary"]["slo"]
    assert (result.code, slo["pass"], slo["not_judged"]) == (4, False, ["total.p95"])
    assert "total.p95: not judged, too few good answers" in result.err


def test_a_round_that_has_begun_is_finished_and_none_begins_when_the_time_is_over(call_tool):
    """Two addresses of which the first takes longer than all there is; without an interval too."""
    slow = itertools.chain([Reply(wait=1.2)], itertools.repeat(Reply()))
    with http_server({"/": lambda request: next(slow)}, host="0.0.0.0") as server:
        given = [f"--resolve=two.test:{server.port}:127.0.0.{last}" for last in (1, 2)]
        options = ("--all-addresses", *given, "--duration", "1", "--interval", "0.1", "--metrics-only")
        result = call_tool(*options, "--json", "-", server.url(host="two.test"))
    assert [run["round"] for run in json.loads(result.out)["runs"]] == [1, 1]
    assert "Stopped" not in result.err
