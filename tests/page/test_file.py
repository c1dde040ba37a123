"""What stands in report.html, without a browser."""

from __future__ import annotations

import itertools
import json
import random
import re
import string
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Views
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import Chart, Column, Evidence, Mark, Row, Rows, Summary, Tile
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.page import ProseSection, build_page, packing, write_page
from evalq.producer.page.render import before_blocks
from evalq.producer.run.backend import Backend
from evalq.producer.run.execute import carry_out
from evalq.workers.settings import Settings
from tests.page.reading import evidence_of, read_page, rows_of
from tests.samples import sampled
from tests.unit.producer.quiet import QUIET

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


def evaluated(name: str, folder: Path, records: int = 60) -> Path:
    """The folder of a finished run over made-up records."""
    job = Job.start(plugins.get(name), sampled(name, folder, records), RunOptions(out=folder / "run"))
    carry_out(job, Backend(Settings(), inline=True), QUIET)
    return folder / "run"


@pytest.fixture(scope="module", params=plugins.built_in())
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each evaluator."""
    return evaluated(request.param, tmp_path_factory.mktemp(request.param))


def test_a_page_runs_what_is_its_own_and_fetches_nothing(run: Path) -> None:
    """The policy allows one style and one script, by their hashes; nothing in the file has an address."""
    page = read_page(run / "report.html")
    assert page.policy.startswith("default-src 'none';")
    assert page.policy.count("sha256-") == 2
    (style,) = page.inside["style"]
    assert page.allows("style", style)
    assert page.allows("script", page.inside["script"][-1])
    assert not [value for _, at in page.tags for name, value in at.items() if name == "src" or name.startswith("on")]
    links = [at["href"] or "" for _, at in page.tags if "href" in at]
    assert links
    assert all(link.startswith("#") for link in links)
    assert not [name for _, at in page.tags for name in at if name == "style"], "the policy would not let it count"


def test_a_page_is_read_by_its_outline(run: Path) -> None:
    """One headline, landmarks, no level of headings left out; tables have captions and heads with a scope."""
    page = read_page(run / "report.html")
    names = [tag for tag, _ in page.tags]
    assert names.count("h1") == names.count("main") == names.count("header") == 1
    levels = [int(name[1]) for name in names if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert names.count("table") == names.count("caption") > 0
    assert all("scope" in at for tag, at in page.tags if tag == "th")
    ids = [at["id"] for _, at in page.tags if "id" in at]
    assert len(ids) == len(set(ids))


def test_the_table_has_every_record_and_failed_ones_their_evidence(run: Path) -> None:
    """In the order of records.jsonl; what was expected stands beside what came."""
    lines = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    rows = rows_of(run / "report.html")
    assert [row[0] for row in rows] == [line["record"] for line in lines]
    evidence = evidence_of(run / "report.html")
    explained = [row[3] for row in rows if row[3] >= 0]
    assert explained == list(range(len(evidence)))
    assert all(pieces for pieces in evidence)
    assert all(row[4] for row in rows if row[3] >= 0), "each has its reason"


def test_the_same_report_has_the_same_bytes(run: Path, tmp_path: Path) -> None:
    """No clock, no host, no run's name: written again, or under another name, a folder's page is the same file."""
    report = json.loads((run / "report.json").read_bytes())
    written = (run / "report.html").read_bytes()
    write_page(
        tmp_path / "again.html", plugins.get(report["evaluator"]), report, run / "records.jsonl", folder=RunFolder(run)
    )
    assert (tmp_path / "again.html").read_bytes() == written
    assert json.loads((run / "run.json").read_bytes())["run"] not in written.decode()


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40) | st.sampled_from(
    [
        "</script><script>alert(1)</script>",
        "<!--",
        "]]>",
        "\u202egnp.exe",
        "\x1b[31m",
        "\u2028",
        '"><img src=x>',
        "=1+1",
    ]
)


class Said(Evaluator[Any, Any]):
    """Shows whatever an agent said, everywhere that a page has text of the data's."""

    name, version, summary = "said", "1", "Show."
    Params = State = None  # type: ignore[assignment]  # nothing is evaluated

    def evaluate(self, batch: Any, params: Any) -> Any:
        """Never called."""
        raise NotImplementedError

    def section(self, results: Any, params: Any) -> Any:
        """Never called."""
        raise NotImplementedError


def saying(text: str) -> Evaluator[Any, Any]:
    """An evaluator whose every view holds ``text``."""

    def marks(report: Mapping[str, Json]) -> Iterable[Mark]:
        return [Mark(text, 0.5, 0.1, 0.9, note=text)]

    def parts(report: Mapping[str, Json]) -> Iterable[Mark]:
        return [Mark(text, 0.5, part=text)]

    def see(line: dict[str, Any]) -> Row:
        return Row(text, text, text, "bad", text, (text,), lambda: (Evidence(text, text, text),))

    views = Views(
        notices=lambda report: [text],
        summary=lambda report: Summary(text, text, tiles=(Tile(text, text, text),)),
        charts=(
            Chart(text, text, "dots", "share", marks, text),
            Chart(text, text, "stacked", "share", parts, text),
        ),
        rows=Rows((Column(text),), dict[str, Any], lambda report: see),
    )
    changed: Evaluator[Any, Any] = type("Shown", (Said,), {"views": views})()
    return changed


def a_report(text: str, records: int = 1) -> dict[str, Any]:
    """A report with ``text`` wherever data can be."""
    return {
        "evaluator": text, "evaluator_version": text, "faults": [{"where": text, "reason": text}],
        "inputs": [{"name": text, "records": records, "sha256": "0"}], "params": {text: text},
        "records": {"total": records, "scored": records, "unscored": 0, "errors": 0, "dead": 0}, "results": {},
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_what_an_agent_said_stays_text(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever it is, the page has the same elements as with a harmless word, and no sign that a reader cannot see."""
    folder = tmp_path_factory.mktemp("said")
    (folder / "records.jsonl").write_text("{}\n")
    pages = []
    for number, said in enumerate(("word", text)):
        path = folder / f"{number}.html"
        write_page(path, saying(said), a_report(said), folder / "records.jsonl")
        pages.append(read_page(path))
    calm, wild = pages
    assert [tag for tag, _ in wild.tags] == [tag for tag, _ in calm.tags]
    assert [sorted(at) for _, at in wild.tags] == [sorted(at) for _, at in calm.tags]
    assert wild.inside["script"][-1] == calm.inside["script"][-1]
    assert not CONTROL.search("".join(wild.text).replace("\n", ""))


def test_a_big_run_lists_what_failed_and_a_sample_of_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All failures are there, the sample is the same each time, and the headline says how many are left out."""
    monkeypatch.setattr(packing, "ALL_UP_TO", 1_000)
    statuses = ("failed" if n % 50 == 0 else "passed" for n in range(5_000))
    lines = [json.dumps({"record": f"a:{n}", "id": str(n), "status": status}) for n, status in enumerate(statuses)]
    (tmp_path / "records.jsonl").write_text("\n".join(lines) + "\n")
    evaluator, report = Said(), a_report("x", 5_000)
    for name in ("one.html", "two.html"):
        write_page(tmp_path / name, evaluator, report, tmp_path / "records.jsonl")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    rows = rows_of(tmp_path / "one.html")
    assert [row[0] for row in rows if row[2] == "failed"] == [f"a:{n}" for n in range(0, 5_000, 50)]
    assert 850 < len(rows) - 100 < 1_110, "about a fifth of those that passed"
    text = "".join(read_page(tmp_path / "one.html").text)
    assert f"a sample of {len(rows) - 100:,} others; {5_000 - len(rows):,} are left out" in text


def test_evidence_has_its_share_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it failed records are still listed, and the page says for how many it has no evidence."""
    monkeypatch.setattr(packing, "_EVIDENCE_BYTES", 1)
    (tmp_path / "records.jsonl").write_text('{"record":"a:1","status":"failed"}\n' * 1_200)
    write_page(tmp_path / "page.html", Said(), a_report("x", 1_200), tmp_path / "records.jsonl")
    assert len(rows_of(tmp_path / "page.html")) == 1_200
    assert len(evidence_of(tmp_path / "page.html")) == 500
    assert "of 700 failed ones are in records.jsonl alone" in "".join(read_page(tmp_path / "page.html").text)


def test_long_texts_make_room_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record has its row in a file of no more than the size it is meant to have, whatever was said."""
    monkeypatch.setattr(packing, "_ROWS_BYTES", 300_000)
    monkeypatch.setattr(packing, "_EVIDENCE_BYTES", 300_000)
    monkeypatch.setattr(packing, "_BLOCK_CHARACTERS", 60_000)
    draw = random.Random(1)
    letters = string.ascii_letters + string.digits + "-_"
    with (tmp_path / "records.jsonl").open("w") as out:
        for number in range(5_000):
            said = "".join(draw.choices(letters, k=400))
            out.write(json.dumps({"record": f"a:{number}", "status": "failed", "reason": said}) + "\n")
    write_page(tmp_path / "page.html", Said(), a_report("x", 5_000), tmp_path / "records.jsonl")
    rows = rows_of(tmp_path / "page.html")
    assert [row[0] for row in rows] == [f"a:{number}" for number in range(5_000)]
    assert all(len(row[4]) >= packing._LEAST and (len(row[4]) == 400 or row[4].endswith("…")) for row in rows)
    assert len(rows[0][4]) == 400
    assert (tmp_path / "page.html").stat().st_size < 750_000
    explained = [row for row in rows if row[3] >= 0]
    assert len(explained) == len(evidence_of(tmp_path / "page.html")) < 5_000


def test_a_page_without_records_says_how_to_have_them(tmp_path: Path) -> None:
    """Of a run of millions, or of one whose records are elsewhere."""
    write_page(tmp_path / "page.html", Said(), a_report("x"), None)
    page = read_page(tmp_path / "page.html")
    assert "evalq report RUN -o report.html" in "".join(page.text)
    assert not page.inside["script"]


def test_who_shows_more_puts_a_section_before_the_others() -> None:
    """A comparison or a gate is a section among sections."""
    page = build_page(Said(), a_report("x"), first=(ProseSection("Gate", ("NO-GO: <b>",)),))
    html = before_blocks(page).decode()
    assert "NO-GO: &lt;b&gt;" in html
    assert html.index("Gate") < html.index("Faults of the input")
