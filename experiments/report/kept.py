"""Reads the committed records, grouped by purpose."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.records import RECORDS, read_record
from experiments.data.recipes import RECIPES

REAL = "gymnasium_carracing"
"""The name of Gymnasium's CarRacing-v3 in records."""

RUNGS = ("E1", "E2", "E3", "P1", "P2", "P3", "P4", "P5",
         "I1B1", "I1B2", "I1B3", "2A", "2B", "2C")  # fmt: skip
"""The rungs of the ladder, in order; each has a file in conf/experiment."""

PROBES = (
    "sharp_turn", "gentle_turn", "straight", "recovery", "novel_layout", "faithfulness",
)  # fmt: skip
"""The probes of the committed world model, in the report's order."""

BUDGETS = ("budget_49k", "budget_49k_ticks")
"""Drivers trained with the earlier record's budget, counted in decisions and in engine ticks."""

BUDGET_SEEDS = "calibration_control_49k"
"""The record of budget_49k's configuration with many more training seeds."""


def trained(directory: Path = RECORDS) -> list[dict[str, Any]]:
    """The records of trained drivers except those of BUDGETS, sorted by name.

    Raises `UserError` if one has no details.
    """
    names = sorted(path.stem for path in directory.glob("*.json"))
    records = [read_record(name, directory) for name in names if name not in BUDGETS]
    drivers = [record for record in records if "decisions" in record["metrics"]]
    for record in drivers:
        if "details" not in record:
            raise UserError(f"the record {record['name']} is damaged: it has no details")
    return drivers


def judged_in(record: Mapping[str, Any], env: str) -> Iterator[tuple[int, list[float]]]:
    """The training seed, and the native return per test track, of each policy judged in `env`.

    If the final evaluation was in `env`, it is used. Otherwise, the first further evaluation of
    each seed in `env` is used.
    """
    details = record["details"]
    if record["settings"]["env"] == env:
        for row in details.get("seeds", ()):
            yield row["seed"], row["tracks"]["native_return"]
        return
    seeds = set()
    for one in details.get("evaluations", ()):
        if one["settings"]["env"] == env and one["seed"] not in seeds:
            seeds.add(one["seed"])
            yield one["seed"], one["native_return"]


def data_sets(directory: Path = RECORDS) -> list[dict[str, Any]]:
    """The records of collected data sets, in the order of their recipes."""
    return _existing((f"data_{name.lower()}" for name in RECIPES), directory)


def probes(directory: Path = RECORDS) -> list[dict[str, Any]]:
    """The records of the probes, in their order."""
    return _existing((f"probe_{name}" for name in PROBES), directory)


def ladder(directory: Path = RECORDS) -> list[dict[str, Any]]:
    """The records of world-model rungs, in the ladder's order."""
    return _existing((f"ladder_{name.lower()}" for name in RUNGS), directory)


def _existing(names: Iterable[str], directory: Path) -> list[dict[str, Any]]:
    """The records with these names that exist, in order."""
    records = (read_record(name, directory) for name in names)
    return [record for record in records if record]
