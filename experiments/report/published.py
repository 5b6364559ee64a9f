"""Published results for CarRacing, which the report shows beside ours."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """The return per episode of one published driver.

    Attributes:
        name: the label in figures, with the version of CarRacing.
        mean, sd: mean and standard deviation over the episodes of its evaluation.
        source: where it was published.
        minimum, p10: the lowest return and the 10th percentile, if they were published.
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
"""CarRacing-v0 and v3 differ in details of reward and rendering, and each driver was evaluated on
different tracks."""

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
"""What the earlier record reported for each rung. It used one hand-picked clip per scene, no
baselines, other data and longer training."""


@dataclass(frozen=True)
class EarlierRun:
    """A driver that the earlier record promoted, with the numbers reported there.

    Attributes:
        name: name of the run or candidate.
        reward, progress, off_track_rate: means over its episodes.
        episodes: number of episodes that it was judged by.
        steps: steps of training, if they were published.
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
"""`python -m autoresearch earlier` shows the evidence for these promotions."""

EARLIER_RECORD = (
    "The *earlier record* is the published report of another project with the same aims: PPO, a "
    "world model, and an AutoResearch loop that promotes candidates. That project used a two-car "
    "fork of CarRacing with its own reward. Its numbers are shown beside ours only for "
    "orientation: they come from another world, and mostly from three episodes or from single "
    "hand-picked clips."
)
