"""The ids of runs: a new one each time, or with ``--once`` the same for the same key and the same work."""

from __future__ import annotations

import secrets

from evalq.evalcore.model.canonical import digest

__all__ = ["new_run_id", "once_run_id"]

_LETTERS = 16


def new_run_id(evaluator: str) -> str:
    """An id that no run has yet."""
    return f"{evaluator}-{secrets.token_hex(5)}"


def once_run_id(evaluator: str, work: bytes) -> str:
    """The id of the run that does ``work``, in which the ``--once`` key is a part."""
    return f"{evaluator}-{digest(work)[:_LETTERS]}"
