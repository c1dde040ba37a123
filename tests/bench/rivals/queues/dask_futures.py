"""Dask: a future a job, on a cluster of processes of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distributed import Client, LocalCluster

from tests.bench.rivals.queues.work import PROCESSES, Job, client, score


def main() -> None:
    """The cluster is up before the clock starts."""
    with (
        LocalCluster(n_workers=PROCESSES, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as c,
    ):

        def work(jobs: list[Job]) -> Iterable[Sequence[str]]:
            texts, lines, columns = zip(*jobs, strict=True)
            found: Iterable[Sequence[str]] = c.gather(c.map(score, texts, lines, columns, pure=False))
            return found

        client(lambda: len(c.scheduler_info()["workers"]) >= PROCESSES, work)


if __name__ == "__main__":
    main()
