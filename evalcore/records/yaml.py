"""Read YAML by the core schema of YAML 1.2 (YAML 1.2.2, section 10.3), and write YAML that 1.1 and 1.2 read equally.

Plain scalars are texts except ``true`` and ``false``, ``null``, ``~`` and the empty scalar, and numbers such as ``12``,
``0x1f``, ``0o17``, ``1e3`` and ``.inf``. So ``yes``, ``on``, ``12:30`` and ``2026-01-31`` are texts, and ``0123`` is
123. One extension of the core schema: the key ``<<`` merges mappings, because suites use it.

The size of a document is limited after its aliases are expanded: a few lines must not stand for gigabytes of values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from evalq.evalcore.naming import shorten

_MAX_WRITTEN_OUT = 32 << 20
"""The largest size of a document with its aliases expanded: each character counts 1, each value _VALUE_WEIGHT."""
_VALUE_WEIGHT = 32
_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_CORE = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
    ("merge", r"<<", "<"),
)
_SURROGATE = re.compile("[\ud800-\udfff]")

Rules = dict[str, list[tuple[str, re.Pattern[str]]]]


def load(text: str) -> Any:
    """The one document in ``text`` as plain data.

    Raises yaml.YAMLError (also for a key that a mapping repeats, in any spelling), RecursionError or ValueError.
    """
    return _read(text, lambda loader: loader.get_single_data())


def _compose(text: str) -> yaml.Node | None:
    """The root node of the one document in ``text``; nodes have line numbers. Raises what `load` raises."""
    node: yaml.Node | None = _read(text, lambda loader: loader.get_single_node())
    return node


def _line_in(node: yaml.Node | None, key: Sequence[str | int]) -> int:
    """The line (1-based) of the path ``key`` below ``node``; of its longest part that exists."""
    line = node.start_mark.line + 1 if node is not None else 1
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


def _read(text: str, get: Callable[[Any], Any]) -> Any:
    """Read by libyaml, in a third of the time. If that fails, PyYAML's own parser decides and words the error."""
    if _Fast is not None:
        try:
            return _with(_Fast, text, get)
        except (yaml.YAMLError, UnicodeEncodeError):
            pass
    return _with(_Plain, text, get)


def _with(loader: Callable[[str], Any], text: str, get: Callable[[Any], Any]) -> Any:
    document = loader(text)
    try:
        return get(document)
    finally:
        document.dispose()


class _Core(Composer, SafeConstructor, Resolver):
    """Composer and constructor for the core schema; a document's size and keys are checked before construction."""

    yaml_implicit_resolvers: ClassVar[Rules] = {}  # type: ignore[misc]  # the stubs have it for one of an instance
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        None: SafeConstructor.construct_undefined,
        **{_TAG + name: SafeConstructor.yaml_constructors[_TAG + name] for name in ("null", "seq", "map", "str")},
    }

    def get_single_node(self) -> yaml.Node | None:
        """The document's root. Raises ComposerError if the document is too large with its aliases expanded."""
        root: yaml.Node | None = super().get_single_node()
        if root is not None:
            # Before construction, which already copies mappings for merge keys.
            _Measure(self.construct_object).of(root)
        return root

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """A scalar in which two escapes of a surrogate pair, as JSON writes them, become one character."""
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        if _SURROGATE.search(node.value):
            node.value = node.value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return node

    def _int(self, node: yaml.ScalarNode) -> int:
        text = self._matching(node, "int")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))

    def _float(self, node: yaml.ScalarNode) -> float | str:
        # "!!float 1" is a float. Python spells infinity and NaN without YAML's dot.
        text = self._matching(node, "float", "int")
        value = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        # A number beyond a float's range stays the text that was written, instead of becoming infinite.
        return text if math.isinf(value) and "inf" not in text.lower() else value

    def _bool(self, node: yaml.ScalarNode) -> bool:
        return self._matching(node, "bool").lower() == "true"

    def _matching(self, node: yaml.ScalarNode, *kinds: str) -> str:
        text = str(self.construct_scalar(node))
        if not any(re.fullmatch(rule, text) for name, rule, _ in _CORE if name in kinds):
            raise yaml.constructor.ConstructorError(
                None, None, f"{text!r} is no {kinds[0]} in YAML 1.2", node.start_mark
            )
        return text


def _add(rules: Rules, kind: str, rule: str, first: Iterable[str]) -> None:
    for character in first:
        rules.setdefault(character, []).append((_TAG + kind, re.compile(rf"(?:{rule})\Z")))


for _kind, _rule, _first in _CORE:
    _add(_Core.yaml_implicit_resolvers, _kind, _rule, _first)
_Core.yaml_constructors |= {_TAG + "int": _Core._int, _TAG + "float": _Core._float, _TAG + "bool": _Core._bool}
# "<<" as a value is a text.
_Core.yaml_constructors[_MERGE] = SafeConstructor.construct_yaml_str


class _Plain(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, _Core):
    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)
        _init_core(self)


def _init_core(loader: _Core) -> None:
    Composer.__init__(loader)
    SafeConstructor.__init__(loader)
    Resolver.__init__(loader)


def _fast() -> Callable[[str], Any] | None:
    """A loader with libyaml's parser and PyYAML's composer in Python; None without libyaml.

    PyYAML's compiled composer would crash the process on a document that nests a hundred thousand levels deep.
    """
    if not yaml.__with_libyaml__:
        return None
    from yaml.cyaml import CParser  # type: ignore[attr-defined]  # compiled, and in no stub

    class Fast(_Core, CParser):
        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            _init_core(self)

    return Fast


_Fast = _fast()


class _Measure:
    """Measures nodes with their aliases expanded; visits each node once."""

    def __init__(self, construct: Callable[[yaml.Node], Any]) -> None:
        self._construct = construct
        self._sizes: dict[int, int] = {}

    def of(self, node: yaml.Node) -> int:
        """The size of ``node``: 1 per character, _VALUE_WEIGHT per value. Raises ComposerError if it is too large."""
        known = self._sizes.get(id(node))
        if known is not None:
            if not known:
                raise _fault("an alias inside the value it stands for", node)
            return known
        # Zero marks a node that is being measured: meeting it again means that an alias contains itself.
        self._sizes[id(node)] = 0
        size = _VALUE_WEIGHT + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if isinstance(node, yaml.SequenceNode):
            size += sum(self.of(item) for item in node.value)
        elif isinstance(node, yaml.MappingNode):
            _check_keys(node, self._construct)
            size += sum(self.of(key) + self.of(value) for key, value in node.value)
        if size > _MAX_WRITTEN_OUT:
            raise _fault("too large once its aliases are written out (a million values, 32 MiB of text)", node)
        self._sizes[id(node)] = size
        return size


def _check_keys(node: yaml.MappingNode, construct: Callable[[yaml.Node], Any]) -> None:
    """Raise ComposerError for a repeated key, whose first value would be lost silently."""
    seen: dict[Hashable, str] = {}
    for key, _ in node.value:
        # Several merge keys are fine: each adds the mappings that it names.
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        # Compare values as well as spellings: "True" and "true" are one key, and so are 1, 0x1 and 1.0.
        value = construct(key)
        # The constructor of the mapping refuses keys that are not hashable.
        for name in ((key.tag, key.value), *([value] if isinstance(value, Hashable) else [])):
            if name in seen:
                first = "" if seen[name] == key.value else f", first as {seen[name]!r}"
                raise _fault(f"the key {key.value!r} occurs twice{first}", key)
            seen[name] = key.value


def _fault(reason: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.composer.ComposerError(None, None, reason, node.start_mark)


class Dumper(yaml.SafeDumper):
    """Writes YAML that readers of 1.1 and 1.2 read equally: it quotes a text that either reads as another type."""


# PyYAML's rules are those of YAML 1.1 without y and n. js-yaml 4 accepts underscores and signs in further places.
for _kind, _rule, _first in (
    *((kind, rule, first) for kind, rule, first in _CORE if kind not in ("merge", "null")),
    ("bool", r"[yYnN]", "yYnN"),
    ("int", r"[-+]?0[oOxXbB][0-9a-fA-F_]+|[-+]?[0-9][0-9_]*(?::[0-9_]+)*", "-+0123456789"),
    ("float", r"(?=.*[0-9])[-+]?[0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9_]+)?", "-+._0123456789"),
):
    Dumper.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_rule})\Z"), list(_first))


def _fast_dumper() -> Any:
    if not yaml.__with_libyaml__:
        return None

    class FastDumper(yaml.CSafeDumper):
        yaml_implicit_resolvers = Dumper.yaml_implicit_resolvers

    return FastDumper


FastDumper = _fast_dumper()
"""`Dumper` through libyaml, which is faster; None without it."""


# Documents that people write, in YAML or JSON: values, faults with line numbers, and the line of a key.
# A file whose name ends in .json is read as JSON (RFC 8259), every other file as YAML 1.2.

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{},]|\n|[^\s\[\]{},:"]+')
_MEMBER = re.compile(r"[ \t\r\n]*:")


class DocumentFault(ValueError):
    """A document cannot be read; ``line`` (1-based, None if unknown) and ``reason`` say where and why."""

    def __init__(self, line: int | None, reason: str) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.line, self.reason = line, reason


def read_document(text: str, name: str) -> Any:
    """The value of the document ``text``; the file's ``name`` decides between JSON and YAML.

    Escapes can write half of a surrogate pair, which the result may contain; callers that cannot store it must check.
    Raises DocumentFault, also for a repeated key.
    """
    try:
        return _read_json(text) if _is_json(name) else load(text)
    except json.JSONDecodeError as error:
        raise DocumentFault(error.lineno, f"not JSON: {error.msg}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise DocumentFault(line, f"not YAML: {getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise DocumentFault(None, "nested too deeply") from None
    except DocumentFault:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise DocumentFault(None, f"holds a value that cannot be read: {error}") from None


class KeyLines:
    """The lines of a document's keys; the document is parsed once.

    Raises DocumentFault if it cannot be read.
    """

    def __init__(self, text: str, name: str) -> None:
        self._root: yaml.Node | None = None
        self._places: dict[tuple[str | int, ...], int] = {}
        if _is_json(name):
            self._places = dict(_places(text))
            return
        try:
            self._root = _compose(text)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise DocumentFault(None, str(error)) from None

    def line(self, key: Sequence[str | int]) -> int:
        """The line (1-based) of ``key``, a path from the root; of its longest part that exists."""
        if self._root is not None:
            return _line_in(self._root, key)
        # Try the whole path first, then shorter parts.
        parts = (self._places.get(tuple(key[:end])) for end in range(len(key), 0, -1))
        return next(filter(None, parts), 1)


def _is_json(name: str) -> bool:
    return name.lower().endswith(".json")


def _read_json(text: str) -> Any:
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            repeated.append(next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at])))
        return made

    value = json.loads(text, object_pairs_hook=unique, parse_constant=_no_constant)
    if repeated:
        seen = set()
        for path, line in _places(text):
            if path in seen:
                raise DocumentFault(line, f"not JSON: the key {shorten(str(path[-1]))!r} occurs twice")
            seen.add(path)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON: write null, or a number")


def _places(text: str) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """(path from the root, line) of every member and item in the JSON ``text``."""
    line, begins = 1, False
    path: list[Any] = []
    inside: list[str] = []
    for match in _TOKEN.finditer(text):
        mark = match[0]
        if mark == "\n":
            line += 1
            continue
        if begins and inside[-1] == "[" and mark != "]":
            yield tuple(path), line
            begins = False
        if mark in "[{":
            inside.append(mark)
            path.append(0 if mark == "[" else "")
            begins = True
        elif mark in "]}":
            inside.pop()
            path.pop()
            begins = False
        elif mark == ",":
            if inside[-1] == "[":
                path[-1] += 1
            begins = True
        elif inside and inside[-1] == "{" and begins and _MEMBER.match(text, match.end()):
            path[-1] = json.loads(mark)
            yield tuple(path), line
            begins = False
