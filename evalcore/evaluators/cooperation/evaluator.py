"""The cooperation evaluator: logs of a simulation's events in, the metrics of cooperation out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.contract.evaluator import Batch, Evaluator, Export, InputResult, Option, Outcome, Request, Tally
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.cooperation.config import completed
from evalq.evalcore.evaluators.cooperation.gauges import METRICS
from evalq.evalcore.evaluators.cooperation.kernel import summarize
from evalq.evalcore.evaluators.cooperation.metrics import measure, pretty_json
from evalq.evalcore.evaluators.cooperation.panels import PANELS
from evalq.evalcore.evaluators.cooperation.params import CooperationParams
from evalq.evalcore.evaluators.cooperation.reading import read
from evalq.evalcore.evaluators.cooperation.render import log_tables
from evalq.evalcore.evaluators.cooperation.resort import Limits, resorted
from evalq.evalcore.evaluators.cooperation.sample import write_events
from evalq.evalcore.evaluators.cooperation.state import CooperationState
from evalq.evalcore.evaluators.cooperation.summary import COMMAND
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.tally import LISTED, Faults
from evalq.evalcore.views.markdown import escape

__all__ = ["Cooperation", "evaluator"]


class Cooperation(Evaluator[CooperationParams, CooperationState]):
    """Cooperation metrics of event logs; a record is a log, a fault is a line.

    ``limits`` bounds the memory of the sort that a log may need; it changes no answer.
    """

    name = "cooperation"
    version = "2"
    summary = "Cooperation metrics of event logs (JSONL): cooperation, contributions, recovery, inequality, dialogue."
    unit = "events"
    options = (
        Option(("--config",), "the experiment's configuration (YAML): its log, rules and metrics file", "path"),
        Option(("--log",), "the log, in place of the configuration's"),
        Option(("--out",), "write metrics.json to this file, in place of the configuration's"),
        Option(("--rules",), "rules (JSON) laid over the configuration's, key by key", "path"),
        Option(("--log-dry-run",), "record that the log is of a dry run", "bool"),
        Option(("--skip-bad-lines",), "drop faulty lines and count them", "bool", param="skip_bad_lines"),
    )
    commands = (COMMAND,)
    demo_records = 200_000
    metrics = METRICS
    panels = PANELS
    follows = True
    Params = CooperationParams
    State = CooperationState

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()

    def request(self, asked: Request) -> Request:
        """Fill in what ``--config`` and ``--rules`` say."""
        return completed(asked)

    def evaluate(self, batch: Batch, params: CooperationParams) -> Outcome[CooperationState]:
        """The state of a chunk of a log; a bad line is a fault, fatal unless bad lines are skipped."""
        events, bad = read(batch)
        tally = Tally()
        faults = tally.listed if params.skip_bad_lines else tally.fatal
        faults.merge(Faults(len(bad), bad[:LISTED]))
        return Outcome(summarize(events, params.rules), tally)

    def dead(self, record: Batch, params: CooperationParams, reason: str) -> Outcome[CooperationState]:
        """A line whose event cannot be had is a bad line: the record is the log."""
        tally = Tally()
        (tally.listed if params.skip_bad_lines else tally.fatal).add(record.first_line, f"dead: {reason}")
        return Outcome(CooperationState(missing=[record.first_line]), tally)

    def settle(
        self, state: CooperationState, params: CooperationParams, reopen: Callable[[], BinaryIO], scratch: Path
    ) -> CooperationState:
        """Sort the log where its numbers need it. Raises InputChanged when it is not the log it was."""
        return resorted(state, params.rules, reopen, scratch, self._limits) if state.needs_sort else state

    def close(self, result: InputResult[CooperationState], params: CooperationParams) -> list[bytes]:
        """The log's own line: an empty log is one of no events, a log without a single good line is an error."""
        line = {"record": f"{result.name}:1", "id": result.name}
        if result.tally.listed.total and not result.state.rows:
            result.tally.errors += 1
            return [msgspec.json.encode({**line, "status": "error", "reason": "no line of the log is an event"})]
        result.tally.scored += 1
        return [msgspec.json.encode({**line, "status": "scored", **measure(result, params).to_dict()})]

    def section(self, results: Sequence[InputResult[CooperationState]], params: CooperationParams) -> dict[str, Json]:
        """``logs``: the metrics of every log by name."""
        return {"logs": {result.name: measure(result, params).to_dict() for result in results}}

    def sample(self, folder: Path, records: int, seed: int) -> Request:
        """Two logs of one made-up village: one in turn order, and a shorter one out of order."""
        paths = [folder / "events.jsonl", folder / "shuffled.jsonl"]
        for path, events, shuffled in zip(paths, (records - records // 4, records // 4), (False, True), strict=True):
            with path.open("wb") as stream:
                write_events(stream, events, seed, shuffled=shuffled)
        return Request([str(path) for path in paths], {}, {})

    def markdown(self, report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
        """The report for people: two tables a log."""
        parts = [f"## {escape(name)}\n\n{log_tables(entry)}" for name, entry in report["results"]["logs"].items()]
        return "\n".join(["# Cooperation metrics\n", *parts])

    def exports(self, report: Mapping[str, Json], request: Request) -> list[Export]:
        """metrics.json, where ``--out`` or a configuration asks for it."""
        out = request.options.get("out")
        if not out:
            return []
        logs = list(report["results"]["logs"].values())
        if len(logs) != 1:
            raise UsageError(f"{out} takes the metrics of one log, but there are {len(logs)}")
        return [Export(Path(out), pretty_json(logs[0]))]


evaluator = Cooperation()
