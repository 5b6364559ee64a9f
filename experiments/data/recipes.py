"""The data sets of the ladder as recipes: who drives, how much, on which tracks.

Sizes are those of the earlier record where it gives them (`frames` are rows, both directions
together); `scripts/collect_replay.py` collects them, and a factor scales them.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from common.errors import UserError
from common.keys import unknown_choice

TRACKS = {"train": "train", "val": "validation", "probe": "probe"}
"""Split of a data set -> split of the track seeds (`common.seeding.SPLITS`) that it drives on."""

POLICY = "ppo"


@dataclass(frozen=True)
class Source:
    """One kind of driving.

    Attributes:
        scenario: name recorded with the episodes.
        driver: "ppo", the trained policy, or one of `envs.racing.drivers.SCENARIOS`.
        share: of the data set's rows.
        noise: scale of the disturbance of its actions (`ActionNoise`).
        pace: of a scripted driver, factor on its speeds.
        early: of "ppo", use the early checkpoint where one is named, without the noise.
    """

    scenario: str
    driver: str
    share: float = 1.0
    noise: float = 0.1
    pace: float = 1.0
    early: bool = False


@dataclass(frozen=True)
class Selection:
    """Episodes of another data set that a curated one takes, until `share` of its rows are full.

    Attributes:
        dataset: where they come from.
        share: of that data set's rows, at most.
        corner: rad, the sharpest bend is at least this.
        off_track: share of rows with all four wheels off the road, at most.
    """

    dataset: str
    share: float
    corner: float
    off_track: float

    def accepts(self, telemetry: Mapping[str, np.ndarray]) -> bool:
        """Whether an episode with these values, (T,) by name, fits the rule."""
        off = np.mean(telemetry["off_track"] == 1.0)
        sharpest = np.abs(telemetry["corner_angle"]).max()
        return bool(off <= self.off_track and sharpest >= self.corner)


@dataclass(frozen=True)
class Recipe:
    """One data set: driving of its own (`sources`), others whole (`parts`) or some of another.

    Attributes:
        about: one line for people.
        frames: rows by split, collected from `sources`.
        length: rows of an episode, at most.
        warmup: ticks, at most, driven before an episode's first row.
        tracks: who makes the tracks, as in `EnvConfig`.
        quick: factor of a quick collection: whole windows of 100 rows in every split, and for the
            sets that probes judge by, clips for every probe.
        recorded: factor with which the committed record was collected.
    """

    about: str
    frames: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    length: int = 250
    warmup: int = 600
    tracks: str = "carracing"
    parts: tuple[str, ...] = ()
    selection: Selection | None = None
    quick: float = 0.1
    recorded: float = 1.0

    def splits(self) -> tuple[str, ...]:
        """Splits of the data set."""
        return tuple(self.frames) or ("train", "val")


_SCENARIOS = (
    "sustained_turn",
    "turn_exit",
    "steering_reversal",
    "throttle_lift",
    "brake_in_turn",
    "off_track_recovery",
    "near_edge",
)

RECIPES = {
    "D1": Recipe(
        "an early policy, both directions",
        {"train": 10_000, "val": 2_000},
        (Source("ppo_early", POLICY, noise=0.35, early=True),),
        length=500,
        warmup=400,
    ),
    "D2": Recipe(
        "another policy: the trained one",
        {"train": 5_000, "val": 1_000},
        (Source("ppo", POLICY),),
    ),
    "D3_diverse": Recipe("D1 and D2", parts=("D1", "D2")),
    "D4_pilot": Recipe(
        "the first telemetry set, in 72 and 20 short episodes",
        {"train": 7_000, "val": 1_400},
        (Source("ppo", POLICY, 0.5), Source("ppo_noisy", POLICY, 0.5, noise=0.3)),
        length=98,
    ),
    "D4_main": Recipe(
        "every scenario, and the policy",
        {"train": 30_000, "val": 5_000},
        (
            Source("ppo", POLICY, 0.2),
            Source("ppo_noisy", POLICY, 0.1, noise=0.3),
            *(Source(name, name, 0.1) for name in _SCENARIOS),
        ),
        recorded=8,
    ),
    "D5": Recipe(
        "hard turns: too fast, noisy, much of it off the road",
        {"train": 8_000, "val": 1_000},
        (
            Source("hard_brake", "brake_in_turn", 0.3, noise=0.3, pace=1.25),
            Source("hard_lift", "throttle_lift", 0.3, noise=0.3, pace=1.2),
            Source("hard_turn", "sustained_turn", 0.25, noise=0.4, pace=1.35),
            Source("hard_recovery", "off_track_recovery", 0.15, noise=0.3),
        ),
        recorded=8,
    ),
    "D6": Recipe("D4_main and all of D5", parts=("D4_main", "D5"), recorded=8),
    "D6b": Recipe(
        "D4_main and the part of D5 that mostly stays on the road in sharp turns",
        parts=("D4_main",),
        selection=Selection("D5", share=0.25, corner=0.8, off_track=0.1),
        recorded=8,
    ),
    "PROBE": Recipe(
        "what the probes judge by: tracks of their own",
        {"probe": 32_000},
        (
            Source("ppo", POLICY, 0.3),
            Source("sustained_turn", "sustained_turn", 0.1),
            Source("turn_exit", "turn_exit", 0.1),
            Source("brake_in_turn", "brake_in_turn", 0.1),
            Source("near_edge", "near_edge", 0.1),
            Source("off_track_recovery", "off_track_recovery", 0.3),
        ),
        length=200,
        quick=0.2,
    ),
    "NOVEL": Recipe(
        "track shapes that no training set contains: graded ones, with hairpins",
        {"probe": 16_000},
        (
            Source("ppo", POLICY, 0.5),
            Source("sustained_turn", "sustained_turn", 0.25),
            Source("turn_exit", "turn_exit", 0.25),
        ),
        length=200,
        tracks="procedural",
        quick=0.15,
    ),
}


def recipe(name: str) -> Recipe:
    """The recipe of a data set; `UserError` for an unknown name."""
    if name not in RECIPES:
        raise UserError(str(unknown_choice("dataset", name, list(RECIPES))))
    return RECIPES[name]


def collect_command(name: str, root: str = "data", quick: bool = False) -> str:
    """The command that collects a data set as it is recorded, or a quick one."""
    factor = recipe(name).recorded
    words = ["python scripts/collect_replay.py", f"dataset={name}"]
    words += ["quick=true"] if quick else [f"factor={factor:g}"] if factor != 1 else []
    words += [] if root == "data" else [f"root={shlex.quote(root)}"]
    return " ".join(words)
