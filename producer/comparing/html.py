"""Comparisons and decisions as HTML for notebooks: the verdict first, then why, then which cases."""

from __future__ import annotations

from collections.abc import Sequence

from evalq.evalcore.compare.comparison import Flip, MeasureComparison
from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.views.markdown import plural
from evalq.producer.comparing.comparing import VERDICTS, MeasureFormat, comparison_notes, headline, quarantine_text
from evalq.producer.page.render import Html, element, joined

_SHOWN = 10
_NO_MATHS = "tex2jax_ignore mathjax_ignore"
"""With these classes notebooks do not take dollar signs for formulas."""


def comparison_html(base: RunCases, cand: RunCases, found: Sequence[MeasureComparison]) -> str:
    """All measures of two runs in one table, then the cases that changed most by each."""
    head = ("", "verdict", "baseline", "candidate", "change", "95 % between", "p worse", "cases", "missing")
    title = element("h4", f"{cand.evaluator}: {cand.shown} against {base.shown}")
    details = [part for each in found for part in (_notes(each), _flips(each))]
    return _block(title, _table(head, [_measure(each) for each in found]), *details)


def decision_html(decision: GateDecision) -> str:
    """The decision, a row for each check, and the notes."""
    against = f" against {decision.baseline}" if decision.baseline else ""
    over = headline(decision)
    names = ", ".join(decision.folders or decision.candidates)
    title = element("h4", f"{decision.decided}: {names}{against}{over and f' {over}'}")
    rows = [(check.decided, check.metric, check.demand, check.reason, check.tier) for check in decision.checks]
    table = _table(("", "number", "has to be", "why", "tier"), rows)
    notes = element("ul", *[element("li", note) for note in decision.notes]) if decision.notes else None
    quarantined = [
        (each.run, each.case, quarantine_text(each), each.reason, each.until) for each in decision.quarantined
    ]
    quarantine = _table(("run", "case", "quarantine", "reason", "until"), quarantined) if quarantined else None
    return _block(title, table, quarantine, notes)


def _measure(found: MeasureComparison) -> tuple[object, ...]:
    seen, shown = found.observed, MeasureFormat(found.measure)
    name, verdict = found.measure.name, element("b", VERDICTS[found.verdict])
    if seen is None:
        return name, verdict, "", "", "", "", "", 0, found.missing
    between = f"{shown.change(seen.low)} and {shown.change(seen.high)}"
    levels = shown.level(seen.base), shown.level(seen.cand), shown.change(seen.delta), between
    return name, verdict, *levels, f"{seen.p_worse:.2g}", f"{seen.cases:,}", f"{found.missing:,}"


def _notes(found: MeasureComparison) -> Html | None:
    """Notes that explain the verdict beside the numbers of the table."""
    shown = MeasureFormat(found.measure)
    notes = comparison_notes(found, found.observed, shown, str) if found.observed is not None else []
    name = found.measure.name
    return element("ul", *[element("li", f"{name}: {note}") for note in notes]) if notes else None


def _flips(found: MeasureComparison) -> Html | None:
    shown = MeasureFormat(found.measure)
    parts = []
    for count, flips, what in ((found.lost, found.losses, "lost"), (found.won, found.wins, "won")):
        if count:
            first = f", the first {_SHOWN}" if count > _SHOWN else ""
            table = _table(("case", "baseline", "candidate"), [_flip(flip, shown) for flip in flips[:_SHOWN]])
            summary = element("summary", f"{found.measure.name}: {plural(count, 'case')} {what}{first}")
            parts.append(element("details", summary, table))
    return joined(*parts) if parts else None


def _flip(flip: Flip, shown: MeasureFormat) -> tuple[object, ...]:
    return flip.case, shown.answers(flip.base, flip.base_count), shown.answers(flip.cand, flip.cand_count)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Html:
    columns = element("tr", *[element("th", name, scope="col") for name in head])
    body = [element("tr", *[element("td", cell) for cell in row]) for row in rows]
    return element("table", element("thead", columns), element("tbody", *body))


def _block(*children: object) -> str:
    return str(element("div", *children, class_=_NO_MATHS))
