"""How cooperation reports are shown: metrics, panels, charts, Markdown and the page's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Export, Request, Views
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.cooperation.report import pretty_json
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.charts import Chart, Column, Evidence, Mark, Row, Rows, State, Summary, Tile, number
from evalq.evalcore.views.markdown import escape, left_out, plural, table
from evalq.evalcore.views.metrics import Metric, Panel, Plot

# Numbers that are watched over time.

_LOG = "logs.{input}."

METRICS = (
    Metric(
        "evalq_cooperation_rate",
        "Events with a cooperative decision.",
        "share",
        _LOG + "cooperation_rate",
        ("input",),
        recent=10,
    ),
    Metric(
        "evalq_cooperation_average_contribution",
        "Mean contribution of a drop, in units of the resource.",
        "number",
        _LOG + "average_contribution",
        ("input",),
    ),
    Metric(
        "evalq_cooperation_average_recovery_turns",
        "Mean turns from a betrayal to the next cooperation.",
        "number",
        _LOG + "average_recovery_time",
        ("input",),
    ),
    Metric(
        "evalq_cooperation_gini",
        "Inequality of contributions: 0 all gave the same, 1 one gave all.",
        "points",
        _LOG + "gini_coefficient",
        ("input",),
        recent=10,
    ),
    Metric(
        "evalq_cooperation_dialogue_entropy", "How evenly agents speak.", "bits", _LOG + "dialogue_entropy", ("input",)
    ),
    Metric("evalq_cooperation_events", "Events of the log.", "count", _LOG + "metadata.total_events", ("input",)),
    Metric("evalq_cooperation_turns", "Turns of the log.", "count", _LOG + "metadata.total_turns", ("input",)),
    Metric(
        "evalq_cooperation_skipped_lines",
        "Lines that are no events and were left out.",
        "count",
        _LOG + "metadata.skipped_lines",
        ("input",),
    ),
    Metric(
        "evalq_cooperation_agent_contribution",
        "What an agent contributed, in units of the resource.",
        "number",
        _LOG + "contributions.{agent}",
        ("input", "agent"),
        most=50,
    ),
    Metric(
        "evalq_cooperation_agent_messages",
        "Events of an agent.",
        "count",
        _LOG + "message_counts.{agent}",
        ("input", "agent"),
        most=50,
    ),
)


# Panels over the runs of a suite.

PANELS = (
    Panel(
        "Cooperation",
        "Share of events with a cooperative decision, in the newest run of each suite.",
        "share",
        "gauge",
        (Plot("evalq_cooperation_rate", ("suite",), legend="{suite}"),),
        range=(0, 1),
        overview=True,
        width=6,
    ),
    Panel(
        "Cooperation over time",
        "Share of events with a cooperative decision, by log.",
        "share",
        "lines",
        (Plot("evalq_cooperation_rate", ("suite", "input"), legend="{suite} {input}"),),
        range=(0, 1),
        width=12,
    ),
    Panel(
        "Cooperation of the last 10 runs",
        "Share of events with a cooperative decision, the newest run at 1.",
        "share",
        "bars",
        (Plot("evalq_cooperation_rate", ("suite",), recent=True, legend="{suite}"),),
        range=(0, 1),
        width=12,
    ),
    Panel(
        "Inequality over time",
        "Gini coefficient of contributions, by log: 0 all gave the same, 1 one gave all.",
        "points",
        "lines",
        (Plot("evalq_cooperation_gini", ("suite", "input"), legend="{suite} {input}"),),
        width=12,
    ),
    Panel(
        "Inequality of the last 10 runs",
        "Gini coefficient of contributions, the newest run at 1.",
        "points",
        "bars",
        (Plot("evalq_cooperation_gini", ("suite",), recent=True, legend="{suite}"),),
        width=12,
    ),
    Panel(
        "Contribution and recovery",
        "Mean contribution of a drop (units), and mean turns until cooperation returns.",
        "number",
        "stat",
        (
            Plot("evalq_cooperation_average_contribution", ("input",), legend="{input} contribution"),
            Plot("evalq_cooperation_average_recovery_turns", ("input",), legend="{input} turns to recover"),
        ),
        width=12,
    ),
    Panel(
        "Dialogue",
        "Entropy of who speaks: higher is more even.",
        "bits",
        "lines",
        (Plot("evalq_cooperation_dialogue_entropy", ("suite", "input"), legend="{suite} {input}"),),
        width=12,
    ),
    Panel(
        "Contributions by agent",
        "What each agent contributed in the newest run.",
        "number",
        "bars",
        (Plot("evalq_cooperation_agent_contribution", ("agent",), "sum", legend="{agent}"),),
        width=12,
    ),
    Panel(
        "Events by agent",
        "How many events each agent has in the newest run.",
        "count",
        "bars",
        (Plot("evalq_cooperation_agent_messages", ("agent",), "sum", legend="{agent}"),),
        width=12,
    ),
    Panel(
        "Logs",
        "Events, turns and left out lines of each log.",
        "count",
        "table",
        (
            Plot("evalq_cooperation_events", ("suite", "input"), "max"),
            Plot("evalq_cooperation_turns", ("suite", "input"), "max"),
            Plot("evalq_cooperation_skipped_lines", ("suite", "input"), "max"),
        ),
        width=24,
    ),
)


# The metrics as Markdown, for the run's report and for the seed's SUMMARY.md.

_SHOWN, _LISTED = 5, 20


def _markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """The report for people: two tables for each log. Its first line names logs that the rules do not fit."""
    logs = report["results"]["logs"]
    parts = [f"## {escape(name)}\n\n{log_tables(entry)}" for name, entry in logs.items()]
    wrong = [misfit for name, entry in logs.items() for misfit in misfits(entry, name)]
    return "\n".join([f"{title('Cooperation metrics', wrong)}\n", *parts, *filter(None, [left_out(report)])])


def title(text: str, wrong: Sequence[str]) -> str:
    """A report's first line: its title, and the reasons why its numbers mean nothing."""
    return f"# {text}" + (f": {escape('; '.join(wrong))}" if wrong else "")


def misfits(entry: Mapping[str, Any], name: str) -> list[str]:
    """Rules that a log never matches, each in a sentence: some of its numbers are 0 only for that reason."""
    about = entry["metadata"]
    occurs = about["rules_occur"]
    if not about["total_events"]:
        return []
    sentences = []
    if not occurs["decision"]:
        words = ", ".join(f"{word} x {rows:,}" for word, rows in list(entry["unknown_decisions"].items())[:_SHOWN])
        sentences.append(f"no decision in {name} is a word of the rules" + (f" (there are: {words})" if words else ""))
    if not occurs["resource"]:
        key = about["rules"]["resource_key"]
        sentences.append(f"no row of {name} has the resource {key!r}, so that contributions and Gini of 0 mean nothing")
    return sentences


def _repeated_note(entry: Mapping[str, Any], name: str) -> str:
    """A note if a (turn, agent) occurs twice, as in two runs appended to one log; else empty."""
    about = entry["metadata"]
    twice = about.get("first_repeated")
    if not twice:
        return ""
    more = about["repeated_rows"]
    first = f"{name}: (turn, agent) occurs twice: turn {twice['turn']}, agent {twice['agent']}"
    back = ", and turns go back: are two runs in one log?" if about["out_of_order"] else ""
    return f"{first}; {plural(more, 'such row')} in all{back}"


def log_tables(entry: Mapping[str, Any]) -> str:
    """Two tables of one log's metrics (the entry of ``results.logs``): the log as a whole, and agent by agent."""
    about = entry["metadata"]
    recovery = entry["average_recovery_time"]
    facts: list[tuple[object, ...]] = [
        ("Cooperation rate", f"{entry['cooperation_rate']:.4f}"),
        ("Average contribution", f"{entry['average_contribution']:.4f}"),
        ("Average recovery time (turns)", "no recovery" if recovery is None else f"{recovery:.4f}"),
        ("Gini coefficient of contributions", f"{entry['gini_coefficient']:.4f}"),
        ("Dialogue entropy (bits)", f"{entry['dialogue_entropy']:.4f}"),
        ("Events", about["total_events"]),
        ("Turns", about["total_turns"]),
        ("Agents", len(about["agents"])),
        ("Dry run", {True: "yes", False: "no"}.get(about["dry_run"], "not known")),
        ("Log", about["log_path"]),
        ("Rows", "sorted by turn first" if about["out_of_order"] else "in turn order"),
        ("Bad lines skipped", about["skipped_lines"]),
        ("Rows with the resource", entry.get("snapshots", "not known")),
        ("Rows with an unknown decision", about.get("unknown_rows", "not known")),
        ("Rows that repeat a (turn, agent)", about.get("repeated_rows", "not known")),
    ]
    counts, contributions = entry["message_counts"], entry["contributions"]
    heads = ("Agent", "Messages", "Share of messages", "Contribution", "Share of contributions")
    messages, contributed = sum(counts.values()), sum(contributions.values())
    agents: list[tuple[object, ...]] = [
        (
            name,
            counts[name],
            f"{share(counts[name], messages):.1%}",
            contributions[name],
            f"{share(contributions[name], contributed):.1%}",
        )
        for name in about["agents"]
    ]
    words: list[tuple[object, ...]] = list(entry.get("unknown_decisions", {}).items())[:_LISTED]
    unknown = [table(("Unknown decision", "Rows"), words)] if words else []
    return "\n".join([table(("Metric", "Value"), facts), table(heads, agents), *unknown])


def share(part: float, whole: float) -> float:
    """``part`` of ``whole``; 0.0 of nothing."""
    return part / whole if whole else 0.0


def _notices(report: Mapping[str, Json]) -> list[str]:
    """Warnings about logs that the rules do not fit, and about two rows of one agent in one turn."""
    logs = report["results"]["logs"].items()
    wrong = [misfit[0].upper() + misfit[1:] for name, entry in logs for misfit in misfits(entry, name)]
    return wrong + [note for name, entry in logs if (note := _repeated_note(entry, name))]


# The page: its summary and its charts.


def page_summary(report: Mapping[str, Json]) -> Summary:
    """The metrics of one log, or the number of logs and events of several."""
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
    if not events:
        return Summary("No event: the log has nothing to rate", ". ".join(wrong), "doubtful", tiles=tiles)
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


# The page's rows: one for each log.

# A log that was counted is neither good nor bad: no metric of the seed has a threshold.
_STATES: Mapping[str, State] = {"error": "bad", "dead": "bad"}


class _LogLine(msgspec.Struct):
    record: str
    id: str = ""
    status: str = ""
    reason: str = ""
    cooperation_rate: float | None = None
    average_contribution: float | None = None
    gini_coefficient: float | None = None
    dialogue_entropy: float | None = None


def _row(line: _LogLine) -> Row:
    cells = (line.cooperation_rate, line.average_contribution, line.gini_coefficient, line.dialogue_entropy)
    state = _STATES.get(line.status, "none")
    return Row(
        line.record, line.id, line.status, state, line.reason, cells, lambda: (Evidence("log", "events", line.reason),)
    )


def _row_reader(report: Mapping[str, Json]) -> Callable[[_LogLine], Row | None]:
    return _row


ROWS = Rows(
    (
        Column("Cooperation", "share"),
        Column("Contribution", "number"),
        Column("Gini", "number"),
        Column("Entropy", "number"),
    ),
    _LogLine,
    _row_reader,
)


def _exports(report: Mapping[str, Json], request: Request) -> list[Export]:
    """metrics.json, if ``--out`` or a configuration names a file for it. Raises UsageError for several logs."""
    out = request.options.get("out")
    if not out:
        return []
    logs = list(report["results"]["logs"].values())
    if len(logs) != 1:
        raise UsageError(f"{out} takes the metrics of one log, but there are {len(logs)}")
    return [Export(Path(out), pretty_json(logs[0]))]


VIEWS = Views(METRICS, PANELS, _markdown, _notices, exports=_exports, summary=page_summary, charts=CHARTS, rows=ROWS)
