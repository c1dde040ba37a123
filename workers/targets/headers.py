"""What response headers say of limits: Retry-After in both forms, and the x-ratelimit family."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from evalq.workers.targets.answers import Quota, RateLimits

__all__ = ["rate_limits", "retry_after"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_EPOCH = 1e9
"""A reset beyond this many seconds is a point in time, not a wait."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from ``retry-after-ms`` or ``retry-after`` (seconds, or a date held against the server's own
    Date); None where nothing usable is told. ``headers`` has lower-case names or ignores case.
    """
    # The finer form first, where a server sends both.
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    told = headers.get("retry-after")
    seconds = _number(told)
    if seconds is not None or told is None:
        return seconds
    until = _date(told)
    return None if until is None else max(0.0, (until - _now(headers)).total_seconds())


def rate_limits(headers: Mapping[str, str]) -> RateLimits:
    """``x-ratelimit-{limit,remaining,reset}-{requests,tokens}``, and without a last part for requests."""
    return RateLimits(_quota(headers, "requests"), _quota(headers, "tokens"))


def _quota(headers: Mapping[str, str], what: str) -> Quota:
    def told(part: str) -> str | None:
        value = headers.get(f"x-ratelimit-{part}-{what}")
        return headers.get(f"x-ratelimit-{part}") if value is None and what == "requests" else value

    limit, remaining = _number(told("limit")), _number(told("remaining"))
    return Quota(
        None if limit is None else int(limit),
        None if remaining is None else int(remaining),
        _seconds(told("reset"), headers),
    )


def _seconds(text: str | None, headers: Mapping[str, str]) -> float | None:
    """A reset as "1m30.5s", as seconds, or as a point in time (seconds since 1970)."""
    if text is None:
        return None
    number = _number(text)
    if number is not None:
        return number if number < _EPOCH else max(0.0, number - _now(headers).timestamp())
    parts = _DURATION.findall(text)
    # All of the text or nothing: "1m30x" may mean anything.
    if not parts or "".join(amount + unit for amount, unit in parts) != text.strip():
        return None
    return float(sum(float(amount) * _UNITS[unit] for amount, unit in parts))


def _number(text: str | None) -> float | None:
    """A finite number that is not negative."""
    # float() alone would take signs, "nan", "inf" and digits of any script.
    return float(text) if text is not None and re.fullmatch(r"\s*\d{1,15}(\.\d{1,9})?\s*", text, re.ASCII) else None


def _date(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _now(headers: Mapping[str, str]) -> datetime:
    """The server's own time where it gives one: a wrong clock here must not lengthen a wait."""
    return _date(headers.get("date")) or datetime.now(UTC)
