"""How the verification report is looked at over time."""

from __future__ import annotations

from evalq.evalcore.views.panels import Panel, Plot, Threshold

__all__ = ["PANELS"]

_SCORE = (Threshold(None, "bad"), Threshold(0.5, "doubtful"), Threshold(0.9, "good"))

PANELS = (
    Panel(
        "Verified work",
        "Mean verification score of transcripts, newest run of each suite.",
        "share",
        "gauge",
        (Plot("evalq_verification_mean_score", ("suite",), legend="{suite}"),),
        _SCORE,
        (0, 1),
        overview=True,
        width=6,
    ),
    Panel(
        "Score and pass rate over time",
        "Mean score, and share of transcripts that reach the threshold.",
        "share",
        "lines",
        (
            Plot("evalq_verification_mean_score", ("suite",), legend="{suite} score"),
            Plot("evalq_verification_pass_rate", ("suite",), legend="{suite} passed"),
        ),
        _SCORE,
        (0, 1),
        width=12,
    ),
    Panel(
        "Score of the last 10 runs",
        "Mean score, and share of transcripts that reach the threshold, the newest run at 1.",
        "share",
        "bars",
        (
            Plot("evalq_verification_mean_score", ("suite",), recent=True, legend="{suite} score"),
            Plot("evalq_verification_pass_rate", ("suite",), recent=True, legend="{suite} passed"),
        ),
        _SCORE,
        (0, 1),
        width=12,
    ),
    Panel(
        "By component",
        "Mean of each component: where verification falls short.",
        "share",
        "bars",
        (Plot("evalq_verification_component_score", ("component",), legend="{component}"),),
        _SCORE,
        (0, 1),
        width=12,
    ),
    Panel(
        "Bands",
        "How many transcripts of the newest run fall into each band of the score.",
        "count",
        "bars",
        (Plot("evalq_verification_band_records", ("band",), "sum", legend="{band}"),),
        width=12,
    ),
    Panel(
        "Transcripts",
        "Passed ones, and ones with a claim that nothing substantiates.",
        "count",
        "stat",
        (
            Plot("evalq_verification_passed", (), "sum", legend="passed"),
            Plot("evalq_verification_unsubstantiated", (), "sum", legend="with unsubstantiated claims"),
        ),
        width=12,
    ),
    Panel(
        "Agreement with labels",
        "Where transcripts are labelled: how often each set of patterns is right.",
        "share",
        "bars",
        (Plot("evalq_verification_pattern_agreement", ("patterns",), legend="{patterns}"),),
        _SCORE,
        (0, 1),
        width=12,
    ),
)
