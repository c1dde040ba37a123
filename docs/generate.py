"""Pages made from the code and recorded results: settings, policy, life, targets, metrics, evaluators, the fault suite.

With --check, exits 1 when one is out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

import msgspec
from checks_page import checks_page
from evaluator_pages import FOLDER, evaluator_page
from policy_page import policy_page
from pydantic_core import PydanticUndefined

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Params
from evalq.evalcore.model.life import LEDGER_STATES, MEANING, MOVES, next_step
from evalq.evalcore.model.manifest import QUEUE_CLASSES, queue_name
from evalq.evalcore.trust import KEY_VARIABLES, TABLE, WRITERS, Reach, Thing
from evalq.evalcore.views.markdown import table
from evalq.evalcore.views.metrics import LABELS
from evalq.producer.door.request import MOST_BYTES, SubmitRequest, schema
from evalq.workers.exporter.catalogue import FAMILIES
from evalq.workers.exporter.family import SECONDS, MetricFamily, quality
from evalq.workers.ledger.keys import SHARED, HistoryKeys, LookKeys, RateLimitKeys, RunKeys, SweepKeys
from evalq.workers.names import CELERY_VARIABLES, FOLDERS, FOREIGN_VARIABLES, OWN_VARIABLES, SIGNALS, TRANSPORT
from evalq.workers.ratelimit import PacePolicy
from evalq.workers.settings import Settings
from evalq.workers.targets.answers import KINDS
from evalq.workers.targets.config import OWN_KINDS, kind_of
from evalq.workers.targets.target import DEFAULT_RETRIES, CaseBudget, Price, RetryRule, Target

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))  # the tests are no installed package


def settings_page() -> str:
    """Every setting, its variable, default and meaning."""
    rows: list[tuple[object, ...]] = []
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=False)
        rows.append((f"EVALQ_{name.upper()}", name, default if default not in ("", ()) else "-", field.description))
    return (
        "# Settings\n\n"
        "evalq reads settings once, when a command starts. The command line wins over the environment, and the\n"
        "environment over the YAML file that `--settings` (or EVALQ_SETTINGS) names. Its keys are the names below.\n\n"
        + table(("variable", "key", "default", "meaning"), rows)
    )


def targets_page() -> str:
    """What is written by hand, and behind it every key of a targets file, by kind."""
    page = (DOCS / "reference" / "targets.md").read_text(encoding="utf-8")
    parts = [page.partition("\n## Kind ")[0]]
    for kind in OWN_KINDS:
        model = kind_of(kind)
        assert model is not None
        parts.append(f"## Kind {kind}\n\n{model.__doc__}\n\n{_keys(model, but={*Target.model_fields, 'kind'})}")
    parts.append(f"## Keys of every kind\n\n{_keys(Target)}")
    parts.append(f"`price`:\n\n{_keys(Price)}")
    retries = [(kind, DEFAULT_RETRIES.get(kind, RetryRule())) for kind in KINDS]
    rows: list[tuple[object, ...]] = [(kind, r.times, r.wait_seconds, r.factor) for kind, r in retries]
    parts.append(f"`retries`, for each kind of failure:\n\n{_keys(RetryRule)}")
    parts.append(
        "`case_budget`: a case without an answer ends once a part of it is spent, and its last failure says so. 0 is "
        "no bound. Each repeat of a case has a budget of its own. Tries count over kills and resumes; what a server "
        f"lost does not.\n\n{_keys(CaseBudget)}"
    )
    parts.append("By default:\n\n" + table(("failure", "times", "wait_seconds", "factor"), rows))
    pace: list[tuple[object, ...]] = list(msgspec.structs.asdict(PacePolicy()).items())
    parts.append(
        "## The policy of the pace\n\nSeconds, calls a second, or shares.\n\n" + table(("name", "value"), pace)
    )
    return "\n".join(parts)


def _keys(model: type[Params], but: Container[str] = ()) -> str:
    rows: list[tuple[object, ...]] = []
    for name, field in model.model_fields.items():
        if name not in but:
            default = field.get_default(call_default_factory=True)
            plain = "" if field.is_required() else default if default not in (None, (), {}, "") else "-"
            rows.append((name, "required" if field.is_required() else plain, field.description))
    return table(("key", "default", "meaning"), rows)


def names_page() -> str:
    """Every name that evalq uses on servers, in the environment, in folders and as signals."""
    ledger: list[tuple[object, ...]] = [(f"{name}*" if name.endswith(":") else name,) for name in sorted(set(SHARED))]
    parts: list[tuple[object, ...]] = [
        (keys.__name__.removesuffix("Keys"), key)
        for keys, of in ((RunKeys, "RUN"), (SweepKeys, "RUN"), (HistoryKeys, "SUITE"), (LookKeys, "DIGEST"))
        for key in keys.of(of)
    ]
    parts += [("RateLimit", key) for key in RateLimitKeys.of("TARGET")]
    queues: list[tuple[object, ...]] = [(queue_name(priority, "CODE"), "queue") for priority in QUEUE_CLASSES]
    queues += [(name, "key of the Redis transport") for name in TRANSPORT[:-1]]
    queues += [(TRANSPORT.channel, "channels; evalq sends nothing there")]
    head = ("name", "what evalq does with it")
    tables = {
        "Variables of evalq's own": table(head, [tuple(each) for each in OWN_VARIABLES]),
        "Variables of others": table(head, [tuple(each) for each in FOREIGN_VARIABLES])
        + "\nTargets name further ones: `api_key_env`, and the `env` of a command. Python and the libraries read\n"
        "their own: PYTHONPATH, TMPDIR, HOME, PATH, TERM, NO_COLOR, COLUMNS, the locale's, HTTPS_PROXY and the other\n"
        "proxies', SSL_CERT_FILE, further OTEL_* variables. For targets of kind bedrock, botocore reads further AWS_*\n"
        "variables; for kind vertex, google-auth reads its own, such as GOOGLE_APPLICATION_CREDENTIALS.\n",
        "Variables of Celery's that evalq sets aside": table(head, [tuple(each) for each in CELERY_VARIABLES])
        + "\nThey are for other applications. A program that a target grants one of them gets it.\n",
        "Folders": table(head, [tuple(each) for each in FOLDERS]),
        "Signals": table(head, [tuple(each) for each in SIGNALS]),
        "Queues, and what stands beside them": table(("name", "kind"), queues)
        + "\nOn RabbitMQ evalq uses the default exchange, and declares none. Only [evalq.submit](submit.md) uses\n"
        "Celery's own names, on a server or database of its own (`submit_broker`, `submit_results`).\n",
        "Keys of the whole ledger": table(("key",), ledger),
        "Keys of one run, sweep, history, gate or target": table(("of", "key"), parts),
    }
    intro = (
        "# Names\n\nAll names that evalq writes to servers and disks begin with its own name. So evalq may share\n"
        "a database, a virtual host and a folder with other programs. A misspelt `EVALQ_*` variable is an error\n"
        "that names the nearest one. evalq warns of a variable that is like none, and of a table `[tool.evalq]` in\n"
        "`pyproject.toml`.\n\n"
        "Queues carry the code version. After an upgrade old workers keep their queues.\n\n"
    )
    return intro + "\n".join(f"## {title}\n\n{text}" for title, text in tables.items())


def life_page() -> str:
    """Each state of a run: what it says, what may follow, and what its user can do."""
    rows: list[tuple[object, ...]] = []
    for state, meaning in MEANING.items():
        following = ", ".join(sorted(MOVES[state])) or "nothing"
        where = "folder and ledger" if state in LEDGER_STATES else "folder"
        rows.append((state, where, meaning, following, next_step(state, "RUN")))
    heads = ("state", "stands in", "meaning", "may be followed by", "if no process drives it")
    return (
        "# The life of a run\n\n"
        "`run.json`, `evalq list` and `evalq status` show these states, for evaluations and live sweeps alike. The\n"
        "ledger knows some of them; only the run folder has the others. Both refuse a move that is not in this\n"
        "table.\n\n"
        "`RUN` is a run's folder, or its id under `./evalq-runs`. A run on a server takes `--broker URL` (or\n"
        "`EVALQ_BROKER`), an inline one `--inline`. `run.json` names the last server of a run (`server`), and so does\n"
        "every hint. `pause` and `cancel` need that server, and so does `resume` of a live sweep while some of its\n"
        "calls are not collected.\n\n"
        f"{table(heads, rows)}\n"
        "One process drives a run: it holds the lock on `run.lock` in the folder. A second command names that process\n"
        "and ends (exit 3), or waits. `evalq watch RUN` waits, and so does a command whose `--once` key has a run\n"
        "already. It shows the run's progress, ends with its report and exit code, and changes nothing. Ctrl-C ends\n"
        "only the waiting. With the run's own `--once` key it takes over when the driver is killed or interrupted.\n\n"
        "`evalq cancel RUN` is for good. From then on `resume`, `retry` and the same `--once` key refuse the run,\n"
        "here and from every folder on its server, until `evalq prune RUN` removes it.\n"
    )


GROUPS = {
    "work": "The work",
    "fleet": "The fleet",
    "runs": "Runs",
    "calls": "Live calls",
    "traces": "Followed traces",
    "server": "The ledger's server",
    "exporter": "The exporter",
}


def metrics_page() -> str:
    """Every metric that the exporter shows: the fleet's from their catalogue, and the evaluators' own."""
    intro = (
        "# Metrics\n\n`evalq exporter` shows these metrics. The ledger counts in the same step as the commit, so\n"
        "counters are exact. They survive every restart, except that of a server that loses its data\n"
        "([observers under faults](observers.md) compares them with the truth). Records are lines or rows of the\n"
        "inputs. Beyond `max_suites` suites the label `suite` is `other`. Beyond `max_series` label sets of a metric,\n"
        "all labels of the rest are `other`.\n"
    )
    parts = [intro]
    for group, title in GROUPS.items():
        parts.append(f"## {title}\n\n{_families([each for each in FAMILIES if each.group == group])}")
    bounds = ", ".join(f"{bound:g}" for bound in SECONDS)
    parts.append(f"Histograms have classic buckets up to {bounds} seconds.\n")
    parts += [_evaluator_metrics(plugins.get(name)) for name in plugins.names()]
    rows: list[tuple[object, ...]] = [*LABELS.items(), ("suite", "the name given with --suite")]
    rows += [("target", "the agent that live calls went to; empty for recorded outputs")]
    parts.append("## Labels of evaluators' gauges\n\n" + table(("label", "meaning"), rows))
    return "\n".join(parts)


def _evaluator_metrics(evaluator: Evaluator[Any, Any]) -> str:
    shown = [family for metric in evaluator.views.metrics for family in quality(metric)]
    states: list[tuple[object, ...]] = [
        (metric.name, ", ".join(f"{number:g} {text}" for text, number in metric.states))
        for metric in evaluator.views.metrics
        if metric.states
    ]
    values = "\n" + table(("metric", "values"), states) if states else ""
    intro = "These describe the newest finished run of each suite and target."
    return f"## {evaluator.name}\n\n{intro}\n\n{_families(shown)}{values}"


def _families(families: list[MetricFamily]) -> str:
    return table(
        ("name", "type", "labels", "meaning"), [(f.name, f.kind, ", ".join(f.labels), f.help) for f in families]
    )


def security_page() -> str:
    """SECURITY.md, with the trust table as the code has it."""
    text = (DOCS.parent / "SECURITY.md").read_text(encoding="utf-8")
    begin, end = "<!-- trust table: made by docs/generate.py -->\n", "<!-- end of the trust table -->"
    before, _, rest = text.partition(begin)
    words = {Reach.ANY: "any", Reach.NONE: "none"}
    rows: list[tuple[object, ...]] = [
        (f"{writer.value}: {WRITERS[writer]}", *(words.get(row.reach(thing), f"in {row.within}") for thing in Thing))
        for writer, row in TABLE.items()
    ]
    listed = ", ".join(f"`{kind}:MODEL` {name}" for kind, name in KEY_VARIABLES.items())
    keys = f"\nOf keys, a target that the command line names without a file reads one variable: {listed}.\n"
    made = table(("who", *(thing.value for thing in Thing)), rows) + keys
    return before + begin + made + end + rest.partition(end)[2]


def submit_page() -> str:
    """The request of the Celery task: its keys, its result, and where its JSON Schema is."""
    rows: list[tuple[object, ...]] = [
        (name, "" if field.default in (None, "", PydanticUndefined) else field.default, field.description)
        for name, field in SubmitRequest.model_fields.items()
    ]
    return (
        "# The Celery task evalq.submit\n\n"
        "Any Celery client can begin runs, if a worker has `--submit FOLDER` and the setting `submit_broker`\n"
        "([how to](../how-to/enqueue-from-a-program.md)). Its keyword arguments are one request:\n\n"
        f"{table(('key', 'default', 'meaning'), rows)}\n"
        "Give `suite` or `run`, one of the two. [submit.schema.json](submit.schema.json) has all keys of a run for\n"
        "each evaluator; `evalq schema` prints it, with those of your plug-ins.\n\n"
        "- Files are named relative to FOLDER, and may not lead out of it. URLs, absolute paths, `..` and links out\n"
        "  of it are errors. A suite in it may also name files under the worker's roots.\n"
        "- Targets are names in the worker's targets file.\n"
        "- A run is detached: no `stop`, `cache`, `reuse` or judge. Files that a suite's `output` names are not\n"
        "  written.\n"
        f"- A request has at most {MOST_BYTES:,} bytes of JSON. Callbacks, chains, `eta` and `countdown` are errors;\n"
        "  `expires` works.\n\n"
        "## The result\n\n"
        "The result of the task is the run's id, or for a suite an object: the id of each run by its name. After an\n"
        "error the task has the state FAILURE; its message says what to change. Results last a day.\n\n"
        "The same request under the same task id is one run, however often its message comes. Another request under\n"
        "that id is an error, which names the first one's run. `evalq.connect(id, broker=...)` takes the id, and so\n"
        "does `evalq watch ID`.\n"
    )


def submit_schema() -> str:
    """The JSON Schema of the request, with the evaluators of evalq itself."""
    return json.dumps(schema(plugins.built_in()), indent=2, ensure_ascii=False) + "\n"


def pages() -> dict[Path, str]:
    """Each page and its text as it should be."""
    from tests.chaos import table as chaos
    from tests.chaos.seen import page as observers

    return {
        DOCS.parent / "SECURITY.md": security_page(),
        DOCS / "reference" / "settings.md": settings_page(),
        DOCS / "reference" / "names.md": names_page(),
        DOCS / "reference" / "life.md": life_page(),
        DOCS / "reference" / "targets.md": targets_page(),
        DOCS / "reference" / "metrics.md": metrics_page(),
        DOCS / "reference" / "policy.md": policy_page(),
        DOCS / "reference" / "submit.md": submit_page(),
        DOCS / "reference" / "submit.schema.json": submit_schema(),
        DOCS / "reference" / "checks.md": checks_page(),
        **{FOLDER / f"{name}.md": evaluator_page(name) for name in plugins.built_in()},
        chaos.PAGE: chaos.page(),
        observers.PAGE: observers.page(),
    }


def main() -> int:
    """Write the pages, or compare them."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in sys.argv:
            sys.stderr.write(f"{path.name} is out of date: run .venv/bin/python docs/generate.py\n")
        else:
            path.write_text(pages()[path], encoding="utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
