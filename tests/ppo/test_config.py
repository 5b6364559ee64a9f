import pytest

from common.config import compose
from common.errors import ConfigError
from ppo.config import PPOTrainConfig


def composed(*overrides):
    return compose("train_ppo", PPOTrainConfig, overrides)


def test_the_default_policy_sees_motion():
    spec = composed().env.observation
    assert (spec.grey, spec.frame_stack, spec.action_repeat) == (True, 4, 4)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("ppo.clip=-1", r"ppo\.clip is above 0 and at most 10, not -1"),
        ("ppo.clip=true", r"ppo\.clip: expected a number"),
        ("ppo.minibatches=100000", r"ppo\.minibatches=100000 is more than"),
        ("ppo.network.channels=[8]", r"ppo\.network\.channels, kernels and strides"),
        ("ppo.network.initial_action=[0,0,2]", r"ppo\.network\.initial_action"),
        (
            "ppo.lr_schedule=adaptive ppo.learning_rate=0.1",
            r"lr_schedule=adaptive keeps learning_rate in",
        ),
        ("ppo.lr_schedule=linaer", r"did you mean 'linear'"),
        ("env.frame_stack=0", r"env\.frame_stack is 1 to 16"),
        ("evaluation.test_seeds=abc", r"evaluation\.test_seeds: .* is no seed or range"),
        ("evaluation.test_seeds=90-510", r"evaluation\.test_seeds: sealed tracks"),
        ("total_timesteps=0", r"total_timesteps is 1 to"),
        (
            "total_timesteps=16383",
            r"less than one rollout of 16,384 ticks .*: ask for at least that",
        ),
        ("processes=3", r"ppo\.num_envs=32 must divide evenly"),
        ("++env.num_agents=3", r"ppo\.num_envs=32 is worlds x agents, .* env\.num_agents=3"),
        ("ppo.network.kernels=[8,4,50]", r"ppo\.network\.kernels=\[8, 4, 50\] .* do not fit 96x96"),
        ("evaluation.threads=0", r"evaluation\.threads is 1 to 256, not 0"),
        ("evaluation.threads=257", r"evaluation\.threads is 1 to 256, not 257"),
        ("env=carracing evaluation.direction=cw", r"direction=cw exists only in race"),
        ("++env.direction=cw evaluation.env=carracing", r"direction=cw exists only in race"),
        (
            "evaluation.direction=cw evaluation.env=gymnasium_carracing",
            r"not in gymnasium_carracing",
        ),
    ],
)
def test_values_out_of_range_are_refused(override, message):
    with pytest.raises(ConfigError, match=message):
        composed(*override.split())


def test_a_resumed_budget_is_not_compared_with_the_default_rollout():
    assert composed("resume=runs/ppo/small", "total_timesteps=6000").total_timesteps == 6000


def test_the_evaluators_world_is_the_trained_one_unless_given():
    assert composed("++env.direction=cw").validation_world == ("race", "cw")
    assert composed("++env.direction=both").validation_world == ("race", "ccw")
    config = composed("++env.direction=cw", "evaluation.env=carracing", "evaluation.direction=ccw")
    assert config.validation_world == ("carracing", "ccw")


def test_one_test_seed_may_be_a_number():
    for seed in (0, 5):
        assert composed(f"evaluation.test_seeds={seed}").evaluation.final_seeds() == [seed]
    assert composed("evaluation.test_seeds=''").evaluation.final_seeds() == []


def test_millions_may_be_written_as_1e6():
    assert composed("total_timesteps=2e6").total_timesteps == 2_000_000
