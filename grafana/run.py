"""Run detail: the newest run of each suite, the runs that are open, and the last ones beside each other.

Metrics have no run id (each would be a series of its own, forever); runs differ by evaluator, suite and
target, by their order, and by the marks where they ended. Ids are exemplars of the counter of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.views.metrics import Metric, Panel, Plot
from grafana import drift
from grafana.evaluators import RUN_CHOICE
from grafana.layout import Row, even
from grafana.overview import NONE_IS_GOOD
from grafana.pace import quantiles, rate
from grafana.page import ENDED, Page, Variable
from grafana.queries import chosen, view
from grafana.view import COUNT, PER_SECOND, SECONDS, WHEN, Query, View

_OF_RUN = ("evaluator", "suite", "target")
_CHOICE = (Variable("evaluator", ENDED, "The kind of evaluation."), *RUN_CHOICE)
_ONE = chosen(_OF_RUN, _OF_RUN)
_WORK = chosen(("evaluator", "suite"), _OF_RUN)
_KIND = chosen(("evaluator",), _OF_RUN)
_BY = f"by ({', '.join(_OF_RUN)})"


def _outcome(name: str, title: str) -> Query:
    held = chosen(_OF_RUN, _OF_RUN, outcome=name)
    return Query(f"sum {_BY} (evalq_last_run_records{held})", title, COUNT)


NEWEST = (
    View(
        "Newest run of each suite",
        "When it ended, how long it took, and what became of its records.",
        COUNT,
        "table",
        (
            Query(f"max {_BY} ({ENDED}{_ONE}) * 1000", "ended", WHEN),
            Query(f"max {_BY} (evalq_last_run_seconds{_ONE})", "took", SECONDS),
            _outcome("scored", "scored"),
            _outcome("unscored", "without a score"),
            _outcome("errors", "faulty"),
            _outcome("dead", "dead letters"),
        ),
        width=24,
    ),
    View(
        "How long runs take",
        "The newest run of each suite, over time.",
        SECONDS,
        "lines",
        (Query(f"max by (evaluator, suite) (evalq_last_run_seconds{_ONE})", "{{evaluator}}: {{suite}}"),),
        width=12,
    ),
    View(
        "Records of runs",
        "What became of the records of the newest runs, over time.",
        COUNT,
        "lines",
        (Query(f"sum by (outcome) (evalq_last_run_records{_ONE})", "{{outcome}}"),),
        stacked=True,
        width=12,
    ),
    View(
        "Runs that were done",
        "Since the ledger began to count, by suite. A diamond is a run, and shows the id that evalq report takes.",
        COUNT,
        "lines",
        (
            Query(
                f"evalq_runs_ended_total{chosen(('evaluator', 'suite'), _OF_RUN, state='done')}",
                "{{evaluator}}: {{suite}}",
            ),
        ),
        width=24,
        exemplars=True,
    ),
)

NOW = (
    View(
        "Runs by state",
        "Runs that the ledger still holds, of all suites.",
        COUNT,
        "bars",
        (Query("evalq_runs", "{{state}}"),),
        width=6,
    ),
    View(
        "Runs that ended",
        "How many ended in the last day, by state; failed ones are worth a look.",
        COUNT,
        "bars",
        (Query(f"sum by (state) (increase(evalq_runs_ended_total{_WORK}[1d]))", "{{state}}"),),
        width=6,
    ),
    View(
        "Records without an answer yet",
        "Planned, and neither committed nor dead, by suite.",
        COUNT,
        "lines",
        (
            Query(
                f"sum by (suite) (evalq_records_submitted_total{_WORK})"
                f" - sum by (suite) (evalq_records_committed_total{_WORK})"
                f" - (sum by (suite) (evalq_records_dead_total{_WORK})"
                f" or sum by (suite) (evalq_records_submitted_total{_WORK}) * 0)",
                "{{suite}}",
            ),
        ),
        width=6,
    ),
    View(
        "Records committed",
        "Answers a second, by suite.",
        PER_SECOND,
        "lines",
        (Query(rate("evalq_records_committed_total", "suite", held=_WORK), "{{suite}}"),),
        width=6,
    ),
    View(
        "Evaluation of a chunk",
        "How long a worker computed a chunk that was committed.",
        SECONDS,
        "lines",
        quantiles("evalq_chunk_duration_seconds", "evaluator", _KIND),
        width=12,
    ),
    View(
        "Trouble",
        "Dead records, divergent answers and chunks published again, in the last hour, by suite.",
        COUNT,
        "lines",
        tuple(
            Query(f"sum by (suite) (increase({metric}{_WORK}[1h]))", f"{{{{suite}}}}: {name}")
            for metric, name in (
                ("evalq_records_dead_total", "dead"),
                ("evalq_divergent_commits_total", "divergent"),
                ("evalq_chunks_reconciled_total", "published again"),
            )
        ),
        NONE_IS_GOOD,
        width=12,
        none="none",
    ),
)


def page(evaluators: Sequence[Evaluator[Any, Any]]) -> Page:
    """The page; its last row has every gauge that an evaluator keeps for its last runs."""
    names = [variable.label for variable in _CHOICE]
    recent = tuple(
        view(_beside(evaluator.name, metric), {metric.name: metric}, names)
        for evaluator in evaluators
        for metric in evaluator.views.metrics
        if metric.recent
    )
    return Page(
        "run",
        "evalq: run detail",
        "The newest run of each suite, open runs, and the last runs beside each other. "
        "One run with all its records: evalq report RUN.",
        (Row("Newest runs", NEWEST), drift.row(names), Row("Open runs", NOW), Row("The last runs", even(recent))),
        _CHOICE,
    )


def _beside(evaluator: str, metric: Metric) -> Panel:
    plot = Plot(metric.name, ("suite",), recent=True, legend="{suite}")
    title = metric.name.removeprefix(f"evalq_{evaluator}_").replace("_", " ")
    return Panel(
        f"{evaluator}: {title}",
        f"{metric.help} The last {metric.recent} runs of each suite, the newest on the right.",
        metric.unit,
        "bars",
        (plot,),
        range=(0, 1) if metric.unit == "share" else None,
    )
