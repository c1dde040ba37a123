"""The names of all keys that evalq keeps in Redis or Valkey, once, and what a key that is damaged means.

Scripts know them by the same names: ``keys.meta`` is the first of those that a script is given, ``shared.runs`` one
that belongs to no single run. The users of `deploy/redis` are held against them by a test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Self

import msgspec
import redis

from evalq.evalcore.errors import WireError
from evalq.workers.names import LEDGER as PREFIX

__all__ = [
    "PREFIX",
    "SHARED",
    "HistoryKeys",
    "LookKeys",
    "RateLimitKeys",
    "RunKeys",
    "SweepKeys",
    "as_written",
    "named",
    "of_one_key",
    "texts",
]


class SharedKeys(NamedTuple):
    """Keys of the whole ledger, and what the keys of one worker, run or history begin with. None of them expires but
    those of one worker, caller or code.
    """

    runs: str = PREFIX + "runs"  # {run: queue} of runs that have not expired, as far as anybody looked
    tended: str = PREFIX + "runs:tended"  # {run: queue} of those that workers look at: open, or left to them unreported
    ended: str = PREFIX + "runs:"  # of each other state: its runs, by when they expire
    run: str = PREFIX + "run:"
    suites: str = PREFIX + "suites"  # those that are counted by name
    totals: str = PREFIX + "totals"  # counters over all runs
    sweeps: str = PREFIX + "sweeps"  # {sweep: its header} of open ones, and of closed ones until somebody claims
    sweep: str = PREFIX + "sweep:"
    closed: str = PREFIX + "sweeps:closed"  # sweeps that were, by when they expire
    unattended: str = PREFIX + "sweeps:left"  # {sweep: code version} of those left to the fleet
    calls: str = PREFIX + "calls"  # counters over all sweeps, by target
    workers: str = PREFIX + "workers"  # names; one whose own key expired is dead
    worker: str = PREFIX + "worker:"
    callers: str = PREFIX + "callers"
    caller: str = PREFIX + "caller:"
    code: str = PREFIX + "code:"  # what a code version is made of
    histories: str = PREFIX + "histories"  # all of them, by when they were last added to
    history: str = PREFIX + "history:"
    drift: str = PREFIX + "drift:"  # apart from the histories: who may show those need not know each case
    baselines: str = PREFIX + "baselines"  # the names of approved runs
    baseline: str = PREFIX + "baseline:"
    look: str = PREFIX + "look:"
    rate_limit: str = PREFIX + "pace:"
    reconciler: str = PREFIX + "reconciler:"  # which worker of a code version tends its runs


SHARED = SharedKeys()


class RunKeys(NamedTuple):
    """The keys of one run, as `of` makes them. By chunk number where nothing else is said."""

    meta: str  # header, epoch, state, driver and counters
    key: str  # the secret of the chunks' digests: not for those who may only read how a run stands
    chunks: str  # the plan: a list of entries
    digests: str  # of committed chunks: the authority on their answers
    parts: str  # answers that their driver has not collected
    flight: str  # published chunks that are not committed, by when they were published last
    leases: str  # "<deadline> <ms> <pid> <worker>"
    notes: str  # "<what> <chunk>": how often
    refused: str  # why no worker could read the chunk's bytes
    blobs: str  # bytes for workers that cannot read them
    aside: str  # answers that differ from the one that was committed, and what was counted before a retry
    sent: str  # published chunks that are not committed, by when they were published first
    final: str  # the report, where the fleet made it
    failures: str  # of workers, by chunk and by worker

    @classmethod
    def of(cls, run: str) -> Self:
        """The keys of ``run``."""
        return cls._make(f"{SHARED.run}{{{run}}}:{part}" for part in cls._fields)


class SweepKeys(NamedTuple):
    """The keys of one sweep, as `of` makes them."""

    meta: str  # header, state, budgets, driver and counters
    prompts: str  # by case
    again: str  # calls that were given back
    holders: str  # processes that call, by when their lease ends
    held: str  # {call: process}
    recorded: str  # calls that have an output
    outbox: str  # outputs that their driver has not collected
    halted: str  # cases that get no more calls
    lost: str  # "<process> <call>": begun, and never heard of again; with a number for each attempt beyond the first
    left: str  # what a producer left with it
    forgotten: str  # calls that are to be made again, though what they cost is counted
    retries: str  # {call: attempts beyond the first that were granted} of those that are held
    awaited: str  # who is to tell what this server lost, before it hands out calls
    begun: str  # {call: attempts that have begun} of those that are held

    @classmethod
    def of(cls, run: str) -> Self:
        """The keys of the sweep ``run``."""
        return cls._make(f"{SHARED.sweep}{{{run}}}:{part}" for part in cls._fields)


class HistoryKeys(NamedTuple):
    """The keys of one history, as `of` makes them."""

    ids: str  # of its runs, the newest first
    texts: str  # their entries
    recent: str  # those of their values that are shown side by side
    drift: str  # {chain: its runs' answers as sums, packed}, a chain for each specification
    drifting: str  # {chain: when it was counted last, and what is shown of it}

    @classmethod
    def of(cls, member: str) -> Self:
        """The keys of the history that the index has as ``member``."""
        key = SHARED.history + member
        return cls(key, key + ":texts", key + ":recent", SHARED.drift + member, key + ":drifting")


class LookKeys(NamedTuple):
    """The key of all looks at one baseline by one policy, as `of` makes it; it expires."""

    looks: str  # how many, and by candidate: its answers, and why it was stopped

    @classmethod
    def of(cls, baseline: str) -> Self:
        """The key of the baseline and policy with this digest."""
        return cls(SHARED.look + baseline)


class RateLimitKeys(NamedTuple):
    """The keys of one target's rate limit, as `of` makes them; they expire."""

    state: str
    holders: str  # processes with calls in flight

    @classmethod
    def of(cls, target: str) -> Self:
        """The keys of ``target``."""
        return cls._make(f"{SHARED.rate_limit}{{{target}}}:{part}" for part in cls._fields)


# -- damage ----------------------------------------------------------------------------------------
# What a co-tenant wrote into the ledger, or a backup restored by half, is reported as damage of the run that it is
# part of. No other run may suffer from it, so whoever reads many runs goes on with the others.


@contextlib.contextmanager
def as_written(run: str, start: str = SHARED.run) -> Iterator[None]:
    """Read what the ledger has of ``run``, under keys that begin with ``start``.

    Raises WireError, with the keys and what to do, where it is not what evalq writes.
    """
    try:
        yield
    except redis.ResponseError as error:
        if not of_one_key(error):
            raise
        raise _damaged(run, start, "one of its keys is of another type") from error
    except KeyError as error:
        raise _damaged(run, start, f"it lacks {error}") from error
    except (ValueError, LookupError, TypeError, msgspec.MsgspecError) as error:
        raise _damaged(run, start, str(error)) from error


def _damaged(run: str, start: str, what: str) -> WireError:
    return WireError(
        f"run {run}: what the ledger has of it is not what evalq writes: {what}; delete its keys there "
        f"({start}{{{run}}}:*), then evalq resume tells it anew from the run's folder (what that lacks is "
        f"{'called, and paid,' if start == SHARED.sweep else 'computed'} again)"
    )


def of_one_key(error: redis.RedisError) -> bool:
    """Whether the server refused a step for what lies in one key: of another run, the same step may well be taken."""
    # Not every refusal: without its rights, say, a worker can tend no run at all, and has to say so.
    return isinstance(error, redis.ResponseError) and "WRONGTYPE" in str(error)


def named(found: Mapping[bytes, bytes]) -> Iterator[tuple[str, bytes]]:
    """What a list of the ledger has by name, without names that are no text: evalq gives none, so they are others'."""
    for name, value in found.items():
        with contextlib.suppress(UnicodeDecodeError):
            yield name.decode(), value


def texts(found: Iterable[bytes]) -> list[str]:
    """Those of these names that are text."""
    return [name for name, _ in named(dict.fromkeys(found, b""))]
