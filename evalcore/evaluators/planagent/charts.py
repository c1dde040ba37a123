"""What the page of a plan agent's rows begins with and draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalq.evalcore.evaluators.planagent.section import round_order
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.charts import Chart, Mark, Summary, Tile, number

__all__ = ["CHARTS", "files", "opening"]


def files(report: Mapping[str, Json]) -> dict[str, Any]:
    """The results of each input by name."""
    results = report["results"]
    return dict(results["files"]) if "files" in results else {report["inputs"][0]["name"]: results}


def opening(report: Mapping[str, Json]) -> Summary:
    """The seed's metrics of the set, of the first input where there are several."""
    each = files(report)
    if len(each) > 1:
        scored = report["records"]["scored"]
        tiles = [
            Tile(name, number(found["set"]["accuracy"], "points"), "mean score, of 5") for name, found in each.items()
        ]
        return Summary(f"{scored:,} rows of {len(each)} files scored", tiles=tuple(tiles[:12]))
    (found,) = each.values()
    whole, unscored = found["set"], report["records"]["unscored"]
    rules = report["params"]["rules"]
    tiles = [
        Tile("Intent", number(whole["intent"], "points"), "of 5"),
        Tile("Accuracy", number(whole["accuracy"], "points"), "of 5"),
        Tile(
            "Consistency",
            number(found["consistency"]["score"], "points"),
            f"{found['consistency']['queries']:,} queries",
        ),
        Tile("Stability", number(whole["stability"][rules["stability"]], "points"), "of 5"),
        Tile("Mean time", number(whole["speed"]["mean_seconds"], "seconds")),
        Tile("Without an answer", number(found["failures"]["rows"], "count"), "errors, broken JSON, empty"),
    ]
    mean = number(whole["accuracy"], "points")
    left = [f"{unscored:,} rows have no check that can be read, and stay out of every mean."] if unscored else []
    if unread := found["unread"]["conditions"]:
        left.append(f"{unread:,} conditions in {found['unread']['rows']:,} rows are in no form that evalq reads.")
    headline = f"A mean score of {mean} of 5 over {whole['scored']:,} rows"
    return Summary(headline, " ".join(left), tiles=tuple(tiles))


def _counts(key: str) -> Any:
    def marks(report: Mapping[str, Json]) -> Iterator[Mark]:
        for name, found in files(report).items():
            several = "files" in report["results"]
            for round_ in sorted(found["rounds"], key=round_order):
                label = f"{name} · {round_}" if several else round_
                for points, rows in sorted(found["rounds"][round_][key].items()):
                    yield Mark(label, rows, part=points)

    return marks


def _rounds(report: Mapping[str, Json]) -> Iterator[Mark]:
    for name, found in files(report).items():
        for round_ in sorted(found["rounds"], key=round_order):
            part = found["rounds"][round_]
            label = f"{name} · {round_}" if "files" in report["results"] else round_
            yield Mark(label, part["accuracy"], note=f"{part['scored']:,} rows")


def _checks(report: Mapping[str, Json]) -> Iterator[Mark]:
    """Each kind's share of failed checks over all files, the worst first."""
    totals: dict[str, tuple[int, int]] = {}
    for found in files(report).values():
        for check in found["checks"]:
            failed, of = totals.get(check["check"], (0, 0))
            totals[check["check"]] = (failed + check["of"] - check["passed"], of + check["of"])
    for kind, (failed, of) in sorted(totals.items(), key=lambda item: (-item[1][0] / item[1][1], item[0])):
        low, high = wilson(failed, of)
        yield Mark(kind, failed / of, low, high, note=f"{failed:,} of {of:,}")


def _categories(report: Mapping[str, Json]) -> Iterator[Mark]:
    for name, found in files(report).items():
        for group in sorted(found["categories"], key=lambda group: (-(group["failure_rate"] or 0.0), group["name"])):
            if group["of"]:
                low, high = wilson(group["failed"], group["of"])
                label = f"{name} · {group['name']}" if "files" in report["results"] else group["name"]
                yield Mark(label, group["failure_rate"], low, high, note=f"{group['rows']:,} rows")


def _failures(report: Mapping[str, Json]) -> Iterator[Mark]:
    reasons: dict[str, int] = {}
    for found in files(report).values():
        for item in found["failures"]["errors"]["top"]:
            reasons[item["name"]] = reasons.get(item["name"], 0) + item["rows"]
        for reason in ("unparsable", "empty"):
            reasons[reason] = reasons.get(reason, 0) + found["failures"]["reasons"][reason]
    for reason, rows in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        if rows:
            yield Mark(reason, rows)


CHARTS = (
    Chart("Score by round", "Mean over scored rows.", "bars", "points", _rounds, "Round", (0.0, 5.0)),
    Chart("How scores are spread", "Rows by score.", "stacked", "count", _counts("score_counts"), "Round"),
    Chart(
        "Speed", "Rows by points for their time: 5 is fastest.", "stacked", "count", _counts("speed_counts"), "Round"
    ),
    Chart(
        "Failed checks by kind",
        "Share of the checks of each kind that did not pass, with 95 % intervals (Wilson).",
        "dots",
        "share",
        _checks,
        "Check",
        (0.0, 1.0),
    ),
    Chart(
        "Failed checks by category",
        "Share of the checks in rows of each category that did not pass, with 95 % intervals (Wilson).",
        "dots",
        "share",
        _categories,
        "Category",
        (0.0, 1.0),
    ),
    Chart(
        "Rows without an answer",
        "By reason; numbers and ids in error texts are masked.",
        "bars",
        "count",
        _failures,
        "Reason",
    ),
)
