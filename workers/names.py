"""The names that evalq uses outside its own process, in one place: what it writes, and what it reads of others.

Keys, queues and channels on servers; variables of the environment; folders; signals. Everything that evalq writes
begins with its own name. The ledger's keys are listed by `evalq.workers.ledger.keys`, under `LEDGER`.
docs/reference/names.md is made from this module, and tests/unit/workers/test_names.py holds the code against it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LEDGER = "evalq:"
"""Every key of the ledger begins so."""
QUEUES = "evalq."
"""Every queue begins so, on Redis and on RabbitMQ, and every key that the Redis transport keeps beside queues."""
PREFIX = "EVALQ_"
"""Every variable of evalq's own begins so."""


class TransportKeys(NamedTuple):
    """Keys and channels of the Redis transport beside the queues. kombu's own names for them carry no prefix, so every
    Celery application of a database shares them; these are evalq's alone.
    """

    unacked: str = QUEUES + "unacked"  # {tag: message} of messages that a worker has and did not acknowledge
    unacked_index: str = QUEUES + "unacked_index"  # their tags, by when they were taken
    unacked_mutex: str = QUEUES + "unacked_mutex"  # which worker puts back those of dead ones; it expires
    binding: str = QUEUES + "binding.%s"  # queues by exchange; evalq declares no exchange, so there are none
    binding_permanent: str = QUEUES + "binding_permanent.%s"
    binding_deadlines: str = QUEUES + "binding_deadlines"
    channel: str = "/evalq-{db}."  # of publish and subscribe; evalq sends nothing there


TRANSPORT = TransportKeys()


class Named(NamedTuple):
    """A name, and what evalq does with it."""

    name: str
    what: str


OWN_VARIABLES: tuple[Named, ...] = (
    Named("EVALQ_<SETTING>", "each setting (docs/reference/settings.md)"),
    Named("EVALQ_<OPTION>", "each option of a command, where its help says so"),
    Named("EVALQ_SETTINGS", "the YAML file of settings"),
    Named("EVALQ_LOGLEVEL", "how much a worker's process for live calls logs; the worker sets it"),
    Named("EVALQ_HANDED", "the pipe through which a command hands keys to a worker of its own; the command sets it"),
    Named("EVALQ_CALL", "marks processes of a call, so that none outlives it; each call sets it"),
    Named("EVALQ_BASELINE", "pytest plug-in: the run to compare with"),
    Named("EVALQ_CANDIDATE", "pytest plug-in: the candidate, such as a commit"),
    Named("EVALQ_ONCE", "pytest plug-in: the key of a run that is done once"),
    Named("_EVALQ_COMPLETE", "the shell's completion of commands"),
)
"""Variables of evalq's own. Any other EVALQ_* variable is refused or warned of, see `evalq.workers.settings`."""

OPTION_VARIABLES: tuple[str, ...] = (
    *("ALLOW_DEAD", "ALLOW_INCONCLUSIVE", "BASELINE", "BASE_TARGET", "BIND", "CACHE", "CANDIDATE", "CHUNK_SIZE"),
    *("CONFIRM", "DETACH", "DRY_RUN", "EVERY", "FOLLOW", "FORMAT", "INLINE", "JSON", "LIMIT", "MAX_CALLS", "MAX_COST"),
    *("NO_GATE", "NO_PROGRESS", "ONCE", "OUTPUT", "PARAMS", "PASSES", "PORT", "PRIORITY", "QUIET", "REPEAT", "ROOT"),
    *("RUN_DIR", "SETTINGS", "STOP", "SUITE", "TAG", "TARGET", "VERBOSE", "VERIFY", "WORKERS"),
)
"""Options of evalq's own commands that are no settings, as their variables name them after EVALQ_. Evaluators have
further ones, by their own names."""

DEPLOY_VARIABLES: tuple[str, ...] = (
    *("DASHBOARDS", "DATA", "IMAGE", "PROMETHEUS", "REPLICAS", "SECRETS", "SERVER", "TARGETS_FOLDER"),
)
"""Variables that files in deploy/ read, after EVALQ_: the commands know them and read none of them."""

FOREIGN_VARIABLES: tuple[Named, ...] = (
    Named("XDG_STATE_HOME", "whose folder evalq/ notes the runs that this user began [~/.local/state]"),
    Named("OTEL_EXPORTER_OTLP_ENDPOINT", "where spans go; without it evalq records none"),
    Named("OTEL_SERVICE_NAME", "the name of evalq's spans [evalq]"),
    Named("OPENAI_API_KEY", "the key of a target that is named openai:MODEL"),
    Named("OPENAI_BASE_URL", "where openai:MODEL is called [https://api.openai.com/v1]"),
    Named("OLLAMA_HOST", "where ollama:MODEL is called [127.0.0.1:11434]"),
    Named("OPENBLAS_NUM_THREADS", "set to 1 for a worker, unless given"),
    Named("OMP_NUM_THREADS", "set to 1 for a worker, unless given"),
    Named("MKL_NUM_THREADS", "set to 1 for a worker, unless given"),
    Named("REMAP_SIGTERM", "set to SIGQUIT for a worker: Celery's pool reads it"),
)
"""Variables of others that evalq itself reads or sets, by name. Beside them: the variables that a targets file names
(`api_key_env`, the `env` of a command), and those that Python and the libraries read for their own purposes
(PYTHONPATH, TMPDIR, HOME, PATH, TERM, NO_COLOR, COLUMNS, the locale's, HTTPS_PROXY and the other proxies',
SSL_CERT_FILE, further OTEL_* variables)."""

CELERY_VARIABLES: tuple[Named, ...] = (
    Named("CELERY_*", "broker, results, loader, configuration module, pool, log, limits"),
    Named("CELERYD_*", "what service files of Celery's set"),
    Named("KOMBU_*", "logging and pools of connections"),
    Named("C_*", "debugging of Celery"),
    Named("MP_*", "logging of its pool"),
    Named("_MP_*", "logging of its pool"),
    Named("MULTIPROCESSING_FORKING_DISABLE", "how its pool starts processes"),
    Named("FORKED_BY_MULTIPROCESSING", "how its pool started this process"),
    Named("REMAP_SIGTERM", "what SIGTERM means to its pool"),
    Named("NOSETPS", "names of processes"),
    Named("AUTOSCALE_KEEPALIVE", "its autoscaler"),
    Named("EVENTLET_NOBLOCK", "its pool of green threads"),
    Named("DISABLE_TRACEBACKS", "kombu's log"),
    Named("PICKLE_PROTOCOL", "kombu's serialisers"),
    Named("USE_FAST_LOCALS", "its thread locals"),
    Named("TIMER_DEBUG", "its timer"),
)
"""What Celery and its libraries (kombu, billiard, amqp, vine) read. They are for other applications: evalq takes them
out of the environment of its own commands and workers before it imports Celery, and gives them to programs that a
targets file grants them to. `*` stands for any ending."""

FOLDERS: tuple[Named, ...] = (
    Named("evalq-runs/", "run folders, under the current folder, unless --out says where"),
    Named("evalq-baselines/", "files of baselines that are kept beside a suite"),
    Named("evalq-demo/", "what `evalq demo` makes"),
    Named("$XDG_STATE_HOME/evalq/", "the runs that this user began, their files and targets file; mode 0700"),
    Named("$TMPDIR/evalq-*/", "scratch, private to a process, and removed when it ends"),
)
"""Folders that evalq makes where nobody names one."""

SIGNALS: tuple[Named, ...] = (
    Named("SIGTERM, SIGINT", "a command stops and can be resumed; a worker ends its chunks and calls and leaves"),
    Named("SIGQUIT, SIGHUP", "a worker: as SIGTERM"),
    Named("SIGALRM", "a pool process: the time of a record is over"),
    Named("SIGKILL", "sent to process groups that evalq started, to what left such a group, and to no other"),
)
"""Signals that evalq handles or sends."""

_CELERY = re.compile("|".join(re.escape(each.name).replace(r"\*", ".*") for each in CELERY_VARIABLES))
_SERVICE_LINK = re.compile(r"[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


def is_celery_variable(name: str) -> bool:
    """Whether Celery or one of its libraries may read the variable ``name``."""
    return _CELERY.fullmatch(name) is not None


def is_service_link(name: str) -> bool:
    """Whether Kubernetes names a variable of a Service ``evalq-...`` so: EVALQ_REDIS_SERVICE_HOST, for one."""
    return _SERVICE_LINK.fullmatch(name.upper().removeprefix(PREFIX)) is not None
