"""The scripts of the ledger: each is one atomic step over the keys of one run, sweep, history or target.

A script is made of the clock, its family's prelude, its own body, and an end; a body that two families share lies in
`lua/common`. It names keys as `evalq.workers.ledger.keys` does: ``keys.meta`` is one that it is given, ``shared.runs``
one of the whole ledger. The loader writes KEYS[1] and 'evalq:runs' for them, so that names cost a step nothing.
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

# -- what scripts answer, as types: mypy sees that each answer is handled --------------------------

Claimed = Literal["leased", "held", "committed", "closed", "stale", "other", "gone"]
"""Of a claim: the chunk is leased; or another process holds it, it is committed, its run is closed, the message is of a
former epoch, the run is for another code, or the ledger does not know it."""

Committed = Literal["committed", "duplicate", "divergent", "stale", "closed", "other", "gone"]
"""Of a commit: the answer is taken; or it is there already, another one is, the rest as in `Claimed`."""

StateAfter = Literal["open", "paused", "spent", "failed", "done", "cancelled", "gone"]
"""Of closing a run or sweep: the state that it is in then; "gone" for one that the ledger does not know."""


def answer_of(kind: Any, data: bytes) -> Any:
    """What a script said, as one of the literals of ``kind``. Raises ValueError for anything else."""
    text = data.decode("ascii", "replace")
    if text not in _answers(kind):
        # An unknown answer is refused and not guessed at: it comes from scripts of another version.
        raise ValueError(f"the ledger answers {text!r}, which no script of this code does")
    return text


@cache
def _answers(kind: Any) -> frozenset[str]:
    return frozenset(get_args(kind))


STEP = 1000
"""Items that one script is given: it keeps the server from everybody else for a few milliseconds."""


class ScriptFamily(NamedTuple):
    """Scripts that are given the same keys, from one folder below `lua`.

    Where the keys ``expire``, their lifetime in ms is the first argument of each; where they may be ``driven``, the
    token of whoever takes the step is the second.
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
    """The text of a script. ``clock`` may define now_us() otherwise than by the server's clock, for simulation.

    Raises KeyError for a script that names a key which there is not.
    """
    body = _file(family.folder, name) or _file("common", name)
    parts = [clock or _file("common", "clock"), _file("common", "driver") if family.driven else ""]
    parts += [_file(family.folder, "prelude"), f"local function body()\n{body}end"]
    text = "\n".join([*parts, _file("common", "expire") if family.expire else "return (body())"])
    given = {key: f"KEYS[{number}]" for number, key in enumerate(family.keys._fields if family.keys else (), 1)}
    # In comments of a script, too: a name there has to be that of a key.
    text = re.sub(r"\bkeys\.(\w+)", lambda found: given[found[1]], text)
    return re.sub(r"\bshared\.(\w+)", lambda found: f"'{SHARED._asdict()[found[1]]}'", text)


@cache
def _file(folder: str, name: str) -> str:
    path = files("evalq.workers.ledger") / "lua" / folder / f"{name}.lua"
    return path.read_text() if path.is_file() else ""


def keep_texts() -> None:
    """Read every script now, for a process that outlives an upgrade of its files: a step of theirs is none of ours."""
    for folder in (files("evalq.workers.ledger") / "lua").iterdir():
        for file in folder.iterdir():
            _file(folder.name, file.name.removesuffix(".lua"))


class Scripts:
    """The steps of runs or of sweeps over one client (which returns bytes), as their driver ``token`` ("": as none)."""

    family: ClassVar[ScriptFamily]

    def __init__(self, client: redis.Redis, settings: Settings, token: str = "") -> None:
        self.client: Any = client  # redis-py types each answer as bytes or text; this client gives bytes
        self.settings = settings
        self.token = token
        self._loaded: dict[str, Any] = {}

    def step(self, script: str, run: str, *args: Any) -> Any:
        """One atomic step on a run or sweep: what the script returns.

        Raises AlreadyRunning for a step that only its driver takes, Finished where a whole report is there to be taken.
        """
        if script not in self._loaded:
            # Sent as a digest (EVALSHA), and as text again to a server that has lost it with a restart.
            self._loaded[script] = self.client.register_script(script_text(self.family, script))
        keys = self.family.keys.of(run) if self.family.keys else ()
        try:
            return self._loaded[script](keys=keys, args=[self.settings.keep_ms, self.token, *args])
        except redis.ResponseError as error:
            # A script's error is a single line, so the driver's token travels in it: "DRIVEN <token>".
            what, _, by = str(error).partition(" ")
            if what == "DRIVEN":
                # A driver's token is gone once its run is closed and let go: then nobody is there to be named.
                raise AlreadyRunning(run, by or "one that has ended since") from None
            if what == "FINISHED":
                raise Finished(run) from None
            raise

    def in_steps(self, script: str, run: str, items: Iterable[Sequence[Any]]) -> list[Any]:
        """One step for each `STEP` items; returns what each answered."""
        # Slices are no transaction: each script that is called so may be repeated from the first slice on.
        answers, rest = [], iter(items)
        while some := list(islice(rest, STEP)):
            answers.append(self.step(script, run, *(value for item in some for value in item)))
        return answers

    def release(self, run: str) -> None:
        """Leave a run or sweep to whoever comes next; nothing where this process does not drive it."""
        if self.token:
            self.step("release", run)

    def close(self, run: str, state: RunState, reason: str = "") -> StateAfter:
        """Move a run or sweep on to where the table of `evalq.evalcore.model.life` lets it go; returns its state then.

        "gone" for one that the ledger does not know; a run is "done" with every chunk only. Without a token it is
        somebody else's wish, which a driver notices. Raises AlreadyRunning for a driver whose run is another's by now.
        """
        answer: StateAfter = answer_of(StateAfter, self.step("close", run, state, reason, *leading_to(state)))
        return answer


# -- the ledger's time: its server's, so that no machine of a fleet needs the right one ------------


def server_micros(client: Any) -> int:
    """Microseconds since 1970 by the server's clock. Raises redis.RedisError."""
    seconds, micros = client.time()
    # Whole numbers: scripts compare times for equality and order, which sums of floats would blur.
    return int(seconds) * 1_000_000 + int(micros)


def server_seconds(client: Any) -> float:
    """Seconds since 1970 by the server's clock. Raises redis.RedisError."""
    return server_micros(client) / 1_000_000
