"""Which code this is: answers of different code are never mixed."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

from evalcore.registry import entries

__all__ = ["__version__", "code_version"]

__version__ = version("evalq")

_PACKAGES = ("evalcore", "workers")
_KINDS = (".py", ".lua", ".yaml", ".json", ".md")


@cache
def code_version() -> str:
    """Twelve hexadecimal digits over evaluation code, scripts and data, and the versions of plug-in packages.

    Part of every queue's name: a worker of other code never sees the message.
    """
    whole = hashlib.sha256()
    top = Path(__file__).parent.parent
    for package in _PACKAGES:
        for path in sorted(path for path in (top / package).rglob("*") if path.suffix in _KINDS):
            whole.update(path.relative_to(top).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    for point in entries().values():
        dist = point.dist
        if dist is not None and dist.name != "evalq":
            whole.update(f"{point.name}={point.value} {dist.name} {dist.version}\n".encode())
    return whole.hexdigest()[:12]
