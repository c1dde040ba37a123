"""The figures that decision pages 2 and 3 name: `python -m tests.bench.decisions`."""

from __future__ import annotations

import io
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.records.batch import Batch
from evalq.producer.local.processes import embedded_server

ROWS, TIMES = 2_000, 20


class Answer(msgspec.Struct):
    """The four keys of an answer that the row score reads."""

    assistantMessage: Any = None  # noqa: N815 - the key's spelling
    dataUIList: Any = None  # noqa: N815 - the key's spelling
    responseTimeSec: Any = None  # noqa: N815 - the key's spelling
    error: Any = None


def answers() -> list[str]:
    """The parsable JSON documents of ROWS made rows."""
    text = io.StringIO()
    write_rows(text, ROWS, seed=1)
    header, _, body = text.getvalue().lstrip("\ufeff").partition("\n")
    rows = Batch("made", 2, body.encode(), tuple(header.split(","))).rows(lambda line, reason: None)
    return [row[-1] for _, row in rows if _parsable(row[-1])]


def _parsable(document: str) -> bool:
    try:
        return isinstance(json.loads(document), dict)
    except ValueError:
        return False


def median(way: Callable[[], object]) -> float:
    """Median seconds of a call, over TIMES."""
    seconds = []
    for _ in range(TIMES):
        began = time.perf_counter()
        way()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def start_server() -> None:
    """Start the embedded server, wait for its first answer, and end it."""
    with embedded_server():
        pass


def main() -> None:
    """Print both."""
    documents = answers()
    decode = msgspec.json.Decoder(Answer).decode
    ways: dict[str, Callable[[], object]] = {
        "json": lambda: [json.loads(document) for document in documents],
        "msgspec, no types": lambda: [msgspec.json.decode(document) for document in documents],
        "msgspec, the four keys typed": lambda: [decode(document) for document in documents],
    }
    for name, way in ways.items():
        print(f"{name}: {median(way) / len(documents) * 1e6:.1f} µs a row")
    print(f"embedded server, started, answered and ended: {median(start_server) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
