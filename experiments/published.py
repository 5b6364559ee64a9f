"""What others published for CarRacing, to stand beside our numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """Return per episode of one published driver.

    Attributes:
        name: as a figure shows it, with the version of CarRacing.
        mean, sd: over its evaluation's episodes.
        source: where it was published.
        minimum, p10: the low end, where it was told.
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
