"""Series from a snapshot: the ledger's names become labels, up to a limit for each metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from evalq.evalcore.compare.drift import MeasureState
from evalq.evalcore.contract import plugins
from evalq.evalcore.views.metrics import Metric
from evalq.workers.ledger.driver_steps import OTHER
from evalq.workers.ledger.heartbeats import FollowerFacts
from evalq.workers.ledger.sweep_model import SECONDS, SweepHeader
from evalq.workers.monitor import Newest, Snapshot

Together = Literal["sum", "mean", "max"]
"""How series beyond the cap become one: counts are added, states show the highest, other values are averaged, since a
sum of shares means nothing."""

Series = tuple[tuple[str, ...], float]
"""Label values in the order of the family's labels, and the value."""

Histogram = tuple[tuple[str, ...], list[tuple[str, float]], float | None]
"""Label values, (upper bound, how many up to it) rising, and the sum where it is known."""

STATES = ("open", "done", "paused", "failed", "cancelled")
"""States of runs in the ledger."""

_BOUNDS = (*(f"{bound:g}" for bound in SECONDS), "+Inf")
# Counters of calls other than outcomes: failures by kind, tokens, times and cost.
_BY_KIND = ("failed", "tokens", "seconds", "cost")


def folded(rows: list[Series], most: int, together: Together = "sum") -> tuple[list[Series], int]:
    """The first ``most`` rows and one for the others, whose labels are all OTHER; and the number of these others."""
    if len(rows) <= most:
        return rows, 0
    values = [value for _, value in rows[most:]]
    value = max(values) if together == "max" else sum(values) / (len(values) if together == "mean" else 1)
    return [*rows[:most], ((OTHER,) * len(rows[0][0]), value)], len(values)


def newest_series(metric: Metric, histories: Iterable[Newest]) -> list[Series]:
    """A metric's values in the newest run of each history; the history that changed last comes first."""
    return [
        ((entry.key.suite, entry.key.target, *labels), value)
        for entry in (history.entry for history in histories)
        for name, labels, value in entry.samples
        if name == metric.name and len(labels) == len(metric.labels)
    ]


def recent_series(metric: Metric, histories: Iterable[Newest]) -> list[Series]:
    """A metric's values in the last runs of each history, the newest at position 1."""
    return [
        ((history.entry.key.suite, history.entry.key.target, *labels, str(position)), value)
        for history in histories
        for position, run in enumerate(history.recent[: metric.recent], 1)
        for name, labels, value in run
        if name == metric.name and len(labels) == len(metric.labels)
    ]


def one(value: float) -> list[Series]:
    """A metric without labels."""
    return [((), float(value))]


def by_name(counts: dict[str, int]) -> list[Series]:
    """A metric with one label, by its values."""
    return [((name,), float(count)) for name, count in sorted(counts.items())]


def totals(name: str, tails: Iterable[str] = ()) -> Callable[[Snapshot], list[Series]]:
    """A counter stored as "<name> <evaluator> <suite>[ <tail>]"; only a suite may have blanks.

    A known suite without the event gets 0, so that the first event is an increase.
    """

    def read(snapshot: Snapshot) -> list[Series]:
        suites = [_owner(field) for field, _ in _starting(snapshot.totals, "submitted")]
        rows: dict[tuple[str, ...], float] = dict.fromkeys(suites, 0.0)
        if tails:
            rows = {(*owner, tail): 0.0 for owner in suites for tail in tails}
        for field, value in _starting(snapshot.totals, name):
            owner, _, tail = field.rpartition(" ") if tails else (field, "", "")
            rows[(*_owner(owner), tail) if tails else _owner(field)] = float(value)
        return sorted(rows.items())

    return read


def _owner(field: str) -> tuple[str, str]:
    """(evaluator, suite) of "<name> <evaluator> <suite>"."""
    _, evaluator, suite = field.split(" ", 2)
    return evaluator, suite


def calls_by_kind(name: str) -> Callable[[Snapshot], list[Series]]:
    """A counter of live calls stored as "<name> <target> <kind>"."""

    def read(snapshot: Snapshot) -> list[Series]:
        rows = [(*field.partition(" ")[2].rpartition(" "), value) for field, value in _starting(snapshot.calls, name)]
        return sorted(((target, kind), float(value)) for target, _, kind, value in rows)

    return read


def _starting(counts: dict[str, int], name: str) -> Iterator[tuple[str, int]]:
    return ((field, value) for field, value in counts.items() if field.startswith(f"{name} "))


def calls(snapshot: Snapshot) -> list[Series]:
    """Live calls by outcome: counters stored as "<outcome> <target>", and failures of any kind."""
    rows: dict[tuple[str, ...], float] = {}
    for field, value in snapshot.calls.items():
        name, _, rest = field.partition(" ")
        if name not in _BY_KIND:
            rows[rest, name] = rows.get((rest, name), 0.0) + value
    for (target, _), failed in calls_by_kind("failed")(snapshot):
        rows[target, "failed"] = rows.get((target, "failed"), 0.0) + failed
    return sorted(rows.items())


def call_cost(snapshot: Snapshot) -> list[Series]:
    """The cost of live calls, stored as "cost <target>" in millionths."""
    costs = ((field.partition(" ")[2], value) for field, value in _starting(snapshot.calls, "cost"))
    return sorted(((target,), value / 1_000_000) for target, value in costs)


def times(name: str, of: Literal["totals", "calls"] = "totals") -> Callable[[Snapshot], list[Histogram]]:
    """A histogram stored as "<name> <label> <upper bound>" and "<name> <label> sum" in microseconds."""

    def read(snapshot: Snapshot) -> list[Histogram]:
        by_label: dict[str, dict[str, int]] = {}
        for field, value in _starting(getattr(snapshot, of), name):
            label, _, bound = field.partition(" ")[2].rpartition(" ")
            by_label.setdefault(label, {})[bound] = value
        return [((label,), *_cumulative(bounds)) for label, bounds in sorted(by_label.items())]

    return read


def _cumulative(bounds: dict[str, int]) -> tuple[list[tuple[str, float]], float | None]:
    total = bounds.pop("sum", None)
    buckets, count = [], 0
    # The ledger counts each time in one bucket, Prometheus in all from there on. Keep bounds that only another version
    # of evalq has.
    for bound in sorted({*bounds, *_BOUNDS}, key=float):
        count += bounds.get(bound, 0)
        buckets.append((bound, float(count)))
    return buckets, None if total is None else total / 1_000_000


def states(snapshot: Snapshot, *states: str) -> list[Series]:
    """How many workers are in one of these states."""
    return one(sum(worker.state in states for worker in snapshot.workers))


def unhealthy(snapshot: Snapshot) -> list[Series]:
    """The number of workers that cannot load each evaluator; 0 if all can, so that a gap is not a recovery."""
    counts = dict.fromkeys(plugins.names(), 0)
    for _, evaluator, _ in snapshot.unhealthy:
        counts[evaluator] = counts.get(evaluator, 0) + 1
    return by_name(counts)


def by_target(sweeps: Callable[[Snapshot], list[SweepHeader]]) -> Callable[[Snapshot], list[Series]]:
    """The number of sweeps for each target that is swept or can be called."""

    def read(snapshot: Snapshot) -> list[Series]:
        targets = {target for caller in snapshot.callers for target in caller.targets}
        counts = dict.fromkeys(targets | {sweep.target for sweep in snapshot.sweeps}, 0)
        for sweep in sweeps(snapshot):
            counts[sweep.target] += 1
        return by_name(counts)

    return read


def of_runs(snapshot: Snapshot, value: Callable[[Newest], float]) -> list[Series]:
    """A value of the newest run of each history."""
    keys = [(history, history.entry.key) for history in snapshot.histories]
    return [((key.evaluator, key.suite, key.target), value(history)) for history, key in keys]


def outcomes(snapshot: Snapshot) -> list[Series]:
    """Records of the newest run of each history, by outcome."""
    return [
        ((entry.key.evaluator, entry.key.suite, entry.key.target, outcome), float(count))
        for entry in (history.entry for history in snapshot.histories)
        for outcome, count in entry.records.items()
        if outcome != "total"
    ]


def drift(value: Callable[[MeasureState], float]) -> Callable[[Snapshot], list[Series]]:
    """A value of each suite and measure; if it has several chains, of the one with most evidence."""

    def read(snapshot: Snapshot) -> list[Series]:
        worst: dict[tuple[str, ...], MeasureState] = {}
        for history in snapshot.histories:
            key = history.entry.key
            for state in history.drift:
                for name, measure in state.measures.items():
                    of = (key.evaluator, key.suite, key.target, name)
                    worst[of] = max(
                        worst.get(of, measure), measure, key=lambda each: (bool(each.since), bool(each.worse), each.e)
                    )
        return [(of, value(measure)) for of, measure in worst.items()]

    return read


def followed(
    value: Callable[[FollowerFacts], Mapping[str, float | None] | float | None], together: Literal["sum", "max"] = "sum"
) -> Callable[[Snapshot], list[Series]]:
    """A value of the processes that follow traces, by evaluator and suite; or several, by one more label."""

    def read(snapshot: Snapshot) -> list[Series]:
        rows: dict[tuple[str, ...], list[float]] = {}
        for follower in snapshot.followers:
            found = value(follower)
            for name, each in found.items() if isinstance(found, Mapping) else [("", found)]:
                if each is not None:
                    rows.setdefault((follower.evaluator, follower.suite, *filter(None, (name,))), []).append(each)
        return sorted((labels, max(values) if together == "max" else sum(values)) for labels, values in rows.items())

    return read


def pass_age(snapshot: Snapshot) -> list[Series]:
    """The seconds since the last pass of each process that follows traces and is to make another."""
    return followed(lambda one: max(0.0, snapshot.now - one.at) if one.every else None, "max")(snapshot)


def newest_runs(snapshot: Snapshot) -> dict[tuple[str, str], tuple[str, float]]:
    """{(evaluator, suite): (run, when it ended)} of the newest finished run of each."""
    ended: dict[tuple[str, str], tuple[str, float]] = {}
    for entry in (history.entry for history in snapshot.histories):
        of = (entry.key.evaluator, entry.key.suite)
        ended[of] = max(ended.get(of, (entry.run, entry.ended)), (entry.run, entry.ended), key=lambda one: one[1])
    return ended
