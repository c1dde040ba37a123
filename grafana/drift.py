"""Whether the runs of suites get worse: what the drift detector says, and on which evidence."""

from __future__ import annotations

from collections.abc import Container, Iterable

from evalq.evalcore.views.metrics import Threshold
from grafana.layout import Row
from grafana.queries import chosen
from grafana.view import SHARE, Query, Unit, View

_LABELS = ("evaluator", "suite", "target", "measure")
_POWERS = Unit("short", 1)
_PAGES = (Threshold(None, "good"), Threshold(1, "doubtful"), Threshold(2, "bad"))
_EVIDENCE = (Threshold(None, "good"), Threshold(2, "doubtful"), Threshold(3, "bad"))


def row(variables: Container[str], evaluator: str = "", link: str = "") -> Row:
    """Of a page with these variables; of one ``evaluator``, where it is that one's. ``link``: the page with more."""
    held = chosen(_LABELS, variables, **({"evaluator": evaluator} if evaluator else {}))
    by = _LABELS[1:] if evaluator else _LABELS
    name, together = _named(by), f"max by ({', '.join(by)})"
    suites = [label for label in ("suite", "target", "evaluator") if label in by]
    return Row(
        "Drift",
        (
            View(
                "Drift",
                "Suites whose runs are worse than those before them. Of 1,000 unchanged runs at most one makes this "
                "red, and at most ten make it yellow. evalq history says since which run, and what ends it.",
                Unit("none"),
                "status",
                (
                    Query(
                        f"max by ({', '.join(suites)}) (evalq_drift{held})"
                        f" + max by ({', '.join(suites)}) (evalq_drift_looks_worse{held})",
                        _named(suites),
                    ),
                ),
                _PAGES,
                words=((0, "no"), (1, "looks worse"), (2, "worse")),
                link=link,
            ),
            View(
                "Evidence of drift",
                "The powers of ten of the e-value: from 2 (100) on a suite looks worse, from 3 (1,000) on it is drift.",
                _POWERS,
                "lines",
                (Query(f"log10(clamp_min({together} (evalq_drift_e_value{held}), 1))", name),),
                _EVIDENCE,
                link=link,
            ),
            View(
                "Change of the newest run",
                "Against all runs before it since the reference, as a share of the scale; below 0 is worse.",
                SHARE,
                "lines",
                (Query(f"min by ({', '.join(by)}) (evalq_drift_change{held})", name),),
                link=link,
            ),
        ),
    )


def _named(labels: Iterable[str]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)
