"""The scripted scenarios do what their names say, measured on the real engine."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from common.errors import UserError
from common.rl.policy import TelemetrySpec
from envs.racing import EnvConfig, RacingVectorEnv, evaluate
from envs.racing.drivers import SCENARIOS, ActionNoise, ScenarioDriver, make_scenario
from envs.racing.sim.track import HALF_WIDTH
from tests.policies import Constant

CARS, TICKS = 8, 600
BEND = 0.35
TELEMETRY = (
    "speed",
    "corner_angle",
    "lateral_offset",
    "off_track",
    "steer",
    "yaw_rate",
    "progress",
)


@pytest.fixture(scope="module")
def env():
    """Four tracks in each direction."""
    env = RacingVectorEnv(CARS, EnvConfig(direction="both", max_ticks=10_000))
    yield env
    env.close()


@pytest.fixture(scope="module")
def drive(env):
    """Runs a scenario; returns its telemetry and actions by name, each (TICKS, CARS)."""
    known = {}

    def run(name: str, seed: int = 3) -> dict[str, np.ndarray]:
        if (name, seed) in known:
            return known[name, seed]
        driver = make_scenario(name, batch_seed=seed)
        carry = driver.initial(CARS)
        _, info = env.reset(seed=20_000)
        is_first = np.ones(CARS, bool)
        rows = []
        for _ in range(TICKS):
            observation = driver.spec.gather(info, CARS)
            action, carry = driver.act(carry, observation, is_first)
            _, _, terminated, truncated, info = env.step(action)
            is_first = terminated | truncated
            rows.append([*(info[key] for key in TELEMETRY), *action.T])
        names = (*TELEMETRY, "steering", "gas", "brake")
        recording = dict(zip(names, np.array(rows).transpose(1, 0, 2), strict=True))
        recording["bend"] = np.abs(recording["corner_angle"]) > BEND
        known[name, seed] = recording
        return recording

    return run


def off(recording: dict[str, np.ndarray]) -> float:
    """Share of ticks with all wheels off the road."""
    return np.mean(recording["off_track"] == 1.0)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_gets_round_and_stays_on_the_road_unless_it_means_to(drive, name):
    recording = drive(name)
    assert recording["progress"][-1].min() > 0.25
    assert np.abs(recording["lateral_offset"]).max() < 40
    if name != "off_track_recovery":
        assert off(recording) < 0.05


def test_sustained_turn_holds_its_speed_in_bends(drive):
    recording = drive("sustained_turn")
    cruising = np.arange(TICKS)[:, None] > 100
    speed = recording["speed"]
    bend, straight = speed[recording["bend"] & cruising], speed[~recording["bend"]]
    assert bend.mean() > 38 and bend.mean() > 0.95 * straight.mean()
    assert bend.std() < 0.12 * bend.mean()


def test_turn_exit_accelerates_out_of_bends(drive):
    recording = drive("turn_exit")
    bend = np.abs(recording["corner_angle"])
    sharpest = np.max([np.roll(bend, shift, 0) for shift in range(40)], 0)  # of the last 0.8 s
    valid = (np.arange(TICKS)[:, None] > 60) & (np.arange(TICKS)[:, None] < TICKS - 25)
    opening = valid & (sharpest > 0.5) & (bend < 0.6 * sharpest)
    inside = valid & (bend > 0.5) & ~opening
    gain = np.roll(recording["speed"], -25, 0) - recording["speed"]  # in the next half second
    assert gain[opening].mean() > 3.0 > 1.0 > gain[inside].mean()
    assert recording["gas"][opening].mean() > 0.2 > 0.1 > recording["gas"][inside].mean()


def test_steering_reversal_turns_the_wheels_left_and_right(drive):
    def reversals(recording):
        turned = [steer[np.abs(steer) > 0.08] for steer in recording["steer"].T]
        return np.mean([np.sum(np.diff(np.sign(steer)) != 0) for steer in turned])

    recording, calm = drive("steering_reversal"), drive("near_edge")
    straight = ~recording["bend"]
    swing = np.abs(recording["lateral_offset"][straight])
    assert 0.25 * HALF_WIDTH < swing.mean() < HALF_WIDTH
    crossings = np.sum(np.diff(np.sign(recording["lateral_offset"]), axis=0) != 0, 0)
    seconds = TICKS / 50
    assert crossings.min() > 0.7 * seconds  # a period of two seconds crosses once a second
    assert (
        crossings.mean()
        > 3 * np.sum(np.diff(np.sign(calm["lateral_offset"]), axis=0) != 0, 0).mean()
    )
    assert reversals(recording) > 15


def test_throttle_lift_lifts_at_the_entry_and_never_brakes(drive):
    recording = drive("throttle_lift")
    assert recording["brake"].max() == 0.0
    bend = np.abs(recording["corner_angle"])
    entries = np.argwhere((bend[:-1] <= 0.25) & (bend[1:] > 0.25))
    entries = [(t, car) for t, car in entries if 50 <= t < TICKS - 20]
    fast = [(t, car) for t, car in entries if recording["speed"][t, car] > 35]
    assert len(fast) > 10
    before = np.mean([recording["gas"][t - 25 : t, car].mean() for t, car in fast])
    after = np.mean([recording["gas"][t + 2 : t + 12, car].mean() for t, car in fast])
    assert before > 0.05 and after < 0.2 * before
    speed = recording["speed"]
    slower = np.mean([speed[t + 15, car] - speed[t, car] for t, car in fast])
    assert slower < 0


def test_brake_in_turn_brakes_where_it_steers(drive):
    recording = drive("brake_in_turn")
    braking = recording["brake"] > 0.05
    assert braking[recording["bend"]].mean() > 0.5 > 0.02 > braking[~recording["bend"]].mean()
    assert np.abs(recording["yaw_rate"])[braking].mean() > 0.8
    slower = np.roll(recording["speed"], -10, 0) - recording["speed"]
    assert slower[:-10][braking[:-10]].mean() < -1.0


def test_off_track_recovery_leaves_and_comes_back(drive):
    recording = drive("off_track_recovery")
    assert 0.02 < off(recording) < 0.5
    for car in range(CARS):
        away = recording["off_track"][:, car] == 1.0
        left = np.sum(~away[:-1] & away[1:])
        back = np.sum(away[:-1] & ~away[1:])
        assert left >= 2 and back >= left - 1
        runs = np.split(away, np.flatnonzero(np.diff(away)) + 1)
        assert max(len(run) for run in runs if run[0]) < 250


def test_near_edge_drives_along_the_edge_of_the_road(drive):
    recording = drive("near_edge")
    settled = np.abs(recording["lateral_offset"][100:])
    assert settled.mean() > 0.6 * HALF_WIDTH
    assert np.mean(recording["off_track"] <= 0.5) > 0.9
    assert {-1.0, 1.0} <= set(np.sign(recording["lateral_offset"][100:].mean(0)))


def test_the_same_seed_drives_the_same_and_another_does_not(drive):
    one, two = drive("near_edge", 3), drive("near_edge", 4)
    assert not np.array_equal(one["steering"], two["steering"])
    observation = np.full((CARS, 4), 0.5, np.float32)
    drivers = [make_scenario("near_edge", batch_seed=5) for _ in range(2)]
    same = [
        driver.act(driver.initial(CARS), observation, np.ones(CARS, bool))[0] for driver in drivers
    ]
    assert np.array_equal(*same) and same[0].dtype == np.float32 and same[0].shape == (CARS, 3)


class Table(Constant):
    """A car's action is its row of a table."""

    def __init__(self, actions):
        super().__init__(spec=TelemetrySpec())
        self.actions = actions

    def act(self, carry, observation, is_first, deterministic=True):
        return self.actions, carry


def disturbed(policy, scale, cars, ticks):
    """The actions of every tick, (cars, 3) each."""
    noise, actions = ActionNoise(policy, scale), []
    carry = noise.initial(cars)
    frames = np.zeros((cars, *policy.spec.shape), np.float32)
    for tick in range(ticks):
        action, carry = noise.act(carry, frames, np.full(cars, tick == 0))
        actions.append(action)
    return actions


def test_noise_is_bounded_correlated_and_leaves_unused_pedals_alone():
    actions = np.array(disturbed(Constant(gas=0.5, spec=TelemetrySpec()), 0.3, 500, 60))
    assert actions.min() >= -1 and actions.max() <= 1 and not actions[..., 2].any()
    steer = actions[30:, :, 0]
    assert steer.std() == pytest.approx(0.3, rel=0.1)
    assert np.corrcoef(steer[:-1].ravel(), steer[1:].ravel())[0, 1] == pytest.approx(0.9, abs=0.03)
    assert (
        disturbed(Constant(gas=0.5, spec=TelemetrySpec()), 0.0, 2, 1)[0]
        == np.float32([0.0, 0.5, 0.0])
    ).all()
    steps = actions / ActionNoise.step
    assert np.array_equal(steps, np.round(steps))


def test_the_last_bits_of_an_action_do_not_reach_the_car():
    """They are the processor's own."""
    actions = np.random.default_rng(0).uniform(0, 1, (1000, 3))
    one, other = (
        disturbed(Table(table), 0.1, 1000, 1)[0] for table in (actions, actions * (1 + 1e-13))
    )
    assert one.tobytes() == other.tobytes()


def test_an_unknown_scenario_is_refused():
    with pytest.raises(UserError, match="sustained_turn"):
        make_scenario("drift")


def test_scenarios_are_no_part_of_the_evaluator():
    folder = Path(inspect.getfile(ScenarioDriver)).parent.name
    assert folder not in evaluate.MEASURES
