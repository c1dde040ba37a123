"""What judges came to: how often each was asked, how often its reply was a verdict, what that took."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from evalq.evalcore.evaluators.checks.judging.vote import Unreadable, Vote
from evalq.evalcore.evaluators.checks.vocabulary.declaring import JudgeQuestion
from evalq.evalcore.model.state import Merging
from evalq.evalcore.naming import shorten
from evalq.evalcore.statistics.quantiles import Quantiles

__all__ = ["JudgeTally", "Judges", "count_votes", "merge_judges"]

_MOST = 100
"""Judges, and digests of each, that are told of: the first ones by name."""
Judges = dict[str, "JudgeTally"]


class JudgeTally(Merging, array_like=True):
    """One judge: votes ``asked``, of which ``failed`` have no reply, and ``unreadable`` one that is no verdict.

    ``configs`` are the digests of its settings, ``templates`` those of the words around the texts.
    """

    asked: int = 0
    failed: int = 0
    unreadable: int = 0
    configs: list[str] = msgspec.field(default_factory=list)
    templates: list[str] = msgspec.field(default_factory=list)
    latency: Quantiles = msgspec.field(default_factory=Quantiles)
    cost: Quantiles = msgspec.field(default_factory=Quantiles)
    tokens: Quantiles = msgspec.field(default_factory=Quantiles)

    def merge(self, later: JudgeTally) -> None:
        """Take in the votes of later lines."""
        self.asked += later.asked
        self.failed += later.failed
        self.unreadable += later.unreadable
        self.configs = _first({*self.configs, *later.configs})
        self.templates = _first({*self.templates, *later.templates})
        for mine, theirs in ((self.latency, later.latency), (self.cost, later.cost), (self.tokens, later.tokens)):
            mine.merge(theirs)

    def settled(self) -> JudgeTally:
        """The same in the one order that its wire form has."""
        for quantiles in (self.latency, self.cost, self.tokens):
            quantiles.buckets = dict(sorted(quantiles.buckets.items()))
        return self


def _first(names: Iterable[str]) -> list[str]:
    return sorted(names)[:_MOST]


def merge_judges(mine: Judges, later: Judges) -> Judges:
    """The judges of both, in the order of their names."""
    for name, tally in later.items():
        if name in mine:
            mine[name].merge(tally)
        else:
            mine[name] = tally
    # The first by name of both are the first of each, so that these are whole however the parts were merged.
    return {name: mine[name].settled() for name in _first(mine)}


def count_votes(votes: Iterable[tuple[Vote, JudgeQuestion]]) -> Judges:
    """What recorded votes come to, each with what was asked."""
    judges: dict[str, list[tuple[Vote, JudgeQuestion]]] = {}
    for vote, asked in votes:
        judges.setdefault(shorten(vote.judge), []).append((vote, asked))
    return {name: _tally(judges[name]).settled() for name in _first(judges)}


def _tally(votes: list[tuple[Vote, JudgeQuestion]]) -> JudgeTally:
    made = JudgeTally(len(votes))
    latency, cost, tokens = [], [], []
    for vote, asked in votes:
        if vote.failed:
            made.failed += 1
        else:
            made.unreadable += not _is_read(vote, asked)
        if not vote.attempts:
            continue
        # Of the last attempt alone, since those before it gave no reply; all of them were paid for.
        latency.append(vote.attempts[-1].latency_seconds)
        # What was not told is left out: counted as 0 it would make a judge look cheap.
        cost += [sum(known)] if (known := [each.cost for each in vote.attempts if each.cost is not None]) else []
        counts = [n for each in vote.attempts for n in (each.prompt_tokens, each.completion_tokens) if n is not None]
        tokens += [float(sum(counts))] if counts else []
    made.configs = _first({shorten(vote.config) for vote, _ in votes} - {""})
    made.templates = _first({shorten(vote.template) for vote, _ in votes} - {""})
    made.latency, made.cost, made.tokens = (Quantiles.of(values) for values in (latency, cost, tokens))
    return made


def _is_read(vote: Vote, asked: JudgeQuestion) -> bool:
    try:
        vote.read(asked.read)
    except Unreadable:
        return False
    return True
