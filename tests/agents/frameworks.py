"""The agents of examples/frameworks, each in an environment of its framework, with the framework's own fake model.

    python -m tests.agents.frameworks [TARGET ...]

Each makes the same two calls of a model and one of a tool. What evalq recorded of them is compared with the plain loop.
`make peers` runs it, and writes docs/reference/agent-frameworks.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from tests.importing.environments import FRAMEWORKS, framework_python

TOP = Path(__file__).parents[2]
EXAMPLE = TOP / "examples" / "frameworks"
GUIDE = TOP / "docs" / "how-to" / "test-a-langgraph-agent.md"
PAGE = TOP / "docs" / "reference" / "agent-frameworks.md"
SHOWN = {"langgraph": "LangGraph", "openai_agents": "OpenAI Agents SDK", "pydantic_ai": "PydanticAI",
         "smolagents": "smolagents", "crewai": "CrewAI", "plain_loop": "a plain loop"}  # fmt: skip
_FAKES = {"langgraph": "LangChain's GenericFakeChatModel", "openai_agents": "a subclass of its Model",
          "pydantic_ai": "its FunctionModel", "smolagents": "a subclass of its Model",
          "crewai": "a subclass of its BaseLLM", "plain_loop": "a function"}  # fmt: skip
_QUIET = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}


class Row(NamedTuple):
    """What evalq recorded of one agent."""

    target: str
    packages: tuple[str, ...]
    passed: str
    calls: str
    tokens: tuple[Any, ...]
    cost: float | None
    equal: bool


def ran(target: str, python: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The line of outputs.jsonl, and {check: verdict}."""
    folder = Path(tempfile.mkdtemp(prefix=f"{target}-"))
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    command = [str(python.with_name("evalq")), "checks", "cases.yaml", "--target", target, "--targets", "targets.yaml",
               "--out", "run", "--quiet"]  # fmt: skip
    with open(folder / "log", "wb") as log:
        done = subprocess.run(command, cwd=folder, env={**os.environ, **_QUIET}, stdout=log, stderr=log, check=False)
    if done.returncode != 0:
        sys.exit(f"{target} ended with {done.returncode}:\n{(folder / 'log').read_text()[-3000:]}")
    report = json.loads((folder / "run" / "report.json").read_bytes())
    checks = {each["check"]: f"{each['outputs']['passed']} of 1" for each in report["results"]["by_check"]}
    return json.loads((folder / "run" / "outputs.jsonl").read_bytes().splitlines()[0]), checks


def facts(line: dict[str, Any]) -> dict[str, Any]:
    """What must be equal in all of them: final_answer is a tool of smolagents itself."""
    calls = [(call["name"], call["arguments"], call.get("result"), call.get("error"))
             for call in line["tool_calls"] if call["name"] != "final_answer"]  # fmt: skip
    (attempt,) = line["attempts"]
    tokens = attempt["prompt_tokens"], attempt["completion_tokens"]
    return {"output": line["output"], "calls": calls, "tokens": tokens, "cost": attempt["cost"]}


def row(target: str, python: Path, packages: tuple[str, ...], plain: dict[str, Any], verdicts: dict[str, str]) -> Row:
    """The row of one agent, beside the plain loop."""
    line, checks = ran(target, python)
    (attempt,) = line["attempts"]
    tokens = tuple(attempt.get(name, "-") for name in ("prompt_tokens", "cached_tokens", "completion_tokens"))
    passed = sum(value.startswith("1 of 1") for value in checks.values())
    calls = ", ".join(call["name"] for call in line["tool_calls"])
    same = facts(line) == plain and checks == verdicts
    return Row(target, packages, f"{passed} of {len(checks)}", calls, tokens, attempt.get("cost"), same)


_GRAPH = """
import itertools

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver


class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, *args, **options):
        # It reads the whole conversation, and answers the last message with how many of the user it has.
        self.messages = iter([asks() if messages[-1].type == "human" else says(messages)])
        return super()._generate(messages, *args, **options)


def weather(city: str) -> str:
    \"\"\"The weather of a city\"\"\"
    return "snow"


def asks(numbers=itertools.count()):
    call = {"name": "weather", "args": {"city": "Oslo"}, "id": f"c{next(numbers)}"}
    return AIMessage("", tool_calls=[call], usage_metadata={"input_tokens": 9, "output_tokens": 1, "total_tokens": 10})


def says(messages):
    asked = sum(message.type == "human" for message in messages)
    usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}
    return AIMessage(f"Expect snow, I say to {asked}.", usage_metadata=usage)


graph = create_agent(Model(messages=iter(())), [weather], checkpointer=SAVER)
"""


def guide(python: Path) -> int:
    """Run the code of the how-to, each of its functions: the first with its cases, the others over three turns."""
    text = GUIDE.read_text(encoding="utf-8")
    functions = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    targets, cases = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    head = functions[0].partition("\n\n")[0]
    for number, function in enumerate(functions):
        folder = Path(tempfile.mkdtemp(prefix="guide-"))
        keeps = "thread_id" in function
        (folder / "my_agent.py").write_text(_GRAPH.replace("SAVER", "InMemorySaver()" if keeps else "None"))
        (folder / "agent.py").write_text(function if number == 0 else f"{head}\n\n\n{function}")
        (folder / "targets.yaml").write_text(targets)
        turns = {"turns": ["And now?", "And then?"], "checks": [{"contains": "I say to 3"}, {"max-tokens": 60}]}
        (folder / "cases.yaml").write_text(
            cases if number == 0 else json.dumps({"cases": [{"id": "a", "input": "How is the weather?", **turns}]})
        )
        command = [str(python.with_name("evalq")), "checks", "cases.yaml", "--target", "agent",
                   "--targets", "targets.yaml", "--repeat", "5", "--max-cost", "2", "--out", "run"]  # fmt: skip
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **_QUIET}, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or "5 of 5 outputs passed" not in done.stdout:
            sys.exit(
                f"function {number + 1} of {GUIDE.name}, in {folder}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            )
    return len(functions)


def page(rows: list[Row]) -> str:
    """docs/reference/agent-frameworks.md."""
    table = [
        f"| {SHOWN[row.target]} | {', '.join(each.replace('==', ' ') for each in row.packages)} | {_FAKES[row.target]} "
        f"| {row.passed} | {row.calls} | {row.tokens[0]} | {row.tokens[1]} | {row.tokens[2]} "
        f"| {'yes' if row.equal else 'no'} |"
        for row in rows
    ]
    return "\n".join([*_HEAD.splitlines(), *table, ""])


_HEAD = f"""# Agents of six frameworks

[examples/frameworks](../../examples/frameworks/README.md) has an agent of each, in at most 20 lines. `make peers`
installs each framework in an environment of its own, with evalq {version("evalq")} beside it. The agent runs as a
target of kind `python`, with a model of the framework's own kind that needs no server. `make test` runs the plain loop.
The functions of the [how-to for LangGraph](../how-to/test-a-langgraph-agent.md) run there, too, also over three turns.

Each makes two calls of the model and one of a tool. Equal means that output, tool calls, their results, tokens in and
out, cost and the verdicts of five checks are those of the plain loop. `final_answer` is a tool of smolagents itself.

| Framework | Packages | Model | Passed | Tool calls | Tokens in | of a cache | Tokens out | Equal |
| --- | --- | --- | --- | --- | ---: | ---: | ---: | --- |"""


def main(targets: list[str]) -> None:
    """Run the agents, and write the page if all ran."""
    line, verdicts = ran("plain_loop", Path(sys.executable))
    plain = facts(line)
    rows = []
    for target in targets or FRAMEWORKS:
        rows.append(row(target, framework_python(target), FRAMEWORKS[target], plain, verdicts))
        sys.stderr.write(f"{rows[-1]}\n")
        if target == "langgraph":
            sys.stderr.write(f"{guide(framework_python(target))} functions of {GUIDE.name} run\n")
    rows.append(row("plain_loop", Path(sys.executable), (f"evalq=={version('evalq')}",), plain, verdicts))
    if not targets:
        PAGE.write_text(page(rows), encoding="utf-8")
    if not all(each.equal for each in rows):
        sys.exit("the agents are not equal")


if __name__ == "__main__":
    main(sys.argv[1:])
