"""A self check on the output of a test run that really happened (the specification's integration test)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evalq.evalcore.evaluators.selfcheck import Evidence, create_default_self_check_protocol

TESTS = """
def test_sum():
    assert sum([1, 2, 3]) == 6

def test_limit():
    assert max([1, 2, {biggest}]) == 3
"""


@pytest.mark.parametrize(("biggest", "passes"), [(3, True), (4, False)])
def test_a_real_test_run_is_evidence(tmp_path: Path, biggest: int, passes: bool) -> None:
    """pytest's own output and exit code go in; the verdict follows them, and the output is the answer's evidence."""
    (tmp_path / "test_small.py").write_text(TESTS.format(biggest=biggest))
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    plain["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # it needs none of those that are installed, which take seconds
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_small.py"]
    run = subprocess.run(command, cwd=tmp_path, env=plain, capture_output=True, text=True, timeout=120, check=False)
    evidence = Evidence(
        testOutput=run.stdout,
        testsPassed=run.returncode == 0,
        requirementsList=[{"requirement": "sums and limits", "met": True}],
        codeChanges=[{"file": "test_small.py", "diff": "+def test_limit():"}],
    )
    result = create_default_self_check_protocol().check(evidence)
    assert ("2 passed" in run.stdout) is passes
    assert result.passed is passes
    assert result.questions[0].evidence == run.stdout
    assert [q.id for q in result.questions if not q.passed] == ([] if passes else ["tests_pass"])
    assert not any(signal.found for signal in result.dangerSignals)
