"""evalq for Celery: its own commands, as in `celery -A evalq.celery inspect active`, and workers of your own.

`install` lets the workers of an application of yours serve evalq's queue (docs/how-to/own-celery-workers.md).

``app`` reads evalq's settings when it is first used: the broker is that of EVALQ_BROKER, or of the file that
EVALQ_SETTINGS names. docs/how-to/beside-celery.md shows how workers answer, and how Flower uses it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalq.workers.pool.guest import install

    app: Any

__all__ = ["app", "install"]


def __getattr__(name: str) -> Any:
    if name == "install":
        from evalq.workers.pool.guest import install

        return install
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from evalq.evalcore.errors import ConfigError
    from evalq.workers.broker.transport import make_tools_app
    from evalq.workers.settings import load_settings

    settings = load_settings(os.environ.get("EVALQ_SETTINGS") or None)
    if not settings.broker:
        raise ConfigError("evalq.celery: name the broker of the workers in EVALQ_BROKER, such as redis://HOST:6379/0")
    app = globals()["app"] = make_tools_app(settings)
    return app
