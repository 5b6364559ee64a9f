"""Between a campaign and the commands that it runs: what to start, and what they left behind.

Tasks are plain data, so that the ledger can hold them:

    {"kind": "train", "candidate", "overrides", "seed", "budget"}
    {"kind": "judge", "candidate", "of": key of the trained run, "first": unit, "count": units,
     "sealed": whether these units are opened once}
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoresearch.config import FIELD, CampaignConfig
from autoresearch.execute.processes import RUNS, Job
from autoresearch.loop.state import RunState, State
from autoresearch.propose.proposal import as_arguments, digest
from common.errors import UserError
from common.files import atomic_write_bytes, read_json, to_plain
from common.runs import Run, flattened

Artifact = dict[str, Any]
"""What a finished task found: for a training run its configuration, screens and measures; for a
judgement its rows by unit."""

Task = dict[str, Any]

DAMAGE = (UserError, LookupError, TypeError, ValueError, AttributeError, OverflowError)
DAMAGE += (RecursionError,)
"""What files of untrusted make can raise where they are not as expected."""

TAIL = 1 << 16
"""Bytes of a log's end in which its last line is looked for."""

OWN = ("name", "run_root", "resume")
"""Settings of a run that say where it lies, not what it computes."""


class Unusable(Exception):
    """A process ended well and left what cannot be used; says what."""


def train_task(candidate: str, overrides: Mapping[str, Any], seed: int, budget: int) -> Task:
    """Train a configuration."""
    return {
        "kind": "train",
        "candidate": candidate,
        "overrides": dict(overrides),
        "seed": seed,
        "budget": budget,
    }


def judge_task(trained: Task, first: int, count: int, sealed: bool = False) -> Task:
    """Judge what `trained` made, on the units first, first + 1, ..."""
    return {
        "kind": "judge",
        "candidate": trained["candidate"],
        "of": key_of(trained),
        "first": first,
        "count": count,
        "sealed": sealed,
    }


def key_of(task: Mapping[str, Any]) -> str:
    """What a task computes, whoever wants it: equal keys are one run."""
    if task["kind"] == "train":
        return f"train:{digest(task['overrides'])}:{task['seed']}:{task['budget']}"
    return f"judge:{task['of']}:{task['first']}+{task['count']}"


class Harness:
    """Knows where runs lie and how they are started.

    Args:
        config: of the campaign.
        directory: of the campaign.
    """

    def __init__(self, config: CampaignConfig, directory: Path) -> None:
        self.config, self.directory = config, directory
        self.runs, self.artifacts = directory / "runs", directory / "artifacts"

    def place(self, run: RunState) -> Path:
        """The directory of a run."""
        return self.runs / run.id

    def log(self, run: RunState) -> Path:
        """Where the processes of a run print to, from all its attempts."""
        return self.directory / "logs" / f"{run.id}.log"

    def job(self, run: RunState, state: State) -> Job:
        """What starts a run, or takes it up again; makes room for it first."""
        commands, task, place = self.config.commands, run.task, self.place(run)
        own, needs = f"{RUNS}/{run.id}", ()
        if task["kind"] == "train" and commands.resume and (place / "manifest.json").is_file():
            words, needs = self._filled(commands.resume, run=own), (run.id,)
        else:
            shutil.rmtree(place, ignore_errors=True)
            if task["kind"] == "train":
                words = self._filled(
                    commands.train, root=RUNS, name=run.id, seed=task["seed"],
                    budget=task["budget"],
                )  # fmt: skip
                words += as_arguments(task["overrides"])
            else:
                trained, first, count = state.runs[task["of"]].id, task["first"], task["count"]
                needs = (trained,)
                judge = commands.judge + (commands.sealed if task["sealed"] else ())
                words = self._filled(
                    judge, run=f"{RUNS}/{trained}", root=RUNS, name=run.id, into=own,
                    first=first, count=count, units=f"{first}-{first + count - 1}",
                )  # fmt: skip
        timeout = self.config.budgets.timeout
        return Job(run.last.token, words, self.runs, needs, run.id, self.log(run), timeout)

    def collect(self, run: RunState) -> Artifact:
        """What a run that ended well found.

        Raises `Unusable` for missing or damaged files and for numbers that are not there.
        """
        try:
            if run.task["kind"] == "train":
                return self._trained(self.place(run))
            return self._judged(self.place(run), run.task)
        except DAMAGE as error:
            raise Unusable(str(error) or type(error).__name__) from None

    def ticks(self, run: RunState) -> int:
        """What a training run has spent of its budget so far; 0 where nothing tells."""
        if run.task["kind"] != "train":
            return 0
        name = self.config.commands.ticks
        try:
            rows = Run.open(self.place(run)).metrics()
            return max((int(row[name]) for row in rows if row.get(name) is not None), default=0)
        except DAMAGE:
            return 0

    def seconds(self, run: RunState) -> float:
        """How long the last attempt lived, where nobody was there to see it end: until it last
        wrote something; 0 where it never did."""
        began = run.last.began
        signs = [self.log(run), *self.place(run).glob("*.jsonl")]
        ended = max((path.stat().st_mtime for path in signs if path.is_file()), default=began)
        return min(max(ended - began, 0.0), self.config.budgets.timeout)

    def keep(self, artifact: Artifact) -> str:
        """Write an artifact under its hash; returns that."""
        content = json.dumps(to_plain(artifact), sort_keys=True, indent=1).encode()
        name = hashlib.sha256(content).hexdigest()
        atomic_write_bytes(self.artifacts / f"{name}.json", content)
        return name

    def load(self, name: str) -> Artifact:
        """The artifact with the hash `name`; `UserError` if it is missing or was changed."""
        path = self.artifacts / f"{name}.json"
        try:
            content = path.read_bytes()
        except OSError as error:
            told = error.strerror or error
            raise UserError(
                f"{path}: no such artifact, though the ledger names it ({told})"
            ) from None
        if hashlib.sha256(content).hexdigest() != name:
            raise UserError(f"{path} was changed: its content does not have the hash of its name")
        return json.loads(content)

    def complaint(self, run: RunState) -> str:
        """The last line that the processes of a run printed."""
        try:
            with open(self.log(run), "rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - TAIL, 0))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return "it printed nothing"
        lines = text.strip().splitlines()
        return lines[-1][:300] if lines else "it printed nothing"

    def _filled(self, words: Sequence[str], **values: Any) -> list[str]:
        return [FIELD.sub(lambda found: str(values[found[1]]), word) for word in words]

    def _trained(self, place: Path) -> Artifact:
        commands, run = self.config.commands, Run.open(place)
        result, rows = read_json(place / "result.json"), run.metrics()
        last = to_plain(rows[-1]) if rows else {}
        screens = {
            name.removeprefix(commands.screens): value
            for name, value in last.items()
            if name.startswith(commands.screens) and not name.endswith("_value")
        }
        numbers = (int, float)
        measures = {
            name: value
            for name, value in last.items()
            if name.startswith(commands.measures)
            and (value is None or (isinstance(value, numbers) and not isinstance(value, bool)))
        }
        return {
            "kind": "train",
            "config": {k: v for k, v in to_plain(flattened(run.config)).items() if k not in OWN},
            "code": run.manifest["code"]["sha256"],
            "ticks": int(result[commands.ticks]),
            "screens": screens,
            "measures": measures,
        }

    def _judged(self, place: Path, task: Mapping[str, Any]) -> Artifact:
        reading = self.config.commands.reading
        content = read_json(place / reading.file)
        first, count = task["first"], task["count"]
        if reading.rows:
            rows = {}
            for row in content[reading.rows]:
                unit = str(row[reading.unit])
                if unit in rows:
                    raise Unusable(f"{reading.file} has unit {unit} twice")
                rows[unit] = dict(row)
        else:
            columns = content[reading.columns]
            rows = {
                str(first + i): {name: values[i] for name, values in columns.items()}
                for i in range(count)
            }
        wanted = [str(unit) for unit in range(first, first + count)]
        absent = [unit for unit in wanted if unit not in rows]
        if absent:
            raise Unusable(f"{reading.file} has no unit {absent[0]}")
        primary = self.config.gates.primary.name
        guards = [guard.measure.name for guard in self.config.gates.guards]
        for unit in wanted:
            for name in (primary, *guards):
                value = rows[unit].get(name)
                if not _number(value):
                    raise Unusable(f"{name} of unit {unit} is {value!r:.40}, not a finite number")
        names = dict.fromkeys((primary, *guards, *self.config.metrics))
        for unit in wanted:
            for name in names:
                value = rows[unit].get(name)
                if not (value is None or _number(value) or _nan(value)):
                    raise Unusable(f"{name} of unit {unit} is {value!r:.40}, not a number")
        if not isinstance(content.get("evaluator"), str | None):
            raise Unusable(f"{reading.file}: evaluator is a hash, not {content['evaluator']!r:.40}")
        return {
            "kind": "judge",
            "evaluator": content.get("evaluator"),
            "rows": {unit: {name: rows[unit].get(name) for name in names} for unit in wanted},
        }


def _number(value: Any) -> bool:
    """A finite number that fits into a float; raises `OverflowError` for one that does not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _nan(value: Any) -> bool:
    """Not measured, as some write it."""
    return isinstance(value, float) and math.isnan(value)
