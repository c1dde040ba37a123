"""Begin a run and drive it to its report, or join the run that has its --once key already."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from evalq.evalcore.errors import AlreadyRunning, Finished, StorageError
from evalq.evalcore.model.life import RunState
from evalq.producer.folder.job import Job, RunExistsError
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.invocation import command_line
from evalq.producer.monitor.progress import Reporter
from evalq.producer.servers import Servers

if TYPE_CHECKING:
    from evalq.producer.run.backend import Backend
    from evalq.producer.sweep.sweep import Sweep


def begin_or_join(
    begin: Callable[[], Job | Sweep], backend: Backend, reporter: Reporter, *, detach: bool, command: bool = True
) -> RunFolder | None:
    """The folder of the run with its report; None if the run is left to the fleet, after its id is printed.

    ``begin`` raises RunExistsError if the run was begun before. It is called again if that one ended on faulty input
    and left no folder. ``command``: note this process's command line. Raises what driving raises.
    """
    folder = _begin_or_join(begin, backend, reporter, detach=detach, command=command)
    if not detach:
        return folder
    click.echo(folder.info().run)
    return None


def leave(begin: Callable[[], Job | Sweep], backend: Backend, reporter: Reporter) -> RunFolder:
    """The folder of a run that is left to the fleet: a new one, or the one that its --once key has already.

    Nothing is printed. Raises what driving raises.
    """
    return _begin_or_join(begin, backend, reporter, detach=True, command=False)


def _begin_or_join(
    begin: Callable[[], Job | Sweep], backend: Backend, reporter: Reporter, *, detach: bool, command: bool
) -> RunFolder:
    while True:
        try:
            begun = begin()
            with _resumable(begun.folder, backend):
                if command:
                    _note_command(begun.folder, backend)
                return _complete(begun, backend, reporter, detach=detach)
        except RunExistsError as earlier:
            with contextlib.suppress(FileNotFoundError):
                return _join(RunFolder(earlier.path), backend, reporter, detach=detach)


def _note_command(folder: RunFolder, backend: Backend) -> None:
    """Note the command in run.json. Raises StorageError if the disk has no room."""
    try:
        folder.note(command=command_line())
    except OSError as error:
        raise StorageError.of(error, folder.path, f"resume with: {backend.resume(folder)}") from error


@contextlib.contextmanager
def _resumable(folder: RunFolder, backend: Backend) -> Iterator[None]:
    """Make a run resumable after Ctrl-C before its driver starts, such as during imports."""
    try:
        yield
    except KeyboardInterrupt:
        from evalq.producer.run.backend import note_state, raise_interrupted

        def leave(state: RunState) -> None:
            # The block releases the folder: a notebook's process lives on.
            with contextlib.suppress(OSError), folder.driving() as mine:
                if mine:
                    note_state(folder, state)

        raise_interrupted(folder, backend, leave)


def _complete(begun: Job | Sweep, backend: Backend, reporter: Reporter, *, detach: bool) -> RunFolder:
    reporter.event("launch", run=begun.run, folder=str(begun.folder.path))
    try:
        if detach:
            _launch(begun, backend, reporter)
            return begun.folder
        _carry_out(begun, backend, reporter)
    except AlreadyRunning as driven:  # by a process with another folder and the same --once key
        if detach and not isinstance(driven, Finished):
            raise
        raise RunExistsError(begun.folder.path) from None
    reporter.say(f"run {begun.run}: {begun.folder.path}")
    return begun.folder


def _join(folder: RunFolder, backend: Backend, reporter: Reporter, *, detach: bool) -> RunFolder:
    """The report of a run begun before, whichever process computes it. Raises FileNotFoundError if it is gone."""
    from evalq.producer.lifecycle.join import join, launch_again, resume_any

    reporter.say(f"run {folder.info().run}: begun before, in {folder.path}")
    if detach:
        launch_again(folder, backend, reporter)
        return folder
    with Servers(backend.settings) as servers:
        join(folder, servers, reporter, lambda left: resume_any(left, backend, reporter))
    return folder


def _launch(begun: Job | Sweep, backend: Backend, reporter: Reporter) -> None:
    if isinstance(begun, Job):
        from evalq.producer.run.execute import launch

        launch(begun, backend, reporter)
    else:
        from evalq.producer.sweep.execute import launch_sweep

        launch_sweep(begun, backend, reporter)


def _carry_out(begun: Job | Sweep, backend: Backend, reporter: Reporter) -> None:
    if isinstance(begun, Job):
        from evalq.producer.run.execute import carry_out

        carry_out(begun, backend, reporter)
    else:
        from evalq.producer.sweep.execute import carry_out_sweep

        carry_out_sweep(begun, backend, reporter)


@contextlib.contextmanager
def name_server(backend: Backend) -> Iterator[None]:
    """Add the server to errors that say that another process drives the run."""
    try:
        yield
    except Finished as finished:
        raise Finished(finished.run, backend.server) from None
    except AlreadyRunning as driven:
        raise AlreadyRunning(driven.run, driven.by, backend.server) from None
