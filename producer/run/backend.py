"""The resources of a command while it drives a run: servers and local workers, and the run folder."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from evalq.evalcore.errors import (
    AlreadyRunning,
    BrokerUnreachable,
    Cancelled,
    ConfigError,
    EvalqError,
    InfrastructureError,
    Interrupted,
    ServerRefused,
    StorageError,
    UsageError,
    WorkersLost,
    resource_shortage,
)
from evalq.evalcore.model.life import RunState, may_follow
from evalq.producer.driving.interrupts import Interrupts
from evalq.producer.folder.own_runs import refuse_paths
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.monitor.progress import Reporter
from evalq.producer.servers import named_servers
from evalq.workers.processes.system import require_forks, usable_cpus
from evalq.workers.settings import Settings
from evalq.workers.targets.spec import is_spec

if TYPE_CHECKING:
    from evalq.producer.local.processes import Children


CALLS_HERE = 50
"""Live calls in flight of a command with its own callers, unless the settings or a target allow more."""
# The bound of the setting `calls`, which `model_copy` does not check.
CALLS_MOST = 10_000


class Backend(msgspec.Struct, frozen=True):
    """Where a job is computed: in this process (``inline``), or over ``settings.broker``, embedded if that is empty.

    ``workers`` local pool processes are started; None means none if there is a broker. With neither, a job begins in
    processes forked from this one; if it proves to be long, an embedded server with a worker process per core takes
    over (``later``).
    """

    settings: Settings
    inline: bool = False
    workers: int | None = None
    served: bool = False
    """Local pool processes were started for it."""
    children: Children | None = None
    """All processes that were started for it, if any."""
    later: LazyBackend | None = None
    """A server and workers that start when a job needs them, in a `shared_backend`."""

    def check(self) -> None:
        """Raise WorkersLost or ConfigError if a process that was started for it has been given up."""
        if self.children is not None:
            self.children.check()

    named: Settings | None = None
    """The user's settings, if a server or workers were started for it."""

    @property
    def asked(self) -> Settings:
        """The user's settings, whatever was started for it."""
        return self.named or self.settings

    @property
    def calls_here(self) -> bool:
        """Whether a process of this command makes live calls: its user named no fleet, or a number of calls."""
        return bool(self.asked.calls or not self.asked.broker)

    def resume(self, folder: RunFolder) -> str:
        """The command that resumes the run in ``folder`` at this backend."""
        asked = self.asked
        named = asked.targets and self.calls_here and not is_spec(asked.targets)  # evalq remembers specs
        targets = f"--targets {shlex.quote(asked.targets)}" if named else ""
        words = ["evalq resume", folder.named(self.server), targets, "--inline" if self.inline else ""]
        return " ".join(filter(None, words))

    @property
    def server(self) -> str:
        """The options that name its server to other commands; empty for an embedded one."""
        return named_servers(self.asked)

    def resumable(self, error: EvalqError, folder: RunFolder) -> EvalqError:
        """``error`` with the command that resumes the run in ``folder``."""
        return type(error)(f"{str(error).rstrip('.')}; resume with: {self.resume(folder)}")


class LazyBackend:
    """A server and local workers that start at first use, once for all jobs of a command."""

    def __init__(self, start: Callable[[], Backend]) -> None:
        self._start = start
        self.started: Backend | None = None

    def backend(self) -> Backend:
        """Start them if necessary; returns their backend. Raises InfrastructureError."""
        if self.started is None:
            self.started = self._start()
        return self.started


@contextlib.contextmanager
def shared_backend(
    backend: Backend, roots: Sequence[Path], *evaluators: str, reporter: Reporter, calls: bool = False
) -> Iterator[Backend]:
    """``backend`` for several jobs in turn; its servers and workers start once, now or when a job needs them.

    Local workers load ``evaluators`` before they fork. With ``calls``, live calls are made, too: by the fleet, or here
    if there is none or the settings have calls and a targets file.
    """
    if backend.inline or (backend.later and not calls):
        yield backend
        return
    with contextlib.ExitStack() as stack:
        start = partial(_start_backend, stack, backend, roots, evaluators, reporter, calls=calls)
        if calls or backend.settings.broker or backend.workers:
            yield start()
        else:
            yield msgspec.structs.replace(backend, later=LazyBackend(start))


def _start_backend(
    stack: contextlib.ExitStack,
    backend: Backend,
    roots: Sequence[Path],
    evaluators: Sequence[str],
    reporter: Reporter,
    *,
    calls: bool,
) -> Backend:
    """Start the processes of `shared_backend`; ``stack`` ends them."""
    from evalq.producer.local.processes import Children, embedded_server, local_workers
    from evalq.workers.targets.spec import FORMS

    settings, count = backend.settings, backend.workers
    here = calls and bool(settings.calls or not settings.broker)
    if here and not settings.targets:
        where = (
            "name yours with --targets FILE (or a fleet with --broker URL); no run folder brings one. Without a file, "
            f"name the target as one of {', '.join(FORMS)}"
        )
        raise ConfigError(f"live calls from here need a targets file: {where}")
    if here:
        from evalq.workers.processes.environment import seal
        from evalq.workers.targets import key_names, load_targets

        targets = load_targets(settings.targets)  # fail here for a faulty file: the calling process would be restarted
        seal(key_names(targets))
        default = max(CALLS_HERE, *(named.target.max_concurrency or 0 for named in targets.values()))
    settings = settings.model_copy(update={"calls": (settings.calls or min(default, CALLS_MOST)) if here else 0})
    if not settings.broker or count or here:
        require_forks()
    children = backend.children or Children(reporter.restarted)
    if not settings.broker:
        url = stack.enter_context(embedded_server(children))
        if settings.queue_arguments:
            reporter.warn("warning: queue_arguments has no effect without a broker: it is for queues on RabbitMQ")
        # The ledger goes with the broker: the embedded server is both.
        settings = settings.model_copy(update={"broker": url, "ledger": "", "queue_arguments": ()})
        count = count or usable_cpus()
    if count or here:
        stack.enter_context(local_workers(settings, count or 0, roots, evaluators, children))
        backend = msgspec.structs.replace(backend, children=children, served=bool(count))
    return Backend(
        # A job that opens this backend again must not start a second calling process.
        settings.model_copy(update={"calls": 0}),
        children=backend.children,
        served=backend.served,
        named=backend.asked,
    )


@contextlib.contextmanager
def resumable(folder: RunFolder, backend: Backend) -> Iterator[None]:
    """Add the command that resumes the run to errors of a server or of the command's own processes."""
    try:
        yield
    except (BrokerUnreachable, ServerRefused, WorkersLost) as error:
        raise backend.resumable(error, folder) from error


# -- the run folder: held while the run is driven, and its state noted at the end ------------------


@contextlib.contextmanager
def hold_folder(folder: RunFolder, backend: Backend) -> Iterator[Interrupts]:
    """Hold ``folder`` during the block, and count interrupts there.

    Raises AlreadyRunning, StorageError if it cannot be written, and InfrastructureError without memory or threads.
    """
    interrupts = Interrupts()
    try:
        # Count around the folder: a second interrupt must not prevent its release.
        with interrupts.counted(), folder.driving() as mine:
            if not mine:
                raise AlreadyRunning(str(folder.path), folder.driver() or "another process")
            refuse_foreign_paths(folder, backend)
            yield interrupts
    except OSError as error:
        raise folder_error(error, folder, f"resume with: {backend.resume(folder)}") from error
    except (MemoryError, RuntimeError) as error:
        if lack := resource_shortage(error):
            raise InfrastructureError(f"{lack}, then resume with: {backend.resume(folder)}") from error
        raise


def refuse_foreign_paths(folder: RunFolder, backend: Backend) -> None:
    """Raise UsageError if the run in ``folder`` names a file that a run folder may not choose on this machine."""
    if folder.begun:
        refuse_paths(folder, backend.settings.roots)


def folder_error(error: OSError, folder: RunFolder, then: str) -> StorageError:
    """The error for a run that cannot go on in its folder, and what to do ``then``."""
    if not folder.path.is_dir():
        gone = "the run folder"
    elif isinstance(error, FileNotFoundError) and not folder.begun:
        gone = "its run.json"
    else:
        return StorageError.of(error, folder.path, then)
    return StorageError(
        f"{folder.path}: {gone} was moved or removed while the run was under way; put it back, then {then}"
    )


def refuse_ended(folder: RunFolder) -> None:
    """Raise UsageError if the run is done, Cancelled if it is cancelled."""
    state = folder.info().state
    if state == "done":
        raise UsageError(f"{folder.path}: this run is done; {folder.next_step(state)}")
    if state == "cancelled":
        raise Cancelled(f"{folder.path}: this run was cancelled for good; {folder.next_step(state)}")


def raise_interrupted(folder: RunFolder, backend: Backend, leave: Callable[[RunState], None] | None = None) -> NoReturn:
    """Raise Interrupted after Ctrl-C or SIGTERM, or Cancelled if `evalq cancel` sent the signal.

    Before that, ``leave`` is called with the run's new state; by default, its folder notes the state.
    """
    cancelled = folder.being_cancelled()
    (leave or partial(note_state, folder))("cancelled" if cancelled else "interrupted")
    if cancelled:
        run = folder.info().run
        raise Cancelled(f"run {run} was cancelled by evalq cancel; its results so far are in {folder.path}") from None
    raise Interrupted(backend.resume(folder)) from None


def note_state(folder: RunFolder, state: RunState) -> None:
    """Note the state of a run in run.json, if the disk allows it and the state may follow the present one."""
    with contextlib.suppress(OSError, EvalqError):
        if may_follow(state, folder.info().state):
            folder.note(state=state)
