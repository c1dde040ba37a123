"""Statistics of repeated answers to one question: how concentrated, how diverse, and how sure of it.

`intervals` has the two intervals, `diversity` the point estimates, `decide` the verdict, the runs still needed, and the
correction over many cases; `sequence` bounds that may be looked at after every run, `spending` verdicts that may be, up
to a known number of runs, `rules` the choice between these and the fixed number of runs. `block` says all of that of
one case, `nowhere` whether any case is collapsed.
"""

from evalq.evalcore.modes.decide import Verdict, fisher_combined, holm, rejected, runs_to_decide, verdict
from evalq.evalcore.modes.diversity import (
    chao1,
    chao_shen_bits,
    chao_wang_jost_bits,
    coverage,
    hill,
    miller_madow_bits,
)
from evalq.evalcore.modes.intervals import (
    ALPHA,
    collision_interval,
    collision_probability,
    mode_share_interval,
    mode_share_p_value,
)
from evalq.evalcore.modes.rules import FIXED_RUNS, ShareRule, stopping_rule
from evalq.evalcore.modes.sequence import mode_share_sequence, sequence_p_value, sequence_verdict
from evalq.evalcore.modes.spending import MOST_LOOKS, Limits, limits, spending_p_value, spending_verdict
from evalq.evalcore.statistics.distributions import at_least, at_most, beta_cdf, student_t

__all__ = [
    "ALPHA",
    "FIXED_RUNS",
    "MOST_LOOKS",
    "Limits",
    "ShareRule",
    "Verdict",
    "at_least",
    "at_most",
    "beta_cdf",
    "chao1",
    "chao_shen_bits",
    "chao_wang_jost_bits",
    "collision_interval",
    "collision_probability",
    "coverage",
    "fisher_combined",
    "hill",
    "holm",
    "limits",
    "miller_madow_bits",
    "mode_share_interval",
    "mode_share_p_value",
    "mode_share_sequence",
    "rejected",
    "runs_to_decide",
    "sequence_p_value",
    "sequence_verdict",
    "spending_p_value",
    "spending_verdict",
    "stopping_rule",
    "student_t",
    "verdict",
]
