"""The process that calls, beside a worker's pool: started with it, started again when it dies, ended with it."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

from evalq.workers.processes.environment import inherited
from evalq.workers.processes.system import child
from evalq.workers.settings import Settings

log = logging.getLogger("evalq.worker")

_RESTART_SECONDS, _LONGEST_SECONDS = 1.0, 30.0
_STEADY_SECONDS = 5.0
"""A process that ran for so long is started again after the shorter pause."""


def environment(settings: Settings, *without: str) -> dict[str, str]:
    """This process's environment with ``settings`` as EVALQ_* variables, but those named and all else of evalq."""
    # The EVALQ_* variables of this process are in ``settings`` already, unless an option overruled them: handed on
    # they would overrule that option in the child.
    kept = {key: value for key, value in inherited().items() if not key.startswith("EVALQ_")}
    values = settings.model_dump(mode="json", exclude={"roots", *without}, exclude_none=True)
    told = {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in values.items()}
    return kept | {f"EVALQ_{name.upper()}": value for name, value in told.items() if value != ""}


@contextlib.contextmanager
def calling_beside(settings: Settings, loglevel: str) -> Iterator[Callable[[], None]]:
    """Run it as long as the block; nothing where no calls are to be made. Yields what has it begin to end."""
    if not settings.calls:
        yield lambda: None
        return
    keeper = _Keeper(environment(settings) | {"EVALQ_LOGLEVEL": loglevel})
    thread = threading.Thread(target=keeper.keep, name="evalq-calling", daemon=True)
    thread.start()
    try:
        yield keeper.begin_to_end
    finally:
        # Longer than its calls may take to end, or it would be killed while it still records them.
        keeper.end(settings.soft_shutdown_seconds + 5)
        thread.join()


class _Keeper:
    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        """Start the process, and again whenever it ends; what ends at once time and again, ever more seldom."""
        pause = _RESTART_SECONDS
        while not self._ending.is_set():
            began = time.monotonic()
            became = self._run()
            # What ran for a while died of something new; what dies at once dies of the same again.
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _RESTART_SECONDS
            if self._ending.is_set():
                return
            log.warning("the process that calls %s again in %g s", became, pause)
            if self._ending.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_SECONDS)

    def _run(self) -> str:
        """Start it and wait for its end; what became of it."""
        # Under the lock, so that `end` never misses a process that is started in the same moment.
        with self._lock:
            if self._ending.is_set():
                return ""
            try:
                command = child("evalq.workers.callers.main")
                self._child = subprocess.Popen(command, env=self._environment)  # noqa: S603 - this project's own module
            except OSError as error:  # no process or no memory is left: later there may be some
                return f"cannot be started: {error}; it is tried"
        return f"ended with exit code {self._child.wait()}; it is started"

    def begin_to_end(self) -> None:
        """Start no other, and have it end in good order: the time for that is the same as the pool's."""
        with self._lock:
            self._ending.set()
        if self._child is not None:
            self._child.terminate()

    def end(self, seconds: float) -> None:
        """Let it end in good order, and make it end."""
        self.begin_to_end()
        if self._child is None:
            return
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
