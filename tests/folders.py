"""Run folders for tests, without a run to make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evalq.evalcore.model.life import RunState
from evalq.producer.folder.run_folder import RunFolder


def facts(run: str, state: RunState) -> dict[str, Any]:
    """The least that run.json has to say."""
    request: dict[str, Any] = {"inputs": [], "params": {}, "options": {}}
    return {"run": run, "evaluator": "planagent", "state": state, "started": "2026-01-01T00:00:00", "request": request}


def begun(path: Path, state: RunState = "open") -> RunFolder:
    """A folder in which a run was begun, and which nobody drives."""
    with RunFolder.begin(path) as folder:
        folder.note(**facts(path.name, state))
    with folder.driving():
        return RunFolder(path)
