"""Forms of the same things that tools read as well: tools as text, and OpenAI's public registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest

_CALL = {"name": "search", "arguments": {"q": "x"}}


def _deepeval(folder: Path, **more: Any) -> Imported:
    (folder / "goldens.json").write_text(json.dumps([{"input": "?", "actual_output": "a", **more}]))
    return sources.read("deepeval", folder / "goldens.json", ImportRequest())


@pytest.mark.parametrize(
    "tools",
    [
        [{"name": "search", "input_parameters": {"q": "x"}}],
        [{"name": "search", "inputParameters": {"q": "x"}}],
        [{"name": "search", "arguments": '{"q": "x"}'}],
        [{"tool_name": "search", "args": {"q": "x"}}],
        [{"type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}],
        '[{"name": "search", "input_parameters": {"q": "x"}}]',
        '{"name": "search", "parameters": {"q": "x"}}',
    ],
    ids=str,
)
def test_tools_are_read_in_every_spelling_and_as_text(tools: Any, tmp_path: Path) -> None:
    """Those that were called, and those that are expected."""
    imported = _deepeval(tmp_path, tools_called=tools, expected_tools=tools)
    assert imported.cases[0]["checks"] == [{"tool-calls": ["search"]}]
    assert imported.outputs["outputs"][0]["tool_calls"] == [_CALL]


def test_names_of_tools_as_text_stand_between_semicolons(tmp_path: Path) -> None:
    """As DeepEval reads a CSV file."""
    imported = _deepeval(tmp_path, tools_called="search; answer", expected_tools="search")
    assert imported.cases[0]["checks"] == [{"tool-calls": ["search"]}]
    assert [call["name"] for call in imported.outputs["outputs"][0]["tool_calls"]] == ["search", "answer"]
    text = "input,actual_output,tools_called,expected_tools\n?,a,search;answer,search\n"
    (tmp_path / "goldens.csv").write_text(text)
    of_csv = sources.read("deepeval", tmp_path / "goldens.csv", ImportRequest())
    assert (of_csv.cases, of_csv.outputs) == (imported.cases, imported.outputs)


@pytest.mark.parametrize("tools", ["[ToolCall(name='search')]", '["search"', 5, [{"arguments": {}}], [None]], ids=str)
def test_tools_that_cannot_be_read_are_listed(tools: Any, tmp_path: Path) -> None:
    """And none is made up."""
    imported = _deepeval(tmp_path, expected_tools=tools)
    assert not imported.cases
    assert any(note.what.startswith("expected_tools") for note in imported.notes)


BASIC = "evals.elsuite.basic."


def _registry(folder: Path, kind: str, samples: list[Any], **args: Any) -> Path:
    """A registry as the repository has it: evals and data beside each other."""
    (folder / "evals").mkdir()
    (folder / "data" / "sums").mkdir(parents=True)
    (folder / "data" / "sums" / "samples.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in samples))
    arguments = json.dumps({"samples_jsonl": "sums/samples.jsonl", **args})
    text = f"sums:\n  id: sums.dev.v0\n  metrics: [accuracy]\nsums.dev.v0:\n  class: {kind}\n  args: {arguments}\n"
    (folder / "evals" / "sums.yaml").write_text(text)
    return folder / "evals" / "sums.yaml"


CHAT = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1"}]


@pytest.mark.parametrize(
    ("kind", "ideal", "args", "check"),
    [
        ("match:Match", "2", {}, {"starts-with": "2"}),
        ("match:Match", ["2", "two"], {"max_tokens": 9}, {"any": [{"starts-with": "2"}, {"starts-with": "two"}]}),
        ("includes:Includes", ["2"], {}, {"contains": "2"}),
        ("includes:Includes", ["2", "two"], {"ignore_case": True}, {"contains-any": ["2", "two"], "ignore-case": True}),
        ("json_validator:JsonValidator", None, {}, {"is-json": True}),
    ],
)
def test_the_public_registry_is_read(
    kind: str, ideal: Any, args: dict[str, Any], check: dict[str, Any], tmp_path: Path
) -> None:
    """YAML with the samples that it names: chats and texts, one ideal answer or several."""
    samples = [{"input": CHAT, "ideal": ideal}, {"input": "2 + 0", "ideal": ideal}]
    imported = sources.read("openai-evals", _registry(tmp_path, BASIC + kind, samples, **args), ImportRequest())
    assert [case["input"] for case in imported.cases] == [CHAT, "2 + 0"]
    assert [case["checks"] for case in imported.cases] == [[check], [check]]
    assert all(case["id"].startswith("sums.dev.v0-") for case in imported.cases)


@pytest.mark.parametrize(
    ("kind", "args", "said"),
    [
        ("acme.match:Match", {}, "as this class does"),
        (f"{BASIC}fuzzy_match:FuzzyMatch", {}, "as this class does"),
        ("evals.elsuite.modelgraded.classify:ModelBasedClassify", {"modelgraded_spec": "fact"}, "a model judges"),
        (f"{BASIC}match:Match", {"num_few_shot": 2}, "other samples"),
        (f"{BASIC}match:Match", {"separator": " "}, "given separator"),
        (f"{BASIC}match:Match", {"samples_jsonl": "absent.jsonl"}, "at none of"),
        (f"{BASIC}match:Match", {"samples_jsonl": "../../secret.jsonl"}, "is outside"),
    ],
)
def test_a_class_that_is_no_check_is_listed_by_its_name(
    kind: str, args: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """A class of somebody else's is not the registry's own of that name."""
    (tmp_path / "registry").mkdir()
    (tmp_path / "secret.jsonl").write_text('{"input": "a", "ideal": "b"}\n')
    path = _registry(tmp_path / "registry", kind, [{"input": "?", "ideal": "a"}], **args)
    imported = sources.read("openai-evals", path, ImportRequest())
    assert not imported.cases
    (note,) = imported.notes
    assert said in note.why
    assert note.what == f"sums.dev.v0 ({kind})"


def test_samples_alone_are_cases_by_the_check_that_is_asked_for(tmp_path: Path) -> None:
    """Without the YAML nobody knows how they are compared."""
    samples = [{"input": CHAT, "ideal": "2"}, {"input": "", "ideal": "2"}, 5]
    path = _registry(tmp_path, f"{BASIC}match:Match", samples).parents[1] / "data" / "sums" / "samples.jsonl"
    imported = sources.read("openai-evals", path, ImportRequest(checks=("contains",)))
    assert [(case["input"], case["checks"], case["expected"]) for case in imported.cases] == [(CHAT, ["contains"], "2")]
    assert len(imported.notes) == 2
    assert not sources.read("openai-evals", path, ImportRequest()).cases


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "prompts: [a]\n", "no entry has a class"),
        ("a.yaml", "[]", "no entry has a class"),
        ("a.jsonl", "version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("a.jsonl", "{", "not JSON"),
    ],
)
def test_what_is_no_registry_is_an_error_that_says_what_is_missing(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    """With its file."""
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        sources.read("openai-evals", tmp_path / name, ImportRequest())
    assert str(tmp_path / name) in str(caught.value)
