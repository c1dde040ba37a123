"""The first page: do agents still behave, and does the fleet keep up?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.views.metrics import Threshold
from grafana import drift
from grafana.evaluators import OWN_ROW, RUN_CHOICE, at_a_glance
from grafana.layout import Row, even
from grafana.page import Page, uid
from grafana.view import COUNT, EITHER, SECONDS, Query, View

NONE_IS_GOOD = (Threshold(None, "good"), Threshold(1, "bad"))
FEW_IS_BAD = (Threshold(None, "bad"), Threshold(1, "good"))
AGE = (Threshold(None, "good"), Threshold(300, "doubtful"), Threshold(1800, "bad"))

ANSWERS = View(
    "Ledgers answer",
    "Whether each ledger's exporter is scraped and reaches it. Where not, every number of that ledger is old.",
    EITHER,
    "status",
    # 0, and not nothing, where no exporter is scraped at all: silence must not look like good news.
    # A ledger that was watched in the time shown stays here, so that one of several cannot vanish unseen.
    (
        Query(
            "max by (ledger) (evalq_ledger_up)"
            " or max by (ledger) (last_over_time(evalq_ledger_up[$__range])) * 0"
            " or absent(evalq_ledger_up) * 0",
            "{{ledger}}",
            all_ledgers=True,
        ),
    ),
    FEW_IS_BAD,
    words=((0, "no"), (1, "yes")),
    height=4,
)
WORKERS = View(
    "Workers at work",
    "Living workers that took a chunk lately, or have nothing to take.",
    COUNT,
    "stat",
    (Query("evalq_workers_consuming"),),
    FEW_IS_BAD,
    height=4,
)
STUCK = View(
    "Workers stuck",
    "Living workers that take nothing though their queue holds work.",
    COUNT,
    "stat",
    (Query("evalq_workers_stuck"),),
    NONE_IS_GOOD,
    height=4,
)
UNFINISHED = View(
    "Chunks to do",
    "Chunks of open runs without an answer yet.",
    COUNT,
    "stat",
    (Query("evalq:chunks_outstanding:sum"),),
    height=4,
)
OLDEST = View(
    "Oldest chunk waits",
    "Since the oldest chunk without an answer was first published.",
    SECONDS,
    "stat",
    (Query("evalq_oldest_pending_age_seconds"),),
    AGE,
    height=4,
    none="nothing waits",
)
ALERTS = View(
    "Alerts that fire",
    "Critical ones and warnings that Prometheus' rules of evalq give now; each has a section in docs/runbooks.md.",
    COUNT,
    "stat",
    (Query('count(ALERTS{alertname=~"Evalq.*",alertstate="firing",severity!="info"}) or evalq:alerts:none'),),
    NONE_IS_GOOD,
    height=4,
    none="no rules",
)

FLEET = (ALERTS, ANSWERS, WORKERS, STUCK, UNFINISHED, OLDEST)
"""What stands first on the overview and on the fleet's page."""


def page(evaluators: Sequence[Evaluator[Any, Any]]) -> Page:
    """The fleet in one line, evaluators with much to show in a row each, the others side by side."""
    shown = {each.name: at_a_glance(each, uid(each.name)) for each in evaluators}
    wide = [Row(name, views) for name, views in shown.items() if len(views) >= OWN_ROW]
    narrow = [view for views in shown.values() if len(views) < OWN_ROW for view in views]
    fleet = even([replace(view, link=uid("fleet")) for view in FLEET])
    return Page(
        "overview",
        "evalq: overview",
        "Whether agents still behave, and whether the fleet keeps up.",
        (
            Row("The fleet", fleet),
            drift.row([each.label for each in RUN_CHOICE], link=uid("run")),
            *wide,
            Row("Other evaluations", even(narrow)),
        ),
        RUN_CHOICE,
    )
