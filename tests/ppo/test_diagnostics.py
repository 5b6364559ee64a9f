"""Every failure made on purpose, by the real trainer in the real engine; and healthy drivers."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from common.runs import Run
from common.torch.session import Session
from envs.racing import EndingConfig, EnvConfig, RacingVectorEnv, RewardConfig
from envs.racing import evaluate as evaluator
from envs.racing.drivers import CentrelineDriver
from ppo.config import PPOConfig, PPOTrainConfig
from ppo.diagnostics import (
    action_statistics,
    as_metrics,
    diagnose,
    diagnose_evaluation,
    steady_steer,
)
from ppo.evaluate import Driver
from ppo.policy import ActorCritic
from ppo.trainer import PPOTrainer
from ppo.training_run import COMMAND
from tests.ppo.toys import NETWORK, cpu

NAMES = [
    "steering_collapse", "throttle_saturation", "off_track_hacking", "circling",
    "entropy_collapse", "non_finite",
]  # fmt: skip
ENV = EnvConfig(size=64, grey=True, action_repeat=4, max_ticks=400, track_pool=8)
ROAD = RewardConfig(off_track=-2.0, no_progress=-10.0)
ROAD_ENDINGS = EndingConfig(no_progress_limit=200)
PPO = PPOConfig(
    num_envs=4, num_steps=104, epochs=1, minibatches=2, learning_rate=1e-6, network=NETWORK
)  # fmt: skip


class Watched(RacingVectorEnv):
    """The racing environment, whose last info a scripted driver may read."""

    latest = None

    def reset(self, **options):
        Watched.latest = self
        observation, self.info = super().reset(**options)
        return observation, self.info

    def step(self, actions):
        *result, self.info = super().step(actions)
        return *result, self.info


class Scripted(CentrelineDriver):
    """Follows the road `offset` units to the left of its middle."""

    def __init__(self, offset=0.0):
        super().__init__(45.0, 22.0, repeat=ENV.action_repeat)
        self.offset = np.float32([offset, 0.0, 0.0])

    def act(self, carry, observation, is_first, deterministic=True):
        return super().act(carry, observation - self.offset, is_first)


def trainer(root, *, env=ENV, reward=ROAD, ppo=PPO, world=Watched, **network):
    ppo = replace(ppo, network=replace(ppo.network, **network))
    endings = ROAD_ENDINGS if reward is ROAD else EndingConfig()
    config = PPOTrainConfig(
        env=env, reward=reward, endings=endings, ppo=ppo, device="cpu", threads=1, display=False
    )
    run = Run.create(root, "run", {}, seeds={})
    return PPOTrainer(config, run, cpu(), world(ppo.num_envs, env, reward, seed=5, endings=endings))


def scripted(trainer, driver):
    """Let `driver` decide instead of the policy."""
    decide, n = trainer.policy.decide, trainer.env.num_envs
    state = {"carry": driver.initial(n), "is_first": np.ones(n, bool)}

    def instead(pixels, noise):
        decision = decide(pixels, noise)
        observation = driver.spec.gather(Watched.latest.info, n)
        action, state["carry"] = driver.act(state["carry"], observation, state["is_first"])
        state["is_first"] = np.zeros(n, bool)
        return decision._replace(action=torch.from_numpy(action))

    trainer.policy.decide = instead
    return trainer


def failures(diagnoses):
    assert [d.name for d in diagnoses] == NAMES
    assert all(d.value != d.limit for d in diagnoses if d.failed)
    assert not any(d.failed and d.value is None for d in diagnoses)
    return {d.name for d in diagnoses if d.failed}


def rows(trainer, count=2):
    """Train; the last row, by which time episodes have ended."""
    collected = [trainer.train_once() for _ in range(count)]
    trainer.env.close()
    return collected[-1]


DONUTS = RewardConfig(progress=0.0, yaw_rate=1.0)  # which takes place on the grass
GRASS = RewardConfig(off_track=1.0)


@pytest.mark.parametrize(
    ("names", "reward", "network"),
    [
        ({"steering_collapse"}, ROAD, {"initial_action": (0.999, 0.05, 0.5)}),
        ({"steering_collapse"}, ROAD, {"initial_action": (-0.999, 0.05, 0.5)}),
        ({"throttle_saturation"}, ROAD, {"initial_action": (0.0, 0.999, 0.001)}),
        (
            {"throttle_saturation"},
            ROAD,
            {"initial_action": (0.0, 0.999, 0.001), "pedals": "two"},
        ),
        ({"off_track_hacking"}, GRASS, {}),
        ({"circling"}, ROAD, {"initial_action": (0.7, 0.3, 0.01)}),
        ({"circling", "off_track_hacking"}, DONUTS, {"initial_action": (-0.7, 0.3, 0.01)}),
        ({"entropy_collapse"}, ROAD, {"log_std_init": -4.0}),
    ],
)
def test_a_failure_made_on_purpose_is_named(tmp_path, names, reward, network):
    row = rows(trainer(tmp_path, reward=reward, **network))
    diagnoses = diagnose(row)
    assert failures(diagnoses) == names
    metrics = as_metrics(diagnoses)
    assert {name for name in NAMES if metrics.get(f"diagnostics/{name}")} == names
    assert all(metrics.get(f"diagnostics/{d.name}_value") == d.value for d in diagnoses)


class Broken(Watched):
    def step(self, actions):
        observation, reward, *rest = super().step(actions)
        return observation, reward + np.where(np.arange(len(reward)) == 3, np.nan, 0), *rest


def test_nan_rewards_are_named(tmp_path):
    ppo = replace(PPO, scale_rewards=False, max_nonfinite=100)
    diagnoses = diagnose(rows(trainer(tmp_path, ppo=ppo, world=Broken), count=1))
    assert failures(diagnoses) == {"non_finite"}
    assert diagnoses[-1].value == ppo.minibatches


def test_progress_on_the_grass_beside_the_road_is_hacking(tmp_path):
    # Nothing forbids it: all four wheels are off, arc length counts, and no tile is touched.
    env, driver = replace(ENV, max_ticks=1000), Scripted(offset=-9.2)
    ppo = replace(PPO, num_steps=256)
    row = rows(scripted(trainer(tmp_path, env=env, reward=RewardConfig(), ppo=ppo), driver), 1)
    assert row["episode/off_track_rate"] > 0.5 and row["episode/progress"] > 0.3
    assert failures(diagnose(row)) == {"off_track_hacking"}


@pytest.mark.parametrize("reward", [ROAD, RewardConfig.native()])
def test_a_driver_on_the_road_is_healthy(tmp_path, reward):
    env, ppo = replace(ENV, max_ticks=1000), replace(PPO, num_steps=256)
    row = rows(scripted(trainer(tmp_path, env=env, reward=reward, ppo=ppo), Scripted()), 1)
    assert row["episode/progress"] > 0.7 and row["episode/off_track_rate"] < 0.01
    diagnoses = diagnose(row)
    assert failures(diagnoses) == set()
    assert all(d.value is not None for d in diagnoses)


@pytest.mark.parametrize("reward", [ROAD, RewardConfig(), RewardConfig.native()])
@pytest.mark.parametrize("pedals", ["one", "two"])
def test_a_driver_that_has_learned_nothing_yet_is_not_flagged(tmp_path, reward, pedals):
    row = rows(trainer(tmp_path, reward=reward, pedals=pedals))
    assert row["episode/off_track_rate"] > 0.5  # as everyone begins
    assert failures(diagnose(row)) == set()


def test_a_warning_is_said_when_a_failure_appears_and_when_it_comes_back(tmp_path):
    ill = trainer(tmp_path, ppo=replace(PPO, num_steps=8))
    said, session = [], Session(COMMAND, ill.config, [])
    session.run, session.say = ill.run, said.append
    for steer, counts in [(5.0, 1), (5.0, 1), (0.0, 1), (5.0, 2), (-5.0, 2)]:
        with torch.no_grad():
            ill.policy.policy[-1].bias[0] = steer
        ill._publish(ill.train_once(), session)
        assert sum("steering_collapse" in text for text in said) == counts
    ill._publish({"ticks": 0, "ticks_per_second": 0.0, "decisions_per_second": 0.0}, session)
    ill._publish(ill.train_once(), session)
    assert (
        sum("steering_collapse" in text for text in said) == 2
    )  # was not measured, so not healthy
    logged = [row.get("diagnostics/steering_collapse") for row in ill.run.metrics()]
    assert logged == [1, 1, 0, 1, 1, None, 1]
    ill.env.close()


def evaluated(driver, seeds=(3, 4, 5)):
    evaluation = evaluator.evaluate(driver, seeds)
    assert len(evaluation.actions) == sum(row["decisions"] for row in evaluation.rows)
    return diagnose_evaluation(evaluation)


@pytest.mark.parametrize(
    ("names", "action"),
    [
        ({"steering_collapse", "circling"}, (0.999, 0.3, 0.01)),
        ({"throttle_saturation"}, (0.0, 0.999, 0.001)),
        ({"circling"}, (-0.7, 0.3, 0.01)),
        (set(), (0.0, 0.4, 0.05)),
    ],
)
def test_a_judged_policy_is_diagnosed(names, action):
    network = replace(NETWORK, initial_action=action)
    diagnoses = evaluated(Driver(ActorCritic(ENV.observation, network), ENV.observation))
    assert failures(diagnoses) == names
    measured = {d.name for d in diagnoses if d.value is not None}
    assert measured == {"steering_collapse", "throttle_saturation", "circling"}


def test_a_judged_driver_on_the_road_is_healthy():
    diagnoses = {d.name: d for d in evaluated(Scripted())}
    assert failures(list(diagnoses.values())) == set()
    assert diagnoses["circling"].value > 0.7


def test_what_was_not_measured_is_none():
    assert all(d.value is None and not d.failed for d in diagnose({}))
    assert as_metrics(diagnose({})) == {}
    nothing = {"ppo/std_gas": None, "action/steer_one_lock": float("nan")}
    assert as_metrics(diagnose(nothing)) == {}
    standing = {"episode/mean_speed": 0.0, "episode/length": 400.0, "episode/progress": 0.0}
    assert as_metrics(diagnose(standing | {"action/steady_steer": 1.0})) == {}
    assert asdict(diagnose({})[0]).keys() == {"name", "failed", "value", "limit", "message"}


def test_weaving_from_lock_to_lock_is_neither_collapse_nor_circling():
    steer = torch.tensor([1.0, -1.0]).repeat(50)[:, None].expand(100, 4)
    row = action_statistics(torch.stack([steer.flatten(), *torch.zeros(2, 400)], -1))
    assert row["steer_saturated"] == 1.0 and row["steer_one_lock"] == 0.5
    assert steady_steer(steer, torch.ones(100, 4, dtype=torch.bool)) == 0.0


def test_steady_steer_does_not_cancel_and_leaves_out_what_is_inactive():
    steer = torch.tensor([[0.6, -0.6, 9.0], [0.6, -0.6, 9.0], [0.6, 9.0, 9.0]])
    assert steady_steer(steer, steer < 1) == pytest.approx(0.6)


def test_action_statistics():
    actions = torch.tensor([[1.0, 0.5, 0.0], [-1.0, 1.0, 0.2], [0.5, 0.0, 0.0], [0.5, 0.0, 0.0]])
    result = action_statistics(actions)
    assert result["steer_mean"] == 0.25
    assert result["steer_saturated"] == 0.5
    assert result["steer_one_lock"] == 0.25
    assert result["gas_saturated"] == 0.25
    assert result["gas_mean"] == 0.375
    assert result["brake_used"] == 0.25
