"""Reads finished training runs and checks whether they may be averaged."""

import glob
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import read_json, to_plain
from common.runs import Run, flattened

MEASURES = ("native_return", "progress", "finished", "lap_time", "off_track_rate", "left_track",
            "mean_speed")  # fmt: skip
"""The evaluator's measures that are averaged over seeds."""

CURVES = ("seconds", "episode/progress", "episode/off_track_rate", "validation/progress",
          "validation/native_return", "validation/off_track_rate")  # fmt: skip
"""The columns taken from metrics.jsonl beside the ticks, from the rows with a validation."""

NOT_LEARNING = ("seed", "name", "run_root", "resume", "display", "video", "logger")
"""The seed, and the settings that do not change what a run learns."""

Curve = dict[str, list[float | None]]
"""Columns of equal length; one of them is `ticks`."""


@dataclass(frozen=True)
class FinishedRun:
    """A run of train_ppo.py that ended with an evaluation.

    Attributes:
        path: its directory.
        config, manifest: contents of config.yaml and manifest.json.
        judged: contents of eval.json, with the locked evaluator's summary and rows.
        result: contents of result.json, with ticks, decisions and seconds.
        curve: the results of its validations during training.
    """

    path: Path
    config: dict[str, Any]
    manifest: dict[str, Any]
    judged: dict[str, Any]
    result: dict[str, Any]
    curve: Curve

    @classmethod
    def open(cls, path: Path) -> "FinishedRun":
        """Read the run at `path`; raises `UserError` if it is not a finished, undamaged run."""
        run = Run.open(path)
        files = {name: run.path / f"{name}.json" for name in ("result", "eval")}
        missing = [file.name for file in files.values() if not file.is_file()]
        if missing:
            raise UserError(f"{run.path}: not finished, no {' and no '.join(missing)} yet")
        result, judged = (read_json(file) for file in files.values())
        _require(files["result"], result, ("ticks", "decisions", "seconds"))
        required = ("evaluator", "settings", "summary", "rows", "checkpoint", "checkpoint_sha256")
        _require(files["eval"], judged, required)
        _check_summary(files["eval"], judged)
        _require(run.path / "manifest.json", run.manifest, ("overrides", "code", "machine"))
        _require(run.path / "config.yaml", run.config, ("seed", "evaluation"))
        metrics = run.metrics()
        trained = max((row["ticks"] for row in metrics if "ticks" in row), default=0)
        if trained > result["ticks"]:
            raise UserError(
                f"{run.path}: not finished: its result is from {result['ticks']:,} ticks, but it "
                f"was resumed and has trained to {trained:,}"
            )
        validated = [row for row in metrics if row.get("validation/progress") is not None]
        validated.sort(key=lambda row: row["ticks"])  # a validation can be written late
        curve = {name: [row.get(name) for row in validated] for name in ("ticks", *CURVES)}
        return cls(run.path, run.config, run.manifest, judged, result, curve)

    @property
    def seed(self) -> int:
        """The seed of all randomness in the run."""
        return self.config["seed"]

    @property
    def codes(self) -> list[str]:
        """Hashes of the code that trained the run; several if it was edited before a resume."""
        states = [self.manifest["code"], *(one["code"] for one in self._resumes)]
        return list(dict.fromkeys(state["sha256"] for state in states))

    @property
    def changed(self) -> dict[str, Any]:
        """Settings that affect learning and were changed in a resume.

        No single command can repeat a run with such changes.
        """
        changes = (resume["changed"].items() for resume in self._resumes)
        return learning_settings({key: value for items in changes for key, value in items})

    @property
    def _resumes(self) -> list[dict[str, Any]]:
        return self.manifest.get("resumes", [])

    @property
    def checkpoint(self) -> Path:
        """The file of the policy that was judged."""
        return self.path / self.judged["checkpoint"]

    @property
    def tracks(self) -> list[int]:
        """The track seeds of the final evaluation."""
        return [row["seed"] for row in self.judged["rows"]]

    @property
    def validation(self) -> dict[str, Any] | None:
        """The validation summary that selected the judged policy; None without validation."""
        return self.judged.get("about", {}).get("validation")

    @property
    def validation_score(self) -> float | None:
        """The mean of `evaluation.metric` on the validation tracks; None without validation."""
        if self.validation is None:
            return None
        return self.validation[self.config["evaluation"]["metric"]]["mean"]


def find_runs(text: str) -> list[Path]:
    """The run directories that `text` names.

    `text` is a comma-separated list of run directories, directories of runs, and glob patterns.
    Raises `UserError` for an item without a run and for a run that is named twice.
    """
    directories: list[Path] = []
    for part in text.split(","):
        part = part.strip()
        paths = [Path(name) for name in sorted(glob.glob(part))] or [Path(part)]
        runs = [run for path in paths for run in _runs_at(path)]
        if not runs:
            raise UserError(f"runs={part}: no run directory there (one holds a manifest.json)")
        directories += runs
    resolved = [path.resolve() for path in directories]
    for path in resolved:
        if resolved.count(path) > 1:
            raise UserError(f"{path}: this run is named twice")
    return directories


def check_comparable(runs: Sequence[FinishedRun], allow: Sequence[str] = ()) -> None:
    """Raise `UserError` unless `runs` differ only in their seed and were measured the same way.

    `allow` names settings that may differ: dotted keys, whole groups, or `code` for the hash of the
    code. The way they were measured may never differ.
    """
    check_measured_alike(runs)
    seeds = [run.seed for run in runs]
    for seed in seeds:
        if seeds.count(seed) > 1:
            names = ", ".join(str(run.path) for run in runs if run.seed == seed)
            raise UserError(f"seed {seed} was trained more than once: {names}")
    settings = [learning_settings(run.config) | {"code": ", ".join(run.codes)} for run in runs]
    foreign = differences(settings)
    for run in runs:
        foreign |= {key: [f"changed in {run.path.name}"] * len(runs) for key in run.changed}
        if len(run.codes) > 1:
            foreign["code"] = [", ".join(one.codes) for one in runs]
    foreign = {
        key: values
        for key, values in foreign.items()
        if not any(key == name or key.startswith(f"{name}.") for name in allow)
    }
    if foreign:
        lines = "".join(f"\n  {key}: {_listed(runs, values)}" for key, values in foreign.items())
        raise UserError(
            f"the runs differ in more than their seed:{lines}\n"
            f"to average them anyway, add allow={','.join(foreign)}"
        )


def check_measured_alike(runs: Sequence[FinishedRun]) -> None:
    """Raise `UserError` unless all `runs` were judged by the same evaluator, in the same world and
    on the same tracks."""
    for key, values in differences([_measured_by(run) for run in runs]).items():
        raise UserError(f"the runs were measured in different ways, {key}: {_listed(runs, values)}")


def learning_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that affect what it learns, with dotted keys."""
    items = flattened(config).items()
    return {key: value for key, value in items if key.partition(".")[0] not in NOT_LEARNING}


def differences(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Keys whose values are not the same in all `settings`, each with its values in order."""
    keys = dict.fromkeys(key for one in settings for key in one)
    values = {key: [one.get(key) for one in settings] for key in keys}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def _runs_at(path: Path) -> Iterator[Path]:
    if (path / "manifest.json").is_file():
        yield path
    else:
        yield from sorted(file.parent for file in path.glob("*/manifest.json"))


def _check_summary(file: Path, judged: Mapping[str, Any]) -> None:
    """Raise `UserError` unless the summary in eval.json agrees with its rows."""
    from envs.racing.evaluate import Evaluation  # late: numba is slow to start

    try:
        summary = Evaluation(judged["rows"], judged["settings"]).summary
        agrees = json.dumps(to_plain(summary), sort_keys=True) == json.dumps(
            judged["summary"], sort_keys=True
        )
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{file} is damaged: its rows cannot be summarised: {error!r}") from None
    if not agrees:
        raise UserError(f"{file} has been changed: its summary does not agree with its rows")


def _require(file: Path, content: Any, keys: Sequence[str]) -> None:
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        raise UserError(f"{file} is damaged: no {', '.join(missing)}")


def _measured_by(run: FinishedRun) -> dict[str, Any]:
    judged = run.judged
    return {
        "evaluator": judged["evaluator"],
        "tracks": run.tracks,
        **flattened({key: value for key, value in judged["settings"].items() if key != "spec"}),
    }


def _listed(runs: Sequence[FinishedRun], values: Sequence[Any]) -> str:
    """The values of `runs`, shortened, each with the name of its run."""
    short = [text if len(text) <= 24 else f"{text[:21]}..." for text in map(str, values)]
    pairs = zip(runs, short, strict=True)
    return ", ".join(f"{value} ({run.path.name})" for run, value in pairs)
