"""What a worker says when it is ready: who it is, what it serves, and what it may do."""

from __future__ import annotations

import sys
from pathlib import Path

from evalq.evalcore.contract import registry
from evalq.evalcore.model.manifest import QUEUE_CLASSES, queue_name
from evalq.evalcore.version import code_version
from evalq.workers.settings import Settings

__all__ = ["ready_line", "say_ready"]


def ready_line(settings: Settings, name: str, targets: tuple[str, ...] = ()) -> str:
    """One line. Passwords of URLs are left out; ``targets`` are those of a process that only calls."""
    ledger = settings.ledger_address if settings.ledger_apart else "the broker's server"
    parts = [f"broker {settings.broker_address}", f"ledger {ledger}", f"code {code_version()}"]
    if settings.processes:
        parts += [
            f"queues {', '.join(queue_name(queue, code_version()) for queue in QUEUE_CLASSES)}",
            f"evaluators {', '.join(registry.names())}",
            f"{settings.processes} process{'es' if settings.processes > 1 else ''}",
            f"reads {', '.join(str(Path(root).resolve()) for root in settings.roots or (Path.cwd(),))}",
        ]
    parts.append(f"{settings.calls} calls in flight" if settings.calls else "no live calls")
    parts += [f"targets {', '.join(targets)}"] if targets else []
    return f"worker {name} is ready: {'; '.join(parts)}"


def say_ready(settings: Settings, name: str, targets: tuple[str, ...] = ()) -> None:
    """The line, on standard error."""
    # Celery takes sys.stderr for its log.
    print(ready_line(settings, name, targets), file=sys.__stderr__, flush=True)
