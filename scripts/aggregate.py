"""Average finished training runs over their seeds, and keep the result."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import cli
from common.errors import UserError
from common.files import atomic_write_text, replacing, sha256_file
from common.records import check_name, write_record
from common.runs import ROOT
from common.schema import config_class
from experiments.report.model_card import model_card, read_evaluations, training_command
from experiments.training.averages import averaged, best_run, common_curve, over_tracks, seed_means
from experiments.training.finished import (
    MEASURES,
    NOT_LEARNING,
    FinishedRun,
    check_comparable,
    find_runs,
)

DESCRIPTION = """Average runs of train_ppo.py that differ in their seed only, or keep a single one.

    python scripts/aggregate.py runs=runs/ppo/a,runs/ppo/b,runs/ppo/c
    python scripts/aggregate.py runs='runs/ppo/*_carracing_s?' name=carracing record=true
    python scripts/aggregate.py runs=runs/ppo/a name=drive record=true checkpoint=race

Intervals are over seeds (Student's t); of a single run, over tracks. record=true writes
experiments/records/<name>.json and <name>.png (the learning curve), checkpoint=... also
experiments/checkpoints/<checkpoint>.pt and .md, the best seed's policy with its model card. The
best seed is the best on the validation tracks; test tracks choose nothing."""

MAX_CHECKPOINT_BYTES = 5_000_000
TITLES = ("return", "progress", "finished", "lap time", "off-track", "left track", "speed")
TRACK_COLUMNS = ("native_return", "progress", "off_track_rate", "lap_time")


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        runs: run directories, directories of runs, or globs, comma-separated.
        name: name of the record.
        record: write the record and its figure.
        checkpoint: also keep the best seed's policy, so named.
        allow: settings (or code) that may differ, comma-separated.
        evaluations: runs of scripts/evaluate.py on these policies, kept beside the results.
        into: gets records/ and checkpoints/; empty: experiments/.
    """

    runs: str
    name: str = ""
    record: bool = False
    checkpoint: str = ""
    allow: str = ""
    evaluations: str = ""
    into: str = ""

    def __post_init__(self) -> None:
        if self.name or self.record:
            check_name(self.name, "name")
        if self.checkpoint:
            check_name(self.checkpoint, "checkpoint")
            if not self.record:
                raise ValueError("checkpoint is kept beside a record: add record=true name=...")


def show(runs: Sequence[FinishedRun]) -> None:
    """Print a row per seed, and what they amount to."""
    effort = ("ticks", "decisions", "seconds")

    def row(title: str, values: Mapping[str, Any]) -> list[Any]:
        return [title, *("" if values.get(n) is None else values[n] for n in (*MEASURES, *effort))]

    rows = []
    for run in runs:
        means = {n: e["mean"] for n, e in run.judged["summary"].items() if n in MEASURES}
        rows.append(row(f"seed {run.seed}", means | {n: run.result[n] for n in effort}))
    metrics, units = averaged(runs), "seeds" if len(runs) > 1 else "tracks"
    estimates = {name: metrics[name] for name in MEASURES if name in metrics}
    means = {name: estimate["mean"] for name, estimate in estimates.items()}
    rows.append(row(f"mean over {units}", means | {name: metrics[name] for name in effort}))
    for end in ("low", "high"):
        ends = {name: estimate[end] for name, estimate in estimates.items()}
        rows.append(row(f"95% {end}, over {units}", ends))
    if len(runs) > 1:
        for title, pick in (("lowest seed", min), ("highest seed", max)):
            picked = {name: pick(seed_means(runs, name)) for name in estimates}
            rows.append(row(title, picked))
        for end in ("low", "high"):
            ends = {name: estimate[end] for name, estimate in over_tracks(runs).items()}
            rows.append(row(f"95% {end}, over tracks (seeds averaged)", ends))
    settings = runs[0].judged["settings"]
    title = f"runs: {len(runs)}, judged in {settings['env']} on {len(runs[0].tracks)} tracks"
    cli.table(["", *TITLES, *effort], rows, title)


def seed_row(run: FinishedRun) -> dict[str, Any]:
    """What a record keeps of one run: its own intervals are over tracks."""
    summary = run.judged["summary"]
    return {
        "seed": run.seed,
        **{name: run.result[name] for name in ("ticks", "decisions", "seconds")},
        "validation_score": run.validation_score,
        "metrics": {name: summary[name] for name in MEASURES if name in summary},
        "tracks": {name: [row[name] for row in run.judged["rows"]] for name in TRACK_COLUMNS},
        "curve": run.curve,
        **({"changed": run.changed} if run.changed else {}),
        "code": ", ".join(run.codes),
        "checkpoint_sha256": run.judged["checkpoint_sha256"],
    }


def details(runs: Sequence[FinishedRun], evaluations: Sequence[Mapping[str, Any]]) -> dict:
    """Everything longer that the record holds."""
    found: dict[str, Any] = {
        "config": {
            name: value for name, value in runs[0].config.items() if name not in NOT_LEARNING
        },
        "evaluator": runs[0].judged["evaluator"],
        "seeds": [seed_row(run) for run in runs],
        "over_tracks": over_tracks(runs),
        "curve": common_curve([run.curve for run in runs]),
    }
    if evaluations:
        found["evaluations"] = [
            {name: one[name] for name in ("seed", "settings", "summary")}
            | {"tracks": [row["seed"] for row in one["rows"]]}
            | {name: [row[name] for row in one["rows"]] for name in TRACK_COLUMNS}
            for one in evaluations
        ]
    return found


def keep_checkpoint(run: FinishedRun, target: Path) -> None:
    """Copy the judged policy of `run` to `target`; refuse a large or a changed file."""
    source = run.checkpoint
    if not source.is_file():
        raise UserError(f"{source}: no such file")
    if source.stat().st_size > MAX_CHECKPOINT_BYTES:
        raise UserError(f"{source} is larger than {MAX_CHECKPOINT_BYTES:,} bytes")
    if sha256_file(source) != run.judged["checkpoint_sha256"]:
        raise UserError(f"{source} is not the file that eval.json judged: it has changed since")
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)


def keep(
    settings: Settings, runs: Sequence[FinishedRun], evaluations: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Write the record, its figure and the checkpoint; returns where."""
    from experiments.report.figures import draw_record_curve  # late: matplotlib is slow to start

    into = Path(settings.into) if settings.into else ROOT / "experiments"
    kept: dict[str, Any] = {}
    known = len(runs) == 1 or all(run.validation_score is not None for run in runs)
    best = best_run(runs) if known or settings.checkpoint else None
    more = details(runs, evaluations)
    if best is not None:
        more["best_seed"] = {
            "seed": best.seed,
            "by": f"validation {best.config['evaluation']['metric']}, not by any test track",
        }
    if settings.checkpoint:
        target = into / "checkpoints" / f"{settings.checkpoint}.pt"
        keep_checkpoint(best, target)
        own = [one for one in evaluations if one["seed"] == best.seed]
        card = model_card(settings.checkpoint, best, len(runs), own)
        atomic_write_text(target.with_suffix(".md"), card)
        more["checkpoint"] = f"experiments/checkpoints/{settings.checkpoint}.pt"
        more["sha256"] = best.judged["checkpoint_sha256"]
        kept["checkpoint"] = str(target)
    path = write_record(
        settings.name,
        command=training_command(runs),
        settings=runs[0].judged["settings"] | {"seeds": runs[0].tracks},
        metrics=averaged(runs),
        artifacts=[f"{settings.name}.png"],
        details=more,
        provenance=(best or runs[0]).manifest,
        directory=into / "records",
    )
    draw_record_curve(settings.name, more["curve"], path.with_suffix(".png"))
    return kept | {"record": str(path)}


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    runs = [FinishedRun.open(path) for path in find_runs(settings.runs)]
    check_comparable(runs, [name.strip() for name in settings.allow.split(",") if name.strip()])
    runs.sort(key=lambda run: run.seed)
    evaluations = read_evaluations(settings.evaluations, runs)
    show(runs)
    metrics = averaged(runs)
    numbers = {name: metrics[name]["mean"] for name in MEASURES if name in metrics}
    kept = keep(settings, runs, evaluations) if settings.record else {}
    cli.finish({"seeds": len(runs), **numbers, **kept})


if __name__ == "__main__":
    cli.run_main(main)
