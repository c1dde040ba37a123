"""Results and samples that lm-evaluation-harness wrote: the same exact matches, by filter."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import re2

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing import sources
from evalq.producer.importing.imported import ImportRequest
from tests.importing.judged import judged
from tests.importing.record import HERE

FOLDER = HERE / "lm-eval"
(RESULTS,) = FOLDER.glob("results_*.json")


def _prompt(sample: dict[str, Any]) -> str:
    return str(sample["arguments"]["gen_args_0"]["arg_0"])


def test_exact_matches_are_the_verdicts_of_the_checks(tmp_path: Path) -> None:
    """Of every document and filter that has a counterpart: take_first is the first repeat."""
    imported, judgements = judged("lm-eval", RESULTS, tmp_path)
    asked = {case["id"]: (case["tags"][0], case["input"]) for case in imported.cases}
    first = {asked[each.plan.case.id]: each for each in judgements if each.plan is not None and each.repeat == 0}
    lost = {note.what.removeprefix("filter ") for note in imported.notes}
    compared: Counter[str] = Counter()
    for task in ("sums", "plain"):
        (samples,) = FOLDER.glob(f"samples_{task}_*.jsonl")
        for sample in map(json.loads, samples.read_text().splitlines()):
            verdicts = {verdict.name: verdict for verdict in first[f"task:{task}", _prompt(sample)].checks}
            name = f"exact_match,{sample['filter']}"
            assert (name in verdicts) != (sample["filter"] in lost)
            if name in verdicts:
                assert verdicts[name].passed == (sample["exact_match"] == 1.0), (sample, verdicts[name])
                compared[f"{task} {sample['filter']}"] += 1
    assert compared == {"sums strict": 13, "sums last": 13, "sums words": 13, "plain none": 13}


def test_every_response_is_a_repeat_of_its_document(tmp_path: Path) -> None:
    """With the prompt that was asked, and the target as what is expected."""
    imported, judgements = judged("lm-eval", RESULTS, tmp_path)
    sums = next(case for case in imported.cases if case["input"] == "Q: 1: 1 + 1?\nA:")
    plain = next(case for case in imported.cases if case["input"] == "1: 1 + 1?")
    assert (sums["expected"], sums["tags"], plain["tags"]) == ("4", ["task:sums"], ["task:plain"])
    repeats = Counter(each.plan.case.id for each in judgements if each.plan is not None)
    assert repeats[sums["id"]] == 2
    assert repeats[plain["id"]] == 1


def test_a_document_that_is_there_twice_is_listed(tmp_path: Path) -> None:
    """As in samples of several runs in one file: its checks and answers are no further ones of the first."""
    (tmp_path / RESULTS.name).write_bytes(RESULTS.read_bytes())
    (samples,) = FOLDER.glob("samples_plain_*.jsonl")
    lines = samples.read_text().splitlines()
    again = json.dumps(json.loads(lines[0]) | {"target": "another", "resps": [["another"]]})
    (tmp_path / samples.name).write_text("\n".join([*lines, again]) + "\n")
    once, twice = (sources.read("lm-eval", path, ImportRequest()) for path in (samples, tmp_path / samples.name))
    assert (twice.cases, twice.outputs) == (once.cases, once.outputs)
    (note,) = (note for note in twice.notes if note.where.endswith(f":{len(lines) + 1}"))
    assert note.why == "this document and filter are there before: it is of another run, import that by itself"


def test_probabilities_votes_and_other_measures_are_listed() -> None:
    """Each with its place in the results."""
    imported = sources.read("lm-eval", RESULTS, ImportRequest())
    noted = {note.what: note.where for note in imported.notes}
    assert noted["choices: multiple_choice"].endswith("configs.choices.output_type")
    assert "filter vote" in noted
    assert "plain: bleu" in noted


def test_samples_alone_are_read_with_the_results_beside_them(tmp_path: Path) -> None:
    """Of one task, then."""
    (samples,) = FOLDER.glob("samples_plain_*.jsonl")
    imported, _ = judged("lm-eval", samples, tmp_path)
    assert {case["tags"][0] for case in imported.cases} == {"task:plain"}
    alone = tmp_path / samples.name
    alone.write_bytes(samples.read_bytes())
    with pytest.raises(ConfigError, match="results_"):
        sources.read("lm-eval", alone, ImportRequest())


@pytest.mark.parametrize("name", ["other.json", "results_2026-01-01T00-00-00.1.json"])
def test_other_files_are_refused(name: str, tmp_path: Path) -> None:
    """With the names that are wanted."""
    (tmp_path / name).write_text("{}")
    with pytest.raises(ConfigError, match=r"samples_TASK_|results_DATE"):
        sources.read("lm-eval", tmp_path / name, ImportRequest())


def test_a_pattern_that_a_later_python_may_read_otherwise_is_taken_without_a_word_of_it(tmp_path: Path) -> None:
    """Its warning names a line of evalq, and neither the file nor the pattern: "[[" is of sets within sets."""
    for file in FOLDER.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    results = tmp_path / RESULTS.name
    pattern = "answer is ([[0-9-]+)"
    results.write_text(results.read_text().replace("answer is (-?[0-9]+)", pattern))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        imported = sources.read("lm-eval", results, ImportRequest())
    checks = [check for case in imported.cases for check in case.get("checks", ()) if "captures" in check]
    assert [check for check in checks if re2.search(check["captures"], "answer is [42")]
    assert all("strict" not in note.what for note in imported.notes)
