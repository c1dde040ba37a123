"""`python -m tests.chaos.seen --seed 1 --seed 2`: run seeds, add a line for each to a file, and make the page of it."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.chaos import network
from tests.chaos.seen.compare import AFTER_END, AFTER_RESTART, compare
from tests.chaos.seen.course import Course, make_subject, scenario_of
from tests.chaos.seen.crew import Crew, until
from tests.chaos.seen.observers import OBSERVERS
from tests.chaos.seen.page import PAGE, RESULTS, page
from tests.chaos.seen.rivals import install, versions
from tests.chaos.seen.truth import run_totals
from tests.chaos.stage import hosts_of
from tests.chaos.verdict import code

SETTLE_SECONDS = 10.0


def main() -> int:
    """Write the results and the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.seen", description=__doc__)
    parser.add_argument("--seed", type=int, action="append", required=True, help="repeatable")
    parser.add_argument("--chunks", type=int, default=600, help="so many that the run outlives its faults")
    parser.add_argument("--rivals", type=Path, help="environments of the rivals [made anew]")
    parser.add_argument("--keep", type=Path, help="a folder for logs and scrapes [removed]")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # leaves no process behind
    code()  # of what is started now, whatever is changed meanwhile
    with _folder(asked.rivals) as rivals, _folder(asked.keep) as folder:
        install(rivals)
        for seed in asked.seed:
            line = look_at(seed, asked.chunks, folder / str(seed), rivals)
            with RESULTS.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")
            for row in line["rows"]:
                print(" | ".join(row), flush=True)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def look_at(seed: int, chunks: int, folder: Path, rivals: Path) -> dict[str, Any]:
    """One run with its observers, as a line of the results."""
    folder.mkdir(parents=True)
    scenario = scenario_of(seed, chunks)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        net = None
        if not network.unavailable():
            net = stack.enter_context(network.network(f"seen{seed}", hosts_of(scenario)))
        course = Course(scenario, make_subject(folder / "input", chunks, seed), folder, net)
        stack.callback(course.close)
        names = [one.name for one in OBSERVERS]
        crew = Crew(folder / "observers", rivals, course.server.url, net, names)
        stack.callback(crew.close)
        course.server.start()
        crew.open()
        until(crew, 0.0)
        course.begin()
        course.play()
        course.watch(SETTLE_SECONDS)
        until(crew, course.marks["end"] + AFTER_END)
        crew.restart()
        course.mark("observers restarted")
        until(crew, course.marks["observers restarted"])
        course.watch(SETTLE_SECONDS)
        until(crew, course.marks["observers restarted"] + AFTER_RESTART)
        scrapes = {name: crew.lines(name) for name in names}
        rows = compare(course.truth(), run_totals(course.out), course.marks, scrapes)
        facts = course.server.client.info("server")
    commit, dirty = code()
    program = (
        f"{'Valkey' if 'valkey_version' in facts else 'Redis'} {facts.get('valkey_version', facts['redis_version'])}"
    )
    return {
        "seed": seed,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit + ("+changes" if dirty else ""),
        "server": f"{program}, appendfsync {scenario.aof}" if scenario.aof != "no" else f"{program} without a log",
        "versions": versions(rivals),
        "chunks": chunks,
        "seconds": round(time.monotonic() - began, 1),
        "struck": course.struck,
        "rows": rows,
    }


@contextlib.contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
    else:
        with tempfile.TemporaryDirectory(prefix="evalq-seen-") as made:
            yield Path(made)


if __name__ == "__main__":
    sys.exit(main())
