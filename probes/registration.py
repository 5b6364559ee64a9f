"""Camera motion from two frames alone: masked registration of the ground, least squares on SE(2).

The motion that best explains the second frame as a view of the first one's ground (Lucas and Kanade
1981, with the inverse composition left out: three parameters are cheap). Pyramids widen the basin;
the residual says whether a result is to be trusted, and on real frames the same estimator's error
against the true pose is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from envs.racing.kernel import kernel
from probes.camera import PictureCamera
from rssm.motion import Motion

STEPS = 15
TOLERANCE = 1e-4
"""Change of the parameters, in units and rad, below which iteration stops."""
BLURS = (3.0, 1.2, 0.5)
"""Standard deviations in pixels, coarse to fine."""
FORWARD_STARTS = (0.0, 1.5, 3.0, 4.5, 6.0)
YAW_STARTS = (-0.15, 0.0, 0.15)
"""Units and rad of the grid of starts: what a car does in five ticks."""
REFINED = 2
NOISE, SLIP = 0.015, 0.5
"""Expected residual of aligned frames, and sliding of the rear axle in five ticks, in units."""
REAR = 1.64
"""Units from the hull's origin back to the rear axle (`envs.racing.constants`)."""
MOST_DAMPING = 1e4
ENOUGH = 0.2
"""Least share of the ground's pixels that both frames must show."""


@dataclass(frozen=True)
class Registered:
    """An estimated motion.

    Attributes:
        motion: numbers.
        residual: root mean square difference of the aligned frames, in [0, 1] grey.
        overlap: share of ground pixels that both frames show.
    """

    motion: Motion
    residual: float
    overlap: float


def register(
    camera: PictureCamera,
    before: NDArray[np.floating],
    after: NDArray[np.floating],
    guesses: Sequence[Motion] = (),
) -> Registered:
    """The motion between two grey frames, (size, size) in [0, 1].

    Straight road looks the same all along, so one start is not enough: of a grid of motions and the
    `guesses`, the REFINED that fit best when blurred are refined coarse to fine, and the best of
    those by residual is returned. Its error on real frames is bounded by
    tests/probes/test_camera.py.
    """
    ground = camera.ground
    pyramid = [(_blur(before, ground, b), _blur(after, ground, b)) for b in BLURS]
    starts = [*guesses, *(Motion(0.0, f, y) for f in FORWARD_STARTS for y in YAW_STARTS)]
    fits = [_refine(camera, pyramid[:1], start, steps=1).residual for start in starts]
    best = np.argsort(fits)[:REFINED]
    found = [_refine(camera, pyramid, starts[i]) for i in best]
    return min(found, key=lambda one: one.residual)


def _blur(frame: NDArray, ground: NDArray[np.bool_], sigma: float) -> NDArray[np.float32]:
    """Blurred over the ground alone: car and indicators stand still and must not leak into it."""
    weight = ground.astype(np.float32)
    total = cv2.GaussianBlur(np.asarray(frame, np.float32) * weight, (0, 0), sigma)
    return total / np.maximum(cv2.GaussianBlur(weight, (0, 0), sigma), 1e-6)


def _refine(
    camera: PictureCamera, pyramid: list[tuple[NDArray, NDArray]], guess: Motion, steps: int = STEPS
) -> Registered:
    """Levenberg and Marquardt's descent from `guess`, level by level."""
    motion = np.array(guess, np.float64)
    for level in pyramid:
        damping, current = 1e-3, _compare(camera, *level, motion)
        for _ in range(steps):
            normal, gradient = current.equations()
            normal[np.diag_indices(3)] *= 1 + damping
            step = np.linalg.solve(normal, gradient)
            tried = _compare(camera, *level, motion + np.clip(step, -1.0, 1.0))
            if tried.cost < current.cost:
                motion, current, damping = tried.motion, tried, damping / 5
            else:
                damping *= 10
            if np.abs(step).max() < TOLERANCE or damping > MOST_DAMPING:
                break
    return Registered(Motion(*motion.tolist()), current.residual, current.overlap)


@dataclass(frozen=True)
class _Comparison:
    """Two frames under a motion (3,), and what the pixels say about a better one.

    Attributes:
        motion: (3,) as in `Motion`.
        residual, overlap: see `Registered`.
        normal: (3, 3) mean over pixels of Gauss and Newton's products of slopes by the motion.
        gradient: (3,) mean of slopes times errors.
    """

    motion: NDArray[np.float64]
    residual: float
    overlap: float
    normal: NDArray[np.float64]
    gradient: NDArray[np.float64]

    @property
    def slip(self) -> float:
        """The rear axle moves along the mean of its headings but for this."""
        lateral, forward, yaw = self.motion
        return lateral - forward * np.tan(yaw / 2) - REAR * yaw

    @property
    def cost(self) -> float:
        """What is minimised: a mean square that takes slip for unlikely."""
        return self.residual**2 + (NOISE * self.slip / SLIP) ** 2

    def equations(self) -> tuple[NDArray, NDArray]:
        """The normal matrix (3, 3) and the right-hand side (3,) of a step that lowers the cost."""
        _, forward, yaw = self.motion
        half = np.tan(yaw / 2)
        by = np.array([1.0, -half, -0.5 * forward * (1 + half**2) - REAR])
        weight = (NOISE / SLIP) ** 2
        normal = self.normal + weight * np.outer(by, by) + 1e-9 * np.eye(3)
        return normal, self.gradient - weight * self.slip * by


def _compare(
    camera: PictureCamera, source: NDArray, target: NDArray, motion: NDArray
) -> _Comparison:
    """How well a motion explains `target` as a view of `source`."""
    normal, gradient = np.zeros((3, 3)), np.zeros(3)
    error, seen, count = _accumulate(
        source, target, camera.ground, camera.matrix(Motion(*motion)), motion[2],
        camera.across, camera.along, camera.column, camera.row, normal, gradient,
    )  # fmt: skip
    # Showing less of the old frame is no way to fit better: what is lost counts as wrong.
    mean = (error + (count - seen) * NOISE**2) / count
    residual = float(np.sqrt(mean)) if seen >= ENOUGH * count else np.inf
    return _Comparison(motion, residual, seen / count, normal / count, gradient / count)


@kernel
def _accumulate(source, target, ground, matrix, yaw, across, along, centre, base, normal, gradient):
    """Sums over the ground's pixels; returns (squared error where seen, pixels seen, pixels)."""
    size = source.shape[0]
    sin, cos = np.sin(yaw), np.cos(yaw)
    total, seen, count = 0.0, 0, 0
    slope = np.empty(3)
    for row in range(size):
        for column in range(size):
            if not ground[row, column]:
                continue
            count += 1
            x = matrix[0, 0] * column + matrix[0, 1] * row + matrix[0, 2]
            y = matrix[1, 0] * column + matrix[1, 1] * row + matrix[1, 2]
            if not (1 <= x < size - 2 and 1 <= y < size - 2):
                continue
            if not ground[int(y + 0.5), int(x + 0.5)]:
                continue
            seen += 1
            error = target[row, column] - _between(source, x, y)
            # Differences over one pixel, as interpolation has them: a wider filter finds sharp
            # edges too flat, and steps come out too long.
            across_x = across * (_between(source, x + 0.5, y) - _between(source, x - 0.5, y))
            along_y = along * (_between(source, x, y + 0.5) - _between(source, x, y - 0.5))
            right, ahead = (column - centre) / across, (base - row) / along
            # Derivatives of the old position by lateral, forward and yaw.
            slope[0], slope[1] = -across_x, -along_y
            turned = -sin * right - cos * ahead, cos * right - sin * ahead
            slope[2] = across_x * turned[0] - along_y * turned[1]
            total += error * error
            for i in range(3):
                gradient[i] += slope[i] * error
                for j in range(3):
                    normal[i, j] += slope[i] * slope[j]
    return total, seen, count


@kernel
def _between(image, x, y):
    """Bilinear interpolation at column x, row y."""
    column, row = int(x), int(y)
    a, b = x - column, y - row
    above = (1 - a) * image[row, column] + a * image[row, column + 1]
    below = (1 - a) * image[row + 1, column] + a * image[row + 1, column + 1]
    return (1 - b) * above + b * below
