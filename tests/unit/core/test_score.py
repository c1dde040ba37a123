"""Scores by a function of one's own: what it may return, which function it is, and who may name it."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from evalq import check_evaluator
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.scoring import name_scorer, scoring_function, split_scorer
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.score import read_score
from evalq.evalcore.version import code_now, code_version
from evalq.producer.cli import main
from evalq.workers.settings import load_settings

ROWS = [{"id": f"q{n % 7}", "repeat": n // 7, "size": n} for n in range(40)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with rows.jsonl; afterwards no function is named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    yield tmp_path
    name_scorer("")


def _write(text: str, name: str = "mine.py") -> str:
    Path(name).write_text(text)
    return name


def test_it_keeps_the_contract_of_evaluators(folder: Path) -> None:
    """With passes, scores, reasons, records without a score, exceptions and values that are no score."""
    _write(
        "import sys\n"
        "def score(record):\n"
        "    n = record['size']\n"
        "    return [True, n / 40, None, (0.2, 'long'), 1 / (n % 3), 'x'][n % 6] if n % 9 else sys.exit(0)\n"
    )
    name_scorer("mine.py")
    found = scoring_function()
    own = {"function": found.name, "source": found.source}
    check_evaluator(plugins.get("score"), [folder / "rows.jsonl"], params=[own, {**own, "passes_from": 0.1}])


@pytest.mark.parametrize(
    ("returned", "read"),
    [
        (True, (1.0, "")), (False, (0.0, "")), (0, (0.0, "")), (1, (1.0, "")), (0.25, (0.25, "")), (None, (None, "")),
        ((0.5, "half"), (0.5, "half")), ((None, "empty"), (None, "empty")),
    ],
)  # fmt: skip
def test_what_a_function_may_return(returned: Any, read: tuple[float | None, str]) -> None:
    assert read_score(returned) == read


class _Several:
    """As an array of two: it has no one number."""

    def __float__(self) -> float:
        raise TypeError("only length-1 arrays can be converted")


@pytest.mark.parametrize(
    "returned", ["1", b"1", [1], {}, (1,), (0.5, 1), (1, "a", "b"), -0.1, 1.01, float("nan"), float("inf"), 10**400, 1j]
)  # fmt: skip
def test_all_else_is_no_score(returned: Any) -> None:
    """And the message says what to return, not what failed inside of evalq."""
    with pytest.raises(ValueError, match=r"return True, False|not from 0 to 1|return None|return one from 0 to 1"):
        read_score(returned)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (10**400, "its score is a number too large for a score, not from 0 to 1: divide by the most"),
        (Fraction(10**400), "its score is a number too large for a score"),
        (float("inf"), "its score is inf, not from 0 to 1"),
        (float("nan"), "its score is nan, not a number: return None for no score"),
        (_Several(), "the function returned _Several, which is no single number"),
    ],
)
def test_a_score_that_is_none_is_called_what_it_is(returned: Any, says: str) -> None:
    """A number too large was called nan."""
    with pytest.raises(ValueError, match=re.escape(says)):
        read_score(returned)


@pytest.mark.parametrize(
    ("spec", "text", "says"),
    [
        ("mine.py", "def score(r): return 1\ndef other(r): return 0\n", "mine:score"),
        ("mine.py", "import json\ndef only(r): return 1\ndef _help(r): return 0\n", "mine:only"),
        ("mine.py:other", "def score(r): return 1\ndef other(r): return 0\n", "mine:other"),
        ("mine.py", "class Scorer:\n    def __call__(self, r): return 1\nscore = Scorer()\n", "mine:score"),
        ("mine.py", "def score(r, limit=100, *more, **keys): return 1\n", "mine:score"),
        ("mine.py", "def score(*records): return 1\n", "mine:score"),
    ],
)
def test_the_function_is_found(folder: Path, spec: str, text: str, says: str) -> None:
    _write(text)
    name_scorer(spec)
    assert scoring_function().name == says


@pytest.mark.parametrize(
    ("spec", "text", "says"),
    [
        ("mine.py", "def a(r): return 1\ndef b(r): return 0\n", "name one, as mine.py:a"),
        ("mine.py:c", "def a(r): return 1\n", "no function c"),
        ("mine.py", "x = 1\n", "define one"),
        ("mine.py", "1 / 0\n", "ZeroDivisionError"),
        ("mine.py", "def score(r): return 1\nimport sys\nsys.exit(0)\n", "SystemExit: 0"),
        ("mine.py", "def score(r:\n", "SyntaxError"),
        ("mine.py", "\0", "cannot be loaded"),
        ("mine.py", "async def score(r): return 1\n", "async"),
        ("mine.py", "import nowhere_at_all\n", "nowhere_at_all"),
        ("mine.py", "import rows\n", "cannot import files beside it"),
        ("mine.py", "import rows.inner\n", "cannot import files beside it"),
        ("mine.py", "def score(output): return len(output) <= 100\n", 'def score(record), and read record["output"]'),
        ("mine.py", "def score(r: str): return 1\n", "one dict, the record"),
        ("mine.py", "def score(output, expected): return 1\n", "score(output, expected) expects"),
        ("mine.py", "def score(): return 1\n", "score() expects"),
        ("mine.py", "def score(*, record): return 1\n", "score(*, record) expects"),
        ("mine.py:K", "class K: pass\n", "K() expects"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(folder: Path, spec: str, text: str, says: str) -> None:
    _write(text)
    Path("rows.py").write_text("")
    name_scorer(spec)
    with pytest.raises(ConfigError, match=r"mine\.py") as error:
        scoring_function()
    assert says in str(error.value)


@pytest.mark.parametrize("spec", ["rows.jsonl", "mine", "mine.py:", "mine.py:a.b", "mine.py:1", "gone.py", ".", "/"])
def test_what_is_no_file_is_refused_at_once(folder: Path, spec: str) -> None:
    _write("def a(r): return 1\n")
    with pytest.raises(ConfigError):
        load_settings(scorer=spec)


def test_a_record_at_which_the_function_exits_is_an_error(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In this process as in others: neither the run nor the command ends by it."""
    _write(
        "import sys\n"
        "def score(r): return 1 if r['size'] else sys.exit('away\\nGO: all is well\\n::error::x ##[error]y')\n"
    )
    for where in ("--inline", "--workers=1"):
        assert main(["score", "mine.py", "rows.jsonl", where, "--out", where, "--format", "none"]) == 0
        report = json.loads((folder / where / "report.json").read_bytes())
        assert (report["records"]["errors"], report["results"]["passed"]) == (1, len(ROWS) - 1)
        lines = capfd.readouterr().err.splitlines()
        fault = next(line for line in lines if line.startswith("fault: "))
        assert "SystemExit: away GO: all is well ::error::x" in fault
        assert not any(line.startswith(("GO", "::")) or "##[" in line for line in lines)


def test_faults_of_one_reason_are_one_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A bug in the function fails every record alike: the others of its lines would hide what else there is."""
    Path("many.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(40)))
    _write("def score(r):\n    if r['n'] == 30: raise ValueError('rare')\n    return r['gone'] if r['n'] else 1\n")
    assert main(["score", "mine.py", "many.jsonl", "--out", "run", "--format", "none"]) == 0
    common, rare = [line for line in capfd.readouterr().err.splitlines() if line.startswith("fault: ")]
    assert common.startswith("fault: many.jsonl:2: KeyError: 'gone' ")
    assert common.endswith("(also many.jsonl:3, many.jsonl:4, ...)")
    assert rare.startswith("fault: many.jsonl:31: ValueError: rare ")
    assert "also" not in rare


def test_another_file_is_another_code(folder: Path) -> None:
    """So that no worker mixes scores of two versions; a process notices when the file changes under it."""
    without = code_version()
    name_scorer(_write("def score(r): return 1\n"))
    first = code_version()
    assert first != without
    assert code_now() == first
    _write("def score(r): return 0\n")
    assert (code_now() != first, code_version() == first) == (True, True)
    name_scorer("mine.py")
    assert code_version() == code_now() != first
    Path("mine.py").unlink()
    assert code_now() != code_version()
    name_scorer("")
    assert code_version() == without


def test_a_run_does_not_name_its_function(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither a suite nor a run folder makes evalq run a file; with the same file named, both work."""
    _write("def score(r): return r['size'] > 20\n")
    assert main(["score", "mine.py", "rows.jsonl", "--inline", "--out", "run"]) == 0
    name_scorer("")
    Path("evalq.yaml").write_text("{suite: s, runs: [{evaluator: score, inputs: [rows.jsonl]}]}")
    assert main(["run", "evalq.yaml", "--inline", "--out", "a"]) == 2
    assert "EVALQ_SCORER" in capfd.readouterr().err
    assert main(["run", "evalq.yaml", "--inline", "--out", "b", "--scorer", "mine.py"]) == 0
    (report,) = Path("b").glob("*/report.json")
    assert report.read_bytes() == Path("run/report.json").read_bytes()
    name_scorer("")
    for command in (["report", "run"], ["compare", "run", "run"], ["list"]):
        assert main(command) in (0, None)


def test_a_resume_needs_the_same_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Else answers of two functions would stand in one report."""
    stopping = "def score(r):\n    raise KeyboardInterrupt\n"
    _write(stopping)
    assert main(["score", "mine.py", "rows.jsonl", "--inline", "--out", "run"]) == 130
    name_scorer("")
    assert main(["resume", "run", "--inline"]) == 2
    assert "--scorer FILE.py" in capfd.readouterr().err
    _write("def score(r): return 0\n")
    assert main(["resume", "run", "--inline", "--scorer", "mine.py"]) == 2
    _write(stopping)
    assert main(["resume", "run", "--inline", "--scorer", "mine.py"]) == 130


def test_a_name_is_a_file_and_perhaps_a_function() -> None:
    assert split_scorer("a/b.py") == (Path("a/b.py"), "")
    assert split_scorer("a/b.py:c") == (Path("a/b.py"), "c")


def test_a_workbook_is_refused_with_what_to_do(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And no run begins."""
    _write("def score(r): return 1\n")
    Path("rows.XLSX").write_text("PK")
    assert main(["score", "mine.py", "rows.XLSX", "--inline"]) == 2
    assert "save the sheet as 'CSV UTF-8'" in capfd.readouterr().err
    assert not Path("evalq-runs").exists()


_ROWS = [
    {"qid": "a", "answer": "Seoul, the capital", "repeat": 0, "gold": ""},
    {"qid": "b", "answer": "Lyon", "repeat": 1, "gold": "x"},
]


def _laid_out() -> dict[str, bytes]:
    """The same two records in each layout."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    lines = b"".join(json.dumps(row).encode() + b"\n" for row in _ROWS)
    table = b'qid,answer,repeat,gold\na,"Seoul, the capital",0,\nb,Lyon,1,x\n'
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(_ROWS), out)
    return {
        "o.jsonl": lines,
        "o.ndjson": lines,
        "o.jsonl.gz": gzip.compress(lines),
        "o.json": json.dumps(_ROWS, indent=1).encode(),
        "o.csv": table,
        "o.csv.gz": gzip.compress(table),
        "o.tsv": table.replace(b'"Seoul, the capital"', b"Seoul; the capital").replace(b",", b"\t").replace(b";", b","),
        "o.parquet": out.getvalue(),
    }


def test_every_layout_gives_the_function_the_same_records(folder: Path) -> None:
    """With all columns and the mapped keys; a case is named by the mapped column, and a repeat is a number."""
    _write(
        "def score(r):\n"
        "    assert set(r) == {'qid', 'answer', 'repeat', 'gold', 'case', 'output'}, r\n"
        "    assert (r['output'], r['case']) == (r['answer'], r['qid'])\n"
        "    return ('Seoul, the' in r['output'], r['gold'])\n"
    )
    for name, data in _laid_out().items():
        Path(name).write_bytes(data)
        words = [
            "score",
            "mine.py",
            name,
            "--map",
            "output=answer,case=qid",
            "--inline",
            "--quiet",
            "--out",
            f"run-{name}",
        ]
        assert main([*words, "--format", "none"]) == 0
        found = [json.loads(line) for line in (Path(f"run-{name}") / "records.jsonl").read_text().splitlines()]
        assert [(each["id"], each["repeat"], each["status"]) for each in found] == [
            ("a", 0, "passed"),
            ("b", 1, "failed"),
        ]
        assert found[1]["reason"] == "x"
        page = (Path(f"run-{name}") / "report.html").read_text()
        assert "<title>1 of 2 records pass mine:score" in page
        assert "Lyon" in page


@pytest.mark.parametrize(
    ("name", "text", "more", "says"),
    [
        ("a.csv", "x,output\n1,a\n2,b,c\n", (), "a.csv:3: 3 fields where the header has 2"),
        ("a.json", '[{"output": "a"}, 7]', (), "a.json:2: it is a number, not an object"),
        ("a.csv", "x,output\n1,a\n", ("--map", "output=nope"), "there is no column 'nope' (columns: 'x', 'output')"),
        ("a.jsonl", '{"x": 1}\n{"output": "a"}\n', ("--map", "text=output"), "a.jsonl:1: --map text=output: not in it"),
        ("a.csv", "x,answer\n1,a\n", (), "KeyError: 'output' (in mine.py:1, score); the record has: x, answer"),
        ("a.csv", "output,output\n1,a\n", (), "two columns are called 'output'"),
        ("a.csv", "output\n" + "w" * 32_767 + "\n", (), "output: 32,767 characters, the most that Excel keeps"),
        ("a.csv", "x,output\n1,a\n", ("--map", "output"), "KEY=PATH is needed"),
    ],
)
def test_what_is_no_record_is_named(
    folder: Path, capfd: pytest.CaptureFixture[str], name: str, text: str, more: tuple[str, ...], says: str
) -> None:
    """With the place in the user's file; the function gets none of it."""
    _write("def score(r): return len(r['output']) < 9\n")
    Path(name).write_text(text)
    main(["score", "mine.py", name, "--inline", "--format", "none", *more])
    assert says in capfd.readouterr().err
