"""Sockets that listen, on hosts that have IPv4, IPv6 or both."""

from __future__ import annotations

import errno
import socket
from http.server import HTTPServer
from socketserver import ThreadingMixIn

HERE = "localhost"
"""This machine alone, by its loopback address of either kind."""
EVERYWHERE = "*"
"""Every address of this machine, of either kind."""
_BACKLOG = 128
_OTHER_KIND = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}
"""Errors of a machine without IPv4 or without IPv6 for an address of that kind."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at ``host`` (a name, an address, `HERE` or `EVERYWHERE`); port 0 is a free one.

    If a name has several addresses, it takes the first that this machine has. Raises OSError.
    """
    refused: OSError | None = None
    for family, address in _addresses(host, port):
        try:
            both = family == socket.AF_INET6 and address == "::" and socket.has_dualstack_ipv6()
            return socket.create_server((address, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
        except OSError as error:
            refused = refused or error
            if error.errno not in _OTHER_KIND:
                break  # such as a taken port: nobody would look for it at another address
    raise refused or OSError(errno.EADDRNOTAVAIL, "no such address")


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    if host == EVERYWHERE:
        return [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")]  # noqa: S104 - as the user asked
    if host == HERE:
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    bare = host.removeprefix("[").removesuffix("]")
    found = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, str(address[0])) for family, _, _, _, address in found]


class Listening(ThreadingMixIn, HTTPServer):
    """An HTTP server on a socket of `listen`. Until it is bound, ``server_address`` is the requested address.

    Each request has its own thread, so that a slow one does not block others.
    """

    daemon_threads = True

    def server_bind(self) -> None:
        """Bind the listening socket. Raises OSError."""
        self.socket.close()  # the library's socket, of a kind of address that this machine may not have
        host, port = self.server_address[:2]
        self.socket = listen(str(host), int(port))
        self.server_address = self.socket.getsockname()
        # Not the host's full name: for that, the library asks a name server.
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)

    def server_activate(self) -> None:
        """Do nothing: the socket listens already."""

    @property
    def netloc(self) -> str:
        """Host and port as a URL has them."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"{host}:{self.server_port}"
