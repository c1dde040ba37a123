"""Comparing two runs by every measure that both have, and comparisons and decisions in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from evalq.evalcore.compare.comparison import Estimate, MeasureComparison, compare
from evalq.evalcore.compare.decision import Check, GateDecision, PairedCases, Quarantined
from evalq.evalcore.compare.eligibility import doubled, paired, same_answers
from evalq.evalcore.compare.summary import RunCases, RunUsage, common_answers
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.errors import UsageError
from evalq.evalcore.views.markdown import escape, table, visible

MARGIN = 0.05
"""Changes of less than this share of a measure's scale are the same, unless told otherwise."""


def compare_runs(
    base: RunCases, cand: RunCases, margin: float = MARGIN, measure: str = "", *, by_cases: bool = False
) -> list[MeasureComparison]:
    """Compare by every measure of the candidate, or by the one called ``measure``.

    ``margin`` is a share of each measure's scale. Raises UsageError for runs of two evaluators, and for a measure that
    there is not, and for runs that have answers in common.
    """
    # Of answers that both have no change would be found, whatever changed.
    if common := common_answers(cand, base):
        raise UsageError(f"{common}: they tell nothing of a change; compare runs that were asked apart")
    if base.evaluator != cand.evaluator:
        raise UsageError(f"{base.run} is a run of {base.evaluator} and {cand.run} one of {cand.evaluator}")
    # GATE, The question: what is asked or checked otherwise now is another case, whatever its id.
    held, twice = paired(cand, base), tuple(_twice(base, cand))
    base = held.partner
    known = {each.name for each in base.cases.measures}
    wanted = [each for each in cand.cases.measures if each.name in known and measure in ("", each.name)]
    if not wanted:
        names = ", ".join(sorted(known)) or "none"
        raise UsageError(f"{cand.evaluator} has no measure {measure!r}; there are: {names}")
    found = [compare(base.cases, cand.cases, each, margin * each.width, by_cases=by_cases) for each in wanted]
    if twice:
        # An interval of answers that count twice is too narrow, whichever way it decides.
        found = [msgspec.structs.replace(each, verdict="inconclusive", repeats=None) for each in found]
    copies = (*twice, *([f"{same[0].upper()}{same[1:]}."] if (same := same_answers(cand, base)) else []))
    found = [msgspec.structs.replace(each, copies=copies) for each in found]
    return [_with_changed(each, held.cases) for each in found] if held.cases.changed else found


def _twice(base: RunCases, cand: RunCases) -> Iterator[str]:
    for side, each in (("baseline", base), ("candidate", cand)):
        if twice := doubled(each):
            yield f"Of the {side} {twice}, so that the same answers count twice: evaluate each once."


def _with_changed(found: MeasureComparison, cases: PairedCases) -> MeasureComparison:
    """A changed case is in both, and neither new nor answered by one side alone."""
    return msgspec.structs.replace(
        found,
        changed=list(cases.changed),
        changed_count=cases.changed_count,
        new=[case for case in found.new if case not in cases.changed],
        new_count=max(0, found.new_count - cases.changed_count),
    )


# Comparisons and decisions as Markdown: the verdict first, then why, then which cases.

_SHOWN = 10
VERDICTS = {
    "same": "the same, within the margin",
    "worse": "worse",
    "better": "better",
    "inconclusive": "inconclusive: the answers cannot tell",
}


def comparison_text(base: RunCases, cand: RunCases, found: Sequence[MeasureComparison]) -> str:
    """All measures of two runs, each with its verdict."""
    lines = [f"# {escape(cand.evaluator)}: {escape(cand.run)} against {escape(base.run)}", ""]
    for comparison in found:
        lines += [*_comparison(comparison), ""]
    lines += [*_both_runs(base, cand)]
    # Over the whole, and last: names of runs and cases are anybody's, and a terminal would obey them.
    return visible("\n".join(lines).rstrip() + "\n")


def decision_text(decision: GateDecision) -> str:
    """The decision, and a row for each check."""
    against = f" against {escape(decision.baseline)}" if decision.baseline else ""
    over = headline(decision)
    title = f"# {decision.decided}: {escape(', '.join(decision.candidates))}{against}{over and f' {escape(over)}'}"
    lines = [title, ""]
    for check in decision.checks:
        if check.veto:
            lines += [f"{check.decided}, {escape(check.metric)}: {escape(check.reason)}", ""]
    lines += ["| | number | has to be | why | |", "| --- | --- | --- | --- | --- |"]
    lines += [_row(check) for check in decision.checks]
    for check in decision.checks:
        if check.cases and check.decided != "GO":
            # Not "what is demanded: the cases", which reads as if they kept it.
            what = f"{check.decided} by these cases ({escape(check.metric)}, {escape(check.demand)})"
            lines += ["", f"{what}: {', '.join(map(escape, check.cases))}"]
    if decision.quarantined:
        rows: list[tuple[object, ...]] = [
            (each.run, each.case, standing_of(each), each.reason, each.until) for each in decision.quarantined
        ]
        lines += ["", table(("run", "case", "quarantine", "reason", "until"), rows).rstrip("\n")]
    if decision.notes:
        lines += ["", *(f"- {escape(note)}" for note in decision.notes)]
    return visible("\n".join(lines) + "\n")


def headline(decision: GateDecision) -> str:
    """On which cases it was decided, for a title: both counts of each run; empty without a baseline."""
    several = len(decision.paired) > 1
    parts = [
        f"{f'{each.run}: ' if several else ''}{each.equal:,} equal cases of the baseline's {each.base:,} and the "
        f"candidate's {each.cand:,}"
        for each in decision.paired
    ]
    return f"({'; '.join(parts)})" if parts else ""


def standing_of(entry: Quarantined) -> str:
    """Whether a case in quarantine is set aside, how often it passed, and why."""
    what = "set aside" if entry.quarantined else "counts all the same"
    what += ", and passes less often than before" if entry.regressed else ""
    now = f", {entry.passed} of {entry.answers} now" if entry.answers else ""
    return f"{what}: {entry.why}{now}"


def _row(check: Check) -> str:
    tier = "" if check.tier == "critical" else check.tier
    return f"| {check.decided} | {escape(check.metric)} | {escape(check.demand)} | {escape(check.reason)} | {tier} |"


def _comparison(found: MeasureComparison) -> Iterator[str]:
    measure, seen = found.measure, found.observed
    yield f"## {escape(measure.name)}: {VERDICTS[found.verdict]}"
    yield ""
    if seen is None:
        yield "No case has an answer in both runs."
        return
    shown = MeasureFormat(measure)
    yield f"{shown.level(seen.base)} to {shown.level(seen.cand)} over {seen.cases:,} cases that both answered:"
    yield ""
    yield "| change | 95 % between | p worse | p better | margin | would have seen |"
    yield "| --- | --- | --- | --- | --- | --- |"
    ends = f"{shown.change(seen.low)} and {shown.change(seen.high)}"
    yield (
        f"| {shown.change(seen.delta)} | {ends} | {p_value_text(seen.p_worse)} | {p_value_text(seen.p_better)} | "
        f"{shown.size(found.margin)} | {shown.size(seen.detectable)} |"
    )
    yield from _more(found, seen, shown)


def _more(found: MeasureComparison, seen: Estimate, shown: MeasureFormat) -> Iterator[str]:
    if notes := comparison_notes(found, seen, shown):
        yield from ("", *(f"- {note}" for note in notes))
    for count, flips, what in ((found.lost, found.losses, "lost"), (found.won, found.wins, "won")):
        if count:
            yield from ("", f"{count:,} cases {what}" + (f", the first {_SHOWN}:" if count > _SHOWN else ":"), "")
            yield "| case | baseline | candidate |"
            yield "| --- | --- | --- |"
            for flip in flips[:_SHOWN]:
                base, cand = shown.answers(flip.base, flip.base_count), shown.answers(flip.cand, flip.cand_count)
                yield f"| {escape(flip.case)} | {base} | {cand} |"


def comparison_notes(
    found: MeasureComparison, seen: Estimate, shown: MeasureFormat, said: Callable[[str], str] = escape
) -> list[str]:
    """What to know besides the numbers, a sentence each; ``said`` makes the name of a case fit where they go."""
    notes = []
    if reading := found.measure.reading:
        notes.append(f"{reading[0].upper()}{reading[1:]}.")
    notes += found.copies
    if found.by_cases:
        notes.append("The verdict is for cases like these: repeats of this target are not taken for independent.")
    if seen.case_low is not None and seen.case_high is not None:
        ends = f"{shown.change(seen.case_low)} and {shown.change(seen.case_high)}"
        notes.append(f"For cases like these, instead of for these: between {ends}.")
    if found.stopped:
        notes.append(
            f"{found.stopped:,} cases stopped when they were decided: their means lean to what they mostly answer, and "
            "show no sameness, nor a change unless both runs stopped alike, of as many calls at most; none of them is "
            "named as worse."
        )
    if found.repeats is not None:
        notes.append(f"{found.repeats:,.0f} times as many repeats would decide it, were the change as it looks.")
    if found.missing:
        # The worst case is only computed where something is missing.
        at_worst = found.worst.delta if found.worst else seen.delta
        notes.append(
            f"{found.missing:,} answers are missing that the baseline has; held against the candidate, the change "
            f"would be {shown.change(at_worst)}."
        )
    for count, listed, what in (
        (found.alone_count, found.alone, "not answered by the candidate"),
        (found.new_count, found.new, "not answered by the baseline"),
        (found.changed_count, found.changed, "with another input or other checks now, which decide nothing"),
    ):
        if count:
            notes.append(f"{count:,} cases {what}: {_names(listed, count, said)}.")
    if found.named:
        notes.append(f"Got worse, beyond chance: {_names(found.named, len(found.named), said)}.")
    if found.collapsed:
        notes.append(f"Newly collapsed: {_names(found.collapsed, len(found.collapsed), said)}.")
    return notes


def _both_runs(base: RunCases, cand: RunCases) -> Iterator[str]:
    if base.specification != cand.specification:
        yield "Their parameters differ (another golden set, or other rules): what changed may be that."
    if base.version != cand.version:
        yield f"They were evaluated by version {base.version} and version {cand.version} of {base.evaluator}."
    if base.usage is not None and cand.usage is not None:
        yield "| calls | baseline | candidate |"
        yield "| --- | --- | --- |"
        yield f"| cost an output | {cost_text(base.usage)} | {cost_text(cand.usage)} |"
        for share, seconds in cand.usage.seconds.items():
            yield f"| {share} of their seconds | {seconds_text(base.usage, share)} | {seconds:.3g} |"


def cost_text(usage: RunUsage) -> str:
    """The mean cost of an output, or that nobody knows it."""
    each = usage.cost_each
    return "unknown" if each is None else f"{each:.4g}"


def seconds_text(usage: RunUsage, share: str) -> str:
    """A quantile of the seconds of its calls, or that nobody knows it."""
    return f"{usage.seconds[share]:.3g}" if share in usage.seconds else "unknown"


def _names(cases: Sequence[str], count: int, said: Callable[[str], str]) -> str:
    more = f" and {count - _SHOWN:,} more" if count > _SHOWN else ""
    return ", ".join(map(said, cases[:_SHOWN])) + more


def p_value_text(value: float) -> str:
    """A p-value as people read it."""
    return "< 1e-12" if value <= 1e-12 else f"{value:.2g}"


class MeasureFormat:
    """Numbers of a measure as people read them: shares as percentages, changes of shares as points."""

    def __init__(self, measure: Measure) -> None:
        # Only then does a percentage mean what people take it for.
        self._share = (measure.low, measure.high) == (0.0, 1.0)
        self._passes = measure.kind == "pass"

    def level(self, value: float) -> str:
        """A mean, as a share in % or as a score."""
        return f"{100 * value:.1f} %" if self._share else f"{value:.3f}"

    def change(self, value: float) -> str:
        """A change, with its sign."""
        return f"{100 * value:+.1f} points" if self._share else f"{value:+.3f}"

    def size(self, value: float) -> str:
        """A change without sign: a margin, or what would be seen."""
        return f"{100 * value:.1f} points" if self._share else f"{value:.3f}"

    def answers(self, mean: float, count: int) -> str:
        """What a case was answered."""
        # A mean of passes is a quotient, and its product with the count a whole number but for rounding.
        return f"{round(mean * count)} of {count} passed" if self._passes else f"{mean:.3f} ({count})"
