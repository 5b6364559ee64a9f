"""Summarises a rung by its headline numbers and writes its record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from common.files import read_json
from common.records import write_record
from common.runs import Run
from common.statistics import bounded_interval
from experiments.rungs.settings import Settings
from probes.metrics import RANGES
from rssm.config import RungConfig

UNBOUNDED = (None, None)


def measure_range(name: str) -> tuple[float | None, float | None]:
    """Smallest and largest possible value of a headline number; None where there is no limit.

    `name` is the name in `summary`.
    """
    if name.startswith("corr_"):
        return -1.0, 1.0
    if name.startswith("auc_"):
        return 0.0, 1.0
    if name.endswith(("_action_sensitivity", "_final_share")):
        return 0.0, None
    return RANGES.get(name.rpartition("_")[2], UNBOUNDED)


def summary(results: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The headline numbers of one seed of a rung, named "<probe>_<measure>"."""
    numbers: dict[str, float] = {}
    for probe, result in results.items():
        measured = result["numbers"]
        for measure in ("ssim", "psnr", "mse"):
            numbers[f"{probe}_{measure}"] = measured["pictures"][measure]["model"]["mean"]
        if "camera" in measured:
            for measure in ("yaw_slope", "forward_slope", "yaw_final_share"):
                estimate = measured["camera"]["imagined"].get(measure)
                if estimate:
                    numbers[f"{probe}_{measure}"] = estimate["mean"]
        numbers[f"{probe}_action_sensitivity"] = measured["action_sensitivity"]["mean"]
    for key, row in results.get("faithfulness", {"numbers": {"telemetry": {}}})["numbers"][
        "telemetry"
    ].items():
        if "model" in row:
            numbers[f"corr_{key}"] = row["model"]["corr"]["mean"]
        elif "auc" in row:
            numbers[f"auc_{key}"] = row["auc"]
    return numbers


def write_rung_record(
    name: str,
    settings: Settings,
    rung: RungConfig,
    runs: Mapping[int, Path],
    results: Mapping[int, Mapping[str, Any]],
    outcome: Mapping[str, Any],
    claim: Mapping[str, Any] | None,
) -> None:
    """Write a rung's record.

    `outcome` is the verdict against its parent, `claim` that against an earlier ancestor, if any.
    """
    scale = "" if settings.scale == "laptop" else f"scale={settings.scale} "
    seeds = {seed: summary(by_probe) for seed, by_probe in results.items()}
    shared = set.intersection(*(set(numbers) for numbers in seeds.values()))
    metrics: dict[str, Any] = {}
    for measure in sorted(shared):
        values = [numbers[measure] for numbers in seeds.values()]
        finite = [value for value in values if value is not None and np.isfinite(value)]
        if finite:
            metrics[measure] = bounded_interval(finite, *measure_range(measure)).to_dict()
    trained = {seed: read_json(path / "result.json") for seed, path in runs.items()}
    probe = rung.observable.probe if rung.observable else "sharp_turn"
    first = results[min(results)].get(probe)
    manifest = Run.open(runs[min(runs)]).manifest
    write_record(
        f"ladder_{name.lower()}",
        command=f"python -m experiments.ladder run={name} seeds={settings.seeds} {scale}"
        "record=true",
        settings={"scale": settings.scale, "seeds": sorted(runs), "updates": rung.updates},
        metrics=metrics,
        provenance={"code": manifest["code"], "machine": manifest["machine"]},
        details={
            "rung": {
                "name": name,
                "parent": rung.parent,
                "change": rung.change,
                "hypothesis": rung.hypothesis,
                "observable": vars(rung.observable) if rung.observable else None,
            },
            "verdict": dict(outcome),
            "claim": claim,
            "seeds": [{"seed": seed, **numbers} for seed, numbers in seeds.items()],
            "trained": [
                {
                    "seed": seed,
                    **{key: v for key, v in result.items() if isinstance(v, int | float)},
                }
                for seed, result in trained.items()
            ],
            "seconds": seconds_spent(runs, results),
            "clips": {p: r["clips"]["hash"] for p, r in results[min(results)].items()},
            "curves": first["curves"] if first else {},
            "passed": {p: r["passed"] for p, r in results[min(results)].items()},
        },
    )


def seconds_spent(
    runs: Mapping[int, Path], results: Mapping[int, Mapping[str, Mapping[str, Any]]]
) -> dict[str, float] | None:
    """Wall-clock seconds of training and of probes, summed over seeds.

    None if a result has no seconds: older versions did not measure them.
    """
    trained = [read_json(path / "result.json").get("seconds") for path in runs.values()]
    judged = [result.get("seconds") for probes in results.values() for result in probes.values()]
    if None in (*trained, *judged):
        return None
    return {"training": sum(trained), "probes": sum(judged)}
