"""Evaluating files in this process: the reference every distributed run must equal, and the notebook's way in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.contract import registry
from evalq.evalcore.contract.evaluator import Evaluator, Option, Request
from evalq.evalcore.contract.params import option_params, validate
from evalq.evalcore.contract.partial import decode, encode
from evalq.evalcore.errors import UsageError
from evalq.evalcore.files import open_input
from evalq.evalcore.fold.fold import Fold, InputSummary
from evalq.evalcore.model.canonical import Json, as_written
from evalq.evalcore.records.inputs import discover, format_suffixes
from evalq.evalcore.records.opened import batches, opened
from evalq.evalcore.records.spool import spool

__all__ = ["Evaluation", "evaluate_files", "request_of"]


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
    chosen = registry.get(evaluator) if isinstance(evaluator, str) else evaluator
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
