"""The page of two runs side by side: the verdict, how sure it is, the cases that changed, and both reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from evalq.evalcore.compare.comparison import Flip, MeasureComparison, Verdict
from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.exact import is_below
from evalq.evalcore.views.charts import Chart, Mark, State, derived_charts
from evalq.evalcore.views.markdown import plural
from evalq.producer.comparing.comparing import (
    MARGIN,
    VERDICTS,
    MeasureFormat,
    comparison_notes,
    cost_text,
    p_value_text,
    seconds_text,
)
from evalq.producer.page.build import ChartTable, chart_tables, summary_of
from evalq.producer.page.render import Address, Html, chart_figure, element, joined, tile_list
from evalq.producer.page.words import word
from evalq.producer.viewing.case_page import side_link, side_title
from evalq.producer.viewing.frame import PageAnswer, document, link, table
from evalq.producer.viewing.index_page import run_title
from evalq.producer.viewing.viewer import BASELINE, Query, RunSide, RunSides, Viewer, query_number, query_value

LOOKS: dict[Verdict, State] = {"same": "good", "better": "good", "worse": "bad", "inconclusive": "doubtful"}
_LISTED, _OFFERED = 20, 200


def compare_page(viewer: Viewer, sides: RunSides, query: Query) -> PageAnswer:
    """The comparison of two runs, or the form to choose them."""
    base, cand = query_value(query, "base"), query_value(query, "cand")
    if not base or not cand:
        return _choice_page(viewer, sides, query, "Pick two runs of one evaluator.")
    try:
        margin = _margin(query)
        other, one = sides.side(cand, base), sides.side(base, cand)
        found = sides.compare(one.cases, other.cases, margin)
    except (EvalqError, OSError) as error:
        return _choice_page(viewer, sides, query, str(error))
    first, *rest = found
    names = (side_link(other), " against ", side_link(one))
    more = ". ".join(f"{measure_title(each.measure.name)}: {VERDICTS[each.verdict]}" for each in rest)
    header = element(
        "header",
        element("p", *names, class_="subject"),
        element("h1", f"{measure_title(first.measure.name)}: {VERDICTS[first.verdict]}", class_=LOOKS[first.verdict]),
        element("p", f"{more}.", class_="lede") if more else None,
    )

    def to(case: str) -> str:
        return link("compare", "case", base=base, cand=cand, id=case)

    main = joined(
        _form(viewer, sides, query),
        _changes(found),
        _cases(one, other, query),
        element("section", element("h2", "Measure by measure"), *(_measure(each, to) for each in found)),
        _common(one, other),
        _both(viewer, one, other, to),
    )
    return document(f"{side_title(other)} {word('against')} {side_title(one)}", header, main)


def measure_title(measure: str) -> str:
    """A measure's name as a title."""
    return measure.replace("_", " ").capitalize()


def _margin(query: Query) -> float:
    given = query_value(query, "margin") or str(MARGIN)
    try:
        margin = float(given)
    except ValueError:
        margin = 0.0
    if not 0 < margin <= 1:
        raise UsageError(f"a margin is a share of the scale above 0, and at most 1, not {given!r}")
    return margin


def _choice_page(viewer: Viewer, sides: RunSides, query: Query, why: str) -> PageAnswer:
    header = element("header", element("h1", "Two runs side by side"), element("p", why, class_="lede", dir="auto"))
    return document("Two runs", header, _form(viewer, sides, query))


def _form(viewer: Viewer, sides: RunSides, query: Query) -> Html:
    base, cand = query_value(query, "base"), query_value(query, "cand")
    runs = [known for known in viewer.catalogue.runs() if known.state in ("done", "following", "")]
    chosen = viewer.catalogue.get(cand) or viewer.catalogue.get(base)
    evaluator = chosen.evaluator if chosen else ""
    # Once a run is chosen, only runs that can be compared with it.
    names = [known.key for known in runs if evaluator in ("", known.evaluator)][:_OFFERED]
    approved = [BASELINE + name for name in sides.baselines()]
    margin = element(
        "input", name="margin", inputmode="decimal", value=query_value(query, "margin") or str(MARGIN), size="6"
    )
    return element(
        "form",
        element("label", "Base", _select(viewer, "base", [*approved, *names], base), class_="wide"),
        element("label", "Compared with it", _select(viewer, "cand", names, cand), class_="wide"),
        element("label", "Margin, of the scale", margin),
        element("button", "Compare"),
        method="get", action=link("compare"), class_="asking",
    )  # fmt: skip


def _select(viewer: Viewer, name: str, values: Sequence[str], chosen: str) -> Html:
    # The chosen one stays, even if it is not on offer any more.
    offered = list(dict.fromkeys([*values, *([chosen] if chosen else [])]))
    options = [
        element("option", _offered(viewer, value), value=value, selected=value == chosen, dir="auto")
        for value in offered
    ]
    return element("select", *options, name=name)


def _offered(viewer: Viewer, value: str) -> str:
    if value.startswith(BASELINE):
        return word(f"the baseline {value.removeprefix(BASELINE)}")
    known = viewer.catalogue.get(value)
    return value if known is None else run_title(known)


def _changes(found: Sequence[MeasureComparison]) -> Html | None:
    """The change of each measure in one chart, drawn as a share of its scale, in the numbers of its table."""
    marks: list[Mark] = []
    texts: list[tuple[str, str]] = []
    for each in found:
        if (seen := each.observed) is not None:
            width, shown = each.measure.width, MeasureFormat(each.measure)
            texts.append((shown.change(seen.delta), f"{shown.change(seen.low)} to {shown.change(seen.high)}"))
            parts = (seen.delta / width, seen.low / width, seen.high / width)
            marks.append(
                Mark(
                    word(measure_title(each.measure.name)),
                    *parts,
                    state=LOOKS[each.verdict],
                    note=VERDICTS[each.verdict],
                )
            )
    if not marks:
        return None
    ends = [end for mark in marks for end in (mark.low, mark.high) if end is not None]
    margin = max(each.margin / each.measure.width for each in found)
    # Symmetric, so that 0 is in the middle.
    reach = max(margin, *map(abs, ends)) * 1.05
    better = {each.measure.better for each in found}
    side = "right" if better == {"higher"} else "left" if better == {"lower"} else ""
    caption = (
        "The change with its 95 % interval"
        + (f"; {side} of the line is better. " if side else ". ")
        + f"A scale has 100 points. Changes within {100 * margin:g} points count as none."
    )
    drawn = ChartTable(
        *("Change", caption, "dots", "share", "Measure", tuple(marks), -reach, reach, 0.0),
        texts=tuple(texts),
        ends=(f"{-100 * reach:+.0f} points", f"{100 * reach:+.0f} points"),
        limit="The line is at no change.",
    )
    figure = chart_figure(drawn)
    return element("section", element("h2", "What changed", id="h-changed"), figure, aria_labelledby="h-changed")


def _measure(found: MeasureComparison, to: Address) -> Html:
    seen, shown = found.observed, MeasureFormat(found.measure)
    heading = element("h3", measure_title(found.measure.name))
    verdict = element("p", VERDICTS[found.verdict].capitalize(), class_=f"verdict {LOOKS[found.verdict]}")
    if seen is None:
        return element("div", heading, verdict, element("p", "No case has an answer in both runs."), class_="measure")
    facts = (
        ("Base", shown.level(seen.base)),
        ("Compared with it", shown.level(seen.cand)),
        ("Change", shown.change(seen.delta)),
        ("95 % between", f"{shown.change(seen.low)} and {shown.change(seen.high)}"),
        ("p worse", p_value_text(seen.p_worse)),
        ("p better", p_value_text(seen.p_better)),
        ("Margin", shown.size(found.margin)),
        ("Smallest detectable", shown.size(seen.detectable)),
        ("Cases that both answered", f"{seen.cases:,}"),
    )
    rows = [joined(element("dt", name), element("dd", value)) for name, value in facts]
    notes = [element("li", note) for note in comparison_notes(found, seen, shown, str)]
    return element(
        "div",
        heading,
        verdict,
        element("dl", *rows, class_="facts"),
        element("ul", *notes) if notes else None,
        *_flips(found, shown, to),
        class_="measure",
    )


def _flips(found: MeasureComparison, shown: MeasureFormat, to: Address) -> Iterator[Html]:
    for count, flips, what in ((found.lost, found.losses, "lost"), (found.won, found.wins, "won")):
        if not count:
            continue
        caption = f"{plural(count, 'case')} {what}" + (f", the first {_LISTED}" if count > _LISTED else "")
        rows = [_flip(flip, shown, to) for flip in flips[:_LISTED]]
        cases = table(f"{measure_title(found.measure.name)}: {caption}", ("Case", "Base", "Compared with it"), rows)
        yield element("details", element("summary", caption), cases, open=what == "lost" or count <= _LISTED)


def _flip(flip: Flip, shown: MeasureFormat, to: Address) -> Html:
    return element(
        "tr",
        element("th", element("a", flip.case, href=to(flip.case), dir="auto"), scope="row", dir="auto"),
        element("td", shown.answers(flip.base, flip.base_count)),
        element("td", shown.answers(flip.cand, flip.cand_count)),
    )


# All cases of both runs, those that changed first of all.

_CASES = 100
_FILTERS = {"changed": "Changed", "worse": "Worse", "better": "Better", "all": "All"}


class _CaseRow(NamedTuple):
    """A case by the first measure of a comparison: its answers and their mean in each run; None without an answer."""

    case: str
    base: tuple[float, int] | None
    cand: tuple[float, int] | None
    change: float
    changed: bool

    def takes(self, show: str, words: Sequence[str]) -> bool:
        """Whether a filter shows it."""
        kinds = {"changed": self.changed, "worse": self.change < 0, "better": self.change > 0, "all": True}
        return kinds[show] and all(word in self.case.lower() for word in words)


def _case_rows(base: CaseSummary, cand: CaseSummary, shared: Sequence[Measure]) -> Iterator[_CaseRow]:
    """Every case of either run, those that got worse first; without an answer in one run a case is changed."""
    means = [({case: _means(run, shared, at) for at, case in enumerate(run.ids)}) for run in (base, cand)]
    sign = 1 if shared and shared[0].better == "higher" else -1
    for case in sorted(set(means[0]) | set(means[1])):
        ours, theirs = (side.get(case, ()) for side in means)
        pairs = list(zip(ours, theirs, strict=False))
        changed = not pairs or any(
            one is None or other is None or is_below(one[0], other[0]) or is_below(other[0], one[0])
            for one, other in pairs
            if (one, other) != (None, None)
        )
        one, other = (side[0] if side else None for side in (ours, theirs))
        change = sign * (other[0] - one[0]) if changed and one and other else 0.0
        yield _CaseRow(case, one, other, change, changed)


def _means(run: CaseSummary, shared: Sequence[Measure], at: int) -> tuple[tuple[float, int] | None, ...]:
    columns = [run.columns[each.name] for each in shared]
    return tuple((each.total[at] / each.count[at], each.count[at]) if each.count[at] else None for each in columns)


def _cases(one: RunSide, other: RunSide, query: Query) -> Html:
    """The cases of both runs, filtered."""
    show = query_value(query, "show")
    show = show if show in _FILTERS else "changed"
    words, base, cand = query_value(query, "q"), query_value(query, "base"), query_value(query, "cand")
    margin = query_value(query, "margin")
    known = {each.name for each in one.cases.cases.measures}
    shared = [each for each in other.cases.cases.measures if each.name in known]
    found = _case_rows(one.cases.cases, other.cases.cases, shared)
    rows = [each for each in found if each.takes(show, words.lower().split())]
    rows.sort(key=lambda each: each.change)
    first = min(query_number(query, "at"), max(0, len(rows) - 1))
    shown = rows[first : first + _CASES]
    options = [element("option", name, value=value, selected=value == show) for value, name in _FILTERS.items()]
    form = element(
        "form",
        element("label", "Search", element("input", type="search", name="q", value=words, autocomplete="off"),
                class_="wide"),
        element("label", "Show", element("select", *options, name="show")),
        *(element("input", type="hidden", name=name, value=value)
          for name, value in (("base", base), ("cand", cand), ("margin", margin))),
        element("button", "Show"),
        method="get", action=f"{link('compare')}#h-cases", class_="asking", role="search",
    )  # fmt: skip
    return element(
        "section",
        element("h2", "Cases", id="h-cases"),
        form,
        _case_table(shown, next(iter(shared), None), base, cand)
        if shown
        else element("p", "No case matches.", class_="caption"),
        _case_turning(first, len(rows), query),
        aria_labelledby="h-cases",
    )


def _case_table(shown: Sequence[_CaseRow], measure: Measure | None, base: str, cand: str) -> Html:
    form = MeasureFormat(measure) if measure else None
    rows = []
    for each in shown:
        cells = [form.answers(*side) if side and form else "no answer" for side in (each.base, each.cand)]
        state: State = "bad" if each.change < 0 else "good" if each.change > 0 else "none"
        word = {"bad": "worse", "good": "better"}.get(state, "changed" if each.changed else "the same")
        name = element("a", each.case, href=link("compare", "case", base=base, cand=cand, id=each.case), dir="auto")
        status = element("td", element("span", word, class_=f"status {state}"))
        rows.append(element("tr", element("th", name, scope="row", dir="auto"), status, *map(_cell, cells)))
    return table("Cases", ("Case", "Change", "Base", "Compared with it"), rows)


def _cell(value: str) -> Html:
    return element("td", value)


def _case_turning(first: int, total: int, query: Query) -> Html | None:
    given = {name: query_value(query, name) for name in ("base", "cand", "margin", "show", "q")}
    links = []
    if first:
        links.append(element("a", "← Before", href=f"{link('compare', **given, at=max(0, first - _CASES))}#h-cases"))
    if first + _CASES < total:
        links.append(element("a", "Further →", href=f"{link('compare', **given, at=first + _CASES)}#h-cases"))
    last = min(first + _CASES, total)
    return element("p", f"{first + 1:,} to {last:,} of {total:,}", *links, class_="turn") if total else None


def _common(one: RunSide, other: RunSide) -> Html | None:
    """Other differences, and the cost of their calls."""
    notes = [sentence] if (sentence := other.cases.other_model(one.cases)) else []
    if one.cases.specification != other.cases.specification:
        notes.append("Their parameters differ (another golden set, or other rules): that may be the cause of a change.")
    if one.cases.version != other.cases.version:
        notes.append(f"They were evaluated by version {one.cases.version} and version {other.cases.version}.")
    before, now = one.cases.usage, other.cases.usage
    if before is not None and now is not None:
        notes.append(f"The cost of an output: {cost_text(now)}, where it was {cost_text(before)}.")
        notes += [
            f"{share} of the calls' seconds: {value:.3g}, where it was {seconds_text(before, share)}."
            for share, value in now.seconds.items()
        ]
    if not notes:
        return None
    return element("section", element("h2", "Besides"), element("ul", *(element("li", note) for note in notes)))


def _both(viewer: Viewer, one: RunSide, other: RunSide, to: Address) -> Html | None:
    """Both reports side by side."""
    reports = [viewer.report(side.known) if side.known else None for side in (one, other)]
    if not any(reports):
        return None
    evaluator = plugins.get(other.cases.evaluator)
    heads = []
    for side, report in zip((one, other), reports, strict=True):
        inner: list[Html] = [element("p", "Its report is not here.", class_="caption")]
        if report is not None:
            summary = summary_of(evaluator, report)
            caption = element("p", summary.headline, class_=f"verdict {summary.state}")
            inner = [caption, tile_list(summary.tiles)]
        heads.append(element("div", element("h3", side_link(side), dir="auto"), *inner))
    views = evaluator.views
    declared = views.charts or derived_charts(views.metrics, views.panels)
    pairs = [element("div", *heads, class_="pair"), *(_pair(each, reports, to) for each in declared)]
    return element("section", element("h2", "Both reports"), element("div", *pairs, class_="charts"))


def _pair(declared: Chart, reports: Sequence[Mapping[str, Json] | None], to: Address) -> Html | None:
    """A chart of each run, on the same scale."""
    both = [next(iter(chart_tables([declared], report)), None) if report else None for report in reports]
    shown = [each for each in both if each is not None]
    if not shown:
        return None
    low, high = min(each.low for each in shown), max(each.high for each in shown)
    figures = [chart_figure(replace(each, low=low, high=high), to) if each else None for each in both]
    return element("div", *(element("div", figure) for figure in figures), class_="pair")
