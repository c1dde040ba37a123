"""Pages of one case: what was asked, and all answers of a run; or the answers of two runs side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.markdown import plural
from evalq.producer.page.answers import ShownAnswer, ShownQuestion, answer_of, input_path, question_in
from evalq.producer.page.build import FailedRecord
from evalq.producer.page.render import Html, answer_block, element, evidence_table, joined, question_block
from evalq.producer.page.side_by_side import side_by_side
from evalq.producer.page.words import word
from evalq.producer.viewing.catalogue import KnownRun
from evalq.producer.viewing.frame import PageAnswer, document, link, refusal
from evalq.producer.viewing.index_page import run_title
from evalq.producer.viewing.records import RecordReader
from evalq.producer.viewing.viewer import Query, RunSide, RunSides, ShownRun, Viewer, query_number, query_value

_SHOWN, _MOST = 20, 1_000
NO_ANSWER = "The answer is not here: its file has changed, or is not in the run folder."
NO_QUESTION = (
    "The question is not in the run folder: evalq keeps it if the case or the output has an input, unless --no-prompts "
    "leaves it out."
)


class CaseRecord(NamedTuple):
    """A record about a case: the number of its line, and its answer, if that can be read."""

    number: int
    repeat: int | None
    record: FailedRecord
    answer: ShownAnswer | None = None

    @property
    def name(self) -> str:
        """A heading for it."""
        return "Answer" if self.repeat is None else f"Repeat {self.repeat:,}"


def records_of(
    viewer: Viewer, known: KnownRun, evaluator: Evaluator[Any, Any], report: Mapping[str, Json]
) -> RecordReader | None:
    """The records of a run, if they are here."""
    path = viewer.path_of(known)
    return RecordReader(path, viewer.lines, evaluator.views.rows, report) if path else None


def answer_to(viewer: Viewer, known: KnownRun, record: str, line: bytes = b"") -> ShownAnswer | None:
    """The answer that the record in ``line`` is about: as it was recorded, or as far as the record itself has it."""
    place = input_path(known.folder, record) if known.folder else None
    if place is not None:
        try:
            stream, lines = viewer.lines.open(place[0])
            with stream:
                found = next((data for _, data in lines.read(stream, place[1])), None)
        except OSError:
            found = None
        if found is not None:
            return answer_of(found)
    return answer_of(line) if b'"output"' in line else None


def question_of_case(
    known: KnownRun | None, case: str, answers: Iterable[ShownAnswer | None] = ()
) -> ShownQuestion | None:
    """What was asked about a case, as the run's folder or one of its ``answers`` has it."""
    kept = question_in(known.folder, case) if known is not None and known.folder is not None else None
    return kept or next((each.question for each in answers if each is not None and each.question), None)


def case_of(evaluator: Evaluator[Any, Any], line: bytes) -> str:
    """The case that the record in ``line`` is about; empty for none, or if the line cannot be read."""
    try:
        found = evaluator.measures.observe(msgspec.json.decode(line)) if evaluator.measures else None
    except Exception:  # an evaluator's code, on a line that may be damaged
        return ""
    return found.case if found is not None else ""


def case_records(viewer: Viewer, known: KnownRun, case: str) -> list[CaseRecord]:
    """The records of a run about a case. Raises EvalqError, OSError."""
    report = viewer.report(known)
    evaluator = plugins.get(report["evaluator"]) if report else None
    reader = records_of(viewer, known, evaluator, report) if evaluator and report else None
    if reader is None or evaluator is None:
        return []
    observe = evaluator.measures.observe if evaluator.measures else None
    return [CaseRecord(*found) for found in reader.of_case(case, observe, _MOST)]


def _answered(viewer: Viewer, known: KnownRun | None, found: CaseRecord | None) -> CaseRecord | None:
    """A record with its answer, which is read only for records that are shown."""
    if found is None or known is None:
        return found
    answer = answer_to(viewer, known, found.record.record)
    if answer is None and (path := viewer.path_of(known)) is not None:
        stream, lines = viewer.lines.open(path)
        with stream:
            line = next((line for _, line in lines.read(stream, found.number)), b"")
        answer = answer_of(line) if b'"output"' in line else None
    return found._replace(answer=answer)


def case_page(viewer: Viewer, known: KnownRun, query: Query) -> PageAnswer:
    """What was asked about a case, and each answer of the run."""
    case = query_value(query, "id")
    found = case_records(viewer, known, case) if case else []
    if not found:
        return refusal(404, "No such case", "No record of this run is about it, or its records are not here.")
    first = min(query_number(query, "at"), len(found) - 1)
    shown = [_answered(viewer, known, each) or each for each in found[first : first + _SHOWN]]
    counts = Counter(each.record.status for each in found)
    lede = "The first " if len(found) == _MOST else ""
    lede += f"{plural(len(found), 'answer')}: {', '.join(f'{count:,} {status}' for status, count in counts.items())}."
    run = element("a", run_title(known), href=link("run", known.key), dir="auto")
    header = element(
        "header",
        element("p", run, class_="subject"),
        element("h1", case, dir="auto"),
        element("p", lede, class_="lede"),
    )
    question = question_block(question_of_case(known, case, (each.answer for each in shown)), NO_QUESTION)
    turn = _turning(first, len(found), lambda at: link("run", known.key, "case", id=case, at=at))
    main = joined(
        element("section", element("h2", "Question"), question),
        element("section", element("h2", "Answers"), *(_one(known, each) for each in shown), turn),
    )
    return document(f"{case} · {run_title(known)}", header, main)


def _one(known: KnownRun, found: CaseRecord) -> Html:
    return element(
        "div",
        element("h3", _record_link(known, found), " ", _status(found.record)),
        answer_block(found.answer) if found.answer else element("p", NO_ANSWER, class_="caption"),
        _reason(found.record),
        evidence_table(found.record.evidence),
        class_="measure",
    )


def _record_link(known: KnownRun | None, found: CaseRecord) -> Html:
    if known is None:
        return element("span", found.name)
    return element("a", found.name, href=link("run", known.key, "record", at=found.number + 1))


def _status(record: FailedRecord) -> Html:
    return element("span", record.status, class_=f"status {record.state}")


def _reason(record: FailedRecord) -> Html | None:
    return element("p", record.reason, class_="reason", dir="auto") if record.reason else None


def _turning(first: int, total: int, to: Any) -> Html | None:
    links = [element("a", "← Before", href=to(max(0, first - _SHOWN)))] if first else []
    if first + _SHOWN < total:
        links.append(element("a", "Further →", href=to(first + _SHOWN)))
    if not links:
        return None
    return element("p", f"{first + 1:,} to {min(first + _SHOWN, total):,} of {total:,}", *links, class_="turn")


# A case of two runs: each repeat of one beside that of the other, those that differ first.


def compared_case_page(viewer: Viewer, sides: RunSides, query: Query) -> PageAnswer:
    """What was asked about a case, and the answers of two runs side by side."""
    case, base, cand = (query_value(query, name) for name in ("id", "base", "cand"))
    try:
        other, one = sides.shown(cand, base), sides.shown(base, cand)
        found = [case_records(viewer, side.known, case) if side.known else [] for side in (one, other)]
    except (EvalqError, OSError) as error:
        return refusal(404, "That cannot be compared", str(error))
    if not any(found):
        return refusal(404, "No such case", "No record of these runs is about it, or their records are not here.")
    back = element("a", "all cases", href=link("compare", base=base, cand=cand))
    header = element(
        "header",
        element("p", side_link(other), " against ", side_link(one), ", ", back, class_="subject"),
        element("h1", case, dir="auto"),
        element("p", _counts(found), class_="lede"),
    )
    pairs = list(_pairs(*found))
    first = min(query_number(query, "at"), max(0, len(pairs) - 1))
    both = (one.known, other.known)
    shown = [
        (_answered(viewer, both[0], pair[0]), _answered(viewer, both[1], pair[1]))
        for pair in pairs[first : first + _SHOWN]
    ]
    turn = _turning(first, len(pairs), lambda at: link("compare", "case", base=base, cand=cand, id=case, at=at))
    main = joined(
        element("section", element("h2", "Question"), *_questions((one, other), case, shown)),
        element("section", element("h2", "Answers"),
                *(_beside((one, other), pair) for pair in shown), turn),
    )  # fmt: skip
    return document(f"{case} · {side_title(other)} {word('against')} {side_title(one)}", header, main)


def side_title(side: RunSide | ShownRun) -> str:
    """A run of a comparison, with target and date if it is known here."""
    return run_title(side.known) if side.known is not None and not side.name.startswith("baseline") else side.name


def side_link(side: RunSide | ShownRun) -> Html:
    """The run of a comparison, linked to its page."""
    if side.known is None:
        return element("span", side.name, dir="auto")
    return element("a", side_title(side), href=link("run", side.known.key), dir="auto")


def _counts(found: Sequence[Sequence[CaseRecord]]) -> str:
    texts = []
    for name, records in zip(("base", "compared with it"), found, strict=True):
        counts = Counter(each.record.status for each in records)
        texts.append(f"{name}: {', '.join(f'{n:,} {status}' for status, n in counts.items()) or 'no record here'}")
    return "; ".join(texts).capitalize() + "."


def _questions(sides: tuple[ShownRun, ShownRun], case: str, pairs: Sequence[_Pair]) -> Iterator[Html]:
    one, other = (
        question_of_case(side.known, case, (found.answer for pair in pairs if (found := pair[at]) is not None))
        for at, side in enumerate(sides)
    )
    if one == other or one is None or other is None:
        yield question_block(one or other, NO_QUESTION)
        return
    yield element("p", "The two runs asked different questions.", class_="caption")
    texts = [ShownAnswer("\n\n".join(f"{role}: {said}" if role else said for role, said in each.messages))
             for each in (one, other)]  # fmt: skip
    yield side_by_side(texts, [element("h3", name) for name in ("Base", "Compared with it")], str)


_Pair = tuple[CaseRecord | None, CaseRecord | None]


def _pairs(base: Sequence[CaseRecord], cand: Sequence[CaseRecord]) -> Iterator[_Pair]:
    """Records of the same repeat, or of the same place in the order; pairs with different results first."""
    keyed = [{each.repeat if each.repeat is not None else -1 - at: each for at, each in enumerate(side)}
             for side in (base, cand)]  # fmt: skip
    pairs = [(keyed[0].get(key), keyed[1].get(key)) for key in dict.fromkeys([*keyed[0], *keyed[1]])]
    yield from sorted(pairs, key=_alike)


def _alike(pair: _Pair) -> int:
    one, other = pair
    if one is None or other is None:
        return 1
    return 2 if one.record.state == other.record.state else 0


def _beside(sides: tuple[ShownRun, ShownRun], pair: _Pair) -> Html:
    name = next(each.name for each in pair if each is not None)
    heads = [
        element("p", label, *((", ", _record_link(side.known, each), " ", _status(each.record)) if each else ()))
        for label, side, each in zip(("Base", "Compared with it"), sides, pair, strict=True)
    ]
    answers = [each.answer if each else None for each in pair]
    checks = [
        element("div", _reason(each.record), evidence_table(each.record.evidence)) if each else element("div")
        for each in pair
    ]
    return element(
        "div",
        element("h3", name),
        side_by_side(answers, heads, lambda at: NO_ANSWER if pair[at] else "This run has no such answer."),
        element("div", *checks, class_="pair"),
        class_="measure",
    )
