"""Statistics of repeated answers to one question: how concentrated, how diverse, and how sure of it.

`special` holds the functions behind them (incomplete beta, Student's t), `intervals` the two intervals,
`diversity` the point estimates, `decide` the verdict, the runs still needed, and the correction over many cases.
"""

from evalcore.evaluators.vs.stats.decide import Verdict, holm, runs_to_decide, verdict
from evalcore.evaluators.vs.stats.diversity import (
    chao1,
    chao_shen_bits,
    chao_wang_jost_bits,
    coverage,
    hill,
    miller_madow_bits,
)
from evalcore.evaluators.vs.stats.intervals import (
    ALPHA,
    collision_interval,
    collision_probability,
    mode_share_interval,
    mode_share_p_value,
)
from evalcore.evaluators.vs.stats.special import at_least, at_most, beta_cdf, student_t

__all__ = [
    "ALPHA",
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
    "hill",
    "holm",
    "miller_madow_bits",
    "mode_share_interval",
    "mode_share_p_value",
    "runs_to_decide",
    "student_t",
    "verdict",
]
