"""The start of an episode: cars on the grid, or anywhere on the lap."""

from __future__ import annotations

import math

from envs.racing.sim.contacts import touch
from envs.racing.sim.dynamics import place, roll
from envs.racing.sim.kernel import kernel
from envs.racing.sim.progress import foot

GRID_ROWS, GRID_SIDE = 7.0, 3.3
"""Starting grid of several cars: units between rows, and offset to the side."""


@kernel
def start_cars(cars, wheels, track, start, visited, contacted, fresh):
    """Place the cars of one world, whose records are all zero.

    The first car starts where CarRacing's does, the others behind it, side by side.

    Args:
        cars: (agents,) car records; wheels: (agents, 4) WHEEL.
        track: `TrackArrays` of the world's track.
        start: (4,) lap, offset, heading and speed of a `schedule.Start`.
        visited, contacted: (agents, MAX_TILES) uint8, written; fresh: see `contacts.touch`.
    """
    lap, offset, heading, speed = start[0], start[1], start[2], start[3]
    for a in range(len(cars)):
        car = cars[a]
        visited[a, :] = 0
        contacted[a, :] = 0
        back = int(round((a + 1) // 2 * GRID_ROWS / track.length * track.count))
        tile = (int(lap * track.count) + track.count - back) % track.count
        side = 0.0 if a == 0 else (GRID_SIDE if a % 2 else -GRID_SIDE)
        side += offset * track.half_width
        angle = track.points[tile, 0]
        x = track.points[tile, 1] + side * math.cos(angle)
        y = track.points[tile, 2] + side * math.sin(angle)
        car.first_tile = tile
        car.s, car.lateral, car.curvature, _, _ = foot(
            track.centreline, track.samples, track.length, track.tile_s[tile], x, y
        )
        car.s -= track.length * math.floor(car.s / track.length)
        car.active = 1
        # The reference's reset makes one step without controls, in which only contacts happen.
        place(car, x, y, angle + heading)
        roll(car, wheels[a], speed)
        touch(car, wheels[a], track, visited[a], contacted[a], fresh)
