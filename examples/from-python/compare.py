"""Evaluate recorded outputs of an old and a new prompt, and compare them."""

import evalq

CASES = {"cases": [{"id": f"q{n}", "checks": [{"contains": "yes"}]} for n in range(20)]}


def outputs(passing):
    """One output for each case; the first ``passing`` of them pass."""
    return [{"case": f"q{n}", "output": "yes" if n < passing else "no"} for n in range(20)]


if __name__ == "__main__":
    import json
    from pathlib import Path

    Path("cases.json").write_text(json.dumps(CASES))
    runs = []
    for name, passing in (("old", 19), ("new", 8)):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in outputs(passing)))
        runs.append(evalq.evaluate("checks", f"{name}.jsonl", params=CASES))
    found = evalq.compare(*runs)
    print(f"pass_rate: {found['pass_rate'].verdict}")
