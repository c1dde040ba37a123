"""The report of checks as Markdown, from report.json's content alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalq.evalcore.evaluators.checks.diversity.markdown import diversity_markdown
from evalq.evalcore.evaluators.checks.labelling.shown import labels_markdown, plain_line
from evalq.evalcore.evaluators.checks.shown import NONE, number, share
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.naming import shorten
from evalq.evalcore.views.markdown import escape, input_faults, table

__all__ = ["markdown"]

_CASES = 50
_FAILURES = 20
_VERDICTS = {
    "holds": "all cases reach theirs",
    "fails": "not reached",
    "inconclusive": "cannot be told yet",
    "none": "none set",
    "advisory": "advisory",
}


def markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """The pass rate, thresholds, tags, checks, the cases with the lowest rates, failures, and faults of the input."""
    results = report["results"]
    parts = [
        "# Checks",
        _head(results),
        _thresholds(results["thresholds"]),
        _stopping(results),
        _rates("By tag", "Tag", "tag", results["by_tag"]),
        _rates("By check", "Check", "check", results["by_check"]),
        labels_markdown(results),
        _judges(results),
        _cases(results["by_case"]),
        diversity_markdown(results),
        _taken(results),
        _failures(results),
        input_faults(report),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _head(results: Mapping[str, Json]) -> str:
    outputs, cases = results["outputs"], results["cases"]
    judged = outputs["passed"] + outputs["failed"]
    errors = f", {outputs['errors']:,} without a verdict" if outputs["errors"] else ""
    bounds = results["pass_rate_interval"]
    rate = f"Pass rate: {share(results['pass_rate'], bounds['low'], bounds['high'])}, mean over {_over(outputs, cases)}"
    told = f"{outputs['passed']:,} of {judged:,} outputs passed{errors}"
    lines = [rate, f"{told}; {cases['answered']:,} of {cases['total']:,} cases answered"]
    if plain := plain_line(results):
        lines.insert(1, plain)
    known = [each for key in ("pass_at", "pass_hat") for each in _passes(results, key)]
    if known:
        lines.append("; ".join(known))
    return "\n\n".join(lines)


def _over(outputs: Mapping[str, int], cases: Mapping[str, int]) -> str:
    """Which cases a rate is over, and which of their outputs, where that is not all of them."""
    whole = cases["answered"] == cases["total"]
    found = "cases" if whole else f"the {cases['answered']:,} of {cases['total']:,} cases that were answered"
    return found + (", without the outputs that have no verdict" if outputs["errors"] else "")


def _passes(results: Mapping[str, Json], key: str) -> Iterator[str]:
    for entry in results[key]:
        if entry["value"] is not None and entry["k"] > 1:
            name = f"pass@{entry['k']}" if key == "pass_at" else f"pass^{entry['k']}"
            yield f"{name} {share(entry['value'], entry['low'], entry['high'])}"


def _thresholds(decided: Mapping[str, Json]) -> str:
    if not decided["total"] + decided["advisory"]:
        return ""
    if not decided["total"]:
        return f"Thresholds: {_advisory(decided)}"
    failed = decided["failed"]
    named = f" ({', '.join(escape(shorten(case)) for case in failed[:10])})" if failed else ""
    counts = ", ".join(
        f"{decided[key]} {word}"
        for key, word in (
            ("holds", "hold"),
            ("fails", "fail"),
            ("inconclusive", "undecided"),
            ("no_data", "unanswered"),
        )
        if decided[key]
    )
    return (
        f"Thresholds: {_VERDICTS[decided['verdict']]}{named}. Of {decided['total']}, each by itself: {counts}; "
        f"error at most {decided['alpha']:.1%} on either side ({decided['correction']} over all of them)"
        + (f"; {told}" if (told := _advisory(decided)) else "")
    )


def _advisory(decided: Mapping[str, Json]) -> str:
    """Of thresholds that rest on judges."""
    count = decided["advisory"]
    return f"{count:,} rest on judges with too few labelled verdicts, and are advisory" if count else ""


def _stopping(results: Mapping[str, Json]) -> str:
    """What stopping early saved; nothing where no case could."""
    stopping = results.get("stopping")
    if stopping is None:
        return ""
    calls = f"{stopping['calls_made']:,} of {stopping['calls_planned']:,} calls made, {stopping['calls_saved']:,} saved"
    return (
        f"Stopping {stopping['rule']}: {stopping['decided']} of {stopping['cases']} cases with thresholds decided, "
        f"{stopping['undecided']} undecided; {calls}. Their verdicts spend an error of at most {stopping['alpha']:.1%} "
        "on either side over the calls planned; their rates have confidence sequences. Both hold however often they "
        "were looked at; rates over several cases do not"
    )


def _rates(title: str, head: str, key: str, entries: Sequence[Mapping[str, Json]]) -> str:
    if not entries:
        return ""
    rows: list[tuple[object, ...]] = [
        (
            shorten(entry[key]),
            share(entry["pass_rate"], entry["low"], entry["high"]),
            entry["outputs"]["passed"],
            entry["outputs"]["failed"],
            entry["outputs"]["errors"],
        )
        for entry in entries[:_CASES]
    ]
    return f"## {title}\n\n" + table((head, "Pass rate (95 %)", "Passed", "Failed", "Errors"), rows)


def _judges(results: Mapping[str, Json]) -> str:
    """Who judged; nothing where nobody did."""
    rows: list[tuple[object, ...]] = [
        (
            shorten(entry["judge"]),
            *(f"{entry['votes'][key]:,}" for key in ("asked", "read", "unreadable", "failed")),
            NONE if entry["cost"]["total"] is None else f"{entry['cost']['total']:.4g}",
            NONE if entry["latency_seconds"]["p50"] is None else f"{entry['latency_seconds']['p50']:.3g} s",
            _digests(entry["configs"]),
            _digests(entry["prompts"]),
        )
        for entry in results.get("judges", ())
    ]
    if not rows:
        return ""
    head = ("Judge", "Asked", "Read", "Unreadable", "Failed", "Cost", "Median", "Settings", "Prompts")
    return "## Judges\n\n" + table(head, rows)


def _digests(found: Sequence[str]) -> str:
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return ", ".join(shorten(each)[:12] for each in found[:3]) + more


def _cases(entries: Sequence[Mapping[str, Json]]) -> str:
    def order(entry: Mapping[str, Json]) -> tuple[bool, float, str]:
        value = entry["pass_rate"]["value"]
        return value is None, value or 0.0, entry["case"]

    rows: list[tuple[object, ...]] = []
    for entry in sorted(entries, key=order)[:_CASES]:
        rate, outputs = entry["pass_rate"], entry["outputs"]
        demands = ", ".join(map(_demand, entry["thresholds"]))
        judged = outputs["passed"] + outputs["failed"]
        rows.append(
            (
                shorten(entry["case"]),
                f"{outputs['passed']} of {judged}",
                share(rate["value"], rate["low"], rate["high"]),
                number(entry["score"]),
                outputs["errors"],
                demands,
            )
        )
    title = "## By case" if len(entries) <= _CASES else f"## The {_CASES} cases with the lowest pass rates"
    return f"{title}\n\n" + table(("Case", "Passed", "Pass rate (95 %)", "Score", "Errors", "Thresholds"), rows)


def _demand(told: Mapping[str, Json]) -> str:
    verdict = told["verdict"].replace("_", " ")
    return f"{told['number']} {told['least']:g}: {verdict}{' (advisory)' if told.get('advisory') else ''}"


def _taken(results: Mapping[str, Json]) -> str:
    """What outputs took, where any record said so."""
    rows: list[tuple[object, ...]] = []
    for key, name in (("latency_seconds", "Seconds"), ("cost", "Cost"), ("tokens", "Tokens")):
        entry = results[key]
        if entry["count"]:
            told = (_figure(entry[part]) for part in ("mean", "p50", "p90", "p95", "p99", "max", "total"))
            rows.append((name, entry["count"], *told))
    if not rows:
        return ""
    return "## What outputs took\n\n" + table(
        ("", "Outputs", "Mean", "Median", "90 %", "95 %", "99 %", "Most", "In all"), rows
    )


def _failures(results: Mapping[str, Json]) -> str:
    entries = results["failures"]
    if not entries:
        return ""
    rows: list[tuple[object, ...]] = [
        (f"{entry['input']}:{entry['line']}", entry["reason"]) for entry in entries[:_FAILURES]
    ]
    more = results["outputs"]["failed"] - len(rows)
    if more > 0:
        rows.append(("", f"and {more:,} more in records.jsonl"))
    return "## Outputs that failed\n\n" + table(("Where", "Why"), rows)


def _figure(value: float | None) -> str:
    return NONE if value is None else f"{value:,.4g}"
