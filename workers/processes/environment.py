"""The environment of evalq's own processes, without what is meant for other Celery applications."""

from __future__ import annotations

import os

from evalq.workers.names import is_celery_variable

__all__ = ["inherited", "set_aside_celery"]

_ASIDE: dict[str, str] = {}


def set_aside_celery() -> None:
    """Take Celery's variables out of this process's environment; call it before anything imports Celery or kombu.

    They read some of them when they are imported, and a wrong value (AUTOSCALE_KEEPALIVE=soon) ends the process.
    Only for processes that are evalq's own: in a program that uses evalq as a library they may be the program's.
    """
    for name in [name for name in os.environ if is_celery_variable(name)]:
        _ASIDE[name] = os.environ.pop(name)


def inherited() -> dict[str, str]:
    """The environment that this process was started with: for its children, and for programs of targets."""
    return {**os.environ, **_ASIDE}
