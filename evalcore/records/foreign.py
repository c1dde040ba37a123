"""Files of recorded outputs in another layout: what they hold, and the mapping that would make them outputs."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from evalq.evalcore.errors import InputError
from evalq.evalcore.files import open_input
from evalq.evalcore.naming import kind_of, shorten
from evalq.evalcore.records.inputs import HEAD_BYTES, MAX_UNPACKED_BYTES, Layout, Source, excel_changed, file_kind
from evalq.evalcore.records.layouts import (
    MISSING,
    SHOWN_KEYS,
    Kind,
    Record,
    as_id,
    found_at,
    mapped_keys,
    recorded_sources,
    records_of,
)

_DEEP = 8
FIRST_RECORDS = 1_000
"""Records of a file that are read before anything is evaluated: if none has an output, the layout is another one."""
# The first records of a file: whether they are of the layout, and what to map if not.

_NAMES = {
    "case": (
        *("case", "case_id", "caseid", "id", "qid", "question_id", "query_id", "item_id", "sample_id", "example_id"),
        *("test_id", "doc_id", "custom_id", "uid", "uuid", "key", "idx", "index", "name", "test", "no"),
    ),
    "output": (
        *("output", "response", "answer", "completion", "prediction", "predicted", "pred", "generated_text"),
        *("generation", "generated", "model_output", "actual_output", "actual", "reply", "result", "content", "text"),
        *("message", "resps"),
    ),
    "expected": (
        *("expected", "gold", "expected_output", "reference", "target", "ideal", "ground_truth", "label", "truth"),
        "correct_answer",
    ),
    "repeat": ("repeat", "n", "sample", "trial", "epoch", "run", "attempt"),
    "error": ("error",),
}


def refuse_foreign(
    given: Sequence[str],
    option: Any,
    fields: Mapping[str, Kind],
    gathers: Sequence[str],
    known: Callable[[str], bool],
    some_ids: Sequence[str],
) -> None:
    """Raise InputError if none of the first records of a file can have a result, and show the keys that are there.

    ``given`` are the files of outputs; those of a sweep need not exist yet. ``option`` is the value of ``--map``.
    ``known`` says whether there is a case of an id; ``some_ids`` are a few of them, to show.
    """
    keys = mapped_keys(option, fields)
    existing = [path for path in given if os.path.lexists(path) or glob.has_magic(path)]
    for source in recorded_sources(existing, option, fields, gathers):
        if source.members or source.path == "-":
            continue
        head = list(islice(_firstrecords_of(source, fields, keys), FIRST_RECORDS))
        if head and not any(_has_result(record, keys) for _, record in head):
            raise _foreign_keys(source, head, fields, keys, known)
        ids = [_case_of(record, keys) for _, record in head]
        named = [name for name in ids if isinstance(name, str)]
        if named and len(named) == len(head) and not any(map(known, named)):
            raise _foreign_cases(source, head, named, fields, keys, known, some_ids)


def _firstrecords_of(source: Source, fields: Mapping[str, Kind], keys: Mapping[str, str]) -> Iterator[Record]:
    try:
        yield from records_of(source, source.layout or Layout("jsonl"), keys, fields, MAX_UNPACKED_BYTES)
    except OSError as error:
        raise InputError("an input cannot be read", [(source.given, error.strerror or str(error))]) from None


def _value(record: Any, key: str, keys: Mapping[str, str]) -> Any:
    if not isinstance(record, dict):
        return MISSING
    path = keys.get(key, key)
    return record[path] if path in record else found_at(record, path) if key in keys else MISSING


def _has_result(record: Any, keys: Mapping[str, str]) -> bool:
    case = _value(record, "case", keys)
    if case is MISSING:
        case = _value(record, "named", keys)
    return case not in (MISSING, None, "") and any(
        _value(record, key, keys) is not MISSING for key in ("output", "error", "tool_calls", "messages")
    )


def _case_of(record: Any, keys: Mapping[str, str]) -> Any:
    return as_id(_value(record, "case", keys))


def _foreign_keys(
    source: Source,
    head: list[Record],
    fields: Mapping[str, Kind],
    keys: Mapping[str, str],
    known: Callable[[str], bool],
) -> InputError:
    paths = Counter(path for _, record in head for path in _paths(record))
    line, first = head[0]
    where = f"{source.name}:{line}"
    count = "the only record does not" if len(head) == 1 else f"none of the first {len(head):,} records does"
    wanted = " and ".join(f"{key} ({keys[key]!r})" if keys.get(key, key) != key else key for key in ("case", "output"))
    if not paths:
        got = first if isinstance(first, str) else f"a record is {kind_of(first)}, not an object"
        if isinstance(first, str) and (source.layout is None or source.layout.form == "jsonl"):
            if kind := _other_kind(source):
                return InputError(f"{source.name} is no JSONL in UTF-8", [(where, kind)])
            got += ". JSONL has one object on each line; a file that ends in .json may be a list, in .csv a table"
        reason = f"a record needs {wanted}; {count}. {got[:1].upper()}{got[1:]}"
        return InputError(f"{source.name} has no outputs that evalq can read", [(where, reason)])
    listed = ", ".join(f"{shorten(path, 60)} ({n:,})" for path, n in paths.most_common(SHOWN_KEYS))
    more = f" and {len(paths) - SHOWN_KEYS} more" if len(paths) > SHOWN_KEYS else ""
    guess = guessed(head, fields, known)
    advice = f"Try --map {guess}" if guess else "Name them: --map case=KEY,output=KEY"
    reason = f"a record needs {wanted}; {count}. Keys: {listed}{more}. {advice}"
    return InputError(f"{source.name} has no outputs that evalq can read", [(where, reason)])


def _other_kind(source: Source) -> str:
    """What a file that is no JSON seems to be, such as a workbook; empty if it may be a text."""
    try:
        with open_input(source.path) as stream:
            head = stream.read(HEAD_BYTES)
    except OSError:
        return ""
    return "" if head[:1] in (b"{", b"[") else file_kind(head) or ""


def _foreign_cases(
    source: Source,
    head: list[Record],
    named: list[str],
    fields: Mapping[str, Kind],
    keys: Mapping[str, str],
    known: Callable[[str], bool],
    some_ids: Sequence[str],
) -> InputError:
    here, there = (", ".join(repr(shorten(name, 40)) for name in dict.fromkeys(each)) for each in (named[:3], some_ids))
    guess = guessed(head, fields, known)
    matching = next((part for part in guess.split(",") if part.startswith("case=")), "")
    path = matching.partition("=")[2]
    right = path and any(known(str(as_id(found_at(record, path)))) for _, record in head)
    advice = (
        f". Try --map {guess}" if right else next((f". {hint}" for name in named if (hint := excel_changed(name))), "")
    )
    count = (
        "the only record is about no case"
        if len(head) == 1
        else f"none of the first {len(head):,} records is about a case"
    )
    reason = f"{count} that there is: the cases are {there}; the records have {here}{advice}"
    return InputError(f"{source.name} is about other cases", [(f"{source.name}:{head[0][0]}", reason)])


def _paths(value: Any, at: str = "", depth: int = 0) -> Iterator[str]:
    """The paths of the values in a record, deepest first named in full."""
    if isinstance(value, dict) and value and depth < _DEEP:
        for key, inner in value.items():
            yield from _paths(inner, f"{at}.{key}" if at else str(key), depth + 1)
    elif isinstance(value, list) and value and at and depth < _DEEP:
        yield from _paths(value[0], f"{at}.0", depth + 1)
    elif at:
        yield at


def guessed(head: Sequence[Record], fields: Mapping[str, Kind], known: Callable[[str], bool]) -> str:
    """A mapping that may be right for these records, as ``--map`` takes it; empty without an idea of the output."""
    records = [record for _, record in head if isinstance(record, dict)]
    paths = list(Counter(path for record in records for path in _paths(record)))
    keys: dict[str, str] = {}
    for key in [name for name in ("case", "output", "expected", "repeat", "error") if name in fields]:
        free = [path for path in paths if path not in keys.values()]
        ranked = sorted((rank, number, path) for number, path in enumerate(free) if (rank := _rank(path, key)) >= 0)
        if key == "case" and (matching := [path for path in free if _matches(records, path, known)]):
            keys[key] = matching[0]
        elif ranked:
            keys[key] = ranked[0][2]
    if not {"case", "output"} <= keys.keys():
        return ""
    return ",".join(f"{key}={path}" for key, path in keys.items() if key != path or key in ("case", "output"))


def _rank(path: str, key: str) -> int:
    """How near a path is to the names of ``key``; -1 if it is none of them."""
    parts = [re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_") for part in path.split(".")]
    names = _NAMES[key]
    if parts[-1] in names:
        return names.index(parts[-1]) + (0 if len(parts) == 1 or key in ("output", "expected") else 100)
    # choices.0.text, resps.0.0: a text inside the value of such a name.
    holders = [names.index(part) for part in parts[:-1] if part in names]
    return 50 + min(holders) if holders and key == "output" and parts[-1].isdecimal() else -1


def _matches(records: Sequence[dict[str, Any]], path: str, known: Callable[[str], bool]) -> bool:
    values = [as_id(value) for record in records[:100] if (value := found_at(record, path)) is not MISSING]
    return any(isinstance(value, str) and known(value) for value in values)
