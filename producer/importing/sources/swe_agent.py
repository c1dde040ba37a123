"""SWE-agent: a trajectory, as a .traj file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.answers import text_of
from evalq.evalcore.records.tool_calls import NoCall, read_call
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.reading import read_json
from evalq.producer.importing.transcripts import add_transcript, objects_in

_ROLES = ("system", "user", "assistant", "tool")


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` with the line of the trajectory. Raises ConfigError for other files."""
    data = read_json(path)
    steps = data.get("trajectory") if isinstance(data, dict) else None
    if not isinstance(steps, list) or not isinstance(data.get("info"), dict):
        raise ConfigError(f"{path}: no trajectory of SWE-agent (its keys are trajectory, history and info)")
    info = data["info"]
    stats = info.get("model_stats") if isinstance(info.get("model_stats"), dict) else {}
    steps = [step for step in steps if isinstance(step, dict)]
    messages = [_message(each) for each in objects_in(data.get("history"))]
    messages = [each for each in messages if each["role"] in _ROLES]
    usage = {ours: stats[theirs] for theirs, ours in (("tokens_sent", "input"), ("tokens_received", "output"))
             if type(stats.get(theirs)) is int}  # fmt: skip
    cost = stats.get("instance_cost")
    seconds = [step["execution_time"] for step in steps if isinstance(step.get("execution_time"), int | float)]
    more: dict[str, Any] = {"extra": {key: info[key] for key in ("exit_status", "swe_agent_version")
                                      if isinstance(info.get(key), str)}}  # fmt: skip
    more["extra"] |= {"environment": data["environment"]} if isinstance(data.get("environment"), str) else {}
    if seconds:
        more["extra"]["tool_seconds"] = sum(seconds)
    calls = [_call(step, index) for index, step in enumerate(steps) if step.get("action")]
    patch = info.get("submission")
    if isinstance(patch, str) and patch:
        messages.append({"role": "assistant", "content": patch})
    else:
        more["error"] = f"it submitted nothing: {info.get('exit_status') or 'no exit status'}"
        imported.note("differs", str(path), "a trajectory without a submission", "its output has no verdict")
    add_transcript(
        imported,
        path.name.partition(".")[0],
        messages,
        calls,
        usage=usage,
        cost=float(cost) if isinstance(cost, int | float) and cost > 0 else None,
        turns=stats["api_calls"] if type(stats.get("api_calls")) is int else len(steps),
        **more,
    )


def _message(given: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"role": str(given.get("role")), "content": given.get("content")}
    calls = []
    for each in objects_in(given.get("tool_calls")):
        try:
            read_call(each)
            calls.append(each)
        except NoCall:
            continue
    if calls:
        made["tool_calls"] = calls
    ids = given.get("tool_call_ids")
    if made["role"] == "tool" and isinstance(ids, list) and ids:
        made["tool_call_id"] = str(ids[0])
    return made


def _call(step: dict[str, Any], index: int) -> dict[str, Any]:
    """A step as a call: its action is a line for the agent's shell, which begins with the tool's name."""
    action = str(step["action"]).strip()
    made: dict[str, Any] = {"name": action.split(None, 1)[0] if action else "none", "arguments": {"command": action}}
    made |= {"result": text_of(step.get("observation") or ""), "id": f"step-{index + 1}"}
    seconds = step.get("execution_time")
    return {**made, "seconds": float(seconds)} if isinstance(seconds, int | float) and seconds >= 0 else made
