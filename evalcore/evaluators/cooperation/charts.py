"""What the page of cooperation logs begins with and draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from evalq.evalcore.evaluators.cooperation.markdown import misfits
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.charts import Chart, Mark, Summary, Tile, number

__all__ = ["CHARTS", "opening"]


def opening(report: Mapping[str, Json]) -> Summary:
    """The metrics of one log, or the cooperation of each of several."""
    logs = report["results"]["logs"]
    if len(logs) != 1:
        events = sum(log["metadata"]["total_events"] for log in logs.values())
        return Summary(f"{len(logs)} logs of {events:,} events")
    (log,) = logs.values()
    recovery = log["average_recovery_time"]
    skipped = log["metadata"]["skipped_lines"]
    tiles = (
        Tile("Cooperation rate", number(log["cooperation_rate"], "share")),
        Tile("Average contribution", number(log["average_contribution"], "number"), "a drop"),
        Tile("Average recovery", "none" if recovery is None else f"{recovery:.2f}", "turns"),
        Tile("Gini coefficient", number(log["gini_coefficient"], "number"), "0 is equal"),
        Tile("Dialogue entropy", number(log["dialogue_entropy"], "bits")),
        Tile("Lines skipped", number(skipped, "count"), state="doubtful" if skipped else "none"),
    )
    events = log["metadata"]["total_events"]
    rate = number(log["cooperation_rate"], "share")
    wrong = [f"{text[0].upper()}{text[1:]}" for text in misfits(log, "the log")]
    if wrong and not log["metadata"]["rules_occur"]["decision"]:
        return Summary(wrong[0], ". ".join(wrong[1:]), "doubtful", tiles=tiles)
    return Summary(f"{rate} of {events:,} events are cooperative", ". ".join(wrong), tiles=tiles)


def _of_logs(key: str) -> Callable[[Mapping[str, Json]], Iterator[Mark]]:
    def marks(report: Mapping[str, Json]) -> Iterator[Mark]:
        for name, log in report["results"]["logs"].items():
            if log[key] is not None:
                yield Mark(name, log[key])

    return marks


def _rates(report: Mapping[str, Json]) -> Iterator[Mark]:
    for name, log in report["results"]["logs"].items():
        rate, events = log["cooperation_rate"], log["metadata"]["total_events"]
        if events:
            low, high = wilson(round(rate * events), events)
            yield Mark(name, rate, low, high, note=f"{events:,} events")


def _of_agents(key: str) -> Callable[[Mapping[str, Json]], Iterator[Mark]]:
    def marks(report: Mapping[str, Json]) -> Iterator[Mark]:
        logs = report["results"]["logs"]
        for name, log in logs.items():
            whole = sum(log[key].values())
            for agent, value in sorted(log[key].items(), key=lambda item: (-item[1], item[0])):
                label = f"{name} · {agent}" if len(logs) > 1 else agent
                yield Mark(label, value, note=f"{100 * value / whole:.1f} %" if whole else "")

    return marks


CHARTS = (
    Chart(
        "Cooperation by log",
        "Share of events with a cooperative decision; intervals (Wilson, 95 %) take events as independent.",
        "dots",
        "share",
        _rates,
        "Log",
        (0.0, 1.0),
    ),
    Chart(
        "Inequality by log",
        "Gini coefficient of contributions: 0 all gave the same, 1 one gave all.",
        "bars",
        "number",
        _of_logs("gini_coefficient"),
        "Log",
        (0.0, 1.0),
    ),
    Chart(
        "Recovery by log",
        "Mean turns from a betrayal to the next cooperation.",
        "bars",
        "number",
        _of_logs("average_recovery_time"),
        "Log",
    ),
    Chart(
        "Contributions by agent",
        "In units of the resource, with the share of the log's whole.",
        "bars",
        "number",
        _of_agents("contributions"),
        "Agent",
    ),
    Chart(
        "Messages by agent",
        "How many events of the log are an agent's.",
        "bars",
        "count",
        _of_agents("message_counts"),
        "Agent",
    ),
)
