"""A check as it stands in a file, made ready: its name looked up, its value and options held to their types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from evalq.evalcore.contract.params import boolean_meant
from evalq.evalcore.contract.registry import on_naming
from evalq.evalcore.evaluators.checks.check import Check, CommonOptions, Composed
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck, Kind, Made
from evalq.evalcore.evaluators.checks.vocabulary.registry import known_kinds
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import join, kind_of, shorten
from evalq.evalcore.records.json_path import parse_path

__all__ = ["COMMON", "COMPOSED", "compile_check", "compiled", "spelled"]

COMPOSED = ("any", "all", "at-least")
"""Checks that hold a list of checks."""
COMMON = ("name", "weight", "threshold", "at")
"""Options of every check."""
_NOT = "not-"
_DEEPEST = 20
_MOST_PARTS = 1000
_NO_OPTIONS = CommonOptions()


def spelled(written: Any, expected: Any = msgspec.UNSET) -> dict[str, Any]:
    """A check as a mapping. A name alone takes ``expected`` as its value, where it takes any. Raises BadCheck."""
    if isinstance(written, str):
        name = written.removeprefix(_NOT)
        kind = known_kinds().get(name)
        if kind is None:
            raise BadCheck(_unknown(written))
        if _takes_nothing(kind):
            return {written: True}
        if expected is msgspec.UNSET:
            raise BadCheck(f"{written} by itself means the case's expected answer, and the case has no `expected`")
        return {written: expected}
    if not isinstance(written, Mapping):
        raise BadCheck(f"{kind_of(written)} where a check is wanted, such as {{contains: hello}}")
    return dict(written)


def _takes_nothing(kind: Kind) -> bool:
    return bool(kind.value == bool | None)


class _Compiled:
    """Checks made ready, as many as there is room for."""

    _ROOM, _EACH = 64 << 20, 200

    def __init__(self) -> None:
        self._checks: dict[bytes, Check] = {}
        self._left = self._ROOM

    def __call__(self, written: Mapping[str, Any]) -> Check:
        """`compile_check`, made once for equal ones: those of a file are held to their grammar before they are used,
        and templates give many cases the same. Raises BadCheck, also for what is no plain JSON data.
        """
        key = _key(written)
        check = self._checks.get(key)
        if check is None:
            # As it is written there: the order of keys shows in messages, and differs by the way params came.
            check = compile_check(msgspec.json.decode(key))
            self._left -= len(key) + self._EACH
            if self._left < 0:
                self.forget()
            self._checks[key] = check
        return check

    def forget(self) -> None:
        """Nothing is kept any more."""
        self._checks.clear()
        self._left = self._ROOM


compiled = _Compiled()
on_naming(compiled.forget)


def _key(written: Mapping[str, Any]) -> bytes:
    """The check as JSON with its keys in order. Raises BadCheck."""
    try:
        key = msgspec.json.encode(written, order="sorted")
        # NaN is written so, too, and is no JSON.
        return canonical_json(dict(written)) if b"null" in key else key
    except UnicodeEncodeError:  # half a surrogate pair
        return canonical_json(dict(written))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadCheck(f"not plain JSON data: {error}") from None


def compile_check(written: Mapping[str, Any], depth: int = 0) -> Check:
    """The check that ``written`` spells. Raises BadCheck, with the path to what is wrong."""
    if depth > _DEEPEST:
        raise BadCheck(f"checks nest more than {_DEEPEST} deep")
    name = _name(written)
    negated = name.startswith(_NOT)
    plain = name.removeprefix(_NOT)
    if plain in COMPOSED:
        return _composed(name, plain, negated, written, depth)
    kind = known_kinds()[plain]
    shared = _shared(written)
    own: Any = kind.options
    known = _options_of(own)
    beside = {key: value for key, value in written.items() if key != name and key not in COMMON}
    for key in beside:
        if key not in known:
            raise BadCheck(f"unknown key (known here: {', '.join(sorted({name, *known, *COMMON}))})", key)
    value = _typed(written[name], kind.value, name)
    options = _typed(beside, kind.options, "")
    try:
        made = kind.make(value, options)
    except BadCheck as error:
        raise BadCheck(str(error), error.path or name) from None
    if shared.at is not None and made.asked is not None and made.asked.against:
        raise BadCheck("goes with a text to compare with: of another run's answer the whole is compared", "at")
    return Check(name, shared, negated, made.wanted, made, _least(shared, kind, made))


def _least(shared: CommonOptions, kind: Kind, made: Made) -> float:
    """The least score that passes. Raises BadCheck."""
    given = shared.threshold
    if given is None:
        return made.least if made.least is not None else 1.0 if kind.threshold is None else kind.threshold
    if kind.threshold is None:
        raise BadCheck(f"goes with checks that measure; {kind.name} holds or does not", "threshold")
    # A judge's threshold is in the units of its scale, which only the check itself knows.
    if made.scaled is not None:
        return made.scaled(given)
    if not 0.0 <= given <= 1.0:
        raise BadCheck("must be a number from 0 to 1", "threshold")
    return given


@cache
def _options_of(options: type[Any]) -> frozenset[str]:
    """The names of a check's own options."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(options))


def _name(written: Mapping[str, Any]) -> str:
    """The one key that names a check. Raises BadCheck."""
    for key in written:
        if not isinstance(key, str):
            raise BadCheck(f"{key!r} is no name of a check or an option: keys are texts")
    names = [key for key in written if key.removeprefix(_NOT) in known_kinds() or key.removeprefix(_NOT) in COMPOSED]
    # "at-least" is a check, "is" an option of another: no option is called like a check.
    if len(names) == 1:
        return names[0]
    if names:
        raise BadCheck(f"{len(names)} checks in one mapping ({', '.join(names)}): write a list item for each")
    others = [key for key in written if key not in COMMON]
    raise BadCheck(_unknown(others[0]) if others else "no check is named", others[0] if others else "")


def _unknown(name: str) -> str:
    near = _nearest(name.removeprefix(_NOT))
    meant = f"; did you mean {near}?" if near else f"; there are: {', '.join([*known_kinds(), *COMPOSED])}"
    return f"there is no check {shorten(name)!r}{meant}"


def _nearest(name: str) -> str:
    from rapidfuzz import process  # only a mistake needs it
    from rapidfuzz.distance import DamerauLevenshtein

    # Cut: distances take time with both lengths, and what is longer is none of them anyway.
    found = process.extractOne(
        name[:40], [*known_kinds(), *COMPOSED], scorer=DamerauLevenshtein.distance, score_cutoff=2
    )
    return str(found[0]) if found else ""


def _shared(written: Mapping[str, Any]) -> CommonOptions:
    given = {key: written[key] for key in COMMON if key in written}
    if not given:
        return _NO_OPTIONS
    shared: CommonOptions = _typed(given, CommonOptions, "")
    if not 0.0 <= shared.weight <= 1e9:
        raise BadCheck("must be a number from 0 to 1e9", "weight")
    if shared.at is not None:
        try:
            parse_path(shared.at)
        except ValueError as error:
            raise BadCheck(str(error), "at") from None
    return shared


def _composed(name: str, kind: str, negated: bool, written: Mapping[str, Any], depth: int) -> Check:
    known = {name, *COMMON, *(("count",) if kind == "at-least" else ())} - {"threshold"}
    for key in written:
        if key not in known:
            raise BadCheck(f"unknown key (known here: {', '.join(sorted(known))})", key)
    listed = written[name]
    if not isinstance(listed, list) or not listed:
        raise BadCheck(f"{kind_of(listed)} where a list of checks is wanted, at least one", name)
    if len(listed) > _MOST_PARTS:
        raise BadCheck(f"{len(listed)} checks in one list; {_MOST_PARTS} are the most", name)
    parts = []
    for index, part in enumerate(listed):
        try:
            parts.append(compile_check(spelled(part), depth + 1))
        except BadCheck as error:
            path = join(name, index)
            raise BadCheck(str(error), f"{path}.{error.path}" if error.path else path) from None
    # Of those that decide: a count beyond them could never be reached.
    count, most = written.get("count", 1), sum(part.weight > 0 for part in parts) or len(parts)
    if type(count) is not int or not 1 <= count <= most:
        raise BadCheck(f"must be a whole number from 1 to {most}, the number of its checks that have a weight", "count")
    return Composed(name, _shared(written), negated, kind, parts, count)


def _typed(value: Any, kind: Any, path: str) -> Any:
    """``value`` as ``kind``. Raises BadCheck with the path, from the check on."""
    try:
        # Strict: a number in quotes is a text, and would otherwise pass where the file is wrong.
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        message, _, inner = str(error).partition(" - at `$")
        where = path + inner.rstrip("`")
        held = value.get(inner.strip(".`")) if isinstance(value, dict) else value
        meant = boolean_meant(held) if "bool" in message else ""
        reason = meant or f"{message[:1].lower()}{message[1:]}".replace("`", "")
        raise BadCheck(reason, where.lstrip(".")) from None
