"""The evidence that an agent gives for its claim to be done, with the specification's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import msgspec

from evalq.evalcore.records.json_values import typed


class Requirement(TypedDict):
    """A requirement and whether it was met."""

    requirement: str
    met: bool


class Assumption(TypedDict):
    """An assumption, whether it was verified, and where."""

    assumption: str
    verified: bool
    source: NotRequired[str | None]


class EvidenceItem(TypedDict):
    """A piece of evidence of some type: a log, an output, a note."""

    type: str
    content: str


class CodeChange(TypedDict):
    """A changed file and its diff."""

    file: str
    diff: str


@dataclass(frozen=True)
class GoalPath:
    """The result for one expected path; ``matches`` is None without a pattern."""

    path: str
    exists: bool
    nonEmpty: bool = False
    matches: bool | None = None
    reason: str | None = None

    @property
    def reached(self) -> bool:
        """Whether the path exists, is not empty, and matches its pattern, if it has one."""
        # Not `matches is True`: None means that there is no pattern.
        return self.exists and self.nonEmpty and self.matches is not False


@dataclass(frozen=True)
class GoalBackwardResult:
    """Whether the goal was reached, judged by the files that it should have left."""

    passed: bool
    paths: list[GoalPath] = field(default_factory=list)

    @property
    def reached(self) -> bool:
        """Whether it passed and every path in it was reached."""
        return self.passed and all(path.reached for path in self.paths)


@dataclass
class Evidence:
    """All keys are optional; None means that the key was not given."""

    testOutput: str | None = None
    testsPassed: bool | None = None
    requirementsList: list[Requirement] | None = None
    assumptions: list[Assumption] | None = None
    evidence: list[EvidenceItem] | None = None
    codeChanges: list[CodeChange] | None = None
    goalVerification: GoalBackwardResult | None = None


class _Checked(msgspec.Struct):
    """The types that a record's keys must have; further keys are ignored."""

    id: str | int | None = None
    hallucinated: bool | None = None
    testOutput: str | None = None
    testsPassed: bool | None = None
    requirementsList: list[Requirement] | None = None
    assumptions: list[Assumption] | None = None
    evidence: list[EvidenceItem] | None = None
    codeChanges: list[CodeChange] | None = None
    goalVerification: GoalBackwardResult | None = None
    # Of any form: `goals` validates them.
    expectedPaths: list[Any] | None = None


class CompletionReport(msgspec.Struct):
    """A line of input: the evidence, with a person's label (True: hallucinated), if there is one.

    ``unresolved``: its expected paths are not looked up yet.
    """

    label: bool | None
    evidence: Evidence
    unresolved: bool


def read_record(record: Mapping[str, Any]) -> CompletionReport:
    """The record in a JSON object. Raises RecordFault with the path of the first key of a wrong type."""
    checked = typed(record, _Checked)
    evidence = Evidence(
        testOutput=checked.testOutput,
        testsPassed=checked.testsPassed,
        # From the line, since quotes show further keys, too.
        requirementsList=record.get("requirementsList"),
        assumptions=record.get("assumptions"),
        evidence=checked.evidence,
        codeChanges=checked.codeChanges,
        goalVerification=checked.goalVerification,
    )
    # Evaluation is a pure function, and runs on other machines: it cannot look them up.
    unresolved = bool(checked.expectedPaths) and checked.goalVerification is None
    return CompletionReport(checked.hallucinated, evidence, unresolved)


def scanned_text(evidence: Evidence) -> str:
    """The text in which danger signals are searched: test output, evidence contents and assumptions, by lines."""
    # SPEC, section 3: these three, but not requirements and diffs.
    parts = [evidence.testOutput] if evidence.testOutput else []
    parts += [item["content"] for item in evidence.evidence or ()]
    parts += [item["assumption"] for item in evidence.assumptions or ()]
    return "\n".join(parts)
