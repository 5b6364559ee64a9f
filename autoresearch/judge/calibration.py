"""How often the gates are wrong: measured noise, then many simulated campaigns with it.

One configuration is trained with many seeds and judged on many tracks: what differs between those
runs is luck. Simulated campaigns draw their parents and candidates from these runs, so identical
candidates are identical by construction, and whatever is promoted is a false promotion. A true
effect is simulated by adding it to every track of a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoresearch.config import CampaignConfig, Gates
from autoresearch.execute.harness import judge_task, key_of, train_task
from autoresearch.judge.evidence import BETS
from autoresearch.loop.campaign import Campaign
from autoresearch.loop.plan import training_seed
from autoresearch.loop.state import BASE
from common.errors import UserError
from common.records import write_record
from common.statistics import proportion_interval

LEAST_RUNS = 24
CALIBRATION = 0
"""The generation that training seeds of a calibration belong to; campaigns begin with 1."""
UNITS_OFFSET = 9_000_000
"""Units of a calibration, far from those of any generation."""
CALIBRATIONS = "calibration_"
"""Begins the name of a kept calibration's record."""
EPISODES = 3
"""Of the other study: what the earlier record promoted by, unpaired episodes per candidate."""


@dataclass(frozen=True)
class Noise:
    """What runs of one configuration measured.

    Attributes:
        primary: (runs, units), larger is better (multiplied by the measure's sign).
        guards: (runs, units) by name, larger is worse.
        seconds: of a training run, mean.
    """

    primary: NDArray[np.float64]
    guards: dict[str, NDArray[np.float64]]
    seconds: float


def measure(campaign: Campaign, runs: int, units: int) -> Noise:
    """Train the base with `runs` seeds and judge each on the same `units` units.

    Goes on where an earlier call was interrupted. Raises `UserError` for a run that fails, and
    where the campaign's budget does not suffice.
    """
    config = campaign.config
    seeds = [training_seed(config, CALIBRATION, index) for index in range(runs)]
    trained = [train_task(BASE, {}, seed, config.budget) for seed in seeds]
    judged = [judge_task(task, config.first_unit + UNITS_OFFSET, units) for task in trained]
    for tasks in (trained, judged):
        while pending := [task for task in tasks if not _finished(campaign, task)]:
            if reason := campaign.perform(pending):
                raise UserError(f"the calibration stopped: {reason}")
    rows = [campaign.load(_run(campaign, task).artifact)["rows"] for task in judged]
    primary = config.gates.primary
    guards = {
        guard.measure.name: -guard.measure.sign * _matrix(rows, guard.measure.name)
        for guard in config.gates.guards
    }
    spent = [sum(attempt.seconds for attempt in _run(campaign, t).attempts) for t in trained]
    return Noise(primary.sign * _matrix(rows, primary.name), guards, float(np.mean(spent)))


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
    # Campaigns meet the same pairs of runs again and again.
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
                break  # the next parent is another; what counts is whether it ever happens
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
    """The other way: three candidates, three unpaired episodes each, the best mean wins if it is
    above the parent's. Returns how often that promotes, and by how much the winner flatters."""
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
    found: Mapping[str, Any], config: CampaignConfig, command: str, **where: Any
) -> Path:
    """Keep what `python -m autoresearch calibrate` found as `calibration_<campaign>.json`.

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
    metrics = {name: found[name] for name in (*single, "campaigns")}
    rows = [
        row | {"best_of_three": luck["promoted"], "inflation": luck["inflation"]}
        for row, luck in zip(found["gates"], found["best_of_three"], strict=True)
    ]
    return write_record(
        f"{CALIBRATIONS}{config.name}",
        command=command,
        settings=settings,
        metrics=metrics,
        details={"rows": rows, "means": [round(mean, 5) for mean in found["means"]]},
        **where,
    )


def _screens(
    logs: Callable[[int, int], NDArray[np.float64]],
    size: tuple[int, int],
    gates: Gates,
    candidates: int,
    rng: np.random.Generator,
) -> list[float]:
    """G3 of a generation: the e-value of each candidate that wins, 0 of one that does not.

    logs: what `_logs` makes of a candidate and a parent; size: numbers of runs and units.
    """
    runs, units = size
    parent, *others = rng.choice(runs, 1 + candidates, replace=candidates >= runs)
    tracks = rng.integers(units, size=gates.cap)
    found = []
    begins = np.arange(0, gates.cap, gates.batch)
    for own in others:
        batches = np.add.reduceat(logs(own, parent)[tracks], begins)
        totals = np.cumsum(batches, axis=0)
        top = totals.max(axis=-1)
        won, futile, *guards = (np.exp(top) * np.exp(totals - top[..., None]).mean(-1)).T
        held = np.all([e >= gates.proof for e in guards[::2]], axis=0)
        harmed = np.any([e >= gates.stop for e in guards[1::2]], axis=0)
        wins = (won >= gates.win) & held
        stops = harmed | (np.maximum.accumulate(futile) >= gates.stop)
        first = int(np.argmax(wins)) if wins.any() else len(begins)
        stopped = int(np.argmax(stops & ~wins)) if (stops & ~wins).any() else len(begins)
        found.append(float(won[first]) if first < min(stopped, len(begins)) else 0.0)
    return found


def _logs(noise: Noise, gates: Gates, effect: float, own: int, parent: int) -> NDArray[np.float64]:
    """Log-factors (units, questions, stakes) of `evidence.e_process` for a candidate and a parent.

    Questions: is it better; is it worthless; and of every guard, does the margin hold, or not, and
    the ceiling, or not.
    """
    width = gates.primary.width
    gain = gates.primary.counted(noise.primary[own] + effect - noise.primary[parent])
    asked = [gain / width, (gates.effect - gain) / (width + gates.effect)]
    for guard in gates.guards:
        measure = guard.measure
        values = noise.guards[measure.name]
        worse = measure.counted(values[own] - values[parent])
        room = measure.counted(-measure.sign * guard.ceiling - values[own]) / measure.width
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
    from autoresearch.judge.gates import configuration

    runs, units = noise.primary.shape
    tracks = rng.integers(units, size=gates.seed_units)
    own: list[dict[str, dict[str, float]]] = []
    parent: list[dict[str, dict[str, float]]] = []
    while True:
        pair = rng.choice(runs, 2, replace=False)  # a run does not compete with itself
        for rows, run, shift in ((own, pair[0], effect), (parent, pair[1], 0.0)):
            level = noise.primary[run, tracks].mean() + shift
            row = {gates.primary.name: gates.primary.sign * level}
            for guard in gates.guards:
                name = guard.measure.name
                row[name] = -guard.measure.sign * noise.guards[name][run, tracks].mean()
            rows.append({"mean": row})
        verdict = configuration(own, parent, seeds, alpha, gates)
        if verdict["outcome"]:
            return verdict["passed"], len(own)


def _matrix(rows: Sequence[Mapping[str, Mapping[str, Any]]], name: str) -> NDArray[np.float64]:
    return np.array([[row[name] for row in run.values()] for run in rows], np.float64)


def _run(campaign: Campaign, task: Mapping[str, Any]) -> Any:
    return campaign.state.runs[key_of(task)]


def _finished(campaign: Campaign, task: Mapping[str, Any]) -> bool:
    run = campaign.state.runs.get(key_of(task))
    if run is None or run.open:
        return False
    if run.failed(campaign.config.executor.attempts):
        raise UserError(f"{run.id} of the calibration failed: {run.last.reason}: {run.last.detail}")
    return run.finished
