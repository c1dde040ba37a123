"""Cancelling or pausing a run from another process: on its servers, and in its folder if that is here."""

from __future__ import annotations

import time

import click

from evalq.evalcore.errors import AlreadyRunning, UsageError
from evalq.evalcore.model.life import RunState, may_follow
from evalq.producer.folder.documents import RunInfo
from evalq.producer.folder.lock import LOCK, interrupt_holder
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.finding import elsewhere
from evalq.producer.servers import Servers

_DRIVER_SECONDS = 10.0
_ENDING_SECONDS = 30.0
_POLL_SECONDS = 0.1


def close(servers: Servers, run: str, state: RunState) -> str | None:
    """Close a run's calls and evaluation on the servers; returns its state then, None without servers.

    "gone" if the ledger does not know it.
    """
    if not servers.named:
        return None
    reason = f"by evalq {'cancel' if state == 'cancelled' else 'pause'}"
    # The ledger knows a live sweep by its calls, then by its evaluation: one of them may be gone.
    sweeps = [run, *servers.sweeps.judge_sweeps(run)]
    states = {*(servers.sweeps.close(each, state, reason) for each in sweeps), servers.runs.close(run, state, reason)}
    states -= {"gone"}
    return str(state if state in states else min(states, default="gone"))


def close_elsewhere(servers: Servers, run: str | None, state: RunState) -> bool:
    """Close a run whose folder is elsewhere; False if its folder is here. Raises UsageError."""
    if run is None or not elsewhere(run, servers):
        return False
    now = close(servers, run, state)
    if now != state:
        raise UsageError(f"{run} cannot be {state}: it is {now}; its folder is elsewhere")
    click.echo(f"{run}: {state}; its folder is elsewhere", err=True)
    return True


def refuse_unnamed(servers: Servers, folder: RunFolder, state: str | None, what: str) -> None:
    """Raise UsageError if the run is on another server than the named one: its workers would go on."""
    from evalq.producer.servers import named_servers

    server = folder.info().server
    if state in (None, "gone") and server not in ("", named_servers(servers.settings)):
        raise UsageError(
            f"{folder.path}: this run is on another server than the one named: evalq {what} {folder.named(server)} "
            "(where that is gone for good, remove the folder)"
        )


def note_ending(folder: RunFolder, state: RunState) -> bool:
    """Note the run's end in its folder, unless a process drives it: that one notes it after its next poll."""
    if not folder.begun:
        raise UsageError(f"{folder.path}: this run is gone: it ended on faulty input; fix that, and start it again")
    with folder.driving() as free:
        if free:
            folder.note(state=state)
    return free


def end_here(folder: RunFolder, info: RunInfo) -> None:
    """Cancel a run that the named servers do not know: end its drivers on this host, one after the other.

    A command that waits for a driver would drive next.
    """
    with folder.cancelling():
        _end_drivers(folder, info)


def _end_drivers(folder: RunFolder, info: RunInfo) -> None:
    deadline = time.monotonic() + _ENDING_SECONDS
    sent: set[str] = set()
    while not note_ending(folder, "cancelled"):
        by = folder.driver()
        # Only for a run without a server: other drivers see it in their ledger.
        mine = not info.server and may_follow("cancelled", info.state)
        if by and by not in sent and not (mine and interrupt_holder(folder.path / LOCK)):
            raise AlreadyRunning(info.run, f"{by}: end that one with Ctrl-C, or name its server with --broker URL")
        sent.add(by)
        if time.monotonic() > deadline:
            raise AlreadyRunning(info.run, f"{by}: it does not end")
        time.sleep(_POLL_SECONDS)


def await_driver(folder: RunFolder) -> None:
    """Wait until the run's driver sees at its next poll that it was cancelled, and notes it in the folder."""
    deadline = time.monotonic() + _DRIVER_SECONDS
    while folder.driver() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    with folder.driving() as free:
        if free and folder.begun and folder.info().state not in ("done", "cancelled"):
            folder.note(state="cancelled")  # it ended for another reason before its poll
