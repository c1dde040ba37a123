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
from evalq.producer.comparing.baselines import Baselines
from evalq.producer.comparing.samples import slot_of
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.finding import folders
from evalq.producer.outputs.cases import CASES, cases_of, decode_cases

if TYPE_CHECKING:
    from evalq.producer.servers import Servers


_CASES_BEGIN = re.compile(rb'\s*\{\s*"schema"\s*:\s*"evalq\.cases/')
"""How a cases.json and the file of a baseline begin."""

# Files of results, as --format json prints them.

# A run folder beside the file, a suite's below it, and a suite's in a folder of its own.
_DEPTHS = ("report.json", "*/report.json", "*/*/report.json")


def _runs_of_results(path: Path) -> list[RunCases] | None:
    """The runs whose reports the file holds: one report, or those of a suite. None for a file of another kind.

    A report does not have the cases of its run, so evalq searches the run folder by the bytes of its report, in
    ./evalq-runs and in the folders beside the file and below. Raises UsageError if there is none, and for a run of a
    suite that failed.
    """
    try:
        data = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    reports = [(name, canonical_line(report)) for name, report in _reports(data)]
    if not reports:
        return _run_of_document(path, data)
    found = list(_folders_with(path, {line for _, line in reports}))
    return [named_by_folder(_folder_with(path, name, line, found)) for name, line in reports]


def _run_of_document(path: Path, data: Any) -> list[RunCases] | None:
    """The run whose evaluator shows ``data`` as its own form of the report; None if there is none."""
    if not isinstance(data, dict) or "records" not in data or "schema" in data:
        return None
    for report_path in _nearby_reports(path):
        folder = RunFolder.existing(report_path.parent)
        if _shows_document(folder, data):
            return [named_by_folder(folder)]
    return None


def _shows_document(folder: RunFolder, data: dict[str, Any]) -> bool:
    # Skip runs nearby that are damaged, or whose evaluator is not installed here.
    with contextlib.suppress(EvalqError, OSError, KeyError):
        report = folder.report()
        # The counts are cheap to compare: make the document only if they agree.
        if report["records"] == data["records"]:
            shown = plugins.get(report["evaluator"]).views.document(report, folder.info().started)
            return canonical_line(shown) == canonical_line(data)
    return False


def _nearby_reports(path: Path) -> Iterator[Path]:
    """Reports of run folders, the nearest to ``path`` first, each once."""
    seen: set[Path] = set()
    for report_path in (
        report_path for root in (path.parent, RUNS) for depth in _DEPTHS for report_path in sorted(root.glob(depth))
    ):
        folder = report_path.parent.resolve()
        if folder not in seen and (folder / "run.json").is_file():
            seen.add(folder)
            yield report_path


def _reports(data: Any) -> list[tuple[str, dict[str, Json]]]:
    """(name in the suite, report) of each; empty for another kind of file."""
    runs = data.get("runs") if isinstance(data, dict) else None
    reports = []
    for each in runs if isinstance(runs, list) else [data]:
        if not isinstance(each, dict):
            return []
        if "error" in each and runs is not None:
            raise UsageError(f"the run of {each.get('evaluator')} in these results failed: {each['error']}")
        if not {"evaluator", "records", "results"} <= each.keys() or "cases" in each:
            return []
        # A suite adds the name to the report that it prints; the file in the run folder does not have it.
        name = each.pop("name", "") if runs is not None else ""
        reports.append((str(name), each))
    return reports


def _folders_with(path: Path, reports: set[bytes]) -> Iterator[tuple[bytes, RunFolder]]:
    """Run folders with one of ``reports``, the nearest to ``path`` first."""
    # Compare sizes first: most reports need not be read then.
    sizes = {len(report) for report in reports}
    for report_path in _nearby_reports(path):
        if report_path.stat().st_size in sizes and (report := read_plain(report_path)) in reports:
            yield report, RunFolder.existing(report_path.parent)


def _folder_with(path: Path, name: str, report: bytes, found: list[tuple[bytes, RunFolder]]) -> RunFolder:
    """The folder with this report; of several, the one whose run has this name in its suite."""
    alike = [folder for other, folder in found if other == report]
    if alike:
        return next((folder for folder in alike if folder.info().name == name), alike[0])
    facts = msgspec.json.decode(report)
    run = f"its run of {facts['evaluator']} ({facts['records']['total']} records)"
    raise UsageError(
        f"{path}: no folder in {RUNS} or beside the file has the cases of {run}; name its run folder, or its cases.json"
    )


def operand(given: str, servers: Servers) -> list[RunCases]:
    """The runs that ``given`` names: one run, or the approved runs of a name.

    A path comes first, as everywhere. Raises UsageError if there is nothing of this name, and what reading it raises.
    """
    path = Path(given)
    if path.is_dir():
        return [_of_folder(RunFolder.existing(path), servers)]
    if path.is_file():
        # Results of a suite hold several reports; a run folder's report.json has its cases beside it.
        return (None if path.name == "report.json" else _runs_of_results(path)) or [_of_file(path)]
    approved = Baselines(servers).known(given)
    if approved:
        return approved
    # By the run's id first: --out may have given the folder another name.
    folder = next((folder for folder, info in folders() if info.run == given), None)
    if folder is None and (RUNS / given).is_dir():
        folder = RunFolder.existing(RUNS / given)
    if folder is not None:
        return [_of_folder(folder, servers)]
    return [_of_ledger(given, servers)]


def named_by_folder(folder: RunFolder) -> RunCases:
    """The cases of a run folder, called as its folder is."""
    return msgspec.structs.replace(cases_of(folder), named=_from_here(folder.path))


def _from_here(path: Path) -> str:
    """``path`` as it is typed here: relative, if it is in the current folder."""
    with contextlib.suppress(ValueError):
        path = path.absolute().relative_to(Path.cwd())
    return str(path)


def base_of(given: str, servers: Servers) -> list[RunCases]:
    """The runs that ``given`` names as a baseline: approved runs come before a path of that name.

    As in a gate, no file can replace a baseline. Raises as `operand` does.
    """
    return Baselines(servers).known(given) or operand(given, servers)


def folders_of(names: Iterable[str]) -> dict[str, RunFolder]:
    """{run: folder} of those ``names`` that are folders, or ids of runs in ./evalq-runs."""
    paths = [Path(name) if Path(name).is_dir() else RUNS / name for name in names]
    found = [RunFolder.existing(path) for path in paths if path.is_dir()]
    return {folder.info().run: folder for folder in found}


def partner(run: RunCases, among: list[RunCases], name: str) -> RunCases:
    """The run ``among`` those of the baseline ``name`` to compare ``run`` with.

    It has the same evaluator; if several have, it also has the same name and target. Raises UsageError.
    """
    same = [each for each in among if alike(run, each)]
    if len(same) > 1:
        # Only then, so that a candidate of another target can be compared with a single approved run.
        same = [each for each in same if slot_of(each) == slot_of(run)]
    if not same:
        there = ", ".join(sorted(map(slot_of, among)))
        raise UsageError(f"{name} has {there}, and nothing to compare {slot_of(run)} ({run.run}) with")
    return same[0]


def alike(run: RunCases, other: RunCases) -> bool:
    """Whether two runs have the same evaluator, and no different names in a suite."""
    other_name = bool(run.name and other.name and run.name != other.name)
    return run.evaluator == other.evaluator and not other_name


def _of_folder(folder: RunFolder, servers: Servers) -> RunCases:
    """The cases of a run folder; of a folder with the report alone, those in the ledger."""
    if servers.named and not folder.records.is_file() and not (folder.path / CASES).is_file():
        return _of_ledger(folder.info().run, servers)
    return named_by_folder(folder)


def _of_file(path: Path) -> RunCases:
    """The cases in a cases.json or a baseline's file, or beside a report.json."""
    if path.name == "report.json":
        folder = path.parent
        if (folder / "run.json").is_file():
            return named_by_folder(RunFolder.existing(folder))
        if (folder / CASES).is_file():
            return decode_cases(read_plain(folder / CASES), str(folder / CASES))
        raise UsageError(f"{path}: a report alone does not say how each case went; name its run folder, or {CASES}")
    data = path.read_bytes()
    # A file that does not begin like a run's cases was named by mistake.
    if not _CASES_BEGIN.match(data):
        raise UsageError(
            f"{path} is not a run: name a run folder, its {CASES}, results as --format json prints them, a baseline, "
            "or the id of a run"
        )
    found = decode_cases(data, str(path))
    # The cases of a run folder are called as the folder is; a file of another name says nothing about where it is from.
    here = path.name == CASES and (path.parent / "run.json").is_file()
    return msgspec.structs.replace(found, named=_from_here(path.parent)) if here else found


def _of_ledger(run: str, servers: Servers) -> RunCases:
    if servers.named:
        # Not at import: comparing two folders needs no client of a server.
        from evalq.workers.ledger.detached import Reports

        data = Reports(servers.runs, servers.settings).cases(run)
        if data is not None:
            return decode_cases(data, f"the ledger's record of run {run}")
        if servers.knows(run):
            raise UsageError(
                f"run {run} is in the ledger, but its cases are not (it is not finished, or too large for it: "
                "cases_records); name its folder"
            )
    if Path(run).exists():  # also the pipe of <(command), which cannot be read twice
        raise UsageError(f"{run}: not a plain file (a pipe or a device); write it to a file, and name that")
    here = f"./{RUNS}" + (", or the ledger" if servers.named else "")
    raise UsageError(f"{run!r} is not a run folder, a file, a baseline or a run in {here}")
