"""The command `calibrate`: measures noise, and simulates campaigns with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from autoresearch.commands.progress import progress
from autoresearch.commands.settings import directory_of, load, whole_number
from autoresearch.config import CampaignConfig
from autoresearch.judge.calibration import Noise, best_of_three, keep_calibration, simulate
from autoresearch.loop.campaign import Campaign
from autoresearch.loop.noise import LEAST_RUNS, measure
from autoresearch.report.display import console
from common import cli, schema
from common.errors import ConfigError
from common.files import to_plain, write_json

EFFECTS = "0,0.02,0.05,0.1,0.15,0.2"


def calibrate(words: Sequence[str]) -> None:
    """Measure the noise of the base configuration and simulate campaigns with it."""
    names = ("runs", "units", "campaigns", "effects", "out", "record")
    config, options = load(words, names)
    runs = whole_number("runs", options.get("runs", LEAST_RUNS), 2, 10_000)
    units = whole_number("units", options.get("units", 100), 2, 100_000)
    count = whole_number("campaigns", options.get("campaigns", 10_000), 1, 10**7)
    effects = _effects(options.get("effects", EFFECTS))
    if options.get("record", "false") not in ("true", "false"):
        raise ConfigError(f"record is true or false, not {options['record']!r}")
    directory = directory_of(config).with_name(f"{config.name}_calibration")
    renamed = schema.build(CampaignConfig, to_plain(config) | {"name": directory.name})
    with (
        progress(renamed, console()) as shown,
        Campaign.opened(renamed, shown.say, shown.watch) as campaign,
    ):
        shown.say(f"{runs} training runs, then as many judgements, in {directory}")
        noise = measure(campaign, runs, units)
    result = {"runs": runs, "units": units, **_simulated(noise, config, effects, count)}
    path = Path(options["out"]) if "out" in options else directory / "calibration.json"
    write_json(path, result)
    if options.get("record") == "true":
        keep_calibration(result, config, cli.command("-m autoresearch"))
    _report(result, effects)


def _simulated(
    noise: Noise, config: CampaignConfig, effects: Sequence[float], count: int
) -> dict[str, Any]:
    """Moments of the noise, and for every effect the error rates with it."""
    sizes = {"generations": config.budgets.generations, "candidates": config.proposer.candidates}
    means = noise.primary.mean(1)
    table = [
        simulate(noise, config.gates, effect=x, campaigns=count, seed=config.seed, **sizes)
        for x in track(effects, f"simulating {count:,} campaigns per effect")
    ]
    return {
        "campaigns": count,
        "mean": float(means.mean()),
        "sd_over_seeds": float(means.std(ddof=1)),
        "sd_over_units": float(noise.primary.std(1, ddof=1).mean()),
        "seconds_per_run": noise.seconds,
        "gates": table,
        "best_of_three": [
            best_of_three(noise, effect=x, trials=count, seed=config.seed) for x in effects
        ],
        "means": means.tolist(),
    }


def _report(result: Mapping[str, Any], effects: Sequence[float]) -> None:
    table, other = result["gates"], result["best_of_three"]
    cli.table(
        ["effect", "promoted", "screened", "runs", "minutes", "best of three promotes"],
        [
            [f"{row['effect']:g}", row["promoted"]["mean"], row["screened"]["mean"], row["runs"],
             row["minutes"], luck["promoted"]["mean"]]
            for row, luck in zip(table, other, strict=True)
        ],
    )  # fmt: skip
    null = next((row for row in table if row["effect"] == 0), None)
    strongest = max(table, key=lambda row: row["effect"])
    cli.finish(
        {
            "sd_over_seeds": result["sd_over_seeds"],
            "best_of_three": other[effects.index(0)]["promoted"]["mean"] if null else None,
            "false_promotion": null["promoted"]["mean"] if null else None,
            "power": strongest["promoted"]["mean"],
        }
    )


def _effects(text: str) -> list[float]:
    try:
        effects = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"effects are numbers with commas: {error}") from None
    if not np.isfinite(effects).all():
        raise ConfigError(f"effects are finite, unlike {text}")
    return effects
