"""evalq with Celery's task events, heartbeats and remote control switched on, and a journal of what really happened.

Only for comparing observers: `evalq` itself has all three off. Used as `python -m tests.chaos.seen.talking worker ...`.
The journal, at SEEN_JOURNAL, gets a line when a message is given to Celery, and when a task begins and ends; it is
written by the processes themselves, so it knows what no event and no ledger has been told.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

JOURNAL = "SEEN_JOURNAL"
TALK = {"worker_send_task_events": True, "task_send_sent_event": True, "worker_enable_remote_control": True}
"""Settings that evalq.workers.broker.transport has the other way round."""


def main() -> None:
    """evalq's command line, talking."""
    if "worker" in sys.argv:  # as `evalq worker` does, before billiard is imported
        os.environ.setdefault("REMAP_SIGTERM", "SIGQUIT")
    from evalq.workers.broker import publisher as broker
    from evalq.workers.broker import transport as app
    from evalq.workers.pool import chunk_runner as tasks
    from evalq.workers.pool import main as worker

    stock = app._configuration
    app._configuration = lambda settings: stock(settings) | TALK
    worker._app = _with_heartbeat(worker._app)
    broker.Broker.publish = _told(broker.Broker.publish)  # type: ignore[method-assign]  # observed
    tasks.ChunkRunner.evaluate = _followed(tasks.ChunkRunner.evaluate)  # type: ignore[method-assign]  # too, observed
    from evalq.producer.cli import main as evalq

    evalq()


def _with_heartbeat(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **named: Any) -> Any:
        app = make(*args, **named)
        stock = app.Worker
        app.Worker = lambda **given: stock(**given | {"without_heartbeat": False})
        return app

    return made


def _told(publish: Callable[..., None]) -> Callable[..., None]:
    def message(self: Any, queue: str, run: str, epoch: int, seqs: Sequence[int]) -> None:
        _write("sent", seqs=list(seqs))
        publish(self, queue, run, epoch, seqs)

    return message


def _followed(evaluate: Callable[..., str]) -> Callable[..., str]:
    def followed(self: Any, run: str, seq: int, epoch: int) -> str:
        _write("begun", seq=seq)
        try:
            became = evaluate(self, run, seq, epoch)
        except BaseException:
            _write("ended", seq=seq, became="raised")
            raise
        _write("ended", seq=seq, became=became)
        return became

    return followed


def _write(what: str, **facts: object) -> None:
    """A line at the end of the file; lines of several processes do not mix."""
    line = json.dumps({"what": what, "at": time.time(), "pid": os.getpid(), **facts}) + "\n"
    file = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


if __name__ == "__main__":
    main()
