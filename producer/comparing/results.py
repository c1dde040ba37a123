"""Files of results, as --format json prints them: which runs they are of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.contract import registry
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.evalcore.files import read_plain
from evalq.evalcore.model.canonical import Json, canonical_line
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of

__all__ = ["runs_of_results"]

# A run folder beside the file, one of a suite below it, and one of a suite in a folder of its own.
_DEPTHS = ("report.json", "*/report.json", "*/*/report.json")


def runs_of_results(path: Path) -> list[RunCases] | None:
    """The runs whose reports the file holds: one report, or those of a suite. None for a file of another kind.

    A report says how a run ended and not how each case went, so its run is looked for in ./evalq-runs and in the
    folders beside the file and below, by the bytes of its report. Raises UsageError for one that is not there, and for
    a run of a suite that failed.
    """
    try:
        data = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    reports = [(name, canonical_line(report)) for name, report in _reports(data)]
    if not reports:
        return _shown(path, data)
    found = list(_folders(path, {line for _, line in reports}))
    return [cases_of(_folder(path, name, line, found)) for name, line in reports]


def _shown(path: Path, data: Any) -> list[RunCases] | None:
    """The run of which ``data`` is the document that its evaluator shows in place of the report; None for none."""
    if not isinstance(data, dict) or "records" not in data or "schema" in data:
        return None
    for place in _places(path):
        folder = RunFolder.existing(place.parent)
        if _shows(folder, data):
            return [cases_of(folder)]
    return None


def _shows(folder: RunFolder, data: dict[str, Any]) -> bool:
    # Any run may lie nearby: one that is damaged, or of an evaluator that is not installed here, is not the one.
    with contextlib.suppress(EvalqError, OSError, KeyError):
        report = folder.report()
        # Cheap to compare; the document is made only where the counts agree.
        if report["records"] == data["records"]:
            shown = registry.get(report["evaluator"]).views.document(report, folder.info().started)
            return canonical_line(shown) == canonical_line(data)
    return False


def _places(path: Path) -> Iterator[Path]:
    """Reports of run folders, those nearest to ``path`` first, each once."""
    seen: set[Path] = set()
    for place in (place for root in (path.parent, RUNS) for depth in _DEPTHS for place in sorted(root.glob(depth))):
        folder = place.parent.resolve()
        if folder not in seen and (folder / "run.json").is_file():
            seen.add(folder)
            yield place


def _reports(data: Any) -> list[tuple[str, dict[str, Json]]]:
    """(its name in the suite, report) of each; none where the data is no such file."""
    several = data.get("runs") if isinstance(data, dict) else None
    reports = []
    for each in several if isinstance(several, list) else [data]:
        if not isinstance(each, dict):
            return []
        if "error" in each and several is not None:
            raise UsageError(f"the run of {each.get('evaluator')} in these results failed: {each['error']}")
        if not {"evaluator", "records", "results"} <= each.keys() or "cases" in each:
            return []
        # A suite adds the name to the report that it prints; the file in the run folder does not have it.
        name = each.pop("name", "") if several is not None else ""
        reports.append((str(name), each))
    return reports


def _folders(path: Path, reports: set[bytes]) -> Iterator[tuple[bytes, RunFolder]]:
    """Run folders with one of ``reports``, the nearest to ``path`` first."""
    # Most reports in a folder are others: their size tells without reading them.
    sizes = {len(report) for report in reports}
    for place in _places(path):
        if place.stat().st_size in sizes and (report := read_plain(place)) in reports:
            yield report, RunFolder.existing(place.parent)


def _folder(path: Path, name: str, report: bytes, found: list[tuple[bytes, RunFolder]]) -> RunFolder:
    """The one with this report; of several, that of the run that has this name in its suite."""
    alike = [folder for other, folder in found if other == report]
    if alike:
        return next((folder for folder in alike if folder.info().name == name), alike[0])
    facts = msgspec.json.decode(report)
    run = f"its run of {facts['evaluator']} ({facts['records']['total']} records)"
    raise UsageError(
        f"{path}: how the cases of {run} went is in no folder in {RUNS} or beside the file; name its run folder, or "
        "its cases.json"
    )
