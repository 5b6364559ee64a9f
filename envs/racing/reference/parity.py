"""Measures the engine against Gymnasium's CarRacing-v3 (extra `parity`: gymnasium[box2d]).

Each function plays the same game in both and returns what differs. `scripts/parity.py` runs them at
full size and keeps the record; the tests run them small and hold the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import numpy as np

from envs.racing.config import EnvConfig
from envs.racing.engine import Engine
from envs.racing.pixels.painted_track import PaintedTrack
from envs.racing.score.terms import RewardConfig
from envs.racing.sim.dynamics import COM_Y, DT, GRASS_FRICTION, ROAD_FRICTION
from envs.racing.sim.track import Track, build_track, carracing_points
from envs.racing.vector_env import RacingVectorEnv

PIXEL_REGIONS = ("picture", "edges", "car", "indicators")


def track_difference(env, seed: int) -> dict[str, float]:
    """Largest differences of track points (rad and units), polygons (units) and shades (0..255)."""
    env.reset(seed=seed)
    points = carracing_points(seed)
    track = build_track(points)
    polygons: list[np.ndarray] = []
    colours: list[np.ndarray] = []
    kerb_of_tile = dict(zip(track.kerb_tile.tolist(), range(len(track.kerbs)), strict=True))
    for i in range(len(track)):
        polygons.append(track.tiles[i])
        colours.append(np.full(3, 102 + 2.55 * track.shade[i]))
        if i in kerb_of_tile:
            polygons.append(track.kerbs[kerb_of_tile[i]])
            white = track.kerb_white[kerb_of_tile[i]]
            colours.append(np.array([255, 255 * white, 255 * white], float))
    reference_polygons = np.array([polygon for polygon, _ in env.road_poly])
    # The road's array was repainted at reset where the car stands; compare shades of the others.
    their_colours = np.array([np.asarray(colour, float) for _, colour in env.road_poly])
    touched = (their_colours == 102).all(1)
    same = len(reference_polygons) == len(polygons) and len(env.track) == len(points)
    if not same:
        return {"points": math.inf, "polygons": math.inf, "shades": math.inf}
    shade = np.abs(their_colours - np.array(colours)).max(1)
    return {
        "points": float(np.abs(np.array(env.track)[:, 1:] - points).max()),
        "polygons": float(np.abs(reference_polygons - np.array(polygons)).max()),
        "shades": float(shade[~touched].max()),
    }


def mild(rng: np.random.Generator, steps: int) -> np.ndarray:
    """(steps, 3) smooth driving: slow steering within a quarter of the lock, little gas.

    A car driven so covers about 44 units in 100 steps."""
    t = np.arange(steps) * DT
    phase, rate = rng.uniform(0, 2 * math.pi), rng.uniform(1.0, 3.0)
    steer = rng.uniform(0.05, 0.25) * np.sin(rate * t + phase)
    gas = np.full(steps, rng.uniform(0.1, 0.2))
    return np.stack([steer, gas, np.zeros(steps)], 1)


def violent(rng: np.random.Generator, steps: int) -> np.ndarray:
    """(steps, 3) anything: full-range controls that jump every ten steps, braking included."""
    hold = -(-steps // 10)
    low, high = np.array([-1.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0])
    actions = rng.uniform(low, high, (hold, 3))
    actions[:, 2] *= rng.random(hold) < 0.3  # a car that brakes all the time stands still
    return np.repeat(actions, 10, 0)[:steps]


def _engine(track: Track, *, road: float = ROAD_FRICTION, grass: float = GRASS_FRICTION) -> Engine:
    config = EnvConfig(preset="carracing")
    engine = Engine(1, config, RewardConfig.native())
    engine.grips[:] = road, grass
    engine.reset([0], [PaintedTrack(track)])
    return engine


def dynamics_error(
    env,
    seed: int,
    regime: Callable[[np.random.Generator, int], np.ndarray],
    surface: str,
    marks: Iterable[int] = (50, 100),
) -> dict[int, float]:
    """Distance in units between the cars after some steps of the same actions.

    surface: "road" or "grass" everywhere, or "track" for the real one.
    """
    marks = tuple(marks)
    env.reset(seed=seed)
    road = GRASS_FRICTION if surface == "grass" else ROAD_FRICTION
    grass = ROAD_FRICTION if surface == "road" else GRASS_FRICTION
    engine = _engine(build_track(carracing_points(seed)), road=road, grass=grass)
    if surface != "track":
        # One far tile stays: without a road the reference's next reset would keep the old car.
        far = len(env.road) // 2
        for i, tile in enumerate(env.road):
            if i != far:
                env.world.DestroyBody(tile)
        env.road = [env.road[far]]
        for wheel in env.car.wheels:
            wheel.tiles = [SimpleNamespace(road_friction=1.0)] if surface == "road" else []
    actions = regime(np.random.default_rng(seed), max(marks))
    errors = {}
    for step, action in enumerate(actions, 1):
        env.car.steer(-action[0])
        env.car.gas(action[1])
        env.car.brake(action[2])
        env.car.step(DT)
        env.world.Step(DT, 6 * 30, 2 * 30)
        engine.step(action.reshape(1, 1, 3))
        if step in marks:
            row = engine.telemetry()[0, 0]
            x, y = env.car.hull.position
            errors[step] = float(math.hypot(row[8] - x, row[9] - y))
    return errors


def visit_order(env, seed: int, action, steps: int) -> dict[str, float]:
    """Same action in both for some steps: returns, and which tiles were visited when.

    Returns:
        ours and theirs (returns); order (whether the tiles were visited in another order, as far as
        both got); timing (the first step at which the sets of visited tiles differ, or -1); reward
        (largest difference of one step's reward before that).
    """
    env.reset(seed=seed)
    vector_env = RacingVectorEnv(
        1, preset="carracing", split=None, track_seeds=[seed], autoreset=False
    )
    vector_env.reset()
    total, total_ref, first, worst = 0.0, 0.0, -1, 0.0
    sequence: list[int] = []
    sequence_ref: list[int] = []
    action = np.asarray(action, np.float32)
    for step in range(steps):
        _, reward, _, _, _ = vector_env.step(action[None])
        _, reward_ref, _, _, _ = env.step(action)
        total += float(reward[0])
        total_ref += float(reward_ref)
        visited = set(np.flatnonzero(vector_env.engine.visited(0, 0)).tolist())
        visited_ref = {tile.idx for tile in env.road if tile.road_visited}
        sequence += sorted(visited.difference(sequence))
        sequence_ref += sorted(visited_ref.difference(sequence_ref))
        if first < 0 and visited != visited_ref:
            first = step
        if first < 0:
            worst = max(worst, abs(float(reward[0]) - float(reward_ref)))
    vector_env.close()
    common = min(len(sequence), len(sequence_ref))
    return {
        "ours": total,
        "theirs": total_ref,
        "order": sequence[:common] != sequence_ref[:common],
        "timing": first,
        "reward": worst,
    }


def leaving(env, seed: int, limit: int = 1000) -> dict[str, tuple[int, float, bool]]:
    """Moderate gas straight ahead until the playfield's edge.

    Returns:
        (ticks, last reward, terminated) of "ours" and of "theirs".
    """
    action = np.array([0.0, 0.3, 0.0])
    vector_env = RacingVectorEnv(
        1, preset="carracing", split=None, track_seeds=[seed], autoreset=False
    )
    vector_env.reset()
    env.reset(seed=seed)
    ends = {}
    for ticks in range(1, limit + 1):
        if "ours" not in ends:
            _, reward, terminated, _, _ = vector_env.step(action[None])
            if terminated[0]:
                ends["ours"] = ticks, float(reward[0]), bool(terminated[0])
        if "theirs" not in ends:
            _, reward, terminated, _, _ = env.step(action)
            if terminated:
                ends["theirs"] = ticks, float(reward), bool(terminated)
        if len(ends) == 2:
            break
    vector_env.close()
    return ends


def copy_state(env, engine: Engine) -> None:
    """Put the reference's present state into world 0 of an engine on the same track."""
    car, wheels = engine.cars[0, 0], engine.wheels[0, 0]
    hull = env.car.hull
    car["angle"] = hull.angle
    car["com_x"] = hull.position[0] - math.sin(hull.angle) * COM_Y
    car["com_y"] = hull.position[1] + math.cos(hull.angle) * COM_Y
    car["vx"], car["vy"] = hull.linearVelocity
    car["speed"] = math.hypot(*hull.linearVelocity)
    car["yaw_rate"] = hull.angularVelocity
    car["steer"] = env.car.wheels[0].joint.angle
    car["tick"] = round(env.t / DT) - 1
    for index, wheel in enumerate(env.car.wheels):
        wheels[index]["omega"] = wheel.omega
        wheels[index]["phase"] = wheel.phase
    renderer = engine.renderer
    first = len(renderer.look.codes)
    for i, tile in enumerate(env.road):
        if (tile.color == 102).all():
            renderer.luts[0, 0, first + i] = renderer.look.road_value


def pixel_difference(
    env, seed: int, states: int, spacing: int = 7, *, keep: int = -1
) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, np.ndarray] | None]:
    """Frames of the same states: absolute errors by region.

    The reference is driven along its track by a scripted driver, with excursions; every `spacing`
    steps its state is copied and both are drawn. The score text is left out.

    Returns:
        Mean absolute error (of 255) per state and region ("edges": where the reference's
        neighbouring pixels differ by more than 40 in the view: road edges and kerbs; "car": the
        car's box; "indicators": the bottom rows), and the pair of frames of state number `keep`.
    """
    env.reset(seed=seed)
    engine = _engine(build_track(carracing_points(seed)))
    rng = np.random.default_rng(seed)
    frame = np.zeros((1, 96, 96, 3), np.uint8)
    errors: dict[str, list[float]] = {region: [] for region in PIXEL_REGIONS}
    frame_pair = None
    wander = 0.0
    for state in range(states):
        for _ in range(spacing):
            wander = 0.9 * wander + 0.3 * rng.normal()
            reference_frame, _, done, _, _ = env.step(scripted_action(env, wander))
            if done:
                env.reset()
        copy_state(env, engine)
        engine.draw(frame)
        engine_frame = frame[0]
        difference = np.abs(engine_frame.astype(int) - reference_frame.astype(int)).mean(-1)
        valid = np.ones((96, 96), bool)
        valid[84:, :12] = False  # score text
        luminance = reference_frame.astype(int).sum(-1)
        step_down = np.abs(np.diff(luminance, axis=0, append=luminance[-1:])) > 40
        step_right = np.abs(np.diff(luminance, axis=1, append=luminance[:, -1:])) > 40
        edge = step_down | step_right
        edge[1:] |= step_down[:-1]
        edge[:, 1:] |= step_right[:, :-1]
        view = np.zeros_like(valid)
        view[:84] = True
        box = np.zeros_like(valid)
        box[65:79, 44:52] = True
        masks = {
            "picture": valid,
            "edges": edge & view & ~box,
            "car": box,
            "indicators": valid & ~view,
        }
        for region, mask in masks.items():
            if mask.any():
                errors[region].append(float(difference[mask].mean()))
        if state == keep:
            frame_pair = (engine_frame.copy(), reference_frame.copy())
    return {region: np.array(values) for region, values in errors.items()}, frame_pair


def scripted_action(env, wander: float) -> np.ndarray:
    """A driver for the reference that follows its track, pushed off line by `wander`."""
    x, y = env.car.hull.position
    track = np.array(env.track)
    nearest = int(np.argmin((track[:, 2] - x) ** 2 + (track[:, 3] - y) ** 2))
    goal = track[(nearest + 5) % len(track)]
    bearing = math.atan2(-(goal[2] - x), goal[3] - y)
    error = (bearing - env.car.hull.angle + math.pi) % (2 * math.pi) - math.pi
    speed = math.hypot(*env.car.hull.linearVelocity)
    gas = 0.4 if speed < 50 else 0.0
    brake = 0.3 if speed > 60 else 0.0
    return np.array([np.clip(-2.0 * error + wander, -1, 1), gas, brake], np.float32)
