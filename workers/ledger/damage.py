"""What a co-tenant wrote into the ledger, or a backup restored by half: told as damage of the run that it is part of.

Nobody else's run may suffer from it, so whoever reads of many runs goes on with the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import redis

from evalq.evalcore.errors import WireError
from evalq.workers.ledger.keys import SHARED

__all__ = ["as_written", "named", "of_one_key", "texts"]


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
