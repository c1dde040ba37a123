"""The hand-made script: enqueue every chunk, then wait until as many are counted. `wait` only waits."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import redis

from evalq.evalcore.contract import plugins
from evalq.evalcore.records.cut import Cutter
from tests.chaos.naive.tasks import DONE, app, score


def main() -> None:
    """`produce PATH CHUNK_SIZE [wait]`."""
    path, size = Path(sys.argv[1]), int(sys.argv[2])
    with path.open("rb") as stream:
        cutter = Cutter(stream, "csv", path.name, plugins.get("planagent").records.columns, size=size)
        columns = list(cutter.columns)
        spans = list(cutter.spans())
    if "wait" not in sys.argv:
        for span in spans:
            score.delay(str(path), span.start, span.end, span.first_line, span.records, span.digest, columns)
    while _done() < len(spans):
        time.sleep(0.05)


def _done() -> int:
    try:
        return int(str(redis.Redis.from_url(app.conf.broker_url, decode_responses=True).get(DONE) or 0))
    except redis.RedisError:
        return 0


if __name__ == "__main__":
    main()
