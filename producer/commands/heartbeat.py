"""`evalq doctor --worker`: what a container's health check asks."""

from __future__ import annotations

import socket
from typing import Any

import click

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.version import code_version

__all__ = ["SILENT", "worker_heard"]

SILENT = 1
"""The exit code of a check that reached the ledger and found no heartbeat; 3 is a ledger that cannot be asked."""


def worker_heard(settings: Any) -> int:
    """Say whether the ledger has a fresh heartbeat of a worker or caller of this host and code; 0 or `SILENT`.

    A container is a host of its own, so there it is the one worker's. Raises BrokerUnreachable, ConfigError.
    """
    from evalq.workers.connections import connect
    from evalq.workers.ledger.heartbeats import Heartbeats

    if not settings.ledger_url:
        raise ConfigError("a worker's heartbeat is in its ledger: --broker URL, EVALQ_BROKER, or --settings FILE")
    host, code = socket.gethostname(), code_version()
    client = connect(settings.ledger_url, settings)
    register = Heartbeats(client)
    pools = register.workers().values()
    living = {(facts.get("host"), facts.get("code"), facts.get("pid")) for facts in pools}
    living |= {(facts.host, facts.code, str(facts.pid)) for facts in register.callers().values()}
    mine = sorted(str(pid) for where, version, pid in living if (where, version) == (host, code))
    if not mine:
        click.echo(f"wrong  the ledger hears no worker of code {code} on {host}; it hears {len(living)} others")
        return SILENT
    click.echo(f"ok     heard from {host}: process {', '.join(mine)}")
    return 0
