"""A whole campaign: the content of conf/autoresearch/<name>.yaml."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from autoresearch.config.checks import require
from autoresearch.config.commands import Commands
from autoresearch.config.gates import Gates
from autoresearch.config.limits import Budgets, Final
from autoresearch.config.space import FORBIDDEN, Range
from autoresearch.config.workers import ExecutorConfig, ProposerConfig
from common.records import check_name


@dataclass(frozen=True)
class CampaignConfig:
    """Everything that decides what a campaign does.

    Attributes:
        name: of its directory below `root`.
        commands: how to train and judge.
        budget: of a full training run, in the trainer's unit.
        space: what may be searched.
        first_unit: the units of generation g are first_unit + 10,000 g and up: tracks that no
            generation shares.
        metrics: of the judged rows, what a hypothesis may predict.
        seed: of proposals and of training seeds.
    """

    name: str
    commands: Commands
    budget: int
    space: dict[str, Range]
    gates: Gates
    final: Final = field(default_factory=Final)
    metrics: tuple[str, ...] = ()
    budgets: Budgets = field(default_factory=Budgets)
    proposer: ProposerConfig = field(default_factory=ProposerConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    first_unit: int = 1_000_000
    seed: int = 0
    root: str = "runs/autoresearch"

    def __post_init__(self) -> None:
        for name, value in _floats(self, ""):
            require(math.isfinite(value), f"{name} is a finite number, not {value}")
        require(self.budget >= 1, f"budget is at least 1, not {self.budget}")
        try:
            self.gates.claim(self.budgets.generations)
        except ValueError as error:
            raise ValueError(
                f"budgets.generations={self.budgets.generations} is more than the error budget "
                f"lasts for: {error}"
            ) from None
        check_name(self.name, "a campaign's name")
        require(
            self.final.first + self.final.units <= self.first_unit,
            f"final has units below first_unit, {self.first_unit}, where the search's begin",
        )
        require(bool(self.space), "space names at least one key")
        require(self.first_unit >= 0, f"first_unit is at least 0, not {self.first_unit}")
        require(0 <= self.seed < 2**31, f"seed is 0 to 2^31 - 1, not {self.seed}")
        for key in self.space:
            require(key.replace("_", "a").replace(".", "a").isalnum(), f"space: bad key {key!r}")
            require(key.partition(".")[0] not in FORBIDDEN, f"space: {key} cannot be searched")
            require(
                not any(f"{key}=" in word for word in self.commands.train),
                f"space: {key} is set by commands.train",
            )
        require(
            not self.metrics or self.gates.primary.name in self.metrics,
            f"metrics holds the primary, {self.gates.primary.name}",
        )


def _floats(value: Any, name: str) -> Iterator[tuple[str, float]]:
    """Every float of nested settings, by dotted name."""
    if isinstance(value, float):
        yield name, value
    elif dataclasses.is_dataclass(value):
        for one in dataclasses.fields(value):
            yield from _floats(getattr(value, one.name), f"{name}.{one.name}".lstrip("."))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _floats(item, f"{name}.{key}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _floats(item, f"{name}[{index}]")
