"""The commands that are not evaluations: each is the COMMAND of a module named after it, with "_" for "-".

The first line of a module's docstring is what `evalq --help` says of its command. Names that begin with an underscore
are not commands; one that ends with it is a command whose name is a keyword of Python.
"""

from __future__ import annotations

import keyword
from pathlib import Path

_HERE = Path(__file__).parent
_ORDER = (
    *("init", "run", "demo"),
    *("list", "status", "watch", "resume", "pause", "retry", "extend", "cancel"),
    *("report", "view", "prune"),
    *("history", "compare", "gate", "check-regressions", "baseline"),
    *("import",),
    *("worker", "exporter", "targets", "doctor"),
)
"""The order in which `evalq --help` lists them, as a user meets them; any others follow."""


def names() -> list[str]:
    """The commands, without importing one."""
    found = {path.stem.rstrip("_").replace("_", "-") for path in _HERE.glob("*.py") if not path.stem.startswith("_")}
    return [*(name for name in _ORDER if name in found), *sorted(found - set(_ORDER))]


def module(name: str) -> str:
    """The module of the command ``name``."""
    return f"{name}_" if keyword.iskeyword(name) else name.replace("-", "_")


def summary(name: str) -> str:
    """The first line of a command's help."""
    with (_HERE / f"{module(name)}.py").open(encoding="utf-8") as stream:
        return stream.readline().strip().strip('"')
