"""A record that kills whatever evaluates it: the others' results are those of a calm run in which it is dead too."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.chaos.faults.base import Fault, Stage, register
from tests.chaos.ledger_view import LedgerView
from tests.chaos.subjects import Subject
from tests.integration.harness import HAZARDS, evalq

RECORDS, CHUNK_PAUSE = 12_000, 0.03
DEEDS = ("kill", "leave", "eat", "hang")
_LIMITS = {"EVALQ_CHUNK_SECONDS": "5", "EVALQ_CHUNK_MEGABYTES": "256"}
_FLAGS = ("--allow-dead", "1")


@register
class Poison(Fault):
    """One record of the input kills its process, ends it, eats its memory or hangs."""

    name = "poison record"
    sweeps = False
    naive = False
    weight = 1

    def prepare(self, stage: Stage, rng: random.Random) -> None:
        """An input with one such record instead of the scenario's own, and its calm run over local workers."""
        if stage.subject.evaluation == "hazards":  # the scenario has this fault twice
            return
        folder = stage.folder / "poison"
        folder.mkdir()
        victim, deed = rng.randrange(RECORDS // 10, RECORDS), rng.choice(DEEDS)
        rows = [{"id": f"r{n}", "value": n} | ({"do": deed} if n == victim else {}) for n in range(RECORDS)]
        (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "params.json").write_text(json.dumps({"pause": CHUNK_PAUSE}))
        args = ("hazards", str(folder / "in.jsonl"), "--params", str(folder / "params.json"))
        stage.extra |= _LIMITS | {"PYTHONPATH": HAZARDS}
        stage.subject = Subject("hazards", args, folder, self._calm(folder, args), RECORDS, _FLAGS)

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """It strikes by itself, when its chunk is computed for the first time."""
        view = stage.view
        assert isinstance(view, LedgerView), "no other set-up has this fault"
        return self.armed(stage, view.tried)

    def _calm(self, folder: Path, args: tuple[str, ...]) -> Path:
        flags = (*_FLAGS, "--workers", "2", "--chunk-size", "500", "--run-dir", folder / "calm", "--format", "none")
        done = evalq(*args, *flags, cwd=folder, seconds=120, PYTHONPATH=HAZARDS, **_LIMITS)
        assert done.returncode == 0, done.stderr
        return folder / "calm"
