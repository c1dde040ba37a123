"""A verification report for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.contract.claims import judged_section
from evalq.evalcore.contract.effectiveness import effectiveness_table
from evalq.evalcore.evaluators.verification.score import BANDS, COMPONENTS
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.failures import failed_table
from evalq.evalcore.views.markdown import escape, left_out, table

__all__ = ["markdown"]


def markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """Score, pass rate, components and bands, as the specification orders them; agreement with labels where there are
    any; failed records with their reasons; faults.
    """
    results, records = report["results"], report["records"]
    names = ", ".join(escape(given["name"]) for given in report["inputs"])
    passed = f"{results['passed']} of {records['scored']} passed ({_percent(results['pass_rate'])})"
    parts = ["# Verification compliance\n", f"{names}: {passed}; {records['errors']} broken records.\n"]
    scores: list[tuple[object, ...]] = [("score", _decimals(results["mean_score"]))]
    scores += [(name.replace("_", " "), _decimals(results["components"][name])) for name in COMPONENTS]
    parts += [table(("mean of", "value"), scores)]
    parts += ["## Bands\n", table(("band", "records"), [(band, results["bands"][band]) for band in BANDS])]
    parts.append(f"Records with an unsubstantiated claim: {results['unsubstantiated']}.\n")
    parts += judged_section(results)
    if "labels" in results:
        labels = results["labels"]
        rows: list[tuple[object, ...]] = [
            (f"verdict of '{name}' is the label", agreed["right"], _percent(agreed["share"]))
            for name, agreed in labels["patterns"].items()
        ]
        rows.append(("all sets say the same", labels["agreement"]["same"], _percent(labels["agreement"]["share"])))
        parts += [f"## Labelled records ({labels['records']})\n", table(("", "records", "share"), rows)]
        parts += ["## Effectiveness: a record is called unverified when its score does not pass\n"]
        parts += [effectiveness_table(labels["by_score"])]
        if "judged" in labels:
            parts += ["## Effectiveness: ... when the judge finds a claim that is not supported\n"]
            parts += [effectiveness_table(labels["judged"])]
    parts += failed_table(results["failed"])
    parts += filter(None, [left_out(report)])
    if report["faults"]:
        faults: list[tuple[object, ...]] = [(fault["where"], fault["reason"]) for fault in report["faults"]]
        parts += ["## Broken records\n", table(("where", "reason"), faults)]
    return "\n".join(parts)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.1f} %"


def _decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
