"""The property of what report.html shows."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from evalq.evalcore.conformance.subject import Example, Subject
from evalq.evalcore.contract.plug_in import located
from evalq.evalcore.views.charts import chart_faults, derived_charts, derived_summary
from evalq.evalcore.views.rows import generic_rows, row_faults

__all__ = ["page"]


def page(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """A report has a headline and charts whose values fit them, a record line a row that says why it failed."""
    report, lines = subject.told(example)
    views = subject.evaluator.views
    if "results" not in report:
        return  # there is nothing to show of a run that ended on its input
    try:
        if views.summary is None:
            summary = derived_summary(report, views.metrics, views.panels)
        else:
            summary = views.summary(report)
        if not summary.headline:
            yield "its page has no headline"
        yield from chart_faults(views.charts or derived_charts(views.metrics, views.panels), report)
        if views.rows is not generic_rows:  # those say what there is to say
            yield from row_faults(views.rows, report, lines)
    except Exception as error:  # any exception at all would end a run at its very end
        yield f"{located(error)} for a page"
