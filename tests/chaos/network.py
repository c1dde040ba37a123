"""Several hosts on one machine: network namespaces whose links meet at a bridge beside the server.

A cut host's packets are dropped, not refused: its link leaves the bridge while both ends stay up, and addresses are
known beforehand, so nobody is told that the other side is away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

HUB = "hub"
_PREFIX = "evq"
_NET = "10.213.7"
_BRIDGE = "02:65:76:71:00:01"


def unavailable() -> str:
    """Why there can be no namespaces here; empty when there can."""
    if shutil.which("ip") is None:
        return "network namespaces need the program ip (Debian: iproute2)"
    return "" if os.geteuid() == 0 else "network namespaces need root"


class Network:
    """Named hosts; the server's is HUB."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._hosts: list[str] = []
        self.address = f"{_NET}.1"

    def prefix(self, host: str) -> list[str]:
        """What a command is preceded by to run on ``host``."""
        return ["ip", "netns", "exec", self._namespace(host)]

    def open(self, hosts: Sequence[str]) -> None:
        """Make the hub and ``hosts``, all of them linked."""
        hub = self._namespace(HUB)
        self._ip("netns", "add", hub)
        # An address of its own: else it has that of one of its ports, another one with each port that comes or goes.
        self._ip("-n", hub, "link", "add", "br0", "address", _BRIDGE, "type", "bridge")
        self._ip("-n", hub, "addr", "add", f"{self.address}/24", "dev", "br0")
        for device in ("lo", "br0"):
            self._ip("-n", hub, "link", "set", device, "up")
        for host in hosts:
            self._link(host, hub)

    def cut(self, host: str) -> None:
        """From now on every packet from and to ``host`` is lost."""
        self._ip("-n", self._namespace(HUB), "link", "set", self._port(host), "nomaster")

    def heal(self, host: str) -> None:
        """Packets arrive again."""
        self._ip("-n", self._namespace(HUB), "link", "set", self._port(host), "master", "br0")

    def close(self) -> None:
        """Remove the namespaces; links and addresses go with them."""
        for host in (*self._hosts, HUB):
            subprocess.run(["ip", "netns", "del", self._namespace(host)], check=False, stderr=subprocess.DEVNULL)

    def _link(self, host: str, hub: str) -> None:
        self._hosts.append(host)
        here, port, number = self._namespace(host), self._port(host), len(self._hosts) + 1
        self._ip("netns", "add", here)
        self._ip("link", "add", "name", "e0", "netns", here, "type", "veth", "peer", "name", port, "netns", hub)
        self._ip("-n", here, "addr", "add", f"{_NET}.{number}/24", "dev", "e0")
        self._ip("-n", hub, "link", "set", port, "master", "br0")
        for space, device in ((hub, port), (here, "lo"), (here, "e0")):
            self._ip("-n", space, "link", "set", device, "up")
        # Known addresses: without them a cut host would be told "no route" when nobody answers who has the address.
        self._know(here, self.address, "e0", self._mac(hub, "br0"))
        self._know(hub, f"{_NET}.{number}", "br0", self._mac(here, "e0"))

    def _know(self, space: str, address: str, device: str, mac: str) -> None:
        self._ip("-n", space, "neigh", "replace", address, "lladdr", mac, "dev", device, "nud", "permanent")

    def _mac(self, space: str, device: str) -> str:
        words = self._ip("-n", space, "-o", "link", "show", "dev", device).split()
        return words[words.index("link/ether") + 1]

    def _namespace(self, host: str) -> str:
        return f"{_PREFIX}-{os.getpid()}-{self._tag}-{host}"

    def _port(self, host: str) -> str:
        return f"to-{host}"

    def _ip(self, *args: str) -> str:
        done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"ip {' '.join(args)}: {done.stderr}"
        return done.stdout


@contextlib.contextmanager
def network(tag: str, hosts: Sequence[str]) -> Iterator[Network]:
    """Hosts for the length of a block; ``tag`` tells those of one process apart."""
    _sweep()
    made = Network(tag)
    try:
        made.open(hosts)
        yield made
    finally:
        made.close()


def _sweep() -> None:
    """Remove namespaces of driver processes that were killed before they could."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for name in [line.split()[0] for line in listed.splitlines() if line.startswith(_PREFIX + "-")]:
        pid = name.split("-")[1]
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
