"""JUnit XML as Jenkins' xUnit plug-in and GitLab read it: a testcase for each case of a run, whatever its repeats.

Held: the elements, their order and the attributes of xUnit's junit-10.xsd (no other is written); XML 1.0's characters
only; GitLab's 30 MB a file, 500,000 testcases and 255 characters a name, and that it ignores the second testcase of one
name. It shows the text of a failure, Jenkins its message: both are given.
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
"""Of a file. With what each may hold, half of the objects beyond which a GitLab of 2024 took no file (250,000)."""
MOST_BYTES = 28_000_000
_NAME, _TEXT = 255, 2_000

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NO_CLASS = re.compile(r"[^\w@+-]+")


class Testcase(NamedTuple):
    """One result under a name that is its own; ``kind`` and ``message`` say why it did not pass, ``text`` in full."""

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
    """The file. Where the suites hold more than it may, testcases that passed are left out first, and it says so."""
    blocks, room = _Elements(), _FileRoom(MOST_CASES, MOST_BYTES)
    kept: list[dict[int, str]] = [{} for _ in suites]
    # Two turns over all suites: one with many passed cases leaves room for the failures of the next.
    for urgent in (True, False):
        for suite, elements in zip(suites, kept, strict=True):
            for place, case in enumerate(suite.cases):
                if room.full:
                    break
                if (case.state != "passed") == urgent and room.take(element := blocks.element(suite.group, case)):
                    elements[place] = element
    parts = [_suite_element(suite, elements, blocks) for suite, elements in zip(suites, kept, strict=True)]
    tests, failures, errors = (sum(part.counts[at] for part in parts) for at in range(3))
    head = f'<testsuites name={_quoted(name)} tests="{tests}" failures="{failures}" errors="{errors}">'
    body = "".join(part.text for part in parts)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}\n{body}</testsuites>\n'.encode()


class _FileRoom:
    """What still fits, in testcases and in bytes."""

    def __init__(self, cases: int, size: int) -> None:
        self._cases, self._size = cases, size

    @property
    def full(self) -> bool:
        """Whether no testcase fits any more."""
        return not self._cases

    def take(self, element: str) -> bool:
        """Whether ``element`` fits; then it has its place."""
        size = len(element.encode())
        if not self._cases or size > self._size:
            return False
        self._cases, self._size = self._cases - 1, self._size - size
        return True


class _SuiteElement(NamedTuple):
    text: str
    counts: tuple[int, int, int]


def _suite_element(suite: JunitSuite, kept: Mapping[int, str], blocks: _Elements) -> _SuiteElement:
    """A suite with those of its testcases that are ``kept``, in their order."""
    places = sorted(kept)
    elements, states = [kept[place] for place in places], [suite.cases[place].state for place in places]
    left = [case.state for place, case in enumerate(suite.cases) if place not in kept]
    if left:
        passed = left.count("passed")
        message = f"{len(left):,} testcases are left out, {passed:,} of which passed: a file has room for no more"
        # As a skipped testcase, which every viewer counts and shows; a comment in XML nobody sees.
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
    """Makes the elements of testcases, each under a name that none before it has."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._again: dict[tuple[str, str], int] = {}

    def element(self, group: str, case: Testcase) -> str:
        """One testcase."""
        head = f"<testcase classname={_quoted(group)} name={_quoted(self._name(group, case.name))}"
        if case.state == "passed":
            return f"{head}/>\n"
        message = _cut(" ".join(_clean(case.message).split()), _TEXT)
        text = _cut(_clean(case.text or case.message), _TEXT)
        inner = f"<{case.state} type={_quoted(case.kind)} message={_quoted(message)}>{_text(text)}</{case.state}>"
        return f"{head}>{inner}</testcase>\n"

    def _name(self, group: str, name: str) -> str:
        """``name`` where it can be written as it is; else as much of it as can, with a digest of the whole."""
        # From the last one on: else many of one name would take the square of their number.
        plain, again = " ".join(_clean(name).split()), self._again.get((group, name), 0)
        found = plain if plain == name and len(plain) <= _NAME else ""
        # Viewers know a testcase by its name from run to run: the digest is of the whole name, so it stays.
        while not found or (group, found) in self._seen:
            end = blake2b(f"{again}:{name}".encode(errors="surrogatepass"), digest_size=6).hexdigest()
            found, again = f"{plain[: _NAME - 14].rstrip()} ~{end}".lstrip(), again + 1
        self._seen.add((group, found))
        self._again[group, name] = again
        return found


def _clean(text: str) -> str:
    """Without what XML forbids, and what a viewer would obey instead of show."""
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
    aside: Mapping[str, str] | None = None,
    before: Mapping[str, str] | None = None,
) -> JunitSuite:
    """The cases of ``run``: one fails when any of its answers does, and is an error when none came.

    With ``allowed``, which says why, neither blocks: both are skipped then, as is a case in ``aside``, for the reason
    there. ``before`` says how a case went in the baseline. ``reasons`` of a case are why its answers failed. Scores
    neither pass nor fail, so a case of an evaluator that has them alone passes when it was answered. What the run's
    numbers leave out is skipped, a testcase a kind.
    """
    place = f"{run.called}@{run.target}" if run.target else run.called
    names = (place,) if run.suite == "default" else (run.suite, place)
    excused = aside or {}
    cases = [
        case
        if case.state == "passed"
        else _failed(_beside(case, before), excused.get(case.name, allowed), reasons or {})
        for case in _cases(run)
    ]
    # As skipped testcases, which every viewer counts and shows; a property nobody sees.
    cases += [
        Testcase(f"(left out) {each.what}: {each.why}", "skipped", "left out", each.sentence(), each.sentence(20))
        for each in run.left_out
    ]
    return JunitSuite(" ".join(names), class_of("evalq", *names), cases, _facts(run))


def _beside(case: Testcase, before: Mapping[str, str] | None) -> Testcase:
    there = (before or {}).get(case.name, "")
    return case._replace(message=f"{case.message}; {there}") if there else case


def failing_cases(run: RunCases) -> list[Testcase]:
    """Those that did not pass with every answer, in the order of their ids."""
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
        lacking = f"; {missing:,} more did not come" if missing else ""
        passed, of = (answers, answers) if judged is None or measure is None else _passed(judged, measure, at)
        if not answers:
            yield Testcase(case, "error", "no answer", f"no answer of this case came, of {missing:,}")
        elif passed < of:
            yield Testcase(case, "failure", "failed", f"{passed:,} of {of:,} answers passed{lacking}")
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
    """{case: why its first answers that did not pass did not}."""
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
    """What was asked of it and did not come, in a few words each."""
    failed = (each for each in row.evidence() if not each.fine)
    return [f"{each.what}: {each.came[:200]} instead of {each.expected[:200]}" for each in islice(failed, _REASONS)]
