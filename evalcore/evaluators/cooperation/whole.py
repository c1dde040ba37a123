"""What is known only of a whole log: it is the record, and its lines are events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from evalq.evalcore.contract.evaluator import Batch, InputResult, Outcome, Tally
from evalq.evalcore.evaluators.cooperation.params import CooperationParams
from evalq.evalcore.evaluators.cooperation.resort import Limits, resorted
from evalq.evalcore.evaluators.cooperation.section import measure, rules_occur
from evalq.evalcore.evaluators.cooperation.state import CooperationState
from evalq.evalcore.model.state import EXAMPLES

__all__ = ["dead_line", "finish_log", "settle"]


def settle(
    limits: Limits,
    state: CooperationState,
    params: CooperationParams,
    reopen: Callable[[], BinaryIO],
    scratch: Path,
) -> CooperationState:
    """Sort the log where its numbers need it. Raises InputChanged when it is not the log it was."""
    return resorted(state, params.rules, reopen, scratch, limits) if state.needs_sort else state


def finish_log(result: InputResult[CooperationState], params: CooperationParams) -> list[bytes]:
    """The log's own line: an empty log is one of no events, a log without a single good line is an error."""
    # One line for a log, and not for an event: the log is the record (SPEC, section 2).
    line = {"record": f"{result.name}:1", "id": result.name}
    if result.tally.listed.total and not result.state.rows:
        result.tally.errors += 1
        return [msgspec.json.encode({**line, "status": "error", "reason": "no line of the log is an event"})]
    result.tally.scored += 1
    _leave_out(result, params)
    return [msgspec.json.encode({**line, "status": "scored", **measure(result, params).to_dict()})]


def _leave_out(result: InputResult[CooperationState], params: CooperationParams) -> None:
    """Name the lines that are no events, and the log in which no word, or no resource, of the rules occurs."""
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


def dead_line(record: Batch, params: CooperationParams, reason: str) -> Outcome[CooperationState]:
    """A line whose event cannot be read is a bad line: the record is the log."""
    tally = Tally()
    # SPEC, section 2: faults fail the pass, unless they are to be dropped and counted.
    (tally.listed if params.skip_bad_lines else tally.fatal).add(record.first_line, f"dead: {reason}")
    # Its place is kept: a log that has to be sorted is read anew, and must leave this line out once more.
    return Outcome(CooperationState(missing=[record.first_line]), tally)
