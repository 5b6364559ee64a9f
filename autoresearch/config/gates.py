"""When a candidate goes on: measures, guards and the thresholds of every gate."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from autoresearch.config.checks import require
from autoresearch.config.error_budget import claim_alpha, claim_seeds
from common.schema import config_class

Above = Annotated[float, Field(gt=1)]
Level = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


@config_class
class Measure:
    """A quantity that is measured on every unit, and that no configuration can change.

    Attributes:
        name: its key in the judged rows.
        sign: 1 if larger is better, -1 if smaller is better.
        width: the largest difference between two units that can occur.
        cut: for a measure without such a limit: in a screen, a larger difference counts as width.
            The proof is then about the mean of such differences. Training seeds are compared by
            means of what was measured, without a cut.
    """

    name: str
    sign: Literal[1, -1] = 1
    width: Positive = 1.0
    cut: bool = False

    def counted(self, differences: NDArray[np.float64]) -> NDArray[np.float64]:
        """Differences as a screen counts them."""
        return np.clip(differences, -self.width, self.width) if self.cut else differences


@config_class
class Guard:
    """A measure that may not get worse.

    Attributes:
        measure: the measure.
        margin: how much worse than the parent's it may be; that it is not has to be proved.
        ceiling: how bad it may be at most, whatever the parent's is (a floor where larger is
            better); that has to be proved too.
    """

    measure: Measure
    margin: Positive
    ceiling: float

    def __post_init__(self) -> None:
        require(
            not self.measure.cut or self.margin < self.measure.width,
            f"a margin of {self.margin} would hold always: differences of {self.measure.name} are "
            f"cut at {self.measure.width}",
        )


@config_class
class Gates:
    """When a candidate goes on.

    Attributes:
        primary: the measure that is to improve.
        guards: measures that may not get worse.
        best: the best value that the primary can have; null if it has none.
        headroom: how far from best the base has to be, or the campaign ends at once.
        effect: a gain of the primary that is worth finding; a screen stops when it is disproved.
        smoke: share of the budget of a candidate's first run (G1).
        halving: shares of the budget of the rungs (G2), ascending; they decide on spending only.
        eta: one in eta candidates passes a rung.
        rung_units: units on which a rung is judged.
        batch: units judged at a time in a screen (G3).
        cap: units judged at most in a screen.
        win: e-value at which a screen ends because the candidate is better.
        stop: e-value at which it ends because the candidate gains too little or harms a guard.
        proof: e-value that proves that a guard holds.
        finalists: candidates per generation that may claim a promotion (G4).
        alpha: error budget of the whole campaign.
        spare_seeds: training seeds beyond the fewest that could suffice.
        seed_units: units on which each training seed is judged.
        guard_alpha: p-value at which a guard is proved over training seeds.
    """

    primary: Measure
    guards: tuple[Guard, ...] = ()
    best: float | None = None
    headroom: float = 0.0
    effect: Annotated[float, Field(ge=0)] = 0.05
    smoke: Annotated[float, Field(ge=0, le=1)] = 0.1
    halving: tuple[Level, ...] = ()
    eta: Annotated[int, Field(ge=2)] = 2
    # A generation has 10,000 units of which none is used twice; these limits keep to that.
    rung_units: Annotated[int, Field(ge=1, le=1000)] = 50
    batch: Annotated[int, Field(ge=1, le=5000)] = 32
    cap: Annotated[int, Field(ge=1, le=5000)] = 200
    win: Above = 60.0
    stop: Above = 20.0
    proof: Above = 20.0
    finalists: Annotated[int, Field(ge=1, le=99)] = 1
    alpha: Level = 0.05
    spare_seeds: Annotated[int, Field(ge=0)] = 0
    seed_units: Annotated[int, Field(ge=1, le=4000)] = 100
    guard_alpha: Level = 0.05

    def __post_init__(self) -> None:
        require(list(self.halving) == sorted(set(self.halving)), "halving grows")

    def claim(self, generation: int) -> tuple[float, int]:
        """What a claim of this generation may spend of alpha, and the training seeds it takes."""
        alpha = claim_alpha(self.alpha, generation, self.finalists)
        return alpha, claim_seeds(
            alpha, self.guard_alpha if self.guards else None, self.spare_seeds
        )
