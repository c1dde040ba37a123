"""Kinds of targets that are models of providers: each kind is one module, with its entry and its client.

`chat` has what they share, `turns` reads a conversation for those whose messages differ from chat completions.
"""
