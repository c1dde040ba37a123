"""The outputs of a sweep in its run folder: appended, synced, and found by their call."""

from __future__ import annotations

import contextlib
from array import array
from collections import Counter
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_input, read_plain, write_atomic
from evalq.evalcore.model.calls import Doings, Output, Spending, count_served, count_user, user_facts
from evalq.evalcore.model.canonical import Json
from evalq.producer.folder.files import DRIVER, RESERVE, AppendedFile, Reserve, whole_lines

RESERVED_BYTES = 64 << 10
"""Room for the tallies of processes, a hundred bytes for each."""

# Failures without an answer, for which the target is not to blame.
UNANSWERED = ("rate_limit", "timeout", "server", "crashed", "user")
_AGAIN = b'{"again"'
_KEPT = b'{"kept"'
_CACHED = b'{"cached"'
_BEGUN = b'{"begun"'
_TALK = b'{"talk"'
_USED = b'{"used"'


class _Reused(msgspec.Struct):
    cached: list[int]
    of: str = ""


class _BegunNote(msgspec.Struct):
    begun: int
    by: dict[str, str] = {}
    at: dict[str, int] = {}
    gone: int = 0


class _EarlierOutput(NamedTuple):
    """An output of a call that is made again: its offset, its source, and its kind of failure."""

    offset: int
    given: int
    failure: str | None


class _Talk(msgspec.Struct):
    """A conversation that has not ended, as a line of the log."""

    talk: int
    attempts: int
    cost: float
    state: msgspec.Raw


class _UsedNote(msgspec.Struct):
    """What a call has used of its case's budget, as a line of the log."""

    used: int
    tries: int
    seconds: float
    cost: float


class _KeptTalk(NamedTuple):
    """Where a conversation so far stands, and the attempts and the cost of it."""

    offset: int
    attempts: int
    cost: float


class RecordedOutputs:
    """Outputs in order of arrival; if a call is made again, the last one counts."""

    def __init__(self, path: Path, total: int) -> None:
        self._path = path
        # Offsets instead of outputs: eight megabytes for a million calls.
        self._offsets = array("q", bytes(8 * total))  # the offset of each call's line, plus 1; 0: none
        self._earlier: dict[int, list[_EarlierOutput]] = {}
        self._failed: dict[int, str] = {}
        self._reusable: dict[int, str] = {}  # calls that the current piece takes over and has not yet given
        self._reused_calls: list[int] = []  # calls that it has given
        self._piece_start = 0  # its offset
        self._source_runs: list[str] = [""]
        self._source_of = array("H", bytes(2 * total))  # the index in _source_runs of each reused output, plus 1
        self._in: BinaryIO | None = None
        self._begun = self._ended_then = 0
        self.gone = 0
        """Outputs that were paid for, could not be written, and are not on a server either."""
        self._reserve = Reserve(path.with_name(RESERVE), RESERVED_BYTES)
        self._at: dict[str, int] = {}
        self.tallies: dict[str, str] = {}
        """The attempts of each process, and their cost."""
        self.count = 0
        self.paid = self.attempts = 0
        self.spending = Spending()
        self.untold = False
        """Whether the cost of an answer, or of a part of it, is unknown."""
        """Of all calls for this sweep, those made again included: outputs, attempts, and cost."""
        self.reused: Counter[str] = Counter()
        """{run: outputs reused from it}, "" for a cache; a call that is made again does not count."""
        self.talks: dict[int, _KeptTalk] = {}
        """Conversations that have not ended, by call."""
        self.used: dict[int, tuple[int, float, float]] = {}
        """{call: (tries, seconds, cost)} that calls without an output have used of their cases' budgets."""
        self.served: dict[str, int] = {}
        """{model: answers that it gave} (`Served.label`), of outputs that were paid for this sweep."""
        self.users: dict[str, int] = {}
        """{who simulated the user: answers} (`UserFacts.label`), likewise."""
        self._file, end = AppendedFile(path), 0
        for line in whole_lines(path) if path.exists() else ():
            self._note(line, end)
            end += len(line)
        self._file.end = self._drop_torn_takeover() if self._reusable else end

    @property
    def errors(self) -> int:
        """Calls that have no output."""
        return len(self._failed)

    @property
    def begun(self) -> int:
        """Attempts that were begun, as far as known: at least those of recorded outputs."""
        return max(self._begun, self.attempts)

    @property
    def ended(self) -> int:
        """Attempts that ended, by the outputs or by the tallies."""
        # The greater one: tallies include attempts without an output, but are not synced.
        return max(self.attempts, sum(int(tally.split()[1]) for tally in self.tallies.values()))

    @property
    def under_way(self) -> dict[str, int]:
        """{process: attempts} under way at the last note, without those that have ended since.

        An output does not name its process, so attempts that ended count for the first processes.
        """
        since, found = self.ended - self._ended_then, {}
        for holder, attempts in self._at.items():
            found[holder] = max(0, attempts - since)
            since -= attempts - found[holder]
        return {holder: attempts for holder, attempts in found.items() if attempts}

    @property
    def cost(self) -> float:
        """The cost of all attempts, as far as known: at least that of recorded outputs, and of conversations so far."""
        ended = max(self.spending.total, sum(float(tally.split()[3]) for tally in self.tallies.values()))
        return ended + sum(talk.cost for talk in self.talks.values())

    @property
    def lost(self) -> int:
        """Attempts that were begun and whose end is unknown, without those `under_way`."""
        return max(0, self.begun - self.ended - sum(self.under_way.values()))

    def note_begun(
        self, attempts: int, tallies: dict[str, str] | None = None, under_way: dict[str, int] | None = None
    ) -> None:
        """Keep how many attempts each process began, so that counts and budgets outlive the server. Not synced."""
        changed = {name: tally for name, tally in (tallies or {}).items() if self.tallies.get(name) != tally}
        at = under_way or {}
        # The order matters, too: see `under_way`.
        if attempts != self._begun or changed or [*at.items()] != [*self._at.items()]:
            note = {"begun": attempts, "by": changed, "at": at, "gone": self.gone}
            self._append([msgspec.json.encode(note) + b"\n"], sync=False)

    def note_talk(self, call: int, attempts: int, cost: float, state: bytes) -> None:
        """Keep the conversation of a call so far, safely on disk when this returns: ``attempts`` answers of its model,
        which cost ``cost``.
        """
        note = {"talk": call, "attempts": attempts, "cost": cost, "state": msgspec.Raw(state)}
        self._append([msgspec.json.encode(note) + b"\n"])

    def note_used(self, call: int, tries: int, seconds: float, cost: float) -> None:
        """Keep what a call has used of its case's budget. Not synced."""
        note = {"used": call, "tries": tries, "seconds": round(seconds, 3), "cost": cost}
        self._append([msgspec.json.encode(note) + b"\n"], sync=False)

    def talk(self, call: int) -> bytes | None:
        """The conversation of a call so far, as `note_talk` got it; None without one."""
        kept = self.talks.get(call)
        if kept is None:
            return None
        return bytes(msgspec.json.decode(self._line_at(kept.offset), type=_Talk).state)

    def reserve(self) -> None:
        """Take the room that `note_stopped` needs. Raises OSError, best before the first call."""
        self._reserve.take()

    def release(self) -> None:
        """Give that room back when the calls are over."""
        self._reserve.release()

    def note_stopped(self, attempts: int, tallies: dict[str, str], under_way: dict[str, int], gone: int) -> None:
        """`note_begun` on a full disk: into the reserved room, and on disk when this returns.

        ``gone`` counts paid outputs that neither the folder nor a server has. Raises OSError.
        """
        self._reserve.release()
        note = {"begun": attempts, "by": tallies, "at": under_way, "gone": self.gone + gone}
        self._append([msgspec.json.encode(note) + b"\n"])

    def was_recorded(self, call: int) -> bool:
        """Whether a call is recorded, or was before it was dropped."""
        return self.has(call) or call in self._earlier

    def has(self, call: int) -> bool:
        """Whether a call is recorded."""
        return self._offsets[call] > 0

    def is_reused(self, call: int) -> bool:
        """Whether another sweep paid for the recorded output of a call."""
        return self._source_of[call] > 0

    def calls(self) -> list[int]:
        """All recorded calls."""
        return [call for call, offset in enumerate(self._offsets) if offset]

    @property
    def config(self) -> str:
        """The digest of its target's settings in the first output; empty without one."""
        output = next((found for call in self.calls()[:1] if (found := self.get(call)) is not None), None)
        return "" if output is None else output.config

    def failed(self) -> list[int]:
        """The calls without an output."""
        return sorted(self._failed)

    def unanswered(self) -> Counter[str]:
        """{kind of failure: calls} of failures for which the target is not to blame."""
        return Counter(kind for kind in self._failed.values() if kind in UNANSWERED)

    def counted(self) -> dict[str, Json]:
        """``served`` and ``users``, as far as there are any, for run.json."""
        found = {"served": self.served, "users": self.users}
        return {name: dict(sorted(counts.items())) for name, counts in found.items() if counts}

    def add(self, outputs: list[Output], *, cached: bool = False, of: str = "") -> list[Output]:
        """Keep new outputs, safely on disk when this returns; returns the new ones.

        Another sweep paid for ``cached`` outputs: that of the run ``of``, if it is known.
        """
        # Reversed, so that the first of two outputs of a call counts, as in the ledger.
        fresh = {output.call: output for output in reversed(outputs) if not self.has(output.call)}
        if fresh:
            lines = [msgspec.json.encode(output) + b"\n" for output in fresh.values()]
            if cached:
                # In one piece with the outputs, and before them, so that after a crash they do not count as paid.
                lines.insert(0, msgspec.json.encode(_Reused(list(fresh), of)) + b"\n")
            self._append(lines)
        return list(fresh.values())

    def drop(self, calls: list[int]) -> None:
        """Drop the outputs of calls that are to be made again; they stay as earlier attempts."""
        self._append([_AGAIN + b":" + msgspec.json.encode(calls) + b"}\n"])

    def put_back(self) -> None:
        """Restore dropped calls that have no new output: their failure still counts."""
        if left := sorted(call for call in self._earlier if not self.has(call)):
            self._append([_KEPT + b":" + msgspec.json.encode(left) + b"}\n"])

    def get(self, call: int) -> Output | None:
        """The recorded output of a call, with the attempts of earlier tries."""
        offset = self._offsets[call]
        if not offset:
            return None
        output = self._read(offset - 1)
        for before in reversed(self._earlier.get(call, ())):
            output = output.after(self._read(before.offset))
        return output

    def _append(self, lines: list[bytes], *, sync: bool = True) -> None:
        offset = self._file.end
        self._file.append(b"".join(lines), sync=sync)
        for line in lines:
            self._note(line, offset)
            offset += len(line)

    def _drop_torn_takeover(self) -> int:
        """Drop a reused piece that a kill cut off; returns its offset.

        The whole piece is written again. If its first line stayed, calls of it that are made later would count as free.
        """
        for call in self._reused_calls:
            self._forget(call)
        self._reusable.clear()
        return self._piece_start

    def _note(self, line: bytes, offset: int) -> None:
        try:
            if self._reusable and line.startswith((_AGAIN, _KEPT, _BEGUN, _TALK, _USED, _CACHED)):
                self._reusable.clear()  # outputs follow their line at once: the rest never came
            if line.startswith(_AGAIN):
                for call in msgspec.json.decode(line, type=dict[str, list[int]])["again"]:
                    self._drop(call)
                return
            if line.startswith(_KEPT):
                for call in msgspec.json.decode(line, type=dict[str, list[int]])["kept"]:
                    self._put_back(call)
                return
            if line.startswith(_BEGUN):
                begun = msgspec.json.decode(line, type=_BegunNote)
                self._begun, self._at, self.gone = begun.begun, begun.at, begun.gone
                self.tallies |= begun.by
                self._ended_then = self.ended
                return
            if line.startswith(_TALK):
                talk = msgspec.json.decode(line, type=_Talk)
                self.talks[talk.talk] = _KeptTalk(offset, talk.attempts, talk.cost)
                return
            if line.startswith(_USED):
                used = msgspec.json.decode(line, type=_UsedNote)
                self.used[used.used] = (used.tries, used.seconds, used.cost)
                return
            if line.startswith(_CACHED):
                reused = msgspec.json.decode(line, type=_Reused)
                self._reusable, self._reused_calls, self._piece_start = (
                    dict.fromkeys(reused.cached, reused.of),
                    [],
                    offset,
                )
                return
            output = Output.from_wire(line)
            source_run = self._reusable.pop(output.call, None)
            if source_run is None:
                self._reusable.clear()
            if self.has(output.call):
                return  # written twice by a process that was interrupted before it had noted the first
            self._offsets[output.call] = offset + 1
            self.talks.pop(output.call, None)
            self.used.pop(output.call, None)
        except (WireError, msgspec.DecodeError, KeyError, IndexError) as error:
            raise WireError(f"{self._path} is damaged at byte {offset}: {error}") from error
        self.count += 1
        if source_run is not None:
            self._take(output.call, source_run)
        else:
            self.paid += 1
            self.attempts += len(output.attempts)
            self.spending.add(
                output.likely_cost, known=output.priced == "told", unknown=output.unpriced, answered=output.answered
            )
            self.untold = self.untold or output.cost_unknown
            count_served(self.served, output.attempts)
            if output.did.user != Doings().user and (user := user_facts(msgspec.json.decode(output.did.user))):
                count_user(self.users, user, output.attempts)
        if output.failed:
            self._failed[output.call] = output.error.partition(":")[0]

    def _take(self, call: int, source_run: str) -> None:
        if source_run not in self._source_runs:
            self._source_runs.append(source_run)
        self._source_of[call] = self._source_runs.index(source_run) + 1
        if self._reusable:
            self._reused_calls.append(call)
        else:
            self._reused_calls.clear()  # the piece is whole
        self.reused[source_run] += 1

    def _drop(self, call: int) -> None:
        if offset := self._offsets[call]:
            # `paid` and `attempts` stay, since the dropped output was paid for.
            before = _EarlierOutput(offset - 1, self._source_of[call], self._failed.get(call))
            self._forget(call)
            self._earlier.setdefault(call, []).append(before)

    def _put_back(self, call: int) -> None:
        before = self._earlier[call].pop()
        if not self._earlier[call]:
            del self._earlier[call]
        self._offsets[call], self._source_of[call] = before.offset + 1, before.given
        self.count += 1
        if before.given:
            self.reused[self._source_runs[before.given - 1]] += 1
        if before.failure is not None:
            self._failed[call] = before.failure

    def _forget(self, call: int) -> None:
        if self._source_of[call]:
            self.reused[self._source_runs[self._source_of[call] - 1]] -= 1
            self._source_of[call] = 0
        self._offsets[call] = 0
        self._failed.pop(call, None)
        self.count -= 1

    def _read(self, offset: int) -> Output:
        return Output.from_wire(self._line_at(offset))

    def _line_at(self, offset: int) -> bytes:
        if self._in is None:
            self._in = open_input(self._path)
        self._in.seek(offset)
        return self._in.readline()


# The last driver of a sweep in its folder: the next driver needs its token to take over in the ledger.


class LastDriver:
    """The last driver's token of the run folder ``folder``, kept in the folder ``files``."""

    def __init__(self, folder: Path, files: Path) -> None:
        self._folder = folder
        self._path = files / DRIVER

    def token(self) -> str:
        """The token of the last driver, which is dead if the caller holds the folder's lock.

        Empty if no driver has been here, or if this folder is a copy of the one it was in.
        """
        with contextlib.suppress(OSError, ValueError):
            token, _, where = read_plain(self._path).decode().rpartition(" ")
            return token if where == self._inode() else ""
        return ""

    def note(self, token: str) -> None:
        """Keep the token of the current driver."""
        write_atomic(self._path, f"{token} {self._inode()}".encode())

    def _inode(self) -> str:
        found = self._folder.stat()
        # A copy of the folder has another inode: it must not take over from the driver of the original.
        return f"{found.st_dev}:{found.st_ino}"
