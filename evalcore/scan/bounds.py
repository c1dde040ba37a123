"""Which patterns can be counted in linear time.

A single search is linear whatever the pattern. Counting is a search behind each match, and is linear only if no
search looks far beyond the match it finds: ``a.*?z|a`` over a row of a's looks to the end of the text from each.
"""

from __future__ import annotations

from evalq.evalcore.scan.nodes import Chars, Node, PatternRefused, Repeat, Sequence, width

__all__ = ["MAX_COUNTED", "require_countable"]

MAX_COUNTED = 512
"""How many characters the bounded parts of a counted pattern may span."""


def require_countable(node: Node) -> None:
    """Raise PatternRefused unless matches of ``node`` can be counted in linear time.

    Either a match has a greatest length, or the pattern is a row of parts that have one with a single lazy
    repetition (``.*?`` and the like) among them. That search fails at most once between two places that the
    repetition cannot cross: while there is an end ahead, the first start finds it.
    """
    if width(node)[0] == 0:
        raise PatternRefused("it can match nothing at all, and so cannot be counted")
    parts = node.parts if isinstance(node, Sequence) else (node,)
    endless = [part for part in parts if width(part)[1] is None]
    if len(endless) > 1 or not all(_is_lazy_run(part) for part in endless):
        raise PatternRefused(
            "a repetition without an upper bound, other than one lazy one such as '.*?' outside all groups:"
            " counting its matches may take more than linear time (give an upper bound: {0,100})"
        )
    bounded = sum(width(part)[1] or 0 for part in parts)
    if bounded > MAX_COUNTED:
        raise PatternRefused(
            f"{bounded} characters in the parts of bounded length; a counted pattern has {MAX_COUNTED}"
        )


def _is_lazy_run(part: Node) -> bool:
    return isinstance(part, Repeat) and part.lazy and isinstance(part.node, Chars)
