"""What changes while a series runs (--duration, --count): the events, where they are told, and the schedule
that leads to them.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import re
import signal
import time

import pytest
from test_statistics import sample
from test_terminal import SGR

from checks import EDGE, check_document, check_usage_error, parse_metrics
from conftest import PATIENCE, with_resolver
from inside import tool
from servers import Reply, debian_program, dns_server, free_port, http_server, redirect, scripted

# --- what is an event, and what is not ------------------------------------------------------------

START = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.timezone.utc)
CERTIFICATE = tool.Certificate("shop.example", ("shop.example",), "R1", "1", None, None, "3c0d5950" * 8)
FIRST = tool.ServerInfo(CERTIFICATE, http_version="HTTP/2", ip="203.0.113.10")


def started(number, interval=0.5):
    return START + datetime.timedelta(seconds=interval * (number - 1))


def run(number, label=200, total=20_000, **changes):
    """Make the sample of a run's last step; the label is its status, or the kind of its failure."""
    outcome = {"error": label} if isinstance(label, str) else {"status": label}
    made = sample(number, total, reused=changes.pop("reused", None), **outcome)
    if made.failure:
        made = made._replace(failure=made.failure._replace(phase="connect"))
    return made._replace(started_at=started(number), server=FIRST)._replace(**changes)


def told(samples):
    """Return the events of runs: (run, kind, text)."""
    finder = tool.EventFinder()
    for each in samples:
        finder.add(each)
    return [(event.run, event.kind, event.text) for event in finder.events]


def labels(*names):
    return [run(number, name) for number, name in enumerate(names, 1)]


def test_of_runs_that_are_alike_nothing_is_said():
    assert told(labels(*[200] * 200)) == []


def test_an_outage_is_said_when_it_begins_when_it_changes_and_when_it_ends():
    assert told(labels(200, 502, 502, "network", "network", "network", 200, 200)) == [
        (2, "status", "502 after 200"),
        (4, "status", "failed in connect after 502"),
        (7, "recovered", "200 again, after 2.5 s (5 runs: 502, failed in connect)"),
    ]


def test_the_first_run_s_failure_is_said_and_nothing_is_called_again_that_never_was():
    assert told(labels("network", "network", 200)) == [
        (1, "status", "failed in connect"),
        (3, "recovered", "200, after 1.0 s (2 runs: failed in connect)"),
    ]


def test_another_good_status_is_said_also_after_an_outage():
    assert told(labels(200, 204, 204, 503, 200)) == [
        (2, "status", "204 after 200"),
        (4, "status", "503 after 204"),
        (5, "recovered", "200, after 0.5 s (1 run: 503)"),
        (5, "status", "200 after 204"),
    ]


def test_the_fifth_change_within_ten_runs_is_flapping_until_ten_are_alike():
    changing = labels(200, 200, 502, 200, 502, 200, 502, 502, 200, 502, *[200] * 10, 502)
    assert told(changing) == [
        (3, "status", "502 after 200"),
        (4, "recovered", "200 again, after 0.5 s (1 run: 502)"),
        (5, "status", "502 after 200"),
        (6, "recovered", "200 again, after 0.5 s (1 run: 502)"),
        (7, "flapping", "flapping: 502 in 3 of 7 runs"),
        (20, "recovered", "steady again: 200"),
        (21, "status", "502 after 200"),
    ]


def test_four_changes_within_ten_runs_and_a_fifth_after_them_are_told_one_by_one():
    """The changes are at 2, 4, 6, 8, 12 and 14: of ten runs in a row at most four have one."""
    names = [200] + [502] * 2 + [200] * 2 + [502] * 2 + [200] * 4 + [502] * 2 + [200]
    assert {kind for _, kind, _ in told(labels(*names))} == {"status", "recovered"}


def test_steady_again_may_be_an_outage():
    changing = labels(200, 502, 200, 502, 200, *[502] * 10, 200)
    assert told(changing)[4:] == [
        (6, "flapping", "flapping: 502 in 3 of 6 runs"),
        (15, "status", "steady again: 502"),
        (16, "recovered", "200 again, after 5.0 s (10 runs: 502)"),
    ]


def speeds(*totals):
    return [run(number, total=total) for number, total in enumerate(totals, 1)]


USUAL = [20_900, 21_000, 21_100, 21_000]  # us; the MAD is 0.05 ms, what is slow begins 0.75 ms above


def test_a_row_of_slow_runs_is_one_event_and_three_usual_ones_end_it():
    totals = [*USUAL * 2, 812_400, *[700_000] * 4, 21_000, 21_000, 650_000, 21_000, 21_000, 21_000]
    assert told(speeds(*totals)) == [
        (9, "slow", "total 812.4 ms, usually 21.0: wait 812"),
        (19, "recovered", "usual again, after 4.0 s (6 slow runs)"),
    ]


def test_a_slow_run_names_the_phase_that_was_longer_than_usual_with_its_own_time():
    """Not the phase that takes longest."""
    usual, slow = run(1), run(9, total=5_100_000)
    runs = [usual._replace(run=number, started_at=started(number)) for number in range(1, 9)]
    slow = slow._replace(timing=slow.timing._replace(dns=5_021_400, wait=79_000))
    assert told([*runs, slow]) == [(9, "slow", "total 5100.0 ms, usually 20.0: dns 5021")]
    long = [each._replace(timing=each.timing._replace(wait=50, xfer=4000)) for each in runs]
    slow = slow._replace(timing=slow.timing._replace(dns=0, wait=8_300, xfer=4_001, total=30_000))
    assert told([*long, slow]) == [(9, "slow", "total 30.0 ms, usually 20.0: wait 8.3")]


@pytest.mark.parametrize(
    "totals",
    [
        [*USUAL, *USUAL[:3], 812_400],  # only seven tell what is usual
        [*USUAL * 2, 26_000],  # 5 ms above
        [*USUAL * 2, 1_000],  # quick is not slow
    ],
)
def test_what_is_not_slow(totals):
    assert told(speeds(*totals)) == []


def test_slow_is_what_lies_5_ms_and_14_826_deviations_above_the_usual():
    assert [each[1] for each in told(speeds(*USUAL * 2, 26_001))] == ["slow"]
    wide = [20_000, *[22_000, 20_000] * 25]  # the deviation is 1 ms: 14.8 ms above 21
    assert told(speeds(*wide, 35_800)) == []
    assert [each[1] for each in told(speeds(*wide, 35_900))] == ["slow"]


def test_runs_that_depend_on_those_before_them_must_be_further_away_to_be_slow():
    waves = [20_000, 21_000, 22_000, 23_000, 24_000, 23_000, 22_000, 21_000] * 5
    assert told(speeds(*waves, 45_000)) == []
    assert [each[1] for each in told(speeds(*waves, 90_000))] == ["slow"]
    mixed = [20_000, 23_000, 21_000, 24_000, 22_000, 23_000, 21_000, 22_000] * 5
    assert [each[1] for each in told(speeds(*mixed, 45_000))] == ["slow"]


def test_from_the_fifth_row_of_slow_runs_on_one_line_says_so_until_fifty_are_not_slow():
    totals = [*USUAL * 2, *[90_000, *USUAL] * 12, *USUAL * 13]
    events = told(speeds(*totals))
    assert events[:2] == [
        (9, "slow", "total 90.0 ms, usually 21.0: wait 90"),
        (12, "recovered", "usual again, after 0.5 s (1 slow run)"),
    ]
    assert [kind for _, kind, _ in events[:8]] == ["slow", "recovered"] * 4
    assert events[8:] == [
        (29, "slow", "slow again and again: 5 of the last 29 runs"),
        (114, "recovered", "usual again, after 18.0 s (8 slow runs)"),
    ]


# --- levels ---------------------------------------------------------------------------------------

NOISE = [98_000, 101_000, 99_000, 103_000, 100_000, 97_000, 102_000]


def noisy(count, times=1.0):
    return [round(NOISE[number % 7] * times) for number in range(count)]


def test_a_new_level_is_said_once_of_its_first_run_and_after_fifty_it_is_usual():
    events = told(speeds(*noisy(58), *noisy(100, 1.25)))
    assert events == [
        (59, "level", "total 124 ms since then, usually 100"),
        (108, "renewed", "usual now: 125 ms"),
    ]


def test_a_level_is_over_when_seven_of_ten_are_back_and_not_before():
    events = told(speeds(*noisy(58), *noisy(30, 2), *noisy(40)))
    assert events == [
        (59, "slow", "total 196.0 ms, usually 100.0: wait 196"),
        (59, "level", "total 199 ms since then, usually 100"),
        (96, "recovered", "usual again, after 15.0 s (31 runs)"),
    ]


def test_of_a_lasting_slowdown_nobody_says_that_it_is_usual_again():
    """In it single runs are quicker than the rest, but none as quick as before."""
    slowed = [170_000, 400_000, 160_000, 165_000, 160_000] * 40
    texts = [text for _, _, text in told(speeds(*noisy(60), *slowed))]
    assert texts[1] == "total 162 ms since then, usually 100"
    assert texts[-1] == "usual now: 165 ms"
    assert not [text for text in texts if "again," in text]


def test_what_has_become_quicker_is_said_where_ten_of_ten_are():
    assert told(speeds(*noisy(60), *noisy(12, 0.7)))[-1] == (
        61,
        "level",
        "total 70 ms since then, usually 100",
    )
    odd = [*noisy(9, 0.7), 100_000] * 2
    assert told(speeds(*noisy(60), *odd)) == []


@pytest.mark.parametrize(
    "totals",
    [
        noisy(17, 1) + noisy(0),
        noisy(58) + noisy(7, 1.25) + noisy(20),  # seven of ten, and the usual ones beyond
        noisy(60) + noisy(30, 1.15),  # less than a fifth
        [each // 30 for each in noisy(60)] + [each // 30 + 900 for each in noisy(30)],  # less than 1 ms
    ],
)
def test_what_is_no_new_level(totals):
    assert told(speeds(*totals)) == []


def test_a_run_that_is_slow_on_a_new_level_is_said_and_nothing_is_usual_again_after_it():
    events = told(speeds(*noisy(58), *noisy(22, 1.25), 5_000_000, *noisy(20, 1.25)))
    assert events[1:] == [(81, "slow", "total 5000.0 ms, usually 100.0: wait 5000")]


def test_levels_are_found_by_side_and_by_the_connection():
    warm = [run(number, total=total, reused=True) for number, total in enumerate(noisy(60), 1)]
    cold = [run(number, total=total, reused=False) for number, total in enumerate(noisy(10, 3), 61)]
    assert told([*warm, *cold]) == []


def test_runs_that_are_not_good_say_nothing_of_what_is_usual():
    bad = [run(number, 503, total=900_000) for number in range(9, 40)]
    events = told([*speeds(*USUAL * 2), *bad, run(40, total=812_400), run(41, 503, total=900_000)])
    assert [(number, kind) for number, kind, _ in events if kind == "slow"] == [(40, "slow")]


def test_cold_and_warm_runs_are_usual_in_their_own_way():
    warm = [run(number, total=5_000, reused=True) for number in range(2, 20)]
    cold = [run(number, total=50_000, reused=False) for number in (1, 20, 21)]
    assert told([cold[0], *warm, *cold[1:]]) == []
    assert told([cold[0], *warm, run(20, total=50_000, reused=True)])[0][1] == "slow"


def test_a_server_that_has_become_slow_for_good_is_usual_in_time():
    kinds = [kind for _, kind, _ in told(speeds(*USUAL * 13, *[800_000, 800_500] * 50))]
    assert kinds == ["slow", "level", "renewed"]


OTHER = FIRST._replace(
    certificate=CERTIFICATE._replace(sha256="247648d1" * 8), http_version="HTTP/1.1", ip="203.0.113.11"
)


def test_what_a_server_shows_is_said_when_it_was_not_seen_before():
    servers = [FIRST, tool.ServerInfo(), FIRST, OTHER, FIRST, OTHER]
    assert told([run(number, server=server) for number, server in enumerate(servers, 1)]) == [
        (4, "address", "203.0.113.11 after 203.0.113.10"),
        (4, "certificate", "another certificate (shop.example, 247648d1)"),
        (4, "protocol", "HTTP/1.1 after HTTP/2"),
    ]


def test_a_certificate_that_fails_is_another_one_too():
    events = told([run(1), run(2, "tls", server=OTHER._replace(http_version=None, ip=FIRST.ip))])
    assert [kind for _, kind, _ in events] == ["status", "certificate"]


def test_each_variant_is_looked_at_by_itself():
    finder = tool.EventFinder()
    for number in range(1, 41):
        side = "AB"[number % 2]
        total = {"A": 20_000, "B": 900_000}[side]
        finder.add(run(number, 200 if side == "A" else 204, total, variant=side))
    assert finder.events == []
    [event] = finder.add(run(41, 502, variant="B"))
    assert tool.event_line(event).endswith(" run 41 B: 502 after 204")


# --- where they are told --------------------------------------------------------------------------

TIME = r"\d\d:\d\d:\d\d"
OUTAGE = {12: Reply(502), 13: Reply(502), 14: Reply(503)}


def events_in(text):
    """Return what the event lines of a terminal say, without the time of day: (run, text)."""
    plain = re.sub(r"\x1b\[[0-9;]*[mK]|\r", "", text)
    return [
        (int(run), words) for run, words in re.findall(rf"^{TIME} run (\d+)(?: \S+)?: (.*)$", plain, re.M)
    ]


def calm_events(document):
    """Return the events of a document but for slow runs, which a busy machine makes: (run, kind, text)."""
    events = [(event["run_number"], event["kind"], event["text"]) for event in document["events"]]
    speed = ("slow", "level", "renewed")
    return [each for each in events if each[1] not in speed and not each[2].startswith("usual again")]


def breaking(replies, usual=None):
    """Make the routes of a server whose first requests are answered by their number."""
    count = itertools.count(1)
    return {"/": lambda request: replies.get(next(count), usual or Reply(wait=0.01))}


def test_on_a_terminal_events_stand_in_place_of_the_lines_of_many_runs(run_tool, tmp_path):
    path = tmp_path / "out.json"
    with http_server(breaking({**OUTAGE, 25: Reply(wait=1.5)})) as server:
        options = ("--count", "30", "--interval", "0", "--json", path)
        result = run_tool(*options, server.url(), terminal="out err", columns=120)
    document = result.json(path)
    said = [(number, text) for number, text in events_in(result.out.partition("Step 1")[0])]
    assert said == [(event["run_number"], event["text"]) for event in document["events"]]
    assert calm_events(document)[0] == (12, "status", "502 after 200")
    assert calm_events(document)[1] == (14, "status", "503 after 502")
    assert re.fullmatch(r"200 again, after \d\.\d s \(3 runs: 502, 503\)", calm_events(document)[2][2])
    *_, slow = (each for each in document["events"] if each["run_number"] <= 25)
    assert re.fullmatch(r"total \d+\.\d ms, usually \d+\.\d: [a-z]+ [\d.]+", slow["text"])
    assert re.match(r"total 15\d\d\.", slow["text"]) or slow["run_number"] < 25, (
        "a busy machine began the row"
    )
    assert "Run 1 Step" not in result.out


def test_the_report_joins_an_outage(run_tool):
    with http_server(breaking({**OUTAGE, 29: Reply(404), 30: Reply(404)})) as server:
        result = run_tool("--count", "30", "--interval", "0", server.url(), columns=120)
    report = result.out.partition("  Events")[2]
    assert re.search(rf"^ +502, 503 from {TIME} for \d+\.\d s, 3 runs$", report, re.M)
    assert re.search(rf"^ +404 from {TIME} for \d+\.\d s, 2 runs so far$", report, re.M)
    assert not re.search("after 200|200 again", report)


def test_few_runs_get_their_lines_and_many_events_only_where_the_waterfall_is_on_a_terminal(run_tool):
    cases = [
        (("--count", "20"), "out", True),
        (("--count", "21"), "out", False),
        (("--count", "21"), "err", False),
        (("--count", "21", "--compact"), "out", True),
        (("--duration", "1s"), "out", False),
        (("--duration", "1s"), "", False),
        (("--versus", "", "--count", "2"), "", False),
    ]
    for options, terminal, lines in cases:
        with http_server(breaking({2: Reply(404)})) as server:
            result = run_tool(*options, "--interval", "0.01", server.url(), terminal=terminal)
        short = re.search(
            r"^Run 2 127\.0\.0\.1: 404  wait \d+\.\d  total \d+\.\d ms\r?$",
            SGR.sub("", result.out),
            re.M,
        )
        assert (bool(short) or "Run 2 Step 1: 404 GET" in result.out) is lines, options
        on_stdout = (2, "404 after 200") in events_in(re.split("\n(?:Step 1|GET)", result.out)[0])
        assert on_stdout is (terminal == "out" and not lines), options
        assert ((2, "404 after 200") in events_in(result.said)) is (terminal == "err"), options


def test_of_several_addresses_events_stand_in_place_of_lines_and_name_them(run_tool):
    with http_server(breaking({2: Reply(404)}), host="0.0.0.0") as server:
        given = [f"--resolve=two.test:{server.port}:127.0.0.{last}" for last in (1, 2)]
        options = ("--all-addresses", *given, "--interval", "0", server.url(host="two.test"), "--count")
        many = run_tool(*options, "11", terminal="out", columns=120)
        few = run_tool(*options, "10", columns=120)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", many.out)
    broken = re.search(rf"^{TIME} run 2 (127\.0\.0\.[12]): 404$", shown, re.M)[1]
    ended = r"200, after (0\.[1-9] s \(1 run: 404\)|1 run: 404)"
    assert re.search(rf"^{TIME} run [34] {broken}: {ended}$", shown, re.M)
    assert re.search(rf"{broken}: 404 from {TIME}( for 0\.[1-9] s)?, 1 run$", shown, re.M)
    assert "Run 1" not in many.out + few.out


def test_the_export_says_which_address_an_event_is_of(run_tool):
    with http_server(breaking({2: Reply(404)}), host="0.0.0.0") as server:
        given = [f"--resolve=two.test:{server.port}:127.0.0.{last}" for last in (1, 2)]
        options = ("--all-addresses", *given, "--count", "2", "--json", "-", server.url(host="two.test"))
        result = run_tool("--interval", "0", *options, "--metrics-only")
    document = json.loads(result.out)
    assert result.err.startswith("Run 1 Step 1")
    broken = document["runs"][1]["target"]
    assert [(each["target"], each["side"]) for each in document["events"]] == [(broken, None)] * 2


@pytest.mark.parametrize("columns", [60, 100])
def test_the_first_failure_of_a_kind_is_explained_on_a_terminal(run_tool, columns):
    def script(peer):
        peer.read_request()
        if peer.number not in (1, 2, 4):
            peer.send("HTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n")

    with scripted(script) as server:
        options = ("--duration", "1", "--interval", "0.1", server.url())
        result = run_tool(*options, terminal="out", columns=columns)
    live = re.sub(r"\x1b\[[0-9;]*m", "", result.out).partition("\nStep 1")[0]
    assert re.findall(r"^  (Why|Try) ", live, re.M) == ["Why", "Try"]
    assert live.index("failed in wait after 200") < live.index("Why") < live.index("run 4")
    assert max(map(len, live.splitlines())) <= columns


def test_only_the_last_events_are_drawn_and_the_first_exported(call_tool, monkeypatch):
    monkeypatch.setattr(tool, "MAX_EVENTS", 3)
    monkeypatch.setattr(tool, "SHOWN_EVENTS", 2)
    # Every sixth run: four changes within ten runs at most.
    bad = {number: Reply(500 + number // 6) for number in range(6, 31, 6)}
    with http_server(breaking(bad)) as server:
        result = call_tool("--count", "31", "--interval", "0", "--json", "-", server.url())
    assert len(result.json()["events"]) == 3
    report = result.said.partition("  Events")[2]
    assert re.match(r" +\d+ more before these\n", report)
    assert len(re.findall(rf"^ +.*{TIME}", report, re.M)) == 2


def test_metrics_lines_of_a_series_say_when_their_steps_began_and_others_do_not(run_tool, tmp_path):
    path = tmp_path / "out.json"
    with http_server({"/": redirect("/x"), "/x": Reply()}) as server:
        options = ("-L", "--metrics-only", "--slo", "total=9000", server.url())
        series = run_tool("--count", "2", "--interval", "0", "--json", path, *options)
        single = run_tool(*options)
    steps = [step for each in series.json(path)["runs"] for step in each["steps"]]
    lines = [line for line in series.out.splitlines() if line.startswith("Run ")]
    assert [parse_metrics(line)["at"] for line in lines] == [step["started_at"] for step in steps]
    assert lines[1].split()[-2] == "slo=pass"
    assert " at=" not in single.out


# --- real changes of real servers -----------------------------------------------------------------

NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} ssl {more}; ssl_certificate {pem}; ssl_certificate_key {pem};
    location / {{ {answer} }}
  }}
}}
"""


class Nginx:
    """An nginx that a test starts, reloads with other settings, and stops."""

    def __init__(self, folder, authority):
        self.folder, self.port, self.held = folder, free_port(), contextlib.ExitStack()
        self.url = f"https://localhost:{self.port}/"
        self.settings = {
            "pem": authority.certificate(common_name="localhost"),
            "more": "",
            "answer": "return 200;",
        }

    def configure(self, **settings):
        self.settings.update(settings)
        user = "user root;\n" if os.geteuid() == 0 else ""
        text = NGINX.format(folder=self.folder, port=self.port, **self.settings)
        (self.folder / "nginx.conf").write_text(user + text)

    def start(self, **settings):
        self.configure(**settings)
        words = ["-p", self.folder, "-c", self.folder / "nginx.conf", "-e", self.folder / "error.log"]
        self.held.enter_context(debian_program("nginx", words, self.port, self.folder / "out.log"))

    def reload(self, **settings):
        self.configure(**settings)
        pid = self.folder / "nginx.pid"
        while not (pid.exists() and pid.read_text().strip()):
            time.sleep(0.01)
        os.kill(int(pid.read_text()), signal.SIGHUP)

    def stop(self):
        self.held.close()


@pytest.fixture
def nginx(tmp_path, authority):
    """On a busy machine a worker that is told to go may close a connection that it has just taken."""
    server = Nginx(tmp_path, authority)
    server.start()
    yield server
    server.stop()


def watch(process, until):
    """Read lines of a running series until one matches; return it."""
    for line in process.stdout:
        if re.search(until, line.decode()):
            return line.decode()
    raise AssertionError(f"the series ended before a line with {until}")


@pytest.fixture
def watching(start_tool, tmp_path):
    """Start a series without end; `.finish()` interrupts it and returns its document."""

    def start(*options, **settings):
        path = tmp_path / "watched.json"
        words = ("--duration", "1h", "--interval", "0.05", "--metrics-only", "--json", path, *options)
        process = start_tool(*words, **settings)

        def finish():
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE)
            assert process.returncode == 130
            return check_document(json.loads(path.read_text()))

        process.finish = finish
        watch(process, "^Run 3 ")
        return process

    return start


def test_a_server_that_is_stopped_and_started_is_one_outage(watching, nginx, authority):
    process = watching("--cacert", authority.file, nginx.url)
    nginx.stop()
    watch(process, "error=network")
    watch(process, "error=network")
    nginx.start()
    watch(process, "status=200")
    document = process.finish()
    first, *_, last = calm_events(document)
    assert (first[1], last[1]) == ("status", "recovered")
    assert re.fullmatch("failed in [a-z]+ after 200", first[2])
    failed = document["summary"]["failed"]
    assert re.fullmatch(rf"200 again, after \d+\.\d s \({failed} runs: .*failed in connect.*\)", last[2])


def test_a_reload_is_said_where_it_brings_another_certificate(watching, nginx, authority):
    process = watching("--cacert", authority.file, nginx.url)
    nginx.reload()
    for _ in range(10):
        watch(process, "status=200")
    nginx.reload(pem=authority.certificate(common_name="shop.example"))
    for _ in range(20):
        watch(process, "status=200")
    document = process.finish()
    shown = [run["steps"][0]["network"]["cert_sha256"] for run in document["runs"]]
    assert shown[0] == shown[9] != shown[-1]
    text = f"another certificate (shop.example, {shown[-1][:8]})"
    expected = [(shown.index(shown[-1]) + 1, "certificate", text)]
    assert [each for each in calm_events(document) if each[1] == "certificate"] == expected


@pytest.mark.needs("h2")
def test_another_protocol_is_said(watching, nginx, authority):
    nginx.reload(more="http2")
    process = watching("--cacert", authority.file, nginx.url)
    watch(process, "status=200")
    nginx.reload(more="")
    for _ in range(20):
        watch(process, "status=200")
    document = process.finish()
    versions = [run["steps"][0]["network"]["http_version"] for run in document["runs"]]
    if versions[0] == "HTTP/1.1":
        pytest.skip("nginx was slower to take its new settings than the first run")
    expected = [(versions.index("HTTP/1.1") + 1, "protocol", "HTTP/1.1 after HTTP/2")]
    assert [each for each in calm_events(document) if each[1] == "protocol"] == expected


@pytest.mark.needs("root", "linux")
def test_another_address_is_said_and_one_that_was_there_before_is_not(watching, tmp_path):
    zone = {"moving.test": ["127.0.0.1"]}
    with http_server(host="0.0.0.0") as server, dns_server(zone) as names:
        process = watching(
            "-4", server.url(host="moving.test"), within=with_resolver(names.address, tmp_path)
        )
        for address in ("127.0.0.2", "127.0.0.1"):
            zone["moving.test"] = [address]
            watch(process, f"ip={address} ")
            watch(process, f"ip={address} ")
        document = process.finish()
    addresses = [run["steps"][0]["network"]["ip"] for run in document["runs"]]
    text = "127.0.0.2 after 127.0.0.1"
    assert calm_events(document) == [(addresses.index("127.0.0.2") + 1, "address", text)]
    assert addresses[-1] == "127.0.0.1"


# --- the time -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"), [("1", 1), ("90", 90), ("90s", 90), ("5m", 300), ("24h", 86400), ("0090s", 90)]
)
def test_a_duration_is_seconds_minutes_or_hours(text, seconds):
    assert tool.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "25h", "86401", "1d", "1.5", "1e3", "-1", "5 m", "5M", "٥", "m"]
)
def test_what_is_no_duration_is_refused(call_tool, server, text):
    check_usage_error(call_tool(f"--duration={text}", server.url()), f"--duration '{text}'", "5m")
    assert server.requests == []


def test_a_duration_stands_in_place_of_a_count(call_tool, server):
    check_usage_error(call_tool("--duration", "1", "--count", "2", server.url()), "--count", "--duration")


def test_a_round_that_is_due_at_the_end_does_not_begin(run_tool, server):
    result = run_tool("--duration", "1s", "--interval", "0.25", "--json", "-", "--metrics-only", server.url())
    document = result.json()
    assert (document["duration_s"], document["count"], document["interval_s"]) == (1, None, 0.25)
    assert len(document["runs"]) == len(server.requests) == 4
    assert result.seconds < 20, "it waits for nothing after the last run"


def test_a_round_that_has_begun_is_finished_and_none_begins_when_the_time_is_over(run_tool):
    """Two addresses of which the first takes longer than all there is; without an interval too."""
    slow = itertools.chain([Reply(wait=1.2)], itertools.repeat(Reply()))
    with http_server({"/": lambda request: next(slow)}, host="0.0.0.0") as server:
        given = [f"--resolve=two.test:{server.port}:127.0.0.{last}" for last in (1, 2)]
        options = ("--all-addresses", *given, "--duration", "1", "--interval", "0.1", "--metrics-only")
        result = run_tool(*options, "--json", "-", server.url(host="two.test"))
    assert [run["round"] for run in json.loads(result.out)["runs"]] == [1, 1]
    assert "Stopped" not in result.said


def test_without_an_interval_runs_follow_each_other_until_the_time_is_over(run_tool):
    with http_server({"/": Reply(wait=0.1)}) as server:
        result = run_tool("--duration", "1", "--interval", "0", "--reuse", "--json", "-", server.url())
    document = result.json()
    assert 2 <= len(document["runs"]) <= 10
    assert document["summary"]["duration_ms"] >= 1000 - EDGE
    assert "Stopped" not in result.said


def test_more_runs_than_there_may_be_are_said_before_the_first(start_tool, server):
    process = start_tool("--duration", "24h", "--metrics-only", server.url())
    watch(process, "^Run 1 ")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err.decode().startswith(
        "httphases: warning: 86400 s at --interval 1 are more than the 10000 runs "
    )
    assert "--interval 8.64 fits" in err.decode()


@pytest.mark.parametrize(
    ("seconds", "variants", "fits"), [(86400, 1, 8.64), (3601, 1, 0.361), (7200, 3, 2.161)]
)
def test_the_interval_that_is_said_to_fit_does(seconds, variants, fits):
    for interval, warned in ((fits - 0.001, True), (fits, False), (100.0, False), (0.0, False)):
        series = tool.Series(tool.MAX_COUNT, interval, duration=seconds)
        assert series.runs(variants) <= tool.MAX_COUNT
        said = "".join(tool.length_warnings(series, variants, series.runs(variants)))
        assert (f"--interval {fits} fits" in said) is warned, interval


def test_statistics_of_a_duration_are_budgeted_and_not_judged_where_values_are_too_few(run_tool, server):
    options = ("--duration", "1", "--interval", "0.2", "--slo", "total.max=9000,total.p95=9000")
    result = run_tool(*options, "--metrics-only", "--json", "-", server.url())
    slo = result.json()["summary"]["slo"]
    assert (result.code, slo["pass"], slo["not_judged"]) == (4, False, ["total.p95"])
    assert "total.p95: not judged, too few good answers" in result.err


def test_a_duration_that_is_interrupted_says_so(start_tool, server):
    process = start_tool("--duration", "1h", "--interval", "0.1", server.url())
    while len(server.requests) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    assert re.search(r"^Stopped after \d+ runs, \d+\.\d of 3600 s\.$", out.decode(), re.M)


def test_a_reader_that_leaves_ends_a_duration(start_tool, server):
    process = start_tool("--duration", "1h", "--interval", "0.05", "--metrics-only", server.url())
    watch(process, "^Run 2 ")
    process.stdout.close()
    assert process.wait(PATIENCE) == 0


# --- the progress line ----------------------------------------------------------------------------


def test_the_progress_line_of_a_duration_has_no_number_of_runs():
    samples = [run(1), run(2), run(3, 503), run(4, "timeout")]
    bar, *_, least = tool.series_progress(1.0, 10_000, samples, (70.0, 90))
    assert bar == "run 5 [##        ], 70 s left, ttfb 20.0 ms, 1 failed, 1 bad"
    assert least == "run 5, ttfb 20.0 ms, 1 failed, 1 bad"
