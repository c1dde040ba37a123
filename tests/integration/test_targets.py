"""`evalq targets` as a user sees it, and pacing between real processes' connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import BrokerUnreachable
from evalq.workers.callers.target_sessions import limits_of
from evalq.workers.ledger.keys import RateLimitKeys
from evalq.workers.ratelimit import PoolLimits, RateLimiter
from evalq.workers.targets import Answered, Call, Caller, Failure, call_paced, load_targets
from tests.agents.server import Agent, running_agent, write_golden
from tests.integration.harness import PATIENCE, Server, evalq, wait_until

SECRET = "sk-never-to-be-seen"  # noqa: S105 - nobody's


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


def _file(folder: Path, url: str, **more: Any) -> Path:
    quick = {kind: {"times": 3, "wait_seconds": 0.01} for kind in ("server", "rate_limit")}
    chat = {"kind": "openai", "base_url": url, "model": "m", "api_key_env": "MY_KEY", "retries": quick, **more}
    path = folder / "targets.yaml"
    path.write_text(json.dumps({"targets": {"chat": chat, "cat": {"kind": "command", "argv": ["cat"]}}}))
    return path


def test_targets_are_listed_without_their_secrets(tmp_path: Path) -> None:
    """Names, kinds, places and limits; no header value, password or query, and the key's variable need not be there."""
    path = _file(tmp_path, f"http://user:{SECRET}@h:8/v1", headers={"X-Key": SECRET}, requests_per_minute=30)
    done = evalq("targets", cwd=tmp_path, EVALQ_TARGETS=str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "chat                 openai   http://h:8/v1 m, 30 calls/min, 120 s, key in MY_KEY",
        "cat                  command  cat, 120 s",
    ]
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("targets", "--targets", "nowhere.yaml"), "nowhere.yaml: cannot be read"),
        (("targets", "dog", "--targets", "targets.yaml"), "no target dog (known there: chat, cat)"),
        (("targets", "--targets", "targets.yaml", "--try", "x"), "--try calls one target: name it (chat, cat)"),
        (("targets", "chat", "--targets", "targets.yaml", "--try", "x"), "the environment has no MY_KEY"),
        (("targets",), "no targets file: give --targets FILE"),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(tmp_path: Path, args: tuple[str, ...], said: str) -> None:
    """Exit 2 and one line."""
    _file(tmp_path, "http://127.0.0.1:1/v1")
    done = evalq(*args, cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_trying_a_target(service: tuple[Agent, str], tmp_path: Path) -> None:
    """Each call's line with status, latency, tokens and retries; a summary with tokens, cost and failures by kind."""
    _file(tmp_path, service[1], price={"prompt_per_million": 100})
    prompt = json.dumps({"do": "raw", "status": 500, "body": "", "times": 2})
    args = ("targets", "chat", "--targets", "targets.yaml", "--try", prompt, "--repeat", "5", "--concurrency", "1")
    done = evalq(*args, cwd=tmp_path, MY_KEY=SECRET)
    assert done.returncode == 0, done.stderr
    *lines, answered, latency, tokens, failures = done.stdout.splitlines()
    assert len(lines) == 5
    assert lines[0].split()[:2] == ["0", "ok"]
    assert "20 tokens  after 2 more attempts" in lines[0]
    assert answered == "5 of 5 calls answered, 7 attempts"
    assert re.match(r"latency: median \d+\.\d", latency)
    assert tokens == "tokens: 50 prompt, 50 completion, cost 0.005"
    assert failures == "failures: 2 server"
    kept, following = done.stderr.splitlines()
    assert kept == "kept for --dry-run: evalq-runs/measured.json"
    assert following.startswith("next: ")
    write_golden(tmp_path / "golden.json", {"a": {}, "b": {}})
    dry = ("vs", "golden.json", "--target", "chat", "--targets", "targets.yaml", "--repeat", "50", "--dry-run")
    known = evalq(*dry, cwd=tmp_path)
    assert "tokens: about 1,000 prompt and 1,000 completion (mean of 5 calls made: --try)" in known.stdout, known.stderr
    assert "cost: about 0.1" in known.stdout
    _file(tmp_path, service[1], price={"prompt_per_million": 100}, options={"temperature": 1})
    assert "tokens: not known before the target was called" in evalq(*dry, cwd=tmp_path).stdout


def test_a_function_is_the_same_one_and_kills_nobody_wherever_it_is_called(tmp_path: Path) -> None:
    """By `--try` as in a sweep: that beside the targets file, not the current folder's; and a call that ends its
    process ends as a failure, while the sweep goes on.
    """
    conf, here = tmp_path / "conf", tmp_path / "here"
    for folder in (conf, here):
        folder.mkdir()
    text = "import os\ndef answer(call):\n    if 'die' in call['prompt']:\n        os._exit(0)\n    return [__file__]\n"
    (conf / "agent.py").write_text(text)
    for name in ("agent", "random", "redis", "secrets"):
        (here / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
    targets = conf / "targets.yaml"
    targets.write_text(json.dumps({"targets": {"own": {"kind": "python", "function": "agent:answer"}}}))
    write_golden(here / "golden.json", {"good": {}, "bad": {"die": True}})
    tried = evalq("targets", "own", "--targets", targets, "--try", "x", cwd=here, PYTHONSAFEPATH="1")
    assert tried.returncode == 0, tried.stderr
    assert str(conf / "agent.py") in tried.stdout
    swept = evalq("vs", "golden.json", "--target", "own", "--targets", targets, "--repeat", "3", "--out", "run",
                  "--format", "none", cwd=here, PYTHONSAFEPATH="1")  # fmt: skip
    assert (swept.returncode, "never answered (3 crashed)" in swept.stderr) == (3, True), swept.stderr
    lines = [json.loads(line) for line in (here / "run" / "outputs.jsonl").read_text().splitlines()]
    assert [line.get("output") for line in lines if line["case"] == "good"] == [[str(conf / "agent.py")]] * 3
    assert all("crashed: the function ended its process with exit code 0" in line["error"] for line in lines[3:])


def test_a_call_without_an_answer_is_incomplete(service: tuple[Agent, str], tmp_path: Path, server: Server) -> None:
    """Exit 3; a failure that no retry mends is not tried again; and the fleet's server holds the pool meanwhile."""
    _file(tmp_path, service[1])
    prompt = json.dumps({"do": "leak", "status": 401})
    done = evalq("targets", "chat", "--targets", "targets.yaml", "--try", prompt, "--broker", server.url,
                 cwd=tmp_path, MY_KEY=SECRET)  # fmt: skip
    assert done.returncode == 3
    assert "auth" in done.stdout
    assert "0 of 1 call answered, 1 attempt" in done.stdout
    assert done.stderr == "evalq: no answer to 1 of 1 call, for the reasons above\n"
    assert SECRET not in done.stdout
    assert 0 < server.client.pttl(RateLimitKeys.of("chat").state) <= 3_600_000


def test_retries_follow_the_policy(service: tuple[Agent, str], tmp_path: Path, server: Server) -> None:
    """As many as the kind's rule says, every attempt kept; a cut connection and a 429 are counted apart."""
    named = load_targets(_file(tmp_path, service[1]))["chat"]
    day = {"do": "raw", "status": 429, "body": "{}", "headers": {"retry-after": "86400"}}
    orders = [{"do": "cut"}, {"do": "cut", "times": 2}, {"do": "raw", "status": 429, "body": "{}", "times": 3}, day]

    async def all_of() -> list[list[Answered | Failure]]:
        async with (
            Caller(named, {"MY_KEY": SECRET}) as caller,
            RateLimiter(server.client, "chat", limits_of(named)) as pacer,
        ):
            calls = [call_paced(caller, pacer, Call(json.dumps(order))) for order in orders]
            return list(await asyncio.gather(*calls))

    cut, mended, limited, tomorrow = asyncio.run(all_of())
    assert [type(attempt).__name__ for attempt in cut] == ["Failure"] * 4
    assert [type(attempt).__name__ for attempt in mended] == ["Failure", "Failure", "Answered"]
    assert [getattr(attempt, "kind", "ok") for attempt in limited] == ["rate_limit"] * 3 + ["ok"]
    (late,) = tomorrow
    assert isinstance(late, Failure), "nobody waits for a day"
    assert late.reason.endswith("(Retry-After: 86400 s)")


def test_pacers_share_what_is_at_once(server: Server) -> None:
    """Two holders with many callers each never have more calls at once than the limit, and all are served."""
    at_once = busiest = 0
    crowded = asyncio.Event()

    async def lane(pacer: RateLimiter) -> None:
        nonlocal at_once, busiest
        for _ in range(4):
            grant = await pacer.acquire()
            at_once += 1
            busiest = max(busiest, at_once)
            if at_once == 6:
                crowded.set()
            await crowded.wait()
            await asyncio.sleep(0.002)
            at_once -= 1
            pacer.settle(grant)

    async def both() -> None:
        limits = PoolLimits(requests_per_minute=60_000, max_concurrency=6)
        async with RateLimiter(server.client, "t", limits) as one, RateLimiter(server.client, "t", limits) as other:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(lane(pacer) for pacer in (one, other) for _ in range(15)))

    asyncio.run(both())
    assert busiest == 6, "all of the limit, and no more"
    assert server.client.hgetall(RateLimitKeys.of("t").holders) == {}, "holders that leave in good order leave nothing"


def test_a_caller_that_gives_up_gives_back(server: Server) -> None:
    """Cancelled while waiting or just granted, a call takes no room."""

    async def gave_up() -> None:
        async with RateLimiter(server.client, "t", PoolLimits(max_concurrency=1)) as pacer:
            held = await pacer.acquire()
            for _ in range(3):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await pacer.acquire()
            pacer.settle(held)
            async with asyncio.timeout(PATIENCE):
                pacer.settle(await pacer.acquire())

    asyncio.run(gave_up())


def test_a_lost_server_is_waited_for_and_then_reported(server: Server) -> None:
    """Calls wait while the server is away for a moment; away for longer, they fail with what is wrong."""

    async def away(patience: float, *, back: bool) -> None:
        async with RateLimiter(server.client, "t", PoolLimits(), patience_seconds=patience) as pacer:
            pacer.settle(await pacer.acquire())
            server.kill()
            turn = asyncio.create_task(pacer.acquire())
            if back:
                await asyncio.to_thread(server.start)
            pacer.settle(await turn)

    asyncio.run(away(30, back=True))
    with pytest.raises(BrokerUnreachable, match="the server that paces calls is lost"):
        asyncio.run(away(0.3, back=False))
    server.start()
    wait_until(lambda: server.client.ping(), "it is there for the fixture's end")
