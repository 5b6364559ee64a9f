"""Every file in conf/: it can be composed and validated, and it repeats no default."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from common.config import CONF_DIR, compose, default_values
from common.files import to_plain
from common.help import describe
from common.keys import field_docs, field_types, plain_type
from ppo.config import PPOTrainConfig
from rssm.training_run import WorldModelTrainConfig

COMMANDS = {"train_ppo": PPOTrainConfig, "train_world_model": WorldModelTrainConfig}
RUNGS = [p for p in (CONF_DIR / "experiment").glob("*.yaml") if "rung" in OmegaConf.load(p)]
GROUPS = {
    **dict.fromkeys(("env", "reward", "ppo", "logger"), "train_ppo"),
    "rssm": "train_world_model",
    "experiment": None,
}
OPTIONS = sorted(file for group in GROUPS for file in (CONF_DIR / group).glob("*.yaml"))
RECIPES = ("experiment", "reward")
"""Groups whose options say in full what they are, even where that is the default."""


def command_of(file: Path) -> str:
    experiment = "train_world_model" if file in RUNGS else "train_ppo"
    return GROUPS[file.parent.name] or experiment


def settings(node, prefix=""):
    """Dotted keys and values of a YAML file."""
    for name, value in node.items():
        if isinstance(value, dict):
            yield from settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def test_every_file_belongs_to_a_group_that_is_tested():
    campaigns = set((CONF_DIR / "autoresearch").rglob("*.yaml"))  # tests/autoresearch loads them
    commands = {CONF_DIR / f"{name}.yaml" for name in COMMANDS}
    assert set(CONF_DIR.rglob("*.yaml")) == campaigns | commands | set(OPTIONS)


@pytest.mark.parametrize("file", OPTIONS, ids=lambda file: f"{file.parent.name}={file.stem}")
def test_every_option_is_valid(file):
    name = command_of(file)
    group = file.parent.name
    more = ["reward=native"] if file.stem == "gymnasium_carracing" else []
    config = compose(name, COMMANDS[name], [f"{group}={file.stem}", *more])
    if group == "experiment":
        assert config != compose(name, COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_file_holds_choices_only(name):
    """Defaults are written in the classes, and nowhere else."""
    assert list(OmegaConf.load(CONF_DIR / f"{name}.yaml")) == ["defaults"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_without_options_has_the_classes_defaults(name):
    schema = COMMANDS[name]
    groups = {"env": "race", "reward": "progress"} if name == "train_ppo" else {}
    composed, plain = to_plain(compose(name, schema)), to_plain(schema())
    for group, option in groups.items():
        written = OmegaConf.to_container(OmegaConf.load(CONF_DIR / group / f"{option}.yaml"))
        for key, settings_ in written.items():
            plain[key] |= settings_
    assert composed == plain


@pytest.mark.parametrize(
    "file",
    [file for file in OPTIONS if file.parent.name not in RECIPES],
    ids=lambda file: f"{file.parent.name}={file.stem}",
)
def test_an_option_repeats_no_default(file):
    written = OmegaConf.to_container(OmegaConf.load(file))
    if "@package _global_" not in file.read_text(encoding="utf-8"):
        written = {"network" if file.parent.name == "rssm" else file.parent.name: written}
    defaults = dict(settings(to_plain(default_values(COMMANDS[command_of(file)]))))
    for key, value in settings(written):
        assert value != defaults[key], f"{file.name} repeats the default {key}={value}"


def undocumented(schema, prefix=""):
    for name, hint in field_types(schema).items():
        if hasattr(plain_type(hint), "__dataclass_fields__"):
            yield from undocumented(plain_type(hint), f"{prefix}{name}.")
        elif name not in field_docs(schema):
            yield f"{prefix}{name}"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_a_sentence_for_every_setting(name):
    assert list(undocumented(COMMANDS[name])) == []
    assert max(map(len, describe(COMMANDS[name]).splitlines())) <= 80
