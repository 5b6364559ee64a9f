"""Keep a finished training run: its record, learning curve, and checkpoint if wanted."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import cli
from common.errors import UserError
from common.files import read_json, replacing
from common.records import RECORDS, check_name, write_record
from common.runs import ROOT, Run

DESCRIPTION = """Copy what matters of a run of train_ppo.py into the repository.

    python scripts/keep.py run=runs/ppo/<run> name=drive
    python scripts/keep.py run=runs/ppo/<run> name=drive checkpoint=race

Writes experiments/records/<name>.json and <name>.png (the learning curve), and with checkpoint=...
experiments/checkpoints/<checkpoint>.pt with the best policy's weights."""

MAX_CHECKPOINT_BYTES = 5_000_000
SUMMARY = ("progress", "native_return", "finished", "lap_time", "off_track_rate", "left_track")
SUMMARY += ("mean_speed", "native_return_min", "native_return_p10")
CURVE = ("ticks", "seconds", "episode/progress", "episode/off_track_rate")
CURVE += ("validation/progress", "validation/native_return", "validation/off_track_rate")


@dataclass
class Settings:
    run: str = field(metadata={"help": "run directory of train_ppo.py, finished"})
    name: str = field(metadata={"help": "name of the record"})
    checkpoint: str = field(default="", metadata={"help": "also keep the best policy, so named"})

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        if self.checkpoint:
            check_name(self.checkpoint, "checkpoint")


def curve(run: Run) -> dict[str, list[Any]]:
    """Columns of the rows in which validation happened."""
    rows = [row for row in run.metrics() if row.get("validation/progress") is not None]
    return {name: [row.get(name) for row in rows] for name in CURVE}


def draw(columns: dict[str, list[Any]], title: str, path: Path) -> None:
    """Progress and off-track rate over ticks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    millions = [ticks / 1e6 for ticks in columns["ticks"]]
    for name, label, style in (
        ("validation/progress", "progress, validation (deterministic)", "C0-o"),
        ("episode/progress", "progress, training (with noise)", "C0--"),
        ("validation/off_track_rate", "off-track rate, validation", "C3-o"),
    ):
        axes.plot(millions, columns[name], style, markersize=3, label=label)
    axes.set(xlabel="engine ticks (millions)", ylim=(-0.1, 1.3), title=title)
    axes.grid(alpha=0.3)
    axes.legend(loc="center right")
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)
    pyplot.close(figure)


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    run = Run.open(settings.run)
    evaluation, result = run.path / "eval.json", run.path / "result.json"
    if not (evaluation.is_file() and result.is_file()):
        raise UserError(f"{run.path}: not finished, no {evaluation.name} or {result.name} yet")
    judged, result = read_json(evaluation), read_json(result)
    metrics = {k: judged["summary"][k] for k in SUMMARY if k in judged["summary"]}
    metrics |= {k: result[k] for k in ("ticks", "decisions", "seconds")}
    columns = curve(run)
    kept: dict[str, Any] = {}
    if settings.checkpoint:
        source = run.path / judged["checkpoint"]
        if not source.is_file():
            raise UserError(f"{source}: no such file")
        if source.stat().st_size > MAX_CHECKPOINT_BYTES:
            raise UserError(f"{source} is larger than {MAX_CHECKPOINT_BYTES:,} bytes")
        target = ROOT / "experiments" / "checkpoints" / f"{settings.checkpoint}.pt"
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temporary:
            shutil.copyfile(source, temporary)
        kept["checkpoint"] = str(target.relative_to(ROOT))
        kept["sha256"] = judged["checkpoint_sha256"]
    manifest = run.manifest
    path = write_record(
        settings.name,
        command=" ".join(["python", *manifest["command"]]),
        settings=judged["settings"] | {"seeds": [row["seed"] for row in judged["rows"]]},
        metrics=metrics,
        artifacts=[f"{settings.name}.png"],
        details={
            "config": run.config,
            "evaluator": judged["evaluator"],
            "curve": columns,
            "rows": judged["rows"],
            **kept,
        },
        provenance=manifest,
    )
    draw(columns, settings.name, RECORDS / f"{settings.name}.png")
    cli.finish({"record": str(path.relative_to(ROOT)), **kept})


if __name__ == "__main__":
    cli.run_main(main)
