# ruff: noqa: E501 - a pair a line reads as the table that it is
"""Collapse by near answers means what it says: on sets made apart from its rules, and on pairs apart by a sign."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalq.evalcore.evaluators.checks.diversity.near import normal, similarity, sketch
from tests.unit.checks.near_corpus import FRAMES_ONE, FRAMES_TWO, LANGUAGES, WAYS_ONE, WAYS_TWO, corpus
from tests.unit.checks.near_rates import near_rates, verdict_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "near-effectiveness.md"


@pytest.mark.parametrize("number", [1, 2])
def test_verdicts_on_known_sets(number: int) -> None:
    """At most 5 % wrong either way among decided sets; the page has the figures, and the share that is decided."""
    found = near_rates(number)
    assert found.false_collapsed <= 0.05
    assert found.false_diverse <= 0.05
    # Something is decided: rules that never say anything would not err either.
    assert found.decided_different >= 0.6
    row = " | ".join(f"{share:.1%}".replace("%", " %") for share in found)
    assert f"| {number} | {row} |" in PAGE.read_text()


def test_the_corpora_are_what_they_say() -> None:
    """40 sets of 30 answers in five languages, half of them different; no frame and no wording is in both."""
    for number in (1, 2):
        sets = corpus(number, 0)
        assert len(sets) == 40
        assert all(len(each.answers) == 30 for each in sets)
        assert {each.language for each in sets} == set(LANGUAGES)
        assert sum(each.same for each in sets) == 20
    for one, two in ((FRAMES_ONE, FRAMES_TWO),):
        assert not {frame for each in one.values() for _, frame, _ in each} & {f for e in two.values() for _, f, _ in e}
    said = [{way for each in ways.values() for _, of, _ in each for way in of} for ways in (WAYS_ONE, WAYS_TWO)]
    assert not said[0] & said[1]


APART = [
    ("10 - 2", "10 * 2"),
    ("10 * 2", "10 / 2"),
    ("[a]", "a"),
    ("{a}", "a"),
    ("a < b", "a > b"),
    ("x & y", "x | y"),
    ("5 % 2", "5 * 2"),
    ("C#", "C"),
]


@pytest.mark.parametrize(("one", "other"), APART)
def test_what_differs_by_a_sign_alone_is_two_texts(one: str, other: str) -> None:
    """Operators and brackets are no punctuation of a sentence."""
    assert normal(one) != normal(other)
    assert similarity(sketch(normal(one), one), sketch(normal(other), other)) < 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1,000.0", "1000"),
        ("1e3", "1000"),
        ("It is 3.50 euros.", "It is 3.5 euros"),
        ('{"a": 1.0, "b": "Paris."}', '{"b":"paris", "a":1}'),
        ("[1, 2.0]", "[1.0,2]"),
        ("oui !", "Oui!"),
        ("Paris \u2014 the capital", "Paris, the capital"),
        ("- Paris\n- Rome", "* Paris\n* Rome"),
        ("**Paris**", "Paris"),
    ],
)
def test_numbers_and_json_are_by_value(one: str, other: str) -> None:
    """And what only decorates is nothing."""
    assert normal(one) == normal(other)


@pytest.mark.parametrize("text", ["007", "1.2.3", "v1.10", "12:30", "1.000,5", "2026-01-31", "+49 30 1234"])
def test_what_only_looks_like_a_number_stays(text: str) -> None:
    """A version, a time, a day, a number to call."""
    assert normal(text) == text


OPPOSED = [
    ("You can return the opened goods within the whole month", "You cannot return the opened goods within the whole month"),
    ("At the next large crossing in the village turn left", "At the next large crossing in the village turn right"),
    ("We think that supervised training fits this problem best", "We think that unsupervised training fits this problem best"),
    ("이 제품은 물에 닿아도 전혀 문제가 되는 편입니다", "이 제품은 물에 닿아도 전혀 문제가 되지 않는 편입니다"),
    ("다음 교차로가 나오면 반드시 왼쪽으로 도시기 바랍니다", "다음 교차로가 나오면 반드시 오른쪽으로 도시기 바랍니다"),
    ("Die Garantie gilt in diesem besonderen Fall auch im Ausland", "Die Garantie gilt in diesem besonderen Fall nicht auch im Ausland"),
    ("Wir haben in dieser Woche leider eine freie Stelle", "Wir haben in dieser Woche leider keine freie Stelle"),
    ("Le remboursement est possible pour ce type de commande", "Le remboursement n'est pas possible pour ce type de commande"),
    ("Il faut vraiment toujours verser le lait avant la farine", "Il faut vraiment jamais verser le lait avant la farine"),
    ("Se puede pagar con tarjeta en todas las tiendas", "No se puede pagar con tarjeta en todas las tiendas"),
    ("Con este precio conviene comprar muchas acciones", "Con este precio conviene vender muchas acciones"),
    ("The right option among the four of them is option B", "The right option among the four of them is option D"),
    ("The parcel will be handed over on Monday morning", "The parcel will be handed over on Friday morning"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), OPPOSED)
def test_opposites_are_never_near(one: str, other: str) -> None:
    """Negation in five languages, sides, orders, days, options: however alike the letters are."""
    assert similarity(sketch(normal(one), one), sketch(normal(other), other)) == 0.0


def test_collapse_is_said_where_it_is_seen() -> None:
    """Of one text, of nearly all; not of nothing, of one, of two, nor of a chain of answers."""
    same = "The capital of France is Paris, as everybody knows by now."
    assert verdict_of([same] * 30) == "collapsed"
    assert verdict_of([same.upper(), same + "!", f"**{same}**"] * 10) == "collapsed"
    assert verdict_of([same] * 29 + ["I do not know that at all."]) == "collapsed"
    assert verdict_of([]) == "no_data"
    assert verdict_of([same]) == "no_repeats"
    assert verdict_of([same, same]) == "inconclusive"
    words = [f"{first}{second}" for first in "bdfgklmnprst" for second in ("alo", "emi", "uva", "oki")]
    chain = [" ".join(words[at : at + 16]) for at in range(30)]
    assert verdict_of(chain) != "collapsed"


def test_a_long_frame_makes_no_collapse() -> None:
    """Ten names in a frame that is nine tenths of the text: not collapsed; nor diverse, where rules cannot know."""
    frame = (
        "After a long discussion of all of the candidates we have come to the decision that the best one is {} indeed"
    )
    names = ["Amelia", "Jonas", "Priya", "Mateo", "Chen", "Fatima", "Oleg", "Ingrid", "Yusuf", "Marta"]
    assert verdict_of([frame.format(names[at % 10]) for at in range(30)]) in ("inconclusive", "diverse")
    assert verdict_of([frame.format("ABCDEF"[at % 6]) for at in range(30)]) == "diverse"
