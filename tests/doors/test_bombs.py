"""Small things that stand for huge ones: packed inputs, packed answers, YAML aliases, deep nesting."""

from __future__ import annotations

import gzip
import json
import re
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest
import zstandard

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.contract.params import load_mapping
from evalq.evalcore.contract.partial import MAX_PARTIAL_BYTES, Partial, decode
from evalq.evalcore.errors import ConfigError, InputError, WireError
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.model.manifest import Chunk
from evalq.evalcore.records.digests import answer_digest, chunk_digest
from evalq.producer.suites.suite_file import load_suite
from evalq.workers.inputs import CHANGED, unpack_blob
from evalq.workers.settings import load_settings
from tests.integration.harness import EVALQ, clean_environment, evalq
from tests.samples import KEY, sampled

MEBI = 1 << 20
LIMITED = 600 * MEBI
"""Address space a command in these tests may take beside what the interpreter and its libraries map."""


def _gz_of(path: Path, byte: bytes, gib: int) -> None:
    """``gib`` GiB of one byte in about 1 MB a GiB: gzip members in a row are one file."""
    member = gzip.compress(byte * (64 * MEBI), compresslevel=9)
    with path.open("wb") as out:
        for _ in range(gib * 16):
            out.write(member)


def _run_small(*args: str, cwd: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """A command's end, and the most memory (KiB) it held at once."""
    script = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]); "
        "print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); "
        "sys.exit(done.returncode)"
    )
    done = subprocess.run(
        [EVALQ[0], "-c", script, *EVALQ, *args],
        cwd=cwd,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    said, _, peak = done.stderr.rpartition("peak ")
    done.stderr = said
    return done, int(peak)


@pytest.mark.parametrize(("byte", "said"), [(b"\0", "a record longer than 64 MiB"), (b"\n", "raise unpack_bytes")])
def test_ten_gigabytes_in_ten_megabytes(tmp_path: Path, byte: bytes, said: str) -> None:
    """A .gz of 10 GB of zeros, or of blank lines: exit 2, why and what could be raised, flat memory, nothing left."""
    _gz_of(tmp_path / "rows.csv.gz", byte, 10)
    assert (tmp_path / "rows.csv.gz").stat().st_size < 12 * MEBI
    done, peak = _run_small("planagent", "rows.csv.gz", "--inline", cwd=tmp_path, EVALQ_UNPACK_BYTES="300000000")
    assert done.returncode == 2, done.stderr
    assert "rows.csv.gz: " in done.stderr
    assert said in done.stderr
    assert peak < 400_000, f"{peak} KiB"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv.gz"]


def test_a_zstandard_bomb(tmp_path: Path) -> None:
    """The same as .zst, a gigabyte in 100 KB."""
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    with (tmp_path / "rows.csv.zst").open("wb") as out:
        for _ in range(16):
            out.write(packer.compress(b"\n" * (64 * MEBI)))
        out.write(packer.flush())
    done, peak = _run_small("planagent", "rows.csv.zst", "--inline", cwd=tmp_path, EVALQ_UNPACK_BYTES="100000000")
    assert done.returncode == 2
    assert "raise unpack_bytes" in done.stderr
    assert peak < LIMITED >> 10, f"{peak} KiB"


def test_what_unpacks_below_the_limit_is_taken(tmp_path: Path) -> None:
    """The limit is of the bytes unpack_blob, to the byte."""
    line = b'{"turn": 1, "agent": "a", "decision": "join", "resources": {"stone": 3}}\n'
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(line * 10))
    args = ("cooperation", "x.jsonl.gz", "--inline", "--format", "none", "--out")
    assert evalq(*args, "a", cwd=tmp_path, EVALQ_UNPACK_BYTES=str(len(line) * 10)).returncode == 0
    assert evalq(*args, "b", cwd=tmp_path, EVALQ_UNPACK_BYTES=str(len(line) * 10 - 1)).returncode == 2


def _chunk(data: bytes) -> Chunk:
    return Chunk(0, 0, 0, len(data), 1, 1, chunk_digest(data, KEY))


def test_a_bomb_for_a_blob() -> None:
    """A packed input in the ledger that unpacks to a gigabyte, or says so, is CHANGED, and takes no memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bomb = zstandard.ZstdCompressor().compress(bytes(512 * MEBI))
    after_making = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert unpack_blob(bomb, _chunk(b"x" * 100), KEY) == CHANGED
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 100)
    assert unpack_blob(silent, _chunk(b"x" * 100), KEY) == CHANGED, "evalq writes the size"
    lying = bytearray(zstandard.ZstdCompressor().compress(bytes(300 * MEBI)))
    assert unpack_blob(bytes(lying), _chunk(bytes(10)), KEY) == CHANGED
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss <= max(before, after_making) + 350_000


def test_a_bomb_for_a_partial() -> None:
    """A partial that unpacks to more than MAX_PARTIAL_BYTES is refused by what its frame says, before unpacking."""
    bomb = _announcing(MAX_PARTIAL_BYTES + 1)
    with pytest.raises(WireError, match="unpacks to more than"):
        decode(Partial("0" * 64, bomb), plugins.get("planagent"))


def _announcing(size: int) -> bytes:
    """A zstandard frame whose header announces ``size`` bytes."""
    return b"\x28\xb5\x2f\xfd\xc0\x00" + size.to_bytes(8, "little") + b"\x01\x00\x00"


def test_nesting_in_a_partial() -> None:
    """Brackets without end in state or tally are a WireError, not a crash."""
    for name in plugins.names():
        for plain in (b"[" * 100_000, b"[" + b"[" * 100_000 + b"]" * 100_000 + b",{}]", b'[{"a":' * 50_000):
            packed = zstandard.ZstdCompressor().compress(plain)
            with pytest.raises(WireError):
                decode(Partial(answer_digest(plain), packed), plugins.get(name))


LAUGHS = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
)
MERGES = "\n".join(
    ["m0: &m0 {k: v}"] + [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}], k{n}: v}}" for n in range(1, 12)]
)
QUADRATIC = f"text: &t {'x' * 100_000}\nall: [{', '.join(['*t'] * 10_000)}]"
BOMBS = {"laughs": LAUGHS, "merge keys": MERGES, "a long text, often": QUADRATIC, "itself": "a: &a [x, *a]"}


@pytest.mark.parametrize("bomb", BOMBS)
def test_yaml_aliases(tmp_path: Path, bomb: str) -> None:
    """Aliases that stand for gigabytes are refused with file and line, in every file a user can give."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    file = tmp_path / "bomb.yaml"
    file.write_text(BOMBS[bomb])
    for load in (load_mapping, load_suite, load_settings):
        with pytest.raises(ConfigError, match=rf"{file}:\d+: not YAML: (too large|an alias inside)"):
            load(file)
    rows = tmp_path / "x.jsonl"
    rows.write_text('{"agent": "a", "test_id": "t", "output": {}}\n')
    for args in (
        ("vs", "bomb.yaml", "--outputs", "x.jsonl", "--inline"),
        ("cooperation", "x.jsonl", "--rules", "bomb.yaml", "--inline"),
        ("planagent", "x.jsonl", "--params", "bomb.yaml", "--inline"),
        ("run", "bomb.yaml"),
        ("worker", "--settings", "bomb.yaml"),
    )[:: 1 if bomb == "laughs" else 5]:
        done = evalq(*args, cwd=tmp_path)
        assert done.returncode == 2, (args, done.stderr)
        assert "bomb.yaml" in done.stderr, args
        assert "Traceback" not in done.stderr
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 300_000


def test_aliases_that_say_what_they_say(tmp_path: Path) -> None:
    """Anchors, aliases and merge keys of ordinary size work."""
    (tmp_path / "a.yaml").write_text("base: &b {x: 1, y: [1, 2]}\nother: {<<: *b, x: 2}\nlist: [*b, *b]\n")
    base = {"x": 1, "y": [1, 2]}
    assert load_mapping(tmp_path / "a.yaml") == {"base": base, "other": base | {"x": 2}, "list": [base, base]}


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_nesting_in_a_file_of_parameters(tmp_path: Path, suffix: str) -> None:
    """100,000 brackets: the file's name and the reason."""
    file = tmp_path / f"deep{suffix}"
    for text in ('{"a": ' + "[" * 100_000, '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"):
        file.write_text(text)
        with pytest.raises(ConfigError, match=str(file)):
            load_mapping(file)


DEEP = "[" * 200_000


@pytest.mark.parametrize("name", [name for name in plugins.built_in() if plugins.get(name).records.format == "jsonl"])
def test_nesting_in_an_input(tmp_path: Path, name: str) -> None:
    """A line of 200,000 brackets, alone, closed, or inside a field, is that line's fault and nobody else's."""
    evaluator: Evaluator[Any, Any] = plugins.get(name)
    asked = evaluator.command.request(sampled(evaluator, tmp_path, 20))
    path, closed = Path(asked.inputs[0]), DEEP + "]" * len(DEEP)
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    calm = len(evaluate_files(evaluator, [path], asked.params).report["faults"])
    fields = {"turn": 2, "agent": "b", "output": "@", "actual_output": "@"}
    for bad in (DEEP, closed, json.dumps(fields).replace('"@"', closed)):
        path.write_text("\n".join([first, bad, *rest]) + "\n", encoding="utf-8")
        try:
            faults = [fault["where"] for fault in evaluate_files(evaluator, [path], asked.params).report["faults"]]
        except InputError as error:  # of an evaluator that wants the whole of its input
            faults = re.findall(r"\S+:\d+(?=: )", str(error))
        assert f"{path.name}:2" in faults
        assert len(faults) == calm + 1


def test_nesting_in_a_csv_field(tmp_path: Path) -> None:
    """An answer of 200,000 brackets in a plan agent's row: the row is counted, and the rest are evaluated."""
    header = "Run ID,Item ID,Query ID,질의,기대결과,카테고리,방/반복,오류,LLM 상태,LLM 점수,LLM 코멘트,Raw JSON"
    rows = [f"r,i{n},q,ask,expect,c,1/{n},,,,,{raw}" for n, raw in ((1, "{}"), (2, DEEP), (3, "{}"))]
    (tmp_path / "x.csv").write_text("\n".join([header, *rows]) + "\n")
    report = evaluate_files("planagent", [tmp_path / "x.csv"]).report
    assert report["records"]["total"] == 3
