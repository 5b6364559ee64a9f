"""Random draws that depend on the car and its decision only, not on the batch.

The generator of (seed, decision) is numpy's counter-based Philox: the seed is its key, and the
number of the decision is in its counter. So a draw can be repeated without the ones before it, and
a car in a batch draws the same numbers as alone. `Draws` is the part of a policy's carry that says
where a car is in its sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Draws(NamedTuple):
    """Where n cars are in their random sequences.

    Attributes:
        seed: (n,) uint64, the seed of each car.
        decision: (n,) int64, number of decisions since `initial`.
    """

    seed: np.ndarray
    decision: np.ndarray

    def advance(self) -> Draws:
        """The same cars, one decision later."""
        return Draws(self.seed, self.decision + 1)


def initial_draws(n: int, seeds: Sequence[int] | None = None) -> Draws:
    """The draws of n cars before their first decision; see `Policy.initial`.

    Seeds of more than 64 bits are folded.

    Raises:
        ValueError: the number of seeds is not the number of cars.
    """
    seeds = range(n) if seeds is None else seeds
    if len(seeds) != n:
        raise ValueError(f"{n} cars need as many seeds, not {len(seeds)}")
    return Draws(np.array([_fold(int(seed)) for seed in seeds], np.uint64), np.zeros(n, np.int64))


def generator(seed: int, decision: int, stream: int = 0) -> np.random.Generator:
    """The generator of one decision of the car with this seed.

    Parts that draw independently for the same car, such as a driver and the noise on its actions,
    use different `stream` numbers.
    """
    # Philox counts its draws in the lowest of four words, so the decision gets another word.
    counter = np.array([0, 0, 0, decision], np.uint64)
    key = np.array([seed, stream], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def standard_normal(draws: Draws, size: int, stream: int = 0) -> np.ndarray:
    """(n, size) float64: `size` numbers for the next decision of every car."""
    values = np.zeros((len(draws.seed), size))
    for row, seed, decision in zip(values, draws.seed, draws.decision, strict=True):
        row[:] = generator(seed, decision, stream).standard_normal(size)
    return values


def _fold(seed: int) -> int:
    folded = seed & (2**64 - 1)
    while seed := seed >> 64:
        folded ^= seed & (2**64 - 1)
    return folded
