"""No local port left for a destination."""

from __future__ import annotations

import contextlib
import socket

from checks import flat
from laboratory import on_a_path
from paths import FAR


@on_a_path
def test_ports_that_are_used_up_are_the_first_thing_to_look_at(lab):
    lab.start(0.0005, ipv4__ip_local_port_range="40000 40039")
    url = lab.http()
    port = int(url.rpartition(":")[2])

    def use_up():
        held = contextlib.ExitStack()
        with contextlib.suppress(OSError):
            while True:
                held.enter_context(socket.create_connection((FAR, port), 10))
        return held

    with lab.way.call(use_up):
        shown = lab.run_tool(url + "/", within=lab.way.near)
    assert shown.code == 75 and "cannot assign requested address" in flat(shown.out)
    assert "No local port is free (`ss -tan` lists them)" in flat(shown.out)
