"""Averages runs that differ only in their training seed.

The training seed is the unit of a result, because all tracks of one run share the same luck in
training. So the intervals are over the means of seeds, and wide for few seeds. Intervals over
tracks are also computed, under another name (`over_tracks`). A single run has no other seeds, so
its intervals are over tracks, as in its evaluation.
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
    """Smallest and largest possible difference between two values of an evaluator's measure."""
    low, high = RANGES[measure]
    return UNBOUNDED if low is None or high is None else (low - high, high - low)


def averaged(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """The metrics of a record: estimates over seeds (for a single run, over tracks) and numbers.

    The minimum and the 10th percentile of the native return are over all drives of all runs.
    Ticks, decisions and seconds are means per run. A seed that never finished has no lap time and
    is left out of that mean.
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
    """The mean over tracks of the measure `name` for each run that has it."""
    summaries = [run.judged["summary"] for run in runs]
    return [summary[name]["mean"] for summary in summaries if name in summary]


def over_tracks(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Estimates over tracks, where each track is averaged over seeds first."""
    estimates = {}
    for name in MEASURES:
        tracks = zip(*(run.judged["rows"] for run in runs), strict=True)
        by_track = [[row[name] for row in rows if row[name] is not None] for rows in tracks]
        means = [np.mean(values) for values in by_track if values]
        if means:
            estimates[name] = bounded_interval(means, *RANGES[name]).to_dict()
    return estimates


def best_run(runs: Sequence[FinishedRun]) -> FinishedRun:
    """The run with the best validation score. Test tracks are never used to choose.

    Raises `UserError` if there are several runs and one has no validation, or if they were
    validated differently.
    """
    if len(runs) == 1:
        return runs[0]
    unscored = [str(run.path) for run in runs if run.validation_score is None]
    if unscored:
        raise UserError(
            f"{', '.join(unscored)}: no validation, and the best seed must not be chosen by test "
            "tracks; name one run"
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
    """The curves of several runs on one grid of ticks, as {"mean", "low", "high"} over runs.

    Runs validate at slightly different ticks. So each curve is interpolated linearly to the ticks
    of the run with the fewest validations. The grid covers only the ticks that all runs cover. A
    single run is not changed. Where one curve has no value (no episode has ended yet), the average
    has no value either.
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
        # In training a car drives on after its lap, so only evaluated progress is limited to 1.
        judged = name != "episode/progress"
        ends = RANGES.get(name.rpartition("/")[2], UNBOUNDED) if judged else UNBOUNDED
        points = [
            bounded_interval(column, *ends).to_dict() if np.isfinite(column).all() else {}
            for column in values.T
        ]
        columns[name] = {part: [p.get(part) for p in points] for part in ("mean", "low", "high")}
    return columns
