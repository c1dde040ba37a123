"""Params of checks: the cases with their checks, thresholds and diversity, or the file that has them."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Self

import msgspec
from pydantic import (
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.files import open_input, replacing
from evalq.evalcore.model.canonical import canonical_json, digest
from evalq.evalcore.model.lines import lines_in_file, marker_of
from evalq.evalcore.model.manifest import BOM, MAX_RECORD_BYTES
from evalq.evalcore.records.inputs import Source, case_of_name

DEFAULT_KS = (1, 3, 5)
MOST_K = 1000
_LEAST_SHARE = 1e-15
"""Below this, a float would become 0, which has no logarithm."""
NO_WEIGHT = "all checks have weight 0, so that no answer could fail: give one a weight above 0, or omit the case"
Share = Annotated[float, Field(ge=0, le=1)]
# Four digits at most, so that int() reads no long text; MOST_K limits K below.
_RATE = re.compile(r"pass(?P<kind>[@^])(?P<k>[1-9]\d{0,3})")


class Threshold(Params):
    """The lowest pass rate, pass@k or pass^k that a case must reach."""

    number: str
    # Not 0, which every case reaches: in a cases file, it lifts the threshold of a layer below.
    least: Annotated[float, Field(gt=0, le=1)]

    @property
    def k(self) -> int:
        """The number of answers; 1 for the pass rate."""
        match = _RATE.fullmatch(self.number)
        return int(match["k"]) if match else 1

    @property
    def share(self) -> float:
        """The threshold as a chance of one pass: all three rates rise with it."""
        match = _RATE.fullmatch(self.number)
        if match is None or self.k == 1:
            return self.least
        if match["kind"] == "@":
            # pass@k is 1 - (1 - p)^k for the chance p of one pass, pass^k is p^k.
            return max(_LEAST_SHARE, float(1.0 - (1.0 - self.least) ** (1.0 / self.k)))
        return float(self.least ** (1.0 / self.k))

    @model_validator(mode="after")
    def _check_number(self) -> Self:
        match = _RATE.fullmatch(self.number)
        if self.number != "pass-rate" and (match is None or int(match["k"]) > MOST_K):
            raise ValueError(f"{self.number!r} is none of pass-rate, pass@K, pass^K (K from 1 to {MOST_K})")
        return self


class Thresholds(Params):
    """``score`` is the weighted mean of checks at which an output passes; if None, all checks must pass.

    ``rates`` are what the case must reach.
    """

    score: Share | None = None
    rates: tuple[Threshold, ...] = ()


class Diversity(Params):
    """How to count the answers to a case by kind. They are collapsed if one kind has more than ``collapse_share``.

    By "near", answers with at least this ``similarity`` are one kind; by "embedding", those whose vectors have at least
    this cosine, from the target ``embedder``; by "none", they are not counted. ``judge``: a judge also says of pairs of
    answers whether both say the same, which the report shows next to the verdict.
    """

    by: Literal["text", "near", "embedding", "none"] = "text"
    collapse_share: Annotated[float, Field(gt=0, lt=1)] = 0.7
    similarity: Annotated[float, Field(gt=0, le=1)] = 0.8
    embedder: str = ""
    judge: bool = False

    @model_serializer(mode="wrap")
    def _serialize(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without a judge the key is left out, so that digests and reports stay as before there were judges.
        return {name: value for name, value in dump(self).items() if name != "judge" or value}


class Case(Params):
    """An expanded case, with the digest of its input, and ``checks`` as in a file.

    ``diversity`` is None if that of the run applies. Cases of one ``cluster``, such as traces of one session, are not
    independent, and count as one in intervals.
    """

    id: str = Field(min_length=1)
    input_sha256: str = ""
    checks: tuple[dict[str, Any], ...] = Field(min_length=1)
    tags: tuple[str, ...] = ()
    weight: Annotated[float, Field(ge=0, le=1e9)] = 1.0
    thresholds: Thresholds = Thresholds()
    diversity: Diversity | None = None
    cluster: str = ""

    @model_serializer(mode="wrap")
    def _serialize(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without a cluster the key is left out, so that digests and reports stay as before there were any.
        return {name: value for name, value in dump(self).items() if name != "cluster" or value}

    @field_validator("checks")
    @classmethod
    def _check_weights(cls, checks: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        # Validated here, too, since params also come from Python and other tools.
        if weightless(checks):
            raise ValueError(NO_WEIGHT)
        return checks


class LoadedCase(msgspec.Struct):
    """A case from a file of cases: a `Case` that was valid when the file was written, in a tenth of its memory."""

    id: str
    checks: list[dict[str, Any]]
    tags: tuple[str, ...]
    weight: float
    thresholds: Thresholds
    diversity: Diversity | None
    input_sha256: str = ""
    cluster: str = ""


class _CaseLine(msgspec.Struct):
    id: str
    checks: list[dict[str, Any]]
    tags: tuple[str, ...]
    weight: float
    thresholds: msgspec.Raw
    diversity: msgspec.Raw
    input_sha256: str
    cluster: str = ""


_case_line = msgspec.json.Decoder(_CaseLine).decode


@lru_cache(maxsize=1024)
def _read_thresholds(data: bytes) -> Thresholds:
    return Thresholds.model_validate_json(data, strict=True)


@lru_cache(maxsize=1024)
def _read_diversity(data: bytes) -> Diversity:
    return Diversity.model_validate_json(data, strict=True)


_NO_THRESHOLDS = Thresholds()
_PLAIN_THRESHOLDS = canonical_json(_NO_THRESHOLDS.model_dump(mode="json"))
_tags: dict[tuple[str, ...], tuple[str, ...]] = {}
_MOST_TAGS = 4096


def read_case(line: bytes) -> LoadedCase:
    """The case in a line of a file of cases. Raises ValueError."""
    found = _case_line(line)
    thresholds, diversity, tags = bytes(found.thresholds), bytes(found.diversity), found.tags
    shared = _tags.get(tags)
    if shared is None:
        if len(_tags) >= _MOST_TAGS:
            _tags.clear()
        shared = _tags[tags] = tags
    return LoadedCase(
        found.id,
        found.checks,
        shared,
        found.weight,
        _NO_THRESHOLDS if thresholds == _PLAIN_THRESHOLDS else _read_thresholds(thresholds),
        None if diversity == b"null" else _read_diversity(diversity),
        found.input_sha256,
        found.cluster,
    )


AnyCase = Case | LoadedCase


CASES = "cases.jsonl"
"""The file of cases in a run folder."""


class CasesFile(Params):
    """A run's cases in a file of lines in its folder: how many ``lines``, and their SHA-256.

    ``judged``: fallible checks decide some of the selected cases. ``diverse``: some count their answers by kind.
    """

    lines: Annotated[int, Field(ge=1)]
    sha256: str
    judged: bool = False
    diverse: bool = False


def weightless(checks: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all checks have weight 0."""
    return all(check.get("weight", 1) == 0 for check in checks)


class Labels(Params):
    """The repeats of a case that people labelled as passing or failing a check."""

    passed: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _check_repeats(self) -> Self:
        if both := set(self.passed) & set(self.failed):
            raise ValueError(f"repeat {min(both)} is labelled both as passed and as failed")
        return self


class ChecksParams(Params):
    """Params of checks: ``request`` fills ``cases`` from the cases files.

    ``tag`` selects cases (empty: all); outputs of others are skipped. ``pass_rate`` is the threshold of cases without
    one (0: none). ``ks`` are the k of pass@k and pass^k in the report. ``diversity`` is for cases without their own.
    ``labels`` are people's, by case and name of check. Thresholds of cases that fallible checks decide count if enough
    labels confirm these checks (`labels.trusted_checks`), or with ``judges_decide``.
    """

    cases: tuple[Case, ...] = ()
    tag: str = ""
    pass_rate: Share = 0.0
    ks: tuple[Annotated[int, Field(ge=1, le=MOST_K)], ...] = DEFAULT_KS
    # Off by default: it keeps eight bytes for each answer and takes time to normalise it (decision 25).
    diversity: Diversity = Diversity(by="none")
    # Labels are evidence: runs with different labels stay comparable (decision 23).
    labels: dict[str, dict[str, Labels]] = Field(default_factory=dict)
    judges_decide: bool = False
    # More cases than a plan should have. Each record then comes with its own case, and only the report needs the file.
    cases_file: SkipJsonSchema[CasesFile | None] = Field(default=None, repr=False)
    # The digest of the checks of traces: their cases are other ones in each run, and the runs of a suite one series.
    traces: str = ""
    _folder: Path | None = PrivateAttr(None)

    @model_serializer(mode="wrap")
    def _serialize(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without a file or traces the key is left out, so that digests and reports of others stay.
        return {name: value for name, value in dump(self).items() if name not in ("cases_file", "traces") or value}

    @model_validator(mode="after")
    def _check_unique(self) -> Self:
        seen: set[str] = set()
        for case in self.cases:
            if case.id in seen:
                raise ValueError(f"cases: {case.id} occurs twice")
            seen.add(case.id)
        if list(self.ks) != sorted(set(self.ks)):
            raise ValueError("ks: must be in rising order")
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all params, computed once, and only if the hashes are equal."""
        return digest(canonical_json(self.model_dump(mode="json")))

    def __hash__(self) -> int:
        """A cheap hash, since the digest of many cases takes seconds."""
        ends = tuple(case.id for case in (*self.cases[:1], *self.cases[-1:]))
        return hash((len(self.cases), ends, self.tag, self.pass_rate, self.ks))

    def __eq__(self, other: object) -> bool:
        """By the digest."""
        return self is other or (isinstance(other, ChecksParams) and self.digest == other.digest)

    def selected(self) -> tuple[Case, ...]:
        """The cases with ``tag``, in the order of the files."""
        return tuple(filter(self.selects, self.cases))

    def selects(self, case: AnyCase) -> bool:
        """Whether a case has ``tag``."""
        return not self.tag or self.tag in case.tags

    def attached(self, folder: Path) -> ChecksParams:
        """These params with the file of cases in ``folder``, if they have one."""
        if self.cases_file is None:
            return self
        attached = self.model_copy()
        attached._folder = folder
        return attached

    @staticmethod
    def shown(params: dict[str, Any]) -> dict[str, Any]:
        """Plain params for a report: cases in a file stand there as every list in a file does."""
        shown = dict(params)
        known = shown.pop("cases_file", None)
        return shown if known is None else {**shown, "cases": marker_of(CASES, known["lines"], known["sha256"])}

    def every(self) -> Iterable[AnyCase]:
        """All cases in the order of the files. Raises WireError, and ConfigError without the folder that has them."""
        if self.cases_file is None:
            return self.cases
        if self._folder is None:
            raise ConfigError(f"{self.cases_file.lines:,} cases are in {CASES} of the run's folder, and not here")
        marker = marker_of(CASES, self.cases_file.lines, self.cases_file.sha256)
        return map(read_case, lines_in_file(self._folder / CASES, marker).lines())

    def numbered(self) -> Iterator[tuple[int, AnyCase]]:
        """The selected cases with their numbers, as `every` gives them."""
        return ((number, case) for number, case in enumerate(self.every()) if self.selects(case))


def thresholds_of(case: AnyCase, params: ChecksParams) -> tuple[Threshold, ...]:
    """The thresholds of a case, or else the run's."""
    if case.thresholds.rates or not params.pass_rate:
        return case.thresholds.rates
    return (Threshold(number="pass-rate", least=params.pass_rate),)


def diversity_of(case: AnyCase, params: ChecksParams) -> Diversity | None:
    """How to count the answers of a case by kind: its own setting, or else the run's; None for "none"."""
    diversity = case.diversity or params.diversity
    return None if diversity.by == "none" else diversity


# Many cases: in a file of lines beside the plan, and with each recorded output the case that it is about.
#
# A plan with very many cases takes long to send and much memory to hold. So with more than `LONG`, the run folder has a
# file of them (`CASES`), and the recorded outputs are joined with it: a line has the number of its case, the case and
# the output, with tabs between. Workers need nothing else, and the report reads the file case by case.

_encode = msgspec.json.Encoder().encode
_BLOCK = 1 << 20
_WINDOW = 1 << 18
_PLAIN = (
    b'{"checks":%b,"diversity":null,"id":%b,"input_sha256":"%b","tags":%b,'
    b'"thresholds":{"rates":[],"score":null},"weight":1.0}'
)


class ManyCases:
    """Cases in a temporary file, a line each, found by their ids: the `Beside` of a run of checks."""

    def __init__(self, tag: str) -> None:
        """``tag`` selects the cases that the run is about."""
        self._tag = tag
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - it lasts as long as this object
        self._questions: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - likewise
        self._starts = array("Q", [0])
        self._digest = hashlib.sha256()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._judged = self._diverse = self.selects_any = False
        self.ids: Mapping[str, int] = {}
        """The number of each case, in the order of `add`."""

    def __len__(self) -> int:
        return len(self._starts) - 1

    def add(self, params: dict[str, Any], *, question: bytes, plain: bool, judged: bool) -> None:
        """Add a valid case, and what it asks, in a line; ``plain``: see `ExpandedCase`.

        ``judged``: a fallible check decides it.
        """
        if question:
            self._questions.write(question + b"\n")
        line = _plain_line(params) if plain else _line_of(params)
        self._pending.append(line)
        self._pending_bytes += len(line)
        self._starts.append(self._starts[-1] + len(line) + 1)
        if self._pending_bytes >= _BLOCK:
            self._flush()
        if not self._tag or self._tag in params["tags"]:
            self.selects_any = True
            self._diverse = self._diverse or params["diversity"] is not None
            self._judged = self._judged or judged

    def questions(self) -> Iterator[msgspec.Raw]:
        """What the cases ask, in their order."""
        self._questions.seek(0)
        return (msgspec.Raw(line.removesuffix(b"\n")) for line in self._questions)

    def _flush(self) -> None:
        if self._pending:
            block = b"\n".join(self._pending) + b"\n"
            self._digest.update(block)
            self._file.write(block)
            self._pending, self._pending_bytes = [], 0

    def file(self) -> CasesFile:
        """The file of all cases added."""
        self._flush()
        return CasesFile(
            lines=len(self),
            sha256=self._digest.hexdigest(),
            judged=self._judged,
            diverse=self._diverse,
        )

    def write(self, folder: Path) -> None:
        """Write the file of cases into a run folder. Raises OSError."""
        self._flush()
        with replacing(folder / CASES) as out:
            self._file.seek(0)
            shutil.copyfileobj(self._file, out, _BLOCK)

    def join(self, source: Source, folder: Path) -> Source:
        """The recorded outputs with the case of each: a line for a line. Raises OSError."""
        self._flush()
        folder.mkdir(parents=True, exist_ok=True)
        target, digest, cases = (
            folder / f"{source.name}.joined",
            hashlib.sha256(),
            _CaseWindow(self._file, self._starts),
        )
        with open_input(source.path) as lines, replacing(target) as out:
            begins, first, pieces, size = True, True, list[bytes](), 0
            while line := lines.readline(MAX_RECORD_BYTES + 1):
                digest.update(line)
                data = line.removeprefix(BOM) if first else line
                first = False
                # A line that is too long stays in pieces: cutting it into chunks reports it.
                number = self._case_of(data) if begins and len(line) <= MAX_RECORD_BYTES else None
                begins = line.endswith(b"\n")
                # Without a case, the evaluation says what is wrong with the line.
                joined = b"\t\t" + data if number is None else b"%d\t%b\t%b" % (number, cases.line(number), data)
                pieces.append(data if data.isspace() else joined)
                size += len(joined)
                if size >= _BLOCK:
                    out.write(b"".join(pieces))
                    pieces, size = [], 0
            out.write(b"".join(pieces))
        return msgspec.structs.replace(source, joined=str(target), sha256=digest.hexdigest())

    def _case_of(self, line: bytes) -> int | None:
        """The number of the case that a recorded output is about; None if it is of no case."""
        try:
            found = _read_named(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if isinstance(found.case, str):
            return self.ids.get(found.case)
        if found.case is msgspec.UNSET and isinstance(found.named, str):
            match = case_of_name(found.named, self.ids.__contains__)
            return None if match is None else self.ids[match[0]]
        return None


class _NamedLine(msgspec.Struct):
    case: Any = msgspec.UNSET
    named: Any = msgspec.UNSET


_read_named = msgspec.json.Decoder(_NamedLine).decode


def _line_of(params: dict[str, Any]) -> bytes:
    """A valid case as `Case` dumps it, in a line of canonical JSON."""
    case = Case.model_validate_json(canonical_json(params), strict=True)
    return canonical_json(case.model_dump(mode="json"))


def _plain_line(params: dict[str, Any]) -> bytes:
    """The same of a plain case."""
    checks, tags = _encode(params["checks"]), _encode(params["tags"])
    return _PLAIN % (checks, _encode(params["id"]), params["input_sha256"].encode(), tags)


class _CaseWindow:
    """Lines of the file of cases by number: a stretch at once for outputs in the order of their cases."""

    def __init__(self, file: BinaryIO, starts: array[int]) -> None:
        self._file = file
        self._starts = starts
        self._window = b""
        self._from = self._to = 0
        self._last = 0

    def line(self, number: int) -> bytes:
        """The case with that number, without its newline."""
        start, end = self._starts[number], self._starts[number + 1] - 1
        if start < self._from or end > self._to:
            near, self._last = abs(number - self._last) < _NEAR, number
            self._file.seek(start if not near else max(0, start - _WINDOW // 2))
            if not near:
                return self._file.read(end - start)
            self._from = self._file.tell()
            self._window = self._file.read(max(_WINDOW, end - self._from))
            self._to = self._from + len(self._window)
        self._last = number
        return self._window[start - self._from : end - self._from]


_NEAR = 1000


def read_joined(line: bytes) -> tuple[int, LoadedCase | None, bytes]:
    """The number of a case, the case (None if it is of none), and the output in a line of joined outputs.

    Raises ValueError if it is none.
    """
    number, case, output = line.split(b"\t", 2)
    return (int(number), read_case(case), output) if number else (-1, None, output)
