"""Adding up the record lines of a run to what a comparison sees of it, wherever the lines come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.compare.missing import Causes, unusable_of
from evalq.evalcore.compare.pairs import ROUNDED
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import Summing
from evalq.evalcore.contract.evaluator import Evaluator, Measures
from evalq.evalcore.contract.measures import Measure, Observation
from evalq.evalcore.errors import InfrastructureError, UsageError
from evalq.evalcore.model.canonical import Json, canonical_json, digest
from evalq.evalcore.model.manifest import input_of
from evalq.evalcore.model.state import omissions_in

__all__ = ["CaseCounter"]

_BESIDE = ("tags", "weight", "thresholds", "diversity")
"""Of a case: what is asked and checked stays the same without it."""
_DIGITS = 16
"""Of a case's digest: it is compared with that of one other case."""

_TOOK = re.compile(rb',"took":\{[^{}]*\}')
"""As records of checks have it: seconds differ where answers do not."""


class _OffScale(Exception):
    """A value that its measure cannot have."""


class _Scale(NamedTuple):
    """The values that a measure may have: from ``low`` to ``high``, a little more for what sums are rounded by."""

    name: str
    low: float
    high: float
    told: str
    whole: bool

    @classmethod
    def of(cls, measure: Measure) -> _Scale:
        rounding, whole = ROUNDED * measure.width, measure.kind == "pass"
        told = "0 or 1" if whole else f"from {measure.low:g} to {measure.high:g}"
        return cls(measure.name, measure.low - rounding, measure.high + rounding, told, whole)

    def holds(self, value: float) -> bool:
        # NaN is neither below nor above anything.
        return self.low <= value <= self.high and (not self.whole or value in (0, 1))


class CaseCounter:
    """Takes the lines of records.jsonl in their order, then gives the run's cases; memory grows with the cases."""

    def __init__(self, evaluator: Evaluator[Any, Any], place: str = "") -> None:
        """``place`` is where the records are, for what is raised: UsageError where runs of it are not compared."""
        if evaluator.measures is None:
            raise UsageError(
                f"{place or evaluator.name}: runs of {evaluator.name} are not compared: it declares no measures"
            )
        self._evaluator = evaluator
        self._place = place
        self._measures: Measures = evaluator.measures
        self._summing = Summing(self._measures.measures, self._measures.took)
        self._scales = [_Scale.of(measure) for measure in self._measures.measures]
        self._decode = msgspec.json.Decoder().decode

    def add(self, lines: Iterable[bytes]) -> None:
        """Count the next records. Raises InfrastructureError where the evaluator cannot say what one means, and for a
        value that is not on the scale of its measure.
        """
        observe, decode, summing = self._measures.observe, self._decode, self._summing
        try:
            for line in lines:
                told = decode(line)
                observation = observe(told)
                if observation is not None:
                    self._check(observation, told)
                    record = told.get("record", "")
                    summing.add(observation, input_of(record), _said(line, record, told.get("id"), observation))
        except _OffScale as error:
            raise InfrastructureError(str(error)) from None
        except Exception as error:  # an evaluator's code: it must not take a report along
            raise self._wrong(error) from error

    def _check(self, observation: Observation, told: Mapping[str, Any]) -> None:
        # A mean over such values lies on no scale, and the interval of one is none: 7 of 5 would pass any bound.
        for scale, value in zip(self._scales, observation.values, strict=False):
            if value is not None and not scale.holds(value):
                raise _OffScale(
                    f"{self._place or self._evaluator.name}: {told.get('record', 'a record')} "
                    f"(case {observation.case}): "
                    f"{self._evaluator.name} gives {scale.name} the value {value!r}, and its scale is {scale.told}; "
                    "mend the evaluator or the scale that its measure declares, and evaluate again"
                )

    def cases(self, report: dict[str, Json], *, run: str, digest_of_report: str) -> RunCases:
        """What was counted, as a run called ``run`` that has this report. Raises InfrastructureError as `add` does."""
        told = self._measures
        try:
            found = (
                told.collapsed(report),
                told.stopped(report),
                told.judged(report),
                told.collapse_p(report),
                told.diverse(report),
            )
            unrecorded = self._unrecorded(report)
        except Exception as error:
            raise self._wrong(error) from error
        # Labels that people gave afterwards ask nothing else of an agent: a labelled run stays comparable.
        asked = {name: value for name, value in report["params"].items() if name not in self._measures.beside}
        summary = self._summing.summary(*found)
        return RunCases(
            run=run,
            evaluator=self._evaluator.name,
            # Of what judged the records: another version may have found otherwise.
            version=report["evaluator_version"],
            specification=digest(canonical_json(asked)),
            report=digest_of_report,
            records=dict(report["records"]),
            results=report["results"],
            cases=msgspec.structs.replace(
                summary,
                unrecorded=unrecorded,
                specified=_specified(report["params"]),
                # As recorded; who knows of live calls, or of attempts, says so.
                unusable=unusable_of(summary, Causes()),
            ),
            took=self._summing.took(),
            numbers=list(self._measures.numbers),
            left_out=omissions_in(report),
            parameters=digest(canonical_json({name: value for name, value in asked.items() if name != "cases"})),
            inputs=sorted(each["sha256"] for each in report.get("inputs", ())),
        )

    def _unrecorded(self, report: dict[str, Json]) -> list[str]:
        return sorted(self._measures.unrecorded(report))

    def _wrong(self, error: Exception) -> InfrastructureError:
        what = f"{type(error).__name__}: {error}"
        where = f"{self._place}: " if self._place else ""
        return InfrastructureError(
            f"{where}{self._evaluator.name} cannot say how the cases of this run went ({what}); where another version "
            "wrote it, or it was changed since, evaluate again"
        )


def _said(line: bytes, record: str, name: object, observation: Observation) -> bytes:
    """A line of records.jsonl without its place, its repeat and what the answer took, so that the same answer says the
    same in another file, and as another repeat.
    """
    said = _TOOK.sub(b"", line.removeprefix(b'{"record":' + msgspec.json.encode(record) + b","))
    if observation.repeat is None:
        return said
    # The first one alone: what an answer quotes is the answer.
    said = said.replace(b'"repeat":%d,' % observation.repeat, b"", 1)
    # As records of vs are called.
    own = name == f"{observation.case}#{observation.repeat}"
    return said.replace(b'"id":' + msgspec.json.encode(name) + b",", b"", 1) if own else said


def _specified(params: Mapping[str, Any]) -> dict[str, str]:
    """{case: the digest of all that is asked of it}, of parameters that list their cases by id."""
    cases = params.get("cases")
    if not isinstance(cases, list) or not all(isinstance(case, dict) and "id" in case for case in cases):
        return {}
    asked = ({key: value for key, value in case.items() if key not in _BESIDE} for case in cases)
    return {str(case["id"]): digest(canonical_json(case))[:_DIGITS] for case in asked}
