"""Every way an episode ends, by hand on constructed situations."""

import math

import numpy as np
import pytest

from envs.racing import EndingConfig, RacingVectorEnv
from envs.racing.score.terms import TERMS
from envs.racing.sim.track import PLAYFIELD
from tests.envs.racing.driving import at, carry, engine_on, idle, painted, place, put_at
from tests.envs.racing.score.paying import (
    action,
    grass,
    lone,
    paid,
    straight,
)


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
        endings=EndingConfig(finish=False),
        laps=1,
        preset=preset,
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


def test_off_track_can_end_the_episode():
    engine = engine_on(
        painted(0), reward=lone(off_track_end=-30.0), endings=EndingConfig(off_track_limit=5)
    )
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


def test_stuck_ends_the_episode():
    engine = engine_on(
        painted(0),
        reward=lone(stuck=-20.0),
        endings=EndingConfig(stuck_limit=10, stuck_speed=0.8),
    )
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
    endings = EndingConfig(no_progress_limit=30)
    engine = engine_on(painted(0), reward=lone(no_progress=-15.0), endings=endings)
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
    env = RacingVectorEnv(1, seed=1, endings=EndingConfig(playfield=False))
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
        ("stuck_limit", -1, "stuck_limit"),
        ("no_progress_limit", 2.5, "no_progress_limit"),
        ("stuck_speed", float("nan"), "stuck_speed"),
        ("finish", 1, "finish"),
    ],
)
def test_bad_limits_are_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        EndingConfig(**{field: value})
