"""Where a campaign ends, and what its winner is measured on at the end."""

from __future__ import annotations

from dataclasses import dataclass

from autoresearch.config.checks import require
from autoresearch.config.error_budget import seeds_needed


@dataclass(frozen=True)
class Final:
    """On what the winner of a campaign that has ended is measured against the base, once.

    Attributes:
        first, units: sealed units: nothing else ever uses them.
        seeds: training seeds, which no generation had.
        level: of the test that the gain holds up.
    """

    first: int = 500
    units: int = 100
    seeds: int = 8
    level: float = 0.05

    def __post_init__(self) -> None:
        require(self.first >= 0, f"first is at least 0, not {self.first}")
        require(1 <= self.units <= 5000, f"units is 1 to 5000, not {self.units}")
        require(0 < self.level < 1, f"level is between 0 and 1, not {self.level}")
        least = seeds_needed(self.level)
        require(
            least <= self.seeds <= 20,
            f"seeds is {least} (so many can reach a level of {self.level:g}) to 20, "
            f"not {self.seeds}",
        )


@dataclass(frozen=True)
class Budgets:
    """Where a campaign ends, counted over all its processes and resumes; null is no limit.

    Attributes:
        generations: at most.
        ticks: engine ticks (updates, for a world model).
        seconds: of processes, attempts that failed included.
        tokens: of a language model.
        timeout: seconds that one process may take.
        grace: seconds between TERM and KILL.
    """

    generations: int = 4
    ticks: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    timeout: float = 3600.0
    grace: float = 10.0

    def __post_init__(self) -> None:
        require(1 <= self.generations <= 1000, f"generations is 1 to 1000, not {self.generations}")
        for name in ("ticks", "seconds", "tokens"):
            value = getattr(self, name)
            require(value is None or value > 0, f"{name} is above 0 or null, not {value}")
        require(self.timeout > 0, f"timeout is above 0, not {self.timeout}")
        require(self.grace >= 0, f"grace is at least 0, not {self.grace}")
