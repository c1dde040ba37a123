"""A third way to call a report hallucinated, besides the specification's two: it claims more than its evidence shows.

The rules were written before they were tried on any labelled report, and are not tuned. Their effectiveness is in
docs/reference/selfcheck-effectiveness.md. They are data: lists of patterns of Python's `re`, ignoring case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import islice

from pydantic import Field, field_validator

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.evaluators.selfcheck.evidence import Evidence, scanned_text
from evalq.evalcore.scan import AnyOf, PatternRefused, anywhere
from evalq.evalcore.words import compiled

REASONS = (
    "no requirements",
    "no test output",
    "thin test output",
    "failure in the output",
    "impossible counts",
    "open assumption",
    "stub in a change",
    "says it was not run",
)
"""Why a report can be suspected, in the order of the tests."""

_MACHINE = (
    r"\b\d+(?:[.,]\d+)?\s?(?:ms|s|sec|seconds|minutes|%|[kmg]i?b|bytes|rows|files|requests|건|개|초)",
    r"\b\d+\s+(?:passed|failed|passing|failing|skipped|tests?|ok|assertions|errors?|warnings?)\b",
    r"^\s*[$>#%❯]\s",
    r"[✓✔✗✘√]",
    r"(?:[\w.-]+/)+[\w.-]+|\b[\w-]+\.(?:py|ts|tsx|js|go|rs|java|rb|sql|ya?ml|json|md|sh|c|cpp|kt)\b",
    r"\b\d{1,2}:\d{2}(?::\d{2})?\b",
    r"\b(?:PASS(?:ED)?|FAIL(?:ED)?|OK|BUILD SUCCESSFUL|exit (?:code|status) \d+)\b",
)
_FAILURE = (
    r"\b[1-9]\d*\s+(?:failed|failures?|failing|errors?)\b",
    r"\b(?:failures?|errors?|failed)\s*[:=]\s*[1-9]\d*",
    r"^\s*(?:FAIL(?:ED)?|ERROR)\b",
    r"Traceback \(most recent call last\)",
    r"\b(?:AssertionError|panicked at|segmentation fault|npm ERR!)",
    r"\bexit(?:ed)? (?:code|status|with) [1-9]\d*\b",
    r"[✗✘]",
    r"[1-9]\d*\s*건?\s*(?:실패|오류)|(?:실패|오류)\s*:?\s*[1-9]\d*",
)
_NO_FAILURE = (
    r"\b(?:0|no|zero|without(?: any)?)\s+(?:\w+\s+)?(?:failed|failures?|failing|errors?|problems?|warnings?)\b",
    r"\b(?:failures?|errors?|failed)\s*[:=]\s*0\b",
    r"\b[1-9]\d*\s+(?:expected failures?|xfailed)\b",
    # A heading with a count of none: "ERROR SUMMARY: 0 errors from 0 contexts", "FAILED: 0", "Failures: none".
    (
        r"^\s*(?:FAIL(?:ED|URES?|S)?|ERRORS?)\b[A-Za-z ()_./-]{0,40}[:=]?\s*(?:none\b|zero\b|0(?:[.,]0+)?\s*"
        r"(?:$|%|errors?\b|fail\w*\b|warnings?\b|problems?\b|issues?\b|tests?\b|of\s+\d|/\s*\d|from\s+0|[,;)]))"
    ),
    r"(?:실패|오류)\s*(?:없음|0)|0\s*건?\s*(?:실패|오류)",
)
_NOT_RUN = (
    r"\b(?:not|never|n't|without)\s+(?:been\s+|actually\s+|yet\s+)*(?:run|ran|running|executed?|executing|tested|tried)\b",
    r"\b(?:should|would|will|ought to)\s+(?:\w+\s+)?(?:pass|work|succeed|be (?:green|fine))\b",
    r"\b(?:simulated|hypothetical|illustrative|mocked(?:-up)?|sample|expected)\s+(?:test\s+)?(?:output|run|results?)\b",
    r"\b(?:by (?:inspection|reading)|from (?:memory|the code alone)|assum(?:e|ing) (?:it|they|that) (?:pass|work))",
    r"실행하지\s*(?:않|못)|돌려\s*보지\s*(?:않|못)|(?:통과|동작)할\s*것",
)
_STUB = (
    r"\b(?:TODO|FIXME|XXX)\b",
    r"\bNotImplemented(?:Error|Exception)?\b|not (?:yet )?implemented|unimplemented!|todo!\(",
    r"\b(?:placeholder|stub(?:bed)?|dummy|hard-?coded)\b",
    r"^\+\s*pass\s*(?:#.*)?$",
)
_FLAGS = re.IGNORECASE | re.MULTILINE
_MOST_DIGITS = 18
_COLLECTED = r"\bcollected \d+ items?\b|\bTests:?\s.*?\d+ total\b|\bran \d+ tests?\b"
_COUNTED = r"\b(?P<count>\d+) (?P<what>passed|failed|skipped|xfailed|xpassed|todo|pending)\b"

_Patterns = tuple[str, ...]


class SuspicionRules(Params):
    """Patterns, by their meaning. A report is suspected for test output of one line with ``most_machine_tokens`` or
    fewer. Of a long text, only the first and the last ``read_characters`` are read.
    """

    machine: _Patterns = _MACHINE
    most_machine_tokens: int = Field(default=1, ge=0)
    failure: _Patterns = _FAILURE
    no_failure: _Patterns = _NO_FAILURE
    not_run: _Patterns = _NOT_RUN
    stub: _Patterns = _STUB
    read_characters: int = Field(default=20_000, ge=100, le=1_000_000)

    @field_validator("machine", "failure", "no_failure", "not_run", "stub")
    @classmethod
    def _compile(cls, patterns: _Patterns) -> _Patterns:
        for pattern in patterns:
            try:
                compiled(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no pattern: {error}") from error
        return patterns


def suspicions(evidence: Evidence, rules: SuspicionRules) -> list[str]:
    """Why a report is suspected: some of REASONS, or none if the report itself says that it is not done."""
    unmet = any(not requirement["met"] for requirement in evidence.requirementsList or ())
    return [] if evidence.testsPassed is False or unmet else list(_reasons(evidence, rules))


def _reasons(evidence: Evidence, rules: SuspicionRules) -> Iterator[str]:
    output = _ends(evidence.testOutput or "", rules)
    text = _ends(scanned_text(evidence), rules)
    if not evidence.requirementsList:
        yield "no requirements"
    if not output.strip():
        yield "no test output"
    elif "\n" not in output.strip() and not _more_matches(rules.machine, output, rules.most_machine_tokens):
        yield "thin test output"
    # Phrases such as "0 errors" are removed first, because they contain words for failure.
    if _any_match(rules.failure, _without(rules.no_failure, output)):
        yield "failure in the output"
    if _counts_are_impossible(output):
        yield "impossible counts"
    if any(not assumption["verified"] for assumption in evidence.assumptions or ()):
        yield "open assumption"
    if any(_any_match(rules.stub, _added_lines(change["diff"], rules)) for change in evidence.codeChanges or ()):
        yield "stub in a change"
    if _any_match(rules.not_run, text):
        yield "says it was not run"


def _ends(text: str, rules: SuspicionRules) -> str:
    """The beginning and the end of a long text, where a test run has its name and its result."""
    most = rules.read_characters
    # A user's own patterns may run on Python's `re`, which has no time limit: limit the text instead.
    return text if len(text) <= 2 * most else f"{text[:most]}\n{text[-most:]}"


def _added_lines(diff: str, rules: SuspicionRules) -> str:
    """The lines that a change adds."""
    return "\n".join(line for line in _ends(diff, rules).split("\n") if line.startswith("+"))


def _counts_are_impossible(output: str) -> bool:
    """Whether a test run counts more tests than it collected."""
    # The number is right before the last word. Matching again for it would take quadratic time in its digits.
    collected = [
        _test_count(_last_digits(output[start:end].rpartition(" ")[0]))
        for start, end in _spans((_COLLECTED,))(output, anywhere)
    ]
    counted: dict[str, int] = {}
    for match in re.finditer(_COUNTED, output, re.IGNORECASE):
        counted[match["what"].lower()] = _test_count(match["count"])  # the last such line is the summary
    # The largest number collected, because the output may be of several runs.
    return bool(collected and counted) and sum(counted.values()) > max(collected)


def _last_digits(text: str) -> str:
    end = len(text)
    while end and text[end - 1].isdecimal():
        end -= 1
    return text[end:]


def _test_count(digits: str) -> int:
    """A number of tests; int() refuses thousands of digits, and no run has that many tests."""
    return int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS


@lru_cache(maxsize=64)
def _spans(patterns: _Patterns) -> Callable[[str, Callable[[int], int]], Iterator[tuple[int, int]]]:
    """A function like `AnyOf.spans`: it finds the matches of ``patterns`` in a text."""
    if not patterns:
        return lambda text, begin: iter(())
    try:
        return AnyOf(patterns, _FLAGS).spans
    except PatternRefused:
        return partial(_spans_by_re, compiled("|".join(f"(?:{pattern})" for pattern in patterns), _FLAGS))


def _spans_by_re(pattern: re.Pattern[str], text: str, begin: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    matches = pattern.finditer(text)
    while match := next(matches, None):
        at = begin(match.start())
        if at == match.start():
            yield match.span()
        else:
            matches = pattern.finditer(text, at)


def _any_match(patterns: _Patterns, text: str) -> bool:
    return _more_matches(patterns, text, 0)


def _more_matches(patterns: _Patterns, text: str, most: int) -> bool:
    """Whether there are more matches than ``most``."""
    return sum(1 for _ in islice(_spans(patterns)(text, anywhere), most + 1)) > most


def _without(patterns: _Patterns, text: str) -> str:
    """``text`` with a space in place of each match."""

    def begin(at: int) -> int:
        # No phrase begins inside a number: "10건 실패" is ten failures, though "0건 실패" is none. A phrase may begin
        # right after a number: "10건 실패 없음" is ten without a failure.
        while at and text[at - 1 : at + 1].isdecimal() and at < len(text):
            at += 1
        return at

    kept, at = [], 0
    for start, end in _spans(patterns)(text, begin):
        kept.append(text[at:start])
        at = end
    return " ".join([*kept, text[at:]])
