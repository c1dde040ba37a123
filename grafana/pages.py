"""All pages, in the order of their links."""

from __future__ import annotations

from evalq.evalcore.contract import plugins
from grafana import evaluators, fleet, overview, run, traces
from grafana.page import Page


def pages() -> tuple[Page, ...]:
    """Overview, an evaluator each (those with most to show on the overview first), traces, fleet, run detail."""
    known = [plugins.get(name) for name in plugins.names()]
    known.sort(key=lambda each: (-sum(panel.overview for panel in each.views.panels), each.name))
    own = [evaluators.page(each) for each in known]
    return (overview.page(known), *own, traces.page(), fleet.page(), run.page(known))
