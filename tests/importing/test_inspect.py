"""Logs that Inspect wrote with its mock model: the same scores for match, includes, pattern and choice."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing import sources
from evalq.producer.importing.imported import ImportRequest
from evalq.producer.importing.reading import Archive
from tests.importing.judged import judged
from tests.importing.record import HERE


def _log(name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The scorers and the samples of a log."""
    path = HERE / name
    if path.suffix == ".json":
        data = json.loads(path.read_text())
        return data["eval"]["scorers"], data["samples"]
    with Archive(path) as archive:
        samples = [archive.read(each) for each in archive.names if each.startswith("samples/")]
        return archive.read("header.json")["eval"]["scorers"], samples


@pytest.mark.parametrize(
    ("name", "scorers"),
    [
        ("inspect-capitals.json", {"match": 100, "includes": 40, "pattern": 20}),
        ("inspect-epochs.eval", {"match": 20, "includes": 20, "pattern": 20}),
        ("inspect-choices.eval", {"choice": 18}),
    ],
)
def test_recorded_scores_are_the_verdicts_of_the_checks(name: str, scorers: dict[str, int], tmp_path: Path) -> None:
    """Of every sample, epoch and scorer."""
    declared, samples = _log(name)
    imported, judgements = judged("inspect", HERE / name, tmp_path)
    assert len(judgements) == len(samples)
    compared: Counter[str] = Counter()
    lost = {note.where.rpartition("[")[2] for note in imported.notes if "eval.scorers[" in note.where}
    kept = [index for index in range(len(declared)) if f"{index}]" not in lost]
    for sample, judgement in zip(samples, judgements, strict=True):
        scores = list(sample["scores"].values())
        assert len(scores) == len(declared)
        assert len(judgement.checks) == len(kept)
        for index, verdict in zip(kept, judgement.checks, strict=True):
            messages = (sample["id"], declared[index], judgement.text, scores[index], verdict)
            assert verdict.passed == (scores[index]["value"] == "C"), messages
            compared[verdict.name.rpartition("/")[2]] += 1
    assert compared == scorers


def test_epochs_are_repeats_and_tokens_and_seconds_are_kept(tmp_path: Path) -> None:
    """Inputs too: texts, and chat messages as they are."""
    imported, judgements = judged("inspect", HERE / "inspect-epochs.eval", tmp_path)
    assert [case["id"] for case in imported.cases] == ["epochs-x", "epochs-y"]
    assert imported.cases[1]["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Two?"},
    ]
    assert imported.cases[0]["expected"] == ["Paris", "b"]
    assert sorted(judgement.repeat or 0 for judgement in judgements) == sorted([*range(10)] * 2)
    assert all(judgement.usage.prompt_tokens == 7 for judgement in judgements)
    assert all(judgement.usage.latency is not None for judgement in judgements)


def test_samples_of_one_id_that_ask_something_else_are_cases_of_their_own(tmp_path: Path) -> None:
    """As in logs that were put together; and 1 is not "1". An answer is never held to another sample's target."""
    scorers = [{"name": "includes", "options": {}}]
    messages = [(1, "Paris"), ("1", "Rome"), (1, "Bern"), (1, "Paris")]
    samples = [{"id": name, "input": "?", "target": city, "output": {"completion": city}} for name, city in messages]
    log = {"version": 2, "eval": {"task": "t", "model": "m", "scorers": scorers}, "samples": samples}
    (tmp_path / "log.json").write_text(json.dumps(log))
    imported, judgements = judged("inspect", tmp_path / "log.json", tmp_path)
    assert [case["expected"] for case in imported.cases] == ["Paris", "Rome", "Bern"]
    assert [(each.status, each.repeat) for each in judgements] == [("passed", 0)] * 3 + [("passed", 1)]


def test_what_has_no_counterpart_is_listed() -> None:
    """Scorers that normalise by rules of their own, and the model."""
    imported = sources.read("inspect", HERE / "inspect-capitals.json", ImportRequest())
    noted = {note.what: note for note in imported.notes}
    assert noted["exact"].where.endswith("eval.scorers[8]")
    assert "mockllm/model" in noted
    imported = sources.read("inspect", HERE / "inspect-epochs.eval", ImportRequest())
    assert any("normalises numbers" in note.why for note in imported.notes)


@pytest.mark.parametrize("change", ["short", "flipped", "none", "empty", "bomb"])
def test_a_broken_log_is_an_error_that_names_it(change: str, tmp_path: Path) -> None:
    """Cut short, damaged, no zip file at all, one without samples, one that says it is longer than is read."""
    data = bytearray((HERE / "inspect-choices.eval").read_bytes())
    if change == "short":
        data = data[: len(data) // 2]
    elif change == "flipped":
        data[data.rfind(b"\x28\xb5\x2f\xfd") + 12] ^= 0xFF
    elif change == "none":
        data = bytearray(b"not a zip file")
    path = tmp_path / "log.eval"
    path.write_bytes(data)
    if change in ("empty", "bomb"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr("header.json", "{}" if change == "empty" else b" " * (257 << 20))
    with pytest.raises(ConfigError, match=r"log\.eval"):
        sources.read("inspect", path, ImportRequest())


@pytest.mark.parametrize("content", ["{}", "[]", '{"eval": {}}', '{"eval": {}, "samples": null}', "{"])
def test_a_file_that_is_no_log_is_an_error(content: str, tmp_path: Path) -> None:
    """And says what is missing."""
    path = tmp_path / "log.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"log\.json"):
        sources.read("inspect", path, ImportRequest())
