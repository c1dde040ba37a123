"""What calls of a target took before, as far as this folder knows: earlier runs, a cache, and what `--try` measured.

Only calls under the same settings of the target count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec

from evalq.evalcore.errors import EvalqError
from evalq.evalcore.files import open_input, write_atomic
from evalq.evalcore.model.calls import Attempt
from evalq.producer.folder.files import JOINED, OUTPUTS, RUNS
from evalq.producer.sweeps.cache import Cache

__all__ = ["Means", "keep_trial", "means_of"]

TRIALS = RUNS / "measured.json"
"""{target: {digest of its settings: `Means`}}, of the last `--try` of each."""
# An estimate comes before anything is begun, and must not read all that was ever recorded.
_FOLDERS = 50
_LINES = 2000
_BYTES = 32 << 20

_Amount = Annotated[float, msgspec.Meta(ge=0)]


class Means(msgspec.Struct, frozen=True):
    """Mean tokens of ``calls`` calls, retries included; ``source`` says where they were made."""

    calls: Annotated[int, msgspec.Meta(ge=1)]
    prompt: _Amount
    completion: _Amount
    source: str = ""


class _Call(msgspec.Struct, frozen=True):
    """What counts here of a recorded call; that of a judge names it as one."""

    target: str = ""
    judge: str = ""
    config: str = ""
    attempts: tuple[Attempt, ...] = ()


class _Line(_Call, frozen=True):
    """A line of recorded outputs: the call itself, and what further targets were asked about it."""

    judgements: tuple[_Call, ...] = ()
    embedding: _Call | None = None

    def calls(self) -> Iterator[_Call]:
        """All of them."""
        yield from (self, *self.judgements)
        if self.embedding is not None:
            yield self.embedding


def means_of(target: str, config: str, cache: str) -> Means | None:
    """From the newest run that called it, else from the cache, else from the last trial; None where nothing is known.

    What is damaged or of another form counts as nothing: an estimate is no reason to fail.
    """
    for source, attempts in _recorded(target, config, cache):
        means = mean(attempts, source)
        if means is not None:
            return means
    return _trials().get(target, {}).get(config)


def keep_trial(target: str, config: str, calls: Iterable[Iterable[Attempt]]) -> str:
    """Keep what a trial measured; returns the file's name, "" where its calls told no tokens."""
    means = mean(calls, "--try")
    if means is None:
        return ""
    TRIALS.parent.mkdir(exist_ok=True)
    known = _trials()
    write_atomic(TRIALS, msgspec.json.encode({**known, target: {config: means}}))
    return str(TRIALS)


def mean(calls: Iterable[Iterable[Attempt]], source: str) -> Means | None:
    """The mean tokens of calls whose attempts reported some; None without such calls."""
    # Calls that told no tokens are left out: counted as none they would make the estimate too low.
    told = [
        (sum(a.prompt_tokens or 0 for a in attempts), sum(a.completion_tokens or 0 for a in attempts))
        for attempts in map(tuple, calls)
        if any(a.prompt_tokens is not None or a.completion_tokens is not None for a in attempts)
    ]
    if not told:
        return None
    prompt, completion = (sum(amounts) / len(told) for amounts in zip(*told, strict=True))
    return Means(len(told), prompt, completion, source)


def _recorded(target: str, config: str, cache: str) -> Iterator[tuple[str, Iterator[tuple[Attempt, ...]]]]:
    # Both, since a run that has given outputs judged calls nobody for its own.
    files = [path for name in (OUTPUTS, JOINED) for path in RUNS.glob(f"*/{name}") if path.is_file()]
    for path in sorted(files, key=_age)[:_FOLDERS]:
        calls = (call for line in _lines(path) for call in line.calls())
        found = (call for call in calls if (call.judge or call.target, call.config) == (target, config))
        yield str(path.parent), (call.attempts for call in found)
    if cache and Path(cache).is_file():
        with contextlib.suppress(EvalqError), contextlib.closing(Cache(cache)) as known:
            yield cache, (output.attempts for output in known.some(target, config, _LINES))


def _age(path: Path) -> float:
    # It may be removed in between: then it comes last.
    with contextlib.suppress(OSError):
        return -path.stat().st_mtime
    return 0.0


def _lines(path: Path) -> Iterator[_Line]:
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError), open_input(path) as stream:
        for line in islice(stream.readlines(_BYTES), _LINES):
            yield msgspec.json.decode(line, type=_Line)


def _trials() -> dict[str, dict[str, Means]]:
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        if TRIALS.is_file():
            with open_input(TRIALS) as stream:
                return msgspec.json.decode(stream.read(_BYTES), type=dict[str, dict[str, Means]])
    return {}
