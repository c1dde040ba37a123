"""What a fault is, and the registry of them.

A new one is a subclass of Fault in a module that tests/chaos/faults/__init__.py imports. All of its methods but
`strike` have defaults; `Stage` (below) is what it may touch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tests.chaos.clocks import Clock
from tests.chaos.network import Network, unavailable
from tests.chaos.processes import ChaosServer, Group
from tests.chaos.recovery import Meter, View
from tests.chaos.subjects import Subject
from tests.integration.rabbitmq import Rabbit


class Stage(Protocol):
    """A run under test, as faults see it."""

    server: ChaosServer
    view: View
    net: Network | None
    subject: Subject
    extra: dict[str, str]
    folder: Path

    @property
    def lease_seconds(self) -> float:
        """How long a silent worker keeps a chunk; 0 where there are no leases."""

    def workers(self) -> list[Group]:
        """Workers whose main process lives and is not stopped."""

    def producer(self) -> Group | None:
        """The producer, while it lives."""

    def hurt(self, fault: str, held: set[int] | None = None) -> Meter:
        """Note that a fault has just struck, and measure the recovery. ``held``: chunks the victim was computing."""

    def later(self, condition: Callable[[], bool], action: Callable[[], Any], *, at_the_end: bool = True) -> None:
        """Do ``action`` when ``condition`` holds, or (unless not ``at_the_end``) when the run has ended before."""

    def give_clocks(self) -> None:
        """Before anything is started: every process gets a wall clock that can be set."""

    def use_rabbit(self) -> Rabbit:
        """Before anything is started: RabbitMQ carries the messages, and the server keeps the ledger only."""

    def clock(self, name: str) -> Clock:
        """The clock of the server ("server") or of a group, by its name."""

    def add_twin(self, chunk_size: int = 0) -> None:
        """Start a second producer of the same key; with a ``chunk_size``, of another plan."""

    def add_sick_worker(self) -> None:
        """Start a worker that cannot load the run's evaluator."""

    def kill_agent(self) -> None:
        """The agent that a sweep calls dies."""

    def revive_agent(self) -> None:
        """It is there again, at the same address."""

    def arm(self, point: str, role: str, whom: str) -> Callable[[], bool]:
        """Arm a kill point for one process of a role; ``whom`` is "self" or "group". Returns whether it has fired."""


class Fault:
    """One kind of harm. Instances hold no state: a scenario may draw the same fault twice."""

    name: ClassVar[str]
    needs_aof: ClassVar[tuple[str, ...]] = ()
    """Settings of the append-only file it makes sense under; empty: all."""
    needs_network: ClassVar[bool] = False
    """Whether it needs hosts of their own (then the whole scenario has them)."""
    naive: ClassVar[bool] = True
    """Whether the naive set-up can be hurt by it too."""
    sweeps: ClassVar[bool] = True
    """Whether it can strike a live sweep while its calls are made."""
    runs: ClassVar[bool] = True
    """Whether it can strike a run over chunks."""
    on_rabbit: ClassVar[bool] = False
    """Whether it hurts RabbitMQ, which then is the scenario's broker."""
    beside_rabbit: ClassVar[bool] = True
    """Whether it can strike where RabbitMQ is the broker: not what hurts a queue in Redis, or needs other hosts."""
    by_progress: ClassVar[bool] = False
    """Whether it strikes only when the run comes to a certain step, some time after `strike`."""
    weight: ClassVar[int] = 2

    def lacks(self) -> str:
        """What this machine does not have and the fault needs; empty when it can strike here."""
        return unavailable() if self.needs_network else ""

    def prepare(self, stage: Stage, rng: random.Random) -> None:
        """Before anything is started: may change what is run, and what it is compared with.

        ``stage.subject`` is the input and its calm run, ``stage.extra`` the environment of all processes under test.
        """

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Do it. False when there was nothing to hurt at this moment: it is then tried again."""
        raise NotImplementedError

    def armed(self, stage: Stage, fired: Callable[[], bool]) -> bool:
        """It strikes when ``fired``: the recovery is measured from then on, and not at all where that never comes."""

        def note() -> None:
            if fired():
                stage.hurt(self.name)

        stage.later(fired, note)  # at the end, too: the run may have come there in its last moment
        return True


FAULTS: dict[str, Fault] = {}


def register(kind: type[Fault]) -> type[Fault]:
    """Make a fault one that scenarios draw."""
    assert kind.name not in FAULTS, f"two faults are called {kind.name}"
    FAULTS[kind.name] = kind()
    return kind
