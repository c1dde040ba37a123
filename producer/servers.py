"""The servers that a command names, over one connection."""

from __future__ import annotations

import shlex
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import redis

    from evalq.workers.ledger.baselines import BaselineStore, GateLooks
    from evalq.workers.ledger.heartbeats import Heartbeats
    from evalq.workers.ledger.history import Drift, History
    from evalq.workers.ledger.runs import RunLedger
    from evalq.workers.ledger.sweeps import SweepLedger
    from evalq.workers.monitor import Watch
    from evalq.workers.settings import Settings


def named_servers(settings: Settings) -> str:
    """``--broker`` (and ``--ledger``) for a command line in a message, with URL in place of an address with a password.

    Empty where no server is named.
    """
    named = {"broker": settings.broker_address} if settings.broker else {}
    if settings.broker and settings.ledger_apart:
        named["ledger"] = settings.ledger_address
    hidden = {name: bool(address.user or address.password) for name, address in named.items()}
    return " ".join(f"--{name} {'URL' if hidden[name] else shlex.quote(str(at))}" for name, at in named.items())


class Servers:
    """The ledger's server. It connects once, when something of it is first needed.

    A context manager that closes the connection at the end. If no server is ``named``, everything but `settings` raises
    ConfigError.

        with invocation.servers() as servers:
            print(servers.runs.poll(run).progress)

    Connecting raises BrokerUnreachable, ServerRefused or ConfigError. If the server fails later, its client
    library raises inside the context; the context raises BrokerUnreachable or ServerRefused instead, with the address.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def named(self) -> bool:
        """Whether the command names a server."""
        return bool(self.settings.broker)

    @cached_property
    def client(self) -> redis.Redis:
        """The one connection. Raises BrokerUnreachable, ServerRefused and ConfigError."""
        # Not at import, here and below: a command that needs no server must not pay for its client.
        from evalq.workers.servers.connections import connect

        return connect(self.settings.ledger_address, self.settings)

    @cached_property
    def runs(self) -> RunLedger:
        """The ledger of runs."""
        from evalq.workers.ledger.runs import RunLedger

        return RunLedger(self.client, self.settings)

    @cached_property
    def sweeps(self) -> SweepLedger:
        """The ledger of live calls."""
        from evalq.workers.ledger.sweeps import SweepLedger

        return SweepLedger(self.client, self.settings)

    @cached_property
    def heartbeats(self) -> Heartbeats:
        """The heartbeats of workers and callers."""
        from evalq.workers.ledger.heartbeats import Heartbeats

        return Heartbeats(self.client)

    @cached_property
    def history(self) -> History:
        """The finished runs of each suite."""
        from evalq.workers.ledger.history import History

        return History(self.client, self.settings)

    @cached_property
    def baselines(self) -> BaselineStore:
        """Approved runs by name."""
        from evalq.workers.ledger.baselines import BaselineStore

        return BaselineStore(self.client, self.settings)

    @cached_property
    def looks(self) -> GateLooks:
        """The gate's looks at approved runs."""
        from evalq.workers.ledger.baselines import GateLooks

        return GateLooks(self.client)

    @cached_property
    def drift(self) -> Drift:
        """Whether the runs of a suite get worse."""
        from evalq.workers.ledger.history import Drift

        return Drift(self.client, self.settings)

    @cached_property
    def watch(self) -> Watch:
        """The ledger and its fleet from outside."""
        from evalq.workers.monitor import Watch

        return Watch(self.settings, client=self.client)

    def knows(self, run: str) -> bool:
        """Whether the ledger has ``run``, in its calls or in its evaluation. Raises WireError for a damaged header."""
        return self.runs.header(run) is not None or self.sweeps.poll(run) is not None

    def close(self) -> None:
        """Close the connections."""
        # Reading the property would connect in order to close.
        if "watch" in self.__dict__:
            self.watch.close()
        if "client" in self.__dict__:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._explain(error)
        finally:
            self.close()

    def _explain(self, error: BaseException | None) -> None:
        if "client" not in self.__dict__:
            return  # the error is not of this server
        import redis

        if isinstance(error, redis.RedisError):
            from evalq.workers.servers.errors import explained

            raise explained(error, f"the server at {self.settings.ledger_address}") from error
