"""A worker's line at its start (its name and what it serves), and its health file for probes."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Literal

from evalq.evalcore.contract import plugins
from evalq.evalcore.model.manifest import QUEUE_CLASSES, queue_name
from evalq.evalcore.version import code_version
from evalq.workers.settings import Settings

log = logging.getLogger("evalq.worker")


def _ready_line(settings: Settings, name: str, targets: tuple[str, ...] = ()) -> str:
    """The line, without passwords; ``targets`` are those of a process that only makes calls."""
    ledger = settings.ledger_address if settings.ledger_apart else "the broker's server"
    parts = [f"broker {settings.broker_address}", f"ledger {ledger}", f"code {code_version()}"]
    if settings.processes:
        parts += [
            f"queues {', '.join(queue_name(queue, code_version()) for queue in QUEUE_CLASSES)}",
            f"evaluators {', '.join(plugins.names())}",
            f"{settings.processes} process{'es' if settings.processes > 1 else ''}",
            f"reads {', '.join(str(Path(root).resolve()) for root in settings.roots or (Path.cwd(),))}",
        ]
    parts.append(f"{settings.calls} calls in flight" if settings.calls else "no live calls")
    parts += [f"targets {', '.join(targets)}"] if targets else []
    return f"worker {name} is ready: {'; '.join(parts)}"


def print_ready(settings: Settings, name: str, targets: tuple[str, ...] = ()) -> None:
    """Print on standard error that the worker is ready."""
    # Celery redirects sys.stderr to its log.
    print(_ready_line(settings, name, targets), file=sys.__stderr__, flush=True)


class HealthFile:
    """``<health_file>.<pid>``, written at each heartbeat, so that a probe needs neither Python nor the ledger.

    It holds "heard" if the ledger accepted the heartbeat, else "away". Without the setting there is no file.
    """

    def __init__(self, settings: Settings) -> None:
        self._path = f"{settings.health_file}.{os.getpid()}" if settings.health_file else ""
        self._failed = False

    def write(self, state: Literal["heard", "away"]) -> None:
        """Write the state; a file that cannot be written is logged once."""
        if not self._path:
            return
        try:
            with open(f"{self._path}.new", "w", encoding="ascii") as file:
                file.write(f"{state}\n")
            os.replace(f"{self._path}.new", self._path)  # noqa: PTH105 - a string, as settings have it
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("health_file: %s cannot be written: %s", self._path, error.strerror or error)
            self._failed = True

    def remove(self) -> None:
        """Delete the file, when the worker ends."""
        with contextlib.suppress(OSError):
            if self._path:
                os.unlink(self._path)  # noqa: PTH108 - as above
