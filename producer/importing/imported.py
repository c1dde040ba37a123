"""What an import gives: cases, targets and recorded outputs, and a note of everything that has no counterpart."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.params import weightless
from evalq.evalcore.model.state import Example, Omission, grouped
from evalq.producer.importing.accepting import accepted
from evalq.producer.importing.patterns import NoCounterpart

__all__ = [
    "ANSWERED",
    "ImportRequest",
    "Imported",
    "Kind",
    "Note",
    "cut",
    "same_case",
    "unique_id",
    "verdict_of",
    "whole",
]

_LONGEST = 80
_LONGEST_ID = 480
_MOST_TAGS = 100
_MOST_CASES = 256 << 20
"""Characters of all cases together: `evalq checks` reads no longer file."""
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")

_WEIGHTLESS = "all its checks have weight 0: it passes, whatever the answer is"
ANSWERED = {"min-length": 1, "name": "answered"}
"""The check of a case that is kept without any of its own: every case has one that an answer can fail."""
_KEPT = "it brings no check that decides: kept with the check `answered`, which wants an answer that is not empty"

Kind = Literal["none", "later", "differs", "key"]
"""``none``: it has no counterpart; ``later``: not yet, as judges; ``differs``: its counterpart means something else;
``key``: a variable of the environment that a target sends to a host."""


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing of the source that is not, or not quite, in what was imported.

    ``where`` is its file, line (as far as that is known) and key path, ``what`` a name for it, ``why`` the reason.
    ``text`` tells things of one name apart, as the id of a case does.
    """

    kind: Kind
    where: str
    what: str
    why: str
    text: str = ""

    def example(self) -> Example:
        """Where it is, as one example of its kind."""
        file, _, keys = self.where.partition(": ")
        return Example(file, self.text or keys or self.what)


class ImportRequest(msgspec.Struct, frozen=True):
    """What the user asks of an import.

    ``checks`` are checks, by name, for cases that bring none of their own: they compare with the case's `expected`.
    ``anywhere`` allows files outside the source's folder to be read, where the source names them. ``unchecked`` keeps
    cases that are left without a check.
    """

    checks: tuple[str, ...] = ()
    anywhere: bool = False
    unchecked: bool = False


class Imported:
    """What was found in a source, filled while it is read.

    ``cases`` are the entries of a cases file, ``targets`` those of a targets file by their names, ``outputs`` the
    lines of a file of recorded outputs by the name of what gave them. ``verdicts`` are what the source says of an
    output, by its case, repeat and source: whether it passes each check of the case, None where the source has no word
    on that check.
    """

    def __init__(self) -> None:
        self.cases: list[dict[str, Any]] = []
        self.targets: dict[str, dict[str, Any]] = {}
        self.outputs: dict[str, list[dict[str, Any]]] = {}
        self.verdicts: dict[tuple[str, int, str], Sequence[bool | None]] = {}
        self.notes: list[Note] = []
        self._noted: set[Note] = set()
        self._ids: dict[str, int] = {}
        self._first: dict[str, dict[str, Any]] = {}
        self._shared: set[str] = set()
        self._room = _MOST_CASES
        self._repeats: dict[tuple[str, str], int] = {}

    def note(self, kind: Kind, where: str, what: str, why: str, text: str = "") -> None:
        """Note it; the same thing of the same place once, however many cases it is part of."""
        note = Note(kind, whole(where), whole(cut(what)), whole(why), whole(cut(text)))
        if note not in self._noted:
            self._noted.add(note)
            self.notes.append(note)

    def add_case(self, case: dict[str, Any], where: str, asked: ImportRequest, *, named: bool = True) -> str:
        """Add a case under an id that no other has; returns that. One without a check is noted and left out: "".

        ``named`` says that its id is a name of the user's. Where it is not, as with numbers of rows, the id is followed
        by a digest of what the case asks and checks: a case that comes in before it changes nothing then.
        """
        checks = [check for check in case.get("checks") or () if self._fine(check, where)]
        if checks and weightless(checks) and not asked.unchecked:
            self.note("none", where, "a case", _WEIGHTLESS, str(case["id"]))
            return ""
        checks = checks or ([*asked.checks] if "expected" in case else [])
        if asked.unchecked and not any(not isinstance(check, dict) or check.get("weight", 1) for check in checks):
            self.note("differs", where, "a case", _KEPT, str(case["id"]))
            checks.append(dict(ANSWERED))
        if not checks:
            self.note("none", where, "a case", _no_check(case), str(case["id"]))
            return ""
        if not _plain(case):
            self.note("none", where, "a case", "it has a number that JSON does not have", str(case["id"]))
            return ""
        self._room -= _size(case)
        if self._room < 0:
            raise ConfigError(
                f"{where}: the cases hold more than {_MOST_CASES >> 20} MiB with all variables written out"
            )
        if "input" in case:
            case["input"] = _asked(case["input"])
        case["checks"] = checks
        name = whole(str(case["id"]))[:_LONGEST_ID]
        first = named and name not in self._first
        if first:
            self._first[name] = case
        elif named:
            self._shared.add(name)
        case["id"] = unique_id(name if first else f"{name}-{_content_digest(case)}", self._ids)
        tags = case.pop("tags", None)
        if tags:
            case["tags"] = tags[:_MOST_TAGS]
            for tag in tags[_MOST_TAGS:]:
                self.note("none", where, "a tag", f"a case has {_MOST_TAGS} tags at most", tag)
        self.cases.append(case)
        return str(case["id"])

    def finish(self) -> None:
        """Give cases that share a name ids that do not depend on which of them came first."""
        renamed: dict[str, str] = {}
        for name in sorted(self._shared):
            case = self._first[name]
            made = unique_id(f"{name}-{_content_digest(case)}", self._ids)
            renamed[case["id"]] = case["id"] = made
        for line in (line for lines in self.outputs.values() for line in lines) if renamed else ():
            line["case"] = renamed.get(line["case"], line["case"])
        self.verdicts = {
            (renamed.get(name, name), repeat, source): said for (name, repeat, source), said in self.verdicts.items()
        }

    def _fine(self, check: Any, where: str) -> bool:
        """Whether the evaluator takes a check; noted where it does not."""
        try:
            accepted(check)
        except NoCounterpart as error:
            self.note("none", where, "a check", str(error))
            return False
        return True

    def add_output(
        self,
        source: str,
        case: str,
        output: dict[str, Any],
        verdicts: Sequence[bool | None] = (),
        repeat: int | None = None,
    ) -> None:
        """Add a recorded output of a case as ``repeat`` of what ``source`` gave for it, else as the next one.

        ``verdicts`` are the source's own, one for each check of the case; empty where it has none.
        """
        lines = self.outputs.setdefault(source, [])
        following = self._repeats.get((source, case), 0)
        repeat = following if repeat is None else repeat
        if not _plain(output):
            why = "it has a number that JSON does not have"
            self.note("none", source, "an output", why, f"{case}, repeat {repeat}")
            output = {"error": "its output has a number that JSON does not have"}
        self._repeats[source, case] = max(following, repeat + 1)
        if any(verdict is not None for verdict in verdicts):
            self.verdicts[case, repeat, source] = verdicts
        lines.append({"case": case, "repeat": repeat, **output})

    def summary(self) -> list[tuple[Kind, Omission]]:
        """The notes, those of one kind, name and reason added up, in the order in which each was met first."""
        kinds: dict[tuple[Kind, str, str], list[Note]] = {}
        for note in self.notes:
            kinds.setdefault((note.kind, note.what, note.why), []).append(note)
        return [
            (kind, grouped((what, why, "", 1, [note.example()]) for note in notes)[0])
            for (kind, what, why), notes in kinds.items()
        ]

    def counts(self, kinds: Iterable[Kind] = ("none", "later", "differs", "key")) -> dict[Kind, int]:
        """How many notes there are of each kind."""
        return {kind: sum(note.kind == kind for note in self.notes) for kind in kinds}


def verdict_of(score: Any) -> bool | None:
    """Whether a score of 1 or 0 says pass; None for one between, and for what is none."""
    return bool(score) if isinstance(score, int | float) and score in (0, 1) else None


def cut(text: object) -> str:
    """The beginning of a name that somebody else gave, for a message."""
    given = str(text)
    return given if len(given) <= _LONGEST else f"{given[:_LONGEST]}..."


def whole(value: Any) -> Any:
    """``value`` with half surrogate pairs, which no UTF-8 has, replaced."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {whole(key): whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return value


def _plain(value: Any) -> bool:
    """Whether every number in it is finite: YAML, and what Python writes as JSON, have others."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_plain, value.values()))
    return not isinstance(value, list) or all(map(_plain, value))


def _size(value: Any) -> int:
    """About how many characters ``value`` is."""
    if isinstance(value, dict):
        return sum(len(str(key)) + _size(each) for key, each in value.items())
    if isinstance(value, list):
        return sum(map(_size, value))
    return 8 + (len(value) if isinstance(value, str) else 0)


def same_case(identity: Any, *content: Any) -> bytes:
    """What records of one case have in common: its id (1 is not "1"), and what it asks and expects.

    Ids number the rows of one data source: where records of several are in one file, other rows have the same ones.
    """
    return hashlib.sha256(json.dumps([identity, *content], sort_keys=True).encode()).digest()


def _content_digest(case: dict[str, Any]) -> str:
    """12 digits of a digest of what a case asks and checks."""
    content = json.dumps([case.get("input"), case["checks"], case.get("thresholds")], sort_keys=True, default=str)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def unique_id(wanted: str, taken: dict[str, int]) -> str:
    """``wanted``, or that with the first number that makes it new; it is taken from then on, at the number it has."""
    # From the last one on: a list of variables makes a million cases of one name.
    name, number = wanted, taken.get(wanted, 1)
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    taken[wanted] = number
    taken.setdefault(name, 1)
    return name


def _asked(value: Any) -> Any:
    """An input as cases have it: a list that is no chat messages becomes its JSON."""
    if not isinstance(value, list):
        return value if isinstance(value, str | dict) else json.dumps(value)
    chat = all(isinstance(each, dict) and each.get("role") in _ROLES and "content" in each for each in value)
    return value if chat and value else json.dumps(value, ensure_ascii=False)


def _no_check(case: dict[str, Any]) -> str:
    if "expected" in case:
        return "it brings no check that evalq has; --check equals (or contains, ...) compares with its expected answer"
    return "it brings no check that evalq has, and a case without one says nothing: --keep-unchecked keeps it"
