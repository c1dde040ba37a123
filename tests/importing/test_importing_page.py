"""The reference page on imports: everything that a source knows has its line there."""

from __future__ import annotations

import re
from pathlib import Path

from evalq.producer.importing import sources
from evalq.producer.importing.promptfoo.assertions import COUNTERPARTS, JUDGED, REASONS
from evalq.producer.importing.sources.inspect import SCORERS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "importing.md").read_text(encoding="utf-8")
TYPES = (
    *("agent-rubric", "answer-relevance", "bleu", "classifier", "contains", "contains-all", "contains-any"),
    *("contains-html", "contains-json", "contains-sql", "contains-xml", "context-faithfulness", "context-recall"),
    *("context-relevance", "conversation-relevance", "cost", "equals", "factuality", "finish-reason", "g-eval"),
    *("gleu", "guardrails", "icontains", "icontains-all", "icontains-any", "is-html", "is-json", "is-refusal"),
    *("is-sql", "is-valid-function-call", "is-valid-openai-function-call", "is-valid-openai-tools-call"),
    *("is-xml", "javascript", "latency", "levenshtein", "llm-rubric", "pi", "meteor", "model-graded-closedqa"),
    *("model-graded-factuality", "moderation", "perplexity", "perplexity-score", "python", "regex", "rouge-n"),
    *("ruby", "similar", "similar:cosine", "similar:dot", "similar:euclidean", "starts-with", "tool-call-f1"),
    *(
        "skill-used",
        "trajectory:goal-success",
        "trajectory:tool-args-match",
        "trajectory:step-count",
        "trajectory:tool-sequence",
    ),
    *("trajectory:tool-used", "trace-error-spans", "trace-span-count", "trace-span-duration", "search-rubric"),
    *("webhook", "word-count", "select-best", "human", "max-score"),
)
"""The types of assertions of promptfoo 0.123.1, those that it compares over outputs included; assert-set aside."""


def _rows(heading: str) -> dict[str, str]:
    """{what stands in the first cell: the second} of the table under a heading."""
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split(" | ") for line in part.splitlines() if line.startswith("| `")]
    return {name: row[1] for row in cells for name in re.findall(r"`([^`]+)`", row[0])}


def test_every_type_of_promptfoo_has_a_counterpart_or_a_reason_and_the_page_says_which() -> None:
    """As the code has it."""
    assert {*COUNTERPARTS, *JUDGED, *REASONS} == set(TYPES)
    assert not (COUNTERPARTS.keys() | JUDGED.keys()) & REASONS.keys()
    rows = _rows("promptfoo")
    for name in TYPES:
        said = {"none": "none", "later": "not yet"}.get(REASONS[name][0] if name in REASONS else "")
        assert (rows[name] == said) if said else (rows[name] not in ("none", "not yet")), name
    assert "assert-set" in rows


def test_the_page_has_a_part_for_every_source_and_scorer() -> None:
    """By their names."""
    assert SCORERS.keys() <= _rows("Inspect").keys()
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert len(headings) == len(sources.names()) + 1
