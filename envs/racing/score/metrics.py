"""The metrics of an episode, counted every tick in native units, whatever the reward is."""

from __future__ import annotations

import numpy as np

from envs.racing.score.endings import LEFT_PLAYFIELD
from envs.racing.sim.dynamics import DT
from envs.racing.sim.kernel import kernel


@kernel(inline="always", counted=False)
def count(car, q, ending, reward):
    """Add one tick to a car's counters.

    It counts CarRacing-v3's own return beside the configured one, so that runs with different
    rewards can be compared.

    Args:
        q: `Quantities` of the tick.
        ending: code of `endings`.
        reward: reward of the tick.
    """
    car.episode_return += reward
    car.off_ticks += q.off_track
    car.speed_sum += q.speed
    car.steer_sum += q.steer
    car.steer_square_sum += q.steer * q.steer
    if ending == LEFT_PLAYFIELD:
        car.native_return -= 100.0
        return
    car.native_return += 1000.0 * q.new_tiles - 0.1
    if q.finished:
        car.finish_tick = car.tick


def episode_statistics(cars: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
    """Statistics of the episodes so far.

    Args:
        cars: (n,) CAR records.
        lengths: (n,) arc lengths of their tracks.

    Returns:
        Arrays (n,): return (of the configured reward), length (ticks), progress (laps),
        native_return (CarRacing-v3's), off_track_rate (share of ticks with all wheels off),
        finished, lap_time (s, NaN if not finished), mean_speed (units/s), steering_variance (of the
        command).
    """
    ticks = np.maximum(cars["tick"], 1)
    mean_steer = cars["steer_sum"] / ticks
    finished = cars["finish_tick"] > 0
    return {
        "return": cars["episode_return"].copy(),
        "length": cars["tick"].copy(),
        "progress": cars["arc"] / lengths,
        "native_return": cars["native_return"].copy(),
        "off_track_rate": cars["off_ticks"] / ticks,
        "finished": finished,
        "lap_time": np.where(finished, cars["finish_tick"] * DT, np.nan),
        "mean_speed": cars["speed_sum"] / ticks,
        "steering_variance": np.maximum(cars["steer_square_sum"] / ticks - mean_steer**2, 0.0),
    }
