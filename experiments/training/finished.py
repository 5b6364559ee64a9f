"""Finished training runs, read back: what they measured, and whether they may be averaged."""

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
"""What is averaged over seeds, by the evaluator's names."""

CURVES = ("seconds", "episode/progress", "episode/off_track_rate", "validation/progress",
          "validation/native_return", "validation/off_track_rate")  # fmt: skip
"""What is kept of metrics.jsonl beside the ticks, for the rows in which validation happened."""

OWN = ("seed", "name", "run_root", "resume", "display", "video", "logger")
"""The seed, and settings that change nothing in what a run learns."""

Curve = dict[str, list[float | None]]
"""Columns of equal length, `ticks` among them."""


@dataclass(frozen=True)
class FinishedRun:
    """A run of train_ppo.py that ended with an evaluation.

    Attributes:
        path: its directory.
        config, manifest: as the run wrote them.
        judged: eval.json, the locked evaluator's summary and rows.
        result: result.json, with ticks, decisions and seconds.
        curve: of its validations.
    """

    path: Path
    config: dict[str, Any]
    manifest: dict[str, Any]
    judged: dict[str, Any]
    result: dict[str, Any]
    curve: Curve

    @classmethod
    def open(cls, path: Path) -> "FinishedRun":
        """The run at `path`; `UserError` if it is none, unfinished or damaged."""
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
                f"{run.path}: not finished: it has gone on to {trained:,} ticks since its result "
                f"after {result['ticks']:,}"
            )
        validated = [row for row in metrics if row.get("validation/progress") is not None]
        validated.sort(key=lambda row: row["ticks"])  # a verdict may come late
        curve = {name: [row.get(name) for row in validated] for name in ("ticks", *CURVES)}
        return cls(run.path, run.config, run.manifest, judged, result, curve)

    @property
    def seed(self) -> int:
        """The root of the run's randomness."""
        return self.config["seed"]

    @property
    def codes(self) -> list[str]:
        """Hashes of the code that the run was made by: one, or more if edited between resumes."""
        states = [self.manifest["code"], *(one["code"] for one in self._resumes)]
        return list(dict.fromkeys(state["sha256"] for state in states))

    @property
    def changed(self) -> dict[str, Any]:
        """Settings that bear on learning and were changed in a resume: no command repeats it."""
        return learning({k: v for one in self._resumes for k, v in one["changed"].items()})

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
        """The summary by which the judged policy was chosen; None if nothing was validated."""
        return self.judged.get("about", {}).get("validation")

    @property
    def validation_score(self) -> float | None:
        """The mean of `evaluation.metric` on the validation tracks; None without validation."""
        if self.validation is None:
            return None
        return self.validation[self.config["evaluation"]["metric"]]["mean"]


def find_runs(text: str) -> list[Path]:
    """Run directories from comma-separated run directories, directories of runs, and globs.

    Raises `UserError` for a part without a run in it and for a run named twice.
    """
    found: list[Path] = []
    for part in text.split(","):
        part = part.strip()
        paths = [Path(name) for name in sorted(glob.glob(part))] or [Path(part)]
        runs = [run for path in paths for run in _runs_at(path)]
        if not runs:
            raise UserError(f"runs={part}: no run directory there (one holds a manifest.json)")
        found += runs
    resolved = [path.resolve() for path in found]
    for path in resolved:
        if resolved.count(path) > 1:
            raise UserError(f"{path}: this run is named twice")
    return found


def check_comparable(runs: Sequence[FinishedRun], allow: Sequence[str] = ()) -> None:
    """Raise `UserError` unless `runs` differ in their seed only and were measured alike.

    `allow` names settings (dotted, or a group of them) that may differ, and `code` for its hash.
    What they were measured with may never differ.
    """
    check_measured_alike(runs)
    seeds = [run.seed for run in runs]
    for seed in seeds:
        if seeds.count(seed) > 1:
            names = ", ".join(str(run.path) for run in runs if run.seed == seed)
            raise UserError(f"seed {seed} was trained more than once: {names}")
    settings = [learning(run.config) | {"code": ", ".join(run.codes)} for run in runs]
    foreign = differences(settings)
    for run in runs:
        foreign |= {key: [f"changed in {run.path.name}"] * len(runs) for key in run.changed}
        if len(run.codes) > 1:
            foreign["code"] = [", ".join(one.codes) for one in runs]
    foreign = {
        key: seen
        for key, seen in foreign.items()
        if not any(key == name or key.startswith(f"{name}.") for name in allow)
    }
    if foreign:
        lines = "".join(f"\n  {key}: {_told(runs, seen)}" for key, seen in foreign.items())
        raise UserError(
            f"the runs differ in more than their seed:{lines}\n"
            f"average them all the same with allow={','.join(foreign)}"
        )


def check_measured_alike(runs: Sequence[FinishedRun]) -> None:
    """Raise `UserError` unless `runs` were judged by one evaluator, in one world, on one list of
    tracks."""
    for what, seen in differences([_measured_by(run) for run in runs]).items():
        raise UserError(f"the runs were not measured alike, {what}: {_told(runs, seen)}")


def learning(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that bear on what it learns, with dotted keys."""
    return {k: v for k, v in flattened(config).items() if k.partition(".")[0] not in OWN}


def differences(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Keys whose values are not the same in all of `settings`, each with its values in order."""
    keys = dict.fromkeys(key for one in settings for key in one)
    values = {key: [one.get(key) for one in settings] for key in keys}
    return {key: seen for key, seen in values.items() if any(v != seen[0] for v in seen)}


def _runs_at(path: Path) -> Iterator[Path]:
    if (path / "manifest.json").is_file():
        yield path
    else:
        yield from sorted(file.parent for file in path.glob("*/manifest.json"))


def _check_summary(file: Path, judged: Mapping[str, Any]) -> None:
    """Raise `UserError` unless the summary is what the rows give."""
    from envs.racing.evaluate import Evaluation  # late: numba is slow to start

    try:
        summary = Evaluation(judged["rows"], judged["settings"]).summary
        same = json.dumps(to_plain(summary), sort_keys=True) == json.dumps(
            judged["summary"], sort_keys=True
        )
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{file} is damaged: its rows cannot be summed up: {error!r}") from None
    if not same:
        raise UserError(f"{file} has been changed: its summary is not that of its rows")


def _require(file: Path, content: Any, keys: Sequence[str]) -> None:
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        raise UserError(f"{file} is damaged: no {', '.join(missing)}")


def _measured_by(run: FinishedRun) -> dict[str, Any]:
    judged = run.judged
    return {
        "evaluator": judged["evaluator"],
        "tracks": run.tracks,
        **flattened({k: v for k, v in judged["settings"].items() if k != "spec"}),
    }


def _told(runs: Sequence[FinishedRun], values: Sequence[Any]) -> str:
    short = [text if len(text) <= 24 else f"{text[:21]}..." for text in map(str, values)]
    pairs = zip(runs, short, strict=True)
    return ", ".join(f"{value} ({run.path.name})" for run, value in pairs)
