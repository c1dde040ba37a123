"""Turn cases files into params and prompts, and recorded outputs into inputs; stop decided cases."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.contract.evaluator import Prepared, Request
from evalq.evalcore.contract.params import as_json, load_mapping, validate
from evalq.evalcore.contract.repeats import CaseSoFar, StoppingByCase
from evalq.evalcore.errors import ConfigError, InputError, UsageError
from evalq.evalcore.evaluators.checks.case_files import Location, RecordedCase, Verbatim, as_label, selects
from evalq.evalcore.evaluators.checks.cases import ExpandedCase, read_all
from evalq.evalcore.evaluators.checks.check import decides_fallibly
from evalq.evalcore.evaluators.checks.diversity.kinds import MOST_REPEATS
from evalq.evalcore.evaluators.checks.diversity.near import NearKinds
from evalq.evalcore.evaluators.checks.diversity.report import is_certain
from evalq.evalcore.evaluators.checks.labels import load_labels
from evalq.evalcore.evaluators.checks.params import ChecksParams, Diversity, ManyCases, diversity_of, thresholds_of
from evalq.evalcore.evaluators.checks.report import Demand
from evalq.evalcore.evaluators.checks.score import ScoredOutput, scorer_for
from evalq.evalcore.files import open_input
from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.model.canonical import canonical_json, digest
from evalq.evalcore.model.lines import LONG
from evalq.evalcore.naming import kind_of, shorten
from evalq.evalcore.records.foreign import refuse_foreign
from evalq.evalcore.records.inputs import require_distinct
from evalq.evalcore.records.json_values import Malformed, decode
from evalq.evalcore.records.layouts import Kind, mapped_keys, read_recorded, recorded_sources
from evalq.evalcore.records.traces.recording import record_traces
from evalq.evalcore.statistics.diversity import share_rule

# `--stop when-decided`: which cases of a sweep are decided. Lines are scored as for the report, so both agree.


class _CaseProgress(CaseSoFar):
    """Counts the outputs of a case with a verdict, those that passed, and their kinds."""

    def __init__(self, params: ChecksParams) -> None:
        super().__init__()
        self._params = params
        self._passed = self._answers = 0
        self._kinds: NearKinds | None = None

    def count(self, test: ScoredOutput) -> None:
        if test.plan is None:
            return
        self._answers += 1
        self._passed += test.status == "passed"
        case = test.plan.case
        demands = [
            Demand(case.id, each, self._passed, self._answers, self.planned)
            for each in thresholds_of(case, self._params)
        ]
        decided = [demand.verdict in ("holds", "fails") for demand in demands]
        if test.plan.diversity is not None:
            decided.append(self._is_collapse_known(test, test.plan.diversity))
        self.decided = bool(decided) and all(decided)

    def _is_collapse_known(self, test: ScoredOutput, how: Diversity) -> bool:
        """Whether the answers are known to be collapsed or diverse."""
        kinds = self._kinds = self._kinds or NearKinds(how.similarity)
        if test.mark.text and test.repeat is not None and test.repeat < MOST_REPEATS:
            kinds.add(test.mark.text, test.mark.likeness)
        if kinds.answers < 2:
            return False  # one answer has no repeats
        verdict = share_rule(self.planned).verdict(kinds.mode, kinds.answers, how.collapse_share)
        # Another answer may join two kinds, so that near kinds are never known to be diverse.
        if how.by == "near":
            return verdict == "collapsed" and is_certain(verdict, kinds, share_rule(self.planned), how)
        return verdict in ("collapsed", "diverse")


def stopping_for(params: ChecksParams) -> StoppingByCase:
    """Decides each case when each of its thresholds holds or fails, and its answers are collapsed or diverse.

    The chance that a verdict is ever wrong is ALPHA at most, however often the case is checked.
    """
    scorer = scorer_for(params)

    def scored(line: bytes) -> ScoredOutput | None:
        test = scorer.test(line)
        return None if test.plan is None or test.repeat is None or test.score is None else test

    return StoppingByCase(scored, lambda: _CaseProgress(params))


_USE = "evalq checks CASES... --outputs FILE.jsonl|FOLDER | --traces FILE | --target NAME --repeat N"
# Only these endings: v1.5 may be the name of a case.
_ENDING = re.compile(r"\.(?:json|txt|md)\Z")


def complete_request(request: Request) -> Request:
    """``request`` with the cases in params and the recorded outputs as inputs. Raises UsageError, ConfigError."""
    return _complete(request, None)[0]


def begin_request(request: Request, long: int = LONG) -> tuple[Request, ManyCases | None]:
    """The same, and the cases if they are more than ``long``: then params name their file. Raises as that does."""
    return _complete(request, long)


def _complete(request: Request, long: int | None) -> tuple[Request, ManyCases | None]:
    outputs = _outputs(request)
    if request.params.get("cases_file") is not None:
        raise UsageError("cases_file is for evalq alone: name the files of cases instead")
    for name in ("judge", "embedder"):
        if request.options.get(name):
            raise UsageError(f"--{name} asks a target, which takes a sweep: from Python it is evalq.sweep")
    if request.options.get("against"):
        raise UsageError("--against needs a judge: add --judge NAME, or omit --against to use the recorded judgements")
    if not outputs and request.params.get("cases"):
        return request, None  # params have the cases already, and the inputs are recorded outputs
    if not outputs:
        raise UsageError(f"checks needs recorded outputs or a target: {_USE}")
    require_distinct(outputs)
    taken = _take_cases(request, long)
    _refuse_foreign(request, taken.ids.__contains__, list(islice(taken.ids, 3)))
    params = taken.params
    if labels := request.options.get("labels"):
        # A label would count for two outputs, though a person saw only one.
        if len(outputs) > 1:
            raise UsageError(
                "--labels names outputs by case and repeat, which several files may share: give one --outputs"
            )
        params["labels"] = load_labels(str(labels))
    questions = taken.many.questions() if taken.many is not None else map(_prompt, filter(_asks, taken.loaded))
    return Request(outputs, params, request.options, questions), taken.many


def prompts(request: Request) -> Iterator[Prompt]:
    """A prompt for each selected case, with its input as text and a chat also as messages. Raises UsageError,
    ConfigError.
    """
    if request.options.get("traces"):
        raise UsageError("--traces are answers that were recorded: omit --target")
    if request.options.get("outputs"):
        raise UsageError("evalq evaluates --outputs, or calls a --target: give only one of them")
    if request.options.get("labels"):
        raise UsageError("--labels needs recorded --outputs: nobody has seen the answers of a --target yet")
    _, params, loaded = selected(request)
    inputs = {case.params["id"]: case for case in loaded}
    chosen = [inputs[case.id] for case in params.selected()]
    if without_input := [case.params["id"] for case in chosen if not _asks(case)]:
        more = f" and {len(without_input) - 10} more" if len(without_input) > 10 else ""
        raise ConfigError(f"these cases have no input to send to the target: {', '.join(without_input[:10])}{more}")
    for case in chosen:
        yield _prompt(case)


def _asks(case: ExpandedCase) -> bool:
    return case.input not in (None, "") or case.user is not None


def _question(case: ExpandedCase) -> bytes:
    """The prompt of a case in a line; empty without an input, and for one that no file can hold."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        return msgspec.json.encode(_prompt(case)) if _asks(case) else b""
    return b""


def _prompt(case: ExpandedCase) -> Prompt:
    given = "" if case.input is None else case.input
    text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    messages = tuple(given) if isinstance(given, list) else ()
    return Prompt(case.params["id"], "", text, messages, case.turns, case.tool_results, case.user)


def evaluation_request(request: Request, outputs: Path, folder: Path) -> Request:
    """The request to evaluate the recorded answers, like that of ``--outputs``; writes nothing into ``folder``."""
    # The lines have the replies of judges and embedders, so evaluation calls none.
    options = {
        **request.options,
        "outputs": (str(outputs),),
        "map": (),
        **dict.fromkeys(("judge", "against", "embedder")),
    }
    return Request(request.inputs, request.params, options)


def stopping(request: Request) -> StoppingByCase | None:
    """Decides which cases are decided; None if no case has a threshold or counts answers by kind.

    Raises UsageError, ConfigError.
    """
    params = selected(request)[1]
    scorer = scorer_for(params)
    stoppable = [case for case in params.selected() if thresholds_of(case, params) or diversity_of(case, params)]
    for case in stoppable:
        plan = scorer.plan(case.id)
        if plan is not None and any(check.weight and any(check.judge_questions()) for check in plan.checks):
            raise UsageError(
                f"--stop when-decided: a judge decides case {shorten(case.id)}, but only after all calls; "
                "omit --stop, or give judged checks the weight 0"
            )
        if plan is not None and plan.diversity is not None and plan.diversity.by == "embedding":
            raise UsageError(
                f"--stop when-decided: an embedder counts the kinds of answers to case {shorten(case.id)}, but only "
                "after all calls; omit --stop, or count them by text or near"
            )
    return stopping_for(params) if stoppable else None


def selected(request: Request) -> tuple[dict[str, Any], ChecksParams, list[ExpandedCase]]:
    """Params with the cases, as plain data and validated, and the cases. Raises UsageError, ConfigError."""
    params, loaded = _with_cases(request)
    return params, validate(ChecksParams, params, "params"), loaded


class _Taken(NamedTuple):
    """``params`` with the cases or the name of their file, as plain data; the cases if they are ``loaded`` or ``many``,
    and their numbers by id."""

    params: dict[str, Any]
    loaded: list[ExpandedCase]
    many: ManyCases | None
    ids: Mapping[str, int]


def _with_cases(request: Request) -> tuple[dict[str, Any], list[ExpandedCase]]:
    """Params with the cases as plain data, and the cases. Raises UsageError, ConfigError."""
    taken = _take_cases(request, None)
    return taken.params, taken.loaded


def _take_cases(request: Request, long: int | None) -> _Taken:
    """The cases of a request, those after ``long`` of them not in memory. Raises UsageError, ConfigError."""
    recorded = _cases_in_outputs(request)
    if request.options.get("traces"):
        required = not request.options.get("window")
        recorded = trace_cases(_outputs(request), request.options.get("by") or (), required=required)
    if not request.inputs and recorded is None:
        _refuse_foreign(request, lambda name: True)  # it shows what to map
        raise UsageError(
            f"checks needs a cases file: {_USE}; or expected answers in the outputs: --map expected=KEY,..."
        )
    # Without the cases: there may be a million, and reading them validated more than this.
    tag = validate(ChecksParams, {**request.params, "cases": []}, "params").tag
    loaded: list[ExpandedCase] = []
    many: ManyCases | None = None

    def add(to: ManyCases, case: ExpandedCase) -> None:
        judged = not case.plain and any(map(decides_fallibly, case.params["checks"]))
        to.add(case.params, question=_question(case), plain=case.plain, judged=judged)

    def take(case: ExpandedCase) -> None:
        nonlocal many
        if many is not None:
            add(many, case)
            return
        loaded.append(case)
        if long is not None and len(loaded) > long:
            many = ManyCases(tag)
            for each in loaded:
                add(many, each)
            loaded.clear()

    ids = read_all(request.inputs, recorded, take)
    if many is not None:
        many.ids = ids
        selected = many.selects_any
        cases: dict[str, Any] = {"cases": [], "cases_file": many.file().model_dump(mode="json")}
    else:
        selected = any(tag in case.params["tags"] for case in loaded)
        cases = {"cases": [case.params for case in loaded]}
    if tag and not selected:
        raise UsageError(f"no case has the tag {tag!r}")
    if request.options.get("traces"):
        written = [json.loads(as_json(load_mapping(path))) for path in request.inputs]
        cases["traces"] = digest(canonical_json(written))
    return _Taken({**request.params, **cases}, loaded, many, ids)


FIELDS: dict[str, Kind] = {
    "case": "text",
    "repeat": "whole",
    "output": "any",
    "expected": "any",
    "input": "any",
    "error": "text",
    "text": "text",
    "latency_seconds": "number",
    "cost": "number",
    "prompt_tokens": "whole",
    "completion_tokens": "whole",
    "tool_calls": "json",
    "messages": "json",
    "usage": "json",
    "served": "json",
    "seconds": "number",
    "first_token_seconds": "number",
    "turns": "whole",
    "finish": "text",
    "trace": "text",
    "attempts": "json",
    "judgements": "json",
    "labels": "json",
    "user": "json",
    "embedding": "json",
    "stop": "json",
}
"""The keys of a line of recorded outputs, and of the case that it is about (``expected`` and ``input``)."""
ENDINGS = (".json", ".txt", ".md")
"""The endings of files with an output each."""
_OF_CASE = ("expected", "input")


def _outputs(request: Request) -> list[str]:
    return [str(path) for path in request.options.get("outputs") or ()]


def _refuse_foreign(request: Request, known: Callable[[str], bool], some_ids: Sequence[str] = ()) -> None:
    """Raise InputError if the outputs are of another layout, or about other cases than those that are ``known``."""
    refuse_foreign(_outputs(request), request.options.get("map"), FIELDS, ENDINGS, known, some_ids)


def _cases_in_outputs(request: Request) -> dict[str, RecordedCase] | None:
    """What recorded outputs say of their cases, by id; None if ``--map`` names neither ``expected`` nor ``input``.

    Raises UsageError, InputError.
    """
    if not request.options.get("map"):
        return None
    if not request.options.get("outputs"):
        raise UsageError("--map is about recorded outputs: give --outputs FILE")
    keys = mapped_keys(request.options["map"], FIELDS)
    sources = recorded_sources(_outputs(request), request.options["map"], FIELDS, ENDINGS)
    wanted = [name for name in _OF_CASE if name in keys]
    if not wanted:
        return None
    cases: dict[str, RecordedCase] = {}
    faults: list[tuple[str, str]] = []
    for source in sources:
        for line, record in read_recorded(source, FIELDS):
            name = record.get("case")
            values = {key: record[key] for key in wanted if record.get(key) not in (None, "")}
            if not isinstance(name, str) or not name:
                continue
            known = cases.setdefault(name, RecordedCase({}, Location(source.given, (), line)))
            for key, value in values.items():
                if known.values.setdefault(key, value) != value:
                    first = f"{shorten(str(known.values[key]), 40)!r} on line {known.location.line}"
                    why = f"{keys[key]}: {shorten(str(value), 40)!r} here, and {first} for the same case"
                    faults.append((f"{source.name}:{line}", why))
    if faults:
        raise InputError("the outputs contradict each other about their cases", faults)
    if not cases and not request.inputs:
        _refuse_foreign(request, lambda name: True)
        raise InputError(f"no record has a case: {', '.join(source.given for source in sources)}")
    return {name: case._replace(values={key: Verbatim(value) for key, value in case.values.items()})
            for name, case in cases.items()}  # fmt: skip


def output_line(name: str, data: bytes) -> bytes:
    """The content of the file ``name`` as one line ``{"named", "output"}``.

    A .json file has an object with ``case`` and ``output``, or only the output; a text file has the output. The scorer
    finds the case and repeat by name. A file that cannot be read becomes a line with an ``error``.
    """
    head = msgspec.json.encode({"named": _ENDING.sub("", name)})
    try:
        if not name.endswith(".json"):
            return head[:-1] + b',"output":' + msgspec.json.encode(data.decode()) + b"}"
        content = decode(data)
    except (Malformed, UnicodeDecodeError) as error:
        return head[:-1] + b',"error":' + msgspec.json.encode(str(error)) + b"}"
    # Reformatted without decoding, so that numbers, escapes and repeated keys stay as written.
    compact = msgspec.json.format(data, indent=-1)
    if isinstance(content, dict) and "case" in content and ("output" in content or "error" in content):
        return compact
    return head[:-1] + b',"output":' + compact + b"}"


# Traces: each is a case of its own, with its attributes as tags and its session as its cluster. They become recorded
# outputs once, before anything else; afterwards such a run is one of `--outputs` whose cases are read from the lines.

TAGGED = (
    *("service.name", "service.version", "deployment.environment.name", "deployment.environment"),
    *("gen_ai.agent.name", "tag.tags", "langfuse.trace.tags"),
)
"""Attributes that become tags without being named."""
_MOST_VALUES = 1_000
_LONGEST_TAG = 200
_NAMED = 20


class _TraceLine(msgspec.Struct):
    """What a line of recorded outputs says of its case."""

    case: str
    input: Any = None
    session: str = ""
    extra: dict[str, Any] = {}


_line = msgspec.json.Decoder(_TraceLine).decode


def prepare(request: Request, folder: Path) -> Prepared:
    """``request`` with recorded outputs in place of ``--traces``. Raises UsageError, ConfigError, InputError."""
    traces = [str(path) for path in request.options.get("traces") or ()]
    if not traces:
        if request.options.get("by"):
            raise UsageError("--by names attributes of traces: give --traces FILE")
        return Prepared(request)
    recorded = record_traces(traces, folder, selected_traces(request))
    options = {**request.options, "outputs": (str(recorded.path),)}
    count = f"{recorded.traces:,} traces of {recorded.spans:,} spans: {recorded.path}"
    return Prepared(Request(request.inputs, request.params, options), (count,), recorded.notes)


def selected_traces(request: Request) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a trace with these attributes counts, by `where`. Raises UsageError, ConfigError."""
    for other in ("outputs", "map", "labels", "against"):
        if request.options.get(other):
            raise UsageError(f"--{other} goes with --outputs, not with --traces: give only one of them")
    if not request.inputs:
        raise UsageError(
            "--traces needs a file of checks: evalq checks CHECKS.yaml --traces FILE, with `defaults:` in it"
        )
    selectors = [entry for path in request.inputs for entry in _selectors(path)]

    # Before a long reading: a fault in a check is the same for every trace.
    picked: list[dict[str, Any]] = [{name: _first(value) for name, value in where.items()} for where in selectors]
    at = Location(str(request.inputs[0]))
    one = {f"trace {n}": RecordedCase({}, at, each) for n, each in enumerate(picked or [{}], start=1)}
    read_all(request.inputs, one, lambda case: None)
    return lambda attributes: not selectors or any(selects(where, attributes) for where in selectors)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _selectors(path: str) -> list[Mapping[str, Any]]:
    """The `where` of each entry of a file of checks."""
    if not path.lower().endswith((".yaml", ".yml", ".json")):
        raise ConfigError(f"{path}: --traces needs a file of checks in YAML: a case of its own is made of each trace")
    entries = load_mapping(path).get("cases")
    if entries is None:
        return []
    found = []
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, Mapping) or "where" not in entry:
            raise ConfigError(
                f"{path}: cases[{index}]: each trace is a case, so an entry selects traces with `where: {{ATTRIBUTE: "
                "VALUE}}`; checks of all traces stand under `defaults`"
            )
        if wrong := fault_of(entry["where"]):
            raise ConfigError(f"{path}: cases[{index}].where: {wrong}")
        found.append(entry["where"])
    return found


def fault_of(where: Any) -> str:
    """Why a value is no selection of traces; empty if it is one."""
    if not isinstance(where, Mapping):
        return f"{kind_of(where)} where a mapping of attributes to values is wanted"
    for name, value in where.items():
        for each in value if isinstance(value, list) else (value,):
            if not isinstance(each, str | int | float | bool):
                return f"{name}: {kind_of(each)} where a text, a number, or a list of them is wanted"
    return ""


def trace_cases(outputs: Sequence[str], by: Sequence[str], *, required: bool = True) -> dict[str, RecordedCase]:
    """The case of each trace in recorded outputs. Raises UsageError for a ``required`` attribute that no trace has."""
    names = tuple(dict.fromkeys((*by, *TAGGED)))
    cases: dict[str, RecordedCase] = {}
    values: dict[str, set[str]] = {name: set() for name in by}
    known: Counter[str] = Counter()
    for path in outputs:
        with open_input(path) as stream:
            for number, data in enumerate(stream, start=1):
                try:
                    line = _line(data)
                except (msgspec.DecodeError, RecursionError) as error:
                    raise InputError(f"{path} is damaged", [(f"{path}:{number}", str(error))]) from None
                tags = list(_tags(line.extra, names, values))
                known.update(line.extra.keys() - {"spans", "root"} if len(cases) < _MOST_VALUES else ())
                case = {"input": _case_input(line.input), "tags": tags, "cluster": line.session}
                held: dict[str, Any] = {key: value for key, value in case.items() if value not in (None, [], "")}
                if "input" in held:
                    held["input"] = Verbatim(held["input"])
                cases[line.case] = RecordedCase(held, Location(path, (), number), line.extra)
    for name, found in values.items():
        if not found and required:
            listed = ", ".join(name for name, _ in known.most_common(_NAMED)) or "none"
            raise UsageError(f"--by {shorten(name)}: no trace has this attribute (there are: {listed})")
        if len(found) > _MOST_VALUES:
            raise UsageError(f"--by {shorten(name)}: more than {_MOST_VALUES:,} values; results are shown for each one")
    return cases


def _tags(attributes: Mapping[str, Any], names: Sequence[str], values: Mapping[str, set[str]]) -> Sequence[str]:
    tags: dict[str, None] = {}
    for name in names:
        value = attributes.get(name)
        for each in value if isinstance(value, list) else () if value is None else (value,):
            if name in values and len(values[name]) <= _MOST_VALUES:
                values[name].add(as_label(each))
            tags[f"{name}:{as_label(each)}"[:_LONGEST_TAG]] = None
    return list(tags)[:100]


def _case_input(value: Any) -> Any:
    """The input of a case: text or an object."""
    return value if value is None or isinstance(value, str | dict) else msgspec.json.encode(value).decode()
