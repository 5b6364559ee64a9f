"""The two tasks that a campaign runs as processes: train a configuration, and judge a trained one.

The ledger holds them as plain data:

    {"kind": "train", "candidate", "overrides", "seed", "budget"}
    {"kind": "judge", "candidate", "of": key of the trained run, "first": unit, "count": units,
     "sealed": whether these units are opened only once}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autoresearch.types.overrides import digest


class TaskKind(StrEnum):
    """What a task does."""

    TRAIN = "train"
    JUDGE = "judge"


@dataclass(frozen=True)
class TrainTask:
    """Train a configuration.

    Attributes:
        candidate: whose configuration it is, or BASE.
        overrides: dotted key to value, against the campaign's base.
        seed: of the training run.
        budget: in the trainer's unit (engine ticks, or updates).
    """

    candidate: str
    overrides: Mapping[str, Any]
    seed: int
    budget: int
    kind = TaskKind.TRAIN

    @property
    def key(self) -> str:
        """What the task computes: tasks with equal keys share one run."""
        return f"train:{digest(self.overrides)}:{self.seed}:{self.budget}"

    def plain(self) -> dict[str, Any]:
        """The task as the ledger holds it."""
        return {
            "kind": self.kind,
            "candidate": self.candidate,
            "overrides": dict(self.overrides),
            "seed": self.seed,
            "budget": self.budget,
        }


@dataclass(frozen=True)
class JudgeTask:
    """Judge what a training run made, on the units first, first + 1, ...

    Attributes:
        trained: the training task whose result is judged.
        first, count: the units.
        sealed: the units are opened only once, at the end of a campaign.
    """

    trained: TrainTask
    first: int
    count: int
    sealed: bool = False
    kind = TaskKind.JUDGE

    @property
    def candidate(self) -> str:
        """Whose configuration is judged, or BASE."""
        return self.trained.candidate

    @property
    def key(self) -> str:
        """What the task computes: tasks with equal keys share one run."""
        return f"judge:{self.trained.key}:{self.first}+{self.count}"

    def plain(self) -> dict[str, Any]:
        """The task as the ledger holds it."""
        return {
            "kind": self.kind,
            "candidate": self.candidate,
            "of": self.trained.key,
            "first": self.first,
            "count": self.count,
            "sealed": self.sealed,
        }


Task = TrainTask | JudgeTask


def task_of(data: Mapping[str, Any], training: Mapping[str, TrainTask]) -> Task:
    """The task that `plain` wrote.

    Args:
        data: the plain form.
        training: by key, the training tasks that a judgement may refer to.

    Raises:
        LookupError, ValueError: no task writes such data.
    """
    if TaskKind(data["kind"]) is TaskKind.TRAIN:
        names = ("candidate", "overrides", "seed", "budget")
        return TrainTask(*(data[name] for name in names))
    return JudgeTask(training[data["of"]], data["first"], data["count"], data["sealed"])
