"""Imagined pictures against the real ones, over the horizon, beside baselines and ceilings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.statistics import mean_interval
from probes import metrics
from probes.baselines import constant_motion, warped
from probes.camera import PictureCamera
from probes.judge import PAIR_EVERY, Futures
from rssm.motion import motion_between

KINDS = ("model", "posterior", "repeat_last", "constant_motion", "true_motion")
"""Whose pictures: the model's imagination, its decoder with the frames seen, the last frame of the
context, that frame moved on as in the last two frames, and moved by the true motion."""


def candidates(
    futures: Futures, index: int, camera: PictureCamera
) -> tuple[dict[str, NDArray[np.float32]], NDArray[np.bool_]]:
    """Pictures (H, size, size, 3) of one clip by each of KINDS; and where, (H, size, size), the
    true motion carries over what the last frame of the context shows."""
    last, horizon = metrics.unit(futures.context[index, -1]), futures.real.shape[1]
    rows = np.arange(1, horizon + 1)
    moved = motion_between(*futures.pose[index].T, np.zeros(horizon, np.int64), rows)
    true, known = warped(camera, last, moved)
    steady, _ = warped(camera, last, constant_motion(futures.last_step[index], horizon))
    pictures = {
        "model": metrics.unit(futures.imagined[index]),
        "posterior": metrics.unit(futures.posterior[index]),
        "repeat_last": np.broadcast_to(last, true.shape),
        "constant_motion": steady,
        "true_motion": true,
    }
    return pictures, known


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
    tables: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for index in range(len(futures.real)):
        real = metrics.unit(futures.real[index])
        pictures, known = candidates(futures, index, camera)
        for kind, images in pictures.items():
            for name, values in compare(images, real, camera.ground, known).items():
                tables.setdefault((name, kind), []).append(values)
    numbers: dict[str, dict[str, Any]] = {}
    curves: dict[str, dict[str, list[float]]] = {}
    per_clip: dict[str, NDArray[np.float64]] = {}
    for (name, kind), rows in tables.items():
        table = np.array(rows)
        seen = np.isfinite(table)
        means = np.where(seen, table, 0).sum(1)[seen.any(1)] / seen.sum(1)[seen.any(1)]
        numbers.setdefault(name, {})[kind] = mean_interval(means).to_dict() if len(means) else None
        if kind == "model" and name in ("ssim", "psnr"):
            per_clip[name] = table.mean(1)
        along = np.where(seen, table, 0).sum(0) / np.maximum(seen.sum(0), 1)
        curves.setdefault(name, {})[kind] = np.where(seen.any(0), along, np.nan).tolist()
    return numbers, curves, per_clip


def compare(
    images: NDArray[np.float32],
    real: NDArray[np.float32],
    ground: NDArray[np.bool_],
    known: NDArray[np.bool_],
) -> dict[str, NDArray[np.float64]]:
    """Every metric of pictures (H, size, size, 3) of one clip, by name; see `judge_pictures`."""
    every = slice(PAIR_EVERY - 1, None, PAIR_EVERY)
    roads = (metrics.road(frames[every]) & ground for frames in (images, real))
    return {
        "mse": metrics.mse(images, real),
        "psnr": metrics.psnr(images, real),
        "ssim": metrics.ssim(images, real),
        "road_iou": metrics.iou(*roads),
        "edge_f1": metrics.edge_f1(images[every], real[every], ground),
        "psnr_new": _masked_psnr(images, real, ground & ~known),
    }


def _masked_psnr(images: NDArray, real: NDArray, where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """PSNR over the pixels of a mask (H, size, size); NaN where it has fewer than 1 %."""
    error = np.square(images - real).mean(-1, dtype=np.float64)
    count = where.sum((-2, -1))
    mean = (error * where).sum((-2, -1)) / np.maximum(count, 1)
    enough = count >= 0.01 * where.shape[-1] * where.shape[-2]
    return np.where(enough, -10 * np.log10(np.maximum(mean, 1e-10)), np.nan)
