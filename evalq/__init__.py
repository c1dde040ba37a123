"""evalq: a distributed evaluator of agents. Everything public is a name of this module; the rest is internal.

    import evalq

    run = evalq.evaluate("planagent", "results.csv")
    run.report["results"]["set"]["intent"]
    run.records()                              # a pandas DataFrame, a row for each record; needs evalq[data]

A name is imported when it is first used, so that `import evalq` costs next to nothing. docs/reference/python.md
describes each name, and what stays the same between versions.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true; importing typing would be most of the cost of this module
if TYPE_CHECKING:
    from typing import Any

    from evalq import errors
    from evalq._compare import Comparison, Comparisons, Decision, compare, gate
    from evalq._evaluate import evaluate, extend, resume, sweep
    from evalq._handle import FleetProgress, Handle, connect, runs
    from evalq._run import Run, open_run
    from evalq._run import open_run as open  # noqa: A004 - called as evalq.open, as gzip.open is
    from evalq._submit import SuiteHandle, submit, submit_suite, submit_sweep
    from evalq.evalcore.compare.comparison import Estimate
    from evalq.evalcore.compare.decision import Check
    from evalq.evalcore.conformance import ConformanceError, Violation
    from evalq.evalcore.conformance import check as check_evaluator
    from evalq.evalcore.contract.evaluator import (
        Batch,
        Calls,
        Command,
        CommandLine,
        Evaluator,
        Export,
        Gathering,
        InputResult,
        Measure,
        Measures,
        Observation,
        Option,
        Outcome,
        Params,
        Records,
        Request,
        Sample,
        State,
        Stopping,
        Tally,
        Views,
        WholeInput,
    )
    from evalq.evalcore.model.calls import Prompt, Served, Tokens
    from evalq.evalcore.model.canonical import Json, canonical_json
    from evalq.evalcore.records.answers import Answer
    from evalq.evalcore.statistics.exact import ExactSum
    from evalq.evalcore.version import __version__
    from evalq.evalcore.views.charts import Chart, Column, Evidence, Mark, Row, Rows, Summary, Tile
    from evalq.evalcore.views.metrics import Metric, Panel, Plot, Threshold

__all__ = [
    "Answer",
    "Batch",
    "Calls",
    "Chart",
    "Check",
    "Column",
    "Command",
    "CommandLine",
    "Comparison",
    "Comparisons",
    "ConformanceError",
    "Decision",
    "Estimate",
    "Evaluator",
    "Evidence",
    "ExactSum",
    "Export",
    "FleetProgress",
    "Gathering",
    "Handle",
    "InputResult",
    "Json",
    "Mark",
    "Measure",
    "Measures",
    "Metric",
    "Observation",
    "Option",
    "Outcome",
    "Panel",
    "Params",
    "Plot",
    "Prompt",
    "Records",
    "Request",
    "Row",
    "Rows",
    "Run",
    "Sample",
    "Served",
    "State",
    "Stopping",
    "SuiteHandle",
    "Summary",
    "Tally",
    "Threshold",
    "Tile",
    "Tokens",
    "Views",
    "Violation",
    "WholeInput",
    "__version__",
    "canonical_json",
    "check_evaluator",
    "compare",
    "connect",
    "errors",
    "evaluate",
    "extend",
    "gate",
    "open",
    "open_run",
    "resume",
    "runs",
    "submit",
    "submit_suite",
    "submit_sweep",
    "sweep",
]

_CONTRACT = "evalq.evalcore.contract.evaluator"
_PLACES = {
    "Answer": "evalq.evalcore.records.answers",
    "Chart": "evalq.evalcore.views.charts",
    "Check": "evalq.evalcore.compare.decision",
    "Column": "evalq.evalcore.views.charts",
    "Comparison": "evalq._compare",
    "Comparisons": "evalq._compare",
    "ConformanceError": "evalq.evalcore.conformance",
    "Decision": "evalq._compare",
    "Estimate": "evalq.evalcore.compare.comparison",
    "Evidence": "evalq.evalcore.views.charts",
    "ExactSum": "evalq.evalcore.statistics.exact",
    "FleetProgress": "evalq._handle",
    "Handle": "evalq._handle",
    "Json": "evalq.evalcore.model.canonical",
    "Mark": "evalq.evalcore.views.charts",
    "Metric": "evalq.evalcore.views.metrics",
    "Panel": "evalq.evalcore.views.metrics",
    "Plot": "evalq.evalcore.views.metrics",
    "Prompt": "evalq.evalcore.model.calls",
    "Row": "evalq.evalcore.views.charts",
    "Rows": "evalq.evalcore.views.charts",
    "Run": "evalq._run",
    "Served": "evalq.evalcore.model.calls",
    "SuiteHandle": "evalq._submit",
    "Summary": "evalq.evalcore.views.charts",
    "Threshold": "evalq.evalcore.views.metrics",
    "Tile": "evalq.evalcore.views.charts",
    "Tokens": "evalq.evalcore.model.calls",
    "Violation": "evalq.evalcore.conformance",
    "__version__": "evalq.evalcore.version",
    "canonical_json": "evalq.evalcore.model.canonical",
    "check_evaluator": "evalq.evalcore.conformance",
    "compare": "evalq._compare",
    "connect": "evalq._handle",
    "evaluate": "evalq._evaluate",
    "extend": "evalq._evaluate",
    "gate": "evalq._compare",
    "open": "evalq._run",
    "open_run": "evalq._run",
    "resume": "evalq._evaluate",
    "runs": "evalq._handle",
    "submit": "evalq._submit",
    "submit_suite": "evalq._submit",
    "submit_sweep": "evalq._submit",
    "sweep": "evalq._evaluate",
}
"""{name: the module it is defined in}; those of the contract itself are not listed."""
_THERE = {"check_evaluator": "check", "open": "open_run"}
"""{name: what it is called in that module}, of those that are called otherwise there."""

if not TYPE_CHECKING:  # for a checker the module has its public names and no others

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module 'evalq' has no attribute {name!r}")
        if name == "errors":
            return import_module("evalq.errors")
        value = getattr(import_module(_PLACES.get(name, _CONTRACT)), _THERE.get(name, name))
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """The public names, for completion."""
        return sorted(__all__)
