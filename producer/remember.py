"""Putting a finished run into the ledger's history, where there is a ledger that outlives the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalcore.canonical import Json
from evalcore.errors import EvalqError
from producer.job import Job
from workers.settings import Settings

if TYPE_CHECKING:
    from workers.history import Entry

__all__ = ["remember", "tags_of", "target_of"]


def remember(job: Job, report: dict[str, Json], seconds: float, settings: Settings) -> str:
    """Add the run to its history, once however often it is finished. Returns why it could not be, or nothing.

    A run without a server of its own choice (inline, embedded) has no history. One that cannot be written is no
    reason to fail a run whose report is there.
    """
    if not settings.broker:
        return ""
    import redis  # not before it is needed: a command imports it while its server and workers start

    from workers.connect import connect
    from workers.history import History

    recent = [metric.name for metric in job.evaluator.metrics if metric.recent]
    try:
        client = connect(settings.ledger_url, settings)
        try:
            History(client, settings).record(_entry(job, report, seconds), recent)
        finally:
            client.close()
    except (redis.RedisError, EvalqError, OSError) as error:
        return f"this run is not in the history of its suite: {error}"
    return ""


def _entry(job: Job, report: dict[str, Json], seconds: float) -> Entry:
    from workers.history import Place, entry_of

    place = Place(job.header.evaluator, job.header.suite, target_of(job))
    return entry_of(job.evaluator, job.run, place, report, seconds, tags_of(job))


def target_of(job: Job) -> str:
    """The agent that its live calls go to; empty for recorded outputs."""
    return str(job.folder.info().get("target") or "")


def tags_of(job: Job) -> dict[str, str]:
    """Its notes (``--tag``)."""
    return dict(job.folder.info().get("tags") or {})
