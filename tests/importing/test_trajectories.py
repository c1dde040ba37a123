"""Imported checks of what an agent did have the verdicts of the tools themselves: from the recording."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.sources import read
from tests.importing import trajectories
from tests.importing.trajectories import COUNT, PEERS, RECORD, SEED, actions, rows, tau2_results

RECORDED: dict[str, Any] = json.loads(RECORD.read_text())


def test_the_recording_is_of_these_trajectories_and_versions() -> None:
    """Else: make peers."""
    assert {name: (each["version"], each["seed"]) for name, each in RECORDED.items()} == {
        name: (version, SEED) for name, (version, _) in PEERS.items()
    }
    assert len(trajectories.trajectories()) == COUNT == sum(len(each["answers"]) for each in trajectories.questions())


def test_each_difference_from_a_tool_has_a_reason(tmp_path: Path) -> None:
    """promptfoo, BFCL and tau2's definition; checks pass some trajectories and fail others."""
    found = rows(RECORDED, tmp_path)
    assert [(row.tool, row.wanted, calls) for row in found for calls, why in row.differing() if not why] == []
    signs: dict[str, Counter[str]] = {}
    for row in found:
        assert "-" not in row.ours
        signs.setdefault(row.tool, Counter()).update(row.theirs)
    for tool, least in (("promptfoo", 14_000), ("bfcl", 300), ("tau2", 9_000)):
        assert signs[tool]["0"] + signs[tool]["1"] >= least
        assert min(signs[tool]["0"], signs[tool]["1"]) > 0.1 * least, tool


def _of(source: str, folder: Path, name: str, *lines: Any) -> Imported:
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read(source, path, ImportRequest())


def test_what_bfcl_asks_of_an_environment_is_listed(tmp_path: Path) -> None:
    """Several turns, other languages, and questions without a possible answer."""
    ids = ("multi_turn_base_1", "simple_java_2", "simple_python_3", "live_irrelevance_4-1-0", "live_relevance_5")
    asked = [{"id": name, "question": [[{"role": "user", "content": "?"}]], "function": []} for name in ids]
    found = _of("bfcl", tmp_path, "BFCL_made.json", *asked)
    assert [case["checks"] for case in found.cases] == [[{"max-tool-calls": 0}], [{"calls-tool": "*"}]]
    assert {note.what for note in found.notes} == {
        "a question of multi_turn_base", "a question of simple_java", "a question of simple_python",
    }  # fmt: skip
    wrong: Any
    for wrong in ({"a": 1}, [], {"id": "a", "question": "?"}):
        with pytest.raises(ConfigError, match="not a question of BFCL"):
            _of("bfcl", tmp_path, "other.jsonl", wrong)


def test_a_run_of_tau2_has_its_conversations_and_verdicts(tmp_path: Path) -> None:
    """Actions that its basis does not name are shown with weight 0; evalq's verdicts agree with those recorded."""
    data = tau2_results()
    (task,) = data["tasks"]
    found = _of("tau2", tmp_path, "results.json", data)
    (case,) = found.cases
    assert [check["name"] for check in case["checks"] if "name" in check] == ["a", "b"]
    assert case["checks"][2] == {"rubric": "The program tells the user: full", "of": "conversation", "weight": 0}
    (line,) = found.outputs["m"]
    assert (line["repeat"], line["cost"], [each["role"] for each in line["messages"]]) == (
        2, 0.5, ["user", "assistant", "tool", "user", "assistant"],
    )  # fmt: skip
    assert found.verdicts == {("task-7", 2, "m"): [True, False, None]}
    assert {note.what for note in found.notes} == {"toggle", "DB", "a simulation", "communicate_info"}
    for basis, weight in (({"reward_basis": ["DB"]}, 0), ({"reward_basis": ["ACTION"]}, 1)):
        one = {"actions": actions()[:1], "nl_assertions": ["It is kind."], **basis}
        (case,) = _of("tau2", tmp_path, "tasks.json", [{**task, "evaluation_criteria": one}]).cases or ({},)
        assert not case or case["checks"][0].get("weight", 1) == weight
    wrong: Any
    for wrong in ([], [{"id": 1}], {"tasks": []}, 7):
        with pytest.raises(ConfigError, match="neither tasks nor results"):
            _of("tau2", tmp_path, "other.json", wrong)
