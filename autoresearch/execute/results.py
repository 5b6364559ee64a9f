"""Reads what the process of a task left behind, and refuses what cannot be used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoresearch.config import CampaignConfig
from autoresearch.types.artifact import Artifact, JudgeArtifact, TrainArtifact
from autoresearch.types.task import JudgeTask, Task
from common.errors import UserError
from common.files import read_json, to_plain
from common.runs import Run, flattened

DAMAGE = (UserError, LookupError, TypeError, ValueError, AttributeError, OverflowError)
DAMAGE += (RecursionError,)
"""What reading a file can raise where its content is not as expected."""

PLACE_KEYS = ("name", "run_root", "resume")
"""Settings of a run that say where it lies, not what it computes."""


class Unusable(Exception):
    """A process ended well and left what cannot be used; says what."""


def read_result(task: Task, directory: Path, config: CampaignConfig) -> Artifact:
    """What a task measured.

    Args:
        task: that ended well.
        directory: its run directory.
        config: of the campaign.

    Raises:
        Unusable: files are missing or damaged, or a number is missing, NaN or infinite.
    """
    try:
        if isinstance(task, JudgeTask):
            return _judged(task, directory, config)
        return _trained(directory, config)
    except DAMAGE as error:
        raise Unusable(str(error) or type(error).__name__) from None


def ticks_so_far(directory: Path, name: str) -> int:
    """What a training run has spent of its budget, by the measure `name`; 0 where none says."""
    try:
        rows = Run.open(directory).metrics()
        return max((int(row[name]) for row in rows if row.get(name) is not None), default=0)
    except DAMAGE:
        return 0


def _trained(directory: Path, config: CampaignConfig) -> TrainArtifact:
    commands, run = config.commands, Run.open(directory)
    result, rows = read_json(directory / "result.json"), run.metrics()
    last = to_plain(rows[-1]) if rows else {}
    screens = {
        name.removeprefix(commands.screens): value
        for name, value in last.items()
        if name.startswith(commands.screens) and not name.endswith("_value")
    }
    measures = {
        name: value
        for name, value in last.items()
        if name.startswith(commands.measures)
        and (value is None or (isinstance(value, int | float) and not isinstance(value, bool)))
    }
    settings = to_plain(flattened(run.config))
    return TrainArtifact(
        config={key: value for key, value in settings.items() if key not in PLACE_KEYS},
        code=run.manifest["code"]["sha256"],
        ticks=int(result[commands.ticks]),
        screens=screens,
        measures=measures,
    )


def _judged(task: JudgeTask, directory: Path, config: CampaignConfig) -> JudgeArtifact:
    reading = config.commands.reading
    content = read_json(directory / reading.file)
    rows = _rows(task, content, config)
    units = [str(unit) for unit in range(task.first, task.first + task.count)]
    absent = [unit for unit in units if unit not in rows]
    if absent:
        raise Unusable(f"{reading.file} has no unit {absent[0]}")
    gates = config.gates
    needed = (gates.primary.name, *(guard.measure.name for guard in gates.guards))
    names = tuple(dict.fromkeys((*needed, *config.metrics)))
    _check_numbers(rows, units, needed, names)
    evaluator = content.get("evaluator")
    if not isinstance(evaluator, str | None):
        raise Unusable(f"{reading.file}: evaluator is a hash, not {evaluator!r:.40}")
    return JudgeArtifact(
        evaluator=evaluator,
        rows={unit: {name: rows[unit].get(name) for name in names} for unit in units},
    )


def _rows(task: JudgeTask, content: Any, config: CampaignConfig) -> dict[str, dict[str, Any]]:
    """The rows of a judging command's file, by unit."""
    reading = config.commands.reading
    if not reading.rows:
        columns = content[reading.columns]
        return {
            str(task.first + i): {name: values[i] for name, values in columns.items()}
            for i in range(task.count)
        }
    rows: dict[str, dict[str, Any]] = {}
    for row in content[reading.rows]:
        unit = str(row[reading.unit])
        if unit in rows:
            raise Unusable(f"{reading.file} has unit {unit} twice")
        rows[unit] = dict(row)
    return rows


def _check_numbers(
    rows: Mapping[str, Mapping[str, Any]],
    units: Sequence[str],
    needed: Sequence[str],
    names: Sequence[str],
) -> None:
    """Raise `Unusable` unless the `needed` measures are finite numbers and all others are numbers,
    NaN or missing."""
    for unit in units:
        for name in needed:
            value = rows[unit].get(name)
            if not _number(value):
                raise Unusable(f"{name} of unit {unit} is {value!r:.40}, not a finite number")
    for unit in units:
        for name in names:
            value = rows[unit].get(name)
            if not (value is None or _number(value) or _nan(value)):
                raise Unusable(f"{name} of unit {unit} is {value!r:.40}, not a number")


def _number(value: Any) -> bool:
    """A finite number that fits into a float; raises `OverflowError` for one that does not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _nan(value: Any) -> bool:
    """Not measured, as some commands write it."""
    return isinstance(value, float) and math.isnan(value)
