"""Redirects: which are followed, what the next request is, what is not sent on, and where a chain ends."""

from __future__ import annotations

import pytest

from checks import flat
from servers import Reply, http_server, redirect


def follow(call_tool, server, *arguments, path="/start"):
    result = call_tool("-L", "--json", "-", *arguments, server.url(path))
    return result, result.json()["steps"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_when_wanted_and_has_a_location(call_tool, status):
    routes = {"/start": redirect("/end", status), "/end": Reply(body=b"end"), "/bare": Reply(status)}
    with http_server(routes) as server:
        result = call_tool("--json", "-", server.url("/start"))
        [step] = result.json()["steps"]
        assert (result.code, step["response"]["status"], step["response"]["location"]) == (0, status, "/end")
        result, [step] = follow(call_tool, server, path="/bare")
        assert (result.code, step["response"]["status"], step["response"]["location"]) == (0, status, None)
        assert [request.target for request in server.requests] == ["/start", "/bare"]
        result, steps = follow(call_tool, server)
        document = result.json()
        assert result.code == 0
        assert [step["response"]["status"] for step in steps] == [status, 200]
        assert document["initial_url"] == server.url("/start")
        assert document["summary"]["final_url"] == server.url("/end")
        assert (document["summary"]["final_status"], document["summary"]["final_bytes"]) == (200, 3)
        assert server.accepted == 4, "every step makes its own connection"


def test_any_other_status_with_a_location_is_final(call_tool):
    for status in (300, 304, 201, 404):
        with http_server({"/start": redirect("/end", status)}) as server:
            result, [step] = follow(call_tool, server)
            assert (result.code, step["response"]["status"]) == (0, status)


METHODS = ("GET", "POST", "PUT", "HEAD")
CHANGED = {(303, method) for method in METHODS if method != "HEAD"} | {(301, "POST"), (302, "POST")}
CONTENT = {"Content-Type": "text/x-test", "Content-Language": "de", "Content-Encoding": "identity"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_method_after_a_redirect_and_a_body_repeated_or_dropped_with_its_fields(call_tool, status):
    fields = [word for field in CONTENT.items() for word in ("-H", ": ".join(field))]
    for method in METHODS:
        with http_server({"/start": redirect("/end", status), "/end": Reply()}) as server:
            words = ["-X", method, "-d", "a body", *fields, "-H", "X-Kept: yes"]
            result, steps = follow(call_tool, server, *words)
            first, second = server.requests
        assert ("with a request body" in result.err) == (method in ("GET", "HEAD"))
        changed = (status, method) in CHANGED
        expected = [method, "GET" if changed else method]
        assert [first.method, second.method] == [step["request"]["method"] for step in steps] == expected
        dropped = changed or status == 303
        assert (first.body, second.body) == (b"a body", b"" if dropped else b"a body")
        for name, value in CONTENT.items():
            assert second.values(name) == ([] if dropped else [value])
        assert second.values("Content-Length") in ([[], ["0"]] if dropped else [["6"]])
        assert second.values("X-Kept") == ["yes"]


SECRETS = ["Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Auth-Token", "X-OTHER-TOKEN"]
GIVEN = [word for name in SECRETS for word in ("-H", f"{name}: hunter2")]
GIVEN += ["-H", "X-Plain: told", "-H", "Host: name.test"]


@pytest.mark.parametrize("status", [302, 307])
def test_a_secret_and_a_given_host_stay_on_their_origin_and_do_not_come_back(call_tool, status):
    routes = {
        "/start": redirect("/end", status),
        "/end": lambda _: redirect(other.url("/away"), status),
        "/away": lambda _: redirect(server.url("/back"), status),
        "/back": Reply(),
    }
    with http_server(routes) as other, http_server(routes) as server:
        assert follow(call_tool, server, *GIVEN)[0].code == 0
        start, end, back = server.requests
        [away] = other.requests
    for request, secret, host in (
        (start, ["hunter2"], "name.test"),
        (end, ["hunter2"], "name.test"),
        (away, [], other.authority),
        (back, [], server.authority),
    ):
        assert all(request.values(name) == secret for name in SECRETS)
        assert (request.values("Host"), request.values("X-Plain")) == ([host], ["told"])


def test_a_redirect_that_forgets_tls_is_explained(call_tool, tls):
    note = "the redirect leads from https to http on the same port: the server does not know that"
    for place, told in (
        ("HTTP://Localhost:{port}/in", True),
        ("http://localhost:{port}1/", False),
        ("https://localhost:{port}/", False),
    ):
        with http_server({"/": lambda _, to=place: redirect(to.format(port=server.port))}, tls=tls) as server:
            result = call_tool("--compact", "-k", server.url("/", "localhost"))
        assert result.code == 0 and (note in result.err) == told


def setting(location, *cookies):
    return redirect(location)._replace(
        headers=[("Location", location), *(("Set-Cookie", c) for c in cookies)]
    )


LONG, PAST = "x" * 4096, "Expires=Wed, 21 Oct 2015 07:28:00 GMT"


@pytest.mark.parametrize(
    ("cookies", "given", "sent"),
    [
        (["id=1; Path=/", "b=2"], [], ["id=1; b=2"]),
        (["id=1"], ["-b", "id=mine"], ["id=1"]),
        (["id=1; Max-Age=9"], ["-b", "a=b; id=mine;c=d"], ["a=b; c=d; id=1"]),
        (["id=; Max-Age=0"], ["-H", "Cookie: x; id=mine"], ["x"]),
        (["id=; expires=Thu, 01-Jan-1970 00:00:01 GMT"], ["-b", "id=mine"], []),
        (["id=1; Domain=other.test", "ID=2"], ["-b", "id=mine"], ["id=mine; ID=2"]),
        ([], ["-b", "id=mine;b=2"], ["id=mine;b=2"]),
        (["id=1", "id=2; path=", "id=3;Path=/elsewhere"], [], ["id=3"]),
        (["id=1", "b=2; Path=/", "id=; Max-Age=0"], [], ["b=2"]),
        (["id=1; Max-Age", "b=2; Max-Age=-1", f"c=3; Max-Age={'9' * 400}"], [], ["id=1; c=3"]),
        ([f"id=1; {PAST.replace(' Oct ', '-Oct-')}; Max-Age=1"], [], ["id=1"]),
        ([f"id=1; {PAST}", f"b=2; {PAST.replace('2015', '5000')}"], [], ["b=2"]),
        (["id=1; Expires=0", "b=2; Expires=Wed, 99 Oct 2015 07:28:00 GMT"], [], ["id=1; b=2"]),
        (["id=1; Secure", "b=2; Domain=other.test", "c=3; Domain=0.0.1", "d=4; SECURE=x"], [], []),
        (["id=1; Domain=127.0.0.1", "=3", "4", ";", "a=b=c"], [], ["id=1; a=b=c"]),
        ([f"id=1; x={LONG}", f"id={LONG}", f"b={LONG[4:]}", "a\tb=1"], [], [f"b={LONG[4:]}; a\tb=1"]),
        ([f"{n}=1" for n in range(120)], [], ["; ".join(f"{n}=1" for n in range(100))]),
        (["\xff=\xfe"], [], ["\xff=\xfe"]),
    ],
)
def test_the_cookies_that_a_step_sets_go_back_in_place_of_those_that_were_given(
    call_tool, cookies, given, sent
):
    with http_server({"/start": setting("/end", *cookies), "/end": Reply()}) as server:
        assert follow(call_tool, server, *given)[0].code == 0
        first, second = server.requests
    assert first.values("Cookie") == [given[1].removeprefix("Cookie: ")] if given else [[]]
    assert second.values("Cookie") == sent


def test_a_cookie_goes_to_the_hosts_of_its_domain_and_over_tls_where_it_says_so(call_tool, tls):
    def place(name, path):
        return server.url(path, host=name)

    hop = ["id=1", "all=2; Domain=.A.test", "tld=3; Domain=test", "down=4; Domain=c.b.a.test"]
    safe = ["safe=5; Secure", "wide=6; Secure; Domain=a.test", "own=7; Domain=b.a.test"]
    routes = {
        "/start": lambda _: setting(place("a.test", "/there"), *hop, *safe),
        "/there": lambda _: setting(place("b.a.test", "/end"), "at=a", "all=8; Domain=a.test"),
        "/end": lambda _: setting(plain.url("/plain", host="b.a.test"), "safe=9; Secure", "mine="),
        "/plain": Reply(),
    }
    with http_server(routes, tls=tls) as server, http_server(routes) as plain:
        names = [(name, at.port) for name in ("a.test", "b.a.test") for at in (server, plain)]
        options = [word for name, port in names for word in ("--resolve", f"{name}:{port}:127.0.0.1")]
        words = ["-L", "-k", "--compact", "-b", "mine=0", *options, place("b.a.test", "/start")]
        assert call_tool(*words).code == 0
        assert [request.values("Cookie") for request in [*server.requests, *plain.requests]] == [
            ["mine=0"],
            ["all=2; wide=6"],
            ["id=1; all=8; safe=5; wide=6; own=7"],
            ["id=1; all=8; own=7; mine="],
        ]


FAR = f"/{'x' * 300}/"


def countdown(request):
    """Redirect FAR + n to n - 1; what comes at 0 leads no further."""
    left = int(request.target[len(FAR) :])
    return redirect(f"{left - 1}") if left else Reply(302)


def test_up_to_ten_redirects_are_followed(call_tool):
    with http_server({f"{FAR}{number}": countdown for number in range(12)}) as server:
        for redirects in (1, 10):
            result, steps = follow(call_tool, server, path=f"{FAR}{redirects}")
            assert (result.code, len(steps)) == (0, redirects + 1)
            assert steps[-1]["response"]["location"] is None
        for count, some in ((1, ""), (2, " in 2 of 2 runs")):
            before = server.accepted
            words = ("--count", count, "--interval", 0, server.url(f"{FAR}11"))
            result = call_tool("-L", "--compact", *words)
            assert (result.code, server.accepted - before) == (47, 11 * count)
            said = f"topped after 10 redirects{some}; the last step redirects again (exit 47)"
            assert result.err == f"httphases: warning: s{said}\n", "URLs that begin alike are no loop"
            assert call_tool("-s", "-L", *words).err == f"httphases: s{said}\n"
            drawn = call_tool("-L", *words)
            assert drawn.err == "" and "redirects took" not in flat(drawn.out.rpartition("in all")[2])
            assert flat(drawn.out).endswith(f"S{said}")


def test_a_loop_is_named_by_the_first_step_that_comes_again(call_tool):
    """It is one of method and URL; that each redirect takes its time makes a finding too."""
    routes = {"/start": redirect("/a"), "/a": redirect("/b"), "/b": redirect("/a")._replace(wait=0.1)}
    with http_server(routes) as server:
        result, steps = follow(call_tool, server)
    words = "; step 4 asks what step 2 asked: a loop"
    assert (result.code, len(steps), steps[-1]["error"]) == (47, 11, None)
    summary = result.json()["summary"]
    assert (summary["errors"], summary["final_status"]) == (0, 302) and words in flat(result.err)
    [found] = [each["text"] for each in summary["findings"] if each["id"] == "redirects"]
    assert found.endswith(words)


def test_a_location_that_cannot_be_followed_is_a_failed_step_of_its_own(call_tool):
    far = Reply(302, headers=[*[("X", "x" * 30_000)] * 4, ("Location", "mailto:a@example.test")])
    with http_server({"/start": redirect("mailto:someone@example.test"), "/far": far}) as server:
        result, [_, second] = follow(call_tool, server, path="/far")
        assert (result.code, second["error"]["kind"]) == (75, "redirect")
        assert "of the header fields only the first 64.0 KB are shown" in flat(result.err)
        result, [first, second] = follow(call_tool, server)
        assert result.code == 75
        assert (first["error"], first["response"]["status"]) == (None, 302)
        assert (second["error"]["kind"], second["response"]) == ("redirect", None)
        assert second["network"]["attempts"] == []
        assert (result.json()["summary"]["errors"], server.accepted) == (1, 2)
        for mode in ("--metrics-only", "--compact"):
            first, second = call_tool("-L", mode, server.url("/start")).out.splitlines()
            assert "302" in first and "redirect" in second
        assert call_tool("--compact", server.url("/start")).code == 0, "nobody wanted to follow it"


def test_of_a_megabyte_of_urls_in_a_field_the_beginning_is_shown_and_masked(call_tool):
    """With every credential that begins in it."""
    token = "T0kenOfTheUser-"
    links = "".join(f"<http://me:pw@a.test/?token={number:05d}{token}>, " for number in range(20_000))
    headers = [("Location", "/start"), ("Link", links), ("X-Other", "x")]
    with http_server({"/start": Reply(302, headers=headers)}) as server:
        result, steps = follow(call_tool, server, "-H", f"Authorization: Bearer {token}")
    shown = {field["name"]: field["value"] for field in steps[0]["response"]["headers"]}
    assert shown["Link"].startswith("<http://***@a.test/?token=***>, <http") and len(shown["Link"]) < 2_100
    assert shown["X-Other"] == "x" and token not in result.out
