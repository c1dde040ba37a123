"""The page of a policy's keys: types and defaults from the model, and beside them what each key decides."""

from __future__ import annotations

from typing import Any, NamedTuple

from evalq.evalcore.compare.policy import Policy

EXAMPLE = """\
gates:
  - metric: vs.pass_rate          # an evaluator's number, or that of a suite's run
    max_drop: 0.05                # against the baseline
    tier: critical
  - metric: vs.pass_rate
    min: 0.8
    max: 1.0
    max_relative_drop: 0.1
    tier: supporting
  - metric: vs.usage.seconds.p95
    max_rise: 0.5                 # of a number of which less is better
    max_relative_rise: 0.2
    tier: advisory
  - metric: vs.pass_rate
    per_case:
      min_passes: 7
      of: 10
      pass_at_k: {k: 3, min: 0.9}
      pass_hat_k: {k: 3, min: 0.3}
  - {metric: vs.collapse_nowhere.verdict, equals: holds, tier: advisory}
minimum_pairs: 10
minimum_repeats: 5
missing: 2
collapse: none-new
specification: same
judges: labelled
minimum_labels: 20
labels: random
judge_error: 0.2
labels_days: 90
worse_cases: none
on_worse: inconclusive
as_recorded: false
deterministic: false
uneven_repeats: false
quarantine:
  - case: refund-17
    run: vs
    reason: the search index is rebuilt at night, ticket 12
    until: 2030-12-31
"""


class Key(NamedTuple):
    """What the model cannot tell of a key: its unit, what it decides, and where the rule comes from."""

    unit: str
    decides: str
    rule: str = "-"


_QUANTILE = "of quantiles the exact binomial test of the share beyond it (Thompson 1936)"
_BONETT = "Bonett and Price 2012; Tango 1998"
_LEVEL = "hull of Student's interval, with a worst and a best answer added, and Wilson's 1927"
_CASE = "interval of Clopper and Pearson 1934; NO-GO over cases by Holm 1979"

_KEYS: dict[str, dict[str, Key]] = {
    "Policy": {
        "gates": Key("-", "the demands; GO needs every critical one, and for NO-GO they share one error", "Holm 1979"),
        "minimum_pairs": Key("cases", "if both runs answered fewer cases, a drop is not GO"),
        "minimum_repeats": Key("answers", "if a case has fewer answers, a demand that counts it is not GO"),
        "missing": Key(
            "answers",
            "how many answers the candidate may lack beyond the baseline; more are INCONCLUSIVE. Without this key, "
            "lost answers are INCONCLUSIVE only if chance does not explain them, or if a demand would not be GO with "
            "all of them at the worst. More unusable answers are NO-GO if an exact test shows it. INCONCLUSIVE if more "
            "records name no case",
        ),
        "collapse": Key(
            "-",
            "`none`: NO-GO if a case has collapsed, tested over all cases together; INCONCLUSIVE if it has by its own "
            "verdict alone; `none-new`: NO-GO if a case has collapsed that had not in the baseline; INCONCLUSIVE if "
            "answers cannot tell",
            "Holm 1979; `none-new`: permutation test of the chance that two answers agree",
        ),
        "specification": Key(
            "-",
            "`same`: another golden set, parameters or version than the baseline's is INCONCLUSIVE; "
            "`intersection`: the cases of both are compared",
        ),
        "quarantine": Key("-", "flaky cases that `per_case` leaves out"),
        "judges": Key(
            "-",
            "when a demand that rests on judges is advisory; `labelled`: until people have labelled enough verdicts; "
            "`advisory`: always; `decide`: never",
        ),
        "minimum_labels": Key(
            "labels",
            "how many labels each check of a judge needs, in candidate and baseline, if the judge is the same",
        ),
        "labels": Key(
            "-",
            "how the labelled answers were drawn: `random`, or `by_verdict` (some that the judge passed and some that "
            "it failed, weighted by how often it does either); labels that do not look so are no evidence",
            "hypergeometric test by verdict, and a permutation test of cases within verdicts",
        ),
        "judge_error": Key("share", "a judge decides only where each of its error rates is surely less than this"),
        "labels_days": Key("days", "labels of a run that began longer ago get a warning"),
        "worse_cases": Key(
            "-",
            "`none`: a case that fell beyond chance, among all cases, turns GO or INCONCLUSIVE into SUSPECT; "
            "`allowed`: such cases are not looked for",
            "Fisher 1935 by case; Tarone 1990 and Holm 1979 over cases",
        ),
        "on_worse": Key("-", "`block`: SUSPECT becomes NO-GO, and the two share one error; `inconclusive`: exit 4"),
        "as_recorded": Key(
            "-", "compare each case's recorded answers: it passed before and fails now; other demands stay"
        ),
        "deterministic": Key("-", "equal answers, and equal files of one run or both, are no copies: they may be GO"),
        "uneven_repeats": Key(
            "-",
            "cases of recorded outputs differ in their number of repeats on purpose. Without this key, evalq counts "
            "repeats that a case has fewer than the others as missing",
        ),
    },
    "Gate": {
        "metric": Key(
            "-",
            "the number: an evaluator's name (or that of a suite's run), a dot, its path in the results; a measure of "
            "single cases counts as the mean over them, all alike, though the report may weigh them",
        ),
        "min": Key("the number's", "GO if the interval is not below it, NO-GO if it is", f"{_LEVEL}; {_QUANTILE}"),
        "max": Key("the number's", "GO if the interval is not above it, NO-GO if it is", f"{_LEVEL}; {_QUANTILE}"),
        "max_drop": Key(
            "the number's",
            "GO if the interval excludes a fall of this size, NO-GO if it shows a larger one, SUSPECT if the number is "
            "worse beyond chance",
            f"{_BONETT}; SUSPECT by exact permutation within cases (of one answer each: McNemar), for scores Welch's "
            "t, and where repeats differ the larger p of that and Student's with one spread for both",
        ),
        "max_relative_drop": Key("share of the baseline", "the same, as a share of the baseline's number", _BONETT),
        "max_rise": Key(
            "the number's",
            "the same for a rise, if less of the number is better (seconds, cost, tokens)",
            f"{_BONETT}; of quantiles order statistics, of means Student's t",
        ),
        "max_relative_rise": Key("share of the baseline", "the same, as a share of the baseline's number", "as above"),
        "equals": Key("-", "the exact value; GO only if missing answers could not change it"),
        "per_case": Key("-", "demands on every single case; pass/fail only"),
        "tier": Key("-", "`critical` blocks, `supporting` warns, `advisory` is shown"),
    },
    "PerCase": {
        "min_passes": Key("passes", "with `of`: the least share of passes of every case", _CASE),
        "of": Key("answers", "with `min_passes`; the share counts, not the number of answers"),
        "pass_at_k": Key("-", "at least one of k further answers to a case passes", f"Chen et al. 2021; {_CASE}"),
        "pass_hat_k": Key("-", "all of k further answers to a case pass", f"Yao et al. 2024; {_CASE}"),
    },
    "PassK": {
        "k": Key("answers", "with fewer answers a case is INCONCLUSIVE"),
        "min": Key("probability", "the least probability"),
    },
    "Quarantine": {
        "case": Key("-", "its id", "confidence sequence of Robbins 1970 by e-values (Ville 1939)"),
        "reason": Key("-", "every output shows it"),
        "run": Key("-", "the run, by its evaluator or its name in the suite; default: all runs with the case"),
        "until": Key("day, UTC", "the last day of the quarantine; default: as long as the case is flaky"),
    },
}
"""{model: {key: what it is}}; every key of every model has one, or the page is not made."""

_TITLES = {
    "Policy": "The policy",
    "Gate": "A gate, in `gates`",
    "PerCase": "`per_case`",
    "PassK": "`pass_at_k` and `pass_hat_k`",
    "Quarantine": "A case, in `quarantine`",
}

_INTRO = """\
# The keys of a policy

A policy is a YAML or JSON file (`evalq gate --policy FILE`), or the key `policy` of a suite file. An unknown key or a
wrong value is an error that names its place (`gates.0.per_case.pass_hat_k.k`). So is a bound or a margin off the scale
of its measure: a rate is a share, and five points are 0.05. You may write a day without quotes. How to use a policy:
[gate a pull request](../how-to/gate-a-pull-request.md), [choose repeats](../how-to/choose-repeats.md). How it decides:
[gate rules](deciding.md). How often it errs: [error rates](gate-errors.md).

The interval of a number, at 95 %, decides a demand. If the interval does not decide, the demand is SUSPECT or
INCONCLUSIVE. NO-GO has an error of .025, which several critical demands share. Missing answers count against the
candidate before it can get GO.

Some numbers are not measures of single cases. Each evaluator declares them, with the direction that is better. There
are these kinds:

- **Counts** of a run (`outputs.failed`, `usage.errors`, a total cost) are exact, for `min`, `max` and `equals`.
- **Quantiles** (`latency_seconds.p95`, `usage.seconds.p95`) have bounds by order statistics. "p95 at most b" means that
  at most 5 % of answers are above b. Below a minimum of answers there is no bound, and the demand is INCONCLUSIVE (p95:
  72 answers, for a change 86 on each side). The unit is the answer to one of these cases. If the cases' changes differ
  more than their answers explain, answers to one case are alike, and evalq counts several as one.
- **Means and totals** of seconds, cost and tokens (`cost.mean`, `usage.cost`): the mean over cases decides a change,
  with Student's interval. If the cases' changes vary more than their answers explain, cases are the unit.
- **Estimates** (a diversity, a kappa) decide nothing, unless the results have their interval beside them.
- A number without a direction takes no bound of a change: evalq reports an error of the policy.

All keys at once:

"""

_OUTRO = """
## What quarantine does, and what it does not

evalq quarantines a case while all of this holds: its history proves it flaky, none of its answers is missing, and its
day has not passed. A case is flaky if the commoner of pass and failure has a share below .95.

The history is the baseline's answers and those of earlier runs of its suite and target. It comes from `./evalq-runs`
and, for `keep_days`, from the ledger (the last 100 runs of each). The runs must have the same evaluator, parameters and
digest of the target's settings. Answers that came from a cache count once. For recorded outputs the target is unknown,
so the history is the baseline alone. The digest does not show changes behind a URL. If another version of an agent
answers there, evalq mixes its answers with those of the last one.

The case decides no `per_case`. It still counts in means, bounds, drops, collapse and missing answers. If it passes less
often than its history shows, a critical check is NO-GO (Fisher's exact test, one-sided, over all cases in quarantine by
Holm). If `--stop` stopped the case, now or in its history, the check is INCONCLUSIVE. Each entry appears in the
decision as text, Markdown and JSON (`quarantined`), in JUnit as skipped, and as a notice.
"""


def policy_page() -> str:
    """All of it. Raises LookupError for a key of the model that has no row here, or a row whose key is gone."""
    schema = Policy.model_json_schema()
    models = {"Policy": schema, **schema["$defs"]}
    if (odd := models.keys() ^ _KEYS.keys()) or (odd := {
        f"{name}.{key}" for name in _KEYS for key in models[name]["properties"].keys() ^ _KEYS[name].keys()
    }):  # fmt: skip
        raise LookupError(f"docs/policy_page.py and the model of a policy differ: {', '.join(sorted(odd))}")
    parts = [f"{_INTRO}```yaml\n{EXAMPLE}```\n"]
    for name, keys in _KEYS.items():
        fields, required = models[name]["properties"], models[name].get("required", ())
        rows = [
            (
                f"`{key}`",
                _type(fields[key]),
                about.unit,
                _default(fields[key], key in required),
                about.decides,
                about.rule,
            )
            for key, about in keys.items()
        ]
        heads = ("key", "type", "unit", "default", "what it decides", "rule")
        lines = [heads, ["---"] * len(heads), *rows]
        parts.append(f"## {_TITLES[name]}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines))
    return "\n".join(parts) + _OUTRO


def _default(field: dict[str, Any], required: bool) -> str:
    if required:
        return "required"
    value = field.get("default")
    return "-" if value in (None, "", []) else str(value)


def _type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type(each) for each in field["anyOf"] if each.get("type") != "null")
    if "$ref" in field:
        return "mapping"
    if "enum" in field:
        return ", ".join(field["enum"])
    if field["type"] == "array":
        return "list of mappings"
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    bounds = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}
    limits = [f"{word} {field[name]:g}" for name, word in bounds.items() if name in field]
    return ", ".join([words[field["type"]], *limits])
