"""Grafana's own library makes of the pages what the pictures show: transformations, units and words."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from docs.picture.answers import Source, matrix, table
from docs.picture.words import text
from tests.grafana import checks
from tests.grafana.known import TOP
from tests.grafana.pages import PAGES
from tests.grafana.test_picture import Line, source

MODULES = TOP / ".venv" / "npm" / "node_modules"
PANELS = [(uid, panel) for uid, page in PAGES.items() for panel in checks.panels(page)]
NUMBERS = [None, 0, 0.5, 1, 0.8651, 12345.0]


@pytest.fixture(scope="module")
def modules() -> Path:
    """Where Grafana's library is; a skip where it is not, and in CI a failure, unless there is no npm to install it."""
    if not (MODULES / "@grafana" / "data").exists():
        missing = f"@grafana/data is not installed in {MODULES}: sh tests/programs.sh"
        if os.environ.get("CI") and shutil.which("npm"):
            pytest.fail(missing)
        pytest.skip(missing)
    return MODULES


def read(modules: Path, *asked: tuple[Any, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What Grafana makes of panels and the frames that they were answered with."""
    messages = [{"panel": panel, "frames": frames, "values": NUMBERS} for panel, frames in asked]
    command = ["node", "--single-threaded", str(Path(__file__).with_name("reader.cjs"))]
    environment = os.environ | {"NODE_PATH": str(modules)}
    done = subprocess.run(
        command, input=json.dumps(messages), env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def frame(rows: list[Line], value: str = "Value", ref: str = "A") -> dict[str, Any]:
    """A table as Grafana's source of Prometheus data makes it of an instant query."""
    names = sorted({name for row in rows for name in row.labels})
    fields = [{"name": "Time", "type": "time", "values": [1000] * len(rows)}]
    fields += [{"name": name, "type": "string", "values": [row.labels.get(name, "") for row in rows]} for name in names]
    numbers = [row.points[-1][1] if row.points else None for row in rows]
    return {"refId": ref, "fields": [*fields, {"name": value, "type": "number", "values": numbers}]}


def test_grafana_knows_every_transformation_and_unit(modules: Path) -> None:
    """Of all panels of all pages; and one that it does not know is reported."""
    answers = read(modules, *((panel, []) for _, panel in PANELS))
    assert [answer["unknown"] for answer in answers] == [[]] * len(PANELS)
    broken = copy.deepcopy(next(panel for _, panel in PANELS if panel.get("transformations")))
    broken["transformations"][0]["id"] = "sortedBy"
    broken["fieldConfig"]["defaults"]["unit"] = "furlong"
    assert read(modules, (broken, []))[0]["unknown"] == ["sortedBy", "furlong"]


def test_bars_of_the_last_runs_are_those_of_the_pictures(modules: Path) -> None:
    """Names below the bars, the oldest run first, a column for each series, nothing where there was no run."""
    rows = [Line({"series": "a", "position": str(at)}, [(1, at / 10)]) for at in (1, 10, 2)]
    rows.append(Line({"series": "b", "position": "2"}, [(1, 0.5)]))
    bars = [panel for _, panel in PANELS if panel["type"] == "barchart"]
    positions, found = matrix(bars[0], source(*rows))
    for answer in read(modules, *((panel, [frame(rows)]) for panel in bars)):
        ((names, *columns),) = answer["frames"]
        assert (names["type"], names["values"]) == ("string", positions) == ("string", ["10", "2", "1"])
        shown = {each["name"]: [value if value == value else None for value in found[each["name"]]] for each in columns}
        assert {each["name"]: each["values"] for each in columns} == shown
        assert shown["b"] == [None, 0.5, None]


def test_tables_have_the_columns_of_the_pictures(modules: Path) -> None:
    """A row for each label set, labels first, and the numbers under their names."""
    tables = [panel for _, panel in PANELS if panel["type"] == "table"]
    rows = [Line({"agent": name, "suite": "s"}, [(1, number)]) for name, number in (("x", 3.0), ("y", 7.0))]
    asked = []
    for panel in tables:
        refs = [target["refId"] for target in panel["targets"]]
        named = ["Value"] if len(refs) == 1 else [f"Value #{ref}" for ref in refs]
        asked.append((panel, [frame(rows, name, ref) for name, ref in zip(named, refs, strict=True)]))
    for panel, answer in zip(tables, read(modules, *asked), strict=True):
        labels, heads, listed = table(panel, Source(lambda expr: rows, lambda expr: rows))
        (columns,) = answer["frames"]
        assert [each["name"] for each in columns] == [*labels, *heads]
        shown = sorted(zip(*(each["values"] for each in columns), strict=True))
        assert shown == sorted((*words, *numbers) for words, numbers in listed)


def test_numbers_read_as_in_the_pictures(modules: Path) -> None:
    """Words for states and for what is not there are the same; so are shares, points and counts."""
    same = ("percentunit", "locale", "none", "bool_yes_no")
    asked = [panel for _, panel in PANELS if panel["fieldConfig"]["defaults"]["unit"].startswith((*same, "suffix:of"))]
    for panel, answer in zip(asked, read(modules, *((panel, []) for panel in asked)), strict=True):
        defaults = panel["fieldConfig"]["defaults"]
        mapped = {key for each in defaults["mappings"] if each["type"] == "value" for key in each["options"]}
        for number, shown in zip(NUMBERS, answer["texts"], strict=True):
            half = number == 0.5 and not mapped  # JavaScript rounds it up, Python to the even digit
            if number is None or f"{number:g}" in mapped or not (mapped or half):
                assert shown == text(number, defaults), panel["title"]
