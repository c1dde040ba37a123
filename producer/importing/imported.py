"""What an import gives: cases, targets and recorded outputs, and a note of everything that has no counterpart."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import yaml

from evalq.evalcore.errors import ConfigError, StorageError
from evalq.evalcore.evaluators.checks.cases import load_cases
from evalq.evalcore.evaluators.checks.params import ChecksParams, weightless
from evalq.evalcore.evaluators.checks.score import OutputScorer
from evalq.evalcore.files import write_atomic
from evalq.evalcore.model.state import Example, Omission, grouped
from evalq.evalcore.records import yaml as core_yaml
from evalq.producer.importing.patterns import NoCounterpart, accepted

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
        note = Note(kind, _whole(where), _whole(cut(what)), _whole(why), _whole(cut(text)))
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
        name = _whole(str(case["id"]))[:_LONGEST_ID]
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


def _whole(value: Any) -> Any:
    """``value`` with half surrogate pairs, which no UTF-8 has, replaced."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole(key): _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
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


# The files that an import makes.

_PLACEHOLDER = re.compile(r"\{\{\s*[A-Za-z_][\w.-]*\s*\}\}", re.ASCII)
_MADE = ".imported.json"
"""The files of the last import and their digests: it is known by them what a next one may remove."""
_OURS = re.compile(r"cases\.(yaml|jsonl)|targets\.yaml|outputs(-[A-Za-z0-9._-]+)?\.jsonl|not-imported\.jsonl")
_IN_YAML = 200
"""With more cases than these they are written as lines of JSON, which no editor has to hold."""


class Wrote(NamedTuple):
    """What an import wrote, what it removed of one before it, and what it left of that because somebody changed it."""

    files: list[Path]
    removed: list[Path]
    left: list[Path]


def write(imported: Imported, folder: Path, *, force: bool) -> Wrote:
    """Write cases, targets, recorded outputs and notes into ``folder``.

    With ``force`` files of an import before go, those that this one does not make included: they would be taken for
    its own. Raises ConfigError where one is there already (without ``force``), and StorageError.
    """
    files = _files(imported)
    # An import of another length before this one left the cases in the other form.
    others = {"cases.yaml", "cases.jsonl"} - files.keys() if imported.cases else set()
    before = _before(folder)
    stale = sorted((others | before.keys()) - files.keys())
    for name in (*files, *stale):
        if (folder / name).exists() and not force:
            raise ConfigError(f"{folder / name}: already exists: name another folder with -d, or give --force")
    made = {name: make() for name, make in files.items()}
    removed, left = [], []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in made.items():
            write_atomic(folder / name, data)
        for path in (folder / name for name in stale if (folder / name).is_file()):
            if path.name in others or _digest(path.read_bytes()) == before[path.name]:
                path.unlink()
                removed.append(path)
            else:
                left.append(path)
        write_atomic(folder / _MADE, msgspec.json.encode({name: _digest(data) for name, data in made.items()}) + b"\n")
    except OSError as error:
        raise StorageError.of(error, folder, "free some room, then import again with --force") from error
    return Wrote([folder / name for name in files], removed, left)


def _before(folder: Path) -> dict[str, str]:
    """What the import before wrote there: its files and their digests. Empty where none is known."""
    try:
        found = msgspec.json.decode((folder / _MADE).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}
    return {name: of for name, of in found.items() if _OURS.fullmatch(name)}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _files(imported: Imported) -> dict[str, Callable[[], bytes]]:
    files: dict[str, Callable[[], bytes]] = {}
    cases = [_whole(_escaped(case)) for case in imported.cases]
    if len(cases) > _IN_YAML:
        files["cases.jsonl"] = lambda: _lines(cases)
    elif cases:
        files["cases.yaml"] = lambda: _yaml({"cases": cases})
    if imported.targets:
        files["targets.yaml"] = lambda: _yaml(_whole({"targets": imported.targets}))
    used: set[str] = set()
    for source, lines in imported.outputs.items():
        name = "outputs" if len(imported.outputs) == 1 else _named(f"outputs-{source}", used)
        files[f"{name}.jsonl"] = lambda lines=lines: _lines([_whole(line) for line in lines])  # type: ignore[misc]  # a default for a closure
    if imported.notes:
        files["not-imported.jsonl"] = lambda: _lines([_whole(msgspec.to_builtins(note)) for note in imported.notes])
    return files


def _named(wanted: str, used: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted)[:80].strip("-.")
    name, number = plain, 1
    while name.lower() in used:
        number += 1
        name = f"{plain}-{number}"
    used.add(name.lower())
    return name


def _escaped(value: Any) -> Any:
    """``value`` as a cases file has it: what looks like a placeholder there is one."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(r"\\\g<0>", value)
    if isinstance(value, dict):
        return {key: _escaped(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return value


def _lines(values: list[Any]) -> bytes:
    encode = msgspec.json.Encoder().encode
    return b"".join(encode(value) + b"\n" for value in values)


class _Dumper(core_yaml.Dumper):
    """Plain mappings in their order, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(data: Any) -> bytes:
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text.encode()


# On how many recorded outputs the imported checks agree with the verdicts that the source gave.

_SHOWN = 3


class Agreement(NamedTuple):
    """``compared`` records have a verdict of the source on a check that was imported; on ``agreed`` all are the same.

    ``without`` records have none. ``other`` are the first places where they differ.
    """

    agreed: int
    compared: int
    without: int
    other: tuple[str, ...] = ()

    def sentence(self) -> str:
        """The one line that an import says of it."""
        if not self.compared:
            return (
                f"agreement: not known, the source has no verdict on a check of the {self.without:,} recorded outputs"
            )
        line = f"agreement: the checks have the source's own verdicts on {self.agreed:,} of {self.compared:,} records"
        if self.without:
            line += f"; {self.without:,} more have no verdict of it"
        return line + (f"; they differ at {'; '.join(self.other)}" if self.other else "")


def agreement(imported: Imported, cases: Path) -> Agreement:
    """Judge every recorded output by ``cases``, the file that was written, beside the source's own verdicts."""
    judge = OutputScorer(ChecksParams.model_validate({"cases": [case.params for case in load_cases([cases])]}))
    agreed = compared = without = 0
    other: list[str] = []
    for source, lines in imported.outputs.items():
        for line in lines:
            said = imported.verdicts.get((line["case"], line["repeat"], source), ())
            verdicts = judge.test(msgspec.json.encode(_whole(line))).checks
            if len(said) != len(verdicts) or not said:
                without += 1
                continue
            compared += 1
            differs = _first_other(said, [(verdict.name, verdict.passed) for verdict in verdicts])
            agreed += not differs
            if differs and len(other) < _SHOWN:
                other.append(f"{line['case']}, repeat {line['repeat']}: {differs}")
    return Agreement(agreed, compared, without, tuple(other))


def _first_other(said: Sequence[bool | None], ours: Sequence[tuple[str, bool | None]]) -> str:
    """The first check on which both say something else, in words; "" where there is none."""
    words = {True: "passed", False: "failed", None: "not computed"}
    for theirs, (name, passed) in zip(said, ours, strict=True):
        if theirs is not None and theirs != passed:
            return f"{name} {words[theirs]} there, {words[passed]} here"
    return ""
