"""Searching text in time linear in its length, whatever the pattern and whatever the text.

`Scanner` takes several patterns of Python's `re` and gives first matches and counts with `re`'s meaning on str,
offsets in characters. Patterns that no linear search can run are refused with a reason (`PatternRefused`).
"""

from evalq.evalcore.scan.nodes import PatternRefused
from evalq.evalcore.scan.scanner import AnyOf, Pattern, Scan, Scanner, anywhere, require_searchable

__all__ = ["AnyOf", "Pattern", "PatternRefused", "Scan", "Scanner", "anywhere", "require_searchable"]
