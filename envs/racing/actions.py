"""The bounds of an action, and their check."""

from __future__ import annotations

import numpy as np

from common.telemetry import ACTION

ACTION_NAMES = tuple(ACTION)
ACTION_LOW = np.array([field.low for field in ACTION.values()], np.float32)
ACTION_HIGH = np.array([field.high for field in ACTION.values()], np.float32)
ACTION_SLACK = 1e-4
"""An action this far outside its bounds counts as a rounding error: it is clipped, not refused."""


def check_actions(actions: np.ndarray, rows: int, *, clip: bool, where: str) -> np.ndarray:
    """Actions as (rows, 3) float64 within their bounds.

    Args:
        actions: steer [-1, 1] (positive to the right), gas [0, 1] and brake [0, 1] of every row.
        clip: clip numbers outside the bounds, as CarRacing-v3 does; otherwise refuse them.
        where: the environment's name for messages.

    Raises:
        ValueError: no numbers, another shape, NaN, or (without `clip`) one outside its bounds.
    """
    actions = _numbers(actions, where)
    if actions.shape != (rows, 3):
        raise ValueError(f"{where}: actions have shape ({rows}, 3), not {actions.shape}")
    bounded = np.clip(actions, ACTION_LOW, ACTION_HIGH)
    # NaN compares false, so it is refused in any case.
    good = np.abs(bounded - actions) <= (np.inf if clip else ACTION_SLACK)
    if not good.all():
        row, column = np.argwhere(~good)[0]
        raise ValueError(
            f"{where}: {ACTION_NAMES[column]} of environment {row} is {actions[row, column]}; "
            f"it must be a number in [{ACTION_LOW[column]:g}, {ACTION_HIGH[column]:g}]"
        )
    return bounded


def read_action(action: np.ndarray, whose: str) -> np.ndarray:
    """One car's action as (3,) float64; `ValueError` for no numbers or another shape.

    `whose` begins the message, such as "racing: an action".
    """
    action = _numbers(action, whose)
    if action.shape != (3,):
        raise ValueError(f"{whose} has shape (3,), not {action.shape}")
    return action


def _numbers(actions: object, where: str) -> np.ndarray:
    if np.iscomplexobj(actions):  # numpy would drop the imaginary part
        raise ValueError(f"{where}: actions are real numbers, not {actions!r}")
    try:
        return np.asarray(actions, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{where}: actions are numbers, not {actions!r}") from None
