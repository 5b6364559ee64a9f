"""Every reward term and every ending, by hand on constructed situations."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from envs.racing import RacingVectorEnv
from envs.racing.config import RewardConfig
from envs.racing.score.rewards import TERMS
from envs.racing.sim.track import PLAYFIELD
from tests.envs.racing.driving import at, carry, engine_on, follow, idle, painted, place, put_at

NOTHING = replace(
    RewardConfig(),
    **{
        field.name: 0
        for field in fields(RewardConfig)
        if field.name in ("tile", "progress", "finish", "time", "playfield")
    },
)


def lone(**coefficients) -> RewardConfig:
    """A reward of nothing but the given coefficients."""
    return replace(NOTHING, **coefficients)


def paid(engine, name=None):
    """The last step's only term, and that nothing else was paid; or 0 if nothing was."""
    terms = dict(zip(TERMS, engine.terms[0, 0], strict=True))
    others = {key: value for key, value in terms.items() if value and key != name}
    assert not others, f"{others} paid beside {name}"
    assert engine.rewards[0, 0] == terms.get(name, 0.0)
    return terms.get(name, 0.0)


def action(steer=0.0, gas=0.0, brake=0.0):
    return np.array([[[steer, gas, brake]]])


def sharp_corner(track, sign=None):
    """Arc position at the beginning of the sharpest corner (of a side)."""
    curvature = track.centreline[:, 4] if sign is None else sign * track.centreline[:, 4]
    where = np.argmax(np.abs(curvature) if sign is None else curvature)
    return where * track.length / len(curvature) - 15


def straight(track):
    window = 80
    bend = np.abs(track.centreline[:, 4])
    calm = np.convolve(np.r_[bend, bend[:window]], np.ones(window), "valid")
    return np.argmin(calm) * track.length / len(bend) + 30


def grass(track):
    """A place on the grass, as far out as the corner of the playfield."""
    return PLAYFIELD - 20, PLAYFIELD - 20


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
    put_at(engine, straight(track), speed=50.0, turn=math.pi)
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


def test_finish_is_paid_with_the_last_lap():
    engine = engine_on(painted(0), reward=lone(finish=50.0), laps=2)
    track = engine.tracks[0].track
    put_at(engine, track.length - 0.5, speed=50.0)
    engine.cars["arc"] = track.length - 0.5
    engine.step(idle(engine))
    assert paid(engine) == 0, "one lap of two"
    put_at(engine, track.length - 0.5, speed=50.0)
    engine.cars["arc"] = 2 * track.length - 0.5
    engine.step(idle(engine))
    assert paid(engine, "finish") == 50
    car = engine.cars[0, 0]
    assert car["terminated"] and not car["truncated"] and not car["active"]
    assert car["finish_tick"] == car["tick"] == 2


@pytest.mark.parametrize("preset", ["race", "carracing"])
def test_the_finish_need_not_end_the_episode(preset):
    engine = engine_on(
        painted(0),
        reward=lone(finish=50.0),
        laps=1,
        preset=preset,
        end_at_finish=False,
        max_ticks=6,
    )
    track = engine.tracks[0].track
    put_at(engine, track.length - 0.5, speed=50.0)
    engine.cars["arc"] = track.length - 0.5
    engine.cars["tiles_visited"] = len(track)
    for pay in (50, 0, 0):
        engine.step(idle(engine))
        assert paid(engine, "finish") == pay, "once"
    car = engine.cars[0, 0]
    assert not car["terminated"] and car["active"] and car["finish_tick"] == 1
    for _ in range(3):
        engine.step(idle(engine))
    assert engine.cars["truncated"][0, 0] and not engine.cars["terminated"][0, 0]


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


def test_off_track_can_end_the_episode():
    engine = engine_on(painted(0), reward=lone(off_track_limit=5, off_track_end=-30.0))
    track = engine.tracks[0].track
    x, y = grass(track)
    place(engine, x, y, 0.0)
    for _ in range(4):
        engine.step(idle(engine))
        assert paid(engine) == 0
    put_at(engine, 50.0)
    engine.step(idle(engine))
    place(engine, x, y, 0.0)
    for _ in range(4):
        engine.step(idle(engine))
        assert engine.cars["active"][0, 0], "touching the road starts the count again"
    engine.step(idle(engine))
    assert paid(engine, "off_track") == -30
    assert engine.cars["terminated"][0, 0] and not engine.cars["finish_tick"][0, 0]


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


def test_stuck_ends_the_episode():
    engine = engine_on(painted(0), reward=lone(stuck=-20.0, stuck_limit=10, stuck_speed=0.8))
    for _ in range(9):
        engine.step(idle(engine))
        assert paid(engine) == 0
    put_at(engine, 50.0, speed=5.0)
    engine.step(idle(engine))
    put_at(engine, 50.0)
    for _ in range(9):
        engine.step(idle(engine))
        assert engine.cars["active"][0, 0], "moving starts the count again"
    engine.step(idle(engine))
    assert paid(engine, "stuck") == -20
    assert engine.cars["terminated"][0, 0]


def test_no_progress_ends_the_episode():
    reward = lone(no_progress=-15.0, no_progress_limit=30)
    engine = engine_on(painted(0), reward=reward)
    track = engine.tracks[0].track
    put_at(engine, straight(track), speed=30.0)
    for _ in range(20):
        engine.step(idle(engine))
    assert engine.cars["stale_run"][0, 0] == 0
    place_back = engine.cars["s"][0, 0] - 3.0
    put_at(engine, place_back)
    engine.cars["s"] += 3.0  # the foot has to come back: three units behind the best
    for tick in range(29):
        engine.step(idle(engine))
        assert paid(engine) == 0, tick
    engine.step(idle(engine))
    assert paid(engine, "no_progress") == -15
    assert engine.cars["terminated"][0, 0]


@pytest.mark.parametrize("preset", ["race", "carracing"])
@pytest.mark.parametrize("sign", [(1, 0), (-1, 0), (0, 1), (0, -1)])
def test_leaving_the_playfield_is_the_whole_reward_of_its_tick(preset, sign):
    options = {"preset": preset, "laps": 1} if preset == "carracing" else {}
    engine = engine_on(painted(0), **options)
    engine.step(idle(engine))
    before = engine.cars["native_return"][0, 0]
    for distance, gone in ((PLAYFIELD - 0.1, False), (PLAYFIELD + 0.1, True)):
        place(engine, sign[0] * distance, sign[1] * distance, 0.0)
        engine.step(action(steer=0.5, brake=0.5))
        assert bool(engine.cars["terminated"][0, 0]) == gone
    terms = dict(zip(TERMS, engine.terms[0, 0], strict=True))
    assert terms.pop("playfield") == -100 and not any(terms.values())
    assert engine.rewards[0, 0] == -100
    assert engine.cars["native_return"][0, 0] == pytest.approx(before - 0.1 - 100)
    assert not engine.cars["truncated"][0, 0] and not engine.cars["finish_tick"][0, 0]


def test_the_playfield_can_be_left_where_that_is_asked_for():
    env = RacingVectorEnv(1, seed=1, end_at_playfield=False)
    env.reset()
    place(env.engine, PLAYFIELD + 20, 0.0, 0.0)
    _, reward, terminated, _, _ = env.step(np.zeros((1, 3)))
    assert not terminated[0] and reward[0] > -1
    env.close()


def test_ticks_after_an_ending_pay_nothing():
    """Of a repeated action, only the ticks up to the ending count."""
    engine = engine_on(painted(0), reward=lone(time=-1.0, playfield=-100.0), action_repeat=10)
    place(engine, PLAYFIELD - 2.5, 0.0, -math.pi / 2, speed=50.0)
    engine.step(idle(engine))
    car = engine.cars[0, 0]
    assert car["terminated"] and 2 <= car["tick"] <= 4
    assert engine.rewards[0, 0] == -100 - (car["tick"] - 1)
    assert car["episode_return"] == engine.rewards[0, 0]
    engine.step(idle(engine))
    assert engine.rewards[0, 0] == 0 and engine.cars["tick"][0, 0] == car["tick"]


@pytest.mark.parametrize("repeat", [1, 3])
def test_the_terms_of_a_drive_sum_to_its_reward(repeat):
    reward = RewardConfig(
        tile=300.0, progress=700.0, finish=10.0, off_track=-0.5, wheels_off=-0.7, corner_entry=-1.0,
        corner_target_speed=20.0, apex_decel=0.3, steer_smoothness=-0.1, steer_magnitude=-0.2,
        yaw_rate=-0.05, brake=-0.3, idle=-0.1, idle_speed=20.0,
    )  # fmt: skip
    engine = engine_on(painted(0), painted(3), reward=reward, action_repeat=repeat)
    total, seen = 0.0, np.zeros(len(TERMS), bool)
    for _ in range(900 // repeat):
        engine.step(follow(engine, 70.0, 6.0))
        assert np.allclose(engine.terms.sum(-1), engine.rewards, atol=1e-12)
        seen |= (engine.terms != 0).any((0, 1))
        total = total + engine.rewards
    assert np.allclose(total, engine.cars["episode_return"])
    missing = {name for name, was in zip(TERMS, seen, strict=True) if not was}
    assert missing <= {"finish", "missed_tile", "stuck", "no_progress", "playfield"}


def test_the_native_return_is_carracings_whatever_is_rewarded():
    native = RewardConfig.native()
    shaped = RewardConfig(progress=5.0, off_track=-3.0, time=0.0)
    plain = engine_on(painted(2), reward=native)
    other = engine_on(painted(2), reward=shaped)
    total = 0.0
    for _ in range(300):
        action = follow(plain, 50.0)
        plain.step(action)
        other.step(action)
        total += plain.rewards[0, 0]
    assert other.cars["native_return"][0, 0] == pytest.approx(total)
    assert plain.cars["native_return"][0, 0] == pytest.approx(total)
    assert other.cars["episode_return"][0, 0] != pytest.approx(total)


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


def test_carracings_lap_ends_with_the_last_tile_and_not_at_the_line():
    """The reference's `lap_complete_percent` does nothing, and neither does it here."""
    engine = engine_on(painted(0), preset="carracing", laps=1)
    track = engine.tracks[0].track
    skipped = 500.0
    carry(engine, *at(track, np.arange(0, skipped, 1.0))[:2])
    carry(engine, *at(track, np.arange(skipped + 12, track.length + skipped - 1, 1.0))[:2])
    car = engine.cars[0, 0]
    assert 0.98 < car["tiles_visited"] / len(track) < 1
    assert car["active"] and not car["terminated"], "ended at the line"
    put_at(engine, skipped - 2)
    carry(engine, *at(track, np.arange(skipped - 2, skipped + 14, 1.0))[:2])
    assert car["tiles_visited"] == len(track)
    assert car["terminated"] and car["finish_tick"] == car["tick"]


def test_time_runs_out():
    engine = engine_on(painted(0), max_ticks=7, action_repeat=2)
    for _ in range(3):
        engine.step(idle(engine))
        assert engine.cars["active"][0, 0]
    engine.step(idle(engine))
    car = engine.cars[0, 0]
    assert car["truncated"] and not car["terminated"] and car["tick"] == 7
    assert engine.rewards[0, 0] == pytest.approx(-0.1)


def test_an_ending_in_the_last_tick_is_no_truncation():
    engine = engine_on(painted(0), max_ticks=3)
    for _ in range(2):
        engine.step(idle(engine))
    place(engine, PLAYFIELD + 1, 0.0, 0.0)
    engine.step(idle(engine))
    car = engine.cars[0, 0]
    assert car["terminated"] and not car["truncated"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("progress", float("nan"), "progress is a number"),
        ("time", float("inf"), "time is a number"),
        ("stuck_limit", -1, "stuck_limit"),
        ("corner_target_speed", 0.0, "corner_target_speed"),
    ],
)
def test_bad_coefficients_are_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        RewardConfig(**{field: value})
