"""How this project starts a Python process of its own: by module, and importing nothing of the folder it stands in."""

from __future__ import annotations

import sys

__all__ = ["child"]


def child(module: str, *args: str) -> list[str]:
    """The command that runs ``module`` as a program.

    Without -P Python looks for every module in the current folder first, which may hold inputs or an untrusted
    checkout: a `redis.py` there would run in place of the real one, and an `x.dist-info` would register evaluators.
    """
    return [sys.executable, "-P", "-m", module, *args]
