"""Which run a command means by BASE or CAND: a folder, a file, the name of a baseline, or a run's id."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.evalcore.files import read_plain
from evalq.evalcore.model.canonical import Json, canonical_line
from evalq.producer.comparing.baselines import Baselines, place_of
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.finding import folders
from evalq.producer.outputs.cases import CASES, cases_of, decode_cases

if TYPE_CHECKING:
    from evalq.producer.servers import Servers


_CASES_BEGIN = re.compile(rb'\s*\{\s*"schema"\s*:\s*"evalq\.cases/')
"""How a cases.json and the file of a baseline begin."""

# Files of results, as --format json prints them: which runs they are of.

# A run folder beside the file, one of a suite below it, and one of a suite in a folder of its own.
_DEPTHS = ("report.json", "*/report.json", "*/*/report.json")


def _runs_of_results(path: Path) -> list[RunCases] | None:
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
    found = list(_folders_with(path, {line for _, line in reports}))
    return [cases_of(_folder_with(path, name, line, found)) for name, line in reports]


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
            shown = plugins.get(report["evaluator"]).views.document(report, folder.info().started)
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


def _folders_with(path: Path, reports: set[bytes]) -> Iterator[tuple[bytes, RunFolder]]:
    """Run folders with one of ``reports``, the nearest to ``path`` first."""
    # Most reports in a folder are others: their size tells without reading them.
    sizes = {len(report) for report in reports}
    for place in _places(path):
        if place.stat().st_size in sizes and (report := read_plain(place)) in reports:
            yield report, RunFolder.existing(place.parent)


def _folder_with(path: Path, name: str, report: bytes, found: list[tuple[bytes, RunFolder]]) -> RunFolder:
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


def operand(given: str, servers: Servers) -> list[RunCases]:
    """The runs that ``given`` names: one, or what is approved under a name.

    A path first, as everywhere: what is a path from here is meant as one. Raises UsageError where nothing is called so,
    and what reading it raises.
    """
    path = Path(given)
    if path.is_dir():
        return [_of_folder(RunFolder.existing(path), servers)]
    if path.is_file():
        # Results of a suite hold several reports; a run folder's own report.json is one side, and found beside its
        # cases.
        return (None if path.name == "report.json" else _runs_of_results(path)) or [_of_file(path)]
    approved = Baselines(servers).known(given)
    if approved:
        return approved
    # A folder of ./evalq-runs is looked for by its run first: --out may have called it otherwise.
    folder = next((folder for folder, info in folders() if info.run == given), None)
    if folder is None and (RUNS / given).is_dir():
        folder = RunFolder.existing(RUNS / given)
    if folder is not None:
        return [_of_folder(folder, servers)]
    return [_of_ledger(given, servers)]


def base_of(given: str, servers: Servers) -> list[RunCases]:
    """The runs that ``given`` names as what others are measured against: what is approved, before a path of that name.

    As a gate takes it, so that no file that anybody may add stands in for a baseline. Raises as `operand` does.
    """
    return Baselines(servers).known(given) or operand(given, servers)


def folders_of(names: Iterable[str]) -> dict[str, RunFolder]:
    """{run: its folder} of those of ``names`` that are folders, or ids of runs in ./evalq-runs."""
    paths = [Path(name) if Path(name).is_dir() else RUNS / name for name in names]
    found = [RunFolder.existing(path) for path in paths if path.is_dir()]
    return {folder.info().run: folder for folder in found}


def partner(run: RunCases, among: list[RunCases], name: str) -> RunCases:
    """That one of ``among``, which ``name`` names, that ``run`` is to be compared with.

    Of the same evaluator, and of the same name and target where there are several. Raises UsageError.
    """
    same = [each for each in among if alike(run, each)]
    if len(same) > 1:
        # Only then, so that a candidate of another target can be compared with the one run that was approved.
        same = [each for each in same if place_of(each) == place_of(run)]
    if not same:
        there = ", ".join(sorted(map(place_of, among)))
        raise UsageError(f"{name} holds {there}, and nothing to compare {place_of(run)} ({run.run}) with")
    return same[0]


def alike(run: RunCases, other: RunCases) -> bool:
    """Of one evaluator, and not two runs of a suite that have names of their own."""
    named_otherwise = bool(run.name and other.name and run.name != other.name)
    return run.evaluator == other.evaluator and not named_otherwise


def _of_folder(folder: RunFolder, servers: Servers) -> RunCases:
    """Of a run folder; of one that has its report alone, since the run was driven elsewhere, as the ledger has them."""
    if servers.named and not folder.records.is_file() and not (folder.path / CASES).is_file():
        return _of_ledger(folder.info().run, servers)
    return cases_of(folder)


def _of_file(path: Path) -> RunCases:
    """Of a cases.json or a baseline's file, or of the run whose report.json it is."""
    if path.name == "report.json":
        folder = path.parent
        if (folder / "run.json").is_file():
            return cases_of(RunFolder.existing(folder))
        if (folder / CASES).is_file():
            return decode_cases(read_plain(folder / CASES), str(folder / CASES))
        raise UsageError(f"{path}: a report alone does not say how each case went; name its run folder, or {CASES}")
    data = path.read_bytes()
    # Only what begins as a run's cases can be damaged: any other file was named by mistake.
    if not _CASES_BEGIN.match(data):
        raise UsageError(
            f"{path} is not a run: name a run folder, its {CASES}, results as --format json prints them, a baseline, "
            "or the id of a run"
        )
    return decode_cases(data, str(path))


def _of_ledger(run: str, servers: Servers) -> RunCases:
    if servers.named:
        # Not at import: comparing two folders needs no client of a server.
        from evalq.workers.ledger.detached import Reports

        data = Reports(servers.runs, servers.settings).cases(run)
        if data is not None:
            return decode_cases(data, f"what the ledger has of run {run}")
        if servers.knows(run):
            raise UsageError(
                f"run {run} is in the ledger, but how its cases went is not (it is not finished, or too large "
                "for it: cases_records); name its folder"
            )
    if Path(run).exists():  # also the pipe of <(command): a run is told by several files, and read more than once
        raise UsageError(f"{run}: not a plain file (a pipe or a device); write it to a file, and name that")
    here = f"./{RUNS}" + (", or the ledger" if servers.named else "")
    raise UsageError(f"{run!r} is not a run folder, a file, a baseline or a run in {here}")
