"""Inspect's scorers as checks."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evalq.producer.importing.accepting import accepted
from evalq.producer.importing.patterns import NoCounterpart, literal, to_re2

__all__ = ["SCORERS", "NoScorer", "check_of", "inspects_own"]

Check = dict[str, Any]
Options = Mapping[str, Any]

_SPACE = r"[\t\n\v\f\r\x1c-\x1f \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*"
_AROUND = string.whitespace + string.punctuation
_PUNCTUATION = "[" + r"\t\n\v\f\r " + "".join(f"\\{sign}" for sign in string.punctuation) + "]*"
_LETTERS = r"[A-Za-z\p{Nd} ,]"
# What the model was told to write: in a line of its own, else anywhere; in bold, in dollars and in brackets, too.
_ANSWERS = (
    rf"(?:\$\s*({_LETTERS}+?)\s*\$|\*\*\s*({_LETTERS}+?)\s*\*\*|\(([A-Za-z\d])\)|({_LETTERS}+))",
    r"(?im)^ANSWER\s*:\s*{}\s*(?:$|\n|\.)",
    r"(?i)ANSWER\s*:\s*{}(?:\W|$)",
)


class NoScorer(ValueError):
    """A scorer without a counterpart; the message says why."""

    def __init__(self, reason: str, *, of_sample: bool = False) -> None:
        super().__init__(reason)
        self._of_sample = of_sample

    def place(self, scorer: str, sample: str) -> str:
        """Where the reason lies: in the scorer, or in a sample."""
        return sample if self._of_sample else scorer


def check_of(name: str, options: Options, targets: Sequence[str], sample: Mapping[str, Any]) -> Check:
    """The check that a scorer of Inspect is for a sample with these targets. Raises NoScorer."""
    own = inspects_own(name)
    make = SCORERS.get(own)
    if make is None:
        why = "it is no scorer of Inspect's own: write a check of your own"
        raise NoScorer(_REASONS.get(own, why))
    if not any(targets):
        raise NoScorer("without a target it scores nothing", of_sample=True)
    try:
        check = make(options, targets, sample)
        accepted(check)
        return check
    except NoCounterpart as error:
        raise NoScorer(str(error)) from None


def inspects_own(name: str) -> str:
    """The name of one of Inspect's own scorers without its package; "" for a scorer of another package.

    The registry's name of those has its package before it; Inspect leaves its own out (registry_log_name).
    """
    package, _, bare = name.rpartition("/")
    return bare if package in ("", "inspect_ai") else ""


def _includes(options: Options, targets: Sequence[str], sample: Mapping[str, Any]) -> Check:
    if not all(targets):
        raise NoScorer("an empty target is in every answer", of_sample=True)
    check: Check = {"contains": targets[0]} if len(targets) == 1 else {"contains-any": list(targets)}
    return check | ({"ignore-case": True} if options.get("ignore_case", True) else {})


def _match(options: Options, targets: Sequence[str], sample: Mapping[str, Any]) -> Check:
    if options.get("numeric"):
        raise NoScorer("it normalises numbers by rules of its own; the check `number` has other ones")
    location = str(options.get("location", "end"))
    patterns = []
    for target in targets:
        bare = target.strip().strip(_AROUND)
        if not bare:
            raise NoScorer("of its target nothing is left without punctuation", of_sample=True)
        patterns.append("".join(map(literal, bare)))
    wanted = patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"
    before, after = f"^{_SPACE}{_PUNCTUATION}", f"{_PUNCTUATION}{_SPACE}$"
    whole = {
        "begin": f"{before}{wanted}",
        "end": f"{wanted}{after}",
        "any": wanted,
        "exact": f"{before}{wanted}{after}",
    }
    if location not in whole:
        raise NoScorer(f"a location that is not known: {location[:40]}")
    return {"regex": whole[location]} | ({"ignore-case": True} if options.get("ignore_case", True) else {})


def _pattern(options: Options, targets: Sequence[str], sample: Mapping[str, Any]) -> Check:
    if options.get("match_all"):
        raise NoScorer("all of its groups have to be the target: the check `captures` asks for one of them")
    pattern = to_re2(str(options.get("pattern", "")), "python")
    ignore = options.get("ignore_case", True)
    check: Check = {"captures": f"(?i){pattern}" if ignore else pattern, "is": list(targets)}
    return check | ({"ignore-case": True} if ignore else {})


def _choice(options: Options, targets: Sequence[str], sample: Mapping[str, Any]) -> Check:
    letters = [letter for target in targets for letter in target.replace(",", " ").split()]
    if len(letters) != 1 or len(letters[0]) != 1 or not letters[0].isalpha():
        raise NoScorer("several choices are right: the check `captures` compares with one answer", of_sample=True)
    alternatives, *forms = _ANSWERS
    patterns = [form.replace("{}", alternatives) for form in forms]
    return {"captures": patterns, "is": letters[0], "which": "last", "ignore-case": True, "trim": True}


SCORERS: Mapping[str, Callable[[Options, Sequence[str], Mapping[str, Any]], Check]] = {
    "includes": _includes,
    "match": _match,
    "pattern": _pattern,
    "choice": _choice,
}
"""By Inspect's name."""

_REASONS = {
    "exact": "it normalises articles, case and punctuation by rules of its own; see the check `equals`",
    "f1": "it normalises words by rules of its own",
    "answer": "it takes the answer by a pattern of Inspect's own: use the check `captures`",
    "math": "it compares mathematical expressions",
    "model_graded_qa": "a model judges: write a check rubric, factual or score",
    "model_graded_fact": "a model judges: write a check rubric, factual or score",
    "multi_scorer": "several models judge: write a check rubric, factual or score",
    "perplexity": "evalq records no probabilities of tokens",
}
