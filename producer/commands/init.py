"""Write first cases and a target, ready to run: cases.yaml, targets.yaml.

A file that is there already stays as it is. The last line is the command that runs the cases.
"""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import click

from evalq.evalcore.errors import UsageError
from evalq.producer.invocation.invocation import Invocation, command

_CASES = """\
# Questions to the agent, and checks of each answer. All checks: docs/reference/evaluators/checks.md
cases:
{cases}"""
_EXAMPLES: tuple[dict[str, Any], ...] = (
    {"id": "capital", "input": "What is the capital of France?", "checks": [{"icontains": "paris"}]},
    {"id": "sum", "input": "What is 17 plus 25? Answer with the number only.", "checks": [{"contains": "42"}]},
    {
        "id": "json",
        "input": 'Answer with JSON only: {"country": the country of the Eiffel Tower}',
        "checks": ["is-json", {"icontains": "france"}],
    },
    {
        "id": "short",
        "input": "Explain in one sentence what a unit test is.",
        "checks": ["not-refusal", {"max-length": 400}],
    },
)
_DEFAULT = "openai:gpt-4o-mini"
_INPUTS = ("input", "question", "prompt", "query", "instruction", "질문", "입력")
_EXPECTED = ("expected", "answer", "ideal", "gold", "target", "reference", "output", "정답", "기대결과")
_IDS = ("id", "case", "qid", "name")
_IGNORED = "evalq-runs/\nevalq-demo/\n"
_POLICY = """\
# evalq run evalq.yaml --targets targets.yaml runs the cases, compares with the baseline, and decides by the policy.
suite: {suite}
runs:
  - evaluator: checks
    cases: cases.yaml
    target: agent
    repeat: 20
policy:
  gates:
    - {{metric: checks.pass_rate, max_drop: 0.05}}
baseline: main
"""
_CI: dict[str, tuple[str, str]] = {
    "github": (
        ".github/workflows/evalq.yml",
        """\
name: evalq
on: [pull_request]
permissions: {{contents: read, pull-requests: write}}
jobs:
  gate:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
        with: {{submodules: true}}
      # evalq has no public address yet: keep a checkout of it here (git submodule add ADDRESS vendor/evalq).
      # It installs evalq, runs evalq.yaml, and shows the decision as the job's summary and as one comment.
      - uses: ./vendor/evalq
        with:
          suite: evalq.yaml
          targets: targets.yaml
{env}""",
    ),
    "gitlab": (
        ".gitlab-ci.yml",
        """\
# Gates merge requests by evalq.yaml.
# evalq has no public address yet: keep a checkout of it here (git submodule add ADDRESS vendor/evalq), and a copy of
# its template, since GitLab reads no file of a submodule: cp vendor/evalq/deploy/ci/gitlab/evalq.yml evalq-gate.yml
include: evalq-gate.yml
evalq:
  extends: .evalq-gate
  variables: {{SUITE: evalq.yaml, EVALQ_TARGETS: targets.yaml, GIT_SUBMODULE_STRATEGY: recursive}}
{env}""",
    ),
}


_KEYS = {
    "github": "          keys: |\n            {key}=${{{{ secrets.{key} }}}}\n",
    "gitlab": "  # The job needs the variable {key}: set it in the project's CI settings, masked.\n",
}
"""Lines of a CI file for a target that needs a key."""


def _init(
    invocation: Invocation,
    folder: Path,
    spec: str,
    table: Path | None,
    suite: bool,
    gitignore: bool,
    ci: Literal["github", "gitlab"] | None,
) -> None:
    cases = _EXAMPLES if table is None else tuple(_cases_of(table))
    entry = _entry(spec)
    files = {"cases.yaml": _CASES.format(cases=_yaml(list(cases))), "targets.yaml": _targets(entry)}
    if suite or ci:
        files["evalq.yaml"] = _POLICY.format(suite=json.dumps(folder.resolve().name or "agents", ensure_ascii=False))
    if ci:
        name, text = _CI[ci]
        files[name] = text.format(env=_KEYS[ci].format(key=key) if (key := entry.get("api_key_env")) else "")
    written = [name for name, text in files.items() if _write(folder / name, text)]
    if gitignore or ci:
        _ignore_runs(folder / ".gitignore")
    if "targets.yaml" in written and (key := entry.get("api_key_env")):
        click.echo(f"put your key into the variable {key}; targets.yaml holds only its name")
    where = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    runs = "run evalq.yaml" if suite or ci else "checks cases.yaml --target agent"
    click.echo(f"run it: {where}evalq {runs} --targets targets.yaml")


def _write(path: Path, text: str) -> bool:
    """Write a file that is not there yet; return whether it was written."""
    from evalq.evalcore.files import write_atomic

    if path.exists():
        click.echo(f"kept {path}: it is there already")
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode())
    click.echo(f"wrote {path}")
    return True


def _ignore_runs(path: Path) -> None:
    """Add the folders of runs to a .gitignore, once."""
    from evalq.evalcore.files import write_atomic

    before = path.read_text(encoding="utf-8") if path.exists() else ""
    missing = [line for line in _IGNORED.splitlines() if line not in before.splitlines()]
    if missing:
        end = "" if before.endswith("\n") or not before else "\n"
        write_atomic(path, (before + end + "\n".join(missing) + "\n").encode())
        click.echo(f"added {', '.join(missing)} to {path}")


def _entry(spec: str) -> dict[str, Any]:
    from evalq.workers.targets.spec import FORMS, entries, is_spec

    if not is_spec(spec):
        raise UsageError(f"--target {spec}: name a target as one of {', '.join(FORMS)}")
    return next(iter(entries(spec)[0].values()))


def _targets(entry: dict[str, Any]) -> str:
    return (
        "# The agents that evalq may call from this machine. All keys: docs/reference/targets.md\n"
        f"targets:\n  agent:\n{_yaml(entry, '    ')}"
    )


def _yaml(value: Any, indent: str = "  ") -> str:
    import yaml

    from evalq.evalcore.records.yaml import Dumper

    text = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    return "".join(f"{indent}{line}\n" for line in text.splitlines())


def _cases_of(path: Path) -> Iterator[dict[str, Any]]:
    """A case a row of a CSV: its question, and a check for the expected text where a column has one.

    Raises UsageError for a file that has no column of questions.
    """
    from evalq.evalcore.records.batch import other_encoding
    from evalq.evalcore.records.inputs import HEAD_BYTES, file_kind

    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--from {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        why = file_kind(data[:HEAD_BYTES]) or f"it is not UTF-8: {other_encoding(data)}"
        raise UsageError(f"--from {path}: {why}") from None
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    csv.field_size_limit(1 << 24)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        listed = list(rows)
    except csv.Error as error:
        raise UsageError(f"--from {path}:{rows.line_num}: not CSV: {error}") from None
    columns = {name.strip().lower(): name for name in rows.fieldnames or () if name}
    question, expected, ids = (_column(columns, names) for names in (_INPUTS, _EXPECTED, _IDS))
    if question is None:
        raise UsageError(
            f"--from {path}: no column of questions: its columns are {', '.join(columns.values()) or 'none'}; name one "
            f"of them {', '.join(_INPUTS[:4])}. Files of other tools: evalq import"
        )
    given = {(row[ids] or "").strip() for row in listed} if ids else set()
    taken: set[str] = set()
    for number, row in enumerate(listed, start=1):
        if not (row[question] or "").strip():
            click.echo(f"{path}: row {number} has no {question}, and is left out")
            continue
        wanted = (row[expected] or "").strip() if expected else ""
        name = (row[ids] or "").strip() if ids else ""
        if not name or name in taken:
            name = next(
                free for n in range(number, number + len(listed) * 2 + 1) if (free := f"q{n}") not in given | taken
            )
        taken.add(name)
        # Two braces begin a variable in a cases file.
        text = row[question].replace("{{", "\\{{")
        yield {"id": name, "input": text, "checks": [{"icontains": wanted} if wanted else "not-refusal"]}
    if not taken:
        raise UsageError(f"--from {path}: no row has a {question}")


def _column(columns: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((columns[name] for name in names if name in columns), None)


COMMAND = command(
    _init,
    click.Argument(["folder"], type=click.Path(file_okay=False, path_type=Path), default=Path(), metavar="[DIR]"),
    click.Option(["--target", "spec"], default=_DEFAULT, show_default=True, metavar="TARGET",
                 help="The agent: openai:MODEL, anthropic:MODEL, gemini:MODEL, ollama:MODEL, http://..., "
                 "python:MODULE:FUNCTION, command:PROGRAM."),
    click.Option(["--from", "table"], type=click.Path(dir_okay=False, path_type=Path), metavar="CSV",
                 help="Make the cases from a CSV with a column of questions and, if there is one, of expected answers. "
                 "For files of other tools see evalq import."),
    click.Option(["--suite", "suite"], is_flag=True, help="Also write evalq.yaml: cases, policy and baseline."),
    click.Option(["--ci"], type=click.Choice(["github", "gitlab"]),
                 help="Also write evalq.yaml, a CI file that gates merges, and .gitignore lines."),
    click.Option(["--gitignore"], is_flag=True, help="Also keep the folders of runs out of git."),
)  # fmt: skip
