"""The commands of evalq, a module for each group of them; imported when one of them is called."""

from __future__ import annotations

__all__ = ["MODULES", "SUMMARIES"]

SUMMARIES = {
    "run": "Several evaluations from one file, one run each.",
    "demo": "Everything on sample data made on the spot.",
    "list": "Runs in ./evalq-runs, and in the ledger with --broker.",
    "status": "How a run (the latest, if none is named) stands.",
    "watch": "Wait for a run (the latest, if none is named) and show its report.",
    "resume": "Go on with a run (the latest, if none is named) that was interrupted or killed.",
    "pause": "Stop a run (the latest, if none is named) for now: workers take no more of it until it is resumed.",
    "retry": "Try again what has no result in a finished run (the latest, if none is named).",
    "cancel": "End a run for good.",
    "report": "Show or write the report of a finished run (the latest, if none is named) again.",
    "prune": "Remove runs that ended long ago: folders in ./evalq-runs and, with --broker, their part of the ledger.",
    "worker": "Serve a broker's queues.",
    "exporter": "Show a ledger and its fleet as Prometheus metrics.",
    "targets": "The agents that live calls may go to, as the targets file names them.",
    "doctor": "Find what is wrong with an installation, or with a server and its workers (--broker).",
}
"""What `evalq --help` says of each command that is no evaluation, in its order."""

MODULES = {
    name: f"evalq.producer.commands.{module}"
    for module, names in {
        "suite": ("run",),
        "demo": ("demo",),
        "listing": ("list",),
        "runs": ("status", "watch", "resume", "retry", "report"),
        "ending": ("pause", "cancel", "prune"),
        "worker": ("worker",),
        "exporter": ("exporter",),
        "targets": ("targets",),
        "doctor": ("doctor",),
    }.items()
    for name in names
}
"""The module in whose COMMANDS a command is found."""
