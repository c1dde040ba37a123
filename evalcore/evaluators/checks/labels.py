"""Labels of people: reading them, how often each fallible check agrees with them, and the rates by them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from evalq.evalcore.contract.repeats import repeated_notices
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.case_files import CaseFileFaults, Location, columns_of, open_table, read_jsonl
from evalq.evalcore.evaluators.checks.check import any_judged, fallible, fallible_and_deciding
from evalq.evalcore.evaluators.checks.params import AnyCase, ChecksParams
from evalq.evalcore.evaluators.checks.score import scorer_for, why_unmatched
from evalq.evalcore.evaluators.checks.state import CaseCounts, ChecksState
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import LISTED, has_seen
from evalq.evalcore.naming import found, shorten
from evalq.evalcore.records.batch import Batch
from evalq.evalcore.statistics.agreement import LEAST_LABELS, AgreementTable, JudgedCase, ShareEstimate, trust_of
from evalq.evalcore.statistics.corrected_rate import Labelled, corrected
from evalq.evalcore.statistics.rates import Interval, Rate, clustered
from evalq.evalcore.views.charts import Chart, Mark
from evalq.evalcore.views.markdown import NONE, escape, percent_between, plural, table

Counted = tuple[AnyCase, CaseCounts]
_NO_TABLE = (0, 0, 0, 0)


def trusted_checks(cases: Iterable[Counted], params: ChecksParams) -> dict[str, bool]:
    """Whether the labels over all cases justify trust in each fallible check that decides, by name."""
    if not any_judged(params):
        return {}
    scorer, cases_by_check = scorer_for(params), dict[str, list[JudgedCase]]()
    for case, counted in cases:
        plan = scorer.plan_for(case)
        for at, (check, judged) in enumerate(zip(plan.checks, plan.judged, strict=True) if plan else ()):
            if judged:
                # By name over all cases: rubrics with one name count as one judge (decision 23).
                cases_by_check.setdefault(check.name, []).append(_judged_case(counted, at))
    return {name: not trust_of(judged_cases).why for name, judged_cases in cases_by_check.items()}


def _judged_case(counted: CaseCounts, at: int) -> JudgedCase:
    passed, failed, _ = counted.checks[at] if counted.checks else (0, 0, 0)
    both, false_pass, false_fail, neither = counted.labels[at] if counted.labels else _NO_TABLE
    return JudgedCase(both, false_pass, false_fail, neither, passed, passed + failed)


def on_trust(case: AnyCase, trusted: Mapping[str, bool], params: ChecksParams) -> bool:
    """Whether a fallible check without enough confirming labels decides the case."""
    if params.judges_decide or not trusted:
        return False
    plan = scorer_for(params).plan_for(case)
    return plan is not None and any(
        judged and not trusted[check.name] for check, judged in zip(plan.checks, plan.judged, strict=True)
    )


def labels_section(
    cases: Iterable[Counted], state: ChecksState, params: ChecksParams, *, labelled: bool
) -> dict[str, Json]:
    """The pass rate by plain checks, and the labels; nothing without fallible checks and labels.

    ``labelled``: the counts of some case have labels.
    """
    fallible_checks = any_judged(params)
    if not (fallible_checks or params.labels or state.astray.total or labelled):
        return {}
    cases = list(cases)
    checks = list(_check_entries(cases, params))
    unmatched = list(_unmatched(cases, params))
    reasons = [f"line {line}: {why}" for line, why in state.astray.first] + [why for _, why in unmatched[:LISTED]]
    labels: dict[str, Json] = {
        "used": sum(entry["labels"] for entry in checks),
        "astray": state.astray.total + sum(count for count, _ in unmatched),
        "needed": LEAST_LABELS,
        "checks": checks,
        "outputs": _output_entry(cases, params) if fallible_checks else None,
        "listed": reasons[:LISTED],
    }
    return {**({"plain": _plain_rates(cases, params)} if fallible_checks else {}), "labels": labels}


def _plain_rates(cases: Sequence[Counted], params: ChecksParams) -> dict[str, Json]:
    """Outputs that pass by the checks that are not fallible, of cases with such checks."""
    counts = []
    for case, counted in cases:
        passed, failed = counted.plain or (0, 0)
        # Without fallible checks, all checks are plain.
        if not any(fallible_and_deciding(case)):
            passed, failed = counted.passed, counted.failed
        counts.append((case, passed, failed))
    rates = [Rate(p / (p + f), p + f, case.weight) for case, p, f in counts if p + f]
    whole = math.fsum(rate.weight for rate in rates)
    return {
        "outputs": {"passed": sum(p for _, p, _ in counts), "failed": sum(f for _, _, f in counts)},
        "pass_rate": math.fsum(rate.weight * rate.value for rate in rates) / whole if whole else None,
        **_interval_ends(clustered(rates)),
    }


def _check_entries(cases: Sequence[Counted], params: ChecksParams) -> Iterator[dict[str, Json]]:
    """Each check that is fallible or labelled, over its cases, in the order of names."""
    scorer, by_check, judged, decides = scorer_for(params), dict[str, list[_CaseLabels]](), set[str](), set[str]()
    for case, counted in cases:
        plan = scorer.plan_for(case)
        for at, check in enumerate(plan.checks if plan else ()):
            passed, failed, _ = counted.checks[at] if counted.checks else (0, 0, 0)
            table = counted.labels[at] if counted.labels else _NO_TABLE
            counts = _labelled_case(table, passed, passed + failed, case.weight)
            by_check.setdefault(check.name, []).append((case.id, counts))
            if fallible(case.checks[at]):
                judged.add(check.name)
            if plan and plan.judged[at]:
                decides.add(check.name)
    for name, named in sorted(by_check.items()):
        if name in judged or any(each.labels for _, each in named):
            yield {"check": name, "judged": name in judged, "decides": name in decides, **_agreement_entry(named)}


def _output_entry(cases: Sequence[Counted], params: ChecksParams) -> dict[str, Json]:
    """Whole outputs of cases that fallible checks decide: by the judge, and by people's labels instead."""
    named = [
        (case.id, _labelled_case(counted.people or _NO_TABLE, counted.passed, counted.answers, case.weight))
        for case, counted in cases
        if any(fallible_and_deciding(case))
    ]
    return {"cases": len(named), **_agreement_entry(named)}


def _labelled_case(table: Sequence[int], passed: int, answers: int, weight: float) -> Labelled:
    both, false_pass, false_fail, neither = table
    return Labelled(both, false_pass, false_fail, neither, passed, answers, weight)


_CaseLabels = tuple[str, Labelled]
"""A case's id, and its labels."""


def _agreement_entry(named: Sequence[_CaseLabels]) -> dict[str, Json]:
    """The agreement of a check over its cases; ``by_case`` if any answer is labelled."""
    labelled = [case for _, case in named]
    tables = [AgreementTable(*case[:4]) for case in labelled]
    trust = trust_of([JudgedCase(*case[:6]) for case in labelled])
    answered = [case for case in labelled if case.answers]
    # Summed exactly, so that the last digit does not depend on the order of the cases.
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
            **_interval_ends(by_people.interval if by_people else None),
        },
        "labels_alone": {
            "value": by_people.alone if by_people else None,
            **_interval_ends(by_people.alone_interval if by_people else None),
        },
    }


def _estimate(share: ShareEstimate) -> dict[str, Json]:
    return {"value": share.value, **_interval_ends(share.interval)}


def _interval_ends(interval: Interval | None) -> dict[str, Json]:
    return {"low": interval.low if interval else None, "high": interval.high if interval else None}


def _unmatched(cases: Sequence[Counted], params: ChecksParams) -> Iterator[tuple[int, str]]:
    """The number of labels in the file that match nothing, and why, in the order of cases and checks."""
    scorer, counts = scorer_for(params), {case.id: counted for case, counted in cases if case.id in params.labels}
    known = {case.id: case for case in params.every() if case.id in params.labels}
    for case, checks in params.labels.items():
        plan = scorer.plan_for(known[case]) if case in known else None
        if plan is not None and plan.skipped:
            continue  # outside of the selection
        for name, labels in checks.items():
            repeats = sorted((*labels.passed, *labels.failed))
            why = f"{shorten(case)!r} is none of the cases"
            if plan is not None:
                why = why_unmatched(name, case, plan.labels.positions)
            if why:
                yield len(repeats), f"{len(repeats)} of {shorten(name)!r}: {why}"
                continue
            for repeat in repeats:
                # Only outputs with a verdict are seen: there is nothing to compare other labels with. What a simulated
                # user lost has labels of the checks about the user all the same.
                if not has_seen(counts[case].seen, repeat) and not (plan and plan.of_user):
                    yield 1, f"{shorten(case)} repeat {repeat} has no output with a verdict"


# Labels in Markdown, on the page, and in notices.

_LISTED_NAMES = 10
_SAMPLE = (
    "Labels have to be of a random sample of the answers. Corrected rates are what people would say, by these labels "
    "and the judge's verdicts on all answers; the interval is of 95 %."
)
_OUTPUTS = "whole outputs"


def notices(report: Mapping[str, Json]) -> list[str]:
    """Notices of repeated outputs, checks that no output passes, cases without an output, and labels of nothing."""
    results = report["results"]
    labels, never = (
        results.get("labels"),
        [*repeated_notices(report), *_never_passed(results), *_without_outputs(results)],
    )
    if not labels or not labels["astray"]:
        return never
    first = labels["listed"][0] if labels["listed"] else ""
    return [
        f"{plural(labels['astray'], 'label')} without an output that has a verdict, not counted. The first: {first}",
        *never,
    ]


_ENOUGH = 20
"""Outputs from which on it is worth a notice that none of them passes."""


def _never_passed(results: Mapping[str, Json]) -> Iterator[str]:
    """Checks whose text, path or tool may never occur."""
    for entry in results["by_check"][:_LISTED_NAMES]:
        counts, check = entry["outputs"], shorten(entry["check"])
        total = sum(counts.values())
        if total >= _ENOUGH and counts["errors"] == total:
            yield f"the check {check} can be computed for none of {total:,} outputs (the faults say why)"
        elif total >= _ENOUGH and not counts["passed"]:
            yield (
                f"no output of {total:,} passes the check {check}: does what it looks for occur at all, at this path "
                "and in this spelling?"
            )


def _without_outputs(results: Mapping[str, Json]) -> Iterator[str]:
    """Cases that no output is about."""
    cases = results["cases"]
    if cases["unrecorded"]:
        first = next((each["case"] for each in results["by_case"] if not sum(each["outputs"].values())), "")
        yield f"{cases['unrecorded']:,} of {cases['total']:,} cases have no output; the first: {shorten(first)}"


def plain_line(results: Mapping[str, Json]) -> str:
    """The pass rate by checks that are not fallible; empty without fallible checks."""
    plain = results.get("plain")
    if plain is None:
        return ""
    rate = percent_between(plain["pass_rate"], plain["low"], plain["high"])
    return f"By checks that no judge decides: {rate}"


def on_trust_line(results: Mapping[str, Json]) -> str:
    """The checks with too few labelled verdicts to trust them; empty if there are none."""
    labels: Mapping[str, Json] | None = results.get("labels")
    if labels is None:
        return ""
    entries = labels["checks"]
    names = [shorten(each["check"]) for each in entries if each["decides"] and not each["trusted"]]
    if not names:
        return ""
    more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
    listed = ", ".join(names[:_LISTED_NAMES])
    return f"People's labels do not bear out the verdicts of {listed}{more} yet: what rests on these is advisory."


def labels_markdown(results: Mapping[str, Json]) -> str:
    """How each check agrees with people, the rates by their labels, and labels that match nothing."""
    labels = results.get("labels")
    if labels is None:
        return ""
    entries = list(_entries(labels))
    if not entries:
        return ""
    rows = [_markdown_row(name, entry) for name, entry in entries]
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
    if advice := on_trust_line(results):
        parts.append(escape(advice))
    if labels["astray"]:
        listed = "".join(f"\n- {escape(why)}" for why in labels["listed"][:_LISTED_NAMES])
        parts.append(f"Labels of no output with a verdict, {labels['astray']:,}:\n{listed}")
    return "\n\n".join(part.rstrip("\n") for part in parts)


def _entries(labels: Mapping[str, Json]) -> Iterator[tuple[str, Mapping[str, Json]]]:
    for entry in labels["checks"]:
        yield shorten(entry["check"]), entry
    outputs = labels["outputs"]
    # With a single check, it would repeat the row above.
    if outputs is not None and outputs["labels"] and len(labels["checks"]) > 1:
        yield _OUTPUTS, outputs


def _markdown_row(name: str, entry: Mapping[str, Json]) -> tuple[object, ...]:
    def of(key: str) -> str:
        return percent_between(entry[key]["value"], entry[key]["low"], entry[key]["high"])

    kappa = entry["kappa"]
    value = NONE if kappa["value"] is None else f"{kappa['value']:.2f} ({kappa['low']:.2f} to {kappa['high']:.2f})"
    judged = percent_between(entry["judged_rate"], None, None)
    agreed = (of("agreement"), value, of("false_pass"), of("false_fail"))
    return (name, entry["labels"], *agreed, judged, of("corrected"))


def _agreement(report: Mapping[str, Json]) -> Iterator[Mark]:
    for name, entry in _chart_entries(report):
        share = entry["agreement"]
        if share["value"] is not None:
            yield Mark(name, share["value"], share["low"], share["high"], note=f"{entry['labels']:,} labels")


def _corrected(report: Mapping[str, Json]) -> Iterator[Mark]:
    for name, entry in _chart_entries(report):
        share, judged = entry["corrected"], entry["judged_rate"]
        if share["value"] is not None and judged is not None:
            note = f"{100 * judged:.1f} % by its verdicts"
            yield Mark(name, share["value"], share["low"], share["high"], note=note)


def _chart_entries(report: Mapping[str, Json]) -> Iterator[tuple[str, Mapping[str, Json]]]:
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


# Reading a file of labels.

_LABEL_KEYS = ("case", "repeat", "check", "passed", "note")
_LABEL_ENDINGS = (".jsonl", ".ndjson", ".csv")
# Lower case of CSV cells: spreadsheets write TRUE and FALSE.
_TRUTH = {"true": True, "false": False}
_MOST_REPEAT = 2**53
_MOST_LABELS = 1_000_000


def load_labels(path: str) -> dict[str, dict[str, dict[str, list[int]]]]:
    """Repeats by case, check, and whether they ``passed`` or ``failed``: `ChecksParams.labels`, plain.

    The file is JSONL or CSV of ``case``, ``repeat`` (0 if missing), ``check``, ``passed``, and ``note``, which is
    ignored. Raises ConfigError with all faults and contradictions by line, and for a file without labels.
    """
    faults, passed_by_key = CaseFileFaults(), dict[tuple[str, str, int], tuple[bool, Location]]()
    for row, location in _read_rows(path, faults):
        label = _parse_label(row, location, faults)
        if label is None:
            continue
        key, passed = label
        first = passed_by_key.setdefault(key, (passed, location))
        if first[0] is not passed:
            case, check, repeat = key
            verdict = f"{shorten(case)} repeat {repeat}, {shorten(check)!r}"
            earlier = "passes" if first[0] else "fails"
            faults.add(location, f"{verdict}: contradicts line {first[1].line}, by which it {earlier}")
    faults.raise_any("the labels")
    if not passed_by_key:
        # An error, since a failed export must not look as if nobody had labelled.
        raise ConfigError(f"{path} has no labels; add one (a line of case, check and passed), or omit the file")
    if len(passed_by_key) > _MOST_LABELS:
        raise ConfigError(f"{path}: more than {_MOST_LABELS:,} labels")
    labels: dict[str, dict[str, dict[str, list[int]]]] = {}
    # Sorted: the digest of the params must not depend on the order in which people labelled.
    for (case, check, repeat), (passed, _) in sorted(passed_by_key.items(), key=lambda item: item[0]):
        repeats = labels.setdefault(case, {}).setdefault(check, {"passed": [], "failed": []})
        repeats["passed" if passed else "failed"].append(repeat)
    return labels


def _read_rows(path: str, faults: CaseFileFaults) -> Iterator[tuple[dict[str, Any], Location]]:
    if not path.lower().endswith(_LABEL_ENDINGS):
        raise ConfigError(f"{path}: the name of a file of labels must end in {', '.join(_LABEL_ENDINGS)}")
    table = path.lower().endswith(".csv")
    yield from _read_table(open_table(path), path, faults) if table else read_jsonl(path, faults)


def _read_table(batch: Batch, path: str, faults: CaseFileFaults) -> Iterator[tuple[dict[str, Any], Location]]:
    """The rows of a CSV, with values as in JSONL."""
    columns = columns_of(batch, _LABEL_KEYS.__contains__)
    if len(set(columns)) < len(columns):
        faults.add(Location(path, (), 1), "the header names a column twice")
        return
    if any(columns) and not _check_header(columns, Location(path, (), 1), faults):
        return
    table = msgspec.structs.replace(batch, columns=columns)
    rows = table.rows(lambda line, reason: faults.add(Location(path, (), line), reason))
    next(rows, None)
    for line, cells in rows:
        row: dict[str, Any] = {name: text for name, text in zip(columns, cells, strict=True) if text != ""}
        row["passed"] = _TRUTH.get(str(row.get("passed", "")).strip().lower(), row.get("passed"))
        repeat = str(row.get("repeat", "0")).strip()
        # 2^53 has 16 digits. Longer texts, and texts that are not numbers, stay: they become faults of their line.
        row["repeat"] = int(repeat) if repeat.isascii() and repeat.isdigit() and len(repeat) < 17 else row["repeat"]
        yield row, Location(path, (), line)


def _check_header(columns: tuple[str, ...], location: Location, faults: CaseFileFaults) -> bool:
    """Whether a header names the columns of labels: a file without a header would lose its first label."""
    before = len(faults.entries)
    faults.unknown(dict.fromkeys(columns), _LABEL_KEYS, location)
    if missing := [name for name in ("case", "check", "passed") if name not in columns]:
        faults.add(location, f"the header lacks {', '.join(missing)}")
    return len(faults.entries) == before


def _parse_label(
    row: dict[str, Any], location: Location, faults: CaseFileFaults
) -> tuple[tuple[str, str, int], bool] | None:
    """((case, check, repeat), passed); None where a fault was noted."""
    before = len(faults.entries)
    faults.unknown(row, _LABEL_KEYS, location)
    for key in ("case", "check"):
        if not isinstance(row.get(key), str) or not row[key]:
            faults.add(location.at(key), f"{found(row, key)} where a text is wanted")
    repeat = row.get("repeat", 0)
    if type(repeat) is not int or not 0 <= repeat < _MOST_REPEAT:
        faults.add(location.at("repeat"), f"{found(row, 'repeat')} where a whole number from 0 is wanted")
    if not isinstance(row.get("passed"), bool):
        faults.add(location.at("passed"), f"{found(row, 'passed')} where true or false is wanted")
    if len(faults.entries) > before:
        return None
    return (row["case"], row["check"], repeat), row["passed"]
