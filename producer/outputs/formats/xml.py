"""JUnit XML: a testcase for each case of the run, which fails when any of its answers does."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.files import write_atomic
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of
from evalq.producer.outputs.junit import junit, run_suite
from evalq.producer.outputs.rows import records_of

__all__ = ["write"]

_REASONS = 3


def write(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
    """The cases of a finished run, each with the first reasons why its answers failed."""
    run = cases_of(folder)
    write_atomic(path, junit(f"evalq {evaluator.name}", [run_suite(run, reasons=_reasons(folder, evaluator))]))


def _reasons(folder: RunFolder, evaluator: Evaluator[Any, Any]) -> dict[str, list[str]]:
    """{case: why its first answers that did not pass did not}."""
    measures, rows = evaluator.measures, evaluator.views.rows
    if measures is None:
        return {}
    see, decode, found = rows.reader(folder.report()), msgspec.json.Decoder(rows.line).decode, dict[str, list[str]]()
    plain = msgspec.json.Decoder().decode
    with records_of(folder).open("rb") as lines:
        for line in lines:
            row = see(decode(line))
            if row is None or row.state not in ("bad", "doubtful"):
                continue
            sighting = measures.see(plain(line))
            reasons = found.setdefault(sighting.case if sighting is not None else "", [])
            if len(reasons) < _REASONS:
                reasons.append(f"{row.record}: {row.reason or '; '.join(_evidence(row))}")
    return found


def _evidence(row: Any) -> list[str]:
    """What was asked of it and did not come, in a few words each."""
    failed = (each for each in row.evidence() if not each.fine)
    return [f"{each.what}: {each.came[:200]} instead of {each.expected[:200]}" for each in islice(failed, _REASONS)]
