"""ATIF: trajectories in the interchange format of Harbor, with the result of their trial where it stands beside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.reading import read_json
from evalq.producer.importing.transcripts import (
    add_transcript,
    nanoseconds,
    objects_in,
    objects_of,
    part,
    span_of,
    summed,
)

_ROLES = {"user": "user", "agent": "assistant", "system": "system"}
_USAGE = {"prompt_tokens": "input", "completion_tokens": "output", "cached_tokens": "cached_input"}


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` with a line for each trajectory of the file. Raises ConfigError for other files."""
    found = [(where, each) for where, each in objects_of(path) if isinstance(each.get("steps"), list)
             and str(each.get("schema_version", "")).upper().startswith("ATIF")]  # fmt: skip
    if not found:
        raise ConfigError(f"{path}: no trajectory of ATIF in it (its keys are schema_version, agent and steps)")
    trial = _trial_of(path) if len(found) == 1 else {}
    for where, each in found:
        _add(each, where, trial, path, imported)


def _trial_of(path: Path) -> Mapping[str, Any]:
    """The result of Harbor's trial: result.json above the folder of the agent's trajectory; empty without one."""
    for folder in (path.parent, path.parent.parent):
        result = folder / "result.json"
        if result != path and result.is_file():
            data = read_json(result)
            if isinstance(data, dict) and ({"trial_name", "task_name"} & data.keys()):
                return data
    return {}


def _add(given: Mapping[str, Any], where: str, trial: Mapping[str, Any], path: Path, imported: Imported) -> None:
    agent, final = part(given, "agent"), part(given, "final_metrics")
    steps = [step for step in given["steps"] if isinstance(step, dict)]
    messages = [message for step in steps for message in _messages(step)]
    replies = [step for step in steps if step.get("source") == "agent"]
    metrics = [step["metrics"] for step in replies if isinstance(step.get("metrics"), dict)]
    usage = _counts({key.removeprefix("total_"): value for key, value in final.items()}) or summed(
        map(_counts, metrics)
    )
    costs = [each.get("cost_usd") for each in metrics]
    cost = final.get("total_cost_usd")
    if cost is None and costs and all(isinstance(each, int | float) for each in costs):
        cost = sum(costs)
    models = [step["model_name"] for step in replies if isinstance(step.get("model_name"), str)]
    model = models[-1] if models else agent.get("model_name")
    facts = {"agent.name": agent.get("name"), "agent.version": agent.get("version"),
             "task": trial.get("task_name"), "trial": trial.get("trial_name"), **_rewards(trial)}  # fmt: skip
    error = trial.get("exception_info")
    if isinstance(error, dict):
        facts["exception"] = error.get("exception_type")
    for reward in _rewards(trial):
        imported.note("none", where, reward, "it is the verdict of Harbor's verifier: it stands under `extra`")
    name = str(trial.get("trial_name") or given.get("session_id") or path.parent.name)
    add_transcript(
        imported,
        name,
        messages,
        usage=usage,
        cost=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
        served={"model": model} if isinstance(model, str) else None,
        turns=len(replies),
        session=str(given.get("session_id") or ""),
        extra={key: value for key, value in facts.items() if isinstance(value, str | int | float)},
        **span_of([nanoseconds(step.get("timestamp")) for step in steps]),
    )


def _rewards(trial: Mapping[str, Any]) -> dict[str, Any]:
    result = trial.get("verifier_result")
    rewards = result.get("rewards", result.get("reward")) if isinstance(result, dict) else None
    if isinstance(rewards, dict):
        return {f"reward.{name}": value for name, value in rewards.items()}
    return {} if rewards is None else {"reward": rewards}


def _counts(metrics: Mapping[str, Any]) -> dict[str, int]:
    return {ours: metrics[theirs] for theirs, ours in _USAGE.items() if type(metrics.get(theirs)) is int}


def _messages(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The message of a step, and the results of its calls."""
    role, content = _ROLES.get(str(step.get("source")), "system"), step.get("message")
    made: dict[str, Any] = {"role": role, "content": content if isinstance(content, str | list) else ""}
    calls: list[dict[str, Any]] = [
        {"id": str(call.get("tool_call_id") or ""), "name": str(call.get("function_name") or "tool"),
         "arguments": call.get("arguments") if call.get("arguments") is not None else {}}
        for call in objects_in(step.get("tool_calls"))
    ]  # fmt: skip
    if calls and role == "assistant":
        made["tool_calls"] = calls
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    answers = [
        {"role": "tool", "tool_call_id": str(each.get("source_call_id") or ""), "content": each.get("content") or ""}
        for each in objects_in(results)
    ]  # fmt: skip
    return [made, *answers]
