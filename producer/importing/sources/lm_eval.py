"""lm-evaluation-harness: results and samples, as `lm_eval --log_samples --output_path` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.words import compiled
from evalq.producer.importing.imported import Imported, ImportRequest, verdict_of
from evalq.producer.importing.patterns import NoCounterpart, accepted, to_re2
from evalq.producer.importing.reading import read_json, read_lines

_DATE = r"(?P<date>\d{4}-\d\d-\d\dT[\d-]+(?:\.\d+)?)"
_SAMPLES = re.compile(rf"samples_(?P<task>.+)_{_DATE}\.jsonl")
# With --output_path NAME.json the results are NAME_DATE.json.
_RESULTS = re.compile(rf"(?P<name>.+)_{_DATE}\.json")
_NO_FILTER = [{"function": "take_first"}]
_STRICTER = ("regexes_to_ignore", "ignore_punctuation", "ignore_numbers")
_METRIC = {"metric", "aggregation", "higher_is_better", "ignore_case", "hf_evaluate", *_STRICTER}
_REGEX = {"function", "regex_pattern", "group_select", "fallback"}


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from results and the samples beside them, or from samples. Raises ConfigError."""
    results, samples = _files(path)
    data = read_json(results)
    configs = data.get("configs") if isinstance(data, dict) else None
    if not isinstance(configs, dict):
        raise ConfigError(f"{results}: not the results of lm-evaluation-harness: they have no configs")
    for task, file in samples:
        config = configs.get(task)
        if not isinstance(config, dict):
            imported.note("none", str(file), task, f"{results.name} has no configuration of it")
            continue
        _Task(task, config, results, _model(data), imported, request).read(file)


def _files(path: Path) -> tuple[Path, list[tuple[str, Path]]]:
    """(results, [(task, samples)]) that belong together."""
    if not path.exists():
        read_json(path)
    found, whole = _SAMPLES.fullmatch(path.name), _RESULTS.fullmatch(path.name)
    if found:
        return _results_beside(path, found["date"]), [(found["task"], path)]
    if not whole:
        raise ConfigError(
            f"{path}: name results_DATE.json or NAME_DATE.json, or samples_TASK_DATE.jsonl with those beside it"
        )
    beside = [(_SAMPLES.fullmatch(each.name), each) for each in sorted(path.parent.iterdir())]
    samples = [(match["task"], each) for match, each in beside if match and match["date"] == whole["date"]]
    if not samples:
        raise ConfigError(f"{path}: no samples_TASK_{whole['date']}.jsonl beside it: run lm_eval with --log_samples")
    return path, samples


def _results_beside(path: Path, date: str) -> Path:
    """The results of that date beside a file of samples. Raises ConfigError for several."""
    usual = path.with_name(f"results_{date}.json")
    if usual.exists():
        return usual
    found = [
        each for each in sorted(path.parent.iterdir()) if (of := _RESULTS.fullmatch(each.name)) and of["date"] == date
    ]
    if len(found) > 1:
        raise ConfigError(f"{path}: several results beside it: {', '.join(each.name for each in found[:5])}: name one")
    return found[0] if found else usual


def _model(results: Mapping[str, Any]) -> str:
    config = results.get("config")
    name = results.get("model_name") or (config.get("model") if isinstance(config, dict) else None)
    return str(name or "outputs")


class _Task:
    def __init__(
        self, name: str, config: dict[str, Any], results: Path, model: str, imported: Imported, request: ImportRequest
    ) -> None:
        self._name, self._config, self._model = name, config, model
        self._imported, self._request = imported, request
        self._where = f"{results}: configs.{name}"
        self._filters = {str(each.get("name")): each.get("filter") for each in _mappings(config.get("filter_list"))}
        self._filters = self._filters or {"none": _NO_FILTER}
        self._cases: dict[str, dict[str, Any]] = {}

    def read(self, path: Path) -> None:
        """Read the samples: a line for each document and filter."""
        kind = self._config.get("output_type")
        if kind != "generate_until":
            why = "it compares probabilities of texts, and evalq records answers"
            self._imported.note("none", f"{self._where}.output_type", f"{self._name}: {kind}", why)
            return
        answers: dict[str, list[Any]] = {}
        locations: dict[str, str] = {}
        verdicts: dict[str, list[bool | None]] = {}
        seen: set[tuple[str, str]] = set()
        for line, sample in read_lines(path):
            where = f"{path}:{line}"
            if not isinstance(sample, dict) or "doc_id" not in sample or not isinstance(sample.get("resps"), list):
                self._imported.note("none", where, "a sample", "it has no doc_id or no resps")
                continue
            key, name = str(sample["doc_id"]), self._filter_of(sample)
            if (key, name) in seen:
                why = "this document and filter are there before: it is of another run, import that by itself"
                self._imported.note("none", where, "a sample", why, f"{self._name}-{key}")
                continue
            seen.add((key, name))
            if key not in self._cases:
                self._cases[key] = self._case(sample, key)
                answers[key], locations[key], verdicts[key] = list(_flat(sample["resps"])), where, []
            for metric, check in self._checks(sample, where):
                self._cases[key]["checks"].append(check)
                verdicts[key].append(verdict_of(sample.get(metric)))
        for key, case in self._cases.items():
            identity = self._imported.add_case(case, locations[key], self._request, named=False)
            for number, answer in enumerate(answers[key] if identity else []):
                # A filter takes the first response.
                verdict = verdicts[key] if number == 0 else ()
                self._imported.add_output(self._model, identity, {"output": answer}, verdict)

    def _filter_of(self, sample: Mapping[str, Any]) -> str:
        """The filter of a line: early versions do not name it if there is only one."""
        name = sample.get("filter")
        if name:
            return str(name)
        return next(iter(self._filters)) if len(self._filters) == 1 else ""

    def _case(self, sample: dict[str, Any], key: str) -> dict[str, Any]:
        case: dict[str, Any] = {"id": self._name, "input": _prompt_text(sample), "checks": []}
        if sample.get("target") is not None:
            case["expected"] = sample["target"]
        return case | {"tags": [f"task:{self._name}"]}

    def _checks(self, sample: dict[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """(metric, check) for each metric of the line's filter."""
        name = self._filter_of(sample)
        if name not in self._filters:
            listed = ", ".join(self._filters)
            why = f"the task declares no such filter, but {listed}" if name else f"it is not said which one: {listed}"
            self._imported.note("none", where, f"filter {name}".strip(), why)
            return
        steps = self._filters[name]
        declared = {str(each.get("metric")): each for each in _mappings(self._config.get("metric_list"))}
        given = sample.get("metrics")
        for metric in map(str, given if isinstance(given, list) else declared):
            location = f"{self._where}.metric_list"
            if metric != "exact_match":
                self._imported.note(
                    "none", location, f"{self._name}: {metric}", "evalq has no such measure of one answer"
                )
                continue
            try:
                if self._config.get("process_results"):
                    raise NoCounterpart("the task computes its metrics by a program of its own, process_results")
                if declared and metric not in declared:
                    raise NoCounterpart("exact_match is not in the task's metric_list, which would give its options")
                check = _exact(sample.get("target"), steps, declared.get(metric, {}))
                accepted(check)
            except NoCounterpart as error:
                # Reasons about a target are noted for the line; others are the same for all lines.
                of_line = "target" in str(error)
                self._imported.note("none", where if of_line else self._where, f"filter {name}", str(error))
                continue
            yield metric, {**check, "name": f"{metric},{name}"}


def _exact(target: Any, steps: Any, metric: Mapping[str, Any]) -> dict[str, Any]:
    """The check of exact_match after a filter. Raises NoCounterpart."""
    odd = sorted(map(str, metric.keys() - _METRIC))
    if odd:
        raise NoCounterpart(f"exact_match with {odd[0]}, an option that is not known")
    stricter = [option for option in _STRICTER if metric.get(option)]
    if stricter:
        raise NoCounterpart(f"exact_match with {stricter[0]} compares what is left of both texts")
    if not isinstance(target, str | int | float) or isinstance(target, bool):
        raise NoCounterpart("the target is no text")
    wanted = str(target)
    options = {"ignore-case": True} if metric.get("ignore_case") else {}
    listed = list(_mappings(steps))
    names = [str(step.get("function")) for step in listed]
    odd = [str(key) for step in listed for key in sorted(step.keys() - _REGEX)]
    if odd:
        raise NoCounterpart(f"a filter with {odd[0]}, an option that is not known")
    if names == ["take_first"]:
        return {"equals": wanted, **options}
    if names == ["remove_whitespace", "take_first"] and wanted == wanted.strip():
        return {"equals": wanted, "trim": True, **options}
    if names != ["regex", "take_first"]:
        raise NoCounterpart(f"evalq has no check of what {', '.join(names) or 'no filter'} leaves")
    return _captures_check(wanted, listed[0], options)


def _captures_check(wanted: str, step: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    pattern = str(step.get("regex_pattern", r"#### (\-?[0-9\.\,]+)"))
    which = {0: "first", -1: "last"}.get(step.get("group_select", 0))
    if which is None:
        raise NoCounterpart("it takes neither the first match nor the last")
    if wanted == str(step.get("fallback", "[invalid]")) or wanted != wanted.strip() or not wanted:
        raise NoCounterpart("the target is what the filter gives where it finds nothing, or what it never gives")
    try:
        groups = compiled(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise NoCounterpart(f"its pattern is none: {error}") from None
    if groups > 1:
        raise NoCounterpart("it takes the first group that is not empty; the check `captures` any of them")
    # The comparison ignores white space around the texts.
    return {"captures": to_re2(pattern, "python"), "is": wanted, "which": which, "trim": True, **options}


def _prompt_text(sample: Mapping[str, Any]) -> str:
    """The prompt: arguments are lists, or mappings in files."""
    text = _first(_first(sample.get("arguments")))
    return text if isinstance(text, str) else str(sample.get("doc", ""))


def _first(values: Any) -> Any:
    """The first value of a list or a mapping; else None."""
    values = values.values() if isinstance(values, dict) else values if isinstance(values, list) else ()
    return next(iter(values), None)


def _flat(responses: Sequence[Any]) -> Iterator[Any]:
    for each in responses:
        yield from each if isinstance(each, list) else [each]


def _mappings(given: Any) -> Iterator[Mapping[str, Any]]:
    return (each for each in given if isinstance(each, dict)) if isinstance(given, list) else iter(())
