"""Outputs that a simulated user loses: no verdict, named as such, and rates without them, in any cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.cases import load_cases
from evalq.evalcore.evaluators.checks.user.scored import conduct_cells
from evalq.evalcore.evaluators.checks.views import markdown, page_summary
from evalq.evalcore.statistics.corrected_rate import Labelled, corrected_share
from evalq.evalcore.statistics.rates import exact_interval
from tests.unit.checks.helpers import evaluated, params_of

ROLE = {"not-contains": "as an AI", "about": "user", "name": "role"}
CASES = [{"id": "a", "checks": [{"contains": "yes"}, ROLE]}]


def record(output: str | None, said: str = "hello", repeat: int = 0, **more: Any) -> bytes:
    messages = [{"role": "user", "content": said}, {"role": "assistant", "content": output or "as an AI"}]
    own = {"error": "user: timeout: no answer within 3 s"} if output is None else {"output": output}
    return json.dumps({"case": "a", "repeat": repeat, "messages": messages, **own, **more}).encode()


def found(folder: Path, lines: list[bytes], **params: Any) -> dict[str, Any]:
    run = evaluated(folder, lines, params_of(CASES, **params))
    results: dict[str, Any] = run.report["results"]
    return {**results, "markdown": markdown(run.report, {}), "page": page_summary(run.report)}


def test_an_answer_lost_by_its_user_has_no_verdict_and_is_named(tmp_path: Path) -> None:
    user = {"target": "customer", "config": "c1"}
    attempts = [{"by": "user", "cost": 2.0, "served": {"model": "m-1"}}, {"cost": 5.0}]
    lines = [
        record("yes", repeat=0, user=user, attempts=attempts),
        record("no", repeat=1, user=user, attempts=attempts),
        record(None, repeat=2, user={**user, "fault": "timeout"}, attempts=attempts),
        record("no", "Well, as an AI", repeat=3, user=user, attempts=attempts),
        record("no", repeat=4, user={**user, "fault": "left out what it wants"}, attempts=attempts),
        record("yes", repeat=5, user={**user, "fault": True}, attempts=attempts),
        record("yes", repeat=6, user={"name": "somebody"}),
    ]
    results = found(tmp_path, lines)
    assert results["outputs"] == {"total": 7, "passed": 2, "failed": 1, "errors": 4, "lost_by_user": 4}
    assert results["by_case"][0]["outputs"]["lost_by_user"] == 4
    (nobody, customer) = results["users"]["simulators"]
    assert (nobody["user"], nobody["answers"], nobody["lost"]) == ("", 1, 0)
    assert customer["faults"] == {"check": 1, "record": 2, "timeout": 1}
    assert (customer["configs"], customer["served"], customer["calls"], customer["cost"]) == (["c1"], ["m-1"], 6, 12.0)
    # What the user takes is none of the agent's cost.
    assert (results["cost"]["count"], results["cost"]["max"]) == (2, 5.0)
    text = results["markdown"]
    assert "4 without a verdict (lost by the simulated user)" in text
    assert "| customer | c1 | m-1 | 6 | 4 | 1 check, 2 record, 1 timeout | 6 | 12 |" in text
    assert [tile.value for tile in results["page"].tiles if tile.label == "Lost by users"] == ["4 of 7"]


def test_a_check_about_the_user_reads_what_the_user_says(tmp_path: Path) -> None:
    """And never what the agent says; without a conversation it cannot be computed."""
    lines = [record("yes, as an AI", repeat=0), json.dumps({"case": "a", "repeat": 1, "output": "yes"}).encode()]
    results = found(tmp_path, lines)
    assert results["outputs"] == {"total": 2, "passed": 1, "failed": 0, "errors": 1}
    assert "lost by the simulated user" not in results["markdown"]


def test_labels_of_people_correct_the_rate(tmp_path: Path) -> None:
    """Of 40 outputs, 20 pass; the check takes 4 of the failing ones for lost, and people say that 4 others are."""
    lines = [record("yes" if n < 20 else "no", "as an AI" if n in (21, 22, 23, 24) else "hello", n) for n in range(40)]
    held = [n for n in range(40) if n not in (21, 22, 23, 24, 30, 31, 32, 33)]
    labels = {"a": {"role": {"passed": held, "failed": [n for n in range(40) if n not in held]}}}
    results = found(tmp_path, lines, labels=labels)
    assert results["pass_rate"] == 20 / 36
    corrected = results["users"]["corrected"]
    assert (corrected["labels"], corrected["pass_rate"]) == (40, pytest.approx(20 / 32))
    assert corrected["low"] < 20 / 36 < 20 / 32 < corrected["high"]
    assert "by people's labels of 40 of them: 62.5 %" in results["markdown"]
    # The labels of outputs that are lost are labels all the same.
    assert (results["labels"]["used"], results["labels"]["astray"]) == (40, 0)
    half = {"a": {"role": {"passed": held[:16], "failed": [30]}}}
    assert found(tmp_path, lines, labels=half)["users"]["corrected"]["labels"] == 17
    assert "corrected" not in found(tmp_path, lines)["users"]


def test_the_cells_of_conduct_are_one_each() -> None:
    seen = [
        conduct_cells(passes, held, label)
        for passes in (True, False)
        for held in (True, False)
        for label in (None, True, False)
    ]
    assert len({tuple(cells) for cells in seen}) == 12
    assert [sum(cells) for cells in seen] == [1, 2, 2] * 4


def test_without_faults_the_corrected_share_is_the_rate_itself() -> None:
    """All answers are labelled and count: the interval is that of the passes."""
    passed = Labelled(7, 0, 0, 3, 7, 10)
    failed = Labelled(3, 0, 0, 7, 3, 10)
    share = corrected_share([passed], [failed])
    assert share is not None
    assert share.value == pytest.approx(0.7)
    low, high = exact_interval(7, 10)
    assert share.interval == pytest.approx((low, high), abs=1e-9)
    none = Labelled(0, 0, 0, 10, 0, 10)
    assert corrected_share([none], [none]) is None
    assert corrected_share([Labelled(0, 0, 0, 0, 5, 10)], [Labelled(0, 0, 0, 0, 5, 10)]) is None
    only = corrected_share([Labelled(10, 0, 0, 0, 10, 10)], [none])
    assert only is not None
    assert (only.value, only.interval.high) == (1.0, 1.0)


def test_labels_of_passes_alone_say_nothing_of_fails() -> None:
    """Two of five answers pass, both are labelled and count: the three others may count or not."""
    passed = [Labelled(1, 0, 0, 0, 1, 1)] * 2 + [Labelled(0, 0, 0, 0, 0, 1)] * 3
    failed = [Labelled(0, 0, 0, 1, 0, 1)] * 2 + [Labelled(0, 0, 0, 0, 1, 1)] * 3
    share = corrected_share(passed, failed)
    assert share is not None
    assert share.interval == pytest.approx(exact_interval(2, 2), abs=1e-9)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ({"contains": "x", "about": "me"}, "about: invalid enum value 'me'"),
        ({"any": [{"contains": "x", "about": "user"}]}, "any[0].about: stands beside the outermost check"),
    ],
)
def test_a_wrong_about_is_named_by_its_place(tmp_path: Path, check: dict[str, Any], message: str) -> None:
    (tmp_path / "cases.json").write_text(json.dumps({"cases": [{"id": "a", "checks": [check]}]}))
    with pytest.raises(ConfigError) as caught:
        load_cases([str(tmp_path / "cases.json")])
    assert message in str(caught.value)
