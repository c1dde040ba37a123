"""Looks at a baseline are counted once each, wherever they are counted, and what they spend sums to one error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import evalq
from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.spending import Errors, GateLook, baseline_digest
from evalq.evalcore.errors import UsageError, WireError
from evalq.producer.comparing.baselines import Baselines
from evalq.producer.comparing.gate_record import GateRecord, Looks, looks_of
from evalq.producer.servers import Servers
from evalq.workers.ledger.keys import SHARED, LookKeys
from evalq.workers.settings import Settings
from tests.integration.harness import Server, running_server
from tests.unit.comparing.conftest import Command, Made

POLICY = "{gates: [{metric: verification.pass_rate, max_drop: 0.1}], deterministic: true}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server")) as one:
        yield one


@pytest.fixture(params=["folder", "ledger"])
def looks(request: pytest.FixtureRequest, here: Path, server: Server) -> Iterator[Looks]:
    """Both places where they are counted."""
    with Servers(Settings(broker=server.url if request.param == "ledger" else "")) as servers:
        yield looks_of(servers)


def test_all_looks_together_spend_one_error() -> None:
    """However many: .025 for NO-GO over all of them, .0375 for GO over all answers of one candidate."""
    many = range(1, 20_000)
    assert sum(GateLook(k).errors.no_go for k in many) == pytest.approx(0.025, abs=1e-5)
    assert sum(GateLook(1, r).errors.go for r in many) == pytest.approx(0.0375, abs=1e-5)
    assert GateLook(1).errors == Errors(0.0125, 0.025)
    assert GateLook(3, 2).errors[:2] == pytest.approx((0.025 / 12, 0.00625))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=some.lists(some.tuples(some.sampled_from("abc"), some.sampled_from("xyz"), some.booleans()), max_size=25))
def test_both_places_count_alike(
    steps: list[tuple[str, str, bool]], here: Path, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """And as this says: a number for each new answer, none for what was stopped, the first reason stands."""
    place = tmp_path_factory.mktemp("count").name
    numbers: dict[tuple[str, str], tuple[int, int]] = {}
    stopped: dict[str, str] = {}
    with Servers(Settings(broker=server.url)) as servers:
        both = (looks_of(Servers(Settings())), looks_of(servers))
        for who, answers, stops in steps:
            draws = sum(one == who for one, _ in numbers)
            look = numbers.get((who, answers), (len(numbers) + 1, draws + 1))
            if who not in stopped:
                numbers[who, answers] = look
            for verb in ("peek", "peek", "take"):  # to read a look's number is not to take it
                found = [getattr(each, verb)(place, who, answers) for each in both]
                assert found == [GateLook(*look, stopped.get(who, ""))] * 2
            if stops:
                stopped.setdefault(who, answers)
            assert [each.settle(place, who, answers if stops else "") for each in both] == [stopped.get(who, "")] * 2


def test_a_default_that_is_written_down_is_the_same_demand() -> None:
    """As is a key that a later version adds."""
    gate = {"metric": "vs.pass_rate", "max_drop": 0.1}
    policies = [Policy.model_validate(each) for each in ({"gates": [gate]}, {"gates": [gate], "worse_cases": "none"})]
    assert len({baseline_digest(each, []) for each in policies}) == 1
    assert baseline_digest(policies[0].model_copy(update={"missing": 1}), []) != baseline_digest(policies[0], [])


def test_a_candidate_that_a_confirmation_stopped_is_stopped_at_its_first_look(looks: Looks) -> None:
    """Confirmations count elsewhere, and share what they stop."""
    assert looks.settle("confirmed", "one", "why") == "why"
    assert looks.take("confirmed", "one", "other answers") == GateLook(1, 1, "why")
    assert looks.take("confirmed", "two", "answers") == GateLook(1, 1, "")


def test_looks_of_one_instant_have_numbers_of_their_own(looks: Looks) -> None:
    """Twenty candidates at once, each asked for twice."""
    with ThreadPoolExecutor(20) as pool:
        taken = list(pool.map(lambda n: looks.take("place", f"c{n % 20}", "answers"), range(40)))
    assert sorted(look.number for look in taken) == sorted([*range(1, 21)] * 2)
    assert {look.draw for look in taken} == {1}


def test_a_count_that_cannot_be_kept_is_no_decision(made: Made, here: Path, command: Command) -> None:
    """A damaged one is said with its path; nothing is decided then."""
    base, run = (str(made(name, [(f"t{n}", True) for n in range(80)])) for name in ("base", "run"))
    (here / "policy.yaml").write_text(POLICY)
    gate = ("gate", run, "--policy", "policy.yaml", "--baseline", "main")
    assert command("baseline", "set", "main", base).code == 0
    assert command(*gate).code == 0
    (count,) = (here / "evalq-baselines" / ".looks").glob("*.json")
    count.write_text("{")
    ended = command(*gate)
    assert ended.code == 3
    assert f"{count.relative_to(here)} is damaged" in ended.stderr
    assert json.loads(command("baseline", "list", "--json").stdout).keys() == {"main"}


def test_a_stopped_candidate_stays_so_and_others_go(made: Made, here: Path, command: Command) -> None:
    """Other answers of it decide nothing, until another run is approved; the same answers are the same look."""
    good, bad = ([(f"t{n}", n >= failed) for n in range(80)] for failed in (0, 30))
    base, worse = str(made("base", good)), str(made("worse", bad))
    better = str(made("better", [(f"t{n}", n != 7) for n in range(80)]))
    (here / "policy.yaml").write_text(POLICY)
    assert command("baseline", "set", "main", base).code == 0

    def gate(run: str, candidate: str) -> tuple[int, str]:
        done = command("gate", run, "--policy", "policy.yaml", "--baseline", "main", "--candidate", candidate, "--json")
        decision = json.loads(done.stdout)
        return done.code, f"{decision['look']['number']} {decision['look']['draw']} {decision['decided']}"

    assert gate(worse, "0a1b") == (1, "1 1 NO-GO")
    assert gate(worse, "0a1b") == (1, "1 1 NO-GO")
    for _ in range(10):
        assert gate(better, "0a1b") == (1, "2 2 NO-GO")
    assert gate(better, "2c3d") == (0, "2 1 GO")
    assert gate(worse, "2c3d") == (1, "3 2 NO-GO"), "a candidate that may go can still be stopped"
    assert command("baseline", "set", "main", worse).code == 0
    assert gate(better, "0a1b") == (0, "1 1 GO")


def test_what_cannot_be_decided_spends_no_look(made: Made, here: Path, command: Command) -> None:
    """A policy about a metric that there is not: the first look is the one after it is mended."""
    base, run = (str(made(name, [(f"t{n}", True) for n in range(80)])) for name in ("base", "run"))
    assert command("baseline", "set", "main", base).code == 0
    looks = looks_of(Servers(Settings()))
    for metric, code in (("verification.nothing", 2), ("verification.pass_rate", 0)):
        policy = Policy.model_validate({"gates": [{"metric": metric, "max_drop": 0.1}], "deterministic": True})
        (here / "policy.yaml").write_text(policy.model_dump_json(exclude_defaults=True))
        done = command("gate", run, "--policy", "policy.yaml", "--baseline", "main", "--json")
        assert done.code == code, done.stderr
        assert looks.count(baseline_digest(policy, Baselines(Servers(Settings())).known("main"))) == (code == 0)


def test_a_number_that_another_took_meanwhile_is_decided_again(here: Path) -> None:
    """The decision that counts is by the errors of the look that was counted."""
    policy = Policy.model_validate({"gates": [{"metric": "verification.pass_rate", "max_drop": 0.1}]})
    servers, seen = Servers(Settings()), list[int]()

    def decide(look: GateLook) -> GateDecision:
        seen.append(look.number)
        if len(seen) == 1:
            GateRecord(policy, [], {}, servers, "another commit").look()
        return GateDecision("GO", (), (), (), "main")

    _, look = GateRecord(policy, [], {}, servers, "this commit").decided(decide)
    assert (seen, look.number) == ([1, 2], 2)


def test_a_candidate_that_is_no_text_is_refused_by_name(made: Made, here: Path, command: Command) -> None:
    """As Python may have one; on a command line there is none."""
    base, run = (made(name, [(f"t{n}", True) for n in range(80)]) for name in ("base", "run"))
    assert command("baseline", "set", "main", str(base)).code == 0
    policy = {"gates": [{"metric": "verification.pass_rate", "max_drop": 0.1}]}
    with pytest.raises(UsageError, match=r"candidate: .*is not UTF-8"):
        evalq.gate(run, policy, baseline="main", candidate="\ud800")


@pytest.mark.parametrize(("field", "value"), [("count", "-1"), ("count", "x"), ("look c a", "0 0"), ("draws c", "-3")])
def test_a_count_in_the_ledger_that_nobody_counted_is_damaged(field: str, value: str, server: Server) -> None:
    """Said with the key to delete, and no division by zero."""
    with Servers(Settings(broker=server.url)) as servers:
        looks = looks_of(servers)
        key = LookKeys.of(f"{field} {value}").looks
        server.client.hset(key, field, value)
        with pytest.raises(WireError, match=f"{re.escape(key)} in the ledger"):
            looks.take(f"{field} {value}", "c", "a")
        if field == "count":
            with pytest.raises(WireError, match=re.escape(key)):
                looks.count(f"{field} {value}")


def test_a_garbled_baseline_in_the_ledger_is_said_by_name(server: Server, here: Path) -> None:
    """With what to do about it."""
    server.client.sadd(SHARED.baselines, "garbled")
    server.client.hset(SHARED.baseline + "garbled", "verification", b"\x00no frame")
    with Servers(Settings(broker=server.url)) as servers, pytest.raises(WireError) as caught:
        Baselines(servers).known("garbled")
    assert "the baseline garbled in the ledger is damaged at 'verification'" in str(caught.value)
    assert "evalq baseline set garbled RUN" in str(caught.value)


def test_a_reason_that_is_no_utf_8_stops_a_candidate_all_the_same(looks: Looks) -> None:
    """As a name of a file may be, which a reason quotes."""
    said = looks.settle("confirmed", "odd", "run x\udcff: worse")
    assert said.startswith("run x")
    assert looks.take("confirmed", "odd", "answers").stop_reason == said
    assert looks.settle("confirmed", "odd", "another reason") == said
