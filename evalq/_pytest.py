"""Suites as pytest collects them: a file, a group for each run, a test for each case, and one for the policy."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalq.evalcore.errors import EvalqError
from evalq.evalcore.views.markdown import visible

if TYPE_CHECKING:
    from evalq.evalcore.compare.decision import Decided, Decision
    from evalq.evalcore.compare.run import RunCases
    from evalq.producer.suites.suite_file import Suite

__all__ = ["SuiteFile"]

_SESSION = pytest.StashKey[str]()
_ENDING_SECONDS = 10.0
_DONE = (0, 1, 4)
"""Exit codes of `evalq run` where every run is done: a decision is not its business here."""


class Failed(Exception):
    """A test that failed, told without a traceback of this plug-in."""


class SuiteFile(pytest.File):
    """A suite: its runs are made once a session, by whichever process of pytest-xdist comes first."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """A group for each run, then the policy. Raises CollectError for a suite that is none or was not completed."""
        from evalq.producer.folder.run_folder import RunFolder
        from evalq.producer.outputs.cases import cases_of
        from evalq.producer.suites.suite_file import load_suite

        try:
            suite = load_suite(self.path)
            if self.config.option.collectonly:
                return  # nothing is computed or paid for a list
            folders = _made(self, suite)
            runs = [cases_of(RunFolder.existing(folder)) for folder in folders]
        except EvalqError as error:
            raise self.CollectError(visible(f"evalq: {error}")) from error
        names, aside = _Names(), _set_aside(suite, runs)
        for run, folder in zip(runs, folders, strict=True):
            group = {"run": run, "suite": suite, "folder": folder, "aside": aside.get(run.called, {})}
            yield RunGroup.from_parent(self, name=names.of(run.called), **group)
        if suite.policy is not None:
            yield PolicyTest.from_parent(self, name="policy", runs=runs, suite=suite)


class RunGroup(pytest.Collector):
    """The cases of one run, and what it could not evaluate."""

    def __init__(
        self, *, run: RunCases, suite: Suite, folder: Path, aside: dict[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(**more)
        self._run, self._suite, self._folder, self._aside = run, suite, folder, aside or {}

    def collect(self) -> Iterator[pytest.Item]:
        """`records` first, then the cases in the order of their ids."""
        run = self._run
        names = _Names()
        yield RecordsTest.from_parent(self, name=names.of("records"), run=run, folder=self._folder)
        measure = next((each for each in run.cases.measures if each.kind == "pass"), None)
        if measure is None:
            return
        decided = _demanded(self._suite, run)
        column = run.cases.columns[measure.name]
        rows = zip(run.cases.ids, run.cases.missing, column.count, column.total, strict=True)
        for case, missing, count, total in rows:
            passed = round(total if measure.better == "higher" else count - total)
            told = f"{passed} of {count} answers pass"
            verdict = decided.get(case, ("GO" if passed == count else "NO-GO", "every answer has to"))
            aside = self._aside.get(case, "")
            found = {"missing": missing, "told": told, "verdict": verdict, "aside": aside}
            yield CaseTest.from_parent(self, name=names.of(case), **found)


class _Test(pytest.Item):
    """A test whose result is known: `problem` is an error of the evaluation, `verdict` what it found."""

    problem = ""
    verdict: tuple[Decided, str] = ("GO", "")

    def setup(self) -> None:
        """What was not evaluated is an error, and no failure."""
        if self.problem:
            raise Failed(self.problem)

    def runtest(self) -> None:
        """Pass, fail, or be undecided."""
        decided, why = self.verdict
        if decided == "GO":
            return
        told = self.config.getoption("evalq_undecided") or self.config.getini("evalq_undecided")
        if decided == "INCONCLUSIVE" and told != "fail":
            say = pytest.skip if told == "skip" else pytest.xfail
            say(visible(f"undecided: {why}"))
        raise Failed(why if decided == "NO-GO" else f"undecided: {why}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The reason alone."""
        if isinstance(excinfo.value, Failed):
            return visible(str(excinfo.value))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """By suite and name."""
        return self.path, None, self.name


class CaseTest(_Test):
    """One case."""

    def __init__(self, *, missing: int, told: str, verdict: tuple[Decided, str], aside: str = "", **more: Any) -> None:
        super().__init__(**more)
        self.verdict = (verdict[0], f"{told}; {verdict[1]}")
        self._aside = f"quarantine: {aside}; {told}" if aside and verdict[0] != "GO" else ""
        if missing:
            self.problem = f"{missing} answer(s) of this case are missing (errors, dead or unanswered); {told}"

    def runtest(self) -> None:
        """As every test of these, unless the case is in quarantine: then it is skipped where it would not pass."""
        if self._aside:
            pytest.skip(visible(self._aside))
        super().runtest()


class RecordsTest(_Test):
    """Whether every record of a run could be evaluated."""

    def __init__(self, *, run: RunCases, folder: Path, **more: Any) -> None:
        super().__init__(**more)
        lacking = {kind: run.records.get(kind, 0) for kind in ("errors", "dead") if run.records.get(kind, 0)}
        if lacking or run.cases.unattributed:
            counts = ", ".join(f"{count} {kind}" for kind, count in lacking.items())
            named = f"{run.cases.unattributed} record(s) name no case" if run.cases.unattributed else ""
            self.problem = f"{'; '.join(filter(None, (counts, named)))}: {folder}/report.md says why"


class PolicyTest(_Test):
    """The decision of the suite's policy over all of its runs."""

    def __init__(self, *, runs: list[RunCases], suite: Suite, **more: Any) -> None:
        super().__init__(**more)
        self._runs, self._suite = runs, suite

    def setup(self) -> None:
        """Decide; what keeps it from deciding is an error."""
        from evalq.producer.comparing.text import decision_text

        try:
            decision = _decision(self._suite, self._runs)
        except EvalqError as error:
            raise Failed(f"evalq: {error}") from error
        self.verdict = (decision.decided, decision_text(decision))


class _Names:
    """Names of tests: on one line, none like another, and none that could be taken for the path of one."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def of(self, case: str) -> str:
        name = visible(" ".join(case.split())).replace("::", ":")[:200] or "-"
        number = self._given.get(name, 0)
        self._given[name] = number + 1
        return name if not number else self.of(f"{name[:190]}#{number + 1}")


def _decision(suite: Suite, runs: list[RunCases]) -> Decision:
    from evalq.producer.comparing.gating import gate_runs
    from evalq.producer.servers import Servers
    from evalq.workers.settings import load_settings

    assert suite.policy is not None, "a suite without a policy decides nothing"
    with Servers(load_settings(None)) as servers:
        return gate_runs(suite.policy, runs, suite.baseline, servers, first=True)


def _set_aside(suite: Suite, runs: list[RunCases]) -> dict[str, dict[str, str]]:
    """{run: {case: reason}} of the cases in quarantine; none where the policy's own test will say what is wrong."""
    found: dict[str, dict[str, str]] = {}
    if suite.policy is not None and suite.policy.quarantine:
        with contextlib.suppress(EvalqError):
            for entry in _decision(suite, runs).quarantined:
                if entry.aside and not entry.fell:
                    found.setdefault(entry.run, {})[entry.case] = entry.reason
    return found


def _demanded(suite: Suite, run: RunCases) -> dict[str, tuple[Decided, str]]:
    """{case: what the policy's demands on single cases come to}; the worst counts where there are several."""
    from evalq.evalcore.compare.repeats import by_case, rows_of

    found: dict[str, tuple[Decided, str]] = {}
    order = ("NO-GO", "INCONCLUSIVE", "GO")
    for gate in suite.policy.gates if suite.policy else ():
        measure = next((each for each in run.cases.measures if each.name == gate.path), None)
        if gate.per_case is None or gate.tier != "critical" or measure is None or measure.kind != "pass":
            continue
        if gate.run not in (run.called, run.evaluator):
            continue
        rows, least = rows_of(run.cases, measure), suite.policy.minimum_repeats if suite.policy else 1
        for demand in gate.per_case.demands:
            for case, decided in by_case(demand, rows, minimum=least)[0].items():
                if case not in found or order.index(decided) < order.index(found[case][0]):
                    found[case] = decided, f"the policy: {demand.demand}"
    return found


def _made(file: SuiteFile, suite: Suite) -> list[Path]:
    """The folders of the suite's runs, made now or by another process of this session. Raises CollectError."""
    config = file.config
    key = _session(config)
    place = Path("evalq-runs") / "pytest" / f"{uuid.uuid5(uuid.NAMESPACE_URL, f'{key} {file.path}').hex[:16]}"
    place.mkdir(parents=True, exist_ok=True)
    words = [*config.getini("evalq_args")]
    if not words and not os.environ.get("EVALQ_BROKER") and not any(run.live for run in suite.runs):
        words.append("--inline")
    command = [sys.executable, "-P", "-m", "evalq.producer.cli", "run", str(file.path), "--once", key, "--out"]
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go of by the kernel, too, when its holder dies: the next goes on
        done = place / "done"
        if not done.is_file():
            words = [*command, str(place), "--format", "none", "--no-progress", *words]
            code, told = _ran(words)
            if code not in _DONE:
                raise file.CollectError(visible(f"evalq run ended with {code}:\n{told[-4000:]}"))
            done.touch()
    return sorted(path.parent for path in place.glob("*/run.json"))


def _ran(words: list[str]) -> tuple[int, str]:
    """The exit code of a command, and what it said on standard error.

    Ctrl-C reaches it, too: it is given the time to keep what it has paid for.
    """
    command = subprocess.Popen(  # noqa: S603 - this program
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        _, told = command.communicate()
    except KeyboardInterrupt:
        try:
            command.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            command.kill()
        raise
    return command.returncode, told


def _session(config: pytest.Config) -> str:
    """A key that all processes of one session of pytest share, and no other session does."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        return str(worker["testrunuid"])
    return config.stash.setdefault(_SESSION, uuid.uuid4().hex)
