"""What labels say, as people read it: in Markdown, on the page, and before the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evalq.evalcore.evaluators.checks.shown import NONE, share
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.naming import shorten
from evalq.evalcore.views.charts import Chart, Mark
from evalq.evalcore.views.markdown import escape, table

__all__ = ["LABEL_CHARTS", "labels_markdown", "notices", "on_trust_line", "plain_line"]

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
    rate = share(plain["pass_rate"], plain["low"], plain["high"])
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
        return share(entry[key]["value"], entry[key]["low"], entry[key]["high"])

    kappa = entry["kappa"]
    value = NONE if kappa["value"] is None else f"{kappa['value']:.2f} ({kappa['low']:.2f} to {kappa['high']:.2f})"
    judged = share(entry["judged_rate"], None, None)
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
