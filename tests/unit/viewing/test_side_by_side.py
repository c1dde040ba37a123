"""Two runs side by side, and a suite's history: what evalq compare says, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalq.producer.cli import cli
from evalq.producer.comparing.comparing import VERDICTS
from evalq.producer.folder.run_folder import RunFolder
from tests.unit.comparing.conftest import Made
from tests.unit.viewing.conftest import viewing


def run_of(path: Path) -> str:
    """The id of the run in a folder."""
    return RunFolder(path).info().run


def cases(passes: int, of: int) -> list[tuple[str, bool]]:
    """So many that pass, of so many."""
    return [(f"case-{n:04}", n < passes) for n in range(of)]


@pytest.mark.parametrize(("base", "cand"), [(150, 150), (150, 60), (60, 150), (10, 9)])
def test_the_verdict_is_that_of_compare(made: Made, base: int, cand: int) -> None:
    """By every measure, with the same numbers, in either direction, at another margin too."""
    of = 200 if base > 10 else 12
    first, second = made("first", cases(base, of)), made("second", cases(cand, of))
    with viewing() as browser:
        browser.enter()
        for margin in ("0.05", "0.2"):
            arguments = ["compare", str(first), str(second), "--margin", margin]
            said = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)
            table = CliRunner().invoke(cli, arguments).stdout
            page = browser.get(f"/compare?base={run_of(first)}&cand={run_of(second)}&margin={margin}")
            assert page.status == 200
            for measure in said["measures"]:
                name = measure["measure"]["name"].replace("_", " ").capitalize()
                assert f"{name}{VERDICTS[measure['verdict']].capitalize()}" in "".join(page.page.text)
            ends = [part.strip() for part in table.splitlines() if part.startswith("| ") and " and " in part]
            for row in ends:
                change, between = [cell.strip() for cell in row.strip("|").split("|")][:2]
                assert change in page.text
                assert between in page.text


def test_nothing_is_written_by_looking(made: Made, here: Path) -> None:
    """Not the summary of cases that compare keeps in a run's folder, nor anything else."""
    first, second = made("first", cases(3, 5)), made("second", cases(5, 5))

    def state() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in here.rglob("*")}

    before = state()
    with viewing() as browser:
        browser.enter()
        for page in ("/", f"/run/{run_of(first)}", f"/compare?base={run_of(first)}&cand={run_of(second)}", "/suites",
                     "/suite?evaluator=verification&suite=default"):  # fmt: skip
            assert browser.get(page).status == 200
    assert state() == before


def test_what_cannot_be_compared_says_why(made: Made, here: Path) -> None:
    """One run, none, runs of two evaluators, one without its records, and margins that are none."""
    first, second = (run_of(made(name, cases(3, 5))) for name in ("first", "second"))
    (here / "evalq-runs" / "second" / "records.jsonl").unlink()
    with viewing() as browser:
        browser.enter()
        for query, said in (
            ("", "Pick two runs"),
            (f"base={first}", "Pick two runs"),
            (f"base={first}&cand=nobody", "no run here is called 'nobody'"),
            (f"base=baseline:none&cand={first}", "the baseline 'none' has no run of that evaluator"),
            (f"base={first}&cand={second}", "only the report is here"),
            *(
                (f"base={first}&cand={first}&margin={m}", "a margin is a share")
                for m in ("0", "2", "x", "nan", "1e999")
            ),
        ):
            assert said in browser.get(f"/compare?{query}").text, query


def test_a_suite_s_history_has_the_verdict_against_each_baseline(made: Made) -> None:
    """And leads to the comparison; runs of other suites are not in it."""
    base = made("base", cases(180, 200), suite="nightly")
    worse, same = (made(name, cases(n, 200), suite="nightly") for name, n in (("worse", 60), ("same", 180)))
    made("other", cases(1, 2))
    assert CliRunner().invoke(cli, ["baseline", "set", "main", str(base)]).exit_code == 0
    with viewing() as browser:
        browser.enter()
        suites = browser.get("/suites")
        (link,) = [link for link in suites.links if "suite=nightly" in link]
        found = browser.get(link)
        assert "nightly: 3 runs" in found.text
        assert "Baselines: main" in found.text
        assert found.text.count("Pass rate: worse") == 1
        assert found.text.count("Pass rate: the same, within the margin") == 1
        assert found.text.count("it is this run") == 1
        assert [run_of(path) in found.text for path in (base, worse, same)] == [True] * 3
        (verdict,) = [link for link in found.links if link.startswith("/compare") and run_of(worse) in link]
        assert "Pass rate: worse" in browser.get(verdict).text
        assert found.body.count("<figure") == 2, "each measure over the runs"
        assert "Ended" not in found.text, "a folder says when its run was begun"


def test_a_history_does_not_read_runs_of_very_many_records(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says of how many, and shows them once somebody has compared them."""
    monkeypatch.setattr("evalq.producer.viewing.viewer._FEW_BYTES", 1_000)
    first, second = made("first", cases(3, 50)), made("second", cases(5, 50))
    with viewing() as browser:
        page = "/suite?evaluator=verification&suite=default"
        found = browser.enter().get(page)
        assert "2 runs have too many records for this page" in found.text
        assert "<figure" not in found.body
        assert CliRunner().invoke(cli, ["compare", str(first), str(second)]).exit_code == 0
        found = browser.get(page)
        assert "too many" not in found.text
        assert "<figure" in found.body
