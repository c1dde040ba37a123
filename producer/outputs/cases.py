"""cases.json: a finished run as one side of a comparison, so that nobody has to read its records again."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.compare.run import SCHEMA, RunCases
from evalq.evalcore.compare.summary import CaseSummary, Summing
from evalq.evalcore.contract import registry
from evalq.evalcore.contract.evaluator import Evaluator, Measures
from evalq.evalcore.errors import UsageError, WireError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.canonical import Json, canonical_json, digest
from evalq.producer.folder.run_folder import OUTPUTS, RunFolder
from evalq.producer.outputs.usage import usage_of

__all__ = ["CASES", "cases_of", "decoded"]

CASES = "cases.json"


def cases_of(folder: RunFolder, *, keep: bool = True) -> RunCases:
    """Those of the run in ``folder``: from its cases.json while that is of its report, else read anew and kept there.

    Without ``keep`` nothing is written.
    Raises UsageError for a run without report or records, or of an evaluator whose runs are not compared.
    """
    report = folder.report()
    name = hashlib.sha256((folder.path / "report.json").read_bytes()).hexdigest()
    kept = _kept(folder.path / CASES)
    if kept is not None and kept.report == name:
        return kept
    found = _read(folder, registry.get(report["evaluator"]), report, name)
    if keep:
        with contextlib.suppress(OSError):  # a folder that can only be read is compared all the same
            folder.write(CASES, msgspec.json.encode(found))
    return found


def decoded(data: bytes, origin: str) -> RunCases:
    """The cases in ``data``, which came from ``origin``. Raises WireError."""
    try:
        found = msgspec.json.decode(data, type=RunCases)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"{origin} is no run's cases: {error}") from error
    if found.schema != SCHEMA:
        raise WireError(f"{origin} has the form {found.schema!r}, and this evalq reads {SCHEMA}")
    return found


def _kept(path: Path) -> RunCases | None:
    try:
        return decoded(path.read_bytes(), str(path))
    except (OSError, WireError):
        return None


def _read(folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json], name: str) -> RunCases:
    measures = evaluator.measures
    if measures is None:
        raise UsageError(f"{folder.path}: runs of {evaluator.name} are not compared: it declares no measures")
    if not folder.records.is_file():
        raise UsageError(f"{folder.path}: its records are not here, only its report; compare it where it was driven")
    info, outputs = folder.info(), folder.path / OUTPUTS
    return RunCases(
        run=info.run,
        evaluator=evaluator.name,
        version=evaluator.version,
        name=info.name,
        suite=info.suite,
        target=info.target,
        tags=info.tags,
        specification=digest(canonical_json(report["params"])),
        report=name,
        records=dict(report["records"]),
        results=report["results"],
        cases=_summed(measures, folder.records, report),
        usage=usage_of(outputs) if outputs.is_file() else None,
    )


def _summed(measures: Measures, records: Path, report: dict[str, Json]) -> CaseSummary:
    summing, decode, see = Summing(measures.measures), msgspec.json.Decoder().decode, measures.see
    with open_input(records) as lines:
        for line in lines:
            sighting = see(decode(line))
            if sighting is not None:
                summing.add(sighting)
    return summing.summary(measures.collapsed(report))
