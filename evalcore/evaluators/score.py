"""Your own function: `score(record)` gives each line of a file a score from 0 to 1."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from math import isnan
from pathlib import PurePath
from typing import Any

import msgspec
from pydantic import Field

from evalq.evalcore.contract.evaluator import (
    Batch,
    CommandLine,
    Evaluator,
    Gathering,
    InputResult,
    Option,
    Outcome,
    Params,
    Request,
    State,
    Tally,
    Views,
)
from evalq.evalcore.contract.measures import Measure, Measures, Number, Observation
from evalq.evalcore.contract.plugins import error_with_line, stdout_to_stderr
from evalq.evalcore.contract.scoring import NAME, scoring_function
from evalq.evalcore.errors import ConfigError, UsageError, resource_shortage
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Faults
from evalq.evalcore.naming import kind_of, shorten
from evalq.evalcore.records.json_values import RecordFault, read_object
from evalq.evalcore.records.layouts import NO_RECORD, SHOWN_KEYS, WHOLE, Kind
from evalq.evalcore.statistics.exact import ExactSum
from evalq.evalcore.views.charts import (
    Column,
    Evidence,
    Row,
    Rows,
    Summary,
    Tile,
    number,
    of_all,
    passed_headline,
    rate_interval,
    state_of,
    without_result,
    without_verdict,
)
from evalq.evalcore.views.charts import State as Colour
from evalq.evalcore.views.markdown import failed_section, failed_table, fault_table, left_out, percent
from evalq.evalcore.views.metrics import Metric

_LONG = 200
_RANGE = ", not from 0 to 1: divide by the most that it can be"
_WORKBOOKS = (".xlsx", ".xls", ".ods")
_FIELDS: Mapping[str, Kind] = {"case": "text", "repeat": "whole", WHOLE: "any"}


class ScoreParams(Params):
    """``function`` is "<file>:<name>" and ``source`` the digest of the file: they tell whose scores these are.

    A record passes if its score is at least ``passes_from``.
    """

    function: str = ""
    source: str = ""
    passes_from: float = Field(default=0.5, ge=0, le=1)


class ScoreState(State):
    """Counts, the exact sum of scores, and the lines of records that did not pass, with their reasons."""

    scored: int = 0
    passed: int = 0
    score: ExactSum = msgspec.field(default_factory=ExactSum)
    failed: Faults = msgspec.field(default_factory=Faults)

    def merge(self, later: ScoreState) -> None:
        """Take in the scores of later records."""
        self.scored += later.scored
        self.passed += later.passed
        self.score.merge(later.score)
        self.failed.merge(later.failed)


class _NoScoreError(ValueError):
    """The function gave something that is no score."""


def _with_function(request: Request) -> Request:
    """Return ``request`` with the name and the digest of this process's function.

    Raises ConfigError without one, and UsageError for an input that is a workbook.
    """
    function = scoring_function()
    for path in request.inputs:
        if PurePath(path.lower()).suffix in _WORKBOOKS:
            raise UsageError(f"{path}: evalq reads no workbook: save the sheet as 'CSV UTF-8', and score the CSV")
    own = {"function": function.name, "source": function.source}
    for key, value in own.items():
        if request.params.get(key, value) != value:
            raise ConfigError(
                f"this run scores with {request.params.get('function')} ({request.params.get('source')}), and here "
                f"{function.name} ({function.source}) is named: name the same file, unchanged"
            )
    return msgspec.structs.replace(request, params={**request.params, **own})


def read_score(returned: Any) -> tuple[float | None, str]:
    """(score, reason) of what a function returned.

    That is True, False, a number from 0 to 1, None, or one of these with a text. Raises ValueError for anything else.
    """
    reason = ""
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], str):
        returned, reason = returned
    if returned is None:
        return None, reason
    if isinstance(returned, str | bytes) or not hasattr(returned, "__float__"):
        raise _NoScoreError(
            f"the function returned {kind_of(returned)}: return True, False, a number from 0 to 1, or None for no score"
        )
    try:
        score = float(returned)
    except OverflowError:  # such as 10**400, which has too many digits to be shown
        raise _NoScoreError(f"its score is a number too large for a score{_RANGE}") from None
    except Exception:  # an array
        raise _NoScoreError(
            f"the function returned {type(returned).__name__}, which is no single number: return one from 0 to 1"
        ) from None
    if isnan(score):
        raise _NoScoreError("its score is nan, not a number: return None for no score, or mend the division by zero")
    if not 0.0 <= score <= 1.0:
        raise _NoScoreError(f"its score is {shorten(repr(score), 60)}{_RANGE}")
    return score, reason


def _case(record: Mapping[str, Any] | None, line: int) -> str:
    for key in ("id", "case"):
        own = None if record is None else record.get(key)
        if isinstance(own, str | int) and not isinstance(own, bool):
            return str(own)
    return str(line)


def _cases(batch: Batch, _params: ScoreParams) -> Iterator[str]:
    for line, data in batch.lines():
        try:
            yield _case(read_object(data), line)
        except RecordFault:
            yield str(line)


def _observe(line: Mapping[str, Any]) -> Observation | None:
    case, repeat = line.get("id") or "", line.get("repeat")
    if line["status"] not in ("passed", "failed"):
        return Observation(case, repeat=repeat)
    return Observation(case, (float(line["status"] == "passed"), float(line["score"])), repeat=repeat)


def _markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    results, records = report["results"], report["records"]
    names = ", ".join(f"`{source['name']}`" for source in report["inputs"])
    scored, mean = records["scored"], results["mean_score"]
    passed = f"{results['passed']:,} of {scored:,} records passed ({percent(results['pass_rate'])})"
    parts = [
        f"# Score: {report['params']['function'].replace('_', chr(92) + '_')}\n",
        f"{names}: {passed}; the mean score is {'unknown' if mean is None else f'{mean:.4g}'}.\n",
        f"{records['unscored']:,} without a score, {records['errors']:,} errors.\n",
        *failed_table(results["failed"]),
        left_out(report),
        fault_table(report, "Errors"),
    ]
    return "\n".join(filter(None, parts))


def _page_summary(report: Mapping[str, Json]) -> Summary:
    results, records = report["results"], report["records"]
    scored, passed = records["scored"], results["passed"]
    state: Colour = "none" if scored == records["total"] else "doubtful"
    over = of_all(records) or rate_interval(passed, scored)
    tiles = [
        Tile("Pass rate", number(results["pass_rate"], "share"), over, state),
        Tile("Mean score", number(results["mean_score"], "points"), f"passes from {report['params']['passes_from']:g}"),
    ]
    if records["errors"]:
        tiles.append(Tile("Errors", number(records["errors"], "count"), state="doubtful"))
    verb = f"pass {report['params']['function']}"
    headline = passed_headline(passed, scored, verb, "records", without_verdict(records))
    return Summary(headline, without_result(records), "none" if scored else "doubtful", tuple(tiles))


class _ScoreLine(msgspec.Struct):
    """The keys of a line in records.jsonl that a row shows."""

    record: str
    id: str = ""
    status: str = ""
    reason: str = ""
    score: float | None = None


def _row_reader(report: Mapping[str, Json]) -> Any:
    least = report["params"]["passes_from"]

    def evidence(line: _ScoreLine) -> tuple[Evidence, ...]:
        if line.score is None:
            return (Evidence("record", "a score", line.reason),)
        return (Evidence("score", f"at least {least:g}", f"{line.score:g}", line.status == "passed"),)

    def row(line: _ScoreLine) -> Row:
        why = line.reason or ("" if line.status == "passed" else line.status)
        return Row(line.record, line.id, line.status, state_of(line.status), why, (line.score,), lambda: evidence(line))

    return row


def _why_no_record(data: bytes) -> str:
    """Why a row of a table, or an entry of a list, is no record; "" for a line that is none itself."""
    with contextlib.suppress(ValueError):
        text = msgspec.json.decode(data) if data.lstrip()[:1] == b'"' else None
        if isinstance(text, str) and text.startswith(NO_RECORD):
            return text.removeprefix(NO_RECORD)
    return ""


def _line(
    batch: Batch,
    at: int,
    data: bytes,
    call: Callable[[Any], Any],
    outcome: Outcome[ScoreState],
    least: float,
) -> bytes:
    """Score the record ``data`` on line ``at``, and count it in ``outcome``; returns its line of records.jsonl."""
    line: dict[str, Any] = {"record": batch.where(at), "id": str(at), "status": "error"}
    score, reason = None, ""
    record: dict[str, Any] = {}
    try:
        record = read_object(data)
        line["id"] = _case(record, at)
        if isinstance(repeat := record.get("repeat"), int) and not isinstance(repeat, bool):
            line["repeat"] = repeat
        score, reason = read_score(call(record))
        line["status"] = "unscored" if score is None else "passed" if score >= least else "failed"
    except RecordFault as error:
        reason = _why_no_record(data) or str(error)
    except _NoScoreError as error:
        reason = str(error)
    except (Exception, SystemExit) as error:  # any exception of the function; sys.exit() would end the whole run
        if resource_shortage(error):
            raise
        reason = error_with_line(error)
        if isinstance(error, KeyError) and error.args and error.args[0] not in record:
            reason += (
                f"; the record has: {', '.join(shorten(key, 40) for key in islice(record, SHOWN_KEYS))} (see --map)"
            )
    reason = shorten(reason.encode("utf-8", "replace").decode(), _LONG)
    state, tally = outcome.state, outcome.tally
    if line["status"] == "error":
        tally.errors += 1
        tally.listed.add(at, reason)
    elif score is None:
        tally.unscored += 1
    else:
        tally.scored += 1
        state.scored += 1
        state.passed += score >= least
        state.score.merge(ExactSum.of([score]))
        line["score"] = score
        if score < least:
            reason = reason or f"score {score:g}"
            state.failed.add(at, reason)
    return msgspec.json.encode(line | {"reason": reason} if reason else line)


class Score(Evaluator[ScoreParams, ScoreState]):
    """A file's records by a function of the user's own."""

    name = NAME
    version = "1"
    summary = "Score each record of a file with your own Python function: JSONL, CSV, Parquet or a JSON list."
    Params = ScoreParams
    State = ScoreState
    command = CommandLine(
        (
            Option(("--passes-from",), "A record passes from this score on (0.5).", "float", "passes_from"),
            Option(
                ("--map",),
                "Keys that your function reads, by where they are in a record: case=qid,output=response.text.",
                many=True,
            ),
        ),
        request=_with_function,
    )
    gathering = Gathering(fields=_FIELDS)
    measures = Measures(
        (Measure("pass_rate"), Measure("mean_score", "score")),
        _observe,
        named=_cases,
        numbers=(Number("passed", "higher"), Number("failed.total", "lower")),
    )
    views = Views(
        (
            Metric("evalq_score_pass_rate", "Records that pass.", "share", "pass_rate"),
            Metric("evalq_score_mean", "Mean score of records.", "points", "mean_score"),
        ),
        markdown=_markdown,
        summary=_page_summary,
        rows=Rows((Column("Score", "number"),), _ScoreLine, _row_reader),
    )

    def evaluate(self, batch: Batch, params: ScoreParams) -> Outcome[ScoreState]:
        """Call the function for each line. A record is an error if the function raises, or gives no score."""
        function = scoring_function()
        if (function.name, function.source) != (params.function, params.source):
            raise ConfigError(f"this process scores with {function.name}, and the run with {params.function}")
        outcome = Outcome(ScoreState(), Tally())
        with stdout_to_stderr():
            outcome.lines = [_line(batch, *line, function.call, outcome, params.passes_from) for line in batch.lines()]
        return outcome

    def section(self, results: Sequence[InputResult[ScoreState]], params: ScoreParams) -> dict[str, Json]:
        """The pass rate, the mean score, and the records that failed."""
        whole = ScoreState()
        failed = failed_section((result.name, result.state.failed) for result in results)
        for result in results:
            whole.merge(result.state)
        count = whole.scored
        return {
            "pass_rate": whole.passed / count if count else None,
            "mean_score": whole.score.mean(count) if count else None,
            "passed": whole.passed,
            "failed": failed,
        }


evaluator = Score()
