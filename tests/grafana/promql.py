"""What a PromQL expression reads and gives: metrics, the labels it names, and the labels of its result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import promql_parser as promql

_MACROS = {"$__rate_interval": "5m", "$__range": "1h"}
_SET = ("and", "or", "unless")


class Faulty(ValueError):
    """An expression that asks for what is not there, or that cannot match."""


def parsed(expr: str) -> promql.Expr:
    """The expression, with Grafana's macros in place. Raises Faulty."""
    for macro, value in _MACROS.items():
        expr = expr.replace(macro, value)
    try:
        return promql.parse(expr)
    except ValueError as error:
        raise Faulty(f"no PromQL: {error}: {expr}") from None


def variables(expr: str) -> set[str]:
    """Names of the page's variables that the expression uses; $1 and the like are groups of a regular expression."""
    return set(re.findall(r"\$\{?([A-Za-z]\w*)", expr)) - {macro.strip("$") for macro in _MACROS}


def metrics(expr: promql.Expr) -> set[str]:
    """Names of all series that the expression selects."""
    found: set[str] = set()

    def visit(node: promql.Expr) -> None:
        selector = node.vector_selector if isinstance(node, promql.MatrixSelector) else node
        if isinstance(selector, promql.VectorSelector):
            found.add(selector.name or "")

    promql.walk(expr, visit)
    return found


def result_labels(node: Any, known: Mapping[str, frozenset[str]]) -> frozenset[str] | None:
    """Labels of the result; None of a number. ``known``: labels of each series. Raises Faulty."""
    match node:
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return result_labels(node.expr, known)
        case promql.MatrixSelector():
            return _selected(node.vector_selector, known)
        case promql.VectorSelector():
            return _selected(node, known)
        case promql.AggregateExpr():
            return _aggregated(node, known)
        case promql.Call():
            return _called(node, known)
        case promql.BinaryExpr():
            return _combined(node, known)
    return None


def _selected(selector: promql.VectorSelector, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    name = selector.name or ""
    if name not in known:
        raise Faulty(f"no metric {name}")
    _there({each.name for each in selector.matchers.matchers}, known[name], name)
    return known[name]


def _there(named: set[str], labels: frozenset[str], of: str) -> None:
    if named - labels:
        raise Faulty(f"{of} has no label {', '.join(sorted(named - labels))}")


def _aggregated(node: promql.AggregateExpr, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    inner = result_labels(node.expr, known) or frozenset()
    if node.modifier is None:
        return inner if str(node.op) in ("topk", "bottomk") else frozenset()
    named = frozenset(node.modifier.labels)
    _there(set(named), inner, str(node.expr.prettify()))
    return named if node.modifier.type == promql.AggModifierType.By else inner - named


def _called(node: promql.Call, known: Mapping[str, frozenset[str]]) -> frozenset[str] | None:
    inner = [labels for labels in (result_labels(arg, known) for arg in node.args) if labels is not None]
    texts = [arg.val for arg in node.args if isinstance(arg, promql.StringLiteral)]
    match node.func.name:
        case "histogram_quantile":
            _there({"le"}, inner[0], "what histogram_quantile is given")
            return inner[0] - {"le"}
        case "label_replace":
            _there({texts[2]} - {""}, inner[0], "what label_replace is given")
            return inner[0] | {texts[0]}
        case "label_join":
            _there(set(texts[2:]), inner[0], "what label_join is given")
            return inner[0] | {texts[0]}
        case "vector":
            return frozenset()
    return inner[0] if inner else None


def _combined(node: promql.BinaryExpr, known: Mapping[str, frozenset[str]]) -> frozenset[str] | None:
    left, right = result_labels(node.lhs, known), result_labels(node.rhs, known)
    if left is None or right is None:
        return left if right is None else right
    matching = node.modifier.matching if node.modifier else None
    if matching is None:
        if str(node.op) != "or" and left != right:
            raise Faulty(f"sides of {node.op} that never match: {sorted(left)} and {sorted(right)}")
        return left & right if str(node.op) == "or" else left
    named = frozenset(matching.labels)
    on = matching.type == promql.LabelModifierType.Include
    for side in (left, right) if on else ():
        _there(set(named), side, f"a side of {node.op}")
    if not on and left - named != right - named:
        raise Faulty(f"sides of {node.op} that never match: {sorted(left - named)} and {sorted(right - named)}")
    if str(node.op) in _SET:
        return left & right if str(node.op) == "or" else left
    group = node.modifier.group_labels if node.modifier else None
    if group is not None:
        return left | frozenset(group)
    return named if on else left - named
