"""What the claims of a campaign may spend of its error budget, and the training seeds they take."""

from __future__ import annotations

import math

from common.statistics import EXACT_LIMIT


def claim_alpha(alpha: float, generation: int, claims: int = 1) -> float:
    """What each of the `claims` of a generation (from 1 on) may spend of the error budget `alpha`.

    For generation g that is alpha 6 / (pi g)^2, which adds up to alpha over all generations.
    """
    return alpha * 6 / (math.pi * generation) ** 2 / claims


def fewest_seeds(alpha: float) -> int:
    """Fewest paired training seeds with which a one-sided sign-flip test can reach `alpha`.

    With n seeds the smallest p-value is 2^-n: the candidate wins with every seed.

    Raises `ValueError` for an alpha outside of (0, 1), or one that needs too many seeds.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is between 0 and 1, not {alpha}")
    needed = max(math.ceil(-math.log2(alpha)), 1)
    if needed > EXACT_LIMIT:
        raise ValueError(f"an alpha of {alpha:g} needs {needed} seeds; at most {EXACT_LIMIT} are")
    return needed


def claim_seeds(alpha: float, guard_alpha: float | None, spare: int) -> int:
    """Training seeds of a claim: enough for its test and those of its guards, and `spare` more.

    `guard_alpha` is None for a campaign without guards.
    """
    levels = [alpha] if guard_alpha is None else [alpha, guard_alpha]
    return fewest_seeds(min(levels)) + spare
