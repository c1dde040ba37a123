"""Regular expressions searched in time linear in the text's length, for any pattern and any text.

`Scanner` compiles several patterns and gives their first matches and counts, as Python's `re` does on str. Offsets are
in characters. It raises `PatternRefused`, with the reason, for a pattern that has no linear-time search.
"""

from evalq.evalcore.scan.nodes import PatternRefused
from evalq.evalcore.scan.scanner import AnyOf, Pattern, Scan, Scanner, anywhere, require_searchable

__all__ = ["AnyOf", "Pattern", "PatternRefused", "Scan", "Scanner", "anywhere", "require_searchable"]
