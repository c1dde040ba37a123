"""What somebody who reaches the broker can put into a queue, and a worker whose log is kept."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalq.evalcore.model.manifest import queue_name
from evalq.evalcore.version import code_version
from evalq.workers.broker.publisher import Broker
from evalq.workers.settings import Settings
from tests.integration.harness import Server, clean_environment, launch, serves, wait_until

QUEUE = queue_name("bulk", code_version())


class LoggedWorker:
    """A worker's main process and what it has written to its standard error."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def alive(self) -> bool:
        """The main process runs."""
        return self.process.poll() is None

    @property
    def lines(self) -> list[str]:
        """Its log so far, without the line that says it is ready."""
        return [line for line in self._all() if not _ready(line)]

    @property
    def ready(self) -> bool:
        """It has said so."""
        return any(map(_ready, self._all()))

    def _all(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    def memory_kib(self) -> int:
        """What the main process holds in memory now (Linux)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])


def _ready(line: str) -> bool:
    return line.startswith("worker ") and " is ready: " in line


@contextlib.contextmanager
def logged_worker(server: Server, cwd: Path, log: Path, *options: str, **environment: str) -> Iterator[LoggedWorker]:
    """One worker for the length of a block, which waits at its queues, and has said so, when the block begins."""
    with log.open("wb") as out:
        process = launch(
            ["worker", "--broker", server.url, "--concurrency", "1", *options],
            cwd=cwd,
            env=clean_environment(**environment),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    worker = LoggedWorker(process, log)
    try:
        wait_until(lambda: serves(server), "a worker waits at a queue")
        wait_until(lambda: worker.ready, "it has said that it is ready")
        yield worker
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def real_message(server: Server) -> dict[str, Any]:
    """The envelope evalq itself sends, for a run that nobody knows."""
    broker = Broker(Settings(broker=server.url))
    broker.publish(QUEUE, "norun", 0, [3])
    broker.close()
    message: dict[str, Any] = json.loads(server.client.rpop(QUEUE))
    return message


def _changed(message: dict[str, Any], **parts: Any) -> bytes:
    """``message`` with its headers, properties or other parts laid over."""
    copy = json.loads(json.dumps(message))
    for name, value in parts.items():
        if name in ("headers", "properties") and isinstance(value, dict):
            copy[name] |= value
        else:
            copy[name.replace("_", "-")] = value
    return json.dumps(copy).encode()


def _packed(body: Any) -> str:
    return base64.b64encode(body if isinstance(body, bytes) else json.dumps(body).encode()).decode()


def _without(message: dict[str, Any], part: str) -> bytes:
    return json.dumps({key: value for key, value in message.items() if key != part}).encode()


def refused_items(message: dict[str, Any]) -> dict[str, bytes]:
    """Items that are no hint, by what is wrong with them."""
    return {
        "bytes that are no text": b"\xff\xfe\x00garbage",
        "nothing": b"",
        "a number": b"17",
        "a string": b'"x"',
        "a list": b"[1, 2]",
        "an empty object": b"{}",
        "no headers": _without(message, "headers"),
        "no properties": _without(message, "properties"),
        "no body": _without(message, "body"),
        "null headers": _changed(message, headers=None),
        "text for headers": _changed(message, headers="x"),
        "200,000 brackets": b"[" * 200_000,
        "10,000 brackets": b"[" * 10_000,
        "brackets in the body": _changed(message, body=_packed(b"[" * 8_000)),
        "a pickle": _changed(message, content_type="application/x-python-serialize", body=_packed(b"cos\nsystem\n.")),
        "YAML": _changed(message, content_type="application/x-yaml"),
        "another task": _changed(message, headers={"task": "os.system"}),
        "a Celery task": _changed(message, headers={"task": "celery.backend_cleanup"}),
        "a number for a task": _changed(message, headers={"task": 5}),
        "a list for a task": _changed(message, headers={"task": [5]}),
        "a number for an id": _changed(message, headers={"id": 5}),
        "a line break in an id": _changed(message, headers={"id": "a\nCRITICAL forged line"}),
        "text for a chunk": _changed(message, body=_packed([["r", "3", 0], {}, {}])),
        "a chunk of -1": _changed(message, body=_packed([["r", -1, 0], {}, {}])),
        "a chunk of 10^30": _changed(message, body=_packed([["r", 10**30, 0], {}, {}])),
        "5,000 digits": _changed(message, body=_packed(b'[["r",' + b"9" * 5_000 + b",0],{},{}]")),
        "5,000 digits outside": b'{"a":' + b"9" * 5_000 + b"}",
        "two arguments": _changed(message, body=_packed([["r", 3], {}, {}])),
        "four arguments": _changed(message, body=_packed([["r", 3, 0, 1], {}, {}])),
        "a run's name of 10,000": _changed(message, body=_packed([["r" * 10_000, 3, 0], {}, {}])),
        "a run's name with braces": _changed(message, body=_packed([["a}:meta", 3, 0], {}, {}])),
        "keyword arguments": _changed(message, body=_packed([["r", 1, 1], {"x": 1}, {}])),
        "null arguments": _changed(message, body=_packed([None, {}, {}])),
        "a number for a body": _changed(message, body=5),
        "a number in the body": _changed(message, body=_packed(7)),
        "a body that is not base64": _changed(message, body="%%%"),
        "an unknown packing": _changed(message, properties={"body_encoding": "rot13"}),
        "a task to call afterwards": _changed(
            message, body=_packed([["norun", 3, 0], {}, {"callbacks": [{"task": "evil", "args": [], "kwargs": {}}]}])
        ),
        "a chain": _changed(message, body=_packed([["norun", 3, 0], {}, {"chain": [{"task": "evil"}]}])),
        "100 MB": b"x" * (100 << 20),
        "100 MB of JSON": b'{"body":"' + b"x" * (100 << 20) + b'"}',
    }


def stripped_items(message: dict[str, Any]) -> dict[str, bytes]:
    """Items that are hints in an envelope that asks for more; the more is left away."""
    return {
        "a time to wait until": _changed(message, headers={"eta": "2099-01-01T00:00:00+00:00"}),
        "a time that is none": _changed(message, headers={"eta": "x", "expires": "y"}),
        "an unknown compression": _changed(message, headers={"compression": "nope"}),
        "a compression it has not": _changed(message, headers={"compression": "application/x-gzip"}),
        "one time limit of two": _changed(message, headers={"timelimit": "x"}),
        "an unknown charset": _changed(message, content_encoding="x-nope"),
        "a list for a tag": _changed(message, properties={"delivery_tag": [1]}),
        "no tag": _changed(message, properties={"delivery_tag": None}),
        "no way back": _changed(message, properties={"delivery_info": None}),
        "somewhere to answer": _changed(message, properties={"reply_to": "evil", "priority": "x"}),
        "an unknown run": _changed(message),
    }
