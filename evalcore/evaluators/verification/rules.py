"""Patterns as data: what a verification score looks for in a text."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.scan import Pattern, require_searchable

__all__ = ["CountedRule", "Gate", "NamedRule", "Patterns", "Rule"]


class Rule(Params):
    """A regular expression of Python's `re` on str, ignoring case; it is asked whether it occurs in a text.

    Where ``unless`` is given (a negated form, say), it occurs if it does so more often than ``unless``.
    """

    pattern: str = Field(min_length=1)
    dotall: bool = False
    unless: str | None = Field(default=None, min_length=1)

    @property
    def counted(self) -> bool:
        """Whether matches are to be counted, not only found."""
        # "More often than `unless`" takes counts of both.
        return self.unless is not None

    def searched(self) -> list[Pattern]:
        """What to search for: the pattern, and ``unless`` where there is one."""
        sources = [self.pattern] if self.unless is None else [self.pattern, self.unless]
        # In this order: `score` looks for `unless` right behind its pattern. Word boundaries are Unicode's, as those of
        # Python's `re` on str: "Edit를" is no word Edit (SPEC, section 5).
        return [Pattern(source, True, "unicode", self.dotall, self.counted) for source in sources]

    @model_validator(mode="after")
    def _searchable(self) -> Self:
        # Not strict: most rules have no `unless`.
        for pattern, name in zip(self.searched(), ("pattern", "unless"), strict=False):
            try:
                require_searchable(pattern)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return self


class CountedRule(Rule):
    """A rule whose matches are counted: those of the pattern, less those of ``unless``."""

    @property
    def counted(self) -> bool:
        """Always."""
        return True


class NamedRule(Rule):
    """A rule with a ``name`` for the reason to say that it was missing."""

    name: str


class Gate(NamedRule):
    """A quality gate, and the share of the component it gives."""

    weight: float = Field(ge=0, le=1)


class Patterns(Params):
    """Everything the score looks for in a text.

    ``keywords`` are substrings of the lower-cased text, ``keyword_rules`` patterns; distinct ones of both count.
    ``claims`` are unsubstantiated ones; having none is one more piece of evidence.
    """

    edits: CountedRule
    reads: CountedRule
    deploys: CountedRule
    health: CountedRule
    keywords: tuple[str, ...] = ()
    keyword_rules: tuple[Rule, ...] = ()
    evidence: tuple[NamedRule, ...]
    claims: tuple[Rule, ...]
    code_changes: Rule
    test_command: Rule
    test_result: Rule
    gates: tuple[Gate, ...]
