"""Imagined telemetry against the recorded, at chosen horizons, beside what needs no world model."""

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
"""Share of a target's standard deviation below which it has no sign worth matching."""


def judge_telemetry(
    futures: Futures,
    telemetry: Sequence[str],
    blind: Mapping[int, Mapping[str, BlindRegression]],
    horizons: Sequence[int],
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Numbers by head and horizon ("speed@15"): of the model, of persistence, of the regression.

    Each of the three has `corr` (over clips, with a bootstrap interval), `mae`, `bias` and
    `sign_match`; `beats` says whether the model's absolute error is smaller than both others',
    paired by clip, with the interval of the difference.

    Args:
        futures: what was imagined from n clips.
        telemetry: regressed names, in the order of `futures.context_telemetry`.
        blind: the regressions of `fit_blind`, by horizon and name.
        horizons: rows after the context.
        seed: of the bootstrap.
    """
    table: dict[str, dict[str, Any]] = {}
    for horizon in horizons:
        if horizon > futures.real.shape[1]:
            continue
        fitted = blind.get(horizon, {})
        for name in (REWARD, *telemetry):
            true = futures.recorded[name][:, horizon - 1].astype(np.float64)
            found = {"model": futures.predicted[name][:, horizon - 1].astype(np.float64)}
            if name in telemetry:
                last = futures.context_telemetry[:, -1, list(telemetry).index(name)]
                found["persistence"] = last.astype(np.float64)
            if name in fitted:
                found["blind"] = fitted[name].predict(
                    futures.context_telemetry, futures.actions[:, :horizon]
                )
            table[f"{name}@{horizon}"] = _compare(found, true, seed)
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


def _compare(found: dict[str, NDArray], true: NDArray, seed: int) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    floor = SIGN_FLOOR * true.std()
    signed = np.abs(true) > floor
    for kind, values in found.items():
        error = values - true
        numbers[kind] = {
            "corr": _correlation(values, true, seed).to_dict(),
            "mae": bounded_interval(np.abs(error), 0).to_dict(),
            "bias": float(error.mean()),
            "sign_match": float((np.sign(values) == np.sign(true))[signed].mean())
            if signed.any()
            else None,
        }
    beaten: dict[str, Any] = {}
    for kind in found.keys() - {"model"}:
        gain = np.abs(found[kind] - true) - np.abs(found["model"] - true)
        beaten[kind] = bounded_interval(gain).to_dict()
    numbers["gain"] = beaten
    numbers["beats"] = {
        kind: gain["low"] is not None and gain["low"] > 0 for kind, gain in beaten.items()
    }
    return numbers


def _correlation(found: NDArray, true: NDArray, seed: int) -> Estimate:
    point = float(metrics.correlation(found, true))
    if not np.isfinite(point):
        return Estimate(0.0, None, None, len(true))  # a constant says nothing about the target
    interval = stats.bootstrap(
        (found, true),
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
    """A regression per horizon and target, from windows of `train` that no episode's start divides.

    A horizon for which `train` has fewer than 100 such windows has none.
    """
    return {horizon: _fit(train, telemetry, context, horizon, seed) for horizon in horizons}


def _fit(
    train: DataSet, telemetry: Sequence[str], context: int, horizon: int, seed: int
) -> dict[str, BlindRegression]:
    length = context + horizon
    sampler = WindowSampler(train.episodes, length, FIT_WINDOWS, seed)
    starts = sampler.indices(0)
    first = train.column("is_first")
    whole = np.array([not first[s + 1 : s + length].any() for s in starts])
    if whole.sum() < 100:
        return {}
    batch = Reader(train, telemetry, False).batch(starts[whole], length, frames=False)
    past = np.stack([batch.targets[n][:, :context].numpy() for n in telemetry], -1)
    actions = batch.action[:, context:].numpy()
    targets = {n: batch.targets[n][:, -1].numpy() for n in (REWARD, *telemetry)}
    return {n: BlindRegression().fit(past, actions, target) for n, target in targets.items()}
