"""Publishing a finished run on its server: its report and cases, its entry in the history, its part in the drift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import Divergent, EvalqError
from evalq.evalcore.model.canonical import Json, canonical_line
from evalq.evalcore.model.lines import encode_in_lines, whole
from evalq.evalcore.views.markdown import table, visible
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.servers import Servers

if TYPE_CHECKING:
    from evalq.workers.ledger.history import Entry, HistoryKey
    from evalq.workers.settings import Settings


def publish_report(run: str, report: dict[str, Json], servers: Servers) -> str:
    """Store the report of a run that this process drove, and release the run. Returns why that failed, or "".

    Does nothing on an embedded server. Raises Divergent if the ledger has another report of this run.
    """
    if not servers.named:
        return ""
    import redis  # not before it is needed: a run without a server never does

    from evalq.workers.ledger.detached import Reports
    from evalq.workers.ledger.runs import RunLedger
    from evalq.workers.processes.identity import driver_token

    try:
        ledger = RunLedger(servers.client, servers.settings, driver_token())
        Reports(ledger, servers.settings).store(run, canonical_line(whole(report)))
        # Release after the report: otherwise a process that waits for this run might find neither driver nor report,
        # and compute it again.
        ledger.release(run)
    except Divergent:
        raise
    except (redis.RedisError, EvalqError, OSError) as error:
        return f"the report could not be stored in the ledger, for others who began this run: {error}"
    return ""


def publish_cases(folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json], servers: Servers) -> str:
    """Store a run's cases, so that it can be compared without its records. Returns why that failed, or "".

    Not for more than ``cases_records`` records, since that reads all of them again.
    """
    if not servers.named or evaluator.measures is None or report["records"]["total"] > servers.settings.cases_records:
        return ""
    import redis

    from evalq.producer.outputs.cases import fresh_cases
    from evalq.workers.ledger.detached import Reports

    try:
        cases = encode_in_lines(fresh_cases(folder, evaluator, report))
        Reports(servers.runs, servers.settings).keep_cases(folder.info().run, cases)
    except (redis.RedisError, EvalqError, OSError) as error:
        return f"the cases could not be stored in the ledger: {error}"
    return ""


# -- the history of a suite ------------------------------------------------------------------------

_SHOWN = 10
_TITLE = "\n## The last runs of the suite, the newest last\n\n"


def record_in_history(
    folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json], seconds: float, servers: Servers
) -> str:
    """Add the run to its history, or replace its entry. Returns why that failed, or "".

    A run without a named server (inline, embedded) has no history. A failure here does not fail a finished run.
    """
    if not servers.named:
        return ""
    import redis  # not before it is needed: a run without a server never does

    recent = [metric.name for metric in evaluator.views.metrics if metric.recent]
    try:
        servers.history.record(_entry(folder, evaluator, report, seconds), recent)
    except (redis.RedisError, EvalqError, OSError) as error:
        return f"this run is not in the history of its suite: {error}"
    return ""


def recent_text(folder: RunFolder, evaluator: Evaluator[Any, Any], settings: Settings) -> str:
    """The end of report.md: a table of the suite's last runs. Empty without a server, and for the first run."""
    import redis

    shown = [metric for metric in evaluator.views.metrics if metric.recent and not metric.labels]
    try:
        with Servers(settings) as servers:
            entries = servers.history.entries(_history_key(folder, evaluator), _SHOWN) if servers.named else []
    except (redis.RedisError, EvalqError, OSError):  # `record_in_history` has said why
        return ""
    if len(entries) < 2 or not shown:
        return ""
    values = [{name: value for name, _, value in entry.samples} for entry in reversed(entries)]
    rows: list[tuple[object, ...]] = [
        (metric.name.removeprefix(f"evalq_{evaluator.name}_"), *(_text(each.get(metric.name)) for each in values))
        for metric in shown
    ]
    return _TITLE + visible(table(("", *(entry.run for entry in reversed(entries))), rows))


def _history_key(folder: RunFolder, evaluator: Evaluator[Any, Any]) -> HistoryKey:
    from evalq.workers.ledger.history import HistoryKey

    return HistoryKey(evaluator.name, folder.info().suite, target_of(folder))


def _text(value: float | None) -> str:
    return "N/A" if value is None else f"{value:.3g}"


def _entry(folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json], seconds: float) -> Entry:
    from evalq.workers.ledger.history import entry_of

    key = _history_key(folder, evaluator)
    info = folder.info()
    return entry_of(evaluator, info.run, key, report, seconds, info.tags, info.served)


def target_of(folder: RunFolder) -> str:
    """The agent that a run's live calls go to; empty for recorded outputs."""
    return folder.info().target


def tags_of(folder: RunFolder) -> dict[str, str]:
    """A run's notes (``--tag``)."""
    return folder.info().tags


# -- the drift of a suite --------------------------------------------------------------------------


def count_drift(folder: RunFolder, evaluator: Evaluator[Any, Any], report: dict[str, Json], servers: Servers) -> str:
    """Count a run in the drift of its suite, after its history has it. Returns why that failed, or "".

    Not for more than ``cases_records`` records, since that reads all of them again. Without a named server nothing is
    stored: `evalq history` counts the run folders each time.
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
