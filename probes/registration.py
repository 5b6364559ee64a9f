"""Camera motion from two frames alone: masked registration of the ground, Gauss-Newton on SE(2).

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

from probes.camera import PictureCamera
from rssm.motion import Motion

STEPS = 25
TOLERANCE = 1e-4
"""Change of the parameters, in units and rad, below which iteration stops."""
BLURS = (3.0, 1.5, 0.8, 0.4)
"""Standard deviations in pixels, coarse to fine."""
FORWARD_STARTS = (0.0, 1.5, 3.0, 4.5, 6.0)
YAW_STARTS = (-0.15, 0.0, 0.15)
"""Units and rad of the grid of starts: what a car does in five ticks."""
REFINED = 4
NOISE, SLIP = 0.03, 0.5
"""Expected residual of aligned frames, and sideways sliding in five ticks, in units."""
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
    those by residual is returned. On real frames the way ahead still reads long (the bounds are in
    tests/probes/test_camera.py), so no verdict on advance is to be trusted yet.
    """
    pyramid = [(_blur(before, b), _blur(after, b)) for b in BLURS]
    starts = [*guesses, *(Motion(0.0, f, y) for f in FORWARD_STARTS for y in YAW_STARTS)]
    fits = [_refine(camera, pyramid[:1], start, steps=1).residual for start in starts]
    best = np.argsort(fits)[:REFINED]
    found = [_refine(camera, pyramid, starts[i]) for i in best]
    return min(found, key=lambda one: one.residual)


def _blur(frame: NDArray, sigma: float) -> NDArray[np.float32]:
    return cv2.GaussianBlur(np.asarray(frame, np.float32), (0, 0), sigma)


def _refine(
    camera: PictureCamera, pyramid: list[tuple[NDArray, NDArray]], guess: Motion, steps: int = STEPS
) -> Registered:
    parameters = np.array(guess, np.float64)
    ground = camera.ground()
    rows, columns = np.nonzero(ground)
    right = (columns - camera.column) / camera.across
    ahead = (camera.row - rows) / camera.along
    residual, overlap = np.inf, 0.0
    for source, target in pyramid:
        slope_x = cv2.Sobel(source, cv2.CV_32F, 1, 0, ksize=3) / 8
        slope_y = cv2.Sobel(source, cv2.CV_32F, 0, 1, ksize=3) / 8
        wanted = target[rows, columns]
        for _ in range(steps):
            matrix = camera.matrix(Motion(*parameters)).astype(np.float32)
            map_x = (matrix[0, 0] * columns + matrix[0, 1] * rows + matrix[0, 2]).astype(np.float32)
            map_y = (matrix[1, 0] * columns + matrix[1, 1] * rows + matrix[1, 2]).astype(np.float32)
            seen = _inside(camera, ground, map_x, map_y)
            overlap = float(seen.mean())
            if overlap < ENOUGH:
                return Registered(Motion(*parameters), np.inf, overlap)
            value, gx, gy = (_sample(a, map_x, map_y) for a in (source, slope_x, slope_y))
            error = np.where(seen, wanted - value, 0.0)
            # Showing less of the old frame is no way to fit better: what is lost counts as wrong.
            lost = (~seen).sum() * NOISE**2
            residual = float(np.sqrt(((error**2).sum() + lost) / len(seen)))
            sin, cos = np.sin(parameters[2]), np.cos(parameters[2])
            # Derivatives of the old position (in units: right, ahead) by lateral, forward and yaw.
            by_yaw_right = -sin * right - cos * ahead
            by_yaw_ahead = cos * right - sin * ahead
            jacobian = np.stack(
                [
                    -gx * camera.across,
                    -gy * camera.along,
                    gx * camera.across * by_yaw_right - gy * camera.along * by_yaw_ahead,
                ],
                -1,
            )
            jacobian[~seen] = 0
            # A car slides little: it moves along the mean of its headings, to about SLIP units.
            half = np.tan(parameters[2] / 2)
            slip = parameters[0] - parameters[1] * half
            by = np.array([1.0, -half, -0.5 * parameters[1] * (1 + half**2)])
            weight = float(seen.sum()) * (NOISE / SLIP) ** 2
            normal = jacobian.T @ jacobian + weight * np.outer(by, by)
            normal[np.diag_indices(3)] *= 1 + 1e-3
            normal[np.diag_indices(3)] += 1e-9
            step = np.linalg.solve(normal, jacobian.T @ error - weight * slip * by)
            parameters = parameters + np.clip(step, -1.0, 1.0)
            if np.abs(step).max() < TOLERANCE:
                break
    return Registered(Motion(*parameters.tolist()), residual, overlap)


def _inside(
    camera: PictureCamera, ground: NDArray[np.bool_], x: NDArray, y: NDArray
) -> NDArray[np.bool_]:
    column, row = np.rint(x).astype(np.int64), np.rint(y).astype(np.int64)
    within = (column >= 1) & (column < camera.size - 1) & (row >= 1) & (row < camera.size - 1)
    return within & ground[row.clip(0, camera.size - 1), column.clip(0, camera.size - 1)]


def _sample(image: NDArray, x: NDArray, y: NDArray) -> NDArray[np.float32]:
    flat = cv2.remap(image, x[None], y[None], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return flat[0]
