"""The outputs of a sweep in its run folder, as they came: appended, synced, found again by their call."""

from __future__ import annotations

import contextlib
from array import array
from collections import Counter
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_input, read_plain, write_atomic
from evalq.evalcore.model.calls import Output, Spending
from evalq.producer.folder.files import DRIVER, RESERVE, AppendedFile, Reserve, whole_lines

RESERVED_BYTES = 64 << 10
"""For what processes tell of their attempts: a hundred bytes for each of them."""

# Failures that say nothing of the agent: it was not heard.
UNANSWERED = ("rate_limit", "timeout", "server", "crashed")
_AGAIN = b'{"again"'
_KEPT = b'{"kept"'
_CACHED = b'{"cached"'
_BEGUN = b'{"begun"'


class _Cached(msgspec.Struct):
    cached: list[int]
    of: str = ""


class _Begun(msgspec.Struct):
    begun: int
    by: dict[str, str] = {}
    at: dict[str, int] = {}
    gone: int = 0


class _Before(NamedTuple):
    """An output of a call that was to be made again: where it stands, whose it was, and its kind of failure."""

    place: int
    given: int
    failure: str | None


class RecordedOutputs:
    """Outputs in the order they came, appended and synced; of a call that was tried anew the last one counts."""

    def __init__(self, path: Path, total: int) -> None:
        self._path = path
        # Places instead of outputs: of a million calls these are eight megabytes, however long the answers are.
        self._places = array("q", bytes(8 * total))  # where each call's line begins, plus 1; 0: none
        self._earlier: dict[int, list[_Before]] = {}
        self._failed: dict[int, str] = {}
        self._free: dict[int, str] = {}  # what the piece that is being read takes over, less what came of it
        self._taken: list[int] = []  # what came of it
        self._piece = 0  # where it begins
        self._givers: list[str] = [""]
        self._given = array("H", bytes(2 * total))  # of whom each output was taken: its place in _givers, plus 1
        self._in: BinaryIO | None = None
        self._begun = self._ended_then = 0
        self.gone = 0
        """Outputs that were paid for and could not be written down, and that no server has any more."""
        self._reserve = Reserve(path.with_name(RESERVE), RESERVED_BYTES)
        self._at: dict[str, int] = {}
        self.tallies: dict[str, str] = {}
        """What each process told of the attempts it made, and what they cost."""
        self.count = 0
        self.paid = self.attempts = 0
        self.spending = Spending()
        """Of all that was called for this sweep, tried anew or not: outputs, attempts, and what they cost."""
        self.reused: Counter[str] = Counter()
        """{run: outputs that were taken from it}, "" for a cache; of one that was made anew nothing is."""
        self._file, end = AppendedFile(path), 0
        for line in whole_lines(path) if path.exists() else ():
            self._note(line, end)
            end += len(line)
        self._file.end = self._undone() if self._free else end

    @property
    def errors(self) -> int:
        """Calls that have no output."""
        return len(self._failed)

    @property
    def begun(self) -> int:
        """Attempts that were begun, as far as is known: at least those of what is recorded."""
        return max(self._begun, self.attempts)

    @property
    def ended(self) -> int:
        """Attempts that ended, recorded or told of by those who made them."""
        # The greater: tallies know of attempts that brought no output, but are written down without a sync.
        return max(self.attempts, sum(int(tally.split()[1]) for tally in self.tallies.values()))

    @property
    def under_way(self) -> dict[str, int]:
        """{process: attempts} that were begun and had not ended when that was last told, less those that have since.

        An output does not say whose it is: the first processes are taken for those that made what came since.
        """
        since, found = self.ended - self._ended_then, {}
        for holder, attempts in self._at.items():
            found[holder] = max(0, attempts - since)
            since -= attempts - found[holder]
        return {holder: attempts for holder, attempts in found.items() if attempts}

    @property
    def cost(self) -> float:
        """What all attempts cost, as far as is known: at least that of what is recorded."""
        return max(self.spending.total, sum(float(tally.split()[3]) for tally in self.tallies.values()))

    @property
    def lost(self) -> int:
        """Attempts that were begun and came to nothing that anybody told, without those `under_way`."""
        return max(0, self.begun - self.ended - sum(self.under_way.values()))

    def note_begun(
        self, attempts: int, tallies: dict[str, str] | None = None, under_way: dict[str, int] | None = None
    ) -> None:
        """Keep how many attempts were begun, and by whom, for counts and budgets that outlive the server.

        Not worth a sync of its own.
        """
        news = {name: tally for name, tally in (tallies or {}).items() if self.tallies.get(name) != tally}
        at = under_way or {}
        # In its order, too: a process that died since has as many attempts as before, and is not the next to end one.
        if attempts != self._begun or news or [*at.items()] != [*self._at.items()]:
            note = {"begun": attempts, "by": news, "at": at, "gone": self.gone}
            self._append([msgspec.json.encode(note) + b"\n"], sync=False)

    def reserve(self) -> None:
        """Take the room that `note_stopped` needs. Raises OSError: better before the first call than behind it."""
        self._reserve.take()

    def release(self) -> None:
        """Give that room back: the calls are over."""
        self._reserve.release()

    def note_stopped(self, attempts: int, tallies: dict[str, str], under_way: dict[str, int], gone: int) -> None:
        """`note_begun` where the folder takes no more outputs: into the reserved room, and on disk when this returns.

        ``gone`` outputs were paid for, are not in the folder, and no server keeps them. Raises OSError.
        """
        self._reserve.release()
        note = {"begun": attempts, "by": tallies, "at": under_way, "gone": self.gone + gone}
        self._append([msgspec.json.encode(note) + b"\n"])

    def had(self, call: int) -> bool:
        """Whether a call is recorded, or was before it was to be made again."""
        return self.has(call) or call in self._earlier

    def has(self, call: int) -> bool:
        """Whether a call is recorded."""
        return self._places[call] > 0

    def given(self, call: int) -> bool:
        """Whether what is recorded of a call was paid for by another sweep."""
        return self._given[call] > 0

    def calls(self) -> list[int]:
        """All that are recorded."""
        return [call for call, place in enumerate(self._places) if place]

    @property
    def config(self) -> str:
        """The digest of its target's settings in the first output that it has; empty without one."""
        output = next((found for call in self.calls()[:1] if (found := self.get(call)) is not None), None)
        return "" if output is None else output.config

    def failed(self) -> list[int]:
        """Those without an output."""
        return sorted(self._failed)

    def unanswered(self) -> Counter[str]:
        """{kind of failure: calls} of those that nothing came of, through no doing of the agent's."""
        return Counter(kind for kind in self._failed.values() if kind in UNANSWERED)

    def add(self, outputs: list[Output], *, cached: bool = False, of: str = "") -> list[Output]:
        """Keep new outputs, safely on disk when this returns; returns those that were new.

        What is ``cached`` was paid for by another sweep: by that of the run ``of``, where that is known.
        """
        # Reversed, since the last one of a key stays: of two outputs of a call the first counts, as in the ledger.
        fresh = {output.call: output for output in reversed(outputs) if not self.has(output.call)}
        if fresh:
            lines = [msgspec.json.encode(output) + b"\n" for output in fresh.values()]
            if cached:
                # In one piece with the outputs, and before them: after a crash in between they would count as paid.
                lines.insert(0, msgspec.json.encode(_Cached(list(fresh), of)) + b"\n")
            self._append(lines)
        return list(fresh.values())

    def drop(self, calls: list[int]) -> None:
        """Have these calls made again; what they have stays as earlier attempts."""
        self._append([_AGAIN + b":" + msgspec.json.encode(calls) + b"}\n"])

    def put_back(self) -> None:
        """Have what `drop` left without an output as it was: a failure that nobody tries again has still happened."""
        if left := sorted(call for call in self._earlier if not self.has(call)):
            self._append([_KEPT + b":" + msgspec.json.encode(left) + b"}\n"])

    def get(self, call: int) -> Output | None:
        """What is recorded of a call, with the attempts of earlier tries."""
        place = self._places[call]
        if not place:
            return None
        output = self._read(place - 1)
        for before in reversed(self._earlier.get(call, ())):
            output = output.after(self._read(before.place))
        return output

    def _append(self, lines: list[bytes], *, sync: bool = True) -> None:
        place = self._file.end
        self._file.append(b"".join(lines), sync=sync)
        for line in lines:
            self._note(line, place)
            place += len(line)

    def _undone(self) -> int:
        """Forget a takeover that a process was killed in the middle of; returns where it begins.

        All of it is taken again. With its first line left there, a call of it that is made and paid for would look
        as if it were free.
        """
        for call in self._taken:
            self._forget(call)
        self._free.clear()
        return self._piece

    def _note(self, line: bytes, place: int) -> None:
        try:
            if self._free and line.startswith((_AGAIN, _KEPT, _BEGUN, _CACHED)):
                self._free.clear()  # outputs stand right behind the line that gives them: the rest never came
            if line.startswith(_AGAIN):
                for call in msgspec.json.decode(line, type=dict[str, list[int]])["again"]:
                    self._drop(call)
                return
            if line.startswith(_KEPT):
                for call in msgspec.json.decode(line, type=dict[str, list[int]])["kept"]:
                    self._put_back(call)
                return
            if line.startswith(_BEGUN):
                begun = msgspec.json.decode(line, type=_Begun)
                self._begun, self._at, self.gone = begun.begun, begun.at, begun.gone
                self.tallies |= begun.by
                self._ended_then = self.ended
                return
            if line.startswith(_CACHED):
                taken = msgspec.json.decode(line, type=_Cached)
                self._free, self._taken, self._piece = dict.fromkeys(taken.cached, taken.of), [], place
                return
            output = Output.from_wire(line)
            giver = self._free.pop(output.call, None)
            if giver is None:
                self._free.clear()
            if self.has(output.call):
                return  # kept once more by a process that was interrupted before it had noted the first
            self._places[output.call] = place + 1
        except (WireError, msgspec.DecodeError, KeyError, IndexError) as error:
            raise WireError(f"{self._path} is damaged at byte {place}: {error}") from error
        self.count += 1
        if giver is not None:
            self._take(output.call, giver)
        else:
            self.paid += 1
            self.attempts += len(output.attempts)
            self.spending.add(output.cost, told=output.priced == "told", untold=output.untold)
        if output.failed:
            self._failed[output.call] = output.error.partition(":")[0]

    def _take(self, call: int, giver: str) -> None:
        if giver not in self._givers:
            self._givers.append(giver)
        self._given[call] = self._givers.index(giver) + 1
        if self._free:
            self._taken.append(call)
        else:
            self._taken.clear()  # the piece is whole
        self.reused[giver] += 1

    def _drop(self, call: int) -> None:
        if place := self._places[call]:
            # `paid` and `attempts` stay: an output that is asked for anew was paid for all the same.
            before = _Before(place - 1, self._given[call], self._failed.get(call))
            self._forget(call)
            self._earlier.setdefault(call, []).append(before)

    def _put_back(self, call: int) -> None:
        before = self._earlier[call].pop()
        if not self._earlier[call]:
            del self._earlier[call]
        self._places[call], self._given[call] = before.place + 1, before.given
        self.count += 1
        if before.given:
            self.reused[self._givers[before.given - 1]] += 1
        if before.failure is not None:
            self._failed[call] = before.failure

    def _forget(self, call: int) -> None:
        if self._given[call]:
            self.reused[self._givers[self._given[call] - 1]] -= 1
            self._given[call] = 0
        self._places[call] = 0
        self._failed.pop(call, None)
        self.count -= 1

    def _read(self, place: int) -> Output:
        if self._in is None:
            self._in = open_input(self._path)
        self._in.seek(place)
        return Output.from_wire(self._in.readline())


# Who drove a sweep in its folder last: whoever takes it over names that token to the ledger.


class LastDriver:
    """The token in the file of a run folder at ``place``, which may keep it in another of ``files``."""

    def __init__(self, place: Path, files: Path) -> None:
        self._place = place
        self._path = files / DRIVER

    def token(self) -> str:
        """That of a driver that is dead, where the caller holds the folder's lock.

        Empty where nobody drove, or did so in the folder that this is a copy of.
        """
        with contextlib.suppress(OSError, ValueError):
            token, _, where = read_plain(self._path).decode().rpartition(" ")
            return token if where == self._where() else ""
        return ""

    def note(self, token: str) -> None:
        """Remember whoever drives from now on."""
        write_atomic(self._path, f"{token} {self._where()}".encode())

    def _where(self) -> str:
        found = self._place.stat()
        # A copy of the folder has another inode: it must not take over from the driver of the original.
        return f"{found.st_dev}:{found.st_ino}"
