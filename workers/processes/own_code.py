"""Whether a process that outlives an upgrade of its files still computes by the code that it says it is.

Python imports a module when it is first needed. A worker under whose feet evalq is installed anew would import what it
has not needed yet of the new code, and answer with it in the name of the old.
"""

from __future__ import annotations

import sys

from evalq.evalcore.version import code_now, code_version

__all__ = ["OwnCode", "changed"]


def changed(who: str) -> str:
    """That the code on this host is another by now than this process's, a ``who``'s; empty where it is the same.

    Raises OSError where its files cannot be read.
    """
    try:
        now = code_now()
    except FileNotFoundError:
        now = "half installed"
    if now == code_version():
        return ""
    return (
        f"the files of evalq or of a plug-in on this host were changed while this {who} ran (it began as code "
        f"{code_version()}, they are {now})"
    )


class OwnCode:
    """One worker process's; it looks at the files only when modules were imported since it last did."""

    def __init__(self) -> None:
        self._modules = 0
        self._mixed = ""

    def mixed(self, *, elsewhere: bool = False) -> str:
        """What is wrong and what to do, where something was imported after the code had changed; empty where not.

        For good: what a process has imported once, it computes with. ``elsewhere``: a process that was forked from
        this one may have imported what this one has not. Raises OSError where the files cannot be read.
        """
        # Counted before the files are read: what another thread imports meanwhile is looked at the next time.
        modules = len(sys.modules)
        if not self._mixed and (elsewhere or modules != self._modules):
            told = changed("worker")
            self._mixed = told and f"{told}: restart this worker"
            self._modules = modules
        return self._mixed
