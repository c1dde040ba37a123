"""What of the self check's report is watched over time."""

from __future__ import annotations

from evalq.evalcore.views.metrics import Metric

__all__ = ["METRICS"]

METRICS = (
    Metric("evalq_selfcheck_pass_rate", "Completion reports that pass the check.", "share", "pass_rate", recent=10),
    Metric("evalq_selfcheck_passed", "Completion reports that pass the check.", "count", "passed"),
    Metric(
        "evalq_selfcheck_question_pass_rate",
        "Completion reports that pass a question.",
        "share",
        "questions.{question}",
        ("question",),
    ),
    Metric(
        "evalq_selfcheck_signal_records",
        "Completion reports with a danger signal.",
        "count",
        "signals.{signal}",
        ("signal",),
    ),
    Metric(
        "evalq_selfcheck_suspected",
        "Completion reports that say all is done while their evidence does not carry it.",
        "count",
        "suspected.records",
    ),
    Metric("evalq_selfcheck_goals_verified", "Completion reports whose goal was verified.", "count", "goals.verified"),
    Metric("evalq_selfcheck_goals_reached", "Completion reports whose goal was reached.", "count", "goals.reached"),
    Metric(
        "evalq_selfcheck_true_positive_rate",
        "Hallucinated reports that the check stops, of those labelled so.",
        "share",
        "labels.tpr.value",
    ),
    Metric(
        "evalq_selfcheck_false_positive_rate",
        "Accurate reports that the check stops, of those labelled so.",
        "share",
        "labels.fpr.value",
    ),
    Metric(
        "evalq_selfcheck_precision",
        "Hallucinated ones among the labelled reports that the check stops.",
        "share",
        "labels.precision.value",
    ),
)
