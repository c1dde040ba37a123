"""Counting a run in its suite's drift, where there is a ledger that outlives the run."""

from __future__ import annotations

from typing import Any

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.model.canonical import Json
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.servers import Servers

__all__ = ["count_drift"]


def count_drift(folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json], servers: Servers) -> str:
    """Count a run whose records are written, after its history has it. Returns why it could not be.

    Not a run of more than ``cases_records``, since that reads all of them again. Without a server of the user's
    choice nothing is kept: `evalq history` counts the run folders anew.
    """
    if not servers.named or evaluator.measures is None or report["records"]["total"] > servers.settings.cases_records:
        return ""
    import redis  # not before it is needed: a run without a server never does

    from evalq.producer.outputs.cases import fresh_cases
    from evalq.workers.ledger.history import HistoryKey

    try:
        run = fresh_cases(folder, evaluator, report)
        servers.drift.count(HistoryKey(evaluator.name, run.suite, run.target), run)
    except (redis.RedisError, EvalqError, OSError) as error:
        return f"this run is not counted in the drift of its suite: {error}"
    return ""
