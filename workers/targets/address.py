"""Addresses and headers of targets that are reached over HTTP, and what of them may be shown."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Annotated
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, Field

__all__ = ["HeaderName", "Headers", "Url", "is_secret", "secrets_of", "shown"]


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


_SECRET_NAME = re.compile(
    r"authori[sz]ation|authenticat|cookie|secret|passw|credential|session|signature|api[-_]?key|token$|"
    r"(^|[-_.])(auth|token|key|sig|code|pwd|pass|private|bearer|jwt)($|[-_.])",
    re.IGNORECASE,
)
"""Names of headers and of a URL's parameters that hold a secret; values of others are as harmless as a version."""
_SECRET_VALUE = re.compile(
    r"secret|^(sk|pk|rk|ghp|gho|github_pat|xox[abp]|hf|glpat)[-_][A-Za-z0-9]|^(AKIA|AIza|eyJ)[A-Za-z0-9]", re.ASCII
)
"""Values that say themselves that they are one, whatever the header's name."""
_SCHEME = re.compile(r"^(bearer|basic|token|apikey|key|digest|negotiate)\s+", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a header, or a parameter of a URL, of this name holds a secret."""
    return bool(_SECRET_NAME.search(name))


def secrets_of(url: str, headers: Mapping[str, str]) -> Iterator[str]:
    """Values of headers and of a URL's parameters that are named as secrets are, and its password: as they stand
    there, and as they are sent and read.
    """
    parts = urlsplit(url)
    for name, value in headers.items():
        if is_secret(name) or _SECRET_VALUE.search(value):
            yield from (value, _SCHEME.sub("", value))
            # A cookie is several: a server may repeat one of them.
            yield from (each.partition("=")[2].strip() for each in value.split(";") if "cookie" in name.lower())
    yield from (value for name, value in parse_qsl(parts.query) if is_secret(name))
    pairs = (pair.partition("=") for pair in parts.query.split("&"))
    yield from (value for name, _, value in pairs if is_secret(name))
    user, password = parts.username or "", parts.password or ""
    if user or password:
        # A name without a password is a key: that is how some services are given theirs.
        secret = password or user
        yield from (secret, unquote(secret))
        yield base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
