"""Labels in the report: how far each fallible check agrees with people, and the rates by their labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from evalq.evalcore.evaluators.checks.check import any_judged, fallible, fallible_and_deciding
from evalq.evalcore.evaluators.checks.params import Case, ChecksParams
from evalq.evalcore.evaluators.checks.score import of_no_check, scorer_for
from evalq.evalcore.evaluators.checks.state import CaseCounts, ChecksState
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import LISTED, has_seen
from evalq.evalcore.naming import shorten
from evalq.evalcore.statistics.agreement import LEAST_LABELS, AgreementTable, JudgedCase, ShareEstimate, trust_of
from evalq.evalcore.statistics.corrected_rate import Labelled, corrected
from evalq.evalcore.statistics.rates import Interval, Rate, clustered
from evalq.evalcore.views.charts import Chart, Mark
from evalq.evalcore.views.markdown import NONE, escape, percent_between, table

Counted = tuple[Case, CaseCounts]
_NO_TABLE = (0, 0, 0, 0)


def trusted_checks(cases: Sequence[Counted], params: ChecksParams) -> dict[str, bool]:
    """Whether each check that may be wrong and decides is trusted, by its labels over all cases, by name."""
    if not any_judged(params):
        return {}
    judge, found = scorer_for(params), dict[str, list[JudgedCase]]()
    for case, counted in cases:
        plan = judge.plan(case.id)
        for at, (check, judged) in enumerate(zip(plan.checks, plan.judged, strict=True) if plan else ()):
            if judged:
                # By name over all cases: one name for several rubrics is one judge (decision 23).
                found.setdefault(check.name, []).append(_judged_case(counted, at))
    return {name: not trust_of(own).why for name, own in found.items()}


def _judged_case(counted: CaseCounts, at: int) -> JudgedCase:
    passed, failed, _ = counted.checks[at] if counted.checks else (0, 0, 0)
    both, false_pass, false_fail, neither = counted.labels[at] if counted.labels else _NO_TABLE
    return JudgedCase(both, false_pass, false_fail, neither, passed, passed + failed)


def on_trust(case: Case, trusted: Mapping[str, bool], params: ChecksParams) -> bool:
    """Whether the case is decided by a check that may be wrong, and whose verdicts people's labels do not bear out."""
    if params.judges_decide or not trusted:
        return False
    plan = scorer_for(params).plan(case.id)
    return plan is not None and any(
        judged and not trusted[check.name] for check, judged in zip(plan.checks, plan.judged, strict=True)
    )


def labels_section(cases: Sequence[Counted], state: ChecksState, params: ChecksParams) -> dict[str, Json]:
    """The pass rate by plain checks, and what labels say; nothing where no check may be wrong and nobody labelled."""
    apart = any_judged(params)
    if not (apart or params.labels or state.astray.total or any(counted.labels for _, counted in cases)):
        return {}
    checks = list(_checks(cases, params))
    astray = list(_astray(cases, params))
    told = [f"line {line}: {why}" for line, why in state.astray.first] + [why for _, why in astray[:LISTED]]
    labels: dict[str, Json] = {
        "used": sum(entry["labels"] for entry in checks),
        "astray": state.astray.total + sum(count for count, _ in astray),
        "needed": LEAST_LABELS,
        "checks": checks,
        "outputs": _outputs(cases, params) if apart else None,
        "listed": told[:LISTED],
    }
    return {**({"plain": _plain(cases, params)} if apart else {}), "labels": labels}


def _plain(cases: Sequence[Counted], params: ChecksParams) -> dict[str, Json]:
    """Outputs that pass by the checks that are not fallible, of cases that have any."""
    counts = []
    for case, counted in cases:
        passed, failed = counted.plain or (0, 0)
        # Where nothing is fallible all checks are plain ones.
        if not any(fallible_and_deciding(case)):
            passed, failed = counted.passed, counted.failed
        counts.append((case, passed, failed))
    rates = [Rate(p / (p + f), p + f, case.weight) for case, p, f in counts if p + f]
    whole = math.fsum(rate.weight for rate in rates)
    return {
        "outputs": {"passed": sum(p for _, p, _ in counts), "failed": sum(f for _, _, f in counts)},
        "pass_rate": math.fsum(rate.weight * rate.value for rate in rates) / whole if whole else None,
        **_ends(clustered(rates)),
    }


def _checks(cases: Sequence[Counted], params: ChecksParams) -> Iterator[dict[str, Json]]:
    """Each check that may be wrong, or has labels, over the cases that have it, in the order of their names."""
    judge, found, judged, decides = scorer_for(params), dict[str, list[_Own]](), set[str](), set[str]()
    for case, counted in cases:
        plan = judge.plan(case.id)
        for at, check in enumerate(plan.checks if plan else ()):
            passed, failed, _ = counted.checks[at] if counted.checks else (0, 0, 0)
            table = counted.labels[at] if counted.labels else _NO_TABLE
            counts = _labelled(table, passed, passed + failed, case.weight)
            found.setdefault(check.name, []).append((case.id, counts))
            if fallible(case.checks[at]):
                judged.add(check.name)
            if plan and plan.judged[at]:
                decides.add(check.name)
    for name, own in sorted(found.items()):
        if name in judged or any(each.labels for _, each in own):
            yield {"check": name, "judged": name in judged, "decides": name in decides, **_told(own)}


def _outputs(cases: Sequence[Counted], params: ChecksParams) -> dict[str, Json]:
    """Whole outputs of the cases that fallible checks decide: as judged, and with people's labels in their place."""
    own = [
        (case.id, _labelled(counted.people or _NO_TABLE, counted.passed, counted.answers, case.weight))
        for case, counted in cases
        if any(fallible_and_deciding(case))
    ]
    return {"cases": len(own), **_told(own)}


def _labelled(table: Sequence[int], passed: int, answers: int, weight: float) -> Labelled:
    both, false_pass, false_fail, neither = table
    return Labelled(both, false_pass, false_fail, neither, passed, answers, weight)


_Own = tuple[str, Labelled]
"""A case's id, and its labels."""


def _told(named: Sequence[_Own]) -> dict[str, Json]:
    """One table over cases, and what follows from it; ``by_case`` where any answer is labelled."""
    own = [case for _, case in named]
    tables = [AgreementTable(*case[:4]) for case in own]
    trust = trust_of([JudgedCase(*case[:6]) for case in own])
    answered = [case for case in own if case.answers]
    # Summed exactly: the last digit must not go by the order of the cases.
    whole = math.fsum(case.weight for case in answered)
    rate = math.fsum(case.weight * case.passed / case.answers for case in answered) / whole if whole else None
    by_people = corrected(answered)
    return {
        "labels": sum(table.labels for table in tables),
        "labelled_cases": sum(bool(table.labels) for table in tables),
        "table": {name: sum(getattr(table, name) for table in tables) for name in AgreementTable._fields},
        "agreement": _estimate(trust.agreement),
        "kappa": _estimate(trust.kappa),
        "false_pass": _estimate(trust.false_pass),
        "false_fail": _estimate(trust.false_fail),
        "trusted": not trust.why,
        "why": trust.why,
        "sample_p": trust.sample_p,
        "by_case": [[case, *each[:6]] for case, each in named] if trust.labels else [],
        "judged_rate": rate,
        "corrected": {
            "value": by_people.value if by_people else None,
            **_ends(by_people.interval if by_people else None),
        },
        "labels_alone": {
            "value": by_people.alone if by_people else None,
            **_ends(by_people.alone_interval if by_people else None),
        },
    }


def _estimate(found: ShareEstimate) -> dict[str, Json]:
    return {"value": found.value, **_ends(found.interval)}


def _ends(interval: Interval | None) -> dict[str, Json]:
    return {"low": interval.low if interval else None, "high": interval.high if interval else None}


def _astray(cases: Sequence[Counted], params: ChecksParams) -> Iterator[tuple[int, str]]:
    """How many labels of the file are about nothing, and why, in its order of cases and checks."""
    judge, counts = scorer_for(params), {case.id: counted for case, counted in cases}
    for case, checks in params.labels.items():
        plan = judge.plan(case)
        if plan is not None and plan.skipped:
            continue  # what the selection leaves out is not looked at
        for name, said in checks.items():
            repeats = sorted((*said.passed, *said.failed))
            why = f"{shorten(case)!r} is none of the cases"
            if plan is not None:
                why = of_no_check(name, case, plan.given.places)
            if why:
                yield len(repeats), f"{len(repeats)} of {shorten(name)!r}: {why}"
                continue
            for repeat in repeats:
                # Seen are only outputs with a verdict: a label of another is held against nothing.
                if not has_seen(counts[case].seen, repeat):
                    yield 1, f"{shorten(case)} repeat {repeat} has no output with a verdict"


# What labels say, as people read it: in Markdown, on the page, and before the report.

_ASTRAY = 10
_SAMPLE = (
    "Labels have to be of a random sample of the answers. Corrected rates are what people would say, by these labels "
    "and the judge's verdicts on all answers; the interval is of 95 %."
)
_OUTPUTS = "whole outputs"


def notices(report: Mapping[str, Json]) -> list[str]:
    """That labels are about nothing."""
    labels = report["results"].get("labels")
    if not labels or not labels["astray"]:
        return []
    first = labels["listed"][0] if labels["listed"] else ""
    return [f"{labels['astray']:,} label(s) are of no output with a verdict, and count nowhere: {first}"]


def plain_line(results: Mapping[str, Json]) -> str:
    """The pass rate by checks that are not fallible; empty where all are such."""
    plain = results.get("plain")
    if plain is None:
        return ""
    rate = percent_between(plain["pass_rate"], plain["low"], plain["high"])
    return f"By checks that no judge decides: {rate}"


def on_trust_line(results: Mapping[str, Json]) -> str:
    """Which checks are taken on trust, since too few of their verdicts are labelled; empty where none is."""
    labels: Mapping[str, Json] | None = results.get("labels")
    if labels is None:
        return ""
    entries = labels["checks"]
    lacking = [shorten(each["check"]) for each in entries if each["decides"] and not each["trusted"]]
    if not lacking:
        return ""
    more = f" and {len(lacking) - _ASTRAY} more" if len(lacking) > _ASTRAY else ""
    names = ", ".join(lacking[:_ASTRAY])
    return f"People's labels do not bear out the verdicts of {names}{more} yet: what rests on these is advisory."


def labels_markdown(results: Mapping[str, Json]) -> str:
    """How each check agrees with people, rates by their labels, and labels that are about nothing."""
    labels = results.get("labels")
    if labels is None:
        return ""
    entries = list(_entries(labels))
    if not entries:
        return ""
    rows = [_row(name, entry) for name, entry in entries]
    heads = (
        "Check",
        "Labels",
        "Agrees (95 %)",
        "Kappa",
        "Passes wrongly",
        "Fails wrongly",
        "Judged",
        "Corrected (95 %)",
    )
    parts = ["## Verdicts and people", table(heads, rows), _SAMPLE]
    if told := on_trust_line(results):
        parts.append(escape(told))
    if labels["astray"]:
        listed = "".join(f"\n- {escape(why)}" for why in labels["listed"][:_ASTRAY])
        parts.append(f"Labels of no output with a verdict, {labels['astray']:,}:\n{listed}")
    return "\n\n".join(part.rstrip("\n") for part in parts)


def _entries(labels: Mapping[str, Json]) -> Iterator[tuple[str, Mapping[str, Json]]]:
    for entry in labels["checks"]:
        yield shorten(entry["check"]), entry
    outputs = labels["outputs"]
    # Of a single check it would say the same again.
    if outputs is not None and outputs["labels"] and len(labels["checks"]) > 1:
        yield _OUTPUTS, outputs


def _row(name: str, entry: Mapping[str, Json]) -> tuple[object, ...]:
    def of(key: str) -> str:
        return percent_between(entry[key]["value"], entry[key]["low"], entry[key]["high"])

    kappa = entry["kappa"]
    value = NONE if kappa["value"] is None else f"{kappa['value']:.2f} ({kappa['low']:.2f} to {kappa['high']:.2f})"
    judged = percent_between(entry["judged_rate"], None, None)
    agreed = (of("agreement"), value, of("false_pass"), of("false_fail"))
    return (name, entry["labels"], *agreed, judged, of("corrected"))


def _agreement(report: Mapping[str, Json]) -> Iterator[Mark]:
    for name, entry in _found(report):
        found = entry["agreement"]
        if found["value"] is not None:
            yield Mark(name, found["value"], found["low"], found["high"], note=f"{entry['labels']:,} labels")


def _corrected(report: Mapping[str, Json]) -> Iterator[Mark]:
    for name, entry in _found(report):
        found, judged = entry["corrected"], entry["judged_rate"]
        if found["value"] is not None and judged is not None:
            note = f"{100 * judged:.1f} % by its verdicts"
            yield Mark(name, found["value"], found["low"], found["high"], note=note)


def _found(report: Mapping[str, Json]) -> Iterator[tuple[str, Mapping[str, Json]]]:
    labels = report["results"].get("labels")
    return _entries(labels) if labels is not None else iter(())


LABEL_CHARTS = (
    Chart(
        "Agreement with people",
        "Labelled verdicts that people agree with, with 95 % intervals.",
        "dots",
        "share",
        _agreement,
        "Check",
        (0.0, 1.0),
    ),
    Chart(
        "Pass rate by labels",
        "Pass rates as people would have them, by labels of a random sample and the judge's verdicts on all answers, "
        "with 95 % intervals.",
        "dots",
        "share",
        _corrected,
        "Check",
        (0.0, 1.0),
    ),
)
