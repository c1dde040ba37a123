"""cases.json: a finished run as one side of a comparison, so that nobody has to read its records again."""

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

from evalq.evalcore.compare.counting import CaseCounter, call_number, fault_of, read_usage
from evalq.evalcore.compare.single_cases import Causes, causes_in, count_recorded, unusable_of
from evalq.evalcore.compare.summary import CASES_SCHEMA, RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import UsageError, WireError
from evalq.evalcore.files import open_input, read_plain, write_atomic
from evalq.evalcore.model.canonical import Json, canonical_line
from evalq.evalcore.version import __version__
from evalq.producer.folder.documents import RunInfo
from evalq.producer.folder.files import OUTPUTS, RECORDS
from evalq.producer.folder.own_runs import may_read
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.final import rates_of

CASES = "cases.json"
_SAMPLED = 1 << 13
_BLOCK = 1 << 18
"""Bytes that are read at once, and to the end of their last line: files of short lines take long line by line."""


def cases_of(folder: RunFolder, *, keep: bool = True) -> RunCases:
    """Those of the run in ``folder``: from its cases.json while that is of its report, else read anew and kept there.

    Without ``keep`` nothing is written.
    Raises UsageError for a run without report or records, or of an evaluator whose runs are not compared.
    """
    report = folder.report()
    name = hashlib.sha256(read_plain(folder.path / "report.json")).hexdigest()
    kept = _kept(folder.path / CASES)
    if kept is not None and kept.report == name:
        return kept
    found = _count_cases(folder, plugins.get(report["evaluator"]), report, name)
    return _keep(folder, found) if keep else found


def decode_cases(data: bytes, origin: str) -> RunCases:
    """The cases in ``data``, which came from ``origin``. Raises WireError."""
    try:
        found = msgspec.json.decode(data, type=RunCases)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"{origin} does not hold a run's cases: {error}") from error
    if found.schema != CASES_SCHEMA:
        raise WireError(
            f"{origin} has the form {found.schema!r}, and this evalq reads {CASES_SCHEMA}: another version wrote it; "
            "name the folder of its run, or approve that anew (evalq baseline set NAME FOLDER): it is read again"
        )
    if fault := fault_of(found):
        raise WireError(f"{origin} does not hold a run's cases: {fault}")
    return found


@stdout_to_stderr()
def computed_cases(
    evaluator: Evaluator[Any, Any], report: dict[str, Json], lines: Iterable[bytes], *, suite: str, tags: dict[str, str]
) -> RunCases:
    """Those of a run that wrote nothing, called by its evaluator and the digest of its report.

    Raises UsageError for an evaluator whose runs are not compared.
    """
    name = _report_digest(report)
    counter = CaseCounter(evaluator)
    counter.add(lines)
    found = counter.cases(report, run=f"{evaluator.name}-{name[:10]}", digest_of_report=name)
    return msgspec.structs.replace(found, suite=suite, tags=tags)


def fresh_cases(folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json]) -> RunCases:
    """Those of a run whose records are in ``folder``, and whose report is not yet; kept there for when it is.

    Raises UsageError for an evaluator whose runs are not compared.
    """
    name = _report_digest(report)
    kept = _kept(folder.path / CASES)
    return (
        kept
        if kept is not None and kept.report == name
        else _keep(folder, _count_cases(folder, evaluator, report, name))
    )


def _report_digest(report: dict[str, Json]) -> str:
    """The SHA-256 of the report.json that ``report`` is written to."""
    return hashlib.sha256(canonical_line(report)).hexdigest()


def _kept(path: Path) -> RunCases | None:
    try:
        return decode_cases(read_plain(path), str(path))
    except (OSError, WireError):
        return None


def _keep(folder: RunFolder, found: RunCases) -> RunCases:
    with contextlib.suppress(OSError):  # a folder that can only be read is compared all the same
        folder.write(CASES, msgspec.json.encode(found))
    return found


@stdout_to_stderr()
def _count_cases(folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json], name: str) -> RunCases:
    counter = CaseCounter(evaluator, str(folder.path))
    if not folder.records.is_file():
        raise UsageError(f"{folder.path}: its records are not here, only its report; compare it where it was driven")
    info, outputs = folder.info(), folder.own(OUTPUTS)
    with open_input(folder.own(RECORDS)) as lines:
        counter.add(lines)
    found = counter.cases(report, run=info.run, digest_of_report=name)
    live = outputs.is_file()
    usage, took = read_usage(outputs) if live else (None, {})
    # Live answers are a candidate's own, equal or not.
    if live:
        told = _RecordedFiles([], causes_in(outputs))
    elif evaluator.whole.follows:
        # A whole log is one record: in another order it is another one, and to read it again takes long.
        told = _RecordedFiles([], Causes())
    else:
        told = _recorded(folder, info, found.inputs)
    found.cases.unusable = unusable_of(found.cases, told.causes)
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
        lines=told.lines,
        doubled=told.doubled,
    )


class _RecordedFiles(NamedTuple):
    """What the files of recorded outputs say beside their evaluation: see `RunCases`."""

    lines: list[str]
    causes: Causes
    doubled: int = 0


def _recorded(folder: RunFolder, info: RunInfo, inputs: list[str]) -> _RecordedFiles:
    """Of the files that were evaluated; nothing where they are not there as they were, by the SHA-256 of each in
    ``inputs``, or are not for this run's folder to choose.
    """
    nothing = _RecordedFiles([], Causes())
    digests, lines, causes, calls = [], [], Causes(), _CallSample()
    for number, source in enumerate(info.sources):
        if source.members or not may_read(folder, source.path):
            return nothing
        told, count, whole = hashlib.sha256(), 0, 0
        try:
            with open_input(source.path) as stream:
                while block := stream.read(_BLOCK) + stream.readline():
                    told.update(block)
                    stripped = list(filter(None, map(bytes.strip, block.split(b"\n"))))
                    count += len(stripped)
                    whole += _sum_of(stripped)
                    if b'"attempts"' in block:
                        for said in stripped:
                            count_recorded(said, causes)
                            calls.add(said, number)
        except OSError:
            return nothing
        digests.append(told.hexdigest())
        if count:
            # A sum is the same in whichever order.
            lines.append(f"{count}-{whole % (1 << 128):032x}")
    return _RecordedFiles(sorted(lines), causes, calls.doubled) if sorted(digests) == inputs else nothing


def _sum_of(lines: list[bytes]) -> int:
    """A number that is the same in whichever order the lines are: their CRC-32 in its lower half, squared above.

    A cryptographic digest of each line takes four times as long. This one has to tell files apart that nobody made to
    look alike; the squares differ where values are only exchanged between lines.
    """
    codes = list(map(crc32, lines))
    squares: int = sum(map(mul, codes, codes))
    return (squares << 64) + sum(codes)


class _CallSample:
    """Recorded answers by the calls that gave them, of which a sample is kept: what comes again from another file."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._mask = 0
        self.doubled = 0

    def add(self, line: bytes, file: int) -> None:
        if b'"attempts"' not in line or (number := call_number(line)) is None or number & self._mask:
            return
        # Within one file a second answer to a repeat counts nowhere.
        self.doubled += self._files.setdefault(number, file) != file
        if len(self._files) > _SAMPLED:
            self._mask = 2 * self._mask + 1
            self._files = {number: file for number, file in self._files.items() if not number & self._mask}


# Every Eval Ever: a run's aggregate record in the shared schema of the EvalEval Coalition, version 0.2.1.
# Source: eval.schema.json of https://github.com/evaleval/every_eval_ever. A run has one evaluation for each rate
# over all its outputs, with its interval.

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
            f"-o {path}: {evaluator.name} has no rate over its outputs, and such a file holds nothing else: write "
            f"another format (the run is whole, in {folder.named()})"
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{name}/{model}/{ended}",
        "evaluation_timestamp": info.started,
        "retrieved_timestamp": ended,
        "source_metadata": {
            "source_name": "evalq",
            "source_type": "evaluation_run",
            # Who ran it is not for evalq to say: whoever hands the record in writes that there.
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
