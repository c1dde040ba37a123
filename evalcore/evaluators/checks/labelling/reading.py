"""Reading a file of labels: who said of which check of which output that it passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.faults import Faults, Place
from evalq.evalcore.evaluators.checks.reading import columns_of, lines_of_table, open_table
from evalq.evalcore.naming import found, shorten
from evalq.evalcore.records.batch import Batch

__all__ = ["load_labels"]

_KEYS = ("case", "repeat", "check", "passed", "note")
_ENDINGS = (".jsonl", ".ndjson", ".csv")
# As a CSV has them, in any case: spreadsheets write TRUE and FALSE.
_TRUTH = {"true": True, "false": False}
_MOST_REPEATS = 2**53
_MOST = 1_000_000


def load_labels(path: str) -> dict[str, dict[str, dict[str, list[int]]]]:
    """Repeats by case, check, and whether they ``passed`` or ``failed``: `ChecksParams.labels`, plain.

    JSONL or CSV of ``case``, ``repeat`` (0 where it is missing), ``check``, ``passed``, and ``note``, which is passed
    over. Raises ConfigError that lists by line what is no label, and labels that contradict one another, and for a
    file without any.
    """
    faults, said = Faults(), dict[tuple[str, str, int], tuple[bool, Place]]()
    for row, place in _rows(path, faults):
        label = _label(row, place, faults)
        if label is None:
            continue
        key, passed = label
        before = said.setdefault(key, (passed, place))
        if before[0] is not passed:
            case, check, repeat = key
            one = f"{shorten(case)} repeat {repeat}, {shorten(check)!r}"
            told = "passes" if before[0] else "fails"
            faults.add(place, f"{one}: contradicts line {before[1].line}, by which it {told}")
    faults.raise_any("the labels")
    if not said:
        # Whoever names a file means its labels: an export that failed shall not pass for nobody having labelled.
        raise ConfigError(f"{path}: no label is in it; put one in (a line of case, check and passed), or omit the file")
    if len(said) > _MOST:
        raise ConfigError(f"{path}: more than {_MOST:,} labels")
    labels: dict[str, dict[str, dict[str, list[int]]]] = {}
    # Sorted: the params' digest must not go by the order in which people labelled.
    for (case, check, repeat), (passed, _) in sorted(said.items(), key=lambda item: item[0]):
        own = labels.setdefault(case, {}).setdefault(check, {"passed": [], "failed": []})
        own["passed" if passed else "failed"].append(repeat)
    return labels


def _rows(path: str, faults: Faults) -> Iterator[tuple[dict[str, Any], Place]]:
    if not path.lower().endswith(_ENDINGS):
        raise ConfigError(f"{path}: a file of labels ends in {', '.join(_ENDINGS)}")
    batch = open_table(path)
    yield from _table(batch, path, faults) if path.lower().endswith(".csv") else lines_of_table(batch, faults)


def _table(batch: Batch, path: str, faults: Faults) -> Iterator[tuple[dict[str, Any], Place]]:
    """Rows of a CSV, their cells as JSONL would have them."""
    columns = columns_of(batch, _KEYS.__contains__)
    if len(set(columns)) < len(columns):
        faults.add(Place(path, (), 1), "a column stands there twice")
        return
    if any(columns) and not _heads(columns, Place(path, (), 1), faults):
        return
    given = msgspec.structs.replace(batch, columns=columns)
    rows = given.rows(lambda line, reason: faults.add(Place(path, (), line), reason))
    next(rows, None)
    for line, cells in rows:
        row: dict[str, Any] = {name: text for name, text in zip(columns, cells, strict=True) if text != ""}
        row["passed"] = _TRUTH.get(str(row.get("passed", "")).strip().lower(), row.get("passed"))
        repeat = str(row.get("repeat", "0")).strip()
        # 2^53 has 16 digits. What is longer, or no number, stays as it is and is told with its line below.
        row["repeat"] = int(repeat) if repeat.isascii() and repeat.isdigit() and len(repeat) < 17 else row["repeat"]
        yield row, Place(path, (), line)


def _heads(columns: tuple[str, ...], place: Place, faults: Faults) -> bool:
    """Whether a header names what labels have: a file without one would lose its first label, or its only one."""
    before = len(faults.found)
    faults.unknown(dict.fromkeys(columns), _KEYS, place)
    if lacking := [name for name in ("case", "check", "passed") if name not in columns]:
        faults.add(place, f"the header lacks {', '.join(lacking)}")
    return len(faults.found) == before


def _label(row: dict[str, Any], place: Place, faults: Faults) -> tuple[tuple[str, str, int], bool] | None:
    """((case, check, repeat), passed); None where a fault was noted."""
    before = len(faults.found)
    faults.unknown(row, _KEYS, place)
    for key in ("case", "check"):
        if not isinstance(row.get(key), str) or not row[key]:
            faults.add(place.at(key), f"{found(row, key)} where a text is wanted")
    repeat = row.get("repeat", 0)
    if type(repeat) is not int or not 0 <= repeat < _MOST_REPEATS:
        faults.add(place.at("repeat"), f"{found(row, 'repeat')} where a whole number from 0 is wanted")
    if not isinstance(row.get("passed"), bool):
        faults.add(place.at("passed"), f"{found(row, 'passed')} where true or false is wanted")
    if len(faults.found) > before:
        return None
    return (row["case"], row["check"], repeat), row["passed"]
