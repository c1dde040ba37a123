"""The faults that scenarios draw from; importing a module here registers what is in it."""

from __future__ import annotations

from tests.chaos.faults import agents, clocks, company, cuts, disks, kills, messages, points, poison, rabbit, servers
from tests.chaos.faults.base import FAULTS, Fault, Stage

__all__ = [
    "FAULTS",
    "Fault",
    "Stage",
    "agents",
    "clocks",
    "company",
    "cuts",
    "disks",
    "kills",
    "messages",
    "points",
    "poison",
    "rabbit",
    "servers",
]
