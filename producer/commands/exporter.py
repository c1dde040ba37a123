"""Serve a ledger and its fleet as Prometheus metrics.

They are on /metrics, with /healthz and /readyz, until SIGTERM.
"""

from __future__ import annotations

import click

from evalq.evalcore.errors import ConfigError, UsageError
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import option


def _exporter(invocation: Invocation, port: int, bind: str) -> None:
    from evalq.workers.exporter.server import Exporter
    from evalq.workers.processes.identity import log_to_stderr
    from evalq.workers.servers.connections import refuse_unusable
    from evalq.workers.settings import load_settings

    where = invocation.where
    chosen = load_settings(where.settings, broker=where.broker, ledger=where.ledger)
    if not chosen.broker:
        raise ConfigError("an exporter needs a broker: --broker URL, EVALQ_BROKER, or broker: in the settings file")
    if not chosen.ledger_address.is_redis:
        raise ConfigError(f"{chosen.ledger_address}: the ledger is on Redis or Valkey; give --ledger too")
    refuse_unusable(chosen.ledger_address, chosen)
    log_to_stderr()
    try:
        exporter = Exporter(chosen, bind, port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {bind}:{port}: {error.strerror or error}; choose --bind and --port"
        ) from error
    click.echo(f"metrics at http://{exporter.netloc}/metrics", err=True)
    exporter.serve()


COMMAND = command(
    _exporter,
    option("--broker", metavar="URL", help="Redis, Valkey or RabbitMQ with the queues."),
    option("--ledger", metavar="URL", help="Redis or Valkey of the ledger [the broker]."),
    option(
        "--port",
        type=click.IntRange(0, 65535),
        default=9808,
        show_default=True,
        help="Port to listen on; 0: a free one.",
    ),
    option("--bind", default="localhost", show_default=True, help="Address to listen on; '*': all of this machine's."),
    option("--settings", type=click.Path(dir_okay=False), metavar="FILE", help="A YAML file of settings."),
)
