"""Near-duplicates: sketches that estimate Jaccard's share, kinds that no order changes, and what is never one kind."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.evaluators.checks.diversity import near
from evalq.evalcore.evaluators.checks.diversity.near import (
    KEPT,
    SHINGLE,
    NearKinds,
    kind_of_text,
    normal,
    similarity,
    sketch,
)
from evalq.evalcore.evaluators.checks.inputs import stopping_for
from tests.bench.diversity import accuracy, edited, near_rates, text_of
from tests.portions import portion
from tests.unit.checks.helpers import evaluated, line, params_of, stop_mark

SENTENCE = "We suggest the small hotel near the old harbour, since it is quiet and the rooms look out to sea"
words = st.sampled_from(["alpha", "beta", "gamma", "delta", "omega", "sigma", "kappa", "theta"])
texts = st.lists(words, min_size=1, max_size=14).map(" ".join)


def exact(one: str, other: str) -> float:
    """Jaccard's share by its definition."""
    mine, its = ({f" {text} "[at : at + SHINGLE] for at in range(len(text) + 3 - SHINGLE)} for text in (one, other))
    return len(mine & its) / len(mine | its)


@given(texts, texts)
def test_of_short_texts_the_share_is_exact(one: str, other: str) -> None:
    """As long as neither has more shingles than are kept; the sketch says which these are."""
    if max(len(f" {text} ") - SHINGLE + 1 for text in (one, other)) <= KEPT:
        assert similarity(sketch(one), sketch(other)) == exact(one, other)
    assert similarity(sketch(one), sketch(one)) == 1.0
    assert similarity(sketch(one), sketch(other)) == similarity(sketch(other), sketch(one))


@given(st.text(max_size=80), st.integers(1, 90))
def test_a_text_is_sketched_as_a_whole_in_whatever_pieces(text: str, piece: int) -> None:
    """Long answers are hashed piece by piece, so that none takes many times its room."""
    whole = sketch(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near, "_PIECE", piece)
        assert sketch(text) == whole


def test_of_long_texts_it_is_estimated_without_bias() -> None:
    """Within .06 in the root of the mean square, as 64 hashes give; `tests.bench.diversity` has the table."""
    found = accuracy(150, 100, random.Random(1))
    assert found.rms < 0.06
    assert abs(found.bias) < 0.02


def test_a_sketch_is_the_same_everywhere() -> None:
    """Recorded: a change of it changes reports of the same answers."""
    assert sketch("ab").hex() == "1271cf25c346e39201000100003ae897a7f6073092"
    assert sketch(normal(SENTENCE))[:24].hex() == "1271cf25c346e3920e000e000029f470b18eaa6feaa24da4"
    assert len(sketch("")) == 17
    assert len(sketch("\ud800 half a surrogate")) > 17


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"{SENTENCE} for 3 nights", f"{SENTENCE} for 4 nights"),
        (SENTENCE, SENTENCE.replace("it is", "it is not")),
        (SENTENCE.replace("it is", "it is"), SENTENCE.replace("it is", "it isn't")),
        (f"{SENTENCE} -5", f"{SENTENCE} 5"),
    ],
)
def test_numbers_and_negations_are_never_near(one: str, other: str) -> None:
    """However alike in their letters: a sum or a refusal that differs is another answer."""
    assert exact(normal(one), normal(other)) > 0.8
    assert similarity(sketch(normal(one)), sketch(normal(other))) == 0.0
    assert counted([one, other], 0.5) == [1, 1]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("the rooms - all of them - are free", False),
        ("take 8 - a tax - as well", True),
        ("a tax of x - 5 as well", True),
        ("it costs - 5 as well", True),
        ("it costs 5 -", True),
    ],
)
def test_a_dash_beside_a_number_or_a_letter_is_an_operator(text: str, kept: bool) -> None:
    """On either side of it, at the beginning and at the end; between words it is a sign of the sentence."""
    assert ("-" in normal(text)) is kept


@pytest.mark.parametrize(
    "word", ["no", "non", "not", "never", "none", "nothing", "without", "neither", "nor", "cannot", "don't", "isn't"]
)
def test_each_negation_makes_another_answer(word: str) -> None:
    """Where it comes in, and where it comes once more."""
    denied = SENTENCE.replace("it is", f"it {word} is")
    twice = denied.replace("the rooms", f"{word} the rooms")
    assert exact(normal(SENTENCE), normal(denied)) > 0.8
    assert counted([SENTENCE, denied, twice], 0.5) == [1, 1, 1]


def counted(answers: list[str], alike: float) -> list[int]:
    """How often each kind came, the most first."""
    kinds = NearKinds(alike)
    for answer in answers:
        kinds.add(kind_of_text(normal(answer)), sketch(normal(answer)))
    assert kinds.mode == max(kinds.counts(), default=0)
    assert kinds.answers == len(answers) == sum(kinds.counts())
    return sorted(kinds.counts(), reverse=True)


def joined(answers: list[str], alike: float) -> list[int]:
    """The same by its definition: what steps between near texts connect."""
    apart = [{text} for text in {normal(answer) for answer in answers}]
    sketches = {text: sketch(text) for (text,) in apart}
    for one, other in itertools.combinations([next(iter(each)) for each in apart], 2):
        if similarity(sketches[one], sketches[other]) >= alike:
            mine, its = (next(group for group in apart if text in group) for text in (one, other))
            if mine is not its:
                mine |= its
                apart.remove(its)
    counts = Counter(normal(answer) for answer in answers)
    return sorted((sum(counts[text] for text in group) for group in apart), reverse=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(texts, max_size=12), st.sampled_from([0.1, 0.5, 0.8, 1.0]), st.randoms(use_true_random=False))
def test_kinds_are_what_steps_connect_in_any_order(answers: list[str], alike: float, source: random.Random) -> None:
    """By the definition, and however the answers are shuffled."""
    found = counted(answers, alike)
    assert found == joined(answers, alike)
    source.shuffle(answers)
    assert counted(answers, alike) == found


def test_the_index_of_many_texts_leaves_no_pair_out() -> None:
    """Above 64 texts only those with a hash in common are compared."""
    source = random.Random(2)
    bases = [text_of(40, source) for _ in range(12)]
    answers = [edited(source.choice(bases), source.randrange(4), source) for _ in range(150)]
    for alike in (0.3, 0.6, 0.8, 0.9):
        assert counted(answers, alike) == joined(answers, alike)


def test_a_chain_is_one_kind_and_is_reported(tmp_path: Path) -> None:
    """Steps lead from the first to the last, which share nothing: the report says how alike the kind's ends are."""
    parts = SENTENCE.split()
    source = random.Random(3)
    fresh = text_of(len(parts), source).split()
    answers = [" ".join(fresh[:at] + parts[at:]) for at in range(len(parts) + 1)]
    case: dict[str, Any] = {"id": "a", "checks": [{"min-length": 0}], "diversity": {"by": "near", "similarity": 0.7}}
    done = evaluated(tmp_path, [line("a", number, text) for number, text in enumerate(answers)], params_of([case]))
    (entry,) = done.report["results"]["diversity"]["by_case"]
    assert entry["distinct"] == {"text": len(answers), "kinds": 1}
    assert entry["least_alike"] < 0.2
    assert (entry["by"], entry["similarity"], entry["verdict"]) == ("near", 0.7, "inconclusive")
    assert entry["p_collapsed"] == 1.0


def test_the_edge_of_what_is_alike_does_not_make_a_case_diverse(tmp_path: Path) -> None:
    """Two wordings that are nearly alike enough: diverse where only the likeness asked for counts, else open."""
    other = SENTENCE.replace("rooms look", "beds look").replace("harbour", "port")
    answers = [SENTENCE, other]
    alike = similarity(sketch(normal(SENTENCE)), sketch(normal(other)))
    assert 0.6 < alike < 0.75

    def kinds_at(asked: float) -> dict[str, Any]:
        how = {"by": "near", "similarity": asked}
        params = params_of([{"id": "a", "checks": [{"min-length": 0}], "diversity": how}])
        done = evaluated(tmp_path, [line("a", r, answers[r % 2]) for r in range(60)], params)
        entry: dict[str, Any] = done.report["results"]["diversity"]["by_case"][0]
        return entry

    far, edge = kinds_at(0.95), kinds_at(round(alike + 0.05, 3))
    assert far["verdict"] == "diverse"
    assert far["mode_share"]["high"] < 0.7
    assert (edge["distinct"], edge["verdict"], edge["runs_to_decide"]) == (far["distinct"], "inconclusive", None)
    assert edge["mode_share"]["value"] == far["mode_share"]["value"]
    assert edge["looser"]["mode_share"] == 1.0
    assert edge["mode_share"]["high"] == 1.0
    assert edge["mode_share"]["low"] == far["mode_share"]["low"]


def test_a_sweep_ends_early_by_near_texts_only_where_they_collapsed() -> None:
    """Another answer can join two kinds, so that diversity by near texts is known at the end only."""

    def ended(answers: list[str]) -> int | None:
        case: dict[str, Any] = {"id": "a", "checks": [{"min-length": 0}], "diversity": {"by": "near"}}
        stopping = stopping_for(params_of([case]))
        for number, text in enumerate(answers):
            if stopping.add(line("a", number, text, **stop_mark(len(answers)))):
                return number + 1
        return None

    same = [SENTENCE + ending for ending in ("", "!", ".", " please", " thanks") * 12]
    assert len({normal(text) for text in same}) > 1
    assert (ended(same) or 60) < 30
    source = random.Random(4)
    assert ended([text_of(20, source) for _ in range(60)]) is None


@pytest.mark.parametrize(("shares", "answers"), [((0.7, 0.3), 20), ((0.5, 0.3, 0.2), 20), ((0.9, 0.1), 40)])
def test_rates_of_near_kinds_hold(shares: tuple[float, ...], answers: int) -> None:
    """Answers that vary about a few texts: covered by the interval, and called collapsed wrongly in 2.5 % at most."""
    found = near_rates(shares, answers, 1, portion(200, of=2), random.Random(5))
    assert found.covered >= 0.93 - 0.03
    assert found.wrong <= 0.025 + 0.03
    assert found.stopped_wrong <= 0.025 + 0.03


def test_denials_are_counted_in_one_pass() -> None:
    """Many different ones take time with their number, not with its square."""
    began = time.process_time()
    many = " ".join(f"w{chr(97 + n % 26)}{n}n't" for n in range(40_000))
    assert sketch(many)[4:8] != sketch(many + " not")[4:8]
    assert sketch("not a not")[4:8] == sketch("a not not")[4:8] != sketch("a not")[4:8]
    assert time.process_time() - began < 3.0
