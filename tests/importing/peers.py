"""Holds imported checks against the tools themselves, on 1,000 answers.

    python -m tests.importing.peers [promptfoo] [inspect] [lm-eval] [deepeval] [page]

Each tool judges the answers of `peer_outputs` in an environment of its own; evalq imports what it wrote, and judges the
same answers. What each said goes to `recorded/peers.json`, which `test_peers` reads without any of the tools, and the
figures to docs/reference/importing-peers.md. `make peers` runs all of it; checks that a judge decides have no part.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer
from evalq.evalcore.evaluators.checks.check import compile_check
from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest
from tests.importing import trajectories
from tests.importing.environments import (
    INSPECT,
    LM_EVAL,
    PROMPTFOO,
    inspect_python,
    lm_eval_python,
    promptfoo_command,
    run,
)
from tests.importing.peer_outputs import outputs

RECORD = Path(__file__).parent / "recorded" / "peers.json"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "importing-peers.md"
_MADE = Path(__file__).parent / "made" / "peers"
_EXPECTED = ("Paris", "42")

_VALUES: tuple[tuple[str, Any], ...] = (
    *(("equals", value) for value in ("Paris", "42", 42, True, {"a": 1}, [1, 2, 3], "STRASSE in Österreich")),
    *(("contains", value) for value in ("Paris", 42, "é", "\n", '"a"', "ß")),
    *(("icontains", value) for value in ("paris", "STRASSE", "ΣΊΣΥΦΟΣ", "k", "ñ")),
    *((kind, ["Paris", "42"]) for kind in ("contains-any", "contains-all")),
    *((kind, "paris, answer") for kind in ("icontains-any", "icontains-all")),
    *(("starts-with", value) for value in ("Paris", " ", "{")),
    *(
        ("regex", value)
        for value in (r"\d+", r"^\w+$", r"\bParis\b", r"^.{5}$", r"\s{2,}", r"[가-힣]+", r"^[\s\S]*$", r"42\b")
    ),
    *(("is-json", value) for value in (None, {"type": "object", "required": ["a"]}, {"type": "array", "minItems": 1})),
    *(("contains-json", value) for value in (None, {"type": "object", "required": ["name"]})),
    *(("word-count", value) for value in (1, {"min": 3}, {"max": 5}, {"min": 2, "max": 10})),
    ("is-refusal", None),
)
_LINES = (
    *(
        'output.includes("Paris")',
        "output.toLowerCase().includes('paris')",
        "output.trim() === 'Paris'",
        "output.length < 9",
    ),
    *(
        "output.length >= 20 ? 1 : 0",
        "output.trim().length > 0",
        "output.split(' ').length < 4",
        "output.split('\\n').length > 1",
    ),
    *(
        r"output.trim().split(/\s+/).length <= 3",
        r"/^\s*[{\[]/.test(output)",
        r"/paris|42/i.test(output)",
        "output.endsWith('.')",
    ),
    *("JSON.parse(output).a === 1", "JSON.parse(output).name.includes('Paris')", "JSON.parse(output).name.length > 4"),
    *("!(JSON.parse(output).a === 1)", "!output.includes('a') && output.length > 3", "1 / (output.length + 1)"),
    "JSON.parse(output).score > 4",
)


def assertions() -> list[dict[str, Any]]:
    """promptfoo's, each with a name of its own."""
    plain = [{"type": kind} | ({} if value is None else {"value": value}) for kind, value in _VALUES]
    made = [*plain, *({**each, "type": f"not-{each['type']}"} for each in plain[::3])]
    made += [{"type": "levenshtein", "value": "Paris", "threshold": most} for most in (0, 2, 20)]
    made += [{"type": "javascript", "value": line} for line in _LINES]
    made += [{"type": "not-javascript", "value": line} for line in _LINES[:12:2]]
    made += [
        {"type": "equals", "value": "paris", "transform": "output.trim().toLowerCase()"},
        {"type": "contains", "value": "42", "transform": "output.trim()"},
    ]
    return [{**each, "metric": f"{number:02} {each['type']}"} for number, each in enumerate(made)]


class Difference(NamedTuple):
    """Checks whose names begin so may differ on such an answer, and why."""

    tool: str
    names: tuple[str, ...]
    of: Callable[[str], bool]
    why: str

    def holds(self, tool: str, what: str, answer: str) -> bool:
        """Whether it explains that a check differs on an answer."""
        return tool == self.tool and what.partition(" ")[2].startswith(self.names) and self.of(answer)


def _folds(text: str) -> bool:
    return text.casefold() != text.lower()


def _is_beyond(text: str) -> bool:
    return any(ord(sign) > 0xFFFF for sign in text)


def _has_odd_space(text: str) -> bool:
    return any(sign in text for sign in "\ufeff\x1c\x85")


def _has_huge_number(text: str) -> bool:
    return re.search(r"\de[3-9]\d\d", text) is not None


def _any(text: str) -> bool:
    return True


_PROGRAMS = ("javascript", "not-javascript")
DIFFERENCES: tuple[Difference, ...] = (
    Difference("promptfoo", ("contains-json", "not-contains-json"), _any,
               "evalq takes the whole answer, or JSON in one fenced block; promptfoo the first object in any text"),
    Difference("promptfoo", ("is-refusal", "not-is-refusal"), _any,
               "two lists of phrases; to promptfoo an empty answer is a refusal"),
    Difference("promptfoo", ("icontains", "not-icontains"), _folds,
               "evalq folds the case (ß is ss), promptfoo lowers it"),
    Difference("promptfoo", ("is-json", "not-is-json", *_PROGRAMS), _has_huge_number,
               "a number past all doubles is no number to evalq"),
    Difference("promptfoo", ("word-count", "not-word-count", "equals", *_PROGRAMS), _has_odd_space,
               "U+FEFF is white space to JavaScript alone, U+001C and U+0085 to Python alone"),
    Difference("promptfoo", ("levenshtein", "regex", "not-regex", *_PROGRAMS), _is_beyond,
               "a character beyond U+FFFF is one to evalq, two to JavaScript"),
    Difference("inspect", ("match",), lambda text: "ss" in text.casefold(),
               "Inspect takes ß for ss, a pattern takes neither for the other"),
    Difference("inspect", ("choice",), lambda text: "(" in text,
               "brackets around a letter go wherever they stand; in Inspect before a comma, a full stop or the end"),
    Difference("promptfoo", _PROGRAMS, lambda text: '"score": "' in text,
               "JavaScript compares a text with a number as a number; the import notes it"),
)  # fmt: skip
"""All that is known: any other difference fails the test."""


class Compared(NamedTuple):
    """A check on all answers: on how many both have a verdict and the same one, and the (answer, reason) of others."""

    tool: str
    what: str
    same: int
    compared: int
    other: list[tuple[str, str]]


def compared(tool: str, recorded: Mapping[str, Any], answers: Iterable[str]) -> Compared:
    """evalq's verdicts of a recorded check beside the tool's. A reason is empty where none is known."""
    check = compile_check(recorded["check"])
    same, other, count = 0, [], 0
    for answer, said in zip(answers, recorded["said"], strict=True):
        if said == "-":
            continue
        count += 1
        if check.judge(CheckedAnswer(answer)).passed is (said == "1"):
            same += 1
            continue
        reasons = (each.why for each in DIFFERENCES if each.holds(tool, recorded["what"], answer))
        other.append((answer, next(reasons, "")))
    return Compared(tool, recorded["what"], same, count, other)


def digest_of(answers: list[str]) -> str:
    """Of the answers: what is recorded is of these alone."""
    return hashlib.sha256(json.dumps(answers).encode()).hexdigest()


Written = tuple[str, Path]
"""What goes before the names of a file's checks, and the file."""


def _promptfoo(folder: Path) -> list[Written]:
    provider = (
        'import { readFileSync } from "fs";\n'
        'const answers = JSON.parse(readFileSync(new URL("./outputs.json", import.meta.url)));\n'
        "export default class {\n"
        '  id() { return "listed"; }\n'
        "  async callApi(prompt, context) { return { output: answers[context.vars.n] }; }\n"
        "}\n"
    )
    (folder / "provider.mjs").write_text(provider)
    tests = [{"description": f"c{n}", "vars": {"n": n}} for n in range(len(outputs()))]
    config = {
        "prompts": ["Question {{n}}?"],
        "providers": ["file://provider.mjs"],
        "defaultTest": {"assert": assertions()},
        "tests": tests,
    }
    (folder / "promptfooconfig.json").write_text(json.dumps(config))
    command, environment = promptfoo_command(folder / "promptfooconfig.json", folder / "results.json", folder / "state")
    run([*command, "--no-table", "--no-progress-bar", "--no-write"], folder, environment)
    return [("", folder / "results.json")]


def _inspect(folder: Path) -> list[Written]:
    script = shutil.copy(_MADE / "inspect_scores.py", folder)
    run([str(inspect_python()), str(script), str(folder)], folder, {**os.environ, "HOME": str(folder)})
    return [(f"{path.parent.name}.", path) for path in sorted(folder.glob("*/*.eval"))]


def _lm_eval(folder: Path) -> list[Written]:
    for path in _MADE.glob("*.yaml"):
        shutil.copy(path, folder)
    script = shutil.copy(_MADE / "lm_eval_scores.py", folder)
    for task, target in (("number", "42"), ("word", "Paris")):
        lines = [json.dumps({"question": str(n), "answer": target}) for n in range(len(outputs()))]
        (folder / f"questions-{task}.jsonl").write_text("\n".join(lines) + "\n")
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "home")}
    run([str(lm_eval_python()), str(script), str(folder)], folder, {**os.environ, **offline})
    return [("", path) for path in sorted(folder.glob("**/results_*.json"))]


def _deepeval(folder: Path) -> list[Written]:
    found: list[Written] = []
    for number, expected in enumerate(_EXPECTED):
        inner = folder / str(number)
        inner.mkdir()
        shutil.copy(folder / "outputs.json", inner)
        script = shutil.copy(_MADE / "deepeval_scores.py", inner)
        environment = {**os.environ, "DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "HOME": str(inner)}
        run([sys.executable, str(script), str(inner), expected], inner, environment)
        found += [(f"{number}.", path) for path in sorted(inner.glob("run-*.json"))]
    return found


TOOLS: Mapping[str, tuple[str, str, Callable[[Path], list[Written]]]] = {
    "promptfoo": ("promptfoo", PROMPTFOO, _promptfoo),
    "inspect": ("inspect", INSPECT, _inspect),
    "lm-eval": ("lm-eval", LM_EVAL, _lm_eval),
    "deepeval": ("deepeval", version("deepeval"), _deepeval),
}
"""By name: the source that evalq imports, the version, and what writes the files that are imported."""


def _recorded(imported: Imported, answers: list[str], prefix: str) -> list[dict[str, Any]]:
    """Of each check that the cases have: what it is, and what the tool said of each answer."""
    known = {answer: number for number, answer in enumerate(answers)}
    cases = {case["id"]: case for case in imported.cases}
    said: dict[str, list[str]] = {}
    checks: dict[str, dict[str, Any]] = {}
    for source, lines in imported.outputs.items():
        for line in lines:
            verdicts = imported.verdicts.get((line["case"], line["repeat"], source), ())
            for at, (check, verdict) in enumerate(zip(cases[line["case"]]["checks"], verdicts)):  # noqa: B905 - none
                task = next((tag for tag in cases[line["case"]].get("tags", ()) if tag.startswith("task:")), "")
                # promptfoo's names are numbered; elsewhere the place is the number.
                named = check["name"] if " " in check.get("name", "") and not prefix else ""
                what = named or f"{prefix}{task[5:]}{at:02} {check.get('name', next(iter(check)))}"
                assert checks.setdefault(what, check) == check, f"{what}: not the same check in all cases"
                bits = said.setdefault(what, ["-"] * len(answers))
                bits[known[line["output"]]] = "-" if verdict is None else "01"[verdict]
    return [{"what": what, "check": checks[what], "said": "".join(bits)} for what, bits in said.items()]


def record(tool: str) -> dict[str, Any]:
    """What a tool says of the answers, by way of what evalq imports of its files."""
    source, number, write = TOOLS[tool]
    answers = outputs()
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given).resolve()
        (folder / "outputs.json").write_text(json.dumps(answers))
        for prefix, path in write(folder):
            for check in _recorded(sources.read(source, path, ImportRequest()), answers, prefix):
                known = found.setdefault(check["what"], check)
                assert known["check"] == check["check"], f"{check['what']}: not the same check in all files"
                known["said"] = "".join(a if b == "-" else b for a, b in zip(known["said"], check["said"], strict=True))
    return {"version": number, "checks": list(found.values())}


_HEAD = """# Imported checks beside the tools themselves

`make peers` has each tool judge the same {count:,} answers from a seed: plain texts, Unicode, numbers, JSON, markup,
white space, and nothing. It imports the tool's files, and compares every verdict, except those of judges. `make test`
compares the recorded verdicts again, without the tools.

`make peers` also has promptfoo and imported targets call one recording server
(`tests/importing/peer_requests.py`): method, path, headers and body are the same for 14 providers, with prompts
that are texts and chats.

| Tool | Version | Checks | Verdicts | The same | Others, each for a reason below |
| --- | --- | --- | --- | --- | --- |"""


def page(recorded: Mapping[str, Any], answers: list[str]) -> str:
    """The figures, and each difference with its reason."""
    lines = [_HEAD.format(count=len(answers))]
    reasons: dict[tuple[str, str], tuple[int, set[str], str]] = {}
    for tool, said in recorded["tools"].items():
        rows = [compared(tool, check, answers) for check in said["checks"]]
        total, same = sum(row.compared for row in rows), sum(row.same for row in rows)
        lines.append(f"| {tool} | {said['version']} | {len(rows)} | {total:,} | {same:,} | {total - same:,} |")
        for row in rows:
            for answer, why in row.other:
                count, names, example = reasons.get((tool, why), (0, set(), answer))
                kind = row.what.partition(" ")[2].partition(" ")[0]
                reasons[tool, why] = (count + 1, {*names, kind}, min(example, answer, key=len))
    lines += ["", "| Tool | Check | Verdicts | Why | An answer |", "| --- | --- | --- | --- | --- |"]
    for (tool, why), (count, names, example) in sorted(reasons.items()):
        shown = json.dumps(example, ensure_ascii=True)[:60].replace("|", "\\|").replace("`", "'")
        kinds = ", ".join(f"`{name}`" for name in sorted(names))
        lines.append(f"| {tool} | {kinds} | {count} | {why or '?'} | `{shown}` |")
    with tempfile.TemporaryDirectory() as folder:
        did = trajectories.table(json.loads(trajectories.RECORD.read_text()), Path(folder))
    return "\n".join(lines) + "\n" + did


def _written(said: Mapping[str, Any]) -> None:
    """Put what tools said into the record, beside what others said before, and make the page of all."""
    answers = outputs()
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    kept = known.get("tools", {}) if known.get("answers_sha256") == digest_of(answers) else {}
    tools = {**kept, **said}
    messages = {"answers_sha256": digest_of(answers), "tools": {tool: tools[tool] for tool in TOOLS if tool in tools}}
    RECORD.write_text(json.dumps(messages, indent=1) + "\n")
    PAGE.write_text(page(messages, answers), encoding="utf-8")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or TOOLS:
        _written({} if wanted == "page" else {wanted: record(wanted)})
