"""Mutation testing of the evaluators: each small change of their code should make a test fail.

``python -m tests.mutation planagent --sample 200 --seed 1 --out planagent.json`` changes one thing at a time in one
module, runs the tests that execute the changed line, and says which changes no test noticed. Not part of `make test`.

Not changed: docstrings, annotations and aliases of types, ``__all__``, code for type checkers, texts of help and
descriptions, the strings of modules that are prose or made-up data (``sample*.py``, ``texts.py``), and modules that
cannot be imported because their extra is not installed.
"""
