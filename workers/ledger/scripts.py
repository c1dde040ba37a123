"""The scripts of a run's ledger: each is one atomic step over the keys of one run."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import redis

from evalq.evalcore.errors import Driven, Finished
from evalq.workers.settings import Settings

__all__ = ["OTHER", "PREFIX", "RUNS", "SUITES", "TOTALS", "WORKERS", "Scripts", "keys_of"]

OTHER = "other"
"""What suites beyond ``max_suites`` are counted as."""
PREFIX = "evalq:"
WORKERS = PREFIX + "worker:"
TOTALS = PREFIX + "totals"
RUNS = PREFIX + "runs"
SUITES = PREFIX + "suites"
_PARTS = (
    "meta",
    "chunks",
    "digests",
    "parts",
    "flight",
    "leases",
    "notes",
    "refused",
    "blobs",
    "aside",
    "sent",
    "final",
    "failures",
)


def keys_of(run: str) -> list[str]:
    """All keys of a run, in the order the scripts know them by."""
    return [f"{PREFIX}run:{{{run}}}:{part}" for part in _PARTS]


@cache
def _script(name: str) -> str:
    lua = files("evalq.workers.ledger") / "lua"
    prelude, body, epilogue = (lua.joinpath(f"{n}.lua").read_text() for n in ("prelude", name, "epilogue"))
    return f"local TOTALS = '{TOTALS}'\n{prelude}\nlocal function body()\n{body}\nend\n{epilogue}"


class Scripts:
    """The scripts over one client (which returns bytes), as ``token`` takes its steps ("": not as a run's driver)."""

    def __init__(self, client: redis.Redis, settings: Settings, token: str = "") -> None:
        self.client: Any = client  # redis-py types each answer as bytes or text; this client gives bytes
        self._settings = settings
        self.token = token
        self._loaded: dict[str, Any] = {}

    @property
    def settings(self) -> Settings:
        """Those that the client was made with."""
        return self._settings

    def script(self, name: str, run: str, *args: Any) -> Any:
        """One step of ``lua/<name>.lua`` on a run, for what keeps its own facts of runs."""
        return self._run(name, run, *args)

    def _run(self, script: str, run: str, *args: Any) -> Any:
        if script not in self._loaded:
            self._loaded[script] = self.client.register_script(_script(script))
        return self._loaded[script](keys=keys_of(run), args=[self._settings.keep_ms, *args])

    def _step(self, script: str, run: str, *args: Any) -> Any:
        """A script that only the run's driver may run, while it has one. Raises Driven, Finished."""
        result = self._run(script, run, self.token, *args)
        if isinstance(result, list) and result[0] == b"driven":
            raise Driven(run, result[1].decode() or "one that has ended since")
        if isinstance(result, list) and result[0] == b"finished":
            raise Finished(run)
        return result
