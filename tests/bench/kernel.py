"""The row kernel beside what only parses: `python -m tests.bench.kernel`. CPU seconds of this process, ways in turn.

evalq gives scores, a state to be merged and a line of records.jsonl for each row. Its rivals read the CSV and the JSON
of each row, and count the rows and those whose answer has a time, in which all must agree.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.planagent import PlanParams
from evalq.evalcore.evaluators.planagent.chunk import score_rows
from evalq.evalcore.evaluators.planagent.compiled import evaluate_batch
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.model.manifest import BLOCK_BYTES, MAX_RECORD_BYTES
from evalq.evalcore.native import way
from evalq.evalcore.records.cut import Cutter

PARAMS = PlanParams()
Found = tuple[int, int]
"""Rows, and rows whose answer has a time."""
Made = tuple[bytes, tuple[str, ...], list[Batch]]
"""A file, its columns, and its chunks."""


def made(rows: int, change: Callable[[dict[str, str]], None] | None = None) -> Made:
    """Made rows (ten rounds of each Query ID), each changed."""
    text = io.StringIO()
    write_rows(text, rows, 1, queries=max(1, rows // 10), rounds=[f"{n}/1" for n in range(1, 11)])
    if change is not None:
        text = _changed(text.getvalue().lstrip("\ufeff"), change)
    data = text.getvalue().encode()
    cutter = Cutter(io.BufferedReader(io.BytesIO(data)), "csv", "rows.csv", ())
    spans = list(cutter.spans())
    columns = cutter.columns
    return data, columns, [Batch("rows.csv", s.first_line, data[s.start : s.end], columns) for s in spans]


def _changed(text: str, change: Callable[[dict[str, str]], None]) -> io.StringIO:
    csv.field_size_limit(MAX_RECORD_BYTES)
    reader, out = csv.DictReader(io.StringIO(text, newline="\n")), io.StringIO()
    writer = csv.DictWriter(out, reader.fieldnames or (), lineterminator="\n")
    writer.writeheader()
    for row in reader:
        change(row)
        writer.writerow(row)
    return out


def shorter(row: dict[str, str]) -> None:
    """A row of about 1 kB: what a worker answered to whom is left out, and texts are cut."""
    row["응답"] = row["응답"][:20]
    try:
        answer = json.loads(row["Raw JSON"])
    except ValueError:
        return
    answer = {key: value for key, value in answer.items() if key not in ("worker", "executionProcesses")}
    answer["assistantMessage"] = answer["assistantMessage"][:60]
    for item in answer.get("dataUIList") or []:
        item["uiValue"] = {
            key: value[:1] if isinstance(value, list) else value for key, value in item["uiValue"].items()
        }
    row["Raw JSON"] = json.dumps(answer, ensure_ascii=False)


_RNG = random.Random(7)


def unlike(row: dict[str, str]) -> None:
    """A row whose message, id of a choice and time are unlike those of any other."""
    try:
        answer = json.loads(row["Raw JSON"])
    except ValueError:
        return
    words = " ".join(chr(_RNG.randrange(0xAC00, 0xD7A4)) * 2 for _ in range(12))
    answer["assistantMessage"] = f"{words} {answer['assistantMessage']}"
    answer["responseTimeSec"] = _RNG.random() * 20
    for item in answer.get("dataUIList") or []:
        item["uiValue"]["choice"] = f"{_RNG.getrandbits(64):x}"
    row["Raw JSON"] = json.dumps(answer, ensure_ascii=False)


def _parsed(document: str) -> Any:
    try:
        return json.loads(document)
    except ValueError:
        return None


def _timed(answers: Iterator[Any]) -> int:
    return sum(isinstance(answer, dict) and type(answer.get("responseTimeSec")) in (int, float) for answer in answers)


def evalq(file: Made) -> Found:
    """The kernel as a worker runs it."""
    lines = [line for batch in file[2] for line in evaluate_batch(batch, PARAMS).lines]
    return len(lines), len(lines) - b"\n".join(lines).count(b'"seconds":null')


def python_alone(file: Made) -> Found:
    """The same without compiled code."""
    lines = [line for batch in file[2] for line in score_rows(batch, PARAMS).lines]
    return len(lines), len(lines) - b"\n".join(lines).count(b'"seconds":null')


def csv_and_json(file: Made) -> Found:
    """The standard library."""
    raw, rows, timed = file[1].index("Raw JSON"), 0, 0
    for batch in file[2]:
        for row in csv.reader(io.StringIO(batch.data.decode(), newline="\n")):
            answer = _parsed(row[raw])
            rows += 1
            timed += isinstance(answer, dict) and type(answer.get("responseTimeSec")) in (int, float)
    return rows, timed


def pandas_and_json(file: Made) -> Found:
    """What a notebook does."""
    import pandas as pd

    frame = pd.read_csv(io.BytesIO(file[0]), dtype=str, keep_default_na=False)
    return len(frame), _timed(iter(frame["Raw JSON"].apply(_parsed)))


class _Answer(msgspec.Struct):
    assistantMessage: Any = None  # noqa: N815 - the key's spelling
    dataUIList: Any = None  # noqa: N815 - the key's spelling
    responseTimeSec: Any = None  # noqa: N815 - the key's spelling
    error: Any = None


def pyarrow_and_msgspec(file: Made) -> Found:
    """The fastest libraries there are: one column as one block, and the four keys alone."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    decode = msgspec.json.Decoder(_Answer).decode
    rows = timed = 0
    for batch in file[2]:
        table = arrow.read_csv(
            io.BytesIO(batch.data),
            read_options=arrow.ReadOptions(use_threads=False, block_size=2 * BLOCK_BYTES, column_names=list(file[1])),
            parse_options=arrow.ParseOptions(newlines_in_values=True),
            convert_options=arrow.ConvertOptions(include_columns=["Raw JSON"], column_types={"Raw JSON": pa.binary()}),
        )
        for value in table.column(0):
            rows += 1
            try:
                timed += type(decode(value.as_buffer()).responseTimeSec) in (int, float)
            except msgspec.DecodeError:
                continue
    return rows, timed


WAYS = (evalq, python_alone, csv_and_json, pandas_and_json, pyarrow_and_msgspec)


def measured(file: Made, times: int) -> dict[str, list[float]]:
    """CPU seconds of each way, in turn; all have found the same."""
    seconds: dict[str, list[float]] = {ways.__name__: [] for ways in WAYS}
    for _ in range(times):
        found = set()
        for ways in WAYS:
            began = time.process_time()
            found.add(ways(file))
            seconds[ways.__name__].append(time.process_time() - began)
        assert len(found) == 1, found
    return seconds


def main() -> None:
    """Print a Markdown table: microseconds a row, and how many times the rows of each rival evalq does."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.kernel")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=7)
    asked = parser.parse_args()
    print(f"one core, medians of {asked.times}, rows read by {way()}\n")
    print("| rows | way | us a row | evalq does |\n| --- | --- | ---: | ---: |")
    shapes = {"made": None, "made, shorter": shorter, "each unlike any other": unlike}
    for name, change in shapes.items():
        file = made(asked.rows, change)
        seconds = measured(file, asked.times)
        for rival, spent in seconds.items():
            ratio = statistics.median(b / a for a, b in zip(seconds["evalq"], spent, strict=True))
            label = f"{name}, {len(file[0]) / asked.rows / 1000:.1f} kB" if rival == "evalq" else ""
            each = statistics.median(spent) / asked.rows * 1e6
            print(
                f"| {label} | {rival.replace('_', ' ')} | {each:.1f} | {'' if rival == 'evalq' else f'{ratio:.1f} x'} |"
            )


if __name__ == "__main__":
    main()
