"""A check of the JSON in an answer by a JSON Schema, in linear time and without any network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from evalq.evalcore.evaluators.checks.answer import Answer, Uncomputable, Unfit
from evalq.evalcore.evaluators.checks.vocabulary.declaring import (
    BadCheck,
    Finding,
    Kind,
    Made,
    NoOptions,
    compile_pattern,
    exact,
    holds,
)
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.records.json_values import NoJson

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


# What goes by the interpreter's stack, of which processes have left a part that differs.

T = TypeVar("T")


def _from_anywhere(deed: Callable[[], T]) -> T:
    """What ``deed`` returns or raises, whatever its callers have left of the stack; it may be done a second time.

    A worker's callers take more of it than a command's, and an answer must not count by where it is judged.
    """
    try:
        return deed()
    except RecursionError:
        pass
    with ThreadPoolExecutor(1) as own:  # a thread begins with the whole stack
        return own.submit(deed).result()


_DEEPEST = 40
"""How deep an answer may nest: the library goes by the interpreter's stack, which differs between processes."""
_DATA = frozenset(("enum", "const", "default", "examples"))
"""Keywords whose values are no schemas."""
_HOLDERS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"))
"""Keywords that hold schemas by names of the user's own."""
_MOST_STEPS = 200_000
"""Schemas that one answer is held against: a few references, each to the next one twice, double them without end."""
_MOST_MEMBERS = 10_000
"""Members of one object or list where a schema asks for those that are unevaluated: the library looks each of them up
in a list of the others.
"""


class _TooMuch(Exception):
    """An answer takes more steps than are allowed."""


class _Steps:
    """How many steps are left for an answer, and whether the schema asks for members that are ``unevaluated``."""

    def __init__(self, *, unevaluated: bool) -> None:
        self.left = _MOST_STEPS
        self.unevaluated = unevaluated

    def take(self) -> None:
        """One step. Raises _TooMuch."""
        self.left -= 1
        if self.left < 0:
            raise _TooMuch


def _schema(value: dict[str, Any] | bool, options: NoOptions) -> Made:
    validator, steps = _validator(value)

    def run(answer: Answer) -> Finding:
        try:
            given = answer.json
        except NoJson as error:
            raise Unfit(str(error)) from None
        if _deeper(given, _DEEPEST):
            raise Unfit(f"nested deeper than {_DEEPEST} levels")
        if steps.unevaluated and _larger(given, _MOST_MEMBERS):
            raise Unfit(f"more than {_MOST_MEMBERS} members in one object or list, too many for unevaluated ones")
        return _judged(validator, steps, given)

    return Made(canonical_json(value).decode(), run)


def _judged(validator: Validator, steps: _Steps, given: Any) -> Finding:
    def first() -> Any:
        steps.left = _MOST_STEPS
        return next(iter(validator.iter_errors(given)), None)

    try:
        error = _from_anywhere(first)
    except RecursionError:
        raise Uncomputable("the schema refers to itself without end") from None
    except _TooMuch:
        raise Uncomputable(f"the schema takes more than {_MOST_STEPS} steps for this answer") from None
    except Exception as fault:  # whatever the library trips over, such as numbers past its floats, ends no run
        raise Uncomputable(f"the schema cannot be applied: {type(fault).__name__}: {str(fault)[:100]}") from None
    if error is None:
        return holds(True, "valid")
    return holds(False, f"{error.json_path}: {error.message}")


def _validator(schema: dict[str, Any] | bool) -> tuple[Validator, _Steps]:
    """Raises BadCheck for what is no schema, refers to another document, or has a pattern that RE2 does not know."""
    # A tenth of a second to import, and most cases files need none of it.
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    if isinstance(schema, dict) and not isinstance(schema.get("$schema", ""), str):
        raise BadCheck("no JSON Schema: $schema: must be a text")
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        # Patterns are held to RE2 below.
        _from_anywhere(lambda: kind.check_schema(schema, format_checker=FormatChecker(())))
    except SchemaError as error:
        raise BadCheck(f"no JSON Schema: {error.json_path}: {error.message[:200]}") from None
    except RecursionError:
        raise BadCheck("no JSON Schema: nested too deeply") from None
    parts: dict[int, dict[str, Any]] = {}
    references = list(_require_local(schema, parts))
    checked: Any = extend(
        kind,
        {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional,
            "uniqueItems": _unique,
            # Under the name that its draft has.
            **{name: _multiple for name in ("multipleOf", "divisibleBy") if name in kind.VALIDATORS},
        },
    )
    unevaluated = any(key.startswith("unevaluated") for part in parts.values() for key in part)
    steps, evolve = _Steps(unevaluated=unevaluated), checked.evolve

    def evolved(self: Any, **changes: Any) -> Any:
        given = changes.get("schema")
        if isinstance(given, dict):
            steps.take()
            if id(given) not in parts:
                raise BadCheck("a reference leads to what is no schema")
            # Another $schema would bring the library's own validators back, and with them patterns of any time.
            changes["schema"] = parts[id(given)]
        return evolve(self, **changes)

    checked.evolve = evolved
    # A registry of nothing: what is not in the schema itself is not to be found, and nobody is asked for it.
    made: Validator = checked(schema, registry=Registry())
    _require_sound(schema, references, parts, made)
    return made, steps


def _require_sound(
    schema: dict[str, Any] | bool, references: Iterable[str], parts: Mapping[int, Any], made: Validator
) -> None:
    """Raise BadCheck where a reference leads to no schema, or following them all does not end."""
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resolver = Registry().resolver_with_root(Resource.from_contents(schema, default_specification=DRAFT202012))
    try:
        for reference in references:
            try:
                found = resolver.lookup(reference).contents
            except Unresolvable:
                raise BadCheck(f"the reference {reference!r} leads nowhere") from None
            if not isinstance(found, bool) and id(found) not in parts:
                raise BadCheck(f"the reference {reference!r} leads to what is no schema")
        _from_anywhere(lambda: next(iter(made.iter_errors(None)), None))
    except Unresolvable:
        raise BadCheck("a $dynamicRef or $recursiveRef leads nowhere") from None
    except RecursionError:
        raise BadCheck("it refers to itself without end") from None
    except _TooMuch:
        raise BadCheck(f"it takes more than {_MOST_STEPS} steps: its references multiply") from None


def _require_local(schema: Any, parts: dict[int, dict[str, Any]]) -> Iterator[str]:
    """All references, which have to be to the schema itself; and all patterns have to be RE2's.

    ``parts`` is filled with the schemas in it by their identity, each without its $schema.
    """
    waiting, seen = [schema], set[str]()
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        if not isinstance(part, dict):
            continue
        plain = {key: value for key, value in part.items() if key != "$schema"} if "$schema" in part else part
        parts[id(part)] = parts[id(plain)] = plain
        seen |= part.keys() & {"unevaluatedProperties", "patternProperties"}
        # The library looks for names that were evaluated with patterns of its own.
        if len(seen) > 1:
            raise BadCheck("unevaluatedProperties beside patternProperties is not supported: name the properties")
        for key, value in part.items():
            if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
                if not value.startswith("#"):
                    raise BadCheck(f"the reference {value!r}: only those within the schema (#...) are followed")
                if key == "$ref":
                    yield value
            elif key == "pattern" and isinstance(value, str):
                _compiled(value)
            elif key == "patternProperties" and isinstance(value, dict):
                for pattern in value:
                    _compiled(pattern)
            if key in _HOLDERS and isinstance(value, dict):
                waiting += value.values()
            elif key not in _DATA:
                waiting.append(value)


def _compiled(pattern: str) -> Any:
    try:
        return compile_pattern(pattern)
    except BadCheck as error:
        raise BadCheck(f"the pattern {pattern!r}: {error}") from None


def _matches(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text.encode("utf-8", "surrogatepass")) is not None


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError(f"{instance[:200]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    for pattern, inner in patterns.items():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional(validator: Any, wanted: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not isinstance(instance, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [name for name in instance if name not in known and not any(_matches(each, name) for each in patterns)]
    if isinstance(wanted, dict):
        for name in extra:
            yield from validator.descend(instance[name], wanted, path=name)
    elif wanted is False and extra:
        yield ValidationError(f"additional properties: {', '.join(map(repr, extra[:5]))}")


def _unique(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not wanted or not isinstance(instance, list):
        return
    # By their canonical form: comparing each with each takes the square of their number. 1 and 1.0 are one number.
    seen = {canonical_json(_numbers(item)) for item in instance}
    if len(seen) < len(instance):
        yield ValidationError("the items are not unique")


def _multiple(validator: Any, of: float, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    # As they are written: in floats .07 is no multiple of .01. By fractions, which no exponent is too large for.
    numeric = isinstance(instance, int | float) and not isinstance(instance, bool)
    if numeric and Fraction(exact(instance)) % Fraction(exact(of)):
        yield ValidationError(f"{instance!r} is not a multiple of {of!r}")


def _numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    return value


def _deeper(value: Any, limit: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        holders = (held.values() if isinstance(held, dict) else held for held in level)
        level = [inner for holder in holders for inner in holder if isinstance(inner, dict | list)]
    return bool(level)


def _larger(value: Any, limit: int) -> bool:
    waiting = [value]
    while waiting:
        held = waiting.pop()
        if isinstance(held, dict | list):
            if len(held) > limit:
                return True
            waiting += held.values() if isinstance(held, dict) else held
    return False


KINDS = (
    Kind(
        name="json-schema",
        summary="The JSON in the answer is valid by this JSON Schema. Patterns are RE2's, `format` is not asserted.",
        value=dict[str, Any] | bool,
        make=_schema,
        example={"json-schema": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
    ),
)
