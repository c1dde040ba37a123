"""Sample answers for a decision: what a case was asked, and what the baseline and the candidate answered.

A run's samples are read from its folder. A baseline keeps one answer to each case beside its file, since a checkout in
CI has no run folder of the baseline. Questions and answers are text of others, and may be anything.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.files import open_input
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.tables import records_of
from evalq.producer.page.answers import RecordedFiles, ShownAnswer, answer_of, question_in

LONGEST = 600
"""Characters of a question or an answer that are shown; the run folder has all of it."""
_AT_ONCE = 2_000
"""How many cases' answers are read at once."""
_SHORTEST = len(b'{"case":"","answer":""}\n')
KEPT_BYTES = 1 << 20
"""What a baseline keeps of answers at most."""


class SampleAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer to a case; ``reason`` says why it failed."""

    case: str
    answer: str
    question: str = ""
    passed: bool = True
    reason: str = ""


class _Found(msgspec.Struct):
    """The first record of a case that went as wanted, or its first one at all."""

    record: str
    line: bytes
    wanted: bool
    reason: str


@stdout_to_stderr()
def samples_in(folder: RunFolder, cases: Collection[str], *, passed: bool) -> dict[str, SampleAnswer]:
    """{case: an answer to it, with its question}, one that ``passed`` or did not if there is one.

    Empty for a folder without records, and for an evaluator without cases.
    """
    return {each.case: each for each in _samples(folder, cases, passed=passed, questions=True)}


def _samples(folder: RunFolder, cases: Collection[str], *, passed: bool, questions: bool) -> Iterator[SampleAnswer]:
    """An answer to each of ``cases``, those of the first ones first."""
    with contextlib.suppress(EvalqError, OSError, ValueError, KeyError):
        found = _records(folder, plugins.get(folder.report()["evaluator"]), cases, passed=passed)
        rest = [case for case in cases if case in found]
        while rest:
            some, rest = rest[:_AT_ONCE], rest[_AT_ONCE:]
            answers = _answers(folder, {case: found[case] for case in some})
            for case in some:
                if case in answers:
                    yield SampleAnswer(
                        case,
                        _cut(answers[case].text or answers[case].error),
                        _question(folder, case, answers[case]) if questions else "",
                        found[case].wanted == passed,
                        _cut(found[case].reason),
                    )


def _records(
    folder: RunFolder, evaluator: Evaluator[Any, Any], cases: Collection[str], *, passed: bool
) -> dict[str, _Found]:
    measures, rows = evaluator.measures, evaluator.views.rows
    if measures is None:
        return {}
    see, decode = rows.reader(folder.report()), msgspec.json.Decoder(rows.line).decode
    plain = msgspec.json.Decoder().decode
    found: dict[str, _Found] = {}
    left = set(cases)
    with records_of(folder).open("rb") as lines:
        for line in lines:
            if not left:
                break
            observation = measures.observe(plain(line))
            if observation is None or observation.case not in left:
                continue
            row = see(decode(line))
            if row is None:
                continue
            good = row.state == "good"
            known = found.get(observation.case)
            if known is None or (not known.wanted and good == passed):
                found[observation.case] = _Found(row.record, line, good == passed, "" if good else row.reason or "")
            if good == passed:
                left.discard(observation.case)
    return found


def _answers(folder: RunFolder, found: Mapping[str, _Found]) -> dict[str, ShownAnswer]:
    """{case: the answer of its record}, from the file of outputs, or as far as the record itself has it."""
    wanted: dict[Path, dict[int, str]] = {}
    answers, files = {}, RecordedFiles(folder)
    for case, each in found.items():
        place = files.place(each.record)
        if place is not None:
            wanted.setdefault(place[0], {})[place[1]] = case
        elif b'"output"' in each.line:
            answers[case] = answer_of(each.line)
    for path, numbers in wanted.items():
        with open_input(path) as lines:
            for number, line in enumerate(islice(lines, max(numbers) + 1)):
                if number in numbers:
                    answers[numbers[number]] = answer_of(line)
    return answers


def _question(folder: RunFolder, case: str, answer: ShownAnswer) -> str:
    question = question_in(folder, case) or answer.question
    return _cut("\n".join(text for _, text in question.messages)) if question else ""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


# The answers that a baseline keeps, beside its file.

_UNSAFE = re.compile(r"[^A-Za-z0-9._:+-]+")
FOLDER = Path("evalq-baselines")
"""Where baselines are: small enough to commit, so that approvals are reviewed like other changes."""
SUFFIX = ".answers.jsonl"


class _OfRun(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of such a file: the run that gave the answers."""

    run: str


def samples_to_keep(folder: RunFolder, cases: Sequence[str]) -> Iterator[SampleAnswer]:
    """Answers to the first of ``cases``, as many as a baseline may keep; reads only as many as are taken."""
    return _samples(folder, sorted(cases)[: KEPT_BYTES // _SHORTEST], passed=True, questions=False)


def encode_samples(run: str, samples: Iterable[SampleAnswer]) -> bytes:
    """The file of the answers of a baseline's ``run``: as many as `KEPT_BYTES` have room for."""
    lines = [msgspec.json.encode(_OfRun(run)) + b"\n"]
    room = KEPT_BYTES - len(lines[0])
    for sample in samples:
        line = msgspec.json.encode(sample) + b"\n"
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    return b"".join(lines)


def kept_samples(path: Path, run: str, cases: Sequence[str]) -> dict[str, SampleAnswer]:
    """{case: the answer that the baseline in ``path`` keeps}; without the cases of which it keeps none.

    Empty if the file has the answers of another run than ``run``: a server may have a later approved run, of which this
    checkout has no file.
    """
    found: dict[str, SampleAnswer] = {}
    with contextlib.suppress(EvalqError, OSError, msgspec.DecodeError, UnicodeDecodeError), open_input(path) as lines:
        if msgspec.json.decode(next(lines, b""), type=_OfRun).run != run:
            return {}
        for line in islice(lines, KEPT_BYTES):
            sample = msgspec.json.decode(line, type=SampleAnswer)
            if sample.case in cases:
                found[sample.case] = sample
    return found


def folder_of(run: RunCases) -> RunFolder | None:
    """The folder that ``run`` was named by, if it is here.

    A folder may have the name of a baseline, and be of another run.
    """
    path = Path(run.named) if run.named else None
    with contextlib.suppress(EvalqError, OSError, ValueError):
        folder = RunFolder.existing(path) if path is not None and path.is_dir() else None
        return folder if folder is not None and folder.info().run == run.run else None
    return None


def base_samples(baseline: str, partner: str, run: RunCases, cases: Sequence[str]) -> dict[str, SampleAnswer]:
    """{case: an answer that passed} of the run ``partner`` (its id), with which ``run`` was compared.

    ``baseline`` is the baseline's name, or a run folder. Answers of any other run are not shown.
    """
    if not baseline or not partner:
        return {}
    for path in sorted((FOLDER / baseline).glob(f"*{SUFFIX}")):
        if kept := kept_samples(path, partner, cases):
            return kept
    folder = folder_of(msgspec.structs.replace(run, named=baseline, run=partner))
    return samples_in(folder, cases, passed=True) if folder is not None else {}


def slot_of(run: RunCases) -> str:
    """The slot of ``run`` under a baseline's name: the run's name, with its target if it has one."""
    # Targets may have colons (llama3:8b), which not every file system allows in names.
    target = _UNSAFE.sub("-", run.target).replace(":", "~")
    return f"{run.called}@{target}" if target else run.called
