"""The suite of tests that every evaluator must pass; other packages run it in their own tests.

    from evalq.evalcore.conformance import check
    from mypackage.evaluator import evaluator

    def test_it_conforms() -> None:
        check(evaluator, sorted(Path("examples").iterdir()))

It needs no test runner. `evalq.evalcore.conformance.properties` has a function for each property. All randomness
comes from the seed: to repeat a violation, run the suite with the seed that it names.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args, get_origin

import msgspec

from evalq.evalcore.conformance.properties import PROPERTIES, Property
from evalq.evalcore.conformance.subject import SampleInput, Subject
from evalq.evalcore.contract.evaluator import Evaluator, Params
from evalq.evalcore.contract.params import merged, validate
from evalq.evalcore.contract.plugins import error_with_line
from evalq.evalcore.errors import ConfigError

__all__ = ["PROPERTIES", "ConformanceError", "Violation", "check", "conformance", "param_variants"]

SHOWN = 3
"""How many ways of breaking one property on one example are reported."""


class Violation(msgspec.Struct, frozen=True):
    """One broken ``property``: on which ``example``, with which ``params`` and ``seed``, and how."""

    property: str
    example: str
    params: Mapping[str, Any]
    seed: int
    detail: str

    def __str__(self) -> str:
        return f"{self.property} on {self.example} (params {dict(self.params)}, seed {self.seed}): {self.detail}"


class ConformanceError(AssertionError):
    """An evaluator does not keep the contract; ``violations`` says where."""

    def __init__(self, evaluator: str, violations: Sequence[Violation]) -> None:
        super().__init__("\n  ".join([f"{evaluator} breaks the evaluator contract:", *map(str, violations)]))
        self.violations = tuple(violations)


def conformance(
    evaluator: Evaluator[Any, Any],
    examples: Sequence[Path],
    *,
    params: Sequence[Mapping[str, Any]] = ({},),
    seed: int = 0,
    rounds: int = 6,
) -> list[Violation]:
    """Test every property of ``evaluator``, with each of ``params``, on each of the files ``examples``.

    Each property tries ``rounds`` random cuts, orders or sets of broken records. Raises ValueError if the examples
    have no record, InputError if one cannot be cut, ConfigError for wrong params.
    """
    inputs = [SampleInput.of(evaluator, path.name, path.read_bytes()) for path in examples]
    if not any(example.records for example in inputs):
        raise ValueError(f"cannot test {evaluator.name}: the examples have no record")
    violations = []
    for plain, example in itertools.product(params, inputs):
        subject = Subject(evaluator, validate(evaluator.Params, plain, "params"))
        for name, test in PROPERTIES.items():
            # One source for each property: draws for one must not change the trials of another.
            rng = Random(f"{seed} {name} {example.name}")  # noqa: S311 - repeatable, not secret
            details = itertools.islice(_violations(test, subject, example, rng, rounds), SHOWN)
            violations += [Violation(name, example.name, plain, seed, detail) for detail in details]
    return violations


def _violations(test: Property, subject: Subject, example: SampleInput, rng: Random, rounds: int) -> Iterator[str]:
    try:
        yield from test(subject, example, rng, rounds)
    except Exception as error:  # any exception of an evaluator is a finding; go on with the other properties
        yield error_with_line(error)


def check(
    evaluator: Evaluator[Any, Any],
    examples: Sequence[Path],
    *,
    params: Sequence[Mapping[str, Any]] = ({},),
    seed: int = 0,
    rounds: int = 6,
) -> None:
    """`conformance`, as an assertion. Raises ConformanceError that lists the violations."""
    violations = conformance(evaluator, examples, params=params, seed=seed, rounds=rounds)
    if violations:
        raise ConformanceError(evaluator.name, violations)


def param_variants(evaluator: Evaluator[Any, Any], base: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Plain params to try an evaluator with: ``base``, then with one change at a time.

    A change flips a switch or takes a named choice, of its options or anywhere in its Params. Changes that give the
    same params again, or invalid ones, are left out.
    """
    plain = dict(base or {})
    variants, seen = [plain], [validate(evaluator.Params, plain, "params")]
    for change in (*_option_changes(evaluator), *_field_changes(evaluator.Params)):
        changed = merged(plain, change)
        with contextlib.suppress(ConfigError):
            params = validate(evaluator.Params, changed, "params")
            if params not in seen:
                seen.append(params)
                variants.append(changed)
    return variants


def _option_changes(evaluator: Evaluator[Any, Any]) -> Iterator[dict[str, Any]]:
    for option in evaluator.command.options:
        for choice in (True,) if option.kind == "bool" else option.choices:
            nested: Any = choice
            for key in reversed(option.param.split(".")):
                nested = {key: nested}
            if option.param:
                yield nested


def _field_changes(model: type[Params]) -> Iterator[dict[str, Any]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Params):
            yield from ({name: inner} for inner in _field_changes(kind))
        elif kind is bool:
            yield {name: not field.default}
        elif get_origin(kind) is Literal:
            yield from ({name: choice} for choice in get_args(kind))
