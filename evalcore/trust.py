"""Who may choose the programs that evalq runs, the servers it calls, the keys it sends and the files it reads.

The user of the machine chooses, on the command line and in the machine's settings. A folder, a file or a message may
come from anybody, so it chooses at most files in its own folder. All callers ask `allows`; `SECURITY.md` prints the
table.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from evalq.evalcore.errors import UsageError


class Writer(enum.Enum):
    """Where a value comes from, and so who wrote it."""

    COMMAND_LINE = "command line"
    SETTINGS = "settings"
    RUN_FOLDER = "run folder"
    SUITE = "suite"
    CASES_FILE = "cases file"
    IMPORT = "import"
    LEDGER = "ledger"
    MESSAGE = "message"
    REQUEST = "request"
    ANSWER = "answer"
    JUDGE_REPLY = "judge reply"


class Thing(enum.Enum):
    """A thing to choose: a program or function to run, a server to call, a key to send, a file, a variable to read."""

    PROGRAM = "program"
    HOST = "host"
    KEY = "key"
    PATH = "path"
    VARIABLE = "environment variable"


class Reach(enum.Enum):
    """How freely a writer may choose a thing."""

    ANY = "any"
    WITHIN = "within"
    NONE = "none"


class WriterRow(NamedTuple):
    """The reach of one writer for each thing, and ``within`` which folders its paths must be."""

    program: Reach
    host: Reach
    key: Reach
    path: Reach
    variable: Reach
    within: str = ""

    def reach(self, thing: Thing) -> Reach:
        """The writer's reach for ``thing``."""
        reach: Reach = getattr(self, thing.name.lower())
        return reach


_USER = WriterRow(Reach.ANY, Reach.ANY, Reach.ANY, Reach.ANY, Reach.ANY)
_NOBODY = WriterRow(Reach.NONE, Reach.NONE, Reach.NONE, Reach.NONE, Reach.NONE)
TABLE: Mapping[Writer, WriterRow] = {
    Writer.COMMAND_LINE: _USER,
    Writer.SETTINGS: _USER,
    Writer.RUN_FOLDER: _NOBODY._replace(
        path=Reach.WITHIN,
        within="its own folder, the current one, what was named when the run began here, `roots`",
    ),
    Writer.SUITE: _NOBODY._replace(path=Reach.WITHIN, within="the suite's folder, the current one, `roots`"),
    Writer.CASES_FILE: _NOBODY._replace(
        path=Reach.WITHIN, within="its own folder; by `{agent}` that of the targets file, by a goal `--root`"
    ),
    Writer.IMPORT: _NOBODY._replace(path=Reach.WITHIN, within="the source's folder, all with `--anywhere`"),
    Writer.LEDGER: _NOBODY._replace(path=Reach.WITHIN, within="the worker's `roots`"),
    Writer.MESSAGE: _NOBODY,
    Writer.REQUEST: _NOBODY._replace(path=Reach.WITHIN, within="the folder of the worker's `--submit`"),
    Writer.ANSWER: _NOBODY,
    Writer.JUDGE_REPLY: _NOBODY,
}

WRITERS: Mapping[Writer, str] = {
    Writer.COMMAND_LINE: "what is typed on the machine, or given to the Python API there",
    Writer.SETTINGS: "the machine's EVALQ_* variables, its settings file, and the targets file that either names",
    Writer.RUN_FOLDER: "writer of a run folder: run.json, sweep.json and all else in it, also as a CI artifact",
    Writer.SUITE: "writer of a suite file, as in a pull request",
    Writer.CASES_FILE: "writer of a cases file, a golden set, an experiment's configuration, or other inputs",
    Writer.IMPORT: "writer of what `evalq import` reads; a proposed target is called when its user names that file",
    Writer.LEDGER: "anyone who may write the ledger",
    Writer.MESSAGE: "anyone who may put messages into a queue",
    Writer.REQUEST: "anyone who may send the Celery task `evalq.submit`, where a worker has `--submit`",
    Writer.ANSWER: "the agent under test, and its server",
    Writer.JUDGE_REPLY: "the judge, and its server",
}


KEY_VARIABLES: Mapping[str, str] = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
}
"""{provider: the one variable that its key is read from}, for a target that the command line names without a file."""


def allows(
    writer: Writer, thing: Thing, value: str | os.PathLike[str] = "", within: Iterable[str | os.PathLike[str]] = ()
) -> bool:
    """Whether ``writer`` may choose ``value`` for ``thing``; a path must lead into one of the folders ``within``.

    It follows links, so that the file that would be opened counts.
    """
    reach = TABLE[writer].reach(thing)
    if reach is not Reach.WITHIN:
        return reach is Reach.ANY
    try:
        real = Path(os.path.realpath(value))
        return any(real.is_relative_to(os.path.realpath(folder)) for folder in within)
    except (ValueError, OSError):  # a zero byte, a name that is too long
        return False


def refuse(
    writer: Writer, thing: Thing, value: str, where: str, then: str, within: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Raise UsageError if ``writer`` may not choose ``value``: say ``where`` it is, and what to do ``then``."""
    if not allows(writer, thing, value, within):
        raise UsageError(f"{where}: a {writer.value} does not choose the {thing.value} {value}; {then}")
