"""What the claims of a campaign may spend of its error budget, and the training seeds they take."""

from __future__ import annotations

import math

from common.statistics import EXACT_LIMIT


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
