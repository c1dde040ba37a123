"""Compile a check, judge an answer by it, and say whether its verdict may be wrong."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from evalq.evalcore.contract.params import boolean_meant
from evalq.evalcore.contract.plugins import cached_until_named, on_naming
from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, Uncomputable, Unfit
from evalq.evalcore.evaluators.checks.params import AnyCase, ChecksParams
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck, Finding, JudgeQuestion, Kind, Made, Run
from evalq.evalcore.evaluators.checks.vocabulary.registry import known_kinds
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import is_text, join, kind_of, shorten
from evalq.evalcore.records.json_values import NoJson, NothingThere, find_at, parse_path
from evalq.evalcore.statistics.exact import is_below

WANTED_CHARACTERS = 120
FOUND_CHARACTERS = 200


class CheckVerdict(msgspec.Struct, omit_defaults=True):
    """The verdict of a check: ``passed`` and ``score`` are None, and ``error`` says why, if it cannot be computed.

    ``looked`` is false if the answer has nothing for the check; it then fails, even if negated. ``checks`` are the
    parts of a composed check. Texts are shortened.
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
    about: Literal["answer", "user"] = "answer"


class CompiledCheck:
    """A check ready to judge answers."""

    __slots__ = (
        *("_at", "_at_record", "_made", "_negated", "_of", "_of_answer", "_threshold", "about_user"),
        *("asks", "fallible", "name", "reads_record", "wanted", "wants_calls", "weight"),
    )

    def __init__(
        self,
        name: str,
        shared: CommonOptions,
        negated: bool,
        wanted: str,
        made: Made | None,
        least: float,
        fallible: bool = False,
    ) -> None:
        self.name = shorten(shared.name or name)
        self.weight = shared.weight
        self.fallible = fallible
        self.wanted = shorten(f"not: {wanted}" if negated else wanted, WANTED_CHARACTERS)
        self._negated = negated
        self._threshold = least
        self._made = made
        self._at: tuple[str | int, ...] | None = None
        self._at_record = False
        if shared.at is not None:
            self._at, self._at_record = parse_at(shared.at)
        self.about_user = shared.about == "user"
        self.reads_record = self._at_record or self.about_user or (made is not None and made.reads_record)
        question = None if made is None else made.question
        self.asks = question is not None
        self._of: str = "answer" if question is None else question.of
        if self.about_user and self._of == "answer":
            self._of = "user"
        self._of_answer = shared.at is None and self._of == "answer"
        # A judge of the whole conversation, or a program that looks at what is left, sees the calls, too.
        acts = self._of in ("conversation", "record") or (made is not None and made.wants_calls)
        # Other keys of the record say nothing of calls: with them, an answer without a text would pass.
        acts = acts or (self._at_record and self._at is not None and self._at[:1] in (("messages",), ("tool_calls",)))
        self.wants_calls = acts and not negated and not self.about_user and self.weight > 0

    def judge(self, answer: CheckedAnswer) -> CheckVerdict:
        """The verdict on ``answer``."""
        if self._of_answer:
            return self._verdict(answer)
        try:
            answer = self._select(answer)
        except (NoJson, NothingThere, Unfit) as error:
            return self._nothing_to_check(str(error))
        except Uncomputable as error:
            return self._uncomputable(error)
        return self._verdict(answer)

    def finding(self, answer: CheckedAnswer) -> Finding:
        """Whether ``answer`` passes. Raises Uncomputable, and Unfit if it has nothing for the check."""
        verdict = self.judge(answer)
        if verdict.passed is None:
            raise Uncomputable(verdict.error)
        if not verdict.looked:
            raise Unfit(verdict.found)
        return Finding(float(verdict.passed), verdict.found)

    def _nothing_to_check(self, why: str, parts: Sequence[CheckVerdict] = ()) -> CheckVerdict:
        """The verdict on an answer with nothing to check: it fails the check and its opposite."""
        found = shorten(why, FOUND_CHARACTERS)
        return CheckVerdict(self.name, False, 0.0, self.wanted, found, "", self.weight, False, list(parts))

    def _uncomputable(self, error: Uncomputable) -> CheckVerdict:
        why = shorten(str(error), FOUND_CHARACTERS)
        return CheckVerdict(self.name, None, None, self.wanted, "", why, self.weight)

    def _select(self, answer: CheckedAnswer) -> CheckedAnswer:
        """The part that the check is about. Raises NoJson, NothingThere, Unfit, Uncomputable."""
        if self._at is None:
            parts = {"conversation": answer.conversation, "record": answer.as_record, "user": answer.said_by_user}
            return parts.get(self._of, lambda: answer)()
        if self._at_record:
            return answer.part(find_at(answer.record, self._at, "the record"))
        return answer.part(find_at(answer.json, self._at, "the answer"))

    def judge_questions(self) -> Iterator[JudgeQuestion]:
        """The questions for judges, with those of its parts."""
        if self._made is not None and self._made.question is not None:
            yield self._made.question

    def questions(self, answer: CheckedAnswer) -> Iterator[tuple[JudgeQuestion, CheckedAnswer]]:
        """Each question that judges must answer before the verdict, with the part of the answer it is about."""
        with contextlib.suppress(NoJson, NothingThere, Unfit, Uncomputable):
            selected = self._select(answer)
            yield from self._questions(selected)

    def _questions(self, answer: CheckedAnswer) -> Iterator[tuple[JudgeQuestion, CheckedAnswer]]:
        return ((question, answer) for question in self.judge_questions())

    def _verdict(self, answer: CheckedAnswer) -> CheckVerdict:
        assert self._made is not None, "a composed check judges by its parts"
        try:
            score, found = self._made.run(answer)
        except Uncomputable as error:
            return self._uncomputable(error)
        except Unfit as error:
            return self._nothing_to_check(str(error))
        # As decimals: in floats 1 - 8/25 is a little less than .68.
        passed = score >= self._threshold or not is_below(score, self._threshold)
        if self._negated:
            passed, score = not passed, 1.0 - score
        return CheckVerdict(self.name, passed, score, self.wanted, shorten(found, FOUND_CHARACTERS), "", self.weight)


class ComposedCheck(CompiledCheck):
    """A check that ``any``, ``all`` or ``at-least`` some of its parts hold."""

    __slots__ = ("_count", "_kind", "_parts")

    def __init__(
        self, name: str, shared: CommonOptions, negated: bool, kind: str, parts: Sequence[CompiledCheck], count: int
    ) -> None:
        wanted = f"{count} of {len(parts)} checks" if kind == "at-least" else f"{kind} of {len(parts)} checks"
        super().__init__(name, shared, negated, wanted, None, 0.0, any(part.fallible for part in parts))
        self.reads_record = self.reads_record or any(part.reads_record for part in parts)
        self.asks = any(part.asks for part in parts)
        self.wants_calls = not negated and self.weight > 0 and any(part.wants_calls for part in parts)
        self._kind, self._parts, self._count = kind, parts, count

    def judge_questions(self) -> Iterator[JudgeQuestion]:
        """The questions of its parts."""
        return (question for part in self._parts for question in part.judge_questions())

    def _questions(self, answer: CheckedAnswer) -> Iterator[tuple[JudgeQuestion, CheckedAnswer]]:
        # The questions of all parts: which part decides depends on the others.
        return (question for part in self._parts for question in part.questions(answer))

    def _verdict(self, answer: CheckedAnswer) -> CheckVerdict:
        parts = [part.judge(answer) for part in self._parts]
        deciding = _deciding(parts)
        error = next((part.error for part in deciding if part.passed is None), "")
        if error:
            # Even if the others decide: otherwise rates would depend on which records are complete.
            return CheckVerdict(self.name, None, None, self.wanted, "", error, self.weight, checks=parts)
        holding, without_subject = (
            sum(part.passed is True for part in deciding),
            sum(not part.looked for part in deciding),
        )
        needed = {"any": 1, "all": len(deciding)}.get(self._kind, self._count)
        found = f"{holding} of {len(deciding)} hold"
        if holding < needed <= holding + without_subject:
            # Kleene's logic: the parts without a subject decide, and could be either.
            return self._nothing_to_check(f"{found}, {without_subject} found nothing to look at", parts)
        passed, score = holding >= needed, self._score(deciding, holding)
        if self._negated:
            passed, score = not passed, 1.0 - score
        return CheckVerdict(self.name, passed, score, self.wanted, found, "", self.weight, checks=parts)

    def _score(self, deciding: Sequence[CheckVerdict], holding: int) -> float:
        """The score before negation; a part without a subject adds nothing to the final score."""
        missing_score = 1.0 if self._negated else 0.0
        pairs = [(part.weight, part.score or 0.0 if part.looked else missing_score) for part in deciding]
        if self._kind == "any":
            return max(score for _, score in pairs)
        if self._kind == "all":
            return _mean_by_weight(pairs)
        possible = holding + sum(not part.looked for part in deciding) * missing_score
        return min(1.0, possible / self._count)


def _deciding(parts: Sequence[CheckVerdict]) -> Sequence[CheckVerdict]:
    """The parts that have a weight; all if none has."""
    return [part for part in parts if part.weight] or parts


def _mean_by_weight(scores: Iterable[tuple[float, float]]) -> float:
    """The mean of (weight, score); the plain mean if all weights are 0, and 1 for no scores."""
    pairs = list(scores)
    whole = sum(weight for weight, _ in pairs)
    if whole <= 0.0:
        pairs, whole = [(1.0, score) for _, score in pairs], float(len(pairs))
    return min(1.0, sum(weight * score for weight, score in pairs) / whole) if pairs else 1.0


# Whether an output passes.


def passes(verdicts: Sequence[CheckVerdict], least: float | None) -> tuple[str, float, str]:
    """(passed or failed, score, why it failed), if all checks that count were computed."""
    if least is None and len(verdicts) == 1 and verdicts[0].passed and verdicts[0].weight == 1.0:
        return "passed", min(1.0, verdicts[0].score or 0.0), ""  # the same, in a tenth of the time
    counted = [verdict for verdict in verdicts if verdict.passed is not None]
    score = _mean_by_weight((verdict.weight, verdict.score or 0.0) for verdict in counted)
    # A check of weight 0 is only shown (docs/decisions/0019).
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


# Compiling a check of a cases file.

COMPOSED = ("any", "all", "at-least")
"""Checks that hold a list of checks."""
_COMMON = ("name", "weight", "threshold", "at", "about")
"""Options of every check."""
_NOT = "not-"
_DEEPEST = 20
_MOST_PARTS = 1000
_NO_OPTIONS = CommonOptions()


def as_mapping(written: Any, expected: Any = msgspec.UNSET) -> dict[str, Any]:
    """A check as a mapping. A bare name that needs a value takes ``expected``. Raises BadCheck."""
    if isinstance(written, str):
        name = written.removeprefix(_NOT)
        kind = known_kinds().get(name)
        if kind is None:
            raise BadCheck(_unknown_check(written))
        if _takes_nothing(kind):
            return {written: True}
        if expected is msgspec.UNSET:
            raise BadCheck(f"{written} without a value compares with the case's `expected`, and the case has none")
        return {written: expected}
    if not isinstance(written, Mapping):
        raise BadCheck(f"{kind_of(written)} where a check is wanted, such as {{contains: hello}}")
    return dict(written)


def _takes_nothing(kind: Kind) -> bool:
    return bool(kind.value == bool | None)


class _CompiledChecks:
    """A bounded cache of compiled checks."""

    _BUDGET, _BYTES_EACH = 64 << 20, 1000
    _MOST_NUMBERS = 1024

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], CompiledCheck] = {}
        self._checks: dict[bytes, CompiledCheck] = {}
        self._left = self._BUDGET

    def __call__(self, written: Mapping[str, Any]) -> CompiledCheck:
        """The check from the cache or `compile_check`: templates give many cases the same, and each is validated before
        use. Raises BadCheck, also for data that is not plain JSON.
        """
        if len(written) == 1:
            ((name, value),) = written.items()
            if is_quick(name, value):
                # Numbers are few, and texts are many.
                if type(value) is str:
                    return _plain_checks()[name].compile(value)
                check = self._numbers.get((name, value))
                if check is None:
                    if len(self._numbers) >= self._MOST_NUMBERS:
                        self._numbers.clear()
                    check = self._numbers[name, value] = _plain_checks()[name].compile(value)
                return check
        key = _key(written)
        check = self._checks.get(key)
        if check is None:
            # From the sorted key: the order of keys shows in messages, and depends on how params arrived.
            check = compile_check(msgspec.json.decode(key))
            self._left -= len(key) + self._BYTES_EACH
            if self._left < 0:
                self.clear()
            self._checks[key] = check
        return check

    def clear(self) -> None:
        """Empty the cache."""
        self._numbers.clear()
        self._checks.clear()
        self._left = self._BUDGET


def is_quick(name: Any, value: Any) -> bool:
    """Whether a check of this key and value alone is valid, and quickly made."""
    plain = _plain_checks().get(name)
    if plain is None or type(value) is not plain.kind.quick:
        return False
    if isinstance(value, str):
        # A text with half a surrogate pair goes through the same JSON as everywhere.
        return value != "" and (value.isascii() or is_text(value))
    return bool(value >= 0)


class _PlainCheck(NamedTuple):
    """A check of one key, without options, under the ``name`` that it has in a file."""

    name: str
    kind: Kind
    negated: bool
    options: Any
    """The options of the kind, none given."""

    def compile(self, value: Any) -> CompiledCheck:
        """The check with a value that `is_quick`, as `compile_check` makes it."""
        name, kind, negated, options = self
        ready = kind.make(value, options)
        return CompiledCheck(name, _NO_OPTIONS, negated, ready.wanted, ready, 1.0)


@cached_until_named
def _plain_checks() -> Mapping[str, _PlainCheck]:
    """All checks by name, and the opposite of each."""
    kinds = known_kinds().items()
    return {
        **{name: _PlainCheck(name, kind, False, _convert({}, kind.options, "")) for name, kind in kinds},
        **{_NOT + name: _PlainCheck(_NOT + name, kind, True, _convert({}, kind.options, "")) for name, kind in kinds},
    }


compiled = _CompiledChecks()
on_naming(compiled.clear)


def _key(written: Mapping[str, Any]) -> bytes:
    """The check as JSON with sorted keys. Raises BadCheck."""
    try:
        key = msgspec.json.encode(written, order="sorted")
        # msgspec also writes NaN as null.
        return canonical_json(dict(written)) if b"null" in key else key
    except UnicodeEncodeError:  # half a surrogate pair
        return canonical_json(dict(written))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadCheck(f"not plain JSON data: {error}") from None


def compile_check(written: Mapping[str, Any], depth: int = 0) -> CompiledCheck:
    """Compile a check. Raises BadCheck with the path to the fault."""
    if depth > _DEEPEST:
        raise BadCheck(f"checks nest more than {_DEEPEST} deep")
    name = _name(written)
    negated = name.startswith(_NOT)
    plain = name.removeprefix(_NOT)
    if plain in COMPOSED:
        return _compile_composed(name, plain, negated, written, depth)
    kind = known_kinds()[plain]
    shared = _common_options(written)
    options_type: Any = kind.options
    known_options = _options_of(options_type)
    written_options = {key: value for key, value in written.items() if key != name and key not in _COMMON}
    for key in written_options:
        if key not in known_options:
            raise BadCheck(f"unknown key (known here: {', '.join(sorted({name, *known_options, *_COMMON}))})", key)
    if shared.about == "user":
        if depth:
            raise BadCheck("stands beside the outermost check: give it to the whole, not to a part", "about")
        if "of" in known_options and shared.at is None:
            # What a user says is judged by what it answers.
            written_options.setdefault("of", "conversation")
    value = _convert(written[name], kind.value, name)
    options = _convert(written_options, kind.options, "")
    try:
        ready = kind.make(value, options)
    except BadCheck as error:
        raise BadCheck(str(error), error.path or name) from None
    if ready.inner is not None:
        ready = _with_inner(*ready.inner, depth)
    if shared.at is not None and ready.question is not None and ready.question.against:
        raise BadCheck("needs a text to compare with: `prefer: true` compares whole answers", "at")
    if shared.at is not None and ready.question is not None and ready.question.of != "answer":
        raise BadCheck(f"it is about the whole {ready.question.of}: leave `at` out", "at")
    return CompiledCheck(name, shared, negated, ready.wanted, ready, _least(shared, kind, ready), fallible(written))


def _with_inner(written: Any, make: Callable[[Run, str], Made], depth: int) -> Made:
    """A check that applies another one. Raises BadCheck."""
    try:
        inner = compile_check(as_mapping(written), depth + 1)
    except BadCheck as error:
        raise BadCheck(str(error), f"check.{error.path}" if error.path else "check") from None
    if any(inner.judge_questions()):
        raise BadCheck("a judge cannot decide it here: `at: $record...` names the text for a judge", "check")
    return make(inner.finding, inner.wanted)._replace(reads_record=inner.reads_record)


def _least(shared: CommonOptions, kind: Kind, ready: Made) -> float:
    """The lowest score that passes. Raises BadCheck."""
    threshold = shared.threshold
    if threshold is None:
        return ready.least if ready.least is not None else 1.0 if kind.threshold is None else kind.threshold
    if kind.threshold is None:
        raise BadCheck(f"is only for checks that measure; {kind.name} holds or does not", "threshold")
    # The threshold of a judge's score is in the units of its scale.
    if ready.scaled is not None:
        return ready.scaled(threshold)
    if not 0.0 <= threshold <= 1.0:
        raise BadCheck("must be a number from 0 to 1", "threshold")
    return threshold


@cache
def _options_of(options: type[Any]) -> frozenset[str]:
    """The names of the options of one kind of check."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(options))


def _name(written: Mapping[str, Any]) -> str:
    """The one key that names a check. Raises BadCheck."""
    for key in written:
        if not isinstance(key, str):
            raise BadCheck(f"{key!r} cannot name a check or an option: keys must be texts")
    names = [key for key in written if key.removeprefix(_NOT) in known_kinds() or key.removeprefix(_NOT) in COMPOSED]
    # This works since no option has the name of a check.
    if len(names) == 1:
        return names[0]
    if names:
        raise BadCheck(f"{len(names)} checks in one mapping ({', '.join(names)}): write a list item for each")
    others = [key for key in written if key not in _COMMON]
    raise BadCheck(_unknown_check(others[0]) if others else "no check is named", others[0] if others else "")


def name_of_check(written: Mapping[str, Any]) -> str:
    """The name of a valid check, as `CompiledCheck` has it, without compiling it."""
    if len(written) == 1 and (name := next(iter(written))) in _plain_checks():
        return name
    return shorten(written.get("name") or _name(written))


def _unknown_check(name: str) -> str:
    near = _nearest(name.removeprefix(_NOT))
    hint = f"; did you mean {near}?" if near else f"; there are: {', '.join([*known_kinds(), *COMPOSED])}"
    return f"there is no check {shorten(name)!r}{hint}"


def _nearest(name: str) -> str:
    from rapidfuzz import process  # imported late: only a mistake needs it
    from rapidfuzz.distance import DamerauLevenshtein

    # Cut: the time grows with both lengths, and no check has a longer name.
    match = process.extractOne(
        name[:40], [*known_kinds(), *COMPOSED], scorer=DamerauLevenshtein.distance, score_cutoff=2
    )
    return str(match[0]) if match else ""


def _common_options(written: Mapping[str, Any]) -> CommonOptions:
    written_options = {key: written[key] for key in _COMMON if key in written}
    if not written_options:
        return _NO_OPTIONS
    shared: CommonOptions = _convert(written_options, CommonOptions, "")
    if not 0.0 <= shared.weight <= 1e9:
        raise BadCheck("must be a number from 0 to 1e9", "weight")
    if shared.at is not None:
        try:
            parse_at(shared.at)
        except ValueError as error:
            raise BadCheck(str(error), "at") from None
    return shared


_OF_RECORD = re.compile(r"\$record(?![^.\[])")


def parse_at(path: str) -> tuple[tuple[str | int, ...], bool]:
    """The steps of a check's `at`, and whether it begins at the record (`$record`), not at the answer's JSON (`$`).

    Raises ValueError.
    """
    of_record = _OF_RECORD.match(path)
    return parse_path("$" + path[of_record.end() :] if of_record else path), of_record is not None


def _compile_composed(name: str, kind: str, negated: bool, written: Mapping[str, Any], depth: int) -> CompiledCheck:
    known = {name, *_COMMON, *(("count",) if kind == "at-least" else ())} - {"threshold"}
    for key in written:
        if key not in known:
            raise BadCheck(f"unknown key (known here: {', '.join(sorted(known))})", key)
    parts_written = written[name]
    if not isinstance(parts_written, list) or not parts_written:
        raise BadCheck(f"{kind_of(parts_written)} where a list of at least one check is wanted", name)
    if len(parts_written) > _MOST_PARTS:
        raise BadCheck(f"{len(parts_written)} checks in one list; the limit is {_MOST_PARTS}", name)
    parts = []
    for index, part in enumerate(parts_written):
        try:
            parts.append(compile_check(as_mapping(part), depth + 1))
        except BadCheck as error:
            path = join(name, index)
            raise BadCheck(str(error), f"{path}.{error.path}" if error.path else path) from None
    # Only parts with a weight count: a higher count could never be reached.
    count, most = written.get("count", 1), sum(part.weight > 0 for part in parts) or len(parts)
    if type(count) is not int or not 1 <= count <= most:
        raise BadCheck(f"must be a whole number from 1 to {most}, the number of its checks that have a weight", "count")
    return ComposedCheck(name, _common_options(written), negated, kind, parts, count)


def _convert(value: Any, kind: Any, path: str) -> Any:
    """``value`` as ``kind``. Raises BadCheck with the path inside the check."""
    try:
        # Strict: a number in quotes is a text, and a mistake.
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        message, _, inner = str(error).partition(" - at `$")
        where = path + inner.rstrip("`")
        actual = value.get(inner.strip(".`")) if isinstance(value, dict) else value
        hint = boolean_meant(actual) if "bool" in message else ""
        reason = hint or f"{message[:1].lower()}{message[1:]}".replace("`", "")
        raise BadCheck(reason, where.lstrip(".")) from None


# Fallible checks, such as those of a judge.


def fallible(written: Mapping[str, Any]) -> bool:
    """Whether the verdict of a check may be wrong; of a composed check, whether that of any part may."""
    for name, value in written.items():
        plain = name.removeprefix(_NOT)
        if plain in COMPOSED:
            return any(fallible({part: True} if isinstance(part, str) else part) for part in value)
        kind = known_kinds().get(plain)
        if kind is not None:
            inner = written.get("check") if kind.applies_another else None
            return kind.fallible or (inner is not None and fallible(as_mapping(inner)))
    return False


def decides_fallibly(check: Mapping[str, Any]) -> bool:
    """Whether a check of a case is fallible and decides; a check of weight 0 is only shown."""
    if len(check) == 1 and (plain := _plain_checks().get(next(iter(check)))) is not None:
        return plain.kind.fallible
    return bool(check.get("weight", 1)) and fallible(check)


def fallible_and_deciding(case: AnyCase) -> tuple[bool, ...]:
    """For each check of the case whether it is fallible and decides; a check of weight 0 is only shown."""
    return tuple([decides_fallibly(check) for check in case.checks])


@lru_cache(maxsize=16)
def any_judged(params: ChecksParams) -> bool:
    """Whether any selected case depends on a fallible check."""
    if params.cases_file is not None:
        return params.cases_file.judged
    return any(any(fallible_and_deciding(case)) for case in params.selected())
