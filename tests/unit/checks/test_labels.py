"""Labels by people: read strictly, counted beside the verdicts of judges in any cut, and shown in the report."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.compare.counting import CaseCounter
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract.evaluator import Batch, Request
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.evaluators.checks import ChecksState, evaluator
from evalq.evalcore.evaluators.checks.check import fallible
from evalq.evalcore.evaluators.checks.evaluator import MEASURES
from evalq.evalcore.evaluators.checks.inputs import complete_request, prompts
from evalq.evalcore.evaluators.checks.labels import load_labels, notices
from evalq.evalcore.evaluators.checks.score import OutputScorer
from evalq.evalcore.evaluators.checks.views import markdown
from evalq.evalcore.statistics.rates import exact_interval
from tests.unit.checks.helpers import evaluated, line, params_of
from tests.unit.checks.labelled import CASES, MARKER, judged_line, judgement, labels_file

LABELS: dict[str, Any] = {
    "m0": {"polite": {"passed": [0, 1], "failed": [2]}},
    "m1": {"polite": {"passed": [], "failed": [0]}},
    "only": {"polite": {"passed": [3], "failed": []}},
}
PARAMS = params_of(CASES, labels=LABELS)


def results(folder: Path, lines: list[bytes], **params: Any) -> dict[str, Any]:
    """``results`` of a run over ``lines``."""
    found: dict[str, Any] = evaluated(folder, lines, params_of(CASES, **params)).report["results"]
    return found


def read(folder: Path, text: str, name: str = "labels.jsonl") -> dict[str, Any]:
    """What a file of labels holds."""
    path = folder / name
    path.write_text(text)
    return load_labels(str(path))


def test_a_file_of_labels_is_the_same_in_both_forms(tmp_path: Path) -> None:
    """JSONL and CSV, notes passed over, repeat 0 where it is missing, a label twice as once."""
    rows = [("m0", 2, "polite", False), ("m0", 0, "polite", True), ("m0", 0, "polite", True)]
    expected = {"m0": {"polite": {"passed": [0], "failed": [2]}}}
    assert read(tmp_path, labels_file(rows)) == expected
    assert read(tmp_path, '{"case": "m0", "check": "polite", "passed": true, "note": "nice"}\n') == {
        "m0": {"polite": {"passed": [0], "failed": []}}
    }
    table = "check,case,passed,repeat,note\npolite,m0,FALSE,2,\npolite,m0,true,,rude?\n"
    assert read(tmp_path, table, "labels.csv") == expected


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("l.jsonl", '{"case": "a", "check": "x", "passed": 1}\n', "l.jsonl:1: passed: 1 where true or false"),
        ("l.jsonl", '\n{"case": 5, "check": "x", "passed": true}\n', "l.jsonl:2: case: 5 where a text"),
        ("l.jsonl", '{"case": "a", "passed": true}\n', "l.jsonl:1: check: missing"),
        ("l.jsonl", '{"case": "a", "check": "x", "passed": true, "repeat": -1}\n', "l.jsonl:1: repeat: -1"),
        ("l.jsonl", '{"case": "a", "check": "x", "passed": true, "repeat": true}\n', "l.jsonl:1: repeat: true"),
        ("l.jsonl", '{"case": "a", "check": "x", "passed": true, "repeat": 9007199254740992}\n', "l.jsonl:1: repeat:"),
        ("l.jsonl", '{"case": "a", "check": "x", "passed": true, "who": "me"}\n', "l.jsonl:1: who: unknown key"),
        ("l.jsonl", '{"case": "a", "case": "b", "check": "x", "passed": true}\n', "l.jsonl:1:"),
        ("l.jsonl", "[]\n", "l.jsonl:1:"),
        ("l.csv", "case,check,passed\na,x,yes\n", "l.csv:2: passed: a string where"),
        ("l.csv", "case,check,passed,repeat\na,x,true,1.5\n", "l.csv:2: repeat: a string"),
        ("l.csv", "case,check,passed\na,x\n", "l.csv:2: 2 fields"),
        ("l.csv", "case,case,passed\na,x,true\n", "l.csv:1: the header names a column twice"),
        ("l.csv", "a,0,c,true\n", "l.csv:1: the header lacks case, check, passed"),
        ("l.csv", "", "l.csv has no labels"),
        ("l.csv", "case,repeat,check,passed\n", "l.csv has no labels; add one"),
        ("l.jsonl", "", "l.jsonl has no labels"),
        ("l.jsonl", "\n\n", "l.jsonl has no labels"),
        ("l.txt", "", "the name of a file of labels must end in"),
        ("l.jsonl", labels_file([("a", 1, "x", True), ("a", 1, "y", False), ("a", 1, "x", False)]),
         "l.jsonl:3: a repeat 1, 'x': contradicts line 1, by which it passes"),
    ],
)  # fmt: skip
def test_what_is_no_label_is_named_by_its_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    """All of a file at once, and labels that contradict one another."""
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text, name)
    assert says in str(error.value)


def test_a_header_that_is_no_text_is_said(tmp_path: Path) -> None:
    """By its line, like any other fault."""
    path = tmp_path / "labels.csv"
    path.write_bytes(b"\xffcase,check,passed\na,x,true\n")
    with pytest.raises(ConfigError, match=r"labels\.csv:1: the header cannot be read: "):
        load_labels(str(path))


def test_labels_are_shown_beside_verdicts(tmp_path: Path) -> None:
    """The table of judge and person, agreement, errors, and what people would say of all answers."""
    lines = [judged_line("m0", r, passed=r < 3) for r in range(5)] + [judged_line("m1", 0, passed=False)]
    found = results(tmp_path, lines, labels=LABELS)["labels"]
    (entry,) = found["checks"]
    assert entry["decides"]
    assert (entry["check"], entry["judged"], entry["labels"], entry["labelled_cases"]) == ("polite", True, 4, 2)
    assert entry["table"] == {"both": 2, "false_pass": 1, "false_fail": 0, "neither": 1}
    assert entry["agreement"]["value"] == 0.75
    assert entry["false_pass"]["value"] == 0.5
    assert entry["false_fail"]["value"] == 0.0
    assert entry["judged_rate"] == pytest.approx((1 * 0.6 + 2 * 0.0) / 3)
    # Weights are the cases': people pass two of three of what the judge passes, and none of the one other.
    assert entry["corrected"]["value"] == pytest.approx(0.2 * 2 / 3)
    assert entry["corrected"]["low"] <= entry["corrected"]["value"] <= entry["corrected"]["high"]
    assert found["used"] == 4


def test_labels_of_one_line_each_are_as_good_as_a_file(tmp_path: Path) -> None:
    """In an output's line under `labels`, by the name of the check; together with the same in a file they are one."""
    plain = [judged_line("m0", r, passed=r < 3) for r in range(5)]
    own = [judged_line("m0", r, passed=r < 3, labels={"polite": r < 2} if r < 3 else None) for r in range(5)]
    by_file = {"m0": {"polite": {"passed": [0, 1], "failed": [2]}}}
    listed = [results(tmp_path, *each)["labels"] for each in ([own], [own])]
    assert listed[0] == results(tmp_path, plain, labels=by_file)["labels"]
    assert listed[0] == results(tmp_path, own, labels=by_file)["labels"]


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([], "labels: a list where an object of checks"),
        ({"polite": 1}, "labels, polite: a number where true or false"),
        ({"polite": False}, "labels, polite: false here, and true in --labels"),
    ],
)
def test_a_line_whose_labels_cannot_be_is_an_error(tmp_path: Path, labels: Any, says: str) -> None:
    """Of another type, or against the file: neither is passed over."""
    run = evaluated(tmp_path, [judged_line("m0", 0, True, labels=labels)], params_of(CASES, labels=LABELS))
    assert run.report["results"]["outputs"]["errors"] == 1
    assert says in run.report["faults"][0]["reason"]


def test_params_cannot_say_both_of_one_repeat() -> None:
    """However they were made."""
    with pytest.raises(ConfigError, match="repeat 2 is labelled both as passed and as failed"):
        params_of(CASES, labels={"m0": {"polite": {"passed": [1, 2], "failed": [2]}}})


def test_a_check_labelled_twice_in_a_line_is_an_error(tmp_path: Path) -> None:
    """Decoders differ in which of two values they keep."""
    data = judged_line("m0", 0, True).replace(b'"case"', b'"labels": {"polite": true, "polite": false}, "case"')
    run = evaluated(tmp_path, [data], params_of(CASES))
    assert "labelled more than once" in run.report["faults"][0]["reason"]


def test_labels_of_nothing_are_reported(tmp_path: Path) -> None:
    """Of no case, of no check or of several, of an output that is not there or has no verdict: each by itself."""
    twins = {"id": "twins", "checks": [{"contains": "a"}, {"contains": "b"}]}
    labels: dict[str, Any] = {
        "nobody": {"polite": {"passed": [0, 1]}},
        "m0": {"rude": {"failed": [0]}, "polite": {"passed": [0, 7]}},
        "m1": {"polite": {"passed": [0]}},
        "twins": {"contains": {"passed": [0]}},
    }
    lines = [judged_line("m0", 0, True, labels={"kind": True}), line("m1", 0, error="timeout"), line("twins", 0, "ab")]
    run = evaluated(tmp_path, lines, params_of([*CASES, twins], labels=labels))
    found = run.report["results"]["labels"]
    assert found["astray"] == 1 + 2 + 1 + 1 + 1 + 1
    assert found["used"] == 1
    listed = "\n".join(found["listed"])
    assert "line 1: m0 has no check called 'kind'" in listed
    assert "2 of 'polite': 'nobody' is none of the cases" in listed
    assert "twins has several checks called 'contains'" in listed
    assert "m0 repeat 7 has no output with a verdict" in listed
    assert "m1 repeat 0 has no output with a verdict" in listed
    assert "7 labels without an output that has a verdict" in notices(run.report)[0]
    assert "Labels of no output with a verdict, 7" in markdown(run.report, {})


def test_plain_checks_are_distinguished_from_judges(tmp_path: Path) -> None:
    """The pass rate by checks that no judge decides; a judge that only shows takes no part in either."""
    lines = [judged_line("m0", 0, False), judged_line("m0", 1, True, "a very long answer indeed"), line("plain", 0)]
    lines += [judged_line("only", 0, False), judged_line("shown", 0, False)]
    found = results(tmp_path, lines)
    assert found["outputs"]["passed"] == 2
    assert found["plain"]["outputs"] == {"passed": 3, "failed": 1}
    assert found["plain"]["pass_rate"] == pytest.approx((0.5 + 1 + 1) / 3)
    assert found["labels"]["outputs"]["cases"] == 5
    records = evaluated(tmp_path, lines, params_of(CASES)).records()
    assert [each["plain"] for each in records] == [True, False, True, None, True]


def test_runs_without_judges_tell_nothing_of_them(tmp_path: Path) -> None:
    """Neither in the report nor in its records; and labels of plain checks are shown all the same."""
    cases = [{"id": "plain", "checks": [{"contains": "yes"}]}]
    run = evaluated(tmp_path, [line("plain", 0)], params_of(cases))
    assert {"plain", "labels"}.isdisjoint(run.report["results"])
    assert "plain" not in next(iter(run.records()))
    listed = evaluated(tmp_path, [line("plain", 0, labels={"contains": False})], params_of(cases)).report["results"]
    assert "plain" not in listed
    assert listed["labels"]["checks"][0]["table"]["false_pass"] == 1
    assert listed["labels"]["checks"][0]["judged"] is False


def test_whole_outputs_are_judged_by_people_in_place_of_judges(tmp_path: Path) -> None:
    """With labels for verdicts of judges, and the verdicts of plain checks as they are."""
    lines = [judged_line("m0", 0, True, labels={"polite": False}), judged_line("m0", 1, False, labels={"polite": True})]
    lines += [judged_line("m0", 2, True, "a very long answer indeed", labels={"polite": True})]
    found = results(tmp_path, lines)["labels"]
    assert found["outputs"]["table"] == {"both": 0, "false_pass": 1, "false_fail": 1, "neither": 1}
    assert found["checks"][0]["table"] == {"both": 1, "false_pass": 1, "false_fail": 1, "neither": 0}


def test_thresholds_on_judges_are_advisory_until_enough_is_labelled(tmp_path: Path) -> None:
    """Shown with their verdicts, and no part of the whole one; labels that bear them out change that."""
    rates = {"rates": [{"number": "pass-rate", "least": 0.5}]}
    cases = [{**CASES[4], "thresholds": rates}, {**CASES[5], "thresholds": rates}]
    lines = [judged_line("only", r, False) for r in range(20)] + [line("plain", r) for r in range(20)]
    trusted = evaluated(tmp_path, lines, params_of(cases)).report
    found = trusted["results"]
    assert (
        found["thresholds"] | {"total": 1, "holds": 1, "fails": 0, "advisory": 1, "verdict": "holds"}
        == found["thresholds"]
    )
    assert found["by_case"][0]["thresholds"] == [
        {"number": "pass-rate", "least": 0.5, "verdict": "fails", "advisory": True}
    ]
    assert "1 rest on judges" in markdown(trusted, {})
    alone = evaluated(tmp_path, lines[:20], params_of(cases[:1])).report
    assert alone["results"]["thresholds"]["verdict"] == "advisory"
    assert "Thresholds: 1 rest on judges" in markdown(alone, {})
    decided = evaluated(tmp_path, lines, params_of(cases, judges_decide=True)).report["results"]
    assert decided["thresholds"]["verdict"] == "fails"
    for good, verdict in ((16, "holds"), (17, "fails")):
        lines = [judged_line("only", r, r < good) for r in range(60)] + [line("plain", r) for r in range(20)]
        said = {"only": {"polite": {"passed": list(range(good)), "failed": list(range(good, 60))}}}
        labelled = evaluated(tmp_path, lines, params_of(cases, labels=said)).report["results"]
        assert labelled["thresholds"]["verdict"] == verdict
        (entry,) = labelled["labels"]["checks"]
        assert entry["trusted"] == (good == 17)
        assert ("label 1 more that people pass" in entry["why"]) == (good == 16)
    half = {"only": {"polite": {"passed": list(range(17)), "failed": list(range(17, 34))}}}
    (entry,) = evaluated(tmp_path, lines, params_of(cases, labels=half)).report["results"]["labels"]["checks"]
    assert "its labels are no random sample of its verdicts" in entry["why"], "all that it passed, and half of the rest"
    one = {"only": {"polite": {"failed": list(range(17, 60))}}}
    (entry,) = evaluated(tmp_path, lines, params_of(cases, labels=one)).report["results"]["labels"]["checks"]
    assert "label 17 more that people pass" in entry["why"]


def test_a_repeated_output_is_labelled_once(tmp_path: Path) -> None:
    """The first output counts, and so do its labels."""
    lines = [judged_line("m0", 0, True, labels={"polite": True}), judged_line("m0", 0, False, labels={"polite": False})]
    table = results(tmp_path, lines)["labels"]["checks"][0]["table"]
    assert table == {"both": 1, "false_pass": 0, "false_fail": 0, "neither": 0}


def test_agreement_is_exact_for_labels_of_different_cases(tmp_path: Path) -> None:
    """One label a case: Clopper and Pearson's."""
    lines = [judged_line(f"m{at}", 0, at < 3, labels={"polite": True}) for at in range(4)]
    found = results(tmp_path, lines)["labels"]["checks"][0]["agreement"]
    assert (found["low"], found["high"]) == exact_interval(3, 4)


def test_labels_are_evidence_and_no_other_question(tmp_path: Path) -> None:
    """A labelled run has the specification of the same without labels, so that the two are comparable."""

    def cases(**params: Any) -> RunCases:
        run = evaluated(tmp_path, [judged_line("m0", 0, True)], params_of(CASES, **params))
        counter = CaseCounter(evaluator)
        counter.add(msgspec.json.encode(each) for each in run.records())
        return counter.cases(run.report, run="r", digest_of_report="0")

    bare, labelled = cases(), cases(labels=LABELS, judges_decide=True)
    assert bare.specification == labelled.specification
    assert bare.specification != cases(ks=[1]).specification
    assert bare.cases.judged is not None
    assert labelled.cases.judged is not None
    assert bare.cases.judged.labels == {"polite": {}}
    # Passed by judge and person, and one of one answer of the case.
    assert labelled.cases.judged.labels["polite"]["m0"] == (1, 0, 0, 0, 1, 1)
    assert bare.cases.judged.by == labelled.cases.judged.by
    shown = {"id": "m9", "checks": [{"rubric": "It is short.", "name": "short", "weight": 0}, {"contains": "yes"}]}
    report = evaluated(tmp_path, [line("m9", 0)], params_of([*CASES, shown])).report
    assert [each["check"] for each in report["results"]["labels"]["checks"]] == ["polite", "short"]
    judged = MEASURES.judged(report)
    assert judged is not None
    assert list(judged.labels) == ["polite"]
    assert bare.cases.judged.affects("thresholds.verdict")
    for apart in ("plain.pass_rate", "labels.used", "judges", "cases.answered", "latency_seconds.p50", "cost.total"):
        assert not bare.cases.judged.affects(apart)


outputs = st.lists(
    st.builds(
        lambda case, repeat, passed, said, odd: judged_line(
            case, repeat, passed, labels=None if said is None else {"polite": said, **odd}
        ),
        st.sampled_from(["m0", "m1", "only", "plain", "shown"]),
        st.integers(0, 6),
        st.booleans(),
        st.sampled_from([None, True, False]),
        st.sampled_from([{}, {"nothing": True}]),
    ),
    max_size=30,
)


def state_of(chunk: list[bytes], first: int = 1) -> ChecksState:
    """What a chunk adds up to, by way of the wire."""
    batch = Batch("f", first, b"".join(data + b"\n" for data in chunk))
    return ChecksState.from_wire(evaluator.evaluate(batch, PARAMS).state.to_wire())


@settings(max_examples=60, deadline=None)
@given(outputs, st.data())
def test_labels_add_up_to_the_same_bytes_in_any_cut(chunk: list[bytes], data: st.DataObject) -> None:
    """Tables by check and of whole outputs, plain verdicts, and labels of nothing."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(chunk)), max_size=5)))
    edges = [0, *cuts, len(chunk)]
    states = [state_of(chunk[a:b], a + 1) for a, b in pairwise(edges)]
    order = data.draw(st.permutations(states))
    merged = order[0]
    for state in order[1:]:
        merged.merge(state)
    whole = state_of(chunk)
    for state in (merged, whole):
        state.last, state.overlap = 0, False  # by where the lines stand
    assert merged.to_wire() == whole.to_wire()


def test_labels_go_with_recorded_outputs_alone(tmp_path: Path) -> None:
    """Of one file, which names them by case and repeat; nobody has seen what a target will answer."""
    cases, one, two, labels = (tmp_path / name for name in ("c.yaml", "o.jsonl", "p.jsonl", "l.jsonl"))
    cases.write_text("cases: [{id: m0, input: Hi, checks: [{rubric: It is polite., name: polite}]}]")
    for path in (one, two):
        path.write_bytes(judged_line("m0", 0, True) + b"\n")
    labels.write_text(labels_file([("m0", 0, "polite", True)]))
    found = complete_request(Request([str(cases)], {}, {"outputs": (str(one),), "labels": str(labels)}))
    assert found.params["labels"] == {"m0": {"polite": {"passed": [0], "failed": []}}}
    with pytest.raises(UsageError, match="several files may share"):
        complete_request(Request([str(cases)], {}, {"outputs": (str(one), str(two)), "labels": str(labels)}))
    with pytest.raises(UsageError, match="nobody has seen"):
        list(prompts(Request([str(cases)], {}, {"labels": str(labels)})))


def test_a_check_is_as_fallible_as_its_parts() -> None:
    """Judges, negated and inside of composed checks; a part by its name alone, too."""
    assert fallible({"rubric": "x"})
    assert fallible({"not-rubric": "x", "weight": 0})
    assert fallible({"any": [{"contains": "x"}, {"all": ["is-json", {"not-factual": "x"}]}]})
    assert not fallible({"any": [{"contains": "rubric"}, "is-json"], "name": "rubric"})
    assert judgement("x", True)["check"].startswith("rubric-")


def test_a_label_of_an_output_without_a_verdict_counts_nowhere(tmp_path: Path) -> None:
    """It is reported: the agent may have answered, and the judge has not."""
    broken = {**judgement("yes", True), "output": {"marker": MARKER, "verdict": "fine"}}
    lines = [judged_line("m0", 0, True), line("m0", 1, judgements=[broken], labels={"polite": True})]
    found = results(tmp_path, lines)["labels"]
    assert (found["used"], found["astray"]) == (0, 1)
    assert found["listed"] == ["line 2: 'polite' of m0 repeat 1 has no verdict"]


def test_a_label_of_no_check_takes_none_of_the_others_along(tmp_path: Path) -> None:
    """What a line says of a check that there is counts, also behind what it says of one that there is not."""
    lines = [judged_line(f"m{at}", 2, True, labels={"rude": True, "polite": False}) for at in range(2)]
    found = results(tmp_path, lines, labels={})["labels"]
    assert (found["used"], found["astray"]) == (2, 2)


def test_a_label_has_to_say_of_which_check_it_is(tmp_path: Path) -> None:
    """Several of one name are none of them; a file and a line that contradict one another are an error."""
    twins = [{"id": "t", "checks": [{"rubric": "x"}, {"rubric": "y"}]}]
    data = line("t", 0, judgements=[], labels={"rubric": True})
    found = evaluated(tmp_path, [data], params_of(twins)).report["results"]["labels"]
    assert found["astray"] == 1
    assert "t has several checks called 'rubric': tell them apart by `name`" in found["listed"][0]
    test = OutputScorer(PARAMS).test(judged_line("m0", 2, True, labels={"polite": True}))
    assert test.reason == "labels, polite: true here, and false in --labels"
    test = OutputScorer(PARAMS).test(judged_line("m0", 0, True, labels={"polite": False}))
    assert test.reason == "labels, polite: false here, and true in --labels"


def test_labels_of_a_file_that_are_about_nothing_are_reported(tmp_path: Path) -> None:
    """No such case, no such check, no such output."""
    labels = {
        "gone": {"polite": {"passed": [0, 1], "failed": []}},
        "m0": {"rude": {"passed": [0], "failed": []}, "polite": {"passed": [0], "failed": [7]}},
    }
    found = results(tmp_path, [judged_line("m0", 0, True)], labels=labels)["labels"]
    assert (found["used"], found["astray"]) == (1, 4)
    assert found["listed"] == [
        "2 of 'polite': 'gone' is none of the cases",
        "1 of 'rude': m0 has no check called 'rude'",
        "m0 repeat 7 has no output with a verdict",
    ]
