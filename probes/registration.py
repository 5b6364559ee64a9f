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
    ground = camera.ground()
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
    view, motion = _View(camera), np.array(guess, np.float64)
    for level in pyramid:
        damping, current = 1e-3, view.compare(*level, motion)
        for _ in range(steps):
            normal, gradient = current.equations()
            normal[np.diag_indices(3)] *= 1 + damping
            step = np.linalg.solve(normal, gradient)
            tried = view.compare(*level, motion + np.clip(step, -1.0, 1.0))
            if tried.cost < current.cost:
                motion, current, damping = tried.motion, tried, damping / 5
            else:
                damping *= 10
            if np.abs(step).max() < TOLERANCE or damping > MOST_DAMPING:
                break
    return Registered(Motion(*motion.tolist()), current.residual, current.overlap)


class _View:
    """The ground's pixels, and frames compared on them."""

    def __init__(self, camera: PictureCamera) -> None:
        self.camera, self.ground = camera, camera.ground()
        self.rows, self.columns = np.nonzero(self.ground)
        self.right = (self.columns - camera.column) / camera.across
        self.ahead = (camera.row - self.rows) / camera.along

    def compare(self, source: NDArray, target: NDArray, motion: NDArray) -> _Comparison:
        """How well `motion`, (3,), explains `target` as a view of `source`."""
        matrix = self.camera.matrix(Motion(*motion)).astype(np.float32)
        x, y = (row[0] * self.columns + row[1] * self.rows + row[2] for row in matrix)
        x, y = x.astype(np.float32), y.astype(np.float32)
        seen = _inside(self.camera, self.ground, x, y)
        error = np.where(seen, target[self.rows, self.columns] - _sample(source, x, y), 0.0)
        return _Comparison(self, source, motion, x, y, seen, error)


@dataclass(frozen=True)
class _Comparison:
    """Two frames under a motion.

    Attributes:
        motion: (3,) as in `Motion`.
        x, y: (pixels,) where the old frame shows what the new one shows in its ground's pixels.
        seen: (pixels,) whether it is ground there too.
        error: (pixels,) new less old; 0 where not seen.
    """

    view: _View
    source: NDArray
    motion: NDArray
    x: NDArray
    y: NDArray
    seen: NDArray
    error: NDArray

    @property
    def overlap(self) -> float:
        return float(self.seen.mean())

    @property
    def residual(self) -> float:
        """Showing less of the old frame is no way to fit better: what is lost counts as wrong."""
        if self.overlap < ENOUGH:
            return np.inf
        lost = (~self.seen).sum() * NOISE**2
        return float(np.sqrt(((self.error**2).sum() + lost) / len(self.seen)))

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
        """Gauss and Newton's normal matrix (3, 3) and right-hand side (3,)."""
        camera, (_, forward, yaw) = self.view.camera, self.motion
        source, right, ahead = self.source, self.view.right, self.view.ahead
        # Differences over one pixel, as interpolation has them: a wider filter finds sharp edges
        # too flat, and steps come out too long.
        gx = _sample(source, self.x + 0.5, self.y) - _sample(source, self.x - 0.5, self.y)
        gy = _sample(source, self.x, self.y + 0.5) - _sample(source, self.x, self.y - 0.5)
        gx, gy = gx * camera.across, gy * camera.along
        # Derivatives of the old position (in units: right, ahead) by lateral, forward and yaw.
        sin, cos = np.sin(yaw), np.cos(yaw)
        by_yaw = gx * (-sin * right - cos * ahead) - gy * (cos * right - sin * ahead)
        jacobian = np.stack([-gx, -gy, by_yaw], -1)
        jacobian[~self.seen] = 0
        half, count = np.tan(yaw / 2), len(self.seen)
        by = np.array([1.0, -half, -0.5 * forward * (1 + half**2) - REAR])
        weight = (NOISE / SLIP) ** 2
        normal = jacobian.T @ jacobian / count + weight * np.outer(by, by) + 1e-9 * np.eye(3)
        return normal, jacobian.T @ self.error / count - weight * self.slip * by


def _inside(
    camera: PictureCamera, ground: NDArray[np.bool_], x: NDArray, y: NDArray
) -> NDArray[np.bool_]:
    column, row = np.rint(x).astype(np.int64), np.rint(y).astype(np.int64)
    within = (column >= 1) & (column < camera.size - 1) & (row >= 1) & (row < camera.size - 1)
    return within & ground[row.clip(0, camera.size - 1), column.clip(0, camera.size - 1)]


def _sample(image: NDArray, x: NDArray, y: NDArray) -> NDArray[np.float32]:
    flat = cv2.remap(image, x[None], y[None], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return flat[0]
