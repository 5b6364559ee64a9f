"""A car's record: what the world knows of it, and what the score remembers of its episode."""

from __future__ import annotations

import numpy as np

from envs.racing.sim.dynamics import BODY_FIELDS

SCORE_FIELDS = [
    ("best_arc", "f8"),  # most credited arc length so far
    ("tiles_counted", "i4"),  # visited tiles that were quantities of a tick already
    ("off_run", "i4"),  # ticks in a row with all wheels off the road, up to now
    ("slow_run", "i4"),  # ticks in a row below the speed of a stuck car
    ("stale_run", "i4"),  # ticks since the last new best progress
    ("terminated", "u1"),
    ("truncated", "u1"),
    ("episode_return", "f8"),  # of the configured reward
    ("native_return", "f8"),  # of CarRacing-v3's
    ("speed_sum", "f8"),
    ("steer_sum", "f8"),  # of the command, as is the next
    ("steer_square_sum", "f8"),
    ("off_ticks", "i4"),  # ticks with all wheels off the road
    ("finish_tick", "i4"),  # tick at the finish, 0 before
]
"""Counters and sums that `quantities`, `endings` and `metrics` keep from tick to tick."""

CAR = np.dtype(BODY_FIELDS + SCORE_FIELDS, align=True)
"""One car."""
