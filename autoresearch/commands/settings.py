"""What the words of a command name: a campaign's settings, and the directory of one that began."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from autoresearch.config import CampaignConfig
from autoresearch.loop.ledger import LEDGER
from autoresearch.report.keep import CAMPAIGNS, kept
from common import schema
from common.config import CONF_DIR
from common.errors import ConfigError, UserError
from common.keys import unknown_choice
from common.runs import ROOT

CONFIGURATIONS = CONF_DIR / "autoresearch"

GROUPS_BY_KIND = ("executor", "proposer")
"""Groups that can be given their kind alone: executor=ray."""


@dataclass(frozen=True)
class Place:
    """Where a campaign that has begun lies.

    Attributes:
        directory: of its ledger.
        committed: it is one of the repository's results, which no command changes.
    """

    directory: Path
    committed: bool = False


def campaigns() -> list[str]:
    """Names of the campaigns in conf/autoresearch."""
    return sorted(path.stem for path in CONFIGURATIONS.glob("*.yaml"))


def directory_of(config: CampaignConfig) -> Path:
    """Where a campaign with these settings runs."""
    return Path(config.root) / config.name


def load(
    words: Sequence[str], options: Sequence[str] = ()
) -> tuple[CampaignConfig, dict[str, str]]:
    """The campaign that `campaign=` names, with the other settings applied.

    Returns it, and the command's own `options` among the words, as text. Raises `ConfigError` for a
    word that does not fit.
    """
    settings = _pairs(words)
    chosen = {name: settings.pop(name) for name in (*options, "campaign") if name in settings}
    name = chosen.pop("campaign", None)
    if name is None:
        raise ConfigError(f"name a campaign: campaign={'|'.join(campaigns())}")
    if name not in campaigns():
        raise unknown_choice("campaign", name, campaigns())
    path = CONFIGURATIONS / f"{name}.yaml"
    try:
        content = OmegaConf.merge(OmegaConf.create({"name": name}), OmegaConf.load(path))
        changes = OmegaConf.from_dotlist([f"{key}={text}" for key, text in settings.items()])
        data = OmegaConf.to_container(OmegaConf.merge(content, changes), resolve=True)
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: {error}") from None
    return schema.build(CampaignConfig, data), chosen


def begun(words: Sequence[str], options: Sequence[str] = ()) -> tuple[Place, dict[str, str]]:
    """The campaign that `directory=`, or `campaign=` and its settings, name.

    `campaign=` means the run in its `root` or, where there is none, the committed campaign of that
    name. Prints a line if it is a committed one. Returns its place and the command's `options`.
    Raises `UserError` where there is neither.
    """
    settings = _pairs(words)
    if "directory" in settings:
        return _named(settings, options)
    name = settings.get("campaign")
    committed = {path.name: path for path in kept(CAMPAIGNS)}
    if name in committed and name not in campaigns():
        chosen = {key: text for key, text in settings.items() if key in options}
        if alone := sorted(settings.keys() - chosen.keys() - {"campaign"}):
            raise ConfigError(
                f"{name} is a committed campaign without a file in conf/autoresearch: "
                f"{', '.join(alone)} cannot be set"
            )
        return _announced(committed[name]), chosen
    config, chosen = load(words, options)
    directory = directory_of(config)
    if (directory / LEDGER).is_file():
        return Place(directory), chosen
    if config.name in committed and "root" not in settings:
        return _announced(committed[config.name]), chosen
    raise not_begun(directory, name)


def not_begun(directory: Path, name: str) -> UserError:
    """The error for a campaign that has no ledger."""
    return UserError(
        f"{directory / LEDGER}: no such ledger; begin the campaign with "
        f"`python -m autoresearch run campaign={name}`, or name one with directory="
    )


def whole_number(name: str, text: Any, low: int, high: int) -> int:
    """The value of an option; `ConfigError` unless it is a whole number in [low, high]."""
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"{name}: {text!r} is not a whole number") from None
    if not low <= value <= high:
        raise ConfigError(f"{name} is {low} to {high}, not {value}")
    return value


def _pairs(words: Sequence[str]) -> dict[str, str]:
    """`name=value` words as a mapping."""
    settings: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"'{word}': write name=value")
        name = f"{name}.kind" if name in GROUPS_BY_KIND else name
        if name in settings:
            raise ConfigError(f"{name} is given twice")
        settings[name] = text
    return settings


def _named(settings: dict[str, str], options: Sequence[str]) -> tuple[Place, dict[str, str]]:
    for name, text in settings.items():
        if name not in ("directory", *options):
            raise ConfigError(
                f"directory= names the campaign; {name}={text} has no place beside it"
            )
    directory = Path(settings.pop("directory"))
    if not (directory / LEDGER).is_file():
        raise UserError(
            f"{directory / LEDGER}: no such ledger; directory= names a folder that holds one, such "
            "as experiments/campaigns/control_49k"
        )
    return Place(directory, directory.resolve().parent == CAMPAIGNS), settings


def _announced(directory: Path) -> Place:
    print(f"no local run; using the committed campaign {directory.relative_to(ROOT)}")
    return Place(directory, committed=True)
