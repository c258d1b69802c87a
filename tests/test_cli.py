"""The command line: what is accepted, what is refused and how, and what the request looks like then."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading

from checks import check_usage_error, flat
from conftest import TOOL
from inside import tool
from servers import http_server


def asked(run, *arguments, path="/", warned=None, **settings):
    """Run the program against a plain server, `warned` of one thing; return the one request that arrived."""
    with http_server() as server:
        result = run(*arguments, "--metrics-only", server.url(path), **settings)
        assert result.code == 0, result.err
        if warned:
            result.warned(warned)
        [request] = server.requests
        return request


OPTIONS = [text.split() for group in tool.OPTIONS.values() for text, _, _ in group]
TAKING_VALUES = [names for names in OPTIONS if names[0] in tool.VALUED]
SPELLINGS = [name for names in OPTIONS for name in names]
ADDED = "-d --data-raw -H -b --url --resolve --slo --versus".split()  # a second value is


def test_a_second_value_is_added_or_the_one_that_counts():
    for option, *_, other in (names * 2 for names in TAKING_VALUES):
        words, name = [option, "a", other, "b", "http://127.0.0.1:1/"], tool.NAMES[option]
        expected = ["a", "b"] if option in ADDED else "b"
        if name == "data":
            expected = [(option, "a"), (other, "b")]
        args = tool.parse_words(words)
        assert getattr(args, name) == (expected if option != "--url" else [*expected, words[-1]])


def test_the_reference_has_a_row_for_every_option():
    paper = (TOOL.parent / "tests" / "REFERENCE.md").read_text("utf-8")
    rows = re.findall(r"^\| (`-.*?) \| ", paper, re.MULTILINE)
    assert set(SPELLINGS) <= {word for row in rows for word in re.findall(r"--?\w[\w.-]*", row)}


def test_what_curl_has_and_this_has_not_is_answered_with_options_that_are_there():
    for spelling in SPELLINGS:
        hint = tool.instead_of(spelling)
        assert hint.startswith(("did you mean", "--help lists")), "it is an option of ours"
    for entry in tool.FOREIGN_OPTIONS.strip().split("\n-"):
        hint = " ".join(entry.split()).partition(" = ")[2]
        assert hint, entry
        named = re.findall(r"(?<![\w-])--?[A-Za-z][\w.-]*", re.sub("\"[^\"]*\"|'[^']*'", "", hint))
        assert set(named) <= set(SPELLINGS), hint


def test_help_names_every_option_every_exit_code_and_the_defaults(run_tool):
    result = run_tool("--help")
    assert (result.code, result.err) == (0, "")
    text = result.out
    assert text.startswith("usage: httphases ")
    for option in SPELLINGS:
        listed = re.search(rf"(?<![\w-]){re.escape(option)}(?![\w.-])", text)
        assert bool(listed) == (option not in "-g --globoff -S --show-error".split()), option
    for code in (0, 4, 22, 47, 64, 70, 73, 75, 129, 130, 143):
        assert re.search(rf"(?<![\w.]){code} [a-zA-Z]", text.partition("exit codes")[2]), code
    for word in "KEY=MS KEY=+MS +N% HOST:PORT:ADDR 20 10 2xx 200-299 socks5h".split():
        assert word in text, word
    assert len(re.findall(r"^\s+(?:\$ )?httphases .*https?://", text, re.MULTILINE)) >= 3
    for word in ("(--versus: 20)", "(1 s; --versus: 0)", "300ms", "xfer (the body)", "out of ps", "Ctrl-C"):
        assert word in flat(text), "the defaults of a comparison too, and what is asked first"
    assert len(text.splitlines()) <= 100 and max(map(len, text.splitlines())) <= 80
    assert not re.search(r" --\S+-\n|\n {33}", "".join(map(tool.help_text, range(60, 101)))), "none is torn"


def test_version_names_the_program_and_makes_no_request(run_tool, server):
    for words in ([], [server.url()]):
        result = run_tool("--version", *words)
        assert (result.code, result.err) == (0, "")
        assert re.fullmatch(r"httphases \d+\.\d+\S*\n", result.out)
    assert server.accepted == 0


WRONG_VALUES = {  # of each option
    "-X": ["TRACE", "", "G\nT", "*"],
    "-m": ["", "1 s", *"0 -1 nan 1e999 soon 25h s 0ms 5e-324 0.9ms 86401".split()],
    "-H": ["", ": hunter2", "X Y: hunter2", "X-Ü: hunter2", "X-A: hunter2\r\nX-B: 1"],
    "--resolve": [
        *"a.test :80:127.0.0.1 a.test::127.0.0.1 a.test:65536:127.0.0.1 a.test:80:[::1".split(),
        *"a.test:80:localhost a.test:80:127.0.0.256 a.test:80:127.0.0.1%lo".split(),
    ],
    "--count": ["0", "-1", "10001", "1_0", "", "1.5", "1e3", "٣", " 3", "9" * 5000],
    "--interval": ["", "-1", "nan", "inf", "1_0", "1d", "٠", "0x0", "86401"],
    "--duration": ["", *"0 25h 86401 1d -1 5M ٥ m".split(), "5 m"],
    "--expect": [
        *"200, 200;404 200- 299-200 2xx-3xx 20 2000 2x 0xx 099 +200 ok 2\u0660\u0660".split(),
        *("", "200 404", "2xx\n2xx"),
    ],
}
WRONG_TOGETHER = {  # a command line, and what is said of it
    **{f"{option} ''": f"{option} '': expected a path" for option in tool.PATHS},
    **{f"{option} ''": f"{option} '': expected a name" for option in ("--label", "--interface")},
    "-X GETT": ", ".join(tool.METHODS),
    "http://hunter2.test/": "expected one URL, got 2 words: to compare: URL --vs URL",
    "X-Token: hunter2": "expected one URL, got 3 words: is a quote missing around a header",
    "-H X-Token: hunter2": "got 2 words: is a quote missing around a header",
    "-H 'X-A: 1' -H hunter2 -H 'X-B: 2'": "-H number 2 of 3",
    "-H hunter2": "-H: this header does not begin with a name",
    "-d 12345 -H 'Content-Length: 5.0'": "Content-Length",
    "-d x -H 'transfer-Encoding: chunked'": "Transfer-Encoding",
    "-x ftp://user:hunter2@127.0.0.1:1": "socks5://",
    "-x http://user:hunter2@127.0.0.1:x": "port",
    "-4 -6": "-4, -6",
    "-k --cacert none.pem": "-k and --cacert exclude each other",
    "--json - --har /dev/fd/1": "--json and --har both write to '/dev/fd/1'",
    "--otlp out --prometheus ./out": "--prometheus and --otlp both write to",
    "-d @- --slo-file -": "-d and --slo-file cannot all read standard input",
    "--cacert - -H @/dev/fd/0": "-H and --cacert cannot all read standard input",
    "--interval 1": "--interval needs --count or --duration",
    "--cert-days 0": "--cert-days '0': expected a whole number from 1 to 10000",
    "--reuse": "--reuse needs --count or --duration",
    "--propagate": "--propagate needs --otlp",
    "--duration 999ms": "--duration '999ms' is not a time from 1 s to 24 h",
    "--duration 1 --count 2": "--count, --duration",
    "--duration 24h": "86400 runs, lower --duration, or raise --interval",
    "--expect 20": "expected statuses: 200, 2xx, 200-299 or 2xx,401",
    "--unix-socket unix:///run/docker.sock": "takes a path, without unix://",
    "--unix-socket @abstract": "sockets without one (@NAME) are not known",
    **{
        f"--unix-socket /s {other}": f"--unix-socket, {other.split()[0]} exclude each other"
        for other in ("-x http://a:1", "--resolve a:80:127.0.0.1", "-4", "--interface lo")
    },
    "--otlp x --propagate -H 'TraceParent: 00-1-2-01'": "--propagate",
    "--otlp http://me:hunter22@127.0.0.1:4318": "--otlp takes a path before the URL",
    "--all-addresses -x http://127.0.0.1:9": "-x, --proxy",
    "--all-addresses --slo total.median=1000": "total.median, --count",
    "--baseline - -d @-": "--baseline, standard input",
    "--baseline x --all-addresses": "--resolve",
    "--baseline x --count 30 --slo ttfb.p95=+10%": "expected ttfb",
    "--baseline x --count 30 --slo total=+10%,TOTAL=500": "Duplicate",
    "--baseline x --count 5 --slo total=+10%": "--count 6 or more",
    "--slo dns=5,ttfb=+25": "SLO Error, --baseline or --versus",
    "-u hunter2": "-u: expected USER:PASSWORD",
    "-b a=1 --cookie hunter2.txt": "-b, NAME=VALUE, cookie file",
    "-A 'a=hunter2\r\nX-B: 1'": "-A:, line break",
    "--json ' {\"a\": 1}'": "--json writes to a path, -d",
    **{f"{each}=@hunter2": f"{each} writes to a path; a body" for each in tool.EXPORT_OPTIONS},
    "--json": "--json takes a path before the URL",
    **{each: f"no URL given: {each} takes a value before it" for each in ("-H", "-d", "--slo")},
    "--slo -ubob:hunter2": "--slo takes a value before the URL",
    "--resolve n:8843:127.0.0.1:8843": "'127.0.0.1:8843' is not, expected HOST:PORT:ADDR",
    "--resolve n:127.0.0.1": "expected HOST:PORT:ADDR, with the port of the URL",
    "--Compact": "did you mean --compact?",
    "--intervall=1": "did you mean --interval?",
    "--prom=x": "did you mean --prometheus?",
    "--sol total=1": "did you mean --slo?",
    "-user bob:hunter2": "-user: did you mean --user?",
    **dict.fromkeys("--re --secure --no-location --=1 --ignore-cert".split(), "--help lists the"),
    "--slo p(95)=300": "Unknown SLO key 'p(95)', total, total.p95",
    "--slo 300": "expected KEY=MS, for example total=300",
    **{
        f"{each} 1": each
        for each in "-q --http2 --Compact --proxy-user --metrics --heade --http1 --no -€ -=".split()
    },
}


def test_what_is_wrong_is_named_and_no_request_is_made(call_tool, server):
    alone = [([option, value], option) for option, values in WRONG_VALUES.items() for value in values]
    together = [(shlex.split(line), named) for line, named in WRONG_TOGETHER.items()]
    for words, named in alone + together:
        result = call_tool(*words, server.url())
        check_usage_error(result, *named.split(", "))
        assert "hunter2" not in result.err and server.accepted == 0


def test_a_cluster_of_flags_is_taken_apart(call_tool, server):
    """As people type it: curl -sSLo /dev/null -w '%{time_total}'."""
    result = call_tool("-sSLo", "/dev/null", "-w%{time_total}", server.url())
    check_usage_error(result, "arguments: -o: leave it out", "; -w: every report")
    assert call_tool("-kLf", "--compact", server.url()).code == 0
    for words in (["-LkXPOST"], ["-LX=POST"], ["-kLX", "POST"]):
        assert asked(call_tool, *words).method == "POST"
    for data in ("-s not an option", "-5", "--"):
        assert asked(call_tool, "-d", data).body == data.encode()
    assert call_tool("--compact", "--", server.url()).code == 0
    check_usage_error(call_tool("--", "--json", server.url()), "expected one URL, got 2 words")


def test_an_option_without_its_value_and_a_flag_with_one_are_named(call_tool, server):
    for option in SPELLINGS:
        if option in tool.VALUED:
            check_usage_error(call_tool(server.url(), option), f"{option} takes a value before the URL")
            if tool.NAMES[option] not in tool.DASHED:
                check_usage_error(call_tool(option, "-k", server.url()), f"{option} takes a value")
        else:
            check_usage_error(call_tool(f"{option}=yes", server.url()), f"{option} takes no value")
    assert server.accepted == 0


ZEROS = "0" * 5000  # more digits than int() takes
PORTS = ["0", "65536", "00099999", "-1", "abc", "8_0", "８０", "1.5", ZEROS, f"{ZEROS}65536", "9" * 5000]
LONG = ["a" * 64 + ".test", "a." * 127 + "test/", "a" * 300]
REFUSED_URLS = {  # what is said, and of which
    "the URL does not begin with http:// or https://: expected https://host/path": (
        ["localhost:8801", "//example.test/x", "http:/127.0.0.1/", "s3cret", "http:", "", " "]
    ),
    "' does not begin with http:// or https://": ["ftp://example.test/", "httpſ://a.test/"],
    "there is no host in it": ["https:///path", "http://:8080/", "http://?q"],
    "is not a number from 1 to 65535": [f"http://127.0.0.1:{port}/" for port in PORTS],
    "control character": ["http://127.0\n.0.1:1/", "http://a.test/\x00"],
    "-u USER:": ["http://user:pass@a.test/"],
    "http://***@b': there is no host:port": ["http://a.test:x/@b", "http://user:pa/ss@b"],
    "in brackets": [f"http://{host}" for host in "[zz] [] [::1]x [127.0.0.1] [fe80::1%] [::1 ::1".split()],
    "labels of 1 to 63": [f"http://{host}" for host in ("a..b", ".a.test", *LONG)],
    "which no host name can": ["http://a%20b/", "http://a,b", "http://a b/", "http://a.test%"],
    "U+200D": ["http://a\u200db.test/"],
    "its xn-- form": ["http://b\u200da.test/"],
}


def test_a_url_that_cannot_be_asked_for_is_refused(call_tool):
    for said, urls in REFUSED_URLS.items():
        for url in urls:
            check_usage_error(call_tool(url), said)


def test_a_method_is_sent_in_upper_case_and_wins_over_data(call_tool):
    for given in ("GET", "Post", "put", "DELETE", "HEAD", "oPtIoNs"):
        method = given.upper()
        warned = f"{method} with a request body" if method in ("GET", "HEAD") else None
        request = asked(call_tool, "--method", given, "-d", "x=1", warned=warned)
        assert (request.method, request.body) == (method, b"x=1")


def test_data_makes_it_a_post_and_none_a_get(call_tool):
    for words, expected in (
        ([], ("GET", b"", [])),
        (["-d", "some words"], ("POST", b"some words", ["10"])),
        (["--data", ""], ("POST", b"", ["0"])),
        (["-d", "@/dev/null"], ("POST", b"", ["0"])),
        (["-d", "12345", "-H", "Content-Length: 5"], ("POST", b"12345", ["5"])),
    ):
        request = asked(call_tool, *words)
        assert (request.method, request.body, request.values("Content-Length")) == expected
        assert bool(request.values("Content-Type")) == bool(words)


def test_the_extension_of_a_file_is_believed_first(call_tool, tmp_path):
    (tmp_path / "a.JSON").write_bytes(b"<a/>")
    (tmp_path / ".json.d").write_bytes(b"<a/>")
    given = ["-H", "content-type: application/vnd.test+json"]
    for words, kind in (
        ([f"@{tmp_path}/a.JSON"], "application/json"),
        ([f"@{tmp_path}/.json.d"], "application/xml"),
        ([f"@{tmp_path}/a.JSON", *given], "application/vnd.test+json"),
    ):
        assert asked(call_tool, "-d", *words).values("Content-Type") == [kind]


def test_header_lines_and_data_come_from_standard_input_byte_for_byte(run_tool):
    assert asked(run_tool, "-H", "@-", stdin=b"X-A: 1\r\n").values("X-A") == ["1"]
    for content in (b"\x00\r\n\xff@" * 1000, b""):
        request = asked(run_tool, "-d", "@-", stdin=content)
        assert (request.method, request.body) == ("POST", content)
        assert request.values("Content-Length") == [str(len(content))]
    unblock = "import os, sys; os.set_blocking(0, False); os.execv(sys.argv[1], sys.argv[1:])"
    late = ["sh", "-c", '(sleep 1; echo late) | exec "$@"', "sh", sys.executable, "-c", unblock]
    assert asked(run_tool, "-d", "@-", within=late).body == b"late\n", "it need not block"


HEADER_LINES = b"X-A: 1\r\n\r\n  \nX-B: caf\xe9\n# no: comment\nX-A:2"


def test_headers_come_from_a_file_one_a_line(call_tool, tmp_path):
    (tmp_path / "head").write_bytes(HEADER_LINES.replace(b"# no: comment\n", b""))
    request = asked(call_tool, "-H", "X-A: 0", "-H", f"@{tmp_path / 'head'}", "-H", "X-C: 3")
    assert request.values("X-A") == ["0", "1", "2"] and request.values("X-C") == ["3"]
    assert b"X-B: caf\xe9\r\n" in request.head


def test_a_bad_file_of_headers_is_named_with_the_number_of_the_line(call_tool, server, tmp_path):
    head = tmp_path / "head"
    check_usage_error(call_tool("-H", f"@{head}", server.url()), "-H", "No such file")
    for content, said in (
        (HEADER_LINES, f"-H '@{head}', line 5:"),
        (b"X-A: 1\n\nhunter2 hunter2\n", f"-H '@{head}', line 3:"),
        (b"X-A: hunter2\0\n", f"-H '@{head}', line 1:"),
        (b"X-Token: ".ljust(65537, b"s") + b"\n", "line 1: this header is longer than 64 KiB"),
        (b"\n" * (tool.MAX_FILE + 1), "16 MiB"),
    ):
        head.write_bytes(content)
        result = call_tool("-H", f"@{head}", server.url())
        check_usage_error(result, said)
        assert "hunter2" not in result.err and "ssss" not in result.err
    assert server.accepted == 0
    head.write_bytes(b"X-Token: ".ljust(65536, b"s") + b"\n")
    assert call_tool("--compact", "-H", f"@{head}", server.url()).code == 0


def test_a_standard_input_that_was_the_program_or_is_closed_is_called_so(base_environment):
    for program, redirection, said in (
        ("/dev/stdin", f'< "{TOOL}"', b"the program itself and -d cannot all read standard input"),
        (f'"{TOOL}"', "<&-", b"-d: cannot read standard input: it is closed\n"),
    ):
        script = f'exec "{sys.executable}" {program} -d @- http://127.0.0.1:1/ {redirection}'
        done = subprocess.run(["sh", "-c", script], capture_output=True, env=base_environment, check=False)
        assert done.returncode == 64 and said in done.stderr


def test_a_data_file_that_cannot_be_read_is_a_usage_error(call_tool, server, tmp_path):
    for path, said in ((tmp_path / "missing.json", "No such"), (tmp_path, "Is a"), ("", "No such")):
        check_usage_error(call_tool("-d", f"@{path}", server.url()), f"'{path}': {said}")
    with open(tmp_path / "large", "wb") as file:
        file.truncate((1 << 30) + 1)
    check_usage_error(call_tool("-d", f"@{tmp_path / 'large'}", server.url()), "larger than 1024 MiB")
    assert server.accepted == 0


def test_a_fifo_is_read_whole_and_without_a_writer_given_up_with_the_time(run_tool, server, tmp_path):
    """A shell starts both sides of a pipe at once, and either may be the first."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    result = run_tool("-m", "0.5", "-d", f"@{fifo}", server.url())
    check_usage_error(result, "fifo", "no end of the data came within the time of -m")
    assert server.accepted == 0
    for data in (b"late, but whole", b""):
        writer = threading.Timer(0.2, fifo.write_bytes, [data])
        writer.start()
        assert asked(run_tool, "-d", f"@{fifo}").body == data
        writer.join()


def test_the_default_headers_are_these_and_no_more(call_tool, server):
    version = call_tool("--version").out.split()[1]
    call_tool("--compact", server.url())
    sent = {name.lower(): value for name, value in server.requests[0].headers}
    assert sent.pop("connection", "close") in ("close", "keep-alive")
    assert sent == {"host": server.authority, "user-agent": f"httphases/{version}", "accept": "*/*"}


def test_headers_keep_their_order_and_their_repetition(call_tool):
    given = ["X-B: 2", "X-A: 1", "X-B: 3", "x-a:4", "X-Empty:", "X-Space:   padded  "]
    request = asked(call_tool, *(word for header in given for word in ("-H", header)))
    mine = [(name, value) for name, value in request.headers if name.lower().startswith("x-")]
    sent = ["X-B=2", "X-A=1", "X-B=3", "x-a=4", "X-Empty=", "X-Space=padded"]
    assert ["=".join(field) for field in mine] == sent
    names = ["Host", "User-Agent", "Accept", "Content-Type"]
    given = (word for name in names for word in ("-H", f"{name.upper()}: mine"))
    request = asked(call_tool, "-d", "{}", *given)
    assert [request.values(name) for name in names] == [["mine"]] * 4, "of a name with a default one is sent"


def test_a_time_may_have_its_unit(call_tool, server):
    for value in ("0.9e1", "86400", "864e5ms"):
        assert call_tool("-m", value, "--compact", server.url()).code == 0
    for value in ("0.3", "0.3s", "300ms", "0.005m"):
        words = ["--count", "2", "--interval", value, "--json", "-"]
        assert call_tool(*words, server.url()).json()["interval_s"] == 0.3
    words = ("--duration", "1500ms", "--interval", "0.8", "--json", "-")
    document = call_tool(*words, server.url()).json()
    assert document["duration_s"] == 1.5 and len(document["runs"]) == 2, "2 s would be 3"


def test_a_duration_that_no_run_is_left_for_counts_as_stopped(call_tool, server, monkeypatch):
    """Ten thousand quick runs are over in less than a minute."""
    monkeypatch.setattr(tool, "MAX_COUNT", 20)
    result = call_tool("--duration", "60", "--interval", "0", server.url())
    assert result.code == 0 and len(server.requests) == 20
    assert re.search(r"^Stopped after 20 runs, \d+\.\d of 60 s\.$", result.out, re.MULTILINE)
