"""What of the plan agent's report is watched over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.metrics import Metric

__all__ = ["METRICS"]


def _files(report: Mapping[str, Json]) -> Iterator[tuple[dict[str, str], Json]]:
    """Each file's results: a report of several has them under ``files``."""
    results = report["results"]
    files = results.get("files") or {report["inputs"][0]["name"]: results}
    for name, section in files.items():
        yield {"input": name}, section


def _checklists(report: Mapping[str, Json]) -> Iterator[tuple[dict[str, str], Json]]:
    """Each file's operating checklist, its entries by name."""
    for labels, section in _files(report):
        yield labels, {entry["item"]: entry for entry in section["checklist"]}


METRICS = (
    Metric(
        "evalq_planagent_accuracy",
        "Mean accuracy of the set, 0 to 5.",
        "points",
        "set.accuracy",
        ("input",),
        scope=_files,
        recent=10,
    ),
    Metric(
        "evalq_planagent_intent",
        "Mean intent score of the set, 0 to 5.",
        "points",
        "set.intent",
        ("input",),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_consistency",
        "Queries that all rounds judge alike, as a score of 0 to 5.",
        "points",
        "consistency.score",
        ("input",),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_stability",
        "Stability of the set, 0 to 5, by its two readings.",
        "points",
        "set.stability.{reading}",
        ("input", "reading"),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_speed_points",
        "Points of the mean seconds, 0 to 5.",
        "points",
        "set.speed.points_of_mean",
        ("input",),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_mean_seconds",
        "Mean seconds of an answer.",
        "seconds",
        "set.speed.mean_seconds",
        ("input",),
        scope=_files,
        recent=10,
    ),
    Metric(
        "evalq_planagent_round_accuracy",
        "Mean accuracy of a round, 0 to 5.",
        "points",
        "rounds.{round}.accuracy",
        ("input", "round"),
        scope=_files,
        most=50,
    ),
    Metric(
        "evalq_planagent_score_rows",
        "Rows with a score.",
        "count",
        "set.score_counts.{score}",
        ("input", "score"),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_stability_failure_share",
        "Rows that fail for stability; from 0.01 on the checklist warns.",
        "share",
        "stability.share",
        ("input",),
        scope=_checklists,
        recent=10,
    ),
    Metric(
        "evalq_planagent_failure_share",
        "Rows without an answer: an error, nothing, or no JSON.",
        "share",
        "failures.share",
        ("input",),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_check_failure_rate",
        "Checks of a kind that fail.",
        "share",
        "checks[check].failure_rate",
        ("input", "check"),
        scope=_files,
    ),
)
