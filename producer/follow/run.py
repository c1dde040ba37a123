"""A run that follows a log: its folder, and a report in it after every pass that found something."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator, Outcome, Params, Request
from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import ConfigError, NothingEvaluated, UsageError
from evalq.evalcore.fold import Fold, InputSummary
from evalq.evalcore.model.canonical import Json, as_written, canonical_json, digest
from evalq.evalcore.model.state import Tally
from evalq.evalcore.records.inputs import PACKED
from evalq.evalcore.version import code_version
from evalq.producer.folder.documents import request_fact
from evalq.producer.folder.files import RECORDS, RUNS
from evalq.producer.folder.job import new_run_id
from evalq.producer.folder.own_runs import named_paths, record
from evalq.producer.folder.run_folder import FolderTaken, RunFolder, remove_halves
from evalq.producer.follow.checkpoint import Checkpoint
from evalq.producer.follow.follower import SETTLING_SECONDS, Follower
from evalq.producer.follow.log_files import stands
from evalq.producer.outputs import write_report


class FollowPass(msgspec.Struct, frozen=True):
    """What one look at the log found.

    ``lines`` new lines of ``bytes`` bytes, ``read`` bytes taken from the disk for them (those of an unfinished line
    too) and ``again`` for a second time (to sort or to verify). The log is evaluated up to ``position``; behind it
    ``waiting`` bytes have no newline yet. ``report`` is None until something could be evaluated.
    """

    lines: int
    bytes: int
    read: int
    again: int
    position: int
    waiting: int
    report: dict[str, Json] | None = None


class FollowRun:
    """One log followed into one run folder, which the caller has claimed (`RunFolder.driving`)."""

    def __init__(
        self,
        folder: RunFolder,
        evaluator: Evaluator[Any, Any],
        params: Params,
        request: Request,
        stop: Callable[[], bool],
        settling: Sequence[float] = SETTLING_SECONDS,
    ) -> None:
        self.folder = folder
        self.request = request
        self.evaluator = evaluator
        self._params = params
        (self._given,) = request.inputs
        self._name = Path(self._given).name
        self._report: dict[str, Json] | None = None
        self._first = True
        remove_halves(folder.path)
        kept, self.begun_anew = self._kept()
        self._follower = Follower(evaluator, params, self._name, kept, folder.path, stop, settling)

    @property
    def found(self) -> bool:
        """Whether there is, or was, a log at all."""
        return self._follower.found

    def verify(self) -> None:
        """Read again all that was read. Raises InputChanged that names the lines that are others."""
        self._follower.verify()

    def run_pass(self) -> FollowPass:
        """Evaluate what is new and write the report of the whole; one that is there already is left alone.

        Raises InputError as an evaluation of the whole would, and InputChanged where a part of it is missing.
        """
        follower = self._follower
        position, line = follower.kept.position, follower.kept.line
        read, again = follower.read_bytes, follower.again_bytes
        if follower.read_on():
            self._report = self._written()
        elif self._first:
            # A killed process may have kept more than it reported.
            self._report = self.folder.report() if self._reported() else self._written()
        self._first = False
        kept = follower.kept
        return FollowPass(
            kept.line - line,
            kept.position - position,
            follower.read_bytes - read,
            follower.again_bytes - again,
            kept.position,
            follower.waiting,
            self._report,
        )

    def _kept(self) -> tuple[Checkpoint, bool]:
        """Where to go on from, and whether that is the log's beginning because the code is another."""
        fresh = Checkpoint(
            self.evaluator.name,
            self.evaluator.version,
            code_version(),
            self._params.model_dump(mode="json"),
            self._given,
        )
        kept = Checkpoint.load(self.folder.path)
        if kept is None:
            return fresh, False
        if not kept.same_question(fresh):
            raise UsageError(f"{self.folder.path}: this run follows another log, or with other parameters")
        if kept.same_code(fresh):
            return kept, False
        log = Path(os.path.realpath(self._given))
        if len(kept.segments) > 1 or (kept.segments and not stands(log, kept.segments[0])):
            raise ConfigError(
                f"{self.folder.path}: the log was rotated since evalq code {kept.code_version} began to follow it, and "
                f"this is {code_version()}; answers of different code are never mixed: begin anew in another --run-dir"
            )
        return fresh, True

    def _reported(self) -> bool:
        """Whether the folder has the report of just what was kept."""
        progress = self.folder.info().progress
        return self.folder.reported and progress.get("bytes") == self._follower.kept.position

    def _written(self) -> dict[str, Json] | None:
        follower = self._follower
        fold = Fold(self.evaluator, self._params, 1)
        wire = follower.state.to_wire()
        if wire == self.evaluator.State.zero().to_wire() and follower.kept.tally == Tally():
            return None  # a log may begin empty: what is waited for has not come yet
        # A copy, since finishing may change it.
        state = self.evaluator.State.from_wire(wire)
        fold.add(0, Outcome(state, follower.kept.tally))
        summary = InputSummary(self._name, self._given, follower.sha256)
        try:
            with TemporaryDirectory(prefix="scratch-", dir=self.folder.path) as scratch:
                found, lines = fold.finish([summary], lambda _: follower.reopen(), Path(scratch))
        except NothingEvaluated:
            return None
        # By way of its canonical form, as the report of any run.
        report: dict[str, Json] = as_written(found)
        self.folder.write(RECORDS, b"".join(line + b"\n" for line in lines))
        write_report(self.folder, self.evaluator, self.request, report)
        # Last, because it says which bytes the report is of: see `_reported`.
        self.folder.note(progress={"records": follower.kept.line - 1, "bytes": follower.kept.position})
        return report


def begin_following(
    evaluator: Evaluator[Any, Any],
    asked: Request,
    out: Path | None,
    facts: dict[str, Json],
) -> tuple[RunFolder, Params, Request]:
    """The folder of the run that follows the log asked for: the one it has, or a new one with ``facts`` noted in it.

    Without ``out`` its name is made of the log's path and the parameters, so that the same command resumes it. The
    run's id is not: other hosts have a log of that path too.
    Raises UsageError, ConfigError.
    """
    request = evaluator.command.request(asked)
    params = validate(evaluator.Params, request.params, f"{evaluator.name} parameters")
    log = _only_log(request)
    what = canonical_json([os.path.realpath(log), params.model_dump(mode="json")])
    path = out or RUNS / f"{evaluator.name}-follow-{digest(what)[:10]}"
    if (path / "run.json").is_file():
        folder = RunFolder(path)
        if not folder.info().follows:
            raise UsageError(f"{path}: the folder is another run's; name another with --run-dir")
        return folder, params, request
    started = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        with RunFolder.begin(path) as folder:
            folder.note(
                run=new_run_id(evaluator.name),
                evaluator=evaluator.name,
                state="following",
                started=started,
                follows=log,
                request=request_fact(request),
                **facts,
            )
            record(folder, named_paths(evaluator.name, request))
    except FolderTaken:
        raise UsageError(f"{path}: another evalq process is following this log") from None
    return folder, params, request


def _only_log(request: Request) -> str:
    """The log's path. Raises UsageError for what cannot be followed."""
    if len(request.inputs) != 1:
        raise UsageError(f"--follow takes one log, not {len(request.inputs)}")
    (log,) = request.inputs
    if log == "-":
        raise UsageError("--follow needs a file: write standard input to one (say, with tee -a), and follow that")
    if log.endswith(PACKED) or os.path.isdir(log):
        raise UsageError(f"--follow {log}: a packed file or a folder does not grow; name a plain log")
    return log
