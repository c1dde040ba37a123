"""The answers of another run, with which those of this one are compared."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalq.evalcore.evaluators.checks.answer import Answer
from evalq.evalcore.evaluators.checks.taken import lacks_output
from evalq.evalcore.records.decoding import Malformed, decode
from evalq.evalcore.records.inputs import discover, format_suffixes
from evalq.evalcore.records.opened import batches, opened
from evalq.evalcore.records.spool import spool

__all__ = ["other_answers"]


def other_answers(path: str) -> dict[tuple[str, int], str]:
    """{(case, repeat): text} of recorded outputs, the first of each; what is no output is passed over.

    Raises InputError.
    """
    found: dict[tuple[str, int], str] = {}
    for line in _lines(path):
        try:
            record = decode(line)
        except Malformed:
            continue
        if isinstance(record, dict) and not lacks_output(record):
            _keep(found, record)
    return found


def _keep(found: dict[tuple[str, int], str], record: dict[str, Any]) -> None:
    case, repeat, text = record.get("case"), record.get("repeat", 0), record.get("text")
    if isinstance(case, str) and type(repeat) is int:
        found.setdefault((case, repeat), Answer(record["output"], text if isinstance(text, str) else None).text)


def _lines(path: str) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        for source in discover([path], format_suffixes("jsonl")):
            plain = spool(source, Path(scratch))
            with opened(plain, "jsonl", None) as cutter:
                for batch in batches(cutter, plain):
                    yield from (line for _, line in batch.lines())
