"""A real Hydra application in a temporary directory, run as its own process."""

import json
import os
import subprocess
import sys
from dataclasses import field
from pathlib import Path

import pytest

from common.config import check_growth, compose, hydra_entry, resumed
from common.errors import ConfigError
from common.overrides import check_command_line, sweep
from common.runs import Run
from common.schema import config_class

ROOT = Path(__file__).resolve().parents[2]

APP = '''
import json
import sys
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

from omegaconf import OmegaConf
from pydantic import Field

from common.config import hydra_entry
from common.errors import UserError
from common.schema import config_class


@config_class
class EnvConfig:
    preset: Literal["race", "carracing"] = "race"
    seed: int | None = None


@config_class
class PPOConfig:
    """How to learn.

    Attributes:
        clip: width of the trust region. It is small.
    """

    learning_rate: float = 1e-3
    clip: float = 0.2
    max_norm: Annotated[float, Field(allow_inf_nan=True)] = float("inf")
    hidden: tuple[int, ...] = (64,)

    def __post_init__(self):
        if not 0 < self.clip < 1:
            raise ValueError(f"clip must lie in (0, 1), got {self.clip}")


@config_class
class TrainConfig:
    env: EnvConfig = field(default_factory=EnvConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    total_timesteps: int = 100
    fail: str | None = None


@hydra_entry("train", TrainConfig, Path(__file__).parent / "conf")
def main(config, resolved):
    """Learn to drive."""
    assert isinstance(config.ppo, PPOConfig)
    assert not any("hydra" in argument for argument in sys.argv[1:])
    if config.fail == "user":
        raise UserError("the track is flooded")
    if config.fail == "bug":
        raise ZeroDivisionError("a bug")
    if config.fail == "omegaconf":
        OmegaConf.create({"a": "${nowhere}"}).a
    print(json.dumps(resolved))


if __name__ == "__main__":
    main()
'''


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    directory = tmp_path_factory.mktemp("app")
    for name, text in {
        "app.py": APP,
        "conf/train.yaml": "defaults: [train_defaults, env: race, ppo: default, _self_]",
        "conf/env/race.yaml": "preset: race\n",
        "conf/env/carracing.yaml": "preset: carracing\n",
        "conf/ppo/default.yaml": "learning_rate: 3e-4\n",
        "conf/ppo/wrong.yaml": "lerning_rate: 3e-4\n",
        "conf/trial/big.yaml": "# @package _global_\nppo:\n  hidden: [512, 512]\n",
        # Of another command that shares conf/:
        "conf/trial/rung.yaml": "# @package _global_\nrung: {name: E1}\n",
        "conf/sizes/small.yaml": "# @package network\nwidth: 8\n",
    }.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


@pytest.fixture
def run(app, tmp_path):
    """Run the application in an empty directory; returns exit code, stdout and stderr."""

    def call(*overrides: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, app / "app.py", *overrides],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout, done.stderr

    return call


def test_composes_from_anywhere_and_leaves_no_files(run, tmp_path):
    code, out, err = run(
        "env=carracing", "ppo.hidden=[32,16]", "+ppo.clip=0.1", "total_timesteps=1e6"
    )
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "env": {"preset": "carracing", "seed": None},
        "ppo": {
            "learning_rate": 3e-4,
            "clip": 0.1,
            "max_norm": float("inf"),
            "hidden": [32, 16],
        },
        "total_timesteps": 1_000_000,
        "fail": None,
    }
    assert list(tmp_path.iterdir()) == []


def test_key_that_no_yaml_file_spells_out_can_be_set(run):
    code, out, _ = run("ppo.clip=0.3", "env.seed=7")
    assert code == 0
    resolved = json.loads(out)
    assert (resolved["ppo"]["clip"], resolved["env"]["seed"]) == (0.3, 7)


@pytest.mark.parametrize("prefix", ["", "+", "++", "~"])
def test_misspelt_key_is_refused_however_it_is_added(run, prefix):
    value = "" if prefix == "~" else "=1"
    code, out, err = run(f"{prefix}ppo.lerning_rate{value}")
    assert (code, out) == (2, "")
    assert err == "error: unknown key 'ppo.lerning_rate'; did you mean 'ppo.learning_rate'?\n"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env=rce"], "error: env: 'rce' is not one of carracing, race; did you mean 'race'?\n"),
        (["ppo=wrong"], "error: unknown key 'ppo.lerning_rate'; did you mean 'ppo.learning_rate'"),
        (["ppo.clip=2"], "error: ppo.clip must lie in (0, 1), got 2.0\n"),
        (["ppo.clip=abc"], "error: ppo.clip: expected a number, got 'abc'\n"),
        (["nonsense"], "error: cannot read 'nonsense' as name=value: missing EQUAL at '<EOF>'\n"),
        (["trial=big"], "error: Could not override 'trial'."),
        (["fail=user"], "error: the track is flooded\n"),
    ],
)  # fmt: skip
def test_bad_input_exits_2_with_one_message(run, overrides, message):
    code, out, err = run(*overrides)
    assert (code, out) == (2, "")
    assert err.startswith(message) and "Traceback" not in err


@pytest.mark.parametrize(
    ("fail", "error"),
    [("bug", "ZeroDivisionError: a bug"), ("omegaconf", "InterpolationKeyError")],
)
def test_a_bug_keeps_its_traceback(run, fail, error):
    code, _, err = run(f"fail={fail}")
    assert code == 1
    assert "Traceback" in err and error in err and "app.py" in err


def test_multirun_sweeps_options_and_values(run, tmp_path):
    code, out, err = run("--multirun", "env=race,carracing", "ppo.clip=0.1,0.2")
    assert (code, err) == (0, "")
    jobs = [json.loads(line) for line in out.splitlines()]
    assert [(job["env"]["preset"], job["ppo"]["clip"]) for job in jobs] == [
        ("race", 0.1), ("race", 0.2), ("carracing", 0.1), ("carracing", 0.2),
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.parametrize("bad", ["ppo.clip=0.1,2", "total_timesteps=1,x", "fail=null,${nowhere}"])
def test_every_job_is_checked_before_the_first_begins(run, bad):
    code, out, err = run("--multirun", "env=race,carracing", bad)
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1
    assert f"(in the job env=race {bad.split('=')[0]}=" in err and "none was started" in err


def test_one_job_that_fails_does_not_cost_the_others(run):
    code, out, err = run("--multirun", "fail=user,null")
    assert (code, err) == (2, "error: the track is flooded\n")
    assert [json.loads(line)["fail"] for line in out.splitlines()] == [None]


def test_a_sweep_is_every_combination():
    assert list(sweep(["++a=1,2", "b=x,y", "++c=[1,2]"])) == [
        [f"++a={a}", f"b={b}", "++c=[1,2]"] for a in (1, 2) for b in "xy"
    ]


def test_options_of_a_directory_of_ones_own(run, tmp_path):
    option = tmp_path / "own" / "ppo" / "mine.yaml"
    option.parent.mkdir(parents=True)
    option.write_text("clip: 0.4\n")
    for more in ((), ("--multirun",)):
        code, out, err = run("--config-dir", "own", "ppo=mine", *more)
        assert (code, err) == (0, "") and json.loads(out)["ppo"]["clip"] == 0.4
    assert "ppo: [mine]" not in run("--config-dir", "own", "--help")[1]
    assert "ppo: default, [mine]" in run("--config-dir", "own", "ppo=mine", "--help")[1]


def test_show_config_and_help(run):
    code, out, _ = run("--cfg", "job", "ppo.clip=0.3")
    assert code == 0 and "clip: 0.3" in out
    code, out, _ = run("--help")
    assert code == 0
    assert out.startswith("Learn to drive.")
    assert "\n  ppo.clip=0.2\n      width of the trust region. [number]\n" in out
    assert "\nppo: How to learn.\n" in out
    assert "\n  env.preset=race\n      [race | carracing]\n" in out
    assert "env: carracing, [race]\n" in out and "It is small" not in out
    assert "trial: big\n" in out and "rung" not in out and "sizes" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert "\n  env.preset=carracing\n" in run("--help", "env=carracing", "+trial=big")[1]


def test_compose_gives_what_the_command_gets(app):
    @config_class
    class Config:
        ppo: dict[str, float] = field(default_factory=lambda: {"clip": 0.2})
        env: dict[str, str] = field(default_factory=dict)

    config = compose("train", Config, ["env=carracing", "ppo.clip=1"], app / "conf")
    assert config == Config(ppo={"clip": 1.0, "learning_rate": 3e-4}, env={"preset": "carracing"})
    with pytest.raises(ConfigError, match="unknown key 'pop'"):
        compose("train", Config, ["pop=1"], app / "conf")


def test_a_resume_takes_single_settings_of_a_group(tmp_path):
    @config_class
    class Logger:
        kind: str = "none"
        mode: str = "offline"

    @config_class
    class Config:
        logger: Logger = field(default_factory=Logger)
        budget: int = 1
        resume: str | None = None

    stored = {"logger": {"kind": "wandb", "mode": "offline"}, "budget": 5, "resume": None}
    run = Run.create(tmp_path, "a", stored, seeds={})
    typed = Config(logger=Logger(mode="online"), resume="a")
    allowed = ("resume", "logger", "budget")
    config = resumed(run, typed, ["resume=a", "++logger.mode=online"], allowed)
    assert config == Config(Logger("wandb", "online"), 5, "a")
    config = resumed(run, typed, ["resume=a", "logger=none"], allowed)
    assert config == Config(Logger("none", "online"), 5, "a")
    with pytest.raises(ConfigError, match="can only grow, it has 5"):
        check_growth("budget", run.config, 4)


@config_class
class Small:
    """The keys and groups that the checks below need, against the application's conf/."""

    @config_class
    class Part:
        clip: float = 0.2
        terms: dict[str, float] = field(default_factory=dict)

    ppo: Part = field(default_factory=Part)
    env: dict[str, str] = field(default_factory=dict)
    seeds: str = "0-99"


@pytest.mark.parametrize(
    ("override", "passed_on"),
    [
        ("ppo.clip=1", "++ppo.clip=1"),
        ("+ppo.clip=1", "++ppo.clip=1"),
        ("ppo.clip=1,2", "++ppo.clip=1,2"),
        ("ppo.terms.any=1", "++ppo.terms.any=1"),
        ("ppo={clip: 1}", "++ppo={clip: 1}"),
        ("ppo=default", "ppo=default"),
        ("env=race,carracing", "env=race,carracing"),
        ("env='race'", "env='race'"),
        ("+trial=big", "+trial=big"),
        ("hydra.verbose=true", "hydra.verbose=true"),
        ("hydra/launcher=basic", "hydra/launcher=basic"),
    ],
)
def test_good_overrides_pass(app, override, passed_on):
    assert check_command_line(["-m", override], Small, app / "conf").overrides == [passed_on]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("ppo={clp: 1}", "unknown key 'ppo.clp'; did you mean 'ppo.clip'"),
        ("clip=1", "unknown key 'clip'; did you mean 'ppo.clip'"),
        ("seed=1", "unknown key 'seed'; did you mean 'seeds'"),
        ("ppo.clip.x=1", "unknown key 'ppo.clip.x'"),
        ("=3", "'=3': write name=value"),
        ("+=3", "'+=3': write name=value"),
        ("~env", "a group cannot be removed; choose env= one of carracing, race"),
        ("~env=race", "a group cannot be removed"),
        ("~ppo.clip", "cannot be removed; set it with ppo.clip=value"),
        ("env=race,carracin", "env: 'carracin' is not one of carracing, race"),
        ("env=[race,carracin]", "env: 'carracin' is not one of"),
        ("+trial=small", "trial: 'small' is not one of big"),
        ("+trial=rung", "trial: 'rung' is not one of big"),
        ("sizes=small", "unknown key 'sizes'"),
        ("envs/x=race", "unknown configuration group 'envs/x'; groups: env, ppo, trial"),
        ("--experimental-rerun=x.pickle", "unrecognized arguments: --experimental-rerun"),
        ("--config-dir=/nonexistent", "--config-dir /nonexistent: no such directory"),
        ("--cfg=jbo", "invalid choice: 'jbo'"),
    ],
)
def test_bad_overrides_are_refused(app, override, message):
    with pytest.raises(ConfigError) as caught:
        check_command_line([override], Small, app / "conf")
    assert message in str(caught.value)


def test_missing_configuration_is_explained(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["app.py"])
    with pytest.raises(SystemExit, match="2"):
        hydra_entry("train", Small, tmp_path / "conf")(lambda config, resolved: None)()
    assert "no configuration found" in capsys.readouterr().err
