"""A judge that looks for an apology. The marker shows that it read the question to its end."""

import re


def decide(call):
    answer = call["prompt"].rpartition("sorry.")[2]
    marker = re.findall(r'"marker": "([0-9a-f]{16})"', call["prompt"])[-1]
    return {"marker": marker, "pass": "I am sorry" in call["prompt"], "why": f"{len(answer)} characters read"}
