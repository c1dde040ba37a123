"""What is wrong with a deployment, found in one snapshot of its ledger: a finding each, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from evalq.evalcore.version import code_parts, differences
from evalq.producer.monitor.fleet import LONG_SECONDS, served_by
from evalq.producer.monitor.spans import spell
from evalq.workers.processes.identity import host

if TYPE_CHECKING:
    from evalq.workers.monitor import ServerFacts, Snapshot

__all__ = ["Finding", "diagnose"]

Finding = tuple[str, str]
"""(ok, note or wrong; the finding in a sentence)."""
Codes = Mapping[str, Mapping[str, str]]
"""{code version: {part: its version}}."""

OLDEST_SERVER = (7, 0)
"""Scripts that only read, as the exporter's, came with Redis 7.0; every Valkey has them."""
CLOCK_SECONDS = 2.0
FULL = 0.9
WAITING_SECONDS = 600.0


def diagnose(snapshot: Snapshot, code: str, here: float, codes: Codes = MappingProxyType({})) -> Iterator[Finding]:
    """Findings for somebody whose evalq is of ``code`` and whose clock says ``here`` (seconds since 1970).

    ``codes`` is what the code versions at the server are made of, as far as it is known.
    """
    yield from _server(snapshot.server)
    yield from _clocks(snapshot, here)
    yield from _workers(snapshot, code)
    yield from _codes(codes, code)
    yield from _queues(snapshot, code)
    yield from _sweeps(snapshot)
    yield from _roots(snapshot, code)
    yield from _work(snapshot)


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
    """Leases and pacing go by the server's clock alone; what people read goes by their own."""
    off = [("this machine", here - snapshot.now)] + [(worker.name, worker.clock_ahead) for worker in snapshot.workers]
    wrong = [(name, ahead) for name, ahead in off if abs(ahead) > CLOCK_SECONDS]
    for name, ahead in wrong:
        side = "ahead of" if ahead > 0 else "behind"
        yield "note", f"the clock of {name} is {spell(abs(ahead))} {side} the server's: times do not compare; use NTP"
    if not wrong:
        yield "ok", "clocks agree"


def _workers(snapshot: Snapshot, code: str) -> Iterator[Finding]:
    mine = [worker for worker in snapshot.workers if worker.code == code]
    others = sorted({worker.code for worker in snapshot.workers} - {code})
    yield (
        "ok" if mine else "wrong",
        f"{len(mine)} worker(s) of this code, {len(snapshot.workers) - len(mine)} of other code"
        + ("" if mine or not others else f" ({', '.join(others)}), which take no run of this one")
        + ("" if mine else "; start one: evalq worker --broker URL"),
    )
    for worker in filter(served_by, mine):
        yield "ok", f"worker {worker.name} on {worker.host} serves {served_by(worker)}"
    for worker in snapshot.workers:
        if worker.state == "stuck":
            how = "its heartbeat goes on and its pool takes nothing; see its log, and restart it"
            yield "wrong", f"worker {worker.name} took nothing for {spell(worker.idle)} beside a queue with work: {how}"
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
            yield "ok", f"queue {queue}: {messages:,} waiting, {len(served)} worker(s)"
        elif queue.endswith(f".{code}"):
            yield "wrong", f"queue {queue}: {messages:,} waiting and no worker: start one: evalq worker --broker URL"
        else:
            how = "start a worker of that version, or end its runs with evalq cancel"
            yield "wrong", f"queue {queue}: {messages:,} waiting, and no worker of that code: {how}"


def _sweeps(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.sweeps or snapshot.callers:
        yield "ok", f"{len(snapshot.callers)} process(es) that call, {len(snapshot.sweeps)} sweep(s) with calls to make"
    for trouble in snapshot.troubles:
        yield "wrong", trouble
    for slow in snapshot.slow(LONG_SECONDS):
        yield "note", slow
    for sweep in snapshot.uncalled:
        how = "start one: evalq worker --calls N --targets FILE"
        yield "wrong", f"sweep {sweep.run} waits: no process of code {sweep.code} calls {sweep.target!r}: {how}"


def _roots(snapshot: Snapshot, code: str) -> Iterator[Finding]:
    """Only workers of this machine can be asked about: the same path elsewhere may be another folder."""
    here = Path.cwd().resolve()
    for worker in snapshot.workers:
        if worker.code != code or worker.host != host():
            continue
        roots = [Path(root) for root in worker.roots.split(os.pathsep) if root]
        if not any(here.is_relative_to(root) for root in roots):
            named = ", ".join(map(str, roots)) or "no folder"
            how = f"inputs below {here} reach it through the ledger; give it --root to have them read"
            yield "note", f"worker {worker.name} reads {named}: {how}"


def _work(snapshot: Snapshot) -> Iterator[Finding]:
    for run in snapshot.unserved:
        how = f"see evalq status {run.run} --broker URL"
        yield "wrong", f"run {run.run} has waited for {spell(run.seconds)}: no living worker can compute it: {how}"
    if damaged := snapshot.runs.get("damaged"):
        yield "wrong", f"{damaged:,} run(s) are damaged in the ledger: evalq list --broker URL names the keys to delete"
    if snapshot.oldest_age > WAITING_SECONDS:
        yield "note", f"a chunk has been pending for {spell(snapshot.oldest_age)}: see evalq list --broker URL"
    for name, what in (
        (
            "divergent",
            "answers differed from the first of their chunk: an evaluator, or a machine, is not deterministic",
        ),
        ("dead", "records have no result because they killed their process: try them with evalq retry RUN --errors"),
    ):
        if count := snapshot.total(name):
            yield "note", f"{count:,} {what}"
