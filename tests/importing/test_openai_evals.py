"""An eval with output items, written here by the documented form of OpenAI's API: the service is not to be had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing import sources
from evalq.producer.importing.imported import ImportRequest
from tests.importing.judged import judged
from tests.importing.record import MADE

EVAL = MADE / "openai_evals.json"


def test_string_checks_are_checks_with_the_verdicts_of_the_items(tmp_path: Path) -> None:
    """eq, ne, like and ilike of the answer; a failed sample is an error."""
    imported, judgements = judged("openai-evals", EVAL, tmp_path)
    items = json.loads(EVAL.read_text())["output_items"]["data"]
    assert [each.status for each in judgements] == ["passed", "failed", "failed", "error"]
    for item, judgement in zip(items[:3], judgements, strict=False):
        said = {result["name"]: result["passed"] for result in item["results"]}
        assert {verdict.name: verdict.passed for verdict in judgement.checks} == said
    assert len({case["id"] for case in imported.cases}) == len(imported.cases) == 3
    assert imported.cases[0]["input"][1] == {"role": "user", "content": "My printer smokes"}
    assert imported.cases[1]["input"] == {"text": "Hello {{item.label}}", "label": "none"}
    assert [judgement.repeat for judgement in judgements] == [0, 1, 0, 0]
    assert judgements[0].usage.prompt_tokens == 12


def test_other_graders_are_listed_and_never_run() -> None:
    """Models, code and similarities; checks of the row alone."""
    notes = {note.what: note for note in sources.read("openai-evals", EVAL, ImportRequest()).notes}
    assert notes["polite (label_model)"].kind == "later"
    assert notes["code (python)"].where.endswith("testing_criteria[7]")
    assert {"near (text_similarity)", "of the row"} <= set(notes)
    assert not Path("ran").exists()


@pytest.mark.parametrize("beside", [False, True])
def test_one_page_of_output_items_is_said_to_be_one(beside: bool, tmp_path: Path) -> None:
    """The API gives them page by page, and what the file lacks would be missed by nobody."""
    data = json.loads(EVAL.read_text())
    data["output_items"]["has_more"] = True
    if beside:
        (tmp_path / "output_items.json").write_text(json.dumps(data.pop("output_items")))
    (tmp_path / "eval.json").write_text(json.dumps(data))
    (note,) = [
        note
        for note in sources.read("openai-evals", tmp_path / "eval.json", ImportRequest()).notes
        if note.what == "further output items"
    ]
    place = "output_items.json: has_more" if beside else "eval.json: output_items.has_more"
    assert note.where == f"{tmp_path}/{place}"


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_output_items_may_lie_beside_the_eval(form: str, tmp_path: Path) -> None:
    """As the API's list, or a line each."""
    data = json.loads(EVAL.read_text())
    items = data.pop("output_items")
    (tmp_path / "eval.json").write_text(json.dumps(data))
    text = json.dumps(items) if form == "json" else "".join(f"{json.dumps(item)}\n" for item in items["data"])
    (tmp_path / f"output_items.{form}").write_text(text)
    whole, apart = (sources.read("openai-evals", path, ImportRequest()) for path in (EVAL, tmp_path / "eval.json"))
    assert (whole.cases, whole.outputs) == (apart.cases, apart.outputs)


def test_items_of_another_data_source_are_cases_of_their_own(tmp_path: Path) -> None:
    """Their numbers begin anew: an answer is never held to the row of another source."""
    grader = {"type": "string_check", "name": "m", "input": "{{sample.output_text}}", "operation": "eq",
              "reference": "{{item.answer}}"}  # fmt: skip
    items = [
        {"datasource_item_id": 0, "datasource_item": {"answer": answer}, "sample": {"output_text": answer}}
        for answer in ("a", "b", "a")
    ]
    (tmp_path / "eval.json").write_text(json.dumps({"testing_criteria": [grader], "output_items": items}))
    imported, judgements = judged("openai-evals", tmp_path / "eval.json", tmp_path)
    assert len(imported.cases) == 2
    assert [(each.status, each.repeat) for each in judgements] == [("passed", 0), ("passed", 0), ("passed", 1)]


@pytest.mark.parametrize("content", ["{}", "[]", '{"testing_criteria": []}', "{"])
def test_a_file_of_something_else_is_an_error(content: str, tmp_path: Path) -> None:
    """And says what is missing."""
    (tmp_path / "eval.json").write_text(content)
    with pytest.raises(ConfigError, match=r"eval\.json"):
        sources.read("openai-evals", tmp_path / "eval.json", ImportRequest())
