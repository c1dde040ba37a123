"""What the pages say, of runs that are done, that are being written, and that are gone."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from importlib.metadata import EntryPoint
from pathlib import Path
from urllib.parse import quote

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import canonical_json
from evalq.producer.folder.run_folder import RunFolder
from tests.folders import begun, facts
from tests.unit.comparing.conftest import Made
from tests.unit.viewing.conftest import viewing

CASES = [(f"case-{n}", n % 3 > 0) for n in range(60)]
HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202e\x1b[31m=1+1"


def test_the_index_has_every_run_and_finds_those_that_are_searched_for(made: Made) -> None:
    """By id, suite, tag, state and evaluator; what is not found is said to be so."""
    made("one", CASES, suite="nightly", tags={"commit": "zulu"})  # what no id can have, which is of hexadecimal digits
    made("two", CASES[:4])
    with viewing() as browser:
        browser.enter()
        assert "2 runs, the latest first." in browser.get("/").text
        assert "40 of 60 transcripts comply" in browser.get("/").text
        for query in ("q=zulu", "q=NIGHTLY", "q=evalq-runs/one", "suite=nightly", "q=commit+zulu"):
            found = browser.get(f"/?{query}").text
            assert "1 of 2 runs" in found, query
            assert "40 of 60" in found
        assert "0 of 2 runs" in browser.get("/?q=nobody").text
        assert "No run matches." in browser.get("/?state=paused").text


def test_a_run_s_page_says_what_its_report_says(made: Made) -> None:
    """Headline, charts and failed records with what was expected, as in report.html; the records lead to each."""
    path = made("one", CASES)
    report = (path / "report.html").read_text()
    with viewing() as browser:
        browser.enter()
        (link,) = [link for link in browser.get("/").links if link.startswith("/run/")]
        found = browser.get(link)
        figures = [part.partition("</figure>")[0] for part in found.body.split("<figure")[1:]]
        assert figures
        assert all(figure in report for figure in figures)
        assert found.body.count('<details class="failed">') == 20
        failed = report.partition('<details class="failed">')[2].partition("</details>")[0]
        assert all(part in found.body for part in (failed.partition("</summary>")[0], failed[failed.index("<h3>") :]))
        links = [each for each in found.links if "/record?" in each]
        rows = links[20:]  # after those of the failed ones
        assert len(rows) == 25
        record = browser.get(rows[0])
        line = json.loads((path / "records.jsonl").read_text().splitlines()[0])
        assert f"Record {line['record']}" in record.text
        assert "Expected and actual" in record.text


def test_records_are_turned_over_searched_and_filtered(made: Made) -> None:
    """All of them, each once, whatever is asked for."""
    made("one", [(f"case-{n:03}", n % 50 > 0) for n in range(250)])
    with viewing() as browser:
        browser.enter()
        (run,) = [link for link in browser.get("/").links if link.startswith("/run/")]

        def all_of(path: str) -> list[str]:
            seen: list[str] = []
            while path:
                found = browser.get(path)
                seen += [each.partition("at=")[2] for each in found.links if "/record?" in each]
                further = [each for each in found.links if "/records?at=" in each and f"at={len(seen) + 1}" in each]
                path = further[0] if further else ""
            return seen

        assert all_of(f"{run}/records") == [str(n + 1) for n in range(250)]
        failed = browser.get(f"{run}/records?show=failed")
        assert [each.partition("at=")[2] for each in failed.links if "/record?" in each] == [
            "1",
            "51",
            "101",
            "151",
            "201",
        ]
        assert "5 found in lines 1 to 250 of 250" in failed.text
        assert "1 found in lines 1 to 250" in browser.get(f"{run}/records?q=CASE-007").text
        assert "There is no line 251" in browser.get(f"{run}/records?at=251").text
        assert browser.get(f"{run}/record?at=251").status == 404
        assert "Lines 1 to 100" in browser.get(f"{run}/records?at=-5").text
        assert browser.get(f"{run}/records?at={'9' * 40}").status == 200


def test_all_records_are_one_table_where_they_are_not_too_many(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of report.html, with the script that the policy lets run; of more, how to have one with a sample."""
    key = RunFolder(made("one", CASES)).info().run
    report = (Path("evalq-runs") / "one" / "report.html").read_text()
    with viewing() as browser:
        found = browser.enter().get(f"/run/{key}/table")
        blocks = [part.partition("</script>")[0] for part in report.split('<script type="text/plain"')[1:]]
        assert blocks
        assert all(block in found.body for block in blocks)
        named = base64.b64encode(hashlib.sha256(found.page.inside["script"][-1].encode()).digest()).decode()
        assert f"'sha256-{named}'" in found.headers["Content-Security-Policy"]
        assert f"/run/{key}/table" in browser.get(f"/run/{key}").links
        monkeypatch.setattr("evalq.producer.viewing.run_page.ALL_UP_TO", 59)
        monkeypatch.setattr("evalq.producer.viewing.run_page.ALL_UP_TO", 59)
        found = browser.get(f"/run/{key}/table")
        assert (found.status, "evalq report RUN -o report.html" in found.text) == (404, True)
        assert f"/run/{key}/table" not in browser.get(f"/run/{key}").links


def test_a_run_that_follows_a_log_shows_its_last_report_and_that_it_goes_on(made: Made) -> None:
    """Its report is of all that was read so far."""
    folder = RunFolder(made("one", CASES))
    written = json.loads((folder.path / "run.json").read_text()) | {"state": "following", "follows": "log"}
    (folder.path / "run.json").write_text(json.dumps(written))
    with viewing() as browser, folder.driving():
        found = browser.enter().get(f"/run/{written['run']}")
        assert "40 of 60 transcripts comply" in found.text
        assert "This run is following: its log is read as it grows." in found.text


def test_whatever_a_run_holds_stays_text(here: Path) -> None:
    """In its id, suite, tags, records and reasons."""
    with RunFolder.begin(here / "evalq-runs" / "wild") as folder:
        noted = facts(HOSTILE, "paused") | {"suite": HOSTILE, "target": HOSTILE, "tags": {HOSTILE: HOSTILE}}
        folder.note(**noted)
    with viewing() as browser:
        browser.enter()
        key = quote(HOSTILE, safe="~")
        for path in (
            "/",
            f"/run/{key}",
            f"/?q={quote('<img src=x>')}",
            f"/compare?base={key}&cand={key}",
            f"/suite?suite={key}",
        ):
            found = browser.get(path)
            assert found.status in (200, 404)
            assert not [tag for tag, _ in found.page.tags if tag == "img"]
            assert "\x1b" not in found.body
            assert "\u202e" not in found.body


@pytest.mark.parametrize(
    "path",
    [
        "/run/..",
        "/run/%2e%2e/%2e%2e/etc/passwd",
        "/run/..%2f..%2fetc%2fpasswd",
        "/../../etc/passwd",
        "/run/one/report.json",
        "/run/%00",
        "/run/evalq-runs",
        "/run/one/records/../../x",
        "/compare?base=../secret&cand=/etc/passwd",
        "//etc/passwd",
    ],
)
def test_no_path_reaches_the_disk(made: Made, path: str) -> None:
    """A run that is not among those known is none, whatever its name would mean to a file system."""
    run = made("one", CASES[:2])
    secret = run.parent.parent / "secret"
    shutil.copytree(run, secret)
    (secret / "cases.json").write_text("{}")
    with viewing() as browser:
        found = browser.enter().get(path)
        assert found.status in (404, 200)
        assert "root:" not in found.body
        assert "comply" not in found.text
        if found.status == 200:
            assert "no run here is called" in found.text


def test_a_folder_that_is_deleted_while_it_is_looked_at_is_said_to_be_gone(made: Made) -> None:
    """On its page, its records, a comparison; the others stay."""
    path, other = made("one", CASES[:4]), made("two", CASES[:4])
    key, kept = (RunFolder(each).info().run for each in (path, other))
    with viewing() as browser:
        browser.enter()
        assert browser.get(f"/run/{key}").status == 200
        shutil.rmtree(path)  # within the second for which the list of runs is taken as it was
        pages = (f"/run/{key}/records", f"/run/{key}/record?at=1", f"/run/{key}", f"/compare?base={key}&cand={kept}")
        for page in pages:
            found = browser.get(page)
            assert found.status in (200, 404), page
            assert "Traceback" not in found.body
        assert browser.get(f"/live?run={key}").status == 200
        assert browser.get(f"/run/{kept}").status == 200


def test_a_run_that_is_being_written_shows_how_far_it_is(here: Path) -> None:
    """What its driver adds to its files is there at the next look, and a run that nobody drives says what to do."""
    path = here / "evalq-runs" / "going"
    folder = begun(path)
    manifest = b'{"header":{}}\n' + b'{"chunk":{}}\n' * 3
    (path / "manifest.jsonl").write_bytes(manifest)
    (path / "records.jsonl.partial").write_bytes(b"{}\n" * 7)
    with viewing() as browser:
        browser.enter()
        left = browser.get("/run/going")
        # In Korean, as planagent's own report.
        assert "여기서 실행하는 프로세스가 없습니다; 이어서 하려면: evalq resume" in left.text
        assert "실행 중인 프로세스가 없습니다" in browser.get("/").text
        with folder.driving() as mine:
            assert mine
            page = browser.get("/run/going")
            assert ("data-run", "going") in [item for _, at in page.page.tags for item in at.items()]
            assert "진행" in page.text
            live = json.loads(browser.get("/live?run=going&run=nobody").body)["going"]
            assert (live["going"], live["line"], live["share"]) == (True, "records 7, chunks 0 of 3 so far", None)
            with (path / "records.jsonl.partial").open("ab") as records, (path / "manifest.jsonl").open("ab") as plan:
                records.write(b"{}\n" * 3)
                plan.write(b'{"seal":{}}\n')
            live = json.loads(browser.get("/live?run=going").body)["going"]
            assert live["facts"][0] == ["Records", "10"]
            assert live["share"] == 0.0


def test_a_damaged_folder_is_listed_with_its_trouble(made: Made) -> None:
    """It hides no other, and its page says what is wrong."""
    made("one", CASES[:2])
    for name, content in (("bad", b"{"), ("other", canonical_json({**facts("x", "done"), "schema": 99}))):
        (Path("evalq-runs") / name).mkdir()
        (Path("evalq-runs") / name / "run.json").write_bytes(content)
    with viewing() as browser:
        browser.enter()
        found = browser.get("/")
        assert "3 runs" in found.text
        assert "is damaged" in found.text
        for name in ("bad", "other"):
            assert browser.get(f"/run/{name}").status == 200


def test_names_that_are_no_text_or_no_part_of_an_address_have_their_pages(made: Made) -> None:
    """A folder whose name is no UTF-8, and runs that are called like the folder above, like none, or with a slash."""
    made("one", CASES[:2])
    odd = os.fsdecode(b"evalq-runs/\xff\xfe")
    Path(odd).mkdir()
    Path(odd, "run.json").write_bytes(b"{")
    for name in ("..", ".", "", "a/b", "a?b#c%2f", "\\x"):
        with RunFolder.begin(Path("evalq-runs") / f"x{len(list(Path('evalq-runs').iterdir()))}") as folder:
            folder.note(**facts(name, "paused"))
    with viewing() as browser:
        links = [link for link in browser.enter().get("/").links if link.startswith("/run/")]
        assert len(set(links)) == 8
        for link in links:
            assert browser.get(link).status == 200, link
            assert not {".", ".."} & set(link.split("/"))


def test_a_damaged_report_is_reported_on_each_page_that_needs_it(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut off, without its frame, with numbers of another form, not UTF-8: with the file, and no traceback."""
    path, other = made("one", CASES[:6]), made("two", CASES[:6])
    key, base = RunFolder(path).info().run, RunFolder(other).info().run
    whole = (path / "report.json").read_bytes()
    report = json.loads(whole)
    framed = json.dumps({**report, "results": dict.fromkeys(report["results"], "once")}).encode()
    pages = [f"/run/{key}", f"/run/{key}/records", f"/run/{key}/table", f"/run/{key}/record?at=1"]
    with viewing() as browser:
        browser.enter()
        for data in (whole[: len(whole) // 2], b"\xff" + whole, b"{}", b'{"schema":"evalq.report/1"}', b""):
            (path / "report.json").write_bytes(data)
            for page in pages:
                found = browser.get(page)
                assert (found.status, "evalq-runs/one/report.json " in found.text) == (404, True), (data[:9], page)
                assert "evaluate again" in found.text
            assert "evalq-runs/one/report.json " in browser.get(f"/compare?base={base}&cand={key}").text
            assert browser.get("/").status == browser.get("/suites").status == 200
        (path / "report.json").write_bytes(framed)
        found = browser.get(pages[0])
        assert (found.status, "evalq-runs/one: its report is not of the form" in found.text) == (404, True)
    assert "Traceback" not in capsys.readouterr().err


_ODD = """
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Views
class Odd(type(plugins.get("verification"))):
    name = "odd"
    views = Views(summary=lambda report: 1 / 0)
evaluator = Odd()
"""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import sys; sys.exit(0)", (500, "This page could not be made")),
        (_ODD, (404, "its report is not of the form")),
    ],
)
def test_a_plug_in_takes_its_own_pages_along_and_no_others(
    source: str, said: tuple[int, str], made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends the process when it is imported, and one that cannot say what its report begins with."""
    path = made("one", CASES[:6])
    made("two", CASES[:4])
    report = json.loads((path / "report.json").read_bytes())
    (path / "report.json").write_bytes(canonical_json({**report, "evaluator": "odd"}))
    module = f"odd_{len(source)}"
    (tmp_path / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    points = {**plugins.entries(), "odd": EntryPoint("odd", f"{module}:evaluator", "g")}
    monkeypatch.setattr(plugins, "entries", lambda: points)
    monkeypatch.setattr(plugins, "_registered", lambda: {name: [each] for name, each in points.items()})
    plugins.get.cache_clear()
    with viewing() as browser:
        found = browser.enter().get("/")
        assert (found.status, "2 runs, the latest first." in found.text) == (200, True)
        found = browser.get(f"/run/{RunFolder(path).info().run}")
        assert (found.status, said[1] in found.text) == (said[0], True)
    plugins.get.cache_clear()


def test_damaged_records_are_shown_as_such(made: Made) -> None:
    """A line that is no JSON, one that is another evaluator's, and one that is longer than is held in memory."""
    path = made("one", CASES[:2])
    with (path / "records.jsonl").open("ab") as stream:
        stream.write(b"{\n[]\n" + b'{"record":"' + b"x" * 5_000_000 + b'"}\n' + b'{"record":"end"')
    (key,) = [RunFolder(path).info().run]
    with viewing() as browser:
        found = browser.enter().get(f"/run/{key}/records")
        assert found.text.count("unreadable") == 4
        assert "longer than is shown" in found.text
        assert browser.get(f"/run/{key}/record?at=5").status == 200
        found = browser.get(f"/run/{key}/table")
        assert (found.status, "line 3 of records.jsonl is damaged" in found.text) == (404, True)
        found = browser.get("/?" + "&".join(f"q={n}" for n in range(150)))
        assert (found.status, "The query of the address is too long." in found.text) == (400, True)


def test_two_runs_of_one_id_are_two(made: Made) -> None:
    """A copy of a run's folder is another run to look at, wherever it lies."""
    path = made("one", CASES[:2])
    shutil.copytree(path, "evalq-runs/copy")
    shutil.copytree(path, "elsewhere/again")
    with viewing("elsewhere") as browser:
        links = [link for link in browser.enter().get("/").links if link.startswith("/run/")]
        assert len(set(links)) == 3
        assert all(browser.get(link).status == 200 for link in links)


def test_what_is_named_is_shown_and_what_is_nothing_is_refused(made: Made, here: Path) -> None:
    """A run folder anywhere, a folder of them, an id; not a folder without any."""
    path = made("one", CASES[:2])
    shutil.move(path, here / "far")
    with viewing("far") as browser:
        assert "1 run, the latest first." in browser.enter().get("/").text
    (here / "empty").mkdir()
    for name in ("empty", "nothing", "in.jsonl"):
        with pytest.raises(UsageError), viewing(name):
            pass
