"""Comparing runs and gating them from Python: what a notebook sees, and how it is made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from evalq._run import Run, require_pandas, unwritten_cases
from evalq.evalcore.compare import comparison, decision
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.errors import UsageError
from evalq.evalcore.views.markdown import visible
from evalq.producer.comparing.comparing import MARGIN

if TYPE_CHECKING:
    import msgspec
    import pandas as pd

    from evalq.evalcore.compare.policy import Policy
    from evalq.producer.servers import Servers


__all__ = ["Comparison", "Comparisons", "Decision", "compare", "gate"]

# Comparisons and decisions as a notebook sees them: verdicts, intervals, DataFrames, and pages to show.

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


class Comparison(comparison.MeasureComparison, frozen=True, eq=False, kw_only=True):
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
    much to multiply the repeats for a verdict, if the change is really this large; None if unknown. ``stopped``
    is how many cases of either run evalq stopped calling once they were decided.
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
        require_pandas()
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
        require_pandas()
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


class Decision(decision.GateDecision, frozen=True):
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
        require_pandas()
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


Operand = str | Path | Run
"""A run as the command line names it, or as Python has it."""


def compare(
    base: Operand,
    cand: Operand,
    *,
    margin: float = MARGIN,
    measure: str = "",
    by_cases: bool = False,
    broker: str | None = None,
    ledger: str | None = None,
) -> Comparisons:
    """Compare two runs, case by case: what `evalq compare BASE CAND` says, as a `Comparison` for each measure.

    Both are run folders, ids of runs in ./evalq-runs or in the ledger, files (report.json, cases.json), names of
    baselines, or a `Run`.

        found = evalq.compare("main", evalq.evaluate("verification", "transcripts.jsonl"))
        found["pass_rate"].verdict             # "same", "worse", "better" or "inconclusive"
        found["pass_rate"].flips()             # a DataFrame of the cases that changed

    Changes of less than ``margin``, a share of each measure's scale, are the same. ``measure`` compares by that one
    alone. ``by_cases`` decides for other cases like these, too: use it if repeats of one unchanged target are not
    independent. ``broker`` and ``ledger`` are URLs as the command line takes them; without, EVALQ_BROKER and
    EVALQ_LEDGER count. No verdict raises anything.

    Raises UsageError for what names no run, for a run without a report or without measures, for runs of two evaluators,
    a measure that there is not and a margin that is no share above 0; WireError for damaged files; BrokerUnreachable,
    ServerRefused.
    """
    from evalq.producer.comparing.comparing import compare_runs
    from evalq.producer.comparing.operands import base_of, partner

    if not 0 < margin <= 1:
        raise UsageError(f"margin={margin}: a share of a measure's scale, above 0 and at most 1")
    with _servers(broker, ledger) as servers:
        # A name of approved runs before a path of that name, as on the command line.
        bases = base_of(base, servers) if isinstance(base, str) else _runs(base, servers)
        candidates = _runs(cand, servers)
    name = str(base.path or base) if isinstance(base, Run) else str(base)
    pairs = [Sides(partner(run, bases, name), run) for run in candidates]
    return Comparisons(
        Comparison(sides=sides, **_fields(each))
        for sides in pairs
        for each in compare_runs(*sides, margin, measure, by_cases=by_cases)
    )


def gate(
    cand: Operand | Sequence[Operand],
    policy: str | Path | Mapping[str, Any],
    *,
    baseline: Operand | None = None,
    candidate: str = "",
    broker: str | None = None,
    ledger: str | None = None,
) -> Decision:
    """Decide by a policy whether a run may pass: what `evalq gate CAND --policy FILE` decides, as a `Decision`.

        decided = evalq.gate(run, "policy.yaml", baseline="main")
        evalq.gate(run, {"gates": [{"metric": "verification.pass_rate", "min": 0.9}]}).exit_code

    ``cand`` is a run as `compare` takes it, or several, each called otherwise: by the name that its suite gave it, or
    by its evaluator. ``policy`` is a YAML or JSON file, or what would stand in it. ``baseline`` is what drops are
    measured against; looks at one that was approved by name are counted, for ``candidate`` as `evalq gate --candidate`
    does. ``broker`` and ``ledger`` are those of `compare`. No decision raises anything: look at
    ``decided``, or exit with ``exit_code``.

    Raises ConfigError for a policy that is none (with the key), UsageError for a number that the results do not have,
    two runs that are called the same, a run that is its own baseline, a baseline that is needed and not named, and what
    `compare` raises for a run.
    """
    from evalq.evalcore.compare.policy import Policy
    from evalq.evalcore.contract.params import validate
    from evalq.producer.comparing.gating import load_policy

    wanted = validate(Policy, policy, "policy") if isinstance(policy, Mapping) else load_policy(policy)
    given = [cand] if isinstance(cand, str | Path | Run) else list(cand)
    return decide_by(wanted, given, baseline=baseline, candidate=candidate, broker=broker, ledger=ledger)


def decide_by(
    policy: Policy,
    given: Sequence[Operand],
    *,
    baseline: Operand | None,
    candidate: str,
    broker: str | None,
    ledger: str | None,
) -> Decision:
    """`gate` with a policy that is read already."""
    from evalq.producer.comparing.gating import ITSELF, distinct, gate_runs

    if not given:
        raise UsageError("gate: no run is given")
    # What wrote nothing has no id of its own by which the rest would know.
    if any(each is baseline for each in given if isinstance(each, Run)):
        raise UsageError(f"gate: {baseline!r} is both the candidate and the baseline: {ITSELF}")
    with _servers(broker, ledger) as servers:
        candidates = distinct([run for each in given for run in _runs(each, servers)])
        against = "" if baseline is None else _named(baseline)
        found = gate_runs(policy, candidates, against, servers, candidate=candidate)
    return Decision(**_fields(found))


def _fields(found: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__}


def _named(given: Operand) -> RunCases | str:
    """A run as commands name it; itself where only this process has it."""
    if isinstance(given, Run):
        return unwritten_cases(given) or str(given.path)
    return str(given)


def _runs(given: Operand, servers: Servers) -> list[RunCases]:
    from evalq.producer.comparing.operands import operand

    named = _named(given)
    return operand(named, servers) if isinstance(named, str) else [named]


@contextlib.contextmanager
def _servers(broker: str | None, ledger: str | None) -> Iterator[Servers]:
    from evalq.producer.servers import Servers
    from evalq.workers.servers.errors import SERVER_ERRORS, explained
    from evalq.workers.settings import load_settings

    settings = load_settings(None, broker=broker, ledger=ledger)
    with Servers(settings) as servers:
        try:
            yield servers
        except SERVER_ERRORS as error:
            raise explained(error, f"the server at {settings.ledger_address}") from error
