"""A judge of claims: each claim of a record, with the words that bear on it, is supported, contradicted or absent.

An evaluator with a `ClaimsJudge` gets ``--judge NAME`` from `calls`. It calls a target once for each record, and keeps
the reply in the record under ``judgement``. `verdict` reads that, and checks the quotes: a quote that does not occur in
the record's evidence, or only repeats the claim, is no evidence.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import Field

from evalq.evalcore.contract.evaluator import Calls, Params, Request
from evalq.evalcore.contract.measures import Number
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import LeftOut, Merging, add_counts
from evalq.evalcore.records.cut import batches, opened
from evalq.evalcore.records.inputs import Source, discover, format_suffixes, spool
from evalq.evalcore.records.json_values import NoJson, RecordFault, read_object
from evalq.evalcore.records.prompts import REPLY, Task, reply_of, whole_reply, written
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.charts import Evidence, Tile, number
from evalq.evalcore.views.markdown import escape, percent, table

Finding = Literal["supported", "absent", "contradicted"]
_FINDINGS: tuple[Finding, ...] = ("supported", "absent", "contradicted")
"""From the best to the worst."""
JUDGED_NUMBERS = (
    Number("judged.supported_share.value", "higher", "estimate"),
    Number("judged.supported", "higher"),
    Number("judged.contradicted", "lower"),
    Number("judged.absent", "lower"),
    Number("judged.unread", "lower", holds_missing=True),
    Number("judged.no_claim", "lower", holds_missing=True),
    Number("judged.**"),
)
"""The numbers of ``judged`` for gates, and whether more is better or worse."""
KEY = "judgement"
"""The key of the judge's reply in a record."""
CLAIMS_REPLY = (
    REPLY + '"claims": [{"claim": "what is claimed", "quote": "the words that bear on it, copied letter by letter, '
    'or empty", "finding": "supported" or "contradicted" or "absent"}, ...]}'
)
"""The form of reply that the task of a `ClaimsJudge` asks for."""
_MOST_CLAIMS = 200
_LEAST_QUOTE = 4
"""Characters, without white space: a shorter quote occurs in nearly any text."""
_MOST_JUDGES = 100

_Texts = Mapping[str, str]


class Claim(msgspec.Struct, frozen=True):
    """One claim: the judge's own finding (``said``) with its ``quote``, and the ``finding`` that counts."""

    claim: str
    quote: str
    said: Finding
    finding: Finding


class ClaimsVerdict(msgspec.Struct, frozen=True):
    """The verdict of a record's ``judge``, called with the settings that have the digest ``config``.

    ``finding`` is that of the worst claim. It is None without a claim or a readable reply; then ``fault`` says why.
    """

    judge: str
    config: str
    finding: Finding | None = None
    claims: tuple[Claim, ...] = ()
    reason: str = ""
    fault: str = ""

    @property
    def holds(self) -> bool:
        """Whether there is a claim, and every claim is supported."""
        return self.finding == "supported"

    def line(self) -> dict[str, Any]:
        """Its part of the record's line, under ``judged``."""
        return {name: value for name, value in msgspec.to_builtins(self).items() if value not in (None, "", [], ())}


class _Judgement(msgspec.Struct):
    """A judge's reply, as its record keeps it."""

    judge: str
    config: str = ""
    output: Any = msgspec.UNSET
    text: str | None = None
    error: str = ""


class _Recorded(msgspec.Struct):
    case: str
    target: str = ""
    config: str = ""
    output: Any = msgspec.UNSET
    text: str | None = None
    error: str = ""


class ClaimsJudge(msgspec.Struct, frozen=True):
    """A judge with a ``task``. ``texts`` fills the task's placeholders from a record; None: there is nothing to judge.

    Quotes must occur in the text of the placeholder ``evidence``.
    """

    task: Task
    texts: Callable[[Mapping[str, Any]], _Texts | None]
    evidence: str

    @property
    def calls(self) -> Calls:
        """The capability: ``--judge NAME``."""
        return Calls("judge", partial(_prompts, self), partial(_add_judgements, self))

    def verdict(self, record: Mapping[str, Any]) -> ClaimsVerdict | None:
        """The verdict in a record's judgement; None if it has none. It raises no exception."""
        if record.get(KEY) is None:
            return None
        try:
            judgement = msgspec.convert(record[KEY], _Judgement)
        except msgspec.ValidationError as error:
            return ClaimsVerdict("", "", fault=f"no judgement: {error}")
        texts = self.texts(record)
        text = whole_reply(judgement.output, judgement.text, judgement.error)
        try:
            if texts is None or text is None:
                raise NoJson(judgement.error or "no reply is recorded")
            reply = reply_of(text, written(self.task, texts).marker)
            claims = tuple(self._claims(reply, texts[self.evidence]))
        except NoJson as error:
            return ClaimsVerdict(judgement.judge, judgement.config, fault=str(error))
        worst = max((claim.finding for claim in claims), key=_FINDINGS.index, default=None)
        reason = reply.get("reason")
        why = reason if isinstance(reason, str) else ""
        return ClaimsVerdict(
            judgement.judge, judgement.config, worst, claims, why, "" if claims else "it found no claim"
        )

    def _claims(self, reply: Mapping[str, Any], evidence: str) -> Iterator[Claim]:
        entries = reply.get("claims")
        if not isinstance(entries, list) or len(entries) > _MOST_CLAIMS:
            raise NoJson(f"claims: a list of at most {_MOST_CLAIMS} is wanted")
        words = _one_spaced(evidence)
        for index, each in enumerate(entries):
            entry = each if isinstance(each, dict) else {}
            claim, quote, finding = (entry.get(key) for key in ("claim", "quote", "finding"))
            if not isinstance(claim, str) or finding not in _FINDINGS or not isinstance(quote, str | None):
                raise NoJson(f"claims[{index}]: claim, quote and finding (one of {', '.join(_FINDINGS)}) are wanted")
            yield Claim(claim, quote or "", finding, finding if _proves(quote or "", claim, words) else "absent")


def _proves(quote: str, claim: str, evidence: str) -> bool:
    """Whether a quote is evidence: it occurs word for word, except for white space, and is not the claim itself."""
    plain = _one_spaced(quote)
    return len(plain.replace(" ", "")) >= _LEAST_QUOTE and plain in evidence and plain not in _one_spaced(claim)


def _one_spaced(text: str) -> str:
    return " ".join(text.split())


def _prompts(judge: ClaimsJudge, request: Request) -> Iterator[Prompt]:
    """A prompt for each readable record with something to judge. Raises InputError, UsageError."""
    for source, line, data in _lines(request):
        if (texts := _texts(judge, data)) is not None:
            yield Prompt(f"{source.name}:{line}", "", written(judge.task, texts).prompt)


def _add_judgements(judge: ClaimsJudge, request: Request, outputs: Path, folder: Path) -> Request:
    """Write copies of the inputs with the judgements into ``folder``; return the request that evaluates them."""
    with outputs.open("rb") as stream:
        replies = {reply.case: reply for reply in (msgspec.json.decode(line, type=_Recorded) for line in stream)}
    copies: dict[str, list[bytes]] = {}
    for source, line, data in _lines(request):
        lines = copies.setdefault(source.name, [])
        # Records keep their line numbers, by which faults and prompts name them.
        lines += [b""] * (line - 1 - len(lines))
        reply = replies.get(f"{source.name}:{line}")
        lines.append(data if reply is None or _texts(judge, data) is None else _add_judgement(data, reply))
    for name, lines in copies.items():
        (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
    return Request([str(folder / name) for name in copies], request.params, request.options)


def _add_judgement(data: bytes, reply: _Recorded) -> bytes:
    # Other values stay as written, with their numbers and repeated keys.
    record = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    judgement: dict[str, Any] = {"judge": reply.target, "config": reply.config}
    if reply.error:
        judgement["error"] = reply.error
    elif reply.output is not msgspec.UNSET:
        judgement["output"] = reply.output
    if reply.text is not None:
        judgement["text"] = reply.text
    return msgspec.json.encode({**record, KEY: judgement})


def _texts(judge: ClaimsJudge, data: bytes) -> _Texts | None:
    try:
        return judge.texts(read_object(data))
    except RecordFault:
        return None


def _lines(request: Request) -> Iterator[tuple[Source, int, bytes]]:
    if "-" in request.inputs:
        # Once for the prompts, and again for the copies.
        raise UsageError("--judge reads its input twice: give a file, not standard input")
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        for source in discover(request.inputs, format_suffixes("jsonl")):
            plain = spool(source, Path(scratch))
            with opened(plain, "jsonl", None) as cutter:
                for batch in batches(cutter, plain):
                    for line, data in batch.lines():
                        yield source, line, data


class ClaimsTally(Merging):
    """Counts of records: by ``findings``, ``unread`` ones, ones without a claim, and by judge."""

    findings: dict[str, int] = msgspec.field(default_factory=dict)
    unread: int = 0
    unclaimed: int = 0
    judges: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, verdict: ClaimsVerdict, line: int, left_out: LeftOut) -> None:
        """Count one verdict; one without a finding goes into ``left_out``."""
        name = f"{verdict.judge} ({verdict.config[:12]})" if verdict.config else verdict.judge
        if len(self.judges) < _MOST_JUDGES or name in self.judges:
            self.judges[name] = self.judges.get(name, 0) + 1
        if verdict.finding is not None:
            self.findings[verdict.finding] = self.findings.get(verdict.finding, 0) + 1
        elif verdict.judge and not verdict.claims and verdict.fault == "it found no claim":
            self.unclaimed += 1
            left_out.add("judgement", "the judge found no claim in the record", line, verdict.reason or verdict.judge)
        else:
            self.unread += 1
            left_out.add("judgement", "the judge gave no verdict that can be read", line, verdict.fault)

    def merge(self, later: ClaimsTally) -> None:
        """Take in the verdicts of later records."""
        add_counts(self.findings, later.findings)
        add_counts(self.judges, later.judges)
        self.unread += later.unread
        self.unclaimed += later.unclaimed

    @property
    def total(self) -> int:
        """All records with a verdict."""
        return sum(self.findings.values()) + self.unread + self.unclaimed

    def section(self) -> dict[str, Json]:
        """``judged`` of a report: counts by finding, the share of records whose claims are all supported."""
        known = sum(self.findings.values())
        supported = self.findings.get("supported", 0)
        low, high = wilson(supported, known) if known else (None, None)
        return {
            "records": self.total,
            **{finding: self.findings.get(finding, 0) for finding in _FINDINGS},
            "unread": self.unread,
            "no_claim": self.unclaimed,
            "supported_share": {"value": supported / known if known else None, "low": low, "high": high},
            "judges": dict(sorted(self.judges.items())),
        }


def judged_section(results: Mapping[str, Json]) -> list[str]:
    """The parts of report.md about claims; none without a judge."""
    judged = results.get("judged")
    if judged is None:
        return []
    share = judged["supported_share"]
    rate = "-" if share["value"] is None else f"{share['value']:.1%} ({share['low']:.1%} to {share['high']:.1%})"
    names = ", ".join(f"{name} ({count:,} records)" for name, count in judged["judges"].items())
    known = sum(judged[finding] for finding in _FINDINGS)
    summary = f"All claims supported: {rate} of {known:,} records with a verdict. Judged by {names}."
    rows: list[tuple[object, ...]] = [(finding, judged[finding]) for finding in _FINDINGS]
    rows += [("no verdict that can be read", judged["unread"]), ("no claim found", judged["no_claim"])]
    return ["## Claims, by a judge\n", f"{escape(summary)}\n", table(("finding of the worst claim", "records"), rows)]


def judged_tiles(results: Mapping[str, Json]) -> list[Tile]:
    """The tile for the page's summary: the share of records whose claims are all supported; none without a judge."""
    judged = results.get("judged")
    if judged is None:
        return []
    share = number(judged["supported_share"]["value"], "share")
    return [Tile("Claims supported", share, f"by {', '.join(judged['judges'])}")]


def judged_evidence(judged: Mapping[str, Any]) -> Iterator[Evidence]:
    """The claims of a record that are not supported, for the page, the worst first."""
    claims = [claim for claim in judged.get("claims", ()) if claim["finding"] != "supported"]
    for claim in sorted(claims, key=lambda one: -_FINDINGS.index(one["finding"])):
        yield Evidence(f"claim: {claim['claim']}", "supported", f"{claim['finding']}: {claim['quote'] or 'no quote'}")
    if fault := judged.get("fault"):
        yield Evidence("judge", "a verdict that can be read", fault)


# Agreement of calls with labels: rates with intervals, compared with targets.

_MEASURES = (
    ("tpr", "true positive rate", "at least"),
    ("fpr", "false positive rate", "at most"),
    ("precision", "precision", ""),
    ("recall", "recall", "at least"),
)


class Targets(Params):
    """The targets of the specification's section 5.3; ``confidence`` is that of the intervals compared with them."""

    true_positive_rate: float = Field(default=0.7, ge=0, le=1)
    false_positive_rate: float = Field(default=0.2, ge=0, le=1)
    confidence: float = Field(default=0.95, gt=0, lt=1)


class Confusion(Merging):
    """Counts of labelled records by label and call. Positive means hallucinated, or not verified."""

    true_positives: int = 0
    false_positives: int = 0
    true_negatives: int = 0
    false_negatives: int = 0

    @property
    def total(self) -> int:
        """All labelled records."""
        return self.true_positives + self.false_positives + self.true_negatives + self.false_negatives

    def add(self, *, positive: bool, called: bool) -> None:
        """Count one record with its label and its call."""
        if positive:
            self.true_positives += called
            self.false_negatives += not called
        else:
            self.false_positives += called
            self.true_negatives += not called

    def merge(self, later: Confusion) -> None:
        """Take in further counts."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(later, name))


def compare_with_target(low: float, high: float, target: float, bound: Literal["least", "most"]) -> str:
    """Whether a share with this interval meets its target: "yes", "no", or "undecided" while the interval spans it."""
    # The interval decides, not the rate: a few records may reach any target by chance (SPEC, section 3).
    if bound == "least":
        return "yes" if low >= target else "no" if high < target else "undecided"
    return "yes" if high <= target else "no" if low > target else "undecided"


def effectiveness(counts: Confusion, targets: Targets) -> dict[str, Json]:
    """``tpr``, ``fpr``, ``precision``, ``recall`` (null where there is nothing to divide by) and the ``counts``."""
    positives = counts.true_positives + counts.false_negatives
    negatives = counts.false_positives + counts.true_negatives
    called = counts.true_positives + counts.false_positives
    caught = _rate(counts.true_positives, positives, targets.confidence, targets.true_positive_rate, "least")
    return {
        "tpr": caught,
        "fpr": _rate(counts.false_positives, negatives, targets.confidence, targets.false_positive_rate, "most"),
        # No target: the seed sets none for it.
        "precision": _rate(counts.true_positives, called, targets.confidence, None, "least"),
        # The same number under its other name, and a copy, so that changing one cannot change both.
        "recall": dict(caught),
        "counts": msgspec.to_builtins(counts),
    }


def _rate(
    hits: int, of: int, confidence: float, target: float | None, bound: Literal["least", "most"]
) -> dict[str, Json]:
    if of == 0:
        # Without records, the target is neither met nor missed.
        empty = None if target is None else "undecided"
        return {"value": None, "low": None, "high": None, "target": target, "met": empty}
    low, high = wilson(hits, of, confidence)
    verdict = None if target is None else compare_with_target(low, high, target, bound)
    return {"value": hits / of, "low": low, "high": high, "target": target, "met": verdict}


def effectiveness_table(measured: Mapping[str, Json]) -> str:
    """The four measures, each with its interval, its target and whether it is met."""
    rows: list[tuple[object, ...]] = []
    for key, name, bound in _MEASURES:
        rate = measured[key]
        interval = "-" if rate["low"] is None else f"{percent(rate['low'])} to {percent(rate['high'])}"
        target = "-" if rate["target"] is None else f"{bound} {percent(rate['target'])}"
        rows.append((name, percent(rate["value"]), interval, target, rate["met"] or "-"))
    return table(("measure", "value", "interval", "target", "met"), rows)
