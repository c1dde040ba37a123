"""Sample data of any size: rows like those of a real plan-agent test run, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.evaluators.planagent.sample_parts import all_cases, quoted

__all__ = ["write_rows", "write_sample"]

BOM = "\ufeff"
HEADER = (
    "Run ID,Item ID,Ordinal,Query ID,질의,기대결과,카테고리,방/반복,실행시각,응답,오류,"
    "LLM 상태,LLM 모델,LLM 점수,LLM 코멘트,Raw JSON\n"
)
BLOCK_ROWS = 16
_MASK = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15


def write_sample(folder: Path, records: int, seed: int) -> Request:
    """One file of made-up rows: ten rounds of each Query ID in a large one, two in a small one."""
    path = folder / "plan_agent_sample.csv"
    rounds = [f"{number}/1" for number in range(1, 11 if records >= 100_000 else 3)]
    with path.open("w", encoding="utf-8", newline="") as stream:
        write_rows(stream, records, seed, rounds=rounds)
    return Request([str(path)], {}, {})


def write_rows(
    stream: TextIO, rows: int, seed: int, queries: int | None = None, rounds: Sequence[str] = ("1/1", "2/1")
) -> None:
    """Write ``rows`` rows of about 3 KB to ``stream`` (opened as UTF-8 with newline=""), with a BOM and a header.

    Round by round, every Query ID once; ``queries`` is their number (by default as many as fill the rounds). Some rows
    have errors, empty or broken answers, no seconds, no checks, or an LLM score.

    Raises ValueError when ``rows`` exceeds queries x rounds, which would repeat a (Query ID, round).
    """
    queries = -(-rows // len(rounds)) if queries is None else queries
    if rows > queries * len(rounds):
        raise ValueError(f"{rows} rows are more than {queries} queries x {len(rounds)} rounds")
    stream.write(BOM + HEADER)
    block: list[str] = []
    for row in _rows(rows, seed, queries, rounds):
        block.append(row)
        if len(block) == BLOCK_ROWS:
            stream.write("".join(block))
            block.clear()
    stream.write("".join(block))


def _rows(rows: int, seed: int, queries: int, rounds: Sequence[str]) -> Iterator[str]:
    rng = random.Random(seed)  # noqa: S311  # sample data, not secrets
    cases, times, scores = all_cases(), _times(rng), _llm_columns(rng)
    run = f"{rng.getrandbits(32):08x}-plan-sample"
    bits, offset, named = rng.getrandbits, rng.getrandbits(64), [quoted(name) for name in rounds]
    for i in range(rows):
        number = i % queries
        mixed = (number * _SPREAD + offset) & _MASK
        query = f"{mixed >> 32:08x}-{mixed >> 16 & 0xFFFF:04x}-4{mixed & 0xFFF:03x}-a000-{number:012x}"
        case = cases[(mixed >> 7) % len(cases)]
        text, error, (a, b, c, d, e, f) = case.replies[bits(6)]
        ms, seconds = times[bits(12)]
        at = f"2026-03-{1 + i // 86400 % 28:02d}T{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}"
        yield (
            f"{run},item-{i + 1:09d},{i + 1},{query},{case.query},{case.expected},{case.category},"
            f"{named[i // queries]},{at},{text},{error},{scores[bits(8)]},"
            f"{a}{ms}{b}{ms}{c}{ms}{d}conv-{mixed ^ i:016x}{e}{seconds}{f}\n"
        )


def _times(rng: random.Random) -> list[tuple[str, str]]:
    """4,096 response times as (milliseconds, seconds), mostly 5 to 15 s with a long tail."""
    drawn = [rng.lognormvariate(2.2, 0.3) for _ in range(4096)]
    return [(f"{seconds * 1000:.6f}", f"{seconds:.4f}") for seconds in drawn]


def _llm_columns(rng: random.Random) -> list[str]:
    """256 times the columns from `LLM 상태` to `LLM 코멘트`, most of them empty."""
    scored = [f"DONE,judge,{rng.randint(0, 5)},{quoted('요청과 답이 맞는지 보았음, 근거는 있음')}" for _ in range(31)]
    return [*scored, f"FAILED,judge,n/a,{quoted('채점 실패')}", *[",,,"] * 224]
