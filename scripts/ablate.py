"""What each choice of the driver is worth: train with one thing changed, several seeds each."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from common import cli
from common.errors import UserError
from common.records import RECORDS, write_record
from common.schema import config_class
from common.seeding import parse_seeds
from common.statistics import Estimate, bounded_interval
from envs.racing.evaluate import RANGES
from experiments.training.ablations import BASE, VARIANTS
from experiments.training.averages import difference_range
from experiments.training.finished import FinishedRun, check_measured_alike

DESCRIPTION = """Run the ablation study (experiments/training/ablations.py), compare with its base.

    python scripts/ablate.py                                       all variants, seeds 1-3
    python scripts/ablate.py variants=repeat_1,colour seeds=1-5
    python scripts/ablate.py record=true

Every run is a process of train_ppo.py in <run_root>/<variant>-s<seed>. Started again, the command
skips finished runs and resumes unfinished ones. The locked evaluator judges the last policy of each
run on public test tracks; intervals are over seeds, differences to the base paired by seed."""

MEASURES = ("progress", "native_return", "off_track_rate")
EFFORT = ("ticks", "decisions", "seconds")


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        variants: names, comma-separated; empty for all; base always runs.
        seeds: training seeds, such as 1-3 or 1,2,5.
        total_timesteps: engine ticks of each run.
        overrides: more overrides of train_ppo.py, for every run.
        jobs: runs at a time; 0: one per core.
        run_root: directory of the runs.
        allow: code, if runs by different code may be compared.
        record: keep as experiments/records/ablations.json and .png.
        records: empty: experiments/records.
    """

    variants: str = ""
    seeds: str = "1-3"
    total_timesteps: int = 194_000
    overrides: list[str] = field(default_factory=list)
    jobs: int = 0
    run_root: str = "runs/ablations"
    allow: str = ""
    record: bool = False
    records: str = ""

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in VARIANTS:
                raise ValueError(f"variants are {', '.join(VARIANTS)}, not {name!r}")
        if len(set(self.names)) < len(self.names):
            raise ValueError("variants names one twice")
        cli.check_ranges(self, jobs=(0, 256))
        if self.allow not in ("", "code"):
            raise ValueError(f"allow is code or empty, not {self.allow!r}")
        if not self.run_root.strip():
            raise ValueError("run_root is empty")
        own = ("total_timesteps", "seed", "name", "run_root", "resume", "experiment")
        for text in self.overrides:
            if (key := text.lstrip("+").partition("=")[0]) in own:
                raise ValueError(f"overrides has {key}, which the study sets itself")
        parse_seeds(self.seeds)

    @property
    def names(self) -> list[str]:
        """The variants, `base` first."""
        given = [n.strip() for n in self.variants.split(",")] if self.variants else list(VARIANTS)
        return ["base", *(name for name in given if name != "base")]


def compare(runs: Mapping[str, Sequence[FinishedRun]]) -> dict[str, dict[str, Estimate]]:
    """Per variant each measure's mean over seeds, and `<measure>_difference` to the base.

    A difference pairs runs of the same seed; variants whose seeds differ from the base's are
    compared on those that both have.
    """
    base = {run.seed: run for run in runs["base"]}
    found: dict[str, dict[str, Estimate]] = {}
    for name, own in runs.items():
        found[name] = {}
        for measure in MEASURES:
            found[name][measure] = bounded_interval(
                [_mean(run, measure) for run in own], *RANGES[measure]
            )
            pairs = [(run, base[run.seed]) for run in own if run.seed in base]
            if name != "base" and pairs:
                found[name][f"{measure}_difference"] = bounded_interval(
                    [_mean(run, measure) - _mean(other, measure) for run, other in pairs],
                    *difference_range(measure),
                )
    return found


def show(
    runs: Mapping[str, Sequence[FinishedRun]], estimates: Mapping[str, Mapping[str, Estimate]]
) -> None:
    """Print a row per variant."""
    rows = []
    for name, own in runs.items():
        cells = [
            _told(estimates[name].get(key))
            for measure in MEASURES
            for key in (measure, f"{measure}_difference")
        ]
        rows.append([VARIANTS[name].title, *cells, *(_effort(own, e) for e in EFFORT[1:])])
    header = [part for measure in MEASURES for part in (measure.replace("_", " "), "less base's")]
    cli.table(["variant", *header, *EFFORT[1:]], rows, "mean over seeds [95% interval]")


def keep(
    settings: Settings,
    runs: Mapping[str, Sequence[FinishedRun]],
    estimates: Mapping[str, Mapping[str, Estimate]],
) -> Path:
    """Write the record and its figure; returns the record's path."""
    from experiments.report.figures import draw_ablations  # late: matplotlib is slow to start

    first = runs["base"][0]
    variants = {
        name: {
            "title": VARIANTS[name].title,
            "overrides": list(VARIANTS[name].overrides),
            "estimates": {key: value.to_dict() for key, value in estimates[name].items()},
            "seeds": [
                {"seed": run.seed, "code": ", ".join(run.codes)}
                | {effort: run.result[effort] for effort in EFFORT}
                | {measure: _mean(run, measure) for measure in MEASURES}
                for run in own
            ],
        }
        for name, own in runs.items()
    }
    given = {n: getattr(settings, n) for n in ("variants", "seeds", "total_timesteps", "overrides")}
    path = write_record(
        "ablations",
        command=cli.command("scripts/ablate.py"),
        settings=given | {"base": list(BASE), "tracks": first.tracks},
        metrics={
            f"{name}/{key}": value.to_dict()
            for name, found in estimates.items()
            for key, value in found.items()
        },
        artifacts=["ablations.png"],
        details={"evaluator": first.judged["evaluator"], "variants": variants},
        provenance=first.manifest,
        directory=Path(settings.records) if settings.records else RECORDS,
    )
    draw_ablations({"settings": given, "details": {"variants": variants}}, path.with_suffix(".png"))
    return path


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    from experiments.training.study import (  # late: --help need not wait for numba
        Task,
        only_one,
        run_all,
    )

    root, common = Path(settings.run_root), (f"total_timesteps={settings.total_timesteps}",)
    common = (*BASE, *common, *settings.overrides)
    tasks = [
        Task.of(root, name, seed, (*common, *VARIANTS[name].overrides))
        for seed in parse_seeds(settings.seeds)  # whole comparisons first, then more certainty
        for name in settings.names
    ]
    with only_one(root):
        failed = run_all(tasks, settings.jobs or _cores(), lambda text: print(text, flush=True))
    runs = {
        name: [
            FinishedRun.open(task.path)
            for task in tasks
            if task.variant == name and task.path.name not in failed
        ]
        for name in settings.names
    }
    runs = {name: own for name, own in runs.items() if own}
    if "base" not in runs:
        raise UserError(f"no run of the base came to its end: {'; '.join(failed.values())}")
    everything = [run for own in runs.values() for run in own]
    check_measured_alike(everything)
    estimates = compare(runs)
    show(runs, estimates)
    if failed:
        reasons = "".join(f"\n  {name}: {words}" for name, words in failed.items())
        raise UserError(f"{len(failed)} of {len(tasks)} runs failed; nothing is recorded:{reasons}")
    results: dict[str, Any] = {"variants": len(runs), "runs": len(everything)}
    results["base_progress"] = estimates["base"]["progress"]
    if settings.record:
        _check_code(everything, settings.allow)
        results["record"] = str(keep(settings, runs, estimates))
    cli.finish(results)


def _mean(run: FinishedRun, measure: str) -> float:
    return run.judged["summary"][measure]["mean"]


def _told(value: Estimate | None) -> str:
    return "" if value is None else str(value).partition(" (n=")[0]  # seeds are the same everywhere


def _effort(runs: Sequence[FinishedRun], name: str) -> int:
    return round(sum(run.result[name] for run in runs) / len(runs))


def _cores() -> int:
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available else os.cpu_count() or 1


def _check_code(runs: Sequence[FinishedRun], allow: str) -> None:
    if len({code for run in runs for code in run.codes}) > 1 and allow != "code":
        raise UserError(
            "the runs were made by different versions of the code; run them anew in another "
            "run_root, or record them all the same with allow=code"
        )


if __name__ == "__main__":
    cli.run_main(main)
