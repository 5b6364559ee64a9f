"""From runs that differ in their seed to estimates.

The unit of a training result is the training seed: tracks of one run share its luck. So intervals
are over the means of seeds (wide for few seeds); the same figures with the track as unit stand
beside them under their own name. One run has no other runs to be compared with: its
intervals are over tracks, as its evaluation gives them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from common.errors import UserError
from common.statistics import bounded_interval
from envs.racing.evaluate import RANGES
from experiments.training.finished import CURVES, MEASURES, Curve, FinishedRun, differences

UNBOUNDED = (None, None)


def difference_range(measure: str) -> tuple[float | None, float | None]:
    """Least and most of a difference of two values of an evaluator's measure."""
    low, high = RANGES[measure]
    return UNBOUNDED if low is None or high is None else (low - high, high - low)


def averaged(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """The metrics of a record: estimates over seeds (of one run: over tracks), and numbers.

    The low end of the native return is over all drives of all runs; ticks, decisions and seconds
    are means per run. A seed that never finished has no lap time and is left out of that mean.
    """
    if len(runs) == 1:
        summary = runs[0].judged["summary"]
        metrics = {name: summary[name] for name in MEASURES if name in summary}
    else:
        metrics = {}
        for name in MEASURES:
            means = seed_means(runs, name)
            if means:
                metrics[name] = bounded_interval(means, *RANGES[name]).to_dict()
    returns = [row["native_return"] for run in runs for row in run.judged["rows"]]
    return {
        **metrics,
        "native_return_min": float(np.min(returns)),
        "native_return_p10": float(np.percentile(returns, 10)),
        "ticks": round(np.mean([run.result["ticks"] for run in runs])),
        "decisions": round(np.mean([run.result["decisions"] for run in runs])),
        "seconds": float(np.mean([run.result["seconds"] for run in runs])),
    }


def seed_means(runs: Sequence[FinishedRun], name: str) -> list[float]:
    """Each run's mean over tracks of the measure `name`, of the runs that have one."""
    summaries = [run.judged["summary"] for run in runs]
    return [summary[name]["mean"] for summary in summaries if name in summary]


def over_tracks(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Each track's mean over seeds, and its interval over tracks: how much tracks differ."""
    estimates = {}
    for name in MEASURES:
        tracks = zip(*(run.judged["rows"] for run in runs), strict=True)
        driven = [[row[name] for row in rows if row[name] is not None] for rows in tracks]
        means = [np.mean(values) for values in driven if values]
        if means:
            estimates[name] = bounded_interval(means, *RANGES[name]).to_dict()
    return estimates


def best_run(runs: Sequence[FinishedRun]) -> FinishedRun:
    """The run with the best validation score; never chosen by a test track.

    Raises `UserError` if several runs have none to choose by, or not the same.
    """
    if len(runs) == 1:
        return runs[0]
    unscored = [str(run.path) for run in runs if run.validation_score is None]
    if unscored:
        raise UserError(
            f"{', '.join(unscored)}: no validation, and test tracks may not choose the best seed; "
            "name one run"
        )
    keys = ("metric", "env", "direction", "validation_tracks")
    judged = [{key: run.config["evaluation"][key] for key in keys} for run in runs]
    if foreign := differences(judged):
        raise UserError(
            f"the runs were validated differently ({', '.join(foreign)}), so none is the best by "
            "validation; name one run"
        )
    return max(runs, key=lambda run: run.validation_score)


def common_curve(curves: Sequence[Curve]) -> dict[str, Any]:
    """Curves of several runs on one grid of ticks, as {"mean", "low", "high"} over runs.

    Runs validate at slightly different ticks, so each is interpolated linearly to the ticks of the
    one with the fewest, between the last start and the first end of them all; one run alone stays
    as it is. Where a curve has no value (no episode has ended yet), neither has the average.
    """
    shortest = min((curve["ticks"] for curve in curves), key=len)
    if not shortest:
        return {}
    first = max(curve["ticks"][0] for curve in curves)
    last = max(first, min(curve["ticks"][-1] for curve in curves))
    grid = np.clip(shortest, first, last)
    columns: dict[str, Any] = {"ticks": grid.tolist()}
    for name in CURVES:
        values = np.array(
            [np.interp(grid, c["ticks"], np.array(c[name], np.float64)) for c in curves]
        )
        # In training a car drives on after its lap: only judged progress ends at 1.
        judged = name != "episode/progress"
        ends = RANGES.get(name.rpartition("/")[2], UNBOUNDED) if judged else UNBOUNDED
        points = [
            bounded_interval(column, *ends).to_dict() if np.isfinite(column).all() else {}
            for column in values.T
        ]
        columns[name] = {part: [p.get(part) for p in points] for part in ("mean", "low", "high")}
    return columns
