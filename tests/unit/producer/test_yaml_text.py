"""YAML is read back as it was written, by readers of YAML 1.1 and of 1.2, with libyaml and without it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from evalq.evalcore.records import yaml as core_yaml
from evalq.producer.outputs import final
from evalq.producer.outputs.final import yaml_text

ODD = [
    "yes",
    "null",
    "~",
    "1e5",
    "0x1F",
    "=",
    "<<",
    "2026-01-01",
    "- a",
    "a: b",
    "#",
    "&a",
    "*b",
    "? x",
    "---",
    "...",
    " a",
]
TEXTS = (
    some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\x85\u2028\u2029"), max_size=120)
    | some.text("ab :#-'\"?!&*%,[]{}|>@`=~<\u00e9\ud55c\n\x07\U0001f600", max_size=160)
    | some.sampled_from(ODD)
    | some.text("a ", min_size=80, max_size=180)
)
LEAVES = some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | TEXTS
DOCUMENTS = some.dictionaries(
    TEXTS,
    some.recursive(
        LEAVES, lambda inner: some.lists(inner, max_size=4) | some.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
    ),
    max_size=3,
)


WORDS = [*ODD, "no", "12:30", "0o17", "1_000", "y", "on", ".inf", "2026-01-31T12:00:00Z", "\U0001f600", "a" * 200]
BREAKS = ["\x85", "a\u2028b", "\u2029"]
"""Line breaks of YAML 1.1, which PyYAML writes bare without libyaml."""
DUMPERS = [core_yaml.FastDumper or core_yaml.Dumper, core_yaml.Dumper]


@pytest.mark.parametrize("dumper", DUMPERS, ids=["libyaml", "Python"])
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=DOCUMENTS, sort=some.booleans())
def test_both_versions_read_what_was_written(dumper: Any, document: dict[str, Any], sort: bool) -> None:
    """Whatever stands in it, with both dumpers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(final, "FastDumper", dumper)
        text = yaml_text(document, sort_keys=sort)
    assert yaml.safe_load(text) == document
    assert core_yaml.load(text) == document


@pytest.mark.parametrize("word", WORDS + (BREAKS if core_yaml.FastDumper else []))
def test_a_text_stays_a_text(word: str) -> None:
    """Also one that YAML 1.1 or 1.2 would take for a number, a date, a truth or nothing; as a key, too."""
    document = {"text": word, word: [word]}
    for read in (yaml.safe_load, core_yaml.load):
        assert read(yaml_text(document)) == document


def test_a_report_is_the_same_bytes_without_libyaml() -> None:
    """Of plain text, also in Korean, with a list that stands in it twice, and lines of usual length."""
    shared = ["\ud55c\uae00 ", {"a": "b: c"}]
    document = {"params": {"cases": [shared, shared]}, "x": 1e-7, "empty": [{}, []]}
    assert yaml_text(document) == yaml.dump(document, Dumper=core_yaml.Dumper, allow_unicode=True, sort_keys=False)
