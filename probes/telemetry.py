"""Compares imagined with recorded telemetry, beside baselines that need no world model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from common.statistics import Estimate, bounded_interval
from probes import metrics
from probes.baselines import BlindRegression
from probes.judge import Futures
from replay import DataSet, WindowSampler
from rssm.config import OFF, REWARD
from rssm.data import Reader

FIT_WINDOWS = 8000
RESAMPLES = 1000
SIGN_FLOOR = 0.05
"""Targets smaller than this share of their standard deviation are left out of `sign_match`."""


def judge_telemetry(
    futures: Futures,
    telemetry: Sequence[str],
    blind: Mapping[int, Mapping[str, BlindRegression]],
    horizons: Sequence[int],
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Numbers by head and horizon ("speed@15") for the model, persistence and the regression.

    Each of the three has `corr` (over clips, with a bootstrap interval), `mae`, `bias` and
    `sign_match`. `gain` is the reduction of the absolute error compared with each baseline, paired
    by clip. `beats` says for each baseline whether the whole interval of `gain` is above zero.

    Args:
        futures: the imagined and recorded futures of n clips.
        telemetry: names of the telemetry heads, in the order of `futures.context_telemetry`.
        blind: the regressions of `fit_blind`, by horizon and name.
        horizons: rows after the context.
        seed: seed of the bootstrap.
    """
    table: dict[str, dict[str, Any]] = {}
    for horizon in horizons:
        if horizon > futures.real.shape[1]:
            continue
        fitted = blind.get(horizon, {})
        for name in (REWARD, *telemetry):
            true = futures.recorded[name][:, horizon - 1].astype(np.float64)
            predicted = {"model": futures.predicted[name][:, horizon - 1].astype(np.float64)}
            if name in telemetry:
                last = futures.context_telemetry[:, -1, list(telemetry).index(name)]
                predicted["persistence"] = last.astype(np.float64)
            if name in fitted:
                predicted["blind"] = fitted[name].predict(
                    futures.context_telemetry, futures.actions[:, :horizon]
                )
            table[f"{name}@{horizon}"] = _compare(predicted, true, seed)
        if OFF in futures.predicted and OFF in futures.recorded:
            label = futures.recorded[OFF][:, horizon - 1] > 0.5
            score = futures.predicted[OFF][:, horizon - 1]
            table[f"{OFF}@{horizon}"] = {
                "auc": metrics.auc(score, label),
                "brier": metrics.brier(score, label),
                "brier_of_share": float(label.mean() * (1 - label.mean())),
                "share": float(label.mean()),
                "n": len(label),
            }
    if OFF in futures.predicted and OFF in futures.recorded:
        label = futures.recorded[OFF] > 0.5
        table[OFF] = {
            "auc": metrics.auc(futures.predicted[OFF], label),
            "brier": metrics.brier(futures.predicted[OFF], label),
            "share": float(label.mean()),
            "n": int(label.size),
        }
    return table


def _compare(predicted: dict[str, NDArray], true: NDArray, seed: int) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    floor = SIGN_FLOOR * true.std()
    signed = np.abs(true) > floor
    for kind, values in predicted.items():
        error = values - true
        numbers[kind] = {
            "corr": _correlation(values, true, seed).to_dict(),
            "mae": bounded_interval(np.abs(error), 0).to_dict(),
            "bias": float(error.mean()),
            "sign_match": float((np.sign(values) == np.sign(true))[signed].mean())
            if signed.any()
            else None,
        }
    gains: dict[str, Any] = {}
    for kind in predicted.keys() - {"model"}:
        gain = np.abs(predicted[kind] - true) - np.abs(predicted["model"] - true)
        gains[kind] = bounded_interval(gain).to_dict()
    numbers["gain"] = gains
    numbers["beats"] = {
        kind: gain["low"] is not None and gain["low"] > 0 for kind, gain in gains.items()
    }
    return numbers


def _correlation(predicted: NDArray, true: NDArray, seed: int) -> Estimate:
    point = float(metrics.correlation(predicted, true))
    if not np.isfinite(point):
        return Estimate(0.0, None, None, len(true))  # a constant does not predict the target
    interval = stats.bootstrap(
        (predicted, true),
        metrics.correlation,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Estimate(point, float(interval.low), float(interval.high), len(true))


def fit_blind(
    train: DataSet, telemetry: Sequence[str], context: int, horizons: Sequence[int], seed: int
) -> dict[int, dict[str, BlindRegression]]:
    """Fit a regression for each horizon and target to windows of `train`.

    Windows that contain the start of another episode are left out. If fewer than 100 windows
    remain for a horizon, there is no regression for it.
    """
    return {horizon: _fit(train, telemetry, context, horizon, seed) for horizon in horizons}


def _fit(
    train: DataSet, telemetry: Sequence[str], context: int, horizon: int, seed: int
) -> dict[str, BlindRegression]:
    length = context + horizon
    sampler = WindowSampler(train.episodes, length, FIT_WINDOWS, seed)
    starts = sampler.indices(0)
    first = train.column("is_first")
    unbroken = np.array([not first[s + 1 : s + length].any() for s in starts])
    if unbroken.sum() < 100:
        return {}
    batch = Reader(train, telemetry, False).batch(starts[unbroken], length, frames=False)
    past = np.stack([batch.targets[name][:, :context].numpy() for name in telemetry], -1)
    actions = batch.action[:, context:].numpy()
    targets = {name: batch.targets[name][:, -1].numpy() for name in (REWARD, *telemetry)}
    return {name: BlindRegression().fit(past, actions, target) for name, target in targets.items()}
