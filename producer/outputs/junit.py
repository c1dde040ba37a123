"""JUnit XML for Jenkins' xUnit plug-in and GitLab: a testcase for each case of a run, not for each repeat.

It keeps to the elements, order and attributes of xUnit's junit-10.xsd, to the characters of XML 1.0, and to GitLab's
limits: 30 MB a file, 500,000 testcases, 255 characters a name. GitLab ignores a second testcase of one name. GitLab
shows a failure's text and Jenkins its message, so both are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from evalq.evalcore.compare.summary import CaseColumn, RunCases
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.contract.measures import Measure, pass_measure
from evalq.evalcore.files import write_atomic
from evalq.evalcore.views.markdown import visible
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of
from evalq.producer.outputs.tables import records_of

State = Literal["passed", "failure", "error", "skipped"]

MOST_CASES = 100_000
"""Testcases in a file. GitLab of 2024 refused files of more than 250,000 objects; this makes at most half of them."""
MOST_BYTES = 28_000_000
_NAME, _TEXT = 255, 2_000

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NO_CLASS = re.compile(r"[^\w@+-]+")


NO_ANSWER = "no answer"
"""The ``kind`` of a case without an answer."""


class Testcase(NamedTuple):
    """One result under a unique name; ``kind`` and ``message`` say why it did not pass, ``text`` in full."""

    name: str
    state: State = "passed"
    kind: str = ""
    message: str = ""
    text: str = ""


class JunitSuite(NamedTuple):
    """Testcases that belong together; ``group`` is their classname, by which viewers fold them."""

    name: str
    group: str
    cases: Sequence[Testcase]
    properties: Mapping[str, str] = {}


def junit(name: str, suites: Sequence[JunitSuite]) -> bytes:
    """The file. If it has no room for all testcases, it first leaves out passed ones, and says so."""
    blocks, room = _Elements(), _FileRoom(MOST_CASES, MOST_BYTES)
    kept: list[dict[int, str]] = [{} for _ in suites]
    # Twice over all suites, so that passed cases do not take the room of another suite's failures.
    for urgent in (True, False):
        for suite, elements in zip(suites, kept, strict=True):
            for index, case in enumerate(suite.cases):
                if room.full:
                    break
                if (case.state != "passed") == urgent and room.take(element := blocks.element(suite.group, case)):
                    elements[index] = element
    parts = [_suite_element(suite, elements, blocks) for suite, elements in zip(suites, kept, strict=True)]
    tests, failures, errors = (sum(part.counts[at] for part in parts) for at in range(3))
    head = f'<testsuites name={_quoted(name)} tests="{tests}" failures="{failures}" errors="{errors}">'
    body = "".join(part.text for part in parts)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}\n{body}</testsuites>\n'.encode()


class _FileRoom:
    """The room that is left, in testcases and in bytes."""

    def __init__(self, cases: int, size: int) -> None:
        self._cases, self._size = cases, size

    @property
    def full(self) -> bool:
        """Whether there is no room for another testcase."""
        return not self._cases

    def take(self, element: str) -> bool:
        """Whether ``element`` fits; if so, its room is taken."""
        size = len(element.encode())
        if not self._cases or size > self._size:
            return False
        self._cases, self._size = self._cases - 1, self._size - size
        return True


class _SuiteElement(NamedTuple):
    text: str
    counts: tuple[int, int, int]


def _suite_element(suite: JunitSuite, kept: Mapping[int, str], blocks: _Elements) -> _SuiteElement:
    """A suite with its ``kept`` testcases, in their order."""
    indexes = sorted(kept)
    elements, states = [kept[index] for index in indexes], [suite.cases[index].state for index in indexes]
    left = [case.state for index, case in enumerate(suite.cases) if index not in kept]
    if left:
        passed = left.count("passed")
        message = f"{len(left):,} testcases are left out, {passed:,} of which passed: a file has room for no more"
        # A skipped testcase, since every viewer shows it; XML comments are invisible.
        elements.append(blocks.element(suite.group, Testcase("(left out)", "skipped", "left out", message)))
        states.append("skipped")
    tests, failures, errors = len(states), states.count("failure"), states.count("error")
    head = (
        f'<testsuite name={_quoted(_cut(suite.name, _NAME))} tests="{tests}" failures="{failures}" '
        f'errors="{errors}" skipped="{states.count("skipped")}">\n'
    )
    facts = "".join(
        f"<property name={_quoted(_cut(key, _NAME))} value={_quoted(_cut(value, _TEXT))}/>\n"
        for key, value in suite.properties.items()
    )
    facts = f"<properties>\n{facts}</properties>\n" if facts else ""
    return _SuiteElement(f"{head}{facts}{''.join(elements)}</testsuite>\n", (tests, failures, errors))


class _Elements:
    """Makes the elements of testcases, each under a new name."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._again: dict[tuple[str, str], int] = {}

    def element(self, group: str, case: Testcase) -> str:
        """The element of one testcase."""
        head = f"<testcase classname={_quoted(group)} name={_quoted(self._name(group, case.name))}"
        if case.state == "passed":
            return f"{head}/>\n"
        message = _cut(" ".join(_clean(case.message).split()), _TEXT)
        text = _cut(_clean(case.text or case.message), _TEXT)
        inner = f"<{case.state} type={_quoted(case.kind)} message={_quoted(message)}>{_text(text)}</{case.state}>"
        return f"{head}>{inner}</testcase>\n"

    def _name(self, group: str, name: str) -> str:
        """``name`` if it can be written as it is; else its beginning with a digest of the whole."""
        # Continue after the last one, or many of one name would take quadratic time.
        plain, again = " ".join(_clean(name).split()), self._again.get((group, name), 0)
        found = plain if plain == name and len(plain) <= _NAME else ""
        # Viewers identify a testcase by its name across runs, so the digest depends on the whole name only.
        while not found or (group, found) in self._seen:
            end = blake2b(f"{again}:{name}".encode(errors="surrogatepass"), digest_size=6).hexdigest()
            found, again = f"{plain[: _NAME - 14].rstrip()} ~{end}".lstrip(), again + 1
        self._seen.add((group, found))
        self._again[group, name] = again
        return found


def _clean(text: str) -> str:
    """``text`` without characters that XML forbids or that control a terminal."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", visible(text))


def _cut(text: str, most: int) -> str:
    text = _clean(text)
    if len(text) <= most:
        return text
    end = f"… ({len(text):,} characters)"
    return text[: most - len(end)] + end


def _text(text: str) -> str:
    return escape(text, quote=False).replace("\r", "&#13;")


def _quoted(text: str) -> str:
    return f'"{escape(_clean(text))}"'


def class_of(*names: str) -> str:
    """A classname: each name without the dots and other signs by which viewers would cut it."""
    return ".".join(_NO_CLASS.sub("_", name)[:80] or "_" for name in names)


def run_suite(
    run: RunCases,
    *,
    allowed: str = "",
    reasons: Mapping[str, Sequence[str]] | None = None,
    excused: Mapping[str, str] | None = None,
    before: Mapping[str, str] | None = None,
) -> JunitSuite:
    """The cases of ``run``: a case fails if any of its answers fails, and is an error if it has no answer.

    ``allowed`` is a reason to skip both instead; ``excused`` are cases to skip, with the reason. ``before`` has each
    case's passes in the baseline, ``reasons`` why its answers failed. Scores neither pass nor fail, so with scores only
    a case passes if it has an answer. Each kind of data that the numbers leave out is a skipped testcase.
    """
    name = f"{run.called}@{run.target}" if run.target else run.called
    names = (name,) if run.suite == "default" else (run.suite, name)
    cases = [
        case
        if case.state == "passed"
        else _failed(_with_baseline(case, before), (excused or {}).get(case.name, allowed), reasons or {})
        for case in _cases(run)
    ]
    # Skipped testcases, since every viewer shows them; properties are invisible.
    cases += [
        Testcase(f"(left out) {each.what}: {each.why}", "skipped", "left out", each.sentence(), each.sentence(20))
        for each in run.left_out
    ]
    return JunitSuite(" ".join(names), class_of("evalq", *names), cases, _facts(run))


def _with_baseline(case: Testcase, before: Mapping[str, str] | None) -> Testcase:
    baseline = (before or {}).get(case.name, "")
    return case._replace(message=f"{case.message}; {baseline}") if baseline else case


def failing_cases(run: RunCases) -> list[Testcase]:
    """The cases that did not pass with every answer, in the order of their ids."""
    return [case for case in _cases(run) if case.state != "passed"]


def _failed(case: Testcase, allowed: str, reasons: Mapping[str, Sequence[str]]) -> Testcase:
    lines = [case.message, *([allowed] if allowed else []), *reasons.get(case.name, ())]
    state: State = "skipped" if allowed else case.state
    return case._replace(state=state, message="; ".join(lines[: 1 + bool(allowed)]), text="\n".join(lines))


def _cases(run: RunCases) -> Iterator[Testcase]:
    summary = run.cases
    measure = pass_measure(summary.measures)
    columns = [summary.columns[each.name] for each in summary.measures]
    judged = None if measure is None else summary.columns[measure.name]
    for at, (case, missing) in enumerate(zip(summary.ids, summary.missing, strict=True)):
        answers = max((column.count[at] for column in columns), default=0)
        missing_note = f"; {missing:,} more did not come" if missing else ""
        passed, of = (answers, answers) if judged is None or measure is None else _passed(judged, measure, at)
        if not answers:
            yield Testcase(case, "error", NO_ANSWER, f"no answer of this case came, of {missing:,}")
        elif passed < of:
            yield Testcase(case, "failure", "failed", f"{passed:,} of {of:,} answers passed{missing_note}")
        else:
            yield Testcase(case)


def _passed(column: CaseColumn, measure: Measure, at: int) -> tuple[int, int]:
    ones, of = round(column.total[at]), column.count[at]
    return (ones if measure.better == "higher" else of - ones), of


def _facts(run: RunCases) -> dict[str, str]:
    facts = {"run": run.run, "evaluator": run.evaluator, "version": run.version, "suite": run.suite}
    facts |= {"target": run.target} if run.target else {}
    facts |= {f"records.{key}": str(count) for key, count in sorted(run.records.items())}
    for measure in run.cases.measures:
        column = run.cases.columns[measure.name]
        if any(column.count):
            facts[measure.name] = f"{sum(column.total) / sum(column.count):.6g}"
    return facts


_REASONS = 3


def write_junit(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any]) -> None:
    """The cases of a finished run, each with the first reasons why its answers failed."""
    run = cases_of(folder)
    write_atomic(path, junit(f"evalq {evaluator.name}", [run_suite(run, reasons=_reasons(folder, evaluator))]))


def _reasons(folder: RunFolder, evaluator: Evaluator[Any, Any]) -> dict[str, list[str]]:
    """{case: the reasons of its first failed answers}."""
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
            observation = measures.observe(plain(line))
            reasons = found.setdefault(observation.case if observation is not None else "", [])
            if len(reasons) < _REASONS:
                reasons.append(f"{row.record}: {row.reason or '; '.join(_evidence(row))}")
    return found


def _evidence(row: Any) -> list[str]:
    """Expected and actual values of the first failed checks."""
    failed = (each for each in row.evidence() if not each.fine)
    return [f"{each.what}: {each.came[:200]} instead of {each.expected[:200]}" for each in islice(failed, _REASONS)]
