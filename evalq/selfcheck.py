"""The self check itself, with questions and signals of one's own: see docs/reference/evaluators/selfcheck.md."""

from evalq.evalcore.evaluators.selfcheck import (
    DangerSignal,
    Evidence,
    SelfCheckProtocol,
    SelfCheckQuestion,
    SelfCheckResult,
    create_default_self_check_protocol,
    create_self_check_protocol,
)

__all__ = [
    "DangerSignal",
    "Evidence",
    "SelfCheckProtocol",
    "SelfCheckQuestion",
    "SelfCheckResult",
    "create_default_self_check_protocol",
    "create_self_check_protocol",
]
