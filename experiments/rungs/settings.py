"""What `python -m experiments.ladder` is asked, and the configuration of a rung."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from common.config import compose
from common.errors import UserError
from common.schema import config_class
from common.seeding import parse_seeds
from experiments.report.kept import RUNGS
from probes.clips import RULES
from rssm.training_run import WorldModelTrainConfig

CLIPS = 64
JUDGED = ("sharp_turn", "gentle_turn", "recovery", "faithfulness")


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        run: rungs: names and ranges, with commas.
        seeds: training seeds, such as 1-2.
        scale: of budgets.
        data_root: of the data sets.
        run_root: of the runs.
        overrides: more overrides of train_world_model.py.
        probes: of every rung.
        clips: per probe; null: the rule's own.
        film: write the probes' videos.
        threads: of torch; 0 takes what there are.
        record: write records.
    """

    run: str = "E1-P5"
    seeds: str = "1"
    scale: Literal["laptop", "record"] = "laptop"
    data_root: str = "data"
    run_root: str = "runs"
    overrides: list[str] = field(default_factory=list)
    probes: list[str] = field(default_factory=lambda: list(JUDGED))
    clips: int | None = CLIPS
    film: bool = False
    threads: int = 0
    record: bool = False

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


def configuration(name: str, scale: str, overrides: Sequence[str] = ()) -> WorldModelTrainConfig:
    """What train_world_model.py makes of a rung."""
    typed = [*arguments(name, scale), *overrides]
    return compose("train_world_model", WorldModelTrainConfig, typed)


def arguments(name: str, scale: str) -> list[str]:
    """Overrides of train_world_model.py that make it a rung at a scale."""
    return [f"experiment={name}", f"scale={scale}", *(["rssm=record"] if scale == "record" else [])]
