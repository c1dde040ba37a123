"""Inspect: a log of an evaluation, as .json or as .eval (a zip file of JSON, compressed with zstd or deflate)."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.answers import BadAnswer, calls_of, read_messages, recorded_form
from evalq.evalcore.records.tool_calls import NoCall, recorded_call
from evalq.evalcore.records.traces.conventions import finish_of
from evalq.evalcore.records.usage import token_parts
from evalq.producer.importing.imported import Imported, ImportRequest, Kind, same_case, verdict_of
from evalq.producer.importing.patterns import NoCounterpart, accepted, literal, to_re2
from evalq.producer.importing.reading import Archive, Document, read_json
from evalq.producer.importing.transcripts import summed

# Inspect's scorers as checks.

Check = dict[str, Any]
Options = Mapping[str, Any]

_SPACE = r"[\t\n\v\f\r\x1c-\x1f \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*"
_AROUND = string.whitespace + string.punctuation
_PUNCTUATION = "[" + r"\t\n\v\f\r " + "".join(f"\\{sign}" for sign in string.punctuation) + "]*"
_LETTERS = r"[A-Za-z\p{Nd} ,]"
# The form that the prompt requests: on a line of its own, else anywhere; also in bold, in dollars and in brackets.
_ANSWERS = (
    rf"(?:\$\s*({_LETTERS}+?)\s*\$|\*\*\s*({_LETTERS}+?)\s*\*\*|\(([A-Za-z\d])\)|({_LETTERS}+))",
    r"(?im)^ANSWER\s*:\s*{}\s*(?:$|\n|\.)",
    r"(?i)ANSWER\s*:\s*{}(?:\W|$)",
)


class NoScorer(ValueError):
    """A scorer without a counterpart; the message says why."""

    def __init__(self, reason: str, *, of_sample: bool = False) -> None:
        super().__init__(reason)
        self._of_sample = of_sample

    def location(self, scorer: str, sample: str) -> str:
        """The location of the reason: the scorer's, or the sample's."""
        return sample if self._of_sample else scorer


def _check_of(name: str, options: Options, targets: Sequence[str], sample: Mapping[str, Any]) -> Check:
    """The check of a scorer of Inspect, for a sample with these targets. Raises NoScorer."""
    own = _inspects_own(name)
    make = SCORERS.get(own)
    if make is None:
        why = "it is no scorer of Inspect's own: write a check of your own"
        raise NoScorer(_REASONS.get(own, why))
    if not any(targets):
        raise NoScorer("without a target it scores nothing", of_sample=True)
    try:
        check = make(options, targets, sample)
        accepted(check)
        return check
    except NoCounterpart as error:
        raise NoScorer(str(error)) from None


def _inspects_own(name: str) -> str:
    """The name of one of Inspect's own scorers without its package; "" for a scorer of another package.

    The registry's name has the package as a prefix, except Inspect's own (registry_log_name).
    """
    package, _, bare = name.rpartition("/")
    return bare if package in ("", "inspect_ai") else ""


def _includes(options: Options, targets: Sequence[str], sample: Mapping[str, Any]) -> Check:
    if not all(targets):
        raise NoScorer("an empty target is in every answer", of_sample=True)
    check: Check = {"contains": targets[0]} if len(targets) == 1 else {"contains-any": list(targets)}
    return check | ({"ignore-case": True} if options.get("ignore_case", True) else {})


def _match(options: Options, targets: Sequence[str], sample: Mapping[str, Any]) -> Check:
    if options.get("numeric"):
        raise NoScorer("it normalises numbers by rules of its own; the check `number` has other ones")
    location = str(options.get("location", "end"))
    patterns = []
    for target in targets:
        bare = target.strip().strip(_AROUND)
        if not bare:
            raise NoScorer("of its target nothing is left without punctuation", of_sample=True)
        patterns.append("".join(map(literal, bare)))
    wanted = patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"
    before, after = f"^{_SPACE}{_PUNCTUATION}", f"{_PUNCTUATION}{_SPACE}$"
    whole = {
        "begin": f"{before}{wanted}",
        "end": f"{wanted}{after}",
        "any": wanted,
        "exact": f"{before}{wanted}{after}",
    }
    if location not in whole:
        raise NoScorer(f"a location that is not known: {location[:40]}")
    return {"regex": whole[location]} | ({"ignore-case": True} if options.get("ignore_case", True) else {})


def _pattern(options: Options, targets: Sequence[str], sample: Mapping[str, Any]) -> Check:
    if options.get("match_all"):
        raise NoScorer("all of its groups have to be the target: the check `captures` asks for one of them")
    pattern = to_re2(str(options.get("pattern", "")), "python")
    ignore = options.get("ignore_case", True)
    check: Check = {"captures": f"(?i){pattern}" if ignore else pattern, "is": list(targets)}
    return check | ({"ignore-case": True} if ignore else {})


def _choice(options: Options, targets: Sequence[str], sample: Mapping[str, Any]) -> Check:
    letters = [letter for target in targets for letter in target.replace(",", " ").split()]
    if len(letters) != 1 or len(letters[0]) != 1 or not letters[0].isalpha():
        raise NoScorer("several choices are right: the check `captures` compares with one answer", of_sample=True)
    alternatives, *forms = _ANSWERS
    patterns = [form.replace("{}", alternatives) for form in forms]
    return {"captures": patterns, "is": letters[0], "which": "last", "ignore-case": True, "trim": True}


SCORERS: Mapping[str, Callable[[Options, Sequence[str], Mapping[str, Any]], Check]] = {
    "includes": _includes,
    "match": _match,
    "pattern": _pattern,
    "choice": _choice,
}
"""By Inspect's name."""

_REASONS = {
    "exact": "it normalises articles, case and punctuation by rules of its own; see the check `equals`",
    "f1": "it normalises words by rules of its own",
    "answer": "it takes the answer by a pattern of Inspect's own: use the check `captures`",
    "math": "it compares mathematical expressions",
    "model_graded_qa": "a model judges: write a check rubric, factual or score",
    "model_graded_fact": "a model judges: write a check rubric, factual or score",
    "multi_scorer": "several models judge: write a check rubric, factual or score",
    "perplexity": "evalq records no probabilities of tokens",
}


_MOST_EPOCHS = 1_000_000
_JUDGES = ("model_graded_qa", "model_graded_fact", "multi_scorer", "perplexity")


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from a log. Raises ConfigError for other files."""
    if path.suffix == ".eval":
        with Archive(path) as archive:
            header = archive.read("header.json" if "header.json" in archive.names else "_journal/start.json")
            names = [name for name in archive.names if name.startswith("samples/") and name.endswith(".json")]
            _Log(path, header, imported, request).add((name, archive.read(name)) for name in names)
        return
    data = read_json(path)
    samples = data.get("samples") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(data.get("eval"), dict):
        raise ConfigError(f"{path}: not a log of Inspect: it has no eval")
    if not isinstance(samples, list):
        raise ConfigError(f"{path}: the log has no samples: it was written with log_samples off, or is a header alone")
    _Log(path, data, imported, request).add((f"samples[{index}]", sample) for index, sample in enumerate(samples))


class _Scorer(NamedTuple):
    """A scorer as a log declares it, its location, and its key in a sample's scores."""

    name: str
    options: Mapping[str, Any]
    location: str
    key: str


class _Log:
    def __init__(self, path: Path, header: Any, imported: Imported, request: ImportRequest) -> None:
        self._path, self._imported, self._request = path, imported, request
        self._document = Document(path, header)
        task = header.get("eval") if isinstance(header, dict) else None
        if not isinstance(task, dict):
            raise ConfigError(f"{path}: not a log of Inspect: it has no eval")
        self._model = str(task.get("model") or "outputs")
        self._task = str(task.get("task") or "task").rpartition("/")[2]
        self._scorers = self._declare_scorers(task.get("scorers"), _part(header, "results"))
        self._ids: dict[bytes, str] = {}
        self._kept: dict[str, list[str]] = {}
        config = task.get("config")
        if isinstance(config, dict) and config.get("epochs_reducer") not in (None, ["mean"]):
            imported.note("differs", str(path), "epochs_reducer", "evalq gives pass rates, pass@k and pass^k")
        imported.note(
            "none", f"{path}: eval.model", self._model, "write a target for it: see docs/reference/targets.md"
        )

    def _declare_scorers(self, scorers: Any, results: Mapping[str, Any]) -> list[_Scorer]:
        """The scorers that the log declares; early versions have them under results."""
        found: list[_Scorer] = []
        keys: list[str] = []
        for name, options, at in [*_declarations(scorers)] or [*_result_scorers(results)]:
            # Inspect numbers scorers of one name in its scores (unique_scorer_name).
            bare = name.rpartition("/")[2]
            key, count = bare, 1
            while key in keys:
                key, count = f"{bare}{count}", count + 1
            keys.append(key)
            found.append(_Scorer(name, options, self._document.where(at), key))
        if not found:
            self._imported.note("none", self._document.where(["eval", "scorers"]), "scorers", "the log declares none")
        return found

    def add(self, samples: Iterator[tuple[str, Any]]) -> None:
        """Add the samples: a new one as a case, and each as an output; an epoch is a repeat."""
        epochs: set[tuple[str, Any]] = set()
        later = []
        for location, sample in samples:
            where = f"{self._path}: {location}"
            if not isinstance(sample, dict) or "id" not in sample:
                self._imported.note("none", where, "a sample", "it has no id")
                continue
            key = same_case(sample["id"], sample.get("input"), sample.get("target"))
            if key not in self._ids:
                self._ids[key] = self._case(sample, where)
            case = self._ids[key]
            if not case:
                continue
            epoch = sample.get("epoch")
            if type(epoch) is not int or not 0 < epoch <= _MOST_EPOCHS or (case, epoch) in epochs:
                later.append((case, _answer(sample), self._verdicts(case, sample)))
                continue
            epochs.add((case, epoch))
            self._imported.add_output(self._model, case, _answer(sample), self._verdicts(case, sample), epoch - 1)
        # Samples without an epoch, or with one that occurs twice (merged logs), come after the others.
        for case, answer, verdicts in later:
            self._imported.add_output(self._model, case, answer, verdicts)

    def _verdicts(self, case: str, sample: dict[str, Any]) -> list[bool | None]:
        """Whether the sample passed each check of its case, by its recorded scores."""
        scores = _part(sample, "scores")
        return [_verdict(_part(scores, key).get("value")) for key in self._kept[case]]

    def _case(self, sample: dict[str, Any], where: str) -> str:
        targets = sample.get("target")
        wanted = [str(each) for each in targets] if isinstance(targets, list) else [str(targets or "")]
        checks, kept = [], []
        for name, options, location, score in self._scorers:
            try:
                check = _check_of(name, options, wanted, sample)
            except NoScorer as error:
                kind: Kind = "later" if _inspects_own(name) in _JUDGES else "none"
                self._imported.note(kind, error.location(location, where), name, str(error))
                continue
            checks.append({**check, "name": name})
            kept.append(score)
        # Inspect numbers samples without an id.
        named = isinstance(sample["id"], str)
        case: dict[str, Any] = {
            "id": f"{self._task}-{sample['id']}" if named else self._task,
            "input": _input(sample),
            "checks": checks,
        }
        if any(wanted):
            case["expected"] = wanted[0] if len(wanted) == 1 else wanted
        tags = [f"{name}:{value}" for name, value in _part(sample, "metadata").items() if isinstance(value, str | int)]
        if tags:
            case["tags"] = tags[:50]
        for name in ("files", "setup", "sandbox"):
            if sample.get(name):
                self._imported.note("none", where, name, "evalq sets up no sandbox: your agent does")
        identity = self._imported.add_case(case, where, self._request, named=named)
        self._kept[identity] = kept
        return identity


def _declarations(scorers: Any) -> Iterator[tuple[str, Mapping[str, Any], list[str | int]]]:
    """(name, options, keys) of eval.scorers."""
    for index, scorer in enumerate(scorers if isinstance(scorers, list) else []):
        if isinstance(scorer, dict) and isinstance(scorer.get("name"), str):
            yield scorer["name"], _part(scorer, "options"), ["eval", "scorers", index]


def _result_scorers(results: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], list[str | int]]]:
    """(name, options, keys) of results.scores, each scorer once, or of the earlier results.scorer."""
    seen: list[tuple[str, Mapping[str, Any]]] = []
    listed = results.get("scores")
    single = results.get("scorer")
    entries: list[tuple[Any, list[str | int]]] = [
        (each, ["results", "scores", index]) for index, each in enumerate(listed if isinstance(listed, list) else [])
    ]
    for entry, keys in entries or [(single, ["results", "scorer"])]:
        scorer = entry if isinstance(entry, dict) else {"name": entry}
        name, options = scorer.get("scorer", scorer.get("name")), _part(scorer, "params")
        # A scorer of several values, or with several reducers, has an entry for each.
        if isinstance(name, str) and (name, options) not in seen:
            seen.append((name, options))
            yield name, options, keys


def _verdict(value: Any) -> bool | None:
    """Whether a score is right or wrong; None for other values (value_to_float)."""
    if isinstance(value, str):
        return {"C": True, "I": False}.get(value)
    return verdict_of(value)


def _input(sample: dict[str, Any]) -> Any:
    """The sample's input; of chat messages only the texts."""
    given = _resolved(sample.get("input"), sample)
    if isinstance(given, list):
        return [
            {"role": str(each.get("role")), "content": _content(each.get("content"))}
            for each in given
            if isinstance(each, dict)
        ]
    # With choices, the question is the message that the solver made of them.
    first = next((each for each in _messages(sample) if each.get("role") == "user"), None)
    if sample.get("choices") and first is not None:
        return _content(_resolved(first.get("content"), sample))
    return str(given or "")


def _messages(sample: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return _mappings(sample.get("messages"))


def _mappings(found: Any) -> Sequence[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _answer(sample: dict[str, Any]) -> dict[str, Any]:
    """A line of recorded outputs."""
    line: dict[str, Any] = {}
    error, output = sample.get("error"), _part(sample, "output")
    choices = output.get("choices")
    if error:
        line["error"] = str(error.get("message") if isinstance(error, dict) else error)
    elif "completion" in output:
        line["output"] = str(_resolved(output["completion"], sample) or "")
    elif isinstance(choices, list) and choices and isinstance(choices[0], dict):
        line["output"] = _content(_resolved(_part(choices[0], "message").get("content"), sample))
    else:
        line["error"] = str(output.get("error") or "no output was recorded")
    if "messages" in sample:
        line |= _conversation(sample)
    if isinstance(output.get("model"), str) and output["model"]:
        line["served"] = {"model": output["model"]}
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        finish = finish_of({}, [choices[0].get("stop_reason")])
        line |= {"finish": finish} if finish else {}
    return line | _usage(sample, output)


def _conversation(sample: dict[str, Any]) -> dict[str, Any]:
    """The messages, and the calls of tools with their results."""
    messages = []
    for each in _messages(sample):
        made = {"role": str(each.get("role")), "content": _content(_resolved(each.get("content"), sample))}
        made |= {key: each[key] for key in ("tool_calls", "tool_call_id", "error") if each.get(key)}
        messages.append(made)
    try:
        calls = [recorded_form(call) for call in calls_of(messages)]
        return {"messages": list(read_messages(messages)), "tool_calls": calls}
    except (NoCall, BadAnswer):
        listed = [call for each in _messages(sample) for call in _mappings(each.get("tool_calls"))]
        return {"tool_calls": [recorded_call(call) for call in listed]}


def _usage(sample: dict[str, Any], output: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens and seconds of all calls of the sample; those of the output only if there was a single call."""
    single = sum(each.get("role") == "assistant" for each in _messages(sample)) <= 1
    usages: list[Mapping[str, Any]] = [each for each in _part(sample, "model_usage").values() if isinstance(each, dict)]
    if not usages:
        calls = [each for each in _mappings(sample.get("events")) if each.get("event") == "model"]
        usages = [_part(_part(each, "output"), "usage") for each in calls]
    if not usages and single:
        usages = [_part(output, "usage")]
    line: dict[str, Any] = {}
    counts = [{name: count for name, count in token_parts(each).items() if type(count) is int} for each in usages]
    if usage := summed(counts):
        line["usage"] = usage
    times = [sample.get("working_time"), sample.get("total_time"), output.get("time") if single else None]
    seconds = next((each for each in times if isinstance(each, int | float) and each >= 0), None)
    if seconds is not None:
        line["latency_seconds"] = seconds
    return line


def _content(content: Any) -> str:
    """The text of a message, or of its parts."""
    if isinstance(content, list):
        return "\n".join(
            str(part.get("text")) for part in content if isinstance(part, dict) and part.get("type") == "text"
        )
    return str(content or "")


def _resolved(value: Any, sample: dict[str, Any]) -> Any:
    """The value; long texts are under attachments."""
    if isinstance(value, str) and value.startswith("attachment://"):
        return _part(sample, "attachments").get(value.removeprefix("attachment://"), value)
    return value


def _part(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = holder.get(key)
    return found if isinstance(found, dict) else {}
