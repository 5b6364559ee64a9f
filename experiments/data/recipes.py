"""The data sets of the ladder as recipes: which drivers, how many rows, on which tracks.

The sizes are those of the earlier record where it reports them. `frames` counts rows of both
directions together. `scripts/collect_replay.py` collects the data sets; its factor scales them.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from common.errors import UserError
from common.keys import unknown_choice

TRACKS = {"train": "train", "val": "validation", "probe": "probe"}
"""Split of a data set -> split of the track seeds it uses (`common.seeding.SPLITS`)."""

POLICY = "ppo"


@dataclass(frozen=True)
class Source:
    """One kind of driving.

    Attributes:
        scenario: name recorded with the episodes.
        driver: "ppo" (the trained policy) or one of `envs.racing.drivers.SCENARIOS`.
        share: share of the data set's rows.
        noise: scale of the noise on its actions (`ActionNoise`).
        pace: factor on the speeds of a scripted driver.
        early: for "ppo" only: use the early checkpoint, if one is named, with noise 0.1.
    """

    scenario: str
    driver: str
    share: float = 1.0
    noise: float = 0.1
    pace: float = 1.0
    early: bool = False


@dataclass(frozen=True)
class Selection:
    """A rule that selects episodes of another data set.

    Attributes:
        dataset: the data set that the episodes come from.
        share: largest share of that data set's rows to select.
        corner: the episode's sharpest bend is at least this many rad.
        off_track: largest share of rows with all four wheels off the road.
    """

    dataset: str
    share: float
    corner: float
    off_track: float

    def accepts(self, telemetry: Mapping[str, np.ndarray]) -> bool:
        """Whether an episode fits the rule. `telemetry` maps names to arrays of shape (T,)."""
        off_track = np.mean(telemetry["off_track"] == 1.0)
        sharpest = np.abs(telemetry["corner_angle"]).max()
        return bool(off_track <= self.off_track and sharpest >= self.corner)


@dataclass(frozen=True)
class Recipe:
    """One data set.

    It holds new driving (`sources`), whole other data sets (`parts`), or episodes selected from
    another one (`selection`).

    Attributes:
        about: a one-line description.
        frames: rows to collect from `sources`, by split.
        sources: the drivers and their shares.
        length: largest number of rows in an episode.
        warmup: largest number of ticks driven before an episode's first row.
        tracks: the track generator, as in `EnvConfig`.
        parts: data sets that are included whole.
        selection: the rule that selects episodes of another data set.
        quick: factor of a quick collection. It is large enough for windows of 100 rows in every
            split, and, in the data sets of the probes, for clips of every probe.
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
        """The splits of the data set."""
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
    """The command that collects a data set: at the size of its record, or small if `quick`."""
    factor = recipe(name).recorded
    words = ["python scripts/collect_replay.py", f"dataset={name}"]
    words += ["quick=true"] if quick else [f"factor={factor:g}"] if factor != 1 else []
    words += [] if root == "data" else [f"root={shlex.quote(root)}"]
    return " ".join(words)
