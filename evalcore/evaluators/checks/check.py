"""One compiled check: its grammar in a file, its verdict on an answer, and whether that verdict may be wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec

from evalq.evalcore.contract.params import boolean_meant
from evalq.evalcore.contract.plugins import on_naming
from evalq.evalcore.evaluators.checks.answer import Answer, Uncomputable, Unfit
from evalq.evalcore.evaluators.checks.params import Case, ChecksParams
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck, JudgeQuestion, Kind, Made
from evalq.evalcore.evaluators.checks.vocabulary.registry import known_kinds
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import join, kind_of, shorten
from evalq.evalcore.records.json_values import NoJson, NothingThere, find_at, parse_path
from evalq.evalcore.statistics.exact import is_below

WANTED_CHARACTERS = 120
FOUND_CHARACTERS = 200


class CheckVerdict(msgspec.Struct, omit_defaults=True):
    """What became of a check: ``passed`` and ``score`` are None, and ``error`` says why, where it cannot be computed.

    ``looked`` is false where the answer has nothing that it could look at: it then fails, negated or not. ``checks``
    are the parts of a composed one. Texts are cut to a bounded length.
    """

    name: str
    passed: bool | None
    score: float | None
    wanted: str
    found: str = ""
    error: str = ""
    weight: float = 1.0
    looked: bool = True
    checks: list[CheckVerdict] = []


class CommonOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of every check."""

    name: str | None = None
    weight: float = 1.0
    threshold: float | None = None
    at: str | None = None


class CompiledCheck:
    """One check made ready, its parts included."""

    __slots__ = ("_at", "_made", "_negated", "_threshold", "name", "wanted", "weight")

    def __init__(
        self, name: str, shared: CommonOptions, negated: bool, wanted: str, made: Made | None, least: float
    ) -> None:
        self.name = shorten(shared.name or name)
        self.weight = shared.weight
        self.wanted = shorten(f"not: {wanted}" if negated else wanted, WANTED_CHARACTERS)
        self._negated = negated
        self._threshold = least
        self._made = made
        self._at = None if shared.at is None else parse_path(shared.at)

    def judge(self, answer: Answer) -> CheckVerdict:
        """What becomes of it, looking at ``answer``."""
        try:
            answer = self._seen(answer)
        except (NoJson, NothingThere) as error:
            return self._unlooked(str(error))
        return self._judged(answer)

    def _unlooked(self, why: str, parts: Sequence[CheckVerdict] = ()) -> CheckVerdict:
        """Nothing is there to look at, of which neither the check nor its opposite is true."""
        found = shorten(why, FOUND_CHARACTERS)
        return CheckVerdict(self.name, False, 0.0, self.wanted, found, "", self.weight, False, list(parts))

    def _seen(self, answer: Answer) -> Answer:
        """What it looks at. Raises NoJson, NothingThere."""
        return answer if self._at is None else answer.part(find_at(answer.json, self._at, "the answer"))

    def asks(self) -> Iterator[JudgeQuestion]:
        """What it asks judges, and its parts do."""
        if self._made is not None and self._made.asked is not None:
            yield self._made.asked

    def questions(self, answer: Answer) -> Iterator[tuple[JudgeQuestion, Answer]]:
        """What is to be asked, and about what, so that it can be computed."""
        with contextlib.suppress(NoJson, NothingThere):
            seen = self._seen(answer)
            yield from self._questions(seen)

    def _questions(self, answer: Answer) -> Iterator[tuple[JudgeQuestion, Answer]]:
        return ((asked, answer) for asked in self.asks())

    def _judged(self, answer: Answer) -> CheckVerdict:
        assert self._made is not None, "a composed check judges by its parts"
        try:
            score, found = self._made.run(answer)
        except Uncomputable as error:
            return CheckVerdict(
                self.name, None, None, self.wanted, "", shorten(str(error), FOUND_CHARACTERS), self.weight
            )
        except Unfit as error:
            return self._unlooked(str(error))
        # As decimals: in floats 1 - 8/25 is a little less than .68.
        passed = not is_below(score, self._threshold)
        if self._negated:
            passed, score = not passed, 1.0 - score
        return CheckVerdict(self.name, passed, score, self.wanted, shorten(found, FOUND_CHARACTERS), "", self.weight)


class ComposedCheck(CompiledCheck):
    """``any``, ``all`` or ``at-least`` so many of its parts."""

    __slots__ = ("_count", "_kind", "_parts")

    def __init__(
        self, name: str, shared: CommonOptions, negated: bool, kind: str, parts: Sequence[CompiledCheck], count: int
    ) -> None:
        wanted = f"{count} of {len(parts)} checks" if kind == "at-least" else f"{kind} of {len(parts)} checks"
        super().__init__(name, shared, negated, wanted, None, 0.0)
        self._kind, self._parts, self._count = kind, parts, count

    def asks(self) -> Iterator[JudgeQuestion]:
        """What its parts ask judges."""
        return (asked for part in self._parts for asked in part.asks())

    def _questions(self, answer: Answer) -> Iterator[tuple[JudgeQuestion, Answer]]:
        # All of them: which part decides depends on the others, and an answer must not count by what was asked of it.
        return (question for part in self._parts for question in part.questions(answer))

    def _judged(self, answer: Answer) -> CheckVerdict:
        parts = [part.judge(answer) for part in self._parts]
        deciding = _deciding(parts)
        error = next((part.error for part in deciding if part.passed is None), "")
        if error:
            # Even where the others decide: an answer must not count by whether its record happens to be whole.
            return CheckVerdict(self.name, None, None, self.wanted, "", error, self.weight, checks=parts)
        held, unlooked = sum(part.passed is True for part in deciding), sum(not part.looked for part in deciding)
        needed = {"any": 1, "all": len(deciding)}.get(self._kind, self._count)
        found = f"{held} of {len(deciding)} hold"
        if held < needed <= held + unlooked:
            # By Kleene's logic: what could not be looked at decides, and may be either.
            return self._unlooked(f"{found}, {unlooked} found nothing to look at", parts)
        passed, score = held >= needed, self._score(deciding, held)
        if self._negated:
            passed, score = not passed, 1.0 - score
        return CheckVerdict(self.name, passed, score, self.wanted, found, "", self.weight, checks=parts)

    def _score(self, deciding: Sequence[CheckVerdict], held: int) -> float:
        """Before it is turned round; a part that could not be looked at adds nothing to the score that is told."""
        unlooked = 1.0 if self._negated else 0.0
        pairs = [(part.weight, part.score or 0.0 if part.looked else unlooked) for part in deciding]
        if self._kind == "any":
            return max(score for _, score in pairs)
        if self._kind == "all":
            return _mean_by_weight(pairs)
        could = held + sum(not part.looked for part in deciding) * unlooked
        return min(1.0, could / self._count)


def _deciding(parts: Sequence[CheckVerdict]) -> Sequence[CheckVerdict]:
    """Those of the parts that have a weight; all where none has."""
    return [part for part in parts if part.weight] or parts


def _mean_by_weight(scores: Iterable[tuple[float, float]]) -> float:
    """The mean of (weight, score); the plain mean where nothing has a weight, and 1 where nothing is there."""
    pairs = list(scores)
    whole = sum(weight for weight, _ in pairs)
    if whole <= 0.0:
        pairs, whole = [(1.0, score) for _, score in pairs], float(len(pairs))
    return min(1.0, sum(weight * score for weight, score in pairs) / whole) if pairs else 1.0


# Whether an output passes, by the verdicts of its checks.


def passes(verdicts: Sequence[CheckVerdict], least: float | None) -> tuple[str, float, str]:
    """(passed or failed, score, why it failed) where all checks that count were computed."""
    counted = [verdict for verdict in verdicts if verdict.passed is not None]
    score = _mean_by_weight((verdict.weight, verdict.score or 0.0) for verdict in counted)
    # A check of weight 0 is shown, and never decides (docs/decisions/0019).
    failed = [verdict for verdict in counted if not verdict.passed and verdict.weight]
    if least is None:
        fine, why = not failed, ""
    else:
        # As decimals: a mean of .1 and .2 must not miss .15 by the last bit.
        fine, why = round(score, 12) >= round(least, 12), f"score {score:.3g} below {least:g}; "
    if fine:
        return "passed", score, ""
    first = failed[0] if failed else None
    reason = f"{first.name}: wanted {first.wanted}, found {first.found}" if first else ""
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return "failed", score, f"{why}{reason}{more}"


# A check as it stands in a file, made ready: its name looked up, its value and options held to their types.

COMPOSED = ("any", "all", "at-least")
"""Checks that hold a list of checks."""
_COMMON = ("name", "weight", "threshold", "at")
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
        self._checks: dict[bytes, CompiledCheck] = {}
        self._left = self._ROOM

    def __call__(self, written: Mapping[str, Any]) -> CompiledCheck:
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


def compile_check(written: Mapping[str, Any], depth: int = 0) -> CompiledCheck:
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
    beside = {key: value for key, value in written.items() if key != name and key not in _COMMON}
    for key in beside:
        if key not in known:
            raise BadCheck(f"unknown key (known here: {', '.join(sorted({name, *known, *_COMMON}))})", key)
    value = _typed(written[name], kind.value, name)
    options = _typed(beside, kind.options, "")
    try:
        made = kind.make(value, options)
    except BadCheck as error:
        raise BadCheck(str(error), error.path or name) from None
    if shared.at is not None and made.asked is not None and made.asked.against:
        raise BadCheck("goes with a text to compare with: of another run's answer the whole is compared", "at")
    return CompiledCheck(name, shared, negated, made.wanted, made, _least(shared, kind, made))


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
    others = [key for key in written if key not in _COMMON]
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
    given = {key: written[key] for key in _COMMON if key in written}
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


def _composed(name: str, kind: str, negated: bool, written: Mapping[str, Any], depth: int) -> CompiledCheck:
    known = {name, *_COMMON, *(("count",) if kind == "at-least" else ())} - {"threshold"}
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
    return ComposedCheck(name, _shared(written), negated, kind, parts, count)


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


# Which checks may be wrong, and so which cases depend on somebody's judgement.


def fallible(written: Mapping[str, Any]) -> bool:
    """Whether a check, as a file spells it, may be wrong: a composed one where any of its parts may."""
    for name, value in written.items():
        plain = name.removeprefix(_NOT)
        if plain in COMPOSED:
            return any(fallible({part: True} if isinstance(part, str) else part) for part in value)
        kind = known_kinds().get(plain)
        if kind is not None:
            return kind.fallible
    return False


def judged_of(case: Case) -> tuple[bool, ...]:
    """Of each check of the case whether it may be wrong and decides: one of weight 0 is only shown."""
    return tuple(bool(check.get("weight", 1)) and fallible(check) for check in case.checks)


@lru_cache(maxsize=16)
def any_judged(params: ChecksParams) -> bool:
    """Whether any selected case depends on a fallible check."""
    return any(any(judged_of(case)) for case in params.selected())
