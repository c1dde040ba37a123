"""Putting a run's answer into the ledger's history, where there is a ledger that outlives the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.model.canonical import Json
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.servers import Servers

if TYPE_CHECKING:
    from evalq.workers.ledger.history import Entry

__all__ = ["remember", "tags_of", "target_of"]


def remember(
    folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json], seconds: float, servers: Servers
) -> str:
    """Add the run to its history, or replace what it has there. Returns why it could not be; empty where it was.

    A run without a server of its own choice (inline, embedded) has no history. One that cannot be written is no
    reason to fail a run whose report is there.
    """
    if not servers.named:
        return ""
    import redis  # not before it is needed: a run without a server never does

    recent = [metric.name for metric in evaluator.views.metrics if metric.recent]
    try:
        servers.history.record(_entry(folder, evaluator, report, seconds), recent)
    except (redis.RedisError, EvalqError, OSError) as error:
        return f"this run is not in the history of its suite: {error}"
    return ""


def _entry(folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json], seconds: float) -> Entry:
    from evalq.workers.ledger.history import HistoryKey, entry_of

    info = folder.info()
    place = HistoryKey(evaluator.name, info.suite, target_of(folder))
    return entry_of(evaluator, info.run, place, report, seconds, tags_of(folder))


def target_of(folder: RunFolder) -> str:
    """The agent that a run's live calls go to; empty for recorded outputs."""
    return folder.info().target


def tags_of(folder: RunFolder) -> dict[str, str]:
    """A run's notes (``--tag``)."""
    return folder.info().tags
