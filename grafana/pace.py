"""Counters as a pace, and histograms as the times that most stay below."""

from __future__ import annotations

from grafana.view import Query


def rate(metric: str, *by: str, held: str = "") -> str:
    """A counter's pace, per second, by labels."""
    grouped = f" by ({', '.join(by)}) " if by else ""
    # Grafana's interval covers at least four scrapes, however short the range of the page is.
    return f"sum{grouped}(rate({metric}{held}[$__rate_interval]))"


def quantiles(metric: str, by: str, held: str = "") -> tuple[Query, ...]:
    """What half of the times stay below, and 95 of 100: one series each for every value of ``by``."""
    buckets = rate(f"{metric}_bucket", by, "le", held=held)
    named = ((0.5, "half below"), (0.95, "95 % below"))
    return tuple(Query(f"histogram_quantile({at}, {buckets})", f"{{{{{by}}}}}: {name}") for at, name in named)
