"""What BFCL's own checker says of made calls: bfcl_trajectory.py GIVEN."""

import json
import sys
import types
from pathlib import Path

# The table of all models imports the clients of all providers; the checker takes one thing from it.
table = types.ModuleType("bfcl_eval.constants.model_config")
table.MODEL_CONFIG_MAPPING = {"made": types.SimpleNamespace(underscore_to_dot=False)}  # type: ignore[attr-defined]
sys.modules[table.__name__] = table

from bfcl_eval.constants.enums import Language  # type: ignore[import-not-found] # noqa: E402
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker  # type: ignore[import-not-found] # noqa: E402


def said(question: dict, answer: list) -> str:  # type: ignore[type-arg]
    """Whether the calls are valid."""
    try:
        calls = [{call["name"]: call["arguments"]} for call in answer]
        found = ast_checker(
            question["functions"], calls, question["possible"], Language.PYTHON, question["category"], "made"
        )
    except Exception:
        return "-"
    return "01"[found["valid"]]


given = json.loads(Path(sys.argv[1]).read_text())
print(json.dumps(["".join(said(each, answer) for answer in each["answers"]) for each in given]))  # noqa: T201
