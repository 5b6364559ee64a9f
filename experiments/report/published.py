"""What others published for CarRacing, to stand beside our numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """Return per episode of one published driver.

    Attributes:
        name: as a figure shows it, with the version of CarRacing.
        mean, sd: over its evaluation's episodes.
        source: where it was published.
        minimum, p10: the low end, where it was published.
    """

    name: str
    mean: float
    sd: float
    source: str
    minimum: float | None = None
    p10: float | None = None


PUBLISHED = (
    Published(
        name="best-ppo-carracing-v3\n(SB3 PPO, v3)",
        mean=868.0,
        sd=84.0,
        minimum=535.0,
        p10=800.0,
        source="https://github.com/noahcilliers/best-ppo-carracing-v3, 50 fixed seeds",
    ),
    Published(
        name="RL Zoo PPO-LSTM\n(v0, 4M steps)",
        mean=862.5,
        sd=97.3,
        source="https://github.com/DLR-RM/rl-baselines3-zoo, benchmark.md",
    ),
    Published(
        name="RL Zoo PPO\n(v0, 4M steps)",
        mean=153.9,
        sd=74.5,
        source="https://github.com/DLR-RM/rl-baselines3-zoo, benchmark.md",
    ),
)
"""CarRacing-v0 and v3 differ in details of reward and rendering; each driver has its own tracks."""

EARLIER_RUNGS = {
    "E1": "SSIM .9351; sharp .9429, gentle .9397, recovery .9461",
    "E2": "gentle .9393, recovery .9347",
    "E3": "correlation of reward .976, no telemetry",
    "P2": "SSIM .9194; correlation of reward .009, speed -.03",
    "P3": "SSIM .9470, sharp .9257; correlation of reward .773, speed .497, steer .407, "
    "progress_delta .077",
    "P4": "SSIM .9665, sharp .9241",
    "P5": "correlation of reward .839, speed .775, steer .648, progress_delta .071",
    "I1B1": "no gain on sharp_turn",
    "I1B2": "no gain on sharp_turn",
    "I1B3": "no gain on sharp_turn",
    "2A": "no gain",
    "2B": "worse",
    "2C": "no gain",
}
"""What the earlier record reported of each rung: on one hand-picked clip per scene, without
baselines, of other data and longer training."""


@dataclass(frozen=True)
class EarlierRun:
    """A driver that the earlier record promoted, as it was reported there.

    Attributes:
        name: of the run or candidate.
        reward, progress, off_track_rate: means over its episodes.
        episodes: how many it was judged by.
        steps: of its training, where they were published.
    """

    name: str
    reward: float
    progress: float
    off_track_rate: float
    episodes: int
    steps: int | None = None


EARLIER_RUNS = (
    EarlierRun("run_008", 205.46, 0.5551, 0.036, episodes=3, steps=49_152),
    EarlierRun("g003_c03", 232.58, 0.7376, 0.268, episodes=3),
)
"""`python -m autoresearch earlier` says what these promotions rest on."""

EARLIER_RECORD = (
    "The *earlier record* is the published report of a project with the same aims: PPO, a world "
    "model, and candidates that an AutoResearch loop promoted, in a two-car fork of CarRacing with "
    "a reward of its own. Its numbers stand beside ours for orientation. They are of another "
    "world, and mostly of three episodes or of single hand-picked clips."
)
