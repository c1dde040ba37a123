"""The report as canonical JSON."""

from __future__ import annotations

from evalq.producer.outputs.text import writer

__all__ = ["write"]

write = writer("json")
