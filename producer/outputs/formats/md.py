"""The report as Markdown."""

from __future__ import annotations

from evalq.producer.outputs.text import writer

__all__ = ["write"]

write = writer("markdown")
