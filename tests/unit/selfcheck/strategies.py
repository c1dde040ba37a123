"""Evidence made up by hypothesis, full of what danger signals are made of."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_PIECES = [
    *(
        "should work",
        "Should WORK",
        "probably",
        "improbably",
        "I believe",
        "i thin\u212a",
        "I think",
        "typically",
        "usually",
    ),
    *("without concrete evidence", "might be", "could be", "perhaps", "assume", "TODO", "fixme", "hack", "uſually"),
    *("한글 문장", "😀", "é", "\n", " ", ".", "x" * 60, "\x1c", '"quoted"', "\\", "\t"),
]
texts = st.lists(st.sampled_from(_PIECES) | st.text(max_size=5), max_size=12).map("".join)

_requirement = st.fixed_dictionaries({"requirement": texts, "met": st.booleans()}, optional={"note": texts})
_assumption = st.fixed_dictionaries(
    {"assumption": texts, "verified": st.booleans()}, optional={"source": st.none() | texts}
)
_item = st.fixed_dictionaries({"type": texts, "content": texts})
_change = st.fixed_dictionaries({"file": texts, "diff": texts})

evidence: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "testOutput": st.none() | texts,
        "testsPassed": st.none() | st.booleans(),
        "requirementsList": st.none() | st.lists(_requirement, max_size=3),
        "assumptions": st.none() | st.lists(_assumption, max_size=3),
        "evidence": st.none() | st.lists(_item, max_size=3),
        "codeChanges": st.none() | st.lists(_change, max_size=2),
        "unknown": texts,
    },
)
