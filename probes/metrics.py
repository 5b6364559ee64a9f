"""What pictures and telemetry are compared by. Pure functions over numpy arrays.

Pictures are (..., H, W, 3) float in [0, 1]; everything is returned per picture.
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
"""Gradient per pixel of a grey picture above which there is an edge."""
EDGE_TOLERANCE = 1
"""Pixels by which an edge may lie beside the true one."""


def unit(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Bytes as float32 in [0, 1]."""
    return images.astype(np.float32) / 255


def mse(images: NDArray, reference: NDArray) -> NDArray[np.float64]:
    """Mean squared error per picture, (...)."""
    return np.square(images - reference, dtype=np.float64).mean((-3, -2, -1))


def psnr(images: NDArray, reference: NDArray) -> NDArray[np.float64]:
    """Peak signal-to-noise ratio in dB, (...); 100 where nothing differs."""
    return -10 * np.log10(np.maximum(mse(images, reference), 1e-10))


def grey(images: NDArray) -> NDArray[np.float32]:
    """Luminance, (..., H, W)."""
    return images.astype(np.float32) @ GREY


def ssim(images: NDArray, reference: NDArray) -> NDArray[np.float64]:
    """Structural similarity of the luminance, (...), with a Gaussian window (Wang et al. 2004)."""
    shape = images.shape[:-3]
    pairs = zip(
        grey(images).reshape(-1, *images.shape[-3:-1]),
        grey(reference).reshape(-1, *images.shape[-3:-1]),
        strict=True,
    )
    return np.array([_ssim(a, b) for a, b in pairs]).reshape(shape)


def _ssim(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    def smooth(image: NDArray) -> NDArray:
        return cv2.GaussianBlur(image, (11, 11), WINDOW, borderType=cv2.BORDER_REFLECT)

    mean_a, mean_b = smooth(a), smooth(b)
    var_a = smooth(a * a) - mean_a**2
    var_b = smooth(b * b) - mean_b**2
    covariance = smooth(a * b) - mean_a * mean_b
    c1, c2 = K1**2, K2**2
    structure = (2 * covariance + c2) / (var_a + var_b + c2)
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    return float((luminance * structure).mean())


def road(images: NDArray) -> NDArray[np.bool_]:
    """(..., H, W), what is grey rather than green or red: the road, by its colour."""
    strongest, weakest = images.max(-1), images.min(-1)
    return (strongest - weakest < 0.12) & (strongest > 0.25) & (strongest < 0.65)


def iou(found: NDArray[np.bool_], true: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Intersection over union per mask, (...); 1 where both are empty."""
    both = (found & true).sum((-2, -1))
    either = (found | true).sum((-2, -1))
    return np.where(either > 0, both / np.maximum(either, 1), 1.0)


def edge_f1(images: NDArray, reference: NDArray, where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """F1 of edges inside the mask `where` (H, W), matched within EDGE_TOLERANCE pixels, (...)."""
    shape = images.shape[:-3]
    size = images.shape[-3:]
    pairs = zip(images.reshape(-1, *size), reference.reshape(-1, *size), strict=True)
    return np.array([_edge_f1(a, b, where) for a, b in pairs]).reshape(shape)


def _edge_f1(image: NDArray, reference: NDArray, where: NDArray[np.bool_]) -> float:
    found, true = (_edges(x) & where for x in (image, reference))
    near = np.ones((2 * EDGE_TOLERANCE + 1,) * 2, np.uint8)
    near_found, near_true = (cv2.dilate(x.astype(np.uint8), near) > 0 for x in (found, true))
    if not found.any() or not true.any():
        return float(found.any() == true.any())
    precision = (found & near_true).sum() / found.sum()
    recall = (true & near_found).sum() / true.sum()
    return float(2 * precision * recall / max(precision + recall, 1e-9))


def _edges(image: NDArray) -> NDArray[np.bool_]:
    luminance = np.ascontiguousarray(grey(image))
    slopes = [cv2.Sobel(luminance, cv2.CV_32F, *d, ksize=3) / 8 for d in ((1, 0), (0, 1))]
    return np.hypot(*slopes) > EDGE_THRESHOLD


def correlation(found: NDArray, true: NDArray) -> float:
    """Pearson's, over all elements; NaN where either is constant."""
    a, b = np.ravel(found).astype(np.float64), np.ravel(true).astype(np.float64)
    if len(a) < 2 or a.std() < 1e-12 or b.std() < 1e-12:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def slope(found: NDArray, true: NDArray) -> float:
    """Least-squares slope through the origin of `found` over `true`; 1 is perfect."""
    power = float(np.square(true, dtype=np.float64).sum())
    return float((found * true).sum() / power) if power > 1e-12 else float("nan")


def auc(score: NDArray, label: NDArray[np.bool_]) -> float:
    """Area under the ROC curve, ties counted half (Mann and Whitney); NaN without both labels."""
    score, label = np.ravel(score), np.ravel(label).astype(bool)
    positive, negative = int(label.sum()), int((~label).sum())
    if not positive or not negative:
        return float("nan")
    ranks = stats.rankdata(score)
    return float((ranks[label].sum() - positive * (positive + 1) / 2) / (positive * negative))


def brier(probability: NDArray, label: NDArray[np.bool_]) -> float:
    """Mean squared error of a probability."""
    return float(np.square(np.ravel(probability) - np.ravel(label)).mean())
