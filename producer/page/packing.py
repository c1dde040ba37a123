"""Records packed for a page's table: compressed columns of some thousand rows each, as text.

All failed and undecided records are kept; of the others in a big run, a sample with a fixed seed. Memory
does not grow with the number of records: blocks are written as they fill up.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import random
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, report_language
from evalq.evalcore.errors import EvalqError, WireError
from evalq.evalcore.files import open_input, replacing
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import Evidence, Row, Rows
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.page.answers import RecordedAnswers, ShownAnswer, about, served_by
from evalq.producer.page.build import FailedRecord, Listing, Section, build_page
from evalq.producer.page.conversation import ShownCall
from evalq.producer.page.render import after_blocks, before_blocks
from evalq.producer.page.words import word, written_in

ALL_UP_TO = 100_000
"""For runs with more records, the table has a sample of passed ones, and is made only on request."""
_ROWS, _EXPLAINED = 5_000, 500
_EVIDENCE_BYTES = 4_000_000
"""Room for evidence; larger pages are slow to open."""
_ANSWER_BYTES, _ANSWERS = 1_000_000, 20_000
"""Room for questions and answers; very many short ones would take seconds."""
_ROWS_BYTES = 4_500_000
"""Room for the rows of each 100,000 records."""
_BLOCK_CHARACTERS = 1 << 20
_TEXT, _ID, _PIECES, _ANSWER = 400, 200, 40, 2_000
_LEAST = 16
_FIRST = 20
_SEED = 20260224
_FAILED = frozenset({"bad", "doubtful"})


def pack(
    lines: Iterable[bytes],
    rows: Rows,
    report: Mapping[str, Json],
    out: BinaryIO,
    answers: RecordedAnswers | None = None,
) -> Listing:
    """Write the blocks of all ``lines`` of records.jsonl to ``out``, and return their listing.

    Raises WireError for a damaged line.
    """
    packing = _Packing(rows, int(report["records"]["total"]), out, answers)
    decode, see = msgspec.json.Decoder(rows.line).decode, rows.reader(report)
    for number, line in enumerate(lines, start=1):
        try:
            row = see(decode(line))
        except (msgspec.DecodeError, RecursionError) as error:
            raise WireError(f"line {number} of records.jsonl is damaged: {error}") from error
        if row is not None:
            packing.add(row)
    packing.flush()
    return packing.listing


class _Packing:
    """Fills the blocks."""

    def __init__(self, rows: Rows, total: int, out: BinaryIO, answers: RecordedAnswers | None) -> None:
        self.listing = Listing(rows.columns, answers=answers is not None)
        self._recorded = answers
        self._answers: list[tuple[Any, ...]] = []
        self._answered = self._answer_pending = 0
        self._answer_room = _ANSWER_BYTES
        self._out = out
        self._share = ALL_UP_TO / total if total > ALL_UP_TO else 1.0
        # Seeded, so that the same report gives the same page.
        self._draw = random.Random(_SEED).random  # noqa: S311 - a sample, and no secret
        self._rows: list[list[Any]] = []
        self._characters = 0
        self._texts = _TextRoom(total)
        self._evidence: list[list[tuple[Any, ...]]] = []
        self._pending = 0
        self._room = _EVIDENCE_BYTES

    def add(self, row: Row) -> None:
        """Count a record, and keep it if it failed or is in the sample."""
        listing, failed = self.listing, row.state in _FAILED
        listing.total += 1
        key = (row.status, row.state)
        listing.statuses[key] = listing.statuses.get(key, 0) + 1
        if not failed and self._share < 1.0 and self._draw() >= self._share:
            return
        listing.kept += 1
        most = self._texts.most
        named = min(_ID, 2 * most)
        record, identity, reason = row.record[:named], row.id[:named], _shortened(row.reason, most)
        self._characters += len(record) + len(identity) + len(row.status) + len(reason)
        kept: list[Any] = [record, identity, row.status, self._explain(row) if failed else -1, reason]
        for cell in row.cells:
            if isinstance(cell, str):
                text = _shortened(cell, most)
                self._characters += len(text)
                kept.append(text)
            else:
                kept.append(cell)
        if self._recorded is not None:
            kept.append(self._answer(row, self._recorded, failed=failed))
        self._rows.append(kept)
        if len(self._rows) == _ROWS or self._characters >= _BLOCK_CHARACTERS:
            self._flush_rows()

    def _explain(self, row: Row) -> int:
        """Keep a failed record's evidence; its number, or -1 without room."""
        listing = self.listing
        listing.failed += 1
        first = len(listing.first) < _FIRST
        if self._room - self._pending <= 0 and not first:
            return -1
        failed = failed_record(row)
        if first:
            listing.first.append(failed)
        self._evidence.append([msgspec.structs.astuple(piece) for piece in failed.evidence])
        self._pending += sum(len(piece.what) + len(piece.expected) + len(piece.came) for piece in failed.evidence)
        if len(self._evidence) == _EXPLAINED:
            self._flush_evidence()
        listing.explained += 1
        return listing.explained - 1

    def _answer(self, row: Row, recorded: RecordedAnswers, *, failed: bool) -> int:
        """Keep a record's question and answer; its number, or -1 without room. Half of the room is for failed ones."""
        listing = self.listing
        first = failed and listing.failed <= _FIRST
        full = self._answer_room - self._answer_pending <= (0 if failed else _ANSWER_BYTES // 2)
        if not first and (full or self._answered >= (_ANSWERS if failed else _ANSWERS // 2)):
            return -1
        found = recorded.of(row.record)
        if found is None:
            return -1
        question, answer = found
        if first:
            listing.first[-1] = replace(listing.first[-1], question=question, answer=brief(answer))
        asked = [[_shortened(each, _ANSWER) for each in message] for message in question.messages] if question else []
        tools = [] if answer.messages else _calls(answer.tools)
        talk = [[each.role, _shortened(each.text, _TEXT), _calls(each.calls)] for each in answer.messages[:_PIECES]]
        texts = (_shortened(answer.text, _ANSWER), _shortened(answer.error, _TEXT))
        facts = [(word(name), word(value)) for name, value in answer.facts()]
        self._answers.append((asked, *texts, tools, facts, talk))
        # Repeats have the same question, which takes no room when packed.
        self._answer_pending += sum(map(len, texts)) + len(msgspec.json.encode((tools, talk))) + 50
        self._answered += 1
        if len(self._answers) == _EXPLAINED:
            self._flush_answers()
        return self._answered - 1

    def flush(self) -> None:
        """Write what is left."""
        self._flush_rows()
        self._flush_evidence()
        self._flush_answers()

    def _flush_answers(self) -> None:
        if self._answers:
            self._answer_room -= self._write("answers", self._answers)
            self._answers.clear()
            self._answer_pending = 0

    def _flush_rows(self) -> None:
        if self._rows:
            self._texts.took(len(self._rows), self._write("rows", list(zip(*self._rows, strict=True))))
            self._rows.clear()
            self._characters = 0

    def _flush_evidence(self) -> None:
        if self._evidence:
            self._room -= self._write("evidence", self._evidence)
            self._evidence.clear()
            self._pending = 0

    def _write(self, kind: str, block: Any) -> int:
        packed = base64.b64encode(gzip.compress(msgspec.json.encode(block), 6, mtime=0))
        return self._out.write(b'<script type="text/plain" class="%s">%s</script>\n' % (kind.encode(), packed))


class _TextRoom:
    """The maximal length of a row's texts, adapted so that all rows fit."""

    def __init__(self, rows: int) -> None:
        self.most = _TEXT
        self._rows = max(1, rows)
        self._bytes = _ROWS_BYTES * max(1.0, rows / ALL_UP_TO)

    def took(self, rows: int, written: int) -> None:
        """Adapt to a written block."""
        self._rows, self._bytes = max(1, self._rows - rows), max(1.0, self._bytes - written)
        share = (self._bytes / self._rows) / (written / rows)
        self.most = max(_LEAST, min(_TEXT, round(self.most * min(2.0, max(0.5, share)))))


def _calls(calls: Sequence[ShownCall]) -> list[list[str | bool]]:
    """Calls for the page's script: name, arguments, outcome, and whether the call failed."""
    return [
        [call.name[:_ID], _shortened(call.arguments, _TEXT), _shortened(call.outcome, _TEXT), call.failed]
        for call in calls[:_PIECES]
    ]


def brief(answer: ShownAnswer) -> ShownAnswer:
    """An answer with a text of a page's length."""
    return answer._replace(text=_shortened(answer.text, _ANSWER))


def failed_record(row: Row) -> FailedRecord:
    """A record that failed with its evidence, both cut for a page."""
    evidence = tuple(_cut(piece) for piece in row.evidence()[:_PIECES])
    return FailedRecord(row.record, row.id, row.status, row.state, _shortened(row.reason, _TEXT), evidence)


def _cut(piece: Evidence) -> Evidence:
    return Evidence(
        _shortened(piece.what, _ID), _shortened(piece.expected, _TEXT), _shortened(piece.came, _TEXT), piece.fine
    )


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def language_of(evaluator: Evaluator[Any, Any], folder: RunFolder | None) -> str:
    """The language of a run's report: the one that was asked for, or that of the evaluator's own report."""
    options: Mapping[str, Any] = {}
    with contextlib.suppress(EvalqError, OSError):
        options = folder.info().request.options if folder is not None else options
    return report_language(evaluator, options)


def language_in(folder: RunFolder | None) -> str:
    """The language of the report in a run's folder; English without one, and for an evaluator that is not here."""
    with contextlib.suppress(EvalqError, OSError, KeyError):
        if folder is not None:
            return language_of(plugins.get(folder.report()["evaluator"]), folder)
    return "en"


# Records are packed first, since the page says how many are left out.

_IN_MEMORY = 16_000_000


def write_page(
    path: Path,
    evaluator: Evaluator[Any, Any],
    report: Mapping[str, Json],
    records: Path | None,
    first: Sequence[Section] = (),
    folder: RunFolder | None = None,
) -> None:
    """Write the page of ``report`` to ``path`` atomically; ``records`` is its records.jsonl. Without it the page has no
    table. The run's ``folder`` has its title's target, prompt and date, and its questions and answers.

    The same run gives the same bytes. Memory does not grow with the number of records. Raises OSError,
    and WireError for a damaged record.
    """
    with contextlib.ExitStack() as opened:
        opened.enter_context(written_in(language_of(evaluator, folder)))
        scratch = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(path.parent))  # noqa: SIM115 - the stack closes it
        blocks = cast("BinaryIO", opened.enter_context(scratch))
        listing = None
        if records is not None and records.is_file():
            answers = RecordedAnswers(folder) if folder is not None else None
            if answers is not None:
                opened.callback(answers.close)
            listing = pack(opened.enter_context(open_input(records)), evaluator.views.rows, report, blocks, answers)
        page = build_page(
            evaluator, report, listing, first, about(folder) if folder is not None else (), served_by(folder)
        )
        out = opened.enter_context(replacing(path))
        out.write(before_blocks(page))
        blocks.seek(0)
        shutil.copyfileobj(blocks, out, 1 << 20)
        out.write(after_blocks(page))
