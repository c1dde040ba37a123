"""Comparing and gating in a notebook: the same as the commands say, typed, as frames, and safe to show."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import evalq
from evalq.evalcore.evaluators.cooperation.sample import write_events
from evalq.producer.cli import main
from tests.unit.comparing.conftest import BAD, GOOD, Made

POLICY = {"gates": [{"metric": "verification.pass_rate", "min": 0.5, "max_drop": 0.1}], "deterministic": True}
SURE = [(f"c{number % 20:02d}", True) for number in range(200)]
BROKEN = [(case, case > "c04") for case, _ in SURE]


def _in_memory(transcripts: Sequence[tuple[str, bool]]) -> evalq.Run:
    lines = [json.dumps({"id": case, "actual_output": GOOD if passed else BAD}) for case, passed in transcripts]
    Path("memory.jsonl").write_text("\n".join(lines) + "\n")
    return evalq.evaluate("verification", "memory.jsonl")


def test_every_way_to_give_a_run_compares_the_same(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder, a path, an id, a file, a baseline, an opened run, one that was never written: the command's numbers."""
    base, cand = made("evalq-runs/base", SURE), made("cand", BROKEN)
    assert main(["baseline", "set", "main", "base"]) == 0
    assert main(["compare", "base", "cand", "--json"]) == 0
    message = json.loads(capsys.readouterr().out.splitlines()[-1])["measures"]
    bases: list[Path | str | evalq.Run] = [
        base,
        str(base),
        "base",
        base / "report.json",
        "main",
        evalq.open(base),
        _in_memory(SURE),
    ]
    for given in bases:
        found = evalq.compare(given, evalq.open(cand))
        assert [each.verdict for each in found] == [measure["verdict"] for measure in message] == ["worse", "worse"]
        for each, measure in zip(found, message, strict=True):
            assert each.observed is not None
            assert each.observed.low == measure["observed"]["low"]
            assert [flip.case for flip in each.losses] == [flip["case"] for flip in measure["losses"]]
    assert found["pass_rate"].runs[1] == evalq.open(cand).id
    assert found["pass_rate"].runs[0].startswith("verification-")


def test_a_comparison_has_frames(made: Made) -> None:
    """Each case with its means and counts; flips are those that changed, the largest losses first."""
    rows = [("a", True), ("a", True), ("b", True), ("b", True), ("c", False), ("d", True)]
    later = [("a", True), ("a", False), ("b", False), ("b", False), ("c", True), ("d", True)]
    found = evalq.compare(made("base", rows), made("cand", later), measure="pass_rate")["verification.pass_rate"]
    frame = found.cases()
    assert dict(frame.dtypes.astype(str)) == {
        "case": "string", "base": "float64", "cand": "float64", "change": "float64",
        "base_answers": "int64", "cand_answers": "int64",
    }  # fmt: skip
    assert frame["case"].tolist() == ["a", "b", "c", "d"]
    flips = found.flips()
    assert list(zip(flips["case"], flips["change"], strict=True)) == [("b", -1.0), ("a", -0.5), ("c", 1.0)]
    assert flips.iloc[0][["base", "cand", "base_answers", "cand_answers"]].tolist() == [1.0, 0.0, 2, 2]
    assert (found.lost, found.won) == (2, 1)


def test_a_number_of_which_less_is_better_changes_for_the_better_when_it_falls(here: Path) -> None:
    """Frames and estimate agree on the sign."""
    for name, seed in (("base", 1), ("cand", 2)):
        Path(name).mkdir()
        with Path(name, "events.jsonl").open("wb") as log:
            write_events(log, 400, seed)
    base, cand = (evalq.evaluate("cooperation", f"{name}/events.jsonl") for name in ("base", "cand"))
    gini = evalq.compare(base, cand)["gini_coefficient"]
    assert gini.measure.better == "lower"
    assert gini.observed is not None
    assert gini.observed.delta != 0
    assert gini.cases()["change"].tolist() == pytest.approx([gini.observed.delta])


def test_a_summary_has_a_row_for_each_measure(made: Made) -> None:
    """With NaN where nothing was answered on both sides."""
    found = evalq.compare(made("base", [("a", True)]), made("cand", [("b", True)]))
    frame = found.summary()
    assert frame["measure"].tolist() == ["pass_rate", "mean_score"]
    assert frame["verdict"].tolist() == ["inconclusive", "inconclusive"]
    assert frame["low"].isna().all()
    assert str(frame["cases"].dtype) == "Int64"
    assert found[0].observed is None
    assert "No case has an answer in both runs" in str(found)
    assert "inconclusive" in found._repr_html_()
    assert len(found[:1]) == 1
    with pytest.raises(KeyError, match=r"'accuracy' is none of: verification\.pass_rate"):
        found["accuracy"]


@pytest.mark.parametrize("margin", [0.0, -0.1, 1.5, float("nan")])
def test_a_margin_is_a_share(margin: float) -> None:
    """Anything else is refused before a run is looked for."""
    with pytest.raises(evalq.errors.UsageError, match="margin="):
        evalq.compare("nothing", "nothing", margin=margin)


def test_what_is_no_run_is_reported(made: Made, here: Path) -> None:
    """A name of nothing, a run without a report, a measure that there is not."""
    run = made("run", [("a", True)])
    with pytest.raises(evalq.errors.UsageError, match="'nothing' is not a run folder"):
        evalq.compare("nothing", run)
    with pytest.raises(evalq.errors.UsageError, match="no measure 'speed'"):
        evalq.compare(run, run, measure="speed")
    (run / "report.json").unlink()
    with pytest.raises(evalq.errors.UsageError, match="no report"):
        evalq.compare(evalq.open(run), run)


def test_a_gate_decides_as_the_command_does(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """From a file or from what would stand in it; with the exit code, the checks and a row for each."""
    made("base", SURE)
    made("cand", BROKEN)
    Path("policy.json").write_text(json.dumps(POLICY))
    code = main(["gate", "cand", "--policy", "policy.json", "--baseline", "base", "--json"])
    message = json.loads(capsys.readouterr().out)
    for policy in ("policy.json", POLICY):
        decided = evalq.gate(evalq.open("cand"), policy, baseline=Path("base"))
        assert (decided.decided, decided.exit_code) == (message["decided"], code) == ("NO-GO", 1)
        assert [check.reason for check in decided.checks] == [check["reason"] for check in message["checks"]]
        frame = decided.summary()
        assert frame["decided"].tolist() == [check["decided"] for check in message["checks"]]
        assert str(frame["low"].dtype) == "float64"
    made("again", SURE)
    assert evalq.gate(["again"], POLICY, baseline=evalq.open("base")).decided == "GO"


def test_only_go_is_true(made: Made) -> None:
    """An assertion on a decision passes for nothing else, and says why when it fails."""
    run, base = (made(name, [("a", True), ("b", True)]) for name in ("run", "base"))
    undecided = evalq.gate(run, POLICY, baseline=base)
    assert undecided.decided == "INCONCLUSIVE"
    assert undecided.exit_code == 4
    assert not undecided
    assert "the policy wants 10" in repr(undecided)
    assert evalq.gate(run, {"gates": [{"metric": "verification.pass_rate", "min": 0.0}]}), "it is GO"


def test_a_wrong_policy_names_its_key(made: Made) -> None:
    """As the command does; no run at all is refused, too, and a baseline that is needed and not named."""
    run = made("run", [("a", True)])
    with pytest.raises(evalq.errors.ConfigError, match=r"policy: wrong parameters\s+gates\.0\.least: unknown key"):
        evalq.gate(run, {"gates": [{"metric": "verification.pass_rate", "least": 1}]})
    with pytest.raises(evalq.errors.UsageError, match="no run is given"):
        evalq.gate([], POLICY)
    with pytest.raises(evalq.errors.UsageError, match="--baseline"):
        evalq.gate(run, POLICY)
    with pytest.raises(evalq.errors.UsageError, match="are both called verification"):
        evalq.gate([run, run], POLICY, baseline=run)


HOSTILE = "<script>alert(1)</script>|[x](http://x)\x1b[31m$\\href{a}{b}$\u202e"


def test_hostile_ids_stay_text_wherever_a_notebook_shows_them(made: Made) -> None:
    """No markup, link, escape, mathematics or reversed writing of theirs takes effect."""
    rows = [(f"{HOSTILE}{number}", True) for number in range(20)]
    base, cand = made("base", rows * 6), made("cand", [(case, False) for case, _ in rows] * 6)
    found = evalq.compare(base, cand)
    policy = {"gates": [{"metric": "verification.pass_rate", "per_case": {"min_passes": 4, "of": 5}}]}
    decided = evalq.gate(cand, policy)
    assert decided.decided == "NO-GO"
    for text in (str(found), found._repr_markdown_(), found._repr_html_(), str(decided), decided._repr_html_()):
        assert not any(piece in text for piece in ("<script", "\x1b", "\u202e"))
    assert not any(piece in repr(decided) for piece in ("\x1b", "\u202e")), "shown as it is, and never as markup"
    assert "alert(1)" in str(found)
    assert "alert(1)" in found._repr_html_()
    assert found._repr_html_().startswith('<div class="tex2jax_ignore mathjax_ignore">')
    assert not re.search(r"(?<!\\)\]\(", str(found)), "no link"
    assert "$" not in str(found).replace(r"<span>\$</span>", ""), "no formula, either"
    assert found[0].flips()["case"].iloc[0].startswith(HOSTILE)
