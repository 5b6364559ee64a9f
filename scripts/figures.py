"""Draw every picture of the documents from the committed records and the committed driver."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from common import cli
from common.display import progress_bar
from common.errors import UserError
from common.records import RECORDS, read_record
from common.runs import ROOT
from common.schema import config_class

DESCRIPTION = """Draw docs/images/*.png from experiments/records; no run is needed.

    python scripts/figures.py                     all of them
    python scripts/figures.py only=curves,speed   some

curves  learning curves on validation tracks, mean and interval over seeds
scores  returns in the real CarRacing-v3 beside published ones
speed   the simulator and training against what others use
drive   a still of the committed driver

A picture whose record is not there yet is skipped, which is said."""

DRIVER = ROOT / "experiments" / "checkpoints" / "race.pt"
DRIVE_TRACK, DRIVE_SECONDS = 0, 8


class Skipped(Exception):
    """What a picture needs has not been made yet; says what."""


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        only: names, comma-separated; empty for all.
        records: empty: experiments/records.
        out: where they go; empty: docs/images.
    """

    only: str = ""
    records: str = ""
    out: str = ""

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in FIGURES:
                raise ValueError(f"only names {', '.join(FIGURES)}, not {name!r}")

    @property
    def names(self) -> list[str]:
        """The figures to draw."""
        return [name.strip() for name in self.only.split(",")] if self.only else [*FIGURES]


def curves(records: Path, path: Path) -> None:
    from experiments.report import figures, kept

    # Two points make no curve; records of before averages held their columns in another way.
    drawn = [r for r in kept.trained(records) if len(_curve(r).get("ticks", ())) > 2]
    if not drawn:
        raise Skipped("no record written by scripts/aggregate.py has a learning curve")
    figures.draw_curves(drawn, path)


def scores(records: Path, path: Path) -> None:
    from experiments.report import figures

    record = read_record("carracing", records)
    if record is None:
        raise Skipped("no record carracing")
    try:
        figures.draw_scores(record, path)
    except UserError as error:
        raise Skipped(str(error)) from None


def speed(records: Path, path: Path) -> None:
    from experiments.report import figures

    engine, training = read_record("speed", records), read_record("ppo_speed", records)
    if engine is None:
        raise Skipped("no record speed: python scripts/bench_env.py record=true")
    figures.draw_speed(engine, training, path)
    if training is None:
        print("speed: without training, no record ppo_speed: python scripts/bench_ppo.py")


def drive(records: Path, path: Path) -> None:
    """By the same film as scripts/watch.py's."""
    if not DRIVER.is_file():
        raise Skipped(f"no driver {DRIVER.name}: python scripts/aggregate.py checkpoint=race")
    from envs.racing.show.video import TICKS_PER_SECOND, record_video, save_still
    from ppo.evaluate import load_policy

    driver = load_policy(DRIVER)
    with tempfile.TemporaryDirectory() as directory:
        film = Path(directory) / "drive.mp4"
        ticks = DRIVE_SECONDS * TICKS_PER_SECOND + 1
        with progress_bar("filming") as progress:
            record_video(
                driver, film, track_seed=DRIVE_TRACK, max_ticks=ticks, fps=5, progress=progress
            )
        save_still(film, DRIVE_SECONDS, path)


FIGURES: dict[str, Callable[[Path, Path], None]] = {
    one.__name__: one for one in (curves, scores, speed, drive)
}


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    records = Path(settings.records) if settings.records else RECORDS
    out = Path(settings.out) if settings.out else ROOT / "docs" / "images"
    if not records.is_dir():
        raise UserError(f"records={records}: no such directory")
    drawn, skipped = [], []
    for name in settings.names:
        try:
            FIGURES[name](records, out / f"{name}.png")
            drawn.append(name)
        except Skipped as reason:
            print(f"{name}: skipped, {reason}", flush=True)
            skipped.append(name)
    cli.finish({"drawn": ",".join(drawn) or "nothing", "skipped": ",".join(skipped) or "nothing"})


def _curve(record: dict) -> dict:
    details = record["details"]
    return details["curve"] if "seeds" in details else {}


if __name__ == "__main__":
    cli.run_main(main)
