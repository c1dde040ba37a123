"""Trying again what has no result: the chunks with dead records of a finished run, and only those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalq.evalcore.contract.partial import decode
from evalq.evalcore.errors import UsageError
from evalq.producer.folder.job import Job
from evalq.producer.folder.journal import KeptAnswers, answers
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs import records_of
from evalq.producer.sweeps.further import further_sweeps
from evalq.producer.sweeps.sweep import Sweep
from evalq.producer.sweeps.sweep_folder import holds_sweep

if TYPE_CHECKING:
    from evalq.producer.runs.backend import Backend

__all__ = ["begin_retry", "refuse_uncallable"]


def refuse_uncallable(folder: RunFolder, backend: Backend) -> None:
    """Raise UsageError, with the run as it was, where a target that is asked about its outputs cannot be called any
    more, or has other settings than those of its replies.
    """
    if holds_sweep(folder):
        from evalq.producer.sweeps.execute import with_targets
        from evalq.producer.sweeps.stage_targets import refuse_uncalled

        backend = with_targets(backend, folder)
        refuse_uncalled(Sweep.load(folder), backend, backend)


def begin_retry(folder: RunFolder) -> None:
    """Make a finished run one that goes on, without the outputs of failed calls and the answers of chunks that have
    dead records.

    May be repeated after a crash. Raises UsageError for a run that is not done or has neither.
    """
    info = folder.info()
    if info.state not in ("done", "retrying"):
        raise UsageError(f"{folder.path}: this run is {info.state}; {folder.next_step(info.state)}")
    if holds_sweep(folder):
        sweep = Sweep.load(folder)
        for each in (sweep, *further_sweeps(folder)):
            each.recorded.drop(each.recorded.failed())
        folder.drop_working_files()
        folder.note(state="retrying")
        return
    counts = folder.report()["records"]
    if not counts["dead"]:
        more = f": its {counts['errors']} error(s) are in what was read, and stay" if counts.get("errors") else ""
        raise UsageError(f"{folder.path}: no call failed and no record is dead; there is nothing to retry{more}")
    records_of(folder)  # raises where they are elsewhere
    job = Job.load(folder)
    dead = info.retry or {
        str(seq): count for seq, answer in answers(folder) if (count := decode(answer, job.evaluator).tally.dead)
    }
    # Before they are set aside: whoever goes on after a crash no longer finds their counts among the answers.
    folder.note(retry=dead)
    KeptAnswers.set_aside(folder, {int(seq) for seq in dead})
    folder.note(state="retrying")
