"""The vocabulary: every check by its name, in the order of the reference page, and those of installed packages."""

from __future__ import annotations

from collections.abc import Mapping

from evalq.evalcore.contract.registry import renewed
from evalq.evalcore.evaluators.checks.vocabulary import (
    captures,
    data,
    judged,
    numbers,
    refusal,
    schema,
    similar,
    team,
    text,
    tools,
    usage,
)
from evalq.evalcore.evaluators.checks.vocabulary.declaring import Kind

__all__ = ["VOCABULARY", "known_kinds"]

VOCABULARY: Mapping[str, Kind] = {
    kind.name: kind
    for module in (text, captures, similar, numbers, data, schema, tools, usage, refusal, judged)
    for kind in module.KINDS
}
"""Those that come with evalq."""


@renewed
def known_kinds() -> Mapping[str, Kind]:
    """All of them, and what installed packages register. Raises ConfigError for one of these that cannot be used."""
    taken = {**VOCABULARY, **dict.fromkeys(("any", "all", "at-least", "name", "weight", "threshold", "at", "count"))}
    return {**VOCABULARY, **{kind.name: kind for kind in team.team_kinds(taken)}}
