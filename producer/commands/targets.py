"""List the targets that live calls may go to, as the targets file names them.

With --try, call one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import click

from evalq.evalcore.errors import ConfigError, Incomplete, UsageError
from evalq.evalcore.views.markdown import plural
from evalq.producer.driving.interrupts import run_interruptible
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import option, server_options

if TYPE_CHECKING:
    from evalq.workers.settings import Settings
    from evalq.workers.targets import Answered, Failure, NamedTarget
    from evalq.workers.targets.caller import Pacer


_SHOWN = 60


def _targets(
    invocation: Invocation, name: str | None, prompt: str | None, agent: str, repeat: int, concurrency: int
) -> int:
    from evalq.workers.settings import load_settings
    from evalq.workers.targets import load_targets
    from evalq.workers.targets.config import choose

    where = invocation.where
    settings = load_settings(where.settings, broker=where.broker, ledger=where.ledger, targets=where.targets)
    if not settings.targets:
        raise ConfigError("no targets file: give --targets FILE, EVALQ_TARGETS, or targets: in the settings file")
    known = load_targets(settings.targets)
    one = None if name is None else choose(known, name)
    if name is not None and one is None:
        raise UsageError(f"{settings.targets}: no target {name} (known there: {', '.join(known)})")
    chosen = known if one is None else {one.name: one}
    if prompt is None:
        for target in chosen.values():
            click.echo(_line(target))
        return 0
    if len(chosen) > 1:
        raise UsageError(f"--try calls one target: name it ({', '.join(chosen)})")
    (target,) = chosen.values()
    results = run_interruptible(_try(target, settings, _Trial(prompt, agent, repeat, concurrency)))
    path = _keep_trial(target, results)
    if path:
        click.echo(f"kept for --dry-run: {path}", err=True)
    return _summary(target, results)


def _keep_trial(target: NamedTarget, results: list[list[Answered | Failure]]) -> str:
    """Keep the calls' tokens; returns the path, or "" if the calls report no tokens or the file cannot be written."""
    from evalq.evalcore.model.calls import Attempt
    from evalq.producer.sweep.estimate import keep_trial
    from evalq.workers.targets.target import config_digest

    calls = [
        [
            Attempt(
                prompt_tokens=one.prompt_tokens,
                completion_tokens=one.completion_tokens,
                cached_tokens=one.cached_tokens,
                cache_write_tokens=one.cache_write_tokens,
                cache_write_1h_tokens=one.cache_write_1h_tokens,
                reasoning_tokens=one.reasoning_tokens,
            )
            for one in attempts
        ]
        for attempts in results
    ]
    try:
        return keep_trial(target.name, config_digest(target), calls)
    except OSError:
        return ""


class _Trial:
    """What `--try` asks for."""

    def __init__(self, prompt: str, agent: str, repeat: int, concurrency: int) -> None:
        self.prompt, self.agent, self.repeat, self.concurrency = prompt, agent, repeat, concurrency


@contextlib.asynccontextmanager
async def _pacer(target: NamedTarget, settings: Settings) -> AsyncIterator[Pacer]:
    """The fleet's pace of ``target``, or that of this process alone where no server is named."""
    if not (settings.broker or settings.ledger):
        from evalq.workers.callers.local_pacer import LocalPacer

        yield LocalPacer(target.target)
        return
    from evalq.workers.callers.target_sessions import limits_of
    from evalq.workers.ratelimit import RateLimiter
    from evalq.workers.servers.connections import connect

    with contextlib.closing(connect(settings.ledger_address, settings)) as client:
        async with RateLimiter(client, target.pool, limits_of(target)) as pacer:
            yield pacer


async def _try(target: NamedTarget, settings: Settings, trial: _Trial) -> list[list[Answered | Failure]]:
    """Every attempt of each call, in the order in which the calls ended."""
    from evalq.workers.targets import Call, Caller, call_paced

    repeats = iter(range(trial.repeat))
    results: list[list[Answered | Failure]] = []

    async def lane() -> None:
        for repeat in repeats:
            attempts = await call_paced(caller, pacer, Call(trial.prompt, trial.agent, "", repeat, takes_text=True))
            results.append(attempts)
            click.echo(_call_line(repeat, attempts))

    async with Caller(target) as caller, _pacer(target, settings) as pacer:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(trial.concurrency, trial.repeat)):
                    group.create_task(lane())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
    return results


def _line(named: NamedTarget) -> str:
    """A target without anything that may be secret: of a URL only scheme, host and path are shown."""
    target = named.target
    facts = [target.address()]
    limits = {
        "at once": target.max_concurrency,
        "calls/min": target.requests_per_minute,
        "tokens/min": target.tokens_per_minute,
    }
    facts += [f"{value:g} {what}" for what, value in limits.items() if value]
    facts += [f"{target.timeout_seconds:g} s"]
    facts += [f"to choose: {', '.join(target.variable)}"] if target.variable else []
    facts += [f"user {target.user}"] if target.user else []
    facts += [f"key in {target.api_key_env}"] if target.api_key_env else []
    return f"{named.name:<20} {target.kind:<8} {', '.join(facts)}"  # type: ignore[attr-defined]  # every kind has one


def _call_line(repeat: int, attempts: list[Answered | Failure]) -> str:
    """One call's line: its number, status, latency, tokens, retries, and how its answer begins."""
    from evalq.workers.targets import Failure

    last = attempts[-1]
    status = last.kind if isinstance(last, Failure) else "ok"
    tokens = "-" if last.tokens is None else f"{last.tokens}"
    again = f"  after {len(attempts) - 1} more attempts" if len(attempts) > 1 else ""
    text = _short(last.reason) if isinstance(last, Failure) else _short(last.text) or _tools(last)
    if isinstance(last, Failure) and last.kind == "bad_output" and last.text:
        text += f"; its output: {_short(last.text)}"
    return f"{repeat:>5}  {status:<10}  {last.latency_seconds:7.3f} s  {tokens:>6} tokens{again}  {text}"


def _tools(answer: Answered) -> str:
    """The tools that an answer without a text calls."""
    calls = answer.envelope.tool_calls if answer.envelope is not None else None
    return _short(f"calls {', '.join(str(call['name']) for call in calls)}") if calls else ""


def _short(text: str) -> str:
    flat = "".join(sign if sign.isprintable() else " " for sign in " ".join(text.split()))
    return flat if len(flat) <= 2 * _SHOWN else flat[: 2 * _SHOWN] + "..."


def _summary(target: NamedTarget, results: list[list[Answered | Failure]]) -> int:
    """The last lines. Raises Incomplete when a call has no answer."""
    from evalq.workers.targets import Failure
    from evalq.workers.targets.price import attempt_cost

    every = [attempt for attempts in results for attempt in attempts]
    last = [attempts[-1] for attempts in results]
    answered = [result for result in last if not isinstance(result, Failure)]
    failed = Counter(attempt.kind for attempt in every if isinstance(attempt, Failure))
    click.echo(f"{len(answered)} of {plural(len(results), 'call')} answered, {plural(len(every), 'attempt')}")
    if answered:
        click.echo(f"latency: {_times([answer.latency_seconds for answer in answered])}")
    firsts = [first for answer in answered if (first := answer.first_token_seconds) is not None]
    if firsts:
        click.echo(f"first token: {_times(firsts)}")
    prompt, completion = (_total(every, f"{part}_tokens") for part in ("prompt", "completion"))
    cached, reasoning = (_total(every, f"{part}_tokens") for part in ("cached", "reasoning"))
    costs = [attempt_cost(target.target.price, one) for one in every]
    if prompt or completion or any(costs):
        cost = sum(known for known in costs if known is not None)
        of_cache, of_thought = cached and f" ({cached} cached)", reasoning and f" ({reasoning} reasoning)"
        counts = f"{prompt} prompt{of_cache or ''}, {completion} completion{of_thought or ''}"
        click.echo(f"tokens: {counts}" + (f", cost {cost:.6g}" if cost else ""))
    if served := sorted({_served(one) for one in answered} - {""}):
        click.echo(f"served by: {', '.join(served)}")
    if failed:
        click.echo("failures: " + ", ".join(f"{count} {kind}" for kind, count in sorted(failed.items())))
    if len(answered) < len(results):
        raise Incomplete(
            f"no answer to {len(results) - len(answered)} of {plural(len(results), 'call')}, for the reasons above"
        )
    return 0


def _served(answer: Answered) -> str:
    """The model that answered, as the reply names it."""
    served = answer.served
    return " ".join(filter(None, (served.model, served.fingerprint and f"({served.fingerprint})", served.provider)))


def _times(seconds: list[float]) -> str:
    """The median and the 95 % quantile."""
    listed = sorted(seconds)
    worst = listed[min(len(listed) - 1, int(0.95 * len(listed)))]
    return f"median {statistics.median(listed):.3f} s, 95 % {worst:.3f} s"


def _total(attempts: list[Answered | Failure], name: str) -> int:
    return sum(getattr(attempt, name) or 0 for attempt in attempts)


COMMAND = command(
    _targets,
    click.Argument(["name"], required=False),
    option("--targets", type=click.Path(dir_okay=False), metavar="FILE",
           help="The targets file (see docs/reference/targets.md)."),
    click.Option(["--try", "prompt"], metavar="PROMPT", help="Call the target with this prompt."),
    click.Option(["--agent"], default="", metavar="A", help="What {agent} stands for in the target's settings."),
    click.Option(["--repeat"], type=click.IntRange(1), default=1, show_default=True, help="How many calls to make."),
    click.Option(["--concurrency", "concurrency"], type=click.IntRange(1, 10_000), default=1, show_default=True,
                 help="Most calls in flight at once."),
    *server_options(),
)  # fmt: skip
