"""Check the targets that judge a sweep's outputs: known, priced, and with the same settings for all replies."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import msgspec
import redis

from evalq.evalcore.contract.evaluator import Stage
from evalq.evalcore.errors import UsageError
from evalq.evalcore.version import code_version
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.folder.files import OUTPUTS
from evalq.producer.monitor.progress import Reporter
from evalq.producer.run.backend import Backend
from evalq.producer.sweep.callers import Callers, CallingProcesses, Warnings
from evalq.producer.sweep.direct import LocalTargets
from evalq.producer.sweep.judge_stage import JudgeSweep, TargetSettings, judge_sweeps
from evalq.producer.sweep.sweep import Sweep
from evalq.workers.callers.choices import known_facts
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.sweep_model import SweepHeader, differing_settings
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.targets.config import choose
from evalq.workers.targets.target import config_digest, shown_settings
from evalq.workers.targets.variable import canonical_name

_POLL_SECONDS = 0.2


def refuse_uncalled(sweep: Sweep, backend: Backend, shared: Backend) -> None:
    """Raise UsageError if a judge of the outputs cannot be called, before anything is paid.

    For a fleet without processes, nothing is known yet, and nothing is refused.
    """
    if sweep.stage is None:
        return
    callers, before = Callers(backend, shared), judge_sweeps(sweep.folder)
    for target in _targets(sweep.stage):
        facts = callers.facts(target, priced=bool(sweep.live.max_cost))
        if facts:
            asked = [each for each in before if each.header.target == target]
            _one_of({each.config for each in facts}, target, asked, _settled(callers, target).parts)


def settle_targets(
    sweep: Sweep, backends: tuple[Backend | LocalTargets, Backend], reporter: Reporter, targets: Sequence[str]
) -> dict[str, TargetSettings]:
    """{target: the settings under which evalq asks it}; if it has replies, those of the replies.

    Waits until a process can call each target. ``backends`` are the place of the calls, and the options to name for a
    resume. Raises UsageError if a target no longer has these settings, or has several, and errors of waiting for a
    server.
    """
    where, backend = backends
    if isinstance(where, LocalTargets):
        return _settle_alone(sweep, Callers(backend, backend), targets)
    shared = where
    callers, found = Callers(backend, shared), {}
    retry = ServerRetry(shared.settings, reporter, shared.check)
    with retry.reporting(), contextlib.closing(retry.client()) as client:
        ledger, before = SweepLedger(client, shared.settings), judge_sweeps(sweep.folder)
        for target in targets:
            settled = _settled(callers, target)
            configs = {settled.config} if settled.config else _awaited(sweep, target, client, retry, reporter)
            asked = [each for each in before if each.header.target == target]
            for each in asked:
                if each.settings not in configs:
                    # Before deciding on the settings: replies that wait in the ledger count, too.
                    retry(partial(_collect, each, ledger))
            found[target] = msgspec.structs.replace(settled, config=_one_of(configs, target, asked, settled.parts))
            for each in asked:
                if each.settings != found[target].config:
                    retry(partial(_forget, each, ledger))
    return found


def _settle_alone(sweep: Sweep, callers: Callers, targets: Sequence[str]) -> dict[str, TargetSettings]:
    """`settle_targets` for a command that makes all calls itself."""
    found, before = {}, judge_sweeps(sweep.folder)
    for target in targets:
        settled = _settled(callers, target)
        asked = [each for each in before if each.header.target == target]
        found[target] = msgspec.structs.replace(settled, config=_one_of({settled.config}, target, asked, settled.parts))
    return found


def _collect(before: JudgeSweep, ledger: SweepLedger) -> None:
    """Record the replies that the last driver was killed before collecting."""
    before.recorded.add(list(filter(before.header.has_call, ledger.waiting(before.run))))


def _forget(before: JudgeSweep, ledger: SweepLedger) -> None:
    """Remove an earlier judge sweep from the ledger, unless another producer drives it."""
    look = ledger.poll(before.run)
    if look is None:
        return
    mine = look.driver in ("", before.last_driver.token())
    if mine or look.driver_silent > ledger.settings.driver_seconds:
        ledger.delete(before.run)


def _one_of(configs: Collection[str], target: str, before: Sequence[JudgeSweep], parts: Mapping[str, str]) -> str:
    """The settings' digest among ``configs`` under which evalq asks ``target``.

    Raises UsageError if there are several, or none equals that of the earlier replies (``before``). ``parts`` are the
    digests of the single settings now, from which the message names those that changed.
    """
    replied = [each for each in before if each.replies]
    # Settings without a reply may change: it must be possible to fix a misspelt model.
    if not replied:
        if len(configs) > 1:
            raise UsageError(
                f"processes that call have different settings of {target!r} (digests {', '.join(sorted(configs))}): "
                "replies of two settings are never counted together; give all of them the same targets file"
            )
        return next(iter(configs))
    then = replied[0].settled
    if then.config in configs:
        return then.config
    folder, count = replied[0].folder.path, sum(each.replies for each in replied)
    replies = "1 reply" if count == 1 else f"{count:,} replies"
    now = differing_settings(then.parts, parts) or f"digest {then.config} then, {', '.join(sorted(configs))} now"
    reuse = (
        f": --reuse {shlex.quote(str(folder))} takes the outputs, and asks {target!r} anew"
        if (folder / OUTPUTS).is_file()
        else ""
    )
    raise UsageError(
        f"{folder}: {target!r} has other settings than when it gave {replies} ({now}), and replies of two "
        f"settings are never counted together: put them back and resume, or begin another run{reuse}"
    )


def _targets(stage: Stage) -> list[str]:
    return sorted({canonical_name(target) for target, _ in stage.count_questions()})


def _settled(callers: Callers, target: str) -> TargetSettings:
    """The target's settings in this command's targets file; an empty digest if it is not there."""
    named = choose(callers.here, target) if callers.here else None
    return TargetSettings("") if named is None else TargetSettings(config_digest(named), shown_settings(named))


def _awaited(sweep: Sweep, target: str, client: redis.Redis, retry: ServerRetry, reporter: Reporter) -> set[str]:
    """Wait for processes that can call the target; return the digests of its settings there. Raises UsageError."""
    warnings, heartbeats = Warnings(), Heartbeats(client)
    header = SweepHeader(sweep.run, target, code_version(), 1, 1)
    served = CallingProcesses(heartbeats, header, warnings, priced=bool(sweep.live.max_cost))
    while True:
        if retry(served.config) is not None:
            callers = [one for one in retry(heartbeats.callers).values() if one.code == header.code]
            found = (known_facts(caller.targets, target) for caller in callers)
            if configs := {facts.config for facts in found if facts is not None}:
                return configs
        warnings.show(reporter, target, here=False)
        time.sleep(_POLL_SECONDS)
