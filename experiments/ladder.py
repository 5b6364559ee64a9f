"""The ladder of experiments: `python -m experiments.ladder run=E1-P5`; see `--help`.

A rung is a configuration (conf/experiment/<rung>.yaml) that names its parent, its one change, what
that should do, and the measure that tells. This runs what is missing, judges every rung by the same
probes, and keeps a record of each with its verdict.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from hydra import compose, initialize_config_dir

from common import cli
from common.config import CONF_DIR, validate
from common.errors import UserError
from common.files import read_json, sha256_file, to_plain
from common.records import write_record
from common.runs import ROOT, Run, flattened
from common.seeding import parse_seeds
from common.statistics import mean_interval, paired_difference
from experiments.report.kept import RUNGS
from probes.bundle import Memory
from probes.clips import RULES
from rssm.checkpoint import export
from rssm.config import Observable, RungConfig
from rssm.training_run import TrainConfig

DESCRIPTION = f"""
Run rungs of the ladder and judge them: {", ".join(RUNGS)}.

    python -m experiments.ladder run=E1-P5
    python -m experiments.ladder run=E1-P5,2B seeds=1-2 record=true
    python -m experiments.ladder run=P5 scale=record

A rung starts from others' weights where its configuration says so: those have to be there, or in
the same call. Data sets are collected by scripts/collect_replay.py first. Started again after an
interruption, finished rungs are skipped and an unfinished one is resumed. record=true writes
experiments/records/ladder_<rung>.json, and P5's weights as experiments/checkpoints/P5.pt.
"""

COMMITTED = "P5"
"""The rung whose first seed's weights are kept with its record."""

CLAIMS = {"E3": "E1", "P5": "E3"}
"""Rungs that are also compared with one further back, by the SSIM of sharp_turn."""

CLIPS = 64
JUDGED = ("sharp_turn", "gentle_turn", "recovery", "faithfulness")


@dataclass(frozen=True)
class Settings:
    run: str = field(default="E1-P5", metadata={"help": "rungs: names and ranges, with commas"})
    seeds: str = field(default="1", metadata={"help": "training seeds, such as 1-2"})
    scale: Literal["laptop", "record"] = field(default="laptop", metadata={"help": "of budgets"})
    data_root: str = field(default="data", metadata={"help": "of the data sets"})
    run_root: str = field(default="runs", metadata={"help": "of the runs"})
    overrides: list[str] = field(
        default_factory=list, metadata={"help": "more overrides of train_world_model.py"}
    )
    probes: list[str] = field(
        default_factory=lambda: list(JUDGED), metadata={"help": "of every rung"}
    )
    clips: int | None = field(default=CLIPS, metadata={"help": "per probe; null: the rule's own"})
    film: bool = field(default=False, metadata={"help": "write the probes' videos"})
    threads: int = field(default=0, metadata={"help": "of torch; 0 takes what there are"})
    record: bool = field(default=False, metadata={"help": "write records"})

    def __post_init__(self) -> None:
        rungs(self.run)
        parse_seeds(self.seeds)
        if self.clips is not None and self.clips < 2:
            raise ValueError(f"clips is at least 2, not {self.clips}")
        if self.threads < 0:
            raise ValueError(f"threads is at least 0, not {self.threads}")
        if not self.probes:
            raise ValueError("probes is empty: name at least one")
        shipped = (self.clips, self.probes) == (CLIPS, list(JUDGED)) and not self.overrides
        if self.record and not shipped:
            raise ValueError(
                "record=true keeps rungs as they are shipped: leave out overrides, probes and clips"
            )
        for probe in self.probes:
            if probe not in RULES:
                raise ValueError(f"probes are among {', '.join(RULES)}, not {probe!r}")


def rungs(text: str) -> list[str]:
    """Names from "E1-P5,2B", in the ladder's order; `UserError` for unknown ones."""
    chosen: set[str] = set()
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        last = last if dash else first
        for name in (first, last):
            if name not in RUNGS:
                raise UserError(f"run={text}: {name!r} is no rung; there are {', '.join(RUNGS)}")
        begin, end = RUNGS.index(first), RUNGS.index(last)
        if begin > end:
            raise UserError(f"run={text}: {item.strip()} runs backwards")
        chosen.update(RUNGS[begin : end + 1])
    return [name for name in RUNGS if name in chosen]


def configuration(name: str, scale: str, overrides: Sequence[str] = ()) -> TrainConfig:
    """What train_world_model.py makes of a rung."""
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF_DIR)):
        composed = compose("train_world_model", overrides=[*arguments(name, scale), *overrides])
    return validate(composed, TrainConfig)


def arguments(name: str, scale: str) -> list[str]:
    """Overrides of train_world_model.py that make it a rung at a scale."""
    return [f"experiment={name}", f"scale={scale}", *(["rssm=record"] if scale == "record" else [])]


def train(name: str, seed: int, settings: Settings) -> Path:
    """Train a rung, or go on with it; returns its run directory."""
    path = Path(settings.run_root) / "ladder" / settings.scale / f"{name}-s{seed}"
    if (path / "manifest.json").is_file():
        _check_same(path, name, settings)
        if (path / "result.json").is_file():
            print(f"{path}: already trained")
            return path
        command = [f"resume={path}"]
    else:
        if path.exists():
            _remove_stillborn(path)
        command = [*arguments(name, settings.scale), f"seed={seed}", *settings.overrides]
        command += [f"run_root={settings.run_root}", f"data.root={settings.data_root}"]
    command = [str(ROOT / "train_world_model.py"), *command, f"threads={settings.threads}"]
    done = subprocess.run([sys.executable, *command])
    if done.returncode:
        told = " ".join(command)
        raise UserError(f"{told} ended with {done.returncode}; what it printed says why")
    if not (path / "result.json").is_file():
        raise UserError(f"{path}: another ladder trains this rung; start again when it has ended")
    return path


def _check_same(path: Path, name: str, settings: Settings) -> None:
    """Refuse a run of other settings than are asked for now: its numbers would pass for theirs."""
    run = Run.open(path)
    wanted = flattened(to_plain(configuration(name, settings.scale, settings.overrides)))
    free = ("seed", "threads", "processes", "device", "run_root", "name", "resume", "display",
            "data.root", "warm_start", "logger", "rung")  # fmt: skip
    had = flattened(run.config)
    differ = [
        f"{key} {had.get(key)} instead of {value}"
        for key, value in wanted.items()
        if had.get(key) != value and not any(f"{key}.".startswith(f"{one}.") for one in free)
    ]
    if differ:
        raise UserError(
            f"{path} was trained with other settings ({', '.join(differ[:5])}): move it away, or "
            "give the same overrides"
        )


def _remove_stillborn(path: Path) -> None:
    """Remove what is left of a run that was killed before it began."""
    if any(path.glob("checkpoints/*")):
        raise UserError(f"{path} is no run, for it has no manifest.json, yet checkpoints: move it")
    shutil.rmtree(path)


def judge(path: Path, settings: Settings, memory: Memory) -> dict[str, dict[str, Any]]:
    """Run the probes that a rung has not been judged by yet; returns their results by name."""
    from probes import __main__ as probes  # late: torch takes seconds to start

    checkpoint, directory = path / "checkpoints" / "final.pt", path / "probes"
    kept = {probe: directory / f"{probe}.json" for probe in settings.probes}
    asked = probes.Settings(
        checkpoint=str(checkpoint), into=str(directory), data_root=settings.data_root,
        clips=settings.clips, film=settings.film, threads=settings.threads,
    )  # fmt: skip
    expected = {"checkpoint_sha256": sha256_file(checkpoint), "asked": probes.asked(asked)}

    def judged(file: Path) -> bool:
        found = read_json(file) if file.is_file() else {}
        return all(found.get(key) == value for key, value in expected.items())

    missing = [probe for probe, file in kept.items() if not judged(file)]
    if missing:
        probes.judge(missing, asked, memory)
    return {probe: read_json(file) for probe, file in kept.items()}


def verdict(
    rung: RungConfig,
    own: Mapping[int, Mapping[str, Any]],
    parents: Mapping[int, Mapping[str, Any]],
) -> dict[str, Any]:
    """Whether the predicted observable came: confirmed, refuted or inconclusive.

    The change of the measure is paired by clip, averaged over the seeds that both have, with a 95%
    interval over clips. It is confirmed if the interval lies on the predicted side of zero, refuted
    if on the other, and inconclusive if it includes zero.

    own, parents: results of the observable's probe by seed.
    """
    if rung.observable is None or rung.parent is None:
        return {"verdict": None}
    measure, changes = rung.observable.measure, []
    for seed in sorted(own.keys() & parents.keys()):
        if own[seed]["clips"]["hash"] != parents[seed]["clips"]["hash"]:
            raise UserError(
                f"{rung.name} and {rung.parent} were judged on different clips, since the data or "
                "the rules changed: remove the directories `probes` of both runs and start again"
            )
        pair = [one[seed]["per_clip"].get(measure) for one in (own, parents)]
        if None in pair:
            return {"verdict": "inconclusive", "reason": f"one of them has no {measure}"}
        changes.append(np.array(pair, np.float64))
    if not changes:
        return {"verdict": "inconclusive", "reason": f"{rung.parent} has not been run"}
    mine, other = np.nanmean(np.stack(changes), axis=0)
    finite = np.isfinite(mine) & np.isfinite(other)
    change = paired_difference(mine[finite], other[finite])
    sign = rung.observable.sign
    if change.low is not None and sign * change.low > 0 and sign * change.high > 0:
        word = "confirmed"
    elif change.low is not None and sign * change.low < 0 and sign * change.high < 0:
        word = "refuted"
    else:
        word = "inconclusive"
    return {"verdict": word, "change": change.to_dict(), "seeds": len(changes)}


def summary(results: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """A rung's headline numbers of one seed, by "<probe>_<measure>"."""
    numbers: dict[str, float] = {}
    for probe, result in results.items():
        found = result["numbers"]
        for measure in ("ssim", "psnr", "mse"):
            numbers[f"{probe}_{measure}"] = found["pictures"][measure]["model"]["mean"]
        if "camera" in found:
            for measure in ("yaw_slope", "forward_slope", "yaw_final_share"):
                estimate = found["camera"]["imagined"].get(measure)
                if estimate:
                    numbers[f"{probe}_{measure}"] = estimate["mean"]
        numbers[f"{probe}_action_sensitivity"] = found["action_sensitivity"]["mean"]
    for key, row in results.get("faithfulness", {"numbers": {"telemetry": {}}})["numbers"][
        "telemetry"
    ].items():
        if "model" in row:
            numbers[f"corr_{key}"] = row["model"]["corr"]["mean"]
        elif "auc" in row:
            numbers[f"auc_{key}"] = row["auc"]
    return numbers


def keep(
    name: str,
    settings: Settings,
    rung: RungConfig,
    runs: Mapping[int, Path],
    results: Mapping[int, Mapping[str, Any]],
    told: Mapping[str, Any],
    claim: Mapping[str, Any] | None,
) -> None:
    """Write a rung's record: `told` is its verdict, `claim` that against a rung of CLAIMS."""
    scale = "" if settings.scale == "laptop" else f"scale={settings.scale} "
    seeds = {seed: summary(found) for seed, found in results.items()}
    shared = set.intersection(*(set(numbers) for numbers in seeds.values()))
    metrics: dict[str, Any] = {}
    for measure in sorted(shared):
        values = [numbers[measure] for numbers in seeds.values()]
        finite = [value for value in values if value is not None and np.isfinite(value)]
        if finite:
            metrics[measure] = mean_interval(finite).to_dict()
    trained = {seed: read_json(path / "result.json") for seed, path in runs.items()}
    probe = rung.observable.probe if rung.observable else "sharp_turn"
    first = results[min(results)].get(probe)
    manifest = Run.open(runs[min(runs)]).manifest
    write_record(
        f"ladder_{name.lower()}",
        command=f"python -m experiments.ladder run={name} seeds={settings.seeds} {scale}"
        "record=true",
        settings={"scale": settings.scale, "seeds": sorted(runs), "updates": rung.updates},
        metrics=metrics,
        provenance={"code": manifest["code"], "machine": manifest["machine"]},
        details={
            "rung": {
                "name": name,
                "parent": rung.parent,
                "change": rung.change,
                "hypothesis": rung.hypothesis,
                "observable": vars(rung.observable) if rung.observable else None,
            },
            "verdict": dict(told),
            "claim": claim,
            "seeds": [{"seed": seed, **numbers} for seed, numbers in seeds.items()],
            "trained": [
                {"seed": seed, **{k: v for k, v in one.items() if isinstance(v, int | float)}}
                for seed, one in trained.items()
            ],
            "seconds": spent(runs, results),
            "clips": {p: r["clips"]["hash"] for p, r in results[min(results)].items()},
            "curves": first["curves"] if first else {},
            "passed": {p: r["passed"] for p, r in results[min(results)].items()},
        },
    )


def spent(
    runs: Mapping[int, Path], results: Mapping[int, Mapping[str, Mapping[str, Any]]]
) -> dict[str, float] | None:
    """Wall-clock seconds of a rung, over its seeds; None if one is older than the clock."""
    trained = [read_json(path / "result.json").get("seconds") for path in runs.values()]
    judged = [result.get("seconds") for found in results.values() for result in found.values()]
    if None in (*trained, *judged):
        return None
    return {"training": sum(trained), "probes": sum(judged)}


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    rows, line, memory = [], {}, {}
    for name in rungs(settings.run):
        config = configuration(name, settings.scale)
        runs = {s: train(name, s, settings) for s in parse_seeds(settings.seeds)}
        results = {seed: judge(path, settings, memory) for seed, path in runs.items()}
        told = verdict(config.rung, *_observed(config.rung, results, settings))
        if settings.record:
            claim = None
            if name in CLAIMS:
                observable = Observable("sharp_turn", "ssim")
                far = replace(config.rung, parent=CLAIMS[name], observable=observable)
                claim = {"against": far.parent, **verdict(far, *_observed(far, results, settings))}
            keep(name, settings, config.rung, runs, results, told, claim)
        if settings.record and name == COMMITTED:
            first = runs[min(runs)] / "checkpoints" / "final.pt"
            export(ROOT / "experiments" / "checkpoints" / f"{name}.pt", first)
        numbers = summary(results[min(results)])
        rows.append([name, told["verdict"] or "", *(numbers.get(k, "") for k in COLUMNS)])
        line[f"{name}_verdict"] = told["verdict"]
        line[f"{name}_sharp_turn_ssim"] = numbers.get("sharp_turn_ssim")
        line[f"{name}_seconds"] = sum((spent(runs, results) or {}).values()) or None
    cli.table(["rung", "verdict", *COLUMNS], rows)
    cli.finish(line)


COLUMNS = (
    "sharp_turn_ssim",
    "sharp_turn_yaw_slope",
    "sharp_turn_forward_slope",
    "gentle_turn_ssim",
    "recovery_ssim",
    "corr_speed@15",
    "corr_progress_delta@15",
)


def _observed(
    rung: RungConfig, results: Mapping[int, Mapping[str, Any]], settings: Settings
) -> tuple[dict[int, Any], dict[int, Any]]:
    """Results of the observable's probe by seed: the rung's, and its parent's if there are any."""
    if rung.observable is None:
        return {}, {}
    probe = rung.observable.probe
    own = {seed: found[probe] for seed, found in results.items() if probe in found}
    root = Path(settings.run_root) / "ladder" / settings.scale
    parents = {}
    for seed in own:
        path = root / f"{rung.parent}-s{seed}" / "probes" / f"{probe}.json"
        if path.is_file():
            parents[seed] = read_json(path)
    return own, parents


if __name__ == "__main__":
    cli.run_main(main)
