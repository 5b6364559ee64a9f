"""Every reward term, by hand on constructed situations."""

import dataclasses
import inspect
import math

import numpy as np
import pytest

from common.keys import field_docs
from envs.racing import RacingVectorEnv, RewardConfig
from envs.racing.score import terms
from envs.racing.score.terms import COLUMN, TERMS
from tests.envs.racing.driving import engine_on, follow, idle, painted, place, put_at
from tests.envs.racing.score.paying import (
    NOTHING,
    action,
    grass,
    lone,
    paid,
    sharp_corner,
    straight,
)


def test_nothing_configured_pays_nothing():
    engine = engine_on(painted(0), reward=NOTHING)
    for _ in range(60):
        engine.step(follow(engine))
        assert paid(engine) == 0


def test_time_is_paid_every_tick():
    engine = engine_on(painted(0), reward=lone(time=-0.1), action_repeat=3)
    engine.step(idle(engine))
    assert paid(engine, "time") == pytest.approx(-0.3)


def test_progress_is_paid_per_lap():
    engine = engine_on(painted(0), reward=lone(progress=1000.0))
    track = engine.tracks[0].track
    put_at(engine, straight(track), speed=50.0)
    engine.step(idle(engine))
    assert paid(engine, "progress") == pytest.approx(1000 / track.length, rel=0.02)
    put_at(engine, straight(track), speed=50.0, yaw=math.pi)
    engine.step(idle(engine))
    assert paid(engine, "progress") == pytest.approx(-1000 / track.length, rel=0.02)


def test_a_tile_is_paid_once():
    engine = engine_on(painted(0), reward=lone(tile=1000.0))
    track = engine.tracks[0].track
    n = len(track)
    engine.step(idle(engine))
    assert paid(engine, "tile") == pytest.approx(2000 / n), "the two tiles touched at the reset"
    put_at(engine, 100.0)
    engine.step(idle(engine))
    first = paid(engine, "tile") * n / 1000
    assert first == pytest.approx(round(first)) and 1 <= first <= 3
    engine.step(idle(engine))
    assert paid(engine, "tile") == 0
    x, y = grass(track)
    place(engine, x, y, 0.0)
    engine.step(idle(engine))
    assert paid(engine, "tile") == 0
    put_at(engine, 100.0)
    engine.step(idle(engine))
    assert paid(engine, "tile") == 0, "visited before"


def test_off_track_is_paid_with_all_wheels_off():
    engine = engine_on(painted(0), reward=lone(off_track=-1.0))
    track = engine.tracks[0].track
    s = straight(track)
    for lateral, expected in ((0.0, 0), (track.half_width, 0), (track.half_width + 2.2, -1)):
        put_at(engine, s, lateral)
        engine.step(idle(engine))
        assert paid(engine, "off_track") == expected, lateral
    assert engine.cars["off_ticks"][0, 0] == 1


def test_each_wheel_off_the_road_costs_its_share():
    engine = engine_on(painted(0), reward=lone(wheels_off=-1.0))
    track = engine.tracks[0].track
    s = straight(track)
    for lateral, expected in ((0.0, 0), (track.half_width, -0.5), (track.half_width + 2.2, -1)):
        put_at(engine, s, lateral)
        engine.step(idle(engine))
        assert paid(engine, "wheels_off") == expected, lateral


@pytest.mark.parametrize("side", [1, -1])
def test_corner_entry_is_the_relative_excess_of_speed(side):
    reward = lone(corner_entry=-2.0, corner_target_speed=40.0, corner_threshold=0.35)
    engine = engine_on(painted(0), reward=reward)
    track = engine.tracks[0].track
    corner = sharp_corner(track, side)
    put_at(engine, corner, speed=60.0)
    engine.step(idle(engine))
    assert abs(engine.telemetry()[0, 0, 5]) > 0.35
    assert np.sign(engine.telemetry()[0, 0, 5]) == side
    speed = engine.cars["speed"][0, 0]
    assert paid(engine, "corner_entry") == pytest.approx(-2 * (speed - 40) / 40)
    put_at(engine, corner, speed=39.0)
    engine.step(idle(engine))
    assert paid(engine, "corner_entry") == 0, "slow enough"
    put_at(engine, straight(track), speed=60.0)
    engine.step(idle(engine))
    assert paid(engine, "corner_entry") == 0, "no corner"


def test_apex_deceleration_is_the_speed_lost_up_to_a_cap():
    reward = lone(apex_decel=3.0, apex_decel_cap=2.0)
    engine = engine_on(painted(0), reward=reward)
    track = engine.tracks[0].track
    put_at(engine, sharp_corner(track), speed=60.0)
    engine.step(action(brake=0.05))
    lost = 60 - engine.cars["speed"][0, 0]
    assert 0 < lost < 2
    assert paid(engine, "apex_decel") == pytest.approx(3 * lost)
    put_at(engine, sharp_corner(track), speed=60.0)
    engine.step(action(brake=1.0))
    assert 60 - engine.cars["speed"][0, 0] > 2
    assert paid(engine, "apex_decel") == 6
    put_at(engine, sharp_corner(track), speed=20.0)
    engine.cars["gas"] = 0.9
    engine.step(action(gas=1.0))
    assert paid(engine, "apex_decel") == 0, "speeding up"
    put_at(engine, straight(track), speed=60.0)
    engine.step(action(brake=1.0))
    assert paid(engine, "apex_decel") == 0, "no corner"


def test_steering_terms():
    engine = engine_on(painted(0), reward=lone(steer_smoothness=-4.0, steer_smoothness_cap=0.5))
    for steer, change in ((0.3, 0.3), (0.3, 0.0), (-0.1, 0.4), (1.0, 0.5), (1.0, 0.0)):
        engine.step(action(steer=steer))
        assert paid(engine, "steer_smoothness") == pytest.approx(-4 * change)
    engine = engine_on(painted(0), reward=lone(steer_magnitude=-0.5))
    for steer in (0.3, -0.8, 0.0):
        engine.step(action(steer=steer))
        assert paid(engine, "steer_magnitude") == pytest.approx(-0.5 * abs(steer))


def test_yaw_rate_and_brake():
    engine = engine_on(painted(0), reward=lone(yaw_rate=-0.25))
    put_at(engine, straight(engine.tracks[0].track), speed=30.0)
    for steer in (1.0, 1.0, -1.0, -1.0, -1.0, -1.0, -1.0):
        engine.step(action(steer=steer))
        yaw_rate = engine.cars["yaw_rate"][0, 0]
        assert paid(engine, "yaw_rate") == pytest.approx(-0.25 * abs(yaw_rate))
    assert yaw_rate > 0.05
    engine = engine_on(painted(0), reward=lone(brake=-2.0))
    engine.step(action(brake=0.3))
    assert paid(engine, "brake") == pytest.approx(-0.6)


def test_idle_is_paid_below_its_speed():
    engine = engine_on(painted(0), reward=lone(idle=-1.0, idle_speed=2.0))
    engine.step(idle(engine))
    assert paid(engine, "idle") == -1
    put_at(engine, 50.0, speed=2.5)
    engine.step(idle(engine))
    assert paid(engine, "idle") == 0


@pytest.mark.parametrize("repeat", [1, 3])
def test_the_terms_of_a_drive_sum_to_its_reward(repeat):
    reward = RewardConfig(
        tile=300.0, progress=700.0, finish=10.0, off_track=-0.5, wheels_off=-0.7, corner_entry=-1.0,
        corner_target_speed=20.0, apex_decel=0.3, steer_smoothness=-0.1, steer_magnitude=-0.2,
        yaw_rate=-0.05, brake=-0.3, idle=-0.1, idle_speed=20.0,
    )  # fmt: skip
    engine = engine_on(painted(0), painted(3), reward=reward, action_repeat=repeat)
    total, paid = 0.0, np.zeros(len(TERMS), bool)
    for _ in range(900 // repeat):
        engine.step(follow(engine, 70.0, 6.0))
        assert np.allclose(engine.terms.sum(-1), engine.rewards, atol=1e-12)
        paid |= (engine.terms != 0).any((0, 1))
        total = total + engine.rewards
    assert np.allclose(total, engine.cars["episode_return"])
    missing = {name for name, was in zip(TERMS, paid, strict=True) if not was}
    assert missing <= {"finish", "missed_tile", "stuck", "no_progress", "playfield"}


def test_carracings_first_step_pays_two_tiles():
    seeds = list(range(10_000, 10_004))
    env = RacingVectorEnv(4, preset="carracing", track_seeds=seeds)
    env.reset()
    _, rewards, _, _, _ = env.step(np.zeros((4, 3)))
    counts = np.array([len(track.track) for track in env.engine.tracks])
    assert np.allclose(rewards, 2000 / counts - 0.1, atol=1e-5)
    _, rewards, _, _, _ = env.step(np.zeros((4, 3)))
    assert np.allclose(rewards, -0.1)
    env.close()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("progress", float("nan"), "progress: expected a number"),
        ("time", float("inf"), "time: expected a number"),
        ("corner_target_speed", 0.0, "corner_target_speed is above 0"),
    ],
)
def test_bad_coefficients_are_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        RewardConfig(**{field: value})


def test_every_term_comes_from_its_field():
    fields = {field.name: field for field in dataclasses.fields(RewardConfig)}
    listed = [name for name, field in fields.items() if field.metadata["term"]]
    assert list(COLUMN._fields) == list(TERMS) == listed
    assert [COLUMN[i] for i in range(len(TERMS))] == list(range(len(TERMS)))
    docs = field_docs(RewardConfig)
    for name, field in fields.items():
        assert docs[name] == " ".join(f"{field.metadata['meaning']}.".split())


def test_every_coefficient_takes_part_in_a_formula():
    """No field is listed and then forgotten: its kernel reads it."""
    source = inspect.getsource(terms)
    unused = [f.name for f in dataclasses.fields(RewardConfig) if f"c.{f.name}" not in source]
    assert unused == []
