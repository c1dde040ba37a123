"""The score of one text: its four components, the reason for shortfalls, and unsubstantiated claims."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from evalq.evalcore.evaluators.verification.params import Bands, Scoring, VerificationParams
from evalq.evalcore.evaluators.verification.patterns import Patterns, Rule
from evalq.evalcore.scan import Pattern, Scan, Scanner

DECIMALS = 12
"""Scores are rounded to this many, so that four components of 1 add up to 1."""
CACHED_SCORES = 1024
"""How many scores are cached, by the patterns that occur."""
QUOTED = 80
"""Characters of a claim that are quoted."""
BANDS = ("perfect", "good", "moderate", "poor")
COMPONENTS = ("tool_verification", "assertion_evidence", "test_execution", "quality_gates")


@dataclass(slots=True)
class Components:
    """The four components, each between 0 and 1."""

    tool_verification: float
    assertion_evidence: float
    test_execution: float
    quality_gates: float


@dataclass(slots=True)
class VerificationScore:
    """The score of a text with its components; ``reason`` names the shortfalls."""

    score: float
    success: bool
    reason: str
    components: Components
    unsubstantiated: list[str]
    threshold: float
    band: str

    def copy(self) -> VerificationScore:
        """A copy that can be changed without changing this score."""
        of = self.components
        components = Components(of.tool_verification, of.assertion_evidence, of.test_execution, of.quality_gates)
        claims = list(self.unsubstantiated)
        return VerificationScore(self.score, self.success, self.reason, components, claims, self.threshold, self.band)


class _Probe:
    """A rule, with the index of its pattern among the scanner's patterns."""

    def __init__(self, rule: Rule, patterns: list[Pattern]) -> None:
        self.index = len(patterns)
        self.negated = rule.unless is not None
        patterns += rule.search_patterns()

    def count(self, scan: Scan) -> int:
        """How often it occurs."""
        times = scan.count(self.index)
        return max(0, times - scan.count(self.index + 1)) if times and self.negated else times

    def occurs(self, scan: Scan) -> bool:
        """Whether it occurs."""
        matches = scan.found(self.index)
        return self.count(scan) > 0 if matches and self.negated and scan.found(self.index + 1) else matches

    def quote(self, scan: Scan, text: str) -> str | None:
        """Its first match, cut to QUOTED characters; None if it does not occur."""
        span = scan.first(self.index) if self.occurs(scan) else None
        return None if span is None else text[span[0] : min(span[1], span[0] + QUOTED)]


class Scorer:
    """Scores texts by one pattern set."""

    def __init__(self, patterns: Patterns, scoring: Scoring) -> None:
        self._scoring = scoring
        # In ASCII, a search that ignores case finds a keyword exactly when the lower-cased text holds it. Beyond ASCII,
        # lower-casing has its own rules.
        self._keywords = patterns.keywords
        plain = [word for word in patterns.keywords if word and word.isascii() and word == word.lower()]
        self._odd_keywords = [word for word in patterns.keywords if word not in plain]
        searched: list[Pattern] = []
        self._edits, self._reads, self._deploys, self._health = (
            _Probe(rule, searched) for rule in (patterns.edits, patterns.reads, patterns.deploys, patterns.health)
        )
        self._plain_keywords = [_Probe(Rule(pattern=re.escape(word)), searched) for word in plain]
        self._keyword_rules = [_Probe(rule, searched) for rule in patterns.keyword_rules]
        self._evidence = [(rule.name, _Probe(rule, searched)) for rule in patterns.evidence]
        self._claims = [_Probe(rule, searched) for rule in patterns.claims]
        self._changes = _Probe(patterns.code_changes, searched)
        self._tests = [
            ("no test command", scoring.tests.command, _Probe(patterns.test_command, searched)),
            ("no test result", scoring.tests.result, _Probe(patterns.test_result, searched)),
        ]
        self._gates = [(f"no {gate.name}", gate.weight, _Probe(gate, searched)) for gate in patterns.gates]
        self._scanner = Scanner(searched)
        probes = [*self._plain_keywords, *self._keyword_rules, *(probe for _, probe in self._evidence), self._changes]
        probes += [probe for _, _, probe in (*self._tests, *self._gates)]
        self._only_presence = frozenset(probe.index for probe in probes if not probe.negated)
        rest = (self._edits, self._reads, self._deploys, self._health, *self._claims, *probes)
        self._all_indexes = frozenset(probe.index for probe in rest)
        self._cache: dict[tuple[frozenset[int], float, bool], VerificationScore] = {}

    def score(self, text: str, threshold: float, *, strict: bool = False) -> VerificationScore:
        """The score of ``text``; with ``strict``, any unsubstantiated claim makes it 0."""
        scan = self._scanner.scan(text)
        # If nothing is counted or quoted, the score depends only on which patterns occur, and can be reused.
        if scan.seen is None or self._odd_keywords or not scan.seen & self._all_indexes <= self._only_presence:
            return self._score(scan, text, threshold, strict=strict)
        if not self._all_indexes <= self._scanner.known:
            return self._score(scan, text, threshold, strict=strict)
        key = scan.seen, threshold, strict
        if key not in self._cache:
            if len(self._cache) >= CACHED_SCORES:
                self._cache.clear()
            self._cache[key] = self._score(scan, text, threshold, strict=strict)
        return self._cache[key].copy()

    def _score(self, scan: Scan, text: str, threshold: float, *, strict: bool) -> VerificationScore:
        claims = list(dict.fromkeys(quote for claim in self._claims if (quote := claim.quote(scan, text))))
        tool, tool_short = self._tool(scan, text)
        evidence, evidence_short = self._assertions(scan, claims)
        changed = self._changes.occurs(scan)
        # Without a code change there is nothing to test or to check: full marks.
        tests, tests_short = _presence(self._tests, scan) if changed else (1.0, "")
        gates, gates_short = _presence(self._gates, scan) if changed else (1.0, "")
        weights, limits = self._scoring.weights, self._scoring.shortfalls
        total = weights.tool * tool + weights.evidence * evidence + weights.tests * tests + weights.gates * gates
        score = 0.0 if strict and claims else round(total, DECIMALS)
        claimed = f"unsubstantiated claims: {', '.join(map(repr, claims))}" if claims else ""
        reasons = [
            _short("tool verification", tool, limits.tool, tool_short),
            _short("assertion evidence", evidence, limits.evidence, evidence_short),
            f"STRICT MODE FAILURE: {claimed}" if strict and claims else claimed,
            _short("test execution", tests, limits.tests, tests_short),
            _short("quality gates", gates, limits.gates, gates_short),
        ]
        return VerificationScore(
            score=score,
            success=score >= threshold,
            reason="; ".join(filter(None, reasons)) or "all verification requirements met",
            components=Components(*(round(part, DECIMALS) for part in (tool, evidence, tests, gates))),
            unsubstantiated=claims,
            threshold=threshold,
            band=_band(score, self._scoring.bands),
        )

    def _tool(self, scan: Scan, text: str) -> tuple[float, str]:
        weights, needed = self._scoring.tool, self._scoring.keywords_needed
        # SPEC, section 5: without an edit there is nothing to read back, without a deployment nothing to check.
        edits, deploys = self._edits.count(scan), self._deploys.count(scan)
        reads = self._reads.count(scan) if edits else 0
        health = self._health.count(scan) if deploys else 0
        keywords = self._keywords_in(scan, text) + sum(rule.occurs(scan) for rule in self._keyword_rules)
        value = (
            weights.reads * (min(1.0, reads / edits) if edits else 1.0)
            + weights.health * (min(1.0, health / deploys) if deploys else 1.0)
            + weights.keywords * min(1.0, keywords / needed)
        )
        short = [
            (reads < edits, f"{reads} of {edits} edits read back"),
            (health < deploys, f"{health} health checks for {deploys} deployments"),
            (keywords < needed, f"{keywords} of {needed} verification keywords"),
        ]
        return value, ", ".join(text for is_short, text in short if is_short)

    def _keywords_in(self, scan: Scan, text: str) -> int:
        words, count = self._keywords, 0
        if text.isascii():
            words, count = tuple(self._odd_keywords), sum(keyword.occurs(scan) for keyword in self._plain_keywords)
        lowered = text.lower() if words else ""
        return count + sum(word in lowered for word in words)

    def _assertions(self, scan: Scan, claims: list[str]) -> tuple[float, str]:
        missing = [f"no {name}" for name, probe in self._evidence if not probe.occurs(scan)]
        missing += ["unsubstantiated claims"] if claims else []
        # The absence of unsupported claims counts as one more piece of evidence (SPEC, section 5).
        of = len(self._evidence) + 1
        return (of - len(missing)) / of, ", ".join(missing)


def _presence(rows: list[tuple[str, float, _Probe]], scan: Scan) -> tuple[float, str]:
    """The summed weights of the rules that occur, and the names of the others."""
    value, missing = 0.0, []
    for name, weight, probe in rows:
        if probe.occurs(scan):
            value += weight
        else:
            missing.append(name)
    return value, ", ".join(missing)


def _short(name: str, value: float, limit: float, why: str) -> str:
    # Rounded like the score, so that no sum of weights falls short by its last binary digit.
    return f"{name} {value:.2f}: {why}" if round(value, DECIMALS) < limit else ""


def _band(score: float, bands: Bands) -> str:
    limits = (bands.perfect, bands.good, bands.moderate)
    return next((band for band, least in zip(BANDS, limits, strict=False) if score >= least), BANDS[-1])


@lru_cache(maxsize=64)
def scorer(patterns: Patterns, scoring: Scoring) -> Scorer:
    """The scorer for a pattern set, compiled once."""
    return Scorer(patterns, scoring)


def score_verification(
    text: str, *, strict: bool = False, patterns: str | Patterns = "default", threshold: float = 0.9
) -> VerificationScore:
    """The score of an agent's output (seed 004): by a named pattern set or one of your own.

        result = score_verification("Edit limits.py, then Read it: line 88 is right. `pytest`: 12 passed.")
        result.score, result.success, result.reason

    ``score``, from 0 to 1, is 0.4 tool verification + 0.3 assertion evidence + 0.2 test execution + 0.1 quality gates;
    ``success`` is a score of ``threshold`` or more. If ``strict``, the threshold is 1, and any unsubstantiated claim
    scores 0.
    ``patterns``: "default" (the specification's), "hardened" (only whole words that are not negated), or a `Patterns`.
    Raises ValueError for an unknown pattern set.
    """
    params = VerificationParams.model_validate({"patterns": patterns, "strict": strict, "threshold": threshold})
    return scorer(params.patterns, params.scoring).score(text, params.passing, strict=strict)
