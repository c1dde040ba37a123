"""What of the checks report is watched over time."""

from __future__ import annotations

from evalq.evalcore.views.metrics import Metric

__all__ = ["METRICS"]

METRICS = (
    Metric(
        "evalq_checks_pass_rate",
        "Outputs that passed, mean over cases by their weights.",
        "share",
        "pass_rate",
        recent=10,
    ),
    Metric("evalq_checks_score", "Score of outputs, mean over cases by their weights.", "points", "score", recent=10),
    Metric("evalq_checks_outputs", "Outputs of the newest run.", "count", "outputs.total"),
    Metric("evalq_checks_errors", "Outputs of the newest run that have no verdict.", "count", "outputs.errors"),
    Metric("evalq_checks_cases", "Cases that were to be answered.", "count", "cases.total"),
    Metric(
        "evalq_checks_cases_answered", "Cases with at least one output that has a verdict.", "count", "cases.answered"
    ),
    Metric(
        "evalq_checks_thresholds",
        "Whether all cases reach their thresholds: 1 they do, 0 some do not, 0.5 cannot be told yet.",
        "state",
        "thresholds.verdict",
        states=(("fails", 0.0), ("inconclusive", 0.5), ("holds", 1.0)),
    ),
    Metric("evalq_checks_tag_pass_rate", "Outputs of a tag that passed.", "share", "by_tag[tag].pass_rate", ("tag",)),
    Metric(
        "evalq_checks_check_pass_rate", "Outputs that passed a check.", "share", "by_check[check].pass_rate", ("check",)
    ),
    Metric(
        "evalq_checks_case_failures",
        "Outputs of a case that failed, the cases with the most only.",
        "count",
        "by_case[case].outputs.failed",
        ("case",),
        # A label's values have to be few, and a file may have any number of cases.
        most=50,
    ),
    Metric(
        "evalq_checks_collapse",
        "Whether the answers to any case collapsed: 1 some did, 0 none did, 0.5 cannot be told yet.",
        "state",
        "diversity.verdict",
        # The verdict is on "collapse nowhere": that it holds is what 0 says here, unlike for thresholds.
        states=(("holds", 0.0), ("inconclusive", 0.5), ("fails", 1.0)),
    ),
    Metric(
        "evalq_checks_effective_modes",
        "Effective number of kinds of answers, mean over cases with repeats.",
        "number",
        "diversity.effective_modes",
        recent=10,
    ),
    Metric(
        "evalq_checks_tag_effective_modes",
        "Effective number of kinds of answers, mean over the cases of a tag.",
        "number",
        "diversity.by_tag[tag].effective_modes",
        ("tag",),
    ),
    Metric(
        "evalq_checks_case_mode_share",
        "Share of a case's commonest kind of answer, the cases with the highest only.",
        "share",
        "diversity.by_case[case].mode_share.value",
        ("case",),
        most=50,
    ),
    Metric(
        "evalq_checks_plain_pass_rate",
        "Outputs that passed by the checks that no judge decides, mean over cases by their weights.",
        "share",
        "plain.pass_rate",
    ),
    Metric(
        "evalq_checks_agreement",
        "Labelled verdicts of a check that people agree with.",
        "share",
        "labels.checks[check].agreement.value",
        ("check",),
    ),
    Metric(
        "evalq_checks_corrected_pass_rate",
        "Outputs that pass a check as people would have it, by labels of a random sample.",
        "share",
        "labels.checks[check].corrected.value",
        ("check",),
    ),
    Metric("evalq_checks_labels", "Labels that count.", "count", "labels.used"),
    Metric("evalq_checks_latency_median_seconds", "Median seconds of an answer.", "seconds", "latency_seconds.p50"),
    Metric(
        "evalq_checks_latency_p95_seconds", "Seconds that 95 % of answers keep to.", "seconds", "latency_seconds.p95"
    ),
    Metric(
        "evalq_checks_judge_votes_lost",
        "Votes of a judge in the newest run that are no verdict: its reply cannot be read, or its call failed.",
        "count",
        "judges[judge].votes.lost",
        ("judge",),
    ),
    Metric(
        "evalq_checks_judge_cost",
        "What the calls of a judge cost in the newest run.",
        "number",
        "judges[judge].cost.total",
        ("judge",),
    ),
    Metric("evalq_checks_cost", "What the newest run's outputs cost.", "number", "cost.total"),
    Metric("evalq_checks_tokens", "Tokens of an output, mean.", "number", "tokens.mean"),
)
