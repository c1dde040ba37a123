"""The kinds of targets, a module each: add one here, and it can be named in a targets file."""

from evalq.workers.targets.kinds.command import CommandTarget
from evalq.workers.targets.kinds.http import HttpTarget
from evalq.workers.targets.kinds.openai import OpenAiTarget
from evalq.workers.targets.kinds.python import PythonTarget
from evalq.workers.targets.target import Target

__all__ = ["MODELS"]

MODELS: dict[str, type[Target]] = {
    "http": HttpTarget,
    "openai": OpenAiTarget,
    "command": CommandTarget,
    "python": PythonTarget,
}
"""By the name that ``kind`` gives."""
