"""The page of a run: report.html, one file that needs nothing else, made from a report and its records.

A page is a list of sections of plain data (`model`), built from an evaluator's declarations (`build`), its records
packed for the table (`packing`), all rendered as HTML (`render`). Whoever shows more adds a section to the list.
"""

from evalq.producer.page.build import build_page, summary_of
from evalq.producer.page.model import ChartSection, FailedSection, Page, ProseSection, Section, TileSection
from evalq.producer.page.packing import ALL_UP_TO
from evalq.producer.page.write import write_page

__all__ = [
    "ALL_UP_TO",
    "ChartSection",
    "FailedSection",
    "Page",
    "ProseSection",
    "Section",
    "TileSection",
    "build_page",
    "summary_of",
    "write_page",
]
