"""The history of each suite, and whether its runs get worse: from the ledger, or counted again from the run folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from evalq.evalcore.compare.drift import (
    CLEARED,
    MOST_EVIDENCE,
    PAGED,
    WORSE,
    DriftRecord,
    DriftState,
    MeasureState,
    approved,
    counted,
    key_of,
    state_of,
)
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.model.calls import replaced_model
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.metrics import Metric, MetricSample, samples
from evalq.producer.comparing.baselines import Baselines
from evalq.producer.folder.documents import RunInfo
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.finding import folders, warn
from evalq.producer.outputs.cases import cases_of

if TYPE_CHECKING:
    from evalq.producer.servers import Servers


class FinishedRun(msgspec.Struct, frozen=True):
    """A finished run: when it ended (a folder: when it began), and its counts of records.

    ``metrics`` are those that its evaluator shows for several runs side by side, with one value a run. ``served``
    counts the answers of its calls by the model that gave them.
    """

    run: str
    when: str
    records: dict[str, int]
    metrics: dict[str, float] = {}
    served: dict[str, int] = {}


class Replacement(msgspec.Struct, frozen=True):
    """Another model served the calls of ``run`` than those of the run before it: both by name, in a sentence."""

    run: str
    sentence: str


class SuiteHistory(msgspec.Struct, frozen=True):
    """The history of one evaluator, suite and target: its runs and its chains, those of the newest run first.

    ``replaced`` are the runs with which another model began to serve, the newest first: of all runs, also of those that
    ``runs`` leaves out, since a change of long ago explains a drift of today.
    """

    evaluator: str
    suite: str
    target: str
    runs: list[FinishedRun]
    drift: list[DriftState]
    replaced: list[Replacement] = []

    @property
    def place(self) -> tuple[str, str, str]:
        """(evaluator, suite, target)."""
        return self.evaluator, self.suite, self.target


def histories(servers: Servers, most: int) -> list[SuiteHistory]:
    """All histories, each with its ``most`` newest runs."""
    return sorted(_of_ledger(servers, most) if servers.named else _of_folders(servers, most), key=lambda one: one.place)


def _of_ledger(servers: Servers, most: int) -> Iterator[SuiteHistory]:
    for place in servers.history.all():
        entries = servers.history.entries(place)
        runs = [
            FinishedRun(
                entry.run,
                datetime.fromtimestamp(entry.ended, UTC).isoformat(timespec="seconds"),
                entry.records,
                _watched(place.evaluator, entry.samples),
                entry.served,
            )
            for entry in entries
        ]
        states = servers.drift.states(place)
        yield SuiteHistory(place.evaluator, place.suite, place.target, runs[:most], states, _replacements(runs))


def _of_folders(servers: Servers, most: int) -> Iterator[SuiteHistory]:
    """Count every finished run again in the order in which they began, as a ledger does."""
    found: dict[tuple[str, str, str], list[tuple[RunFolder, RunInfo]]] = {}
    for folder, info in folders():
        if info.state == "done" and not info.follows:
            found.setdefault((info.evaluator, info.suite, info.target), []).append((folder, info))
    approved_runs, faults = Baselines(servers).every()
    for fault in faults:
        warn(f"warning: {fault}; drift is shown without it")
    known = [run for runs in approved_runs.values() for run in runs]
    for (evaluator, suite, target), each in found.items():
        runs, cases = [], []
        for folder, info in sorted(each, key=_order):
            try:
                report = folder.report()
                found_here = [(one.metric, one.labels, one.value) for one in _samples(evaluator, report)]
                watched = _watched(evaluator, found_here)
                runs.append(FinishedRun(info.run, info.started, report["records"], watched, info.served))
                cases += _cases(folder, runs[-1], servers.settings.cases_records)
            except (EvalqError, OSError) as error:
                warn(f"warning: {folder.path} is skipped: {error}")
        states = _counted(cases, [run for run in known if (run.evaluator, run.target) == (evaluator, target)])
        runs.reverse()
        yield SuiteHistory(evaluator, suite, target, runs[:most], states, _replacements(runs))


def _metrics(evaluator: str) -> tuple[Metric, ...]:
    """The metrics that an evaluator declares; none if it is not installed here."""
    try:
        return plugins.get(evaluator).views.metrics
    except EvalqError:
        return ()


def _samples(evaluator: str, report: Mapping[str, Json]) -> list[MetricSample]:
    return samples(_metrics(evaluator), report)


def _watched(evaluator: str, found: Iterable[tuple[str, tuple[str, ...], float]]) -> dict[str, float]:
    """{metric: value} of the metrics that are shown for several runs, with one value a run."""
    shown = {metric.name for metric in _metrics(evaluator) if metric.recent and not metric.labels}
    return {name: value for name, labels, value in found if name in shown and not labels}


def _order(one: tuple[RunFolder, RunInfo]) -> tuple[str, int, str]:
    """By the time a run began; within a second, by the time of its report."""
    folder, info = one
    report = folder.path / "report.json"
    return info.started, report.stat().st_mtime_ns if report.is_file() else 0, info.run


def _cases(folder: RunFolder, run: FinishedRun, most: int) -> list[RunCases]:
    # A ledger keeps no cases of larger runs, and both must count the same runs.
    return [cases_of(folder)] if run.records["total"] <= most else []


def _counted(runs: Sequence[RunCases], baselines: Sequence[RunCases]) -> list[DriftState]:
    """A baseline restarts its chain at its own run; without that run here, at the beginning."""
    ids = {run.run for run in runs}
    chains: dict[str, tuple[DriftRecord, str]] = {}
    here = {key_of(run) for run in runs}
    # Before all runs: a baseline from elsewhere is a reference here, and does not count as a run.
    for base in baselines:
        if base.run not in ids and key_of(base) in here and (record := approved(None, base)) is not None:
            chains[key_of(base)] = record, base.version
    for run in runs:
        key = key_of(run)
        record = counted(chains.pop(key, (None, ""))[0], run)
        # By the report, too: a retried run has answers that nobody approved.
        if any((base.run, base.report) == (run.run, run.report) for base in baselines):
            record = approved(record, run)
        if record is not None:
            chains[key] = record, run.version  # last, so that the latest chain comes first below
    return [state_of(record, version) for record, version in reversed(chains.values())]


def _replacements(runs: Sequence[FinishedRun]) -> list[Replacement]:
    """The replacements of models in ``runs``; both have the newest first."""
    # A run whose replies name no model says nothing about a change.
    named = [run for run in runs if run.served]
    changes = ((now.run, replaced_model(before.served, now.served)) for now, before in pairwise(named))
    return [Replacement(run, sentence) for run, sentence in changes if sentence]


_REPLACED_SHOWN = 5
"""Replacements that the text shows: a provider that alternates between two models has one in each run."""


def replaced_lines(replaced: Sequence[Replacement]) -> Iterator[str]:
    """A line for each of the newest replacements, in the order of the runs."""
    if (earlier := len(replaced) - _REPLACED_SHOWN) > 0:
        yield f"Another model began to serve {earlier:,} times before (--json lists them)."
    for each in reversed(replaced[:_REPLACED_SHOWN]):
        yield f"Since run {each.run}: {each.sentence[0].lower()}{each.sentence[1:]}"


# Drift as text: which runs, since when, how large, the evidence, and how to end the alert.


def drift_lines(states: Sequence[DriftState]) -> Iterator[str]:
    """A line for each measure of each chain, and how to end an alert.

    ``states`` are a history's chains. The lines may hold a terminal's escapes.
    """
    several = len(states) > 1
    for state in states:
        called = state.name or state.specification[:8]
        # Each version of the evaluator has its own chain, so the name alone may be ambiguous.
        if len({other.version for other in states if (other.name, other.specification) == _chain(state)}) > 1:
            called = f"{called} (version {state.version} of the evaluator)"
        whose = f"{called}: " if several or state.name else ""
        for name, measure in sorted(state.measures.items()):
            yield f"{whose}{name}: {_measure(state, measure)}"
    if any(state.drifting for state in states):
        yield (
            f"The alert ends when good runs bring the evidence below {CLEARED:,.0f} to 1. If the new level is right, "
            "approve it: evalq baseline set NAME RUN (with --broker, where a ledger counts)."
        )


def _chain(state: DriftState) -> tuple[str, str]:
    return state.name, state.specification


def _measure(state: DriftState, measure: MeasureState) -> str:
    reference = f"{'the approved run' if state.kind == 'baseline' else 'the first run'} {state.reference}"
    # An optional measure has no value in some runs.
    if not state.runs or measure == MeasureState():
        return f"Nothing to compare yet. The next run is compared with {reference}."
    runs = f"{state.runs:,} run{'' if state.runs == 1 else 's'} after {reference}."
    newest = "The newest run" if measure.run in ("", state.run) else "The newest run that has it"
    change = f"{newest}, {measure.run or state.run}, is {_change(measure.change)} all before it."
    return f"{_verdict(measure)} {runs} {change}"


def _verdict(measure: MeasureState) -> str:
    evidence = f"the evidence is {_evidence(measure.e)} to 1"
    if measure.since:
        return f"WORSE since run {measure.since}: {evidence}; evalq alerts at {PAGED:,.0f} to 1."
    if measure.worse:
        return (
            f"Looks worse since run {measure.worse}: {evidence}, over {WORSE:,.0f}; evalq alerts at {PAGED:,.0f} to 1."
        )
    return f"No drift: {evidence}; evalq alerts at {PAGED:,.0f} to 1."


def _change(share: float) -> str:
    # Not "above" or "below", since for some measures less is better.
    points = abs(100 * share)
    if points < 0.05:
        return "level with"
    return f"{points:.1f} points of 100 {'better' if share > 0 else 'worse'} than"


def _evidence(value: float) -> str:
    if value >= MOST_EVIDENCE * (1 - 1e-9):
        return f"{MOST_EVIDENCE:,.0f} or more"
    # Evidence below 1 to 1 is none.
    return f"{max(1.0, value):,.0f}"
