"""Decides whether a rung had the effect that its hypothesis predicted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import UserError
from common.files import read_json
from common.statistics import bounded_interval
from experiments.rungs.settings import Settings
from rssm.config import RungConfig


def verdict(
    rung: RungConfig,
    results: Mapping[int, Mapping[str, Any]],
    parents: Mapping[int, Mapping[str, Any]],
) -> dict[str, Any]:
    """Whether the measure changed as predicted: confirmed, refuted or inconclusive.

    The change against the parent is paired by clip and averaged over the seeds that both have; its
    95% interval is over clips. The verdict is confirmed if the interval lies on the predicted side
    of zero, refuted if it lies on the other side, and inconclusive if it includes zero.

    results, parents: results of the observable's probe, by seed.
    """
    if rung.observable is None or rung.parent is None:
        return {"verdict": None}
    measure, changes = rung.observable.measure, []
    for seed in sorted(results.keys() & parents.keys()):
        if results[seed]["clips"]["hash"] != parents[seed]["clips"]["hash"]:
            raise UserError(
                f"{rung.name} and {rung.parent} were judged on different clips, because the data "
                "or the rules changed: remove the directories `probes` of both runs and start again"
            )
        pair = [one[seed]["per_clip"].get(measure) for one in (results, parents)]
        if None in pair:
            return {"verdict": "inconclusive", "reason": f"one of them has no {measure}"}
        changes.append(np.array(pair, np.float64))
    if not changes:
        return {"verdict": "inconclusive", "reason": f"{rung.parent} has not been run"}
    child, parent = np.nanmean(np.stack(changes), axis=0)
    finite = np.isfinite(child) & np.isfinite(parent)
    change = bounded_interval((child - parent)[finite])
    sign = rung.observable.sign
    if change.low is not None and sign * change.low > 0 and sign * change.high > 0:
        word = "confirmed"
    elif change.low is not None and sign * change.low < 0 and sign * change.high < 0:
        word = "refuted"
    else:
        word = "inconclusive"
    return {"verdict": word, "change": change.to_dict(), "seeds": len(changes)}


def observed(
    rung: RungConfig, results: Mapping[int, Mapping[str, Any]], settings: Settings
) -> tuple[dict[int, Any], dict[int, Any]]:
    """Results of the observable's probe by seed: those of the rung, and those of its parent."""
    if rung.observable is None:
        return {}, {}
    probe = rung.observable.probe
    results = {seed: probes[probe] for seed, probes in results.items() if probe in probes}
    root = Path(settings.run_root) / "ladder" / settings.scale
    parents = {}
    for seed in results:
        path = root / f"{rung.parent}-s{seed}" / "probes" / f"{probe}.json"
        if path.is_file():
            parents[seed] = read_json(path)
    return results, parents
