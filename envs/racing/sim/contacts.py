"""Contacts of a car with the road: which tiles its wheels and its hull touch."""

from __future__ import annotations

import math

import numpy as np

from envs.racing.sim.dynamics import COM_Y, SIZE, WHEEL_HALF_WIDTH, WHEEL_RADIUS, WHEEL_XY
from envs.racing.sim.kernel import kernel
from envs.racing.sim.track import GRID_CELL, GRID_HALF

TOUCH = 0.02
"""Gap below which Box2D reports two polygons as touching: twice its polygon radius."""
HULL_BOXES = np.array([(0, 120, 60, 10), (0, -105, 50, 15), (0, 15, 20, 105)], np.float64) * SIZE
"""Boxes (x, y, half width, half length) that replace the hull in contacts with tiles."""
HULL_REACH = math.hypot(60, 130) * SIZE


@kernel(counted=False)
def _box_touches(planes, quad, x, y, fx, fy, half_width, half_length):
    """Whether a box is within TOUCH of a convex quad, by separating axes.

    planes: (4, 3) outward normals and offsets of the quad's edges; (fx, fy) the box's long axis.
    """
    for edge in range(4):
        nx, ny = planes[edge, 0], planes[edge, 1]
        reach = half_length * abs(nx * fx + ny * fy) + half_width * abs(nx * fy - ny * fx)
        if nx * x + ny * y - planes[edge, 2] - reach > TOUCH:
            return False
    low_f, high_f, low_s, high_s = 1e9, -1e9, 1e9, -1e9
    for edge in range(4):
        dx, dy = quad[edge, 0] - x, quad[edge, 1] - y
        along = dx * fx + dy * fy
        across = dx * fy - dy * fx
        low_f, high_f = min(low_f, along), max(high_f, along)
        low_s, high_s = min(low_s, across), max(high_s, across)
    if low_f - half_length > TOUCH or -high_f - half_length > TOUCH:
        return False
    return low_s - half_width <= TOUCH and -high_s - half_width <= TOUCH


@kernel(counted=False)
def touch(car, wheels, track, visited, contacted, fresh):
    """Contacts at the current pose: which wheels are on the road, and which tiles are new.

    Args:
        track: `TrackArrays` of the car's track.
        visited: (MAX_TILES,) uint8, set where a wheel touches.
        contacted: (MAX_TILES,) uint8, set where a wheel or the hull touches.
        fresh: (MAX_TILES,) int32, written: the tiles that are touched for the first time.

    Returns:
        Index of one touched tile, or -1; number of entries of `fresh`.
    """
    sin, cos = math.sin(car.angle), math.cos(car.angle)
    x, y = car.com_x + sin * COM_Y, car.com_y - cos * COM_Y
    for index in range(4):
        wheels[index].on_road = 0
    column = int(math.floor(x / GRID_CELL)) + GRID_HALF
    row = int(math.floor(y / GRID_CELL)) + GRID_HALF
    if column < 0 or row < 0 or column >= 2 * GRID_HALF or row >= 2 * GRID_HALF:
        return -1, 0
    cell = row * 2 * GRID_HALF + column
    front_x, front_y = -math.sin(car.angle + car.steer), math.cos(car.angle + car.steer)
    touched, count = -1, 0
    for m in range(track.grid_start[cell], track.grid_start[cell + 1]):
        tile = track.grid_tiles[m]
        box = track.tile_box[tile]
        reach = HULL_REACH + TOUCH
        if x < box[0] - reach or x > box[1] + reach or y < box[2] - reach or y > box[3] + reach:
            continue
        planes, quad = track.tile_planes[tile], track.tiles[tile]
        wheel_on = False
        for index in range(4):
            wheel = wheels[index]
            if wheel.on_road and visited[tile] and (touched >= 0):
                continue
            wx = x + cos * WHEEL_XY[index, 0] - sin * WHEEL_XY[index, 1]
            wy = y + sin * WHEEL_XY[index, 0] + cos * WHEEL_XY[index, 1]
            fx, fy = (front_x, front_y) if index < 2 else (-sin, cos)
            if _box_touches(planes, quad, wx, wy, fx, fy, WHEEL_HALF_WIDTH, WHEEL_RADIUS):
                wheel.on_road = 1
                wheel_on = True
                touched = tile
        if wheel_on and not visited[tile]:
            visited[tile] = 1
            car.tiles_visited += 1
        if not contacted[tile]:
            hit = wheel_on
            for b in range(len(HULL_BOXES)):
                if hit:
                    break
                bx = x + cos * HULL_BOXES[b, 0] - sin * HULL_BOXES[b, 1]
                by = y + sin * HULL_BOXES[b, 0] + cos * HULL_BOXES[b, 1]
                hit = _box_touches(
                    planes, quad, bx, by, -sin, cos, HULL_BOXES[b, 2], HULL_BOXES[b, 3]
                )
            if hit:
                contacted[tile] = 1
                fresh[count] = tile
                count += 1
    return touched, count
