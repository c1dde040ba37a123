"""Formats that are asked for by a file's whole name, such as -o every-eval-ever.json or -o week.every-eval-ever.json.

Each is a module that is called like it, with "_" for "-" and without ".json"; its ``write`` is that of all formats.
"""
