"""Fills the telemetry that `common.telemetry` declares from the state of the world."""

from __future__ import annotations

from collections import namedtuple

from common.telemetry import TELEMETRY
from envs.racing.sim.dynamics import origin_x, origin_y, wheels_off
from envs.racing.sim.handles import open_track
from envs.racing.sim.kernel import kernel
from envs.racing.sim.progress import corner_angle

COLUMN = namedtuple("Column", TELEMETRY)(*range(len(TELEMETRY)))
"""Column of a telemetry table by name."""


@kernel(counted=False)
def read_telemetry(cars, wheels, handles, table):
    """Write a row for every car. table: (worlds, agents, len(TELEMETRY)) float32."""
    for w in range(cars.shape[0]):
        track = open_track(handles[w])
        for a in range(cars.shape[1]):
            car, row = cars[w, a], table[w, a]
            row[COLUMN.speed] = car.speed
            row[COLUMN.progress] = car.arc / track.length
            row[COLUMN.progress_delta] = car.arc_delta
            row[COLUMN.steer] = car.steer
            row[COLUMN.yaw_rate] = car.yaw_rate
            row[COLUMN.corner_angle] = corner_angle(track, car.s)
            row[COLUMN.off_track] = 0.25 * wheels_off(wheels[w, a])
            row[COLUMN.lateral_offset] = car.lateral
            row[COLUMN.x] = origin_x(car)
            row[COLUMN.y] = origin_y(car)
            row[COLUMN.heading] = car.angle
