"""The plan agent's row score, with the CPU time of its kernel written down: the rest of a process is not the kernel.

Where TIMED_FOLDER is set, each process has a file there with a line for each chunk: CPU seconds, wall seconds, records.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from evalq.evalcore.contract.evaluator import Batch, Outcome
from evalq.evalcore.evaluators.planagent.evaluator import PlanAgent
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.report import PlanState


class TimedPlanAgent(PlanAgent):
    """A plan agent that says how long it took."""

    name = "timed"

    def evaluate(self, batch: Batch, params: PlanParams) -> Outcome[PlanState]:
        """Score the rows of one chunk."""
        began, wall = time.thread_time(), time.perf_counter()
        outcome = super().evaluate(batch, params)
        took, wall = time.thread_time() - began, time.perf_counter() - wall
        if folder := os.environ.get("TIMED_FOLDER"):
            with (Path(folder) / str(os.getpid())).open("a") as out:
                out.write(f"{took} {wall} {outcome.tally.total}\n")
        return outcome


evaluator = TimedPlanAgent()
