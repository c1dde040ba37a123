"""A reporter that tells nobody."""

from __future__ import annotations

from evalq.producer.monitor.progress import Reporter

__all__ = ["QUIET"]

QUIET = Reporter("records", quiet=True, bar=False, json_lines=False)
