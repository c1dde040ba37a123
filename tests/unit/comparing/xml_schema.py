"""Run by the environment of tests/programs.sh: are files what a schema says?

    .venv/checkers/bin/python tests/unit/comparing/xml_schema.py SCHEMA

Reads the name of a file from each line of standard input, and says "valid" or why it is not, in a line. To import and
read the schema takes longer than to check a file.
"""

from __future__ import annotations

import sys

import xmlschema


def main(schema: str) -> None:
    """Check each file, until there are no more."""
    known = xmlschema.XMLSchema(schema)
    for line in sys.stdin:
        fault = next(known.iter_errors(line.strip("\n")), None)
        sys.stdout.write("valid\n" if fault is None else " ".join(str(fault).split()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
