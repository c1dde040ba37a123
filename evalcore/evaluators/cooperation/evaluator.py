"""The cooperation evaluator: logs of a simulation's events in, the metrics of cooperation out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

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
    Views,
    WholeInput,
)
from evalq.evalcore.evaluators.cooperation.charts import CHARTS, opening
from evalq.evalcore.evaluators.cooperation.columns import chunk_state
from evalq.evalcore.evaluators.cooperation.config import completed
from evalq.evalcore.evaluators.cooperation.markdown import markdown, notices
from evalq.evalcore.evaluators.cooperation.measures import MEASURES
from evalq.evalcore.evaluators.cooperation.metrics import METRICS
from evalq.evalcore.evaluators.cooperation.panels import PANELS
from evalq.evalcore.evaluators.cooperation.params import CooperationParams
from evalq.evalcore.evaluators.cooperation.resort import Limits
from evalq.evalcore.evaluators.cooperation.rows import ROWS
from evalq.evalcore.evaluators.cooperation.sample import write_sample
from evalq.evalcore.evaluators.cooperation.section import exports, measure
from evalq.evalcore.evaluators.cooperation.state import CooperationState
from evalq.evalcore.evaluators.cooperation.summary import COMMAND
from evalq.evalcore.evaluators.cooperation.whole import dead_line, finish_log, settle
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import LISTED, Faults

__all__ = ["Cooperation", "evaluator"]


class Cooperation(Evaluator[CooperationParams, CooperationState]):
    """Cooperation metrics of event logs; a record is a log, a fault is a line.

    ``limits`` bounds the memory of the sort that a log may need; it changes no answer.
    """

    name = "cooperation"
    version = "3"
    summary = "Cooperation metrics of event logs (JSONL): cooperation, contributions, recovery, inequality, dialogue."
    records = Records(unit="events")
    Params = CooperationParams
    State = CooperationState
    command = CommandLine(
        request=completed,
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
    measures = MEASURES
    views = Views(METRICS, PANELS, markdown, notices, exports=exports, summary=opening, charts=CHARTS, rows=ROWS)
    sample = Sample(write_sample, records=200_000)

    def __init__(self, limits: Limits | None = None) -> None:
        self.whole = WholeInput(partial(settle, limits or Limits()), finish_log, dead_line, follows=True)

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
