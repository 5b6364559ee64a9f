"""When a candidate goes on: measures, guards and the thresholds of every gate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoresearch.config.checks import require
from autoresearch.config.error_budget import seeds_of, share_of


@dataclass(frozen=True)
class Measure:
    """A native quantity of a unit.

    Attributes:
        name: in the judged rows.
        sign: 1 if larger is better, -1 if smaller.
        width: the largest difference between two units that can occur.
        cut: for a measure without bounds: a screen counts a difference larger than `width` as
            `width`. What it proves is then about the mean of differences so cut, to which a rare
            large one adds no more than that; seeds are compared by means of what was measured.
    """

    name: str
    sign: int = 1
    width: float = 1.0
    cut: bool = False

    def __post_init__(self) -> None:
        require(self.sign in (1, -1), f"sign is 1 or -1, not {self.sign}")
        require(self.width > 0, f"width is above 0, not {self.width}")

    def counted(self, differences: NDArray[np.float64]) -> NDArray[np.float64]:
        """Differences as a screen counts them."""
        return np.clip(differences, -self.width, self.width) if self.cut else differences


@dataclass(frozen=True)
class Guard:
    """A measure that may not get worse.

    Attributes:
        measure: of which.
        margin: how much worse it may be than the parent's, as a difference; that it is not worse
            than this has to be proved.
        ceiling: and how bad at most, whatever the parent's (a floor where larger is better).
    """

    measure: Measure
    margin: float
    ceiling: float

    def __post_init__(self) -> None:
        require(self.margin > 0, f"margin is above 0, not {self.margin}")
        require(
            not self.measure.cut or self.margin < self.measure.width,
            f"a margin of {self.margin} would hold always: differences of {self.measure.name} are "
            f"cut at {self.measure.width}",
        )


@dataclass(frozen=True)
class Gates:
    """When a candidate goes on.

    Attributes:
        primary: what is to improve.
        best: of the primary, what cannot be exceeded, and `headroom` that the base has to leave.
        effect: of the primary, what is worth finding: a screen stops when it is proved smaller.
        guards: what may not get worse.
        smoke: share of the budget that a first run gets.
        halving: shares of the budget of the rungs of successive halving; `eta` times fewer
            candidates pass each. It only decides where to spend.
        rung_units: units on which a rung is judged.
        batch, cap: units judged at a time in the screen, and at most.
        win, stop: evidence (e-value) that ends a screen: that it is better; that it is worthless,
            or harms a guard.
        proof: evidence that a guard holds.
        finalists: candidates per generation that may claim a promotion.
        alpha: error budget of the whole campaign.
        spare_seeds: training seeds more than the fewest that could suffice.
        seed_units: units on which each training seed is judged.
        guard_alpha: level of each guard's test over seeds.
    """

    primary: Measure
    guards: tuple[Guard, ...] = ()
    best: float | None = None
    headroom: float = 0.0
    effect: float = 0.05
    smoke: float = 0.1
    halving: tuple[float, ...] = ()
    eta: int = 2
    rung_units: int = 50
    batch: int = 32
    cap: int = 200
    win: float = 60.0
    stop: float = 20.0
    proof: float = 20.0
    finalists: int = 1
    alpha: float = 0.05
    spare_seeds: int = 0
    seed_units: int = 100
    guard_alpha: float = 0.05

    def claim(self, generation: int) -> tuple[float, int]:
        """What a claim of this generation may spend of alpha, and the training seeds it takes."""
        alpha = share_of(self.alpha, generation, self.finalists)
        return alpha, seeds_of(alpha, self.guard_alpha if self.guards else None, self.spare_seeds)

    def __post_init__(self) -> None:
        require(0 <= self.smoke <= 1, f"smoke is 0 to 1, not {self.smoke}")
        for share in self.halving:
            require(0 < share < 1, f"halving has shares between 0 and 1, not {share}")
        require(list(self.halving) == sorted(set(self.halving)), "halving grows")
        require(self.eta >= 2, f"eta is at least 2, not {self.eta}")
        limits = {
            "rung_units": 1000,
            "batch": 5000,
            "cap": 5000,
            "finalists": 99,
            "seed_units": 4000,
        }
        for name, most in limits.items():  # of a generation's 10,000 units, none is used twice
            value = getattr(self, name)
            require(1 <= value <= most, f"{name} is 1 to {most}, not {value}")
        for name in ("win", "stop", "proof"):
            value = getattr(self, name)
            require(value > 1, f"{name} is above 1, not {value}")
        for name in ("alpha", "guard_alpha"):
            value = getattr(self, name)
            require(0 < value < 1, f"{name} is between 0 and 1, not {value}")
        require(self.spare_seeds >= 0, f"spare_seeds is at least 0, not {self.spare_seeds}")
        require(self.effect >= 0, f"effect is at least 0, not {self.effect}")
