"""How plan-agent reports are shown over time and on the page: metrics, panels, charts and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Views
from evalq.evalcore.evaluators.planagent.markdown import markdown, results_by_file
from evalq.evalcore.evaluators.planagent.params import TOP_SCORE
from evalq.evalcore.evaluators.planagent.report import round_order
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.records.inputs import excel_changed
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.charts import (
    Chart,
    Column,
    Evidence,
    Mark,
    Row,
    Rows,
    State,
    Summary,
    Tile,
    highest_first,
    number,
)
from evalq.evalcore.views.metrics import Metric, Panel, Plot, Threshold


def _files(report: Mapping[str, Json]) -> Iterator[tuple[dict[str, str], Json]]:
    """Each file's results, with its labels."""
    for name, section in results_by_file(report).items():
        yield {"input": name}, section


def _checklists(report: Mapping[str, Json]) -> Iterator[tuple[dict[str, str], Json]]:
    """Each file's operating checklist, its entries by name."""
    for labels, section in _files(report):
        yield labels, {entry["item"]: entry for entry in section["checklist"]}


METRICS = (
    Metric(
        "evalq_planagent_accuracy",
        "Mean accuracy of the set, 0 to 5.",
        "points",
        "set.accuracy",
        ("input",),
        scope=_files,
        recent=10,
    ),
    Metric(
        "evalq_planagent_intent",
        "Mean intent score of the set, 0 to 5.",
        "points",
        "set.intent",
        ("input",),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_consistency",
        "Queries that all rounds judge alike, as a score of 0 to 5.",
        "points",
        "consistency.score",
        ("input",),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_stability",
        "Stability of the set, 0 to 5, by its two readings.",
        "points",
        "set.stability.{reading}",
        ("input", "reading"),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_speed_points",
        "Points of the mean seconds, 0 to 5.",
        "points",
        "set.speed.points_of_mean",
        ("input",),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_mean_seconds",
        "Mean seconds of an answer.",
        "seconds",
        "set.speed.mean_seconds",
        ("input",),
        scope=_files,
        recent=10,
    ),
    Metric(
        "evalq_planagent_round_accuracy",
        "Mean accuracy of a round, 0 to 5.",
        "points",
        "rounds.{round}.accuracy",
        ("input", "round"),
        scope=_files,
        most=50,
    ),
    Metric(
        "evalq_planagent_score_rows",
        "Rows with a score.",
        "count",
        "set.score_counts.{score}",
        ("input", "score"),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_stability_failure_share",
        "Rows that fail for stability; from 0.01 on the checklist warns.",
        "share",
        "stability.share",
        ("input",),
        scope=_checklists,
        recent=10,
    ),
    Metric(
        "evalq_planagent_failure_share",
        "Rows without an answer: an error, nothing, or no JSON.",
        "share",
        "failures.share",
        ("input",),
        scope=_files,
    ),
    Metric(
        "evalq_planagent_check_failure_rate",
        "Checks of a kind that fail.",
        "share",
        "checks[check].failure_rate",
        ("input", "check"),
        scope=_files,
    ),
)


# Panels over the runs of a suite.

_POINTS = (Threshold(None, "bad"), Threshold(2, "doubtful"), Threshold(4, "good"))
_RANGE = (0.0, float(TOP_SCORE))
_FAILURES = (Threshold(None, "good"), Threshold(0.01, "bad"))

PANELS = (
    Panel(
        "Plan agent's accuracy",
        "Mean score of the rows, 0 to 5, newest run of each suite.",
        "points",
        "gauge",
        (Plot("evalq_planagent_accuracy", ("suite",), legend="{suite}"),),
        _POINTS,
        _RANGE,
        overview=True,
        width=6,
    ),
    Panel(
        "Stability failures",
        "Share of rows that fail for stability: 1 % or more is a warning.",
        "share",
        "stat",
        (Plot("evalq_planagent_stability_failure_share", ("suite",), "max", legend="{suite}"),),
        _FAILURES,
        (0, 1),
        overview=True,
        width=6,
    ),
    Panel(
        "The five scores",
        "Accuracy, intent, consistency, stability and speed of the set, 0 to 5.",
        "points",
        "bars",
        (
            Plot("evalq_planagent_accuracy", legend="accuracy"),
            Plot("evalq_planagent_intent", legend="intent"),
            Plot("evalq_planagent_consistency", legend="consistency"),
            Plot("evalq_planagent_stability", ("reading",), legend="stability ({reading})"),
            Plot("evalq_planagent_speed_points", legend="speed"),
        ),
        _POINTS,
        _RANGE,
        width=12,
    ),
    Panel(
        "Accuracy over time",
        "Mean score of the rows, by suite.",
        "points",
        "lines",
        (Plot("evalq_planagent_accuracy", ("suite",), legend="{suite}"),),
        _POINTS,
        _RANGE,
        width=12,
    ),
    Panel(
        "Accuracy of the last 10 runs",
        "Mean score of the rows, the newest run at 1.",
        "points",
        "bars",
        (Plot("evalq_planagent_accuracy", ("suite",), recent=True, legend="{suite}"),),
        _POINTS,
        _RANGE,
        width=12,
    ),
    Panel(
        "Accuracy by round",
        "Mean score of the rows of each round.",
        "points",
        "bars",
        (Plot("evalq_planagent_round_accuracy", ("round",), legend="{round}"),),
        _POINTS,
        _RANGE,
        width=12,
    ),
    Panel(
        "Scores",
        "Rows of the newest run by score.",
        "count",
        "bars",
        (Plot("evalq_planagent_score_rows", ("score",), "sum", legend="{score}"),),
        width=12,
    ),
    Panel(
        "Seconds of an answer",
        "Mean seconds of an answer, by suite: up to 5 gives full points, over 20 none.",
        "seconds",
        "lines",
        (Plot("evalq_planagent_mean_seconds", ("suite",), legend="{suite}"),),
        (Threshold(None, "good"), Threshold(8, "doubtful"), Threshold(20, "bad")),
        width=12,
    ),
    Panel(
        "Seconds of the last 10 runs",
        "Mean seconds of an answer, the newest run at 1.",
        "seconds",
        "bars",
        (Plot("evalq_planagent_mean_seconds", ("suite",), recent=True, legend="{suite}"),),
        width=12,
    ),
    Panel(
        "Failures",
        "Rows that fail for stability, and rows without an answer at all.",
        "share",
        "lines",
        (
            Plot("evalq_planagent_stability_failure_share", ("suite",), "max", legend="{suite} stability"),
            Plot("evalq_planagent_failure_share", ("suite",), "max", legend="{suite} no answer"),
        ),
        _FAILURES,
        width=12,
    ),
    Panel(
        "Stability failures of the last 10 runs",
        "Share of rows that fail for stability, the newest run at 1.",
        "share",
        "bars",
        (Plot("evalq_planagent_stability_failure_share", ("suite",), "max", recent=True, legend="{suite}"),),
        _FAILURES,
        width=12,
    ),
    Panel(
        "Failing checks",
        "Share of the checks of each kind that fail.",
        "share",
        "bars",
        (Plot("evalq_planagent_check_failure_rate", ("check",), legend="{check}"),),
        range=(0, 1),
        width=12,
    ),
)


# The page: its summary and its charts.


def page_summary(report: Mapping[str, Json]) -> Summary:
    """The seed's metrics of one input, or the accuracy of each of several."""
    by_file = results_by_file(report)
    if len(by_file) > 1:
        scored = report["records"]["scored"]
        tiles = [
            Tile(name, number(results["set"]["accuracy"], "points"), "mean score, of 5")
            for name, results in by_file.items()
        ]
        return Summary(f"{scored:,} rows of {len(by_file)} files scored", tiles=tuple(tiles[:12]))
    (results,) = by_file.values()
    whole, unscored = results["set"], report["records"]["unscored"]
    rules = report["params"]["rules"]
    tiles = [
        Tile("Intent", number(whole["intent"], "points"), "of 5"),
        Tile("Accuracy", number(whole["accuracy"], "points"), "of 5"),
        Tile(
            "Consistency",
            number(results["consistency"]["score"], "points"),
            f"{results['consistency']['queries']:,} queries",
        ),
        Tile("Stability", number(whole["stability"][rules["stability"]], "points"), "of 5"),
        Tile("Mean time", number(whole["speed"]["mean_seconds"], "seconds")),
        Tile("Without an answer", number(results["failures"]["rows"], "count"), "errors, broken JSON, empty"),
    ]
    mean = number(whole["accuracy"], "points")
    left = [f"{unscored:,} rows have no check that can be read, and stay out of every mean."] if unscored else []
    if unread := results["unread"]["conditions"]:
        left.append(f"{unread:,} conditions in {results['unread']['rows']:,} rows are in no form that evalq reads.")
    if not whole["scored"]:
        headline = f"No score: none of {report['records']['total']:,} rows has a check that can be read"
        return Summary(headline, " ".join(left[unscored > 0 :]), "doubtful", tuple(tiles))
    # The specification scores a row without an answer 0.
    empty = results["failures"]["rows"]
    headline = f"A mean score of {mean} of 5 over {whole['scored']:,} rows"
    headline += f"; {empty:,} of them have no answer (0 points)" if empty else ""
    return Summary(headline, " ".join(left), "doubtful" if empty == whole["scored"] else "none", tuple(tiles))


def _counts(key: str) -> Any:
    def marks(report: Mapping[str, Json]) -> Iterator[Mark]:
        for name, results in results_by_file(report).items():
            several = "files" in report["results"]
            for round_ in sorted(results["rounds"], key=round_order):
                label = f"{name} · {round_}" if several else round_
                for points, rows in sorted(results["rounds"][round_][key].items()):
                    yield Mark(label, rows, part=points)

    return marks


def _rounds(report: Mapping[str, Json]) -> Iterator[Mark]:
    for name, results in results_by_file(report).items():
        for round_ in sorted(results["rounds"], key=round_order):
            part = results["rounds"][round_]
            label = f"{name} · {round_}" if "files" in report["results"] else round_
            yield Mark(label, part["accuracy"], note=f"{part['scored']:,} rows")


def _checks(report: Mapping[str, Json]) -> Iterator[Mark]:
    """Each kind's share of failed checks over all files, the worst first."""
    totals: dict[str, tuple[int, int]] = {}
    for results in results_by_file(report).values():
        for check in results["checks"]:
            failed, of = totals.get(check["check"], (0, 0))
            totals[check["check"]] = (failed + check["of"] - check["passed"], of + check["of"])
    for kind, (failed, of) in sorted(totals.items(), key=lambda item: (-item[1][0] / item[1][1], item[0])):
        low, high = wilson(failed, of)
        yield Mark(kind, failed / of, low, high, note=f"{failed:,} of {of:,}")


def _categories(report: Mapping[str, Json]) -> Iterator[Mark]:
    for name, results in results_by_file(report).items():
        for group in sorted(results["categories"], key=lambda group: (-(group["failure_rate"] or 0.0), group["name"])):
            if group["of"]:
                low, high = wilson(group["failed"], group["of"])
                label = f"{name} · {group['name']}" if "files" in report["results"] else group["name"]
                yield Mark(label, group["failure_rate"], low, high, note=f"{group['rows']:,} rows")


def _failures(report: Mapping[str, Json]) -> Iterator[Mark]:
    reasons: dict[str, int] = {}
    for results in results_by_file(report).values():
        for item in results["failures"]["errors"]["top"]:
            reasons[item["name"]] = reasons.get(item["name"], 0) + item["rows"]
        for reason in ("unparsable", "empty"):
            reasons[reason] = reasons.get(reason, 0) + results["failures"]["reasons"][reason]
    return highest_first({reason: rows for reason, rows in reasons.items() if rows})


CHARTS = (
    Chart("Score by round", "Mean over scored rows.", "bars", "points", _rounds, "Round", (0.0, 5.0)),
    Chart("How scores are spread", "Rows by score.", "stacked", "count", _counts("score_counts"), "Round"),
    Chart(
        "Speed", "Rows by points for their time: 5 is fastest.", "stacked", "count", _counts("speed_counts"), "Round"
    ),
    Chart(
        "Failed checks by kind",
        "Share of the checks of each kind that did not pass, with 95 % intervals (Wilson).",
        "dots",
        "share",
        _checks,
        "Check",
        (0.0, 1.0),
    ),
    Chart(
        "Failed checks by category",
        "Share of the checks in rows of each category that did not pass, with 95 % intervals (Wilson).",
        "dots",
        "share",
        _categories,
        "Category",
        (0.0, 1.0),
    ),
    Chart(
        "Rows without an answer",
        "By reason; numbers and ids in error texts are masked.",
        "bars",
        "count",
        _failures,
        "Reason",
    ),
)


# The page's rows: each row's score, with the checks of a low one.


class _CheckCell(msgspec.Struct):
    kind: str
    want: str
    passed: bool | None = None


class _RowLine(msgspec.Struct, gc=False):
    record: str
    id: str = ""
    round: str = ""
    status: str = ""
    score: int | None = None
    checks: msgspec.Raw = msgspec.Raw(b"[]")
    unread: list[str] = []
    seconds: float | None = None
    reason: str = ""


_decoded_checks = msgspec.json.Decoder(list[_CheckCell]).decode


def _row_reader(report: Mapping[str, Json]) -> Callable[[_RowLine], Row | None]:
    mark = report["params"]["pass_mark"]

    def row(line: _RowLine) -> Row:
        cells = (line.round, line.score, line.seconds)
        if line.score is None:
            state: State = "bad" if line.status == "dead" else "none"
            return Row(line.record, line.id, line.status, state, line.reason, cells)
        if line.score >= mark and not line.unread:
            return Row(line.record, line.id, "passed", "good", line.reason, cells)
        if line.score >= mark:
            # Only the readable conditions passed: the others are not known.
            why = f"passed, as far as it can be read: {len(line.unread)} of its conditions are in no known form"
            return Row(line.record, line.id, "passed", "doubtful", why, cells, lambda: tuple(_evidence(line)))
        return Row(
            line.record, line.id, "failed", "bad", line.reason or _missed(line), cells, lambda: tuple(_evidence(line))
        )

    return row


def _missed(line: _RowLine) -> str:
    missed = [f"{check.kind} = {check.want}" for check in _decoded_checks(line.checks) if not check.passed]
    return f"not found: {', '.join(missed)}"


def _evidence(line: _RowLine) -> Iterator[Evidence]:
    """Each check, with the row's reason if it is 0 without judging."""
    for check in _decoded_checks(line.checks):
        actual = "found" if check.passed else line.reason or "not found"
        yield Evidence(check.kind, check.want, actual, bool(check.passed))
    for text in line.unread:
        yield Evidence("condition", text, "no form reads it", False)


ROWS = Rows((Column("Round"), Column("Score", "number"), Column("Seconds", "number")), _RowLine, _row_reader)


def _notices(report: Mapping[str, Json]) -> list[str]:
    """What no row of a file has, so that numbers of it are missing or 0, and what Excel made of rounds."""
    files = results_by_file(report).items()
    readings = report["params"]["rules"]
    return [f"{name}: {notice}" for name, results in files for notice in _never(results, readings)]


def _never(results: Json, rules: Json) -> Iterator[str]:
    whole, failures = results["set"], results["failures"]["reasons"]
    scored, llm = whole["scored"], results["llm"]
    if whole["records"] and not scored:
        yield "no row has a check that can be read from 기대결과, so no row has a score"
    elif scored and failures["unparsable"] == scored:
        yield "no row has JSON in Raw JSON, so every score is 0. Was the column cut, or changed by Excel?"
    elif scored and whole["seconds_excluded"] == scored:
        yield "no row has a responseTimeSec in Raw JSON, so speed has no value"
    if scored and rules["accuracy"] == "llm_when_present" and not llm["pairs"]:
        yield "no row has an LLM 점수, so accuracy is that of the checklists alone"
    for name in results["rounds"]:
        if hint := excel_changed(name):
            yield f"방/반복: {hint}"
            return


VIEWS = Views(METRICS, PANELS, markdown, _notices, summary=page_summary, charts=CHARTS, rows=ROWS, language="ko")
