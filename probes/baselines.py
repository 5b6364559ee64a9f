"""What a world model has to beat: predictions that know no world, and ceilings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from probes.camera import PictureCamera
from rssm.motion import Motion, compose

RIDGE = 1e-2
"""Penalty of the blind regression, per row and standardised input."""


def warped(
    camera: PictureCamera, last: NDArray[np.float32], motions: Motion
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Frames (H, size, size, 3) that one frame shows after each motion, and where it knows them.

    last: (size, size, 3) in [0, 1]; motions: (H,) each, from that frame.
    """
    count = len(motions.yaw)
    frames = np.empty((count, *last.shape), np.float32)
    known = np.empty((count, *last.shape[:2]), bool)
    for i in range(count):
        step = Motion(motions.lateral[i], motions.forward[i], motions.yaw[i])
        frames[i], known[i] = camera.warp(last, step)
    return frames, known


def constant_motion(step: Motion, horizon: int) -> Motion:
    """Motions from a frame to the next `horizon`, if each step is like the given one."""
    return compose(Motion(*(np.full(horizon, part, np.float64) for part in step)))


class BlindRegression:
    """Ridge regression of a future value from telemetry and actions alone: no pixels, no latents.

    Fitted per horizon on the training split: inputs are the last rows of context telemetry and all
    actions up to the horizon.

    Args:
        history: rows of context telemetry that it sees.
    """

    def __init__(self, history: int = 5) -> None:
        self.history = history
        self._weights: NDArray[np.float64] | None = None

    def fit(
        self, context: NDArray[np.float32], actions: NDArray[np.float32], target: NDArray
    ) -> BlindRegression:
        """Learn from n windows.

        context: (n, C, k) telemetry; actions: (n, h, 3), those that lead from the context's last
        row to the target's; target: (n,).
        """
        inputs = self._inputs(context, actions)
        self._mean, self._std = inputs.mean(0), np.maximum(inputs.std(0), 1e-6)
        x = self._standardised(inputs)
        penalty = RIDGE * len(x) * np.eye(x.shape[1])
        penalty[-1, -1] = 0.0
        y = np.asarray(target, np.float64)
        self._weights = np.linalg.solve(x.T @ x + penalty, x.T @ y)
        return self

    def predict(
        self, context: NDArray[np.float32], actions: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """(n,) values for windows shaped like those of `fit`."""
        if self._weights is None:
            raise ValueError("fit the regression before it predicts")
        return self._standardised(self._inputs(context, actions)) @ self._weights

    def _inputs(self, context: NDArray, actions: NDArray) -> NDArray[np.float64]:
        recent = context[:, -self.history :].reshape(len(context), -1)
        flat = actions.reshape(len(actions), -1)
        sums = actions.cumsum(1).reshape(len(actions), -1)
        return np.concatenate([recent, flat, sums], 1).astype(np.float64)

    def _standardised(self, inputs: NDArray) -> NDArray[np.float64]:
        scaled = (inputs - self._mean) / self._std
        return np.concatenate([scaled, np.ones((len(scaled), 1))], 1)
