"""What an episode is reported by, computed from the counters that a car's record carries."""

from __future__ import annotations

import numpy as np

from envs.racing.sim.dynamics import DT


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
