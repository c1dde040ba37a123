"""A page: its panels in places, the variables to choose by, links to the other pages, and marks where runs ended."""

from __future__ import annotations

from typing import Literal

import msgspec
from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models

from evalq.workers.exporter.family import LEDGER
from grafana.draw import SOURCE, Link, panel
from grafana.layout import Row, place
from grafana.queries import chosen, of_ledger

DATASOURCE_UID = "evalq-prometheus"
"""The data source that the provisioning files set up, and the first choice of every page."""

ENDED = "evalq_last_run_timestamp_seconds"
_EVERYTHING = ".*"


class Variable(msgspec.Struct, frozen=True):
    """A label to choose by; its values are those of ``metric``.

    All is the first choice; of a label of which a page is to show ``one`` at first, the first value is.
    """

    label: str
    metric: str
    description: str = ""
    one: bool = False


class Page(msgspec.Struct, frozen=True):
    """``name`` is the file's; ``since`` is what the page shows at first, back from now."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    since: str = "now-24h"
    refresh: Literal["10s", "30s", "1m"] = "30s"
    evaluator: str = ""
    """The only one whose runs' ends are marked."""
    marks: bool = True
    """Whether runs' ends are marked before anybody asks for it."""


def uid(name: str) -> str:
    """The page's address in Grafana: /d/<uid>."""
    return f"evalq-{name}"


def draw(page: Page, pages: tuple[Page, ...]) -> models.Dashboard:
    """The dashboard. ``pages``: all there are, for the links on top."""
    built = dashboard.Dashboard(page.title).uid(uid(page.name)).description(page.description).tags(["evalq"])
    built.time(page.since, "now").refresh(page.refresh).timezone("browser").readonly()
    built.tooltip(models.DashboardCursorSync.CROSSHAIR)
    built.with_variable(_source())
    built.with_variable(_ledger())
    for variable in page.variables:
        built.with_variable(_variable(variable))
    for annotation in _annotations(page):
        built.annotation(annotation)
    for other in pages:
        if other is not page:
            link = Link(other.title, f"/d/{uid(other.name)}").keep_time(True).include_vars(True)
            built.link(link.tooltip(other.description))
    made = built.build()
    made.panels = []
    for number, at in enumerate(place(page.rows), start=1):
        if at.view is None:
            grid = models.GridPos(h=at.h, w=at.w, x=at.x, y=at.y)
            made.panels.append(dashboard.Row(at.title).id(number).grid_pos(grid).build())
        else:
            made.panels.append(panel(at, number).build())
    return made


class _Mark(dashboard.AnnotationQuery):
    """Marks in time that can be switched above the panels; the SDK would put that switch into a menu."""

    def build(self) -> models.AnnotationQuery:
        built = super().build()
        built.placement = None  # type: ignore[assignment]  # the SDK's type has no way to say that it is left out
        return built


def _source() -> dashboard.DatasourceVariable:
    first = models.VariableOption(selected=True, text="evalq", value=DATASOURCE_UID)
    return dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus").current(first)


def _ledger() -> dashboard.QueryVariable:
    """One at a time: what a panel shows of two fleets together is true of neither."""
    asked = f"label_values(evalq_ledger_up, {LEDGER})"
    built = dashboard.QueryVariable(LEDGER).label(LEDGER).description("The ledger (and its fleet) that the page shows.")
    built.datasource(SOURCE).query({"query": asked, "refId": "values"}).definition(asked)
    return built.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)


def _variable(variable: Variable) -> dashboard.QueryVariable:
    asked = f"label_values({of_ledger(variable.metric)}, {variable.label})"
    built = dashboard.QueryVariable(variable.label).label(variable.label).description(variable.description)
    built.datasource(SOURCE).query({"query": asked, "refId": "values"}).definition(asked)
    built.multi(True)
    if not variable.one:  # where All is among the choices, Grafana takes it for the first of them
        built.include_all(True).all_value(_EVERYTHING)
        built.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    return built.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)


def _annotations(page: Page) -> list[_Mark]:
    """Where runs ended (the metric's value is the time), and where an alert fired."""
    names = [variable.label for variable in page.variables]
    fixed = {"evaluator": page.evaluator} if page.evaluator else {}
    held = chosen([name for name in ("evaluator", "suite", "target") if name in names], names, **fixed)
    ended = _Mark().name("Runs that ended").expr(of_ledger(f"{ENDED}{held} * 1000")).use_value_for_time(True)
    ended.title_format("{{evaluator}}: {{suite}} ended").tag_keys("suite,target").icon_color("blue")
    fired = _Mark().name("Alerts").expr('ALERTS{alertname=~"Evalq.*",alertstate="firing"}')
    fired.title_format("{{alertname}}").text_format("{{ledger}} {{suite}} {{queue}}").tag_keys("severity").icon_color(
        "red"
    )
    ended.enable(page.marks)
    fired.enable(True)
    return [each.datasource(SOURCE).step("30s") for each in (ended, fired)]
