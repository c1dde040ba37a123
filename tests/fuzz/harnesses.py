"""One function a reader: any bytes give a result or a documented error, with places and reasons, in bounded size."""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Batch, Evaluator, Params
from evalq.evalcore.contract.params import load_mapping, validate
from evalq.evalcore.contract.partial import Partial, decode, encode
from evalq.evalcore.errors import EvalqError, InputError, WireError
from evalq.evalcore.evaluators.checks import VOCABULARY, BadCheck, CheckedAnswer, ChecksParams, Usage, load_cases
from evalq.evalcore.evaluators.checks.check import compile_check
from evalq.evalcore.evaluators.checks.score import OutputScorer
from evalq.evalcore.evaluators.cooperation.experiment import load_experiment
from evalq.evalcore.evaluators.planagent import PlanParams
from evalq.evalcore.evaluators.planagent.chunk import score_rows
from evalq.evalcore.evaluators.planagent.compiled import evaluate_batch
from evalq.evalcore.evaluators.planagent.record import read_answer
from evalq.evalcore.evaluators.vs.golden import load_golden
from evalq.evalcore.evaluators.vs.params import LEVELS, default_agents
from evalq.evalcore.fold import Fold, InputSummary
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.model.manifest import BOM, Chunk, Format, Header, Seal, from_wire, to_wire
from evalq.evalcore.records.cut import Cutter
from evalq.evalcore.records.digests import answer_digest, chunk_digest
from evalq.evalcore.records.inputs import Source, read_columns, spool
from evalq.producer.folder.files import JOURNAL, MANIFEST
from evalq.producer.folder.journal import Journal
from evalq.producer.folder.manifest import Manifest
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.importing import sources
from evalq.producer.importing.imported import ImportRequest, write
from evalq.producer.suites.suite_file import load_suite
from evalq.workers.broker.message import MAX_HINT_BYTES, read_hint
from evalq.workers.settings import load_settings
from tests.samples import KEY, sampled

Harness = Callable[[bytes], None]
_MOST_BYTES = 2 << 20


@contextlib.contextmanager
def _documented(*kinds: type[EvalqError]) -> Iterator[None]:
    """Only errors of these kinds, which say something, in bounded length."""
    expected: tuple[type[EvalqError], ...] = kinds or (EvalqError,)
    try:
        yield
    except expected as error:
        text = str(error)
        assert text.strip(), "an error without a word"
        assert len(text) < 200_000, f"an error of {len(text)} characters"
        for where, reason in getattr(error, "faults", ()):
            assert where, "a fault without a place"
            assert reason, "a fault without a reason"


@contextlib.contextmanager
def _file(data: bytes, name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evalq-fuzz-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        yield path


def _cut(data: bytes, fmt: Format) -> None:
    """Spans cover the input without gap or overlap, whatever the chunk size."""
    with _documented(InputError):
        for size in (None, 1, 3):
            cutter = Cutter(io.BytesIO(data), fmt, "x", size=size, key=KEY)
            start = len(cutter.header()) if fmt == "csv" else 0
            spans = list(cutter.spans())
            assert not spans or spans[-1].end == len(data)
            assert all(a.end == b.start for a, b in pairwise(spans))
            assert all(chunk_digest(data[s.start : s.end], KEY) == s.digest for s in spans)
            assert start <= len(data)


@cache
def _subject(name: str) -> tuple[Evaluator[Any, Any], Params, bytes]:
    """An evaluator, parameters it works with, and the first input of its sample."""
    evaluator = plugins.get(name)
    with tempfile.TemporaryDirectory(prefix="evalq-fuzz-") as folder:
        request = evaluator.command.request(sampled(evaluator, Path(folder), 6))
        data = Path(request.inputs[0]).read_bytes()
    return evaluator, validate(evaluator.Params, request.params, name), data


def _evaluate(name: str, data: bytes) -> None:
    """A whole input of an evaluator, folded to a report: every fault has a place and a reason."""
    evaluator, params, _ = _subject(name)
    with _documented(), tempfile.TemporaryDirectory(prefix="evalq-fuzz-") as scratch:
        fold = Fold(evaluator, params, 1)
        cutter = Cutter(io.BytesIO(data), evaluator.records.format, "x", size=2)
        header = cutter.header() if evaluator.records.format == "csv" else b""
        columns = read_columns(header, "x", evaluator.records.columns) if header.strip() else ()
        for span in cutter.spans():
            batch = Batch("x", span.first_line, data[span.start : span.end], columns)
            fold.add(0, decode(encode(evaluator.evaluate(batch, params)), evaluator))
        report, lines = fold.finish([InputSummary("x", "x", cutter.sha256)], lambda _: io.BytesIO(data), Path(scratch))
        assert len(canonical_json(report)) < _MOST_BYTES + 400 * len(data)
        assert sum(map(len, lines)) < _MOST_BYTES + 400 * len(data)
        assert all(fault["where"].startswith("x") and fault["reason"] for fault in report["faults"])
        evaluator.views.markdown(report, {})


def _partial(data: bytes) -> None:
    """As packed bytes, and as the unpacked content of a partial whose digest is right."""
    for name in plugins.names():
        for packed, plain in ((data, data), (zstandard.ZstdCompressor(level=1).compress(data), data)):
            with _documented(WireError):
                decode(Partial(answer_digest(plain), packed), plugins.get(name))


def _plan(data: bytes) -> None:
    """What is read as a part of a plan can be written and read again."""
    for kind in (Header, Chunk, Seal):
        with _documented(WireError):
            part: Any = from_wire(data, kind)  # type: ignore[type-var]  # each of the three in turn
            assert from_wire(to_wire(part), kind) == part  # type: ignore[type-var]  # as above


def _manifest(data: bytes) -> None:
    with _file(data, MANIFEST) as path, _documented(WireError):
        manifest = Manifest(RunFolder(path.parent))
        header = manifest.load()
        assert [chunk.seq for chunk in manifest.chunks] == list(range(len(manifest.chunks)))
        assert all(chunk.input < len(header.inputs) for chunk in manifest.chunks)


def _journal(data: bytes) -> None:
    with _file(data, JOURNAL) as path, _documented(WireError):
        journal = Journal(RunFolder(path.parent))
        held = list(journal.replay())
        journal.close()
        again = Journal(RunFolder(path.parent))
        assert list(again.replay()) == held
        again.close()


def _file_with(name: str, read: Callable[[Path], object], data: bytes) -> None:
    with _file(data, name) as path, _documented():
        read(path)


def _spool(suffix: str, data: bytes) -> None:
    with _file(data, "x.jsonl" + suffix) as path, _documented(InputError):
        spool(Source("x.jsonl", str(path), str(path)), path.parent / "spool", most=1 << 20)


def _hint(data: bytes) -> None:
    with _documented(WireError):
        _, hint = read_hint(data)
        assert len(data) <= MAX_HINT_BYTES
        assert hint.seq >= 0


def _compiled(data: bytes) -> None:
    """Compiled code gives what Python gives; nothing to do where there is none."""
    evaluator, params, sample = _subject("planagent")
    assert isinstance(params, PlanParams)
    header, _, _ = sample.removeprefix(BOM).partition(b"\n")
    body = data.removeprefix(BOM).removeprefix(header + b"\n")
    batch = Batch("x", 2, body, read_columns(header, "x", evaluator.records.columns))
    assert encode(evaluate_batch(batch, params)) == encode(score_rows(batch, params))


def _cases(name: str, data: bytes) -> None:
    """Cases that are read can be checked: each gives a verdict on a text, on JSON and on nothing at all."""
    with _file(data, name) as path, _documented():
        params = validate(ChecksParams, {"cases": [case.params for case in load_cases([path])]}, "cases")
        judge = OutputScorer(params)
        for case in params.cases[:5]:
            for output in (b'"a 12"', b'{"a": [1]}', b"null"):
                line = b'{"case": ' + msgspec.json.encode(case.id) + b', "output": ' + output + b"}"
                assert judge.test(line).status in ("passed", "failed", "error")


_RECORD: dict[str, Any] = {"turns": 2, "finish": "stop", "extra": {"a": [1]}, "messages": []}
_CALLS: list[Any] = [
    [{"name": "a", "arguments": {"x": 1}, "result": "b"}, {"name": "a", "arguments": "{", "error": "c"}],
    [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "result": {"a": 1}}, {"name": "a", "arguments": {"x": 1.0}}],
    [{"name": "a", "error": "down"}, {"name": "a", "arguments": "{", "result": [1]}],
    [7],
]


def _check(data: bytes) -> None:
    """What is a check gives the opposite of its negation, on any answer, or neither holds."""
    try:
        written = msgspec.json.decode(data, type=dict[str, Any])
        check = compile_check(written)
        name = next(key for key in written if key.removeprefix("not-") in {*VOCABULARY, "any", "all", "at-least"})
        turned = name[4:] if name.startswith("not-") else f"not-{name}"
        other = compile_check({turned if key == name else key: value for key, value in written.items()})
    except (BadCheck, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    outputs = (data.decode("utf-8", "replace"), written, None, "a 12")
    answers = [CheckedAnswer(output, None, Usage(1, 1, 1, 1), []) for output in outputs]
    answers += [CheckedAnswer("a", None, Usage(1, 1, 1, 1, 1), calls, record=_RECORD) for calls in _CALLS]
    for answer in answers:
        one, two = (each.judge(answer) for each in (check, other))
        assert (one.passed is None) == (two.passed is None)
        assert one.looked == two.looked
        assert not (one.passed and two.passed)
        assert not one.looked or one.passed is None or one.passed is not two.passed


def _import(source: str, name: str, data: bytes) -> None:
    """What is imported is what evalq takes: its cases can be read again."""
    with _file(data, name) as path, _documented():
        imported = sources.read(source, path, ImportRequest(("equals",)))
        if imported.cases:
            wrote = write(imported, path.parent / "out", force=False)
            load_cases([each for each in wrote.files if each.stem == "cases"])


def _answer(data: bytes) -> None:
    read_answer(data.decode("utf-8", "replace"))


HARNESSES: dict[str, Harness] = {
    "hint": _hint,
    "cut-jsonl": partial(_cut, fmt="jsonl"),
    "cut-csv": partial(_cut, fmt="csv"),
    **{name: partial(_evaluate, name) for name in plugins.names()},
    **{f"cases-{ending}": partial(_cases, f"cases.{ending}") for ending in ("yaml", "jsonl", "csv")},
    "check": _check,
    **{f"import-{name}": partial(_import, name, "given.json") for name in sources.names()},
    "planagent-answer": _answer,
    "planagent-compiled": _compiled,
    "cooperation-config": partial(_file_with, "config.json", load_experiment),
    "partial": _partial,
    "plan": _plan,
    "manifest": _manifest,
    "journal": _journal,
    "golden": partial(_file_with, "golden.yaml", lambda path: load_golden(path, default_agents(), LEVELS)),
    "suite": partial(_file_with, "suite.yaml", load_suite),
    "settings": partial(_file_with, "settings.yaml", load_settings),
    "mapping": partial(_file_with, "params.json", load_mapping),
    "gz": partial(_spool, ".gz"),
    "zst": partial(_spool, ".zst"),
}


def seeds(name: str) -> list[bytes]:
    """Inputs to begin with: what the reader takes, where that is at hand."""
    line = b'{"turn": 1, "agent": "a", "decision": "join", "resources": {"stone": 3}}\n'
    chunk = Chunk(0, 0, 0, 4, 1, 1, "0" * 64)
    body = base64.b64encode(b'[["r",3,0],{},{"callbacks":null}]').decode()
    headers, packing = '{"task":"evalq.evaluate","id":"r/3/0/ab"}', '{"body_encoding":"base64"}'
    hint = f'{{"body":"{body}","content-type":"application/json","headers":{headers},"properties":{packing}}}'
    case = b'{"id": "a", "vars": {"x": 1}, "expected": "{{x}}", "checks": [{"not-any": [{"number": 3}]}, "equals"]}'
    promptfoo = b'{"prompts": ["{{q}}"], "tests": [{"vars": {"q": 1}, "assert": [{"type": "equals", "value": "a"}]}]}'
    made: dict[str, list[bytes]] = {
        "cases-yaml": [b"defaults: {tags: [x]}\ncases: [" + case + b"]\n"],
        "cases-jsonl": [case + b"\n"],
        "cases-csv": [b'id,expected,vars.x,checks\na,{{x}},1,"[{""contains"": ""1""}]"\n'],
        "check": [
            b'{"at-least": [{"number": 12, "which": "last"}, {"not-json-path": "$.a", "is": 1}], "count": 1}',
            b'{"json-schema": {"type": "array", "items": {"pattern": "^a"}}, "weight": 2, "at": "$.a"}',
            b'{"edit-similarity": "abc", "threshold": 0.5, "normalize": "nfc"}',
            b'{"tool-sequence": ["a", {"name": "a*", "schema": {"required": ["x"]}}], "order": "prefix"}',
            b'{"tool-args": "a", "arguments": {"x": 1}, "tolerance": 0.5, "which": "any"}',
            b'{"tool-result": "*", "check": {"json-path": "$.a", "is": 1}, "which": 1}',
            b'{"all": [{"no-repeat": true, "tools": ["a"]}, {"recovers": null, "by": "any-tool"}, {"finish": "stop"}]}',
            b'{"any": [{"forbidden-tools": ["a"]}, {"first-token": 1}, {"equals": 1, "at": "$record"}]}',
        ],
        "import-promptfoo": [promptfoo],
        "import-deepeval": [b'[{"input": "a", "actual_output": "b", "expected_output": "b", "tags": ["x"]}]'],
        "hint": [hint.encode()],
        "cut-csv": [b'a,b\n1,"x ""y""\n2"\n'],
        "plan": [to_wire(chunk), to_wire(Seal(1, ("0" * 64,)))],
        "manifest": [b'{"chunk":' + to_wire(chunk) + b"}\n"],
        "golden": [b"test_cases:\n  full_vs_tests:\n    - {id: x, agent: y, input: {a: 1}, expected: {t: '>= 3'}}\n"],
        "suite": [b"suite: a\nruns:\n  - {evaluator: planagent, inputs: [x.csv], params: {}}\n"],
        "settings": [b"window: 3\nroots: [a]\n"],
        "gz": [gzip.compress(line, mtime=0)],
        "zst": [zstandard.ZstdCompressor().compress(line)],
        "partial": [b'[{},{"scored":1}]\n{"record":"x:1"}'],
        "planagent-answer": [b'{"plan": [1, {"a": null}]}'],
    }
    if name in plugins.names():
        return [_subject(name)[2]]
    if name == "planagent-compiled":
        return [_subject("planagent")[2]]
    return made.get(name, [line])
