"""The names of all keys that evalq keeps in Redis or Valkey, and errors for damaged keys.

Scripts use the same names: ``keys.meta`` is a key of the script's run, ``shared.runs`` a key of the whole ledger. A
test compares the users' rights in `deploy/redis` with these names.
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
    "decode_fields",
    "decode_names",
    "is_wrong_type",
    "reading",
]


class SharedKeys(NamedTuple):
    """Keys of the whole ledger, and prefixes of keys of one worker, run or history.

    Only the keys of one worker, caller, follower or code version expire.
    """

    runs: str = PREFIX + "runs"  # {run: queue}; expired runs are removed now and then
    tended: str = PREFIX + "runs:tended"  # {run: queue} of runs that workers tend: open, or detached and unreported
    ended: str = PREFIX + "runs:"  # prefix: runs of another state, by the time they expire
    run: str = PREFIX + "run:"
    suites: str = PREFIX + "suites"  # suites counted by name
    totals: str = PREFIX + "totals"  # counters over all runs
    sweeps: str = PREFIX + "sweeps"  # {sweep: header} of open sweeps, and of closed ones until the next claim
    sweep: str = PREFIX + "sweep:"
    closed: str = PREFIX + "sweeps:closed"  # closed sweeps, by the time they expire
    unattended: str = PREFIX + "sweeps:left"  # {sweep: code version} of sweeps detached from their producer
    calls: str = PREFIX + "calls"  # counters over all sweeps, by target
    workers: str = PREFIX + "workers"  # names; a worker whose own key expired is dead
    worker: str = PREFIX + "worker:"
    callers: str = PREFIX + "callers"
    caller: str = PREFIX + "caller:"
    followers: str = PREFIX + "followers"
    follower: str = PREFIX + "follower:"
    code: str = PREFIX + "code:"  # the parts of a code version
    histories: str = PREFIX + "histories"  # all histories, by the time of the last change
    history: str = PREFIX + "history:"
    drift: str = PREFIX + "drift:"  # apart from the histories: users who may read those need not see each case
    baselines: str = PREFIX + "baselines"  # the names of approved runs
    baseline: str = PREFIX + "baseline:"
    look: str = PREFIX + "look:"
    rate_limit: str = PREFIX + "pace:"
    reconciler: str = PREFIX + "reconciler:"  # which worker of a code version tends its runs


SHARED = SharedKeys()


class RunKeys(NamedTuple):
    """The keys of one run. Their fields are chunk numbers, unless the comment says otherwise."""

    meta: str  # header, epoch, state, driver and counters
    key: str  # the secret of the chunks' digests, apart from `meta`: users who may read progress must not see it
    chunks: str  # the plan: a list of entries
    digests: str  # digests of committed chunks: they decide which answer is right
    parts: str  # answers that the driver has not collected
    flight: str  # published, uncommitted chunks, by the time of their last publication
    leases: str  # "<deadline> <ms> <pid> <worker>"
    notes: str  # "<event> <chunk>": count
    refused: str  # why no worker could read the chunk's bytes
    blobs: str  # bytes for workers that cannot read the file
    aside: str  # answers that differ from the committed one, and records counted before a retry
    sent: str  # published, uncommitted chunks, by the time of their first publication
    final: str  # the report, if a worker made it
    failures: str  # failures of workers, by chunk and by worker

    @classmethod
    def of(cls, run: str) -> Self:
        """The keys of ``run``."""
        return cls._make(f"{SHARED.run}{{{run}}}:{part}" for part in cls._fields)


class SweepKeys(NamedTuple):
    """The keys of one sweep."""

    meta: str  # header, state, budgets, driver and counters
    prompts: str  # by case
    again: str  # calls that were given back
    holders: str  # calling processes, by the end of their lease
    held: str  # {call: process}
    recorded: str  # calls that have an output
    outbox: str  # outputs that the driver has not collected
    halted: str  # cases that get no more calls
    lost: str  # "<process> <call>[ <attempt>]" of attempts that began and never ended; no number for the first attempt
    left: str  # facts that a producer left with the sweep
    forgotten: str  # calls to make again, though their cost is counted
    retries: str  # {held call: granted attempts beyond the first}
    awaited: str  # processes that must report before a server that lost data hands out calls
    begun: str  # {held call: attempts begun}
    talks: str  # {call: its conversation so far, "cost CALL": "attempts cost" of it}
    kept: str  # {held call: attempts begun in this hold that its conversation has}
    talked: str  # {call: attempts of earlier holds that its conversation has}
    used: str  # {call: "tries seconds cost" of earlier holds; "at <call>": its first try now; "drop <call>": process}
    aside: str  # cases that a user holds back

    @classmethod
    def of(cls, run: str) -> Self:
        """The keys of the sweep ``run``."""
        return cls._make(f"{SHARED.sweep}{{{run}}}:{part}" for part in cls._fields)


class HistoryKeys(NamedTuple):
    """The keys of one history."""

    ids: str  # run ids, the newest first
    texts: str  # {run: entry}
    recent: str  # {run: the values that dashboards show of many runs}
    drift: str  # {chain: packed sums of its runs' answers}, a chain for each specification
    drifting: str  # {chain: the time it was counted last, and its state}

    @classmethod
    def of(cls, member: str) -> Self:
        """The keys of the history that the index has as ``member``."""
        key = SHARED.history + member
        return cls(key, key + ":texts", key + ":recent", SHARED.drift + member, key + ":drifting")


class LookKeys(NamedTuple):
    """The key of all looks at one baseline by one policy; it expires."""

    looks: str  # the count, and by candidate its answers and why it was stopped

    @classmethod
    def of(cls, baseline: str) -> Self:
        """The key of the baseline and policy with this digest."""
        return cls(SHARED.look + baseline)


class RateLimitKeys(NamedTuple):
    """The keys of one target's rate limit; they expire."""

    state: str
    holders: str  # processes with calls in flight

    @classmethod
    def of(cls, target: str) -> Self:
        """The keys of ``target``."""
        return cls._make(f"{SHARED.rate_limit}{{{target}}}:{part}" for part in cls._fields)


# -- damage ----------------------------------------------------------------------------------------
# A co-tenant may write into the ledger, or a backup may be restored in part. evalq reports this as damage of the one
# run; code that reads many runs goes on with the others.


@contextlib.contextmanager
def reading(run: str, start: str = SHARED.run) -> Iterator[None]:
    """Turn errors while reading ``run``, under keys that begin with ``start``, into WireError with a remedy."""
    try:
        yield
    except redis.ResponseError as error:
        if not is_wrong_type(error):
            raise
        raise _damaged(run, start, "one of its keys is of another type") from error
    except KeyError as error:
        raise _damaged(run, start, f"{error} is missing") from error
    except (ValueError, LookupError, TypeError, msgspec.MsgspecError) as error:
        raise _damaged(run, start, str(error)) from error


def _damaged(run: str, start: str, what: str) -> WireError:
    return WireError(
        f"run {run}: its data in the ledger is damaged: {what}. Delete its keys there ({start}{{{run}}}:*), then run "
        f"evalq resume, which restores it from the run's folder (evalq "
        f"{'calls, and pays for,' if start == SHARED.sweep else 'computes'} again what the folder does not have)"
    )


def is_wrong_type(error: redis.RedisError) -> bool:
    """Whether the server refused a step because one key has a wrong type: other runs' keys may be fine."""
    # Other refusals, such as missing rights, concern every run.
    return isinstance(error, redis.ResponseError) and "WRONGTYPE" in str(error)


def decode_fields(fields: Mapping[bytes, bytes]) -> Iterator[tuple[str, bytes]]:
    """The fields of a list by name, without names that are not text: evalq does not write such names."""
    for name, value in fields.items():
        with contextlib.suppress(UnicodeDecodeError):
            yield name.decode(), value


def decode_names(names: Iterable[bytes]) -> list[str]:
    """Those of ``names`` that are text."""
    return [name for name, _ in decode_fields(dict.fromkeys(names, b""))]
