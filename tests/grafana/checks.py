"""What may be wrong with dashboards and rules: each check yields a sentence for every fault."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.grafana.promql import Faulty, parsed, result_labels, variables

Known = Mapping[str, frozenset[str]]
Dashboard = Mapping[str, Any]

_COLUMNS = 24


def panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """All panels but the titles of rows."""
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


def expressions(dashboard: Dashboard) -> Iterator[tuple[str, str, str]]:
    """(where, expression, legend) of panels, annotations and variables."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield f"panel {panel['title']!r}", target["expr"], target.get("legendFormat", "")
    for annotation in dashboard["annotations"]["list"]:
        words = " ".join(annotation.get(key, "") for key in ("titleFormat",))
        yield f"annotation {annotation['name']!r}", annotation["expr"], words
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            series, label = asked.groups() if asked else ("", "")
            yield f"variable {variable['name']!r}", f"group by ({label}) ({series})", ""


def queries(dashboard: Dashboard, known: Known) -> Iterator[str]:
    """Expressions parse, name series and labels that exist, can match, and use variables of the page."""
    offered = {variable["name"] for variable in dashboard["templating"]["list"]}
    for where, expr, legend in expressions(dashboard):
        yield from (f"{where}: no variable ${name}" for name in sorted(variables(expr) - offered))
        try:
            labels = result_labels(parsed(expr), known) or frozenset()
        except Faulty as fault:
            yield f"{where}: {fault}"
            continue
        shown = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend))
        yield from (f"{where}: its legend names {name}, which the result has not" for name in sorted(shown - labels))


def told(dashboard: Dashboard) -> Iterator[str]:
    """Panels have a title, a description, a unit (or words in place of numbers), and no title twice in a page."""
    titles: set[str] = set()
    for panel in panels(dashboard):
        defaults = panel["fieldConfig"]["defaults"]
        where = f"panel {panel.get('title')!r}"
        yield from (f"{where} has no {key}" for key in ("title", "description") if not panel.get(key))
        named = any(mapping["type"] == "value" for mapping in defaults.get("mappings", ()))
        if defaults.get("unit") in (None, "", "none") and not named:
            yield f"{where} has no unit"
        if not panel["targets"]:
            yield f"{where} asks nothing"
        if panel["title"] in titles:
            yield f"{where} is there twice"
        titles.add(panel["title"])
    if not dashboard.get("description"):
        yield "the page has no description"


def grid(dashboard: Dashboard) -> Iterator[str]:
    """Panels lie on the grid, and none on another; no two have one id."""
    taken: dict[tuple[int, int], str] = {}
    ids: set[int] = set()
    for panel in dashboard["panels"]:
        at, title = panel["gridPos"], panel["title"]
        if at["x"] < 0 or at["x"] + at["w"] > _COLUMNS or at["w"] < 1 or at["h"] < 1:
            yield f"{title!r} lies beside the grid: {at}"
        cells = [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        yield from sorted({f"{title!r} lies on {taken[cell]!r}" for cell in cells if cell in taken})
        taken |= dict.fromkeys(cells, title)
        if panel["id"] in ids:
            yield f"{title!r} has the id of another"
        ids.add(panel["id"])


def links(dashboard: Dashboard, pages: Mapping[str, Dashboard]) -> Iterator[str]:
    """Links lead to pages that exist (``pages`` by uid), with variables that they have."""
    found = [link["url"] for link in dashboard.get("links", ())]
    for panel in panels(dashboard):
        found += [link["url"] for link in panel.get("links", ())]
        found += [link["url"] for link in panel["fieldConfig"]["defaults"].get("links", ())]
    for url in found:
        page = pages.get(url.partition("?")[0].removeprefix("/d/"))
        if page is None:
            yield f"{url} leads nowhere"
            continue
        has = {variable["name"] for variable in page["templating"]["list"]}
        yield from (f"{url}: no variable {name}" for name in re.findall(r"var-(\w+)", url) if name not in has)


def unused(exported: Known, used: set[str], spared: Mapping[str, str]) -> Iterator[str]:
    """Every metric is asked for somewhere, or spared with a reason; no reason is out of date."""

    def asked(name: str) -> bool:
        return name in used or f"{name}_bucket" in used

    for name in sorted(exported):
        base = re.sub(r"_(sum|count|bucket)$", "", name) if f"{name.rpartition('_')[0]}_bucket" in exported else name
        if not asked(base) and base not in spared:
            yield f"{base} is asked for nowhere, and no reason is given"
    for name in spared:
        if name not in exported:
            yield f"{name} is spared, and not exported"
        elif asked(name):
            yield f"{name} is spared, and asked for"
