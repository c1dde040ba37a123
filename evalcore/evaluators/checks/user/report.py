"""Simulated users in the report: who played the users, what they lost, and rates without the answers that they lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from evalq.evalcore.evaluators.checks.user.scored import UserTally
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.naming import shorten
from evalq.evalcore.statistics.corrected_rate import CorrectedShare, Labelled, corrected_share
from evalq.evalcore.views.charts import Tile, interval_text, number
from evalq.evalcore.views.markdown import NONE, escape, percent_between, plural, table


class UserCounts(NamedTuple):
    """The outputs of one case that its user ``lost``, and those by `conduct_cells`."""

    weight: float
    lost: int
    conduct: Sequence[int]


def users_section(users: Mapping[str, UserTally], cases: Sequence[UserCounts]) -> dict[str, Json]:
    """The part of the report about simulated users; nothing without any."""
    if not users:
        return {}
    checked = [case for case in cases if case.conduct]
    section: dict[str, Json] = {
        "answers": sum(tally.answers for tally in users.values()),
        "lost": sum(case.lost for case in cases),
        "simulators": [
            {
                "user": name,
                "configs": tally.configs,
                "served": tally.served,
                "answers": tally.answers,
                "lost": sum(tally.faults.values()),
                "faults": dict(sorted(tally.faults.items())),
                "calls": tally.calls,
                "cost": tally.cost.total.value() if tally.cost.count else None,
            }
            for name, tally in users.items()
        ],
    }
    labels = sum(sum(case.conduct[at + 1] + case.conduct[at + 2] for at in _CELLS) for case in checked)
    if labels:
        found = corrected_rate(checked)
        section["corrected"] = {
            "labels": labels,
            "pass_rate": found.value if found else None,
            "low": found.interval.low if found else None,
            "high": found.interval.high if found else None,
        }
    return {"users": section}


def corrected_rate(cases: Sequence[UserCounts]) -> CorrectedShare | None:
    """The pass rate of answers whose user keeps to its part, as people would see it; None without labels."""
    passing, failing = ([_labelled(case, passes=passes) for case in cases] for passes in (True, False))
    return corrected_share(passing, failing)


_CELLS = (0, 3, 6, 9)
_PASSED, _FAILED = (0, 3), (6, 9)


def _labelled(case: UserCounts, *, passes: bool) -> Labelled:
    """Answers that pass, or those that fail, and count: by the checks about the user, and by people's labels."""
    cells = case.conduct
    held, not_held = _PASSED if passes else _FAILED
    beside = _FAILED if passes else _PASSED
    return Labelled(
        both=cells[held + 1],
        false_pass=cells[held + 2],
        false_fail=cells[not_held + 1],
        neither=cells[not_held + 2] + sum(cells[at + 1] + cells[at + 2] for at in beside),
        passed=cells[held],
        answers=sum(cells[at] for at in _CELLS),
        weight=case.weight,
    )


def reasons_without_verdict(outputs: Mapping[str, int]) -> dict[str, int]:
    """{why: outputs} of those that have no verdict, for a headline."""
    lost = outputs.get("lost_by_user", 0)
    return {"errors": outputs["errors"] - lost, **({"lost by the simulated user": lost} if lost else {})}


def users_markdown(results: Mapping[str, Json]) -> str:
    """Who simulated users, what they took and lost, and the corrected rate."""
    users = results.get("users")
    if not users:
        return ""
    heads = ("Simulated user", "Settings", "Served by", "Answers", "Lost", "Faults", "Calls", "Cost")
    parts = ["## Simulated users", table(heads, list(_rows(users)))]
    if users["lost"]:
        parts.append("An answer that is lost by its simulated user counts neither for nor against the agent.")
    if sentence := _corrected(users):
        parts.append(sentence)
    return "\n\n".join(part.rstrip("\n") for part in parts)


def _rows(users: Mapping[str, Json]) -> Iterator[tuple[object, ...]]:
    for each in users["simulators"]:
        faults = ", ".join(f"{count:,} {kind}" for kind, count in each["faults"].items())
        cost = NONE if each["cost"] is None else number(each["cost"], "number")
        names = (escape(shorten(each["user"])) or NONE, ", ".join(each["configs"]) or NONE)
        served = escape(", ".join(map(shorten, each["served"][:5]))) or NONE
        yield *names, served, each["answers"], each["lost"], faults or NONE, each["calls"], cost


def _corrected(users: Mapping[str, Json]) -> str:
    found = users.get("corrected")
    if not found or found["pass_rate"] is None:
        return ""
    rate = percent_between(found["pass_rate"], found["low"], found["high"])
    return (
        f"Pass rate of answers whose user kept to its part, by people's labels of {found['labels']:,} of them: {rate}. "
        "Labels have to be of a random sample of the answers."
    )


def user_tiles(results: Mapping[str, Json]) -> Iterator[Tile]:
    """The answers that were lost by simulated users, and the corrected rate."""
    users = results.get("users")
    if not users:
        return
    lost, found = users["lost"], users.get("corrected")
    yield Tile("Lost by users", f"{lost:,} of {users['answers']:,}", state="doubtful" if lost else "none")
    if found and found["pass_rate"] is not None:
        note = f"{interval_text(found['low'], found['high'])}, by {plural(found['labels'], 'label')}"
        yield Tile("Without users' faults", number(found["pass_rate"], "share"), note)
