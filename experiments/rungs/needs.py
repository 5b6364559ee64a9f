"""Checks for the data and the parents' weights of rungs; names the commands that make them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

from common.errors import UserError
from experiments.data.recipes import collect_command
from experiments.report.kept import RUNGS
from experiments.rungs.settings import Settings, configuration
from probes.clips import RULES
from replay.curate import known_shards


def check_needs(names: Sequence[str], seeds: Sequence[int], settings: Settings) -> None:
    """Raise `UserError` if data sets or weights that the rungs need are missing.

    Weights of a rung among `names` count as present, because they are trained in the same call.
    The message lists the commands that make what is missing, in the order in which to run them.

    names: rungs, in the ladder's order.
    """
    rungs = _untrained_parents(names, seeds, settings)
    data = _missing_data([*rungs, *names], settings)
    if not rungs and not data:
        return
    missing = [f"{settings.data_root}/{dataset}" for dataset in data]
    commands = [collect_command(dataset, settings.data_root) for dataset in data]
    if rungs:
        missing.append(f"the weights of {', '.join(rungs)}")
        commands.append(_ladder_command(rungs, settings))
    raise UserError(f"{', '.join(missing)}: not there yet; first run {' && '.join(commands)}")


def _missing_data(names: Iterable[str], settings: Settings) -> list[str]:
    """Data sets that training or probes read and that have no shard yet."""
    splits: dict[tuple[str, str], None] = {}
    for name in names:
        dataset = configuration(name, settings.scale, settings.overrides).data.dataset
        splits |= dict.fromkeys([(dataset, "train"), (dataset, "val")])
    for probe in settings.probes:
        splits[RULES[probe].tracks or "PROBE", "probe"] = None
    missing = [d for d, split in splits if not known_shards(settings.data_root, d, split)]
    return list(dict.fromkeys(missing))


def _untrained_parents(names: Sequence[str], seeds: Sequence[int], settings: Settings) -> list[str]:
    """Ancestors of the rungs `names` that are needed, not trained yet and not among `names`."""
    missing: set[str] = set()
    pending = [(name, seed) for name in names for seed in seeds]
    while pending:
        name, seed = pending.pop()
        overrides = [*settings.overrides, f"seed={seed}", f"run_root={settings.run_root}"]
        config = configuration(name, settings.scale, overrides)
        begun = (Path(settings.run_root) / config.name / "manifest.json").is_file()
        if begun or config.warm_start is None or Path(config.warm_start).exists():
            continue
        # <run_root>/ladder/<scale>/<rung>-s<seed>/checkpoints/final.pt
        rung = Path(config.warm_start).parents[1].name.rpartition("-s")[0]
        if rung not in names and rung not in missing:
            missing.add(rung)
            pending += [(rung, one) for one in seeds]
    return [name for name in RUNGS if name in missing]


def _ladder_command(rungs: Sequence[str], settings: Settings) -> str:
    defaults = {field.name: field.default for field in fields(Settings)}
    words = [f"run={','.join(rungs)}"]
    for key in ("seeds", "scale", "data_root", "run_root"):
        value = getattr(settings, key)
        words += [f"{key}={shlex.quote(value)}"] if value != defaults[key] else []
    return f"python -m experiments.ladder {' '.join(words)}"
