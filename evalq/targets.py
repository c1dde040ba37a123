"""What a kind of target of a package is made of: see docs/how-to/add-a-kind-of-target.md."""

from evalq.evalcore.records.answers import BadAnswer, Envelope, read_envelope
from evalq.workers.targets.answers import Answered, Call, Failure, answered
from evalq.workers.targets.conformance import TargetConformanceError, check_target
from evalq.workers.targets.http import Headers, PostingClient, Url, Urls, bad_reply, secrets_of, shown
from evalq.workers.targets.target import Client, ParameterTarget, RequestTarget, Target

__all__ = [
    "Answered",
    "BadAnswer",
    "Call",
    "Client",
    "Envelope",
    "Failure",
    "Headers",
    "ParameterTarget",
    "PostingClient",
    "RequestTarget",
    "Target",
    "TargetConformanceError",
    "Url",
    "Urls",
    "answered",
    "bad_reply",
    "check_target",
    "read_envelope",
    "secrets_of",
    "shown",
]
