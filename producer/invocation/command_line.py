"""The command line that began a run, as run.json keeps it: without passwords, and without the environment."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

__all__ = ["command_line"]

# Up to the last @, since a password may hold one.
_USER = re.compile(r"(://[^:/@\s]*:)\S*@")
# A name alone may be one: redis://secret@host.
_NAME = re.compile(r"(://)[^:/@\s]+@")
_QUERY = re.compile(r"([?&]\w*(?:password|token|secret|key)=)[^&#\s]*", re.IGNORECASE)


def command_line(words: Sequence[str] | None = None) -> list[str]:
    """This process's command line (or ``words``), with passwords of URLs as ``***``."""
    given = sys.argv[1:] if words is None else words
    return ["evalq", *(_hidden(word) for word in given)]


def _hidden(word: str) -> str:
    return _QUERY.sub(r"\1***", _NAME.sub(r"\1***@", _USER.sub(r"\1***@", word)))
