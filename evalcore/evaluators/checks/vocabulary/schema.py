"""A check of the JSON in an answer by a JSON Schema, in linear time and without any network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, Uncomputable, Unfit
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


T = TypeVar("T")


def _with_whole_stack(function: Callable[[], T]) -> T:
    """Call ``function``, a second time with a whole stack if the first call used up the rest of this one.

    Workers and commands leave different amounts of stack, and a verdict must not depend on that.
    """
    try:
        return function()
    except RecursionError:
        pass
    with ThreadPoolExecutor(1) as executor:  # a new thread has a whole stack
        return executor.submit(function).result()


_DEEPEST = 40
"""How deep an answer may nest: the library's limit is the interpreter's stack, which differs between processes."""
_DATA = frozenset(("enum", "const", "default", "examples"))
"""Keywords whose values are not schemas."""
_HOLDERS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"))
"""Keywords that hold schemas by the user's names."""
_MOST_STEPS = 200_000
"""Schemas applied to one answer: a few references, each used twice, double them without end."""
_MOST_MEMBERS = 10_000
"""Members of one object or list if a schema uses unevaluated ones: the library searches a list of the others for each.
"""


class _TooManySteps(Exception):
    """An answer takes too many steps."""


class _Steps:
    """The steps left for an answer, and whether the schema uses ``unevaluated`` members."""

    def __init__(self, *, unevaluated: bool) -> None:
        self.left = _MOST_STEPS
        self.unevaluated = unevaluated

    def take(self) -> None:
        """Count one step. Raises _TooManySteps."""
        self.left -= 1
        if self.left < 0:
            raise _TooManySteps


def _schema(value: dict[str, Any] | bool, options: NoOptions) -> Made:
    check = conforms(value)

    def run(answer: CheckedAnswer) -> Finding:
        try:
            instance = answer.json
        except NoJson as error:
            raise Unfit(str(error)) from None
        return check(instance)

    return Made(canonical_json(value).decode(), run)


def conforms(schema: dict[str, Any] | bool) -> Callable[[Any], Finding]:
    """Whether a value is valid by ``schema``, as a function that raises Unfit for one that is too deep or too large.

    Raises BadCheck for what is no schema.
    """
    validator, steps = _validator(schema)

    def check(instance: Any) -> Finding:
        if _is_deeper(instance, _DEEPEST):
            raise Unfit(f"nested deeper than {_DEEPEST} levels")
        if steps.unevaluated and _is_larger(instance, _MOST_MEMBERS):
            raise Unfit(f"more than {_MOST_MEMBERS} members in one object or list, too many for unevaluated ones")
        return _validate(validator, steps, instance)

    return check


def _validate(validator: Validator, steps: _Steps, instance: Any) -> Finding:
    def first() -> Any:
        steps.left = _MOST_STEPS
        return next(iter(validator.iter_errors(instance)), None)

    try:
        error = _with_whole_stack(first)
    except RecursionError:
        raise Uncomputable("the schema refers to itself without end") from None
    except _TooManySteps:
        raise Uncomputable(f"the schema takes more than {_MOST_STEPS} steps for this answer") from None
    except Exception as fault:  # an error in the library, as for numbers beyond floats, must not end a run
        raise Uncomputable(f"the schema cannot be applied: {type(fault).__name__}: {str(fault)[:100]}") from None
    if error is None:
        return holds(True, "valid")
    return holds(False, f"{error.json_path}: {error.message}")


def _validator(schema: dict[str, Any] | bool) -> tuple[Validator, _Steps]:
    """Raises BadCheck if it is not a schema, refers to another document, or has a pattern that RE2 cannot compile."""
    # Imported late: it takes a tenth of a second, and most cases files do not need it.
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    if isinstance(schema, dict) and not isinstance(schema.get("$schema", ""), str):
        raise BadCheck("not a JSON Schema: $schema: must be a text")
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        # RE2 checks the patterns below.
        _with_whole_stack(lambda: kind.check_schema(schema, format_checker=FormatChecker(())))
    except SchemaError as error:
        raise BadCheck(f"not a JSON Schema: {error.json_path}: {error.message[:200]}") from None
    except RecursionError:
        raise BadCheck("not a JSON Schema: nested too deeply") from None
    parts: dict[int, dict[str, Any]] = {}
    references = list(_require_local(schema, parts))
    checked: Any = extend(
        kind,
        {
            "pattern": _check_pattern,
            "patternProperties": _check_pattern_properties,
            "additionalProperties": _check_additional,
            "uniqueItems": _check_unique,
            # Under the name in its draft.
            **{name: _check_multiple for name in ("multipleOf", "divisibleBy") if name in kind.VALIDATORS},
        },
    )
    uses_unevaluated = any(key.startswith("unevaluated") for part in parts.values() for key in part)
    steps, evolve = _Steps(unevaluated=uses_unevaluated), checked.evolve

    def evolved(self: Any, **changes: Any) -> Any:
        part = changes.get("schema")
        if isinstance(part, dict):
            steps.take()
            if id(part) not in parts:
                raise BadCheck("a reference does not lead to a schema")
            # Another $schema would bring back the library's validators, with patterns of unlimited time.
            changes["schema"] = parts[id(part)]
        return evolve(self, **changes)

    checked.evolve = evolved
    # An empty registry, so that the library fetches nothing from elsewhere.
    result: Validator = checked(schema, registry=Registry())
    _require_sound(schema, references, parts, result)
    return result, steps


def _require_sound(
    schema: dict[str, Any] | bool, references: Iterable[str], parts: Mapping[int, Any], validator: Validator
) -> None:
    """Raise BadCheck if a reference does not lead to a schema, or references never end."""
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resolver = Registry().resolver_with_root(Resource.from_contents(schema, default_specification=DRAFT202012))
    try:
        for reference in references:
            try:
                target = resolver.lookup(reference).contents
            except Unresolvable:
                raise BadCheck(f"the reference {reference!r} leads nowhere") from None
            if not isinstance(target, bool) and id(target) not in parts:
                raise BadCheck(f"the reference {reference!r} does not lead to a schema")
        _with_whole_stack(lambda: next(iter(validator.iter_errors(None)), None))
    except Unresolvable:
        raise BadCheck("a $dynamicRef or $recursiveRef leads nowhere") from None
    except RecursionError:
        raise BadCheck("it refers to itself without end") from None
    except _TooManySteps:
        raise BadCheck(f"it takes more than {_MOST_STEPS} steps: its references multiply") from None


def _require_local(schema: Any, parts: dict[int, dict[str, Any]]) -> Iterator[str]:
    """All references. Raises BadCheck for one to another document, and for a pattern that RE2 cannot compile.

    Adds each schema inside, without its $schema, to ``parts`` by identity.
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
        # The library would match the names with Python's patterns.
        if len(seen) > 1:
            raise BadCheck("unevaluatedProperties with patternProperties is not supported: name the properties")
        for key, value in part.items():
            if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
                if not value.startswith("#"):
                    raise BadCheck(f"the reference {value!r}: only those within the schema (#...) are followed")
                if key == "$ref":
                    yield value
            elif key == "pattern" and isinstance(value, str):
                _compile(value)
            elif key == "patternProperties" and isinstance(value, dict):
                for pattern in value:
                    _compile(pattern)
            if key in _HOLDERS and isinstance(value, dict):
                waiting += value.values()
            elif key not in _DATA:
                waiting.append(value)


def _compile(pattern: str) -> Any:
    try:
        return compile_pattern(pattern)
    except BadCheck as error:
        raise BadCheck(f"the pattern {pattern!r}: {error}") from None


def _matches(pattern: str, text: str) -> bool:
    return _compile(pattern).search(text.encode("utf-8", "surrogatepass")) is not None


def _check_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError(f"{instance[:200]!r} does not match {pattern!r}")


def _check_pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    for pattern, inner in patterns.items():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _check_additional(validator: Any, wanted: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
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


def _check_unique(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not wanted or not isinstance(instance, list):
        return
    # By canonical form, since comparing each with each takes quadratic time. 1 and 1.0 are one number.
    seen = {canonical_json(_with_whole_numbers(item)) for item in instance}
    if len(seen) < len(instance):
        yield ValidationError("the items are not unique")


def _check_multiple(validator: Any, of: float, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    # As written: in floats, .07 is not a multiple of .01. Fractions take any exponent.
    numeric = isinstance(instance, int | float) and not isinstance(instance, bool)
    if numeric and Fraction(exact(instance)) % Fraction(exact(of)):
        yield ValidationError(f"{instance!r} is not a multiple of {of!r}")


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_whole_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_whole_numbers(inner) for key, inner in value.items()}
    return value


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        holders = (each.values() if isinstance(each, dict) else each for each in level)
        level = [inner for holder in holders for inner in holder if isinstance(inner, dict | list)]
    return bool(level)


def _is_larger(value: Any, limit: int) -> bool:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            if len(each) > limit:
                return True
            waiting += each.values() if isinstance(each, dict) else each
    return False


KINDS = (
    Kind(
        name="json-schema",
        summary="The JSON in the answer is valid by this JSON Schema. Patterns are RE2's; `format` is not checked.",
        value=dict[str, Any] | bool,
        make=_schema,
        example={"json-schema": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
    ),
)
