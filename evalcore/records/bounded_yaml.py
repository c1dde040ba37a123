"""YAML that means about what it looks like: a few lines of aliases must not stand for gigabytes of values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import yaml

__all__ = ["MAX_WRITTEN_OUT", "line_of", "lines_of", "load"]

MAX_WRITTEN_OUT = 32 << 20
"""What a document may weigh once its aliases are written out: a character counts 1, a value VALUE_WEIGHT."""
VALUE_WEIGHT = 32
_MERGE = "tag:yaml.org,2002:merge"
_EQUALS_SIGN = "tag:yaml.org,2002:value"
"""A lone "=", which is made text only when the mapping is made."""


def load(text: str) -> Any:
    """The document in ``text``, plain data only, no key of a mapping twice, however it is written.

    Raises yaml.YAMLError, RecursionError, ValueError.
    """
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader with one check more


def line_of(text: str, key: Sequence[str | int]) -> int:
    """The line (1-based) of a document on which ``key`` stands, from the top; of as much of it as is there.

    Raises what `load` raises. JSON is read as the YAML that it nearly always is.
    """
    return lines_of(text, [key])[0]


def lines_of(text: str, keys: Sequence[Sequence[str | int]]) -> list[int]:
    """The same for many keys of one document, which is read once."""
    root = yaml.compose(text, Loader=_Loader)
    return [_line_in(root, key) for key in keys]


def _line_in(node: yaml.Node | None, key: Sequence[str | int]) -> int:
    line = 1
    for part in key:
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = node.value[part], node.value[part]
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


class _Loader(yaml.SafeLoader):
    """Looks at what is composed before anything is constructed: merge keys already copy while they construct."""

    def get_single_node(self) -> yaml.Node | None:
        """The document's root. Raises ComposerError for one that is too much once its aliases are written out."""
        root: yaml.Node | None = super().get_single_node()
        if root is not None:
            _Measure(self.construct_object).of(root)
        return root


class _Measure:
    """The size of nodes with their aliases written out; each is looked at once."""

    def __init__(self, construct: Callable[[yaml.Node], Any]) -> None:
        self._construct = construct
        self._sizes: dict[int, int] = {}

    def of(self, node: yaml.Node) -> int:
        """What ``node`` weighs."""
        known = self._sizes.get(id(node))
        if known is not None:
            if not known:
                raise _fault("an alias inside the value it stands for", node)
            return known
        # Zero marks a node that is being measured: meeting it again means that an alias contains itself.
        self._sizes[id(node)] = 0
        size = VALUE_WEIGHT + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if isinstance(node, yaml.SequenceNode):
            size += sum(self.of(item) for item in node.value)
        elif isinstance(node, yaml.MappingNode):
            _check_keys(node, self._construct)
            size += sum(self.of(key) + self.of(value) for key, value in node.value)
        if size > MAX_WRITTEN_OUT:
            raise _fault("too large once its aliases are written out (a million values, 32 MiB of text)", node)
        self._sizes[id(node)] = size
        return size


def _check_keys(node: yaml.MappingNode, construct: Callable[[yaml.Node], Any]) -> None:
    """Raise ComposerError for a key that occurs twice: the value that stands first would be dropped in silence."""
    seen: dict[Hashable, str] = {}
    for key, _ in node.value:
        # A merge key is none of the mapping's own: each brings in what it names, and hides nothing.
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        # By what it means, too, as the mapping will have it: "yes" and "true" are one key, and so are 1, 0x1 and 1.0.
        meant = key.value if key.tag == _EQUALS_SIGN else construct(key)
        # What can be no key at all is told where the mapping is made.
        for name in ((key.tag, key.value), *([meant] if isinstance(meant, Hashable) else [])):
            if name in seen:
                first = "" if seen[name] == key.value else f", first as {seen[name]!r}"
                raise _fault(f"the key {key.value!r} occurs twice{first}", key)
            seen[name] = key.value


def _fault(reason: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.composer.ComposerError(None, None, reason, node.start_mark)
