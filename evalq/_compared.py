"""Comparisons and decisions as a notebook sees them: verdicts, intervals, DataFrames, and pages to show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from evalq.evalcore.compare import comparison, decision
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.views.markdown import visible

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "Comparisons", "Decision", "Sides"]

_CASES = {
    "case": "string",
    "base": "float64",
    "cand": "float64",
    "change": "float64",
    "base_answers": "int64",
    "cand_answers": "int64",
}
_ESTIMATE = ("cases", "base", "cand", "delta", "low", "high", "p_worse", "p_better", "detectable")


class Sides(NamedTuple):
    """The two runs of a comparison."""

    base: RunCases
    cand: RunCases


class Comparison(comparison.Comparison, frozen=True, eq=False, kw_only=True):
    """Two runs by one measure: what changed, how sure that is, and which cases did it.

        found = evalq.compare("main", run)["pass_rate"]
        found.verdict                          # "worse"
        found.observed.delta, found.observed.low, found.observed.high
        found.flips().head()

    ``verdict`` is "same" (the change is within ``margin``), "worse", "better" or "inconclusive". ``observed`` is an
    `Estimate` (None where no case has an answer in both runs), ``worst`` the same with every missing answer held
    against the candidate. ``measure`` says its name, its scale and which end is better; ``margin`` and all changes are
    in its unit (shares are 0 to 1), and a change is positive where it is for the better. ``missing`` is how many
    answers the candidate lacks that the base has; ``alone`` and ``new`` are cases of one side only (the first 50, all
    of them counted in ``alone_count`` and ``new_count``); ``lost`` and ``won`` count the cases that changed. ``named``
    are the cases that got worse by more than chance, ``collapsed`` those that newly collapsed. ``repeats`` is by how
    much to multiply the repeats for a verdict, were the change as it looks; None where no number is known. ``stopped``
    is how many cases of either run were asked no more once they were decided.
    """

    sides: Sides

    @property
    def evaluator(self) -> str:
        """Whose runs they are."""
        return self.sides.cand.evaluator

    @property
    def runs(self) -> tuple[str, str]:
        """The ids of the base and of the candidate; a run that was never written is called by its report's digest."""
        return self.sides.base.run, self.sides.cand.run

    def cases(self) -> pd.DataFrame:
        """A row for each case that both answered, by id.

        Columns: ``case`` (``string``); ``base`` and ``cand``, the means of its answers in the measure's unit, and
        ``change``, positive where it is for the better (``float64``); ``base_answers`` and ``cand_answers``, how many
        (``int64``).
        """
        import pandas as pd

        pairs = pairs_of(self.sides.base.cases, self.sides.cand.cases, self.measure)
        base, cand = pairs.base.mean, pairs.cand.mean
        change = cand - base if self.measure.better == "higher" else base - cand
        columns = (pairs.ids, base, cand, change, pairs.base.answers, pairs.cand.answers)
        return pd.DataFrame(
            {name: pd.Series(values, dtype=_CASES[name]) for name, values in zip(_CASES, columns, strict=True)}
        )

    def flips(self) -> pd.DataFrame:
        """The rows of `cases` whose mean changed, the largest losses first. With one answer a case: its flips."""
        frame = self.cases()
        changed = frame[frame["change"] != 0]
        return changed.sort_values(["change", "case"], kind="stable", ignore_index=True)

    def __repr__(self) -> str:
        base, cand = self.runs
        seen = self.observed
        change = f" by {seen.delta:+.4g} [{seen.low:+.4g}, {seen.high:+.4g}]" if seen else ""
        return (
            f"<evalq comparison, {self.evaluator}.{self.measure.name}: {cand} against {base}: {self.verdict}{change}>"
        )


class Comparisons(Sequence[Comparison]):
    """What `evalq.compare` returns: a `Comparison` for each measure.

    A sequence, in which a comparison is also found by its measure's name: ``found["pass_rate"]``, or
    ``found["vs.pass_rate"]`` where several evaluators are compared. A notebook that ends with it shows it as a page;
    ``print(found)`` is its Markdown.
    """

    def __init__(self, found: Iterable[Comparison]) -> None:
        """Comparisons come from evalq.compare: nothing else makes them."""
        self._found = tuple(found)

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, key: int | str) -> Comparison: ...

    @overload
    def __getitem__(self, key: slice) -> Comparisons: ...

    def __getitem__(self, key: int | str | slice) -> Comparison | Comparisons:
        if isinstance(key, slice):
            return Comparisons(self._found[key])
        if isinstance(key, int):
            return self._found[key]
        named = [each for each in self._found if key in (each.measure.name, f"{each.evaluator}.{each.measure.name}")]
        if len(named) != 1:
            names = ", ".join(f"{each.evaluator}.{each.measure.name}" for each in self._found)
            raise KeyError(f"{key!r} is {'the name of several' if named else 'none'} of: {names}")
        return named[0]

    def summary(self) -> pd.DataFrame:
        """A row for each measure.

        Columns: ``evaluator``, ``measure``, ``base_run``, ``cand_run``, ``verdict`` (``string``); of the `Estimate`
        ``cases`` (``Int64``), ``base``, ``cand``, ``delta``, ``low``, ``high``, ``p_worse``, ``p_better`` and
        ``detectable`` (``float64``), <NA> and NaN where there is none; ``margin`` (``float64``); ``missing``, ``lost``
        and ``won`` (``int64``).
        """
        import pandas as pd

        rows = [_row(each) for each in self._found]
        return pd.DataFrame(
            {
                name: pd.Series([row[name] for row in rows], dtype=_dtype(name))
                for name in ("evaluator", "measure", "base_run", "cand_run", "verdict", *_ESTIMATE, *_AFTER)
            }
        )

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self._found))}]"

    def __str__(self) -> str:
        from evalq.producer.comparing.comparing import comparison_text

        return "\n".join(comparison_text(sides.base, sides.cand, found) for sides, found in self._by_runs())

    def _repr_markdown_(self) -> str:
        """For notebooks, and for forges that show them."""
        return str(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from evalq.producer.comparing.html import comparison_html

        return "".join(comparison_html(sides.base, sides.cand, found) for sides, found in self._by_runs())

    def _by_runs(self) -> Iterator[tuple[Sides, list[Comparison]]]:
        """The comparisons of each two runs; they stand together."""
        at = 0
        while at < len(self._found):
            sides = self._found[at].sides
            found = [each for each in self._found[at:] if each.sides is sides]
            yield sides, found
            at += len(found)


class Decision(decision.Decision, frozen=True):
    """What `evalq.gate` returns. It is true for GO alone, so that ``assert evalq.gate(...)`` passes for nothing else.

        decided = evalq.gate(run, "policy.yaml", baseline="main")
        decided.decided                        # "GO", "NO-GO", "SUSPECT" or "INCONCLUSIVE"
        sys.exit(decided.exit_code)            # 0, 1 or 4

    ``checks`` is a `Check` for each demand, ``notes`` what else to know, ``candidates`` are the ids of the runs,
    ``baseline`` what they were compared with, and ``quarantined`` the cases that the policy has in quarantine.
    ``print(decided)`` gives its Markdown; a notebook shows it as a page.
    """

    def summary(self) -> pd.DataFrame:
        """A row for each check.

        Columns: ``metric``, ``demand``, ``tier``, ``decided``, ``reason`` (``string``); ``value`` (``object``);
        ``low``, ``high``, ``p_margin``, ``p_worse`` (``float64``, NaN where a number comes without an interval);
        ``evidence``, the answers that it rests on (``int64``).
        """
        import pandas as pd

        return pd.DataFrame(
            {
                name: pd.Series([getattr(check, name) for check in self.checks], dtype=dtype)
                for name, dtype in _CHECKS.items()
            }
        )

    def __bool__(self) -> bool:
        return self.decided == "GO"

    def __repr__(self) -> str:
        why = [f"{check.metric}, {check.demand}: {check.reason}" for check in self.checks if check.decided != "GO"]
        return visible(f"<evalq gate: {'; '.join([self.decided, *why])}>")

    def __str__(self) -> str:
        from evalq.producer.comparing.comparing import decision_text

        return decision_text(self)

    def _repr_markdown_(self) -> str:
        """For notebooks, and for forges that show them."""
        return str(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from evalq.producer.comparing.html import decision_html

        return decision_html(self)


_AFTER = ("margin", "missing", "lost", "won")
_CHECKS = {
    **dict.fromkeys(("metric", "demand", "tier", "decided", "reason"), "string"),
    "value": "object",
    **dict.fromkeys(("low", "high", "p_margin", "p_worse"), "float64"),
    "evidence": "int64",
}


def _dtype(name: str) -> str:
    if name in ("missing", "lost", "won"):
        return "int64"
    if name == "cases":
        return "Int64"
    return "float64" if name in (*_ESTIMATE, "margin") else "string"


def _row(found: Comparison) -> dict[str, Any]:
    base, cand = found.runs
    seen = {name: getattr(found.observed, name, None) for name in _ESTIMATE}
    own = {"evaluator": found.evaluator, "measure": found.measure.name, "base_run": base, "cand_run": cand}
    return own | {"verdict": found.verdict} | seen | {name: getattr(found, name) for name in _AFTER}
