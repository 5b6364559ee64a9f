"""Metrics for pictures and telemetry, as pure functions over numpy arrays.

Pictures are (..., H, W, 3) float in [0, 1]. Functions of pictures return one value per picture.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import stats

WINDOW = 1.5
"""Standard deviation in pixels of SSIM's Gaussian window (Wang et al. 2004)."""
K1, K2 = 0.01, 0.03
GREY = np.array([0.299, 0.587, 0.114], np.float32)
EDGE_THRESHOLD = 0.06
"""A pixel of a grey picture is on an edge if its gradient per pixel is larger than this."""
EDGE_TOLERANCE = 1
"""An edge may be this many pixels away from the true one."""

RANGES: dict[str, tuple[float | None, float | None]] = {
    "mse": (0.0, None),
    "psnr": (None, None),
    "psnr_new": (None, None),
    "ssim": (-1.0, 1.0),
    "road_iou": (0.0, 1.0),
    "edge_f1": (0.0, 1.0),
}
"""Smallest and largest possible value of each picture metric; None where there is no limit."""


def unit(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Bytes as float32 in [0, 1]."""
    return images.astype(np.float32) / 255


def mse(images: NDArray, reference: NDArray) -> NDArray[np.float64]:
    """Mean squared error per picture, (...)."""
    return np.square(images - reference).mean((-3, -2, -1), dtype=np.float64)


def decibels(error: NDArray) -> NDArray[np.float64]:
    """Peak signal-to-noise ratio in dB of mean squared errors; 100 where nothing differs."""
    return -10 * np.log10(np.maximum(error, 1e-10))


def grey(images: NDArray) -> NDArray[np.float32]:
    """Luminance, (..., H, W)."""
    return images.astype(np.float32) @ GREY


class Similarity:
    """Structural similarity of the luminance with a Gaussian window (Wang et al. 2004).

    Args:
        reference: the true pictures, (N, H, W, 3); their moments are computed once.
    """

    def __init__(self, reference: NDArray) -> None:
        self._grey = grey(reference)
        self._mean = [_smooth(image) for image in self._grey]
        self._square = [_smooth(image * image) for image in self._grey]

    def __call__(self, images: NDArray) -> NDArray[np.float64]:
        """The similarity (N,) of pictures (N, H, W, 3) to the reference."""
        moments = zip(grey(images), self._grey, self._mean, self._square, strict=True)
        return np.array([self._compare(*one) for one in moments])

    @staticmethod
    def _compare(a: NDArray, b: NDArray, mean_b: NDArray, square_b: NDArray) -> float:
        mean_a = _smooth(a)
        products, squares = mean_a * mean_b, mean_a * mean_a + mean_b * mean_b
        covariance = _smooth(a * b) - products
        variances = _smooth(a * a) + square_b - squares
        c1, c2 = K1**2, K2**2
        structure = (2 * covariance + c2) / (variances + c2)
        luminance = (2 * products + c1) / (squares + c1)
        return float((luminance * structure).mean())


def _smooth(image: NDArray) -> NDArray:
    return cv2.GaussianBlur(image, (11, 11), WINDOW, borderType=cv2.BORDER_REFLECT)


def road(images: NDArray) -> NDArray[np.bool_]:
    """The pixels of the road, (..., H, W): those that are grey and not green or red."""
    strongest, weakest = images.max(-1), images.min(-1)
    return (strongest - weakest < 0.12) & (strongest > 0.25) & (strongest < 0.65)


def iou(mask: NDArray[np.bool_], true: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Intersection over union per mask, (...); 1 where both masks are empty."""
    intersection = (mask & true).sum((-2, -1))
    union = (mask | true).sum((-2, -1))
    return np.where(union > 0, intersection / np.maximum(union, 1), 1.0)


def edge_f1(images: NDArray, reference: NDArray, where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """F1 score of edges per picture, (...), inside the mask `where` (H, W).

    Edges match if they are at most EDGE_TOLERANCE pixels apart.
    """
    shape = images.shape[:-3]
    size = images.shape[-3:]
    pairs = zip(images.reshape(-1, *size), reference.reshape(-1, *size), strict=True)
    return np.array([_edge_f1(a, b, where) for a, b in pairs]).reshape(shape)


def _edge_f1(image: NDArray, reference: NDArray, where: NDArray[np.bool_]) -> float:
    edges, true = (_edges(x) & where for x in (image, reference))
    near = np.ones((2 * EDGE_TOLERANCE + 1,) * 2, np.uint8)
    near_edges, near_true = (cv2.dilate(x.astype(np.uint8), near) > 0 for x in (edges, true))
    if not edges.any() or not true.any():
        return float(edges.any() == true.any())
    precision = (edges & near_true).sum() / edges.sum()
    recall = (true & near_edges).sum() / true.sum()
    return float(2 * precision * recall / max(precision + recall, 1e-9))


def _edges(image: NDArray) -> NDArray[np.bool_]:
    luminance = np.ascontiguousarray(grey(image))
    slopes = [cv2.Sobel(luminance, cv2.CV_32F, *d, ksize=3) / 8 for d in ((1, 0), (0, 1))]
    return np.hypot(*slopes) > EDGE_THRESHOLD


def correlation(predicted: NDArray, true: NDArray, axis: int = -1) -> NDArray[np.float64]:
    """Pearson's correlation along an axis; NaN where one of the two is constant."""
    a, b = np.asarray(predicted, np.float64), np.asarray(true, np.float64)
    a, b = (values - values.mean(axis, keepdims=True) for values in (a, b))
    power = np.sqrt((a * a).mean(axis) * (b * b).mean(axis))
    least = 1e-12 * np.maximum(np.abs(predicted).max(), np.abs(true).max())
    covariance = (a * b).mean(axis)
    return np.where(power > least, covariance / np.maximum(power, 1e-300), np.nan)


def slope(measured: NDArray, true: NDArray) -> float:
    """Least-squares slope through the origin of `measured` against `true`; 1 is perfect."""
    power = float(np.square(true, dtype=np.float64).sum())
    return float((measured * true).sum() / power) if power > 1e-12 else float("nan")


def auc(score: NDArray, label: NDArray[np.bool_]) -> float:
    """Area under the ROC curve by Mann and Whitney's statistic; ties count half.

    NaN if only one of the two labels occurs.
    """
    score, label = np.ravel(score), np.ravel(label).astype(bool)
    positive, negative = int(label.sum()), int((~label).sum())
    if not positive or not negative:
        return float("nan")
    ranks = stats.rankdata(score)
    return float((ranks[label].sum() - positive * (positive + 1) / 2) / (positive * negative))


def brier(probability: NDArray, label: NDArray[np.bool_]) -> float:
    """Brier score: the mean squared error of a predicted probability."""
    return float(np.square(np.ravel(probability) - np.ravel(label)).mean())
