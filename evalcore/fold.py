"""Folds the answers of chunks, in input order, into the report: the same code inline and behind a queue."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import (
    Evaluator,
    InputResult,
    Option,
    Outcome,
    Params,
    Request,
    State,
    begin_request,
    inputs_of,
    options_of,
    plain_input,
)
from evalq.evalcore.contract.params import option_params, validate
from evalq.evalcore.contract.partial import ChunkAnswer, decode, encode
from evalq.evalcore.errors import InputError, NothingEvaluated, UsageError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.canonical import Json, as_written
from evalq.evalcore.model.lines import whole as whole_report
from evalq.evalcore.model.lines import with_lines
from evalq.evalcore.model.manifest import location
from evalq.evalcore.model.state import Tally, omissions
from evalq.evalcore.records.cut import batches, opened

REPORT_SCHEMA = "evalq.report/1"


class InputSummary(msgspec.Struct, frozen=True):
    """The facts about a whole input, once it was read to its end; ``members`` are the files in it."""

    name: str
    given: str
    sha256: str
    members: tuple[str, ...] = ()

    def where(self, line: int) -> str:
        """The name of the record on ``line``; 0 is the input itself."""
        return location(self.name, line, self.members) if line else self.name


class Fold:
    """Merges outcomes input by input, then builds report.json's content.

    Call `add` for every chunk in order, then `finish` once. ``inputs`` is the number of inputs; chunks of different
    inputs may come in any order, since each input has its own state.
    """

    def __init__(self, evaluator: Evaluator[Any, Any], params: Params, inputs: int) -> None:
        self._evaluator = evaluator
        self._params = params
        self._states: list[State] = [evaluator.State.zero() for _ in range(inputs)]
        self._tallies = [Tally() for _ in range(inputs)]

    def add(self, index: int, outcome: Outcome[Any] | ChunkAnswer) -> None:
        """Add the answer of the next chunk of input ``index``."""
        self._states[index].merge(outcome.state)
        self._tallies[index].merge(outcome.tally)

    def finish(
        self, inputs: Sequence[InputSummary], reopen: Callable[[int], BinaryIO], scratch: Path
    ) -> tuple[dict[str, Json], list[bytes]]:
        """The report's content, and the record lines that need a whole input.

        Raises InputError with the first faults if any is fatal, NothingEvaluated if there was no record.
        """
        # Check this before settling, which may read a whole input again: a fatal fault ends the run anyway.
        self._raise_fatal(inputs)
        results, lines = [], []
        for index, (source, tally) in enumerate(zip(inputs, self._tallies, strict=True)):
            state = self._evaluator.whole.settle(self._states[index], self._params, partial(reopen, index), scratch)
            result = InputResult(source.name, source.given, state, tally)
            lines.extend(self._evaluator.whole.finish_input(result, self._params))
            results.append(result)
        self._raise_fatal(inputs)  # finishing an input may find faults that no chunk alone shows
        if not any(result.tally.total for result in results):
            raise NothingEvaluated(f"nothing was evaluated: no records in {', '.join(i.given for i in inputs)}")
        return self._report(inputs, results), lines

    def _raise_fatal(self, inputs: Sequence[InputSummary]) -> None:
        faults = [
            (source.where(line), reason)
            for source, tally in zip(inputs, self._tallies, strict=True)
            for line, reason in tally.fatal.first
        ]
        total = sum(tally.fatal.total for tally in self._tallies)
        if total:
            raise InputError(f"{total} {'fault' if total == 1 else 'faults'} in the input", faults, total)

    def _report(self, inputs: Sequence[InputSummary], results: Sequence[InputResult[Any]]) -> dict[str, Json]:
        evaluator, total = self._evaluator, Tally()
        faults = []
        for source, result in zip(inputs, results, strict=True):
            listed = result.tally.listed
            faults += [{"where": source.where(line), "reason": reason} for line, reason in listed.first]
            # Only count further faults: a report must not grow with the number of them.
            if listed.total > len(listed.first):
                faults.append({"where": result.name, "reason": f"{listed.total - len(listed.first)} more, not listed"})
            total.merge(result.tally)
        left_out = omissions(
            [(result.tally.left_out, source.where) for source, result in zip(inputs, results, strict=True)]
        )
        report = {
            "schema": REPORT_SCHEMA,
            "evaluator": evaluator.name,
            "evaluator_version": evaluator.version,
            # SPEC, Result keys: a report has no key for how a run was cut, or where it ran.
            "params": evaluator.command.shown(self._params.model_dump(mode="json")),
            "inputs": [
                {"name": source.name, "sha256": source.sha256, "records": result.tally.total}
                for source, result in zip(inputs, results, strict=True)
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
        # Add the key only if something was left out, so that other reports keep their bytes.
        return {**report, "left_out": msgspec.to_builtins(left_out)} if left_out else report


# Evaluation of files in this process: every distributed run must equal it, and notebooks use it.


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
    """Evaluate ``paths`` (files, folders, globs; a single one needs no list) in this process, without a queue.

    ``paths`` and ``options`` are those of the evaluator's command, with ``--skip-bad-lines`` as ``skip_bad_lines``:

        evaluate_files("vs", "golden.yaml", options={"outputs": ["recorded.jsonl"]})

    ``limit`` stops after so many records. It writes no files. Raises InputError, ConfigError, UsageError,
    NothingEvaluated.
    """
    chosen = plugins.get(evaluator) if isinstance(evaluator, str) else evaluator
    listed = [paths] if isinstance(paths, str | Path) else paths
    asked = request_of(chosen, [str(path) for path in listed], params or {}, options or {})
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        request, beside = begin_request(chosen, chosen.command.prepare(asked, Path(scratch) / "traces").request)
        checked = validate(chosen.Params, request.params, "params")
        sources = inputs_of(chosen, request)
        # Keep all of them until the end: settling an input may read it again.
        sources = [plain_input(chosen, source, Path(scratch)) for source in sources]
        if beside is not None:
            beside.write(Path(scratch))
            sources = [beside.join(source, Path(scratch)) for source in sources]
        checked = chosen.command.attach(checked, Path(scratch))
        fold = Fold(chosen, checked, len(sources))
        summaries: list[InputSummary] = []
        lines: list[bytes] = []
        left = limit
        for index, source in enumerate(sources):
            records = chosen.records
            with opened(source, records.format, records.columns, size=chunk_size, limit=left) as cutter:
                for batch in batches(cutter, source):
                    # Encode and decode each answer, so that it is the same as a worker's.
                    outcome = decode(encode(chosen.evaluate(batch, checked)), chosen)
                    fold.add(index, outcome)
                    lines.extend(outcome.lines)
            # The limit is for all inputs together.
            left = None if left is None else left - cutter.records
            summaries.append(InputSummary(source.name, source.given, source.sha256 or cutter.sha256, source.members))

        def reopen(index: int) -> BinaryIO:
            return open_input(sources[index].cut_path)

        report, closing = fold.finish(summaries, reopen, Path(scratch))
        report = whole_report(with_lines(report, Path(scratch)))
    # The same as read from report.json: an inline report must not differ by tuples or the order of keys.
    return Evaluation(as_written(report), lines + closing)


def request_of(
    evaluator: Evaluator[Any, Any], inputs: list[str], params: Mapping[str, Any], options: Mapping[str, Any]
) -> Request:
    """The command's request for these arguments. Raises UsageError for an option that the evaluator does not have."""
    known = {option.name: option for option in options_of(evaluator)}
    # Refuse unknown options, as the command line does: a misspelt option must not be ignored.
    unknown = sorted(set(options) - set(known))
    if unknown:
        named = ", ".join(sorted(known)) or "none"
        raise UsageError(f"options: {evaluator.name} has no {unknown[0]!r}; it has: {named}")
    values = {name: _as_typed(option, options.get(name)) for name, option in known.items()}
    return Request(inputs, option_params(options_of(evaluator), values, dict(params)), values)


def _as_typed(option: Option, value: Any) -> Any:
    """An option's value in the form of the command line: text for a path, a tuple if it may have several."""
    if isinstance(value, list | tuple):
        return tuple(str(item) if isinstance(item, Path) else item for item in value)
    plain = str(value) if isinstance(value, Path) else value
    return (() if plain is None else (plain,)) if option.many else plain


# The cases of a run, before it evaluates anything.


def case_names(evaluator: Evaluator[Any, Any], request: Request, limit: int | None = None) -> list[str] | None:
    """The cases of the requested run, sorted; None if its evaluator lists none, or its input can be read only once.

    ``request`` is complete, as the evaluator's command makes it. This reads all inputs, up to ``limit`` records. Raises
    InputError, ConfigError, OSError.
    """
    names_in = evaluator.measures.named if evaluator.measures else None
    if names_in is None or "-" in request.inputs:
        return None
    params, names, left = validate(evaluator.Params, request.params, "params"), set[str](), limit
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        for found in inputs_of(evaluator, request):
            source = plain_input(evaluator, found, Path(scratch))
            with opened(source, evaluator.records.format, evaluator.records.columns, limit=left) as cutter:
                for batch in batches(cutter, source):
                    names.update(names_in(batch, params))
            left = None if left is None else left - cutter.records
    return sorted(names)
