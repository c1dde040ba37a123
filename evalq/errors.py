"""Every error that evalq raises on purpose: all of them are an `EvalqError`.

    try:
        run = evalq.evaluate("planagent", "results.csv")
    except evalq.errors.InputError as error:
        print(error.faults)                    # (("results.csv:3", "..."), ...)

`docs/reference/python.md` says which function raises which; ``exit_code`` is what a command ends with.
"""

from evalq.evalcore.errors import (
    AlreadyRunning,
    BrokerUnreachable,
    Cancelled,
    ConfigError,
    Divergent,
    EvalqError,
    Finished,
    Incomplete,
    InfrastructureError,
    InputChanged,
    InputError,
    Interrupted,
    NothingEvaluated,
    Paused,
    ServerRefused,
    StorageError,
    UnknownEvaluator,
    UsageError,
    WaitTimeout,
    WireError,
    WorkersLost,
)

__all__ = [
    "AlreadyRunning",
    "BrokerUnreachable",
    "Cancelled",
    "ConfigError",
    "Divergent",
    "EvalqError",
    "Finished",
    "Incomplete",
    "InfrastructureError",
    "InputChanged",
    "InputError",
    "Interrupted",
    "NothingEvaluated",
    "Paused",
    "ServerRefused",
    "StorageError",
    "UnknownEvaluator",
    "UsageError",
    "WaitTimeout",
    "WireError",
    "WorkersLost",
]
