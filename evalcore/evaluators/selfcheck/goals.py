"""The goal-backward check: does each file exist that a task was to leave behind?

Only this part of a self check reads the disk. It runs once, on the machine with the files, and stores its answer in the
record. The check itself only reads that answer.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import msgspec

from evalq.evalcore.errors import ConfigError, InputError, UsageError
from evalq.evalcore.evaluators.selfcheck.evidence import GoalBackwardResult, GoalPath
from evalq.evalcore.evaluators.selfcheck.questions import search_pattern
from evalq.evalcore.files import open_given
from evalq.evalcore.model.manifest import BOM
from evalq.evalcore.records.json_values import RecordFault, read_object, typed
from evalq.evalcore.scan import PatternRefused, Scanner
from evalq.evalcore.trust import Thing, Writer, allows

HOW_TO_RESOLVE = "evalq selfcheck-resolve --evidence FILE --root DIR > resolved.jsonl"
"""The command that looks up expected paths; run it on the machine with the files."""

MAX_SEARCHED_BYTES = 16 << 20
"""The part of a file that is searched for its pattern."""


class _ExpectedPath(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    pattern: str | None = None


class _PathRefused(Exception):
    """A path leaves the root, or cannot be read."""


def resolve_goals(evidence: Mapping[str, Any], root: str | Path) -> dict[str, Any]:
    """``evidence`` (a record as plain JSON) with the ``goalVerification`` of its ``expectedPaths`` under ``root``.

    An expected path is a string, or {"path", "pattern"}: a file or folder that must exist, must not be empty, and must
    match. It is relative. A path that is absolute, contains ``..`` or leaves ``root`` through a symbolic link is not
    read, and counts as not reached. Without expected paths, the evidence is returned unchanged. A verification in the
    evidence is replaced, because the agent may have written it. Raises RecordFault for expected paths of a wrong type,
    ConfigError if there is no such root.
    """
    top = Path(root).resolve()
    if not top.is_dir():
        raise ConfigError(f"{root}: the root of expected paths is no folder")
    wanted = typed(evidence, _ExpectedPaths).expectedPaths
    if not wanted:
        return dict(evidence)
    paths = [_check_path(top, _ExpectedPath(item) if isinstance(item, str) else item) for item in wanted]
    result = GoalBackwardResult(all(path.reached for path in paths), paths)
    return {**evidence, "goalVerification": msgspec.to_builtins(result)}


class _ExpectedPaths(msgspec.Struct):
    expectedPaths: list[str | _ExpectedPath] | None = None


def _check_path(top: Path, expected: _ExpectedPath) -> GoalPath:
    try:
        real = _real_path(top, expected.path)
        kind = real.stat().st_mode
        if stat.S_ISDIR(kind):
            # A folder has no text, so it matches no pattern.
            return GoalPath(expected.path, True, any(real.iterdir()), None if expected.pattern is None else False)
        if not stat.S_ISREG(kind):
            raise _PathRefused("neither a file nor a folder")
        return GoalPath(expected.path, True, real.stat().st_size > 0, _matches(real, expected.pattern))
    except FileNotFoundError:
        return GoalPath(expected.path, False)
    except (_PathRefused, PatternRefused) as error:
        return GoalPath(expected.path, False, reason=str(error))
    except OSError as error:
        return GoalPath(expected.path, False, reason=error.strerror or "cannot be read")


def _real_path(top: Path, path: str) -> Path:
    """The real path of ``path`` under ``top``. Raises _PathRefused if it is not under ``top``."""
    # Checked by Windows' rules, too: there "C:x" leaves the folder, and backslashes separate "..".
    windows = PureWindowsPath(path)
    if not path or "\0" in path:
        raise _PathRefused("no path")
    if PurePosixPath(path).is_absolute() or windows.drive or windows.root:
        raise _PathRefused("an absolute path; expected paths are relative to the root")
    if ".." in windows.parts:
        raise _PathRefused("'..' in a path; expected paths stay inside the root")
    try:
        # Resolve first: a link inside the root may lead out of it.
        real = (top / path).resolve()
    except RuntimeError:
        raise _PathRefused("a loop of symbolic links") from None
    if not allows(Writer.CASES_FILE, Thing.PATH, real, (top,)):
        raise _PathRefused("a symbolic link leads out of the root")
    return real


def _matches(path: Path, pattern: str | None) -> bool | None:
    if pattern is None:
        return None
    scanner = Scanner([search_pattern(pattern)])
    with path.open("rb") as stream:
        text = stream.read(MAX_SEARCHED_BYTES).decode(errors="replace")
    return scanner.firsts(text)[0] is not None


def resolve_command(options: Mapping[str, Any]) -> str:
    """The JSONL file ``options["evidence"]`` with the goals of its records resolved under ``options["root"]``."""
    missing = [name for name in ("evidence", "root") if not options.get(name)]
    if missing:
        raise UsageError(f"selfcheck-resolve needs {' and '.join('--' + name for name in missing)}")
    evidence = options["evidence"]
    try:
        with open_given(evidence) as stream:
            # Split as in an evaluation: a byte order mark is not part of the first record, and a lone carriage
            # return is white space inside a record.
            lines = [line.rstrip(b"\r") for line in stream.read().removeprefix(BOM).split(b"\n")]
    except OSError as error:
        raise InputError("no evidence to resolve", [(evidence, error.strerror or str(error))]) from None
    return "\n".join(_resolve_line(line, options["root"]) for line in lines if line.strip())


def _resolve_line(line: bytes, root: str) -> str:
    try:
        return msgspec.json.encode(resolve_goals(read_object(line), root)).decode()
    except RecordFault:
        # The evaluation reports the fault.
        return line.decode(errors="replace")
