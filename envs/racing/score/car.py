"""The record of a car: its state in the world, and the counters of its episode for scoring."""

from __future__ import annotations

import numpy as np

from envs.racing.sim.dynamics import BODY_FIELDS

SCORE_FIELDS = [
    ("best_arc", "f8"),  # largest credited arc length so far
    ("tiles_counted", "i4"),  # visited tiles that earlier ticks have counted
    ("off_run", "i4"),  # ticks in a row with all wheels off the road, up to now
    ("slow_run", "i4"),  # ticks in a row below the speed of a stuck car
    ("stale_run", "i4"),  # ticks since the last new best progress
    ("terminated", "u1"),
    ("truncated", "u1"),
    ("episode_return", "f8"),  # return by the configured reward
    ("native_return", "f8"),  # return by CarRacing-v3's reward
    ("speed_sum", "f8"),
    ("steer_sum", "f8"),  # sum of the command; the next is that of its square
    ("steer_square_sum", "f8"),
    ("off_ticks", "i4"),  # ticks with all wheels off the road
    ("finish_tick", "i4"),  # tick at the finish, 0 before
]
"""Counters and sums that `quantities`, `endings` and `metrics` update every tick."""

CAR = np.dtype(BODY_FIELDS + SCORE_FIELDS, align=True)
"""One car."""
