"""Where scripted drivers draw from: every car from a sequence of its own, or the batch from one.

A car's own draws follow from its seed and its decision alone, as the contract of policies asks.
The data sets of the ladder were collected with one sequence for the whole batch: the same recipe
gives the same rows only if that stays, so collection asks for it by `batch_seed`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from common.rl.noise import Draws, generator


class Random(Protocol):
    """Random numbers for one decision; `which` is (n,) bool, and results have which.sum() rows."""

    def uniform(self, which: np.ndarray, low: float, high: float) -> np.ndarray:
        """Numbers in [low, high)."""

    def side(self, which: np.ndarray) -> np.ndarray:
        """-1 or 1."""

    def normal(self, which: np.ndarray, size: int) -> np.ndarray:
        """Standard normal numbers, (which.sum(), size)."""


class CarRandom:
    """Each car draws by its seed and its decision; `stream` keeps two drawers apart."""

    def __init__(self, draws: Draws, stream: int) -> None:
        self._draws, self._stream = draws, stream
        self._generators: dict[int, np.random.Generator] = {}

    def uniform(self, which: np.ndarray, low: float, high: float) -> np.ndarray:
        """See `Random`."""
        return np.array([self._of(car).uniform(low, high) for car in np.flatnonzero(which)])

    def side(self, which: np.ndarray) -> np.ndarray:
        """See `Random`."""
        return np.array([self._of(car).choice((-1.0, 1.0)) for car in np.flatnonzero(which)])

    def normal(self, which: np.ndarray, size: int) -> np.ndarray:
        """See `Random`."""
        values = [self._of(car).standard_normal(size) for car in np.flatnonzero(which)]
        return np.array(values).reshape(-1, size)

    def _of(self, car: int) -> np.random.Generator:
        if car not in self._generators:
            seed, decision = self._draws.seed[car], self._draws.decision[car]
            self._generators[car] = generator(seed, decision, self._stream)
        return self._generators[car]


class BatchRandom:
    """All cars draw from one generator, so what a car draws depends on its neighbours."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def uniform(self, which: np.ndarray, low: float, high: float) -> np.ndarray:
        """See `Random`."""
        return self._rng.uniform(low, high, which.sum())

    def side(self, which: np.ndarray) -> np.ndarray:
        """See `Random`."""
        return self._rng.choice([-1.0, 1.0], which.sum())

    def normal(self, which: np.ndarray, size: int) -> np.ndarray:
        """See `Random`."""
        return self._rng.standard_normal((which.sum(), size))
