"""Leaving a finished run's report in the ledger, for whoever began the same run in another folder."""

from __future__ import annotations

from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import Divergent, EvalqError
from evalq.evalcore.model.canonical import Json, canonical_line
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.servers import Servers

__all__ = ["share", "share_cases"]


def share(run: str, report: dict[str, Json], servers: Servers) -> str:
    """Leave the report of a run that this process drove, and hand the run over. Returns why it could not be.

    A run on an embedded server is nobody else's. Raises Divergent where another report of this run is there.
    """
    if not servers.named:
        return ""
    import redis  # not before it is needed: a run without a server never does

    from evalq.workers.ledger.detached import Reports
    from evalq.workers.ledger.runs import RunLedger
    from evalq.workers.processes.identity import driver_token

    try:
        ledger = RunLedger(servers.client, servers.settings, driver_token())
        Reports(ledger, servers.settings).store(run, canonical_line(report))
        # After the report: whoever waits for this run would otherwise find neither driver nor report, and compute it
        # again.
        ledger.hand_over(run)
    except Divergent:
        raise
    except (redis.RedisError, EvalqError, OSError) as error:
        return f"the report is not in the ledger, for those who began this run elsewhere: {error}"
    return ""


def share_cases(folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json], servers: Servers) -> str:
    """Leave how each case went for a run's report to come, so that it is compared where its records are not.

    Not of more than ``cases_records``, since that reads all of them again. Returns why it could not be.
    """
    if not servers.named or evaluator.measures is None or report["records"]["total"] > servers.settings.cases_records:
        return ""
    import redis

    from evalq.producer.outputs.cases import fresh_cases
    from evalq.workers.ledger.detached import Reports

    try:
        cases = msgspec.json.encode(fresh_cases(folder, evaluator, report))
        Reports(servers.runs, servers.settings).keep_cases(folder.info().run, cases)
    except (redis.RedisError, EvalqError, OSError) as error:
        return f"how its cases went is not in the ledger: {error}"
    return ""
