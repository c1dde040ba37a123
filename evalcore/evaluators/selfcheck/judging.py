"""What a judge is asked about a completion report: each thing that it says is done, with the evidence handed in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.contract.claims import CLAIMS_REPLY, ClaimsJudge
from evalq.evalcore.evaluators.selfcheck.record import read_record
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.records.asking import Task
from evalq.evalcore.records.objects import RecordFault

__all__ = ["JUDGE"]

TASK = Task(
    """You check an agent's report that a task is done. It has the claims of the report and the evidence that was handed
in with it. For each claim (each requirement said to be met, that the tests passed, each assumption said to be verified)
look for the words of the evidence that show it: output of a command, a diff, content of a file. A sentence in which the
agent says that something is so is a claim, and shows nothing.

- supported: the evidence shows the claim. Quote it.
- contradicted: the evidence shows that the claim is wrong: a failure, another number, another file. Quote it.
- absent: nothing in the evidence shows the claim, or what is there is of something else.

The claims:
{claims}

The evidence:
{evidence}
""",
    CLAIMS_REPLY,
    ("claims", "evidence"),
    (),
)


def _texts(given: Mapping[str, Any]) -> dict[str, str] | None:
    """The claims as JSON; the evidence as text, piece by piece."""
    try:
        read = read_record(given).evidence
    except RecordFault:
        return None
    claims = {"testsPassed": read.testsPassed, "requirements": read.requirementsList, "assumptions": read.assumptions}
    parts = [f"Test output:\n{read.testOutput}"] if read.testOutput else []
    parts += [f"Evidence ({item['type']}):\n{item['content']}" for item in read.evidence or ()]
    parts += [f"Change of {item['file']}:\n{item['diff']}" for item in read.codeChanges or ()]
    return {"claims": canonical_json(claims).decode(), "evidence": "\n\n".join(parts)}


JUDGE = ClaimsJudge(TASK, _texts, "evidence")
