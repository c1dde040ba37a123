"""What a sweep would take: calls, tokens, cost and time, from what is known of the target and what was measured."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator, Request, Stage, live_calls
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.evalcore.files import open_input, write_atomic
from evalq.evalcore.model.calls import Attempt, Prompt
from evalq.evalcore.views.markdown import plural
from evalq.producer.folder.files import JOINED, OUTPUTS, RUNS
from evalq.producer.monitor.fleet import format_duration
from evalq.producer.sweep.head import settings_of_run
from evalq.producer.sweep.options import SweepOptions, prompts_of
from evalq.producer.sweep.reuse import Cache, SourceRun
from evalq.producer.sweep.sweep import recorded_lines
from evalq.workers.ledger.sweep_model import differing_settings
from evalq.workers.settings import Settings

if TYPE_CHECKING:
    from evalq.workers.ledger.heartbeats import TargetFacts


def estimate(evaluator: Evaluator[Any, Any], request: Request, live: SweepOptions, settings: Settings) -> Iterator[str]:
    """Lines for a person. Raises what starting the sweep would, and UsageError for a target nobody knows."""
    from evalq.workers.targets.variable import canonical_name  # brings what calls along, as in `_known`

    calls = live_calls(evaluator)
    # As a sweep calls it: what was recorded and measured is under this name, in whatever order choices are written.
    live = msgspec.structs.replace(live, target=canonical_name(live.target))
    stage = calls.judge_stage.begin(request) if calls.judge_stage is not None else None
    if live.target:
        yield from _for_outputs(list(prompts_of(evaluator, request, live)), live, settings)
    if stage is not None:
        yield from _about_outputs(evaluator, request, stage, live, settings)


def _about_outputs(
    evaluator: Evaluator[Any, Any], request: Request, stage: Stage, live: SweepOptions, settings: Settings
) -> Iterator[str]:
    """What asking further targets takes, where every output has all that is asked about."""
    from evalq.workers.targets.variable import canonical_name

    asks = asks_of(evaluator, request, stage, live)
    for (target, repeats), questions in sorted(asks.items()):
        votes = f" x {repeats} votes" if repeats > 1 else ""
        yield f"about the outputs: {plural(questions, 'question')}{votes} to {target} = {questions * repeats:,} calls"
        yield from _taking(canonical_name(target), questions * repeats, live, settings)


def asks_of(
    evaluator: Evaluator[Any, Any], request: Request, stage: Stage, live: SweepOptions
) -> Counter[tuple[str, int]]:
    """{(target, votes): questions about all outputs}. Raises InputError."""
    if live.target:
        return Counter(stage.count_questions(live.repeat))
    # Outputs that are there already may lack what is asked about: their own questions are counted.
    asks = Counter[tuple[str, int]]()
    stage.prepare(lambda: recorded_lines(evaluator, request))
    for line in recorded_lines(evaluator, request):
        asks.update((question.target, question.repeats) for question in stage.questions(line))
    return asks


def _taking(target: str, calls: int, live: SweepOptions, settings: Settings) -> Iterator[str]:
    """Tokens, cost and time of ``calls`` to ``target``."""
    facts, means = _known(target, settings)
    if facts is None:
        yield f"target {target}: not known here; give --targets FILE, or --broker URL of a fleet that calls it"
        return
    means = means or means_of(target, facts.config, live.cache)
    yield from _cost(facts, means, calls, live)
    yield _time(facts, means, calls)


def _for_outputs(prompts: list[Prompt], live: SweepOptions, settings: Settings) -> Iterator[str]:
    """What the calls take that give the outputs."""
    if not prompts:
        raise UsageError("there is nothing to ask: no case is left")
    facts, _ = _known(live.target, settings)
    total = len(prompts) * live.repeat
    reused = _reused(prompts, live, facts) if facts else set[int]()
    taken, cached = len(reused), _cached(prompts, live, facts.config, reused) if facts else 0
    calls = total - cached - taken
    most = min(calls, live.max_calls or calls)
    known = [f"{cached:,} of them cached"] if cached else []
    known += [f"{taken:,} of them answered in an earlier run"] if taken else []
    yield ", ".join([f"{plural(len(prompts), 'case')} x {live.repeat} = {total:,} calls", *known])
    if most < calls:
        yield f"at most {most:,} of them (--max-calls)"
    if users := [prompt.user for prompt in prompts if prompt.user is not None]:
        spoken = sum(user.max_turns for user in users) * live.repeat
        yield (
            f"simulated users speak at most {spoken:,} times in {len(users) * live.repeat:,} of them: each is a call "
            "of its own, and one or more of the target"
        )
    if live.stop:
        yield f"fewer where cases are decided sooner (--stop {live.stop})"
    yield from _taking(live.target, most, live, settings)


def _reused(prompts: Sequence[Prompt], live: SweepOptions, facts: TargetFacts) -> set[int]:
    """The calls that earlier runs have outputs of. Raises UsageError where they are to be of other settings."""
    config = facts.config
    if live.config not in ("", config):
        changed = differing_settings(settings_of_run(live.reuse[0]) if live.reuse else {}, facts.settings)
        shown = changed or f"digest {live.config} then, {config} now"
        raise UsageError(f"target {live.target!r} has other settings now than then ({shown})")
    found: set[int] = set()
    # As a sweep takes them, each call from the first that has it: what two runs have is not to be paid for once less.
    for path in live.reuse:
        for some in SourceRun(path).taken(prompts, live, config, found.__contains__):
            found.update(output.call for output in some)
    return found


def _cached(prompts: Sequence[Prompt], live: SweepOptions, config: str, reused: Set[int]) -> int:
    """How many calls a cache has outputs of that earlier runs have not."""
    # Opening a cache would make its file, and an estimate leaves nothing behind.
    if not live.cache or not Path(live.cache).exists():
        return 0
    count = 0
    with contextlib.closing(Cache(live.cache)) as cache:
        for number, prompt in enumerate(prompts):
            wanted = [repeat for repeat in range(live.repeat) if repeat * len(prompts) + number not in reused]
            count += len(cache.find(live.target, config, prompt, wanted))
    return count


def _known(target: str, settings: Settings) -> tuple[TargetFacts | None, Means | None]:
    """The target's facts, from the targets file here or from the fleet, and mean tokens of calls measured there."""
    from evalq.workers.callers.choices import known_facts
    from evalq.workers.callers.target_sessions import target_facts
    from evalq.workers.servers.connections import connect
    from evalq.workers.targets import load_targets
    from evalq.workers.targets.config import choose

    facts, means = None, None
    if settings.targets:
        targets = load_targets(settings.targets)
        named = choose(targets, target)
        if named is None:
            raise UsageError(f"{settings.targets}: no target {target} (known there: {', '.join(targets)})")
        facts = target_facts(named)
    if settings.broker and settings.ledger_address.is_redis:
        from evalq.workers.ledger.heartbeats import Heartbeats
        from evalq.workers.ledger.sweeps import SweepLedger

        client = connect(settings.ledger_address, settings)
        fleet = SweepLedger(client, settings).mean_tokens(target)
        means = Means(int(fleet["calls"]), fleet["prompt"], fleet["completion"]) if fleet else None
        known = [known_facts(caller.targets, target) for caller in Heartbeats(client).callers().values()]
        # The file here counts first: its calls are what this command would make.
        facts = facts or next(filter(None, known), None)
    return facts, means


def _cost(facts: TargetFacts, means: Means | None, calls: int, live: SweepOptions) -> Iterator[str]:
    if means is None:
        yield "tokens: not known before the target was called"
        return
    prompt, completion = calls * means.prompt, calls * means.completion
    made = f"mean of {plural(means.calls, 'call')} made" + (f": {means.source}" if means.source else "")
    yield f"tokens: about {prompt:,.0f} prompt and {completion:,.0f} completion ({made})"
    if facts.price:
        from evalq.workers.targets.price import Price

        parts = {name: calls * mean for name, mean in means.parts.items()}
        price = Price.model_validate(facts.price)
        cost = price.cost(prompt, completion, **parts) + (calls - 1) * price.per_call
        yield f"cost: about {cost:.4g}" + (f", at most {live.max_cost:g} (--max-cost)" if live.max_cost else "")


def _time(facts: TargetFacts, means: Means | None, calls: int) -> str:
    """The time that the configured limits alone make it last."""
    minutes = [0.0]
    if facts.requests_per_minute:
        minutes.append(calls / facts.requests_per_minute)
    if facts.tokens_per_minute:
        # Before the first call nothing is measured, and the target's own guess stands in.
        each = means.prompt + means.completion if means else facts.tokens_per_call
        minutes.append(calls * each / facts.tokens_per_minute)
    if not max(minutes):
        return "time: the target has no limit by the minute; the pace is found out"
    return f"time at the limit: {format_duration(max(minutes) * 60)}"


# What calls of a target took before, under the same settings: earlier runs, a cache, and what `--try` measured.

TRIALS = RUNS / "measured.json"
"""{target: {digest of its settings: `Means`}}, of the last `--try` of each."""
# An estimate comes before anything is begun, and must not read all that was ever recorded.
_FOLDERS = 50
_LINES = 2000
_BYTES = 32 << 20

_Amount = Annotated[float, msgspec.Meta(ge=0)]


class Means(msgspec.Struct, frozen=True):
    """Mean tokens of ``calls`` calls, retries included; ``source`` says where they were made.

    ``parts`` are those of them that may have a price of their own (`_PARTS`).
    """

    calls: Annotated[int, msgspec.Meta(ge=1)]
    prompt: _Amount
    completion: _Amount
    source: str = ""
    parts: dict[str, _Amount] = {}


class _Call(msgspec.Struct, frozen=True):
    """What counts here of a recorded call; that of a judge names it as one."""

    target: str = ""
    judge: str = ""
    config: str = ""
    attempts: tuple[Attempt, ...] = ()


class _Line(_Call, frozen=True):
    """A line of recorded outputs: the call itself, and what further targets were asked about it."""

    judgements: tuple[_Call, ...] = ()
    embedding: _Call | None = None

    def calls(self) -> Iterator[_Call]:
        """All of them."""
        yield from (self, *self.judgements)
        if self.embedding is not None:
            yield self.embedding


def means_of(target: str, config: str, cache: str) -> Means | None:
    """From the newest run that called it, else from the cache, else from the last trial; None where nothing is known.

    What is damaged or of another form counts as nothing: an estimate is no reason to fail.
    """
    for source, attempts in _recorded(target, config, cache):
        means = _mean(attempts, source)
        if means is not None:
            return means
    return _trials().get(target, {}).get(config)


def keep_trial(target: str, config: str, calls: Iterable[Iterable[Attempt]]) -> str:
    """Store a trial's measurements. Returns the file's name, "" if its calls reported no tokens."""
    means = _mean(calls, "--try")
    if means is None:
        return ""
    TRIALS.parent.mkdir(exist_ok=True)
    known = _trials()
    write_atomic(TRIALS, msgspec.json.encode({**known, target: {config: means}}))
    return str(TRIALS)


_PARTS = ("cached", "cache_write", "cache_write_1h", "reasoning")
"""The parts of prompt and completion tokens that may have a price of their own."""


def _mean(calls: Iterable[Iterable[Attempt]], source: str) -> Means | None:
    """The mean tokens of calls whose attempts reported some; None without such calls."""
    # Leave out calls that reported no tokens: counted as 0 tokens, they would make the estimate too low.
    counted = [
        tuple(sum(getattr(a, f"{name}_tokens") or 0 for a in attempts) for name in ("prompt", "completion", *_PARTS))
        for attempts in map(tuple, calls)
        if any(a.prompt_tokens is not None or a.completion_tokens is not None for a in attempts)
    ]
    if not counted:
        return None
    prompt, completion, *parts = (sum(amounts) / len(counted) for amounts in zip(*counted, strict=True))
    named = {name: mean for name, mean in zip(_PARTS, parts, strict=True) if mean}
    return Means(len(counted), prompt, completion, source, named)


def _recorded(target: str, config: str, cache: str) -> Iterator[tuple[str, Iterator[tuple[Attempt, ...]]]]:
    # Both, since a run that has given outputs judged calls nobody for its own.
    files = [path for name in (OUTPUTS, JOINED) for path in RUNS.glob(f"*/{name}") if path.is_file()]
    for path in sorted(files, key=_age)[:_FOLDERS]:
        calls = (call for line in _lines(path) for call in line.calls())
        found = (call for call in calls if (call.judge or call.target, call.config) == (target, config))
        yield str(path.parent), (call.attempts for call in found)
    if cache and Path(cache).is_file():
        with contextlib.suppress(EvalqError), contextlib.closing(Cache(cache)) as known:
            yield cache, (output.attempts for output in known.some(target, config, _LINES))


def _age(path: Path) -> float:
    # It may be removed in between: then it comes last.
    with contextlib.suppress(OSError):
        return -path.stat().st_mtime
    return 0.0


def _lines(path: Path) -> Iterator[_Line]:
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError), open_input(path) as stream:
        for line in islice(stream.readlines(_BYTES), _LINES):
            yield msgspec.json.decode(line, type=_Line)


def _trials() -> dict[str, dict[str, Means]]:
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        if TRIALS.is_file():
            with open_input(TRIALS) as stream:
                return msgspec.json.decode(stream.read(_BYTES), type=dict[str, dict[str, Means]])
    return {}
