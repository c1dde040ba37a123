"""Hosts on one machine: that each reaches the server's, and that a cut takes one away and no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.chaos import network
from tests.chaos.network import HUB, Network
from tests.integration.harness import wait_until
from tests.integration.ports import free_port

HOSTS = ("p", "w0", "w1", "w2")
LISTEN = "import socket, sys; s = socket.create_server((sys.argv[1], int(sys.argv[2])))\nwhile True: s.accept()"
REACH = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"


def _reaching(net: Network, port: int) -> set[str]:
    words = (sys.executable, "-S", "-c", REACH, net.address, str(port))
    tried = {host: subprocess.Popen([*net.prefix(host), *words], stderr=subprocess.DEVNULL) for host in HOSTS}
    return {host for host, process in tried.items() if process.wait() == 0}


@pytest.mark.skipif(bool(network.unavailable()), reason=f"here: {network.unavailable()}")
def test_a_cut_takes_one_host_away_and_no_other() -> None:
    """All reach the server's host; without the cut one the others do; healed, all do."""
    port = free_port()
    with network.network("cut", HOSTS) as net:
        command = [*net.prefix(HUB), sys.executable, "-S", "-c", LISTEN, net.address, str(port)]
        listener = subprocess.Popen(command)
        try:
            wait_until(lambda: _reaching(net, port), "somebody reaches the server's host")
            assert _reaching(net, port) == set(HOSTS)
            net.cut("w1")
            assert _reaching(net, port) == set(HOSTS) - {"w1"}
            net.heal("w1")
            assert _reaching(net, port) == set(HOSTS)
        finally:
            listener.kill()
            listener.wait()
