"""HTML as values: text is escaped wherever it comes in, so that no data can become markup."""

from __future__ import annotations

from html import escape

from evalq.evalcore.views.markdown import visible

__all__ = ["Html", "element", "joined", "text"]

_EMPTY = frozenset({"br", "hr", "img", "input", "link", "meta", "rect", "line", "circle"})


class Html(str):
    """Markup that is made already."""

    __slots__ = ()


def text(value: object) -> Html:
    """``value`` as text: nothing in it takes effect, in HTML or as a sign that nobody sees."""
    return value if isinstance(value, Html) else Html(escape(visible(str(value))))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """An element; attributes of None or False are left out, ``_`` in their names is a dash (``class_``: class)."""
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _EMPTY:
        return Html(f"<{name}{given}>" if name not in ("rect", "line", "circle") else f"<{name}{given}/>")
    return Html(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: object) -> Html:
    """Children one after the other; None is nothing."""
    return Html("".join(text(child) for child in children if child is not None))
