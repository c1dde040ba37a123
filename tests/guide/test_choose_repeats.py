"""The page on repeats and the page of a policy's keys: what they show is what comes out, and all of it is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.compare.policy import CaseDemand, PerCase, Policy
from evalq.evalcore.compare.single_cases import CasePasses, by_case, case_interval, estimate
from evalq.evalcore.contract.params import validate
from evalq.evalcore.records.yaml import read_document
from evalq.producer.cli import main

DOCS = Path(__file__).parents[2] / "docs"
REPEATS = (DOCS / "how-to" / "choose-repeats.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(yaml|sh|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _shown() -> Iterator[tuple[str, str, str]]:
    """(policy, command, what it prints) of the page, in order."""
    blocks = _BLOCK.findall(REPEATS)
    assert [kind for kind, _ in blocks] == ["yaml", "sh", "text"] * (len(blocks) // 3)
    texts = [text for _, text in blocks]
    yield from zip(texts[::3], texts[1::3], texts[2::3], strict=True)


def test_the_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each block of output as it stands, from the policy above its command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    for policy, command, printed in _shown():
        if "if the mean fell by" not in printed:  # then what is simulated is not shown
            monkeypatch.setattr("evalq.evalcore.compare.outlook._MOST", 1)
            monkeypatch.setattr("evalq.evalcore.compare.outlook._LEAST", 1)
            monkeypatch.setattr("evalq.evalcore.compare.outlook._TRIES", 0)
        words = shlex.split(command)
        Path(words[words.index("--policy") + 1]).write_text(policy)
        assert main(words[1:]) == 0
        assert printed in capfd.readouterr().out


def _share(**given: Any) -> CaseDemand:
    (found,) = validate(PerCase, given, "here").demands
    return found


def test_the_numbers_in_its_text_are_so() -> None:
    """Those that no command prints."""
    eight = _share(min_passes=8, of=10)
    assert case_interval(eight, 8, 10)[0] < 0.5
    for passed, answers in ((17, 17), (25, 26), (44, 48)):
        found = [by_case(eight, [CasePasses("x", m, answers)])[0]["x"] for m in (passed, passed - 1)]
        assert found == ["GO", "INCONCLUSIVE"], (passed, answers)
    assert by_case(eight, [CasePasses("x", 16, 16)])[0]["x"] == "INCONCLUSIVE"
    at, hat = _share(pass_at_k={"k": 5, "min": 0.5}), _share(pass_hat_k={"k": 5, "min": 0.5})
    assert estimate(at, 7000, 10_000) == pytest.approx(0.998, abs=5e-4)
    assert estimate(hat, 7000, 10_000) == pytest.approx(0.168, abs=5e-4)


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


def test_the_example_of_a_policy_is_one_and_has_every_key() -> None:
    """So that a new key comes with an example of how it is written."""
    page = (DOCS / "reference" / "policy.md").read_text(encoding="utf-8")
    example = read_document(dict(_BLOCK.findall(page))["yaml"], "policy.yaml")
    validate(Policy, example, "policy.md")
    schema = Policy.model_json_schema()
    known = {key for model in (schema, *schema["$defs"].values()) for key in model["properties"]}
    assert set(_keys(example)) == known
    assert all(f"\n| `{key}` |" in page for key in known)
