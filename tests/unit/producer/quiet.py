"""A reporter that tells nobody."""

from __future__ import annotations

from evalq.producer.monitor.progress import Reporter

QUIET = Reporter("records", quiet=True, bar=False, json_lines=False)
