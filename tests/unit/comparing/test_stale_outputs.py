"""What an earlier attempt left in files of -o does not outlive a command line that is wrong, nor take data along."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.comparing.conftest import Command, Made

FILES = ("junit.xml", "summary.md", "comment.md", "annotations.txt", "badge.json", "badge.svg", "gate.json")
INTO = tuple(word for name in FILES for word in ("-o", name))
POLICY = {"gates": [{"metric": "verification.pass_rate", "min": 0.5}]}
SUITE = {"runs": [{"evaluator": "verification", "inputs": ["in.jsonl"]}], "policy": POLICY}


@pytest.fixture
def decided(here: Path, made: Made, command: Command) -> dict[str, bytes]:
    """The files of a gate that says GO, by their names."""
    made("cand", [(str(number), True) for number in range(40)])
    (here / "policy.yaml").write_text(json.dumps(POLICY))
    (here / "suite.yaml").write_text(json.dumps(SUITE))
    (here / "broken.yaml").write_text(json.dumps(SUITE | {"policies": {}}))
    assert command("gate", "cand", "--policy", "policy.yaml", *INTO).code == 0
    return {name: (here / name).read_bytes() for name in FILES}


@pytest.mark.parametrize(
    "wrong",
    [
        "gate cand --policy gone.yaml",
        "gate --policy policy.yaml",
        "gate cand --policy policy.yaml --no-such-option",
        "gate cand --policy policy.yaml -o gate.docx",
        "gate cand --policy policy.yaml -o policy.yaml",
        "check-regressions cand cand --margin much",
        "check-regressions",
        "compare cand",
        "run broken.yaml",
        "run gone.yaml",
        "run suite.yaml --detach",
        "run suite.yaml --no-gate",
    ],
)
def test_a_command_line_that_is_wrong_leaves_no_go(
    decided: dict[str, bytes], here: Path, command: Command, wrong: str
) -> None:
    """Each file says that nothing was decided, whichever argument ended the command, and however early."""
    done = command(*wrong.split(), *INTO)
    assert done.code == 2, done
    said = {name: (here / name).read_bytes() for name in FILES}
    assert [name for name in FILES if said[name] == decided[name]] == []
    found = json.loads(said["gate.json"])
    assert (found["decided"], found["exit_code"]) == ("ERROR", 2)
    assert b"ERROR" in said["badge.svg"]
    assert (here / "policy.yaml").read_text() == json.dumps(POLICY)


@pytest.mark.parametrize("form", ["-o{}", "--output={}", "--output {}"])
def test_however_o_is_spelt(decided: dict[str, bytes], here: Path, command: Command, form: str) -> None:
    """As click takes it."""
    assert command("gate", "cand", *form.format("gate.json").split()).code == 2
    assert json.loads((here / "gate.json").read_bytes())["decided"] == "ERROR"


def test_what_was_recorded_is_not_taken_for_a_file_of_a_decision(here: Path, made: Made, command: Command) -> None:
    """An argument too few makes an output of what was to be read: it stays as it is."""
    made("base", [("a", True)])
    before = (here / "base" / "report.json").read_bytes()
    for words in ("compare -o base/report.json cand", "gate -o base/report.json --policy gone.yaml"):
        assert command(*words.split()).code == 2
        assert (here / "base" / "report.json").read_bytes() == before


def test_a_plan_that_is_wrong_withdraws_nothing(decided: dict[str, bytes], here: Path, command: Command) -> None:
    """It is no attempt to decide."""
    assert command("gate", "cand", "--policy", "gone.yaml", "--dry-run", *INTO).code == 2
    assert {name: (here / name).read_bytes() for name in FILES} == decided
