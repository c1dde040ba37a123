"""Each check of the dashboards fails on a copy that is broken in just the way it is about."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.grafana import checks
from tests.grafana.known import known
from tests.grafana.pages import PAGES
from tests.grafana.promql import Faulty, parsed, result_labels

Page = dict[str, Any]


def _panel(page: Page) -> Any:
    return next(checks.panels(page))


def _expr(text: str) -> Callable[[Page], None]:
    return lambda page: _panel(page)["targets"][0].update(expr=text)


def _set(key: str, value: object) -> Callable[[Page], None]:
    return lambda page: _panel(page).update({key: value})


def _default(key: str, value: object) -> Callable[[Page], None]:
    return lambda page: _panel(page)["fieldConfig"]["defaults"].update({key: value})


def _queries(page: Page) -> Iterable[str]:
    return checks.queries(page, known())


def _links(page: Page) -> Iterable[str]:
    return checks.links(page, PAGES)


BROKEN = [
    ("no expression", _queries, _expr("sum by (suite"), "no PromQL"),
    ("no metric", _queries, _expr("evalq_vs_pass_rats"), "no metric evalq_vs_pass_rats"),
    ("no matched label", _queries, _expr('evalq_vs_pass_rate{level="full"}'), "has no label level"),
    ("no grouped label", _queries, _expr("sum by (level) (evalq_vs_pass_rate)"), "has no label level"),
    ("lost label", _queries, _expr("sum by (suite) (sum (evalq_vs_pass_rate))"), "has no label suite"),
    ("no bucket", _queries, _expr("histogram_quantile(0.5, sum(rate(evalq_call_seconds_bucket[5m])))"), "no label le"),
    ("no match", _queries, _expr("sum by (suite) (evalq_vs_tests) / sum(evalq_vs_errors)"), "never match"),
    ("no joint label", _queries, _expr("evalq_vs_tests * on (level) evalq_vs_level_agents"), "no label level"),
    ("nothing in common", _queries, _expr("evalq_vs_tests * ignoring (level) evalq_vs_case_tests"), "never match"),
    ("no variable", _queries, _expr('evalq_vs_pass_rate{suite=~"$suites"}'), "no variable $suites"),
    ("no label in legend", _queries, lambda p: _panel(p)["targets"][0].update(legendFormat="{{case}}"), "names case"),
    ("no annotation's metric", _queries, lambda p: p["annotations"]["list"][0].update(expr="nothing"), "no metric"),
    (
        "no variable's label",
        _queries,
        lambda p: p["templating"]["list"][1]["query"].update(query="label_values(evalq_vs_tests, level)"),
        "has no label level",
    ),
    ("no title", checks.told, _set("title", ""), "has no title"),
    ("no description", checks.told, _set("description", ""), "has no description"),
    ("no unit", checks.told, _default("unit", "none"), "has no unit"),
    ("no query", checks.told, _set("targets", []), "asks nothing"),
    ("one title twice", checks.told, _set("title", "Pass rate"), "is there twice"),
    ("page without description", checks.told, lambda p: p.update(description=""), "the page has no description"),
    ("overlap", checks.grid, lambda p: _panel(p)["gridPos"].update(w=9), "lies on"),
    ("beside", checks.grid, lambda p: _panel(p)["gridPos"].update(w=30), "beside the grid"),
    ("one id twice", checks.grid, lambda p: _panel(p).update(id=p["panels"][3]["id"]), "has the id of another"),
    ("no page", _links, lambda p: p["links"][0].update(url="/d/evalq-nothing"), "leads nowhere"),
    ("no panel's page", _links, _set("links", [{"url": "/d/nothing"}]), "leads nowhere"),
    ("no linked variable", _links, _default("links", [{"url": "/d/evalq-fleet?var-suite=x"}]), "no variable suite"),
]


@pytest.mark.parametrize(("check", "break_it", "said"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN])
def test_a_broken_page_is_noticed(
    check: Callable[[Page], Iterable[str]], break_it: Callable[[Page], None], said: str
) -> None:
    """Nothing is said of the page as it is, and the fault of the broken one is named."""
    page = copy.deepcopy(PAGES["evalq-vs"])
    assert list(check(page)) == []
    break_it(page)
    assert any(said in fault for fault in check(page)), list(check(page))


def test_a_metric_that_nobody_asks_for_is_noticed() -> None:
    """And so is a reason that is not needed, or of a metric that does not exist."""
    exported = {name: frozenset({"le"}) for name in ("a", "b", "h_bucket", "h_sum", "h_count")}
    assert set(checks.unused(exported, {"a"}, {"z": "old", "a": "old"})) == {
        "b is asked for nowhere, and no reason is given",
        "h is asked for nowhere, and no reason is given",
        "z is spared, and not exported",
        "a is spared, and asked for",
    }
    assert list(checks.unused(exported, {"a", "h_bucket"}, {"b": "not yet"})) == []


@pytest.mark.parametrize(
    ("expr", "labels"),
    [
        ("a", {"x", "y"}),
        ("sum by (x) (a)", {"x"}),
        ("sum without (x) (a)", {"y"}),
        ("sum(a)", set()),
        ("topk(3, a)", {"x", "y"}),
        ("rate(a[5m]) * 2", {"x", "y"}),
        ("a * on (x) group_left (z) b", {"x", "y", "z"}),
        ("a * on (x) b", {"x"}),
        ("a * ignoring (y, z) b", {"x"}),
        ("a and on (x) b", {"x", "y"}),
        ("a or b", {"x"}),
        ('label_replace(a, "z", "$1", "x", "(.*)")', {"x", "y", "z"}),
        ('label_join(a, "z", " ", "x", "y")', {"x", "y", "z"}),
        ("vector(0)", set()),
        ("time() - a", {"x", "y"}),
        ("max_over_time(a[1h:5m])", {"x", "y"}),
    ],
)
def test_the_labels_of_a_result_are_known(expr: str, labels: set[str]) -> None:
    """As Prometheus computes them."""
    series = {"a": frozenset({"x", "y"}), "b": frozenset({"x", "z"})}
    assert set(result_labels(parsed(expr), series) or ()) == labels


def test_a_number_has_no_labels_at_all() -> None:
    """It is no vector, so anything may be combined with it; what is no PromQL is said to be none."""
    assert result_labels(parsed("time()"), {}) is None
    with pytest.raises(Faulty, match="no PromQL"):
        parsed("sum by")
