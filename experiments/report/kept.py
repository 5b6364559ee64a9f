"""The committed records of training, by what they are for."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.records import RECORDS, read_record
from experiments.data.recipes import RECIPES

REAL = "gymnasium_carracing"
"""Gymnasium's own CarRacing-v3, as records call it."""

RUNGS = ("E1", "E2", "E3", "P1", "P2", "P3", "P4", "P5",
         "I1B1", "I1B2", "I1B3", "2A", "2B", "2C")  # fmt: skip
"""The ladder of experiments, in its order; conf/experiment has each."""

PROBES = (
    "sharp_turn", "gentle_turn", "straight", "recovery", "novel_layout", "faithfulness",
)  # fmt: skip
"""The judges of the committed world model, in the report's order."""

BUDGETS = ("budget_49k", "budget_49k_ticks")
"""Trained with the earlier record's budget, as decisions and as engine ticks."""

BUDGET_SEEDS = "calibration_control_49k"
"""The configuration of budget_49k with many more training seeds, for the gates of a campaign."""


def trained(directory: Path = RECORDS) -> list[dict[str, Any]]:
    """The records of trained drivers, those of BUDGETS left out, by name; `UserError` for one
    without details."""
    names = sorted(path.stem for path in directory.glob("*.json"))
    records = [read_record(name, directory) for name in names if name not in BUDGETS]
    found = [record for record in records if "decisions" in record["metrics"]]
    for record in found:
        if "details" not in record:
            raise UserError(f"the record {record['name']} is damaged: it has no details")
    return found


def judged_in(record: Mapping[str, Any], env: str) -> Iterator[tuple[int, list[float]]]:
    """Training seed and native return per test track of each policy judged in the world `env`.

    Where the final evaluation was in `env`, that one counts; else the first further one of a seed.
    """
    details = record["details"]
    if record["settings"]["env"] == env:
        for row in details.get("seeds", ()):
            yield row["seed"], row["tracks"]["native_return"]
        return
    seen = set()
    for one in details.get("evaluations", ()):
        if one["settings"]["env"] == env and one["seed"] not in seen:
            seen.add(one["seed"])
            yield one["seed"], one["native_return"]


def data_sets(directory: Path = RECORDS) -> list[dict[str, Any]]:
    """The records of collected data sets, in the order of their recipes."""
    found = (read_record(f"data_{name.lower()}", directory) for name in RECIPES)
    return [record for record in found if record]


def probes(directory: Path = RECORDS) -> list[dict[str, Any]]:
    """The records of the probes, in their order."""
    found = (read_record(f"probe_{name}", directory) for name in PROBES)
    return [record for record in found if record]


def ladder(directory: Path = RECORDS) -> list[dict[str, Any]]:
    """The records of world-model rungs, in the ladder's order."""
    found = (read_record(f"ladder_{name.lower()}", directory) for name in RUNGS)
    return [record for record in found if record]
