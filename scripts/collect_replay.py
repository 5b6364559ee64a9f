"""Collect a data set of the ladder: driving by policies and scripted scenarios, as replay."""

from pathlib import Path
from typing import Literal

from common import cli
from common.errors import UserError
from common.files import write_json
from common.records import write_record
from common.runs import ROOT
from common.schema import config_class

DESCRIPTION = """Collect one of the data sets (experiments/data/recipes.py has the recipes).

    python scripts/collect_replay.py dataset=D4_main
    python scripts/collect_replay.py dataset=D6b factor=0.2 root=/tmp/data

Only what is missing is collected: a killed or smaller collection is continued. D3_diverse, D6 and
D6b are made of others, which are collected first. Prints a summary and writes it to
<root>/<dataset>/summary.json, and frames of every scenario to contact.png beside it. A row takes
28 KB: D4_main 1 GB."""

CHECKPOINT = ROOT / "experiments" / "checkpoints" / "race.pt"


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        dataset: which.
        factor: on the recipe's number of frames.
        root: where the data sets are.
        seed: of tracks, warm-ups and disturbances.
        checkpoint: the policy that drives: a file or a run; by default ours.
        early: an early policy for D1; without it, the policy with much noise.
        quick: a tenth or two of the frames, enough for probes quick=true.
        record: keep the summary as experiments/records/data_<name>.json.
    """

    dataset: Literal[
        "D1", "D2", "D3_diverse", "D4_pilot", "D4_main", "D5", "D6", "D6b", "PROBE", "NOVEL"
    ]
    factor: float = 1.0
    root: str = "data"
    seed: int = 1
    checkpoint: str = ""
    early: str = ""
    quick: bool = False
    record: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.factor <= 1000:
            raise ValueError(f"factor is positive and at most 1000, not {self.factor}")
        if self.record and self.quick:
            raise ValueError("record=true keeps what models are trained on: leave out quick")
        if self.seed < 0:
            raise ValueError(f"seed is 0 or more, not {self.seed}")
        if not self.root.strip():
            raise ValueError("root is empty; name a directory, such as data")


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    # Late: --help need not wait for torch and numba.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from experiments.data.collection import DataSetBuilder, load_hashed
    from experiments.data.recipes import recipe
    from experiments.data.summary import contact_sheet, show, summarise
    from ppo.evaluate import resolve_checkpoint
    from replay.dataset import DataSet

    path = resolve_checkpoint(settings.checkpoint or CHECKPOINT)
    if not path.is_file():
        raise UserError(f"{path}: no such checkpoint; train a driver with `make train`")
    policy, content = load_hashed(path)
    early = load_hashed(resolve_checkpoint(settings.early)) if settings.early else None
    factor = recipe(settings.dataset).quick if settings.quick else settings.factor
    root = Path(settings.root)
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()) as bars:
        tasks: dict[str, int] = {}

        def report(title: str, rows: int, total: int) -> None:
            if title not in tasks:
                tasks[title] = bars.add_task(title, total=total)
            bars.update(tasks[title], completed=rows)

        builder = DataSetBuilder(
            root,
            policy,
            content,
            factor=factor,
            seed=settings.seed,
            early=early,
            report=report,
        )
        builder.fill(settings.dataset)

    splits = recipe(settings.dataset).splits()
    data_sets = {split: DataSet(root, settings.dataset, split) for split in splits}
    summaries = {split: summarise(data) for split, data in data_sets.items()}
    show(settings.dataset, summaries)
    place = root / settings.dataset
    contact_sheet(data_sets[splits[0]], place / "contact.png")
    write_json(place / "summary.json", {"splits": summaries})
    numbers = {
        "rows": sum(summary["rows"] for summary in summaries.values()),
        "episodes": sum(summary["episodes"] for summary in summaries.values()),
        "off_track": summaries[splits[0]]["all"]["off_track"],
        "speed": summaries[splits[0]]["all"]["speed"],
    }
    if settings.record:
        write_record(
            f"data_{settings.dataset.lower()}",
            command=cli.command("scripts/collect_replay.py"),
            settings={"dataset": settings.dataset, "seed": settings.seed, "policy": content},
            metrics=numbers,
            details={
                "about": recipe(settings.dataset).about,
                "sha256": {split: data.sha256 for split, data in data_sets.items()},
                "splits": summaries,
            },
        )
    cli.finish(numbers | {"data": str(place)})


if __name__ == "__main__":
    cli.run_main(main)
