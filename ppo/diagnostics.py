"""Known ways in which a driver goes wrong, as typed results.

Every check looks at a few numbers, those of one row of metrics or of an evaluation, and says what
it saw. They are hints to the person at the screen and, in metrics.jsonl and eval.json, to programs
that screen runs. The limits leave alone what training looks like before it has learned anything:
a car that wobbles off the road at its first bend, slowly, and is reset.
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
"""Share of decisions at one and the same steering lock. No track is taken so: in healthy training
it stays near 0, and a driver that weaves from lock to lock has half on either side."""
THROTTLE_SATURATION = 0.95
"""Share of decisions at full gas, if the brake is used in fewer than `BRAKE_UNUSED` of them. On the
tracks here every bend asks for lifting or braking; healthy training stays near 0."""
BRAKE_UNUSED = 0.005
OFF_TRACK_HACKING = 0.5
"""Share of ticks with all wheels off the road, if the reward pays for them. Young drivers exceed it
(0.7 in the first rollouts), so what was paid decides: see `_off_track_hacking`."""
GRASS_LAPS = 0.2
"""Laps of progress beyond those of the tiles that were touched. Twice what the 100 points that
leaving the playfield costs can hide."""
CIRCLING = 0.25
"""Progress along the road per distance driven: 0.9 to 1.3 (see `LONGEST_LAP`) for who follows the
road. A young driver, who leaves it straight on, has 0.1 as well: hence `STEADY_STEER`."""
STEADY_STEER = 0.3
"""Root mean square of the steering command averaged over a stream's rollout or over a track. Noise
averages out and bends alternate: young and healthy drivers stay below 0.05, or 0.2 where a rollout
has only a few decisions. A third of full lock, held for seconds, turns the car round and round."""
STANDING = 20.0
"""Units driven per episode, four lengths of the car, below which circling is not measured."""
ENTROPY_COLLAPSE = 0.03
"""Widest standard deviation of u, the action before tanh; 0.03 moves the steering by at most 3% of
its way to the lock. A budget's planned end is `log_std_final`, by default 0.08. (The density's
entropy says less: it also falls when tanh saturates.)"""

LONGEST_LAP = 366 * 3.5
"""Units; the most tiles of a CarRacing track times their length. The length of the very track is
in no row, so the ratio of progress to distance is an upper bound and circling never overstated."""


@dataclass(frozen=True)
class Diagnosis:
    """The result of one check.

    Attributes:
        name: of the failure.
        failed: whether the driver shows it.
        value: the number that shows it; None where it was not measured, and then `failed` is False.
        limit: what `value` lies beyond in a driver that fails.
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

    Reads `action/...`, `episode/...`, `reward/...` and `ppo/...`; what is absent, None or not a
    number is not measured.
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
    """`diagnostics/<name>` is 1 where the driver fails and 0 where not, `..._value` the number.

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
    """Off the road most of the time, and paid for it.

    Either by terms other than those for getting on along the road, or by progress that was made on
    the grass beside it, where no tile is touched. CarRacing's own return counts the tiles.
    """
    total, off = _get(row, "reward/total"), _get(row, "episode/off_track_rate")
    getting_on = sum(row.get(f"reward/{name}") or 0.0 for name in ("tile", "progress", "finish"))
    tiles = (_get(row, "episode/native_return") + 0.1 * _get(row, "episode/length")) / 1000
    on_grass = _get(row, "episode/progress") - tiles
    paid = total - getting_on > 0 or (total > 0 and on_grass > GRASS_LAPS)
    share = math.nan if math.isnan(total) else off
    return _diagnosis(
        "off_track_hacking", share > OFF_TRACK_HACKING and paid, share, OFF_TRACK_HACKING,
        "the reward pays for driving off the road",
    )  # fmt: skip


def _circling(row: Mapping[str, Any]) -> Diagnosis:
    driven = _get(row, "episode/mean_speed") * _get(row, "episode/length") * DT
    steady = _get(row, "action/steady_steer")
    ratio = math.nan
    if driven > STANDING and not math.isnan(steady):
        ratio = _get(row, "episode/progress") * LONGEST_LAP / driven
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
