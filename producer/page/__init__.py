"""The page of a run: report.html, one self-contained file, made from a report and its records.

A page is a list of sections of plain data, built from an evaluator's declarations (`build`), its records packed for
the table (`packing`), all rendered as HTML (`render`). Another page adds its own sections to the list.
"""

from evalq.producer.page.build import (
    ChartSection,
    FailedSection,
    ProseSection,
    ReportPage,
    Section,
    TileSection,
    build_page,
    summary_of,
)
from evalq.producer.page.packing import ALL_UP_TO, write_page

__all__ = [
    "ALL_UP_TO",
    "ChartSection",
    "FailedSection",
    "ProseSection",
    "ReportPage",
    "Section",
    "TileSection",
    "build_page",
    "summary_of",
    "write_page",
]
