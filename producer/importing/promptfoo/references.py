"""`$ref` in a configuration: to another part of it, or to a file of data beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.reading import Document, Outside, below, read_yaml

__all__ = ["resolved"]

_DEEPEST = 100
_MOST = 2_000_000
_SHOWN = 8
"""Keys of a deep place that a note names."""


class _Unresolved(ValueError):
    """A reference that leads nowhere, or round."""


def resolved(document: Document, asked: ImportRequest, imported: Imported) -> dict[str, Any]:
    """The configuration with every `$ref` replaced by what it names; one that cannot be is noted and left."""
    walker = _Walker(document, asked, imported)
    made: dict[str, Any] = walker.value(document.data, document, [], ())
    return made


class _Walker:
    def __init__(self, document: Document, asked: ImportRequest, imported: Imported) -> None:
        self._asked, self._imported = asked, imported
        self._files: dict[str, Document] = {str(document.path.resolve()): document}
        self._folder = document.path.parent
        self._count = 0

    def value(self, value: Any, document: Document, keys: list[str | int], above: tuple[str, ...]) -> Any:
        self._count += 1
        if self._count > _MOST:
            raise ConfigError(f"{document.path}: has more than {_MOST} values with its references written out")
        if len(keys) > _DEEPEST:
            why = f"nested deeper than {_DEEPEST} levels: what lies further in is left out"
            self._imported.note("none", document.where(keys[:_SHOWN]), "what stands below it", why)
            return None
        if isinstance(value, Mapping):
            name = value.get("$ref")
            if isinstance(name, str) and "properties" not in keys:
                try:
                    return self._named(name, value, document, keys, above)
                except (_Unresolved, Outside, ConfigError) as error:
                    self._imported.note("none", document.where([*keys, "$ref"]), f"$ref {name}", str(error))
                    return {}
            return {key: self.value(each, document, [*keys, str(key)], above) for key, each in value.items()}
        if isinstance(value, list):
            return [self.value(each, document, [*keys, index], above) for index, each in enumerate(value)]
        return value

    def _named(
        self, name: str, value: Mapping[str, Any], document: Document, keys: list[str | int], above: tuple[str, ...]
    ) -> Any:
        file, _, pointer = name.partition("#")
        if "://" in file and not file.startswith("file://"):
            raise _Unresolved("it is kept by another service")
        other = self._file(file.removeprefix("file://")) if file else document
        token = f"{other.path}#{pointer}"
        if token in above:
            raise _Unresolved("it leads round to itself")
        found: Any = other.data
        for part in filter(None, pointer.split("/")):
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and part in found:
                found = found[part]
            elif isinstance(found, list) and part.isdigit() and int(part) < len(found):
                found = found[int(part)]
            else:
                raise _Unresolved(f"nothing is at {part}")
        made = self.value(found, other, keys, (*above, token))
        extra = {key: self.value(each, document, keys, above) for key, each in value.items() if key != "$ref"}
        return {**made, **extra} if extra and isinstance(made, Mapping) else made

    def _file(self, name: str) -> Document:
        path = below(self._folder, name, anywhere=self._asked.anywhere)
        if str(path) not in self._files:
            self._files[str(path)] = read_yaml(path)
        return self._files[str(path)]
