"""Makes the recordings anew with the tools themselves, each in an environment of its own, and says what is different.

    python -m tests.importing.record [promptfoo] [inspect] [lm-eval] [deepeval]

They go to ``recorded/`` beside this module. `make importers` runs this, then the tests that read them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.importing import hostile
from tests.importing.environments import (
    PROMPTFOO,
    inspect_python,
    lm_eval_python,
    promptfoo_command,
    promptfoo_home,
    run,
)

HERE = Path(__file__).parent / "recorded"
MADE = Path(__file__).parent / "made"


def digest(value: Any) -> str:
    """Of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _evaluate(config: Path, results: Path) -> None:
    with tempfile.TemporaryDirectory() as state:
        command, environment = promptfoo_command(config, results, Path(state))
        run(command, config.parent, environment)


def verdicts(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each test what promptfoo said: whether it passed, and every assertion by its metric."""
    found = []
    for row in results["results"]["results"]:
        grading = row.get("gradingResult") or {}
        parts = grading.get("componentResults") or []
        said = {part["assertion"]["metric"]: part["pass"] for part in parts if part.get("assertion")}
        line = {"case": row["testCase"]["description"], "passed": row["success"], "checks": said}
        found.append(line | ({"error": str(row["error"]).partition("\n")[0]} if row.get("failureReason") == 2 else {}))
    return found


def promptfoo() -> None:
    """The 500 tests, and the small configuration with every form."""
    with tempfile.TemporaryDirectory() as folder:
        made, results = Path(folder) / "promptfooconfig.json", Path(folder) / "results.json"
        config = hostile.config()
        made.write_text(json.dumps(config))
        _evaluate(made, results)
        said = verdicts(json.loads(results.read_text()))
        head = {"promptfoo": PROMPTFOO, "config_sha256": digest(config)}
        (HERE / "promptfoo-500.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in [head, *said]))
        forms = Path(folder) / "forms"
        shutil.copytree(MADE / "promptfoo", forms)
        _evaluate(forms / "promptfooconfig.yaml", results)
        (HERE / "promptfoo-forms.json").write_text(_anonymous(results.read_text(), folder))


def _anonymous(text: str, folder: str) -> str:
    """Without what is only of the machine or of the moment."""
    home = promptfoo_home()
    for path in (folder, str(home.resolve()), str(home)):
        text = text.replace(path, "/recorded")
    data = json.loads(text)
    for key in ("metadata", "shareableUrl"):
        data.pop(key, None)
    rows = data["results"]["results"]
    # Of every prompt the same counts of zero tokens: that of the first is enough.
    for row in rows[1:]:
        row.pop("tokenUsage", None)
        row.get("response", {}).pop("tokenUsage", None)
    for prompt in data["results"]["prompts"]:
        prompt.pop("metrics", None)
    return (
        json.dumps({**data, "results": {**data["results"], "results": None}}).replace(
            '"results": null', '"results": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]"
        )
        + "\n"
    )


def inspect() -> None:
    """Logs of Inspect with its mock model."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HOME": folder}
        run([str(inspect_python()), str(MADE / "inspect_tasks.py"), folder], Path(folder), environment)
        for path in Path(folder).glob("inspect-*"):
            shutil.copy(path, HERE)


def lm_eval() -> None:
    """Results and samples of lm-evaluation-harness with a model that answers from a list."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": folder}
        shutil.copytree(MADE / "lm_eval", Path(folder) / "tasks")
        run([str(lm_eval_python()), "tasks/run.py", "out"], Path(folder), environment)
        target = HERE / "lm-eval"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for path in Path(folder).glob("out/**/*.json*"):
            (target / path.name).write_text(_plain_log(path.read_text()))


def _plain_log(text: str) -> str:
    """Without what is only of the machine."""
    if "\n" in text.strip() and not text.startswith("{\n"):
        return text
    data = json.loads(text)
    for key in ("pretty_env_info", "git_hash", "upper_git_hash", "transformers_version", "model_source"):
        data.pop(key, None)
    return json.dumps(data, indent=1) + "\n"


def deepeval() -> None:
    """Datasets and a test run of DeepEval, which is among the packages that the tests have."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "HOME": folder}
        run([sys.executable, str(MADE / "deepeval_cases.py"), folder], Path(folder), environment)
        target = HERE / "deepeval"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for path in Path(folder).glob("goldens.*"):
            shutil.copy(path, target)
        shutil.copy(Path(folder) / ".deepeval" / ".latest_test_run.json", target / "test-run.json")


TOOLS = {"promptfoo": promptfoo, "inspect": inspect, "lm-eval": lm_eval, "deepeval": deepeval}

if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for wanted in sys.argv[1:] or TOOLS:
        TOOLS[wanted]()
