"""The cooperation evaluator: logs of a simulation's events in, the metrics of cooperation out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.contract.evaluator import (
    Batch,
    CommandLine,
    Evaluator,
    InputResult,
    Option,
    Outcome,
    Records,
    Sample,
    Tally,
    WholeInput,
)
from evalq.evalcore.contract.measures import Measure, Measures, Number, Observation
from evalq.evalcore.evaluators.cooperation.columns import chunk_state
from evalq.evalcore.evaluators.cooperation.experiment import COMMAND, complete
from evalq.evalcore.evaluators.cooperation.params import CooperationParams
from evalq.evalcore.evaluators.cooperation.report import CooperationState, measure, rules_occur
from evalq.evalcore.evaluators.cooperation.resort import SortLimits, resorted
from evalq.evalcore.evaluators.cooperation.sample import write_sample
from evalq.evalcore.evaluators.cooperation.views import VIEWS
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import EXAMPLES, LISTED, Faults

# Results of a whole log.


def _settle(
    limits: SortLimits,
    state: CooperationState,
    params: CooperationParams,
    reopen: Callable[[], BinaryIO],
    scratch: Path,
) -> CooperationState:
    """Sort the log if its metrics need it. Raises InputChanged if the log changed meanwhile."""
    return resorted(state, params.rules, reopen, scratch, limits) if state.needs_sort else state


def _finish_log(result: InputResult[CooperationState], params: CooperationParams) -> list[bytes]:
    """The log's record line. An empty log is scored; a log without a good line is an error."""
    # The log is the record, not the event (SPEC, section 2).
    line = {"record": f"{result.name}:1", "id": result.name}
    if result.tally.listed.total and not result.state.rows:
        result.tally.errors += 1
        return [msgspec.json.encode({**line, "status": "error", "reason": "no line of the log is an event"})]
    result.tally.scored += 1
    _leave_out(result, params)
    return [msgspec.json.encode({**line, "status": "scored", **measure(result, params).to_dict()})]


def _leave_out(result: InputResult[CooperationState], params: CooperationParams) -> None:
    """Count skipped lines as left out, and the log if no decision word or no resource of the rules occurs in it."""
    skipped, state, left_out = result.tally.listed, result.state, result.tally.left_out
    left_out.add_all("line", "it is no event, and bad lines are skipped", skipped.total, skipped.first)
    if not state.rows:
        return
    occurs = rules_occur(state)
    if not occurs["decision"]:
        words = ", ".join(word for word, _ in state.unknown.top(EXAMPLES)) or "no row has a decision"
        left_out.add("log", "none of its decisions is a word of the rules", 0, words, instead="a cooperation rate of 0")
    if not occurs["resource"]:
        why = "no row has the resource of the rules"
        left_out.add("log", why, 0, params.rules.resource_key, instead="contributions of 0 and a Gini of 0")


def _dead_line(record: Batch, params: CooperationParams, reason: str) -> Outcome[CooperationState]:
    """A line that killed its process is a bad line, since the record is the log."""
    tally = Tally()
    # SPEC, section 2: faults end the run, unless they are dropped and counted.
    (tally.listed if params.skip_bad_lines else tally.fatal).add(record.first_line, f"dead: {reason}")
    # The state keeps the line number: sorting reads the log again, and must leave the line out again.
    return Outcome(CooperationState(missing=[record.first_line]), tally)


# The measures for comparing two runs: rates of logs of the same name.


def _observe(line: Mapping[str, Any]) -> Observation | None:
    case = line.get("id") or ""
    if line["status"] != "scored":
        return Observation(case)
    return Observation(case, (line["cooperation_rate"], line["gini_coefficient"]))


_MEASURES = Measures(
    (Measure("cooperation_rate", "score"), Measure("gini_coefficient", "score", better="lower")),
    _observe,
    # By log; a path cannot name a log with dots in its name, as files have.
    numbers=(
        Number("logs.*.cooperation_rate", "higher", "estimate"),
        Number("logs.*.gini_coefficient", "lower", "estimate"),
        Number("logs.*.average_contribution", "higher", "estimate"),
        Number("logs.*.average_recovery_time", "lower", "estimate"),
        Number("logs.*.dialogue_entropy", kind="estimate"),
        Number("logs.**"),
    ),
)


class Cooperation(Evaluator[CooperationParams, CooperationState]):
    """Cooperation metrics of event logs; a record is a log, a fault is a line.

    ``limits`` bounds the memory of a sort, and changes no result.
    """

    name = "cooperation"
    version = "3"
    summary = "Cooperation metrics of event logs (JSONL): cooperation, contributions, recovery, inequality, dialogue."
    records = Records(unit="events")
    Params = CooperationParams
    State = CooperationState
    command = CommandLine(
        request=complete,
        options=(
            Option(("--config",), "the experiment's configuration (YAML): its log, rules and metrics file", "path"),
            Option(("--log",), "the log, in place of the configuration's"),
            Option(("--out",), "write metrics.json to this file, in place of the configuration's"),
            Option(("--rules",), "rules (JSON) laid over the configuration's, key by key", "path"),
            Option(("--log-dry-run",), "record that the log is of a dry run", "bool"),
            Option(("--skip-bad-lines",), "drop faulty lines and count them", "bool", param="skip_bad_lines"),
        ),
        commands=(COMMAND,),
    )
    measures = _MEASURES
    views = VIEWS
    sample = Sample(write_sample, records=200_000)

    def __init__(self, limits: SortLimits | None = None) -> None:
        self.whole = WholeInput(partial(_settle, limits or SortLimits()), _finish_log, _dead_line, follows=True)

    def evaluate(self, batch: Batch, params: CooperationParams) -> Outcome[CooperationState]:
        """The state of a chunk of a log; a bad line is a fault, fatal unless bad lines are skipped."""
        state, bad = chunk_state(batch, params.rules)
        tally = Tally()
        faults = tally.listed if params.skip_bad_lines else tally.fatal
        faults.merge(Faults(len(bad), bad[:LISTED]))
        return Outcome(state, tally)

    def section(self, results: Sequence[InputResult[CooperationState]], params: CooperationParams) -> dict[str, Json]:
        """``logs``: the metrics of every log by name."""
        return {"logs": {result.name: measure(result, params).to_dict() for result in results}}


evaluator = Cooperation()
