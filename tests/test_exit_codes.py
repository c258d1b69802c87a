"""The exit codes and their order: of several conditions the one with the lowest priority number decides."""

from __future__ import annotations

import re

import pytest

from servers import Reply, http_server, redirect


@pytest.fixture
def site():
    """Serve a page, errors, a loop, and what breaks off."""

    def broken(request):
        raise ConnectionAbortedError  # the connection ends without an answer

    routes = {
        "/": Reply(body=b"fine"),
        "/400": Reply(400),
        "/404": Reply(404),
        "/999": Reply(999),
        "/399": Reply(399),
        "/loop": redirect("/loop"),
        "/to-404": redirect("/404"),
        "/to-nothing": redirect("/broken"),
        "/broken": broken,
        "/cut": Reply(500, b"half", [("Content-Length", "10")]),
    }
    with http_server(routes) as server:
        yield server


VIOLATED = ["--slo", "total=0.001"]
UNWRITABLE = ["--har", "/nowhere/at/all.json"]
FULL_ERR = ["sh", "-c", '"$@" 2>/dev/full', "sh"]


def test_with_fail_a_status_from_400_on_is_22_and_the_final_response_counts(call_tool, site):
    for path, code in (("/", 0), ("/399", 0), ("/400", 22), ("/999", 22), ("/to-404", 0)):
        assert call_tool("-f", "--compact", site.url(path)).code == code
    assert call_tool("--fail", "-L", "--compact", site.url("/to-404")).code == 22


@pytest.mark.parametrize(
    ("path", "options", "code"),
    [
        ("/", [], 0),
        ("/loop", ["-L", *UNWRITABLE, "--fail", *VIOLATED], 47),
        ("/cut", ["-f", *VIOLATED, "-m", "1"], 75),
        ("/to-nothing", ["-L", *UNWRITABLE, "--fail", *VIOLATED], 75),
        ("/404", ["--fail", "--har", "/dev/full", *VIOLATED], 73),
        ("/404", ["--fail", *VIOLATED], 22),
        ("/404", VIOLATED, 4),
        ("/404", ["--fail", *UNWRITABLE, "--slo", "x=1"], 64),
    ],
)
def test_of_several_conditions_the_first_in_order_decides_and_what_was_measured_is_exported(
    call_tool, site, path, options, code, tmp_path
):
    result = call_tool("--compact", "--json", tmp_path / "out", *options, site.url(path))
    said = result.err  # what it says of each condition is proved elsewhere
    assert result.code == code, said
    assert (tmp_path / "out").exists() == (code != 64)
    if code != 64:
        assert result.json(tmp_path / "out")["summary"]["errors"] == (code == 75)


def test_an_internal_error_is_one_line_and_70(run_tool, server, tmp_path):
    """By what Python runs first, as is something before it that Python can only ignore."""
    (tmp_path / "sitecustomize.py").write_text(
        "import urllib.parse\n"
        "class Ignored:\n    def __del__(self):\n        raise KeyError\n"
        "def broken(self, *args, **kwargs):\n    Ignored()\n    raise LookupError('not thought of')\n"
        "urllib.parse.quote_from_bytes = broken\n"
    )
    env = {"PYTHONPATH": str(tmp_path)}
    result = run_tool("--compact", server.url(), env=env)
    assert (result.code, result.out) == (70, "")
    said = r"httphases: internal error: LookupError at sitecustomize\.py:7, parse\.py:\d+(, tool\.py:\d+)+\n"
    assert re.fullmatch(said, result.err)
    assert run_tool("--compact", server.url(), env=env, within=FULL_ERR).code == 70
