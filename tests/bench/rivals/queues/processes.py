"""multiprocessing.Pool, which has no server, no retries and no ledger: a job a call."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Sequence

from tests.bench.rivals.queues.work import PROCESSES, Job, client, score


def main() -> None:
    """The processes are there before the clock starts."""
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:

        def work(jobs: list[Job]) -> Iterable[Sequence[str]]:
            return pool.starmap(score, jobs, chunksize=1)

        client(lambda: True, work)


if __name__ == "__main__":
    main()
