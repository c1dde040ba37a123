"""A finished run as one side of a comparison."""

from __future__ import annotations

import msgspec

from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.compare.took import Took
from evalq.evalcore.contract.measures import Number
from evalq.evalcore.model.calls import Lineage
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Omission

__all__ = ["SCHEMA", "RunCases", "Usage"]

SCHEMA = "evalq.cases/2"


class Usage(msgspec.Struct, frozen=True):
    """What the live calls of a run took, over all of its outputs.

    ``attempts`` counts failed ones, too; ``cost`` is that of all of them, 0 where the target has no price.

    ``seconds`` are quantiles of the time of each output's last attempt: {"p50": 1.2, "p95": 4.0, "p99": 6.1}.
    ``config`` is the digest of the settings of the target that gave them, empty where they are of several. ``sample``
    has numbers of some answers: two runs of which one took answers from a cache have some of them in common. ``each``
    has means over the outputs that have a number: {"seconds": 1.9, "cost": 0.01, "prompt_tokens": 312.5}. ``untold``
    counts those that were answered and do not say it, where there are any: {"cost": 3}.
    """

    outputs: int = 0
    errors: int = 0
    attempts: int = 0
    cost: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: dict[str, float] = {}
    config: str = ""
    sample: list[int] = []
    each: dict[str, float] = {}
    untold: dict[str, int] = {}

    @property
    def cost_each(self) -> float | None:
        """The mean cost of an output, its failed attempts included, in the target's currency; None where no attempt
        has a cost, as of a target without a price.
        """
        known = self.cost > 0 or "cost" in self.each
        return self.cost / self.outputs if known and self.outputs else None


class RunCases(msgspec.Struct, kw_only=True):
    """A finished run, as far as a comparison needs it.

    ``name`` is what its suite calls it, by which runs of one evaluator are told apart. ``specification`` is the digest
    of its parameters, a golden set among them; ``report`` that of its report.json, and so of all that it found.
    ``usage`` is what its live calls took, where it made any; ``lineage`` where it took outputs of earlier runs.
    ``left_out`` is what its numbers leave out, as its report has it. ``parameters`` is the digest of its parameters
    without its cases, ``inputs`` are the SHA-256 of the files that it evaluated, and ``lines`` digests of all lines in
    each of these, in whichever order; empty where they could not be read once more. ``doubled`` counts those of a
    sample of their answers that are in several files, by when each of their calls was made.
    ``took`` has what single answers took, by the name of the number: "usage.seconds" and the like are of live calls.
    ``numbers`` says what the numbers of the results are.
    ``day`` is the one on which it began (ISO, UTC), empty where nobody knows.
    """

    schema: str = SCHEMA
    run: str
    evaluator: str
    version: str
    name: str = ""
    suite: str = "default"
    target: str = ""
    tags: dict[str, str] = {}
    specification: str
    report: str
    records: dict[str, int]
    results: dict[str, Json] = {}
    cases: CaseSummary
    usage: Usage | None = None
    lineage: Lineage | None = None
    took: dict[str, Took] = {}
    numbers: list[Number] = []
    left_out: list[Omission] = []
    parameters: str = ""
    inputs: list[str] = []
    lines: list[str] = []
    doubled: int = 0
    day: str = ""

    @property
    def looks(self) -> int:
        """Which look at a growing run this is: 1 for one that has answers of its own alone."""
        return 1 + (self.lineage.number if self.lineage else 0)

    @property
    def called(self) -> str:
        """What a policy calls it: its name in the suite, or its evaluator's."""
        return self.name or self.evaluator
