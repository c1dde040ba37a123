"""cases.json: a finished run as one side of a comparison, without reading its records again.

With more than 10,000 cases its first line is the document, and each further line a part of one of its lists.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from evalq.evalcore.compare.counting import (
    CaseCounter,
    Causes,
    call_number,
    causes_in,
    count_recorded,
    fault_of,
    read_usage,
    unusable_of,
)
from evalq.evalcore.compare.summary import CASES_SCHEMA, RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import UsageError, WireError
from evalq.evalcore.files import open_input, read_plain, write_atomic
from evalq.evalcore.model.canonical import Json, canonical_line
from evalq.evalcore.model.lines import decode_lines, encode_in_lines
from evalq.evalcore.native import compiled
from evalq.evalcore.version import __version__
from evalq.producer.folder.documents import RunInfo
from evalq.producer.folder.files import OUTPUTS, RECORDS
from evalq.producer.folder.own_runs import may_read
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.final import rates_of

CASES = "cases.json"
_SAMPLED = 1 << 13
_BLOCK = 1 << 18
"""Bytes to read at once, then to the end of the line: reading short lines one by one is slow."""


def cases_of(folder: RunFolder, *, keep: bool = True) -> RunCases:
    """The cases of the run in ``folder``, from its cases.json if that matches the report, else from its records.

    Writes cases.json, unless ``keep`` is False.
    Raises UsageError for a run without report or records, or of an evaluator whose runs are not compared.
    """
    report = folder.report()
    name = hashlib.sha256(read_plain(folder.path / "report.json")).hexdigest()
    kept = _read_cases(folder.path / CASES)
    if kept is not None and kept.report == name:
        return kept
    found = _count_cases(folder, plugins.get(report["evaluator"]), report, name)
    return _write_cases(folder, found) if keep else found


def decode_cases(data: bytes, origin: str) -> RunCases:
    """The cases in ``data``, which came from ``origin``. Raises WireError."""
    try:
        found = decode_lines(data, RunCases)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"{origin} does not hold a run's cases: {error}") from error
    if found.schema != CASES_SCHEMA:
        raise WireError(
            f"{origin} has the form {found.schema!r}, and this evalq reads {CASES_SCHEMA}: another version wrote it; "
            "name the folder of its run, or approve that folder again (evalq baseline set NAME FOLDER)"
        )
    if fault := fault_of(found):
        raise WireError(f"{origin} does not hold a run's cases: {fault}")
    return found


@stdout_to_stderr()
def computed_cases(
    evaluator: Evaluator[Any, Any], report: dict[str, Json], lines: Iterable[bytes], *, suite: str, tags: dict[str, str]
) -> RunCases:
    """The cases of a run without a folder; its id is the evaluator and the digest of the report.

    Raises UsageError for an evaluator whose runs are not compared.
    """
    name = _report_digest(report)
    counter = CaseCounter(evaluator)
    counter.add(lines)
    found = counter.cases(report, run=f"{evaluator.name}-{name[:10]}", digest_of_report=name)
    return msgspec.structs.replace(found, suite=suite, tags=tags)


def fresh_cases(folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json]) -> RunCases:
    """The cases of a run whose folder has records but no report yet; writes cases.json for that ``report``.

    Raises UsageError for an evaluator whose runs are not compared.
    """
    name = _report_digest(report)
    kept = _read_cases(folder.path / CASES)
    return (
        kept
        if kept is not None and kept.report == name
        else _write_cases(folder, _count_cases(folder, evaluator, report, name))
    )


def _report_digest(report: dict[str, Json]) -> str:
    """The SHA-256 of the report.json that ``report`` is written to."""
    return hashlib.sha256(canonical_line(report)).hexdigest()


def _read_cases(path: Path) -> RunCases | None:
    try:
        return decode_cases(read_plain(path), str(path))
    except (OSError, WireError):
        return None


def _write_cases(folder: RunFolder, found: RunCases) -> RunCases:
    with contextlib.suppress(OSError):  # a read-only folder can be compared, too
        folder.write(CASES, encode_in_lines(found))
    return found


@stdout_to_stderr()
def _count_cases(folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json], name: str) -> RunCases:
    counter = CaseCounter(evaluator, str(folder.path))
    if not folder.records.is_file():
        raise UsageError(f"{folder.path}: only the report is here; compare the run where its records are")
    info, outputs = folder.info(), folder.own(OUTPUTS)
    with open_input(folder.own(RECORDS)) as lines:
        counter.add(lines)
    live = outputs.is_file()
    found = counter.cases(report, run=info.run, digest_of_report=name, live=live)
    usage, took = read_usage(outputs) if live else (None, {})
    # Live answers belong to the candidate, even if they equal others.
    if live:
        files = _RecordedFiles([], causes_in(outputs))
    elif evaluator.whole.follows:
        # The order of a log matters, so its lines are not compared, and reading it again is slow.
        files = _RecordedFiles([], Causes())
    else:
        files = _read_recorded(folder, info, found.inputs)
    found.cases.unusable = unusable_of(found.cases, files.causes)
    return msgspec.structs.replace(
        found,
        name=info.name,
        suite=info.suite,
        target=info.target,
        tags=info.tags,
        usage=usage,
        took={**found.took, **took},
        lineage=info.lineage,
        day=info.started[:10],
        lines=files.lines,
        doubled=files.doubled,
    )


class _RecordedFiles(NamedTuple):
    """Facts of the files of recorded outputs: see `RunCases`."""

    lines: list[str]
    causes: Causes
    doubled: int = 0


def _read_recorded(folder: RunFolder, info: RunInfo, inputs: list[str]) -> _RecordedFiles:
    """The facts of the evaluated files; none if a file has changed (its SHA-256 in ``inputs``), or if this run's folder
    may not choose it.
    """
    nothing = _RecordedFiles([], Causes())
    digests, lines, causes, calls = [], [], Causes(), _CallSample()
    for number, source in enumerate(info.sources):
        if source.members or not may_read(folder, source.path):
            return nothing
        digest, count, whole = hashlib.sha256(), 0, 0
        try:
            with open_input(source.path) as stream:
                while block := stream.read(_BLOCK) + stream.readline():
                    digest.update(block)
                    lines_here, sum_here = _sum_of(block)
                    count += lines_here
                    whole += sum_here
                    if b'"attempts"' in block:
                        for line in _lines_in(block):
                            count_recorded(line, causes)
                            calls.add(line, number)
        except OSError:
            return nothing
        digests.append(digest.hexdigest())
        if count:
            # The sum does not depend on the order of the lines.
            lines.append(f"{count}-{whole % (1 << 128):032x}")
    return _RecordedFiles(sorted(lines), causes, calls.doubled) if sorted(digests) == inputs else nothing


def _lines_in(block: bytes) -> list[bytes]:
    return list(filter(None, map(bytes.strip, block.split(b"\n"))))


def _sum_of(block: bytes) -> tuple[int, int]:
    """How many lines of ``block`` are not blank, and a sum that does not depend on their order.

    The sum has the lines' CRC-32 in its lower half, the squares of these above. Cryptographic digests of each line take
    four times as long, and nobody forges these files. The squares differ if lines only exchange values.
    """
    if (native := compiled()) is not None:
        count, codes, carried, squares = native.line_sums(block)
        return count, (((carried << 64) + squares) << 64) + codes
    lines = _lines_in(block)
    each = list(map(crc32, lines))
    return len(lines), (sum(map(mul, each, each)) << 64) + sum(each)


class _CallSample:
    """A sample of recorded calls, which counts answers of one call in two files."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._mask = 0
        self.doubled = 0

    def add(self, line: bytes, file: int) -> None:
        if b'"attempts"' not in line or (number := call_number(line)) is None or number & self._mask:
            return
        # Within one file a second answer to a repeat does not count.
        self.doubled += self._files.setdefault(number, file) != file
        if len(self._files) > _SAMPLED:
            self._mask = 2 * self._mask + 1
            self._files = {number: file for number, file in self._files.items() if not number & self._mask}


# Every Eval Ever: a run's aggregate record in the schema of the EvalEval Coalition, version 0.2.1.
# Source: eval.schema.json of https://github.com/evaleval/every_eval_ever. Each rate over all outputs of a run is an
# evaluation, with its interval.

SCHEMA_VERSION = "0.2.1"
_LEVEL = 0.95


def write_every_eval_ever(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any]) -> None:
    """The record of a finished run. Raises UsageError for one that has no rate."""
    write_atomic(path, canonical_line(_aggregate_record(path, folder, evaluator, cases_of(folder))))


def _aggregate_record(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], run: RunCases) -> dict[str, Json]:
    info, report = folder.info(), folder.report()
    model = run.target or "recorded outputs"
    ended = str(int(datetime.fromisoformat(info.started).timestamp()))
    name = run.suite if run.suite not in ("", "default") else evaluator.name
    results = list(_results(name, evaluator, report, run))
    if not results:
        raise UsageError(
            f"-o {path}: {evaluator.name} has no rate over its outputs, and this format has only rates: choose another "
            f"format (the run is complete, in {folder.named()})"
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{name}/{model}/{ended}",
        "evaluation_timestamp": info.started,
        "retrieved_timestamp": ended,
        "source_metadata": {
            "source_name": "evalq",
            "source_type": "evaluation_run",
            # Whoever submits the record fills this in.
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
            "additional_details": {"run": info.run, "report_sha256": run.report},
        },
        "eval_library": {"name": "evalq", "version": __version__},
        "model_info": {"name": model, "id": model},
        "evaluation_results": results,
    }


def _results(
    name: str, evaluator: Evaluator[Any, Any], report: Mapping[str, Any], run: RunCases
) -> Iterator[dict[str, Json]]:
    results = report["results"]
    source = {
        "dataset_name": name,
        "source_type": "other",
        "additional_details": {"specification_sha256": run.specification},
    }
    for key, value in rates_of(report).items():
        yield {
            "evaluation_name": f"{evaluator.name}.{key}",
            "source_data": source,
            "metric_config": {
                "evaluation_description": key.replace("_", " "),
                "lower_is_better": "error" in key or "fail" in key,
                "score_type": "continuous",
                "min_score": 0,
                "max_score": 1,
            },
            "score_details": _score(value, results.get(f"{key}_interval"), run),
        }


def _score(value: float, interval: Any, run: RunCases) -> dict[str, Json]:
    uncertainty: dict[str, Json] = {"num_samples": run.records.get("scored", 0)}
    if isinstance(interval, dict) and None not in (interval.get("low"), interval.get("high")):
        uncertainty["confidence_interval"] = {
            "lower": interval["low"],
            "upper": interval["high"],
            "confidence_level": _LEVEL,
            "method": "evalq",
        }
    return {"score": value, "uncertainty": uncertainty}
