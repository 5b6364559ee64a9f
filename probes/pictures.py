"""Compares imagined pictures with the real ones over the horizon, beside baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.statistics import bounded_interval
from probes import metrics
from probes.baselines import constant_motion, warped
from probes.camera import PictureCamera
from probes.judge import PAIR_EVERY, Futures
from rssm.motion import motion_between

BASELINES = ("repeat_last", "constant_motion", "true_motion")
"""Baselines of pictures: the last frame of the context repeated; that frame moved on by the motion
between the last two frames; and that frame moved by the true motion."""


@dataclass(frozen=True)
class BaselineScores:
    """Results that depend on the clips alone, not on a model.

    Attributes:
        tables: scores of the baselines, (n, H) by (metric, kind).
        known: (n, H, size, size) bool, the pixels whose ground the last frame of the context shows.
    """

    tables: dict[tuple[str, str], NDArray[np.float64]]
    known: NDArray[np.bool_]


def judge_baselines(futures: Futures, camera: PictureCamera) -> BaselineScores:
    """Compare the baselines' pictures with the real ones."""
    horizon = futures.real.shape[1]
    rows = np.arange(1, horizon + 1)
    tables: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    masks = []
    for index, real in enumerate(futures.real):
        judge = Comparison(metrics.unit(real), camera.ground)
        last = metrics.unit(futures.context[index, -1])
        moved = motion_between(*futures.pose[index].T, np.zeros(horizon, np.int64), rows)
        true, known = warped(camera, last, moved)
        steady, _ = warped(camera, last, constant_motion(futures.last_step[index], horizon))
        repeated = np.broadcast_to(last, true.shape)
        for kind, images in zip(BASELINES, (repeated, steady, true), strict=True):
            for name, values in judge(images, known).items():
                tables.setdefault((name, kind), []).append(values)
        masks.append(known)
    scores = {key: np.array(values) for key, values in tables.items()}
    return BaselineScores(scores, np.array(masks))


def judge_pictures(
    futures: Futures, camera: PictureCamera, baselines: BaselineScores
) -> tuple[
    dict[str, dict[str, Any]], dict[str, dict[str, list[float]]], dict[str, NDArray[np.float64]]
]:
    """Compare the model's pictures with the real ones.

    The metrics are mse, psnr and ssim; road_iou and edge_f1 on the ground, at every PAIR_EVERY-th
    row; and psnr_new, on the ground that the last frame of the context did not show.

    Returns:
        Numbers by metric and kind, with intervals over clips; curves over the horizon; and the
        model's ssim and psnr per clip, (n,).
    """
    tables: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for index, real in enumerate(futures.real):
        judge = Comparison(metrics.unit(real), camera.ground)
        for kind, frames in (("model", futures.imagined), ("posterior", futures.posterior)):
            for name, values in judge(metrics.unit(frames[index]), baselines.known[index]).items():
                tables.setdefault((name, kind), []).append(values)
    scores = {key: np.array(values) for key, values in tables.items()} | baselines.tables
    numbers: dict[str, dict[str, Any]] = {}
    curves: dict[str, dict[str, list[float]]] = {}
    for (name, kind), table in scores.items():
        finite = np.isfinite(table)
        means = np.where(finite, table, 0).sum(1)[finite.any(1)] / finite.sum(1)[finite.any(1)]
        ends = metrics.RANGES[name]
        estimate = bounded_interval(means, *ends).to_dict() if len(means) else None
        numbers.setdefault(name, {})[kind] = estimate
        curve = np.where(finite, table, 0).sum(0) / np.maximum(finite.sum(0), 1)
        curves.setdefault(name, {})[kind] = np.where(finite.any(0), curve, np.nan).tolist()
    per_clip = {name: scores[name, "model"].mean(1) for name in ("ssim", "psnr")}
    return numbers, curves, per_clip


class Comparison:
    """Computes all metrics for pictures of one clip; see `judge_pictures`.

    Args:
        real: the real frames, (H, size, size, 3) in [0, 1].
        ground: (size, size), pixels that show neither the car nor the indicators.
    """

    def __init__(self, real: NDArray[np.float32], ground: NDArray[np.bool_]) -> None:
        self.real, self.ground = real, ground
        self.every = slice(PAIR_EVERY - 1, None, PAIR_EVERY)
        self._similarity = metrics.Similarity(real)
        self._road = metrics.road(real[self.every]) & ground

    def __call__(
        self, images: NDArray[np.float32], known: NDArray[np.bool_]
    ) -> dict[str, NDArray[np.float64]]:
        """Values over the horizon by metric, for pictures with the shape of the real ones.

        known: (H, size, size), pixels whose ground the last frame of the context shows.
        """
        selected = images[self.every]
        error = np.square(images - self.real).mean(-1)
        mse = error.mean((-2, -1), dtype=np.float64)
        return {
            "mse": mse,
            "psnr": metrics.decibels(mse),
            "ssim": self._similarity(images),
            "road_iou": metrics.iou(metrics.road(selected) & self.ground, self._road),
            "edge_f1": metrics.edge_f1(selected, self.real[self.every], self.ground),
            "psnr_new": _masked_psnr(error, self.ground & ~known),
        }


def _masked_psnr(error: NDArray, where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """PSNR inside a mask (H, size, size), (H,); NaN if it has fewer than 1 % of the pixels."""
    count = where.sum((-2, -1))
    mean = (error * where).sum((-2, -1), dtype=np.float64) / np.maximum(count, 1)
    enough = count >= 0.01 * where.shape[-1] * where.shape[-2]
    return np.where(enough, metrics.decibels(mean), np.nan)
