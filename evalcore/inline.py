"""Evaluating files in this process: the reference every distributed run must equal, and the notebook's way in."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalcore import registry
from evalcore.canonical import Json, canonical_json
from evalcore.evaluator import Batch, Evaluator
from evalcore.files import open_input
from evalcore.fold import Fold, InputSummary
from evalcore.params import validate
from evalcore.partial import decode, encode
from evalcore.records.cut import Cutter
from evalcore.records.inputs import discover, format_suffixes, read_columns
from evalcore.records.span import read_span
from evalcore.records.spool import spool

__all__ = ["Evaluation", "evaluate_files"]


class Evaluation(msgspec.Struct, frozen=True):
    """``report`` is report.json's content; ``lines`` are those of records.jsonl."""

    report: dict[str, Json]
    lines: list[bytes]

    def records(self) -> Iterator[dict[str, Json]]:
        """The record lines as objects."""
        return (msgspec.json.decode(line) for line in self.lines)


def evaluate_files(
    evaluator: str | Evaluator[Any, Any],
    paths: Sequence[str | Path],
    params: Mapping[str, Any] | None = None,
    *,
    chunk_size: int | None = None,
) -> Evaluation:
    """Evaluate ``paths`` (files, folders, globs) here and now, without a queue.

    Raises InputError, ConfigError, NothingEvaluated.
    """
    chosen = registry.get(evaluator) if isinstance(evaluator, str) else evaluator
    checked = validate(chosen.Params, params or {}, "params")
    sources = discover([str(path) for path in paths], format_suffixes(chosen.format), chosen.gathers)
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        sources = [spool(source, Path(scratch), chosen.gather) for source in sources]
        fold = Fold(chosen, checked, len(sources))
        summaries: list[InputSummary] = []
        lines: list[bytes] = []
        for index, source in enumerate(sources):
            with open_input(source.path) as stream:
                cutter = Cutter(stream, chosen.format, source.name, size=chunk_size)
                columns: tuple[str, ...] = ()
                header = cutter.header() if chosen.format == "csv" else b""
                if header:
                    columns = read_columns(header, source.name, chosen.columns)
                for span in cutter.spans():
                    data = read_span(source.path, span)
                    batch = Batch(source.name, span.first_line, data, columns, span.of(source.members))
                    # By way of the wire, so that inline proves what a worker's answer would be.
                    outcome = decode(encode(chosen.evaluate(batch, checked)), chosen)
                    fold.add(index, outcome)
                    lines.extend(outcome.lines)
            summaries.append(InputSummary(source.name, source.given, cutter.sha256, source.members))

        def reopen(index: int) -> BinaryIO:
            return open_input(sources[index].path)

        report, closing = fold.finish(summaries, reopen, Path(scratch))
    # The form report.json has: keys in order, lists for tuples.
    return Evaluation(json.loads(canonical_json(report)), lines + closing)
