"""The settings of `python -m experiments.ladder`, and the configuration of a rung."""

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
        run: rungs, as names and ranges with commas.
        seeds: training seeds, such as 1-2.
        scale: size of the training budgets.
        data_root: folder of the data sets.
        run_root: folder of the runs.
        overrides: further overrides of train_world_model.py.
        probes: probes that judge every rung.
        clips: clips per probe; null uses the number in the probe's rule.
        film: write the probes' videos.
        threads: threads of torch; 0 uses all available.
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
        default = (self.clips, self.probes) == (CLIPS, list(JUDGED)) and not self.overrides
        if self.record and not default:
            raise ValueError(
                "record=true works only with the default settings: leave out overrides, probes and "
                "clips"
            )
        for probe in self.probes:
            if probe not in RULES:
                raise ValueError(f"probes are among {', '.join(RULES)}, not {probe!r}")


def rungs(text: str) -> list[str]:
    """The rungs that a text such as "E1-P5,2B" names, in the ladder's order.

    Raises `UserError` for an unknown rung or a range in the wrong order.
    """
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
    """The configuration with which train_world_model.py trains a rung."""
    typed = [*arguments(name, scale), *overrides]
    return compose("train_world_model", WorldModelTrainConfig, typed)


def arguments(name: str, scale: str) -> list[str]:
    """The overrides of train_world_model.py that select a rung and a scale."""
    return [f"experiment={name}", f"scale={scale}", *(["rssm=record"] if scale == "record" else [])]
