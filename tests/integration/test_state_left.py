"""The check `state`: a program of the worker's own file looks at what an agent left for each case and repeat."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.integration.harness import evalq

AGENT = """
import json
import sys
from pathlib import Path

call = json.load(sys.stdin)
orders = 2 if call["case"] == "twice" or call["repeat"] == 1 else 1
(Path("left") / f"{call['case']}-{call['repeat']}").write_text("order\\n" * orders)
print("Done.")
"""
LOOK = """
import json
import sys
from pathlib import Path

asked = json.loads(json.load(sys.stdin)["prompt"])
record = asked["record"]
assert asked["input"] == "Order it." and "judgements" not in record
orders = (Path("left") / f"{record['case']}-{record['repeat']}").read_text().count("order")
print(json.dumps({"marker": asked["marker"], "pass": orders == asked["expect"], "reason": f"{orders} orders"}))
"""


def _verdicts(run: Path) -> dict[tuple[str, int], Any]:
    lines = map(json.loads, (run / "records.jsonl").read_text().splitlines())
    return {(line["id"], line["repeat"]): (line["status"], line["checks"][0].get("found")) for line in lines}


def test_a_program_looks_at_what_each_answer_left(tmp_path: Path) -> None:
    """Its verdict decides, its reason is shown; a name that the file does not have is refused before any call."""
    (tmp_path / "left").mkdir()
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "look.py").write_text(LOOK)
    check = {"state": "shop", "expect": 1}
    cases = [{"id": name, "input": "Order it.", "checks": [check]} for name in ("once", "twice")]
    (tmp_path / "cases.yaml").write_text(json.dumps({"cases": cases}))
    programs = {"agent": "agent.py", "shop": "look.py"}
    targets = {name: {"kind": "command", "argv": [sys.executable, "-I", path]} for name, path in programs.items()}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": targets}))
    command = ("checks", "cases.yaml", "--target", "agent", "--repeat", "2", "--targets", "targets.yaml")
    done = evalq(*command, "--out", "run", "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = _verdicts(tmp_path / "run")
    assert {key: status for key, (status, _) in found.items()} == {
        ("once", 0): "passed", ("once", 1): "failed", ("twice", 0): "failed", ("twice", 1): "failed",
    }  # fmt: skip
    assert found["twice", 0][1] == "not as wanted: 2 orders"
    report = json.loads((tmp_path / "run" / "report.json").read_text())["results"]
    assert report["pass_rate"] == 0.25
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"agent": targets["agent"]}}))
    done = evalq(*command, "--out", "none", cwd=tmp_path)
    assert (done.returncode, "shop" in done.stderr) == (2, True), done.stderr
