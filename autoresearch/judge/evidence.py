"""Evidence that may be looked at after every unit: e-processes.

This is for the claim that one checkpoint drives better than another, shown track by track. The
other claim, that one configuration is better than another, is shown training seed by training seed
(`common.statistics.sign_flip_test`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

BETS = np.linspace(0.0, 0.95, 20)[1:]
"""Stakes of the mixture: the share of the capital that is bet on every value."""


def e_process(values: ArrayLike) -> NDArray[np.float64]:
    """Evidence, after each of n values in [-1, 1], that their mean is above zero: float64 (n,).

    The wealth of a gambler who starts with 1 and bets against "the mean is at most zero": an equal
    mixture over fixed stakes b of the products of 1 + b x (Shafer 2021; Waudby-Smith and Ramdas
    2024). If the mean is at most zero, the chance that the wealth ever reaches 1 / a is at most a,
    however often one looks (Ville 1939).

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


def scaled(differences: Sequence[float], width: float) -> NDArray[np.float64]:
    """Differences, divided by the largest possible one (`width`), so that they lie in [-1, 1].

    A quotient above 1 is cut to 1, which can only lose evidence. One below -1 raises `ValueError`:
    to cut it would invent evidence.
    """
    x = np.asarray(differences, np.float64) / width
    if (x < -1 - 1e-9).any():
        raise ValueError(
            f"a difference of {float(x.min()) * width:g} is beyond the stated range of {width:g}"
        )
    return np.clip(x, -1.0, 1.0)
