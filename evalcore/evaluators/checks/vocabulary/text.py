"""Checks of an answer's text: what it is, contains, begins and ends with, matches, and how long it is."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from evalq.evalcore.evaluators.checks.answer import Answer, Form, plain
from evalq.evalcore.evaluators.checks.likeness import same_json
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck, Finding, Kind, Made, holds
from evalq.evalcore.evaluators.checks.vocabulary.patterns import compiled
from evalq.evalcore.records.extract import NoJson

__all__ = ["KINDS", "Normal", "quoted"]

_SHOWN = 1000

Text = Annotated[str, msgspec.Meta(min_length=1)]
Texts = Annotated[list[Text], msgspec.Meta(min_length=1)]
Length = Annotated[int, msgspec.Meta(ge=0)]


Normal = Annotated[
    Form, msgspec.Meta(description="the normal form of Unicode in which both are compared: `é` is one sign or two")
]


class EqualsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """How texts are compared; data is compared as JSON, numbers by value."""

    ignore_case: Annotated[bool, msgspec.Meta(description="upper and lower case are one")] = False
    trim: Annotated[bool, msgspec.Meta(description="white space around the answer does not count")] = False
    normalize: Normal = "none"


class CaseOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Whether case counts, and in which form texts are compared."""

    ignore_case: Annotated[bool, msgspec.Meta(description="upper and lower case are one")] = False
    normalize: Normal = "none"


class RegexOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """How a pattern is read."""

    ignore_case: Annotated[bool, msgspec.Meta(description="upper and lower case are one")] = False
    dotall: Annotated[bool, msgspec.Meta(description="a dot matches a line feed, too")] = False


class LengthOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What is counted."""

    unit: Annotated[Literal["characters", "words", "lines"], msgspec.Meta(description="what is counted")] = "characters"


def quoted(text: str) -> str:
    """A text in a sentence."""
    return f'"{text}"'


def listed(texts: list[str]) -> str:
    """Texts in a sentence."""
    return ", ".join(map(quoted, texts))


def _equals(value: Any, options: EqualsOptions) -> Made:
    if isinstance(value, str):
        wanted = plain(value, options.ignore_case, options.normalize)
        if options.trim:
            wanted = wanted.strip()

        def run(answer: Answer) -> Finding:
            text = answer.plain(options.ignore_case, options.normalize)
            return holds((text.strip() if options.trim else text) == wanted, answer.text)

        return Made(quoted(value), run)
    given = {"ignore-case": options.ignore_case, "trim": options.trim, "normalize": options.normalize != "none"}
    # They would be passed over: data is compared by value, where case and white space always count.
    if wrong := next((name for name, there in given.items() if there), ""):
        raise BadCheck("goes with a text only", wrong)

    def run_json(answer: Answer) -> Finding:
        try:
            return holds(same_json(answer.json, value), answer.text)
        except NoJson as error:
            # No `Unfit`: an answer without JSON is not this data, and that is what `not-equals` asks.
            return holds(False, str(error))

    return Made(msgspec.json.encode(value).decode(), run_json)


def _searching(all_of: bool, folded: bool) -> Any:
    def make(value: list[str], options: CaseOptions) -> Made:
        ignore = folded or options.ignore_case
        wanted = [plain(text, ignore, options.normalize) for text in value]
        verb = "all of" if all_of else "any of"

        def run(answer: Answer) -> Finding:
            text = answer.plain(ignore, options.normalize)
            # Told as the file has them, compared as they are folded.
            missing = [given for given, sought in zip(value, wanted, strict=True) if sought not in text]
            fine = not missing if all_of else len(missing) < len(value)
            return holds(fine, f"without {listed(missing)}: {answer.text}" if missing and all_of else answer.text)

        return Made(f"{verb} {listed(value)}", run)

    return make


def _containing(folded: bool) -> Any:
    def make(value: str, options: CaseOptions) -> Made:
        ignore = folded or options.ignore_case
        wanted = plain(value, ignore, options.normalize)

        def run(answer: Answer) -> Finding:
            return holds(wanted in answer.plain(ignore, options.normalize), answer.text)

        return Made(quoted(value), run)

    return make


def _edge(end: bool) -> Any:
    def make(value: str, options: CaseOptions) -> Made:
        wanted = plain(value, options.ignore_case, options.normalize)

        def run(answer: Answer) -> Finding:
            text = answer.plain(options.ignore_case, options.normalize)
            return holds(text.endswith(wanted) if end else text.startswith(wanted), answer.text)

        return Made(quoted(value), run)

    return make


def _regex(value: str, options: RegexOptions) -> Made:
    pattern = compiled(value, ignore_case=options.ignore_case, dotall=options.dotall)

    def run(answer: Answer) -> Finding:
        found = pattern.search(answer.encoded)
        if found is None:
            return holds(False, answer.text)
        # Cut by bytes, which may end within a character.
        return holds(True, quoted(found.group()[:_SHOWN].decode(errors="ignore")))

    return Made(value, run)


def _counted(text: str, unit: str) -> int:
    # Code points: `normalize` is for comparing, so that a decomposed é is two here.
    if unit == "characters":
        return len(text)
    return len(text.split()) if unit == "words" else len(text.splitlines())


def _length(most: bool) -> Any:
    def make(value: int, options: LengthOptions) -> Made:
        unit = options.unit

        def run(answer: Answer) -> Finding:
            found = _counted(answer.text, unit)
            return holds(found <= value if most else found >= value, f"{found} {unit}")

        return Made(f"at {'most' if most else 'least'} {value} {unit}", run)

    return make


KINDS = (
    Kind(
        name="equals",
        summary="The answer is this text, or this data: then as JSON, keys in any order, numbers by value.",
        value=Any,
        options=EqualsOptions,
        make=_equals,
        example={"equals": "Paris", "ignore-case": True},
    ),
    Kind(
        name="contains",
        summary="The text occurs in the answer.",
        value=Text,
        options=CaseOptions,
        make=_containing(folded=False),
        example={"contains": "hello"},
    ),
    Kind(
        name="icontains",
        summary="The text occurs in the answer, whatever its case.",
        value=Text,
        options=CaseOptions,
        make=_containing(folded=True),
        example={"icontains": "hello"},
    ),
    Kind(
        name="contains-any",
        summary="One of the texts, at least, occurs in the answer.",
        value=Texts,
        options=CaseOptions,
        make=_searching(all_of=False, folded=False),
        example={"contains-any": ["hello", "hi"]},
    ),
    Kind(
        name="contains-all",
        summary="Every one of the texts occurs in the answer.",
        value=Texts,
        options=CaseOptions,
        make=_searching(all_of=True, folded=False),
        example={"contains-all": ["name", "date"]},
    ),
    Kind(
        name="starts-with",
        summary="The answer begins with the text.",
        value=Text,
        options=CaseOptions,
        make=_edge(end=False),
        example={"starts-with": "Dear"},
    ),
    Kind(
        name="ends-with",
        summary="The answer ends with the text.",
        value=Text,
        options=CaseOptions,
        make=_edge(end=True),
        example={"ends-with": "."},
    ),
    Kind(
        name="regex",
        summary="The pattern, in RE2's syntax, matches somewhere in the answer. It takes linear time; `$` is the end.",
        value=Text,
        options=RegexOptions,
        make=_regex,
        example={"regex": r"^\d+$"},
    ),
    Kind(
        name="min-length",
        summary="The answer is at least so long.",
        value=Length,
        options=LengthOptions,
        make=_length(most=False),
        example={"min-length": 3, "unit": "words"},
    ),
    Kind(
        name="max-length",
        summary="The answer is at most so long.",
        value=Length,
        options=LengthOptions,
        make=_length(most=True),
        example={"max-length": 280},
    ),
)
