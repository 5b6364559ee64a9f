"""The pictures that `render()` returns, for every interface of the environment."""

from __future__ import annotations

import numpy as np

from common.errors import UserError
from envs.racing.config import EnvConfig
from envs.racing.engine import Engine
from envs.racing.show.view import render_view

RENDER_MODES = ("rgb_array", "state_pixels")
"""A large antialiased view from behind the car, or the newest frame that the policy sees."""


def check_render_mode(mode: str | None, where: str) -> None:
    """Raise `UserError` for a mode that is neither None nor one of RENDER_MODES."""
    if mode is not None and mode not in RENDER_MODES:
        raise UserError(f"{where}: render_mode is one of {', '.join(RENDER_MODES)}, not {mode!r}")


def large_view(engine: Engine, world: int, agent: int) -> np.ndarray:
    """(H, W, 3) uint8, a view from behind one car."""
    return render_view(
        engine.tracks[world].track,
        engine.cars[world],
        engine.wheels[world],
        agent=agent,
        painted=engine.contacted(world, agent),
    )


def newest_frame(observation: np.ndarray, config: EnvConfig) -> np.ndarray:
    """(H, W, 3) uint8, a copy of the last frame of one observation, in RGB even if it is grey."""
    if config.grey:
        return np.repeat(observation[-1][..., None], 3, -1)
    return (observation if config.frame_stack == 1 else observation[-1]).copy()
