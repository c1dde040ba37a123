"""The commands that are not evaluations: each is the COMMAND of a module named after it, with "_" for "-".

The first line of a module's docstring is what `evalq --help` says of its command. Names that begin with an underscore
are not commands; one that ends with it is a command whose name is a keyword of Python.
"""

from __future__ import annotations

import keyword
from pathlib import Path

_HERE = Path(__file__).parent
GROUPS = {
    "Evaluate": ("init", "run", "demo", "import"),
    "Look": ("view", "report", "list", "history"),
    "Decide": ("compare", "gate", "baseline", "check-regressions", "comment"),
    "Operate": (
        *("status", "watch", "resume", "pause", "ctl", "retry", "extend", "cancel", "prune"),
        *("targets", "worker", "schema", "exporter", "doctor"),
    ),
}
"""The groups of `evalq --help`, by what a user wants to do. Evaluations come first in the first one."""


def names() -> list[str]:
    """The commands, without importing one."""
    found = {path.stem.rstrip("_").replace("_", "-") for path in _HERE.glob("*.py") if not path.stem.startswith("_")}
    order = [name for group in GROUPS.values() for name in group]
    return [*(name for name in order if name in found), *sorted(found - set(order))]


def module(name: str) -> str:
    """The module of the command ``name``."""
    return f"{name}_" if keyword.iskeyword(name) else name.replace("-", "_")


def summary(name: str) -> str:
    """The first line of a command's help."""
    with (_HERE / f"{module(name)}.py").open(encoding="utf-8") as stream:
        return stream.readline().strip().strip('"')
