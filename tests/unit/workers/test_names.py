"""The list of names in workers/names.py is whole: the code reads no variable, and makes no key, that it lacks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.model.manifest import QUEUE_CLASSES, queue_name
from evalq.producer import commands
from evalq.producer.commands._evaluation import extra_command, start_command
from evalq.workers.ledger.keys import SHARED, HistoryKeys, LookKeys, RateLimitKeys, RunKeys, SweepKeys
from evalq.workers.names import (
    DEPLOY_VARIABLES,
    FOREIGN_VARIABLES,
    LEDGER,
    OPTION_VARIABLES,
    OWN_VARIABLES,
    PREFIX,
    QUEUES,
    TRANSPORT,
    is_service_link,
)
from evalq.workers.settings import Settings

TOP = Path(__file__).parents[3]
ROOMS = ("producer", "workers", "evalcore", "evalq")
BY_ANY_NAME = {
    "workers/processes/environment.py": "takes Celery's out, moves what is secret out of sight, and hands on the rest",
    "workers/recovery/finaliser.py": "hands the environment to a process of evalq's, without secrets",
    "producer/door/serving.py": "hands the environment to a process of evalq's, without secrets",
    "producer/local/processes.py": "hands the environment to a process of evalq's, without secrets",
    "workers/settings.py": "goes through all EVALQ_* variables",
    "producer/cli.py": "looks whether there is an EVALQ_* variable",
    "producer/invocation/invocation.py": "looks at the variable of an option",
    "evalq/_pytest/runs.py": "hands the environment to a command of evalq's",
    "evalcore/conformance/properties.py": "watches who reads it",
}
"""Modules that use the environment other than by a literal name, and why."""
KEYS = {"workers/names.py", "workers/ledger/keys.py", "evalcore/model/manifest.py"}
"""Modules that may spell the beginning of a key or queue."""


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for room in ROOMS:
        for path in sorted((TOP / room).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield str(path.relative_to(TOP)), ast.parse(path.read_text(encoding="utf-8"))


def _environment_uses(tree: ast.Module) -> Iterator[str]:
    """The literal name of each variable that a module reads or sets; "" for a use by any other name."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    names = {node.targets[0].id: node.value.value for node in ast.walk(tree) if _is_constant(node)}  # type: ignore[attr-defined]  # by _is_constant
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv", "os.environb"):
            user = parents[node]
            if isinstance(user, ast.Attribute) and isinstance(parents[user], ast.Call):
                user = parents[user]
            asked = user.args[0] if isinstance(user, ast.Call) and user.args else getattr(user, "slice", None)
            if isinstance(asked, ast.Name) and asked.id in names:
                yield names[asked.id]
            elif isinstance(asked, ast.Constant):
                yield str(asked.value)
            elif isinstance(asked, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in asked.values)
            else:
                yield ""
        elif (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {"environ", "getenv"} & {each.name for each in node.names}
        ):
            yield ""


def _is_constant(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _unlisted(name: str, where: str) -> bool:
    listed = {each.name for each in (*OWN_VARIABLES, *FOREIGN_VARIABLES)}
    if not name:
        return where not in BY_ANY_NAME
    return not any(re.fullmatch(re.escape(name).replace(r"\*", r"\w+"), each) for each in listed)


def test_no_variable_is_read_that_is_not_listed() -> None:
    """By os.environ or os.getenv, in all of the product."""
    found = {(where, name) for where, tree in _sources() for name in _environment_uses(tree)}
    assert {name for _, name in found} >= {"EVALQ_SETTINGS", "REMAP_SIGTERM", "OTEL_SERVICE_NAME"}
    assert not sorted((where, name) for where, name in found if _unlisted(name, where))
    assert {where for where, name in found if not name} == BY_ANY_NAME.keys()


@pytest.mark.parametrize(
    "source",
    [
        "import os\nx = os.environ['SHOP_URL']",
        "import os\nx = os.environ.get('SHOP_URL', '')",
        "import os\nx = os.getenv('SHOP_URL')",
        "import os\nNAME = 'SHOP_URL'\nx = os.environ.get(NAME)",
        "import os\nos.environ.setdefault('SHOP_URL', '1')",
        "import os\nx = dict(os.environ)",
        "from os import environ\nx = environ['SHOP_URL']",
    ],
)
def test_the_check_of_variables_can_fail(source: str) -> None:
    """Each way to read one is seen."""
    assert any(_unlisted(name, "workers/new.py") for name in _environment_uses(ast.parse(source)))


def _key_texts(tree: ast.Module) -> Iterator[str]:
    """Texts that begin like a key or a queue, and are no name of a logger, module, schema or span."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if text.startswith(LEDGER) and not re.match(r"evalq: ", text):
                yield text
            if re.match(r"evalq\.(interactive|bulk|unacked|binding)\b", text):
                yield text


def test_keys_and_queues_are_made_in_one_place() -> None:
    """Nowhere else does a text begin as one."""
    assert not sorted(
        (where, text)
        for where, tree in _sources()
        if where not in KEYS
        for text in _key_texts(tree)
        if text != "evalq:"
    )
    assert list(_key_texts(ast.parse("x = 'evalq:new:key'"))) == ["evalq:new:key"]
    assert list(_key_texts(ast.parse("x = f'evalq.bulk.{code}'"))) == ["evalq.bulk."]


def test_every_key_queue_and_channel_has_evalq_s_name() -> None:
    """Those of the ledger and of the transport; a queue is never one of the transport's keys."""
    keys = [*SHARED, *RunKeys.of("x"), *SweepKeys.of("x"), *HistoryKeys.of("x"), *LookKeys.of("x")]
    assert all(key.startswith(LEDGER) for key in (*keys, *RateLimitKeys.of("x")))
    queues = [queue_name(priority, "0") for priority in QUEUE_CLASSES]
    own = [*TRANSPORT[:-1]]
    assert all(key.startswith(QUEUES) for key in (*queues, *own))
    assert TRANSPORT.channel.startswith("/evalq-")
    assert not set(queues) & set(own)


def test_every_option_s_variable_is_listed() -> None:
    """Those of all commands; a misspelt one is refused by what stands in the list."""
    found: dict[str, Any] = {name: import_module(f"evalq.producer.commands.{commands.module(name)}").COMMAND
                             for name in commands.names()}  # fmt: skip
    own = set()
    for name in plugins.names():
        declared = plugins.get(name).command
        found[name] = start_command(name)
        found |= {extra.name: extra_command(extra) for extra in declared.commands}
        own |= {option.name.upper() for option in declared.options}
        own |= {option.name.upper() for extra in declared.commands for option in extra.options}
    variables = {name.removeprefix(PREFIX) for command in found.values() for name in _variables(command)}
    known = {name.upper() for name in Settings.model_fields}
    assert variables - own - known <= set(OPTION_VARIABLES)
    assert set(OPTION_VARIABLES) <= variables, "what no command reads need not stand there"


def _variables(command: Any) -> Iterator[str]:
    yield from (str(param.envvar) for param in command.params if param.envvar)
    for below in getattr(command, "commands", {}).values():
        yield from _variables(below)


def test_variables_of_deploy_are_those_of_its_files() -> None:
    """And no others: what no file reads would hide a typo."""
    texts = [path.read_text(encoding="utf-8") for path in (TOP / "deploy").rglob("*") if path.is_file()]
    texts += [path.read_text(encoding="utf-8") for path in (TOP / "grafana").rglob("*.y*ml")]
    read = {name for text in texts for name in re.findall(r"(?:\$\{?|\b)EVALQ_([A-Z_]+)", text)}
    known: Mapping[str, object] = Settings.model_fields
    assert set(DEPLOY_VARIABLES) <= read
    assert read - {name.upper() for name in known} - set(OPTION_VARIABLES) <= set(DEPLOY_VARIABLES)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *(("EVALQ_REDIS_SERVICE_HOST", True), ("EVALQ_REDIS_PORT", True), ("EVALQ_REDIS_PORT_6379_TCP_ADDR", True)),
        *(("EVALQ_REDIS_SERVICE_PORT_HTTP", True), ("EVALQ_BORKER", False), ("EVALQ_REPORT", False)),
    ],
)
def test_service_links_of_kubernetes(name: str, is_one: bool) -> None:
    """Variables that it sets in each pod of a namespace that has a Service named evalq-redis."""
    assert is_service_link(name) is is_one
