"""What a finished run shows: its text, the files of its folder, and those asked for, a module for each ending."""

from evalq.producer.outputs.final import write_final, write_report
from evalq.producer.outputs.requested import check_output, check_outputs, read_files, refuse_read, write_output
from evalq.producer.outputs.rows import records_of
from evalq.producer.outputs.text import render

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
