"""The vocabulary: every check by its name, in the order of the reference page."""

from __future__ import annotations

from collections.abc import Mapping

from evalq.evalcore.evaluators.checks.vocabulary import (
    captures,
    data,
    numbers,
    refusal,
    schema,
    similar,
    text,
    tools,
    usage,
)
from evalq.evalcore.evaluators.checks.vocabulary.declaring import Kind

__all__ = ["VOCABULARY"]

VOCABULARY: Mapping[str, Kind] = {
    kind.name: kind
    for module in (text, captures, similar, numbers, data, schema, tools, usage, refusal)
    for kind in module.KINDS
}
