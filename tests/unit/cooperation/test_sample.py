"""The generated log: the same for the same seed, realistic, and clean."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

from evalq.evalcore.evaluators.cooperation import evaluator
from evalq.evalcore.evaluators.cooperation.sample import write_events
from evalq.evalcore.fold import evaluate_files
from tests.unit.cooperation.logs import entry, run
from tests.unit.cooperation.test_metrics import agrees


def written(events: int, seed: int, **options: Any) -> bytes:
    """The bytes of a generated log."""
    stream = io.BytesIO()
    write_events(stream, events, seed, **options)
    return stream.getvalue()


def test_a_long_log_is_the_same_on_every_machine() -> None:
    """Rare amounts and places included, so that figures taken from it can be taken again."""
    digests = [hashlib.sha256(written(20_000, 1, shuffled=shuffled)).hexdigest()[:16] for shuffled in (False, True)]
    assert digests == ["4990543c2b6410a4", "034fef2a5f63bd2d"]


def test_the_same_arguments_give_the_same_bytes() -> None:
    """Seed, agents and shuffling decide every byte; a shuffled log has the same lines."""
    assert written(500, 1) == written(500, 1)
    assert written(500, 1) != written(500, 2)
    plain, mixed = written(500, 1).splitlines(), written(500, 1, shuffled=True).splitlines()
    assert plain != mixed
    assert sorted(plain) == sorted(mixed)


def test_a_generated_log_has_what_real_logs_have() -> None:
    """Every kind of decision and amount, in lines of 150 to 350 bytes, and no fault."""
    data = written(3000, 3, agents=7)
    rows = [json.loads(line) for line in data.splitlines()]
    assert len(rows) == 3000
    assert len({row["agent"] for row in rows}) == 7
    assert {type(row["resources"].get("stone")) for row in rows} == {int, float, str, type(None)}
    assert {"cooperate", "defect", "wait", None} <= {row["decision"] for row in rows}
    assert all(150 < len(line) < 350 for line in data.splitlines())
    agrees(entry(run(data)), rows)


def test_the_demo_evaluates_a_log_in_order_and_one_out_of_order(tmp_path: Path) -> None:
    """The evaluator's own sample: two logs, as many events as asked for, and no fault."""
    request = evaluator.sample.write(tmp_path, 400, 1)
    logs = evaluate_files(evaluator, request.inputs, request.params).report["results"]["logs"]
    about = [log["metadata"] for log in logs.values()]
    assert [(log["total_events"], log["out_of_order"]) for log in about] == [(300, False), (100, True)]


def test_a_shuffled_log_has_the_metrics_of_its_sorted_rows() -> None:
    """Out of order within agents, the numbers are the oracle's."""
    data = written(2000, 4, shuffled=True)
    agrees(entry(run(data, 300)), [json.loads(line) for line in data.splitlines()])
