"""Made-up transcripts, any number of them, for the demo, benchmarks and tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import BinaryIO

import msgspec

from evalq.evalcore.contract.evaluator import Request

_PIECES = (
    "I used Edit on src/limits.py and then Read it again: line 88 now holds the new bound.",
    "Write created config/app.yaml.",
    "The service was started with launch; its health endpoint answers 200 and it is running.",
    "Next I will deploy it.",
    "Output: `12 passed in 0.8s`",
    "```python\nassert limit(3) == 9\n```",
    "$ pytest -q --cov\n12 passed, 1 failed",
    "mypy and ruff are clean.",
    "This should work in production.",
    "I think the cache is warm by then; it is probably fine.",
    "확인했습니다: Edit를 마치고 결과를 읽었습니다.",
    "The change is verified, and the numbers were checked against the old report.",
    "No code was changed; the table on line 4 answers the question.",
    "Next I fix the rounding and refactor the parser.",
)
_WHOLE = (_PIECES[0], _PIECES[4], _PIECES[5], _PIECES[6], _PIECES[7], _PIECES[11])
"""Pieces that together meet every rule."""


def write_sample(folder: Path, records: int, seed: int) -> Request:
    """Write made-up records into ``folder``."""
    path = folder / "transcripts.jsonl"
    with path.open("wb") as stream:
        write_records(stream, records, seed)
    return Request([str(path)], {}, {})


def write_records(stream: BinaryIO, records: int, seed: int) -> None:
    """Write ``records`` JSONL lines, the same for the same arguments; about one in eight is labelled."""
    rng = random.Random(seed)  # noqa: S311 - a sample, not a secret
    encode = msgspec.json.Encoder().encode
    for number in range(records):
        pieces = list(_WHOLE) if rng.getrandbits(2) == 0 else rng.choices(_PIECES, k=rng.randrange(1, 9))
        record = {"id": f"run-{number:06d}", "input": "Do the task.", "actual_output": "\n".join(pieces)}
        if rng.getrandbits(3) == 0:
            stream.write(encode({**record, "compliant": _PIECES[11] in pieces}) + b"\n")
        else:
            stream.write(encode(record) + b"\n")
