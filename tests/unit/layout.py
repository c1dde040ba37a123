"""How far the layout of texts alone tells two labels apart: the area under the curve of a classifier that sees no word.

A labelled set is worth nothing where its classes differ in layout: a rule that looks at lengths would pass for one that
understands. Features are lengths, lines, words, and the shares of kinds of characters; the classifier is a logistic
regression with a penalty, and it never sees a task that it is asked about.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FOLDS = 10
_SIGNS = ".,:(/"

Floats = NDArray[np.float64]


def layout(pieces: Sequence[str]) -> list[float]:
    """The features of a text in pieces, such as a test output and the further evidence."""
    text, words = "\n".join(pieces), " ".join(pieces).split()
    size = max(1, len(text))
    return [
        *(float(np.log1p(len(part))) for part in (text, pieces[0] if pieces else "", max(pieces, key=len, default=""))),
        *(float(part.count("\n")) for part in (text, pieces[0] if pieces else "")),
        sum(char.isdigit() for char in text) / size,
        sum(char.isupper() for char in text) / size,
        sum(char.isspace() for char in text) / size,
        sum(not char.isalnum() and not char.isspace() for char in text) / size,
        float(len(words)),
        float(np.mean([len(word) for word in words] or [0])),
        float(len(re.findall(r"\d+", text))),
        *(float(text.count(sign)) for sign in _SIGNS),
    ]


def auc(labels: Sequence[bool], scores: Sequence[float]) -> float:
    """The chance that a true one scores more than a false one, ties by half."""
    known, values = np.array(labels, dtype=bool), np.array(scores, dtype=float)
    more = values[known][:, None] - values[~known][None, :]
    return float((more > 0).mean() + (more == 0).mean() / 2)


def layout_auc(texts: Sequence[Sequence[str]], labels: Sequence[bool], groups: Sequence[Any], seeds: int = 5) -> float:
    """The mean over ``seeds`` ways of cutting the groups into ten folds, each scored by what the others teach."""
    found = np.array([layout(pieces) for pieces in texts])
    features = (found - found.mean(axis=0)) / (found.std(axis=0) + 1e-9)
    known = np.array(labels, dtype=float)
    return float(np.mean([auc(labels, _scores(features, known, groups, seed).tolist()) for seed in range(seeds)]))


def _scores(features: Floats, labels: Floats, groups: Sequence[Any], seed: int) -> Floats:
    names = sorted(set(groups))
    np.random.default_rng(seed).shuffle(names)
    fold = {name: at % _FOLDS for at, name in enumerate(names)}
    folds, scores = np.array([fold[group] for group in groups]), np.zeros(len(labels))
    wide = np.c_[features, np.ones(len(features))]
    for at in range(_FOLDS):
        inside = folds == at
        scores[inside] = wide[inside] @ _fit(wide[~inside], labels[~inside])
    return scores


def _fit(features: Floats, labels: Floats) -> Floats:
    """Weights of a logistic regression with a penalty of 1, by Newton's method."""
    weights = np.zeros(features.shape[1])
    for _ in range(30):
        chance = 1 / (1 + np.exp(-features @ weights))
        curve = (features.T * (chance * (1 - chance))) @ features + np.eye(len(weights))
        weights -= np.linalg.solve(curve, features.T @ (chance - labels) + weights)
    return weights
