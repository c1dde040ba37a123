"""The prompt for a language model that scores the same rows, as a judge on a target."""

from __future__ import annotations

from importlib.resources import files

from evalq.evalcore.evaluators.planagent.texts import LANGUAGES

__all__ = ["judge_prompt"]


def judge_prompt(lang: str) -> str:
    """The prompt in ``lang`` ("ko" or "en"), after the seed's section 5. Raises ValueError for another language."""
    if lang not in LANGUAGES:
        raise ValueError(f"no prompt in {lang!r}; there are: {', '.join(LANGUAGES)}")
    return files(__package__).joinpath(f"prompt.{lang}.md").read_text(encoding="utf-8")
