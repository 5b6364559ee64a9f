"""A car that drives: steering, pedals, grip, and laps of every kind of track."""

import math

import numpy as np

from common.telemetry import TELEMETRY
from envs.racing.engine import Engine
from envs.racing.sim.track import PLAYFIELD
from tests.envs.racing.driving import engine_on, follow, painted, place, put_at


def drive(engine: Engine, ticks: int, steer=0.0, gas=0.0, brake=0.0):
    for _ in range(ticks):
        engine.step(np.array([[[steer, gas, brake]]], np.float64))
    return engine.cars[0, 0]


def test_positive_steering_turns_right():
    for steer in (0.5, -0.5):
        engine = engine_on(painted(0))
        put_at(engine, 0.0, speed=20.0)
        before = engine.telemetry()[0, 0].copy()
        car = drive(engine, 20, steer=steer)
        after = engine.telemetry()[0, 0]
        turned = after[list(TELEMETRY).index("heading")] - before[list(TELEMETRY).index("heading")]
        assert turned * steer < 0 and abs(turned) > 0.1, "heading falls when steering right"
        right = math.cos(before[10]) * (after[8] - before[8])
        right += math.sin(before[10]) * (after[9] - before[9])
        assert right * steer > 0, "and the car goes there"
        assert after[list(TELEMETRY).index("steer")] * steer < 0, "wheels turn with the car"
        assert car["yaw_rate"] * steer < 0


def test_gas_drives_and_brakes_stop():
    engine = engine_on(painted(0))
    speeds = [float(drive(engine, 10, gas=0.5)["speed"]) for _ in range(5)]
    assert np.all(np.diff(speeds) > 0) and speeds[-1] > 10
    top = speeds[-1]
    coasting = float(drive(engine, 10)["speed"])
    assert 0.9 * top < coasting <= top * 1.01
    braking = float(drive(engine, 10, brake=0.8)["speed"])
    assert braking < 0.8 * coasting
    assert drive(engine, 80, brake=1.0)["speed"] < 0.1
    assert (engine.wheels["omega"] == 0).all() or np.abs(engine.wheels["omega"]).max() < 0.5


def test_grass_grips_less():
    stopped = []
    for x, y in ((None, None), (PLAYFIELD - 150, PLAYFIELD - 30)):
        engine = engine_on(painted(0))
        put_at(engine, 0.0, speed=30.0)
        if x is not None:
            place(engine, x, y, 0.0, speed=30.0)
        ticks = 0
        while drive(engine, 1, brake=1.0)["speed"] > 0.5:
            ticks += 1
        stopped.append(ticks)
    assert stopped[1] > 1.4 * stopped[0]


def test_friction_is_an_option():
    ticks = []
    for grip in (0.5, 1.0, 2.0):
        engine = engine_on(painted(0), road_friction=grip)
        put_at(engine, 0.0, speed=30.0)
        count = 0
        while drive(engine, 1, brake=1.0)["speed"] > 0.5:
            count += 1
        ticks.append(count)
    assert ticks[0] > 1.6 * ticks[1] > 1.6 * 1.6 * ticks[2]


def test_a_driver_laps_every_kind_of_track():
    worlds = [
        painted(0),
        painted(0, "cw"),
        painted(2, "ccw", "procedural", 0.0),
        painted(2, "cw", "procedural", 1.0),
    ]
    engine = engine_on(*worlds, laps=1)
    for _ in range(2500):
        engine.step(follow(engine, 45.0))
        if not engine.cars["active"].any():
            break
    assert (engine.cars["finish_tick"] > 0).all()
    assert (engine.cars["off_ticks"] < 0.05 * engine.cars["tick"]).all()
