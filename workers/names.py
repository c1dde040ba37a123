"""All names that evalq shares with other processes: keys, queues and channels, variables, folders and signals.

Every name that evalq writes begins with evalq's own. `evalq.workers.ledger.keys` lists the keys of the ledger, which
begin with `LEDGER`. docs/reference/names.md is generated from this module, and tests/unit/workers/test_names.py checks
that the code uses no other names.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LEDGER = "evalq:"
"""The prefix of every key of the ledger."""
QUEUES = "evalq."
"""The prefix of every queue, on Redis and on RabbitMQ, and of the Redis transport's other keys."""
SUBMIT_TASK = "evalq.submit"
"""The task by which other programs begin runs."""
SUBMIT_QUEUE = "celery"
"""The queue of that task: Celery's default, so that stock clients find it, in a database of its own."""
SUBMITTED = LEDGER + "submitted:"
"""The prefix of keys beside its results: which request came under a task's id; each lasts a day."""
PREFIX = "EVALQ_"
"""The prefix of evalq's own variables."""


class TransportKeys(NamedTuple):
    """Keys and channels of the Redis transport, besides the queues.

    With `celery_events` or `remote_control` the bindings and channels have kombu's own names instead, for Celery's
    tools: `_kombu.binding*`, `/{db}.celeryev*`, `/{db}.celery.pidbox*`.

    kombu's own names for them have no prefix, so all Celery applications of a database share those. Only evalq uses
    these.
    """

    unacked: str = QUEUES + "unacked"  # {tag: message} of the messages that workers have not yet acknowledged
    unacked_index: str = QUEUES + "unacked_index"  # their tags, sorted by delivery time
    unacked_mutex: str = QUEUES + "unacked_mutex"  # held by the worker that requeues dead workers' messages; expires
    binding: str = QUEUES + "binding.%s"  # queues by exchange; unused, since evalq declares no exchange
    binding_permanent: str = QUEUES + "binding_permanent.%s"
    binding_deadlines: str = QUEUES + "binding_deadlines"
    channel: str = "/evalq-{db}."  # for publish and subscribe; unused


TRANSPORT = TransportKeys()


class Named(NamedTuple):
    """A name, and its meaning for evalq."""

    name: str
    what: str


OWN_VARIABLES: tuple[Named, ...] = (
    Named("EVALQ_<SETTING>", "each setting (docs/reference/settings.md)"),
    Named("EVALQ_<OPTION>", "each option of a command, where its help says so"),
    Named("EVALQ_SETTINGS", "the YAML file of settings"),
    Named("EVALQ_LOGLEVEL", "the log level of a worker's process for live calls; the worker sets it"),
    Named("EVALQ_HANDED", "the pipe through which a command gives API keys to its own worker; the command sets it"),
    Named("EVALQ_CALL", "marks the processes of a call, so that none outlives it; each call sets it"),
    Named("EVALQ_BASELINE", "pytest plug-in: the run to compare with"),
    Named("EVALQ_CANDIDATE", "pytest plug-in: the candidate, such as a commit"),
    Named("EVALQ_ONCE", "pytest plug-in: the key under which a run happens only once"),
    Named("EVALQ_GITLAB_TOKEN", "evalq comment: the token for the notes of a merge request"),
    Named("_EVALQ_COMPLETE", "the shell's completion of commands"),
)
"""evalq's own variables. evalq refuses or warns about any other EVALQ_* variable, see `evalq.workers.settings`."""

OPTION_VARIABLES: tuple[str, ...] = (
    *("ALLOW_DEAD", "ALLOW_INCONCLUSIVE", "BASELINE", "BASE_TARGET", "BIND", "CACHE", "CANDIDATE", "CHUNK_SIZE"),
    *("CONFIRM", "DETACH", "DRY_RUN", "EVERY", "FOLLOW", "FORMAT", "INLINE", "JSON", "LIMIT", "MAX_CALLS", "MAX_COST"),
    *("NO_GATE", "NO_PROGRESS", "ONCE", "OUTPUT", "PARAMS", "PASSES", "PORT", "PRIORITY", "QUIET", "REPEAT", "ROOT"),
    *("RUN_DIR", "SETTINGS", "SETTLE", "STOP", "SUITE", "TAG", "TARGET", "VERBOSE", "VERIFY", "WORKERS"),
)
"""Options of evalq's own commands that are not settings, as named by their variables after EVALQ_. Evaluators declare
further options."""

DEPLOY_VARIABLES: tuple[str, ...] = (
    *("DASHBOARDS", "DATA", "GITLAB_TOKEN", "IMAGE", "PROMETHEUS", "REPLICAS", "SECRETS", "SERVER", "SOURCE"),
    "TARGETS_FOLDER",
)
"""Variables that files in deploy/ read, named after EVALQ_. evalq's commands accept but do not read them."""

FOREIGN_VARIABLES: tuple[Named, ...] = (
    Named("XDG_STATE_HOME", "its folder evalq/ lists the runs that this user started [~/.local/state]"),
    Named("OTEL_EXPORTER_OTLP_ENDPOINT", "the address that spans go to; without it evalq records none"),
    Named("OTEL_SERVICE_NAME", "the name of evalq's spans [evalq]"),
    Named("OPENAI_API_KEY", "the key of a target that is named openai:MODEL"),
    Named("OPENAI_BASE_URL", "where openai:MODEL is called [https://api.openai.com/v1]"),
    Named("ANTHROPIC_API_KEY", "the key of a target that is named anthropic:MODEL"),
    Named("ANTHROPIC_BASE_URL", "where anthropic:MODEL is called [https://api.anthropic.com]"),
    Named("GEMINI_API_KEY", "the key of a target that is named gemini:MODEL"),
    Named("GOOGLE_GEMINI_BASE_URL", "where gemini:MODEL is called [https://generativelanguage.googleapis.com]"),
    Named("AWS_ACCESS_KEY_ID", "the credentials of a target of kind bedrock, with the next two"),
    Named("AWS_SECRET_ACCESS_KEY", "the secret of these credentials"),
    Named("AWS_SESSION_TOKEN", "the token of temporary credentials"),
    Named("OLLAMA_HOST", "where ollama:MODEL is called [127.0.0.1:11434]"),
    Named("GITHUB_ACTIONS", "evalq comment: says that this is a job of GitHub"),
    Named("GITHUB_TOKEN", "evalq comment: the token for the comment of a pull request"),
    Named("GITHUB_EVENT_PATH", "evalq comment: the file that has the number of the pull request"),
    Named("GITHUB_REPOSITORY", "evalq comment: the repository of the pull request"),
    Named("GITHUB_API_URL", "evalq comment: where GitHub is called"),
    Named("GITHUB_SERVER_URL", "evalq comment: where the job's page is"),
    Named("GITHUB_RUN_ID", "evalq comment: the number of the job's page"),
    Named("GITLAB_CI", "evalq comment: says that this is a job of GitLab"),
    Named("CI_API_V4_URL", "evalq comment: where GitLab is called"),
    Named("CI_PROJECT_ID", "evalq comment: the project of the merge request"),
    Named("CI_MERGE_REQUEST_IID", "evalq comment: the number of the merge request"),
    Named("CI_JOB_URL", "evalq comment: the job's page"),
    Named("OPENBLAS_NUM_THREADS", "set to 1 for a worker, unless given"),
    Named("OMP_NUM_THREADS", "set to 1 for a worker, unless given"),
    Named("MKL_NUM_THREADS", "set to 1 for a worker, unless given"),
    Named("REMAP_SIGTERM", "set to SIGQUIT for a worker: Celery's pool reads it"),
)
"""Variables of other programs that evalq itself reads or sets. In addition, evalq reads the variables that a targets
file names (`api_key_env`, the `env` of a command), and Python and the libraries read some for their own purposes
(PYTHONPATH, TMPDIR, HOME, PATH, TERM, NO_COLOR, COLUMNS, the locale's, HTTPS_PROXY and the other proxies',
SSL_CERT_FILE, further OTEL_* variables; for the kind bedrock further AWS_* variables, for vertex those of google-auth,
such as GOOGLE_APPLICATION_CREDENTIALS)."""

CELERY_VARIABLES: tuple[Named, ...] = (
    Named("CELERY_*", "broker, results, loader, configuration module, pool, log, limits"),
    Named("CELERYD_*", "set by Celery's service files"),
    Named("KOMBU_*", "logging and pools of connections"),
    Named("C_*", "debugging of Celery"),
    Named("MP_*", "logging of its pool"),
    Named("_MP_*", "logging of its pool"),
    Named("MULTIPROCESSING_FORKING_DISABLE", "how its pool starts processes"),
    Named("FORKED_BY_MULTIPROCESSING", "how its pool started this process"),
    Named("REMAP_SIGTERM", "the meaning of SIGTERM for its pool"),
    Named("NOSETPS", "names of processes"),
    Named("AUTOSCALE_KEEPALIVE", "its autoscaler"),
    Named("EVENTLET_NOBLOCK", "its pool of green threads"),
    Named("DISABLE_TRACEBACKS", "kombu's log"),
    Named("PICKLE_PROTOCOL", "kombu's serialisers"),
    Named("USE_FAST_LOCALS", "its thread locals"),
    Named("TIMER_DEBUG", "its timer"),
)
"""Variables that Celery and its libraries (kombu, billiard, amqp, vine) read. They are meant for other applications:
evalq removes them from the environment of its own commands and workers before it imports Celery. Programs get them if
the targets file grants them. `*` stands for any ending."""

FOLDERS: tuple[Named, ...] = (
    Named("evalq-runs/", "run folders, in the current folder, unless --out names another"),
    Named("evalq-baselines/", "baselines stored as files beside a suite"),
    Named("evalq-demo/", "made by `evalq demo`"),
    Named("$XDG_STATE_HOME/evalq/", "the runs that this user started, their files and targets file; mode 0700"),
    Named("$TMPDIR/evalq-*/", "temporary files of one process, removed when it ends"),
)
"""Folders that evalq makes by default."""

SIGNALS: tuple[Named, ...] = (
    Named("SIGTERM, SIGINT", "a command stops and can be resumed; a worker finishes its chunks and calls, then exits"),
    Named("SIGQUIT, SIGHUP", "a worker: as SIGTERM"),
    Named("SIGALRM", "a pool process: the time limit of a record has passed"),
    Named("SIGKILL", "sent only to process groups that evalq started, and to processes that left such a group"),
)
"""Signals that evalq handles or sends."""

_CELERY = re.compile("|".join(re.escape(each.name).replace(r"\*", ".*") for each in CELERY_VARIABLES))
_SERVICE_LINK = re.compile(r"[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


def is_celery_variable(name: str) -> bool:
    """Whether Celery or one of its libraries may read the variable ``name``."""
    return _CELERY.fullmatch(name) is not None


def is_service_link(name: str) -> bool:
    """Whether Kubernetes sets ``name`` for a Service called evalq-*, such as EVALQ_REDIS_SERVICE_HOST."""
    return _SERVICE_LINK.fullmatch(name.upper().removeprefix(PREFIX)) is not None
