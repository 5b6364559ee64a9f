"""Baselines that a world model has to beat: moved pictures, and a regression without pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from probes.camera import PictureCamera
from rssm.motion import Motion, compose

RIDGE = 1e-2
"""Ridge penalty of the blind regression, per row and standardised input."""


def warped(
    camera: PictureCamera, last: NDArray[np.float32], motions: Motion
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Move one frame by each of H motions.

    Args:
        camera: the camera of the picture.
        last: the frame, (size, size, 3) in [0, 1].
        motions: (H,) each, all relative to that frame.

    Returns:
        The moved frames (H, size, size, 3), and bool (H, size, size): the pixels whose ground the
        frame shows.
    """
    count = len(motions.yaw)
    frames = np.empty((count, *last.shape), np.float32)
    known = np.empty((count, *last.shape[:2]), bool)
    for i in range(count):
        step = Motion(motions.lateral[i], motions.forward[i], motions.yaw[i])
        frames[i], known[i] = camera.warp(last, step)
    return frames, known


def constant_motion(step: Motion, horizon: int) -> Motion:
    """Motions from a frame to each of the next `horizon` frames if every step equals `step`."""
    return compose(Motion(*(np.full(horizon, part, np.float64) for part in step)))


class BlindRegression:
    """Ridge regression of a future value from telemetry and actions, without pixels or latents.

    One regression is fitted per horizon, on the training split. Its inputs are the last rows of
    the context's telemetry and all actions up to the horizon.

    Args:
        history: rows of the context's telemetry used as input.
    """

    def __init__(self, history: int = 5) -> None:
        self.history = history
        self._weights: NDArray[np.float64] | None = None

    def fit(
        self, context: NDArray[np.float32], actions: NDArray[np.float32], target: NDArray
    ) -> BlindRegression:
        """Fit the weights to n windows.

        Args:
            context: telemetry of the C context rows, (n, C, names).
            actions: the h actions between the last context row and the target row, (n, h, 3).
            target: (n,).
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
        """Predicted values (n,) for windows with the shapes of `fit`."""
        if self._weights is None:
            raise ValueError("call fit before predict")
        return self._standardised(self._inputs(context, actions)) @ self._weights

    def _inputs(self, context: NDArray, actions: NDArray) -> NDArray[np.float64]:
        recent = context[:, -self.history :].reshape(len(context), -1)
        flat = actions.reshape(len(actions), -1)
        sums = actions.cumsum(1).reshape(len(actions), -1)
        return np.concatenate([recent, flat, sums], 1).astype(np.float64)

    def _standardised(self, inputs: NDArray) -> NDArray[np.float64]:
        scaled = (inputs - self._mean) / self._std
        return np.concatenate([scaled, np.ones((len(scaled), 1))], 1)
