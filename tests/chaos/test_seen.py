"""The comparison of observers: that its truth is true, and that its table says what was scraped."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from tests.chaos.seen.compare import compare
from tests.chaos.seen.course import Course, make_subject, scenario_of
from tests.chaos.seen.crew import Crew, until
from tests.chaos.seen.page import render
from tests.chaos.seen.truth import Look, Truth, run_totals
from tests.integration.harness import committed, info, wait_until

JOURNAL: list[dict[str, Any]] = [
    {"what": "sent", "at": 10.0, "seqs": [0, 1]},
    {"what": "begun", "at": 11.0, "seq": 0},
    {"what": "begun", "at": 11.5, "seq": 1},
    {"what": "ended", "at": 12.0, "seq": 0, "became": "committed"},
    {"what": "sent", "at": 14.0, "seqs": [1]},
    {"what": "begun", "at": 14.5, "seq": 1},
    {"what": "ended", "at": 15.0, "seq": 1, "became": "committed"},
    {"what": "ended", "at": 16.0, "seq": 1, "became": "duplicate"},
    {"what": "begun", "at": 17.0, "seq": 1},
    {"what": "begun", "at": 17.0, "seq": 1},
    {"what": "ended", "at": 18.0, "seq": 1, "became": "raised"},
]


def test_truth_counts_messages_tasks_and_answers_of_a_journal() -> None:
    """A chunk sent and begun again, answered twice, a task that raised, one that never ended; ages from the first."""
    truth = Truth(JOURNAL)
    assert truth.totals() == {
        "sent": 3, "again": 1, "begun": 5, "rejected": 1, "failed": 1, "succeeded": 3, "duplicates": 1,
    }  # fmt: skip
    assert [truth.done(at) for at in (11.9, 12.0, 20.0)] == [0, 1, 2]
    assert [truth.oldest(at) for at in (9.0, 11.0, 14.5, 15.0)] == [0.0, 1.0, 4.5, 0.0]


def test_a_cell_says_what_was_scraped_and_what_was_true_then() -> None:
    """The first scrape after the moment counts; no such number, no value just now and no answer are distinguished."""
    moments = ("calm", "killed", "killed long ago", "stopped", "server away", "server back", "end")
    marks = dict.fromkeys((*moments, "observers restarted"), 11.0)
    truth = Truth(JOURNAL, [Look(11.0, 7, 3, 3), Look(13.0, 4, 3, 2)])
    early: dict[str, Any] = {"began": 10.0, "ended": 10.5, "facts": {"queue": [99.0], "alive": [99.0]}}
    scrape = {"began": 11.2, "ended": 13.0, "facts": {"queue": [5.0], "alive": [3.0, None]}}
    failed = {"began": 11.1, "ended": 11.2, "error": "refused"}
    rows = compare(
        truth, {"chunks": 2, "records": 19, "dead": 1}, marks, {"one": [early, scrape], "two": [failed, scrape]}
    )
    by_title = {title: cells for title, *cells in rows}
    assert by_title["calm: messages in the queue"] == ["7", "5 (true: 4)", "no answer"]
    assert by_title["calm: workers alive"] == ["3", "3 / none", "no answer"]
    assert by_title["end: chunks done"] == ["2", "no answer", "no answer"]
    assert by_title["calm: oldest pending work, s"][1] == "-"
    line = {"seed": 5, "date": "D", "commit": "C", "server": "S", "seconds": 9.0, "struck": ["a", "b"], "rows": rows}
    versions = {"evalq exporter": "1", "celery-exporter": "2", "Flower": "3"}
    shown = render([line | {"versions": versions, "seconds": 1.0}, line | {"versions": versions}])
    assert shown.count("## Seed 5") == 1
    assert "9 s. In this order: a; b." in shown


def test_truth_equals_the_ledger_and_the_exporter_after_a_kill(tmp_path: Path) -> None:
    """A real run of workers that talk, one of them killed and a record that kills: three counts from three sides."""
    chunks = 40
    course = Course(scenario_of(3, chunks), make_subject(tmp_path / "input", chunks, 3, pause=0.1), tmp_path, None)
    crew = Crew(tmp_path / "observers", tmp_path, course.server.url, None, ["evalq exporter"])
    try:
        course.server.start()
        crew.open()
        course.begin()
        wait_until(lambda: course.observer.latest.committed >= 5 and course.workers(), "some chunks are committed")
        victim = course.workers()[0]

        def has_told_all() -> bool:
            """Killed between a commit and its own word of it, it would leave a chunk of which no journal knows."""
            victim.signal(signal.SIGSTOP)
            if course.truth().done(time.time()) == committed(course.server, course.out):
                return True
            victim.signal(signal.SIGCONT)
            return False

        wait_until(has_told_all, "the journal has all that the ledger has")
        victim.kill()
        course.finish()
        course.mark("end")
        until(crew, course.marks["end"])
        shown = crew.lines("evalq exporter")[-1]["facts"]
    finally:
        crew.close()
        course.close()
    truth, run, progress = course.truth(), run_totals(course.out), info(course.out)["progress"]
    totals = truth.totals()
    assert run == {"chunks": chunks, "records": course.subject.records - 1, "dead": 1}
    assert truth.done(course.marks["end"]) == progress["committed"] == chunks
    assert totals["again"] == progress["reconciled"]
    assert totals["duplicates"] == progress["duplicates"]
    assert totals["rejected"] >= 3, "a record is dead after three deaths"
    assert totals["begun"] == totals["succeeded"] + totals["failed"] + totals["rejected"]
    messages = {"again": totals["again"], "duplicates": totals["duplicates"], **run}
    assert {name: shown[name] for name in messages} == {name: [float(value)] for name, value in messages.items()}
