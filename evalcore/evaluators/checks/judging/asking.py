"""What a judge of a check is told to do."""

from __future__ import annotations

from evalq.evalcore.records.asking import REPLY, Task

__all__ = ["FACTUAL", "PREFER", "RUBRIC", "SAME", "SCORE"]

_YES_OR_NO = f'{REPLY}"pass": true or false}}'

RUBRIC = Task(
    """You judge an answer that another program gave. Decide whether it meets the requirement, all of it.

The requirement:
{criterion}

What the program was asked:
{input}

Its answer:
{answer}
""",
    _YES_OR_NO,
    ("answer",),
    ("criterion", "input"),
)

FACTUAL = Task(
    """You compare an answer that another program gave with a reference that is known to be right. Decide whether the
answer agrees with it in substance: what it says of the facts in the reference is the same, and nothing in it
contradicts the reference. Its style, its length, and further details that do not contradict the reference do not count.

What the program was asked:
{input}

The reference:
{reference}

The answer:
{answer}
""",
    _YES_OR_NO,
    ("answer",),
    ("reference", "input"),
)

SCORE = Task(
    """You rate an answer that another program gave, on a scale from {from} (the least) to {to} (the most).

What is rated:
{criterion}

What the program was asked:
{input}

Its answer:
{answer}
""",
    REPLY + '"score": a number from {from} to {to}}',
    ("answer",),
    ("criterion", "input", "from", "to"),
)

PREFER = Task(
    """Two programs were asked the same. Decide which of their answers is better: more correct first, then more helpful.
The order in which they stand here says nothing.

What they were asked:
{input}

Answer A:
{first}

Answer B:
{second}
""",
    REPLY + '"better": "A" or "B" or "tie"}',
    ("first", "second"),
    ("input",),
)

SAME = Task(
    """A program was asked the same twice. Decide whether its two answers say the same thing. They do where whoever goes
by the one does, chooses and believes what whoever goes by the other does. Wording, order, length, language and
courtesy do not count. Another name, number, choice, side or day does, and so does a negation.

What it was asked:
{input}

Answer A:
{first}

Answer B:
{second}
""",
    REPLY + '"same": true or false, or null where that cannot be told}',
    ("first", "second"),
    ("input",),
)
