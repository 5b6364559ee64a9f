"""Which tasks the decisions of a campaign need, and what those measured.

A decision asks for measurements as if all of them existed. Where a task is not done yet, `Needed`
is raised with the tasks to run first; where a run has failed for good, `RunFailed` is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from autoresearch.config import CampaignConfig
from autoresearch.loop.state import Generation, State
from autoresearch.types.artifact import Artifact, JudgeArtifact, Rows, TrainArtifact
from autoresearch.types.run import Failure
from autoresearch.types.task import JudgeTask, Task, TrainTask
from common.seeding import derive

UNITS_PER_GENERATION = 10_000
SCREEN_UNITS, SEED_UNITS, RUNG_UNITS = 0, 5_000, 9_000
"""Where the units of a generation's screen, of its seeds and of its rungs begin. No unit is used
twice: a candidate that was chosen on some units is judged on others."""


class Needed(Exception):
    """A decision needs tasks that are not done yet."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        super().__init__()
        self.tasks = _distinct(tasks)


class RunFailed(Exception):
    """A task that a decision needs has failed for good."""

    def __init__(self, task: Task, failure: Failure, detail: str) -> None:
        super().__init__(f"{failure}: {detail}")
        self.task, self.failure, self.detail = task, failure, detail


def training_seed(config: CampaignConfig, generation: int, index: int) -> int:
    """The seed of a training run: index 0 is for screens, 1 and up are for the seeds of G4."""
    return derive(config.seed, "training", generation, index) % 2**31


def final_seed(config: CampaignConfig, index: int) -> int:
    """The seed of a training run whose result is judged on the sealed units."""
    return derive(config.seed, "final", index) % 2**31


class Measurements:
    """Tasks of a campaign and their results.

    Args:
        config: of the campaign.
        state: after the last row of its ledger.
        load: the artifact of a hash.
    """

    def __init__(
        self, config: CampaignConfig, state: State, load: Callable[[str], Artifact]
    ) -> None:
        self.config, self.state, self.load = config, state, load

    def screen_run(self, generation: Generation, name: str, share: float = 1.0) -> TrainTask:
        """Training of a candidate (or BASE) with the screen's seed on a share of the budget."""
        seed = training_seed(self.config, generation.number, 0)
        return self.train(name, seed, max(1, round(self.config.budget * share)))

    def train(self, name: str, seed: int, budget: int | None = None) -> TrainTask:
        """Training of a candidate (or BASE), by default on the whole budget."""
        return TrainTask(name, self.state.overrides(name), seed, budget or self.config.budget)

    def units(self, generation: Generation, part: int) -> int:
        """The first unit of a part of a generation's units."""
        return self.config.first_unit + UNITS_PER_GENERATION * generation.number + part

    def training(self, task: TrainTask) -> TrainArtifact:
        """What a training run left."""
        return self._artifact(task)

    def rows(self, task: JudgeTask) -> Rows:
        """What a judgement measured, by unit."""
        artifact: JudgeArtifact = self._artifact(task)
        return artifact.rows

    def need(self, tasks: Iterable[Task]) -> None:
        """Raise `Needed` unless each of the tasks is finished or has failed for good."""
        missing = [task for task in tasks if self._pending(task)]
        if missing:
            raise Needed(missing)

    def need_judged(self, tasks: Iterable[JudgeTask]) -> None:
        """The same for judgements, whose training runs come first."""
        ready: list[Task] = []
        for task in _distinct(tasks):
            if self._pending(task.trained):
                ready.append(task.trained)
            elif self.state.runs[task.trained.key].finished and self._pending(task):
                ready.append(task)
        if ready:
            raise Needed(ready)

    def mean(self, rows: Rows, name: str | None = None) -> float | None:
        """Mean of a measure (by default the primary) over the units on which it was measured."""
        return mean_of(rows, name or self.config.gates.primary.name)

    def _artifact(self, task: Task) -> Any:
        run = self.state.runs.get(task.key)
        if run is not None and run.finished:
            return self.load(run.artifact)
        chain = [task.trained, task] if isinstance(task, JudgeTask) else [task]
        for link in chain:
            run = self.state.runs.get(link.key)
            if run is not None and run.failed(self.config.executor.attempts):
                raise RunFailed(link, run.last.failure, run.last.detail)
        raise Needed([task])

    def _pending(self, task: Task) -> bool:
        run = self.state.runs.get(task.key)
        return run is None or not (run.finished or run.failed(self.config.executor.attempts))


def mean_of(rows: Mapping[str, Mapping[str, Any]], name: str) -> float | None:
    """Mean of a measure over the rows that have it; None if none has."""
    values = [row[name] for row in rows.values() if row.get(name) is not None]
    return float(np.mean(values)) if values else None


def _distinct(tasks: Iterable[Any]) -> list[Any]:
    return list({task.key: task for task in tasks}.values())
