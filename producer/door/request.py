"""A request of another program: its typed form, its JSON Schema, and the runs that it asks for.

Anyone who can reach the submit broker can send anything. A request is a few names and values of a suite file: it names
suites and inputs below one folder of this machine, targets of its targets file, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from pydantic import ConfigDict, Field, ValidationError, model_validator

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Params, options_of
from evalq.evalcore.contract.params import list_faults
from evalq.evalcore.errors import ConfigError, EvalqError, UsageError
from evalq.evalcore.naming import is_text
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.producer.folder.job import RunOptions
from evalq.producer.suites.run_model import FileLocation, run_model
from evalq.producer.suites.suite_file import SuitePlan, load_suite, planned_run
from evalq.workers.targets.spec import is_spec

if TYPE_CHECKING:
    from evalq.producer.folder.job import Job
    from evalq.producer.sweep.sweep import Sweep
    from evalq.workers.settings import Settings

MOST_BYTES = 1 << 20
"""The largest request, as JSON."""
_DEEPEST = 16
_MOST_VALUES = 10_000
_MOST_NAME = 1024
_NOT_HERE = ("output", "out", "matrix", "cache", "reuse", "stop")
"""Keys of a run that write files, need a producer that stays, or make many runs of one."""
_SHOWN = 10

_Name = Annotated[str, Field(min_length=1, max_length=_MOST_NAME)]


class SubmitRequest(Params):
    """The keyword arguments of the task `evalq.submit`: a ``suite`` or a ``run``, and how to keep it.

        app.send_task("evalq.submit", kwargs={"suite": "nightly.yaml"})
        app.send_task("evalq.submit", kwargs={"run": {"evaluator": "planagent", "inputs": ["results.csv"]}})

    Names of files are relative to the folder of the worker's ``--submit``.
    """

    model_config = ConfigDict(title="evalq.submit")

    suite: _Name | None = Field(default=None, description="The suite file whose runs to begin.")
    run: dict[str, Any] | None = Field(
        default=None, description="One run, with the keys that it would have in a suite file."
    )
    suite_name: str = Field(
        default="default",
        min_length=1,
        max_length=100,
        description="With run: the suite under which reports, history and dashboards show it.",
    )
    once: str = Field(
        default="",
        max_length=200,
        description="The same work under the same key is one run. Without it, the id of the task is the key.",
    )
    tags: dict[Annotated[str, Field(max_length=100)], Annotated[str, Field(max_length=1000)]] = Field(
        default_factory=dict, max_length=20, description="Notes that are kept with the runs."
    )
    priority: Literal["bulk", "interactive"] = Field(
        default="bulk", description="interactive is computed before all bulk work."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> SubmitRequest:
        if (self.suite is None) == (self.run is None):
            raise ValueError("give `suite` or `run`, one of the two")
        if self.suite is not None and self.suite_name != "default":
            raise ValueError("`suite_name` goes with `run`; a suite file has its own name")
        return self


def read_request(arguments: Any) -> SubmitRequest:
    """The request in the arguments of a task. Raises UsageError for one that is not exactly a request."""
    if not isinstance(arguments, dict):
        raise UsageError("the request: an object with keyword arguments is needed")
    _bounded(arguments)
    try:
        return SubmitRequest.model_validate(arguments)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, where)) or 'the request'}: {why}" for where, why in _faults(error)]
        more = [f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
        raise UsageError("; ".join([*faults[:_SHOWN], *more])) from None


def _faults(error: ValidationError) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for where, why in list_faults(error, SubmitRequest, show_values=False):
        yield tuple(str(part)[:50] for part in where), why.removeprefix("Value error, ")


def _bounded(value: Any) -> None:
    """Raise UsageError for a request that is too deep, has too many values, or text that is not UTF-8."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    count = 0
    while waiting:
        each, depth = waiting.pop()
        count += 1
        if depth > _DEEPEST:
            raise UsageError(f"the request: nested more than {_DEEPEST} deep")
        if count > _MOST_VALUES:
            raise UsageError(f"the request: more than {_MOST_VALUES:,} values")
        if isinstance(each, Mapping):
            waiting += [(one, depth + 1) for pair in each.items() for one in pair]
        elif isinstance(each, list | tuple):
            waiting += [(one, depth + 1) for one in each]
        elif isinstance(each, str) and not is_text(each):
            raise UsageError(f"the request: {each[:50]!a} is not text in UTF-8")
        elif isinstance(each, str) and "\0" in each:
            raise UsageError(f"the request: {each[:50]!r} has a zero byte")


# -- what a request may name, and the runs that it stands for ---------------------------------------


class Allowed(NamedTuple):
    """What requests may name on this machine: files below ``folder``, and ``targets`` (None: no targets file).

    Suite files below it may name inputs below ``roots``, too, as their writers may.
    """

    folder: Path
    roots: tuple[Path, ...]
    targets: frozenset[str] | None

    @classmethod
    def by(cls, settings: Settings) -> Allowed:
        """What the settings of a worker allow. Raises ConfigError if its folder is missing, or under no root."""
        folder = Path(settings.submit)
        roots = tuple(Path(root).resolve() for root in settings.roots or (Path.cwd(),))
        if not folder.is_dir():
            raise ConfigError(f"--submit {settings.submit}: no such folder")
        folder = folder.resolve()
        if not any(folder.is_relative_to(root) for root in roots):
            raise ConfigError(f"--submit {settings.submit}: workers may not read it: give --root {folder}, too")
        targets = None
        if settings.targets:
            from evalq.workers.targets import load_targets

            targets = frozenset(load_targets(settings.targets))
        return cls(folder, roots, targets)


class NamedStart(NamedTuple):
    """A run to begin: its name in the suite, and the function that begins it with the run options."""

    name: str
    begin: Callable[[RunOptions], Callable[[], Job | Sweep]]


def starts(request: SubmitRequest, allowed: Allowed) -> list[NamedStart]:
    """The runs that a request asks for; nothing is begun yet.

    Raises EvalqError for what it may not name, and for what is wrong with it, without the paths of this machine.
    """
    try:
        plan = _suite(request, allowed) if request.suite is not None else _single(request, allowed)
        for run in plan.runs:
            _refuse_targets(run.live.target if run.live else "", allowed)
            run.starter(plan.name, RunOptions(), detach=True)  # raises if it cannot be left to a fleet
        return [NamedStart(run.called, partial(run.starter, plan.name, detach=True)) for run in plan.runs]
    except EvalqError as error:
        raise UsageError(shown(str(error), allowed)) from None


def shown(text: str, allowed: Allowed, most: int = 2000) -> str:
    """A message for the sender: without the folders of this machine, and not endless."""
    text = text.replace(f"{allowed.folder}/", "").replace(str(allowed.folder), "the folder of requests")
    for up, folder in enumerate(allowed.folder.parents[:-1], start=1):
        text = text.replace(f"{folder}/", "../" * up)
    return text[:most]


def _suite(request: SubmitRequest, allowed: Allowed) -> SuitePlan:
    assert request.suite is not None
    path = _file(request.suite, "suite", allowed)
    if not path.is_file():
        raise UsageError(f"suite: {request.suite}: no such file")
    return load_suite(path, allowed.roots, here=False)


def _single(request: SubmitRequest, allowed: Allowed) -> SuitePlan:
    """A suite of one run, checked as a run of a suite file is."""
    written = dict(request.run or {})
    name = written.get("evaluator")
    if not isinstance(name, str):
        raise UsageError(f"run.evaluator: one of {', '.join(plugins.names())} is needed")
    if name not in plugins.names():
        raise UsageError(f"run.evaluator: no evaluator {name[:50]!r}; there are: {', '.join(plugins.names())}")
    evaluator = plugins.get(name)
    if unwanted := next((key for key in _NOT_HERE if key in written), None):
        raise UsageError(f"run.{unwanted}: not in a request; put it into a suite file, or use evalq run")
    files = {option.name for option in options_of(evaluator) if option.kind == "path"}
    for key in (evaluator.command.positional, *files, "log"):
        values = written.get(key)
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, str):
                _file(value, f"run.{key}", allowed)
    prompt = written.get("prompt")
    for part in prompt.values() if isinstance(prompt, dict) else ():
        if isinstance(part, dict) and isinstance(part.get("file"), str):
            _file(part["file"], "run.prompt", allowed)
    run = planned_run(FileLocation(allowed.folder / "request", ("run",)), written, (allowed.folder,))
    return SuitePlan(request.suite_name, [run])


def _file(name: str, key: str, allowed: Allowed) -> Path:
    """The file that a request names. Raises UsageError for a name that leads, or could lead, out of the folder."""
    parts = Path(name).parts
    if "://" in name:
        raise UsageError(f"{key}: {name[:100]!r} is a URL; name a file below the folder of requests")
    if name == "-" or name.startswith(("-", "~")) or Path(name).is_absolute() or ".." in parts or "\\" in name:
        raise UsageError(f"{key}: {name[:100]!r}: the name of a file below the folder of requests is needed")
    if "**" in name or len(name) > _MOST_NAME:
        raise UsageError(f"{key}: {name[:100]!r}: too long, or a pattern of any depth; name a file or a folder")
    try:
        real = (allowed.folder / name).resolve()
    except (OSError, ValueError, RuntimeError):  # the name is too long, or links form a ring
        raise UsageError(f"{key}: {name[:100]!r}: no file can have this name") from None
    if not allows(Writer.REQUEST, Thing.PATH, real, (allowed.folder,)):
        raise UsageError(f"{key}: {name[:100]!r} leads out of the folder of requests")
    return real


def _refuse_targets(target: str, allowed: Allowed) -> None:
    """Raise UsageError for a target that the worker's targets file does not have."""
    if not target:
        return
    if allowed.targets is None:
        raise UsageError(f"target {target[:100]!r}: this worker has no targets file: start it with --targets FILE")
    name = target.partition("[")[0]
    if is_spec(target) or (target not in allowed.targets and name not in allowed.targets):
        known = ", ".join(sorted(allowed.targets)) or "none"
        raise UsageError(f"target {target[:100]!r}: not in the worker's targets file, which has: {known}")


# -- the JSON Schema ---------------------------------------------------------------------------------


def schema(evaluators: Iterable[str] = ()) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a request, with the keys of a run of ``evaluators`` [all that are installed]."""
    whole = SubmitRequest.model_json_schema()
    definitions = whole.setdefault("$defs", {})
    names = []
    for name in sorted(evaluators or plugins.names()):
        definitions[f"run-{name}"] = _run_schema(name)
        names.append(f"#/$defs/run-{name}")
    text = whole["properties"]["run"].get("description", "")
    whole["properties"]["run"] = {"oneOf": [*({"$ref": name} for name in names)], "description": text}
    whole["oneOf"] = [{"required": ["suite"]}, {"required": ["run"]}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole}


def _run_schema(name: str) -> dict[str, Any]:
    evaluator = plugins.get(name)
    model = run_model(name)
    helps = {option.name: option.help for option in options_of(evaluator)}
    properties: dict[str, Any] = {"evaluator": {"const": name}}
    for key, field in model.model_fields.items():
        if key in (*_NOT_HERE, "evaluator"):
            continue
        properties[key] = _key_schema(field.annotation, key in ("prompt", "params"))
        if key in helps:
            properties[key]["description"] = helps[key]
    required = ["evaluator"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_PLAIN: Mapping[Any, Any] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _key_schema(annotation: Any, anything: bool) -> dict[str, Any]:
    """The schema of a key by its annotation; a list may be written as its only member."""
    kinds = sorted(set(_kinds(annotation)))
    choices = sorted(set(_choices(annotation)))
    if anything or not (kinds or choices):
        return {"type": ["object", "string"]} if anything else {}
    one: dict[str, Any] = {"enum": choices} if choices else {"type": kinds[0] if len(kinds) == 1 else kinds}
    if "tuple" in str(annotation):
        return {"anyOf": [one, {"type": "array", "items": one}]}
    return one


def _kinds(annotation: Any) -> Iterator[str]:
    from typing import get_args

    if annotation in _PLAIN:
        yield _PLAIN[annotation]
    for each in get_args(annotation):
        yield from _kinds(each)


def _choices(annotation: Any) -> Iterator[str]:
    from typing import get_args, get_origin

    if get_origin(annotation) is Literal:
        yield from (each for each in get_args(annotation) if isinstance(each, str))
        return
    for each in get_args(annotation):
        yield from _choices(each)


def decoded(data: bytes) -> Any:
    """JSON from outside. Raises UsageError for anything else, for a key that occurs twice, and if it is too deep."""
    if len(data) > MOST_BYTES:
        raise UsageError(f"the request: {len(data):,} bytes; at most {MOST_BYTES:,}")
    try:
        msgspec.json.decode(data)  # strict, and bounded in its depth
        return json.loads(data, object_pairs_hook=_once_each, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the request: not JSON that can be read: {str(error)[:100]}") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        doubled = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"the key {doubled[:50]!r} occurs twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
