"""Outputs of a finished run: its report as text, the files of its folder, and the files of -o."""

from evalq.producer.outputs.final import render, write_final, write_report
from evalq.producer.outputs.requested import check_output, check_outputs, read_files, refuse_read, write_output
from evalq.producer.outputs.tables import records_of

__all__ = [
    "check_output",
    "check_outputs",
    "read_files",
    "records_of",
    "refuse_read",
    "render",
    "write_final",
    "write_output",
    "write_report",
]
