"""What numbers leave out is counted exactly whatever the pieces, and named in report, page, gate and JUnit."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.model.state import EXAMPLES, Example, LeftOut, grouped, omissions

ITEMS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from(["condition", "row"]), st.integers(0, 40).map(str)), max_size=80
)


def by_one(items: list[tuple[int, str, str]]) -> LeftOut:
    """The things counted one by one."""
    left_out = LeftOut()
    for line, what, text in items:
        left_out.add(what, "no form reads it", line, text)
    return left_out


@settings(max_examples=200)
@given(ITEMS, st.randoms(use_true_random=False))
def test_pieces_add_up_to_the_whole_in_any_order_and_bracketing(items: list[tuple[int, str, str]], rng: Random) -> None:
    """Counts are sums; the examples are the first places of the first texts, each text once, wherever it was cut."""
    cuts = sorted(rng.randrange(len(items) + 1) for _ in range(rng.randrange(5)))
    pieces = [by_one(items[a:b]) for a, b in zip([0, *cuts], [*cuts, len(items)], strict=True)]
    rng.shuffle(pieces)
    while len(pieces) > 1:
        at = rng.randrange(len(pieces) - 1)
        wire = msgspec.json.decode(msgspec.json.encode(pieces.pop(at + 1)), type=LeftOut)
        pieces[at].merge(wire)
    found = {each.what: each for each in omissions([(pieces[0], lambda line: f"a:{line}")])}
    for what in ("condition", "row"):
        own = [(line, text) for line, kind, text in items if kind == what]
        first: dict[str, int] = {}
        for line, text in sorted(own):
            first.setdefault(text, line)
        want = [Example(f"a:{line}", text) for text, line in first.items()][:EXAMPLES]
        assert (found[what].count, found[what].examples) == (len(own), want) if own else what not in found


def test_one_kind_of_several_inputs_is_one_omission() -> None:
    """Counts add up over inputs, examples stand in the order of the inputs; what replaces a thing is another kind."""
    one, two = by_one([(3, "row", "x")]), by_one([(1, "row", "y"), (2, "row", "x")])
    two.add("row", "no form reads it", 4, "z", instead="a keyword")
    found = omissions([(one, lambda line: f"one:{line}"), (two, lambda line: f"two:{line}")])
    assert [(each.count, each.instead) for each in found] == [(3, ""), (1, "a keyword")]
    assert [each.where for each in found[0].examples] == ["one:3", "two:1"]
    assert found[1].sentence() == "replaced by a keyword: 1 x row, no form reads it (two:4: z)"


def test_what_an_input_holds_cannot_make_the_record_grow() -> None:
    """Ten thousand long texts are a count and a few short examples."""
    left_out = LeftOut()
    for line in range(10_000):
        left_out.add("row", "too long", line, f"{line} " + "long\n " * 1000)
    assert len(msgspec.json.encode(left_out)) < 10_000
    assert omissions([(left_out, str)])[0].count == 10_000


def test_importers_group_their_notes_into_the_same_form() -> None:
    """Notes that say one thing are one omission with a count."""
    notes = [("llm-rubric", "needs a judge", "", 1, [Example(f"a.yaml:{n}", f"rubric {n}")]) for n in range(40)]
    (found,) = grouped(notes)
    assert (found.count, len(found.examples)) == (40, EXAMPLES)
    assert found.sentence(1) == "left out: 40 x llm-rubric, needs a judge (a.yaml:0: rubric 0)"
