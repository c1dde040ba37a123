"""Find what is wrong with an installation, or with a server and its workers (--broker)."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator

import click

from evalq.evalcore import native
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.plugins import brief
from evalq.evalcore.errors import BrokerUnreachable, ConfigError, EvalqError, ServerRefused
from evalq.evalcore.version import __version__, code_version
from evalq.evalcore.views.markdown import printed
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import server_options
from evalq.producer.monitor.fleet import Finding, diagnose
from evalq.producer.servers import Servers, named_servers
from evalq.workers.processes.identity import host as here
from evalq.workers.processes.system import FORKS

_TRIPS, _TRIPS_A_CHUNK = 7, 7
"""Round trips to measure, and round trips that a chunk takes (docs/how-to/deploy.md)."""
_FAR_MS = 5.0
_NO_HEARTBEAT = 1
"""The exit code if the ledger has no heartbeat of this host; 3 means that the ledger did not answer."""


def _here() -> Iterator[Finding]:
    """This installation, without any server."""
    yield "ok", f"evalq {__version__}, code {code_version()}, Python {sys.version.split()[0]}"
    yield "ok", f"rows are read by {native.way()}"
    for name in plugins.names():
        try:
            evaluator = plugins.get(name)
            yield "ok", f"evaluator {name} {evaluator.version}"
        except (Exception, SystemExit) as error:  # a plug-in may raise anything when it is imported
            yield "wrong", f"evaluator {name} cannot be loaded: {brief(error)}"


def _embedded() -> Iterator[Finding]:
    from evalq.producer.local.processes import embedded_server

    if not FORKS:
        yield "note", "this system runs no workers and no server: commands evaluate in their own process"
        return
    try:
        with embedded_server():
            yield "ok", "the embedded server starts"
    except EvalqError as error:
        yield "wrong", str(error)


def _deployment(servers: Servers) -> Iterator[Finding]:
    """The servers that the URLs name, and the workers on them."""
    try:
        snapshot = servers.watch.snapshot()
    except (BrokerUnreachable, ServerRefused) as error:
        yield "wrong", str(error)
    else:
        if missing := servers.watch.missing():
            how = "stop renaming or disabling them in its configuration, or use another server"
            yield "wrong", f"the server does not know {', '.join(missing).upper()}, which runs need: {how}"
        yield _distance(servers)
        yield from diagnose(snapshot, code_version(), time.time(), servers.watch.codes(snapshot))


def _distance(servers: Servers) -> Finding:
    """How far away the ledger is: the median of several round trips."""
    trips = []
    for _ in range(_TRIPS):
        began = time.perf_counter()
        servers.watch.ping()
        trips.append(1000 * (time.perf_counter() - began))
    milliseconds = statistics.median(trips)
    text = f"a round trip to the ledger takes {milliseconds:.1f} ms"
    if milliseconds < _FAR_MS:
        return "ok", text
    return "note", (
        f"{text}: a worker's process waits about {_TRIPS_A_CHUNK * milliseconds / 1000:.2f} s for it with each chunk; "
        "use larger chunks (--chunk-size), or have workers near the server"
    )


def _check_worker(servers: Servers) -> int:
    """Print whether the ledger has a fresh heartbeat of a worker or caller of this host and code; the exit code.

    Each container is a host. Raises BrokerUnreachable, ConfigError.
    """
    if not servers.named:
        raise ConfigError("a worker's heartbeat is in its ledger: --broker URL, EVALQ_BROKER, or --settings FILE")
    host, code = here(), code_version()
    pools = servers.heartbeats.workers().values()
    living = {(facts.get("host"), facts.get("code"), facts.get("pid")) for facts in pools}
    living |= {(facts.host, facts.code, str(facts.pid)) for facts in servers.heartbeats.callers().values()}
    mine = sorted(str(pid) for where, version, pid in living if (where, version) == (host, code))
    if not mine:
        click.echo(f"wrong  the ledger hears no worker of code {code} on {host}; it hears {len(living)} others")
        return _NO_HEARTBEAT
    click.echo(f"ok     heard from {host}: process {', '.join(mine)}")
    return 0


def _doctor(invocation: Invocation, worker: bool) -> int:
    with invocation.servers() as servers:
        if worker:
            return _check_worker(servers)
        findings = list(_here())
        findings += _deployment(servers) if servers.named else _embedded()
    named = named_servers(servers.settings)
    for kind, text in findings:
        click.echo(printed(f"{kind:<6} {text.replace('--broker URL', named) if servers.named else text}"))
    return 3 if any(kind == "wrong" for kind, _ in findings) else 0


COMMAND = command(
    _doctor,
    *server_options(),
    click.Option(
        ["--worker"],
        is_flag=True,
        help="Only check whether the ledger hears a worker of this host; exit 0: yes, 1: no, 3: no answer.",
    ),
)
