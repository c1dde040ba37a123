"""The page of a policy's keys: types and defaults from the model, and beside them what each key decides."""

from __future__ import annotations

from typing import Any, NamedTuple

from evalq.evalcore.compare.policy import Policy

__all__ = ["EXAMPLE", "policy_page"]

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
missing: 0
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
        "minimum_pairs": Key("cases", "with fewer cases that both runs answered a drop is not GO"),
        "minimum_repeats": Key("answers", "with fewer answers of a case, what it counts in is not GO"),
        "missing": Key(
            "answers",
            "NO-GO where the candidate lacks more than the baseline does; INCONCLUSIVE where more records name no case",
        ),
        "collapse": Key(
            "-",
            "NO-GO for a case whose answers collapsed, as surely as all cases together ask, and INCONCLUSIVE for one "
            "that did by its own verdict alone; `none-new`: NO-GO for one that the baseline does not have, and "
            "INCONCLUSIVE where answers cannot tell",
            "Holm 1979; `none-new`: permutation test of the chance that two answers agree",
        ),
        "specification": Key(
            "-",
            "`same`: another golden set, parameters or version than the baseline's is INCONCLUSIVE; "
            "`intersection`: the cases of both are compared",
        ),
        "quarantine": Key("-", "flaky cases that no `per_case` is decided by"),
        "judges": Key(
            "-",
            "what rests on verdicts of judges is advisory: `labelled`: until people labelled enough of them, "
            "`advisory`: always, `decide`: never",
        ),
        "minimum_labels": Key(
            "labels",
            "so many of each check that a judge decides, of candidate and baseline, where the judge is the same",
        ),
        "labels": Key(
            "-",
            "how the labelled answers were drawn: `random`, or `by_verdict` (some of what the judge passed and some of "
            "what it failed, weighted by how often it does either); labels that do not look so are no evidence",
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
        "on_worse": Key("-", "`block`: what is SUSPECT is NO-GO, and the two share one error; `inconclusive`: exit 4"),
        "as_recorded": Key(
            "-", "hold each case to its recorded answers: it passed before, and fails now; other demands stay"
        ),
        "deterministic": Key("-", "equal answers, and equal files of one run or both, are no copies: they may be GO"),
    },
    "Gate": {
        "metric": Key(
            "-",
            "the number: an evaluator's name (or that of a suite's run), a dot, its path in the results; a measure of "
            "single cases counts as the mean over them, all alike, though the report may weigh them",
        ),
        "min": Key(
            "the number's", "GO where the interval is not below it, NO-GO where it is", f"{_LEVEL}; {_QUANTILE}"
        ),
        "max": Key(
            "the number's", "GO where the interval is not above it, NO-GO where it is", f"{_LEVEL}; {_QUANTILE}"
        ),
        "max_drop": Key(
            "the number's",
            "GO where a fall behind the baseline by so much is excluded, NO-GO where a larger one is shown; else "
            "SUSPECT where it is worse beyond chance",
            f"{_BONETT}; SUSPECT by exact permutation within cases (of one answer each: McNemar), for scores Welch's "
            "t, and where repeats differ the larger p of that and Student's with one spread for both",
        ),
        "max_relative_drop": Key("share of the baseline", "the same, as a share of what the baseline has", _BONETT),
        "max_rise": Key(
            "the number's",
            "the same of a rise, for a number of which less is better (seconds, cost, tokens)",
            f"{_BONETT}; of quantiles order statistics, of means Student's t",
        ),
        "max_relative_rise": Key("share of the baseline", "the same, as a share of what the baseline has", "as above"),
        "equals": Key("-", "what it has to be exactly; GO only if missing answers could not change it"),
        "per_case": Key("-", "what every single case has to keep; of pass/fail only"),
        "tier": Key("-", "`critical` blocks, `supporting` warns, `advisory` is shown"),
    },
    "PerCase": {
        "min_passes": Key("passes", "with `of`: every case passes at least with this share", _CASE),
        "of": Key("answers", "with `min_passes`; however many answers there are"),
        "pass_at_k": Key("-", "at least one of k further answers to a case passes", f"Chen et al. 2021; {_CASE}"),
        "pass_hat_k": Key("-", "all of k further answers to a case pass", f"Yao et al. 2024; {_CASE}"),
    },
    "PassK": {
        "k": Key("answers", "with fewer answers a case is INCONCLUSIVE"),
        "min": Key("probability", "the least that it may be"),
    },
    "Quarantine": {
        "case": Key("-", "its id", "confidence sequence of Robbins 1970 by e-values (Ville 1939)"),
        "reason": Key("-", "stands in every output"),
        "run": Key("-", "of which run, by its evaluator or its name in the suite; left out: of all that have it"),
        "until": Key("day, UTC", "the last day on which it holds; left out: as long as the case is flaky"),
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

A policy is a YAML or JSON file (`evalq gate --policy FILE`), or what stands under `policy` in a suite file. A key that
is unknown, or a value that is wrong, is an error that names its place (`gates.0.per_case.pass_hat_k.k`). So is a bound
or a margin off the scale of its measure: a rate is a share, and five points are 0.05. A day may be written without
quotes. How to use it: [gate a pull request](../how-to/gate-a-pull-request.md),
[choose repeats](../how-to/choose-repeats.md); how often it errs: [error rates](gate-errors.md).

A demand is GO or NO-GO only where the interval of its number decides, at 95 % (NO-GO at an error of .025, which several
critical demands share); else it is SUSPECT or INCONCLUSIVE. What is missing is held against the candidate before it
may go.

Numbers that are no measures of single cases are of five kinds; each evaluator declares them, with the change that is
wanted.

- **Counts** of a run (`outputs.failed`, `usage.errors`, a total cost) are exact, for `min`, `max` and `equals`.
- **Quantiles** (`latency_seconds.p95`, `usage.seconds.p95`) have bounds by order statistics. "p95 at most b" says that
  at most 5 % of answers are above b. With fewer answers than have a bound (p95: 72, for a change 86 a side) it is
  INCONCLUSIVE. The unit is the answer to one of these cases. Where cases changed between the two runs more differently
  than their answers explain, answers of a case are alike, and several count as one.
- **Means and totals** of seconds, cost and tokens (`cost.mean`, `usage.cost`): a change is judged by the mean over
  cases, with Student's interval; cases are the unit where their changes vary more than their answers explain.
- **Estimates** (a diversity, a kappa) decide nothing, unless the results have their interval beside them.
- What has no direction takes no bound of a change: that is an error of the policy.

All keys at once:

"""

_OUTRO = """
## What quarantine does, and what it does not

A case is set aside while all of this holds: its history proves it flaky, which is that the commoner of pass and failure
has a share below .95; none of its answers is missing; its day has not passed. The history is the baseline's answers and
those of earlier runs of its suite and target, in `./evalq-runs` and, for `keep_days`, in the ledger (the last 100 of
either), that have the same evaluator, parameters and digest of the target's settings; answers that came from a cache
count once. Of recorded outputs, whose target nobody knows, it is the baseline alone. The digest does not see what
changes behind a URL: where another version of an agent answers there, its answers are mixed with those of the last one.

The case decides no `per_case`, and still counts in means, bounds, drops, collapse and missing answers. Where it passes
less often than its history has it (Fisher's exact test, one-sided, over all cases in quarantine by Holm), a critical
check is NO-GO; of a case that `--stop` asked no more, now or in its history, INCONCLUSIVE. Each entry stands in the
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
    told = [f"{word} {field[name]:g}" for name, word in bounds.items() if name in field]
    return ", ".join([words[field["type"]], *told])
