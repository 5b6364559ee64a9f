"""Measures the noise that a calibration draws from: one configuration, trained with many seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoresearch.judge.calibration import Noise
from autoresearch.loop.campaign import Campaign
from autoresearch.loop.measured import training_seed
from autoresearch.types.run import BASE, RunState
from autoresearch.types.task import JudgeTask, Task, TrainTask
from common.errors import UserError

LEAST_RUNS = 24
CALIBRATION = 0
"""The generation that training seeds of a calibration belong to; campaigns begin with 1."""
UNITS_OFFSET = 9_000_000
"""Units of a calibration, far from those of any generation."""


def measure(campaign: Campaign, runs: int, units: int) -> Noise:
    """Train the base with `runs` seeds and judge each on the same `units` units.

    Goes on where an earlier call was interrupted. Raises `UserError` for a run that fails, and
    if the campaign's budget does not suffice.
    """
    config = campaign.config
    seeds = [training_seed(config, CALIBRATION, index) for index in range(runs)]
    trained = [TrainTask(BASE, {}, seed, config.budget) for seed in seeds]
    judged = [JudgeTask(task, config.first_unit + UNITS_OFFSET, units) for task in trained]
    for tasks in (trained, judged):
        while pending := [task for task in tasks if not _finished(campaign, task)]:
            if reason := campaign.attempts.perform(pending):
                raise UserError(f"the calibration stopped: {reason}")
    rows = [campaign.load(_run(campaign, task).artifact).rows for task in judged]
    primary = config.gates.primary
    guards = {
        guard.measure.name: -guard.measure.sign * _matrix(rows, guard.measure.name)
        for guard in config.gates.guards
    }
    spent = [sum(attempt.seconds for attempt in _run(campaign, t).attempts) for t in trained]
    return Noise(primary.sign * _matrix(rows, primary.name), guards, float(np.mean(spent)))


def _matrix(rows: Sequence[Mapping[str, Mapping[str, Any]]], name: str) -> NDArray[np.float64]:
    return np.array([[row[name] for row in run.values()] for run in rows], np.float64)


def _run(campaign: Campaign, task: Task) -> RunState:
    return campaign.state.runs[task.key]


def _finished(campaign: Campaign, task: Task) -> bool:
    run = campaign.state.runs.get(task.key)
    if run is None or run.open:
        return False
    if run.failed(campaign.config.executor.attempts):
        raise UserError(
            f"{run.id} of the calibration failed: {run.last.failure}: {run.last.detail}"
        )
    return run.finished
