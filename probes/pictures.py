"""Imagined pictures against the real ones, over the horizon, beside baselines and ceilings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.statistics import mean_interval
from probes import metrics
from probes.baselines import constant_motion, repeat_last, warped
from probes.camera import PictureCamera
from probes.judge import PAIR_EVERY, Futures
from rssm.motion import motion_between

KINDS = ("model", "posterior", "repeat_last", "constant_motion", "true_motion")
"""Whose pictures: the model's imagination, its decoder with the frames seen, the last frame of the
context, that frame moved on as in the last two frames, and moved by the true motion."""


def candidates(futures: Futures, camera: PictureCamera) -> dict[str, NDArray[np.float32]]:
    """Pictures (n, H, size, size, 3) of each of KINDS; and `known`, (n, H, size, size) bool, what
    the true motion carries over from the last frame of the context."""
    count, horizon = futures.real.shape[:2]
    true = np.empty_like(futures.real)
    steady = np.empty_like(futures.real)
    known = np.empty(futures.real.shape[:-1], bool)
    for i in range(count):
        last = futures.context[i, -1]
        pose = futures.pose[i]
        rows = np.arange(1, horizon + 1)
        moved = motion_between(*pose.T, np.zeros(horizon, np.int64), rows)
        true[i], known[i] = warped(camera, last, moved)
        steady[i], _ = warped(camera, last, constant_motion(futures.last_step[i], horizon))
    return {
        "model": futures.imagined,
        "posterior": futures.posterior,
        "repeat_last": repeat_last(futures.context, horizon),
        "constant_motion": steady,
        "true_motion": true,
        "known": known,
    }


def judge_pictures(
    futures: Futures, camera: PictureCamera
) -> tuple[
    dict[str, dict[str, Any]], dict[str, dict[str, list[float]]], dict[str, NDArray[np.float64]]
]:
    """Numbers by metric and kind, with intervals over clips; curves over the horizon; and the
    model's ssim and psnr per clip, (n,).

    Metrics: mse, psnr, ssim; road_iou and edge_f1 (every PAIR_EVERY-th row) on the ground; and
    psnr_new, of the ground that the last frame of the context did not show.
    """
    pictures = candidates(futures, camera)
    known, ground = pictures.pop("known"), camera.ground()
    real, every = futures.real, slice(PAIR_EVERY - 1, None, PAIR_EVERY)
    true_road = metrics.road(real[:, every]) & ground
    numbers: dict[str, dict[str, Any]] = {}
    curves: dict[str, dict[str, list[float]]] = {}
    per_clip: dict[str, NDArray[np.float64]] = {}
    for kind, images in pictures.items():
        values = {
            "mse": metrics.mse(images, real),
            "psnr": metrics.psnr(images, real),
            "ssim": metrics.ssim(images, real),
            "road_iou": metrics.iou(metrics.road(images[:, every]) & ground, true_road),
            "edge_f1": metrics.edge_f1(images[:, every], real[:, every], ground),
            "psnr_new": _masked_psnr(images, real, ground & ~known),
        }
        for name, table in values.items():
            means = np.nanmean(table, axis=1)
            finite = means[np.isfinite(means)]
            numbers.setdefault(name, {})[kind] = mean_interval(finite).to_dict()
            if kind == "model" and name in ("ssim", "psnr"):
                per_clip[name] = means
            curves.setdefault(name, {})[kind] = np.nanmean(table, axis=0).tolist()
    return numbers, curves, per_clip


def _masked_psnr(images: NDArray, real: NDArray, where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """PSNR over the pixels of a mask (n, H, size, size); NaN where it has fewer than 1 %."""
    error = np.square(images - real).mean(-1, dtype=np.float64)
    count = where.sum((-2, -1))
    mean = (error * where).sum((-2, -1)) / np.maximum(count, 1)
    enough = count >= 0.01 * where.shape[-1] * where.shape[-2]
    return np.where(enough, -10 * np.log10(np.maximum(mean, 1e-10)), np.nan)
