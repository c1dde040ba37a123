"""On how many recorded outputs the imported checks agree with the verdicts that the source gave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from evalq.evalcore.evaluators.checks.cases import load_cases
from evalq.evalcore.evaluators.checks.params import ChecksParams
from evalq.evalcore.evaluators.checks.score import OutputScorer
from evalq.producer.importing.imported import Imported, whole

__all__ = ["Agreement", "agreement"]

_SHOWN = 3


class Agreement(NamedTuple):
    """``compared`` records have a verdict of the source on a check that was imported; on ``agreed`` all are the same.

    ``without`` records have none. ``other`` are the first places where they differ.
    """

    agreed: int
    compared: int
    without: int
    other: tuple[str, ...] = ()

    def sentence(self) -> str:
        """The one line that an import says of it."""
        if not self.compared:
            return (
                f"agreement: not known, the source has no verdict on a check of the {self.without:,} recorded outputs"
            )
        line = f"agreement: the checks have the source's own verdicts on {self.agreed:,} of {self.compared:,} records"
        if self.without:
            line += f"; {self.without:,} more have no verdict of it"
        return line + (f"; they differ at {'; '.join(self.other)}" if self.other else "")


def agreement(imported: Imported, cases: Path) -> Agreement:
    """Judge every recorded output by ``cases``, the file that was written, beside the source's own verdicts."""
    judge = OutputScorer(ChecksParams.model_validate({"cases": [case.params for case in load_cases([cases])]}))
    agreed = compared = without = 0
    other: list[str] = []
    for source, lines in imported.outputs.items():
        for line in lines:
            said = imported.verdicts.get((line["case"], line["repeat"], source), ())
            verdicts = judge.test(msgspec.json.encode(whole(line))).checks
            if len(said) != len(verdicts) or not said:
                without += 1
                continue
            compared += 1
            differs = _first_other(said, [(verdict.name, verdict.passed) for verdict in verdicts])
            agreed += not differs
            if differs and len(other) < _SHOWN:
                other.append(f"{line['case']}, repeat {line['repeat']}: {differs}")
    return Agreement(agreed, compared, without, tuple(other))


def _first_other(said: Sequence[bool | None], ours: Sequence[tuple[str, bool | None]]) -> str:
    """The first check on which both say something else, in words; "" where there is none."""
    words = {True: "passed", False: "failed", None: "not computed"}
    for theirs, (name, passed) in zip(said, ours, strict=True):
        if theirs is not None and theirs != passed:
            return f"{name} {words[theirs]} there, {words[passed]} here"
    return ""
