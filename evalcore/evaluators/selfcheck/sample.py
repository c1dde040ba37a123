"""Made-up completion reports, any number of them, for the demo, benchmarks and tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.contract.evaluator import Request

_TASKS = (
    "login form",
    "export to CSV",
    "retry of failed jobs",
    "날짜 필터",
    "image upload",
    "price rounding",
    "검색 색인",
)
_RUNS = (
    "PASS src/{name}.test.ts\nTest Suites: 1 passed, 1 total\nTests: {n} passed, {n} total",
    "============ {n} passed in 0.4{n}s ============",
    "ok  \tservice/{name}\t0.0{n}s",
    "FAILED tests/test_{name}.py::test_limits - AssertionError\n{n} passed, 1 failed",
    "",
)
_NOTES = (
    "Called the endpoint twice with the same key; the second answer came from the cache.",
    "It should work on the staging database too, I have not tried it there.",
    "The counter usually settles after two polls.",
    "로그에서 오류 없이 끝난 것을 확인했습니다.",
    "I think the remaining warning is harmless.",
    "TODO: remove the old column once everybody is on the new one.",
)
_GUESSES = (
    "the API stays at version 2",
    "clock skew is below a second",
    "저장소 권한이 있다",
    "inputs are sorted already",
)


def write_sample(folder: Path, records: int, seed: int) -> Request:
    """Write made-up records into ``folder``."""
    path = folder / "completion-reports.jsonl"
    with path.open("wb") as stream:
        write_records(stream, records, seed)
    return Request([str(path)], {}, {})


def write_records(stream: BinaryIO, records: int, seed: int) -> None:
    """Write ``records`` JSONL lines, the same for the same arguments; about one in three is labelled."""
    rng = random.Random(seed)  # noqa: S311 - a sample, not a secret
    encode = msgspec.json.Encoder().encode
    stream.writelines(encode(_record(rng, number)) + b"\n" for number in range(records))


def _record(rng: random.Random, number: int) -> dict[str, Any]:
    bits = rng.getrandbits(30)
    name = _TASKS[bits % len(_TASKS)]
    run = _RUNS[(bits >> 3) % len(_RUNS)].format(name=name.replace(" ", "_"), n=bits >> 6 & 15)
    good = "FAILED" not in run
    record: dict[str, Any] = {"id": f"task-{number:06d}", "testOutput": run, "testsPassed": good}
    record["requirementsList"] = [{"requirement": f"{name} ({part})", "met": good} for part in "ab"[: 1 + (bits & 1)]]
    if bits >> 10 & 3:
        record["evidence"] = [{"type": "note", "content": _NOTES[(bits >> 12) % len(_NOTES)]}]
    if bits >> 15 & 1:
        guess = _GUESSES[(bits >> 16) % len(_GUESSES)]
        record["assumptions"] = [{"assumption": guess, "verified": bool(bits >> 18 & 3)}]
    if bits >> 20 & 1:
        record["codeChanges"] = [{"file": f"src/{name}.py", "diff": f"+ limit = {bits & 255}"}]
    if bits >> 21 & 15 == 0:
        record["goalVerification"] = {"passed": good, "paths": []}
    if bits >> 25 & 3 == 0:
        record["hallucinated"] = not good or bits >> 27 & 7 == 0
    return record
