"""A self check's report for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.contract.claims import judged_section
from evalq.evalcore.contract.effectiveness import effectiveness_table
from evalq.evalcore.contract.params import validate
from evalq.evalcore.evaluators.selfcheck.goals import HOW_TO_RESOLVE
from evalq.evalcore.evaluators.selfcheck.params import SelfCheckParams
from evalq.evalcore.evaluators.selfcheck.suspicion import REASONS
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.failures import failed_table
from evalq.evalcore.views.markdown import escape, left_out, table

__all__ = ["markdown", "notices"]


def markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """Verdicts; questions and signals in the order they are asked in; effectiveness where records are labelled; failed
    records with their reasons; faults.
    """
    results, records = report["results"], report["records"]
    passed = f"{results['passed']} of {records['scored']} checks passed ({_percent(results['pass_rate'])})"
    names = ", ".join(escape(given["name"]) for given in report["inputs"])
    broken = records["errors"] - results.get("unresolved", 0)
    parts = ["# Self check\n", f"{names}: {passed}; {broken} broken records.\n"]
    parts += [f"**{escape(notice)}**\n" for notice in notices(report)]
    params = validate(SelfCheckParams, report["params"], "params")
    asked = dict.fromkeys(question.id for question in params.questions)
    sought = dict.fromkeys(signal.message for signal in params.signals)
    questions: list[tuple[object, ...]] = [(name, _percent(results["questions"][name])) for name in asked]
    signals: list[tuple[object, ...]] = [(message, results["signals"][message]) for message in sought]
    parts += ["## Questions\n", table(("question", "yes"), questions)]
    parts += ["## Danger signals\n", table(("signal", "records"), signals)]
    suspected = results["suspected"]
    reasons: list[tuple[object, ...]] = [(reason, suspected["reasons"][reason]) for reason in REASONS]
    told = (
        f"{suspected['records']} of {records['scored']} reports say that all is done, while what they hand in does not"
    )
    parts += [
        "## Suspected\n",
        f"{told} carry it. They pass or fail as above.\n",
        table(("reason", "records"), reasons),
    ]
    if "goals" in results:
        goals = results["goals"]
        parts.append(f"Goal reached in {goals['reached']} of {goals['verified']} records where it was verified.\n")
    parts += judged_section(results)
    if "labels" in results:
        parts += ["## Effectiveness: a record is called hallucinated when its check does not pass\n"]
        parts += [effectiveness_table(results["labels"])]
        parts += ["## Effectiveness: ... when any signal is found\n"]
        parts += [effectiveness_table(results["labels"]["any_signal"])]
        parts += ["## Effectiveness: ... when it is suspected\n"]
        parts += [effectiveness_table(results["labels"]["suspected"])]
        if "judged" in results["labels"]:
            parts += ["## Effectiveness: ... when the judge finds a claim that is not supported\n"]
            parts += [effectiveness_table(results["labels"]["judged"])]
    parts += failed_table(results["failed"])
    parts += filter(None, [left_out(report)])
    if report["faults"]:
        faults: list[tuple[object, ...]] = [(fault["where"], fault["reason"]) for fault in report["faults"]]
        title = "Broken records, and those not looked up" if results.get("unresolved") else "Broken records"
        parts += [f"## {title}\n", table(("where", "reason"), faults)]
    return "\n".join(parts)


def notices(report: Mapping[str, Json]) -> list[str]:
    """How many records were left out since nobody looked up their expected paths, and how to do it; or nothing."""
    count, total = report["results"].get("unresolved", 0), report["records"]["total"]
    if not count:
        return []
    told = f"{count} of {total} records were not checked: their expectedPaths were not looked up."
    return [f"{told} Where the files are, run: {HOW_TO_RESOLVE} (then evaluate resolved.jsonl)"]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.1f} %"
