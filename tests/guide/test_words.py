"""The check of words finds the kinds of sentences that readers had to read twice, and leaves plain ones alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs import words

TOP = Path(__file__).parents[2]

TWICE = (
    "the ledger decides: each chunk's answer is committed once, under its digest.",
    "What no program can decide, a judge can, which is a target like any other.",
    "Start a job that may run twice.",
    "Without one, failed cases are findings, not errors.",
    "It ends with 1 where no worker of its host is heard.",
    "`not-` before any name turns it round.",
    "A case that is asked no more once it is decided leans to its mode.",
    "What such a sweep might pass by is INCONCLUSIVE.",
    "would have seen | 16.6 points",
    "no drift (e-value 0.99, it pages from 1,000 on)",
    "So do answers that tell no tokens.",
    "3 answer(s) are missing that the baseline has",
    "temperature is not for others to choose",
    "Whoever names the target may choose among that, and nothing else",
)
PLAIN = (
    "Workers may send an answer twice. The ledger keeps the first one for each chunk.",
    "If the answer has nothing at that path, the check fails, even with `not-`.",
    "No drift: the evidence is 1 to 1; evalq alerts at 1,000 to 1.",
    "Callers can set only the parameters listed under `variable`.",
    "What is a mode?",
    "What standard output shows.",
    "The table(s3) of keys(s1)",
)


@pytest.mark.parametrize("sentence", TWICE)
def test_a_sentence_that_is_read_twice_is_found(sentence: str) -> None:
    assert [fault for each in words.sentences(sentence) for fault in words.faults_in(each, prose=True)]


@pytest.mark.parametrize("sentence", PLAIN)
def test_a_plain_one_is_not(sentence: str) -> None:
    assert not [fault for each in words.sentences(sentence) for fault in words.faults_in(each, words.MOST, prose=True)]


def test_a_long_sentence_is_found_and_code_is_not_counted() -> None:
    """Neither are tables, headings and the addresses of links."""
    long = " ".join(["word"] * 26) + "."
    assert [*words.faults_in(next(words.sentences(long)), words.MOST)]
    other = f"# {long}\n\n| {long} |\n\n```text\n{long}\n```\n\n`{long}` [a]({long.replace(' ', '/')})."
    assert not [fault for each in words.sentences(other) for fault in words.faults_in(each, words.MOST)]


def test_pages_helps_and_messages_use_plain_words() -> None:
    """As `make check` finds them."""
    done = subprocess.run([sys.executable, "docs/words.py"], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
