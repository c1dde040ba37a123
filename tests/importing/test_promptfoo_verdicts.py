"""500 cases checked by promptfoo itself, and by evalq on what it imports of the same configuration."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from evalq.evalcore.evaluators.checks.score import ScoredOutput
from evalq.producer.importing.imported import Imported
from tests.importing import hostile
from tests.importing.environments import PROMPTFOO
from tests.importing.judged import judged
from tests.importing.record import HERE, digest

NAMED: dict[str, str] = {
    "contains-json": "promptfoo takes the first object anywhere, read as YAML; evalq the whole answer or one block",
    "is-refusal": "two lists of phrases",
}
"""Types whose notes say that they differ."""
NAMED_TEXTS: dict[str, tuple[str, ...]] = {
    "is-json": ("1e999",),
    "word-count": ("\ufeff",),
    "icontains": ("Straße",),
    "icontains-all": ("Straße",),
    "icontains-any": ("Straße",),
}
"""Types that differ on answers with one of these in them: numbers past a double, U+FEFF as white space, ß as ss."""


@pytest.fixture(scope="module")
def said() -> dict[str, dict[str, Any]]:
    """What promptfoo said, by the case's id in evalq; of exactly these tests."""
    head, *lines = map(json.loads, (HERE / "promptfoo-500.jsonl").read_text().splitlines())
    assert head == {"promptfoo": PROMPTFOO, "config_sha256": digest(hostile.config())}, "record anew: make importers"
    assert len(lines) == hostile.CASES
    return {line["case"].replace(" ", "-"): line for line in lines}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Imported, list[ScoredOutput]]:
    """What evalq imports of the tests, and says."""
    folder = tmp_path_factory.mktemp("promptfoo")
    (folder / "promptfooconfig.json").write_text(json.dumps(hostile.config()))
    return judged("promptfoo", folder / "promptfooconfig.json", folder / "out")


def test_every_check_that_both_have_has_the_same_verdict(
    said: dict[str, dict[str, Any]], found: tuple[Imported, list[ScoredOutput]]
) -> None:
    """Or differs for a reason that the reference page gives; and what evalq has not is in the notes."""
    imported, judgements = found
    tests = {test["description"].replace(" ", "-"): test for test in hostile.config()["tests"]}
    noted = {note.where.rpartition(": ")[2] for note in imported.notes if note.kind != "differs"}
    compared: Counter[str] = Counter()
    wrong = []
    judged_ids = {judgement.plan.case.id for judgement in judgements if judgement.plan}
    weightless = {name for name, test in tests.items() if all(each.get("weight") == 0 for each in test["assert"])}
    assert weightless, "no case that always passes was tried"
    assert not weightless & judged_ids
    assert weightless <= {note.text.replace(" ", "-") for note in imported.notes if "weight 0" in note.why}
    for judgement in judgements:
        assert judgement.plan is not None
        identity = judgement.plan.case.id
        theirs, test = said[identity], tests[identity]
        ours = {verdict.name: verdict for verdict in judgement.checks}
        for index, assertion in enumerate(test["assert"]):
            name, kind = assertion["metric"], assertion["type"].removeprefix("not-")
            place = f"tests[{identity.removeprefix('case-')}].assert[{index}]"
            assert (name in ours) != (place in noted), f"{place}: neither a check nor noted"
            # promptfoo says of a check without weight that it passes, whatever it finds.
            if name not in ours or "error" in theirs or assertion.get("weight") == 0:
                continue
            if ours[name].passed == theirs["checks"][name]:
                compared[kind] += 1
            elif kind not in NAMED and not any(text in judgement.text for text in NAMED_TEXTS.get(kind, ())):
                wrong.append((place, assertion, theirs["checks"][name], ours[name]))
    assert not wrong
    assert sum(compared.values()) > 1500
    for kind in ("equals", "contains", "icontains", "contains-any", "contains-all", "regex", "starts-with", "is-json"):
        assert compared[kind] > 40, f"{kind} was hardly compared"


def test_a_case_passes_where_promptfoo_passes_it(
    said: dict[str, dict[str, Any]], found: tuple[Imported, list[ScoredOutput]]
) -> None:
    """With weights and thresholds, wherever every check has a counterpart with the same verdict and score."""
    _, judgements = found
    tests = {test["description"].replace(" ", "-"): test for test in hostile.config()["tests"]}
    compared = 0
    for judgement in judgements:
        assert judgement.plan is not None
        theirs, test = said[judgement.plan.case.id], tests[judgement.plan.case.id]
        alike = {verdict.name: verdict.passed or verdict.weight == 0 for verdict in judgement.checks} == theirs[
            "checks"
        ]
        # Scores differ where promptfoo gives an empty one to a refusal, and where nothing has a weight.
        weighed = any(assertion.get("weight", 1) for assertion in test["assert"])
        if alike and weighed and "error" not in theirs:
            compared += 1
            assert (judgement.status == "passed") == theirs["passed"], judgement.plan.case.id
    assert compared > 250
