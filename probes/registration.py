"""Measures the camera's motion between two frames, from their pixels alone.

The estimate is the motion in SE(2) for which the ground of the first frame, moved, best matches the
second frame in least squares (Lucas and Kanade 1981). It is refined from coarse to fine, so that it
also converges from a poor start. The residual tells whether to trust an estimate. On real frames,
tests compare the estimates with the true motion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from envs.racing.sim.kernel import kernel
from probes.camera import PictureCamera
from rssm.motion import Motion

STEPS = 15
TOLERANCE = 1e-4
"""The iteration stops when all parameters change by less than this, in units and rad."""
LEVELS = ((3.0, 2), (1.2, 2), (0.5, 1))
"""From coarse to fine: standard deviation of the blur in pixels, and spacing of the rows and
columns that are used. A blurred frame needs fewer of them, because neighbours are similar."""
FORWARD_STARTS = (0.0, 1.5, 3.0, 4.5, 6.0)
YAW_STARTS = (-0.15, 0.0, 0.15)
"""The grid of starts, in units and rad; it covers the motion of a car in five ticks."""
COARSE = 3
"""Spacing of the rows and columns used to choose the best starts."""
REFINED = 2
"""Number of starts that are refined."""
NOISE, SLIP = 0.015, 0.5
"""Expected residual of aligned frames, and expected sideways slip of the rear axle in five ticks,
in units."""
REAR = 1.64
"""Units from the hull's origin back to the rear axle (`envs.racing.constants`)."""
MOST_DAMPING = 1e4
ENOUGH = 0.2
"""Smallest share of the ground's pixels that both frames must show."""


@dataclass(frozen=True)
class Registered:
    """An estimated motion.

    Attributes:
        motion: the estimate, made of plain numbers.
        residual: root mean square difference of the aligned frames, grey values in [0, 1].
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

    A straight road looks the same everywhere, so a single start can end in a wrong optimum. The
    starts are the `guesses` and a grid of motions. The REFINED starts that fit the blurred frames
    best are refined from coarse to fine, and the one with the smallest residual is returned.
    tests/probes/test_camera.py checks its error on real frames.
    """
    ground = camera.ground
    pyramid = [
        Level(_blur(before, ground, sigma), _blur(after, ground, sigma), spacing)
        for sigma, spacing in LEVELS
    ]
    starts = [*guesses, *(Motion(0.0, f, y) for f in FORWARD_STARTS for y in YAW_STARTS)]
    coarse = [pyramid[0]._replace(spacing=COARSE)]
    fits = [_refine(camera, coarse, start, steps=1).residual for start in starts]
    best = np.argsort(fits)[:REFINED]
    refined = [_refine(camera, pyramid, starts[i]) for i in best]
    return min(refined, key=lambda one: one.residual)


def _blur(frame: NDArray, ground: NDArray[np.bool_], sigma: float) -> NDArray[np.float32]:
    """Blur the ground alone: car and indicators do not move and must not mix with it."""
    weight = ground.astype(np.float32)
    total = cv2.GaussianBlur(np.asarray(frame, np.float32) * weight, (0, 0), sigma)
    return total / np.maximum(cv2.GaussianBlur(weight, (0, 0), sigma), 1e-6)


class Level(NamedTuple):
    """Two equally blurred frames (size, size), and the spacing of the pixels used; see LEVELS."""

    before: NDArray[np.float32]
    after: NDArray[np.float32]
    spacing: int


def _refine(
    camera: PictureCamera, pyramid: Sequence[Level], guess: Motion, steps: int = STEPS
) -> Registered:
    """Optimise from `guess` by the Levenberg-Marquardt method, level by level."""
    motion = np.array(guess, np.float64)
    lens = np.array([camera.across, camera.along, camera.column, camera.row])
    for before, after, spacing in pyramid:
        residual, overlap = _descend(before, after, camera.ground, motion, lens, spacing, steps)
    return Registered(Motion(*motion.tolist()), residual, overlap)


@kernel
def _descend(source, target, ground, motion, lens, spacing, steps):
    """Improve `motion` (3,) in place; returns the residual and the overlap of `Registered`."""
    normal, gradient = np.empty((3, 3)), np.empty(3)
    next_normal, next_gradient = np.empty((3, 3)), np.empty(3)
    cost, residual, overlap = _equations(
        source, target, ground, motion, lens, spacing, normal, gradient
    )
    damping = 1e-3
    for _ in range(steps):
        step = _solve(normal, gradient, damping)
        tried = motion + np.minimum(np.maximum(step, -1.0), 1.0)
        next_cost, next_residual, next_overlap = _equations(
            source, target, ground, tried, lens, spacing, next_normal, next_gradient
        )
        if next_cost < cost:
            cost, residual, overlap = next_cost, next_residual, next_overlap
            motion[:], normal[:], gradient[:] = tried, next_normal, next_gradient
            damping /= 5
        else:
            damping *= 10
        if np.abs(step).max() < TOLERANCE or damping > MOST_DAMPING:
            break
    return residual, overlap


@kernel
def _equations(source, target, ground, motion, lens, spacing, normal, gradient):
    """The cost of a motion, and the Gauss-Newton equations for a better one.

    The cost is the mean squared difference between `target` and the moved `source`, plus a penalty
    on sideways slip of the rear axle. Without slip the axle moves along its mean heading. Fills
    `normal` (3, 3) and `gradient` (3,); returns (cost, residual, overlap).
    """
    error, visible, count = _accumulate(
        source, target, ground, motion, lens, spacing, normal, gradient
    )
    # Each pixel that only one frame shows counts with the expected error. Otherwise a motion could
    # reduce its cost by moving the old ground out of the picture.
    mean = (error + (count - visible) * NOISE**2) / count
    residual = np.sqrt(mean) if visible >= ENOUGH * count else np.inf
    lateral, forward, yaw = motion
    half = np.tan(yaw / 2)
    slip = lateral - forward * half - REAR * yaw
    by = np.array([1.0, -half, -0.5 * forward * (1 + half**2) - REAR])
    weight = (NOISE / SLIP) ** 2
    for i in range(3):
        gradient[i] = gradient[i] / count - weight * slip * by[i]
        for j in range(3):
            normal[i, j] = normal[i, j] / count + weight * by[i] * by[j]
        normal[i, i] += 1e-9
    return residual**2 + weight * slip**2, residual, visible / count


@kernel
def _solve(normal, gradient, damping):
    """Solve for the damped step (3,) by Cramer's rule."""
    a, b, c = normal[0, 0] * (1 + damping), normal[0, 1], normal[0, 2]
    d, e = normal[1, 1] * (1 + damping), normal[1, 2]
    f = normal[2, 2] * (1 + damping)
    x, y, z = gradient
    minors = d * f - e * e, c * e - b * f, b * e - c * d
    determinant = a * minors[0] + b * minors[1] + c * minors[2]
    return np.array(
        [
            (minors[0] * x + minors[1] * y + minors[2] * z) / determinant,
            (minors[1] * x + (a * f - c * c) * y + (b * c - a * e) * z) / determinant,
            (minors[2] * x + (b * c - a * e) * y + (a * d - b * b) * z) / determinant,
        ]
    )


@kernel
def _accumulate(source, target, ground, motion, lens, spacing, normal, gradient):
    """Add up errors and derivatives over the ground's pixels.

    Returns the squared error over the pixels that both frames show, their number, and the number
    of all pixels of the ground.
    """
    size = source.shape[0]
    across, along, centre, base = lens
    lateral, forward, yaw = motion
    sin, cos = np.sin(yaw), np.cos(yaw)
    total, visible, count = 0.0, 0, 0
    normal[:], gradient[:] = 0.0, 0.0
    slope = np.empty(3)
    for row in range(0, size, spacing):
        for column in range(0, size, spacing):
            if not ground[row, column]:
                continue
            count += 1
            # The position of this pixel's ground before the motion, as in PictureCamera.matrix.
            right, ahead = (column - centre) / across, (base - row) / along
            x = centre + across * (cos * right - sin * ahead - lateral)
            y = base - along * (sin * right + cos * ahead + forward)
            if not (1 <= x < size - 2 and 1 <= y < size - 2):
                continue
            if not ground[int(y + 0.5), int(x + 0.5)]:
                continue
            visible += 1
            error = target[row, column] - _between(source, x, y)
            # Differences over one pixel, which match the interpolation. A wider filter would
            # underestimate sharp edges, and the steps would become too long.
            across_x = across * (_between(source, x + 0.5, y) - _between(source, x - 0.5, y))
            along_y = along * (_between(source, x, y + 0.5) - _between(source, x, y - 0.5))
            # Derivatives of the old position with respect to lateral, forward and yaw.
            slope[0], slope[1] = -across_x, -along_y
            turned = -sin * right - cos * ahead, cos * right - sin * ahead
            slope[2] = across_x * turned[0] - along_y * turned[1]
            total += error * error
            for i in range(3):
                gradient[i] += slope[i] * error
                for j in range(3):
                    normal[i, j] += slope[i] * slope[j]
    return total, visible, count


@kernel
def _between(image, x, y):
    """Bilinear interpolation at column x, row y."""
    column, row = int(x), int(y)
    a, b = x - column, y - row
    above = (1 - a) * image[row, column] + a * image[row, column + 1]
    below = (1 - a) * image[row + 1, column] + a * image[row + 1, column + 1]
    return (1 - b) * above + b * below
