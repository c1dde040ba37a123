"""A log that is written, rotated and followed in one process, and the report that it must have."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.evaluators.cooperation import evaluator
from evalq.evalcore.fold import Evaluation, evaluate_files
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.views.markdown import visible
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.follow.checkpoint import Checkpoint
from evalq.producer.follow.follower import SETTLING_SECONDS
from evalq.producer.follow.run import FollowPass, FollowRun, begin_following
from evalq.producer.outputs import render

LOG = "events.jsonl"
KEPT = 40
"""Rotated logs that are kept: more than any test makes, for what is gone no follower can read again."""


class Stage:
    """Work in ``folder`` (the current one while this is entered): a writer of the log, and its follower."""

    def __init__(
        self, folder: Path, params: dict[str, Any] | None = None, settling: Sequence[float] = SETTLING_SECONDS
    ) -> None:
        self.log = folder / LOG
        self.whole = bytearray()
        self._params = params or {}
        self._folder = folder
        self._settling = settling
        self._run: FollowRun | None = None
        self._dates = itertools.count(20260101)

    @contextlib.contextmanager
    def entered(self) -> Iterator[Stage]:
        """The log has a relative name, which the report of the whole must repeat."""
        with contextlib.chdir(self._folder):
            yield self

    @property
    def out(self) -> Path:
        """The run folder."""
        return self._folder / "run"

    @property
    def known(self) -> bool:
        """Whether a follower has seen something of the log, and so can know its file again."""
        return bool((kept := Checkpoint.load(self.out)) and kept.segments[-1].length)

    @property
    def begun(self) -> bool:
        """Whether a follower has opened the log."""
        return bool((kept := Checkpoint.load(self.out)) and kept.segments)

    def append(self, data: bytes) -> None:
        """What the log's only writer does."""
        with self.log.open("ab") as out:
            out.write(data)
        self.whole += data

    def rotate(self) -> None:
        """Rename to .1, .1 to .2, and so on; begin an empty one."""
        self._shift()
        if self.log.exists():
            self.log.rename(self.rotated(1))
        self.log.touch()

    def rotate_by_date(self) -> None:
        """Rename to a name with a date; the next log is only there when something is written to it."""
        if self.log.exists():
            self.log.rename(self.log.with_name(f"{LOG}-{next(self._dates)}"))

    def copy_and_truncate(self) -> None:
        """Copy to .1, then empty the log in place."""
        self._shift()
        if self.log.exists():
            shutil.copyfile(self.log, self.rotated(1))
            os.truncate(self.log, 0)

    def replace(self) -> None:
        """The same bytes under the same name in another file, as rsync leaves them."""
        if self.log.exists():
            shutil.copyfile(self.log, self.log.with_name("incoming"))
            self.log.with_name("incoming").replace(self.log)

    def rotated(self, number: int) -> Path:
        """The name of a rotated log."""
        return self.log.with_name(f"{LOG}.{number}")

    def run(self) -> FollowRun:
        """The follower, made anew after `forget`."""
        if self._run is None:
            folder, params, request = begin_following(
                evaluator, Request([LOG], dict(self._params), {}), self.out, {"suite": "s"}
            )
            self._run = FollowRun(folder, evaluator, params, request, lambda: False, self._settling)
        return self._run

    def look(self) -> FollowPass:
        """One pass."""
        return self.run().run_pass()

    def forget(self) -> None:
        """End the follower as a kill between two passes does."""
        self._run = None

    def expected(self) -> Evaluation | None:
        """What a run over a copy of the whole gives, as far as its lines are whole; None while it has no event."""
        copies, lines = self._folder / "copies", self.whole[: self.whole.rfind(b"\n") + 1]
        copies.mkdir(exist_ok=True)
        (copies / LOG).write_bytes(lines)
        with contextlib.chdir(copies):
            return evaluate_files(evaluator, [LOG], self._params) if lines.strip() else None

    def agrees(self) -> None:
        """Assert that every file of the run folder has the bytes that the whole log's run would write."""
        expected = self.expected()
        if expected is None:
            assert not (self.out / "report.json").exists()
            return
        report = expected.report
        assert (self.out / "report.json").read_bytes() == canonical_json(report) + b"\n"
        assert (self.out / "records.jsonl").read_bytes() == b"".join(line + b"\n" for line in expected.lines)
        assert (self.out / "results.yaml").read_text() == render(
            "yaml", evaluator, evaluator.views.document(report, ""), {}
        )
        assert (self.out / "report.md").read_text() == visible(evaluator.views.markdown(report, {}))
        assert RunFolder(self.out).info().progress["bytes"] == self.whole.rfind(b"\n") + 1

    def _shift(self) -> None:
        for number in range(KEPT, 0, -1):
            if self.rotated(number).exists():
                self.rotated(number).rename(self.rotated(number + 1))
