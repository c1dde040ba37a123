"""What the page of a self check begins with and draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.charts import Chart, Mark, State, Summary, Tile, number, of_all, without_result

__all__ = ["CHARTS", "opening"]

_MEASURES = {"tpr": "true positive rate", "fpr": "false positive rate", "precision": "precision", "recall": "recall"}
_MET: Mapping[str | None, State] = {"yes": "good", "no": "bad", "undecided": "doubtful"}
_WAYS = {"": "check", "any_signal": "any signal", "suspected": "suspected"}


def opening(report: Mapping[str, Json]) -> Summary:
    """How many reports pass, and how many are suspected."""
    results, records = report["results"], report["records"]
    scored, passed = records["scored"], results["passed"]
    state: State = "none" if scored == records["total"] else "doubtful"
    tiles = [
        Tile("Pass rate", number(results["pass_rate"], "share"), of_all(records) or _interval(passed, scored), state)
    ]
    tiles.append(Tile("Failed", number(scored - passed, "count")))
    suspected = results["suspected"]["records"]
    tiles.append(Tile("Suspected", number(suspected, "count"), "say done, carry it not"))
    if "goals" in results:
        tiles.append(Tile("Goals reached", f"{results['goals']['reached']:,} of {results['goals']['verified']:,}"))
    if "judged" in results:
        judged = results["judged"]
        share = number(judged["supported_share"]["value"], "share")
        tiles.append(Tile("Claims supported", share, f"by {', '.join(judged['judges'])}"))
    if records["errors"]:
        tiles.append(Tile("Not checked", number(records["errors"], "count"), "broken or not looked up", "doubtful"))
    if "labels" in results:
        rate = results["labels"]["tpr"]
        tiles.append(
            Tile(
                "Hallucinations found",
                number(rate["value"], "share"),
                "of the labelled ones",
                _MET.get(rate["met"], "none"),
            )
        )
    # Of all records: where three of four are broken, one that passes is no whole.
    return Summary(
        f"{passed:,} of {records['total']:,} completion reports passed", without_result(records), tiles=tuple(tiles)
    )


def _interval(part: int, of: int) -> str:
    if not of:
        return ""
    low, high = wilson(part, of)
    return f"{100 * low:.1f} to {100 * high:.1f} %, 95 % interval"


def _questions(report: Mapping[str, Json]) -> Iterator[Mark]:
    scored = report["records"]["scored"]
    for question, share in report["results"]["questions"].items():
        if share is not None:
            low, high = wilson(round(share * scored), scored)
            yield Mark(question, share, low, high)


def _signals(report: Mapping[str, Json]) -> Iterator[Mark]:
    for signal, records in sorted(report["results"]["signals"].items(), key=lambda item: (-item[1], item[0])):
        yield Mark(signal, records)


def _suspicions(report: Mapping[str, Json]) -> Iterator[Mark]:
    reasons = report["results"]["suspected"]["reasons"]
    for reason, records in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        yield Mark(reason, records)


def _effectiveness(report: Mapping[str, Json]) -> Iterator[Mark]:
    labels = report["results"].get("labels")
    for key, way in _WAYS.items() if labels else ():
        for measure, name in _MEASURES.items():
            found = (labels[key] if key else labels)[measure]
            target = "" if found["target"] is None else f"target {number(found['target'], 'share')}: {found['met']}"
            state = _MET.get(found["met"], "none")
            yield Mark(f"{way}: {name}", found["value"], found["low"], found["high"], state, note=target)


CHARTS = (
    Chart(
        "Questions answered yes",
        "Share of the reports, with 95 % intervals (Wilson).",
        "dots",
        "share",
        _questions,
        "Question",
        (0.0, 1.0),
    ),
    Chart("Danger signals", "Reports in which each was found.", "bars", "count", _signals, "Signal"),
    Chart(
        "Suspected",
        "Reports that say all is done while what they hand in does not carry it.",
        "bars",
        "count",
        _suspicions,
        "Reason",
    ),
    Chart(
        "Effectiveness",
        "Agreement with labels, with 95 % intervals; a target is met where all of an interval is on its side.",
        "dots",
        "share",
        _effectiveness,
        "Measure",
        (0.0, 1.0),
    ),
)
