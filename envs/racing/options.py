"""Reads the options of an environment, which are the same for every interface.

`gymnasium.make`, `gymnasium.make_vec`, `RacingVectorEnv` and the PettingZoo form accept the same
names with the same meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from common.errors import UserError
from common.keys import unknown_choice
from envs.racing.config import EnvConfig
from envs.racing.score.endings import EndingConfig
from envs.racing.score.terms import RewardConfig

T = TypeVar("T")


def read_config(config: EnvConfig | None, options: Mapping[str, Any], where: str) -> EnvConfig:
    """A configuration with some fields changed.

    Args:
        config: the configuration to change; None stands for the defaults.
        options: fields of `EnvConfig` by name. `max_episode_steps`, Gymnasium's name for a limit in
            steps, lowers `max_ticks`.
        where: the environment's name for messages.

    Raises:
        UserError: an unknown field, or a value that does not fit.
    """
    if config is not None and not isinstance(config, EnvConfig):
        raise UserError(f"{where}: config is an EnvConfig, not {config!r}")
    changes = dict(options)
    steps = changes.pop("max_episode_steps", None)
    if steps is not None and (not isinstance(steps, int | np.integer) or steps < 1):
        raise UserError(f"{where}: the limit in steps is a whole number from 1 on, not {steps!r}")
    _check_names(changes, EnvConfig, "option", where)
    try:
        config = replace(config or EnvConfig(), **changes)
        if steps is not None:
            limit = min(config.max_ticks, int(steps) * config.action_repeat)
            config = replace(config, max_ticks=limit)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {error}") from None
    return config


def read_reward(
    reward: RewardConfig | Mapping[str, Any] | None, config: EnvConfig, where: str
) -> RewardConfig:
    """A reward configuration, from an instance or from a mapping of its fields.

    None is CarRacing's own reward in preset carracing, and the default reward otherwise.

    Raises:
        UserError: an unknown field, or a value that does not fit.
    """
    if reward is None and config.preset == "carracing":
        return RewardConfig.native()
    return _read(reward, RewardConfig, "reward", where)


def read_endings(endings: EndingConfig | Mapping[str, Any] | None, where: str) -> EndingConfig:
    """A configuration of endings, from an instance or from a mapping of its fields.

    Raises:
        UserError: an unknown field, or a value that does not fit.
    """
    return _read(endings, EndingConfig, "endings", where)


def _read(value: T | Mapping[str, Any] | None, schema: type[T], name: str, where: str) -> T:
    if isinstance(value, schema):
        return value
    if value is not None and not isinstance(value, Mapping):
        raise UserError(f"{where}: {name}: a {schema.__name__} or a mapping, not {value!r}")
    _check_names(value or {}, schema, f"field of {name}", where)
    try:
        return schema(**(value or {}))
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {name}: {error}") from None


def _check_names(values: Mapping[str, Any], schema: type, kind: str, where: str) -> None:
    names = [field.name for field in fields(schema)]
    for name in values:
        if name not in names:
            raise UserError(f"{where}: {unknown_choice(kind, name, names)}")
