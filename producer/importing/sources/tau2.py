"""tau2-bench: its tasks, or the results of a run with the simulated conversations.

A task's actions are one way to its goal. They decide only where its `reward_basis` has ACTION; elsewhere their checks
have weight 0. Its database is none of a record: a team's own check looks at what is left there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing.imported import Imported, ImportRequest, verdict_of
from evalq.producer.importing.reading import Document, read_json

_DATABASE = "tau2 compares the database that is left; look at it with a check of your own"
_NESTED = "tau2 compares JSON in a text by its value, evalq the text"


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from tasks, or from results. Raises ConfigError for other files."""
    data = read_json(path)
    results = isinstance(data, dict) and isinstance(data.get("simulations"), list)
    tasks = data.get("tasks") if isinstance(data, dict) else data
    if not isinstance(tasks, list) or not tasks or not all(map(_is_task, tasks)):
        raise ConfigError(
            f"{path}: neither tasks nor results of tau2: a task has id, user_scenario, evaluation_criteria"
        )
    document = Document(path, data)
    reader = _Tasks(document, request, imported)
    for index, task in enumerate(tasks):
        reader.add(task, ["tasks", index] if isinstance(data, dict) else [index])
    if results:
        agent = _part(_part(data, "info"), "agent_info").get("llm")
        for index, simulation in enumerate(data["simulations"]):
            reader.add_simulation(simulation, str(agent or "outputs"), document.where(["simulations", index]))


def _is_task(task: Any) -> bool:
    return isinstance(task, Mapping) and "id" in task and "user_scenario" in task


class _Tasks:
    def __init__(self, document: Document, request: ImportRequest, imported: Imported) -> None:
        self._document, self._request, self._imported = document, request, imported
        self._cases: dict[str, tuple[str, list[str]]] = {}

    def add(self, task: Mapping[str, Any], keys: Sequence[str | int]) -> None:
        """Add a task as a case."""
        where, identity = self._document.where(keys), str(task["id"])
        criteria = _part(task, "evaluation_criteria")
        basis = _texts(criteria.get("reward_basis")) or ["DB", "COMMUNICATE"]
        checks, actions = [], []
        for action, check in self._actions(criteria, where):
            checks.append({**check, "name": action} | ({} if "ACTION" in basis else {"weight": 0}))
            actions.append(action)
        for text in _texts(criteria.get("communicate_info")):
            # In any message of the agent: a judge reads them all.
            check = {"rubric": f"The program tells the user: {text}", "of": "conversation"}
            checks.append(check | ({} if "COMMUNICATE" in basis else {"weight": 0}))
            why = "the judge that --judge names decides it, in evalq's words; tau2 searches the agent's messages"
            self._imported.note("differs", where, "communicate_info", why)
        for text in _texts(criteria.get("nl_assertions")):
            check = {"rubric": text, "of": "conversation"}
            checks.append(check | ({} if "NL_ASSERTION" in basis else {"weight": 0}))
            self._imported.note("differs", where, "nl_assertions", "the judge that --judge names decides it")
        if "DB" in basis or criteria.get("env_assertions"):
            self._imported.note("none", where, "DB" if "DB" in basis else "env_assertions", _DATABASE)
        case = {"id": f"task-{identity}", "input": _instructions(task), "checks": checks}
        name = self._imported.add_case(case, where, self._request)
        self._cases[identity] = (name, [*actions, *([""] * (len(checks) - len(actions)))])

    def _actions(self, criteria: Mapping[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """(id, check) of each action of the agent."""
        for index, action in enumerate(_mappings(criteria.get("actions"))):
            name, arguments = action.get("name"), action.get("arguments")
            if not isinstance(name, str) or not name or "*" in name or not isinstance(arguments, Mapping):
                self._imported.note("none", where, "an action", "it needs a name and arguments")
            elif action.get("requestor", "assistant") != "assistant":
                self._imported.note("none", where, name, "the simulated user makes this call")
            else:
                if any(isinstance(each, str) and each.strip()[:1] in ("{", "[") for each in arguments.values()):
                    self._imported.note("differs", where, name, _NESTED)
                yield str(action.get("action_id") or f"action {index}"), action_check(action)

    def add_simulation(self, simulation: Any, model: str, where: str) -> None:
        """Add a conversation as a recorded output, with tau2's verdicts on the actions."""
        identity = str(simulation.get("task_id")) if isinstance(simulation, Mapping) else ""
        case, actions = self._cases.get(identity, ("", []))
        if not case:
            self._imported.note("none", where, "a simulation", "its task is not imported")
            return
        said = {
            str(_part(each, "action").get("action_id")): verdict_of(each.get("action_match"))
            for each in _mappings(_part(simulation, "reward_info").get("action_checks"))
        }
        output: dict[str, Any] = {"messages": [*_messages(simulation.get("messages"))]}
        for key, ours in (("agent_cost", "cost"), ("duration", "latency_seconds")):
            if isinstance(simulation.get(key), int | float) and simulation[key] >= 0:
                output[ours] = simulation[key]
        if not output["messages"]:
            output = {"error": "no messages were recorded"}
        trial = simulation.get("trial")
        repeat = trial if type(trial) is int and trial >= 0 else None
        self._imported.add_output(model, case, output, [said.get(action) for action in actions], repeat)


def action_check(action: Mapping[str, Any]) -> dict[str, Any]:
    """The check of an action: some call of its name has its arguments, those of `compare_args` if it has that."""
    arguments, compared = action["arguments"], action.get("compare_args")
    compared = compared if compared is None else _texts(compared)
    check = {"calls-tool": action["name"]}
    if compared is None:
        # tau2 compares the arguments that the call has: others of the action may be missing.
        properties = {key: {"const": value} for key, value in arguments.items()}
        return check | {"schema": {"properties": properties, "additionalProperties": False}}
    if not compared:
        return check
    wanted: dict[str, Any] = {key: {"const": arguments[key]} if key in arguments else False for key in compared}
    return check | {"schema": {"properties": wanted, "required": sorted({*compared} & {*arguments})}}


def _instructions(task: Mapping[str, Any]) -> str:
    """What the simulated user is asked to do."""
    given = _part(task, "user_scenario").get("instructions")
    if isinstance(given, Mapping):
        given = "\n".join(f"{key}: {value}" for key, value in given.items() if isinstance(value, str))
    return str(given or "")


def _messages(listed: Any) -> Iterator[dict[str, Any]]:
    """The conversation in evalq's form; calls and results of the simulated user's own tools are left out."""
    for message in _mappings(listed):
        role = message.get("role")
        parts = _mappings(message.get("tool_messages")) or [message] if role == "tool" else []
        for part in parts:
            if part.get("requestor", "assistant") == "assistant":
                failed = {"is_error": True} if part.get("error") else {}
                yield {"role": "tool", "tool_call_id": str(part.get("id")), "content": part.get("content"), **failed}
        if role in ("system", "user", "assistant"):
            calls = [
                {"id": str(call.get("id")), "name": call.get("name"), "arguments": call.get("arguments")}
                for call in _mappings(message.get("tool_calls"))
                if role == "assistant" and isinstance(call.get("name"), str)
            ]
            yield {"role": role, "content": message.get("content")} | ({"tool_calls": calls} if calls else {})


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str) and each] if isinstance(value, list) else []


def _mappings(value: Any) -> Sequence[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _part(holder: Any, key: str) -> Mapping[str, Any]:
    found = holder.get(key) if isinstance(holder, Mapping) else None
    return found if isinstance(found, Mapping) else {}
