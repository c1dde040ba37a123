"""The pytest plug-in: cases as tests with their real results, one run a session, and nothing where nobody asks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.contract import plugins
from tests.unit.api.sessions import PLAIN, keep_modules, session_here
from tests.unit.comparing.conftest import BAD, GOOD

__all__ = ["keep_modules"]  # a fixture

pytest_plugins = ["pytester"]

DEMAND = {"gates": [{"metric": "verification.pass_rate", "per_case": {"min_passes": 7, "of": 10}}]}
DROP = "{gates: [{metric: verification.pass_rate, max_drop: 0.1}]}"
SURE = [(f"c{number % 3}", True) for number in range(60)]


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVALQ_BROKER", raising=False)


def _suite(
    pytester: pytest.Pytester, answers: Sequence[tuple[str, bool | None]], policy: object = None, **more: str
) -> Path:
    """evals/nightly.yaml over transcripts, each (case, whether it complies; None for one that cannot be evaluated)."""
    lines = [
        {"id": case} if good is None else {"id": case, "actual_output": GOOD if good else BAD} for case, good in answers
    ]
    folder = pytester.path / "evals"
    folder.mkdir(exist_ok=True)
    (folder / "answers.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    runs = [{"evaluator": "verification", "inputs": ["answers.jsonl"]}]
    suite = {"runs": runs, **({"policy": policy} if policy else {}), **more}
    (folder / "nightly.yaml").write_text(json.dumps(suite))
    return folder / "nightly.yaml"


def test_every_case_is_a_test_with_its_own_result(pytester: pytest.Pytester) -> None:
    """Proved to keep the demand: passed; proved not to: failed; too few answers: expected to fail, or as is asked."""
    few = [("few", True)] * 2
    suite = _suite(pytester, [*SURE, *[("lost", False)] * 20, *few], DEMAND)
    ran = session_here(pytester, "--evalq", str(suite), "-v")
    ran.assert_outcomes(passed=4, failed=2, xfailed=1)
    ran.stdout.fnmatch_lines(["*nightly.yaml::verification::c0 PASSED*", "*::verification::lost FAILED*"])
    ran.stdout.fnmatch_lines(
        ["0 of 20 answers pass; the policy: every case passes 7 of 10", "*# NO-GO: verification-*"]
    )
    session_here(pytester, "--evalq", str(suite), "--evalq-undecided", "fail").assert_outcomes(passed=4, failed=3)
    pytester.makeini("[pytest]\nevalq_suites = evals/*.yaml\nevalq_undecided = skip")
    session_here(pytester).assert_outcomes(passed=4, failed=2, skipped=1)


def test_what_is_undecided_has_no_traceback(pytester: pytest.Pytester) -> None:
    """Its reason is all there is to say; writing twenty frames of pytest for each of many cases took minutes."""
    suite = _suite(pytester, [("few", True)] * 2, DEMAND)
    # pytest may warn of where it is itself, which is no traceback
    ran = session_here(pytester, "--evalq", str(suite), "--xfail-tb", "--disable-warnings")
    ran.stdout.fnmatch_lines(["*undecided: 2 of 2 answers pass*"])
    ran.stdout.no_fnmatch_line("*.py:*")


def test_a_case_in_quarantine_is_skipped_while_its_history_proves_it_flaky(pytester: pytest.Pytester) -> None:
    """Beside one that is named there and always failed, which counts; the policy's own test says both."""
    history = [("shaky", at % 4 > 0) for at in range(60)] + [("broken", False)] * 90
    session_here(pytester, "--evalq", str(_suite(pytester, history)))
    (cases,) = (pytester.path / "evalq-runs").glob("**/cases.json")
    approved = pytester.path / "evalq-baselines" / "main" / "verification.json"
    approved.parent.mkdir(parents=True)
    cases.rename(approved)
    entries = [{"case": case, "reason": "an index rebuilt at night"} for case in ("shaky", "broken")]
    now = [*SURE, *[("shaky", at % 4 > 0) for at in range(16)], *[("broken", False)] * 16]
    suite = _suite(pytester, now, {**DEMAND, "quarantine": entries, "missing": 200}, baseline="main")
    ran = session_here(pytester, "--evalq", str(suite), "-rs")
    ran.assert_outcomes(passed=4, failed=2, skipped=1)
    ran.stdout.fnmatch_lines(["*quarantine: an index rebuilt at night; 12 of 16 answers pass*"])
    ran.stdout.fnmatch_lines(
        ["*| shaky | set aside: flaky: 45 of 60*", "*| broken | counts all the same: stable: 0 of 90*"]
    )


def test_without_a_policy_every_answer_has_to_pass(pytester: pytest.Pytester) -> None:
    """One failure among many is one."""
    suite = _suite(pytester, [*SURE, ("c1", False)])
    ran = session_here(pytester, "--evalq", str(suite))
    ran.assert_outcomes(passed=3, failed=1)
    ran.stdout.fnmatch_lines(["20 of 21 answers pass; every answer has to"])


def test_what_could_not_be_evaluated_is_an_error(pytester: pytest.Pytester) -> None:
    """Of its case and of the run: never a pass, and no failure of the agent."""
    ran = session_here(pytester, "--evalq", str(_suite(pytester, [*SURE, ("lame", None)])))
    outcomes = ran.parseoutcomes()
    assert outcomes["errors"] >= 1
    assert outcomes["passed"] == 3
    assert "failed" not in outcomes
    assert ran.ret == pytest.ExitCode.TESTS_FAILED


def test_a_suite_that_cannot_be_run_is_an_error_of_collection(pytester: pytest.Pytester) -> None:
    """A wrong key with its line, an input that is not there: the session does not pass."""
    suite = _suite(pytester, SURE)
    suite.with_name("answers.jsonl").unlink()
    for text, message in (
        (suite.read_text(), "*answers.jsonl*"),
        ("runs: [{evaluator: verification, x: 1}]", "*runs.0.x: unknown key*"),
        (
            f"{{runs: [{{evaluator: verification, inputs: [a.jsonl]}}], policy: {DROP}}}",
            "*measured against a baseline*",
        ),
    ):
        suite.write_text(text)
        ran = session_here(pytester, "--evalq", str(suite))
        assert ran.ret == pytest.ExitCode.INTERRUPTED
        ran.stdout.fnmatch_lines([message])


def test_hostile_names_stay_names(pytester: pytest.Pytester) -> None:
    """On one line, without escapes, each its own, and none the path of another."""
    cases = ["a::b", "a:b", "two\nlines", "\x1b[31mred", "records", "x" * 500]
    ran = session_here(pytester, "--evalq", str(_suite(pytester, [(case, True) for case in cases])), "-v")
    ran.assert_outcomes(passed=len(cases) + 1)
    names = [
        line.partition("::verification::")[2].rpartition(" PASSED")[0] for line in ran.outlines if " PASSED" in line
    ]
    assert len(set(names)) == len(names) == len(cases) + 1
    assert not any("::" in name or "\x1b[31m" in name or len(name) > 200 for name in names)
    assert {"a:b", "a:b#2", "two lines", "records#2"} <= set(names)


def test_runs_without_names_of_their_own_are_distinguished(pytester: pytest.Pytester) -> None:
    """No two tests of a session have one node id."""
    suite = _suite(pytester, SURE)
    run = {"evaluator": "verification", "inputs": ["answers.jsonl"]}
    suite.write_text(json.dumps({"runs": [run, run | {"threshold": 0.1}]}))
    ran = session_here(pytester, "--evalq", str(suite), "-v")
    ran.assert_outcomes(passed=8)
    ids = [line.partition(" PASSED")[0] for line in ran.outlines if " PASSED" in line]
    assert len(set(ids)) == 8


def test_a_policy_that_nothing_can_decide_is_an_error(pytester: pytest.Pytester) -> None:
    """A number that the results do not have, where `evalq run` ends with an error, too."""
    policy = {"gates": [{"metric": "verification.nothing", "min": 1}]}
    ran = session_here(pytester, "--evalq", str(_suite(pytester, SURE, policy)))
    assert ran.ret == pytest.ExitCode.INTERRUPTED
    ran.stdout.fnmatch_lines(["*verification.nothing: the results have no 'nothing'*"])


def test_nothing_is_computed_for_a_list(pytester: pytest.Pytester) -> None:
    """It has every case all the same; nor where no test is left, nor for other YAML, which other plug-ins may want."""
    suite = _suite(pytester, SURE, DEMAND)
    listed = session_here(pytester, "--evalq", str(suite), "--collect-only", "-q")
    names = ["verification::records", *(f"verification::c{number}" for number in range(3)), "policy"]
    assert [line for line in listed.outlines if "::" in line] == [f"evals/nightly.yaml::{name}" for name in names]
    session_here(pytester, "--evalq", str(suite), "-k", "nothing").assert_outcomes(deselected=5)
    session_here(pytester, str(suite))
    session_here(pytester)
    assert not (pytester.path / "evalq-runs").exists()


def test_a_suite_is_evaluated_when_its_first_test_is_run(pytester: pytest.Pytester) -> None:
    """Which is after all others, so that nobody waits for it who wants those."""
    suite = _suite(pytester, SURE)
    pytester.makepyfile("from pathlib import Path\ndef test_it(): assert not Path('evalq-runs').exists()")
    session_here(
        pytester, "--evalq", str(suite), "test_a_suite_is_evaluated_when_its_first_test_is_run.py"
    ).assert_outcomes(passed=5)


def test_one_key_is_one_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """EVALQ_ONCE: a job that is run again takes the results that are there."""
    monkeypatch.setenv("EVALQ_ONCE", "a commit")
    suite = _suite(pytester, SURE)
    for _ in range(2):
        session_here(pytester, "--evalq", str(suite)).assert_outcomes(passed=4)
    assert len(list((pytester.path / "evalq-runs").rglob("run.json"))) == 1


def test_runs_that_were_not_made_are_errors_of_their_tests(pytester: pytest.Pytester) -> None:
    """Said in full once; nothing passes."""
    suite = _suite(pytester, SURE, DEMAND)
    pytester.makeini("[pytest]\nevalq_args = --tag nonsense")
    ran = session_here(pytester, "--evalq", str(suite))
    ran.assert_outcomes(errors=5)
    ran.stdout.fnmatch_lines(["evalq run nightly.yaml ended with 2:", "*--tag*"])
    assert str(ran.stdout).partition("short test summary")[0].count("--tag") == 1, "a CI's summary has it once more"
    pytester.makeini("[pytest]\nevalq_args = --detach")
    ran = session_here(pytester, "--evalq", str(suite))
    ran.stdout.fnmatch_lines(["*evalq_args: --detach, --dry-run and --confirm go with no tests*"])


def test_cases_that_nobody_can_list_are_one_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an evaluator that does not say which case a record is about before it is evaluated."""
    measures = plugins.get("verification").measures
    assert measures is not None
    monkeypatch.setattr(type(plugins.get("verification")), "measures", msgspec.structs.replace(measures, named=None))
    ran = session_here(pytester, "--evalq", str(_suite(pytester, [*SURE, ("lost", False)])), "-v")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["*::verification::cases FAILED*", "lost: 0 of 1 answers pass; every answer has to"])


@pytest.mark.parametrize(("lost", "outcome"), [(True, "passed"), (None, "errors")])
def test_a_run_without_measures_is_its_records(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, lost: bool | None, outcome: str
) -> None:
    """An evaluator that compares nothing, as a plug-in's may be, has no cases; whether all was evaluated is a test."""
    monkeypatch.setattr(type(plugins.get("verification")), "measures", None)
    ran = session_here(pytester, "--evalq", str(_suite(pytester, [*SURE, ("lost", lost)])), "-v")
    ran.assert_outcomes(**{outcome: 1})
    if outcome == "errors":
        ran.stdout.fnmatch_lines(["*1 errors: *report.md says why*"])


def test_processes_of_xdist_share_one_run(pytester: pytest.Pytester) -> None:
    """Two of them, one run folder, every test once."""
    suite = _suite(pytester, SURE, DEMAND)
    ran = pytester.runpytest_subprocess(*PLAIN, "--evalq", str(suite), "-n", "2")
    ran.assert_outcomes(passed=5)
    assert len(list((pytester.path / "evalq-runs").rglob("run.json"))) == 1


def test_a_session_without_a_suite_imports_nothing_of_it(pytester: pytest.Pytester) -> None:
    """But two small modules, whoever has evalq installed."""
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "evalq")
            assert loaded == ["evalq", "evalq.pytest"]
        """
    )
    pytester.runpytest_subprocess(*PLAIN).assert_outcomes(passed=1)
