"""Whether a snapshot belongs to an environment, decided before anything is changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from common.errors import UserError
from envs.racing.config import EnvConfig


def describe(config: EnvConfig, num_envs: int) -> np.ndarray:
    """The configuration as the bytes of a JSON text."""
    settings = asdict(config) | {"threads": 0, "num_envs": num_envs}  # threads change no result
    return np.frombuffer(json.dumps(settings, sort_keys=True).encode(), np.uint8)


def check_snapshot(
    state: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], where: str
) -> None:
    """Compare a snapshot with arrays of the environment that is to continue it.

    Args:
        state: the snapshot.
        expected: arrays with the names, shapes and types that it must have, and `settings` from
            `describe`, which must be equal.
        where: the environment's name for messages.

    Raises:
        UserError: the snapshot is damaged, or of another configuration.
    """
    try:
        saved = json.loads(bytes(np.asarray(state["settings"], np.uint8)))
        current = json.loads(bytes(expected["settings"]))
        for name in current:
            if saved.get(name) != current[name]:
                raise UserError(
                    f"{where}: the snapshot is of another environment: "
                    f"{name}={saved.get(name)}, not {current[name]}"
                )
        for name, array in expected.items():
            if name == "settings":
                continue
            if state[name].shape != array.shape or state[name].dtype != array.dtype:
                raise UserError(f"{where}: the snapshot's {name} are damaged")
    except KeyError as error:
        raise UserError(f"{where}: the snapshot lacks {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{where}: the snapshot is damaged: {error}") from None
