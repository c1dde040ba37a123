"""`python -m tests.chaos.rounds`: rounds of many commands at one instant, each a line in a file."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.chaos.rounds.fleet import running_workers
from tests.chaos.rounds.page import RESULTS, render
from tests.chaos.rounds.rounds import KINDS, WAYS, Arena, Round, play
from tests.chaos.verdict import code
from tests.integration.harness import Server, remove


def main() -> int:
    """Exit 1 when a round went wrong."""
    asked = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # leaves no process behind
    commit, dirty = code()
    top = Path(tempfile.mkdtemp(prefix="evalq-rounds-"))
    arena, lines = Arena(top), []
    for way in asked.ways:
        with running_workers(arena) if way == "fleet" else contextlib.nullcontext() as server:
            for one in _rounds(way, asked, server):
                folder = top / f"{way}-{one.kind}-{one.number}"
                line = play(one, arena, folder, server.client if server else None)
                line |= {"date": datetime.now(UTC).date().isoformat(), "commit": commit, "dirty": dirty}
                lines.append(line)
                with asked.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(line) + "\n")
                print(_told(line, folder), flush=True)
                if not line["why"]:
                    remove(folder)
    print(render(lines))
    bad = sum(bool(line["why"]) for line in lines)
    if not bad:
        remove(top)
    return 1 if bad else 0


def _parse() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.rounds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="of each kind, each way")
    parser.add_argument(
        "--first", type=int, default=0, help="the first round's number; of two lines of a number the last counts"
    )
    parser.add_argument("--processes", type=int, default=20, help="commands of a round")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--out", type=Path, default=RESULTS, help="results, a JSON line a round")
    return parser.parse_args()


def _rounds(way: str, asked: Any, server: Server | None) -> Iterator[Round]:
    for kind in asked.kinds:
        # Without a ledger that they share, a folder is all that two commands have in common.
        if kind != "folders" or server is not None:
            for number in range(asked.first, asked.first + asked.rounds):
                yield Round(way, kind, number, asked.processes, server.url if server else "")


def _told(line: dict[str, Any], folder: Path) -> str:
    differs = f" ({line['differs']}{', one folder' if line['named'] else ''})" if line["differs"] else ""
    text = (
        f"{'BAD' if line['why'] else 'ok '} {line['way']} {line['kind']}{differs} {line['round']}: {line['ended']} of "
        f"{line['processes']} exits 0, {line['refused']} refused, {line['runs']} run(s), {line['computed']} of "
        f"{line['chunks']} chunks computed, {line['equal']} equal, let go within {line['spread'] * 1000:.0f} ms, "
        f"{line['seconds']} s"
    )
    return text + (f"\n     {line['why']}\n     kept: {folder}" if line["why"] else "")


if __name__ == "__main__":
    sys.exit(main())
