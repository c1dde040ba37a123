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
    """The result of one pass over the log.

    ``lines`` new lines of ``bytes`` bytes, ``read`` bytes taken from the disk for them (those of an unfinished line
    too) and ``again`` for a second time (to sort or to verify). The log is evaluated up to ``position``;
    ``waiting`` bytes after it have no newline yet. ``report`` is None until something could be evaluated.
    """

    lines: int
    bytes: int
    read: int
    again: int
    position: int
    waiting: int
    report: dict[str, Json] | None = None


class FollowRun:
    """One log and its run folder, which the caller drives (`RunFolder.driving`)."""

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
        (self._log,) = request.inputs
        self._name = Path(self._log).name
        self._report: dict[str, Json] | None = None
        self._first = True
        remove_halves(folder.path)
        kept, self.begun_anew = self._load_checkpoint()
        self._follower = Follower(evaluator, params, self._name, kept, folder.path, stop, settling)

    @property
    def found(self) -> bool:
        """Whether there is, or was, a log at all."""
        return self._follower.found

    def verify(self) -> None:
        """Read everything again. Raises InputChanged with the lines that have changed."""
        self._follower.verify()

    def run_pass(self) -> FollowPass:
        """Evaluate new lines and write the report of the whole log, unless it is up to date.

        Raises InputError as an evaluation of the whole would, and InputChanged if a part of it is missing.
        """
        follower = self._follower
        position, line = follower.kept.position, follower.kept.line
        read, again = follower.read_bytes, follower.again_bytes
        if follower.read_on():
            self._report = self._write()
        elif self._first:
            # A killed process may have kept more than it reported.
            self._report = self.folder.report() if self._reported() else self._write()
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

    def _load_checkpoint(self) -> tuple[Checkpoint, bool]:
        """The checkpoint, and whether it begins again because the code version has changed."""
        fresh = Checkpoint(
            self.evaluator.name,
            self.evaluator.version,
            code_version(),
            self._params.model_dump(mode="json"),
            self._log,
        )
        kept = Checkpoint.load(self.folder.path)
        if kept is None:
            return fresh, False
        if not kept.same_question(fresh):
            raise UsageError(f"{self.folder.path}: this run follows another log, or with other parameters")
        if kept.same_code(fresh):
            return kept, False
        log = Path(os.path.realpath(self._log))
        if len(kept.segments) > 1 or (kept.segments and not stands(log, kept.segments[0])):
            raise ConfigError(
                f"{self.folder.path}: the log was rotated since evalq code {kept.code_version} began to follow it, and "
                f"this is {code_version()}; answers of different code are never mixed: begin anew in another --run-dir"
            )
        return fresh, True

    def _reported(self) -> bool:
        """Whether the folder's report is that of the checkpoint."""
        progress = self.folder.info().progress
        return self.folder.reported and progress.get("bytes") == self._follower.kept.position

    def _write(self) -> dict[str, Json] | None:
        follower = self._follower
        fold = Fold(self.evaluator, self._params, 1)
        wire = follower.state.to_wire()
        if wire == self.evaluator.State.zero().to_wire() and follower.kept.tally == Tally():
            return None  # the log is still empty
        # A copy, since finishing may change it.
        state = self.evaluator.State.from_wire(wire)
        fold.add(0, Outcome(state, follower.kept.tally))
        summary = InputSummary(self._name, self._log, follower.sha256)
        try:
            with TemporaryDirectory(prefix="scratch-", dir=self.folder.path) as scratch:
                found, lines = fold.finish([summary], lambda _: follower.reopen(), Path(scratch))
        except NothingEvaluated:
            return None
        # In canonical form, like every report.
        report: dict[str, Json] = as_written(found)
        self.folder.write(RECORDS, b"".join(line + b"\n" for line in lines))
        write_report(self.folder, self.evaluator, self.request, report)
        # Last: `_reported` relies on it.
        self.folder.note(progress={"records": follower.kept.line - 1, "bytes": follower.kept.position})
        return report


def begin_following(
    evaluator: Evaluator[Any, Any],
    asked: Request,
    out: Path | None,
    facts: dict[str, Json],
) -> tuple[RunFolder, Params, Request]:
    """The folder of the run that follows the log: the existing one, or a new one with ``facts`` in run.json.

    Without ``out`` its name is made of the log's path and the parameters, so that the same command resumes it. The
    run's id does not: other hosts may have a log at that path.
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
                run=new_run_id(evaluator.name, Path(log).stem),
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
