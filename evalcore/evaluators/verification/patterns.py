r"""The patterns that a verification score searches for in a text, as data: their types and the two sets.

DEFAULT is the specification's set. Where its pattern has no ``\b`` it finds parts of words: "unverified" contains the
keyword "verified". HARDENED finds whole words in all their inflections, and ignores a word that one of the three words
before it negates. On examples/labelled.jsonl HARDENED's verdict is the label in 24 of 24 cases, DEFAULT's in 21. These
cases were written to show where the sets differ; they are no estimate.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.scan import Pattern, require_searchable


class Rule(Params):
    """A regular expression of Python's `re` on str, ignoring case; it may occur in a text.

    With ``unless`` (say, a negated form), the rule occurs if ``pattern`` matches more often than ``unless``.
    """

    pattern: str = Field(min_length=1)
    dotall: bool = False
    unless: str | None = Field(default=None, min_length=1)

    @property
    def counted(self) -> bool:
        """Whether matches are to be counted, not only found."""
        # "More often than `unless`" takes counts of both.
        return self.unless is not None

    def search_patterns(self) -> list[Pattern]:
        """The patterns to search for: the pattern, and ``unless`` if it is given."""
        sources = [self.pattern] if self.unless is None else [self.pattern, self.unless]
        # In this order: `score` expects `unless` right after its pattern. Word boundaries are Unicode's, as in
        # Python's `re` on str: "Edit를" is not the word Edit (SPEC, section 5).
        return [Pattern(source, True, "unicode", self.dotall, self.counted) for source in sources]

    @model_validator(mode="after")
    def _searchable(self) -> Self:
        # Not strict: most rules have no `unless`.
        for pattern, name in zip(self.search_patterns(), ("pattern", "unless"), strict=False):
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


class QualityGate(NamedRule):
    """A quality gate, and the share of the component it gives."""

    weight: float = Field(ge=0, le=1)


class Patterns(Params):
    """All patterns that the score searches for in a text.

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
    gates: tuple[QualityGate, ...]


_LINE = NamedRule(name="line reference", pattern=r"line\s+\d+")
# A line feed right before the closing marks, so that an indented fence does not count; below, the marks around a quote
# may differ. Both are SPEC's (section 5).
_FENCE = NamedRule(name="code fence", pattern=r"```\w*\n.*?\n```", dotall=True)
_OUTPUT = NamedRule(name="quoted output", pattern=r"""(?:output|result|response):\s*[`"'].*?[`"']""")

# SPEC, section 5, to the letter. `flow` matches every "workflow", and `tsc` parts of other words: HARDENED fixes that.
DEFAULT = Patterns(
    edits=CountedRule(pattern=r"\b(?:Edit|Write)\b"),
    reads=CountedRule(pattern=r"(?:Edit|Write).*?Read", dotall=True),
    deploys=CountedRule(pattern=r"\b(?:deploy|start|launch)\b"),
    health=CountedRule(pattern=r"(?:health|status|verify|check).*?(?:check|endpoint|healthy|running)"),
    keywords=("verified", "confirmed", "validated", "checked", "testing showed", "output shows", "confirmed by"),
    evidence=(_LINE, _FENCE, _OUTPUT),
    claims=(
        Rule(pattern=r"(?:should|would|could)\s+work"),
        Rule(pattern=r"(?:probably|likely|seems to)"),
        Rule(pattern=r"I\s+(?:believe|think|assume)"),
        Rule(pattern=r"(?:should be|would be|could be)\s+(?:correct|working|fine)"),
    ),
    code_changes=Rule(pattern=r"\b(?:Edit|Write|implement|fix|refactor)\b"),
    test_command=Rule(pattern=r"pytest|npm test|cargo test|go test|mvn test"),
    test_result=Rule(pattern=r"\d+\s+passed|\d+\s+failed|all tests pass"),
    gates=(
        QualityGate(name="type check", pattern=r"mypy|pyright|tsc|flow", weight=0.33),
        QualityGate(name="lint", pattern=r"ruff|eslint|pylint|flake8", weight=0.33),
        # .34, so that the three add up to 1.
        QualityGate(name="coverage", pattern=r"coverage|--cov", weight=0.34),
    ),
)
"""The specification's set."""

# Bounded, because counting takes linear time only for patterns with a greatest length (`evalq.evalcore.scan.nodes`).
_GAP = r"\s{1,4}"
_NOT = rf"(?:\b(?:not|never|no|without|cannot|unable to)|n['’]t){_GAP}(?:\w{{1,20}}{_GAP}){{0,2}}"
_EDIT = r"(?:edit(?:s|ed|ing)?|writes?|wrote|writing|written)"
_READ = r"(?:re-?)?read(?:s|ing)?"
_DEPLOY = r"(?:deploy(?:s|ed|ing|ment|ments)?|start(?:s|ed|ing)?|launch(?:es|ed|ing)?)"
_WELL = r"(?:check(?:s|ed)?|endpoints?|healthy|running)"
_CHANGE = rf"(?:{_EDIT}|implement(?:s|ed|ing|ation)?|fix(?:es|ed|ing)?|refactor(?:s|ed|ing)?)"
_RUNNER = rf"(?:pytest|npm{_GAP}(?:run{_GAP})?test|cargo{_GAP}test|go{_GAP}test|mvn{_GAP}test)"
_TYPES = rf"(?:mypy|pyright|tsc|flow{_GAP}check)"
_LINTERS = r"(?:ruff|eslint|pylint|flake8)"


def _words(words: str) -> Rule:
    """The whole words, unless negated."""
    return Rule(pattern=rf"\b{words}\b", unless=rf"{_NOT}{words}\b")


def _counted(words: str) -> CountedRule:
    return CountedRule(pattern=rf"\b{words}\b", unless=rf"{_NOT}{words}\b")


HARDENED = Patterns(
    edits=_counted(_EDIT),
    reads=CountedRule(pattern=rf"\b{_EDIT}\b.*?\b{_READ}\b", unless=rf"{_NOT}{_READ}\b", dotall=True),
    deploys=_counted(_DEPLOY),
    health=CountedRule(
        pattern=rf"\b(?:health|status|verif(?:y|ies|ied|ying)|check(?:s|ed|ing)?)\b.*?\b{_WELL}\b",
        unless=rf"{_NOT}{_WELL}\b",
    ),
    keyword_rules=(
        _words("verified"),
        _words("confirmed"),
        _words("validated"),
        _words("checked"),
        _words(rf"(?:testing|tests?){_GAP}show(?:s|ed)?"),
        _words(rf"outputs?{_GAP}show(?:s|ed)?"),
        _words(rf"confirmed{_GAP}by"),
    ),
    evidence=(NamedRule(name="line reference", pattern=r"\blines?\s+\d+"), _FENCE, _OUTPUT),
    claims=(
        Rule(pattern=r"\b(?:should|would|could|ought to)\s+(?:now\s+|just\s+)?work\b"),
        _words(rf"(?:probably|likely|seems?{_GAP}to)"),
        Rule(pattern=r"\bI\s+(?:believe|think|assume)\b"),
        Rule(pattern=r"\b(?:should|would|could)\s+be\s+(?:correct|working|fine)\b"),
    ),
    code_changes=_words(_CHANGE),
    test_command=_words(_RUNNER),
    test_result=Rule(
        pattern=r"\b\d{1,9}\s{1,4}(?:tests?\s{1,4})?(?:passed|failed)\b|\ball\s{1,4}(?:tests\s{1,4})?pass(?:ed)?\b",
        unless=rf"{_NOT}all\s{{1,4}}(?:tests\s{{1,4}})?pass(?:ed)?\b",
    ),
    gates=(
        QualityGate(name="type check", pattern=rf"\b{_TYPES}\b", unless=rf"{_NOT}{_TYPES}\b", weight=0.33),
        QualityGate(name="lint", pattern=rf"\b{_LINTERS}\b", unless=rf"{_NOT}{_LINTERS}\b", weight=0.33),
        QualityGate(name="coverage", pattern=r"\bcoverage\b|--cov\b", unless=rf"{_NOT}coverage\b", weight=0.34),
    ),
)
"""Whole words, inflections, no negated ones."""

PATTERN_SETS = {"default": DEFAULT, "hardened": HARDENED}
