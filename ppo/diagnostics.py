"""Known ways in which a driver fails, each as a check with a typed result.

A check reads a few numbers, from one row of metrics or from an evaluation. Its result warns the
person at the screen. It also goes into metrics.jsonl and eval.json, for programs that screen runs.
The limits are wide enough for a driver that has not learned anything yet: its car wobbles slowly
off the road at the first bend and is reset.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envs.racing.evaluate import Evaluation
from envs.racing.sim.dynamics import DT

SATURATED = 0.95

STEERING_COLLAPSE = 0.9
"""Share of decisions with the wheel at the same lock. No track can be driven like this. In healthy
training the share is near 0, and a driver that weaves from lock to lock has half on each side."""
THROTTLE_SATURATION = 0.95
"""Share of decisions at full gas, if the brake is used in fewer than `BRAKE_UNUSED` of them. Every
bend of these tracks needs less gas or the brake, so in healthy training the share is near 0."""
BRAKE_UNUSED = 0.005
OFF_TRACK_HACKING = 0.5
"""Share of ticks with all wheels off the road, if the reward pays for them. New drivers exceed it
too (0.7 in the first rollouts), so the reward decides: see `_off_track_hacking`."""
GRASS_LAPS = 0.2
"""Laps of progress beyond the laps' worth of tiles that were touched. Leaving the playfield costs
100 points, which looks like 0.1 laps; the limit is twice that."""
CIRCLING = 0.25
"""Progress along the road per distance: 0.9 to 1.3 (see `LONGEST_LAP`) for a car that follows the
road. A new driver that leaves it straight ahead has 0.1 as well, hence `STEADY_STEER`."""
STEADY_STEER = 0.3
"""Root mean square of the mean steering command, over the rollouts of streams or over tracks. Noise
averages out and bends alternate, so new and healthy drivers stay below 0.05 (0.2 where a rollout
has few decisions). A third of full lock, held for seconds, turns the car in circles."""
STANDING = 20.0
"""Units per episode, four lengths of the car; circling is not measured for a shorter distance."""
ENTROPY_COLLAPSE = 0.03
"""Largest standard deviation of u, the action before tanh; 0.03 moves the steering by at most 3% of
its way to the lock. Training ends by plan at `log_std_final`, by default 0.08. (The entropy of the
action says less, because it also falls when tanh saturates.)"""

LONGEST_LAP = 366 * 3.5
"""Units: the largest number of tiles of a CarRacing track times their length. Rows do not hold the
length of their track. With the longest one the ratio of progress to distance is an upper bound, so
no driver is accused of circling for the length of its track."""


@dataclass(frozen=True)
class Diagnosis:
    """The result of one check.

    Attributes:
        name: of the failure.
        failed: whether the driver shows it.
        value: the number that shows it. None if it was not measured; then `failed` is False.
        limit: a driver fails if `value` is beyond it.
        message: what the failure means.
    """

    name: str
    failed: bool
    value: float | None
    limit: float
    message: str

    @property
    def warning(self) -> str:
        """A line for the screen, where the driver fails."""
        return f"warning: {self.name}: {self.message} ({self.value:.3g}, limit {self.limit:g})"


def action_statistics(actions: Tensor) -> dict[str, float]:
    """Means and shares over `actions` (n, 3): steer, gas, brake."""
    steer, gas, brake = actions.unbind(-1)
    left, right = (steer < -SATURATED).float().mean(), (steer > SATURATED).float().mean()
    values = {
        "steer_mean": steer.mean(),
        "steer_std": steer.std(correction=0),
        "steer_saturated": left + right,
        "steer_one_lock": torch.maximum(left, right),
        "gas_mean": gas.mean(),
        "gas_saturated": (gas > SATURATED).float().mean(),
        "brake_mean": brake.mean(),
        "brake_used": (brake > 0.1).float().mean(),
    }
    return {name: value.item() for name, value in values.items()}


def steady_steer(steer: Tensor, active: Tensor) -> float:
    """Root mean square over streams of a stream's mean steering command.

    `steer` and the bool `active` are (num_steps, n_streams). Cars that circle to the left and
    others that circle to the right do not cancel.
    """
    counts = active.sum(0)
    means = (steer * active).sum(0) / counts.clamp(min=1)
    return ((means.square() * counts).sum() / counts.sum()).sqrt().item()


def diagnose(row: Mapping[str, Any]) -> list[Diagnosis]:
    """Every check on a row of metrics: always the same list, in the same order.

    Reads `action/...`, `episode/...`, `reward/...` and `ppo/...`. A number that is absent, None or
    NaN is not measured.
    """
    return [
        _steering_collapse(row),
        _throttle_saturation(row),
        _off_track_hacking(row),
        _circling(row),
        _entropy_collapse(row),
        _non_finite(row),
    ]


def diagnose_evaluation(evaluation: Evaluation) -> list[Diagnosis]:
    """Every check on what a driver did in an evaluation.

    What belongs to training (reward, exploration, losses) is not measured.
    """
    actions = torch.from_numpy(evaluation.actions)
    ticks, laps, speed, off, variance = np.array(
        [
            [row["ticks"], row["progress"], row["mean_speed"], row["off_track_rate"],
             row["steering_variance"]]
            for row in evaluation.rows
        ]
    ).T  # fmt: skip
    # Var(steer) = E[variance on a track] + Var[mean on a track]: the rows hold the first alone.
    between = actions[:, 0].double().square().mean().item() - np.average(variance, weights=ticks)
    row = {f"action/{name}": value for name, value in action_statistics(actions).items()}
    return diagnose(
        row
        | {
            "action/steady_steer": math.sqrt(max(between, 0.0)),
            "episode/length": ticks.mean(),
            "episode/progress": laps.mean(),
            "episode/mean_speed": np.average(speed, weights=ticks),
            "episode/off_track_rate": off.mean(),
        }
    )


def as_metrics(diagnoses: Iterable[Diagnosis]) -> dict[str, float]:
    """`diagnostics/<name>` (1 if the driver fails, else 0) and `diagnostics/<name>_value`.

    A check that was not measured has neither.
    """
    metrics = {}
    for diagnosis in diagnoses:
        if diagnosis.value is not None:
            metrics[f"diagnostics/{diagnosis.name}"] = float(diagnosis.failed)
            metrics[f"diagnostics/{diagnosis.name}_value"] = diagnosis.value
    return metrics


def _steering_collapse(row: Mapping[str, Any]) -> Diagnosis:
    share = _get(row, "action/steer_one_lock")
    return _diagnosis(
        "steering_collapse", share > STEERING_COLLAPSE, share, STEERING_COLLAPSE,
        "the car steers to one side whatever it sees",
    )  # fmt: skip


def _throttle_saturation(row: Mapping[str, Any]) -> Diagnosis:
    share = _get(row, "action/gas_saturated")
    failed = share > THROTTLE_SATURATION and _get(row, "action/brake_used") < BRAKE_UNUSED
    return _diagnosis(
        "throttle_saturation", failed, share, THROTTLE_SATURATION,
        "full gas always, the brake never",
    )  # fmt: skip


def _off_track_hacking(row: Mapping[str, Any]) -> Diagnosis:
    """Off the road most of the time, and rewarded for it.

    The reward comes either from terms that do not pay for progress, or from progress on the grass
    beside the road. No tile is touched there, so CarRacing's native return shows the difference.
    """
    total, off = _get(row, "reward/total"), _get(row, "episode/off_track_rate")
    for_progress = sum(row.get(f"reward/{name}") or 0.0 for name in ("tile", "progress", "finish"))
    tiles = (_get(row, "episode/native_return") + 0.1 * _get(row, "episode/length")) / 1000
    on_grass = _get(row, "episode/progress") - tiles
    paid = total - for_progress > 0 or (total > 0 and on_grass > GRASS_LAPS)
    share = math.nan if math.isnan(total) else off
    return _diagnosis(
        "off_track_hacking", share > OFF_TRACK_HACKING and paid, share, OFF_TRACK_HACKING,
        "the reward pays for driving off the road",
    )  # fmt: skip


def _circling(row: Mapping[str, Any]) -> Diagnosis:
    distance = _get(row, "episode/mean_speed") * _get(row, "episode/length") * DT
    steady = _get(row, "action/steady_steer")
    ratio = math.nan
    if distance > STANDING and not math.isnan(steady):
        ratio = _get(row, "episode/progress") * LONGEST_LAP / distance
    return _diagnosis(
        "circling", ratio < CIRCLING and steady > STEADY_STEER, ratio, CIRCLING,
        "the car drives in circles and gets nowhere",
    )  # fmt: skip


def _entropy_collapse(row: Mapping[str, Any]) -> Diagnosis:
    widest = max((_get(row, name) for name in row if name.startswith("ppo/std_")), default=math.nan)
    return _diagnosis(
        "entropy_collapse", widest < ENTROPY_COLLAPSE, widest, ENTROPY_COLLAPSE,
        "the policy hardly explores any more; raise ppo.network.log_std_min",
    )  # fmt: skip


def _non_finite(row: Mapping[str, Any]) -> Diagnosis:
    skipped = _get(row, "ppo/skipped_steps")
    return _diagnosis(
        "non_finite", skipped > 0, skipped, 0.0,
        "optimiser steps were skipped because a loss was not finite",
    )  # fmt: skip


def _diagnosis(name: str, failed: bool, value: float, limit: float, message: str) -> Diagnosis:
    return Diagnosis(name, failed, float(value) if math.isfinite(value) else None, limit, message)


def _get(row: Mapping[str, Any], name: str) -> float:
    """The number called `name`; NaN, beyond which no limit lies, where there is none."""
    value = row.get(name)
    return math.nan if value is None else float(value)
