"""What a command holds while a run is driven: servers and local workers on one side, the run folder on the other."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

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
from evalq.workers.processes.system import usable_cpus
from evalq.workers.settings import Settings

if TYPE_CHECKING:
    from evalq.producer.local.processes import Children


CALLS_HERE = 50
"""Live calls in flight of a command that calls by itself, unless it is told how many or a target takes more at once."""
# The bound of the setting `calls`, which `model_copy` does not check.
CALLS_MOST = 10_000


class Backend(msgspec.Struct, frozen=True):
    """Where a job is computed: here (``inline``), or over ``settings.broker``, embedded when that is empty.

    ``workers`` local pool processes are started; None means none where there is a broker. Where there is none either,
    a job begins in processes forked from this one, and an embedded server with a worker process a core takes over
    those that prove to be long (``later``).
    """

    settings: Settings
    inline: bool = False
    workers: int | None = None
    served: bool = False
    """Local pool processes were started for it."""
    children: Children | None = None
    """All processes that were started for it, where any were."""
    later: LazyBackend | None = None
    """Server and workers that are started when a job needs them, in a `shared_backend`."""

    def check(self) -> None:
        """Raise WorkersLost, or ConfigError, when a process that was started for it has been given up."""
        if self.children is not None:
            self.children.check()

    named: Settings | None = None
    """What its user named, where a server or workers were started for it."""

    @property
    def asked(self) -> Settings:
        """What its user named, whatever was started for it."""
        return self.named or self.settings

    @property
    def calls_here(self) -> bool:
        """Whether live calls are made by a process of this command: its user named no fleet, or how many calls."""
        return bool(self.asked.calls or not self.asked.broker)

    def resume(self, folder: RunFolder) -> str:
        """The command that resumes the run in ``folder`` at the backend that a user would name."""
        asked = self.asked
        targets = f"--targets {shlex.quote(asked.targets)}" if asked.targets and self.calls_here else ""
        words = ["evalq resume", folder.named(self.server), targets, "--inline" if self.inline else ""]
        return " ".join(filter(None, words))

    @property
    def server(self) -> str:
        """The options that name its server, for commands of other processes; empty for an embedded one."""
        return named_servers(self.asked)

    def resumable(self, error: EvalqError, folder: RunFolder) -> EvalqError:
        """``error``, which says how the run in ``folder`` is resumed, too."""
        return type(error)(f"{str(error).rstrip('.')}; resume with: {self.resume(folder)}")


class LazyBackend:
    """A server and local workers that are started when they are first asked for, once for all jobs of a command."""

    def __init__(self, start: Callable[[], Backend]) -> None:
        self._start = start
        self.started: Backend | None = None

    def backend(self) -> Backend:
        """Where they are. Raises InfrastructureError."""
        if self.started is None:
            self.started = self._start()
        return self.started


@contextlib.contextmanager
def shared_backend(
    backend: Backend, roots: Sequence[Path], *evaluators: str, reporter: Reporter, calls: bool = False
) -> Iterator[Backend]:
    """``backend`` for several jobs in turn: what would be started for each is started once, or when it is needed.

    Local workers load ``evaluators`` before they divide into processes. With ``calls``, live calls are made too: by the
    fleet, or here where there is none or the settings have calls and a targets file.
    """
    if backend.inline or (backend.later and not calls):
        yield backend
        return
    with contextlib.ExitStack() as stack:
        start = partial(_started, stack, backend, roots, evaluators, reporter, calls=calls)
        if calls or backend.settings.broker or backend.workers:
            yield start()
        else:
            yield msgspec.structs.replace(backend, later=LazyBackend(start))


def _started(
    stack: contextlib.ExitStack,
    backend: Backend,
    roots: Sequence[Path],
    evaluators: Sequence[str],
    reporter: Reporter,
    *,
    calls: bool,
) -> Backend:
    """What `shared_backend` says, started, and ended by ``stack``."""
    from evalq.producer.local.processes import Children, embedded_server, local_workers

    settings, count = backend.settings, backend.workers
    here = calls and bool(settings.calls or not settings.broker)
    if here and not settings.targets:
        where = "name yours with --targets FILE (or a fleet with --broker URL); no run folder brings one"
        raise ConfigError(f"calling from here needs a targets file: {where}")
    if here:
        from evalq.workers.processes.environment import seal
        from evalq.workers.targets import key_names, load_targets

        targets = load_targets(settings.targets)  # faults are told here: the process that calls would be restarted
        seal(key_names(targets))
        default = max(CALLS_HERE, *(named.target.max_concurrency or 0 for named in targets.values()))
    settings = settings.model_copy(update={"calls": (settings.calls or min(default, CALLS_MOST)) if here else 0})
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
        # They are made already: a job that opens this backend once more must not start a second process that calls.
        settings.model_copy(update={"calls": 0}),
        children=backend.children,
        served=backend.served,
        named=backend.asked,
    )


@contextlib.contextmanager
def resumable(folder: RunFolder, backend: Backend) -> Iterator[None]:
    """An error of a server, or of the command's own processes, says how the run is resumed."""
    try:
        yield
    except (BrokerUnreachable, ServerRefused, WorkersLost) as error:
        raise backend.resumable(error, folder) from error


# The folder's side of a command: holding it while a run is driven, and saying there how the run was left.


@contextlib.contextmanager
def hold_folder(folder: RunFolder, backend: Backend) -> Iterator[Interrupts]:
    """Hold ``folder`` for the length of a block, in which interrupts are counted.

    Raises AlreadyRunning, StorageError where it cannot be written, and InfrastructureError where memory or threads are
    lacking.
    """
    interrupts = Interrupts()
    try:
        # Counted around the folder: a second interrupt must not break off letting go of it.
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
    """Raise UsageError where the run in ``folder`` names a file that a run folder may not choose on this machine."""
    if folder.begun:
        refuse_paths(folder, backend.settings.roots)


def folder_error(error: OSError, folder: RunFolder, then: str) -> StorageError:
    """Why a run cannot go on in its folder, and what to do ``then``."""
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
    """Raise for a run that nothing can follow: UsageError for one with its report, Cancelled."""
    state = folder.info().state
    if state == "done":
        raise UsageError(f"{folder.path}: this run is done; {folder.next_step(state)}")
    if state == "cancelled":
        raise Cancelled(f"{folder.path}: this run was cancelled for good; {folder.next_step(state)}")


def interruption(folder: RunFolder, backend: Backend) -> tuple[RunState, EvalqError]:
    """How a run stands after Ctrl-C or SIGTERM, and what ends its command: somebody may be cancelling it for good."""
    if not folder.being_cancelled():
        return "interrupted", Interrupted(backend.resume(folder))
    run = folder.info().run
    return "cancelled", Cancelled(f"run {run} was cancelled by evalq cancel; what was computed is in {folder.path}")


def note_state(folder: RunFolder, state: RunState) -> None:
    """Say in run.json how a run was left, as far as the disk lets us; one that was not taken up is as it was."""
    with contextlib.suppress(OSError, EvalqError):
        if may_follow(state, folder.info().state):
            folder.note(state=state)
