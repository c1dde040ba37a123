"""What can be changed, and how a mistake in it is reported."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.planagent import PlanParams, evaluator
from tests.unit.planagent.helpers import TWO_CHECKS, answer, evaluate, row


def test_the_defaults_are_the_specifications() -> None:
    """Bands, marks and readings as written."""
    params = PlanParams()
    assert [(band.over / band.under, band.points) for band in params.ratio_bands] == [
        (1, 5),
        (0.75, 4),
        (0.5, 3),
        (0.25, 2),
    ]
    assert [(band.seconds, band.points) for band in params.speed_bands] == [(5, 5), (8, 4), (10, 3), (15, 2), (20, 1)]
    assert (params.any_pass_points, params.pass_mark, params.stability_warning) == (1, 3, 0.01)
    assert params.rules.model_dump() == {"speed": "band_of_mean", "stability": "score_zero", "accuracy": "heuristic"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rules": {"sped": "band_of_mean"}}, "rules.sped: unknown key"),
        ({"rules": {"speed": "fast"}}, "rules.speed"),
        ({"forms": [{"kind": "formType", "pattern": "("}]}, "no regular expression"),
        ({"forms": [{"kind": "formType", "pattern": "x"}]}, "group named 'want'"),
        ({"forms": [{"kind": "colour", "pattern": "(?P<want>x)"}]}, "forms.0.kind"),
        ({"numbering": "["}, "numbering"),
        (
            {
                "parts": [{"name": "word", "pattern": "x"}],
                "numbering": "x",
                "connector": "[",
                "forms": [{"kind": "formType", "pattern": "(?P<want>x)"}],
            },
            "connector",
        ),
        ({"error_masks": [{"pattern": "*", "replacement": ""}]}, "error_masks.0.pattern"),
        ({"speed_bands": [{"seconds": 8, "points": 4}, {"seconds": 5, "points": 5}]}, "speed_bands must rise"),
        ({"ratio_bands": [{"over": 1, "under": 4, "points": 2}, {"over": 1, "under": 1, "points": 5}]}, "must fall"),
        ({"speed_bands": [{"seconds": 5, "points": 6}]}, "speed_bands.0.points"),
    ],
)
def test_a_mistake_is_reported_with_its_key(given: dict[str, Any], told: str) -> None:
    """Unknown keys, wrong values and broken patterns are configuration errors, not crashes in a worker."""
    with pytest.raises(ConfigError, match=told.replace(".", r"\.")):
        validate(PlanParams, given, "params")


def test_bands_and_patterns_are_data() -> None:
    """Other bands and another wording of checks take effect, whatever texts are remembered."""
    english = {"kind": "formType", "pattern": r"has form (?P<want>\w+)"}
    rows = [row("a", expected="1) has form SELECT"), row("b", expected=TWO_CHECKS)]
    state = evaluate(rows, forms=[english]).state
    assert (state.rounds["1/1"].scored, state.rounds["1/1"].unscored) == (1, 1)
    generous = evaluate([row(expected=TWO_CHECKS)], ratio_bands=[{"over": 1, "under": 2, "points": 5}]).state
    assert generous.rounds["1/1"].scores == [0, 0, 0, 0, 0, 1]
    slow = evaluate([row(raw=answer(seconds=30))], speed_bands=[{"seconds": 60, "points": 4}]).state
    assert slow.rounds["1/1"].points == [0, 0, 0, 0, 1, 0]


def test_the_default_patterns_are_what_a_user_s_must_be() -> None:
    """Each compiles, and each form has the value it looks for: evalq does not try its own anew in each run."""
    params = PlanParams()
    for form in params.forms:
        assert "want" in re.compile(params.insert_parts(form.pattern)).groupindex
    for pattern in (params.numbering, params.connector):
        re.compile(params.insert_parts(pattern))


def test_a_mask_is_replaced_as_written() -> None:
    """A backslash in a replacement is a backslash."""
    state = evaluate([row(error="code 7")], error_masks=[{"pattern": "7", "replacement": "\\1"}]).state
    assert list(state.errors.counts) == ["code \\1"]


def test_every_reading_has_a_flag_that_its_parameter_knows() -> None:
    """The options' key paths and choices are those of the params."""
    for option in evaluator.command.options:
        for choice in option.choices if option.param else ():
            section, key = option.param.split(".")
            params = validate(PlanParams, {section: {key: choice}}, "params")
            assert getattr(getattr(params, section), key) == choice
    named = {option.param for option in evaluator.command.options}
    assert named == {
        "",
        "rules.speed",
        "rules.stability",
        "rules.accuracy",
    }


def test_params_can_be_cached_on() -> None:
    """Equal params are one key."""
    assert hash(PlanParams()) == hash(validate(PlanParams, PlanParams().model_dump(mode="json"), "params"))
