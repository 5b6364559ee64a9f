"""Drivers for tests: a car put along any path, and one that follows the centreline by itself."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from envs.racing import EndingConfig, EnvConfig, RewardConfig
from envs.racing.engine import Engine
from envs.racing.pixels.painted_track import PaintedTrack
from envs.racing.sim.dynamics import COM_Y, DT, MAX_SPEED, WHEEL_RADIUS
from envs.racing.sim.schedule import make_track


@cache
def painted(seed: int, direction: str = "ccw", tracks: str = "carracing", difficulty: float = 0.5):
    """A painted track, made once for all tests."""
    config = EnvConfig(tracks=tracks, difficulty=difficulty)
    return PaintedTrack(make_track(config, seed, direction))


def actions_of(world: int, steps: int) -> np.ndarray:
    """(steps, 3) lively actions that belong to a world, held for a few ticks each."""
    rng = np.random.default_rng(world)
    raw = rng.uniform([-1, 0, -1], [1, 1, 0.6], (steps // 8 + 1, 3))
    return np.repeat(np.clip(raw, [-1, 0, 0], 1), 8, axis=0)[:steps]


def engine_on(
    *tracks: PaintedTrack,
    reward: RewardConfig | None = None,
    endings: EndingConfig | None = None,
    **options,
) -> Engine:
    """An engine with one world on each track, just reset; episodes are as good as endless."""
    config = EnvConfig(**{"preset": "race", "laps": 100, "max_ticks": 1_000_000} | options)
    if reward is None:
        reward = RewardConfig() if config.preset == "race" else RewardConfig.native()
    engine = Engine(len(tracks), config, reward, endings)
    engine.reset(np.arange(len(tracks)), tracks)
    return engine


def place(engine: Engine, x, y, angle, *, world: int = 0, agent: int = 0, speed: float = 0.0):
    """Put a car's hull origin at (x, y), facing `angle`, moving that way with rolling wheels and
    straight steering."""
    car = engine.cars[world, agent]
    car["angle"] = angle
    car["com_x"] = x - math.sin(angle) * COM_Y
    car["com_y"] = y + math.cos(angle) * COM_Y
    car["vx"], car["vy"] = -speed * math.sin(angle), speed * math.cos(angle)
    car["speed"] = speed
    for name in ("yaw_rate", "steer", "steer_rate", "rear_twist"):
        car[name] = 0.0
    engine.wheels[world, agent]["omega"] = speed / WHEEL_RADIUS


def at(track, s, lateral=0.0):
    """(x, y, angle) of a car on the road, `lateral` units left of arc position s; s may be an
    array."""
    line, length = track.centreline, track.length
    arc = np.arange(len(line) + 1) * length / len(line)
    s = np.mod(s, length)
    x, y, tx, ty = (
        np.interp(s, arc, np.r_[line[:, column], line[0, column]]) for column in range(4)
    )
    norm = np.hypot(tx, ty)
    tx, ty = tx / norm, ty / norm
    return x - ty * lateral, y + tx * lateral, np.arctan2(-tx, ty)


def put_at(engine: Engine, s: float, lateral: float = 0.0, *, world=0, agent=0, speed=0.0, yaw=0.0):
    """Place a car at an arc position, turned by `turn` (rad) against the road's direction, with its
    progress counted from there."""
    track = engine.tracks[world].track
    x, y, angle = at(track, s, lateral)
    place(engine, x, y, angle + yaw, world=world, agent=agent, speed=speed)
    car = engine.cars[world, agent]
    car["s"], car["lateral"] = s % track.length, lateral


def idle(engine: Engine) -> np.ndarray:
    """Actions that leave every control alone."""
    return np.zeros((*engine.cars.shape, 3))


def carry(engine: Engine, xs, ys) -> np.ndarray:
    """Roll the first car along a path, one point a tick; returns the arc gained at every tick.

    It faces where it goes and its wheels roll freely, so that no force acts. Points more than two
    units apart are jumps, after which it stands still.
    """
    action = idle(engine)
    gains = np.empty(len(xs))
    x, y = float(xs[0]), float(ys[0])
    angle = float(engine.cars["angle"][0, 0])
    for index, (next_x, next_y) in enumerate(zip(xs, ys, strict=True)):
        dx, dy = float(next_x) - x, float(next_y) - y
        distance = math.hypot(dx, dy)
        if 0 < distance < MAX_SPEED * DT:
            angle = math.atan2(-dx, dy)
            place(engine, x, y, angle, speed=distance / DT)
        else:
            place(engine, float(next_x), float(next_y), angle)
        engine.step(action)
        x, y = float(next_x), float(next_y)
        gains[index] = engine.cars["arc_delta"][0, 0]
    return gains


def follow(engine: Engine, speed: float = 40.0, offset: float = 0.0) -> np.ndarray:
    """Actions (worlds, agents, 3) that chase a point on the road ahead, `offset` units to its
    left."""
    actions = np.zeros((*engine.cars.shape, 3))
    for w, track in enumerate(engine.tracks):
        for a in range(engine.cars.shape[1]):
            car = engine.cars[w, a]
            ahead = 5.0 + 0.2 * car["speed"]
            x, y, _ = at(track.track, car["s"] + ahead, offset)
            want = math.atan2(-(x - car["com_x"]), y - car["com_y"])
            error = math.remainder(want - car["angle"], 2 * math.pi)
            bend = abs(error)
            actions[w, a, 0] = np.clip(-2.0 * error, -1, 1)
            target = speed / (1 + 3 * bend)
            if car["speed"] < target:
                actions[w, a, 1] = 0.4
            elif car["speed"] > target + 8:
                actions[w, a, 2] = 0.3
    return actions
