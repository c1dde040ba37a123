"""Runs of all five evaluators, round after round, by workers that are killed; and what their reports say of them."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections import Counter
from collections.abc import Container
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.model.canonical import canonical_json
from tests.agents.server import write_golden
from tests.bench.following import CHECKS, FOLLOW, TRACES, write
from tests.integration.harness import HAZARDS, PATIENCE, Fleet, Server, info, queued, start_evalq, wait_until
from tests.integration.midway import hold
from tests.samples import sampled

EVALUATORS = tuple(plugins.built_in())
_RECORDS = {"planagent": 6_000, "cooperation": 6_000}
_FEWER = 400
_LIMITS = {"EVALQ_CHUNK_SECONDS": "120", "EVALQ_LEASE_SECONDS": "4"}


TARGET = "chat"
_PRICE = {"prompt_per_million": 1000, "completion_per_million": 3000}


class Truth(msgspec.Struct):
    """What run folders say, by (evaluator, suite)."""

    records: Counter[tuple[str, str]]
    chunks: Counter[tuple[str, str]]
    dead: Counter[tuple[str, str]]
    runs: Counter[tuple[str, str]]
    calls: int


class Stage:
    """A fleet on ``server`` and the folder that its runs are in; live calls go to ``agent`` (a URL)."""

    def __init__(self, server: Server, folder: Path, agent: str) -> None:
        self._server = server
        chat = {"kind": "openai", "base_url": agent, "model": "m", "price": _PRICE}
        (folder / "targets.yaml").write_text(json.dumps({"targets": {TARGET: chat}}), encoding="utf-8")
        self._folder = folder
        self.fleet = Fleet(server.url, folder, {"PYTHONPATH": HAZARDS, **_LIMITS})
        self._rounds = 0
        self._folders: list[tuple[str, str, Path]] = []
        self._followed: tuple[str, Path] | None = None
        self._follower: subprocess.Popen[str] | None = None

    def round(self, suite: str, *, kill: bool = True) -> None:
        """A run of each evaluator at once; in the middle a worker is killed, and another comes.

        Until then a run of records that wait keeps workers at work, however soon the others are done.
        """
        self._rounds += 1
        with contextlib.ExitStack() as standing:  # or short runs are done before the last one begins
            for worker in self.fleet.processes if kill else []:
                if worker.poll() is None:
                    standing.enter_context(self.fleet.stopped(worker))
            started = [self._start(name, suite) for name in EVALUATORS]
            if kill:
                waiting = hold(self._data("waiting"), free=0, held=2 * len(self.fleet.processes))
                params = ("--params", str(waiting.folder / "params.json"))
                started.append(self._begin("hazards", suite, [str(waiting.folder / "in.jsonl"), *params], 1))
                wait_until(lambda: all(queued(self._server, folder) for _, folder in started), "all have work queued")
        if kill:
            self.fleet.kill_at_work(self._server)
            self.fleet.add(1)
            waiting.let_go()
        for process, folder in started:
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, f"{folder}: {errors}"

    def deadly(self, suite: str) -> None:
        """A run in which one record kills its process, for dead letters."""
        self._rounds += 1
        path = self._folder / "deadly.jsonl"
        lines = ({"id": f"r{n}", "value": n} | ({"do": "kill"} if n == 77 else {}) for n in range(200))
        path.write_bytes(b"".join(canonical_json(line) + b"\n" for line in lines))
        process, _ = self._begin("hazards", suite, [str(path)], 20)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 3, errors

    def sweep(self, suite: str, repeat: int = 25) -> None:
        """Live calls: eight cases of an agent with its habits, and one that never gives JSON, too few for an alert."""
        self._rounds += 1
        cases: dict[str, dict[str, Any]] = {f"C{number}": {"share": number / 8} for number in range(8)}
        golden = write_golden(self._folder / "golden.json", cases | {"bad": {"do": "said", "content": "none"}})
        process, _ = self._begin("vs", suite, [str(golden), "--target", TARGET, "--repeat", str(repeat)], 20)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors

    def follow(self, suite: str, traces: int = 40) -> None:
        """A process that follows traces from now on; so many come, in two windows, and the fleet evaluates them."""
        folder = self._folder / "production"
        if self._follower is None:
            folder.mkdir()
            (folder / "checks.yaml").write_text(CHECKS, encoding="utf-8")
            (folder / TRACES).touch()
            self._followed = suite, folder
            words = (*FOLLOW, "--by", "service.version", "--every", "0.5", "--settle", "0.5", "--suite", suite)
            self._follower = start_evalq(*words, "--broker", self._server.url, cwd=folder, PYTHONPATH=HAZARDS)
        for more in range(len(self._windows()) + 1, len(self._windows()) + 3):
            write(folder, 3600, 1000, 1 << 20, 9, traces=traces // 2)
            wait_until(partial(self._has_windows, more), "a window is evaluated")

    def close(self) -> None:
        """End the processes."""
        if self._follower is not None:
            self._follower.kill()
            self._follower.communicate()
        self.fleet.close()

    def _has_windows(self, most: int) -> bool:
        return len(self._windows()) >= most

    def _windows(self) -> list[tuple[str, str, Path]]:
        """The runs of followed traces that are done."""
        if self._followed is None:
            return []
        suite, folder = self._followed
        found = [path.parent for path in folder.glob("evalq-runs/*/report.json")]
        return [("checks", suite, run) for run in found if info(run)["state"] == "done"]

    def truth(self) -> Truth:
        """From manifests, run.json and report.json alone."""
        found = Truth(Counter(), Counter(), Counter(), Counter(), 0)
        for evaluator, suite, folder in (*self._folders, *self._windows()):
            of = evaluator, suite
            report = json.loads((folder / "report.json").read_text())
            manifest = json.loads((folder / "manifest.json").read_text())
            found.records[of] += sum(chunk["records"] for chunk in manifest["chunks"])
            found.chunks[of] += info(folder)["progress"]["committed"]
            found.dead[of] += report["records"]["dead"]
            found.runs[of] += 1
            found.calls += info(folder).get("calls", {}).get("attempts", 0)
        return found

    def newest(self, suite: str) -> dict[str, str]:
        """{evaluator: its newest run in a suite}."""
        return {name: info(folder)["run"] for name, of, folder in self._folders if of == suite}

    def reports(self, suite: str, evaluators: Container[str]) -> dict[str, dict[str, Any]]:
        """The newest report in a suite of each of the evaluators."""
        folders = {name: folder for name, of, folder in self._folders if of == suite and name in evaluators}
        return {name: json.loads((folder / "report.json").read_text()) for name, folder in folders.items()}

    def _start(self, name: str, suite: str) -> tuple[subprocess.Popen[str], Path]:
        evaluator: Evaluator[Any, Any] = plugins.get(name)
        data = self._data(name)
        asked = sampled(evaluator, data, _RECORDS.get(name, _FEWER), self._rounds)
        outputs = [word for path in asked.options.get("outputs", []) for word in ("--outputs", str(path))]
        return self._begin(name, suite, [*map(str, asked.inputs), *outputs], 100)

    def _data(self, name: str) -> Path:
        folder = self._folder / "data" / f"{name}-{self._rounds}"
        folder.mkdir(parents=True)
        return folder

    def _begin(self, name: str, suite: str, words: list[str], chunk: int) -> tuple[subprocess.Popen[str], Path]:
        folder = self._folder / f"{self._rounds}-{name}"
        self._folders.append((name, suite, folder))
        place = ("--broker", self._server.url, "--suite", suite, "--chunk-size", str(chunk), "--format", "none")
        process = start_evalq(
            name, *words, *place, "--run-dir", folder, "--no-progress", cwd=self._folder, PYTHONPATH=HAZARDS
        )
        return process, folder
