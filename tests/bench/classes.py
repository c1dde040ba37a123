"""How soon a CI run of 1,000 rows is served while a sweep waits in the bulk queue.

    python -m tests.bench.classes [--sweep N] [--times N]

From the moment its first message is sent (the window's first entry in the ledger) to its first and its last commit.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.throughput import make_rows
from tests.integration.harness import committed, info, running_fleet, running_server, start_evalq, wait_until

ROWS = 1_000
CHUNK_ROWS = 100


def main() -> None:
    """Measure and print medians and the longest."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.classes")
    parser.add_argument("--sweep", type=int, default=1_000_000, help="rows of the sweep")
    parser.add_argument("--times", type=int, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evalq-classes-") as folder:
        top = Path(folder)
        make_rows(top / "sweep.csv", asked.sweep)
        make_rows(top / "quick.csv", ROWS)
        with running_server(top) as server, running_fleet(server.url, top) as fleet:
            fleet.add(2)
            sweep = start_evalq("planagent", "sweep.csv", "--broker", server.url, "--out", "sweep", cwd=top)
            wait_until(lambda: committed(server, top / "sweep") > 2, "the sweep goes", 120)
            first, last = [], []
            for number in range(asked.times):
                out = top / f"quick-{number}"
                args = ("planagent", "quick.csv", "--priority", "interactive", "--chunk-size", str(CHUNK_ROWS))
                quick = start_evalq(*args, "--broker", server.url, "--out", out, "--format", "none", cwd=top)

                def sent(out: Path = out) -> bool:
                    run = info(out).get("run")
                    return bool(run and int(server.client.hget(f"evalq:run:{{{run}}}:meta", "cursor") or 0))

                def served(chunks: int, out: Path = out) -> bool:
                    return committed(server, out) >= chunks

                wait_until(sent, "it is published")
                began = time.perf_counter()
                wait_until(lambda: served(1), "it is served")
                first.append(time.perf_counter() - began)
                wait_until(lambda: served(ROWS // CHUNK_ROWS), "it is done")
                last.append(time.perf_counter() - began)
                quick.communicate()
                assert quick.returncode == 0
                print(f"  first commit {first[-1]:.2f} s, last {last[-1]:.2f} s", flush=True)
            assert sweep.poll() is None, "the sweep ended too early: more rows are needed"
            sweep.kill()
            sweep.communicate()
    for name, seconds in (("first", first), ("last", last)):
        print(f"{name} commit after: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
