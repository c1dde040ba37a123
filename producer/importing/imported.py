"""The result of an import: cases, targets, recorded outputs, and notes on everything without a counterpart."""

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
"""Characters of all cases: `evalq checks` reads no longer file."""
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")

_WEIGHTLESS = "all its checks have weight 0: it passes, whatever the answer is"
ANSWERED = {"min-length": 1, "name": "answered"}
"""The check of a case without any of its own: every case needs a check that can fail."""
_KEPT = "it brings no check that decides: kept with the check `answered`, which wants an answer that is not empty"

Kind = Literal["none", "later", "differs", "key"]
"""``none``: no counterpart; ``later``: not yet, such as judges; ``differs``: the counterpart means something else;
``key``: a variable of the environment that a target sends to a host."""


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item of the source that was not imported, or not exactly.

    ``where`` is its file, line (if known) and key path, ``what`` its name, ``why`` the reason. ``text`` distinguishes
    items of one name, such as the id of a case.
    """

    kind: Kind
    where: str
    what: str
    why: str
    text: str = ""

    def example(self) -> Example:
        """The note as an example of its kind."""
        file, _, keys = self.where.partition(": ")
        return Example(file, self.text or keys or self.what)


class ImportRequest(msgspec.Struct, frozen=True):
    """The options of an import.

    ``checks`` are names of checks for cases without one; they compare with the case's `expected`. ``anywhere`` allows
    the source to name files outside its folder. ``unchecked`` keeps cases without a check.
    """

    checks: tuple[str, ...] = ()
    anywhere: bool = False
    unchecked: bool = False


class Imported:
    """The content of a source, filled while it is read.

    ``cases`` are the entries of a cases file, ``targets`` those of a targets file by their names, ``outputs`` the
    lines of recorded outputs by the name of their model. ``traces`` are recorded outputs that bring their own case, for
    `evalq checks CHECKS --traces`. ``verdicts`` are the source's own verdicts on an output, by
    case, repeat and source: whether it passes each check of the case, or None if the source has no verdict on a check.
    """

    def __init__(self) -> None:
        self.cases: list[dict[str, Any]] = []
        self.targets: dict[str, dict[str, Any]] = {}
        self.outputs: dict[str, list[dict[str, Any]]] = {}
        self.traces: list[dict[str, Any]] = []
        self.verdicts: dict[tuple[str, int, str], Sequence[bool | None]] = {}
        self.notes: list[Note] = []
        self._noted: set[Note] = set()
        self._ids: dict[str, int] = {}
        self._first: dict[str, dict[str, Any]] = {}
        self._shared: set[str] = set()
        self._room = _MOST_CASES
        self._repeats: dict[tuple[str, str], int] = {}

    def note(self, kind: Kind, where: str, what: str, why: str, text: str = "") -> None:
        """Add a note, once for each item and location."""
        note = Note(kind, valid_unicode(where), valid_unicode(cut(what)), valid_unicode(why), valid_unicode(cut(text)))
        if note not in self._noted:
            self._noted.add(note)
            self.notes.append(note)

    def add_case(self, case: dict[str, Any], where: str, request: ImportRequest, *, named: bool = True) -> str:
        """Add a case under a unique id, which it returns. A case without a check is noted and left out: "".

        ``named``: its id is the user's name for it. Otherwise, as with numbers of rows, the id gets a digest of the
        case's input and checks, so that it does not depend on other cases.
        """
        checks = [check for check in case.get("checks") or () if self._is_accepted(check, where)]
        if checks and weightless(checks) and not request.unchecked:
            self.note("none", where, "a case", _WEIGHTLESS, str(case["id"]))
            return ""
        checks = checks or ([*request.checks] if "expected" in case else [])
        if request.unchecked and not any(not isinstance(check, dict) or check.get("weight", 1) for check in checks):
            self.note("differs", where, "a case", _KEPT, str(case["id"]))
            checks.append(dict(ANSWERED))
        if not checks:
            self.note("none", where, "a case", _no_check(case), str(case["id"]))
            return ""
        if not _is_finite(case):
            self.note("none", where, "a case", "it has a number that JSON does not have", str(case["id"]))
            return ""
        self._room -= _size(case)
        if self._room < 0:
            raise ConfigError(
                f"{where}: the cases hold more than {_MOST_CASES >> 20} MiB with all variables written out"
            )
        if "input" in case:
            case["input"] = _case_input(case["input"])
        case["checks"] = checks
        name = valid_unicode(str(case["id"]))[:_LONGEST_ID]
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
        """Give cases of one name ids that do not depend on their order."""
        renamed: dict[str, str] = {}
        for name in sorted(self._shared):
            case = self._first[name]
            contents = unique_id(f"{name}-{_content_digest(case)}", self._ids)
            renamed[case["id"]] = case["id"] = contents
        for line in (line for lines in self.outputs.values() for line in lines) if renamed else ():
            line["case"] = renamed.get(line["case"], line["case"])
        self.verdicts = {
            (renamed.get(name, name), repeat, source): verdict
            for (name, repeat, source), verdict in self.verdicts.items()
        }

    def _is_accepted(self, check: Any, where: str) -> bool:
        """Whether the evaluator accepts a check; else adds a note."""
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
        """Add a recorded output of a case of ``source``, as ``repeat`` or as the next one.

        ``verdicts`` are the source's own, one for each check of the case; empty without any.
        """
        lines = self.outputs.setdefault(source, [])
        following = self._repeats.get((source, case), 0)
        repeat = following if repeat is None else repeat
        if not _is_finite(output):
            why = "it has a number that JSON does not have"
            self.note("none", source, "an output", why, f"{case}, repeat {repeat}")
            output = {"error": "its output has a number that JSON does not have"}
        self._repeats[source, case] = max(following, repeat + 1)
        if any(verdict is not None for verdict in verdicts):
            self.verdicts[case, repeat, source] = verdicts
        lines.append({"case": case, "repeat": repeat, **output})

    def add_trace(self, line: dict[str, Any]) -> None:
        """Add a recorded output that is a case of its own."""
        if not _is_finite(line):
            self.note("none", str(line["case"]), "a trace", "it has a number that JSON does not have")
            return
        line["case"] = unique_id(valid_unicode(str(line["case"]))[:_LONGEST_ID], self._ids)
        self.traces.append(line)

    def summary(self) -> list[tuple[Kind, Omission]]:
        """The notes, grouped by kind, name and reason, in the order of the first of each."""
        kinds: dict[tuple[Kind, str, str], list[Note]] = {}
        for note in self.notes:
            kinds.setdefault((note.kind, note.what, note.why), []).append(note)
        return [
            (kind, grouped((what, why, "", 1, [note.example()]) for note in notes)[0])
            for (kind, what, why), notes in kinds.items()
        ]

    def counts(self, kinds: Iterable[Kind] = ("none", "later", "differs", "key")) -> dict[Kind, int]:
        """The number of notes of each kind."""
        return {kind: sum(note.kind == kind for note in self.notes) for kind in kinds}


def verdict_of(score: Any) -> bool | None:
    """Whether a score of 1 or 0 is a pass; None for other values."""
    return bool(score) if isinstance(score, int | float) and score in (0, 1) else None


def cut(text: object) -> str:
    """The beginning of a name from the source, for a message."""
    given = str(text)
    return given if len(given) <= _LONGEST else f"{given[:_LONGEST]}..."


def valid_unicode(value: Any) -> Any:
    """``value`` without lone surrogates, which UTF-8 cannot hold."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {valid_unicode(key): valid_unicode(each) for key, each in value.items()}
    if isinstance(value, list):
        return [valid_unicode(each) for each in value]
    return value


def _is_finite(value: Any) -> bool:
    """Whether every number in it is finite: YAML and Python's JSON may hold others."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list) or all(map(_is_finite, value))


def _size(value: Any) -> int:
    """The approximate number of characters of ``value``."""
    if isinstance(value, dict):
        return sum(len(str(key)) + _size(each) for key, each in value.items())
    if isinstance(value, list):
        return sum(map(_size, value))
    return 8 + (len(value) if isinstance(value, str) else 0)


def same_case(identity: Any, *content: Any) -> bytes:
    """A digest that identifies a case: its id (1 is not "1"), its input and its expected answer.

    The id alone is not enough: a file may hold records of several data sources with the same row numbers.
    """
    return hashlib.sha256(json.dumps([identity, *content], sort_keys=True).encode()).digest()


def _content_digest(case: dict[str, Any]) -> str:
    """12 digits of a digest of a case's input and checks."""
    content = json.dumps([case.get("input"), case["checks"], case.get("thresholds")], sort_keys=True, default=str)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def unique_id(wanted: str, used: dict[str, int]) -> str:
    """``wanted``, or that with the first number that makes it unique; adds it to the used ids."""
    # Continue after the last number: a list of variables may make a million cases of one name.
    name, number = wanted, used.get(wanted, 1)
    while name in used:
        number += 1
        name = f"{wanted}-{number}"
    used[wanted] = number
    used.setdefault(name, 1)
    return name


def _case_input(value: Any) -> Any:
    """The input of a case: a list that is not chat messages becomes JSON."""
    if not isinstance(value, list):
        return value if isinstance(value, str | dict) else json.dumps(value)
    chat = all(isinstance(each, dict) and each.get("role") in _ROLES and "content" in each for each in value)
    return value if chat and value else json.dumps(value, ensure_ascii=False)


def _no_check(case: dict[str, Any]) -> str:
    if "expected" in case:
        return "it brings no check that evalq has; --check equals (or contains, ...) compares with its expected answer"
    return "it brings no check that evalq has, and every case needs one; to keep it, give --keep-unchecked"


# The files that an import makes.

_PLACEHOLDER = re.compile(r"\{\{\s*[A-Za-z_][\w.-]*\s*\}\}", re.ASCII)
_MADE = ".imported.json"
"""The files of the last import with their digests, which the next import may remove."""
_OURS = re.compile(
    r"cases\.(yaml|jsonl)|checks\.yaml|traces\.jsonl|targets\.yaml|outputs(-[A-Za-z0-9._-]+)?\.jsonl|not-imported\.jsonl"
)
_IN_YAML = 200
"""More cases than these are written as JSON lines, since the file would be large for an editor."""


class Wrote(NamedTuple):
    """The files that an import wrote, the earlier ones that it removed, and changed ones that it kept."""

    files: list[Path]
    removed: list[Path]
    left: list[Path]


def write(imported: Imported, folder: Path, *, force: bool) -> Wrote:
    """Write cases, targets, recorded outputs and notes into ``folder``.

    With ``force`` all files of an earlier import are removed, so that they do not pass for this one's. Raises
    ConfigError if one exists (without ``force``), and StorageError.
    """
    files = _files(imported)
    # An earlier import may have written its cases in the other format.
    others = {"cases.yaml", "cases.jsonl"} - files.keys() if imported.cases else set()
    before = _earlier_files(folder)
    stale = sorted((others | before.keys()) - files.keys())
    for name in (*files, *stale):
        if (folder / name).exists() and not force:
            raise ConfigError(f"{folder / name}: already exists: name another folder with -d, or give --force")
    contents = {name: make() for name, make in files.items()}
    removed, left = [], []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in contents.items():
            write_atomic(folder / name, data)
        for path in (folder / name for name in stale if (folder / name).is_file()):
            if path.name in others or _digest(path.read_bytes()) == before[path.name]:
                path.unlink()
                removed.append(path)
            else:
                left.append(path)
        write_atomic(
            folder / _MADE, msgspec.json.encode({name: _digest(data) for name, data in contents.items()}) + b"\n"
        )
    except OSError as error:
        raise StorageError.of(error, folder, "free some room, then import again with --force") from error
    return Wrote([folder / name for name in files], removed, left)


def _earlier_files(folder: Path) -> dict[str, str]:
    """The files of the earlier import, and their digests; empty if unknown."""
    try:
        found = msgspec.json.decode((folder / _MADE).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}
    return {name: of for name, of in found.items() if _OURS.fullmatch(name)}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _files(imported: Imported) -> dict[str, Callable[[], bytes]]:
    files: dict[str, Callable[[], bytes]] = {}
    cases = [valid_unicode(_escaped(case)) for case in imported.cases]
    if len(cases) > _IN_YAML:
        files["cases.jsonl"] = lambda: _lines(cases)
    elif cases:
        files["cases.yaml"] = lambda: _yaml({"cases": cases})
    if imported.targets:
        files["targets.yaml"] = lambda: _yaml(valid_unicode({"targets": imported.targets}))
    used: set[str] = set()
    for source, lines in imported.outputs.items():
        name = "outputs" if len(imported.outputs) == 1 else _file_name(f"outputs-{source}", used)
        files[f"{name}.jsonl"] = lambda lines=lines: _lines([valid_unicode(line) for line in lines])  # type: ignore[misc]  # a default for a closure
    if imported.traces:
        files["traces.jsonl"] = lambda: _lines([valid_unicode(line) for line in imported.traces])
        files["checks.yaml"] = lambda: _yaml({"defaults": {"checks": [dict(ANSWERED)]}})
    if imported.notes:
        files["not-imported.jsonl"] = lambda: _lines(
            [valid_unicode(msgspec.to_builtins(note)) for note in imported.notes]
        )
    return files


def _file_name(wanted: str, used: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted)[:80].strip("-.")
    name, number = plain, 1
    while name.lower() in used:
        number += 1
        name = f"{plain}-{number}"
    used.add(name.lower())
    return name


def _escaped(value: Any) -> Any:
    """``value`` with escaped placeholders, for a cases file."""
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


# The agreement of the imported checks with the source's verdicts.

_SHOWN = 3


class Agreement(NamedTuple):
    """``compared`` records have a source's verdict on an imported check; on ``agreed`` of them all verdicts are equal.

    ``without`` records have no verdict. ``differences`` are the first ones.
    """

    agreed: int
    compared: int
    without: int
    differences: tuple[str, ...] = ()

    def sentence(self) -> str:
        """The agreement in one line."""
        if not self.compared:
            return (
                f"agreement: not known, the source has no verdict on a check of the {self.without:,} recorded outputs"
            )
        line = f"agreement: the checks have the source's own verdicts on {self.agreed:,} of {self.compared:,} records"
        if self.without:
            line += f"; {self.without:,} more have no verdict of it"
        return line + (f"; they differ at {'; '.join(self.differences)}" if self.differences else "")


def agreement(imported: Imported, cases: Path) -> Agreement:
    """Score every recorded output by the written file ``cases``, and compare with the source's verdicts."""
    judge = OutputScorer(ChecksParams.model_validate({"cases": [case.params for case in load_cases([cases])]}))
    agreed = compared = without = 0
    differences: list[str] = []
    for source, lines in imported.outputs.items():
        for line in lines:
            verdict = imported.verdicts.get((line["case"], line["repeat"], source), ())
            verdicts = judge.test(msgspec.json.encode(valid_unicode(line))).checks
            if len(verdict) != len(verdicts) or not verdict:
                without += 1
                continue
            compared += 1
            differs = _first_difference(verdict, [(verdict.name, verdict.passed) for verdict in verdicts])
            agreed += not differs
            if differs and len(differences) < _SHOWN:
                differences.append(f"{line['case']}, repeat {line['repeat']}: {differs}")
    return Agreement(agreed, compared, without, tuple(differences))


def _first_difference(verdict: Sequence[bool | None], ours: Sequence[tuple[str, bool | None]]) -> str:
    """The first check with different verdicts, as text; "" if there is none."""
    words = {True: "passed", False: "failed", None: "not computed"}
    for theirs, (name, passed) in zip(verdict, ours, strict=True):
        if theirs is not None and theirs != passed:
            return f"{name} {words[theirs]} there, {words[passed]} here"
    return ""
