"""A name that decides what an answer is held to: what evalq does not know is listed by it, never taken as another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest
from tests.importing.judged import judged

REGEX = {"function": "regex", "regex_pattern": "answer is (-?[0-9]+)"}
ONE = [{"name": "strict", "filter": [REGEX, {"function": "take_first"}]}]
TWO = [*ONE, {"name": "plain", "filter": [{"function": "take_first"}]}]
EXACT = {"metric": "exact_match", "aggregation": "mean"}


def _lm_eval(folder: Path, config: dict[str, Any], sample: dict[str, Any], name: str = "results") -> Path:
    """Results and samples of one document, answered "The answer is 4."."""
    date = "2024-05-01T10-00-00.123456"
    results = folder / f"{name}_{date}.json"
    results.write_text(json.dumps({"configs": {"t": {"output_type": "generate_until", **config}}, "model_name": "m"}))
    line = {"doc_id": 0, "arguments": [["Q?", {}]], "target": "4", "resps": [["The answer is 4."]], **sample}
    (folder / f"samples_t_{date}.jsonl").write_text(json.dumps(line) + "\n")
    return results


def test_samples_without_a_filter_are_of_the_only_one_that_the_task_has(tmp_path: Path) -> None:
    """Early versions of lm-evaluation-harness do not write it: 1.0 there is a pass here."""
    path = _lm_eval(tmp_path, {"filter_list": ONE, "metric_list": [EXACT]}, {"exact_match": 1.0})
    imported, (judgement,) = judged("lm-eval", path, tmp_path / "e")
    assert judgement.status == "passed"
    assert imported.cases[0]["checks"][0]["name"] == "exact_match,strict"


@pytest.mark.parametrize(
    ("config", "sample", "said"),
    [
        ({"filter_list": TWO}, {"exact_match": 1.0}, "it is not said which one: strict, plain"),
        ({"filter_list": ONE}, {"filter": "acme"}, "the task declares no such filter, but strict"),
        ({"filter_list": ONE}, {"filter": "none"}, "the task declares no such filter, but strict"),
        ({}, {"filter": "strict"}, "the task declares no such filter, but none"),
        ({"process_results": "def f(): ..."}, {"metrics": ["exact_match"]}, "a program of its own"),
        ({"metric_list": [{"metric": "bleu"}]}, {"metrics": ["exact_match"]}, "not in the task's metric_list"),
        ({"metric_list": [{**EXACT, "ignore_spaces": True}]}, {}, "with ignore_spaces, an option that is not known"),
        (
            {"filter_list": [{"name": "a", "filter": [{**REGEX, "flags": 2}, {"function": "take_first"}]}]},
            {"filter": "a"},
            "a filter with flags, an option that is not known",
        ),
    ],
)
def test_what_lm_eval_does_not_say_or_evalq_not_know_makes_no_check(
    config: dict[str, Any], sample: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """No `equals` stands in its place."""
    path = _lm_eval(tmp_path, {"metric_list": [EXACT], **config}, sample)
    imported = sources.read("lm-eval", path, ImportRequest())
    assert not imported.cases
    assert any(said in note.why for note in imported.notes), imported.notes


def test_results_of_any_name_have_the_samples_of_their_date(tmp_path: Path) -> None:
    """--output_path NAME.json writes NAME_DATE.json; both files can be named."""
    path = _lm_eval(tmp_path, {"metric_list": [EXACT]}, {"filter": "none"}, name="llama_run-2")
    (samples,) = tmp_path.glob("samples_*.jsonl")
    for named in (path, samples):
        assert len(sources.read("lm-eval", named, ImportRequest()).cases) == 1


def _inspect(folder: Path, log: dict[str, Any], sample: dict[str, Any]) -> Imported:
    path = folder / "log.json"
    entry = {"id": "a", "epoch": 1, "input": "?", "target": "Paris", "output": {"completion": "It is Paris"}, **sample}
    path.write_text(json.dumps({"version": 2, "samples": [entry], "results": {}} | log))
    return sources.read("inspect", path, ImportRequest())


@pytest.mark.parametrize("name", ["acme/match", "acme/includes", "my.org/inspect_ai/match", "acme/model_graded_qa"])
def test_a_scorer_of_another_package_is_none_of_inspects(name: str, tmp_path: Path) -> None:
    """The whole name in the registry decides."""
    imported = _inspect(tmp_path, {"eval": {"task": "t", "scorers": [{"name": name}]}}, {})
    assert not imported.cases
    (note,) = (note for note in imported.notes if note.what == name)
    assert (note.kind, "no scorer of Inspect's own" in note.why) == ("none", True)


def test_inspects_own_scorers_may_have_its_package_before_them(tmp_path: Path) -> None:
    """As its registry has them."""
    imported = _inspect(tmp_path, {"eval": {"task": "t", "scorers": [{"name": "inspect_ai/includes"}]}}, {})
    assert imported.cases[0]["checks"] == [{"contains": "Paris", "ignore-case": True, "name": "inspect_ai/includes"}]


@pytest.mark.parametrize(
    "results",
    [
        {"scorer": {"name": "includes", "params": {}}, "metrics": {}},
        {"scores": [{"name": "x", "scorer": "includes"}, {"name": "y", "scorer": "includes", "reducer": "mode"}]},
        {"scores": [{"name": "includes"}]},
    ],
)
def test_scorers_of_early_logs_stand_under_results(results: dict[str, Any], tmp_path: Path) -> None:
    """One of several values, or with several reducers, once."""
    imported = _inspect(tmp_path, {"eval": {"task": "t"}, "results": results}, {})
    assert [check["name"] for check in imported.cases[0]["checks"]] == ["includes"]


ASSISTANT = {"role": "assistant", "content": "It is Paris"}


@pytest.mark.parametrize(
    ("sample", "prompt", "seconds"),
    [
        ({"model_usage": {"m": {"input_tokens": 15000}, "n": {"input_tokens": 516}}, "working_time": 9.5}, 15516, 9.5),
        (
            {"events": [{"event": "model", "output": {"usage": {"input_tokens": count}}} for count in (6122, 9394)]},
            15516,
            None,
        ),
        ({"model_usage": {}, "total_time": 3.0}, None, 3.0),
    ],
)
def test_tokens_and_seconds_are_those_of_all_calls_of_a_sample(
    sample: dict[str, Any], prompt: int | None, seconds: float | None, tmp_path: Path
) -> None:
    """Of the last call alone they are not known."""
    output = {"completion": "It is Paris", "usage": {"input_tokens": 6122}, "time": 1.0}
    log = {"eval": {"task": "t", "model": "m", "scorers": [{"name": "includes"}]}}
    imported = _inspect(tmp_path, log, {"output": output, "messages": [ASSISTANT, ASSISTANT], **sample})
    (line,) = imported.outputs["m"]
    assert (line.get("usage", {}).get("input"), line.get("latency_seconds")) == (prompt, seconds)


def test_repeats_are_epochs_wherever_their_samples_stand(tmp_path: Path) -> None:
    """Logs have them in the order in which they ended; one that is there twice comes after all others."""
    samples = [
        {"id": "a", "epoch": epoch, "input": "?", "target": "x", "output": {"completion": text}}
        for epoch, text in ((3, "three"), (1, "one"), (1, "again"), (2, "two"))
    ]
    log = {"eval": {"task": "t", "model": "m", "scorers": [{"name": "includes"}]}, "samples": samples}
    (tmp_path / "log.json").write_text(json.dumps(log))
    imported = sources.read("inspect", tmp_path / "log.json", ImportRequest())
    found = {line["repeat"]: line["output"] for line in imported.outputs["m"]}
    assert found == {0: "one", 1: "two", 2: "three", 3: "again"}


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "string", "format": "email"}, "format: email"),
        ({"properties": {"a": {"items": {"format": "date-time"}}}}, "format: date-time"),
        ({"type": "string", "nullable": True}, "nullable: True"),
        ({"$defs": {"x": {"formatMinimum": "2020-01-01"}}}, "formatMinimum"),
        ({"additionalProperty": False}, "additionalProperty"),
    ],
)
def test_a_keyword_of_a_schema_that_would_not_be_held_to_is_refused_by_name(
    schema: dict[str, Any], word: str, tmp_path: Path
) -> None:
    """promptfoo's validator asserts formats and knows more keywords than the drafts; on others it fails."""
    for kind in ("is-json", "contains-json", "not-is-json"):
        config = {"prompts": ["?"], "tests": [{"assert": [{"type": kind, "value": schema}]}]}
        (tmp_path / "promptfooconfig.json").write_text(json.dumps(config))
        imported = sources.read("promptfoo", tmp_path / "promptfooconfig.json", ImportRequest())
        assert not imported.cases
        assert any(f"`{word}" in note.why for note in imported.notes), imported.notes


def test_names_and_values_that_look_like_such_keywords_are_none(tmp_path: Path) -> None:
    """A property called format, and a value that has the word."""
    schema = {
        "properties": {"format": {"type": "string"}, "nullable": {"const": {"format": "email"}}},
        "definitions": {"format": {"description": "d"}},
        "required": ["format"],
        "if": {"minProperties": 2},
        "then": {"maxProperties": 3},
    }
    config = {"prompts": ["?"], "tests": [{"assert": [{"type": "is-json", "value": schema}]}]}
    (tmp_path / "promptfooconfig.json").write_text(json.dumps(config))
    assert len(sources.read("promptfoo", tmp_path / "promptfooconfig.json", ImportRequest()).cases) == 1
