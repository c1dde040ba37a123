"""Regular expressions and texts made up by hypothesis, from what tells engines apart."""

from __future__ import annotations

import re

from hypothesis import strategies as st

# Letters with several cases, digits and spaces outside ASCII, word characters next to words, line ends.
SIGNS = [
    *"abABkKsSiI1_- \n",
    "\u212a",
    "ſ",
    "İ",
    "ı",
    "٣",
    "\x1c",
    "\u3000",
    "를",
    "가",
    "é",
    "É",
    "ß",
    "ẞ",
    "Σ",
    "ς",
    "😀",
]
CLASSES = [r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", "."]

_sign = st.sampled_from(SIGNS).map(re.escape)
_members = st.lists(_sign | st.sampled_from([r"\w", r"\d", r"\s", "a-k", "A-Z", "가-힣"]), min_size=1, max_size=3)
_set = st.builds(lambda negated, members: f"[{negated}{''.join(members)}]", st.sampled_from(["", "^"]), _members)
_atom = _sign | st.sampled_from(CLASSES) | _set
_edge = st.sampled_from([r"\b", r"\B", "^", r"\A", r"\Z"])
_times = st.builds(str.__add__, st.sampled_from(["*", "+", "?", "{1,3}", "{2}"]), st.sampled_from(["", "?"]))


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    row = st.lists(inner | _edge, min_size=1, max_size=4).map("".join)
    choice = st.lists(inner, min_size=1, max_size=3).map(lambda options: f"(?:{'|'.join(options)})")
    repeat = st.builds(lambda body, times: f"(?:{body}){times}", inner, _times)
    return row | choice | repeat


patterns = st.recursive(_atom, _larger, max_leaves=8)
texts = st.lists(st.sampled_from(SIGNS), max_size=30).map("".join)
