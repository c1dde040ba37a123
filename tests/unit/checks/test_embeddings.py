"""Kinds by embeddings: packed vectors, kinds that no machine and no order changes, and what a line may hold."""

from __future__ import annotations

import base64
import json
import math
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.checks.diversity.near import kind_of_text, normal
from evalq.evalcore.evaluators.checks.score import OutputScorer
from evalq.evalcore.evaluators.checks.stages import MOST_EMBEDDED, EmbedStage
from evalq.evalcore.model.calls import Output, cosine, join_vectors, pack_vector
from tests.agents.server import letters
from tests.unit.checks.helpers import counts, evaluated, line, merged_anyhow, params_of, state_of

CASE: dict[str, Any] = {
    "id": "a", "checks": [{"min-length": 0}], "diversity": {"by": "embedding", "similarity": 0.9, "embedder": "e"},
}  # fmt: skip
WORDS = ["the fast train", "the train, fast", "a slow boat", "slow: a boat!", "nothing of that kind"]
vectors = st.lists(st.integers(-127, 127), min_size=3, max_size=3).filter(any)


def embedded(text: str, target: str = "e", config: str = "c", **more: Any) -> dict[str, Any]:
    """What a line has of a text."""
    whole = normal(text)
    vector = base64.b64encode(pack_vector(letters(whole))).decode()
    return {"text": kind_of_text(whole).hex(), "target": target, "config": config, "vector": vector} | more


def entry_of(folder: Path, lines: list[bytes], case: dict[str, Any] | None = None) -> dict[str, Any]:
    """The entry of the one case."""
    found: dict[str, Any] = evaluated(folder, lines, params_of([case or CASE])).report["results"]
    entry: dict[str, Any] = found["diversity"]["by_case"][0]
    return entry | {"errors": found["outputs"]["errors"]}


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=40))
def test_a_packed_vector_points_where_it_did(values: list[float]) -> None:
    """Within half a step in each component, of whatever size the numbers are."""
    largest = max(map(abs, values))
    if not largest:
        with pytest.raises(ValueError, match="0"):
            pack_vector(values)
        return
    with pytest.raises(ValueError, match="not a finite number"):
        pack_vector([*values, 10**400])
    data = pack_vector(values)
    assert len(data) == len(values)
    for byte, value in zip(memoryview(data).cast("b"), values, strict=True):
        assert abs(byte / 127 - value / largest) <= 0.5 / 127 + 1e-12
    assert max(map(abs, memoryview(data).cast("b"))) == 127


def test_cosines_of_packed_vectors_are_near_the_true_ones() -> None:
    """Of 1,536 dimensions, as many models have: within 0.004."""
    source = random.Random(1)
    for _ in range(20):
        one = [source.gauss(0, 1) for _ in range(1536)]
        other = [0.7 * value + 0.7 * source.gauss(0, 1) for value in one]
        dot, squares = sum(map(lambda a, b: a * b, one, other)), [sum(v * v for v in each) for each in (one, other)]
        assert cosine(pack_vector(one), pack_vector(other)) == pytest.approx(
            dot / math.sqrt(squares[0] * squares[1]), abs=0.004
        )


@given(
    st.lists(vectors, min_size=1, max_size=10), st.sampled_from([0.2, 0.6, 0.9, 1.0]), st.randoms(use_true_random=False)
)
def test_vectors_are_joined_by_steps_in_any_order(given_: list[list[int]], alike: float, source: random.Random) -> None:
    """By the definition, in whole numbers; a shuffle gives the same groups."""
    data = [bytes(value % 256 for value in vector) for vector in given_]

    def groups(packed_: list[bytes]) -> set[frozenset[bytes]]:
        first = join_vectors(packed_, alike)
        return {frozenset(packed_[at] for at, root in enumerate(first) if root == kind) for kind in set(first)}

    found = groups(data)
    apart = [{vector} for vector in set(data)]
    for one in set(data):
        for other in set(data):
            if cosine(one, other) >= alike - 1e-12:
                mine, its = (next(group for group in apart if vector in group) for vector in (one, other))
                if mine is not its:
                    mine |= its
                    apart.remove(its)
    assert found == set(map(frozenset, apart))
    source.shuffle(data)
    assert groups(data) == found


def test_kinds_come_of_what_lines_hold(tmp_path: Path) -> None:
    """Texts of the same words are one kind; the report names the embedder, and counts what has no vector."""
    lines = [line("a", r, WORDS[r % 4], embedding=embedded(WORDS[r % 4])) for r in range(40)]
    lines += [line("a", 40, WORDS[0]), line("a", 41, WORDS[0], embedding=embedded("another text"))]
    lines += [line("a", 42, WORDS[0], embedding=embedded(WORDS[0], error="timeout: too late", vector=""))]
    entry = entry_of(tmp_path, lines)
    assert (entry["answers"], entry["without_vector"], entry["errors"]) == (40, 3, 0)
    assert entry["distinct"] == {"text": 4, "kinds": 2}
    assert entry["embedders"] == [{"target": "e", "config": "c", "answers": 40}]
    assert entry["least_alike"] > 0.99
    assert entry["verdict"] == "diverse"


def test_an_embedder_without_settings_is_one(tmp_path: Path) -> None:
    """Whether a line leaves their digest out or has it empty, as the report then does."""
    lines = [line("a", r, WORDS[r % 2], embedding=embedded(WORDS[r % 2], config="")) for r in range(8)]
    for r in range(8, 12):
        given_ = embedded(WORDS[r % 2])
        del given_["config"]
        lines.append(line("a", r, WORDS[r % 2], embedding=given_))
    entry = entry_of(tmp_path, lines)
    assert entry["embedders"] == [{"target": "e", "config": "", "answers": 12}]
    assert entry["distinct"] == {"text": 2, "kinds": 1}


def test_an_empty_answer_is_a_kind_by_itself(tmp_path: Path) -> None:
    """Nobody can embed it, and an agent that says nothing has collapsed all the same."""
    entry = entry_of(tmp_path, [line("a", r, "") for r in range(30)])
    assert (entry["answers"], entry["without_vector"], entry["verdict"]) == (30, 0, "collapsed")


def test_vectors_of_two_embedders_are_not_judged(tmp_path: Path) -> None:
    """Their spaces have nothing in common: no verdict stands on them."""
    lines = [line("a", r, WORDS[0], embedding=embedded(WORDS[0], config=str(r % 2))) for r in range(40)]
    entry = entry_of(tmp_path, lines)
    assert (entry["verdict"], entry["runs_to_decide"]) == ("inconclusive", None)
    assert [each["answers"] for each in entry["embedders"]] == [20, 20]
    (tmp_path / "lengths").mkdir()
    short = base64.b64encode(pack_vector([1, 2])).decode()
    lines = [line("a", r, WORDS[0], embedding=embedded(WORDS[0])) for r in range(4)]
    lines += [line("a", r, WORDS[2], embedding=embedded(WORDS[2], vector=short)) for r in range(4, 60)]
    assert entry_of(tmp_path / "lengths", lines)["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (5, "embedding: a number where an object is wanted"),
        ({"text": 1}, "embedding: Expected `str`"),
        ({"vector": "!"}, "embedding: Invalid base64"),
        ({"vector": base64.b64encode(bytes(9)).decode()}, "embedding.vector: a vector that is not zero is wanted"),
        ({"vector": ""}, "embedding.vector: a vector that is not zero is wanted"),
    ],
)
def test_an_embedding_that_is_none_is_an_error(tmp_path: Path, bad: Any, says: str) -> None:
    """Never a kind, and never silently left out: it is said where it stands."""
    given_ = {**embedded("x"), **bad} if isinstance(bad, dict) else bad
    data = line("a", 0, "x", embedding=given_)
    assert entry_of(tmp_path, [data])["errors"] == 1
    assert OutputScorer(params_of([CASE])).test(data).reason.startswith(says)


def test_a_key_that_is_given_twice_is_an_error(tmp_path: Path) -> None:
    """Decoders differ in which of the two they keep."""
    twice = line("a", 0, "x", embedding=embedded("x")).replace(b'"target": "e"', b'"target": "e", "target": "f"')
    assert entry_of(tmp_path, [twice])["errors"] == 1


def test_an_embedder_is_asked_each_text_once(tmp_path: Path) -> None:
    """Whatever case and repeat it is of; answers without text, too high repeats and other cases ask nothing."""
    other = {**CASE, "id": "b", "diversity": {"by": "embedding"}}
    stage = EmbedStage(params_of([CASE, other, {"id": "c", "checks": [{"min-length": 0}]}]), "f")
    assert dict(stage.count_questions()) == {("e", 1): 1, ("f", 1): 1}
    (one,), (again,), (its,) = (
        stage.questions(each) for each in (line("a", 0, "Paris."), line("a", 7, "paris"), line("b", 0, "Paris!"))
    )
    assert one == again
    assert one.prompt.text == "paris"
    assert (one.prompt, its.target) == (its.prompt, "f")
    for nothing in (line("a", 0, ""), line("a", 1000, "x"), line("c", 0, "x"), b"{", line("a", 0, error="timeout")):
        assert stage.questions(nothing) == []
        assert stage.add_replies(nothing, lambda _: []) == nothing
    assert len(stage.questions(line("a", 0, "word " * 9000))[0].prompt.text) == MOST_EMBEDDED
    with pytest.raises(UsageError, match="--embedder"):
        EmbedStage(params_of([other]), "").count_questions()


def test_what_is_joined_is_what_is_read(tmp_path: Path) -> None:
    """A line keeps its values as they were written; a failure and an answer of no embedder say why."""
    stage = EmbedStage(params_of([CASE]), "")
    plain = b'{"case":"a","repeat":0,"output":{"n":1.50}}'
    (asked,) = stage.questions(plain)
    vector = json.dumps({"vector": base64.b64encode(pack_vector([1, 2])).decode()}).encode()
    nothing = Output(0, asked.prompt.case, "", 0, "p", "e", "c")
    good = msgspec.structs.replace(nothing, output=msgspec.Raw(vector))
    found = stage.add_replies(plain, lambda _: [good])
    assert b'{"n":1.50}' in found
    assert entry_of(tmp_path, [found])["answers"] == 1
    assert stage.add_replies(found, lambda _: [good]) == found
    # A run that reuses this one takes the vector over, unless its text is another one by now.
    (known,) = stage.recorded_replies(found)
    assert (known.case, known.prompt, known.config) == (asked.prompt.case, asked.prompt.digest, "c")
    assert stage.add_replies(plain, lambda _: [known]) == found
    assert stage.recorded_replies(found.replace(b"1.50", b"2.50")) == stage.recorded_replies(plain) == []
    for more in ({"error": "timeout: late"}, {"output": msgspec.Raw(b'{"echo":1}')}):
        wrong = {asked: [msgspec.structs.replace(nothing, **more)]}
        said = stage.add_replies(plain, wrong.__getitem__)
        assert json.loads(said)["embedding"]["error"]
        entry = entry_of(tmp_path, [said])
        assert (entry["without_vector"], entry["verdict"], entry["errors"]) == (1, "no_data", 0)


_PARAMS = params_of([CASE])


def _line(repeat: int, text: str, config: str) -> bytes:
    """With a vector, where ``config`` names an embedder."""
    return line("a", repeat, text, **({"embedding": embedded(text, config=config)} if config else {}))


_lines = st.lists(
    st.builds(_line, st.integers(0, 1003), st.sampled_from(WORDS), st.sampled_from(["", "c", "d"])), max_size=25
)


@settings(max_examples=40, deadline=None)
@given(_lines, st.data())
def test_vectors_are_the_same_bytes_in_any_cut_and_order(chunk: list[bytes], data: st.DataObject) -> None:
    """Of two embedders, with and without vectors: cut anywhere, merged in any order."""
    assert counts(merged_anyhow(chunk, _PARAMS, data)) == counts(state_of(chunk, _PARAMS))
