"""A whole campaign: the content of conf/autoresearch/<name>.yaml."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from pydantic import Field

from autoresearch.config.checks import require
from autoresearch.config.commands import Commands
from autoresearch.config.gates import Gates
from autoresearch.config.limits import Budgets, Final
from autoresearch.config.space import FORBIDDEN, Range
from autoresearch.config.workers import ExecutorConfig, ProposerConfig
from common.records import check_name
from common.schema import config_class


@config_class
class CampaignConfig:
    """Everything that decides what a campaign does.

    Attributes:
        name: its directory below root; by default the name of its file.
        commands: how to train and to judge.
        budget: ticks (or updates, for a world model) of a full training run.
        space: the range of each setting that may be searched, by dotted key.
        gates: when a candidate goes on.
        final: what the winner is measured on at the end.
        metrics: measures of the judged rows that a hypothesis may predict; empty for the primary
            only.
        budgets: where the campaign ends.
        proposer: who proposes.
        executor: how processes run.
        first_unit: the units of generation g are first_unit + 10,000 g and up, so that no two
            generations share any.
        seed: decides the proposals and the training seeds.
        root: the directory of all campaigns.
    """

    name: str
    commands: Commands
    budget: Annotated[int, Field(ge=1)]
    space: dict[str, Range]
    gates: Gates
    final: Final = field(default_factory=Final)
    metrics: tuple[str, ...] = ()
    budgets: Budgets = field(default_factory=Budgets)
    proposer: ProposerConfig = field(default_factory=ProposerConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    first_unit: Annotated[int, Field(ge=0)] = 1_000_000
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    root: str = "runs/autoresearch"

    def __post_init__(self) -> None:
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
