"""How often the gates are wrong: simulated campaigns that draw from measured noise.

One configuration was trained with many seeds and judged on many tracks (`loop/noise.py` does that);
those runs differ by luck alone. A simulated campaign draws its parents and candidates from these
runs. Its candidates are therefore equal to their parents, and every promotion is a false one. A
true effect is simulated by adding it to every track of a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoresearch.config import CampaignConfig, Gates
from autoresearch.judge import gates as decide
from autoresearch.judge.evidence import BETS
from common.records import write_record
from common.statistics import proportion_interval

CALIBRATIONS = "calibration_"
"""The names of calibration records begin with this."""
EPISODES = 3
"""Unpaired episodes per candidate by which the earlier record promoted."""


@dataclass(frozen=True)
class Noise:
    """Measurements of runs of one configuration.

    Attributes:
        primary: float64 (runs, units), multiplied by the measure's sign, so larger is better.
        guards: by name, float64 (runs, units), larger is worse.
        seconds: mean of a training run.
    """

    primary: NDArray[np.float64]
    guards: dict[str, NDArray[np.float64]]
    seconds: float


def simulate(
    noise: Noise,
    gates: Gates,
    *,
    effect: float,
    campaigns: int,
    generations: int,
    candidates: int,
    seed: int,
) -> dict[str, Any]:
    """Whole campaigns in which every candidate is better than its parent by `effect`.

    Returns `promoted`, the share of campaigns that promote anything, with its interval, the same
    for `screened` (anything passes G3), and the mean number of training `runs` and `minutes`.
    """
    rng = np.random.default_rng(seed)
    # Campaigns draw the same pairs of runs many times.
    logs = lru_cache(maxsize=2048)(partial(_logs, noise, gates, effect))
    promoted, screened, runs = 0, 0, 0
    for _ in range(campaigns):
        won = passed = False
        for generation in range(1, generations + 1):
            evidence = _screens(logs, noise.primary.shape, gates, candidates, rng)
            runs += 1 + candidates  # a parent's and each candidate's
            finalists = [e for e in sorted(evidence, reverse=True) if e > 0][: gates.finalists]
            passed |= bool(finalists)
            alpha, seeds = gates.claim(generation)
            for _ in finalists:
                better, tried = _claim(noise, gates, effect, seeds, alpha, rng)
                runs += 2 * tried
                won |= better
            if won:
                break  # counted is whether a campaign promotes anything at all
        promoted, screened = promoted + won, screened + passed
    mean_runs = runs / campaigns
    return {
        "effect": effect,
        "promoted": proportion_interval(promoted, campaigns).to_dict(),
        "screened": proportion_interval(screened, campaigns).to_dict(),
        "runs": mean_runs,
        "minutes": mean_runs * noise.seconds / 60,
    }


def best_of_three(noise: Noise, *, effect: float, trials: int, seed: int) -> dict[str, Any]:
    """The earlier record's way: three candidates with three unpaired episodes each, and the best
    mean wins if it is above the parent's.

    Returns `promoted`, how often that promotes, and `inflation`, by how much the winner's score
    exceeds its true level.
    """
    rng = np.random.default_rng(seed)
    runs, units = noise.primary.shape
    drawn_runs = rng.integers(runs, size=(trials, 4))
    drawn_units = rng.integers(units, size=(trials, 4, EPISODES))
    scores = noise.primary[drawn_runs[..., None], drawn_units].mean(-1)
    scores[:, 1:] += effect
    best = scores[:, 1:].argmax(1) + 1
    rows = np.arange(trials)
    wins = scores[rows, best] > scores[:, 0]
    true = noise.primary.mean(1)[drawn_runs[rows, best]] + effect
    inflated = (scores[rows, best] - true)[wins]
    return {
        "effect": effect,
        "promoted": proportion_interval(int(wins.sum()), trials).to_dict(),
        "inflation": float(inflated.mean()) if wins.any() else None,
    }


def keep_calibration(
    result: Mapping[str, Any], config: CampaignConfig, command: str, **where: Any
) -> Path:
    """Keep the result of `python -m autoresearch calibrate` as `calibration_<campaign>.json`.

    `where` goes to `write_record`.
    """
    gates, names = config.gates, ("alpha", "win", "stop", "proof", "cap", "finalists", "seed_units")
    primary, generations = gates.primary.name, config.budgets.generations
    settings = {
        "budget": config.budget,
        "primary": primary,
        "generations": generations,
        "candidates": config.proposer.candidates,
        "seeds": [gates.claim(generation)[1] for generation in range(1, generations + 1)],
        **{name: getattr(gates, name) for name in names},
    }
    single = ("mean", "sd_over_seeds", "sd_over_units", "seconds_per_run", "runs", "units")
    metrics = {name: result[name] for name in (*single, "campaigns")}
    rows = [
        row | {"best_of_three": luck["promoted"], "inflation": luck["inflation"]}
        for row, luck in zip(result["gates"], result["best_of_three"], strict=True)
    ]
    return write_record(
        f"{CALIBRATIONS}{config.name}",
        command=command,
        settings=settings,
        metrics=metrics,
        details={"rows": rows, "means": [round(mean, 5) for mean in result["means"]]},
        **where,
    )


def _screens(
    logs: Callable[[int, int], NDArray[np.float64]],
    size: tuple[int, int],
    gates: Gates,
    candidates: int,
    rng: np.random.Generator,
) -> list[float]:
    """G3 of a generation: the e-value of each candidate that wins, and 0 of one that does not.

    Args:
        logs: `_logs` of a candidate and a parent.
        size: numbers of runs and units.
    """
    runs, units = size
    parent, *others = rng.choice(runs, 1 + candidates, replace=candidates >= runs)
    tracks = rng.integers(units, size=gates.cap)
    values = []
    begins = np.arange(0, gates.cap, gates.batch)
    for candidate in others:
        batches = np.add.reduceat(logs(candidate, parent)[tracks], begins)
        totals = np.cumsum(batches, axis=0)
        top = totals.max(axis=-1)
        won, futile, *guards = (np.exp(top) * np.exp(totals - top[..., None]).mean(-1)).T
        held = np.all([e >= gates.proof for e in guards[::2]], axis=0)
        harmed = np.any([e >= gates.stop for e in guards[1::2]], axis=0)
        wins = (won >= gates.win) & held
        stops = harmed | (np.maximum.accumulate(futile) >= gates.stop)
        first = int(np.argmax(wins)) if wins.any() else len(begins)
        stopped = int(np.argmax(stops & ~wins)) if (stops & ~wins).any() else len(begins)
        values.append(float(won[first]) if first < min(stopped, len(begins)) else 0.0)
    return values


def _logs(
    noise: Noise, gates: Gates, effect: float, candidate: int, parent: int
) -> NDArray[np.float64]:
    """Log-factors of `evidence.e_process` for a candidate and a parent: float64 (units, questions,
    stakes).

    The questions: is it better; is it worthless; and for every guard, does the margin hold, does it
    break, does the ceiling hold, does it break.
    """
    width = gates.primary.width
    gain = gates.primary.counted(noise.primary[candidate] + effect - noise.primary[parent])
    asked = [gain / width, (gates.effect - gain) / (width + gates.effect)]
    for guard in gates.guards:
        measure = guard.measure
        values = noise.guards[measure.name]
        worse = measure.counted(values[candidate] - values[parent])
        room = measure.counted(-measure.sign * guard.ceiling - values[candidate]) / measure.width
        margins = (guard.margin - worse) / (measure.width + guard.margin)
        asked += [margins, -margins, room, -room]
    return np.log1p(np.clip(np.stack(asked, 1), -1, 1)[..., None] * BETS)


def _claim(
    noise: Noise,
    gates: Gates,
    effect: float,
    seeds: int,
    alpha: float,
    rng: np.random.Generator,
) -> tuple[bool, int]:
    """G4 of one candidate: whether it is promoted, and on how many seeds it was tried."""
    runs, units = noise.primary.shape
    tracks = rng.integers(units, size=gates.seed_units)
    candidate: list[dict[str, dict[str, float]]] = []
    parent: list[dict[str, dict[str, float]]] = []
    while True:
        pair = rng.choice(runs, 2, replace=False)  # a run does not compete with itself
        for rows, run, shift in ((candidate, pair[0], effect), (parent, pair[1], 0.0)):
            level = noise.primary[run, tracks].mean() + shift
            row = {gates.primary.name: gates.primary.sign * level}
            for guard in gates.guards:
                name = guard.measure.name
                row[name] = -guard.measure.sign * noise.guards[name][run, tracks].mean()
            rows.append({"mean": row})
        verdict = decide.seeds(candidate, parent, seeds, alpha, gates)
        if verdict.outcome:
            return verdict.passed, len(candidate)
