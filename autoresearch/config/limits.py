"""Where a campaign ends, and what its winner is measured on at the end."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autoresearch.config.checks import require
from autoresearch.config.error_budget import fewest_seeds
from common.schema import config_class


@config_class
class Final:
    """What the winner is measured on against the base, once, after the search has ended.

    Attributes:
        first: the first of the sealed units, which nothing else ever uses.
        units: how many they are.
        seeds: training seeds, which no generation had.
        level: p-value at which the gain has held up.
    """

    first: Annotated[int, Field(ge=0)] = 500
    units: Annotated[int, Field(ge=1, le=5000)] = 100
    seeds: Annotated[int, Field(ge=1, le=20)] = 8
    level: Annotated[float, Field(gt=0, lt=1)] = 0.05

    def __post_init__(self) -> None:
        least = fewest_seeds(self.level)
        require(
            least <= self.seeds,
            f"seeds is at least {least}, the fewest that can reach a level of {self.level:g}, "
            f"not {self.seeds}",
        )


@config_class
class Budgets:
    """Where a campaign ends, counted over all its processes and resumes; null is no limit.

    Attributes:
        generations: how many there are at most.
        ticks: engine ticks of training, or updates of a world model.
        seconds: that processes may run in total, failed attempts included.
        tokens: of a language model, prompts and answers.
        timeout: seconds that one process may take.
        grace: seconds between TERM and KILL when a process is ended.
    """

    generations: Annotated[int, Field(ge=1, le=1000)] = 4
    ticks: Annotated[int, Field(gt=0)] | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None
    tokens: Annotated[int, Field(gt=0)] | None = None
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    grace: Annotated[float, Field(ge=0)] = 10.0
