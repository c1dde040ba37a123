"""Pause a run (the latest, if none is named): workers take no more of it until it is resumed."""

from __future__ import annotations

import click

from evalq.evalcore.errors import UsageError
from evalq.producer.invocation.finding import find
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import run_argument, server_options
from evalq.producer.lifecycle.cancel import close, close_elsewhere, note_ending, refuse_unnamed
from evalq.producer.servers import named_servers


def _pause(invocation: Invocation, run: str | None) -> None:
    with invocation.servers() as servers:
        if close_elsewhere(servers, run, "paused"):
            return
        folder = find(run)
        info = folder.info()
        state = close(servers, info.run, "paused")
    refuse_unnamed(servers, folder, state, "pause")
    if state is None:
        raise UsageError(
            "only a run on a server can be paused (--broker URL); press Ctrl-C where this one runs, then evalq resume"
        )
    if state != "paused":
        now = info.state if state == "gone" else state
        raise UsageError(f"{info.run} cannot be paused: it is {now}; {folder.next_step(info.state)}")
    note_ending(folder, "paused")
    again = f"evalq resume {folder.named(named_servers(servers.settings))}"
    click.echo(f"{info.run}: paused; resume it with: {again}", err=True)


COMMAND = command(_pause, run_argument(), *server_options())
