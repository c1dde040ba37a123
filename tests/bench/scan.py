"""What the ways of searching cost, beside each other, and what a check and a score cost with the one chosen.

    python -m tests.bench.scan [--times 7]

prints medians of CPU time as Markdown tables: those of docs/decisions/0005-scan-engine.md.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import re2

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators import selfcheck, verification
from evalq.evalcore.evaluators.selfcheck.questions import SIGNAL_LISTS, SignalScan
from evalq.evalcore.evaluators.verification.sample import _PIECES
from evalq.evalcore.evaluators.verification.score import scorer
from evalq.evalcore.scan import Pattern, Scanner
from tests.unit.verification import oracle

WORDS = [
    "the",
    "of",
    "and",
    "tests",
    "passed",
    "function",
    "module",
    "it",
    "returns",
    "request",
    "handler",
    "login",
    "user",
]
BIG = 10_000_000
SMALL = (
    "I have implemented the login function and ran its tests twice. The handler returns 401 for a wrong password, "
    "and the counter is reset after a login. The suite takes about four seconds; nothing was skipped."
)
RECORD = {
    "id": "login",
    "testOutput": "PASS src/login.test.ts\nTests: 6 passed, 6 total",
    "testsPassed": True,
    "requirementsList": [{"requirement": "A wrong password is refused", "met": True}],
    "assumptions": [{"assumption": "clock skew below 5 s", "verified": True, "source": "ntp.conf"}],
    "evidence": [{"type": "log", "content": SMALL}],
    "codeChanges": [{"file": "src/login.ts", "diff": "+if (failures >= 5) lock(account)"}],
}
TRANSCRIPT = (
    "I used Edit on src/auth.py and then Read it: line 42 now has the check.\n```\n$ pytest\n3 passed\n```\n"
    "Output: `3 passed`. All verified; mypy clean, ruff clean, coverage 91 %."
)


def clean_text(size: int, words: list[str]) -> str:
    """``size`` characters without any signal."""
    return " ".join(random.Random(1).choices(words, k=size // 2))[:size]


def median(call: Callable[[], Any], times: int) -> float:
    """CPU seconds of one call: the median of ``times`` measurements of some 20 ms or one call each.

    CPU time, because all that is measured is one thread's computing, and neighbours on the machine are not.
    """
    start = time.process_time()
    call()
    loops = max(1, int(0.02 / (time.process_time() - start + 1e-9)))
    taken = []
    for _ in range(times):
        start = time.process_time()
        for _ in range(loops):
            call()
        taken.append((time.process_time() - start) / loops)
    return statistics.median(taken)


def table(title: str, rows: Mapping[str, Callable[[], Any]], times: int) -> None:
    """Measure and print one table."""
    print(f"\n| {title} | median |\n| --- | ---: |")
    for name, call in rows.items():
        seconds = median(call, times)
        print(
            f"| {name} | {seconds * 1e3:,.1f} ms |" if seconds > 1e-3 else f"| {name} | {seconds * 1e6:,.1f} µs |",
            flush=True,
        )


def rivals(text: str, signals: list[str]) -> dict[str, Callable[[], Any]]:
    """Each engine, looking for the first match of each plain signal in ``text``, ignoring ASCII case."""
    data, needles = text.encode(), [signal.lower().encode() for signal in signals]
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    ignoring = [f"(?i){signal}".encode() for signal in signals]
    each = [re2.compile(source, options) for source in ignoring]
    any_of = re2.compile(b"|".join(ignoring), options)
    together = re2.Set.SearchSet(options)
    for source in ignoring:
        together.Add(source)
    together.Compile()
    python = [re.compile(signal, re.IGNORECASE | re.ASCII) for signal in signals]

    def find() -> None:
        folded = data.lower()
        for needle in needles:
            folded.find(needle)

    ways: dict[str, Callable[[], Any]] = {
        "Python's re, one after the other": lambda: [pattern.search(text) for pattern in python],
        "bytes.find on lower-cased bytes, one after the other": find,
        "google-re2, one after the other": lambda: [pattern.search(data) for pattern in each],
        "google-re2, all as one pattern (is there any?)": lambda: any_of.search(data),
        "google-re2, Set (which are there?)": lambda: together.Match(data),
    }
    return {**ways, **_hyperscan(data, signals)}


def _hyperscan(data: bytes, signals: list[str]) -> dict[str, Callable[[], Any]]:
    try:
        import hyperscan
    except ImportError:
        return {}
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = hyperscan.HS_FLAG_CASELESS | hyperscan.HS_FLAG_SINGLEMATCH
    database.compile([s.encode() for s in signals], list(range(len(signals))), len(signals), [flags] * len(signals))
    return {"hyperscan (which are there?)": lambda: database.scan(data, match_event_handler=lambda *_: None)}


def chosen(big: str) -> dict[str, Callable[[], Any]]:
    """What was built, on long texts of several kinds and on a short one."""
    default, extended = (SignalScan(SIGNAL_LISTS[name]) for name in ("default", "extended"))
    korean = clean_text(BIG, [*WORDS, "한글", "검증", "테스트", "완료"])
    words = Scanner([Pattern(r"\b(?:Edit|Write)\b", True, counted=True)])
    return {
        "seven signals, 10 MB, none found": lambda: default(big),
        "twelve signals, 10 MB, none found": lambda: extended(big),
        "twelve signals, 10 MB, one at the beginning": lambda: extended("probably " + big),
        "twelve signals, 10 MB, one at the end": lambda: extended(big + " probably"),
        "seven signals, 10 million characters, some Korean": lambda: default(korean),
        f"seven signals, {len(SMALL)} characters": lambda: default(SMALL),
        "counting whole words, 1 MB of 'Edit '": lambda: words.scan("Edit " * 200_000).count(0),
    }


def evaluators(big: str) -> dict[str, Callable[[], Any]]:
    """Whole records through the evaluators, JSON in and out, and single scores."""
    checks, scores = selfcheck.SelfCheckParams(), verification.VerificationParams()
    hard = verification.VerificationParams.model_validate({"patterns": "hardened"})
    score, hard_score = scorer(scores.patterns, scores.scoring).score, scorer(hard.patterns, hard.scoring).score
    small = Batch("f", 1, msgspec.json.encode(RECORD))
    large = Batch("f", 1, msgspec.json.encode({**RECORD, "testOutput": big}))
    transcript = Batch("f", 1, msgspec.json.encode({"actual_output": TRANSCRIPT}))
    edits, reads = "Edit " * 200_000, "Edit Read " * 100_000
    return {
        "self check, one record of 0.5 kB": lambda: selfcheck.evaluator.evaluate(small, checks),
        "self check, one record of 10 MB": lambda: selfcheck.evaluator.evaluate(large, checks),
        "verification, one record of 0.2 kB": lambda: verification.evaluator.evaluate(transcript, scores),
        "verification, 1 MB of 'Edit '": lambda: score(edits, 0.9),
        "verification, hardened, 1 MB of 'Edit '": lambda: hard_score(edits, 0.9),
        "verification, 1 MB of 'Edit Read '": lambda: score(reads, 0.9),
        "verification, 10 MB of plain text": lambda: score(big, 0.9),
    }


def fresh(number: int) -> dict[str, list[str]]:
    """Texts of 4 kB, no two the same: words of no meaning, and transcripts with several matches of most patterns."""
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefghijklmnoprstuvw", k=rng.randrange(2, 9))) for _ in range(3000)]
    pieces = [piece for piece in _PIECES if piece.isascii()]
    return {
        "prose": [" ".join(rng.choices(words, k=900))[:4096] for _ in range(number)],
        "dense transcripts": ["\n".join(rng.choices(pieces, k=100))[:4096] for _ in range(number)],
    }


def one_by_one(times: int) -> None:
    """The verification score beside the specification's patterns by Python's re, on the same texts in turn."""
    params = verification.VerificationParams()
    score = scorer(params.patterns, params.scoring).score
    print("\n| 4 kB, never seen before | re one by one | evalq | ratio |\n| --- | ---: | ---: | ---: |")
    for kind, texts in fresh(100 * times).items():
        plain, ours = [], []
        for text in texts:
            began = time.perf_counter()
            expected = oracle.components(text)
            between = time.perf_counter()
            got = score(text, 0.9).components
            ours.append(time.perf_counter() - between)
            plain.append(between - began)
            assert all(abs(getattr(got, name) - value) < 1e-9 for name, value in expected.items())
        a, b = statistics.median(plain) * 1e6, statistics.median(ours) * 1e6
        print(f"| {kind} | {a:,.0f} µs | {b:,.1f} µs | {a / b:.1f} |", flush=True)


def main() -> None:
    """Measure and print everything."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scan")
    parser.add_argument("--times", type=int, default=7)
    times = parser.parse_args().times
    big = clean_text(BIG, WORDS)
    for name in ("default", "extended"):
        signals = [word for signal in SIGNAL_LISTS[name] for word in signal.pattern.split("|")]
        table(f"{len(signals)} plain strings in 10 MB", rivals(big, signals), times)
        table(f"{len(signals)} plain strings in {len(SMALL)} characters", rivals(SMALL, signals), times)
    table("the scan engine", chosen(big), times)
    table("evaluators", evaluators(big), times)
    one_by_one(times)


if __name__ == "__main__":
    main()
