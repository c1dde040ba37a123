"""promptfoo's assertions as checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evalq.producer.importing.accepting import accepted
from evalq.producer.importing.imported import Imported, Kind
from evalq.producer.importing.patterns import NoCounterpart
from evalq.producer.importing.promptfoo.counterparts import COUNTERPARTS, REASONS, Check, Differs, Setting, value_of
from evalq.producer.importing.promptfoo.javascript import AlwaysPasses, transformed
from evalq.producer.importing.promptfoo.judges import GRADERS, JUDGED
from evalq.producer.importing.promptfoo.texts import NoText, rendered

__all__ = ["OTHER_GRADER", "checks_of"]

OTHER_GRADER = "--judge names who judges, or `judge` beside a check; `prompt` there holds words of your own"
"""Why a grader or its prompt, beside an assertion or in options, is not taken over."""
_KNOWN = {"type", "value", "threshold", "weight", "metric", "assert", "config"}


class _Reader:
    def __init__(self, imported: Imported, setting: Setting, where: Callable[[Sequence[str | int]], str]) -> None:
        self._imported, self._setting, self._where = imported, setting, where
        self.lost = False

    def check(self, assertion: Any, keys: Sequence[str | int]) -> Check | None:
        """The check of an assertion; None, and noted, where it has none."""
        where = self._where(keys)
        if not isinstance(assertion, Mapping) or not isinstance(assertion.get("type"), str):
            return self._no(where, "an assertion without a type", "none", "promptfoo does not take it, either")
        name = assertion["type"]
        check = self._set(assertion, keys) if name == "assert-set" else self._single(assertion, name, where)
        return None if check is None else self._shared(check, assertion, where, name)

    def _single(self, assertion: Mapping[str, Any], name: str, where: str) -> Check | None:
        base = name.removeprefix("not-")
        if base not in COUNTERPARTS and base not in JUDGED:
            kind, why = REASONS.get(base, ("none", "promptfoo 0.123 does not know it, either"))
            return self._no(where, name, kind, why)
        try:
            made = self._made(assertion, base)
            check, why = made if isinstance(made, Differs) else (made, "")
            accepted(check)
            check = _negated(check) if base != name else check
            check = self._transformed(check, assertion.get("transform"))
            accepted(check)
        except (NoCounterpart, NoText) as error:
            return self._no(where, name, "none", str(error))
        except AlwaysPasses as error:
            # Nothing that could fail is lost.
            self._imported.note("differs", where, name, str(error))
            return None
        if why:
            self._imported.note("differs", where, name, why)
        return check

    def _made(self, assertion: Mapping[str, Any], base: str) -> Check | Differs:
        """The check that an assertion is before it is negated. Raises NoCounterpart and NoText."""
        value = value_of(assertion, self._setting)
        if base in COUNTERPARTS:
            return COUNTERPARTS[base](assertion, value)
        return Differs(*JUDGED[base](assertion, value, self._setting.variables))

    def _transformed(self, check: Check, own: Any) -> Check:
        """The check of what the assertion's own transform, or that of its test, makes of an answer."""
        if own and self._setting.transform:
            raise NoCounterpart("its test and itself transform the answer, one after the other")
        return transformed(check, own or self._setting.transform)

    def _set(self, assertion: Mapping[str, Any], keys: Sequence[str | int]) -> Check | None:
        """A set of assertions: all of them, or so many that their mean reaches the threshold."""
        where = self._where(keys)
        listed = assertion.get("assert")
        listed = listed if isinstance(listed, list) else []
        parts = [self.check(part, [*keys, "assert", index]) for index, part in enumerate(listed)]
        found = [part for part in parts if part is not None]
        least = assertion.get("threshold")
        if not found:
            return self._no(where, "assert-set", "none", "no assertion in it has a counterpart")
        if least is None:
            return {"all": found}
        if len(found) < len(parts):
            return self._no(where, "assert-set", "none", "its threshold is over assertions without a counterpart, too")
        if isinstance(least, bool) or not isinstance(least, int | float) or not -1e9 < least < 1e9:
            return self._no(where, "assert-set", "none", "its threshold is no number")
        if any(part.get("weight", 1) != 1 for part in found):
            return self._no(where, "assert-set", "none", "its threshold is over assertions of different weights")
        count = math.ceil(least * len(found) - 1e-9)
        if not 0 < count <= len(found):
            return self._no(where, "assert-set", "none", f"with threshold {least:g} it always decides the same")
        self._imported.note("differs", where, "assert-set", "its score is the share of the threshold that was reached")
        return {"at-least": found, "count": count}

    def _shared(self, check: Check, assertion: Mapping[str, Any], where: str, name: str) -> Check | None:
        """The check with its weight and its name; further keys are noted."""
        weight, metric = assertion.get("weight", 1), assertion.get("metric")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1e9:
            return self._no(where, name, "none", "its weight is no number from 0")
        if weight != 1:
            check = {**check, "weight": weight}
        if metric is not None:
            try:
                check = {**check, "name": rendered(str(metric), self._setting.variables)}
            except NoText as error:
                self._imported.note("none", where, f"{name}: metric", str(error))
        for key in sorted(set(assertion) - _KNOWN - {"transform"}):
            if key in GRADERS and name.removeprefix("not-") in JUDGED:
                self._imported.note("differs", where, f"{name}: {key}", OTHER_GRADER)
            else:
                self._imported.note("none", where, f"{name}: {key}", "evalq's check has no such option")
        return check

    def _no(self, where: str, what: str, kind: Kind, why: str) -> Check | None:
        self.lost = True
        self._imported.note(kind, where, what, why)
        return None


def _negated(check: Check) -> Check:
    """The check with `not-` before its name, or without it."""
    name = next(iter(check))
    other = name.removeprefix("not-") if name.startswith("not-") else f"not-{name}"
    return {other: check[name], **{key: value for key, value in check.items() if key != name}}


def checks_of(
    assertions: Sequence[tuple[Any, Sequence[str | int], Callable[[Sequence[str | int]], str]]],
    setting: Setting,
    imported: Imported,
) -> tuple[list[Check], list[Any], bool]:
    """The checks of (assertion, its keys, what makes a place of keys), their assertions, and whether any is lost."""
    checks: list[Check] = []
    kept: list[Any] = []
    lost = False
    for assertion, keys, where in assertions:
        reader = _Reader(imported, setting, where)
        check = reader.check(assertion, keys)
        lost = lost or reader.lost
        if check is not None:
            checks.append(check)
            kept.append(assertion)
    return checks, kept, lost
