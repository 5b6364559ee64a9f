"""How much a comparison proves: betting against the null, and an error budget over generations.

Pure functions over numbers. Two claims need two kinds of evidence. That one checkpoint drives
better than another is shown track by track, and may be stopped at any time (e-processes). That one
configuration is better than another is shown training seed by training seed (sign flips,
`common.statistics.sign_flip_test`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.statistics import EXACT_LIMIT

BETS = np.linspace(0.0, 0.95, 20)[1:]
"""Shares of the capital that the mixture's gamblers stake, in each round the same."""


def e_process(values: ArrayLike) -> NDArray[np.float64]:
    """(n,) evidence after each of n values in [-1, 1] that their mean is above zero.

    The wealth of a gambler who bets against "mean at most zero" in a fair game: an equal mixture
    over fixed stakes b of the products of 1 + b x (Shafer 2021; Waudby-Smith and Ramdas 2024).
    Under that null the chance that it ever reaches 1 / a is at most a, however often one looks
    (Ville 1939).

    Raises `ValueError` for values outside of [-1, 1] or not finite.
    """
    x = np.asarray(values, np.float64)
    if x.ndim != 1:
        raise ValueError(f"need a 1-D array, got shape {x.shape}")
    if not (np.isfinite(x).all() and (np.abs(x) <= 1).all()):
        raise ValueError("bets are on finite values in [-1, 1]")
    if not x.size:
        return np.zeros(0)
    logs = np.cumsum(np.log1p(BETS[:, None] * x), axis=1)
    top = logs.max(axis=0)
    return np.exp(top) * np.exp(logs - top).mean(axis=0)


def share_of(alpha: float, generation: int, claims: int = 1) -> float:
    """What each of `claims` tests in a generation, from 1 on, may spend of the budget `alpha`.

    alpha 6 / (pi g)^2: over all generations that ever come it adds up to alpha.
    """
    return alpha * 6 / (math.pi * generation) ** 2 / claims


def seeds_needed(alpha: float) -> int:
    """Fewest paired training seeds with which a one-sided sign-flip test can reach `alpha`.

    With n seeds the smallest p-value is 2^-n, where the candidate won with every one of them.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is between 0 and 1, not {alpha}")
    needed = max(math.ceil(-math.log2(alpha)), 1)
    if needed > EXACT_LIMIT:
        raise ValueError(f"an alpha of {alpha:g} needs {needed} seeds; at most {EXACT_LIMIT} are")
    return needed


def seeds_of(alpha: float, guard_alpha: float | None, spare: int) -> int:
    """Training seeds of a claim: enough for its own test and, where there are any, its guards'."""
    levels = [alpha] if guard_alpha is None else [alpha, guard_alpha]
    return seeds_needed(min(levels)) + spare


def scaled(differences: Sequence[float], width: float) -> NDArray[np.float64]:
    """Differences of a measure whose values lie within `width` of each other, in [-1, 1].

    One that goes beyond, because the stated range was wrong, is cut off, which can only weaken
    what is proved by large values: a cut on the upper side loses evidence, one on the lower side
    would invent some, so there it raises `ValueError`.
    """
    x = np.asarray(differences, np.float64) / width
    if (x < -1 - 1e-9).any():
        raise ValueError(
            f"a difference of {float(x.min()) * width:g} is beyond the stated range of {width:g}"
        )
    return np.clip(x, -1.0, 1.0)
