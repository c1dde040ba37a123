"""What the page of a verification run begins with and draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evalq.evalcore.evaluators.verification.score import BANDS, COMPONENTS
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.charts import Chart, Mark, State, Summary, Tile, number, of_all, without_result

__all__ = ["CHARTS", "opening"]

_BANDS: Mapping[str, State] = {"perfect": "good", "good": "good", "moderate": "doubtful", "poor": "bad"}


def opening(report: Mapping[str, Json]) -> Summary:
    """How many transcripts comply, and how far."""
    results, records = report["results"], report["records"]
    scored, passed = records["scored"], results["passed"]
    state: State = "none" if scored == records["total"] else "doubtful"
    tiles = [
        Tile("Pass rate", number(results["pass_rate"], "share"), of_all(records) or _interval(passed, scored), state),
        Tile(
            "Mean score", number(results["mean_score"], "points"), f"passes from {number(_threshold(report), 'points')}"
        ),
        Tile("Unsubstantiated", number(results["unsubstantiated"], "count"), "records with such a claim"),
    ]
    if "judged" in results:
        judged = results["judged"]
        share = number(judged["supported_share"]["value"], "share")
        tiles.append(Tile("Claims supported", share, f"by {', '.join(judged['judges'])}"))
    if records["errors"]:
        tiles.append(Tile("Broken", number(records["errors"], "count"), state="doubtful"))
    if "labels" in results:
        agreement = results["labels"]["agreement"]
        tiles.append(
            Tile(
                "Pattern sets agree",
                number(agreement["share"], "share"),
                f"of {results['labels']['records']:,} labelled",
            )
        )
    # Of all records: where three of four are broken, one that passes is no whole.
    return Summary(
        f"{passed:,} of {records['total']:,} transcripts comply", without_result(records), tiles=tuple(tiles)
    )


def _interval(part: int, of: int) -> str:
    if not of:
        return ""
    low, high = wilson(part, of)
    return f"{100 * low:.1f} to {100 * high:.1f} %, 95 % interval"


def _threshold(report: Mapping[str, Json]) -> float:
    params = report["params"]
    return 1.0 if params["strict"] else float(params["threshold"])


def _components(report: Mapping[str, Json]) -> Iterator[Mark]:
    for name in COMPONENTS:
        yield Mark(name.replace("_", " "), report["results"]["components"][name])


def _bands(report: Mapping[str, Json]) -> Iterator[Mark]:
    for band in BANDS:
        records = report["results"]["bands"][band]
        yield Mark(band, records, state=_BANDS[band])


def _labels(report: Mapping[str, Json]) -> Iterator[Mark]:
    labels = report["results"].get("labels")
    for name, agreed in labels["patterns"].items() if labels else ():
        low, high = wilson(agreed["right"], labels["records"])
        yield Mark(name, agreed["share"], low, high, note=f"{agreed['right']:,} of {labels['records']:,}")


CHARTS = (
    Chart(
        "Components",
        "Mean over records: what each part of the score comes to.",
        "bars",
        "points",
        _components,
        "Component",
        (0.0, 1.0),
    ),
    Chart("Bands", "How many records score in each.", "bars", "count", _bands, "Band"),
    Chart(
        "Agreement with labels",
        "Share of the labelled records whose verdict is their label, by pattern set, with 95 % intervals (Wilson).",
        "dots",
        "share",
        _labels,
        "Pattern set",
        (0.0, 1.0),
    ),
)
