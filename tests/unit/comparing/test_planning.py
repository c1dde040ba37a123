"""gate --dry-run: the outlook for a run that nobody has paid for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.producer.cli import main
from tests.unit.comparing.conftest import Made

POLICY = "gates:\n  - {metric: verification.pass_rate, max_drop: 0.2}\n  - {metric: verification.transcripts, min: 1}\n"


@pytest.fixture
def policy(here: Path) -> str:
    (here / "policy.yaml").write_text(POLICY)
    return "policy.yaml"


def test_a_plan_without_any_run(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Cases and repeats are enough; a number without an interval is said to have no power."""
    assert main(["gate", "--policy", policy, "--dry-run", "--cases", "40", "--repeat", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (power,) = found["powers"]
    assert 0.5 < power["go"] <= 1
    assert power["no_go"]["0.2"] > power["no_go"]["0.05"]
    assert any("verification.transcripts is taken as it stands" in note for note in found["notes"])


def test_a_plan_from_a_baseline(policy: str, made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the cases, and says what it is too small for; nothing is counted or written."""
    made("base", [(f"c{n}", True) for n in range(5) for _ in range(4)])
    assert main(["baseline", "set", "main", "base"]) == 0
    before = sorted(Path().rglob("*"))
    capsys.readouterr()
    assert main(["gate", "--policy", policy, "--baseline", "main", "--dry-run", "--repeat", "2"]) == 0
    text = capsys.readouterr().out
    assert "What this gate can tell against main" in text
    assert "the baseline has 5 case(s), and the policy decides on 10 at least" in text
    assert "4 answer(s) a case; four times the candidate's 2" in text
    assert "NO-GO is decided at an error of 0.0125" in text
    assert sorted(Path().rglob("*")) == before
    Path("one.yaml").write_text("gates: [{metric: verification.pass_rate, max_drop: 0.05}]")
    assert main(["gate", "base", "--policy", "one.yaml", "--baseline", "main"]) == 4
    assert main(["gate", "--policy", "one.yaml", "--baseline", "main", "--dry-run", "--repeat", "2"]) == 0
    assert "NO-GO is decided at an error of 0.00417" in capsys.readouterr().out, "the second look's"


@pytest.mark.parametrize("name", ["decision.foo", ".", "policy.yaml"])
def test_a_plan_says_what_the_gate_could_not_write(
    policy: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is paid: a name of no format, a folder, the policy itself. Nothing is written, also not there."""
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    plan = ["gate", "--policy", policy, "--dry-run", "--cases", "40", "--repeat", "5"]
    assert main([*plan, "-o", "fine.json", "-o", name]) == 2
    found = capsys.readouterr()
    assert (found.out, f"-o {name}: " in found.err) == ("", True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_without_a_plan_it_says_what_to_name(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And a gate without a run says so, too."""
    assert main(["gate", "--policy", policy, "--dry-run"]) == 2
    assert "name what is planned: --baseline NAME, or --cases N and --repeat N" in capsys.readouterr().err
    assert main(["gate", "--policy", policy]) == 2
    assert "name the run to gate" in capsys.readouterr().err
