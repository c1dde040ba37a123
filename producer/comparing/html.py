"""Comparisons and decisions as HTML, for notebooks and as a page of their own: the verdict, why, and which cases."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from importlib.resources import files

from evalq.evalcore.compare.comparison import Flip, MeasureComparison
from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.views.markdown import plural
from evalq.producer.comparing.comparing import VERDICTS, MeasureFormat, comparison_notes, headline, quarantine_text
from evalq.producer.comparing.outcome import ComparedRuns, DecisionOutcome
from evalq.producer.comparing.samples import SampleAnswer, base_samples, folder_of, samples_in
from evalq.producer.page.answers import ShownAnswer
from evalq.producer.page.packing import language_in
from evalq.producer.page.render import Html, element, joined, text
from evalq.producer.page.side_by_side import side_by_side
from evalq.producer.page.words import Data, page_language, word, written_in

_SHOWN = 10
_NO_MATHS = "tex2jax_ignore mathjax_ignore"
"""With these classes notebooks do not take dollar signs for formulas."""


def comparison_html(base: RunCases, cand: RunCases, found: Sequence[MeasureComparison]) -> str:
    """All measures of two runs in one table, then the cases that changed most by each."""
    head = ("", "verdict", "baseline", "candidate", "change", "95 % between", "p worse", "cases", "missing")
    title = element("h4", Data(_against(f"{cand.evaluator}: {cand.shown}", base.shown)))
    details = [part for each in found for part in (_notes(each), _flips(each))]
    return _block(title, _table(head, [_measure(each) for each in found]), *details)


def decision_html(decision: GateDecision) -> str:
    """The decision, a row for each check, and the notes."""
    over = word(headline(decision))
    names = ", ".join(decision.folders or decision.candidates)
    against = _against(names, decision.baseline) if decision.baseline else names
    title = element("h4", Data(f"{word(decision.decided)}: {against}{over and f' {over}'}"))
    rows = [(each.decided, Data(each.metric), each.demand, each.reason, each.tier) for each in decision.checks]
    table = _table(("", "number", "has to be", "why", "tier"), rows)
    notes = element("ul", *[element("li", note) for note in decision.notes]) if decision.notes else None
    quarantined = [
        (Data(each.run), Data(each.case), quarantine_text(each), Data(each.reason), each.until)
        for each in decision.quarantined
    ]
    quarantine = _table(("run", "case", "quarantine", "reason", "until"), quarantined) if quarantined else None
    return _block(title, table, quarantine, notes)


def _against(cand: str, base: str) -> str:
    return _AGAINST.get(page_language(), _AGAINST["en"]).format(cand, base)


_AGAINST = {"en": "{0} against {1}", "ko": "{0} ({1} 대비)"}
"""Not in the table of words, since a name may be anything."""


def _measure(found: MeasureComparison) -> tuple[object, ...]:
    seen, shown = found.observed, MeasureFormat(found.measure)
    name, verdict = Data(found.measure.name), element("b", VERDICTS[found.verdict])
    if seen is None:
        return name, verdict, "", "", "", "", "", 0, found.missing
    between = word(f"{shown.change(seen.low)} and {shown.change(seen.high)}")
    levels = shown.level(seen.base), shown.level(seen.cand), shown.change(seen.delta), between
    return name, verdict, *levels, f"{seen.p_worse:.2g}", f"{seen.cases:,}", f"{found.missing:,}"


def _notes(found: MeasureComparison) -> Html | None:
    """Notes that explain the verdict beside the numbers of the table."""
    shown = MeasureFormat(found.measure)
    notes = comparison_notes(found, found.observed, shown, str) if found.observed is not None else []
    name = found.measure.name
    return element("ul", *[element("li", Data(f"{name}: {word(note)}")) for note in notes]) if notes else None


def _flips(found: MeasureComparison) -> Html | None:
    shown = MeasureFormat(found.measure)
    parts = []
    for count, flips, what in ((found.lost, found.losses, "lost"), (found.won, found.wins, "won")):
        if count:
            first = f", {word(f'the first {_SHOWN}')}" if count > _SHOWN else ""
            table = _table(("case", "baseline", "candidate"), [_flip(flip, shown) for flip in flips[:_SHOWN]])
            counted = word(f"{plural(count, 'case')} {what}")
            summary = element("summary", Data(f"{found.measure.name}: {counted}{first}"))
            parts.append(element("details", summary, table))
    return joined(*parts) if parts else None


def _flip(flip: Flip, shown: MeasureFormat) -> tuple[object, ...]:
    return Data(flip.case), shown.answers(flip.base, flip.base_count), shown.answers(flip.cand, flip.cand_count)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Html:
    columns = element("tr", *[element("th", name, scope="col") for name in head])
    body = [element("tr", *map(_cell, row)) for row in rows]
    return element("table", element("thead", columns), element("tbody", *body))


def _cell(value: object) -> Html:
    return element("td", value, dir="auto") if isinstance(value, Data) else element("td", value)


def _block(*children: object) -> str:
    return str(element("div", *children, class_=_NO_MATHS))


# A page of its own, in one file without a script: what a job keeps beside its summary.

_CASES = 50
_PAIR = """
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1.5rem 2.5rem; } .pair > * { min-width: 0; }
h4 { font-size: 1.3rem; margin: 0 0 1rem; } details { margin-top: 1rem; } body { padding-top: 3.5rem; }
.numbers { overflow-x: auto; }
.numbers td, .numbers th { padding: .2rem .9rem .2rem 0; text-align: left; min-width: 5.5rem; }
.numbers td { vertical-align: top; overflow-wrap: break-word; } section h3 { margin: 2rem 0 .5rem; }
@media (max-width: 40rem) { .pair { grid-template-columns: 1fr; } }
"""


def write_page(outcome: DecisionOutcome, name: str) -> bytes:
    """The page of a decision or a comparison: the tables, then the answers to the cases that changed, side by side.

    It has the language of the candidate's report.
    """
    folder = next((found for run in outcome.runs if (found := folder_of(run)) is not None), None)
    with written_in(language_in(folder)):
        return _page(outcome).encode(errors="replace")  # file names may not be UTF-8


def _page(outcome: DecisionOutcome) -> str:
    numbers = [Html(comparison_html(*pair)) for pair in outcome.pairs]
    if outcome.decision is not None:
        numbers = [Html(decision_html(outcome.decision))]
    if not numbers:
        reason = outcome.points[0].reason
        numbers = [element("h4", f"evalq {outcome.what}: {outcome.word}"), element("p", Data(reason))]
    shown = [
        element("div", each, class_="numbers", tabindex="0", role="group", aria_label="Numbers") for each in numbers
    ]
    answers = list(_answers(outcome))
    if answers:
        head = f"Answers to the cases that changed most, at most {_CASES}, one of each run"
        shown.append(element("section", element("h2", head), *answers))
    title = text(f"{word(outcome.word)}: {', '.join(run.shown for run in outcome.runs) or f'evalq {outcome.what}'}")
    return (
        f'<!doctype html><!-- evalq-decision -->\n<html lang="{page_language()}"><head><meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{title} · evalq</title><style>{_style()}</style></head>\n"
        f"<body><main>{joined(*shown)}</main></body></html>\n"
    )


@cache
def _style() -> str:
    return (files("evalq.producer.page") / "page.css").read_text(encoding="utf-8") + _PAIR


def _answers(outcome: DecisionOutcome) -> Iterator[Html]:
    """The cases of each run that changed, each with its question and an answer of either side."""
    for pair in outcome.pairs:
        for fell in (True, False):
            flips = (flip for found in pair.found for flip in (found.losses if fell else found.wins))
            cases = list(dict.fromkeys(flip.case for flip in flips))[:_CASES]
            yield from _side_by_side(
                cases, _of_base(pair, cases, passed=fell), _of_run(pair.cand, cases, passed=not fell)
            )
    if outcome.decision is None or outcome.pairs:
        return
    for run in outcome.runs:
        cases = [each.case for each in outcome.worst_first(run)][:_CASES]
        yield from _side_by_side(cases, outcome.base_samples(run, cases), _of_run(run, cases, passed=False))


def _of_run(run: RunCases, cases: Collection[str], *, passed: bool) -> dict[str, SampleAnswer]:
    folder = folder_of(run)
    return samples_in(folder, cases, passed=passed) if folder is not None and cases else {}


def _of_base(pair: ComparedRuns, cases: Sequence[str], *, passed: bool) -> dict[str, SampleAnswer]:
    return _of_run(pair.base, cases, passed=passed) or base_samples(pair.base.named, pair.base.run, pair.cand, cases)


def _why_failed(side: SampleAnswer | None) -> str:
    return "" if side is None or side.passed else f", {word('failed')}: {side.reason}"


def _side_by_side(cases: Sequence[str], base: dict[str, SampleAnswer], cand: dict[str, SampleAnswer]) -> Iterator[Html]:
    for case in cases:
        sides = base.get(case), cand.get(case)
        if not any(sides):
            continue
        question = next((side.question for side in sides if side is not None and side.question), "")
        heads = [
            element("p", Data(f"{word(label)}{_why_failed(side)}"), class_="role")
            for label, side in zip(("Baseline", "Candidate"), sides, strict=True)
        ]
        answers = [None if side is None else ShownAnswer(side.answer) for side in sides]
        yield element(
            "div",
            element("h3", case, dir="auto"),
            element("div", question, class_="said", dir="auto") if question else None,
            side_by_side(answers, heads, lambda at: word("Its answer is not in a run folder here.")),
        )
