"""YAML is the same bytes whether libyaml wrote it or PyYAML's Python."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

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
    some.text(some.characters(exclude_categories=["Cs"]), max_size=200)
    | some.text("ab :#-'\"?!&*%,[]{}|>@`=~<\u00e9\ud55c\n\x07\U0001f600", max_size=300)
    | some.sampled_from(ODD)
    | some.text("a ", min_size=80, max_size=300)
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
    wanted = yaml.safe_dump(document, allow_unicode=True, sort_keys=sort)
    assert yaml_text(document, sort_keys=sort) == wanted


def test_a_plain_report_is_written_by_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one in Korean, with a list that stands in it twice, and long lines; one with an emoji is not."""
    shared = ["\ud55c\uae00 " * 60, {"a": "b: c " * 40}]
    document = {"params": {"cases": [shared, shared]}, "x": 1e-7, "empty": [{}, []]}
    wanted = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
    assert yaml_text(document) == wanted
    by: list[object] = []
    real = yaml.dump

    def dump(*args: Any, **more: Any) -> Any:
        by.append(more["Dumper"])
        return real(*args, **more)

    monkeypatch.setattr(yaml, "dump", dump)
    yaml_text(document)
    yaml_text({**document, "y": "\U0001f600"})
    assert by == [getattr(yaml, "CSafeDumper", yaml.SafeDumper), yaml.SafeDumper]
