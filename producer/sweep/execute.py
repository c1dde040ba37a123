"""Carry out a sweep in its folder: first the calls, then the evaluation of the recorded outputs."""

from __future__ import annotations

import contextlib
import hashlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator, Request, live_calls
from evalq.evalcore.errors import Cancelled, ConfigError, EvalqError, UsageError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.canonical import Json, digest
from evalq.producer.driving.at_once import calls_at_once
from evalq.producer.driving.interrupts import Interrupts
from evalq.producer.folder.files import ASKED, HEAD, OUTPUTS, PROMPTS
from evalq.producer.folder.job import Job
from evalq.producer.folder.own_runs import note_targets, targets_of
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.monitor.progress import Reporter
from evalq.producer.run.backend import (
    Backend,
    hold_folder,
    note_state,
    raise_interrupted,
    refuse_ended,
    refuse_foreign_paths,
    resumable,
    shared_backend,
)
from evalq.producer.run.execute import carry_out_here
from evalq.producer.sweep.direct import LocalTargets, calls_alone
from evalq.producer.sweep.head import prompts_digest, read_head
from evalq.producer.sweep.options import SweepOptions
from evalq.producer.sweep.sweep import Sweep, read_prompts

if TYPE_CHECKING:
    from evalq.producer.sweep.judge_stage import JudgeSweep


def carry_out_sweep(sweep: Sweep, backend: Backend, reporter: Reporter) -> tuple[Job, dict[str, Json]]:
    """Call, record and evaluate; returns the evaluation's job and its report.

    Raises the errors of driving a sweep and a job. The folder can be resumed after any of them except faulty input.
    """
    with hold_folder(sweep.folder, backend) as interrupts:
        return _carry_out_here(sweep, backend, reporter, interrupts)


def resume_sweep(
    folder: RunFolder,
    backend: Backend,
    reporter: Reporter,
    budgets: tuple[int | None, float | None] = (None, None),
) -> tuple[Sweep, Job, dict[str, Json]]:
    """`carry_out_sweep` for the unfinished sweep in ``folder``, with new ``budgets`` (calls, cost) if given.

    The folder is read after it is locked. Raises AlreadyRunning, the errors of `Sweep.load`, and UsageError for a run
    that is over.
    """
    with hold_folder(folder, backend) as interrupts:
        _refuse_over(folder)
        _refuse_unnamed(folder, backend)
        sweep, backend = _loaded(folder), with_targets(backend, folder)
        sweep.budgeted(*budgets)
        reporter.event("launch", run=sweep.run, folder=str(folder.path))
        return sweep, *_carry_out_here(sweep, backend, reporter, interrupts)


def _loaded(folder: RunFolder) -> Sweep:
    """`Sweep.load`; if it refuses the sweep, first write the outputs file that its message names, if it is missing."""
    try:
        return Sweep.load(folder)
    except ConfigError:
        # Report only the error of loading.
        with contextlib.suppress(EvalqError, OSError):
            sweep = Sweep.asked_in(folder, same=False)
            if sweep is not None and sweep.recorded.count and not sweep.outputs.exists():
                sweep.write_outputs()
        raise


def _refuse_unnamed(folder: RunFolder, backend: Backend) -> None:
    """Raise UsageError if the calls go through a server and none is named.

    The server may hold paid answers, and its processes may still call. Once all answers are collected, the folder is
    enough.
    """
    info = folder.info()
    if info.server and not backend.settings.broker and info.state not in ("done", "retrying"):
        raise UsageError(
            f"{folder.path}: its calls are made through a server, which may have answers that are not here yet; "
            f"name it: evalq resume {folder.named(info.server)} (or another, where that one is gone for good)"
        )


def _refuse_over(folder: RunFolder) -> None:
    try:
        refuse_ended(folder)
    except Cancelled as error:
        outputs = folder.path / OUTPUTS
        kept = f"; what it recorded can be evaluated: --outputs {shlex.quote(str(outputs))}" if outputs.exists() else ""
        raise Cancelled(f"{error}{kept}") from None


def _carry_out_here(
    sweep: Sweep, backend: Backend, reporter: Reporter, interrupts: Interrupts
) -> tuple[Job, dict[str, Json]]:
    """`carry_out_sweep` for a folder that is already locked."""
    try:
        # Before the first call, so that a resume after a kill finds it.
        _note_targets(backend, sweep.folder)
        alone = calls_alone(sweep, backend)
        with shared_backend(backend, _roots(sweep), sweep.evaluator.name, reporter=reporter, calls=not alone) as shared:
            where = LocalTargets(backend) if alone else shared
            with calls_at_once():
                # Import the driver while the processes started here come up.
                _make_calls(sweep, where, backend, reporter, interrupts)
            if not alone:
                _forget_evaluation(sweep, shared, backend, reporter)
            job = sweep.job()
            report = carry_out_here(job, shared, reporter, backend)
            # Only after the report is written: until then a resume needs these files.
            sweep.drop_working_files()
            return job, report
    except (UsageError, ConfigError):
        # Discard only a new sweep without paid answers: an older one may have outputs in the ledger.
        if sweep.new and not sweep.recorded.count and not any(each.recorded.count for each in _further(sweep)):
            sweep.folder.discard()
        raise


def _make_calls(
    sweep: Sweep, where: Backend | LocalTargets, backend: Backend, reporter: Reporter, interrupts: Interrupts
) -> None:
    """Make all calls: those of the target, if there is one, and then those of judges."""
    from evalq.producer.sweep.calls import Calling, ask_further

    if sweep.stage is not None:
        from evalq.producer.sweep.judge_targets import refuse_uncalled

        # Before the first call, so that no outputs are paid for that cannot be judged.
        refuse_uncalled(sweep, backend, backend if isinstance(where, LocalTargets) else where)
    used = (0, 0.0)
    if sweep.live.target:
        facts = Calling(sweep, where, backend, reporter, interrupts).make()
        used = (int(facts["attempts"]), float(facts["cost"]))
    if sweep.stage is not None:
        ask_further(sweep, sweep.stage, (where, backend), reporter, interrupts, used)


def _further(sweep: Sweep) -> list[JudgeSweep]:
    from evalq.producer.sweep.judge_stage import judge_sweeps

    return judge_sweeps(sweep.folder)


def _note_targets(backend: Backend, folder: RunFolder) -> None:
    """Note the targets file in the user's state, so that a resume need not name it. A fleet has its own file."""
    asked = backend.asked
    if asked.targets and not asked.broker:
        note_targets(folder, _question(folder), asked.targets)


def _question(folder: RunFolder) -> str:
    """The digest of the sweep's questions; "" without a sweep, or if the prompts do not match its head."""
    head = next((read_head(folder.path, name) for name in (HEAD, ASKED) if (folder.path / name).is_file()), None)
    if head is None:
        return ""
    prompts = folder.path / PROMPTS
    if prompts.is_file() and prompts_digest(read_prompts(prompts))[1] != head.header.asked.get("prompts", ""):
        return ""
    return digest(msgspec.json.encode(head.header, order="sorted"))


def with_targets(backend: Backend, folder: RunFolder) -> Backend:
    """``backend``, with the targets file that this user last named for the run if neither file nor fleet is named now.

    Raises UsageError if the folder names files that it may not choose, or if the targets file has changed.
    """
    refuse_foreign_paths(folder, backend)
    settings = backend.settings
    if settings.targets or settings.broker or backend.inline:
        return backend
    known = targets_of(folder, _question(folder))
    if not known:
        return backend
    return msgspec.structs.replace(backend, settings=settings.model_copy(update={"targets": known}))


def refuse_detached(live: SweepOptions, evaluator: Evaluator[Any, Any], request: Request) -> None:
    """Raise UsageError for options that need a producer, with which a sweep cannot be detached."""
    judge_stage = live_calls(evaluator).judge_stage
    if judge_stage is not None and judge_stage.begin(request) is not None:
        raise UsageError("--detach goes with no judge: a producer has to stay to ask about the outputs; omit --detach")
    if live.stop or live.cache or live.reuse:
        raise UsageError(
            "--detach goes with none of --stop, --cache and --reuse: a producer has to stay for them; omit it, or them"
        )


def launch_sweep(given: Sweep | RunFolder, backend: Backend, reporter: Reporter) -> None:
    """Leave a sweep (or the unfinished one in a folder) to the fleet's calling processes."""
    from evalq.producer.sweep.ledger_calls import sweep_driver

    with hold_folder(given.folder if isinstance(given, Sweep) else given, backend) as interrupts:
        if isinstance(given, RunFolder):
            _refuse_over(given)
        sweep = given if isinstance(given, Sweep) else _loaded(given)
        refuse_detached(sweep.live, sweep.evaluator, sweep.request)
        try:
            with (
                resumable(sweep.folder, backend),
                sweep_driver(sweep, backend, reporter, interrupts) as (driver, work),
            ):
                driver.launch()
                driver.detach()
                work.warnings.show(reporter, sweep.header.target, here=False)
            sweep.folder.note(state="detached")
        except KeyboardInterrupt:
            raise_interrupted(sweep.folder, backend)
        except BaseException:
            note_state(sweep.folder, "stopped")
            raise


def _forget_evaluation(sweep: Sweep, shared: Backend, backend: Backend, reporter: Reporter) -> None:
    """Have the ledger forget an evaluation of other outputs: its answers are not those of the ones there are now."""
    from evalq.producer.driving.retries import ServerRetry
    from evalq.workers.ledger.detached import Reports
    from evalq.workers.ledger.runs import RunLedger

    retry = ServerRetry(shared.settings, reporter, shared.check)
    with resumable(sweep.folder, backend), retry.reporting(), contextlib.closing(retry.client()) as client:
        ledger = RunLedger(client, shared.settings)

        def forget() -> bool:
            seal = Reports(ledger, shared.settings).seal(sweep.run)
            with open_input(sweep.evaluated) as stream:
                if seal is None or seal.sha256 != (hashlib.file_digest(stream, "sha256").hexdigest(),):
                    ledger.delete(sweep.run)
            return True

        retry(forget)


def _roots(sweep: Sweep) -> list[Path]:
    return list(dict.fromkeys([Path.cwd().resolve(), sweep.folder.path.resolve()]))
