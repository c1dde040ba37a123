"""Every evaluator says when something that it reads occurs in no record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.fold import Evaluation, evaluate_files
from tests.unit.planagent import helpers


def notices(evaluator: str, found: Evaluation) -> str:
    """The notes that a command prints before the report."""
    return "\n".join(plugins.get(evaluator).views.notices(found.report))


def lines(path: Path, records: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


@pytest.mark.parametrize(
    ("rows", "params", "notice"),
    [
        ([helpers.row(expected="-")], {}, "no row has a check that can be read from 기대결과"),
        ([helpers.row(raw="네")], {}, "no row has JSON in Raw JSON, so every score is 0"),
        ([helpers.row(raw=helpers.answer(seconds=None))], {}, "no row has a responseTimeSec in Raw JSON"),
        ([helpers.row()], {"rules": {"accuracy": "llm_when_present"}}, "no row has an LLM 점수"),
    ],
)
def test_planagent_names_a_column_that_no_row_fills(
    tmp_path: Path, rows: list[helpers.Row], params: dict[str, Any], notice: str
) -> None:
    """One row that fills it is enough to say nothing."""
    assert notice in notices("planagent", helpers.evaluation(tmp_path, rows, params))
    good = helpers.row("good", llm="5")
    assert notices("planagent", helpers.evaluation(tmp_path, [*rows, good], params)) == ""


def test_checks_names_a_check_that_no_output_passes_and_cases_without_an_output(tmp_path: Path) -> None:
    """From twenty outputs on, fewer may fail by chance."""
    cases = lines(
        tmp_path / "cases.jsonl",
        [{"id": f"q{n}", "checks": [{"contains": "yes"}, {"regex": "nowhere"}, {"max-cost": 1}]} for n in range(21)],
    )
    said = []
    for count in (19, 20):
        outputs = lines(tmp_path / "o.jsonl", [{"case": f"q{n}", "output": "yes"} for n in range(count)])
        said.append(notices("checks", evaluate_files("checks", [cases], options={"outputs": [outputs]})))
    assert said[0] == "2 of 21 cases have no output; the first: q19"
    assert "no output of 20 passes the check regex: does what it looks for occur at all" in said[1]
    assert "can be computed for none of 20 outputs" in said[1]
    assert "1 of 21 cases have no output; the first: q20" in said[1]


def test_vs_names_options_and_cases_that_no_output_has(tmp_path: Path) -> None:
    """Collapse is measured by the option of each output."""
    golden = tmp_path / "golden.yaml"
    golden.write_text(
        "test_cases:\n  full_vs_tests:\n"
        + "".join(f"  - {{id: {name}, agent: 02-theoretical-framework-architect}}\n" for name in ("FULL-01", "b"))
    )
    sample = plugins.get("vs").sample
    assert sample is not None
    written = sample.write(tmp_path, 60, 1)
    records = [json.loads(line) for line in Path(written.options["outputs"][0]).read_text().splitlines()]
    record = next(each for each in records if each["case"] == "FULL-01" and "output" in each)
    outputs = lines(tmp_path / "o.jsonl", [record])
    complete = notices("vs", evaluate_files("vs", [golden], options={"outputs": [outputs]}))
    assert "final_selection" not in complete
    del record["output"]["vs_metadata"]["final_selection"]
    outputs = lines(tmp_path / "o.jsonl", [record])
    said = notices("vs", evaluate_files("vs", [golden], options={"outputs": [outputs]}))
    assert "no output has a final_selection.option" in said
    assert "1 of 2 cases have no output; the first: b" in said


def test_selfcheck_names_keys_that_no_record_has(tmp_path: Path) -> None:
    """Records under other keys fail one and all."""
    strange = lines(tmp_path / "a.jsonl", [{"report": "done"}] * 3)
    assert "no record has testOutput, requirementsList" in notices("selfcheck", evaluate_files("selfcheck", [strange]))


def test_cooperation_names_decisions_and_snapshots_that_no_row_has(tmp_path: Path) -> None:
    log = lines(tmp_path / "a.jsonl", [{"turn": 1, "agent": "a", "decision": "SHARE", "resources": {"gold": 1}}])
    said = notices("cooperation", evaluate_files("cooperation", [log]))
    assert "o decision in a.jsonl is a word of the rules (there are: share x 1)" in said
    assert "o row of a.jsonl has the resource" in said


@pytest.mark.parametrize("name", sorted(plugins.entries()))
def test_a_sample_has_everything(name: str, tmp_path: Path) -> None:
    """Nobody is warned of a file that is as it should be."""
    sample = plugins.get(name).sample
    if sample is None:
        return
    request = sample.write(tmp_path, 60, 1)
    found = evaluate_files(name, request.inputs, request.params, options=request.options)
    assert [notice for notice in plugins.get(name).views.notices(found.report) if notice.startswith("no ")] == []
