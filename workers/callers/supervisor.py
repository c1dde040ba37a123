"""Supervises the calling process beside a worker's pool: starts it, restarts it when it dies, ends it."""

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
"""A process that ran for so long is restarted after the shorter pause."""


def environment(settings: Settings, *without: str) -> dict[str, str]:
    """This process's environment, with ``settings`` (except ``without``) in place of its EVALQ_* variables."""
    # ``settings`` already include the EVALQ_* variables, unless an option overrode them; in the child, the variables
    # would override that option.
    kept = {key: value for key, value in inherited().items() if not key.startswith("EVALQ_")}
    values = settings.model_dump(mode="json", exclude={"roots", *without}, exclude_none=True)
    texts = {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in values.items()}
    return kept | {f"EVALQ_{name.upper()}": text for name, text in texts.items() if text != ""}


@contextlib.contextmanager
def calling_beside(settings: Settings, loglevel: str) -> Iterator[Callable[[], None]]:
    """Run the calling process during the block, if the worker makes calls. Yields a function that begins its end."""
    if not settings.calls:
        yield lambda: None
        return
    keeper = _Keeper(environment(settings) | {"EVALQ_LOGLEVEL": loglevel})
    thread = threading.Thread(target=keeper.keep, name="evalq-calling", daemon=True)
    thread.start()
    try:
        yield keeper.begin_to_end
    finally:
        # Longer than its calls may take to end, so that it is not killed while it records them.
        keeper.end(settings.soft_shutdown_seconds + 5)
        thread.join()


class _Keeper:
    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        """Start the process, and restart it whenever it ends, with longer pauses if it ends at once."""
        pause = _RESTART_SECONDS
        while not self._ending.is_set():
            began = time.monotonic()
            outcome = self._run()
            # After a while it died of something new; if it dies at once, it will do so again.
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _RESTART_SECONDS
            if self._ending.is_set():
                return
            log.warning("the process for live calls %s again in %g s", outcome, pause)
            if self._ending.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_SECONDS)

    def _run(self) -> str:
        """Start the process and wait for its end; returns how it ended."""
        # Under the lock, so that `end` does not miss a process that is just being started.
        with self._lock:
            if self._ending.is_set():
                return ""
            try:
                command = child("evalq.workers.callers.main")
                self._child = subprocess.Popen(command, env=self._environment)  # noqa: S603 - this project's own module
            except OSError as error:  # no process or memory is left; later there may be some
                return f"cannot be started: {error}; it is tried"
        return f"ended with exit code {self._child.wait()}; it is started"

    def begin_to_end(self) -> None:
        """Ask the process to end, and start no other; it has the same time for that as the pool."""
        with self._lock:
            self._ending.set()
        if self._child is not None:
            self._child.terminate()

    def end(self, seconds: float) -> None:
        """Ask the process to end, and kill it after ``seconds``."""
        self.begin_to_end()
        if self._child is None:
            return
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
