"""Ports for servers of tests."""

from __future__ import annotations

import random
import socket
from collections import deque

_PORTS = range(20_000, 30_000)
"""Below those that systems give out by themselves, to listeners and to the near ends of connections."""
_reserved: deque[socket.socket] = deque()


def free_port() -> int:
    """A TCP port of loopback that nobody listens on, and that no other process gets from this function meanwhile.

    What this process keeps of it is the UDP port of the same number, for the next 256 calls.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        kept = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            with socket.socket() as probe:
                kept.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
        except OSError:
            kept.close()
            continue
        _reserved.append(kept)
        if len(_reserved) > 256:
            _reserved.popleft().close()
        return port
    raise AssertionError(f"no port from {_PORTS.start} to {_PORTS.stop} is free")
