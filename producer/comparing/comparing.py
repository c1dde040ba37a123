"""Compare two runs by every measure that both have, and show comparisons and decisions as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from evalq.evalcore.compare.comparison import Estimate, MeasureComparison, compare
from evalq.evalcore.compare.decision import Check, Decided, GateDecision, PairedCases, Quarantined
from evalq.evalcore.compare.eligibility import doubled, paired, same_answers, with_short
from evalq.evalcore.compare.summary import RunCases, RunUsage, common_answers
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.errors import UsageError
from evalq.evalcore.views.markdown import escape, table, visible

MARGIN = 0.05
"""Changes smaller than this share of a measure's scale count as none, by default."""


def compare_runs(
    base: RunCases, cand: RunCases, margin: float = MARGIN, measure: str = "", *, by_cases: bool = False
) -> list[MeasureComparison]:
    """Compare by every measure of the candidate, or by the one called ``measure``.

    ``margin`` is a share of each measure's scale. Raises UsageError for runs of two evaluators, for an unknown measure,
    and for runs that have answers in common.
    """
    # Answers that both runs have show no change, even if the target has changed.
    if common := common_answers(cand, base):
        raise UsageError(f"{common}, so they cannot show a change; compare runs with calls of their own")
    if base.evaluator != cand.evaluator:
        raise UsageError(f"{base.run} is a run of {base.evaluator} and {cand.run} one of {cand.evaluator}")
    # GATE, The question: with another input or other checks it is another case, even with the same id.
    pairing, twice = paired(cand, base), tuple(_twice(base, cand))
    base = pairing.partner
    cand = with_short([cand], {cand.called: base})[0][0]
    known = {each.name for each in base.cases.measures}
    wanted = [each for each in cand.cases.measures if each.name in known and measure in ("", each.name)]
    if not wanted:
        names = ", ".join(sorted(known)) or "none"
        raise UsageError(f"{cand.evaluator} has no measure {measure!r}; there are: {names}")
    found = [compare(base.cases, cand.cases, each, margin * each.width, by_cases=by_cases) for each in wanted]
    if twice:
        # An interval is too narrow if answers count twice.
        found = [msgspec.structs.replace(each, verdict="inconclusive", repeats=None) for each in found]
    copies = (*twice, *([f"{same[0].upper()}{same[1:]}."] if (same := same_answers(cand, base)) else []))
    found = [msgspec.structs.replace(each, copies=copies) for each in found]
    return [_with_changed(each, pairing.cases) for each in found] if pairing.cases.changed else found


def _twice(base: RunCases, cand: RunCases) -> Iterator[str]:
    for side, each in (("baseline", base), ("candidate", cand)):
        if twice := doubled(each):
            yield f"The {side} has {twice}, so that the same answers count twice: evaluate each once."


def _with_changed(found: MeasureComparison, cases: PairedCases) -> MeasureComparison:
    """Count cases with another input or other checks as changed, not as new."""
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
    lines = [f"# {escape(cand.evaluator)}: {escape(cand.shown)} against {escape(base.shown)}", ""]
    # Before any p-value: it is the first cause to think of.
    if replaced := cand.other_model(base):
        lines += [escape(replaced), ""]
    for comparison in found:
        lines += [*_comparison(comparison), ""]
    lines += [*_both_runs(base, cand)]
    # Last, over the whole text: names of runs and cases may hold escapes that a terminal would obey.
    return visible("\n".join(lines).rstrip() + "\n")


def verdict_sentence(base: RunCases, cand: RunCases, found: Sequence[MeasureComparison]) -> str:
    """The verdict by the first measure of two runs, in one sentence."""
    first = next((each for each in found if each.observed is not None), None)
    if first is None or first.observed is None:
        return f"{cand.shown} and {base.shown} answered no case in common, so nothing is known."
    seen, shown = first.observed, MeasureFormat(first.measure)
    return (
        f"{cand.shown} is {VERDICTS[first.verdict]} against {base.shown}: {first.measure.name} went from "
        f"{shown.level(seen.base)} to {shown.level(seen.cand)} ({shown.change(seen.delta)}; for these cases between "
        f"{shown.change(seen.low)} and {shown.change(seen.high)})."
    )


def decision_text(decision: GateDecision) -> str:
    """The decision in a sentence, and a row for each check."""
    return f"{decision_head(decision)}\n{decision_demands(decision)}"


def decision_head(decision: GateDecision) -> str:
    """The decision as a heading, and in a sentence."""
    against = f" against {escape(decision.baseline)}" if decision.baseline else ""
    over = headline(decision)
    names = decision.folders or decision.candidates
    title = f"# {decision.decided}: {escape(', '.join(names))}{against}{over and f' {escape(over)}'}"
    return visible(f"{title}\n\n{escape(sentence(decision))}\n")


def decision_demands(decision: GateDecision) -> str:
    """A row for each check, the cases behind them, and the notes."""
    lines: list[str] = []
    for check in decision.checks:
        if check.veto:
            lines += [f"{check.decided}, {escape(check.metric)}: {escape(check.reason)}", ""]
    lines += ["| | number | has to be | why | |", "| --- | --- | --- | --- | --- |"]
    lines += [_row(check) for check in decision.checks]
    for check in decision.checks:
        if check.cases and check.decided != "GO":
            what = f"{check.decided} by these cases ({escape(check.metric)}, {escape(check.demand)})"
            lines += ["", f"{what}: {', '.join(map(escape, check.cases))}"]
    if decision.quarantined:
        rows: list[tuple[object, ...]] = [
            (each.run, each.case, quarantine_text(each), each.reason, each.until) for each in decision.quarantined
        ]
        lines += ["", table(("run", "case", "quarantine", "reason", "until"), rows).rstrip("\n")]
    if decision.notes:
        lines += ["", *(f"- {escape(note)}" for note in decision.notes)]
    return visible("\n".join(lines) + "\n")


_VERBS: dict[Decided, str] = {
    "GO": "The candidate keeps what the policy demands",
    "NO-GO": "The candidate is worse than the policy allows",
    "SUSPECT": "The candidate got worse beyond chance, by an amount that the answers do not show",
    "INCONCLUSIVE": "The answers cannot tell whether the candidate is worse",
}


def sentence(decision: GateDecision) -> str:
    """The decision in one sentence for people who do not know the policy: what it is about, before and now."""
    critical = [check for check in decision.checks if check.tier == "critical"]
    deciding = [check for check in critical if check.decided == decision.decided] or critical
    # A demand on the mean says more than the cases behind it; those have a list of their own.
    check = next((each for each in deciding if not each.veto), deciding[0] if deciding else None)
    if check is None:
        return f"{_VERBS[decision.decided]}."
    opening = _VERBS[decision.decided]
    if decision.decided == "NO-GO" and not check.change:
        opening = "The candidate does not keep what the policy demands"
    elif decision.decided == "SUSPECT" and check.veto:
        opening = "Single cases got worse beyond chance"
    elif decision.decided == "INCONCLUSIVE" and check.levels is None:
        opening = "Nothing shows that the candidate is worse, and nothing excludes it"
    return f"{opening}: {_about(check)}."


def _about(check: Check) -> str:
    levels = check.levels
    if levels is None:
        return f"{check.metric}: {check.reason.rstrip('.')}"
    if not levels.change:
        return (
            f"{check.metric} is {levels.cand} (between {levels.low} and {levels.high}), and has to be {levels.allowed}"
        )
    return (
        f"{check.metric} went from {levels.base} to {levels.cand} ({levels.change}; for these cases between "
        f"{levels.low} and {levels.high}), and may get worse by {levels.allowed}"
    )


def headline(decision: GateDecision) -> str:
    """The number of cases that decided, and of each run's cases, for a title; empty without a baseline."""
    several = len(decision.paired) > 1
    parts = [
        f"{f'{each.run}: ' if several else ''}{each.equal:,} equal cases of the baseline's {each.base:,} and the "
        f"candidate's {each.cand:,}"
        for each in decision.paired
    ]
    return f"({'; '.join(parts)})" if parts else ""


def quarantine_text(entry: Quarantined) -> str:
    """Whether a case in quarantine counts, how often it passed, and why."""
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
    yield "| change | 95 % between | p worse | p better | margin | smallest detectable |"
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
    found: MeasureComparison, seen: Estimate, shown: MeasureFormat, format_name: Callable[[str], str] = escape
) -> list[str]:
    """Sentences that explain the numbers; ``format_name`` escapes the name of a case."""
    notes = []
    if reading := found.measure.reading:
        notes.append(f"{reading[0].upper()}{reading[1:]}.")
    notes += found.copies
    if found.by_cases:
        notes.append("The verdict is for cases like these, since repeats of this target may depend on each other.")
    if seen.case_low is not None and seen.case_high is not None:
        ends = f"{shown.change(seen.case_low)} and {shown.change(seen.case_high)}"
        notes.append(f"For cases like these, the change is between {ends}.")
    if found.stopped:
        notes.append(
            f"evalq stopped calling {found.stopped:,} cases once they were decided, which biases their means "
            "to the more frequent answer. They cannot show that nothing changed. They can show a change only if both "
            "runs used the same --stop and --repeat. None of them is named as worse."
        )
    if found.repeats is not None:
        notes.append(f"{found.repeats:,.0f} times as many repeats would decide, if the change is really this large.")
    if found.missing:
        # The worst case is computed only if answers are missing.
        at_worst = found.worst.delta if found.worst else seen.delta
        notes.append(
            f"The candidate lacks {found.missing:,} answers that the baseline has. If all of them failed, the change "
            f"would be {shown.change(at_worst)}."
        )
    for count, listed, what in (
        (found.alone_count, found.alone, "not answered by the candidate"),
        (found.new_count, found.new, "not answered by the baseline"),
        (found.changed_count, found.changed, "with another input or other checks now, which do not count"),
    ):
        if count:
            notes.append(f"{count:,} cases {what}: {_names(listed, count, format_name)}.")
    if found.named:
        notes.append(f"Got worse, beyond chance: {_names(found.named, len(found.named), format_name)}.")
    if found.collapsed:
        notes.append(f"Newly collapsed: {_names(found.collapsed, len(found.collapsed), format_name)}.")
    return notes


def _both_runs(base: RunCases, cand: RunCases) -> Iterator[str]:
    if base.specification != cand.specification:
        yield "Their parameters differ (another golden set, or other rules): that may be the cause of a change."
    if base.version != cand.version:
        yield f"They were evaluated by version {base.version} and version {cand.version} of {base.evaluator}."
    if base.usage is not None and cand.usage is not None:
        yield "| calls | baseline | candidate |"
        yield "| --- | --- | --- |"
        yield f"| cost an output | {cost_text(base.usage)} | {cost_text(cand.usage)} |"
        for share, seconds in cand.usage.seconds.items():
            yield f"| {share} of their seconds | {seconds_text(base.usage, share)} | {seconds:.3g} |"


def cost_text(usage: RunUsage) -> str:
    """The mean cost of an output, or "unknown"."""
    each = usage.cost_each
    return "unknown" if each is None else f"{each:.4g}"


def seconds_text(usage: RunUsage, share: str) -> str:
    """A quantile of the seconds of its calls, or "unknown"."""
    return f"{usage.seconds[share]:.3g}" if share in usage.seconds else "unknown"


def _names(cases: Sequence[str], count: int, format_name: Callable[[str], str]) -> str:
    more = f" and {count - _SHOWN:,} more" if count > _SHOWN else ""
    return ", ".join(map(format_name, cases[:_SHOWN])) + more


def p_value_text(value: float) -> str:
    """A p-value as people read it."""
    return "< 1e-12" if value <= 1e-12 else f"{value:.2g}"


class MeasureFormat:
    """Numbers of a measure as people read them: shares as percentages, changes of shares as points."""

    def __init__(self, measure: Measure) -> None:
        # Only on this scale are percentages clear.
        self._share = (measure.low, measure.high) == (0.0, 1.0)
        self._passes = measure.kind == "pass"

    def level(self, value: float) -> str:
        """A mean, as a share in % or as a score."""
        return f"{100 * value:.1f} %" if self._share else f"{value:.3f}"

    def change(self, value: float) -> str:
        """A change, with its sign."""
        return f"{100 * value:+.1f} points" if self._share else f"{value:+.3f}"

    def size(self, value: float) -> str:
        """A change without sign, such as a margin."""
        return f"{100 * value:.1f} points" if self._share else f"{value:.3f}"

    def answers(self, mean: float, count: int) -> str:
        """The answers of a case: how many passed, or their mean."""
        # The product is a whole number, except for rounding.
        return f"{round(mean * count)} of {count} passed" if self._passes else f"{mean:.3f} ({count})"
