"""The scripts of the ledger: each is one atomic step over the keys of one run, sweep, history or target.

A script consists of the clock, its family's prelude, its own body, and an end. Bodies that two families share are in
`lua/common`. Scripts name keys as `evalq.workers.ledger.keys` does: ``keys.meta`` is a key of the run, ``shared.runs``
a key of the whole ledger. The loader replaces them by KEYS[1] and 'evalq:runs', so that names cost a step nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import redis

from evalq.evalcore.errors import AlreadyRunning, Finished
from evalq.evalcore.model.life import RunState, leading_to
from evalq.workers.ledger.keys import SHARED, HistoryKeys, LookKeys, RateLimitKeys, RunKeys, SweepKeys
from evalq.workers.settings import Settings

# -- replies of scripts as types, so that mypy checks that each reply is handled -------------------

Claimed = Literal["leased", "held", "committed", "closed", "stale", "other", "gone"]
"""Replies to a claim: the chunk is leased; or another process holds it, it is committed, its run is closed, the message
is from an earlier epoch, the run needs another code version, or the ledger does not know the run."""

Committed = Literal["committed", "duplicate", "divergent", "stale", "closed", "other", "gone"]
"""Replies to a commit: the answer is stored; or the same one is there, another one is; the others as in `Claimed`."""

StateAfter = Literal["open", "paused", "spent", "failed", "done", "cancelled", "gone"]
"""Replies to closing a run or sweep: its state then; "gone" if the ledger does not know it."""


def parse_reply(kind: Any, data: bytes) -> Any:
    """A script's reply as one of the literals of ``kind``. Raises ValueError for any other reply."""
    text = data.decode("ascii", "replace")
    if text not in _replies(kind):
        raise ValueError(f"the ledger replied {text!r}, which no script of this evalq version does")
    return text


@cache
def _replies(kind: Any) -> frozenset[str]:
    return frozenset(get_args(kind))


STEP = 1000
"""Items for one script call: it blocks the server for all other clients for a few milliseconds."""


class ScriptFamily(NamedTuple):
    """Scripts with the same keys, from one folder below `lua`.

    If the keys ``expire``, each script's first argument is their lifetime in ms. If they can be ``driven``, the second
    is the token of the process that takes the step.
    """

    folder: str
    keys: type[RunKeys | SweepKeys | HistoryKeys | LookKeys | RateLimitKeys] | None = None
    expire: bool = True
    driven: bool = False


RUNS = ScriptFamily("runs", RunKeys, driven=True)
SWEEPS = ScriptFamily("sweeps", SweepKeys, driven=True)
HISTORY = ScriptFamily("history", HistoryKeys, expire=False)
LOOKS = ScriptFamily("looks", LookKeys)
MONITOR = ScriptFamily("monitor", expire=False)
RATE_LIMIT = ScriptFamily("ratelimit", RateLimitKeys)


@cache
def script_text(family: ScriptFamily, name: str, clock: str = "") -> str:
    """The text of a script. ``clock`` may replace the server's clock by another now_us(), for simulation.

    Raises KeyError if the script names a key that does not exist.
    """
    body = _file(family.folder, name) or _file("common", name)
    parts = [clock or _file("common", "clock"), _file("common", "driver") if family.driven else ""]
    parts += [_file(family.folder, "prelude"), f"local function body()\n{body}end"]
    text = "\n".join([*parts, _file("common", "expire") if family.expire else "return (body())"])
    keys = {key: f"KEYS[{number}]" for number, key in enumerate(family.keys._fields if family.keys else (), 1)}
    # In comments of a script, too: a name there must be that of a key.
    text = re.sub(r"\bkeys\.(\w+)", lambda match: keys[match[1]], text)
    return re.sub(r"\bshared\.(\w+)", lambda match: f"'{SHARED._asdict()[match[1]]}'", text)


@cache
def _file(folder: str, name: str) -> str:
    path = files("evalq.workers.ledger") / "lua" / folder / f"{name}.lua"
    return path.read_text() if path.is_file() else ""


def preload_scripts() -> None:
    """Read every script now: a long-lived process must not use scripts from a later upgrade of its files."""
    for folder in (files("evalq.workers.ledger") / "lua").iterdir():
        for file in folder.iterdir():
            _file(folder.name, file.name.removesuffix(".lua"))


class Scripts:
    """The steps of runs or of sweeps over one client (which returns bytes), for the driver ``token`` ("": none)."""

    family: ClassVar[ScriptFamily]

    def __init__(self, client: redis.Redis, settings: Settings, token: str = "") -> None:
        self.client: Any = client  # redis-py types each answer as bytes or text; this client gives bytes
        self.settings = settings
        self.token = token
        self._loaded: dict[str, Any] = {}

    def step(self, script: str, run: str, *args: Any) -> Any:
        """Take one atomic step on a run or sweep; returns the script's reply.

        Raises AlreadyRunning if only another process, the driver, may take the step; Finished if the run has a report.
        """
        if script not in self._loaded:
            # Sent as a digest (EVALSHA), and as text to a server that lost it with a restart.
            self._loaded[script] = self.client.register_script(script_text(self.family, script))
        keys = self.family.keys.of(run) if self.family.keys else ()
        try:
            return self._loaded[script](keys=keys, args=[self.settings.keep_ms, self.token, *args])
        except redis.ResponseError as error:
            # A script's error is a single line, so the driver's token travels in it: "DRIVEN <token>".
            what, _, by = str(error).partition(" ")
            if what == "DRIVEN":
                # The driver's token is gone once it has closed and released the run.
                raise AlreadyRunning(run, by or "one that has ended since") from None
            if what == "FINISHED":
                raise Finished(run) from None
            raise

    def in_steps(self, script: str, run: str, items: Iterable[Sequence[Any]]) -> list[Any]:
        """Take one step for each `STEP` items; returns the replies."""
        # The slices are no transaction: a script used here must allow repetition from the first slice on.
        replies, rest = [], iter(items)
        while some := list(islice(rest, STEP)):
            replies.append(self.step(script, run, *(value for item in some for value in item)))
        return replies

    def release(self, run: str) -> None:
        """Release a run or sweep for the next driver; does nothing if this process does not drive it."""
        if self.token:
            self.step("release", run)

    def close(self, run: str, state: RunState, reason: str = "") -> StateAfter:
        """Move a run or sweep to ``state`` if the table in `evalq.evalcore.model.life` allows it; returns its state.

        "gone" if the ledger does not know it. A run becomes "done" only with every chunk. Without a token, the driver
        notices the new state at its next poll. Raises AlreadyRunning if another process drives the run by now.
        """
        reply: StateAfter = parse_reply(StateAfter, self.step("close", run, state, reason, *leading_to(state)))
        return reply

    def proceed(self, run: str) -> StateAfter:
        """Let the fleet go on with a paused run or sweep that was left to it; returns its state then.

        "gone" if the ledger does not know it. Others stay as they are: their producer resumes them.
        """
        reply: StateAfter = parse_reply(StateAfter, self.step("proceed", run, run))
        return reply


# -- time by the server's clock, so that the clocks of the fleet's machines may be wrong -----------


def server_micros(client: Any) -> int:
    """Microseconds since 1970 by the server's clock. Raises redis.RedisError."""
    seconds, micros = client.time()
    # Whole numbers: scripts compare times for equality and order, which sums of floats would blur.
    return int(seconds) * 1_000_000 + int(micros)


def server_seconds(client: Any) -> float:
    """Seconds since 1970 by the server's clock. Raises redis.RedisError."""
    return server_micros(client) / 1_000_000
