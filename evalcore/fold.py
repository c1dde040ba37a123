"""Folding the answers of chunks, in input order, into the report: the same code inline and behind a queue."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, InputResult, Option, Outcome, Params, Request, State
from evalq.evalcore.contract.params import option_params, validate
from evalq.evalcore.contract.partial import ChunkAnswer, decode, encode
from evalq.evalcore.errors import InputError, NothingEvaluated, UsageError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.canonical import Json, as_written
from evalq.evalcore.model.manifest import location
from evalq.evalcore.model.state import Tally, omissions
from evalq.evalcore.records.cut import batches, opened
from evalq.evalcore.records.inputs import discover, format_suffixes, spool

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

    def add(self, index: int, outcome: Outcome[Any] | ChunkAnswer) -> None:
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


# Evaluating files in this process: the reference every distributed run must equal, and the notebook's way in.


class Evaluation(msgspec.Struct, frozen=True):
    """``report`` is report.json's content; ``lines`` are those of records.jsonl."""

    report: dict[str, Json]
    lines: list[bytes]

    def records(self) -> Iterator[dict[str, Json]]:
        """The record lines as objects."""
        return (msgspec.json.decode(line) for line in self.lines)


def evaluate_files(
    evaluator: str | Evaluator[Any, Any],
    paths: str | Path | Sequence[str | Path],
    params: Mapping[str, Any] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    chunk_size: int | None = None,
    limit: int | None = None,
) -> Evaluation:
    """Evaluate ``paths`` (files, folders, globs; one alone needs no list) here and now, without a queue.

    ``paths`` and ``options`` are what the evaluator's command takes, ``--skip-bad-lines`` as ``skip_bad_lines``:

        evaluate_files("vs", "golden.yaml", options={"outputs": ["recorded.jsonl"]})

    ``limit`` stops after so many records. Nothing is written but what is returned. Raises InputError, ConfigError,
    UsageError, NothingEvaluated.
    """
    chosen = plugins.get(evaluator) if isinstance(evaluator, str) else evaluator
    given = [paths] if isinstance(paths, str | Path) else paths
    asked = chosen.command.request(request_of(chosen, [str(path) for path in given], params or {}, options or {}))
    checked = validate(chosen.Params, asked.params, "params")
    sources = discover(asked.inputs, format_suffixes(chosen.records.format), chosen.gathering.endings)
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        # All of them stay until the end: settling an input may read the whole of it again.
        sources = [spool(source, Path(scratch), chosen.gathering.line) for source in sources]
        fold = Fold(chosen, checked, len(sources))
        summaries: list[InputSummary] = []
        lines: list[bytes] = []
        left = limit
        for index, source in enumerate(sources):
            records = chosen.records
            with opened(source, records.format, records.columns, size=chunk_size, limit=left) as cutter:
                for batch in batches(cutter, source):
                    # By way of the wire, so that inline proves what a worker's answer would be.
                    outcome = decode(encode(chosen.evaluate(batch, checked)), chosen)
                    fold.add(index, outcome)
                    lines.extend(outcome.lines)
            # The limit is one for all inputs together.
            left = None if left is None else left - cutter.records
            summaries.append(InputSummary(source.name, source.given, cutter.sha256, source.members))

        def reopen(index: int) -> BinaryIO:
            return open_input(sources[index].path)

        report, closing = fold.finish(summaries, reopen, Path(scratch))
    # As whoever reads report.json has it: an inline report must not differ by tuples or the order of keys.
    return Evaluation(as_written(report), lines + closing)


def request_of(
    evaluator: Evaluator[Any, Any], inputs: list[str], params: Mapping[str, Any], options: Mapping[str, Any]
) -> Request:
    """What the command would ask for, given these. Raises UsageError for an option that the evaluator does not have."""
    known = {option.name: option for option in evaluator.command.options}
    # Refused, as the command line would: an option that is misspelt and ignored would answer another question.
    unknown = sorted(set(options) - set(known))
    if unknown:
        named = ", ".join(sorted(known)) or "none"
        raise UsageError(f"options: {evaluator.name} has no {unknown[0]!r}; it has: {named}")
    given = {name: _as_given(option, options.get(name)) for name, option in known.items()}
    return Request(inputs, option_params(evaluator.command.options, given, dict(params)), given)


def _as_given(option: Option, value: Any) -> Any:
    """An option's value in the form the command line gives it: text for a path, a tuple where there may be many."""
    if isinstance(value, list | tuple):
        return tuple(str(item) if isinstance(item, Path) else item for item in value)
    plain = str(value) if isinstance(value, Path) else value
    return (() if plain is None else (plain,)) if option.many else plain


# The cases of a run, listed before anything is evaluated.


def case_names(evaluator: Evaluator[Any, Any], asked: Request, limit: int | None = None) -> list[str] | None:
    """The cases that the run asked for is about, sorted; None where its evaluator lists none, or its input comes once.

    ``asked`` is a request as the evaluator's command completes it. All inputs are read, up to ``limit`` records. Raises
    InputError, ConfigError, OSError.
    """
    named = evaluator.measures.named if evaluator.measures else None
    if named is None or "-" in asked.inputs:
        return None
    params, found, left = validate(evaluator.Params, asked.params, "params"), set[str](), limit
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        for given in discover(asked.inputs, format_suffixes(evaluator.records.format), evaluator.gathering.endings):
            source = spool(given, Path(scratch), evaluator.gathering.line)
            with opened(source, evaluator.records.format, evaluator.records.columns, limit=left) as cutter:
                for batch in batches(cutter, source):
                    found.update(named(batch, params))
            left = None if left is None else left - cutter.records
    return sorted(found)
