"""How every command ends that decided: what it writes and shows, and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from evalq.evalcore.compare.decision import Decision
from evalq.evalcore.compare.run import RunCases
from evalq.producer.comparing.outputs import write_decision
from evalq.producer.comparing.text import decision_text

__all__ = ["end", "exit_code"]


def end(
    decision: Decision, runs: Sequence[RunCases], outputs: Sequence[Path], *, as_json: bool, allow_inconclusive: bool
) -> int:
    """Write the decision on ``runs`` to ``outputs``, show it, and give the exit code.

    Raises StorageError, when it is shown and all that can be written is.
    """
    try:
        write_decision(outputs, decision, runs, allow_inconclusive=allow_inconclusive)
    finally:
        if as_json:
            click.echo(msgspec.json.encode(decision))
        else:
            click.echo(decision_text(decision), nl=False)
    return exit_code(decision, allow_inconclusive=allow_inconclusive)


def exit_code(decision: Decision, *, allow_inconclusive: bool) -> int:
    """The decision's own, or 0 where it is INCONCLUSIVE and that may pass; an incomplete run never does."""
    allowed = allow_inconclusive and decision.decided == "INCONCLUSIVE" and decision.exit_with is None
    return 0 if allowed else decision.exit_code
