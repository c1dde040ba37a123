"""Folding the answers of chunks, in input order, into the report: the same code inline and behind a queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator, InputResult, Outcome, Params, State
from evalq.evalcore.contract.partial import Answer
from evalq.evalcore.errors import InputError, NothingEvaluated
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.manifest import location
from evalq.evalcore.model.state import Tally, omissions

__all__ = ["REPORT_SCHEMA", "Fold", "InputSummary"]

REPORT_SCHEMA = "evalq.report/1"


class InputSummary(msgspec.Struct, frozen=True):
    """What is known of a whole input, once it has been read to its end: ``members`` are the files it is made of."""

    name: str
    given: str
    sha256: str
    members: tuple[str, ...] = ()

    def where(self, line: int) -> str:
        """What a record on ``line`` is called; 0 is the input itself."""
        return location(self.name, line, self.members) if line else self.name


class Fold:
    """Merges outcomes input by input, then builds report.json's content.

    Call `add` for every chunk in order, then `finish` once. ``inputs`` is how many inputs there are; chunks of
    different inputs may come in any order, since each input has a state of its own.
    """

    def __init__(self, evaluator: Evaluator[Any, Any], params: Params, inputs: int) -> None:
        self._evaluator = evaluator
        self._params = params
        self._states: list[State] = [evaluator.State.zero() for _ in range(inputs)]
        self._tallies = [Tally() for _ in range(inputs)]

    def add(self, index: int, outcome: Outcome[Any] | Answer) -> None:
        """Take in the answer of the next chunk of input ``index``."""
        self._states[index].merge(outcome.state)
        self._tallies[index].merge(outcome.tally)

    def finish(
        self, inputs: Sequence[InputSummary], reopen: Callable[[int], BinaryIO], scratch: Path
    ) -> tuple[dict[str, Json], list[bytes]]:
        """The report's content and the record lines that only whole inputs give.

        Raises InputError with the first faults when any is fatal, NothingEvaluated when there was no record.
        """
        # Before settling, which may read a whole input again: a fatal fault ends the run anyway.
        self._raise_fatal(inputs)
        results, lines = [], []
        for index, (given, tally) in enumerate(zip(inputs, self._tallies, strict=True)):
            state = self._evaluator.whole.settle(self._states[index], self._params, partial(reopen, index), scratch)
            result = InputResult(given.name, given.given, state, tally)
            lines.extend(self._evaluator.whole.finish_input(result, self._params))
            results.append(result)
        self._raise_fatal(inputs)  # finishing an input may find what no chunk alone could show
        if not any(result.tally.total for result in results):
            raise NothingEvaluated(f"nothing was evaluated: no records in {', '.join(i.given for i in inputs)}")
        return self._report(inputs, results), lines

    def _raise_fatal(self, inputs: Sequence[InputSummary]) -> None:
        faults = [
            (given.where(line), reason)
            for given, tally in zip(inputs, self._tallies, strict=True)
            for line, reason in tally.fatal.first
        ]
        total = sum(tally.fatal.total for tally in self._tallies)
        if total:
            plural = "fault" if total == 1 else "faults"
            raise InputError(f"{total} {plural} in the input", faults, total)

    def _report(self, inputs: Sequence[InputSummary], results: Sequence[InputResult[Any]]) -> dict[str, Json]:
        evaluator, total = self._evaluator, Tally()
        faults = []
        for given, result in zip(inputs, results, strict=True):
            listed = result.tally.listed
            faults += [{"where": given.where(line), "reason": reason} for line, reason in listed.first]
            # Counted beyond the first ones: a report must not grow with what is wrong in its inputs.
            if listed.total > len(listed.first):
                faults.append({"where": result.name, "reason": f"{listed.total - len(listed.first)} more, not listed"})
            total.merge(result.tally)
        left_out = omissions(
            [(result.tally.left_out, given.where) for given, result in zip(inputs, results, strict=True)]
        )
        report = {
            "schema": REPORT_SCHEMA,
            "evaluator": evaluator.name,
            "evaluator_version": evaluator.version,
            # SPEC, Result keys: only what changes the answer. How a run was cut, or where, leaves no mark.
            "params": self._params.model_dump(mode="json"),
            "inputs": [
                {"name": given.name, "sha256": given.sha256, "records": result.tally.total}
                for given, result in zip(inputs, results, strict=True)
            ],
            "records": {
                "total": total.total,
                "scored": total.scored,
                "unscored": total.unscored,
                "errors": total.errors,
                "dead": total.dead,
            },
            "results": evaluator.section(results, self._params),
            "faults": faults,
        }
        # Only where there is something: a report from which nothing was left out is the bytes that it always was.
        return {**report, "left_out": msgspec.to_builtins(left_out)} if left_out else report
