"""Errors of servers as evalq's own: those that pass by themselves, and those that a person must fix.

They name the server and explain the errors of redis, kombu and amqp in words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import redis
from amqp.exceptions import AccessRefused, AMQPError, NotAllowed, RecoverableChannelError, RecoverableConnectionError
from kombu.exceptions import KombuError, OperationalError
from redis import exceptions as kinds

from evalq.evalcore.errors import BrokerUnreachable, EvalqError, ServerRefused


class Unusable(redis.RedisError):
    """A server that evalq cannot work with as it is, and the remedy."""


SERVER_ERRORS = (redis.RedisError, KombuError, AMQPError, ConnectionError, TimeoutError)
"""Errors of the client libraries and of sockets."""

PASSING: Mapping[str, str] = {
    "OOM": "is full (OOM)",
    "MISCONF": "cannot write to its disk (MISCONF)",
    "LOADING": "is loading its data (LOADING)",
    "READONLY": "is a read-only replica (READONLY)",
    "NOREPLICAS": "has too few replicas to accept writes (NOREPLICAS)",
    "BUSY": "is busy with a script (BUSY)",
    "MASTERDOWN": "is a replica that has lost its primary (MASTERDOWN)",
    "CLUSTERDOWN": "is part of a cluster that is down (CLUSTERDOWN)",
    "TRYAGAIN": "is moving keys (TRYAGAIN)",
    "UNBLOCKED": "changed its role (UNBLOCKED)",
    "NOSCRIPT": "has just forgotten its scripts (NOSCRIPT)",
}
"""Codes of Redis and Valkey for errors that may pass by themselves, in words."""

_REFUSED: Mapping[str, str] = {
    "NOPERM": "give this user the rights in deploy/redis/users.acl",
    "NOAUTH": "put user and password into the URL",
    "WRONGPASS": "check user and password in the URL",
    "WRONGTYPE": "another program uses evalq's keys there: give evalq a database of its own",
    "MOVED": "evalq needs one server, not a cluster's node",
    "CROSSSLOT": "evalq needs one server, not a cluster's node",
}
_OTHERWISE = "see the server's log, and evalq doctor --broker URL (evalq needs Redis 7.0 or any Valkey)"

_CODE_OF: Mapping[type, str] = {
    kinds.OutOfMemoryError: "OOM",
    kinds.BusyLoadingError: "LOADING",
    kinds.ReadOnlyError: "READONLY",
    kinds.MasterDownError: "MASTERDOWN",
    kinds.ClusterDownError: "CLUSTERDOWN",
    kinds.TryAgainError: "TRYAGAIN",
    kinds.NoPermissionError: "NOPERM",
    kinds.NoScriptError: "NOSCRIPT",
    kinds.MovedError: "MOVED",
    kinds.ClusterCrossSlotError: "CROSSSLOT",
}
"""Classes whose message lacks the code, since redis-py cuts it off."""

_PIPELINED = re.compile(r"^Command # \d+ \(.*?\) of pipeline caused error: ", re.DOTALL)
_SCRIPT = re.compile(r",? script: .{0,60}on @user_script.*", re.DOTALL)
_IN_SCRIPT: Mapping[str, re.Pattern[str]] = {
    # Valkey and Redis 7.0: missing rights of a script's user have no code.
    "NOPERM": re.compile(r"ACL failure in script|The user executing the script can't "),
    # Nor have replies of a cluster's node; outside scripts, they have a code.
    "MOVED": re.compile(r"Script attempted to access (a non local key|keys that )"),
    "CLUSTERDOWN": re.compile(r"Script attempted to execute a (write )?command while the cluster is down"),
}
"""Codes for errors of commands in scripts that have no code."""
_CODE = re.compile(r"^-?([A-Z]{2,}) ")
_SHOWN = 200


def explained(error: BaseException, server: str) -> EvalqError:
    """An error of a client library as evalq's own: BrokerUnreachable if it passes by itself, otherwise ServerRefused.

    ``server`` is the server's name for users, including its URL without passwords.
    """
    if isinstance(error, EvalqError):
        return error
    cause = error.__cause__
    if isinstance(error, KombuError) and isinstance(cause, (*SERVER_ERRORS, OSError)):  # kombu wraps, batches too
        error = cause
    if isinstance(error, Unusable):
        return ServerRefused(f"{server} cannot be used: {error}")
    text = _server_text(error)
    # Before `_away`: redis-py derives these from its ConnectionError, but waiting does not make a password right.
    if isinstance(error, (kinds.AuthenticationError, kinds.AuthorizationError)):
        return ServerRefused(f"{server} refuses this user and password: {text}; {_REFUSED['WRONGPASS']}")
    code = _code(error, text)
    if code in PASSING:
        return BrokerUnreachable(f"{server} {PASSING[code]}: {text}")
    if _away(error):
        return BrokerUnreachable(f"{server} does not answer: {text}")
    if isinstance(error, (AccessRefused, NotAllowed)):
        return ServerRefused(f"{server} refuses this user: {text}; check the user's rights and the URL's virtual host")
    return ServerRefused(f"{server} refuses what evalq asks of it: {text}; {_REFUSED.get(code, _OTHERWISE)}")


def _away(error: BaseException) -> bool:
    """Whether nothing answers at present."""
    redis_away = (kinds.ConnectionError, kinds.TimeoutError)
    rabbit_away = (RecoverableConnectionError, RecoverableChannelError, OperationalError)
    return isinstance(error, (*redis_away, *rabbit_away, OSError))


def _code(error: BaseException, text: str) -> str:
    in_script = (code for code, pattern in _IN_SCRIPT.items() if pattern.match(text))
    if known := _CODE_OF.get(type(error)) or next(in_script, ""):
        return known
    match = _CODE.match(text)
    return match[1] if match else ""


def _server_text(error: BaseException) -> str:
    """The server's own message on one line, without additions of redis-py and scripts."""
    text = _PIPELINED.sub("", str(error)) or type(error).__name__
    return " ".join(_SCRIPT.sub("", text).split())[:_SHOWN].rstrip(". ")
