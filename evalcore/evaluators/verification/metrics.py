"""What of the verification report is watched over time."""

from __future__ import annotations

from evalq.evalcore.views.metrics import Metric

__all__ = ["METRICS"]

METRICS = (
    Metric(
        "evalq_verification_mean_score", "Mean verification score of transcripts.", "share", "mean_score", recent=10
    ),
    Metric(
        "evalq_verification_pass_rate",
        "Transcripts whose score reaches the threshold.",
        "share",
        "pass_rate",
        recent=10,
    ),
    Metric("evalq_verification_passed", "Transcripts whose score reaches the threshold.", "count", "passed"),
    Metric(
        "evalq_verification_component_score",
        "Mean of a component of the score.",
        "share",
        "components.{component}",
        ("component",),
    ),
    Metric(
        "evalq_verification_band_records", "Transcripts in a band of the score.", "count", "bands.{band}", ("band",)
    ),
    Metric(
        "evalq_verification_unsubstantiated",
        "Transcripts with a claim that nothing substantiates.",
        "count",
        "unsubstantiated",
    ),
    Metric(
        "evalq_verification_pattern_agreement",
        "Labelled transcripts that a set of patterns judges as the label does.",
        "share",
        "labels.patterns.{patterns}.share",
        ("patterns",),
    ),
)
