"""The page about a simulated customer, walked: its files as they stand, with an agent and a customer of a few lines."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from evalq.evalcore.evaluators.checks.cases import load_cases
from tests.integration.harness import evalq

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "a-simulated-customer.md").read_text(encoding="utf-8")
SHOP = """
def answer(call):
    said = " ".join(each["content"] for each in call.get("messages", [{"content": call["prompt"]}]))
    return "A refund is on its way." if "order 9" in said else "It is at the depot." if "17" in said else "Which one?"
"""
CUSTOMER = """
def say(call):
    goal, said = call["user"]["goal"], [each for each in call["messages"] if each["role"] == "assistant"]
    if (call["case"], call["repeat"]) == ("refund", 3):
        return " "
    return ["Hello, I need help.", goal, "Thank you. " + call["user"]["stop"]][len(said)]
"""


def blocks(kind: str) -> list[str]:
    """The page's blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def write_files(folder: Path) -> None:
    for text in blocks("yaml"):
        if name := re.match(r"# (\S+\.yaml)\n", text):
            (folder / name[1]).write_text(text)
    (folder / "shop.py").write_text(SHOP)
    (folder / "customer.py").write_text(CUSTOMER)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run/outputs.jsonl").read_text().splitlines()]


def test_the_page_shows_what_it_says(tmp_path: Path) -> None:
    write_files(tmp_path)
    command = shlex.split(blocks("sh")[0])[1:]
    ended = evalq(*command, cwd=tmp_path)
    assert ended.returncode == 3, ended.stderr
    assert blocks("text")[0].strip() in ended.stdout
    assert "1 call was never answered (1 lost by the simulated user)" in ended.stderr
    parcel = next(line for line in lines(tmp_path) if line["case"] == "parcel")
    said = ["Hello, I need help.", "Find out where parcel 17 is.", "Thank you."]
    assert [each["content"] for each in parcel["messages"] if each["role"] == "user"] == said
    assert [each.get("by") for each in parcel["attempts"]] == ["user", None, "user", None, "user"]
    results = json.loads((tmp_path / "run/report.json").read_bytes())["results"]
    assert results["users"]["lost"] == 1
    (five,) = [each for each in results["pass_hat"] if each["k"] == 5]
    assert (five["value"], five["cases"]) == (1.0, 1)
    # With people's labels, as the page has them; its judge is not here.
    (tmp_path / "labels.csv").write_text(blocks("csv")[0].replace("customer", "stays in role"))
    again = evalq("checks", "cases.yaml", "--outputs", "run/outputs.jsonl", "--labels", "labels.csv", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "by people's labels of 1 of them" in again.stdout
    # The customer says something when it is asked again.
    (tmp_path / "customer.py").write_text(CUSTOMER.replace('("refund", 3)', "None"))
    assert evalq("retry", "run", "--errors", cwd=tmp_path).returncode != 3


def test_its_tables_name_what_there_is(tmp_path: Path) -> None:
    write_files(tmp_path)
    cases = load_cases([str(tmp_path / "cases.yaml")])
    assert cases[0].user is not None
    for row in re.findall(r"^\| `(\w+)` \| ", PAGE, re.MULTILINE):
        assert hasattr(cases[0].user, row), row
    rubric = blocks("yaml")[-1]
    layer = re.sub(r"^", "  ", rubric, flags=re.MULTILINE)
    (tmp_path / "judged.yaml").write_text(f"defaults:\n{layer}\ncases: [{{id: a, input: x}}]\n")
    (case,) = load_cases([str(tmp_path / "judged.yaml")])
    assert case.params["checks"][0]["about"] == "user"
