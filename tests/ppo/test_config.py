from dataclasses import asdict
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from common import schema
from common.config import CONF_DIR, validate
from common.errors import ConfigError
from ppo.config import PPOConfig, PPOTrainConfig

EXPERIMENTS = sorted(
    path.stem
    for path in (CONF_DIR / "experiment").glob("*.yaml")
    if "rung" not in OmegaConf.load(path)  # a rung is train_world_model.py's
)


def composed(*overrides):
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return validate(compose("train_ppo", overrides=list(overrides)), PPOTrainConfig)


def test_the_yaml_of_ppo_spells_out_every_default():
    written = OmegaConf.to_container(OmegaConf.load(CONF_DIR / "ppo" / "default.yaml"))
    defaults = asdict(PPOConfig())
    assert written.keys() == defaults.keys()
    assert written["network"].keys() == defaults["network"].keys()
    assert schema.build(PPOConfig, written) == PPOConfig()


def test_the_main_file_spells_out_every_default():
    written = OmegaConf.to_container(OmegaConf.load(CONF_DIR / "train_ppo.yaml"))
    del written["defaults"]
    groups = {"env", "reward", "endings", "ppo", "logger"}
    assert written.keys() == asdict(PPOTrainConfig()).keys() - groups
    assert schema.build(PPOTrainConfig, written) == PPOTrainConfig()


def test_the_default_policy_sees_motion():
    spec = composed().env.observation
    assert (spec.grey, spec.frame_stack, spec.action_repeat) == (True, 4, 4)


@pytest.mark.parametrize("group", ["env", "reward", "logger", "ppo"])
def test_every_option_of_a_group_is_valid(group):
    options = [path.stem for path in (CONF_DIR / group).glob("*.yaml")]
    assert options
    for option in options:
        own_reward = ["reward=native"] if option == "gymnasium_carracing" else []
        composed(f"{group}={option}", *own_reward)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_is_valid(experiment):
    assert composed(f"experiment={experiment}") != composed()


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


def test_the_evaluators_world_is_the_trained_one_unless_given():
    assert composed("++env.direction=cw").validation_world == ("race", "cw")
    assert composed("++env.direction=both").validation_world == ("race", "ccw")
    given = composed("++env.direction=cw", "evaluation.env=carracing", "evaluation.direction=ccw")
    assert given.validation_world == ("carracing", "ccw")


def test_one_test_seed_may_be_a_number():
    for seed in (0, 5):
        assert composed(f"evaluation.test_seeds={seed}").evaluation.final_seeds() == [seed]
    assert composed("evaluation.test_seeds=''").evaluation.final_seeds() == []


def test_millions_may_be_written_as_1e6():
    assert composed("total_timesteps=2e6").total_timesteps == 2_000_000


def test_no_yaml_file_is_left_out_of_these_tests():
    groups = {path.parent.name for path in Path(CONF_DIR).glob("*/*.yaml")}
    assert {"env", "reward", "ppo", "logger", "experiment"} <= groups
