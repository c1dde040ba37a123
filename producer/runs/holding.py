"""The folder's side of a command: holding it while a run is driven, and saying there how the run was left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from evalq.evalcore.errors import (
    Cancelled,
    Driven,
    EvalqError,
    InfrastructureError,
    Interrupted,
    StorageError,
    UsageError,
    resource_shortage,
)
from evalq.evalcore.model.life import RunState, may_follow
from evalq.producer.driving.interrupts import Interrupts
from evalq.producer.folder.own_runs import refuse_paths
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.runs.backend import Backend

__all__ = ["driving", "halted", "left", "refuse_named", "refuse_over", "unwritten"]


@contextlib.contextmanager
def driving(folder: RunFolder, backend: Backend) -> Iterator[Interrupts]:
    """Hold ``folder`` for the length of a block, in which interrupts are counted.

    Raises Driven, StorageError where it cannot be written, and InfrastructureError where memory or threads are lacking.
    """
    interrupts = Interrupts()
    try:
        # Counted around the folder: a second interrupt must not break off letting go of it.
        with interrupts.counted(), folder.driving() as mine:
            if not mine:
                raise Driven(str(folder.path), folder.driver() or "another process")
            refuse_named(folder, backend)
            yield interrupts
    except OSError as error:
        raise unwritten(error, folder, f"resume with: {backend.resume(folder)}") from error
    except (MemoryError, RuntimeError) as error:
        if lack := resource_shortage(error):
            raise InfrastructureError(f"{lack}, then resume with: {backend.resume(folder)}") from error
        raise


def refuse_named(folder: RunFolder, backend: Backend) -> None:
    """Raise UsageError where the run in ``folder`` names a file that a run folder may not choose on this machine."""
    if folder.begun:
        refuse_paths(folder, backend.settings.roots)


def unwritten(error: OSError, folder: RunFolder, then: str) -> StorageError:
    """Why a run cannot go on in its folder, and what to do ``then``."""
    if not folder.path.is_dir():
        gone = "the run folder"
    elif isinstance(error, FileNotFoundError) and not folder.begun:
        gone = "its run.json"
    else:
        return StorageError.of(error, folder.path, then)
    return StorageError(
        f"{folder.path}: {gone} was moved or removed while the run was under way; put it back, then {then}"
    )


def refuse_over(folder: RunFolder) -> None:
    """Raise for a run that nothing can follow: UsageError for one with its report, Cancelled."""
    state = folder.info().state
    if state == "done":
        raise UsageError(f"{folder.path}: this run is done; {folder.next_step(state)}")
    if state == "cancelled":
        raise Cancelled(f"{folder.path}: this run was cancelled for good; {folder.next_step(state)}")


def halted(folder: RunFolder, backend: Backend) -> tuple[RunState, EvalqError]:
    """How a run stands after Ctrl-C or SIGTERM, and what ends its command: somebody may be cancelling it for good."""
    if not folder.being_cancelled():
        return "interrupted", Interrupted(backend.resume(folder))
    run = folder.info().run
    return "cancelled", Cancelled(f"run {run} was cancelled by evalq cancel; what was computed is in {folder.path}")


def left(folder: RunFolder, state: RunState) -> None:
    """Say in run.json how a run was left, as far as the disk lets us; one that was not taken up is as it was."""
    with contextlib.suppress(OSError, EvalqError):
        if may_follow(state, folder.info().state):
            folder.note(state=state)
