"""A panel before it is drawn: what it asks Prometheus, and how the answer reads."""

from __future__ import annotations

from typing import Literal

import msgspec

from evalq.evalcore.views.metrics import Threshold


class Unit(msgspec.Struct, frozen=True):
    """Grafana's name of a unit, and the digits behind the point (None: as Grafana likes)."""

    name: str
    digits: int | None = None


SHARE = Unit("percentunit", 1)
COUNT = Unit("locale", 0)
SECONDS = Unit("s")
BYTES = Unit("bytes")
WHEN = Unit("dateTimeFromNow")
PER_SECOND = Unit("suffix:/s", 1)
EITHER = Unit("bool_yes_no")
MONEY = Unit("short", 2)


class Query(msgspec.Struct, frozen=True):
    """One expression. ``legend`` names its series (``{{label}}``) or its column.

    A column, or a number that its legend names, may have a ``unit`` and ``thresholds`` of its own.

    It asks for the series of the page's ledger, or of ``all_ledgers``.
    """

    expr: str
    legend: str = ""
    unit: Unit | None = None
    thresholds: tuple[Threshold, ...] = ()
    all_ledgers: bool = False


class View(msgspec.Struct, frozen=True):
    """One panel. ``kind`` as in `evalcore.views.panels.Panel`, and ``recent``: bars of the last runs, oldest first.

    ``words`` maps numbers to words. ``link`` is the page with details; ``by_suite`` passes it the suite clicked on.
    ``stacked`` puts lines on top of each other. ``none`` stands where there is no value. ``exemplars`` shows those that
    Prometheus keeps beside the series.
    """

    title: str
    description: str
    unit: Unit
    kind: Literal["stat", "gauge", "bars", "recent", "lines", "table", "status"]
    queries: tuple[Query, ...]
    thresholds: tuple[Threshold, ...] = ()
    range: tuple[float, float] | None = None
    words: tuple[tuple[float, str], ...] = ()
    width: int = 8
    height: int = 8
    link: str = ""
    by_suite: bool = False
    stacked: bool = False
    exemplars: bool = False
    none: str = "N/A"
