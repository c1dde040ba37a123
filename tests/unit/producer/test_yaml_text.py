"""YAML is the same bytes whether libyaml wrote it or PyYAML's Python."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from evalq.evalcore.records.core_yaml import Dumper, FastDumper
from evalq.producer.outputs import yaml_text as writing
from evalq.producer.outputs.yaml_text import yaml_text

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
    some.text(some.characters(exclude_categories=["Cs"]), max_size=120)
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


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(DOCUMENTS, some.booleans())
def test_both_write_the_same(document: dict[str, Any], sort: bool) -> None:
    """Whatever stands in it."""
    wanted = yaml.dump(document, Dumper=Dumper, allow_unicode=True, sort_keys=sort)
    assert yaml_text(document, sort_keys=sort) == wanted


KEYS = some.sampled_from(["a", "rounds", "1/1", "yes", "on", "null", "k", "", "a b", "x" * 130, "\u00e9"])
DEEP = some.recursive(
    LEAVES, lambda inner: some.lists(inner, max_size=6) | some.dictionaries(KEYS, inner, max_size=6), max_leaves=40
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(some.dictionaries(KEYS, DEEP, max_size=6), some.integers(1, 12), some.booleans())
def test_pieces_are_the_bytes_of_the_whole(document: dict[str, Any], at_once: int, sort: bool) -> None:
    """However few values are written together."""
    wanted = yaml.dump(document, Dumper=Dumper, allow_unicode=True, sort_keys=sort)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_AT_ONCE", at_once)
        assert yaml_text(document, sort_keys=sort) == wanted


@pytest.mark.parametrize("made", [dict, list], ids=["of many keys", "of a long list"])
def test_a_long_document_is_written_in_little_memory(
    made: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What PyYAML holds of a value until all are written is fifty times the text of it."""
    monkeypatch.setattr(writing, "_AT_ONCE", 200)
    entries = [{"a": n, "b": {"c": [n]}} for n in range(1_000)]
    value = entries if made is list else {f"{n}/1": entry for n, entry in enumerate(entries)}
    tracemalloc.start()
    try:
        text = yaml_text({"results": {"of": value}})
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < 12 * len(text)


def test_a_plain_report_is_written_by_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one in Korean, with a list that stands in it twice, and long lines; one with an emoji is not."""
    shared = ["\ud55c\uae00 " * 60, {"a": "b: c " * 40}]
    document = {"params": {"cases": [shared, shared]}, "x": 1e-7, "empty": [{}, []]}
    wanted = yaml.dump(document, Dumper=Dumper, allow_unicode=True, sort_keys=False)
    assert yaml_text(document) == wanted
    by: list[object] = []
    real = yaml.dump

    def dump(*args: Any, **more: Any) -> Any:
        by.append(more["Dumper"])
        return real(*args, **more)

    monkeypatch.setattr(yaml, "dump", dump)
    yaml_text(document)
    yaml_text({**document, "y": "\U0001f600"})
    assert by == [FastDumper or Dumper, Dumper]
