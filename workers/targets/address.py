"""Addresses and headers of targets that are reached over HTTP, and what of them may be shown."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Annotated
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, Field

__all__ = ["HeaderName", "Headers", "Url", "secrets_of", "shown"]


def _with_host(url: str) -> str:
    parts = urlsplit(url)  # raises ValueError for brackets that hold no address
    if not parts.hostname or parts.port == 0:  # reading the port raises ValueError for one that is none
        raise ValueError("not an address: it needs a host, and a port from 1 to 65535 or none")
    return url


Url = Annotated[str, Field(pattern=r"^https?://[^\s]+$"), AfterValidator(_with_host)]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
Headers = dict[HeaderName, Annotated[str, Field(pattern=r"^[ -~]*$")]]


def shown(url: str) -> str:
    """Scheme, host, port and path."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path}"


def secrets_of(url: str, headers: Mapping[str, str]) -> Iterator[str]:
    """Values of headers, and what a URL has beside its path, as it stands there and as it is sent and read."""
    parts = urlsplit(url)
    yield from headers.values()
    yield from (value for _, value in parse_qsl(parts.query))
    yield from (pair.partition("=")[2] for pair in parts.query.split("&"))
    user, password = parts.username or "", parts.password or ""
    if user or password:
        # A name without a password is a key: that is how some services are given theirs.
        secret = password or user
        yield from (secret, unquote(secret))
        yield base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
