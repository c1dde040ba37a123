"""A snapshot of the ledger and its fleet as text, for status and watch, and findings on a deployment for doctor."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from evalq.evalcore.version import code_parts, code_version, differences
from evalq.evalcore.views.markdown import plural
from evalq.workers.processes.identity import host

if TYPE_CHECKING:
    from evalq.workers.monitor import ServerFacts, Snapshot, WorkerStatus


# Durations.


def format_duration(seconds: float) -> str:
    """A duration: "45 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"."""
    whole = round(seconds)
    for size, unit, part, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


LONG_SECONDS = 45.0
"""Live calls that take longer are listed."""


class Fleet(msgspec.Struct, frozen=True):
    """The fleet: waiting messages, the age of the oldest pending chunk in seconds, and workers."""

    queued: int
    oldest: float
    workers: int
    consuming: int
    stuck: tuple[str, ...]
    unhealthy: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.queued:,} queued"]
        if self.oldest >= 1:
            parts.append(f"the oldest for {format_duration(self.oldest)}")
        parts.append(f"{self.consuming} of {self.workers} workers consuming" if self.workers else "no worker yet")
        return ", ".join([*parts, *self.unhealthy])


def fleet_of(snapshot: Snapshot) -> Fleet:
    """A snapshot as one line."""
    stuck = tuple(worker.name for worker in snapshot.workers if worker.state == "stuck")
    alive = len(snapshot.workers)
    unhealthy = tuple(dict.fromkeys(f"{worker.host} cannot load {name}" for worker, name, _ in snapshot.unhealthy))
    return Fleet(sum(snapshot.queues.values()), snapshot.oldest_age, alive, alive - len(stuck), stuck, unhealthy)


def rows(
    snapshot: Snapshot, codes: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> Iterator[tuple[str, str]]:
    """(name, text) rows of everything that the exporter shows of work and fleet.

    ``codes`` has the parts of the code versions on the server: versions other than this one get a row.
    """
    fleet = fleet_of(snapshot)
    for queue, messages in snapshot.queues.items():
        yield "queue", f"{queue}: {messages:,} waiting, {plural(len(snapshot.serving(queue)), 'worker')}"
    yield "oldest", format_duration(snapshot.oldest_age) if snapshot.oldest_age else "nothing is pending"
    if snapshot.last_commit:
        yield "commit", f"the last one {format_duration(max(0.0, snapshot.now - snapshot.last_commit))} ago"
    yield "workers", f"{fleet.workers} alive, {fleet.consuming} consuming, {len(fleet.stuck)} stuck"
    for code in sorted(codes.keys() - {code_version()}):
        yield "code", f"{code} differs from this one in: {', '.join(differences(codes[code], code_parts()))}"
    for worker in filter(served_by, snapshot.workers):
        yield "serves", f"{worker.name} on {worker.host}: {served_by(worker)}"
    for name in fleet.stuck:
        yield "stuck", name
    for worker, evaluator, reason in snapshot.unhealthy:
        yield "unhealthy", f"{worker.name} on {worker.host} cannot load {evaluator}: {reason}"
    for run in snapshot.unserved:
        yield "unserved", f"{run.run}: for {format_duration(run.seconds)} no living worker can compute it"
    if snapshot.sweeps or snapshot.callers:
        callers = plural(len(snapshot.callers), "process that calls", "processes that call")
        yield "calls", f"{plural(len(snapshot.sweeps), 'sweep')} with calls to make, {callers}"
    for sweep in snapshot.uncalled:
        yield "waiting", f"{sweep.run}: no process of code {sweep.code} calls {sweep.target!r}"
    for trouble in snapshot.troubles:
        yield "trouble", trouble
    for slow in snapshot.slow(LONG_SECONDS):
        yield "slow", slow
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(snapshot.runs.items()))
    yield "runs", states or "none"
    counts = ("records", "committed"), ("dead", "dead"), ("duplicates", "duplicates"), ("divergent", "divergent")
    parts = [f"{snapshot.total(name):,} {word}" for name, word in counts]
    yield "records", ", ".join([*parts, f"{snapshot.total('reconciled'):,} chunks published again"])


def served_by(worker: WorkerStatus) -> str:
    """The evaluators that a worker serves, those of one package together; empty if it does not report them."""
    packages: dict[str, list[str]] = {}
    for name, package in sorted(worker.evaluators.items()):
        if name not in worker.unhealthy:
            packages.setdefault(package, []).append(name)
    return "; ".join(f"{', '.join(names)} ({package})" for package, names in packages.items())


# Findings on a deployment, from a snapshot of its ledger, with advice.

Finding = tuple[str, str]
"""(ok, note or wrong; the finding in a sentence)."""
Codes = Mapping[str, Mapping[str, str]]
"""{code version: {part: its version}}."""

OLDEST_SERVER = (7, 0)
"""Read-only scripts, which the exporter needs, came with Redis 7.0; every Valkey has them."""
CLOCK_SECONDS = 2.0
FULL = 0.9
WAITING_SECONDS = 600.0


def diagnose(snapshot: Snapshot, code: str, here: float, codes: Codes = MappingProxyType({})) -> Iterator[Finding]:
    """Findings for an evalq of version ``code`` with the local time ``here`` (seconds since 1970).

    ``codes`` has the parts of the code versions on the server, as far as known.
    """
    yield from _server(snapshot.server)
    yield from _clocks(snapshot, here)
    yield from _worker_findings(snapshot, code)
    yield from _codes(codes, code)
    yield from _queues(snapshot, code)
    yield from _sweeps(snapshot)
    yield from _roots(snapshot, code)
    yield from _open_work(snapshot)


def _server(server: ServerFacts) -> Iterator[Finding]:
    parts = tuple(int(part) for part in server.version.split(".")[:2] if part.isdigit())
    if parts < OLDEST_SERVER:
        yield "wrong", f"{server.name} {server.version} is too old: evalq needs Redis 7.0 or any Valkey"
    else:
        yield "ok", f"{server.name} {server.version}"
    if server.primary:
        how = "name the primary, or promote this one"
        yield "wrong", f"the server is a replica of {server.primary}, and no run can be written there: {how}"
    if server.may_evict:
        yield "wrong", f"maxmemory-policy is {server.policy}: the server may drop answers; set it to noeviction"
    if server.evicted:
        yield "wrong", f"the server has dropped {server.evicted:,} keys to make room: runs may have lost answers"
    if server.memory_limit and server.memory > FULL * server.memory_limit:
        share = server.memory / server.memory_limit
        yield "wrong", f"the server's memory is {share:.0%} full: raise maxmemory, or remove old runs with evalq prune"
    if not server.memory_limit:
        yield "note", "no maxmemory: the server takes what it wants; set a limit below the machine's memory"
    if not server.aof:
        yield "note", "no append-only file: a server crash loses what no run folder holds (it is computed again)"
    if server.aof_failed:
        yield "wrong", "the append-only file cannot be written: see the server's log and its disk"
    if server.rdb_failed:
        yield "wrong", "the last snapshot failed and the server may refuse writes: see its log"


def _clocks(snapshot: Snapshot, here: float) -> Iterator[Finding]:
    """Leases and rate limits use the server's clock; times that people read use other clocks."""
    off = [("this machine", here - snapshot.now)] + [(worker.name, worker.clock_ahead) for worker in snapshot.workers]
    wrong = [(name, ahead) for name, ahead in off if abs(ahead) > CLOCK_SECONDS]
    for name, ahead in wrong:
        side = "ahead of" if ahead > 0 else "behind"
        yield (
            "note",
            f"the clock of {name} is {format_duration(abs(ahead))} {side} the server's: times do not compare; use NTP",
        )
    if not wrong:
        yield "ok", "clocks agree"


def _worker_findings(snapshot: Snapshot, code: str) -> Iterator[Finding]:
    mine = [worker for worker in snapshot.workers if worker.code == code]
    others = sorted({worker.code for worker in snapshot.workers} - {code})
    yield (
        "ok" if mine else "wrong",
        f"{plural(len(mine), 'worker')} of this code, {len(snapshot.workers) - len(mine)} of another version"
        + ("" if mine or not others else f" ({', '.join(others)}), which take no run of this one")
        + ("" if mine else "; start one: evalq worker --broker URL"),
    )
    for worker in filter(served_by, mine):
        yield "ok", f"worker {worker.name} on {worker.host} serves {served_by(worker)}"
    for worker in snapshot.workers:
        if worker.state == "stuck":
            how = "its heartbeat goes on and its pool takes nothing; see its log, and restart it"
            yield (
                "wrong",
                f"worker {worker.name} took nothing for {format_duration(worker.idle)} beside a queue with work: {how}",
            )
    for worker, evaluator, reason in snapshot.unhealthy:
        how = "it serves no run of it; fix its installation, and restart it"
        yield "wrong", f"worker {worker.name} on {worker.host} cannot load {evaluator}: {reason}: {how}"


def _codes(codes: Codes, code: str) -> Iterator[Finding]:
    for other, parts in codes.items():
        if other != code:
            yield "note", f"code {other} differs from this one in: {', '.join(differences(parts, code_parts()))}"


def _queues(snapshot: Snapshot, code: str) -> Iterator[Finding]:
    for queue, messages in snapshot.queues.items():
        served = snapshot.serving(queue)
        if served or not messages:
            yield "ok", f"queue {queue}: {messages:,} waiting, {plural(len(served), 'worker')}"
        elif queue.endswith(f".{code}"):
            yield "wrong", f"queue {queue}: {messages:,} waiting and no worker: start one: evalq worker --broker URL"
        else:
            how = "start a worker of that version, or end its runs with evalq cancel"
            yield "wrong", f"queue {queue}: {messages:,} waiting, and no worker of that code: {how}"


def _sweeps(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.sweeps or snapshot.callers:
        callers = plural(len(snapshot.callers), "process that calls", "processes that call")
        yield "ok", f"{callers}, {plural(len(snapshot.sweeps), 'sweep')} with calls to make"
    for trouble in snapshot.troubles:
        yield "wrong", trouble
    for slow in snapshot.slow(LONG_SECONDS):
        yield "note", slow
    for sweep in snapshot.uncalled:
        how = "start one: evalq worker --calls N --targets FILE"
        yield "wrong", f"sweep {sweep.run} waits: no process of code {sweep.code} calls {sweep.target!r}: {how}"


def _roots(snapshot: Snapshot, code: str) -> Iterator[Finding]:
    """Check only workers of this machine: elsewhere the same path may be another folder."""
    here = Path.cwd().resolve()
    for worker in snapshot.workers:
        if worker.code != code or worker.host != host():
            continue
        roots = [Path(root) for root in worker.roots.split(os.pathsep) if root]
        if not any(here.is_relative_to(root) for root in roots):
            named = ", ".join(map(str, roots)) or "no folder"
            how = f"inputs below {here} reach it through the ledger; give it --root to have them read"
            yield "note", f"worker {worker.name} reads {named}: {how}"


def _open_work(snapshot: Snapshot) -> Iterator[Finding]:
    for run in snapshot.unserved:
        how = f"see evalq status {run.run} --broker URL"
        yield (
            "wrong",
            f"run {run.run} has waited for {format_duration(run.seconds)}: no living worker can compute it: {how}",
        )
    if damaged := snapshot.runs.get("damaged"):
        runs = plural(damaged, "run is", "runs are")
        yield "wrong", f"{runs} damaged in the ledger: evalq list --broker URL names the keys to delete"
    if snapshot.oldest_age > WAITING_SECONDS:
        yield (
            "note",
            f"a chunk has been pending for {format_duration(snapshot.oldest_age)}: see evalq list --broker URL",
        )
    for name, what in (
        (
            "divergent",
            "answers differed from the first of their chunk: an evaluator, or a machine, is not deterministic",
        ),
        ("dead", "records have no result because they killed their process: try them with evalq retry RUN --errors"),
    ):
        if count := snapshot.total(name):
            yield "note", f"{count:,} {what}"
