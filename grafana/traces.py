"""Production samples: how followed traces do, how far behind following is, and what agents spend."""

from __future__ import annotations

from evalq.evalcore.views.metrics import Threshold
from grafana import drift
from grafana.layout import Row
from grafana.overview import AGE
from grafana.pace import rate
from grafana.page import Page, Variable
from grafana.view import COUNT, MONEY, PER_SECOND, SECONDS, SHARE, Query, View

_HELD = '{suite=~"$suite"}'
_CHOICE = (Variable("suite", "evalq_traces_total", "What --suite named of a command that follows traces.", one=True),)
_PASSED = (Threshold(None, "bad"), Threshold(0.5, "doubtful"), Threshold(0.8, "good"))
_LATE = (Threshold(None, "good"), Threshold(900, "doubtful"), Threshold(3600, "bad"))
_FAILING = (Threshold(None, "good"), Threshold(0.05, "doubtful"), Threshold(0.2, "bad"))
_JUDGED = '{suite=~"$suite",outcome=~"passed|failed"}'


def _interval(metric: str, *by: str, columns: bool = False) -> tuple[Query, ...]:
    """A rate of the newest window, and the ends of its interval."""
    grouped, named = ", ".join(by), " ".join(f"{{{{{label}}}}}" for label in by)
    parts = (("", "avg", "pass rate", ""), ("_low", "min", "from", ": from"), ("_high", "max", "to", ": to"))
    return tuple(
        Query(f"{together} by ({grouped}) ({metric}{end}{_HELD})", column if columns else f"{named}{tail}")
        for end, together, column, tail in parts
    )


def _hour(metric: str, held: str = _HELD, by: str = "suite") -> str:
    return f"sum by ({by}) (increase({metric}{held}[1h]))"


NOW = (
    View(
        "Pass rate now",
        "Traces of the newest window that passed, with the 95 % interval.",
        SHARE,
        "stat",
        _interval("evalq_checks_pass_rate", "suite"),
        _PASSED,
        height=6,
    ),
    View(
        "Traces in the time shown",
        "Traces that were followed and put into runs, each once.",
        COUNT,
        "stat",
        (Query(f"sum by (suite) (increase(evalq_traces_total{_HELD}[$__range]))", "{{suite}}"),),
        width=4,
        height=6,
    ),
    View(
        "Lag",
        "From the end of the newest trace to its result.",
        SECONDS,
        "stat",
        (Query(f"max by (suite) (evalq_traces_lag_seconds{_HELD})", "{{suite}}"),),
        _LATE,
        width=4,
        height=6,
    ),
    View(
        "Since the last pass",
        "How long ago the files were read last. Empty where following was ended, or is run from cron.",
        SECONDS,
        "stat",
        (Query(f"max by (suite) (evalq_traces_pass_age_seconds{_HELD})", "{{suite}}"),),
        AGE,
        width=4,
        height=6,
        none="not running",
    ),
    View(
        "Traces that wait",
        "For their root span, or for no more spans to come.",
        COUNT,
        "stat",
        (Query(f"sum by (suite) (evalq_traces_waiting{_HELD})", "{{suite}}"),),
        width=4,
        height=6,
    ),
)

RATES = (
    View(
        "Pass rate by window",
        "Traces of each window that passed, with the 95 % interval.",
        SHARE,
        "lines",
        _interval("evalq_checks_pass_rate", "suite"),
        range=(0, 1),
        width=12,
    ),
    View(
        "Pass rate of an hour",
        "Traces that passed, of those with a verdict, in the hour before.",
        SHARE,
        "lines",
        (
            Query(
                f"""{_hour("evalq_traces_results_total", '{suite=~"$suite",outcome="passed"}')}"""
                f" / ({_hour('evalq_traces_results_total', _JUDGED)} > 0)",
                "{{suite}}",
            ),
        ),
        range=(0, 1),
        width=12,
    ),
    View(
        "By check",
        "Traces of the newest window that passed each check, with 95 % intervals.",
        SHARE,
        "table",
        _interval("evalq_checks_check_pass_rate", "suite", "check", columns=True),
        _PASSED,
        (0, 1),
        width=12,
    ),
    View(
        "By version, route and other attributes",
        "Traces of the newest window that passed, by attribute (--by and those that are tags anyway), with 95 % "
        "intervals.",
        SHARE,
        "table",
        _interval("evalq_checks_tag_pass_rate", "suite", "tag", columns=True),
        _PASSED,
        (0, 1),
        width=12,
    ),
    View(
        "Checks over time",
        "Traces of each window that passed a check.",
        SHARE,
        "lines",
        (Query(f"avg by (check) (evalq_checks_check_pass_rate{_HELD})", "{{check}}"),),
        range=(0, 1),
        width=12,
    ),
    View(
        "Attributes over time",
        "Traces of each window that passed, by attribute.",
        SHARE,
        "lines",
        (Query(f"avg by (tag) (evalq_checks_tag_pass_rate{_HELD})", "{{tag}}"),),
        range=(0, 1),
        width=12,
    ),
)

VOLUME = (
    View(
        "Traces",
        "Traces a second that were put into runs.",
        PER_SECOND,
        "lines",
        (Query(rate("evalq_traces_total", "suite", held=_HELD), "{{suite}}"),),
    ),
    View(
        "Results",
        "Traces a second by their results; errors have no verdict.",
        PER_SECOND,
        "lines",
        (Query(rate("evalq_traces_results_total", "outcome", held=_HELD), "{{outcome}}"),),
        stacked=True,
    ),
    View(
        "Left out",
        "In the hour before: traces that no `where` selects, traces whose spans came after they were counted, lines "
        "that cannot be read, and how often files were removed before they were read.",
        COUNT,
        "lines",
        (Query(_hour("evalq_traces_skipped_total", by="reason"), "{{reason}}"),),
    ),
    View(
        "Lag over time",
        "From the end of the newest trace to its result.",
        SECONDS,
        "lines",
        (Query(f"max by (suite) (evalq_traces_lag_seconds{_HELD})", "{{suite}}"),),
    ),
    View(
        "Passes",
        "Since the last pass, and the time between two passes.",
        SECONDS,
        "lines",
        (
            Query(f"max by (suite) (evalq_traces_pass_age_seconds{_HELD})", "{{suite}}: since the last"),
            Query(f"max by (suite) (evalq_traces_pass_interval_seconds{_HELD})", "{{suite}}: between two"),
        ),
        none="not running",
    ),
    View(
        "Waiting over time",
        "Traces that wait for their root span, or for no more spans to come.",
        COUNT,
        "lines",
        (Query(f"sum by (suite) (evalq_traces_waiting{_HELD})", "{{suite}}"),),
    ),
)

SPENT = (
    View(
        "Tokens of traces",
        "Tokens a second, where traces state them.",
        PER_SECOND,
        "lines",
        (Query(rate("evalq_traces_tokens_total", "suite", held=_HELD), "{{suite}}"),),
        width=6,
    ),
    View(
        "Cost of traces",
        "What the traces of the hour before cost, where they state it.",
        MONEY,
        "lines",
        (Query(_hour("evalq_traces_cost_total"), "{{suite}}"),),
        width=6,
    ),
    View(
        "Calls of tools",
        "Calls a second in followed traces, by their outcome.",
        PER_SECOND,
        "lines",
        (Query(rate("evalq_traces_tool_calls_total", "outcome", held=_HELD), "{{outcome}}"),),
        stacked=True,
        width=6,
    ),
    View(
        "Tools that fail",
        "Calls of tools with an error, in the hour before.",
        SHARE,
        "lines",
        (
            Query(
                f"""{_hour("evalq_traces_tool_calls_total", '{suite=~"$suite",outcome="error"}')}"""
                f" / ({_hour('evalq_traces_tool_calls_total')} > 0)",
                "{{suite}}",
            ),
        ),
        _FAILING,
        (0, 1),
        width=6,
    ),
    View(
        "Tokens of a trace",
        "Mean over the traces of each window.",
        COUNT,
        "lines",
        (Query(f"avg by (suite) (evalq_checks_tokens{_HELD})", "{{suite}}"),),
        width=12,
    ),
    View(
        "Seconds of a trace",
        "The median of each window, and what 95 % of its traces keep to.",
        SECONDS,
        "lines",
        (
            Query(f"avg by (suite) (evalq_checks_latency_median_seconds{_HELD})", "{{suite}}: median"),
            Query(f"avg by (suite) (evalq_checks_latency_p95_seconds{_HELD})", "{{suite}}: 95 %"),
        ),
        width=12,
    ),
)


def page() -> Page:
    """The page of suites whose runs are windows of followed traces."""
    return Page(
        "traces",
        "evalq: production traces",
        "Traces that evalq checks --follow reads: their pass rates, how far behind it is, and what agents spend.",
        (
            Row("The newest window", NOW),
            drift.row([each.label for each in _CHOICE], "checks"),
            Row("Pass rate", RATES),
            Row("Traces that were followed", VOLUME),
            Row("Tokens, cost and tools", SPENT),
        ),
        _CHOICE,
        evaluator="checks",
    )
